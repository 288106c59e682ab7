"""Sampling of training data (no torch).

Synthetic instances of rare classes, n-tuplets, pseudo-annotations, and class balance.
"""

from manyhands.sampling.class_balance import ClassBalance
from manyhands.sampling.crowd_smote import CrowdSMOTE, FewCandidatesWarning
from manyhands.sampling.selectors import (
    ConfidenceSelector,
    DistributionAwareSelector,
    RandomSelector,
    SamplingSelector,
)
from manyhands.sampling.tuplets import TupletSampler, safe_instances

__all__ = [
    "ClassBalance",
    "ConfidenceSelector",
    "CrowdSMOTE",
    "DistributionAwareSelector",
    "FewCandidatesWarning",
    "RandomSelector",
    "SamplingSelector",
    "TupletSampler",
    "safe_instances",
]
