"""Anno-Reg: confusion matrices learnt with a classifier, of as little trace as fits.

.. [1] R. Tanno, A. Saeedi, S. Sankaranarayanan, D. C. Alexander and N. Silberman. Learning from
   noisy labels by regularized estimation of annotator confusion. CVPR 2019.
   https://doi.org/10.1109/CVPR.2019.01150
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.nn import PARAMETRIZATIONS, ConfusionModule, ScaledClassifier
from manyhands.objectives import trace_objective
from manyhands.training import AnnotationBatches, CrowdBatch, Features


class TraceRegClassifier(BaseCrowdClassifier):
    r"""Learn a classifier and every annotator's confusion matrix, by likelihood (Anno-Reg) [1]_.

    The classifier's probabilities p(x) pass through annotator r's confusion matrix,
    :math:`p_r = p(x) W_r`; the loss is the cross entropy of the observed annotations plus
    :math:`\lambda` times the mean trace of the matrices. Annotators are so taken to be as
    unreliable as their annotations allow, lest the classifier explains their mistakes.

    Parameters
    ----------
    backbone, max_epochs, batch_size, lr, weight_decay, reset_optimizer, class_balance, \
scaling, device, random_state, verbose, validation, patience, checkpoint
        See `BaseCrowdClassifier`.
    trace_weight : float, default=0.01
        :math:`\lambda`.
    parametrization : {"softplus", "softmax", "column_softmax"}, default="softplus"
        How a matrix is made of free numbers: softplus divided by the row's sum, as in [1]_, or
        the softmax of every row. "column_softmax" is DASC's Eq. 10 and 8 to the letter: softmax
        of every column, and a softmax of :math:`p(x) W_r`; W is then no confusion matrix, and
        ``confusion_`` is read through the second softmax.
    init_scale : float, default=6.0
        The free numbers start at this multiple of the identity ("softplus": less 5 everywhere),
        which makes right annotations very probable; without that, the classes could be permuted.
    noise_lr : float or None, default=1e-2
        Learning rate of all but the classifier, without weight decay. None trains everything at
        ``lr`` with ``weight_decay``, as the papers do.

    Attributes
    ----------
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        :math:`W_r`: [annotator, true, given].

    Notes
    -----
    The mean trace is over the annotators with annotations: there is nothing to hold the matrix
    of a silent one against the penalty, and it stays where it starts. A batch estimates it from
    its own annotators, rare ones counting more. ``history_`` logs ``nll`` and ``trace`` (with its
    weight). Differences from the paper are numbered in ``docs/methods/trace_reg.md``.

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

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseCrowdClassifier._parameter_constraints,
        "trace_weight": [Interval(Real, 0, None, closed="left")],
        "parametrization": [StrOptions(set(PARAMETRIZATIONS))],
        "init_scale": [Interval(Real, 0, None, closed="neither")],
        "noise_lr": [None, Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        backbone: Any = None,
        *,
        trace_weight: float = 0.01,
        parametrization: str = "softplus",
        init_scale: float = 6.0,
        max_epochs: int = 50,
        batch_size: int = 128,
        lr: float = 1e-3,
        noise_lr: float | None = 1e-2,
        weight_decay: float = 5e-4,
        reset_optimizer: bool = False,
        class_balance: Any = None,
        scaling: str | None = "standard",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        validation: Any = None,
        patience: int | None = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.backbone = backbone
        self.trace_weight = trace_weight
        self.parametrization = parametrization
        self.init_scale = init_scale
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.noise_lr = noise_lr
        self.weight_decay = weight_decay
        self.reset_optimizer = reset_optimizer
        self.class_balance = class_balance
        self.scaling = scaling
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.validation = validation
        self.patience = patience
        self.checkpoint = checkpoint

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> ConfusionModule:
        return ConfusionModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            parametrization=self.parametrization,
            init_scale=self.init_scale,
        )

    def _prepare(
        self,
        table: AnnotationTable,
        features: Features,
        module: ConfusionModule,
        rng: np.random.Generator,
    ) -> None:
        counts = table.annotations_per_annotator()
        # The mean of these over all annotations, times traces, is the mean trace of annotators.
        rarity = table.n_annotations / (np.maximum(counts, 1) * np.count_nonzero(counts))
        self._rarity = torch.tensor(rarity, dtype=torch.float32).to(features.device)

    def _objective(self, module: ConfusionModule, batch: CrowdBatch) -> dict[str, Tensor]:
        return trace_objective(
            module, batch, self._rarity, trace_weight=self.trace_weight, focus=self._focus
        )

    def _set_fitted(self, module: ConfusionModule, batches: AnnotationBatches) -> None:
        del self._rarity
        self.confusion_ = module.confusion().double().cpu().numpy()
