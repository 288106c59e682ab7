"""Tables as spreadsheets write them: what is wrong with them, and what is read all the same."""

from __future__ import annotations

import csv
import io
import logging
import zipfile
from datetime import datetime

import numpy as np
import pytest

from manyhands.exceptions import AnnotationError, MissingExtraError
from manyhands.io import (
    encodings,
    read_annotations,
    read_export,
    read_features,
    read_gold,
    read_texts,
    workbooks,
)
from manyhands.io.columns import as_numbers
from manyhands.scale.ingest import ingest
from tests.io.exports.conftest import cells

HEADER = ("task", "worker", "label")
ROWS = [("r1", "ann", "good"), ("r1", "bob", "bad"), ("r2", "ann", "good"), ("r2", "bob", "good")]
EXPECTED = {(task, worker): label for task, worker, label in ROWS}


def write_csv(path, *rows, separator=",", encoding="utf-8", end="\r\n"):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=end).writerows(rows)
    path.write_bytes(text.getvalue().encode(encoding))
    return path


def write_xlsx(path, *rows, more=None, merge=()):
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'manyhands[io]'")
    book = openpyxl.Workbook()
    book.active.title = "Votes"
    for row in rows:
        book.active.append(row)
    for title, content in (more or {}).items():
        sheet = book.create_sheet(title)
        for row in content:
            sheet.append(row)
    for span in merge:
        book.active.merge_cells(span)
    book.save(path)
    return path


WRITERS = {"csv": write_csv, "xlsx": write_xlsx}


@pytest.fixture
def notes(caplog):
    caplog.set_level(logging.INFO, logger="manyhands")
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def refused(path, says, read=read_annotations, **options):
    with pytest.raises(AnnotationError, match=says) as error:
        read(path, **options)
    assert path.name in str(error.value)


# -- separators -------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a.dat", "a"])
def test_the_content_tells_the_separator_whatever_the_suffix(tmp_path, separator, name):
    path = write_csv(tmp_path / name, HEADER, *ROWS, separator=separator)
    assert cells(read_annotations(path)) == EXPECTED


def test_separators_within_cells_do_not_count(tmp_path):
    rows = [(*row, f"{row[0]}, or so; {i}|{i}") for i, row in enumerate(ROWS)]
    for separator in ",;\t":
        path = write_csv(tmp_path / "a.csv", (*HEADER, "notes"), *rows, separator=separator)
        assert cells(read_annotations(path)) == EXPECTED


def test_a_separator_that_cannot_be_told_is_asked_for(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("task;x,worker;label\n1;a,u;good\n2;a,v;bad\n")
    refused(path, r"by ',' into 2 columns .*; or by ';' into 3 columns .*separator=','")
    table = read_annotations(path, separator=";", task="task", worker="x,worker", label="label")
    assert table.annotators.tolist() == ["a,u", "a,v"]
    with pytest.raises(AnnotationError, match="separator='ab' is not a separator"):
        read_annotations(path, separator="ab")


def test_a_line_for_excel_declares_the_separator_and_is_no_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sep=;\ntask;worker;label\nr1;ann;\n;bob;x\n")
    refused(path, "'task' .*is empty in row 3;")


# -- encodings --------------------------------------------------------------------------------

TEXTS = {
    "cp1252": ["Jörg", "Größe „schön“", "François a aimé ça", "El día ¿no?", "20 °C – 5 €"],
    "cp1250": ["Łukasz", "Małgorzata", "świetnie", "żółty"],
    "cp1251": ["Иван", "очень хороший фильм", "понравился", "плохо"],
    "mac_roman": ["Straße und Äpfel", "Übergröße „schön“"],
    "cp850": ["Jörg", "Größe", "François a aimé ça"],
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_a_code_page_is_told_and_named(tmp_path, notes, encoding):
    rows = [(i, "w", text) for i, text in enumerate(TEXTS[encoding])]
    path = write_csv(tmp_path / "a.csv", HEADER, *rows, separator=";", encoding=encoding)
    assert set(cells(read_annotations(path)).values()) == set(TEXTS[encoding])
    assert f"read as {encoding}, because it is not valid UTF-8 (line 2 has" in notes()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_unicode_is_told_with_and_without_a_mark(tmp_path, notes, encoding):
    rows = [("r1", "Jörg", "gut"), ("r2", "Łukasz", "良い")]
    path = write_csv(tmp_path / "a.csv", HEADER, *rows, separator="\t", encoding=encoding)
    assert cells(read_annotations(path)) == {(task, who): what for task, who, what in rows}
    assert "read as" not in notes()


SHEETS = {
    "cp1250": [
        "Nagyon jó volt köszönöm szépen az étteremnek;Soha többé nem megyek oda szőlő;űrhajó",
        "Jiří;dobrý;Kateřina;špatný;nevím",
        "Željko;točno;Đuro;netočno;ne znam",
    ],
    "cp1252": [
        "étiquette;François;très bien;Hélène;à revoir, peut-être",
        "rótulo;João;não;Conceição;sim;opiniões",
        "mærke;Søren;dårlig;Åse;god;udmærket",
        "Prüfer;völlig ungenügend;größtenteils",
        "It is a naïve idea of theirs;yes",
    ],
    "cp1254": ["kişi;Ayşe;iyi;Çağrı;kötü;Işıl;şüpheli"],
    "cp1257": ["žymė;Šarūnas;geras;Žydrė;blogas"],
    "cp932": ["項目;評価者;ラベル;田中;良い;悪い", "とても良い商品でした。また買います。"],
    "gbk": ["项目;标注者;标签;张伟;好;一般", "这个产品非常好，我很喜欢"],
    "big5": ["項目;標註者;標籤;陳怡君;好;壞"],
    "cp949": ["항목;평가자;라벨;김민수;좋음;나쁨"],
}


@pytest.mark.parametrize(("encoding", "words"), [(e, w) for e, all in SHEETS.items() for w in all])
@pytest.mark.filterwarnings("ignore:read as cp1252")
def test_short_sheets_of_many_languages_are_told(tmp_path, encoding, words):
    rows = [(i, "w", word) for i, word in enumerate(words.split(";"))]
    path = write_csv(tmp_path / "a.csv", HEADER, *rows, encoding=encoding)
    table = read_annotations(path, multilabel="none", scale="nominal")
    assert set(table.classes.tolist()) == set(words.split(";"))


def test_a_code_page_that_fits_no_better_than_another_is_a_warning(tmp_path):
    path = write_csv(tmp_path / "a.csv", HEADER, (1, "Győző", "igen"), encoding="cp1250")
    with pytest.warns(UserWarning, match=r"read as cp1252.*encoding='cp1250' \('Győző'\)"):
        read_annotations(path)
    assert read_annotations(path, encoding="cp1250").annotators.tolist() == ["Győző"]


def test_an_encoding_that_cannot_be_told_is_asked_for(tmp_path):
    path = write_csv(tmp_path / "a.csv", HEADER, (1, "王", "正"), encoding="gbk")
    says = r"as gbk, '王', '正'.*State the right one, such as encoding='"
    refused(path, says)
    assert cells(read_annotations(path, encoding="gbk")) == {("1", "王"): "正"}
    refused(path, r"line 2 is not CP932|line 2 is not ASCII", encoding="ascii")
    with pytest.raises(AnnotationError, match="encoding='klingon' is not an encoding"):
        read_annotations(path, encoding="klingon")


def test_what_is_stated_serves_files_that_do_not_say(tmp_path):
    """UTF-8 proves itself, so one option serves files of both kinds."""
    votes = write_csv(tmp_path / "a.csv", HEADER, (1, "Jörg", "grün"), encoding="mac_roman")
    assert cells(read_annotations(votes, encoding="mac_roman")) == {("1", "Jörg"): "grün"}
    gold = write_csv(tmp_path / "gold.csv", ("task", "label"), (1, "grün"))
    assert read_gold(gold, encoding="mac_roman").labels.tolist() == ["grün"]


def test_without_the_extra_the_encoding_must_be_stated(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "charset_normalizer", None)
    path = write_csv(tmp_path / "a.csv", HEADER, (1, "Jörg", "gut"), encoding="cp1252")
    with pytest.raises(MissingExtraError, match=r"encoding='cp1252'.*manyhands\[io\]"):
        read_annotations(path)
    assert read_annotations(path, encoding="cp1252").annotators.tolist() == ["Jörg"]


def test_two_encodings_in_one_file_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("task,worker,label\n1,Jörg,a\n".encode() + "2,Jörg,b\n".encode("cp1252"))
    refused(path, r"line 3 is not UTF-8 text \(byte 0xf6\), but line 2 is, so the file mixes two")


# -- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WRITERS)
def test_blank_rows_are_skipped_and_counted_as_the_spreadsheet_numbers_them(
    tmp_path, notes, suffix
):
    rows = [r for i in range(60) for r in ((f"i{i}", "ann", i % 2), (f"i{i}", "bob", i % 3 == 0))]
    rows = [(*row[:2], int(row[2])) for row in rows]
    for at in (100, 116, 117, 118, 119, 120, 121, 122):
        rows.insert(at, ("", "", ""))
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", HEADER, *rows)
    assert read_annotations(path).n_annotations == 120
    assert f"a.{suffix}: rows 102, 118 and 6 more are blank and were skipped" in notes()


@pytest.mark.parametrize("suffix", WRITERS)
def test_rows_have_the_spreadsheets_numbers_even_with_line_breaks_in_cells(tmp_path, suffix):
    rows = [("r1", "ann", "good\nor\nso"), (), ("r2", None, "bad"), ("r3", "ann", "bad")]
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", HEADER, *rows)
    refused(path, r"'worker' .*is empty in row 4;")
    rows[2] = ("r2", "bob", "bad")
    rows.append((None, "bob", "bad"))
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", HEADER, *rows)
    refused(path, r"'task' .*is empty in row 6;")


TOTALS = {
    "sum": ("Total", None, 3),
    "average": ("Average", None, 0.75),
    "german": ("Summe:", "", 3),
    "count below texts": ("Anzahl", 4, 4),
    "named last": (None, "Grand total", 3),
    "nothing but a word": ("TOTAL", None, None),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("name", TOTALS)
def test_a_row_of_totals_is_refused_by_its_number(tmp_path, suffix, name):
    rows = [(t, w, int(v == "good")) for t, w, v in ROWS]
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", HEADER, *rows, (), TOTALS[name])
    refused(path, r"row 7 holds totals of the rows above .*delete it")


@pytest.mark.parametrize(
    "last",
    [
        [("Prozent", 6, 8, 6)],
        [("% yes", "60 %", "80 %", "60 %")],
        [("N yes", 6, 8, 6), ("% yes", 60, 80, 60)],
        [("Anzahl ja", 13, 17, 16), ("Prozent", 0.5, 0.6, 0.4)],
        [(None, 6, 8, 6)],
        [("Zusammen", None, 8, None)],
    ],
)
@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("named", ["i{}", "{}"])
def test_numbers_below_words_are_totals_whatever_their_name(tmp_path, suffix, last, named):
    rows = [
        (named.format(i), "ja", *[("nein", "ja")[i % k == 0] for k in (2, 3)]) for i in range(9)
    ]
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", ("id", "ann", "bob", "cy"), *rows, *last)
    which = "row 11 holds" if len(last) == 1 else "rows 11 and 12 hold"
    refused(path, f"{which} numbers where all rows above hold words", annotators="ann,bob,cy")


def test_shares_below_sums_of_numbers_are_totals_too(tmp_path):
    rows = [("id", "ann", "bob"), *((f"i{i}", i % 3 == 0, i % 2) for i in range(9))]
    rows = [tuple(int(c) if isinstance(c, bool) else c for c in row) for row in rows]
    last = [("Anzahl ja", 3, 4), ("Quote ja", "0.33", "0.44")]
    path = write_csv(tmp_path / "a.csv", *rows, *last)
    refused(path, "rows 11 and 12 hold totals", format="wide")
    last[1] = ("i9", 1, 0)
    path = write_csv(tmp_path / "a.csv", *rows, *last[1:])
    assert len(read_annotations(path, format="wide").instances) == 10


@pytest.mark.parametrize("last", [("i9", "ja", 5, "nein"), ("i9", 5, None, "ja")])
def test_one_number_among_words_is_no_total(tmp_path, last):
    rows = [(f"i{i}", "ja", *[("nein", "ja")[i % k == 0] for k in (2, 3)]) for i in range(9)]
    path = write_csv(tmp_path / "a.csv", ("id", "ann", "bob", "cy"), *rows, last)
    assert "5" in read_annotations(path, annotators="ann,bob,cy").classes.tolist()


def test_two_rows_of_totals_and_a_wide_average(tmp_path):
    rows = [("id", "ann", "bob"), *((f"i{i}", i % 3, i % 2) for i in range(9))]
    totals = [("Sum", 9, 4), ("Mean", "1,0", "0,444")]
    path = write_csv(tmp_path / "a.csv", *rows, *totals, separator=";")
    refused(path, r"rows 11 and 12 hold totals", format="wide")


def test_totals_of_groups_are_refused_with_that_of_all(tmp_path):
    rows = [*ROWS[:2], ("Subtotal", "", 1), *ROWS[2:], ("Subtotal", "", 2), ("Total", "", 3)]
    path = write_csv(tmp_path / "a.csv", HEADER, *rows)
    refused(path, "rows 4, 7 and 1 more hold totals")


def test_an_item_called_total_is_an_item(tmp_path):
    rows = [(word, who, n) for n, word in enumerate(["count", "sum", "total"]) for who in "ab"]
    path = write_csv(tmp_path / "a.csv", HEADER, *rows)
    assert read_annotations(path).instances.tolist() == ["count", "sum", "total"]
    wide = [("word", "a", "b"), ("count", 1, 0), ("red", 1, 1), ("blue", 1, 1), ("total", 1, 1)]
    table = read_annotations(write_csv(tmp_path / "w.csv", *wide), format="wide")
    assert table.n_instances == 4


# -- workbooks --------------------------------------------------------------------------------


def test_a_workbook_is_read_like_the_same_csv(tmp_path):
    header = ("Item", "Person", "Urteil", "Text")
    rows = [
        (1.0, "ann", 3.0, "a"),
        (1, "bob", "3", "a"),
        (2, "ann", True, "b"),
        (2, "bob", 0.5, ""),
    ]
    options = {"task": "Item", "worker": "Person", "label": "Urteil"}
    book = read_annotations(write_xlsx(tmp_path / "a.xlsx", header, *rows), **options)
    plain = [(1, "ann", 3, "a"), (1, "bob", 3, "a"), (2, "ann", "TRUE", "b"), (2, "bob", 0.5, "")]
    text = read_annotations(write_csv(tmp_path / "a.csv", header, *plain), **options)
    assert book.equals(text)
    assert book.instances.tolist() == [1, 2]


def test_dates_are_written_as_iso_dates():
    shown = [workbooks.as_text(datetime(2026, 3, 1, *time)) for time in ((), (9, 30))]
    assert shown == ["2026-03-01", "2026-03-01 09:30:00"]


def test_several_sheets_are_asked_about(tmp_path, notes):
    more = {"Gold": [("task", "label"), ("r1", "good")], "Read me": [("A note.",), ("Another.",)]}
    path = write_xlsx(tmp_path / "a.xlsx", HEADER, *ROWS, more=more)
    refused(path, r"2 sheets hold data: 'Votes' \(5 rows, 3 columns\), 'Gold' .*sheet='Votes'")
    assert cells(read_annotations(path, sheet="Votes")) == EXPECTED
    assert read_gold(path, sheet="Gold").labels.tolist() == ["good"]
    refused(path, r"sheet='Vote' is not a sheet of the workbook; it has 'Votes'", sheet="Vote")
    del more["Gold"]
    path = write_xlsx(tmp_path / "b.xlsx", HEADER, *ROWS, more=more)
    assert cells(read_annotations(path)) == EXPECTED
    assert "b.xlsx: read from sheet 'Votes', not from 'Read me'" in notes()
    path = write_csv(tmp_path / "a.csv", HEADER, *ROWS)
    refused(path, "sheet='Votes' names a sheet of a workbook", sheet="Votes")


def test_merged_cells_count_in_each_of_their_rows(tmp_path, notes):
    rows = [
        ("r1", "ann", "good"),
        (None, "bob", "bad"),
        ("r2", "ann", "good"),
        (None, "bob", "good"),
    ]
    path = write_xlsx(tmp_path / "a.xlsx", HEADER, *rows, merge=["A2:A3", "A4:A5"])
    assert cells(read_annotations(path)) == EXPECTED
    assert "cells A2 to A3 are merged, and 1 more such cells: 'r1' counts in each" in notes()
    path = write_xlsx(tmp_path / "a.xlsx", HEADER, *ROWS, ("Batch 2",), merge=["A6:C6"])
    refused(path, r"cells A6:C6 are merged across columns \('Batch 2'\)")


@pytest.mark.parametrize("suffix", WRITERS)
def test_titles_above_the_header_are_said(tmp_path, notes, suffix):
    above = [("Survey of March, 2026", None, None), (), ("by Jo", "v2", None), ()]
    for n, row in ((2, 3), (1, 2), (4, 5)):
        path = WRITERS[suffix](tmp_path / f"{n}.{suffix}", *above[:n], HEADER, *ROWS)
        assert cells(read_annotations(path)) == EXPECTED
        assert f"{n}.{suffix}: row" in notes()
        assert f"above the header (row {row}) and w" in notes()


def test_a_title_over_merged_cells_and_a_group_of_columns(tmp_path):
    rows = [("id", "ann", "bob"), *((f"i{i}", i % 2, i % 3) for i in range(6))]
    path = write_xlsx(tmp_path / "a.xlsx", (None, "Annotators", None), *rows, merge=["B1:C1"])
    table = read_annotations(path, format="wide")
    assert table.annotators.tolist() == ["ann", "bob"]
    assert table.n_annotations == 12


def with_values(path, values):
    """Store values of formulas, as Excel does and openpyxl does not."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    for formula, value in values.items():
        old = f"<f>{formula}</f><v />".encode()
        assert old in parts[name] or old.replace(b" />", b"/>") in parts[name]
        new = f"<f>{formula}</f><v>{value}</v>".encode()
        parts[name] = parts[name].replace(old, new).replace(old.replace(b" />", b"/>"), new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    return path


def test_formulas_have_their_stored_values_or_are_refused(tmp_path):
    rows = [("r1", "ann", "=1+1"), ("r1", "bob", "=2-1")]
    path = write_xlsx(tmp_path / "a.xlsx", HEADER, *rows)
    refused(path, r"cell C2 holds a formula \('=1\+1'\) without a stored value.*open the workbook")
    with_values(path, {"1+1": 2, "2-1": 1})
    assert cells(read_annotations(path)) == {("r1", "ann"): 2, ("r1", "bob"): 1}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600,
            r"old format \(.xls\).*as .xlsx",
        ),
        (b"<html><table><tr><td>task</td></tr></table></html>", "web page"),
        (b"PK\x03\x04broken", "archive"),
    ],
)
def test_what_only_looks_like_a_workbook(tmp_path, content, says):
    path = tmp_path / "a.xlsx"
    path.write_bytes(content)
    refused(path, says, read_gold)


def test_an_opendocument_spreadsheet_is_named(tmp_path):
    path = tmp_path / "a.ods"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", "<office/>")
    for read in (read_annotations, read_gold):
        refused(path, "OpenDocument spreadsheet; save it as .xlsx", read)


# -- numbers ----------------------------------------------------------------------------------


def test_decimal_commas(tmp_path):
    rows = [("r1", "u", "x", "0,5"), ("r2", "u", "x", "2"), ("r3", "u", "y", "1,25")]
    path = write_csv(tmp_path / "a.csv", (*HEADER, "w"), *rows, separator=";")
    assert read_annotations(path, weight="w").weight.tolist() == [0.5, 2.0, 1.25]
    rows = [
        ("task", "a", "b", "c"),
        ("r1", "0,5", "1.234,5", "ja"),
        ("r2", "-1,125", "2,5e3", "nein"),
    ]
    path = write_csv(tmp_path / "x.csv", *(row[:3] for row in rows), separator=";")
    np.testing.assert_array_equal(
        read_features(path).X, np.float32([[0.5, 1234.5], [-1.125, 2500]])
    )
    refused(
        write_csv(tmp_path / "x.csv", *rows, separator=";"), "1 of 3 columns.*'c'", read_features
    )


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["1,234", "2,500"], "'1,234' may be a decimal comma or separate thousands"),
        (["0,5", "1.5"], "'1.5' has a decimal point, but '0,5' has a comma"),
        (["0,5", "x"], "could not convert|is no number|'x'"),
        (["1,2,3"], "'1,2,3' is not a number"),
    ],
)
def test_commas_that_may_mean_something_else(cells, says):
    with pytest.raises(ValueError, match=says):
        as_numbers(cells)
    assert as_numbers(["1,234", "2,500"], decimal_commas=True).tolist() == [1.234, 2.5]


# -- what people do to spreadsheets -----------------------------------------------------------


def test_text_that_became_dates_and_errors_of_formulas_are_said(tmp_path, notes):
    day = datetime(2026, 2, 1)
    rows = [("r1", "ann", "1-2"), ("r1", "bob", day), ("r2", "ann", "3-4"), ("r2", "bob", "#REF!")]
    path = write_xlsx(tmp_path / "a.xlsx", HEADER, *rows)
    with pytest.warns(UserWarning, match=r"column 'label' holds '#REF!' \(1\)"):
        read_annotations(path)
    assert "cell C3 holds a date, 2026-02-01, but other cells of its column do not" in notes()


def test_ids_that_a_spreadsheet_shortened_are_said(tmp_path, notes):
    rows = [("1.23457E+15", "ann", "x"), ("1.23457E+15", "ann", "y")]
    refused(write_csv(tmp_path / "a.csv", HEADER, *rows), "repeated")
    assert "column 'task' holds '1.23457E+15' (row 2), as spreadsheets shorten" in notes()


def test_rows_that_were_saved_as_one_quoted_cell_are_cut(tmp_path, notes):
    path = write_csv(tmp_path / "a.csv", *((";".join(row),) for row in (HEADER, *ROWS)), end="\n")
    path.write_text("".join(f'"{line}"\n' for line in path.read_text().split()))
    assert cells(read_annotations(path)) == EXPECTED
    assert "every row was one cell in quotes, and was divided at ';' into 3 columns" in notes()


@pytest.mark.parametrize("suffix", WRITERS)
def test_what_qualtrics_puts_below_the_header_is_no_answer(tmp_path, notes, suffix):
    described = [("Which item?", "Who?", "How is it?"), tuple('{"ImportId":"q"}' for _ in HEADER)]
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", HEADER, *described, *ROWS)
    assert cells(read_annotations(path)) == EXPECTED
    assert "rows 2 and 3 describe the columns (Qualtrics) and were skipped" in notes()


@pytest.mark.parametrize("suffix", WRITERS)
def test_line_breaks_in_names_are_blanks(tmp_path, suffix):
    header = ("task", "worker", "Label\n(1-5)")
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", header, *ROWS)
    assert cells(read_annotations(path, label="Label (1-5)")) == EXPECTED


def test_trailing_separators_are_no_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "task;worker;label;;\nr1;ann;good;;\nr1;bob;bad;\nr2;ann;good\nr2;bob;good;;;;\n"
    )
    assert cells(read_annotations(path)) == EXPECTED


def test_a_row_with_a_cell_too_many_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("task,worker,label\nr1,ann,good\n\nr2,bob,good, really\n")
    refused(path, "row 4 has 4 fields, but the header has 3; the first one too many is 'really'")


def test_rows_that_end_before_their_last_column_are_explained(tmp_path):
    """A script that adds a column to a file from Windows leaves them within the rows."""
    path = tmp_path / "a.csv"
    rows = ["task,worker,label", "r1,ann,good", "r2,bob,good"]
    path.write_bytes(b"".join(f"{row}\r,random,4,5\n".encode() for row in rows))
    refused(path, "row 2 has 4 fields, but .*stray carriage returns, which may end rows before")
    path.write_bytes(b"task,label\r,a,b\nr1,good\r,a,b\n")
    refused(path, "row 2 has 3 fields, but .*stray carriage returns", read=read_gold)
    path.write_bytes(b"task,label\r\nr1,good\nr2,good,random\r\n")
    with pytest.raises(AnnotationError, match="Name every column, or put texts") as error:
        read_gold(path)
    assert "carriage" not in str(error.value)


@pytest.mark.parametrize("suffix", WRITERS)
def test_names_that_occur_twice_are_refused_with_their_columns(tmp_path, suffix):
    rows = [("task", "worker", "label", "label"), ("r1", "ann", "good", "bad")]
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", *rows)
    refused(path, r"'label' occurs twice in the header \(columns C and D of row 1\)")


def test_an_open_quotation_mark_is_refused_with_its_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('task,worker,label\nr1,ann,good\nr2,ann,"bad\nr3,ann,good\n')
    refused(path, "after row 2: .*quotation mark is not closed")


def test_zeros_in_text_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"task,worker,label\n" + b"r1,ann,good\n" * 500 + b"r2,a\0nn,good\n")
    refused(path, "line 502 holds a NUL character")


def test_old_line_ends_quotes_and_blanks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbftask, worker, label\rr1, ann, "good"\r"r1", bob, bad\r')
    assert cells(read_annotations(path)) == {("r1", "ann"): "good", ("r1", "bob"): "bad"}


def test_a_table_without_a_header_keeps_its_first_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",1,\n0,1,1\n1,1,0\n0,0,1\n")
    assert read_annotations(path, format="mace").n_annotations == 10


def test_texts_with_separators_are_no_table_with_a_title(tmp_path):
    path = write_csv(tmp_path / "t.csv", ("text",), ("Yes, really",), ("No; never",))
    assert read_texts(path).X.tolist() == ["Yes, really", "No; never"]
    path = write_csv(tmp_path / "t.csv", ("id", "text"), (1, "Grün"), (2, "b"), encoding="cp1252")
    assert read_texts(path).X.tolist() == ["Grün", "b"]
    path = tmp_path / "t.txt"
    path.write_bytes("Grün\r\nRot\r\n".encode("cp1252"))
    assert read_texts(path).X.tolist() == ["Grün", "Rot"]


def test_a_sheet_with_a_cell_far_out_is_no_trap(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'manyhands[io]'")
    book = openpyxl.Workbook()
    for row in (HEADER, *ROWS):
        book.active.append(row)
    book.active["XFD1048576"] = " "
    book.save(tmp_path / "a.xlsx")
    assert cells(read_annotations(tmp_path / "a.xlsx")) == EXPECTED
    monkeypatch.setattr(workbooks, "MOST_CELLS", 10)
    refused(tmp_path / "a.xlsx", "the sheet has more than .* cells, most of them empty")


def test_exports_of_platforms_are_read_from_spreadsheets_too(tmp_path, notes):
    rows = [("HITId", "WorkerId", "Answer.mood"), ("h1", "w1", "gut"), (), ("h1", "w2", "größer")]
    for suffix, options in (("csv", {"separator": ";", "encoding": "cp1252"}), ("xlsx", {})):
        path = WRITERS[suffix](tmp_path / f"a.{suffix}", *rows, **options)
        export = read_export(path)
        assert export.format == "mturk"
        assert cells(export.annotations) == {("h1", "w1"): "gut", ("h1", "w2"): "größer"}
        assert "row 3 is blank and was skipped" in export.notes


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_a_store_takes_what_tables_are(tmp_path, notes, encoding):
    rows = [
        ("a title", "", ""),
        (),
        HEADER,
        ("r1", "Jörg", "gut"),
        ("", "", ""),
        ("r2", "Jörg", "x"),
    ]
    path = write_csv(tmp_path / "a.csv", *rows, separator=";", encoding=encoding)
    store = ingest(path, tmp_path / "store")
    assert (store.n_annotations, store.annotators.tolist()) == (2, ["Jörg"])
    assert store.instances.tolist() == ["r1", "r2"]
    assert "skipped" in notes()


def test_a_workbook_becomes_a_store(tmp_path):
    store = ingest(write_xlsx(tmp_path / "a.xlsx", HEADER, *ROWS), tmp_path / "store")
    assert store.n_annotations == 4


def test_the_longest_line_is_limited_within_quotes(tmp_path, monkeypatch):
    monkeypatch.setattr(encodings, "LONGEST_LINE", 500)
    path = tmp_path / "a.csv"
    path.write_text('task,worker,label\nr1,ann,"' + "x\n" * 600 + '"\n')
    refused(path, "after row 1: field larger than field limit")


def test_marks_of_encodings_are_told_from_the_first_bytes():
    assert encodings.marked_encoding("task;a\n1;b\n".encode("utf-16-be")) == "utf-16-be"
    assert encodings.marked_encoding(b"task;a\n1;b\n") is None


def test_rows_whose_last_cells_are_empty_are_whole(tmp_path):
    """Workbooks keep no empty cells at the ends of rows: nothing is lost with them."""
    rows = [[f"t{i}", i % 2, (i + 1) % 2, i % 2, "hm" if i < 3 else None] for i in range(12)]
    path = write_xlsx(tmp_path / "notes.xlsx", ["id", "A1", "A2", "A3", "Notes"], *rows)
    table = read_annotations(path, format="wide", annotators="A*")
    assert (table.n_instances, table.n_annotations) == (12, 36)


@pytest.mark.parametrize("mark", ["^", "~", "::", "|", "\t"])
@pytest.mark.parametrize("stated", [False, True])
def test_rare_separators_are_read(tmp_path, mark, stated):
    rows = [(*row, "one, two, three; four") for row in ROWS]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(mark.join(row) for row in [(*HEADER, "note"), *rows]))
    options = {"separator": mark} if stated else {}
    assert cells(read_annotations(path, **options)) == EXPECTED
    assert cells(read_export(path, **options).annotations) == EXPECTED


def test_a_separator_that_is_stated_is_used_or_named(tmp_path, notes):
    text = "task,item;worker;label\n" + "\n".join(f"{t},x;{w};{c}" for t, w, c in ROWS)
    (tmp_path / "a.csv").write_text(text)
    table = read_annotations(tmp_path / "a.csv", separator=";", task="task,item")
    assert table.n_annotations == 4
    quoted = tmp_path / "b.csv"
    quoted.write_text('task::worker::label\n"r1::a"::ann::good\nr2::bob::bad\n')
    assert read_annotations(quoted, separator="::").instances.tolist() == ["r1::a", "r2"]
    read_annotations(write_csv(tmp_path / "c.csv", HEADER, *ROWS), separator=";")
    assert "separator=';' does not occur, so rows are divided at ','" in notes()
    with pytest.raises(AnnotationError, match="separator='x' is not a separator"):
        read_annotations(quoted, separator="x")


def test_a_header_of_two_rows_is_one_where_cells_are_merged(tmp_path, notes):
    rows = [("id", "annotators", None, None, "agreement"), (None, "ann", "bob", "cat", None)]
    rows += [(f"t{i}", *("yn"[(i * k) % 2] for k in (1, 2, 3)), 0.5) for i in range(6)]
    path = write_xlsx(tmp_path / "a.xlsx", *rows, merge=["B1:D1"])
    export = read_export(path, annotators="ann,bob,cat")
    assert export.annotations.shape == (6, 3)
    assert export.annotations.instances.tolist() == [f"t{i}" for i in range(6)]
    assert any("rows 1 and 2 are read as one header" in note for note in export.notes)
    path = write_csv(tmp_path / "a.csv", *([cell or "" for cell in row] for row in rows))
    refused(
        path, "have no name; name all columns in one row.*delete the row above", annotators="ann"
    )
