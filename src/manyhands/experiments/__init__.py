"""Runs over data sets and seeds: what the command line calls."""

from manyhands.experiments.demo import run_demo
from manyhands.experiments.jobs import (
    OUTPUTS,
    GoldRows,
    aggregate_table,
    match_gold,
    predict_file,
    report_folder,
    run_job,
    training_part,
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
