"""Sets of labels: any number of options may apply to an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import LabelSetTable
from manyhands.annotations.label_set_frames import word_of_nothing
from manyhands.explore.answers import Answers, Vote, Words
from manyhands.io.consensus_sets import RULE, SetConsensus
from manyhands.io.corrections import Correction, matched
from manyhands.io.writers import write_sets
from manyhands.typing import BoolArray, IntArray

Codes = tuple[int, ...]


class SetAnswers(Answers[Codes]):
    """The sets of a folder; an answer is a tuple of the codes of its options.

    The sets that nobody decided stay as they were inferred: ``manyhands aggregate --known`` infers
    them again.

    Parameters
    ----------
    table : LabelSetTable
    found : SetConsensus
    method : str
        What inferred the sets.
    command : {"fit", "aggregate"}
        What made the folder.
    headline : str
        How many labels of the sets are right.
    separator : str
        What stands between the labels of a set in a cell of a table.
    none : str or sequence of str, optional
        As in `manyhands.io.read_label_sets`; its first word other than "empty" is written of a set
        without labels.
    """

    is_set = True
    rule = RULE
    words = Words("set", "option", "answer", "ticked", "Set holds")
    judged = False
    table: LabelSetTable

    def __init__(
        self,
        table: LabelSetTable,
        found: SetConsensus,
        *,
        method: str,
        command: str,
        headline: str,
        separator: str,
        none: str | Sequence[str] | None = None,
    ) -> None:
        self.table, self.options, self.notes = table, found.options, []
        self.method, self.command = method, command
        super().__init__(self.table.instance)
        self._found, self._headline = found, headline
        self._separator, self._none = separator, none
        self._ticks = found.ticks.copy()
        self._known: BoolArray = np.asarray(found.known.all(axis=1))
        self._order = found.by_doubt()

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        """How many labels of the sets are right."""
        return self._headline

    @property
    def order(self) -> IntArray:
        """All rows, those with the most wrong options to be expected first."""
        return self._order

    @property
    def inferred(self) -> SetConsensus:
        """The sets as they were inferred."""
        return self._found

    @property
    def known(self) -> BoolArray:
        """Mask of the sets that are known, shape (n,)."""
        return self._known

    def of(self, row: int) -> Codes:
        """Return the set of an item now."""
        return _codes(self._ticks[row])

    def told(self, row: int) -> list[float | None]:
        """Return how probably each option is as the set says; 1 where the set is known."""
        if self._known[row]:
            return [1.0] * len(self.options)
        probability = self._found.probability[row]
        return [None if np.isnan(p) else float(p) for p in probability]

    def certainty(self, row: int, answer: Codes, told: Sequence[float | None]) -> float | None:
        """Return how probable the least certain option of the set is."""
        certain = [share for share in told if share is not None]
        return min(certain) if len(certain) == len(told) else None

    def votes(self, row: int) -> list[Vote[Codes]]:
        """Return the answers about an item."""
        own = self._own(row)
        given = self.table.ticks[own].toarray()
        return [
            Vote(int(r), _codes(ticks))
            for r, ticks in zip(self.table.annotator[own], given, strict=True)
        ]

    def having(self, code: int) -> BoolArray:
        """Mask of the items whose set has an option, shape (n,)."""
        return np.asarray(self._ticks[:, code])

    def given(self, code: int | None, annotator: int | None) -> BoolArray:
        """Mask of the items of which an annotator (None: any) ticked an option (None: any)."""
        answers = np.ones(len(self.table.instance), dtype=bool)
        if code is not None:
            answers &= self.table.ticks[:, [code]].toarray().ravel()
        if annotator is not None:
            answers &= self.table.annotator == annotator
        return self._met(self.table.instance[answers])

    def codes_of(self, answer: Codes) -> tuple[int, ...]:
        """Return the codes of a set."""
        return answer

    # -- what a person decides ---------------------------------------------------------------------

    def read(self, form: Mapping[str, Sequence[str]]) -> tuple[Codes, None]:
        """Return the options that are ticked in a form."""
        return tuple(sorted({self.code_in(text) for text in form.get("option", ())})), None

    def value(self, answer: Codes) -> list[str]:
        """Return the names of the options of a set."""
        names: list[str] = self.options[list(answer)].tolist()
        return names

    def matched(self, records: Sequence[Correction]) -> list[Correction]:
        """Give records the ids of the table where these read the same."""
        return matched(records, self.table.instances.tolist(), [])

    def fits(self, value: Any) -> bool:
        """Return whether a value is a list of options here."""
        return isinstance(value, list) and all(name in self._code_of for name in value)

    def take(self, row: int, decided: Correction | None) -> None:
        """Take the set of an item as known, or as it was inferred."""
        self._ticks[row] = self._found.ticks[row]
        self._known[row] = self._found.known[row].all()
        if decided is not None:
            self._ticks[row] = False
            self._ticks[row, [self._code_of[name] for name in decided.label]] = True
            self._known[row] = True

    # -- what is written ---------------------------------------------------------------------------

    def reviewed(self) -> SetConsensus:
        """Return the sets as they stand, corrections included."""
        found, done = self.inferred, self._known
        known = found.known | done[:, None]
        return replace(
            found,
            ticks=self._ticks.copy(),
            posterior=np.where(done[:, None], self._ticks, found.posterior),
            probability=np.where(known, 1.0, found.probability),
            actions=self.actions,
            known=known,
        )

    def write(self, path: Path, found: Any, **options: Any) -> Path:
        """Write sets; see `manyhands.io.writers.write_sets`."""
        own: dict[str, Any] = {"separator": self._separator, "none": self._none}
        return write_sets(path, found, method=self.method, **own, **options)

    def cell(self, value: Any) -> Any:
        """Return the names of a set, with the separator between them, as in its table."""
        return self._separator.join(value or ()) or word_of_nothing(self._none)


def _codes(ticks: BoolArray) -> Codes:
    return tuple(np.flatnonzero(ticks).tolist())
