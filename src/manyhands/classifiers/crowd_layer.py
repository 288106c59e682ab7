"""Crowd Layer: a classifier with one small layer per annotator on top.

.. [1] F. Rodrigues and F. C. Pereira. Deep learning from crowds. AAAI 2018.
   https://doi.org/10.1609/aaai.v32i1.11506
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.method_protocol import ProtocolOf, StartProtocol
from manyhands.fitting.restarts import scale_of
from manyhands.fitting.traits import Traits
from manyhands.nn import CONNECTIONS, CrowdLayerModule, ScaledClassifier


@dataclass(frozen=True, kw_only=True, repr=False)
class CrowdLayerProtocol(StartProtocol):
    """Protocol of `CrowdLayerClassifier`: initialisation and training of the layers.

    Parameters
    ----------
    reset_optimizer, monitor, patience, noise_lr
        See `manyhands.fitting.method_protocol.StartProtocol`.
    init_scale : float or "auto", default="auto"
        Initial multiple of the identity in the matrices (1 in the paper, 2 in the code of CoNAL and
        CrowdInG), or initial value of the scales. The lower this value, the more often rare classes
        collapse: see ``docs/results/noise_layers.md``. "auto" begins with 3. After class collapse
        (an annotated class is predicted for no training instance), the fit is repeated with 6, and
        if necessary with 12; the first fit in which the fewest classes collapse is kept. Each fit
        gives the same result as with its number as ``init_scale``. The cost is up to three fits,
        and ``callbacks`` are called in each. With a number, or with weights to start from
        (``start``, or a continued partial fit), there is one fit.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdLayerClassifier(BaseCrowdClassifier):
    """Train a classifier through one layer per annotator (DL-CL, "crowd layer") [1]_.

    The classifier's probabilities p(x) pass through annotator r's own layer, W_r p(x) + b_r, and
    a softmax. The cross entropy of the observed annotations trains both. After training, the
    classifier predicts on its own.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`.
    connection : {"MW", "VW", "VB", "VW+B", "S"}, default="MW"
        An annotator's layer: a matrix, class scales, class biases, scales and biases, or a scalar.
    low_rank : int or None, default=None
        For very many annotators, with "MW": every matrix is the start plus a mixture of this many
        matrices that all annotators share, and an annotator has ``low_rank`` numbers instead of
        n_classes². With n_classes², the model is the same as with None; see ``docs/devices.md``.
    protocol : CrowdLayerProtocol or None, default=None
        Variants and details of published experiments; None means `CrowdLayerProtocol()`.

    Attributes
    ----------
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]: the annotator's softmax output for an instance that is certainly
        of the true class.
    init_scale_ : float
        ``init_scale``, or the value that "auto" has chosen.

    References
    ----------
    .. [1] Rodrigues & Pereira, Deep learning from crowds, AAAI 2018.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier, load_demo
    >>> demo = load_demo()
    >>> model = CrowdLayerClassifier(max_epochs=2, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).predict(demo.X_test).shape == demo.y_test.shape
    True
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "connection": [StrOptions(set(CONNECTIONS))],
        "low_rank": [None, Interval(Integral, 1, None, closed="left")],
    }

    backbone: Any = field(default=None, kw_only=False)
    connection: str = "MW"
    low_rank: int | None = None
    protocol: CrowdLayerProtocol | None = None

    _protocol = ProtocolOf(CrowdLayerProtocol)

    @property
    def _traits(self) -> Traits:
        # docs/results/noise_layers.md measures why 3 comes first. Biases have no scale.
        return Traits(starts=(3.0,) if self.connection == "VB" else (3.0, 6.0, 12.0))

    def _build_module(
        self,
        classifier: ScaledClassifier,
        input_shape: Sequence[int],
        *,
        init_scale: float | None = None,
    ) -> CrowdLayerModule:
        return CrowdLayerModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            connection=self.connection,
            init_scale=scale_of(self, init_scale),
            low_rank=self.low_rank,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.low_rank is not None and self.connection != "MW":
            raise AnnotationError(
                f"low_rank={self.low_rank} needs annotator matrices, and "
                f"connection={self.connection!r} has none; leave low_rank out, or use "
                "connection='MW'"
            )

    def _read_out(self, fit: Fit[CrowdLayerModule, None]) -> dict[str, Any]:
        return {"confusion_": fit.module.confusion().double().cpu().numpy()}
