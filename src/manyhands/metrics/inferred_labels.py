"""The share of inferred labels that are right (their level), whatever method inferred them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit

from manyhands.annotations import AnnotationTable
from manyhands.annotations.groups import in_one_family
from manyhands.decision.labels import best_of
from manyhands.exceptions import AnnotationError, silenced
from manyhands.inference import DawidSkene
from manyhands.inference.shared_mistakes import suspected
from manyhands.inference.votes import HARMLESS_CLASSES
from manyhands.metrics.levels import accuracy_of_labels, level_from_sources
from manyhands.metrics.sample_levels import Level
from manyhands.typing import BoolArray, FloatArray, IntArray


def level_of_labels(
    table: AnnotationTable,
    model: Any,
    codes: IntArray,
    posterior: FloatArray | None = None,
    *,
    gold: IntArray | None = None,
    audit: IntArray | None = None,
    random: BoolArray | None = None,
    fitted: Any = None,
    identified: BoolArray | None = None,
    is_calibrated: bool | None = None,
    alike: BoolArray | None = None,
) -> Level | None:
    """Return the level of inferred labels (`accuracy_of_labels`), whatever inferred them.

    On real tables, the mean probability of the labels of `DawidSkene` and of the stack is about
    their accuracy (docs/results/aggregation.md, docs/results/stack_labels.md). Other methods are
    overconfident, or their vote shares mean something else; for them the probabilities of
    `DawidSkene` are used.

    Annotators who may share mistakes (`suspected`) without being declared as a family may also be
    independent. The interval then covers both cases; without enough other annotators there is no
    answer.

    Parameters
    ----------
    table : AnnotationTable
    model : the method that inferred the labels, or None
    codes : integer array of shape (n_instances,)
        Labels, -1 where undecided.
    posterior : array of shape (n_instances, n_classes), optional
        The model's class probabilities.
    gold : integer array of shape (n_instances,), optional
        True classes, -1 where unknown.
    audit : integer array of shape (n_instances,), optional
        True classes of randomly drawn instances that people checked and that the model was not
        given, -1 elsewhere.
    random : boolean array of shape (n_instances,), optional
        Instances of ``gold`` and ``audit`` that are known to be drawn at random; the others are
        left out if a rank test finds that they were not.
    fitted : aggregator, optional
        Its ``is_known_`` marks labels that were given.
    identified : boolean array of shape (n_instances,), optional
        Instances whose label is identified by the annotations. If most are not, no model's
        expectation is used.
    is_calibrated : bool, optional
        Whether the mean probability of the model's labels is about their accuracy. Default: as the
        model's class declares.
    alike : boolean array of shape (n_annotators,), optional
        Annotators who may share mistakes. Default: `suspected`.

    Returns
    -------
    Level or None
        None if the level is unknown.
    """
    if is_calibrated is None:
        is_calibrated = getattr(model, "_knows_its_accuracy", False)
    values = np.array([*table.classes.tolist(), None], dtype=object)
    codes, posterior, sample = _sample(model, table, codes, posterior)
    drawn = np.zeros(table.n_instances, dtype=bool) if random is None else random
    if sample is not None:  # Its own rank test was made in the fit.
        drawn = drawn | (sample >= 0)
    if audit is not None:
        sample = audit if sample is None else np.where(audit < 0, sample, audit)
    known = known_of(table, model if fitted is None else fitted)
    annotated = table.annotations_per_instance() > 0
    others = known if known is None or sample is None else known & (sample < 0)
    is_decided = identified is None or np.mean(identified[annotated]) > 0.5
    if not is_decided and getattr(model, "sample_note_", None) is None:
        posterior = None
    elif posterior is None or not is_calibrated:
        posterior = _expected(table, others, codes)
    measured: dict[str, Any] = {
        "gold": None if gold is None else values[gold],
        "sample": None if sample is None else values[sample],
        "known": known,
        "random": drawn,
    }
    alike = suspected(table) if alike is None else alike
    measured["independent"] = not alike.any()
    level = level_from_sources(table, values[codes], posterior, **measured)
    if level is None or level.source != "model" or not alike.any():
        return level
    apart = in_one_family(table, alike)
    return _between(
        level,
        accuracy_of_labels(apart, values[codes], _expected(apart, others, codes), known=known),
    )


def _between(one: Level, other: Level | None) -> Level | None:
    """Return the level if annotators may or may not share mistakes; None if too few remain.

    The interval goes from the low end of the level that supposes more mistakes to the high end of
    the other.
    """
    if other is None:
        return None
    value = float(expit((logit(one.value) + logit(other.value)) / 2))
    level = Level(value, min(one.low, other.low), max(one.high, other.high), "model", one.n)
    return None if level.is_vague else level


def _sample(
    model: Any, table: AnnotationTable, codes: IntArray, posterior: FloatArray | None
) -> tuple[IntArray, FloatArray | None, IntArray | None]:
    """Return the known labels drawn at random, and what the model says there without them.

    Returns
    -------
    codes, posterior
        As given, without the model's knowledge of the drawn instances.
    sample : integer array of shape (n_instances,) or None
        Known classes of the drawn instances, -1 elsewhere; None if none were drawn.
    """
    found = getattr(model, "sampled_posterior_", None)
    if found is None or not len(found) or len(model.is_known_) != table.n_instances:
        return codes, posterior, None
    rows = model.sampled_rows_
    sample = np.full(table.n_instances, -1)
    sample[rows] = model.posterior_[rows].argmax(axis=1)  # Known labels have probability 1.
    codes = codes.copy()
    codes[rows] = best_of(found, table)
    if posterior is not None:
        posterior = np.array(posterior)
        posterior[rows] = found
    return codes, posterior, sample


def _expected(table: AnnotationTable, known: Any, codes: IntArray) -> FloatArray | None:
    if not 2 <= table.n_classes <= HARMLESS_CLASSES:
        return None
    gold = None if known is None or not known.any() else np.where(known, codes, -1)
    values = np.array([*table.classes.tolist(), None], dtype=object)
    with silenced("manyhands"):  # The user was warned when the labels were inferred.
        try:
            return DawidSkene().fit(table, gold=None if gold is None else values[gold]).posterior_
        except AnnotationError:
            return None


def known_of(table: AnnotationTable, model: Any) -> BoolArray | None:
    """Mask the instances whose label was given to the fit; None if that was of another table."""
    known = getattr(model, "is_known_", None)
    return None if known is None or len(known) != table.n_instances else known
