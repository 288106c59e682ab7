"""Objectives: a module and a batch in, named loss terms out. Their sum is minimised."""

from manyhands.objectives.crowd import common_noise_objective, crowd_nll, soft_label_objective

__all__ = ["common_noise_objective", "crowd_nll", "soft_label_objective"]
