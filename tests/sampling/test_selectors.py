"""Selectors of pseudo-annotations: quotas, the running best; samplers of tuplets, their loss."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.objectives import TupletLoss, hardness_error
from manyhands.sampling import TupletSampler, safe_instances
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


@settings(max_examples=33, deadline=None)
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


@settings(max_examples=20, deadline=None)
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


@settings(max_examples=13, deadline=None)
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
    with pytest.raises(AnnotationError, match=r"shape \(4, 4, 3\); give shape \(4, 5, 3\)"):
        select(ConfidenceSelector(), table, proba[:, :4], 3)


# -- safe instances (NeuCrowd, Def. 3), the drawing of n-tuplets (Def. 1), their loss (Def. 4) ----


# -- safe instances -------------------------------------------------------------------------------


def loop_safe(place, labels, assurance, k, margin):
    """Def. 3 word for word, without the instance itself; other classes one by one."""
    found = []
    for i in range(len(place)):
        others = [j for j in range(len(place)) if j != i]
        near = sorted(others, key=lambda j: ((place[i] - place[j]) ** 2).sum())[:k]
        sums = {c: sum(assurance[j] for j in near if labels[j] == c) for c in set(labels)}
        rivals = max(sums[c] for c in sums if c != labels[i])
        found.append(sums[labels[i]] > rivals + margin + 1e-9)
    return found


DRAWN = np.array([[0, 0], [0, 1], [1, 0], [1.1, 1.2], [5, 5], [5, 6.1], [6.2, 5], [4, 4.5]])
"""Four points about (0.5, 0.5), four about (5, 5); no two distances from a point are equal."""


def test_a_hand_drawn_case():
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    assurance = np.array([1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 0.4, 1.0])
    # Three neighbours: each of the first four has the other three of these; so have the last four.
    # 0: 0.5 + 0.5 = 1 against 1 of the stray 3. 1, 2: 1.5 against 1. 3: nothing against 2.
    # 4: 1.4 against 1 of the stray 7. 5: 1.4 against 1. 6: 2 against 1. 7: nothing.
    safe = safe_instances(DRAWN, labels, assurance, n_neighbors=3)
    assert safe.tolist() == [False, True, True, False, True, True, True, False]
    # A margin of .4 leaves 1.5 > 1.4; 1.4 > 1.4 is no more; one of .5 takes those too.
    safe = safe_instances(DRAWN, labels, assurance, n_neighbors=3, margin=0.4)
    assert safe.tolist() == [False, True, True, False, False, False, True, False]
    safe = safe_instances(DRAWN, labels, assurance, n_neighbors=3, margin=0.5)
    assert safe.tolist() == [False] * 6 + [True, False]


def test_equality_is_not_safe_even_where_rounding_says_so():
    place = np.array([[0.0], [1.0], [1.5], [-2.0], [2.5], [90.0], [91.0]])
    labels = np.array([0, 0, 0, 1, 1, 1, 0])
    # .1 + .2 is more than .3 by rounding alone.
    assurance = np.array([1.0, 0.1, 0.2, 0.3, 0.0, 1.0, 1.0])
    assert not safe_instances(place, labels, assurance, n_neighbors=4)[0]
    assurance[1] = 0.11
    assert safe_instances(place, labels, assurance, n_neighbors=4)[0]


def test_an_instance_does_not_vouch_for_itself():
    place = np.array([[0.0], [0.1], [5.0], [5.1]])
    labels = np.array([0, 1, 1, 1])
    assurance = np.array([1.0, 0.1, 1.0, 1.0])
    safe = safe_instances(place, labels, assurance, n_neighbors=1)
    assert safe.tolist() == [False, False, True, True]
    # Nor where others lie upon it, though then a search may put these first.
    upon = safe_instances(np.zeros((3, 2)), np.array([0, 1, 1]), np.ones(3), n_neighbors=2)
    assert upon.tolist() == [False, False, False]


def test_of_three_classes_the_strongest_other_counts_not_their_sum():
    place = np.array([[0.0], [1.0], [1.1], [-1.2], [50.0], [51.0], [60.0], [61.0]])
    labels = np.array([0, 0, 1, 2, 1, 1, 2, 2])
    assurance = np.array([1.0, 0.5, 0.4, 0.4, 1.0, 1.0, 1.0, 1.0])
    assert safe_instances(place, labels, assurance, n_neighbors=3)[0]
    assurance[3] = 0.6
    assert not safe_instances(place, labels, assurance, n_neighbors=3)[0]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 40), st.sampled_from([0.0, 0.7])
)
def test_safe_instances_equal_the_loop(seed, n_classes, k, margin):
    rng = np.random.default_rng(seed)
    place = rng.normal(size=(15, 2))
    labels = np.append(np.arange(n_classes), rng.integers(0, n_classes, 15 - n_classes))
    assurance = rng.integers(0, 6, 15) / 5
    found = safe_instances(place, labels, assurance, n_neighbors=k, margin=margin)
    # k beyond n - 1 are all of them.
    assert found.tolist() == loop_safe(place, labels, assurance, min(k, 14), margin)


def test_too_few_neighbours_are_named():
    with pytest.raises(AnnotationError, match="n_neighbors=0"):
        safe_instances(DRAWN, np.zeros(8, dtype=int), np.ones(8), n_neighbors=0)
    with pytest.raises(AnnotationError, match="among 1 instances"):
        safe_instances(DRAWN[:1], np.zeros(1, dtype=int), np.ones(1), n_neighbors=1)


# -- tuplets --------------------------------------------------------------------------------------


def assert_tuplets(tuplets, labels, size):
    """What Definition 1 asks for."""
    classes = labels[tuplets]
    assert tuplets.shape[1] == size
    assert (classes >= 0).all()
    assert (classes[:, 0] == classes[:, 1]).all()
    assert (tuplets[:, 0] != tuplets[:, 1]).all()
    assert (classes[:, 2:] != classes[:, :1]).all()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=6),
    st.integers(0, 3),
    st.integers(3, 7),
    st.lists(st.sampled_from([0.0, 1e-6, 0.3, 1.0, 7.5, 1e9, 1e18]), min_size=33, max_size=33),
    st.integers(0, 1000),
)
def test_members_are_of_the_right_class_whatever_counts_and_weights(
    counts, n_unknown, size, weights, seed
):
    labels = np.append(np.repeat(np.arange(len(counts)), counts), np.full(n_unknown, -1))
    rng = np.random.default_rng(seed)
    labels = rng.permutation(labels)
    if sum(n > 0 for n in counts) < 2 or max(counts) < 2:
        with pytest.raises(AnnotationError):
            TupletSampler(labels, size)
        return
    sampler = TupletSampler(labels, size)
    assert_tuplets(sampler.draw(200, rng), labels, size)
    assert_tuplets(sampler.draw(200, rng, np.array(weights[: len(labels)])), labels, size)


class Edge:
    """A generator whose every random number is the same: rounding shows at the ends of ranges."""

    def __init__(self, value):
        self.value = value

    def random(self, size):
        return np.full(size, self.value)

    def integers(self, n, size):
        return np.arange(size) % n


@pytest.mark.parametrize("value", [0.0, 0.5, 1 - 1e-9, np.nextafter(1.0, 0.0)])
@pytest.mark.parametrize(
    "weights",
    [[1] * 7, [0.1, 0.7, 0.3, 0.3, 0.9, 0.7, 0.1], [1e17, 1e17, 1, 1, 1, 0.1, 0.1], [0] * 7],
)
def test_rounding_at_the_ends_puts_nobody_into_another_class(weights, value):
    labels = np.array([0, 0, 1, 1, 2, 2, 2])
    drawn = TupletSampler(labels).draw(9, Edge(value), np.array(weights, dtype=float))
    assert_tuplets(drawn, labels, 5)


def test_frequencies_follow_the_weights():
    labels = np.array([0, 0, 0, 1, 1, 1, 2, -1])
    weights = np.array([4.0, 2.0, 0.0, 1.0, 1.0, 2.0, 8.0, 50.0])
    n = 60_000
    drawn = TupletSampler(labels, 4).draw(n, np.random.default_rng(0), weights)
    anchors = np.bincount(drawn[:, 0], minlength=8) / n
    # Half of the tuplets are of either class of several members, within it by weight.
    expected = np.array([4 / 6, 2 / 6, 0, 1 / 4, 1 / 4, 2 / 4, 0, 0]) / 2
    np.testing.assert_allclose(anchors, expected, atol=0.01)
    # The positive is another: after 3 and 4 with weights 1 : 2 (:1), and so on.
    after = np.bincount(drawn[drawn[:, 0] == 3, 1], minlength=8) / (drawn[:, 0] == 3).sum()
    np.testing.assert_allclose(after, [0, 0, 0, 0, 1 / 3, 2 / 3, 0, 0], atol=0.02)
    after = np.bincount(drawn[drawn[:, 0] == 5, 1], minlength=8) / (drawn[:, 0] == 5).sum()
    np.testing.assert_allclose(after, [0, 0, 0, 1 / 2, 1 / 2, 0, 0, 0], atol=0.02)
    # Negatives of class 0 by the weights of all others together, class 2's only member too.
    own = labels[drawn[:, 0]] == 0
    for column in (2, 3):
        rest = np.bincount(drawn[own, column], minlength=8) / own.sum()
        np.testing.assert_allclose(rest, [0, 0, 0, 1 / 12, 1 / 12, 2 / 12, 8 / 12, 0], atol=0.01)
        rest = np.bincount(drawn[~own, column], minlength=8) / (~own).sum()
        np.testing.assert_allclose(rest, [4 / 14, 2 / 14, 0, 0, 0, 0, 8 / 14, 0], atol=0.01)


def test_equal_weights_are_none():
    labels = np.arange(12) % 3
    plain = TupletSampler(labels).draw(500, np.random.default_rng(3))
    weighted = TupletSampler(labels).draw(500, np.random.default_rng(3), np.ones(12))
    np.testing.assert_array_equal(plain, weighted)
    share = np.bincount(plain.ravel(), minlength=12) / plain.size
    np.testing.assert_allclose(share, 1 / 12, atol=0.02)


def test_weights_far_apart_are_obeyed():
    labels = np.repeat([0, 1], 500)
    weights = np.where(np.arange(1000) % 500 == 7, 1.0, 1e-6)
    drawn = TupletSampler(labels).draw(20_000, np.random.default_rng(0), weights)
    assert (drawn[:, 0] % 500 == 7).mean() > 0.998
    assert (drawn[:, 2:] % 500 == 7).mean() > 0.998
    # Another positive than the favourite has to be found, and all others are alike.
    rest = np.bincount(drawn[drawn[:, 0] == 7, 1], minlength=1000)
    assert rest[7] == 0
    assert rest[:500].max() < 5 * rest[:500].sum() / 499


def test_a_class_without_weight_is_drawn_from_as_if_it_had_equal_ones():
    labels = np.array([0, 0, 0, 1, 1])
    weights = np.array([0.0, 0.0, 0.0, 1.0, 1.0])
    drawn = TupletSampler(labels).draw(9_000, np.random.default_rng(0), weights)
    assert_tuplets(drawn, labels, 5)
    of_zero = drawn[labels[drawn[:, 0]] == 0]
    np.testing.assert_allclose(np.bincount(of_zero[:, 0]) / len(of_zero), 1 / 3, atol=0.03)


def test_where_one_only_has_weight_the_others_are_its_positives():
    labels = np.array([0, 0, 0, 1, 1])
    weights = np.array([0.0, 1.0, 0.0, 1.0, 1.0])
    drawn = TupletSampler(labels).draw(4_000, np.random.default_rng(0), weights)
    of_zero = drawn[labels[drawn[:, 0]] == 0]
    assert set(of_zero[:, 0]) == {1}
    assert set(of_zero[:, 1]) == {0, 2}
    assert not (drawn[:, 2:] == 0).any(), "what has no weight is no negative"


def test_an_epoch_of_the_paper_takes_a_handful_of_draws():
    calls = []

    class Counting:
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def __getattr__(self, name):
            calls.append(name)
            return getattr(self.rng, name)

    labels = np.arange(400) % 3
    drawn = TupletSampler(labels).draw(60_000, Counting(), np.linspace(0.1, 1, 400))
    assert_tuplets(drawn, labels, 5)
    assert len(calls) <= 6, "random numbers are drawn by the tuplet"


def test_gaps_among_the_codes_and_the_same_seed():
    labels = np.array([7, 7, 2, 2, 2])
    first = TupletSampler(labels, 3).draw(50, np.random.default_rng(5))
    assert_tuplets(first, labels, 3)
    assert set(labels[first[:, 0]]) == {2, 7}
    np.testing.assert_array_equal(
        first, TupletSampler(labels, 3).draw(50, np.random.default_rng(5))
    )


@pytest.mark.parametrize(
    ("labels", "size", "message"),
    [
        ([0, 0, 1, 1], 2, "size=2"),
        ([1, 1, 1, -1], 5, "one class only"),
        ([-1, -1], 5, "one class only"),
        ([0, 1, 2], 5, "no class has two instances"),
    ],
)
def test_labels_that_make_no_tuplet_are_named(labels, size, message):
    with pytest.raises(AnnotationError, match=message):
        TupletSampler(np.array(labels), size)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_weight_that_is_none_is_refused(weight):
    sampler = TupletSampler(np.array([0, 0, 1, 1]))
    weights = np.array([1.0, 1.0, weight, 1.0])
    with pytest.raises(AnnotationError, match=r"weights\[2\] is"):
        sampler.draw(4, np.random.default_rng(0), weights)


EMBEDDING = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2])
ASSURANCE = torch.tensor([1.0, 0.5, 0.2, 0.0, 0.8, 0.4, 0.7], dtype=torch.float64)
TUPLETS = torch.tensor([[0, 2, 1, 3], [2, 5, 4, 4], [4, 1, 6, 5], [0, 5, 6, 3]])


def loop_loss(loss):
    """Loss of every tuplet, number by number: Def. 4, then the softmax of Section 3.3.3."""
    E, A, labels = EMBEDDING.tolist(), ASSURANCE.tolist(), LABELS.tolist()
    anchors = {}
    for c in set(labels):
        own = [t[0] for t in TUPLETS.tolist() if labels[t[0]] == c]
        if own:
            mass = sum(A[i] for i in own) if loss.normalize_anchor else 1.0
            anchors[c] = [sum(A[i] * E[i][d] for i in own) / mass for d in range(2)]
    found = []
    for first, *rest in TUPLETS.tolist():
        anchor = anchors[labels[first]] if loss.robust_anchor else E[first]
        terms = []
        for j in rest:
            similarity = loss.constant - math.dist(E[j], anchor)
            terms.append(
                math.exp(loss.eta * A[j] * similarity)
                if loss.form == "paper"
                else (A[j] + 1e-7) * math.exp(loss.eta * similarity)
            )
        found.append(-math.log(terms[0] / sum(terms)))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("form", ["paper", "code"])
@pytest.mark.parametrize("anchor", ["own", "robust", "printed"])
def test_the_loss_of_a_batch_equals_the_loop(form, anchor):
    loss = TupletLoss(
        3,
        robust_anchor=anchor != "own",
        normalize_anchor=anchor == "robust",
        eta=2.0,
        constant=1.5,
        form=form,
    )
    found = loss(EMBEDDING, TUPLETS, ASSURANCE, LABELS)
    assert found.shape == (4,)
    torch.testing.assert_close(found, loop_loss(loss))


def test_an_anchor_of_its_own_is_indifferent_to_other_tuplets_a_robust_one_is_not():
    alone = TUPLETS[1:2]
    for robust in (False, True):
        loss = TupletLoss(3, robust_anchor=robust)
        same = torch.allclose(
            loss(EMBEDDING, TUPLETS, ASSURANCE, LABELS)[1:2],
            loss(EMBEDDING, alone, ASSURANCE, LABELS),
        )
        assert same is not robust


def test_every_member_gets_a_gradient():
    embedding = EMBEDDING.clone().requires_grad_()
    TupletLoss(3)(embedding, TUPLETS, ASSURANCE, LABELS).sum().backward()
    reached = embedding.grad.abs().sum(dim=1) > 0
    # Instance 3 is in two tuplets, but its assurance is 0: a constant 1 in the paper's softmax.
    assert reached.tolist() == [True, True, True, False, True, True, True]


def test_the_hardness_error_is_the_mean_square():
    error = hardness_error(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 4.0, 2.0]))
    torch.testing.assert_close(error, torch.tensor((0 + 4 + 9) / 3))


def test_the_hardness_error_refuses_a_column_against_a_row():
    with pytest.raises(ValueError, match=r"predicted has shape \(3, 1\) and losses \(3,\)"):
        hardness_error(torch.zeros(3, 1), torch.zeros(3))
