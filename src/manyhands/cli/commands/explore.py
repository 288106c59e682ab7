"""The command `explore`: a local page on which labels are reviewed and corrected."""

from __future__ import annotations

import getpass
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import one_or_all, read_known_option
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import Excel, Json, KeepFormulas, Known, ModelFolder
from manyhands.cli.output import print_json, say
from manyhands.cli.reading import FamilyReading, as_arguments
from manyhands.cli.values import TABLE, refuse_overwriting, some_path, some_target
from manyhands.exceptions import AnnotationError
from manyhands.files import as_word
from manyhands.wording import counted

AnnotationsOf = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        "--annotations",
        parser=some_path,
        metavar="FILE",
        help="The annotations that the folder was made from, required. May be repeated.",
    ),
]
Shown = Optional[str]  # noqa: UP045 - typer reads this at run time
Texts = Annotated[
    Shown,
    typer.Option(
        metavar="FILE|COLUMN", help=("Texts to show, given as for 'manyhands fit --texts'.")
    ),
]
Images = Annotated[
    Shown,
    typer.Option(
        metavar="FOLDER|COLUMN", help=("Images to show, given as for 'manyhands fit --images'.")
    ),
]
By = Annotated[
    Shown, typer.Option(metavar="NAME", help="Name of the reviewer. Default: your user name.")
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port on this machine; 0 picks a free one.")
]
Open = Annotated[bool, typer.Option("--open", help="Also open the page in the browser.")]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--out",
        parser=some_path,
        metavar="FILE",
        help="Write the labels with all corrections to this file, and show no page.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--to",
        parser=some_target,
        metavar="table|TOOL",
        help="Format of --out, as for 'manyhands convert --to'.",
    ),
]
Only = Annotated[bool, typer.Option("--reviewed", help="Write only the labels that were reviewed.")]


@reported
@grouped
def explore(
    *,
    folder: ModelFolder,
    annotations: AnnotationsOf = None,
    texts: Texts = None,
    images: Images = None,
    known: Known = None,
    by: By = None,
    port: Port = 0,
    open_: Open = False,
    out: Out = None,
    to: Target = TABLE,
    reviewed: Only = False,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Review and correct labels in a browser, on a page that is served only on this machine.

    Each decision is saved in DIR/corrections.jsonl at once. To use the corrected labels, pass this
    file with --known to 'fit', 'aggregate', 'review' or 'next'. The page itself already uses
    the --known labels with which the folder was made; give --known only to add others.

    Example: manyhands explore labels --annotations A.csv --texts texts.csv
    Example: manyhands explore labels --annotations A.csv --out reviewed.json --to label-studio
    Example: manyhands explore labels --annotations answers.csv --multilabel ';'
    """
    from manyhands.explore.app import serve
    from manyhands.explore.inputs import open_desk
    from manyhands.explore.outputs import write_reviewed
    from manyhands.io.corrections import FILE
    from manyhands.io.writers import check_target
    from manyhands.jobs import OUTPUTS
    from manyhands.report.commands import STAND_INS, told_of_stand_ins

    if annotations is None:
        raise _unnamed(folder)
    if out is None and (reviewed or to != TABLE):
        raise AnnotationError("--to and --reviewed say what to write; name a file with --out")
    if out is not None:
        check_target(out, to)
        kept = (*OUTPUTS, FILE)
        refuse_overwriting(
            [out], [*annotations, *(known or ()), *reading.files, *(folder / name for name in kept)]
        )
    shown: dict[str, Any] = {"texts": texts, "images": images, "by": by or _user()}
    if reading.takes_sets:
        if known:
            raise AnnotationError(
                f"--known {known[0]}: the sets of a folder stand as they were inferred; give known "
                "sets to the command aggregate, which writes the folder again"
            )
        options = reading.of_sets() | {"sets": True}
    else:
        options = reading.arguments()
        # Its own corrections are read in any case, and can be undone.
        more = [path for path in known or () if path.resolve() != (folder / FILE).resolve()]
        shown |= {"known": read_known_option(more, options), "known_files": more}
    shown["reading"] = as_arguments(reading, {})
    with open_desk(folder, one_or_all(annotations), **shown, **options) as desk:
        noun = desk.answers.words.answer
        if out is not None:
            write_reviewed(desk, out, to, only=reviewed, keep_formulas=keep_formulas)
            n_reviewed = int(desk.answers.known.sum())
            n = n_reviewed if reviewed else desk.table.n_instances
            if json:
                print_json({"out": str(out), "to": to, f"{noun}s": n, "reviewed": n_reviewed})
            else:
                say(f"written: {out} ({counted(n, noun)}, {n_reviewed:,} of them reviewed)")
            return
        with suppress(KeyboardInterrupt):  # How it is stopped.
            serve(desk, port, lambda address: _announce(desk, address, open_, json))
        n = len(desk.standing.decisions())
        verb = "is" if n == 1 else "are"
        path = desk.journal.path
        say(f"{counted(n, f'reviewed {noun}')} {verb} in {path}")
        if n:
            command = desk.command_again()
            say(f"next: this command infers the {noun}s again with your corrections: `{command}`")
            if any(word in STAND_INS for word in shlex.split(command)):
                say(told_of_stand_ins([command]))


def _unnamed(folder: Path) -> AnnotationError:
    """Return the error for a folder whose annotations are not named, with the command that does."""
    from manyhands.explore.inputs import described_in
    from manyhands.report.commands import files_in, fill_command

    files = files_in(described_in(folder)) | {"folder": as_word(folder)}
    command = fill_command("manyhands explore FOLDER --annotations ANNOTATIONS", files)
    return AnnotationError(f"name the annotations that {folder} was made from: `{command}`")


def _announce(desk: Any, address: str, open_: bool, json: bool) -> None:
    import webbrowser

    if json:
        print_json({"address": address})
    else:
        say(f"open {address}")
        say("only this machine can, and only with this address; stop with Ctrl-C")
        contents = desk.contents
        if not (contents.images or contents.texts or contents.fields):
            say(
                "The page does not show what the items are. --images FOLDER shows images that are "
                "named by item, and --texts FILE shows texts."
            )
    if open_:
        webbrowser.open(address)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # No such user, as in some containers.
        return "reviewer"
