"""The pool of worker processes: it hands out cells, collects outcomes, replaces dead workers."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from evidence.experiments.papers import paper_of
from evidence.records import Record, cell_key, first_difference
from evidence.running.plan import (
    BUSY,
    COMPARE,
    DIFFERENT,
    KEPT,
    MISSING,
    NOT_RUN,
    SAME,
    Cell,
    Job,
    Outcome,
    ProgressListener,
    check_positive,
)
from evidence.store import find, find_equal, find_recorded, write_record
from manyhands.files import check_writable, file_lock

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


# -- the worker process ----------------------------------------------------------------------------


def work(connection: Connection, job: Job) -> None:
    """Run the cells that arrive until the caller closes the connection."""
    # Ctrl-C reaches the whole process group; the caller decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_caller, daemon=True).start()
    # Warnings would garble the progress display; what matters is in the records.
    warnings.simplefilter("ignore")
    while True:
        try:
            cell = connection.recv()
        except EOFError:
            return
        try:
            outcome = _run(cell, job)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            outcome = Outcome(cell.row.id, cell.seed, "failed", reason)
        connection.send(outcome)


def _die_with_caller() -> None:
    """Exit as soon as the process that started this one ends, which frees the locks."""
    caller = multiprocessing.parent_process()
    if caller is not None:
        caller.join()
        os._exit(1)


def _run(cell: Cell, job: Job) -> Outcome:
    """Run a cell, unless it is done, cannot run here, or may not run now."""
    from evidence.running.cells import absent_device, run_cell

    started = time.perf_counter()

    def outcome(status: str, reason: str | None = None) -> Outcome:
        seconds = time.perf_counter() - started
        return Outcome(cell.row.id, cell.seed, status, reason, seconds)

    late = time.monotonic() > job.deadline
    lock = Path(job.results) / ".locks" / cell.row.id / f"{cell.seed}.lock"
    with file_lock(lock) as held:
        if not held and not late:
            return outcome(BUSY)
        lacking = absent_device(cell.row)
        if lacking is not None:
            # Not recorded: the row itself says that it needs a GPU, and its data may be large.
            return outcome("skipped", lacking)
        data, kept = _look_up(cell, job)
        if kept is not None and job.what == MISSING:
            return outcome(KEPT)
        if late or not held:
            return outcome(NOT_RUN, "the budget is spent")
        record = run_cell(cell.row, cell.seed, data)
        if job.what == COMPARE and record.status != "skipped":
            differing = _difference(_recorded(cell, job), record)
            return outcome(SAME if differing is None else DIFFERENT, differing)
        if job.what != COMPARE:
            write_record(job.results, record)
        return outcome(record.status, record.reason)


def _look_up(cell: Cell, job: Job) -> tuple[Any, Record | None]:
    """Return a cell's data and its finished run; None for either that is missing."""
    row, paper = cell.row, paper_of(cell.row)
    try:
        data, checked = _load(json.dumps(row.data_of(cell.seed)), str(row.folder))
    except Exception:
        # Running the cell raises the same exception and records it.
        return None, None
    key = cell_key(row.specification(), cell.seed, checked)
    record = find(job.results, paper, key)
    if record is None and job.what == MISSING:
        found = find_equal(job.results, key)
        if found is not None:
            record = replace(found, paper=paper, row=row.id)
            write_record(job.results, record)
    return data, record if record is not None and record.status == "done" else None


def _recorded(cell: Cell, job: Job) -> Record | None:
    return find_recorded(job.results, paper_of(cell.row), cell.row.key, cell.seed)


def _difference(recorded: Record | None, record: Record) -> str | None:
    """Name the first figure that differs; the data may differ, too, as those that code makes."""
    if recorded is None:
        return "its record is gone"
    found = first_difference(recorded, record)
    if found is None or record.data_checksum in ("", recorded.data_checksum):
        return found
    return f"on other data: {found}"


@lru_cache(maxsize=1)
def _load(data: str, folder: str) -> tuple[Any, str]:
    from evidence.data.sets import checksum, load_data

    loaded = load_data(json.loads(data), folder)
    return loaded, checksum(loaded)
