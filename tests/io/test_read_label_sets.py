"""`read_label_sets`: the same sets from every layout and every tool with check boxes."""

import json

import numpy as np
import pandas as pd
import pytest

from manyhands.agreement import krippendorff_alpha
from manyhands.exceptions import AnnotationError
from manyhands.io import read_gold_sets, read_label_sets, write_annotations
from tests.io.exports.conftest import made, studio, write

# Of two items by three people; bob ticks nothing of item 2.
SAID = [
    (1, "ann", ["joy", "awe"]),
    (1, "bob", ["awe", "joy"]),
    (1, "cem", ["joy"]),
    (2, "ann", ["fear", "awe"]),
    (2, "bob", []),
    (2, "cem", ["fear"]),
]
OPTIONS = ["awe", "fear", "joy"]


def long(join, nothing=""):
    rows = [(t, w, join(names) if names else nothing) for t, w, names in SAID]
    return [["task", "worker", "labels"], *map(list, rows)]


def by_task():
    return {task: [(w, names) for t, w, names in SAID if t == task] for task in (1, 2)}


def rows_of_ticks(path):
    rows = [[t, w, name] for t, w, names in SAID for name in names or ["NONE"]]
    return write(path, [["task", "worker", "labels"], *rows])


def columns(path, *marks):
    rows = [[t, w, *(marks[o in names] for o in OPTIONS)] for t, w, names in SAID]
    return write(path, [["task", "worker", *OPTIONS], *rows])


def label_studio(path):
    tasks = [
        studio(*(made(w, *names) for w, names in said), number=task)
        for task, said in by_task().items()
    ]
    return write(path, tasks)


def argilla_nested(path):
    records = []
    for task, said in by_task().items():
        answers = [{"value": n, "user_id": w, "status": "submitted"} for w, n in said]
        records.append(
            {"id": task, "_server_id": "s", "fields": {"text": "t"}, "responses": {"q": answers}}
        )
    return write(path, records)


def argilla_flat(path):
    records = []
    for task, said in by_task().items():
        record = {"id": task, "_server_id": "s", "text": "t"}
        record["q.responses"] = [names for _, names in said]
        record["q.responses.users"] = [w for w, _ in said]
        record["q.responses.status"] = ["submitted"] * len(said)
        records.append(record)
    return write(path, records)


def prodigy(path):
    options = [{"id": name, "text": name} for name in OPTIONS]
    records = [
        {"text": "t", "_input_hash": t, "_task_hash": t, "options": options, "accept": names,
         "answer": "accept", "_annotator_id": w, "_timestamp": 1700000000}
        for t, w, names in SAID
    ]  # fmt: skip
    return write(path, records)


def doccano(folder):
    """Write one file per annotator, as doccano exports them."""
    paths = []
    for who in ("ann", "bob", "cem"):
        records = [{"id": t, "text": "t", "label": names} for t, w, names in SAID if w == who]
        paths.append(write(folder / f"{who}.jsonl", records))
    return paths


def mturk(path):
    boxes = [f"Answer.mood.{name}" for name in OPTIONS]
    rows = [
        [t, f"a{i}", w, "Approved", *(str(o in names).lower() for o in OPTIONS)]
        for i, (t, w, names) in enumerate(SAID)
    ]
    return write(path, [["HITId", "AssignmentId", "WorkerId", "AssignmentStatus", *boxes], *rows])


EMPTY = {"none": "empty"}
LAYOUTS = {
    "cells": (lambda at: write(at / "a.csv", long("; ".join)), EMPTY),
    "cells with a word": (lambda at: write(at / "a.csv", long(";".join, "NONE")), {"none": "NONE"}),
    "cells with a bar": (
        lambda at: write(at / "a.csv", long("|".join)),
        {"multilabel": "|", **EMPTY},
    ),
    "cells in another order": (
        lambda at: write(at / "a.csv", long(lambda names: ";".join([*names[::-1], names[0]]))),
        EMPTY,
    ),
    "JSON": (lambda at: write(at / "a.csv", long(json.dumps, "[]")), {}),
    "lists": (
        lambda at: write(
            at / "a.jsonl", [dict(zip(("task", "worker", "labels"), r, strict=True)) for r in SAID]
        ),
        {},
    ),
    "rows": (lambda at: rows_of_ticks(at / "a.csv"), {"none": "NONE"}),
    "0 and 1": (lambda at: columns(at / "a.csv", 0, 1), {"label": OPTIONS}),
    "true and false": (lambda at: columns(at / "a.csv", "false", "true"), {"label": OPTIONS}),
    "Label Studio": (lambda at: label_studio(at / "p.json"), EMPTY),
    "Argilla": (lambda at: argilla_nested(at / "p.json"), EMPTY),
    "Argilla, flat": (lambda at: argilla_flat(at / "p.jsonl"), EMPTY),
    "Prodigy": (lambda at: prodigy(at / "p.jsonl"), EMPTY),
    "doccano": (lambda at: doccano(at), {"annotator_from": "file", **EMPTY}),
    "MTurk": (lambda at: mturk(at / "p.csv"), EMPTY),
}


def answers_of(table):
    """{(task, worker): set of options}."""
    rows = table.ticks.toarray()
    return {
        (str(table.instances[i]), str(table.annotators[j])): set(table.options[row].tolist())
        for i, j, row in zip(table.instance, table.annotator, rows, strict=True)
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_sets(tmp_path, layout):
    make, options = LAYOUTS[layout]
    table = read_label_sets(make(tmp_path), **options)
    assert table.options.tolist() == OPTIONS
    assert answers_of(table) == {(str(t), w): set(names) for t, w, names in SAID}


@pytest.mark.filterwarnings("ignore:.*no answer was given")
@pytest.mark.parametrize(
    "layout", ["cells", "Label Studio", "Argilla", "Argilla, flat", "Prodigy", "doccano"]
)
def test_an_empty_answer_is_missing_unless_it_is_said_to_tick_nothing(tmp_path, layout):
    make, options = LAYOUTS[layout]
    given = {name: value for name, value in options.items() if name != "none"}
    with pytest.warns(UserWarning, match="have no tick. They are left out|are empty in"):
        table = read_label_sets(make(tmp_path), **given)
    assert answers_of(table) == {(str(t), w): set(n) for t, w, n in SAID if n}


def test_what_becomes_of_forms_without_a_tick_is_told(tmp_path):
    said = {**by_task(), 3: [("ann", []), ("bob", [])]}
    tasks = [studio(*(made(w, *names) for w, names in given), number=task)
             for task, given in said.items()]  # fmt: skip
    with (
        pytest.warns(UserWarning, match="no answer was given"),
        pytest.warns(UserWarning, match=r"3 of 8 answers have no tick\. They are left out, .*"
                     r"Without them, 1 of 3 items have no answer\. .*by none='empty'"),
    ):  # fmt: skip
        read_label_sets(write(tmp_path / "p.json", tasks))
    with pytest.warns(
        UserWarning, match=r"1 of 6 answers have no tick\. They count as abst.*by none='empty'"
    ):
        table = read_label_sets(mturk(tmp_path / "m.csv"))
    assert len(table.abstentions) == 1


def test_tables_of_several_files_are_one(tmp_path):
    header, *rows = long(";".join)
    first = write(tmp_path / "a.csv", [header, *rows[:3]])
    more = write(tmp_path / "b.csv", [header, *rows[3:]])
    table = read_label_sets([first, more], none="empty")
    assert answers_of(table) == {(str(t), w): set(names) for t, w, names in SAID}
    assert table.options.tolist() == OPTIONS
    write(tmp_path / "c.csv", [header, *rows[2:3], [1, "ann", "fear"]])
    refusal([first, tmp_path / "c.csv"], "duplicates=")
    last = read_label_sets([first, tmp_path / "c.csv"], duplicates="last")
    assert answers_of(last)["1", "ann"] == {"fear"}


def test_values_that_mean_nothing_are_looked_for_in_all_files(tmp_path):
    header, *rows = long(";".join, "NONE")
    paths = [write(tmp_path / "a.csv", [header, *rows[:3]])]
    paths.append(write(tmp_path / "b.csv", [header, *rows[3:]]))
    assert read_label_sets(paths, none="NONE").options.tolist() == OPTIONS
    with pytest.warns(UserWarning, match=r"did you mean none='NONE'\?") as told:
        read_label_sets(paths, none="none")
    with pytest.warns(UserWarning, match=r"'NONE' counts .* name all options in classes=") as hint:
        read_label_sets(paths)
    assert (len(told), len(hint)) == (1, 1)
    assert read_label_sets(paths, classes=[*OPTIONS, "NONE"]).n_options == 4


def test_values_that_mean_nothing_are_looked_for_in_exports(tmp_path):
    tasks = [
        studio(*(made(w, *(names or ["None of these"])) for w, names in said), number=task)
        for task, said in by_task().items()
    ]
    path = write(tmp_path / "p.json", tasks)
    assert read_label_sets(path, none="None of these").options.tolist() == OPTIONS
    with pytest.warns(UserWarning, match=r"did you mean none='None of these'\?") as told:
        read_label_sets(path, none="none of these")
    with pytest.warns(UserWarning, match="'None of these' counts as an option") as hint:
        read_label_sets(path)
    assert (len(told), len(hint)) == (1, 1)
    refusal(path, "is among the options, and none=", none="joy", classes=[*OPTIONS])


def test_families_of_an_export_are_named_one_by_one(tmp_path):
    path = label_studio(tmp_path / "p.json")
    refusal(path, "group= names a column, which only a long table has", group="team", **EMPTY)
    table = read_label_sets(path, group={"ann": "x", "bob": "x"}, **EMPTY)
    assert table.n_annotators == 3


def refusal(path, said, **options):
    with pytest.raises(AnnotationError, match=said):
        read_label_sets(path, **options)


@pytest.mark.parametrize("layout", ["cells", "Label Studio", "Argilla", "MTurk", "doccano"])
def test_an_option_outside_the_declared_list(tmp_path, layout):
    make, options = LAYOUTS[layout]
    refusal(make(tmp_path), "'fear'", classes=["joy", "awe"], **options)
    table = read_label_sets(make(tmp_path), classes=["joy", "rage", "awe", "fear"], **options)
    assert table.options.tolist() == ["joy", "rage", "awe", "fear"]
    assert table.ticks_per_option()[1] == 0


def test_nothing_beside_other_options(tmp_path):
    path = write(tmp_path / "a.csv", [["task", "worker", "labels"], [1, "ann", "NONE;joy"],
                                      [1, "bob", "joy"]])  # fmt: skip
    refusal(path, "'NONE;joy' in row 2.*beside other labels", none="NONE")
    tasks = [studio(made("ann", "NONE", "joy"), made("bob", "joy"), number=7)]
    refusal(write(tmp_path / "p.json", tasks), "'NONE'.*beside other labels.*'7'|7", none="NONE")
    rows = [["task", "worker", "labels"], [1, "ann", "NONE"], [1, "ann", "joy"], [1, "bob", "joy"]]
    refusal(write(tmp_path / "b.csv", rows), "says that nothing was ticked", none="NONE")


def test_a_separator_within_a_label(tmp_path):
    path = write(tmp_path / "a.csv", [["task", "worker", "labels"], [1, "ann", "joy; calm"],
                                      [1, "bob", "fear"]])  # fmt: skip
    refusal(path, "'joy; calm'", classes=["joy; calm", "fear"])
    table = read_label_sets(path, "|", classes=["joy; calm", "fear"])
    assert answers_of(table)["1", "ann"] == {"joy; calm"}


def test_too_many_options(tmp_path):
    rows = [[i, "ann", f"free text {i}"] for i in range(1_001)]
    refusal(write(tmp_path / "a.csv", [["task", "worker", "labels"], *rows]), "1,000")
    tasks = [studio(made("ann", f"free text {i}"), number=i) for i in range(1_001)]
    refusal(write(tmp_path / "p.json", tasks), "1,000")


def test_columns_with_other_values(tmp_path):
    path = columns(tmp_path / "a.csv", 0, 2)
    refusal(path, "'?2'?", label=OPTIONS)
    refusal(path, "'rage'", label=["awe", "rage"])


GOLD = {
    "sets": ([["task", "labels"], [1, "joy"], [2, "awe; fear"]], [[0, 0, 1], [1, 1, 0]]),
    "cells": (
        [["task", "option", "gold"], [1, "joy", 1], [2, "fear", 0], [2, "awe", ""]],
        [[-1, -1, 1], [-1, 0, -1]],
    ),
    "a gap": ([["task", "labels"], [1, "joy"], [2, ""]], [[0, 0, 1], [-1, -1, -1]]),
}


@pytest.mark.filterwarnings("default:1 of 2 rows of gold")
@pytest.mark.parametrize("layout", GOLD)
def test_gold(tmp_path, layout):
    table = read_label_sets(write(tmp_path / "a.csv", long(";".join)), none="empty")
    rows, expected = GOLD[layout]
    found = read_gold_sets(write(tmp_path / "gold.csv", rows), table)
    np.testing.assert_array_equal(found, expected)


def test_gold_that_says_that_nothing_applies(tmp_path):
    table = read_label_sets(write(tmp_path / "a.csv", long(";".join)), none="empty")
    path = write(tmp_path / "gold.csv", [["task", "labels"], [1, "joy"], [2, ""]])
    np.testing.assert_array_equal(read_gold_sets(path, table, none="empty")[1], [0, 0, 0])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([["task", "labels"], [1, "rage"]], r"'rage' \(task '1'\), which is not among 'awe'"),
        ([["task", "option", "gold"], [1, "rage", 1]], "'rage'"),
        ([["task", "option", "gold"], [1, "joy", 7]], "write 1 where it applies"),
        ([["task", "labels"], [9, "joy"]], "use the same ids"),
        ([["task", "labels"], [1, "joy;fear"], [1, "awe"]], "'?1'?"),
        ([["item", "tags"], [1, "joy"]], "columns"),
    ],
)
def test_gold_that_cannot_be_read(tmp_path, rows, said):
    table = read_label_sets(write(tmp_path / "a.csv", long(";".join)), none="empty")
    with pytest.raises(AnnotationError, match=said):
        read_gold_sets(write(tmp_path / "gold.csv", rows), table)


@pytest.mark.data
@pytest.mark.parametrize("name", ["ml_semi.csv", "ml_rows.csv"])
def test_the_case_of_cells_in_another_order(data_home, name):
    table = read_label_sets(data_home.parent / "cases" / "multilabel-cells-order" / name)
    assert table.options.tolist() == ["billing", "policy", "safety"]
    assert krippendorff_alpha(table, distance="nominal") == pytest.approx(0.231, abs=5e-4)


@pytest.mark.data
def test_check_boxes_of_a_real_export(data_home):
    folder = data_home.parent / "exports"
    path = folder / "appen_figure_eight" / "relex-multiple-choice.csv"
    with pytest.warns(UserWarning, match=r"'NONE' counts as an option \(18 answers\)"):
        table = read_label_sets(path, question="relations")
    assert (table.n_annotations, table.n_instances, table.n_annotators) == (150, 10, 67)
    assert table.ticks_per_answer().min() == 1
    frame = pd.read_csv(path)
    assert table.n_instances == frame["_unit_id"].nunique()


@pytest.mark.parametrize(
    ("make", "name"),
    [(label_studio, "p.json"), (argilla_nested, "p.json"), (argilla_flat, "p.jsonl")],
)
def test_a_tick_whose_name_holds_the_separator_is_one_label(tmp_path, monkeypatch, make, name):
    one, both = ["support; refunds"], ["refunds", "support"]
    said = [(t, w, each) for t in (1, 2) for w, each in (("ann", one), ("bob", both), ("cem", one))]
    monkeypatch.setattr(f"{__name__}.SAID", said)
    table = read_label_sets(make(tmp_path / name))
    assert table.options.tolist() == ["refunds", "support", "support; refunds"]
    assert answers_of(table) == {(str(t), w): set(names) for t, w, names in said}
    write_annotations(tmp_path / "back.json", table, to="label-studio")
    assert answers_of(read_label_sets(tmp_path / "back.json")) == answers_of(table)


def test_only_the_answers_that_are_text_are_cut(tmp_path):
    rows = [{"id": 1, "annotator": "ann", "q": {"choices": ["a; b"]}, "text": "t"}]
    rows += [{"id": 1, "annotator": "bob", "q": "c; d", "text": "t"}]
    rows += [
        {"id": 2, "annotator": w, "q": q, "text": "u"} for w, q in (("ann", "c"), ("bob", "d"))
    ]
    rows = [row | {"annotation_id": i, "lead_time": 1.0} for i, row in enumerate(rows)]
    table = read_label_sets(
        write(tmp_path / "p.json", rows), format="label-studio-min", question="q"
    )
    assert table.options.tolist() == ["a; b", "c", "d"]
