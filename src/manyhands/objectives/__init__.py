"""Objectives: a module and a batch in, named loss terms out. Their sum is minimised."""

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

__all__ = [
    "AnnotatorGroup",
    "annotator_average_nll",
    "common_noise_objective",
    "crowd_nll",
    "fusion_norm",
    "group_annotators",
    "group_soft_threshold",
    "information_objective",
    "personal_nll",
    "soft_label_objective",
    "trace_objective",
]
