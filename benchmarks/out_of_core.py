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

from evidence.study import ROOT as HOME
from evidence.study import Record, Study, table, workspace

E7, E8 = 10**7, 10**8
PER_INSTANCE, CLASSES = 5, 10
SIZES = {
    "1e7": (E7, 100_000),
    "1e8": (E8, 100_000),
    "export": (E7 // 2, 100_000),
    "million": (E7, 1_000_000),
}
"""Annotations and annotators of the synthetic tables."""

LIMIT = 2 * 2**30
ROUNDS = 6
"""Iterations of the timed runs, without acceleration, so that each is one pass."""

COPIES = 3
"""Copies of the real table, which has half a million annotations."""

PLAIN = {"dependence": 0, "n_subtypes": 1}
TWENTY = {
    "max_iter": 20,
    "tol": 0.0,
    "confusion_prior": None,
    "dependence": 0,
    "n_subtypes": 1,
    "accelerate": False,
}
"""The published model with 20 iterations, by which `inference_speed.py` and `costs.py` measure."""
TIMED = {"max_iter": ROUNDS, "tol": 0.0, "accelerate": False}
SHORT = {"max_iter": 2}
"""Of the fit whose parameters give the posterior of a prefix once more, in memory."""


# -- synthetic annotations ------------------------------------------------------------------------


def mixed(values: Any) -> Any:
    """Scramble 64-bit integers, so that annotations are a function of their number."""
    import numpy as np

    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def annotations(numbers: Any, annotators: int) -> tuple[Any, Any, Any]:
    """Instance, annotator and label of annotations; five distinct annotators per instance."""
    import numpy as np

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
    import numpy as np
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
    import numpy as np

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
    import numpy as np

    from manyhands import DawidSkene
    from manyhands.inference.confusion_em import ConfusionEM

    times: list[tuple[float, float]] = []
    plain = ConfusionEM.m_step

    def timed(*args: Any, **kwargs: Any) -> Any:
        times.append((time.perf_counter(), time.process_time()))
        return plain(*args, **kwargs)

    ConfusionEM.m_step = timed  # type: ignore[method-assign]
    with parts_timed() as parts:
        start = time.process_time(), time.perf_counter()
        model = DawidSkene(**options).fit(annotations_)
        whole = time.process_time() - start[0], time.perf_counter() - start[1]
    ConfusionEM.m_step = plain  # type: ignore[method-assign]
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
        "cpu": whole[0],
        "wall": whole[1],
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
    from unittest import mock

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
    import numpy as np

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
    import numpy as np

    first, second = np.load(work / f"{one}.npy"), np.load(work / f"{other}.npy")
    return {"difference": float(np.abs(first - second).max()), "instances": len(first)}


def compare_prefix(work: Path, size: str) -> dict[str, Any]:
    """Compare what the store streamed with the E-step of its first instances in memory.

    Both have the parameters that the fit of the whole store ended with.
    """
    import numpy as np

    from manyhands import AnnotationTable
    from manyhands.inference.confusion_em import Parameters
    from manyhands.inference.votes import make_votes

    place = work / f"store-{size}-plain-short"
    streamed = np.load(place.with_suffix(".npy"))
    fitted = Parameters(**np.load(place.with_suffix(".npz")))
    annotators = SIZES[size][1]
    columns = annotations(np.arange(len(streamed) * PER_INSTANCE), annotators)
    table = AnnotationTable.from_arrays(*columns, n_annotators=annotators, duplicates="keep")
    found = fitted.posterior(make_votes(table))
    return {"difference": float(np.abs(found - streamed).max()), "instances": len(found)}


def limit_data() -> None:
    """Let this process allocate 2 GiB and no more."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


CELLS = (
    "generate-1e7",
    "ingest-1e7",
    "memory-1e7-plain-timed",
    "store-1e7-plain-timed",
    "compare-1e7",
    "store-1e7-plain",
    "store-1e7-default",
    "real-cifar10h-memory-default",
    "real-cifar10h-store-default",
    "real-cifar10h-store-plain",
    "real-cifar10h-store-twenty",
    "compare-real",
    "generate-1e8",
    "ingest-1e8",
    "store-1e8-plain-timed",
    "store-1e8-default-timed",
    "store-1e8-plain-short",
    "compare-prefix-1e8",
    "generate-export",
    "ingest-export",
    "generate-million",
    "ingest-million",
    "store-million-plain-timed",
)


def per_second(record: dict[str, Any]) -> float | None:
    """Annotations per CPU second."""
    kind, size, *_ = record["name"].split("-")
    if size not in SIZES or kind == "generate":
        return None
    return SIZES[size][0] / record.get("cpu_per_iteration", record["process_cpu"])


def _scale(records: dict[str, dict[str, Any]]) -> list[str]:
    """What an iteration over 1e8 annotations takes, and the most memory of all."""
    lines = []
    if (timed := records.get("store-1e8-plain-timed")) is not None:
        cpu, wall = timed["cpu_per_iteration"], timed["wall_per_iteration"]
        lines.append(
            f"- An iteration over 1e8 annotations: {cpu:.1f} CPU seconds, {E8 / cpu:,.0f} "
            f"annotations per CPU second; {wall:.1f} s of wall time, {E8 / wall:,.0f} annotations "
            "per second."
        )
    limited = [r for name, r in records.items() if name.split("-")[0] in ("ingest", "store")]
    if limited:
        most = max(limited, key=lambda record: record["peak_resident"])
        lines.append(
            f"- Most resident memory of ingests, and of fits on stores: "
            f"{most['peak_resident'] / 2**20:,.0f} MiB, of {most['name']}; 2 GiB are 2,048 MiB."
        )
    return lines


TARGET = 1.5
"""The most that the default may cost, as a multiple of 20 iterations of the published model."""


def _target(default: dict[str, Any], twenty: dict[str, Any]) -> list[str]:
    """Whether the default's cost stays within the target."""
    if "cpu" not in default or "cpu" not in twenty:
        return []
    ratio = default["cpu"] / twenty["cpu"]
    verdict = "missed" if ratio > TARGET else "met"
    return [
        f"- CPU of the default fit over 20 iterations of the published model, store, CIFAR-10H: "
        f"{ratio:.2f} times. The target of {TARGET} times is {verdict}."
    ]


def _profile(default: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    """Where the default's time goes, in multiples of the plain fit."""
    if "parts" not in default or "parts" not in plain:
        return []
    own = plain["cpu"]
    first, *second = (seconds / own for seconds in default["parts"]["EM"])
    words = [f"the first EM {first:.2f}"]
    words += [
        f"{what} {sum(default['parts'].get(name, [])) / own:.2f}"
        for name, what in (("dependence", "the correlation of mistakes"), ("posterior", "the end"))
    ]
    words += [f"the second EM, of two kinds of instances per class, {each:.2f}" for each in second]
    return [
        f"- Where the default's time goes there, in multiples of the plain fit: {'; '.join(words)}."
    ]


DOLLARS, CORES, ROUNDS_ON_PAPER, GBIT = 0.05, 64, 20, 10
"""Assumptions: price of a core for an hour, cores, iterations, and each machine's network."""


def _quietest(measured: list[dict[str, Any]], names: set[str]) -> dict[str, Any] | None:
    """Record of one of these names that was made under the least load."""
    found = (record for record in measured if record["name"] in names)
    return min(found, key=lambda record: max(record["load"]), default=None)


def _said(record: dict[str, Any]) -> str:
    return "{} of {}, load {} to {}".format(record["name"], record["date"], *record["load"])


def _on_paper(measured: list[dict[str, Any]]) -> list[str]:
    """1e10 annotations of 1e8 instances by 1e6 annotators, 10 classes, from what was measured."""
    timed = _quietest(measured, {"store-1e7-plain-timed", "store-1e8-plain-timed"})
    ingested = _quietest(measured, {"ingest-1e7", "ingest-1e8"})
    if timed is None or ingested is None:
        return []
    m, n, annotators = 10**10, 10**8, 10**6
    done, stored = (SIZES[r["name"].split("-")[1]][0] for r in (timed, ingested))
    second, byte = timed["cpu_per_iteration"] / done, ingested["bytes"] / stored
    ingest = ingested["process_cpu"] / stored
    counts = annotators * CLASSES * CLASSES * 8
    machines = CORES // 16
    work = m * second
    traffic = 2 * counts * 8 / (GBIT * 1e9)
    total = (ROUNDS_ON_PAPER * work + m * ingest) / 3600
    return [
        f"One million annotators, {CLASSES} classes, {ROUNDS_ON_PAPER} iterations. Assumed, not "
        f"measured: {CORES} cores in {machines} machines with {GBIT} Gbit/s each, {DOLLARS} "
        "dollars per core-hour, counts added up within a machine before they travel, and perfect "
        "scaling. Of all measurements, those made under the least load: "
        f"{_said(timed)}; {_said(ingested)}.",
        "",
        f"- Store: {m:.0e} x {byte:.1f} bytes = {m * byte / 1e9:,.0f} GB; posteriors "
        f"{n:.0e} x {CLASSES} x 8 bytes = {n * CLASSES * 8 / 1e9:,.0f} GB.",
        f"- Ingest: {m:.0e} x {ingest * 1e6:.2f} microseconds = {m * ingest / 3600:,.1f} "
        "core-hours.",
        f"- Iteration: {m:.0e} x {second * 1e6:.2f} microseconds = {work:,.0f} core-seconds, "
        f"{work / CORES:,.0f} s on {CORES} cores.",
        f"- Counts: {annotators:.0e} x {CLASSES} x {CLASSES} x 8 bytes = {counts / 1e6:,.0f} MB; "
        f"each machine sends them and receives as many parameters, {traffic:.1f} s per iteration.",
        f"- In all: {ROUNDS_ON_PAPER} x {work / CORES + traffic:,.0f} s = "
        f"{ROUNDS_ON_PAPER * (work / CORES + traffic) / 60:,.0f} minutes of EM; with the ingest "
        f"{total:,.0f} core-hours, {total * DOLLARS:,.2f} dollars.",
        "",
    ]


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
    """What was measured last, and what follows for larger tables."""
    records = {record["name"]: record for record in measured}

    def figure(value: float | None, form: str = ".1f") -> str:
        return "" if value is None else format(value, form)

    rows = [
        [
            name, r["date"], "{} to {}".format(*r["load"]), figure(r["process_cpu"]),
            figure(r["process_wall"]), figure(r.get("cpu_per_iteration"), ".2f"),
            figure(per_second(r), ",.0f"), figure(r.get("n_iter"), "d"),
            *(figure(r[key] / 2**20, ",.0f") for key in ("peak_anonymous", "peak_resident")),
            r.get("labels", ""),
        ]
        for name, r in records.items()
        if not name.startswith("compare")
    ]  # fmt: skip
    heads = ["run", "date", "load", "CPU", "wall", "CPU per iteration"]
    heads += ["annotations per CPU second", "iterations", "anonymous, MiB", "resident, MiB"]
    found = {"runs": table([*heads, "digest of labels"], rows), "findings": findings(records)}
    return found | {"paper": _on_paper(measured)}


def findings(records: dict[str, Record]) -> list[str]:
    """Ratios of what was measured, and differences of posteriors."""
    lines: list[str] = []

    def ratio(one: str, other: str, key: str, text: str) -> None:
        if one in records and other in records:
            lines.append(f"- {text}: {records[one][key] / records[other][key]:.2f} times.")

    store, memory = "store-1e7-plain-timed", "memory-1e7-plain-timed"
    ratio(store, memory, "cpu_per_iteration", "CPU of an iteration, store over memory, 1e7")
    lines += _scale(records)
    default, plain = "real-cifar10h-store-default", "real-cifar10h-store-plain"
    over = "CPU of the default fit over the plain one, store"
    ratio("store-1e7-default", "store-1e7-plain", "cpu", f"{over}, 1e7")
    timed = "store-1e8-default-timed", "store-1e8-plain-timed"
    ratio(*timed, "cpu", "The same with a fixed number of iterations, store, 1e8")
    ratio(default, plain, "cpu", f"{over}, CIFAR-10H")
    lines += _profile(records.get(default, {}), records.get(plain, {}))
    lines += _target(records.get(default, {}), records.get("real-cifar10h-store-twenty", {}))
    for name, what in (("compare-1e7", "1e7 annotations"), ("compare-real", "CIFAR-10H")):
        if found := records.get(name):
            lines.append(
                f"- Posteriors of store and memory, {what}: largest difference "
                f"{found['difference']:.1e} over {found['instances']:,} instances."
            )
    if found := records.get("compare-prefix-1e8"):
        lines.append(
            f"- Posteriors of the first {found['instances']:,} of 2e7 instances, streamed by the "
            f"store of 1e8 annotations and computed in memory from the same parameters: largest "
            f"difference {found['difference']:.1e}."
        )
    missing = [name for name in CELLS if name not in records]
    return [*lines, *([f"- Not measured yet: {', '.join(missing)}."] if missing else [])]


STUDY = Study(
    __file__,
    lambda: ({"name": name} for name in CELLS),
    measure,
    page,
    data=lambda cell: ["cifar10h"] if "real" in cell["name"] else [],
)


if __name__ == "__main__":
    STUDY.main()
