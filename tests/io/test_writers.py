"""Labels and annotations that are written, and what reading them again gives."""

import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.io import (
    consensus,
    read_annotations,
    read_export,
    write_annotations,
    write_labels,
)
from manyhands.io.annotations import read_items
from tests.io.exports.conftest import argilla, cells, made, studio, write


def voted(table, path, **options):
    """Write the majority's labels, and return the path."""
    votes = table.vote_counts()
    votes += votes.sum(axis=1, keepdims=True) == 0
    return write_labels(path, table, votes / votes.sum(axis=1, keepdims=True), **options)


def long(*rows):
    return AnnotationTable.from_frame(pd.DataFrame(rows, columns=["task", "worker", "label"]))


def answers(table):
    """Labels and passes by task and annotator."""
    passes = np.zeros((0, 3), int) if table.passes is None else table.passes
    return cells(table) | {
        (str(table.instances[i]), str(table.annotators[j])): f"pass {kind}" for i, j, kind in passes
    }


# -- the consensus --------------------------------------------------------------------------------


def test_agreement_and_actions_by_hand():
    rows = [
        [0, 0, 0, 0, 0, 0],  # sure
        [0, -1, -1, -1, -1, -1],  # sure, but on one annotation
        [0, 0, 1, 1, 1, 0],  # doubtful, with many annotations
        [1, 0, -1, -1, -1, -1],  # doubtful, with few
        [7, 7, 1, -1, -1, -1],  # two abstained, and one annotated
        [-1, -1, -1, -1, -1, -1],
        [0, 1, -1, -1, -1, -1],  # sure, but one of two said so
    ]
    table = AnnotationTable.from_matrix(np.array(rows), classes=[0, 1], abstain=7)
    posterior = [[0.99, 0.01], [1, 0], [0.5, 0.5], [0.2, 0.8], [0.3, 0.7], [0.5, 0.5], [0.99, 0.01]]
    found = consensus(table, posterior, labels=[0, 0, 0, 1, 1, None, 0])
    more = "collect more"
    wanted = ["accept", more, "review", more, "review", more, more]
    assert found.actions.tolist() == wanted
    np.testing.assert_array_equal(found.agreement, [1, 1, 0.5, 0.5, 1, np.nan, 0.5])
    assert found.labels == [0, 0, 0, 1, 1, None, 0]
    assert found.labels is found.labels, "made once, not for every record"
    assert found.probability.tolist() == [0.99, 1, 0.5, 0.8, 0.7, 0.5, 0.99]
    assert found.count_actions() == {"accept": 1, "collect more": 4, "review": 2}
    known = consensus(table, posterior, known=np.arange(7) == 1, accept=0.5, enough=7)
    wanted = ["accept", "accept", "accept", more, "review", more, more]
    assert known.actions.tolist() == wanted


def test_the_rule_names_only_what_applies():
    rows = np.array([[0, 0, 0, 1], [1, 1, 1, 0], [0, 1, 0, 1]] * 4)
    table = AnnotationTable.from_matrix(rows)
    posterior = [[0.99, 0.01], [0.01, 0.99], [0.5, 0.5]] * 4
    all_, none = np.ones(12, dtype=bool), np.zeros(12, dtype=bool)
    first = np.arange(12) == 0

    def rule(of=table, **judged):
        return consensus(of, posterior, **judged).rule

    plain = "it is at least 95 % certain and at least two annotators gave it"
    assert rule(identified=all_) == f"A label is accepted if {plain}."
    is_known = (
        "Labels that you gave as known are accepted. Others must be at least 95 % certain and "
        "given by at least two annotators."
    )
    assert rule(identified=all_, known=first) == is_known
    trust = (
        "If the annotations do not show which annotators are reliable, only labels that you gave "
        "as known are accepted."
    )
    assert rule(identified=~first) == f"A label is accepted if {plain}. {trust}"
    nobody = (
        "The annotations do not show which annotators are reliable, so only labels that you gave "
        "as known are accepted."
    )
    assert rule(identified=none) == rule(probability=np.full(12, np.nan)) == nobody
    family = table.with_groups({0: "models", 1: "models"})
    units = f"A label is accepted if {plain}. Annotators who may share mistakes count as one."
    assert rule(family, identified=all_) == units
    assert rule(accept=0.9, identified=all_) == rule(identified=all_).replace("95", "90")


def test_what_does_not_fit_the_table_is_refused():
    table = AnnotationTable.from_matrix(np.array([[0, 1], [1, 1]]))
    with pytest.raises(AnnotationError, match=r"posterior has shape \(2,\)"):
        consensus(table, [0, 1])
    with pytest.raises(AnnotationError, match=r"shape \(1, 2\).*\(2, 2\)"):
        consensus(table, [[0, 1]])
    with pytest.raises(AnnotationError, match=r"labels has shape \(1,\)"):
        consensus(table, np.eye(2), labels=[1])
    with pytest.raises(AnnotationError, match="labels"):
        consensus(table, np.eye(2), labels=[5, 1])
    with pytest.raises(AnnotationError, match=r"alike has shape \(1,\).*\(2,\)"):
        consensus(table, np.full((2, 2), 0.5), alike=[True])
    for accept in (7, 0, -0.1, np.nan):
        with pytest.raises(AnnotationError, match=f"accept={accept!r} is not a probability"):
            consensus(table, np.eye(2), accept=accept)


@pytest.mark.parametrize(
    ("row", "says"), [([5, -4], "entry is -4"), ([np.nan, 1], "nan"), ([1, 1], "sums to 2")]
)
def test_what_is_not_a_distribution_is_refused_before_anything_is_written(tmp_path, row, says):
    table = AnnotationTable.from_matrix(np.array([[0, 1], [1, 1]]))
    for to, name in (("table", "a.csv"), ("label-studio", "a.json")):
        with pytest.raises(AnnotationError, match=f"posterior .* in row 1 .*{says}"):
            write_labels(tmp_path / name, table, [[1, 0], row], to=to)
    assert not list(tmp_path.iterdir())


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".json", ".jsonl"])
def test_labels_as_tables(tmp_path, suffix):
    read = {".parquet": pd.read_parquet, ".json": pd.read_json, ".csv": pd.read_csv}
    table = long((1, "a", "x"), (1, "b", "x"), (2, "a", "y"))
    path = voted(table, tmp_path / f"labels{suffix}")
    if suffix == ".tsv":
        frame = pd.read_csv(path, sep="\t")
    elif suffix == ".jsonl":
        frame = pd.read_json(path, lines=True)
    else:
        frame = read[suffix](path)
    assert frame["label"].tolist() == ["x", "y"]
    assert frame["action"].tolist() == ["accept", "collect more"]
    assert frame["agreement"].tolist() == [1, 1]
    assert frame["n_annotations"].tolist() == [2, 1]
    assert frame["p(y)"].tolist() == [0, 1]


def test_formulas_are_guarded_unless_they_are_kept(tmp_path):
    table = long(("=A1", "@x", "+cmd"), ("b", "y", "no"))
    for writer in (voted, lambda table, path, **more: write_annotations(path, table, **more)):
        text = writer(table, tmp_path / "a.csv").read_text()
        assert "'=A1,'" in text
        assert re.search(r"(^|,)[=@+]", text, re.MULTILINE) is None
        assert "\n=A1," in writer(table, tmp_path / "a.csv", keep_formulas=True).read_text()


@pytest.mark.parametrize(
    ("to", "name", "message"),
    [
        ("word", "a.doc", "to='word' is unknown; use table, label-studio"),
        ("table", "a.doc", "not a format of tables"),
        ("label-studio", "a.jsonl", r"writes a \.json file, but .* ends in '\.jsonl'"),
        ("prodigy", "a.json", r"writes a \.jsonl file"),
        ("datasets", "a.json", "writes a folder"),
    ],
)
def test_unknown_formats_and_names_are_refused(tmp_path, to, name, message):
    table = AnnotationTable.from_matrix(np.array([[0, 1]]))
    with pytest.raises(AnnotationError, match=message):
        voted(table, tmp_path / name, to=to)
    with pytest.raises(AnnotationError, match=message):
        write_annotations(tmp_path / name, table, to=to)
    assert not list(tmp_path.iterdir())


# -- the formats of tools -------------------------------------------------------------------------


def test_label_studio_gets_predictions_that_it_can_import(tmp_path):
    first = studio(made(1, "good"), made(2, "good"), number=7, text="Works.", item="r7")
    second = studio(made(1, "bad"), made(2, "good"), number=9, text="Never.", item="r9")
    for task in (first, second):
        for annotation in task["annotations"]:
            annotation["result"][0]["to_name"] = "review"
    export = read_export(write(tmp_path / "p.json", [first, second]))
    table = export.annotations
    options = {"to": "label-studio", "export": export, "labels": ["good", None], "method": "MV"}
    got = json.loads(voted(table, tmp_path / "predictions.json", **options).read_text())
    result = {
        "from_name": "mood",
        "to_name": "review",
        "type": "choices",
        "value": {"choices": ["good"]},
    }
    assert got == [
        {
            "id": 7,
            "data": first["data"],
            "meta": {"agreement": 1.0, "n_annotations": 2, "action": "accept"},
            "predictions": [{"model_version": "MV", "score": 1.0, "result": [result]}],
        },
        {
            "id": 9,
            "data": second["data"],
            "meta": {"agreement": None, "n_annotations": 2, "action": "collect more"},
            "predictions": [],
        },
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("taxonomy", {"taxonomy": [["a", "b"]]}),
        ("rating", {"rating": 4}),
        ("number", {"number": 3}),
        ("pairwise", {"selected": "left"}),
    ],
)
def test_label_studio_questions_keep_their_type(tmp_path, kind, value):
    entry = {"from_name": "q", "to_name": "t", "type": kind, "value": value}
    task = {"id": 1, "data": {"x": 1}, "annotations": [{"completed_by": 1, "result": [entry]}]}
    export = read_export(write(tmp_path / "p.json", [task]))
    options = {"to": "label-studio", "export": export}
    got = json.loads(voted(export.annotations, tmp_path / "o.json", **options).read_text())
    assert got[0]["predictions"][0]["result"] == [entry]


def test_prodigy_gets_the_least_certain_first(tmp_path):
    lines = [
        {"_input_hash": -5, "text": "a", "accept": ["x"], "answer": "accept", "_annotator_id": "u"},
        {"_input_hash": -5, "text": "a", "accept": ["x"], "answer": "accept", "_annotator_id": "v"},
        {"_input_hash": 8, "text": "b", "accept": ["x"], "answer": "accept", "_annotator_id": "u"},
        {"_input_hash": 8, "text": "b", "accept": ["y"], "answer": "accept", "_annotator_id": "v"},
    ]
    export = read_export(write(tmp_path / "p.jsonl", lines))
    path = voted(export.annotations, tmp_path / "o.jsonl", to="prodigy", export=export)
    doubtful, sure = [json.loads(line) for line in path.read_text().splitlines()]
    assert (doubtful["_input_hash"], doubtful["text"], doubtful["accept"]) == (8, "b", ["x"])
    assert [option["id"] for option in doubtful["options"]] == ["x", "y"]
    assert sure["meta"] == {
        "score": 1.0,
        "by": "manyhands",
        "agreement": 1.0,
        "n_annotations": 2,
        "action": "accept",
    }


def test_prodigy_questions_of_one_label_are_answered_by_accept_and_reject(tmp_path):
    lines = [
        {"_input_hash": i, "text": "t", "label": "spam", "answer": answer, "_annotator_id": "u"}
        for i, answer in ((1, "accept"), (2, "reject"), (3, "ignore"))
    ]
    export = read_export(write(tmp_path / "p.jsonl", lines))
    options = {"to": "prodigy", "export": export}
    got = voted(export.annotations, tmp_path / "o.jsonl", **options).read_text().splitlines()
    answers = {(r := json.loads(line))["_input_hash"]: (r["label"], r["answer"]) for line in got}
    assert answers[1] == ("spam", "accept")
    assert answers[2] == ("spam", "reject")
    path = write_annotations(tmp_path / "a.jsonl", export.annotations, **options)
    assert read_annotations(path).equals(export.annotations)


def test_argilla_gets_suggestions_beside_its_own_fields(tmp_path):
    nested = {
        "id": "r1",
        "_server_id": "s",
        "fields": {"text": "Works."},
        "metadata": {"source": "mail"},
        "responses": {"q": [{"value": 4, "user_id": "u"}, {"value": 4, "user_id": "v"}]},
    }
    export = read_export(write(tmp_path / "a.json", [nested]))
    options = {"to": "argilla", "export": export, "method": "MV"}
    (got,) = json.loads(voted(export.annotations, tmp_path / "o.json", **options).read_text())
    assert got["id"] == "r1"
    assert got["fields"] == {"text": "Works."}
    assert got["metadata"]["source"] == "mail"
    assert got["metadata"]["action"] == "accept"
    assert got["suggestions"] == {"q": {"value": 4, "score": 1.0, "agent": "MV"}}
    flat = argilla(1, ["x"], ["a"], ["submitted"])
    export = read_export(write(tmp_path / "f.json", flat))
    (got,) = json.loads(
        voted(export.annotations, tmp_path / "o.json", to="argilla", export=export).read_text()
    )
    assert got["fields"]


def test_doccano_gets_texts_with_labels_and_the_rest_as_metadata(tmp_path):
    tasks = [
        studio(made(1, 3), made(2, 3), text="Fine.", by="ann"),
        studio(made(1, 3), made(2, 4), number=2, text="So so."),
    ]
    export = read_export(write(tmp_path / "p.json", tasks))
    table = export.annotations
    options = {"to": "doccano", "export": export, "method": "MV"}
    path = voted(table, tmp_path / "o.jsonl", labels=np.array([3, None]), **options)
    got, open_ = [json.loads(line) for line in path.read_text().splitlines()]
    assert (got["text"], got["label"], got["task"]) == ("Fine.", ["3"], 1)
    assert (got["by"], got["item.by"], got["action"]) == ("MV", "ann", "accept")
    assert (open_["text"], open_["label"]) == ("So so.", [])
    (bare, _) = voted(table, path, to="doccano").read_text().splitlines()
    assert json.loads(bare)["text"] == "1"
    with pytest.raises(AnnotationError, match=r"no place for annotators: .* write labels, or a"):
        write_annotations(tmp_path / "a.jsonl", table, to="doccano")


def test_a_data_set_is_a_folder_with_a_card_that_names_its_file(tmp_path):
    export = read_export(
        write(tmp_path / "p.json", [studio(made(1, "<b>x</b>"), text="Fine.", box={"x": 1})])
    )
    options = {"to": "datasets", "export": export}
    folder = voted(export.annotations, tmp_path / "set", **options)
    assert "data_files: data.jsonl" in (folder / "README.md").read_text()
    assert "<b>" not in (folder / "README.md").read_text()
    (row,) = [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]
    assert row["label"] == "<b>x</b>"
    assert (row["text"], row["box"]) == ("Fine.", '{"x": 1}')
    folder = write_annotations(tmp_path / "all", export.annotations, **options)
    assert read_annotations(folder / "data.jsonl").equals(export.annotations)


def test_sets_of_labels_are_taken_apart_again(tmp_path):
    task = studio(made(1, "a", "b + c"), made(2, "a", "b + c"))
    other = studio(made(1, "b + c"), made(2, "b + c"), number=2)
    export = read_export(write(tmp_path / "p.json", [task, other]), multilabel="join")
    for to, name, found in (
        ("label-studio", "o.json", lambda r: r["predictions"][0]["result"][0]["value"]["choices"]),
        ("prodigy", "o.jsonl", lambda r: r["accept"]),
        ("argilla", "o.json", lambda r: r["suggestions"]["mood"]["value"]),
        ("doccano", "o.jsonl", lambda r: r["label"]),
    ):
        path = voted(export.annotations, tmp_path / name, to=to, export=export)
        lines = path.read_text().strip().strip("[]").strip().splitlines()
        assert [found(json.loads(line.rstrip(","))) for line in lines] == [
            ["a", "b + c"],
            ["b + c"],
        ]


# -- round trips ----------------------------------------------------------------------------------

NAMES = st.text("abÄ€<'\"=+,;\n 019", min_size=1, max_size=6).filter(lambda s: s == s.strip())
WORKERS = st.text("abÄ@.01", min_size=1, max_size=4)
PAIRS = st.dictionaries(
    st.tuples(st.one_of(NAMES, st.integers(0, 50).map(str)), WORKERS),
    st.one_of(st.sampled_from(["yes", "no", "=1+1", "<b>"]), st.sampled_from(["?abs", "?skip"])),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("round")


def long_table(pairs, place):
    """Read a long CSV file in which two labels are passes; None if no label is left."""
    rows = [(*pair, label) for pair, label in pairs.items()]
    if not any(label[0] != "?" for _, _, label in rows):
        return None
    path = write(place / "long.csv", [("task", "worker", "label"), *rows])
    return read_annotations(path, abstain="?abs", skip="?skip")


ODD = {
    ("=+", "@."): "=1+1",
    ("'\"", "@."): "?abs",
    ("a,b;\nc", "a"): "<b>",
    ("<1", "a"): "?skip",
    ("01", "Ä"): "no",
    ("Ä€", "10"): "yes",
}
"""Every character of `NAMES`, and every label."""


@settings(max_examples=12)
@given(pairs=PAIRS)
@example(pairs=ODD)
def test_a_long_table_stays_the_same(place, pairs):
    table = long_table(pairs, place)
    if table is None:
        return
    for name in ("o.csv", "o.tsv", "o.parquet", "o.jsonl", "o.json"):
        assert read_annotations(write_annotations(place / name, table)).equals(table), name


@settings(max_examples=12)
@given(pairs=PAIRS)
@example(pairs=ODD)
@pytest.mark.filterwarnings("ignore:.*has no place for")
def test_annotations_of_tools_stay_the_same(place, pairs):
    table = long_table(pairs, place)
    if table is None:
        return
    for to, name, options in (
        ("label-studio", "o.json", {}),
        ("prodigy", "o.jsonl", {"task": "meta.task"}),
        ("argilla", "o.json", {}),
    ):
        path = write_annotations(place / name, table, to=to)
        again = read_annotations(path, **options)
        assert cells(again) == cells(table), to
        if to == "prodigy":
            assert answers(again) == answers(table)
        else:
            assert answers(again).keys() == answers(table).keys(), to


def test_what_a_format_has_no_place_for_is_a_warning(tmp_path):
    table = AnnotationTable.from_matrix(np.array([[0, 1], [1, 9]]), abstain=9)
    with pytest.warns(UserWarning, match="no place for abstentions"):
        write_annotations(tmp_path / "o.json", table, to="label-studio")
    weighted = AnnotationTable.from_frame(
        pd.DataFrame({"task": [1], "worker": ["a"], "label": ["x"], "w": [0.5]}), weight="w"
    )
    with pytest.warns(UserWarning, match="no place for weights"):
        write_annotations(tmp_path / "o.jsonl", weighted, to="prodigy")
    path = write_annotations(tmp_path / "o.csv", weighted.with_groups(["g"]))
    assert path.read_text() == "task,worker,label,weight,group\n1,a,x,0.500000,g\n"


def test_items_and_the_question_accompany_the_annotations_of_a_long_table(tmp_path, caplog):
    own = {"text": "Works.", "label": "mine", "question": "Well?", "gold": "x"}
    task = studio(made(1, "good"), made(2, "bad"), place=[1], **own)
    export = read_export(write(tmp_path / "p.json", [task]))
    path = write_annotations(tmp_path / "o.csv", export.annotations, export=export)
    header, first, _ = path.read_text().splitlines()
    assert header == "task,worker,label,question,text,place,item.label,item.question,gold"
    assert first == "1,1,good,mood,Works.,[1],mine,Well?,x"
    assert read_export(path).items.columns["text"] == ["Works."]
    for options in ({}, {"question": "mood"}, {"fields": ["gold"]}):
        again = read_export(path, **options)
        assert (again.question, cells(again.annotations)) == ("mood", cells(export.annotations))
    assert again.items.columns == {"text": ["Works."], "gold": ["x"]}
    with caplog.at_level("INFO", "manyhands"):
        items = read_items(path, export.annotations)
    assert "not kept as data of the items: 'place', 'item.label'" in caplog.text
    back = write_annotations(
        tmp_path / "back.json", export.annotations, to="label-studio", export=items
    )
    assert read_export(back).question == "mood"


def test_a_column_of_several_questions_names_none(tmp_path):
    rows = [("task", "worker", "label", "question"), (1, "a", "x", "q1"), (2, "a", "y", "q2")]
    assert read_export(write(tmp_path / "a.csv", rows)).question == "label"
    assert read_export(tmp_path / "a.csv", question="question").question == "question"


def test_what_a_parquet_file_holds_beside_text_and_numbers_can_be_written(tmp_path):
    rows = {
        "id": [1, 2],
        "annotators": [["a", "b"], ["a"]],
        "annotations": [["x", "y"], ["x"]],
        "when": pd.to_datetime(["2026-01-01", None]),
        "price": [1.5, np.nan],
        "image": [{"bytes": b"\x89PNG", "path": "a.png"}] * 2,
    }
    pd.DataFrame(rows).to_parquet(tmp_path / "a.parquet")
    export = read_export(tmp_path / "a.parquet")
    assert export.format == "lists"
    path = voted(export.annotations, tmp_path / "o.json", to="label-studio", export=export)
    first, second = (task["data"] for task in json.loads(path.read_text()))
    assert first["when"].startswith("2026-01-01")
    assert first["image"] == {"bytes": "<4 bytes>", "path": "a.png"}
    assert "price" not in second
    tables = pd.DataFrame({"task": [1, 1], "worker": ["a", "b"], "label": ["x", "y"]})
    tables.to_parquet(tmp_path / "b.parquet")
    assert cells(read_annotations(tmp_path / "b.parquet")) == {("1", "a"): "x", ("1", "b"): "y"}


# -- matching by id -------------------------------------------------------------------------------

MATCHED = long(
    *((task, worker, label) for worker in "vw" for task, label in zip("abc", "xyz", strict=True))
)
PROBA = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.4, 0.6]])


def shuffled_posterior():
    """`PROBA`, with rows and columns in another order, as pandas, polars and pyarrow frames."""
    frame = pd.DataFrame(PROBA, index=[*"abc"], columns=[*"xyz"]).loc[[*"cab"], [*"zxy"]]
    long = frame.rename_axis("task").reset_index()
    return frame, pl.from_pandas(long), pa.Table.from_pandas(long, preserve_index=False)


@pytest.mark.parametrize("posterior", shuffled_posterior(), ids=["pandas", "polars", "pyarrow"])
def test_a_frame_of_probabilities_is_matched_by_id_and_class(posterior, tmp_path):
    path = write_labels(tmp_path / "shuffled.csv", MATCHED, posterior)
    assert path.read_text() == write_labels(tmp_path / "l.csv", MATCHED, PROBA).read_text()


def test_labels_and_known_are_matched_by_index():
    labels = pd.Series(["z", None, "y"], index=[*"cab"])
    known = pd.Series([False, False, True], index=[*"cab"])
    found = consensus(MATCHED, PROBA, labels, known=known)
    assert found.labels == [None, "y", "z"]
    assert found.actions.tolist() == ["collect more", "accept", "collect more"]


def test_a_frame_of_other_instances_or_classes_is_refused():
    frame = shuffled_posterior()[0]
    with pytest.raises(AnnotationError, match="1 rows of posterior are not among"):
        consensus(MATCHED, frame.rename(index={"a": "d"}))
    with pytest.raises(AnnotationError, match="call the columns as the classes are"):
        consensus(MATCHED, frame.rename(columns={"x": "w"}))
