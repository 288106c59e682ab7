r"""Calibrated posterior of the training instances after the rounds.

In the rounds, the stack has twice the weight of an annotator. That makes better targets, but a
miscalibrated posterior. Confusion matrices that are counted with it as truth become biased towards
the classifier. The classifier's probabilities become overconfident, because their exponent was
fitted with such matrices. So the probabilities :math:`p` of a round are kept, and everything else
is estimated again.

With d annotators of an instance, mistakes with correlation :math:`\delta`
(`manyhands.inference.dependence`), and the classifier as one more annotator,

.. math:: q_i \propto \bigl(p_i^{(\beta)} \prod_k \pi_k\bigr)^{1 / (1 + d_i \delta)}, \qquad
    p^{(\beta)} = \bar p^{\,1 - \beta} p^\beta.

- :math:`\pi_k` is the confusion matrix of the annotator of annotation k, estimated without k's own
  instance.
- Only the distance of :math:`p` from its mean :math:`\bar p` is raised to the power
  :math:`\beta`, which would otherwise flatten the class shares, too.
- :math:`\beta` maximises the likelihood of an annotation given the classifier and the *other*
  annotators of its instance.

The posterior and the confusion matrices depend on each other, so they are updated alternately. The
method is the library's own (docs/methods/stacking.md); no step of it uses gold labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from manyhands.classifiers.stacking.crowd import crowd_confusion
from manyhands.inference.confusions import confusion_counts
from manyhands.inference.dependence import exponents
from manyhands.inference.probability import floored_log
from manyhands.inference.votes import Votes, by_instance, weight_of_pairs
from manyhands.typing import FloatArray, IntArray

MOST_TURNS, STILL = 40, 1e-3
"""Largest number of alternations; they end when no probability changes by more than `STILL`."""

MOST_JUDGES, LEAST_JUDGES = 20_000, 30
"""Largest and least numbers of annotations that choose the exponents: of more, a random sample is
taken; with fewer, no exponent is chosen."""

LOG_EXPONENT = (-4.0, 0.7)
"""Range of the logarithm of the exponent of the classifier's probabilities."""

INFORMEDNESS_RANGE = (0.5, 1.0)
"""Range to which relative informedness is clipped before it multiplies the exponent. A classifier
that predicts annotations worse than another annotator also says less about the class."""

Annotating = Callable[[FloatArray], "FloatArray | float"]
"""Function from a posterior to the log likelihoods (n, C) of abstaining and answering."""


@dataclass(frozen=True)
class StackReadOut:
    r"""Posterior of the training instances, and the exponents that led to it.

    Attributes
    ----------
    posterior : array of shape (n, n_classes)
    exponent : float
        Of the classifier's distance from its mean (:math:`\beta`, times relative informedness).
    new_exponent : float
        Of the probabilities of new instances, at most 1.
    unclamped : array of shape (n, n_classes)
        The posterior without known labels.
    """

    posterior: FloatArray
    exponent: float
    new_exponent: float
    unclamped: FloatArray


@dataclass(frozen=True)
class Judges:
    """The annotations that choose the exponents: those of instances without a known label.

    Attributes
    ----------
    chosen : integer array of shape (m,)
        Their positions in the votes.
    n_among_others : int
        Number of them with another annotator's annotation of the same instance; they come first.
    """

    chosen: IntArray
    n_among_others: int

    @classmethod
    def drawn(cls, votes: Votes, rng: np.random.Generator) -> Judges:
        """Draw them from the annotations, those of instances with several annotators first."""
        others = annotators_of(votes)[votes.instance] > 1
        usable = np.ones(votes.n_annotations, dtype=bool)
        if votes.gold is not None:
            usable = votes.gold[votes.instance] < 0
        parts: list[IntArray] = []
        for part in (np.flatnonzero(usable & others), np.flatnonzero(usable & ~others)):
            room = MOST_JUDGES - sum(len(each) for each in parts)
            parts.append(part if len(part) <= room else np.sort(rng.permutation(part)[:room]))
        return cls(np.concatenate(parts), len(parts[0]))


def read_out(
    votes: Votes,
    log_proba: FloatArray,
    start: FloatArray,
    judges: Judges,
    *,
    rho: float,
    strength: float,
    relative_informedness: float | None,
    settle: Callable[[FloatArray], FloatArray],
    annotating: Annotating,
) -> StackReadOut:
    """Estimate the calibrated posterior.

    Parameters
    ----------
    votes : Votes
        Without abstentions; every instance has annotations or gold.
    log_proba : array of shape (n, n_classes)
        The classifier's out-of-fold log probabilities, without the instance's own annotations.
    start : array of shape (n, n_classes)
        Posterior for the first confusion matrices.
    judges : Judges
    rho : float
        Correlation of the annotators' mistakes.
    strength : float
        Number of pseudo-annotations, distributed like the crowd's, in each row of a confusion
        matrix.
    relative_informedness : float or None
        Informedness of the classifier relative to one more annotator, if it is known.
    settle : function from joint log probabilities (n, n_classes) to a posterior
        Applies known labels and known class shares.
    annotating : function from a posterior to log likelihoods
        Returns the evidence of abstaining and answering.

    Returns
    -------
    ReadOut
    """
    mean = floored_log(np.exp(log_proba).mean(axis=0))
    away = log_proba - mean
    # share < 1 where an annotator answered repeatedly: those answers share one vote.
    share = exponents(votes, 0.0)[:, None]
    power = exponents(votes, rho, others=1)[:, None] / share
    # A predicted annotation must not be evidence of its own instance.
    without_one = exponents(votes, rho)[:, None] / share
    worth = (
        1.0
        if relative_informedness is None
        else float(np.clip(relative_informedness, *INFORMEDNESS_RANGE))
    )
    posterior, exponent = start, 1.0
    for _ in range(MOST_TURNS):
        before = posterior
        evidence = own_removed(votes, posterior, strength)
        joint = share * _by_instance(votes, evidence) + annotating(posterior)
        if judges.n_among_others >= LEAST_JUDGES:
            left = _Left.of(votes, judges, evidence, joint, share)
            exponent = worth * _exponent(left, mean, away, without_one)
        joint += log_softmax(mean + exponent * away, axis=1)
        posterior = settle(np.sqrt(power) * joint)
        if np.abs(posterior - before).max() < STILL:
            break
    chosen = judges.chosen
    new_exponent = _exponent_of_new(
        log_proba[votes.instance[chosen]], evidence[chosen], _weights(votes, chosen)
    )
    last = power * joint
    return StackReadOut(settle(last), exponent, new_exponent, softmax(last, axis=1))


def own_removed(votes: Votes, posterior: FloatArray, strength: float) -> FloatArray:
    r"""Return the log probability of every annotation given each class, leaving its instance out.

    With counts :math:`N_r[c, l]` against the posterior and pseudo-counts :math:`P = s G`
    (`crowd.estimate_confusions`), for annotation k of class a by r of instance i

    .. math:: \log \pi_k[c] = \log \max(N_r[c, a] + P[c, a] - q_{ic}, P[c, a])
        - \log \max(N_r[c, \cdot] + P[c, \cdot] - q_{ic}, P[c, \cdot]).

    Returns
    -------
    array of shape (n_annotations, n_classes)
    """
    counts = confusion_counts(votes, posterior)
    pseudo = strength * crowd_confusion(counts)
    pseudo_rows = pseudo.sum(axis=1)
    rows = counts.sum(axis=2) + pseudo_rows
    q = posterior[votes.instance]
    own, own_row = q, q
    if len(votes.uneven):
        own = q * weight_of_pairs(votes, same_class=True)[:, None]
        own_row = q * weight_of_pairs(votes)[:, None]
    floor = pseudo.T[votes.response]
    given = counts[votes.annotator, :, votes.response] + floor - own
    given = np.log(np.maximum(given, floor))
    given -= np.log(np.maximum(rows[votes.annotator] - own_row, pseudo_rows))
    return given


@dataclass(frozen=True)
class _Left:
    """The evidence of an instance without the annotator whose annotation is predicted."""

    others: FloatArray
    own: FloatArray
    weight: FloatArray
    instance: IntArray

    @classmethod
    def of(
        cls,
        votes: Votes,
        judges: Judges,
        evidence: FloatArray,
        joint: FloatArray,
        share: FloatArray,
    ) -> _Left:
        chosen = judges.chosen[: judges.n_among_others]
        instance = votes.instance[chosen]
        by_annotator = evidence if votes.weight is None else evidence * votes.weight[:, None]
        own = by_annotator[chosen]
        if len(votes.uneven):
            pair = votes.instance * np.int64(votes.n_annotators) + votes.annotator
            _, place = np.unique(pair, return_inverse=True)
            sums = np.zeros((int(place.max()) + 1, evidence.shape[1]))
            np.add.at(sums, place, by_annotator)
            own = sums[place[chosen]]
        others = joint[instance] - share[instance] * own
        return cls(others, np.exp(evidence[chosen]), _weights(votes, chosen), instance)


def _exponent(left: _Left, mean: FloatArray, away: FloatArray, power: FloatArray) -> float:
    """Return the exponent that best predicts annotations from classifier and other annotators."""
    told, power = away[left.instance], power[left.instance]

    def loss(log_exponent: float) -> float:
        said = log_softmax(mean + np.exp(log_exponent) * told, axis=1)
        known = softmax(power * (said + left.others), axis=1)
        return -float(left.weight @ np.log(np.einsum("kc,kc->k", known, left.own)))

    found = minimize_scalar(loss, bounds=LOG_EXPONENT, method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def _exponent_of_new(told: FloatArray, evidence: FloatArray, weight: FloatArray) -> float:
    """Return the exponent, at most 1, that best predicts annotations from the classifier alone."""
    if len(told) < LEAST_JUDGES:
        return 1.0
    likelihood = np.exp(evidence)

    def loss(log_exponent: float) -> float:
        said = softmax(np.exp(log_exponent) * told, axis=1)
        return -float(weight @ np.log(np.einsum("kc,kc->k", said, likelihood)))

    found = minimize_scalar(loss, bounds=LOG_EXPONENT, method="bounded", options={"xatol": 0.01})
    return min(1.0, float(np.exp(found.x)))


def annotators_of(votes: Votes) -> IntArray:
    """Return the number of annotators of each instance, shape (n,)."""
    if not len(votes.uneven):
        return np.diff(votes.start)
    pair = votes.instance * np.int64(votes.n_annotators) + votes.annotator
    instance = np.unique(pair) // votes.n_annotators
    return np.bincount(instance, minlength=votes.n_instances)


def _weights(votes: Votes, chosen: IntArray) -> FloatArray:
    return np.ones(len(chosen)) if votes.weight is None else votes.weight[chosen]


def _by_instance(votes: Votes, values: FloatArray) -> FloatArray:
    """Sum rows of values, times their weights, by instance, shape (n, n_classes)."""
    columns = [by_instance(votes, np.ascontiguousarray(column)) for column in values.T]
    return cast(FloatArray, np.stack(columns, axis=1))
