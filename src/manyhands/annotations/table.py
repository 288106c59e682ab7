"""The container of annotations: immutable, long, integer-coded, at most 16 bytes per row.

The module `columns` defines and checks its columns; `frames` and `arrays` make tables from data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Concatenate, ParamSpec

import numpy as np

from manyhands.annotations import arrays, frames, html
from manyhands.annotations.columns import (
    SOURCES,
    Columns,
    checked,
    frozen,
    read_sources,
    require_annotators,
)
from manyhands.annotations.duplicates import Duplicates, check_no_clash, without_duplicates
from manyhands.annotations.encoding import check_positions, merge_vocabularies, resolve
from manyhands.annotations.groups import ALONE, RHO, merged_groups, read_groups
from manyhands.annotations.ids import (
    GIVEN,
    InstanceOrder,
    first_and_last,
    is_default_index,
    names_ids,
)
from manyhands.annotations.passes import PASSES, recode_passes
from manyhands.annotations.scales import MEANT, Scale, check_scale, numbers_or_refuse, read_scale
from manyhands.exceptions import AnnotationError
from manyhands.records import record
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

Options = ParamSpec("Options")


def _maker(
    make: Callable[Concatenate[Callable[..., AnnotationTable], Options], AnnotationTable],
) -> classmethod[AnnotationTable, Options, AnnotationTable]:
    """Turn a function that makes tables into a class method of the same signature."""
    return classmethod(make)


@record("AnnotationTable")
@dataclass(frozen=True, eq=False, repr=False)
class AnnotationTable:
    """Annotations in long form: one row per annotation, integer codes, explicit vocabularies.

    Build one with `from_frame`, `from_lists`, `from_matrix` or `from_arrays`; methods return new
    tables. It can be ``y`` in scikit-learn's ``cross_validate`` and ``GridSearchCV``, because
    ``shape``, ``len``, row indexing and ``__array__`` are those of the (n, R) matrix.

    Attributes
    ----------
    instance, annotator, label : integer arrays of shape (n_annotations,)
        Codes into ``instances``, ``annotators`` and ``classes``.
    instances, annotators, classes : arrays
        The original ids and class values, including instances without annotations.
    weights : float32 array of shape (n_annotations,) or None
        Weight of each annotation; None means all 1. `weight` is never None.
    sources : int8 array of shape (n_annotations,) or None
        Code of each annotation's source (see `manyhands.annotations.SOURCES`); None means
        all observed.
    passes : int32 array of shape (n_passes, 3) or None
        Instance code, annotator code and kind (see `manyhands.annotations.PASSES`) of each pass: an
        annotator looked but could not tell ("abstain"), or skipped the instance ("skip"). Passes
        are not annotations: only `passes`, `abstentions`, `skips` and `to_frame` show them.
    instance_order : InstanceOrder
        Whether the order of the instances was given, or chosen by the table.
    groups : text array of shape (n_annotators,) or None
        Family of each annotator, "" for none (see `with_groups`); None means never declared.
    group_rho : float
        Correlation of mistakes within a family.
    scale : {"nominal", "ordinal", "interval"}
        What the classes are: names, grades in their order, or numbers; see `with_scale`.
    class_order : {"given", "numbers", "known", "sorted"}
        Where the order of the classes comes from: the caller; numbers that the classes are or
        begin with; a known scale such as low < medium < high; or sorting as text, which says
        nothing about grades.
    annotators_known : bool
        False if the votes do not say who gave them (see `from_counts`). Then the annotators are
        merely the first, second, ... vote of an instance, and methods that compare annotators
        refuse the table.

    Notes
    -----
    A table takes 4 + 4 + 2 bytes per annotation, 4 more with weights and 1 more with sources, and
    12 bytes per pass.
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

    def __post_init__(self) -> None:
        for name, value in checked(self._columns)._asdict().items():
            object.__setattr__(self, name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickle and deepcopy make arrays writeable again.
        for name, value in state.items():
            object.__setattr__(
                self, name, frozen(value, None) if isinstance(value, np.ndarray) else value
            )

    @property
    def _columns(self) -> Columns:
        return Columns(*(getattr(self, field.name) for field in fields(self)))

    # -- makers ---------------------------------------------------------------------------------

    from_frame = _maker(frames.from_frame)
    from_lists = _maker(frames.from_lists)
    from_matrix = _maker(arrays.from_matrix)
    from_arrays = _maker(arrays.from_arrays)
    from_counts = _maker(arrays.from_counts)

    # -- size and shape -------------------------------------------------------------------------

    @property
    def n_instances(self) -> int:
        """Number of instances, including those without annotations."""
        return len(self.instances)

    @property
    def n_annotators(self) -> int:
        """Number of annotators, including those without annotations."""
        return len(self.annotators)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def n_annotations(self) -> int:
        """Number of annotations (rows)."""
        return len(self.instance)

    @property
    def ordered(self) -> bool:
        """Whether the classes are grades in their order: the scale is ordinal."""
        return self.scale == "ordinal"

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_instances, n_annotators) of the equivalent matrix."""
        return self.n_instances, self.n_annotators

    ndim = 2

    def __len__(self) -> int:
        return self.n_instances

    @property
    def nbytes(self) -> int:
        """Memory of the columns in bytes, without the vocabularies."""
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
        named = set() if self.groups is None else set(self.groups.tolist()) - {ALONE}
        families = f" ({len(named)} {'family' if len(named) == 1 else 'families'})" if named else ""
        who = f"{self.n_annotators} annotators{families}"
        if not self.annotators_known:
            who = f"up to {self.n_annotators} votes of unknown annotators"
        kind = {"nominal": "classes", "ordinal": "ordered classes"}.get(self.scale, "numbers")
        return (
            f"AnnotationTable({self.n_annotations} annotations{added}{passed}: {self.n_instances} "
            f"instances x {who}, {self.n_classes} {kind})"
        )

    def _repr_html_(self) -> str:
        return html.summary(self._columns)

    # -- numbers --------------------------------------------------------------------------------

    @property
    def numbers(self) -> FloatArray:
        """Number that each class stands for, shape (n_classes,).

        Raises
        ------
        AnnotationError
            If a class is not a number.
        """
        return numbers_or_refuse(self.classes)

    @property
    def values(self) -> FloatArray:
        """Number that each annotation gives, shape (n_annotations,); see `numbers`.

        Raises
        ------
        AnnotationError
            If a class is not a number.
        """
        return self.numbers[self.label]

    # -- columns --------------------------------------------------------------------------------

    @property
    def weight(self) -> FloatArray:
        """Weight of each annotation, shape (n_annotations,); 1 if none were given."""
        return self._columns.weight

    @property
    def source(self) -> AnyArray:
        """Name of each annotation's source (see `SOURCES`), shape (n_annotations,)."""
        return np.array(SOURCES)[self._columns.source_codes]

    @property
    def abstentions(self) -> IntArray:
        """Codes [instance, annotator] of the abstentions ("unsure"), shape (n_abstentions, 2)."""
        return self._passes_of("abstain")

    @property
    def skips(self) -> IntArray:
        """Codes [instance, annotator] of the skips, shape (n_skips, 2)."""
        return self._passes_of("skip")

    def _passes_of(self, name: str) -> IntArray:
        if self.passes is None:
            return np.zeros((0, 2), dtype=np.int32)
        return self.passes[self.passes[:, 2] == PASSES.index(name), :2]

    @property
    def observed(self) -> AnnotationTable:
        """Return the table without pseudo, generated and synthetic annotations.

        Abstentions and skips are kept.
        """
        return self if self.sources is None else self.take(self.sources == 0)

    def by_instance(self) -> tuple[IntArray | None, IntArray]:
        """Return the order that sorts rows by instance (None: sorted), and each instance's start.

        It is not cached, because it would need as much memory as the annotations.
        """
        return sorted_rows(self.instance, self.n_instances)

    # -- views and copies -----------------------------------------------------------------------

    def vote_counts(self) -> FloatArray:
        """Sum the weights each class received, shape (n_instances, n_classes)."""
        flat = self.instance.astype(np.int64) * self.n_classes + self.label
        size = self.n_instances * self.n_classes
        counts = np.bincount(flat, weights=self.weights, minlength=size)
        return counts.reshape(self.n_instances, self.n_classes).astype(np.float64, copy=False)

    def annotations_per_instance(self) -> IntArray:
        """Count the annotations of each instance, shape (n_instances,)."""
        return np.bincount(self.instance, minlength=self.n_instances)

    def annotations_per_annotator(self) -> IntArray:
        """Count the annotations of each annotator, shape (n_annotators,)."""
        return np.bincount(self.annotator, minlength=self.n_annotators)

    def mask_of_classes_seen(self) -> BoolArray:
        """Mark the classes that occur among the annotations, shape (n_classes,)."""
        return np.bincount(self.label, minlength=self.n_classes) > 0

    def to_matrix(self, *, codes: bool = False) -> AnyArray:
        """Return the dense (n_instances, n_annotators) matrix; abstentions and skips are missing.

        Parameters
        ----------
        codes : bool
            If True, return class codes, with -1 for missing. If False, return class values, with -1
            for missing (None for string classes; NaN if -1 is a class).

        Returns
        -------
        array of shape (n_instances, n_annotators)
            Integers with ``codes``; otherwise of the type of the classes, object for strings, or
            float where -1 is a class.

        Raises
        ------
        AnnotationError
            If pairs are repeated, because a cell can hold only one annotation.
        """
        return arrays.to_matrix(self._columns, codes=codes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """Return dense class codes, -1 where missing, for scikit-learn's validation.

        Raises
        ------
        NoGoldError
            If one of scikit-learn's measures asks for it, to compare predictions with it.
        """
        arrays.refuse_measures()
        if copy is False:
            raise ValueError(
                "an AnnotationTable cannot become an array without copying; leave copy=False out"
            )
        dense = self.to_matrix(codes=True)
        return dense if dtype is None else dense.astype(dtype)

    def to_frame(self, backend: frames.Backend = "pandas") -> Any:
        """Return a long data frame: task, worker, label, weight, source (names).

        Grades become an ordered Categorical (pandas), an Enum (polars, for text) or an ordered
        dictionary (pyarrow), which also hold the grades that nobody gave. Labels on an interval
        scale become numbers. `from_frame` recognises the scale of a Categorical or a dictionary;
        for grades of polars, and for numbers, give it ``scale=`` (a log message says so).

        Passes, if any, are the last rows, without label and weight. Their kind is in an additional
        column, ``pass`` (see `manyhands.annotations.PASSES`; missing for annotations).

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}

        Returns
        -------
        data frame of n_annotations + n_passes rows
            ``from_frame(frame, weight="weight", source="source", passes="pass")`` reads it back,
            with ``group="group"`` if families are declared.

        Raises
        ------
        MissingExtraError
            If the package ``backend`` is not installed.
        """
        return frames.to_frame(self._columns, backend)

    def take(self, rows: Any) -> AnnotationTable:
        """Keep the annotations at the given positions (or under a mask).

        All vocabularies are kept, and so are all passes, which have no position.
        """
        chosen = np.asarray(rows)
        # numpy makes an empty list an array of floats.
        return AnnotationTable(*self._columns.take(chosen if chosen.size else chosen.astype(int)))

    def select(self, instances: Any = None, annotators: Any = None) -> AnnotationTable:
        """Keep some instances and annotators, in the order given.

        Parameters
        ----------
        instances, annotators : ids, mask or slice, optional
            Ids as in the vocabularies (integers are positions if the vocabularies hold strings).
            To select rows by position, use ``table[positions]``.

        Raises
        ------
        AnnotationError
            If an id is unknown.
        """
        columns = self._columns
        if annotators is not None:
            kept = resolve(
                annotators, self.annotators, argument="annotators", vocabulary_name="annotators"
            )
            columns = of_annotators(columns, kept)
        if instances is not None:
            kept = resolve(
                instances, self.instances, argument="instances", vocabulary_name="instances"
            )
            columns = at_instances(columns, kept)
            if names_ids(instances, self.instances):
                columns = columns._replace(instance_order=GIVEN)
        return AnnotationTable(*columns)

    def __getitem__(self, key: Any) -> AnnotationTable:
        """Return instances by position: integer, slice, mask or array (repetition allowed)."""
        if isinstance(key, tuple):
            key, *rest = key
            if rest not in ([Ellipsis], [slice(None)]):
                raise IndexError(
                    "an AnnotationTable is indexed by instances alone, table[rows]; to choose "
                    "annotators, use table.select(annotators=ids)"
                )
        if isinstance(key, slice):
            return self._instances_at(np.arange(self.n_instances)[key])
        given, key = key, np.atleast_1d(np.asarray(key))
        if key.dtype.kind == "b":
            check_mask_order(given, self.instances)
            if key.shape != (self.n_instances,):
                raise IndexError(f"a mask of shape {key.shape} for {self.n_instances} instances")
            return self._instances_at(np.flatnonzero(key))
        if key.size and key.dtype.kind not in "iu":
            raise IndexError("table[rows] takes positions; use table.select(instances=ids) for ids")
        return self._instances_at(
            check_positions(key.astype(np.int64), self.n_instances, "table[rows]")
        )

    def _instances_at(self, positions: IntArray) -> AnnotationTable:
        return AnnotationTable(*at_instances(self._columns, positions))

    def with_added(
        self, other: AnnotationTable, *, duplicates: Duplicates = "error"
    ) -> AnnotationTable:
        """Append annotations, abstentions and skips of another table over the same classes.

        New instances and annotators are appended to the vocabularies. Two tables on an interval
        scale may hold different numbers.

        Parameters
        ----------
        other : AnnotationTable
        duplicates : {"error", "last", "keep"}
            What to do with repeated (instance, annotator) pairs, whether annotated or passed.
            "last" keeps that of the other table, and within one table annotations before passes.

        Raises
        ------
        AnnotationError
            If scales or classes differ, a pair is in both tables (see ``duplicates``), the tables
            put an annotator into different families, or only one table knows its annotators.
        """
        _check_same_scale(self.scale, other.scale)
        tables = self, other
        if self.scale == "interval":
            tables = self.over_the_same_numbers(other)
        mine, theirs = tables
        return AnnotationTable(*merged(mine._columns, theirs._columns, duplicates))

    def over_the_same_numbers(
        self, other: AnnotationTable
    ) -> tuple[AnnotationTable, AnnotationTable]:
        """Return both tables over one scale: all numbers of both, in increasing order.

        Parameters
        ----------
        other : AnnotationTable

        Raises
        ------
        AnnotationError
            If a class of either table is not a number.
        """
        tables = self, other
        if np.array_equal(self.classes, other.classes):
            return tables
        numbers, inverse = np.unique(
            np.concatenate([table.numbers for table in tables]), return_inverse=True
        )
        names: dict[float, Any] = {}
        for table in tables:
            names |= dict(zip(table.numbers.tolist(), table.classes.tolist(), strict=True))
        is_text = any(isinstance(name, str) for name in names.values())
        classes: AnyArray = np.array(
            [str(names[v]) if is_text else names[v] for v in numbers.tolist()]
        )
        mine, theirs = (
            AnnotationTable(*table._columns._replace(label=codes[table.label], classes=classes))
            for table, codes in zip(tables, np.split(inverse, [self.n_classes]), strict=True)
        )
        return mine, theirs

    def with_source(self, source: str) -> AnnotationTable:
        """Mark all annotations with one source (see `manyhands.annotations.SOURCES`)."""
        sources = read_sources(source, self.n_annotations)
        return AnnotationTable(*self._columns._replace(sources=sources))

    def with_groups(self, groups: Any, rho: float = RHO) -> AnnotationTable:
        """Declare families: annotators with a reason to share mistakes.

        Members may share a base model, a training set, a prompt or a supervisor. Truth inference
        gives each annotation the weight 1 / (1 + (k - 1) rho), where k members of the family
        annotated the instance (`manyhands.inference.families`). All methods that return tables
        keep families.

        Parameters
        ----------
        groups : dict {annotator id: family}, sequence of shape (n_annotators,), or None
            None, NaN or "" in place of a family, and absence from the dict, mean that an annotator
            belongs to no family; ``{}`` declares that there are no families. None removes what was
            declared.
        rho : float in [0, 1], default=0.8
            Correlation of mistakes within a family. 0: members are independent; 1: a family has
            one vote.

        Raises
        ------
        AnnotationError
            If an annotator is unknown, a sequence has another length, or ``rho`` is outside [0, 1].
        """
        require_annotators(self, "a family of annotators")
        names = None if groups is None else read_groups(groups, self.annotators)
        return AnnotationTable(*self._columns._replace(groups=names, group_rho=rho))

    def with_scale(self, scale: Scale) -> AnnotationTable:
        """Return the table on a scale: names ("nominal"), grades ("ordinal"), numbers ("interval").

        Methods that return tables keep the scale. Tables can only be joined if they have the same
        scale.

        Parameters
        ----------
        scale : {"nominal", "ordinal", "interval"}
            "ordinal": the order of the grades is that of ``classes``.

        Raises
        ------
        AnnotationError
            If the scale is unknown; if it is "ordinal" and more than two classes are merely sorted
            as text; or if it is "interval" and a class is not a number.
        """
        columns = self._columns
        check_scale(columns.classes, columns.class_order, read_scale(scale) or "nominal")
        return AnnotationTable(*columns._replace(scale=scale))

    def equals(self, other: AnnotationTable) -> bool:
        """Return whether both hold the same rows, in order, over the same ids and classes."""
        names = ("instance", "annotator", "label", "weight", "source", "passes")
        vocabularies = ("instances", "annotators", "classes", "groups", "group_rho")
        if self.scale != other.scale or self.annotators_known != other.annotators_known:
            return False
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in (*names, *vocabularies)
        )


# -- selecting and merging columns ----------------------------------------------------------------


def at_instances(columns: Columns, positions: IntArray) -> Columns:
    """Keep the instances at the given positions, in that order and with repetitions."""
    n = len(columns.instances)
    rows, instance = _rows_at(positions, columns.instance, n)
    passes = columns.pass_rows
    kept, where = _rows_at(positions, passes[:, 0], n)
    return columns.take(rows)._replace(
        instance=instance,
        instances=columns.instances[positions],
        instance_order=columns.instance_order.at(positions),
        passes=np.column_stack([where, passes[kept, 1:]]),
    )


def of_annotators(columns: Columns, positions: IntArray) -> Columns:
    """Keep the annotators at the given positions, in that order.

    Raises
    ------
    AnnotationError
        If a position occurs twice.
    """
    if len(np.unique(positions)) < len(positions):
        raise AnnotationError("annotators names an annotator twice; name each once")
    new = np.full(len(columns.annotators), -1)
    new[positions] = np.arange(len(positions))
    kept = columns.take(np.flatnonzero(new[columns.annotator] >= 0))
    return kept._replace(
        annotator=new[kept.annotator],
        annotators=columns.annotators[positions],
        groups=None if columns.groups is None else columns.groups[positions],
        passes=recode_passes(columns.pass_rows, annotator=new),
    )


def check_mask_order(mask: Any, instances: AnyArray) -> None:
    """Refuse a pandas mask whose index holds the instances in another order than the table.

    Raises
    ------
    AnnotationError
        If the orders differ, because the mask's positions would choose other instances.
    """
    if not hasattr(mask, "iloc") or is_default_index(mask.index):
        return
    mine, theirs = mask.index.tolist(), instances.tolist()
    if mine != theirs and set(mine) == set(theirs):
        raise AnnotationError(
            f"the mask has the index {first_and_last(np.asarray(mask.index))}, the table the "
            f"instances {first_and_last(instances)}: the same ids in another order; select by id, "
            "table.select(instances=mask.index[mask])"
        )


def sorted_rows(codes: IntArray, n: int) -> tuple[IntArray | None, IntArray]:
    """Return the order that sorts codes below n (None: sorted), and each code's start."""
    sorted_already = bool((np.diff(codes) >= 0).all())
    order = None if sorted_already else np.argsort(codes, kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n))])


def _rows_at(positions: IntArray, codes: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return the rows with each of the given codes in turn, and the index of that code."""
    order, start = sorted_rows(codes, n)
    counts = start[positions + 1] - start[positions]
    first = np.cumsum(counts) - counts
    rows = np.arange(counts.sum()) - np.repeat(first - start[positions], counts)
    return rows if order is None else order[rows], np.repeat(np.arange(len(positions)), counts)


def _check_same_scale(mine: str, theirs: str) -> None:
    """Refuse to join tables of different scales.

    Raises
    ------
    AnnotationError
        If the scales differ.
    """
    if mine != theirs:
        raise AnnotationError(
            f"the added table holds {MEANT[theirs]} (scale={theirs!r}), this one {MEANT[mine]} "
            f"(scale={mine!r}); read both by the same scale, or convert one of them: "
            f"added.with_scale({mine!r}), or with_scale({theirs!r}) of this table"
        )


def merged(columns: Columns, added: Columns, duplicates: Duplicates) -> Columns:
    """Append annotations and passes; see `AnnotationTable.with_added`."""
    if not np.array_equal(columns.classes, added.classes):
        raise AnnotationError(
            f"the added table has classes {added.classes.tolist()}, this one "
            f"{columns.classes.tolist()}; build both with the same classes="
        )
    if columns.annotators_known != added.annotators_known:
        raise AnnotationError(
            "one table knows its annotators, but the votes of the other do not say who gave them; "
            "keep the tables apart, or give both with annotators"
        )
    if not columns.annotators_known and duplicates == "last":
        require_annotators(columns, "duplicates='last'")
    rows, instances = merge_vocabularies(columns.instances, added.instances)
    new_annotator_codes, annotators = merge_vocabularies(columns.annotators, added.annotators)
    passes = recode_passes(added.pass_rows, instance=rows, annotator=new_annotator_codes)
    parts = len(columns.instance), len(added.instance), len(columns.pass_rows), len(passes)
    ages = np.repeat(np.array([1, 3, 0, 2], dtype=np.int8), parts)
    both = Columns(
        np.concatenate([columns.instance, rows[added.instance]]),
        np.concatenate([columns.annotator, new_annotator_codes[added.annotator]]),
        np.concatenate([columns.label, added.label]),
        instances,
        annotators,
        columns.classes,
        np.concatenate([columns.weight, added.weight]),
        np.concatenate([columns.source_codes, added.source_codes]),
        np.concatenate([columns.pass_rows, passes]),
        columns.instance_order.extended(len(columns.instances), len(instances)),
        merged_groups(columns.groups, added.groups, new_annotator_codes, annotators),
        added.group_rho if columns.groups is None else columns.group_rho,
        columns.scale,
        columns.class_order,
        columns.annotators_known,
    )
    if duplicates == "error":
        # Pairs repeated within one table were kept on purpose; only pairs in both tables clash.
        check_no_clash(both, ages >= 2)
        return both
    return without_duplicates(both, duplicates, ages)
