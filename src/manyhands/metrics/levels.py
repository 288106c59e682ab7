"""Levels: the share of labels that are right, and of predictions on new items that will be.

A level comes with an interval and with its source, which says how far to trust it: a measurement on
gold labels, an estimate from a random sample that people checked, a cross-validated estimate
against the annotators, or what a model of the annotators expects. Every page and command that says
how good labels or predictions are takes the figure from here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import missing_mask
from manyhands.annotations.groups import can_be_judged, units_per_instance
from manyhands.annotations.target import require_table
from manyhands.decision.labels import as_posterior
from manyhands.exceptions import AnnotationError, ChosenGoldWarning, warn_caller
from manyhands.inference.gold_samples import LEVEL, compare_doubts
from manyhands.metrics.accuracy_estimate import estimate_accuracy
from manyhands.metrics.sample_levels import LEAST_GOLD, Level, level_of_gold, level_of_sample
from manyhands.typing import BoolArray, FloatArray
from manyhands.wording import DECLARE_RANDOM, N_RANDOM

__all__ = ["Level", "accuracy_of_labels", "accuracy_on_new_items"]

MODEL_ERROR = 0.55
"""Standard deviation of the error of a model's expected level, in logits.

The root mean square error of `DawidSkene` over the real tables of docs/results/aggregation.md is
just below; a test compares.
"""

OVERCONFIDENCE = 1.0
"""By how much, in logits, a model's expected level is too high with one annotation per instance.

With k annotations it is k times less, because the model overfits less. With 1.5, 2, 3 and 4 random
annotations per instance of these tables, it was .70, .49, .32 and .29.
"""

REVIEWED = 0.1
"""Share of known labels from which on the constants below hold.

Up to it, they follow from those without known labels by linear interpolation, so that a single
correction hardly changes an interval.
"""

REVIEWED_ERROR = 0.75
"""The same as `MODEL_ERROR` after a review, over the tables of docs/results/claims.md.

It is larger, because the doubtful labels, which the model judges best, are then known.
"""

REVIEWED_OVERCONFIDENCE = 0.5
"""Share of `OVERCONFIDENCE` that remains after a review, which gives the model known labels."""

LEAST_EXPECTED = 1e-3
"""Smallest share of wrong labels that is believed of a model's expectation."""


def accuracy_of_labels(
    table: AnnotationTable,
    labels: Any,
    posterior: Any = None,
    *,
    gold: Any = None,
    sample: Any = None,
    known: Any = None,
    random: Any = None,
) -> Level | None:
    r"""Return the share of a table's labels that are right, from the best source there is.

    The sources, best first:

    * At least 10 gold labels: the share is measured on them (Jeffreys interval).
    * At least 10 labels of randomly drawn instances that people checked: it is estimated from them,
      more precisely with a model's expectation (`mean_estimate`), which counts as ten further
      labels. It is never 0 or 1, because n right labels do not show that all others are right.
    * A model: it is the mean probability p of the labels, lowered by 1 / k in logits for k
      annotations per instance, because models are overconfident with few annotations. The interval
      allows for the errors of such expectations on real tables, and for chance: it is p ± 1.96
      standard deviations in logits, with the variance .55² + 1 / (n p (1 - p)). If a tenth of the
      labels or more are known, p is lowered by 1 / (2 k), and .75 takes the place of .55; with
      fewer, both constants lie between, in proportion. A family of annotators counts as one.

    Parameters
    ----------
    table : AnnotationTable
        Instances without annotations do not count.
    labels : array-like of shape (n_instances,)
        Inferred class values; instances with None or NaN, which are undecided, do not count.
    posterior : array-like of shape (n_instances, n_classes), optional
        Calibrated class probabilities, as of `DawidSkene` or `CrowdStackingClassifier`, in the
        order of ``table.classes``. Needed unless there are enough gold or sampled labels.
    gold : array-like of shape (n_instances,), optional
        True class values of instances that resemble the others; None or NaN where unknown.
    sample : array-like of shape (n_instances,), optional
        True class values of instances that were drawn at random and checked; None or NaN elsewhere.
        The result is then the share of right labels among those that nobody checked.
    known : boolean array of shape (n_instances,), optional
        Instances whose labels were given to the method that inferred the others. These labels are
        right anyway and measure nothing, so gold labels and the expectation leave them out. A
        random sample may be known.
    random : boolean array of shape (n_instances,), optional
        Instances that are known to be drawn at random. Other gold and sampled labels are compared
        with the rest by a rank test. If ``posterior`` is more, or less, in doubt about them (p <
        .01), they are left out, because the share that they show is too low, or too high.

    Returns
    -------
    Level or None
        None if nothing was measured and a model's expectation means nothing: if fewer than half of
        the annotated instances have two annotations; if annotators overlap too little for their
        accuracies to be identifiable, as with two annotators
        (`manyhands.annotations.groups.can_be_judged`); or if there are so few labels that the
        interval is too wide to be useful.

    Raises
    ------
    AnnotationError
        If an argument does not have one row per instance.

    Warns
    -----
    ChosenGoldWarning
        If gold or sampled labels are left out, because a rank test suggests that they were chosen.

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
    require_table(table)
    given = {"gold": gold, "sample": sample, "known": known, "random": random}
    return level_from_sources(table, labels, posterior, **given)


def level_from_sources(
    table: AnnotationTable,
    labels: Any,
    posterior: Any = None,
    *,
    gold: Any = None,
    sample: Any = None,
    known: Any = None,
    random: Any = None,
    independent: bool = True,
) -> Level | None:
    """Return the level as `accuracy_of_labels` does, which describes the parameters.

    If annotators are not ``independent``, because some may share mistakes, a sample is not combined
    with a model's expectation.
    """
    given = _values(table, labels, "labels")
    annotated = (table.annotations_per_instance() > 0) & ~missing_mask(given)
    marked = None if known is None else _mask(table, known, "known")
    free = annotated if marked is None else annotated & ~marked
    proba = None if posterior is None else _probabilities(table, posterior)
    expected = None if proba is None else _of_labels(table, given, proba)
    level = None if expected is None else _of_model(table, expected, annotated, free, marked)
    model_level = level.value if level is not None and independent else None
    drawn = np.zeros_like(free) if random is None else _mask(table, random, "random")
    if gold is not None:
        true, has = _truth(table, gold, "gold")
        has = _resembling(has & free, drawn, free, proba, "gold")
        if has.sum() >= LEAST_GOLD:
            right, others = given == true, free & ~has
            level = level_of_gold(right[has], "gold", model_level)
            if others.any() and drawn[has].all():
                rest = level_of_sample(right, has, expected, others, model_level)
                level = level._replace(other_part=rest.value)
            return level
    if sample is not None:
        true, has = _truth(table, sample, "sample")
        has = _resembling(has & annotated, drawn, free, proba, "checked")
        if has.sum() >= LEAST_GOLD:
            return level_of_sample(given == true, has, expected, free, model_level)
    return level


def _resembling(
    has: BoolArray, drawn: BoolArray, free: BoolArray, proba: FloatArray | None, kind: str
) -> BoolArray:
    """Leave out labels that a rank test finds to be chosen by their doubt, with a warning."""
    asked, others = has & ~drawn, free & ~has
    if proba is None or has.sum() < LEAST_GOLD or not asked.any() or not others.any():
        return has
    doubt = 1.0 - proba.max(axis=1)
    found = compare_doubts(doubt[asked], doubt[others])
    if found.p_value >= LEVEL:
        return has
    n = int(asked.sum())
    which = f"{n:,} {kind} labels are" if n > 1 else f"1 {kind} label is"
    more, wrong = ("more", "more frequent") if found.are_doubtful else ("less", "rarer")
    warn_caller(
        f"{which} of items that are {more} in doubt than the others, which random labels rarely "
        f"are (rank test, p = {found.p_value:.2g}). The share of right labels therefore leaves "
        f"them out, because wrong labels are {wrong} among such items. If they were drawn at "
        f"random, {DECLARE_RANDOM}, and they measure this share. If not, check {N_RANDOM} labels "
        "drawn at random",
        ChosenGoldWarning,
    )
    return has & drawn


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
    error = expectation_error(table, known, reviewed=1 - float(free.sum() / annotated.sum()))
    if error is None:
        return None
    level = expected_level(expected[free], error)
    return None if level.is_vague else level


class ExpectationError(NamedTuple):
    """Error of the levels that a model expects, as differences of logits.

    Attributes
    ----------
    sd : float
        Standard deviation of the error.
    overconfidence : float
        By how much expected levels are too high.
    """

    sd: float
    overconfidence: float


def expectation_error(
    table: AnnotationTable, known: BoolArray | None = None, *, reviewed: float = 0.0
) -> ExpectationError | None:
    """Return the error of a model's expected level; None if that level would mean nothing.

    Parameters
    ----------
    table : AnnotationTable
        Only who annotated what matters, not the labels.
    known : boolean array of shape (n_instances,), optional
        Instances whose labels were given.
    reviewed : float
        Share of the labels that are known, such as from a review; the level is that of the others.
    """
    units = units_per_instance(table)
    units = units[table.annotations_per_instance() > 0]
    if not units.size or np.mean(units > 1) < 0.5 or not can_be_judged(table, known):
        return None
    part = min(reviewed / REVIEWED, 1.0)
    few = OVERCONFIDENCE / float(units.mean())
    return ExpectationError(
        (1 - part) * MODEL_ERROR + part * REVIEWED_ERROR,
        (1 - part * (1 - REVIEWED_OVERCONFIDENCE)) * few,
    )


def accuracy_on_new_items(
    table: AnnotationTable | None = None,
    out_of_fold: Any = None,
    *,
    gold: Any = None,
    predicted: Any = None,
) -> Level | None:
    """Return the share of new items that a classifier predicts rightly.

    With at least 10 gold labels of items that the classifier was not trained on, it is measured on
    them (Jeffreys interval). Else it is estimated from out-of-fold predictions against the
    annotations (`estimate_accuracy`). Predictions of training rows are never used, because they say
    nothing about new items.

    Parameters
    ----------
    table : AnnotationTable, optional
    out_of_fold : result of `manyhands.cross_predict`, or array-like of shape (n_instances,) or \
(n_instances, n_classes), optional
        Predictions for the table's instances by models that were trained on other instances.
        Matched with the table as in `vote_agreement`.
    gold, predicted : array-like of shape (n_new,), optional
        True and predicted class values of items outside the training data; None or NaN where the
        truth is unknown.

    Returns
    -------
    Level or None
        None if there are neither enough gold labels nor out-of-fold predictions.

    Raises
    ------
    AnnotationError
        If gold and predictions differ in length, the predictions do not fit the table, or one of
        the two is given without the other.
    """
    if table is not None:
        require_table(table)
    if gold is None and (table is None) != (out_of_fold is None):
        half = ("table", "out_of_fold") if out_of_fold is None else ("out_of_fold", "table")
        raise AnnotationError(
            f"{half[0]} is given without {half[1]}; give both, as in accuracy_on_new_items(table, "
            "cross_predict(model, X, table)), or gold and predicted classes of new items, as in "
            "accuracy_on_new_items(gold=y_new, predicted=model.predict(X_new))"
        )
    if gold is not None:
        true, given = np.asarray(gold, dtype=object), np.asarray(predicted)
        if true.shape != given.shape:
            raise AnnotationError(
                f"gold has shape {true.shape}, but predicted has {given.shape}; give one of each "
                "per item"
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
    """Refuse gold such as 1 beside predictions such as "1", which would all count as wrong."""
    predicted = set(given.tolist())
    strange = [value for value in set(true.tolist()) if value not in predicted]
    if alike := [value for value in strange if str(value) in {str(each) for each in predicted}]:
        raise AnnotationError(
            f"gold holds {alike[0]!r}, but predicted holds {str(alike[0])!r}, of another type; "
            "convert one to the other's type"
        )


def expected_level(probabilities: FloatArray, error: ExpectationError) -> Level:
    """Return the level that a model expects, lowered by how overconfident such models are.

    The interval includes what the model itself expects, because on some tables it is right.
    """
    return expected_share(float(probabilities.mean()), len(probabilities), error)


def expected_share(share: float, n: float, error: ExpectationError) -> Level:
    """Return the level of a share of ``n`` labels; see `expected_level`."""
    own = logit(np.clip(share, LEAST_EXPECTED, 1 - LEAST_EXPECTED))
    value = float(expit(own - error.overconfidence))
    # The second term is sampling error, which matters if labels, or wrong labels, are few.
    apart = norm.ppf(0.975) * np.sqrt(error.sd**2 + 1 / (n * value * (1 - value)))
    low, high = expit([own - error.overconfidence - apart, own + apart])
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
    """Refuse true classes that the table does not have, which would all count as mistakes."""
    strange = [value for value in values.tolist() if value not in classes]
    if strange:
        as_text = {str(value) for value in strange} <= {str(value) for value in classes}
        mend = "convert them to the type of the classes" if as_text else "name classes"
        raise AnnotationError(
            f"{argument} holds {strange[0]!r} ({len(strange):,} of {len(values):,} values), which "
            f"is not among the classes {classes[:8]!r}; {mend}, and give None where the truth is "
            "unknown"
        )


def _mask(table: AnnotationTable, given: Any, argument: str) -> BoolArray:
    return _values(table, given, argument).astype(bool)


def _probabilities(table: AnnotationTable, posterior: Any) -> FloatArray:
    proba = as_posterior(posterior)
    if proba.shape != (table.n_instances, table.n_classes):
        raise AnnotationError(
            f"posterior has shape {proba.shape}; the table has {table.n_instances} instances and "
            f"{table.n_classes} classes"
        )
    return proba
