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
class Prose:
    """Paragraphs that are Markdown already."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list under a short lead."""

    lead: str
    items: Sequence[str]


@dataclass(frozen=True)
class Link:
    """A link to a section of the same paper.

    Attributes
    ----------
    text : str
    name : str
        That of the section, and of the file that has it; "" for the paper's first page.
    folder : str
        Where the file is, as seen from the page of the link, such as "chu2021/".
    """

    text: str
    name: str
    folder: str = ""

    def __str__(self) -> str:
        """The text alone."""
        return self.text


Cell = str | Link


@dataclass(frozen=True)
class Table:
    """A table; the first column names its rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]


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


Block = Heading | Paragraph | Prose | Items | Table | Figure


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    name: str = ""
    """Name of the file that has the section where a page is split."""

    @property
    def anchor(self) -> str:
        """Name of the section in links."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """The page of a paper, or a part of it.

    A section with the title of the page has no heading of its own.
    """

    title: str
    citation: str | Link
    sections: Sequence[Section]


def to_markdown(page: Page) -> str:
    """Write a page as Markdown."""
    parts = [f"# {escaped(page.title)}", _cell(page.citation)]
    for section in page.sections:
        own = section.title == page.title
        parts += [] if own else [f"## {escaped(section.title)}"]
        parts += [_block_markdown(block, 2 if own else 3) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _cell(cell: Cell) -> str:
    """Write a cell of a table as Markdown."""
    match cell:
        case Link(text, name, folder):
            return f"[{escaped(text)}]({folder}{name}.md)"
        case _:
            return escaped(cell)


def _block_markdown(block: Block, level: int = 3) -> str:
    match block:
        case Heading(text):
            return f"{'#' * level} {escaped(text)}"
        case Paragraph(text):
            return escaped(text)
        case Prose(text):
            return text.strip()
        case Items(lead, items):
            return "\n".join([escaped(lead), "", *(f"- {escaped(item)}" for item in items)])
        case Table(header, rows):
            lines = [header, ["---"] * len(header), *rows]
            return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
        case Figure():
            caption = escaped(block.caption)
            return f"![{caption}]({block.file})\n\n{caption}"


def escaped(text: Any) -> str:
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
