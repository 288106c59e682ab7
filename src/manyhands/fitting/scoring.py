"""`score` of every classifier: accuracy against gold labels, agreement with annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, equal_mask, missing_mask, resolve
from manyhands.annotations.target import in_order_of_rows, matched
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.reading import check_rows
from manyhands.inference.inputs import check_annotations
from manyhands.metrics.scorers import warn_of_training_instances
from manyhands.metrics.votes import vote_agreement
from manyhands.typing import MISSING, AnyArray, FloatArray, IntArray


def score(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Accuracy against gold labels, or agreement with annotations.

    Parameters
    ----------
    X : as in `fit`
    y : array of shape (n_samples,) with gold labels, for accuracy; or an AnnotationTable or
        (n_samples, n_annotators) array, for `manyhands.metrics.vote_agreement` of
        ``predict(X)``: the mean share of an instance's annotations that name its predicted
        class (pseudo-annotations excluded). ``GridSearchCV`` and ``cross_validate`` maximise
        the latter where there are no gold labels.
    sample_weight : array of shape (n_samples,), optional
        For accuracy only.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    AnnotationError
        If a class was not present in `fit`.

    Warns
    -----
    ModelChoiceWarning
        If there are annotations of instances that the classifier was fitted on. **In sample,
        agreement means nothing**, because it rewards memorised votes. Such instances have an
        id of the training table; where ids are nothing but numbers of rows, their annotations
        must be the same, too. A loaded model does not know its training instances, and never
        warns.
    """
    check_is_fitted(self)
    if is_gold(y):
        y = read_gold(X, y, self.classes_)
        predicted = self.predict(X)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))
    table = observed_annotations(X, y, self.classes_, sample_weight)
    warn_of_training_instances(self, y, table)
    return vote_agreement(self.predict(X), table)


def is_gold(y: Any) -> bool:
    """Whether a target is one gold label per row, rather than annotations."""
    return not isinstance(y, AnnotationTable) and np.ndim(y) < 2


def read_gold(X: Any, y: Any, classes: AnyArray) -> Any:
    """Gold labels of the rows of X; refused if some are missing."""
    y = in_order_of_rows(X, y)
    gold = as_values(y)
    unknown = missing_mask(gold)
    if MISSING not in classes:
        unknown = unknown | equal_mask(gold, MISSING)
    if unknown.any():
        raise AnnotationError(
            f"y has no gold label in row {np.flatnonzero(unknown)[0]} "
            f"({np.asarray(gold[unknown]).tolist()[0]!r}); leave out such rows"
        )
    return y


def observed_annotations(
    X: Any, y: Any, classes: AnyArray, sample_weight: Any = None
) -> AnnotationTable:
    """Annotations of X to evaluate, over the model's classes; without pseudo-annotations."""
    if sample_weight is not None:
        raise AnnotationError(
            "sample_weight applies to gold labels; give annotations their weights in the table "
            "instead"
        )
    if isinstance(y, AnnotationTable):
        table = matched(y, X)
    else:
        matrix = as_values(in_order_of_rows(X, y))
        table = AnnotationTable.from_matrix(matrix, classes=classes)
    check_rows(X, table)
    codes, _ = encode(table.classes, classes, argument="y", vocabulary_name="classes_")
    table = replace(table.observed, label=codes[table.observed.label], classes=classes)
    check_annotations(table, argument="y")
    return table


def annotation_log_likelihood(self: Any, X: Any, y: Any) -> float:
    """Mean log likelihood, in nats, of the observed annotations (without pseudo-annotations).

    It rates calibration and the model of the annotators; to choose among models, see `score`.
    Parameters and errors are those of `predict_observed_proba`.
    """
    table = observed_annotations(X, y, self.classes_)
    columns = find_annotators(self.annotators_, table.annotators, "y's annotators")
    return mean_log_proba(self._observed_log_proba(X, table, columns[table.annotator]), table)


def mean_log_proba(blocks: Iterator[tuple[IntArray, FloatArray]], table: AnnotationTable) -> float:
    """Mean log probability of a table's annotations, from the blocks of `observed_log_proba`.

    The table's classes are those of the blocks' columns.
    """
    log_likelihood = np.empty(table.n_annotations)
    for rows, log_proba in blocks:
        log_likelihood[rows] = log_proba[np.arange(len(rows)), table.label[rows]]
    return float(np.average(log_likelihood, weights=table.weight))


def find_annotators(known: Any, annotators: Any, argument: str) -> IntArray:
    """Positions of annotators among the known ones; -1, with a warning, for new annotators."""
    if not len(known) and annotators is None:
        raise AnnotationError(
            f"{argument}: the profiles of this model's annotators were left out when it was "
            "shared; name new annotators, of whom it expects what the crowd as a whole does, or "
            "share it with include_annotators=True"
        )
    which = slice(None) if annotators is None else annotators
    if len(known):
        found = resolve(
            which, known, argument=argument, vocabulary_name="annotators_", allow_unknown=True
        )
    else:
        found = np.full(len(np.atleast_1d(annotators)), -1)
    if (found < 0).any():
        new = np.atleast_1d(annotators)[found < 0].tolist()
        shown = ", ".join(map(repr, new[:3])) + (", ..." if len(new) > 3 else "")
        warn_caller(
            f"{argument}: {shown} ({len(new)}) were not seen in fit; they are expected to "
            "annotate as the crowd as a whole does"
        )
    return found
