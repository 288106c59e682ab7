"""The questions of those who answer for the quality, each answered in a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from manyhands.report.agreement import answer_agree, answer_pairs
from manyhands.report.annotators import answer_right, answer_spams
from manyhands.report.confusions import answer_confused
from manyhands.report.counts import answer_skips
from manyhands.report.gold import answer_gold
from manyhands.report.methods import answer_take_away
from manyhands.report.planning import answer_more
from manyhands.report.review import answer_review
from manyhands.report.section import Answer, Section
from manyhands.report.selection import answer_methods
from manyhands.report.timing import answer_hurries, answer_trend

QUESTIONS: Final[tuple[tuple[str, Callable[[Mapping[str, Any]], Answer]], ...]] = (
    ("Do they agree?", answer_agree),
    ("Who agrees with whom?", answer_pairs),
    ("Who is right?", answer_right),
    ("What is confused?", answer_confused),
    ("Who hurries?", answer_hurries),
    ("Who skips?", answer_skips),
    ("Who answers at random, or always the same?", answer_spams),
    ("Which labels need another look?", answer_review),
    ("How many more labels?", answer_more),
    ("Is it getting better or worse?", answer_trend),
    ("Are the gold labels right?", answer_gold),
    ("Which method suits?", answer_methods),
    ("Can I take it away?", answer_take_away),
)
"""Each question, and what answers it from a summary, in which what is missing is empty."""


def find_answers(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answer the questions of a quality manager in a line each.

    Each entry has a question, an anchor on the page (None: the report cannot tell), and the answer.
    """
    data = {key: summary.get(key) or {} for key in summary} | {"time": summary.get("time") or {}}
    found = []
    for question, answer in QUESTIONS:
        anchor, text = answer(data)
        found.append({"question": question, "anchor": anchor, "answer": text})
    return found


QUESTIONS_ANSWERED = Section(
    "questions", "Questions answered", "questions.html", words={"questions_of": find_answers}
)
