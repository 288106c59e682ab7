"""Base class of encoders whose model is not fitted, `FunctionEncoder`, and the cache on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from manyhands._version import __version__
from manyhands.encoders.inputs import listed
from manyhands.exceptions import AnnotationError, WriteError, all_or_nothing
from manyhands.files import check_writable, explain, waiting_lock, write_atomically
from manyhands.typing import AnyArray, FloatArray

FORMAT = "manyhands embeddings"
DIGEST = 32
"""Bytes of a SHA-256 digest."""

PLAIN = (int, float, str, os.PathLike, type(None))
SUFFIXES = (".json", ".digests", ".rows")
ROWS_PER_WRITE = 1024
"""Number of rows that are encoded before they are written to the cache."""

KINDS = ("float16", "float32")


class EmbeddingCache:
    """A folder of embeddings; give it to an encoder, ``TransformersEncoder(model, cache=...)``.

    A row is found by the SHA-256 digest of its content (the text, the bytes of the file, the
    pixels), so only new content is encoded, whatever the order of rows or the folds. The
    fingerprint of the encoder (its class, parameters and weights) names three files: a description,
    digests, and rows. Rows are only appended, under a lock, and their digests after them. Several
    processes may therefore share the folder, and a killed process leaves at most one incomplete
    row, which the next writer removes. On systems without file locks (Windows, some network
    drives), let only one process write at a time.

    Parameters
    ----------
    folder : str or Path
    dtype : {"float16", "float32"}
        Precision of the values in the cache. An encoder with a cache returns all values in this
        precision, whether they were read or have just been computed.

    Examples
    --------
    >>> import tempfile
    >>> from manyhands.encoders import FunctionEncoder
    >>> cache = EmbeddingCache(tempfile.mkdtemp())
    >>> lengths = FunctionEncoder(
    ...     lambda texts: [[len(text)] for text in texts], cache=cache, fingerprint="lengths 1"
    ... )
    >>> lengths.transform(["one", "three", "one"]).ravel().tolist()
    [3.0, 5.0, 3.0]
    >>> cache.info()[0]["rows"]
    2
    """

    def __init__(self, folder: str | Path, dtype: str = "float16") -> None:
        if dtype not in KINDS:
            raise AnnotationError(f"dtype={dtype!r} is unknown; use 'float16' or 'float32'")
        self.folder = Path(folder)
        self.dtype = dtype

    def encode(
        self,
        keys: Sequence[bytes],
        encode: Callable[[list[int]], FloatArray],
        description: dict[str, Any],
    ) -> FloatArray:
        """Return the rows of some contents: read those in the cache, encode and add the others.

        Parameters
        ----------
        keys : sequence of bytes
            SHA-256 digest of each row's content; at least one.
        encode : callable
            Takes positions in ``keys`` and returns their rows, an array of shape (m, d).
        description : dict
            Everything besides the content that determines the values, as JSON types.

        Returns
        -------
        array of shape (n_keys, d)
            In the precision of the cache.

        Raises
        ------
        AnnotationError
            If a value is too large for the precision, or the cache holds rows of another length.
        WriteError
            If the folder cannot be written.
        """
        check_writable(self.folder)
        header = {"format": FORMAT, "dtype": self.dtype, **description}
        text = json.dumps(header, sort_keys=True)
        place = self.folder / hashlib.sha256(text.encode()).hexdigest()[:32]
        known = _positions(place)
        first = {key: row for row, key in reversed(list(enumerate(keys)))}
        missing = sorted(row for key, row in first.items() if key not in known)
        for start in range(0, len(missing), ROWS_PER_WRITE):
            rows = missing[start : start + ROWS_PER_WRITE]
            values = _rounded(encode(rows), self.dtype)
            try:
                _append(place, header, [keys[row] for row in rows], values)
            except OSError as error:
                raise WriteError(error.errno, explain(error, self.folder)) from error
        known = _positions(place) if missing else known
        columns = int(_header(place)["columns"])
        kept = np.memmap(place.with_suffix(".rows"), dtype=self.dtype, mode="r")
        table = kept[: len(kept) // columns * columns].reshape(-1, columns)
        return np.asarray(table[[known[key] for key in keys]], dtype=np.float32)

    def info(self) -> list[dict[str, Any]]:
        """Return one dict per encoder in the cache: fingerprint, encoder, rows, columns, bytes."""
        return [
            {
                "fingerprint": place.name,
                "encoder": header.get("class", ""),
                "rows": len(_positions(place)),
                "columns": header["columns"],
                "bytes": sum(_size(place.with_suffix(suffix)) for suffix in SUFFIXES),
            }
            for place, header in self._places()
        ]

    def clear(self) -> int:
        """Remove the cache's files, and nothing else in the folder; return the bytes freed."""
        freed = 0
        for place, _ in self._places():
            with waiting_lock(place.with_suffix(".lock")):
                for path in map(place.with_suffix, SUFFIXES):
                    freed += _size(path)
                    path.unlink(missing_ok=True)
        return freed

    def _places(self) -> list[tuple[Path, dict[str, Any]]]:
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                header = _header(path.with_suffix(""))
            except AnnotationError:
                continue
            if isinstance(header, dict) and header.get("format") == FORMAT:
                found.append((path.with_suffix(""), header))
        return found


def _header(place: Path) -> dict[str, Any]:
    path = place.with_suffix(".json")
    try:
        header: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise AnnotationError(
            f"{str(path)!r} cannot be read ({error}); remove it to encode its rows again"
        ) from error
    return header


def _positions(place: Path) -> dict[bytes, int]:
    """Return the position of each digest's row; incomplete rows are left out."""
    if not place.with_suffix(".json").exists():
        return {}
    header = _header(place)
    width = header["columns"] * np.dtype(header["dtype"]).itemsize
    index = place.with_suffix(".digests")
    digests = index.read_bytes() if index.exists() else b""
    kept = min(len(digests) // DIGEST, _size(place.with_suffix(".rows")) // width)
    return {digests[DIGEST * n : DIGEST * (n + 1)]: n for n in range(kept)}


def _append(place: Path, header: dict[str, Any], keys: list[bytes], values: AnyArray) -> None:
    """Append rows that no other process has added meanwhile, and then their digests."""
    with waiting_lock(place.with_suffix(".lock")):
        path, columns = place.with_suffix(".json"), values.shape[1]
        if not path.exists():
            write_atomically(path, json.dumps({**header, "columns": columns}, indent=1))
        if _header(place)["columns"] != columns:
            raise AnnotationError(
                f"the encoder returned {columns} values for a row, but the cache holds rows of "
                f"{_header(place)['columns']} values under the same fingerprint; clear the cache, "
                "or give the encoder another fingerprint"
            )
        known = _positions(place)
        fresh = [n for n, key in enumerate(keys) if key not in known]
        rows = np.ascontiguousarray(values[fresh])
        width = columns * values.dtype.itemsize
        _write_at(place.with_suffix(".rows"), len(known) * width, rows.tobytes())
        digests = b"".join(keys[n] for n in fresh)
        _write_at(place.with_suffix(".digests"), len(known) * DIGEST, digests)


def _rounded(values: FloatArray, dtype: str) -> AnyArray:
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype)
    if not np.isfinite(rounded).all():
        raise AnnotationError(
            f"an embedding holds {np.abs(values).max():g}, which {dtype} cannot hold; use "
            "EmbeddingCache(folder, dtype='float32')"
        )
    return rounded


def _write_at(path: Path, start: int, content: bytes) -> None:
    """Write at a position, and so overwrite what a killed process may have left there."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(start)
        file.seek(start)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def content_key(value: Any) -> bytes:
    """Return the SHA-256 digest of a text, a file, a PIL image or an array.

    Raises
    ------
    AnnotationError
        If the value is none of these.
    """
    if isinstance(value, str):
        content = [b"text", value.encode("utf-8", "surrogatepass")]
    elif isinstance(value, os.PathLike):
        content = [b"file", Path(value).read_bytes()]
    elif isinstance(value, np.ndarray) and value.dtype.kind in "uifb":
        content = [f"array {value.dtype.str} {value.shape}".encode(), value.tobytes()]
    elif hasattr(value, "getbands") and hasattr(value, "tobytes"):
        content = [f"image {value.mode} {value.size}".encode(), value.tobytes()]
    else:
        raise AnnotationError(
            f"X holds {type(value).__name__} objects, which the cache cannot recognise again; "
            "leave cache out, or give texts, images or arrays"
        )
    digest = hashlib.sha256()
    for part in content:
        digest.update(part + b"\0")
    return digest.digest()


UNNAMED = (
    "a cache needs to know when {} has changed; name its version in fingerprint=, such as "
    "fingerprint='my-encoder 1'"
)


class FrozenEncoder(TransformerMixin, BaseEstimator):
    """Base class of encoders around a model: batches, checks, and the cache.

    A subclass implements `_rows`, `_encode_batch` and, for a cache, `_weights`. Clones share the
    model, which is never changed.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "cache": [None, str, os.PathLike, EmbeddingCache],
        "fingerprint": [None, str],
    }
    batch_size: int
    cache: Any
    fingerprint: str | None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Encode the first row, to find the number of columns; the model is not changed.

        Parameters
        ----------
        X : list, array or column of n rows
        y : ignored

        Returns
        -------
        FrozenEncoder
            The encoder itself.

        Raises
        ------
        AnnotationError
            If X has no rows, or for the reasons of `transform`.
        """
        with all_or_nothing(self):
            rows = self._rows(X)
            if not len(rows):
                raise AnnotationError("X has no rows; give at least one")
            self.n_features_out_ = self._encode(rows[:1]).shape[1]
        return self

    def transform(self, X: Any) -> FloatArray:
        """Encode rows as an array of shape (n, n_features), float32.

        Parameters
        ----------
        X : list, array or column of n rows

        Returns
        -------
        array of shape (n, n_features)

        Raises
        ------
        AnnotationError
            If rows are of another kind, or the model does not return a finite vector for each row.
        MissingExtraError
            If a package that the model needs is not installed.
        """
        return self._encode(self._rows(X))

    def _encode(self, rows: Any) -> FloatArray:
        self._validate_params()
        if self.cache is None or not len(rows):
            return self._encode_all(rows)
        cache = self.cache
        if not isinstance(cache, EmbeddingCache):
            cache = EmbeddingCache(cache)
        return cache.encode(
            [content_key(row) for row in rows],
            lambda chosen: self._encode_all(_safe_indexing(rows, chosen)),
            self._description(),
        )

    def _encode_all(self, rows: Any) -> FloatArray:
        starts = range(0, len(rows), self.batch_size)
        parts = [self._encode_rows(rows[start : start + self.batch_size]) for start in starts]
        empty = np.zeros((0, getattr(self, "n_features_out_", 0)), dtype=np.float32)
        return np.concatenate(parts) if parts else empty

    def _encode_rows(self, rows: Any) -> AnyArray:
        found = self._encode_batch(rows)
        if hasattr(found, "detach"):
            found = found.detach().float().cpu().numpy()
        values = np.asarray(found, dtype=np.float32)
        if values.ndim != 2 or len(values) != len(rows):
            raise AnnotationError(
                f"{type(self).__name__} got an array of shape {values.shape} for {len(rows)} rows; "
                "the model must return one vector per row"
            )
        if not np.isfinite(values).all():
            raise AnnotationError(
                f"the model of {type(self).__name__} returned NaN or infinity; check its inputs"
            )
        return values

    def _description(self) -> dict[str, Any]:
        """Return everything besides the rows that determines the values, for the cache."""
        used = {
            name: str(value) if isinstance(value, PLAIN) else repr(type(value))
            for name, value in self.get_params(deep=False).items()
            if name not in ("batch_size", "cache", "fingerprint", "device", "local_files_only")
        }
        weights = self.fingerprint or self._weights()
        kind = type(self).__name__
        return {"class": kind, "manyhands": __version__, "parameters": used, "weights": weights}

    def _weights(self) -> str:
        raise AnnotationError(UNNAMED.format(type(self).__name__))

    def _rows(self, X: Any) -> Any:
        raise NotImplementedError

    def _encode_batch(self, rows: Any) -> Any:
        raise NotImplementedError

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Return the names of the columns, after `fit`: the name of the class and a number."""
        check_is_fitted(self, "n_features_out_")
        name = type(self).__name__.removesuffix("Encoder").lower()
        return np.array([f"{name}{i}" for i in range(self.n_features_out_)], dtype=object)

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.requires_fit = False
        return tags


class FunctionEncoder(FrozenEncoder):
    """Encode rows with your own function.

    Parameters
    ----------
    fn : callable
        Takes a list of m rows, or a part of an array, and returns an array of shape (m,
        n_features).
    batch_size : int, default=64
        Number of rows in each call.
    cache : EmbeddingCache, str, Path or None
    fingerprint : str, optional
        Names the function and its version; needed with a cache.

    Examples
    --------
    >>> FunctionEncoder(lambda texts: [[len(text)] for text in texts]).transform(["a", "bcd"])
    array([[1.],
           [3.]], dtype=float32)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FrozenEncoder._parameter_constraints,
        "fn": [callable],
    }

    def __init__(
        self, fn: Any, batch_size: int = 64, *, cache: Any = None, fingerprint: str | None = None
    ) -> None:
        self.fn = fn
        self.batch_size = batch_size
        self.cache = cache
        self.fingerprint = fingerprint

    def _rows(self, X: Any) -> Any:
        rows = listed(X)
        return rows if hasattr(rows, "shape") or isinstance(rows, list) else list(rows)

    def _encode_batch(self, rows: Any) -> Any:
        return self.fn(rows)
