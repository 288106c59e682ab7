"""The command line: each command reads its arguments, calls the library once, and prints."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run ``manyhands``; ``manyhands --help`` lists its exit codes."""
    from manyhands.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        # On a terminal with a narrow encoding, escape characters instead of failing on a name.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
