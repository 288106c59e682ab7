"""The review desk: which answers are shown, and what a person decides about them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from manyhands.explore.answers import Answers, Vote
from manyhands.files import as_word
from manyhands.io.consensus_labels import ACTIONS
from manyhands.io.corrections import Correction, Journal, Standing
from manyhands.io.exports.records import Export
from manyhands.report.commands import fill_command
from manyhands.typing import BoolArray, IntArray


def _as_known(paths: Iterable[Path]) -> list[str]:
    return [word for path in paths for word in ("--known", as_word(path))]


OPEN, DONE, SKIPPED = 0, 1, 2
STATES: Final = {"review": OPEN, "open": OPEN, "done": DONE, "skipped": SKIPPED, "all": None}
"""What can be shown: of the answers nobody decided, those "to review", or all that are open."""

REVIEW: Final = ACTIONS[2]
"""Recommended action of the answers "to review"."""

SUREST: Final = 0.999999
"""Most that a correction says of an answer that was not known: 1 is said of known ones alone."""

Order = Literal["doubt", "random"]


class Conflict(Exception):
    """Somebody acted upon the item since it was shown."""


@dataclass(frozen=True)
class Choice:
    """Which items are shown; codes are positions in the table's options and annotators.

    Attributes
    ----------
    state : str
        Of `STATES`.
    label : int or None
        Option that the answer has.
    given : int or None
        Option that somebody gave.
    annotator : int or None
        Who gave it, or anything.
    action : str or None
        Recommended action, of `manyhands.io.consensus_labels.ACTIONS`.
    order : {"doubt", "random"}
    """

    state: str = "open"
    action: str | None = None
    label: int | None = None
    given: int | None = None
    annotator: int | None = None
    order: Order = "doubt"

    @property
    def chosen(self) -> str:
        """How the items come to be reviewed: in random order and unfiltered, or otherwise."""
        filters = (self.action, self.label, self.given, self.annotator)
        is_whole = self.state in ("open", "all") and set(filters) == {None}
        return "random" if self.order == "random" and is_whole else "queue"


class Item(NamedTuple):
    """An instance as it is shown.

    Attributes
    ----------
    row : int
    task : id
    version : int
        Number of actions on it.
    answer : code, or tuple of codes
    certainty : float or None
        How probable the answer is; None if nothing tells.
    told : list of (float or None)
        How probable each option is as the answer has it; 1 for what is known.
    votes : list of Vote
    n_given : list of int
        Votes that have each option.
    passes : list of (annotator, kind)
    last : Correction or None
        The last action on it that was not undone.
    """

    row: int
    task: Any
    version: int
    answer: Any
    certainty: float | None
    told: list[float | None]
    votes: list[Vote[Any]]
    n_given: list[int]
    passes: list[tuple[int, str]]
    last: Correction | None


@dataclass(frozen=True)
class Contents:
    """What is known of the items themselves, by row.

    Attributes
    ----------
    texts : dict {row: str}
    fields : dict {row: dict}
        Their own data, by name.
    images : dict {row: Path}
    export : Export or None
        What the annotations were read from, for writing labels back.
    annotations : tuple of Path
    known : tuple of Path
        Files of known labels beside those that the folder was made with.
    labels : Path or None
        The folder's file of labels, if it holds known ones that are in no other of these files.
    reading : tuple of str
        Words with which the command line reads the annotations in the same way.
    made_by : dict
        What the command that wrote the folder was given; see `manyhands.report.commands`.
    """

    texts: dict[int, str] = field(default_factory=dict)
    fields: dict[int, dict[str, Any]] = field(default_factory=dict)
    images: dict[int, Path] = field(default_factory=dict)
    export: Export | None = None
    annotations: tuple[Path, ...] = ()
    known: tuple[Path, ...] = ()
    labels: Path | None = None
    reading: tuple[str, ...] = ()
    made_by: dict[str, Any] = field(default_factory=dict)


class Desk:
    """Answers under review. Methods may be called from several threads.

    Parameters
    ----------
    answers : Answers
        What is reviewed: labels of one class or grade each, or sets.
    journal : Journal
    contents : Contents
    title, by : str
        What is reviewed, and by whom.

    Attributes
    ----------
    table : AnnotationTable or LabelSetTable
    notes : list of str
        What a reader should know.
    failure : str or None
        Why figures could not be computed again.
    standing : Standing
        What was decided.
    """

    def __init__(
        self, answers: Answers[Any], journal: Journal, contents: Contents, *, title: str, by: str
    ) -> None:
        self.answers, self.journal, self.contents = answers, journal, contents
        self.title, self.by = title, by
        self.table = table = answers.table
        self.notes = list(answers.notes)
        self.failure: str | None = None
        self.row_of = {task: row for row, task in enumerate(table.instances.tolist())}
        self._shuffled = np.random.default_rng(0).permutation(table.n_instances)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._states = np.where(answers.known, DONE, OPEN)
        self.standing = Standing()
        self._replay(journal)
        self._tried, self._closed = len(self.standing.records), False
        first = answers.renewal(self._tried)
        if first is not None:
            answers.renew(first())
        self._worker = threading.Thread(target=self._work, name="figures", daemon=True)
        self._worker.start()

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def added_files(self) -> tuple[Path, ...]:
        """Files of known labels that the folder was not made with, or not with all of each."""
        own = (self.journal.path,) if self.standing.decisions() else ()
        return (*self.contents.known, *own)

    @property
    def known_files(self) -> tuple[Path, ...]:
        """Files of all known labels, as ``--known`` of other commands takes them."""
        labels = self.contents.labels
        return self.added_files if labels is None else (labels, *self.added_files)

    @property
    def files(self) -> dict[str, Any]:
        """What commands that people are told of name; see `manyhands.report.commands`."""
        return {
            **self.contents.made_by,
            "folder": as_word(self.journal.path.parent),
            "annotations": [as_word(path) for path in self.contents.annotations],
            "reading": [*self.contents.reading],
            "known": _as_known(self.known_files),
        }

    def command_again(self) -> str:
        """Write the command that makes the folder again, with all corrections."""
        known = [*self.contents.made_by.get("known", ())]
        for path in self.added_files:
            known += [] if as_word(path) in known else _as_known([path])
        tables = "--annotations ANNOTATIONS" if self.answers.command == "fit" else "ANNOTATIONS"
        again = f"manyhands {self.answers.command} {tables} OPTIONS --out FOLDER"
        return fill_command(again, {**self.files, "known": known})

    @property
    def n_behind(self) -> int:
        """Number of actions that what is told of the answers does not include yet."""
        n_records = self.answers.n_records
        return 0 if n_records is None else len(self.standing.records) - n_records

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Keep everything as it is while a page is made."""
        with self._lock:
            yield

    def counts(self) -> dict[str, int]:
        """Count the items in every state."""
        states = self._states
        counts = {n: int((states == code).sum()) for n, code in STATES.items() if n != "all"}
        to_review = (self.answers.actions == REVIEW) & (states == OPEN)
        return counts | {"review": int(to_review.sum())}

    def rows(self, choice: Choice) -> IntArray:
        """Rows of the items that are chosen, in their order."""
        with self._lock:
            chosen = self._mask(choice)
            order = self.answers.order
            order = self._shuffled if choice.order == "random" else order
            return order[chosen[order]]

    def _mask(self, choice: Choice) -> BoolArray:
        mask = np.ones(self.table.n_instances, dtype=bool)
        if STATES[choice.state] is not None:
            mask &= self._states == STATES[choice.state]
        if choice.state == "review":
            mask &= self.answers.actions == REVIEW
        if choice.action is not None:
            mask &= self.answers.actions == choice.action
        if choice.label is not None:
            mask &= self.answers.having(choice.label)
        if choice.given is not None or choice.annotator is not None:
            mask &= self.answers.given(choice.given, choice.annotator)
        return mask

    def item(self, row: int) -> Item:
        """Everything about one instance.

        Raises
        ------
        IndexError
            If there is no such row.
        """
        if not 0 <= row < self.table.n_instances:
            raise IndexError(row)
        with self._lock:
            answers, task = self.answers, self.table.instances[row].item()
            answer, told, votes = answers.of(row), answers.told(row), answers.votes(row)
            given = [code for vote in votes for code in answers.codes_of(vote.answer)]
            return Item(
                row,
                task,
                self.standing.version(task),
                answer,
                answers.certainty(row, answer, told),
                told,
                votes,
                np.bincount(np.array(given, dtype=int), minlength=len(told)).tolist(),
                answers.passes(row),
                self.standing.of(task),
            )

    def last(self) -> Item | None:
        """Return the item that was acted upon last and still is; None if nothing stands."""
        with self._lock:
            for record in reversed(self.standing.records):
                if record.task in self.row_of and self.standing.of(record.task) is not None:
                    return self.item(self.row_of[record.task])
            return None

    # -- what a person decides ---------------------------------------------------------------------

    def decide(
        self,
        row: int,
        version: int,
        answer: Any,
        *,
        shown: Any = None,
        gold: bool = False,
        chosen: str | None = None,
    ) -> Correction:
        """Write a decision to the disk, then act upon it.

        Parameters
        ----------
        row, version : int
            The item, and the number of actions on it when it was shown.
        answer : code, tuple of codes or None
            What the item gets; None skips it.
        shown : code or tuple of codes, optional
            The answer that was shown: newer figures may name another by now. Default: the item's.
        gold : bool
            Whether the answer may serve as a gold question.
        chosen : {"queue", "random"}, optional
            How the item came to be reviewed.

        Raises
        ------
        Conflict
            If somebody acted upon the item since.
        WriteError
            If it cannot be written; then nothing has changed.
        """
        with self._lock:
            item = self.item(row)
            if item.version != version:
                raise Conflict
            was = item.answer if shown is None else shown
            if answer is None:
                action = "skip"
            elif gold:
                action = "gold"
            else:
                action = "confirm" if answer == was else "correct"
            return self._append(item, was, answer, action, chosen)

    def undo(self, row: int, version: int) -> Correction:
        """Take the last action on an item back; see `decide`."""
        with self._lock:
            item = self.item(row)
            if item.version != version or item.last is None:
                raise Conflict
            return self._append(item, item.answer, None, "undo")

    def _append(
        self, item: Item, was: Any, answer: Any, action: str, chosen: str | None = None
    ) -> Correction:
        answers = self.answers
        certainty = answers.certainty(item.row, was, item.told)
        is_known = bool(answers.known[item.row]) and was == item.answer
        if certainty is not None and not is_known:
            certainty = min(round(certainty, 6), SUREST)
        record = Correction(
            item.task,
            None if answer is None else answers.value(answer),
            answers.value(was),
            certainty,
            self.by,
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            action,
            chosen,
        )
        self.journal.append(record)
        self.standing.add(record)
        self._apply(item.row)
        self._changed.notify_all()
        return record

    def _apply(self, row: int) -> None:
        found = self.standing.of(self.table.instances[row].item())
        self.answers.take(row, found if found is not None and found.known else None)
        skipped = OPEN if found is None else SKIPPED
        self._states[row] = DONE if self.answers.known[row] else skipped

    def _replay(self, journal: Journal) -> None:
        """Take up what was decided in earlier runs."""
        for record in self.answers.matched(journal.records):
            self.standing.add(record)
        strange = 0
        for task in {record.task for record in self.standing.records}:
            found = self.standing.of(task)
            fits = found is None or found.label is None or self.answers.fits(found.label)
            if task in self.row_of and fits:
                self._apply(self.row_of[task])
            else:
                strange += 1
        if journal.torn:
            self.notes.append(
                f"the last line of {journal.path.name} was cut off and has been removed; it was "
                f"never acknowledged: {journal.torn[:200]}"
            )
        if strange:
            self.notes.append(
                f"{strange:,} of the tasks in {journal.path.name}, or their labels, are not among "
                "these annotations; their corrections are kept and have no effect here"
            )

    # -- figures -----------------------------------------------------------------------------------

    def _work(self) -> None:
        """Compute the figures again whenever something was decided, always of the latest state."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or len(self.standing.records) > self._tried
                )
                if self._closed:
                    return
                n_records = len(self.standing.records)
                renewal = self.answers.renewal(n_records)
            found, failure = None, None
            try:
                found = None if renewal is None else renewal()
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            with self._changed:
                self.failure, self._tried = failure, n_records
                if found is not None:
                    self.answers.renew(found)
                self._changed.notify_all()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until the figures include every action; whether they do."""
        with self._changed:
            self._changed.wait_for(lambda: self._tried == len(self.standing.records), timeout)
            return self.n_behind == 0

    def close(self) -> None:
        """Stop computing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.join()
