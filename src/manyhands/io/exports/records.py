"""Data that readers of exports fill in: answers, gold labels, items, and what was left out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import preview
from manyhands.io.gold import GoldFile
from manyhands.io.sheets import UNSTATED, Stated
from manyhands.typing import AnyArray, FloatArray, IntArray

ABSTAIN, SKIP = "abstain", "skip"

AnnotatorFrom: TypeAlias = Literal["file", "folder", "sheet"]
"""Things that an annotator may be named after, if each holds one annotator's work."""

CONTENT = frozenset(
    {"text", "sentence", "title", "image", "url", "audio", "video", "path", "content", "document"}
)
"""Names of columns that hold the content of an item; other columns of a long table are kept only
if they are named."""

NO_ANSWER = "no answer was given"

NOTHING = "nothing"
"""Kind of a submitted answer without a label: an abstention, unless such answers are kept."""
REPEATED = "an annotator answered the same question on the same task again"
UNREADABLE = "the record cannot be read"


@dataclass(slots=True)
class Answer:
    """One annotator's answer about one task, or pass.

    Attributes
    ----------
    task, worker : str or int
        ``worker`` is None if the file names no annotator.
    question : str or None
        None: a pass on all questions.
    labels : tuple
        One label, several labels, or none for a pass.
    at : str
        Position in the file.
    passed : str or None
        "abstain" or "skip".
    ended, seconds : float or None
        When it was given (seconds since 1970), and how long it took, in seconds.
    rejected : bool
        Whether the requester rejected the work.
    is_predicted : bool
        Whether a model gave it.
    is_list : bool
        Whether the export holds the labels one by one, so that none of them must be split.
    """

    task: Any
    worker: Any
    question: str | None
    labels: tuple[Any, ...]
    at: str
    passed: str | None = None
    ended: float | None = None
    seconds: float | None = None
    rejected: bool = False
    is_predicted: bool = False
    is_list: bool = False


@dataclass(slots=True)
class Gold:
    """A known label; if there are several, each of them counts as right."""

    task: Any
    question: str | None
    labels: tuple[Any, ...]
    at: str


@dataclass(frozen=True)
class LeftOut:
    """Records that were left out for one reason.

    Attributes
    ----------
    reason : str
    where : tuple of str
        Position of each record.
    """

    reason: str
    where: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.where)

    def __str__(self) -> str:
        shown = "; ".join(self.where[:3]) + ("; ..." if self.count > 3 else "")
        return f"{self.count:,}: {self.reason} ({shown})"


@dataclass(frozen=True)
class Origin:
    """Facts about the tool's own file that are needed to write labels back.

    Attributes
    ----------
    control : dict
        Label Studio's "type" and "to_name" of the question, if the file holds them.
    joined : bool
        Whether a class may be a set of labels, such as "a + b" (``multilabel="join"``).
    sets : dict {class: list of str}
        Labels of every class that is a set.
    """

    control: dict[str, str] = field(default_factory=dict)
    joined: bool = False
    sets: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Items:
    """The items' own data.

    Attributes
    ----------
    ids : array of shape (n,)
        Instances of the table come first, in its order; others have no annotations.
    columns : dict {name: list of length n}
        Values, None where an item has no such field. The platform's prefix ("data.", "Input.") is
        removed from names if they stay distinct.
    sources : dict {name: str}
        Name of each column in the platform's file.
    """

    ids: AnyArray
    columns: dict[str, list[Any]]
    sources: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Export:
    """Content of an export; see `read_export`.

    Attributes
    ----------
    annotations : AnnotationTable
    gold : GoldFile
        Known labels by task; empty if there are none.
    items : Items
    left_out : tuple of LeftOut
        Records that are not in ``annotations``, by reason, with positions.
    notes : tuple of str
        Further facts to know, such as passes and rejected work in the table.
    seconds, ended : arrays of shape (n_annotations,)
        How long each annotation took, and when it was given (seconds since 1970); NaN: unknown.
    format, question : str
    alternatives : tuple of str
        Other formats that also match.
    annotator_names : dict
        Original name of each annotator, if they were anonymised.
    tables : dict {label: AnnotationTable}
        With ``multilabel="split"``, one table of "no" and "yes" per label.
    origin : Origin
        Facts that are needed to write labels back.
    reading : dict {option: value}
        Options that name what the reader found, and so read the same again.
    n_unlabelled : int
        How many abstentions were handed in without a label, rather than with one that says so.
    """

    table: AnnotationTable | None
    gold: GoldFile
    items: Items
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    seconds: FloatArray
    ended: FloatArray
    format: str
    question: str
    alternatives: tuple[str, ...] = ()
    annotator_names: dict[str, str] = field(default_factory=dict)
    tables: dict[str, AnnotationTable] = field(default_factory=dict)
    origin: Origin = field(default_factory=lambda: Origin())
    reading: dict[str, Any] = field(default_factory=dict)
    n_unlabelled: int = 0

    @property
    def annotations(self) -> AnnotationTable:
        """Table of the annotations.

        Raises
        ------
        AnnotationError
            If answers were split into one table per label.
        """
        if self.table is None:
            raise AnnotationError(
                "multilabel='split' makes one table per label; take one of .tables "
                f"({preview(list(self.tables))})"
            )
        return self.table


@dataclass(frozen=True)
class Asked:
    """Choices of the caller, for the readers of formats; see `manyhands.io.read_export`."""

    question: str | None = None
    task: str | Sequence[str] | None = None
    worker: str | None = None
    label: str | None = None
    annotators: str | Sequence[str] | None = None
    classes: Any = None
    items: str | None = None
    fields: tuple[str, ...] = ()
    predictions_as_annotators: bool = False
    annotator_from: AnnotatorFrom | None = None
    stated: Stated = UNSTATED


@dataclass(frozen=True, eq=False)
class VoteCounts:
    """Number of votes for each class, by unknown annotators.

    Attributes
    ----------
    tasks : list of length n
    classes : list of length C
    counts : integer array of shape (n, C)
    """

    tasks: list[Any]
    classes: list[str]
    counts: IntArray


@dataclass
class Gathered:
    """Everything that was read, before a question is chosen.

    `items` maps tasks to their own data; `candidates` are columns that may hold the answers, which
    the argument `named_by` names, and `default_question` is the one that a file calls its own among
    several. `controls` says of a question of Label Studio what its "type" and "to_name" are, `sets`
    what labels a class joins.
    With `keep_empty`, an answer without a label says that none applies; else `unlabelled` counts
    such answers to each question, if the annotator handed them in.
    With `unnamed`, annotators are places in lists; `counts` take the place of answers. `found` are
    the options that name what the reader found by itself.
    """

    answers: list[Answer] = field(default_factory=list)
    gold: list[Gold] = field(default_factory=list)
    items: dict[Any, dict[str, Any]] = field(default_factory=dict)
    classes: dict[str, list[Any]] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    candidates: list[str] = field(default_factory=list)
    named_by: str = "question"
    controls: dict[str, dict[str, str]] = field(default_factory=dict)
    sets: dict[str, list[str]] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    unlabelled: Counter[str | None] = field(default_factory=Counter)
    keep_first: bool = False
    keep_empty: bool = False
    unnamed: bool = False
    counts: VoteCounts | None = None
    default_question: str | None = None
    _origin: dict[Any, str] = field(default_factory=dict)

    def lose(self, reason: str, at: str) -> None:
        """Record that something was left out."""
        self.lost.setdefault(reason, []).append(at)

    def note(self, text: str) -> None:
        """Record something worth knowing, once."""
        if text not in self.notes:
            self.notes.append(text)

    def found_as(self, option: str, value: Any) -> None:
        """Record an option that a reader found, unless documents differ in it."""
        if self.found.setdefault(option, value) != value:
            self.found[option] = None

    def item(self, task: Any, data: dict[str, Any], origin: str) -> None:
        """Keep an item's own data.

        Raises
        ------
        AnnotationError
            If another file holds other data under the same id.
        """
        task = str(task)
        known = self.items.setdefault(task, data)
        first = self._origin.setdefault(task, origin)
        if first != origin and known != data:
            names = sorted(name for name in data if known.get(name) != data[name])
            raise AnnotationError(
                f"task {task!r} is one item in {first} and a different one in {origin} (they "
                f"differ in {', '.join(map(repr, names[:3]))}), because the ids are the platform's "
                f"own. Name the field with your own id, such as task={(names or ['data.id'])[0]!r}"
            )

    def answer(
        self,
        task: Any,
        worker: Any,
        question: str | None,
        labels: Iterable[Any],
        at: str,
        **more: Any,
    ) -> None:
        """Add an answer; one without labels that is no pass is left out, unless those are kept."""
        given = tuple(label for label in map(plain, labels) if label is not None)
        if more.get("passed") == NOTHING:
            more["passed"] = None if self.keep_empty else ABSTAIN
            self.unlabelled[question] += not self.keep_empty
        if not given and more.get("passed") is None and not self.keep_empty:
            self.lose(NO_ANSWER, at)
            return
        if task is None or task == "":
            self.lose("the record names no task", at)
            return
        if isinstance(task, list | dict) or isinstance(worker, list | dict):
            self.lose("the task or the annotator is neither text nor a number", at)
            return
        self.answers.append(Answer(task, worker, question, given, at, **more))


def plain(value: Any) -> Any:
    """Return a label as text or an integer; None for nothing; nested values as JSON.

    Examples
    --------
    >>> plain(True), plain(2.0), plain(" a "), plain("")
    ('true', 2, 'a', None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        if value != value:
            return None
        return int(value) if value.is_integer() else repr(value)
    if isinstance(value, str):
        return value.strip() or None
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def listed(value: Any) -> Sequence[Any]:
    """Return a list as it is, nothing as no values, and anything else as one value."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def members(value: Any, name: str, at: str) -> list[Any]:
    """Return a list, or raise an error that names the field."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed(f"{name!r} is not a list", at)
    return value


def mapping(value: Any, name: str, at: str) -> dict[str, Any]:
    """Return an object, or raise an error that names the field."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Malformed(f"{name!r} is not an object", at)
    return value


class Malformed(ValueError):
    """One record cannot be read; the others can."""

    def __init__(self, reason: str, at: str) -> None:
        super().__init__(reason)
        self.reason, self.at = reason, at


_ZONES = {"PST": "-0800", "PDT": "-0700", "UTC": "+0000", "GMT": "+0000"}
_FORMS = ("%a %b %d %H:%M:%S %z %Y", "%m/%d/%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S %z")


def moment(value: Any) -> float | None:
    """Read a time as seconds since 1970; None if it is absent or of an unknown form.

    Examples
    --------
    >>> moment("Wed Jan 24 09:48:10 PST 2018") == moment("2018-01-24T17:48:10Z")
    True
    """
    if isinstance(value, bool) or value in (None, ""):
        return None
    if isinstance(value, int | float):
        return float(value)
    text = re.sub(r"\b(PST|PDT|UTC|GMT)\b", lambda zone: _ZONES[zone[0]], str(value).strip())
    try:
        return _seconds(datetime.fromisoformat(text))
    except ValueError:
        pass
    for form in _FORMS:
        try:
            return _seconds(datetime.strptime(text, form))
        except ValueError:
            continue
    return None


def _seconds(time: datetime) -> float:
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def number(value: Any) -> float | None:
    """Read a number; return None if the value is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def or_abstained(labels: list[Any]) -> str | None:
    """Return an answer; one without a label is an abstention, or means none (`NOTHING`)."""
    return None if any(plain(label) is not None for label in labels) else NOTHING


def varying_columns(rows: list[tuple[Any, dict[str, Any]]], names: list[str]) -> list[str]:
    """Return columns that differ between rows of one task, so are answers, not its data."""
    first: dict[Any, dict[str, Any]] = {}
    varying: set[str] = set()
    for task, row in rows:
        known = first.setdefault(task, row)
        varying.update(n for n in names if n not in varying and known.get(n) != row.get(n))
    return [name for name in names if name in varying]
