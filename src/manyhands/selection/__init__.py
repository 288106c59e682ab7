"""Choosing among models without gold: predictions for instances that a model has not seen."""

from manyhands.selection.cross_prediction import CrossPrediction, cross_predict
from manyhands.selection.folds import deal_instances, instance_units

__all__ = ["CrossPrediction", "cross_predict", "deal_instances", "instance_units"]
