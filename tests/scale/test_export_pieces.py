"""Exports that do not fit in memory: pieces say together what the whole export says."""

import gzip
import io
import json
import re
import shutil
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.exceptions import AnnotationError, WriteError
from manyhands.io import read_annotations, read_export
from manyhands.io.exports import documents
from manyhands.scale import export_cutting as cutting
from manyhands.scale import export_pieces as pieces
from manyhands.scale import ingest as ingesting
from manyhands.scale.export_cutting import Cutting, elements, rows
from manyhands.scale.ingest import ingest
from tests.io.exports.conftest import SAMPLES, cells, made, studio, write


@pytest.fixture
def cut(tmp_path, monkeypatch):
    """Ingest in pieces of so many bytes; return the table of the store."""
    monkeypatch.setattr(ingesting, "is_large", lambda paths, memory: True)

    def _cut(paths, size, **options):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        memory = size * pieces.EXPANSION
        store = ingest(paths, tmp_path / "store", memory=memory, **options)
        assert {p.name for p in (tmp_path / "store").iterdir()} & {".ingest", ".pieces"} == set()
        return store[np.arange(store.n_instances)]

    return _cut


def assert_same(table, whole):
    """Same cells, passes, and vocabularies."""
    assert cells(table) == cells(whole)
    for name in ("instances", "annotators", "classes"):
        assert getattr(table, name).tolist() == getattr(whole, name).tolist()
    passes = [
        sorted(map(tuple, np.asarray(t.passes if t.passes is not None else []).tolist()))
        for t in (table, whole)
    ]
    assert passes[0] == passes[1]


# -- cutting --------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.lists(values), st.sampled_from([None, 1]), st.booleans(), st.integers(1, 40))
def test_elements_of_an_array_are_those_that_json_reads(array, indent, escaped, block):
    text = json.dumps(array, indent=indent, ensure_ascii=escaped)
    assert [json.loads(e) for e in elements(io.StringIO(text), "a", block)] == array


@settings(max_examples=50)
@given(st.dictionaries(st.text(), values), st.integers(1, 40))
def test_members_of_an_object_are_those_that_json_reads(record, block):
    found = [
        json.loads("{" + e + "}") for e in elements(io.StringIO(json.dumps(record)), "a", block)
    ]
    assert {name: value for member in found for name, value in member.items()} == record
    assert len(found) == len(record)


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b": ', "[1, 2", '["a", nul]', '{"a": 1, "b"'])
def test_what_is_cut_off_or_no_json_is_named(text):
    with pytest.raises(AnnotationError, match=r"a\.json: item 2 is cut off, is not JSON"):
        list(elements(io.StringIO(text), "a.json", 4))


def test_an_element_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(cutting, "LONGEST_LINE", 1000)
    endless = io.StringIO('["' + "x" * 100_000)
    with pytest.raises(AnnotationError, match="item 1 is cut off"):
        list(elements(endless, "a.json", 100))
    assert endless.tell() < 5000


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.text(alphabet='a",\n\r é', max_size=5), min_size=2, max_size=2).filter(any),
        min_size=1,
    )
)
def test_rows_keep_line_breaks_in_quotes(table):
    import csv

    text = io.StringIO(newline="")
    csv.writer(text).writerows(table)
    lines = io.StringIO(text.getvalue(), newline="").readlines()
    found = list(rows(iter(lines), ",", "a.csv"))
    assert "".join(found) == text.getvalue()
    assert [next(csv.reader(io.StringIO(row, newline=""), strict=True)) for row in found] == table


# -- reading --------------------------------------------------------------------------------------


def project(n=24):
    """Label Studio tasks with skips, unlabelled tasks and one class that comes late."""
    rng = np.random.default_rng(0)
    tasks = []
    for k in range(1, n + 1):
        given_by = [made(w, "good" if rng.random() < 0.7 else "bad") for w in (1, 2, 3)]
        if k % 7 == 0:
            given_by[1] = made(2, was_cancelled=True)
        if k % 11 == 0:
            given_by = []
        if k == n - 1 and given_by:
            given_by[2] = made(3, "awful")
        tasks.append(studio(*given_by, number=k, item=f"r{k}"))
    return tasks


@pytest.mark.parametrize(
    ("name", "encoding", "size"),
    # A task is some 700 characters: pieces of one task, of a few, and one piece.
    [("a.json", "utf-8", size) for size in (60, 3000, 10**6)]
    + [("a.json.gz", "utf-8", 3000), ("a.json", "utf-16", 3000)],
)
@pytest.mark.filterwarnings("ignore:.*left out")
def test_pieces_of_label_studio_say_what_the_whole_says(tmp_path, cut, name, encoding, size):
    content = json.dumps(project(), indent=1).encode(encoding)
    path = write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert_same(cut(path, size), read_annotations(path))
    by_item = read_annotations(path, task="data.item", multilabel="join")
    assert_same(cut(path, size, task="data.item", multilabel="join"), by_item)


@pytest.mark.parametrize("size", [60, 400, 10**6])
def test_pieces_of_tables_and_lines(tmp_path, cut, size):
    mturk = [["HITId", "WorkerId", "Input.text", "Answer.mood"]]
    mturk += [
        [f"h{k}", f"w{w}", "two\nlines", "good" if (k + w) % 3 else ""]
        for k in range(9)
        for w in range(3)
    ]
    triples = [
        [f"w{w}", f"i{k}", "yes" if (k * w) % 2 else "no"] for k in range(9) for w in range(3)
    ]
    matrix = [[str((k * w) % 2) for w in range(4)] for k in range(12)]
    lists = [{"annotators": ["a", "b"], "labels": ["x", "y" if k % 2 else "x"]} for k in range(9)]
    lewidi = {
        str(k): {"number of annotations": 2, "annotators": "Ann1,Ann2", "text": "Fine."}
        | {"annotations": f"{k % 2},0"}
        for k in range(9)
    }
    for name, content in (
        ("mturk.csv", mturk),
        ("triples.tsv", triples),
        ("matrix.csv", matrix),
        ("lists.jsonl", lists),
        ("lewidi.json", lewidi),
    ):
        path = write(tmp_path / name, content)
        assert_same(cut(path, size), read_annotations(path))


def test_positions_are_those_in_the_file(tmp_path, cut):
    tasks = project(12)
    tasks[10] = studio(made(1), number=11)
    path = write(tmp_path / "a.json", tasks)
    with pytest.warns(
        UserWarning, match=r"left out: 1: no answer.*item 11 \(task 11\), annotation 1"
    ):
        cut(path, 300)
    tasks[9] = studio(made(1, "good", "bad"), number=10)
    with pytest.raises(AnnotationError, match=r"a\.json, after \d records: .*item 10 \(task 10\)"):
        cut(write(tmp_path / "a.json", tasks), 300)


def test_pieces_that_differ_in_what_must_be_one_are_refused(tmp_path, cut):
    tasks = [
        studio(made(1, "good", question="mood" if k < 5 else "size"), number=k) for k in range(1, 9)
    ]
    path = write(tmp_path / "a.json", tasks)
    with pytest.raises(AnnotationError, match=r"ask 'mood', and later ones 'size'; choose one"):
        cut(path, 200)
    assert cut(path, 200, question="size").n_annotations == 4
    with pytest.raises(AnnotationError, match="question='colour' is not among"):
        cut(path, 200, question="colour")
    with pytest.raises(AnnotationError, match="no annotations are found"):
        cut(write(tmp_path / "b.json", [studio(number=k) for k in range(9)]), 100)
    # In JSON-MIN only records of one task show which column holds the answers.
    minimal = [
        {"id": k // 2, "annotator": k % 2, "text": "Fine.", "mood": "b" if k % 3 else "a"}
        | {"annotation_id": k, "created_at": "", "updated_at": "", "lead_time": 1}
        for k in range(12)
    ]
    path = write(tmp_path / "min.json", minimal)
    with pytest.raises(AnnotationError, match="name the column of answers with question="):
        cut(path, 10)
    assert_same(cut(path, 10, question="mood"), read_annotations(path))


def test_several_exports_are_not_confused(tmp_path, cut):
    tasks = project(8)
    parts = [
        write(tmp_path / name / "a.json", tasks[s])
        for name, s in (("x", slice(0, 4)), ("y", slice(4, 8)))
    ]
    with pytest.raises(AnnotationError, match=r"2 exports.*ids of its platform.*task="):
        cut(parts, 300)
    assert_same(cut(parts, 300, task="data.item"), read_annotations(parts, task="data.item"))
    with pytest.raises(AnnotationError, match="two files are called 'a'"):
        cut(parts, 300, task="data.item", annotator_from="file")


def test_one_annotator_asked_twice_in_two_pieces(tmp_path, cut):
    tasks = [*project(5), studio(made(1, "bad"), number=1)]
    path = write(tmp_path / "a.json", tasks)
    with pytest.warns(UserWarning, match="last is kept"):
        whole = read_annotations(path)
    with pytest.warns(UserWarning, match="left out: 1: an annotator answered .*in another piece"):
        assert cells(cut(path, 200))["1", "1"] == cells(whole)["1", "1"] == "bad"
    with pytest.raises(AnnotationError, match="repeated"):
        read_export(path, duplicates="error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cut(path, 200, duplicates="keep").n_annotations == whole.n_annotations + 1


def test_anonymised_annotators_have_one_name_in_all_pieces(tmp_path, cut):
    path = write(tmp_path / "a.json", project(9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = read_annotations(path, anonymise=True)
        assert_same(cut(path, 300, anonymise=True), whole)
    assert whole.annotators.tolist() == ["w001", "w002", "w003"]


def test_classes_come_in_the_order_of_the_configuration(tmp_path, cut):
    path = write(tmp_path / "a.json", project(9))
    config = write(
        tmp_path / "config.xml",
        '<View><Choices name="mood" toName="text"><Choice value="good"/><Choice value="bad"/>'
        '<Choice value="awful"/></Choices><Text name="text" value="$text"/></View>',
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cut(path, 300, label_config=config).classes.tolist() == ["good", "bad", "awful"]
        assert cut(path, 300).classes.tolist() == ["awful", "bad", "good"]
        assert cut(path, 300, classes=["good", "bad", "awful"]).classes[0] == "good"


@pytest.mark.filterwarnings("ignore:.*left out")
def test_an_interrupted_conversion_goes_on(tmp_path, cut, monkeypatch):
    path, written = write(tmp_path / "a.json", project()), []
    original = pieces.write_annotations

    def full(place, table):
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        written.append(place.name)
        return original(place, table)

    monkeypatch.setattr(pieces, "write_annotations", full)
    memory = 1000 * pieces.EXPANSION
    with pytest.raises(WriteError, match="the same command resumes"):
        ingest(path, tmp_path / "s", memory=memory)
    with pytest.raises(AnnotationError, match=r"ingest with other question \(None, now \"'mood'\""):
        ingest(path, tmp_path / "s", memory=memory, question="mood")
    with pytest.raises(AnnotationError, match="unfinished ingest, not a store"):
        read_annotations(tmp_path / "s")
    monkeypatch.setattr(pieces, "write_annotations", lambda *a: written.append(a) or original(*a))
    store = ingest(path, tmp_path / "s", memory=memory)
    whole = ingest(path, tmp_path / "whole", memory=memory)
    again = len(list(Cutting(path, 1000).pieces())) - 5
    assert len(written) == 5 + again + len(list(Cutting(path, 1000).pieces()))
    assert store.digest == whole.digest


def test_what_is_refused(tmp_path, cut):
    path = write(tmp_path / "a.json", project(8))
    with pytest.raises(AnnotationError, match="weight='w' names a column"):
        cut(path, 300, weight="w")
    with pytest.raises(AnnotationError, match="multilabel='split'"):
        cut(path, 300, multilabel="split")
    with pytest.raises(AnnotationError, match="format='odd' is unknown"):
        cut(path, 300, format="odd")
    with pytest.raises(TypeError, match="colour"):
        cut(path, 300, colour="red")
    write(tmp_path / "b.json.gz", gzip.compress(json.dumps(project(8)).encode())[:-20])
    with pytest.raises(AnnotationError, match="the archive is damaged"):
        cut(tmp_path / "b.json.gz", 300)


@pytest.mark.filterwarnings("ignore:.*whose names differ only in case")
@pytest.mark.parametrize("odd", [" ann", "a\0b"])
def test_ids_that_a_table_would_change_are_refused(tmp_path, cut, odd):
    tasks = [studio(made("ann", "good"), made(odd, "bad"), number=k) for k in range(5)]
    path = write(tmp_path / "a.json", tasks)
    assert read_annotations(path).n_annotators == 2
    with pytest.raises(AnnotationError, match=f"annotator {re.escape(repr(odd))} begins with"):
        cut(path, 300)


def test_what_cannot_be_cut_is_read_whole(tmp_path, cut, monkeypatch):
    opened = []
    monkeypatch.setattr(
        pieces, "open_documents", lambda path: opened.append(path) or documents.open_documents(path)
    )
    wide = [["id", "a", "b", "c"], *[[f"i{k}", "1", str(k % 2), "0"] for k in range(9)]]
    path = write(tmp_path / "wide.csv", wide)
    assert_same(cut(path, 20, format="wide"), read_annotations(path, format="wide"))
    assert opened == [path]
    with pytest.raises(AnnotationError, match="pass format='wide' if it is"):
        cut(path, 20)


def test_a_large_export_is_recognised_by_its_size(tmp_path):
    path = write(tmp_path / "a.json", "x" * 1000)
    assert not pieces.is_large([path], 1000 * pieces.EXPANSION)
    assert pieces.is_large([path] * 3, 1000 * pieces.EXPANSION)
    assert not pieces.is_large([tmp_path], 1)


# -- what must not be lost ------------------------------------------------------------------------


def prodigy(n=12):
    """Records of three annotators, the first of whom passes on the first third."""
    return [
        {"text": f"t{k}", "_input_hash": k // 3, "_task_hash": k // 3, "_annotator_id": f"a{k % 3}"}
        | {"options": [{"id": "yes"}, {"id": "no"}], "_view_id": "choice", "_timestamp": k}
        | ({"answer": "ignore"} if k < n // 3 else {"answer": "accept", "accept": ["no"]})
        for k in range(n)
    ]


@pytest.mark.parametrize(
    "line", ["broken, line", '{"cut": ', "[1, 2]", "17", "<a>", "", '{"a": 1, "a": 2}', "null"]
)
@pytest.mark.filterwarnings("ignore:.*(left out|do not occur)")
def test_a_broken_line_costs_no_other_line(tmp_path, cut, line):
    lines = [
        json.dumps(record) + "\n" + f"{line}\n" * (k % 2) for k, record in enumerate(prodigy())
    ]
    path = write(tmp_path / "a.jsonl", "".join(lines).encode())
    whole = read_annotations(path)
    for size in (20, 400):
        assert_same(cut(path, size), whole)


@pytest.mark.filterwarnings("ignore:.*do not occur")
def test_pieces_of_passes_alone_are_kept(tmp_path, cut):
    path = write(tmp_path / "a.jsonl", prodigy())
    table = cut(path, 20)
    assert len(table.passes) == 4
    assert_same(table, read_annotations(path))
    path = write(tmp_path / "b.jsonl", prodigy()[:4])
    with pytest.raises(AnnotationError, match="no annotations are found"):
        cut(path, 20)


def test_classes_that_never_occur_are_kept(tmp_path, cut):
    tasks = [studio(made(w, "good"), made(3, "bad"), number=w) for w in (1, 2)]
    path = write(tmp_path / "a.json", tasks)
    assert cut(path, 20, classes=["bad", "good", "ugly"]).classes.tolist() == [
        "bad",
        "good",
        "ugly",
    ]
    config = write(
        tmp_path / "config.xml",
        '<View><Choices name="mood" toName="text"><Choice value="bad"/><Choice value="good"/>'
        '<Choice value="ugly"/></Choices><Text name="text" value="$text"/></View>',
    )
    with pytest.warns(UserWarning, match="1 of 3 classes of the configuration do not") as caught:
        table = cut(path, 20, label_config=config)
    assert len(caught) == 1
    assert table.classes.tolist() == ["bad", "good", "ugly"]


def test_a_warning_is_given_once_and_of_all_pieces(tmp_path, cut):
    records = [{"annotators": ["a", "b"], "labels": ["yes", "Yes"]} for _ in range(8)]
    with pytest.warns(UserWarning, match="differ only in case") as caught:
        cut(write(tmp_path / "a.jsonl", records), 20)
    assert len(caught) == 1
    assert "'Yes' (8)" in str(caught[0].message)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_the_first_answer_counts_in_zooniverse(tmp_path, cut):
    header = ["classification_id", "user_name", "subject_ids", "annotations", "created_at"]
    answers = [("ann", 1, "Yes"), ("bob", 1, "No"), ("ann", 2, "No"), ("ann", 1, "No")]
    table = [
        [str(k), user, str(subject), json.dumps([{"task": "T0", "value": value}]), ""]
        for k, (user, subject, value) in enumerate(answers)
    ]
    path = write(tmp_path / "z.csv", [header, *table])
    whole = read_annotations(path)
    assert cells(whole)["1", "ann"] == "Yes"
    assert_same(cut(path, 20), whole)


@pytest.mark.parametrize("end", ["x", "\n[]", "]", ","])
def test_text_after_the_end_is_refused(end):
    with pytest.raises(AnnotationError, match=r"a\.json: the JSON ends with item 2, but the file"):
        list(elements(io.StringIO("[1, 2]" + end), "a.json", 4))


@pytest.mark.parametrize("text", ["[1, 2, ]", "[1, , 2]", "[1, 2}", "[1 2]", "[,1]"])
def test_misplaced_commas_are_refused(text):
    with pytest.raises(AnnotationError, match="is cut off, is not JSON"):
        list(elements(io.StringIO(text), "a.json", 4))


def test_a_later_file_of_another_format_is_refused(tmp_path, cut):
    paths = [
        write(tmp_path / "a.json", project(8)),
        write(tmp_path / "b.csv", [["HITId", "WorkerId", "Answer.mood"], ["h", "w", "good"]]),
    ]
    with pytest.raises(AnnotationError, match=r"b\.csv is not of the format of a\.json \(label-s"):
        cut(paths, 300, task="data.item")


def test_the_first_line_decides_how_all_pieces_are_separated(tmp_path, cut):
    triples = [[f"w{w}", f"i{k}", "no" if k < 5 else "[a, b, c"] for k in range(9) for w in (1, 2)]
    path = write(tmp_path / "a.tsv", "".join("\t".join(row) + "\n" for row in triples).encode())
    options = {"format": "get-another-label"}
    assert_same(cut(path, 20, **options), read_annotations(path, **options))


def test_large_members_of_an_object_are_read_whole(tmp_path, cut, monkeypatch):
    monkeypatch.setattr(cutting, "LONGEST_LINE", 50)
    path = write(tmp_path / "a.json", json.dumps({"a": "x" * 5000, "b": 1}, indent=1).encode())
    with pytest.raises(AnnotationError, match="no format is recognised"):
        cut(path, 20)


def test_errors_name_the_file_and_what_is_wrong(tmp_path, cut):
    text = json.dumps(project(8), indent=1)
    latin = write(tmp_path / "latin.json", text.encode()[:5000] + b"\xff" + text.encode()[5000:])
    with pytest.raises(AnnotationError, match=r"latin\.json: line \d+ is not UTF-8 text .*0xff"):
        cut(latin, 300)
    number = text.replace('"id": 3', '"id": ' + "9" * 5000, 1)
    with pytest.raises(AnnotationError, match=r"digits.json: item 3 .*4,000 digits"):
        cut(write(tmp_path / "digits.json", number.encode()), 300)
    packed = gzip.compress(text.encode())
    damaged = write(tmp_path / "a.json.gz", packed[:100] + bytes(30) + packed[130:])
    with pytest.raises(AnnotationError, match=r"a\.json\.gz: the archive is damaged"):
        cut(damaged, 300)
    quote = write(tmp_path / "a.txt", b'HITId,WorkerId,Answer.mood\nh1,w1,good\nh2,w1,"good\n')
    with pytest.raises(AnnotationError, match=r"a\.txt: after row 2: .*quotation mark"):
        cut(quote, 10)
    for name, empty in (("b.json", b"[]"), ("c.json", b"{}")):
        with pytest.raises(AnnotationError, match="no format is recognised"):
            cut(write(tmp_path / name, empty), 300)
    with pytest.raises(FileNotFoundError, match=r"none\.json does not exist"):
        cut(tmp_path / "none.json", 300)
    with pytest.raises(FileNotFoundError, match=r"none\.xml does not exist"):
        cut(write(tmp_path / "d.json", text.encode()), 300, label_config=tmp_path / "none.xml")


@pytest.mark.data
@pytest.mark.parametrize(("name", "options", "counts"), SAMPLES, ids=[s[0] for s in SAMPLES])
@pytest.mark.filterwarnings("ignore")
def test_samples_in_pieces_are_the_samples(data_home, cut, name, options, counts):
    path = data_home.parent / "exports" / name
    whole = read_export(path, **options)
    size = 10**6 if path.is_dir() else max(path.stat().st_size // 5, 1)
    # Few records do not show which column holds the answers.
    question = {"question": whole.question} if path.suffix != ".zip" else {}
    assert_same(cut(path, size, **{**options, **question}), whole.annotations)
