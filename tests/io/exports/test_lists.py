"""Records with a list of annotators and one of labels."""

import pytest

from manyhands.io import read_export
from tests.io.exports.conftest import cells, write


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_lists_of_annotators_and_labels(tmp_path, suffix):
    rows = [
        {"id": "x", "text": "A", "annotators": ["a", "b"], "annotations": ["yes", "no"]},
        {"id": "y", "text": "B", "annotators": ["a"], "annotations": ["yes", "no"]},
    ]
    export = read_export(write(tmp_path / f"a{suffix}", rows))
    assert cells(export.annotations) == {("x", "a"): "yes", ("x", "b"): "no"}
    assert export.left_out[0].count == 1
    assert export.items.columns["text"][0] == "A"
