"""Scorers for scikit-learn when y is an `AnnotationTable`, without or with gold labels.

Examples
--------
::

    GridSearchCV(CrowdLayerClassifier(), {"lr": [1e-3, 1e-2]}, scoring=vote_agreement_scorer)
    cross_validate(model, X, table, scoring=VOTE_SCORERS)  # all of them, by name
    cross_validate(model, X, table, scoring=VOTE_SCORERS["vote_recall"])
    cross_validate(model, X, table, scoring=annotation_log_likelihood_scorer)
    cross_validate(model, X, table, scoring=gold_scorer("accuracy", y_true, table))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import _safe_indexing

from manyhands.annotations import AnnotationTable
from manyhands.annotations.digests import InstanceDigests
from manyhands.annotations.encoding import as_values, encode, equal_mask, missing_mask, tidy
from manyhands.annotations.target import as_one_kind, in_order_of_rows, matched
from manyhands.exceptions import AnnotationError, ModelChoiceWarning, warn_caller
from manyhands.metrics.votes import (
    corrected_vote_agreement,
    vote_agreement,
    vote_information,
    vote_recall,
)
from manyhands.typing import MISSING, AnyArray, IntArray

__all__ = [
    "VOTE_SCORERS",
    "GoldScorer",
    "LabelsById",
    "VoteScorer",
    "annotation_log_likelihood_scorer",
    "corrected_vote_agreement_scorer",
    "gold_scorer",
    "vote_agreement_scorer",
    "vote_information_scorer",
    "vote_recall_scorer",
]


@dataclass(frozen=True)
class VoteScorer:
    """Score a fitted classifier by its predictions against annotations.

    Give it as ``scoring`` to `cross_validate`, `GridSearchCV` and the like. Larger is better. The
    annotations must be of instances that the classifier was **not** fitted on, or the score means
    nothing. scikit-learn's folds ensure that, unless an instance occupies several rows.

    Parameters
    ----------
    measure : callable (predicted, table) -> float
        Such as `vote_agreement`.
    """

    measure: Callable[[Any, AnnotationTable], float]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the measure of ``estimator.predict(X)`` against the annotations.

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
    """Return the mean log likelihood, in nats, of annotations under a fitted classifier.

    It rewards calibration and the model of the annotators more than right predictions, and ranks
    classifiers far worse than `vote_agreement_scorer` does (``docs/model_choice.md``).

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


class LabelsById(NamedTuple):
    """Labels of some instances, by id.

    Attributes
    ----------
    ids, values : arrays of shape (k,)
    """

    ids: AnyArray
    values: AnyArray

    @classmethod
    def read(cls, given: Any, table: AnnotationTable | None, argument: str) -> Self:
        """Read labels by id, or those of a table's instances in their order.

        Parameters
        ----------
        given : dict of id to label, pandas Series indexed by id, or array of shape (n_instances,)
            None and NaN mean unknown, and so does -1 unless it is a class.
        table : AnnotationTable or None
            Table to whose instances an array belongs.
        argument : str
            Name of the labels, for messages.

        Raises
        ------
        AnnotationError
            If an array has no table, or another length than its instances; if no label is known;
            if labels are numbers where the table's classes are texts, or the other way round.
        """
        if hasattr(given, "to_dict") and hasattr(given, "index"):
            given = given.to_dict()
        if isinstance(given, Mapping):
            ids, values = as_values(list(given)), as_values(list(given.values()))
        else:
            values = as_values(given)
            if table is None:
                raise AnnotationError(
                    f"{argument} is an array without ids; also give the table whose instances it "
                    "labels, or give a dict {instance id: class}"
                )
            ids = table.instances
            if values.shape != ids.shape:
                raise AnnotationError(
                    f"{argument} has shape {values.shape} for {len(ids)} instances; give one label "
                    "per instance (None where unknown), or a dict {instance id: class}"
                )
        known = ~missing_mask(values)
        if table is None or MISSING not in table.classes:
            known &= ~equal_mask(values, MISSING)
        if not known.any():
            raise AnnotationError(
                f"{argument} holds no label; give the class of at least one instance"
            )
        ids, values = ids[known], tidy(values[known], argument)
        if table is not None:
            name = "the table's classes"
            encode(
                values, table.classes, argument=argument, vocabulary_name=name, allow_unknown=True
            )
        return cls(np.array(ids.tolist()), values)

    def of(self, instances: AnyArray) -> tuple[IntArray, AnyArray]:
        """Return the positions and labels of the instances with a known label, (k,) each."""
        mine, theirs = as_one_kind(self.ids, instances)
        codes, _ = encode(
            theirs, mine, argument="instances", vocabulary_name="ids", allow_unknown=True
        )
        rows = np.flatnonzero(codes >= 0)
        return rows, self.values[codes[rows]]


@dataclass(frozen=True)
class GoldScorer:
    """Score a fitted classifier against gold labels that y does not hold; see `gold_scorer`.

    Parameters
    ----------
    scorer : callable (estimator, X, y_true) -> float
    gold : LabelsById
    """

    scorer: Any
    gold: LabelsById

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score the instances of a table whose gold label is known.

        Parameters
        ----------
        estimator : fitted classifier
        X : as in ``predict``
        y : AnnotationTable
            Only its instances matter; they are matched with X by id.

        Raises
        ------
        AnnotationError
            If y is not a table, or none of its instances has a gold label.
        """
        if not isinstance(y, AnnotationTable):
            raise AnnotationError(
                f"y is a {type(y).__name__}, which has no ids by which to find gold labels; give "
                "an AnnotationTable, such as AnnotationTable.from_matrix(y)"
            )
        table = matched(y, X)
        rows, labels = self.gold.of(table.instances)
        if not len(rows):
            raise AnnotationError(
                f"none of these {len(table):,} instances has a gold label; use fewer folds, or "
                "give gold labels of more instances"
            )
        if len(rows) < len(table):
            X = _safe_indexing(X, rows)
        return float(self.scorer(estimator, X, labels))

    def __repr__(self) -> str:
        return f"GoldScorer({self.scorer!r}, {len(self.gold.ids):,} labels)"


def gold_scorer(scoring: Any, gold: Any, table: AnnotationTable | None = None) -> GoldScorer:
    """Make a scorer that compares predictions with gold labels while y holds annotations.

    The classifier is fitted to annotations alone; gold labels are found by the ids of the
    instances, so folds and nested searches work. Instances without a gold label are left out.

    Parameters
    ----------
    scoring : str or callable
        What scikit-learn takes, such as "accuracy", "f1_macro" or "neg_log_loss".
    gold : dict of instance id to class, pandas Series indexed by id, or array (n_instances,)
        None and NaN mean unknown, and so does -1 unless it is a class.
    table : AnnotationTable, optional
        Table to whose instances an array of gold labels belongs, in their order.

    Returns
    -------
    GoldScorer
        To be given as ``scoring``.

    Raises
    ------
    AnnotationError
        If an array comes without a table, or has another length; if no label is known; or if
        labels are numbers and classes are text, or the other way round.

    Examples
    --------
    >>> from sklearn.model_selection import cross_validate
    >>> from manyhands import CrowdStackingClassifier, load_demo
    >>> demo = load_demo()
    >>> X, table, y_true = demo.X_train[:200], demo.annotations[:200], demo.y_train[:200]
    >>> scoring = gold_scorer("accuracy", y_true, table)
    >>> model = CrowdStackingClassifier(n_rounds=2, random_state=0)
    >>> found = cross_validate(model, X, table, cv=2, scoring=scoring)
    >>> bool(found["test_score"].min() > 0.7)
    True
    """
    from sklearn.metrics import get_scorer

    scorer = scoring if callable(scoring) else get_scorer(scoring)
    return GoldScorer(scorer, LabelsById.read(gold, table, "gold"))


def fitted_classifier(estimator: Any) -> Any:
    """Return the last step of a pipeline, and the best estimator of a search, all the way down."""
    while hasattr(estimator, "steps") or hasattr(estimator, "best_estimator_"):
        ends = hasattr(estimator, "steps")
        estimator = estimator.steps[-1][1] if ends else estimator.best_estimator_
    return estimator


def warn_of_training_instances(estimator: Any, y: Any, table: AnnotationTable) -> None:
    """Warn if a fitted classifier is measured on annotated instances of its training.

    Parameters
    ----------
    estimator : fitted classifier, or Pipeline or search with one
        There is no warning if it has no ``training_instances_``.
    y : AnnotationTable or array
        Annotations as the user gave them.
    table : AnnotationTable
        The same, as read.
    """
    estimator = fitted_classifier(estimator)
    training = getattr(estimator, "training_instances_", None)
    if training is None:
        return
    scored = InstanceDigests.of(y, table)
    n_shared, n_scored = training.n_shared(scored), len(np.unique(scored.ids))
    if n_shared:
        warn_caller(
            f"{type(estimator).__name__} was fitted on {n_shared:,} of the {n_scored:,} "
            "annotated instances that it is measured on. There, agreement with annotations means "
            "nothing, because it rewards memorised votes. Measure on left-out instances, with "
            "cross_validate, GridSearchCV or manyhands.cross_predict",
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
"""The scorers without gold labels, by name.

``scoring=VOTE_SCORERS`` computes all of them. scikit-learn's list of names is private, so a name
alone, such as ``scoring="vote_agreement"``, is unknown to it.
"""
