"""Opening files, folders, archives and workbooks.

Nothing is written or executed, and an archive is never unpacked to the disk.
"""

from __future__ import annotations

import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.io.archives import MOST_FILES, bomb, check_members
from manyhands.io.exports.inception import INCEPTION
from manyhands.io.exports.parsing import Document, as_table, parse
from manyhands.io.files import PathLike, existing_file, naming
from manyhands.io.sheets import UNSTATED, Stated, read_sheet
from manyhands.io.workbooks import own_sheets, refuse_other_programs

DATA = frozenset({".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".zip", ".xlsx", ".parquet", ".pq"})
"""Suffixes of files in a folder or archive that must be readable; others may be left out."""


def open_documents(
    path: PathLike, most: int | None = None, stated: Stated = UNSTATED
) -> list[Document]:
    """Open a file, every file of a folder, or every member of an archive.

    Parameters
    ----------
    path : str or Path
    most : int, optional
        Read only this many lines of a file, to recognise its format.
    stated : Stated
        Encoding, separator and sheet of tables, if their content does not show them.

    Raises
    ------
    FileNotFoundError
        If the path does not exist.
    AnnotationError
        If a file cannot be read safely.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path, stated)
    path = existing_file(path)
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"\xd0\xcf\x11\xe0" or start.lstrip()[:1] == b"<":
        with naming(path):
            refuse_other_programs(path)
    if start == b"PK\x03\x04":
        return _archive(path, stated, most)
    if start == b"PAR1":
        return [_parquet(path, most)]
    opener: Any = gzip.open if start[:2] == b"\x1f\x8b" else open
    document = Document(str(path), PurePosixPath(path.name), beside=path.parent, most=most)
    with unpacking(path), opener(path, "rb") as file:
        parse(file, document, stated)
    return [document]


@contextmanager
def unpacking(path: Path) -> Iterator[None]:
    """Convert errors of a damaged gzip file."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise AnnotationError(
            f"{path}: the archive is damaged ({error}); export it again"
        ) from error


def _folder(path: Path, stated: Stated) -> list[Document]:
    if (path / "manifest.json").is_file() and (path / "shards").is_dir():
        raise AnnotationError(
            f"{path} is an annotation store, but a table or an export is needed here; give the "
            "files that were ingested (describe, agreement and aggregate can read a store)"
        )
    files = sorted(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p, path))
    if len(files) > MOST_FILES:
        raise AnnotationError(
            f"{path} holds {len(files):,} files, more than {MOST_FILES:,}; give a smaller folder"
        )
    # brat's texts are beside its annotations, and are not annotations themselves.
    files = [p for p in files if p.suffix != ".txt" or not p.with_suffix(".ann").exists()]
    responses = [p for p in files if "worker-response" in p.relative_to(path).parts]
    found = []
    for file in responses or files:
        place = PurePosixPath(file.relative_to(path).as_posix())
        try:
            opened = open_documents(file, stated=stated)
        except AnnotationError:
            if _is_data(place) and file.stat().st_size:
                raise
            opened = [Document(str(file), place)]
        for document in opened:
            if not document.archived:
                document.path = place
            found.append(document)
    if any((path / name).is_dir() for name in (".ingest", ".pieces")):
        raise AnnotationError(
            f"{path} holds an unfinished ingest, not a store; run the same command again to "
            "complete it"
        )
    if not found:
        raise AnnotationError(
            f"{path} is an empty folder; give a file, or a folder that holds files"
        )
    return found


def _is_data(name: PurePosixPath) -> bool:
    """Return whether a file that cannot be read is likely to be part of an export."""
    return any(suffix.lower() in DATA for suffix in name.suffixes)


def _is_hidden(path: Path, root: Path) -> bool:
    return path.is_symlink() or any(p[:1] in "._" for p in path.relative_to(root).parts)


# -- archives -------------------------------------------------------------------------------------


def _archive(path: Path, stated: Stated, most: int | None) -> list[Document]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            check_members(path, members)
            names = {m.filename for m in members}
            if "xl/workbook.xml" in names:
                return _workbook(path, stated, most)
            if "mimetype" in names and "content.xml" in names:
                with naming(path):
                    refuse_other_programs(path)
            if {"annotation", "source"} <= {n.split("/")[0] for n in names}:
                raise AnnotationError(f"{path}: {INCEPTION}")
            if len({n.lower() for n in names}) < len(members):
                raise AnnotationError(f"{path}: two members have the same name; export it again")
            return [_member(path, archive, m, stated) for m in members if _is_content(m.filename)]
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise AnnotationError(
            f"{path}: the archive cannot be read ({error}); unpack it yourself, or export it again"
        ) from error


def _is_content(name: str) -> bool:
    return not any(part[:1] in "._" for part in PurePosixPath(name).parts)


def _member(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, stated: Stated
) -> Document:
    with archive.open(member) as file:
        # The size that an archive states may be wrong on purpose.
        content = file.read(member.file_size + 1)
    if len(content) > member.file_size:
        raise bomb(path, member.filename, "is larger than the archive says")
    name = PurePosixPath(member.filename)
    document = Document(f"{path}, member {member.filename!r}", name, archive=path.stem)
    if content[:4] == b"PK\x03\x04":
        return document  # Archives within archives are never opened.
    try:
        parse(io.BytesIO(content), document, stated)
    except AnnotationError:
        if _is_data(name) and content:
            raise
        return Document(document.name, name, archive=path.stem)
    return document


def _parquet(path: Path, most: int | None) -> Document:
    """Read the rows of a Parquet file as records."""
    document = Document(str(path), PurePosixPath(path.name), "records", beside=path.parent)
    for share, _, add in parquet_pieces(path, rows=most or 65_536):
        add(document)
        if most is not None:
            document.complete = share == 1.0
            break
    return document


def parquet_pieces(
    path: Path, size: int = 0, *, rows: int | None = None
) -> Iterator[tuple[float, int, Callable[[Document], None]]]:
    """Yield pieces of a Parquet file, of a number of rows or of about ``size`` bytes.

    Yields
    ------
    share : float
        Share of the file up to the end of the piece.
    before : int
        Number of rows before it.
    add : function
        Adds its rows to a document.
    """
    try:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise_missing_extra("Reading a parquet file", "io", error)
    with naming(path), pq.ParquetFile(path) as file:
        n, groups = file.metadata.num_rows, range(file.metadata.num_row_groups)
        if rows is None:
            length = sum(file.metadata.row_group(i).total_byte_size for i in groups)
            rows = max(size * n // max(length, 1), 1)
        before = 0
        for batch in file.iter_batches(batch_size=rows):

            def add(document: Document, batch: Any = batch, before: int = before) -> None:
                document.kind = "records"
                for number, row in enumerate(batch.to_pylist(), start=before + 1):
                    document.records.append((f"row {number:,}", _as_json(row)))

            yield (before + len(batch)) / n, before, add
            before += len(batch)


def _as_json(value: Any) -> Any:
    """Convert a value to JSON: times, decimals and bytes become text, and NaN becomes null."""
    if isinstance(value, dict):
        return {str(name): _as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return f"<{len(value):,} bytes>" if isinstance(value, bytes) else str(value)


def _workbook(path: Path, stated: Stated, most: int | None) -> list[Document]:
    """Read a sheet of an Excel workbook, or every sheet that holds one annotator's work."""
    with naming(path):
        own, notes = own_sheets(path) if stated.every_sheet else ([], [])
    titles: list[str | None] = [*own] if own and stated.sheet is None else [stated.sheet]
    found = []
    for title in titles:
        name = str(path) if not stated.every_sheet else f"{path}, sheet {title!r}"
        place = PurePosixPath(path.name)
        document = Document(name, place, beside=path.parent, most=most, sheet=title or "")
        try:
            as_table(document, read_sheet(path, replace(stated, sheet=title), most))
        except AnnotationError as error:
            raise AnnotationError(f"{name}: {error}") from error
        found.append(document)
    found[0].notes[:0] = notes
    return found
