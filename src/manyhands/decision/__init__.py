"""Decisions from posteriors: labels, rules, costs, abstentions (no torch)."""

from manyhands.decision.labels import decide

__all__ = ["decide"]
