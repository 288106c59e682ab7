"""Checks of the result of a fit: probabilities, attributes, history, repetition."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_validate

from manyhands.annotations import AnnotationTable
from manyhands.estimator_checks.problem import (
    expect_error,
    expect_same_fit,
    make_crowd_problem,
    quick_clone,
    quick_fit,
)
from manyhands.exceptions import ClassCollapseWarning, ModelChoiceWarning
from manyhands.fitting import BaseCrowdClassifier
from manyhands.metrics import accuracy, vote_agreement
from manyhands.typing import FloatArray


def check_batch_of_one(estimator: BaseCrowdClassifier) -> None:
    """Check that the result for one instance keeps its axes and equals its row in a batch."""
    X, A, _ = make_crowd_problem(n=33)
    fitted = quick_clone(estimator, batch_size=8).fit(X, A)
    assert fitted.predict(X[:1]).shape == (1,)
    for name in ("predict_proba", "predict_annotation_proba", "transform"):
        if hasattr(fitted, name):
            method = getattr(fitted, name)
            one, many = method(X[:1]), method(X)
            assert one.shape == (1, *many.shape[1:]), f"{name} drops an axis for one instance"
            np.testing.assert_allclose(one[0], many[0], rtol=1e-4, atol=1e-5)


def check_every_parameter_moves(estimator: BaseCrowdClassifier) -> None:
    """Check that every trainable parameter receives a gradient within a few steps."""
    X, A, _ = make_crowd_problem()
    rates: dict[str, Any] = {"weight_decay": 0.0}
    if "protocol__noise_lr" in estimator.get_params():
        rates["protocol__noise_lr"] = None
    untrained = quick_clone(estimator, lr=1e-12, **rates).fit(X, A)
    trained = quick_clone(estimator, lr=1e-2, **rates).fit(X, A)
    after = dict(trained.module_.named_parameters())
    for name, before in untrained.module_.named_parameters():
        change = float((after[name] - before).detach().abs().max())
        assert not before.requires_grad or change > 1e-6, f"parameter {name} never moved"


def check_probabilities(estimator: BaseCrowdClassifier) -> None:
    """Check that probabilities are non-negative and sum to 1; ``predict`` is their argmax."""
    X, A, _ = make_crowd_problem()
    fitted = quick_fit(estimator, X, A)
    proba = fitted.predict_proba(X)
    assert proba.shape == (len(X), 3)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[proba.argmax(axis=1)])
    if hasattr(fitted, "predict_annotation_proba"):
        annotations = fitted.predict_annotation_proba(X)
        assert annotations.shape == (len(X), 5, 3)
        assert annotations.min() >= 0
        np.testing.assert_allclose(annotations.sum(axis=2), 1.0, rtol=1e-5)
        if hasattr(fitted, "predict_observed_proba"):
            rows, columns = np.nonzero(A >= 0)
            observed = fitted.predict_observed_proba(X, A)
            np.testing.assert_allclose(observed, annotations[rows, columns], rtol=1e-4, atol=1e-6)
    if hasattr(fitted, "confusion_"):
        assert fitted.confusion_.shape == (5, 3, 3)
        np.testing.assert_allclose(fitted.confusion_.sum(axis=2), 1.0, rtol=1e-5)


def check_decisions(estimator: BaseCrowdClassifier) -> None:
    """Check that ``decision`` changes what `predict` says, on grades too, and no probability."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2], ordered=True)
    fitted = quick_fit(estimator, X, table)
    proba = fitted.predict_proba(X)
    median = fitted.classes_[(proba.cumsum(axis=1) < 0.5).sum(axis=1)]
    np.testing.assert_array_equal(fitted.predict(X), median, "grades are not labelled by medians")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClassCollapseWarning)
        plain = quick_clone(estimator, decision="posterior").fit(X, table)
    np.testing.assert_array_equal(plain.predict(X), plain.classes_[proba.argmax(axis=1)])
    if hasattr(fitted, "posterior_"):
        codes = (fitted.posterior_.cumsum(axis=1) < 0.5 - 1e-9).sum(axis=1)
        np.testing.assert_array_equal(fitted.labels_, fitted.classes_[codes])
    last_only = [[1.0, 1.0, 0.0]] * 3  # Every other answer costs something, whatever is true.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClassCollapseWarning)
        costly = quick_clone(estimator, decision=last_only).fit(X, table)
    assert set(costly.predict(X).tolist()) == {2}, "predict ignores decision"
    unknown = quick_clone(estimator, decision="fair")
    expect_error("decision='fair' is unknown", unknown.fit, X, table)


def check_annotator_subset_is_slice(estimator: BaseCrowdClassifier) -> None:
    """Check that the prediction for some annotators is a slice of the prediction for all."""
    X, A, _ = make_crowd_problem()
    fitted = quick_fit(estimator, X, A)
    if hasattr(fitted, "predict_annotation_proba"):
        some = fitted.predict_annotation_proba(X, annotators=[3, 1])
        every = fitted.predict_annotation_proba(X)
        np.testing.assert_allclose(some, every[:, [3, 1]], rtol=1e-4, atol=1e-6)


def check_global_random_state_untouched(estimator: BaseCrowdClassifier) -> None:
    """Check that ``fit`` and ``predict`` do not advance numpy's and torch's global generators."""
    X, A, _ = make_crowd_problem()
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    torch_state = torch.get_rng_state()
    quick_clone(estimator, validation=0.2).fit(X, A).predict(X)
    after: Any = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(numpy_state[1], after[1])
    assert numpy_state[2] == after[2]
    assert torch.equal(torch_state, torch.get_rng_state())


def check_same_seed_same_result(estimator: BaseCrowdClassifier) -> None:
    """Check that two fits with the same seed agree bit for bit, also with held-out instances."""
    X, A, _ = make_crowd_problem()
    for validation in (None, 0.2):
        first = quick_fit(estimator, X, A, validation=validation)
        torch.rand(3)
        expect_same_fit(first, quick_clone(estimator, validation=validation).fit(X, A), X)


def check_history(estimator: BaseCrowdClassifier) -> None:
    """Check the rows of ``history_``: stage, epoch, terms that sum to the loss, seconds."""
    X, A, _ = make_crowd_problem()
    fitted = quick_fit(estimator, X, A, validation=0.2)
    assert fitted.history_
    measure = "validation_nll" if estimator._traits.epochs_are_rounds else "validation_agreement"
    for row in fitted.history_:
        assert {"stage", "epoch", "loss", "seconds", measure} <= set(row)
        others = {"stage", "epoch", "loss", "seconds"}
        terms = [v for k, v in row.items() if k not in others and not k.startswith("validation")]
        assert terms, "no named loss term"
        np.testing.assert_allclose(sum(terms), row["loss"])
    assert 1 <= fitted.best_epoch_ <= max(row["epoch"] for row in fitted.history_)


def check_score(estimator: BaseCrowdClassifier) -> None:
    """Check ``score``: accuracy by gold labels, else agreement with the annotations.

    Scoring the training instances must warn.
    """
    X, A, y = make_crowd_problem(n=60)
    table = AnnotationTable.from_matrix(A, instances=[f"img{i}" for i in range(60)])
    fitted = quick_clone(estimator).fit(X[:48], table[:48])
    predicted = fitted.predict(X[48:])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelChoiceWarning)
        score = fitted.score(X[48:], table[48:])
        assert score == fitted.score(X[48:], A[48:]) == vote_agreement(predicted, table[48:])
        assert fitted.score(X[48:], y[48:]) == accuracy(y[48:], predicted)
        if hasattr(fitted, "predict_observed_proba"):
            given = fitted.predict_observed_proba(X[48:], table[48:])
            own = given[np.arange(len(given)), table[48:].label].astype(float)
            likelihood = fitted.annotation_log_likelihood(X[48:], table[48:])
            np.testing.assert_allclose(likelihood, np.log(own).mean(), rtol=1e-4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted.score(X[47:], table[47:])
    assert [w.category for w in caught] == [ModelChoiceWarning], "in sample, and no warning"


def check_cross_validation(estimator: BaseCrowdClassifier) -> None:
    """Check that a table passes as y through scikit-learn's ``cross_validate``."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)

    def score(fitted: Any, X_part: Any, y_part: Any) -> float:
        return float(fitted.n_annotators_ == 5 and len(y_part) == len(X_part))

    result = cross_validate(
        quick_clone(estimator), X, table, cv=3, scoring=score, error_score="raise"
    )
    assert (result["test_score"] == 1.0).all()


def check_new_annotators(estimator: BaseCrowdClassifier) -> None:
    """Check that a new annotator is expected to annotate as the crowd does; a warning says so."""
    X, A, _ = make_crowd_problem()
    fitted = quick_fit(estimator, X, A)
    if not hasattr(fitted, "predict_annotation_proba"):
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        proba = fitted.predict_annotation_proba(X, [3, 99])
        likelihood = fitted.annotation_log_likelihood(
            X, AnnotationTable.from_matrix(A, annotators=[0, 1, 2, 3, 99])
        )
    assert any("99" in str(warning.message) for warning in caught), "no warning names 99"
    assert proba.shape == (len(X), 2, 3)
    np.testing.assert_allclose(proba.sum(axis=2), 1.0, rtol=1e-5)
    expected = fitted.predict_proba(X)
    if hasattr(fitted, "confusion_"):
        pooled = fitted.pooled_confusion_
        np.testing.assert_allclose(pooled.sum(axis=1), 1.0, rtol=1e-5)
        assert (pooled > fitted.confusion_.min(axis=0) - 1e-6).all(), "not a mean of confusion_"
        assert (pooled < fitted.confusion_.max(axis=0) + 1e-6).all(), "not a mean of confusion_"
        expected = expected @ fitted.pooled_confusion_
    np.testing.assert_allclose(proba[:, 1], expected, atol=1e-5)
    every = fitted.predict_annotation_proba(X)
    every[:, 4] = expected
    rows, columns = np.nonzero(A >= 0)
    by_hand = np.log(every[rows, columns, A[rows, columns]]).mean()
    np.testing.assert_allclose(likelihood, by_hand, rtol=1e-4)


def check_class_balance(estimator: BaseCrowdClassifier) -> None:
    """Check that every option for rare classes changes the fit; an unknown one raises an error.

    If the traits have a ``focal_refusal``, focal options must raise an error that gives it.
    """
    X, A, y = make_crowd_problem()
    rare = np.where((y == 2)[:, None] & (np.arange(len(y)) > 12)[:, None], -1, A)
    plain = quick_clone(estimator, class_balance=None).fit(X, rare).predict_proba(X)
    refusal = estimator._traits.focal_refusal
    for option in ("resample", "reweight", "focal", {"name": "cb_focal", "gamma": 1, "beta": 0.9}):
        balanced = quick_clone(estimator, class_balance=option)
        is_focal = option not in ("resample", "reweight")
        if is_focal and refusal is not None:
            expect_error(f"class_balance={option!r} {refusal}", balanced.fit, X, rare)
            continue
        proba = balanced.fit(X, rare).predict_proba(X)
        assert np.isfinite(proba).all(), f"class_balance={option!r}"
        assert not np.array_equal(proba, plain), f"class_balance={option!r} {_NO_CHANGE[is_focal]}"
    fresh = quick_clone(estimator, class_balance="reweigh")
    expect_error("class_balance='reweigh' is unknown", fresh.fit, X, A)


_NO_CHANGE = (
    "changes nothing: a loss of your own multiplies the term of every annotation by batch.weights",
    "changes nothing: a loss of your own applies fit.recipe.focus to the probability of every "
    "annotation; if it has no such probability, set focal_refusal in the traits",
)
"""What an option for rare classes does not do, and the mend; the second is about focal options."""


def check_reweighting_balanced_annotations_changes_nothing(
    estimator: BaseCrowdClassifier,
) -> None:
    """Check that balances have no effect if every class has equally many annotations."""
    X, _, y = make_crowd_problem()
    A = np.where(np.arange(5) < 3, y[:, None], -1)
    plain = quick_clone(estimator).fit(X, A)
    for option in ("resample", "reweight"):
        expect_same_fit(plain, quick_clone(estimator, class_balance=option).fit(X, A), X)


def check_partial_fit(estimator: BaseCrowdClassifier) -> None:
    """Check that annotations that come later count, and so do new annotators; order is kept."""
    if not hasattr(estimator, "partial_fit"):
        return
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2], annotators=list("vwxyz"))
    early = table[:24].select(annotators=list("xvw"))
    model = quick_clone(estimator).partial_fit(X[:24], early)
    expect_same_fit(model, quick_clone(estimator).fit(X[:24], early), X)
    assert not hasattr(clone(model), "seen_"), "a clone keeps what was seen"
    model.partial_fit(X[24:], table[24:])
    assert model.annotators_.tolist() == list("xvwyz"), "annotators keep their places"
    assert model.classes_.tolist() == [0, 1, 2]
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
    if hasattr(model, "confusion_"):
        assert model.confusion_.shape == (5, 3, 3)
        np.testing.assert_allclose(model.confusion_.sum(axis=2), 1.0, rtol=1e-5)
    if hasattr(model, "predict_annotation_proba"):
        assert model.predict_annotation_proba(X, ["z"]).shape == (48, 1, 3)
    late = table[:24].select(annotators=list("yz"))
    model.partial_fit(X[:24], late)  # New annotations of old instances.
    assert model.seen_.table.n_annotations == table.n_annotations
    expect_same_fit(model, pickle.loads(pickle.dumps(model)), X)


def check_lost_classes(estimator: BaseCrowdClassifier) -> None:
    """Check that a fit warns of class collapse: an annotated class that is never predicted.

    A class must collapse in this problem, because two classes have the same features.
    """
    _, A, y = make_crowd_problem()
    X = np.eye(4)[np.minimum(y, 1)]
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2])
    model = quick_clone(estimator)
    _expect_collapse_named(model, "fit", X, table)
    if hasattr(model, "partial_fit"):
        model = quick_clone(estimator)
        _expect_collapse_named(model, "partial_fit", X[:24], table[:24])
        _expect_collapse_named(model, "partial_fit", X[24:], table[24:], seen=(X, table))


def _expect_collapse_named(
    model: Any, fit: str, X: FloatArray, table: AnnotationTable, seen: Any = None
) -> None:
    """Fit, and assert that one warning names the lost classes, their annotations and a mend."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(model, fit)(X, table)
    messages = [str(w.message) for w in caught if w.category is ClassCollapseWarning]
    assert len(messages) == 1, f"{fit} warns {len(messages)} times of lost classes, not once"
    X, table = seen or (X, table)
    for code in set(table.label.tolist()) - set(model.predict(X).tolist()):
        named = f"{code} ({np.count_nonzero(table.label == code)} annotation"
        assert named in messages[0], f"lost class {named}s) is not named in: {messages[0]}"
    assert "try " in messages[0].lower(), f"no mend is named in: {messages[0]}"
