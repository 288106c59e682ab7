"""The README and the pages of ``docs``: what they take from records is what the records say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evidence.pages.quoted import quotes, with_figures
from evidence.pages.what_holds import with_tables

DOCS = Path(__file__).parents[2] / "docs"


def pages() -> Iterator[Path]:
    """Yield the pages that may quote figures."""
    yield DOCS.parent / "README.md"
    yield from sorted(
        [*DOCS.glob("*.md"), *DOCS.glob("methods/*.md"), *DOCS.glob("tutorials/*.md")]
    )


def refreshed(page: Path) -> str:
    """Return a page's text with the figures and tables that it takes from ``docs/results``."""
    return with_tables(with_figures(page.read_text(encoding="utf-8"), page.parent))


def stale() -> list[str]:
    """Name the figures and the pages that are not as the records have them."""
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        wrong = [
            f"{page.name}: {figure!r} should be {source.figure()!r}, {source.row} > {source.column}"
            for figure, source in quotes(text, page.parent)
            if figure != source.figure()
        ]
        if not wrong and with_tables(text) != text:
            wrong = [f"{page.name}: its tables of claims or hours"]
        found += wrong
    return found
