"""Exports of INCEpTION, which are refused."""

import json
import zipfile

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_export
from tests.io.exports.conftest import write


def test_inception_is_refused_with_the_way_out(tmp_path):
    cas = {"%TYPES": {}, "%FEATURE_STRUCTURES": [], "%VIEWS": {}}
    xmi = '<?xml version="1.0"?><xmi:XMI xmlns:xmi="http://www.omg.org/XMI" xmi:version="2.0"/>'
    with zipfile.ZipFile(tmp_path / "project.zip", "w") as archive:
        archive.writestr("annotation/d1.txt/ann.json", json.dumps(cas))
        archive.writestr("source/d1.txt", "Fine.")
    for path in (
        write(tmp_path / "ann.json", cas),
        write(tmp_path / "ann.xmi", xmi),
        tmp_path / "project.zip",
    ):
        with pytest.raises(AnnotationError, match=r"dkpro-cassis.*docs/formats\.md"):
            read_export(path)
