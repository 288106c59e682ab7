"""Objectives of the crowd models."""

from __future__ import annotations

from torch import Tensor

from manyhands.functional import annotation_nll, confusion_gap, soft_cross_entropy
from manyhands.nn import CommonNoiseModule, CrowdModule
from manyhands.training import CrowdBatch


def crowd_nll(module: CrowdModule, batch: CrowdBatch) -> dict[str, Tensor]:
    """``nll``: mean negative log likelihood of the batch's annotations."""
    log_proba = module.annotation_log_proba(batch.x, batch.rows, batch.annotators)
    return {"nll": annotation_nll(log_proba, batch.labels, batch.weights)}


def common_noise_objective(
    module: CommonNoiseModule, batch: CrowdBatch, *, gap_weight: float, squared: bool
) -> dict[str, Tensor]:
    """CoNAL's final loss: ``nll`` and ``confusion_gap`` = -gap_weight * sum_r |W_r - W_g|.

    The minus sign, lost in the printed formula, is the prose's ("enforce them to be different").
    """
    gap = confusion_gap(module.individual, module.common, squared=squared)
    return {**crowd_nll(module, batch), "confusion_gap": -gap_weight * gap}


def soft_label_objective(
    module: CrowdModule, batch: CrowdBatch, targets: Tensor
) -> dict[str, Tensor]:
    """``cross_entropy`` against target distributions (n_instances, n_classes)."""
    return {"cross_entropy": soft_cross_entropy(module(batch.x), targets[batch.instances])}
