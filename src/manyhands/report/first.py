"""The first screen of a report of any kind: one figure with its source, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from manyhands.codes import graver, reason
from manyhands.report.commands import fill_command
from manyhands.report.filters import percent
from manyhands.report.section import Content, Section
from manyhands.wording import counted, percent_interval, shorten

SOURCES = {"gold": "measured on gold labels", "sample": "measured on a random sample"}
"""Where a level is from, in words; what is not measured is estimated."""

ESTIMATED = "estimated, not measured"

MEASURED_NOTE = (
    "The steps are ordered by how many mistakes they may avoid. Figures measured on gold "
    "labels are marked as such; all others are what the model expects."
)
"""In which order the steps are."""

MOST_ROWS = 3
"""Rows of the evidence of a step; its section has the others."""

SURE_ENOUGH = 0.6
"""Probability from which a label is called probably right; below, it is undecided."""


class Figure(NamedTuple):
    """The figure of the first screen.

    Attributes
    ----------
    value, ends : str
        The figure, and its 95 % interval.
    source : str
        Where it is from.
    low, at, high : float, optional
        Where they stand on a scale from 0 to 1, if it is a share.
    """

    value: str
    ends: str
    source: str
    low: float | None = None
    at: float | None = None
    high: float | None = None


UNKNOWN = Figure("not known", "", "not measured yet")
"""The figure where nothing tells how many labels are right."""


class First(NamedTuple):
    """What stands on the first screen.

    Attributes
    ----------
    fact : str
        The most important thing, in a sentence.
    why : str
        Why it is not known, and what would tell.
    figure : Figure, optional
    lines : sequence of str
        What else is to know at once.
    steps : sequence of dict
        What to do next, as of `Action.to_dict`.
    warnings : sequence of str
    note : str
    heading : str
        Heading of the warnings.
    """

    fact: str
    why: str = ""
    figure: Figure | None = None
    lines: Sequence[str] = ()
    steps: Sequence[Content] = ()
    warnings: Sequence[str] = ()
    note: str = ""
    heading: str = "Worth a look"


def told_of_agreement(found: Mapping[str, Any]) -> str:
    """Say how well annotators agree, by alpha and its interval; "" where that is not known.

    Examples
    --------
    >>> told_of_agreement({"alpha": 0.5, "low": None, "high": None})
    "Krippendorff's alpha of the answers is 0.50, where 1 is full agreement and 0 is chance."
    """
    if not found:
        return ""
    ends = "" if found["low"] is None else f" ({found['low']:.2f} to {found['high']:.2f})"
    return (
        f"Krippendorff's alpha of the answers is {found['alpha']:.2f}{ends}, where 1 is full "
        "agreement and 0 is chance."
    )


def first_section(
    key: str,
    screen: Callable[[Mapping[str, Any]], First],
    summarise: Callable[[Any], Any] | None = None,
) -> Section:
    """Make the section of the first screen, which every kind of report begins with.

    Parameters
    ----------
    key : str
    screen : function of the summary
    summarise : function of Findings, optional
        Returns the steps.

    Returns
    -------
    Section
    """
    words = {
        "first_screen": screen,
        "told_of_annotator": told_of_annotator,
        "told_of_label": told_of_label,
        "filled": filled,
        "COMMAND": COMMAND,
        "MOST_ROWS": MOST_ROWS,
    }
    return Section(key, "What to do next", "first.html", summarise, words=words, is_question=False)


def figure_of(level: Mapping[str, Any] | None) -> Figure | None:
    """Return the figure of a level; ``level`` as of `Level.to_dict`."""
    if level is None:
        return None
    low, at, high = (float(level[name]) for name in ("low", "value", "high"))
    source = SOURCES.get(level["source"], ESTIMATED)
    return Figure(percent(at), percent_interval(low, high), source, low, at, high)


def told_of_label(row: Mapping[str, Any]) -> str:
    """Say how sure a label is; ``row`` is of a list of labels to check.

    Summaries of earlier versions do not say how probable the suggestion is.

    Examples
    --------
    >>> print(told_of_label({"label": "cat", "score": 0.26, "suggestion": "dog"}))
    labelled “cat”, probably right (74\u202f%); next most probable: “dog”
    >>> print(told_of_label({"label": "cat", "score": 0.55, "suggestion": "dog"}))
    undecided: “cat” is the most probable (45\u202f%), then “dog”
    >>> row = {"label": 2, "score": 0.88, "suggestion": 1, "suggestion_probability": 0.43}
    >>> print(told_of_label(row | {"is_middle": True}))
    undecided: “2” is the middle grade (12\u202f%), and “1” is more probable (43\u202f%)
    >>> print(told_of_label({"label": 0, "score": 0.55, "suggestion": 1,
    ...                      "suggestion_probability": 0.4500001}))
    undecided: “0” is the most probable (45\u202f%), then “1”
    """
    first, second = (f"“{shorten(str(row[name]))}”" for name in ("label", "suggestion"))
    if row["score"] is None:
        return f"labelled {first}; most probable other label: {second}"
    right, other = 1 - row["score"], row.get("suggestion_probability")
    if other is not None and other > right + 0.005:  # Else whole percents hardly differ.
        what = "the middle grade" if row.get("is_middle") else "the label"
        return (
            f"undecided: {first} is {what} ({percent(right)}), and {second} is more probable "
            f"({percent(other)})"
        )
    if right >= SURE_ENOUGH:
        return f"labelled {first}, probably right ({percent(right)}); next most probable: {second}"
    if right >= 0.5:
        return f"undecided between {first} ({percent(right)}) and {second}"
    return f"undecided: {first} is the most probable ({percent(right)}), then {second}"


def told_of_annotator(row: Mapping[str, Any], *, is_known: bool = True) -> str:
    """Say why to look at an annotator: how much harm there may be, and what was found.

    ``is_known`` says whether it is known how many labels are right.

    Examples
    --------
    >>> flags = ["no better than guessing", "below the median"]
    >>> row = {"n_annotations": 87, "n_wrong": 51.2, "flags": flags, "evidence": ["right in 41 %"]}
    >>> print(told_of_annotator(row))
    does no better than guessing; about 51 of 87 annotations are wrong
    """
    if row.get("n_wrong") is None:
        return "; ".join(map(str, row["evidence"]))
    n = counted(row["n_annotations"], "annotation")
    wrong = round(row["n_wrong"])
    reasons = map(reason, graver(row["flags"]))
    differ = "are wrong" if is_known else "differ from the labels"
    return "; ".join([*reasons, f"about {wrong:,} of {n} {differ}"])


COMMAND = ": manyhands "
"""What stands between an advice and the command that follows it."""


def filled(command: str | None, s: Mapping[str, Any]) -> str:
    """Return a command with the names of the files where the summary has them."""
    return fill_command(command or "", s.get("files"))


def commands_of(step: Mapping[str, Any], s: Mapping[str, Any]) -> list[str]:
    """Return the commands of a step: its own, and those that its advice ends with."""
    texts = [text.partition(COMMAND) for text in step.get("advice") or ()]
    commands = [step.get("command"), *(f"manyhands {pasted}" for _, _, pasted in texts if pasted)]
    return [filled(command, s) for command in commands if command]
