"""Two classes are said to be mixed up only where annotators do so more often than by chance."""

import warnings

import numpy as np
import pytest

from manyhands import AnnotationTable, DawidSkene, summarize
from manyhands.report.confusions import Judged, by_chance, mixed_up


def crowd(seed, n_classes, *, mixing=0.0, n=300, n_annotators=15, per_item=3, constant=0):
    """Annotators right in 50 to 95 %; a share of the mistakes on classes 0 and 1 mixes these up.

    The first few annotators may always give class 0.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n)
    right = rng.random((n, n_annotators)) < rng.uniform(0.5, 0.95, n_annotators)
    wrong = (truth[:, None] + rng.integers(1, n_classes, right.shape)) % n_classes
    mixes = (rng.random(right.shape) < mixing) & (truth < 2)[:, None]
    A = np.where(right, truth[:, None], np.where(mixes, 1 - truth[:, None], wrong))
    A[:, :constant] = 0
    A[np.argsort(rng.random(A.shape), axis=1) >= per_item] = -1
    return AnnotationTable.from_matrix(A), truth


def told(table, **given):
    """The pairs of classes that a report says are mixed up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = summarize(table, aggregator=DawidSkene().fit(table), **given)
    return {frozenset((row["row"], row["column"])) for row in mixed_up(summary["confusions"])}, {
        each["code"] for each in summary["actions"]
    }


@pytest.mark.parametrize("constant", [0, 3])
@pytest.mark.parametrize("n_classes", [3, 5, 10, 20])
def test_random_mistakes_mix_up_no_classes(n_classes, constant):
    """5 % of tables may seem to: of four tables, two would be rare.

    Annotators who always give one class are no reason for other guidelines, either.
    """
    found = [told(crowd(seed, n_classes, constant=constant)[0]) for seed in range(4)]
    assert sum(bool(pairs) for pairs, _ in found) <= 1
    assert all(("explain" in steps) <= bool(pairs) for pairs, steps in found)


@pytest.mark.parametrize("by_gold", [False, True])
@pytest.mark.parametrize("n_classes", [5, 10])
def test_classes_that_are_mixed_up_are_named(n_classes, by_gold):
    named = []
    for seed in range(3):
        table, truth = crowd(seed, n_classes, mixing=0.8, n=600)
        pairs, steps = told(table, gold=truth if by_gold else None)
        assert frozenset((0, 1)) in pairs
        assert "explain" in steps
        named += pairs
    assert named.count(frozenset((0, 1))) >= len(named) - 2  # Both directions count with gold.


def test_all_mistakes_of_two_classes_mix_these_up():
    """Nothing can be compared with chance."""
    pairs, _ = told(crowd(0, 2)[0])
    assert pairs == {frozenset((0, 1))}


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["labelme", "music", "dog", "cf_amt", "web", "face_sentiment", "adult_content"]
)
def test_what_is_named_on_real_tables_is_so_by_gold(name):
    from benchmarks.real_tables import real

    data = real(name)
    pairs, _ = told(data.table)
    gold = np.where(data.gold >= 0, data.gold, 0)
    rows = np.flatnonzero(data.gold[data.table.instance] >= 0)
    truth = gold[data.table.instance[rows]]
    by_gold = Judged("gold", "", True, rows, truth, np.ones(len(rows)))
    c, chance = data.table.n_classes, by_chance(data.table, by_gold)
    n = np.bincount(truth * c + data.table.label[rows], minlength=c * c).reshape(c, c)
    assert pairs
    for a, b in pairs:
        assert n[a, b] + n[b, a] > 1.05 * (chance[a, b] + chance[b, a])
