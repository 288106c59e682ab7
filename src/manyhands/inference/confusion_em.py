"""EM fits of Dawid & Skene's model, and the choice of prior, subtypes and rare-class correction.

.. [1] M. J. Beal. Variational algorithms for approximate Bayesian inference. PhD thesis, University
   College London, 2003, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from manyhands.inference.class_shares import WEIGHT, AgreementCounts, OneCoin, RareClassCorrection
from manyhands.inference.confusion_prior import (
    ConfusionPrior,
    log_dirichlet_multinomial,
    with_history,
)
from manyhands.inference.confusions import (
    ConfusionParams,
    DawidSkeneModel,
    EMCounts,
    among_subtypes,
    log_likelihoods,
    log_sum_subtypes,
    row_max,
    starting_counts,
    total_em_counts,
)
from manyhands.inference.em import EMResult, run_em
from manyhands.inference.probability import (
    Table,
    by_response,
    map_rows,
    normalise_rows,
    sum_of_product,
    sum_rows,
)
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    summed_shares,
    uniform_prior,
    vote_shares,
    weight_of_pairs,
)
from manyhands.typing import FloatArray

EVIDENCE_MARGIN = 5.0
"""Nats of evidence by which a fit with a corrected prior must exceed the fit without correction."""

CLASS_PRIOR_WEIGHT = 0.1
"""Pseudo-instances per instance that shrink the estimated shares of ordered classes to the vote
shares.

If annotators of a scale agree only a little, EM would otherwise give all instances one grade (class
collapse). On nominal classes the shrinkage only harms rare classes, so it is not used there."""


@dataclass(frozen=True)
class ConfusionRun:
    """Result of EM.

    Attributes
    ----------
    parameters : ConfusionParams
    counts : EMCounts
        Expected counts under ``parameters``.
    vote_counts : EMCounts
        Counts against the vote shares, from which the prior is made.
    pseudo_counts : array of shape (R or 1, S, K)
        Pseudo-counts of the prior and of the annotators' histories.
    strength : float
        Sum of the prior's pseudo-counts per row; 0 without a prior.
    history : list of float
        Objective after each E-step that was kept.
    evidence : float
        Lower bound on the log evidence, minus a penalty for the prior's own parameters; 0 without
        a prior.
    learns_prior : bool
        Whether the prior of the classes was estimated.
    correction : RareClassCorrection or None
        Correction of the prior's centre for rare classes, if it was needed.
    held : array of shape (C,) or None
        Pseudo-instances of the classes (`ConfusionEM.held`).
    """

    parameters: ConfusionParams
    counts: EMCounts
    vote_counts: EMCounts
    pseudo_counts: Table
    strength: float
    history: list[float]
    evidence: float = 0.0
    learns_prior: bool = True
    correction: RareClassCorrection | None = None
    held: FloatArray | None = None


@dataclass(frozen=True)
class ConfusionEM:
    """Settings of EM.

    Attributes
    ----------
    prior : ConfusionPrior
    class_prior : {"estimated", "uniform"}
    max_iter : int
    tol : float
        Stop when the objective per annotation grows by less.
    hard : bool
        Count each instance in its most probable state only.
    accelerate : bool
        Over-relax the steps: each is longer than EM's by a factor that grows while the objective
        rises. If it falls, the factor is reset to 1 and the step repeated from the same parameters.
    """

    prior: ConfusionPrior
    class_prior: str
    max_iter: int
    tol: float
    hard: bool = False
    accelerate: bool = True

    def run(
        self,
        votes: AllVotes,
        shards: Iterable[Votes],
        start: Any,
        n_subtypes: int = 1,
        *,
        stage: str | None = None,
        correction: RareClassCorrection | None = None,
        counted: tuple[EMCounts, Callable[[], EMCounts]] | None = None,
        sufficient: float = np.inf,
    ) -> ConfusionRun:
        """Run EM from a posterior over the classes, shape (n, C).

        Parameters
        ----------
        votes : Votes
        shards : Shards
        start : array of shape (n, C), or function from a shard to its rows
        n_subtypes : int
        stage : str, optional
            Name of the state in the checkpoint. Default: by the number of subtypes.
        correction : RareClassCorrection, optional
            Correction of the prior's centre.
        counted : tuple, optional
            Result of `starting_counts` for these arguments, if it is already known.
        sufficient : float
            Evidence at which EM may stop, for a fit that only needs to show that it reaches it.
        """
        if counted is None:
            counted = self.counted(votes, shards, start, n_subtypes)
        vote_counts, first = counted
        pseudo_counts, strength = self.prior.pseudo_counts(
            vote_counts.confusion, votes.n_classes, correction, ordered=votes.ordered
        )
        pseudo_counts = by_response(with_history(pseudo_counts, votes, vote_counts))
        held = self.held(votes, vote_counts)
        model = DawidSkeneModel(
            shards,
            pseudo_counts,
            uniform_prior(votes) if self.class_prior == "uniform" else None,
            held,
            hard=self.hard,
            over_relaxes=self.accelerate and not self.hard,
        )

        def run_of(found: EMResult[ConfusionParams, EMCounts]) -> ConfusionRun:
            run = ConfusionRun(
                found.parameters,
                found.counts,
                vote_counts,
                pseudo_counts,
                strength,
                found.history,
                learns_prior=self.class_prior == "estimated",
                correction=correction,
                held=held,
            )
            return replace(run, evidence=self._evidence(votes, run)) if strength else run

        def suffices(found: EMResult[ConfusionParams, EMCounts]) -> bool:
            # The evidence is a lower bound at every iteration, not only at convergence.
            return run_of(found).evidence > sufficient

        found = run_em(
            model,
            lambda: model.maximise(first()),
            max_iter=self.max_iter,
            enough=self.tol * votes.total_weight,
            checkpoint=votes.checkpoint,
            stage=stage or stage_of(n_subtypes),
            suffices=suffices if np.isfinite(sufficient) else None,
        )
        return run_of(found)

    def held(self, votes: AllVotes, vote_counts: EMCounts) -> FloatArray | None:
        """Return pseudo-instances that shrink class shares to the vote shares, (C,), or None."""
        if not votes.ordered or self.class_prior != "estimated":
            return None
        return CLASS_PRIOR_WEIGHT * vote_counts.prior.reshape(votes.n_classes, -1).sum(axis=1)

    def counted(
        self, votes: AllVotes, shards: Iterable[Votes], start: Any, n_subtypes: int = 1
    ) -> tuple[EMCounts, Callable[[], EMCounts]]:
        """Return the counts against the vote shares, and a function for the first counts of EM."""
        split = partial(split_into_subtypes, n_subtypes=n_subtypes, empty=_empty(votes, n_subtypes))
        return starting_counts(votes, shards, start, split)

    def _evidence(self, votes: AllVotes, run: ConfusionRun) -> float:
        """Return a lower bound on the log evidence, with confusion matrices integrated out.

        The variational Bayes bound at EM's posterior [1]_: E log p(states) + entropy of the
        posterior (both are the log likelihood minus E log p(responses)) + log Dirichlet-multinomial
        of the expected counts. Each other fitted parameter (the shares of the states and the centre
        of the prior) costs half the log of the number of annotations, as in the BIC.
        """
        counts, pseudo_counts = run.counts, run.pseudo_counts
        n_states, n_responses = pseudo_counts.shape[-2:]
        log_responses = run.parameters.sent[1]
        states = counts.log_likelihood - sum_rows(sum_of_product, counts.confusion, log_responses)
        bound = states + sum_rows(log_dirichlet_multinomial, counts.confusion, pseudo_counts)
        n_fitted = n_states
        if self.prior.centre != "diagonal":
            n_fitted += n_states * (n_responses - 1)
        return float(bound - 0.5 * np.log(votes.total_weight) * n_fitted)


class Fits:
    """Fits of one table with several numbers of subtypes and one centre of their prior.

    If a class is much rarer than its votes suggest (`OneCoin.is_skewed`), two centres are compared
    by evidence: the one from votes counted against the vote shares, and one corrected for the
    mistakes among the votes for rare classes. A fit with the full correction safeguards the choice:
    unless its evidence is greater, too, the class is hard rather than rare, and there is no
    correction. Corrected fits start from the class shares that the correction implies.

    There is no correction for other centres than the hierarchical one, without a prior, or with
    given class shares.

    Parameters
    ----------
    em : ConfusionEM
    votes : Votes
    shards : Shards
    start : array of shape (n, C), or function from a shard to its rows
        Vote shares, or another posterior from which all fits start.
    stage : str, optional
        Name of the states in the checkpoint. Default: by the number of subtypes.
    """

    def __init__(
        self,
        em: ConfusionEM,
        votes: AllVotes,
        shards: Iterable[Votes],
        start: Any,
        stage: str | None = None,
    ) -> None:
        self.em, self.votes, self.shards, self.start = em, votes, shards, start
        self.stage = stage or stage_of(1)
        self._runs: dict[int, ConfusionRun] = {}

    def run(self, n_subtypes: int = 1) -> ConfusionRun:
        """Return the fit with a number of subtypes; earlier fits are reused."""
        if n_subtypes not in self._runs:
            if n_subtypes == 1:
                self._runs[1] = self._without_subtypes()
            else:
                self._runs[n_subtypes] = self._with_subtypes(n_subtypes)
        return self._runs[n_subtypes]

    @cached_property
    def _counted(self) -> tuple[EMCounts, Callable[[], EMCounts]]:
        """Counts against the vote shares, computed once for all fits without subtypes."""
        return self.em.counted(self.votes, self.shards, self.start)

    @cached_property
    def _crowd(self) -> OneCoin | None:
        """The model of the crowd on which the correction rests; None without a correction."""
        em = self.em
        if em.prior.centre != "hierarchical" or not em.prior.is_used:
            return None
        if em.class_prior != "estimated" or em.hard:
            return None
        crowd = OneCoin(AgreementCounts.of(self.votes, self._counted[0]))
        return crowd if crowd.is_skewed else None

    def _without_subtypes(self) -> ConfusionRun:
        first = partial(
            self.em.run,
            *(self.votes, self.shards, self.start),
            stage=self.stage,
            counted=self._counted,
        )
        if self._crowd is None:
            return first()
        if self.votes.is_weighted and self.votes.family is None:
            correction = self._without_weights()
            return first() if correction is None else self._corrected(correction, "corrected")
        usual = first()
        enough = usual.evidence + EVIDENCE_MARGIN
        # The strength of the prior is that of the uncorrected fit, which has the same counts.
        whole = RareClassCorrection(self._crowd, 1.0)
        guard = self._corrected(whole, "guard", usual.strength, sufficient=enough)
        if guard.evidence <= enough:
            return usual
        half = self._corrected(
            RareClassCorrection(self._crowd, WEIGHT), "corrected", usual.strength
        )
        return half if half.evidence > enough else usual

    def _without_weights(self) -> RareClassCorrection | None:
        """Return the correction that is chosen if all annotations have weight 1.

        A user's weights act as repetitions. The evidence would take repeated mistakes for the
        shared mistakes that a hard class causes.
        """
        votes, stage = self.votes.unweighted, f"{self.stage}-unweighted"
        return Fits(self.em, votes, votes.shards(), self.start, stage).run().correction

    def _corrected(
        self,
        correction: RareClassCorrection,
        name: str,
        strength: float | str | None = None,
        **options: Any,
    ) -> ConfusionRun:
        em = self._of_strength(strength)
        start = self._start(em, correction)
        counted = self._counted[0], partial(total_em_counts, self.shards, start)
        return em.run(
            *(self.votes, self.shards, start),
            stage=f"{self.stage}-{name}",
            correction=correction,
            counted=counted,
            **options,
        )

    def _with_subtypes(self, n_subtypes: int) -> ConfusionRun:
        start = self.start
        correction = None if self._crowd is None else self.run().correction
        if correction is not None:
            start = self._start(self._of_strength(self.run().strength), correction)
        return self.em.run(self.votes, self.shards, start, n_subtypes, correction=correction)

    def _of_strength(self, strength: float | str | None) -> ConfusionEM:
        if strength is None:
            return self.em
        return replace(self.em, prior=replace(self.em.prior, strength=strength))

    def _start(self, em: ConfusionEM, correction: RareClassCorrection) -> Any:
        """Return a function from a shard to its posterior under the centre of the prior."""
        vote_counts, _ = self._counted
        pseudo_counts, _ = em.prior.pseudo_counts(
            vote_counts.confusion, self.votes.n_classes, correction, ordered=self.votes.ordered
        )
        responses = map_rows(normalise_rows, with_history(pseudo_counts, self.votes, vote_counts))
        parameters = ConfusionParams(correction.crowd.class_shares, by_response(responses))
        return partial(posterior_of, parameters=parameters)


def stage_of(n_subtypes: int) -> str:
    """Return the name of a fit's state in the checkpoint."""
    return f"subtypes-{n_subtypes}"


def posterior_of(shard: Votes, parameters: ConfusionParams) -> FloatArray:
    """Return the posterior of a shard under the published model, shape (n, C)."""
    return parameters.posterior(shard)


class OwnRemoved:
    """Log p(class, annotations) with parameters from which the instance itself is removed.

    An annotation with probability p of state c has added p to N = n_rcl, the annotator's expected
    counts and pseudo-counts. To remove it, log(N - p) is approximated by its chord between p = 0
    and
    1, log N + p (log(N - 1) - log N), so that two matrix products serve all annotations. Weighted
    and repeated annotations have added other amounts, so their logarithms are computed exactly.
    Without a prior nothing is removed, because an annotator's only annotation of a kind would then
    rule out classes.
    """

    def __init__(self, run: ConfusionRun) -> None:
        self.run = run
        if run.strength:
            given = (run.counts.confusion, run.pseudo_counts)
            self.with_own = map_rows(_with_own, *given)
            self.change = map_rows(_change_without_one, *given, self.with_own)

    @cached_property
    def exact(self) -> tuple[Table, Table, Table, Table]:
        """Counts of cells, what is left of them at least, and the same of their rows.

        Most tables have no weighted or repeated annotations and do not need them.
        """
        pseudo_counts = self.run.pseudo_counts
        counts = map_rows(np.add, self.run.counts.confusion, pseudo_counts)
        return (
            counts,
            map_rows(np.minimum, counts, pseudo_counts),
            map_rows(_row_sums, counts),
            map_rows(_row_floor, counts, pseudo_counts),
        )

    def __call__(self, shard: Votes) -> FloatArray:
        """Return the log probabilities of a shard, shape (n, C)."""
        parameters = self.run.parameters
        if not self.run.strength:
            return parameters.log_joint(shard, np.ones(shard.n_instances))
        p = parameters.states(shard)
        joint = log_likelihoods(shard, self.change)
        joint *= p
        joint += log_likelihoods(shard, self.with_own)
        if len(shard.uneven):
            joint[shard.uneven] = self._each(shard.select(shard.uneven), p[shard.uneven])
        if self.run.learns_prior:
            n = self.run.counts.prior
            # The only instance of a class does not lose the class.
            rest = np.maximum(n - p, 0.5 * np.minimum(n, 1.0))
            if self.run.held is not None:
                held = among_subtypes(self.run.held, n)
                rest, n = rest + held, n + held
            joint += np.log(rest, out=np.full_like(rest, -np.inf), where=n > 1e-9)
        else:
            joint += parameters.sent[0]
        return log_sum_subtypes(joint, shard.n_classes)

    def _each(self, shard: Votes, states: FloatArray) -> FloatArray:
        """Sum the exactly computed logarithms of the annotations, shape (n, S)."""
        weight = np.ones(shard.n_annotations) if shard.weight is None else shard.weight
        p = states[shard.instance]
        counts, floor, rows, row_floor = self.exact
        given = counts[shard.annotator, :, shard.response]
        given = given - weight_of_pairs(shard, same_class=True)[:, None] * p
        row = rows[shard.annotator, :, 0] - weight_of_pairs(shard)[:, None] * p
        given = np.maximum(given, floor[shard.annotator, :, shard.response])
        row = np.maximum(row, row_floor[shard.annotator, :, 0])
        terms = np.log(given) - np.log(row)
        by_annotation = (weight, np.arange(len(weight)), shard.start)
        shape = (shard.n_instances, shard.n_annotations)
        return np.asarray(csr_array(by_annotation, shape=shape) @ terms)


def _row_sums(counts: FloatArray) -> FloatArray:
    return np.asarray(counts.sum(axis=2, keepdims=True))


def _row_floor(counts: FloatArray, pseudo_counts: FloatArray) -> FloatArray:
    return np.minimum(_row_sums(counts), _row_sums(pseudo_counts))


def _with_own(counts: FloatArray, pseudo_counts: FloatArray) -> FloatArray:
    """Return the log probabilities of the responses, (R, S, K)."""
    total = counts + pseudo_counts
    return np.asarray(np.log(total / _row_sums(total)))


def _change_without_one(
    counts: FloatArray, pseudo_counts: FloatArray, with_own: FloatArray
) -> FloatArray:
    """Return the change of the log probabilities if one annotation is taken out of its counts."""
    total = counts + pseudo_counts
    row = np.maximum(_row_sums(total) - 1.0, _row_floor(total, pseudo_counts))
    rest = np.maximum(total - 1.0, np.minimum(total, pseudo_counts))
    return np.asarray(np.log(rest / row) - with_own)


def _empty(votes: Any, n_subtypes: int) -> FloatArray | None:
    """Return the mean vote shares (C,), used for instances that only have abstentions."""
    if n_subtypes == 1 or votes.n_responses == votes.n_classes:
        return None  # There are no subtypes, or no such instances.
    return normalise_rows(replace(votes.answers, gold=None).total(summed_shares))


def split_into_subtypes(
    votes: Votes, posterior: FloatArray, n_subtypes: int, empty: FloatArray | None = None
) -> FloatArray:
    """Split each class's mass among its subtypes by how much the votes disagree, shape (n, S).

    ``empty`` (C,) is used as the vote shares of an instance without votes.
    """
    if n_subtypes == 1:
        return posterior
    # Gold is left out, because it shows the class, not how clear the instance is.
    answers = replace(votes.answers, gold=None)
    doubt = (1.0 - row_max(vote_shares(answers, empty=empty))) / (1.0 - 1.0 / votes.n_classes)
    # Hat functions around evenly spaced degrees of disagreement; the shares are never 0.
    centres = np.linspace(0.0, 1.0, n_subtypes)
    hats = np.maximum(0.0, 1.0 - np.abs(doubt[:, None] - centres) * (n_subtypes - 1))
    shares = 0.8 * hats + 0.2 / n_subtypes
    return (posterior[:, :, None] * shares[:, None, :]).reshape(len(posterior), -1)
