"""Pairwise comparisons: which of two items an annotator found better, or that they are equal."""

from manyhands.comparisons.table import OUTCOMES, ComparisonTable

__all__ = ["OUTCOMES", "ComparisonTable"]
