"""Raw files of GoEmotions."""

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export
from tests.io.exports.conftest import cells, write


def test_goemotions_raw(tmp_path):
    header = ["text", "id", "author", "rater_id", "example_very_unclear", "joy", "anger"]
    rows = [
        ["t", "c1", "someone", 4, False, 1, 0],
        ["t", "c1", "someone", 5, False, 1, 1],
        ["t", "c1", "someone", 6, True, 0, 0],
    ]
    path = write(tmp_path / "goemotions_1.csv", [header, *rows])
    with pytest.raises(AnnotationError, match="several labels"):
        read_annotations(path)
    export = read_export(path, multilabel="split")
    assert cells(export.tables["anger"]) == {("c1", "4"): "no", ("c1", "5"): "yes"}
    assert len(export.tables["joy"].abstentions) == 1
    assert list(export.items.columns) == ["text"]
