"""Safe instances (NeuCrowd, Def. 3), the drawing of n-tuplets (Def. 1), and their loss (Def. 4)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.exceptions import AnnotationError
from manyhands.objectives import TupletLoss, hardness_error
from manyhands.sampling import TupletSampler, safe_instances

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


@settings(deadline=None)
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
    with pytest.raises(AnnotationError, match="of 1 instances"):
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


@settings(deadline=None)
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
