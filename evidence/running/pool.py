"""The pool of worker processes: it hands out cells, collects outcomes, replaces dead workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.connection import wait

from evidence.experiments.papers import paper_of
from evidence.records.records import Record
from evidence.records.store import write_record
from evidence.running.plan import (
    BUSY,
    COMPARE,
    Cell,
    Job,
    Outcome,
    ProgressListener,
    check_positive,
)
from evidence.running.worker import work
from manyhands.files import check_writable

PAUSE = 1.0
"""Seconds between attempts at cells that another command is running."""

_ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)


class _Worker:
    """A process that runs one cell after another."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, job))
        self.process.start()
        # With this end open here, the death of the process would not close the pipe.
        theirs.close()
        self.cell: Cell | None = None
        self.since, self.started = 0.0, datetime.now(UTC)

    def take(self, cell: Cell) -> None:
        self.cell, self.since, self.started = cell, time.perf_counter(), datetime.now(UTC)
        # If the process is already dead, `hear` reports it.
        with suppress(OSError):
            self.connection.send(cell)

    def hear(self) -> Outcome | None:
        """Return the outcome; None if the process died while it ran the cell."""
        self.cell = None
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_cells(
    cells: Sequence[Cell], job: Job, jobs: int | None, progress: ProgressListener
) -> list[Outcome]:
    """Run cells in ``jobs`` processes (default: one per core); return outcomes in cell order."""
    check_positive(jobs=jobs)
    check_writable(job.results)
    progress.begin(len(cells))
    outcomes: dict[tuple[str, int], Outcome] = {}
    with _workers(min(jobs or _n_cores(), len(cells)), job) as workers:
        waiting, busy = list(cells), list[Cell]()
        looked = time.monotonic()
        while len(outcomes) < len(cells):
            if busy and not waiting and time.monotonic() - looked >= PAUSE:
                waiting, busy, looked = busy, [], time.monotonic()
            for worker in workers:
                if worker.cell is None and waiting:
                    progress.start(waiting[0])
                    worker.take(waiting.pop(0))
            for i, worker, cell in _ready(workers):
                outcome = worker.hear()
                if outcome is None:
                    outcome = _record_death(cell, worker, job)
                    workers[i] = _Worker(job)
                if outcome.status == BUSY:
                    busy.append(cell)
                    progress.pause(cell)
                    continue
                outcomes[cell.row.id, cell.seed] = outcome
                progress.end(outcome)
    return [outcomes[cell.row.id, cell.seed] for cell in cells]


def _ready(workers: Sequence[_Worker]) -> list[tuple[int, _Worker, Cell]]:
    """Wait, for `PAUSE` seconds at most; return the workers that sent an outcome or died."""
    working = [worker for worker in workers if worker.cell is not None]
    if not working:
        time.sleep(PAUSE / 10)
    heard = wait([worker.connection for worker in working], timeout=PAUSE) if working else []
    return [
        (i, worker, worker.cell)
        for i, worker in enumerate(workers)
        if worker.connection in heard and worker.cell is not None
    ]


@contextmanager
def _workers(n: int, job: Job) -> Iterator[list[_Worker]]:
    """Start processes of one thread each; stop all of them when the block ends in any way."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    workers: list[_Worker] = []
    try:
        # Processes that later replace dead ones inherit this too.
        os.environ.update(_ONE_THREAD)
        workers += [_Worker(job) for _ in range(n)]
        yield workers
    finally:
        for worker in workers:
            worker.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _record_death(cell: Cell, worker: _Worker, job: Job) -> Outcome:
    """Record a failure of the cell on behalf of the process that died."""
    from evidence.running.cells import commit, versions

    worker.stop()
    reason = f"the process died ({_how(worker.process.exitcode)})"
    seconds = time.perf_counter() - worker.since
    if job.what != COMPARE:
        record = Record(
            paper=paper_of(cell.row),
            row=cell.row.id,
            seed=cell.seed,
            specification=cell.row.specification(),
            data_checksum="",
            versions=versions(),
            commit=commit(),
            started=worker.started.isoformat(timespec="seconds"),
            seconds=seconds,
            peak_memory_mb=None,
            status="failed",
            reason=reason,
        )
        write_record(job.results, record)
    return Outcome(cell.row.id, cell.seed, "failed", reason, seconds)


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return name + (": killed, or out of memory" if name == "SIGKILL" else "")


def _n_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
