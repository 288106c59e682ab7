"""Dawid & Skene (1979): expectation maximisation for annotators' confusion matrices.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
   the EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import expit, gammaln, logit
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.annotations import AnnotationTable
from manyhands.inference.base import COUNT, NON_NEGATIVE, BaseAggregator
from manyhands.inference.em import EMCounts, e_step, em_counts, expect_and_count, total_em_counts
from manyhands.inference.probability import floored_log, has_settled, log_dirichlet, normalise_rows
from manyhands.inference.vote_sums import clamp_to_gold, vote_shares
from manyhands.inference.votes import Votes, fill_rows, make_votes, sum_over_shards
from manyhands.typing import FloatArray, IntArray

STRENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Candidates of ``prior_strength="auto"``. Counts against a posterior look more alike than the
annotators are. Without an upper limit, their evidence would let the prior swamp annotators with few
labels."""

SKILL_STRENGTH = 5.0
"""Pseudo-annotations with the crowd's accuracy, added to each annotator's own annotations."""


@dataclass(frozen=True)
class Model:
    """Parameters per state, where a state is a class or a subtype of a class.

    Attributes
    ----------
    prior : array of shape (S,)
    responses : array of shape (R, S, K)
        Indexed [annotator, state, response]; rows sum to 1.
    history : list of float
        Objective after each E-step.
    evidence : float
        Lower bound on the log evidence, minus a penalty for the prior's own parameters.
    """

    prior: FloatArray
    responses: FloatArray
    history: list[float]
    evidence: float

    def posterior(self, shard: Votes) -> FloatArray:
        """Posterior over the classes, shape (n, C)."""
        parameters = floored_log(self.prior), floored_log(self.responses)
        posterior = _sum_subtypes(e_step(shard, *parameters)[0], shard.n_classes)
        return clamp_to_gold(shard, posterior)  # Sums over subtypes have rounding errors.


class DawidSkene(BaseAggregator):
    """Infer true classes and one confusion matrix per annotator by EM, in log space.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the (penalised) log likelihood per annotation grows by less.
    confusion_prior : {"hierarchical", "pooled", "diagonal", None}, default="hierarchical"
        Centre of a Dirichlet prior on each confusion row, from the counts against the vote shares.
        "hierarchical": the annotator's own accuracy (shrunk to the crowd's, and adjusted for how
        easy the class is), with mistakes distributed like the crowd's. "pooled": the confusion of
        all annotators together. "diagonal": correct with probability ``diagonal``. None is maximum
        likelihood, as published, which is worse than majority vote when each annotator gives few
        labels.
    prior_strength : float or "auto", default="auto"
        Pseudo-annotations of the prior in each row; "auto" chooses the one of 1, 2, 5, 10, 20 with
        the greatest evidence (empirical Bayes).
    diagonal : float in (0, 1), default=0.7
        Probability of a correct annotation at the centre of the "diagonal" prior.
    class_prior : {"estimated", "uniform"}, default="estimated"
    n_subtypes : int or "auto", default="auto"
        Kinds of instances within a class, each with its own confusions. 1 is the published model.
        2 separates clear instances from those that mislead many annotators at once, whose mistakes
        would otherwise count as independent. "auto" chooses 1 or 2, whichever has the greater
        evidence (1 without a prior).
    em : {"soft", "hard"}, default="soft"
        Count each instance in all classes by their probabilities, or only in the most probable one
        (classification EM: faster, but it starves rare classes if the class prior is estimated).
    abstentions : {"model", "ignore"}, default="model"
        Whether an annotator's abstentions (`AnnotationTable.abstentions`) are informative: with
        "model" an abstention is one more response with its own probability in each class.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    log_likelihood_ : array of shape (n_iter_,)
        Log likelihood plus log prior after each E-step; it never decreases. With ``em="hard"``, the
        joint likelihood of the annotations and the chosen classes.
    n_subtypes_ : int
        Number of subtypes that was chosen.
    prior_strength_ : float
        Strength that was chosen; 0 without a prior.
    evidence_ : dict {n_subtypes: float}
        Log evidence (nats) of each fitted model, as compared by "auto"; empty without a prior.
    abstention_ : array of shape (n_annotators, n_classes)
        Probability of abstaining on an instance of each class; 0 unless modelled.

    Notes
    -----
    EM starts from the vote shares. The M-step adds the prior's pseudo-counts to the expected
    counts, so EM maximises the likelihood penalised by sum(pseudo-counts * log p). (In the evidence
    the pseudo-counts are the parameters of the Dirichlet itself.)

    If no instance has two annotations, good and bad annotators cannot be told apart. The labels are
    then the annotations, with a `NotIdentifiableWarning`.

    References
    ----------
    Dawid & Skene (1979), JRSS C 28(1), Eq. 2.3-2.5. Subtypes: Li, Rubinstein & Cohn (ICML 2019),
    section 4; fitted here by EM and chosen by evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import DawidSkene
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> DawidSkene().fit_predict(A)
    array([0, 1, 0, 1])
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "confusion_prior": [StrOptions({"hierarchical", "pooled", "diagonal"}), None],
        "prior_strength": [NON_NEGATIVE, StrOptions({"auto"})],
        "diagonal": [Interval(Real, 0, 1, closed="neither")],
        "class_prior": [StrOptions({"estimated", "uniform"})],
        "n_subtypes": [COUNT, StrOptions({"auto"})],
        "em": [StrOptions({"soft", "hard"})],
        "abstentions": [StrOptions({"model", "ignore"})],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        confusion_prior: str | None = "hierarchical",
        prior_strength: float | str = "auto",
        diagonal: float = 0.7,
        class_prior: str = "estimated",
        n_subtypes: int | str = "auto",
        em: str = "soft",
        abstentions: str = "model",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.confusion_prior = confusion_prior
        self.prior_strength = prior_strength
        self.diagonal = diagonal
        self.class_prior = class_prior
        self.n_subtypes = n_subtypes
        self.em = em
        self.abstentions = abstentions
        self.ties = ties
        self.random_state = random_state

    def _votes(self, table: AnnotationTable, gold: IntArray | None = None) -> Votes:
        return make_votes(table, gold=gold, abstentions=self.abstentions == "model")

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        has_prior = self.confusion_prior is not None and self.prior_strength != 0
        choices = (1, 2) if has_prior else (1,)
        if self.n_subtypes != "auto":
            choices = (int(self.n_subtypes),)
        shards = votes.shards()
        models = {n: self._run_em(votes, shards, start, n) for n in choices}
        evidence = {n: model.evidence for n, (model, _) in models.items()}
        self.n_subtypes_ = max(evidence, key=lambda n: (evidence[n], -n))
        self.evidence_ = evidence if has_prior else {}
        self._model, self.prior_strength_ = models[self.n_subtypes_]
        self.posterior_ = start  # Overwritten, to save the memory of a second array.
        fill_rows(self.posterior_, shards, self._model.posterior)
        self._set_class_attributes(votes.n_classes)

    def _set_class_attributes(self, n_classes: int) -> None:
        """Set the fitted attributes, with the model's states summed up by class."""
        by_class = self._model.prior.reshape(n_classes, self.n_subtypes_)
        self.class_prior_ = by_class.sum(axis=1)
        r, _, k = self._model.responses.shape
        states = self._model.responses.reshape(r, *by_class.shape, k)
        responses = np.einsum("cm,rcmk->rck", normalise_rows(by_class), states)
        self.confusion_ = normalise_rows(responses[:, :, :n_classes])
        self.abstention_ = responses[:, :, n_classes:].sum(axis=2)
        self.log_likelihood_ = np.array(self._model.history)
        self.n_iter_ = len(self._model.history)

    def _posterior(self, votes: Votes) -> FloatArray:
        posterior = np.empty((votes.n_instances, votes.n_classes))
        fill_rows(posterior, votes.shards(), self._model.posterior)
        return posterior

    # -- EM ---------------------------------------------------------------------------------------

    def _run_em(
        self, votes: Votes, shards: list[Votes], start: FloatArray, n_subtypes: int
    ) -> tuple[Model, float]:
        """Run EM; return the model and the strength of its prior."""
        split = partial(split_into_subtypes, n_subtypes=n_subtypes)
        pseudo_counts, strength = self._prior(shards, split, n_subtypes)
        counts = total_em_counts(shards, start, split)
        history: list[float] = []
        for _ in range(self.max_iter):
            prior, responses = self._m_step(counts, pseudo_counts, n_subtypes)
            parameters = floored_log(prior), floored_log(responses)
            counts = sum_over_shards(expect_and_count, shards, *parameters, hard=self.em == "hard")
            history.append(counts.log_likelihood + log_dirichlet(pseudo_counts, responses))
            if has_settled(history, self.tol * votes.total_weight):
                break
        evidence = self._evidence(votes, counts, responses, pseudo_counts) if strength else 0.0
        return Model(prior, responses, history, evidence), strength

    def _m_step(
        self, counts: EMCounts, pseudo_counts: FloatArray, n_subtypes: int
    ) -> tuple[FloatArray, FloatArray]:
        """Prior (S,) and responses (R, S, K) that fit the expected counts."""
        prior = counts.prior
        if self.class_prior == "uniform":  # Over classes; the shares of subtypes are estimated.
            prior = normalise_rows(prior.reshape(-1, n_subtypes)).ravel()
        return normalise_rows(prior), normalise_rows(counts.confusion + pseudo_counts)

    def _evidence(
        self, votes: Votes, counts: EMCounts, responses: FloatArray, pseudo_counts: FloatArray
    ) -> float:
        """Lower bound on the log evidence of the annotations, confusion matrices integrated out.

        The variational Bayes bound at EM's posterior [1]_: E log p(states) + entropy of the
        posterior (both are the log likelihood minus E log p(responses)) + log Dirichlet-multinomial
        of the expected counts. Each other fitted parameter (the shares of the states and the centre
        of the prior) costs half the log of the number of annotations, as in the BIC.

        .. [1] M. J. Beal. Variational algorithms for approximate Bayesian inference. PhD thesis,
           University College London, 2003, section 2.3.
        """
        n_states, n_responses = pseudo_counts.shape[-2:]
        states = counts.log_likelihood - (counts.confusion * floored_log(responses)).sum()
        bound = states + _log_dirichlet_multinomial(counts.confusion, pseudo_counts)
        n_fitted = n_states
        if self.confusion_prior != "diagonal":
            n_fitted += n_states * (n_responses - 1)
        return float(bound - 0.5 * np.log(votes.total_weight) * n_fitted)

    def _prior(
        self, shards: list[Votes], split: Callable[..., FloatArray], n_subtypes: int
    ) -> tuple[FloatArray, float]:
        """Pseudo-counts of each row, shape (R or 1, S, K), and their sum per row.

        They come from the votes even if EM starts elsewhere, because the result should not depend
        on the start.
        """
        n_states, n_responses = shards[0].n_classes * n_subtypes, shards[0].n_responses
        if self.confusion_prior is None:
            return np.zeros((1, n_states, n_responses)), 0.0
        counts = sum_over_shards(_count_votes, shards, split).confusion
        identity = np.repeat(np.eye(shards[0].n_classes, n_responses), n_subtypes, axis=0)
        centre = self._centre(counts, identity)
        if self.prior_strength != "auto":
            strength = float(self.prior_strength)
        else:
            strength = max(STRENGTHS, key=lambda s: _log_dirichlet_multinomial(counts, s * centre))
        return strength * centre, strength

    def _centre(self, counts: FloatArray, identity: FloatArray) -> FloatArray:
        """Centre of the prior on every row, shape (R or 1, S, K); rows sum to 1."""
        if self.confusion_prior == "diagonal":
            off_diagonal = (1.0 - self.diagonal) / (identity.shape[1] - 1)
            return (self.diagonal * identity + off_diagonal * (1 - identity))[None]
        # A class nobody chose still needs a row: 1.1 correct pseudo-annotations, 0.1 of the others.
        if self.confusion_prior == "pooled":
            return normalise_rows(counts.sum(axis=0) + 0.1 + identity)[None]
        return _hierarchical_centre(counts, identity)


def _count_votes(shard: Votes, split: Callable[..., FloatArray]) -> EMCounts:
    """Counts against the vote shares, over the instances that have votes."""
    no_votes = np.zeros(shard.n_classes)
    return em_counts(shard, split(shard, vote_shares(shard.answers, empty=no_votes)))


def _hierarchical_centre(counts: FloatArray, identity: FloatArray) -> FloatArray:
    """Combine each annotator's accuracy with the crowd's distribution of mistakes, (R, S, K).

    Abstentions are modelled separately, with one rate per annotator and state.
    """
    n_classes = int(identity.sum(axis=0).astype(bool).sum())
    answers, is_correct = counts[:, :, :n_classes], identity[:, :n_classes]
    pooled = normalise_rows(answers.sum(axis=0) + 0.1 + is_correct)
    state_accuracy = (pooled * is_correct).sum(axis=1)
    hits, given = (answers * is_correct).sum(axis=(1, 2)), answers.sum(axis=(1, 2))
    p_correct = _rates(hits, given, state_accuracy)[:, :, None]
    mistakes = normalise_rows(pooled * (1 - is_correct))
    centre: FloatArray = p_correct * is_correct + (1 - p_correct) * mistakes
    if counts.shape[2] == n_classes:
        return centre
    abstained, asked = counts[:, :, n_classes:].sum(axis=2), counts.sum(axis=2)
    state_rates = (abstained.sum(axis=0) + 0.1) / (asked.sum(axis=0) + 0.2)
    p_abstain = _rates(abstained.sum(axis=1), asked.sum(axis=1), state_rates)[:, :, None]
    return np.concatenate([(1 - p_abstain) * centre, p_abstain], axis=2)


def _rates(hits: FloatArray, trials: FloatArray, state_rates: FloatArray) -> FloatArray:
    """Rate of each annotator in each state, shape (R, S).

    In log odds it is the crowd's rate plus the deviations of the annotator's rate (shrunk to the
    crowd's) and of the state's rate.
    """
    overall = hits.sum() / max(trials.sum(), np.finfo(float).tiny)
    own = (hits + SKILL_STRENGTH * overall) / (trials + SKILL_STRENGTH)
    # A prior must not be certain.
    own, state_rates, overall = (np.clip(p, 0.01, 0.99) for p in (own, state_rates, overall))
    rates: FloatArray = expit(logit(own)[:, None] + logit(state_rates) - logit(overall))
    return rates


def split_into_subtypes(votes: Votes, posterior: FloatArray, n_subtypes: int) -> FloatArray:
    """Split each class's mass among its subtypes by how much the votes disagree, shape (n, S)."""
    if n_subtypes == 1:
        return posterior
    # Gold is left out: it is evidence of the class, not of how clear the instance is.
    answers = replace(votes.answers, gold=None)
    doubt = (1.0 - vote_shares(answers).max(axis=1)) / (1.0 - 1.0 / votes.n_classes)
    # Hat functions around evenly spaced degrees of doubt; the shares are never 0.
    centres = np.linspace(0.0, 1.0, n_subtypes)
    hats = np.maximum(0.0, 1.0 - np.abs(doubt[:, None] - centres) * (n_subtypes - 1))
    shares = 0.8 * hats + 0.2 / n_subtypes
    return (posterior[:, :, None] * shares[:, None, :]).reshape(len(posterior), -1)


def _sum_subtypes(posterior: FloatArray, n_classes: int) -> FloatArray:
    """Sum over the subtypes of each class, shape (n, C)."""
    if posterior.shape[1] == n_classes:
        return posterior
    return posterior.reshape(len(posterior), n_classes, -1).sum(axis=2)


def _log_dirichlet_multinomial(counts: FloatArray, pseudo_counts: FloatArray) -> float:
    """Log probability of the annotations, each row under its own Dirichlet prior."""
    given, strength = counts.sum(axis=2), pseudo_counts.sum(axis=2)
    log_p = (gammaln(counts + pseudo_counts) - gammaln(pseudo_counts)).sum()
    return float(log_p - (gammaln(given + strength) - gammaln(strength)).sum())
