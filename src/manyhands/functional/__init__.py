"""Stateless functions of tensors; nothing is modified in place."""

from manyhands.functional.annotations import (
    annotation_nll,
    apply_confusion,
    confusion_gap,
    focal_nll,
    information_gain,
    mix_log_proba,
    soft_cross_entropy,
)
from manyhands.functional.tuplets import SOFTMAX_FORMS, robust_anchors, tuplet_nll

__all__ = [
    "SOFTMAX_FORMS",
    "annotation_nll",
    "apply_confusion",
    "confusion_gap",
    "focal_nll",
    "information_gain",
    "mix_log_proba",
    "robust_anchors",
    "soft_cross_entropy",
    "tuplet_nll",
]
