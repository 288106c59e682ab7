"""What is made or drawn to train on: instances of rare classes, n-tuplets (no torch)."""

from manyhands.sampling.crowd_smote import (
    CrowdSMOTE,
    FewCandidatesWarning,
    all_samplers,
    find_sampler,
)
from manyhands.sampling.tuplets import TupletSampler, safe_instances

__all__ = [
    "CrowdSMOTE",
    "FewCandidatesWarning",
    "TupletSampler",
    "all_samplers",
    "find_sampler",
    "safe_instances",
]
