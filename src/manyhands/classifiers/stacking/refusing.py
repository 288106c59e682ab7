"""Refusals of features that no stack can read, or only one of ``members="auto"``."""

from __future__ import annotations

from typing import Any

from manyhands.annotations.encoding import missing_mask
from manyhands.annotations.ids import as_frame
from manyhands.encoders.inputs import listed, raw_kind
from manyhands.exceptions import AnnotationError
from manyhands.fitting.reading import as_fitted, is_number


def refuse_no_rows(X: Any) -> None:
    """Refuse what is no collection of rows: one text, an iterator, None, an empty list."""
    if isinstance(X, str | bytes):
        raise AnnotationError(f"X is one text ({X[:40]!r}); give a list of texts: [X]")
    # Datasets and DataLoaders of torch have one or the other, too.
    if not any(hasattr(X, name) for name in ("shape", "__getitem__", "__array__", "dataset")):
        raise AnnotationError(
            f"X is a {type(X).__name__}, and rows are needed in an order, more than once; give a "
            "list (list(X) of an iterator), an array or a frame"
        )
    if isinstance(X, list | tuple) and not X:
        raise AnnotationError("X has no rows; give at least one")


def refuse_numbers_as_texts(X: Any) -> None:
    """Refuse a list or column of texts that are numbers, or of bytes, where features are read."""
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
    """Refuse texts, images and columns of texts, which only ``members="auto"`` would encode."""
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
