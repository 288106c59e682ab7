"""Sorted runs: the first phase of an external sort by instance.

The files are read in chunks. Each chunk becomes a run: its rows sorted by instance, with annotators
and labels as provisional codes. A run is a folder of arrays, renamed into place when complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from manyhands._version import __version__
from manyhands.annotations.ids import natural_keys
from manyhands.exceptions import AnnotationError
from manyhands.files import write_array, write_atomically
from manyhands.io.columns import trimmed
from manyhands.io.files import naming
from manyhands.io.sheets import UNSTATED, Stated
from manyhands.scale.chunks import Chunk, chunks_of
from manyhands.typing import AnyArray, IntArray

ROW = 320
"""Bytes of memory that a row needs while its chunk is sorted."""

PLAN = "plan.json"

Progress = Callable[[str, float], None]
"""Function that is called with the name of the current phase and the fraction that is done."""


def check_plan(folder: Path, files: list[Path], about: dict[str, Any]) -> None:
    """Write the files and options of the work into its folder, or compare them with those there.

    Raises
    ------
    AnnotationError
        If the folder holds work on other files or with other options.
    """
    plan = {
        "manyhands": __version__,
        "files": [[str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for f in files],
        **about,
    }
    place = folder / PLAN
    if not place.exists():
        write_atomically(place, json.dumps(plan, indent=1))
    elif (found := json.loads(place.read_text())) != plan:
        name = next(name for name in plan | found if found.get(name) != plan.get(name))
        raise AnnotationError(
            f"{folder.parent} holds an interrupted ingest with other {name} "
            f"({found.get(name)!r}, now {plan.get(name)!r}); repeat it as it was, remove the "
            "folder, or choose another"
        )


@dataclass
class Runs:
    """Sorted runs in a folder; `read` adds those of the files.

    Attributes
    ----------
    folder : Path
    files : list of Path
    columns, reading : dict
        Names of the columns, and options of reading.
    memory : int
    progress : callable
    stated : Stated
        Encoding and separator, as far as the user has stated them.
    workers, labels : dict {value: provisional code}
    runs : list of dict
        Facts about each run that later phases need.
    """

    folder: Path
    files: list[Path]
    columns: dict[str, Any]
    reading: dict[str, Any]
    memory: int
    progress: Progress
    stated: Stated = UNSTATED
    workers: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def check_plan(self, shard_annotations: int) -> None:
        """Raise an error if the folder holds work on other files or with other options."""
        about = {
            "columns": self.columns,
            "reading": {name: repr(value) for name, value in self.reading.items()},
            "shard_annotations": shard_annotations,
            "memory": self.memory,
            "stated": repr(self.stated),
        }
        check_plan(self.folder, self.files, about)

    def read(self) -> None:
        """Make the runs that do not exist yet."""
        for place in self.folder.glob("run-*.part"):
            shutil.rmtree(place)
        while (meta := self.folder / f"run-{len(self.runs):05d}" / "meta.json").exists():
            self._add(json.loads(meta.read_text()))
        if (self.folder / "read").exists():
            return
        last: dict[str, Any] = self.runs[-1] if self.runs else {"file": 0, "position": None}
        sizes = np.cumsum([0, *(file.stat().st_size for file in self.files)])
        for number, file in enumerate(self.files):
            if number < last["file"]:
                continue
            at = last["position"] if number == last["file"] else None
            for chunk in self._chunks(file, at):
                self._add(self._run(chunk, number))
                done = sizes[number] + chunk.share * (sizes[number + 1] - sizes[number])
                self.progress("reading", float(done / sizes[-1]))
        if not sum(run["rows"] for run in self.runs):
            raise AnnotationError("the files hold no annotation")
        write_atomically(self.folder / "read", "")

    def _chunks(self, file: Path, at: int | None) -> Iterator[Chunk]:
        """Yield the chunks of a file; errors while reading name the file."""
        chunks = chunks_of(file, self.columns, self.memory // ROW, at, self.stated)
        while True:
            with naming(file):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def _add(self, meta: dict[str, Any]) -> None:
        self.runs.append(meta)
        for vocabulary, new in ((self.workers, "workers"), (self.labels, "labels")):
            for value in meta[new]:
                vocabulary[value] = len(vocabulary)

    def _run(self, chunk: Chunk, file: int) -> dict[str, Any]:
        """Sort a chunk and write it as a run; return the facts that later phases need."""
        workers, new_workers = _coded(chunk.workers, self.workers)
        labels, new_labels = _coded(chunk.labels, self.labels)
        tasks, task, spaces = _without_spaces(chunk.tasks, chunk.task)
        ids, order = sorted_ids(tasks)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        instance = rank[task]
        by_instance = np.argsort(instance, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(instance, minlength=len(ids)))])
        label = np.where(chunk.label < 0, -1, labels[chunk.label]) if len(labels) else chunk.label
        arrays = {
            "ids": ids,
            "start": start,
            "worker": workers[chunk.worker[by_instance]].astype(np.int32),
            "label": label[by_instance].astype(np.int32),
        }
        if chunk.weight is not None:
            arrays["weight"] = chunk.weight[by_instance].astype(np.float32)
        meta = {
            "file": file,
            "position": chunk.position,
            "rows": len(chunk.task),
            "kinds": [chunk.kinds[name] for name in ("task", "worker", "label")],
            "width": ids.dtype.itemsize,
            "spaces": spaces,
            "spaced": ids.dtype.kind == "U" and any(t != t.strip() for t in ids.tolist()),
            "workers": new_workers,
            "labels": new_labels,
        }
        self.write_run(len(self.runs), arrays, meta)
        return meta

    def write_run(self, number: int, arrays: dict[str, AnyArray], meta: dict[str, Any]) -> None:
        """Write a run under a temporary name, and rename it."""
        place = self.folder / f"run-{number:05d}"
        partial = place.with_suffix(".part")
        partial.mkdir(parents=True)
        for name, values in arrays.items():
            with (partial / f"{name}.npy").open("wb") as file:
                write_array(file, values)
                file.flush()
                os.fsync(file.fileno())
        (partial / "meta.json").write_text(json.dumps(meta))
        if place.exists():
            shutil.rmtree(place)
        partial.rename(place)

    def array(self, number: int, name: str) -> AnyArray:
        """Return the column of a run, memory-mapped."""
        place = self.folder / f"run-{number:05d}" / f"{name}.npy"
        return np.load(place, mmap_mode="r", allow_pickle=False)

    @property
    def row_columns(self) -> list[str]:
        """Names of the columns with a value for each row."""
        return ["worker", "label", *(["weight"] if self.columns["weight"] is not None else [])]


def _coded(values: list[str], vocabulary: dict[str, int]) -> tuple[IntArray, list[str]]:
    """Return the codes of values, and the values that are new in the vocabulary."""
    new = list(dict.fromkeys(value for value in values if value not in vocabulary))
    codes = {value: len(vocabulary) + i for i, value in enumerate(new)}
    found = [codes[v] if v in codes else vocabulary[v] for v in values]
    return np.array(found, dtype=np.int64), new


def _without_spaces(tasks: AnyArray, task: IntArray) -> tuple[AnyArray, IntArray, list[Any]]:
    """Remove spaces around ids that also occur without spaces in the same chunk.

    Returns
    -------
    tasks, task : arrays
        Distinct ids, and the id of each row.
    spaces : list
        Number of rows with such an id, and one of these ids; empty if there is none.
    """
    meant, spaced = trimmed(tasks.tolist()) if tasks.dtype.kind == "U" else ([], [])
    if not spaced:
        return tasks, task, []
    ids, codes = np.unique(np.array(meant), return_inverse=True)
    n = int(np.isin(tasks, spaced)[task].sum())
    return ids, codes[task], [n, spaced[0]]


def sorted_ids(tasks: AnyArray) -> tuple[AnyArray, IntArray]:
    """Return the distinct ids in natural order, and the order that sorts them."""
    if tasks.dtype.kind != "U":
        order = np.argsort(tasks, kind="stable")
        return tasks[order], order
    keys = keys_of(tasks.tolist())
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    return tasks[order], order


def keys_of(texts: list[str]) -> list[str]:
    """Return the keys of natural order; ids such as "7" and "07" follow each other as text."""
    return [f"{key}\0{text}" for key, text in zip(natural_keys(texts), texts, strict=True)]
