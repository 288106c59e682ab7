"""The contract every crowd classifier keeps, as checks anybody can run on their own.

Examples
--------
In a test file::

    from manyhands.estimator_checks import parametrize_with_crowd_checks

    @parametrize_with_crowd_checks([MyClassifier()])
    def test_contract(estimator, check):
        check(estimator)
"""

from __future__ import annotations

import copy
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_validate

from manyhands.annotations import AnnotationTable
from manyhands.classifiers import BaseCrowdClassifier, load
from manyhands.typing import AnyArray, FloatArray, IntArray

__all__ = ["check_crowd_estimator", "crowd_checks", "parametrize_with_crowd_checks"]

Check = Callable[[BaseCrowdClassifier], None]


def make_crowd_problem(
    n: int = 48, n_annotators: int = 5, n_classes: int = 3, seed: int = 0
) -> tuple[FloatArray, IntArray, IntArray]:
    """Small separable problem: X (n, 4), annotations (n, R) with -1 missing, true codes (n,)."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, 4)) + 3.0 * np.eye(4)[y]
    A = np.where(rng.random((n, n_annotators)) < 0.8, y[:, None], (y[:, None] + 1) % n_classes)
    A[rng.random(A.shape) < 0.4] = -1
    A[np.arange(n), np.arange(n) % n_annotators] = y
    return X, A, y


def _quick(estimator: BaseCrowdClassifier, **parameters: Any) -> BaseCrowdClassifier:
    """Set parameters for a short fit; what a wrapper lacks is its estimator's."""
    quick: BaseCrowdClassifier = clone(estimator)
    small = {"max_epochs": 2, "batch_size": 16, "random_state": 0, "device": "cpu"}
    own = quick.get_params(deep=False)
    for name, value in {**small, **parameters}.items():
        quick.set_params(**{name if name in own else f"estimator__{name}": value})
    return quick


def _same_fit(a: BaseCrowdClassifier, b: BaseCrowdClassifier, X: AnyArray) -> None:
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


def check_nan_and_minus_one_agree(estimator: BaseCrowdClassifier) -> None:
    """NaN in a float matrix and -1 in an integer one mean the same."""
    X, A, _ = make_crowd_problem()
    with_nan = np.where(A < 0, np.nan, A)
    _same_fit(_quick(estimator).fit(X, A), _quick(estimator).fit(X, with_nan), X)


def check_table_and_matrix_agree(estimator: BaseCrowdClassifier) -> None:
    """A table and the matrix it stands for give the same fit, whatever the order of its rows."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    _same_fit(_quick(estimator).fit(X, A), _quick(estimator).fit(X, table), X)


def check_batch_of_one(estimator: BaseCrowdClassifier) -> None:
    """A single instance keeps its axes, and equals its row in a larger batch."""
    X, A, _ = make_crowd_problem(n=33)
    fitted = _quick(estimator, batch_size=8).fit(X, A)
    assert fitted.predict(X[:1]).shape == (1,)
    for name in ("predict_proba", "predict_annotation_proba", "transform"):
        if hasattr(fitted, name):
            method = getattr(fitted, name)
            one, many = method(X[:1]), method(X)
            assert one.shape == (1, *many.shape[1:]), f"{name} drops an axis for one instance"
            np.testing.assert_allclose(one[0], many[0], rtol=1e-4, atol=1e-5)


def check_every_parameter_moves(estimator: BaseCrowdClassifier) -> None:
    """Every trainable parameter receives a gradient within a few steps."""
    X, A, _ = make_crowd_problem()
    rates: dict[str, Any] = {"weight_decay": 0.0}
    if "noise_lr" in estimator.get_params():
        rates["noise_lr"] = None
    still = _quick(estimator, lr=1e-12, **rates).fit(X, A)
    moved = _quick(estimator, lr=1e-2, **rates).fit(X, A)
    after = dict(moved.module_.named_parameters())
    for name, before in still.module_.named_parameters():
        change = float((after[name] - before).detach().abs().max())
        assert not before.requires_grad or change > 1e-6, f"parameter {name} never moved"


def check_probabilities(estimator: BaseCrowdClassifier) -> None:
    """Probabilities are non-negative and sum to 1; ``predict`` is their argmax."""
    X, A, _ = make_crowd_problem()
    fitted = _quick(estimator).fit(X, A)
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


def check_annotator_subset_is_slice(estimator: BaseCrowdClassifier) -> None:
    """Asking for some annotators equals slicing the answer for all."""
    X, A, _ = make_crowd_problem()
    fitted = _quick(estimator).fit(X, A)
    if hasattr(fitted, "predict_annotation_proba"):
        some = fitted.predict_annotation_proba(X, annotators=[3, 1])
        every = fitted.predict_annotation_proba(X)
        np.testing.assert_allclose(some, every[:, [3, 1]], rtol=1e-4, atol=1e-6)


def check_silent_annotators_and_unlabelled_instances(estimator: BaseCrowdClassifier) -> None:
    """Instances and annotators without annotations are accepted and get finite answers."""
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    A[:5] = -1
    fitted = _quick(estimator).fit(X, A)
    proba = fitted.predict_proba(X)
    assert np.isfinite(proba).all()
    if hasattr(fitted, "confusion_"):
        assert fitted.confusion_.shape[0] == 6
        assert np.isfinite(fitted.confusion_).all()
        np.testing.assert_array_equal(fitted.confusion_[5], fitted.pooled_confusion_)
    if hasattr(fitted, "predict_annotation_proba"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            silent, new = fitted.predict_annotation_proba(X, [5, 99]).transpose(1, 0, 2)
        np.testing.assert_array_equal(silent, new)


def check_annotations_of_weight_zero_are_none(estimator: BaseCrowdClassifier) -> None:
    """An annotation that weighs 0 has no effect."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    kept = (table.instance > 5) & (table.annotator != 4)
    nothing = replace(table, weights=kept.astype(np.float64))
    _same_fit(_quick(estimator).fit(X, table.take(kept)), _quick(estimator).fit(X, nothing), X)


def check_annotator_permutation(estimator: BaseCrowdClassifier) -> None:
    """Permuting annotators permutes ``confusion_`` and leaves predictions alone."""
    X, A, _ = make_crowd_problem()
    order = np.array([2, 0, 4, 1, 3])
    first, second = _quick(estimator), _quick(estimator)
    if "annotator_features" in first.get_params():
        # Random start values follow the order of the features, not of the annotators.
        first.set_params(annotator_features=np.eye(5))
        second.set_params(annotator_features=np.eye(5)[order])
    first.fit(X, A)
    second.fit(X, A[:, order])
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), atol=1e-3)
    if hasattr(first, "confusion_"):
        np.testing.assert_allclose(first.confusion_[order], second.confusion_, atol=1e-3)


def check_class_renaming(estimator: BaseCrowdClassifier) -> None:
    """Renaming classes renames predictions and changes nothing else."""
    X, A, _ = make_crowd_problem()
    names = np.array(["ape", "bee", "cat", None], dtype=object)
    plain, renamed = _quick(estimator).fit(X, A), _quick(estimator).fit(X, names[A])
    _same_fit(plain, renamed, X)
    np.testing.assert_array_equal(names[plain.predict(X)], renamed.predict(X))


def check_inputs_untouched(estimator: BaseCrowdClassifier) -> None:
    """``fit`` and ``predict`` change neither X nor the annotations."""
    X, A, _ = make_crowd_problem()
    kept = X.copy(), A.copy()
    table = AnnotationTable.from_matrix(A)
    copied = copy.deepcopy(table)
    _quick(estimator).fit(X, A).predict(X)
    _quick(estimator).fit(X, table)
    np.testing.assert_array_equal(X, kept[0])
    np.testing.assert_array_equal(A, kept[1])
    assert table.equals(copied)


def check_global_random_state_untouched(estimator: BaseCrowdClassifier) -> None:
    """Numpy's and torch's global generators are where they were."""
    X, A, _ = make_crowd_problem()
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    torch_state = torch.get_rng_state()
    _quick(estimator, validation=0.2).fit(X, A).predict(X)
    after: Any = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(numpy_state[1], after[1])
    assert numpy_state[2] == after[2]
    assert torch.equal(torch_state, torch.get_rng_state())


def check_same_seed_same_result(estimator: BaseCrowdClassifier) -> None:
    """Two fits with one seed agree to the bit, with and without held-out annotations."""
    X, A, _ = make_crowd_problem()
    for validation in (None, 0.2):
        first = _quick(estimator, validation=validation).fit(X, A)
        torch.rand(3)
        _same_fit(first, _quick(estimator, validation=validation).fit(X, A), X)


def check_history(estimator: BaseCrowdClassifier) -> None:
    """``history_`` has a row an epoch: stage, epoch, named terms that sum to the loss, seconds."""
    X, A, _ = make_crowd_problem()
    fitted = _quick(estimator, validation=0.2).fit(X, A)
    assert fitted.history_
    for row in fitted.history_:
        assert {"stage", "epoch", "loss", "seconds", "validation_nll"} <= set(row)
        others = {"stage", "epoch", "loss", "seconds"}
        terms = [v for k, v in row.items() if k not in others and not k.startswith("validation")]
        assert terms, "no named loss term"
        np.testing.assert_allclose(sum(terms), row["loss"])
    assert 1 <= fitted.best_epoch_ <= max(row["epoch"] for row in fitted.history_)


def check_pickle(estimator: BaseCrowdClassifier) -> None:
    """A fitted estimator survives pickling."""
    X, A, _ = make_crowd_problem()
    fitted = _quick(estimator).fit(X, A)
    _same_fit(fitted, pickle.loads(pickle.dumps(fitted)), X)


def check_save_and_load(estimator: BaseCrowdClassifier) -> None:
    """A saved model predicts the same after loading, annotations included."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2], annotators=list("vwxyz"))
    fitted = _quick(estimator).fit(X, table)
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(folder)
        loaded = load(folder, device="cpu")
    _same_fit(fitted, loaded, X)
    assert type(loaded) is type(fitted)
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert loaded.annotators_.tolist() == list("vwxyz")
    assert loaded.history_ == fitted.history_
    if hasattr(fitted, "predict_annotation_proba"):
        np.testing.assert_array_equal(
            fitted.predict_annotation_proba(X, ["y"]), loaded.predict_annotation_proba(X, ["y"])
        )
    if hasattr(fitted, "confusion_"):
        np.testing.assert_array_equal(fitted.confusion_, loaded.confusion_)


def check_dataset_and_array_agree(estimator: BaseCrowdClassifier) -> None:
    """A map-style Dataset, a tensor and a sparse matrix give the fit of the array they hold."""
    from scipy.sparse import csr_matrix

    X, A, _ = make_crowd_problem()
    X = X.astype(np.float32)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X))
    plain = _quick(estimator, scaling=None).fit(X, A)
    for other in (dataset, torch.from_numpy(X), csr_matrix(X)):
        fitted = _quick(estimator, scaling=None).fit(other, A)
        np.testing.assert_allclose(fitted.predict_proba(other), plain.predict_proba(X), atol=1e-5)


def check_user_network(estimator: BaseCrowdClassifier) -> None:
    """A user's own module serves as backbone and is not trained in place."""
    X, A, _ = make_crowd_problem()
    own = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    before = copy.deepcopy(own.state_dict())
    fitted = _quick(estimator, backbone=own).fit(X, A)
    assert fitted.predict_proba(X).shape == (len(X), 3)
    assert not hasattr(fitted, "transform"), "a network without embed() cannot transform"
    for name, value in own.state_dict().items():
        assert torch.equal(value, before[name]), f"the user's module was trained in place: {name}"


def check_cross_validation(estimator: BaseCrowdClassifier) -> None:
    """A table passes as y through scikit-learn's ``cross_validate``."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)

    def score(fitted: Any, X_part: Any, y_part: Any) -> float:
        return float(fitted.n_annotators_ == 5 and len(y_part) == len(X_part))

    result = cross_validate(_quick(estimator), X, table, cv=3, scoring=score, error_score="raise")
    assert (result["test_score"] == 1.0).all()


def check_bad_input(estimator: BaseCrowdClassifier) -> None:
    """Unusable input ends in an error that names the argument, never in a model."""
    X, A, _ = make_crowd_problem()
    broken = X.copy()
    broken[3, 1] = np.nan
    too_wide = AnnotationTable.from_matrix(A)
    cases: list[tuple[Any, Any, str]] = [
        (X[:-1], A, "X has"),
        (broken, A, "X contains NaN"),
        (X, np.full_like(A, -1), "y is empty"),
        (X, np.where(A >= 0, 1, -1), "one class only"),
        (X, too_wide.take(too_wide.label == 1), "one class only"),
        (X, None, "y"),
        (X, A[..., None], "y must be"),
    ]
    for bad_X, bad_y, message in cases:
        fresh = _quick(estimator)
        _expect_error(message, fresh.fit, bad_X, bad_y)
        assert not hasattr(fresh, "module_")
    fitted = _quick(estimator).fit(X, A)
    if hasattr(fitted, "predict_annotation_proba"):
        _expect_error("strings", fitted.predict_annotation_proba, X, ["99"])


def check_new_annotators(estimator: BaseCrowdClassifier) -> None:
    """An annotator not there in fit is expected to do what the crowd does; a warning says so."""
    X, A, _ = make_crowd_problem()
    fitted = _quick(estimator).fit(X, A)
    if not hasattr(fitted, "predict_annotation_proba"):
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        proba = fitted.predict_annotation_proba(X, [3, 99])
        score = fitted.score(X, AnnotationTable.from_matrix(A, annotators=[0, 1, 2, 3, 99]))
    assert any("99" in str(warning.message) for warning in caught), "no warning names 99"
    assert proba.shape == (len(X), 2, 3)
    np.testing.assert_allclose(proba.sum(axis=2), 1.0, rtol=1e-5)
    expected = fitted.predict_proba(X)
    if hasattr(fitted, "confusion_"):
        pooled = fitted.pooled_confusion_
        np.testing.assert_allclose(pooled.sum(axis=1), 1.0, rtol=1e-5)
        assert (pooled > fitted.confusion_.min(axis=0) - 1e-6).all(), "no mean of confusion_"
        assert (pooled < fitted.confusion_.max(axis=0) + 1e-6).all(), "no mean of confusion_"
        expected = expected @ fitted.pooled_confusion_
    np.testing.assert_allclose(proba[:, 1], expected, atol=1e-5)
    every = fitted.predict_annotation_proba(X)
    every[:, 4] = expected
    rows, columns = np.nonzero(A >= 0)
    by_hand = np.log(every[rows, columns, A[rows, columns]]).mean()
    np.testing.assert_allclose(score, by_hand, rtol=1e-4)


def check_class_balance(estimator: BaseCrowdClassifier) -> None:
    """Every option for rare classes ends in finite probabilities; a wrong one in an error."""
    X, A, y = make_crowd_problem()
    rare = np.where((y == 2)[:, None] & (np.arange(len(y)) > 12)[:, None], -1, A)
    for option in ("resample", "reweight", "focal", {"name": "cb_focal", "gamma": 1, "beta": 0.9}):
        fitted = _quick(estimator, class_balance=option).fit(X, rare)
        assert np.isfinite(fitted.predict_proba(X)).all(), f"class_balance={option!r}"
    fresh = _quick(estimator, class_balance="reweigh")
    _expect_error("class_balance='reweigh' is unknown", fresh.fit, X, A)


def check_reweighting_balanced_annotations_changes_nothing(
    estimator: BaseCrowdClassifier,
) -> None:
    """With as many annotations of every class, "reweight" and "resample" do nothing."""
    X, _, y = make_crowd_problem()
    A = np.where(np.arange(5) < 3, y[:, None], -1)
    plain = _quick(estimator).fit(X, A)
    for option in ("resample", "reweight"):
        _same_fit(plain, _quick(estimator, class_balance=option).fit(X, A), X)


def check_degenerate_crowds(estimator: BaseCrowdClassifier) -> None:
    """One annotator, constant annotators, and all agreeing end in finite probabilities."""
    X, A, y = make_crowd_problem()
    crowds = {
        "one annotator": y[:, None],
        "constant annotators": np.broadcast_to(np.arange(5) % 3, A.shape).copy(),
        "all agree": np.repeat(y[:, None], 5, axis=1),
        "an annotation each": np.where(np.arange(len(y))[:, None] % 5 == np.arange(5), A, -1),
    }
    for name, crowd in crowds.items():
        if len(np.unique(crowd[crowd >= 0])) > 1:
            fitted = _quick(estimator).fit(X, crowd)
            assert np.isfinite(fitted.predict_proba(X)).all(), name
            if hasattr(fitted, "confusion_"):
                assert np.isfinite(fitted.confusion_).all(), name


def _expect_error(message: str, call: Callable[..., Any], *args: Any) -> None:
    """Call, and insist on a ValueError that says ``message`` (pytest may not be installed)."""
    said = None
    try:
        call(*args)
    except ValueError as error:
        said = str(error)
    assert said is not None, f"unusable input was accepted ({message!r} expected)"
    assert message in said, f"{message!r} is not in the error: {said}"


def crowd_checks(estimator: BaseCrowdClassifier) -> Iterator[tuple[str, Check]]:
    """Yield (name, check) of every check that applies.

    A class leaves one out by naming it, with the reason, in its ``_crowd_check_exemptions``.
    """
    exempt = getattr(estimator, "_crowd_check_exemptions", {})
    for name, check in globals().items():
        if name.startswith("check_") and name != "check_crowd_estimator" and name not in exempt:
            yield name, check


def check_crowd_estimator(estimator: BaseCrowdClassifier) -> None:
    """Run every check; the first that fails raises."""
    for _, check in crowd_checks(estimator):
        check(estimator)


def parametrize_with_crowd_checks(estimators: Iterable[BaseCrowdClassifier]) -> Any:
    """Parametrise a pytest function ``test(estimator, check)`` over estimators and checks."""
    import pytest

    cases = [
        pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}")
        for estimator in estimators
        for name, check in crowd_checks(estimator)
    ]
    return pytest.mark.parametrize(("estimator", "check"), cases)
