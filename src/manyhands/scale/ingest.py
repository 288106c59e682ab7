"""Making of annotation stores from files larger than memory: an external sort by instance.

1. The files become sorted runs (`manyhands.scale.sorted_runs`).
2. The runs are cut into *parts* at the same ids. The rows of a part are merged in memory, and
   written as shards of the store.

If the process is killed and started again, complete runs and parts are kept.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.columns import Columns
from manyhands.annotations.duplicates import Duplicates, ages_of, without_duplicates
from manyhands.annotations.encoding import declare_order, declared_classes
from manyhands.annotations.ids import in_natural_order
from manyhands.annotations.passes import read_marks
from manyhands.annotations.scales import Scale, read_scale
from manyhands.annotations.suspicious import warn_of_alike
from manyhands.exceptions import AnnotationError, WriteError, warn_caller
from manyhands.files import explain, write_atomically
from manyhands.io.annotations import is_plain, read_annotations
from manyhands.io.annotator_names import AnnotatorNames
from manyhands.io.columns import canonical, spaces_left_out, trimmed
from manyhands.io.files import PathLike, existing_file, is_typed
from manyhands.io.label_values import Spellings
from manyhands.io.long_tables import table_of_frame
from manyhands.io.sheets import UNSTATED, stated_of
from manyhands.scale import remote
from manyhands.scale.chunks import PASS, can_be_chunked
from manyhands.scale.export_pieces import COLUMNS, Conversion, is_large
from manyhands.scale.sorted_runs import PLAN, Progress, Runs, keys_of, sorted_ids
from manyhands.scale.store import AnnotationStore, upload_store
from manyhands.scale.store_writer import SHARD_ANNOTATIONS, StoreWriter, is_store, shards_of
from manyhands.typing import AnyArray, IntArray

_LOG = logging.getLogger("manyhands")

MEMORY = 2**30
"""Approximate bytes of memory that an ingest may use by default."""
MERGED_ROW = 160
"""Bytes of memory that a row needs while its part is merged."""

WORK, PIECES, IDS = ".ingest", ".pieces", "instances.raw"

SAMPLES = 256
"""Number of evenly spaced ids of each run from which the bounds of the parts are chosen."""

LABELS_SHOWN, ROWS_SHOWN = 50, 20_000
"""Numbers of rows of each label, and of first rows, from which the kind of labels is inferred."""


def ingest(
    paths: PathLike | Sequence[PathLike],
    folder: PathLike,
    *,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str = "label",
    weight: str | None = None,
    classes: Any = None,
    abstain: Any = None,
    skip: Any = None,
    duplicates: Duplicates = "error",
    scale: Scale | None = None,
    mapping: Any = None,
    lowercase: bool = False,
    annotator_mapping: Any = None,
    memory: int = MEMORY,
    shard_annotations: int = SHARD_ANNOTATIONS,
    progress: Progress = lambda what, share: None,
    **options: Any,
) -> AnnotationStore:
    """Make a store from files; a repeated call resumes an interrupted one.

    Parameters
    ----------
    paths : str, Path or sequence of these
        Long tables (.csv, .tsv, either with .gz, .parquet, .pq), together as large as the disk
        allows; or exports that `read_annotations` reads. Large files of JSON, JSON Lines, CSV or
        Parquet are read in pieces (`manyhands.scale.export_pieces`); folders, archives, workbooks
        and XML must fit in memory. URLs such as ``s3://bucket/part.parquet`` are copied to the
        system's temporary folder first.
    folder : str or Path
        New or empty, or the folder of an interrupted call with the same arguments. A store for a
        URL is made in the system's temporary folder and then copied.
    task, worker, label, weight, classes, abstain, skip, duplicates
        As in `read_annotations`.
    mapping, lowercase, annotator_mapping
        As in `read_annotations`.
    scale : {"nominal", "ordinal", "interval"}, optional
        As in `read_annotations`; the store keeps it.
    memory : int, default=2**30
        Approximate bytes of memory to use, plus the vocabulary of annotators.
    shard_annotations : int
        Approximate number of annotations per shard.
    progress : callable, optional
        Called as ``progress("reading", 0.3)``.
    **options
        Further options of `read_annotations`, for exports.

    Returns
    -------
    AnnotationStore
        Instances are in natural order, as in a table: numbers by size, "img2" before "img10".

    Raises
    ------
    FileNotFoundError, AnnotationError, MissingExtraError
        As in `read_annotations`.
    WriteError
        If the disk is full, the folder cannot be written, or another process writes it. A repeated
        call resumes.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    columns: dict[str, Any] = {"task": task, "worker": worker, "label": label, "weight": weight}
    read_scale(scale)
    reading: dict[str, Any] = {"classes": classes, "abstain": abstain, "skip": skip}
    reading |= {"duplicates": duplicates, "scale": scale}
    reading |= {"mapping": mapping, "lowercase": lowercase}
    reading |= {"annotator_mapping": annotator_mapping}
    if not listed:
        raise AnnotationError("paths is empty; name at least one file")
    rest: dict[str, Any] = {"memory": memory, "shard_annotations": shard_annotations, **options}
    if any(remote.url_of(path) is not None for path in (folder, *listed)):
        return _ingest_remotely(listed, folder, {**columns, **reading, **rest}, progress)
    folder, listed = remote.local_path(folder), [remote.local_path(path) for path in listed]
    conversion = None
    if not all(_is_long(path, columns, options) for path in listed):
        given: dict[str, Any] = {**columns, **reading, **options}
        if duplicates == "error":  # The default, which lets an export's own policy apply.
            del given["duplicates"]
        if not is_large(listed, memory):
            table = read_annotations(listed[0] if len(listed) == 1 else listed, **given)
            return AnnotationStore.create(folder, table, shard_annotations=shard_annotations)
        conversion = Conversion.of(listed, folder / PIECES, given, memory, progress)
    elif options.get("question") is not None:
        columns["label"] = options["question"]
    if options.get("multilabel") == "none":
        reading["multilabel"] = "none"
    if conversion is None and classes is None and scale is None and not (mapping or lowercase):
        reading |= _declared(
            [Path(path) for path in listed], columns["label"], read_marks(abstain, skip)
        )
    files = [existing_file(path) for path in listed] if conversion is None else []
    with StoreWriter.locked(folder, keep=(WORK, PIECES)) as writer:
        works = writer.folder / WORK, writer.folder / PIECES
        if conversion is not None:
            conversion.check_plan()
            with _resumable(works):
                found = conversion.run()
            files, columns, reading = found.tables, dict(COLUMNS), found.reading
        stated = stated_of(options) if conversion is None else UNSTATED
        work = Runs(works[0], files, columns, reading, max(memory, 2**20), progress, stated)
        work.check_plan(shard_annotations)
        with _resumable(works):
            work.read()
            _Merge(work, writer, shard_annotations).run()
            for place in works:
                shutil.rmtree(place, ignore_errors=True)
    store = AnnotationStore(folder)
    if conversion is not None:
        conversion.report(store.n_annotations + store.n_abstentions + store.n_skips)
    return store


def _ingest_remotely(
    paths: Sequence[PathLike], folder: PathLike, given: dict[str, Any], progress: Progress
) -> AnnotationStore:
    """Ingest local copies of remote files into a local folder, and copy it to a remote one."""
    target = remote.url_of(folder)
    if target is not None and is_store(target):
        raise AnnotationError(f"{target} is a store already; choose another folder, or remove it")
    urls = [remote.url_of(path) for path in paths]
    files = [
        remote.local_path(path) if url is None else remote.fetch_input(url)
        for path, url in zip(paths, urls, strict=True)
    ]
    place = remote.local_path(folder)
    if target is not None:
        place = remote.local_folder("ingest", target, list(map(str, files)), given)
    if target is None or not is_store(place):  # It exists already if an earlier upload failed.
        ingest(files, place, progress=progress, **given)
    if target is not None:
        upload_store(place, target)
        shutil.rmtree(place)
    for file, url in zip(files, urls, strict=True):
        if url is not None:
            shutil.rmtree(file.parent)
    return AnnotationStore(folder)


def _is_long(path: PathLike, columns: dict[str, Any], options: dict[str, Any]) -> bool:
    named = {name: column for name, column in columns.items() if name != "weight"}
    optional = {"weight": columns["weight"]}
    if options.get("multilabel") in ("join", "split"):
        return False  # Rows of the same answer may be far apart.
    if str(path).endswith(".npy") or not is_plain(path, optional, {**named, **options}):
        return False
    return not Path(path).exists() or can_be_chunked(Path(path))


def _declared(paths: Sequence[Path], label: str, marks: Iterable[Any]) -> dict[str, Any]:
    """Return the classes and scale that ordered dictionaries of Parquet files declare, or {}."""
    if not all(is_typed(path) and path.exists() for path in paths):
        return {}
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    files = [pq.ParquetFile(path) for path in paths]
    if not all(label in file.schema_arrow.names and file.num_row_groups for file in files):
        return {}
    if not declare_order(file.schema_arrow.field(label) for file in files):
        return {}
    columns = [file.read_row_group(0, columns=[label])[label] for file in files]
    classes = declared_classes(columns, marks, f"column {label!r}")
    return {} if classes is None else {"classes": classes.tolist(), "scale": "ordinal"}


@contextmanager
def _resumable(works: tuple[Path, ...]) -> Iterator[None]:
    """Keep the work if the same call can resume it; errors of the disk then say so."""
    try:
        yield
    except BaseException as error:
        refused = isinstance(error, AnnotationError)  # The mend changes the files or options.
        done = (path for work in works for path in work.rglob("*.json") if path.name != PLAN)
        if refused or not any(done):
            for place in (*works, works[0].parent / "shards"):
                shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError) and not isinstance(error, WriteError):
            reason = f"{explain(error, works[0].parent)}; the same command resumes"
            raise WriteError(error.errno, reason) from error
        raise


@dataclass
class _Merge:
    """The second phase: parts of all runs become shards."""

    work: Runs
    writer: StoreWriter
    shard_annotations: int

    def run(self) -> None:
        """Write the parts that do not exist yet, the vocabularies and the manifest."""
        kinds = [{run["kinds"][column] for run in self.work.runs} for column in range(3)]
        self.is_text = "text" in kinds[0] or len({*kinds[0]} - {"number"}) > 0
        self._make_text()
        self._trim_ids()
        self.annotators, self.annotator_of = self._annotators(kinds[1])
        read, self.class_of = self._classes(kinds[2])
        self.classes, self.kind = read.classes, (read.scale, read.class_order)
        widths = [run["width"] for run in self.work.runs]
        self.dtype = np.dtype(f"<U{max(widths) // 4}") if self.is_text else np.dtype(np.int64)
        bounds = self._bounds()
        done = self._resumed()
        raw = self.work.folder / IDS
        with raw.open("r+b" if raw.exists() else "w+b") as file:
            file.truncate(sum(part["n_ids"] for part in done) * self.dtype.itemsize)
            file.seek(0, os.SEEK_END)
            for number in range(len(done), len(bounds) - 1):
                done.append(self._part(number, bounds[number], bounds[number + 1], file))
                self.work.progress("sorting", (number + 1) / (len(bounds) - 1))
        n = sum(part["n_ids"] for part in done)
        dropped = sum(part["dropped"] for part in done)
        if dropped:
            warn_caller(
                f"{dropped} of {sum(run['rows'] for run in self.work.runs)} rows have no label: "
                "they count as missing annotations (their instances and annotators are kept)"
            )
        self._finish(n, raw)

    def _make_text(self) -> None:
        """Rewrite runs with ids that were read as numbers, if other runs have text ids."""
        for number, meta in enumerate(self.work.runs):
            if not self.is_text or meta["kinds"][0] != "number":
                continue
            names = ("ids", "start", *self.work.row_columns)
            arrays = {name: np.asarray(self.work.array(number, name)) for name in names}
            ids, order = sorted_ids(arrays["ids"].astype(str))
            given = np.diff(arrays["start"])[order]
            start = np.concatenate([[0], np.cumsum(given)])
            rows = np.repeat(arrays["start"][order] - start[:-1], given) + np.arange(start[-1])
            moved = {name: arrays[name][rows] for name in arrays if name not in ("ids", "start")}
            meta["width"], meta["kinds"][0] = ids.dtype.itemsize, "text"
            self.work.write_run(number, {"ids": ids, "start": start, **moved}, meta)

    def _trim_ids(self) -> None:
        """Rewrite runs with spaces around ids that occur without spaces in any run."""
        spaced = [number for number, run in enumerate(self.work.runs) if run["spaced"]]
        odd = {
            text: text.strip()
            for number in spaced
            for text in self.work.array(number, "ids").tolist()
            if text != text.strip()
        }
        bare = np.array(list({*odd.values()}))
        within = [run["spaces"] for run in self.work.runs if run["spaces"]]
        n, first = sum(rows for rows, _ in within), next((text for _, text in within), "")
        known: set[str] = set()
        for number in range(len(self.work.runs) if odd else 0):
            known.update(bare[np.isin(bare, self.work.array(number, "ids"))].tolist())
        for number in spaced:
            names = ("ids", "start", *self.work.row_columns)
            arrays = {name: np.asarray(self.work.array(number, name)) for name in names}
            given = np.diff(arrays["start"])
            texts = arrays["ids"].tolist()
            meant = [odd[t] if odd.get(t) in known else t for t in texts]
            if meant == texts:
                continue
            changed = [new != old for new, old in zip(meant, texts, strict=True)]
            n, first = n + int(given[changed].sum()), first or texts[changed.index(True)]
            ids, codes = self._merged_ids(np.array(meant))
            instance = np.repeat(codes, given)
            rows = np.argsort(instance, kind="stable")
            start = np.concatenate([[0], np.cumsum(np.bincount(instance, minlength=len(ids)))])
            moved = {name: arrays[name][rows] for name in self.work.row_columns}
            meta = self.work.runs[number] | {"width": ids.dtype.itemsize}
            self.work.runs[number] = meta
            self.work.write_run(number, {"ids": ids, "start": start, **moved}, meta)
        if n:
            self._note_spaces(n, first, "task")

    def _note_spaces(self, n: int, example: str, column: str) -> None:
        name, path = self.work.columns[column], self.work.files[0]
        shown = name if isinstance(name, str) else ",".join(name)
        _LOG.info("%s: %s", path.name, spaces_left_out(n, example, shown))

    def _annotators(self, kinds: set[str]) -> tuple[AnyArray, IntArray]:
        """Return the annotators in natural order, and the code of each provisional code."""
        names = list(self.work.workers)
        counts = np.zeros(len(names), dtype=np.int64)
        for number in range(len(self.work.runs)):
            rows = np.asarray(self.work.array(number, "worker"))
            counts += np.bincount(rows, minlength=len(names))
        meant, spaced = trimmed(names)
        if spaced:
            n = sum(counts[code] for name, code in self.work.workers.items() if name in spaced)
            self._note_spaces(int(n), spaced[0], "worker")
        people = AnnotatorNames.of(self.work.reading["annotator_mapping"])
        if people is not None:
            meant = [str(name) for name in people.read(meant)]
            people.report()
            kinds = {"csv"}
        values = np.array(meant)
        if kinds == {"number"}:
            values = values.astype(np.int64)
        elif "text" not in kinds:
            values = canonical(values)
        ids, found = np.unique(values, return_inverse=True)
        codes, ids = in_natural_order(np.asarray(found), ids)
        n_rows = np.bincount(codes, counts, minlength=len(ids)).astype(np.int64)
        argument = f"column {self.work.columns['worker']!r}"
        warn_of_alike(ids, np.arange(len(ids)), argument, "annotators", counts=n_rows.tolist())
        return ids, codes

    def _classes(self, kinds: set[str]) -> tuple[AnnotationTable, IntArray]:
        """Return a table of the classes, and the class of each provisional code.

        The code is -1 without a label, -2 and below for passes.

        The rules are those of small tables. They are applied to a sample: the first rows, which
        show how annotators differ, and several rows of each distinct label.
        """
        counts = np.zeros(len(self.work.labels), dtype=np.int64)
        for number in range(len(self.work.runs)):
            label = np.asarray(self.work.array(number, "label"))
            counts += np.bincount(label[label >= 0], minlength=len(counts))
        values: list[Any] = list(self.work.labels)
        apart = ("duplicates", "annotator_mapping")
        reading = {k: v for k, v in self.work.reading.items() if k not in apart}
        spellings = Spellings.of(reading.pop("mapping"), reading.pop("lowercase"))
        if spellings is not None:
            values = [v if v.startswith(PASS) else spellings.read_counted(v, n)
                      for v, n in zip(values, counts.tolist(), strict=True)]  # fmt: skip
            spellings.report()
            for name in ("classes", "abstain", "skip"):
                reading[name] = spellings.read_marks(reading[name])
            kinds = {"csv"}
        typed = kinds <= {"number"}
        task, which = self._first_rows()
        shown = np.bincount(which, minlength=len(values))
        more = np.maximum(np.minimum(counts, LABELS_SHOWN) - shown, 0)
        which = np.append(which, np.repeat(np.arange(len(values)), more))
        task = np.append(task, task.max(initial=-1) + 1 + np.arange(more.sum()))
        rows = [int(values[i]) if typed else values[i] for i in which.tolist()]
        passed = [str(v).removeprefix(PASS) if str(v).startswith(PASS) else None for v in rows]
        given = [None if p else v for p, v in zip(passed, rows, strict=True)]
        data: dict[str, list[Any]] = {"task": task.tolist(), "worker": [*range(len(rows))]}
        data["label"] = given
        weight = (counts / np.maximum(shown + more, 1))[which].tolist()
        if any(passed):
            data["pass"] = passed
        path = Path("labels.parquet" if typed or kinds == {"text"} else "labels.csv")
        data["weight"] = [repr(v) for v in weight] if path.suffix == ".csv" else weight
        frame: Any = nw.from_native(_frame(data), eager_only=True)
        table = table_of_frame(frame, path, weight="weight", **reading)
        class_of = np.full(len(values), -1, dtype=np.int64)
        class_of[which[table.annotator]] = table.label  # The sample has one annotator per row.
        if table.passes is not None:
            class_of[which[table.passes[:, 1]]] = -2 - table.passes[:, 2]
        return table, class_of

    def _first_rows(self) -> tuple[IntArray, IntArray]:
        """Return the instance and label code of the first rows, all rows of an instance or none."""
        if not self.work.runs:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        start = np.asarray(self.work.array(0, "start"))[: ROWS_SHOWN + 1]
        n = max(int(np.searchsorted(start, ROWS_SHOWN, side="right")) - 1, 0)
        label = np.asarray(self.work.array(0, "label")[: start[n]]).astype(np.int64)
        task = np.repeat(np.arange(n), np.diff(start[: n + 1]))
        return task[label >= 0], label[label >= 0]

    def _bounds(self) -> list[Any]:
        """Return the keys that cut the runs into parts that fit in memory; None at both ends."""
        sampled, total = [], sum(run["rows"] for run in self.work.runs)
        for number, run in enumerate(self.work.runs):
            start, ids = self.work.array(number, "start"), self.work.array(number, "ids")
            rows = np.linspace(0, run["rows"] - 1, min(SAMPLES, run["rows"])).astype(np.int64)
            places = np.searchsorted(start, rows, side="right") - 1
            share = run["rows"] / max(len(rows), 1)
            keys = self._sort_keys(np.asarray(ids[places]))
            sampled += [(key, share) for key in keys]
        n_parts = -(-total * MERGED_ROW // self.work.memory)
        sampled.sort(key=lambda pair: pair[0])
        heights = np.cumsum([share for _, share in sampled])
        at = np.searchsorted(heights, np.arange(1, n_parts) * total / max(n_parts, 1))
        inner = sorted({sampled[i][0] for i in at})
        return [None, *inner, None]

    def _sort_keys(self, ids: AnyArray) -> list[Any]:
        return keys_of(ids.tolist()) if self.is_text else ids.tolist()

    def _place(self, ids: AnyArray, key: Any, end: int) -> int:
        if key is None:
            return end
        if self.is_text:
            return bisect_left(ids, key, key=lambda text: keys_of([str(text)])[0])
        return int(np.searchsorted(ids, key))

    def _part(self, number: int, low: Any, high: Any, file: Any) -> dict[str, Any]:
        """Merge a part of all runs and write its shards."""
        parts: dict[str, list[AnyArray]] = {}
        for run in range(len(self.work.runs)):
            ids, start = self.work.array(run, "ids"), self.work.array(run, "start")
            own = slice(self._place(ids, low, 0), self._place(ids, high, len(ids)))
            rows = slice(int(start[own.start]), int(start[own.stop]))
            parts.setdefault("ids", []).append(np.asarray(ids[own]))
            parts.setdefault("given", []).append(np.diff(start[own.start : own.stop + 1]))
            for name in self.work.row_columns:
                parts.setdefault(name, []).append(np.asarray(self.work.array(run, name)[rows]))
        joined = {name: np.concatenate(values) for name, values in parts.items()}
        ids, codes = self._merged_ids(joined["ids"])
        instance = np.repeat(codes, joined["given"])
        table, dropped = self._table(ids, instance, joined)
        first = len(self.writer.shards)
        for shard in shards_of(table, self.shard_annotations):
            self.writer.add(shard)
        file.write(ids.astype(self.dtype).tobytes())
        file.flush()
        os.fsync(file.fileno())
        meta = {"n_ids": len(ids), "dropped": dropped, "shards": self.writer.shards[first:]}
        write_atomically(self.work.folder / f"part-{number:05d}.json", json.dumps(meta))
        return meta

    def _merged_ids(self, ids: AnyArray) -> tuple[AnyArray, IntArray]:
        distinct, codes = np.unique(ids, return_inverse=True)
        if not self.is_text:
            return distinct, codes
        ordered, order = sorted_ids(distinct)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return ordered, rank[codes]

    def _table(
        self, ids: AnyArray, instance: IntArray, joined: dict[str, AnyArray]
    ) -> tuple[AnnotationTable, int]:
        """Return the table of a part, and the number of its rows without a label."""
        annotator = self.annotator_of[joined["worker"]]
        label = np.append(self.class_of, -1)[joined["label"]]  # A missing label has the code -1.
        given, passed = label >= 0, label < -1
        weight = joined.get("weight")
        columns = Columns(
            instance[given],
            annotator[given],
            label[given],
            ids,
            self.annotators,
            self.classes,
            None if weight is None else weight[given],
            passes=None
            if not passed.any()
            else np.column_stack([instance[passed], annotator[passed], -2 - label[passed]]),
        )
        kept = without_duplicates(columns, self.work.reading["duplicates"], ages_of(given, passed))
        return AnnotationTable(*kept), int((~given & ~passed).sum())

    def _resumed(self) -> list[dict[str, Any]]:
        done: list[dict[str, Any]] = []
        while (place := self.work.folder / f"part-{len(done):05d}.json").exists():
            done.append(json.loads(place.read_text()))
            self.writer.shards.extend(done[-1]["shards"])
        return done

    def _finish(self, n: int, raw: Path) -> None:
        """Write the header of the ids, the other vocabularies and the manifest."""

        def copy(file: Any) -> None:
            header = {"descr": self.dtype.str, "fortran_order": False, "shape": (n,)}
            np.lib.format.write_array_header_1_0(file, header)
            with raw.open("rb") as source:
                shutil.copyfileobj(source, file, 2**24)

        write_atomically(self.writer.folder / "instances.npy", copy)
        self.writer.finish(None, self.annotators, self.classes, *self.kind)


def _frame(data: dict[str, list[Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(data)
