"""The questions that sections answer, each in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manyhands.report.section import Section
from manyhands.report.sections import sections_of


def find_answers(
    summary: Mapping[str, Any], sections: Sequence[Section] | None = None
) -> list[dict[str, Any]]:
    """Answer the questions of those who answer for the quality of labels.

    Parameters
    ----------
    summary : dict
    sections : sequence of Section, optional
        Default: those of the kind of the summary.

    Returns
    -------
    list of dict
        Each with the question, the key of its section, an anchor on the page (None: the report
        cannot tell), and the answer or why there is none.
    """
    data = {key: summary.get(key) or {} for key in summary} | {"time": summary.get("time") or {}}
    found = []
    for section in sections_of(summary) if sections is None else sections:
        if section.answer is None:
            continue
        anchor, text = section.answer(data)
        named: dict[str, Any] = {"question": section.heading, "section": section.key}
        if text:
            found.append(named | {"anchor": anchor, "answer": text})
    return found
