"""Objectives map a module and a batch to named loss terms, whose sum is minimised."""

from manyhands.objectives.adversarial import (
    COST_FORMS,
    SPARSITY_FORMS,
    Annotations,
    authenticity_cost,
    counterfactual_risk,
    discriminator_objective,
    effective_sample_size,
    importance_ratios,
    information_cost,
    self_normalized_risk,
)
from manyhands.objectives.annotator_heads import (
    AnnotatorGroup,
    annotator_average_nll,
    fusion_norm,
    group_annotators,
    group_soft_threshold,
    personal_nll,
)
from manyhands.objectives.crowd import (
    common_noise_objective,
    crowd_nll,
    information_objective,
    soft_label_objective,
    trace_objective,
)
from manyhands.objectives.metric_learning import (
    LiftedStructureLoss,
    TripletCenterLoss,
    nearest_negatives,
)
from manyhands.objectives.tuplets import TupletLoss, hardness_error

__all__ = [
    "COST_FORMS",
    "SPARSITY_FORMS",
    "Annotations",
    "AnnotatorGroup",
    "LiftedStructureLoss",
    "TripletCenterLoss",
    "TupletLoss",
    "annotator_average_nll",
    "authenticity_cost",
    "common_noise_objective",
    "counterfactual_risk",
    "crowd_nll",
    "discriminator_objective",
    "effective_sample_size",
    "fusion_norm",
    "group_annotators",
    "group_soft_threshold",
    "hardness_error",
    "importance_ratios",
    "information_cost",
    "information_objective",
    "nearest_negatives",
    "personal_nll",
    "self_normalized_risk",
    "soft_label_objective",
    "trace_objective",
]
