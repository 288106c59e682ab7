"""Long tables as JSON lines."""

from manyhands.io import read_export
from tests.io.exports.conftest import cells, write


def test_long_tables_as_json_lines(tmp_path):
    rows = [{"item": 1, "rater": "a", "label": True, "text": "T", "age": 40}]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert cells(export.annotations) == {("1", "a"): "true"}
    assert export.items.columns == {"text": ["T"]}, "covariates are read only if they are named"
    assert "age" in read_export(tmp_path / "a.jsonl", fields=["age"]).items.columns
