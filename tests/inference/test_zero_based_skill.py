import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable
from manyhands.inference.weighted_majority_vote import WeightedMajorityVote
from manyhands.inference.zero_based_skill import ZeroBasedSkill

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")


def tables():
    shape = st.tuples(st.integers(2, 8), st.integers(1, 4))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(lambda A: (A >= 0).any())


def slow(A, n_classes, n_iter, rate, decay, every):
    """Loops over everything; equal winners share the win."""
    skill = np.full(A.shape[1], 1 / n_classes)
    for iteration in range(1, n_iter + 1):
        if iteration % every == 0:
            rate *= decay
        agreed, given_ = np.zeros(A.shape[1]), np.zeros(A.shape[1])
        for row in A:
            box = np.zeros(n_classes)
            for r, c in enumerate(row):
                box[c] += skill[r] if c >= 0 else 0
            winners = box > box.max() - 1e-9
            for r, c in enumerate(row):
                if c >= 0:
                    agreed[r] += winners[c] / winners.sum()
                    given_[r] += 1
        for r in range(A.shape[1]):
            if given_[r]:
                skill[r] += rate * (agreed[r] / given_[r] - skill[r])
    return skill


@given(tables(), st.integers(1, 8), st.sampled_from([0.5, 0.75, 1.0]), st.integers(1, 4))
def test_skills_equal_slow_loops(A, n_iter, rate, every):
    model = ZeroBasedSkill(max_iter=n_iter, tol=0.0, lr=rate, lr_decay_every=every)
    model.fit(AnnotationTable.from_matrix(A, classes=range(3)))
    if model.n_iter_ == n_iter:  # Else it is at rest.
        np.testing.assert_allclose(model.skill_, slow(A, 3, n_iter, rate, 0.5, every), atol=1e-9)


def test_two_steps_by_hand():
    """Rate .5 from skill .5. Winners: 0, and a tie that both win by half: agreement .75 each.

    Step 1: .5 + .5 * .25 = .625; rate .25 at the second: .625 + .25 * .125 = .65625.
    """
    table = np.array([[0, 0], [0, 1]])
    model = ZeroBasedSkill(max_iter=2, lr=0.5, lr_decay_every=2).fit(table)
    np.testing.assert_allclose(model.skill_, [0.65625, 0.65625])
    np.testing.assert_allclose(model.posterior_, [[1, 0], [0.5, 0.5]])


def test_full_steps_are_iterated_weighted_majority_votes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 100)
    table = np.where(rng.random((100, 7)) < 0.5, y[:, None], rng.integers(0, 4, (100, 7)))
    steps = ZeroBasedSkill(max_iter=5, tol=0.0).fit(table)
    votes = WeightedMajorityVote(max_iter=5, tol=0.0).fit(table)
    np.testing.assert_allclose(steps.skill_, votes.skill_)
    np.testing.assert_allclose(steps.posterior_, votes.posterior_)


def test_the_rate_shrinks_on_schedule():
    model = ZeroBasedSkill(lr=0.8, lr_decay=0.5, lr_decay_every=20)
    rates = [model._rate(iteration) for iteration in (1, 19, 20, 39, 40, 100)]
    np.testing.assert_allclose(rates, [0.8, 0.8, 0.4, 0.4, 0.2, 0.8 / 32])


def test_it_stops_when_no_skill_moves():
    table = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0]])
    model = ZeroBasedSkill().fit(table)
    assert model.n_iter_ < 100
    assert ZeroBasedSkill(tol=0.0, lr=0.5).fit(table).n_iter_ > model.n_iter_


def test_silent_annotators_stay_at_chance():
    model = ZeroBasedSkill().fit(AnnotationTable.from_matrix([[0, 0, -1]], classes=range(4)))
    assert model.skill_.tolist() == [1, 1, 0.25]


def test_new_instances_are_judged_by_the_fitted_skills():
    table = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, -1, 0]])
    model = ZeroBasedSkill().fit(table)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_)


@pytest.mark.parametrize("bad", [{"lr": 0.0}, {"lr": 1.5}, {"lr_decay": 0.0}])
def test_rates_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ZeroBasedSkill(**bad).fit(np.array([[0, 1]]))
