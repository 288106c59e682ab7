"""Run rows over seeds on all cores: resumable, and finished runs are never lost.

A *cell* is a row with one seed. Processes with one thread each take cells; each cell ends in a
record (see `manyhands.evidence.records`), written atomically, so that the machine can be killed
anywhere and the next call goes on. A cell whose record is there is not run again; one that fails,
or whose process dies, is recorded as failed, and the others go on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from manyhands.evidence.experiments.papers import paper_of, table_of
from manyhands.evidence.experiments.rows import Row, did_you_mean
from manyhands.evidence.records.records import (
    Record,
    cell_key,
    digest,
    find,
    find_equal,
    read_record,
    read_records,
    write_record,
)
from manyhands.exceptions import AnnotationError
from manyhands.io.files import check_writable

KEPT = "done before"
NOT_RUN = "not run"
BUSY = "running elsewhere"
SAME, DIFFERENT = "same figures", "other figures"

PAUSE = 1.0
"""Seconds between looks at cells that another process is running."""

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


@dataclass(frozen=True)
class Cell:
    """A row with one seed."""

    row: Row
    seed: int

    def __str__(self) -> str:
        return f"{self.row.id} seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What became of a cell.

    Attributes
    ----------
    row : str
    seed : int
    status : str
        "done", "failed" or "skipped" as in its record; "done before"; "not run" (the budget is
        spent); of a check, "same figures" or "other figures".
    reason : str or None
        Why it is not done.
    seconds : float
    """

    row: str
    seed: int
    status: str
    reason: str | None = None
    seconds: float = 0.0


class Watcher(Protocol):
    """Hears what happens to cells."""

    def begin(self, n_cells: int) -> None:
        """So many cells are to come."""

    def start(self, cell: Cell) -> None:
        """A process takes the cell."""

    def pause(self, cell: Cell) -> None:
        """Another call is running the cell; it is looked at again."""

    def end(self, outcome: Outcome) -> None:
        """A cell is over."""


class _Silent:
    """Hears, and does nothing."""

    def begin(self, n_cells: int) -> None:
        pass

    def start(self, cell: Cell) -> None:
        pass

    def pause(self, cell: Cell) -> None:
        pass

    def end(self, outcome: Outcome) -> None:
        pass


@dataclass(frozen=True)
class _Job:
    """What every process knows: where records are, until when cells start, and what to do."""

    results: str
    deadline: float
    check: bool


def reproduce(
    rows: Iterable[Row],
    results: str | Path,
    *,
    jobs: int | None = None,
    seeds: int | None = None,
    budget_minutes: float | None = None,
    watcher: Watcher | None = None,
) -> list[Outcome]:
    """Run what is not recorded yet of some rows.

    Parameters
    ----------
    rows : iterable of Row
    results : str or Path
        Folder of the records; several calls may share it, and divide the cells among them.
    jobs : int, optional
        Processes, of one thread each; default: the cores.
    seeds : int, optional
        So many seeds of every row in place of its own: its first ones, and the integers after
        its largest.
    budget_minutes : float, optional
        After so many minutes no cell is started; those running end.
    watcher : Watcher, optional

    Returns
    -------
    list of Outcome
        One a cell, in the order of the cells: every row's first seed, then the second, ...

    Raises
    ------
    AnnotationError
        If ``jobs``, ``seeds`` or ``budget_minutes`` are not positive.
    WriteError
        If the folder cannot be written.
    """
    _check_positive(seeds=seeds, budget_minutes=budget_minutes)
    cells = list_cells(rows, seeds)
    job = _Job(str(results), _deadline(budget_minutes), check=False)
    return _run_cells(cells, job, jobs, watcher or _Silent())


def recheck(
    rows: Iterable[Row],
    results: str | Path,
    *,
    sample: int = 3,
    jobs: int | None = None,
    budget_minutes: float | None = None,
    watcher: Watcher | None = None,
) -> list[Outcome]:
    """Run a sample of the finished cells again and compare every figure exactly.

    Parameters
    ----------
    rows, results, jobs, budget_minutes, watcher
        As of `reproduce`.
    sample : int
        Cells to run again, drawn with a fixed seed. Records of earlier code are not drawn.

    Returns
    -------
    list of Outcome
        "same figures", or "other figures" and the first that differs. Records stay as they are.

    Raises
    ------
    AnnotationError
        If ``sample``, ``jobs`` or ``budget_minutes`` are not positive, or nothing is finished yet.
    """
    _check_positive(sample=sample, budget_minutes=budget_minutes)
    finished = _finished(rows, results)
    if not finished:
        raise AnnotationError(
            f"results={str(results)!r} holds no finished run of these rows as they and the code "
            "are now; reproduce them first"
        )
    drawn = random.Random(0).sample(finished, min(sample, len(finished)))
    job = _Job(str(results), _deadline(budget_minutes), check=True)
    return _run_cells(drawn, job, jobs, watcher or _Silent())


def select_rows(rows: Sequence[Row], what: str) -> list[Row]:
    """Return the rows that a name means: a row, its file, a table, a paper, or "all".

    Raises
    ------
    AnnotationError
        If nothing is named so.
    """
    if what == "all":
        return list(rows)
    file = Path(what).resolve()
    found = [
        row
        for row in rows
        if what in (row.id, table_of(row), paper_of(row)) or Path(row.file).resolve() == file
    ]
    if not found:
        names = dict.fromkeys(
            name for row in rows for name in (paper_of(row), table_of(row), row.id)
        )
        raise AnnotationError(
            f"WHAT={what!r} is no row, table or paper here{did_you_mean(what, names)}; there are "
            f"{', '.join(dict.fromkeys(table_of(row) for row in rows)) or 'none'}, and all"
        )
    return found


def list_cells(rows: Iterable[Row], seeds: int | None = None) -> list[Cell]:
    """Return the cells of rows: all first seeds, then all second ones, and so on.

    A budget then leaves every row with about as many seeds; rows of the same data stand together,
    so that a process need not load them again and again.
    """
    distinct = {row.id: row for row in rows}.values()
    ordered = sorted(distinct, key=lambda row: (digest(row.data), row.id))
    chosen = {row.id: _choose_seeds(row, seeds) for row in ordered}
    longest = max((len(found) for found in chosen.values()), default=0)
    return [
        Cell(row, chosen[row.id][k])
        for k in range(longest)
        for row in ordered
        if k < len(chosen[row.id])
    ]


def _choose_seeds(row: Row, seeds: int | None) -> list[int]:
    if seeds is None:
        return list(row.seeds)
    after = max(row.seeds) + 1
    return [*row.seeds, *range(after, after + seeds)][:seeds]


def _check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise AnnotationError(f"{name}={value!r} is not positive; give a number above 0")


def _deadline(minutes: float | None) -> float:
    return float("inf") if minutes is None else time.time() + 60 * minutes


def _finished(rows: Iterable[Row], results: str | Path) -> list[Cell]:
    """Return the cells that are done with the rows and the code as they are now."""
    from manyhands.evidence.running.code import code_hash

    now = {(row.id, row.key, code_hash(row)): row for row in rows}
    found: dict[tuple[str, int], Cell] = {}
    for record in read_records(results):
        row = now.get((record.row, digest(record.specification), record.code))
        if row is not None and record.status == "done":
            # Several records of a cell differ in the data; at most one is that of the data now.
            found[row.id, record.seed] = Cell(row, record.seed)
    return list(found.values())


# -- the call: gives cells to processes, hears of their end -----------------------------------


class _Worker:
    """A process that runs one cell after another."""

    def __init__(self, job: _Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, job))
        self.process.start()
        # Else the process's death would not close the pipe.
        theirs.close()
        self.cell: Cell | None = None
        self.since, self.started = 0.0, datetime.now(UTC)

    def take(self, cell: Cell) -> None:
        self.cell, self.since, self.started = cell, time.perf_counter(), datetime.now(UTC)
        # If it died before it could take the cell, `hear` will say so.
        with suppress(OSError):
            self.connection.send(cell)

    def hear(self) -> Outcome | None:
        """Return the outcome; None if the process died on the cell."""
        self.cell = None
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _run_cells(
    cells: Sequence[Cell], job: _Job, jobs: int | None, watcher: Watcher
) -> list[Outcome]:
    _check_positive(jobs=jobs)
    check_writable(job.results)
    watcher.begin(len(cells))
    outcomes: dict[tuple[str, int], Outcome] = {}
    with _workers(min(jobs or _n_cores(), len(cells)), job) as workers:
        waiting, busy = list(cells), list[Cell]()
        looked = time.monotonic()
        while len(outcomes) < len(cells):
            if busy and not waiting and time.monotonic() - looked >= PAUSE:
                waiting, busy, looked = busy, [], time.monotonic()
            for worker in workers:
                if worker.cell is None and waiting:
                    watcher.start(waiting[0])
                    worker.take(waiting.pop(0))
            for i, worker, cell in _ready(workers):
                outcome = worker.hear()
                if outcome is None:
                    outcome = _record_death(cell, worker, job)
                    workers[i] = _Worker(job)
                if outcome.status == BUSY:
                    busy.append(cell)
                    watcher.pause(cell)
                    continue
                outcomes[cell.row.id, cell.seed] = outcome
                watcher.end(outcome)
    return [outcomes[cell.row.id, cell.seed] for cell in cells]


def _ready(workers: Sequence[_Worker]) -> list[tuple[int, _Worker, Cell]]:
    """Return the workers that have something to say, after a pause at most."""
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
def _workers(n: int, job: _Job) -> Iterator[list[_Worker]]:
    """Start processes of one thread each; however the block ends, none is left."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    workers: list[_Worker] = []
    try:
        # Processes started later, in place of dead ones, inherit this too.
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


def _record_death(cell: Cell, worker: _Worker, job: _Job) -> Outcome:
    """Record, in place of a process that died, that its cell failed."""
    from manyhands.evidence.running.cells import commit, versions
    from manyhands.evidence.running.code import code_hash

    worker.stop()
    reason = f"the process died ({_how(worker.process.exitcode)})"
    seconds = time.perf_counter() - worker.since
    if not job.check:
        specification, code = cell.row.specification(), code_hash(cell.row)
        record = Record(
            row=cell.row.id,
            seed=cell.seed,
            key=cell_key(specification, cell.seed, "", code),
            specification=specification,
            data_checksum="",
            code=code,
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


# -- a process: takes cells, runs them ---------------------------------------------------------


def _work(connection: Connection, job: _Job) -> None:
    """Run the cells that come, until the caller is gone."""
    # Ctrl-C reaches the whole group; the caller decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_caller, daemon=True).start()
    # Somebody is watching a progress display; what matters is in the records.
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
    """End at once with the process that started this one: its locks are then free."""
    caller = multiprocessing.parent_process()
    if caller is not None:
        caller.join()
        os._exit(1)


def _run(cell: Cell, job: _Job) -> Outcome:
    """Run a cell, or find that it need not, cannot or may not be run now."""
    from manyhands.evidence.running.cells import absent_device, run_cell

    started = time.perf_counter()

    def outcome(status: str, reason: str | None = None) -> Outcome:
        seconds = time.perf_counter() - started
        return Outcome(cell.row.id, cell.seed, status, reason, seconds)

    late = time.time() > job.deadline
    lock = Path(job.results) / ".locks" / cell.row.id / f"{cell.seed}.lock"
    with file_lock(lock) as held:
        if not held and not late:
            return outcome(BUSY)
        lacking = absent_device(cell.row)
        if lacking is not None:
            # No record: it would say nothing that the row does not, and its data may be large.
            return outcome("skipped", lacking)
        data, kept = _look_up(cell, job)
        if kept is not None and not job.check:
            _confirm(kept, job)
            return outcome(KEPT)
        if late or not held:
            return outcome(NOT_RUN, "the budget is spent")
        if job.check and kept is None:
            return outcome(NOT_RUN, "its data have changed since it was recorded")
        record = run_cell(cell.row, cell.seed, data)
        if kept is not None:
            differing = _difference(kept, record)
            return outcome(SAME if differing is None else DIFFERENT, differing)
        write_record(job.results, record)
        return outcome(record.status, record.reason)


def _look_up(cell: Cell, job: _Job) -> tuple[Any, Record | None]:
    """Return a cell's data, and its record where it is done; None for what is not there."""
    from manyhands.evidence.running.code import code_hash

    try:
        data, checked = _load(json.dumps(cell.row.data_of(cell.seed)), str(cell.row.folder))
    except Exception:
        # Running the cell will raise it again, and record it.
        return None, None
    key = cell_key(cell.row.specification(), cell.seed, checked, code_hash(cell.row))
    record = find(job.results, cell.row.id, cell.seed, key)
    if record is None and not job.check:
        record = find_equal(job.results, cell.row.id, cell.seed, key)
        if record is not None:
            write_record(job.results, record)
    return data, record if record is not None and record.status == "done" else None


def _confirm(kept: Record, job: _Job) -> None:
    """Let a finished run count again where runs with other data or code came after it."""
    others = Path(job.results, "records", kept.row).glob(f"{kept.seed}-*.json")
    found = [record for path in others if (record := read_record(path)) is not None]
    when = max(record.confirmed or record.started for record in found)
    if when > (kept.confirmed or kept.started):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_record(job.results, replace(kept, confirmed=now))


@lru_cache(maxsize=1)
def _load(data: str, folder: str) -> tuple[Any, str]:
    from manyhands.evidence.data.sets import checksum, load_data

    loaded = load_data(json.loads(data), folder)
    return loaded, checksum(loaded)


def _difference(kept: Record, record: Record) -> str | None:
    """Name the first figure of two records that is not exactly the same."""
    if record.status != "done":
        return f"{record.status}: {record.reason}"
    for part in ("metrics", "extra", "history"):
        # As JSON: that is what was kept.
        ours, theirs = (_flat(json.loads(json.dumps(getattr(r, part)))) for r in (record, kept))
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                return f"{part} {name}: {ours.get(name)} now, {theirs.get(name)} recorded"
    return None


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested dicts and lists to paths and their values."""
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return {name: value}
    return {path: v for key, part in parts for path, v in _flat(part, f"{name}/{key}").items()}


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Hold a lock file, and say whether it could be had; the system frees that of a dead process.

    Where the system has no such locks (Windows), two calls may run the same cell, to the same
    record.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have removed the file since it was opened.
            held = os.fstat(handle).st_ino == path.stat().st_ino
        except OSError:
            held = False
        try:
            yield held
        finally:
            if held:
                path.unlink(missing_ok=True)
    finally:
        os.close(handle)
