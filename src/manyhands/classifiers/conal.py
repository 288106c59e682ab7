"""CoNAL: annotation noise split into a common and an individual part.

.. [1] Z. Chu, J. Ma and H. Wang. Learning from crowds by modeling common confusions. AAAI 2021.
   https://doi.org/10.1609/aaai.v35i7.16730
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.method_protocol import ProtocolOf, StartProtocol
from manyhands.fitting.network import read_annotator_features
from manyhands.fitting.restarts import scale_of
from manyhands.fitting.traits import ANNOTATOR_ARRAYS, Traits
from manyhands.nn import CommonNoiseModule, ScaledClassifier
from manyhands.objectives import common_noise_objective
from manyhands.training import AnnotationBatches, CrowdBatch


@dataclass(frozen=True, kw_only=True, repr=False)
class CoNALProtocol(StartProtocol):
    """Forms of CoNAL in which paper and released code differ, and sizes of its networks.

    Parameters
    ----------
    reset_optimizer, monitor, patience, noise_lr
        See `manyhands.fitting.method_protocol.StartProtocol`.
    init_scale : float or "auto", default="auto"
        Initial multiple of the identity in both layers; 2 in the released code. "auto" begins with
        2. After class collapse (an annotated class is predicted for no training instance), the fit
        is repeated with 4, and if necessary with 8; the fit in which the fewest classes collapse is
        kept. The cost is up to three fits; with a number, or weights to start from, there is a
        single fit.
    squared_gap : bool, default=False
        Use the sum of squared norms in the separation term. The released code sums the norms; the
        paper is ambiguous.
    embedding_dim : int, default=20
        Size of the embeddings u and v.
    auxiliary_hidden : int or None, default=128
        Units of the linear layer that the released code puts between instance and embedding. None
        gives Eq. 3 as printed, a single linear map.
    normalize : {"both", "annotator", "none"}, default="both"
        Which embeddings to scale to unit length. The paper, and the code on LabelMe, scale both;
        the code on Music scales only the annotators'. With "both", the gate stays within
        [.27, .73].
    mixture : {"logits", "probabilities"}, default="logits"
        What the gate mixes: the layers' outputs before the softmax (Eq. 4, and the code), or two
        distributions (the equation of p(y|x)).
    classifier_output : {"probabilities", "logits"}, default="probabilities"
        The classifier's output that enters the layers; the code uses its softmax.
    """

    _constraints = {
        **StartProtocol._constraints,
        "squared_gap": ["boolean"],
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "auxiliary_hidden": [None, Interval(Integral, 1, None, closed="left")],
        "normalize": [StrOptions({"both", "annotator", "none"})],
        "mixture": [StrOptions({"logits", "probabilities"})],
        "classifier_output": [StrOptions({"probabilities", "logits"})],
    }

    squared_gap: bool = False
    embedding_dim: int = 20
    auxiliary_hidden: int | None = 128
    normalize: str = "both"
    mixture: str = "logits"
    classifier_output: str = "probabilities"


@dataclass(kw_only=True, eq=False, repr=False)
class CoNALClassifier(BaseCrowdClassifier):
    r"""Learn from crowds with common and individual noise adaptation layers [1]_.

    An annotator's label comes from a confusion that all annotators share (with probability
    :math:`\omega_i^r`) or from one that is the annotator's own. An auxiliary network gives
    :math:`\omega_i^r = \sigma(u_r^\top v_i)` from embeddings of annotator and instance (Eq. 3);
    with :math:`f_i` the classifier's output, the annotation's distribution is the softmax of
    :math:`\omega_i^r W^g f_i + (1 - \omega_i^r) W^r f_i` (Eq. 4). The loss is the cross entropy of
    the observed annotations minus :math:`\lambda \sum_r \|W^g - W^r\|`.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`.
    gap_weight : float, default=1e-5
        :math:`\lambda`, the weight of the separation term.
    annotator_features : array of shape (n_annotators, n_features) or None
        Features of the annotators for the auxiliary network; default: one-hot.
    protocol : CoNALProtocol or None, default=None
        Variants and details of published experiments; None means `CoNALProtocol()`.

    Attributes
    ----------
    common_confusion_ : array of shape (n_classes, n_classes)
        Confusion matrix of the common layer, [true, given].
    individual_confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Confusion matrices of the individual layers, [annotator, true, given].
    common_proportion_ : array of shape (n_annotators,)
        Mean gate over each annotator's annotations (NaN for annotators without annotations).
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Both layers mixed at each annotator's mean gate: the annotator's overall behaviour.
    init_scale_ : float
        ``init_scale``, or the value that "auto" has chosen.

    Notes
    -----
    ``history_`` logs ``nll`` and ``confusion_gap`` (the separation term with its weight and
    sign). Differences from the paper are numbered in ``docs/methods/conal.md``.

    References
    ----------
    .. [1] Chu, Ma & Wang, Learning from crowds by modeling common confusions, AAAI 2021.

    Examples
    --------
    >>> from manyhands import CoNALClassifier, load_demo
    >>> demo = load_demo()
    >>> model = CoNALClassifier(max_epochs=2, random_state=0).fit(demo.X_train, demo.annotations)
    >>> model.common_confusion_.shape
    (10, 10)
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "gap_weight": [Interval(Real, 0, None, closed="left")],
        "annotator_features": [None, "array-like"],
    }

    backbone: Any = field(default=None, kw_only=False)
    gap_weight: float = 1e-5
    annotator_features: Any = None
    protocol: CoNALProtocol | None = None

    _protocol = ProtocolOf(CoNALProtocol)

    @property
    def _traits(self) -> Traits:
        return Traits(
            starts=(2.0, 4.0, 8.0),  # 2 is the value of the released code.
            saved=(
                *ANNOTATOR_ARRAYS,
                "common_confusion_",
                "individual_confusion_",
                "common_proportion_",
            ),
        )

    def _build_module(
        self,
        classifier: ScaledClassifier,
        input_shape: Sequence[int],
        *,
        init_scale: float | None = None,
    ) -> CommonNoiseModule:
        return CommonNoiseModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            input_shape=input_shape,
            annotator_features=read_annotator_features(self.annotator_features, self.n_annotators_),
            embedding_dim=self._protocol.embedding_dim,
            auxiliary_hidden=self._protocol.auxiliary_hidden,
            normalize=self._protocol.normalize,
            mixture=self._protocol.mixture,
            classifier_output=self._protocol.classifier_output,
            init_scale=scale_of(self, init_scale),
        )

    def _objective(self, fit: Fit[CommonNoiseModule, None], batch: CrowdBatch) -> dict[str, Tensor]:
        return common_noise_objective(
            fit.module,
            batch,
            gap_weight=self.gap_weight,
            squared=self._protocol.squared_gap,
            focus=fit.recipe.focus,
        )

    def _read_out(self, fit: Fit[CommonNoiseModule, None]) -> dict[str, Any]:
        module = fit.module
        gate = mean_gate(module, fit.batches)
        # An annotator without annotations has no mean gate; the crowd's mean replaces it.
        filled = torch.where(gate.isnan(), gate.nanmean(), gate)
        return {
            "common_confusion_": module.common.softmax(dim=1).double().cpu().numpy(),
            "individual_confusion_": module.individual.softmax(dim=2).double().cpu().numpy(),
            "common_proportion_": gate.double().cpu().numpy(),
            "confusion_": module.confusion(filled).double().cpu().numpy(),
        }


def mean_gate(module: CommonNoiseModule, batches: AnnotationBatches) -> Tensor:
    """Return the mean gate of each annotator's annotations, (n_annotators,); NaN without any."""
    total = module.common.new_zeros(batches.table.n_annotators)
    count = torch.zeros_like(total)
    for batch in batches.in_order():
        gate = module.gate(batch.x, batch.rows, batch.annotators)
        total.index_add_(0, batch.annotators, gate)
        count.index_add_(0, batch.annotators, torch.ones_like(gate))
    return total / count
