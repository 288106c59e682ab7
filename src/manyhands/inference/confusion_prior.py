"""The Dirichlet prior of confusion matrices, and their shrinkage towards the pooled matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, gammaln, logit

from manyhands.annotations import AnnotationTable
from manyhands.inference.class_shares import GREATEST_RATE, LEAST_RATE, RareClassCorrection
from manyhands.inference.confusions import EMCounts
from manyhands.inference.probability import (
    Table,
    map_rows,
    normalise_rows,
    over_annotators,
    sum_rows,
)
from manyhands.inference.severity import Tilt
from manyhands.inference.votes import AllVotes
from manyhands.typing import FloatArray

STRENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Candidates of ``prior_strength="auto"``. Counts against a posterior differ less between
annotators than the annotators themselves do. Without an upper limit, the evidence would choose so
strong a prior that it overwhelms the data of annotators with few labels."""

SKILL_STRENGTH = 5.0
"""Number of pseudo-annotations with the crowd's accuracy that are added to each annotator's own."""


@dataclass(frozen=True)
class ConfusionPrior:
    """Dirichlet prior on each row of each annotator's confusion matrix.

    Attributes
    ----------
    centre : {"hierarchical", "pooled", "diagonal", None}
        None means no prior.
    strength : float or "auto"
        Pseudo-annotations per row; "auto" chooses one of `STRENGTHS`.
    diagonal : float
        Probability of a correct annotation at the centre "diagonal".
    """

    centre: str | None
    strength: float | str
    diagonal: float

    @property
    def is_used(self) -> bool:
        """Whether the prior adds anything to the counts."""
        return self.centre is not None and self.strength != 0

    def pseudo_counts(
        self,
        counts: Table,
        n_classes: int,
        correction: RareClassCorrection | None = None,
        *,
        ordered: bool = False,
    ) -> tuple[Table, float]:
        """Return the pseudo-counts of each row, shape (R or 1, S, K), and their sum per row.

        Parameters
        ----------
        counts : array of shape (R, S, K)
            Annotations counted against the vote shares, not against the start of EM, so that the
            prior does not depend on the start.
        n_classes : int
            A class may have several of the S states, and abstentions add a response to K.
        correction : RareClassCorrection, optional
            Correction of the centre "hierarchical". The strength is chosen without it, because
            counts against vote shares contradict a corrected centre and would make the prior weak.
        ordered : bool
            Whether the classes are ordered; the centre "hierarchical" then has a severity of each
            annotator (`manyhands.inference.severity`).
        """
        _, n_states, n_responses = counts.shape
        if self.centre is None:
            return np.zeros((1, n_states, n_responses)), 0.0
        if self.strength == "auto":
            centre = self._centre(counts, n_classes, ordered=ordered)
            strength = _strength(counts, centre)
            if correction is None:
                return map_rows(lambda rows: strength * rows, centre), strength
        else:
            strength = float(self.strength)
        centre = self._centre(counts, n_classes, correction, ordered=ordered, times=strength)
        return centre, strength

    def tilt(self, counts: Table, n_classes: int) -> Tilt | None:
        """Return the model of severities for ordered classes; None for other centres."""
        if self.centre != "hierarchical" or not self.is_used:
            return None
        identity = _identity(counts, n_classes)
        return _Crowd.of(counts, identity, ordered=True).tilt

    def _centre(
        self,
        counts: Table,
        n_classes: int,
        correction: RareClassCorrection | None = None,
        *,
        ordered: bool = False,
        times: float = 1.0,
    ) -> Table:
        """Return the centre of the prior on rows, (R or 1, S, K); rows sum to ``times``."""
        n_responses = counts.shape[2]
        identity = _identity(counts, n_classes)
        if self.centre == "diagonal":
            off_diagonal = (1.0 - self.diagonal) / (n_responses - 1)
            return times * (self.diagonal * identity + off_diagonal * (1 - identity))[None]
        # A class that nobody chose needs a row, too: 1.1 correct pseudo-annotations and 0.1 of each
        # other class.
        if self.centre == "pooled":
            return times * normalise_rows(over_annotators(counts) + 0.1 + identity)[None]
        crowd = _Crowd.of(counts, identity, ordered=ordered)
        if correction is not None:
            crowd = crowd.corrected(correction)
        return map_rows(lambda rows: times * crowd.centre(rows), counts)


def _identity(counts: Table, n_classes: int) -> FloatArray:
    """Mark the right answer of each state, shape (S, K)."""
    _, n_states, n_responses = counts.shape
    return np.repeat(np.eye(n_classes, n_responses), n_states // n_classes, axis=0)


def _strength(counts: Table, centre: Table) -> float:
    """Return the strength with the greatest evidence; search downwards while the evidence rises."""
    best, evidence = 0.0, -np.inf
    for strength in reversed(STRENGTHS):
        found = _evidence(strength, counts, centre)
        if found <= evidence:
            break
        best, evidence = strength, found
    return best


def _evidence(strength: float, counts: Table, centre: Table) -> float:
    """Return the log probability of the annotations under a prior of a strength."""

    def of_rows(counts: FloatArray, centre: FloatArray) -> float:
        return log_dirichlet_multinomial(counts, strength * centre)

    return float(sum_rows(of_rows, counts, centre))


@dataclass(frozen=True)
class _Crowd:
    """Rates of correct answers and abstentions of the whole crowd.

    Attributes
    ----------
    is_correct : array of shape (S, C)
    mistakes : array of shape (S, C)
        Distribution of the crowd's mistakes; rows sum to 1.
    accuracy, abstaining : arrays of shape (S,)
        Rate of each state.
    overall, overall_abstaining : float
        Rate over all annotations.
    tilt : Tilt or None
        Model of how annotators of ordered classes differ in severity; None for nominal classes,
        where they differ in accuracy alone.
    """

    is_correct: FloatArray
    mistakes: FloatArray
    accuracy: FloatArray
    overall: float
    abstaining: FloatArray
    overall_abstaining: float
    tilt: Tilt | None = None

    @classmethod
    def of(cls, counts: Table, identity: FloatArray, *, ordered: bool = False) -> _Crowd:
        """Read the crowd's rates from counts (R, S, K); ``identity`` (S, K) marks right answers."""
        n_classes = int(identity.sum(axis=0).astype(bool).sum())
        is_correct = identity[:, :n_classes]
        responses = over_annotators(counts)
        answers, asked = responses[:, :n_classes], responses.sum(axis=1)
        abstained = responses[:, n_classes:].sum(axis=1)
        pooled = normalise_rows(answers + 0.1 + is_correct)
        tiny = np.finfo(float).tiny
        tilt = None
        if ordered:
            shares = normalise_rows(answers.sum(axis=1))
            tilt = Tilt(pooled, shares, is_correct.argmax(axis=1), SKILL_STRENGTH)
        return cls(
            is_correct,
            normalise_rows(pooled * (1 - is_correct)),
            (pooled * is_correct).sum(axis=1),
            (answers * is_correct).sum() / max(answers.sum(), tiny),
            (abstained + 0.1) / (asked + 0.2),
            abstained.sum() / max(asked.sum(), tiny),
            tilt,
        )

    def corrected(self, correction: RareClassCorrection) -> _Crowd:
        """Correct the accuracy of each class; its subtypes keep their deviations from it."""
        shift = correction.shift(self.overall)[self.is_correct.argmax(axis=1)]
        return replace(self, accuracy=expit(logit(_unsure(self.accuracy)) + shift))

    def centre(self, counts: FloatArray) -> FloatArray:
        """Combine each annotator's own rates with the crowd's mistakes, shape (R, S, K).

        Abstentions are modelled separately, with one rate per annotator and state.
        """
        answers = counts[:, :, : self.is_correct.shape[1]]
        given = answers.sum(axis=(1, 2))
        if self.tilt is not None:
            centre = self.tilt.centre(answers, self._matrices(self.accuracy[None])[0])
        else:
            hits = np.einsum("rsk,sk->r", answers, self.is_correct)
            centre = self._matrices(_rates(hits, given, self.accuracy, self.overall))
        if counts.shape == answers.shape:
            return centre
        abstained = counts[:, :, answers.shape[2] :].sum(axis=(1, 2))
        p_abstain = _rates(abstained, given + abstained, self.abstaining, self.overall_abstaining)
        p_abstain = p_abstain[:, :, None]
        return np.concatenate([(1 - p_abstain) * centre, p_abstain], axis=2)

    def _matrices(self, p_correct: FloatArray) -> FloatArray:
        """Return matrices (r, S, K) with given rates of right answers and the crowd's mistakes."""
        by_response = (1 - p_correct)[:, None] * np.ascontiguousarray(self.mistakes.T)
        matrices: FloatArray = by_response.transpose(0, 2, 1)  # The memory order of counts.
        matrices[:, np.arange(len(self.mistakes)), self.is_correct.argmax(axis=1)] = p_correct
        return matrices


def _rates(
    hits: FloatArray, trials: FloatArray, state_rates: FloatArray, overall: float
) -> FloatArray:
    """Return the rate of each annotator in each state, shape (R, S).

    In log odds it is the crowd's rate plus the deviations of the annotator's rate (shrunk to the
    crowd's) and of the state's rate.
    """
    own = (hits + SKILL_STRENGTH * overall) / (trials + SKILL_STRENGTH)
    own, state_rates, sure = (_unsure(p) for p in (own, state_rates, overall))
    rates: FloatArray = expit(logit(own)[:, None] + logit(state_rates) - logit(sure))
    return rates


def _unsure(rates: Any) -> Any:
    """Return the rates, limited to an interval without 0 and 1."""
    return np.clip(rates, LEAST_RATE, GREATEST_RATE)


def log_dirichlet_multinomial(counts: FloatArray, pseudo_counts: FloatArray) -> float:
    """Return the log probability of the annotations, each row under its own Dirichlet prior."""
    tables = (counts, pseudo_counts)
    as_stored = (table.transpose(0, 2, 1) for table in tables)
    rows = (np.einsum("rsk->rs", table) for table in tables)  # Several times faster than sum.
    return _log_rising(*as_stored) - _log_rising(*rows)


def _log_rising(counts: FloatArray, start: FloatArray) -> float:
    """Sum log Gamma(start + n) - log Gamma(start); entries without counts n add nothing."""
    some = counts > 0
    start = np.broadcast_to(start, counts.shape)[some]
    return float((gammaln(counts[some] + start) - gammaln(start)).sum())


def with_history(pseudo_counts: Table, votes: AllVotes, vote_counts: EMCounts) -> Table:
    """Add the annotators' histories to the pseudo-counts of the prior.

    Parameters
    ----------
    pseudo_counts : array of shape (R or 1, S, K)
    votes : Votes
    vote_counts : EMCounts
        Counts against the vote shares. The history of a class is divided among its subtypes in
        proportion to these. A history has no abstentions, so it does not change their rate.

    Returns
    -------
    array of shape (R, S, K), or ``pseudo_counts`` if there is no history
    """
    if votes.history is None:
        return pseudo_counts
    n_classes = votes.n_classes
    shares = normalise_rows(vote_counts.prior.reshape(n_classes, -1))

    def added(counts: FloatArray, pseudo_counts: FloatArray, history: FloatArray) -> FloatArray:
        answers = history[:, :, None, :] * shares[:, :, None]
        answers = answers.reshape(len(history), -1, n_classes)
        seen = counts + pseudo_counts
        answered = seen[:, :, :n_classes].sum(axis=2, keepdims=True)
        abstained = seen[:, :, n_classes:]
        odds = np.divide(abstained, answered, out=np.zeros_like(abstained), where=answered > 0)
        abstentions = answers.sum(axis=2, keepdims=True) * odds
        return np.asarray(pseudo_counts + np.concatenate([answers, abstentions], axis=2))

    return map_rows(added, vote_counts.confusion, pseudo_counts, votes.history)


def pool_confusions(
    confusion: FloatArray,
    table: AnnotationTable,
    belief: FloatArray,
    *,
    pseudo_annotations: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Pool confusion matrices, and shrink their rows towards the pooled matrix.

    Parameters
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    table : AnnotationTable
    belief : array of shape (n_instances, n_classes)
        Class probabilities of the annotated instances.
    pseudo_annotations : float
        Number of annotations, distributed like the crowd's, that are added to every row.

    Returns
    -------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    pooled : array of shape (n_classes, n_classes)
        Mean of the given rows, each weighted by the expected number of that annotator's annotations
        in that class.
    """
    columns = (
        np.bincount(table.annotator, table.weight * proba[table.instance], table.n_annotators)
        for proba in belief.T
    )
    mass = np.stack(list(columns), axis=1)
    # A class without expected annotations gets the crowd's overall distribution.
    weight = mass + 1e-9 * mass.sum(axis=1, keepdims=True)
    pooled = np.einsum("rc,rcg->cg", weight / weight.sum(axis=0), confusion)
    if pseudo_annotations:
        known = mass[:, :, None] / pseudo_annotations
        confusion = (known * confusion + pooled) / (known + 1)
    return confusion, pooled
