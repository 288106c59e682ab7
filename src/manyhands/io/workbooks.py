"""Reading the rows of an Excel sheet as text, and writing tables as workbooks."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import combinations, islice
from pathlib import Path, PurePosixPath
from typing import Any, Final
from xml.etree import ElementTree

from manyhands.annotations.wide import guess_own, own_work
from manyhands.exceptions import AnnotationError, WriteError, raise_missing_extra, warn_caller
from manyhands.files import explain
from manyhands.io.archives import check_members

MOST_ROWS: Final = 1_048_576
"""Largest number of rows of a sheet in Excel."""

LONGEST_CELL: Final = 32_767
"""Largest number of characters of a cell in Excel."""

MOST_CELLS: Final = 2**26
"""Largest number of cells that are read from a sheet, including empty ones."""

LARGEST_NUMBER: Final = 10**15
"""Largest integer that is written as a number; Excel keeps 15 digits, so larger ones are text."""

SHOWN: Final = 1_000
"""Number of first rows by which a sheet is judged."""

COVERED: Final = 0.9
"""Share of the cells of a column that must be in a list of values on another sheet."""

_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\r\x0e-\x1f\ufffe\uffff]")
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell [^>]*ref="([A-Z]+)(\d+):([A-Z]+)(\d+)"')
_FORMULA = re.compile(rb"<(?:\w+:)?f[ >/]")


def is_workbook(path: Path) -> bool:
    """Return whether a file is an Excel workbook, by its content."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError):
        return False


def refuse_other_programs(path: Path) -> None:
    """Refuse files that other or older programs write in place of text or .xlsx.

    Raises
    ------
    AnnotationError
        If the file is such a file.
    """
    with path.open("rb") as file:
        start = file.read(512)
    if start[:4] == b"\xd0\xcf\x11\xe0":
        raise AnnotationError(
            "this is an Excel workbook of the old format (.xls), or one with a password; save it "
            "as .xlsx without a password, or as CSV"
        )
    if start[:4] == b"PK\x03\x04" and b"opendocument" in start:
        raise AnnotationError("this is an OpenDocument spreadsheet; save it as .xlsx, or as CSV")
    if start[:4] == b"PK\x03\x04" and not is_workbook(path):
        raise AnnotationError(
            "this is an archive, not an Excel workbook; unpack it, and give the table in it"
        )
    if start.lstrip()[:1] == b"<" and re.search(rb"<(html|table|!doctype html)", start.lower()):
        raise AnnotationError(
            "this is a web page, which some programs write in place of .xls; open it in Excel, and "
            "save it as .xlsx or CSV"
        )


def workbook_rows(
    path: Path, sheet: str | None = None, most: int | None = None
) -> tuple[Iterator[list[str]], list[str]]:
    """Return rows of a sheet as text, and notes; see `manyhands.io.sheets.read_sheet`.

    Raises
    ------
    AnnotationError
        If it is damaged or hostile, several sheets hold data and none is named, a formula has no
        stored value, or cells below the first rows are merged across columns.
    MissingExtraError
        If openpyxl is not installed.
    """
    with _opened(path) as book:
        chosen, notes = _choose(book, sheet)
        if most is not None:
            rows = list(islice(_texts(chosen), most))
            header = _header_of(rows)
            if header < len(rows) and "" in rows[header - 1]:
                notes += _join_header(rows, _Markup.of(path, chosen.title).merged, header)
            return iter(rows), notes
        markup = _Markup.of(path, chosen.title)
        unknown = _uncomputed(path, chosen.title) if markup.has_formulas else {}
        dates: list[str] = []
        rows = list(_texts(chosen, dates))
        notes += dates
    for (row, column), formula in unknown.items():
        if row <= len(rows) and (column > len(rows[row - 1]) or not rows[row - 1][column - 1]):
            raise AnnotationError(
                f"cell {_letters(column)}{row} holds a formula ({formula[:40]!r}) without a stored "
                "value, and formulas are not computed; open the workbook in Excel and save it, or "
                "copy the column and paste it as values"
            )
    notes += _unmerge(rows, markup.merged)
    return iter(rows), notes


def _openpyxl(what: str) -> Any:
    try:
        import openpyxl  # type: ignore[import-untyped]
    except ImportError as error:
        raise_missing_extra(what, "io", error)
    return openpyxl


def check_installed() -> None:
    """Raise an error if no workbook can be written.

    Raises
    ------
    MissingExtraError
        If openpyxl is not installed.
    """
    _openpyxl("Writing an Excel workbook")


# -- reading --------------------------------------------------------------------------------------


def _choose(book: Any, name: str | None) -> tuple[Any, list[str]]:
    """Return the named sheet, or the only one that holds a table."""
    sheets = _sheets(book)
    if name is not None and name in sheets:
        return sheets[name], []
    looks = {title: _Look.of(each) for title, each in sheets.items()}
    tables, keys = _tables(sheets, looks)
    shown = ", ".join(
        f"{title!r} ({look.size})" for title, look in looks.items() if title in tables
    )
    if name is not None:
        raise AnnotationError(f"sheet={name!r} is not a sheet of the workbook; it has {shown}")
    if not tables:
        raise AnnotationError("the workbook is empty: no sheet holds anything; save it again")
    if len(tables) > 1:
        largest = max(tables, key=lambda title: len(looks[title].rows))
        alike = len(_alike(looks, tables)) > 1
        own = f". {own_work('sheet')[:1].upper()}{own_work('sheet')[1:]}" if alike else ""
        raise AnnotationError(
            f"{len(tables)} sheets hold data: {shown}. Choose one, such as sheet={largest!r}{own}"
        )
    others = [title for title in sheets if title != tables[0] and looks[title].rows]
    notes = [f"read from sheet {tables[0]!r}"] if others else []
    if others:
        notes[0] += f", not from {', '.join(map(repr, others))}; choose another with sheet="
        notes[0] += "".join(f". {title!r} {why}" for title, why in keys.items())
    return sheets[tables[0]], notes


def own_sheets(path: Path) -> tuple[list[str], list[str]]:
    """Return the sheets that hold one annotator's work each, and notes on the others.

    They are the sheets with the same columns, in any order, unless they merely list values of
    others; and sheets that have further columns besides those of the ids and the labels.

    Raises
    ------
    AnnotationError
        If the workbook cannot be read, or no two sheets have the same header.
    MissingExtraError
        If openpyxl is not installed.
    """
    with _opened(path) as book:
        sheets = _sheets(book)
        looks = {title: _Look.of(each) for title, each in sheets.items()}
        tables, keys = _tables(sheets, looks)
        titles = _alike(looks, tables) or tables[:1]
    notes = []
    names = looks[titles[0]].header if titles else []
    for title in sheets:
        if title in titles or not looks[title].rows:
            continue
        own = looks[title].header
        lacks = ", ".join(repr(name) for name in names if name not in own)
        why = keys.get(title, f"has other columns (it lacks {lacks})")
        notes.append(f"the sheet {title!r} is not read: it {why}")
        if title not in keys and len(set(names) & set(own)) > 1:
            warn_caller(
                f"{path.name}: {notes.pop()}. If it holds an annotator's work, name its columns as "
                "in the other sheets"
            )
    return titles, notes


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a workbook for reading row by row."""
    openpyxl = _openpyxl("Reading an Excel workbook")
    with zipfile.ZipFile(path) as archive:
        check_members(Path("this workbook"), archive.infolist())
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
    except Exception as error:
        raise AnnotationError(f"this is not an Excel workbook ({error}); save it again") from error
    try:
        yield book
    except AnnotationError:
        raise
    except Exception as error:  # openpyxl raises what it likes on damaged files.
        raise AnnotationError(f"this workbook is damaged ({error}); save it again") from error
    finally:
        book.close()


def _sheets(book: Any) -> dict[str, Any]:
    sheets = {each.title: each for each in book.worksheets}
    for each in sheets.values():
        each.reset_dimensions()  # The size that a file states may be wrong on purpose.
    return sheets


@dataclass(frozen=True)
class _Look:
    """First rows of a sheet that hold something, as text, up to a limit."""

    rows: list[list[str]]

    @classmethod
    def of(cls, sheet: Any) -> _Look:
        found = []
        for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            if any(value not in (None, "") for value in row):
                found.append([as_text(value).strip() for value in row])
            if len(found) >= SHOWN or number >= 100_000:
                break
        return cls(found)

    @property
    def width(self) -> int:
        """Cells of the fullest row."""
        return max((sum(map(bool, row)) for row in self.rows), default=0)

    @property
    def size(self) -> str:
        more = "more than " * (len(self.rows) >= SHOWN)
        return f"{more}{len(self.rows):,} rows, {self.width} columns"

    @property
    def header(self) -> list[str]:
        """Names of the columns: the first row of several cells."""
        rows = ([cell.casefold() for cell in row if cell] for row in self.rows)
        return next((row for row in rows if len(row) > 1), [])

    @property
    def columns(self) -> dict[str, list[str]]:
        """Cells below the header that are not empty, by the name of the column."""
        named = next((row for row in self.rows if sum(map(bool, row)) > 1), [])
        below = self.rows[self.rows.index(named) + 1 :] if named else []
        return {
            name: [row[i] for row in below if i < len(row) and row[i]]
            for i, name in enumerate(named)
            if name
        }

    def lists(self, other: _Look) -> str:
        """Return the column of another sheet whose distinct values a column of this one lists."""
        if len(self.rows) >= min(len(other.rows), SHOWN):
            return ""
        keys = [set(cells) for cells in self.columns.values() if len(set(cells)) == len(cells) > 1]
        for name, cells in other.columns.items():
            counts = Counter(cells)
            if 1 < len(counts) < len(cells) and any(
                sum(n for value, n in counts.items() if value in key) >= COVERED * len(cells)
                for key in keys
            ):
                return name
        return ""


def _tables(
    sheets: Mapping[str, Any], looks: Mapping[str, _Look]
) -> tuple[list[str], dict[str, str]]:
    """Return the sheets that may hold the table, and why the others merely list its values.

    A codebook lists the classes, and other sheets may list annotators or items. They hold each
    value once, while the table repeats it.
    """
    visible = [title for title, each in sheets.items() if each.sheet_state == "visible"]
    tables = [t for t in visible if len(looks[t].rows) > 1 < looks[t].width]
    tables = tables or [t for t in visible if looks[t].rows] or [t for t in sheets if looks[t].rows]
    keys = {}
    for title in tables:
        for other in tables:
            if other != title and (name := looks[title].lists(looks[other])):
                keys[title] = f"lists the values of the column {name!r}"
    return [title for title in tables if title not in keys], keys


def _alike(looks: Mapping[str, _Look], tables: Sequence[str]) -> list[str]:
    """Return the most sheets with the same columns, or with those of the ids and the labels.

    Columns are the same if their names are, in any order; none are returned if no two sheets have
    such columns.
    """
    headers = {title: frozenset(looks[title].header) for title in tables if looks[title].header}
    found = Counter(headers.values()).most_common(1)
    if not found:
        return []
    shared = found[0][0]
    if found[0][1] < 2:  # Columns that two sheets share, if these are enough.
        shared = max((a & b for a, b in combinations(headers.values(), 2)), key=len, default=shared)
    first = next((title for title in headers if shared <= headers[title]), None)
    cells = {} if first is None else looks[first].columns
    own = guess_own({name: cells[name] for name in cells if name.casefold() in shared})
    needed = {name.casefold() for name in own.values()} or shared
    titles = [title for title in headers if needed <= headers[title]]
    return titles if len(titles) > 1 and (own or found[0][1] > 1) else []


def _texts(sheet: Any, notes: list[str] | None = None) -> Iterator[list[str]]:
    """Yield rows of a sheet as text, each up to its last cell that holds something.

    A note is added for columns in which some cells are dates and others are not.
    """
    cells = 0
    dates: dict[int, tuple[int, Any]] = {}
    others: dict[int, int] = {}
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        cells += len(row) + 1
        if number > MOST_ROWS or cells > MOST_CELLS:
            raise AnnotationError(
                f"the sheet has more than {MOST_ROWS:,} rows or {MOST_CELLS:,} cells, most of them "
                "empty; copy the table into a new workbook, or save it as CSV"
            )
        end = len(row)
        while end and row[end - 1] in (None, ""):
            end -= 1
        for column, value in enumerate(row[:end]):
            if isinstance(value, datetime | date):
                dates.setdefault(column, (number, value))
            elif dates and value not in (None, "") and number > 1:
                others.setdefault(column, number)
        yield [as_text(value) for value in row[:end]]
    for column in dates.keys() & others.keys():
        if notes is not None:
            number, value = dates[column]
            notes.append(
                f"cell {_letters(column + 1)}{number} holds a date, {as_text(value)}, but other "
                f"cells of its column do not: Excel turns text such as 1-2 into dates. If these "
                "are not dates, format the column as text, and type them again"
            )


def as_text(value: Any) -> str:
    """Write the value of a cell as a spreadsheet would write it into CSV.

    Examples
    --------
    >>> as_text(3.0), as_text(0.1 + 0.2), as_text(True), as_text(datetime(2026, 3, 1))
    ('3', '0.3', 'TRUE', '2026-03-01')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.15g}"
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return str(value)
    return str(value)


class _Markup:
    """Formulas and merged cells, which openpyxl does not provide when it reads row by row."""

    def __init__(self) -> None:
        self.has_formulas = False
        self.merged: list[tuple[int, int, int, int]] = []

    @classmethod
    def of(cls, path: Path, title: str) -> _Markup:
        found = cls()
        with zipfile.ZipFile(path) as archive:
            member = _member_of(archive, title)
            if member is None:
                return found
            with archive.open(member) as file:
                rest = b""
                while block := file.read(2**20):
                    text = rest + block
                    found.has_formulas = found.has_formulas or bool(_FORMULA.search(text))
                    end = 0
                    for hit in _MERGED.finditer(text):
                        left, top, right, bottom = (part.decode() for part in hit.groups())
                        place = (int(top), _position(left), int(bottom), _position(right))
                        found.merged.append(place)
                        end = hit.end()
                    rest = text[max(end, len(text) - 200) :]
        return found


def _member_of(archive: zipfile.ZipFile, title: str) -> str | None:
    """Return the name of the archive member that holds a sheet."""
    book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
    relation = next(
        (
            value
            for sheet in book.iter()
            if sheet.tag.endswith("}sheet") and sheet.get("name") == title
            for name, value in sheet.attrib.items()
            if name.endswith("}id")
        ),
        None,
    )
    relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    target = next((r.get("Target") for r in relations if r.get("Id") == relation), None)
    if target is None:
        return None
    place = target[1:] if target.startswith("/") else str(PurePosixPath("xl", target))
    return place if place in archive.namelist() else None


def _position(letters: str) -> int:
    """Return the position of a column, from 1."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _letters(position: int) -> str:
    name = ""
    while position:
        position, rest = divmod(position - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _uncomputed(path: Path, title: str) -> dict[tuple[int, int], str]:
    """Return the formulas of a sheet by row and column, whether or not they were computed."""
    openpyxl = _openpyxl("Reading an Excel workbook")
    book = openpyxl.load_workbook(path, read_only=True, keep_links=False)
    try:
        sheet = book[title]
        sheet.reset_dimensions()
        found = {}
        for number, row in enumerate(sheet.iter_rows(), start=1):
            for column, cell in enumerate(row, start=1):
                if getattr(cell, "data_type", "") == "f":
                    found[number, column] = str(cell.value)
        return found
    finally:
        book.close()


def _unmerge(rows: list[list[str]], merged: Sequence[tuple[int, int, int, int]]) -> list[str]:
    """Give every row the value of its merged cells; refuse cells merged across columns."""
    spans = []
    header = _header_of(rows)
    notes = _join_header(rows, merged, header)
    for top, left, bottom, right in sorted(merged):
        if bottom > len(rows) or top > len(rows):
            bottom = min(bottom, len(rows))
        value = rows[top - 1][left - 1] if top <= len(rows) and left <= len(rows[top - 1]) else ""
        if not value or top <= header:
            continue
        if right > left:
            raise AnnotationError(
                f"cells {_letters(left)}{top}:{_letters(right)}{bottom} are merged across columns "
                f"({value[:40]!r}), so which column the value belongs to is unclear; unmerge them, "
                "or delete the row if it is a heading"
            )
        if bottom > top:
            spans.append((top, bottom, left, value))
    for top, bottom, left, value in spans:
        for row in rows[top:bottom]:
            if not any(row):
                continue
            row += [""] * (left - len(row))
            row[left - 1] = row[left - 1] or value
    if not spans:
        return notes
    top, bottom, left, value = spans[0]
    more = f", and {len(spans) - 1} more such cells" if len(spans) > 1 else ""
    return [
        *notes,
        f"cells {_letters(left)}{top} to {_letters(left)}{bottom} are merged{more}: "
        f"{value[:40]!r} counts in each of their rows",
    ]


def _header_of(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of the first row with several cells."""
    return next((i for i, row in enumerate(rows, 1) if sum(map(bool, row)) > 1), 1)


def _join_header(
    rows: list[list[str]], merged: Sequence[tuple[int, int, int, int]], header: int
) -> list[str]:
    """Join two rows into one header, if merged cells of the first have names below them."""
    over = [span for span in merged if span[0] == header == span[2] and span[3] > span[1]]
    if not over or header >= len(rows):
        return []
    upper, lower = rows[header - 1], rows[header]
    n = max(len(upper), len(lower))
    upper, lower = (row + [""] * (n - len(row)) for row in (upper, lower))
    _, left, _, right = over[0]
    if not all(all(lower[place - 1 : end]) for _, place, _, end in over):
        return []
    rows[header - 1], rows[header] = [], [b or a for a, b in zip(upper, lower, strict=True)]
    return [
        f"rows {header} and {header + 1} are read as one header, because the cells "
        f"{_letters(left)}{header}:{_letters(right)}{header} are merged above names"
    ]


# -- writing --------------------------------------------------------------------------------------


def write_workbook(columns: Mapping[str, Sequence[Any]], title: str = "manyhands") -> bytes:
    """Write columns as a workbook of one sheet with a frozen header.

    Text is stored as text, so a cell such as ``=SUM(A1)`` is never run, and "007" keeps its
    zeros. None is an empty cell.

    Raises
    ------
    AnnotationError
        If there are more rows, or longer texts, than Excel holds.
    WriteError
        If the temporary file, in which openpyxl keeps the sheet, cannot be written.
    MissingExtraError
        If openpyxl is not installed.
    """
    openpyxl = _openpyxl("Writing an Excel workbook")
    from openpyxl.cell import WriteOnlyCell  # type: ignore[import-untyped]
    from openpyxl.styles import Font  # type: ignore[import-untyped]

    _check_fits(columns)
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet(title)
    sheet.freeze_panes = "A2"

    def cell(value: Any) -> Any:
        if hasattr(value, "item"):
            value = value.item()
        if value is None or (isinstance(value, float) and value != value):
            return None
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float) and abs(value) < LARGEST_NUMBER:
            return value
        return _as_text_cell(WriteOnlyCell(sheet, None), str(value))

    head = [_as_text_cell(WriteOnlyCell(sheet, None), name) for name in columns]
    for each in head:
        each.font = Font(bold=True)
    content = io.BytesIO()
    try:
        sheet.append(head)
        for values in zip(*columns.values(), strict=True):
            sheet.append([cell(value) for value in values])
        book.save(content)
    except OSError as error:  # openpyxl keeps the sheet in a temporary file.
        raise WriteError(error.errno, explain(error, Path(tempfile.gettempdir()))) from error
    return content.getvalue()


def _check_fits(columns: Mapping[str, Sequence[Any]]) -> None:
    n = len(next(iter(columns.values()), ()))
    if n >= MOST_ROWS:
        raise AnnotationError(
            f"{n:,} rows are more than a sheet of Excel holds ({MOST_ROWS - 1:,}); write .csv or "
            ".parquet"
        )
    for name, values in columns.items():
        for row, value in enumerate(values, start=2):
            if isinstance(value, str) and len(value) > LONGEST_CELL:
                raise AnnotationError(
                    f"column {name!r}, row {row} has a text of {len(value):,} characters, but a "
                    f"cell of Excel holds {LONGEST_CELL:,}; write .csv or .parquet"
                )


def _as_text_cell(cell: Any, text: str) -> Any:
    """Store text such that no program takes it for a formula, a number or an error."""
    text = _ESCAPED.sub(lambda found: f"_x005F{found[0]}", text)
    text = _CONTROLS.sub(lambda found: f"_x{ord(found[0]):04X}_", text)
    cell.value = text
    cell.data_type = "s"
    if text[:1] in ("=", "+", "-", "@"):
        cell.quotePrefix = True  # It stays text even if somebody edits it.
    return cell
