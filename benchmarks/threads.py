"""Whether threads over the shards of `DawidSkene` in memory shorten a fit, and with which shards.

numpy and scipy release the interpreter's lock inside their loops, so two threads may count two
shards at once. Counts are added in the order of the shards whoever made them, so that the bits of a
fit do not depend on the number of threads. Every fit runs in a process of its own, whose linear
algebra has one thread.

Wall seconds of two threads mean little while other programs have the processors: then two threads
get twice the share of one. ``path`` is the time that a machine with nothing else to do needs at
least: the CPU seconds of the calling thread and those of the busiest worker, one after the other.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np

from evidence.study import Study, grid, spent
from evidence.tables import Record, days, groups, listing
from manyhands import AnnotationTable, DawidSkene
from manyhands.inference import votes as votes_module
from manyhands.inference.votes import ShardsInMemory, total

ANNOTATORS, PER_INSTANCE, CLASSES = 1_000, 5, 10
DEFAULT = 0
"""Stands for the size that shards have by default, which grows with the confusion matrices."""

SHARDS = (DEFAULT, 100_000, 25_000)
TURNS = {1_000_000: 5, 10_000_000: 3}


def crowd(n: int) -> AnnotationTable:
    """Make n annotations, five per instance, by a thousand annotators of different skill."""
    rng = np.random.default_rng(0)
    n_instances = n // PER_INSTANCE
    y = rng.integers(CLASSES, size=n_instances)
    instance = np.repeat(np.arange(n_instances, dtype=np.int32), PER_INSTANCE)
    first = np.repeat(rng.integers(ANNOTATORS, size=n_instances), PER_INSTANCE)
    annotator = (first + np.tile(np.arange(PER_INSTANCE) * 197, n_instances)) % ANNOTATORS
    right = rng.random(n) < rng.uniform(0.4, 0.95, ANNOTATORS)[annotator]
    label = np.where(right, y[instance], rng.integers(CLASSES, size=n))
    sizes = {"n_instances": n_instances, "n_annotators": ANNOTATORS, "classes": range(CLASSES)}
    return AnnotationTable.from_arrays(instance, annotator, label, **sizes)


class Pool:
    """Threads that call functions, a few calls ahead of who takes the results in order."""

    def __init__(self, n: int) -> None:
        self.n, self.executor = n, ThreadPoolExecutor(n)
        self.cpu: dict[int, float] = {}
        """CPU seconds of each thread within calls."""

    def ahead(self, calls: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """Yield the results of calls in their order."""
        waiting: deque[Future[Any]] = deque()
        for call in calls:
            waiting.append(self.executor.submit(self._timed, call))
            if len(waiting) > self.n + 1:  # Some wait, and results do not pile up.
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _timed(self, call: Callable[[], Any]) -> Any:
        before = time.thread_time()
        try:
            return call()
        finally:
            me = threading.get_ident()
            self.cpu[me] = self.cpu.get(me, 0.0) + time.thread_time() - before

    def sum(
        self,
        shards: ShardsInMemory,
        count: Callable[..., Any],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
        **options: Any,
    ) -> Any:
        """Stand for `Shards.sum`."""
        calls = (
            lambda part=part: count(*part, *parameters, **options)
            for _, *part in shards.with_rows(rows)
        )
        return total(self.ahead(calls))

    def fill(
        self,
        shards: ShardsInMemory,
        out: Any,
        rows_of: Callable[..., Any],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
    ) -> None:
        """Stand for `Shards.fill`."""

        def one(place: slice, part: list[Any]) -> None:
            out[place] = rows_of(*part, *parameters)

        calls = (
            lambda place=place, part=part: one(place, part)
            for place, *part in shards.with_rows(rows)
        )
        for _ in self.ahead(calls):
            pass


def measure(n: int, shard: int, threads: int, turn: int) -> Record:
    """Fit the default Dawid-Skene, in this process; ``turn`` numbers the repetitions."""
    table = crowd(n)
    DawidSkene().fit(table.select(instances=np.arange(1_000)))  # Modules are loaded.
    pool = Pool(threads)
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        if shard != DEFAULT:
            stack.enter_context(mock.patch.object(votes_module, "grown", return_value=shard))
        if threads > 1:
            for name in ("sum", "fill"):
                method = getattr(pool, name)
                own = lambda self, *args, method=method, **more: method(self, *args, **more)  # noqa: E731
                stack.enter_context(mock.patch.object(ShardsInMemory, name, own))
        before = time.thread_time()
        with spent() as cost:
            model = DawidSkene().fit(table)
        path = time.thread_time() - before + max(pool.cpu.values(), default=0.0)
        n_shards = len(votes_module.make_votes(table).shards())
    return {
        **cost,
        "path": path,
        "load": load,
        "cores": os.cpu_count(),
        "shards": n_shards,
        "n_iter": model.n_iter_,
        "bits": hashlib.sha256(model.posterior_.tobytes()).hexdigest()[:12],
    }


def cells() -> Iterator[Record]:
    """Yield the fits; turns go round all of them, so that a busy hour hits each."""
    for n, turns in TURNS.items():
        yield from grid(turn=range(turns), n=[n], shard=SHARDS, threads=(1, 2))


def _middle(records: Sequence[Record], name: str) -> float:
    return statistics.median(record[name] for record in records)


def _median(records: Sequence[Record], name: str) -> str:
    values = sorted(record[name] for record in records)
    return f"{_middle(records, name):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def page(records: Sequence[Record]) -> dict[str, Any]:
    """Make the values of the page."""
    by_case = groups(records, "n", "shard", "threads")
    rows = [{"case": case, "records": found} for case, found in by_case.items()]
    same = {
        (n, shard): len({r["bits"] for r in records if (r["n"], r["shard"]) == (n, shard)}) == 1
        for n, shard, _ in by_case
    }
    lines = listing(
        rows,
        {
            "annotations": lambda row: f"{row['case'][0]:,}",
            "shard": lambda row: f"{row['case'][1]:,}" if row["case"][1] else "default",
            "shards": lambda row: row["records"][0]["shards"],
            "threads": lambda row: row["case"][2],
            "CPU s": lambda row: _median(row["records"], "cpu"),
            "longest path, CPU s": lambda row: _median(row["records"], "path"),
            "wall s": lambda row: _median(row["records"], "wall"),
            "load": lambda row: f"{_middle(row['records'], 'load'):.1f}",
        },
    )
    told = [
        " → ".join(f"{_middle(by_case[n, DEFAULT, k], 'path'):.2f}" for k in (1, 2))
        + f" s with {n:,} annotations"
        for n in TURNS
        if {(n, DEFAULT, 1), (n, DEFAULT, 2)} <= by_case.keys()
    ]
    return {
        "times": lines,
        "paths": " and ".join(told),
        "bits": "the same" if all(same.values()) else "not the same",
        "date": days(records),
        "cores": records[0]["cores"],
    }


STUDY = Study(__file__, cells=cells, measure=measure, page=page, alone=600.0, data=lambda _: [])


if __name__ == "__main__":
    STUDY.main()
