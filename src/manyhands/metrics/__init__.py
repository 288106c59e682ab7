"""Quality of labels against gold, and of annotators against inferred labels (without torch)."""

from manyhands.metrics.annotators import AnnotatorReliability, annotator_reliability
from manyhands.metrics.calibration import (
    Calibration,
    Estimate,
    ReliabilityCurve,
    calibration,
    expected_calibration_error,
    reliability_curve,
)
from manyhands.metrics.gold import (
    CoverageRisk,
    accuracy,
    balanced_accuracy,
    brier_score,
    coverage_risk,
    macro_f1,
    minority_recall,
)

__all__ = [
    "AnnotatorReliability",
    "Calibration",
    "CoverageRisk",
    "Estimate",
    "ReliabilityCurve",
    "accuracy",
    "annotator_reliability",
    "balanced_accuracy",
    "brier_score",
    "calibration",
    "coverage_risk",
    "expected_calibration_error",
    "macro_f1",
    "minority_recall",
    "reliability_curve",
]
