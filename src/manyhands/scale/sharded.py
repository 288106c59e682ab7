"""Annotations in shards of whole instances, and the votes that inference reads from them."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from manyhands.annotations.encoding import check_positions
from manyhands.annotations.groups import RHO
from manyhands.annotations.passes import PASSES
from manyhands.annotations.table import AnnotationTable
from manyhands.decision.labels import DECIDED_AT_ONCE, best, is_scale_of_grades
from manyhands.exceptions import WriteError
from manyhands.files import explain, reserve
from manyhands.inference.checkpoints import FolderCheckpoint
from manyhands.inference.votes import (
    SHARD,
    Counts,
    RowsOf,
    Votes,
    grown,
    make_votes,
    sum_over_shards,
)
from manyhands.io.mapped import release
from manyhands.scale import annotator_blocks
from manyhands.scale.annotator_blocks import TablesOnDisk
from manyhands.scale.clusters import cluster_of
from manyhands.scale.engines import Engine, LocalEngine
from manyhands.scale.shard_jobs import Cluster
from manyhands.typing import AnyArray, FloatArray, IntArray


class Shard(NamedTuple):
    """The annotations of consecutive instances, in the order of the instances.

    Attributes
    ----------
    first : int
        Code of the first instance.
    start : integer array of shape (n + 1,)
        Index of each instance's first annotation in this shard.
    annotator, label : integer arrays of shape (n_annotations,)
    weight : float32 array of shape (n_annotations,) or None
    passes : int32 array of shape (n_passes, 3) or None
        Instance (counted from ``first``), annotator and kind, as in `AnnotationTable.passes`.
    """

    first: int
    start: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray | None = None
    passes: IntArray | None = None

    @property
    def n_instances(self) -> int:
        """Number of instances."""
        return len(self.start) - 1


class ShardedAnnotations(ABC):
    """Base class of annotations in shards; vocabularies are arrays, possibly memory-mapped.

    It implements the protocol `manyhands.annotations.target.Sharded`, by which other modules know
    it.
    """

    in_memory: Literal[False] = False

    instances: AnyArray
    annotators: AnyArray
    classes: AnyArray
    n_annotations: int
    n_abstentions: int
    n_skips: int
    weighted: bool
    n_shards: int
    scratch: Path
    """Folder for arrays over all instances."""

    groups = None
    group_rho = RHO
    """Families of annotators, which shards do not carry."""

    scale: str = "nominal"
    class_order: str = "given"
    """As in `AnnotationTable`."""

    annotators_known = True
    """As in `AnnotationTable`; a store always knows who gave each annotation."""

    ndim = 2

    @abstractmethod
    def shard(self, number: int) -> Shard:
        """Return one shard; its arrays may be memory-mapped."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Digest of the whole content, which changes when it does."""

    @property
    @abstractmethod
    def firsts(self) -> IntArray:
        """Code of each shard's first instance, and the number of instances, (n_shards + 1,)."""

    @property
    def ordered(self) -> bool:
        """Whether the classes are grades in their order: the scale is ordinal."""
        return self.scale == "ordinal"

    @property
    def n_instances(self) -> int:
        """Number of instances, including those without annotations."""
        return len(self.instances)

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""
        return len(self.annotators)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_instances, n_annotators) of the equivalent matrix."""
        return self.n_instances, self.n_annotators

    def __len__(self) -> int:
        return self.n_instances

    def __repr__(self) -> str:
        passed = f", {self.n_abstentions} abstentions" if self.n_abstentions else ""
        passed += f", {self.n_skips} skips" if self.n_skips else ""
        return (
            f"{type(self).__name__}({self.n_annotations} annotations{passed}: {self.n_instances} "
            f"instances x {self.n_annotators} annotators, {self.n_classes} classes, "
            f"{self.n_shards} {'shard' if self.n_shards == 1 else 'shards'})"
        )

    def votes(self, gold: IntArray | None = None, *, abstentions: bool = False) -> StoredVotes:
        """Return the annotations as inference reads them (`manyhands.inference.votes.AllVotes`)."""
        return StoredVotes(self, gold, abstentions)

    def table(self, number: int) -> AnnotationTable:
        """Return one shard as a table over its own instances and all annotators and classes."""
        shard = self.shard(number)
        return AnnotationTable(
            np.repeat(np.arange(shard.n_instances, dtype=np.int32), np.diff(shard.start)),
            np.asarray(shard.annotator),
            np.asarray(shard.label),
            np.asarray(self.instances[shard.first : shard.first + shard.n_instances]),
            np.asarray(self.annotators),
            np.asarray(self.classes),
            None if shard.weight is None else np.asarray(shard.weight),
            passes=None if shard.passes is None else np.asarray(shard.passes),
            scale=self.scale,
            class_order=self.class_order,
        )

    def __getitem__(self, key: Any) -> AnnotationTable:
        """Return a table of some instances, given by position: integers, a mask or a slice."""
        if isinstance(key, slice):
            codes: IntArray = np.arange(self.n_instances)[key]
        else:
            rows = np.atleast_1d(np.asarray(key))
            if rows.dtype.kind == "b":
                rows = np.flatnonzero(rows)
            codes = check_positions(rows.astype(np.int64), self.n_instances, "store[rows]")
        tables = []
        for number in np.unique(self.shards_of(codes)):
            inside = codes[self.shards_of(codes) == number] - self.firsts[number]
            tables.append(self.table(number)[np.unique(inside)])
        joined = tables[0] if tables else self.table(0)[:0]
        for table in tables[1:]:
            joined = joined.with_added(table, duplicates="keep")
        ids, rows = np.unique(codes, return_inverse=True)
        if len(ids) == len(codes) and (np.diff(codes) > 0).all():
            return joined
        return joined[rows]

    def shards_of(self, codes: IntArray) -> IntArray:
        """Return the number of the shard that holds each instance."""
        # Shards without instances do not exist, so the bounds are distinct.
        return np.asarray(np.searchsorted(self.firsts, codes, side="right") - 1)

    @cached_property
    def _per_annotator(self) -> IntArray:
        counts = np.zeros(self.n_annotators, dtype=np.int64)
        for number in range(self.n_shards):
            counts += np.bincount(self.shard(number).annotator, minlength=self.n_annotators)
        return counts

    def annotations_per_annotator(self) -> IntArray:
        """Count the annotations of each annotator, shape (n_annotators,)."""
        return self._per_annotator

    def annotations_per_instance(self) -> IntArray:
        """Count the annotations of each instance, shape (n_instances,), 4 bytes each."""
        counts = np.empty(self.n_instances, dtype=np.int32)
        for number in range(self.n_shards):
            shard = self.shard(number)
            counts[shard.first : shard.first + shard.n_instances] = np.diff(shard.start)
        return counts


def n_passes(passes: IntArray | None, name: str) -> int:
    """Count the passes of a kind (see `manyhands.annotations.PASSES`)."""
    return 0 if passes is None else int((passes[:, 2] == PASSES.index(name)).sum())


@dataclass(frozen=True, eq=False)
class StoredVotes:
    """Annotations of a store, as a method reads them; they stay on disk.

    Attributes
    ----------
    store : ShardedAnnotations
    gold : integer array of shape (n_instances,) or None
        Known class of each instance, -1 where unknown.
    abstentions : bool
        Whether abstentions count as one more response.
    history : array of shape (R, C, C) or None
        As in `Votes`.
    engine : Cluster, optional
        Cluster that counts the shards (`manyhands.scale.clusters`); default: this process.
    """

    store: ShardedAnnotations
    gold: IntArray | None = None
    abstentions: bool = False
    weights: bool = True
    history: FloatArray | None = None
    checkpoint: FolderCheckpoint | None = None
    engine: Cluster | None = None
    in_blocks: bool | None = None
    """Whether tables by annotator are on disk; None: if they are large."""

    family = None

    @property
    def scratch(self) -> Path:
        """Folder for arrays over all instances."""
        return self.store.scratch

    @property
    def n_instances(self) -> int:
        """Number of instances, including those without annotations."""
        return self.store.n_instances

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""
        return self.store.n_annotators

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.store.n_classes

    @property
    def ordered(self) -> bool:
        """Whether there are three or more ordered classes; the order of two makes no difference."""
        return is_scale_of_grades(self.store)

    @property
    def n_responses(self) -> int:
        """Number of classes, and one more if abstentions are modelled and occur."""
        return self.n_classes + (self.abstentions and self.store.n_abstentions > 0)

    @property
    def tables(self) -> TablesOnDisk | None:
        """Maker of tables by annotator on disk; None if they are in memory."""
        in_blocks = self.in_blocks
        if in_blocks is None:
            in_blocks = self.n_annotators * self.n_responses**2 > annotator_blocks.LARGEST
        return TablesOnDisk(self.scratch) if in_blocks else None

    @property
    def is_weighted(self) -> bool:
        """Whether annotations have weights."""
        return self.weights and self.store.weighted

    @cached_property
    def _sizes(self) -> FloatArray:
        """Number of annotations (of positive weight), and their total weight."""
        if not self.store.weighted:
            n = self.store.n_annotations
            n += self.store.n_abstentions if self.n_responses > self.n_classes else 0
            return np.array([n, n], dtype=np.float64)
        return sum_over_shards(_sizes, self.shards())

    @property
    def n_annotations(self) -> int:
        """Number of annotations with a positive weight."""
        return int(self._sizes[0])

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(self._sizes[1])

    @property
    def answers(self) -> StoredVotes:
        """The annotations without abstentions."""
        return replace(self, abstentions=False)

    @property
    def unweighted(self) -> StoredVotes:
        """The annotations, each with weight 1."""
        return replace(self, weights=False)

    @property
    def here(self) -> StoredVotes:
        """The same annotations, counted by this process."""
        return replace(self, engine=None)

    def counted_by(self, engine: Any) -> StoredVotes:
        """Return the same annotations, counted by the workers of a cluster; see `cluster_of`."""
        return replace(self, engine=cluster_of(engine))

    # -- shards ---------------------------------------------------------------------------------

    def shards(self, size: int | None = None) -> Engine:
        """Return the shards of the store, cut into runs of about ``size`` annotations."""
        if size is None and self.tables is not None:
            size = annotator_blocks.RUN
        size = size or grown(SHARD, self.n_annotators * self.n_responses)
        if self.engine is not None:
            return self.engine.shards(self, size)
        return LocalEngine(partial(self.load, size=size), self.store.n_shards)

    def once(self) -> Engine:
        """Return the shards for a single pass; for a store these are the same."""
        return self.shards()

    @property
    def parts(self) -> Engine:
        """The shards, in this process."""
        return self.here.shards()

    def load(
        self, number: int, size: int | None = None, gold: IntArray | None = None
    ) -> Iterator[Votes]:
        """Yield one shard of the store as votes, in runs of about ``size`` annotations.

        ``gold`` of the shard's instances replaces that of ``self.gold``.
        """
        votes = self._whole(number, gold)
        yield from [votes] if size is None else votes.runs(size)

    def _whole(self, number: int, gold: IntArray | None = None) -> Votes:
        shard = self.store.shard(number)
        place = slice(shard.first, shard.first + shard.n_instances)
        if gold is None and self.gold is not None:
            gold = self.gold[place]
        with_passes = shard.passes is not None and self.n_responses > self.n_classes
        if with_passes or shard.weight is not None:
            votes = make_votes(self.store.table(number), gold=gold, abstentions=self.abstentions)
            # Annotations of weight 0 have been removed.
            weight = votes.weight if self.is_weighted else None
            if weight is None and self.is_weighted:
                weight = np.ones(votes.n_annotations)
            return replace(
                votes,
                weight=weight,
                n_responses=self.n_responses,
                history=self.history,
                tables=self.tables,
            )
        return Votes(
            cast(IntArray, np.asarray(shard.annotator)),
            cast(IntArray, np.asarray(shard.label)),
            cast(IntArray, np.asarray(shard.start)),
            self.n_annotators,
            self.n_classes,
            self.n_responses,
            gold=gold,
            history=self.history,
            tables=self.tables,
            ordered=self.ordered,
        )

    def total(
        self, count: Callable[..., Counts], *parameters: Any, rows: tuple[Any, ...] = ()
    ) -> Counts:
        """Return the counts of all annotations, summed over the shards."""
        return sum_over_shards(count, self.shards(), *parameters, rows=rows)

    def select(self, instances: IntArray) -> Votes:
        """Return the votes of some instances, in ascending order, as votes in memory."""
        parts = []
        held = self.store.shards_of(instances)
        for number in np.unique(held):
            inside = instances[held == number] - self.store.firsts[number]
            parts.append(self._whole(int(number)).select(inside))
        return _joined(parts) if parts else self._whole(0).select(instances)

    # -- arrays over all instances --------------------------------------------------------------

    def new_rows(self, width: int) -> FloatArray:
        """Make an array on disk with a row for each instance, shape (n, width)."""
        return new_array(self.scratch, (self.n_instances, width), np.dtype(np.float64))

    def new_column(self, length: int) -> FloatArray:
        """Make an array of ``length`` numbers on disk."""
        return new_array(self.scratch, (length,), np.dtype(np.float64))

    def rows_of(
        self,
        function: Callable[..., FloatArray],
        *parameters: Any,
        shards: Iterable[Votes] | None = None,
    ) -> RowsOf:
        """Return a function from a shard to its rows ``function(shard, *parameters)``."""
        return RowsOf(function, parameters)

    def posterior_rows(self, start: Any) -> FloatArray:
        """Make an array on disk for the posterior, shape (n, C); ``start`` is not changed."""
        return self.new_rows(self.n_classes)

    def gather(self, width: int, parts: Iterable[FloatArray]) -> FloatArray:
        """Write consecutive parts into an array on disk with a row for each instance."""
        out, first = self.new_rows(width), 0
        for part in parts:
            out[first : first + len(part)] = part
            release(out)
            first += len(part)
        return out

    def labels(
        self, posterior: FloatArray, classes: AnyArray, ties: str, rng: np.random.RandomState
    ) -> AnyArray:
        """Return the label of each instance, shape (n,), on disk."""
        labels = new_array(self.scratch, (self.n_instances,), classes.dtype)
        for first in range(
            0, self.n_instances, DECIDED_AT_ONCE
        ):  # The same blocks as in `best`, so that ties are broken in the same way.
            rows = slice(first, first + DECIDED_AT_ONCE)
            found = best(np.asarray(posterior[rows]), ties, rng, ordered=self.ordered)
            labels[rows] = classes[found]
            release(posterior)
            release(labels)
        return labels


def _sizes(shard: Votes) -> FloatArray:
    return np.array([shard.n_annotations, shard.total_weight])


def _joined(parts: list[Votes]) -> Votes:
    """Join the votes of several runs of instances."""
    if len(parts) == 1:
        return parts[0]

    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else np.concatenate(values)

    counts = np.concatenate([np.diff(part.start) for part in parts])
    return replace(
        parts[0],
        annotator=column("annotator"),
        response=column("response"),
        start=np.concatenate([[0], np.cumsum(counts)]),
        weight=column("weight"),
        gold=column("gold"),
        ones=None,
    )


def new_array(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Make a memory-mapped array in a file without a name, which vanishes with the array.

    The space is reserved first: writing to a mapped file on a full disk would kill the process.

    Raises
    ------
    WriteError
        If the folder cannot be written, or the disk has no room for the array.
    """
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            reserve(file, size)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise WriteError(error.errno, explain(error, folder)) from error
