"""What the other rooms know of annotations that do not fit in memory (`manyhands.scale`)."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeGuard

from manyhands.annotations.table import AnnotationTable
from manyhands.typing import AnyArray, IntArray


class Sharded(Protocol):
    """Annotations in shards of whole instances, of which one at a time is in memory.

    Otherwise as an `AnnotationTable`, but without families.
    """

    in_memory: Literal[False]
    instances: AnyArray
    annotators: AnyArray
    classes: AnyArray
    n_annotations: int
    n_abstentions: int
    n_skips: int
    n_shards: int
    weighted: bool
    scale: str
    class_order: str
    annotators_known: bool

    @property
    def ordered(self) -> bool:
        """Whether the classes are grades in their order."""

    @property
    def digest(self) -> str:
        """Digest of the whole content."""

    @property
    def n_instances(self) -> int:
        """Number of instances."""

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    def shard(self, number: int) -> Any:
        """Return a shard: ``start`` of its instances, ``annotator`` and ``label``."""

    def table(self, number: int) -> AnnotationTable:
        """Return a shard as a table."""

    def votes(self, gold: IntArray | None = None, *, abstentions: bool = False) -> Any:
        """Return what inference reads: the `manyhands.inference.votes.AllVotes` of a fit."""

    def annotations_per_annotator(self) -> IntArray:
        """Count the annotations of each annotator."""

    def annotations_per_instance(self) -> IntArray:
        """Count the annotations of each instance."""

    def __getitem__(self, key: Any) -> AnnotationTable:
        """Return some instances as a table."""


def is_sharded(table: Any) -> TypeGuard[Sharded]:
    """Whether annotations come in shards, rather than as a table, a matrix or a frame."""
    return getattr(table, "in_memory", True) is False
