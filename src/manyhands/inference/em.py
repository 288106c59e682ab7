"""Expectation maximisation: the loop of all iterative methods, and the choice among several runs.

A method is a frozen `EMModel`, made from the votes of one fit, with starting values
(`EMModel.start`), an E-step (`EMModel.expect`), an M-step (`EMModel.maximise`), an objective, and
the posterior of a shard (`EMModel.posterior`). `run_em` alternates the steps. It is responsible for
the stopping rule, over-relaxed steps [1]_, the history of the objective, and checkpoints.
`best_run` keeps one of several runs. `EMAggregator` makes an aggregator from a model.

.. [1] R. Salakhutdinov and S. Roweis. Adaptive overrelaxed bound optimization methods. ICML 2003.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from scipy.sparse import csr_array

from manyhands.inference.checkpoints import FolderCheckpoint
from manyhands.inference.probability import by_response, has_converged
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_annotator,
    by_annotator_and_class,
    by_instance,
    probability_correct,
    sum_over_shards,
    weight_of_pairs,
    weighted_votes,
)
from manyhands.typing import FloatArray

STEP_GROWTH, GREATEST_STEP = 1.3, 10.0
"""Factor by which an over-relaxed step grows while the objective rises, and its upper limit."""

CLOSE_BOUNDS = 0.1
"""Lower bounds count as close if they differ by at most so many nats per annotation; `best_run`
explains the value."""

P = TypeVar("P")
"""Parameters of a model: a frozen dataclass, whose fields a checkpoint saves."""

C = TypeVar("C")
"""Expected counts under the parameters."""


class EMModel(ABC, Generic[P, C]):
    """Base class of methods: functions of parameters and expected counts, on the votes of one fit.

    Functions on a shard are static methods that take plain arrays, because a worker of a cluster
    may run them. The arrays that the E-step needs are the attribute ``sent`` of the parameters.
    """

    shards: Iterable[Votes]
    """Votes of the fit."""

    parameters: ClassVar[type[Any]]
    """Dataclass of the parameters."""

    over_relaxes = False
    """Whether steps are longer than the M-step's while the objective rises (`beyond`)."""

    @classmethod
    def of(cls, settings: Any, votes: Any, shards: Iterable[Votes]) -> Self:
        """Make the model for the votes of a fit; ``settings`` is the aggregator."""
        raise NotImplementedError  # Some aggregators make their model in another way.

    @abstractmethod
    def start(self, posterior: Any) -> P:
        """Return the parameters to start from, given a posterior (n, C).

        The posterior may be a function from a shard to its rows.
        """

    @staticmethod
    def expect(shard: Votes, *given: Any, **options: Any) -> Any:
        """Return the expected counts of a shard (E-step); counts of shards can be added."""
        raise NotImplementedError  # Some models override `expected` instead.

    def expected(self, parameters: P) -> C:
        """Return the expected counts under the parameters, summed over all shards."""
        sent = parameters.sent  # type: ignore[attr-defined]
        counts: C = sum_over_shards(self.expect, self.shards, *sent)
        return counts

    @abstractmethod
    def maximise(self, counts: C, parameters: P) -> P:
        """Return the parameters that maximise the objective given the counts (M-step).

        ``parameters`` are those of the E-step. They are optional if only the counts are needed.
        """

    @abstractmethod
    def objective(self, counts: C, parameters: P) -> float:
        """Return the objective: log likelihood plus log prior, or a bound on the evidence."""

    def beyond(self, here: P, proposal: P, step: float) -> P:
        """Return the over-relaxed parameters: ``step`` times the M-step, in log parameters [1]_."""
        raise NotImplementedError

    @staticmethod
    @abstractmethod
    def posterior(shard: Votes, *given: Any, **options: Any) -> FloatArray:
        """Return the posterior of a shard, (n, C).

        Probabilities are raised to the powers ``exponent`` (n,) unless it is None. The probability
        of gold is 1; an instance without annotations gets the class prior.
        """

    def restored(self, saved: dict[str, Any]) -> P:
        """Return the parameters from the fields that a checkpoint saved."""
        values = {field.name: saved[field.name] for field in fields(self.parameters)}
        found: P = self.parameters(**{name: _as_it_lay(value) for name, value in values.items()})
        return found


def _as_it_lay(value: Any) -> Any:
    """Return a saved value as it was: a number, or an array with its memory order."""
    if not value.shape:
        return value[()]
    return by_response(value) if len(value.shape) == 3 else value


@dataclass(frozen=True)
class EMResult(Generic[P, C]):
    """Result of a run of EM.

    Attributes
    ----------
    parameters
        Parameters of the last iteration.
    counts
        Expected counts under these parameters.
    history : list of float
        Objective after each iteration.
    """

    parameters: P
    counts: C
    history: list[float]

    @property
    def slim(self) -> EMResult[P, Any]:
        """The result without counts and without cached values of its parameters, to save memory."""
        parameters: Any = self.parameters
        return EMResult(replace(parameters), None, self.history)


def run_em(
    model: EMModel[P, C],
    first: Callable[[], P],
    *,
    max_iter: int,
    enough: float,
    checkpoint: FolderCheckpoint | None = None,
    stage: str = "iterations",
    suffices: Callable[[EMResult[P, C]], bool] | None = None,
) -> EMResult[P, C]:
    """Alternate E- and M-steps.

    Parameters
    ----------
    model : EMModel
    first : callable
        Makes the parameters to start from; not called if the checkpoint has parameters.
    max_iter : int
        Number of E-steps.
    enough : float
        Stop when an iteration raises the objective by less.
    checkpoint : FolderCheckpoint, optional
        Checkpoint for the parameters of every iteration.
    stage : str
        Name of this run in the checkpoint.
    suffices : callable, optional
        Returns whether a result is good enough to stop earlier.

    Returns
    -------
    EMResult
    """
    saved = None if checkpoint is None else checkpoint.load(stage)
    if saved is None:
        parameters, step = first(), 1.0
        counts = model.expected(parameters)
        history = [model.objective(counts, parameters)]
    else:
        # Counting again gives the bits of the killed run, because shards are added in a fixed
        # order.
        parameters, step = model.restored(saved), float(saved["step"])
        counts, history = model.expected(parameters), saved["history"].tolist()
    while len(history) < max_iter and not has_converged(history, enough):
        if suffices is not None and suffices(EMResult(parameters, counts, history)):
            break
        trial = proposal = model.maximise(counts, parameters)
        if model.over_relaxes:
            step = min(step * STEP_GROWTH, GREATEST_STEP)
            trial = model.beyond(parameters, proposal, step)
        counts = model.expected(trial)
        objective = model.objective(counts, trial)
        if step > 1 and objective < history[-1]:
            step, trial = 1.0, proposal  # Repeat with EM's own step from the same parameters.
            counts = model.expected(trial)
            objective = model.objective(counts, trial)
        parameters = trial
        history.append(objective)
        if checkpoint is not None:
            names = [field.name for field in fields(model.parameters)]
            state = {name: getattr(parameters, name) for name in names}
            checkpoint.save(stage, step=step, history=history, **state)
    return EMResult(parameters, counts, history)


# -- choice among several runs --------------------------------------------------------------------


class ScoredRun(Protocol):
    """Result of one restart."""

    @property
    def history(self) -> list[float]:
        """Objective (nats) after each iteration."""


R = TypeVar("R", bound=ScoredRun)


def best_run(
    runs: Iterable[R],
    posterior: Callable[[R], Any],
    votes: AllVotes,
    *,
    margin: float = 0.0,
) -> R:
    """Return the run with the best bound, or a close one if the best has swapped the classes.

    The likelihood of confusion matrices does not change if classes swap their names (label
    switching). A crowd with adversaries therefore has two maxima: in one the adversaries are wrong,
    in the other everybody else is. Their bounds differ only by the prior, or (in MACE, which models
    spammers but no adversaries) because one group is more consistent than the other. Neither is
    evidence about the names of the classes. As in `KOS`, the votes decide: a run has swapped
    classes if the annotators it trusts are not those with whom the others agree, that is, if the
    product of `agreement_with_posterior` and `agreement_with_others` is negative. (KOS corrects
    agreement for uniform chance only. Here it is corrected for the classes that an annotator gives,
    because otherwise spammers who all give the same class would support each other.)

    Bounds are close if they differ by at most `CLOSE_BOUNDS` = 0.1 nats per annotation, which makes
    an annotation 10 % less probable (geometric mean). The unit is the annotation because the gap
    grows with the table. If three of seven annotators are adversaries (accuracy .05; the others .85
    or .9; two classes, 100 to 500 instances), it is up to 0.02 in EBCC and up to 0.08 in MACE. On
    the real tables of the aggregation page restarts differ by up to 0.06, but none has swapped
    classes. A larger gap has other reasons than label switching: the run with the lower bound has
    missed much of what annotators have in common.

    Parameters
    ----------
    runs : iterable of ScoredRun
        At most three are in memory at a time.
    posterior : callable
        Takes a run and returns its posterior, shape (n, C), or a function from a shard to its rows.
    votes : Votes
    margin : float
        Nats per annotation by which a run must be better than an earlier one to replace it.

    Raises
    ------
    ValueError
        If there is no run.
    """
    enough, close = margin * votes.total_weight, CLOSE_BOUNDS * votes.total_weight
    agreement = agreement_with_others(votes)
    best = upright = None
    for run in runs:
        if best is None or run.history[-1] > best.history[-1] + enough:
            best = run
        if upright is None or run.history[-1] > upright.history[-1] + enough:
            trust = agreement_with_posterior(votes, posterior(run))
            # Rounding errors must not decide if annotators neither agree nor disagree.
            if trust @ agreement >= -1e-9 * (np.abs(trust) @ np.abs(agreement)):
                upright = run
    if best is None:
        raise ValueError("runs is empty; give at least one")
    if upright is None or best.history[-1] - upright.history[-1] > close:
        return best
    return upright


def agreement_with_posterior(votes: AllVotes, posterior: Any) -> FloatArray:
    """Return the expected correct annotations of each annotator beyond chance, shape (R,)."""
    return _beyond_chance(votes.answers.total(_correct, rows=(posterior,)))


def _correct(votes: Votes, posterior: FloatArray) -> FloatArray:
    hits = by_annotator(votes, probability_correct(votes, posterior))
    return _figures(hits, _sum_rows(votes, posterior), votes)


def agreement_with_others(votes: AllVotes) -> FloatArray:
    """Return the votes of others (or gold) that agree with each annotator's beyond chance, (R,)."""
    return _beyond_chance(votes.answers.total(_agreeing))


def _agreeing(votes: Votes) -> FloatArray:
    scores = weighted_votes(votes)
    own, own_same = weight_of_pairs(votes), weight_of_pairs(votes, same_class=True)
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        scores[known] = 0.0
        scores[known, votes.gold[known]] = by_instance(votes)[known]
        unknown = votes.gold[votes.instance] < 0
        own, own_same = own * unknown, own_same * unknown
    hits = by_annotator(votes, probability_correct(votes, scores) - own_same)
    seen = _sum_rows(votes, scores) - by_annotator_and_class(votes, own)
    return _figures(hits, seen, votes)


def _figures(hits: FloatArray, seen: FloatArray, votes: Votes) -> FloatArray:
    """Return the sums of each annotator for `_beyond_chance`, shape (R, 1 + 2 C)."""
    return np.column_stack([hits, seen, by_annotator_and_class(votes)])


def _beyond_chance(figures: FloatArray) -> FloatArray:
    """Subtract the hits expected of annotators who give their classes regardless of the instance.

    The columns are the scores of the classes an annotator gave, (R,), and, both (R, C), the scores
    of all classes, summed over their annotations, and the number of times each class was given.
    """
    hits, (seen, given) = figures[:, 0], np.split(figures[:, 1:], 2, axis=1)
    total = given.sum(axis=1)
    chance = np.einsum("rc,rc->r", given, seen)
    return hits - np.divide(chance, total, out=np.zeros_like(chance), where=total > 0)


def _sum_rows(votes: Votes, scores: FloatArray) -> FloatArray:
    """Sum the instances' scores (n, C) over each annotator's annotations, shape (R, C)."""
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    shape = (votes.n_annotators, votes.n_instances)
    matrix = csr_array((weight, (votes.annotator, votes.instance)), shape=shape)
    return np.asarray(matrix @ scores)
