"""Exceptions as messages and exit codes; a traceback is shown only for unexpected errors."""

from __future__ import annotations

import errno
import functools
import re
import shlex
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from manyhands.cli.inputs import BadFilesError
from manyhands.cli.option_names import option_of
from manyhands.cli.output import filled, note, notes_on_stderr, visible
from manyhands.cli.reading import FamilyReading, as_arguments
from manyhands.cli.translation import with_options
from manyhands.exceptions import (
    DivergenceError,
    MissingExtraError,
    ModelFolderError,
    WriteError,
)

UNEXPECTED: Final = 1
BAD_INPUT: Final = 3
NOT_WRITTEN: Final = 4
BAD_MODEL: Final = 5
MISSING_EXTRA: Final = 6
DIVERGED: Final = 7
INTERRUPTED: Final = 130

EXIT_CODES = (
    "Exit codes: 0 done; 1 unexpected error; 2 wrong usage; 3 unusable input; "
    "4 output cannot be written; 5 unreadable model folder; 6 an optional dependency is missing; "
    "7 training diverged; 130 interrupted."
)

LONGEST_WORD: Final = 120
"""Maximal length of a word (such as a name in the data) in an error message."""

_GIVEN: ContextVar[tuple[str, ...]] = ContextVar("given", default=())
"""Arguments of the command that is running."""

P = ParamSpec("P")
T = TypeVar("T")


class Command(TyperCommand):
    """A command whose help shows values as a person writes them, and none behind a switch."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, each with the word that stands for its value in help."""
        found: list[Any] = [*super().get_params(ctx)]
        for each in found:
            if each.metavar is None and each.param_type_name == "option":
                kind = getattr(each, "type_descriptor", None)  # Earlier versions have none.
                number = NUMBERS.get(getattr(kind, "annotation", None))
                each.metavar = "" if each.is_flag else number
            if each.param_type_name == "argument":
                each.display_type_rich = _nothing  # Later versions show Python's type.
            if each.default is None:
                each.show_default = False  # Earlier versions show "None".
        return found


def _nothing(**_: Any) -> None:
    """Show nothing behind an argument, which its own word describes."""


NUMBERS: dict[Any, str] = {int: "N", float: "NUMBER"}
"""What stands for a number in help."""


class Remembering(TyperGroup):
    """The command line, which remembers its arguments for messages that mend them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments, and parse them."""
        _GIVEN.set(tuple(args))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and refuse an option of one value that is given several times.

        Of several values only the last would count, and the others would be lost in silence.
        """
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_repeated(command, ctx, name, rest)
        return name, command, rest


def _refuse_repeated(command: Any, ctx: Any, name: str | None, args: list[str]) -> None:
    own = command.make_context(name, list(args), parent=ctx, resilient_parsing=True)
    _, _, order = command.make_parser(own).parse_args(args=list(args))
    for param in dict.fromkeys(order):
        takes_one = param.param_type_name == "option" and not (param.multiple or param.is_flag)
        if takes_one and order.count(param) > 1:
            option = max(param.opts, key=len)
            several = param.metavar == "FILE" and option != "--out"
            raise typer.BadParameter(
                f"it is given {order.count(param)} times and takes one value; give it once"
                + (". Put the rows of several files into one" if several else ""),
                ctx=own,
                param_hint=repr(option),
            )


def mended(options: dict[str, Any]) -> str:
    """Write the command that is running, with further options of reading."""
    given = _GIVEN.get()
    more = as_arguments(FamilyReading(), options)
    replaced = [option_of(FamilyReading, field) for field in options]
    kept, words = [], iter(given)
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in replaced:
            kept.append(word)
        elif not equals:
            next(words, None)  # Its value, which is another one now.
    return shlex.join(["manyhands", *kept, *more])


def exit_code(error: BaseException) -> int:
    """Choose the exit code of an exception."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NOT_WRITTEN
    codes: list[tuple[type[BaseException] | tuple[type[BaseException], ...], int]] = [
        (ModelFolderError, BAD_MODEL),
        (WriteError, NOT_WRITTEN),
        (MissingExtraError, MISSING_EXTRA),
        (DivergenceError, DIVERGED),
        (KeyboardInterrupt, INTERRUPTED),
        # scikit-learn's own checks of X and of parameters raise plain ValueErrors; other
        # operating system errors come from reading.
        ((ValueError, OSError), BAD_INPUT),
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), UNEXPECTED)


def message_of(error: BaseException) -> str:
    """Write an exception as one paragraph that is safe for a terminal, with long names cut."""
    from manyhands.annotations.wide import UnclearColumnsError

    if isinstance(error, BadFilesError):
        told = [f"({k}) {message_of(each)}" for k, each in enumerate(error.errors, start=1)]
        return f"{len(told)} files cannot be used. {'; '.join(told)}"
    text, command = str(error), ""
    if isinstance(error, UnclearColumnsError):
        text = ". ".join(filter(None, [error.seen, error.mend[:1].upper() + error.mend[1:]]))
        if error.options:
            command = f". The likeliest command is: {visible(mended(error.options))}"
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    text = visible(re.sub(r"\s*[\r\n]+\s*", " ", text).strip())
    text = re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: _shorten(word[0]), text)
    return filled(with_options(text)) + command


def _shorten(word: str) -> str:
    half = LONGEST_WORD // 3
    return f"{word[:half]}…{word[-half:]}"


def reported(command: Callable[P, T]) -> Callable[P, T]:
    """Turn an exception of a command into a message on standard error and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with notes_on_stderr():
                return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            code = exit_code(error)
            _print_error(error, code)
            raise typer.Exit(code) from None

    return wrapper


def _print_error(error: BaseException, code: int) -> None:
    console = Console(stderr=True)
    # An interrupted progress bar leaves the cursor hidden.
    console.show_cursor(True)
    if code == UNEXPECTED:
        console.print_exception()
        note("unexpected error; please report it with the lines above")
    elif code == INTERRUPTED:
        again = str(error) and f"; {error}"
        note(f"interrupted; no file is half-written{again}")
    else:
        text = Text("error: ", style="bold red").append(message_of(error), style="default not bold")
        console.print(text, soft_wrap=True, highlight=False)
