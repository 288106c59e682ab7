"""Votes of annotations that do not fit in memory, and the arrays over their instances."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from manyhands.annotations.sharded import ShardedAnnotations
from manyhands.decision.labels import BLOCK, pick
from manyhands.exceptions import WriteError
from manyhands.files import explain, reserve
from manyhands.inference import annotator_blocks
from manyhands.inference.checkpoints import (
    NO_CHECKPOINT,
    Checkpoint,
    FolderCheckpoint,
    digest_of,
)
from manyhands.inference.engines import Engine, LocalEngine, grown
from manyhands.inference.votes import (
    SHARD,
    AllVotes,
    Counts,
    Votes,
    make_votes,
    sum_over_shards,
)
from manyhands.io.mapped import release
from manyhands.typing import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class StoredVotes:
    """Annotations of a store, as a method reads them; it holds no annotation itself.

    Attributes
    ----------
    store : ShardedAnnotations
    gold : integer array of shape (n_instances,) or None
        Known class of each instance, -1 where unknown.
    abstentions : bool
        Whether an abstention is one more response.
    history : array of shape (R, C, C) or None
        As in `Votes`.
    engine : Cluster, optional
        What counts the shards (`manyhands.inference.clusters`); default: this process.
    """

    store: ShardedAnnotations
    gold: IntArray | None = None
    abstentions: bool = False
    weights: bool = True
    history: FloatArray | None = None
    checkpoint: Checkpoint = NO_CHECKPOINT
    engine: Any = None
    in_blocks: bool | None = None
    """Whether tables by annotator are on disk; by default, if they are large."""

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
    def n_responses(self) -> int:
        """Number of classes, and one more if abstentions are modelled and occur."""
        return self.n_classes + (self.abstentions and self.store.n_abstentions > 0)

    @property
    def tables(self) -> Path | None:
        """Folder of the tables by annotator; None if these are in memory."""
        in_blocks = self.in_blocks
        if in_blocks is None:
            in_blocks = self.n_annotators * self.n_responses**2 > annotator_blocks.LARGEST
        return self.scratch if in_blocks else None

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

    # -- shards ---------------------------------------------------------------------------------

    def shards(self, size: int | None = None) -> Engine:
        """Return the shards; those of the store are cut into runs of about ``size`` annotations."""
        if size is None and self.tables is not None:
            size = annotator_blocks.RUN
        size = size or grown(SHARD, self.n_annotators * self.n_responses)
        if self.engine is not None:
            shards: Engine = self.engine.shards(self, size)
            return shards
        return LocalEngine(partial(self.load, size=size), self.store.firsts)

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
            weight = votes.weight if self.is_weighted else None  # Those of weight 0 are gone.
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
        )

    def total(
        self, count: Callable[..., Counts], *parameters: Any, rows: tuple[Any, ...] = ()
    ) -> Counts:
        """Counts of all annotations, summed over the shards."""
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
        """New array with a row for each instance, shape (n, width), on disk."""
        return new_array(self.scratch, (self.n_instances, width), np.dtype(np.float64))

    def new_column(self, length: int) -> FloatArray:
        """New array of ``length`` numbers, on disk."""
        return new_array(self.scratch, (length,), np.dtype(np.float64))


def _sizes(shard: Votes) -> FloatArray:
    return np.array([shard.n_annotations, shard.total_weight])


def _joined(parts: list[Votes]) -> Votes:
    """Votes of several runs of instances as one."""
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
    """New memory-mapped array; its file has no name, and vanishes with the array.

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


def votes_of(table: Any, gold: IntArray | None = None, *, abstentions: bool = False) -> AllVotes:
    """Votes of a table, in memory, or of a store."""
    if not isinstance(table, ShardedAnnotations):
        return make_votes(table, gold=gold, abstentions=abstentions)
    return StoredVotes(table, gold, abstentions)


def filled(votes: AllVotes, width: int, parts: Iterable[FloatArray]) -> FloatArray:
    """Array with a row for each instance, from consecutive parts."""
    out, first = votes.new_rows(width), 0
    for part in parts:
        out[first : first + len(part)] = part
        release(out)
        first += len(part)
    return out


# -- the course of a fit --------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """How a fit runs: ``checkpoint`` and ``engine`` of `BaseAggregator.fit`."""

    checkpoint: Any = None
    engine: Any = None

    def of(self, model: Any, votes: Any, table: Any, start: FloatArray | None) -> Any:
        """Votes that know where to save parameters, and who counts them."""
        if self.engine is not None:
            votes = replace(votes, engine=self.engine)
        if self.checkpoint is None:
            return votes
        about = {
            "method": type(model).__name__,
            "parameters": model.get_params(),
            "annotations": _digest(table),
            "gold": None if votes.gold is None else digest_of(votes.gold),
            "history": None if votes.history is None else digest_of(votes.history),
            "start": None if start is None else digest_of(start),
        }
        scratch = getattr(table, "scratch", None)
        return replace(votes, checkpoint=FolderCheckpoint(self.checkpoint, about, scratch))


ORDINARY = Course()


def _digest(table: Any) -> str:
    if isinstance(table, ShardedAnnotations):
        return table.digest
    columns = (table.instance, table.annotator, table.label, table.weights, table.passes)
    words = (table.instances, table.annotators, table.classes, table.groups)
    texts = (None if array is None else array.astype(str) for array in words)
    return digest_of(*columns, *texts, np.array(table.group_rho))


def labels_of(
    votes: AllVotes,
    posterior: FloatArray,
    classes: AnyArray,
    ties: str,
    rng: np.random.RandomState,
) -> AnyArray:
    """Most probable class value of each instance, shape (n,); of a store, a memory-mapped array."""
    if not isinstance(votes, StoredVotes):
        return classes[pick(posterior, ties, rng)]
    labels = new_array(votes.scratch, (votes.n_instances,), classes.dtype)
    for first in range(0, votes.n_instances, BLOCK):  # The blocks of `pick`, for equal ties.
        rows = slice(first, first + BLOCK)
        labels[rows] = classes[pick(np.asarray(posterior[rows]), ties, rng)]
        release(posterior)
        release(labels)
    return labels
