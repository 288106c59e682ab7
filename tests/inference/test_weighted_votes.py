"""Weighted votes: Weighted Majority Vote, Zero-Based Skill, and KOS, which passes messages."""

from itertools import cycle, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable, MajorityVote
from manyhands.inference.kos import KOS
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
@settings(max_examples=30)
def test_shares_equal_slow_loops(A, seed):
    weight = np.random.default_rng(seed).integers(-2, 3, A.shape[1]) / 2
    votes = make_votes(over_three(A))
    shares = weighted_shares(votes, weight[votes.annotator])
    np.testing.assert_allclose(shares, slow_shares(A, weight, 3), atol=1e-12)


@pytest.mark.parametrize("corrected", [False, True])
@given(A=tables())
@settings(max_examples=30)
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


def test_iterations_stop_when_skills_rest():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    given_ = np.where(rng.random((200, 6)) < rng.beta(3, 2, 6), y[:, None], rng.integers(0, 3))
    assert 1 < WeightedMajorityVote(max_iter=100).fit(given_).n_iter_ < 100


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
@settings(max_examples=30)
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
    """Where all agree, a step closes that share of the gap between a skill and 1."""

    def gap(n):
        model = ZeroBasedSkill(max_iter=n, tol=0.0, lr=0.08, lr_decay=0.5, lr_decay_every=20)
        return 1 - model.fit([[0, 0], [1, 1]]).skill_[0] if n else 0.5

    rates = [1 - gap(iteration) / gap(iteration - 1) for iteration in (1, 19, 20, 39, 40, 100)]
    np.testing.assert_allclose(rates, [0.08, 0.08, 0.04, 0.04, 0.02, 0.08 / 32])


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


# -- KOS ------------------------------------------------------------------------------------------


def meet(A):
    """Whether two annotators share an instance; else annotations are simply believed."""
    return ((A >= 0).sum(axis=1) > 1).any()


def binary_tables(n_classes):
    shape = st.tuples(st.integers(1, 8), st.integers(1, 5))
    elements = st.integers(-1, n_classes - 1)
    return arrays(np.int64, shape, elements=elements).filter(
        lambda A: ((A >= 0).sum(axis=1) > 1).any()
    )


def over(A, n_classes):
    return AnnotationTable.from_matrix(A, classes=range(n_classes))


def slow_messages(A, n_classes, n_iter):
    """Sums over the neighbours but one, written out; the largest message is 1."""
    edges = [(i, r) for i, r in np.argwhere(A >= 0)]
    y = dict.fromkeys(edges, 1.0)
    for _ in range(n_iter):
        x = {}
        for i, r in edges:
            others = [(k, e) for k, e in edges if k == i and e != r]
            x[i, r] = sum(
                y[i, e] * ((n_classes - 1) if A[i, e] == A[i, r] else -1) for _, e in others
            )
        new = {(i, r): sum(x[k, e] for k, e in edges if e == r and k != i) for i, r in edges}
        largest = max(map(abs, new.values()))
        if largest == 0:
            break
        y = {edge: message / largest for edge, message in new.items()}
    return y


def slow_scores(A, y, n_classes):
    """Final decision of the paper for +1 and -1, and its like for more classes."""
    scores = np.zeros((len(A), n_classes))
    for (i, r), message in y.items():
        for c in range(n_classes):
            scores[i, c] += message * ((n_classes - 1) if A[i, r] == c else -1)
    return scores


@pytest.mark.parametrize("n_classes", [2, 3])
@given(data=st.data(), n_iter=st.integers(1, 4))
@settings(max_examples=20)
def test_messages_equal_slow_loops(n_classes, data, n_iter):
    A = data.draw(binary_tables(n_classes))
    model = KOS(max_iter=n_iter, tol=0.0).fit(over(A, n_classes))
    scores = slow_scores(A, slow_messages(A, n_classes, model.n_iter_), n_classes)
    centred = model.posterior_ - 1 / n_classes
    length = np.linalg.norm(centred, axis=1) * np.linalg.norm(scores, axis=1)
    told = length > 1e-6
    cosine = (centred * scores).sum(axis=1)[told] / length[told]
    # Proportional row by row, with one sign for all.
    assert np.allclose(cosine, 1, atol=1e-5) or np.allclose(cosine, -1, atol=1e-5)


def test_an_iteration_by_hand():
    """Votes +++, ++-, -+: class 0 is +1; the third annotator did not see the third instance.

    From ones x = 2 2 2 / 0 0 2 / 1 -1, times A: 2 2 2 / 0 0 -2 / -1 -1. An annotator tells an
    instance the sum of the others: y = -1 -1 -2 / 1 1 2 / 2 2. The sums 1 1 0 agree with
    themselves, so the sign stays; divided by 2 the first instance has score -2, the second 0, the
    third 0.
    """
    A = np.array([[0, 0, 0], [0, 0, 1], [1, 0, -1]])
    model = KOS(max_iter=1).fit(A)
    np.testing.assert_allclose(model.posterior_[:, 0], [0, 0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(model.reliability_, [1, 1, 0])


def regular_crowd(seed, n=600, per_instance=5, n_annotators=100, n_classes=2, hammers=0.5):
    """Karger's spammers and hammers on a regular graph."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    hammer = rng.random(n_annotators) < hammers
    seats = np.tile(np.arange(n_annotators), n * per_instance // n_annotators)
    while True:
        seat = rng.permutation(seats).reshape(n, per_instance)
        ordered = np.sort(seat, axis=1)
        clash = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if clash.mean() < 0.3:
            break
    A = np.full((n, n_annotators), -1)
    given_ = np.where(hammer[seat], y[:, None], rng.integers(0, n_classes, seat.shape))
    np.put_along_axis(A, seat, given_, axis=1)
    return A, y, hammer


@pytest.mark.parametrize("n_classes", [2, 4])
def test_it_tells_hammers_from_spammers(n_classes):
    A, y, hammer = regular_crowd(0, n_classes=n_classes, hammers=0.4)
    model = KOS().fit(A)
    assert model.n_iter_ < 100
    error = (model.labels_ != y).mean()
    assert error < 0.6 * (MajorityVote().fit(A).labels_ != y).mean()
    assert model.reliability_[hammer].min() > np.median(model.reliability_[~hammer])
    drawn = KOS(initial_messages="normal", random_state=0).fit(A)
    assert (drawn.labels_ == model.labels_).mean() > 0.99


def test_the_sign_is_that_of_the_votes():
    """By the equations alone all messages turn negative here."""
    A = np.array([[1, 1, -1, -1], [1, -1, 0, 0], [-1, 1, -1, -1]])
    for max_iter in range(3, 10):
        assert KOS(max_iter=max_iter, tol=0.0).fit(A).labels_.tolist() == [1, 0, 1]


def test_adversaries_have_negative_reliability():
    A, y, _ = regular_crowd(1, hammers=1.0)
    A[:, :20] = np.where(A[:, :20] >= 0, 1 - A[:, :20], -1)
    model = KOS().fit(A)
    assert (model.labels_ == y).all()
    assert (model.reliability_[:20] < 0).all()
    assert (model.reliability_[20:] > 0).all()


@pytest.mark.parametrize("n_classes", [2, 3])
@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_a_hundred_iterations_do_not_depend_on_any_order(n_classes, data, seed):
    A = data.draw(binary_tables(n_classes))
    rng = np.random.default_rng(seed)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, n_classes))
    plain = KOS(tol=0.0).fit(over(A, n_classes))
    B = np.where(A >= 0, classes[A], -1)[rows][:, columns]
    other = KOS(tol=0.0).fit(over(B, n_classes))
    np.testing.assert_allclose(other.posterior_[:, classes], plain.posterior_[rows], atol=1e-6)
    np.testing.assert_allclose(other.reliability_, plain.reliability_[columns], atol=1e-6)


def test_what_cancels_stays_cancelled():
    """Rounding errors would grow here until the order of the rows decides the labels."""
    A = np.array([[-1, 0, 1], [0, 1, -1], [1, -1, 1], [1, 1, -1]])
    plain = KOS(tol=0.0).fit(A)
    of_columns = cycle(permutations(range(3)))
    for rows, columns in zip(permutations(range(4)), of_columns, strict=False):
        other = KOS(tol=0.0).fit(A[list(rows)][:, list(columns)])
        np.testing.assert_allclose(other.posterior_, plain.posterior_[list(rows)], atol=1e-6)


@given(A=binary_tables(3), seed=st.integers(0, 99))
@settings(max_examples=13)
def test_weights_are_repetitions_and_nobody_hears_their_own_echo(A, seed):
    i, r = np.nonzero(A >= 0)
    times = np.random.default_rng(seed).integers(1, 4, len(i))
    shape = {"n_instances": len(A), "n_annotators": A.shape[1], "classes": range(3)}
    columns = (i, r, A[i, r])
    weighted = AnnotationTable.from_arrays(*columns, weight=times.astype(float), **shape)
    repeated = AnnotationTable.from_arrays(
        *(np.repeat(c, times) for c in columns), duplicates="keep", **shape
    )
    a, b = KOS().fit(weighted), KOS().fit(repeated)
    np.testing.assert_allclose(a.posterior_, b.posterior_, atol=1e-9)


def test_who_repeats_themselves_is_not_their_own_witness():
    columns = np.array([(i, 0, i % 2) for i in range(6) for _ in range(3)]).T
    model = KOS().fit(AnnotationTable.from_arrays(*columns, duplicates="keep"))
    assert model.n_iter_ == 1  # No message to pass on.
    np.testing.assert_allclose(model.posterior_[:, 0], [1, 0] * 3)


def test_where_no_message_arrives_votes_are_counted():
    one_annotator = KOS().fit(np.array([[0], [1], [0], [-1]]))
    assert one_annotator.labels_[:3].tolist() == [0, 1, 0]
    one_instance = KOS().fit(AnnotationTable.from_matrix([[0, 0, 1]], classes=[0, 1]))
    np.testing.assert_allclose(one_instance.posterior_, [[2 / 3, 1 / 3]])
    # A fourth instance whose only annotator saw nothing else.
    apart = np.array([[0, 0, 0, -1], [1, 1, 1, -1], [0, 0, 0, -1], [-1, -1, -1, 1]])
    assert KOS().fit(apart).labels_.tolist() == [0, 1, 0, 1]


def test_silent_annotators_and_empty_instances_of_kos():
    A, *_ = regular_crowd(3)
    A = np.column_stack([A, np.full(len(A), -1)])
    A[0] = -1
    model = KOS().fit(A)
    np.testing.assert_allclose(model.reliability_[-1], model.reliability_[:-1].mean())
    np.testing.assert_allclose(model.posterior_[0], model.class_prior_)


def test_gold_decides_which_of_two_camps_is_right():
    """Three of five annotators say the opposite of the other two; gold of ten instances helps."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    A = np.column_stack([y, y, 1 - y, 1 - y, 1 - y])
    assert (KOS().fit(A).labels_ == 1 - y).all()
    model = KOS().fit(A, gold={i: int(y[i]) for i in range(30)})
    assert (model.labels_ == y).all()
    assert (model.reliability_ > 0).tolist() == [True, True, False, False, False]


def test_gold_vouches_for_an_annotator_without_company():
    """Annotator 0 is right on two instances that no one else saw; of annotator 1 nothing is known.

    Where they disagree, 0 is believed.
    """
    A = np.array([[0, -1], [1, -1], [0, 1], [-1, 0]])
    model = KOS().fit(A, gold={0: 0, 1: 1})
    np.testing.assert_allclose(model.posterior_[:3], [[1, 0], [0, 1], [1, 0]])


def test_new_instances_are_judged_by_the_sums_of_messages():
    A, *_ = regular_crowd(4, n=2000, per_instance=5)
    model = KOS().fit(A)
    again = model.predict_proba(A)
    assert (again.argmax(axis=1) == model.labels_).mean() > 0.98
    np.testing.assert_allclose(
        model.predict_proba(np.full((1, A.shape[1]), -1))[0], model.class_prior_
    )
