"""Exports of Labelbox."""

from manyhands.io import read_export
from tests.io.exports.conftest import cells, labelbox, write


def test_labelbox_skips_and_benchmarks(tmp_path):
    labels = [
        labelbox("a", "ann@x.org", "sun"),
        labelbox("b", "bob@x.org", "rain", benchmark_reference_label="g"),
        labelbox("c", "cy@x.org", "rain", skipped=True),
        labelbox("g", "boss@x.org", "sun"),
    ]
    row = {"data_row": {"id": "1", "row_data": "u"}, "projects": {"p": {"labels": labels}}}
    export = read_export(write(tmp_path / "l.ndjson", row), anonymise=True)
    assert cells(export.annotations) == {("1", "w001"): "sun", ("1", "w002"): "rain"}
    assert export.annotations.skips.tolist() == [[0, 2]]
    assert export.gold.labels.tolist() == ["sun"]
    assert "boss@x.org" not in export.annotator_names.values()
