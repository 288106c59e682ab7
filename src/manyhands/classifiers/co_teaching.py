"""Co-teaching: two networks that select training instances for each other.

.. [1] B. Han, Q. Yao, X. Yu, G. Niu, M. Xu, W. Hu, I. W. Tsang and M. Sugiyama. Co-teaching:
   robust training of deep neural networks with extremely noisy labels. NeurIPS 2018.
   https://arxiv.org/abs/1804.06872
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, cast

import numpy as np
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from torch import Tensor

from manyhands.fitting.aggregation import targets_of_network
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import SoftTargets
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.traits import ANNOTATOR_ARRAYS, Traits
from manyhands.inference.base import BaseAggregator
from manyhands.nn import Ensemble, FixedConfusionModule, ScaledClassifier, make_backbone
from manyhands.training import CrowdBatch
from manyhands.typing import FloatArray

CoTeachingFit = Fit[FixedConfusionModule, SoftTargets]


@dataclass(frozen=True, kw_only=True, repr=False)
class CoTeachingProtocol(MethodProtocol):
    """Protocol of `CoTeachingClassifier`: its targets, and the schedule of its selection.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    targets : {"hard", "soft"}, default="hard"
        Train on the aggregator's most probable class, as in the paper, or on its posterior. With
        the posterior, instances with uncertain labels have a large loss in any case, and are left
        out first.
    gradual_epochs : int, default=10
        :math:`T_k`, the number of epochs until the share left out reaches ``forget_rate``.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "targets": [StrOptions({"hard", "soft"})],
        "gradual_epochs": [Interval(Integral, 1, None, closed="left")],
    }

    targets: str = "hard"
    gradual_epochs: int = 10


@dataclass(kw_only=True, eq=False, repr=False)
class CoTeachingClassifier(BaseCrowdClassifier):
    r"""Infer labels, then train two networks that select instances for each other [1]_.

    Two networks are trained at the same time on the labels of an aggregator. Of every minibatch,
    each selects the share :math:`R(T)` of instances with the smallest loss, and the other network
    is trained on these only (Algorithm 1, lines 4 to 7). Networks learn regularities before they
    memorise mistakes, so a large loss is evidence of a wrong label. The two networks make different
    mistakes, so neither is trained on the selection by its own. The share kept falls linearly over
    the first :math:`T_k` epochs, from all to :math:`1 - \tau` (line 8):

    .. math:: R(T) = 1 - \min\left(\frac{T}{T_k} \tau, \tau\right).

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Made twice. Your own module is copied, so both networks start from its weights, and remain
        equal if nothing in it is random; a factory gives two initialisations.
    aggregator : BaseAggregator or None, default=None
        Truth inference; None is `MajorityVote`.
    forget_rate : float in [0, 1) or None, default=None
        :math:`\tau`, the share of instances that is left out at the end; best equal to the share of
        wrong labels. None estimates that share from the annotations: one minus the mean probability
        that the aggregator gives to its most probable classes (with majority vote, the mean share
        of votes against the winner). The estimate is 0, and nothing is left out, if all posterior
        probabilities are 0 or 1, as in a majority vote with one annotation per instance; give a
        rate then.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``class_balance`` weights the loss by the
        inferred labels. Instances are selected by the unweighted cross entropy, so that rare
        classes are not left out because of their larger weights.
    protocol : CoTeachingProtocol or None, default=None
        Variants and details of published experiments; None means `CoTeachingProtocol()`.

    Attributes
    ----------
    aggregator_ : BaseAggregator
        The fitted aggregator (with ``validation`` as a fraction, on the annotations not held out).
    forget_rates_ : array of shape (max_epochs,)
        :math:`1 - R(T)`, the share left out in every epoch.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        The aggregator's confusion matrices, with one pseudo-annotation in every row, distributed
        like the crowd's annotations.
    class_prior_ : array of shape (n_classes,)
        Share of every class in the inferred labels, the weights of ``class_balance`` included.

    Notes
    -----
    ``predict_proba`` is the mean of both networks, so that none must be chosen (the paper evaluates
    each by itself). ``history_`` logs ``cross_entropy_1`` and ``cross_entropy_2``, the loss of each
    network on the instances that the other selected for it. Instances without
    annotations do not enter the training. Differences from the paper are numbered in
    ``docs/methods/co_teaching.md``.

    References
    ----------
    .. [1] Han et al., Co-teaching: robust training of deep neural networks with extremely noisy
       labels, NeurIPS 2018.

    Examples
    --------
    >>> from manyhands import CoTeachingClassifier, load_demo
    >>> demo = load_demo()
    >>> model = CoTeachingClassifier(forget_rate=0.2, max_epochs=4)
    >>> model = model.set_params(protocol__gradual_epochs=2)
    >>> model.fit(demo.X_train, demo.annotations).forget_rates_
    array([0. , 0.1, 0.2, 0.2])
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "aggregator": [None, HasMethods(["fit_predict_proba"])],
        "forget_rate": [None, Interval(Real, 0, 1, closed="left")],
    }

    backbone: Any = field(default=None, kw_only=False)
    aggregator: BaseAggregator | None = None
    forget_rate: float | None = None
    protocol: CoTeachingProtocol | None = None

    _protocol = ProtocolOf(CoTeachingProtocol)

    @property
    def _traits(self) -> Traits:
        return Traits(
            saved=(*ANNOTATOR_ARRAYS, "class_prior_", "forget_rates_"),
            unsaved=("aggregator_",),
            balanced_by="class_prior_",
            shrinks_confusions=True,
            balances_annotations=False,
        )

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        n_classes = len(self.classes_)
        second = make_backbone(self.backbone, input_shape, n_classes)
        classifier.backbone = Ensemble([classifier.backbone, second])
        return FixedConfusionModule(classifier, n_classes, self.n_annotators_)

    def _prepare(self, fit: CoTeachingFit) -> SoftTargets:
        targets = targets_of_network(self, fit)
        rate = self.forget_rate
        if rate is None:
            annotated = fit.batches.instances.cpu().numpy()
            rate = expected_noise(fit.found["aggregator_"].posterior_[annotated])
        fit.found["forget_rates_"] = forget_rates(rate, self._protocol.gradual_epochs, fit.n_epochs)
        return targets

    def _objective(self, fit: CoTeachingFit, batch: CrowdBatch) -> dict[str, Tensor]:
        classifier = fit.module.classifier
        networks = cast(Ensemble, classifier.backbone)
        first, second = networks.member_logits(classifier.scaler(batch.x))
        rate = float(fit.found["forget_rates_"][fit.epoch])
        return exchange_small_losses(first, second, fit.state, batch.instances, rate)

    def _read_out(self, fit: CoTeachingFit) -> dict[str, Any]:
        """Return no attributes: those of the aggregator are set before the training."""
        return {}


def expected_noise(posterior: FloatArray) -> float:
    """Return the expected share of wrong labels if the most probable classes are taken for them.

    Parameters
    ----------
    posterior : array of shape (n, n_classes)

    Returns
    -------
    float in [0, 1]
    """
    return float(1.0 - posterior.max(axis=1).mean())


def forget_rates(rate: float, gradual_epochs: int, max_epochs: int) -> FloatArray:
    """Return the share of instances left out in every epoch, 1 - R(T), shape (max_epochs,).

    The first epoch leaves nothing out: line 8 of Algorithm 1 sets R(T) as epoch T ends.
    """
    return rate * np.minimum(np.arange(max_epochs) / gradual_epochs, 1.0)


def n_kept(n: int, rate: float) -> int:
    """Return the least number of n instances that is at least a share of 1 - rate."""
    # Rounded first: (1 - 0.7) * 10 is a little more than 3.
    return math.ceil(round((1.0 - rate) * n, 9))


def small_losses(logits: Tensor, targets: Tensor, n: int) -> Tensor:
    """Choose the n instances of the smallest cross entropy (Algorithm 1, lines 4 and 5).

    Parameters
    ----------
    logits, targets : tensors of shape (m, n_classes)
    n : int

    Returns
    -------
    integer tensor of shape (n,)
        Ascending; of equal losses, the first are taken.
    """
    losses = -(targets * logits.detach().log_softmax(dim=1)).sum(dim=1)
    return losses.argsort(stable=True)[:n].sort().values


def exchange_small_losses(
    first: Tensor, second: Tensor, targets: SoftTargets, instances: Tensor, rate: float
) -> dict[str, Tensor]:
    """Return the loss of each network on the instances of a batch that the other selects.

    These are lines 4 to 7 of Algorithm 1.

    Parameters
    ----------
    first, second : tensors of shape (n, n_classes)
        Logits of the two networks.
    targets : SoftTargets
    instances : integer tensor of shape (n,)
        Rows of the training data.
    rate : float
        The share left out.

    Returns
    -------
    dict
        The terms ``cross_entropy_1`` and ``cross_entropy_2``.
    """
    own = targets.targets[instances]
    size = n_kept(len(instances), rate)
    by_first, by_second = (small_losses(logits, own, size) for logits in (first, second))
    return {
        "cross_entropy_1": targets.loss(first[by_second], instances[by_second])["cross_entropy"],
        "cross_entropy_2": targets.loss(second[by_first], instances[by_first])["cross_entropy"],
    }
