"""Linear models on inferred labels; hyper-parameters are chosen by these labels (no torch)."""

from manyhands.linear.regression import TunedLogisticRegression

__all__ = ["TunedLogisticRegression"]
