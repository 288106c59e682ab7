"""An ensemble of networks that predicts as one backbone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from manyhands.exceptions import AnnotationError
from manyhands.functional.ranks import over_ranks


class Ensemble(nn.Module):
    r"""An average of networks: a backbone made of backbones.

    .. math:: p(x) = \tfrac1K \sum_k p_k(x)

    Parameters
    ----------
    networks : sequence of nn.Module
        Each maps instances to class logits; :math:`p_k` is its softmax.

    Raises
    ------
    AnnotationError
        If a trainable parameter belongs to two of them: the members would not be independent.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        _check_distinct(networks)
        self.networks = nn.ModuleList(networks)

    def member_logits(self, x: Tensor) -> Tensor:
        """Return the class logits from each network, shape (n_networks, n, n_classes)."""

        def apply(part: Tensor) -> Tensor:
            return torch.stack([network(part) for network in self.networks])

        return over_ranks(self, apply, x, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits of the ensemble, shape (n, n_classes)."""
        logits = self.member_logits(x)
        # In single precision the last digits would depend on a row's position in the batch.
        log_proba = logits.double().log_softmax(dim=2)
        return (log_proba.logsumexp(dim=0) - math.log(len(self.networks))).to(logits.dtype)

    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        """The first network's ``embed``, if any; averaging different embeddings makes no sense."""
        return cast(Callable[[Tensor], Tensor], self.networks[0].embed)


def _check_distinct(networks: Sequence[nn.Module]) -> None:
    seen: set[int] = set()
    for network in networks:
        own = {id(p) for p in network.parameters() if p.requires_grad}
        if own & seen:
            raise AnnotationError(
                "the modules that the factory backbone returns share trainable parameters; make "
                "new ones at every call, or freeze the shared ones"
            )
        seen |= own
