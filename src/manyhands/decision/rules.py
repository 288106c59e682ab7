"""The ``decision`` parameter of classifiers: turning probabilities into labels with `decide`."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from manyhands.decision import decide
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

AUTO = "auto"
"""Default rule: the median for grades, and the most probable class for names."""

RULES = (AUTO, "posterior", "median", "balanced")
"""Rules that have a name; any other rule is a cost matrix."""

_TINY = 1e-300
"""Smallest probability, so that rows with all mass on classes of prior 0 do not become empty."""


def settled(rule: Any, *, grades: bool) -> Any:
    """Return the rule that "auto" stands for, and any other rule unchanged.

    Parameters
    ----------
    rule : {"auto", "posterior", "median", "balanced"} or cost matrix
    grades : bool
        Whether the classes are three or more grades in their order.

    Returns
    -------
    {"posterior", "median", "balanced"} or cost matrix
    """
    if isinstance(rule, str) and rule == AUTO:
        return "median" if grades else "posterior"
    return rule


def knows_grades(model: Any) -> bool:
    """Return whether a classifier was fitted on three or more grades in order."""
    return bool(getattr(model, "ordered_", False)) and len(model.classes_) > 2


def labels_of(model: Any) -> AnyArray:
    """Return the labels of a classifier's training instances, shape (n,), by ``posterior_``.

    They are the labels that an aggregator would give: medians of grades, else the most probable
    classes.
    """
    codes = apply_rule(model.posterior_, AUTO, grades=knows_grades(model))
    return cast(AnyArray, model.classes_[codes])


def is_posterior(rule: Any) -> bool:
    """Return whether a rule needs neither a class prior nor probabilities ("posterior")."""
    return isinstance(rule, str) and rule == "posterior"


def check_rule(rule: Any, n_classes: int | None = None) -> None:
    """Raise an error for an invalid rule, before anything is trained.

    Parameters
    ----------
    rule : {"auto", "posterior", "median", "balanced"} or cost matrix
    n_classes : int, optional
        Number of classes, if already known.

    Raises
    ------
    AnnotationError
        If the name is unknown, or the cost matrix is not square, does not match the number of
        classes, has entries that are negative or not finite, or has a column for abstaining.
    """
    if isinstance(rule, str):
        if rule == "f1":
            raise AnnotationError(
                "decision='f1' is for sets of labels, such as those of "
                "AggregatedClassifier(MultiLabelDawidSkene()); for classes, use "
                f"{', '.join(map(repr, RULES))}"
            )
        if rule not in RULES:
            raise AnnotationError(
                f"decision={rule!r} is unknown; use {', '.join(map(repr, RULES))}, or a matrix of "
                "costs [true, decided]"
            )
        return
    cost = _as_costs(rule)
    _check_shape(cost.shape, n_classes)
    bad = ~(np.isfinite(cost) & (cost >= 0))
    if bad.any():
        true, given = np.argwhere(bad)[0].tolist()
        raise AnnotationError(
            f"decision has the cost {cost[true, given].item()!r} at [{true}, {given}]; costs must "
            "be finite and nonnegative. Adding a number to a whole row changes no decision"
        )


def _as_costs(rule: Any) -> FloatArray:
    try:
        return np.asarray(rule, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise AnnotationError(
            f"decision={rule!r} is not a matrix of numbers ({error}); give one row of costs per "
            f"true class, or use {' or '.join(map(repr, RULES))}"
        ) from error


def _check_shape(shape: tuple[int, ...], n_classes: int | None) -> None:
    rows = n_classes if n_classes is not None or not shape else shape[0]
    if rows and shape == (rows, rows):
        return
    if rows and shape == (rows, rows + 1):
        raise AnnotationError(
            f"decision is a cost matrix of shape {shape}, whose last column is the cost of "
            "abstaining; predict must return a class. Leave out the column, or abstain with "
            "decide(model.predict_proba(X), costs)"
        )
    needed = "(n_classes, n_classes)" if n_classes is None else str((n_classes, n_classes))
    raise AnnotationError(
        f"decision is a cost matrix of shape {shape}; [true, decided] must have shape {needed}"
    )


def apply_rule(
    proba: FloatArray, rule: Any, class_prior: FloatArray | None = None, *, grades: bool = False
) -> IntArray:
    """Choose class codes from probabilities by a rule.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
    rule : {"auto", "posterior", "median", "balanced"} or cost matrix
        See `check_rule`. "posterior" is the argmax; the other rules are those of `decide`.
    class_prior : array of shape (n_classes,), optional
        Required by "balanced"; a class with prior 0 is never chosen.
    grades : bool
        Whether the classes are three or more grades in their order, for which "auto" takes the
        median.

    Returns
    -------
    integer array of shape (n,)

    Raises
    ------
    AnnotationError
        If the rule is invalid, as it may have become since `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> proba = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> apply_rule(proba, "posterior")
    array([0, 0, 0])
    >>> apply_rule(proba, "balanced", np.array([0.7, 0.3]))
    array([0, 0, 1])
    >>> apply_rule(proba, [[0, 1], [5, 0]])
    array([0, 1, 1])
    >>> apply_rule(np.array([[0.4, 0.35, 0.25]]), "auto", grades=True)
    array([1])
    """
    rule = settled(rule, grades=grades)
    if is_posterior(rule):
        return proba.argmax(axis=1)
    check_rule(rule, proba.shape[1])
    if not isinstance(rule, str) or rule == "median":
        return decide(proba, rule)
    prior = np.asarray(class_prior, dtype=np.float64)
    if (prior > 0).all():
        return decide(proba, "balanced", class_prior=prior)
    seen = np.flatnonzero(prior > 0)
    kept = proba[:, seen] + _TINY
    kept = kept / kept.sum(axis=1, keepdims=True)
    return np.asarray(seen[decide(kept, "balanced", class_prior=prior[seen])])
