"""Selectors: quotas by hand, the running best against a full sort, and what is never chosen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.sampling.selectors import (
    ConfidenceSelector,
    DistributionAwareSelector,
    RandomSelector,
    SamplingSelector,
    class_quotas,
    entropy,
)

SELECTORS = (
    DistributionAwareSelector(),
    DistributionAwareSelector(refill=True),
    ConfidenceSelector(),
    RandomSelector(),
    SamplingSelector(),
)


def problem(seed=0, n=12, n_annotators=5, n_classes=3, share=0.4):
    rng = np.random.default_rng(seed)
    A = rng.integers(n_classes, size=(n, n_annotators))
    A[rng.random(A.shape) > share] = -1
    A[0, 0] = 0
    table = AnnotationTable.from_matrix(A, classes=list(range(n_classes)))
    proba = rng.dirichlet(np.full(n_classes, 0.5), size=(n, n_annotators))
    return table, proba, A


def batches(proba, size):
    for start in range(0, len(proba), size):
        rows = np.arange(start, min(start + size, len(proba)))
        yield rows, proba[rows]


def select(selector, table, proba, n_select, size=4, seed=0):
    return selector.select(batches(proba, size), table, n_select, np.random.default_rng(seed))


def cells_of(table):
    return set(zip(table.instance.tolist(), table.annotator.tolist(), strict=True))


# -- quotas (Eq. 3 and 4) ---------------------------------------------------------------------


def test_quotas_by_hand():
    # 1/60 : 1/30 : 1/20 = 1 : 2 : 3 of 24.
    assert class_quotas(np.array([60, 30, 20]), 24).tolist() == [4, 8, 12]
    # The rarest class has no more than it has; the others do not get the rest.
    assert class_quotas(np.array([60, 30, 5]), 60).tolist() == [4, 8, 5]
    # A fifth of 5 is whole, though not in floating point.
    assert class_quotas(np.full(5, 9), 5).tolist() == [1] * 5
    # A class that nobody is predicted to name, and no open cell at all.
    assert class_quotas(np.array([10, 0, 10]), 6).tolist() == [3, 0, 3]
    assert class_quotas(np.zeros(3, dtype=int), 6).tolist() == [0, 0, 0]


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=8),
    n_select=st.integers(1, 10**5),
)
def test_quotas_are_never_more_than_asked_for_or_there(counts, n_select):
    counts = np.array(counts)
    quotas = class_quotas(counts, n_select)
    assert (quotas >= 0).all()
    assert (quotas <= counts).all()
    assert quotas.sum() <= n_select


def test_entropy_by_hand():
    found = entropy(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]))
    np.testing.assert_allclose(found, [1.5 * np.log(2), 0.0, np.log(3)])
    assert np.signbit(found[1]) == np.False_


def test_classes_that_are_not_predicted_can_be_covered():
    table, proba, A = problem(share=0.3)
    proba[..., 2] = np.minimum(proba[..., 2], 0.9 * proba[..., :2].max(axis=2))
    selector = DistributionAwareSelector(cover_classes=True)
    n = int(np.bincount(A[A >= 0], minlength=3)[2] * 12 // (A >= 0).sum())
    for size in (1, 4, 100):
        found = select(selector, table, proba, 12, size)
        assert found.n_candidates[2] == 0
        assert found.n_selected[2] == n > 0
        chosen = {c: cells_of(found.table.take(found.table.label == c)) for c in range(3)}
        ranked = sorted((-proba[i, r, 2], (i, r)) for i, r in np.argwhere(A < 0))
        assert chosen[2] == {cell for _, cell in ranked[:n]}
        assert not chosen[2] & (chosen[0] | chosen[1])
        quotas = class_quotas(found.n_candidates, 12 - n)
        assert found.n_selected[:2].tolist() == quotas[:2].tolist()
    # Where every class is predicted it changes nothing.
    same = [select(s, *problem()[:2], 12).table for s in (selector, DistributionAwareSelector())]
    assert same[0].equals(same[1])


# -- what is chosen ---------------------------------------------------------------------------


def naive(table, proba, A):
    """Open cells in the order of their entropy: (entropy, cell, predicted class)."""
    found = []
    for i in range(len(proba)):
        for r in range(proba.shape[1]):
            if A[i, r] < 0:
                p = proba[i, r]
                h = -sum(x * np.log(x) for x in p if x > 0)
                found.append((h, (i, r), int(p.argmax())))
    return sorted(found)


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("n_select", [3, 7, 30, 1000])
def test_the_running_best_is_that_of_a_full_sort(size, n_select):
    table, proba, A = problem()
    ranked = naive(table, proba, A)
    counts = np.bincount([c for _, _, c in ranked], minlength=3)
    found = select(DistributionAwareSelector(), table, proba, n_select, size)
    np.testing.assert_array_equal(found.n_candidates, counts)
    quotas = class_quotas(counts, n_select)
    expected = {}
    for c in range(3):
        for _, cell, _ in [x for x in ranked if x[2] == c][: quotas[c]]:
            expected[cell] = c
    chosen = found.table
    pairs = zip(chosen.instance.tolist(), chosen.annotator.tolist(), strict=True)
    assert dict(zip(pairs, chosen.label.tolist(), strict=True)) == expected
    np.testing.assert_array_equal(found.n_selected, quotas)
    confident = select(ConfidenceSelector(), table, proba, n_select, size)
    assert cells_of(confident.table) == {cell for _, cell, _ in ranked[:n_select]}
    refilled = select(DistributionAwareSelector(refill=True), table, proba, n_select, size)
    rest = [cell for _, cell, _ in ranked if cell not in expected]
    more = set(rest[: max(0, n_select - len(expected))])
    assert cells_of(refilled.table) == set(expected) | more


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_select=st.integers(3, 40),
    share=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    which=st.sampled_from(range(len(SELECTORS))),
)
def test_no_cell_is_chosen_twice_or_over_what_is_there(seed, n_select, share, which):
    table, proba, A = problem(seed, share=share)
    heard = (A >= 0).any(axis=0)
    n_open = int((A[:, heard] < 0).sum())
    for round_ in range(3):
        found = select(SELECTORS[which], table, proba, n_select, seed=round_)
        added = cells_of(found.table)
        assert len(added) == found.table.n_annotations == found.n_selected.sum() <= n_select
        assert not added & cells_of(table)
        assert heard[found.table.annotator].all(), "nobody to imitate"
        assert (found.table.source == "pseudo").all()
        if which:  # all but the one that keeps its quotas
            assert len(added) == min(n_select, n_open)
        if not isinstance(SELECTORS[which], SamplingSelector):
            labels = proba[found.table.instance, found.table.annotator].argmax(axis=1)
            np.testing.assert_array_equal(found.table.label, labels)
        table = table.with_added(found.table)
        n_open -= len(added)
    assert table.observed.n_annotations == (A >= 0).sum()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n_select=st.integers(3, 30), size=st.integers(1, 12))
def test_ties_go_to_the_first_cell(seed, n_select, size):
    """Certain predictions all have entropy 0: which are taken must not depend on batches."""
    table, proba, A = problem(seed, share=0.3)
    rng = np.random.default_rng(seed)
    proba = np.eye(3)[rng.integers(3, size=A.shape)]
    proba[rng.random(A.shape) < 0.3] = [0.5, 0.25, 0.25]
    heard = (A >= 0).any(axis=0)
    cells = [(i, r) for i, r in np.argwhere(A < 0).tolist() if heard[r]]
    uncertain = {cell: proba[cell].max() < 1 for cell in cells}
    ranked = sorted(cells, key=lambda cell: (uncertain[cell], cell))
    found = select(ConfidenceSelector(), table, proba, n_select, size=size)
    assert cells_of(found.table) == set(ranked[:n_select])
    backwards = list(batches(proba, size))[::-1]
    found = ConfidenceSelector().select(backwards, table, n_select, np.random.default_rng(0))
    assert cells_of(found.table) == set(ranked[:n_select])
    labels = {cell: int(proba[cell].argmax()) for cell in cells}
    quotas = class_quotas(np.bincount(list(labels.values()), minlength=3), n_select)
    if quotas.any():
        expected = {
            cell
            for c, quota in enumerate(quotas)
            for cell in [cell for cell in ranked if labels[cell] == c][:quota]
        }
        found = select(DistributionAwareSelector(), table, proba, n_select, size=size)
        assert cells_of(found.table) == expected


def test_passes_are_no_open_cells():
    frame = {"task": [0, 0, 1, 1], "worker": [0, 1, 0, 1], "label": ["a", "?", "b", "a"]}
    import pandas as pd

    table = AnnotationTable.from_frame(pd.DataFrame(frame), abstain="?")
    proba = np.full((2, 2, 2), 0.5)
    found = select(ConfidenceSelector(), table, proba, 10)
    assert found.table.n_annotations == 0
    assert found.n_candidates.sum() == 0


def test_random_cells_are_uniform():
    table, proba, _ = problem(n=40, share=0.1)
    counts = np.zeros((40, 5))
    for seed in range(300):
        found = select(RandomSelector(), table, proba, 20, seed=seed).table
        np.add.at(counts, (found.instance, found.annotator), 1)
    drawn = counts[counts > 0]
    n_open = 40 * 5 - table.n_annotations
    assert len(drawn) == n_open
    expected = 300 * 20 / n_open
    assert abs(drawn - expected).max() < 6 * np.sqrt(expected)


def test_drawn_labels_are_as_frequent_as_they_are_probable():
    table, _, _ = problem()
    proba = np.broadcast_to([0.2, 0.0, 0.8], (12, 5, 3))
    n_open = 60 - table.n_annotations
    labels = np.zeros(3)
    for seed in range(200):
        found = select(SamplingSelector(), table, proba, 99, seed=seed)
        assert found.table.n_annotations == n_open
        np.testing.assert_array_equal(found.n_candidates, found.n_selected)
        labels += found.n_selected
    assert labels[1] == 0
    assert labels[0] / labels.sum() == pytest.approx(0.2, abs=0.02)
    one = select(SamplingSelector(), table, proba, 10, size=1).table
    assert one.equals(select(SamplingSelector(), table, proba, 10, size=12).table)
    certain = np.eye(3)[np.full((12, 5), 2)]
    assert set(select(SamplingSelector(), table, certain, 99).table.label) == {2}


def test_the_same_seed_chooses_the_same_cells():
    table, proba, _ = problem()
    first, second, other = (
        select(RandomSelector(), table, proba, 5, seed=seed).table for seed in (0, 0, 1)
    )
    assert first.equals(second)
    assert cells_of(first) != cells_of(other)


def test_what_does_not_fit_is_refused():
    table, proba, _ = problem()
    with pytest.raises(AnnotationError, match="n_select=0"):
        select(ConfidenceSelector(), table, proba, 0)
    with pytest.raises(AnnotationError, match=r"shape \(4, 4, 3\); \(4, 5, 3\) is needed"):
        select(ConfidenceSelector(), table, proba[:, :4], 3)
