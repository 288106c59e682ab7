"""Cutting of large files between records, so that each piece can be read like a whole file."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from manyhands.exceptions import AnnotationError
from manyhands.io.encodings import LONGEST_LINE, find_encoding
from manyhands.io.exports.documents import parquet_pieces, unpacking
from manyhands.io.exports.parsing import (
    BRAT,
    Document,
    encoding_of,
    is_json_line,
    parse_lines,
    parse_rows,
    parse_value,
    why,
)
from manyhands.io.files import existing_file
from manyhands.io.sheets import (
    TITLES,
    UNSTATED,
    Stated,
    cells_of,
    decoded,
    limited_lines,
    sampled,
    separator_of,
    sheet_of,
)


class Piece(NamedTuple):
    """Consecutive records of a file.

    `share` is the fraction of the file up to their end, and `before` the number of lines, rows or
    elements before them. `parse` fills a document with them; it is None for a file that cannot be
    cut. `keyed` is whether they are the members of one JSON object.
    """

    share: float
    before: int
    parse: Callable[[Document], None] | None
    keyed: bool = False


WHOLE = Piece(1.0, 0, None)


@dataclass
class Cutting:
    """The pieces of a file, of about ``size`` bytes each.

    Folders, archives, workbooks and XML are one piece, because their parts belong together.
    ``headed`` is whether each piece of a table begins with the file's first row; the caller may
    change it after the first piece.
    """

    path: Path
    size: int
    headed: bool = True
    stated: Stated = UNSTATED

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
        with unpacking(self.path), existing_file(self.path).open("rb") as raw:
            start = raw.read(4)
            raw.seek(0)
            if start == b"PAR1":
                yield from (Piece(*piece) for piece in parquet_pieces(self.path, self.size))
                return
            file: Any = gzip.GzipFile(fileobj=raw) if start[:2] == b"\x1f\x8b" else raw
            start = file.read(4096)
            encoding = encoding_of(start)
            if encoding is None:
                yield WHOLE
                return
            if start.decode(encoding, errors="ignore").lstrip()[:1] not in ("[", "{", "<"):
                encoding = find_encoding(file, self.stated.encoding).name
            file.seek(0)
            total = max(self.path.stat().st_size, 1)
            with decoded(file, encoding, str(self.path)) as text:
                for piece in self._pieces(text):
                    share = 1.0 if piece.parse is None else min(raw.tell() / total, 1.0)
                    yield piece._replace(share=share)

    def _pieces(self, text: io.TextIOWrapper) -> Iterator[Piece]:
        """Yield the pieces of a text, without their shares; one piece if there are no records."""
        name = str(self.path)
        full = (line for line in iter(lambda: text.readline(LONGEST_LINE + 1), "") if line.strip())
        head, second = next(full, ""), next(full, "")
        text.seek(0)
        first = head.lstrip()[:1]
        keyed = first == "{" and not (second and is_json_line(head))
        if first == "<" or BRAT.match(head):
            found: Iterator[Piece] = iter(())
        elif keyed or first == "[":
            found = self._values(elements(text, name), keyed=keyed)
        elif first == "{":
            found = self._lines(limited_lines(text, name))
        else:
            sample = list(sampled(limited_lines(text, name)))
            separator, skipped = separator_of(sample, self.stated.separator)
            text.seek(0)
            lines = limited_lines(text, name)
            for _ in range(skipped):
                next(lines)
            found = self._tables(lines, separator)
        try:
            piece = next(found, WHOLE)
        except AnnotationError:
            if not keyed:
                raise
            piece = WHOLE  # An object with few large members, which are not records.
        yield piece
        yield from found

    def _values(self, texts: Iterator[str], *, keyed: bool) -> Iterator[Piece]:
        for part, before in self._gathered(texts):
            content = ",".join(part)
            content = f"{{{content}}}" if keyed else f"[{content}]"
            yield Piece(0, before, partial(parse_value, content), keyed)

    def _lines(self, lines: Iterator[str]) -> Iterator[Piece]:
        for part, before in self._gathered(lines):
            yield Piece(0, before, partial(parse_lines, part))

    def _tables(self, lines: Iterator[str], separator: str) -> Iterator[Piece]:
        top: list[str] = []
        for part, before in self._gathered(rows(lines, separator, str(self.path))):
            repeated = top if self.headed else []
            texts = [*repeated, *part]
            yield Piece(0, before - len(repeated), partial(parse_rows, texts, separator))
            if not top:
                header = sheet_of(cells_of(part, separator), most=TITLES).top
                top = part[header - 1 : header]

    def _gathered(self, texts: Iterator[str]) -> Iterator[tuple[list[str], int]]:
        """Yield lists of texts with about ``size`` characters, and the number of texts before."""
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


_SPACE = re.compile(r"\s*")
_COLON = re.compile(r"\s*:\s*")
_AFTER = re.compile(r"\s*([,\]}])")


def elements(text: io.TextIOBase, name: str, chunk: int = 2**20) -> Iterator[str]:
    """Yield the texts of the elements of a JSON array, or of the members of a JSON object.

    Raises
    ------
    AnnotationError
        If the file ends too early or continues after the array or object, or an element is not JSON
        or is longer than `LONGEST_LINE`.
    """
    decoder = json.JSONDecoder()
    buffer, number = "", 1
    while not buffer and (more := text.read(chunk)):
        buffer = more.lstrip().lstrip("\ufeff").lstrip()
    is_object, at = buffer[:1] == "{", 1
    closing = "}" if is_object else "]"
    while True:
        at = _SPACE.match(buffer, at).end()  # type: ignore[union-attr]
        if number == 1 and buffer[at : at + 1] == closing:
            at += 1
            break
        end, begin, after = at, at, None
        try:
            if is_object:
                _, begin = decoder.raw_decode(buffer, at)
                colon = _COLON.match(buffer, begin)
                begin = len(buffer) if colon is None else colon.end()
            _, end = decoder.raw_decode(buffer, begin)
            # A number may continue after the buffer, so an element ends only where a comma or a
            # closing bracket follows.
            after = _AFTER.match(buffer, end)
            reason = "Expecting ',' or the end"
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", why(error))
        if after is not None and after[1] in (",", closing):
            yield buffer[at:end]
            at, number = after.end(), number + 1
            if after[1] == closing:
                break
            continue
        more = text.read(max(chunk, len(buffer) - at)) if len(buffer) - at <= LONGEST_LINE else ""
        if not more:
            raise AnnotationError(
                f"{name}: item {number:,} is cut off, is not JSON ({reason}), or is longer than "
                f"{LONGEST_LINE // 2**20} MiB. Export it again"
            )
        buffer, at = buffer[at:] + more, 0
    rest = buffer[at:]
    while rest and not rest.strip():
        rest = text.read(chunk)
    if rest:
        raise AnnotationError(
            f"{name}: the JSON ends with item {number - 1:,}, but the file continues: it is "
            "damaged, or holds several exports. Export it again, or give several files"
        )


def rows(lines: Iterator[str], separator: str, name: str) -> Iterator[str]:
    """Yield the text of each row of a table, even blank ones; quoted cells may hold line breaks.

    Raises
    ------
    AnnotationError
        If a quotation mark is not closed.
    """
    taken: list[str] = []

    def noted() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    for _ in cells_of(noted(), separator, name):
        yield "".join(taken)
        taken.clear()
