"""One linear head per annotator on a shared embedding: each annotator's own classifier.

.. [1] M. Y. Guan, V. Gulshan, A. M. Dai and G. E. Hinton. Who said what: modeling individual
   labelers improves classification. AAAI 2018.
.. [2] H. Kajino, Y. Tsuboi and H. Kashima. Clustering crowds. AAAI 2013.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from manyhands.nn.backbones import BACKBONES, blank
from manyhands.nn.base import CrowdModule, ScaledClassifier

HEAD_ENTRIES = 1 << 24
"""Maximal size of an (n, R, C) block of head outputs computed at once: 64 MiB."""
GATHERED_ENTRIES = 1 << 22
"""Maximal size of an (m, E, C) block of gathered heads multiplied at once: 16 MiB."""


class AnnotatorHeadsModule(CrowdModule):
    """A classifier for the true classes, and one linear head per annotator for the annotations.

    Notation: m observed pairs, n instances, R annotators, C classes, E embedding dimensions.

    Parameters
    ----------
    classifier : ScaledClassifier
        The heads take its embedding, or its output if the backbone has no ``embed``.
    n_classes, n_annotators : int
    input_shape : sequence of int
        Shape of one instance, used to find the size of the embedding.

    Attributes
    ----------
    weight : tensor of shape (R, E, C)
    bias : tensor of shape (R, C)
    """

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        input_shape: Sequence[int],
    ) -> None:
        super().__init__(classifier)
        self.n_classes = n_classes
        width = self._embedding_width(input_shape)
        # All heads start from one draw (as nn.Linear's), so the order of annotators is irrelevant.
        bound = 1 / sqrt(width)
        weight = torch.empty(width, n_classes).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight.repeat(n_annotators, 1, 1))
        bias = torch.empty(n_classes).uniform_(-bound, bound)
        self.bias = nn.Parameter(bias.repeat(n_annotators, 1))

    def _embedding_width(self, input_shape: Sequence[int]) -> int:
        """Find the embedding dimension with an instance of zeros."""
        modes = [(part, part.training) for part in self.classifier.modules()]
        self.classifier.eval()
        with torch.no_grad():
            width = self.embed(blank(input_shape)).shape[1]
        for part, mode in modes:
            part.training = mode
        return width

    def embed(self, x: Tensor) -> Tensor:
        """Embed instances as the input of the heads, shape (n, E)."""
        embeds = hasattr(self.classifier.backbone, "embed")
        z = self.classifier.embed(x) if embeds else self.classifier(x)
        return z.flatten(1)

    def head_log_proba(self, z: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities from one annotator's head per row of z, shape (m, C)."""
        size = max(1, GATHERED_ENTRIES // self.weight[0].numel())
        logits = torch.cat(
            [
                self._gathered_logits(*part)
                for part in zip(torch.split(z, size), torch.split(annotators, size), strict=True)
            ]
        )
        return logits.log_softmax(dim=1)

    def _gathered_logits(self, z: Tensor, annotators: Tensor) -> Tensor:
        # The backward pass of an embedding look-up is faster than that of indexing.
        heads = F.embedding(annotators, self.weight.flatten(1))
        kernels = heads.view(len(z), -1, self.n_classes)
        return torch.einsum("me,mec->mc", z, kernels) + F.embedding(annotators, self.bias)

    def head_log_proba_grid(self, z: Tensor, annotators: Tensor | None = None) -> Tensor:
        """Return the log probabilities from r annotators' heads (default: all), (n, r, C)."""
        chosen = slice(None) if annotators is None else annotators
        logits = torch.einsum("ne,rec->nrc", z, self.weight[chosen]) + self.bias[chosen]
        return logits.log_softmax(dim=2)

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of annotations, shape (m, n_classes)."""
        return self.head_log_proba(self.embed(x)[rows], annotators)

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all pairs, shape (n, r, n_classes)."""
        return self.head_log_proba_grid(self.embed(x), annotators)

    def expected_confusion(self, batches: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """Return the confusion matrices under the model.

        Row c of annotator r is the mean output of its head over the instances it annotated, each
        weighted by the probability that its true class is c. Rows without mass, and annotators
        without annotations, get the rows pooled over all annotations.

        Parameters
        ----------
        batches : iterable of (x, rows, annotators)
            Instances and the annotators who annotated them.

        Returns
        -------
        tensor of shape (R, C, C), [annotator, true, given]
            In float64; rows sum to 1.
        """
        n_annotators, n_classes = self.bias.shape
        total = self.weight.new_zeros((n_annotators, n_classes, n_classes), dtype=torch.float64)
        for x, rows, annotators in batches:
            proba = self(x).double().softmax(dim=1)[rows]
            given = self.annotation_log_proba(x, rows, annotators).double().exp()
            total.index_add_(0, annotators, torch.einsum("mc,mg->mcg", proba, given))
        pooled = total.sum(dim=0)
        # A class that has no mass in the pooled counts either gets a uniform row.
        pooled = torch.where(pooled.sum(dim=1, keepdim=True) > 0, pooled, torch.ones_like(pooled))
        total = torch.where(total.sum(dim=2, keepdim=True) > 0, total, pooled)
        return total / total.sum(dim=2, keepdim=True)


class DoctorNetModule(AnnotatorHeadsModule):
    """The distribution of the true class is the (weighted) average of the heads [1]_.

    Parameters
    ----------
    classifier, n_classes, n_annotators, input_shape
        See `AnnotatorHeadsModule`. If the backbone is one of `BACKBONES`, the heads replace its
        last layer.
    learned : bool
        Whether the weights are trainable; if not, all are equal.

    Attributes
    ----------
    weight_logits : tensor of shape (R,)
        w; the weights of the average are softmax(w).
    active : boolean tensor of shape (R,)
        Annotators with annotations. The heads of the others learn nothing and are ignored.
    """

    active: Tensor

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        input_shape: Sequence[int],
        learned: bool = False,
    ) -> None:
        if type(classifier.backbone) in BACKBONES.values():
            classifier.backbone.head = nn.Identity()
        super().__init__(classifier, n_classes, n_annotators, input_shape=input_shape)
        self.weight_logits = nn.Parameter(torch.zeros(n_annotators), requires_grad=learned)
        self.register_buffer("active", torch.ones(n_annotators, dtype=torch.bool))

    def log_weights(self, left_out: Tensor | None = None) -> Tensor:
        """Return the log weights of the heads, -inf for inactive annotators.

        Parameters
        ----------
        left_out : boolean tensor of shape (n, R), optional
            Heads to ignore for each instance; the weights of the others are renormalised. Where
            no active annotator would be left, all active ones are used.

        Returns
        -------
        tensor of shape (R,), or (n, R) with ``left_out``
        """
        counted = self.active
        if left_out is not None:
            counted = self.active & ~left_out
            counted = counted | (self.active & ~counted.any(dim=1, keepdim=True))
        logits = self.weight_logits.expand(counted.shape)
        return logits.masked_fill(~counted, -torch.inf).log_softmax(dim=-1)

    def average_log_proba(
        self, z: Tensor, left_out: Tensor | None = None, *, frozen_heads: bool = False
    ) -> Tensor:
        """Return the log of the weighted mean of the heads' probabilities.

        This needs every head's output for every instance. If (n, R, C) is large, it is computed
        in blocks of instances and recomputed in the backward pass to save memory.

        Parameters
        ----------
        z : tensor of shape (n, E)
        left_out : see `log_weights`
        frozen_heads : bool
            Compute gradients for the weights only, not for the heads.

        Returns
        -------
        tensor of shape (n, C)
        """
        log_weights = self.log_weights(left_out).expand(len(z), -1)
        size = max(1, HEAD_ENTRIES // self.bias.numel())
        parts = [
            (*part, frozen_heads)
            for part in zip(torch.split(z, size), torch.split(log_weights, size), strict=True)
        ]
        if len(parts) > 1 and torch.is_grad_enabled():
            return torch.cat([checkpoint(self._average, *p, use_reentrant=False) for p in parts])
        return torch.cat([self._average(*part) for part in parts])

    def _average(self, z: Tensor, log_weights: Tensor, frozen_heads: bool) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen_heads):
            heads = self.head_log_proba_grid(z)
        return torch.logsumexp(heads + log_weights[:, :, None], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, (n, n_classes); their softmax is the weighted mean of heads."""
        return self.average_log_proba(self.embed(x))

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of annotations, (m, n_classes).

        Annotators without training annotations get the mean of the others.
        """
        z = self.embed(x)
        own = self.head_log_proba(z[rows], annotators)
        inactive = ~self.active[annotators]
        if not inactive.any():
            return own
        return torch.where(inactive[:, None], self.average_log_proba(z)[rows], own)

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all pairs, shape (n, r, n_classes)."""
        z = self.embed(x)
        own = self.head_log_proba_grid(z, annotators)
        inactive = ~self.active[annotators]
        if not inactive.any():
            return own
        return torch.where(inactive[:, None], self.average_log_proba(z)[:, None], own)
