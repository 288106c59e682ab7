"""Logistic regressions of all folds at once, in torch: for features of any size, also on a GPU.

`manyhands.linear.regression` fits the same model in numpy, one regression at a time and in double
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from manyhands.typing import FloatArray

LINEAR_PENALTY = 1.0
"""Half of it times the squared weights is added to the summed loss, like scikit-learn's C=1.

For two classes this equals C=2, as scikit-learn then has a single weight vector."""

LINEAR_ITERATIONS = 100
LINEAR_TOLERANCE = 1e-7
"""L-BFGS stops when an iteration reduces the loss by less than this share of it."""


def fit_logistic(
    batches: Callable[[], Iterator[Tensor]],
    targets: Tensor,
    seen: Tensor,
    start: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Fit multinomial logistic regressions to soft targets, one per set of instances.

    All are fitted together, so that every iteration reads the instances once. No seed is needed, as
    the loss is convex.

    Parameters
    ----------
    batches : callable () -> iterator of tensors of shape (n, d)
        One pass over the m instances.
    targets : tensor of shape (m, n_classes)
        Rows may sum to more or less than 1.
    seen : tensor of shape (k, m)
        1 where a regression is fitted to an instance.
    start : (weight, bias) or None
        Starting point, in the form returned; None starts at 0.

    Returns
    -------
    weight : tensor of shape (k, n_classes, d)
    bias : tensor of shape (k, n_classes)
    """
    width = next(batches()).shape[1]
    k, n_classes = len(seen), targets.shape[1]
    split = k * n_classes * width

    def read(values: FloatArray) -> tuple[Tensor, Tensor]:
        vector = torch.from_numpy(values).to(targets.device, torch.float32)
        return vector[:split].reshape(k * n_classes, width), vector[split:]

    def loss_and_gradient(values: FloatArray) -> tuple[float, FloatArray]:
        weight, bias = read(values)
        by_weight, by_bias = LINEAR_PENALTY * weight, torch.zeros_like(bias)
        loss = 0.5 * LINEAR_PENALTY * weight.double().square().sum()
        first = 0
        for x in batches():
            own = slice(first, first + len(x))
            first += len(x)
            log_proba = (x @ weight.T + bias).reshape(len(x), k, n_classes).log_softmax(dim=2)
            goal = targets[own][:, None] * seen[:, own].T[:, :, None]
            loss -= (goal * log_proba).double().sum()
            gap = (goal.sum(dim=2, keepdim=True) * log_proba.exp() - goal).flatten(1)
            by_weight = by_weight + gap.T @ x
            by_bias = by_bias + gap.sum(dim=0)
        gradient = torch.cat([by_weight.flatten(), by_bias]).double()
        return float(loss), gradient.cpu().numpy()

    begin = np.zeros(split + k * n_classes)
    if start is not None:
        begin[:] = torch.cat([part.flatten() for part in start]).double().cpu().numpy()
    options: Any = {"maxiter": LINEAR_ITERATIONS, "ftol": LINEAR_TOLERANCE}
    found = minimize(loss_and_gradient, begin, jac=True, method="L-BFGS-B", options=options)
    weight, bias = read(found.x)
    return weight.reshape(k, n_classes, width), bias.reshape(k, n_classes)
