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
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from manyhands.evidence.experiments.papers import paper_of
from manyhands.evidence.records.adoptions import read_adoptions
from manyhands.evidence.records.records import Record, cell_key, first_difference
from manyhands.evidence.records.store import find, find_equal, find_runs, write_record
from manyhands.evidence.running.plan import (
    BUSY,
    DIFFERENT,
    KEPT,
    NOT_RUN,
    SAME,
    Cell,
    Job,
    Outcome,
)
from manyhands.io.files import file_lock


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
            # Not recorded: the row itself says that it needs a GPU, and its data may be large.
            return outcome("skipped", lacking)
        data, kept = _look_up(cell, job)
        if kept is not None and not job.check:
            _confirm(kept, cell, job)
            return outcome(KEPT)
        if late or not held:
            return outcome(NOT_RUN, "the budget is spent")
        if job.check and kept is None:
            return outcome(NOT_RUN, "its data have changed since it was recorded")
        record = run_cell(cell.row, cell.seed, data)
        if kept is not None:
            differing = first_difference(kept, record)
            return outcome(SAME if differing is None else DIFFERENT, differing)
        write_record(job.results, record, paper_of(cell.row))
        return outcome(record.status, record.reason)


def _look_up(cell: Cell, job: Job) -> tuple[Any, Record | None]:
    """Return a cell's data and, if it is done, its record; None for either that is missing."""
    from manyhands.evidence.running.code import code_hash

    try:
        data, checked = _load(json.dumps(cell.row.data_of(cell.seed)), str(cell.row.folder))
    except Exception:
        # Running the cell raises the same exception and records it.
        return None, None
    key = cell_key(cell.row.specification(), cell.seed, checked, code_hash(cell.row))
    record = find(job.results, cell.row.id, cell.seed, key)
    if record is None and not job.check:
        record = find_equal(job.results, cell.row.id, cell.seed, key)
        if record is not None:
            write_record(job.results, record, paper_of(cell.row))
    if record is None or record.status != "done":
        record = _find_adopted(cell, job, checked)
    return data, record


def _find_adopted(cell: Cell, job: Job, checked: str) -> Record | None:
    """Return the finished run of earlier code that counts as made by the present code, or None."""
    from manyhands.evidence.running.code import code_hash

    row, adoptions = cell.row, read_adoptions(job.results)
    for code in adoptions.codes_like(row.id, code_hash(row)):
        key = cell_key(row.specification(), cell.seed, checked, code)
        record = find(job.results, row.id, cell.seed, key)
        if record is not None and record.status == "done":
            return record
    return None


def _confirm(kept: Record, cell: Cell, job: Job) -> None:
    """Make a finished run count again if runs with other data or code came after it."""
    found = find_runs(job.results, kept.row, kept.seed)
    when = max(record.confirmed or record.started for record in found)
    if when > (kept.confirmed or kept.started):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_record(job.results, replace(kept, confirmed=now), paper_of(cell.row))


@lru_cache(maxsize=1)
def _load(data: str, folder: str) -> tuple[Any, str]:
    from manyhands.evidence.data.sets import checksum, load_data

    loaded = load_data(json.loads(data), folder)
    return loaded, checksum(loaded)
