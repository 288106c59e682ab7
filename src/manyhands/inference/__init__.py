"""Truth inference: from annotations alone to posteriors over the true classes (no torch)."""

from manyhands.inference.base import BaseAggregator, all_aggregators, find_aggregator
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.majority_vote import MajorityVote

__all__ = ["BaseAggregator", "DawidSkene", "MajorityVote", "all_aggregators", "find_aggregator"]
