"""Interpreting the labels of a file: class values or their codes, passes ("unsure"), spellings.

Several spellings of one class are merged, and a log message names them.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from manyhands.annotations import PASSES
from manyhands.annotations.class_order import numbers_of
from manyhands.annotations.encoding import make_vocabulary, missing_mask, tidy
from manyhands.annotations.passes import pass_kinds, read_marks, warn_of_unused
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io.columns import Frame, canonical, preview, with_column, with_missing
from manyhands.io.files import PathLike, existing_file, naming
from manyhands.io.frames import read_frame
from manyhands.typing import AnyArray

_LOG = logging.getLogger("manyhands")

SHOWN = 8
"""Largest number of spellings that a note names."""


# -- spellings ------------------------------------------------------------------------------------


@dataclass
class Spellings:
    """Map from spellings of labels to the classes that they mean.

    Attributes
    ----------
    meanings : dict
        Spelling of a label, and the class that it means.
    lowercase : bool
        Whether labels, spellings and classes are read in lower case, without spaces around them.
    seen : Counter
        How often each spelling was read as another one, by (spelling, meaning).
    """

    meanings: dict[str, str]
    lowercase: bool
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    n: int = 0

    @classmethod
    def of(cls, mapping: Any, lowercase: bool) -> Spellings | None:
        """Read the arguments ``mapping`` and ``lowercase`` of readers; None if both are unset.

        Raises
        ------
        AnnotationError
            If ``mapping`` is neither a dict nor a path, or ``lowercase`` is no bool; or for the
            reasons of `read_mapping`.
        """
        if not isinstance(lowercase, bool):
            raise AnnotationError(f"lowercase={lowercase!r} is neither True nor False; give one")
        if mapping is None and not lowercase:
            return None
        if mapping is None:
            mapping = {}
        elif isinstance(mapping, str | os.PathLike):
            mapping = read_mapping(mapping)
        elif not isinstance(mapping, Mapping):
            raise AnnotationError(
                f"mapping is a {type(mapping).__name__}; give a dict of spellings and what each "
                "means, such as mapping={'ja': 'yes'}, or a table with the columns from and to"
            )
        made = cls({}, lowercase)
        for spelling, meaning in mapping.items():
            if missing(meaning):
                raise AnnotationError(
                    f"mapping maps {spelling!r} to nothing ({meaning!r}); if this label is not a "
                    f"class, name it in abstain={spelling!r} or skip={spelling!r}"
                )
            spelling, meaning = made._plain(spelling), made._plain(meaning)
            if made.meanings.setdefault(spelling, meaning) != meaning:
                raise AnnotationError(
                    f"mapping gives {spelling!r} two meanings, {made.meanings[spelling]!r} and "
                    f"{meaning!r}; give it one"
                )
        return made

    def _plain(self, value: Any) -> str:
        text = str(value)
        return text.strip().lower() if self.lowercase else text

    def meaning(self, value: Any) -> str:
        """Return the class that a label means."""
        text = self._plain(value)
        return self.meanings.get(text, text)

    def read(self, values: Iterable[Any]) -> list[Any]:
        """Return what labels mean, and count the labels that this changes."""
        return [self.read_counted(value, 1) for value in values]

    def read_label(self, value: str) -> str:
        """Return what a label means, as text, and count it."""
        return str(self.read_counted(value, 1))

    def read_counted(self, value: Any, n: int) -> Any:
        """Return what a label means, which occurs n times, and count it if that differs."""
        meaning, text = self.meaning(value), str(value)
        self.n += n
        self.seen[text, meaning] += n
        return value if meaning == text else meaning

    def read_classes(self, classes: Iterable[Any] | None) -> list[Any] | None:
        """Return the distinct meanings of names of classes, in order."""
        if classes is None:
            return None
        names = [value if self.meaning(value) == str(value) else self.meaning(value)
                 for value in classes]  # fmt: skip
        return list(dict.fromkeys(names))

    def read_marks(self, marks: Any) -> Any:
        """Return the values that mean a pass, as they are spelt after mapping."""
        if marks is None:
            return None
        single = isinstance(marks, str) or not isinstance(marks, Iterable)
        return self.read_classes([marks] if single else marks)

    def report(self) -> None:
        """Log which labels were changed, and warn of spellings that no label has."""
        changed = {pair: n for pair, n in self.seen.items() if pair[0] != pair[1]}
        if changed:
            ordered = sorted(changed.items(), key=lambda pair: -pair[1])
            shown = ", ".join(f"{a!r} as {b!r} ({n:,})" for (a, b), n in ordered[:SHOWN])
            more = f" and {len(ordered) - SHOWN:,} more spellings" * (len(ordered) > SHOWN)
            _LOG.info(
                "%s of %s labels are read as another spelling: %s%s",
                f"{sum(changed.values()):,}", f"{self.n:,}", shown, more,
            )  # fmt: skip
        given = {self._plain(spelling) for spelling, _ in self.seen}
        unused = [spelling for spelling in self.meanings if spelling not in given]
        if unused and self.n:
            warn_caller(
                f"mapping holds {len(unused)} spellings that no label has, and that have no "
                f"effect: {preview(unused)}. The labels are {preview(sorted(given))}"
            )


def read_mapping(path: PathLike, of: Literal["label", "annotator"] = "label") -> dict[str, str]:
    """Read spellings of labels and their meanings from a table with the columns from and to.

    Parameters
    ----------
    path : str or Path
        .csv, .tsv, either with .gz, .parquet or .pq.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If a column is missing, a cell is empty, or a spelling has two meanings.
    """
    path = existing_file(path)
    with naming(path):
        frame = read_frame(path)
        for name in ("from", "to"):
            if name not in frame.columns:
                raise AnnotationError(
                    f"there is no column {name!r}; the columns are "
                    f"{', '.join(map(repr, frame.columns))}. Call them from (the spelling of a"
                    + (
                        " label) and to (the class that it means)"
                        if of == "label"
                        else "n annotator's name) and to (the one name that it means)"
                    )
                )
        found: dict[str, str] = {}
        pairs = zip(frame["from"].to_list(), frame["to"].to_list(), strict=True)
        for row, (spelling, meaning) in enumerate(pairs, start=2):
            if missing(spelling) or missing(meaning):
                raise AnnotationError(
                    f"row {row} has an empty cell; name the spelling and its meaning"
                    + (". For labels that mean no class, use abstain= or skip=" * (of == "label"))
                )
            if found.setdefault(str(spelling), str(meaning)) != str(meaning):
                raise AnnotationError(
                    f"row {row} gives {str(spelling)!r} a second meaning, {str(meaning)!r} after "
                    f"{found[str(spelling)]!r}; give it one"
                )
        return found


def missing(value: Any) -> bool:
    """Return whether a cell holds nothing."""
    return value is None or value != value or not str(value).strip()


def with_meanings(frame: Frame, column: str, spellings: Spellings) -> Frame:
    """Replace the labels of a frame by what they mean; whole numbers stay numbers."""
    import numpy as np

    if column not in frame.columns:
        return frame
    raw = np.array(frame[column].to_list(), dtype=object)
    gaps = missing_mask(raw)
    given = raw[~gaps]
    numbers = frame[column].dtype.is_numeric()
    texts = [str(int(v)) if isinstance(v, float) and v.is_integer() else v for v in given.tolist()]
    values = np.array([str(v) for v in spellings.read(texts)], dtype=str)
    if numbers:
        values = canonical(values)
    return with_column(frame, column, with_missing(values, gaps))


# -- class values, codes, passes ------------------------------------------------------------------


def label_values(
    frame: Frame, column: str, classes: Any
) -> tuple[Frame, AnyArray | None, AnyArray | None]:
    """Decide whether labels are class values, or codes into the names in ``classes``.

    Returns
    -------
    frame : with labels converted to text if their text is a class name
    values : the ``classes`` argument for ``AnnotationTable.from_frame``
    names : the names that codes stand for, or None
    """
    if classes is None:
        return frame, None, None
    names = make_vocabulary(classes, "classes")
    if names.dtype.kind not in "UT" or column not in frame.columns:
        return frame, names, None
    raw = frame[column].to_numpy()
    labels = tidy(raw[~missing_mask(raw)], f"column {column!r}")
    if labels.dtype.kind in "UT" or not len(labels):
        return frame, names, None
    named = np.isin(np.unique(labels).astype(str), names)
    # If names are numbers themselves, labels are those names; an unknown label is a slip.
    if named.all() or (named.any() and numbers_of(names) is not None):
        return (
            with_column(frame, column, with_missing(labels.astype(str), missing_mask(raw))),
            names,
            None,
        )
    check_codes(labels, names)
    return frame, np.arange(len(names)), names


def check_codes(labels: AnyArray, names: AnyArray) -> None:
    """Raise an error for codes that do not stand for any of the names."""
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    outside = np.unique(labels[(labels < 0) | (labels >= len(names))])
    if len(outside):
        raise AnnotationError(
            "labels are integers and classes are names, so labels must be codes "
            f"0..{len(names) - 1}, but some are {preview(outside)}. Count codes from 0, or name "
            f"all classes (given: {preview(names)})"
        )


def written_marks(abstain: Any, skip: Any, classes: Any) -> dict[str, int]:
    """Map the text of each value that means a pass to its kind."""
    texts = [[str(value) for value in values] for values in by_kind(read_marks(abstain, skip))]
    names = None if classes is None else make_vocabulary(classes, "classes").astype(str)
    return read_marks(texts[0], texts[1], names)


def by_kind(marks: dict[Any, int]) -> list[list[Any]]:
    """List the values of each kind of pass, in the order of `PASSES`."""
    return [[value for value in marks if marks[value] == k] for k in range(len(PASSES))]


def integer_marks(marks: dict[str, int]) -> dict[int, int]:
    """Convert values whose text is an integer to integers."""
    values = {text: canonical(np.array([text])) for text in marks}
    return {int(v[0]): marks[text] for text, v in values.items() if v.dtype.kind == "i"}


def with_passes(frame: Frame, names: dict[str, str], marks: dict[str, int]) -> Frame:
    """Move labels that mean a pass into the column of passes, which is created if necessary."""
    used = {name for argument, name in names.items() if argument in ("label", "passes")}
    if not marks or not used <= set(frame.columns):
        return frame
    written: dict[Any, str] = {text: text for text in marks}
    for value in integer_marks(marks):
        # In a column of labels, "3.0" is read as 3.
        written |= {value: str(value), f"{value}.0": str(value)}
    forms = {form: marks[text] for form, text in written.items()}
    labels = np.array(frame[names["label"]].to_list(), dtype=object)
    warn_of_unused(marks, written, labels, f"column {names['label']!r}")
    passes = np.full(len(labels), None)
    if "passes" in names:
        passes = np.array(frame[names["passes"]].to_list(), dtype=object)
    kinds = pass_kinds(labels, forms)
    moved = (kinds >= 0) & missing_mask(passes)
    if not moved.any():
        return frame
    labels[moved], passes[moved] = None, np.array(PASSES, dtype=object)[kinds[moved]]
    # A name that is not in use, because it is longer than every other.
    column = names.setdefault("passes", " ".join(names.values()))
    return with_column(with_column(frame, names["label"], labels), column, passes)
