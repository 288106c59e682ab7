"""Annotation stores: folders of annotations larger than memory, in shards of whole instances."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from manyhands._version import __version__
from manyhands.annotations import PASSES, AnnotationTable
from manyhands.annotations.scales import read_scale
from manyhands.exceptions import AnnotationError
from manyhands.io.files import PathLike
from manyhands.scale import remote
from manyhands.scale.sharded import Shard, ShardedAnnotations
from manyhands.scale.store_writer import (
    COLUMNS,
    COUNTS,
    FORMAT,
    MANIFEST,
    SHARD_ANNOTATIONS,
    VERSION,
    VOCABULARIES,
    StoreWriter,
    check_carried,
    checksum,
    is_store,
    name_of,
    shards_of,
)
from manyhands.typing import AnyArray, IntArray

FIELDS: dict[str, type] = {
    "n_annotations": int,
    "n_abstentions": int,
    "n_skips": int,
    "weighted": bool,
    "vocabularies": dict,
    "shards": list,
}
"""Entries that a manifest must have, and their types."""

RESTORE = "Restore the manifest, or ingest the files again"
NEEDED = ("start", "annotator", "label")
"""Files of every shard; ``weight`` and ``passes`` exist only if needed."""
KEPT_BYTES = 32 << 20
"""Bytes of arrays that a store keeps in memory. Every pass of a fit reads all shards, and mapping
the many files of a small store again would take longer than computing with them."""


class AnnotationStore(ShardedAnnotations):
    """Annotations on disk, accepted wherever truth inference takes a table.

    Open a store with `open`. Make one from a table with `create`, or from files with `ingest` (on
    the command line: ``manyhands ingest``). Arrays are memory-mapped, so opening reads almost
    nothing; up to 32 MiB of arrays that were read stay in memory.

    Attributes
    ----------
    folder : Path
        Folder of the store. For a remote store, the folder of the local copies of its files, which
        are made on first use.
    url : str or None
        Address of a remote store, such as ``s3://bucket/store``, read through fsspec.
    instances, annotators, classes : arrays
        The original ids and class values. Instances are in natural order, as in a table.
    n_instances, n_annotators, n_classes, n_annotations, n_abstentions, n_skips : int
    weighted : bool
        Whether annotations have weights.
    scale : {"nominal", "ordinal", "interval"}
        As in `AnnotationTable`, and so is ``ordered``.
    n_shards : int
    scratch : Path
        Folder for arrays over all instances that a fit needs. Default: ``scratch`` in the store;
        for a remote store, a folder in the system's temporary folder.

    Notes
    -----
    A shard is a set of ``.npy`` files: ``start`` (n + 1), ``annotator`` (int32), ``label`` (int16
    or int32) and, where there are some, ``weight`` (float32) and ``passes`` (int32, (k, 3)). The
    manifest, which is written last, names every file with its size and its CRC-32. A store does not
    carry families and sources of annotations.

    Examples
    --------
    >>> import tempfile
    >>> from manyhands.inference import DawidSkene
    >>> table = AnnotationTable.from_matrix(np.array([[0, 0, 1], [1, 1, 0], [1, 1, 1]]))
    >>> store = AnnotationStore.create(tempfile.mkdtemp() + "/store", table)
    >>> store
    AnnotationStore(9 annotations: 3 instances x 3 annotators, 2 classes, 1 shard)
    >>> DawidSkene().fit(store).labels_.tolist()
    [0, 1, 1]
    """

    def __init__(self, folder: PathLike, *, scratch: PathLike | None = None) -> None:
        self.url = remote.url_of(folder)
        self._manifest = _read_manifest(folder)
        if self.url is None:
            self.folder = remote.local_path(folder)
            given = self.folder / "scratch"
        else:
            given = remote.local_folder("store", self.url, self.digest)
            self.folder = (given if scratch is None else Path(scratch)) / f"copy-{self.digest[:16]}"
        self.scratch = given if scratch is None else Path(scratch)
        self.n_annotations = self._manifest["n_annotations"]
        self.n_abstentions = self._manifest["n_abstentions"]
        self.n_skips = self._manifest["n_skips"]
        self.weighted = self._manifest["weighted"]
        self._shards = self._manifest["shards"]
        self.n_shards = len(self._shards)
        self.scale = read_scale(self._manifest.get("scale")) or "nominal"
        self.class_order = self._manifest.get("class_order", "given")
        self._kept: dict[str, AnyArray] = {}
        self._kept_bytes = 0
        for name in VOCABULARIES:
            setattr(self, name, self._array(self._manifest["vocabularies"][name]))
        self._check_shards(f"{folder}/{MANIFEST}")

    # -- making and opening ---------------------------------------------------------------------

    @classmethod
    def open(cls, folder: PathLike, *, scratch: PathLike | None = None) -> Self:
        """Open a store.

        Parameters
        ----------
        folder : str or Path
            Folder or URL of the store. Files of a URL are copied to ``scratch`` on first use.
        scratch : str or Path, optional
            Folder for arrays over all instances; give one if the store's folder is read-only.

        Returns
        -------
        AnnotationStore

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        AnnotationError
            If the folder is not a store, has another version of the format, or is incomplete, or if
            its manifest does not list every shard once, in order. Contents are checked when they
            are first read (`verify` checks all of them).
        """
        return cls(folder, scratch=scratch)

    @classmethod
    def create(
        cls,
        folder: PathLike,
        table: AnnotationTable,
        *,
        shard_annotations: int = SHARD_ANNOTATIONS,
    ) -> Self:
        """Write a table as a store.

        Parameters
        ----------
        folder : str or Path
            A new or empty folder, or a URL.
        table : AnnotationTable
        shard_annotations : int
            Approximate number of annotations per shard.

        Returns
        -------
        AnnotationStore
            The new store, opened.

        Raises
        ------
        AnnotationError
            If the folder is not empty, or if the table has families or annotations that were not
            observed.
        WriteError
            If the folder cannot be written.
        """
        check_carried(table)
        if (url := remote.url_of(folder)) is not None:
            with tempfile.TemporaryDirectory() as place:
                cls.create(place, table, shard_annotations=shard_annotations)
                upload_store(Path(place), url)
            return cls(url)
        folder = remote.local_path(folder)
        with StoreWriter.locked(folder) as writer:
            for shard in shards_of(table, shard_annotations):
                writer.add(shard)
            kind = table.scale, table.class_order
            writer.finish(table.instances, table.annotators, table.classes, *kind)
        return cls(folder)

    def __getstate__(self) -> dict[str, Any]:
        folder = self.url or self.folder
        return {"folder": folder, "scratch": self.scratch, "digest": self.digest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["folder"], scratch=state["scratch"])  # type: ignore[misc]
        if self.digest != state["digest"]:
            raise AnnotationError(f"{self.folder} has changed since it was opened; open it again")

    # -- reading --------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Digest of the manifest, which includes the checksums of all files."""
        text = json.dumps(self._manifest, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def firsts(self) -> IntArray:
        """Code of each shard's first instance, and the number of instances."""
        sizes = [shard["n_instances"] for shard in self._shards]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    @cached_property
    def _checked(self) -> set[str]:
        return set()

    @cached_property
    def _in_range(self) -> set[str]:
        return set()

    def shard(self, number: int) -> Shard:
        """Return one shard, memory-mapped; its checksums are checked on first use.

        Raises
        ------
        AnnotationError
            If a file is missing or damaged.
        """
        entry = self._shards[number]
        columns = {name: self._array(at) for name, at in entry["files"].items()}
        found = Shard(int(self.firsts[number]), **columns)
        if (name := entry["files"]["start"]["name"]) not in self._in_range:
            self._check_codes(found, entry, number)
            self._in_range.add(name)
        return found

    def verify(self) -> None:
        """Check that every file exists and has the size and checksum of the manifest.

        Raises
        ------
        AnnotationError
            If not; the message names the first such file.
        """
        for entry in self._files():
            self._check(entry)

    def _check_shards(self, manifest: str) -> None:
        """Raise an error if the last shards are missing from the manifest."""
        totals = {name: self._manifest[name] for name in COUNTS} | {"n_instances": len(self)}
        for name, total in totals.items():
            if total != (found := sum(entry[name] for entry in self._shards)):
                raise AnnotationError(
                    f"{manifest} lists {self.n_shards} shards, but their {name} add up to {found} "
                    f"and not to {total}: a shard is missing. {RESTORE}"
                )

    def _check_codes(self, shard: Shard, entry: dict[str, Any], number: int) -> None:
        """Raise an error for codes out of range, which a checksum does not detect.

        Products of sparse matrices would read, or write, foreign memory.
        """
        start, n = shard.start, len(shard.label)
        passes = np.zeros((0, 3), dtype=int) if shard.passes is None else shard.passes
        codes = [
            (shard.annotator, self.n_annotators),
            (shard.label, self.n_classes),
            (start, n + 1),
        ]
        codes += zip(passes.T, (entry["n_instances"], self.n_annotators, len(PASSES)), strict=False)
        shapes = [(n,), (n,), (entry["n_instances"] + 1,)] + [(len(passes),)] * 3
        good = n == entry["n_annotations"] and [values.shape for values, _ in codes] == shapes
        good = good and all(
            values.dtype.kind in "iu" and (not len(values) or 0 <= values.min() <= values.max() < m)
            for values, m in codes
        )
        good = good and (start[0], start[-1]) == (0, n) and bool((np.diff(start) >= 0).all())
        if not good or (shard.weight is not None and shard.weight.shape != (n,)):
            raise AnnotationError(
                f"shard {number} of {self.url or self.folder} holds codes of no instance, "
                "annotator or class; do not trust this store, and ingest the files again"
            )

    def _files(self) -> Iterator[dict[str, Any]]:
        yield from self._manifest["vocabularies"].values()
        for shard in self._shards:
            yield from shard["files"].values()

    def _array(self, entry: dict[str, Any]) -> AnyArray:
        name = entry["name"]
        if name in self._kept:
            return self._kept[name]
        if name not in self._checked:
            self._check(entry)
            self._checked.add(name)
        array = _load(self.folder / name)
        if self._kept_bytes + array.nbytes <= KEPT_BYTES:
            array = np.array(array)
            array.flags.writeable = False
            self._kept[name] = array
            self._kept_bytes += array.nbytes
        return array

    def _check(self, entry: dict[str, Any]) -> None:
        """Check a file; for a remote store, copy it first unless a good copy exists."""
        place = self.folder / entry["name"]
        if self.url is not None and not _is_good(place, entry):
            address = f"{self.url.rstrip('/')}/{entry['name']}"
            try:
                remote.fetch(address, place)
            except FileNotFoundError as error:
                raise AnnotationError(
                    f"{address} is missing, though the manifest names it; restore it, or ingest "
                    "the files again"
                ) from error
        _check_file(place, entry, self.url)


def _load(path: Path) -> AnyArray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # An empty array cannot be mapped.
        return np.load(path, allow_pickle=False)


def upload_store(folder: Path, url: str) -> None:
    """Copy a store to a remote folder that has none yet; the manifest is copied last.

    Raises
    ------
    AnnotationError
        If the remote folder is a store already.
    WriteError
        If the folder cannot be written.
    """
    if is_store(url):
        raise AnnotationError(f"{url} is a store already; choose another folder, or remove it")
    remote.upload_folder(folder, url, last=MANIFEST)


def _read_manifest(folder: PathLike) -> dict[str, Any]:
    url = remote.url_of(folder)
    if url is not None:
        address = f"{url.rstrip('/')}/{MANIFEST}"
        try:
            return _checked_manifest(remote.read_text(address), address)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{url} is no annotation store: it has no {MANIFEST}; check the address"
            ) from error
    folder = remote.local_path(folder)
    place = folder / MANIFEST
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder} does not exist; check the name, or make a store with the command ingest"
        )
    if not place.is_file():
        raise AnnotationError(
            f"{folder} is no annotation store: it has no {MANIFEST}. If the command ingest was "
            "interrupted, run the same command again"
        )
    return _checked_manifest(place.read_text(encoding="utf-8"), str(place))


def _checked_manifest(text: str, place: str) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise AnnotationError(f"{place} is damaged ({error}); ingest the files again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise AnnotationError(f"{place} is not the manifest of an annotation store")
    if manifest.get("version") != VERSION:
        raise AnnotationError(
            f"{place} belongs to a store of version {manifest.get('version')!r}, written by "
            f"manyhands {manifest.get('manyhands')}; this is manyhands {__version__}, which reads "
            f"version {VERSION}. Ingest the files again, or install the other version"
        )
    for name, kind in FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            raise AnnotationError(f"{place} has no usable {name!r}. {RESTORE}")
    if not all(isinstance(shard, dict) for shard in manifest["shards"]):
        raise AnnotationError(f"{place} has invalid entries in its list of shards. {RESTORE}")
    _check_names(manifest, place)
    return manifest


def _check_names(manifest: dict[str, Any], place: str) -> None:
    """Raise an error if files in a manifest have other names than `StoreWriter` gives them.

    If a shard were missing, repeated or out of order, the annotations of the others would be read
    as those of other instances. A name could also lead out of the folder, since the files of a
    remote store are written under their names.
    """
    names = {name: f"{name}.npy" for name in VOCABULARIES}
    parts = [("the vocabularies", manifest["vocabularies"], names, VOCABULARIES)]
    for number, shard in enumerate(manifest["shards"]):
        names = {column: name_of(number, column) for column in COLUMNS}
        parts.append((f"shard {number}", shard.get("files"), names, NEEDED))
        if not all(isinstance(shard.get(count), int) for count in (*COUNTS, "n_instances")):
            raise AnnotationError(f"{place} lacks the counts of shard {number}. {RESTORE}")
    for part, files, names, needed in parts:
        if not isinstance(files, dict) or not set(needed) <= set(files) <= set(names):
            raise AnnotationError(f"{place} does not list the files of {part}. {RESTORE}")
        for column, entry in files.items():
            if not isinstance(entry, dict) or not set(entry) >= {"name", "bytes", "crc32"}:
                raise AnnotationError(f"{place} has no usable {column!r} of {part}. {RESTORE}")
            if (name := entry["name"]) != (expected := names[column]):
                raise AnnotationError(
                    f"{place} lists {name!r} as {part}, and not {expected!r}: files are missing, "
                    f"repeated or out of order. {RESTORE}"
                )


def _is_good(place: Path, entry: dict[str, Any]) -> bool:
    """Return whether a file exists and has the size and checksum of the manifest."""
    if not place.is_file() or place.stat().st_size != entry["bytes"]:
        return False
    return bool(checksum(place) == entry["crc32"])


def _check_file(place: Path, entry: dict[str, Any], url: str | None) -> None:
    if not place.is_file():
        raise AnnotationError(
            f"{place} is missing, though the manifest names it; restore it, or ingest the files "
            "again"
        )
    if not _is_good(place, entry):
        size = place.stat().st_size
        shown = place if url is None else f"{url}/{entry['name']}"
        raise AnnotationError(
            f"{shown} is damaged: its size or checksum is not that of the manifest ({size} bytes, "
            f"expected {entry['bytes']}); restore it, or ingest the files again"
        )
