"""Reading features, with the ids of their rows if the file holds them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import ZipInfo

import narwhals as nw
import numpy as np
from numpy.lib.format import open_memmap
from scipy import sparse

from manyhands.annotations.encoding import make_vocabulary
from manyhands.annotations.ids import id_column
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io.archives import LARGEST_CONTENT, LARGEST_RATIO
from manyhands.io.columns import Frame, as_numbers, canonical, preview
from manyhands.io.encodings import MIB
from manyhands.io.files import PathLike, existing_file, is_typed, naming, suffix_of
from manyhands.io.frames import read_checked, read_parquet
from manyhands.io.mapped import MappedRows, release
from manyhands.io.sheets import Stated
from manyhands.typing import AnyArray, FloatArray
from manyhands.wording import counted

_LOG = logging.getLogger("manyhands")

MAPPED_BYTES = 2**28
"""Size, in bytes, from which a .npy file is memory-mapped.

It is then never all in memory, and several processes on one machine share what they read.
"""


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features, and the ids of their rows if the file holds them.

    Attributes
    ----------
    X : float32 array of shape (n_samples, ...), or uint8 for images stored as such, or a float32
        sparse array (CSR), or a large .npy file's memory-mapped array of any numeric type
    tasks : array of shape (n_samples,) or None
        Ids of the rows; None if the file has none.
    columns : tuple of str or None
        Names of the features; None if the file has none.
    """

    X: Any
    tasks: AnyArray | None = None
    columns: tuple[str, ...] | None = None

    @property
    def frame(self) -> Any:
        """Return X as a pandas frame with the ids as its index, if columns have names; else X."""
        if self.columns is None:
            return self.X
        import pandas as pd

        return pd.DataFrame(self.X, index=self.tasks, columns=list(self.columns))

    def __len__(self) -> int:
        return int(self.X.shape[0])


def read_features(
    path: PathLike,
    *,
    known: Collection[str] = (),
    wanted: AnyArray | None = None,
    encoding: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
) -> FeatureFile:
    """Read features from a file.

    Parameters
    ----------
    path : str or Path
        - .npy: only the array, which is memory-mapped from a size of 256 MiB;
        - .npz: the array ``X``, or the only array, with the ids in an array ``task``
          (``instance``, ``id``, ...); or a file that ``scipy.sparse.save_npz`` wrote;
        - CSV of any separator and encoding, with decimal points or commas (.gz, too), .xlsx,
          .parquet, .pq: numeric columns; a column ``task`` (``instance``, ``id``, ...) holds the
          ids.
    known : collection of str
        Names of columns that are features, even if they are named like ids. If they are all there,
        the only other column holds the ids, whatever its name.
    wanted : array, optional
        Ids of the annotated instances. If no column is named like ids, the only column that holds
        all of them is taken as the ids; a log message says so.
    encoding, separator, sheet : str, optional
        As in `read_annotations`.

    Returns
    -------
    FeatureFile
        With float32 features; uint8 arrays with three or more axes (images) are not converted.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If the file is empty, damaged or of another format, or holds pickled objects, text, NaN or
        infinity (the message names the row and the column); or if it is unclear which column
        holds the ids.
    """
    path = existing_file(path)
    with naming(path):
        suffix = suffix_of(path)
        columns: list[str] | None = None
        numbers: list[int] | None = None
        ids: Any = None
        if suffix == ".npy":
            X = read_array(path, mapped=path.stat().st_size >= MAPPED_BYTES)
        elif suffix == ".npz":
            X, ids = _from_archive(path, wanted)
        else:
            stated = Stated(encoding, separator, sheet)
            X, ids, columns, numbers = _from_columns(path, known, wanted, stated)
        X = _checked_features(X, columns, numbers)
        if ids is None and columns is not None and not len(known):
            _warn_of_numbered_rows(dict(zip(columns, X.T, strict=True)), path)
        names = None if columns is None else tuple(columns)
        return FeatureFile(X, None if ids is None else row_ids_of(ids, X.shape[0], numbers), names)


def read_array(path: Path, *, mapped: bool = False) -> AnyArray:
    """Read the one array of a .npy file, or map it, read-only."""
    if mapped:
        return open_memmap(path, mode="r")
    with path.open("rb") as file:
        content = np.load(file, allow_pickle=False)
        if not isinstance(content, np.ndarray):
            raise AnnotationError(
                "this is an archive of arrays, not a single array; name the file .npz"
            )
        return content


def holder_of_ids(
    columns: Mapping[str, Sequence[Any]], wanted: AnyArray | None, path: Path
) -> str | None:
    """Find the only column that holds all wanted ids and repeats no value; None if none does.

    If none does, it is the only column that nearly does: its fault is for others to name.

    Raises
    ------
    AnnotationError
        If several do, or if the ids could also number the rows, from 0 or 1, in another order.
    """
    ids = set() if wanted is None else {str(each) for each in wanted.tolist()}
    found = [name for name, cells in columns.items() if ids and _holds(cells, ids)]
    held = "the ids of all annotated items"
    if not found:
        found = [name for name, cells in columns.items() if ids and _nearly_holds(cells, ids)]
        held = "ids of annotated items"
    if not found:
        return None
    if len(found) > 1:
        raise AnnotationError(
            f"the columns {preview(found)} hold {held}; rename the right one to 'task'"
        )
    name = found[0]
    _refuse_row_numbers(name, list(map(str, columns[name])), ids)
    _LOG.info(
        "%s: the rows are matched with the annotations by the column %r, because it holds %s; to "
        "use another column, rename it to 'task'",
        path.name,
        name,
        held,
    )
    return name


def only_ids(columns: Mapping[str, Sequence[Any]], why: str, path: Path) -> str | None:
    """Find the only column that could hold ids, of rows whose ids are unknown; None if none could.

    ``why`` says in a log message why this column is taken as the ids.

    Raises
    ------
    AnnotationError
        As in `holder_of_ids`.
    """
    found = [name for name, cells in columns.items() if _could_be_ids(cells)]
    if len(found) > 1:  # Numbers of the rows in their order are what rows without ids get.
        found = [n for n in found if list(map(str, columns[n])) != _row_numbers(0, columns[n])]
    if not found:
        return None
    if len(found) > 1:
        raise AnnotationError(
            f"the columns {preview(found)} could all hold the ids of the items; rename the right "
            "one to 'task'"
        )
    name, cells = found[0], list(map(str, columns[found[0]]))
    _refuse_row_numbers(name, cells, set(cells))
    _LOG.info("%s: %r is taken as the ids, because %s", path.name, name, why)
    return name


def _refuse_row_numbers(name: str, cells: list[str], ids: set[str]) -> None:
    """Refuse ids that could also number the rows, from 0 or 1, in another order."""
    for first in (0, 1):
        rows = _row_numbers(first, cells)
        differ = any(a != b and (a in ids or b in ids) for a, b in zip(cells, rows, strict=True))
        if differ and _holds(rows, ids):
            raise AnnotationError(
                f"the ids of the items could be those in column {name!r}, or the numbers "
                f"of the rows, counted from {first}. Rename {name!r} to 'task' if it holds the "
                "ids; otherwise add a column 'task' that holds them"
            )


def _row_numbers(first: int, cells: Sequence[Any]) -> list[str]:
    return list(map(str, range(first, first + len(cells))))


def _holds(cells: Sequence[Any], ids: set[str]) -> bool:
    """Return whether a column holds all ids and repeats no value."""
    # Most features are known by a few rows to hold no ids, or by one id that they do not hold.
    few = list(map(str, cells[:64]))
    if len(cells) < len(ids) or len(set(few)) < len(few) or next(iter(ids)) not in map(str, cells):
        return False
    texts = set(map(str, cells))
    return len(texts) == len(cells) and ids <= texts


def _nearly_holds(cells: Sequence[Any], ids: set[str]) -> bool:
    """Return whether a column holds ids, although some are missing, repeated or foreign."""
    if not _hardly_repeats(cells[:64]) or ids.isdisjoint(map(str, cells)):
        return False
    if not _hardly_repeats(cells):
        return False
    texts = set(map(str, cells))
    # A feature may hold some numbers of rows, which could be the ids; hardly nearly all of them.
    if ids <= set(map(str, range(len(cells)))):
        return len(ids & texts) >= 0.9 * len(ids)
    return 2 * len(ids & texts) >= min(len(ids), len(texts))


def _hardly_repeats(cells: Sequence[Any]) -> bool:
    """Return whether at least nine in ten cells differ from all others, as those of ids do."""
    return len(set(map(str, cells))) >= 0.9 * len(cells)


def _warn_of_numbered_rows(columns: Mapping[str, Any], path: Path) -> None:
    """Warn of features that number the rows, in a file without ids."""
    for name, values in columns.items():
        n = len(values)
        # Fewer rows could be numbered by chance.
        if n > 9 and np.ptp(values) == n - 1 and len(np.unique(values)) == n:
            warn_caller(
                f"{path.name}: the column {name!r} numbers the rows, as ids do, but is taken as a "
                "feature; rename it to 'task' if it holds the ids of the rows, otherwise drop it"
            )


def _from_archive(path: Path, wanted: AnyArray | None) -> tuple[Any, AnyArray | None]:
    # Opened here, because NumPy does not close the file if the archive is damaged.
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise AnnotationError("this is a single array, not an archive; name the file .npy")
        _check_expansion(archive.zip.infolist())
        names = list(archive.files)
        if {"format", "shape", "data"} <= {*names}:
            return _loaded_sparse(path), None
        id_name = id_column(names)
        data = [name for name in names if name != id_name]
        if "X" not in data and len(data) != 1:
            raise AnnotationError(
                f"the archive holds {', '.join(map(repr, names)) or 'nothing'}; store the features "
                "under the name 'X'"
            )
        X = archive["X" if "X" in data else data[0]]
        if id_name is None:
            others = {name: archive[name] for name in data if name != "X"}
            others = {k: v for k, v in others.items() if v.ndim == 1 and v.dtype.kind in "iuU"}
            name = holder_of_ids({k: v.tolist() for k, v in others.items()}, wanted, path)
            if name is not None:
                return X, others[name]
            _warn_of_unread_ids(others, len(X))
            return X, None
        return X, _text_or_numbers(archive, id_name)


def _check_expansion(members: list[ZipInfo]) -> None:
    """Refuse arrays of a small file that fill the memory; long runs of zeros are no harm."""
    for member in members:
        ratio = member.file_size / max(member.compress_size, 1)
        if member.file_size > LARGEST_CONTENT and ratio > LARGEST_RATIO:
            raise AnnotationError(
                f"the array {member.filename.removesuffix('.npy')!r} expands {ratio:,.0f} times, "
                f"to {member.file_size // MIB:,} MiB. If you trust the file, save the array "
                "without compression (np.save, np.savez)"
            )


def _loaded_sparse(path: Path) -> Any:
    """Read what ``scipy.sparse.save_npz`` wrote; codes that lead out of it are refused.

    scipy's own reader leaves them, and its products would then read foreign memory.
    """
    X = sparse.load_npz(path)
    if hasattr(X, "check_format"):
        X.check_format(full_check=True)
    return X


def _text_or_numbers(archive: Any, name: str) -> AnyArray:
    """Read ids; NumPy stores texts of type object as Python objects, which are not read."""
    try:
        return cast(AnyArray, archive[name])
    except ValueError as error:
        raise AnnotationError(
            f"the ids {name!r} are stored as Python objects, which are not read for safety; store "
            f"texts: np.savez(file, X=X, {name}=np.array(ids, dtype=str))"
        ) from error


def _warn_of_unread_ids(arrays: dict[str, AnyArray], n: int) -> None:
    """Warn of arrays that look like ids, but are not named like ids."""
    for name, values in arrays.items():
        alike = n > 1 and values.shape == (n,) and values.dtype.kind in "iuU"
        if alike and len(np.unique(values)) == n:
            warn_caller(
                f"the array {name!r} holds a different value for each of {n} rows, as ids do, but "
                "is not read; rename it to 'task' if it holds the ids of the rows"
            )


_MISSING_NUMBERS = frozenset({"", "nan", "NaN", "NA", "N/A", "#N/A", "null", "None"})
_TRUTH = {"true": 1.0, "false": 0.0}


def _from_columns(
    path: Path, known: Collection[str], wanted: AnyArray | None, stated: Stated
) -> tuple[AnyArray, AnyArray | None, list[str], list[int] | None]:
    """Return the features, the ids, the names of the columns, and the numbers of the rows."""
    if is_typed(path):
        return *_from_typed(read_parquet(path), known, wanted, path), None
    sheet = read_checked(path, stated)
    columns = dict(zip(sheet.header, sheet.columns(), strict=True))
    id_name, index = _id_name(columns, known, wanted, path)
    values: dict[str, FloatArray] = {}
    other: dict[str, ValueError] = {}
    ids: AnyArray | None = None
    for name, cells in columns.items():
        if name == index:
            continue
        if name == id_name:
            ids = canonical(np.array(cells, dtype=str))
            continue
        try:
            values[name] = _numeric(cells, decimal_commas=sheet.separator == ";")
        except ValueError as error:
            other[name] = error
    why = f" ({next(iter(other.values()))})" if other else ""
    _check_numeric(list(other), len(other) + len(values), id_name, wanted, why)
    with np.errstate(over="ignore"):
        X = np.column_stack(list(values.values())).astype(np.float32)
    return X, ids, list(values), sheet.numbers


def _id_name(
    columns: Mapping[str, Sequence[Any]],
    known: Collection[str],
    wanted: AnyArray | None,
    path: Path,
) -> tuple[str | None, str | None]:
    """Find the column of ids: by its name, by its values, or as the only one that is no feature.

    Also return the column of a nameless index if it is neither the ids nor a feature.
    """
    others = {name: cells for name, cells in columns.items() if name not in known}
    index = next((name for name in others if name in ("", "__index_level_0__")), None)
    rest = {name: cells for name, cells in others.items() if name != index}
    # pandas' default index, 0 to n - 1, holds the ids only if no other column does.
    default = index is None or all(str(each) == str(i) for i, each in enumerate(others[index]))
    candidates = rest if default else others
    found = (
        holder_of_ids(candidates, wanted, path)
        if id_column(rest) is None
        else id_column(candidates)
    )
    if found is not None:
        return found, None if found == index else index
    if len(known):
        texts = [each for each, cells in rest.items() if _could_be_texts_of_ids(cells)]
        name = texts[0] if len(texts) == 1 else None
        if name is not None:
            _LOG.info("%s: %r is taken as the ids, because %s", path.name, name, NO_FEATURE)
        elif columns.keys() >= set(known):  # Else numbers may be a feature with another name.
            name = only_ids(rest, NO_FEATURE, path)
        if name is not None:
            return name, index
    return index, None


NO_FEATURE = "it is no feature"
"""Why a column is taken as the ids beside the features that a model knows."""


def _could_be_ids(cells: Sequence[Any]) -> bool:
    """Return whether a column has no gaps, repeats no value and holds no fractions."""
    texts = list(map(str, cells))
    if not texts or len(set(texts)) < len(texts) or any(each is None for each in cells):
        return False
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return True
    return all(number.is_integer() for number in numbers)


def _could_be_texts_of_ids(cells: Sequence[Any]) -> bool:
    """Return whether a column holds no numbers and repeats hardly any value."""
    try:
        as_numbers([text for text in map(str, cells) if text not in _MISSING_NUMBERS])
    except ValueError:
        return _hardly_repeats(cells)
    return False


def _numeric(cells: Sequence[str], *, decimal_commas: bool) -> FloatArray:
    """Return a column as numbers: NaN where there is none, 1 and 0 for yes and no."""
    if _MISSING_NUMBERS.isdisjoint(cells) and cells[0].lower() not in _TRUTH:
        return as_numbers(cells, decimal_commas=decimal_commas)
    given = [cell for cell in cells if cell not in _MISSING_NUMBERS]
    if given and {cell.lower() for cell in given} <= set(_TRUTH):
        numbers = np.array([_TRUTH[cell.lower()] for cell in given])
    else:
        numbers = as_numbers(given, decimal_commas=decimal_commas)
    found = np.full(len(cells), np.nan)
    found[[cell not in _MISSING_NUMBERS for cell in cells]] = numbers
    return found


def _from_typed(
    frame: Frame, known: Collection[str], wanted: AnyArray | None, path: Path
) -> tuple[AnyArray, AnyArray | None, list[str]]:
    kinds = {c: frame[c].dtype for c in frame.columns}
    may = [c for c, kind in kinds.items() if kind.is_integer() or kind == nw.String]
    cells: dict[str, Any] = {c: frame[c].to_numpy() if c in may else () for c in frame.columns}
    id_name, index = _id_name(cells, known, wanted, path)
    columns = [name for name in frame.columns if name not in (id_name, index)]
    numeric = {c for c in columns if frame[c].dtype.is_numeric() or frame[c].dtype == nw.Boolean}
    _check_numeric([c for c in columns if c not in numeric], len(columns), id_name, wanted)
    with np.errstate(over="ignore"):
        X = np.column_stack([frame[c].cast(nw.Float32).to_numpy() for c in columns])
    return X, None if id_name is None else frame[id_name].to_numpy(), columns


def _check_numeric(
    other: list[str], n: int, id_name: str | None, wanted: AnyArray | None, why: str = ""
) -> None:
    if other:
        are = "is" if len(other) == 1 else "are"
        told = f"{len(other)} of {n} columns {are} not numeric: {preview(other)}{why}."
        if id_name is not None:
            raise AnnotationError(
                f"{told} {id_name!r} holds the ids, and all other columns must hold numbers; "
                "encode or drop what is not numeric. (In Python, a data frame may hold it)"
            )
        if wanted is not None:
            told += f" No column holds the ids of the annotated items ({preview(wanted)})."
        raise AnnotationError(
            f"{told} A table of features has one row per item, the item's id in the column 'task', "
            "and numbers in all other columns. Without a column 'task', the id column is the one "
            "that contains the ids of all annotated items; else rename the column of ids. Encode "
            "or drop the others. (In Python, a data frame may hold them)"
        )
    if not n:
        raise AnnotationError("there are no feature columns; store one numeric column per feature")


def _checked_features(X: Any, columns: list[str] | None, numbers: list[int] | None = None) -> Any:
    if X.dtype.kind not in "iufb":
        raise AnnotationError(f"features must be numbers, not of type {X.dtype}; encode them")
    if X.ndim < 2:
        raise AnnotationError(
            f"features must have shape (n_samples, n_features), not {X.shape}; reshape them (for "
            "a single feature, X[:, None])"
        )
    if not min(X.shape):
        raise AnnotationError(f"the features are empty: shape {X.shape}; export them again")
    if isinstance(X, np.memmap):
        MappedRows(X).check()
        release(X)
        return X
    if X.dtype == np.uint8 and X.ndim > 2:
        return X
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            return _sparse_features(X)
        X = np.ascontiguousarray(X, dtype=np.float32)
    finite = np.isfinite(X)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), X.shape)
        column = repr(columns[place[1]]) if columns else ", ".join(map(str, place[1:]))
        row = f"row {place[0]}, column {column} (counted from 0)"
        if numbers is not None:
            row = f"row {numbers[place[0]]}, column {column}"
        raise AnnotationError(
            f"{row} is {X[place]!s} in float32{_and_more(finite.size - int(finite.sum()) - 1)}; "
            "impute or drop what is not finite"
        )
    return X


def row_ids_of(ids: AnyArray, n: int, numbers: Sequence[int] | None = None) -> AnyArray:
    """Return the ids of n rows, checked; ``numbers`` are those of the rows in a spreadsheet."""
    if ids.shape != (n,):
        raise AnnotationError(
            f"the ids have shape {ids.shape} for {n} rows of features; store one id per row"
        )
    if ids.dtype.kind in "UTO" and (ids == "").any():
        row = int(np.argmax(ids == ""))
        row = row if numbers is None else numbers[row]
        raise AnnotationError(f"the id of row {row} is empty; give every row an id")
    return make_vocabulary(ids, "the column of ids")


def _and_more(n: int) -> str:
    """Count the further cells that are not finite."""
    return "" if n == 0 else f", and so {'is' if n == 1 else 'are'} {counted(n, 'more cell')}"


def _sparse_features(X: Any) -> Any:
    X = X.tocsr().astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(X.data))
    if len(wrong):
        row = int(np.searchsorted(X.indptr, wrong[0], side="right")) - 1
        raise AnnotationError(
            f"row {row}, column {X.indices[wrong[0]]} (counted from 0) is {X.data[wrong[0]]!s} in "
            f"float32{_and_more(len(wrong) - 1)}; impute or drop what is not finite"
        )
    return X
