"""Scorers for scikit-learn's searches where y is an `AnnotationTable` and nobody has gold.

Examples
--------
::

    GridSearchCV(CrowdLayerClassifier(), {"lr": [1e-3, 1e-2]}, scoring=vote_agreement_scorer)
    cross_validate(model, X, table, scoring=VOTE_SCORERS)  # all of them, by name
    cross_validate(model, X, table, scoring=VOTE_SCORERS["vote_recall"])
    cross_validate(model, X, table, scoring=annotation_log_likelihood_scorer)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.digests import InstanceDigests
from manyhands.annotations.encoding import as_values
from manyhands.annotations.target import in_order_of_rows, matched
from manyhands.exceptions import AnnotationError, ModelChoiceWarning, warn_caller
from manyhands.metrics.votes import (
    corrected_vote_agreement,
    vote_agreement,
    vote_information,
    vote_recall,
)

__all__ = [
    "VOTE_SCORERS",
    "VoteScorer",
    "annotation_log_likelihood_scorer",
    "corrected_vote_agreement_scorer",
    "vote_agreement_scorer",
    "vote_information_scorer",
    "vote_recall_scorer",
]


@dataclass(frozen=True)
class VoteScorer:
    """Score a fitted classifier by its predictions against annotations.

    Give it as ``scoring`` to `cross_validate`, `GridSearchCV` and the like. Larger is better. The
    annotations must be of instances that the classifier was **not** fitted on: in sample, the
    figure means nothing. scikit-learn's folds see to that, unless one instance stands in several
    rows.

    Parameters
    ----------
    measure : callable (predicted, table) -> float
        Such as `vote_agreement`.
    """

    measure: Callable[[Any, AnnotationTable], float]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Measure what ``estimator.predict(X)`` says against the annotations.

        Parameters
        ----------
        estimator : fitted classifier
            Its ``classes_`` name the classes if y is a matrix.
        X : as in ``predict``
        y : AnnotationTable (matched with X by id), or array of shape (n_samples, n_annotators)

        Raises
        ------
        AnnotationError
            If y is one label per row, which scikit-learn's own scorers compare, or does not fit X.

        Warns
        -----
        ModelChoiceWarning
            If a classifier of this library (or the last step of a pipeline) was fitted on some of
            these instances; see `BaseCrowdClassifier.score`.
        """
        table = _annotations(estimator, X, y)
        warn_of_training_instances(estimator, y, table)
        return float(self.measure(np.asarray(estimator.predict(X)), table))

    def __repr__(self) -> str:
        return f"VoteScorer({self.measure.__name__})"


def annotation_log_likelihood_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Mean log likelihood, in nats, of annotations under a fitted classifier.

    It rates calibration and the model of the annotators rather than the classes predicted, and
    orders classifiers far worse than `vote_agreement_scorer` does (``docs/model_choice.md``).

    Parameters
    ----------
    estimator : fitted classifier with ``annotation_log_likelihood``
        Or a Pipeline that ends in one.
    X : as in ``predict``
    y : AnnotationTable (matched with X by id), or array of shape (n_samples, n_annotators)

    Raises
    ------
    AnnotationError
        If the classifier has no such method, or y does not fit X.
    """
    if hasattr(estimator, "steps"):
        X, estimator = estimator[:-1].transform(X), estimator.steps[-1][1]
    if not hasattr(estimator, "annotation_log_likelihood"):
        raise AnnotationError(
            f"{type(estimator).__name__} has no annotation_log_likelihood; use "
            "scoring=vote_agreement_scorer, which needs only predict"
        )
    return float(estimator.annotation_log_likelihood(X, y))


def warn_of_training_instances(estimator: Any, y: Any, table: AnnotationTable) -> None:
    """Warn if a fitted classifier is measured on annotated instances of its training.

    Parameters
    ----------
    estimator : fitted classifier, or Pipeline or search with one
        It is silent if it has no ``training_instances_``.
    y : AnnotationTable or array
        Annotations as the user gave them.
    table : AnnotationTable
        The same, as read.
    """
    while hasattr(estimator, "steps") or hasattr(estimator, "best_estimator_"):
        ends = hasattr(estimator, "steps")
        estimator = estimator.steps[-1][1] if ends else estimator.best_estimator_
    training = getattr(estimator, "training_instances_", None)
    if training is None:
        return
    scored = InstanceDigests.of(y, table)
    n_shared, n_scored = training.n_shared(scored), len(np.unique(scored.ids))
    if n_shared:
        warn_caller(
            f"{type(estimator).__name__} was fitted on {n_shared:,} of the {n_scored:,} "
            "annotated instances that it is measured on; in sample, agreement with annotations "
            "means nothing, because it rewards memorised votes. Measure by left-out instances: "
            "cross_validate, GridSearchCV, or manyhands.cross_predict",
            ModelChoiceWarning,
        )


def _annotations(estimator: Any, X: Any, y: Any) -> AnnotationTable:
    if isinstance(y, AnnotationTable):
        return matched(y, X)
    if np.ndim(y) != 2:
        raise AnnotationError(
            f"y has {np.ndim(y)} dimensions; give annotations (an AnnotationTable or a matrix of "
            "instances x annotators). With one gold label per row, use scoring='accuracy'"
        )
    matrix = as_values(in_order_of_rows(X, y))
    return AnnotationTable.from_matrix(matrix, classes=estimator.classes_)


vote_agreement_scorer = VoteScorer(vote_agreement)
corrected_vote_agreement_scorer = VoteScorer(corrected_vote_agreement)
vote_information_scorer = VoteScorer(vote_information)
vote_recall_scorer = VoteScorer(vote_recall)

VOTE_SCORERS: dict[str, VoteScorer] = {
    "vote_agreement": vote_agreement_scorer,
    "corrected_vote_agreement": corrected_vote_agreement_scorer,
    "vote_information": vote_information_scorer,
    "vote_recall": vote_recall_scorer,
}
"""The scorers by name. scikit-learn keeps the list of its own names private, so a bare text such as
``scoring="vote_agreement"`` is unknown to it; ``scoring=VOTE_SCORERS`` measures all."""
