"""Expectation maximisation: the one loop of all methods that iterate, and the choice among runs.

A method is an `EMModel` of one fit: frozen, made from the votes, with parameters to start from
(``start``), an E-step (``expect``), an M-step (``maximise``), an objective, and the posterior of a
shard (``posterior``). `run_em` alternates the steps and owns the rest: when to stop, over-relaxed
steps [1]_, the history of the objective, and checkpoints. Of several runs, `best_run` keeps one.
`EMAggregator` makes an aggregator of a model.

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
from manyhands.inference.probability import by_response, has_settled
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
"""Factor by which an over-relaxed step grows as long as the objective rises, and its limit."""

CLOSE = 0.1
"""Nats per annotation within which bounds are close (`best_run` says why)."""

P = TypeVar("P")
"""Parameters of a model: a frozen dataclass, whose fields a checkpoint saves."""

C = TypeVar("C")
"""Expected counts under them."""


class EMModel(ABC, Generic[P, C]):
    """A method on the votes of one fit, as functions of its parameters and of expected counts.

    What runs on a shard is a static method that gets plain arrays, as a worker of a cluster may
    run it. Those are the ``sent`` of the parameters: what the E-step reads of them.
    """

    shards: Iterable[Votes]
    """Votes of the fit."""

    parameters: ClassVar[type[Any]]
    """Dataclass of the parameters."""

    over_relaxes = False
    """Whether steps go further than the M-step, as long as the objective rises (`beyond`)."""

    @classmethod
    def of(cls, settings: Any, votes: Any, shards: Iterable[Votes]) -> Self:
        """Make the model for the votes of a fit; ``settings`` is the aggregator."""
        raise NotImplementedError  # Of a model that its aggregator makes otherwise.

    @abstractmethod
    def start(self, posterior: Any) -> P:
        """Parameters to start from, by a posterior (n, C), or a function from a shard to it."""

    @staticmethod
    def expect(shard: Votes, *given: Any, **options: Any) -> Any:
        """E-step: expected counts of a shard, which add up."""
        raise NotImplementedError  # Of a model whose `expected` is another sum.

    def expected(self, parameters: P) -> C:
        """Expected counts under the parameters, summed over all shards."""
        sent = parameters.sent  # type: ignore[attr-defined]
        counts: C = sum_over_shards(self.expect, self.shards, *sent)
        return counts

    @abstractmethod
    def maximise(self, counts: C, parameters: P) -> P:
        """M-step: parameters that fit the counts, which were expected under ``parameters``.

        Where it needs no more than the counts, ``parameters`` are optional: a start has none.
        """

    @abstractmethod
    def objective(self, counts: C, parameters: P) -> float:
        """What an iteration raises: log likelihood plus log prior, or a bound on the evidence."""

    def beyond(self, here: P, proposal: P, step: float) -> P:
        """Go ``step`` times as far as from here to the proposal, in log parameters [1]_."""
        raise NotImplementedError

    @staticmethod
    @abstractmethod
    def posterior(shard: Votes, *given: Any, **options: Any) -> FloatArray:
        """Posterior of a shard, (n, C).

        With ``exponent`` (n,), which may be None, probabilities are raised to these powers. Gold is
        1; an instance without annotations gets the class prior.
        """

    def restored(self, saved: dict[str, Any]) -> P:
        """Parameters as they were before a checkpoint saved their fields."""
        values = {field.name: saved[field.name] for field in fields(self.parameters)}
        found: P = self.parameters(**{name: _as_it_lay(value) for name, value in values.items()})
        return found


def _as_it_lay(value: Any) -> Any:
    """A number, or an array in memory as it was before it was saved."""
    if not value.shape:
        return value[()]
    return by_response(value) if len(value.shape) == 3 else value


@dataclass(frozen=True)
class EMResult(Generic[P, C]):
    """Result of a run of EM.

    Attributes
    ----------
    parameters
        Of the last iteration.
    counts
        Expected under them.
    history : list of float
        Objective after each iteration.
    """

    parameters: P
    counts: C
    history: list[float]

    @property
    def slim(self) -> EMResult[P, Any]:
        """The result without counts, and without what its parameters have cached, to be kept."""
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
        Makes the parameters to start from, unless the checkpoint has others.
    max_iter : int
        Number of E-steps.
    enough : float
        Stop when an iteration raises the objective by less.
    checkpoint : FolderCheckpoint, optional
        Where the parameters of every iteration are saved.
    stage : str
        Name of this run there.
    suffices : callable, optional
        Whether a result is enough as it is, before ``enough`` says so.

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
        # To count again gives the bits of the run that was killed: shards are added in one order.
        parameters, step = model.restored(saved), float(saved["step"])
        counts, history = model.expected(parameters), saved["history"].tolist()
    while len(history) < max_iter and not has_settled(history, enough):
        if suffices is not None and suffices(EMResult(parameters, counts, history)):
            break
        trial = proposal = model.maximise(counts, parameters)
        if model.over_relaxes:
            step = min(step * STEP_GROWTH, GREATEST_STEP)
            trial = model.beyond(parameters, proposal, step)
        counts = model.expected(trial)
        objective = model.objective(counts, trial)
        if step > 1 and objective < history[-1]:
            step, trial = 1.0, proposal  # EM's own step, from the same place.
            counts = model.expected(trial)
            objective = model.objective(counts, trial)
        parameters = trial
        history.append(objective)
        if checkpoint is not None:
            names = [field.name for field in fields(model.parameters)]
            state = {name: getattr(parameters, name) for name in names}
            checkpoint.save(stage, step=step, history=history, **state)
    return EMResult(parameters, counts, history)


# -- which of several runs to keep ----------------------------------------------------------------


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
    """Keep the run with the best bound, unless it is upside down and one that is close is not.

    The likelihood of confusion matrices is the same if classes swap their names, so a crowd with
    adversaries has two maxima: in one the adversaries are wrong, in the other everybody else is.
    What tells their bounds apart is the prior, or (in MACE, which knows spammers but no
    adversaries) that one group is more consistent than the other. Neither is evidence about the
    names of the classes. As in `KOS`, the votes decide those: a run is upside down if the
    annotators it trusts are not those with whom the others agree, that is, if the product of
    `agreement_with_posterior` and `agreement_with_others` is negative. (KOS corrects agreement for
    uniform chance only. Here it is corrected for the classes that an annotator gives, because
    spammers who all give the same class would otherwise vouch for each other.)

    Bounds are close if they differ by at most `CLOSE` = 0.1 nats per annotation, which makes an
    annotation 10 % less probable (geometric mean). The unit is the annotation because the gap grows
    with the table. Where three of seven annotators are adversaries (accuracy .05; the others .85 or
    .9; two classes, 100 to 500 instances), it is up to 0.02 in EBCC and up to 0.08 in MACE. On the
    real tables of the aggregation page restarts differ by up to 0.06, but none is upside down. A
    larger gap is not about names: the run below has missed much of what annotators have in common.

    Parameters
    ----------
    runs : iterable of ScoredRun
        At most three are held at a time.
    posterior : callable
        From a run to its posterior, shape (n, C), or to a function from a shard to its rows.
    votes : Votes
    margin : float
        Nats per annotation by which a run must be better than an earlier one to replace it.
    """
    enough, close = margin * votes.total_weight, CLOSE * votes.total_weight
    agreement = agreement_with_others(votes)
    best = upright = None
    for run in runs:
        if best is None or run.history[-1] > best.history[-1] + enough:
            best = run
        if upright is None or run.history[-1] > upright.history[-1] + enough:
            trust = agreement_with_posterior(votes, posterior(run))
            # Rounding errors must not decide where annotators neither agree nor disagree.
            if trust @ agreement >= -1e-9 * (np.abs(trust) @ np.abs(agreement)):
                upright = run
    if best is None:
        raise ValueError("runs is empty; give at least one")
    if upright is None or best.history[-1] - upright.history[-1] > close:
        return best
    return upright


def agreement_with_posterior(votes: AllVotes, posterior: Any) -> FloatArray:
    """Expected correct annotations of each annotator beyond chance, shape (R,)."""
    return _beyond_chance(votes.answers.total(_correct, rows=(posterior,)))


def _correct(votes: Votes, posterior: FloatArray) -> FloatArray:
    hits = by_annotator(votes, probability_correct(votes, posterior))
    return _figures(hits, _sum_rows(votes, posterior), votes)


def agreement_with_others(votes: AllVotes) -> FloatArray:
    """How many votes of others (or gold) agree with each annotator's, beyond chance, shape (R,)."""
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
    """What `_beyond_chance` needs of each annotator, shape (R, 1 + 2 C), which adds up."""
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
