"""Joint training of NeuCrowd's embedding and its sampling network (Section 3.4 of [1]_).

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from manyhands.fitting.context import Fit
from manyhands.fitting.embedding import EmbeddingClassifier, EmbeddingData
from manyhands.fitting.latent import SoftTargets
from manyhands.nn import FixedConfusionModule, SamplingNetwork
from manyhands.objectives import TupletLoss, hardness_error
from manyhands.sampling import TupletSampler
from manyhands.typing import AnyArray, FloatArray


class TupletModel(Protocol):
    """What the training reads of its classifier (`NeuCrowdClassifier` says what it means)."""

    classes_: AnyArray
    tuplet_size: int
    robust_anchor: bool
    normalize_anchor: bool
    sampling_network: bool
    n_candidates: int
    sampler_lr: float
    softmax: str
    eta: float
    similarity_constant: float
    reset_optimizer: bool

    def _make_optimizer(self, module: torch.nn.Module, /) -> torch.optim.Optimizer: ...


class TupletData(EmbeddingData):
    """What the embedding is learnt from, and the sampler of its tuplets.

    Attributes
    ----------
    tuplets : TupletSampler
    """

    def __init__(
        self,
        model: EmbeddingClassifier,
        fit: Fit[FixedConfusionModule, Any],
        targets: SoftTargets,
        tuplet_size: int,
    ) -> None:
        super().__init__(model, fit, targets)
        self.tuplets = TupletSampler(self.labels, tuplet_size)


class Candidates(NamedTuple):
    """Tuplets of shape (m, tuplet_size), and how many of them to learn from."""

    tuplets: Tensor
    n_kept: int


class TupletStep:
    """Joint training of the embedding and the sampling network (Section 3.4).

    Parameters
    ----------
    model : TupletModel
    data : EmbeddingData
    assurance : array of shape (n,)
    """

    def __init__(self, model: TupletModel, data: EmbeddingData, assurance: FloatArray) -> None:
        self.model = model
        self.data = data
        device = data.features.device
        self.assurance = torch.from_numpy(assurance).to(device, torch.float32)
        self.labels = torch.from_numpy(data.labels).to(device)
        self.losses = TupletLoss(
            len(model.classes_),
            robust_anchor=model.robust_anchor,
            normalize_anchor=model.normalize_anchor,
            eta=model.eta,
            constant=float(model.similarity_constant),
            form=model.softmax,
        )
        self.optimizer = model._make_optimizer(data.module)
        self.sampler: SamplingNetwork | None = None
        self.sampler_optimizer: torch.optim.Optimizer | None = None
        if model.sampling_network and model.n_candidates > 1:
            width = data.embedder.represented_width(data.features.input_shape)
            self.sampler = SamplingNetwork((width,), model.tuplet_size).to(device)
            self.sampler_optimizer = torch.optim.Adam(
                self.sampler.parameters(), lr=model.sampler_lr
            )

    def start_epoch(self, epoch: int) -> None:
        """Reset the optimiser if ``reset_optimizer`` asks for it."""
        if self.model.reset_optimizer and epoch:
            self.optimizer = self.model._make_optimizer(self.data.module)

    def __call__(self, batch: Candidates) -> dict[str, Tensor]:
        """Learn from the hardest candidates, and fit the sampling network (Steps 1 to 3)."""
        self.data.module.train()
        places, tuplets = torch.unique(batch.tuplets, return_inverse=True)
        x = self.data.embedder.scaler(self.data.take(places))
        if self.sampler is not None and batch.n_kept < len(tuplets):
            seen = self.data.embedder.represent(x)
            tuplets = tuplets[self._hardest(self.sampler, seen, tuplets, batch.n_kept)]
            used, tuplets = torch.unique(tuplets, return_inverse=True)
            places, x = places[used], x[used]
        embedding = self.data.network.embed(x)
        losses = self.losses(embedding, tuplets, self.assurance[places], self.labels[places])
        terms = {"tuplet_nll": losses.mean()}
        if self.sampler is not None:
            terms["hardness_error"] = self._learn_hardness(x, tuplets, losses.detach())
        self.optimizer.zero_grad(set_to_none=True)
        terms["tuplet_nll"].backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return {name: term.detach() for name, term in terms.items()}

    @staticmethod
    @torch.no_grad()
    def _hardest(sampler: SamplingNetwork, x: Tensor, tuplets: Tensor, n: int) -> Tensor:
        """Positions of the n tuplets predicted to be hardest (Step 1)."""
        return sampler(x, tuplets).topk(n).indices

    def _learn_hardness(self, x: Tensor, tuplets: Tensor, losses: Tensor) -> Tensor:
        """Fit the sampling network to the observed losses (Step 3)."""
        assert self.sampler is not None
        assert self.sampler_optimizer is not None
        predicted = self.sampler(self.data.embedder.represent(x), tuplets)
        error = hardness_error(predicted, losses)
        self.sampler_optimizer.zero_grad(set_to_none=True)
        error.backward()  # type: ignore[no-untyped-call]
        self.sampler_optimizer.step()
        if len(losses) > 1:
            both = torch.stack([predicted.detach(), losses])
            self.data.record("hardness_correlation", torch.corrcoef(both)[0, 1].nan_to_num(0.0))
        return error

    def state_dict(self) -> dict[str, Any]:
        """State of both optimisers and of the sampling network."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "n_steps": self.data.n_steps,
        }
        if self.sampler is not None and self.sampler_optimizer is not None:
            state["sampler"] = self.sampler.state_dict()
            state["sampler_optimizer"] = self.sampler_optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.data.n_steps = int(state["n_steps"])
        if self.sampler is not None and self.sampler_optimizer is not None:
            self.sampler.load_state_dict(state["sampler"])
            self.sampler_optimizer.load_state_dict(state["sampler_optimizer"])
