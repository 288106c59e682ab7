"""Personal classifiers: one linear classifier per annotator, pulled together, and a target one.

.. [1] H. Kajino, Y. Tsuboi and H. Kashima. Clustering crowds. AAAI 2013.
   https://doi.org/10.1609/aaai.v27i1.8581
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.doctor_net import annotation_weight
from manyhands.classifiers.personal.admm import (
    ADMMStep,
    Examples,
    StopWhenConverged,
    n_weight_columns,
)
from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.parameters import FIXED_LENGTH
from manyhands.nn import AnnotatorHeadsModule, ScaledClassifier
from manyhands.training import BestState, Callback, Stage
from manyhands.typing import FloatArray

PAIR_BYTES = 2 << 30
"""Maximum memory for the differences between all pairs of classifiers: 2 GiB."""

PersonalFit = Fit[AnnotatorHeadsModule, ADMMStep]


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
    rho : float or None, default=None
        Step size of ADMM. None starts from a guess and balances the residuals for 100 iterations.
    tol : float, default=1e-3
        Stop when both residuals, relative to the size of what they compare, are at most this.
    max_epochs : int, default=200
        Iterations of ADMM, each with up to 25 steps of L-BFGS.
    batch_size : int, default=1024
        Number of instances read at once if they do not all fit into 1 GiB. It does not change the
        result.
    class_balance, scaling, device, random_state, verbose, validation, monitor, patience, \
checkpoint, callbacks
        See `BaseCrowdClassifier`. "focal" and "cb_focal" are refused, because the problem would no
        longer be convex. "resample" and "reweight" count annotations more than once. Random
        numbers are drawn for "resample" and ``validation`` only.

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

    `partial_fit` starts ADMM from the classifiers of before, those of new annotators from the mean
    of the others, and ends at the minimum that `fit` on everything finds. Features stay scaled as
    by the last training from scratch.

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

    _devices_refusal = "solves for its weights over all instances at once (ADMM)"
    _length_refusal = "an epoch is an iteration of the solver, which ends by tol"
    _start_refusal = "ends at the one minimum"
    _parameter_constraints = {
        **{
            name: constraint
            for name, constraint in BaseCrowdClassifier._parameter_constraints.items()
            if name not in {"backbone", "lr", "weight_decay", "reset_optimizer"}
        },
        **FIXED_LENGTH,
        "fusion": [Interval(Real, 0, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "rho": [None, Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _fitted_arrays = (
        *BaseCrowdClassifier._fitted_arrays,
        "coef_",
        "intercept_",
        "annotator_coef_",
        "annotator_intercept_",
        "residuals_",
    )
    _crowd_check_exemptions = {
        "check_every_parameter_moves": "L-BFGS has no learning rate to hold parameters still with",
        "check_user_network": "linear classifiers only: with another backbone it is not convex",
        "check_class_balance": "focal losses are refused: with them it is not convex",
    }
    _protocol_parameters = ("scaling",)

    fusion: float = 10.0
    ridge: float = 0.1
    fit_intercept: bool = True
    rho: float | None = None
    tol: float = 1e-3
    max_epochs: int = 200
    batch_size: int = 1024
    # A convex problem has no use for them: they are no parameters of this class.
    lr: float = field(default=math.nan, init=False)
    weight_decay: float = field(default=math.nan, init=False)
    reset_optimizer: bool = field(default=False, init=False)

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> AnnotatorHeadsModule:
        module = AnnotatorHeadsModule(
            classifier, len(self.classes_), self.n_annotators_, input_shape=input_shape
        )
        for parameter in module.parameters():
            torch.nn.init.zeros_(parameter)
        return module.requires_grad_(False)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._focus:
            raise AnnotationError(
                f"class_balance={self.class_balance!r} changes the loss, and PersonalClassifier's "
                "would no longer be convex; use 'resample' or 'reweight'"
            )

    def _prepare(self, fit: PersonalFit) -> ADMMStep:
        self._check_size(fit)
        step = ADMMStep(
            fit.module,
            Examples(fit.module, fit.batches, intercept=self.fit_intercept),
            fusion=self.fusion,
            ridge=self.ridge,
            rho=self.rho,
            tol=self.tol,
        )
        if fit.earlier is not None:
            step.start_from_module()
        return step

    def _check_size(self, fit: PersonalFit) -> None:
        """Refuse a problem whose differences between pairs take more than `PAIR_BYTES`."""
        n_columns = n_weight_columns(len(self.classes_))
        width = fit.module.weight.shape[1] + self.fit_intercept
        n = 1 + int((annotation_weight(fit.table) > 0).sum())
        size = 8 * width * n_columns * n * (n - 1) // 2
        if self.fusion and size > PAIR_BYTES:
            raise AnnotationError(
                f"y has {n - 1} annotators and X {width} weights for each of {n_columns} outputs: "
                f"the differences of all pairs take {size / 2**30:.1f} GiB, more than "
                f"{PAIR_BYTES / 2**30:g}. Leave annotators with few annotations out "
                "(table.select(annotators=...)), or reduce X (PCA)"
            )

    def _balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable:
        """Keep the weights as they are: an annotation of weight 2 counts as two annotations."""
        return table if self._balance is None else self._balance.balanced(table, rng)

    def _stages(self, fit: PersonalFit) -> list[Stage]:
        """Return one stage, in which an epoch is one iteration of ADMM over all annotations."""
        return [Stage("train", fit.state, lambda epoch: [None], self.max_epochs)]

    def _callbacks(self, fit: PersonalFit) -> tuple[list[Callback], BestState | None]:
        callbacks, best = super()._callbacks(fit)
        return [*callbacks, StopWhenConverged(fit.state)], best

    def _set_fitted(self, fit: PersonalFit) -> None:
        module = fit.module
        # Of two classes, the first has weights of zero, which are left out.
        first = len(self.classes_) - n_weight_columns(len(self.classes_))
        target: Any = module.classifier.backbone.head
        self.coef_ = _to_numpy(target.weight[first:])
        self.intercept_ = _to_numpy(target.bias[first:])
        self.annotator_coef_ = _to_numpy(module.weight[:, :, first:].transpose(1, 2))
        self.annotator_intercept_ = _to_numpy(module.bias[:, first:])
        self.residuals_ = np.array(fit.state.residuals)
        parts = ((batch.x, batch.rows, batch.annotators) for batch in fit.batches.in_order())
        self.confusion_ = _to_numpy(module.expected_confusion(parts))


def _to_numpy(values: Tensor) -> FloatArray:
    return values.double().cpu().numpy().copy()
