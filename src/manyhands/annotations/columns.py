"""The columns of an annotation table, and their checks before they are frozen."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from manyhands.annotations.groups import RHO, check_rho
from manyhands.annotations.ids import GIVEN, InstanceOrder
from manyhands.annotations.passes import PASSES
from manyhands.annotations.scales import read_scale
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

SOURCES = ("observed", "pseudo", "generated", "synthetic")
"""Sources of annotations; the position of each is its code in ``AnnotationTable.sources``."""


class Columns(NamedTuple):
    """The fields of an `AnnotationTable`, in the same order.

    Functions that build, select and merge tables work on columns, so that they need not import the
    table.
    """

    instance: IntArray
    annotator: IntArray
    label: IntArray
    instances: AnyArray
    annotators: AnyArray
    classes: AnyArray
    weights: FloatArray | None = None
    sources: IntArray | None = None
    passes: IntArray | None = None
    instance_order: InstanceOrder = GIVEN
    groups: AnyArray | None = None
    group_rho: float = RHO
    scale: str = "nominal"
    class_order: str = "given"
    annotators_known: bool = True

    @property
    def pass_rows(self) -> IntArray:
        """Passes, of shape (n_passes, 3); an empty array of shape (0, 3) if there are none."""
        return np.zeros((0, 3), dtype=np.int32) if self.passes is None else self.passes

    @property
    def weight(self) -> FloatArray:
        """Weight of each annotation, shape (n_annotations,); 1 if none were given."""
        if self.weights is not None:
            return self.weights
        return cast(FloatArray, np.broadcast_to(np.float32(1.0), self.instance.shape))

    @property
    def source_codes(self) -> IntArray:
        """Code of each annotation's source, shape (n_annotations,); 0 if none were given."""
        if self.sources is not None:
            return self.sources
        return np.broadcast_to(np.int8(0), self.instance.shape)

    def take(self, rows: IntArray) -> Columns:
        """Keep the annotations at the given positions (or under a mask), and all passes."""
        return self._replace(
            instance=self.instance[rows],
            annotator=self.annotator[rows],
            label=self.label[rows],
            weights=None if self.weights is None else self.weights[rows],
            sources=None if self.sources is None else self.sources[rows],
        )


def checked(columns: Columns) -> Columns:
    """Return the columns frozen and in their smallest types.

    Raises
    ------
    AnnotationError
        If shapes differ, a code is outside its vocabulary, or a weight or source is invalid.
    """
    n = len(np.atleast_1d(np.asarray(columns.instance)))
    label_type = np.int16 if len(columns.classes) < np.iinfo(np.int16).max else np.int32
    return Columns(
        _codes(columns.instance, n, len(columns.instances), "instance", np.int32),
        _codes(columns.annotator, n, len(columns.annotators), "annotator", np.int32),
        _codes(columns.label, n, len(columns.classes), "label", label_type),
        weights=None if columns.weights is None else _weights(columns.weights, n),
        sources=None if columns.sources is None else _sources(columns.sources, n),
        passes=None if columns.passes is None else _passes(columns),
        instances=frozen(np.asarray(columns.instances), None),
        annotators=frozen(np.asarray(columns.annotators), None),
        classes=frozen(np.asarray(columns.classes), None),
        instance_order=columns.instance_order,
        groups=None if columns.groups is None else _groups(columns),
        group_rho=check_rho(columns.group_rho),
        scale=read_scale(columns.scale) or "nominal",
        class_order=columns.class_order,
        annotators_known=bool(columns.annotators_known),
    )


def _codes(values: Any, n: int, limit: int, name: str, dtype: Any) -> IntArray:
    codes = np.asarray(values)
    if codes.shape != (n,) or codes.ndim != 1:
        raise AnnotationError(
            f"{name} has shape {codes.shape}; instance, annotator and label must be "
            f"one-dimensional and equally long ({n})"
        )
    if len(codes) and (codes.min() < 0 or codes.max() >= limit):
        bad = codes[(codes < 0) | (codes >= limit)][0]
        raise AnnotationError(f"{name} holds the code {bad}, outside 0..{limit - 1}")
    return frozen(codes, dtype)


def _weights(values: Any, n: int) -> FloatArray | None:
    weights = np.asarray(values, dtype=np.float32)
    if weights.shape != (n,):
        raise AnnotationError(
            f"weight has shape {weights.shape}; one weight per annotation ({n}) is needed"
        )
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        raise AnnotationError(
            f"weight holds {weights[bad][0].item()!r}; weights are finite and not negative"
        )
    return None if (weights == 1).all() else frozen(weights, np.float32)


def _sources(values: Any, n: int) -> IntArray | None:
    codes = np.asarray(values)
    if codes.shape != (n,) or not np.isin(codes, range(len(SOURCES))).all():
        raise AnnotationError(
            f"source must hold one code 0..{len(SOURCES) - 1} per annotation ({SOURCES})"
        )
    return frozen(codes, np.int8) if codes.any() else None


def _passes(columns: Columns) -> IntArray | None:
    passes = np.asarray(columns.passes)
    if not passes.size:
        return None
    if passes.ndim != 2 or passes.shape[1] != 3:
        raise AnnotationError(
            f"passes has shape {passes.shape}; (n_passes, 3) is needed, one row [instance, "
            "annotator, kind] per pass"
        )
    shape = len(columns.instances), len(columns.annotators)
    outside = ((passes < 0) | (passes >= (*shape, len(PASSES)))).any(axis=1)
    if outside.any():
        raise AnnotationError(
            f"passes holds {passes[outside][0].tolist()}, outside {shape[0]} "
            f"instances, {shape[1]} annotators and the kinds {PASSES}"
        )
    return frozen(passes, np.int32)


def _groups(columns: Columns) -> AnyArray:
    groups, n = np.asarray(columns.groups), len(columns.annotators)
    if groups.shape != (n,) or (n and groups.dtype.kind != "U"):
        raise AnnotationError(
            f"groups has shape {groups.shape} and type {groups.dtype}; it must hold the name of "
            f"each annotator's family, shape ({n},), and '' for none (with_groups reads others)"
        )
    return frozen(groups, None)


def require_annotators(table: Any, what: str) -> None:
    """Refuse votes of unknown annotators where annotators are compared or judged.

    Parameters
    ----------
    table : AnnotationTable, or its columns
    what : str
        What needs to know the annotators, for the message.

    Raises
    ------
    AnnotationError
        If the annotators are not known.
    """
    if not getattr(table, "annotators_known", True):
        raise AnnotationError(
            f"these votes do not say who gave them, so {what} is not possible. Without the names "
            "of annotators you can compute agreement (alpha, Fleiss' kappa), the majority vote and "
            "the shares of the votes. For more, give one row per annotation, with its annotator"
        )


def frozen(values: AnyArray, dtype: Any) -> AnyArray:
    """Return a read-only array: a copy, unless the array is already read-only and owns its data."""
    borrowed = values.flags.writeable or values.base is not None
    if borrowed or (dtype is not None and values.dtype != dtype):
        values = np.array(values, dtype=dtype)
        values.flags.writeable = False
    return values


def read_sources(source: Any, n: int) -> IntArray:
    """Read the codes of n sources from one name, n names or n codes (see `SOURCES`).

    Raises
    ------
    AnnotationError
        If a name is unknown.
    """
    names = np.broadcast_to(np.asarray(source), (n,))
    if names.dtype.kind in "iu":
        return names
    unknown = set(names.tolist()) - set(SOURCES)
    if unknown:
        raise AnnotationError(f"source holds {sorted(unknown)[0]!r}; use one of {SOURCES}")
    return np.array([SOURCES.index(name) for name in names.tolist()], dtype=np.int8)
