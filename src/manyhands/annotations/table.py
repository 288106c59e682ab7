"""The one container of annotations: immutable, long, integer-coded, at most 16 bytes a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast
from warnings import warn

import narwhals as nw
import numpy as np

from manyhands.annotations.encoding import (
    as_values,
    check_no_mixture,
    check_positions,
    encode,
    make_vocabulary,
    missing_mask,
    resolve,
    tidy,
)
from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

__all__ = ["SOURCES", "AnnotationTable", "Duplicates"]

SOURCES = ("observed", "pseudo", "generated", "synthetic")
"""Where an annotation comes from; its position is its code in ``AnnotationTable.sources``."""

Duplicates = Literal["error", "last", "keep"]


@dataclass(frozen=True, eq=False, repr=False)
class AnnotationTable:
    """Annotations in long form: one row an annotation, integer codes, explicit vocabularies.

    Build one with `from_frame`, `from_matrix` or `from_arrays`; every method returns a new
    table. It stands as ``y`` in scikit-learn's ``cross_validate`` and ``GridSearchCV``
    (``shape``, ``len``, row indexing and ``__array__`` are those of the (n, R) matrix).

    Attributes
    ----------
    instance, annotator, label : integer arrays of shape (n_annotations,)
        Codes into ``instances``, ``annotators`` and ``classes``.
    instances, annotators, classes : arrays
        The original ids and class values. Instances without annotations stand here too.
    weights : float32 array of shape (n_annotations,) or None
        Weight of every annotation; None means all 1. `weight` is never None.
    sources : int8 array of shape (n_annotations,) or None
        Code of every annotation's source (see `SOURCES`); None means all observed.

    Notes
    -----
    Memory: 4 + 4 + 2 bytes an annotation, + 4 with weights, + 1 with sources.
    """

    instance: IntArray
    annotator: IntArray
    label: IntArray
    instances: AnyArray
    annotators: AnyArray
    classes: AnyArray
    weights: FloatArray | None = None
    sources: IntArray | None = None

    def __post_init__(self) -> None:
        label_type = np.int16 if len(self.classes) < np.iinfo(np.int16).max else np.int32
        types = {"instance": np.int32, "annotator": np.int32, "label": label_type}
        limits = {
            "instance": len(self.instances),
            "annotator": len(self.annotators),
            "label": len(self.classes),
        }
        for name, dtype in types.items():
            codes = np.asarray(getattr(self, name))
            if codes.shape != (self.n_annotations,) or codes.ndim != 1:
                raise AnnotationError(
                    f"{name} has shape {codes.shape}; instance, annotator and label must be "
                    f"one-dimensional and equally long ({self.n_annotations})"
                )
            if len(codes) and (codes.min() < 0 or codes.max() >= limits[name]):
                bad = codes[(codes < 0) | (codes >= limits[name])][0]
                raise AnnotationError(f"{name} holds the code {bad}, outside 0..{limits[name] - 1}")
            object.__setattr__(self, name, _frozen(codes, dtype))
        if self.weights is not None:
            object.__setattr__(self, "weights", self._checked_weights())
        if self.sources is not None:
            codes = np.asarray(self.sources)
            if (
                codes.shape != (self.n_annotations,)
                or not np.isin(codes, range(len(SOURCES))).all()
            ):
                raise AnnotationError(
                    f"source must be one code 0..{len(SOURCES) - 1} an annotation ({SOURCES})"
                )
            object.__setattr__(self, "sources", _frozen(codes, np.int8) if codes.any() else None)
        for name in ("instances", "annotators", "classes"):
            object.__setattr__(self, name, _frozen(np.asarray(getattr(self, name)), None))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickle and deepcopy make arrays writeable again.
        for name, value in state.items():
            frozen = _frozen(value, None) if isinstance(value, np.ndarray) else value
            object.__setattr__(self, name, frozen)

    def _checked_weights(self) -> FloatArray | None:
        weights = np.asarray(self.weights, dtype=np.float32)
        if weights.shape != (self.n_annotations,):
            raise AnnotationError(
                f"weight has shape {weights.shape}; one weight an annotation "
                f"({self.n_annotations}) is needed"
            )
        bad = ~np.isfinite(weights) | (weights < 0)
        if bad.any():
            raise AnnotationError(
                f"weight holds {weights[bad][0].item()!r}; weights are finite and not negative"
            )
        return None if (weights == 1).all() else _frozen(weights, np.float32)

    # -- makers ---------------------------------------------------------------------------------

    @classmethod
    def from_frame(
        cls,
        df: Any,
        *,
        task: str = "task",
        worker: str = "worker",
        label: str = "label",
        weight: str | None = None,
        source: str | None = None,
        classes: Any = None,
        tasks: Any = None,
        workers: Any = None,
        duplicates: Duplicates = "error",
    ) -> AnnotationTable:
        """Read a long data frame: one row an annotation.

        Parameters
        ----------
        df : pandas, polars or pyarrow data frame
        task, worker, label, weight, source : str
            Names of the columns with the instance, the annotator, the class and (optional) the
            weight and the source.
        classes : sequence, optional
            All classes, in the order wanted; default: the sorted labels.
        tasks : sequence, optional
            All instance ids, **in the order of the rows of X**; default: the sorted ids.
        workers : sequence, optional
            All annotator ids; default: the sorted ids.
        duplicates : {"error", "last", "keep"}
            What to do with repeated (instance, annotator) pairs.

        Returns
        -------
        AnnotationTable
            A row whose label is missing adds no annotation, but its instance and annotator
            stay in the vocabularies (with a warning that says how many).

        Raises
        ------
        AnnotationError
            If a column is unknown, an id is missing, a label is outside ``classes`` or an id
            outside ``tasks`` or ``workers``, or a pair is repeated.
        """
        data = nw.from_native(df, eager_only=True)
        columns = {"task": task, "worker": worker, "label": label}
        columns |= {} if weight is None else {"weight": weight}
        columns |= {} if source is None else {"source": source}
        for argument, name in columns.items():
            if name not in data.columns:
                raise AnnotationError(
                    f"{argument}={name!r} is not a column; the columns are "
                    f"{', '.join(map(repr, data.columns))}. Pass {argument}=<name of the column>"
                )
        ids = {name: data[columns[name]].to_numpy() for name in ("task", "worker")}
        for argument, values in ids.items():
            gaps = missing_mask(values)
            if gaps.any():
                raise AnnotationError(
                    f"column {columns[argument]!r} ({argument}) is empty in row "
                    f"{np.flatnonzero(gaps)[0]} and {gaps.sum() - 1} more; fill or drop these rows"
                )
        labels, gaps = _labels_and_gaps(data[label])
        if gaps.any():
            warn(
                f"{gaps.sum()} of {len(gaps)} rows have no label in column {label!r}: they count "
                "as missing annotations (their instances and annotators are kept)",
                stacklevel=2,
            )
        instance, instances = encode(
            ids["task"],
            None if tasks is None else make_vocabulary(tasks, "tasks"),
            argument=f"column {task!r}",
            vocabulary_name="tasks",
        )
        if tasks is None:
            _warn_of_numbers_as_text(instances, task)
        annotator, annotators = encode(
            ids["worker"],
            None if workers is None else make_vocabulary(workers, "workers"),
            argument=f"column {worker!r}",
            vocabulary_name="workers",
        )
        _warn_of_minus_one(labels, classes, label)
        label_codes, classes = encode(
            labels,
            None if classes is None else make_vocabulary(classes, "classes"),
            argument=f"column {label!r}",
            vocabulary_name="classes",
        )
        table = cls(
            instance[~gaps],
            annotator[~gaps],
            label_codes,
            instances,
            annotators,
            classes,
            None if weight is None else data[weight].to_numpy()[~gaps],
            None
            if source is None
            else _source_codes(data[source].to_numpy()[~gaps], len(label_codes)),
        )
        return table._without_duplicates(duplicates)

    @classmethod
    def from_matrix(
        cls, A: Any, classes: Any = None, *, instances: Any = None, annotators: Any = None
    ) -> AnnotationTable:
        """Read a dense (n_instances, n_annotators) matrix of class values.

        Parameters
        ----------
        A : array-like of shape (n, R)
            Missing: NaN or None, and -1 unless ``classes`` names -1 as a class.
        classes : sequence, optional
            All classes, in the order wanted; default: the sorted values.
        instances, annotators : sequence, optional
            Ids of the rows and columns; default: their numbers.

        Raises
        ------
        AnnotationError
            If A is not two-dimensional or holds a value outside ``classes``.
        """
        A = as_values(A)
        if A.ndim != 2:
            raise AnnotationError(f"A must have two dimensions (n, R), got shape {A.shape}")
        vocabulary = None if classes is None else make_vocabulary(classes, "classes")
        gaps = missing_mask(A)
        minus_one_is_class = vocabulary is not None and bool((vocabulary == MISSING).any())
        if A.dtype.kind != "U" and not minus_one_is_class:
            gaps = gaps | np.asarray(A == MISSING, dtype=bool)
        check_no_mixture(A[~gaps], "A")
        rows, columns = np.nonzero(~gaps)
        codes, vocabulary = encode(
            A[rows, columns], vocabulary, argument="A", vocabulary_name="classes"
        )
        n, r = A.shape
        return cls(
            rows,
            columns,
            codes,
            _ids(instances, n, "instances"),
            _ids(annotators, r, "annotators"),
            vocabulary,
        )

    @classmethod
    def from_arrays(
        cls,
        instance: Any,
        annotator: Any,
        label: Any,
        *,
        classes: Any = None,
        instances: Any = None,
        annotators: Any = None,
        n_instances: int | None = None,
        n_annotators: int | None = None,
        weight: Any = None,
        source: Any = None,
        duplicates: Duplicates = "error",
    ) -> AnnotationTable:
        """Read three equally long arrays.

        Parameters
        ----------
        instance, annotator : array-like of shape (m,)
            Integers are positions (0-based); strings are ids, coded in sorted order or by
            ``instances`` / ``annotators``.
        label : array-like of shape (m,)
            Class values.
        classes, instances, annotators : sequence, optional
            Vocabularies; default: the sorted labels, and the positions or sorted ids.
        n_instances, n_annotators : int, optional
            Lengths of the axes where no vocabulary is given; default: the largest position + 1.
        weight : array-like of shape (m,), optional
        source : str, array of str, or array of codes, optional
            See `SOURCES`; default: observed.
        duplicates : {"error", "last", "keep"}

        Raises
        ------
        AnnotationError
            If lengths differ, a value is outside its vocabulary, or a pair is repeated.
        """
        labels = as_values(label)
        lengths = {len(np.atleast_1d(np.asarray(v))) for v in (instance, annotator, labels)}
        if len(lengths) != 1:
            raise AnnotationError(
                "instance, annotator and label must be equally long, got "
                f"{len(instance)}, {len(annotator)} and {len(labels)}"
            )
        gaps = missing_mask(labels)
        if gaps.any():
            raise AnnotationError(
                f"label is missing in row {np.flatnonzero(gaps)[0]} and {gaps.sum() - 1} more; "
                "leave these rows out (n_instances= keeps the instances)"
            )
        rows, instances = _axis(instance, instances, n_instances, "instance")
        columns, annotators = _axis(annotator, annotators, n_annotators, "annotator")
        codes, vocabulary = encode(
            labels,
            None if classes is None else make_vocabulary(classes, "classes"),
            argument="label",
            vocabulary_name="classes",
        )
        table = cls(
            rows,
            columns,
            codes,
            instances,
            annotators,
            vocabulary,
            weight,
            None if source is None else _source_codes(source, len(codes)),
        )
        return table._without_duplicates(duplicates)

    # -- size and shape -------------------------------------------------------------------------

    @property
    def n_instances(self) -> int:
        """Number of instances, those without annotations included."""
        return len(self.instances)

    @property
    def n_annotators(self) -> int:
        """Number of annotators, silent ones included."""
        return len(self.annotators)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def n_annotations(self) -> int:
        """Number of annotations (rows)."""
        return len(np.atleast_1d(np.asarray(self.instance)))

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_instances, n_annotators) of the matrix this stands for."""
        return self.n_instances, self.n_annotators

    ndim = 2

    def __len__(self) -> int:
        return self.n_instances

    @property
    def nbytes(self) -> int:
        """Bytes held by the columns (vocabularies not counted)."""
        columns = (self.instance, self.annotator, self.label, self.weights, self.sources)
        return sum(c.nbytes for c in columns if c is not None)

    def __repr__(self) -> str:
        added = "" if self.sources is None else f", {int((self.sources > 0).sum())} added"
        return (
            f"AnnotationTable({self.n_annotations} annotations{added}: {self.n_instances} "
            f"instances x {self.n_annotators} annotators, {self.n_classes} classes)"
        )

    # -- columns --------------------------------------------------------------------------------

    @property
    def weight(self) -> FloatArray:
        """Weight of every annotation, shape (n_annotations,); 1 where none was given."""
        if self.weights is not None:
            return self.weights
        return cast(FloatArray, np.broadcast_to(np.float32(1.0), (self.n_annotations,)))

    @property
    def source(self) -> AnyArray:
        """Name of every annotation's source (see `SOURCES`), shape (n_annotations,)."""
        return np.array(SOURCES)[self._source_codes]

    @property
    def _source_codes(self) -> IntArray:
        if self.sources is not None:
            return self.sources
        return np.broadcast_to(np.int8(0), (self.n_annotations,))

    @property
    def observed(self) -> AnnotationTable:
        """The observed annotations alone, without pseudo, generated and synthetic ones."""
        return self if self.sources is None else self.take(self.sources == 0)

    def by_instance(self) -> tuple[IntArray | None, IntArray]:
        """Order that sorts rows by instance (None: sorted already), and each instance's start.

        Not kept on the table: it would cost as much memory as the annotations.
        """
        sorted_already = bool((np.diff(self.instance) >= 0).all())
        order = None if sorted_already else np.argsort(self.instance, kind="stable")
        counts = np.bincount(self.instance, minlength=self.n_instances)
        return order, np.concatenate([[0], np.cumsum(counts)])

    # -- views and copies -----------------------------------------------------------------------

    def vote_counts(self) -> FloatArray:
        """Sum the weights each class received, shape (n_instances, n_classes)."""
        flat = self.instance.astype(np.int64) * self.n_classes + self.label
        size = self.n_instances * self.n_classes
        counts = np.bincount(flat, weights=self.weights, minlength=size)
        return counts.reshape(self.n_instances, self.n_classes).astype(np.float64, copy=False)

    def annotations_per_instance(self) -> IntArray:
        """Count the annotations of every instance, shape (n_instances,)."""
        return np.bincount(self.instance, minlength=self.n_instances)

    def annotations_per_annotator(self) -> IntArray:
        """Count the annotations of every annotator, shape (n_annotators,)."""
        return np.bincount(self.annotator, minlength=self.n_annotators)

    def to_matrix(self, *, codes: bool = False) -> AnyArray:
        """Return the dense (n_instances, n_annotators) matrix.

        Parameters
        ----------
        codes : bool
            Class codes, -1 where missing, instead of class values (-1 where missing; None for
            string classes; NaN where -1 is a class).

        Raises
        ------
        AnnotationError
            If pairs are repeated: a cell can hold one annotation only.
        """
        if self._has_duplicates():
            raise AnnotationError(
                "this table keeps repeated (instance, annotator) pairs, which a matrix cannot "
                'hold; build it with duplicates="last"'
            )
        dense = np.full(self.shape, MISSING, dtype=self.label.dtype)
        dense[self.instance, self.annotator] = self.label
        if codes:
            return dense
        if self.classes.dtype.kind not in "iub":
            values = np.array([*self.classes.tolist(), None], dtype=object)
        elif (self.classes == MISSING).any():
            values = np.append(self.classes.astype(np.float64), np.nan)
        else:
            values = np.append(self.classes.astype(np.int64), MISSING)
        return values[dense]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """Dense class codes, -1 where missing: what scikit-learn's validation looks at."""
        if copy is False:
            raise ValueError("an AnnotationTable becomes an array only by copying")
        dense = self.to_matrix(codes=True)
        return dense if dtype is None else dense.astype(dtype)

    def to_frame(self, backend: Literal["pandas", "polars", "pyarrow"] = "pandas") -> Any:
        """Return a long data frame: task, worker, label, weight, source (names).

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}
        """
        columns: dict[str, AnyArray] = {
            "task": self.instances[self.instance],
            "worker": self.annotators[self.annotator],
            "label": self.classes[self.label],
            "weight": np.array(self.weight),
            "source": self.source,
        }
        try:
            frame = nw.from_dict(columns, backend=backend)
        except ImportError as error:
            raise_missing_extra(f"to_frame(backend={backend!r})", "io", error)
        return frame.to_native()

    def take(self, rows: Any) -> AnnotationTable:
        """Keep the annotations at the given positions (or under a mask); all vocabularies stay."""
        rows = np.asarray(rows)
        return replace(
            self,
            instance=self.instance[rows],
            annotator=self.annotator[rows],
            label=self.label[rows],
            weights=None if self.weights is None else self.weights[rows],
            sources=None if self.sources is None else self.sources[rows],
        )

    def select(self, instances: Any = None, annotators: Any = None) -> AnnotationTable:
        """Keep some instances and annotators, in the order given.

        Parameters
        ----------
        instances, annotators : ids, mask or slice, optional
            Ids as in the vocabularies (positions, if those hold strings and integers are
            given). Rows by position: ``table[positions]``.

        Raises
        ------
        AnnotationError
            If an id is unknown.
        """
        table = self
        if annotators is not None:
            keep = resolve(
                annotators, self.annotators, argument="annotators", vocabulary_name="annotators"
            )
            if len(np.unique(keep)) < len(keep):
                raise AnnotationError("annotators names an annotator twice; name each once")
            new = np.full(self.n_annotators, -1)
            new[keep] = np.arange(len(keep))
            rows = np.flatnonzero(new[self.annotator] >= 0)
            kept = self.take(rows)
            table = replace(kept, annotator=new[kept.annotator], annotators=self.annotators[keep])
        if instances is not None:
            table = table._instances_at(
                resolve(
                    instances, self.instances, argument="instances", vocabulary_name="instances"
                )
            )
        return table

    def __getitem__(self, key: Any) -> AnnotationTable:
        """Rows of the matrix by position: integer, slice, mask or array (repetition allowed)."""
        if isinstance(key, tuple):
            key, *rest = key
            if rest not in ([Ellipsis], [slice(None)]):
                raise IndexError("an AnnotationTable is indexed by rows: table[rows]")
        if isinstance(key, slice):
            return self._instances_at(np.arange(self.n_instances)[key])
        key = np.atleast_1d(np.asarray(key))
        if key.dtype.kind == "b":
            if key.shape != (self.n_instances,):
                raise IndexError(f"a mask of shape {key.shape} for {self.n_instances} instances")
            return self._instances_at(np.flatnonzero(key))
        if key.size and key.dtype.kind not in "iu":
            raise IndexError("table[rows] takes positions; use table.select(instances=ids) for ids")
        return self._instances_at(
            check_positions(key.astype(np.int64), self.n_instances, "table[rows]")
        )

    def _instances_at(self, positions: IntArray) -> AnnotationTable:
        order, start = self.by_instance()
        counts = start[positions + 1] - start[positions]
        first = np.cumsum(counts) - counts
        rows = np.arange(counts.sum()) - np.repeat(first - start[positions], counts)
        rows = rows if order is None else order[rows]
        return replace(
            self.take(rows),
            instance=np.repeat(np.arange(len(positions)), counts),
            instances=self.instances[positions],
        )

    def with_added(
        self, other: AnnotationTable, *, duplicates: Duplicates = "error"
    ) -> AnnotationTable:
        """Append the annotations of another table over the same classes.

        Instances and annotators unknown here are appended to the vocabularies.

        Raises
        ------
        AnnotationError
            If classes differ, or a pair stands in both tables (see ``duplicates``).
        """
        if not np.array_equal(self.classes, other.classes):
            raise AnnotationError(
                f"the added table has classes {other.classes.tolist()}, this one "
                f"{self.classes.tolist()}; build both with the same classes="
            )
        rows, instances = _merge(self.instances, other.instances, other.instance)
        columns, annotators = _merge(self.annotators, other.annotators, other.annotator)
        table = AnnotationTable(
            np.concatenate([self.instance, rows]),
            np.concatenate([self.annotator, columns]),
            np.concatenate([self.label, other.label]),
            instances,
            annotators,
            self.classes,
            np.concatenate([self.weight, other.weight]),
            np.concatenate([self._source_codes, other._source_codes]),
        )
        return table._without_duplicates(duplicates)

    def with_source(self, source: str) -> AnnotationTable:
        """Mark every annotation with one source (see `SOURCES`)."""
        return replace(self, sources=_source_codes(source, self.n_annotations))

    def equals(self, other: AnnotationTable) -> bool:
        """Tell whether both hold the same rows in the same order over the same vocabularies."""
        names = ("instance", "annotator", "label", "weight", "source")
        vocabularies = ("instances", "annotators", "classes")
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in (*names, *vocabularies)
        )

    # -- duplicates -----------------------------------------------------------------------------

    def _pairs(self) -> IntArray:
        return self.instance.astype(np.int64) * max(self.n_annotators, 1) + self.annotator

    def _has_duplicates(self) -> bool:
        pairs = np.sort(self._pairs())
        return bool((pairs[1:] == pairs[:-1]).any())

    def _without_duplicates(self, policy: Duplicates) -> AnnotationTable:
        if policy not in ("error", "last", "keep"):
            raise AnnotationError(
                f"duplicates={policy!r} is unknown; use 'error', 'last' or 'keep'"
            )
        if policy == "keep" or not self._has_duplicates():
            return self
        pairs = self._pairs()
        if policy == "last":
            _, last = np.unique(pairs[::-1], return_index=True)
            return self.take(np.sort(len(pairs) - 1 - last))
        unique, counts = np.unique(pairs, return_counts=True)
        first = int(np.flatnonzero(pairs == unique[counts > 1][0])[0])
        raise AnnotationError(
            f"{int((counts > 1).sum())} (instance, annotator) pairs are repeated, the first being "
            f"instance {self.instances[self.instance[first]].item()!r} by annotator "
            f"{self.annotators[self.annotator[first]].item()!r}. Remove them, or say what to do: "
            'duplicates="last" keeps the last, duplicates="keep" keeps all'
        )

    def mask_of_classes_seen(self) -> BoolArray:
        """Mark the classes that occur among the annotations, shape (n_classes,)."""
        return np.bincount(self.label, minlength=self.n_classes) > 0


def _warn_of_numbers_as_text(ids: AnyArray, column: str) -> None:
    """Ids "0", "1", "10", "2" sort as text, which is hardly the order of the rows of X."""
    if ids.dtype.kind not in "UT" or not all(v.isdecimal() for v in ids.tolist()):
        return
    if (np.diff([int(v) for v in ids.tolist()]) < 0).any():
        warn(
            f"column {column!r} holds numbers as text, which sort as text ({ids[0].item()!r}, "
            f"{ids[1].item()!r}, ...); pass tasks= in the order of the rows of X, or convert "
            "the column to integers",
            stacklevel=3,
        )


def _labels_and_gaps(column: Any) -> tuple[AnyArray, BoolArray]:
    """Labels that are there, and a mask of the rows where they are missing.

    Nulls leave before the conversion: a gap would turn large integers into inexact floats.
    """
    gaps = np.array(column.is_null().to_numpy(), dtype=bool)
    labels = column.filter(~column.is_null()).to_numpy()
    nan = missing_mask(labels)
    gaps[np.flatnonzero(~gaps)[nan]] = True
    return labels[~nan], gaps


def _warn_of_minus_one(labels: AnyArray, classes: Any, column: str) -> None:
    """In a long table -1 is a class like others; beside 0, 1, 2 it looks like a gap."""
    if classes is not None or labels.dtype.kind not in "if":
        return
    if (labels == MISSING).any() and not np.isin(labels, [-1, 1]).all():
        warn(
            f"column {column!r} holds -1, which counts as a class in a long table; drop these "
            "rows if it stands for a missing annotation, or name the classes in classes=",
            stacklevel=3,
        )


def _frozen(values: AnyArray, dtype: Any) -> AnyArray:
    """Copy (unless frozen and nobody else's) and forbid writing: a table cannot change."""
    borrowed = values.flags.writeable or values.base is not None
    if borrowed or (dtype is not None and values.dtype != dtype):
        values = np.array(values, dtype=dtype)
        values.flags.writeable = False
    return values


def _ids(given: Any, n: int, argument: str) -> AnyArray:
    if given is None:
        return np.arange(n)
    ids = make_vocabulary(given, argument)
    if len(ids) != n:
        raise AnnotationError(f"{argument} has {len(ids)} ids for an axis of length {n}")
    return ids


def _axis(
    values: Any, vocabulary: Any, length: int | None, argument: str
) -> tuple[IntArray, AnyArray]:
    values = as_values(values)
    if missing_mask(values).any():
        raise AnnotationError(f"{argument} holds a missing value; leave such rows out")
    check_no_mixture(values, argument)
    values = tidy(values, argument) if values.size else values.astype(np.int64)
    plural = f"{argument}s"
    if values.dtype.kind in "UT":
        ids = None if vocabulary is None else make_vocabulary(vocabulary, plural)
        return encode(values, ids, argument=argument, vocabulary_name=plural)
    if vocabulary is not None:
        length = len(vocabulary)
    elif length is None:
        length = int(values.max()) + 1 if values.size else 0
        if length > 1_000_000 + 100 * len(values):
            raise AnnotationError(
                f"{argument} holds {length - 1} for {len(values)} annotations: integers are "
                f"positions here, and these look like ids. Pass them as strings, or give n_{plural}"
            )
    outside = (values < 0) | (values >= length)
    if outside.any():
        raise AnnotationError(
            f"{argument} holds the position {values[outside][0]}, outside 0..{length - 1}; "
            f"raise n_{plural}, or correct the rows"
        )
    return values, _ids(vocabulary, length, plural)


def _merge(mine: AnyArray, theirs: AnyArray, codes: IntArray) -> tuple[IntArray, AnyArray]:
    """Re-code ``codes`` (into ``theirs``) over ``mine`` with what is new appended."""
    if np.array_equal(mine, theirs):
        return codes, mine
    if len(mine) and len(theirs) and (mine.dtype.kind in "UT") != (theirs.dtype.kind in "UT"):
        raise AnnotationError(
            f"the added table has ids such as {theirs[0].item()!r}, this one such as "
            f"{mine[0].item()!r}; convert one to the other's type"
        )
    new = theirs[~np.isin(theirs, mine)]
    merged = np.concatenate([mine, new]) if len(new) else mine
    positions, _ = encode(theirs, merged, argument="ids", vocabulary_name="the merged ids")
    return positions[codes], merged


def _source_codes(source: Any, n: int) -> IntArray:
    names = np.broadcast_to(np.asarray(source), (n,))
    if names.dtype.kind in "iu":
        return names
    unknown = set(names.tolist()) - set(SOURCES)
    if unknown:
        raise AnnotationError(f"source holds {sorted(unknown)[0]!r}; use one of {SOURCES}")
    return np.array([SOURCES.index(name) for name in names.tolist()], dtype=np.int8)
