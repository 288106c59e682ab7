"""The command line: each command reads its arguments, calls the library once, and prints."""

from __future__ import annotations

import io
import sys

from manyhands.exceptions import MissingExtraError, raise_missing_extra


def main() -> None:
    """Run ``manyhands``; ``manyhands --help`` lists its exit codes."""
    try:
        from manyhands.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("manyhands"):
            raise
        try:
            raise_missing_extra("the command line", "cli", error)
        except MissingExtraError as missing:
            sys.stderr.write(f"error: {missing}\n")
            # errors.MISSING_EXTRA, which cannot be imported here.
            sys.exit(6)
    for stream in (sys.stdout, sys.stderr):
        # On a terminal with a narrow encoding, escape characters instead of failing on a name.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
