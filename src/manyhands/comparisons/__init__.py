"""Comparisons of two items: which is better, or a tie, by whom."""

from manyhands.comparisons.table import OUTCOMES, ComparisonTable

__all__ = ["OUTCOMES", "ComparisonTable"]
