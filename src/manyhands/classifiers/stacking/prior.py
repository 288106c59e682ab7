"""Known class shares, and warnings about assumed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import chi2

from manyhands.annotations import AnnotationTable
from manyhands.codes import WarningCode
from manyhands.exceptions import AnnotationError, ModelChoiceWarning, warn_caller
from manyhands.training.progress import History
from manyhands.typing import AnyArray, FloatArray, IntArray

LITTLE_INFORMEDNESS = 0.7
"""Relative informedness below which the features are said to inform less than annotators."""

LITTLE_SHRINKAGE = 0.2
"""Kappa below which the assumption of equal class shares has little effect."""

FAR_FROM_UNIFORM = 0.12
"""Total variation of the first round's unconstrained shares from equal ones, above which a prior
close to equal shares is doubted. In later rounds the prior has already changed the posterior."""

CHANCE = 1e-3
"""Significance level of the chi-square test of equally frequent classes."""


def read_class_prior(given: Any, classes: AnyArray, seen: IntArray) -> Any:
    """Return the class shares over the classes seen, or the name of a rule.

    Parameters
    ----------
    given : str, dict or array of shape (n_classes,)
    classes : array of shape (n_classes,)
    seen : integer array
        Codes of the classes that have annotations.

    Returns
    -------
    str, or array of shape (n_seen,) with sum 1

    Raises
    ------
    AnnotationError
        If the shares are not those of the classes, or do not sum to 1.
    """
    if isinstance(given, str):
        return given
    if hasattr(given, "to_dict") and hasattr(given, "index"):  # A Series, such as value_counts.
        given = given.to_dict()
    if isinstance(given, Mapping):
        missing = [value for value in classes.tolist() if value not in given]
        extra = [value for value in given if value not in classes.tolist()]
        if missing or extra:
            raise AnnotationError(
                f"class_prior names {list(given)}, but the classes are {classes.tolist()}; give "
                "one share for each"
            )
        given = [given[value] for value in classes.tolist()]
    try:
        shares = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise AnnotationError(
            f"class_prior={given!r} must hold numbers, one share for each of the classes "
            f"{classes.tolist()}"
        ) from error
    if shares.shape != classes.shape or not np.isfinite(shares).all() or (shares < 0).any():
        raise AnnotationError(
            f"class_prior={given!r} must hold one nonnegative share for each of the "
            f"{len(classes)} classes {classes.tolist()}"
        )
    if not np.isclose(shares.sum(), 1.0, atol=1e-3):
        raise AnnotationError(
            f"class_prior={given!r} sums to {shares.sum():g}; give shares that sum to 1"
        )
    if not shares[seen].all():
        absent = classes[seen[shares[seen] == 0]].tolist()
        raise AnnotationError(
            f"class_prior gives the share 0 to {absent}, although annotators gave it; give a "
            "share above 0"
        )
    lost = [value for code, value in enumerate(classes.tolist()) if code not in seen]
    if (unseen := float(np.delete(shares, seen).sum())) > 0:
        warn_caller(
            f"class_prior gives {lost} the share {unseen:.3g}, but they have no annotations and "
            "are never predicted; the other shares are scaled to sum to 1",
            ModelChoiceWarning,
        )
    return shares[seen] / shares[seen].sum()


ENOUGH_SECONDS = 0.08
"""Share of the annotated instances with several annotators from which the features can be compared
with annotators, even if most instances have one annotation."""


def doubts_of(
    model: Any,
    table: AnnotationTable,
    history: History,
    free_shares: FloatArray,
    *,
    shrinkage: float | None,
    relative_informedness: float | None,
    n_annotators: IntArray,
) -> dict[WarningCode, str]:
    """Return the doubts about a fit, as in ``doubts_``, and warn of each.

    They are about class shares that votes do not identify, weak features, and instances with one
    annotation.

    Parameters
    ----------
    model : CrowdStackingClassifier
        Gives the parameters.
    table : AnnotationTable
    history : History
        Of the rounds.
    free_shares : array of shape (number of classes seen,)
        Class shares of the first round without a prior.
    shrinkage, relative_informedness : float or None
        The fitted ``prior_shrinkage_`` and ``relative_informedness_``.
    n_annotators : integer array of shape (m,)
        Number of annotators of each instance with annotations or a known label.

    Returns
    -------
    dict {code: text}

    Warns
    -----
    ModelChoiceWarning
        Of each.
    """
    doubts: dict[WarningCode, str] = {}
    n_classes = len(free_shares)
    n = int(np.count_nonzero(table.observed.annotations_per_instance()))
    apart = free_shares - 1 / n_classes
    by_chance = float(chi2.isf(CHANCE, n_classes - 1))
    matters = (
        isinstance(model.class_prior, str)
        and model.class_prior == "auto"  # Another prior is the user's own choice.
        and shrinkage is not None
        and shrinkage > LITTLE_SHRINKAGE
        and np.abs(apart).sum() / 2 > FAR_FROM_UNIFORM
        and n * n_classes * (apart**2).sum() > by_chance
    )
    if matters:
        last = history[-1]
        taken = {
            label: round(last[f"share_{label}"], 3)
            for label in table.classes.tolist()
            if f"share_{label}" in last
        }
        doubts[WarningCode.CLASS_SHARES_ASSUMED] = (
            "the votes do not say whether the classes are equally frequent (prior_shrinkage_ is "
            f"{shrinkage:.2f}). For training, the class shares were assumed to be {taken}. In the "
            "first round, without this assumption, they differ from equal shares by "
            f"{50 * np.abs(apart).sum():.0f} % of the instances. If you know the shares, give them "
            "as class_prior=, or choose 'uniform' or 'estimated'"
        )
    if relative_informedness is not None and relative_informedness < LITTLE_INFORMEDNESS:
        doubts[WarningCode.LOW_INFORMEDNESS] = (
            "the features predict annotations less well than one more annotator would "
            f"(relative_informedness_ is {relative_informedness:.2f}). If the rows of "
            "features have no ids, check that they are in the order of the instances: rows in "
            "another order look the same. If the order is right, better features or more "
            "annotations would help more than another method"
        )
    annotated = n_annotators[n_annotators > 0]
    if table.n_annotators > 1 and np.mean(annotated > 1) < ENOUGH_SECONDS:
        doubts[WarningCode.SINGLE_ANNOTATIONS] = (
            f"{100 * np.mean(annotated == 1):.0f} % of the annotated instances have a single "
            "annotation. Where it differs from what the features predict, nothing shows which of "
            "the two is right. A second annotation of 10 % of the instances would show it"
        )
    for text in doubts.values():
        warn_caller(text, ModelChoiceWarning)
    return doubts
