import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from manyhands import AnnotationTable, MajorityVote
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.inference import crowd_lab
from manyhands.inference.crowd_lab import LEAST_WEIGHT, CrowdLab

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")


def tables():
    """Random matrices of 3 classes in which at least two annotators meet."""
    shape = st.tuples(st.integers(2, 10), st.integers(2, 5))
    tables_ = arrays(np.int64, shape, elements=st.integers(-1, 2))
    return tables_.filter(lambda A: ((A >= 0).sum(axis=1) > 1).any())


def as_table(A, classes=3):
    return AnnotationTable.from_matrix(A, classes=range(classes))


def crowd(seed, n=400, skill=(0.9, 0.8, 0.7, 0.6, 0.5), n_classes=4, per_instance=3):
    """Annotations, classes, and the probabilities of a classifier with Gaussian evidence."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    A = np.full((n, len(skill)), -1)
    for i in range(n):
        for r in rng.choice(len(skill), per_instance, replace=False):
            shift = 0 if rng.random() < skill[r] else rng.integers(1, n_classes)
            A[i, r] = (y[i] + shift) % n_classes
    evidence = 2.5 * rng.normal(2.5 * np.eye(n_classes)[y])
    return A, y, softmax(evidence, axis=1)


def winners(scores):
    best = [c for c, score in enumerate(scores) if score > max(scores) - 1e-9]
    return {c: 1 / len(best) for c in best}


def slow(A, proba, n_classes):
    """CROWDLAB by loops over instances and annotators, two rounds."""
    given_ = [[(r, c) for r, c in enumerate(row) if c >= 0] for row in A]
    several = [i for i, row in enumerate(given_) if len(row) > 1]
    pairs = np.zeros((A.shape[1], 2))
    for row in given_:
        for r, c in row:
            for other, d in row:
                if other != r:
                    pairs[r] += (c == d, 1)
    s = np.full(A.shape[1], pairs[:, 0].sum() / pairs[:, 1].sum())
    s[pairs[:, 1] > 0] = pairs[pairs[:, 1] > 0, 0] / pairs[pairs[:, 1] > 0, 1]
    scores = [[sum(c == k for _, c in row) for k in range(n_classes)] for row in given_]
    for _ in range(2):
        consensus = [winners(row) for row in scores]
        if proba is not None:
            for i, best in enumerate(consensus):
                consensus[i] = winners([proba[i, k] if k in best else -1 for k in range(n_classes)])
        agreement = np.mean(
            [np.mean([consensus[i].get(c, 0) for _, c in given_[i]]) for i in several]
        )
        shares = [np.mean([consensus[i].get(k, 0) for i in several]) for k in range(n_classes)]
        common = max(1 - max(shares), LEAST_WEIGHT)
        w = np.maximum(1 - (1 - s) / common, LEAST_WEIGHT)
        w_model = 0.0
        if proba is not None:
            hits = [
                sum(p * consensus[i].get(k, 0) for k, p in winners(proba[i]).items())
                for i in several
            ]
            n_each = [len(row) for row in given_ if row]
            w_model = max(1 - (1 - np.mean(hits)) / common, LEAST_WEIGHT) * np.sqrt(np.mean(n_each))
        posterior = np.full((len(A), n_classes), np.nan)
        for i, row in enumerate(given_):
            for k in range(n_classes):
                total = w_model + sum(w[r] for r, _ in row)
                value = 0.0 if proba is None else w_model * proba[i, k]
                for r, c in row:
                    value += w[r] * (agreement if c == k else (1 - agreement) / (n_classes - 1))
                if total > 0:
                    posterior[i, k] = value / total
        scores = posterior
    return posterior, w, w_model, agreement


@given(A=tables(), seed=st.integers(0, 1000), with_classifier=st.booleans())
@settings(max_examples=30)
def test_equals_slow_loops(A, seed, with_classifier):
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(3), len(A)) if with_classifier else None
    model = CrowdLab().fit(as_table(A), proba=proba)
    posterior, weight, model_weight, agreement = slow(A, proba, 3)
    np.testing.assert_allclose(model.agreement_, agreement)
    np.testing.assert_allclose(model.annotator_weight_, weight, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.model_weight_, model_weight, rtol=1e-6, atol=1e-9)
    known = ~np.isnan(posterior[:, 0])
    np.testing.assert_allclose(model.posterior_[known], posterior[known], atol=1e-6)
    np.testing.assert_allclose(model.posterior_[~known] - model.class_prior_, 0)


def test_two_annotators_by_hand():
    """Votes (0, 0), (1, 1), (0, 1), (1, -); the classifier says 0, 1, 1, 0 with 3/4.

    The tie goes to class 1 with the classifier. P = mean of 1, 1, 1/2 = 5/6. Two of three pairs
    agree: s = 2/3. Class 1 is the most common with 2/3, so w = 1 - (1/3) / (1/3) = 0, floored.
    The classifier agrees with the consensus thrice: w_M = 1 * sqrt(7/4). All weight is its.
    """
    A = np.array([[0, 0], [1, 1], [0, 1], [1, -1]])
    proba = np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75], [0.75, 0.25]])
    model = CrowdLab().fit(A, proba=proba)
    np.testing.assert_allclose(model.agreement_, 5 / 6)
    np.testing.assert_allclose(model.annotator_weight_, LEAST_WEIGHT)
    np.testing.assert_allclose(model.model_weight_, np.sqrt(7 / 4))
    np.testing.assert_allclose(model.posterior_, proba, atol=1e-5)
    np.testing.assert_allclose(model.quality_, 0.75, atol=1e-5)
    # Annotator 0 gave 0, 1, 0, 1: the classifier's 3/4, 3/4, 1/4, 1/4; annotator 1: 3/4 always.
    np.testing.assert_allclose(model.annotator_quality_, [1 / 2, 3 / 4], atol=1e-5)


def test_annotators_alone_by_hand():
    """Votes (0, 0, 0), (1, 1, 0), (1, 1, 1), (0, 0, 0): annotators 0 and 1 agree with 7 of 8.

    Annotator 2 agrees with 6 of 8. P = mean of 1, 2/3, 1, 1 = 11/12; both classes are as common,
    so w = 1 - (1/8) / (1/2) = 3/4, 3/4 and 1 - (1/4) / (1/2) = 1/2. On the second instance class 1
    gets (3/4 + 3/4) * 11/12 + 1/2 * 1/12 of 2.
    """
    A = np.array([[0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]])
    model = CrowdLab().fit(A)
    np.testing.assert_allclose(model.agreement_, 11 / 12)
    np.testing.assert_allclose(model.annotator_weight_, [3 / 4, 3 / 4, 1 / 2])
    assert model.model_weight_ == 0
    confident = 1.5 * 11 / 12 + 0.5 / 12
    np.testing.assert_allclose(model.posterior_[1], [1 - confident / 2, confident / 2])
    np.testing.assert_allclose(model.quality_, model.posterior_.max(axis=1))
    # Without a classifier quality is agreement with the consensus.
    np.testing.assert_allclose(model.annotator_quality_, [1, 1, 3 / 4])


def test_the_classifier_helps():
    A, y, proba = crowd(0)
    alone, together = CrowdLab().fit(A), CrowdLab().fit(A, proba=proba)
    right = [(model.labels_ == y).mean() for model in (MajorityVote().fit(A), alone, together)]
    assert right[2] > right[1] + 0.02
    assert right[1] > right[0]
    assert right[2] > (proba.argmax(axis=1) == y).mean()
    # Annotators are ranked by their skill, and the confident instances are the right ones.
    assert (np.diff(together.annotator_weight_) < 0).all()
    assert (np.diff(together.annotator_quality_) < 0).all()
    certain = together.quality_ > np.median(together.quality_)
    hits = together.labels_ == y
    assert hits[certain].mean() > hits[~certain].mean() + 0.05


def test_a_useless_classifier_is_ignored():
    A, _, _ = crowd(1)
    useless = np.random.default_rng(0).dirichlet(np.ones(4), len(A))
    model = CrowdLab().fit(A, proba=useless)
    assert model.model_weight_ < 0.05
    np.testing.assert_allclose(model.posterior_, CrowdLab().fit(A).posterior_, atol=0.05)


@given(A=tables(), seed=st.integers(0, 99), with_classifier=st.booleans())
@settings(max_examples=16)
def test_permuting_and_relabelling_permutes_and_relabels(A, seed, with_classifier):
    rng = np.random.default_rng(seed)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, 3))
    proba = rng.dirichlet(np.ones(3), len(A)) if with_classifier else None
    plain = CrowdLab().fit(as_table(A), proba=proba)
    moved = None if proba is None else proba[rows][:, np.argsort(classes)]
    B = np.where(A >= 0, classes[A], -1)[rows][:, columns]
    other = CrowdLab().fit(as_table(B), proba=moved)
    np.testing.assert_allclose(other.posterior_[:, classes], plain.posterior_[rows], atol=1e-6)
    np.testing.assert_allclose(
        other.annotator_quality_, plain.annotator_quality_[columns], atol=1e-6
    )


def test_instances_without_annotations():
    A, _, proba = crowd(2, n=50)
    empty = np.vstack([A, np.full(5, -1)])
    without, alone = CrowdLab().fit(A), CrowdLab().fit(as_table(empty, 4))
    np.testing.assert_allclose(alone.posterior_[:-1], without.posterior_)
    np.testing.assert_allclose(alone.posterior_[-1], alone.class_prior_)
    together = CrowdLab().fit(as_table(empty, 4), proba=np.vstack([proba, proba[:1]]))
    np.testing.assert_allclose(together.posterior_[-1], proba[0])
    np.testing.assert_allclose(
        together.posterior_[:-1], CrowdLab().fit(A, proba=proba).posterior_, atol=1e-12
    )


def test_single_annotations_count_in_the_posterior_alone():
    """An annotator who meets nobody gets the weight of all; so does a silent one."""
    A = np.array([[0, 0, -1, -1], [1, 1, -1, -1], [1, 0, -1, -1], [-1, -1, 1, -1]])
    model = CrowdLab().fit(A)
    np.testing.assert_allclose(model.annotator_weight_, model.annotator_weight_[0])
    np.testing.assert_allclose(model.agreement_, 5 / 6)
    np.testing.assert_allclose(model.posterior_[3], [1 / 6, 5 / 6])
    assert np.isfinite(model.annotator_quality_).all()


def test_no_overlap_leaves_the_annotations():
    with pytest.warns(NotIdentifiableWarning, match="no instance has annotations by two"):
        model = CrowdLab().fit(np.array([[0, -1], [-1, 1], [1, -1]]))
    np.testing.assert_allclose(model.posterior_, [[1, 0], [0, 1], [0, 1]])
    np.testing.assert_allclose(model.annotator_weight_, 1)


def test_gold_is_certain_and_teaches():
    """Two of three annotators make the same mistakes: only gold can tell."""
    y = np.arange(40) % 4
    A = np.column_stack([y, (y + 1) % 4, (y + 1) % 4])
    assert CrowdLab().fit(A).annotator_weight_.argmin() == 0
    model = CrowdLab().fit(A, gold={i: int(y[i]) for i in range(20)})
    np.testing.assert_allclose(model.posterior_[:20], np.eye(4)[y[:20]])
    np.testing.assert_allclose(model.quality_[:20], 1)
    plain = CrowdLab().fit(A)
    assert model.annotator_weight_[0] > plain.annotator_weight_[0]
    assert (model.annotator_weight_[1:] < plain.annotator_weight_[1:]).all()
    everything = CrowdLab().fit(A, gold=y)
    assert everything.annotator_weight_.argmax() == 0
    np.testing.assert_allclose(everything.annotator_quality_, [1, 0, 0])


def test_a_weight_is_repetition():
    instance, annotator, label = [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 0]
    weight = np.array([2, 1, 1, 1, 1, 3])
    weighted = AnnotationTable.from_arrays(instance, annotator, label, weight=weight.astype(float))
    repeated = AnnotationTable.from_arrays(
        *(np.repeat(column, weight) for column in (instance, annotator, label)), duplicates="keep"
    )
    proba = np.array([[0.6, 0.4], [0.3, 0.7], [0.8, 0.2]])
    a, b = CrowdLab().fit(weighted, proba=proba), CrowdLab().fit(repeated, proba=proba)
    np.testing.assert_allclose(a.posterior_, b.posterior_, atol=1e-12)
    np.testing.assert_allclose(a.annotator_quality_, b.annotator_quality_)
    np.testing.assert_allclose(a.model_weight_, b.model_weight_)


def test_shards_do_not_matter(monkeypatch):
    A, y, proba = crowd(3, n=60)
    gold = {0: int(y[0])}
    whole = CrowdLab().fit(A, proba=proba, gold=gold)
    monkeypatch.setattr(crowd_lab, "SHARD", 20)
    pieces = CrowdLab().fit(A, proba=proba, gold=gold)
    np.testing.assert_allclose(pieces.posterior_, whole.posterior_, atol=1e-12)
    np.testing.assert_allclose(pieces.annotator_quality_, whole.annotator_quality_)


def test_prediction_uses_the_fitted_weights():
    A, _, proba = crowd(4)
    model = CrowdLab().fit(A, proba=proba)
    np.testing.assert_allclose(model.predict_proba(A, proba), model.posterior_)
    new = model.predict_proba(A[:3], proba=proba[:3])
    np.testing.assert_allclose(new, model.posterior_[:3])
    # Without the classifier, the annotators alone; and the model is as it was.
    alone = model.predict_proba(A)
    assert np.abs(alone - model.posterior_).max() > 0.05
    np.testing.assert_allclose(alone.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(A, proba), model.posterior_)
    nothing = np.full((1, 5), -1)
    np.testing.assert_allclose(model.predict_proba(nothing), model.class_prior_[None])
    np.testing.assert_allclose(model.predict_proba(nothing, proba[:1]), proba[:1])
    plain = CrowdLab().fit(A)
    np.testing.assert_allclose(plain.predict_proba(A), plain.posterior_)


def test_added_annotations_equal_one_fit():
    A, _, proba = crowd(5, n=60)
    table = as_table(A, 4)
    model = CrowdLab().partial_fit(table[:40], proba=proba[:40])
    model.partial_fit(table[40:], proba=proba)
    once = CrowdLab().fit(table, proba=proba)
    np.testing.assert_allclose(model.posterior_, once.posterior_)
    # The classifier's probabilities stay while no instance is new.
    late = AnnotationTable.from_arrays([0], [99], [1], classes=range(4))
    model.partial_fit(late)
    assert model.model_weight_ > 0.1


def test_bad_probabilities_are_errors():
    A, _, proba = crowd(6, n=10)
    with pytest.raises(AnnotationError, match=r"proba has shape \(9, 4\).*\(10, 4\)"):
        CrowdLab().fit(A, proba=proba[:9])
    with pytest.raises(AnnotationError, match="proba is not a distribution in row 0"):
        CrowdLab().fit(A, proba=2 * proba)
    with pytest.raises(AnnotationError, match="proba is not a distribution in row 3"):
        CrowdLab().fit(A, proba=np.where(np.arange(10)[:, None] == 3, np.nan, proba))
    model = CrowdLab().fit(A, proba=proba)
    with pytest.raises(AnnotationError, match=r"proba has shape \(1, 4\)"):
        model.predict_proba(A, proba[:1])
    before = model.posterior_.copy()
    more = AnnotationTable.from_arrays([10], [0], [1], classes=range(4))
    with pytest.raises(AnnotationError, match=r"proba has shape \(10, 4\).*\(11, 4\)"):
        model.partial_fit(more)
    np.testing.assert_array_equal(model.posterior_, before)
    assert model.table_.n_instances == 10
    with pytest.raises(AnnotationError, match="given to predict_proba but not to fit"):
        CrowdLab().fit(A).predict_proba(A, proba)


def test_a_thousand_classes():
    A, y, proba = crowd(7, n=100, n_classes=1000)
    model = CrowdLab().fit(as_table(A, 1000), proba=proba)
    assert (model.labels_ == y).mean() > 0.9


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_probabilities_in_a_frame_are_matched_by_id_and_class(kind):
    A, _, proba = crowd(0, n=40)
    ids = [f"img{i}" for i in range(40)]
    table = AnnotationTable.from_matrix(A, instances=ids)
    expected = CrowdLab().fit(table, proba=proba)
    frame = pd.DataFrame(proba, columns=[str(c) for c in range(4)], index=ids)
    frame = frame.sample(frac=1, random_state=0)[list("3102")]
    if kind == "polars":
        frame = pl.DataFrame(frame).with_columns(task=pl.Series(frame.index.to_list()))
    model = CrowdLab().fit(table, proba=frame)
    np.testing.assert_array_equal(model.posterior_, expected.posterior_)
    np.testing.assert_allclose(model.predict_proba(table, frame), expected.posterior_)
    again = CrowdLab().fit(table[:20], proba=proba[:20]).partial_fit(table[20:], proba=frame)
    np.testing.assert_allclose(again.posterior_, expected.posterior_)


def test_probabilities_of_other_instances_or_classes_are_refused():
    A, _, proba = crowd(0, n=40)
    table = AnnotationTable.from_matrix(A, instances=[f"img{i}" for i in range(40)])
    frame = pd.DataFrame(proba, index=table.instances)
    with pytest.raises(AnnotationError, match=r"40 rows of proba .*do not match by id"):
        CrowdLab().fit(table, proba=frame.add_prefix("x", axis=0))
    with pytest.raises(AnnotationError, match=r"proba has the columns 'x0'.*call the columns as"):
        CrowdLab().fit(table, proba=frame.add_prefix("x"))
    with pytest.warns(UserWarning, match="proba has no ids, and table sorted"):
        CrowdLab().fit(AnnotationTable.from_frame(table.to_frame()), proba=proba)
