"""Networks as members: trained by cross-entropy on soft targets. Torch is imported by `fit`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import ceil
from typing import Any, Self

import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import raise_missing_extra
from manyhands.fitting.lost_classes import quiet_about_lost_classes
from manyhands.inference.probability import floored_log
from manyhands.linear.kernels import ClippedScaler, KernelMap
from manyhands.linear.ridge import RidgeValues, SoftRidge
from manyhands.training.seeding import draw_seed
from manyhands.typing import FloatArray

FEWEST_EPOCHS, FEWEST_STEPS = 10, 200
"""Least length of the first training."""

LATER = 4
"""A training that goes on from the last round's weights has so many times fewer epochs."""

PENALTY = 1.0
"""Lambda of the ridge on the embedding; fixed and large, because the embedding was trained on these
rows' targets."""

LEAST_TARGET = 1e-4
"""A class of an instance that is less probable is left out of the targets."""


class SoftNetwork(BaseEstimator):
    """A network as a member of a stack.

    The first `fit` trains it from random weights, later ones go on from there for a quarter of the
    epochs: the targets change little from round to round, and a training is dear.

    Parameters
    ----------
    backbone : nn.Module, str, dict or callable
        See `AggregatedClassifier`.
    ridge : bool, default=False
        Also fit kernel ridge regression to the embedding, and average its log probabilities with
        the network's.
    max_epochs : int or None, default=None
        Epochs of the first `fit`. None: 10, or as many as make 200 steps, if those are more.
    random_state : int, RandomState or None

    Attributes
    ----------
    network_ : AggregatedClassifier
    view_ : Pipeline
        With ``ridge``: maps the embedding to the kernel's features.
    ridge_ : RidgeValues
        With ``ridge``.
    """

    def __init__(
        self,
        backbone: Any = "mlp",
        *,
        ridge: bool = False,
        max_epochs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.backbone = backbone
        self.ridge = ridge
        self.max_epochs = max_epochs
        self.random_state = random_state

    def fit(self, X: Any, T: FloatArray) -> Self:
        """Train on instances (n, ...) and soft targets (n, n_classes)."""
        try:
            from manyhands.classifiers.aggregated import AggregatedClassifier
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise_missing_extra("a network as a member of a stack", "torch", error)
        before = getattr(self, "network_", None)
        network = AggregatedClassifier(
            backbone=self.backbone, random_state=draw_seed(self.random_state)
        )
        steps = ceil(len(T) / network.batch_size)
        network.max_epochs = self.max_epochs or max(FEWEST_EPOCHS, ceil(FEWEST_STEPS / steps))
        if before is not None:
            network.max_epochs = ceil(network.max_epochs / LATER)
        with quiet_about_lost_classes():
            self.network_ = network.fit(X, targets_as_table(T), start=before)
        if self.ridge:
            self._fit_ridge(X, T)
        return self

    def _fit_ridge(self, X: Any, T: FloatArray) -> None:
        seed = draw_seed(self.random_state)
        self.view_ = make_pipeline(ClippedScaler(), KernelMap(random_state=seed))
        shown = self.view_.fit_transform(self.network_.transform(X))
        self.ridge_ = RidgeValues(SoftRidge([PENALTY]).fit(shown, T).coef_)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log class probabilities, shape (n, n_classes)."""
        log_proba = floored_log(self.network_.predict_proba(X))
        if self.ridge:
            shown = self.view_.transform(self.network_.transform(X))
            log_proba = (log_proba + self.ridge_.predict_log_proba(shown)) / 2
        return log_softmax(log_proba, axis=1)


def targets_as_table(T: FloatArray) -> AnnotationTable:
    """Soft targets (n, n_classes) as annotations whose vote shares they are.

    There is an annotator for every class, who always answers it, with the target as weight.
    """
    instance, code = np.nonzero(T >= LEAST_TARGET)
    return AnnotationTable.from_arrays(
        instance,
        code,
        code,
        n_instances=len(T),
        n_annotators=T.shape[1],
        classes=range(T.shape[1]),
        weight=T[instance, code],
    )


def is_backbone(estimator: Any) -> bool:
    """Whether an object names or is a network: a str, a dict, or an nn.Module."""
    torch = sys.modules.get("torch")
    return isinstance(estimator, str | Mapping) or (
        torch is not None and isinstance(estimator, torch.nn.Module)
    )
