"""Objectives of the crowd models."""

from __future__ import annotations

from torch import Tensor

from manyhands.functional import annotation_nll, confusion_gap, soft_cross_entropy
from manyhands.nn import CommonNoiseModule, CrowdModule
from manyhands.training import CrowdBatch


def crowd_nll(module: CrowdModule, batch: CrowdBatch, *, focus: float = 0.0) -> dict[str, Tensor]:
    """``nll``: mean negative log likelihood of the batch's annotations.

    ``focus`` is the exponent of a focal factor; see `focal_nll`.
    """
    log_proba = module.annotation_log_proba(batch.x, batch.rows, batch.annotators)
    return {"nll": annotation_nll(log_proba, batch.labels, batch.weights, focus)}


def common_noise_objective(
    module: CommonNoiseModule,
    batch: CrowdBatch,
    *,
    gap_weight: float,
    squared: bool,
    focus: float = 0.0,
) -> dict[str, Tensor]:
    """CoNAL's final loss: ``nll`` and ``confusion_gap`` = -gap_weight * sum_r |W_r - W_g|.

    The minus sign, lost in the printed formula, is the prose's ("enforce them to be different").
    """
    gap = confusion_gap(module.individual, module.common, squared=squared)
    return {**crowd_nll(module, batch, focus=focus), "confusion_gap": -gap_weight * gap}


def soft_label_objective(
    module: CrowdModule,
    batch: CrowdBatch,
    targets: Tensor,
    weights: Tensor | None = None,
    focus: float = 0.0,
) -> dict[str, Tensor]:
    """``cross_entropy`` against target distributions.

    Parameters
    ----------
    module : CrowdModule
    batch : CrowdBatch
    targets : tensor of shape (n_instances, n_classes)
    weights : tensor of shape (n_instances, n_classes), optional
    focus : float
        See `soft_cross_entropy`.
    """
    own = batch.instances
    loss = soft_cross_entropy(
        module(batch.x), targets[own], None if weights is None else weights[own], focus
    )
    return {"cross_entropy": loss}
