"""Comparisons: layouts, winners, pairs of scores, and what is refused."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from manyhands import AnnotationTable, ComparisonTable
from manyhands.exceptions import AnnotationError


def frame(*rows, columns=("left", "right", "winner", "worker")):
    return pd.DataFrame(rows, columns=list(columns))


FOUR = (("x", "y"), ("x", "y"), ("y", "z"), ("z", "x"))
EXPECTED = [0, 1, 2, 0]  # The left item, a tie, the right one, the left one.


@pytest.mark.parametrize(
    "winners",
    [
        ("x", "tie", "z", "z"),
        ("left", "tie", "right", "left"),
        ("model_a", "tie (bothbad)", "model_b", "model_a"),
        ("A", "both bad", "B", "a"),
        ("A", "C", "B", "a"),
        ("[[A]]", "[[C]]", "[[B]]", "[[A]]"),
        ("A>B", "A=B", "B>A", "B < A"),
        ("[[A>>B]]", "[[B=A]]", "[[B>A]]", "[[A>B]]"),
        ("Left", "DRAW", " right ", "left"),
    ],
)
def test_winners_are_ids_or_sides(winners):
    df = frame(*[(*pair, won, "ann") for pair, won in zip(FOUR, winners, strict=True)])
    table = ComparisonTable.from_frame(df)
    assert table.outcome.tolist() == EXPECTED
    assert table.items.tolist() == ["x", "y", "z"]
    assert (table.n_comparisons, table.n_items, table.n_annotators) == (4, 3, 1)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_columns_of_the_arena_and_of_crowd_kit(make):
    arena = {
        "question_id": [1, 2, 1, 2],
        "model_a": [a for a, _ in FOUR],
        "model_b": [b for _, b in FOUR],
        "winner": ["model_a", "tie", "model_b", "model_a"],
        "judge": ["gpt", "gpt", "ann", "ann"],
        "tstamp": [1.0, 2.0, 3.0, 4.0],
    }
    table = ComparisonTable.from_frame(make(arena))
    assert table.outcome.tolist() == EXPECTED
    assert table.annotators.tolist() == ["ann", "gpt"]
    assert table.question.tolist() == [0, 1, 0, 1]
    kit = {
        "worker": arena["judge"],
        "left": arena["model_a"],
        "right": arena["model_b"],
        "label": ["x", "tie", "z", "z"],
    }
    table = ComparisonTable.from_frame(make(kit))
    assert table.outcome.tolist() == EXPECTED
    assert table.question is None


def test_ids_that_are_also_words_are_ids():
    df = frame(("b", "a", "a", "w"), ("a", "b", "a", "w"), ("a", "b", "tie", "w"))
    assert ComparisonTable.from_frame(df).outcome.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "rows",
    [
        [("x", "y", "C", "w"), ("x", "y", "left", "w")],  # No letter stands for a side.
        [("a", "b", "c", "w"), ("a", "b", "a", "w")],  # The letters are ids.
        [("x", "c", "A", "w"), ("x", "y", "c", "w")],
        [("x", "y", "A>A", "w")],
        [("x", "y", "[[D]]", "w")],
        [("x", "y", "[A]", "w")],
        [("x", "y", "better", "w"), ("x", "y", "A", "w")],
    ],
)
def test_words_that_may_mean_something_else_are_refused(rows):
    with pytest.raises(AnnotationError, match="replace it in the column of winners"):
        ComparisonTable.from_frame(frame(*rows))


def test_a_letter_is_a_tie_beside_values_that_mean_nothing():
    rows = [("x", "y", won, "w") for won in ("A", "B", "C", "skip")]
    assert ComparisonTable.from_frame(frame(*rows), abstain="skip").outcome.tolist() == [0, 2, 1]


def test_ids_may_be_numbers_with_gaps_and_of_either_type():
    df = frame((10, 9, 9, "w"), (9, 2, None, "w"), (2, 10, 2, "w"))
    with pytest.warns(UserWarning, match="1 of 3 rows have no winner"):
        table = ComparisonTable.from_frame(df)
    assert table.items.tolist() == [2, 9, 10]
    assert table.outcome.tolist() == [2, 0]
    table = ComparisonTable.from_frame(frame((10, 9, "9", "w"), (9, 10, "tie", "w")))
    assert table.outcome.tolist() == [2, 1]


def test_natural_order_of_text_ids():
    table = ComparisonTable.from_frame(frame(("m10", "m2", "m2", "w"), ("m2", "m1", "tie", "w")))
    assert table.items.tolist() == ["m1", "m2", "m10"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("x", "x", "x", "w")], r"row 0: item 'x' is compared with itself"),
        ([("x", "y", "z", "w")], r"the winner in row 0 is 'z', but the comparison is of 'x' with"),
        ([("x", "y", "z", "w"), ("z", "y", "z", "w")], r"\(1 of 2 comparisons are like that\)"),
        ([("x", None, "x", "w")], r"column 'right' \(right\) is empty in row 0"),
        ([("x", "y", "x", None)], r"column 'worker' \(worker\) is empty in row 0"),
        ([("x", 3, "x", "w")], r"left and right mixes strings and other values"),
    ],
)
def test_what_is_refused(rows, message):
    with pytest.raises(AnnotationError, match=message):
        ComparisonTable.from_frame(frame(*rows))


def test_columns_that_are_missing_are_named():
    df = frame(("x", "y", "x", "w"), columns=("one", "two", "winner", "worker"))
    with pytest.raises(AnnotationError, match="left='left' is not a column; the columns are 'one'"):
        ComparisonTable.from_frame(df)
    assert ComparisonTable.from_frame(df, "one", "two").n_comparisons == 1
    with pytest.raises(AnnotationError, match="worker='person' is not a column"):
        ComparisonTable.from_frame(df, "one", "two", worker="person")
    with pytest.raises(AnnotationError, match="named as left and as right"):
        ComparisonTable.from_frame(df, "one", "one")
    with pytest.raises(AnnotationError, match="strengths that change in time"):
        ComparisonTable.from_frame(df, "one", "two", time="tstamp")
    with pytest.raises(AnnotationError, match="df is a list"):
        ComparisonTable.from_frame([("x", "y")])


def test_without_annotators_there_is_one_judge_and_a_word_about_it():
    df = frame(("x", "y", "x"), columns=("left", "right", "winner"))
    with pytest.warns(UserWarning, match="no column of annotators is found"):
        table = ComparisonTable.from_frame(df)
    assert not table.has_annotators
    assert not ComparisonTable.from_frame(df, worker=None).has_annotators
    assert "annotators unknown" in repr(table)


def test_what_nobody_answered_is_left_out():
    df = frame(("x", "y", "x", "w"), ("x", "y", "skip", "w"))
    with pytest.raises(AnnotationError, match=r"abstain=\['skip'\]"):
        ComparisonTable.from_frame(df)
    assert len(ComparisonTable.from_frame(df, abstain="skip")) == 1
    with pytest.warns(UserWarning, match="abstain='other' is not in the column"):
        ComparisonTable.from_frame(df, abstain=["skip", "other"])


def test_weights_are_kept_and_checked():
    df = frame(("x", "y", "x", "w"), ("x", "y", "y", "w")).assign(n=[2, 1])
    table = ComparisonTable.from_frame(df, weight="n")
    assert table.weight.tolist() == [2.0, 1.0]
    for bad in (-1, np.nan, np.inf):
        with pytest.raises(AnnotationError, match="finite and not negative"):
            ComparisonTable.from_frame(df.assign(n=[bad, 1]), weight="n")


def test_a_table_is_immutable_and_survives_copies():
    table = ComparisonTable.from_frame(frame(("x", "y", "x", "w"), ("y", "z", "z", "v")))
    with pytest.raises(ValueError, match="read-only"):
        table.left[0] = 1
    for again in (copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert again.to_frame().equals(table.to_frame())
        assert not again.left.flags.writeable


def test_a_frame_is_read_back():
    df = frame(("x", "y", "x", "w"), ("y", "z", "tie", "v")).assign(prompt=[1, 2], n=[2.0, 1.0])
    table = ComparisonTable.from_frame(df, question="prompt", weight="n")
    for backend in ("pandas", "polars", "pyarrow"):
        again = ComparisonTable.from_frame(
            table.to_frame(backend), question="question", weight="weight"
        )
        assert again.to_frame().equals(table.to_frame())
        unnamed = ComparisonTable.from_frame(table.to_frame(backend))
        assert unnamed.to_frame().equals(table.to_frame())
    # In a frame of other columns, a weight may be that of the items.
    other = ComparisonTable.from_frame(table.to_frame().assign(colour="red"))
    assert other.weights is None


def test_selecting_adding_and_swapping():
    df = frame(("x", "y", "x", "w"), ("y", "z", "tie", "v"), ("z", "x", "x", "v"))
    table = ComparisonTable.from_frame(df)
    some = table.select(items=["z", "x"])
    assert some.items.tolist() == ["z", "x"]
    assert some.to_frame().values.tolist() == [["z", "x", "right", "v"]]
    assert len(table.select(annotators=["v"])) == 2
    with pytest.raises(AnnotationError, match="'nobody'"):
        table.select(annotators=["nobody"])
    with pytest.raises(AnnotationError, match="items holds 'x' twice"):
        table.select(items=["x", "x"])
    both = table.with_added(ComparisonTable.from_frame(frame(("q", "x", "q", "u"))))
    assert both.items.tolist() == ["x", "y", "z", "q"]
    assert len(both) == 4
    swapped = table.swapped()
    assert swapped.to_frame()["winner"].tolist() == ["right", "tie", "left"]
    assert swapped.swapped().to_frame().equals(table.to_frame())


def test_groups_that_are_never_compared():
    df = frame(("x", "y", "x", "w"), ("p", "q", "tie", "w"), ("y", "z", "z", "w"))
    table = ComparisonTable.from_frame(df)  # Items p q x y z.
    assert table.components().tolist() == [0, 0, 1, 1, 1]
    assert table.counts().tolist() == [1, 1, 1, 2, 1]


# -- pairs of scores ------------------------------------------------------------------------------


def test_scores_are_compared_within_annotator_and_question():
    rows = [
        ("s1", "art1", "w", 5), ("s2", "art1", "w", 3), ("s3", "art1", "w", 5),
        ("s1", "art2", "w", 1), ("s2", "art1", "v", 4), ("s1", "art1", "v", 3),
    ]  # fmt: skip
    df = pd.DataFrame(rows, columns=["item", "article", "worker", "score"])
    table = ComparisonTable.from_scores(df, question="article")
    found = sorted(table.to_frame()[["left", "right", "winner", "worker"]].values.tolist())
    assert found == [
        ["s1", "s2", "left", "w"],
        ["s1", "s2", "right", "v"],
        ["s1", "s3", "tie", "w"],
        ["s2", "s3", "right", "w"],
    ]
    assert not table.has_sides
    assert len(ComparisonTable.from_scores(df.iloc[:3], question="article", margin=2)) == 3
    assert ComparisonTable.from_scores(df.iloc[:3], question="article", margin=2).tie_share == 1
    with pytest.raises(AnnotationError, match="margin=-1 must not be negative"):
        ComparisonTable.from_scores(df, question="article", margin=-1)


def test_all_pairs_are_made_as_by_a_slow_loop():
    rng = np.random.default_rng(0)
    n = 60
    df = pd.DataFrame({
        "item": rng.integers(0, 8, n), "worker": rng.integers(0, 3, n),
        "question": rng.integers(0, 4, n), "score": rng.integers(1, 6, n),
    }).drop_duplicates(["item", "worker", "question"])  # fmt: skip
    table = ComparisonTable.from_scores(df, question="question")
    slow = []
    for _, part in df.sort_values("item").groupby(["worker", "question"]):
        values = part[["item", "score"]].values.tolist()
        for i, (one, high) in enumerate(values):
            for other, low in values[i + 1 :]:
                won = "left" if high > low else "right" if high < low else "tie"
                slow.append([one, other, won])
    assert sorted(table.to_frame()[["left", "right", "winner"]].values.tolist()) == sorted(slow)


def test_scores_of_a_table_of_annotations():
    ratings = AnnotationTable.from_matrix(
        np.array([[4, 1], [2, 1], [3, np.nan]]), scale="interval", instances=["a", "b", "c"]
    )
    table = ComparisonTable.from_scores(ratings)
    assert len(table) == 4
    assert table.to_frame()["winner"].tolist() == ["left", "left", "right", "tie"]
    by_question = ComparisonTable.from_scores(ratings, question=[1, 1, 2])
    assert len(by_question) == 2
    with pytest.raises(AnnotationError, match="no order"):
        ComparisonTable.from_scores(AnnotationTable.from_matrix(np.array([[0, 1], [1, 1]])))
    with pytest.raises(AnnotationError, match="nothing to compare"):
        ComparisonTable.from_scores(ratings, question=[1, 2, 3])


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_column_for_each_outcome_is_read(kind):
    """The layout of the Arena's competition on Kaggle."""
    rows = {
        "model_a": ["x", "y", "x"],
        "model_b": ["y", "z", "z"],
        "judge": ["j", "k", "j"],
        "winner_model_a": [1, 0, 0],
        "winner_model_b": [0, 0, 1],
        "winner_tie": [0, 1, 0],
    }
    table = ComparisonTable.from_frame(kind(rows))
    assert table.outcome.tolist() == [0, 1, 2]
    with pytest.raises(AnnotationError, match="row"):
        ComparisonTable.from_frame(kind({**rows, "winner_tie": [1, 1, 0]}))


def test_sides_that_are_named_the_other_way_round_are_refused():
    rows = {"model_a": ["x"], "model_b": ["y"], "winner": ["model_a"], "judge": ["j"]}
    with pytest.raises(AnnotationError, match="swap left= and right="):
        ComparisonTable.from_frame(pd.DataFrame(rows), left="model_b", right="model_a")
