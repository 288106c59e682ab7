"""Sets of LeWiDi."""

from manyhands.io import read_export
from tests.io.exports.conftest import cells, write


def test_lewidi_names_annotators_by_item(tmp_path):
    item = {"annotators": "a,b", "annotations": "0,1", "annotation task": "hate"}
    broken = item | {"annotations": "0"}
    export = read_export(write(tmp_path / "l.json", {"1": item, "2": broken}))
    assert cells(export.annotations) == {("1", "a"): 0, ("1", "b"): 1}
    assert [lost.count for lost in export.left_out] == [1]
