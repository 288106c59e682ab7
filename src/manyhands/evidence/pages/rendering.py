"""A page as Markdown, and as one HTML file."""

from __future__ import annotations

from typing import Any

from manyhands.evidence.pages.document import Block, Figure, Heading, Items, Page, Paragraph, Table
from manyhands.exceptions import raise_missing_extra


def to_markdown(page: Page) -> str:
    """Write a page as Markdown."""
    parts = [f"# {_escape(page.title)}", _escape(page.citation)]
    for section in page.sections:
        parts.append(f"## {_escape(section.title)}")
        parts += [_block_markdown(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block_markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"### {_escape(text)}"
        case Paragraph(text):
            return _escape(text)
        case Items(lead, items):
            return "\n".join([_escape(lead), "", *(f"- {_escape(item)}" for item in items)])
        case Table(header, rows):
            lines = [header, ["---"] * len(header), *rows]
            return "\n".join(f"| {' | '.join(_escape(cell) for cell in line)} |" for line in lines)
        case Figure(file, _, caption):
            return f"![{_escape(caption)}]({file})\n\n{_escape(caption)}"


def _escape(text: Any) -> str:
    """Keep a text from acting as Markdown or HTML, and on one line."""
    flat = " ".join(str(text).split())
    for character in "\\|<`[]*":
        flat = flat.replace(character, {"<": "&lt;"}.get(character, f"\\{character}"))
    return flat


def to_html(page: Page) -> str:
    """Write a page as one self-contained HTML file, without JavaScript, in light and dark.

    Raises
    ------
    MissingExtraError
        Without the extra 'report'.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise_missing_extra("to_html", "report", error)
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("manyhands.evidence.pages", "templates"),
                # One style for all of the project's pages.
                PackageLoader("manyhands.report", "templates"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment.get_template("results.html").render(page=page)
