"""Choice among models without gold labels, by out-of-fold predictions."""

from manyhands.fitting.folds import deal_instances, instance_units
from manyhands.selection.cross_prediction import CrossPrediction, cross_predict
from manyhands.selection.result import CandidateScore, CandidateTable, Selection
from manyhands.selection.selecting import SHORT_LIST, select
from manyhands.selection.splitters import InstanceKFold

__all__ = [
    "SHORT_LIST",
    "CandidateScore",
    "CandidateTable",
    "CrossPrediction",
    "InstanceKFold",
    "Selection",
    "cross_predict",
    "deal_instances",
    "instance_units",
    "select",
]
