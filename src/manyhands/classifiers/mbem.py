"""MBEM: model bootstrapped expectation maximisation.

.. [1] A. Khetan, Z. C. Lipton and A. Anandkumar. Learning from noisy singly-labeled data. ICLR
   2018. https://arxiv.org/abs/1712.04577
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import (
    LatentClassClassifier,
    LatentClasses,
    SoftTargets,
    TargetStep,
    balancing_rng,
)
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.prediction import class_proba
from manyhands.fitting.traits import Traits
from manyhands.nn import FixedConfusionModule, make_backbone
from manyhands.training import Stage
from manyhands.typing import FloatArray

MBEMFit = Fit[FixedConfusionModule, LatentClasses]


@dataclass(frozen=True, kw_only=True, repr=False)
class MBEMProtocol(MethodProtocol):
    """Protocol of `MBEMClassifier`: variants of its paper and code, and a numerical detail.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    smoothing : float, default=0.01
        Pseudo-annotations in every entry of a confusion matrix.
    warm_start_network : bool, default=False
        Continue with the network of the previous round rather than a new one. With a new network,
        as in the paper's code, mistakes that the old one has memorised are forgotten.
    train_on_own_labels : bool, default=False
        End every round by training a new network on the hard labels of the round's first network.
        The code does so, but the paper's algorithm does not: the code's authors say that it
        replaces further epochs. Hard labels discard the posterior's uncertainty.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "warm_start_network": ["boolean"],
        "train_on_own_labels": ["boolean"],
    }

    smoothing: float = 0.01
    warm_start_network: bool = False
    train_on_own_labels: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class MBEMClassifier(LatentClassClassifier):
    r"""Learn from crowds in rounds that treat the network's own labels as the truth [1]_.

    Round 0 trains a network on the vote shares. Every further round treats the class that the
    network finds most probable as the true class of each training instance. It estimates the
    annotators' confusion matrices :math:`\pi^r` and the class prior :math:`\rho` by counting
    against these labels, and trains a new network on the posterior
    :math:`q_i \propto \rho \prod_r \pi^r_{\cdot, y_{ir}}`. Confusions can therefore be estimated
    even if every instance has a single annotation.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``max_epochs`` and ``patience`` apply per
        stage; ``class_balance`` acts on the inferred classes; ``validation`` keeps the best epoch
        of the last stage.
    n_iterations : int, default=1
        Number of rounds after round 0, which trains on the vote shares.
    class_prior : {"estimated", "uniform"}, default="estimated"
        :math:`\rho`: the shares of the network's labels, as in the paper, or no prior, as in the
        paper's code.
    protocol : MBEMProtocol or None, default=None
        Variants and details of published experiments; None means `MBEMProtocol()`.

    Attributes
    ----------
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Annotations counted against the final network's labels, smoothed, with one pseudo-annotation
        in every row, distributed like the crowd's annotations. An annotator without annotations
        gets ``pooled_confusion_``.
    class_prior_ : array of shape (n_classes,)
        The corresponding class prior.
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances given their annotations, which would be the
        targets of another round. An instance without annotations has the prior.
    labels_ : array of shape (n_samples,)
        Most probable classes of the training instances, or medians of three or more grades. They
        and ``posterior_`` are in the order of X (see `partial_fit`); ``instances_`` holds the ids.

    Notes
    -----
    ``history_`` logs ``cross_entropy`` against the targets. Its stages are "round 0", "round 1",
    ...; with ``train_on_own_labels``, each is followed by "round 0, own labels" and so on.
    `partial_fit` continues with the present network: it repeats the rounds after the one on vote
    shares, without new networks, and without the stages on own labels.

    References
    ----------
    .. [1] Khetan, Lipton & Anandkumar, Learning from noisy singly-labeled data, ICLR 2018.

    Examples
    --------
    >>> from manyhands import MBEMClassifier, load_demo
    >>> demo = load_demo()
    >>> model = MBEMClassifier(max_epochs=2, random_state=0).fit(demo.X_train, demo.annotations)
    >>> [row["stage"] for row in model.history_]
    ['round 0', 'round 0', 'round 1', 'round 1']
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "n_iterations": [Interval(Integral, 1, None, closed="left")],
        "class_prior": [StrOptions({"estimated", "uniform"})],
    }
    _crowd_check_exemptions = {
        "check_reweighting_balanced_annotations_changes_nothing": "it balances inferred labels, "
        "and those of a hardly trained network are unbalanced; a test of ours trains longer",
    }

    backbone: Any = field(default=None, kw_only=False)
    n_iterations: int = 1
    class_prior: str = "estimated"
    protocol: MBEMProtocol | None = None

    _protocol = ProtocolOf(MBEMProtocol)

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        return replace(
            inherited,
            trains_once=False,  # Every round ends with a network from which the next one starts.
            saved=(*inherited.saved, "class_prior_"),
            start_refusal="makes a new network in each of its stages",
            # Confusions of different rounds are counted against different labels.
            validates_last_stage_only=True,
        )

    def _prepare(self, fit: MBEMFit) -> LatentClasses:
        return self._latent(fit.table)

    def _stages(self, fit: MBEMFit) -> list[Stage]:
        latent, confusions = fit.state, fit.module.confusions

        def from_annotations() -> FloatArray:
            # The module alone holds the state before this stage, so a checkpoint holds it too.
            labels = self._own_labels(fit)
            confusions.copy_(torch.from_numpy(latent.confusion(labels)))
            return latent.posterior(self._prior(labels), latent.confusion(labels))[0]

        def from_votes() -> FloatArray:
            shares = latent.vote_shares()
            confusions.copy_(torch.from_numpy(latent.confusion(shares)))
            return shares

        def from_network() -> FloatArray:
            return self._own_labels(fit)

        sources: dict[str, Callable[[], FloatArray]] = {}
        # A partial fit has a network whose labels it can count, so it needs no round 0.
        for number in range(0 if fit.earlier is None else 1, self.n_iterations + 1):
            sources[f"round {number}"] = from_annotations if number else from_votes
            if self._protocol.train_on_own_labels and fit.earlier is None:
                sources[f"round {number}, own labels"] = from_network
        return [
            Stage(name, self._step(number, source, fit), fit.batches.epoch, fit.n_epochs)
            for number, (name, source) in enumerate(sources.items())
        ]

    def _step(self, number: int, source: Callable[[], FloatArray], fit: MBEMFit) -> TargetStep:
        """Return the step of a stage; its targets come from the network at its start."""
        targets = SoftTargets(fit.recipe.balance, fit.features.device)

        def renew(epoch: int) -> None:
            if epoch:
                return
            targets.set(fit.state.spread(source()), balancing_rng(number))
            if number and not self._protocol.warm_start_network and fit.earlier is None:
                fresh = make_backbone(self.backbone, fit.features.input_shape, fit.table.n_classes)
                fit.module.classifier.backbone.load_state_dict(fresh.state_dict())

        return TargetStep(
            fit.module,
            targets,
            renew,
            lambda: fit.recipe.make_optimizer(fit.module),
            reset_every_epoch=fit.recipe.reset_optimizer,
        )

    @staticmethod
    def _own_labels(fit: MBEMFit) -> FloatArray:
        """Return the network's one-hot labels of the annotated instances, shape (m, n_classes)."""
        proba = class_proba(fit.module, fit.features, fit.state.instances)
        return np.eye(proba.shape[1])[proba.argmax(axis=1)]

    def _prior(self, labels: FloatArray) -> FloatArray:
        """Return the class prior, estimated from one-hot labels, shape (n_classes,)."""
        n_classes = labels.shape[1]
        if self.class_prior == "uniform":
            return np.full(n_classes, 1.0 / n_classes)
        # Smoothed like the confusions: a class that the network does not predict yet may exist.
        counts = labels.sum(axis=0) + self._protocol.smoothing
        return counts / counts.sum()

    def _read_out(self, fit: MBEMFit) -> dict[str, Any]:
        latent, labels = fit.state, self._own_labels(fit)
        confusion, prior = latent.confusion(labels), self._prior(labels)
        fit.belief = posterior = np.tile(prior, (latent.n_instances, 1))
        posterior[latent.instances] = latent.posterior(prior, confusion)[0]
        return {"confusion_": confusion, "class_prior_": prior, "posterior_": posterior}
