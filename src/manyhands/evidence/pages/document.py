"""The parts of a page: sections of blocks, which are written as Markdown or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


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
    svg: str
    caption: str


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
