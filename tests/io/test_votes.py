"""Votes of nobody in particular: counts per class, lists of labels, and what they allow."""

import json

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pytest

from manyhands import AnnotationPlanner, AnnotationTable, DawidSkene, MajorityVote, load, save
from manyhands.agreement import (
    annotator_agreement,
    class_agreement,
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
    summary,
)
from manyhands.classifiers import SoftProbClassifier
from manyhands.exceptions import AnnotationError
from manyhands.inference.comparison import compare_aggregators
from manyhands.io import read_annotations, read_export, write_annotations
from manyhands.metrics import annotator_reliability
from manyhands.report import summarize
from manyhands.scale.ingest import ingest
from tests.io.exports.conftest import write

FLEISS = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]
"""The worked example of Fleiss' kappa that textbooks and Wikipedia share: kappa is .210."""

NAMES = [*"abcde"]


def counts_file(path, header, rows=FLEISS, **columns):
    frame = pd.DataFrame(rows, columns=header)
    frame.insert(0, "item", [f"i{k}" for k in range(len(rows))])
    for name, values in columns.items():
        frame[name] = values
    if path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in [list(frame.columns), *frame.values.tolist()]:
            book.active.append(row)
        book.save(path)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.fixture
def table():
    return AnnotationTable.from_counts(FLEISS, NAMES)


def test_fleiss_example(table):
    assert fleiss_kappa(table) == pytest.approx(0.210, abs=5e-4)
    assert table.vote_counts().tolist() == FLEISS
    assert (table.n_annotators, table.annotators_known) == (14, False)
    assert "up to 14 votes of unknown annotators" in repr(table)
    assert table.nbytes == 10 * table.n_annotations


def test_agreement_is_that_of_the_annotations(table):
    rng = np.random.default_rng(1)
    rows = [rng.permutation(np.repeat(np.arange(5), row)) for row in FLEISS]
    named = AnnotationTable.from_matrix(np.array(rows), range(5))
    for measure in (fleiss_kappa, krippendorff_alpha):
        assert measure(named) == pytest.approx(measure(table), rel=1e-12)
    np.testing.assert_allclose(class_agreement(named).kappa, class_agreement(table).kappa)
    found = summary(table)
    assert np.isnan(found["mean_cohen_kappa"].value)
    assert found["fleiss_kappa"].value == pytest.approx(0.210, abs=5e-4)


def test_majority_and_shares(table):
    model = MajorityVote().fit(table)
    np.testing.assert_allclose(model.posterior_, np.array(FLEISS) / 14)
    assert model.labels_[0] == "e"
    assert np.isnan(model.annotator_accuracy_).all()
    more = AnnotationTable.from_counts([[20, 0, 0, 0, 1]], NAMES)
    np.testing.assert_allclose(model.predict_proba(more)[0, 0], 20 / 21)
    known = MajorityVote().fit(table, gold={0: "a"})
    assert known.labels_[0] == "a"


def test_operations_keep_what_is_not_known(table, tmp_path):
    parts = (table[:3], table.take(table.label > 0), table.select(instances=[0, 5]), table.observed)
    assert not any(part.annotators_known for part in parts)
    both = table[:3].with_added(table[5:])
    assert (both.n_annotations, both.annotators_known) == (8 * 14, False)
    assert both.equals(both.select())
    with pytest.raises(AnnotationError, match="has votes in both tables"):
        table.with_added(table)
    assert table.with_added(table, duplicates="keep").n_annotations == 2 * table.n_annotations
    named = AnnotationTable.from_matrix([[0, 1]], range(5))
    with pytest.raises(AnnotationError, match="one table knows its annotators"):
        AnnotationTable.from_counts(FLEISS, range(5)).with_added(named)
    assert not table.equals(AnnotationTable.from_matrix(table.to_matrix(codes=True)))
    save(MajorityVote().fit(table), tmp_path / "m")
    assert load(tmp_path / "m").table_.equals(table)
    assert table.to_frame()["worker"].isna().all()


REFUSED = {
    "DawidSkene": lambda t, at: DawidSkene().fit(t),
    "comparison": lambda t, at: compare_aggregators(t),
    "confusion": lambda t, at: MajorityVote().fit(t).confusion_,
    "cohen": lambda t, at: cohen_kappa(t),
    "annotators": lambda t, at: annotator_agreement(t),
    "reliability": lambda t, at: annotator_reliability(t, t.vote_counts() / 14),
    "planner": lambda t, at: AnnotationPlanner().fit(t),
    "classifier": lambda t, at: SoftProbClassifier().fit(np.zeros((10, 2)), t),
    "families": lambda t, at: t.with_groups({}),
    "report": lambda t, at: summarize(t, aggregator=MajorityVote().fit(t)),
    "long table": lambda t, at: write_annotations(at / "a.csv", t),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_annotators_is_refused(table, tmp_path, what):
    with pytest.raises(AnnotationError, match=r"do not say who gave them.*majority vote"):
        REFUSED[what](table, tmp_path)


def test_what_a_report_can_say(table):
    found = summarize(table)
    assert found["data"]["n_annotators"] is None
    assert found["data"]["agreement"]["alpha"] == pytest.approx(krippendorff_alpha(table))
    assert [row["name"] for row in found["classes"]["rows"]] == NAMES


def test_frames_and_passes():
    frame = pd.DataFrame({"id": ["x", "y"], "cat": [2, None], "unsure": [1, 3]})
    for given in (frame, pl.DataFrame(frame)):
        table = AnnotationTable.from_counts(given, abstain="unsure")
        assert table.instances.tolist() == ["x", "y"]
        assert (table.classes.tolist(), table.n_annotations) == (["cat"], 2)
        assert table.abstentions.tolist() == [[0, 2], [1, 0], [1, 1], [1, 2]]
    lists = {"votes": [["p", "n"], ["p"]]}
    table = AnnotationTable.from_lists(
        lists, labels="votes", annotators=None, annotators_known=False
    )
    assert not table.annotators_known
    with pytest.raises(AnnotationError, match="annotators_known=False"):
        AnnotationTable.from_lists(
            {"w": [["a"]], "votes": [["p"]]}, annotators="w", labels="votes", annotators_known=False
        )


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([[0.5, 0.5]], "0.5, which is not a number of votes"),
        ([[1, -1]], "-1.0"),
        ([["a", "b"]], "not a number"),
        ([1, 2], "two dimensions"),
        ([[10**9, 1]], "more than 1,000,000,000"),
    ],
)
def test_counts_are_checked(counts, says):
    with pytest.raises(AnnotationError, match=says):
        AnnotationTable.from_counts(counts)


# -- files of counts ------------------------------------------------------------------------------

HEADERS = {
    "prefixed": [f"count_{name}" for name in NAMES],
    "n": [f"n_{name}" for name in NAMES],
    "suffixed": [f"{name}_votes" for name in NAMES],
}


@pytest.mark.parametrize("suffix", [".csv", ".xlsx", ".parquet"])
@pytest.mark.parametrize("header", HEADERS)
def test_counts_are_recognised_by_their_names(tmp_path, header, suffix):
    path = counts_file(tmp_path / f"c{suffix}", HEADERS[header], total=[14] * 10)
    export = read_export(path)
    assert (export.format, export.annotations.classes.tolist()) == ("counts", NAMES)
    assert any("'total'" in note for note in export.notes)
    table = read_annotations(path)
    assert fleiss_kappa(table) == pytest.approx(0.210, abs=5e-4)
    assert table.instances.tolist() == [f"i{k}" for k in range(10)]


def test_columns_named_by_class_are_asked_about(tmp_path):
    path = counts_file(tmp_path / "c.csv", NAMES)
    with pytest.raises(AnnotationError, match=r"format='counts'.*or format='wide'"):
        read_annotations(path)
    table = read_annotations(path, format="counts")
    assert table.vote_counts().tolist() == FLEISS
    ordered = read_annotations(path, format="counts", classes=NAMES[::-1])
    assert ordered.vote_counts()[:, ::-1].tolist() == FLEISS
    assert len(read_annotations(path, format="counts", skip="a").skips) == 20


def test_other_columns_beside_counts_are_asked_about(tmp_path):
    header = [f"n_{name}" for name in ("words", "chars")]
    rows = [[5, 30], [7, 41], [2, 9]]
    path = counts_file(tmp_path / "w.csv", header, rows, ann=[0, 1, 0], bob=[1, 1, 0])
    with pytest.raises(AnnotationError, match="could be something else"):
        read_annotations(path)
    texts = counts_file(tmp_path / "t.csv", HEADERS["n"], text=[f"text {k}" for k in range(10)])
    export = read_export(texts)
    assert export.items.columns["text"][3] == "text 3"


def test_no_counts(tmp_path):
    shares = counts_file(tmp_path / "s.csv", ["count_a", "count_b"], [[0.5, 0.5], [0.2, 0.8]])
    with pytest.raises(AnnotationError, match="at least two columns must hold counts"):
        read_annotations(shares, format="counts")
    path = counts_file(tmp_path / "c.csv", HEADERS["n"])
    with pytest.raises(AnnotationError, match="multilabel='split'"):
        read_annotations(path, multilabel="split", option="a")
    with pytest.raises(AnnotationError, match="so a store is not possible"):
        ingest(path, tmp_path / "s")
    long = write(
        tmp_path / "l.csv",
        [
            ["task", "worker", "label", "n_words", "n_chars"],
            ["a", "x", "p", 1, 2],
            ["a", "y", "n", 1, 2],
        ],
    )
    assert read_annotations(long).annotators_known


# -- files of lists -------------------------------------------------------------------------------

VOTES = {"a": ["yes", "no", "yes"], "b": ["no", "no"], "c": ["yes"]}
LISTS = {
    "v.jsonl": [{"id": k, "labels": v, "text": f"Text {k}."} for k, v in VOTES.items()],
    "v.csv": [["id", "labels"], *([k, json.dumps(v)] for k, v in VOTES.items())],
    "w.csv": [["id", "votes"], *([k, ";".join(v)] for k, v in VOTES.items())],
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_without_annotators(tmp_path, name):
    path = write(tmp_path / name, LISTS[name])
    export = read_export(path)
    assert export.format == "label-lists"
    table = read_annotations(path)
    assert not table.annotators_known
    assert table.vote_counts().tolist() == [[1, 2], [2, 0], [0, 1]]
    np.testing.assert_allclose(MajorityVote().fit(table).posterior_[0], [1 / 3, 2 / 3])


def test_lists_of_parquet(tmp_path):
    path = tmp_path / "v.parquet"
    pd.DataFrame({"id": list(VOTES), "labels": list(VOTES.values())}).to_parquet(path)
    assert read_annotations(path).vote_counts().tolist() == [[1, 2], [2, 0], [0, 1]]


def test_objects_in_a_list_are_no_labels(tmp_path):
    """Records of a tool that nobody knows, whose votes are not labels but objects."""
    vote = {"choice": "good"}
    path = write(tmp_path / "a.jsonl", [{"item": {"id": i}, "votes": [vote, vote]} for i in "ab"])
    with pytest.raises(AnnotationError, match=r"no format is recognised; it holds .*votes"):
        read_annotations(path)
    record = {
        "id": 1,
        "text": "t",
        "annotations": [{"label": 1, "user": 1}, {"label": 2, "user": 2}],
    }
    assert read_export(write(tmp_path / "b.jsonl", [record])).alternatives == ()


def test_places_and_sets_are_asked_about(tmp_path):
    rows = [
        ["id", "label1", "label2", "label3"],
        *([k, *v, *[""] * (3 - len(v))] for k, v in VOTES.items()),
    ]
    path = write(tmp_path / "p.csv", rows)
    with pytest.raises(AnnotationError, match=r"format='label-lists'.*format='wide'"):
        read_annotations(path)
    table = read_annotations(path, format="label-lists")
    assert table.vote_counts().tolist() == [[1, 2], [2, 0], [0, 1]]
    sets = write(tmp_path / "s.jsonl", [{"id": k, "labels": ["x", "y"]} for k in "abc"])
    with pytest.raises(AnnotationError, match="could be something else"):
        read_annotations(sets)
    twice = write(tmp_path / "t.jsonl", [{"id": "a", "labels": ["x", "x"]}] * 2)
    with pytest.raises(AnnotationError, match="task 'a' occurs again"):
        read_annotations(twice)


def test_counts_of_grades_and_spellings(tmp_path):
    rows = [[3, 0, 1], [0, 2, 2], [1, 3, 0]]
    path = counts_file(tmp_path / "g.csv", ["n_low", "n_high", "n_medium"], rows)
    table = read_annotations(path, scale="ordinal")
    assert table.classes.tolist() == ["low", "medium", "high"]
    assert (table.scale, table.class_order) == ("ordinal", "known")
    assert table.vote_counts()[0].tolist() == [3, 1, 0]
    spelt = counts_file(tmp_path / "s.csv", ["n_Yes", "n_yes", "n_no"], rows)
    merged = read_annotations(spelt, lowercase=True)
    assert merged.classes.tolist() == ["no", "yes"]
    assert merged.vote_counts().tolist() == [[1, 3], [2, 2], [0, 4]]


def test_classes_of_counts_find_columns_by_name_and_totals_are_no_class():
    frame = pd.DataFrame({"pos": [3, 0, 1], "neg": [0, 2, 2]}, index=list("xyz"))
    table = AnnotationTable.from_counts(frame, classes=["neg", "pos"])
    assert MajorityVote().fit(table).labels_.tolist() == ["pos", "neg", "neg"]
    with pytest.raises(AnnotationError, match="do not name the columns of counts"):
        AnnotationTable.from_counts(frame, classes=["neg", "other"])
    with pytest.raises(AnnotationError, match="'Total votes' is a total of the other columns"):
        AnnotationTable.from_counts(frame.assign(**{"Total votes": [3, 2, 3]}))


def test_a_workbook_of_counts_with_a_total_and_ids_that_are_called_something_else(tmp_path):
    """Excel keeps no empty cells at the ends of rows: they are no votes, and no broken rows."""
    book = openpyxl.Workbook()
    rows = [("Photo", "cat", "dog", "bird"), *((f"img{i}", i, 7 - i, None) for i in range(1, 6))]
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "photos.xlsx")
    table = read_annotations(tmp_path / "photos.xlsx", format="counts")
    assert table.instances.tolist() == [f"img{i}" for i in range(1, 6)]
    assert table.n_annotations == 35
    frame = pd.DataFrame(rows[1:], columns=rows[0]).fillna(0)
    frame["Total votes"] = 7
    frame.to_csv(tmp_path / "total.csv", index=False)
    found = read_annotations(tmp_path / "total.csv", format="counts")
    assert "Total votes" not in found.classes.tolist()
    assert found.n_annotations == 35


# -- numbers of people beside counts --------------------------------------------------------------


@pytest.mark.parametrize("name", ["n_workers", "n_annotators", "raters_count", "n_total"])
def test_a_number_of_people_is_no_class(tmp_path, name):
    rows = [(f"t{i}", i % 4, 3 - i % 4, 3) for i in range(8)]
    path = write(tmp_path / "counts.csv", [("id", "n_yes", "n_no", name), *rows])
    export = read_export(path)
    assert sorted(export.annotations.classes.tolist()) == ["no", "yes"]
    assert export.annotations.n_annotations == 24
    frame = pd.DataFrame([row[1:] for row in rows], columns=["yes", "no", name])
    with pytest.raises(AnnotationError, match=rf"column '{name}' is a total.*drop"):
        AnnotationTable.from_counts(frame)


def test_people_who_did_not_vote_are_said_and_a_single_class_is_refused(tmp_path):
    rows = [(f"t{i}", 1, i % 2, 3) for i in range(8)]
    path = write(tmp_path / "counts.csv", [("id", "n_yes", "n_no", "n_workers"), *rows])
    export = read_export(path)
    assert export.annotations.n_annotations == 12
    assert any("12 of them are in no class" in note for note in export.notes)
    path = write(
        tmp_path / "one.csv", [("id", "n_yes", "n_workers"), *((r[0], *r[2:]) for r in rows)]
    )
    with pytest.raises(AnnotationError, match=r"only the column 'n_yes' .*n_workers - n_yes"):
        read_export(path)
    users = write(tmp_path / "u.csv", [("id", "n_user", "n_bot"), *((r[0], r[2], 1) for r in rows)])
    assert sorted(read_annotations(users).classes.tolist()) == ["bot", "user"]
