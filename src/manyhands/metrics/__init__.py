"""How good labels are against gold, and annotators against inferred labels (no torch)."""

from manyhands.metrics.annotators import AnnotatorReliability, annotator_reliability
from manyhands.metrics.gold import (
    accuracy,
    expected_calibration_error,
    macro_f1,
    minority_recall,
)

__all__ = [
    "AnnotatorReliability",
    "accuracy",
    "annotator_reliability",
    "expected_calibration_error",
    "macro_f1",
    "minority_recall",
]
