"""Doctor Net: one head per annotator on a shared trunk, and the mean of their predictions.

.. [1] M. Y. Guan, V. Gulshan, A. M. Dai and G. E. Hinton. Who said what: modeling individual
   labelers improves classification. AAAI 2018. https://doi.org/10.1609/aaai.v32i1.11756
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.annotations import AnnotationTable
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.traits import ANNOTATOR_ARRAYS, Traits
from manyhands.nn import DoctorNetModule, ScaledClassifier
from manyhands.objectives import annotator_average_nll
from manyhands.training import (
    BestState,
    Callback,
    EarlyStopping,
    GradientStep,
    Stage,
)
from manyhands.typing import FloatArray

HEADS, WEIGHTS = "heads", "weights"

DoctorNetFit = Fit[DoctorNetModule, None]


@dataclass(frozen=True, kw_only=True, repr=False)
class DoctorNetProtocol(MethodProtocol):
    """Protocol of `DoctorNetClassifier`: training of the weights of its heads.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    exclude_own : bool, default=True
        While the weights are learnt, leave out the heads of an instance's own annotators, because
        these heads were trained on that very instance. If no other head remains, all heads count.
    weight_epochs : int, default=50
        Epochs of the second stage.
    weight_lr : float, default=1e-1
        Learning rate of Adam in the second stage, without weight decay.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "exclude_own": ["boolean"],
        "weight_epochs": [Interval(Integral, 1, None, closed="left")],
        "weight_lr": [Interval(Real, 0, None, closed="neither")],
    }

    exclude_own: bool = True
    weight_epochs: int = 50
    weight_lr: float = 1e-1


@dataclass(kw_only=True, eq=False, repr=False)
class DoctorNetClassifier(BaseCrowdClassifier):
    r"""Model every annotator by a separate head, and average the heads [1]_.

    A shared trunk with one linear head per annotator predicts each annotator's annotation. The
    cross entropy of the observed annotations trains them (stage ``heads``). The prediction of the
    true class is the mean over annotators,
    :math:`p(x) = \sum_r \omega_r \, \mathrm{softmax}(h_r(f(x)))`. Doctor Net uses equal weights.
    Weighted Doctor Net learns weights :math:`\omega = \mathrm{softmax}(w)` in a second stage
    (``weights``), with trunk and heads frozen, to match the mean annotation of each instance.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. The heads sit on the backbone's embedding. If
        your own network has no ``embed()``, all of it is the trunk and its output is the embedding.
    weighting : {"average", "learned"}, default="average"
        Doctor Net, or Weighted Doctor Net.
    protocol : DoctorNetProtocol or None, default=None
        Variants and details of published experiments; None means `DoctorNetProtocol()`.

    Attributes
    ----------
    weights_ : array of shape (n_annotators,)
        Weight of every annotator's head in the mean. The weights sum to 1 and are 0 for annotators
        without annotations.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Expected confusion: row c is the mean output of the annotator's head for the instances that
        the annotator labelled, each weighted by the probability p(x) that its class is c.
        Annotators without annotations get the matrix of all annotations together.

    Notes
    -----
    ``history_`` logs ``nll`` in stage ``heads`` and ``average_nll`` in stage ``weights``. An
    annotator without annotations is predicted by the average of the others.

    With ``validation``, the second stage starts from the heads kept from the first stage, and the
    epoch is chosen from both stages. With ``monitor="likelihood"`` in the protocol, the heads under
    which the held-out annotations are most likely are kept. The weights are then learnt on top of
    these heads without early stopping, because the weights do not change the likelihood of an
    annotation.

    References
    ----------
    .. [1] Guan, Gulshan, Dai & Hinton, Who said what: modeling individual labelers improves
       classification, AAAI 2018.

    Examples
    --------
    >>> from manyhands import DoctorNetClassifier, load_demo
    >>> demo = load_demo()
    >>> model = DoctorNetClassifier(weighting="learned", max_epochs=2)
    >>> model = model.set_params(protocol__weight_epochs=2)
    >>> model.fit(demo.X_train, demo.annotations).weights_.shape == model.annotators_.shape
    True
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "weighting": [StrOptions({"average", "learned"})],
    }

    backbone: Any = field(default=None, kw_only=False)
    weighting: str = "average"
    protocol: DoctorNetProtocol | None = None

    _protocol = ProtocolOf(DoctorNetProtocol)

    @property
    def _traits(self) -> Traits:
        return Traits(
            predicts_by_backbone=False,
            trains_once=self.weighting != "learned",
            saved=(*ANNOTATOR_ARRAYS, "weights_"),
        )

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
        """Return a stage for the heads, and one for the weights if they are learnt."""
        (heads,) = super()._stages(fit)
        stages = [replace(heads, name=HEADS)]
        if self.weighting == "learned":
            weights = _FrozenNetworkStep(
                fit.module,
                partial(
                    annotator_average_nll,
                    exclude_own=self._protocol.exclude_own,
                    focus=fit.recipe.focus,
                ),
                lambda: torch.optim.Adam([fit.module.weight_logits], lr=self._protocol.weight_lr),
                reset_every_epoch=fit.recipe.reset_optimizer,
            )
            n_epochs = self._protocol.weight_epochs
            if fit.earlier is not None:
                n_epochs = fit.earlier.epochs(n_epochs)
            stages.append(Stage(WEIGHTS, weights, fit.batches.epoch, n_epochs))
        return stages

    def _callbacks(self, fit: DoctorNetFit) -> tuple[list[Callback], BestState | None]:
        callbacks, best = super()._callbacks(fit)
        if best is None or self.weighting == "average":
            return callbacks, best
        best_heads = _BestHeads(
            fit.module, best.metric, higher_is_better=best.sign > 0, values=best.values
        )
        callbacks[callbacks.index(best)] = best_heads
        for place, callback in enumerate(callbacks):
            if best.metric == "validation_nll" and isinstance(callback, EarlyStopping):
                callbacks[place] = _StopHeads(
                    callback.metric, higher_is_better=False, patience=callback.patience
                )
        return callbacks, best_heads

    def _read_out(self, fit: DoctorNetFit) -> dict[str, Any]:
        parts = ((batch.x, batch.rows, batch.annotators) for batch in fit.batches.in_order())
        return {
            "confusion_": fit.module.expected_confusion(parts).cpu().numpy(),
            "weights_": fit.module.log_weights().double().exp().cpu().numpy(),
        }


def annotation_weight(table: AnnotationTable) -> FloatArray:
    """Return the sum of the weights of every annotator's annotations, shape (n_annotators,)."""
    total = np.bincount(table.annotator, weights=table.weight, minlength=table.n_annotators)
    return total.astype(np.float64)


class _FrozenNetworkStep(GradientStep):
    """Gradient steps on a network that stays in evaluation mode."""

    def start_epoch(self, epoch: int) -> None:
        """Put the module into evaluation mode: no dropout, fixed batch statistics."""
        super().start_epoch(epoch)
        self.module.eval()


class _BestHeads(BestState):
    """Keep the best epoch of the heads, and the weights that are then learnt on top of it.

    The likelihood of held-out annotations depends only on the heads, so it cannot choose among
    epochs of the weights: the last is kept. Agreement, and accuracy on gold labels, choose among
    those as well.
    """

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Start the second stage from the best heads."""
        if name == WEIGHTS and not first_epoch:
            self.restore()

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Store the state if it is better, or has newer weights."""
        if metrics["stage"] == WEIGHTS and self.metric == "validation_nll":
            self.best["module"] = copy.deepcopy(self.module.state_dict())
        else:
            super().on_epoch_end(epoch, metrics)


class _StopHeads(EarlyStopping):
    """Early stopping of the first stage only; see `_BestHeads`."""

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool:
        """Return whether the patience of the first stage is exhausted."""
        return super().on_epoch_end(epoch, metrics) and metrics["stage"] == HEADS
