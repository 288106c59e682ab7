"""Scorers for scikit-learn's searches where y is an `AnnotationTable` and nobody has gold.

Examples
--------
::

    GridSearchCV(CrowdLayerClassifier(), {"lr": [1e-3, 1e-2]}, scoring=vote_agreement_scorer)
    cross_validate(model, X, table, scoring=VOTE_SCORERS)  # all of them, by name
    cross_validate(model, X, table, scoring=VOTE_SCORERS["vote_recall"])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values
from manyhands.annotations.target import in_order_of_rows, matched
from manyhands.exceptions import AnnotationError
from manyhands.metrics.votes import (
    corrected_vote_agreement,
    vote_agreement,
    vote_information,
    vote_recall,
)

__all__ = [
    "VOTE_SCORERS",
    "VoteScorer",
    "corrected_vote_agreement_scorer",
    "vote_agreement_scorer",
    "vote_information_scorer",
    "vote_recall_scorer",
]


@dataclass(frozen=True)
class VoteScorer:
    """Score a fitted classifier by its predictions against annotations.

    Give it as ``scoring`` to `cross_validate`, `GridSearchCV` and the like. Larger is better. The
    annotations must be of instances that the classifier was **not** fitted on; scikit-learn's folds
    see to that, unless one instance stands in several rows.

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
        """
        table = _annotations(estimator, X, y)
        return float(self.measure(np.asarray(estimator.predict(X)), table))

    def __repr__(self) -> str:
        return f"VoteScorer({self.measure.__name__})"


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
