"""Base class of iterative methods: an aggregator made from a `EMModel` and its parameters."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from manyhands.inference.base import BaseAggregator
from manyhands.inference.dependence import Dependence, dependence_of, exponents
from manyhands.inference.em import EMModel, EMResult, run_em
from manyhands.inference.votes import AllVotes, Votes, fill_rows
from manyhands.typing import FloatArray

_LOG = logging.getLogger("manyhands")


class EMAggregator(BaseAggregator):
    """Base class of methods whose parameters `run_em` fits.

    A subclass names its `EMModel` and its fitted attributes: `_set_fitted` sets them from the
    parameters, and `_sent` returns those that `EMModel.posterior` needs, during a fit, for new
    instances, and after loading. The rest is implemented here: the correlation of mistakes (if the
    method has the parameter ``dependence``), the loop, its history, checkpoints, and the posterior.
    """

    max_iter: int
    tol: float

    model: ClassVar[type[EMModel[Any, Any]]]
    """The class of the model; ``model.of(self, votes, shards)`` makes it for the votes of a fit."""

    @abstractmethod
    def _set_fitted(self, parameters: Any, votes: AllVotes) -> None:
        """Set the fitted attributes from the parameters, including ``class_prior_``."""

    @property
    @abstractmethod
    def _sent(self) -> tuple[Any, ...]:
        """Arguments of `EMModel.posterior`, from the fitted attributes."""

    def _runs(
        self, model: Any, votes: AllVotes, start: Any, rng: np.random.RandomState
    ) -> EMResult[Any, Any]:
        """Fit the model by one run from the posterior ``start``; some methods try several runs."""
        return self._run(model, votes, lambda: model.start(start))

    def _shards(self, votes: AllVotes) -> Iterable[Votes]:
        return votes.shards()

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        if not hasattr(self, "model"):
            raise TypeError(
                f"{type(self).__name__} does not say which model it fits; set the class attribute "
                "`model` to a subclass of manyhands.inference.em.EMModel"
            )
        if "dependence" in self._parameter_constraints:
            self._measure_dependence(votes, start)
        model: Any = self.model
        found = self._runs(model.of(self, votes, self._shards(votes)), votes, start, rng)
        self._set_fitted(found.parameters, votes)
        self._set_history(found.history)
        self.posterior_ = self._fill(votes.posterior_rows(start), self._shards(votes))

    def _run(
        self,
        model: EMModel[Any, Any],
        votes: AllVotes,
        first: Callable[[], Any],
        stage: str = "iterations",
    ) -> EMResult[Any, Any]:
        """Call `run_em` with the method's ``max_iter`` and ``tol``; ``stage`` names the run."""
        return run_em(
            model,
            first,
            max_iter=self.max_iter,
            enough=self.tol * votes.total_weight,
            checkpoint=votes.checkpoint,
            stage=stage,
        )

    def _measure_dependence(self, votes: AllVotes, start: Any) -> None:
        """Set ``dependence_`` and ``dependence_se_``."""
        self._set_dependence(dependence_of(self.dependence, votes, start, self._known_labels()))

    def _set_dependence(self, found: Dependence) -> None:
        """Set the attributes, and the note on gold that is no random sample."""
        self.dependence_, self.dependence_se_ = found.rho, found.se
        sample = found.sample
        self.gold_sample_ = None if sample is None else sample.kind
        self.gold_p_value_ = None if sample is None else sample.p_value
        self.gold_note_ = None
        if sample is not None and sample.kind == "chosen":
            self.gold_note_ = sample.note()
            _LOG.info("%s", self.gold_note_)

    @property
    def _rho(self) -> float | None:
        """Correlation of mistakes that the posterior allows for; None for the published model."""
        return None if self.dependence == 0 else self.dependence_

    def _set_history(self, history: list[float]) -> None:
        """Set ``log_likelihood_`` and ``n_iter_``."""
        self.log_likelihood_, self.n_iter_ = np.array(history), len(history)

    def _posterior(self, votes: Votes) -> FloatArray:
        return self._fill(votes.new_rows(votes.n_classes), self._shards(votes))

    def _fill(
        self, out: FloatArray, shards: Iterable[Votes], rows: tuple[Any, ...] = ()
    ) -> FloatArray:
        """Write the posterior into ``out``; ``rows`` are arrays with a row per instance."""
        fill_rows(out, shards, ReadOut(self.model.posterior, self._rho), *self._sent, rows=rows)
        return out


@dataclass(frozen=True)
class ReadOut:
    """Function that returns the posterior of a shard, (n, C), if mistakes are correlated by rho.

    With rho None, mistakes are independent.
    """

    posterior: Callable[..., FloatArray]
    rho: float | None

    def __call__(self, shard: Votes, *given: Any) -> FloatArray:
        """Return the posterior of a shard; ``given`` are the arguments of `EMModel.posterior`."""
        exponent = None if self.rho is None else exponents(shard, self.rho)
        return self.posterior(shard, *given, exponent=exponent)
