"""Labels of the stack's training instances, and the read-out written a second time, by loops."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from manyhands import (
    AnnotationTable,
    CrowdStackingClassifier,
    DawidSkene,
    load,
    load_demo,
    make_crowd,
)
from manyhands.classifiers.stacking.reading_out import Judges, own_removed, read_out
from manyhands.exceptions import ModelChoiceWarning
from manyhands.inference.votes import make_votes

unwarned = pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")


def votes_of(n=60, n_annotators=5, n_classes=3, seed=0):
    """Labels, and a matrix of annotations that are right in seven of ten cases."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    A = np.where(
        rng.random((n, n_annotators)) < 0.7,
        y[:, None],
        rng.integers(n_classes, size=(n, n_annotators)),
    )
    A[rng.random(A.shape) < 0.4] = -1
    A[np.all(A < 0, axis=1), 0] = 0
    log_proba = log_softmax(rng.normal(size=(n, n_classes)) + 1.5 * np.eye(n_classes)[y], axis=1)
    return y, A, log_proba


def by_loops(A, log_proba, q, rho, strength, parity, gold=None):
    """The read-out as docs/methods/stacking.md has it."""
    n, C = log_proba.shape
    mean = np.log(np.exp(log_proba).mean(axis=0))
    d = (A >= 0).sum(axis=1)
    known = np.zeros(n, dtype=bool) if gold is None else gold >= 0
    for _ in range(40):
        N = np.zeros((A.shape[1], C, C))
        for i, r in zip(*np.nonzero(A >= 0), strict=True):
            N[r, :, A[i, r]] += q[i]
        G = N.sum(axis=0) + 0.1 + np.eye(C)
        P = strength * G / G.sum(axis=1, keepdims=True)
        log_pi = {}
        for i, r in zip(*np.nonzero(A >= 0), strict=True):
            a = A[i, r]
            given = np.maximum(N[r, :, a] + P[:, a] - q[i], P[:, a])
            row = np.maximum((N[r] + P).sum(axis=1) - q[i], P.sum(axis=1))
            log_pi[i, r] = np.log(given) - np.log(row)
        judged = [(i, r) for i, r in log_pi if d[i] > 1 and not known[i]]

        def loss(u, log_pi=log_pi, judged=judged):
            told = log_softmax(mean + np.exp(u) * (log_proba - mean), axis=1)
            total = 0.0
            for i, r in judged:
                others = sum(log_pi[j, s] for j, s in log_pi if j == i and s != r)
                s = softmax((told[i] + others) / (1 + (d[i] - 1) * rho))
                total -= np.log(s @ np.exp(log_pi[i, r]))
            return total

        found = minimize_scalar(loss, bounds=(-4, 0.7), method="bounded", options={"xatol": 0.01})
        beta = np.exp(found.x) * np.clip(parity, 0.5, 1)
        joint = log_softmax(mean + beta * (log_proba - mean), axis=1)
        for (i, _), values in log_pi.items():
            joint[i] += values
        g = (1 / (1 + d * rho))[:, None]
        before, q = q, softmax(np.sqrt(g) * joint, axis=1)
        q[known] = np.eye(C)[gold[known]] if known.any() else q[known]
        if np.abs(q - before).max() < 1e-3:
            break
    q = softmax(g * joint, axis=1)
    q[known] = np.eye(C)[gold[known]] if known.any() else q[known]
    return q, beta


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("parity", [0.2, 0.8, 2.0])
def test_the_read_out_by_loops(parity, with_gold):
    y, A, log_proba = votes_of(n=30)
    gold = np.where(np.arange(len(y)) % 7 == 0, y, -1) if with_gold else None
    votes = make_votes(AnnotationTable.from_matrix(A, classes=range(3)), gold=gold)
    start = np.random.default_rng(1).dirichlet(np.ones(3), size=len(A))

    def settle(joint):
        q = softmax(joint, axis=1)
        if gold is not None:
            q[gold >= 0] = np.eye(3)[gold[gold >= 0]]
        return q

    judges = Judges.drawn(votes, np.random.default_rng(0))
    found = read_out(
        votes, log_proba, start, judges, rho=0.2, strength=5.0, relative_informedness=parity,
        settle=settle, annotating=lambda _: 0.0,
    )  # fmt: skip
    posterior, beta = by_loops(A, log_proba, start, 0.2, 5.0, parity, gold)
    assert found.exponent == pytest.approx(beta, rel=1e-6)
    np.testing.assert_allclose(found.posterior, posterior, atol=1e-6)
    assert 0 < found.new_exponent <= 1


def test_the_start_does_not_matter():
    _, A, log_proba = votes_of(n=300)
    votes = make_votes(AnnotationTable.from_matrix(A, classes=range(3)))
    judges = Judges.drawn(votes, np.random.default_rng(0))
    found = [
        read_out(
            votes, log_proba, start, judges, rho=0.1, strength=5.0, relative_informedness=1.0,
            settle=lambda joint: softmax(joint, axis=1), annotating=lambda _: 0.0,
        ).posterior
        for start in (np.exp(log_proba), softmax(3 * log_proba, axis=1))
    ]  # fmt: skip
    np.testing.assert_allclose(*found, atol=0.01)


def test_an_annotation_does_not_move_its_own_confusion_matrix():
    _, A, _ = votes_of()
    q = np.random.default_rng(0).dirichlet(np.ones(3), size=len(A))
    votes = make_votes(AnnotationTable.from_matrix(A, classes=range(3)))
    first = int(votes.start[1])
    moved = q.copy()
    moved[0] = np.roll(q[0], 1)
    # Only the crowd's matrix, to which all are shrunk, has a trace of the instance.
    one, other = (own_removed(votes, each, strength=1e-9)[:first] for each in (q, moved))
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_repeated_annotations_of_one_annotator_are_removed_together():
    """Twice the same answer is one answer of weight 2; both are removed at once."""
    frame = {"task": ["a", "a", "b", "b"], "worker": ["v", "v", "v", "w"], "label": [0, 0, 1, 1]}
    twice = AnnotationTable.from_arrays(
        frame["task"], frame["worker"], frame["label"], classes=[0, 1], duplicates="keep"
    )
    q = np.array([[0.8, 0.2], [0.3, 0.7]])
    found = own_removed(make_votes(twice), q, strength=5.0)
    np.testing.assert_allclose(found[0], found[1])
    counts = np.array([[1.6, 0.3], [0.4, 0.7]])
    pooled = counts + np.array([[0.0, 0.3], [0.0, 0.7]]) + 0.1 + np.eye(2)
    P = 5 * pooled / pooled.sum(axis=1, keepdims=True)
    row = counts.sum(axis=1) + P.sum(axis=1)
    expected = np.log(np.maximum(counts[:, 0] + P[:, 0] - 2 * q[0], P[:, 0]))
    expected -= np.log(np.maximum(row - 2 * q[0], P.sum(axis=1)))
    np.testing.assert_allclose(found[0], expected)


# -- what a user relies on ------------------------------------------------------------------------


def weak(n=600, accuracy=0.8, each=3, shares=(0.25, 0.25, 0.25, 0.25), seed=0, spread=0.25):
    """Features that hardly tell the classes, and annotators who are right in 80 %."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), p=shares, size=n)
    X = rng.normal(size=(n, 10)) + spread * np.eye(10)[y]
    table = make_crowd(
        y, n_annotators=20, noise="symmetric", noise_strength=1 - accuracy,
        annotations_per_instance=each, classes=range(len(shares)), random_state=seed,
    )  # fmt: skip
    return X, y, table


@unwarned
def test_weak_features_do_no_harm():
    X, y, table = weak()
    stack = CrowdStackingClassifier(random_state=0).fit(X, table)
    right, without = stack.labels_ == y, DawidSkene().fit(table).labels_ == y
    apart = right.astype(float) - without
    assert apart.mean() > -apart.std() / np.sqrt(len(y)) - 1e-9
    accuracy = np.einsum("c,rcc->r", stack.class_prior_, stack.confusion_)
    truth = [(table.label[table.annotator == r] == y[table.instance[table.annotator == r]]).mean()
             for r in range(table.n_annotators)]  # fmt: skip
    assert np.mean(accuracy) == pytest.approx(np.mean(truth), abs=0.02)


@unwarned
def test_a_rare_class_keeps_its_share():
    X, y, table = weak(n=1500, each=5, shares=(0.95, 0.05), spread=2.0)
    model = CrowdStackingClassifier(random_state=0).fit(X, table)
    assert model.posterior_.mean(axis=0)[1] == pytest.approx(np.mean(y == 1), abs=0.03)


@unwarned
def test_given_shares_are_held():
    X, _, table = weak(n=300)
    for prior, shares in (((0.4, 0.3, 0.2, 0.1), [0.4, 0.3, 0.2, 0.1]), ("uniform", [0.25] * 4)):
        model = CrowdStackingClassifier(class_prior=prior, n_rounds=2, random_state=0).fit(X, table)
        np.testing.assert_allclose(model.posterior_.mean(axis=0), shares, atol=0.01)


@unwarned
def test_exponents_survive_saving_and_keep_the_most_probable_class(tmp_path):
    demo = load_demo()
    X, table = demo.X_train[:300], demo.annotations[:300]
    model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, table)
    again = load(model.save(tmp_path))
    assert (again.posterior_exponent_, again.prediction_exponent_) == (
        model.posterior_exponent_,
        model.prediction_exponent_,
    )
    assert again.stack_.exponent == model.stack_.exponent < 1
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-12)


def test_a_folder_of_before_the_exponents_still_loads():
    again = load(Path(__file__).parents[1] / "fitting/earlier_folders/2026-11-28/stack")
    assert again.stack_.exponent == 1.0
    np.testing.assert_array_equal(again.prediction_prior_, again.class_prior_)
    assert len(again.predict(np.eye(3))) == 3


def test_one_annotation_each_is_a_doubt_that_a_second_one_settles():
    y = np.arange(200) % 3
    X = np.random.default_rng(0).normal(size=(200, 5)) + 2.0 * np.eye(3, 5)[y]
    one = make_crowd(y, n_annotators=8, annotations_per_instance=1, random_state=0)
    with pytest.warns(ModelChoiceWarning, match="second annotation of 10 % of the instances"):
        model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, one)
    assert model.posterior_exponent_ == 1.0
    assert "single-annotations" in model.doubts_
    two = make_crowd(y, n_annotators=8, annotations_per_instance=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, two)
    assert "single-annotations" not in model.doubts_
