"""Annotations that come in shards of whole instances, because a table would not fit in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations.encoding import check_positions
from manyhands.annotations.groups import RHO
from manyhands.annotations.passes import PASSES
from manyhands.annotations.table import AnnotationTable
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
    """Annotations in shards; vocabularies are arrays, which may be memory-mapped."""

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

    scale = "nominal"
    class_order = "given"
    annotators_known = True
    """As in `AnnotationTable`; shards do not carry them."""

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
        )

    def __getitem__(self, key: Any) -> AnnotationTable:
        """Table of some instances, by position (integers, a mask or a slice), in their order."""
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
        """Number of the shard that holds each instance."""
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
    """Count the passes of a kind (see `PASSES`)."""
    return 0 if passes is None else int((passes[:, 2] == PASSES.index(name)).sum())
