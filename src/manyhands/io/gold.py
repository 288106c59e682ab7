"""Reading gold labels (one row per task) and histories of annotators (one per kind of answer)."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode, is_text, make_vocabulary, missing_mask, tidy
from manyhands.annotations.frames import rows_of
from manyhands.annotations.label_sets import NO_YES, Multilabel, name_of, read_cells
from manyhands.annotations.wide import gold_column
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io.columns import (
    Frame,
    canonical,
    find_columns,
    preview,
    require_column,
    with_missing,
    with_types,
)
from manyhands.io.corrections import CHOSEN, Standing, of_one_kind, read_corrections
from manyhands.io.files import PathLike, existing_file, is_typed, naming, suffix_of
from manyhands.io.frames import read_frame
from manyhands.io.label_values import Spellings, label_values, with_meanings
from manyhands.io.sheets import Stated
from manyhands.typing import AnyArray, BoolArray

_LOG = logging.getLogger("manyhands")

REVIEWED = "reviewed"
"""Column in manyhands' tables of labels for the name of the reviewer, or any other mark."""

WAS = "was"
"""Column of the labels before review; a label that differs from it was reviewed."""

CHOSEN_COLUMN = "chosen"
"""Column that says how labels were chosen for review: "random" if at random, else "queue"."""

NOT_REVIEWED = frozenset(
    {
        "",
        "0",
        "0.0",
        "false",
        "falsch",
        "faux",
        "falso",
        "n",
        "no",
        "none",
        "nan",
        "<na>",
        "-",
        "--",
    }
    | {"–", "—", "nein", "non", "não", "nao", "nee", "nej", "nie", "ne", "нет", "not yet", "n/a"}
    | {"todo", "to do", "to-do", "tbd", "open", "offen", "pending", "later", "skip", "skipped"}
)
"""Entries of the column "reviewed", in lower case, that mean that nobody looked at the label."""

UNSURE = frozenset({"maybe", "perhaps", "unsure", "unclear", "unknown", "vielleicht", "unklar"})
"""Entries, in lower case, that are neither a yes, nor a no, nor anybody's name."""

_MARK = re.compile(r"[^\W\d_][^?!]*|\d+(\.0)?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]\d.*)?|[✓✔☑√]")
"""Pattern of entries that mean that somebody looked: a name or word, a number or date, a tick."""

LONGEST_NAME = 5
"""Largest number of words in a name; a longer entry is a remark."""

SHEET = frozenset({WAS, "suggestion", "probability_wrong", "grades_off", CHOSEN_COLUMN})
LABELS = frozenset({"probability", "n_annotations", "agreement", "action"})
"""Other columns of ``review.csv`` and ``labels.csv``; two of them identify such a file."""


@dataclass(frozen=True, eq=False)
class GoldFile:
    """Gold labels, in the order of the file.

    Attributes
    ----------
    tasks : array of shape (n,)
    labels : array of shape (n,)
        Class values; None (in an object array) where there is no gold label.
    splits : array of str of shape (n,) or None
        Name of each task's split; None if the file has no such column.
    n_not_reviewed : int
        Number of labels in the file that are not known, because nobody looked at them.
    chosen : array of str of shape (n,) or None
        How each label came to be reviewed: "random", "queue", or "" if unknown. None if the file
        does not say.
    at : tuple of str of length n or None
        Position of each label, such as "review.csv, row 3".
    was : array of shape (n,) or None
        For corrections, the known label that each replaced or confirmed; None if none was known.
    """

    tasks: AnyArray
    labels: AnyArray
    splits: AnyArray | None = None
    n_not_reviewed: int = 0
    chosen: AnyArray | None = None
    at: tuple[str, ...] | None = None
    was: AnyArray | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def random(self) -> BoolArray | None:
        """Mask of the labels that were drawn at random, shape (n,); None if unknown."""
        return None if self.chosen is None else self.chosen == "random"

    @property
    def known(self) -> BoolArray:
        """Mask of the tasks that have a gold label, shape (n,)."""
        return ~missing_mask(self.labels)

    def corrects(self, i: int, label: Any) -> bool:
        """Return whether a label replaces another one that was known."""
        was = None if self.was is None else self.was[i]
        return was is not None and str(was) == str(label)

    def named(self, i: int) -> str:
        """Name a label by its place and its task, for messages."""
        task = f"task {self.tasks[i].item()!r}"
        return task if self.at is None else f"{self.at[i]}: {task}"

    def check_classes(self, classes: AnyArray) -> None:
        """Refuse labels that are not among the classes, naming the position of the first.

        Raises
        ------
        AnnotationError
            If there is such a label.
        """
        known = np.flatnonzero(self.known)
        names = set(classes.tolist())
        if {isinstance(v, str) for v in names} != {isinstance(self.labels[i], str) for i in known}:
            return  # Labels of another type are refused elsewhere.
        wrong = [i for i in known.tolist() if self.labels[i] not in names]
        if not wrong:
            return
        value = np.asarray(self.labels[wrong[0]]).item()
        more = len(wrong) - 1
        others = f" (and {more:,} more label{'s' * (more > 1)})" if more else ""
        raise AnnotationError(
            f"{self.named(wrong[0])} has the label {value!r}{others}, which is not among the "
            f"classes {preview(classes.tolist())}{nearest(value, names)}. Correct the label; if it "
            "is a class, name all classes in classes="
        )

    def of_sets(self, multilabel: Multilabel, option: str | None) -> GoldFile:
        """Read gold labels that are sets as the annotations are read; see `read_annotations`.

        With "split", labels that are all "no" or "yes" are taken as they are.
        """
        known = self.known
        counts = Counter(self.labels[known].tolist())
        if multilabel not in ("join", "split") or set(counts) <= set(NO_YES):
            return self
        cells = read_cells(counts, multilabel, "the gold labels") or {}
        labels = np.full(len(self), None, dtype=object)
        for i in np.flatnonzero(known):
            found = cells[self.labels[i]]
            labels[i] = name_of(found) if multilabel == "join" else NO_YES[option in found]
        return replace(self, labels=labels)


def read_gold(
    path: PathLike,
    *,
    task: str = "task",
    label: str = "label",
    split: str = "split",
    classes: Any = None,
    encoding: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
    mapping: Any = None,
    lowercase: bool = False,
) -> GoldFile:
    """Read gold labels, one row per task; an empty label means that there is no gold.

    In a table with one row per annotation, gold labels are read from the column that is named like
    them ("gold", "truth", ...). In a table with a column "reviewed", such as ``review.csv`` and
    ``labels.csv``, a label is known if that column is filled in, or if the label differs from that
    in the column "was". The other labels were inferred and are left out; a log message says how
    many, and a warning is given if none is left. A column "chosen" says which labels were drawn at
    random (`GoldFile.random`); these show how many of the other labels are right.

    Parameters
    ----------
    path : str or Path
        CSV of any separator and encoding (also .gz), .xlsx, .parquet or .pq; or a file of
        corrections (.jsonl), of which those that were not undone count.
    task, label, split : str
        Names of the columns; other common names are found as in `read_annotations`. The split
        column is optional.
    classes : sequence, optional
        All classes; may be names of integer labels, as in `read_annotations`.
    encoding, separator, sheet : str, optional
        As in `read_annotations`.
    mapping, lowercase
        Spellings of labels, as in `read_annotations`.

    Returns
    -------
    GoldFile

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If the file is empty, damaged or of another format, a column is missing, a task occurs
        twice or has two gold labels, or a label is not in ``classes``.
    """
    path = existing_file(path)
    spellings = Spellings.of(mapping, lowercase)
    if spellings is not None:
        classes = spellings.read_classes(classes)
    if suffix_of(path) == ".jsonl":
        return _read_corrections(path, classes)
    with naming(path):
        frame = read_frame(path, Stated(encoding, separator, sheet))
        found = find_columns(frame.columns, {"task": task, "gold": label}, path, fixed=True)
        names = {"task": found["task"], "label": found["gold"]}
        if label == "label":
            frame, names = _of_long(frame, names)
        for argument, name in names.items():
            require_column(frame, argument, name)
        if split != "split":
            require_column(frame, "split", split)
        looked = _reviewed(frame, names["task"], names["label"], path)
        _note_unfinished_sample(frame, looked, path)
        if spellings is not None:
            frame = with_meanings(frame, names["label"], spellings)
        frame = with_types(frame, names, path)
        frame, values, code_names = label_values(frame, names["label"], classes)
        gaps = np.flatnonzero(missing_mask(frame[names["task"]].to_numpy()))
        if len(gaps):
            raise AnnotationError(
                f"column {names['task']!r} is empty in {rows_of(frame, gaps)}; fill in the id of "
                "the task, or drop the row"
            )
        at = positions(frame, path, looked)
        frame = frame.filter(looked.tolist())
        refuse_repeated(frame, names["task"])
        ids = make_vocabulary(frame[names["task"]].to_numpy(), f"column {names['task']!r}")
        raw = frame[names["label"]].to_numpy()
        if values is not None:
            given = with_missing(tidy(raw[~missing_mask(raw)], "gold"), missing_mask(raw))
            GoldFile(ids, given, at=at).check_classes(values)
        labels = _gold_values(raw, values, code_names)
        splits = np.array(frame[split].to_list(), dtype=str) if split in frame.columns else None
        return GoldFile(ids, labels, splits, int((~looked).sum()), how_chosen(frame), at)


def join_gold(files: Sequence[GoldFile]) -> GoldFile | None:
    """Join known labels of several files, such as those of two rounds of a review.

    A task in several files counts as random if it was drawn at random in one of them. A file of
    corrections takes precedence over the known labels that it says it replaced.

    Raises
    ------
    AnnotationError
        If two files give a task different labels.

    Examples
    --------
    >>> first, second = (GoldFile(np.array([i, 3]), np.array(["a", "b"])) for i in (1, 2))
    >>> join_gold([first, second]).tasks.tolist()
    [1, 3, 2]
    """
    if len(files) < 2:
        return files[0] if files else None
    tasks = _of_one_type([gold.tasks.tolist() for gold in files])
    labels = _of_one_type([gold.labels.tolist() for gold in files])
    first: dict[Any, tuple[int, int]] = {}
    chosen: dict[Any, str] = {}
    for f, gold in enumerate(files):
        for i, (task, label) in enumerate(zip(tasks[f], labels[f], strict=True)):
            g, k = first.setdefault(task, (f, i))
            if labels[g][k] is None:
                g, k = first[task] = (f, i)
            if gold.corrects(i, labels[g][k]):
                g, k = first[task] = (f, i)
            differs = label is not None and label != labels[g][k]
            if differs and not files[g].corrects(k, label):
                raise AnnotationError(
                    f"{files[g].named(k)} has the known label {labels[g][k]!r}, but "
                    f"{gold.named(i)} has {label!r}. Correct one of them, or delete the row"
                )
            told = "" if gold.chosen is None else str(gold.chosen[i])
            chosen[task] = told if told == "random" else chosen.get(task) or told
    values = [labels[f][i] for f, i in first.values()]
    raw = np.array(values, dtype=object)
    kept = raw if missing_mask(raw).any() else np.array(values)
    splits, at = None, None
    if any(gold.splits is not None for gold in files):
        # The tasks of a file without splits are in no split.
        parts = [["all"] * len(g) if g.splits is None else g.splits.tolist() for g in files]
        splits = np.array([parts[f][i] for f, i in first.values()], dtype=str)
    if all(gold.at is not None for gold in files):
        at = tuple(str((files[f].at or ())[i]) for f, i in first.values())
    how = np.array(list(chosen.values()), dtype=str)
    is_told = any(gold.chosen is not None for gold in files)
    n_idle = sum(gold.n_not_reviewed for gold in files)
    ids = make_vocabulary(list(first), "task")
    return GoldFile(ids, kept, splits, n_idle, how if is_told else None, at)


def _of_one_type(columns: list[list[Any]]) -> list[list[Any]]:
    """Convert all values to text if some are text, so that "12" and 12 are equal; None stays."""
    kinds = {isinstance(v, str) for values in columns for v in values if v is not None}
    if len(kinds) < 2:
        return columns
    return [[None if v is None else str(v) for v in values] for values in columns]


def _of_long(frame: Frame, names: dict[str, str]) -> tuple[Frame, dict[str, str]]:
    """Read gold labels from a column beside annotations, once per task.

    Raises
    ------
    AnnotationError
        If a task has two gold labels.
    """
    gold = gold_column(frame.columns, [names["task"]])
    if gold is None or names["task"] not in frame.columns:
        return frame, names
    first: dict[Any, int] = {}
    tasks = frame[names["task"]].to_list()
    if len(set(tasks)) == len(tasks):
        return frame, names
    values = list(zip(tasks, frame[gold].to_list(), strict=True))
    for i, (task, value) in enumerate(values):
        known = values[first.setdefault(task, i)][1]
        if known != value:
            raise AnnotationError(
                f"task {task!r} has the gold label {known!r} in "
                f"{rows_of(frame, np.array([first[task]]))} and {value!r} in "
                f"{rows_of(frame, np.array([i]))} (column {gold!r}); write one of them in all rows"
            )
    once = np.zeros(len(frame), dtype=bool)
    once[list(first.values())] = True
    if gold != names["label"]:
        _LOG.info(
            "read %r as the gold labels, one per task; to choose others, give a file of them "
            "alone, with the columns 'task' and 'label'",
            gold,
        )
    return frame.filter(once.tolist()), names | {"label": gold}


def refuse_repeated(frame: Frame, column: str) -> None:
    """Refuse several rows of a task, which may be those of several people."""
    first: dict[Any, int] = {}
    for i, task in enumerate(frame[column].to_list()):
        if first.setdefault(task, i) != i:
            raise AnnotationError(
                f"column {column!r} holds {task!r} twice, in "
                f"{rows_of(frame, np.array([first[task], i]))}; keep one row for each task. If "
                "several people labelled a task, use the command line, and call the column of "
                "their names as in the annotations (--worker), or give each person a column"
            )


def positions(frame: Frame, path: Path, chosen: BoolArray) -> tuple[str, ...]:
    """Return the numbers of some rows of a frame, as a spreadsheet numbers them."""
    return tuple(f"{path.name}, {rows_of(frame, i)}" for i in np.flatnonzero(chosen)[:, None])


def nearest(value: Any, known: Iterable[Any]) -> str:
    """Return the end of a message that names a similarly spelt name; "" if there is none.

    Examples
    --------
    >>> nearest("E99", ["E09", "F1"]), nearest("x", ["E09"])
    ("; the nearest is 'E09'", '')
    """
    names = [str(name) for name in islice(known, MOST_COMPARED)]
    found = get_close_matches(str(value), names, n=1)
    return f"; the nearest is {found[0]!r}" if found else ""


MOST_COMPARED = 5_000
"""Largest number of names among which a similar one is looked for."""


def _reviewed(frame: Frame, task: str, label: str, path: Path) -> BoolArray:
    """Mask the labels that somebody looked at; all labels, if the table does not tell."""
    column = next((name for name in frame.columns if name.strip().lower() == REVIEWED), None)
    if column is None:
        _refuse_unmarked(frame.columns, label)
    if column is None or column == label:
        return np.ones(len(frame), dtype=bool)
    marked = read_marks(frame, column)
    is_empty = marked & missing_mask(frame[label].to_numpy())
    if (empty := np.flatnonzero(is_empty)).size:
        more = f" (and {len(empty) - 1:,} more)" if len(empty) > 1 else ""
        warn_caller(
            f"{path.name}, {rows_of(frame, empty[:1])}{more}: the label of task "
            f"{frame[task].to_list()[empty[0]]!r} is empty, although the column {column!r} says "
            f"{frame[column].to_list()[empty[0]]!r}, so it is not taken as known. Write the label"
        )
    looked = marked = marked & ~is_empty
    if WAS in frame.columns:
        now, was = (frame[name].to_numpy() for name in (label, WAS))
        looked = marked | (~missing_mask(now) & (now.astype(str) != was.astype(str)))
    idle = ~looked & ~is_empty
    n, n_changed, n_idle = (int(rows.sum()) for rows in (looked, looked & ~marked, idle))
    changed = f" ({n_changed} of them because the label was changed)" if n_changed else ""
    if not n:
        warn_caller(
            f"{path.name}: none of its {n_idle:,} labels is taken as known, because none is marked "
            f"as reviewed. Write your name, or any other mark, into the column {column!r} of every "
            "row that you looked at"
        )
    elif n_idle or n_changed:
        _LOG.info(
            f"{path.name}: {n:,} {'label was' if n == 1 else 'labels were'} reviewed{changed} and "
            f"count{'s' * (n == 1)} as known; {n_idle:,} without an entry in the column {column!r} "
            f"{'does' if n_idle == 1 else 'do'} not"
        )
    return looked


def _note_unfinished_sample(frame: Frame, looked: BoolArray, path: Path) -> None:
    """Warn of a partly reviewed random sample, because the rest may be the difficult labels."""
    chosen = how_chosen(frame)
    if chosen is None:
        return
    drawn = chosen == "random"
    n, n_idle = int(drawn.sum()), int((drawn & ~looked).sum())
    if 0 < n_idle < n:
        warn_caller(
            f"{path.name}: {n_idle} of its {n} labels drawn at random are not reviewed. Review all "
            "of them: if difficult ones are left out, the others are not a random sample"
        )


def how_chosen(frame: Frame) -> AnyArray | None:
    """Return how each label came to be reviewed, if a column of the frame says it."""
    if CHOSEN_COLUMN not in frame.columns:
        return None
    marks = frame[CHOSEN_COLUMN].to_numpy()
    told = np.where(missing_mask(marks), "", marks.astype(str))
    told = np.char.lower(np.char.strip(told.astype(str)))
    is_ours = np.isin(told, ("", *CHOSEN)).all() and (told != "").any()
    return told if is_ours else None  # Otherwise it is a column of the user's own.


def _refuse_unmarked(names: Sequence[str], label: str) -> None:
    """Refuse a file of manyhands' labels without the column that says which are known.

    Raises
    ------
    AnnotationError
        If the table is such a file.
    """
    found = {name.strip().lower(): name for name in names}
    own = next((own for own in (SHEET, LABELS) if len(own & found.keys()) > 1), None)
    if own is None or label.strip().lower() in own:
        return
    proof = [name for key, name in found.items() if key in own]
    called = [name for key, name in found.items() if "review" in key]
    again = f"name the column {called[0]!r} {REVIEWED!r} again" if called else ""
    again = again or f"add a column {REVIEWED!r} with your name in every row that you looked at"
    raise AnnotationError(
        f"the column {REVIEWED!r}, which says which labels a person looked at, is missing. Without "
        f"it, the labels may be a model's ({', '.join(map(repr, proof))} are columns of a file "
        f"that manyhands wrote); {again}. If every label was checked, delete these columns"
    )


def read_marks(frame: Frame, column: str) -> BoolArray:
    """Mask the rows with an entry in the column "reviewed" that says that somebody looked.

    Raises
    ------
    AnnotationError
        If it is unclear whether an entry says so.
    """
    entries = frame[column].to_list()
    known = {entry: is_reviewed(entry) for entry in dict.fromkeys(entries)}
    for i, entry in enumerate(entries):
        if known[entry] is None:
            raise AnnotationError(
                f"column {column!r} holds {entry!r} in {rows_of(frame, np.array([i]))}, which does "
                "not say whether somebody looked at the label; write your name or 'yes' if you "
                "did, and leave the cell empty if not"
            )
    return np.array([bool(known[entry]) for entry in entries], dtype=bool)


def is_reviewed(mark: Any) -> bool | None:
    """Return whether an entry of "reviewed" says that somebody looked; None if it is unclear.

    Examples
    --------
    >>> is_reviewed("anna"), is_reviewed(1), is_reviewed(" No "), is_reviewed("?")
    (True, True, False, None)
    """
    text = "" if mark is None else str(mark).strip().lower()
    if text in NOT_REVIEWED:
        return False
    is_name = len(text.split()) <= LONGEST_NAME and text not in UNSURE
    return True if is_name and _MARK.fullmatch(text) else None


def _read_corrections(path: Path, classes: Any) -> GoldFile:
    """Return the known labels of a file of corrections."""
    standing = Standing(of_one_kind(read_corrections(path)))
    found = standing.decisions()
    with naming(path):
        if not found:
            raise AnnotationError(
                "all corrections in this file were undone, so no label is known; give another file"
            )
        if any(isinstance(record.label, list) for record in found):
            raise AnnotationError(
                "these are corrections of sets of labels; read the answers as sets, too, with "
                "multilabel=';'"
            )
        labels = np.array([record.label for record in found])
        if classes is not None:
            values = make_vocabulary(classes, "classes")
            codes, _ = encode(
                labels, values, argument="the corrected labels", vocabulary_name="classes"
            )
            labels = values[codes]
        chosen = np.array([record.chosen or "" for record in found])
        tasks = make_vocabulary([record.task for record in found], "task")
        was = np.array([standing.known_before(record.task) for record in found], dtype=object)
        told = chosen if (chosen != "").any() else None
        return GoldFile(tasks, labels, chosen=told, was=was)


def _gold_values(raw: AnyArray, values: AnyArray | None, names: AnyArray | None) -> AnyArray:
    missing = missing_mask(raw)
    codes, vocabulary = encode(
        raw[~missing], values, argument="the gold labels", vocabulary_name="classes"
    )
    return with_missing((vocabulary if names is None else names)[codes], missing)


def read_history(
    path: PathLike,
    table: AnnotationTable,
    *,
    encoding: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
) -> list[tuple[Any, ...]]:
    """Read counts of earlier annotations, for ``fit(history=)`` on a table.

    Parameters
    ----------
    path : str or Path
        CSV, .xlsx, .parquet or .pq, with the columns ``annotator`` (or ``worker`` or another
        common name for it), ``true``, ``given`` and ``count``.
    table : AnnotationTable
        Text becomes numbers where the annotators or the classes of this table are numbers.
    encoding, separator, sheet : str, optional
        As in `read_annotations`.

    Returns
    -------
    list of tuples (annotator, true, given, count)

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If the file is empty, damaged or of another format, or a column or an entry is missing.
    """
    path = existing_file(path)
    with naming(path):
        frame = read_frame(path, Stated(encoding, separator, sheet))
        names = ["annotator", "true", "given", "count"]
        if "annotator" not in frame.columns:
            names[0] = find_columns(frame.columns, {"worker": "worker"}, path, fixed=True)["worker"]
        absent = [name for name in names if name not in frame.columns]
        if absent:
            raise AnnotationError(
                f"there is no column {absent[0].replace('worker', 'annotator')!r} among "
                f"{', '.join(map(repr, frame.columns))}; a history has the columns 'annotator', "
                "'true', 'given' and 'count'"
            )
        columns = []
        kinds = (table.annotators, table.classes, table.classes, None)
        for name, vocabulary in zip(names, kinds, strict=True):
            values = frame[name].to_numpy()
            gaps = np.flatnonzero(missing_mask(values))
            if len(gaps):
                raise AnnotationError(
                    f"column {name!r} is empty in {rows_of(frame, gaps)}; fill it in, or drop "
                    "the row"
                )
            if not is_typed(path) and vocabulary is not None and not is_text(vocabulary):
                values = canonical(values, floats=True)
            columns.append(values.tolist())
        return list(zip(*columns, strict=True))
