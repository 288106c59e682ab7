"""Dawid-Skene on dask.distributed and Spark: equality, lost workers, lost clients, speed.

It needs the extras ``cluster`` and ``spark``, and half a gigabyte of disk.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar, bars
from evidence.study import ROOT, Study, grid, workspace
from evidence.tables import Record, listing
from manyhands import AnnotationStore, AnnotationTable, DawidSkene
from manyhands.inference.checkpoints import FolderCheckpoint

SIZES = {"speed": 10_000_000, "dask": 2_000_000, "spark": 200_000}
"""Annotations of the tables: that of dask's speed, and those that workers are killed on."""

ROUNDS = {"speed": 6, "dask": 8, "spark": 4}
ALLOCATION = {
    "MALLOC_TRIM_THRESHOLD_": 2**30,
    "MALLOC_MMAP_THRESHOLD_": 2**30,
    "OMP_NUM_THREADS": 1,
}
"""Environment of dask's workers."""


def synthetic(m: int) -> AnnotationTable:
    """Five annotations of each instance by 20,000 annotators, 10 classes."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 10, m // 5)
    instance = np.repeat(np.arange(m // 5), 5)
    skill = rng.uniform(0.35, 0.95, 20_000)
    annotator = (rng.integers(0, 20_000, m // 5)[:, None] + np.arange(5) * 3989).ravel() % 20_000
    right = rng.random(m) < skill[annotator]
    label = np.where(right, truth[instance], rng.integers(0, 10, m))
    return AnnotationTable.from_arrays(instance, annotator, label)


def real() -> AnnotationTable:
    """CIFAR-10H twice; the second time, one label in ten is drawn at random."""
    from manyhands.datasets import load_cifar10h

    table = load_cifar10h().annotations
    rng = np.random.default_rng(0)
    noisy = np.where(
        rng.random(table.n_annotations) < 0.1,
        rng.integers(0, table.n_classes, table.n_annotations),
        table.label,
    )
    return AnnotationTable.from_arrays(
        np.concatenate([table.instance, table.instance + table.n_instances]),
        np.concatenate([table.annotator, table.annotator]),
        np.concatenate([table.label, noisy]),
    )


def store_of(work: Path, name: str) -> AnnotationStore:
    """Open the store of a cell, made if it is missing."""
    folder = work / f"store-{name}"
    if not (folder / "manifest.json").exists():
        table = real() if name == "real" else synthetic(SIZES[name])
        AnnotationStore.create(folder, table, shard_annotations=table.n_annotations // 16)
    return AnnotationStore.open(folder)


def model(engine: str) -> DawidSkene:
    """Return plain iterations of a fixed number."""
    return DawidSkene(
        max_iter=ROUNDS[engine], tol=0.0, accelerate=False, dependence=0, n_subtypes=1
    )


def difference(found: Any, expected: Any) -> float:
    """Greatest difference of posteriors."""
    return float(np.abs(np.asarray(found.posterior_) - np.asarray(expected.posterior_)).max())


# -- clusters -------------------------------------------------------------------------------------


def dask_cluster() -> Any:
    """Start two worker processes, which keep the memory that they free (docs/big_tables.md)."""
    from dask import config
    from distributed import LocalCluster

    config.set({"distributed.nanny.pre-spawn-environ": ALLOCATION})
    return LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )


@contextmanager
def dask_client() -> Iterator[Any]:
    """Connect to two worker processes."""
    from distributed import Client

    with dask_cluster() as cluster, Client(cluster) as client:
        yield client


@contextmanager
def spark_session() -> Iterator[Any]:
    """Start two executors, each with one core, in processes of their own."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Else workers take any python3.
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.executor.memory": "1g",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def executors() -> list[int]:
    """Process ids of Spark's executors below this process."""
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # A zombie is one of these, too.
            if any("ExecutorBackend" in word for word in process.cmdline()):
                found.append(process.pid)
    return found


class Saves:
    """Counts the iterations that a fit saved, and acts after some of them."""

    def __init__(self, after: int = -1, act: Any = None) -> None:
        self.after, self.act, self.times = after, act, list[float]()
        self.pids, self.cpu = [os.getpid()], list[list[float]]()
        self.plain = FolderCheckpoint.save

    def __enter__(self) -> Saves:
        def save(checkpoint: FolderCheckpoint, stage: str, **state: Any) -> None:
            self.plain(checkpoint, stage, **state)
            self.times.append(time.perf_counter())
            self.cpu.append([cpu_of(pid) for pid in self.pids])
            if len(self.times) == self.after:
                # In the middle of the next iteration, which takes about as long as the last one.
                wait = 0.5 * (self.times[-1] - self.times[-2])
                threading.Timer(wait, self.act).start()

        FolderCheckpoint.save = save  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        FolderCheckpoint.save = self.plain  # type: ignore[method-assign]

    @property
    def seconds(self) -> list[float]:
        """Seconds between saved iterations."""
        return np.diff(self.times).round(3).tolist()

    @property
    def cpu_seconds(self) -> list[float]:
        """CPU seconds per iteration of each watched process."""
        return np.diff(self.cpu, axis=0).mean(axis=0).round(3).tolist()


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    import psutil

    try:
        used = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:  # It was killed.
        return float("nan")
    return float(used.user + used.system)


# -- cells ----------------------------------------------------------------------------------------


def fitted(work: Path, name: str, engine: Any) -> DawidSkene:
    """Fit with a checkpoint."""
    place = work / f"checkpoint-{name}-{'here' if engine is None else 'cluster'}"
    shutil.rmtree(place, ignore_errors=True)
    return model(name).fit(store_of(work, name), engine=engine, checkpoint=place)


def measure_dask(work: Path) -> Record:
    """Time one process and two workers."""
    with Saves() as alone:
        expected = fitted(work, "speed", None)
    with dask_client() as client, Saves() as both:
        both.pids += sorted(client.run(os.getpid).values())
        found = fitted(work, "speed", client)
    cpu = {"one_process": alone.cpu_seconds, "client and workers": both.cpu_seconds}
    seconds = {"one_process": alone.seconds, "cluster": both.seconds, "cpu": cpu}
    return {"difference": difference(found, expected), **seconds}


def measure_spark(work: Path) -> Record:
    """Time one process and two executors."""
    with Saves() as alone:
        expected = fitted(work, "spark", None)
    with spark_session() as session, Saves() as both:
        found = fitted(work, "spark", session)
    seconds = {"one_process": alone.seconds, "cluster": both.seconds}
    return {"difference": difference(found, expected), **seconds}


def killed(
    work: Path, name: str, engine: Any, after: int, alive: Callable[[], list[int]]
) -> Record:
    """Kill the first process of some in the middle of an iteration."""
    expected = model(name).fit(store_of(work, name))
    pid = sorted(alive())[0]
    with Saves(after, lambda: os.kill(pid, signal.SIGKILL)) as saves:
        found = fitted(work, name, engine)
    gap = difference(found, expected)
    return {"difference": gap, "cluster": saves.seconds, "lost": pid not in alive()}


def measure_dask_killed(work: Path) -> Record:
    """Kill a worker in the middle of the fourth iteration."""
    with dask_client() as client:
        return killed(work, "dask", client, 3, lambda: [*client.run(os.getpid).values()])


def measure_spark_killed(work: Path) -> Record:
    """Kill an executor in the middle of the third iteration."""
    with spark_session() as session:
        return killed(work, "spark", session, 2, executors)


def measure_real(work: Path, cluster: Any) -> Record:
    """Compare the default Dawid-Skene of a real table in memory, in a store, and on a cluster."""
    seconds, models = {}, {}
    table, store = real(), store_of(work, "real")
    with cluster() as engine:
        given = {"memory": (table, None), "store": (store, None), "cluster": (store, engine)}
        for name, (source, own) in given.items():
            start = time.perf_counter()
            models[name] = DawidSkene().fit(source, **({} if own is None else {"engine": own}))
            seconds[name] = round(time.perf_counter() - start, 1)
    first = models["memory"]
    return {
        "difference": max(difference(m, first) for m in models.values()),
        "same_labels": all(bool((m.labels_ == first.labels_).all()) for m in models.values()),
        "seconds": seconds,
        "annotations": table.n_annotations,
        "n_iter": first.n_iter_,
    }


def outcome(record: dict[str, Any]) -> str:
    """Return the content of a record in words."""
    words = [f"greatest difference of a probability {record['difference']:.0e}"]
    if "same_labels" in record:
        count, total = f"{record['annotations']:,}", record["seconds"]
        words.append("all labels equal" if record["same_labels"] else "**labels differ**")
        words.append(f"{count} annotations; " + ", ".join(f"{k} {v} s" for k, v in total.items()))
    if "lost" in record:
        words.append("process gone" if record["lost"] else "**process alive**")
    if "saved" in record:
        words.append(f"client killed by signal {record['signal']}, {record['saved']} saved")
    for key, name in (("one_process", "one process"), ("cluster", "cluster")):
        if key in record:
            words.append(f"{name} {np.median(record[key]):.2f} s per iteration")
    if "one_process" in record:
        ratio = np.median(record["one_process"]) / np.median(record["cluster"])
        words.append(f"speed-up {ratio:.2f}")
        if "cpu" in record:
            alone, (client, *workers) = record["cpu"].values()
            words.append(
                f"CPU seconds per iteration: one process {alone[0]:.2f}; client and scheduler "
                f"{client:.2f}, workers {' and '.join(f'{used:.2f}' for used in workers)}"
            )
    elif "cluster" in record:
        words.append(f"longest iteration {max(record['cluster']):.1f} s")
    return "; ".join(words)


def measure_dask_client(work: Path) -> Record:
    """Kill the client in the middle of the fourth iteration, and start it again."""
    expected = model("dask").fit(store_of(work, "dask"))
    shutil.rmtree(work / "client", ignore_errors=True)
    with dask_cluster() as cluster:
        call = f"from benchmarks.clusters import be_client; be_client({cluster.scheduler_address!r}"
        first = subprocess.run([sys.executable, "-c", f"{call}, True)"], check=False, cwd=ROOT)
        saved = np.load(work / "client" / "subtypes-1.npz")["history"]
        subprocess.run([sys.executable, "-c", f"{call}, False)"], check=True, cwd=ROOT)
    found = np.load(work / "client.npy")
    gap = float(np.abs(found - np.asarray(expected.posterior_)).max())
    return {"difference": gap, "signal": -first.returncode, "saved": len(saved)}


def be_client(address: str, dies: bool) -> None:
    """Fit as a client of its own, which may kill itself."""
    from distributed import Client

    work = workspace("clusters")
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    with Client(address) as client, Saves(3 if dies else -1, die):
        found = model("dask").fit(store_of(work, "dask"), engine=client, checkpoint=work / "client")
    np.save(work / "client.npy", np.asarray(found.posterior_))


CELLS: dict[str, Callable[[Path], Record]] = {
    "dask": measure_dask,
    "dask-killed": measure_dask_killed,
    "dask-client": measure_dask_client,
    "spark": measure_spark,
    "spark-killed": measure_spark_killed,
    "real-dask": partial(measure_real, cluster=dask_client),
    "real-spark": partial(measure_real, cluster=spark_session),
}


def measure(cell: str) -> Record:
    """Measure, and look at the machine's load before and after."""
    before = os.getloadavg()[0]
    found = CELLS[cell](workspace("clusters"))
    load = [round(before, 1), round(os.getloadavg()[0], 1)]
    return {"cores": os.cpu_count(), "load": load, **found}


def drawing(records: list[Record]) -> str:
    """Draw the seconds of an iteration, on one process and on two."""
    rows = []
    for record in records:
        if "one_process" in record and "cluster" in record:
            size = f"{record['annotations']:,}" if "annotations" in record else ""
            for kind, name in (("one_process", "one process"), ("cluster", "two workers")):
                seconds = float(np.median(record[kind]))
                title = f"{record['cell']}{size and ' '}{size}, {name}"
                rows.append(Bar(title, seconds, f"{seconds:.2f} s", kind == "cluster"))
    return bars("Seconds per iteration of Dawid-Skene", rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Write the page: the result of each cell."""
    found = {r["cell"]: r for r in records}
    ratio = {
        name: float(np.median(found[name]["one_process"]) / np.median(found[name]["cluster"]))
        for name in ("dask", "spark")
        if name in found
    }
    told = {
        "difference": max(record["difference"] for record in records),
        **({"dask": ratio["dask"]} if "dask" in ratio else {}),
        **({"spark": 1 / ratio["spark"]} if "spark" in ratio else {}),
    }
    return told | {"outcomes": listing((found[cell] for cell in CELLS if cell in found), {
        "Cell": "{cell}",
        "Outcome": outcome,
        "Load before/after, cores": "{load[0]:.0f}/{load[1]:.0f}, {cores}",
        "Date": "{date}",
    })}  # fmt: skip


STUDY = Study(
    __file__,
    lambda: grid(cell=CELLS),
    measure,
    page,
    drawings=lambda records: {"clusters-seconds.svg": drawing(records)},
    data=lambda cell: ["cifar10h"] if "real" in cell["cell"] else [],
)


if __name__ == "__main__":
    STUDY.main()
