"""Dawid-Skene on an annotation store: time, memory, and equality with the table in memory.

Every measurement runs in a process of its own with one thread; those on a store run under a limit
of 2 GiB of data (``RLIMIT_DATA``, which counts private memory and not mapped files). The files of
1e8 annotations take 10 GB of disk (MANYHANDS_WORK names the folder). It needs Linux, whose /proc
tells the memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.bars import Row, dots
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import ROOT as HOME
from evidence.study import Study, grid, spent, workspace
from evidence.tables import Record, listing

E7, E8 = 10**7, 10**8
PER_INSTANCE, CLASSES = 5, 10
SIZES = {
    "1e7": (E7, 100_000), "1e8": (E8, 100_000), "export": (E7 // 2, 100_000),
    "million": (E7, 1_000_000),
}  # fmt: skip
"""Annotations and annotators of the synthetic tables."""

LIMIT = 2 * 2**30
ROUNDS = 6
"""Iterations of the timed runs, without acceleration, so that each is one pass."""

COPIES = 3
"""Copies of the real table, which has half a million annotations."""

PLAIN = {"dependence": 0, "n_subtypes": 1}
TWENTY = PLAIN | {"max_iter": 20, "tol": 0.0, "confusion_prior": None, "accelerate": False}
"""The published model with 20 iterations, by which `inference_speed.py` and `costs.py` measure."""
TIMED = {"max_iter": ROUNDS, "tol": 0.0, "accelerate": False}
SHORT = {"max_iter": 2}
"""Of the fit whose parameters give the posterior of a prefix once more, in memory."""


# -- synthetic annotations ------------------------------------------------------------------------


def mixed(values: Any) -> Any:
    """Scramble 64-bit integers, so that annotations are a function of their number."""
    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def annotations(numbers: Any, annotators: int) -> tuple[Any, Any, Any]:
    """Instance, annotator and label of annotations; five distinct annotators per instance."""
    instance, slot = numbers // PER_INSTANCE, numbers % PER_INSTANCE
    own = mixed(instance)
    step = 1 + (own >> np.uint64(40)) % np.uint64(annotators // PER_INSTANCE - 1)
    everyone = np.uint64(annotators)
    annotator = (own % everyone + step * slot.astype(np.uint64)) % everyone
    truth = mixed(instance + 7 * E8) % np.uint64(CLASSES)
    skill = 0.35 + 0.6 * (mixed(annotator + np.uint64(11 * E8)) >> np.uint64(11)) / 2**53
    draw = mixed(numbers + 13 * E8)
    right = (draw >> np.uint64(11)) / 2**53 < skill
    other = (truth + 1 + mixed(draw) % np.uint64(CLASSES - 1)) % np.uint64(CLASSES)
    label = np.where(right, truth, other)
    return instance, annotator.astype(np.int64), label.astype(np.int64)


def generate(folder: Path, m: int, annotators: int) -> dict[str, Any]:
    """Write m annotations in scrambled order to Parquet files of 1e7 rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, m, E7):
        with pq.ParquetWriter(folder / f"{first // E7:03d}.parquet", SCHEMA()) as file:
            for start in range(first, first + E7, 10**6):
                # 61 800 001 is coprime to m, so that every annotation comes once.
                numbers = (np.arange(start, start + 10**6, dtype=np.int64) * 61_800_001 + 17) % m
                columns = [pa.array(values) for values in annotations(numbers, annotators)]
                file.write_table(pa.table(columns, schema=SCHEMA()))
    return {"bytes": sum(p.stat().st_size for p in folder.glob("*.parquet"))}


def generate_export(file: Path, m: int, annotators: int) -> dict[str, Any]:
    """Write m annotations as Label Studio exports them: one JSON array of tasks."""
    head = '"was_cancelled":false,"ground_truth":false,"created_at":"2026-01-01T00:00:00.000000Z"'
    result = (
        '"id":"a1b2c3d4e5","from_name":"label","to_name":"text","type":"choices","origin":"manual"'
    )
    with file.open("w", encoding="utf-8") as out:
        out.write("[")
        for start in range(0, m, 10**5):
            columns = annotations(np.arange(start, start + 10**5, dtype=np.int64), annotators)
            rows = list(zip(*(column.tolist() for column in columns), strict=True))
            for first in range(0, len(rows), PER_INSTANCE):
                made = ",".join(
                    f'{{"id":{start + first + k},"completed_by":{worker},{head},"lead_time":3.21,'
                    f'"result":[{{"value":{{"choices":["class {label}"]}},{result}}}]}}'
                    for k, (_, worker, label) in enumerate(rows[first : first + PER_INSTANCE])
                )
                task = rows[first][0]
                out.write("," if start + first else "")
                out.write(
                    f'{{"id":{task},"annotations":[{made}],"data":{{"text":"Text {task}."}}}}\n'
                )
        out.write("]")
    return {"bytes": file.stat().st_size}


def SCHEMA() -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.int64()) for name in ("task", "worker", "label")])


# -- measurements, each in a process of its own ---------------------------------------------------


def fit(annotations_: Any, options: dict[str, Any], out: Path) -> dict[str, Any]:
    """Fit Dawid-Skene, timing every M-step; keep the first rows of the posterior."""
    from manyhands import DawidSkene
    from manyhands.inference import confusions

    times: list[tuple[float, float]] = []
    plain = confusions.m_step

    def timed(*args: Any, **kwargs: Any) -> Any:
        times.append((time.perf_counter(), time.process_time()))
        return plain(*args, **kwargs)

    timing = mock.patch.object(confusions, "m_step", timed)
    with timing, parts_timed() as parts, spent() as whole:
        model = DawidSkene(**options).fit(annotations_)
    rounds = np.diff(np.array(times), axis=0)
    head = np.asarray(model.posterior_[: E7 // PER_INSTANCE])
    np.save(out, head)
    if options.items() >= SHORT.items():
        fitted = model._model
        np.savez(out.with_suffix(".npz"), prior=fitted.prior, responses=fitted.responses)
    wall, cpu = np.median(rounds, axis=0).tolist() if len(rounds) else (None, None)
    truth = mixed(np.arange(len(head)) + 7 * E8) % np.uint64(CLASSES)
    labels = np.asarray(model.labels_[: len(head)])
    return {
        "cpu": whole["cpu"],
        "wall": whole["wall"],
        "cpu_per_iteration": cpu,
        "wall_per_iteration": wall,
        "parts": parts,
        "n_iter": model.n_iter_,
        "n_subtypes": model.n_subtypes_,
        "rho": model.dependence_,
        "accuracy": float((labels == truth).mean()),
        "labels": hashlib.sha256(labels.astype(np.int64).tobytes()).hexdigest()[:16],
    }


@contextmanager
def parts_timed() -> Iterator[dict[str, list[float]]]:
    """CPU seconds of the parts of a fit, a figure per call."""
    from manyhands.inference import dawid_skene
    from manyhands.inference.confusion_em import ConfusionEM

    parts: dict[str, list[float]] = {}

    def timed(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            found = plain(*args, **options)
            parts.setdefault(name, []).append(time.process_time() - start)
            return found

        return run

    model = dawid_skene.DawidSkene
    with (
        mock.patch.object(ConfusionEM, "run", timed("EM", ConfusionEM.run)),
        mock.patch.object(dawid_skene, "estimate", timed("dependence", dawid_skene.estimate)),
        mock.patch.object(model, "_read_out", timed("posterior", model._read_out)),
    ):
        yield parts


def in_child(name: str, work: Path) -> dict[str, Any]:
    """Measure one cell here."""
    kind, size, *how = name.split("-")
    if kind == "compare":
        return compare_prefix(work, how[0]) if size == "prefix" else compare(work, *PAIRS[size])
    if kind == "real":
        return real(how, work / f"store-{name}", work / f"{name}.npy")
    m, annotators = SIZES[size]
    files, store = work / f"files-{size}", work / f"store-{size}"
    if kind == "generate" and size == "export":
        return generate_export(work / "export.json", m, annotators)
    if kind == "generate":
        return generate(files, m, annotators)
    if kind == "ingest":
        from manyhands.scale.ingest import ingest

        limit_data()
        shutil.rmtree(store, ignore_errors=True)
        paths = [work / "export.json"] if size == "export" else sorted(files.glob("*.parquet"))
        ingest(paths, store, memory=2**30)
        return {"bytes": sum(p.stat().st_size for p in store.rglob("*") if p.is_file())}
    options = {**(PLAIN if "plain" in how else {}), **(TIMED if "timed" in how else {})}
    options |= SHORT if "short" in how else {}
    place = work / f"{name}.npy"
    if kind == "memory":
        import numpy as np

        from manyhands import AnnotationTable

        columns = annotations(np.arange(m), annotators)
        table = AnnotationTable.from_arrays(*columns, n_annotators=annotators, duplicates="keep")
        del columns
        return fit(table, options, place)
    from manyhands import AnnotationStore

    limit_data()
    return fit(AnnotationStore.open(store), options, place)


def real(how: list[str], store: Path, place: Path) -> dict[str, Any]:
    """Fit three copies of CIFAR-10H, with 5 % of the labels replaced at random.

    Each copy of an image is an instance of its own.
    """
    from manyhands import AnnotationStore, AnnotationTable
    from manyhands.datasets import load_cifar10h

    table, rng = load_cifar10h().annotations, np.random.default_rng(0)
    n, m = table.n_instances, table.n_annotations
    label = np.tile(table.label, COPIES)
    noisy = rng.random(len(label)) < 0.05
    label[noisy] = rng.integers(0, table.n_classes, noisy.sum())
    instance = np.tile(table.instance, COPIES) + np.repeat(np.arange(COPIES) * n, m)
    annotator = np.tile(table.annotator, COPIES)
    copies = AnnotationTable.from_arrays(
        instance, annotator, label, classes=range(table.n_classes), n_instances=COPIES * n
    )
    options = TWENTY if "twenty" in how else PLAIN if "plain" in how else {}
    source: Any = copies
    if "memory" not in how:
        shutil.rmtree(store, ignore_errors=True)
        source = AnnotationStore.create(store, copies, shard_annotations=200_000)
    found = fit(source, options, place)
    del found["accuracy"]  # It is that of synthetic truths.
    return found


PAIRS = {
    "1e7": ("memory-1e7-plain-timed", "store-1e7-plain-timed"),
    "real": ("real-cifar10h-memory-default", "real-cifar10h-store-default"),
}


def compare(work: Path, one: str, other: str) -> dict[str, Any]:
    """Largest difference of two posteriors that were kept."""
    first, second = np.load(work / f"{one}.npy"), np.load(work / f"{other}.npy")
    return {"difference": float(np.abs(first - second).max()), "instances": len(first)}


def compare_prefix(work: Path, size: str) -> dict[str, Any]:
    """Compare what the store streamed with the E-step of its first instances in memory.

    Both have the parameters that the fit of the whole store ended with.
    """
    from manyhands import AnnotationTable
    from manyhands.inference.confusions import ConfusionParams
    from manyhands.inference.votes import make_votes

    place = work / f"store-{size}-plain-short"
    streamed = np.load(place.with_suffix(".npy"))
    fitted = ConfusionParams(**np.load(place.with_suffix(".npz")))
    annotators = SIZES[size][1]
    columns = annotations(np.arange(len(streamed) * PER_INSTANCE), annotators)
    table = AnnotationTable.from_arrays(*columns, n_annotators=annotators, duplicates="keep")
    found = fitted.posterior(make_votes(table))
    return {"difference": float(np.abs(found - streamed).max()), "instances": len(found)}


def limit_data() -> None:
    """Let this process allocate 2 GiB and no more."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


CELLS = (
    *("generate-1e7", "ingest-1e7", "memory-1e7-plain-timed", "store-1e7-plain-timed"),
    *("compare-1e7", "store-1e7-plain", "store-1e7-default", "real-cifar10h-memory-default"),
    *("real-cifar10h-store-default", "real-cifar10h-store-plain", "real-cifar10h-store-twenty"),
    *("compare-real", "generate-1e8", "ingest-1e8", "store-1e8-plain-timed"),
    *("store-1e8-default-timed", "store-1e8-plain-short", "compare-prefix-1e8"),
    *("generate-export", "ingest-export", "generate-million", "ingest-million"),
    "store-million-plain-timed",
)


def per_second(record: dict[str, Any]) -> float | None:
    """Annotations per CPU second."""
    kind, size, *_ = record["name"].split("-")
    if size not in SIZES or kind == "generate":
        return None
    return SIZES[size][0] / record.get("cpu_per_iteration", record["process_cpu"])


TARGET = 1.5
"""The most that the default may cost, as a multiple of 20 iterations of the published model."""

DOLLARS, CORES, ROUNDS_ON_PAPER, GBIT = 0.05, 64, 20, 10
"""Assumptions: price of a core for an hour, cores, iterations, and each machine's network."""


def status_of(pid: int | str) -> dict[str, int]:
    """Bytes of memory of a process: anonymous now, and all resident pages at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return {key: int(found[key].split()[0]) * 1024 for key in ("RssAnon", "VmHWM")}


def measure(name: str) -> Record:
    """Measure a cell in a child, watching its memory."""
    call = f"from benchmarks.out_of_core import child; child({name!r})"
    load = os.getloadavg()[0]
    command = [sys.executable, "-c", call]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HOME)
    most = {"RssAnon": 0, "VmHWM": 0}

    def watch() -> None:
        while child.poll() is None:
            try:
                now = status_of(child.pid)
            except (OSError, KeyError):
                break
            most.update({key: max(most[key], now[key]) for key in most})
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    text, _ = child.communicate()
    watcher.join()
    if child.returncode:
        raise SystemExit(f"{name} failed")
    return {
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "process_wall": time.perf_counter() - start,
        "peak_anonymous": most["RssAnon"],
        "peak_resident": most["VmHWM"],
        **json.loads(text.splitlines()[-1]),
    }


def child(name: str) -> None:
    """Measure one cell here, and print it."""
    found = in_child(name, workspace("out_of_core"))
    print(json.dumps(found | {"process_cpu": time.process_time()}))


# -- the page -------------------------------------------------------------------------------------


def page(measured: list[Record]) -> dict[str, Any]:
    """Write the latest measurements, and what follows for larger tables."""
    records = {record["name"]: record for record in measured}

    def figure(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    runs = [r for name, r in records.items() if not name.startswith("compare")]
    found: dict[str, Any] = {"runs": listing(runs, {
        "run": "{name}",
        "date": "{date}",
        "load": "{load[0]} to {load[1]}",
        "CPU": "{process_cpu:.1f}",
        "wall": "{process_wall:.1f}",
        "CPU per iteration": lambda r: figure(r.get("cpu_per_iteration"), ".2f"),
        "annotations per CPU second": lambda r: figure(per_second(r), ",.0f"),
        "iterations": lambda r: figure(r.get("n_iter"), "d"),
        "anonymous, MiB": lambda r: f"{r['peak_anonymous'] / 2**20:,.0f}",
        "resident, MiB": lambda r: f"{r['peak_resident'] / 2**20:,.0f}",
        "digest of labels": lambda r: r.get("labels", ""),
    })}  # fmt: skip
    if set(records) >= set(CELLS):
        found |= findings(records) | {"paper": on_paper(measured)}
    return found


def findings(records: dict[str, Record]) -> dict[str, Any]:
    """Ratios of what was measured, and differences of posteriors."""

    def ratio(one: str, other: str, key: str = "cpu") -> float:
        return float(records[one][key] / records[other][key])

    timed, default = records["store-1e8-plain-timed"], "real-cifar10h-store-default"
    limited = [r for name, r in records.items() if name.split("-")[0] in ("ingest", "store")]
    most = max(limited, key=lambda r: r["peak_resident"])
    parts, plain = records[default]["parts"], records["real-cifar10h-store-plain"]["cpu"]
    twenty = ratio(default, "real-cifar10h-store-twenty")
    return {
        "iteration": ratio("store-1e7-plain-timed", "memory-1e7-plain-timed", "cpu_per_iteration"),
        "timed": timed,
        "speed": {k: E8 / timed[f"{k}_per_iteration"] for k in ("cpu", "wall")},
        "most": {"mib": most["peak_resident"] / 2**20, "name": most["name"]},
        "default": {
            "e7": ratio("store-1e7-default", "store-1e7-plain"),
            "e8": ratio("store-1e8-default-timed", "store-1e8-plain-timed"),
            "real": ratio(default, "real-cifar10h-store-plain"),
            "twenty": twenty,
        },
        "target": {"times": TARGET, "is": "missed" if twenty > TARGET else "met"},
        "em": [seconds / plain for seconds in parts["EM"]],
        "share": {name: sum(parts[name]) / plain for name in ("dependence", "posterior")},
        "same": [records[f"compare-{name}"] for name in ("1e7", "real", "prefix-1e8")],
    }


def on_paper(measured: list[Record]) -> dict[str, Any]:
    """1e10 annotations of 1e8 instances by 1e6 annotators, from measurements under little load."""
    timed = quietest(measured, {"store-1e7-plain-timed", "store-1e8-plain-timed"})
    ingested = quietest(measured, {"ingest-1e7", "ingest-1e8"})
    m, n, annotators = 1e10, 1e8, 1e6
    done, stored = (SIZES[r["name"].split("-")[1]][0] for r in (timed, ingested))
    second, byte = timed["cpu_per_iteration"] / done, ingested["bytes"] / stored
    ingest = ingested["process_cpu"] / stored
    counts, machines = annotators * CLASSES * CLASSES * 8, CORES // 16
    seconds, traffic = m * second / CORES, 2 * counts * 8 / (GBIT * 1e9)
    hours = (ROUNDS_ON_PAPER * m * second + m * ingest) / 3600
    return {
        "classes": CLASSES, "rounds": ROUNDS_ON_PAPER, "cores": CORES, "machines": machines,
        "gbit": GBIT, "price": DOLLARS, "timed": told(timed), "ingested": told(ingested),
        "m": m, "n": n, "annotators": annotators, "byte": byte, "store": m * byte / 1e9,
        "posteriors": n * CLASSES * 8 / 1e9, "ingest": ingest * 1e6,
        "ingest_hours": m * ingest / 3600, "second": second * 1e6, "work": m * second,
        "seconds": seconds, "counts": counts / 1e6, "traffic": traffic,
        "iteration": seconds + traffic, "minutes": ROUNDS_ON_PAPER * (seconds + traffic) / 60,
        "hours": hours, "dollars": hours * DOLLARS,
    }  # fmt: skip


def quietest(measured: list[Record], names: set[str]) -> Record:
    """Record of one of these names that was made under the least load."""
    return min((r for r in measured if r["name"] in names), key=lambda r: max(r["load"]))


def told(record: Record) -> str:
    """Name, date and load of a record."""
    return "{} of {}, load {} to {}".format(record["name"], record["date"], *record["load"])


def drawing(page: str) -> str:
    """Draw the most resident memory of processes that read, or fit what lies on a disk."""
    runs = {
        "reading 10 million annotations": "ingest-1e7",
        "reading 100 million": "ingest-1e8",
        "fitting 10 million": "store-1e7-default",
        "fitting 100 million": "store-1e8-default-timed",
        "fitting, a million annotators": "store-million-plain-timed",
    }
    memory = {
        row["run"]: numbers_in(row["resident, MiB"])[0] for row in read_rows(page, "Out of core")
    }
    rows = [Row(name, {"resident": memory[run]}, (0, memory[run])) for name, run in runs.items()]
    return dots("Most memory in MiB; the dashed line is 2 GiB", rows, target=2048, digits=0)


STUDY = Study(
    __file__,
    lambda: grid(name=CELLS),
    measure,
    page,
    repeats=True,
    data=lambda cell: ["cifar10h"] if "real" in cell["name"] else [],
    page_drawings=lambda page: {"out_of_core-memory.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
