"""The section on how the report was made: the models with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhands.report.inputs import describe_estimator
from manyhands.report.section import Answer, Content, Findings, Section


def methods_section(found: Findings) -> Content:
    """Names and parameters of the models, and what inferred the labels."""
    inputs = found.inputs
    return {
        "inferred": None if inputs.inferred is None else inputs.inferred.name,
        "aggregator": describe_estimator(inputs.aggregator),
        "classifier": describe_estimator(inputs.classifier),
    }


def answer_take_away(_: Mapping[str, Any]) -> Answer:
    """Answer whether the report can be taken away."""
    return "tables", "every table as CSV"


METHODS = Section("methods", "How this was made", "methods.html", methods_section, on_demand=True)
