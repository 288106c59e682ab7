"""Votes weighted by agreement with their outcome: Weighted Majority Vote and Zero-Based Skill."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable, MajorityVote
from manyhands.inference.votes import make_votes
from manyhands.inference.weighted_majority_vote import WeightedMajorityVote, weighted_shares
from manyhands.inference.zero_based_skill import ZeroBasedSkill

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")

A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, -1, 0]])


def tables():
    shape = st.tuples(st.integers(2, 8), st.integers(1, 4))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(lambda A: (A >= 0).any())


def over_three(A):
    return AnnotationTable.from_matrix(A, classes=range(3))


def slow_shares(A, weight, n_classes):
    """Every annotation by itself; a negative weight is a vote for all other classes."""
    shares = np.full((len(A), n_classes), 1 / n_classes)
    for i, row in enumerate(A):
        for w in (weight, np.ones(len(weight))):
            box = np.zeros(n_classes)
            for r, c in enumerate(row):
                if c >= 0 and w[r] >= 0:
                    box[c] += w[r]
                elif c >= 0:
                    box += [0 if k == c else -w[r] for k in range(n_classes)]
            if box.sum() > 0:
                shares[i] = box / box.sum()
                break
    return shares


def slow_skill(A, shares):
    """Share of agreement with the winners, who share a tie; NaN for the silent."""
    agreed, given_ = np.zeros(A.shape[1]), np.zeros(A.shape[1])
    for i, row in enumerate(A):
        winners = shares[i] > shares[i].max() - 1e-9
        for r, c in enumerate(row):
            if c >= 0:
                given_[r] += 1
                agreed[r] += winners[c] / winners.sum()
    return np.array([a / g if g else np.nan for a, g in zip(agreed, given_, strict=True)])


def test_worker_agreement_with_aggregate_by_hand():
    """The last instance is a tie, so both who voted agree by half.

    Skills: 3.5 / 4, 3 / 3, 1.5 / 4. First instance: class 0 has 1.875 of 2.25.
    """
    model = WeightedMajorityVote().fit(A)
    np.testing.assert_allclose(model.skill_, [0.875, 1, 0.375])
    np.testing.assert_allclose(
        model.posterior_[:, 0], [1.875 / 2.25, 0.375 / 2.25, 1, 0.375 / 1.25], atol=1e-12
    )
    assert model.n_iter_ == 1
    assert model.log_likelihood_.shape == (0,)


def test_chance_corrected_weights_by_hand():
    """Weights 2 * skill - 1 = .75, 1, -.25: the third annotator votes for the other class."""
    model = WeightedMajorityVote(chance_corrected=True).fit(A)
    expected = [1, 0, 1.75 / 2, 0]
    np.testing.assert_allclose(model.posterior_[:, 0], expected, atol=1e-12)


@given(tables(), st.integers(0, 1000))
def test_shares_equal_slow_loops(A, seed):
    weight = np.random.default_rng(seed).integers(-2, 3, A.shape[1]) / 2
    votes = make_votes(over_three(A))
    shares = weighted_shares(votes, weight[votes.annotator])
    np.testing.assert_allclose(shares, slow_shares(A, weight, 3), atol=1e-12)


@pytest.mark.parametrize("corrected", [False, True])
@given(A=tables())
def test_iterations_equal_slow_loops(corrected, A):
    shares = slow_shares(A, np.ones(A.shape[1]), 3)
    for _ in range(3):
        skill = slow_skill(A, shares)
        weight = np.where(np.isnan(skill), 0, 3 * skill - 1 if corrected else skill)
        shares = slow_shares(A, weight, 3)
    model = WeightedMajorityVote(max_iter=3, tol=0.0, chance_corrected=corrected)
    model.fit(over_three(A))
    active = ~np.isnan(skill)
    np.testing.assert_allclose(model.skill_[active], skill[active], atol=1e-12)
    voted = (A >= 0).any(axis=1)
    np.testing.assert_allclose(model.posterior_[voted], shares[voted], atol=1e-9)


def test_iterations_stop_when_skills_rest_and_begin_with_the_plain_vote():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    given_ = np.where(rng.random((200, 6)) < rng.beta(3, 2, 6), y[:, None], rng.integers(0, 3))
    settled = WeightedMajorityVote(max_iter=100).fit(given_)
    assert 1 < settled.n_iter_ < 100
    again = WeightedMajorityVote(max_iter=100).fit(given_, start=settled.posterior_)
    np.testing.assert_array_equal(again.skill_, settled.skill_)


def test_a_vote_against_beats_a_plain_majority():
    """Two of five say the opposite; one more guesses."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    honest = np.where(rng.random((300, 3)) < 0.8, y[:, None], 1 - y[:, None])
    contrary = np.where(rng.random((300, 2)) < 0.75, 1 - y[:, None], y[:, None])
    table = np.column_stack([honest, contrary])
    plain = (MajorityVote().fit(table).labels_ == y).mean()
    model = WeightedMajorityVote(max_iter=50, chance_corrected=True).fit(table)
    assert (model.labels_ == y).mean() > plain + 0.1


def test_silent_annotators_and_empty_instances():
    table = np.array([[0, 0, -1], [1, 0, -1], [-1, -1, -1]])
    model = WeightedMajorityVote().fit(table)
    np.testing.assert_allclose(model.skill_, [0.75, 0.75, 0.75])
    np.testing.assert_allclose(model.posterior_[2], model.class_prior_)
    np.testing.assert_allclose(model.class_prior_, [0.75, 0.25])


def test_gold_teaches_about_annotators():
    table = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [0, 0, 1]])
    model = WeightedMajorityVote(chance_corrected=True, max_iter=9)
    model.fit(table, gold={0: 1, 1: 0, 2: 1})
    assert model.labels_.tolist() == [1, 0, 1, 1]
    assert model.skill_[2] == 1.0
    assert WeightedMajorityVote().fit(A, gold={0: 1}).posterior_[0].tolist() == [0, 1]


def test_votes_that_weigh_nothing_count_the_same():
    """Both annotators are wrong wherever gold is known."""
    table = np.array([[0, 0], [1, -1]])
    model = WeightedMajorityVote().fit(table, gold={0: 1, 1: 0})
    assert model.skill_.tolist() == [0, 0]
    assert model.posterior_.tolist() == [[0, 1], [1, 0]]
    assert model.predict_proba(np.array([[0, 0], [0, 1]])).tolist() == [[1, 0], [0.5, 0.5]]


def test_new_instances_are_judged_by_the_fitted_skills():
    model = WeightedMajorityVote().fit(A)
    np.testing.assert_allclose(model.predict_proba(A), model.posterior_)
    empty = model.predict_proba(np.array([[-1, -1, -1]]))
    np.testing.assert_allclose(empty[0], model.class_prior_)


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


def test_new_instances_are_judged_by_zero_based_skills():
    table = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, -1, 0]])
    model = ZeroBasedSkill().fit(table)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_)


@pytest.mark.parametrize("bad", [{"lr": 0.0}, {"lr": 1.5}, {"lr_decay": 0.0}])
def test_rates_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ZeroBasedSkill(**bad).fit(np.array([[0, 1]]))
