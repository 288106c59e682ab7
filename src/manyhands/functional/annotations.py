"""Likelihoods of annotations. Shapes: m observed pairs, n instances, r annotators, c classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def annotation_nll(
    log_proba: Tensor, labels: Tensor, weights: Tensor | None = None, focus: float = 0.0
) -> Tensor:
    """Return the mean negative log likelihood of observed annotations.

    Parameters
    ----------
    log_proba : tensor of shape (m, c)
        Log probability that the annotation of each observed pair is each class.
    labels : integer tensor of shape (m,)
    weights : tensor of shape (m,), optional
        Factors of the terms. Their mean should be 1 over all data. They are not normalised per
        batch, which would cancel the differences between small batches.
    focus : float
        Exponent of the focal factor (1 - p)^focus; 0 switches it off.
    """
    nll = focal_nll(log_proba.gather(1, labels[:, None])[:, 0], focus)
    return nll.mean() if weights is None else (nll * weights).mean()


def focal_nll(log_proba: Tensor, focus: float) -> Tensor:
    """Return the elementwise focal loss -(1 - p)^focus log p (Lin et al. 2017, Eq. 4).

    ``focus=0`` gives the plain negative log likelihood.
    """
    if not focus:
        return -log_proba
    # The clamp keeps 1 - p above 0, where the derivative of a power below 1 is infinite.
    rest = (-torch.expm1(log_proba)).clamp_min(torch.finfo(log_proba.dtype).eps)
    return -(rest**focus) * log_proba


def soft_cross_entropy(
    logits: Tensor, targets: Tensor, weights: Tensor | None = None, focus: float = 0.0
) -> Tensor:
    """Return the mean cross entropy of logits (n, c) against target distributions (n, c).

    Parameters
    ----------
    logits, targets : tensors of shape (n, c)
    weights : tensor of shape (n, c), optional
        Factors per instance and class, with a weighted mean of 1 over all data.
    focus : float
        Exponent of the focal factor; see `focal_nll`.
    """
    nll = focal_nll(logits.log_softmax(dim=1), focus)
    weighted = targets if weights is None else targets * weights
    return (weighted * nll).sum(dim=1).mean()


def apply_confusion(proba: Tensor, kernels: Tensor) -> Tensor:
    """Map class probabilities (m, c) to (m, c) by one kernel each, (m, c, c) [true, given]."""
    return torch.einsum("mc,mcg->mg", proba, kernels)


def mix_log_proba(gate_logit: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return log(g exp(first) + (1 - g) exp(second)) with g = sigmoid(gate_logit).

    ``gate_logit`` has shape (...), ``first`` and ``second`` have shape (..., c). The function takes
    the logit because the gradient of log g is not a number where g rounds to 0 or 1.
    """
    log_gate, log_rest = logsigmoid(gate_logit)[..., None], logsigmoid(-gate_logit)[..., None]
    return torch.logaddexp(log_gate + first, log_rest + second)


def confusion_gap(individual: Tensor, common: Tensor, *, squared: bool = False) -> Tensor:
    """Sum over annotators of the Frobenius norm of (individual - common).

    Parameters
    ----------
    individual : tensor of shape (r, c, c)
    common : tensor of shape (c, c)
    squared : bool
        Whether to sum the squared norms.

    Notes
    -----
    This is the regularisation term of CoNAL's final loss (Chu, Ma & Wang 2021, after Eq. 4). Where
    the difference is zero, so is the gradient.
    """
    difference = individual - common
    if squared:
        return difference.square().sum()
    return torch.linalg.vector_norm(difference, dim=(1, 2)).sum()


def information_gain(
    log_left: Tensor, log_right: Tensor, log_prior: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return both parts of a bound on the mutual information of two views of n instances.

    With P_ij = sum_c left_ic right_jc / prior_c, the parts are the mean of 1 + log P_ii over
    instances, and the mean of P_ij over pairs i != j (0 for a single instance). Max-MIG maximises
    the first minus the second (Cao et al. 2019, with the Kullback-Leibler divergence).

    Parameters
    ----------
    log_left, log_right : tensors of shape (n, c)
        Log probabilities of the classes according to each view.
    log_prior : tensor of shape (c,)
    weights : tensor of shape (n,), optional
        Weights of the instances; a pair weighs the product of its instances' weights.

    Notes
    -----
    The sum over pairs is computed from left_i @ sum_{j != i} right_j in n * c operations.
    """
    if weights is None:
        weights = log_left.new_ones(len(log_left))
    tiny = torch.finfo(log_left.dtype).tiny
    log_scaled = log_left - log_prior
    log_own = (log_scaled + log_right).logsumexp(dim=1)
    total = weights.sum()
    agreement = (weights * (1 + log_own)).sum() / total.clamp_min(tiny)
    right = weights[:, None] * log_right.exp()
    others = right.sum(dim=0) - right
    crossed = (weights * (log_scaled.exp() * others).sum(dim=1)).sum()
    pairs = (weights * (total - weights)).sum()
    return agreement, crossed / pairs.clamp_min(tiny)
