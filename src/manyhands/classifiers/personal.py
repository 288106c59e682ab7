"""Personal classifiers: fused linear classifiers of all annotators, and of the target.

.. [1] H. Kajino, Y. Tsuboi and H. Kashima. Clustering crowds. AAAI 2013.
   https://doi.org/10.1609/aaai.v27i1.8581
.. [2] S. Boyd, N. Parikh, E. Chu, B. Peleato and J. Eckstein. Distributed optimization and
   statistical learning via the alternating direction method of multipliers. 2011.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor
from torch.nn import functional as F

from manyhands.classifiers.doctor_net import annotation_weight
from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.parameters import FIXED_EPOCHS
from manyhands.fitting.traits import ANNOTATOR_ARRAYS, Traits
from manyhands.nn import AnnotatorHeadsModule, ScaledClassifier
from manyhands.objectives import (
    AnnotatorGroup,
    fusion_norm,
    group_annotators,
    group_soft_threshold,
    personal_nll,
)
from manyhands.training import AnnotationBatches, BestState, Callback, CrowdBatch, Stage
from manyhands.typing import FloatArray

PAIR_BYTES = 2 << 30
"""Maximum memory for the differences between all pairs of classifiers: 2 GiB."""

PersonalFit = Fit[AnnotatorHeadsModule, "ADMMStep"]


@dataclass(frozen=True, kw_only=True, repr=False)
class PersonalProtocol(MethodProtocol):
    """Protocol of `PersonalClassifier`: step size of its solver, ADMM.

    Parameters
    ----------
    monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    rho : float or None, default=None
        Step size of ADMM. None starts from an estimate and balances the residuals for 100
        iterations.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "rho": [None, Interval(Real, 0, None, closed="neither")],
    }

    rho: float | None = None
    # There is no Adam, so this class has no such field.
    reset_optimizer: bool = field(default=False, init=False)


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalClassifier(BaseCrowdClassifier):
    r"""Learn one linear classifier per annotator and a target one, fused by a convex penalty [1]_.

    With weights :math:`w_j` for annotator j = 1..J and :math:`w_0` for the target, it minimises

    .. math:: \sum_j \mathrm{NLL}_j(w_j) + \frac{\eta}{2} \|w_0\|^2
        + \frac{\mu}{J} \sum_{0 \le i < j \le J} \|w_i - w_j\|

    by ADMM, which finds the global minimum from any start. The norm makes the classifiers of
    annotators who give the same labels coincide. :math:`w_0`, the centre of the crowd, predicts.
    For two classes :math:`w` is one vector, as published. For more classes it is a matrix with one
    column per class, and the norm is the Frobenius norm.

    Parameters
    ----------
    fusion : float, default=10.0
        :math:`\mu`. 0 gives separate logistic regressions (and a target of zero). A large value
        makes all classifiers equal: one logistic regression on all annotations.
    ridge : float, default=0.1
        :math:`\eta`.
    fit_intercept : bool, default=True
        Add a constant feature, which is penalised and fused like the others. The paper has none.
    tol : float, default=1e-3
        Stop when both residuals, relative to the size of what they compare, are at most this.
    max_epochs : int, default=200
        Iterations of ADMM, each with up to 25 steps of L-BFGS.
    batch_size : int, default=1024
        Number of instances read at once if they do not all fit into 1 GiB. It does not change the
        result.
    class_balance, scaling, device, random_state, verbose, validation, \
checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. "focal" and "cb_focal" are refused, because the
        problem would no longer be convex. "resample" and "reweight" count annotations more than
        once. Random numbers are drawn for "resample" and ``validation`` only.
    protocol : PersonalProtocol or None, default=None
        Variants and details of published experiments; None means `PersonalProtocol()`.

    Attributes
    ----------
    coef_ : array of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights of the target classifier, for the scaled features.
    intercept_ : array of shape (n_classes,), or (1,) for two classes
    annotator_coef_ : array of shape (n_annotators, n_classes, n_features), or (n_annotators, 1, \
n_features) for two classes
        Weights of the annotators' classifiers. Annotators without annotations get those of the
        target.
    annotator_intercept_ : array of shape (n_annotators, n_classes), or (n_annotators, 1)
    residuals_ : array of shape (n_iterations, 2)
        Relative primal and dual residual of each iteration.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Expected confusion: row c is the mean of the probabilities that the annotator's classifier
        gives for the instances the annotator labelled, each instance weighted by the target
        classifier's probability of class c. Annotators without annotations get the confusion
        matrix of all annotations together.

    Notes
    -----
    ``history_`` has one row per iteration: ``nll`` (a sum, not a mean), ``ridge`` and ``fusion``,
    which add up to the objective. There is neither a ``backbone`` nor an ``lr``: the problem is
    convex because the classifiers are linear, and it needs no learning rate.

    `partial_fit` starts ADMM from the present classifiers, and those of new annotators from the
    mean of the others. It converges to the same minimum as `fit` on all data. Features keep the
    scaling of the last training from scratch.

    The method needs the differences between all pairs, (J + 1) J / 2 matrices of features x
    classes. More than 2 GiB of them are refused.

    References
    ----------
    .. [1] Kajino, Tsuboi & Kashima, Clustering crowds, AAAI 2013.

    Examples
    --------
    >>> from manyhands import PersonalClassifier, load_demo
    >>> demo = load_demo()
    >>> model = PersonalClassifier(max_epochs=2).fit(demo.X_train, demo.annotations)
    >>> model.coef_.shape
    (10, 64)
    """

    _parameter_constraints = {
        **{
            name: constraint
            for name, constraint in BaseCrowdClassifier._parameter_constraints.items()
            if name not in {"backbone", "lr", "weight_decay"}
        },
        **FIXED_EPOCHS,
        "fusion": [Interval(Real, 0, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _crowd_check_exemptions = {
        "check_every_parameter_moves": "L-BFGS has no learning rate to hold parameters still with",
        "check_user_network": "linear classifiers only: with another backbone it is not convex",
    }

    fusion: float = 10.0
    ridge: float = 0.1
    fit_intercept: bool = True
    tol: float = 1e-3
    max_epochs: int = 200
    batch_size: int = 1024
    # The convex problem does not need them, so they are no parameters of this class.
    lr: float = field(default=math.nan, init=False)
    weight_decay: float = field(default=math.nan, init=False)
    protocol: PersonalProtocol | None = None

    _protocol = ProtocolOf(PersonalProtocol)

    @property
    def _traits(self) -> Traits:
        return Traits(
            predicts_by_backbone=False,
            scales_weights=False,
            focal_refusal="changes the loss, and PersonalClassifier's would no longer be convex; "
            "use 'resample' or 'reweight'",
            saved=(
                *ANNOTATOR_ARRAYS,
                "coef_",
                "intercept_",
                "annotator_coef_",
                "annotator_intercept_",
                "residuals_",
            ),
            protocol_parameters=("scaling",),
            start_refusal="ends at the same minimum from every start",
            devices_refusal="solves for its weights over all instances at once (ADMM)",
            auto_epochs_refusal="an epoch is an iteration of the solver, which tol stops",
        )

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> AnnotatorHeadsModule:
        module = AnnotatorHeadsModule(
            classifier, len(self.classes_), self.n_annotators_, input_shape=input_shape
        )
        for parameter in module.parameters():
            torch.nn.init.zeros_(parameter)
        return module.requires_grad_(False)

    def _prepare(self, fit: PersonalFit) -> ADMMStep:
        self._check_size(fit)
        step = ADMMStep(
            fit.module,
            Examples(fit.module, fit.batches, intercept=self.fit_intercept),
            fusion=self.fusion,
            ridge=self.ridge,
            rho=self._protocol.rho,
            tol=self.tol,
        )
        if fit.earlier is not None:
            step.start_from_module()
        return step

    def _check_size(self, fit: PersonalFit) -> None:
        """Raise an error if the differences between pairs take more than `PAIR_BYTES`."""
        n_columns = n_weight_columns(len(self.classes_))
        width = fit.module.weight.shape[1] + self.fit_intercept
        n = 1 + int((annotation_weight(fit.table) > 0).sum())
        size = 8 * width * n_columns * n * (n - 1) // 2
        if self.fusion and size > PAIR_BYTES:
            raise AnnotationError(
                f"the differences between all pairs of annotators would take {size / 2**30:.1f} "
                f"GiB, more than {PAIR_BYTES / 2**30:g} ({n - 1} annotators, with {width} "
                f"weights for each of {n_columns} outputs). Leave annotators with few annotations "
                "out (table.select(annotators=...)), or reduce X (PCA)"
            )

    def _stages(self, fit: PersonalFit) -> list[Stage]:
        """Return one stage, in which an epoch is one iteration of ADMM over all annotations."""
        return [Stage("train", fit.state, lambda epoch: [None], self.max_epochs)]

    def _callbacks(self, fit: PersonalFit) -> tuple[list[Callback], BestState | None]:
        callbacks, best = super()._callbacks(fit)
        return [*callbacks, StopWhenConverged(fit.state)], best

    def _read_out(self, fit: PersonalFit) -> dict[str, Any]:
        module = fit.module
        # With two classes, the weights of the first are zero and are left out.
        first = len(self.classes_) - n_weight_columns(len(self.classes_))
        target: Any = module.classifier.backbone.head
        parts = ((batch.x, batch.rows, batch.annotators) for batch in fit.batches.in_order())
        return {
            "coef_": _to_numpy(target.weight[first:]),
            "intercept_": _to_numpy(target.bias[first:]),
            "annotator_coef_": _to_numpy(module.weight[:, :, first:].transpose(1, 2)),
            "annotator_intercept_": _to_numpy(module.bias[:, first:]),
            "residuals_": np.array(fit.state.residuals),
            "confusion_": _to_numpy(module.expected_confusion(parts)),
        }


def _to_numpy(values: Tensor) -> FloatArray:
    return values.double().cpu().numpy().copy()


# -- ADMM [2]_ on the convex problem, and the examples that it reads ------------------------------


RESIDENT_BYTES = 1 << 30
"""Examples up to this size are kept in double precision; larger ones are converted at each use."""


class Examples:
    """Annotated instances, scaled and in double precision, with annotators numbered from 1.

    Iterating yields all instances and annotations, in as few batches as memory allows.

    Parameters
    ----------
    module : AnnotatorHeadsModule
    batches : AnnotationBatches
    intercept : bool
        Whether to append a constant feature.

    Attributes
    ----------
    total_weight : float
        Sum of the weights of all annotations.
    active : integer tensor
        The annotators with annotations.
    number : integer tensor of shape (n_annotators,)
        Number of each annotator, from 1. Annotators without annotations have 0, which stands for
        the target.
    width : int
        Number of features, the constant one included.
    """

    def __init__(
        self, module: AnnotatorHeadsModule, batches: AnnotationBatches, *, intercept: bool
    ) -> None:
        self.module = module
        self.batches = batches
        self.intercept = intercept
        device = batches.features.device
        weight = annotation_weight(batches.table)
        self.total_weight = float(weight.sum())
        self.active = torch.from_numpy(np.flatnonzero(weight > 0)).to(device)
        self.number = torch.zeros(len(weight), dtype=torch.int64, device=device)
        self.number[self.active] = torch.arange(1, 1 + len(self.active), device=device)
        self.width = module.weight.shape[1] + intercept
        self._kept: list[list[AnnotatorGroup]] | None = None
        if 2 * 8 * batches.table.n_annotations * self.width <= RESIDENT_BYTES:
            whole = replace(batches, batch_size=len(batches.instances))
            self._kept = [self._read(batch) for batch in whole.in_order()]

    def __iter__(self) -> Iterator[list[AnnotatorGroup]]:
        return iter(self._kept) if self._kept else map(self._read, self.batches.in_order())

    def _read(self, batch: CrowdBatch) -> list[AnnotatorGroup]:
        x = self.module.embed(batch.x).double()
        if self.intercept:
            x = F.pad(x, (0, 1), value=1.0)
        return group_annotators(x, batch._replace(annotators=self.number[batch.annotators]))


INNER_ITERATIONS = 25
"""Maximum number of L-BFGS steps per iteration of ADMM; the next iteration continues from there."""
BALANCING = 100
"""Iterations in which the step size is adapted to the residuals; it is fixed later to converge."""


def n_weight_columns(n_classes: int) -> int:
    """Count the columns of weights; two classes share one, as published."""
    return 1 if n_classes == 2 else n_classes


class ADMMStep:
    """One iteration of ADMM on the convex problem of personal classifiers [1]_.

    The problem is split into classifiers W and the differences U between all pairs, U = DW. Each
    iteration minimises the augmented Lagrangian over W by L-BFGS, then over U by group soft
    thresholding, and moves the scaled multipliers Phi by the residual DW - U [2]_. For the pairs
    only V = DW + Phi is stored: U is V after soft thresholding, and Phi is what that removed.

    Parameters
    ----------
    module : AnnotatorHeadsModule
        Gets the weights after each iteration.
    examples : Examples
    fusion, ridge : float
    rho : float or None
    tol : float

    Attributes
    ----------
    weights : tensor of shape (1 + n_active_annotators, width, n_columns)
        W; the target comes first.
    pairs : tensor of shape (n_pairs, width, n_columns)
        V.
    residuals : list of (float, float)
        Relative primal and dual residual of each iteration.
    """

    def __init__(
        self,
        module: AnnotatorHeadsModule,
        examples: Examples,
        *,
        fusion: float,
        ridge: float,
        rho: float | None,
        tol: float,
    ) -> None:
        self.module = module
        self.examples = examples
        self.fusion = fusion / len(examples.active)
        self.ridge = ridge
        self.adaptive = rho is None
        self.tol = tol
        n, width = 1 + len(examples.active), examples.width
        n_columns = n_weight_columns(module.n_classes)
        device = module.weight.device
        shape = (n, width, n_columns)
        self.weights = torch.zeros(shape, dtype=torch.float64, device=device, requires_grad=True)
        n_pairs = n * (n - 1) // 2 if fusion else 0
        self.pairs = self.weights.detach().new_zeros((n_pairs, width, n_columns))
        self.pull = torch.zeros_like(self.weights.detach())  # D'(U - Phi)
        # The curvature of a logistic loss is at most 1/4; that of the pairs is rho n.
        curvature = 0.25 * examples.total_weight / (n - 1)
        self.rho = 0.0 if not fusion else curvature / n if rho is None else float(rho)
        self.residuals: list[tuple[float, float]] = []
        self.gradient_scale: float | None = None

    @torch.no_grad()
    def start_from_module(self) -> None:
        """Start from the module's weights and their differences, with multipliers of 0."""
        module, first = self.module, self.module.n_classes - self.weights.shape[2]
        head: Any = module.classifier.backbone.head
        active = self.examples.active
        kernels = torch.cat([head.weight.t()[None], module.weight[active]])
        if self.examples.intercept:
            constant = torch.cat([head.bias[None], module.bias[active]])
            kernels = torch.cat([kernels, constant[:, None]], dim=1)
        self.weights.copy_(kernels[:, :, first:])
        for i, pairs in self._blocks() if self.rho else ():
            difference = self.weights[i] - self.weights[i + 1 :]
            pairs.copy_(difference)
            add_pairs(self.pull, i, difference)

    @property
    def converged(self) -> bool:
        """Whether the residuals of the last iteration are within the tolerance."""
        return bool(self.residuals) and max(self.residuals[-1]) <= self.tol

    def start_epoch(self, epoch: int) -> None:
        """Do nothing: an epoch needs no preparation."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state on which the next iteration depends."""
        names = ("weights", "pairs", "pull", "rho", "residuals", "gradient_scale")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for name in ("weights", "pairs", "pull"):
            getattr(self, name).data.copy_(state[name])
        self.rho, self.gradient_scale = state["rho"], state["gradient_scale"]
        self.residuals = [(primal, dual) for primal, dual in state["residuals"]]

    def __call__(self, batch: None) -> dict[str, Tensor]:
        """Run one iteration and return the terms of the objective."""
        before = self.weights.detach().clone()
        self._minimize_over_weights()
        self.residuals.append(self._update_pairs() if self.rho else self._change_of_weights(before))
        self._copy_into_module()
        with torch.no_grad():
            nll = fusion = self.weights.new_zeros(())
            for groups in self.examples:
                nll = nll + personal_nll(self.weights, groups)
            if self.fusion:
                fusion = self.fusion * fusion_norm(self.weights)
            return {"nll": nll, "ridge": self._ridge(self.weights), "fusion": fusion}

    def _ridge(self, weights: Tensor) -> Tensor:
        return 0.5 * self.ridge * weights[0].square().sum()

    def _evaluate(self) -> Tensor:
        """Compute the augmented Lagrangian at the weights, and its gradient in ``.grad``.

        Up to a constant, the sum over pairs of |w_i - w_j - u_ij + phi_ij|^2 needs no pairs.
        """
        weights = self.weights
        weights.grad = None
        spread = len(weights) * weights.square().sum() - weights.sum(dim=0).square().sum()
        loss = self._ridge(weights) + self.rho * (0.5 * spread - (weights * self.pull).sum())
        loss.backward()  # type: ignore[no-untyped-call]
        total = loss.detach()
        for groups in self.examples:
            nll = personal_nll(weights, groups)
            nll.backward()  # type: ignore[no-untyped-call]
            total = total + nll.detach()
        return total

    def _minimize_over_weights(self) -> None:
        if self.gradient_scale is None:
            self._evaluate()
            assert self.weights.grad is not None
            scale = float(self.weights.grad.abs().max())
            self.gradient_scale = min(scale, self.fusion * len(self.weights) or scale)
        error = min(1.0, *self.residuals[-1]) if self.residuals else 1.0
        optimizer = torch.optim.LBFGS(
            [self.weights],
            max_iter=INNER_ITERATIONS,
            history_size=20,
            # The error of this step must be small compared with the residuals.
            tolerance_grad=0.1 * max(self.tol, 0.1 * error) * self.gradient_scale,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )
        optimizer.step(self._evaluate)  # type: ignore[no-untyped-call]
        self.weights.grad = None

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield i and the pairs (i, i + 1), ..., (i, n - 1), a view."""
        n = len(self.weights)
        starts = np.cumsum([0, *range(n - 1, 0, -1)]).tolist()
        for i, (start, end) in enumerate(pairwise(starts)):
            yield i, self.pairs[start:end]

    @torch.no_grad()
    def _update_pairs(self) -> tuple[float, float]:
        """Update U and Phi, and return the relative primal and dual residual ([2]_, 3.3)."""
        weights, rho = self.weights, self.rho
        threshold = self.fusion / rho
        differences = gaps = shrunk = torch.zeros((), dtype=torch.float64, device=weights.device)
        moved, multiplier, pull = (torch.zeros_like(weights) for _ in range(3))
        for i, pairs in self._blocks():
            difference = weights[i] - weights[i + 1 :]
            old = group_soft_threshold(pairs, threshold)
            pairs += difference - old
            new = group_soft_threshold(pairs, threshold)
            gaps = gaps + (difference - new).square().sum()
            differences = differences + difference.square().sum()
            shrunk = shrunk + new.square().sum()
            add_pairs(moved, i, new - old)
            add_pairs(multiplier, i, pairs - new)
            add_pairs(pull, i, 2 * new - pairs)
        self.pull = pull
        # If all classifiers are fused, the differences are 0, and the weights give the scale.
        scale = torch.stack([differences, shrunk, len(weights) * weights.square().sum()]).max()
        primal = _ratio(gaps.sqrt(), scale.sqrt())
        dual = _ratio(torch.linalg.vector_norm(moved), torch.linalg.vector_norm(multiplier))
        if self.adaptive and len(self.residuals) < BALANCING:
            self._balance_step_size(primal, dual, multiplier)
        return primal, dual

    def _balance_step_size(self, primal: float, dual: float, multiplier: Tensor) -> None:
        """Double or halve rho if one residual exceeds 10 times the other ([2]_, 3.4.1)."""
        factor = 2.0 if primal > 10 * dual else 0.5 if dual > 10 * primal else 1.0
        if factor == 1.0:
            return
        threshold = self.fusion / self.rho
        # The multipliers are scaled by 1 / rho; U stays the same.
        for _, pairs in self._blocks():
            new = group_soft_threshold(pairs, threshold)
            pairs.sub_(new).div_(factor).add_(new)
        self.pull += multiplier * (1 - 1 / factor)
        self.rho *= factor

    def _change_of_weights(self, before: Tensor) -> tuple[float, float]:
        """Return the residuals without fusion: 0, and the relative change of the weights."""
        weights = self.weights.detach()
        return 0.0, _ratio(
            torch.linalg.vector_norm(weights - before), torch.linalg.vector_norm(weights)
        )

    @torch.no_grad()
    def _copy_into_module(self) -> None:
        """Copy the weights into the module; annotators without annotations get the target's."""
        module, examples = self.module, self.examples
        # The first of two classes has logit 0.
        full = F.pad(self.weights, (module.n_classes - self.weights.shape[2], 0)).float()
        constant = full[:, -1] if examples.intercept else torch.zeros_like(full[:, 0])
        kernels = full[:, :-1] if examples.intercept else full
        head: Any = module.classifier.backbone.head
        head.weight.copy_(kernels[0].t())
        head.bias.copy_(constant[0])
        module.weight.copy_(kernels[examples.number])
        module.bias.copy_(constant[examples.number])


def add_pairs(total: Tensor, i: int, values: Tensor) -> None:
    """Add to a total D' applied to the values of the pairs (i, i + 1), (i, i + 2), ..."""
    total[i] += values.sum(dim=0)
    total[i + 1 :] -= values


def _ratio(part: Tensor, whole: Tensor) -> float:
    """Divide two norms; 0 / 0 is 0."""
    return float(part / whole.clamp_min(torch.finfo(whole.dtype).tiny))


class StopWhenConverged(Callback):
    """End the stage when ADMM has converged."""

    def __init__(self, step: ADMMStep) -> None:
        self.step = step

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool:
        """Return whether the residuals are within the tolerance."""
        return self.step.converged
