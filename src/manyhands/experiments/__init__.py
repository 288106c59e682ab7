"""Runs over data sets and seeds: what the command line calls."""

from manyhands.experiments.demo import run_demo
from manyhands.experiments.jobs import (
    GoldRows,
    aggregate_table,
    match_gold,
    predict_file,
    run_job,
    training_part,
)

__all__ = [
    "GoldRows",
    "aggregate_table",
    "match_gold",
    "predict_file",
    "run_demo",
    "run_job",
    "training_part",
]
