"""Groups of options: a dataclass stands for its options in a command's signature.

The options of reading annotations are such a group, so that every command that takes annotations
has all of them, with the same words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar, get_type_hints

import typer

from manyhands.cli.params import (
    Duplicates,
    Multilabel,
    Scale,
    read_classes,
    read_mapping_option,
    reading_options,
    some_path,
)

T = TypeVar("T")

OptionalText = Optional[str]  # noqa: UP045 - typer reads these at run time
OptionalPath = Optional[Path]  # noqa: UP045
OptionalTexts = Optional[list[str]]  # noqa: UP045
OptionalScale = Optional[Scale]  # noqa: UP045


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How annotations are read."""

    task: Annotated[str, typer.Option(help="Column with the instance's id.")] = "task"
    worker: Annotated[str, typer.Option(help="Column with the annotator's id.")] = "worker"
    label: Annotated[str, typer.Option(help="Column with the annotation.")] = "label"
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
            "(numbers). Asked for where labels are many numbers, fractions or free text.",
        ),
    ] = None
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
        Multilabel,
        typer.Option(
            help="Answers of several labels, such as 'policy;safety' or a row per ticked label: "
            "split: ask whether --option was ticked; join: each set is one class; none: each text "
            "is one class.",
        ),
    ] = Multilabel.error
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
    read: Annotated[
        OptionalTexts,
        typer.Option(
            "--read",
            metavar="NAME=VALUE",
            help="Further option of reading exports, such as anonymise=true or "
            "annotator_from=file; repeatable.",
        ),
    ] = None

    @property
    def files(self) -> list[Path]:
        """Files that are read beside the annotations."""
        named = [None if self.classes is None else Path(self.classes), self.map]
        return [path for path in named if path is not None]

    def arguments(self) -> dict[str, Any]:
        """Those of `manyhands.io.read_annotations`."""
        return reading_options(self.read or []) | {
            "format": self.format,
            "question": self.question,
            "task": self.task,
            "worker": self.worker,
            "label": self.label,
            "duplicates": self.duplicates.value,
            "scale": None if self.scale is None else self.scale.value,
            "classes": read_classes(self.classes),
            "mapping": read_mapping_option(self.map),
            "lowercase": self.lowercase,
            "abstain": self.abstain,
            "skip": self.skip,
            "multilabel": self.multilabel.value,
            "option": self.option,
            "encoding": self.encoding,
            "separator": self.separator,
            "sheet": self.sheet,
        }


@dataclass(frozen=True, kw_only=True)
class FamilyReading(Reading):
    """How annotations are read by a command that learns from them."""

    groups: Annotated[
        OptionalText,
        typer.Option(
            metavar="COLUMN",
            help="Column with the annotator's family, if any: annotators who share mistakes.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Those of `manyhands.io.read_annotations`."""
        return super().arguments() | {"group": self.groups}


def grouped(command: Callable[..., T]) -> Callable[..., T]:
    """Show the fields of parameters that are dataclasses as options of the command."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }

    @functools.wraps(command)
    def wrapper(**given: Any) -> T:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return command(**given)

    shown: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        shown += _options(groups[name]) if name in groups else [parameter]
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
    wrapper.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return wrapper


def _options(kind: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=hints[field.name],
        )
