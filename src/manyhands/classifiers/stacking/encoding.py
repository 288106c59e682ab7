"""Texts, images, and data frames with texts, categories and gaps as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, Self, TypeAlias

import narwhals as nw
import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from manyhands.annotations.encoding import missing_mask
from manyhands.annotations.ids import as_frame
from manyhands.encoders import ImageEncoder, TextEncoder
from manyhands.encoders.inputs import kind_of_values, listed, raw_kind
from manyhands.exceptions import AnnotationError
from manyhands.fitting.reading import (
    as_fitted,
    as_rows,
    forget_columns,
    is_number,
    read_features,
    refuse_text_columns,
)
from manyhands.records import record
from manyhands.typing import AnyArray, BoolArray, FloatArray

FEWEST_ROWS = 5
"""Least number of rows of a value with a column of its own; rarer values share one."""

MOST_VALUES = 50
"""Largest number of values with a column of their own: the most frequent ones."""

FEW_VALUES, LONG = 20, 30
"""A column of mostly distinct values is free text (or ids) if it has more values than this, or if
they have more characters than this on average."""


@record("Numbers")
@dataclass(frozen=True)
class Numbers:
    """Encoder of a column of numbers: standardised, with the median and a mark for gaps."""

    name: str
    mean: float
    scale: float
    median: float
    gaps: bool

    @classmethod
    def of(cls, name: str, column: Any) -> Self:
        """Fit to a column."""
        values = _numbers(name, column)
        gaps = np.isnan(values)
        present = values[~gaps] if not gaps.all() else np.zeros(1)
        scale = float(present.std()) or 1.0
        return cls(name, float(present.mean()), scale, float(np.median(present)), bool(gaps.any()))

    def encode(self, column: Any) -> FloatArray:
        """Encode a column as an array of shape (n, 1), or (n, 2) if there were gaps."""
        values = _numbers(self.name, column)
        gaps = np.isnan(values)
        filled = (np.where(gaps, self.median, values) - self.mean) / self.scale
        return np.stack([filled, gaps], axis=1) if self.gaps else filled[:, None]


@record("Values")
@dataclass(frozen=True)
class Values:
    """Encoder of a column of texts or categories: 0 and 1 for every frequent value.

    Rare values and missing ones have a column each, too, if there were any. A value that was not
    present in `fit` counts as a rare one.
    """

    name: str
    values: list[str]
    rare: bool
    gaps: bool

    @classmethod
    def of(cls, name: str, column: Any) -> Self:
        """Fit to a column."""
        texts = _texts(column)
        counts = Counter(text for text in texts if text is not None)
        ordered = sorted(counts, key=lambda text: (-counts[text], text))
        kept = sorted(text for text in ordered[:MOST_VALUES] if counts[text] >= FEWEST_ROWS)
        return cls(name, kept, len(kept) < len(counts), None in texts)

    def encode(self, column: Any) -> FloatArray:
        """Encode a column as an array of shape (n, number of columns)."""
        place = {text: code for code, text in enumerate(self.values)}
        rare, gap = len(place), len(place) + 1
        texts = _texts(column)
        codes = [gap if text is None else place.get(text, rare) for text in texts]
        columns = [*range(rare), *([rare] if self.rare else []), *([gap] if self.gaps else [])]
        return np.eye(len(place) + 2)[:, columns][codes]


@record("Encoded")
@dataclass(frozen=True)
class Encoded:
    """Encoder of a column of free texts, or of paths of images; a gap is an empty text."""

    name: str
    encoder: FittedEncoder

    @classmethod
    def of(cls, name: str, column: Any, random_state: Any) -> Self:
        """Fit to a column."""
        images = kind_of_values(column.to_list()) == "images"
        encoder = new_encoder("images" if images else "texts", random_state)
        if not images:
            encoder.set_params(missing="empty")
        with naming_column(name):
            return cls(name, encoder.fit(column.to_list()))

    def encode(self, column: Any) -> Any:
        """Encode a column as a sparse matrix, or an array, of shape (n, number of columns)."""
        with naming_column(self.name):
            return self.encoder.transform(column.to_list())


Column: TypeAlias = Numbers | Values | Encoded


@record("FrameEncoder")
@dataclass(frozen=True, eq=False)
class FrameEncoder:
    """Encode the columns of a frame, by name.

    Attributes
    ----------
    columns : list of Numbers, Values or Encoded
    """

    columns: list[Column]

    @classmethod
    def of(cls, X: Any, estimator: str, random_state: Any = None) -> Self | None:
        """Fit to a frame without a column of ids; return None if X is no frame, or all numbers.

        A frame of numbers is read as an array is, so a gap in it is refused in `fit` and `predict`.

        Raises
        ------
        AnnotationError
            If a column holds what seem to be ids, dates, or objects of other kinds.
        """
        frame = as_frame(X)
        if frame is None:
            return None
        given = list(frame.iter_columns())
        kinds = [_kind(column) for column in given]
        if all(kind == "numbers" for kind in kinds):
            return None
        ids = [place for place, kind in enumerate(kinds) if kind == "ids"]
        if ids:
            refuse_text_columns(frame.select(nw.nth(*ids)), estimator)
        columns: list[Column] = [
            Encoded.of(name, column, random_state)
            if kind == "raw"
            else (Numbers if kind == "numbers" else Values).of(name, column)
            for name, column, kind in zip(frame.columns, given, kinds, strict=True)
        ]
        return cls(columns)

    def encode(self, X: Any) -> Any:
        """Encode a frame as (n, n_encoded), float32; the result is sparse if there are texts.

        Raises
        ------
        AnnotationError
            If X is not a data frame, or a column has values of another kind than in
            `fit`.
        """
        frame = as_frame(X)
        if frame is None:
            raise AnnotationError(
                f"X is {type(X).__name__}, but fit encoded a data frame; give a frame with the "
                f"columns {', '.join(repr(column.name) for column in self.columns)}"
            )
        given = dict(zip(frame.columns, frame.iter_columns(), strict=True))
        parts: list[Any] = [column.encode(given[column.name]) for column in self.columns]
        if any(hasattr(part, "tocsr") for part in parts):
            return sparse.hstack(parts, format="csr", dtype=np.float32)
        return np.hstack(parts).astype(np.float32)


FittedEncoder: TypeAlias = TextEncoder | ImageEncoder
AnyEncoder: TypeAlias = FrameEncoder | FittedEncoder


def new_encoder(kind: str, random_state: Any = None) -> FittedEncoder:
    """Return the default encoder of texts or of images."""
    return TextEncoder() if kind == "texts" else ImageEncoder(random_state=random_state)


def fit_encoder(estimator: Any, X: Any) -> AnyEncoder | None:
    """Fit an encoder of texts, images, or a frame, to X.

    Return None if X needs none, or the estimator does not have ``members="auto"``.
    """
    refuse_no_rows(X)
    if not isinstance(estimator.members, str):
        refuse_raw(estimator, X)
        return None
    seed = estimator.random_state
    if as_frame(X) is None:
        kind = raw_kind(X)
        return None if kind is None else new_encoder(kind, seed).fit(X)
    return FrameEncoder.of(as_fitted(estimator, X, reset=True), type(estimator).__name__, seed)


def read_rows(estimator: Any, X: Any, encoder: AnyEncoder | None, *, reset: bool) -> Any:
    """Check X and return an encoded frame, an array, or a wide sparse matrix.

    Parameters
    ----------
    estimator, X, reset
        See `manyhands.fitting.reading.read_features`.
    encoder : encoder or None
        None: X needs none.

    Returns
    -------
    array of shape (n, ...), or CSR matrix of shape (n, d)
    """
    refuse_no_rows(X)
    if encoder is None:
        refuse_numbers_as_texts(X)
        return as_rows(read_features(estimator, X, reset=reset))
    if not isinstance(encoder, FrameEncoder):
        if reset:
            forget_columns(estimator)
        return as_rows(encoder.transform(X))
    X = as_fitted(estimator, X, reset=reset)
    encoded = encoder.encode(X)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return encoded


def _holds_numbers(column: Any) -> bool:
    """Return whether a column holds only numbers (also as texts), booleans and gaps."""
    if isinstance(column.dtype, nw.Categorical | nw.Enum):
        return False
    values = column.to_numpy()
    if values.dtype.kind in "mM":
        raise AnnotationError(
            f"column {column.name!r} of X holds dates or times; give numbers, such as days since a "
            "date"
        )
    if values.dtype.kind not in "OUT":
        return True
    return all(
        is_number(v) if isinstance(v, str) else _is_real(column, v) for v in _present(values)
    )


def _is_real(column: Any, value: Any) -> bool:
    if isinstance(value, Real | np.bool_):
        return True
    raise AnnotationError(
        f"column {column.name!r} of X holds {type(value).__name__} objects; give numbers, texts or "
        "categories"
    )


def _kind(column: Any) -> Literal["numbers", "values", "raw", "ids"]:
    """Return the kind of a column: numbers, few values, free texts or images ("raw"), or ids.

    Most values of texts and of ids are distinct. Ids are single words of ASCII, unlike texts.
    """
    if _holds_numbers(column):
        return "numbers"
    texts = [text for text in _texts(column) if text is not None]
    different = len(set(texts))
    long = bool(texts) and sum(map(len, texts)) > LONG * len(texts)
    if 2 * different <= len(texts) or (different <= FEW_VALUES and not long):
        return "values"
    if kind_of_values(texts) == "images":
        return "raw"
    words = sum(text.isascii() and len(text.split()) < 2 for text in texts)
    return "ids" if 2 * words > len(texts) else "raw"


@contextmanager
def naming_column(name: str) -> Iterator[None]:
    """Name the column in errors of its encoder.

    Raises
    ------
    AnnotationError
        Instead of one without the column's name.
    FileNotFoundError
        Instead of one without the column's name.
    """
    try:
        yield
    except AnnotationError as error:
        raise AnnotationError(f"column {name!r} of X: {error}") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"column {name!r} of X: {error}. If it holds ids, make it the index of a pandas frame"
        ) from error


def _present(values: AnyArray) -> list[Any]:
    present: list[Any] = values[~missing_mask(values)].tolist()
    return present


def _numbers(name: str, column: Any) -> FloatArray:
    """Return the values of a column as numbers; gaps are NaN."""
    values = column.to_numpy()
    gaps: BoolArray = missing_mask(values)
    numbers = np.full(len(values), np.nan)
    try:
        numbers[~gaps] = values[~gaps].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise AnnotationError(
            f"column {name!r} of X held numbers in fit, and now {error}; give numbers"
        ) from error
    if np.isinf(numbers).any():
        raise AnnotationError(f"column {name!r} of X holds infinity; give finite numbers")
    return numbers


def _texts(column: Any) -> list[str | None]:
    """Return the values of a column as texts; None for gaps."""
    values = column.to_numpy()
    return [
        None if gap else _as_text(value)
        for gap, value in zip(missing_mask(values).tolist(), values.tolist(), strict=True)
    ]


def _as_text(value: Any) -> str:
    """Return a value as text; whole numbers look the same in columns of floats with gaps."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# -- features that no stack can read, or only one of ``members="auto"`` ---------------------------


def refuse_no_rows(X: Any) -> None:
    """Raise an error unless X is a collection of rows, in contrast to a text or an iterator."""
    if isinstance(X, str | bytes):
        raise AnnotationError(f"X is one text ({X[:40]!r}); give a list of texts: [X]")
    # Datasets and DataLoaders of torch have one or the other, too.
    if not any(hasattr(X, name) for name in ("shape", "__getitem__", "__array__", "dataset")):
        raise AnnotationError(
            f"X is a {type(X).__name__}, whose rows have no order or can be read only once; give "
            "a list (list(X) of an iterator), an array or a frame"
        )
    if isinstance(X, list | tuple) and not X:
        raise AnnotationError("X has no rows; give at least one")


def refuse_numbers_as_texts(X: Any) -> None:
    """Raise an error for a list or column of bytes, or of texts that are numbers."""
    values: Any = listed(X) if as_frame(X) is None else None
    is_flat = isinstance(values, list | tuple) or getattr(values, "ndim", 0) == 1
    first = values[0] if is_flat and len(values) else None
    if isinstance(first, bytes):
        raise AnnotationError(f"X holds bytes ({first[:40]!r}); decode them to texts first")
    if isinstance(first, str) and is_number(first):
        raise AnnotationError(
            f"X holds texts that are numbers ({first[:40]!r}); give features as an array of shape "
            "(n, n_features), or put an encoder in front: make_pipeline(TextEncoder(), "
            "CrowdStackingClassifier())"
        )


def refuse_raw(estimator: Any, X: Any) -> None:
    """Raise an error for texts, images and columns of texts, which need ``members="auto"``."""
    frame = as_frame(as_fitted(estimator, X, reset=True))
    if frame is None:
        if (kind := raw_kind(X)) is not None and len(getattr(X, "shape", ())) < 3:
            first = listed(X)[0]
            shown = f" ({first[:40]!r} ...)" if isinstance(first, str) else ""
            encoder = "TextEncoder" if kind == "texts" else "ImageEncoder"
            raise AnnotationError(
                f"X holds {kind}{shown}, which are encoded only with members='auto'; with members "
                "of your own, put an encoder in front of the stack, rather than into its members: "
                f"make_pipeline({encoder}(), CrowdStackingClassifier(members))"
            )
        return
    for column in frame.iter_columns():
        values = column.to_numpy()
        present = values[~missing_mask(values)].tolist()
        text = next((v for v in present if isinstance(v, str) and not is_number(v)), None)
        if text is not None:
            raise AnnotationError(
                f"column {column.name!r} of X holds text ({text[:40]!r} ...), which is encoded "
                "only with members='auto'; with members of your own, put an encoder in front: "
                "make_pipeline(ColumnTransformer(...), CrowdStackingClassifier(members))"
            )
