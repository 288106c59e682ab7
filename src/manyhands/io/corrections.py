"""Corrections of labels by a person, one line of JSON each, on disk before it is acknowledged."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from manyhands.exceptions import AnnotationError, WriteError
from manyhands.files import check_writable, explain, file_lock
from manyhands.io.files import PathLike, naming

FILE: Final = "corrections.jsonl"
LOCK: Final = ".manyhands-explore.lock"

DECISIONS: Final = ("correct", "confirm", "gold")
"""Actions that make a label known."""

ACTIONS: Final = (*DECISIONS, "skip", "undo")
FIELDS: Final = ("task", "label", "was", "certainty", "by", "at", "action")
"""Fields of a correction; files of earlier versions lack the last one, "chosen"."""

CHOSEN: Final = ("queue", "random")
"""Ways in which a label comes to be reviewed: from the queue (or by search), or drawn at random."""


@dataclass(frozen=True)
class Correction:
    """A person's decision about the label of a task.

    Attributes
    ----------
    task : str or int
    label : class value, list of str or None
        The label from then on, or the set of labels; None after a skip.
    was : class value, list of str or None
        The label before.
    certainty : float or None
        Probability that the model gave to ``was``; 1 if, and only if, that label was known.
    by : str
        Name of the person.
    at : str
        Time, ISO 8601 in UTC.
    action : {"correct", "confirm", "gold", "skip", "undo"}
        "gold": the label is certain enough for a gold question. "undo": takes back the last action
        on this task.
    chosen : {"queue", "random"} or None
        How the task came to be reviewed; None if unknown.
    """

    task: Any
    label: Any
    was: Any
    certainty: float | None
    by: str
    at: str
    action: str
    chosen: str | None = None

    @property
    def known(self) -> bool:
        """Whether the label is known after this action."""
        return self.action in DECISIONS


class Standing:
    """State after a sequence of corrections, with the number of actions on each task.

    Attributes
    ----------
    records : list of Correction
        All corrections, in order.
    """

    def __init__(self, records: Iterable[Correction] = ()) -> None:
        self.records: list[Correction] = []
        self._stacks: dict[Any, list[Correction]] = {}
        self._first: dict[Any, Correction] = {}
        self._versions: dict[Any, int] = {}
        for record in records:
            self.add(record)

    def add(self, record: Correction) -> None:
        """Apply one more correction."""
        self.records.append(record)
        self._versions[record.task] = self.version(record.task) + 1
        self._first.setdefault(record.task, record)
        stack = self._stacks.setdefault(record.task, [])
        if record.action != "undo":
            stack.append(record)
        elif stack:
            stack.pop()

    def version(self, task: Any) -> int:
        """Count the actions on a task."""
        return self._versions.get(task, 0)

    def of(self, task: Any) -> Correction | None:
        """Return the last action on a task that was not undone."""
        stack = self._stacks.get(task)
        return stack[-1] if stack else None

    def known_before(self, task: Any) -> Any:
        """Return the label of a task that was known before its first action; None if none was."""
        first = self._first.get(task)
        return first.was if first is not None and first.certainty == 1 else None

    def decisions(self) -> list[Correction]:
        """Return the corrections that make labels known, ordered by their tasks' first action."""
        return [stack[-1] for stack in self._stacks.values() if stack and stack[-1].known]


def matched(
    records: Iterable[Correction], tasks: Sequence[Any], classes: Sequence[Any]
) -> list[Correction]:
    """Convert ids and classes of records to the types that a table uses for them.

    A person who types a line may write "12" for 12, or the reverse. "012" is a different id.
    """
    own_task = {str(task): task for task in tasks}
    own_class = {str(label): label for label in classes}
    return [
        replace(
            record,
            task=own_task.get(str(record.task), record.task),
            label=None if record.label is None else own_class.get(str(record.label), record.label),
        )
        for record in records
    ]


def of_one_kind(records: list[Correction]) -> list[Correction]:
    """Convert all ids to text if some are text, so that "12" and 12 are one task."""
    if len({isinstance(record.task, str) for record in records}) < 2:
        return records
    return [replace(record, task=str(record.task)) for record in records]


def read_corrections(path: PathLike) -> list[Correction]:
    """Read a file of corrections; a last line that was cut off is left out.

    Raises
    ------
    FileNotFoundError, AnnotationError
        If the file does not exist, or a line is not a correction.
    """
    with naming(Path(path)):
        return _parse(Path(path).read_bytes())[0]


def _parse(content: bytes) -> tuple[list[Correction], bytes]:
    """Split content into complete records and an incomplete rest."""
    *lines, rest = content.split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                records.append(_record(line))
            except _DAMAGED as error:
                raise AnnotationError(
                    f"line {number} is not a correction ({error}); correct or remove it. A "
                    f"correction has the fields {', '.join(FIELDS)}"
                ) from error
    if rest:
        try:
            records.append(_record(rest))  # Complete but for the line break.
        except _DAMAGED:
            return records, rest
    return records, b""


_DAMAGED = (ValueError, TypeError, KeyError, RecursionError)


def _record(line: bytes) -> Correction:
    fields = json.loads(line)
    record = Correction(**{name: fields[name] for name in FIELDS}, chosen=fields.get("chosen"))
    if record.action not in ACTIONS:
        raise ValueError(f"action {record.action!r}")
    if record.chosen not in (*CHOSEN, None):
        raise ValueError(f"chosen {record.chosen!r}")
    if isinstance(record.task, list | dict) or isinstance(record.label, dict):
        raise ValueError("task and label must be plain values")
    if isinstance(record.label, list) and not all(isinstance(v, str) for v in record.label):
        raise ValueError("a set of labels must be a list of names")
    if not isinstance(record.certainty, int | float | None):
        raise ValueError(f"certainty {record.certainty!r}")
    if record.known and record.label is None:
        raise ValueError(f"no label, which {record.action!r} needs")
    return record


class Journal:
    """An open file of corrections, for one process at a time; see `open_journal`.

    Attributes
    ----------
    path : Path
    records : list of Correction
        Corrections found when it was opened.
    torn : str
        An incomplete last line, which was never acknowledged and was removed.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        content = b"".join(iter(lambda: os.read(handle, 1 << 20), b""))
        self.records, rest = _parse(content)
        self.torn = rest.decode("utf-8", errors="replace")
        self._handle = handle
        self._size = len(content) - len(rest)
        if rest:
            os.ftruncate(handle, self._size)
        elif content and not content.endswith(b"\n"):
            self._write(b"\n")

    def append(self, record: Correction) -> None:
        """Write a correction; it is on the disk when this returns.

        Raises
        ------
        WriteError
            If it cannot be written; then no part of it stays in the file.
        """
        line = json.dumps(asdict(record), ensure_ascii=True, allow_nan=False)
        try:
            os.ftruncate(self._handle, self._size)  # Remove what an earlier failure may have left.
            self._write(line.encode() + b"\n")
        except OSError as error:
            raise WriteError(error.errno, explain(error, self.path)) from error

    def _write(self, content: bytes) -> None:
        rest = content
        while rest:
            rest = rest[os.write(self._handle, rest) :]
        os.fsync(self._handle)
        self._size += len(content)


@contextmanager
def open_journal(folder: PathLike) -> Iterator[Journal]:
    """Open the file of corrections in a folder, and keep other processes from it.

    Raises
    ------
    WriteError
        If another process has it open, or it cannot be written.
    AnnotationError
        If a line is damaged, other than by being cut off at the end.
    """
    path = check_writable(folder) / FILE
    with file_lock(path.parent / LOCK) as held:
        if not held:
            raise WriteError(
                errno.EBUSY,
                f"{str(folder)!r} is open in another explorer; use that page, which several tabs "
                "and browsers may show, or stop it first",
            )
        is_new = not path.exists()
        if path.is_symlink() or not (is_new or path.is_file()):
            raise WriteError(
                errno.EEXIST,
                f"{str(path)!r} is a link or a special file, which is refused because it could "
                "lead to another file; replace it by the file that it names",
            )
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise WriteError(error.errno, explain(error, path)) from error
        try:
            if is_new:
                _sync_folder(path.parent)
            with naming(path):
                journal = Journal(path, handle)
            yield journal
        finally:
            os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Write the name of a new file to the disk, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open folders.
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
