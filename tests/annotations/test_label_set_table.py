"""Tables whose answers are sets of labels."""

import copy
import pickle
import re
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array

from manyhands import AnnotationTable, LabelSetTable
from manyhands.annotations.label_set_frames import number_sets
from manyhands.exceptions import AnnotationError

ROWS = [
    (1, "a", ["safety", "policy"]),
    (1, "b", ["safety", "billing"]),
    (1, "c", ["policy", "safety"]),
    (2, "a", ["policy"]),
    (2, "b", []),
    (10, "c", ["safety"]),
]
OPTIONS = ["billing", "policy", "safety"]
TICKS = [[0, 1, 1], [1, 0, 1], [0, 1, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1]]


def frame(write, rows=ROWS):
    """Frame of answers, each set written by a function."""
    cells = [write(labels) for _, _, labels in rows]
    return pd.DataFrame(
        {"task": [t for t, _, _ in rows], "worker": [w for _, w, _ in rows], "labels": cells}
    )


def table(**options):
    """The answers as a table."""
    return LabelSetTable.from_frame(frame(list), **options)


WAYS = {
    "text": lambda labels: ";".join(labels),
    "blanks, repeats and a separator at the end": lambda labels: " ; ".join([*labels, *labels, ""]),
    "lists": list,
    "tuples": tuple,
    "sets": set,
    "JSON": lambda labels: str(labels).replace("'", '"'),
    "Python's lists as text": str,
}


@pytest.mark.parametrize("way", WAYS)
def test_answers_are_the_same_however_sets_are_written(way):
    found = LabelSetTable.from_frame(frame(WAYS[way]), none="empty")
    assert found.options.tolist() == OPTIONS
    assert found.instances.tolist() == [1, 2, 10]
    np.testing.assert_array_equal(found.ticks.toarray(), TICKS)
    assert found.equals(table())


def test_rows_of_single_ticks_are_answers():
    rows = [(task, who, label) for task, who, labels in ROWS for label in labels or [None]]
    ticks = pd.DataFrame(rows, columns=["task", "worker", "labels"])
    assert LabelSetTable.from_frame(ticks, none="empty").equals(table())
    shuffled = LabelSetTable.from_frame(ticks.sample(frac=1, random_state=0), none="empty")
    assert sorted(map(tuple, shuffled.ticks.toarray())) == sorted(map(tuple, TICKS))
    twice = pd.concat([ticks, ticks[:3]], ignore_index=True)
    assert LabelSetTable.from_frame(twice, none="empty").equals(table())


def test_a_column_of_0_and_1_for_each_option():
    wide = frame(lambda labels: None).drop(columns="labels")
    for name, column in zip(OPTIONS, np.transpose(TICKS), strict=True):
        wide[name] = column
    found = LabelSetTable.from_frame(wide, labels=OPTIONS)
    assert found.equals(table())
    words = wide.replace({0: "no", 1: "Yes"}).astype({"task": str})
    assert LabelSetTable.from_frame(words, labels=OPTIONS).ticks.toarray().tolist() == TICKS


def test_a_column_of_an_option_says_yes_or_no():
    rows = {"task": [1, 2], "worker": ["a", "a"], "x": [1, None], "y": [0, 1]}
    with pytest.raises(AnnotationError, match="'x' is empty in row 1, although other options"):
        LabelSetTable.from_frame(pd.DataFrame(rows), labels=["x", "y"])
    with pytest.raises(AnnotationError, match="'x' holds 'maybe' in row 1, which does not say"):
        LabelSetTable.from_frame(pd.DataFrame(rows | {"x": [1, "maybe"]}), labels=["x", "y"])
    with pytest.raises(AnnotationError, match="'z' is not a column"):
        LabelSetTable.from_frame(pd.DataFrame(rows), labels=["x", "z"])
    with pytest.warns(UserWarning, match="1 of 2 rows are empty"):
        found = LabelSetTable.from_frame(
            pd.DataFrame(rows | {"x": [1, None], "y": [1, None]}), labels=["x", "y"]
        )
    assert (found.n_annotations, found.n_instances) == (1, 2)


def test_an_empty_cell_is_missing_unless_it_is_said_to_mean_nothing():
    df = frame(lambda labels: ";".join(labels) or None)
    with pytest.warns(UserWarning, match="1 of 6 rows are empty.*none='empty'"):
        found = LabelSetTable.from_frame(df)
    assert (found.n_annotations, found.n_annotators) == (5, 3)
    assert LabelSetTable.from_frame(df, none="empty").equals(table())


def test_a_value_that_means_nothing_is_no_option():
    named = frame(lambda labels: ";".join(labels) or "NONE")
    assert LabelSetTable.from_frame(named, none="NONE").equals(table())
    with pytest.warns(UserWarning, match=r"'NONE' counts as an option \(1 answer\).*none='NONE'"):
        assert "NONE" in LabelSetTable.from_frame(named).options
    beside = frame(lambda labels: ";".join(labels + ["NONE"] * ("billing" in labels)))
    with pytest.raises(AnnotationError, match=r"'safety;billing;NONE' in row 1: 'NONE'.*none"):
        LabelSetTable.from_frame(beside, none=["NONE", "empty"])


def warnings_of(df, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        LabelSetTable.from_frame(df, **options)
    return [str(each.message) for each in found]


@pytest.mark.parametrize("written", ["None of the above", "NONE", "none.", "(n/a)", "N/A"])
def test_an_option_that_says_that_nothing_applies_is_hinted_at(written):
    named = frame(lambda labels: ";".join(labels) or written)
    (said,) = warnings_of(named)
    assert f"{written!r} counts as an option (1 answer)" in said
    assert f"pass none={written!r}" in said
    assert "name all options in options=" in said
    assert warnings_of(named, none=written) == []
    assert warnings_of(named, options=[*OPTIONS, written]) == []


@pytest.mark.parametrize("given", ["none of the above", "None of  the Above", "None of the above "])
def test_a_value_that_occurs_nowhere_is_told_and_its_like_is_named(given):
    named = frame(lambda labels: ";".join(labels) or "None of the above")
    (said,) = warnings_of(named, none=given)
    assert f"none={given!r} is to say that nothing was ticked, but no answer holds it" in said
    assert "did you mean none='None of the above'?" in said
    blank = frame(";".join)
    (said,) = warnings_of(blank, none=["empty", "nichts"])
    assert said.startswith("none='nichts' is")
    assert "did you mean" not in said


def test_a_value_that_means_nothing_and_is_an_option_is_refused():
    with pytest.raises(AnnotationError, match="'NONE' is among the options, and none='NONE'"):
        table(options=[*OPTIONS, "NONE"], none="NONE")


def test_a_column_that_says_that_nothing_applies_is_no_option():
    ticks = {"joy": [1, 0, 0, None], "fear": [1, 0, 0, None], "none": [0, 1, 0, None]}
    df = pd.DataFrame({"task": [1, 2, 3, 4], "worker": "a", **ticks})
    columns = list(ticks)
    with pytest.warns(UserWarning, match="are empty in"):
        found = LabelSetTable.from_frame(df, labels=columns, none="none")
    assert (found.options.tolist(), found.ticks.toarray().tolist()) == (
        ["joy", "fear"],
        [[1, 1], [0, 0], [0, 0]],
    )
    assert warnings_of(df, labels=columns, none=["none", "empty"]) == []
    assert LabelSetTable.from_frame(df, labels=columns, none=["none", "empty"]).n_annotations == 4
    hints = warnings_of(df, labels=columns)
    assert any("'none' counts as an option" in said and "options=" not in said for said in hints)
    df.loc[0, "none"] = 1
    with pytest.raises(AnnotationError, match=r"'none' is ticked beside .* in row 0, but none="):
        LabelSetTable.from_frame(df, labels=columns, none="none")


def test_abstentions_are_passes():
    unsure = frame(lambda labels: ";".join(labels) or "unsure")
    found = LabelSetTable.from_frame(unsure, abstain="unsure")
    assert found.abstentions.tolist() == [[1, 1]]
    assert found.option("policy").abstentions.tolist() == [[1, 1]]
    assert found.n_annotations == 5
    assert repr(found).startswith("LabelSetTable(5 answers, 1 abstentions: 3 instances")
    again = LabelSetTable.from_frame(found.to_frame(), passes="pass", none="empty")
    assert again.equals(found)
    both = pd.DataFrame({"task": [1], "worker": ["a"], "labels": ["x"], "pass": ["skip"]})
    with pytest.raises(AnnotationError, match=r"both labels .* in row 0"):
        LabelSetTable.from_frame(both, passes="pass")


def test_options_may_be_declared():
    found = table(options=["safety", "policy", "billing", "refund"])
    np.testing.assert_array_equal(found.ticks.toarray()[:, ::-1][:, 1:], TICKS)
    assert found.ticks_per_option().tolist() == [4, 3, 1, 0]
    with pytest.raises(AnnotationError, match=r"'billing'.* row 1, which is not among the options"):
        table(options=["safety", "policy"])
    with pytest.raises(AnnotationError, match="'New York; NY', which contains the separator ';'"):
        LabelSetTable.from_frame(frame(";".join), options=["New York; NY", "safety"])
    labels = [["New York; NY"], ["Boston"]]
    rows = [(i, "a", cell) for i, cell in enumerate(labels)]
    cities = LabelSetTable.from_frame(frame(list, rows), options=["New York; NY", "Boston"])
    assert cities.ticks.toarray().tolist() == [[1, 0], [0, 1]]
    with pytest.raises(AnnotationError, match="contains the separator"):
        cities.to_frame()


@pytest.mark.parametrize("mark", [";", "|", ",", "\n"])
def test_a_separator_that_cuts_nothing_is_refused_where_another_one_does(mark):
    texts = frame(mark.join)
    other = "#" if mark != "," else ";"
    says = re.escape(
        f"with {mark!r} between them, and no cell holds the separator {other!r}. Give "
    )
    with pytest.raises(AnnotationError, match=f"{says}separator={re.escape(repr(mark))}"):
        LabelSetTable.from_frame(texts, separator=other, none="empty")
    assert LabelSetTable.from_frame(texts, separator=mark, none="empty").equals(table())
    with pytest.raises(
        AnnotationError, match=f"between them: give separator={re.escape(repr(mark))}"
    ):
        LabelSetTable.from_frame(texts, separator=other, options=["safety", "policy", "billing"])


def test_names_of_options_may_hold_another_mark():
    rows = [(i, who, text) for i, text in enumerate(["a/b", "b", "a/b;c", "c"]) for who in "xy"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = LabelSetTable.from_frame(frame(str, rows))
    assert found.options.tolist() == ["a/b", "b", "c"]
    rows = [(i, who, text) for i, text in enumerate(["a|b", "b|a", "a", "b"]) for who in "xy"]
    named = LabelSetTable.from_frame(frame(str, rows), options=["a|b", "b|a", "a", "b"])
    assert named.ticks_per_answer().tolist() == [1] * 8
    both = [*rows, (9, "x", "a;b")]
    with pytest.warns(UserWarning, match=r"holds 'a\|b' in rows 0 and 1, .*the separator is ';'"):
        assert LabelSetTable.from_frame(frame(str, both)).n_options == 4


def test_free_text_is_no_list_to_tick():
    many = pd.DataFrame(
        {"task": range(1001), "worker": "a", "labels": [f"t{i}" for i in range(1001)]}
    )
    with pytest.raises(AnnotationError, match=r"1,001 different labels.*separator="):
        LabelSetTable.from_frame(many)
    assert LabelSetTable.from_frame(many[:1000]).n_options == 1000


def test_labels_that_differ_in_case_are_told():
    rows = [(1, "a", ["Joy"]), (2, "a", ["joy"])]
    with pytest.warns(UserWarning, match="options whose names differ only in case"):
        LabelSetTable.from_frame(frame(list, rows))


def test_repeated_answers_are_refused():
    twice = pd.concat([frame(";".join)] * 2)
    with pytest.raises(
        AnnotationError, match="instance 1 by annotator 'a', and cells hold several"
    ):
        LabelSetTable.from_frame(twice, none="empty")
    assert LabelSetTable.from_frame(twice, none="empty", duplicates="keep").n_annotations == 12
    last = LabelSetTable.from_frame(twice, none="empty", duplicates="last")
    assert last.equals(table())


def test_ticks_of_one_answer_have_one_weight():
    rows = {"task": [1, 1], "worker": ["a", "a"], "labels": ["x", "y"], "weight": [1.0, 2.0]}
    with pytest.raises(AnnotationError, match="rows 0 and 1 are ticks of one answer but differ"):
        LabelSetTable.from_frame(pd.DataFrame(rows), weight="weight")
    found = LabelSetTable.from_frame(pd.DataFrame(rows | {"weight": [2.0, 2.0]}), weight="weight")
    assert found.weight.tolist() == [2.0]


def test_columns_that_are_absent_are_named():
    with pytest.raises(AnnotationError, match="labels='label'"):
        LabelSetTable.from_frame(frame(list).rename(columns={"labels": "label"}))
    with pytest.raises(AnnotationError, match="worker='worker'"):
        LabelSetTable.from_frame(frame(list).rename(columns={"worker": "rater"}))
    with pytest.raises(AnnotationError, match="holds no labels"):
        LabelSetTable.from_frame(frame(lambda labels: ""), none="empty")
    with pytest.raises(AnnotationError, match="separator=''"):
        LabelSetTable.from_frame(frame(";".join), separator="")
    with pytest.raises(AnnotationError, match=r"none=\[3\]"):
        LabelSetTable.from_frame(frame(";".join), none=[3])


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("separator", [";", " | ", None])
def test_a_frame_is_read_back(backend, separator):
    found = table().with_groups({"a": "llm", "b": "llm"})
    written = found.to_frame(separator=separator, backend=backend)
    mark = (separator or ";").strip()
    again = LabelSetTable.from_frame(written, none="empty", separator=mark, group="group")
    assert again.equals(found)


def test_polars_lists_are_sets():
    rows = {"task": [1, 2], "worker": ["a", "b"], "labels": [["x", "y"], []]}
    assert LabelSetTable.from_frame(pl.DataFrame(rows)).ticks.toarray().tolist() == [[1, 1], [0, 0]]


def test_an_option_is_a_question():
    found = table()
    policy = found.option("policy")
    assert isinstance(policy, AnnotationTable)
    assert policy.classes.tolist() == ["no", "yes"]
    assert policy.label.tolist() == np.array(TICKS)[:, 1].tolist()
    assert list(found.tables) == OPTIONS
    assert found.tables["policy"].equals(policy)
    with pytest.raises(AnnotationError, match="option='refund' is not among"):
        found.option("refund")
    with pytest.raises(KeyError):
        found.tables["refund"]
    assert LabelSetTable.from_tables(found.tables).equals(found)
    shorter = dict(found.tables) | {"policy": policy.take([0, 1])}
    with pytest.raises(AnnotationError, match="holds other answers"):
        LabelSetTable.from_tables(shorter)


def test_joined_sets_are_classes_whatever_their_order():
    joined = table().joined()
    names = ["(none)", "billing + safety", "policy", "policy + safety", "safety"]
    assert joined.classes.tolist() == names
    assert joined.classes[joined.label].tolist()[:2] == ["policy + safety", "billing + safety"]
    rows = [(1, "a", ["x + y"]), (2, "a", ["x", "y"])]
    with pytest.raises(AnnotationError, match="rename the options"):
        LabelSetTable.from_frame(frame(list, rows)).joined()


def test_rows_options_and_annotators_are_selected():
    found = table()
    np.testing.assert_array_equal(found[[2, 0]].ticks.toarray(), [TICKS[5], *TICKS[:3]])
    assert found[[2, 0]].instances.tolist() == [10, 1]
    assert found.select(annotators=["b"]).ticks.toarray().tolist() == [TICKS[1], TICKS[4]]
    fewer = found.select(options=["safety", "billing"])
    assert fewer.ticks.toarray().tolist() == np.array(TICKS)[:, [2, 0]].tolist()
    assert len(fewer.joined().classes) == 3, "sets that have become equal are one"
    with pytest.raises(AnnotationError, match="'refund' is not among"):
        found.select(options=["refund"])
    assert found.take([0, 5]).n_ticks == 3


def test_answers_are_added():
    whole = table()
    first, second = whole.take([0, 1, 2]), whole.take([3, 4, 5]).select(options=OPTIONS[::-1])
    assert first.with_added(second).equals(whole)
    with pytest.raises(AnnotationError, match="are repeated"):
        whole.with_added(first)
    changed = LabelSetTable.from_frame(frame(list, [(1, "a", ["billing"])]), options=OPTIONS)
    last = whole.with_added(changed, duplicates="last")
    assert sorted(map(tuple, last.ticks.toarray().astype(int))) == sorted(
        [(1, 0, 0), *map(tuple, TICKS[1:])]
    )
    with pytest.raises(AnnotationError, match="'refund' is in one of the tables only"):
        whole.with_added(LabelSetTable.from_frame(frame(list, [(1, "z", ["refund"])])))


def test_from_arrays():
    instance, annotator = [0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 1, 2]
    found = LabelSetTable.from_arrays(instance, annotator, TICKS, options=OPTIONS)
    sparse = LabelSetTable.from_arrays(instance, annotator, csr_array(TICKS), options=OPTIONS)
    assert found.equals(sparse)
    np.testing.assert_array_equal(found.ticks.toarray(), TICKS)
    with pytest.raises(AnnotationError, match="ticks holds 2"):
        LabelSetTable.from_arrays([0], [0], [[2]])
    with pytest.raises(AnnotationError, match="one row of ticks per answer"):
        LabelSetTable.from_arrays([0, 1], [0, 0], [[1]])
    with pytest.raises(AnnotationError, match="3 names for 1 columns"):
        LabelSetTable.from_arrays([0], [0], [[1]], options=OPTIONS)


def test_it_is_immutable_and_survives_copies():
    found = table()
    for made in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), copy.copy(found)):
        assert made.equals(found)
        with pytest.raises(ValueError, match="read-only"):
            made.set_options[0] = 1
    with pytest.raises(AttributeError):
        found.options = []
    with pytest.raises(AnnotationError, match="cannot become an array"):
        np.asarray(found)
    with pytest.raises(TypeError, match="not iterable"):
        list(found)
    assert found.shape == (3, 3)
    assert len(found) == 3


def test_sets_that_do_not_fit_the_answers_are_refused():
    found = table()
    with pytest.raises(AnnotationError, match="do not describe the 5 sets"):
        LabelSetTable(found.answers, found.options, found.set_start[:-1], found.set_options)
    with pytest.raises(AnnotationError, match="do not describe"):
        LabelSetTable(found.answers, found.options, found.set_start, found.set_options + 5)


@pytest.mark.parametrize("n_options", [5, 63, 64, 200])
def test_sets_are_numbered_by_what_they_hold(n_options):
    rng = np.random.default_rng(0)
    dense = rng.random((300, n_options)) < 2 / n_options
    sets, codes = number_sets(csr_array(dense))
    np.testing.assert_array_equal(sets.toarray()[codes], dense)
    assert sets.shape[0] == len(np.unique(dense, axis=0))


def test_memory_does_not_grow_with_answers_times_options():
    rng = np.random.default_rng(0)
    n, n_options = 100_000, 800
    ticks = csr_array(
        (np.ones(n, dtype=bool), (np.arange(n), rng.integers(0, n_options, n))),
        shape=(n, n_options),
    )
    tracemalloc.start()
    try:
        found = LabelSetTable.from_arrays(np.arange(n), np.zeros(n, dtype=int), ticks)
        fewer = found.select(options=found.options[:5])
        fewer.take(range(9)).with_added(fewer, duplicates="last")
        found.option("7")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40e6, "one byte per answer and option would be 80 MB"
    assert found.nbytes < 12 * n


def test_a_notebook_shows_counts_options_and_the_first_answers():
    table = LabelSetTable.from_arrays(
        [0, 0, 1], ["ann", "<b>bob</b>", "ann"], [[1, 1], [1, 0], [0, 0]], options=["joy", "<i>awe"]
    )
    shown = table._repr_html_()
    assert "First answers" in shown
    assert "&lt;b&gt;bob&lt;/b&gt;" in shown
    assert "<i>awe" not in shown
    assert "66.7 %" in shown
    assert "none" in shown
