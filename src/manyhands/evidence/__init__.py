"""Evidence: rows of experiments, records of their runs, and pages made from records alone.

Names are imported on first use, so that aggregating labels needs no deep-learning stack.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyhands.evidence.data.sets import Data, load_data
    from manyhands.evidence.experiments.document import RowError
    from manyhands.evidence.experiments.loading import load_row, load_rows
    from manyhands.evidence.experiments.rows import Row
    from manyhands.evidence.records.records import Record
    from manyhands.evidence.records.store import read_records, write_record
    from manyhands.evidence.running.cells import run_cell

__all__ = [
    "Data",
    "Record",
    "Row",
    "RowError",
    "load_data",
    "load_row",
    "load_rows",
    "read_records",
    "run_cell",
    "write_record",
]

_MODULES = {
    "data.sets": (
        "Data",
        "load_data",
    ),
    "experiments.document": ("RowError",),
    "experiments.loading": (
        "load_row",
        "load_rows",
    ),
    "experiments.rows": ("Row",),
    "records.records": ("Record",),
    "records.store": (
        "read_records",
        "write_record",
    ),
    "running.cells": ("run_cell",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
