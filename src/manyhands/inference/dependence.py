"""Correlation of annotators' mistakes, and posteriors that allow for it.

Annotators share mistakes: they misread the same sentence, or misjudge the same picture. A model in
which they are independent given the class counts a shared mistake as often as it is made, and is
overconfident. This module keeps the fitted model and corrects only its posterior. The log
probability of an instance is divided by the design effect of its annotations [1]_,

    q_ic ~ p(c, annotations) ** beta_i,    beta_i = 1 / (1 + (d_i - 1) rho),

where d_i counts the instance's annotators and rho is the correlation of their mistakes.

Without gold, rho is estimated by indirect inference [2]_. The *moment* m of a fit is the
correlation of the residuals of two annotators on the same instance (`residual_correlation`). It
underestimates rho, because the posterior takes shared mistakes for the truth, especially with few
annotations. Therefore tables like the given one are simulated from the fitted model, with rho = 0
and with `REFERENCE`, and the model is fitted to them. Rho is interpolated linearly between their
moments. (The moment grows more slowly the larger rho is, so a rho of .15 is estimated as .2.)

Annotations cannot show mistakes that nearly everybody makes. Gold labels can: if some are given,
rho is fitted to them (`refine`).

.. [1] L. Kish. Survey sampling. Wiley, 1965, section 5.4.
.. [2] C. Gourieroux, A. Monfort and E. Renault. Indirect inference. Journal of Applied Econometrics
   8(S1), 1993.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import log_softmax
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.inference.class_shares import AgreementCounts, RareClassCorrection
from manyhands.inference.confusion_em import (
    ConfusionEM,
    ConfusionRun,
    Fits,
    OwnRemoved,
)
from manyhands.inference.confusion_prior import ConfusionPrior, with_history
from manyhands.inference.confusions import (
    ConfusionParams,
    EMCounts,
    count_votes,
    em_counts,
    expect_and_count,
    m_step,
)
from manyhands.inference.gold_samples import Doubts, GoldSample, KnownLabels, sample_of
from manyhands.inference.probability import normalise_rows
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_instance,
    fill_rows,
    starting_shares,
    weight_of_pairs,
    weighted_votes,
)
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray


class NumberInterval(Interval):
    """Constraint on a parameter: a number in an interval, and not True or False."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Return whether a value is allowed."""
        return not isinstance(val, bool | np.bool_) and bool(super().is_satisfied_by(val))


DEPENDENCE = [NumberInterval(Real, 0, 1, closed="both"), StrOptions({"auto"})]
"""Values of the parameter ``dependence``."""

PRIOR_MEAN, PRIOR_SD = 0.25, 0.15
"""Normal prior on rho, with the values that fitted the gold labels of real tables best. It matters
if annotations contain little information about rho, as with two or three per instance."""

LARGEST_RHO = 0.5
"""Largest estimate of rho without gold."""

REFERENCE = 0.3
"""Rho of the simulated tables with dependence."""

N_INSTANCES, N_CELLS = 5_000, 2_000_000
"""Largest sample for the estimate: number of instances, and annotations times classes."""

LEAST_INSTANCES = 10
"""Least number of instances with several annotations for an estimate of rho."""

NEGLIGIBLE = 0.05
"""Estimates of rho up to this value do not justify the cost of subtypes. Independent annotators of
ten classes reach .04, because their confusion matrices are estimated."""

NEGLIGIBLE_ON_GRADES = 0.1
"""The same limit for ordered classes. There the moment responds less to dependence, and independent
annotators with 25 to 100 annotations each reach .04 to .08."""

N_SIMULATED, N_TABLES = 1_000, 3
"""Total number of simulated instances, and largest number of simulated tables."""

N_PARAMETERS = 5_000_000
"""Number of entries of all confusion matrices beyond which rho is not estimated."""

EM_STEPS = 3
"""Number of EM iterations on a simulated table. EM starts from the parameters of the simulation, so
a few iterations come close to convergence."""


LIKELY = 1e-4
"""Classes of an instance with at most this probability are left out of the moment."""

FEW_CLASSES = 5
"""Number of classes up to which computing all is faster than selecting the likely ones."""


DEFAULT_EM = ConfusionEM(ConfusionPrior("hierarchical", "auto", 0.7), "estimated", 100, 3e-5)
"""EM with the defaults of `DawidSkene`."""


@dataclass(frozen=True)
class Dependence:
    """Correlation of annotators' mistakes.

    Attributes
    ----------
    rho, se : float
        Estimate and its standard error.
    is_plausible : bool
        Whether mistakes may be correlated: the estimate is above `NEGLIGIBLE` (for ordered classes,
        `NEGLIGIBLE_ON_GRADES`) and above two standard errors, or there is no estimate.
    sample : GoldSample or None
        How the instances with gold were chosen, if there is gold.
    """

    rho: float
    se: float
    is_plausible: bool = True
    sample: GoldSample | None = None


UNKNOWN = Dependence(PRIOR_MEAN, PRIOR_SD, is_plausible=False)
"""Dependence of tables whose confusion matrices are not identified; subtypes do not help."""


def dependence_of(
    setting: float | str, votes: AllVotes, start: Any, known: KnownLabels | None = None
) -> Dependence:
    """Return the dependence as given, or estimated with a default `DawidSkene` without subtypes.

    Parameters
    ----------
    setting : float or "auto"
    votes : Votes
    start : array of shape (n, C)
        Posterior from which EM starts.
    known : KnownLabels, optional
        The user's gold. (The gold of ``votes`` may include labels that are only assumed.)
    """
    if setting != "auto":
        return Dependence(float(setting), 0.0)
    answers = votes.answers
    if not _is_measurable(answers):
        return UNKNOWN
    run = Fits(DEFAULT_EM, answers, answers.shards(), start, "dependence").run()
    return refine(estimate(answers, run, DEFAULT_EM), answers, OwnRemoved(run), known)


def estimate(votes: AllVotes, run: ConfusionRun, em: ConfusionEM) -> Dependence:
    """Estimate the dependence between annotators from a fit without subtypes, and the prior."""
    if not _is_measurable(votes):
        return UNKNOWN
    rho, se = measure(votes, run, em)
    precision, prior = 1.0 / max(se, 1e-6) ** 2, 1.0 / PRIOR_SD**2
    mean = (precision * rho + prior * PRIOR_MEAN) / (precision + prior)
    in_range = float(np.clip(mean, 0.0, LARGEST_RHO))
    negligible = NEGLIGIBLE_ON_GRADES if votes.ordered else NEGLIGIBLE
    is_plausible = rho > max(2.0 * se, negligible) or not np.isfinite(se)
    return Dependence(in_range, float((precision + prior) ** -0.5), is_plausible)


def measure(votes: AllVotes, run: ConfusionRun, em: ConfusionEM) -> tuple[float, float]:
    """Estimate rho and its standard error, which is infinite without any information about rho.

    The random numbers are always the same, so that the same table gives the same estimate.
    """
    rng = np.random.RandomState(0)
    if votes.is_weighted and votes.family is None:
        # Weights change the confidence of the posterior on purpose and must not affect rho.
        votes = votes.unweighted
        run = Fits(em, votes, votes.shards(), starting_shares(votes), "unweighted").run()
    sample = _sample(votes.answers, rng)
    if sample.n_instances < LEAST_INSTANCES:
        return 0.0, np.inf
    fitted, posterior = _Fitted.of(votes, sample, run)
    observed, variance = residual_correlation(sample, posterior, fitted.parameters.responses)
    if not np.isfinite(variance):
        return 0.0, np.inf
    n_tables = min(N_TABLES, -(-N_SIMULATED // sample.n_instances))
    simulated = [
        [fitted.simulated_correlation(sample, rho, em, rng) for rho in (0.0, REFERENCE)]
        for _ in range(n_tables)
    ]
    (at_zero, at_reference), variances = np.mean(simulated, axis=0).T
    slope = max(at_reference - at_zero, 1e-6) / REFERENCE
    rho = (observed - at_zero) / slope
    share = rho / REFERENCE  # The delta method: rho depends on all three moments.
    variance += ((1 - share) ** 2 * variances[0] + share**2 * variances[1]) / n_tables
    return float(rho), float(np.sqrt(variance) / slope)


def refine(
    found: Dependence,
    votes: AllVotes,
    log_joint: Callable[[Votes], FloatArray],
    known: KnownLabels | None,
) -> Dependence:
    """Fit rho to the gold labels, with the estimate as the mean of its prior.

    The prior is as wide as that of the estimate (`PRIOR_SD`), however certain the estimate is,
    because gold shows mistakes that annotations cannot show. The standard error is the root mean
    square distance from the mode under the posterior. Gold that was chosen by doubt may raise rho,
    not lower it (`manyhands.inference.gold_samples`).

    Parameters
    ----------
    found : Dependence
    votes : Votes
    log_joint : callable
        Takes votes of n instances and returns log p(class, annotations), shape (n, C), with
        parameters from which each instance is removed (with its known class, if it has gold).
    known : KnownLabels or None
    """
    sample = judged(known, votes, found.rho)
    if known is None or sample is None:
        return found
    given, gold = votes.select(sample.rows), known.codes[sample.rows]
    joint = log_joint(given)
    rows = np.arange(given.n_instances)

    def loss(rho: float) -> float:
        log_p = log_softmax(exponents(given, rho)[:, None] * joint, axis=1)
        return float(0.5 * ((rho - found.rho) / PRIOR_SD) ** 2 - log_p[rows, gold].sum())

    best = float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x)
    if sample.kind == "chosen" and best <= found.rho + 1e-3:
        return replace(found, sample=sample)
    grid = np.linspace(0.0, 1.0, 101)
    p = np.exp([loss(best) - loss(rho) for rho in grid])
    se = float(np.sqrt((p * (grid - best) ** 2).sum() / p.sum()))
    return replace(found, rho=best, se=se, sample=sample)


def judged(known: KnownLabels | None, votes: AllVotes, rho: float) -> GoldSample | None:
    """Return how gold was chosen, by a test on doubts that allow for mistakes correlated by rho."""
    if known is None:
        return None

    def doubts() -> Doubts:
        bare: Any = replace(cast(Any, votes.answers), gold=None)
        start = starting_shares(bare)
        joint = OwnRemoved(Fits(DEFAULT_EM, bare, bare.shards(), start, "without-gold").run())

        def doubt(part: Votes) -> FloatArray:
            part = replace(part.answers, gold=None)
            log_p = log_softmax(exponents(part, rho)[:, None] * joint(part), axis=1)
            return np.asarray(1.0 - np.exp(log_p.max(axis=1)))

        return doubt

    return sample_of(known, votes, doubts)


def exponents(votes: Votes, rho: float, others: int = 0) -> FloatArray:
    """Return the power of each instance's probabilities, shape (n,).

    Repeated annotations of one annotator count as one annotator, and so does an annotation with a
    weight above 1; the power is reduced by the factor by which they are repeated. Weights below 1
    count as fractions of an annotator. Abstentions do not count, because they carry little
    information about the class. ``others`` is a number of further annotators of every instance.
    """
    answers = votes.answers
    n = by_instance(answers)
    independent = n.copy()
    if len(answers.uneven):
        uneven = answers.select(answers.uneven)
        weight = np.ones(uneven.n_annotations) if uneven.weight is None else uneven.weight
        pairs = weight_of_pairs(uneven)
        share = weight / pairs * np.minimum(pairs, 1.0)
        independent[answers.uneven] = by_instance(replace(uneven, weight=None), share)
    per_annotator = np.divide(independent, n, out=np.ones_like(n), where=n > 0)
    return per_annotator / (1.0 + np.maximum(independent + others - 1.0, 0.0) * rho)


@dataclass(frozen=True)
class _Fitted:
    """A fit, with the counts that the instances outside the sample contribute to it.

    Attributes
    ----------
    parameters : ConfusionParams
        Parameters without abstentions and without subtypes.
    rest : EMCounts
        Expected counts of the other instances.
    vote_rest : EMCounts
        Their counts against the vote shares, from which the prior is made.
    strength : float
        Strength of the prior.
    correction : RareClassCorrection or None
        Correction of the prior's centre, from the other instances.
    """

    parameters: ConfusionParams
    rest: EMCounts
    vote_rest: EMCounts
    strength: float
    correction: RareClassCorrection | None

    @classmethod
    def of(cls, votes: AllVotes, sample: Votes, run: ConfusionRun) -> tuple[_Fitted, FloatArray]:
        """Return the fit without the sample's counts, and the sample's posterior."""
        parameters, responses = run.parameters, run.parameters.responses
        if votes.n_responses > votes.n_classes or not isinstance(responses, np.ndarray):
            responses = normalise_rows(responses[:, :, : votes.n_classes])
            parameters = ConfusionParams(parameters.prior, responses)
        posterior = parameters.states(sample)  # Classes: without subtypes, and without gold.
        counted = (run.counts, run.vote_counts)
        answered, voted = (
            EMCounts(counts.prior, counts.confusion[:, :, : votes.n_classes]) for counts in counted
        )
        rest = _minus(answered, em_counts(sample, posterior))
        vote_rest = _minus(voted, count_votes(sample))
        correction = run.correction
        if correction is not None:
            own = AgreementCounts.of_shard(sample)
            correction = correction.of_counts(correction.crowd.counts.without(own))
        return cls(parameters, rest, vote_rest, run.strength, correction), posterior

    @cached_property
    def cumulative(self) -> FloatArray:
        """Cumulative probabilities of all responses except the last, shape (K - 1, R * C)."""
        cumulative = self.parameters.responses.transpose(2, 0, 1).cumsum(axis=0)
        return cumulative[:-1].reshape(len(cumulative) - 1, -1)

    def simulated_correlation(
        self, sample: Votes, rho: float, em: ConfusionEM, rng: np.random.RandomState
    ) -> tuple[float, float]:
        """Draw the sample's annotations, fit them, and return their `residual_correlation`."""
        drawn = self.draw(sample, rho, rng)
        parameters = self._fitted_to(drawn, em)
        return residual_correlation(drawn, parameters.states(drawn), parameters.responses)

    def _fitted_to(self, drawn: Votes, em: ConfusionEM) -> ConfusionParams:
        """Return the parameters after a few steps of EM with the drawn annotations."""
        prior = replace(em.prior, strength=self.strength)
        vote_counts = self.vote_rest + count_votes(drawn)
        correction = self.correction
        if correction is not None:
            agreement = correction.crowd.counts + AgreementCounts.of_shard(drawn)
            correction = correction.of_counts(agreement)
        pseudo_counts, _ = prior.pseudo_counts(
            vote_counts.confusion, drawn.n_classes, correction, ordered=drawn.ordered
        )
        pseudo_counts = with_history(pseudo_counts, drawn, vote_counts)
        parameters = self.parameters
        shares = parameters.prior if em.class_prior == "uniform" else None
        held = em.held(drawn, vote_counts)
        for _ in range(EM_STEPS):
            counts = self.rest + expect_and_count(drawn, *parameters.sent)
            parameters = m_step(counts, pseudo_counts, shares, held)
        return parameters

    def draw(self, sample: Votes, rho: float, rng: np.random.RandomState) -> Votes:
        """Draw annotations with the same pattern; those of an instance are correlated by ``rho``.

        Each annotator's answer is the quantile of their own distribution at a random number. With
        probability sqrt(rho) it is a number that all annotators of the instance share.
        """
        prior = self.parameters.prior.cumsum()
        classes = np.searchsorted(prior, rng.random_sample(sample.n_instances) * prior[-1])
        shared = rng.random_sample(sample.n_instances)[sample.instance]
        own = rng.random_sample(sample.n_annotations)
        follows = rng.random_sample(sample.n_annotations) < np.sqrt(rho)
        number = np.where(follows, shared, own)
        row = sample.annotator * np.int64(len(prior)) + classes[sample.instance]
        response = np.zeros_like(sample.response)
        for bounds in self.cumulative:
            response += bounds[row] < number
        return replace(sample, response=response)


def _minus(counts: EMCounts, part: EMCounts) -> EMCounts:
    """Return the counts minus a part of them; never negative."""
    return EMCounts(
        np.maximum(counts.prior - part.prior, 0.0),
        np.maximum(counts.confusion - part.confusion, 0.0),
    )


def _sample(votes: AllVotes, rng: np.random.RandomState) -> Votes:
    """Draw instances with several annotations; these are sorted by annotator."""
    marks = np.empty(votes.n_instances, dtype=bool)
    fill_rows(marks, votes.shards(), _has_several)
    several = np.flatnonzero(marks)
    per_instance = max(votes.n_annotations / max(votes.n_instances, 1), 1.0) * votes.n_classes
    n = min(N_INSTANCES, int(N_CELLS / per_instance) + 1)
    if len(several) > n:
        several = np.sort(rng.choice(several, n, replace=False))
    sample = replace(votes.select(several), gold=None)
    order = _order(sample)
    return replace(
        sample,
        annotator=sample.annotator[order],
        response=sample.response[order],
        weight=None if sample.weight is None else sample.weight[order],
    )


def _order(votes: Votes) -> IntArray:
    """Return the order of the annotations by instance, family, annotator and response."""
    place = votes.annotator
    if votes.family is not None:
        place = np.argsort(np.argsort(votes.family, kind="stable"))[place]
    code = (votes.instance * np.int64(votes.n_annotators) + place) * votes.n_classes
    return np.argsort(code + votes.response, kind="stable")


def _has_several(shard: Votes) -> AnyArray:
    return np.diff(shard.start) > 1


def _is_measurable(votes: AllVotes) -> bool:
    """Return whether rho can be estimated: enough annotations, and not too many parameters."""
    if votes.n_annotators * votes.n_classes**2 > N_PARAMETERS:
        return False
    n_rows = int(np.count_nonzero(votes.total(_given))) * votes.n_classes
    return votes.n_annotations >= n_rows


def _given(votes: Votes) -> AnyArray:
    return np.bincount(votes.annotator, minlength=votes.n_annotators)


# -- residuals -----------------------------------------------------------------------------------


def residual_correlation(
    votes: Votes, posterior: FloatArray, responses: FloatArray
) -> tuple[float, float]:
    """Return the correlation of two annotators' residuals on the same instance, and its variance.

    Let e_r be the one-hot response of annotator r minus its probabilities in class c, and s_r their
    standard deviations. With sums over pairs of annotators of an instance i (from different
    families, because weights already allow for the mistakes within one),

        m = sum_ic q_ic sum_rs e_r . e_s  /  sum_ic q_ic sum_rs s_r . s_s.

    Its expectation is 0 if the model and its parameters are right and the annotators independent.

    Parameters
    ----------
    votes : Votes
        Votes without abstentions; the annotations of an instance are sorted by family and
        annotator.
    posterior : array of shape (n, C)
    responses : array of shape (R, C, C)
        Indexed [annotator, true, given].
    """
    likely = posterior > LIKELY
    pairs = _pairs(votes, likely, responses)
    first = _first_of_families(votes)
    if len(first) <= votes.n_annotations:
        several = np.flatnonzero(np.diff(first) > 1)
        families = replace(votes, start=first, gold=None, ones=None).select(several)
        instance = votes.instance[first[several]]
        within = _pairs(families, likely[instance], responses)
        for values, inside in zip(pairs, within, strict=True):
            np.subtract.at(values, instance, inside)
    q = np.where(likely, posterior, 0.0)
    product, scale = (np.einsum("ic,ic->i", q, values) for values in pairs)
    total = float(scale.sum())
    if total < 1e-9:  # The model excludes mistakes.
        return 0.0, np.inf
    value = float(product.sum()) / total
    return value, float(((product - value * scale) ** 2).sum()) / total**2


def _first_of_families(votes: Votes) -> IntArray:
    """Return where each family's annotations in an instance begin, and the number of all."""
    family = votes.annotator if votes.family is None else votes.family[votes.annotator]
    instance = votes.instance
    is_new = (family[1:] != family[:-1]) | (instance[1:] != instance[:-1])
    return np.concatenate([[0], np.flatnonzero(is_new) + 1, [votes.n_annotations]])


def _pairs(votes: Votes, likely: BoolArray, responses: FloatArray) -> FloatArray:
    """Return the sums of e_r . e_s and s_r . s_s over pairs in an instance, shape (2, n, C).

    A sum over pairs is the square of the sum minus the squares of the terms, which are |e|^2 =
    1 - 2 p(response) + |p|^2 and |s|^2 = 1 - |p|^2 for an annotation. With many classes, only
    the ``likely`` ones (n, C) are computed, and the others are 0.
    """
    r, c, k = responses.shape
    if c <= FEW_CLASSES:
        return _pairs_of_all(votes, responses)
    instance, label = np.nonzero(likely)
    chosen = replace(votes, gold=None).select(instance)
    column = chosen.annotator * np.int64(c) + np.repeat(label, np.diff(chosen.start))
    pairs = np.zeros((2, *likely.shape))
    pairs[:, instance, label] = _pairs_of_one(chosen, column, responses.reshape(r * c, k))
    return pairs


def _pairs_of_all(votes: Votes, responses: FloatArray) -> FloatArray:
    """Return the sums over pairs in all classes, by two matrix products for all at once."""
    r, c, k = responses.shape
    vectors = np.empty((r, 2, c, k))
    vectors[:, 0] = responses
    vectors[:, 1] = np.sqrt(responses * (1.0 - responses))
    sums = _rows(votes, votes.annotator, r) @ vectors.reshape(r, -1)
    one_hot = np.zeros((k, 2, c, k))
    one_hot[:, 0] = np.eye(k)[:, None]
    sums -= weighted_votes(votes) @ one_hot.reshape(k, -1)
    own = np.repeat(_squares(vectors)[:, None], k, axis=1)
    own[:, :, 0] += 1.0 - 2.0 * responses.transpose(0, 2, 1)
    alone = votes if votes.weight is None else replace(votes, weight=votes.weight**2)
    own_sums = np.asarray(alone.matrix @ own.reshape(r * k, -1)).reshape(-1, 2, c)
    return np.asarray((_squares(sums.reshape(-1, 2, c, k)) - own_sums).transpose(1, 0, 2))


def _squares(vectors: FloatArray) -> FloatArray:
    """Return the squared lengths along the last axis."""
    *shape, k = vectors.shape
    return (np.square(vectors).reshape(-1, k) @ np.ones(k)).reshape(shape)


def _pairs_of_one(votes: Votes, row: IntArray, p: FloatArray) -> FloatArray:
    """Return the sums over pairs, (2, n), for annotations whose probabilities are ``p[row]``."""
    given = _rows(votes, row, len(p))
    residual = weighted_votes(votes) - given @ p
    spread = given @ np.sqrt(p * (1.0 - p))
    power = np.einsum("rk,rk->r", p, p)
    hits = p[row, votes.response]
    if votes.weight is not None:
        hits = hits * votes.weight
        given = _rows(replace(votes, weight=votes.weight**2), row, len(p))
    return np.stack(
        [
            np.einsum("ik,ik->i", residual, residual)
            - given @ (1.0 + power)
            + 2.0 * by_instance(votes, hits),
            np.einsum("ik,ik->i", spread, spread) - given @ (1.0 - power),
        ]
    )


def _rows(votes: Votes, row: IntArray, n_rows: int) -> Any:
    """Return a sparse matrix that sums weighted rows of a table over an instance's annotations."""
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    return csr_array((weight, row, votes.start), shape=(votes.n_instances, n_rows))
