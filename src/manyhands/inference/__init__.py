"""Truth inference: from annotations alone to posteriors over the true classes (no torch)."""

from manyhands.inference.base import BaseAggregator, all_aggregators, find_aggregator
from manyhands.inference.comparison import MethodScore, compare, held_out_log_likelihood
from manyhands.inference.crowd_lab import CrowdLab
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.ebcc import EBCC
from manyhands.inference.glad import GLAD
from manyhands.inference.ibcc import IBCC
from manyhands.inference.kos import KOS
from manyhands.inference.mace import MACE
from manyhands.inference.majority_vote import MajorityVote
from manyhands.inference.one_coin_dawid_skene import OneCoinDawidSkene
from manyhands.inference.weighted_majority_vote import WeightedMajorityVote
from manyhands.inference.worker_clustering import WorkerClustering
from manyhands.inference.zero_based_skill import ZeroBasedSkill

__all__ = [
    "EBCC",
    "GLAD",
    "IBCC",
    "KOS",
    "MACE",
    "BaseAggregator",
    "CrowdLab",
    "DawidSkene",
    "MajorityVote",
    "MethodScore",
    "OneCoinDawidSkene",
    "WeightedMajorityVote",
    "WorkerClustering",
    "ZeroBasedSkill",
    "all_aggregators",
    "compare",
    "find_aggregator",
    "held_out_log_likelihood",
]
