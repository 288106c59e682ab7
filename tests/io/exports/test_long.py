"""Long tables as JSON lines."""

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export
from tests.io.exports.conftest import cells, write


def test_long_tables_as_json_lines(tmp_path):
    rows = [{"item": 1, "rater": "a", "label": True, "text": "T", "age": 40}]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert cells(export.annotations) == {("1", "a"): "true"}
    assert export.items.columns == {"text": ["T"]}, "covariates are read only if they are named"
    assert "age" in read_export(tmp_path / "a.jsonl", fields=["age"]).items.columns


def test_an_unknown_column_of_labels_is_named_as_in_a_table(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"item,rater,score\n1,{name},3\n2,{name},4\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(AnnotationError, match="name the column of answers with label=, one of 's"):
        read_annotations(files)
    assert read_annotations(files, label="score").n_annotations == 4
