"""Runs over data sets and seeds: what the command line calls.

Names are imported on first use, so that aggregating labels needs no deep-learning stack.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyhands.experiments.aggregation import aggregate_table, compare_methods
    from manyhands.experiments.demo import run_demo
    from manyhands.experiments.gold import GoldRows, match_gold, training_part
    from manyhands.experiments.jobs import run_job
    from manyhands.experiments.outputs import OUTPUTS, predict_file, report_folder

__all__ = [
    "OUTPUTS",
    "GoldRows",
    "aggregate_table",
    "compare_methods",
    "match_gold",
    "predict_file",
    "report_folder",
    "run_demo",
    "run_job",
    "training_part",
]

_MODULES = {
    "aggregation": ("aggregate_table", "compare_methods"),
    "demo": ("run_demo",),
    "gold": ("GoldRows", "match_gold", "training_part"),
    "jobs": ("run_job",),
    "outputs": ("OUTPUTS", "predict_file", "report_folder"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"manyhands.experiments.{module}"), name)
    raise AttributeError(f"module 'manyhands.experiments' has no attribute {name!r}")
