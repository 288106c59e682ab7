"""The one container of annotations: immutable, long, integer-coded, at most 16 bytes a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast
from warnings import warn

import narwhals as nw
import numpy as np

from manyhands.annotations.encoding import (
    PASSES,
    as_values,
    check_marks,
    check_no_mixture,
    check_positions,
    encode,
    is_text,
    make_vocabulary,
    missing_mask,
    pass_kinds,
    read_marks,
    recode_passes,
    resolve,
    tidy,
)
from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

__all__ = ["PASSES", "SOURCES", "AnnotationTable", "Duplicates"]

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
    passes : int32 array of shape (n_passes, 3) or None
        Instance code, annotator code and kind (see `PASSES`) of every pass: an annotator who
        looked and declined to choose ("abstain"), or who passed on ("skip"). Passes are no
        annotations: nothing but `passes`, `abstentions`, `skips` and `to_frame` shows them.

    Notes
    -----
    Memory: 4 + 4 + 2 bytes an annotation, + 4 with weights, + 1 with sources; 12 bytes a pass.
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
        if self.passes is not None:
            object.__setattr__(self, "passes", self._checked_passes())
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

    def _checked_passes(self) -> IntArray | None:
        passes = np.asarray(self.passes)
        if not passes.size:
            return None
        if passes.ndim != 2 or passes.shape[1] != 3:
            raise AnnotationError(
                f"passes has shape {passes.shape}; one row [instance, annotator, kind] a pass, "
                "(n_passes, 3), is needed"
            )
        outside = ((passes < 0) | (passes >= (*self.shape, len(PASSES)))).any(axis=1)
        if outside.any():
            raise AnnotationError(
                f"passes holds {passes[outside][0].tolist()}, outside {self.n_instances} "
                f"instances, {self.n_annotators} annotators and the kinds {PASSES}"
            )
        return _frozen(passes, np.int32)

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
        abstain: Any = None,
        skip: Any = None,
        passes: str | None = None,
        duplicates: Duplicates = "error",
    ) -> AnnotationTable:
        """Read a long data frame: one row an annotation.

        Parameters
        ----------
        df : pandas, polars or pyarrow data frame
        task, worker, label, weight, source, passes : str
            Names of the columns with the instance, the annotator, the class and (optional) the
            weight, the source and, where the label is missing, the pass (one of `PASSES`).
        classes : sequence, optional
            All classes, in the order wanted; default: the sorted labels.
        tasks : sequence, optional
            All instance ids, **in the order of the rows of X**; default: the sorted ids.
        workers : sequence, optional
            All annotator ids; default: the sorted ids.
        abstain, skip : str, int or sequence of these, optional
            Values in the column of labels which are no classes, but mean that the annotator
            looked and declined to choose ("unsure"), or passed on ("broken image").
        duplicates : {"error", "last", "keep"}
            What to do with repeated (instance, annotator) pairs, be they annotated or passed.

        Returns
        -------
        AnnotationTable
            A row whose label is missing adds no annotation, but its instance and annotator
            stay in the vocabularies (with a warning that says how many). Passes go to
            ``passes``; they have neither weight nor source.

        Raises
        ------
        AnnotationError
            If a column is unknown, an id is missing, a label is outside ``classes`` or an id
            outside ``tasks`` or ``workers``, a pair is repeated, a value of ``abstain`` or
            ``skip`` stands in both, is a class or of another type than the labels, or a row has
            both a label and a pass.
        """
        data = nw.from_native(df, eager_only=True)
        columns = {"task": task, "worker": worker, "label": label}
        columns |= {} if weight is None else {"weight": weight}
        columns |= {} if source is None else {"source": source}
        columns |= {} if passes is None else {"passes": passes}
        for argument, name in columns.items():
            if name not in data.columns:
                raise AnnotationError(
                    f"{argument}={name!r} is not a column; the columns are "
                    f"{', '.join(map(repr, data.columns))}. Pass {argument}=<name of the column>"
                )
        if source is None and "source" in data.columns:
            _warn_of_marks(data["source"].to_numpy())
        ids = {name: data[columns[name]].to_numpy() for name in ("task", "worker")}
        for argument, values in ids.items():
            gaps = missing_mask(values)
            if gaps.any():
                raise AnnotationError(
                    f"column {columns[argument]!r} ({argument}) is empty in row "
                    f"{np.flatnonzero(gaps)[0]} and {gaps.sum() - 1} more; fill or drop these rows"
                )
        vocabulary = None if classes is None else make_vocabulary(classes, "classes")
        marks = read_marks(abstain, skip, vocabulary)
        labels, given, kinds = _read_responses(data, label, passes, marks)
        passed = kinds >= 0
        n_missing = int((~given & ~passed).sum())
        if n_missing:
            warn(
                f"{n_missing} of {len(data)} rows have no label in column {label!r}: they count "
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
        label_codes, vocabulary = encode(
            labels, vocabulary, argument=f"column {label!r}", vocabulary_name="classes"
        )
        table = cls(
            instance[given],
            annotator[given],
            label_codes,
            instances,
            annotators,
            vocabulary,
            None if weight is None else data[weight].to_numpy()[given],
            None
            if source is None
            else _source_codes(data[source].to_numpy()[given], len(label_codes)),
            np.column_stack([instance[passed], annotator[passed], kinds[passed]]),
        )
        return table._without_duplicates(duplicates, _ages(given, passed))

    @classmethod
    def from_matrix(
        cls,
        A: Any,
        classes: Any = None,
        *,
        instances: Any = None,
        annotators: Any = None,
        abstain: Any = None,
        skip: Any = None,
    ) -> AnnotationTable:
        """Read a dense (n_instances, n_annotators) matrix of class values.

        Parameters
        ----------
        A : array-like of shape (n, R)
            Missing: NaN or None, and -1 unless ``classes``, ``abstain`` or ``skip`` names it.
        classes : sequence, optional
            All classes, in the order wanted; default: the sorted values.
        instances, annotators : sequence, optional
            Ids of the rows and columns; default: their numbers.
        abstain, skip : str, int or sequence of these, optional
            Values that mean a pass, as in `from_frame`.

        Raises
        ------
        AnnotationError
            If A is not two-dimensional or holds a value outside ``classes``, or ``abstain`` and
            ``skip`` fit neither it nor each other, as in `from_frame`.
        """
        if isinstance(A, np.ma.MaskedArray):
            A = np.ma.filled(A.astype(object), None)
        A = as_values(A)
        if A.ndim != 2:
            raise AnnotationError(f"A must have two dimensions (n, R), got shape {A.shape}")
        vocabulary = None if classes is None else make_vocabulary(classes, "classes")
        marks = read_marks(abstain, skip, vocabulary)
        gaps = missing_mask(A)
        minus_one_is_class = vocabulary is not None and bool((vocabulary == MISSING).any())
        if A.dtype.kind != "U" and not minus_one_is_class and MISSING not in marks:
            gaps = gaps | np.asarray(A == MISSING, dtype=bool)
        rows, columns = np.nonzero(~gaps)
        labels = A[rows, columns]
        check_marks(marks, labels, "A")
        kinds = pass_kinds(labels, marks)
        given, passed = kinds < 0, kinds >= 0
        codes, vocabulary = encode(
            labels[given], vocabulary, argument="A", vocabulary_name="classes"
        )
        n, r = A.shape
        return cls(
            rows[given],
            columns[given],
            codes,
            _ids(instances, n, "instances"),
            _ids(annotators, r, "annotators"),
            vocabulary,
            passes=np.column_stack([rows[passed], columns[passed], kinds[passed]]),
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
        abstain: Any = None,
        skip: Any = None,
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
        abstain, skip : str, int or sequence of these, optional
            Values of ``label`` that mean a pass, as in `from_frame`.
        duplicates : {"error", "last", "keep"}

        Raises
        ------
        AnnotationError
            If lengths differ, a value is outside its vocabulary, a pair is repeated, or
            ``abstain`` and ``skip`` fit neither the labels nor each other, as in `from_frame`.
        """
        labels = as_values(label)
        shapes = [np.shape(v) for v in (instance, annotator, labels)]
        if len(set(shapes)) != 1 or labels.ndim != 1:
            raise AnnotationError(
                "instance, annotator and label must be one-dimensional and equally long, got "
                f"shapes {', '.join(map(str, shapes))}"
            )
        if weight is not None and np.shape(weight) != labels.shape:
            raise AnnotationError(
                f"weight has shape {np.shape(weight)}; one weight a label, {labels.shape}, is "
                "needed"
            )
        gaps = missing_mask(labels)
        if gaps.any():
            raise AnnotationError(
                f"label is missing in row {np.flatnonzero(gaps)[0]} and {gaps.sum() - 1} more; "
                "leave these rows out (n_instances= keeps the instances)"
            )
        rows, instances = _axis(instance, instances, n_instances, "instance")
        columns, annotators = _axis(annotator, annotators, n_annotators, "annotator")
        vocabulary = None if classes is None else make_vocabulary(classes, "classes")
        marks = read_marks(abstain, skip, vocabulary)
        check_marks(marks, labels, "label")
        kinds = pass_kinds(labels, marks)
        given, passed = kinds < 0, kinds >= 0
        codes, vocabulary = encode(
            labels[given], vocabulary, argument="label", vocabulary_name="classes"
        )
        table = cls(
            rows[given],
            columns[given],
            codes,
            instances,
            annotators,
            vocabulary,
            None if weight is None else np.asarray(weight)[given],
            None if source is None else _source_codes(source, len(labels))[given],
            np.column_stack([rows[passed], columns[passed], kinds[passed]]),
        )
        return table._without_duplicates(duplicates, _ages(given, passed))

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
        columns = (
            self.instance,
            self.annotator,
            self.label,
            self.weights,
            self.sources,
            self.passes,
        )
        return sum(c.nbytes for c in columns if c is not None)

    def __repr__(self) -> str:
        added = "" if self.sources is None else f", {int((self.sources > 0).sum())} added"
        passed = "".join(
            f", {len(pairs)} {name}"
            for name, pairs in (("abstentions", self.abstentions), ("skips", self.skips))
            if len(pairs)
        )
        return (
            f"AnnotationTable({self.n_annotations} annotations{added}{passed}: {self.n_instances} "
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
    def abstentions(self) -> IntArray:
        """Codes [instance, annotator] of the abstentions ("unsure"), shape (n_abstentions, 2)."""
        return self._passes_of("abstain")

    @property
    def skips(self) -> IntArray:
        """Codes [instance, annotator] of the skips, shape (n_skips, 2)."""
        return self._passes_of("skip")

    def _passes_of(self, name: str) -> IntArray:
        return self._pass_rows[self._pass_rows[:, 2] == PASSES.index(name), :2]

    @property
    def _pass_rows(self) -> IntArray:
        """The passes, an empty array where there are none."""
        return np.zeros((0, 3), dtype=np.int32) if self.passes is None else self.passes

    @property
    def observed(self) -> AnnotationTable:
        """Without pseudo, generated and synthetic annotations; passes are observed and stay."""
        return self if self.sources is None else self.take(self.sources == 0)

    def by_instance(self) -> tuple[IntArray | None, IntArray]:
        """Order that sorts rows by instance (None: sorted already), and each instance's start.

        Not kept on the table: it would cost as much memory as the annotations.
        """
        return _sorted_rows(self.instance, self.n_instances)

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
        """Return the dense (n_instances, n_annotators) matrix; passes are missing in it.

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
        if _has_repeats(self._pairs()):
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

        If there are passes, they are the last rows, without label and weight, and a further
        column, ``pass``, holds their kind (see `PASSES`; missing for annotations).
        ``from_frame(frame, weight="weight", source="source", passes="pass")`` reads it back.

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
        if self.passes is not None:
            columns = self._with_pass_rows(columns, self.passes)
        try:
            # polars infers a type from a list, not from an array of objects.
            frame = nw.from_dict(
                {
                    name: values.tolist() if backend == "polars" and values.dtype == "O" else values
                    for name, values in columns.items()
                },
                backend=backend,
            )
        except ImportError as error:
            raise_missing_extra(f"to_frame(backend={backend!r})", "io", error)
        return frame.to_native()

    def _with_pass_rows(
        self, columns: dict[str, AnyArray], passes: IntArray
    ) -> dict[str, AnyArray]:
        """Append the passes to the columns of the annotations."""
        k = len(passes)
        more = {
            "task": self.instances[passes[:, 0]],
            "worker": self.annotators[passes[:, 1]],
            "label": np.full(k, None),
            "weight": np.full(k, np.nan, dtype=np.float32),
            "source": np.full(k, SOURCES[0]),
        }
        joined = {name: np.concatenate([columns[name], more[name]]) for name in more}
        names = np.array(PASSES, dtype=object)[passes[:, 2]]
        return joined | {"pass": np.concatenate([np.full(self.n_annotations, None), names])}

    def take(self, rows: Any) -> AnnotationTable:
        """Keep the annotations at the given positions (or under a mask).

        All vocabularies stay, and all passes, which have no position.
        """
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
            table = replace(
                kept,
                annotator=new[kept.annotator],
                annotators=self.annotators[keep],
                passes=recode_passes(self._pass_rows, annotator=new),
            )
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
        rows, instance = _rows_at(positions, self.instance, self.n_instances)
        passes = self._pass_rows
        kept, where = _rows_at(positions, passes[:, 0], self.n_instances)
        return replace(
            self.take(rows),
            instance=instance,
            instances=self.instances[positions],
            passes=np.column_stack([where, passes[kept, 1:]]),
        )

    def with_added(
        self, other: AnnotationTable, *, duplicates: Duplicates = "error"
    ) -> AnnotationTable:
        """Append the annotations and passes of another table over the same classes.

        Instances and annotators unknown here are appended to the vocabularies.

        Parameters
        ----------
        other : AnnotationTable
        duplicates : {"error", "last", "keep"}
            What to do with repeated (instance, annotator) pairs, be they annotated or passed;
            "last" prefers the other table, and within one table annotations to passes.

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
        rows, instances = _merge(self.instances, other.instances)
        columns, annotators = _merge(self.annotators, other.annotators)
        passes = recode_passes(other._pass_rows, instance=rows, annotator=columns)
        parts = (self.n_annotations, other.n_annotations, len(self._pass_rows), len(passes))
        ages = np.repeat(np.array([1, 3, 0, 2], dtype=np.int8), parts)
        table = AnnotationTable(
            np.concatenate([self.instance, rows[other.instance]]),
            np.concatenate([self.annotator, columns[other.annotator]]),
            np.concatenate([self.label, other.label]),
            instances,
            annotators,
            self.classes,
            np.concatenate([self.weight, other.weight]),
            np.concatenate([self._source_codes, other._source_codes]),
            np.concatenate([self._pass_rows, passes]),
        )
        if duplicates == "error":
            # What either table was built to keep is no clash between the two.
            table._check_no_clash(ages >= 2)
            return table
        return table._without_duplicates(duplicates, ages)

    def with_source(self, source: str) -> AnnotationTable:
        """Mark every annotation with one source (see `SOURCES`); passes have none."""
        return replace(self, sources=_source_codes(source, self.n_annotations))

    def equals(self, other: AnnotationTable) -> bool:
        """Tell whether both hold the same rows in the same order over the same vocabularies."""
        names = ("instance", "annotator", "label", "weight", "source", "passes")
        vocabularies = ("instances", "annotators", "classes")
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in (*names, *vocabularies)
        )

    # -- duplicates -----------------------------------------------------------------------------

    def _pairs(self) -> IntArray:
        return self.instance.astype(np.int64) * max(self.n_annotators, 1) + self.annotator

    def _all_pairs(self) -> IntArray:
        """Pairs of the annotations, then of the passes."""
        passes = self._pass_rows.astype(np.int64)
        return np.concatenate(
            [self._pairs(), passes[:, 0] * max(self.n_annotators, 1) + passes[:, 1]]
        )

    def _check_no_clash(self, added: BoolArray) -> None:
        """Refuse pairs that stand both among the added rows and among the others."""
        pairs = self._all_pairs()
        both = np.intersect1d(pairs[added], pairs[~added])
        if len(both):
            raise self._repeated(both)

    def _repeated(self, pairs: IntArray) -> AnnotationError:
        instance, annotator = divmod(int(pairs[0]), max(self.n_annotators, 1))
        passes = ", abstentions and skips counted," if len(self._pass_rows) else ","
        return AnnotationError(
            f"{len(pairs)} (instance, annotator) pairs are repeated{passes} the first being "
            f"instance {self.instances[instance].item()!r} by annotator "
            f"{self.annotators[annotator].item()!r}. Remove them, or say what to do: "
            'duplicates="last" keeps the last, duplicates="keep" keeps all'
        )

    def _without_duplicates(self, policy: Duplicates, ages: IntArray | None) -> AnnotationTable:
        """Apply a policy to repeated pairs.

        ``ages`` tells which of the annotations, and of the passes after them, came last; without
        passes it may be None: the order they stand in.
        """
        if policy not in ("error", "last", "keep"):
            raise AnnotationError(
                f"duplicates={policy!r} is unknown; use 'error', 'last' or 'keep'"
            )
        passes, pairs = self._pass_rows, self._all_pairs()
        if policy == "keep" or not _has_repeats(pairs):
            return self
        if policy == "last":
            order = np.arange(len(pairs)) if ages is None else np.argsort(ages, kind="stable")
            _, last = np.unique(pairs[order][::-1], return_index=True)
            kept = np.sort(order[len(order) - 1 - last])
            m = self.n_annotations
            return replace(self.take(kept[kept < m]), passes=passes[kept[kept >= m] - m])
        unique, counts = np.unique(pairs, return_counts=True)
        raise self._repeated(unique[counts > 1])

    def mask_of_classes_seen(self) -> BoolArray:
        """Mark the classes that occur among the annotations, shape (n_classes,)."""
        return np.bincount(self.label, minlength=self.n_classes) > 0


def _ages(given: BoolArray, passed: BoolArray) -> IntArray | None:
    """Rows the annotations, and after them the passes, come from; None without passes."""
    if not passed.any():
        return None
    return np.concatenate([np.flatnonzero(given), np.flatnonzero(passed)])


def _has_repeats(pairs: IntArray) -> bool:
    pairs = np.sort(pairs)
    return bool((pairs[1:] == pairs[:-1]).any())


def _sorted_rows(codes: IntArray, n: int) -> tuple[IntArray | None, IntArray]:
    """Order that sorts codes below n (None: sorted already), and where each code starts."""
    sorted_already = bool((np.diff(codes) >= 0).all())
    order = None if sorted_already else np.argsort(codes, kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n))])


def _rows_at(positions: IntArray, codes: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Rows whose code (below n) is at each position in turn, and the number of that position."""
    order, start = _sorted_rows(codes, n)
    counts = start[positions + 1] - start[positions]
    first = np.cumsum(counts) - counts
    rows = np.arange(counts.sum()) - np.repeat(first - start[positions], counts)
    return rows if order is None else order[rows], np.repeat(np.arange(len(positions)), counts)


def _read_responses(
    data: Any, label: str, passes: str | None, marks: dict[Any, int]
) -> tuple[AnyArray, BoolArray, IntArray]:
    """Labels that are there, the mask of their rows, and every row's kind of pass (-1: none)."""
    labels, gaps = _labels_and_gaps(data[label])
    check_marks(marks, labels, f"column {label!r}")
    kinds = np.full(len(gaps), -1, dtype=np.int8)
    kinds[~gaps] = pass_kinds(labels, marks)
    labels, given = labels[kinds[~gaps] < 0], ~gaps & (kinds < 0)
    if passes is None:
        return labels, given, kinds
    named = _named_kinds(data[passes].to_numpy(), passes)
    both = np.flatnonzero(~gaps & (named >= 0))
    if len(both):
        raise AnnotationError(
            f"row {both[0]} and {len(both) - 1} more have both a label (column {label!r}) and a "
            f"pass (column {passes!r}); empty one of the two"
        )
    return labels, given, np.maximum(kinds, named)


def _named_kinds(values: AnyArray, column: str) -> IntArray:
    """Code of every named pass, -1 where there is none."""
    gaps = missing_mask(values)
    unknown = [value for value in values[~gaps].tolist() if value not in PASSES]
    if unknown:
        raise AnnotationError(
            f"column {column!r} (passes) holds {unknown[0]!r}; use one of {PASSES}, and nothing "
            "where there is an annotation"
        )
    kinds = np.full(len(values), -1, dtype=np.int8)
    kinds[~gaps] = pass_kinds(values[~gaps], {name: kind for kind, name in enumerate(PASSES)})
    return kinds


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


def _warn_of_marks(values: AnyArray) -> None:
    """Say that marks of what was not observed, such as `to_frame` writes, are not read."""
    made = np.isin(values.astype(str), SOURCES[1:]).sum()
    if made:
        warn(
            f"column 'source' marks {made} rows as not observed (pseudo, ...); they count as "
            "observed unless source='source' is given",
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
    plural = f"{argument}s"
    if values.size and is_text(values):
        ids = None if vocabulary is None else make_vocabulary(vocabulary, plural)
        return encode(values, ids, argument=argument, vocabulary_name=plural)
    values = tidy(values, argument) if values.size else values.astype(np.int64)
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


def _merge(mine: AnyArray, theirs: AnyArray) -> tuple[IntArray, AnyArray]:
    """Append to ``mine`` what is new in ``theirs``: each of theirs' new code, and the whole."""
    if np.array_equal(mine, theirs):
        return np.arange(len(mine), dtype=np.int32), mine
    if len(mine) and len(theirs) and (mine.dtype.kind in "UT") != (theirs.dtype.kind in "UT"):
        raise AnnotationError(
            f"the added table has ids such as {theirs[0].item()!r}, this one such as "
            f"{mine[0].item()!r}; convert one to the other's type"
        )
    new = theirs[~np.isin(theirs, mine)]
    merged = np.concatenate([mine, new]) if len(new) else mine
    positions, _ = encode(theirs, merged, argument="ids", vocabulary_name="the merged ids")
    return positions, merged


def _source_codes(source: Any, n: int) -> IntArray:
    names = np.broadcast_to(np.asarray(source), (n,))
    if names.dtype.kind in "iu":
        return names
    unknown = set(names.tolist()) - set(SOURCES)
    if unknown:
        raise AnnotationError(f"source holds {sorted(unknown)[0]!r}; use one of {SOURCES}")
    return np.array([SOURCES.index(name) for name in names.tolist()], dtype=np.int8)
