"""Conversion of tables of label sets from and to data frames, arrays, and tables per option."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
from scipy.sparse import csr_array, issparse

from manyhands.annotations.arrays import from_arrays as answers_from_arrays
from manyhands.annotations.columns import Columns
from manyhands.annotations.duplicates import (
    Duplicates,
    has_repeats,
    without_duplicates,
)
from manyhands.annotations.encoding import is_text, make_vocabulary, missing_mask
from manyhands.annotations.frames import (
    TEXTS,
    Backend,
    check_blank,
    check_columns,
    encode_ids,
    named_kinds,
    read_data_frame,
    rows_of,
    text_name,
)
from manyhands.annotations.frames import to_frame as answers_to_frame
from manyhands.annotations.groups import groups_of_rows
from manyhands.annotations.ids import GIVEN, natural_keys, sorted_order
from manyhands.annotations.label_sets import (
    MOST_OPTIONS,
    SEPARATORS,
    best_evidence,
    cut,
    listed_labels,
)
from manyhands.annotations.passes import PASSES, read_marks
from manyhands.annotations.suspicious import folded, warn_of_alike
from manyhands.annotations.table import AnnotationTable
from manyhands.annotations.wide import with_joined_task
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import AnyArray, BoolArray, IntArray
from manyhands.wording import counted

_LOG = logging.getLogger("manyhands")

Table = TypeVar("Table")

EMPTY = "empty"
"""Value of ``none`` that makes an empty cell an answer without a tick."""

TICKED = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}
TICKED |= {"yes": True, "no": False}
"""Meaning of the cells, in lower case, in a column that holds one option."""

NO_OPTION = frozenset({"none", "none of the above", "none of these", "none of them", "nothing"})
NO_OPTION |= {"no label", "no labels", "n/a", "not applicable"}
"""Names of options, in lower case, that probably say that no option applies."""


def from_frame(
    cls: Callable[..., Table],
    df: Any,
    *,
    separator: str | None = ";",
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    labels: str | Sequence[str] = "labels",
    options: Any = None,
    none: str | Sequence[str] | None = None,
    weight: str | None = None,
    group: str | None = None,
    tasks: Any = None,
    workers: Any = None,
    abstain: Any = None,
    skip: Any = None,
    passes: str | None = None,
    duplicates: Duplicates = "error",
) -> Table:
    """Read a long data frame: one row per answer, or one row per ticked label.

    Parameters
    ----------
    df : pandas, polars or pyarrow data frame
    separator : str or None, default=";"
        What stands between the labels in a cell of text. None: a text is one label. Cells may also
        be lists, tuples or sets, or a list in JSON. Blanks around labels, the order of labels and
        repeated labels do not matter.
    task, worker, weight, group, passes : str
        Names of the columns with the instance, the annotator and, optionally, the weight of the
        answer, the annotator's family and the pass; as in `AnnotationTable.from_frame`.
    labels : str or sequence of str, default="labels"
        Name of the column with the sets; or the names of several columns, one per option, in which
        a cell says whether the option was ticked (0 or 1, false or true, no or yes). If no cell
        holds several labels and pairs of task and worker repeat, each row is one tick, and the
        rows of a pair are one answer.
    options : sequence of str, optional
        All options, in the desired order; default: those that were ticked, in natural order.
    none : str or sequence of str, optional
        How the table writes that nothing was ticked: "empty" for empty cells, or a value such as
        "NONE", which is then not an option. By default an empty cell is a missing answer; an empty
        list is always an answer.
    tasks, workers : sequence, optional
        All ids, in the desired order; as in `AnnotationTable.from_frame`.
    abstain, skip : str or sequence of str, optional
        Labels that mean that the annotator looked but could not tell, or skipped the instance.
    duplicates : {"error", "last", "keep"}
        What to do with repeated (instance, annotator) pairs that are not ticks of one answer.

    Returns
    -------
    LabelSetTable
        A row without an answer adds none, but its instance and annotator stay in the vocabularies
        (a warning gives the number of such rows).

    Raises
    ------
    AnnotationError
        If df is not a data frame or a column is unknown; if a label is not among ``options``, or a
        value of ``none``, ``abstain`` or ``skip`` stands beside other labels; if the name of an
        option holds the separator, or there are more than 1,000 options; or if an id is missing or
        a pair is repeated.

    Warns
    -----
    UserWarning
        If a value of ``none`` occurs nowhere, or an option is named like one that says that nothing
        applies, such as "None of the above", and neither ``none`` nor ``options`` is given.
    """
    table, said = read_sets(
        cls,
        df,
        separator=separator,
        task=task,
        worker=worker,
        labels=labels,
        options=options,
        none=none,
        weight=weight,
        group=group,
        tasks=tasks,
        workers=workers,
        abstain=abstain,
        skip=skip,
        passes=passes,
        duplicates=duplicates,
    )
    found: Any = table
    where = "options=" if isinstance(labels, str | int | np.integer) else None
    warn_of_nothing(none, said, found.ticks_per_option(), found.options, options, where)
    return table


def read_sets(
    cls: Callable[..., Table],
    df: Any,
    *,
    separator: str | None,
    task: str | Sequence[str],
    worker: str,
    labels: str | Sequence[str],
    options: Any,
    none: str | Sequence[str] | None,
    weight: str | None = None,
    group: str | None = None,
    tasks: Any = None,
    workers: Any = None,
    abstain: Any = None,
    skip: Any = None,
    passes: str | None = None,
    duplicates: Duplicates,
) -> tuple[Table, frozenset[str]]:
    """Read a frame as `from_frame` does, and return the values of ``none`` that occur in it."""
    data, task = with_joined_task(read_data_frame(df), text_name(task))
    names = {"task": task, "worker": text_name(worker)}
    optional = {"weight": weight, "group": group, "passes": passes}
    names |= {argument: text_name(name) for argument, name in optional.items() if name is not None}
    _check_labels(data, labels)
    check_columns(data, names)
    for argument, name, known in (("tasks", task, tasks), ("workers", names["worker"], workers)):
        check_blank(
            dict.fromkeys(v for v in data[name].to_list() if isinstance(v, str))
            if data[name].dtype in TEXTS
            else (),
            argument,
            name,
            known,
            lambda id_, name=name: rows_of(data, np.flatnonzero(data[name].to_numpy() == id_)),
        )
    instance, instances = encode_ids(data, task, tasks, "tasks")
    annotator, annotators = encode_ids(data, names["worker"], workers, "workers")
    if workers is None:
        warn_of_alike(annotators, annotator, f"column {names['worker']!r}", "annotators")
    if isinstance(labels, str | int | np.integer):
        marks = read_marks(abstain, skip, None)
        cells = Cells.of(data, str(labels), separator, words_of(none), marks, options)
    else:
        cells = _ticked_columns(data, [str(name) for name in labels], words_of(none))
        if options is not None:
            raise AnnotationError(
                f"labels={list(labels)!r} names a column for each option, so that these columns "
                "are the options; leave options= out"
            )
    if passes is not None:
        cells = cells.with_passes(data, names["passes"])
    cells.warn_of_missing()
    codes, sets = cells.codes, cells.sets
    rows: IntArray = np.flatnonzero(cells.kinds != MISSING)
    pairs = instance[rows].astype(np.int64) * max(len(annotators), 1) + annotator[rows]
    if has_repeats(pairs) and duplicates == "error" and cells.are_ticks:
        rows, codes, sets = _merged(cells, data, rows, pairs, names)
        n = len(rows)
        _LOG.info(
            "column %r: each row is one ticked label; %d rows make %d answers",
            labels,
            len(pairs),
            n,
        )
    elif has_repeats(pairs) and duplicates == "error":
        raise _repeated(instances, annotators, pairs, separator)
    is_answer = cells.kinds[rows] == ANSWER
    given, passed = rows[is_answer], rows[~is_answer]
    columns = Columns(
        instance[given],
        annotator[given],
        codes[given],
        instances,
        annotators,
        np.arange(sets.shape[0]),
        None if weight is None else data[names["weight"]].to_numpy()[given],
        None,
        np.column_stack([instance[passed], annotator[passed], cells.kinds[passed]]),
        sorted_order(instances) if tasks is None else GIVEN,
        None
        if group is None
        else groups_of_rows(data[names["group"]].to_numpy(), annotator, annotators),
    )
    # The age of an answer is that of its rows: of two answers, the last in the frame counts.
    ages = None if not len(passed) else np.concatenate([given, passed])
    columns = without_duplicates(columns, duplicates, ages)
    table = cls(AnnotationTable(*columns), cells.options, sets.indptr, sets.indices)
    return table, cells.said


# -- cells ----------------------------------------------------------------------------------------

ANSWER, MISSING = -1, -2
"""Kinds of rows besides the passes (`PASSES`): an answer, or a missing one."""


@dataclass(frozen=True)
class Cells:
    """The sets that the rows of a frame hold.

    Attributes
    ----------
    column : str
        For messages.
    options : array of shape (n_options,)
    sets : CSR array of shape (K, n_options)
        The distinct sets.
    codes : integer array of shape (n_rows,)
        Number of each row's set; without meaning where a row is no answer.
    kinds : integer array of shape (n_rows,)
        `ANSWER`, `MISSING`, or the kind of a pass.
    are_ticks : bool
        Whether no cell holds several labels.
    said : frozenset of str
        Values of ``none`` that occur.
    """

    column: str
    options: AnyArray
    sets: Any
    codes: IntArray
    kinds: IntArray
    are_ticks: bool
    said: frozenset[str]

    @classmethod
    def of(
        cls,
        data: Any,
        column: str,
        separator: str | None,
        none: tuple[str, ...],
        marks: Mapping[Any, int],
        options: Any,
    ) -> Cells:
        """Read a column of sets; ``marks`` are labels that mean a pass."""
        if separator is not None and (not isinstance(separator, str) or not separator):
            raise AnnotationError(
                f"separator={separator!r} is not a text; give what stands between the labels of a "
                "cell, such as ';', or None if a text is one label"
            )
        cells = [_hashable(cell) for cell in data[column].to_list()]
        place = {cell: i for i, cell in enumerate(dict.fromkeys(cells))}
        rows = np.fromiter((place[cell] for cell in cells), dtype=np.int64, count=len(cells))

        def where(cell: Hashable) -> str:
            return rows_of(data, np.flatnonzero(rows == place[cell]))

        texts = tuple(name for name in none if name != EMPTY)
        kinds, found, said = [], [], set()
        for cell in place:
            kind, labels = _read(cell, separator, EMPTY in none, texts, marks, column, where)
            if kind == ANSWER and labels[:1] and labels[0] in texts:
                said.add(labels.pop())
            kinds.append(kind)
            found.append(labels)
        if options is None and separator is not None:
            counts = np.bincount(rows, minlength=len(place)).tolist()
            _check_separator(found, place, counts, separator, column, where)
        names = _options(found, place, options, column, separator, where)
        refuse_named_twice(texts, names)
        codes = {name: i for i, name in enumerate(names.tolist())}
        start = np.concatenate([[0], np.cumsum([len(labels) for labels in found])]).astype(np.int64)
        flat = [codes[label] for labels in found for label in labels]
        ticks = _sparse(np.array(flat, dtype=np.int64), start, len(names))
        sets, numbers = number_sets(ticks)
        single = all(len(labels) < 2 for labels in found)
        of_cells = np.array(kinds, dtype=np.int8)
        return cls(column, names, sets, numbers[rows], of_cells[rows], single, frozenset(said))

    def with_passes(self, data: Any, column: str) -> Cells:
        """Read the passes that another column names."""
        named = named_kinds(data[column].to_numpy(), column)
        both = np.flatnonzero((named >= 0) & (self.kinds == ANSWER) & self.ticks_any)
        if len(both):
            raise AnnotationError(
                f"both labels (column {self.column!r}) and a pass (column {column!r}) stand in "
                f"{rows_of(data, both)}; empty one of the two"
            )
        return replace(self, kinds=np.where(named >= 0, named, self.kinds))

    @property
    def ticks_any(self) -> BoolArray:
        """Whether each row ticks something, shape (n_rows,)."""
        return np.asarray(np.diff(self.sets.indptr)[self.codes] > 0)

    def warn_of_missing(self) -> None:
        """Warn of rows without an answer."""
        n = int((self.kinds == MISSING).sum())
        if n:
            warn_caller(
                f"{n:,} of {len(self.kinds):,} rows are empty in column {self.column!r}: they "
                "count as missing answers (their instances and annotators are kept). If an empty "
                "cell means that nothing was ticked, pass none='empty'"
            )


def word_of_nothing(none: str | Sequence[str] | None) -> str:
    """Return what a cell holds where nothing was ticked: the first word of ``none``, else blank."""
    return next((name for name in words_of(none) if name != EMPTY), "")


def words_of(none: Any) -> tuple[str, ...]:
    """Return the values that mean that nothing was ticked, "empty" among them.

    Raises
    ------
    AnnotationError
        If one of them is no text, or blank.
    """
    if none is None:
        return ()
    found = (none,) if isinstance(none, str) else tuple(none)
    for name in found:
        if not isinstance(name, str) or not name.strip():
            raise AnnotationError(
                f"none={none!r} must be 'empty', if empty cells mean that nothing was ticked, or "
                "the text that means it, such as 'NONE'"
            )
    return found


def refuse_named_twice(none: Sequence[str], options: AnyArray) -> None:
    """Refuse a value that means that nothing was ticked, and is an option as well."""
    both = next((word for word in none if word in set(options.tolist())), None)
    if both is not None:
        raise AnnotationError(
            f"{both!r} is among the options, and none={both!r} says that nothing was ticked; leave "
            "it out of one of the two"
        )


def warn_of_nothing(
    none: str | Sequence[str] | None,
    said: Collection[str],
    n_ticks: IntArray,
    options: AnyArray,
    declared: Any,
    argument: str | None,
) -> None:
    """Warn where options and the values that mean "nothing was ticked" were probably mixed up.

    Parameters
    ----------
    none : str or sequence of str, optional
        As given by the caller.
    said : collection of str
        The values of ``none`` that occur in the answers.
    n_ticks : integer array of shape (n_options,)
        How many answers tick each option.
    options : array of shape (n_options,)
    declared : any
        The options that the caller named; None if they are those that occur.
    argument : str or None
        What names them, for the message; None if each is a column.
    """
    names, words = options.tolist(), [word for word in words_of(none) if word != EMPTY]
    counts = dict(zip(names, n_ticks.tolist(), strict=True))
    for word in words:
        if word in said:
            continue
        near = next((name for name in names if folded(name) == folded(word)), None)
        warn_caller(
            f"none={word!r} is to say that nothing was ticked, but no answer holds it"
            + (
                "; check how the answers write it, or leave it out"
                if near is None
                else f": did you mean none={near!r}? {near!r} counts as an option "
                f"({counted(counts[near], 'answer')})"
            )
        )
    if none is not None or declared is not None:
        return
    for name in names:
        if folded(name).strip(" ().[]<>-") in NO_OPTION:
            warn_caller(
                f"{name!r} counts as an option ({counted(counts[name], 'answer')}). If it says "
                f"that no option applies, pass none={name!r}"
                + (
                    f"; if it is an option like the others, name all options in {argument}"
                    if argument
                    else ""
                )
            )


def _hashable(cell: Any) -> Hashable:
    """Return a cell as a dict key: a list as a tuple, a missing cell as None."""
    if isinstance(cell, str):
        return cell
    labels = listed_labels(cell)
    if labels is not None:
        return tuple(labels)
    if missing_mask(np.array([cell], dtype=object))[0]:
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))  # pandas turns a column of integers with a gap into floats.
    return str(cell)


def _read(
    cell: Any,
    separator: str | None,
    empty: bool,
    none: tuple[str, ...],
    marks: Mapping[Any, int],
    column: str,
    where: Callable[[Hashable], str],
) -> tuple[int, list[str]]:
    """Return the kind of a cell (an answer, missing, or a pass), and its labels or its ``none``."""
    is_list = isinstance(cell, tuple)
    listed = list(cell) if is_list else listed_labels(cell)
    if listed is not None:
        labels, is_list = listed, True
    elif cell is None:
        labels = []
    else:
        labels = cut(cell, separator) if separator is not None else [cell.strip()]
        labels = [label for label in labels if label]
    labels = list(dict.fromkeys(labels))
    if len(labels) > 1:
        own = dict.fromkeys(none, "none") | {
            str(mark): PASSES[kind] for mark, kind in marks.items()
        }
        if stands := next((label for label in labels if label in own), None):
            argument = f"{own[stands]}={stands!r}"
            means = "that nothing was ticked" if own[stands] == "none" else "that nobody answered"
            raise AnnotationError(
                f"column {column!r} holds {cell!r} in {where(cell)}: {stands!r} stands beside "
                f"other labels, but {argument} says {means}; correct the cell, or leave "
                f"{argument} out"
            )
    for mark, kind in marks.items():
        if labels == [str(mark)]:
            return kind, []
    return (ANSWER if labels or is_list or empty else MISSING), labels


def _check_separator(
    found: list[list[str]],
    place: Mapping[Any, int],
    counts: list[int],
    separator: str,
    column: str,
    where: Callable[[Hashable], str],
) -> None:
    """Refuse a separator that cuts no cell where another one cuts them into labels that recur.

    Warns if it cuts some cells, as the other mark may then belong to the names.
    """
    cut_here = [cell for cell in place if isinstance(cell, str) and listed_labels(cell) is None]
    labels: Counter[str] = Counter()
    home: dict[str, Hashable] = {}
    for cell in cut_here:
        for label in found[place[cell]]:
            labels[label] += counts[place[cell]]
            home.setdefault(label, cell)
    other = best_evidence(labels)
    if other is None or other.verdict != "sets" or not other.several:
        return
    shown, mark = str(other.several[0]), other.separator
    what = (
        f"column {column!r} holds {shown!r} in {where(home[shown])}, which looks like "
        f"{len(other.cells[shown])} labels with {mark!r} between them"
    )
    if all(len(found[place[cell]]) < 2 for cell in cut_here):
        raise AnnotationError(
            f"{what}, and no cell holds the separator {separator!r}. Give separator={mark!r}, or, "
            "if such a text is the name of one option, name all options in options="
        )
    warn_caller(
        f"{what}, and the separator is {separator!r}: it counts as one option. If it is several, "
        f"write {separator!r} between them"
    )


def _options(
    found: list[list[str]],
    place: Mapping[Hashable, int],
    options: Any,
    column: str,
    separator: str | None,
    where: Callable[[Hashable], str],
) -> AnyArray:
    """Return the names of the options: those given, or else those that occur."""
    occur = dict.fromkeys(label for labels in found for label in labels)
    if options is None:
        if not occur:
            raise AnnotationError(
                f"column {column!r} holds no labels; name the column of the labels in labels=, or "
                "all options in options="
            )
        keys = dict(zip(occur, natural_keys(list(occur)), strict=True))
        names = check_options(sorted(occur, key=lambda name: (keys[name], name)), "options")
        warn_of_alike(
            names,
            np.zeros(0, dtype=np.int64),
            f"column {column!r}",
            "options",
            counts=[sum(name in labels for labels in found) for name in names.tolist()],
            mapping="",
        )
        return names
    names = check_options(options, "options")
    known = names.tolist()
    if separator is not None:
        inside = next((name for name in known if separator in name), None)
        if inside is not None and any(isinstance(cell, str) for cell in place):
            raise AnnotationError(
                f"options holds {inside!r}, which contains the separator {separator!r}, so that "
                "cells of text cannot be split; write the cells with another separator and name it "
                "in separator=, or give lists"
            )
    strange = next((label for label in occur if label not in set(known)), None)
    if strange is not None:
        cell = next(c for c, labels in zip(place, found, strict=True) if strange in labels)
        shown = ", ".join(map(repr, known[:6])) + (" ..." if len(known) > 6 else "")
        raise AnnotationError(
            f"column {column!r} holds the label {strange!r} in {where(cell)}, which is not among "
            f"the options: {shown}. {_mend(strange, known)}"
        )
    return names


def _mend(strange: str, known: list[str]) -> str:
    """Say what to do about a label that is not among the options."""
    mark = next((m for m in SEPARATORS if set(cut(strange, m)) <= {*known}), None)
    if mark is not None:
        return f"These are options with {mark!r} between them: give separator={mark!r}"
    return "Add it to options=, or correct the cell"


def _check_labels(data: Any, labels: Any) -> None:
    """Refuse names of columns of labels that are no columns."""
    wanted = [labels] if isinstance(labels, str | int | np.integer) else list(labels)
    if not wanted:
        raise AnnotationError("labels=[] names no column; name the column of each option")
    columns = set(data.columns)
    for name in wanted:
        if str(name) in columns:
            continue
        close = [c for c in data.columns if str(name).lower() in (f"{c}s".lower(), c.lower()[:-1])]
        hint = f"labels={close[0]!r}" if close else "labels=<name of the column>"
        raise AnnotationError(
            f"labels={labels!r}: {str(name)!r} is not a column; the columns are "
            f"{', '.join(map(repr, data.columns))}. Pass {hint}, or, of a table with a column of "
            "0 and 1 for each option, the names of all these columns, as in labels=['joy', 'fear']"
        )


def _ticked_columns(data: Any, names: list[str], none: tuple[str, ...]) -> Cells:
    """Read one column of 0 and 1 for each option; a column that ``none`` names is no option."""
    check_options(names, "labels")
    ticked, gaps = [], []
    for name in names:
        cells = data[name].to_list()
        kinds = {cell: _is_ticked(cell) for cell in dict.fromkeys(map(_hashable, cells))}
        strange = next((cell for cell, kind in kinds.items() if kind is None and cell), None)
        if strange is not None:
            at = [i for i, cell in enumerate(cells) if _hashable(cell) == strange]
            raise AnnotationError(
                f"column {name!r} holds {strange!r} in {rows_of(data, np.array(at))}, which does "
                "not say whether the option was ticked; write 1 if it was, and 0 if not"
            )
        gap = [kinds[_hashable(cell)] is None for cell in cells]
        ticked.append(np.array([kinds[_hashable(cell)] is True for cell in cells], dtype=bool))
        gaps.append(np.array(gap, dtype=bool))
    is_empty = np.logical_and.reduce(gaps)
    part = np.logical_or.reduce(gaps) & ~is_empty
    if part.any():
        row = np.flatnonzero(part)
        name = names[[bool(gap[row[0]]) for gap in gaps].index(True)]
        raise AnnotationError(
            f"column {name!r} is empty in {rows_of(data, row)}, although other options have an "
            "answer there; write 0 if the option was not ticked (answers about some of the options "
            "only cannot be read)"
        )
    n = len(is_empty)
    is_option = [name not in none for name in names]
    options = check_options([name for name in names if name not in none], "labels")
    cells = np.column_stack(ticked)
    for word in set(names) & set(none):
        beside = cells[:, names.index(word)] & cells[:, is_option].any(axis=1)
        if beside.any():
            raise AnnotationError(
                f"column {word!r} is ticked beside other options in "
                f"{rows_of(data, np.flatnonzero(beside))}, but none={word!r} says that nothing "
                f"was ticked; correct the cells, or leave none={word!r} out"
            )
    where, codes = np.nonzero(cells[:, is_option])
    start = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=n))])
    sets, numbers = number_sets(_sparse(codes, start, len(options)))
    answered = np.where(is_empty & (EMPTY not in none), MISSING, ANSWER).astype(np.int8)
    said = frozenset(names) & frozenset(none)
    return Cells(", ".join(names), options, sets, numbers, answered, are_ticks=False, said=said)


def _is_ticked(cell: Any) -> bool | None:
    """Return whether a cell says that its option was ticked; None if it does not say."""
    return None if cell is None else TICKED.get(str(cell).strip().lower())


def _merged(
    cells: Cells, data: Any, rows: IntArray, pairs: IntArray, names: Mapping[str, str]
) -> tuple[IntArray, IntArray, Any]:
    """Make one answer of the rows of a pair, each of which is a tick.

    Returns
    -------
    rows : integer array
        The first row of each answer.
    codes : integer array of shape (n_rows,)
    sets : CSR array
    """
    distinct, first, answer = np.unique(pairs, return_index=True, return_inverse=True)
    passes = cells.kinds[rows] >= 0
    mixed = np.flatnonzero(
        (np.bincount(answer, passes) > 0) & (np.bincount(answer, minlength=len(distinct)) > 1)
    )
    if len(mixed):
        at = rows[np.flatnonzero(answer == mixed[0])]
        raise AnnotationError(
            f"{rows_of(data, at)} belong to one answer, but only some of them mean a pass; correct "
            "these rows"
        )
    for argument in ("weight", "group"):
        if argument in names:
            values = data[names[argument]].to_numpy()[rows].astype(str)
            differ = np.flatnonzero(values != values[first][answer])
            if len(differ):
                at = rows[np.flatnonzero(answer == answer[differ[0]])]
                raise AnnotationError(
                    f"{rows_of(data, at)} are ticks of one answer but differ in column "
                    f"{names[argument]!r}; give all of them the same value"
                )
    ticks = cells.sets[cells.codes[rows]]
    size = np.diff(ticks.indptr)
    both = np.flatnonzero((np.bincount(answer, size) > 0) & (np.bincount(answer, size == 0) > 0))
    if len(both):
        at = rows[np.flatnonzero(answer == both[0])]
        raise AnnotationError(
            f"{rows_of(data, at)} belong to one answer: one row says that nothing was ticked "
            f"(none), but others hold labels in column {cells.column!r}; correct these rows"
        )
    where = np.repeat(answer, size)
    whole = csr_array(
        (np.ones(len(where)), (where, ticks.indices)), shape=(len(distinct), ticks.shape[1])
    )
    whole.sum_duplicates()
    sets, numbers = number_sets(_sparse(whole.indices, whole.indptr, ticks.shape[1]))
    codes = np.zeros(len(cells.codes), dtype=np.int64)
    codes[rows[first]] = numbers
    return np.sort(rows[first]), codes, sets


def _repeated(
    instances: AnyArray, annotators: AnyArray, pairs: IntArray, separator: str | None
) -> AnnotationError:
    found, counts = np.unique(pairs, return_counts=True)
    row, who = divmod(int(found[counts > 1][0]), len(annotators))
    ticks = (
        ""
        if separator is None
        else (
            f"If each row is one ticked label, and labels may contain {separator!r}, give another "
            f"separator={'|' if separator != '|' else '#'!r}. Else remove them"
        )
    )
    return AnnotationError(
        f"{int((counts > 1).sum()):,} (instance, annotator) pairs are repeated, the first being "
        f"instance {instances[row].item()!r} by annotator {annotators[who].item()!r}, and cells "
        f"hold several labels, so that a row is not a single tick. {ticks or 'Remove them'}, or "
        'choose: duplicates="last" keeps the last of each, duplicates="keep" keeps all'
    )


def _sparse(codes: Any, start: Any, n_options: int) -> Any:
    """Return the sparse boolean array of the options of each row."""
    shape = (len(start) - 1, n_options)
    return csr_array((np.ones(len(codes), dtype=bool), codes, start), shape=shape)


# -- arrays, and tables of one option each --------------------------------------------------------


def from_arrays(
    cls: Callable[..., Table],
    instance: Any,
    annotator: Any,
    ticks: Any,
    *,
    options: Any = None,
    instances: Any = None,
    annotators: Any = None,
    n_instances: int | None = None,
    n_annotators: int | None = None,
    weight: Any = None,
    group: Any = None,
    duplicates: Duplicates = "error",
) -> Table:
    """Make a table of sets from arrays of equal length.

    Parameters
    ----------
    instance, annotator : array-like of shape (m,)
        As in `AnnotationTable.from_arrays`.
    ticks : array-like or scipy.sparse array of shape (m, n_options)
        What each answer ticks: 0 and 1, or booleans.
    options : sequence of str, optional
        Names of the options; default: "0", "1", ...
    instances, annotators, n_instances, n_annotators, weight, group, duplicates
        As in `AnnotationTable.from_arrays`.

    Raises
    ------
    AnnotationError
        If shapes do not match, a tick is neither 0 nor 1, or for the reasons of
        `AnnotationTable.from_arrays`.
    """
    given: Any = ticks if issparse(ticks) else np.atleast_2d(np.asarray(ticks))
    found: Any = csr_array(given)
    if found.data.size and not np.isin(found.data, (0, 1)).all():
        bad = found.data[~np.isin(found.data, (0, 1))][0]
        raise AnnotationError(
            f"ticks holds {bad.item()!r}; a tick is 1, and an option without one is 0"
        )
    found = found.astype(np.float64)
    found.sum_duplicates()
    found.eliminate_zeros()
    if found.shape[0] != len(np.atleast_1d(np.asarray(instance))):
        raise AnnotationError(
            f"ticks has {found.shape[0]} rows for {len(np.atleast_1d(np.asarray(instance)))} "
            "answers; give one row of ticks per answer, shape (m, n_options)"
        )
    names = check_options(
        [str(i) for i in range(found.shape[1])] if options is None else options, "options"
    )
    if len(names) != found.shape[1]:
        raise AnnotationError(
            f"options has {len(names)} names for {found.shape[1]} columns of ticks; name each"
        )
    sets, codes = number_sets(_sparse(found.indices, found.indptr, len(names)))
    answers = answers_from_arrays(
        AnnotationTable,
        instance,
        annotator,
        codes,
        classes=range(sets.shape[0]),
        instances=instances,
        annotators=annotators,
        n_instances=n_instances,
        n_annotators=n_annotators,
        weight=weight,
        group=group,
        duplicates=duplicates,
    )
    return cls(answers, names, sets.indptr, sets.indices)


def from_tables(cls: Callable[..., Table], tables: Mapping[Any, AnnotationTable]) -> Table:
    """Join one table of "no" and "yes" for each option, such as ``Export.tables``, into sets.

    Parameters
    ----------
    tables : dict {option: AnnotationTable}
        Over the same answers, in the same order.

    Raises
    ------
    AnnotationError
        If there are no tables, or they are not about the same answers.
    """
    names = check_options([str(name) for name in tables], "tables")
    given = list(tables.values())
    first = given[0]
    for name, table in zip(names.tolist(), given, strict=True):
        is_same = np.array_equal(table.instance, first.instance)
        is_same &= np.array_equal(table.annotator, first.annotator)
        is_same &= np.array_equal(table.instances, first.instances)
        if not (is_same and np.array_equal(table.annotators, first.annotators)):
            raise AnnotationError(
                f"tables[{name!r}] holds other answers than tables[{names[0].item()!r}]; give "
                "tables over the same answers in the same order, such as Export.tables"
            )
        if table.n_classes != 2:
            raise AnnotationError(
                f"tables[{name!r}] has the classes {table.classes.tolist()}; the table of each "
                "option must have the classes no and yes, in this order"
            )
    where = [np.flatnonzero(table.label == 1) for table in given]
    codes = np.repeat(np.arange(len(given)), [len(rows) for rows in where])
    ticks = csr_array(
        (np.ones(len(codes)), (np.concatenate(where), codes)),
        shape=(len(first.instance), len(given)),
    )
    ticks.sort_indices()
    sets, numbers = number_sets(_sparse(ticks.indices, ticks.indptr, len(given)))
    return cls(with_sets(first, numbers, sets.shape[0]), names, sets.indptr, sets.indices)


def to_frame(table: Any, separator: str | None, backend: Backend) -> Any:
    """Return a long data frame; see `LabelSetTable.to_frame`."""
    inside = next(
        (n for n in table.options.tolist() if separator is not None and separator in n), None
    )
    if inside is not None:
        raise AnnotationError(
            f"the option {inside!r} contains the separator {separator!r}, so that cells could not "
            "be read back; give another separator=, or None to write lists"
        )
    sets = table.labels_of_sets()
    cells: list[Any] = sets if separator is None else [separator.join(labels) for labels in sets]
    classes = np.empty(len(cells), dtype=object)
    classes[:] = cells
    columns = table.answers._columns._replace(classes=classes)
    frame = nw.from_native(answers_to_frame(columns, backend), eager_only=True)
    return frame.rename({"label": "labels"}).drop("source").to_native()


# -- what tables of sets consist of ---------------------------------------------------------------


def check_options(options: Any, argument: str) -> AnyArray:
    """Read names of options, as text of shape (n_options,).

    Raises
    ------
    AnnotationError
        If there are none, one is named twice, or there are more than `MOST_OPTIONS`.
    """
    names = make_vocabulary(options, argument)
    if not len(names):
        raise AnnotationError(f"{argument} is empty; name the options that could be ticked")
    if len(names) > MOST_OPTIONS:
        raise AnnotationError(
            f"there are {len(names):,} different labels, such as {names[0].item()!r}; at most "
            f"{MOST_OPTIONS:,} options can be read. If this is not free text, check the separator "
            "(separator=)"
        )
    return names if is_text(names) else names.astype(str)


def with_sets(answers: AnnotationTable, codes: IntArray, n_sets: int) -> AnnotationTable:
    """Replace the sets of answers by others, numbered from 0 to ``n_sets`` - 1."""
    return AnnotationTable(
        *answers._columns._replace(label=codes, classes=np.arange(n_sets), class_order="given")
    )


def number_sets(ticks: Any) -> tuple[Any, IntArray]:
    """Number the different rows of a sparse boolean array.

    Parameters
    ----------
    ticks : CSR array of shape (n, n_options)

    Returns
    -------
    sets : CSR array of shape (K, n_options)
        The different rows, each with rising columns.
    codes : integer array of shape (n,)
        Number of each row's set.
    """
    n_options = ticks.shape[1]
    if n_options < 64:  # As the bits of a number, every set has its own sum.
        marks = np.uint64(1) << np.arange(n_options, dtype=np.uint64)
    else:  # Of a million sets, two have the same random sum with a probability of 1e-7.
        marks = np.random.default_rng(0).integers(2**64, size=n_options, dtype=np.uint64)
    with np.errstate(over="ignore"):
        until = np.concatenate([[np.uint64(0)], np.cumsum(marks[ticks.indices], dtype=np.uint64)])
        sums = until[ticks.indptr[1:]] - until[ticks.indptr[:-1]]
    _, first, codes = np.unique(sums, return_index=True, return_inverse=True)
    sets = ticks[first]
    sets.sort_indices()
    return sets, codes
