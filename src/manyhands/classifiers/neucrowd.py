"""NeuCrowd: an embedding learnt from n-tuplets of a few hundred labelled instances.

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
.. [2] G. Xu, W. Ding, J. Tang, S. Yang, G. Y. Huang and Z. Liu. Learning effective embeddings from
   crowdsourced labels: an educational case study. ICDE 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import isqrt
from numbers import Integral, Real
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from manyhands.annotations import label_assurance
from manyhands.fitting.aggregation import targets_of_network
from manyhands.fitting.context import Fit
from manyhands.fitting.embedding import (
    CrowdEmbedding,
    EmbeddingClassifier,
    EmbeddingData,
    EmbeddingFit,
    EmbeddingProtocol,
)
from manyhands.fitting.latent import SoftTargets, balancing_rng
from manyhands.fitting.method_protocol import ProtocolOf
from manyhands.functional import SOFTMAX_FORMS
from manyhands.inference import MajorityVote
from manyhands.nn import FixedConfusionModule, SamplingNetwork
from manyhands.objectives import TupletLoss, hardness_error
from manyhands.sampling import TupletSampler, safe_instances
from manyhands.training import Stage
from manyhands.typing import FloatArray

PROBE_TUPLETS = 1024
"""Number of tuplets of the metric ``probe_nll``."""

TUPLETS_PER_INSTANCE = 10
"""Number of tuplets per instance and epoch with ``n_tuplets="auto"``."""


@dataclass(frozen=True, kw_only=True, repr=False)
class NeuCrowdProtocol(EmbeddingProtocol):
    r"""Protocol of `NeuCrowdClassifier`: variants, ablations, and sizes of its samples.

    Parameters
    ----------
    reset_optimizer, monitor, patience, regression, C, cv, targets
        See `manyhands.fitting.embedding.EmbeddingProtocol`.
    tuplet_size : int, default=5
        Number n of instances in a tuplet. With 3, the smallest number, tuplets are triplets.
    safety_aware : bool, default=True
        Draw safe instances (Def. 3) more often than others, from the second epoch on.
    unsafe_weight : float, default=0.3
        Sampling weight of unsafe instances, relative to safe ones; 0: they are never drawn. If
        fewer than two instances of a class are safe, all its instances are drawn equally often.
    n_neighbors : int or "auto", default="auto"
        k of Def. 3; "auto": the square root of ``batch_size``.
    safety_margin : float, default=0.0
        :math:`\delta` of Def. 3.
    robust_anchor : bool, default=True
        Compare with the robust anchor of the class (Def. 4) instead of the anchor itself.
    normalize_anchor : bool, default=True
        If True, the robust anchor is the mean of the embeddings; if False, their sum, as printed.
    sampling_network : bool, default=True
        From the second epoch on, draw ``n_candidates`` times as many tuplets and learn from those
        that the sampling network predicts to be hardest. With ``n_candidates=1`` there is no
        sampling network.
    n_candidates : int, default=2
        Size of the pool of candidates, in batches.
    sampler_lr : float, default=1e-3
        Learning rate of the sampling network.
    assurance : bool, default=True
        Weight similarities and anchors by the assurance of the labels. With False, all have equal
        weights.
    softmax : {"paper", "code"}, default="paper"
        Where the assurance enters the softmax; see `manyhands.functional.tuplet_nll`.
    eta, similarity_constant : float, default=5.0, 1.0
        :math:`\eta` and :math:`C` of Section 3.3.3.
    """

    _constraints = {
        **EmbeddingProtocol._constraints,
        "tuplet_size": [Interval(Integral, 3, None, closed="left")],
        "safety_aware": ["boolean"],
        "unsafe_weight": [Interval(Real, 0, 1, closed="both")],
        "n_neighbors": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "safety_margin": [Interval(Real, 0, None, closed="left")],
        "robust_anchor": ["boolean"],
        "normalize_anchor": ["boolean"],
        "sampling_network": ["boolean"],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
        "sampler_lr": [Interval(Real, 0, None, closed="neither")],
        "assurance": ["boolean"],
        "softmax": [StrOptions(set(SOFTMAX_FORMS))],
        "eta": [Interval(Real, 0, None, closed="neither")],
        "similarity_constant": [Interval(Real, None, None, closed="neither")],
    }

    tuplet_size: int = 5
    safety_aware: bool = True
    unsafe_weight: float = 0.3
    n_neighbors: int | str = "auto"
    safety_margin: float = 0.0
    robust_anchor: bool = True
    normalize_anchor: bool = True
    sampling_network: bool = True
    n_candidates: int = 2
    sampler_lr: float = 1e-3
    assurance: bool = True
    softmax: str = "paper"
    eta: float = 5.0
    similarity_constant: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class NeuCrowdClassifier(EmbeddingClassifier):
    r"""Learn an embedding from n-tuplets, then a logistic regression on it (NeuCrowd) [1]_.

    A tuplet is an anchor, an instance of the same class (the positive) and ``tuplet_size - 2``
    instances of other classes (the negatives). A few hundred instances suffice for any number of
    tuplets. The embedding network learns to place the positive nearer to the anchor than the
    negatives. Similarities are weighted by the agreement of the annotators. The anchors of a batch
    are merged into one robust anchor per class. Instances are drawn more often if their neighbours
    in the embedding have the same class. A second network learns to predict which tuplets are
    hard, and selects them.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        The embedding network. None is ``"embedding"``: dropout of the features, 128 tanh units, 32
        linear units. Any network with ``embed`` will do; without ``embed``, its output is the
        embedding.
    aggregator : BaseAggregator or None, default=None
        Truth inference, which gives labels and their assurance. None is `MajorityVote`, as in the
        paper, with `label_assurance`. With another aggregator the assurance is
        (C max p - 1) / (C - 1), where p is its posterior.
    n_tuplets : int or "auto", default="auto"
        Number of tuplets per epoch. "auto": ten per instance that can be drawn, because a network
        memorises few instances sooner. The paper's code uses 60,000.
    batch_size : int, default=256
        Tuplets per batch.
    max_epochs, lr, weight_decay, class_balance, scaling, device, random_state, \
verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``class_balance`` acts on the regression;
        anchors are drawn equally often from all classes.
    protocol : NeuCrowdProtocol or None, default=None
        Variants and details of published experiments; None means `NeuCrowdProtocol()`.

    Attributes
    ----------
    C_ : float
        The regression's C.
    aggregator_ : BaseAggregator
        The fitted aggregator; `MajorityVote` if none was given.
    confusion_, class_prior_
        See `AggregatedClassifier`.

    Notes
    -----
    ``history_`` logs two loss terms: ``tuplet_nll`` (of the tuplets learnt from) and
    ``hardness_error`` (squared error of the sampling network). It also logs ``safe_share`` (share
    of safe instances), ``hardness_correlation`` (between predicted and actual losses, mean over
    batches), ``step`` (updates so far), ``C``, and ``probe_nll``: the loss, without dropout, of a
    fixed set of evenly drawn tuplets, each with its own anchor. Compare variants by ``probe_nll``.
    With ``validation``, the epoch is chosen with C = 0.1, and C afterwards. Instances whose
    inferred classes tie enter no tuplet.

    References
    ----------
    .. [1] Hao, Ding & Liu, NeuCrowd, Knowledge and Information Systems 2022.

    Examples
    --------
    >>> from manyhands import NeuCrowdClassifier, load_demo
    >>> demo = load_demo()
    >>> model = NeuCrowdClassifier(max_epochs=1, n_tuplets=256, random_state=0)
    >>> model = model.set_params(protocol__C=0.1)
    >>> model.fit(demo.X_train, demo.annotations).transform(demo.X_test).shape[1]
    32
    """

    _parameter_constraints = {
        **EmbeddingClassifier._parameter_constraints,
        "n_tuplets": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    }

    n_tuplets: int | str = "auto"
    batch_size: int = 256
    protocol: NeuCrowdProtocol | None = None

    _protocol = ProtocolOf(NeuCrowdProtocol)

    def _prepare(self, fit: EmbeddingFit) -> TupletData:
        return TupletData(self, fit, targets_of_network(self, fit), self._protocol.tuplet_size)

    def _stages(self, fit: EmbeddingFit) -> list[Stage]:
        data = cast(TupletData, fit.state)
        return [self._embedding_stage(fit, self._step(data), partial(self._batches, data))]

    def _step(self, data: TupletData) -> TupletStep:
        return TupletStep(self, data, self._assurance(data))

    def _assurance(self, data: EmbeddingData) -> FloatArray:
        """Return the assurance of every instance's label, in [0, 1], shape (n,) (Def. 2)."""
        if not self._protocol.assurance:
            return np.ones(len(data))
        if self.aggregator is None or isinstance(self.aggregator, MajorityVote):
            return label_assurance(data.table)[data.order]
        n_classes = len(self.classes_)
        top = data.posterior.max(axis=1)
        return np.clip((n_classes * top - 1) / (n_classes - 1), 0.0, 1.0)

    def _batches(self, data: TupletData, epoch: int) -> Iterator[CandidateTuplets]:
        """Yield pools of candidates (Step 1 of Section 3.4 chooses from them)."""
        rng = balancing_rng(epoch, 1)
        weights = self._sampling_weights(data) if epoch and self._protocol.safety_aware else None
        pool = self._protocol.n_candidates if epoch and self._protocol.sampling_network else 1
        n_known = int((data.labels >= 0).sum())
        n_tuplets = (
            TUPLETS_PER_INSTANCE * n_known if self.n_tuplets == "auto" else int(self.n_tuplets)
        )
        tuplets = torch.from_numpy(data.tuplets.draw(n_tuplets * pool, rng, weights))
        for part in torch.split(tuplets.to(data.features.device), self.batch_size * pool):
            yield CandidateTuplets(part, len(part) // pool)
        data.facts["probe_nll"] = self._probe_loss(data)

    @torch.no_grad()
    def _probe_loss(self, data: TupletData) -> float:
        """Return the loss of a fixed set of tuplets, comparable over epochs and variants."""
        probe = torch.from_numpy(data.tuplets.draw(PROBE_TUPLETS, balancing_rng(0, 3)))
        loss = TupletLoss(
            len(self.classes_),
            robust_anchor=False,
            eta=self._protocol.eta,
            constant=float(self._protocol.similarity_constant),
        )
        device = data.features.device
        assurance = torch.from_numpy(self._assurance(data)).to(device, torch.float32)
        labels = torch.from_numpy(data.labels).to(device)
        return float(loss(data.embedded(), probe.to(device), assurance, labels).mean())

    def _sampling_weights(self, data: EmbeddingData) -> FloatArray:
        """Return the weights with which instances are drawn: more for safe ones (Section 3.3.1)."""
        known = np.flatnonzero(data.labels >= 0)
        embedding = data.embedded()[torch.from_numpy(known)].cpu().numpy()
        asked = self._protocol.n_neighbors
        k = isqrt(self.batch_size) if asked == "auto" else int(asked)
        safe = safe_instances(
            embedding,
            data.labels[known],
            self._assurance(data)[known],
            n_neighbors=max(1, k),
            margin=self._protocol.safety_margin,
        )
        data.facts["safe_share"] = float(safe.mean())
        weights = np.zeros(len(data))
        weights[known] = np.where(safe, 1.0, self._protocol.unsafe_weight)
        # An anchor needs a positive: with fewer than two safe instances a class is drawn evenly.
        n_safe = np.bincount(data.labels[known], safe, len(self.classes_))
        weights[known[n_safe[data.labels[known]] < 2]] = 1.0
        return weights


@dataclass(kw_only=True, eq=False, repr=False)
class NeuCrowdEmbedding(CrowdEmbedding):
    """The embedding of `NeuCrowdClassifier` as a scikit-learn transformer [1]_.

    ``fit(X, table)`` learns the embedding from annotations; ``transform(X)`` embeds instances for
    nearest neighbours, clustering or plots, or as a step of a pipeline. End the pipeline in a crowd
    classifier such as ``AggregatedClassifier(backbone=KNeighborsClassifier(), protocol=hard)`` with
    ``hard = AggregatedProtocol(targets="hard")``: a scikit-learn classifier would take the
    annotations for several outputs. To save the model or resume its training, use
    `NeuCrowdClassifier`, which has ``transform`` too.

    Parameters
    ----------
    backbone, aggregator, n_tuplets, max_epochs, batch_size, lr, weight_decay, scaling, device, \
random_state, verbose, protocol
        See `NeuCrowdClassifier`. Fields of the protocol about the regression have no effect.

    Attributes
    ----------
    classifier_ : NeuCrowdClassifier
        The classifier that learnt the embedding.
    history_ : History

    References
    ----------
    .. [1] Hao, Ding & Liu, NeuCrowd, Knowledge and Information Systems 2022.

    Examples
    --------
    >>> from manyhands import NeuCrowdEmbedding, load_demo
    >>> demo = load_demo()
    >>> embedding = NeuCrowdEmbedding(max_epochs=1, n_tuplets=256, random_state=0)
    >>> embedding.fit(demo.X_train, demo.annotations).transform(demo.X_test[:3]).shape
    (3, 32)
    """

    _classifier = NeuCrowdClassifier

    n_tuplets: int | str = "auto"
    batch_size: int = 256
    protocol: NeuCrowdProtocol | None = None

    _protocol = ProtocolOf(NeuCrowdProtocol)


# -- joint training of the embedding and the sampling network (Section 3.4 of [1]_) ---------------


class TupletData(EmbeddingData):
    """The training data of the embedding, and the sampler of its tuplets.

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


class CandidateTuplets(NamedTuple):
    """Tuplets of shape (m, tuplet_size), and how many of them to learn from."""

    tuplets: Tensor
    n_kept: int


class TupletStep:
    """Joint training of the embedding and the sampling network (Section 3.4).

    Parameters
    ----------
    model : NeuCrowdClassifier
    data : EmbeddingData
    assurance : array of shape (n,)
    """

    def __init__(
        self, model: NeuCrowdClassifier, data: EmbeddingData, assurance: FloatArray
    ) -> None:
        self.model = model
        self.data = data
        device = data.features.device
        self.assurance = torch.from_numpy(assurance).to(device, torch.float32)
        self.labels = torch.from_numpy(data.labels).to(device)
        self.losses = TupletLoss(
            len(model.classes_),
            robust_anchor=model._protocol.robust_anchor,
            normalize_anchor=model._protocol.normalize_anchor,
            eta=model._protocol.eta,
            constant=float(model._protocol.similarity_constant),
            form=model._protocol.softmax,
        )
        self.optimizer = data.recipe.make_optimizer(data.module)
        self.sampler: SamplingNetwork | None = None
        self.sampler_optimizer: torch.optim.Optimizer | None = None
        if model._protocol.sampling_network and model._protocol.n_candidates > 1:
            width = data.embedder.represented_width(data.features.input_shape)
            self.sampler = SamplingNetwork((width,), model._protocol.tuplet_size).to(device)
            self.sampler_optimizer = torch.optim.Adam(
                self.sampler.parameters(), lr=model._protocol.sampler_lr
            )

    def start_epoch(self, epoch: int) -> None:
        """Reset the optimiser if ``reset_optimizer`` asks for it."""
        if self.data.recipe.reset_optimizer and epoch:
            self.optimizer = self.data.recipe.make_optimizer(self.data.module)

    def __call__(self, batch: CandidateTuplets) -> dict[str, Tensor]:
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
        """Return the positions of the n tuplets predicted to be hardest (Step 1)."""
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
        """Return the state of both optimisers and of the sampling network."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "n_steps": self.data.n_steps,
        }
        if self.sampler is not None and self.sampler_optimizer is not None:
            state["sampler"] = self.sampler.state_dict()
            state["sampler_optimizer"] = self.sampler_optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.data.n_steps = int(state["n_steps"])
        if self.sampler is not None and self.sampler_optimizer is not None:
            self.sampler.load_state_dict(state["sampler"])
            self.sampler_optimizer.load_state_dict(state["sampler_optimizer"])
