"""Anno-Reg: a classifier trained jointly with confusion matrices whose trace is penalised.

.. [1] R. Tanno, A. Saeedi, S. Sankaranarayanan, D. C. Alexander and N. Silberman. Learning from
   noisy labels by regularized estimation of annotator confusion. CVPR 2019.
   https://doi.org/10.1109/CVPR.2019.01150
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.method_protocol import NoiseProtocol, ProtocolOf
from manyhands.nn import PARAMETRIZATIONS, ConfusionModule, ScaledClassifier
from manyhands.objectives import trace_objective
from manyhands.training import CrowdBatch


@dataclass(frozen=True, kw_only=True, repr=False)
class TraceRegProtocol(NoiseProtocol):
    """Protocol of `TraceRegClassifier`: parametrisation and initial values of its matrices.

    Parameters
    ----------
    reset_optimizer, monitor, patience, noise_lr
        See `manyhands.fitting.method_protocol.NoiseProtocol`.
    parametrization : {"softplus", "softmax", "column_softmax"}, default="softplus"
        How a matrix is computed from free parameters. "softplus" divides the softplus by the row
        sum, as in the paper; "softmax" takes the softmax of every row. "column_softmax" follows
        DASC's Eq. 10 and 8 literally: the softmax of every column, and a softmax of
        :math:`p(x) W_r`. W is then not a confusion matrix, and ``confusion_`` is computed through
        the second softmax.
    init_scale : float, default=6.0
        Initial multiple of the identity in the free parameters (for "softplus", minus 5
        everywhere), which makes correct annotations very probable. Without it the classes are not
        identifiable: they could be permuted.
    """

    _constraints = {
        **NoiseProtocol._constraints,
        "parametrization": [StrOptions(set(PARAMETRIZATIONS))],
        "init_scale": [Interval(Real, 0, None, closed="neither")],
    }

    parametrization: str = "softplus"
    init_scale: float = 6.0


@dataclass(kw_only=True, eq=False, repr=False)
class TraceRegClassifier(BaseCrowdClassifier):
    r"""Learn a classifier and every annotator's confusion matrix, by likelihood (Anno-Reg) [1]_.

    The classifier's probabilities p(x) pass through annotator r's confusion matrix,
    :math:`p_r = p(x) W_r`; the loss is the cross entropy of the observed annotations plus
    :math:`\lambda` times the mean trace of the matrices. The penalty makes annotators as unreliable
    as their annotations allow, so that the classifier does not fit their mistakes.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`.
    trace_weight : float, default=0.01
        :math:`\lambda`.
    protocol : TraceRegProtocol or None, default=None
        Variants and details of published experiments; None means `TraceRegProtocol()`.

    Attributes
    ----------
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        :math:`W_r`: [annotator, true, given].

    Notes
    -----
    The mean trace is over the annotators with annotations. Without annotations nothing would
    counteract the penalty, so such a matrix is not penalised and stays at its start. A batch
    estimates the mean from its own annotators, with larger weights for rare ones. ``history_`` logs
    ``nll`` and ``trace`` (with its weight). Differences from the paper are numbered in
    ``docs/methods/trace_reg.md``.

    References
    ----------
    .. [1] Tanno, Saeedi, Sankaranarayanan, Alexander & Silberman, Learning from noisy labels by
       regularized estimation of annotator confusion, CVPR 2019.

    Examples
    --------
    >>> from manyhands import TraceRegClassifier, load_demo
    >>> demo = load_demo()
    >>> model = TraceRegClassifier(max_epochs=2, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).confusion_.shape
    (30, 10, 10)
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "trace_weight": [Interval(Real, 0, None, closed="left")],
    }

    backbone: Any = field(default=None, kw_only=False)
    trace_weight: float = 0.01
    protocol: TraceRegProtocol | None = None

    _protocol = ProtocolOf(TraceRegProtocol)

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> ConfusionModule:
        return ConfusionModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            parametrization=self._protocol.parametrization,
            init_scale=self._protocol.init_scale,
        )

    def _prepare(self, fit: Fit[ConfusionModule, Tensor]) -> Tensor:
        """Return the weights that turn a mean over annotations into a mean over annotators."""
        counts = fit.table.annotations_per_annotator()
        rarity = fit.table.n_annotations / (np.maximum(counts, 1) * np.count_nonzero(counts))
        return torch.tensor(rarity, dtype=fit.features.dtype).to(fit.features.device)

    def _objective(self, fit: Fit[ConfusionModule, Tensor], batch: CrowdBatch) -> dict[str, Tensor]:
        return trace_objective(
            fit.module, batch, fit.state, trace_weight=self.trace_weight, focus=fit.recipe.focus
        )

    def _read_out(self, fit: Fit[ConfusionModule, Tensor]) -> dict[str, Any]:
        return {"confusion_": fit.module.confusion().double().cpu().numpy()}
