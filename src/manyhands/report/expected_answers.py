"""What a classifier expects the annotators to answer, for the observed pairs only.

Classifiers of this library are asked for the pairs in the table. Other classifiers answer for all
annotators of an instance; they are asked in blocks of instances, and only those pairs are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.fitting.reading import take_rows
from manyhands.typing import BoolArray, FloatArray, IntArray

MAX_ENTRIES = 1 << 23
"""Probabilities held at once: 64 MiB."""

UNEXPECTED = 0.05
"""An annotation is unexpected if its class is less probable than this and not the most probable."""


@dataclass(frozen=True)
class Expectations:
    """What was expected of each annotation; all arrays have shape (n_annotations,).

    Attributes
    ----------
    given_probability : array
        Probability of the given class.
    expected : array of int
        Most probable class, as a code of the table.
    expected_probability : array
        Probability of that class.
    second : array of bool
        Whether another class was more probable than the given one.
    second_chance : array
        Expected value of ``second``: the total probability of such classes.
    unexpected : array of bool
        Whether, in addition, the given class was less probable than `UNEXPECTED`.
    unexpected_chance : array
        Expected value of ``unexpected``: the total probability of such classes.
    """

    given_probability: FloatArray
    expected: IntArray
    expected_probability: FloatArray
    second: BoolArray
    second_chance: FloatArray
    unexpected: BoolArray
    unexpected_chance: FloatArray


def find_expectations(
    classifier: Any, X: Any, table: AnnotationTable, positions: IntArray
) -> Expectations | None:
    """Compare a table's annotations with what a classifier expected.

    The result is None if the classifier does not predict annotations.

    Parameters
    ----------
    classifier : fitted classifier
        Asked for ``predict_observed_proba(X, table)``, else for ``predict_annotation_proba(X)``.
    X : array-like
        One row per instance of the table.
    table : AnnotationTable
    positions : array of shape (k,)
        The table's codes of the classifier's classes.

    Raises
    ------
    AnnotationError
        If the answer has the wrong shape or does not hold probabilities.
    """
    pairs = hasattr(classifier, "predict_observed_proba")
    if not table.n_annotations or not (pairs or hasattr(classifier, "predict_annotation_proba")):
        return None
    blocks = (_by_pairs if pairs else _by_grid)(classifier, X, table, len(positions))
    m = table.n_annotations
    given, probability, second_chance, unexpected_chance = np.empty((4, m))
    expected = np.empty(m, dtype=np.int64)
    columns = np.full(table.n_classes, len(positions))
    columns[positions] = np.arange(len(positions))
    for rows, answer in blocks:
        # Rows in single precision sum to 1 only up to rounding.
        proba = answer / answer.sum(axis=1, keepdims=True)
        # A class that the classifier does not know has probability 0.
        proba = np.append(proba, np.zeros((len(rows), 1)), axis=1)
        top = proba.max(axis=1)
        given[rows] = proba[np.arange(len(rows)), columns[table.label[rows]]]
        expected[rows] = _first_of_table(proba[:, :-1] == top[:, None], positions)
        probability[rows] = top
        lower = proba < top[:, None]
        second_chance[rows] = proba.sum(axis=1, where=lower)
        unexpected_chance[rows] = proba.sum(axis=1, where=lower & (proba < UNEXPECTED))
    second = given < probability
    unexpected = second & (given < UNEXPECTED)
    return Expectations(
        given, expected, probability, second, second_chance, unexpected, unexpected_chance
    )


def _first_of_table(top: BoolArray, positions: IntArray) -> IntArray:
    """Among the most probable classes, the first in the table's order (not the classifier's)."""
    order = np.argsort(positions)
    first: IntArray = positions[order][top[:, order].argmax(axis=1)]
    return first


def _by_pairs(
    classifier: Any, X: Any, table: AnnotationTable, n_classes: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    # Sorted by instance, so that hardly any instance is fetched for two blocks.
    order, _ = _by_instance(table)
    size = max(1, MAX_ENTRIES // n_classes)
    for start in range(0, table.n_annotations, size):
        rows = order[start : start + size]
        answer = classifier.predict_observed_proba(X, table.take(rows))
        source = "classifier.predict_observed_proba(X, table)"
        yield rows, _checked(answer, (len(rows), n_classes), source)


def _by_grid(
    classifier: Any, X: Any, table: AnnotationTable, n_classes: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    order, start = _by_instance(table)
    annotated = np.flatnonzero(np.diff(start))
    size = max(1, MAX_ENTRIES // (table.n_annotators * n_classes))
    for first in range(0, len(annotated), size):
        instances = annotated[first : first + size]
        answer = classifier.predict_annotation_proba(take_rows(X, instances))
        shape = (len(instances), table.n_annotators, n_classes)
        grid = _checked(answer, shape, "classifier.predict_annotation_proba(X)")
        rows = order[start[instances[0]] : start[instances[-1] + 1]]
        place = np.searchsorted(instances, table.instance[rows])
        yield rows, grid[place, table.annotator[rows]]


def _by_instance(table: AnnotationTable) -> tuple[IntArray, IntArray]:
    order, start = table.by_instance()
    return np.arange(table.n_annotations) if order is None else order, start


def _checked(answer: Any, shape: tuple[int, ...], source: str) -> FloatArray:
    proba = np.asarray(answer, dtype=np.float64)
    if proba.shape != shape:
        raise AnnotationError(
            f"{source} has shape {proba.shape}; it must have shape {shape}: the annotators and "
            "classes are those of the table it was fitted on"
        )
    if not ((proba > -1e-6).all() and (np.abs(proba.sum(axis=-1) - 1) < 1e-3).all()):
        raise AnnotationError(f"{source} has rows that are not probabilities that sum to 1")
    return proba.clip(0.0, 1.0)
