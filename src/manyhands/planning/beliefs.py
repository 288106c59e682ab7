"""Foundations of a plan: posterior and confusion matrices, a joined classifier, expected gains.

For an instance with the posterior q and an annotator with the confusion matrix pi, the annotation l
has the probability p_l = sum_k q_k pi_kl, and

    EIG = H(p) - sum_k q_k H(pi_k)                 information about the class, in nats [1]_ [2]_
    ERE = sum_l max_k q_k pi_kl - max_k q_k        gain in the probability of a right label

For grades in their order, the gain is the number of grades by which the median comes nearer the
truth: max_k q_k pi_kl becomes max_d -sum_k q_k pi_kl |k - d| (`manyhands.decision.losses`).

If annotators share mistakes, the posterior is tempered (`manyhands.inference.dependence`): an
annotation in addition to d others counts with the power 1 / (1 + d rho). Its confusion matrix is
raised to that power here, too (`tempered`), because its gain would be overstated otherwise.

.. [1] D. J. C. MacKay. Information-based objective functions for active data selection. Neural
   Computation 4(4), 1992.
.. [2] P. Welinder and P. Perona. Online crowdsourcing: rating annotators and obtaining
   cost-effective labels. CVPR Workshops, 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax, xlogy

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import is_scale_of_grades, share_ties
from manyhands.decision.losses import best_value
from manyhands.exceptions import AnnotationError
from manyhands.inference.base import BaseAggregator
from manyhands.inference.confusion_prior import ConfusionPrior, pool_confusions
from manyhands.inference.confusions import log_likelihoods, total_em_counts
from manyhands.inference.inputs import (
    checked_posterior,
    frame_in_order,
    probabilities_of,
    rows_of_fitted,
)
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import make_votes
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

ROUNDS = 5
"""Number of rounds that estimate confusion matrices and the joint posterior by turns."""

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Candidate weights of a classifier's probabilities (powers)."""

SMOOTHING = ConfusionPrior("hierarchical", "auto", 0.7)
"""Prior of the confusion matrices that are counted against a posterior."""


LEAST_ANNOTATIONS = 5
"""Number of annotations that an annotator must have to be judged at all. With two to four, a model
expects the apparent best fifth of annotators to be right in 95 to 98 % of cases, and their further
answers are right in 88 to 91 % (114 annotators of 12 real tables)."""


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What a model believes about the instances and the annotators of a table.

    Attributes
    ----------
    posterior : array of shape (n, C)
    confusion : array of shape (R, C, C)
        Indexed [annotator, true, given].
    prior : array of shape (C,)
    pooled : array of shape (C, C)
        Confusion matrix of the crowd as a whole, which is used for unknown annotators.
    n_annotators_of : integer array of shape (n,)
        Number of annotators of each instance.
    rho : float
        Correlation of annotators' mistakes.
    ordered : bool
        Whether the classes are three or more grades in their order.
    """

    posterior: FloatArray
    confusion: FloatArray
    prior: FloatArray
    pooled: FloatArray
    n_annotators_of: IntArray
    rho: float
    ordered: bool = False

    @property
    def power(self) -> FloatArray:
        """Power with which each instance's next annotation counts, shape (n,); see the module."""
        return np.asarray(1.0 / (1.0 + self.n_annotators_of * self.rho))

    def as_crowd(self, unjudged: BoolArray) -> Beliefs:
        """Believe of some annotators, marked in shape (R,), what is believed of the crowd."""
        confusion = np.where(unjudged[:, None, None], self.pooled, self.confusion)
        return replace(self, confusion=confusion)

    def extended(self, n_instances: int, n_annotators: int) -> Beliefs:
        """Add new instances (with the class prior) and annotators (with the crowd's confusion)."""
        new, newcomers = n_instances - len(self.posterior), n_annotators - len(self.confusion)
        if not new and not newcomers:
            return self
        return replace(
            self,
            posterior=np.concatenate([self.posterior, np.tile(self.prior, (new, 1))]),
            confusion=np.concatenate([self.confusion, np.tile(self.pooled, (newcomers, 1, 1))]),
            n_annotators_of=np.concatenate([self.n_annotators_of, np.zeros(new, dtype=np.int64)]),
        )


def beliefs_of(model: Any, table: AnnotationTable, proba: Any = None) -> tuple[Beliefs, float]:
    """Return the beliefs of a fitted aggregator or a posterior, joined with a classifier if given.

    Parameters
    ----------
    model : fitted estimator with ``posterior_``, or array-like or frame of shape (n, C)
    table : AnnotationTable
    proba : array-like or frame of shape (n, C), optional
        A classifier's probabilities, out of fold.

    Returns
    -------
    beliefs : Beliefs
    weight : float
        b, the classifier's weight (see `classifier_weight`); 0 without one.

    Raises
    ------
    AnnotationError
        If the model is not fitted, or does not fit the table.
    """
    posterior = _posterior_of(model, table)
    if "confusion_" in vars(model) if isinstance(model, BaseAggregator) else False:
        confusion = np.asarray(model.confusion_)
    else:
        confusion = counted_confusions(table, posterior)
    prior = np.asarray(getattr(model, "class_prior_", posterior.mean(axis=0)), dtype=np.float64)
    found = Beliefs(
        posterior,
        confusion,
        prior,
        pool_confusions(confusion, table, posterior)[1],
        annotators_of_instances(table),
        float(getattr(model, "dependence_", 0.0)),
        is_scale_of_grades(table),
    )
    if proba is None:
        return found, 0.0
    given = probabilities_of(table, proba, "proba")
    gold = getattr(model, "_gold", None)
    known = np.zeros(len(posterior), dtype=bool)
    if gold is not None:
        known = (gold >= 0)[rows_of_fitted(model, table, "model")]
    return joined_with(found, table, given, known)


def are_unjudged(model: Any, table: AnnotationTable) -> BoolArray:
    """Return which annotators have too few annotations to be judged, shape (R,).

    Annotations of a model's history count, too.
    """
    n = table.annotations_per_annotator().astype(np.float64)
    history = getattr(model, "_history", None)
    if history is not None:
        n = n + history.of(table.annotators).sum(axis=(1, 2))
    return n < LEAST_ANNOTATIONS


def joined_with(
    found: Beliefs, table: AnnotationTable, proba: FloatArray, known: BoolArray
) -> tuple[Beliefs, float]:
    """Join a classifier: estimate posterior, confusion matrices and weight by turns.

    The first matrices are counted against the classifier alone. It has not seen the instance's
    annotations, so it shows which annotators are good even if instances have one annotation each.

    Parameters
    ----------
    proba : array of shape (n, C)
    known : bool array of shape (n,)
        Instances whose posterior is fixed, because their class is known.

    Returns
    -------
    beliefs : Beliefs
    weight : float
    """
    first = np.where(known[:, None], found.posterior, proba)
    joined, weight = replace(found, confusion=counted_confusions(table, first)), 1.0
    for _ in range(ROUNDS):
        weight = classifier_weight(joined, table, proba)
        posterior = combined(joined, table, proba, weight)
        posterior[known] = found.posterior[known]
        confusion = counted_confusions(table, posterior)
        joined = replace(joined, confusion=confusion, posterior=posterior)
    pooled = pool_confusions(joined.confusion, table, joined.posterior)[1]
    return replace(joined, pooled=pooled), weight


def annotators_of_instances(table: AnnotationTable) -> IntArray:
    """Count the distinct annotators of each instance, shape (n,)."""
    pairs = distinct_pairs(table)
    return np.bincount(pairs // max(table.n_annotators, 1), minlength=table.n_instances)


def distinct_pairs(table: AnnotationTable) -> IntArray:
    """Return the annotated pairs, distinct and sorted, as instance * n_annotators + annotator."""
    pairs = table.instance * np.int64(max(table.n_annotators, 1)) + table.annotator
    return distinct(pairs, table.n_instances * table.n_annotators)


def distinct(numbers: IntArray, size: int) -> IntArray:
    """Return the distinct numbers below ``size``, sorted; marking is faster where most occur."""
    if size > 16 * len(numbers):
        return np.unique(numbers)
    marks = np.zeros(size, dtype=bool)
    marks[numbers] = True
    return np.flatnonzero(marks)


def counted_confusions(table: AnnotationTable, posterior: FloatArray) -> FloatArray:
    """Return confusion matrices counted against a posterior, with the prior of `DawidSkene`."""
    counts = total_em_counts(make_votes(table).shards(), posterior).confusion
    return normalise_rows(counts + SMOOTHING.pseudo_counts(counts, table.n_classes)[0])


def drawn_confusions(
    table: AnnotationTable, found: Beliefs, rng: np.random.RandomState
) -> FloatArray:
    """Draw confusion matrices from their Dirichlet posterior, shape (R, C, C).

    Matrices of annotators outside the table (`Beliefs.extended`) are drawn from the prior.
    """
    posterior = found.posterior[: table.n_instances]
    counts: FloatArray = total_em_counts(make_votes(table).shards(), posterior).confusion
    newcomers = len(found.confusion) - len(counts)
    counts = np.concatenate([counts, np.zeros((newcomers, *counts.shape[1:]))])
    counts = counts + SMOOTHING.pseudo_counts(counts, table.n_classes)[0]
    return normalise_rows(rng.standard_gamma(counts) + 1e-9)


def combined(
    found: Beliefs, table: AnnotationTable, proba: FloatArray, weight: float
) -> FloatArray:
    """Return the posterior of classifier and annotations: proba ** weight times likelihood."""
    power = 1.0 / (1.0 + np.maximum(found.n_annotators_of - 1, 0) * found.rho)
    logs = power[:, None] * log_likelihoods(make_votes(table), floored_log(found.confusion))
    return np.asarray(softmax(logs + weight * np.log(np.maximum(proba, 1e-12)), axis=1))


def classifier_weight(found: Beliefs, table: AnnotationTable, proba: FloatArray) -> float:
    """Return the weight b of a classifier that best predicts left-out annotations.

    Each annotation of an instance with several annotators is left out in turn and predicted as the
    most probable class under proba ** b times the likelihood of the others. The b of `WEIGHTS` with
    the most right predictions is returned (the nearest to 1, if several are equal); 1 if no
    instance has two annotators.
    """
    observed = table.observed
    several = found.n_annotators_of[observed.instance] > 1
    if not several.any():
        return 1.0
    logs = floored_log(found.confusion)[observed.annotator, :, observed.label]
    total = np.stack(
        [np.bincount(observed.instance, column, observed.n_instances) for column in logs.T], axis=1
    )
    instance, label = observed.instance[several], observed.label[several]
    power = 1.0 / (1.0 + (found.n_annotators_of[instance] - 2.0) * found.rho)
    others = power[:, None] * (total[instance] - logs[several])
    own = np.log(np.maximum(proba, 1e-12))[instance]
    rows = np.arange(len(label))
    agreement = {
        b: share_ties(softmax(b * own + others, axis=1))[rows, label].mean() for b in WEIGHTS
    }
    return max(WEIGHTS, key=lambda b: (round(float(agreement[b]), 9), -abs(b - 1.0)))


def _posterior_of(model: Any, table: AnnotationTable) -> FloatArray:
    """Return an estimator's posterior, or a given one, matched by id, shape (n, C)."""
    if isinstance(model, type) or (hasattr(model, "fit") and not hasattr(model, "posterior_")):
        name = model.__name__ if isinstance(model, type) else type(model).__name__
        raise AnnotationError(
            f"model {name} has no posterior_; give a fitted estimator, such as "
            "DawidSkene().fit(table), or an array of class probabilities"
        )
    classes = getattr(model, "classes_", table.classes)
    if not np.array_equal(classes, table.classes):
        raise AnnotationError(
            f"model has the classes {np.asarray(classes).tolist()[:6]}, but the table has "
            f"{table.classes.tolist()[:6]}; give the table that the model was fitted on"
        )
    if hasattr(model, "posterior_"):
        values = model.posterior_[rows_of_fitted(model, table, "model")]
    else:
        values = frame_in_order(table, model, "model")
    return checked_posterior(values, table.n_instances, table.n_classes, "model")


# -- gains -----------------------------------------------------------------------------------------

LARGE_BLOCK, SMALL_BLOCK = 4_000_000, 250_000
"""Entries of the largest array that is made at a time, and of one that stays in the cache."""

Gain = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Function from posteriors (m, C), matrices (m, C, C) and entropies of their rows (m, C) of m pairs
to gains (m,)."""


def entropy(p: FloatArray) -> FloatArray:
    """Return the entropy in nats along the last axis."""
    return np.asarray(-xlogy(p, p).sum(axis=-1))


def information(q: FloatArray, confusion: FloatArray, noise: FloatArray) -> FloatArray:
    """Return the expected information gain (EIG) of m pairs in nats, shape (m,), at least 0."""
    p = np.matmul(q[:, None, :], confusion)[:, 0]
    return np.maximum(entropy(p) - (q * noise).sum(axis=1), 0.0)


def right_labels(q: FloatArray, confusion: FloatArray, noise: FloatArray) -> FloatArray:
    """Return the expected gain in right labels (ERE) of m pairs, shape (m,), at least 0."""
    best = best_value(q[:, :, None] * confusion, axis=1).sum(axis=1)
    return np.maximum(best - best_value(q, axis=1), 0.0)


def nearer_grades(q: FloatArray, confusion: FloatArray, noise: FloatArray) -> FloatArray:
    """Return how many grades m pairs are expected to bring medians nearer, shape (m,)."""
    best = best_value(q[:, :, None] * confusion, axis=1, ordered=True).sum(axis=1)
    return np.maximum(best - best_value(q, axis=1, ordered=True), 0.0)


def better_labels(found: Beliefs) -> Gain:
    """Return the gain of annotations on their scale: right labels, or grades."""
    return nearer_grades if found.ordered else right_labels


def tempered(confusion: FloatArray, power: float) -> FloatArray:
    """Return confusion matrices raised to a power; rows sum to 1."""
    return confusion if power == 1.0 else normalise_rows(confusion**power)


def of_pairs(
    gain: Gain,
    posterior: FloatArray,
    confusion: FloatArray,
    power: FloatArray,
    instance: IntArray,
    annotator: IntArray,
) -> FloatArray:
    """Return the gains of pairs (instance, annotator), shape (m,), computed in blocks.

    Parameters
    ----------
    gain : `information`, `right_labels` or `nearer_grades`
    posterior : array of shape (n, C)
    confusion : array of shape (R, C, C)
    power : array of shape (n,)
        Power with which a new annotation of each instance counts.
    instance, annotator : integer arrays of shape (m,)
    """
    gains = np.empty(len(instance))
    size = max(LARGE_BLOCK // confusion.shape[1] ** 2, 1)
    for value, rows in _by_power(power[instance]):
        matrices = tempered(confusion, value)
        noise = entropy(matrices)
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            who = annotator[some]
            gains[some] = gain(posterior[instance[some]], matrices[who], noise[who])
    return gains


def information_of_all(posterior: FloatArray, confusion: FloatArray, power: FloatArray) -> AnyArray:
    """Return the EIG of every instance with every annotator, (n, R), in single precision."""
    out = np.empty((len(posterior), len(confusion)), dtype=np.float32)
    size = max(SMALL_BLOCK // len(confusion), 1)
    for value, rows in _by_power(power):
        matrices = tempered(confusion, value)
        by_label = np.ascontiguousarray(matrices.transpose(2, 1, 0), dtype=np.float32)
        noise = -entropy(matrices).T.astype(np.float32)
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            q = posterior[some].astype(np.float32)
            total = q @ noise
            for given in by_label:
                p = q @ given
                np.maximum(p, np.float32(1e-12), out=p)
                log_p = np.log(p)
                log_p *= p
                total -= log_p
            out[some] = np.maximum(total, np.float32(0.0))
    return out


def _by_power(power: FloatArray) -> list[tuple[float, IntArray]]:
    """Return the rows of each distinct power."""
    if not len(power):
        return []
    values, code = np.unique(power, return_inverse=True)
    order = np.argsort(code, kind="stable")
    cuts = np.searchsorted(code[order], np.arange(1, len(values)))
    return list(zip(values.tolist(), np.split(order, cuts), strict=True))
