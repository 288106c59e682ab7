"""Exports of CVAT."""

import zipfile

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_export
from tests.io.exports.conftest import cells, write

CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version>
<image id="0" name="a.png"><tag label="{0}" source="manual"/></image>
<image id="1" name="b.png"><box label="eye" xtl="0" ytl="0" xbr="1" ybr="1"/></image>
</annotations>"""


def test_cvat_annotators_are_named_by_files_or_archives(tmp_path):
    for name, label in (("ann", "cat"), ("bob", "dog")):
        write(tmp_path / "xml" / f"{name}.xml", CVAT.format(label))
        (tmp_path / "zip").mkdir(exist_ok=True)
        with zipfile.ZipFile(tmp_path / "zip" / f"{name}.zip", "w") as archive:
            archive.writestr("annotations.xml", CVAT.format(label))
        rest = {"version": 3, "tags": [{"frame": 0, "label_id": 7}], "shapes": [], "tracks": []}
        write(tmp_path / "rest" / f"{name}.json", rest | {"assignee": {"username": name}})
    export = read_export(tmp_path / "xml", annotator_from="file")
    assert cells(export.annotations) == {("a.png", "ann"): "cat", ("a.png", "bob"): "dog"}
    (lost,) = export.left_out
    assert "has no tags" in lost.reason
    assert lost.where == ("ann.xml, image 1", "bob.xml, image 1")
    with pytest.raises(AnnotationError, match=r"do not name annotators.*annotator_from='folder'"):
        read_export(tmp_path / "xml")
    with pytest.raises(AnnotationError, match=r"have the same name.*annotator_from='folder'"):
        read_export(tmp_path / "zip", annotator_from="file")
    archives = read_export(tmp_path / "zip", annotator_from="folder")
    assert archives.annotations.equals(export.annotations)
    rest = read_export(tmp_path / "rest")
    assert cells(rest.annotations) == {("0", "ann"): 7, ("0", "bob"): 7}
    with pytest.raises(AnnotationError, match="annotator_from='name' is unknown"):
        read_export(tmp_path / "xml", annotator_from="name")
