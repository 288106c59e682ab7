"""The review desk: labels, votes and figures behind the page, and what a person decides."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from manyhands.annotations import PASSES, AnnotationTable
from manyhands.explore.figures import Figures, Model, compute
from manyhands.io.corrections import Correction, Journal, Standing, matched
from manyhands.io.exports.records import Export
from manyhands.jobs.gold import GoldRows
from manyhands.typing import BoolArray, FloatArray, IntArray

OPEN, DONE, SKIPPED = 0, 1, 2
STATES: Final = {"review": OPEN, "open": OPEN, "done": DONE, "skipped": SKIPPED, "all": None}
"""What can be shown: of the labels that nobody decided, those "to review", or all that are open."""

SUREST: Final = 0.999999
"""Most that a correction says of a label that was not known: 1 is said of known ones alone."""

Order = Literal["doubt", "random"]


class Conflict(Exception):
    """Somebody acted upon the item since it was shown."""


@dataclass(frozen=True)
class Choice:
    """Which items are shown; codes are positions in the table's classes and annotators."""

    state: str = "open"
    label: int | None = None
    given: int | None = None
    annotator: int | None = None
    order: Order = "doubt"

    @property
    def chosen(self) -> str:
        """How the items come to be reviewed: in random order and unfiltered, or otherwise."""
        filters = (self.label, self.given, self.annotator)
        is_whole = self.state in ("open", "all") and filters == (None, None, None)
        return "random" if self.order == "random" and is_whole else "queue"


class Vote(NamedTuple):
    """An annotation, and how far its annotator is trusted; NaN if nothing shows it."""

    annotator: int
    label: int
    accuracy: float
    low: float
    high: float
    n: int
    n_checked: int
    n_right: int


class Item(NamedTuple):
    """An instance as it is shown."""

    row: int
    task: Any
    version: int
    code: int
    certainty: float | None
    suggestion: int
    told: list[float | None]
    votes: list[Vote]
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
    """

    texts: dict[int, str] = field(default_factory=dict)
    fields: dict[int, dict[str, Any]] = field(default_factory=dict)
    images: dict[int, Path] = field(default_factory=dict)
    export: Export | None = None
    annotations: tuple[Path, ...] = ()
    known: tuple[Path, ...] = ()
    labels: Path | None = None


class Desk:
    """Labels under review. Methods may be called from several threads.

    Parameters
    ----------
    table : AnnotationTable
    model : Model
    journal : Journal
    contents : Contents
    title, by : str
        What is reviewed, and by whom.
    given : GoldRows, optional
        Labels that were known before anybody decided here. What is decided replaces them, and they
        stand again when it is undone.
    """

    def __init__(
        self,
        table: AnnotationTable,
        model: Model,
        journal: Journal,
        contents: Contents,
        *,
        title: str,
        by: str,
        given: GoldRows | None = None,
    ) -> None:
        self.table, self.contents, self.title, self.by = table, contents, title, by
        self.model, self.journal = model, journal
        self.notes = list(model.notes)
        self.failure: str | None = None
        self._observed = table.observed
        self._by_row = np.argsort(self._observed.instance, kind="stable")
        ends = np.cumsum(np.bincount(self._observed.instance, minlength=table.n_instances))
        self._starts = np.concatenate([[0], ends])
        self.row_of = {task: row for row, task in enumerate(table.instances.tolist())}
        self._code_of = {value: code for code, value in enumerate(table.classes.tolist())}
        self._shuffled = np.random.default_rng(0).permutation(table.n_instances)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._given = GoldRows.none(table) if given is None else given
        self._known, self._random = self._given.codes, self._given.random
        self._states = np.where(self._known >= 0, DONE, OPEN)
        self.standing = Standing()
        self._replay(journal)
        n_records = len(self.standing.records)
        self.figures = compute(table, model, self._known, n_records, self._random)
        self._tried, self._closed = self.figures.n_records, False
        self._worker = threading.Thread(target=self._work, name="figures", daemon=True)
        self._worker.start()

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def codes(self) -> IntArray:
        """Label of every instance now, corrections included, shape (n,)."""
        return np.where(self._known >= 0, self._known, self.figures.codes)

    @property
    def known(self) -> BoolArray:
        """Mask of the instances whose label a person gave or confirmed, shape (n,)."""
        return self._known >= 0

    @property
    def random(self) -> BoolArray | None:
        """Mask of the known labels that were drawn at random, shape (n,); None if nothing says."""
        return None if self._random is None else self._random & self.known

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
    def posterior(self) -> FloatArray:
        """Class probabilities, 1 for the class of a known label, shape (n, C)."""
        with self._lock:
            found = self.figures.posterior.copy()
            found[self.known] = np.eye(self.table.n_classes)[self._known[self.known]]
            return found

    @property
    def n_behind(self) -> int:
        """Number of actions that the figures do not include yet."""
        return len(self.standing.records) - self.figures.n_records

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Keep everything as it is while a page is made."""
        with self._lock:
            yield

    def counts(self) -> dict[str, int]:
        """Count the annotated instances in every state."""
        order = self.figures.order
        states = self._states[order]
        counts = {n: int((states == code).sum()) for n, code in STATES.items() if n != "all"}
        to_review = self.figures.to_review[order] & (states == OPEN)
        return counts | {"review": int(to_review.sum())}

    def rows(self, choice: Choice) -> IntArray:
        """Rows of the items that are chosen, in their order."""
        with self._lock:
            chosen = self._mask(choice)
            order = self.figures.order
            if choice.order == "random":
                annotated = np.zeros(len(chosen), dtype=bool)
                annotated[order] = True
                order = self._shuffled[annotated[self._shuffled]]
            return order[chosen[order]]

    def _mask(self, choice: Choice) -> BoolArray:
        mask = np.ones(self.table.n_instances, dtype=bool)
        if STATES[choice.state] is not None:
            mask &= self._states == STATES[choice.state]
        if choice.state == "review":
            mask &= self.figures.to_review
        if choice.label is not None:
            mask &= self.codes == choice.label
        if choice.given is not None or choice.annotator is not None:
            votes = np.ones(self._observed.n_annotations, dtype=bool)
            if choice.given is not None:
                votes &= self._observed.label == choice.given
            if choice.annotator is not None:
                votes &= self._observed.annotator == choice.annotator
            met = np.zeros(self.table.n_instances, dtype=bool)
            met[self._observed.instance[votes]] = True
            mask &= met
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
            figures, task = self.figures, self.table.instances[row].item()
            posterior = self.posterior_of(row)
            code = int(self._known[row])
            code = int(figures.codes[row]) if code < 0 else code
            rest = posterior.copy()
            rest[code] = -1.0
            told = self._told(row, code, posterior)
            return Item(
                row,
                task,
                self.standing.version(task),
                code,
                told[code],
                int(rest.argmax()),
                told,
                self._votes(row, figures),
                [(int(r), PASSES[kind]) for _, r, kind in self._passes(row)],
                self.standing.of(task),
            )

    def _told(self, row: int, code: int, posterior: FloatArray) -> list[float | None]:
        """What is told of the classes of an instance; None where nothing tells."""
        certainty = self.figures.certainty
        if self._known[row] >= 0:
            return [float(p) for p in posterior]
        if not certainty.is_known:
            return [None] * len(posterior)
        found: list[float | None] = certainty.of_classes(posterior[None], np.array([code]))[
            0
        ].tolist()
        return found

    def posterior_of(self, row: int) -> FloatArray:
        """Probabilities of an instance's classes; 1 for a label that is known by now."""
        if self._known[row] < 0:
            return self.figures.posterior[row]
        return np.eye(self.table.n_classes)[self._known[row]]

    def _votes(self, row: int, figures: Figures) -> list[Vote]:
        own = self._by_row[self._starts[row] : self._starts[row + 1]]
        votes = [
            Vote(
                r,
                label,
                float(figures.accuracy[r]),
                float(figures.low[r]),
                float(figures.high[r]),
                int(figures.n_annotations[r]),
                int(figures.n_checked[r]),
                int(figures.n_right[r]),
            )
            for r, label in zip(
                self._observed.annotator[own].tolist(),
                self._observed.label[own].tolist(),
                strict=True,
            )
        ]
        return sorted(votes, key=lambda vote: -vote.accuracy)

    def _passes(self, row: int) -> IntArray:
        passes = self.table.passes
        return np.zeros((0, 3), dtype=int) if passes is None else passes[passes[:, 0] == row]

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
        code: int | None,
        *,
        shown: int,
        gold: bool = False,
        chosen: str | None = None,
    ) -> Correction:
        """Write a decision to the disk, then act upon it.

        Parameters
        ----------
        row, version : int
            The item, and the number of actions on it when it was shown.
        code : int or None
            Class; None skips the item.
        shown : int
            Class that was shown as the label: newer figures may name another by now.
        gold : bool
            Whether the label may serve as a gold question.
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
            if code is None:
                action = "skip"
            elif gold:
                action = "gold"
            else:
                action = "confirm" if code == shown else "correct"
            return self._append(item, shown, code, action, chosen)

    def undo(self, row: int, version: int) -> Correction:
        """Take the last action on an item back; see `decide`."""
        with self._lock:
            item = self.item(row)
            if item.version != version or item.last is None:
                raise Conflict
            return self._append(item, item.code, None, "undo")

    def _append(
        self, item: Item, was: int, code: int | None, action: str, chosen: str | None = None
    ) -> Correction:
        values = self.table.classes.tolist()
        told = item.told[was]
        if told is not None and self._known[item.row] != was:
            told = min(round(told, 6), SUREST)
        record = Correction(
            item.task,
            None if code is None else values[code],
            values[was],
            told,
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
        decided = found if found is not None and found.known else None
        known = self._known.copy()  # The worker may be reading the old array.
        known[row] = self._given.codes[row] if decided is None else self._code_of[decided.label]
        self._known = known
        how = None if decided is None else decided.chosen
        if self._random is not None or how is not None:
            nobody = np.zeros(len(known), dtype=bool)
            drawn = nobody if self._random is None else self._random.copy()
            given = self._given.random  # What was drawn at random once remains so.
            drawn[row] = how == "random" or (given is not None and given[row])
            self._random = drawn
        skipped = OPEN if found is None else SKIPPED
        self._states[row] = DONE if known[row] >= 0 else skipped

    def _replay(self, journal: Journal) -> None:
        """Take up what was decided in earlier runs."""
        for record in matched(journal.records, [*self.row_of], [*self._code_of]):
            self.standing.add(record)
        strange = 0
        for task in {record.task for record in self.standing.records}:
            found = self.standing.of(task)
            fits = found is None or found.label is None or found.label in self._code_of
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
                f"{strange:,} of the tasks in {journal.path.name}, or their classes, are not among "
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
                known, n_records = self._known, len(self.standing.records)
                drawn = self._random
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # They were shown at the first fit.
                    found = compute(self.table, self.model, known, n_records, drawn)
                    failure = None
            except Exception as error:
                found, failure = None, f"{type(error).__name__}: {error}"
            with self._changed:
                self.failure, self._tried = failure, n_records
                if found is not None:
                    self.figures = found
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
