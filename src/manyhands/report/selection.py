"""The section that compares methods, as `manyhands.select` found them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.wording import shorten


def selection_section(found: Findings) -> Content | None:
    """The comparison of candidates as `manyhands.select` describes it."""
    selection = found.selection
    if selection is None:
        return None
    described = (
        selection if isinstance(selection, Mapping) else getattr(selection, "to_dict", dict)()
    )
    if not {"best", "criterion", "tied", "warnings", "candidates"} <= {*described}:
        raise AnnotationError(
            f"selection is a {type(selection).__name__}; give the result of manyhands.select(...)"
        )
    return dict(described)


def answer_methods(s: Mapping[str, Any]) -> Answer:
    """Answer which method suits."""
    if not s.get("selection"):
        return None, "One method was used; the command select compares several."
    return (
        "selection",
        f"{shorten(str(s['selection']['best']))}, by agreement on held-out annotations.",
    )


SELECTION = Section(
    "selection",
    "Which method suits these data best?",
    "selection.html",
    selection_section,
    answer=answer_methods,
)
