"""Planning: gains against loops, what a batch may hold, stopping, review, screening, replay."""

import itertools
import math
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands import (
    AnnotationPlanner,
    AnnotationTable,
    DawidSkene,
    MajorityVote,
    make_crowd,
    next_annotations,
    review_queue,
)
from manyhands.decision.losses import best_value, expected_loss
from manyhands.exceptions import AnnotationError
from manyhands.metrics import accuracy_of_labels
from manyhands.planning import (
    Curves,
    Replay,
    choosing,
    forecast,
    replay,
    screen_annotators,
    teaching_sheet,
)
from manyhands.planning.beliefs import (
    Beliefs,
    beliefs_of,
    classifier_weight,
    combined,
    entropy,
    information,
    information_of_all,
    nearer_grades,
    of_pairs,
    right_labels,
    tempered,
)
from manyhands.planning.pool import Worlds
from manyhands.planning.screening import informedness
from manyhands.wording import percent


def crowd(n=40, per_instance=2, n_classes=3, seed=0, n_annotators=8):
    y = np.arange(n) % n_classes
    more = {"n_annotators": n_annotators, "annotations_per_instance": per_instance}
    return y, make_crowd(y, **more, random_state=seed)


def some_beliefs(seed=0, n=6, r=5, c=3):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(c), n), rng.dirichlet(np.ones(c), (r, c))


# -- gains -----------------------------------------------------------------------------------------


def eig_by_loop(q, pi):
    """Mutual information of class and annotation, from the joint distribution."""
    total = 0.0
    for k, label in itertools.product(range(len(q)), repeat=2):
        joint = q[k] * pi[k, label]
        if joint > 0:
            total += joint * math.log(
                joint / (q[k] * sum(q[j] * pi[j, label] for j in range(len(q))))
            )
    return total


def ere_by_loop(q, pi):
    """Expected probability of the best label after the annotation, by Bayes' rule."""
    after = 0.0
    for label in range(len(q)):
        p = sum(q[k] * pi[k, label] for k in range(len(q)))
        after += p * max(q[k] * pi[k, label] / p for k in range(len(q)))
    return after - max(q)


def pairs_of(gain, q, pi, power=None):
    i, r = np.indices((len(q), len(pi))).reshape(2, -1)
    power = np.ones(len(q)) if power is None else power
    return of_pairs(gain, q, pi, power, i, r).reshape(len(q), len(pi))


@pytest.mark.parametrize("seed", range(3))
def test_gains_equal_the_loops(seed):
    q, pi = some_beliefs(seed)
    for gain, loop in ((information, eig_by_loop), (right_labels, ere_by_loop)):
        expected = [[loop(row, matrix) for matrix in pi] for row in q]
        np.testing.assert_allclose(pairs_of(gain, q, pi), expected, atol=1e-12)
    expected = pairs_of(information, q, pi)
    np.testing.assert_allclose(information_of_all(q, pi, np.ones(len(q))), expected, atol=1e-6)


def test_gains_by_hand():
    q = np.array([[0.5, 0.5], [0.9, 0.1]])
    sure, coin, weak = np.eye(2), np.full((2, 2), 0.5), np.array([[0.8, 0.2], [0.2, 0.8]])
    pi = np.stack([sure, coin, weak])
    eig = pairs_of(information, q, pi)
    assert eig[0, 0] == pytest.approx(math.log(2))  # A certain answer tells all there is.
    assert eig[:, 1] == pytest.approx(0, abs=1e-12)
    assert eig[0, 2] == pytest.approx(math.log(2) + 0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    ere = pairs_of(right_labels, q, pi)
    # From .5 to .8; from .9, an annotator who is right in .8 cannot turn the label.
    np.testing.assert_allclose(ere, [[0.5, 0, 0.3], [0.1, 0, 0]], atol=1e-12)


def grades_by_loop(q, matrix):
    """Expected distance of the best label from the truth, before and after an answer."""
    k = np.arange(len(q))
    least = lambda p: min((p * abs(k - d)).sum() for d in k)  # noqa: E731
    return least(q) - sum(least(q * matrix[:, given]) for given in k)


@pytest.mark.parametrize("seed", range(3))
def test_gains_in_grades_equal_the_loops(seed):
    q, pi = some_beliefs(seed)
    expected = [[grades_by_loop(row, matrix) for matrix in pi] for row in q]
    np.testing.assert_allclose(pairs_of(nearer_grades, q, pi), expected, atol=1e-12)
    q, pi = some_beliefs(seed, c=2)  # Of two classes a grade is a label.
    np.testing.assert_allclose(
        pairs_of(nearer_grades, q, pi), pairs_of(right_labels, q, pi), atol=1e-12
    )


def test_the_loss_of_grades_is_their_distance():
    q = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.0, 0.0, 0.5]])
    loss = [expected_loss(q, np.full(2, d), ordered=True) for d in range(4)]
    np.testing.assert_allclose(np.stack(loss, axis=1), q @ abs(np.subtract.outer(*[range(4)] * 2)))
    np.testing.assert_allclose(-best_value(q, ordered=True), np.min(loss, axis=0))
    assert (expected_loss(q, np.array([3, 0])) == 1 - q[[0, 1], [3, 0]]).all()


def grades(seed=0, n=120, r=8, k=5):
    """Grades by annotators who are a grade or two off, and their truth."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    given = (y[:, None] + np.rint(rng.normal(size=(n, r)) * np.linspace(0.4, 1.4, r))).clip(
        0, k - 1
    )
    given[rng.random((n, r)) < 0.5] = np.nan
    return AnnotationTable.from_matrix(given, classes=range(k), ordered=True), y


def test_grades_are_reviewed_and_bought_by_their_distance():
    table, _ = grades()
    model = DawidSkene().fit(table)
    queue = review_queue(model, table)
    assert queue.grades_off is not None
    assert (np.diff(queue.grades_off) <= 1e-9).all()
    assert (queue.grades_off >= queue.scores - 1e-9).all()  # Whoever is wrong is a grade off.
    assert (queue.grades_off > queue.scores + 0.05).any()
    assert list(queue.to_columns())[-1] == "grades_off"
    planner = AnnotationPlanner(criterion="accuracy", random_state=0).fit(table)
    batch, stopping = planner.suggest(10), planner.stopping()
    found, _ = beliefs_of(planner.aggregator_, table)
    place = {instance: k for k, instance in enumerate(table.instances.tolist())}
    who = {annotator: k for k, annotator in enumerate(table.annotators.tolist())}
    i, r = [place[a] for a, _ in batch], [who[b] for _, b in batch]
    gain = of_pairs(nearer_grades, found.posterior, found.confusion, found.power, np.array(i),
                    np.array(r))  # fmt: skip
    np.testing.assert_allclose(batch.expected_gain, gain, rtol=1e-9)
    assert stopping.unit == "grade"
    assert "grade" in stopping.reason
    names = table.with_scale("nominal")
    plain = AnnotationPlanner(random_state=0).fit(names)
    assert plain.stopping().unit == "label"
    assert review_queue(DawidSkene().fit(names), names).grades_off is None


def test_an_order_of_two_classes_changes_no_bit():
    _, table = crowd(n=100, per_instance=5, n_classes=2)
    two = table.with_scale("ordinal")
    posterior = DawidSkene().fit(table).posterior_
    queues = [review_queue(posterior, each).to_columns() for each in (table, two)]
    assert queues[0] == queues[1]
    plans = [AnnotationPlanner(random_state=0).fit(each, model=posterior) for each in (table, two)]
    first, second = (plan.suggest(20).to_columns() for plan in plans)
    assert first == second


def test_a_tempered_annotation_tells_less():
    weak = np.array([[0.8, 0.2], [0.2, 0.8]])
    np.testing.assert_allclose(tempered(weak, 0.5), np.array([[2, 1], [1, 2]]) / 3)
    q, pi = some_beliefs()
    powers = np.linspace(1.0, 0.3, len(q))
    found = pairs_of(information, q, pi, powers)
    for row, power in enumerate(powers):
        expected = pairs_of(information, q[[row]], tempered(pi, power))
        np.testing.assert_allclose(found[[row]], expected, atol=1e-12)
    np.testing.assert_allclose(information_of_all(q, pi, powers), found, atol=1e-6)
    assert (found[1:] < pairs_of(information, q, pi)[1:]).all()


@given(st.integers(0, 10**6), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_information_lies_between_nothing_and_the_entropy(seed, n_classes):
    q, pi = some_beliefs(seed, c=n_classes)
    eig, ere = pairs_of(information, q, pi), pairs_of(right_labels, q, pi)
    assert (eig >= 0).all()
    assert (eig <= entropy(q)[:, None] + 1e-9).all()
    assert (ere >= 0).all()
    assert (ere <= 1 - q.max(axis=1)[:, None] + 1e-9).all()


# -- beliefs ---------------------------------------------------------------------------------------


def test_a_classifier_joins_by_bayes():
    confusion = np.array([[[0.8, 0.2], [0.4, 0.6]], [[0.7, 0.3], [0.1, 0.9]]])
    A = np.array([[0, 1], [1, -1], [-1, -1]])
    table = AnnotationTable.from_matrix(A)
    flat = np.full((3, 2), 0.5)
    found = Beliefs(flat, confusion, flat[0], np.eye(2), np.array([2, 1, 0]), 0.5)
    proba = np.array([[0.2, 0.8], [0.6, 0.4], [0.9, 0.1]])
    power = 1 / 1.5  # Two annotators whose mistakes are correlated by a half.
    product = np.array(
        [
            [(0.8 * 0.3) ** power * 0.2**2, (0.4 * 0.9) ** power * 0.8**2],
            [0.2 * 0.6**2, 0.6 * 0.4**2],
            [0.9**2, 0.1**2],
        ]
    )
    expected = product / product.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(combined(found, table, proba, 2.0), expected, atol=1e-9)


def test_a_classifier_tells_annotators_apart_where_nobody_annotated_twice():
    y = np.arange(200) % 2
    rng = np.random.default_rng(0)
    who = np.arange(200) // 2 % 2
    label = np.where((who == 0) | (rng.random(200) < 0.5), y, 1 - y)
    table = AnnotationTable.from_arrays(np.arange(200), who, label)
    proba = np.where(np.arange(2) == y[:, None], 0.8, 0.2)
    planner = AnnotationPlanner(random_state=0).fit(table, proba=proba, gold={0: 1})
    found, _ = beliefs_of(planner.aggregator_, table, proba)
    np.testing.assert_array_equal(planner.posterior_, found.posterior)
    good, bad = found.confusion.diagonal(axis1=1, axis2=2).mean(axis=1)
    assert good > bad + 0.2
    assert planner.posterior_[0].tolist() == [0, 1]  # Gold stays.
    assert planner.suggest(10).n_warm_up == 0


def test_the_weight_follows_what_the_classifier_knows():
    y, table = crowd(300, 3, seed=1)
    rng = np.random.default_rng(0)
    good = np.full((300, 3), 0.1)
    good[np.arange(300), y] = 0.8
    found, b = beliefs_of(DawidSkene().fit(table), table, good)
    assert b > 0
    assert found.posterior[np.arange(300), y].mean() > 0.9
    assert beliefs_of(DawidSkene().fit(table), table, rng.dirichlet(np.ones(3), 300))[1] <= 0.25
    alone = table.take(np.unique(table.instance, return_index=True)[1])
    plain, _ = beliefs_of(np.full((300, 3), 1 / 3), alone)
    assert classifier_weight(plain, alone, good) == 1.0


def test_models_without_matrices_get_smoothed_ones():
    _, table = crowd(30, 2)
    found, _ = beliefs_of(MajorityVote().fit(table), table)
    assert found.confusion.shape == (8, 3, 3)
    np.testing.assert_allclose(found.confusion.sum(axis=2), 1)
    assert found.confusion.min() > 0  # Nobody is taken for infallible after a few annotations.


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_what_cannot_be_believed_is_refused():
    _, table = crowd()
    with pytest.raises(AnnotationError, match="DawidSkene has no posterior_"):
        beliefs_of(DawidSkene(), table)
    with pytest.raises(AnnotationError, match=r"model has shape \(3, 3\)"):
        beliefs_of(np.full((3, 3), 1 / 3), table)
    fitted = DawidSkene().fit(crowd(n_classes=2)[1])
    with pytest.raises(AnnotationError, match="model has the classes"):
        beliefs_of(fitted, table)


# -- batches ---------------------------------------------------------------------------------------

CRITERIA = ("information", "accuracy", "entropy", "fewest")
WAYS = tuple(itertools.product(CRITERIA, ("choose", "arriving", "any")))


@pytest.fixture(params=["listed", "many"])
def size(request, monkeypatch):
    """Run small tables also by the way of large ones."""
    if request.param == "many":
        monkeypatch.setattr(choosing, "LISTED", 0)
    return request.param


def annotated(table):
    return set(zip(table.instances[table.instance], table.annotators[table.annotator], strict=True))


@pytest.mark.parametrize(("criterion", "annotators"), WAYS)
def test_a_batch_asks_what_is_open_and_no_instance_twice(criterion, annotators, size):
    _, table = crowd(40, 3)
    planner = AnnotationPlanner(
        criterion=criterion, annotators=annotators, load=1.5, random_state=0
    ).fit(table)
    mask = np.random.default_rng(0).random(table.shape) < 0.5
    batch = planner.suggest(12, mask)
    assert len(batch) == 12
    assert len(set(batch.instances.tolist())) == 12
    assert not annotated(table) & set(batch)
    i = np.searchsorted(table.instances, batch.instances)
    r = np.searchsorted(table.annotators, batch.annotators)
    assert mask[i, r].all()
    assert np.bincount(r).max() <= math.ceil(1.5 * 12 / 8)
    again = planner.suggest(12, mask)
    assert list(again) == list(batch)
    assert (again.scores == batch.scores).all()
    listed = [(table.instances[i], table.annotators[r]) for i, r in np.argwhere(mask)]
    if size == "listed":
        assert list(planner.suggest(12, listed)) == list(batch)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_batches_keep_to_any_list(data):
    n, r = data.draw(st.integers(4, 20)), data.draw(st.integers(2, 5))
    _y, table = crowd(n, 1, 2, data.draw(st.integers(0, 99)), r)
    if table.n_classes < 2 or not table.mask_of_classes_seen().all():
        return
    cells = st.tuples(
        st.sampled_from(table.instances.tolist()), st.sampled_from(table.annotators.tolist())
    )
    pairs = data.draw(st.lists(cells, min_size=1, max_size=30))
    open_pairs = set(pairs) - annotated(table)
    way = data.draw(st.sampled_from(WAYS))
    load = data.draw(st.sampled_from([None, 1, 2.5]))
    warm_up = data.draw(st.sampled_from([0, 1.5]))
    planner = AnnotationPlanner(
        criterion=way[0], annotators=way[1], load=load, warm_up=warm_up, random_state=0
    ).fit(table)
    if not open_pairs:
        with pytest.raises(AnnotationError, match="nothing to ask"):
            planner.suggest(1, pairs)
        return
    possible = len({instance for instance, _ in open_pairs})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batch = planner.suggest(possible, iter(pairs))
    assert set(batch) <= open_pairs
    assert len({instance for instance, _ in batch}) == len(batch)
    assert (len(batch) < possible) == bool(caught)
    assert load is not None or not caught


def test_the_best_pair_comes_first(size):
    _y, table = crowd(60, 3)
    for criterion, gain in (("information", information), ("accuracy", right_labels)):
        planner = AnnotationPlanner(criterion=criterion, random_state=0).fit(table)
        belief, _ = beliefs_of(planner.aggregator_, table, None)
        value = pairs_of(gain, belief.posterior, belief.confusion, belief.power)
        value[table.instance, table.annotator] = -1
        batch = planner.suggest(1)
        if criterion == "information" or size == "listed":
            assert batch.scores[0] == pytest.approx(value.max(), rel=0.02)
        ere = pairs_of(right_labels, belief.posterior, belief.confusion, belief.power)
        i, r = (
            np.searchsorted(table.instances, batch.instances),
            np.searchsorted(table.annotators, batch.annotators),
        )
        np.testing.assert_allclose(batch.expected_gain, ere[i, r], atol=1e-9)


def test_annotations_are_counted_and_entropy_is_that_of_labels():
    A = np.array([[0, 0, -1, -1], [0, 1, -1, -1], [1, -1, -1, -1], [1, 1, 1, -1]])
    fewest = AnnotationPlanner(criterion="fewest", warm_up=0, random_state=0).fit(A)
    assert fewest.suggest(4).instances.tolist()[0] == 2
    assert fewest.suggest(4).instances.tolist()[3] == 3
    assert fewest.suggest(4).scores.tolist() == [-1, -2, -2, -3]
    unsure = AnnotationPlanner(criterion="entropy", warm_up=0, random_state=0).fit(A)
    assert unsure.suggest(1).instances.tolist() == [1]


def test_equal_instances_are_taken_at_random():
    A = np.tile([[0, 0, -1], [1, 1, -1]], (20, 1))
    taken = {
        AnnotationPlanner(random_state=seed).fit(A).suggest(1).instances[0] for seed in range(8)
    }
    assert len(taken) > 3


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_the_warm_up_spreads_annotations_first():
    _y, table = crowd(40, 1)
    batch = AnnotationPlanner(random_state=0).fit(table).suggest(30)
    missing = 60 - table.n_annotations
    assert batch.n_warm_up == missing > 0
    assert AnnotationPlanner(warm_up=0, random_state=0).fit(table).suggest(30).n_warm_up == 0


def test_a_price_turns_the_choice(size):
    _y, table = crowd(60, 4)
    favourite = AnnotationPlanner(random_state=0).fit(table).suggest(5).annotators[0].item()
    dear = AnnotationPlanner(cost={favourite: 1000.0}, random_state=0).fit(table)
    assert favourite not in dear.suggest(5).annotators.tolist()
    prices = np.where(table.annotators == favourite, 1000.0, 1.0)
    assert list(AnnotationPlanner(cost=prices, random_state=0).fit(table).suggest(5)) == list(
        dear.suggest(5)
    )


def test_exploring_gives_work_to_those_of_whom_little_is_known():
    y, rng = np.arange(400) % 2, np.random.default_rng(0)
    A = np.where(rng.random((400, 6)) < 0.8, y[:, None], 1 - y[:, None])
    A[rng.random(A.shape) < 0.6] = -1
    A[:, 5] = -1  # Nothing is known of the last.
    asked = [
        AnnotationPlanner(warm_up=0, explore=explore, random_state=seed).fit(A).suggest(30)
        for explore, seed in ((False, 0), *((True, seed) for seed in range(8)))
    ]
    share = [(batch.annotators == 5).mean() for batch in asked]
    assert share[0] == 0 < np.mean(share[1:]) < 0.9
    planner = AnnotationPlanner(warm_up=0, explore=True, random_state=7).fit(A)
    assert list(planner.suggest(30)) == list(asked[-1])
    known, _ = beliefs_of(planner.aggregator_, planner.table_, None)
    known = known.as_crowd(planner.is_unjudged_)
    batch = asked[-1]  # Gains are those of the mean matrices.
    ere = pairs_of(right_labels, known.posterior, known.confusion, known.power)
    np.testing.assert_allclose(batch.expected_gain, ere[batch.instances, batch.annotators])
    assert planner.suggest(2, [(0, 77), (1, 78), (2, 79)]).annotators.min() >= 77


def test_arrivals_come_as_often_as_before():
    y = np.arange(400) % 2
    busy = np.repeat(np.arange(400), 2), np.tile([0, 1], 400)
    rare = np.arange(8), np.full(8, 2)
    i, r = np.concatenate([busy[0], rare[0]]), np.concatenate([busy[1], rare[1]])
    table = AnnotationTable.from_arrays(i, r, y[i], n_annotators=4, classes=[0, 1])
    ways = {
        way: AnnotationPlanner(annotators=way, random_state=0).fit(table)
        for way in ("arriving", "any")
    }
    newcomers = {way: (p.suggest(100).annotators == 3).mean() for way, p in ways.items()}
    assert newcomers["arriving"] < 0.3 < newcomers["any"] * 2


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_gold_is_not_asked_and_nobody_is_asked_again_after_a_pass():
    A = np.array([[0, 1, -1], [0, 1, -1], [1, 0, -1], [0, 1, -1]])
    planner = AnnotationPlanner(warm_up=0, random_state=0).fit(A, gold={0: 1, 1: 0})
    assert sorted(planner.suggest(2).instances.tolist()) == [2, 3]
    table = AnnotationTable.from_arrays(
        [0, 0, 1, 1, 1], list("ababc"), ["x", "y", "x", "y", "?"], abstain="?"
    )
    assert list(AnnotationPlanner(random_state=0).fit(table).suggest(1)) == [(0, "c")]


def test_new_instances_and_newcomers_may_be_named_in_pairs():
    _y, table = crowd(30, 3)
    planner = AnnotationPlanner(random_state=0, warm_up=0).fit(table)
    batch = planner.suggest(2, [(1000, 77), (1001, 78), (0, 77)])
    assert set(batch) <= {(1000, 77), (1001, 78), (0, 77)}
    assert batch.instances.tolist()[0] >= 1000  # Nothing is known of it.
    assert len(planner.next_for(99, 4)) == 4
    known = table.annotators[0].item()
    mine = planner.next_for(known, 3)
    assert mine.annotators.tolist() == [known] * 3
    assert not set(mine) & annotated(table)


def test_annotators_leave_and_instances_vanish():
    _y, table = crowd(30, 3)
    there, open_rows = table.annotators[:3].tolist(), table.instances[10:].tolist()
    planner = AnnotationPlanner(random_state=0).fit(table)
    batch = planner.suggest(10, itertools.product(open_rows, there))
    assert set(batch.annotators.tolist()) <= set(there)
    assert set(batch.instances.tolist()) <= set(open_rows)


def test_what_leaves_nothing_to_ask_is_said():
    _y, table = crowd(10, 3)
    planner = AnnotationPlanner(random_state=0).fit(table)
    nothing = np.zeros(table.shape, dtype=bool)
    asked = sorted(annotated(table))
    for pairs, why in (
        (nothing, "allows none of the 10 x 8 pairs"),
        ([], "allows none"),
        (asked, f"allows {len(asked)} of 10 x 8 pairs, and each of them is annotated"),
        (iter(asked[:4]), "allows 4 of 10 x 8"),
        (asked[:1], "the only pair that it allows is annotated"),
    ):
        with pytest.raises(AnnotationError, match=f"pairs leaves nothing to ask: .*{why}"):
            planner.suggest(1, pairs)
    table = AnnotationTable.from_matrix([[0, 1], [1, 0], [1, 1]])
    with pytest.raises(AnnotationError, match="nothing is left to ask: each of the 3 x 2 pairs"):
        AnnotationPlanner(random_state=0).fit(table).suggest(1)
    found = planner.stopping(pairs=nothing)
    assert found.stop
    assert found.reason == "no pair may be asked"
    with pytest.warns(UserWarning, match="only 2 of 5 pairs"):
        planner.suggest(5, nothing | (np.arange(10) < 2)[:, None])
    with pytest.raises(AnnotationError, match="n=0 must be"):
        planner.suggest(0)
    with pytest.raises(AnnotationError, match=r"mask of shape \(2, 2\)"):
        planner.suggest(1, np.ones((2, 2), dtype=bool))
    with pytest.raises(AnnotationError, match=r"pairs holds \(1, 2, 3\)"):
        planner.suggest(1, [(1, 2, 3)])
    with pytest.raises(AnnotationError, match="pairs holds 7"):
        planner.suggest(1, 7)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cost": {0: -1.0}}, "cost holds -1.0"),
        ({"cost": {"nobody": 1.0}}, "cost"),
        ({"cost": [1.0]}, "cost has shape"),
        ({"criterion": "luck"}, "criterion"),
        ({"load": 0}, "load"),
        ({"explore": 2}, "explore"),
        ({"warm_up": -1}, "warm_up"),
    ],
)
def test_bad_parameters_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        AnnotationPlanner(**options).fit(crowd()[1])


def test_one_call_does_the_same():
    _y, table = crowd()
    expected = AnnotationPlanner(criterion="accuracy", random_state=3).fit(table).suggest(4)
    assert list(next_annotations(table, 4, criterion="accuracy", random_state=3)) == list(expected)
    assert list(expected.to_columns()) == ["task", "worker", "score", "expected_gain"]
    assert len(expected.to_frame()) == 4
    assert "4 pairs" in repr(expected)


# -- stopping --------------------------------------------------------------------------------------


def test_stopping_says_what_the_next_batch_adds():
    _y, table = crowd(200, 2, n_annotators=20)
    planner = AnnotationPlanner(random_state=0).fit(table)
    gain = planner.suggest(20).expected_gain.mean()
    found = planner.stopping(min_gain=gain / 2)
    assert not found.stop
    assert found.marginal_gain == pytest.approx(gain)
    assert planner.stopping(min_gain=2 * gain).stop
    assert found.accuracy is None
    few = AnnotationPlanner(random_state=0).fit(crowd(40, 1)[1]).stopping(min_gain=1.0)
    assert not few.stop
    assert "warm-up" in few.reason


def test_an_audit_gives_the_level():
    y, table = crowd(200, 5, n_annotators=20)
    planner = AnnotationPlanner(random_state=0).fit(table)
    rows = np.random.default_rng(0).choice(200, 50, replace=False)
    found = planner.stopping(audit=dict(zip(table.instances[rows].tolist(), y[rows], strict=True)))
    assert found.n_audited == 50
    # With what the model expects, which counts as ten labels.
    assert found.accuracy == pytest.approx((planner.labels_[rows] == y[rows]).mean(), abs=0.03)
    assert found.low <= found.accuracy <= found.high
    gold = {table.instances[rows[0]].item(): y[rows[0]]}
    with pytest.raises(AnnotationError, match="was given to fit as gold"):
        AnnotationPlanner().fit(table, gold=gold).stopping(audit=gold)


# -- replay ----------------------------------------------------------------------------------------


def test_replay_scores_what_was_bought():
    y, table = crowd(40, 6, n_annotators=12)
    found = replay(table, y, budget=2.5, n_runs=2, random_state=0)
    assert found.sizes.tolist() == np.arange(1, 2.6, 0.25).tolist()
    assert list(found.curves) == ["plan", "uniform", "random"]
    for curves in found.curves.values():
        assert curves.accuracy.shape == (2, 7)
        assert (curves.accuracy[:, 0] == found.curves["plan"].accuracy[:, 0]).all()
    assert np.isnan(found.curves["plan"].gain[:, 0]).all()
    assert (found.curves["plan"].gain[:, 1:] >= 0).all()
    assert found.area("plan", 2, 2.5).shape == (2,)
    frame = found.to_frame()
    assert len(frame) == 21
    sizes = ["annotations_per_instance", "annotations"]
    assert list(frame) == ["policy", *sizes, "accuracy", "gain", "sd"]
    assert frame["annotations"].max() == 100
    assert replay(table, y, batch=[3], n_runs=1).sizes.tolist() == [1, 3]
    # A rest is a batch of its own, unless it is hardly one.
    for budget, sizes in ((2.2, [1, 1.6, 2.2]), (2.203, [1, 1.6, 2.203]), (1.001, [1, 1.001])):
        assert np.allclose(replay(table, y, budget=budget, batch=0.6, n_runs=1).sizes, sizes)
    assert len(replay(table, y, budget=2.3, batch=0.6, n_runs=1).sizes) == 4


def test_in_the_end_everything_is_bought():
    y = np.arange(40) % 2
    A = np.where(np.random.default_rng(0).random((40, 4)) < 0.3, 1 - y[:, None], y[:, None])
    everything = (DawidSkene().fit(A).labels_ == y).mean()
    for curves in replay(A, y, batch=1, n_runs=1).curves.values():
        assert curves.accuracy[0, -1] == everything


def test_the_curve_says_where_an_accuracy_is_reached():
    curve = np.array([[0.5, 0.8, 0.7, 0.9, 0.9]])
    found = Replay(np.arange(1, 6), {"plan": Curves(curve, curve, curve)}, 10)
    assert found.reaches("plan", 0.75) == 4
    assert found.reaches("plan", 0.4) == 1
    assert found.reaches("plan", 0.95) == math.inf
    assert found.area("plan", 1, 3).tolist() == [pytest.approx((0.65 + 0.75) / 2)]


def test_a_plan_beats_chance_where_annotators_differ():
    y = np.arange(120) % 2
    table = make_crowd(y, n_annotators=10, annotations_per_instance=8, spammers=0.5, random_state=0)
    found = replay(table, y, budget=4, batch=0.5, n_runs=2)
    area = {name: found.area(name, 2, 4).mean() for name in found.curves}
    assert area["plan"] > area["uniform"] + 0.02


MORTAL = """
import itertools, os, signal, sys
sys.path.insert(0, {tests!r})
from test_planning import AnnotationPlanner, crowd, replay
fit, fits = AnnotationPlanner.fit, itertools.count()
def mortal(self, *given, **more):
    if next(fits) == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return fit(self, *given, **more)
AnnotationPlanner.fit = mortal
y, table = crowd(40, 5, n_annotators=8)
replay(table, y, AnnotationPlanner(criterion="accuracy"), 3, n_runs=2, folder={folder!r})
"""


@pytest.mark.slow
def test_a_killed_replay_goes_on_and_gives_the_same_curves(tmp_path, monkeypatch):
    program = MORTAL.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    begun = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    assert begun[0].stat().st_size
    with begun[0].open("a") as file:
        file.write('{"accuracy": 0.1')  # A line that was cut.
    fits, fit = itertools.count(), AnnotationPlanner.fit

    def counted(self, *given, **more):
        next(fits)
        return fit(self, *given, **more)

    monkeypatch.setattr(AnnotationPlanner, "fit", counted)
    y, table = crowd(40, 5, n_annotators=8)
    arguments = (table, y, AnnotationPlanner(criterion="accuracy"), 3)
    resumed = replay(*arguments, n_runs=2, folder=tmp_path)
    later = next(fits)
    whole = replay(*arguments, n_runs=2)
    assert later < next(fits) - later - 1  # The batches before the kill are not bought again.
    for name, curves in whole.curves.items():
        for values, others in zip(curves, resumed.curves[name], strict=True):
            np.testing.assert_array_equal(values, others)
    before = next(fits)
    replay(*arguments, n_runs=2, folder=tmp_path)
    assert next(fits) == before + 1  # Nothing is fitted again.
    assert len(list(tmp_path.iterdir())) == 6
    replay(table, y[::-1], budget=1.5, n_runs=1, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 9  # Other gold is another study.


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_a_forecast_follows_the_pilot():
    _y, table = crowd(60, 3, 2, n_annotators=10)
    found = forecast(table, budget=5, batch=1, n_runs=2)
    pilot = table.n_annotations / 60
    np.testing.assert_allclose(found.sizes, [*np.arange(pilot, 5), 5])
    mean = found.curves["plan"].accuracy.mean(axis=0)
    assert (np.diff(mean) > 0).all()
    model = DawidSkene().fit(table)
    level = accuracy_of_labels(table, model.labels_, model.posterior_)
    assert mean[0] == pytest.approx(level.value)
    audited = forecast(table, budget=5, batch=1, n_runs=2, level=0.5).curves["plan"].accuracy
    np.testing.assert_allclose(audited.mean(axis=0) - 0.5, mean - mean[0], atol=1e-12)
    first = AnnotationPlanner(random_state=0).fit(table).stopping(n=60)
    np.testing.assert_allclose(found.curves["plan"].gain[:, 1], first.marginal_gain, rtol=0.05)
    again = forecast(table, {"plan": AnnotationPlanner()}, budget=5, batch=1, n_runs=2)
    assert (again.curves["plan"].accuracy == found.curves["plan"].accuracy).all()


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_a_forecast_ends_where_everything_that_may_be_asked_is_annotated():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=50)
    A = np.where(rng.random((50, 4)) < 0.8, y[:, None], 1 - y[:, None])
    A[:10, 3] = -1
    short = {"batch": 1, "n_runs": 1}
    found = forecast(A, **short)
    assert found.sizes.tolist() == [3.8, 4.0]
    known = np.where(np.arange(50) < 4, y, -1)
    found = forecast(A, gold=known, budget=9, **short)  # Nobody is asked about a known label.
    assert found.sizes[-1] == pytest.approx(3.8 + 6 / 50)
    with pytest.raises(AnnotationError, match="nothing is left to ask"):
        forecast(np.where(A < 0, 0, A), **short)


def test_a_random_sample_is_judged_once_by_a_forecast_and_not_in_every_round(monkeypatch):
    y, table = crowd(60, 3, n_annotators=6)
    known = {"gold": dict(enumerate(y[:20].tolist())), "random_gold": list(range(20))}
    judge, judged = DawidSkene._out_of_fold, []
    monkeypatch.setattr(
        DawidSkene, "_out_of_fold", lambda self, rows: judged.append(1) or judge(self, rows)
    )
    options = {"budget": 5, "batch": 1, "n_runs": 1, **known}
    found = forecast(table, {"plan": AnnotationPlanner()}, **options).curves["plan"]
    assert len(judged) == 1
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(AnnotationPlanner, "_judges_sample", always)
    slow = forecast(table, {"plan": AnnotationPlanner()}, **options).curves["plan"]
    assert len(judged) > 3
    np.testing.assert_array_equal(found, slow)


def test_mistakes_that_annotators_share_are_shared_by_those_of_a_forecast():
    """All give the same answers, so a further one changes nothing; lone mistakes are corrected."""
    rng = np.random.default_rng(0)
    y, gains = rng.integers(3, size=300), {}
    for shares in (0.0, 0.9):
        common = np.where(rng.random(300) < 0.35, rng.integers(3, size=300), y)
        own = np.where(rng.random((300, 8)) < 0.35, rng.integers(3, size=(300, 8)), y[:, None])
        A = np.where(rng.random((300, 8)) < shares, common[:, None], own)
        A[np.argsort(rng.random((300, 8)), axis=1) > 2] = -1
        curves = forecast(A, budget=5, batch=1, n_runs=1).curves
        gains[shares] = {name: c.accuracy[0, -1] - c.accuracy[0, 0] for name, c in curves.items()}
    for name in ("plan", "uniform", "random"):
        assert gains[0.9][name] < 0.5 * gains[0.0][name]


def test_answers_of_a_forecast_are_correlated_as_was_measured():
    beliefs = Beliefs(
        np.full((2000, 2), 0.5), np.tile([[0.8, 0.2], [0.2, 0.8]], (6, 1, 1)),
        np.full(2, 0.5), np.eye(2), np.zeros(2000, dtype=int), 0.4,
    )  # fmt: skip
    table = AnnotationTable.from_arrays([0], [0], [0], classes=range(2), instances=range(2000),
                                        annotators=range(6))  # fmt: skip
    worlds = Worlds(table, beliefs)
    rng, rows = np.random.RandomState(0), np.arange(2000)
    truth, bought = rng.randint(2, size=2000), np.zeros((3, 0), dtype=np.int64)
    for r in range(6):
        who = np.full(2000, r)
        labels = worlds.answer(rows, who, truth, bought, rng)
        bought = np.concatenate([bought, np.stack([rows, who, labels])], axis=1)
    wrong = (bought[2].reshape(6, 2000) != truth).astype(float)
    assert wrong.mean(axis=1) == pytest.approx(0.2, abs=0.05)
    found = np.corrcoef(wrong)[np.triu_indices(6, 1)]
    assert found.mean() == pytest.approx(0.4, abs=0.05)


def test_policies_meet_where_the_pilot_is_used_up_however_large_the_steps():
    y, table = crowd(60, 5, n_annotators=8)
    found = replay(table, y, batch=2.5, n_runs=1)
    ends = {curves.accuracy[0, -1] for curves in found.curves.values()}
    assert ends == {(DawidSkene().fit(table).labels_ == y).mean()}


def test_what_cannot_be_replayed_is_refused():
    y, table = crowd(20, 3)
    with pytest.raises(AnnotationError, match="gold holds no class"):
        replay(table, {})
    with pytest.raises(AnnotationError, match="budget allows nothing"):
        replay(table, y, budget=0.5)
    with pytest.raises(AnnotationError, match="batch=0 must be positive"):
        replay(table, y, batch=0)
    twice = table.with_added(table.take([0]), duplicates="keep")
    with pytest.raises(AnnotationError, match="repeated"):
        replay(twice, y)


# -- review, screening, teaching -------------------------------------------------------------------


def test_the_queue_ranks_by_the_probability_of_a_mistake():
    posterior = np.array([[0.9, 0.1, 0], [0.2, 0.5, 0.3], [1, 0, 0], [0, 0.4, 0.6]])
    A = np.array([[0, -1], [1, 2], [0, 0], [2, 1]])
    queue = review_queue(posterior, A)
    assert queue.instances.tolist() == [1, 3, 0, 2]
    assert queue.labels.tolist() == [1, 2, 0, 0]
    assert queue.suggestions.tolist() == [2, 1, 1, 1]
    np.testing.assert_allclose(queue.scores, [0.5, 0.4, 0.1, 0])
    each = review_queue(posterior, A, by="annotation", n=2)
    assert list(zip(each.instances, each.annotators, each.labels, strict=True)) == [
        (1, 1, 2),
        (3, 1, 1),
    ]
    np.testing.assert_allclose(each.scores, [0.7, 0.6])
    assert list(each.to_columns()) == ["task", "worker", "label", "suggestion", "score"]
    assert len(queue.to_frame()) == 4
    assert "2 annotations" in repr(each)
    with pytest.raises(AnnotationError, match="by='worker'"):
        review_queue(posterior, A, by="worker")


def test_frames_and_series_are_matched_with_the_instances_of_the_queue():
    pd = pytest.importorskip("pandas")
    posterior = np.array([[0.9, 0.1, 0], [0.2, 0.5, 0.3], [1, 0, 0], [0, 0.4, 0.6]])
    A = pd.DataFrame([[0, -1], [1, 2], [0, 0], [2, 1]], index=[*"abcd"])
    table, labels, mixed = AnnotationTable.from_matrix(A), [0, 1, -1, 1], [*"dbac"]
    expected = review_queue(posterior, table, labels=labels).to_columns()
    series = pd.Series(labels, index=[*"abcd"])[mixed]
    frame = pd.DataFrame(posterior, index=[*"abcd"], columns=[0, 1, 2]).loc[mixed, [2, 1, 0]]
    for model in (posterior, frame):
        assert review_queue(model, table, labels=series).to_columns() == expected
    assert review_queue(posterior, table, labels=pd.Series(labels)).to_columns() == expected
    with pytest.raises(AnnotationError, match=r"1 rows of labels are not among .* \('e'\)"):
        review_queue(posterior, table, labels=series.rename({"d": "e"}))
    with pytest.raises(AnnotationError, match="one code per instance"):
        review_queue(posterior, table, labels=labels[:3])


def test_a_classifier_finds_wrong_labels():
    y, table = crowd(300, 2, seed=1)
    model = DawidSkene().fit(table)
    good = np.full((300, 3), 0.1)
    good[np.arange(300), y] = 0.8
    alone, joined = review_queue(model, table, n=30), review_queue(model, table, good, n=30)
    wrong = [(q.labels != y[q.instances]).mean() for q in (alone, joined)]
    assert wrong[1] > wrong[0]
    assert joined.classifier_weight > 0 == alone.classifier_weight


def screened_crowd():
    """Annotators 0 to 5 are right in 85 %; the others as their names say."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=240)
    right = np.where(rng.random((240, 6)) < 0.85, y[:, None], rng.integers(3, size=(240, 6)))
    spammer, one_label = rng.integers(3, size=240), np.zeros(240, dtype=int)
    pattern = np.arange(240) % 3
    late = np.arange(240) > 120
    drifting = np.where(late, rng.integers(3, size=240), y)
    A = np.column_stack([right, spammer, one_label, pattern, drifting])
    return y, AnnotationTable.from_matrix(A)


@pytest.mark.parametrize("n_annotators", [1, 3])
@pytest.mark.filterwarnings("ignore:no instance has annotations by two annotators")
def test_nobody_is_below_the_median_of_equals(n_annotators):
    y = np.arange(60) % 2
    for row in screen_annotators(np.repeat(y[:, None], n_annotators, axis=1)):
        assert "below the median" not in row.flags


def test_a_fit_that_fails_leaves_the_planner_as_it_was():
    _, table = screened_crowd()
    planner = AnnotationPlanner(random_state=0).fit(table[:100])
    before = dict(vars(planner))
    planner.cost = {"nobody": 1.0}
    with pytest.raises(AnnotationError, match="nobody"):
        planner.fit(table)
    planner.cost = None
    assert vars(planner) == before


@pytest.mark.filterwarnings("ignore:Whether .* share mistakes cannot be measured")
def test_who_gives_one_label_every_time_repeats_no_pattern():
    """Also where one label is so frequent that others might have given it as often."""
    rng = np.random.default_rng(0)
    truth = (rng.random(300) < 0.1).astype(int)
    A = np.stack([np.where(rng.random(300) < 0.85, truth, 1 - truth) for _ in range(6)], axis=1)
    A[:, 5] = np.where(np.arange(300) < 32, 0, -1)
    found = {row.annotator: row for row in screen_annotators(AnnotationTable.from_matrix(A))}
    assert "one label" in found[5].flags
    assert "repeating pattern" not in found[5].flags
    assert "100 % of the 32 answers are 0" in found[5].evidence


def test_screening_says_who_needs_a_look_and_why():
    _, table = screened_crowd()
    found = {row.annotator: row for row in screen_annotators(table, times=table.instance)}
    assert all(not found[r].flags for r in range(6)), found
    assert "no better than guessing" in found[6].flags
    assert "one label" in found[7].flags
    assert "repeating pattern" in found[8].flags
    assert found[8].evidence[found[8].flags.index("repeating pattern")].startswith("100 %")
    assert "drift" in found[9].flags
    assert all("below the median" in found[r].flags for r in (6, 7, 8))
    for row in found.values():
        assert row.low <= row.accuracy <= row.high
        assert len(row.evidence) == len(row.flags)
        assert row.advice
    assert len(screen_annotators(table).to_frame()) == 10
    without = {row.annotator: row for row in screen_annotators(table)}
    assert "drift" not in without[9].flags
    with pytest.raises(AnnotationError, match="times has shape"):
        screen_annotators(table, times=[1.0])


def flagged(found, flag="no better than guessing"):
    return {row.annotator for row in found if flag in row.flags}


def rare_crowd(n, votes, share, n_random=0, seed=0):
    """50 annotators who are right in 70 % of each class; the first ones answer at random."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    annotator = np.argsort(rng.random((n, 50)), axis=1)[:, :votes]
    given = np.where(rng.random((n, votes)) < 0.7, y[:, None], 1 - y[:, None])
    given = np.where(annotator < n_random, rng.random((n, votes)) < 0.3, given)
    instance = np.repeat(np.arange(n), votes)
    return AnnotationTable.from_arrays(instance, annotator.ravel(), given.ravel().astype(int)), y


@pytest.mark.parametrize(("n", "votes"), [(33_333, 3), (20_000, 5)])
def test_nobody_guesses_because_a_class_is_rare(n, votes):
    table, y = rare_crowd(n, votes, 0.05)
    assert len(flagged(screen_annotators(table))) <= 1
    assert not flagged(screen_annotators(table, np.eye(2)[y]))


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_who_answers_at_random_is_flagged_where_the_class_is_known(share):
    table, y = rare_crowd(33_333, 3, share, n_random=10)
    assert flagged(screen_annotators(table, np.eye(2)[y])) == set(range(10))


def test_who_answers_at_random_is_flagged_where_classes_are_common():
    # Of a rare class three votes say too little to tell random answers apart.
    table, _ = rare_crowd(5_000, 5, 0.5, n_random=10)
    found = screen_annotators(table)
    assert flagged(found) <= set(range(10))
    assert len(flagged(found)) >= 9
    row = next(row for row in found if row.annotator == 0)
    at = row.flags.index("no better than guessing")
    assert "from 0\u202f% (guessing) to 100\u202f% (never wrong" in row.evidence[at]


def test_a_guesser_is_compared_with_whoever_always_answers_the_most_frequent_class():
    """Guesses of a frequent class are right often: the evidence says how often, by hand."""
    table, y = rare_crowd(33_333, 3, 0.3, n_random=10)
    found = {row.annotator: row for row in screen_annotators(table, np.eye(2)[y])}
    for r in range(10):
        row, items = found[r], table.instance[table.annotator == r]
        told = row.evidence[row.flags.index("no better than guessing")]
        share = percent(1 - y[items].mean())
        assert f". Always answering 0 would be right in {share} of these items" in told
        assert row.accuracy < 1 - y[items].mean()
    table, y = rare_crowd(33_333, 3, 0.5, n_random=10)
    for row in screen_annotators(table, np.eye(2)[y]):
        assert "whoever always answers" not in "".join(row.evidence)


def test_informedness_by_hand():
    label, truth = np.repeat([0, 1, 0, 1], [8, 2, 3, 7]), np.repeat([0, 1], 10)
    found = informedness(label, np.eye(3)[truth])
    assert found.value == pytest.approx(0.8 + 0.7 - 1)
    rates = np.array([8.5, 7.5]) / 11
    assert found.error == pytest.approx(np.sqrt((rates * (1 - rates) / 11).sum()))
    assert found.upper == pytest.approx(found.value + 1.64 * found.error)


def test_answers_outside_the_known_classes_are_wrong():
    label, truth = np.repeat([0, 2, 1, 2], [6, 4, 6, 4]), np.repeat([0, 1], 10)
    found = informedness(label, np.eye(3)[truth])
    # The mean row of both classes gives them .3 + .3 = .6, and the diagonal .6 + .6.
    assert found.value == pytest.approx((1.2 - 0.6) / (2 - 0.6))


def test_informedness_does_not_depend_on_shares_and_needs_two_classes():
    rng = np.random.default_rng(0)
    for share in (0.5, 0.1):
        truth = (rng.random(40_000) < share).astype(int)
        label = np.where(rng.random(len(truth)) < 0.7, truth, 1 - truth)
        assert informedness(label, np.eye(2)[truth]).value == pytest.approx(0.4, abs=0.02)
    assert informedness(np.zeros(20, int), np.eye(2)[np.zeros(20, int)]) is None


def test_tasks_in_an_order_of_classes_are_no_pattern():
    y = np.arange(240) % 3
    A = np.column_stack([y] * 5)
    A[np.random.default_rng(0).random(A.shape) < 0.1] = 0
    flags = [row.flags for row in screen_annotators(A)]
    assert not any("repeating pattern" in each for each in flags)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_of_few_annotations_nothing_is_said():
    A = np.full((40, 4), -1)
    A[:, :3] = (np.arange(40) % 2)[:, None]
    A[:3, 3] = 1
    found = {row.annotator: row for row in screen_annotators(AnnotationTable.from_matrix(A))}
    assert "too few" in found[3].advice
    nobody = AnnotationTable.from_arrays([0, 0], ["a", "b"], [0, 1], annotators=["a", "b", "c"])
    (idle,) = [row for row in screen_annotators(nobody) if row.annotator == "c"]
    assert idle.accuracy is None
    assert idle.n_annotations == 0


def test_a_sheet_shows_the_pairs_that_an_annotator_confuses():
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    A = np.tile(y[:, None], 5)
    A[rng.random(A.shape) < 0.05] = 1
    A[:, 4] = np.where((y == 2) & (rng.random(150) < 0.7), 0, y)
    table = AnnotationTable.from_matrix(A)
    sheet = teaching_sheet(DawidSkene().fit(table), table, 4, n_pairs=2)
    first = sheet.pairs[0]
    assert (first.true, first.given) == (2, 0)
    # Shares of the annotations of class 2, and of class 0, smoothed towards the crowd's.
    assert 0.5 < first.rate < 0.7
    assert first.reverse_rate < 0.05
    assert sheet.needs_expert
    assert len(sheet.pairs) == 2
    assert len(first.mistaken) == len(first.examples) == len(first.contrast) == 3
    assert (y[first.mistaken] == 2).all()
    assert (A[first.mistaken, 4] == 0).all()
    assert (y[first.examples] == 2).all()
    assert (y[first.contrast] == 0).all()
    with pytest.raises(AnnotationError, match="fitted aggregator"):
        teaching_sheet(np.eye(3), table, 4)
    with pytest.raises(AnnotationError, match="99"):
        teaching_sheet(DawidSkene().fit(table), table, 99)
