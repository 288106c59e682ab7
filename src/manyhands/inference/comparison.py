"""All methods on one table, side by side: against gold, or against annotations held out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from manyhands import inference
from manyhands.annotations import AnnotationTable, as_table
from manyhands.decision.labels import generator
from manyhands.exceptions import AnnotationError
from manyhands.inference.base import BaseAggregator
from manyhands.inference.em import count_rows
from manyhands.inference.inputs import check_annotations, gold_codes
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import make_votes
from manyhands.metrics import accuracy, expected_calibration_error, macro_f1, minority_recall
from manyhands.typing import AnyArray, FloatArray, IntArray

SHRINKAGE = 5.0
"""Pseudo-annotations, spread as the crowd's are, beside an annotator's own counts."""


SLOW, MANY = ("EBCC",), 200_000
TOO_SLOW = f"takes minutes beyond {MANY:,} annotations: left out unless named in methods="
"""Of the methods that are compared by default."""


@dataclass(frozen=True)
class MethodScore:
    """How one method did.

    Attributes
    ----------
    method : str
    held_out_log_likelihood : float or None
        Mean log probability (nats) of the annotations held out; None where none could be.
    accuracy, macro_f1, minority_recall, ece : float or None
        Against gold; None without.
    seconds : float
        CPU seconds of one fit on the whole table.
    error : str or None
        Why there are no figures.
    """

    method: str
    held_out_log_likelihood: float | None = None
    accuracy: float | None = None
    macro_f1: float | None = None
    minority_recall: float | None = None
    ece: float | None = None
    seconds: float = 0.0
    error: str | None = None


def compare(
    table: Any,
    methods: Mapping[str, BaseAggregator] | Iterable[BaseAggregator] | None = None,
    *,
    gold: Any = None,
    fraction: float = 0.1,
    random_state: Any = 0,
) -> list[MethodScore]:
    """Fit methods to one table and score them.

    Parameters
    ----------
    table : AnnotationTable or matrix
    methods : dict of name to aggregator, or aggregators, optional
        Default: every method with its defaults (but `EBCC` on large tables). They are cloned.
    gold : as in `BaseAggregator.fit`, optional
        For scoring only: no method sees it.
    fraction : float in (0, 1), default=0.1
        Share of the annotations held out, for the likelihood.
    random_state : int, RandomState or None
        Which annotations are held out: the same for all methods.

    Returns
    -------
    list of MethodScore
        Best first: by accuracy with gold, by held-out log likelihood without. A method that
        cannot work on this table stands last, with its error.

    Notes
    -----
    The held-out likelihood finds gross failures; it ranks close methods poorly, and a method that
    takes what annotators share for the class (correlated mistakes) can gain by it.
    """
    table = check_annotations(as_table(table, argument="table"), argument="table")
    codes = None if gold is None else gold_codes(gold, table)
    parts = hold_out(table, fraction, random_state)
    scores = [_score(name, method, table, parts, codes) for name, method in _named(methods).items()]

    def rank(score: MethodScore) -> tuple[bool, float]:
        value = score.held_out_log_likelihood if codes is None else score.accuracy
        return value is None, -(value or 0.0)

    return sorted(scores, key=rank)


def _named(
    methods: Mapping[str, BaseAggregator] | Iterable[BaseAggregator] | None,
) -> dict[str, BaseAggregator]:
    if methods is None:
        return {name: getattr(inference, name)() for name in dir(inference)}
    if isinstance(methods, Mapping):
        return dict(methods)
    return {str(method): method for method in methods}


def _score(
    name: str,
    method: BaseAggregator,
    table: AnnotationTable,
    parts: tuple[AnnotationTable, AnnotationTable] | None,
    codes: Any,
) -> MethodScore:
    started = time.process_time()
    try:
        fitted = clone(method).fit(table)
        seconds = time.process_time() - started
        held_out = None if parts is None else held_out_log_likelihood(method, *parts)
    except AnnotationError as error:
        return MethodScore(name, error=str(error))
    except MemoryError:
        return MethodScore(name, error="not enough memory for this table")
    if codes is None:
        return MethodScore(name, held_out, seconds=seconds)
    # An instance nobody annotated tells nothing of a method.
    known = np.flatnonzero((codes >= 0) & (table.annotations_per_instance() > 0))
    if not len(known):
        raise AnnotationError("gold names no instance that has annotations, so nothing is scored")
    figures = against_gold(
        table.classes, codes[known], fitted.labels_[known], fitted.posterior_[known]
    )
    return replace(MethodScore(name, held_out, seconds=seconds), **figures)


def against_gold(
    classes: AnyArray, codes: IntArray, labels: AnyArray, posterior: FloatArray
) -> dict[str, Any]:
    """Score labels and probabilities of n instances against the codes of their gold labels.

    Returns
    -------
    dict
        ``accuracy``, ``macro_f1``, ``minority_recall`` (None if gold has one class only), ``ece``.
    """
    y = classes[codes]
    return {
        "accuracy": accuracy(y, labels),
        "macro_f1": macro_f1(y, labels),
        "minority_recall": minority_recall(y, labels) if len(np.unique(y)) > 1 else None,
        "ece": expected_calibration_error(posterior, y, classes=classes),
    }


def hold_out(
    table: AnnotationTable, fraction: float, random_state: Any
) -> tuple[AnnotationTable, AnnotationTable] | None:
    """Split off annotations of instances that other annotators annotated, at most one of each.

    Observed annotations with a positive weight only. Where an annotator annotated an instance
    repeatedly, what is left of them may tell of what was split off.

    Returns
    -------
    kept, held_out : AnnotationTable
        Or None if no instance has two annotations.

    Raises
    ------
    AnnotationError
        If ``fraction`` is not within (0, 1).
    """
    if not 0 < fraction < 1:
        raise AnnotationError(f"fraction={fraction!r} must lie between 0 and 1")
    rng = generator(random_state)
    observed = True if table.sources is None else table.sources == 0
    usable = np.flatnonzero(observed & (table.weight > 0))
    pairs = np.unique(np.column_stack([table.instance[usable], table.annotator[usable]]), axis=0)
    n_annotators = np.bincount(pairs[:, 0], minlength=table.n_instances)
    order = rng.permutation(usable)
    # The first of every instance in random order.
    _, first = np.unique(table.instance[order], return_index=True)
    candidates = order[first][n_annotators[table.instance[order[first]]] > 1]
    if not len(candidates):
        return None
    n = min(len(candidates), max(1, round(fraction * table.n_annotations)))
    out = np.zeros(table.n_annotations, dtype=bool)
    out[rng.choice(candidates, n, replace=False)] = True
    return table.take(~out), table.take(out)


def held_out_log_likelihood(
    method: BaseAggregator, kept: AnnotationTable, held_out: AnnotationTable
) -> float:
    """Mean log probability (nats) of annotations the method did not see.

    The method infers the classes from ``kept``. Annotators' confusions are counted against its
    posterior in the same way for every method (with five pseudo-annotations spread as the crowd's
    are), so that what is compared is the inferred classes.
    """
    posterior = clone(method).fit(kept).posterior_
    counts = count_rows(make_votes(kept).shards(), posterior).confusion
    pooled = normalise_rows(counts.sum(axis=0) + 1.0 / kept.n_classes)
    confusion = normalise_rows(counts + SHRINKAGE * pooled)
    by_class: FloatArray = confusion[held_out.annotator, :, held_out.label]
    probability = (posterior[held_out.instance] * by_class).sum(axis=1)
    return float(np.average(floored_log(probability), weights=held_out.weight))


__all__ = ["MethodScore", "compare", "held_out_log_likelihood", "hold_out"]
