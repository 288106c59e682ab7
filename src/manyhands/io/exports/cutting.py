"""Cutting large files between records, so that each piece can be read as a file of its own."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.documents import parquet_pieces
from manyhands.io.exports.parsing import (
    BRAT,
    LONGEST_LINE,
    Document,
    encoding_of,
    is_json_line,
    limited_lines,
    long_fields,
    parse,
    separator_of,
)
from manyhands.io.files import existing_file


class Piece(NamedTuple):
    """Some records of a file.

    `share` is the part of the file up to their end, `before` the number of lines, rows or elements
    before them. `parse` fills a document with them; None stands for a file that cannot be cut.
    `keyed` says whether they are the members of one object.
    """

    share: float
    before: int
    parse: Callable[[Document], None] | None
    keyed: bool = False


WHOLE = Piece(1.0, 0, None)


@dataclass
class Cutting:
    """The pieces of a file, of about ``size`` bytes each.

    Folders, archives, workbooks and XML are one piece, as their parts belong together. ``headed``
    says whether each piece of a table begins with the file's first row; whoever iterates may change
    it after the first piece.
    """

    path: Path
    size: int
    headed: bool = True

    def pieces(self) -> Generator[Piece]:
        """Cut the file, from its beginning.

        Raises
        ------
        FileNotFoundError, AnnotationError
            If the file does not exist, or cannot be cut into records.
        """
        if self.path.is_dir():
            yield WHOLE
            return
        with existing_file(self.path).open("rb") as raw:
            start = raw.read(4)
            raw.seek(0)
            if start == b"PAR1":
                yield from (Piece(*piece) for piece in parquet_pieces(self.path, self.size))
                return
            file = gzip.GzipFile(fileobj=raw) if start[:2] == b"\x1f\x8b" else raw
            try:
                yield from self._pieces(file, raw)
            except (EOFError, gzip.BadGzipFile) as error:
                raise AnnotationError(
                    f"{self.path}: the archive is damaged ({error}); export it again"
                ) from error

    def _pieces(self, file: Any, raw: Any) -> Iterator[Piece]:
        encoding = encoding_of(file.read(4096))
        file.seek(0)
        if encoding is None:
            yield WHOLE
            return
        text = io.TextIOWrapper(file, encoding=encoding, newline="")
        try:
            full = (
                line for line in iter(lambda: text.readline(LONGEST_LINE + 1), "") if line.strip()
            )
            head, second = next(full, ""), next(full, "")
            text.seek(0)
            first, total = head.lstrip()[:1], max(self.path.stat().st_size, 1)
            if first == "<" or BRAT.match(head):
                yield WHOLE
                return
            keyed = first == "{" and not (second and is_json_line(head))
            for part, before in self._texts(text, head, keyed):
                content = part.encode()

                def fill(document: Document, content: bytes = content) -> None:
                    parse(io.BytesIO(content), document)

                yield Piece(min(raw.tell() / total, 1.0), before, fill, keyed)
        finally:
            text.detach()

    def _texts(self, text: io.TextIOWrapper, head: str, keyed: bool) -> Iterator[tuple[str, int]]:
        """Text of each piece, and the number of its records' predecessors."""
        name, first = str(self.path), head.lstrip()[:1]
        if keyed or first == "[":
            ends = "{}" if keyed else "[]"
            for part, before in self._gathered(elements(text, name)):
                yield ends[0] + ",".join(part) + ends[1], before
        elif first == "{":
            for part, before in self._gathered(limited_lines(text, name)):
                yield "".join(part), before
        else:
            yield from self._tables(head, limited_lines(text, name))

    def _tables(self, head: str, lines: Iterator[str]) -> Iterator[tuple[str, int]]:
        top: list[str] = []
        for part, before in self._gathered(rows(lines, separator_of(head))):
            repeated = bool(top) and self.headed
            yield "".join([*top, *part] if repeated else part), before - repeated
            top = top or part[:1]

    def _gathered(self, texts: Iterator[str]) -> Iterator[tuple[list[str], int]]:
        """Lists of texts of about ``size`` characters together, and how many came before."""
        part: list[str] = []
        length = before = 0
        for text in texts:
            part.append(text)
            length += len(text)
            if length >= self.size:
                yield part, before
                before, part, length = before + len(part), [], 0
        if part:
            yield part, before


_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_AFTER = re.compile(r"\s*[,\]}]")


def elements(text: io.TextIOBase, name: str, chunk: int = 2**20) -> Iterator[str]:
    """Texts of the elements of a JSON array, or of the members of a JSON object.

    Raises
    ------
    AnnotationError
        If the file ends too early, or an element is no JSON or longer than `LONGEST_LINE`.
    """
    decoder = json.JSONDecoder()
    buffer, at, number = text.read(chunk).lstrip("\ufeff"), 0, 1
    at = re.match(r"\s*", buffer).end()  # type: ignore[union-attr]
    is_object = buffer[at] == "{"
    at += 1
    while True:
        at = _BETWEEN.match(buffer, at).end()  # type: ignore[union-attr]
        if buffer[at : at + 1] == ("}" if is_object else "]"):
            return
        end, begin = at, at
        try:
            if is_object:
                _, begin = decoder.raw_decode(buffer, at)
                colon = _COLON.match(buffer, begin)
                begin = len(buffer) if colon is None else colon.end()
            _, end = decoder.raw_decode(buffer, begin)
            # A number may go on after the buffer, so what follows decides.
            reason = "" if _AFTER.match(buffer, end) else "Expecting ',' or the end"
        except (json.JSONDecodeError, RecursionError) as error:
            reason = str(getattr(error, "msg", "it is nested too deeply"))
        if not reason:
            yield buffer[at:end]
            at, number = end, number + 1
            continue
        more = text.read(max(chunk, len(buffer) - at)) if len(buffer) - at <= LONGEST_LINE else ""
        if not more:
            raise AnnotationError(
                f"{name}: item {number:,} is cut off, is not JSON ({reason}), or is longer than "
                f"{LONGEST_LINE // 2**20} MiB. Export it again"
            )
        buffer, at = buffer[at:] + more, 0


def rows(lines: Iterator[str], separator: str) -> Iterator[str]:
    """Text of each row of a table that is not empty; a cell in quotes may hold line breaks."""
    taken: list[str] = []

    def noted() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    with long_fields():
        try:
            for row in csv.reader(noted(), delimiter=separator, strict=True):
                if any(row):
                    yield "".join(taken)
                taken.clear()
        except csv.Error as error:
            raise AnnotationError(
                f"{error}; a quotation mark is not closed, or the file is damaged. Export it again"
            ) from error
