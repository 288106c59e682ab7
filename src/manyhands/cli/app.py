"""The command line: its commands, in the order of its help."""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated

import typer

from manyhands._version import __version__
from manyhands.cli.commands.aggregate import aggregate
from manyhands.cli.commands.convert import convert, ingest
from manyhands.cli.commands.describe import agreement, describe, doctor
from manyhands.cli.commands.explore import explore
from manyhands.cli.commands.fit import demo, fit
from manyhands.cli.commands.judges import judges
from manyhands.cli.commands.model import cache, predict, report
from manyhands.cli.commands.planning import annotators, budget, next_, review
from manyhands.cli.commands.rank import rank
from manyhands.cli.commands.select import select
from manyhands.cli.errors import EXIT_CODES, Command, Remembering
from manyhands.cli.output import say

app = typer.Typer(
    name="manyhands",
    cls=Remembering,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Find the most likely labels where annotators disagree, and train classifiers on them.

    First steps: [bold]manyhands demo[/], then [bold]manyhands describe my_annotations.csv[/] and
    [bold]manyhands aggregate my_annotations.csv --out labels[/].

    If labels are grades such as 1 to 5, add [bold]--ordered[/].
    If an item can have several labels, add [bold]--multilabel ';'[/].
    To rank items that were compared in pairs, use [bold]manyhands rank[/].
    To compare language models with people, use [bold]manyhands judges[/].
    """
    if version:
        say(__version__)
        raise typer.Exit


COMMANDS = {
    "Start": (demo, describe, doctor),
    "Labels and rankings": (aggregate, rank, judges, agreement),
    "Classifiers": (fit, predict, select),
    "What to do next": (report, explore, review, annotators, next_, budget),
    "Files": (convert, ingest, cache),
}
"""The commands, under the headings of the help."""

FIRST_EXAMPLES = 2
"""Examples that help shows before the options; the others follow them."""


def help_of(doc: str) -> tuple[str, str]:
    r"""Split a docstring: what a newcomer needs before the options, and what may follow them.

    Examples
    --------
    >>> help_of("Do it.\n\nAll of it.\n\nExample: a\nExample: b\nExample: c")
    ('Do it.\n\nExample: a\n\nExample: b', 'All of it.\n\nExample: c')
    """
    first, *parts = cleandoc(doc).split("\n\n")
    lines = [line for part in parts if part.startswith("Example:") for line in part.split("\n")]
    others = [part.replace("\n", " ") for part in parts if not part.startswith("Example:")]
    before = [first.replace("\n", " "), *lines[:FIRST_EXAMPLES]]
    return "\n\n".join(before), "\n\n".join([*others, *lines[FIRST_EXAMPLES:]])


for heading, commands in COMMANDS.items():
    for command in commands:
        name = command.__name__.rstrip("_")
        text, more = help_of(command.__doc__ or "")
        shown = app.command(name, cls=Command, rich_help_panel=heading, help=text, epilog=more)
        shown(command)
