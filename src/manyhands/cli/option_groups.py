"""Groups of options: a dataclass stands for its options in a command's signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from typer.models import OptionInfo

from manyhands.cli.inputs import refuse_absent
from manyhands.cli.reading import remember_files

T = TypeVar("T")

READ = ("FILE", "TABLE...", "X")
"""What stands for a file that is read, in the help of its option."""


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
        files = _files_in(given, wrapper.__signature__)  # type: ignore[attr-defined]
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        refuse_absent(files)
        remember_files(command.__name__.strip("_"), given)
        return command(**given)

    shown: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        shown += _options(groups[name]) if name in groups else [parameter]
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
    wrapper.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return wrapper


def _files_in(given: dict[str, Any], signature: inspect.Signature) -> list[Path]:
    """Return the files that a command is to read, those of the annotations first."""
    found: list[Path] = []
    for name, parameter in signature.parameters.items():
        notes = get_args(parameter.annotation)[1:]
        if name == "out" or not any(getattr(note, "metavar", "") in READ for note in notes):
            continue
        values = given[name] if isinstance(given[name], list) else [given[name]]
        paths = [path for path in values if isinstance(path, Path) and str(path) != "none"]
        found = [*paths, *found] if name in ("tables", "annotations") else [*found, *paths]
    return found


def _options(kind: Any) -> Iterator[inspect.Parameter]:
    """Yield the options of a group; help shows those of one with a ``panel`` apart, under it.

    Fields that a group names as ``rare`` follow under the heading ``rare_panel``.
    """
    hints = get_type_hints(kind, include_extras=True)
    panel, rare = getattr(kind, "panel", None), getattr(kind, "rare", ())
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=_in_panel(
                hints[field.name], kind.rare_panel if field.name in rare else panel
            ),
        )


def _in_panel(hint: Any, panel: str | None) -> Any:
    """Return an option's annotation, with the panel in which help shows it."""
    if panel is None:
        return hint
    kind, *notes = get_args(hint)
    shown = [copy(note) if isinstance(note, OptionInfo) else note for note in notes]
    for note in shown:
        if isinstance(note, OptionInfo):
            note.rich_help_panel = note.rich_help_panel or panel
    made: Any = Annotated  # of as many notes as there are
    return made[(kind, *shown)]
