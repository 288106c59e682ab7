"""Objectives: a module and a batch in, named loss terms out. Their sum is minimised."""

from manyhands.objectives.crowd import (
    common_noise_objective,
    crowd_nll,
    information_objective,
    soft_label_objective,
    trace_objective,
)

__all__ = [
    "common_noise_objective",
    "crowd_nll",
    "information_objective",
    "soft_label_objective",
    "trace_objective",
]
