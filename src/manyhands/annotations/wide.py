"""Wide tables: which columns are annotators, which hold gold labels, and what the others are.

A column is judged by its name first, because the values of a gold column look like an annotator's,
and then by its values. Annotators are columns with similar names (``ann1, ann2``) or with the same
few values. Where this leaves doubt, an error asks; nothing is guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import permutations
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np

from manyhands.annotations.ids import as_frame, id_column, is_id_name
from manyhands.annotations.label_sets import labels_of_sets
from manyhands.annotations.nested import refuse_nested
from manyhands.exceptions import AnnotationError, warn_caller

Frame: TypeAlias = nw.DataFrame[Any]

Cells: TypeAlias = Mapping[str, Sequence[str]]
"""Cells of each column as text, as `as_cell` gives them; "" where there is none."""

FEW = 20
"""Largest number of different values in columns that are recognised as annotators by values."""

PROSE_WORDS, PROSE_LETTERS = 3.0, 30.0
"""Mean lengths of cells (words and characters) above which they are texts, not labels."""

SHARED = 0.5
"""Share of a column's cells that must hold values of the other column for a shared vocabulary."""

CONTESTED = 10
"""Contested rows needed, all decided as the majority, to see that a column is computed."""

SHORTENED = re.compile(r"\d([.,]\d+)?[eE]\+\d\d")
"""Numbers that a spreadsheet shortened (1.2E+15), so that different ids look the same."""

FEW_CELLS = 4
"""Cells below which a column says little about its vocabulary."""

HEAD = 200
"""Number of first rows by which a column of a frame is judged."""

HEAD_OF_LONG = 2000
"""Number of first rows by which the columns of a long table are guessed."""

MOST_LONG = 40
"""Largest number of columns with repeated values in what may be a long table."""

ONCE = 0.9
"""Share of rows with a pair of instance and annotator of their own, from which a table is long."""

SHOWN = 20
"""Largest number of columns that a message shows."""

MISSING_CELLS = frozenset({"", "nan", "NaN", "None", "<NA>", "NaT"})
"""Cells of a wide table without an annotation; and -1, unless it is a class."""

# -- what names say -------------------------------------------------------------------------------


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


TICKS = _set("x ✓ ✔ ☑ √ 1 yes y true ja oui sí sì tak wahr vrai vero verdadero")
"""Values, in lower case, that tick an option where other cells are empty."""

ANNOTATOR_WORDS = _set(
    "ann anno annotator annotators worker workers turk turker rater coder judge labeler labeller "
    "user reviewer assessor crowdworker expert person participant"
)
LABEL_WORDS = _set(
    "label labels answer response rating score vote annotation judgment judgement class category "
    "grade choice code decision"
)
ITEM_WORDS = _set(
    "task instance example sample sentence text image statement case unit doc document"
)
QUESTION_WORDS = _set("q question item feature f x v var col column aspect attribute")

_KINDS: dict[str, tuple[str, frozenset[str]]] = {
    kind: (reason, _set(words))
    for kind, reason, words in (
        ("flag", "its name suggests a mark of the item", "is has was held heldout flag flagged"),
        (
            "gold",
            "its name suggests gold labels",
            "gold truth true groundtruth gt goldstandard correct solution reference adjudicated "
            "adjudication expert official target targets",
        ),
        (
            "aggregate",
            "its name suggests something computed from the annotations",
            "majority mv majorityvote mode consensus final aggregate aggregated agree agreement "
            "agreed unanimous mean average avg median std sd stdev var variance entropy kappa sum "
            "disagreement merged pred preds predicted prediction predictions inferred mace",
        ),
        (
            "confidence",
            "its name suggests a confidence",
            "confidence confidences conf certainty certain sure prob probs probability "
            "probabilities proba weight weights difficulty",
        ),
        (
            "time",
            "its name suggests a time",
            "time date datetime timestamp day created updated started finished submitted duration "
            "seconds secs sec minutes ms year month",
        ),
        (
            "text",
            "its name suggests a text",
            "text texts sentence tweet content title body comment comments note notes remark "
            "remarks reason rationale explanation description utterance premise hypothesis "
            "context passage url link image file filename path",
        ),
        ("count", "its name suggests a count", "n count counts num number total nr votes length"),
        (
            "id",
            "its name suggests an id",
            "id ids guid uuid index idx key hash row line hit hitid assignment",
        ),
        (
            "item",
            "its name suggests a property of the item",
            "round batch split fold subset set source domain topic genre lang language session "
            "seed author age gender country status page position",
        ),
    )
}
"""Kinds of columns other than annotators: the reason to give, and the words in their names."""


def words_of(name: str) -> list[str]:
    """Return the words and numbers of a column name, in lower case.

    Examples
    --------
    >>> words_of("TurkId1"), words_of("worker_0"), words_of("y_true")
    (['turk', 'id', '1'], ['worker', '0'], ['y', 'true'])

    What a platform calls a person is no words, even if some of its letters are:

    >>> words_of("A1N274L13ZKKI5")
    ['a1n274l13zkki5']
    """
    if re.fullmatch(r"(?=.*\d[A-Z])[A-Z][A-Z0-9]{8,}", name):
        return [name.lower()]
    apart = re.sub(r"(?<=[^\W\d_])(?=[A-Z][^\W\d_A-Z])|(?<=[a-z])(?=[A-Z])", "_", name)
    return [word.lower() for word in re.findall(r"[^\W\d_]+|\d+", apart)]


def kind_of(name: str) -> str:
    """Return what a column is, if its name says that it is no annotator; else ""."""
    words = words_of(name)
    if words[:1] in (["is"], ["has"], ["was"]):
        return "flag"
    if words[-1:] and words[-1] in ("id", "ids", "guid", "uuid"):
        return "id"
    joined = "".join(word for word in words if not word.isdigit())
    for kind, (_, known) in _KINDS.items():
        if kind == "count" and joined == "n" and len(words) > 1 and words[0] != "n":
            continue
        if joined in known or any(word in known for word in words):
            return kind
    return ""


def gold_column(names: Iterable[str], used: Iterable[str] = ()) -> str | None:
    """Return the only column that is named like gold labels, besides those in use.

    Examples
    --------
    >>> gold_column(["task", "worker", "label", "gold_label"]), gold_column(["task", "label"])
    ('gold_label', None)
    """
    others = set(names) - set(used)
    found = [name for name in names if name in others and kind_of(name) == "gold"]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class _Family:
    """Columns whose names differ in one number, letter or word."""

    pattern: str
    members: dict[str, str]

    @property
    def words(self) -> list[str]:
        return [word for word in words_of(self.pattern) if not word.isdigit()]

    def says(self, known: frozenset[str]) -> bool:
        return any(word in known for word in self.words)


def _families(names: Sequence[str]) -> list[_Family]:
    return _families_of(tuple(names))


@lru_cache(maxsize=8)
def _families_of(names: tuple[str, ...]) -> list[_Family]:
    """Return groups of columns whose names differ in a number or letter, or share a word."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        for pattern, part in _patterns(name):
            found.setdefault(pattern, {})[part] = name
    letters = found.get("*", {})
    for name in [name for name in letters if _may_be_truth(name, letters)]:
        del letters[name]
    families = [_Family(*pair) for pair in found.items() if len(pair[1]) > 1]
    taken: set[str] = set()
    kept = []
    for family in sorted(families, key=lambda f: -len(f.members)):
        if not taken & set(family.members.values()):
            kept.append(family)
            taken |= set(family.members.values())
    return sorted(kept, key=lambda f: names.index(next(iter(f.members.values()))))


def _patterns(name: str) -> Iterable[tuple[str, str]]:
    if re.fullmatch(r"[^\W\d_]", name):
        yield "*", name
        return
    *_, last = [None, *re.finditer(r"\d+", name)]
    if last is not None:
        yield f"{name[: last.start()]}*{name[last.end() :]}", last.group()
        return
    lettered = re.fullmatch(r"(.*[^\W_])([\s_.-]+[A-Za-z]|(?<=[a-z])[A-Z])", name)
    if lettered:
        yield f"{lettered[1]}*", lettered[2]
    parts = re.fullmatch(r"([^\W\d_]+)([\s_.:-]+)(.+)", name)
    if parts and parts[1].lower() in ANNOTATOR_WORDS | LABEL_WORDS:
        yield f"{parts[1]}{parts[2]}*", parts[3]
    parts = re.fullmatch(r"(.+?)([\s_.:-]+)([^\W\d_]+)", name)
    if parts and parts[3].lower() in ANNOTATOR_WORDS | LABEL_WORDS:
        yield f"*{parts[2]}{parts[3]}", parts[1]


# -- what was found -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """What the columns of a wide table are.

    Attributes
    ----------
    task : tuple of str
        Columns that together are the id of the instance; none: rows are numbered from 0.
    annotators : tuple of str
        Columns of labels, one per annotator.
    pairs : tuple of (str, str)
        Columns of an annotator's id and of their label, in a paired layout, where ``annotators`` is
        empty.
    gold : str or None
        Column of gold labels.
    others : dict {column: reason}
        All other columns, and why they are neither.
    why : str
        How the annotators were found; empty if they were named.
    named : dict
        The options that name what was found: ``annotators``, or ``worker`` and ``label``.
    """

    task: tuple[str, ...]
    annotators: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    gold: str | None = None
    others: dict[str, str] = field(default_factory=dict)
    why: str = ""
    named: dict[str, Any] = field(default_factory=dict)


OTHER_VALUES = "its values are not those of the annotators"
"""Reason why a column of labels is not an annotator's."""

NAME_COLUMNS = (
    "if each row is one annotation, name its columns with task=, worker= and label=; if some "
    "columns are annotators, name them with annotators="
)
"""How to settle which columns are which."""


class UnclearColumnsError(AnnotationError):
    """It is unclear which columns of a table are the annotators'.

    Attributes
    ----------
    problem : str
        What is unclear, in one sentence.
    columns : list of (name, values)
        The columns, with up to three values each.
    options : dict
        The options that would settle it, if the best guess is right.
    mend : str
        What else the caller may do, in Python's words.
    """

    def __init__(
        self,
        problem: str,
        columns: Cells,
        options: Mapping[str, Any],
        mend: str | None = None,
    ) -> None:
        self.problem, self.mend = problem, NAME_COLUMNS if mend is None else mend
        self.columns = [(name, distinct(cells)[:3]) for name, cells in columns.items()]
        self.options = dict(options)
        super().__init__(problem)

    @property
    def seen(self) -> str:
        """What is unclear, and the columns with three values each."""
        shown = [
            f"{name!r} ({', '.join(value[:40] for value in values) or 'empty'})"
            for name, values in self.columns[:SHOWN]
        ]
        more = len(self.columns) - SHOWN
        last = [f"and {more:,} more"] * (more > 0)
        return f"{self.problem}. The columns are {', '.join(shown + last)}"

    def __str__(self) -> str:
        named = {name: value for name, value in self.options.items() if name != "format"}
        options = ", ".join(f"{name}={value!r}" for name, value in named.items())
        mend = f"; {self.mend}" if self.mend else ""
        return f"{self.seen}{mend}" + (f". Most likely: {options}" if named else "")

    def of(self, name: str) -> UnclearColumnsError:
        """Return the same error with the name of a file."""
        problem = self.problem if self.problem.startswith(name) else f"{name}: {self.problem}"
        found = UnclearColumnsError(problem, {}, self.options, self.mend)
        found.columns = self.columns
        return found


def as_cell(value: Any) -> str:
    """Write a cell as text: "" if it is missing, "1" for 1.0.

    Examples
    --------
    >>> as_cell(1.0), as_cell(" yes "), as_cell(float("nan")), as_cell(None)
    ('1', 'yes', '', '')
    """
    text = "" if value is None else str(value).strip()
    if text in MISSING_CELLS:
        return ""
    if text.endswith(".0") and re.fullmatch(r"[+-]?\d+", text[:-2]):
        return text[:-2]
    return text


def distinct(cells: Iterable[str]) -> list[str]:
    """Return the values of a column in order of appearance, without gaps."""
    return [value for value in dict.fromkeys(cells) if value]


# -- naming columns -------------------------------------------------------------------------------


def task_columns(task: str | Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that make up the id of an instance: one, or several with commas.

    Examples
    --------
    >>> task_columns("system,doc", ["system", "doc"]), task_columns("a,b", ["a,b"])
    (['system', 'doc'], ['a,b'])
    """
    if not isinstance(task, str):
        return list(task)
    parts = [part.strip() for part in task.split(",")]
    return parts if task not in names and set(parts) <= set(names) else [task]


def joined_id(parts: Sequence[Any]) -> str:
    r"""Join the parts of an id with "|"; a "|" within a part is written as "\|".

    Examples
    --------
    >>> joined_id(["A", "news", 7])
    'A|news|7'
    """
    return as_cell(parts[0]) if len(parts) == 1 else "|".join(map(part_of_id, parts))


def part_of_id(value: Any) -> str:
    r"""Write one of several parts of an id, with "|" escaped, so that a bare "|" divides parts.

    Examples
    --------
    >>> part_of_id(7.0), part_of_id("a|b")
    ('7', 'a\\|b')
    """
    return as_cell(value).replace("\\", "\\\\").replace("|", "\\|")


def with_joined_task(frame: Frame, task: str | Sequence[str]) -> tuple[Frame, str]:
    """Return the frame with a column of ids joined from several columns, and that column's name.

    Raises
    ------
    AnnotationError
        If one of several columns does not exist.
    """
    names = task_columns(task, frame.columns)
    if len(names) == 1:
        return frame, names[0]
    for name in names:
        if name not in frame.columns:
            raise AnnotationError(
                f"task={task!r}: {name!r} is not a column; the columns are "
                f"{', '.join(map(repr, frame.columns))}"
            )
    rows = zip(*(map(as_cell, frame[name].to_list()) for name in names), strict=True)
    ids = [joined_id(row) if all(row) else None for row in rows]
    joined = ",".join(names)
    return frame.with_columns(nw.new_series(joined, ids, backend=frame.implementation)), joined


def chosen_columns(
    patterns: str | Iterable[str], names: Sequence[str], argument: str = "annotators"
) -> list[str]:
    """Return the columns that are named or match a pattern, in the table's order.

    Parameters
    ----------
    patterns : str or iterable of str
        Names and patterns; a text may hold several, with commas between.
    names : sequence of str
    argument : str
        For messages.

    Raises
    ------
    AnnotationError
        If a name or pattern fits no column.
    """
    listed = [patterns] if isinstance(patterns, str) else [str(p) for p in patterns]
    found: set[str] = set()
    for text in listed:
        parts = [text] if text in names else [part.strip() for part in text.split(",")]
        for part in filter(None, parts):
            fitting = [part] if part in names else [n for n in names if fnmatchcase(n, part)]
            if not fitting:
                raise AnnotationError(
                    f"{argument}={part!r} fits no column; the columns are {_shown(names)}"
                )
            found |= set(fitting)
    if not found:
        raise AnnotationError(f"{argument}={patterns!r} names no column")
    return [name for name in names if name in found]


def brief_names(chosen: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return patterns that fit exactly these columns, such as ``worker_*``, or their names.

    Examples
    --------
    >>> brief_names(["w_1", "w_2", "w_3"], ["id", "w_1", "w_2", "w_3"])
    ['w_*']
    >>> brief_names(["ann", "bob"], ["ann", "bob", "gold"])
    ['ann', 'bob']
    """
    for family in _families(list(chosen)):
        fitting = [name for name in names if fnmatchcase(name, family.pattern)]
        if len(chosen) > 2 and fitting == list(chosen) and not set("[]?,") & set(family.pattern):
            return [family.pattern]
    return list(chosen)


def _matched(pattern: str, names: Sequence[str], argument: str) -> dict[str, str]:
    """Return the columns that fit a pattern with one star, by what the star stands for."""
    before, star, after = pattern.partition("*")
    if not star or "*" in after:
        raise AnnotationError(
            f"{argument}={pattern!r} must be a pattern with one *, such as '{argument}_*'"
        )
    fitting = {
        name[len(before) : len(name) - len(after)]: name
        for name in names
        if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)
    }
    if not fitting:
        raise AnnotationError(f"{argument}={pattern!r} fits no column")
    return fitting


def paired(worker: str, label: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Pair the columns of two patterns such as ``TurkId*`` and ``Score*`` by their stars.

    Raises
    ------
    AnnotationError
        If a pattern fits no column, or a column has no partner.
    """
    workers, labels = _matched(worker, names, "worker"), _matched(label, names, "label")
    # "worker*" also fits "worker1_label", which belongs to "worker*_label".
    wider, closer = (workers, labels) if len(worker) < len(label) else (labels, workers)
    for key in [key for key, name in wider.items() if name in closer.values()]:
        del wider[key]
    lonely = [*(labels[k] for k in labels if k not in workers)]
    lonely += [workers[k] for k in workers if k not in labels]
    if lonely:
        raise AnnotationError(
            f"worker={worker!r} and label={label!r}: the column {lonely[0]!r} has no partner"
        )
    return [(name, labels[key]) for key, name in workers.items()]


# -- frames ---------------------------------------------------------------------------------------


def cells_of_frame(frame: Any, most: int | None = None) -> dict[str, list[str]]:
    """Return the columns of a narwhals frame as cells of text, of the first rows or of all."""
    columns = zip(frame.columns, frame.iter_columns(), strict=True)
    return {
        str(name): list(map(as_cell, (column if most is None else column.head(most)).to_list()))
        for name, column in columns
    }


def annotators_of_frame(A: Any, annotators: Any) -> tuple[Any, Any]:
    """Keep the columns of a wide frame that are ids or annotators; return other objects unchanged.

    Columns whose names or values say that they hold something else are left out with a warning.

    Returns
    -------
    A : the frame, or what was given
    annotators : what was given, or None if it named columns

    Raises
    ------
    AnnotationError
        If ``annotators`` names some columns of the frame, and others that it lacks.
    UnclearColumnsError
        If some columns are not annotators, and it is unclear which are.
    """
    frame = as_frame(A)
    if frame is None:
        return A, annotators
    # A narwhals frame reads frame[0] as a row.
    columns = {str(n): c for n, c in zip(frame.columns, frame.iter_columns(), strict=True)}
    ids = id_column(frame.columns)
    names = [name for name in columns if name != ids]
    if annotators is not None:
        listed = [annotators] if isinstance(annotators, str) else list(annotators)
        if not any(
            name in names or any(fnmatchcase(n, name) for n in names)
            for text in map(str, listed)
            for name in (text, *text.split(","))
        ):
            return A, annotators  # Ids of the columns, in their order.
        chosen = chosen_columns(listed, names)
        return _with_columns(A, columns, [ids, *chosen]), None
    heads = {name: list(map(as_cell, columns[name].head(HEAD).to_list())) for name in names}
    if not any(_is_plainly_other(name, heads) for name in names) and not _odd_ones_out(heads):
        return A, None
    cells = {name: list(map(as_cell, columns[name].to_list())) for name in names}
    try:
        roles = find_roles(cells, task=())
    except UnclearColumnsError:
        refuse_nested(frame, names, "A")
        raise
    if roles.pairs:
        raise AnnotationError(
            f"A has a column of annotators beside each column of labels ({roles.named}); save it "
            "as a file and read that with manyhands.io.read_annotations(path, format='wide'), or "
            "give a long table"
        )
    reasons = roles.others | ({} if roles.gold is None else {roles.gold: "it holds gold labels"})
    shown = "; ".join(f"{name!r}: {reason}" for name, reason in reasons.items())
    warn_caller(
        f"A has columns that are not annotators and are left out ({shown}). If one of them is an "
        "annotator, name the columns of all annotators in annotators="
    )
    return _with_columns(A, columns, [ids, *roles.annotators]), None


def _is_plainly_other(name: str, heads: Cells) -> bool:
    """Return whether a column certainly holds neither labels nor ids."""
    cells = heads[name]
    if _is_prose(cells):
        return True
    if _all_differ(cells) and len(cells) > 3:
        return False
    others = [other for other in heads if other != name and not kind_of(other)]
    fractions = any(map(_is_fraction, cells))
    alone = fractions and not any(_is_fraction(c) for other in others for c in heads[other])
    is_called = bool(kind_of(name)) or (
        _is_called_label(name) and not all(map(_is_called_label, others))
    )
    is_called = is_called or (bool(others) and _may_be_truth(name, others))
    return alone or (is_called and not _in_family(name, list(heads)))


def _odd_ones_out(heads: Cells) -> list[str]:
    """Return columns outside a family of names, such as "smoker" beside "rater_1", ..."""
    families = _families(list(heads))
    if len(families) != 1:
        return []
    members = families[0].members.values()
    outside = [name for name, cells in heads.items() if name not in members]
    if len(outside) > len(members):
        return []
    return [name for name in outside if not _all_differ(heads[name])]


TOTALS = frozenset(
    {"total", "sum", "all", "n", "annotation", "vote", "label", "judgement", "judgment"}
)
"""Words, in the singular, in the name of a column that is the sum of others."""


def words_of_total(name: str) -> set[str]:
    """Return the words of a column name that say that it counts all votes or all people."""
    words = {word.removesuffix("s") for word in re.findall(r"[a-z]+", name.lower())}
    return words & (ANNOTATOR_WORDS | TOTALS)


def counts_of_frame(counts: Any) -> Any:
    """Keep the columns of a frame that count votes, and its ids; return other objects unchanged.

    Columns whose names say that they hold something else are left out with a warning, unless every
    row has the same number of votes only if they are counted.
    """
    frame = as_frame(counts)
    if frame is None:
        return counts
    columns = {str(n): c for n, c in zip(frame.columns, frame.iter_columns(), strict=True)}
    ids = id_column(frame.columns)
    names = [name for name in columns if name != ids]
    # A total is kept here, and refused by name later.
    totals = {name for name in names if name == "n" or words_of_total(name) - {"n"}}
    others = {name: why for name, why in not_counted(names).items() if name not in totals}
    if not others:
        return counts
    kept = [name for name in names if name not in others]
    if all(column.dtype.is_numeric() for name, column in columns.items() if name != ids):
        values = np.column_stack([columns[name].to_numpy() for name in names])
        of_kept = values[:, [names.index(name) for name in kept]]
        if len(set(values.sum(axis=1))) == 1 < len(set(of_kept.sum(axis=1))):
            return counts
    shown = "; ".join(f"{name!r}: {reason}" for name, reason in others.items())
    warn_caller(
        f"counts has columns that do not count votes for a class and are left out ({shown}). If "
        "one of them is a class, drop the other columns, and name all classes in classes="
    )
    return _with_columns(counts, columns, [ids, *kept])


def not_counted(names: Sequence[str]) -> dict[str, str]:
    """Return, by column, why its name says that it holds no votes for a class.

    Examples
    --------
    >>> not_counted(["yes", "no", "n_words"])
    {'n_words': 'its name suggests a count'}
    >>> not_counted(["correct", "incorrect"]), not_counted(["count_a", "count_b"])
    ({}, {})
    """
    words = [words_of(name) for name in names]
    first = {each[0] for each in words if each}
    shared = len(first) == 1 and all(len(each) > 1 for each in words)
    kinds = [kind_of("_".join(each[shared:])) for each in words]
    found = {n: _KINDS[kind][0] for n, kind in zip(names, kinds, strict=True) if kind}
    return found if len(names) - len(found) > 1 else {}


def _is_called_label(name: str) -> bool:
    return bool(set(words_of(name)) & LABEL_WORDS)


def _may_be_truth(name: str, others: Iterable[str]) -> bool:
    """Return whether a column is named y for the truth, rather than as one letter of many."""
    beside = {other.casefold() for other in others}
    return name.strip().casefold() == "y" and not beside & {"x", "z"}


def _with_columns(A: Any, columns: Mapping[str, Any], kept: Sequence[str | None]) -> Any:
    """Select columns of a frame by their names as text; an index stays."""
    places = [place for place, name in enumerate(columns) if name in kept]
    if hasattr(A, "iloc"):
        return A.iloc[:, places]
    return A.select([list(columns)[place] for place in places])


# -- judging --------------------------------------------------------------------------------------


def find_roles(
    columns: Cells,
    *,
    task: Sequence[str] | None = None,
    annotators: str | Iterable[str] | None = None,
    worker: str | None = None,
    label: str | None = None,
) -> Roles:
    """Find out what the columns of a wide table are.

    Parameters
    ----------
    columns : mapping from str to cells
    task : sequence of str, optional
        Columns of the ids; default: found by name and values.
    annotators : str or iterable of str, optional
        Names or patterns of the annotators' columns; default: recognised.
    worker, label : str, optional
        Patterns of paired columns.

    Raises
    ------
    UnclearColumnsError
        If it is unclear which columns are the annotators'.
    AnnotationError
        If a column that is named does not exist.
    """
    names = list(columns)
    for name in task or ():
        if name not in columns:
            raise AnnotationError(f"task={name!r} is not a column; the columns are {_shown(names)}")
    judged = _Judged(columns, tuple(task) if task is not None else _find_ids(columns))
    if worker is not None and label is not None:
        pairs = paired(worker, label, names)
        return judged.roles(pairs=pairs, named={"worker": worker, "label": label})
    if annotators is not None:
        chosen = chosen_columns(annotators, names)
        if task is not None and (both := [name for name in chosen if name in task]):
            raise AnnotationError(
                f"the column {both[0]!r} is named by task= and by annotators=; leave it out of one"
            )
        judged = _Judged(columns, tuple(n for n in judged.task if n not in chosen))
        return judged.roles(chosen, named={"annotators": brief_names(chosen, names)})
    return judged.recognised()


def may_be_wide(columns: Cells) -> bool:
    """Return whether at least two columns share a vocabulary, as annotators do."""
    judged = _Judged(columns, _find_ids(columns))
    return any(len(group) > 1 for group in judged.clusters(judged.possible()))


def guess_long(columns: Cells, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Guess the columns of a table with one row per annotation; empty if none is a good guess.

    In a table of three columns, the values decide even where a name says something else.

    Examples
    --------
    >>> prompts, judges = ["p", "p", "q", "q"], ["j", "k", "j", "k"]
    >>> guess_long({"prompt": prompts, "judge": judges, "verdict": ["1", "2", "2", "1"]})
    {'task': 'prompt', 'worker': 'judge', 'label': 'verdict'}
    """
    known = {} if known is None else known
    guess = _guess_long(columns, known)
    filled = [name for name, cells in columns.items() if any(cells)]
    return guess or (_guess_long(columns, known, by_names=False) if len(filled) == 3 else {})


def _guess_long(
    columns: Cells, known: Mapping[str, str], *, by_names: bool = True
) -> dict[str, str]:
    """Guess the columns of a table with one row per annotation.

    Instances and annotators repeat, but hardly any pair of them, because an annotator answers for
    an instance once. A column of labels is determined neither by the instance alone nor by the
    annotator alone. Names decide between columns whose values fit equally well.

    Parameters
    ----------
    columns : mapping from str to cells
    known : dict {"task", "worker" or "label": column}
        Columns that are named already.
    by_names : bool
        Leave out columns whose names say that they hold something else, such as notes.
    """
    cells = {name: columns[name][:HEAD_OF_LONG] for name in columns}
    n = len(next(iter(cells.values()), ()))
    counts = {name: len(set(filter(None, values))) for name, values in cells.items()}
    repeated = [name for name, k in counts.items() if 1 < k < n and name not in known.values()]
    if len(repeated) > MOST_LONG:
        return {}
    kinds = {"task": ("", "id", "text"), "worker": ("", "id"), "label": ("",)}
    tasks, workers, labels = (
        [known[role]]
        if role in known
        else [m for m in repeated if not by_names or kind_of(m) in kinds[role]]
        for role in kinds
    )
    best: dict[str, str] = {}
    highest: tuple[float, ...] = ()
    for task, worker in permutations(dict.fromkeys([*tasks, *workers]), 2):
        if task not in tasks or worker not in workers or _is_prose(cells[worker]):
            continue
        pairs = list(zip(cells[task], cells[worker], strict=True))
        whole = [pair for pair in pairs if not SHORTENED.fullmatch(pair[0])] or pairs
        once = len(set(whole)) / len(whole)
        if once < ONCE or len(set(pairs)) == max(counts[task], counts[worker]):
            continue  # Pairs repeat, or one of the columns merely describes the other.
        for label in labels:
            alone = {(t, v) for (t, _), v in zip(pairs, cells[label], strict=True)}
            told = {(w, v) for (_, w), v in zip(pairs, cells[label], strict=True)}
            is_property = len(alone) == counts[task] or len(told) == counts[worker]
            few = counts[label] <= max(FEW, n / 4) and not _is_prose(cells[label])
            if label in (task, worker) or (label not in known.values() and is_property) or not few:
                continue
            names = [bool(set(words_of(worker)) & ANNOTATOR_WORDS), is_id_name(task)]
            names += [bool(set(words_of(label)) & LABEL_WORDS), not _is_prose(cells[task])]
            rank = (sum(names), counts[task] - counts[label], -counts[label])
            if not best or rank > highest:
                best, highest = {"task": task, "worker": worker, "label": label}, rank
    return best


def guess_own(columns: Cells) -> dict[str, str]:
    """Guess the columns of a table that holds one annotator's work; empty if they are unclear.

    Examples
    --------
    >>> guess_own({"Nr": ["1", "2", "3", "4"], "Urteil": ["ja", "nein", "ja", "ja"]})
    {'task': 'Nr', 'label': 'Urteil'}
    """
    keys = [n for n, cells in columns.items() if _all_differ(cells)]
    called = [name for name in keys if is_id_name(name) or kind_of(name) == "id"]
    keys = called or [name for name in keys if not _is_prose(columns[name])] or keys
    labels = [
        name
        for name, cells in columns.items()
        if 0 < len(set(filter(None, cells))) <= max(FEW, len(cells) / 4)
        and name not in keys
        and kind_of(name) == ""
        and not _is_prose(cells)
    ]
    labels = [name for name in labels if set(words_of(name)) & LABEL_WORDS] or labels
    return {"task": keys[0], "label": labels[0]} if keys and len(labels) == 1 else {}


def how_to_read(frame: Any, argument: str) -> str:
    """Say how to make a table of a data frame, with its own columns if they are recognised.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [("p", "j", 1), ("p", "k", 2), ("q", "j", 1), ("q", "k", 1)]
    >>> how_to_read(pd.DataFrame(rows, columns=["prompt", "judge", "verdict"]), "df")
    "AnnotationTable.from_frame(df, task='prompt', worker='judge', label='verdict')"
    """
    cells = cells_of_frame(nw.from_native(frame, eager_only=True), HEAD_OF_LONG)
    roles = {str(name): str(name) for name in ("task", "worker", "label") if name in cells}
    if found := guess_long(cells, roles):
        named = [f"{role}={name!r}" for role, name in found.items() if role != name]
        return f"AnnotationTable.from_frame({', '.join([argument, *named])})"
    return (
        f"AnnotationTable.from_frame({argument}) if each row is one annotation, or "
        f"AnnotationTable.from_matrix({argument}) if each annotator has a column"
    )


def own_work(source: str) -> str:
    """Say what to do if every file or sheet is the work of one annotator."""
    gold = "; if it holds known labels, give it as gold= beside annotations"
    return (
        f"if every {source} holds one annotator's work, annotator_from={source!r} takes the names "
        f"of the {source}s as the annotators{gold * (source == 'file')}"
    )


def header_of_data(columns: Cells) -> str:
    """Say that the names of columns look like the first row of the data; "" if they do not.

    Names of columns hardly ever occur again among the few values below them.
    """
    again = [
        name
        for name, cells in columns.items()
        if as_cell(name)
        and not _is_number(name)
        and as_cell(name) in set(cells)
        and len(set(cells)) <= max(FEW, len(cells) / 4)
    ]
    if len(again) < 2:
        return ""
    guess = guess_long(columns)
    names = {name: role for role, name in guess.items()}
    row = ",".join(names.get(name, f"column{i}") for i, name in enumerate(columns, start=1))
    such = f", such as {row}" if guess else ""
    return (
        f"the first row looks like data, not like names of columns ({_listed(again)} occur again "
        f"below); insert a row of names above it{such}"
    )


def another_layout(columns: Cells) -> str:
    """Say that a table is transposed or holds ticks, and what to do; "" if it is neither.

    Examples
    --------
    >>> another_layout({"Coder": ["Ann", "Bob"], "Item 1": ["a", "b"], "Item 2": ["a", "a"]})[:43]
    'the table is transposed: its rows are the a'
    """
    return _transposed(columns) or ticked_options(columns)


def _transposed(columns: Cells) -> str:
    names = list(columns)
    if len(names) < 3 or not _all_differ(columns[names[0]]):
        return ""
    first, others = names[0], names[1:]
    values = {value for name in others for value in distinct(columns[name])}
    n = sum(bool(cell) for name in others for cell in columns[name])
    family = next((f for f in _families(others) if len(f.members) == len(others)), None)
    items = family is not None and bool(set(family.words) & (QUESTION_WORDS | ITEM_WORDS))
    called = bool(set(words_of(first)) & ANNOTATOR_WORDS) and not kind_of(first)
    people = called or set(words_of(first)) <= {"name", "initials"} or not first
    if not (people and (items or (called and len(others) > len(columns[first])))):
        return ""
    if len(values) > max(FEW, n / 4) or any(map(_is_prose, map(columns.__getitem__, others))):
        return ""
    return (
        f"the table is transposed: its rows are the annotators ({_listed(columns[first])}), and "
        f"its columns the items ({_listed(others)}). Turn it, in a spreadsheet by copying it and "
        "Paste Special > Transpose, so that each item has a row and each annotator a column"
    )


def ticked_options(columns: Cells) -> str:
    """Say that columns hold ticks of options and empty cells, and what to do; "" if none do."""
    ticked: dict[str, list[str]] = {}
    for name, cells in columns.items():
        found = set(cells)
        if len(found) == 2 and "" in found:
            (value,) = found - {""}
            if value.casefold() in TICKS:
                ticked.setdefault(value.casefold(), []).append(name)
    value, names = max(ticked.items(), key=lambda pair: len(pair[1]), default=("", []))
    if len(names) < 2:
        return ""
    return (
        f"{_listed(names)} hold {value!r} or nothing, so they look like ticked options rather than "
        "annotators. Write the names of the ticked options into one column of labels, such as "
        f"'{names[0]};{names[1]}' in one cell, beside a column of items and one of annotators, and "
        f"read that with multilabel='split', option={names[0]!r}. If each column is an annotator, "
        "fill the empty cells with what they mean, such as 'no'"
    )


def missing_columns(
    absent: Mapping[str, str], present: Mapping[str, str], columns: Cells
) -> UnclearColumnsError:
    """Return the error that names all columns that a table with one row per annotation lacks.

    Parameters
    ----------
    absent, present : dict {argument: column}
        Columns that are named but missing, and columns that are there.
    columns : mapping from str to cells
        All columns; some rows are enough.
    """
    named = [f"{argument}={name!r}" for argument, name in absent.items()]
    listed = " and ".join([*filter(None, [", ".join(named[:-1])]), named[-1]])
    problem = f"{listed} {'is not a column' if len(named) == 1 else 'are not columns'}"
    if other := another_layout(columns):
        return UnclearColumnsError(f"{problem}; {other}", columns, {}, "")
    own = {role: name for role, name in present.items() if role in ("task", "worker", "label")}
    guess = guess_long(columns, own)
    left = [name for name in columns if name not in present.values()]
    if (
        not guess
        and len(absent) == len(left) == 1
        and not set(absent) - {"task", "worker", "label"}
    ):
        guess = dict(zip(absent, left, strict=True))
    options = {role: name for role, name in guess.items() if role not in own}
    others = [f"{role}=<name of the column>" for role in absent if role not in options]
    wide = "one column per annotator is what AnnotationTable.from_matrix(frame) reads"
    mend = [f"pass {', '.join(others)}"] if others else []
    mend += [wide] if "worker" in absent and "worker" not in options else []
    return UnclearColumnsError(problem, columns, options, "; ".join(mend))


def _find_ids(columns: Cells) -> tuple[str, ...]:
    """Return the column of ids, by its name, else the first by its values; none without ids."""
    names = list(columns)
    if not names or is_id_name(names[0]):
        return tuple(names[:1])
    for name in names:
        called = is_id_name(name) or kind_of(name) == "id"
        if called and not _in_family(name, names) and _all_differ(columns[name]):
            return (name,)
    first, cells = names[0], columns[names[0]]
    if not _all_differ(cells) or _in_family(first, names):
        return ()
    if _counts_rows(cells):
        return (first,)
    if _is_prose(cells) or any(map(_is_fraction, cells)) or kind_of(first) in ("text", "time"):
        return ()
    elsewhere = {cell for name in names[1:] for cell in columns[name]}
    alone = len(cells) > 2 and not elsewhere & set(cells)
    return (first,) if alone or len(cells) > FEW else ()


def _in_family(name: str, names: Sequence[str]) -> bool:
    return any(name in family.members.values() for family in _families(names))


def _all_differ(cells: Sequence[str]) -> bool:
    return len(cells) > 1 and "" not in cells and len(set(cells)) == len(cells)


def _counts_rows(cells: Sequence[str]) -> bool:
    """Return whether a column numbers the rows: 1, 2, 3, ... in the file's order."""
    if len(cells) < 4 or not all(cell.isdecimal() for cell in cells):
        return False
    start = int(cells[0])
    return all(int(cell) == start + k for k, cell in enumerate(cells))


def _is_prose(cells: Iterable[str]) -> bool:
    values = distinct(cells)
    if not values:
        return False
    n_words = sum(len(value.split()) for value in values) / len(values)
    n_letters = sum(map(len, values)) / len(values)
    return n_words > PROSE_WORDS or n_letters > PROSE_LETTERS


def _is_fraction(cell: str) -> bool:
    return re.fullmatch(r"[+-]?\d*[.,]\d+(e[+-]?\d+)?", cell, re.IGNORECASE) is not None


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?\d+", cell) is not None or _is_fraction(cell)


_DATE = re.compile(r"\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d{2,4}|\d\d?:\d\d(:\d\d)?")


def _labels_in(counts: Counter[str], cut: Mapping[Any, tuple[str, ...]]) -> Counter[str]:
    """Count the labels in cells, which may hold several each."""
    found: Counter[str] = Counter()
    for cell, n in counts.items():
        for label in cut.get(cell, (cell,)):
            found[label] += n
    return found


class _Judged:
    """The columns of a table without its ids, judged one by one and together."""

    def __init__(self, columns: Cells, task: tuple[str, ...]) -> None:
        self.columns, self.task = columns, task
        self.names = [name for name in columns if name not in task]
        cells = {name: Counter(filter(None, columns[name])) for name in self.names}
        own = [counts for name, counts in cells.items() if not kind_of(name)]
        cut = labels_of_sets(sum(own, Counter()))  # Annotators share labels, if not whole sets.
        self.counts = {name: _labels_in(counts, cut) for name, counts in cells.items()}

    # -- one by one -----------------------------------------------------------------------------

    def by_values(self, name: str) -> str:
        """Return why the values of a column cannot be labels; "" if they can."""
        counts = self.counts[name]
        if not counts:
            return "it is empty"
        if all(_DATE.match(value) for value in counts):
            return "it holds times"
        if _is_prose(counts):
            return "it holds texts"
        if len(counts) == sum(counts.values()) > 3 and len(counts) > len(set(self.values(name))):
            return "every row has another value"
        return ""

    def values(self, name: str) -> list[str]:
        """Return the values of a column that another column holds, too."""
        others = [counts for other, counts in self.counts.items() if other != name]
        return [v for v in self.counts[name] if any(v in counts for counts in others)]

    def has_fractions(self, name: str) -> bool:
        return any(map(_is_fraction, self.counts[name]))

    # -- together -------------------------------------------------------------------------------

    def vocabulary(self, names: Iterable[str]) -> set[str]:
        return {value for name in names for value in self.counts[name]}

    def within(self, name: str, vocabulary: set[str]) -> float:
        """Return the share of the cells of a column whose values are in a vocabulary."""
        counts = self.counts[name]
        total = sum(counts.values())
        return sum(n for v, n in counts.items() if v in vocabulary) / total if total else 0.0

    def alike(self, name: str, others: Sequence[str]) -> bool:
        """Return whether a column may hold labels from the vocabulary of others."""
        vocabulary, own = self.vocabulary(others), set(self.counts[name])
        shared = [self.within(other, own) for other in others]
        return self.within(name, vocabulary) >= SHARED and max(shared, default=0) >= SHARED

    def share_vocabulary(self, names: Sequence[str]) -> bool:
        """Return whether each column that is not nearly empty holds values of the others."""
        return all(
            self.counts[name].total() < FEW_CELLS
            or self.within(name, self.vocabulary(n for n in names if n != name)) >= SHARED
            for name in names
        )

    def clusters(self, names: Sequence[str]) -> list[list[str]]:
        """Return groups of columns that share a vocabulary, directly or through others."""
        groups: list[list[str]] = []
        for name in names:
            near = [group for group in groups if any(self.alike(name, [o]) for o in group)]
            groups = [group for group in groups if group not in near]
            groups.append([*(other for group in near for other in group), name])
        return [[name for name in names if name in group] for group in groups]

    def sides_with_majority(self, name: str, others: Sequence[str]) -> int:
        """Number of contested rows if a column is the majority of others wherever there is one."""
        contested = 0
        for row, cell in enumerate(self.columns[name]):
            votes = Counter(filter(None, (self.columns[other][row] for other in others)))
            most = votes.most_common(2)
            if not most or (len(most) > 1 and most[0][1] == most[1][1]):
                continue
            if cell != most[0][0]:
                return 0
            contested += len(most) > 1
        return contested

    # -- the answer -----------------------------------------------------------------------------

    def roles(
        self,
        annotators: Sequence[str] = (),
        pairs: Sequence[tuple[str, str]] = (),
        *,
        why: str = "",
        named: Mapping[str, Any],
    ) -> Roles:
        """Return the roles once the annotators are known, with the reason for each other column."""
        labels = [*annotators, *(label for _, label in pairs)]
        taken = {*labels, *(worker for worker, _ in pairs)}
        vocabulary = self.vocabulary(labels)
        others = {name: self.reason(name, vocabulary) for name in self.names if name not in taken}
        golden = [
            name
            for name in others
            if kind_of(name) == "gold"
            and self.counts[name]
            and self.within(name, vocabulary) >= SHARED
        ]
        if len(golden) == 1:
            del others[golden[0]]
        for name in golden[1:] and golden:
            others[name] = "the names of several columns suggest gold labels"
        gold = golden[0] if len(golden) == 1 else None
        return Roles(self.task, tuple(annotators), tuple(pairs), gold, others, why, dict(named))

    def reason(self, name: str, vocabulary: set[str]) -> str:
        """Return why a column is no annotator."""
        found = self.by_values(name)
        if not self.counts[name]:
            return found
        if kind := kind_of(name):
            return _KINDS[kind][0]
        if found:
            return found
        if self.has_fractions(name):
            return "it holds fractions, as scores and shares do"
        if self.within(name, vocabulary) < SHARED:
            return OTHER_VALUES
        return "it is not among the annotators"

    def recognised(self) -> Roles:
        """Recognise the annotators.

        Raises
        ------
        UnclearColumnsError
            If several groups of columns may be the annotators, or none.
        """
        pairs = self.found_pairs()
        if pairs is not None:
            return pairs
        left = self.possible()
        families = [
            family
            for family in _families(left)
            if self.share_vocabulary(list(family.members.values()))
            or family.says(ANNOTATOR_WORDS | LABEL_WORDS)
        ]
        whole = [f for f in families if not any(map(self.has_fractions, f.members.values()))]
        families = whole or families
        left = [n for n in left if not self.has_fractions(n) or self.is_in(n, families)]
        if len(families) > 1:
            called = [f for f in families if f.says(ANNOTATOR_WORDS)]
            called = called or [f for f in families if f.says(LABEL_WORDS)]
            if len(called) != 1:
                first = list(families[0].members.values())
                raise self.unclear("several groups of columns could be the annotators", first)
            families = called
        if families:
            return self.from_family(families[0], left)
        return self.from_vocabulary(left)

    def possible(self) -> list[str]:
        """Return the columns whose names and values may be those of annotators."""
        return [n for n in self.names if not self.by_values(n) and not self.is_called_other(n)]

    def is_called_other(self, name: str) -> bool:
        """Return whether a name says that a column is no annotator, as "expert" does.

        Properties of items in numbered columns, and ids that repeat, may be something else.
        """
        kind = kind_of(name)
        family = next((f for f in _families(self.names) if self.is_in(name, [f])), None)
        if kind == "gold" and family is not None and "expert" in words_of(name):
            return False
        if kind == "item":
            return family is None
        if kind == "id":
            others = self.vocabulary(other for other in self.names if other != name)
            return _all_differ(self.columns[name]) or self.within(name, others) < SHARED
        return bool(kind)

    @staticmethod
    def is_in(name: str, families: Sequence[_Family]) -> bool:
        return any(name in family.members.values() for family in families)

    def from_family(self, family: _Family, left: Sequence[str]) -> Roles:
        """Return the roles if the annotators are the columns with similar names."""
        members = list(family.members.values())
        if family.says(QUESTION_WORDS) and not family.says(ANNOTATOR_WORDS | LABEL_WORDS):
            raise self.unclear(
                f"the columns {family.pattern!r} may be questions rather than annotators", members
            )
        vocabulary = self.vocabulary(members)
        if len(vocabulary) > FEW and not all(map(_is_number, vocabulary)):
            given = sum(sum(self.counts[name].values()) for name in members)
            if len(vocabulary) > given / 2:
                raise self.unclear(
                    f"the columns {family.pattern!r} hold {len(vocabulary):,} different values, "
                    "which are too many for labels",
                    members,
                )
        outside = [name for name in left if name not in members]
        doubtful = [
            name
            for name in outside
            if self.alike(name, members) and self.sides_with_majority(name, members) < CONTESTED
        ]
        if doubtful:
            raise self.unclear(
                f"{_listed(doubtful)} could be annotators like {_listed(members)}, or something "
                "else, such as gold labels",
                members,
            )
        found = self.roles(
            members,
            why="because their names are alike",
            named={"annotators": brief_names(members, list(self.columns))},
        )
        return self.with_computed(found, [n for n in outside if self.alike(n, members)])

    def are_codes(self, names: Sequence[str]) -> bool:
        """Return whether columns hold codes 0, 1, 2, ...; with few cells these need not recur."""
        found = self.vocabulary(names)
        if len(names) < 2 or not all(value.isdecimal() for value in found):
            return False
        codes = sorted(map(int, found))
        counted = codes[0] in (0, 1) and codes == list(range(codes[0], codes[-1] + 1))
        return counted and all(self.counts[name].total() < FEW_CELLS for name in names)

    def from_vocabulary(self, left: Sequence[str]) -> Roles:
        """Return the roles if the annotators are the columns with the same few values."""
        groups = [group for group in self.clusters(left) if len(group) > 1]
        if not groups and self.are_codes(left):
            groups = [list(left)]
        if not groups:
            only = left if len(left) == 1 else []
            raise self.unclear("no two columns share a small vocabulary, as annotators do", only)
        if len(groups) > 1:
            first = max(groups, key=len)
            raise self.unclear("several groups of columns could be the annotators", first)
        group = groups[0]
        if len(self.vocabulary(group)) > FEW:
            raise self.unclear(
                f"{_listed(group)} hold {len(self.vocabulary(group)):,} different values, which "
                "may not be labels",
                group,
            )
        sided = {
            name: self.sides_with_majority(name, [other for other in group if other != name])
            for name in group
            if len(group) > 2
        }
        computed = [name for name, rows in sided.items() if rows >= CONTESTED]
        if len(computed) == 1:
            group = [name for name in group if name not in computed]
        elif sum(rows > 2 for rows in sided.values()) == 1:
            name = max(sided, key=sided.__getitem__)
            raise self.unclear(
                f"{name!r} may be an annotator, or the majority of the others, which it equals in "
                f"all rows ({sided[name]} of them contested)",
                [other for other in group if other != name],
            )
        called = [name for name in group if set(words_of(name)) & LABEL_WORDS]
        people = [name for name in group if name not in called]
        if called and people:
            raise self.unclear(
                f"{_listed(called)} could be annotators like {_listed(people)}, or the final "
                "labels of the items",
                people,
            )
        if true := [name for name in group if _may_be_truth(name, group)]:
            people = [name for name in group if name not in true]
            raise self.unclear(
                f"{_listed(true)} could be annotators like {_listed(people)}, or something else, "
                "such as gold labels",
                people,
            )
        few = _listed(sorted(self.vocabulary(group)))
        found = self.roles(
            group,
            why=f"because their values are the same few ({few})",
            named={"annotators": brief_names(group, list(self.columns))},
        )
        return self.with_computed(found, computed if len(computed) == 1 else [])

    @staticmethod
    def with_computed(found: Roles, names: Sequence[str]) -> Roles:
        for name in names:
            found.others[name] = "it is the majority of the annotators in every row"
        return found

    def found_pairs(self) -> Roles | None:
        """Return the roles if numbered columns of annotators stand beside numbered labels."""
        families = _families(self.names)
        ids = [
            f
            for f in families
            if f.says(ANNOTATOR_WORDS) and ("id" in f.words or not kind_of(f.pattern))
        ]
        for worker in ids:
            others = [
                f
                for f in families
                if f is not worker
                and f.members.keys() == worker.members.keys()
                and not kind_of(f.pattern)
            ]
            labels = [f for f in others if f.says(LABEL_WORDS)]
            if not labels and "id" in worker.words:
                labels = others
            if not labels or not self.differ_in_rows(list(worker.members.values())):
                continue
            if len(labels) > 1:
                raise self.unclear(
                    f"{worker.pattern!r} names the annotators of each row, and several groups of "
                    "columns could be their labels",
                    [],
                    {"worker": worker.pattern, "label": labels[0].pattern},
                )
            named = {"worker": worker.pattern, "label": labels[0].pattern}
            pairs = paired(named["worker"], named["label"], self.names)
            return self.roles(
                pairs=pairs, why="because each label stands beside its annotator", named=named
            )
        return None

    def differ_in_rows(self, names: Sequence[str]) -> bool:
        """Return whether no value stands twice in a row: an annotator labels an item once."""
        for row in zip(*(self.columns[name] for name in names), strict=True):
            given = [cell for cell in row if cell]
            if len(set(given)) < len(given):
                return False
        return True

    def unclear(
        self, problem: str, guess: Sequence[str], options: Mapping[str, Any] | None = None
    ) -> UnclearColumnsError:
        """Return the error that says what is unclear, with the options that would settle it."""
        if guess and not options:
            options = {"annotators": brief_names(guess, list(self.columns))}
        return UnclearColumnsError(problem, self.columns, options or {})


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN])) + (" ..." if len(names) > SHOWN else "")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:3]))
    return shown + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
