"""The options of reading annotations.

They are one group, so that every command that takes annotations has all of them, with the same
words.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Optional, get_type_hints

import typer

from manyhands.annotations.scales import read_scale
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

OptionalText = Optional[str]  # noqa: UP045 - typer reads these at run time

OptionalPath = Optional[Path]  # noqa: UP045

OptionalTexts = Optional[list[str]]  # noqa: UP045

OptionalSource = Optional[Source]  # noqa: UP045

OptionalScale = Optional[Scale]  # noqa: UP045


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How annotations are read."""

    task: Annotated[
        str,
        typer.Option(
            help="Column with the instance's id, or several, such as system,doc,seg.",
        ),
    ] = "task"
    worker: Annotated[str, typer.Option(help="Column with the annotator's id.")] = "worker"
    label: Annotated[str, typer.Option(help="Column with the annotation.")] = "label"
    annotators: Annotated[
        OptionalText,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of a wide table (one row per instance) that are annotators: a1,a2 or "
            "'worker_*'; default: recognised.",
        ),
    ] = None
    duplicates: Annotated[
        Duplicates,
        typer.Option(
            help="What to do with repeated (task, worker) pairs; auto: the last counts in exports, "
            "and tables are refused."
        ),
    ] = Duplicates.auto
    scale: Annotated[
        OptionalScale,
        typer.Option(
            help="What the labels are: nominal (names), ordinal (grades in order) or interval "
            "(numbers). Default: as the labels look; asked for where that cannot be told.",
        ),
    ] = None
    ordered: Annotated[
        bool,
        typer.Option("--ordered", help="The labels are grades in order: as --scale ordinal."),
    ] = False
    classes: Annotated[
        OptionalText,
        typer.Option(
            metavar="FILE|A,B,...",
            help="All classes in order, the lowest first: a text file with one per line, or a "
            "list with commas.",
        ),
    ] = None
    map: Annotated[
        OptionalPath,
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help="Table with the columns from,to: spellings of labels, and what each means.",
        ),
    ] = None
    lowercase: Annotated[
        bool,
        typer.Option(
            "--lowercase",
            help="Read labels in lower case and without spaces around them: ' Yes' is 'yes'.",
        ),
    ] = False
    map_annotators: Annotated[
        OptionalPath,
        typer.Option(
            "--map-annotators",
            parser=some_path,
            metavar="FILE",
            help="Table with the columns from,to: names of annotators, and the one that each "
            "means.",
        ),
    ] = None
    abstain: Annotated[
        OptionalTexts,
        typer.Option(
            metavar="VALUE", help="Label that means 'looked and could not tell'; repeatable."
        ),
    ] = None
    skip: Annotated[
        OptionalTexts,
        typer.Option(metavar="VALUE", help="Label that means 'passed on'; repeatable."),
    ] = None
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Format of the annotations, such as long, wide or label-studio; auto: by content.",
        ),
    ] = "auto"
    question: Annotated[
        OptionalText,
        typer.Option(metavar="NAME", help="The question to take, if an export holds several."),
    ] = None
    multilabel: Annotated[
        str,
        typer.Option(
            parser=some_multilabel,
            metavar="SEPARATOR|split|join|none",
            help="Answers of several labels, such as 'policy;safety' or a row per ticked label: "
            "';' (what stands between them): keep them as sets; split: ask whether --option was "
            "ticked; join: each set is one class; none: each text is one class.",
        ),
    ] = Multilabel.error.value
    nothing: Annotated[
        OptionalTexts,
        typer.Option(
            "--none",
            metavar="VALUE",
            help="With --multilabel ';': what says that nothing was ticked: empty, for empty "
            "cells, or a value such as NONE; repeatable.",
        ),
    ] = None
    option: Annotated[
        OptionalText,
        typer.Option(metavar="NAME", help="With --multilabel split: the label, yes or no."),
    ] = None
    encoding: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="Encoding of tables that are not UTF-8, such as cp1252; otherwise it is told from "
            "their bytes.",
        ),
    ] = None
    separator: Annotated[
        OptionalText,
        typer.Option(
            metavar="CHARACTER",
            help="What separates the cells of tables, such as ';' or tab; otherwise it is told "
            "from their rows.",
        ),
    ] = None
    sheet: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAME",
            help="Sheet of a workbook with the annotations, if several hold data.",
        ),
    ] = None
    annotator_from: Annotated[
        OptionalSource,
        typer.Option(
            "--annotator-from",
            help="Every file, folder or sheet holds one annotator's work, whose name it is; tables "
            "then need no column of annotators.",
        ),
    ] = None
    read: Annotated[
        OptionalTexts,
        typer.Option(
            "--read",
            metavar="NAME=VALUE",
            help="Further option of reading exports, such as anonymise=true; repeatable.",
        ),
    ] = None

    @property
    def files(self) -> list[Path]:
        """Files that are read beside the annotations."""
        classes = None if self.classes is None else Path(self.classes)
        named = [classes, self.map, self.map_annotators]
        return [path for path in named if path is not None]

    def _scale(self) -> Any:
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
                raise AnnotationError(
                    f"{name}= is not for sets of labels (--multilabel {self.multilabel!r}); leave "
                    "it out"
                )
        if found.get("people") is not None:
            raise AnnotationError("people= is not for sets of labels; name families in groups=")
        return found | {"multilabel": self.multilabel, "none": self.nothing}

    def arguments(self) -> dict[str, Any]:
        """Those of `manyhands.io.read_annotations`."""
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
            help="Families of annotators who share mistakes: a column of a long table, a table "
            "annotator,group, names such as llm=gpt-4o,claude, or none if nobody does.",
        ),
    ] = None
    people: Annotated[
        OptionalText,
        typer.Option(
            metavar="NAMES|VALUE|FILE",
            help="Who is a person beside models, and so in no family: names with commas, a value "
            "of the column --groups, or a file with their labels, who join.",
        ),
    ] = None

    @property
    def files(self) -> list[Path]:
        """Files that are read beside the annotations."""
        given = [text for text in (self.groups, self.people) if text is not None]
        return [*super().files, *(Path(text) for text in given if os.path.isfile(text))]

    def arguments(self) -> dict[str, Any]:
        """Those of `manyhands.io.read_annotations`."""
        found = super().arguments() | {"group": read_groups_option(self.groups)}
        return found if self.people is None else found | {"people": self.people}


def as_arguments(reading: Reading, found: Mapping[str, Any]) -> list[str]:
    """Write a reading as options and their values: what was given, else what was found.

    Parameters
    ----------
    reading : Reading
        Every field is an option; those at their defaults are not written, unless found.
    found : dict {field: value}
        See `manyhands.io.exports.records.Export.reading`.
    """
    hints = get_type_hints(type(reading), include_extras=True)
    words: list[str] = []
    for field in fields(reading):
        value = getattr(reading, field.name)
        if value == field.default:
            value = _as_text(found.get(field.name, field.default))
        if value == field.default:
            continue
        option = option_name(field.name, hints[field.name])
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [option] if each is True else [option, str(getattr(each, "value", each))]
    return words


def _as_text(value: Any) -> Any:
    """Columns as one text; a comma within a name becomes a pattern that fits it."""
    if not isinstance(value, list | tuple):
        return value
    names = [str(name) for name in value]
    return names[0] if len(names) == 1 else ",".join(name.replace(",", "?") for name in names)
