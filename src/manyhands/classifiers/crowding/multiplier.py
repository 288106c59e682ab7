"""The Lagrange multiplier mu of CrowdInG's Eq. 5 and 6: fixed, a mean cost, or searched.

.. [1] T. Joachims, A. Swaminathan and M. de Rijke. Deep learning with logged bandit feedback.
   ICLR 2018.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn

from manyhands.classifiers.crowding.counterfactual import RiskGradient, make_adam
from manyhands.objectives import self_normalized_risk

MU_GRID = (0.5, 0.25, 0.75, 0.1, 0.9)
"""Quantiles of the logged costs among which mu is searched. On ties, the first wins."""

MU_SEARCHES = 5
"""Number of epochs in which mu is searched. Later epochs use what was found."""

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
        Multipliers by network. A network without cells to learn from may have none.
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
        """Forget the multipliers of the last epoch."""
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
        """Choose mu by the self-normalised risk [1]_ of a network that learnt with it.

        For every candidate, a copy of the network learns from the cells of every other instance,
        and is judged on the cells of the remaining ones. In one log the differences between
        candidates are small compared with their noise. Their risks, minus that of the first
        candidate, are therefore summed over the epochs.

        Parameters
        ----------
        name : {"generator", "classifier"}
        gradient : RiskGradient
        attempt : callable (learnt, judged, mu) -> tensor
            Importance ratios of the cells ``judged`` after learning from the cells ``learnt``.
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
    """Importance ratios of some cells after a copy of the network has learnt from others."""
    trial = copy.deepcopy(network)
    optimizer = make_adam(trial.parameters(), lr)
    for _ in range(n_steps):
        optimizer.zero_grad(set_to_none=True)
        gradient.backward(trial, learnt, mu)
        optimizer.step()
    return gradient.ratios(trial, judged)


def _quantiles(cost: Tensor) -> list[float]:
    """Candidates for mu: quantiles of the costs."""
    # torch.quantile refuses more than 2^24 numbers.
    ordered = cost.sort().values
    return [float(ordered[round(q * (len(ordered) - 1))]) for q in MU_GRID]
