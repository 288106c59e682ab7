"""The fit of a scikit-learn classifier in place of a network: the second stage of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyhands.annotations import AnnotationTable
from manyhands.annotations.target import Target
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Earlier
from manyhands.fitting.fitted import SET_WITH_FEATURES, Fitted, take_over
from manyhands.fitting.reading import (
    as_fitted,
    check_learnable,
    forget_columns,
    read_target,
    refuse_text,
    set_vocabularies,
    warn_of_telling_columns,
)
from manyhands.fitting.recipe import Recipe
from manyhands.fitting.run import annotator_attributes
from manyhands.training import History
from manyhands.typing import Instances

if TYPE_CHECKING:
    from manyhands.fitting.method import Method


def fit_rows(
    method: Method, X: Instances, y: Target, start: Method | Earlier | None
) -> AnnotationTable:
    """Fit the scikit-learn classifier that is a method's ``backbone``, and take over what is found.

    It receives the rows of X unchanged (text, tables, gaps) and checks them itself.

    Parameters
    ----------
    method : SecondStageClassifier
    X, y, start
        See `BaseCrowdClassifier.fit`; ``start`` may also be an `Earlier`, to go on from.

    Returns
    -------
    AnnotationTable
        The annotations with a positive weight.

    Raises
    ------
    AnnotationError
        If X and y do not match, y is empty or has one class, or there are weights to start from.
    """
    earlier = start if isinstance(start, Earlier) else None
    if start is not None and earlier is None:
        raise AnnotationError(
            f"start={type(start).__name__} gives weights to a network; the second stage "
            f"{type(method._network).__name__} has none: leave start out"
        )
    table = read_target(X, y, type(method).__name__)
    check_learnable(X, table)
    warn_of_telling_columns(X, table)
    X = as_fitted(method, X, reset=True)
    set_vocabularies(method, y, table)
    try:
        found, belief = method._fit_rows(X, table, Recipe.of(method), earlier)
    except ValueError as error:
        if "could not convert string to float" in str(error):
            refuse_text(method._network, X)
        raise
    confusion, shrinks = found.get("confusion_"), method._traits.shrinks_confusions
    found |= annotator_attributes(confusion, table, belief, shrinks=shrinks)
    forget_columns(method)  # From an earlier fit.
    stage = found["estimator_"]
    seen = {name: getattr(stage, name) for name in SET_WITH_FEATURES if hasattr(stage, name)}
    take_over(method, Fitted(None, History(), {**seen, **found}).attributes())
    return table
