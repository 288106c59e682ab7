"""The section on how the report was made: the models with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhands.report.inputs import describe_estimator
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.wording import shorten


def methods_section(found: Findings) -> Content:
    """Names and parameters of the models, and what inferred the labels."""
    inputs = found.inputs
    return {
        "inferred": None if inputs.inferred is None else inputs.inferred.name,
        "aggregator": describe_estimator(inputs.aggregator),
        "classifier": describe_estimator(inputs.classifier),
    }


def answer_methods(s: Mapping[str, Any]) -> Answer:
    """Answer how the labels were made, and that every table can be saved."""
    by = s.get("methods", {}).get("inferred")
    made = f"The labels come from {shorten(str(by))}. " if by else ""
    return "tables", f"{made}Every table can be saved as CSV."


METHODS = Section(
    "methods",
    "How was this made, and where are the tables?",
    "methods.html",
    methods_section,
    answer=answer_methods,
    on_demand=True,
)
"""The section on how the report was made: the models with their parameters."""
