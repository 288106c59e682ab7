"""Exports that are damaged or made to harm: a clear error, nothing run, nothing written."""

import contextlib
import copy
import gzip
import io
import tracemalloc
import zipfile
from datetime import datetime

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import (
    archives,
    encodings,
    read_annotations,
    read_export,
    read_features,
    read_gold,
    read_texts,
)
from manyhands.io.exports import parsing
from tests.io.exports.conftest import (
    argilla,
    cells,
    doccano,
    labelbox,
    made,
    reasons,
    studio,
    write,
)


@pytest.fixture
def refused(tmp_path):
    """Assert that a file is refused with its name and a message, and that it stays alone."""

    def _refused(path, message, **options):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(AnnotationError, match=message) as error:
            read_annotations(path, **options)
        assert path.name in str(error.value)
        assert sorted(tmp_path.rglob("*")) == before

    return _refused


def test_truncated_json_names_line_and_column(tmp_path, refused):
    text = write(tmp_path / "whole.json", [studio(made(1, "good")), studio(made(2, "bad"))])
    content = text.read_text()
    for cut in range(1, len(content) - 1, 7):
        refused(write(tmp_path / "a.json", content[:cut]), "line 1, column .*cut off or damaged")


def test_a_broken_line_is_left_out_and_the_others_are_kept(tmp_path):
    lines = doccano([(1, ["x"]), (2, ["y"])]).splitlines()
    path = write(tmp_path / "ann.jsonl", "\n".join([lines[0], '{"id": 9, "te', lines[1], "[1]"]))
    export = read_export(path, annotator_from="file")
    assert cells(export.annotations) == {("1", "ann"): "x", ("2", "ann"): "y"}
    assert sorted(at for lost in export.left_out for at in lost.where) == ["line 2", "line 4"]
    with pytest.warns(UserWarning, match=r"line 2"):
        read_annotations(path, annotator_from="file")


def test_malformed_records_are_left_out_and_the_others_are_kept(tmp_path):
    broken = [7, {"id": 2, "data": [], "annotations": []}, {"data": {}, "annotations": []}]
    worse = studio(made(1, "good"), 5, {"completed_by": 2, "result": {}}, {"result": [3]}, number=9)
    unnamed = studio(made(None, "good"), made(3, "bad"), number=10)
    export = read_export(write(tmp_path / "a.json", [worse, unnamed, *broken]))
    assert cells(export.annotations) == {("9", "1"): "good", ("10", "3"): "bad"}
    found = {at for lost in export.left_out for at in lost.where}
    assert {"item 3", "item 4", "item 5", "item 1 (task 9), annotation 2"} <= found
    assert sum(lost.count for lost in export.left_out) == 7


def test_rows_of_another_length_are_left_out(tmp_path):
    text = "HITId,WorkerId,Answer.q\nh1,w1,x\nh2,w1\nh3,w1,y,z\nh4,w1,y\n"
    export = read_export(write(tmp_path / "b.csv", text))
    assert cells(export.annotations) == {("h1", "w1"): "x", ("h4", "w1"): "y"}
    assert [lost.where for lost in export.left_out] == [("row 3",), ("row 4",)]


def test_an_open_quotation_mark_is_no_row(tmp_path, refused):
    path = write(tmp_path / "b.csv", 'HITId,WorkerId,Answer.q\nh1,w1,x\nh2,w1,"y\nh3,w1,z\n')
    refused(path, "after row 2.*quotation mark", format="mturk")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_very_long_line_is_refused_before_it_is_held(tmp_path, refused, monkeypatch, name):
    monkeypatch.setattr(encodings, "LONGEST_LINE", 2000)
    first = doccano([(1, ["x"])]) if name == "a.jsonl" else "HITId,WorkerId,Answer.q\n"
    path = write(tmp_path / name, first + '{"id": "' + "x" * 5000)
    options = {} if name == "a.jsonl" else {"format": "mturk"}
    refused(path, "line 2 is longer than", **options)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_line_of_500_mb_is_refused_before_it_is_held(tmp_path, refused, name):
    """The file is sparse: the zeros in it are on no disk."""
    start = doccano([(1, ["x"])]) if name == "a.jsonl" else "task,worker,label\n1,a,x\n2,a,"
    path = write(tmp_path / name, start + " " * 5000)
    with path.open("r+b") as file:
        file.truncate(500 * 2**20)
    tracemalloc.start()
    refused(path, "line.* is longer than 16 MiB")
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()


def test_compressed_files_expand_no_further_than_others(tmp_path, refused, monkeypatch):
    monkeypatch.setattr(encodings, "LONGEST_LINE", 2000)
    monkeypatch.setattr(parsing, "LARGEST_DOCUMENT", 5000)
    refused(write(tmp_path / "a.json.gz", gzip.compress(b"[" + b" " * 10**7)), "more than")
    lines = doccano([(1, ["x"])]).encode() + b" " * 10**7
    refused(write(tmp_path / "b.jsonl.gz", gzip.compress(lines)), "line 2 is longer")


def test_ids_that_occur_twice(tmp_path, refused):
    """One item under two ids is fine; two items under one id, or two answers of one kind, not."""
    first, second = studio(made(1, "x"), text="a"), studio(made(1, "y"), text="b")
    export = read_export(write(tmp_path / "a.json", [first, first]))
    assert reasons(export) == {"an annotator answered the same question on the same task again": 1}
    write(tmp_path / "two" / "a.json", [first])
    write(tmp_path / "two" / "b.json", [second])
    with pytest.raises(
        AnnotationError, match=r"task '1' is one item in .*a\.json and a different one in"
    ):
        read_annotations(tmp_path / "two")
    long = write(tmp_path / "b.csv", "task,worker,label\n1,a,x\n1,a,y\n")
    refused(long, "repeated")


def test_xml_with_entities_is_refused(tmp_path, refused):
    lol = '<!DOCTYPE a [<!ENTITY b "lol"><!ENTITY c "&b;&b;&b;">]>'
    body = '<annotations><image id="0" name="&c;"><tag label="x"/></image></annotations>'
    refused(write(tmp_path / "a.xml", f"{lol}{body}"), "declares a document type or entities")
    outside = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>'
    refused(write(tmp_path / "a.xml", f"{outside}{body}"), "declares a document type or entities")
    refused(write(tmp_path / "b.xml", body.replace("&c;", "<")), "is not XML")
    refused(write(tmp_path / "c.xml", "<annotations>" * 10**5), "is not XML")


def test_a_very_large_document_is_refused(tmp_path, refused, monkeypatch):
    monkeypatch.setattr(parsing, "LARGEST_DOCUMENT", 1000)
    refused(
        write(tmp_path / "a.json", [studio(made(1, "x" * 2000))]),
        "one document of JSON or XML of more",
    )


def test_deep_nesting_and_repeated_keys_are_refused(tmp_path, refused):
    refused(write(tmp_path / "a.json", "[" * 100_000), "nested too deeply|not JSON")
    twice = '{"0": {"0": 1, "0": 2}}'
    refused(write(tmp_path / "b.json", twice + "\n"), "the key '0' occurs twice in one object")
    refused(write(tmp_path / "c.json", '{\n"0": {"0": 1},\n"0": {"0": 2}\n}'), "'0' occurs twice")


def test_a_number_of_thousands_of_digits_is_refused_in_words(tmp_path, refused):
    for name in ("a.json", "b.jsonl"):
        many = f'{{"task": 1, "worker": 2, "label": {"9" * 5000}}}'
        content = f"[{many}]" if name == "a.json" else f"{many}\n"
        refused(write(tmp_path / name, content), r"more than 4,000 digits\. Export it again$")


def test_a_repeated_key_among_many_is_found_in_one_pass(tmp_path, refused):
    class Key(str):
        """Counts comparisons, of which a search for each key would need the square."""

        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Key.compared += 1
            return str.__eq__(self, other)

    with pytest.raises(ValueError, match="the key '999' occurs twice"):
        parsing._distinct([*((Key(i), i) for i in range(1000)), (Key(999), 0)])
    assert Key.compared < 3000


@pytest.mark.parametrize("name", ["../evil.jsonl", "/etc/evil.jsonl", "a/../../b.jsonl", "..\\b"])
def test_members_that_lead_out_of_an_archive_are_refused(tmp_path, refused, name):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, doccano([(1, ["x"])]))
    refused(tmp_path / "a.zip", "outside the archive")


def test_bombs_are_refused_by_what_they_claim(tmp_path, refused, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ann.jsonl", b"0" * (archives.HARMLESS + 1))
    refused(tmp_path / "a.zip", r"expands [0-9,]+ times.*unpack it yourself")
    monkeypatch.setattr(archives, "LARGEST_CONTENT", 100)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        for name in ("a.jsonl", "b.jsonl"):
            archive.writestr(name, doccano([(1, ["x"]), (2, ["y"])]))
    refused(tmp_path / "b.zip", "and the others expand to")


def test_bombs_are_refused_by_what_they_hold(tmp_path, refused):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ann.jsonl", b" " * 100_000)
    content = buffer.getvalue().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    refused(write(tmp_path / "a.zip", content), "larger than|cannot be read|no format")


def test_archives_within_archives_and_damaged_ones_are_not_opened(tmp_path, refused):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("ann.jsonl", doccano([(1, ["x"])]))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    refused(tmp_path / "a.zip", "no format is recognised")
    refused(write(tmp_path / "b.zip", inner.getvalue()[:60]), "archive cannot be read")
    refused(write(tmp_path / "c.gz", gzip.compress(b"[" * 9999)[:-20]), "archive is damaged")


def test_links_of_a_folder_are_not_followed(tmp_path):
    write(tmp_path / "secret.json", [studio(made(1, "secret"))])
    write(tmp_path / "project" / "a.json", [studio(made(1, "good"))])
    (tmp_path / "project" / "b.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "project" / "c").symlink_to(tmp_path)
    assert read_annotations(tmp_path / "project").classes.tolist() == ["good"]


def test_what_lies_beside_an_export_is_left_out_and_a_damaged_part_is_not(tmp_path, refused):
    write(tmp_path / "a.json", [studio(made(1, "good"))])
    write(tmp_path / "README.md", 'Read "this, first\n')
    write(tmp_path / "empty.csv", "")
    write(tmp_path / "scan.png", b"\x89PNG\x00")
    (lost,) = read_export(tmp_path).left_out
    assert [place.rsplit("/", 1)[1] for place in lost.where] == [
        "README.md",
        "empty.csv",
        "scan.png",
    ]
    write(tmp_path / "b.json", '[{"id": 1')
    refused(tmp_path, "b.json: line 1, column")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_read(tmp_path, encoding):
    text = "HITId\tWorkerId\tAnswer.q\nh1\tÄnne\tgrün\n"
    path = write(tmp_path / "b.txt", text.encode(encoding))
    assert cells(read_annotations(path)) == {("h1", "Änne"): "grün"}
    path = write(tmp_path / "b.json", '[{"annotators": ["a"], "labels": ["ä"]}]'.encode(encoding))
    assert read_annotations(path).classes.tolist() == ["ä"]


def test_mixed_encodings_name_the_line(tmp_path, refused):
    lines = ["HITId,WorkerId,Answer.q", *(f"h{i},w1,x" for i in range(3000)), "h,w2,grün"]
    content = "\n".join(lines).encode() + "\nh9,w2,grün\n".encode("latin-1")
    refused(write(tmp_path / "b.csv", content), "line 3,003 is not UTF-8.*0xfc", format="mturk")
    content = doccano([(1, ["x"])]).encode() + b'{"id": 2, "text": "gr\xfcn"}\n'
    refused(write(tmp_path / "b.jsonl", content), "line 2 is not UTF-8")


def test_html_and_formulas_are_labels_like_others(tmp_path):
    labels = ["<script>alert(1)</script>", "=HYPERLINK(A1)", "@SUM(A1)"]
    task = studio(*(made(i, label) for i, label in enumerate(labels)))
    table = read_annotations(write(tmp_path / "a.json", [task]))
    assert set(table.classes.tolist()) == set(labels)
    assert "<script>" not in table._repr_html_()


def workbook(path, *rows, more=()):
    """Write a workbook with openpyxl, which makes formulas of what begins with "="."""
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'manyhands[io]'")
    book = openpyxl.Workbook()
    for sheet, content in ((book.active, rows), (book.create_sheet(), more)):
        for row in content:
            sheet.append(row)
    book.save(path)
    return path


HEADER = ("task", "worker", "label")


def test_workbooks_are_tables_of_their_first_sheet(tmp_path):
    day = datetime(2026, 3, 1)
    rows = [(1.0, "a", "x"), (2.0, "a", None), (), (3, "b", "y"), (4, "b", True), (5, "c", day)]
    export = read_export(workbook(tmp_path / "a.xlsx", HEADER, *rows, more=[("not", "read")]))
    assert cells(export.annotations) == {
        ("1", "a"): "x",
        ("3", "b"): "y",
        ("4", "b"): "TRUE",
        ("5", "c"): "2026-03-01",
    }
    assert export.left_out[0].where == ("row 3",)


def test_formulas_in_workbooks_are_refused(tmp_path, refused):
    says = r"cell C2 holds a formula \('=1\+1'\).*paste it as values"
    refused(workbook(tmp_path / "a.xlsx", HEADER, (1, "a", "=1+1")), says)
    empty = workbook(tmp_path / "b.xlsx")
    refused(empty, "empty|no format is recognised|web page")


def test_workbooks_that_are_bombs_are_refused_by_every_reader(tmp_path, refused):
    path = workbook(tmp_path / "a.xlsx", HEADER, (1, "a", "x"))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    parts[name] = parts[name].replace(b"<sheetData>", b"<sheetData>" + b" " * archives.HARMLESS)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    refused(path, r"sheet1.xml' expands [0-9,]+ times")
    for read in (read_gold, read_features, read_texts):
        with pytest.raises(AnnotationError, match=r"a\.xlsx.*sheet1.xml' expands [0-9,]+ times"):
            read(path)


@pytest.mark.parametrize("content", [b"", b"\x00" * 500, b"<html><body/></html>", b"{}", b"[]"])
def test_what_is_no_export_is_refused(tmp_path, refused, content):
    refused(write(tmp_path / "a.json", content), "empty|no format is recognised|web page")


ODD = (None, 5, -1.5, "x", "", [], {}, [None], {"a": 1}, True, [[]], "a,b", [{}])
"""Values that no reader expects somewhere."""

WHOLE = {
    "a.json": [studio(made({"id": 1, "email": "a@x.org"}, "b"), made(2, was_cancelled=True))],
    "m.json": [{"id": 1, "annotation_id": 4, "annotator": 1, "mood": {"choices": ["x"]}}],
    "p.jsonl": [{"_input_hash": 1, "_task_hash": 2, "accept": ["x"], "options": [{"id": "x"}]}],
    "q.json": argilla(1, ["x"], ["a"], ["submitted"]),
    "l.json": {"data_row": {"id": "1"}, "projects": {"p": {"labels": [labelbox("a", "u", "x")]}}},
    "g.json": {"answers": [{"workerId": "w", "answerContent": {"c": {"label": "x"}}}]},
    "w.json": {"1": {"annotators": "a,b", "annotations": "0,1", "other_info": {}}},
    "u.json": {"user_id": "u", "instance_id_to_label_to_value": {"r": [[{"schema": "s"}, 1]]}},
    "s.json": {
        "metadata": {"name": "a"},
        "instances": [
            {
                "type": "tag",
                "className": "x",
                "createdBy": {"email": "a@x.org"},
                "attributes": [{"name": "1", "groupName": "g"}],
            }
        ],
    },
    "f.json": {"metadata": {"name": "a", "folder_name": "b"}, "data": {"q": {"value": ["x"]}}},
    "c.json": {
        "tags": [{"frame": 0, "label_id": 1}],
        "shapes": [],
        "tracks": [],
        "assignee": {"username": "u"},
    },
    "d.jsonl": [{"id": 1, "text": "t", "annotations": [{"label": 1, "user": 1}]}],
}
"""One small export of each kind of JSON."""


def places(value, path=()):
    """Paths to everything within a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in inner:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("options", [{}, {"annotator_from": "file", "multilabel": "join"}])
def test_any_odd_value_is_left_out_or_refused(tmp_path, name, options):
    for path in places(WHOLE[name]):
        for odd in ODD:
            value = copy.deepcopy(WHOLE[name])
            inner = value
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = odd
            write(tmp_path / name, value)
            with contextlib.suppress(AnnotationError):  # Nothing else may be raised.
                read_export(tmp_path / name, task="id", **options)
