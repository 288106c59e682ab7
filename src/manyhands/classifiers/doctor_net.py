"""Doctor Net: a head an annotator on a shared trunk; the mean of what they say.

.. [1] M. Y. Guan, V. Gulshan, A. M. Dai and G. E. Hinton. Who said what: modeling individual
   labelers improves classification. AAAI 2018. https://doi.org/10.1609/aaai.v32i1.11756
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.nn import DoctorNetModule, ScaledClassifier
from manyhands.objectives import annotator_average_nll
from manyhands.training import (
    BestState,
    Callback,
    CrowdBatch,
    EarlyStopping,
    GradientStep,
    Stage,
)
from manyhands.typing import FloatArray

HEADS, WEIGHTS = "heads", "weights"

DoctorNetFit = Fit[DoctorNetModule, None]


@dataclass(kw_only=True, eq=False, repr=False)
class DoctorNetClassifier(BaseCrowdClassifier):
    r"""Model every annotator by a head of its own, and average the heads [1]_.

    A trunk all annotators share and a linear head each predict what each annotator would say;
    the cross entropy of the observed annotations trains them (stage ``heads``). The true class is
    what they would say on average: :math:`p(x) = \sum_r \omega_r \, \mathrm{softmax}(h_r(f(x)))`,
    with equal weights (Doctor Net), or with weights :math:`\omega = \mathrm{softmax}(w)` learnt in
    a second stage (``weights``), trunk and heads frozen, to match the mean annotation of each
    instance (Weighted Doctor Net).

    Parameters
    ----------
    backbone, max_epochs, batch_size, lr, weight_decay, reset_optimizer, class_balance, \
scaling, device, random_state, verbose, validation, patience, checkpoint
        See `BaseCrowdClassifier`. The heads sit on the backbone's embedding; a network of yours
        without ``embed()`` is the trunk as a whole, its output the embedding.
    weighting : {"average", "learned"}, default="average"
        Doctor Net, or Weighted Doctor Net.
    exclude_own : bool, default=True
        While the weights are learnt, leave out the heads of those who annotated an instance: they
        have learnt those very labels. Where nobody else is there, all count.
    weight_epochs : int, default=50
        Epochs of the second stage.
    weight_lr : float, default=1e-1
        Learning rate of Adam in the second stage, without weight decay.

    Attributes
    ----------
    weights_ : array of shape (n_annotators,)
        Weight of every annotator's head in the mean; they sum to 1, and are 0 for annotators
        without annotations.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Expected confusion: row c is the mean of what the annotator's head gives for the instances
        the annotator labelled, each weighted by the probability p(x) that its class is c.
        Annotators without annotations get that of all annotations together.

    Notes
    -----
    ``history_`` logs ``nll`` in stage ``heads`` and ``average_nll`` in stage ``weights``. An
    annotator without annotations is expected to say what the others say on average.

    With ``validation`` as a fraction of the annotations, the heads that explain these best are
    kept, and the weights are learnt on top of them, without early stopping (the weights do not
    change how an annotation is explained); with gold labels, the second stage starts at the most
    accurate heads, and the most accurate epoch of both stages is kept.

    References
    ----------
    .. [1] Guan, Gulshan, Dai & Hinton, Who said what: modeling individual labelers improves
       classification, AAAI 2018.

    Examples
    --------
    >>> from manyhands import DoctorNetClassifier, load_demo
    >>> demo = load_demo()
    >>> model = DoctorNetClassifier(weighting="learned", max_epochs=2, weight_epochs=2)
    >>> model.fit(demo.X_train, demo.annotations).weights_.shape == model.annotators_.shape
    True
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "weighting": [StrOptions({"average", "learned"})],
        "exclude_own": ["boolean"],
        "weight_epochs": [Interval(Integral, 1, None, closed="left")],
        "weight_lr": [Interval(Real, 0, None, closed="neither")],
    }
    _fitted_arrays = (*BaseCrowdClassifier._fitted_arrays, "weights_")

    backbone: Any = field(default=None, kw_only=False)
    weighting: str = "average"
    exclude_own: bool = True
    weight_epochs: int = 50
    weight_lr: float = 1e-1

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> DoctorNetModule:
        return DoctorNetModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            input_shape=input_shape,
            learned=self.weighting == "learned",
        )

    def _prepare(self, fit: DoctorNetFit) -> None:
        fit.module.active.copy_(torch.from_numpy(annotation_weight(fit.table) > 0))

    def _stages(self, fit: DoctorNetFit) -> list[Stage]:
        """Heads; then, where they are learnt, the weights."""
        (heads,) = super()._stages(fit)
        stages = [replace(heads, name=HEADS)]
        if self.weighting == "learned":
            weights = _FrozenNetworkStep(
                fit.module,
                self._average_objective,
                lambda: torch.optim.Adam([fit.module.weight_logits], lr=self.weight_lr),
                reset_every_epoch=self.reset_optimizer,
            )
            stages.append(Stage(WEIGHTS, weights, fit.batches.epoch, self.weight_epochs))
        return stages

    def _average_objective(self, module: DoctorNetModule, batch: CrowdBatch) -> dict[str, Tensor]:
        return annotator_average_nll(module, batch, exclude_own=self.exclude_own, focus=self._focus)

    def _callbacks(self, fit: DoctorNetFit) -> tuple[list[Callback], BestState | None]:
        callbacks, best = super()._callbacks(fit)
        if best is None or self.weighting == "average":
            return callbacks, best
        kept = _BestHeads(fit.module, best.metric, higher_is_better=best.sign > 0)
        callbacks[callbacks.index(best)] = kept
        for place, callback in enumerate(callbacks):
            if fit.held is not None and isinstance(callback, EarlyStopping):
                callbacks[place] = _StopHeads(
                    callback.metric, higher_is_better=False, patience=callback.patience
                )
        return callbacks, kept

    def _set_fitted(self, fit: DoctorNetFit) -> None:
        parts = ((batch.x, batch.rows, batch.annotators) for batch in fit.batches.in_order())
        self.confusion_ = fit.module.expected_confusion(parts).cpu().numpy()
        self.weights_ = fit.module.log_weights().double().exp().cpu().numpy()


def annotation_weight(table: AnnotationTable) -> FloatArray:
    """Sum of the weights of every annotator's annotations, shape (n_annotators,)."""
    total = np.bincount(table.annotator, weights=table.weight, minlength=table.n_annotators)
    return total.astype(np.float64)


class _FrozenNetworkStep(GradientStep):
    """Gradient steps on a network that otherwise behaves as in prediction."""

    def start_epoch(self, epoch: int) -> None:
        """Put the module into evaluation mode: no dropout, no moving batch statistics."""
        super().start_epoch(epoch)
        self.module.eval()


class _BestHeads(BestState):
    """The best epoch of the heads, with the weights that are then learnt on top of it.

    Held-out annotations are explained by the heads alone, so their likelihood cannot choose among
    epochs of the weights: the last is kept. Accuracy on gold labels can, and does.
    """

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Begin the second stage at the best heads."""
        if name == WEIGHTS and not first_epoch:
            self.restore()

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Remember the state if it is better, or has newer weights."""
        if row["stage"] == WEIGHTS and self.metric == "validation_nll":
            self.best["module"] = copy.deepcopy(self.module.state_dict())
        else:
            super().after_epoch(row)


class _StopHeads(EarlyStopping):
    """Early stopping of the first stage only; see `_BestHeads`."""

    stage = HEADS

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Note which stage runs."""
        self.stage = name
        super().before_stage(name, max_epochs, first_epoch)

    @property
    def should_stop(self) -> bool:  # type: ignore[override]
        """Tell whether the first stage has used up its patience."""
        return self.stage == HEADS and super().should_stop
