"""SoftProb: every annotation an example; its limiting cases."""

import copy

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    MajorityVote,
    SoftProbClassifier,
    load,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError

QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}


def one_each():
    """A problem with one annotation an instance."""
    X, A, _ = make_crowd_problem()
    turn = np.arange(len(A))[:, None] % 5 == np.arange(5)
    return X, np.where(turn, A, -1)


def test_with_one_annotation_each_it_is_the_aggregated_classifier():
    X, A = one_each()
    ours = SoftProbClassifier(**QUICK).fit(X, A)
    theirs = AggregatedClassifier(MajorityVote(), **QUICK).fit(X, A)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(
        ours.history_.column("nll"), theirs.history_.column("cross_entropy"), rtol=1e-6
    )
    second = LogisticRegression()
    ours, theirs = (cls(backbone=second) for cls in (SoftProbClassifier, AggregatedClassifier))
    np.testing.assert_allclose(
        ours.fit(X, A).predict_proba(X), theirs.fit(X, A).predict_proba(X), atol=1e-6
    )


def test_training_equals_a_slow_loop():
    """Every pair a term of the mean; whole batches, so no shuffling."""
    X, A, _ = make_crowd_problem()
    torch.manual_seed(1)
    network = torch.nn.Linear(4, 3)
    model = SoftProbClassifier(
        copy.deepcopy(network), lr=0.05, weight_decay=1e-3, max_epochs=3, batch_size=100,
        scaling=None, random_state=0, device="cpu",
    ).fit(X, A)  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05, weight_decay=1e-3)
    x = torch.tensor(X, dtype=torch.float32)
    for _ in range(3):
        pairs = zip(*np.nonzero(A >= 0), strict=True)
        losses = [-network(x[i]).log_softmax(0)[A[i, r]] for i, r in pairs]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    expected = network(x).softmax(dim=1).detach().numpy()
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-5)


@pytest.mark.parametrize("pipeline", [False, True])
def test_a_scikit_learn_classifier_sees_every_vote(pipeline):
    """Equal to rows weighted by votes, and to one row a vote."""
    X, A, _ = make_crowd_problem()
    A[:5] = -1
    second = LogisticRegression(max_iter=1000, tol=1e-8)
    model = SoftProbClassifier(make_pipeline(StandardScaler(), second) if pipeline else second)
    model.fit(X, A)
    rows, columns = np.nonzero(A >= 0)
    if pipeline:  # The scaler sees one row a class of an instance, unweighted.
        votes = np.stack([(c == A).sum(axis=1) for c in range(3)], axis=1)
        i, c = np.nonzero(votes)
        scaler = StandardScaler().fit(X[i])
        plain = LogisticRegression(max_iter=1000, tol=1e-8)
        plain.fit(scaler.transform(X[i]), c, sample_weight=votes[i, c])
        expected = plain.predict_proba(scaler.transform(X))
    else:
        plain = LogisticRegression(max_iter=1000, tol=1e-8).fit(X[rows], A[rows, columns])
        expected = plain.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-5)
    assert not hasattr(second, "coef_")


def test_everyone_is_expected_to_say_what_the_classifier_says():
    X, A, _ = make_crowd_problem()
    for model in (SoftProbClassifier(**QUICK), SoftProbClassifier(LogisticRegression())):
        model.fit(X, A)
        assert not hasattr(model, "confusion_")
        proba = model.predict_proba(X)
        given = model.predict_annotation_proba(X, [3, 1])
        np.testing.assert_allclose(given, np.stack([proba, proba], axis=1), atol=1e-6)
        rows, columns = np.nonzero(A >= 0)
        by_hand = np.log(proba[rows, A[rows, columns]]).mean()
        assert model.annotation_log_likelihood(X, A) == pytest.approx(by_hand, rel=1e-5)
        with pytest.warns(UserWarning, match="99"):
            new = model.predict_annotation_proba(X, [99])
        np.testing.assert_allclose(new[:, 0], proba, atol=1e-6)


def test_weights_and_balance_reach_the_second_stage():
    X, A, y = make_crowd_problem()
    A[(y == 2) & (np.arange(len(y)) > 12)] = -1
    table = AnnotationTable.from_matrix(A)
    second = LogisticRegression(max_iter=1000, tol=1e-8)
    counts = np.bincount(table.label)
    by_hand = SoftProbClassifier(second).fit(
        X,
        AnnotationTable.from_arrays(
            table.instance, table.annotator, table.label,
            weight=(counts.max() / counts)[table.label], classes=table.classes,
            n_instances=len(X), n_annotators=5,
        ),
    )  # fmt: skip
    reweighted = SoftProbClassifier(second, class_balance="reweight").fit(X, table)
    np.testing.assert_allclose(reweighted.predict_proba(X), by_hand.predict_proba(X), atol=1e-6)
    plain = SoftProbClassifier(second).fit(X, table)
    assert (reweighted.predict_proba(X) - plain.predict_proba(X))[:, 2].mean() > 0.001


def test_what_a_scikit_learn_classifier_cannot_do_is_refused(tmp_path):
    X, A, _ = make_crowd_problem()
    for parameters, message in [
        ({"class_balance": "focal"}, "changes the loss of a network"),
        ({"validation": 0.2}, "validation is for training a network"),
        ({"checkpoint": tmp_path / "x", "random_state": 0}, "checkpoint is for training a network"),
    ]:
        with pytest.raises(AnnotationError, match=message):
            SoftProbClassifier(LogisticRegression(), **parameters).fit(X, A)
    with pytest.raises(AnnotationError, match="KNeighborsClassifier takes no sample_weight"):
        SoftProbClassifier(KNeighborsClassifier()).fit(X, A)
    with pytest.raises(AnnotationError, match="scikit-learn"):
        SoftProbClassifier(LogisticRegression()).fit(X, A).save(tmp_path)


def test_a_class_nobody_gave_has_no_probability():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 7])
    model = SoftProbClassifier(LogisticRegression()).fit(X, table)
    assert model.predict_proba(X).shape == (len(X), 4)
    assert (model.predict_proba(X)[:, 3] == 0).all()


def test_logistic_regression_as_a_network(tmp_path):
    X, A, y = make_crowd_problem()
    model = SoftProbClassifier("linear", **(QUICK | {"max_epochs": 60, "lr": 0.05})).fit(X, A)
    assert model.score(X, y) > 0.9
    loaded = load(model.save(tmp_path))
    np.testing.assert_array_equal(model.predict_proba(X), loaded.predict_proba(X))
