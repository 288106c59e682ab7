"""How many labels are right, and how many predictions of new items will be: one figure each.

A figure comes with its interval and with its source, because they differ in what they are worth: a
measurement on gold labels, an estimate from a random sample that people checked, a cross-validated
estimate against the annotators, or what a model of the annotators expects. Whatever tells a person
how good labels or predictions are takes its figure from here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import missing_mask
from manyhands.annotations.groups import can_be_judged, units_per_instance
from manyhands.decision.labels import as_posterior
from manyhands.exceptions import AnnotationError
from manyhands.metrics.accuracy_estimate import estimate_accuracy
from manyhands.metrics.sample_levels import LEAST_GOLD, Level, level_of_gold, level_of_sample
from manyhands.typing import BoolArray, FloatArray

__all__ = ["Level", "accuracy_of_labels", "accuracy_on_new_items"]

MODEL_ERROR = 0.55
"""Standard deviation of what a model's expectation is off by, as a difference of logits. The root
mean square of `DawidSkene` over the real tables of docs/results/aggregation.md is just below; a
test compares."""

FEW_ANNOTATIONS = 1.0
"""By how much a model's expectation is too high where instances have one annotation each, as a
difference of logits; with k annotations it is k times less. The model has adapted to them. On
1.5, 2, 3 and 4 random annotations of the instances of these tables, it was .70, .49, .32 and .29.
"""

REVIEWED_ERROR = 0.75
"""The same after known labels of a review, over the tables of docs/results/claims.md: the doubtful
labels are gone, about which the model knew most."""

REVIEWED_SHARE = 0.5
"""How much of `FEW_ANNOTATIONS` is left then: the model has known labels to hold to."""

LEAST_EXPECTED = 1e-3
"""Expected share of wrong labels below which a model is not believed to be surer."""


def accuracy_of_labels(
    table: AnnotationTable,
    labels: Any,
    posterior: Any = None,
    *,
    gold: Any = None,
    sample: Any = None,
    known: Any = None,
) -> Level | None:
    r"""Return the share of a table's labels that are right, from the best source there is.

    With at least 10 gold labels, it is measured on them (Jeffreys interval). Else, with at least
    10 randomly drawn labels that people checked, it is estimated from these, which a model's
    expectation makes more precise (`mean_estimate`; the level that the model expects counts as ten
    labels more). It is never 1 or 0, because n labels that are all right do not say that no other
    is wrong. Else it is the mean probability p of the
    labels, less 1 / k in logits if k annotations are given to an instance on average, because a
    model is surer than it should be of few. The interval allows for what such expectations were off
    by on real tables, and for chance: it reaches from 1.96 standard deviations below to as many
    above p, of variance .55² + 1 / (n p (1 - p)) in logits. If some labels are known, these are
    1 / (2 k), and .75 for .55. A family of annotators counts as one.

    Parameters
    ----------
    table : AnnotationTable
        Instances without annotations do not count.
    labels : array-like of shape (n_instances,)
        Inferred class values; None or NaN where no label was decided, which does not count.
    posterior : array-like of shape (n_instances, n_classes), optional
        Calibrated class probabilities, as of `DawidSkene` or `CrowdStackingClassifier`, in the
        order of ``table.classes``. Not needed if gold or a sample measures; without all of them
        there is no answer.
    gold : array-like of shape (n_instances,), optional
        True class values of instances that are like the others; None or NaN where unknown.
    sample : array-like of shape (n_instances,), optional
        True class values of instances that were drawn at random and checked; None or NaN elsewhere.
        The share is then that of the labels that nobody checked.
    known : boolean array of shape (n_instances,), optional
        Instances whose labels were given to the method that inferred the others. They are right,
        and measure nothing: ``gold`` and the expectation leave them out. A random sample may be
        known.

    Returns
    -------
    Level or None
        None if nothing tells. Nothing was measured, and: fewer than half of the annotated instances
        have two annotations; or there are only two annotators, or one annotated what the others
        share with nobody else, so that agreement does not tell how good they are
        (`manyhands.annotations.groups.can_be_judged`); or the labels are so few that the interval
        says nothing.

    Raises
    ------
    AnnotationError
        If an argument does not have one row per instance.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import DawidSkene, make_crowd
    >>> y = np.tile([0, 1, 2], 200)
    >>> table = make_crowd(y, annotations_per_instance=4, random_state=0)
    >>> model = DawidSkene().fit(table)
    >>> level = accuracy_of_labels(table, model.labels_, model.posterior_)
    >>> level.source, bool(level.low < np.mean(model.labels_ == y) < level.high)
    ('model', True)
    """
    return told_accuracy(table, labels, posterior, gold=gold, sample=sample, known=known)


def told_accuracy(
    table: AnnotationTable,
    labels: Any,
    posterior: Any = None,
    *,
    gold: Any = None,
    sample: Any = None,
    known: Any = None,
    independent: bool = True,
) -> Level | None:
    """Return what `accuracy_of_labels` does, which has the parameters.

    Where annotators are not ``independent``, because some may share mistakes, what a model expects
    is not added to a sample.
    """
    given = _values(table, labels, "labels")
    annotated = (table.annotations_per_instance() > 0) & ~missing_mask(given)
    marked = None if known is None else _mask(table, known)
    free = annotated if marked is None else annotated & ~marked
    if gold is not None:
        true, has = _truth(table, gold, "gold")
        has &= free
        if has.sum() >= LEAST_GOLD:
            return level_of_gold(given[has] == true[has], "gold")
    proba = None if posterior is None else _probabilities(table, posterior)
    expected = None if proba is None else _of_labels(table, given, proba)
    level = None if expected is None else _of_model(table, expected, annotated, free, marked)
    if sample is not None:
        true, has = _truth(table, sample, "sample")
        has &= annotated
        if has.sum() >= LEAST_GOLD:
            prior = level.value if level is not None and independent else None
            return level_of_sample(given == true, has, expected, free, prior)
    return level


def _of_model(
    table: AnnotationTable,
    expected: FloatArray,
    annotated: BoolArray,
    free: BoolArray,
    known: BoolArray | None,
) -> Level | None:
    """Return the level that a model expects of unknown labels; None if nothing shows it."""
    if not free.any():
        return None
    off = model_is_off(table, known, reviewed=bool(free.sum() < annotated.sum()))
    if off is None:
        return None
    level = expected_level(expected[free], off)
    return None if level.is_vague else level


class Off(NamedTuple):
    """What a model's expectation is off by, as differences of logits.

    Attributes
    ----------
    error : float
        Standard deviation.
    surer : float
        By how much it is too high.
    """

    error: float
    surer: float


def model_is_off(
    table: AnnotationTable, known: BoolArray | None = None, *, reviewed: bool = False
) -> Off | None:
    """Return what a model's expectation of labels is off by; None if nothing tells how good it is.

    Parameters
    ----------
    table : AnnotationTable
        Who annotated what; what they said does not matter.
    known : boolean array of shape (n_instances,), optional
        Instances whose labels were given.
    reviewed : bool
        Whether the labels that it is about are those that a review left.
    """
    units = units_per_instance(table)
    units = units[table.annotations_per_instance() > 0]
    if not units.size or np.mean(units > 1) < 0.5 or not can_be_judged(table, known):
        return None
    few = FEW_ANNOTATIONS / float(units.mean())
    return Off(REVIEWED_ERROR, REVIEWED_SHARE * few) if reviewed else Off(MODEL_ERROR, few)


def accuracy_on_new_items(
    table: AnnotationTable | None = None,
    out_of_fold: Any = None,
    *,
    gold: Any = None,
    predicted: Any = None,
) -> Level | None:
    """Return the share of new items that a classifier predicts rightly.

    With at least 10 gold labels of items that it was not trained on, it is measured on them
    (Jeffreys interval). Else it is `estimate_accuracy` of out-of-fold predictions, against the
    annotators. Never of training rows: what a classifier says of these is about the past.

    Parameters
    ----------
    table : AnnotationTable, optional
    out_of_fold : array-like of shape (n_instances,) or (n_instances, n_classes), optional
        What models that were trained on other instances predict for the table's, as of
        `cross_predict`.
    gold, predicted : array-like of shape (n_new,), optional
        True and predicted class values of items outside the training data; None or NaN where the
        truth is unknown.

    Returns
    -------
    Level or None
        None if neither is given.

    Raises
    ------
    AnnotationError
        If gold and predictions differ in length, or the predictions do not fit the table.
    """
    if gold is not None:
        true, given = np.asarray(gold, dtype=object), np.asarray(predicted)
        if true.shape != given.shape:
            raise AnnotationError(
                f"gold has shape {true.shape} and predicted {given.shape}; give one of each per "
                "item"
            )
        has = ~missing_mask(true)
        _refuse_other_types(true[has], given)
        if has.sum() >= LEAST_GOLD:
            return level_of_gold(given[has] == true[has], "gold")
    if table is None or out_of_fold is None:
        return None
    found = estimate_accuracy(out_of_fold, table)
    n = int((table.annotations_per_instance() > 0).sum())
    return Level(found.value, found.low, found.high, "cross-validation", n)


def _refuse_other_types(true: Any, given: Any) -> None:
    """Refuse 1 as the truth of "1": all predictions would count as mistakes."""
    predicted = set(given.tolist())
    strange = [value for value in set(true.tolist()) if value not in predicted]
    if alike := [value for value in strange if str(value) in {str(each) for each in predicted}]:
        raise AnnotationError(
            f"gold holds {alike[0]!r} and predicted {str(alike[0])!r} of another type; convert "
            "one to the other's type"
        )


def expected_level(probabilities: FloatArray, off: Off) -> Level:
    """Return the level that a model expects, lowered by how overconfident such models are.

    The interval holds what the model itself expects, because it is not too sure on all tables.
    """
    return expected_share(float(probabilities.mean()), len(probabilities), off)


def expected_share(share: float, n: float, off: Off) -> Level:
    """Return the level of a share of ``n`` labels; see `expected_level`."""
    own = logit(np.clip(share, LEAST_EXPECTED, 1 - LEAST_EXPECTED))
    value = float(expit(own - off.surer))
    # Which of n labels are wrong is chance, too: of few labels, or where few are wrong.
    apart = norm.ppf(0.975) * np.sqrt(off.error**2 + 1 / (n * value * (1 - value)))
    low, high = expit([own - off.surer - apart, own + apart])
    return Level(value, float(low), float(high), "model", round(n))


def _of_labels(table: AnnotationTable, labels: Any, proba: FloatArray) -> FloatArray:
    """Return the probability that each label is right, shape (n_instances,)."""
    codes = {value: code for code, value in enumerate(table.classes.tolist())}
    place = np.array([codes.get(value, -1) for value in labels.tolist()])
    return np.where(place >= 0, proba[np.arange(len(place)), place], 0.0)


def _values(table: AnnotationTable, values: Any, argument: str) -> Any:
    values = np.asarray(values, dtype=object)
    if values.shape != (table.n_instances,):
        raise AnnotationError(
            f"{argument} has shape {values.shape}, but the table has {table.n_instances} "
            "instances; give one value per instance, in the order of table.instances"
        )
    return values


def _truth(table: AnnotationTable, values: Any, argument: str) -> tuple[Any, BoolArray]:
    values = _values(table, values, argument)
    has = ~missing_mask(values)
    _refuse_strangers(values[has], table.classes.tolist(), argument)
    return values, has


def _refuse_strangers(values: Any, classes: list[Any], argument: str) -> None:
    """Refuse true classes that are none of the classes: they would all count as mistakes."""
    strange = [value for value in values.tolist() if value not in classes]
    if strange:
        as_text = {str(value) for value in strange} <= {str(value) for value in classes}
        mend = "convert them to the type of the classes" if as_text else "name classes"
        raise AnnotationError(
            f"{argument} holds {strange[0]!r} ({len(strange):,} of {len(values):,} values), which "
            f"is none of the classes {classes[:8]!r}; {mend}, and None where the truth is unknown"
        )


def _mask(table: AnnotationTable, known: Any) -> BoolArray:
    return _values(table, known, "known").astype(bool)


def _probabilities(table: AnnotationTable, posterior: Any) -> FloatArray:
    proba = as_posterior(posterior)
    if proba.shape != (table.n_instances, table.n_classes):
        raise AnnotationError(
            f"posterior has shape {proba.shape}; the table has {table.n_instances} instances and "
            f"{table.n_classes} classes"
        )
    return proba
