"""The review desk of sets of labels: what was inferred, and which sets a person decided."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations import PASSES, LabelSetTable
from manyhands.decision import decide_sets
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.explore.desk import DONE, OPEN, SKIPPED, STATES, SUREST, Conflict, Contents
from manyhands.explore.inputs import contents_of, described_in
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.io.annotations import read_shown
from manyhands.io.consensus_labels import ACTIONS
from manyhands.io.consensus_sets import SetConsensus, set_consensus
from manyhands.io.corrections import Correction, Journal, Standing, matched, open_journal
from manyhands.io.label_sets import items_shown, read_sets_with_account
from manyhands.io.shown import Shown, shown_of
from manyhands.metrics.set_levels import levels_of_sets
from manyhands.models import load
from manyhands.report.sections import SETS
from manyhands.typing import BoolArray, IntArray


@dataclass(frozen=True)
class SetChoice:
    """Which items are shown; ``option`` is in their sets, or ``ticked`` by somebody."""

    state: str = "open"
    option: int | None = None
    ticked: int | None = None
    order: str = "doubt"

    @property
    def chosen(self) -> str:
        """How the items come to be reviewed: in random order and unfiltered, or otherwise."""
        is_whole = self.state in ("open", "all") and self.option is None and self.ticked is None
        return "random" if self.order == "random" and is_whole else "queue"


class SetItem(NamedTuple):
    """An instance as it is shown.

    Attributes
    ----------
    row : int
    task : id
    version : int
        Number of actions on it.
    ticks : boolean array of shape (n_options,)
        Its set.
    told : list of (float or None)
        How probably each option is as it is said; None where nothing tells, 1 where it is known.
    n_ticked : integer array of shape (n_options,)
        Answers that tick each option.
    answers : list of (annotator, names)
    passes : list of (annotator, kind)
    last : Correction or None
    """

    row: int
    task: Any
    version: int
    ticks: BoolArray
    told: list[float | None]
    n_ticked: IntArray
    answers: list[tuple[int, list[str]]]
    passes: list[tuple[int, str]]
    last: Correction | None


class SetDesk:
    """The sets of a folder, and what a person decided about them.

    The other sets stay as they were inferred: ``manyhands aggregate --known`` infers them again.

    Parameters
    ----------
    model : BaseSetAggregator, fitted
    found : SetConsensus
    journal : Journal
    contents : Contents
    described : dict
        Summary of the folder.
    by : str
        Who reviews.
    """

    def __init__(
        self,
        model: BaseSetAggregator,
        found: SetConsensus,
        journal: Journal,
        contents: Contents,
        described: dict[str, Any],
        by: str,
    ) -> None:
        self.table: LabelSetTable = model.table_
        self.found, self.journal, self.contents, self.by = found, journal, contents, by
        self.title = str(described["title"])
        self.headline = str(described["headline"])
        self.method = type(model).__name__
        self.separator = str(described["set_data"]["separator"])
        self.notes: list[str] = []
        self.row_of = {task: row for row, task in enumerate(self.table.instances.tolist())}
        self._code_of = {name: code for code, name in enumerate(found.options.tolist())}
        self._ticks = found.ticks.copy()
        self._states = np.where(found.known.all(axis=1), DONE, OPEN)
        self._lock = threading.RLock()
        self._order = found.by_doubt()
        self._random = np.random.default_rng(0).permutation(len(self._order))
        order = np.argsort(self.table.instance, kind="stable")
        self._by_row = order
        self._starts = np.searchsorted(
            self.table.instance[order], np.arange(self.table.n_instances + 1)
        )
        self.standing = Standing()
        strange = 0
        for record in matched(journal.records, list(self.row_of), []):
            self.standing.add(record)
        for task in {record.task for record in self.standing.records}:
            last = self.standing.of(task)
            labels = last.label if last is not None and last.known else []
            if task in self.row_of and all(name in self._code_of for name in labels):
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
                f"{strange:,} of the tasks in {journal.path.name}, or their options, are not among "
                "these sets; their corrections are kept and have no effect here"
            )

    # -- what is shown -----------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Number of items in every state, and of those that are to review."""
        to_review = (self.found.actions == ACTIONS[2]) & (self._states == OPEN)
        return {
            "open": int((self._states == OPEN).sum()),
            "done": int((self._states == DONE).sum()),
            "skipped": int((self._states == SKIPPED).sum()),
            "review": int(to_review.sum()),
        }

    def rows(self, choice: SetChoice) -> IntArray:
        """Rows that are chosen, in order."""
        state = STATES[choice.state]
        mask = np.ones(len(self._states), dtype=bool)
        if state is not None:
            mask &= self._states == state
        if choice.state == "review":
            mask &= self.found.actions == ACTIONS[2]
        if choice.option is not None:
            mask &= self._ticks[:, choice.option]
        if choice.ticked is not None:
            holds = self.table.ticks[:, [choice.ticked]].toarray().ravel()
            met = np.zeros(len(mask), dtype=bool)
            met[self.table.instance[holds]] = True
            mask &= met
        order = self._random if choice.order == "random" else self._order
        return np.asarray(order[mask[order]])

    def item(self, row: int) -> SetItem:
        """Everything about one instance.

        Raises
        ------
        IndexError
            If there is no such row.
        """
        if not 0 <= row < self.table.n_instances:
            raise IndexError(row)
        with self._lock:
            task, ticks = self.table.instances[row].item(), self._ticks[row]
            own = self._by_row[self._starts[row] : self._starts[row + 1]]
            given = self.table.ticks[own].toarray()
            names = self.found.options
            answers = [
                (int(r), names[line].tolist())
                for r, line in zip(self.table.annotator[own], given, strict=True)
            ]
            passes = np.zeros((0, 3), dtype=int) if self.table.passes is None else self.table.passes
            passed = [(int(r), PASSES[kind]) for i, r, kind in passes.tolist() if i == row]
            return SetItem(
                row,
                task,
                self.standing.version(task),
                ticks,
                self._told(row),
                given.sum(axis=0),
                answers,
                passed,
                self.standing.of(task),
            )

    def _told(self, row: int) -> list[float | None]:
        if self._states[row] == DONE:
            return [1.0] * self.table.n_options
        told = np.where(
            self.found.ticks[row] == self._ticks[row],
            self.found.probability[row],
            1 - self.found.probability[row],
        )
        return [None if np.isnan(p) else float(p) for p in told]

    def last(self) -> SetItem | None:
        """Return the item that was acted upon last and still is; None if nothing stands."""
        with self._lock:
            for record in reversed(self.standing.records):
                if record.task in self.row_of and self.standing.of(record.task) is not None:
                    return self.item(self.row_of[record.task])
            return None

    def is_done(self, row: int) -> bool:
        """Whether the set of an instance is known."""
        return bool(self._states[row] == DONE)

    # -- what a person decides ---------------------------------------------------------------------

    def decide(
        self, row: int, version: int, codes: Sequence[int] | None, *, chosen: str | None = None
    ) -> Correction:
        """Write a decision to the disk, then act upon it.

        Parameters
        ----------
        row, version : int
            The item, and the number of actions on it when it was shown.
        codes : sequence of int, or None
            Options that apply; None skips the item.
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
            was = self._names(item.ticks)
            if codes is None:
                return self._append(item, None, "skip", chosen)
            ticks = np.zeros(self.table.n_options, dtype=bool)
            ticks[list(codes)] = True
            label = self._names(ticks)
            return self._append(item, label, "confirm" if label == was else "correct", chosen)

    def undo(self, row: int, version: int) -> Correction:
        """Take the last action on an item back; see `decide`."""
        with self._lock:
            item = self.item(row)
            if item.version != version or item.last is None:
                raise Conflict
            return self._append(item, None, "undo", None)

    def _append(
        self, item: SetItem, label: list[str] | None, action: str, chosen: str | None
    ) -> Correction:
        certainty: float | None = None
        if all(told is not None for told in item.told):
            certainty = round(min(float(told or 0.0) for told in item.told), 6)
            certainty = certainty if self.is_done(item.row) else min(certainty, SUREST)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        was = self._names(item.ticks)
        record = Correction(item.task, label, was, certainty, self.by, at, action, chosen)
        self.journal.append(record)
        self.standing.add(record)
        self._apply(item.row)
        return record

    def _names(self, ticks: BoolArray) -> list[str]:
        names: list[str] = self.found.options[ticks].tolist()
        return names

    def _apply(self, row: int) -> None:
        last = self.standing.of(self.table.instances[row].item())
        if last is not None and last.known:
            self._ticks[row] = False
            self._ticks[row, [self._code_of[name] for name in last.label]] = True
            self._states[row] = DONE
            return
        self._ticks[row] = self.found.ticks[row]
        known = self.found.known[row].all()
        self._states[row] = DONE if known else OPEN if last is None else SKIPPED

    # -- what is written ---------------------------------------------------------------------------

    def reviewed(self, *, only: bool = False) -> SetConsensus:
        """Return the sets as they stand, corrections included; ``only`` what somebody decided."""
        with self._lock:
            done = self._states == DONE
            known = self.found.known | done[:, None]
            found = replace(
                self.found,
                ticks=self._ticks.copy(),
                posterior=np.where(done[:, None], self._ticks, self.found.posterior),
                probability=np.where(known, 1.0, self.found.probability),
                actions=np.where(done, ACTIONS[0], self.found.actions),
                known=known,
            )
            return found.take(done) if only else found

    def shown(self) -> Shown | None:
        """Texts of the items, from where the page has them."""
        texts = self.contents.texts
        if texts:
            tasks = self.table.instances[[*texts]].tolist()
            return Shown.of("text", tasks, texts.values())
        return shown_of(self.contents.export)


@contextmanager
def open_set_desk(
    folder: Path,
    annotations: Path | Sequence[Path],
    *,
    by: str,
    texts: str | None = None,
    images: str | None = None,
    **options: Any,
) -> Iterator[SetDesk]:
    """Open a folder of sets of labels for review; nobody else can until it is closed.

    Parameters
    ----------
    folder : Path
        What ``aggregate --multilabel`` wrote.
    annotations : Path or sequence of Path
        The answers that the sets rest on.
    by : str
        Who reviews.
    texts, images : str, optional
        As in `manyhands.explore.inputs.open_desk`.
    **options
        As in `manyhands.io.read_label_sets`.

    Raises
    ------
    ModelFolderError
        If the folder holds no labels of manyhands.
    AnnotationError
        If it holds no sets, or those of other answers, or the file of corrections is damaged.
    WriteError
        If corrections cannot be written, or another explorer has the folder open.
    """
    described = described_in(folder)
    for name, source in (("texts", texts), ("images", images)):
        if source is not None and not Path(source).exists():
            raise AnnotationError(
                f"{name}={source!r} does not exist; of sets of labels, it is a file of texts or a "
                "folder of images. The fields of an export are shown without it"
            )
    if described.get("kind") != SETS:
        raise AnnotationError(
            f"{folder} holds labels that are one class each; leave multilabel= out, or write the "
            "folder by manyhands aggregate with it"
        )
    model: Any = load(folder)
    table, export = read_sets_with_account(annotations, **options)
    own = set(model.instances_.astype(str).tolist())
    strange = [str(task) for task in table.instances.tolist() if str(task) not in own]
    if strange:
        raise AnnotationError(
            f"{len(strange):,} instances of the answers (such as {strange[0]!r}) have no set in "
            f"{folder}; give the answers that it was made from, or aggregate these anew"
        )
    rule = "probable" if described["rule"] == "threshold" else described["rule"]
    decided = decide_sets(model.posterior_, rule, threshold=described.get("threshold"))
    levels = levels_of_sets(model, decided.ticks)
    found = set_consensus(model.table_, model, decided.ticks, levels.probability)
    if export is None:
        export = items_shown(model.table_, read_shown(annotations, None, **options))
    contents = contents_of(model.table_.answers, export, annotations, texts, images, options)
    with open_journal(folder) as journal:
        desk = SetDesk(model, found, journal, contents, described, by)
        for note in desk.notes:
            warn_caller(note)
        yield desk
