"""Co-teaching: two networks that choose for each other what to learn from inferred labels.

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
    """What two networks learn in `CoTeachingClassifier`, and how fast they become choosy.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `MethodProtocol`.
    targets : {"hard", "soft"}, default="hard"
        Train on the aggregator's most probable class, as in the paper, or on its posterior: then
        instances it is unsure of have a large loss in any case, and are the first to be left out.
    gradual_epochs : int, default=10
        Epochs until the share left out is the whole ``forget_rate``: :math:`T_k`.
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
    r"""Infer labels first, then let two networks teach each other those they trust [1]_.

    Two networks are trained at the same time on the labels of an aggregator. Of every minibatch,
    each takes the share :math:`R(T)` of instances with the smallest loss, and the other network
    learns these and no others (Algorithm 1, lines 4 to 7). Networks learn what is regular before
    they learn mistakes by heart, so that a large loss points at a wrong label; and as the two make
    different mistakes, neither confirms its own. The share kept falls linearly over the first
    :math:`T_k` epochs, from all to :math:`1 - \tau` (line 8):

    .. math:: R(T) = 1 - \min\left(\frac{T}{T_k} \tau, \tau\right).

    Parameters
    ----------
    backbone : as in `BaseCrowdClassifier`
        Made twice. A module of yours is copied, so that both networks start from its weights, and
        stay equal if nothing in it is random; a factory gives two starts.
    aggregator : BaseAggregator or None, default=None
        Truth inference; None is `MajorityVote`.
    forget_rate : float in [0, 1) or None, default=None
        :math:`\tau`, the share of instances that is left out in the end; best the share of wrong
        labels. None estimates that share from the annotations: one minus the mean probability
        that the aggregator gives to its most probable classes (with majority vote, the mean share
        of votes against the winner). It is 0, and nothing is left out, where the aggregator has
        no doubts, such as majority vote of one annotation each: give a rate then.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `BaseCrowdClassifier`. ``class_balance`` acts on the inferred labels, in what is
        learnt; instances are chosen by their plain cross entropy, so that rare classes are not
        left out for weighing more.
    protocol : CoTeachingProtocol or None, default=None
        Variants and details of published experiments; None: the defaults described there.

    Attributes
    ----------
    aggregator_ : BaseAggregator
        The fitted aggregator (with ``validation`` as a fraction, on the annotations not held out).
    forget_rates_ : array of shape (max_epochs,)
        :math:`1 - R(T)`, the share left out in every epoch.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        That of the aggregator, with one annotation more in every row, as the crowd would give it.
    class_prior_ : array of shape (n_classes,)
        Share of every class in the inferred labels, the weights of ``class_balance`` included.

    Notes
    -----
    ``predict_proba`` is the mean of both networks (the paper evaluates each by itself):
    nothing has to choose between them. ``history_`` logs ``cross_entropy_1`` and
    ``cross_entropy_2``, of each network over what the other chose for it. Instances without
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
        """Nothing: what the labels were inferred with is known before."""
        return {}


def expected_noise(posterior: FloatArray) -> float:
    """Expected share of wrong labels if the most probable classes are taken for them.

    Parameters
    ----------
    posterior : array of shape (n, n_classes)

    Returns
    -------
    float in [0, 1]
    """
    return float(1.0 - posterior.max(axis=1).mean())


def forget_rates(rate: float, gradual_epochs: int, max_epochs: int) -> FloatArray:
    """Share of instances left out in every epoch, 1 - R(T), shape (max_epochs,).

    The first epoch leaves nothing out: line 8 of Algorithm 1 sets R(T) as epoch T ends.
    """
    return rate * np.minimum(np.arange(max_epochs) / gradual_epochs, 1.0)


def n_kept(n: int, rate: float) -> int:
    """Size of the smallest selection of n instances that has a share of 1 - rate, or more."""
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
    """Loss of each network over what the other chooses of a batch (Algorithm 1, lines 4 to 7).

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
