"""Counts of annotators' earlier annotations, as a prior of their confusion matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations.encoding import encode
from manyhands.annotations.ids import as_frame, first_and_last
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.base import BaseAggregator
from manyhands.inference.confusions import total_em_counts
from manyhands.records import record
from manyhands.typing import AnyArray, FloatArray, IntArray

COLUMNS = ("annotator", "true", "given", "count")
"""Columns of a history in long form."""


@record("History")
@dataclass(frozen=True, eq=False)
class EarlierCounts:
    """Counts of earlier annotations.

    Attributes
    ----------
    annotators : array of shape (H,)
    counts : array of shape (H, C, C)
        Indexed [annotator, true, given].
    """

    annotators: AnyArray
    counts: FloatArray

    def of(self, annotators: AnyArray) -> FloatArray | None:
        """Return the counts of some annotators, shape (R, C, C); None if all are 0."""
        if not self.counts.any():
            return None
        codes = self.places(annotators)
        aligned = np.zeros((len(annotators), *self.counts.shape[1:]))
        aligned[codes[codes >= 0]] = self.counts[codes >= 0]
        return aligned if aligned.any() else None

    def places(self, annotators: AnyArray) -> IntArray:
        """Return the positions of the history's annotators among ``annotators``, or -1, (H,)."""
        return encode(
            self.annotators,
            annotators,
            argument="history",
            vocabulary_name="the table's annotators",
            allow_unknown=True,
        )[0]


class TakesHistory(BaseAggregator):
    """Base class of methods with the argument ``history`` of `fit`."""

    def fit(
        self,
        table: Any,
        y: Any = None,
        *,
        gold: Any = None,
        random_gold: Any = None,
        start: Any = None,
        groups: Any = None,
        history: Any = None,
        checkpoint: Any = None,
        engine: Any = None,
    ) -> Self:
        """Infer the true classes. A fit that fails leaves the aggregator as it was.

        Parameters
        ----------
        table, y, gold, random_gold, start, groups, checkpoint, engine : as in `BaseAggregator.fit`
        history : dict, frame, list or fitted aggregator, optional
            Annotators' earlier annotations of instances with known classes: a dict {annotator id:
            (n_classes, n_classes) array of counts, indexed [true, given] in the order of the
            table's classes}; a frame with the columns ``annotator``, ``true``, ``given`` and
            ``count``; a list of such rows; or an aggregator fitted to other instances (its
            annotations, counted against its posterior, and its own history). The counts are added
            to those of the table. `partial_fit` keeps them.

        Returns
        -------
        TakesHistory
            The aggregator itself.

        Raises
        ------
        AnnotationError
            As in `BaseAggregator.fit`, and if ``history`` has another form, an unknown class, or
            counts that are negative or not finite.

        Warns
        -----
        UserWarning
            If ``history`` names annotators that the table does not have. Their counts are kept for
            `partial_fit`.
        """
        return self._fit_given(
            table, y, gold, random_gold, start=start, groups=groups,
            checkpoint=checkpoint, engine=engine, history=history,
        )  # fmt: skip

    def _earlier(self, history: Any, table: Any) -> EarlierCounts:
        earlier = as_history(history, table.classes)
        _warn_of_absent(earlier, table.annotators)
        return earlier


def as_history(history: Any, classes: AnyArray) -> EarlierCounts:
    """Read what ``fit(history=)`` accepts, over the given classes."""
    if isinstance(history, BaseAggregator):
        return _from_fit(history, classes)
    if isinstance(history, Mapping):
        return _from_arrays(history, len(classes))
    return _from_rows(history, classes)


def _from_arrays(history: Mapping[Any, Any], n_classes: int) -> EarlierCounts:
    shape = (n_classes, n_classes)
    counts = np.zeros((len(history), *shape))
    for row, (annotator, values) in zip(counts, history.items(), strict=True):
        block = np.asarray(values)
        if block.shape != shape:
            raise AnnotationError(
                f"history of annotator {annotator!r} has shape {block.shape}; it must be {shape}, "
                "indexed [true, given] in the order of the table's classes. If the table lacks "
                "a class, name all of them in its classes="
            )
        row[:] = _checked(block, [annotator] * n_classes)
    return _summed(list(history), counts)


def _from_rows(history: Any, classes: AnyArray) -> EarlierCounts:
    frame = as_frame(history)
    if frame is not None:
        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise AnnotationError(
                f"history has no column {missing[0]!r}; its columns must be {', '.join(COLUMNS)}"
            )
        columns = [frame[name].to_list() for name in COLUMNS]
    else:
        rows = list(history) if np.iterable(history) and not isinstance(history, str) else [history]
        bad = [row for row in rows if not isinstance(row, list | tuple) or len(row) != len(COLUMNS)]
        if bad:
            raise AnnotationError(
                f"history holds {bad[0]!r}; give rows ({', '.join(COLUMNS)}), a frame with these "
                "columns, a dict {annotator id: array of counts [true, given]}, or a fitted "
                "aggregator"
            )
        columns = [[row[k] for row in rows] for k in range(len(COLUMNS))]
    annotators, true, given, number = columns
    counts = np.zeros((len(annotators), len(classes), len(classes)))
    if annotators:
        place = np.arange(len(annotators)), _codes(true, classes), _codes(given, classes)
        counts[place] = _checked(np.asarray(number), annotators)
    return _summed(annotators, counts)


def _from_fit(model: BaseAggregator, classes: AnyArray) -> EarlierCounts:
    """Return the expected counts of an aggregator, with its own history."""
    check_is_fitted(model, "posterior_")
    counts = total_em_counts(model._fitted_votes().shards(), model.posterior_).confusion
    annotators = model.annotators_.tolist()
    earlier = getattr(model, "_history", None)
    if earlier is not None:
        counts = np.concatenate([counts, earlier.counts])
        annotators += earlier.annotators.tolist()
    used = counts.any(axis=(0, 1)) | counts.any(axis=(0, 2))
    codes = _codes(model.classes_[used].tolist(), classes)
    recoded = np.zeros((len(counts), len(classes), len(classes)))
    recoded[:, codes[:, None], codes] = counts[:, used][:, :, used]
    return _summed(annotators, recoded)


def _codes(values: Any, classes: AnyArray) -> IntArray:
    return encode(values, classes, argument="history", vocabulary_name="the table's classes")[0]


def _checked(counts: AnyArray, annotators: list[Any]) -> FloatArray:
    """Return the counts as floats; the first axis is that of ``annotators``."""
    try:
        numbers = counts.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise AnnotationError(f"history holds a count that is no number: {error}") from error
    bad = ~(np.isfinite(numbers) & (numbers >= 0))
    if bad.any():
        row = np.argwhere(bad)[0]
        raise AnnotationError(
            f"history of annotator {annotators[row[0]]!r} holds the count {numbers[bad][0]}; "
            "counts are finite and at least 0"
        )
    return numbers


def _summed(annotators: list[Any], counts: FloatArray) -> EarlierCounts:
    """Sum the counts of the rows of each annotator."""
    codes, ids = encode(annotators, None, argument="history", vocabulary_name="annotators")
    total = np.zeros((len(ids), *counts.shape[1:]))
    np.add.at(total, codes, counts)
    return EarlierCounts(ids, total)


def _warn_of_absent(history: EarlierCounts, annotators: AnyArray) -> None:
    if not history.counts.any():
        return
    absent = history.annotators[history.places(annotators) < 0]
    if len(absent):
        warn_caller(
            f"history names {len(absent)} annotators that the table does not have "
            f"({first_and_last(absent)}); their counts are kept for partial_fit. If their ids "
            "are spelt differently in the table, correct them"
        )
