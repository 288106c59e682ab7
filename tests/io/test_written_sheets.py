"""Tables written for spreadsheet programs, which manyhands reads again."""

from __future__ import annotations

import os
import sys

import pytest

from manyhands import AnnotationTable, DawidSkene
from manyhands.exceptions import AnnotationError, MissingExtraError, WriteError
from manyhands.io import csv_files, frames, read_annotations, workbooks, write_annotations
from manyhands.io.consensus_labels import read_consensus
from manyhands.io.frames import check_table_path, read_frame, write_table
from manyhands.io.writers import write_labels

ODD = ["=SUM(A1)", "@x", "+1 (555) 0100", "-5", "007", "1e5", "#N/A", "TRUE", "3.0", "a\r\nb"]
ODD += ["\x0b", "'=1+1", "_x000D_", " blank ", "Jörg; 'ann', \"bob\"", "2-1", "良い", "\ttab"]
"""Texts that spreadsheet programs take for something else."""


@pytest.fixture
def openpyxl():
    return pytest.importorskip("openpyxl", reason="pip install 'manyhands[io]'")


@pytest.fixture(params=[".", ","])
def regional(request, monkeypatch):
    """Settings of a computer: a decimal point, or a decimal comma."""
    monkeypatch.setattr(csv_files, "decimal_mark", lambda: request.param)
    return request.param


def odd_table():
    codes = [i % 2 for i in range(len(ODD))]
    return AnnotationTable.from_arrays(ODD, ["ann"] * len(ODD), codes, classes=[0, 1])


def test_odd_texts_come_back_from_a_workbook(tmp_path, openpyxl):
    path = write_annotations(tmp_path / "a.xlsx", odd_table())
    table = read_annotations(path)
    assert sorted(table.instances.tolist()) == sorted(ODD)
    assert {row[0] for row in table.to_frame()[["task"]].to_numpy().tolist()} == set(ODD)
    cells = openpyxl.load_workbook(path).active["A"]
    assert {cell.data_type for cell in cells} == {"s"}  # Text, and no formula, number or error.
    assert all(cell.quotePrefix for cell in cells if cell.value[:1] in "=+-@")


def test_a_workbook_holds_numbers_as_numbers_and_long_ones_as_text(tmp_path, openpyxl):
    columns = {
        "n": [1, 10**15 + 1, None],
        "p": [0.25, 1e-7, float("nan")],
        "b": [True, False, None],
    }
    sheet = openpyxl.load_workbook(write_table(tmp_path / "a.xlsx", columns)).active
    assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
        ["n", "p", "b"],
        [1, 0.25, True],
        [str(10**15 + 1), 1e-7, False],
    ]
    assert sheet.freeze_panes == "A2"


def test_what_a_workbook_cannot_hold_is_refused(tmp_path, openpyxl, monkeypatch):
    with pytest.raises(AnnotationError, match=r"column 'text', row 2 has a text of 40,000 char"):
        write_table(tmp_path / "a.xlsx", {"text": ["x" * 40_000]})
    monkeypatch.setattr(workbooks, "MOST_ROWS", 3)
    with pytest.raises(AnnotationError, match=r"3 rows are more than a sheet of Excel holds \(2\)"):
        write_table(tmp_path / "a.xlsx", {"n": [1, 2, 3]})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["labels.xlsx", "labels.csv", "labels.tsv"])
def test_labels_for_a_spreadsheet_are_read_again(tmp_path, openpyxl, regional, name):
    names = ["Café", "no", "yes"]
    tasks, people = [f"t{i // 3}" for i in range(60)], ["a", "b", "ö"] * 20
    table = AnnotationTable.from_arrays(tasks, people, [names[i // 2 % 3] for i in range(60)])
    model = DawidSkene().fit(table)
    path = write_labels(tmp_path / name, table, model.posterior_, excel=True)
    found = read_consensus(path, table)
    assert found.labels == model.labels_.tolist()
    assert found.posterior == pytest.approx(model.posterior_, abs=1e-6)
    if name.endswith("csv"):
        text = path.read_bytes()
        assert text.startswith(b"\xef\xbb\xbf")
        assert (text.splitlines()[0].count(b";") > 3) == (regional == ",")
        assert f"0{regional}".encode() in text
        assert "Café".encode() in text


def test_annotations_for_a_spreadsheet_are_read_again(tmp_path, regional):
    table = odd_table()
    path = write_annotations(tmp_path / "a.csv", table, excel=True)
    assert read_annotations(path).equals(table)
    weighted = AnnotationTable.from_arrays(["a", "b"], ["u", "u"], [0, 1], weight=[0.5, 1.25])
    path = write_annotations(tmp_path / "a.csv", weighted, excel=True)
    assert read_annotations(path, weight="weight").weight.tolist() == [0.5, 1.25]


def test_without_excel_a_csv_file_is_what_it_was(tmp_path):
    path = write_table(tmp_path / "a.csv", {"task": ["é"], "p": [0.5]})
    assert path.read_bytes() == "task,p\né,0.500000\n".encode()
    with csv_files.for_excel():
        write_table(path, {"task": ["é"], "p": [0.5]})
    assert path.read_bytes()[:3] == b"\xef\xbb\xbf"
    assert csv_files.csv_text({"a": [1]}) == "a\n1\n"


def test_the_decimal_mark_is_that_of_the_settings(monkeypatch):
    monkeypatch.setattr(csv_files.locale, "localeconv", lambda: {"decimal_point": ","})
    assert csv_files.decimal_mark() == ","
    monkeypatch.setattr(csv_files.locale, "localeconv", lambda: {"decimal_point": "."})
    assert csv_files.decimal_mark() == "."


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    with pytest.raises(AnnotationError, match=r"ends in '.xls', which is not a format.*\.xlsx"):
        check_table_path(tmp_path / "a.xls")
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="a file exists where a folder is needed"):
        check_table_path(tmp_path / "file" / "a.csv")
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(WriteError, match="no permission to write there"):
        check_table_path(tmp_path / "new" / "a.csv")
    monkeypatch.undo()
    assert check_table_path(tmp_path / "new" / "a.csv") == tmp_path / "new" / "a.csv"
    assert not (tmp_path / "new").exists()
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"manyhands\[io\]"):
        check_table_path(tmp_path / "a.xlsx")


def test_a_workbook_is_written_atomically(tmp_path, openpyxl, monkeypatch):
    path = write_table(tmp_path / "a.xlsx", {"task": ["a"]})
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(WriteError, match="the disk is full"):
        write_table(path, {"task": ["b"]})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.xlsx"]
    assert read_frame(path)["task"].to_list() == ["a"]
    assert ".xlsx" in frames.WRITTEN
