"""The rounds of ICED (Algorithm 1): synthesis and label inference before every epoch.

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhands.classifiers.iced.inference import LabelInference, majority, most_probable
from manyhands.classifiers.iced.synthesis import Synthesis, SyntheticInstances
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import LatentClasses, SoftTargets, balancing_rng
from manyhands.inference.inputs import gold_codes
from manyhands.metrics import accuracy, minority_recall
from manyhands.nn import SynthesisModule
from manyhands.training import GradientStep, MixedBatch, mixed_epoch
from manyhands.typing import AnyArray, FloatArray


@dataclass(frozen=True)
class RoundOptions:
    """Parameters of `ICEDClassifier` for a round."""

    em_start: str
    regenerate: bool
    targets: str
    synthetic_labels: str


class ICEDRounds:
    """Synthesis and inference before every epoch, and the batches of that epoch.

    Parameters
    ----------
    fit : Fit
        The buffers ``posterior`` (n_instances, n_classes) and ``class_shares`` (n_classes,) of its
        module are those of the last round. Its facts are the columns of the history about the
        round, and its class prior is that of the training targets.
    classes : array of shape (n_classes,)
    latent : LatentClasses
    inference : LabelInference
    synthesis : Synthesis or None
        None makes no instances.
    targets : SoftTargets
        Get the labels of each round.
    options : RoundOptions
    """

    def __init__(
        self,
        fit: Fit[SynthesisModule, Any],
        classes: AnyArray,
        *,
        latent: LatentClasses,
        inference: LabelInference,
        synthesis: Synthesis | None,
        targets: SoftTargets,
        options: RoundOptions,
    ) -> None:
        self.module, self.features, self.table = fit.module, fit.features, fit.table
        self.batches = fit.batches
        self.gold = fit.watch.y_train
        self.facts = fit.facts
        self.classes = classes
        self.latent = latent
        self.inference = inference
        self.synthesis = synthesis
        self.targets = targets
        self.options = options
        self.found = fit.found
        self.points: Tensor | None = None
        self.few: dict[str, int] = {}

    # -- a round ----------------------------------------------------------------------------------

    def begin(self, epoch: int) -> None:
        """Begin a round (from 0): synthesise, then infer."""
        if epoch and (self.synthesis is None or not self.options.regenerate):
            return  # Without new instances, inference would give the same labels.
        rng = balancing_rng(epoch)
        synthetic = None if self.synthesis is None else self.synthesis.make(epoch, rng)
        posterior = self._infer(synthetic)
        n = self.table.n_instances
        observed = posterior[:n]
        self.module.posterior.copy_(torch.from_numpy(observed))
        confusion = self.latent.confusion(observed[self.latent.instances])
        self.module.confusions.copy_(torch.from_numpy(confusion))
        self.points = None if synthetic is None else synthetic.points
        self.few = {} if synthetic is None else synthetic.few
        self.targets.set(self._targets(posterior, synthetic), rng)
        self.module.class_shares.copy_(torch.from_numpy(self.targets.shares))
        self.found["class_prior_"] = self.targets.shares
        self.facts |= self._facts_of_inference(observed)
        if synthetic is not None:
            self.facts |= _facts_of_synthesis(posterior[n:], synthetic)

    def _infer(self, synthetic: SyntheticInstances | None) -> FloatArray:
        """Infer the labels of the observed and then of the synthetic instances (section 2.3)."""
        table = self.table if synthetic is None else synthetic.table
        start = majority(table)
        if self.options.em_start == "previous":
            before = self.module.posterior.cpu().numpy()
            start[: len(before)] = before
        return self.inference.posterior(table, start)

    def _targets(self, posterior: FloatArray, synthetic: SyntheticInstances | None) -> FloatArray:
        """Return the training targets; zeros for observed instances without annotations."""
        targets = posterior if self.options.targets == "soft" else most_probable(posterior)
        n = self.table.n_instances
        if synthetic is not None and self.options.synthetic_labels == "intended":
            intended = np.eye(targets.shape[1])[synthetic.intended]
            targets = np.concatenate([targets[:n], intended])
        known = np.ones(len(targets), dtype=bool)
        known[:n] = self.table.annotations_per_instance() > 0
        return targets * known[:, None]

    def _facts_of_inference(self, posterior: FloatArray) -> dict[str, float]:
        chosen = most_probable(posterior)[self.latent.instances]
        names = [f"inferred_{name}" for name in self.classes]
        facts: dict[str, float] = dict(zip(names, chosen.sum(axis=0).tolist(), strict=True))
        if self.gold is None or len(self.gold) != len(posterior):
            return facts
        codes = gold_codes(self.gold, self.table)[self.latent.instances]
        known = codes >= 0
        if not known.any():
            return facts
        labels = chosen.argmax(axis=1)[known]
        return facts | {
            "inference_accuracy": accuracy(codes[known], labels),
            "inference_minority_recall": minority_recall(codes[known], labels),
        }

    # -- for the training -------------------------------------------------------------------------

    def epoch_batches(self, epoch: int) -> Iterator[MixedBatch]:
        """Yield observed and synthetic instances in random order."""
        rows, batch_size = self.batches.instances, self.batches.batch_size
        return mixed_epoch(self.features, rows, batch_size, self.points)

    def objective(self, module: SynthesisModule, batch: MixedBatch) -> dict[str, Tensor]:
        """Return ``cross_entropy`` against the labels of the round."""
        return self.targets.loss(module.mixed_logits(batch.x, batch.synthetic), batch.instances)

    def state_dict(self) -> dict[str, Any]:
        """Return the targets, points and the decoder's optimizer, for a checkpoint."""
        optimizer = None if self.synthesis is None else self.synthesis.decoder_optimizer
        return {
            "targets": self.targets.state_dict(),
            "points": self.points,
            "facts": dict(self.facts),
            "few": dict(self.few),
            "decoder_optimizer": None if optimizer is None else optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.targets.load_state_dict(state["targets"])
        if len(self.targets.targets):
            self.found["class_prior_"] = self.targets.shares
        points = state["points"]
        self.points = None if points is None else points.to(self.features.device)
        self.facts.clear()
        self.facts |= state["facts"]
        self.few = dict(state["few"])
        if self.synthesis is not None and self.synthesis.decoder_optimizer is not None:
            self.synthesis.decoder_optimizer.load_state_dict(state["decoder_optimizer"])


def _facts_of_synthesis(posterior: FloatArray, synthetic: SyntheticInstances) -> dict[str, float]:
    facts = {"n_synthetic": float(len(posterior))}
    if synthetic.intended is not None and len(posterior):
        agreement = (posterior.argmax(axis=1) == synthetic.intended).mean()
        facts["synthetic_agreement"] = float(agreement)
    return facts


class RoundStep(GradientStep):
    """Gradient steps towards the labels of a round; each epoch begins with a round."""

    def __init__(self, rounds: ICEDRounds, *args: Any, **options: Any) -> None:
        super().__init__(rounds.module, rounds.objective, *args, **options)
        self.rounds = rounds

    def start_epoch(self, epoch: int) -> None:
        """Synthesise and infer."""
        self.rounds.begin(epoch)
        super().start_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer and of the rounds."""
        return {**super().state_dict(), "rounds": self.rounds.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        super().load_state_dict(state)
        self.rounds.load_state_dict(state["rounds"])
