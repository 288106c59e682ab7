"""An ensemble of networks and a linear network that predicts as one backbone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    r"""An average of networks, combined with a linear network: a backbone made of backbones.

    .. math:: p(x) \propto \left(\tfrac1K \sum_k p_k(x)\right)^{w_1} p_{\text{linear}}(x)^{w_2}

    Parameters
    ----------
    networks : sequence of nn.Module
        Each maps instances to class logits; :math:`p_k` is its softmax.
    linear : nn.Module or None
        Also maps instances to class logits; None uses only the averaged networks.

    Attributes
    ----------
    weights : tensor of shape (2,), or (1,) without a linear network
        Weights of the geometric mean; they sum to 1 and start equal.
    """

    weights: Tensor

    def __init__(self, networks: Sequence[nn.Module], linear: nn.Module | None = None) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.linear = linear
        n_members = 1 if linear is None else 2
        self.register_buffer("weights", torch.full((n_members,), 1.0 / n_members))

    def member_logits(self, x: Tensor) -> Tensor:
        """Class logits from each network, shape (n_networks, n, n_classes)."""
        return torch.stack([network(x) for network in self.networks])

    def forward(self, x: Tensor) -> Tensor:
        """Class logits of the ensemble, shape (n, n_classes)."""
        logits = self.member_logits(x)
        # In single precision the last digits would depend on a row's position in the batch.
        log_proba = logits.double().log_softmax(dim=2)
        joint = log_proba.logsumexp(dim=0) - math.log(len(self.networks))
        if self.linear is not None:
            linear_log_proba = self.linear(x).double().log_softmax(dim=1)
            joint = self.weights[0] * joint + self.weights[1] * linear_log_proba
        return joint.to(logits.dtype)

    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        """The first network's ``embed``, if any; embeddings of several networks have no mean."""
        return cast(Callable[[Tensor], Tensor], self.networks[0].embed)
