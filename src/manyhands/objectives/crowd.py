"""Objectives of the crowd models."""

from __future__ import annotations

from torch import Tensor

from manyhands.functional import (
    annotation_nll,
    confusion_gap,
    information_gain,
    soft_cross_entropy,
)
from manyhands.nn import AggregatorModule, CommonNoiseModule, ConfusionModule, CrowdModule
from manyhands.training import CrowdBatch


def crowd_nll(module: CrowdModule, batch: CrowdBatch, *, focus: float = 0.0) -> dict[str, Tensor]:
    """Return ``nll``: the mean negative log likelihood of the batch's annotations.

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
    """Return CoNAL's loss: ``nll`` and ``confusion_gap = -gap_weight * sum_r |W_r - W_g|``.

    The printed formula lacks the minus sign, which follows from the paper's text ("enforce them to
    be different").
    """
    gap = confusion_gap(module.individual, module.common, squared=squared)
    return {**crowd_nll(module, batch, focus=focus), "confusion_gap": -gap_weight * gap}


def trace_objective(
    module: ConfusionModule,
    batch: CrowdBatch,
    rarity: Tensor,
    *,
    trace_weight: float,
    focus: float = 0.0,
) -> dict[str, Tensor]:
    """Return the loss of Tanno et al.: ``nll`` and ``trace = trace_weight * mean_r trace(W_r)``.

    The sign is positive: the trace is minimised. Annotators are assumed to be as unreliable as
    their annotations allow, so that the classifier does not fit their mistakes.

    Parameters
    ----------
    module : ConfusionModule
    batch : CrowdBatch
    rarity : tensor of shape (n_annotators,)
        Weight of each annotator's annotations in the mean over the batch's annotations, which
        estimates the mean over annotators: its cost grows with the batch, not with the crowd.
    trace_weight : float
    focus : float
        See `focal_nll`.
    """
    terms = crowd_nll(module, batch, focus=focus)
    if not trace_weight:
        return {**terms, "trace": terms["nll"].new_zeros(())}
    present, counts = batch.annotators.unique(  # type: ignore[no-untyped-call]
        return_counts=True
    )
    shares = rarity[present] * counts / len(batch.annotators)
    return {**terms, "trace": trace_weight * (shares @ module.traces(present))}


def information_objective(
    module: AggregatorModule, batch: CrowdBatch, weights: Tensor | None = None
) -> dict[str, Tensor]:
    """Return Max-MIG's loss: ``agreement = -mean_i (1 + log P_ii)``, ``chance = mean_ij P_ij``.

    See `information_gain`. The batch's weights are those of the annotations in the aggregator.

    Parameters
    ----------
    module : AggregatorModule
    batch : CrowdBatch
    weights : tensor of shape (n_instances,), optional
        Weights of the instances.
    """
    log_classifier = module(batch.x).log_softmax(dim=1)
    log_aggregator = module.aggregate(
        len(batch.x), batch.rows, batch.annotators, batch.labels, batch.weights
    )
    own = None if weights is None else weights[batch.instances]
    agreement, chance = information_gain(log_classifier, log_aggregator, module.prior.log(), own)
    return {"agreement": -agreement, "chance": chance}


def soft_label_objective(
    module: CrowdModule,
    batch: CrowdBatch,
    targets: Tensor,
    weights: Tensor | None = None,
    focus: float = 0.0,
) -> dict[str, Tensor]:
    """Return ``cross_entropy``: the mean cross entropy against target distributions.

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
