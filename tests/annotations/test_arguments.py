"""Whatever is given in place of a table is refused with what to give instead."""

import numpy as np
import pandas as pd
import pytest

from manyhands import AnnotationTable, DawidSkene, MajorityVote, agreement
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, write_annotations, write_labels
from manyhands.report import render_report, summarize, write_report

DRAW = np.random.default_rng(0)
LONG = pd.DataFrame(
    {
        "Satz": np.repeat([f"s{i}" for i in range(20)], 3),
        "Person": ["ann", "bob", "cat"] * 20,
        "Urteil": DRAW.choice(["x", "y"], 60),
    }
)
WIDE = pd.DataFrame(DRAW.choice(["x", "y"], (20, 3)), columns=["ann", "bob", "cat"])
MEASURES = (
    *("percent_agreement", "fleiss_kappa", "krippendorff_alpha", "gwet_ac1", "gwet_ac2"),
    *("cohen_kappa", "mean_cohen_kappa", "class_agreement", "annotator_agreement", "summary"),
)
CALLS = {
    **{name: getattr(agreement, name) for name in MEASURES},
    "jackknife": lambda table: agreement.jackknife(agreement.fleiss_kappa, table),
    "fit": lambda table: DawidSkene().fit(table),
    "summarize": summarize,
    "write_labels": lambda table: write_labels("labels.csv", table, WIDE),
    "write_annotations": lambda table: write_annotations("votes.csv", table),
}


@pytest.mark.parametrize("name", CALLS)
def test_frames_are_refused_with_the_call_that_reads_them(name):
    long = r"from_frame\(table, task='Satz', worker='Person', label='Urteil'\)"
    with pytest.raises(AnnotationError, match=f"table is a .*{long}"):
        CALLS[name](LONG)
    with pytest.raises(AnnotationError, match=r"table is a .*AnnotationTable.from_matrix\(table\)"):
        CALLS[name](WIDE)
    with pytest.raises(AnnotationError, match=r"read_annotations\('votes.csv'\)"):
        CALLS[name]("votes.csv")


def test_write_labels_names_what_is_missing_or_swapped():
    model = MajorityVote().fit(table := AnnotationTable.from_matrix(WIDE))
    with pytest.raises(AnnotationError, match=r"posterior is missing; give .*posterior_"):
        write_labels("labels.csv", table)
    with pytest.raises(AnnotationError, match="path is a AnnotationTable, not the name of a file"):
        write_labels(table, "labels.csv", model.posterior_)
    with pytest.raises(AnnotationError, match=r"table is a MajorityVote.*it was fitted on"):
        write_labels("labels.csv", model)
    with pytest.raises(AnnotationError, match=r"table is a ndarray.*from_matrix"):
        write_labels("labels.csv", model.labels_, model.posterior_)


def test_reports_are_of_summaries(tmp_path):
    with pytest.raises(ValueError, match=r"summary is a DataFrame; give what summarize\(table\)"):
        render_report(LONG)
    with pytest.raises(ValueError, match="summary is a DataFrame"):
        write_report(LONG, tmp_path / "report.html")


def test_lists_and_repeated_names_are_no_frames():
    for read in (AnnotationTable.from_lists, AnnotationTable.from_frame):
        with pytest.raises(AnnotationError, match=r"df is a list.*from_lists\({'annotations': df}"):
            read([["x", "y"], ["x"]])
    with pytest.raises(AnnotationError, match=r"df is a list.*give pandas.DataFrame\(df\)$"):
        AnnotationTable.from_frame([{"task": 1}])
    twice = pd.DataFrame([["t", "a", "x", "y"]], columns=["task", "worker", "label", "label"])
    with pytest.raises(
        AnnotationError, match="df has several columns called 'label'; give every column"
    ):
        AnnotationTable.from_frame(twice)
    lists = pd.DataFrame([[["a"], ["x"], ["y"]]], columns=["annotators", *["annotations"] * 2])
    with pytest.raises(AnnotationError, match="df has several columns called 'annotations'"):
        AnnotationTable.from_lists(lists)
    with pytest.raises(AnnotationError, match=r"A must have two dimensions.*reshape"):
        AnnotationTable.from_matrix(LONG.Urteil)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (["x", "y"], r"mapping is a list; give a dict .*mapping={'ja': 'yes'}"),
        (str.upper, "mapping is a method_descriptor; give a dict"),
        ({"x": None}, "maps 'x' to nothing.*abstain='x' or skip='x'"),
        ({"x": float("nan")}, "maps 'x' to nothing"),
        ({"x": " "}, "maps 'x' to nothing"),
    ],
)
def test_spellings_are_a_dict_of_classes(tmp_path, mapping, message):
    LONG.to_csv(tmp_path / "votes.csv", index=False)
    names = {"task": "Satz", "worker": "Person", "label": "Urteil"}
    with pytest.raises(AnnotationError, match=message):
        read_annotations(tmp_path / "votes.csv", **names, mapping=mapping)
    table = read_annotations(tmp_path / "votes.csv", **names, abstain="x")
    assert len(table.abstentions) == int((LONG.Urteil == "x").sum())


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("name", ["label", "class", "target", "gold"])
def test_a_column_beside_the_annotators_is_none_of_them_without_a_word(name, index):
    frame = WIDE.assign(**{name: DRAW.choice(["x", "y"], 20)})
    frame = frame.rename(columns={"ann": "ann1", "bob": "ann2", "cat": "ann3"}) if index else frame
    if name in ("target", "gold"):
        with pytest.warns(UserWarning, match=f"'{name}': it holds gold labels"):
            table = AnnotationTable.from_matrix(frame)
    else:
        with pytest.raises(AnnotationError, match=rf"'{name}' could be annotators.*annotators="):
            AnnotationTable.from_matrix(frame)
        table = AnnotationTable.from_matrix(frame, annotators=list(frame.columns[:3]))
    assert table.annotators.tolist() == frame.columns[:3].tolist()
    only = AnnotationTable.from_matrix(frame[[name]].rename(columns={name: "label"}))
    assert only.annotators.tolist() == ["label"]


def test_minus_one_beside_gaps_is_said():
    matrix = np.array([[0, 1, np.nan], [1, -1, 0], [0, 0, 1]])
    with pytest.warns(UserWarning, match=r"A holds -1 in 1 cells beside 1 empty .*abstain=-1"):
        assert AnnotationTable.from_matrix(matrix).n_annotations == 7
    assert len(AnnotationTable.from_matrix(matrix, abstain=-1).abstentions) == 1
    assert AnnotationTable.from_matrix(matrix, classes=[-1, 0, 1]).n_annotations == 8


def test_an_index_is_to_become_columns():
    names = {"task": "Satz", "worker": "Person", "label": "Urteil"}
    with pytest.raises(AnnotationError, match=r"'Satz' is the index of df.*df.reset_index\(\)"):
        AnnotationTable.from_frame(LONG.set_index("Satz"), **names)
    with pytest.raises(AnnotationError, match=r"df is a Series.*give df.reset_index\(\)"):
        AnnotationTable.from_frame(LONG.set_index(["Satz", "Person"]).Urteil, **names)
    with pytest.raises(AnnotationError, match=r"label='label'.*Most likely: label='Urteil'"):
        AnnotationTable.from_frame(LONG, task="Satz", worker="Person")
    dates = LONG.assign(Urteil=pd.Timestamp("2026-01-01"))
    with pytest.raises(AnnotationError, match=r"type datetime64.*\.astype\(str\)"):
        AnnotationTable.from_frame(dates, **names)
