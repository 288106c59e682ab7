"""From exceptions to exit codes: a message for people, a traceback only for what is our fault."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

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
    "Exit codes: 0 done; 1 unexpected error (please report it); 2 wrong usage; 3 unusable input; "
    "4 output cannot be written; 5 unreadable model folder; 6 an optional dependency is missing; "
    "7 training diverged; 130 interrupted."
)

P = ParamSpec("P")
T = TypeVar("T")


def exit_code(error: BaseException) -> int:
    """Choose the exit code of an exception."""
    codes: list[tuple[type[BaseException] | tuple[type[BaseException], ...], int]] = [
        (ModelFolderError, BAD_MODEL),
        (WriteError, NOT_WRITTEN),
        (MissingExtraError, MISSING_EXTRA),
        (DivergenceError, DIVERGED),
        (KeyboardInterrupt, INTERRUPTED),
        # scikit-learn's own checks of X and of parameters raise plain ValueErrors.
        ((ValueError, FileNotFoundError), BAD_INPUT),
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), UNEXPECTED)


def reported(command: Callable[P, T]) -> Callable[P, T]:
    """Turn an exception of a command into a message on standard error and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, typer.Exit | typer.Abort | typer.BadParameter):
                raise
            console = Console(stderr=True)
            code = exit_code(error)
            if code == UNEXPECTED:
                console.print_exception()
            elif code == INTERRUPTED:
                console.print("interrupted; run the same command again to go on")
            else:
                console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
            raise typer.Exit(code) from None

    return wrapper
