"""Several networks, and a linear one, that predict as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    r"""Networks that are averaged, and a linear one beside them: a backbone made of backbones.

    .. math:: p(x) \propto \left(\tfrac1K \sum_k p_k(x)\right)^{w_1} p_{\text{linear}}(x)^{w_2}

    Parameters
    ----------
    networks : sequence of nn.Module
        Each from instances to class logits; :math:`p_k` is its softmax.
    linear : nn.Module or None
        Likewise; None leaves the averaged networks alone.

    Attributes
    ----------
    weights : tensor of shape (2,), or (1,) without a linear network
        Of the geometric mean; they sum to 1. All equal at first.
    """

    weights: Tensor

    def __init__(self, networks: Sequence[nn.Module], linear: nn.Module | None = None) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.linear = linear
        n_members = 1 if linear is None else 2
        self.register_buffer("weights", torch.full((n_members,), 1.0 / n_members))

    def member_logits(self, x: Tensor) -> Tensor:
        """Class logits by every network, shape (n_networks, n, n_classes)."""
        return torch.stack([network(x) for network in self.networks])

    def forward(self, x: Tensor) -> Tensor:
        """Class logits of all together, shape (n, n_classes)."""
        logits = self.member_logits(x)
        # In double precision: in single, the last digits depend on a row's place in the batch.
        each = logits.double().log_softmax(dim=2)
        joint = each.logsumexp(dim=0) - math.log(len(self.networks))
        if self.linear is not None:
            beside = self.linear(x).double().log_softmax(dim=1)
            joint = self.weights[0] * joint + self.weights[1] * beside
        return joint.to(logits.dtype)

    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        """The first network's embedding, where it has one: networks share no space to average."""
        return cast(Callable[[Tensor], Tensor], self.networks[0].embed)
