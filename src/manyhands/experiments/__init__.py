"""Runs over data sets and seeds: what the command line calls.

Names are imported on first use, so that aggregating labels needs no deep-learning stack.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyhands.experiments.aggregation import aggregate_table, compare_methods
    from manyhands.experiments.cells import run_cell
    from manyhands.experiments.demo import run_demo
    from manyhands.experiments.gold import GoldRows, match_gold, training_part
    from manyhands.experiments.jobs import run_job
    from manyhands.experiments.outputs import OUTPUTS, predict_file, report_folder
    from manyhands.experiments.records import Record, read_records, write_record
    from manyhands.experiments.rows import Row, RowError, load_row, load_rows
    from manyhands.experiments.sets import Data, load_data

__all__ = [
    "OUTPUTS",
    "Data",
    "GoldRows",
    "Record",
    "Row",
    "RowError",
    "aggregate_table",
    "compare_methods",
    "load_data",
    "load_row",
    "load_rows",
    "match_gold",
    "predict_file",
    "read_records",
    "report_folder",
    "run_cell",
    "run_demo",
    "run_job",
    "training_part",
    "write_record",
]

_MODULES = {
    "aggregation": ("aggregate_table", "compare_methods"),
    "cells": ("run_cell",),
    "demo": ("run_demo",),
    "gold": ("GoldRows", "match_gold", "training_part"),
    "jobs": ("run_job",),
    "outputs": ("OUTPUTS", "predict_file", "report_folder"),
    "records": ("Record", "read_records", "write_record"),
    "rows": ("Row", "RowError", "load_row", "load_rows"),
    "sets": ("Data", "load_data"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"manyhands.experiments.{module}"), name)
    raise AttributeError(f"module 'manyhands.experiments' has no attribute {name!r}")
