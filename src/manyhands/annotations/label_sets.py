"""Sets of labels in one answer ("tick all that apply"): recognising, splitting and naming them.

A cell holds a set as a list (``["policy", "safety"]``), or as text with a separator between the
labels (``policy;safety``); or each ticked label has a row of its own. The name of a single label
may also contain a separator (``New York; NY``), so text is split only if its parts recur: alone,
in another order or together with other labels.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import narwhals as nw
import numpy as np

from manyhands.annotations.encoding import missing_mask, texts_of
from manyhands.exceptions import AnnotationError, warn_caller

Multilabel = Literal["error", "join", "split", "none"]

SEPARATORS = ("\n", ";", "|", ",", "+", "/")
"""Separators between the labels of a set, those that are rarest within words first."""

CLEAR = SEPARATORS[:3]
"""Separators that are so rare within names of classes that recurring parts prove a set."""

BETWEEN = " + "
"""Text that `name_of` writes between the labels of a set."""

NOTHING = "(none)"
"""Name of the empty set as a class."""

NO_YES = ("no", "yes")
"""Classes of the question whether an option was ticked."""

MOST_OPTIONS = 1_000
"""Largest number of options; more different labels are free text rather than a list to tick."""

RECUR = 0.8
"""Share of the annotations with a separator whose labels must recur, for a set to be certain."""

TICKED = 0.1
"""Share of (instance, annotator) pairs with several labels above which each row is a tick."""

_LOG = logging.getLogger("manyhands")
_TOKEN = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,'"\[\]{}]+))\s*,?""")
_WHOLE = frozenset({"n/a", "#n/a", "w/o", "and/or"})

Cells = dict[Hashable, tuple[str, ...]]
"""The labels in each distinct cell, in their order, each once."""


# -- one cell -------------------------------------------------------------------------------------


def listed_labels(cell: Any) -> list[str] | None:
    """Return the labels of a cell that is a list, or a list written as text; else None.

    Repeated labels are kept, as in a list of votes. A JSON object that holds nothing but a list,
    such as ``{"choices": [...]}``, counts as the list.

    Examples
    --------
    >>> listed_labels('["policy", "safety"]'), listed_labels("['policy' 'safety']")
    (['policy', 'safety'], ['policy', 'safety'])
    >>> listed_labels("policy")
    """
    if isinstance(cell, list | tuple | np.ndarray):
        return _texts(cell)
    if isinstance(cell, set | frozenset):
        return sorted(_texts(cell))
    if not isinstance(cell, str) or cell.strip()[:1] + cell.strip()[-1:] not in ("[]", "{}"):
        return None
    text = cell.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _python_list(text)
    if isinstance(value, dict):
        value = next(iter(value.values())) if len(value) == 1 else None
    if not isinstance(value, list) or any(isinstance(part, list | dict) for part in value):
        return None
    return _texts(value)


def _texts(values: Iterable[Any]) -> list[str]:
    """Write labels as text, without blanks around them; nothing is no label."""
    found = (
        str(v.item() if isinstance(v, np.generic) else v).strip()
        for v in values
        if v is not None and v == v
    )
    return [text for text in found if text]


def _python_list(text: str) -> list[str] | None:
    """Return the labels of a list as Python or numpy prints it; a lone [word] is no list."""
    found, at, is_list = [], 1, False
    inner = text[:-1]
    while inner[at:].strip():
        token = _TOKEN.match(inner, at)
        if token is None:
            return None
        single, double, bare = token.groups()
        quoted = single if single is not None else double
        found.append(bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        is_list |= quoted is not None or token[0].endswith(",") or bare.isdigit()
        at = token.end()
    return _texts(found) if is_list else None


def cut(cell: str, separator: str) -> list[str]:
    r"""Split a text at its separators into labels, in their order, without blanks around them.

    A separator at the end of a cell, which some forms write, adds no label. Texts such as "C++" and
    "n/a" are one label.

    Examples
    --------
    >>> cut("safety; policy;", ";"), cut("C++", "+")
    (['safety', 'policy'], ['C++'])
    """
    parts = [part.strip() for part in cell.split(separator)]
    if separator not in (*CLEAR, ",") and ("" in parts or cell.strip().lower() in _WHOLE):
        return [cell.strip()]
    return [part for part in parts if part]


def name_of(labels: Iterable[str]) -> str:
    """Return the name of a set of labels as one class, whatever their order.

    Examples
    --------
    >>> name_of(["safety", "policy"]) == name_of(["policy", "safety", "policy"])
    True
    """
    return BETWEEN.join(sorted(set(labels))) or NOTHING


# -- all cells of a column ------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """How certain it is that cells with a separator are sets.

    Attributes
    ----------
    separator : str
    cells : dict {text: tuple of labels}
        Labels of every distinct cell, split at the separator.
    share : float
        Share of the annotations of several labels in which every label recurs: alone, together
        with other labels, or in another order.
    verdict : {"sets", "unclear", "possible", "classes"}
        What the cells are: sets; unclear, so that the caller is asked; classes that may be sets,
        so that a warning is given; or classes.
    """

    separator: str
    cells: Cells
    share: float
    verdict: str

    @property
    def several(self) -> list[Hashable]:
        """Cells of several labels."""
        return [cell for cell, labels in self.cells.items() if len(labels) > 1]


def evidence(counts: Mapping[str, int], separator: str) -> Evidence:
    """Judge whether the texts that contain a separator are sets of labels.

    Parameters
    ----------
    counts : dict {text: number of annotations}
    separator : str
    """
    cells: Cells = {cell: tuple(dict.fromkeys(cut(cell, separator))) for cell in counts}
    several = [cell for cell, labels in cells.items() if len(labels) > 1]
    if not several or (separator in ",/" and _are_numbers(cells, separator)):
        ended = sum(str(c).rstrip().endswith(separator) for c in cells) == len(cells) > 0
        verdict = "sets" if ended and separator in CLEAR else "classes"
        return Evidence(separator, cells, 0.0, verdict)
    homes: dict[str, set[frozenset[str]]] = {}
    for labels in cells.values():
        for label in labels:
            homes.setdefault(label, set()).add(frozenset(labels))
    orders = Counter(frozenset(labels) for labels in {cells[c] for c in several})
    permuted = {members for members, n in orders.items() if n > 1}
    recurring = [
        c
        for c in several
        if frozenset(cells[c]) in permuted or all(len(homes[label]) > 1 for label in cells[c])
    ]
    share = sum(counts[str(c)] for c in recurring) / sum(counts[str(c)] for c in several)
    return Evidence(
        separator, cells, share, _verdict(separator, cells, several, share, homes, permuted, counts)
    )


def _verdict(
    separator: str,
    cells: Cells,
    several: list[Hashable],
    share: float,
    homes: Mapping[str, set[frozenset[str]]],
    permuted: set[frozenset[str]],
    counts: Mapping[str, int],
) -> str:
    parts = {label for c in several for label in cells[c]}
    sizes = {len(labels) for labels in cells.values() if set(labels) <= parts}
    places = {(label, i) for c in several for i, label in enumerate(cells[c])}
    # Texts such as animal/cat or positive;high have a fixed place for each attribute: no sets.
    is_record = len(sizes) == 1 and len(places) == len(parts)
    is_combined = len({frozenset(cells[c]) for c in several}) > 1
    if len(parts) > MOST_OPTIONS:
        return "classes"
    if permuted and share >= RECUR / 2:
        return "sets"
    if is_record:
        return "unclear" if share >= RECUR else "classes"
    if share >= RECUR:
        return "sets" if is_combined or separator in CLEAR else "unclear"
    if share >= 0.5:
        return "unclear"
    n, total = sum(counts[str(c)] for c in several), sum(counts.values())
    some = separator in CLEAR and any(len(homes[label]) > 1 for label in parts)
    return "possible" if some and n >= 0.05 * total else "classes"


def _are_numbers(cells: Cells, separator: str) -> bool:
    """Return whether texts with a comma or a slash are decimal numbers, fractions, or dates."""
    several = [labels for labels in cells.values() if len(labels) > 1]
    digits = all(label.lstrip("-").isdigit() for labels in several for label in labels)
    return digits and len({len(labels) for labels in several}) == 1


_VERDICTS = ("sets", "unclear", "possible", "classes")


def best_evidence(counts: Mapping[str, int]) -> Evidence | None:
    """Return the evidence for the likeliest separator of these cells; None if none occurs."""
    found = [evidence(counts, mark) for mark in SEPARATORS if any(mark in c for c in counts)]
    return min(found, key=lambda e: (_VERDICTS.index(e.verdict), -e.share), default=None)


def _of_known(counts: Mapping[str, int], known: set[str]) -> Evidence | None:
    """Return the evidence if every cell that is no named class is made of named classes."""
    strange = {cell: n for cell, n in counts.items() if cell not in known}
    for mark in SEPARATORS if strange else ():
        cells: Cells = {c: (c,) if c in known else tuple(cut(c, mark)) for c in counts}
        if all(set(cells[cell]) <= known for cell in strange):
            return Evidence(mark, cells, 1.0, "sets")
    return None


def labels_of_sets(counts: Mapping[str, int]) -> Cells:
    """Return the labels of every cell that is certainly a set; empty if the cells are no sets."""
    lists = {cell: listed_labels(cell) for cell in counts}
    listed: Cells = {
        cell: tuple(dict.fromkeys(labels)) for cell, labels in lists.items() if labels is not None
    }
    if listed:
        return listed
    found = best_evidence(counts)
    return found.cells if found is not None and found.verdict == "sets" else {}


# -- what is done with them -----------------------------------------------------------------------


def check_choice(multilabel: Any, option: Any) -> None:
    """Refuse unknown choices, and an option without a split."""
    if multilabel not in ("error", "join", "split", "none"):
        raise AnnotationError(
            f"multilabel={multilabel!r} is unknown; use 'error', 'join', 'split' or 'none'"
        )
    if option is not None and multilabel != "split":
        raise AnnotationError(
            f"option={option!r} names one of several labels in an answer, which needs "
            "multilabel='split'; add that, or leave option out"
        )


def refuse_sets(counts: Mapping[str, int], argument: str, known: Iterable[Any] = ()) -> bool:
    """Refuse texts that hold, or may hold, several labels where one label is expected.

    Texts that are all named as by `name_of` were joined before, so each is accepted as one class.

    Parameters
    ----------
    counts : dict {text: number of annotations}
    argument : str
        Where the texts come from, for the message.
    known : iterable
        Named classes, if there are some.

    Returns
    -------
    bool
        Whether the texts are joined sets.

    Raises
    ------
    AnnotationError
        If the texts are sets, or it is unclear whether they are.

    Warns
    -----
    UserWarning
        If some of the texts may be sets.
    """
    named = {str(value) for value in known}
    found = _of_known(counts, named) if named else best_evidence(counts)
    if found is None or found.verdict == "classes":
        return False
    if all(cell == name_of(found.cells[cell]) for cell in found.several) and found.several:
        _LOG.info("%s holds joined sets such as %r; each is one class", argument, found.several[0])
        return True
    mark, shown = found.separator, repr(next(iter(found.several), next(iter(counts))))
    if found.verdict == "sets":
        raise AnnotationError(sets_found(found.cells, counts, f"{argument} holds", f"as {shown}"))
    n, total = sum(counts[str(cell)] for cell in found.several), sum(counts.values())
    option = found.cells[found.several[0]][0]
    mend = (
        "If it is one class, pass multilabel='none', or name all classes in classes=. If it holds "
        f"several labels, read one of them at a time by multilabel='split', option={option!r}, or "
        "make each set one class by multilabel='join'"
    )
    if found.verdict == "unclear":
        raise AnnotationError(
            f"{argument} holds {shown} ({n:,} of {total:,} annotations contain {mark!r}), and it "
            f"is unclear whether this is one class or several labels. {mend}"
        )
    warn_caller(
        f"{argument} holds {shown}: {n:,} of {total:,} annotations contain {mark!r}, and each such "
        f"text counts as one class. {mend}"
    )
    return False


def sets_found(
    cells: Mapping[Hashable, tuple[str, ...]],
    counts: Mapping[Any, int],
    what: str,
    how: str,
) -> str:
    """Say that answers hold several labels, and what to do; ``how`` shows one of them."""
    n = sum(counts[cell] for cell, labels in cells.items() if len(labels) > 1)
    names = options_of(cells, counts)
    return (
        f"{what} several labels in {n:,} of {sum(counts.values()):,} answers, such {how}; the "
        f"labels are {_named(names)}. {ways_on(names[0] if names else 'NAME')}"
    )


def ways_on(option: str) -> str:
    """Say how answers of several labels can be read."""
    return (
        "To keep the sets, use manyhands.io.read_label_sets (multilabel=';'). To read one label "
        f"at a time, as yes or no, use multilabel='split', option={option!r}. To make each set one "
        "class, use multilabel='join'"
    )


def options_of(cells: Mapping[Hashable, tuple[str, ...]], counts: Mapping[Any, int]) -> list[str]:
    """List the labels that occur in cells, the most frequent first."""
    total: Counter[str] = Counter()
    for cell, labels in cells.items():
        for label in labels:
            total[label] += counts[cell]
    return [label for label, _ in sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))]


def _named(names: list[str], shown: int = 6) -> str:
    return ", ".join(map(repr, names[:shown])) + (
        f" and {len(names) - shown:,} more" if len(names) > shown else ""
    )


def check_option(option: str | None, names: Iterable[str]) -> str:
    """Return the option to split by.

    Raises
    ------
    AnnotationError
        If no option is named, or it is not among ``names``.
    """
    known = list(names)
    if option is None:
        raise AnnotationError(
            "multilabel='split' asks about one label at a time, and none is named; name one, such "
            f"as option={known[0] if known else 'NAME'!r}. The labels are {_named(known)}"
        )
    if str(option) not in known:
        raise AnnotationError(
            f"option={option!r} is not among the labels, which are {_named(known)}; name one of "
            "them"
        )
    return str(option)


def read_cells(
    counts: Mapping[Any, int],
    multilabel: Multilabel,
    argument: str,
    known: Iterable[Any] = (),
    meaning: Callable[[str], str] | None = None,
) -> Cells | None:
    """Return the labels in each distinct cell; None if each cell is one label.

    Parameters
    ----------
    counts : dict {cell: number of annotations}
        Cells are text, or tuples of labels.
    multilabel : {"error", "join", "split", "none"}
        With "error", lists of one label are read as that label.
    argument : str
        Where the cells come from, for messages.
    known : iterable
        Named classes: a cell that is one of them is not split.
    meaning : function, optional
        Maps each spelling of a label to the label it stands for.

    Raises
    ------
    AnnotationError
        With "error", if cells hold several labels, or it is unclear whether they do.
    """
    cells = _read_cells(counts, multilabel, argument, known)
    if cells is None or meaning is None:
        return cells
    return {c: tuple(dict.fromkeys(map(meaning, labels))) for c, labels in cells.items()}


def _read_cells(
    counts: Mapping[Any, int], multilabel: Multilabel, argument: str, known: Iterable[Any]
) -> Cells | None:
    if multilabel == "none":
        return None
    lists = {c: listed_labels(c) for c in counts}
    if any(labels is not None for labels in lists.values()):
        cells: Cells = {
            c: tuple(dict.fromkeys([str(c).strip()] if labels is None else labels))
            for c, labels in lists.items()
        }
        several = next((c for c, labels in cells.items() if len(labels) > 1), None)
        if multilabel == "error" and several is not None:
            shown = f"as {list(cells[several])!r}"
            raise AnnotationError(sets_found(cells, counts, f"{argument} holds", shown))
        return cells
    texts = {c: n for c, n in counts.items() if isinstance(c, str)}
    if multilabel == "error":
        if texts:
            refuse_sets(texts, argument, known)
        return None
    named = {str(value) for value in known}
    found = (_of_known(texts, named) if named else None) or best_evidence(texts)
    if found is None or (found.verdict == "classes" and not _may_be_cut(found)):
        return {c: (str(c),) for c in counts}
    cells = {c: found.cells.get(c, (str(c),)) for c in counts}
    cells |= {c: (str(c),) for c in counts if str(c) in named}
    return cells


def cut_cells(cells: Cells, counts: Mapping[Any, int]) -> str | None:
    """Say how cells were split, by an example; None if none was."""
    first = next((c for c, ls in cells.items() if isinstance(c, str) and len(ls) > 1), None)
    if first is None:
        return None
    names = options_of(cells, counts)
    return (
        f"{first!r} is read as {len(cells[first])} labels, {_named(list(cells[first]))}; there are "
        f"{len(names):,} different labels in all: {_named(names)}"
    )


def _may_be_cut(found: Evidence) -> bool:
    """Return whether to cut cells whose labels do not recur: only if sets were asked for."""
    return bool(found.several) and (found.separator in CLEAR or len(found.several) > 1)


# -- frames ---------------------------------------------------------------------------------------


def one_label_per_row(
    frame: Any,
    label: str,
    *,
    pair: tuple[str, str],
    alike: Iterable[str] = (),
    multilabel: Multilabel = "error",
    option: str | None = None,
    classes: Any = None,
    marks: Iterable[Any] = (),
    meaning: Callable[[str], str] | None = None,
    merged: bool = True,
) -> tuple[Any, Any]:
    """Replace the sets in a column of a frame by one label each, as ``multilabel`` says.

    Parameters
    ----------
    frame : narwhals data frame
    label : str
        Column of the labels.
    pair : (str, str)
        Columns of the instance and the annotator. If these pairs repeat with different labels, and
        no cell holds several labels, each row is one ticked label, and the rows of a pair are
        joined.
    alike : iterable of str
        Columns that must be equal in the rows that are joined.
    multilabel, option, classes
        As in `AnnotationTable.from_frame`.
    marks : iterable
        Labels that mean a pass; a cell that holds nothing else stays as it is.
    meaning : function, optional
        As in `read_cells`.
    merged : bool
        Whether repeated pairs may be ticks.

    Returns
    -------
    frame
        With "split", its labels are "no" and "yes".
    classes
        The classes of this frame, if they are known.

    Raises
    ------
    AnnotationError
        If cells hold several labels and ``multilabel`` is "error", or the option is unknown.
    """
    check_choice(multilabel, option)
    is_read = multilabel in ("join", "split")
    if label not in frame.columns or multilabel == "none":
        return frame, classes
    kind = frame[label].dtype
    if not is_read and (kind.is_numeric() or kind in (nw.Boolean, nw.Categorical, nw.Enum)):
        return frame, classes
    values = _cells(frame[label])
    gaps = missing_mask(values)
    counts = Counter(values[~gaps].tolist())
    known = () if classes is None else [*classes]
    if not is_read and classes is None:  # Texts are judged later, together with the classes.
        odd = [c for c in counts if not isinstance(c, str)] or [
            c for c in counts if c.lstrip()[:1] in ("[", "{")
        ]
        if not any(listed_labels(c) is not None for c in odd):
            return frame, classes
    cells = read_cells(counts, multilabel, f"column {label!r}", known, meaning)
    if cells is None:
        return frame, classes
    passing = {str(mark) for mark in marks}
    passed = {cell: ls[0] for cell, ls in cells.items() if len(ls) == 1 and ls[0] in passing}
    labels = [() if gap else cells[v] for v, gap in zip(values, gaps, strict=True)]
    if not is_read:
        return _with_labels(frame, label, [ls[0] if ls else None for ls in labels]), classes
    cells = {cell: ls for cell, ls in cells.items() if cell not in passed}
    kept = np.arange(len(labels))
    if merged and all(column in frame.columns for column in pair):
        tasks, workers = (_hashable(frame[column].to_list()).tolist() for column in pair)
        groups = rows_of_ticks(list(zip(tasks, workers, strict=True)), labels, gaps)
        for rows in groups:
            labels[rows[0]] = tuple(label for row in rows for label in labels[row])
            _check_alike(frame, rows, [name for name in alike if name in frame.columns])
        dropped = [row for rows in groups for row in rows[1:]]
        kept = np.delete(kept, dropped)
    made: Callable[[tuple[str, ...]], str] = name_of
    if multilabel == "split":
        names = options_of(cells, counts) if classes is None else [str(c) for c in classes]
        chosen, classes = check_option(option, names), list(NO_YES)
        made = partial(_ticked, option=chosen)
    told = cut_cells(cells, counts)
    if told is not None:
        _LOG.info("column %r: %s", label, told)
    values = [None if gaps[i] else passed.get(values[i]) or made(labels[i]) for i in kept]
    return _with_labels(frame[kept.tolist()], label, values), classes


def _ticked(labels: tuple[str, ...], *, option: str) -> str:
    return NO_YES[option in labels]


def _cells(column: Any) -> Any:
    """Return an array of a column's cells, with lists as tuples; None where a text is missing."""
    texts = texts_of(column)
    if texts is None:
        # Beside texts there may be None and NaN, but no lists.
        given = column.to_list()
        return np.array(given, dtype=object) if column.dtype == nw.String else _hashable(given)
    return np.array([*texts.values, None], dtype=object)[texts.rows]


def _hashable(values: list[Any]) -> Any:
    """Return an array of cells, with lists as tuples."""
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        labels = None if isinstance(value, str) else listed_labels(value)
        found[i] = value if labels is None else tuple(labels)
    return found


def rows_of_ticks(
    pairs: list[Hashable], labels: list[tuple[str, ...]], gaps: Any = None
) -> list[list[int]]:
    """Return the rows of every repeated pair, if each of its rows is one ticked label.

    Rows without a label are not ticks. The result is empty if a row holds several labels, or if a
    pair has the same label twice.
    """
    rows: dict[Hashable, list[int]] = {}
    for i, key in enumerate(pairs):
        if gaps is None or not gaps[i]:
            rows.setdefault(key, []).append(i)
    groups = [found for found in rows.values() if len(found) > 1]
    single = all(len(ticked) < 2 for ticked in labels)
    differ = all(len({labels[i] for i in found}) == len(found) for found in groups)
    return groups if single and differ else []


def _check_alike(frame: Any, rows: list[int], columns: list[str]) -> None:
    for name in columns:
        found = {str(value) for value in frame[name][rows].to_list()}
        if len(found) > 1:
            raise AnnotationError(
                f"rows {rows[0]} and {rows[1]} are two ticked labels of one answer but differ in "
                f"column {name!r} ({', '.join(sorted(found)[:3])}); give both the same value"
            )


def _with_labels(frame: Any, label: str, values: list[Any]) -> Any:
    series = nw.new_series(label, values, nw.String, backend=frame.implementation)
    return frame.with_columns(series)


def ticked_advice(n_repeated: int, n_pairs: int, differ: bool, option: Any) -> str | None:
    """Return advice on repeated pairs if their rows are probably ticked labels; else None.

    Parameters
    ----------
    n_repeated, n_pairs : int
        Number of pairs with several rows, and of all pairs.
    differ : bool
        Whether the rows of every repeated pair have different labels.
    option : any
        A label, as an example.
    """
    if not differ or n_repeated < 2 or n_repeated < TICKED * n_pairs:
        return None
    return (
        "The labels of a repeated pair always differ, so each row is probably one ticked label. "
        + ways_on(str(option))
    )
