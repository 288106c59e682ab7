"""A user's jobs: what the command line does with annotations, features and models.

Names are imported on first use, so that aggregating labels needs no deep-learning stack.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyhands.jobs.aggregation import aggregate_table, compare_methods
    from manyhands.jobs.demo import run_demo
    from manyhands.jobs.fit import run_job
    from manyhands.jobs.gold import GoldRows, match_gold, training_part
    from manyhands.jobs.outputs import OUTPUTS, predict_file, report_folder

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
    "aggregation": (
        "aggregate_table",
        "compare_methods",
    ),
    "demo": ("run_demo",),
    "fit": ("run_job",),
    "gold": (
        "GoldRows",
        "match_gold",
        "training_part",
    ),
    "outputs": (
        "OUTPUTS",
        "predict_file",
        "report_folder",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
