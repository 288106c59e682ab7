"""Instances and annotations that are made, for classes that have too few (no torch)."""

from manyhands.sampling.crowd_smote import (
    CrowdSMOTE,
    FewCandidatesWarning,
    all_samplers,
    find_sampler,
)

__all__ = ["CrowdSMOTE", "FewCandidatesWarning", "all_samplers", "find_sampler"]
