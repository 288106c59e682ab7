"""What was read of an export, and what was left out, as ``manyhands describe`` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyhands.cli.output import say, visible
from manyhands.cli.translation import with_options

if TYPE_CHECKING:
    from manyhands.io import Export

SAME_WAY = "To read this file the same way in a script: "
"""Begins the line with the command that was found."""

LONGEST_LINE = 400
"""Maximal length of a line about an export."""


def account_of(export: Export, command: str) -> dict[str, Any]:
    """Return what was recognised, and what was left out, as plain values for JSON."""
    return {
        "format": export.format,
        "question": export.question,
        "alternatives": list(export.alternatives),
        "command": command,
        "gold": len(export.gold),
        "items": {"count": len(export.items), "columns": list(export.items.columns)},
        "notes": list(export.notes),
        "left_out": [
            {"reason": lost.reason, "count": lost.count, "where": list(lost.where)}
            for lost in export.left_out
        ],
    }


def print_account(export: Export, command: str) -> None:
    """Print the format and its alternatives, the whole command, and what was left out."""
    from manyhands.io.exports.formats import named

    form = named(export.format)
    others = ", ".join(export.alternatives) or "none"
    say(visible(f"format: {form.title} ({form.rule}); other formats that match: {others}"))
    say(visible(f"{SAME_WAY}{command}"))
    columns = ", ".join(export.items.columns) or "nothing"
    say(visible(f"gold labels: {len(export.gold):,}; items have: {columns}", LONGEST_LINE))
    for text in export.notes:
        say(with_options(visible(f"note: {text}")))
    for lost in export.left_out:
        say(visible(f"left out: {lost}", LONGEST_LINE))
