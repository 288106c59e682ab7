"""The phases of CrowdInG's training after its pretrainer, and their callbacks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from manyhands.classifiers.crowding.adversarial import AdversarialStep
from manyhands.fitting.callbacks import ClassifierMonitor
from manyhands.fitting.context import Fit
from manyhands.fitting.pilots import n_epochs_of_whole_fit
from manyhands.nn import GenerativeCrowdModule
from manyhands.training import (
    BestState,
    Callback,
    CrowdBatch,
    EarlyStopping,
    GradientStep,
    Monitor,
    Stage,
    TrainStep,
)

START, GENERATOR, DISCRIMINATOR, ADVERSARIAL = "start", "generator", "discriminator", "adversarial"
"""Names of the stages in ``history_``."""
DEFAULT_EPOCHS = {GENERATOR: 30, DISCRIMINATOR: 10, ADVERSARIAL: 20}
CLASSIFIER_NLL = "validation_classifier_nll"

Phases = dict[str, AdversarialStep]
"""Steps of the discriminator's pre-training and of the adversarial phase, by stage."""

CrowdInGFit = Fit[GenerativeCrowdModule, Phases]


def make_stages(
    model: Any,
    fit: CrowdInGFit,
    objective: Callable[[GenerativeCrowdModule, CrowdBatch], dict[str, Tensor]],
) -> list[Stage]:
    """Make the phases after the pretrainer.

    Parameters
    ----------
    model : CrowdInGClassifier
    fit : Fit
    objective : callable (module, batch) -> dict of tensors
        Loss terms of the generator's pre-training.

    Returns
    -------
    list of Stage
    """
    steps: dict[str, TrainStep] = {}
    protocol = model._protocol
    # A Crowd Layer as the generator is trained already, in the pretrainer.
    if protocol.generator != "crowd_layer":
        steps[GENERATOR] = GeneratorStep(
            fit.module,
            objective,
            lambda: torch.optim.Adam(fit.module.generator.parameters(), lr=protocol.pretraining_lr),
            reset_every_epoch=protocol.reset_optimizer,
        )
    steps |= fit.state
    return [
        Stage(name, step, fit.batches.epoch, _n_epochs(model, fit, name))
        for name, step in steps.items()
    ]


def _n_epochs(model: Any, fit: CrowdInGFit, stage: str) -> int:
    earlier = fit.earlier
    most = (
        fit.n_epochs if earlier is None else n_epochs_of_whole_fit(fit.recipe.max_epochs, earlier)
    )
    given: int | None = getattr(model._protocol, f"{stage}_epochs")
    whole = min(DEFAULT_EPOCHS[stage], most) if given is None else given
    return whole if earlier is None else earlier.epochs(whole)


class GeneratorStep(GradientStep):
    """Gradient steps on the generator. The other networks stay in evaluation mode."""

    def start_epoch(self, epoch: int) -> None:
        """Put the generator into training mode."""
        super().start_epoch(epoch)
        self.module.eval()
        self.module.generator.train()  # type: ignore[union-attr]


def watch_phases(
    fit: CrowdInGFit, callbacks: list[Callback], best: BestState | None
) -> tuple[list[Callback], BestState | None]:
    """Replace callbacks for a single phase by those for several phases; add CrowdInG's measures.

    Parameters
    ----------
    fit : Fit
    callbacks, best : see `make_callbacks`

    Returns
    -------
    callbacks, best : as given
    """
    first: list[Callback] = [AdversarialMeasures(fit.state)]
    if best is not None and best.metric == "validation_nll" and fit.held is not None:
        first.append(Monitor(ClassifierMonitor(fit.module, fit.features, fit.table, fit.held)))
    if best is None:
        return [*first, *callbacks], best
    watchdog = Watchdog(fit.module, best.metric, higher_is_better=best.sign > 0, values=best.values)
    for place, callback in enumerate(callbacks):
        if callback is best:
            callbacks[place] = watchdog
        elif isinstance(callback, EarlyStopping):
            callbacks[place] = PatientStopping(
                callback.metric, higher_is_better=callback.sign > 0, patience=callback.patience
            )
    return [*first, *callbacks], watchdog


class AdversarialMeasures(Callback):
    """Add the measures of adversarial steps other than their loss."""

    def __init__(self, steps: Phases) -> None:
        self.steps = steps

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Add the epoch's means."""
        if metrics["stage"] in self.steps:
            metrics.update(self.steps[metrics["stage"]].measures())


class Watchdog(BestState):
    """Keep the best state of the phases after the pretrainer, or that of the pretrainer.

    The generator's pre-training is judged by the likelihood of held-out annotations under the
    generator, the adversarial phase by that under the classifier. The training of the
    discriminator changes neither: it uses the best generator, and its result is added to that
    state. Agreement and gold labels do not measure the generator; with them, the state of its last
    epoch is taken.
    """

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Begin the discriminator's training with the best generator."""
        if name == DISCRIMINATOR and not first_epoch and self.best["module"] is not None:
            self.restore()

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Store the state if it is better, or if its discriminator was trained further."""
        metric = judging_metric(self.metric, metrics["stage"])
        if metrics["stage"] == DISCRIMINATOR:
            generator = {name: self.best[name] for name in ("stage", "epoch")}
            self.best |= self._noted(metrics)
            self.best["module"] = copy.deepcopy(self.module.state_dict())
            self.best["value"] = metrics[metric]
            if generator["stage"] not in (None, DISCRIMINATOR):  # There was such a phase.
                self.best |= generator
            self._note_last(metrics)
            return
        if metrics["stage"] == GENERATOR and self.sign > 0:
            self.best["value"] = None
        super().on_epoch_end(epoch, {**metrics, self.metric: metrics[metric]})


class PatientStopping(EarlyStopping):
    """Early stopping of those phases in which the judged metric changes."""

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool:
        """Count the epochs without improvement; end a phase that can be stopped."""
        stage = metrics["stage"]
        judged = {**metrics, self.metric: metrics[judging_metric(self.metric, stage)]}
        is_exempt = stage == DISCRIMINATOR or (stage == GENERATOR and self.sign > 0)
        return super().on_epoch_end(epoch, judged) and not is_exempt


def judging_metric(metric: str, stage: str) -> str:
    """Return the column that judges a stage.

    For the likelihood, it is that of the generator in its stage, and then that of the classifier.
    Agreement and gold labels judge all stages alike.
    """
    return metric if metric != "validation_nll" or stage == GENERATOR else CLASSIFIER_NLL
