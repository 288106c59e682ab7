"""Histories of training in one columnar file: one row per history, one list per column.

Column ``figures`` identifies a history by the digest of its run's figures, and ``columns`` lists
its columns in order. Every other column is named ``<column>:<kind>``, since one column may hold
whole numbers in one run and floats in another; its cells are lists, null where a history lacks the
column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any

from manyhands.exceptions import raise_missing_extra

History = Mapping[str, list[Any]]
"""Column -> one value per epoch, None where an epoch lacks the value."""

_FIGURES, _COLUMNS = "figures", "columns"
_FLOAT, _INT, _TEXT, _JSON = "float", "int", "text", "json"


def to_parquet(histories: Mapping[str, History]) -> bytes:
    """Write histories as a Parquet file; the same histories give the same bytes.

    Parameters
    ----------
    histories : mapping of str to mapping
        Digest of a run's figures -> its history. Every value is read back exactly, to the bit.

    Raises
    ------
    MissingExtraError
        Without the extra 'io'.
    """
    pa, pq = _pyarrow()
    names = sorted(histories)
    cells: dict[str, list[list[Any] | None]] = {}
    layouts = []
    for place, name in enumerate(names):
        layout = []
        for column, values in histories[name].items():
            kind = _kind(values)
            layout.append(f"{column}:{kind}")
            cell = [json.dumps(value) for value in values] if kind == _JSON else values
            cells.setdefault(layout[-1], [None] * len(names))[place] = cell
        layouts.append(layout)
    contents = {_FIGURES: names, _COLUMNS: layouts, **dict(sorted(cells.items()))}
    arrays = {name: pa.array(cells, _type_of(name)) for name, cells in contents.items()}
    file = BytesIO()
    # Measured on these columns: plain values compress better than dictionary encoding.
    options = {"compression": "zstd", "compression_level": 19, "use_dictionary": False}
    pq.write_table(pa.table(arrays), file, write_page_checksum=True, **options)
    return file.getvalue()


class Histories:
    """Histories of a Parquet file, by the digest of their runs' figures.

    Parameters
    ----------
    content : bytes
        As written by `to_parquet`.

    Raises
    ------
    ValueError
        If the bytes are not such a file, or are damaged.
    MissingExtraError
        Without the extra 'io'.
    """

    def __init__(self, content: bytes) -> None:
        pa, pq = _pyarrow()
        try:
            # In this thread alone: an Arrow thread that still holds Python's bytes when the
            # interpreter exits aborts the process (apache/arrow#34314).
            source = pa.BufferReader(content)
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                table = file.read(use_threads=False)
            for field in table.schema:
                if field.type != _type_of(field.name):
                    raise ValueError(f"column {field.name!r} has the type {field.type}")
            self._columns = {name: table[name].combine_chunks() for name in table.column_names}
            self._places = {name: k for k, name in enumerate(table[_FIGURES].to_pylist())}
            self._layouts = table[_COLUMNS].to_pylist()
        except (pa.ArrowException, OSError, KeyError) as error:
            raise ValueError(str(error)) from error
        if None in self._layouts:
            raise ValueError(f"column {_COLUMNS!r} has gaps")
        if missing := {name for layout in self._layouts for name in layout} - self._columns.keys():
            raise ValueError(f"there is no column {min(missing)!r}")

    def __contains__(self, figures: str) -> bool:
        return figures in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __getitem__(self, figures: str) -> dict[str, list[Any]]:
        place = self._places[figures]
        history = {}
        for column in self._layouts[place]:
            values = _values(self._columns[column], place)
            if _kind_of(column) == _JSON:
                values = [json.loads(value) for value in values]
            history[column.rpartition(":")[0]] = values
        return history


def _values(column: Any, place: int) -> list[Any]:
    """Return one cell of a column of lists."""
    start, end = column.offsets[place].as_py(), column.offsets[place + 1].as_py()
    values = column.values.slice(start, end - start)
    # Faster than to_pylist, which makes a pyarrow scalar for every value.
    return values.to_pylist() if values.null_count else values.to_numpy(False).tolist()


def _type_of(column: str) -> Any:
    """Return the type that a column has in the file; KeyError if its name has no known kind."""
    pa, _ = _pyarrow()
    if column in (_FIGURES, _COLUMNS):
        return pa.string() if column == _FIGURES else pa.list_(pa.string())
    types = {_FLOAT: pa.float64(), _INT: pa.int64(), _TEXT: pa.string(), _JSON: pa.string()}
    return pa.list_(types[_kind_of(column)])


def _kind_of(column: str) -> str:
    return column.rpartition(":")[2]


def _kind(values: list[Any]) -> str:
    """Return the kind of column that stores these values exactly."""
    types = {type(value) for value in values if value is not None}
    if types <= {float}:
        return _FLOAT
    if types == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return _INT
    if types == {str} and all(value.isprintable() for value in values if value is not None):
        return _TEXT
    return _JSON


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise_missing_extra("the histories of records", "io", error)
    return pa, pq
