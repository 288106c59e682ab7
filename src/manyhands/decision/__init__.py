"""Decisions from posteriors: labels, rules, costs, abstentions (without torch)."""

from manyhands.decision.label_sets import SetDecision, decide_sets
from manyhands.decision.labels import decide

__all__ = ["SetDecision", "decide", "decide_sets"]
