"""Abstentions and skips, which are no annotations and yet not missing; certainty of labels."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable, DawidSkene, MajorityVote
from manyhands.annotations import (
    PASSES,
    as_table,
    certainty_groups,
    label_assurance,
    label_certainty,
)
from manyhands.annotations.encoding import encode
from manyhands.exceptions import AnnotationError, MissingExtraError

ABSTAIN, SKIP = 4, 5
LONG = {
    "task": ["b", "a", "b", "c", "a", "d"],
    "worker": ["w2", "w1", "w1", "w2", "w2", "w3"],
    "label": ["yes", "no", "unsure", "skip", "n/a", "unsure"],
}
MEANINGS = {"abstain": "unsure", "skip": ["skip", "n/a"]}

responses = arrays(
    np.int64,
    st.tuples(st.integers(1, 8), st.integers(1, 5)),
    elements=st.integers(-1, SKIP),
)


def read(A, **options):
    return AnnotationTable.from_matrix(A, classes=range(4), abstain=ABSTAIN, skip=SKIP, **options)


def cells(table):
    """All that a table knows of every cell, as a matrix like the one `read` takes."""
    A = np.array(table.to_matrix())
    for (i, r), value in [(p, ABSTAIN) for p in table.abstentions] + [
        (p, SKIP) for p in table.skips
    ]:
        assert A[i, r] == -1
        A[i, r] = value
    return A


# -- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_values_that_mean_a_pass_are_no_classes(make):
    table = AnnotationTable.from_frame(make(LONG), **MEANINGS)
    assert table.classes.tolist() == ["no", "yes"]
    assert table.to_matrix().tolist() == [
        ["no", None, None],
        [None, "yes", None],
        [None] * 3,
        [None] * 3,
    ]
    assert table.instances.tolist() == ["a", "b", "c", "d"]
    assert table.abstentions.tolist() == [[1, 0], [3, 2]]
    assert table.skips.tolist() == [[2, 1], [0, 1]]
    # In the order of the frame; kinds are positions in PASSES.
    assert table.passes.tolist() == [[1, 0, 0], [2, 1, 1], [0, 1, 1], [3, 2, 0]]
    assert PASSES == ("abstain", "skip")


def test_missing_abstain_and_skip_are_three_things():
    frame = pd.DataFrame(LONG | {"label": ["yes", "no", None, "skip", np.nan, "unsure"]})
    with pytest.warns(UserWarning, match="2 of 6 rows have no label"):
        table = AnnotationTable.from_frame(frame, **MEANINGS)
    assert (table.n_annotations, len(table.abstentions), len(table.skips)) == (2, 1, 1)
    assert table.shape == (4, 3)


def test_values_that_never_occur_change_nothing():
    votes = pd.DataFrame(LONG).replace("n/a", "maybe")
    plain = AnnotationTable.from_frame(votes)
    assert plain.passes is None
    assert AnnotationTable.from_frame(votes, abstain="?", skip=[]).equals(plain)


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 9, 8, 0],
        [0.0, 1.0, 9.0, 8.0, 0.0],
        np.array([0, 1, 9, 8, 0], dtype=np.uint8),
        np.array([0, 1, 9, 8, 0], dtype=object),
    ],
)
def test_arrays_and_matrices_read_numbers(labels):
    table = AnnotationTable.from_arrays(range(5), [0] * 5, labels, abstain=9, skip=8)
    assert table.classes.tolist() == [0, 1]
    assert (table.abstentions.tolist(), table.skips.tolist()) == ([[2, 0]], [[3, 0]])
    column = np.asarray(labels)[:, None]
    assert AnnotationTable.from_matrix(column, abstain=[9], skip=[8]).equals(table)


def test_numbers_and_text_may_mix_where_the_text_means_a_pass():
    frame = pd.DataFrame(LONG | {"label": [1, 0, "unsure", "skip", "n/a", 1]})
    table = AnnotationTable.from_frame(frame, **MEANINGS)
    assert table.classes.tolist() == [0, 1]
    assert (len(table.abstentions), len(table.skips)) == (1, 2)
    with pytest.warns(UserWarning, match="holds -1 in 1 cells beside 1 empty ones"):
        table = AnnotationTable.from_matrix([["cat", "?"], [None, -1]], abstain="?")
    assert table.abstentions.tolist() == [[0, 1]]
    assert table.n_annotations == 1


def test_minus_one_is_missing_in_a_matrix_unless_it_means_a_pass():
    A = [[0, -1], [1, 0]]
    assert AnnotationTable.from_matrix(A).passes is None
    assert AnnotationTable.from_matrix(A, skip=-1).skips.tolist() == [[0, 1]]
    frame = pd.DataFrame({"task": [1, 2, 3], "worker": 1, "label": [-1, 0, 1]})
    assert AnnotationTable.from_frame(frame, abstain=-1).classes.tolist() == [0, 1]  # no warning


def test_weights_and_sources_are_those_of_the_annotations():
    options = {"weight": [1.0, np.nan, 2.0], "source": ["pseudo", "observed", "observed"]}
    table = AnnotationTable.from_arrays([0, 1, 2], [0, 0, 0], [1, 9, 0], abstain=9, **options)
    assert table.weight.tolist() == [1, 2]
    assert table.source.tolist() == ["pseudo", "observed"]
    with pytest.raises(AnnotationError, match=r"weight has shape \(2,\)"):
        AnnotationTable.from_arrays([0, 1, 2], [0] * 3, [1, 9, 0], abstain=9, weight=[1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"abstain": "unsure", "skip": ["skip", "unsure"]},
            "'unsure' stands in abstain and in skip",
        ),
        ({"abstain": "no", "classes": ["no", "yes"]}, "abstain holds 'no', which is also among cl"),
        ({"skip": ["n/a", "n/a"]}, "skip holds 'n/a' twice"),
        ({"abstain": [None]}, "abstain holds a missing value"),
        ({"abstain": ["unsure", 9]}, "abstain mixes strings and other values"),
        ({"abstain": 9}, r"'label' holds strings \(such as 'yes'\) but abstain holds 9"),
        ({"skip": 0.5}, "skip holds 0.5"),
        ({"passes": "pass"}, "passes='pass' is not a column"),
        ({"passes": "worker"}, r"'worker' \(passes\) holds 'w2'; use one of"),
    ],
)
def test_meanings_that_do_not_fit_are_refused(options, message):
    with pytest.raises(AnnotationError, match=message):
        AnnotationTable.from_frame(pd.DataFrame(LONG), **options)


def test_text_for_numbers_is_refused_everywhere():
    message = "holds numbers .* but skip holds '9'"
    with pytest.raises(AnnotationError, match=message):
        AnnotationTable.from_arrays([0, 1], [0, 0], [9, 1], skip="9")
    with pytest.raises(AnnotationError, match=message):
        AnnotationTable.from_matrix([[9.0, np.nan]], skip=["9"])


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ([[0, 0]], r"passes has shape \(1, 2\)"),
        ([0, 0, 0], r"passes has shape \(3,\)"),
        ([[0, 0, 0], [2, 0, 0]], r"passes holds \[2, 0, 0\], outside 2 instances, 1 annotators"),
        ([[0, 1, 0]], r"\[0, 1, 0\]"),
        ([[0, 0, 2]], r"\[0, 0, 2\]"),
        ([[0, -1, 0]], r"\[0, -1, 0\]"),
    ],
)
def test_codes_of_passes_are_checked(passes, message):
    with pytest.raises(AnnotationError, match=message):
        AnnotationTable([0], [0], [0], np.arange(2), np.arange(1), np.arange(2), passes=passes)


# -- repeated pairs ---------------------------------------------------------------------------

REPEATED = {
    "task": ["a", "a", "b", "b", "c", "c"],
    "worker": ["u"] * 6,
    "label": ["yes", "unsure", "skip", "no", "unsure", "skip"],
}


def test_a_pair_answers_once():
    frame = pd.DataFrame(REPEATED)
    for rows in (slice(0, 2), slice(2, 4), slice(4, 6)):
        with pytest.raises(AnnotationError, match=r"1 \(instance.*counting abstentions and skips"):
            AnnotationTable.from_frame(frame[rows], **MEANINGS)
    last = AnnotationTable.from_frame(frame, duplicates="last", **MEANINGS)
    assert last.to_matrix().tolist() == [[None], ["no"], [None]]
    assert (last.abstentions.tolist(), last.skips.tolist()) == ([[0, 0]], [[2, 0]])
    kept = AnnotationTable.from_frame(frame, duplicates="keep", **MEANINGS)
    assert kept.passes[:, 0].tolist() == [0, 1, 2, 2]
    assert kept.to_matrix().tolist() == [["yes"], ["no"], [None]]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 5)), max_size=14))
@settings(max_examples=30)
def test_the_last_row_of_a_pair_wins(rows):
    columns = np.array(rows, dtype=int).reshape(-1, 3).T
    table = AnnotationTable.from_arrays(
        *columns, classes=range(4), abstain=ABSTAIN, skip=SKIP, n_instances=3, n_annotators=2,
        duplicates="last",
    )  # fmt: skip
    expected = np.full((3, 2), -1)
    for i, r, value in rows:
        expected[i, r] = value
    np.testing.assert_array_equal(cells(table), expected)


def test_an_added_response_replaces_what_stands_there():
    mine = AnnotationTable.from_matrix([[0, 4, 5, -1]], classes=[0, 1], abstain=4, skip=5)
    theirs = AnnotationTable.from_matrix([[4, 1, 4, 5]], classes=[0, 1], abstain=4, skip=5)
    with pytest.raises(AnnotationError, match=r"3 \(instance, annotator\) pairs are repeated"):
        mine.with_added(theirs)
    grown = mine.with_added(theirs, duplicates="last")
    assert grown.equals(
        AnnotationTable.from_matrix([[4, 1, 4, 5]], classes=[0, 1], abstain=4, skip=5)
    )
    assert len(mine.with_added(theirs, duplicates="keep").passes) == 5
    both = AnnotationTable.from_arrays([0, 0], [0, 0], [1, 4], abstain=4, duplicates="keep")
    empty = AnnotationTable.from_arrays([], [], [], classes=[1])
    assert both.with_added(empty, duplicates="last").passes is None


# -- what is done with a table ----------------------------------------------------------------


@given(responses)
@settings(max_examples=30)
def test_a_matrix_is_read_as_it_stands(A):
    table = read(A)
    np.testing.assert_array_equal(cells(table), A)
    assert len(table.abstentions) == (A == ABSTAIN).sum()
    assert len(table.skips) == (A == SKIP).sum()
    assert (table.passes is None) == (A < ABSTAIN).all()


@given(responses, st.data())
@settings(max_examples=30)
def test_rows_by_position(A, data):
    table = read(A)
    shuffled = data.draw(st.permutations(range(table.n_annotations)))
    table = table.take(np.array(shuffled, dtype=int))
    rows = data.draw(st.lists(st.integers(0, len(A) - 1), max_size=12))
    picked = np.array(rows, dtype=int)
    np.testing.assert_array_equal(cells(table[picked]), A[picked])
    mask = data.draw(arrays(bool, len(A)))
    np.testing.assert_array_equal(cells(table[mask]), A[mask])
    np.testing.assert_array_equal(cells(table[::-1]), A[::-1])


@given(responses, st.data())
@settings(max_examples=30)
def test_select(A, data):
    n, r = A.shape
    instances = data.draw(st.lists(st.integers(0, n - 1)))
    annotators = data.draw(st.lists(st.integers(0, r - 1), unique=True))
    some = read(A).select(instances=instances, annotators=annotators)
    np.testing.assert_array_equal(cells(some), A[instances][:, annotators].reshape(some.shape))


@given(responses, st.data())
@settings(max_examples=30)
def test_with_added(A, data):
    n, r = A.shape
    mine = data.draw(arrays(bool, A.shape))
    order = np.array(data.draw(st.permutations(range(n))))
    ids, names = np.array([f"t{i}" for i in range(n)]), np.array([f"w{k}" for k in range(r)])
    cut = data.draw(st.integers(0, r))
    mine[:, cut:] = False  # some annotators are new
    first = read(np.where(mine, A, -1)[:, :cut], instances=ids, annotators=names[:cut])
    second = read(np.where(mine, -1, A)[order], instances=ids[order], annotators=names)
    grown = first.with_added(second)
    np.testing.assert_array_equal(cells(grown), A)
    assert (grown.instances.tolist(), grown.annotators.tolist()) == (ids.tolist(), names.tolist())


def test_a_backend_that_is_not_installed_is_named(monkeypatch):
    table = AnnotationTable.from_frame(pd.DataFrame(LONG), **MEANINGS)

    def from_dict(*_, **__):
        raise ModuleNotFoundError("No module named 'polars'", name="polars")

    monkeypatch.setattr("narwhals.from_dict", from_dict)
    with pytest.raises(MissingExtraError, match="pip install polars"):
        table.to_frame("polars")


@given(responses, st.sampled_from(["pandas", "polars", "pyarrow"]), st.booleans())
@settings(max_examples=30)
def test_a_frame_holds_all(A, backend, text):
    table = read(A)
    if text:
        values = np.array(["a", "b", "c", "d", "unsure", "skip", None], dtype=object)[A]
        table = AnnotationTable.from_matrix(values, list("abcd"), abstain="unsure", skip="skip")
    if table.n_annotations:
        table = table.with_added(table.take([0]).with_source("pseudo"), duplicates="keep")
    frame = table.to_frame(backend)
    columns = frame.column_names if backend == "pyarrow" else list(frame.columns)
    assert columns == [
        *("task", "worker", "label", "weight", "source"),
        *([] if table.passes is None else ["pass"]),
    ]
    again = AnnotationTable.from_frame(
        frame, weight="weight", source="source", passes=None if table.passes is None else "pass",
        classes=table.classes, tasks=table.instances, workers=table.annotators, duplicates="keep",
    )  # fmt: skip
    assert again.equals(table)


def test_a_frame_of_passes_read_without_them_says_so():
    frame = AnnotationTable.from_frame(pd.DataFrame(LONG), **MEANINGS).to_frame()
    assert frame["pass"].isna().tolist() == [True] * 2 + [False] * 4
    assert frame["pass"].tolist()[2:] == ["abstain", "skip", "skip", "abstain"]
    assert frame["label"].tolist()[:2] == ["yes", "no"]
    assert frame["label"].isna().tolist() == [False] * 2 + [True] * 4
    assert frame["weight"].isna().tolist() == [False] * 2 + [True] * 4
    with pytest.warns(UserWarning, match="4 of 6 rows have no label"):
        AnnotationTable.from_frame(frame)
    frame.loc[2, "label"] = "no"
    with pytest.raises(AnnotationError, match=r"both a label .* and a pass .* stand in row 2;"):
        AnnotationTable.from_frame(frame, passes="pass")


def test_large_integers_beside_passes_stay_exact():
    labels = [2**60 + 1, 2**60, 7]
    table = AnnotationTable.from_arrays([0, 1, 2], [0, 0, 0], labels, skip=7)
    for backend in ("pandas", "polars", "pyarrow"):
        frame = table.to_frame(backend)
        assert AnnotationTable.from_frame(frame, passes="pass").equals(table)


def test_rows_of_annotations_are_taken_without_touching_passes():
    table = read(np.array([[0, ABSTAIN], [SKIP, 1]]))
    assert table.take([1]).passes.tolist() == table.passes.tolist()
    assert table.with_source("pseudo").observed.passes.tolist() == table.passes.tolist()
    assert table.with_source("pseudo").observed.n_annotations == 0


def test_equality_bytes_and_words():
    A = np.array([[0, ABSTAIN, ABSTAIN], [SKIP, 1, -1]])
    table, plain = read(A), read(np.where(A < ABSTAIN, A, -1))
    assert not table.equals(plain)
    assert not table.equals(read(np.where(A == SKIP, ABSTAIN, A)))
    assert table.equals(read(A))
    assert table.nbytes == plain.nbytes + 3 * 12
    assert repr(table).startswith("AnnotationTable(2 annotations, 2 abstentions, 1 skips: 2 inst")
    assert repr(plain).startswith("AnnotationTable(2 annotations: ")
    assert AnnotationTable([0], [0], [0], *[np.arange(1)] * 3, passes=[]).passes is None


def test_passes_never_change():
    table = read(np.array([[0, ABSTAIN]]))
    for other in (table, pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert other.equals(table)
        assert other.passes.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            other.passes[0, 0] = 1


def test_votes_are_annotations_alone():
    A = np.array([[0, 1, ABSTAIN], [1, SKIP, 1], [ABSTAIN, SKIP, 0], [2, 2, 3]])
    table, plain = read(A), read(np.where(A < ABSTAIN, A, -1))
    assert as_table(table) is table
    np.testing.assert_array_equal(np.asarray(table), np.asarray(plain))
    np.testing.assert_array_equal(table.vote_counts(), plain.vote_counts())
    np.testing.assert_array_equal(table.annotations_per_annotator(), [3, 2, 3])
    np.testing.assert_array_equal(
        MajorityVote().fit(table).posterior_, MajorityVote().fit(plain).posterior_
    )


def test_a_skip_says_nothing_of_the_class():
    A = np.array([[0, 1, SKIP], [1, SKIP, 1], [SKIP, SKIP, 0], [2, 2, 3]])
    with_skips, without = read(A), read(np.where(A < ABSTAIN, A, -1))
    np.testing.assert_array_equal(
        DawidSkene().fit(with_skips).posterior_, DawidSkene().fit(without).posterior_
    )


# -- encoding ---------------------------------------------------------------------------------


@given(st.lists(st.text("aAbB 09\0\u00e4\u00df\u0130\u4e2d\U0001f600", max_size=3), min_size=1))
def test_strings_are_encoded_alike_as_objects_and_as_text(values):
    objects, text = np.array(values, dtype=object), np.array(values)
    codes, vocabulary = encode(objects, None, argument="x", vocabulary_name="v")
    expected_vocabulary, expected = np.unique(text, return_inverse=True)
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(vocabulary, expected_vocabulary)
    assert vocabulary.dtype == expected_vocabulary.dtype
    codes, _ = encode(objects, vocabulary[::-1], argument="x", vocabulary_name="v")
    np.testing.assert_array_equal(vocabulary[::-1][codes], text)


def test_rows_outside_a_vocabulary_are_counted_as_rows():
    values = np.array(["a", "z", "z", "y"], dtype=object)
    with pytest.raises(AnnotationError, match=r"'y', 'z' \(3 rows\), not among v: 'a'"):
        encode(values, np.array(["a"]), argument="x", vocabulary_name="v")


# -- label certainty (ICED, Eq. 2.4) and its groups; label assurance (NeuCrowd, Def. 2) -----------


def _loop_certainty(matrix, n_classes, epsilon):
    """Eq. 2.4 word for word: the inverse of the mean squared distance from the mean."""
    found = []
    for row in matrix:
        vectors = [np.eye(n_classes)[label] for label in row if label >= 0]
        mean = sum(vectors) / len(vectors)
        variance = sum(((v - mean) ** 2).sum() for v in vectors) / len(vectors)
        found.append(1 / (variance + epsilon))
    return found


def test_unanimous_split_and_tied_by_hand():
    table = AnnotationTable.from_matrix([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 0]])
    # Shares (0, 1), (1/4, 3/4), (1/2, 1/2): variances 0, 3/8, 1/2.
    expected = [1 / 0.1, 1 / (3 / 8 + 0.1), 1 / (1 / 2 + 0.1)]
    np.testing.assert_allclose(label_certainty(table, epsilon=0.1), expected)


def test_three_classes_by_hand():
    table = AnnotationTable.from_matrix([[0, 1, 2], [0, 0, 2]])
    expected = [1 / (2 / 3 + 0.5), 1 / (4 / 9 + 0.5)]
    np.testing.assert_allclose(label_certainty(table, epsilon=0.5), expected)


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=2, max_size=8).filter(
        lambda rows: len({label for row in rows for label in row}) > 1
    )
)
@settings(max_examples=30)
def test_equals_the_loop(rows):
    table = AnnotationTable.from_matrix(np.array(rows), classes=[0, 1, 2])
    np.testing.assert_allclose(label_certainty(table), _loop_certainty(rows, 3, 0.1))


def test_unequal_counts_are_smoothed_so_that_one_vote_is_less_certain_than_five():
    rows = [[1, 1, 1, 1, 1], [1, -1, -1, -1, -1], [0, -1, -1, -1, -1]]
    table = AnnotationTable.from_matrix(rows)
    five, one, other = label_certainty(table)
    assert five > one == other
    # Shares (.5, 5.5) / 6 and (.5, 1.5) / 2.
    np.testing.assert_allclose(five, 1 / (1 - (0.5 / 6) ** 2 - (5.5 / 6) ** 2 + 0.1))
    np.testing.assert_allclose(one, 1 / (1 - 0.25**2 - 0.75**2 + 0.1))
    np.testing.assert_allclose(label_certainty(table, smoothing=0), [10, 10, 10])


def test_weights_count_and_instances_without_annotations_have_none():
    table = AnnotationTable.from_arrays(
        [0, 0], [0, 1], ["a", "b"], weight=[3.0, 1.0], instances=[0, 1]
    )
    certainty = label_certainty(table)
    np.testing.assert_allclose(certainty[0], 1 / (3 / 8 + 0.1))
    assert np.isnan(certainty[1])
    assert certainty_groups(certainty).tolist() == [3, 0]


def test_seven_annotators_have_the_papers_four_levels():
    rows = [[1] * (7 - k) + [0] * k for k in range(8)]
    groups = certainty_groups(label_certainty(AnnotationTable.from_matrix(rows)))
    assert groups.tolist() == [3, 2, 1, 0, 0, 1, 2, 3]


def test_fewer_levels_fill_from_the_top_and_the_lowest_is_left_out():
    five = [[1] * (5 - k) + [0] * k for k in range(3)]
    groups = certainty_groups(label_certainty(AnnotationTable.from_matrix(five)))
    assert groups.tolist() == [3, 2, 0]
    assert certainty_groups(np.array([10.0, 10.0])).tolist() == [3, 3]
    assert certainty_groups(np.array([10.0, 5.0, 1.0]), n_groups=2).tolist() == [2, 1, 0]


def test_quantiles_are_of_about_equal_size_and_keep_levels_together():
    certainty = np.arange(1.0, 101.0)
    groups = certainty_groups(certainty, by="quantiles")
    assert np.bincount(groups).tolist() == [25, 25, 25, 25]
    assert (np.diff(groups) >= 0).all()
    tied = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [1, 1, 1, 1, 60])
    assert len(np.unique(certainty_groups(tied, by="quantiles")[4:])) == 1


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([1, 1, 1, 1, 60], [0, 0, 0, 0, 3]), ([60, 1, 1, 1, 1], [0, 3, 3, 3, 3])],
)
def test_a_level_of_most_instances_leaves_no_group_empty_at_the_top(counts, expected):
    levels = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    groups = certainty_groups(np.repeat(levels, counts), by="quantiles")
    np.testing.assert_array_equal(groups, np.repeat(expected, counts))


def test_a_level_is_in_the_quantile_of_its_middle():
    # Of 8 instances the middles are .5, 2, 4, 6 and 7.5, the starts 0, 1, 3, 5 and 7.
    certainty = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [1, 2, 2, 2, 1])
    groups = certainty_groups(certainty, by="quantiles")
    assert groups.tolist() == [0, 1, 1, 2, 2, 3, 3, 3]


def test_equal_shares_of_other_classes_are_one_level():
    # The sums of their squares differ in the last place.
    rows = [[0, 1, 2, 2, 2], [0, 1, 1, 1, 2], [0, 0, 0, 1, 2], [0, 0, 0, 0, 0]]
    certainty = label_certainty(AnnotationTable.from_matrix(rows))
    assert len(np.unique(certainty)) == 3
    for by in ("levels", "quantiles"):
        assert certainty_groups(certainty, by=by).tolist() == [0, 0, 0, 3]


@pytest.mark.parametrize("smoothing", ["much", -1.0, True])
def test_wrong_smoothing_is_named(smoothing):
    table = AnnotationTable.from_matrix([[0, 1]])
    with pytest.raises(AnnotationError, match="smoothing"):
        label_certainty(table, smoothing=smoothing)


def test_wrong_parameters_are_named():
    table = AnnotationTable.from_matrix([[0, 1]])
    with pytest.raises(AnnotationError, match="epsilon=0"):
        label_certainty(table, epsilon=0)
    with pytest.raises(AnnotationError, match="n_groups=0"):
        certainty_groups(np.ones(2), 0)
    with pytest.raises(AnnotationError, match="by='size'"):
        certainty_groups(np.ones(2), by="size")


# -- label assurance ------------------------------------------------------------------------------


def test_assurance_of_the_papers_examples_and_of_a_tie():
    rows = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    table = AnnotationTable.from_matrix(rows)
    np.testing.assert_allclose(label_assurance(table), [1.0, 0.2, 1.0, 0.6])
    tied = label_assurance(AnnotationTable.from_matrix([[1, 1, 0, 0], [0, 1, 1, 1]]))
    assert tied.tolist() == [0.0, 0.5]


@given(st.lists(st.lists(st.integers(0, 1), min_size=7, max_size=7), min_size=1, max_size=8))
@settings(max_examples=30)
def test_assurance_of_two_classes_is_the_printed_formula(rows):
    table = AnnotationTable.from_matrix(np.array(rows), classes=[0, 1])
    printed = [abs(1 - 2 / len(row) * sum(row)) for row in rows]
    np.testing.assert_allclose(label_assurance(table), printed, atol=1e-12)


def test_assurance_of_several_classes_by_hand():
    rows = [[0, 1, 2], [0, 0, 2], [2, 2, 2]]
    table = AnnotationTable.from_matrix(rows)
    # Of three classes (3 p - 1) / 2, with p = 1/3, 2/3, 1.
    np.testing.assert_allclose(label_assurance(table), [0.0, 0.5, 1.0], atol=1e-12)
    assert label_assurance(table)[0] == 0, "a tie of all classes is exactly 0"
    # A class that nobody gave is a class: of four (4 p - 1) / 3.
    wider = AnnotationTable.from_matrix(rows, classes=[0, 1, 2, 3])
    np.testing.assert_allclose(label_assurance(wider), [1 / 9, 5 / 9, 1.0])


def test_assurance_goes_by_weights():
    table = AnnotationTable.from_arrays([0, 0], [0, 1], ["a", "b"], weight=[3.0, 1.0])
    np.testing.assert_allclose(label_assurance(table), [0.5])


def test_assurance_of_unequal_counts_is_smoothed_and_of_none_unknown():
    rows = [[1, 1, 1, 1, 1], [1, -1, -1, -1, -1], [-1, -1, -1, -1, -1], [0, 1, -1, -1, -1]]
    table = AnnotationTable.from_matrix(rows)
    # One vote more, half of it for either class: shares 5.5 / 6 and 1.5 / 2.
    expected = [2 * 5.5 / 6 - 1, 0.5, np.nan, 0.0]
    np.testing.assert_allclose(label_assurance(table), expected)
    np.testing.assert_allclose(label_assurance(table, smoothing=0), [1.0, 1.0, np.nan, 0.0])
    np.testing.assert_allclose(label_assurance(table, smoothing=2), [5 / 9, 1 / 5, np.nan, 0.0])
    # Of equal counts there is nothing to be smoothed, whoever has no annotation at all.
    equal = AnnotationTable.from_matrix([[1, 1, -1], [-1, -1, -1], [0, -1, 0], [-1, 1, 0]])
    np.testing.assert_array_equal(label_assurance(equal), [1.0, np.nan, 1.0, 0.0])


def test_annotations_of_weight_zero_make_no_counts_unequal():
    rows, annotators = [0, 0, 1, 1, 1], [0, 1, 0, 1, 2]
    labels, weights = ["a", "a", "a", "b", "b"], [1.0, 1.0, 1.0, 1.0, 0.0]
    table = AnnotationTable.from_arrays(rows, annotators, labels, weight=weights)
    np.testing.assert_allclose(label_assurance(table), [1.0, 0.0])


def test_assurance_of_the_only_class_is_whole():
    table = AnnotationTable.from_matrix([[0, 0], [-1, -1]], classes=[0])
    np.testing.assert_array_equal(label_assurance(table), [1.0, np.nan])


@given(
    st.lists(st.lists(st.integers(-1, 2), min_size=4, max_size=4), min_size=2, max_size=8).filter(
        lambda rows: any(label >= 0 for row in rows for label in row)
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=30)
def test_assurance_knows_no_order_of_instances_annotators_or_classes(rows, random):
    A = np.array(rows)
    own = label_assurance(AnnotationTable.from_matrix(A, classes=[0, 1, 2]))
    instances, annotators, names = (random.sample(range(n), n) for n in (len(A), 4, 3))
    permuted = A[instances][:, annotators]
    permuted = np.where(permuted >= 0, np.array(names)[permuted], -1)
    found = label_assurance(AnnotationTable.from_matrix(permuted, classes=[0, 1, 2]))
    np.testing.assert_allclose(found, own[instances], atol=1e-12)
    known = own[~np.isnan(own)]
    assert ((known >= 0) & (known <= 1)).all()
    np.testing.assert_array_equal(np.isnan(own), (A < 0).all(axis=1))


@pytest.mark.parametrize("smoothing", ["much", -0.1, True, np.nan, np.inf])
def test_wrong_smoothing_of_assurance_is_named(smoothing):
    table = AnnotationTable.from_matrix([[0, 1]])
    with pytest.raises(AnnotationError, match="smoothing"):
        label_assurance(table, smoothing=smoothing)


@pytest.mark.parametrize("anew", [False, True])
def test_the_policy_that_is_advised_gives_the_better_probabilities(anew):
    """A third of the rows are repeated: copied, or answered anew, which is further evidence."""
    losses = {"last": 0.0, "keep": 0.0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 600)
        item, worker = (
            np.repeat(np.arange(600), 3),
            rng.permuted(np.tile(np.arange(12), (600, 1)), axis=1)[:, :3].ravel(),
        )
        given = np.where(rng.random(1800) < 0.7, y[item], 1 - y[item])
        again = np.flatnonzero(rng.random(1800) < 1 / 3)
        second = np.where(rng.random(1800) < 0.7, y[item], 1 - y[item]) if anew else given
        item, worker = np.append(item, item[again]), np.append(worker, worker[again])
        given = np.append(given, second[again])
        with pytest.raises(AnnotationError, match=r"Usual is duplicates='last'.*no further evid"):
            AnnotationTable.from_arrays(item, worker, given)
        for policy in losses:
            table = AnnotationTable.from_arrays(item, worker, given, duplicates=policy)
            proba = DawidSkene().fit(table).posterior_[np.arange(600), y]
            losses[policy] -= np.log(np.clip(proba, 1e-6, 1)).mean() / 4
    better, worse = ("keep", "last") if anew else ("last", "keep")
    assert losses[better] < losses[worse] - 0.005


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([0, 0, 1, 1], "All repeat the same label"),
        ([0, 0, 1, 4], "Of these pairs, 1 repeats the same label, and 1 holds different labels"),
        ([4, 4, 4, 5], "Of these pairs, 1 repeats the same label, and 1 holds different labels"),
    ],
)
def test_repeated_pairs_are_told_apart_by_whether_they_contradict(labels, told):
    """Two pairs are repeated; 4 abstains, and 5 skips, which is another answer."""
    with pytest.raises(AnnotationError, match=re.escape(f"{told}. Remove them, or choose.")):
        AnnotationTable.from_arrays(
            [0, 0, 1, 1], [0, 0, 0, 0], labels, classes=[0, 1], abstain=4, skip=5
        )
