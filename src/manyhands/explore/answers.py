"""What a person reviews, whatever its kind: one class or grade per item, or a set of labels.

Desk, application and page are the same for all kinds. What differs is an `Answers`: how an answer
is called and shown, read from a form, written to the file of corrections, exported and counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import numpy as np

from manyhands.annotations import PASSES, AnnotationTable, LabelSetTable
from manyhands.io.consensus_labels import ACTIONS, Consensus
from manyhands.io.consensus_sets import SetConsensus
from manyhands.io.corrections import Correction
from manyhands.typing import AnyArray, BoolArray, IntArray

A = TypeVar("A")
"""An answer: the code of a class, or a tuple of the codes of options."""


ACCEPTED: Final = ACTIONS[0]
"""Recommended action of what is known."""


class BadAnswer(ValueError):
    """A form holds no answer that can be given."""


@dataclass(frozen=True)
class Words:
    """What the page calls things.

    Attributes
    ----------
    answer : str
        What an item gets.
    option : str
        What there is to choose.
    annotation : str
        What an annotator gave.
    gave : str
        What annotators did.
    holds : str
        Title of the filter by answer.
    """

    answer: str
    option: str
    annotation: str
    gave: str
    holds: str


class Vote(NamedTuple, Generic[A]):
    """What an annotator gave, and how far the annotator is trusted; NaN if nothing shows it."""

    annotator: int
    answer: A
    accuracy: float = np.nan
    low: float = np.nan
    high: float = np.nan
    n: int = 0
    n_checked: int = 0
    n_right: int = 0


class Answers(ABC, Generic[A]):
    """The answers of a folder, with what a person decided about them.

    A desk calls its methods with its lock held, and nobody else changes it.

    Attributes
    ----------
    is_set : bool
        Whether any number of options may apply; else exactly one does.
    words : Words
    rule : str
        Rule of the recommended actions, in words.
    table : AnnotationTable or LabelSetTable
    options : array of shape (n_options,)
        Classes, or options of a set.
    method : str
        What inferred the answers.
    command : {"fit", "aggregate"}
        What made the folder.
    notes : list of str
        What a reader should know.
    judged : bool
        Whether votes say how far their annotators are trusted.
    n_records : int or None
        Number of actions that what is told of the answers includes; None if it is never computed
        anew.
    """

    is_set: ClassVar[bool]
    words: ClassVar[Words]
    rule: str
    table: AnnotationTable | LabelSetTable
    options: AnyArray
    method: str
    command: str
    notes: list[str]
    judged: bool
    n_records: int | None = None

    def __init__(self, instance: IntArray) -> None:
        self._by_row = np.argsort(instance, kind="stable")
        ends = np.cumsum(np.bincount(instance, minlength=self.table.n_instances))
        self._starts = np.concatenate([[0], ends])
        names = self.options.tolist()
        self._code_of = {name: code for code, name in enumerate(names)}

    # -- what is shown -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def headline(self) -> str:
        """How many of the answers are right."""

    @property
    @abstractmethod
    def order(self) -> IntArray:
        """All rows, the most doubtful first."""

    @property
    @abstractmethod
    def inferred(self) -> Consensus | SetConsensus:
        """What the folder's method says, given the answers that were known to it."""

    @property
    def actions(self) -> AnyArray:
        """What is recommended for each item, shape (n,); what is known is accepted."""
        return np.where(self.known, ACCEPTED, self.inferred.actions)

    def count_actions(self) -> dict[str, int]:
        """Count the items of every action, as `aggregate` and the report do."""
        return replace(self.inferred, actions=self.actions).count_actions()

    @property
    @abstractmethod
    def known(self) -> BoolArray:
        """Mask of the items whose answer somebody gave or confirmed, shape (n,)."""

    @abstractmethod
    def of(self, row: int) -> A:
        """Return the answer of an item now, corrections included."""

    @abstractmethod
    def told(self, row: int) -> list[float | None]:
        """Return how probable each option is as the answer has it; None where nothing tells."""

    @abstractmethod
    def certainty(self, row: int, answer: A, told: Sequence[float | None]) -> float | None:
        """Return how probable an answer is, of what is `told`."""

    @abstractmethod
    def votes(self, row: int) -> list[Vote[A]]:
        """Return what annotators gave of an item."""

    @abstractmethod
    def having(self, code: int) -> BoolArray:
        """Mask of the items whose answer has an option, shape (n,)."""

    @abstractmethod
    def given(self, code: int | None, annotator: int | None) -> BoolArray:
        """Mask of the items to which an annotator (None: any) gave an option (None: any)."""

    @abstractmethod
    def codes_of(self, answer: A) -> tuple[int, ...]:
        """Return the codes of the options of an answer."""

    def passes(self, row: int) -> list[tuple[int, str]]:
        """Return the annotators who passed on an item, and how."""
        passes = self.table.passes
        if passes is None:
            return []
        return [(int(r), PASSES[kind]) for _, r, kind in passes[passes[:, 0] == row]]

    def _own(self, row: int) -> IntArray:
        """Positions of the annotations of an item."""
        return self._by_row[self._starts[row] : self._starts[row + 1]]

    def _met(self, instance: IntArray) -> BoolArray:
        met = np.zeros(self.table.n_instances, dtype=bool)
        met[instance] = True
        return met

    # -- what a person decides ---------------------------------------------------------------------

    @abstractmethod
    def read(self, form: Mapping[str, Sequence[str]]) -> tuple[A, A | None]:
        """Return the answer in a form, and the answer that the form showed if it says so.

        Raises
        ------
        BadAnswer
            If it is none.
        """

    def code_in(self, text: str) -> int:
        """Return the code of an option in a field of a form.

        Raises
        ------
        BadAnswer
            If there is no such option.
        """
        is_whole = text.isascii() and text.isdigit() and len(text) < 12
        if not is_whole or int(text) >= len(self.options):
            raise BadAnswer(f"there is no {self.words.option} {text!r}")
        return int(text)

    @abstractmethod
    def value(self, answer: A) -> Any:
        """Return an answer as the file of corrections has it."""

    @abstractmethod
    def matched(self, records: Sequence[Correction]) -> list[Correction]:
        """Give records the ids, and the classes, of the table where these read the same."""

    @abstractmethod
    def fits(self, value: Any) -> bool:
        """Return whether a value of the file can be an answer here."""

    @abstractmethod
    def take(self, row: int, decided: Correction | None) -> None:
        """Take a decision about an item up; None: nothing is decided any more."""

    def renewal(self, n_records: int) -> Callable[[], Any] | None:
        """Return what computes anew what is told, after so many actions; None: nothing to do."""
        return None

    def renew(self, found: Any) -> None:
        """Take up what `renewal` computed."""

    # -- what is written ---------------------------------------------------------------------------

    @abstractmethod
    def reviewed(self) -> Consensus | SetConsensus:
        """Return the answers as they stand, corrections included."""

    @abstractmethod
    def write(self, path: Path, found: Any, **options: Any) -> Path:
        """Write what `reviewed` returned, in a format of `manyhands.io.write_labels`."""

    @abstractmethod
    def cell(self, value: Any) -> Any:
        """Return a value of the file of corrections as a cell of a table."""
