"""Writing of annotation stores: shards first, the manifest last."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from manyhands._version import __version__
from manyhands.annotations import AnnotationTable, LabelSetTable
from manyhands.annotations.columns import SOURCES, require_annotators
from manyhands.exceptions import AnnotationError, WriteError
from manyhands.files import check_writable, explain, file_lock, write_array, write_atomically
from manyhands.io.files import PathLike
from manyhands.scale import remote
from manyhands.scale.sharded import Shard, n_passes
from manyhands.typing import AnyArray, IntArray

MANIFEST = "manifest.json"
FORMAT = "manyhands annotation store"
VERSION = 1
"""Version of the format; opening a store of another version is an error."""

SHARD_ANNOTATIONS = 4_000_000
"""Default number of annotations per shard: so many that counts of size R * C * C are added rarely,
so few enough that the posterior of a shard needs little memory."""

VOCABULARIES = ("instances", "annotators", "classes")
COLUMNS = ("start", "annotator", "label", "weight", "passes")
COUNTS = ("n_annotations", "n_abstentions", "n_skips")
"""Counts in the manifest, of every shard and of all together."""

BLOCK = 2**24
"""Bytes that are read at once for a checksum."""


@dataclass
class StoreWriter:
    """Write the shards of a store in order; the folder is no store before `finish`."""

    folder: Path
    shards: list[dict[str, Any]] = field(default_factory=list)
    weighted: bool = False

    @classmethod
    @contextmanager
    def locked(cls, folder: PathLike, keep: Iterable[str] = ()) -> Iterator[Self]:
        """Yield a writer for a new or empty folder, and lock the folder meanwhile.

        Parameters
        ----------
        folder : str or Path
        keep : names
            Files that the folder may contain: the work of an interrupted ingest.

        Raises
        ------
        AnnotationError
            If the folder holds other files.
        WriteError
            If it cannot be written, or another process is writing it.
        """
        is_new = not Path(folder).exists()
        folder = check_writable(folder)
        try:
            with cls._held(folder, keep) as writer:
                yield writer
        finally:
            if is_new:
                with suppress(OSError):  # Something has been written, or another one removed it.
                    folder.rmdir()

    @classmethod
    @contextmanager
    def _held(cls, folder: Path, keep: Iterable[str]) -> Iterator[Self]:
        with file_lock(folder / ".lock") as held:
            if not held:
                raise WriteError(
                    f"{str(folder)!r} is being written by another process; wait until it is done, "
                    "or choose another folder"
                )
            if (folder / MANIFEST).exists():
                raise AnnotationError(
                    f"{str(folder)!r} is a store already; choose another folder, or remove it"
                )
            ours = {".lock", "shards", "scratch", *keep, *(f"{name}.npy" for name in VOCABULARIES)}
            others = sorted({path.name for path in folder.iterdir()} - ours)
            if others:
                raise AnnotationError(
                    f"{str(folder)!r} holds other files ({others[0]!r}); choose a new or empty "
                    "folder"
                )
            yield cls(folder)

    def add(self, shard: Shard) -> dict[str, Any]:
        """Write a shard, and return its entry of the manifest."""
        number = len(self.shards)
        files = {}
        for name in COLUMNS:
            values = getattr(shard, name)
            if values is not None:
                files[name] = self._write(name_of(number, name), values)
        entry = {
            "n_instances": shard.n_instances,
            "n_annotations": len(shard.label),
            "n_abstentions": n_passes(shard.passes, "abstain"),
            "n_skips": n_passes(shard.passes, "skip"),
            "files": files,
        }
        self.shards.append(entry)
        return entry

    def finish(
        self,
        instances: AnyArray | None,
        annotators: AnyArray,
        classes: AnyArray,
        scale: str = "nominal",
        class_order: str = "given",
    ) -> None:
        """Write the vocabularies (None: already written) and, last, the manifest.

        The manifest names the scale unless it is nominal, and where the order of classes is from.
        """
        given = dict(zip(VOCABULARIES, (instances, annotators, classes), strict=True))
        files = {
            name: _entry(self.folder, f"{name}.npy")
            if values is None
            else self._write(f"{name}.npy", _storable(values))
            for name, values in given.items()
        }
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "manyhands": __version__,
            **{name: sum(shard[name] for shard in self.shards) for name in COUNTS},
            "weighted": any("weight" in shard["files"] for shard in self.shards),
            "vocabularies": files,
            "shards": self.shards,
        }
        if scale != "nominal":
            manifest |= {"scale": scale, "class_order": class_order}
        write_atomically(self.folder / MANIFEST, json.dumps(manifest, indent=1))

    def _write(self, name: str, values: AnyArray) -> dict[str, Any]:
        write_atomically(self.folder / name, lambda file: write_array(file, values))
        return _entry(self.folder, name)


def name_of(number: int, column: str) -> str:
    """Return the name of a shard's file for a column, below the folder of the store."""
    return f"shards/{number:05d}.{column}.npy"


def _entry(folder: Path, name: str) -> dict[str, Any]:
    """Return the entry of a file in the manifest."""
    place = folder / name
    try:
        return {"name": name, "bytes": place.stat().st_size, "crc32": checksum(place)}
    except OSError as error:
        raise WriteError(error.errno, explain(error, place)) from error


def _storable(values: Any) -> AnyArray:
    """Return the ids or classes as a numpy array of fixed width, which can be memory-mapped."""
    array = np.asarray(values)
    return array.astype(str) if array.dtype.kind in "OT" else array


def check_carried(table: AnnotationTable) -> None:
    """Raise an error if a table has sets, families, or annotations that were not observed."""
    if isinstance(table, LabelSetTable):
        raise AnnotationError(
            "table is a LabelSetTable, and a store carries single labels; MultiLabelDawidSkene "
            "reads the table in memory, and one option, table.option(name), fits into a store"
        )
    require_annotators(table, "a store")
    if table.groups is not None:
        raise AnnotationError(
            "the table declares families of annotators, which a store does not carry; give "
            "table.with_groups(None)"
        )
    if table.sources is not None and table.sources.any():
        code = int(table.sources[table.sources > 0][0])
        raise AnnotationError(
            f"the table has annotations whose source is {SOURCES[code]!r}, and a store carries "
            "observed ones only; give table.observed"
        )


def shards_of(table: AnnotationTable, size: int) -> Iterator[Shard]:
    """Cut a table into shards of about ``size`` annotations."""
    order, start = table.by_instance()
    rows = slice(None) if order is None else order
    annotator, label = table.annotator[rows], table.label[rows]
    weight = None if table.weights is None else table.weights[rows]
    passes = table.passes
    if passes is not None:
        passes = passes[np.argsort(passes[:, 0], kind="stable")]
    for first, last in cuts(np.asarray(start), size):
        part = slice(int(start[first]), int(start[last]))
        own = None
        if passes is not None:
            inside = slice(*np.searchsorted(passes[:, 0], [first, last]))
            own = passes[inside] - np.array([first, 0, 0], dtype=np.int32)
        local = np.asarray(start[first : last + 1]) - int(start[first])
        yield Shard(
            first,
            local.astype(np.int32),
            annotator[part],
            label[part],
            None if weight is None else weight[part],
            own if own is not None and len(own) else None,
        )


def cuts(start: IntArray, size: int) -> list[tuple[int, int]]:
    """Return the bounds of runs of whole instances with about ``size`` annotations each."""
    n = len(start) - 1
    if not n:
        return []
    n_parts = max(1, -(-int(start[-1]) // size))
    inner = np.searchsorted(start, np.arange(1, n_parts) * size)
    return list(pairwise(np.unique([0, *inner, n]).tolist()))


def checksum(place: Path) -> int:
    """Return the CRC-32 of a file."""
    found = 0
    with place.open("rb") as file:
        while block := file.read(BLOCK):
            found = zlib.crc32(block, found)
    return found


def is_store(path: PathLike) -> bool:
    """Return whether a path, or a URL, is a folder with the manifest of a store."""
    url = remote.url_of(path)
    if url is not None:
        return remote.exists(f"{url.rstrip('/')}/{MANIFEST}")
    return (remote.local_path(path) / MANIFEST).is_file()
