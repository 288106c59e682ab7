from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable
from manyhands.decision.labels import pick
from manyhands.inference.confusions import (
    confusion_counts,
    e_step,
    em_counts,
    estimate_confusions,
    expect_and_count,
    total_em_counts,
)
from manyhands.inference.em import (
    agreement_with_others,
    agreement_with_posterior,
    best_run,
)
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import (
    by_annotator,
    by_instance,
    clamp_to_gold,
    expected_accuracy,
    make_votes,
    probability_correct,
    sum_over_shards,
    vote_shares,
    weighted_votes,
)


def tables():
    """Random matrices of 3 classes with at least one annotation."""
    shape = st.tuples(st.integers(2, 10), st.integers(1, 5))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(lambda A: (A >= 0).any())


def as_votes(A, **options):
    return make_votes(AnnotationTable.from_matrix(A, classes=range(3)), **options)


def slow_e_step(A, prior, confusion, gold):
    """Dawid & Skene (1979), Eq. 2.5, by loops and plain products."""
    posterior = np.zeros((len(A), len(prior)))
    for i, row in enumerate(A):
        for c in range(len(prior)):
            p = prior[c] * (gold[i] in (-1, c))
            for r, given_class in enumerate(row):
                if given_class >= 0:
                    p *= confusion[r, c, given_class]
            posterior[i, c] = p
    likelihood = posterior.sum(axis=1)
    return posterior / likelihood[:, None], np.log(likelihood)


def slow_counts(A, posterior, n_classes):
    """Dawid & Skene (1979), Eq. 2.3 before normalisation, by loops."""
    counts = np.zeros((A.shape[1], n_classes, n_classes))
    for i, row in enumerate(A):
        for r, given_class in enumerate(row):
            if given_class >= 0:
                counts[r, :, given_class] += posterior[i]
    return counts


@given(tables(), st.integers(0, 1000))
@settings(max_examples=30)
def test_steps_equal_slow_loops(A, seed):
    rng = np.random.default_rng(seed)
    gold = rng.integers(-1, 3, len(A))
    votes = as_votes(A, gold=gold)
    prior = rng.dirichlet(np.ones(3))
    confusion = rng.dirichlet(np.ones(3), size=(A.shape[1], 3))
    posterior, evidence = e_step(votes, np.log(prior), np.log(confusion))
    expected, log_likelihood = slow_e_step(A, prior, confusion, gold)
    np.testing.assert_allclose(posterior, expected, atol=1e-12)
    np.testing.assert_allclose(evidence, log_likelihood, atol=1e-10)
    counts = confusion_counts(votes, posterior)
    np.testing.assert_allclose(counts, slow_counts(A, posterior, 3), atol=1e-12)


@given(tables(), st.integers(1, 4), st.integers(0, 1000))
@settings(max_examples=30)
def test_shards_add_up_to_the_whole(A, size, seed):
    rng = np.random.default_rng(seed)
    table = AnnotationTable.from_matrix(A, classes=range(3))
    table = table.take(rng.permutation(table.n_annotations))
    votes = make_votes(table, gold=rng.integers(-1, 3, len(A)))
    shards = votes.shards(size)
    assert sum(s.n_instances for s in shards) == votes.n_instances
    assert sum(s.n_annotations for s in shards) == votes.n_annotations
    log_prior = np.log(rng.dirichlet(np.ones(3)))
    log_confusion = np.log(rng.dirichlet(np.ones(3), size=(A.shape[1], 3)))
    for hard in (False, True):
        whole = expect_and_count(votes, log_prior, log_confusion, hard=hard)
        parts = sum_over_shards(expect_and_count, shards, log_prior, log_confusion, hard=hard)
        np.testing.assert_allclose(parts.prior, whole.prior, atol=1e-12)
        np.testing.assert_allclose(parts.confusion, whole.confusion, atol=1e-12)
        np.testing.assert_allclose(parts.log_likelihood, whole.log_likelihood, atol=1e-10)
    posterior = rng.dirichlet(np.ones(3), size=len(A))
    np.testing.assert_allclose(
        total_em_counts(shards, posterior).confusion,
        em_counts(votes, posterior).confusion,
        atol=1e-12,
    )


@given(tables(), st.integers(0, 1000))
@settings(max_examples=30)
def test_an_unsorted_table_gives_the_same_sums(A, seed):
    table = AnnotationTable.from_matrix(A, classes=range(3))
    order = np.random.default_rng(seed).permutation(table.n_annotations)
    weight = np.random.default_rng(seed).integers(0, 3, table.n_annotations).astype(float)
    table = AnnotationTable.from_arrays(
        table.instance,
        table.annotator,
        table.label,
        classes=range(3),
        n_instances=len(A),
        n_annotators=A.shape[1],
        weight=weight,
    )
    one, other = make_votes(table), make_votes(table.take(order))
    np.testing.assert_array_equal(one.start, other.start)
    np.testing.assert_allclose(weighted_votes(one), table.vote_counts())
    for sums in (weighted_votes, by_annotator, by_instance):
        np.testing.assert_allclose(sums(one), sums(other))
    assert (one.matrix != other.matrix).nnz == 0


def test_abstentions_are_one_more_response():
    table = AnnotationTable.from_matrix(
        [["a", "unsure"], ["b", "b"], ["unsure", "unsure"]], abstain="unsure"
    )
    votes = make_votes(table, abstentions=True)
    assert votes.n_responses == 3
    assert votes.response.tolist() == [0, 2, 1, 1, 2, 2]
    assert votes.instance.tolist() == [0, 0, 1, 1, 2, 2]
    answers = votes.answers
    assert answers.response.tolist() == [0, 1, 1]
    assert answers.start.tolist() == [0, 1, 3, 3]
    assert answers.n_responses == 2
    np.testing.assert_array_equal(vote_shares(answers)[2], [0.5, 0.5])
    assert make_votes(table).n_annotations == 3


def test_gold_clamps():
    votes = as_votes(np.array([[0, 0], [1, -1], [-1, -1]]), gold=np.array([2, -1, 1]))
    np.testing.assert_allclose(vote_shares(votes), [[0, 0, 1], [0, 1, 0], [0, 1, 0]])
    assert votes.voted.all()
    assert clamp_to_gold(votes, np.full((3, 3), 1 / 3))[1].tolist() == [1 / 3] * 3
    # Two states per class: gold leaves both states of its class.
    posterior, _ = e_step(votes, np.log(np.full(6, 1 / 6)), np.log(np.full((2, 6, 3), 1 / 3)))
    np.testing.assert_allclose(posterior[0], [0, 0, 0, 0, 0.5, 0.5])


def test_small_sums_by_hand():
    table = AnnotationTable.from_matrix([[0, 1], [-1, -1]])
    votes = make_votes(table)
    np.testing.assert_array_equal(vote_shares(votes), [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_array_equal(vote_shares(votes, empty=np.array([0.2, 0.8]))[1], [0.2, 0.8])
    posterior = np.array([[0.9, 0.1], [0.5, 0.5]])
    np.testing.assert_allclose(probability_correct(votes, posterior), [0.9, 0.1])
    np.testing.assert_allclose(expected_accuracy(votes, posterior), [0.9, 0.1])
    np.testing.assert_allclose(
        estimate_confusions(votes, posterior), [[[1, 0], [1, 0]], [[0, 1], [0, 1]]]
    )
    assert by_annotator(votes, np.array([2.0, 3.0])).tolist() == [2, 3]
    assert by_instance(votes, np.array([2.0, 3.0])).tolist() == [5, 0]


def test_arithmetic_on_edges():
    np.testing.assert_array_equal(
        normalise_rows(np.array([[0.0, 0], [1, 3]])), [[0.5, 0.5], [0.25, 0.75]]
    )
    assert np.isfinite(floored_log(np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("ties", ["first", "distribute"])
def test_the_first_of_equal_maxima_is_picked(ties):
    rng = np.random.RandomState(0)
    assert pick(np.array([[0.4, 0.4, 0.2], [0.1, 0.3, 0.6]]), ties, rng).tolist() == [0, 2]
    # Equal up to rounding is equal.
    assert pick(np.array([[0.4, 0.4 + 1e-15, 0.2]]), ties, rng).tolist() == [0]


def test_random_ties_are_random_and_ties_only():
    rng = np.random.RandomState(0)
    posterior = np.tile([0.4, 0.4, 0.2], (1000, 1))
    picked = np.bincount(pick(posterior, "random", rng), minlength=3)
    assert picked[2] == 0
    assert 400 < picked[0] < 600


def beyond_chance(labels, scores):
    """Mean score of the class given, less that of classes given to instances in random order."""
    return sum(s[c] - np.mean([t[c] for t in scores]) for c, s in zip(labels, scores, strict=True))


def test_agreement_beyond_chance_by_loops():
    rng = np.random.default_rng(0)
    A = rng.integers(-1, 3, (30, 5))
    votes = make_votes(AnnotationTable.from_matrix(A, classes=range(3)))
    posterior = rng.dirichlet([1.0] * 3, 30)
    for r in range(5):
        mine = np.flatnonzero(A[:, r] >= 0)
        others = [
            np.bincount(np.delete(A[i], r)[np.delete(A[i], r) >= 0], minlength=3) for i in mine
        ]
        expected = beyond_chance(A[mine, r], others), beyond_chance(A[mine, r], posterior[mine])
        found = agreement_with_others(votes)[r], agreement_with_posterior(votes, posterior)[r]
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_best_run_unless_it_is_upside_down_and_a_close_one_is_not():
    labels = np.arange(10) % 2
    votes = make_votes(AnnotationTable.from_matrix(np.tile(labels[:, None], 3)))
    upright, upside_down = np.eye(2)[labels], np.eye(2)[1 - labels]

    def kept(*runs, margin=0.0):
        made = [SimpleNamespace(history=[0.0, b], posterior=p) for b, p in runs]
        return made.index(best_run(made, lambda run: run.posterior, votes, margin=margin))

    assert kept((-9.0, upright), (-8.0, upright)) == 1
    assert kept((-9.0, upright), (-8.0, upright), margin=0.1) == 0
    assert kept((-8.0, upside_down), (-10.9, upright)) == 1  # 30 annotations: 3 nats are close.
    assert kept((-8.0, upside_down), (-11.1, upright)) == 0
    assert kept((-8.0, upside_down), (-9.0, upside_down)) == 0
    assert kept((-8.0, np.full((10, 2), 0.5)), (-9.0, upright)) == 0  # Neither up nor down.


def test_gold_counts_as_the_others():
    """Two liars agree with each other, but gold contradicts them."""
    y = np.arange(10) % 2
    A = np.column_stack([1 - y, 1 - y, y])
    table = AnnotationTable.from_matrix(A)
    assert (agreement_with_others(make_votes(table))[:2] == 0).all()
    np.testing.assert_allclose(agreement_with_others(make_votes(table, gold=y)), [-15, -15, 15])


def test_repeated_annotations_are_found_in_narrow_and_in_wide_instances(monkeypatch):
    rng = np.random.default_rng(0)
    instance = np.sort(rng.integers(0, 40, 300))
    annotator = rng.integers(0, 30, 300)
    table = AnnotationTable.from_arrays(
        instance, annotator, rng.integers(0, 2, 300), n_instances=41, duplicates="keep"
    )
    pairs = list(zip(instance.tolist(), annotator.tolist(), strict=True))
    expected = sorted({i for i, r in pairs if pairs.count((i, r)) > 1})
    assert make_votes(table).uneven.tolist() == expected
    monkeypatch.setattr("manyhands.inference.votes.NARROW", 0)
    assert make_votes(table).uneven.tolist() == expected
