"""Parsing JSON, JSON Lines, XML and tables of text; every error names the position.

Nothing is executed. Sizes are limited, so that a hostile file cannot fill the memory.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any
from xml.etree import ElementTree

from manyhands.annotations.wide import as_cell
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import check_width
from manyhands.io.csv_files import released
from manyhands.io.encodings import MIB, marked_encoding
from manyhands.io.exports.records import Malformed, mapping, plain
from manyhands.io.sheets import (
    NO_NAMES,
    TORN,
    UNSTATED,
    Sheet,
    Stated,
    cells_of,
    decoded,
    limited_lines,
    read_text,
    sheet_of,
)

LARGEST_DOCUMENT = 256 * MIB
"""Largest JSON document, in bytes."""


@dataclass
class Document:
    """One file, or one member of an archive, parsed according to its kind.

    Attributes
    ----------
    name : str
        Name for messages.
    stem : str
        File name without suffix, which is the annotator if a file holds one annotator's work.
    path : PurePosixPath
        Path within the folder or archive.
    kind : {"records", "object", "table", "other"}
    records : list of (position, value)
        The elements of a JSON array, or the lines of JSON Lines.
    whole : dict
        The JSON object, if the document is one.
    header, rows, separator
        For a table: the cells of the first row, the later rows as (position, cells), and the
        separator.
    root : str
        Name of the outermost element of XML; "brat" for brat's standoff, whose records are cells.
    broken : list of (position, reason)
    notes : list of str
        What was assumed or skipped: the encoding, blank rows.
    beside : Path or None
        The folder of the file.
    sheet : str
        Name of the sheet of a workbook.
    archive : str
        Name of the archive without its suffix, if the document is a member of one.
    most : int or None
        Read only this many lines or rows, to recognise the format; `complete` says whether that was
        all.
    before, earlier : int
        For a piece of a file: number of lines, rows or elements before it, and how many of them
        were read as records.
    """

    name: str
    path: PurePosixPath
    kind: str = "other"
    records: list[tuple[str, Any]] = field(default_factory=list)
    whole: dict[str, Any] = field(default_factory=dict)
    header: list[str] = field(default_factory=list)
    rows: list[tuple[str, list[str]]] = field(default_factory=list)
    separator: str = ","
    root: str = ""
    broken: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    beside: Path | None = None
    archive: str = ""
    sheet: str = ""
    most: int | None = None
    complete: bool = True
    before: int = 0
    earlier: int = 0

    @property
    def stem(self) -> str:
        """File name without its suffix."""
        return self.path.name.removesuffix(".gz").rsplit(".", 1)[0]

    @property
    def archived(self) -> bool:
        """Whether it is a member of an archive."""
        return bool(self.archive)

    @property
    def folder(self) -> str:
        """Name of the innermost folder or archive that holds the file."""
        beside = "" if self.beside is None else self.beside.resolve().name
        return self.path.parent.name or self.archive or beside

    @property
    def first(self) -> dict[str, Any]:
        """First record that is an object."""
        return next((value for _, value in self.records if isinstance(value, dict)), {})

    def dicts(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the rows of a table by column; rows of another length are listed in ``broken``.

        Raises
        ------
        AnnotationError
            If two columns have the same name.
        """
        n = len(self.header)
        if len(set(self.header)) < n:
            twice = next(name for name in self.header if self.header.count(name) > 1)
            raise AnnotationError(
                f"{self.name}: column {twice!r} occurs twice in the header; rename one"
            )
        for at, row in self.rows:
            if len(row) == n:
                yield at, dict(zip(self.header, row, strict=True))

    def without_header(self) -> list[tuple[str, list[str]]]:
        """Return the rows of a table without a header: the first is one of them."""
        return [(f"row {self.before + 1}", self.header), *self.rows]

    def starting(self, prefix: str) -> list[str]:
        """Return the names of the columns that begin with some text."""
        return [name for name in self.header if name.startswith(prefix)]


# -- text -----------------------------------------------------------------------------------------


def parse(file: IO[bytes], document: Document, stated: Stated = UNSTATED) -> None:
    """Parse a file into a document; a file that is not text stays of kind "other".

    JSON and XML are UTF-8, or UTF-16 with a mark; tables have any encoding and separator.

    Raises
    ------
    AnnotationError
        If the file mixes encodings, is cut off, or is too large.
    """
    start = file.read(4096)
    encoding = encoding_of(start)
    if encoding is None:
        return
    first = start.decode(encoding, errors="ignore").lstrip()[:1]
    if first not in ("[", "{", "<"):
        _parse_table(file, document, stated, encoding)
        return
    with decoded(file, encoding, document.name) as text:
        if first == "<":
            _parse_xml(text, document)
        else:
            _parse_json(text, document, first)


def encoding_of(start: bytes) -> str | None:
    """Return the encoding of JSON or XML that begins with some bytes; None if it is no text."""
    marked = marked_encoding(start)
    if marked is not None:
        return marked
    return None if b"\0" in start or start[:4] == b"PAR1" else "utf-8-sig"


def _parse_json(text: io.TextIOWrapper, document: Document, first: str) -> None:
    if first == "{":
        lines = limited_lines(text, document.name)
        head = next(line for line in lines if line.strip())
        text.seek(0)
        if is_json_line(head):
            parse_lines(limited_lines(text, document.name), document)
            if len(document.records) == 1 and not document.broken:
                document.kind, document.whole = "object", document.first
            elif not document.records:
                at, reason = document.broken[0]
                raise AnnotationError(
                    f"{document.name}: no line is JSON: {at}: {reason}. Export it again"
                )
            return
    parse_value(_whole(text, document), document)


def parse_lines(lines: Iterable[str], document: Document) -> None:
    """Parse lines of JSON; lines that are not JSON are listed in ``broken``."""
    document.kind = "records"
    for number, line in enumerate(lines, start=1):
        read = len(document.records) + len(document.broken)
        if document.most is not None and read >= document.most:
            document.complete = False
            return
        if line.strip():
            _parse_line(document, number, line)


def parse_value(content: str, document: Document) -> None:
    """Parse one JSON value.

    Raises
    ------
    AnnotationError
        If it is not JSON.
    """
    try:
        value = loads(content)
    except json.JSONDecodeError as error:
        raise AnnotationError(
            f"{document.name}: line {error.lineno:,}, column {error.colno:,}: this is not JSON "
            f"({error.msg}), so the file is cut off or damaged. Export it again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{document.name}: {why(error)}. Export it again") from error
    if isinstance(value, list):
        document.kind = "records"
        numbered = enumerate(value, start=document.before + 1)
        document.records = [(f"item {i:,}", v) for i, v in numbered]
    else:
        document.kind, document.whole = "object", value
        document.records = [("item 1", value)]


def is_json_line(line: str) -> bool:
    """Return whether a line is an object of its own, so that the file is JSON Lines."""
    return line.lstrip()[:1] == "{" != line.strip() and line.rstrip().endswith("}")


def _whole(text: io.TextIOWrapper, document: Document) -> str:
    content = text.read(LARGEST_DOCUMENT + 1)
    if len(content) > LARGEST_DOCUMENT:
        raise AnnotationError(
            f"{document.name} is one document of JSON or XML of more than "
            f"{LARGEST_DOCUMENT // MIB} MiB. For JSON, make a store piece by piece with the "
            "command ingest; or export JSON Lines or CSV, which are read line by line; or export "
            "parts"
        )
    return content


def _parse_line(document: Document, number: int, line: str) -> None:
    at = f"line {document.before + number:,}"
    try:
        document.records.append((at, loads(line)))
    except json.JSONDecodeError as error:
        document.broken.append((at, f"this is not JSON ({error.msg}, column {error.colno:,})"))
    except (ValueError, RecursionError) as error:
        document.broken.append((at, why(error)))


def loads(text: str) -> Any:
    """Parse JSON; NaN and Infinity, which are not JSON, become None.

    Raises
    ------
    ValueError, RecursionError
        If it is not JSON, a key occurs twice in one object, a text holds half of a surrogate pair,
        or it is nested too deeply; see `why`.
    """
    value = json.loads(text, object_pairs_hook=_distinct, parse_constant=lambda name: None)
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                "it holds half of a surrogate pair, which is not a character: a text was cut "
                "within an emoji"
            ) from error
    return value


def why(error: Exception) -> str:
    """Say why a text could not be read as JSON."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "integer string conversion" in str(error):  # Python's own, which names its own remedy.
        return "it holds a number of more than 4,000 digits"
    return str(error)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that holds a key twice, because JSON readers silently keep only one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)  # In one pass, as there may be millions.
        twice = next(key for key, n in counts.items() if n > 1)
        raise ValueError(f"the key {twice[:80]!r} occurs twice in one object")
    return found


def _parse_xml(text: io.TextIOWrapper, document: Document) -> None:
    """Read the images of CVAT with their tags; other XML stays of kind "other"."""
    content = _whole(text, document)
    root = content[:4096]
    if "<annotations" not in root and "xmi:XMI" not in root:
        return
    parsed = parse_xml(content, document.name)
    document.kind, document.root = "records", parsed.tag.rpartition("}")[2]
    for image in parsed.iter("image"):
        tags = [
            {
                "label": tag.get("label"),
                "attributes": {a.get("name"): a.text for a in tag.iter("attribute")},
            }
            for tag in image.iter("tag")
        ]
        document.records.append((f"image {image.get('id')}", {**image.attrib, "tags": tags}))


def parse_xml(content: str, name: str) -> ElementTree.Element:
    """Parse XML that declares no entities, which could expand without end.

    Raises
    ------
    AnnotationError
        If it is not XML, or declares a document type or entities.
    """
    if "<!DOCTYPE" in content or "<!ENTITY" in content:
        raise AnnotationError(
            f"{name}: it declares a document type or entities, which are not read for safety; "
            "remove the declaration"
        )
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise AnnotationError(f"{name} is not XML ({error}); export it again") from error


BRAT = re.compile(r"(T\d+\t\S+ \d+ \d+|#\d*\t\S+ \w\d+|A\d+\t\S+ \w\d+)")


def _parse_table(file: IO[bytes], document: Document, stated: Stated, encoding: str) -> None:
    with decoded(file, encoding, document.name) as text:
        try:
            head = next((line for line in limited_lines(text, document.name) if line.strip()), "")
        except UnicodeError:
            head = ""
    if BRAT.match(head):
        _parse_brat(file, document, encoding)
        return
    try:
        sheet = read_text(file, stated, document.most)
    except AnnotationError as error:
        raise AnnotationError(f"{document.name}: {error}") from error
    as_table(document, sheet)


def _parse_brat(file: IO[bytes], document: Document, encoding: str) -> None:
    document.kind, document.root = "records", "brat"
    with decoded(file, encoding, document.name) as text:
        lines = (line for line in limited_lines(text, document.name) if line.strip())
        for number, line in enumerate(lines, start=1):
            document.records.append((f"line {number:,}", line.rstrip("\r\n").split("\t")))


def parse_rows(lines: Iterable[str], separator: str, document: Document) -> None:
    """Parse the rows of a table, after ``document.before`` earlier ones.

    Raises
    ------
    AnnotationError
        If a quotation mark is not closed.
    """
    first, most = document.before + 1, document.most
    try:
        rows = cells_of(lines, separator)
        sheet = sheet_of(rows, first=first, most=most, separator=separator)
    except AnnotationError as error:
        raise AnnotationError(f"{document.name}: {error}") from error
    as_table(document, sheet)


def as_table(document: Document, sheet: Sheet) -> None:
    """Take a sheet as the content of a document; rows of another length are listed as broken."""
    document.separator, document.complete = sheet.separator, sheet.complete
    document.notes += sheet.notes
    if not sheet.header:
        return
    document.kind, document.header = "table", sheet.header
    n = len(sheet.header)
    check_width(n, document.name)
    for number, row in zip(sheet.numbers, sheet.rows, strict=True):
        document.rows.append((f"row {number}", row))
        if len(row) != n:
            why = f". {TORN}" if sheet.is_torn else ""
            document.broken.append(
                (f"row {number}", f"{len(row)} fields, but the header has {n}{why}")
            )


def with_same_columns(documents: Sequence[Document], named: Iterable[str] = ()) -> None:
    """Give the columns of several tables one spelling, and leave out columns that only some have.

    Names that differ in case only are the same, unless a table has both. Columns that the caller
    named are kept in any case.
    """
    folded = [[name.casefold() for name in document.header] for document in documents]
    if len(documents) < 2 or any(len(set(names)) < len(names) for names in folded):
        return
    shared = set(folded[0]).intersection(*folded) | {name.casefold() for name in named}
    spelled = {name.casefold(): name for d in reversed(documents) for name in d.header}
    for document, names in zip(documents, folded, strict=True):
        kept = [i for i, name in enumerate(names) if name in shared]
        if not kept:
            continue
        others = [
            name for name, key in zip(document.header, names, strict=True) if key not in shared
        ]
        if others:
            document.notes.append(
                f"left out {', '.join(map(repr, others))}, which not all tables have"
            )
        n = len(names)
        document.header = [spelled[names[i]] for i in kept]
        document.rows = [
            (at, [row[i] for i in kept] if len(row) == n else []) for at, row in document.rows
        ]


# -- records and columns --------------------------------------------------------------------------


ReadRecord = Callable[[dict[str, Any], str], None]


def each(document: Document, read: ReadRecord) -> None:
    """Read every record; a malformed one is listed in ``broken``, and the others are kept."""
    for at, record in document.records:
        try:
            read(mapping(record, "record", at), at)
        except Malformed as error:
            document.broken.append((error.at, error.reason))


def columns_as_text(document: Document, most: int | None = None) -> dict[str, list[str]]:
    """Return columns of a table, or of flat records, as cells of text.

    Raises
    ------
    AnnotationError
        If two columns have one name, or the records hold lists or objects.
    """
    if document.kind == "table":
        header = document.header
        rows = [row for _, row in document.rows[:most] if len(row) == len(header)]
        columns = {
            name: [as_cell(released(row[place])) for row in rows]
            for place, name in enumerate(header)
        }
        unnamed = [name for name in columns if not name and not any(columns[name])]
        filled = [name for name in header if name not in unnamed]
        if len(set(filled)) < len(filled):
            twice = next(name for name in filled if filled.count(name) > 1)
            if not twice:
                raise AnnotationError(f"{document.name}: several columns {NO_NAMES}")
            raise AnnotationError(
                f"{document.name}: the column {twice!r} occurs twice in the header; rename one"
            )
        return {name: columns[name] for name in filled}
    records = [row for _, row in document.records[:most] if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in records for name in row))
    if any(isinstance(value, list | dict) for row in records for value in row.values()):
        raise AnnotationError(
            f"{document.name}: the records hold lists or objects, so that they cannot be read as a "
            "table with one column per annotator; name their format in format="
        )
    return {name: [as_cell(plain(row.get(name))) for row in records] for name in names}
