"""Values of options: choices, paths, class names, spellings, families."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import typer

from manyhands.exceptions import AnnotationError, WriteError
from manyhands.files import as_word

TABLES = (".csv", ".tsv", ".xlsx", ".parquet", ".pq", ".gz")
"""How names of tables end."""


class Duplicates(StrEnum):
    """What to do with repeated (task, worker) pairs; auto: last in exports, error in tables."""

    auto = "auto"
    error = "error"
    last = "last"
    keep = "keep"


class Multilabel(StrEnum):
    """What to do with answers of several labels; see `manyhands.io.read_annotations`."""

    error = "error"
    split_ = "split"
    join_ = "join"
    none = "none"


WAYS = tuple(way.value for way in Multilabel)
"""Values of --multilabel that are no separator."""


def some_multilabel(text: str) -> str:
    """Read what to do with answers of several labels: a word, or the separator of sets."""
    if text in WAYS or (text.strip() and not any(c.isalnum() for c in text)):
        return text.strip()
    raise typer.BadParameter(
        f"{text!r} is unknown; use {', '.join(WAYS)}, or what stands between the labels of a cell, "
        "such as ';'"
    )


class Rule(StrEnum):
    """How labels are decided from probabilities; see `manyhands.decide`."""

    argmax = "argmax"
    median = "median"
    balanced = "balanced"
    f1 = "f1"


class Scale(StrEnum):
    """Scale of the classes; see `manyhands.agreement.summary`."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"


class Source(StrEnum):
    """What is named after its annotator; see ``annotator_from`` of `read_export`."""

    file = "file"
    folder = "folder"
    sheet = "sheet"


TABLE = "table"
"""What ``--to`` is unless it names a tool."""


def some_target(name: str) -> str:
    """Read a format that labels and annotations are written in; an unknown name lists all.

    A default value is already one, and asks for no import.
    """
    if name != TABLE:
        from manyhands.io.writers import TARGETS

        if name not in TARGETS:
            raise typer.BadParameter(f"{name!r} is unknown; use {', '.join(TARGETS)}")
    return name


def some_path(text: str | Path) -> Path:
    """Read a path; refuse the empty text of an unset shell variable, which would mean '.'.

    A default value is already a path.
    """
    if not str(text).strip():
        raise typer.BadParameter("the path is empty (a shell variable without a value?)")
    return Path(text)


def refuse_overwriting(outputs: Iterable[Path | None], inputs: Iterable[Path | None]) -> None:
    """Refuse to overwrite files that the command reads, or that a person filled in.

    Raises
    ------
    AnnotationError
        If one of the outputs is one of the inputs.
    WriteError
        If one of the outputs holds what a person wrote; see `manyhands.io.filled`.
    """
    existing = [out for out in outputs if out is not None and out.exists()]
    read = [path for path in inputs if path is not None and path.exists()]
    for out in existing:
        for path in read:
            if out.samefile(path):
                raise AnnotationError(
                    f"--out would write over {str(path)!r}, which this command reads; choose "
                    "another --out"
                )
    for out in existing:
        if out.is_file():
            _refuse_filled(out)


def _refuse_filled(out: Path) -> None:
    from manyhands.io.filled import filled_in

    found = filled_in(out)
    if found is None:
        return
    rows = "1 row is" if found.n == 1 else f"{found.n:,} rows are"
    use = (
        f"To use what was written, give {as_word(out)} as --known"
        if found.are_labels
        else "To use what was written, add it to your annotations"
    )
    raise WriteError(
        errno.EEXIST,
        f"this command would replace {str(out)!r}, in which {rows} filled in by hand "
        f"({found.rows}). Choose another --out. {use}. If nobody needs the file any more, delete "
        "it first",
    )


def read_classes(given: str | Path | None) -> list[str] | None:
    """Read class names in code order: the lines of a file, or a list with commas.

    Blank lines at the end of a file are ignored. A file of that name is preferred to a list.

    Raises
    ------
    AnnotationError
        If the file cannot be read as text, is empty, has a gap, or a name twice.
    """
    if given is None:
        return None
    path = Path(given)
    if "," in str(given) and not path.exists():
        names = [name.strip() for name in str(given).split(",")]
        _check_names(names, f"--classes {str(given)!r}", "name")
        return names
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise AnnotationError(
            f"--classes {str(path)!r} cannot be read ({reason}); give a text file with one class "
            "name per line, or the names with commas between them"
        ) from error
    # splitlines() would also split at rarer characters, which a name may contain.
    names = [line.strip() for line in text.rstrip().split("\n")]
    if names == [""]:
        raise AnnotationError(
            f"--classes {str(path)!r} names no class; write one class name per line, in code order"
        )
    _check_names(names, f"--classes {str(path)!r}", "line")
    return names


def _check_names(names: list[str], argument: str, place: str) -> None:
    """Refuse gaps and repetitions among names of classes."""
    for number, name in enumerate(names, start=1):
        if not name:
            raise AnnotationError(
                f"{argument}: {place} {number} is blank; {place} k names class k-1, so remove it "
                "or name the class"
            )
        if name in names[: number - 1]:
            raise AnnotationError(
                f"{argument}: {place} {number} names {name!r} again; name every class once"
            )


def read_mapping_option(
    path: Path | None, of: Literal["label", "annotator"] = "label"
) -> dict[str, str] | None:
    """Read what labels or names of annotators mean from a table with the columns from and to.

    Raises
    ------
    AnnotationError
        If a column is missing, a cell is empty, or a spelling has two meanings.
    """
    from manyhands.io.label_values import read_mapping

    if path is None:
        return None
    try:
        return read_mapping(path, of)
    except AnnotationError as error:
        option = "--map" if of == "label" else "--map-annotators"
        raise AnnotationError(f"{option} {error}") from error


NO_GROUPS = "none"
"""What --groups says where nobody shares mistakes."""


def read_groups_option(text: str | None) -> str | dict[Any, Any] | None:
    """Read --groups: a column, a table of annotators and their families, or families by name.

    Families are named as ``llm=gpt-4o,claude;people=anna,ben``; "none" says that there are none.

    Returns
    -------
    str, dict {annotator: family}, or None
        As ``group`` of `manyhands.io.read_annotations`.

    Raises
    ------
    AnnotationError
        If a table has other columns, or names an annotator twice.
    """
    if text is not None and "=" in text and not os.path.isfile(text):
        return _named_groups(text)
    if text is None or (text != NO_GROUPS and not Path(text).is_file()):
        if text is not None and Path(text).suffix.lower() in TABLES:
            raise AnnotationError(
                f"--groups {text}: there is no such file; give a table with the columns "
                "'annotator' and 'group', the name of a column of the annotations, or none"
            )
        return text
    if text == NO_GROUPS:
        return {}
    from manyhands.io.frames import read_frame

    frame = read_frame(Path(text))
    who = next((name for name in frame.columns if name.lower() in ("annotator", "worker")), None)
    family = next((name for name in frame.columns if name.lower() in ("group", "family")), None)
    if who is None or family is None:
        raise AnnotationError(
            f"--groups {text}: a table of families has the columns 'annotator' and 'group', and "
            f"this one has {', '.join(map(repr, frame.columns))}"
        )
    names = frame[who].to_list()
    twice = [name for name in names if names.count(name) > 1] if len({*names}) < len(names) else []
    if twice:
        raise AnnotationError(f"--groups {text}: {twice[0]!r} occurs twice; name everybody once")
    return dict(zip(names, frame[family].to_list(), strict=True))


def _named_groups(text: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for part in text.split(";"):
        family, _, members = part.partition("=")
        names = [name.strip() for name in members.split(",")]
        if not family.strip() or not all(names):
            raise AnnotationError(
                f"--groups {text}: {part!r} is not a family with its annotators; write them as "
                "--groups llm=gpt-4o,claude"
            )
        for name in names:
            if name in found:
                raise AnnotationError(f"--groups {text}: {name!r} occurs twice; name it once")
            found[name] = family.strip()
    return found
