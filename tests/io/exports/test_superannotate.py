"""Folders and forms of SuperAnnotate."""

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_export
from tests.io.exports.conftest import cells, write


def test_superannotate_tags_name_their_annotator(tmp_path):
    def tag(who, **more):
        return {"type": "tag", "createdBy": {"email": who}, **more}

    for name, first, second in (("a", "cat", "dog"), ("b", "cat", "cat")):
        tags = [tag("x@s.org", className=first), tag("y@s.org", className=second)]
        box = {"type": "bbox", "className": "eye"}
        value = {"metadata": {"name": f"{name}.jpg"}, "instances": [*tags, box]}
        write(tmp_path / f"{name}.json", value)
    export = read_export(tmp_path)
    assert export.format == "superannotate"
    assert cells(export.annotations)["a.jpg", "y@s.org"] == "dog"
    assert export.annotations.n_annotations == 4
    weather = tag("x@s.org", className="Sky", attributes=[{"name": "1", "groupName": "g"}])
    write(tmp_path / "c.json", {"metadata": {"name": "c.jpg"}, "instances": [weather]})
    with pytest.raises(AnnotationError, match=r"'class' .*'Sky / g'"):
        read_export(tmp_path)
    forms = [
        {"metadata": {"name": 1, "folder_name": who}, "data": {"q": {"value": [label]}}}
        for who, label in (("ann", "x"), (" bob", "y"))
    ]
    export = read_export(write(tmp_path / "forms" / "f.jsonl", forms))
    assert cells(export.annotations) == {("1", "ann"): "x", ("1", "bob"): "y"}
    assert "forms do not name annotators" in export.notes[0]
