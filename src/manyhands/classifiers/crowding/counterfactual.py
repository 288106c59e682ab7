"""Gradients of the counterfactual risk, Eq. 5 and 6 of [1]_, for generator and classifier.

Both learn from logged annotations: each cost is weighted by the ratio of the annotation's
probability now to that when it was drawn, and a Lagrange multiplier mu [2]_ is subtracted.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
.. [2] T. Joachims, A. Swaminathan and M. de Rijke. Deep learning with logged bandit feedback.
   ICLR 2018.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.classifiers.crowding.log import Generator, Log, chunks, class_proba_of
from manyhands.objectives import counterfactual_risk, importance_ratios, self_normalized_risk


def cell_ratios(generator: Generator, log: Log, proba: Tensor, cells: Tensor) -> Tensor:
    """Return the importance ratios of the drawn annotations of some cells.

    Parameters
    ----------
    generator : Generator
    log : Log
    proba : tensor of shape (n, n_classes)
        The classifier's output, an input of the generator.
    cells : integer tensor
        Positions in the log.

    Returns
    -------
    tensor of shape (len(cells),)
    """
    rows, annotators = log.rows[cells], log.annotators[cells]
    log_proba = generator(log.features, proba, rows, annotators, log.noise[cells])
    drawn = log_proba.gather(1, log.labels[cells][:, None])[:, 0]
    return importance_ratios(drawn, log.log_proba[cells])


@dataclass(frozen=True, eq=False)
class RiskGradient(ABC):
    """The counterfactual risk of a log for one network: its gradient, and its ratios.

    Attributes
    ----------
    log : Log
    proba : tensor of shape (n, n_classes)
        The classifier's output before any update.
    cells : integer tensor
        Cells of the risk, as positions in the log.
    cost : tensor of shape (m,)
        Cost of every drawn annotation of the log.
    truncation : float
        Upper bound at which importance ratios are clipped.
    chunk_size : int
        Cells that the networks compute at once.
    """

    log: Log
    proba: Tensor
    cells: Tensor
    cost: Tensor
    truncation: float
    chunk_size: int

    @abstractmethod
    def backward(self, network: Any, cells: Tensor, mu: float) -> Tensor:
        """Add the gradient over some cells to that of the network.

        Parameters
        ----------
        network : nn.Module
        cells : integer tensor
            Positions in the log.
        mu : float
            Lagrange multiplier.

        Returns
        -------
        tensor of shape (len(cells),)
            Importance ratios of the cells, detached.
        """

    @abstractmethod
    def ratios(self, network: Any, cells: Tensor) -> Tensor:
        """Return the importance ratios of some cells by the present network, without gradient."""

    def risk(self, ratios: Tensor, cells: Tensor, mu: float) -> Tensor:
        """Return the counterfactual risk of some cells, a scalar."""
        return counterfactual_risk(ratios, self.cost[cells], mu=mu, truncation=self.truncation)

    @torch.no_grad()
    def _all_ratios(self, generator: Generator, proba: Tensor, cells: Tensor) -> Tensor:
        parts = chunks(len(cells), self.chunk_size)
        return torch.cat([cell_ratios(generator, self.log, proba, cells[p]) for p in parts])


class GeneratorGradient(RiskGradient):
    """Gradient of Eq. 5, for the generator."""

    def backward(self, network: Any, cells: Tensor, mu: float) -> Tensor:
        """Add the gradient over some cells to that of the generator."""
        found = []
        for p in chunks(len(cells), self.chunk_size):
            ratios = cell_ratios(network, self.log, self.proba, cells[p])
            risk = self.risk(ratios, cells[p], mu)
            (risk * (len(ratios) / len(cells))).backward()  # type: ignore[no-untyped-call]
            found.append(ratios.detach())
        return torch.cat(found)

    def ratios(self, network: Any, cells: Tensor) -> Tensor:
        """Return the importance ratios of some cells by the present generator, without gradient."""
        return self._all_ratios(network, self.proba, cells)


@dataclass(frozen=True, eq=False)
class ClassifierGradient(RiskGradient):
    """Gradient of Eq. 6, for the classifier, through the fixed generator."""

    generator: Generator

    def backward(self, network: Any, cells: Tensor, mu: float) -> Tensor:
        """Add the gradient over some cells to that of the classifier."""
        rows = self.log.rows[cells].unique()  # type: ignore[no-untyped-call]
        output = network.logits(self.log.scaled[rows]).softmax(dim=1)
        proba = self.proba.clone()
        proba[rows] = output.detach()
        proba.requires_grad_()
        gradient = torch.zeros_like(proba)
        found = []
        for p in chunks(len(cells), self.chunk_size):
            ratios = cell_ratios(self.generator, self.log, proba, cells[p])
            risk = self.risk(ratios, cells[p], mu)
            (part,) = torch.autograd.grad(risk * (len(ratios) / len(cells)), proba)
            gradient += part
            found.append(ratios.detach())
        output.backward(gradient[rows])
        return torch.cat(found)

    def ratios(self, network: Any, cells: Tensor) -> Tensor:
        """Return importance ratios of some cells by the present classifier, without gradient."""
        return self._all_ratios(self.generator, class_proba_of(network, self.log), cells)


def make_adam(
    parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """Make an Adam optimiser, fused if the device allows it."""
    parameters = list(parameters)
    fused = parameters[0].device.type in {"cpu", "cuda"}
    return torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=fused)


# -- the Lagrange multiplier mu: fixed, a mean cost, or found by a search --------------------------


MU_GRID = (0.5, 0.25, 0.75, 0.1, 0.9)
"""Quantiles of the logged costs among which mu is searched. A tie goes to the first."""

MU_SEARCHES = 5
"""Number of epochs in which mu is searched. Later epochs use the result."""

NETWORKS = ("generator", "classifier")


class Multiplier:
    """The multiplier of the generator and that of the classifier.

    Parameters
    ----------
    rule : {"search", "mean"} or float
        See the parameter ``mu`` of `CrowdInGClassifier`.
    lrs : dict of str to float
        Learning rates by network, for the search.
    n_steps : int
        Number of updates with each candidate of the search.

    Attributes
    ----------
    values : dict of str to float
        Multipliers by network. A network without cells may have none.
    risks : dict of str to list of float
        Risks by network of the candidates, summed over the searches.
    epoch : int
    """

    def __init__(self, rule: str | float, lrs: Mapping[str, float], n_steps: int) -> None:
        self.rule = rule
        self.lrs = lrs
        self.n_steps = n_steps
        self.values: dict[str, float] = {}
        self.risks = {name: [0.0] * len(MU_GRID) for name in NETWORKS}
        self.epoch = 0

    def start_epoch(self, epoch: int) -> None:
        """Clear the multipliers of the last epoch."""
        self.epoch = epoch
        self.values = {}

    def update(
        self, gradients: Mapping[str, RiskGradient], networks: Mapping[str, nn.Module]
    ) -> None:
        """Set ``values`` for a batch. The search runs on the epoch's first batch with cells.

        Parameters
        ----------
        gradients : dict of str to RiskGradient
        networks : dict of str to nn.Module
            They do not change.
        """
        for name, gradient in gradients.items():
            n_cells = len(gradient.cells)
            if not isinstance(self.rule, str):
                self.values[name] = float(self.rule)
            elif self.rule == "mean":
                cost = gradient.cost[gradient.cells]
                self.values[name] = float(cost.mean()) if n_cells else 0.0
            elif n_cells and name not in self.values:
                attempt = partial(
                    ratios_after_learning, gradient, networks[name], self.lrs[name], self.n_steps
                )
                self.values[name] = self.search(name, gradient, attempt)

    def search(
        self,
        name: str,
        gradient: RiskGradient,
        attempt: Callable[[Tensor, Tensor, float], Tensor],
    ) -> float:
        """Choose mu by the self-normalised risk [2]_ of a network trained with it.

        For every candidate, a copy of the network is trained on the cells of every other instance,
        and its risk is computed on the cells of the remaining ones. In one log the differences
        between candidates are small compared with their noise. Their risks, minus that of the
        first candidate, are therefore summed over the epochs.

        Parameters
        ----------
        name : {"generator", "classifier"}
        gradient : RiskGradient
        attempt : callable (learnt, judged, mu) -> tensor
            Importance ratios of the cells ``judged`` after training on the cells ``learnt``.

        Returns
        -------
        float
            The candidate whose sum of risks is smallest so far.
        """
        cells, cost = gradient.cells, gradient.cost
        instance = gradient.log.rows[cells].unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
        learnt, judged = cells[instance % 2 == 0], cells[instance % 2 == 1]
        candidates = _quantiles(cost[cells])
        if len(judged) and self.epoch < MU_SEARCHES:
            risks = [
                float(
                    self_normalized_risk(
                        attempt(learnt, judged, mu).clamp(max=gradient.truncation), cost[judged]
                    )
                )
                for mu in candidates
            ]
            summed = zip(self.risks[name], risks, strict=True)
            self.risks[name] = [before + now - risks[0] for before, now in summed]
        return candidates[min(range(len(MU_GRID)), key=self.risks[name].__getitem__)]


def ratios_after_learning(
    gradient: RiskGradient,
    network: nn.Module,
    lr: float,
    n_steps: int,
    learnt: Tensor,
    judged: Tensor,
    mu: float,
) -> Tensor:
    """Return the importance ratios of some cells by a copy of the network trained on others."""
    trial = copy.deepcopy(network)
    optimizer = make_adam(trial.parameters(), lr)
    for _ in range(n_steps):
        optimizer.zero_grad(set_to_none=True)
        gradient.backward(trial, learnt, mu)
        optimizer.step()
    return gradient.ratios(trial, judged)


def _quantiles(cost: Tensor) -> list[float]:
    """Return the candidates for mu: quantiles of the costs."""
    # torch.quantile raises an error for more than 2^24 numbers.
    ordered = cost.sort().values
    return [float(ordered[round(q * (len(ordered) - 1))]) for q in MU_GRID]
