"""Stateless tensor mathematics: tensors in, tensors out, nothing mutated."""

from manyhands.functional.annotations import (
    annotation_nll,
    apply_confusion,
    confusion_gap,
    focal_nll,
    information_gain,
    mix_log_proba,
    soft_cross_entropy,
)

__all__ = [
    "annotation_nll",
    "apply_confusion",
    "confusion_gap",
    "focal_nll",
    "information_gain",
    "mix_log_proba",
    "soft_cross_entropy",
]
