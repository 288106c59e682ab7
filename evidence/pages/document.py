"""A page: sections of blocks, written as Markdown or as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from manyhands.exceptions import raise_missing_extra

if TYPE_CHECKING:
    from evidence.pages.drawings import Drawing


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list under a short lead."""

    lead: str
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; the first column names its rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A drawing: a file beside a Markdown page, inline in an HTML page."""

    file: str
    drawing: Drawing
    title: str
    legend: Sequence[str]

    @property
    def svg(self) -> str:
        """The drawing as a whole SVG document."""
        return self.drawing.svg

    @property
    def caption(self) -> str:
        """The title, and sentences on how to read the drawing."""
        return " ".join([f"{self.title}.", *self.legend])


Block = Heading | Paragraph | Items | Table | Figure


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    blocks: Sequence[Block] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Name of the section in links."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """The page of a paper."""

    title: str
    citation: str
    sections: Sequence[Section]


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
        case Figure():
            caption = _escape(block.caption)
            return f"![{caption}]({block.file})\n\n{caption}"


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
                PackageLoader("evidence.pages", "templates"),
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
