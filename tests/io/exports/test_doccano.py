"""Exports of doccano."""

import zipfile

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export
from tests.io.exports.conftest import cells, doccano, write


def test_doccano_members_of_a_zip_are_annotators(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ann.jsonl", doccano([(1, ["x"]), (2, [])]))
        archive.writestr("bob.jsonl", doccano([(1, ["y"]), (2, ["x"])]))
    export = read_export(tmp_path / "a.zip")
    assert cells(export.annotations) == {("1", "ann"): "x", ("1", "bob"): "y", ("2", "bob"): "x"}
    assert export.left_out[0].where == ("ann.jsonl, line 2",)
    with pytest.raises(AnnotationError, match="anonymise='no' is neither True nor False"):
        read_export(tmp_path / "a.zip", anonymise="no")
    hidden = read_export(tmp_path / "a.zip", anonymise=True)
    assert hidden.annotations.annotators.tolist() == ["w001", "w002"]
    assert hidden.annotator_names == {"w001": "ann", "w002": "bob"}
    assert hidden.left_out[0].where == ("w001.jsonl, line 2",)


def test_one_file_of_doccano_needs_to_say_whose_it_is(tmp_path):
    path = write(tmp_path / "ann.jsonl", doccano([(1, ["x"]), (2, ["y"])]))
    with pytest.raises(AnnotationError, match="does not name annotators"):
        read_annotations(path)
    assert read_annotations(path, annotator_from="file").annotators.tolist() == ["ann"]
