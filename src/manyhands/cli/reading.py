"""The options of reading annotations.

They are one group, so that every command that takes annotations has all of them, with the same
words.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Optional, get_type_hints

import typer

from manyhands.cli.option_names import option_name
from manyhands.cli.settings import reading_options
from manyhands.cli.values import (
    WAYS,
    Duplicates,
    Multilabel,
    Scale,
    Source,
    read_classes,
    read_groups_option,
    read_mapping_option,
    some_multilabel,
    some_path,
)
from manyhands.exceptions import AnnotationError
from manyhands.files import as_word

OptionalText = Optional[str]  # noqa: UP045 - typer reads these at run time

OptionalPath = Optional[Path]  # noqa: UP045

OptionalTexts = Optional[list[str]]  # noqa: UP045

OptionalSource = Optional[Source]  # noqa: UP045

OptionalScale = Optional[Scale]  # noqa: UP045


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How annotations are read."""

    panel: ClassVar[str] = "How the annotations are read"
    rare_panel: ClassVar[str] = "Reading annotations: options that are rarely needed"
    rare: ClassVar[tuple[str, ...]] = (
        *("map", "lowercase", "map_annotators", "abstain", "skip", "format", "question"),
        *("nothing", "option", "encoding", "separator", "sheet", "annotator_from", "read"),
        *("duplicates", "people"),
    )
    """Options that most tables do without."""

    task: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Column with the item's id in the annotations and in files of known labels or "
            "texts. In files that manyhands writes, it is called 'task'. If several columns "
            "together identify an item, name them all, such as system,doc,seg.",
        ),
    ] = "task"
    worker: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column with the annotator's id.")
    ] = "worker"
    label: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Column with the label. With --multilabel ';', the table may have a column of 0s "
            "and 1s for each possible label instead; name these columns, such as joy,fear,awe.",
        ),
    ] = "label"
    annotators: Annotated[
        OptionalText,
        typer.Option(
            metavar="COLUMNS",
            help="Columns with the annotators' answers, such as a1,a2 or 'worker_*', if the table "
            "has one row per item. By default these columns are recognised from their values.",
        ),
    ] = None
    duplicates: Annotated[
        Duplicates,
        typer.Option(
            metavar="POLICY",
            help="What to do if an annotator labelled the same item twice. 'error': "
            "stop. 'last': keep the last answer. 'keep': keep both. 'auto': 'last' for exports and "
            "'error' for tables.",
        ),
    ] = Duplicates.auto
    scale: Annotated[
        OptionalScale,
        typer.Option(
            metavar="SCALE",
            help="What the labels are: nominal (names), ordinal (grades in order) or interval "
            "(numbers). By default, this is inferred from the labels. If more than one is "
            "possible, the command stops and tells you to set this option.",
        ),
    ] = None
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered", help="The labels are grades in order; the same as --scale ordinal."
        ),
    ] = False
    classes: Annotated[
        OptionalText,
        typer.Option(
            metavar="CLASSES",
            help="All classes; grades from the lowest to the highest. Give the names separated by "
            "commas, or a text file with one class per line.",
        ),
    ] = None
    map: Annotated[
        OptionalPath,
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help=(
                "Spellings of labels: a table with the columns from,to. The label in 'from' is "
                "read as the label in 'to'."
            ),
        ),
    ] = None
    lowercase: Annotated[
        bool,
        typer.Option(
            "--lowercase",
            help="Ignore capitals and surrounding spaces in labels: ' Yes' is read as 'yes'.",
        ),
    ] = False
    map_annotators: Annotated[
        OptionalPath,
        typer.Option(
            "--map-annotators",
            parser=some_path,
            metavar="FILE",
            help="Spellings of annotators' names: a table with the columns from,to. The name in "
            "'from' is read as the name in 'to'.",
        ),
    ] = None
    abstain: Annotated[
        OptionalTexts,
        typer.Option(
            metavar="VALUE", help="Label that means 'I looked and could not tell'. May be repeated."
        ),
    ] = None
    skip: Annotated[
        OptionalTexts,
        typer.Option(
            metavar="VALUE", help="Label that means 'I skipped this one'. May be repeated."
        ),
    ] = None
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Format of the annotations, such as long, wide or label-studio. 'auto' "
            "recognises the format from the content.",
        ),
    ] = "auto"
    question: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="Which question to read, if an export holds several. In a table with one row "
            "per annotation, it names the column of labels, as --label does.",
        ),
    ] = None
    multilabel: Annotated[
        str,
        typer.Option(
            parser=some_multilabel,
            metavar="HOW",
            show_default=False,
            help="How to read answers with several labels. Give the character between the labels, "
            "such as ';', to keep each answer as a set of labels. 'split': look at one label alone "
            "(--option), and read each answer as ticked or not ticked. 'join': each set is one "
            "class, so that a;b equals b;a. 'none': each spelling is a class, so that a;b differs "
            "from b;a.",
        ),
    ] = Multilabel.error.value
    nothing: Annotated[
        OptionalTexts,
        typer.Option(
            "--none",
            metavar="VALUE",
            help="With --multilabel ';', the value that means 'nothing was ticked', such as "
            "NONE; 'empty' stands for an empty cell. Repeat the option for several values: "
            "--none NONE --none empty.",
        ),
    ] = None
    option: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="With --multilabel split, the label to read as ticked or not ticked.",
        ),
    ] = None
    encoding: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="Encoding of tables that are not UTF-8, such as cp1252. By default it is "
            "recognised from the content.",
        ),
    ] = None
    separator: Annotated[
        OptionalText,
        typer.Option(
            metavar="CHARACTER",
            help="Character between the cells of a table, such as ';' or tab. By default it is "
            "recognised from the content.",
        ),
    ] = None
    sheet: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="Sheet with the annotations, if several sheets of the workbook hold data.",
        ),
    ] = None
    annotator_from: Annotated[
        OptionalSource,
        typer.Option(
            "--annotator-from",
            metavar="SOURCE",
            help="'file', 'folder' or 'sheet': every file (folder, sheet) holds the annotations of "
            "one annotator and has that annotator's name. The tables then need no column of "
            "annotators.",
        ),
    ] = None
    read: Annotated[
        OptionalTexts,
        typer.Option(
            "--read",
            metavar="NAME=VALUE",
            help="Set another option for reading exports, such as anonymise=true. May be repeated.",
        ),
    ] = None

    @property
    def files(self) -> list[Path]:
        """Files that are read beside the annotations."""
        classes = None if self.classes is None else Path(self.classes)
        named = [classes, self.map, self.map_annotators]
        return [path for path in named if path is not None]

    def _scale(self) -> Any:
        from manyhands.annotations.scales import read_scale

        stated = None if self.scale is None else self.scale.value
        return read_scale(stated, True if self.ordered else None)

    @property
    def takes_sets(self) -> bool:
        """Whether answers are read as sets of labels."""
        return self.multilabel not in WAYS

    def of_sets(self) -> dict[str, Any]:
        """Return the arguments of `manyhands.io.read_label_sets`."""
        found = replace(self, multilabel=Multilabel.error.value, nothing=None).arguments()
        for name in ("scale", "mapping", "lowercase", "annotator_mapping", "option", "annotators"):
            if found.pop(name, None):
                option = {"mapping": "--map", "annotator_mapping": "--map-annotators"}.get(name)
                raise AnnotationError(
                    f"{option or f'--{name}'} is not for sets of labels (--multilabel "
                    f"{self.multilabel!r}); leave it out"
                )
        if found.get("people") is not None:
            raise AnnotationError("--people is not for sets of labels; name families with --groups")
        return found | {"multilabel": self.multilabel, "none": self.nothing}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `manyhands.io.read_annotations`."""
        if self.takes_sets:
            raise AnnotationError(
                f"--multilabel {self.multilabel!r} reads answers as sets of labels, which "
                "describe, agreement, aggregate, fit, review, report, explore and convert take; "
                "here, take one option (--multilabel split --option NAME), or make each set one "
                "class (--multilabel join)"
            )
        if self.nothing:
            raise AnnotationError(
                f"--none {self.nothing[0]} is for sets of labels; give --multilabel ';', too, or "
                "leave it out"
            )
        found = reading_options(self.read or []) | {
            "format": self.format,
            "question": self.question,
            "task": self.task,
            "worker": self.worker,
            "label": self.label,
            "annotators": self.annotators,
            "duplicates": self.duplicates.value,
            "scale": self._scale(),
            "classes": read_classes(self.classes),
            "mapping": read_mapping_option(self.map),
            "lowercase": self.lowercase,
            "annotator_mapping": read_mapping_option(self.map_annotators, "annotator"),
            "abstain": self.abstain,
            "skip": self.skip,
            "multilabel": self.multilabel,
            "option": self.option,
            "encoding": self.encoding,
            "separator": self.separator,
            "sheet": self.sheet,
        }
        if self.annotator_from is not None:
            found["annotator_from"] = self.annotator_from.value
        return found


@dataclass(frozen=True, kw_only=True)
class FamilyReading(Reading):
    """How annotations are read by a command that learns from them."""

    groups: Annotated[
        OptionalText,
        typer.Option(
            metavar="FAMILIES",
            help=(
                "Families: groups of annotators who share mistakes, such as models from one "
                "provider. Name a column of the annotations, give a table with the columns "
                "annotator,group, or list names, such as llm=gpt-4o,claude. 'none': there are no "
                "families."
            ),
        ),
    ] = None
    people: Annotated[
        OptionalText,
        typer.Option(
            metavar="PEOPLE",
            help=(
                "Which annotators are people, if others are models: names separated by commas, "
                "or a file with people's labels, which is read together with the other "
                "annotations. If --groups names a column, you can instead give the value in "
                "it that marks people, such as human. People count as independent of each other."
            ),
        ),
    ] = None

    @property
    def files(self) -> list[Path]:
        """Files that are read beside the annotations."""
        given = [text for text in (self.groups, self.people) if text is not None]
        return [*super().files, *(Path(text) for text in given if os.path.isfile(text))]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `manyhands.io.read_annotations`."""
        found = super().arguments() | {"group": read_groups_option(self.groups)}
        return found if self.people is None else found | {"people": self.people}


def as_arguments(reading: Any, found: Mapping[str, Any], leave: Collection[str] = ()) -> list[str]:
    """Write a reading as options and their values: what was given, else what was found.

    Parameters
    ----------
    reading : Reading, or another dataclass of options
        Every field is an option; those at their defaults are not written, unless found.
    found : dict {field: value}
        See `manyhands.io.exports.records.Export.reading`.
    leave : collection of str
        Fields that are not written.
    """
    hints = get_type_hints(type(reading), include_extras=True)
    words: list[str] = []
    for field in fields(reading):
        value = getattr(reading, field.name)
        if field.name in leave:
            continue
        if value == field.default:
            value = _as_text(found.get(field.name, field.default))
        if value == field.default:
            continue
        option = option_name(field.name, hints[field.name])
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [option] if each is True else [option, str(getattr(each, "value", each))]
    return words


run_files: ContextVar[Mapping[str, Any] | None] = ContextVar("run_files", default=None)
"""What the running command was given, for commands that it prints: `manyhands.report.commands`."""


def remember_files(name: str, given: Mapping[str, Any]) -> None:
    """Keep what a command was given as `run_files`; ``given`` are its arguments by name."""
    tables = given.get("tables") or given.get("annotations")
    reading = given.get("reading")
    groups = [value for value in given.values() if is_dataclass(value) and value is not reading]
    files: dict[str, Any] = {"name": name}
    if isinstance(tables, list) and isinstance(reading, Reading):
        alone = SimpleNamespace(known=given.get("known"), gold=given.get("gold"))
        leave = ("continue_", "compare", "restart")
        files = files_of(name, tables, reading, *groups, leave=leave)
        own = files_of(name, tables, reading, alone)
        files |= {key: files[key] or own[key] for key in ("known", "gold")}
        if any((path / "model.json").is_file() for path in tables):
            files = {"name": name}  # No command takes the folder of a model for annotations.
    run_files.set(files)


def files_of(
    name: str, tables: Iterable[Path], reading: Reading, *groups: Any, leave: Collection[str] = ()
) -> dict[str, Any]:
    """Return the words that the commands in a report need; see `manyhands.report.commands`.

    Parameters
    ----------
    name : str
        Of the command that writes the report.
    tables : iterable of Path
        Files of the annotations.
    reading : Reading
        How they were read.
    *groups : dataclass
        The other options of the command.
    leave : collection of str
        Fields of these that a later command does not repeat.
    """
    known = [path for group in groups for path in getattr(group, "known", None) or ()]
    gold = [path for group in groups for path in [getattr(group, "gold", None)] if path is not None]
    left = {*leave, "known", "out"}
    return {
        "name": name,
        "annotations": words_of(tables),
        "reading": as_arguments(reading, {}),
        "known": [word for path in words_of(known) for word in ("--known", path)],
        "gold": [word for path in words_of(gold) for word in ("--gold", path)],
        "options": [
            word
            for group in groups
            if is_dataclass(group)
            for word in as_arguments(group, {}, left)
        ],
    }


def words_of(paths: Iterable[Path]) -> list[str]:
    """Write paths as arguments of a command."""
    return [as_word(path) for path in paths]


def command_of(
    name: str,
    tables: Iterable[Path],
    reading: Reading,
    *more: str,
    found: Mapping[str, Any] | None = None,
) -> str:
    """Write a command that reads the same answers in the same way, to be pasted into a shell.

    Parameters
    ----------
    name : str
        Of the command, such as "review".
    tables : iterable of Path
        Files of the answers.
    reading : Reading
        How they were read.
    *more : str
        Further words, such as "--out", "labels".
    found : dict {field: value}, optional
        See `as_arguments`.
    """
    words = ["manyhands", name, *words_of(tables), *as_arguments(reading, found or {}), *more]
    return shlex.join(words)


def _as_text(value: Any) -> Any:
    """Return columns as one text; a comma within a name becomes a pattern that fits it."""
    if not isinstance(value, list | tuple):
        return value
    names = [str(name) for name in value]
    return names[0] if len(names) == 1 else ",".join(name.replace(",", "?") for name in names)
