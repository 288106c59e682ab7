"""Out-of-fold prediction: every instance judged by members that were not fitted to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from manyhands.classifiers.cross_fitted.networks import at_least, check_distinct, scaled_batches
from manyhands.fitting.latent import LatentClasses, SoftTargets, balancing_rng
from manyhands.fitting.logistic import fit_logistic
from manyhands.fitting.prediction import class_proba
from manyhands.inference.probability import floored_log
from manyhands.nn import CrowdModule, ScaledClassifier, Standardize
from manyhands.training import Features, GradientStep, MixedBatch, mixed_epoch
from manyhands.typing import FloatArray, IntArray

LEAST_LOG_PROBA = math.log(1e-6)
"""No member rules out a class for an instance it was not fitted to."""


@dataclass(frozen=True)
class NetworkTraining:
    """How the networks of the folds are made and trained.

    Attributes
    ----------
    make_network : callable () -> nn.Module
    make_optimizer : callable (nn.Module) -> Optimizer
        Gets the networks of all folds as one module.
    n_epochs, min_steps, batch_size : int
    reset_optimizer : bool
    """

    make_network: Callable[[], nn.Module]
    make_optimizer: Callable[[nn.ModuleList], torch.optim.Optimizer]
    n_epochs: int
    min_steps: int
    batch_size: int
    reset_optimizer: bool


class OutOfFold:
    """Members fitted to the posterior of all folds but one, which predict the fold left out.

    Parameters
    ----------
    latent : LatentClasses
        Its m annotated instances are predicted.
    features : Features
    scaler : Standardize
    folds : integer array of shape (m,)
        The fold of each annotated instance, from 0.
    training : NetworkTraining
    linear : bool
        Whether there are logistic regressions beside the networks.

    Attributes
    ----------
    rows : integer tensor of shape (m,)
        The annotated instances.
    regressions : (weight, bias) or None
        Those of the last round, from which the next ones start.
    """

    def __init__(
        self,
        latent: LatentClasses,
        features: Features,
        scaler: Standardize,
        folds: IntArray,
        *,
        training: NetworkTraining,
        linear: bool,
    ) -> None:
        self.latent, self.features, self.scaler = latent, features, scaler
        self.rows = torch.from_numpy(latent.instances).to(features.device)
        self.folds = torch.from_numpy(folds).to(features.device)
        self.n_folds = int(folds.max()) + 1
        self.training = training
        self.linear = linear
        self.regressions: tuple[Tensor, Tensor] | None = None

    def log_proba(self, posterior: FloatArray) -> FloatArray:
        """Log class probabilities by each member, shape (n_members, m, n_classes).

        Parameters
        ----------
        posterior : array of shape (m, n_classes)
            What the members are fitted to.
        """
        members = [self.by_networks(posterior)]
        if self.linear:
            members.append(self.by_regressions(posterior))
        return np.stack([np.maximum(member, LEAST_LOG_PROBA) for member in members])

    # -- networks ---------------------------------------------------------------------------------

    def by_networks(self, posterior: FloatArray) -> FloatArray:
        """Log class probabilities by the network that was not trained on the instance's fold."""
        networks = self.train_networks(posterior)
        log_proba = np.empty(posterior.shape)
        folds = self.folds.cpu().numpy()
        for fold, network in enumerate(networks):
            classifier = ScaledClassifier(self.scaler, network)
            rows = self.latent.instances[folds == fold]
            proba = class_proba(cast(CrowdModule, classifier), self.features, rows)
            log_proba[folds == fold] = floored_log(proba)
        return log_proba

    def train_networks(self, posterior: FloatArray) -> list[nn.Module]:
        """Train one network per fold on the posterior of the others, all on the same batches."""
        training, device = self.training, self.features.device
        networks = [training.make_network().to(device) for _ in range(self.n_folds)]
        check_distinct(networks)
        if self.n_folds == 1:
            return networks
        together = nn.ModuleList(networks)
        step = GradientStep(
            together,
            self._objective(networks, posterior),
            lambda: training.make_optimizer(together),
            reset_every_epoch=training.reset_optimizer,
        )
        for epoch in range(training.n_epochs):
            step.start_epoch(epoch)
            for batch in at_least(training.min_steps, self._one_pass):
                step(batch)
        return networks

    def _objective(
        self, networks: list[nn.Module], posterior: FloatArray
    ) -> Callable[[Any, Any], dict[str, Tensor]]:
        device = self.features.device
        targets = SoftTargets(None, device)
        targets.set(self.latent.spread(posterior), balancing_rng(0))
        fold_of = torch.full((self.latent.n_instances,), -1, device=device)
        fold_of[self.rows] = self.folds

        def objective(module: Any, batch: Any) -> dict[str, Tensor]:
            x = self.scaler(batch.x)
            logits, instances = [], []
            for fold, network in enumerate(networks):
                others = fold_of[batch.instances] != fold
                # A single row has no variance to normalise by. Only then are the fold's own
                # features, but never their targets, part of the batch.
                enough = int(others.sum()) > 1
                logits.append(network(x[others]) if enough else network(x)[others])
                instances.append(batch.instances[others])
            return targets.loss(torch.cat(logits), torch.cat(instances))

        return objective

    def _one_pass(self) -> Iterator[MixedBatch]:
        return mixed_epoch(self.features, self.rows, self.training.batch_size)

    # -- logistic regressions ---------------------------------------------------------------------

    def by_regressions(self, posterior: FloatArray) -> FloatArray:
        """Log class probabilities by the regression that was not fitted to the instance's fold."""
        targets = torch.from_numpy(posterior).to(self.features.device, torch.float32)
        every = torch.arange(self.n_folds, device=self.folds.device)
        seen = (self.folds != every[:, None]).float()
        batches = scaled_batches(self.features, self.scaler, self.rows)
        weight, bias = self.regressions = fit_logistic(batches, targets, seen, self.regressions)
        parts, first = [], 0
        for x in batches():
            own = self.folds[first : first + len(x)]
            first += len(x)
            logits = torch.einsum("nd,kcd->nkc", x, weight) + bias
            left_out = logits[torch.arange(len(x), device=own.device), own]
            parts.append(left_out.double().log_softmax(dim=1))
        return cast(FloatArray, torch.cat(parts).cpu().numpy())
