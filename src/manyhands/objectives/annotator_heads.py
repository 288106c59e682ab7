"""Objectives of models with one linear head per annotator.

.. [1] M. Y. Guan, V. Gulshan, A. M. Dai and G. E. Hinton. Who said what: modeling individual
   labelers improves classification. AAAI 2018.
.. [2] H. Kajino, Y. Tsuboi and H. Kashima. Clustering crowds. AAAI 2013.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from manyhands.functional import annotation_nll
from manyhands.nn import DoctorNetModule
from manyhands.training import CrowdBatch


def annotator_average_nll(
    module: DoctorNetModule, batch: CrowdBatch, *, exclude_own: bool, focus: float = 0.0
) -> dict[str, Tensor]:
    """Return ``average_nll``: cross entropy of the weighted mean of heads and the mean annotation.

    The target is the mean of an instance's one-hot annotations (Eq. 7 of DASC's paper, on Weighted
    Doctor Net). The loss is written as a sum over annotations, each of which weighs 1 over the
    number of its instance's annotations. Only the averaging weights receive a gradient; trunk and
    heads are frozen.

    Parameters
    ----------
    module : DoctorNetModule
    batch : CrowdBatch
    exclude_own : bool
        Whether to leave out, for each instance, the heads of the annotators who annotated it: they
        have learned these labels [1]_.
    focus : float
        Exponent of a focal factor; see `focal_nll`.
    """
    weights = torch.ones_like(batch.labels, dtype=torch.float32)
    if batch.weights is not None:
        weights = batch.weights
    seen = weights > 0
    with torch.no_grad():
        z = module.embed(batch.x)
    left_out = None
    if exclude_own:
        left_out = torch.zeros((len(z), len(module.active)), dtype=torch.bool, device=z.device)
        left_out[batch.rows[seen], batch.annotators[seen]] = True
    log_proba = module.average_log_proba(z, left_out, frozen_heads=True)[batch.rows]
    share = 1 / torch.bincount(batch.rows[seen], minlength=len(z)).clamp_min(1)
    own = weights * share[batch.rows]
    own = own / own.mean().clamp_min(torch.finfo(own.dtype).tiny)
    return {"average_nll": annotation_nll(log_proba, batch.labels, own, focus)}


class AnnotatorGroup(NamedTuple):
    """Annotators with similar numbers of annotations, padded to the same number.

    Attributes
    ----------
    annotators : integer tensor of shape (a,)
    x : tensor of shape (a, p, d)
        The instances they annotated, padded with zeros to p.
    labels : integer tensor of shape (a, p)
    weights : tensor of shape (a, p)
        0 where there is no annotation.
    """

    annotators: Tensor
    x: Tensor
    labels: Tensor
    weights: Tensor


def group_annotators(x: Tensor, batch: CrowdBatch) -> list[AnnotatorGroup]:
    """Group a batch by annotator, so that a few large matrix products suffice.

    Annotators with p/2 to p annotations are padded to p, a power of two. The groups therefore have
    fewer than twice as many rows as there are observed pairs.

    Parameters
    ----------
    x : tensor of shape (n, d)
        Features that the batch's ``rows`` index.
    batch : CrowdBatch
    """
    order = batch.annotators.argsort(stable=True)
    found, counts = torch.unique_consecutive(batch.annotators[order], return_counts=True)
    first = counts.cumsum(0) - counts
    given = x.new_ones(len(order)) if batch.weights is None else batch.weights.to(x.dtype)
    groups = []
    sizes = [1 << (count - 1).bit_length() for count in counts.tolist()]
    for size in sorted(set(sizes)):
        members = torch.tensor([s == size for s in sizes], device=x.device)
        place = torch.arange(size, device=x.device)
        there = place < counts[members, None]
        pair = order[(first[members, None] + place).where(there, 0)]
        own = x[batch.rows[pair]] * there[:, :, None]
        groups.append(AnnotatorGroup(found[members], own, batch.labels[pair], given[pair] * there))
    return groups


def personal_nll(weights: Tensor, groups: Iterable[AnnotatorGroup]) -> Tensor:
    """Return the negative log likelihood of annotations under one linear model per annotator [2]_.

    The likelihoods are summed over annotations.

    Parameters
    ----------
    weights : tensor of shape (R, d, k)
        The logits of annotator r are x @ weights[r]. With k = 1 they are those of the second of two
        classes (the first has logits of 0), which is the published binary form.
    groups : iterable of AnnotatorGroup
        Groups whose ``annotators`` index ``weights``.
    """
    total = weights.new_zeros(())
    for group in groups:
        logits = torch.bmm(group.x, weights[group.annotators])
        if logits.shape[2] == 1:
            logits = F.pad(logits, (1, 0))
        nll = F.cross_entropy(logits.flatten(0, 1), group.labels.flatten(), reduction="none")
        total = total + nll @ group.weights.flatten()
    return total


def fusion_norm(weights: Tensor) -> Tensor:
    """Return the sum of Frobenius norms of the differences of all pairs of weights [2]_.

    ``weights`` has shape (N, d, k).
    """
    flat = weights.flatten(1)
    total = flat.new_zeros(())
    for i in range(len(flat) - 1):
        total = total + torch.linalg.vector_norm(flat[i] - flat[i + 1 :], dim=1).sum()
    return total


def group_soft_threshold(values: Tensor, threshold: float) -> Tensor:
    """Reduce the Frobenius norm of each values[i] by ``threshold``, down to 0 at most.

    This is the proximal operator of threshold * norm: the u that minimises
    ``threshold * |u| + |u - values[i]|^2 / 2``.

    Parameters
    ----------
    values : tensor of shape (p, ...)
    threshold : float, at least 0
    """
    norms = torch.linalg.vector_norm(values.flatten(1), dim=1)
    # The clamp avoids 0 / 0.
    factor = (1 - threshold / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_min(0)
    return values * factor.view(-1, *(1 for _ in values.shape[1:]))
