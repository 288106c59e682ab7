"""Quality of labels against gold or votes, of annotators against inferred labels (no torch)."""

from manyhands.metrics.accuracy_estimate import AccuracyEstimate, estimate_accuracy
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
    ranked_probability_score,
)
from manyhands.metrics.levels import Level, accuracy_of_labels, accuracy_on_new_items
from manyhands.metrics.mean_estimate import MeanEstimate, mean_estimate
from manyhands.metrics.scorers import (
    VOTE_SCORERS,
    GoldScorer,
    VoteScorer,
    annotation_log_likelihood_scorer,
    corrected_vote_agreement_scorer,
    gold_scorer,
    vote_agreement_scorer,
    vote_information_scorer,
    vote_recall_scorer,
)
from manyhands.metrics.votes import (
    corrected_vote_agreement,
    paired_z,
    vote_agreement,
    vote_information,
    vote_recall,
)

__all__ = [
    "VOTE_SCORERS",
    "AccuracyEstimate",
    "AnnotatorReliability",
    "Calibration",
    "CoverageRisk",
    "Estimate",
    "GoldScorer",
    "Level",
    "MeanEstimate",
    "ReliabilityCurve",
    "VoteScorer",
    "accuracy",
    "accuracy_of_labels",
    "accuracy_on_new_items",
    "annotation_log_likelihood_scorer",
    "annotator_reliability",
    "balanced_accuracy",
    "brier_score",
    "calibration",
    "corrected_vote_agreement",
    "corrected_vote_agreement_scorer",
    "coverage_risk",
    "estimate_accuracy",
    "expected_calibration_error",
    "gold_scorer",
    "macro_f1",
    "mean_estimate",
    "minority_recall",
    "paired_z",
    "ranked_probability_score",
    "reliability_curve",
    "vote_agreement",
    "vote_agreement_scorer",
    "vote_information",
    "vote_information_scorer",
    "vote_recall",
    "vote_recall_scorer",
]
