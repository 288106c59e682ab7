"""The warm-up of ICED: training on majority votes, group by group of certainty (section 2.5).

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable, certainty_groups, label_certainty
from manyhands.annotations.certainty import has_equal_counts
from manyhands.classifiers.iced.inference import majority, most_probable
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import SoftTargets, balancing_rng
from manyhands.nn import SynthesisModule
from manyhands.training import GradientStep, MixedBatch, Stage, mixed_epoch
from manyhands.typing import IntArray

WARM_UPS = ("certainty", "together", "all")

MakeStep = Callable[[Callable[[Any, Any], dict[str, Tensor]]], GradientStep]
"""Makes a training step for an objective (module, batch) -> loss terms."""


def group_by_certainty(table: AnnotationTable, n_groups: int) -> IntArray:
    """Return the group of each instance, (n_instances,): 1 to n_groups (most certain), or 0."""
    by = "levels" if has_equal_counts(table) else "quantiles"
    return certainty_groups(label_certainty(table), n_groups, by=by)


def count_groups(groups: IntArray) -> int:
    """Count the groups that have instances, at least 1; a warm-up has so many times its epochs."""
    return max(1, len(np.unique(groups[groups > 0])))


def warm_up_phases(table: AnnotationTable, groups: IntArray, warm_up: str | None) -> list[IntArray]:
    """Return the instances of the warm-up, one array per phase.

    Parameters
    ----------
    table : AnnotationTable
    groups : integer array of shape (n_instances,)
        See `group_by_certainty`.
    warm_up : {"certainty", "together", "all", None}

    Returns
    -------
    list of integer arrays
        Empty if there is no warm-up, or no instance for it.
    """
    if warm_up is None:
        return []
    phases: list[IntArray] = [np.flatnonzero(groups == g) for g in np.unique(groups[groups > 0])]
    if warm_up == "together":
        phases = [np.flatnonzero(groups)]
    elif warm_up == "all":
        phases = [np.flatnonzero(table.annotations_per_instance())]
    # A network that normalises over batches learns nothing from a single instance.
    for i in reversed(range(1, len(phases))):
        if min(len(phases[i]), len(phases[i - 1])) < 2:
            phases[i - 1 : i + 1] = [np.concatenate(phases[i - 1 : i + 1])]
    return phases if sum(map(len, phases)) > 1 else []


def warm_up_stage(
    fit: Fit[SynthesisModule, Any],
    phases: list[IntArray],
    n_epochs: int,
    batch_size: int,
    targets: SoftTargets,
    make_step: MakeStep,
) -> Stage:
    """Return the stage that trains on majority votes, phase by phase, for as many epochs each.

    Parameters
    ----------
    fit : Fit
    phases : list of integer arrays
        The instances of each phase.
    n_epochs, batch_size : int
    targets : SoftTargets
        Gets the majority votes of these instances, shared by classes that tie.
    make_step : callable (objective) -> GradientStep

    Returns
    -------
    Stage
    """
    instances = np.concatenate(phases)
    votes = np.zeros((fit.table.n_instances, fit.table.n_classes))
    votes[instances] = most_probable(majority(fit.table))[instances]
    targets.set(votes, balancing_rng(0, 1))
    rows = [torch.from_numpy(phase).to(fit.features.device) for phase in phases]

    def epoch_batches(epoch: int) -> Iterator[MixedBatch]:
        phase = rows[epoch * len(rows) // n_epochs]
        return mixed_epoch(fit.features, phase, batch_size)

    def objective(module: SynthesisModule, batch: MixedBatch) -> dict[str, Tensor]:
        return targets.loss(module.mixed_logits(batch.x, batch.synthetic), batch.instances)

    return Stage("warm_up", make_step(objective), epoch_batches, n_epochs)
