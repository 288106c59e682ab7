"""A small problem for checks, estimators set for short fits, and shared assertions."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone

from manyhands.fitting import BaseCrowdClassifier
from manyhands.typing import AnyArray, FloatArray, IntArray


def make_crowd_problem(
    n: int = 48, n_annotators: int = 5, n_classes: int = 3, seed: int = 0
) -> tuple[FloatArray, IntArray, IntArray]:
    """Make a separable problem: X (n, 4), annotations (n, R) with -1 missing, true codes (n,)."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, 4)) + 3.0 * np.eye(4)[y]
    A = np.where(rng.random((n, n_annotators)) < 0.8, y[:, None], (y[:, None] + 1) % n_classes)
    A[rng.random(A.shape) < 0.4] = -1
    A[np.arange(n), np.arange(n) % n_annotators] = y
    return X, A, y


def quick_clone(estimator: BaseCrowdClassifier, **parameters: Any) -> BaseCrowdClassifier:
    """Clone an estimator for a short fit; parameters that a wrapper lacks go to what it wraps."""
    made: BaseCrowdClassifier = clone(estimator)
    defaults = {"max_epochs": 2, "batch_size": 16, "random_state": 0, "device": "cpu"}
    own = made.get_params(deep=False)
    members = [f"{number}__" for number in range(len(own.get("estimators", ())))]
    for name, value in {**defaults, **parameters}.items():
        is_own = name.partition("__")[0] in own
        if not is_own and not members and "estimator" not in own:
            continue  # Such as max_epochs of a classifier that has no epochs.
        prefixes = [""] if is_own else members or ["estimator__"]
        made.set_params(**{f"{prefix}{name}": value for prefix in prefixes})
    return made


_FITTED: OrderedDict[tuple[type, str], BaseCrowdClassifier] = OrderedDict()
"""The most recent fits of `quick_fit`."""

_MOST_FITTED = 8


def quick_fit(
    estimator: BaseCrowdClassifier, X: AnyArray, y: Any, **parameters: Any
) -> BaseCrowdClassifier:
    """Return a fitted `quick_clone`, or a copy of the same fit of another check.

    Most checks need the same fit. A check of fitting itself calls ``quick_clone(...).fit``.
    """
    fresh = quick_clone(estimator, **parameters)
    try:
        key = type(fresh), joblib.hash((fresh.get_params(deep=True), X, y))
    except (pickle.PicklingError, AttributeError, TypeError):  # A parameter cannot be hashed.
        return fresh.fit(X, y)
    if key not in _FITTED:
        _FITTED[key] = fresh.fit(X, y)
        if len(_FITTED) > _MOST_FITTED:
            _FITTED.popitem(last=False)
    return copy.deepcopy(_FITTED[key])


def expect_same_fit(a: BaseCrowdClassifier, b: BaseCrowdClassifier, X: AnyArray) -> None:
    """Assert that predictions are equal to the last bit."""
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


def expect_error(message: str, call: Callable[..., Any], *args: Any) -> None:
    """Assert that a call raises a ValueError containing ``message`` (pytest may be missing)."""
    raised = None
    try:
        call(*args)
    except ValueError as error:
        raised = str(error)
    assert raised is not None, f"unusable input was accepted ({message!r} expected)"
    assert message in raised, f"{message!r} is not in the error: {raised}"
