"""Linear models on inferred labels, tuned on these labels alone (no torch)."""

from manyhands.linear.regression import TunedLogisticRegression

__all__ = ["TunedLogisticRegression"]
