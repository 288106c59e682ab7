"""Decisions that are the same for every format, such as repeated answers (`docs/formats.md`).

Each function takes answers, returns those that are kept, and records what it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal

from manyhands.annotations.duplicates import advice_on_repeats
from manyhands.annotations.label_sets import (
    NO_YES,
    Multilabel,
    cut_cells,
    name_of,
    options_of,
    read_cells,
    rows_of_ticks,
    ticked_advice,
    ways_on,
)
from manyhands.annotations.wide import joined_id
from manyhands.exceptions import AnnotationError
from manyhands.io.exports.records import NO_ANSWER, REPEATED, Answer, Gathered, Gold

Repeats = Literal["auto", "error", "last", "keep"]

_TOO_LARGE = (
    "{} can be put together only in files that fit in memory; allow more memory (--memory), or "
    "read one file at a time"
)


class NoAnswers(AnnotationError):
    """No annotation answers the question; ``lost`` is what was left out, as in `Gathered`."""

    def __init__(self, message: str, lost: dict[str, list[str]]) -> None:
        super().__init__(message)
        self.lost = lost

    def of(self, name: str) -> NoAnswers:
        """Return the same error with the name of a file."""
        return NoAnswers(f"{name}: {self}", self.lost)


def _both(answers: list[Answer], gold: list[Gold]) -> list[Answer | Gold]:
    return [*answers, *gold]


def choose_question(gathered: Gathered, asked: str | None) -> str:
    """Return the question that was asked for, or the only one.

    Raises
    ------
    AnnotationError
        If the question is unknown, or none was asked for and there are several; the message lists
        the questions with counts of values.
    """
    counts: dict[str, Counter[Any]] = {}
    for record in _both(gathered.answers, gathered.gold):
        if record.question is not None:
            counts.setdefault(record.question, Counter()).update(record.labels)
    shown = "; ".join(f"{name!r} ({_counted(values)})" for name, values in counts.items())
    if asked is not None:
        if asked in counts:
            return asked
        there = shown or ", ".join(map(repr, gathered.candidates)) or "none at all"
        raise NoAnswers(f"question={asked!r} is not among the questions: {there}", gathered.lost)
    if len(counts) == 1:
        return next(iter(counts))
    if gathered.default_question in counts:
        others = [name for name in counts if name != gathered.default_question]
        gathered.note(
            f"the question is {gathered.default_question!r}; {', '.join(map(repr, others))} can "
            "be chosen with question="
        )
        return str(gathered.default_question)
    if counts:
        raise AnnotationError(
            f"there are {len(counts)} questions; choose one with question=: {shown}"
        )
    lost = "; ".join(f"{len(w):,} times: {reason}" for reason, w in gathered.lost.items())
    message = "no annotations are found" + (f" ({lost})" if lost else "")
    if not gathered.candidates:
        raise NoAnswers(message, gathered.lost)
    columns = ", ".join(map(repr, gathered.candidates))
    raise AnnotationError(
        f"{message}; name the column of answers with {gathered.named_by}=, one of {columns}"
    )


def _counted(values: Counter[Any]) -> str:
    most = ", ".join(f"{str(value)[:30]!r}: {n:,}" for value, n in values.most_common(4))
    return most + (f", and {len(values) - 4:,} more values" if len(values) > 4 else "")


def own_ids(
    gathered: Gathered,
    answers: list[Answer],
    gold: list[Gold],
    task: str | Sequence[str] | None,
) -> None:
    """Replace the platform's ids by a field of the items, or by several fields together."""
    if task is None:
        return
    values = {key: _own_id(data, task) for key, data in gathered.items.items()}
    known = sorted({name for data in gathered.items.values() for name in data})
    if not any(value is not None for value in values.values()):
        fields = f"they have {', '.join(map(repr, known))}" if known else "they have none"
        raise AnnotationError(
            f"task={task!r} is not a field of the items; {fields}. Leave task= out to use the "
            "platform's ids"
        )
    for record in _both(answers, gold):
        value = values.get(str(record.task))
        if value is None:
            raise AnnotationError(
                f"task={task!r} is empty in {record.at} (task {record.task!r}); fill it, or leave "
                "task= out to use the platform's ids"
            )
        record.task = value
    gathered.items = {
        str(values[key]): data for key, data in gathered.items.items() if values[key] is not None
    }


def _own_id(data: dict[str, Any], task: str | Sequence[str]) -> Any:
    """Look up the fields that make up an id; None if one is absent."""
    whole = _field(data, task) if isinstance(task, str) else None
    if whole is not None or (isinstance(task, str) and "," not in task):
        return whole
    names = task.split(",") if isinstance(task, str) else task
    parts = [_field(data, name.strip()) for name in names]
    return None if None in parts else joined_id(parts)


def _field(data: dict[str, Any], path: str) -> Any:
    """Look up a field by its name, by its name without the platform's prefix, or by a path."""
    if path in data:
        return data[path]
    brief = [value for name, value in data.items() if short(name) == path]
    if len(brief) == 1:
        return brief[0]
    value: Any = data
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None and "." in path:
        head, _, rest = path.rpartition(".")
        inner = data.get(head)
        value = inner.get(rest) if isinstance(inner, dict) else None
    return value if isinstance(value, str | int) else None


def short(name: str) -> str:
    """Name of a field without the platform's prefix."""
    for prefix in ("data.", "Input.", "INPUT:", "fields.", "metadata."):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def accepted(gathered: Gathered, answers: list[Answer], *, drop: bool) -> list[Answer]:
    """Note rejected work, and drop it if that was asked for."""
    rejected = [a for a in answers if a.rejected]
    if rejected and not drop:
        gathered.note(
            f"{len(rejected):,} answers were rejected by the requester, but are kept; "
            "drop_rejected=True leaves them out"
        )
    for answer in rejected if drop else ():
        gathered.lose("the work was rejected", answer.at)
    return [a for a in answers if not (drop and a.rejected)]


def once(gathered: Gathered, answers: list[Answer], repeats: str) -> list[Answer]:
    """Keep the last answer (by time, else by position) of an annotator on a task."""
    pairs: dict[tuple[str, str], list[int]] = {}
    for i, answer in enumerate(answers):
        pairs.setdefault((str(answer.task), str(answer.worker)), []).append(i)
    again = [rows for rows in pairs.values() if len(rows) > 1]
    if not again or repeats == "keep":
        return answers
    if repeats == "error":
        a = answers[again[0][1]]
        differ = all(len({answers[i].labels for i in rows}) == len(rows) for rows in again)
        n = sum(len({answers[i].labels for i in rows}) > 1 for rows in again)
        option = (*a.labels, "NAME")[0]
        advice = ticked_advice(len(again), len(pairs), differ, option)
        advice = advice or advice_on_repeats(len(again), n)
        raise AnnotationError(
            f"{len(again):,} (task, annotator) pairs are repeated, the first in {a.at}: task "
            f"{a.task!r} by {a.worker!r}. {advice}"
        )
    dropped = set()
    for rows in again:
        times = [answers[i].ended for i in rows]
        key = (lambda i: (answers[i].ended, i)) if None not in times else (lambda i: (0.0, i))
        kept = min(rows, key=key) if gathered.keep_first else max(rows, key=key)
        dropped |= set(rows) - {kept}
    which = "first" if gathered.keep_first else "last"
    for i in sorted(dropped):
        gathered.lose(f"{REPEATED}; the {which} is kept", answers[i].at)
    return [a for i, a in enumerate(answers) if i not in dropped]


def anonymised(gathered: Gathered, answers: list[Answer]) -> dict[str, str]:
    """Rename annotators to w001, w002, ..., also in positions that contain their names."""
    names: dict[str, str] = {}
    for answer in answers:
        answer.worker = names.setdefault(str(answer.worker), f"w{len(names) + 1:03d}")
    for where in gathered.lost.values():
        where[:] = [_without_names(at, names) for at in where]
    return {code: name for name, code in names.items()}


def _without_names(at: str, names: dict[str, str]) -> str:
    """Replace names of files and folders that are annotators; the path ends at the first comma."""
    path, comma, rest = at.partition(", ")
    parts = []
    for part in path.split("/"):
        stem, dot, suffix = part.partition(".")
        parts.append(names.get(part, names.get(stem, stem) + dot + suffix))
    return "/".join(parts) + comma + rest


def cut_answers(
    gathered: Gathered,
    answers: list[Answer],
    multilabel: Multilabel,
    known: Sequence[Any],
    *,
    whole: bool,
    rows: bool,
) -> list[Answer]:
    """Split cells such as "policy;safety", and join the rows of ticked labels.

    Labels that an export holds one by one are never split, whatever their names contain.

    Parameters
    ----------
    gathered, answers
    multilabel : {"error", "join", "split", "none"}
    known : sequence
        Classes that are named, by the caller or the tool; they are never split.
    whole : bool
        Whether these are all answers; a piece of them does not show how to split.
    rows : bool
        Whether an annotator's repeated answers may be ticked labels.

    Raises
    ------
    AnnotationError
        If cells hold several labels and the caller did not say what to do.
    """
    texts = [
        a for a in answers if not a.is_list and len(a.labels) == 1 and isinstance(a.labels[0], str)
    ]
    counts = Counter(a.labels[0] for a in texts)
    cells = read_cells(counts, multilabel, "the question", known)
    cut = {cell: labels for cell, labels in (cells or {}).items() if labels != (cell,)}
    if cut and not whole:
        raise AnnotationError(_TOO_LARGE.format(f"cells of several labels ({next(iter(cut))!r})"))
    for answer in texts:
        answer.labels = cut.get(answer.labels[0], answer.labels)
    if multilabel not in ("join", "split"):
        for answer in texts:
            if not answer.labels:
                gathered.lose(NO_ANSWER, answer.at)
        return [a for a in answers if a.labels or a.passed]
    told = cut_cells(cells or {}, counts)
    if told is not None:
        gathered.note(told)
    if not rows:
        return answers
    given = [a for a in answers if not a.passed]
    pairs: list[Hashable] = [(str(a.task), str(a.worker)) for a in given]
    groups = rows_of_ticks(pairs, [tuple(map(str, a.labels)) for a in given])
    dropped = set()
    if groups and not whole:
        raise AnnotationError(_TOO_LARGE.format(f"rows of ticked labels ({given[0].at})"))
    for found in groups:
        given[found[0]].labels = tuple(label for i in found for label in given[i].labels)
        dropped |= {id(given[i]) for i in found[1:]}
    return [a for a in answers if id(a) not in dropped]


def single(gathered: Gathered, answers: list[Answer], multilabel: Multilabel) -> list[Answer]:
    """Refuse answers of several labels, or make each set of labels one class."""
    several = [a for a in answers if len(a.labels) != 1 and not a.passed]
    if several and multilabel != "join":
        sets = Counter(tuple(map(str, a.labels)) for a in answers)
        cells: dict[Hashable, tuple[str, ...]] = {labels: labels for labels in sets}
        shown = ", ".join(map(repr, several[0].labels[:3]))
        raise AnnotationError(
            f"{len(several):,} of {len(answers):,} answers hold several labels, the first in "
            f"{several[0].at} ({shown}). {ways_on(options_of(cells, sets)[0])}"
        )
    for answer in several:
        labels = sorted({str(v) for v in answer.labels})
        answer.labels = (name_of(labels),)
        gathered.sets[answer.labels[0]] = labels
    if several:
        gathered.note(f"{len(several):,} answers of several labels became classes such as 'a + b'")
    return answers


def yes_no(answers: list[Answer], label: str) -> list[Answer]:
    """Return the answers to the question whether a label applies."""
    return [
        a if a.passed else replace(a, labels=(NO_YES[label in map(str, a.labels)],))
        for a in answers
    ]


def of_option(gold: list[Gold], option: str | None) -> list[Gold]:
    """Return the known answers to the question whether an option applies, if one is named."""
    if option is None:
        return gold
    return [replace(g, labels=(NO_YES[option in map(str, g.labels)],)) for g in gold]
