"""Reading tables of text and workbooks as a spreadsheet shows them, for all layouts.

Rows are numbered as in a spreadsheet: the first row is 1, a cell with line breaks does not add
rows, and blank rows are counted although they are skipped.
"""

from __future__ import annotations

import csv
import gc
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

from manyhands.annotations.frames import row_numbers
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io import encodings
from manyhands.io.encodings import check_encoding, find_encoding, holds_nul, too_long
from manyhands.io.workbooks import is_workbook, refuse_other_programs, workbook_rows

MARKS: Final = (",", "\t", ";", "|", "^", "~", "::")
"""Separators that are recognised."""

NO_NAMES: Final = (
    "have no name; name all columns in one row. If names stand in the row below, too, write all of "
    "them there, and delete the row above"
)
"""Advice about a header with gaps."""

TORN: Final = (
    "The file has stray carriage returns, which may end rows before their last column. Remove them "
    "(in a shell: tr -d '\\r' < FILE > NEW)"
)
"""Advice about rows that end in two ways."""

UNIT: Final = "\x1f"
"""Character that replaces a separator of several characters, which the csv module cannot read."""

SAMPLED: Final = 100
"""Number of lines from which the separator is found."""

TITLES: Final = 20
"""Largest number of rows above a header."""

_TOTALS = """
total totals sum average avg mean median count subtotal min max n % percent percentage pct share
prozent anteil pourcentage porcentaje percentuale procent
summe gesamt gesamtsumme insgesamt mittelwert durchschnitt schnitt anzahl
somme moyenne nombre suma promedio recuento media totale conteggio soma média contagem
totaal som gemiddelde aantal razem średnia celkem součet průměr összesen átlag
yhteensä summa medelvärde gjennomsnitt gennemsnit итого всего сумма среднее toplam ortalama
合計 平均 合计 总计 평균 합계
"""

TOTALS: Final = frozenset(_TOTALS.split())
"""First words of rows that hold totals of the rows above."""


@dataclass(frozen=True)
class Stated:
    """Properties of tables that the caller states, because their content does not show them.

    Attributes
    ----------
    encoding : str or None
        Encoding of text that is neither UTF-8 nor begins with a byte order mark.
    separator : str or None
        Separator of the cells, if it occurs in the file.
    sheet : str or None
        Name of the sheet of a workbook.
    every_sheet : bool
        Whether every sheet of a workbook is a table of its own.
    """

    encoding: str | None = None
    separator: str | None = None
    sheet: str | None = None
    every_sheet: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises
        ------
        AnnotationError
        """
        if self.encoding is not None:
            check_encoding(self.encoding)
        mark = self.separator
        if mark is not None:
            named = {"tab": "\t", r"\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
            object.__setattr__(self, "separator", named.get(mark.lower(), mark))
        mark = self.separator
        if mark is not None and (not mark or set(mark) & set('"\r\n') or mark.isalnum()):
            raise AnnotationError(
                f"separator={mark!r} is not a separator; give the characters between the cells, "
                "such as ';', '::' or 'tab'"
            )


UNSTATED: Final = Stated()


def stated_of(options: Mapping[str, Any]) -> Stated:
    """Return what the options of a reader state about its tables."""
    encoding, separator, sheet = map(options.get, ("encoding", "separator", "sheet"))
    return Stated(encoding, separator, sheet)


@dataclass
class Sheet:
    """A table of cells.

    Attributes
    ----------
    header : list of str
        Names of the columns, without blanks around them.
    numbers : list of int
        The number of every row below the header, as a spreadsheet shows it.
    rows : list of list of str
        Cells of these rows. A row may have fewer cells than the header, or more.
    top : int
        Number of the header's row.
    separator : str
        Separator of the cells; "" for a workbook.
    notes : list of str
        Messages about what was assumed or skipped.
    complete : bool
        Whether all rows were read.
    is_torn : bool
        Whether some rows end with a carriage return alone, and others with a line feed. Programs
        that add a column to a file from Windows may leave the carriage return in the row.
    """

    header: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    top: int = 1
    separator: str = ","
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    is_torn: bool = False

    def columns(self) -> list[tuple[str, ...]]:
        """Return columns of equal length, with empty cells where a row is short.

        Raises
        ------
        AnnotationError
            If a row has more cells than the header names.
        """
        n = len(self.header)
        if self.rows and all(map(n.__eq__, map(len, self.rows))):
            return [tuple(map(itemgetter(k), self.rows)) for k in range(n)]
        full = []
        for number, row in zip(self.numbers, self.rows, strict=True):
            if len(row) > n:
                advice = "Name every column" + (
                    f", or put texts that hold {self.separator!r} in quotes" * bool(self.separator)
                )
                raise AnnotationError(
                    f"row {number} has {len(row)} fields, but the header has {n}; the first one "
                    f"too many is {row[n][:40]!r}. {TORN if self.is_torn else advice}"
                )
            full.append(row if len(row) == n else row + [""] * (n - len(row)))
        return list(zip(*full, strict=True)) if full else [()] * n

    def check(self) -> None:
        """Refuse a header without names or with a repeated name, and a table without rows.

        Raises
        ------
        AnnotationError
            In these cases.
        """
        if not any(self.header):
            raise AnnotationError("the file has no header; the first line must name the columns")
        twice = [name for name, n in Counter(self.header).items() if n > 1]
        if twice:
            where = [letters_of(i) for i, name in enumerate(self.header) if name == twice[0]]
            shown = f"{' and '.join(where[:2])} of row {self.top}"
            if not twice[0]:
                raise AnnotationError(f"the columns {shown} {NO_NAMES}")
            raise AnnotationError(
                f"column {twice[0]!r} occurs twice in the header (columns {shown}); rename one"
            )
        if not self.rows:
            shown = ", ".join(map(repr, self.header[:3])) + " ..." * (len(self.header) > 3)
            raise AnnotationError(f"the file has a header ({shown}) but no rows; export it again")


def letters_of(position: int) -> str:
    """Return the name of a column in spreadsheets, from its position.

    Examples
    --------
    >>> letters_of(0), letters_of(27)
    ('A', 'AB')
    """
    name = ""
    position += 1
    while position:
        position, rest = divmod(position - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def read_sheet(path: Path, stated: Stated = UNSTATED, most: int | None = None) -> Sheet:
    """Read a table of text, compressed or not, or a workbook; or about so many of its first rows.

    Raises
    ------
    AnnotationError
        If the file is neither, damaged or hostile; if its encoding, separator or sheet is unclear;
        or if its last row holds totals.
    MissingExtraError
        If it is a workbook and openpyxl is missing, or in a code page and charset-normalizer is.
    """
    refuse_other_programs(path)
    if is_workbook(path):
        rows, notes = workbook_rows(path, stated.sheet, most)
        sheet = sheet_of(rows, separator="", most=None if most is None else most - 2)
        sheet.notes[:0] = notes
        # A workbook does not store empty cells at the ends of rows.
        n = len(sheet.header)
        return replace(sheet, rows=[row + [""] * (n - len(row)) for row in sheet.rows])
    with opened(path) as file:
        return read_text(file, stated, most)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, which may be compressed with gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    opener: Any = gzip.open if packed else open
    try:
        with opener(path, "rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise AnnotationError(
            f"the archive is damaged or incomplete ({error}); export it again"
        ) from error


def read_text(file: IO[bytes], stated: Stated = UNSTATED, most: int | None = None) -> Sheet:
    """Read a table of text from a binary file, or its first rows; see `read_sheet`."""
    if stated.sheet is not None:
        raise AnnotationError(
            f"sheet={stated.sheet!r} names a sheet of a workbook, but this is a table of text; "
            "leave it out"
        )
    encoding = find_encoding(file, stated.encoding, whole=most is None)
    with decoded(file, encoding.name) as text:
        separator, skipped = separator_of(list(sampled(limited_lines(text))), stated.separator)
        text.seek(0)
        # Lines that were checked already need no limit.
        lines = iter(text) if encoding.checked else limited_lines(text)
        for _ in range(skipped):
            next(lines)
        sheet = sheet_of(cells_of(lines, separator), most=most, separator=separator)
        ends = text.newlines
        sheet.is_torn = isinstance(ends, tuple) and "\r" in ends
    if stated.separator not in (None, separator):
        sheet.notes.append(
            f"separator={stated.separator!r} does not occur, so rows are divided at {separator!r}"
        )
    if encoding.note is not None and encoding.doubt and most is None:
        warn_caller(encoding.note)
    elif encoding.note is not None:
        sheet.notes.insert(0, encoding.note)
    return sheet


@contextmanager
def decoded(file: IO[bytes], encoding: str, name: str = "") -> Iterator[io.TextIOWrapper]:
    """Open a file as text; errors say which line has another encoding."""
    file.seek(0)
    text = io.TextIOWrapper(file, encoding=encoding, newline="")
    try:
        yield text
    except UnicodeError as error:
        line = _undecodable_line(file, encoding)
        byte = ""
        if isinstance(error, UnicodeDecodeError):
            byte = f" (byte {error.object[error.start]:#04x})"
        raise AnnotationError(
            f"{_of(name)}line {line} is not {encoding.removesuffix('-sig').upper()} text{byte}. "
            "Save the whole file in UTF-8"
        ) from error
    finally:
        text.detach()


def _of(name: str) -> str:
    return f"{name}: " if name else ""


def _undecodable_line(file: IO[bytes], encoding: str) -> str:
    if encoding.startswith("utf-16"):
        return "1 or a later one"
    file.seek(0)
    for number, line in enumerate(
        iter(lambda: file.readline(encodings.LONGEST_LINE), b""), start=1
    ):
        try:
            line.decode(encoding)
        except UnicodeDecodeError:
            return f"{number:,}"
    return "1 or a later one"


def limited_lines(text: io.TextIOWrapper, name: str = "") -> Iterator[str]:
    """Yield lines of limited length that hold no NUL."""
    longest = encodings.LONGEST_LINE
    for number, line in enumerate(iter(lambda: text.readline(longest + 1), ""), start=1):
        if len(line) > longest:
            raise AnnotationError(f"{_of(name)}{too_long(number)}")
        if "\0" in line:
            raise AnnotationError(f"{_of(name)}{holds_nul(number)}")
        yield line


# -- cells ----------------------------------------------------------------------------------------


@contextmanager
def long_fields() -> Iterator[None]:
    """Let the csv module read cells as long as the longest line."""
    before = csv.field_size_limit(encodings.LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def cells_of(lines: Iterable[str], separator: str, name: str = "") -> Iterator[list[str]]:
    """Yield the cells of every row, blank rows included.

    Raises
    ------
    AnnotationError
        If a quotation mark is not closed.
    """
    number = 0
    try:
        with long_fields():
            for row in _cut_lines(lines, separator, strict=True):
                number += 1
                yield row
    except csv.Error as error:
        raise AnnotationError(
            f"{_of(name)}after row {number:,}: {error}; a quotation mark is not closed, or the "
            "file is damaged. Export it again"
        ) from error


def _cut_lines(lines: Iterable[str], mark: str, *, strict: bool = False) -> Iterator[list[str]]:
    """Cut lines into cells by a separator of any length."""
    spaced = mark != "\t"
    if len(mark) == 1:
        yield from csv.reader(lines, delimiter=mark, strict=strict, skipinitialspace=spaced)
        return
    joined = (line.replace(mark, UNIT) for line in lines)
    for row in csv.reader(joined, delimiter=UNIT, strict=strict, skipinitialspace=spaced):
        yield [cell.replace(UNIT, mark) for cell in row]


def sampled(lines: Iterator[str]) -> Iterator[str]:
    """Yield the first lines that are not blank, from which the separator is found."""
    found = 0
    for line in lines:
        if line.strip():
            found += 1
            yield line
        if found == SAMPLED:
            return


def separator_of(sample: Sequence[str], stated: str | None = None) -> tuple[str, int]:
    """Return the separator of a table, from its first lines, and how many lines declare it.

    Raises
    ------
    AnnotationError
        If two separators divide the lines equally well.

    Examples
    --------
    >>> separator_of(["id;note", "1;0,5", "2;0,75"])
    (';', 0)
    """
    declared = re.fullmatch(r'"?sep=(.)"?\s*', sample[0], re.IGNORECASE) if sample else None
    if declared is not None:
        return declared[1], 1
    if stated is not None and any(stated in line for line in sample):
        return stated, 0
    cuts = {mark: cut for mark in MARKS if (cut := _Cut.of(sample, mark)) is not None}
    if not cuts:
        wide = [mark for mark in MARKS if sample and mark in sample[0]]
        return (wide[0] if len(wide) == 1 else ","), 0
    best = min(cut.rank for cut in cuts.values())
    found = [mark for mark, cut in cuts.items() if cut.rank == best]
    if len(found) > 1:
        choices = "; or ".join(
            f"by {mark!r} into {len(cuts[mark].header)} columns ("
            f"{', '.join(repr(name[:20]) for name in cuts[mark].header[:3])})"
            for mark in found
        )
        raise AnnotationError(
            f"the separator of the cells is unclear: the rows can be divided {choices}. State the "
            f"separator, such as separator={found[0]!r}"
        )
    return found[0], 0


@dataclass(frozen=True)
class _Cut:
    """Lines cut by one separator: where the table begins, and how even it is."""

    begin: int
    even: bool
    share: float
    header: list[str]

    @property
    def rank(self) -> tuple[int, bool, float]:
        """The smallest is the best."""
        return self.begin, not self.even, -self.share

    @classmethod
    def of(cls, sample: Sequence[str], mark: str) -> _Cut | None:
        """Cut lines; None if the separator cuts few of them."""
        with long_fields():
            rows = list(_cut_lines(sample, mark))
        widths = [len(row) for row in rows]
        if len(rows) > 2:  # The sample may end within a quotation.
            widths.pop()
        if not widths or max(widths) < 2:
            return None
        usual = Counter(widths).most_common(1)[0][0]
        if usual < 2 and widths[0] < 2:
            return None
        begin = next(i for i, width in enumerate(widths) if width >= 2)
        usual = max(usual, 2)
        share = sum(width == usual for width in widths[begin:]) / (len(widths) - begin)
        return cls(begin, len(set(widths[begin:])) == 1, share, rows[begin])


# -- rows -----------------------------------------------------------------------------------------


def sheet_of(
    rows: Iterable[list[str]], *, first: int = 1, most: int | None = None, separator: str = ","
) -> Sheet:
    """Make a table of rows; skip blank rows and titles above the header, and refuse totals.

    Parameters
    ----------
    rows : iterable of list of str
        All rows of a file, including blank ones.
    first : int
        Number of the first row.
    most : int, optional
        Read only this many rows below the header.
    separator : str
        Separator of the cells; "" for a workbook.

    Raises
    ------
    AnnotationError
        If the last row holds totals.
    """
    sheet = Sheet(separator=separator)
    blank: list[int] = []
    # Ids and labels recur: each is held once, which saves most of the memory of long tables.
    once = {}.setdefault  # type: ignore[var-annotated]
    with _no_collection():
        for number, row in enumerate(rows, start=first):
            if not (row and row[0].strip()) and not "".join(row).strip():
                blank.append(number)
                continue
            if most is not None and len(sheet.rows) > most:
                sheet.complete = False
                break
            sheet.numbers.append(number)
            sheet.rows.append([once(cell, cell) for cell in row])
    if not sheet.rows:
        return sheet
    above = _titles(sheet)
    if above:
        shown = ", ".join(
            repr(next(c for c in row if c.strip())[:40]) for row in sheet.rows[:above]
        )
        sheet.notes.append(
            f"{_rows(sheet.numbers[:above], 'stands', 'stand')} above the header (row "
            f"{sheet.numbers[above]}) and {'was' if above == 1 else 'were'} skipped: {shown}"
        )
    sheet.top = sheet.numbers[above]
    sheet.header = [_LINES.sub(" ", name.strip().strip("\ufeff")) for name in sheet.rows[above]]
    del sheet.rows[: above + 1], sheet.numbers[: above + 1]
    _unquote_rows(sheet)
    _drop_repeated_header(sheet)
    last = sheet.numbers[-1] if sheet.numbers else sheet.top
    blank = [number for number in blank if sheet.top < number < last]
    if blank:
        sheet.notes.append(
            f"{_rows(blank, 'is', 'are')} blank and {'was' if len(blank) == 1 else 'were'} skipped"
        )
    _trim(sheet)
    _note_shortened(sheet)
    _note_dates(sheet)
    if sheet.complete:
        _refuse_totals(sheet)
    return sheet


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch garbage collection off, which would take most of the time for many lists."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _rows(numbers: Sequence[int], one: str, several: str) -> str:
    """Write the numbers of rows with a verb: "rows 102, 118 and 6 more are"."""
    return f"{row_numbers(numbers)} {one if len(numbers) == 1 else several}"


def _filled(row: Sequence[str]) -> list[str]:
    return [cell for cell in row if cell.strip()]


def _titles(sheet: Sheet) -> int:
    """Count the rows above the header: titles of one cell, or rows that a blank row separates.

    The header must have distinct names that are not numbers, and more of them than the rows above
    have cells; most rows below must have more cells, too. So a table without a header keeps its
    first row.
    """
    n = min(len(sheet.rows) - 1, TITLES)
    filled = [_filled(row) for row in sheet.rows[: n + 50]]
    if _is_single(sheet.rows[0]):
        return 0
    for i in range(n, 0, -1):
        names, widest = filled[i], max(map(len, filled[:i]))
        apart = sheet.numbers[i] - sheet.numbers[i - 1] > 1
        if not (widest == 1 or apart) or not len(names) == len(set(names)) > widest:
            continue
        below = filled[i + 1 : i + 50]
        if any(map(_is_number, names)) or sum(len(r) > widest for r in below) < len(below) / 2:
            continue
        later = {cell for row in filled[i:] for cell in row}
        if not any(cell in later for row in filled[:i] for cell in row):
            return i
    return 0


_NAMES: Final = re.compile(
    r"(text|task|item|id|label|sentence|question|comment|answer|title)s?$", re.I
)


def _is_single(row: Sequence[str]) -> bool:
    """Return whether a row without separators names the only column of a file of texts."""
    return len(row) == 1 and bool(_NAMES.search(row[0].strip()))


_LINES = re.compile(r"\s*[\r\n]+\s*")

_SHORTENED = re.compile(r"\d(\.\d+)?E\+\d\d")


def _note_shortened(sheet: Sheet) -> None:
    """Note that a spreadsheet shortened long numbers, so that different ids may be equal."""
    for number, row in zip(sheet.numbers[:50], sheet.rows[:50], strict=True):
        for name, cell in zip(sheet.header, row, strict=False):
            if _SHORTENED.fullmatch(cell.strip()):
                sheet.notes.append(
                    f"column {name!r} holds {cell!r} (row {number}), as spreadsheets shorten long "
                    "numbers, so the last digits of ids are lost. Export the original again, "
                    "and open it with that column as text"
                )
                return


_MONTHS = "jan|feb|mar|mär|mrz|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez"
_DATED = re.compile(rf"\d{{1,2}}[-. ]({_MONTHS})[a-z]*\.?|({_MONTHS})[a-z]*\.?[- ]\d\d", re.I)
DATED_ROWS: Final = 20_000
"""Number of rows in which ids that became dates are looked for."""


def _note_dates(sheet: Sheet) -> None:
    """Note that a spreadsheet turned some names of a column into dates, such as MARCH1 to 1-Mar."""
    places: dict[int, int] = {}
    for i, row in enumerate(sheet.rows[:DATED_ROWS]):
        for place, cell in enumerate(row):
            if 4 < len(cell) < 9 and place not in places and _DATED.fullmatch(cell.strip()):
                places[place] = i
    for place, i in places.items():
        cells = [row[place] if place < len(row) else "" for row in sheet.rows[:DATED_ROWS]]
        if place < len(sheet.header) and not all(_DATED.fullmatch(c.strip()) for c in cells if c):
            sheet.notes.append(
                f"column {sheet.header[place]!r} holds {cells[i]!r} (row {sheet.numbers[i]}), "
                "which looks like a date, but other cells of its column do not: spreadsheets turn "
                "names such as MARCH1 and text such as 1-2 into dates. If these are not dates, "
                "export the original again, and open it with that column as text"
            )


def _unquote_rows(sheet: Sheet) -> None:
    """Divide rows that were saved as one quoted cell each, with the separators inside."""
    if len(sheet.header) != 1 or any(len(row) != 1 for row in sheet.rows):
        return
    lines = [sheet.header[0], *(row[0] for row in sheet.rows)]
    for mark in MARKS:
        if mark in lines[0]:
            rows = list(_cut_lines(lines, mark))
            if len({len(row) for row in rows}) == 1 and len(rows) == len(lines):
                sheet.header, sheet.rows, sheet.separator = rows[0], rows[1:], mark
                sheet.notes.append(
                    f"every row was one cell in quotes, and was divided at {mark!r} into "
                    f"{len(rows[0])} columns"
                )
                return


def _drop_repeated_header(sheet: Sheet) -> None:
    """Skip the rows below the header in which Qualtrics describes its columns."""
    for i in range(min(2, len(sheet.rows))):
        cells = _filled(sheet.rows[i])
        if cells and all(cell.startswith('{"ImportId"') for cell in cells):
            described = sheet.numbers[: i + 1]
            sheet.notes.append(
                f"{_rows(described, 'describes', 'describe')} the columns (Qualtrics) and "
                f"{'was' if i == 0 else 'were'} skipped"
            )
            del sheet.rows[: i + 1], sheet.numbers[: i + 1]
            return


def _trim(sheet: Sheet) -> None:
    """Drop empty cells at the ends of rows beyond the columns of the header."""
    n = len(sheet.header)
    while n and not sheet.header[n - 1]:
        if any(len(row) >= n and row[n - 1].strip() for row in sheet.rows):
            break
        n -= 1
    sheet.header = sheet.header[:n]
    for i, row in enumerate(sheet.rows):
        if len(row) > n and not "".join(row[n:]).strip():
            sheet.rows[i] = row[:n]


# -- totals ---------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[-+]?[\d.,'\u00a0\u202f ]*\d[\d.,]*\s*%?|[-+]?\d+(\.\d+)?[eE][-+]?\d+")


def _is_number(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell.strip()))


def _refuse_totals(sheet: Sheet) -> None:
    """Refuse rows at the end that hold totals of the rows above."""
    if below := _numbers_below_words(sheet.rows):
        shown = ", ".join(repr(cell) for cell in sheet.rows[-below][:4])
        raise AnnotationError(
            f"{_rows(sheet.numbers[-below:], 'holds', 'hold')} numbers where all rows above hold "
            f"words ({shown}), as totals do; delete {'it' if below == 1 else 'them'}, and save the "
            "file again. If it is an item, write its labels as in the other rows"
        )
    found = after = 0
    # A row with another name may follow a total, such as shares below sums.
    while after < min(3, len(sheet.rows) - 2) and not _looks_total(sheet.rows[-1 - after]):
        if not _holds_numbers(sheet.rows[-1 - after]):
            break
        after += 1
    if after and not _looks_total(sheet.rows[-1 - after]):
        after = 0
    if after:
        cut = len(sheet.rows) - after
        position = next(i for i, cell in enumerate(sheet.rows[cut - 1]) if cell.strip())
        if not _sums_up(sheet.rows[cut - 1], sheet.rows[: cut - 1], position):
            after = 0
    while found + after < min(5 + after, len(sheet.rows) - 1) and _looks_total(
        sheet.rows[-1 - found - after]
    ):
        found += 1
    if not found:
        return
    found += after
    above = len(sheet.rows) - found
    # Each group of rows may be followed by a total of the same name, or by a subtotal.
    names = {_first(row).strip().casefold() for row in sheet.rows[above:]}
    looking = [i for i in range(above) if _looks_total(sheet.rows[i])]
    titles = {i: _first(sheet.rows[i]).strip().casefold() for i in looking}
    inner = [i for i, title in titles.items() if title in names or title.startswith("sub")]
    places = [*inner, *range(above, len(sheet.rows))]
    body = [row for i, row in enumerate(sheet.rows[:above]) if i not in set(inner)]
    totals = [sheet.rows[i] for i in places]
    position = next(i for i, cell in enumerate(totals[-1]) if cell.strip())
    if not body or not any(_sums_up(row, body, position) for row in totals):
        sheet.notes.append(
            f"the last row ({sheet.numbers[-1]}) begins with {_first(totals[-1])!r} and is read "
            "as data; if it sums up the rows above, delete it"
        )
        return
    shown = ", ".join(repr(cell) for cell in totals[0][:4])
    raise AnnotationError(
        f"{_rows([sheet.numbers[i] for i in places], 'holds', 'hold')} totals of the rows above "
        f"({shown}), not an annotation; delete {'it' if len(places) == 1 else 'them'}, and save "
        "the file again"
    )


def _numbers_below_words(rows: Sequence[Sequence[str]]) -> int:
    """Count the rows at the end with numbers in columns that hold words everywhere above.

    A row counts if it has two such numbers, or one and a gap in a column that is full above.
    """
    n = 0
    while n < min(5, len(rows) - 3) and _holds_numbers(rows[-1 - n]):
        n += 1
    if not n:
        return 0
    body, last = rows[:-n], rows[-n:]
    numbers = {i for row in last for i in _places_of_numbers(row)}
    filled: Counter[int] = Counter()
    for row in body:
        for i, cell in enumerate(row):
            if cell.strip():
                if i in numbers and _is_number(cell):
                    return 0
                filled[i] += 1
    full = {i for i, k in filled.items() if k > 0.9 * len(body)}
    for row in last:
        own = _places_of_numbers(row)
        gaps = [i for i in full if i >= len(row) or not row[i].strip()]
        if not all(filled[i] > 1 for i in own) or (len(own) < 2 and not gaps):
            return 0
    return n


def _places_of_numbers(row: Sequence[str]) -> list[int]:
    """Return the positions of the numbers of a row, without its name."""
    places = [i for i, cell in enumerate(row) if cell.strip()]
    return [i for i in places if i and _is_number(row[i])]


def _holds_numbers(row: Sequence[str]) -> bool:
    """Return whether a row holds numbers, and nothing else but a name."""
    cells = _filled(row)
    others = cells[1:] if cells and not _is_number(cells[0]) else cells
    return bool(_places_of_numbers(row)) and all(map(_is_number, others))


def _first(row: Sequence[str]) -> str:
    return next((cell for cell in row if cell.strip()), "")


def _looks_total(row: Sequence[str]) -> bool:
    """Return whether a row is named a total and otherwise holds numbers or empty cells."""
    if row[0].strip() and row[0].strip()[:1].isdigit():  # A quick check that covers most ids.
        return False
    name, *others = _filled(row)
    words = re.split(r"[\s:/]+", name.strip().casefold().strip(":*() "))
    named = bool(TOTALS & {words[0], words[-1], "".join(words)}) and len(words) <= 3
    return named and all(map(_is_number, others))


def _sums_up(row: Sequence[str], body: Sequence[Sequence[str]], position: int) -> bool:
    """Return whether a row lacks cells that others have, or holds only column statistics."""
    n = len(row)
    matches = []
    for i in range(max(map(len, body))):
        cell = row[i].strip() if i < n else ""
        column = [other[i].strip() if i < len(other) else "" for other in body]
        is_full = sum(map(bool, column)) > 0.9 * len(column)
        if i == position:
            continue
        values = [float(v) for v in map(_plain, column) if v is not None]
        if is_full and (not cell or not values):
            return True  # A gap where other rows have values, or a number below texts.
        total = _plain(cell)
        if total is not None and values:
            matches.append(_is_statistic(total, values, len(column)))
    return len(body) > 1 and bool(matches) and all(matches)


def _is_statistic(total: str, values: Sequence[float], n: int) -> bool:
    """Return whether a number is the sum, the count or the rounded mean of others."""
    digits = len(total.partition(".")[2])
    near = 0.51 * 10**-digits if digits else 1e-9
    known = [sum(values), len(values), n]
    if len(set(values)) > 1:  # The mean of equal numbers proves nothing.
        known += [sum(values) / len(values), 100 * sum(values) / len(values)]
    return any(abs(value - float(total)) <= near for value in known)


def _plain(cell: str) -> str | None:
    """Return a number with a decimal point; None if the cell is no number."""
    text = cell.strip().removesuffix("%").strip()
    if re.fullmatch(r"[-+]?\d+(\.\d+)?", text):
        return text
    if re.fullmatch(r"[-+]?\d+,\d+", text):
        return text.replace(",", ".")
    return None
