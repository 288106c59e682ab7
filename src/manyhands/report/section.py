"""What a section of the report is, and what sections find in the checked inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from manyhands.io.consensus_labels import Consensus
from manyhands.metrics import Level
from manyhands.report.inputs import Inputs

T = TypeVar("T")

Content: TypeAlias = dict[str, Any]
"""What a section says, as plain values: ``summary[key]``."""

Rows: TypeAlias = list[dict[str, Any]]
"""Rows of a table, each with the same keys."""


@dataclass(frozen=True, eq=False)
class Once:
    """Something in which findings are found once, however often they are asked for."""

    _found: dict[Any, Any] = field(default_factory=dict, repr=False, kw_only=True)

    def once(self, find: Callable[[Any], T]) -> T:
        """Return what a function finds here, which is called the first time only.

        What several sections need is found so, another section by its `Section.summarise`.
        """
        if find not in self._found:
            self._found[find] = find(self)
        found: T = self._found[find]
        return found


@dataclass(frozen=True, eq=False)
class Findings(Once):
    """The inputs of a report, and what its sections find in them, each once.

    Attributes
    ----------
    inputs : Inputs
        Annotations, inferred labels, gold and times, checked.
    selection : Selection or its ``to_dict()``, optional
        The comparison of methods.
    new_items : Level, optional
        How often the classifier is right on new items.
    labels : Consensus, optional
        The labels with their recommended actions, if they are at hand.
    sections : sequence of Section
        The sections of the report, in page order.
    """

    inputs: Inputs
    selection: Any = None
    new_items: Level | None = None
    labels: Consensus | None = None
    sections: Sequence[Section] = ()


@dataclass(frozen=True)
class Action:
    """Something to do next, for the first screen of the report.

    Attributes
    ----------
    code : str
        For programs: an `ActionCode`, or a word of one's own.
    section : str
        Anchor of the evidence.
    title, text : str
        For readers.
    avoided : float
        Wrong labels that it may put right, a rough figure that only orders actions.
    rows : sequence
        The first rows of the evidence; texts, unless the page knows how to write those of the code.
    advice : sequence of str
        How to do it.
    command : str
        What to paste on the command line; see `manyhands.report.commands` for the words that stand
        for files. Empty without one.
    """

    code: str
    section: str
    title: str
    text: str
    avoided: float
    rows: Sequence[Any] = ()
    advice: Sequence[str] = ()
    command: str = ""

    def to_dict(self) -> Content:
        """Return plain values."""
        return {
            "code": self.code,
            "section": self.section,
            "title": self.title,
            "text": self.text,
            "avoided": float(self.avoided),
            "rows": list(self.rows),
            "advice": list(self.advice),
            "command": self.command,
        }


Answer: TypeAlias = tuple[str | None, str]
"""Anchor of the evidence (None if the report cannot tell), and the answer in a sentence."""


def _none(_: Any) -> tuple[()]:
    """Nothing, which is what most sections have of most things."""
    return ()


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the report: everything that is its own.

    Attributes
    ----------
    key : str
        Its name in the summary, ``summary[key]``, and its anchor on the page.
    heading : str
        The question that it answers.
    template : str or path
        Its HTML: a file of ``templates``, or the path of another file. ``s`` is the summary, ``m``
        has the macros of ``_macros.html``.
    summarise : function of Findings, optional
        Returns the content, JSON values, or None if there is nothing to say: the section is then
        not on the page, unless it is the first screen. Without one, a section is always there and
        only shows what others found.
    actions : function of Findings
        Yields what to do next.
    instances : function of the content
        Yields (rank, ids): instances to show on the page; the lower the rank, the earlier they are
        listed, and only so many are.
    tables : function of the content
        Yields (name, rows) of tables that are no list of rows in the content, such as matrices.
    words : dict {name: function or text}
        What the template calls, besides the filters and charts that all have.
    answer : function of the summary, optional
        Returns where the evidence is and the answer in a sentence, which stands beside the question
        while the section is folded; or None and why the report cannot tell.
    is_question : bool
        Whether it is folded under its heading; the first screen is not.
    on_demand : bool
        Whether it is left out in print unless everything is printed.
    """

    key: str
    heading: str
    template: str | os.PathLike[str]
    summarise: Callable[[Any], Any] | None = None
    actions: Callable[[Any], Iterable[Action]] = _none
    instances: Callable[[Any], Iterable[tuple[int, Iterable[Any]]]] = _none
    tables: Callable[[Any], Iterable[tuple[str, Rows]]] = _none
    words: Mapping[str, Any] = field(default_factory=dict)
    answer: Callable[[Mapping[str, Any]], Answer] | None = None
    is_question: bool = True
    on_demand: bool = False


def cells_of(classes: Any, matrix: Any, value: str = "share") -> Rows:
    """Cells of a matrix of confusions as rows of a table; none without a matrix."""
    if not classes or not matrix:
        return []
    return [
        {"true": true, "given": given, value: share}
        for true, row in zip(classes, matrix, strict=True)
        for given, share in zip(classes, row, strict=True)
    ]
