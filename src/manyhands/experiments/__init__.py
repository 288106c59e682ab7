"""Runs over data sets and seeds: what the command line calls."""

from manyhands.experiments.demo import run_demo
from manyhands.experiments.gold import GoldRows, match_gold, training_part
from manyhands.experiments.jobs import run_job
from manyhands.experiments.outputs import (
    OUTPUTS,
    aggregate_table,
    predict_file,
    report_folder,
)

__all__ = [
    "OUTPUTS",
    "GoldRows",
    "aggregate_table",
    "match_gold",
    "predict_file",
    "report_folder",
    "run_demo",
    "run_job",
    "training_part",
]
