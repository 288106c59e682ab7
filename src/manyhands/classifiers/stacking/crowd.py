"""Estimates of a stack's rounds that use the annotations only."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from manyhands.inference.confusions import confusion_counts, log_likelihoods
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import Votes
from manyhands.typing import FloatArray, IntArray

PRIOR_SCALE = 0.011
"""x0: the spread x at which kappa is 1/2."""

SHIFT_STEPS, SHIFT_RATE = 60, 0.7
"""Number and rate of the steps towards the required shares. With confident posteriors, they end
before the shares are reached (docs/methods/stacking.md, step 4)."""

LEAST_ROOM = 1e-3
"""Floor of 1 minus the agreement by chance, and of the denominator of relative informedness."""

LEAST_PAIRS = 1e-12
"""Sum of the competence products of all pairs up to which they count as none."""


def estimate_confusions(votes: Votes, posterior: FloatArray, strength: float) -> FloatArray:
    r"""Return the confusion matrices, shrunk to the crowd's.

    With :math:`N_r[c, l]` annotator r's annotations l counted against the posterior of class c,
    :math:`G = \mathrm{rownorm}(\sum_r N_r + .1 + I)` and
    :math:`\pi_r = \mathrm{rownorm}(N_r + s G)`. With more than ten classes, 1 / n_classes replaces
    .1, so that a row's pseudo-counts sum to at most 1 beside that on the diagonal.

    Parameters
    ----------
    votes : Votes
    posterior : array of shape (n, n_classes)
    strength : float
        The s above, in annotations.

    Returns
    -------
    array of shape (n_annotators, n_classes, n_classes), [annotator, true, given]
    """
    counts = confusion_counts(votes, posterior)
    return normalise_rows(counts + strength * crowd_confusion(counts))


def asked(votes: Votes) -> Votes | None:
    """Return votes of two classes, answered (0) and abstained (1); None without abstentions.

    Parameters
    ----------
    votes : Votes
        With abstentions, as the response ``n_classes``.

    Returns
    -------
    Votes or None
    """
    abstained = votes.response == votes.n_classes
    if not abstained.any():
        return None
    return replace(votes, response=abstained.astype(votes.response.dtype), n_responses=2, ones=None)


def estimate_abstention(votes: Votes, posterior: FloatArray, strength: float) -> FloatArray:
    r"""Return the probabilities to answer and to abstain by annotator and class, shrunk.

    With :math:`A_r[c, 1]` annotator r's abstentions counted against the posterior of class c and
    :math:`A_r[c, 0]` r's answers, it is
    :math:`\mathrm{rownorm}(A_r + s\,\mathrm{rownorm}(\sum_r A_r + .1))`.

    Parameters
    ----------
    votes : Votes
        What `asked` returns.
    posterior : array of shape (n, n_classes)
    strength : float
        The s above, in questions asked.

    Returns
    -------
    array of shape (n_annotators, n_classes, 2)
    """
    counts = confusion_counts(votes, posterior)
    return normalise_rows(counts + strength * normalise_rows(counts.sum(axis=0) + 0.1))


def crowd_confusion(counts: FloatArray) -> FloatArray:
    """Return the confusion matrix G of the crowd; its default is a high diagonal."""
    n_classes = counts.shape[1]
    return normalise_rows(counts.sum(axis=0) + min(0.1, 1 / n_classes) + np.eye(n_classes))


def prior_shrinkage(shares: FloatArray, n_instances: int) -> float:
    r"""Return the degree to which equal class shares are assumed.

    It is :math:`\kappa = 1 / (1 + (x / x_0)^2)` with
    :math:`x = C^2 \mathrm{var}(\text{shares}) / (C - 1) - 1 / n`, and at least 0. The first term is
    1 if all votes are of one class. For n instances of equally frequent classes its expectation is
    1 / n, which is subtracted.

    Parameters
    ----------
    shares : array of shape (n_classes,)
        Shares of the classes in the votes.
    n_instances : int
        The n above.

    Returns
    -------
    float in (0, 1]
    """
    n_classes = len(shares)
    spread = n_classes**2 * float(np.var(shares)) / (n_classes - 1)
    spread = max(spread - 1.0 / n_instances, 0.0)
    return 1.0 / (1.0 + (spread / PRIOR_SCALE) ** 2)


def posterior_with_shares(joint: FloatArray, shares: FloatArray | None) -> FloatArray:
    """Return the posterior softmax(joint + v) with a mean close to ``shares``.

    Starting from v = 0, there are 60 steps v <- v - .7 (log mean q - log shares). Without shares,
    v remains 0.

    Parameters
    ----------
    joint : array of shape (n, n_classes)
    shares : array of shape (n_classes,) or None

    Returns
    -------
    array of shape (n, n_classes)
    """
    top = joint.max(axis=1, keepdims=True)
    joint = np.exp(joint - top)
    if shares is not None:
        log_shift, wanted = np.zeros(joint.shape[1]), floored_log(shares)
        for _ in range(SHIFT_STEPS):
            shift = np.exp(log_shift - log_shift.max())
            # The mean of the shifted posterior, without forming it.
            mean = shift * ((1 / (joint @ shift)) @ joint) / len(joint)
            log_shift -= SHIFT_RATE * (floored_log(mean) - wanted)
        joint *= np.exp(log_shift - log_shift.max())
    return cast(FloatArray, joint / joint.sum(axis=1, keepdims=True))


def joint_log_proba(
    votes: Votes, log_proba: FloatArray, confusion: FloatArray, classifier_weight: float
) -> FloatArray:
    """Return b log p plus the sum of an instance's log confusion, shape (n, n_classes)."""
    return classifier_weight * log_proba + log_likelihoods(votes, floored_log(confusion))


def relative_informedness(votes: Votes, codes: IntArray, competence: FloatArray) -> float | None:
    r"""Return the informedness of a classifier relative to that of one more annotator.

    It is the classifier's agreement with annotators beyond chance, divided by that of annotators
    with one another, weighted by
    their competence :math:`\beta`. With B the sums of competence by instance and class given, S
    their row sums and :math:`S_2` the sums of :math:`\beta^2`: annotators agree in
    :math:`A_{aa} = \sum (\sum_l B_{nl}^2 - S_{2n}) / \sum (S_n^2 - S_{2n})`, the classifier with
    them in :math:`A_{ca}`, the mean of 1[h_n = a] with weights :math:`\beta_r (S_n - \beta_r)`, and
    :math:`\rho = \frac{(A_{ca} - e'f) / (1 - e'f)}{(A_{aa} - e'e) / (1 - e'e)}` with the class
    shares e of the annotators and f of the classifier. An annotation's weight multiplies its
    :math:`\beta`. Both 1 - e'f and 1 - e'e are at least .001,
    and so is the whole denominator.

    Parameters
    ----------
    votes : Votes
    codes : integer array of shape (n,)
        The classifier's predictions h.
    competence : array of shape (n_annotators,)

    Returns
    -------
    float or None
        None if no instance has two annotations.
    """
    given = _sums_by_class(votes, competence)
    total = given.sum(axis=1)
    squares = _sums_by_class(votes, competence, power=2)
    pairs = float((total**2 - squares.sum(axis=1)).sum())
    if pairs <= LEAST_PAIRS:
        return None
    among = float(((given**2).sum(axis=1) - squares.sum(axis=1)).sum()) / pairs
    rows = np.arange(len(codes))
    with_them = float((total * given[rows, codes] - squares[rows, codes]).sum()) / pairs
    e = given.sum(axis=0) / given.sum()
    f = np.bincount(codes, minlength=votes.n_classes) / len(codes)
    return _beyond(with_them, e @ f) / max(_beyond(among, e @ e), LEAST_ROOM)


def competences(confusion: FloatArray, shares: FloatArray) -> FloatArray:
    r"""Return each annotator's accuracy beyond chance, from 0 to 1.

    :math:`\beta_r = \max(\sum_c \bar q_c \pi_r[c, c] - 1/C, 0) / (1 - 1/C)`.

    Parameters
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    shares : array of shape (n_classes,)
        Mean :math:`\bar q` of the posterior.

    Returns
    -------
    array of shape (n_annotators,)
    """
    n_classes = len(shares)
    accuracy = np.einsum("c,rcc->r", shares, confusion)
    return np.maximum(accuracy - 1 / n_classes, 0.0) / (1 - 1 / n_classes)


def _beyond(agreement: float, chance: float) -> float:
    return (agreement - chance) / max(1 - chance, LEAST_ROOM)


def _sums_by_class(votes: Votes, values: FloatArray, power: int = 1) -> FloatArray:
    """Sum (value of the annotator x weight of the annotation) ** power by instance and class.

    Returns an array of shape (n, n_classes).
    """
    n, n_classes = votes.n_instances, votes.n_classes
    cell = votes.instance * np.int64(n_classes) + votes.response
    each = (values**power)[votes.annotator]
    if votes.weight is not None:
        each *= votes.weight**power
    sums = np.bincount(cell, weights=each, minlength=n * n_classes)
    return cast(FloatArray, sums.reshape(n, n_classes))


def class_shares_of_votes(votes: Votes) -> FloatArray:
    """Return the shares of the classes in the annotations, shape (n_classes,)."""
    counts = np.bincount(votes.response, weights=votes.weight, minlength=votes.n_classes)
    return cast(FloatArray, counts / counts.sum())
