"""Truth inference: from annotations alone to posteriors over the true classes (no torch)."""

from manyhands.inference.base import BaseAggregator, all_aggregators, find_aggregator
from manyhands.inference.comparison import MethodScore, compare, held_out_log_likelihood
from manyhands.inference.crowd_lab import CrowdLab
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.ebcc import EBCC
from manyhands.inference.glad import GLAD
from manyhands.inference.ibcc import IBCC
from manyhands.inference.majority_vote import MajorityVote
from manyhands.inference.one_coin_dawid_skene import OneCoinDawidSkene
from manyhands.inference.worker_clustering import WorkerClustering

__all__ = [
    "EBCC",
    "GLAD",
    "IBCC",
    "BaseAggregator",
    "CrowdLab",
    "DawidSkene",
    "MajorityVote",
    "MethodScore",
    "OneCoinDawidSkene",
    "WorkerClustering",
    "all_aggregators",
    "compare",
    "find_aggregator",
    "held_out_log_likelihood",
]
