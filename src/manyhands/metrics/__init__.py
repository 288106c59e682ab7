"""Quality of labels against gold, and of annotators against inferred labels (without torch)."""

from manyhands.metrics.annotators import AnnotatorReliability, annotator_reliability
from manyhands.metrics.gold import (
    CoverageRisk,
    ReliabilityCurve,
    accuracy,
    balanced_accuracy,
    brier_score,
    coverage_risk,
    expected_calibration_error,
    macro_f1,
    minority_recall,
    reliability_curve,
)

__all__ = [
    "AnnotatorReliability",
    "CoverageRisk",
    "ReliabilityCurve",
    "accuracy",
    "annotator_reliability",
    "balanced_accuracy",
    "brier_score",
    "coverage_risk",
    "expected_calibration_error",
    "macro_f1",
    "minority_recall",
    "reliability_curve",
]
