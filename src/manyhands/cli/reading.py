"""The options of reading annotations.

They are one group, so that every command that takes annotations has all of them, with the same
words.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Optional, get_type_hints

import typer

from manyhands.cli.option_groups import option_name
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

    task: Annotated[
        str,
        typer.Option(
            help="Column with the instance's id, or several columns that identify it together, "
            "such as system,doc,seg.",
        ),
    ] = "task"
    worker: Annotated[str, typer.Option(help="Column with the annotator's id.")] = "worker"
    label: Annotated[
        str,
        typer.Option(
            help="Column with the annotation; with --multilabel ';' also the columns of 0 and 1, "
            "one for each option, such as joy,fear,awe.",
        ),
    ] = "label"
    annotators: Annotated[
        OptionalText,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of a wide table (one row per instance) that hold the annotators' "
            "answers: a1,a2 or 'worker_*'. Default: recognised by their values.",
        ),
    ] = None
    duplicates: Annotated[
        Duplicates,
        typer.Option(
            help="What to do if an annotator answered twice for the same task. auto keeps the "
            "last answer in exports, and refuses tables."
        ),
    ] = Duplicates.auto
    scale: Annotated[
        OptionalScale,
        typer.Option(
            help="What the labels are: nominal (names), ordinal (grades in order) or interval "
            "(numbers). By default the labels decide; where they leave it open, the "
            "command asks.",
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
            metavar="FILE|A,B,...",
            help="All classes in order, the lowest first: a list with commas, or a text file "
            "with one class per line.",
        ),
    ] = None
    map: Annotated[
        OptionalPath,
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help="Table with the columns from,to, which says what each spelling of a label means.",
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
            help="Table with the columns from,to: the name in 'to' replaces each spelling of it in "
            "'from'.",
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
            metavar="VALUE", help="Label that means 'I passed this one on'. May be repeated."
        ),
    ] = None
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Format of the annotations, such as long, wide or label-studio. auto "
            "recognises it by the content.",
        ),
    ] = "auto"
    question: Annotated[
        OptionalText,
        typer.Option(metavar="NAME", help="The question to read, if an export holds several."),
    ] = None
    multilabel: Annotated[
        str,
        typer.Option(
            parser=some_multilabel,
            metavar="SEPARATOR|split|join|none",
            show_default=False,
            help="How to read answers of several labels, such as 'policy;safety' or one row per "
            "ticked label. ';' (the character between the labels) keeps them as sets. "
            "split asks whether one label was ticked, which --option names. join makes "
            "each set one class. none makes each text one class. Default: the command stops at "
            "such answers, and lists these choices.",
        ),
    ] = Multilabel.error.value
    nothing: Annotated[
        OptionalTexts,
        typer.Option(
            "--none",
            metavar="VALUE",
            help="With --multilabel ';', the value which says that nothing was ticked, such as "
            "NONE; 'empty' stands for empty cells. Repeat the option for several: --none NONE "
            "--none empty.",
        ),
    ] = None
    option: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="With --multilabel split, the label to ask about: was it ticked or not?",
        ),
    ] = None
    encoding: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="Encoding of tables that are not UTF-8, such as cp1252. Default: recognised by "
            "the content.",
        ),
    ] = None
    separator: Annotated[
        OptionalText,
        typer.Option(
            metavar="CHARACTER",
            help="Character between the cells of a table, such as ';' or tab. Default: "
            "recognised by the content.",
        ),
    ] = None
    sheet: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="Sheet of a workbook that holds the annotations, if several sheets hold data.",
        ),
    ] = None
    annotator_from: Annotated[
        OptionalSource,
        typer.Option(
            "--annotator-from",
            help="Take the annotators' names from the names of files, folders or sheets, each "
            "of which holds one annotator's work. Tables then need no column of annotators.",
        ),
    ] = None
    read: Annotated[
        OptionalTexts,
        typer.Option(
            "--read",
            metavar="NAME=VALUE",
            help="Set a further option of reading exports, such as anonymise=true. May be "
            "repeated.",
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
            metavar="COLUMN|FILE|FAMILY=NAMES|none",
            help=(
                "Families of annotators who share mistakes. Give a column of a long table, a "
                "table with the columns annotator,group, or names such as llm=gpt-4o,claude. "
                "none says that there are no families."
            ),
        ),
    ] = None
    people: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAMES|VALUE|FILE",
            help=(
                "The annotators who are people, if others are models. People belong to no "
                "family. Give names with commas, a value of the column that --groups names, or a "
                "file with people's labels, which is then read, too."
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
    left = {*leave, "known", "out"}
    return {
        "name": name,
        "annotations": words_of(tables),
        "reading": as_arguments(reading, {}),
        "known": [word for path in words_of(known) for word in ("--known", path)],
        "options": [word for group in groups for word in as_arguments(group, {}, left)],
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
