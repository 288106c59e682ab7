"""Decisions from posteriors: labels, rules, costs, abstentions (without torch)."""

from manyhands.decision.labels import decide

__all__ = ["decide"]
