"""Agreement about answers that are sets, against loops and values of nltk and simpledorff."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands import AnnotationTable, LabelSetTable
from manyhands.agreement import jackknife, krippendorff_alpha, option_agreement, set_distances
from manyhands.exceptions import AnnotationError
from tests.agreement_by_hand import slow_alpha

BALANCED = [
    *[(1, "a", "xy"), (1, "b", "x"), (2, "a", "z"), (2, "b", "z"), (3, "a", "xyz"), (3, "b", "yw")],
    *[(4, "a", "w"), (4, "b", "x")],
]
RAGGED = [*BALANCED, (1, "c", "yx"), (2, "c", "zw"), (5, "a", "w")]

NLTK = {"nominal": 0.1923076923076923, "jaccard": 0.2813688212927755, "masi": 0.22958579881656804}
"""Of `BALANCED`: nltk 3.10.4, AnnotationTask(...).alpha()."""

SIMPLEDORFF = {
    "nominal": 0.1428571428571429,
    "jaccard": 0.26847290640394095,
    "masi": 0.21064467766116945,
}
"""Of `RAGGED`: simpledorff 0.0.2, with the distances of nltk."""


def as_table(rows):
    frame = pd.DataFrame(
        [(task, worker, list(labels)) for task, worker, labels in rows],
        columns=["task", "worker", "labels"],
    )
    return LabelSetTable.from_frame(frame)


def jaccard(a, b, _):
    return 1 - len(a & b) / len(a | b) if a | b else 0.0


def masi(a, b, _):
    if a == b:
        return 0.0
    return 1 - len(a & b) / len(a | b) * (2 / 3 if a <= b or b <= a else 1 / 3)


SLOW = {"nominal": lambda a, b, _: float(a != b), "jaccard": jaccard, "masi": masi}


@pytest.mark.parametrize("distance", NLTK)
def test_alpha_is_that_of_nltk_and_simpledorff(distance):
    for rows, known in ((BALANCED, NLTK), (RAGGED, SIMPLEDORFF)):
        found = krippendorff_alpha(as_table(rows), distance=distance)
        np.testing.assert_allclose(found, known[distance], atol=1e-12)


SETS = st.frozensets(st.integers(0, 3))
ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), SETS), unique_by=lambda row: row[:2], min_size=1
)


@pytest.mark.parametrize("distance", SLOW)
@pytest.mark.parametrize("at_once", [3, set_distances.AT_ONCE])
@pytest.mark.parametrize("kept", [0, set_distances.KEPT])
def test_alpha_equals_the_slow_loop(distance, at_once, kept, monkeypatch):
    monkeypatch.setattr(set_distances, "AT_ONCE", at_once)
    monkeypatch.setattr(set_distances, "KEPT", kept)

    @given(ROWS)
    @settings(max_examples=25, deadline=None)
    def check(rows):
        instance, annotator, sets = zip(*rows, strict=True)
        ticks = [[option in held for option in range(4)] for held in sets]
        table = LabelSetTable.from_arrays(instance, annotator, ticks)
        slow = slow_alpha(rows, SLOW[distance])
        np.testing.assert_allclose(krippendorff_alpha(table, distance=distance), slow, atol=1e-12)

    check()


def test_sets_of_one_option_agree_as_classes_do():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 60)
    places = np.repeat(np.arange(20), 3), np.tile(np.arange(3), 20)
    sets = LabelSetTable.from_arrays(*places, np.eye(4)[labels])
    classes = AnnotationTable.from_arrays(*places, labels)
    for distance in SLOW:
        found = krippendorff_alpha(sets, distance=distance)
        np.testing.assert_allclose(found, krippendorff_alpha(classes), atol=1e-12)


def test_the_order_in_a_cell_does_not_matter():
    rows = [
        *[(1, "a", "safety;policy"), (1, "b", "safety;billing"), (1, "c", "policy;safety")],
        *[(2, "a", "policy"), (2, "b", "policy"), (2, "c", "safety")],
    ]
    frame = pd.DataFrame(rows, columns=["task", "worker", "labels"])
    table = LabelSetTable.from_frame(frame)
    assert round(krippendorff_alpha(table), 3) == 0.231
    assert krippendorff_alpha(table) == krippendorff_alpha(table.joined())


def test_two_empty_answers_are_equal():
    rows = [(1, "a", ""), (1, "b", ""), (2, "a", "x"), (2, "b", "x")]
    assert krippendorff_alpha(as_table(rows), distance="jaccard") == 1.0
    assert np.isnan(krippendorff_alpha(as_table([*rows[2:], (3, "a", "y")]), distance="masi"))


@pytest.mark.parametrize("distance", SLOW)
def test_an_interval_of_alpha_holds_it(distance):
    rng = np.random.default_rng(1)
    truth = rng.random((80, 5)) < 0.3
    ticks = truth.repeat(3, axis=0) ^ (rng.random((240, 5)) < 0.1)
    table = LabelSetTable.from_arrays(np.repeat(np.arange(80), 3), np.tile(np.arange(3), 80), ticks)
    value, low, high = jackknife(partial(krippendorff_alpha, distance=distance), table)
    np.testing.assert_allclose(value, krippendorff_alpha(table, distance=distance), atol=1e-12)
    assert 0.1 < low < value < high < 0.9


def test_alpha_of_each_option():
    table = as_table(RAGGED)
    found = option_agreement(table)
    assert found.options.tolist() == ["w", "x", "y", "z"]
    assert found.n_ticks.tolist() == [4, 5, 4, 4]
    np.testing.assert_allclose(found.share, np.array([4, 5, 4, 4]) / 11)
    for name, alpha in zip(found.options, found.alpha, strict=True):
        np.testing.assert_allclose(alpha, krippendorff_alpha(table.option(name)), atol=1e-12)
    with pytest.raises(AnnotationError, match="use class_agreement"):
        option_agreement(table.option("w"))


def test_what_does_not_go_together_is_refused(monkeypatch):
    table = as_table(BALANCED)
    with pytest.raises(AnnotationError, match="distance='dice' is unknown"):
        krippendorff_alpha(table, distance="dice")
    with pytest.raises(AnnotationError, match="these are single labels"):
        krippendorff_alpha(table.option("x"), distance="masi")
    with pytest.raises(AnnotationError, match="level='ordinal' and values= are for single labels"):
        krippendorff_alpha(table, level="ordinal")
    monkeypatch.setattr(set_distances, "MOST_SETS", 3)
    with pytest.raises(AnnotationError, match="6 different sets occur"):
        krippendorff_alpha(table, distance="masi")
    assert np.isfinite(krippendorff_alpha(table))
