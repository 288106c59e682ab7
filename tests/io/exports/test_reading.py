"""Reading any export: what is aligned, marked, left out and logged."""

import zipfile

import numpy as np
import pytest

from manyhands.exceptions import AnnotationError, MissingExtraError
from manyhands.io import read_aligned, read_annotations, read_export
from tests.io.exports.conftest import made, studio, write


def test_exports_align_with_features(tmp_path):
    tasks = [studio(made(1, "good"), number=n, item=f"i{n}") for n in (2, 1)]
    path = write(tmp_path / "a.json", tasks)
    np.savez(tmp_path / "X.npz", X=np.eye(3), task=np.array(["i0", "i1", "i2"]))
    features, table = read_aligned(tmp_path / "X.npz", path, task="data.item")
    assert len(features) == len(table) == 3
    assert table.annotations_per_instance().tolist() == [0, 1, 1]


def test_marked_labels_are_passes_and_classes_have_an_order(tmp_path):
    task = studio(made(1, "good"), made(2, "unsure"), made(3, "bad"))
    path = write(tmp_path / "a.json", [task])
    table = read_annotations(path, abstain="unsure", classes=["good", "bad", "ugly"])
    assert table.classes.tolist() == ["good", "bad", "ugly"]
    assert table.abstentions.tolist() == [[0, 1]]
    with pytest.raises(AnnotationError, match="bad"):
        read_annotations(path, classes=["good", "unsure"])


def test_files_that_hold_no_annotations_are_named(tmp_path):
    write(tmp_path / "a.json", [studio(made(1, "good"))])
    write(tmp_path / "README.md", "# A project")
    export = read_export(tmp_path)
    assert "README.md" in export.left_out[0].where[0]


def test_the_choice_is_logged_as_a_command(tmp_path, caplog):
    path = write(tmp_path / "a.json", [studio(made(1, "good"))])
    with caplog.at_level("INFO", logger="manyhands"):
        read_annotations(path)
    assert "a.json is read with format='label-studio', question='mood'" in caplog.text


def test_excel_workbooks_need_the_extra(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"manyhands\[io\]"):
        read_annotations(tmp_path / "a.xlsx")
