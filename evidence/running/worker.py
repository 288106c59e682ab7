"""A worker process of the pool: it takes cells and runs them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from dataclasses import replace
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from evidence.experiments.papers import paper_of
from evidence.records.records import Record, cell_key, first_difference
from evidence.records.store import find, find_equal, find_recorded, write_record
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
)
from manyhands.files import file_lock


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

    late = time.time() > job.deadline
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
