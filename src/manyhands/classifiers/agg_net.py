"""AggNet: expectation maximisation around a network.

.. [1] S. Albarqouni, C. Baur, F. Achilles, V. Belagiannis, S. Demirci and N. Navab. AggNet: deep
   learning from crowds for mitosis detection in breast cancer histology images. IEEE
   Transactions on Medical Imaging 35(5), 2016. https://doi.org/10.1109/TMI.2016.2528120
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import torch
from sklearn.utils._param_validation import Interval

from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import (
    LatentClassClassifier,
    SoftTargets,
    TargetStep,
    balancing_rng,
    read_confusion,
)
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.prediction import class_proba
from manyhands.fitting.traits import Traits
from manyhands.nn import FixedConfusionModule
from manyhands.training import Stage


@dataclass(frozen=True, kw_only=True, repr=False)
class AggNetProtocol(MethodProtocol):
    """Numerical details of the E- and M-steps of `AggNetClassifier`.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    smoothing : float, default=0.01
        Pseudo-annotations in every entry of a confusion matrix. More than a few hundredths would
        drown out annotators with few annotations.
    em_every : int, default=1
        Epochs of network training between two E- and M-steps.
    confusion_floor : float, default=1e-4
        Added to a confusion matrix before taking its logarithm. It limits the evidence of a single
        annotation against a class.
    proba_floor : float, default=1e-3
        Added to the network's probabilities before taking their logarithm. It limits the evidence
        of an overconfident network against a class.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "em_every": [Interval(Integral, 1, None, closed="left")],
        "confusion_floor": [Interval(Real, 0, None, closed="left")],
        "proba_floor": [Interval(Real, 0, None, closed="left")],
    }

    smoothing: float = 0.01
    em_every: int = 1
    confusion_floor: float = 1e-4
    proba_floor: float = 1e-3


@dataclass(kw_only=True, eq=False, repr=False)
class AggNetClassifier(LatentClassClassifier):
    r"""Learn from crowds by EM, with the network as the prior of the true class [1]_.

    The E-step computes the posterior of an instance's class,
    :math:`q_i \propto p(x_i) \prod_r \pi^r_{\cdot, y_{ir}}`. The M-step counts the annotations
    against it to estimate the annotators' confusion matrices :math:`\pi^r`, and trains the network
    for an epoch on :math:`q` as soft targets. The first targets are the vote shares.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``class_balance`` acts on the inferred classes.
    protocol : AggNetProtocol or None, default=None
        Variants and details of published experiments; None means `AggNetProtocol()`.

    Attributes
    ----------
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given], from the last M-step. An annotator without annotations gets
        ``pooled_confusion_``.
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances given x and their annotations (given x alone
        if there are none).
    labels_ : array of shape (n_samples,)
        Most probable classes of the training instances, or medians of three or more grades. They
        and ``posterior_`` are in the order of X (see `partial_fit`); ``instances_`` holds the ids.

    Notes
    -----
    ``history_`` logs ``cross_entropy`` against the targets of the epoch, which need not fall,
    because the targets change. If the network predicts the same for all instances, the method
    equals `DawidSkene` (one of our tests). Instances without annotations are not used in training.

    References
    ----------
    .. [1] Albarqouni et al., AggNet: deep learning from crowds, IEEE TMI 35(5), 2016.

    Examples
    --------
    >>> from manyhands import AggNetClassifier, load_demo
    >>> demo = load_demo()
    >>> model = AggNetClassifier(max_epochs=2, random_state=0).fit(demo.X_train, demo.annotations)
    >>> model.posterior_.shape == (len(demo.X_train), 10)
    True
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
    }

    backbone: Any = field(default=None, kw_only=False)
    protocol: AggNetProtocol | None = None

    _protocol = ProtocolOf(AggNetProtocol)

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        return replace(
            inherited,
            start_refusal="begins with the shares of the votes",
            repeats_small_trainings=True,
        )

    def _stages(self, fit: Fit[FixedConfusionModule, None]) -> list[Stage]:
        module, latent = fit.module, self._latent(fit.table)
        targets = SoftTargets(fit.recipe.balance, fit.features.device)

        def renew(epoch: int) -> None:
            """Run E- and M-step from the parameters of the module, which checkpoints hold."""
            if epoch % self._protocol.em_every:
                return
            if epoch == 0:
                posterior = latent.vote_shares()
            else:
                proba = class_proba(module, fit.features, latent.instances)
                posterior, _ = latent.posterior(proba, read_confusion(module))
            module.confusions.copy_(torch.from_numpy(latent.confusion(posterior)))
            targets.set(latent.spread(posterior), balancing_rng(epoch))

        step = TargetStep(
            module,
            targets,
            renew,
            lambda: fit.recipe.make_optimizer(module),
            reset_every_epoch=fit.recipe.reset_optimizer,
        )
        return [Stage("train", step, fit.batches.epoch, fit.n_epochs)]
