"""Gradients of the counterfactual risk, Eq. 5 and 6 of [1]_, for generator and classifier.

Both learn from logged annotations: each cost is weighted by the ratio of the annotation's
probability now to that when it was drawn.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhands.classifiers.crowding.log import Generator, Log, chunks, class_proba_of
from manyhands.objectives import counterfactual_risk, importance_ratios


def cell_ratios(generator: Generator, log: Log, proba: Tensor, cells: Tensor) -> Tensor:
    """Importance ratios of the drawn annotations of some cells, shape (len(cells),).

    Parameters
    ----------
    generator : Generator
    log : Log
    proba : tensor of shape (n, n_classes)
        The classifier's output, which the generator sees.
    cells : integer tensor
        Positions in the log.
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
        Cells to learn from, as positions in the log.
    cost : tensor of shape (m,)
        Cost of every drawn annotation of the log.
    truncation : float
        Importance ratios count as this at most.
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
        """Importance ratios of some cells by the network as it is, without gradient."""

    def risk(self, ratios: Tensor, cells: Tensor, mu: float) -> Tensor:
        """Counterfactual risk of some cells, a scalar."""
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
        """Importance ratios of some cells by the generator as it is, without gradient."""
        return self._all_ratios(network, self.proba, cells)


@dataclass(frozen=True, eq=False)
class ClassifierGradient(RiskGradient):
    """Gradient of Eq. 6, for the classifier, through the generator as it is."""

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
        """Importance ratios of some cells by the classifier as it is, without gradient."""
        return self._all_ratios(self.generator, class_proba_of(network, self.log), cells)


def make_adam(
    parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """Adam, fused where the device allows it."""
    parameters = list(parameters)
    fused = parameters[0].device.type in {"cpu", "cuda"}
    return torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=fused)
