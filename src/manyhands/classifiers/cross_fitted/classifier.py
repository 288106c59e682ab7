"""Cross-fitted EM: truth inference with a prior from networks not trained on the instance.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
   the EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from typing import Any, cast
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval
from torch import nn

from manyhands.classifiers.cross_fitted.last_training import EnsembleTargets, fit_linear
from manyhands.classifiers.cross_fitted.networks import (
    FOLD_NETWORK,
    LAST_NETWORK,
    at_least,
    check_distinct,
    scaled_batches,
)
from manyhands.classifiers.cross_fitted.out_of_fold import NetworkTraining, OutOfFold
from manyhands.classifiers.cross_fitted.rounds import Rounds
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.folds import deal_folds
from manyhands.fitting.latent import (
    LatentClassClassifier,
    LatentClasses,
    TargetStep,
    balancing_rng,
)
from manyhands.fitting.parameters import FIXED_LENGTH
from manyhands.fitting.prediction import class_proba
from manyhands.inference import DawidSkene
from manyhands.inference.base import BaseAggregator
from manyhands.nn import (
    CrowdModule,
    Ensemble,
    FixedConfusionModule,
    Linear,
    ScaledClassifier,
    make_backbone,
)
from manyhands.training import CrowdBatch, Stage
from manyhands.training.seeding import set_random_states
from manyhands.typing import FloatArray


@dataclass(eq=False)
class Training:
    """What the last training learns, and the rounds before it."""

    targets: EnsembleTargets
    rounds: Rounds


CrossFittedFit = Fit[FixedConfusionModule, Training]


@dataclass(kw_only=True, eq=False, repr=False)
class CrossFittedEMClassifier(LatentClassClassifier):
    r"""Learn from imbalanced crowds by EM with priors from networks not trained on the instance.

    This is the library's own recipe, beside the published methods. As in [1]_, an instance's class
    has the posterior :math:`q_i \propto p_i \prod_r \pi^r_{\cdot, y_{ir}}`, where :math:`\pi^r` are
    the annotators' confusion matrices. The prior :math:`p_i` comes from members m (a network and a
    logistic regression) fitted to :math:`q` of the *other* folds. It is *calibrated*:
    :math:`p_i \propto \exp(v + \sum_m b_m \log p_{im})`, where the weights :math:`b_m` and the
    shift :math:`v` maximise the likelihood of the annotations. A network trained on :math:`q_i`
    repeats it, and a rare class once overlooked stays overlooked. A network that was not trained on
    it brings evidence of its own, and the calibration decides how much. After ``n_rounds``, a last
    training on :math:`q` of all instances weights the classes.

    Parameters
    ----------
    backbone : as in `BaseCrowdClassifier`
        None is ``"mlp"`` with a dropout of .5 in the rounds and of .2 in the last training. Any
        other backbone is the same in both.
    n_rounds : int, default=5
        Rounds of EM. With 0 there is only the last training, on the posterior of ``aggregator``.
    aggregator : aggregator, default=None
        Truth inference that EM starts from; None is `DawidSkene`.
    n_folds : int, default=5
        Number of folds, each with its share of every (inferred) class. With fewer instances than
        this, each instance is a fold.
    n_networks : int, default=5
        Networks in the last training, each from its own random start. Their probabilities are
        averaged. (A module given as ``backbone`` is copied, so all would start alike: give a
        factory, or set this to 1.)
    linear : bool, default=True
        Use a multinomial logistic regression beside the network, in every fold and in the last
        training (L2 penalty of half the squared weights, as with scikit-learn's C=1). The
        annotations determine how far each is believed.
    crowd_strength : float, default=2.0
        Annotations added to every row of a confusion matrix, distributed as the crowd gives them.
    min_steps : int, default=20
        Minimum number of gradient steps per epoch. A set with fewer minibatches is passed over
        several times: a network needs steps, and a small set has few minibatches.
    decision : {"posterior", "balanced"} or cost matrix, default="posterior"
        How `predict` turns probabilities into labels: the most probable class; the largest
        probability divided by ``class_prior_``; or, with costs of shape (n_classes, n_classes)
        [true, decided], the least expected cost. See `manyhands.decide`.
    max_epochs : int, default=50
        Epochs of the last training. The networks of the rounds train for half as many.
    class_balance : as in `BaseCrowdClassifier`, default="reweight"
        Acts on the inferred classes in the last training, never in the rounds. With None the
        probabilities are those of classes as frequent as they were inferred to be. The factor of a
        focal loss applies to the networks only; the regression gets the weights.
    batch_size, lr, weight_decay, reset_optimizer, scaling, device, random_state, verbose, \
validation, monitor, patience, checkpoint
        See `BaseCrowdClassifier`. ``validation`` chooses among the epochs of the last training,
        and ``patience`` ends no other stage. A ``checkpoint`` is written after every round and
        epoch.

    Attributes
    ----------
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances given their annotations and the members that
        were not fitted to them. Instances without annotations get those of the final classifier.
    labels_ : array of shape (n_samples,)
        Their most probable classes.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Annotations counted against ``posterior_``, with ``crowd_strength`` added to every row.
    class_prior_ : array of shape (n_classes,)
        Share of each class in what the networks were last trained on, weights included. It is the
        prior that their probabilities imply.
    member_weights_ : array of shape (2,), or (1,) with ``linear=False``
        How far the annotations support the network and the regression: the exponents of their
        probabilities (equal without rounds). If they sum to less than 1, the members are
        overconfident. In predictions the members are weighted in these proportions.

    Notes
    -----
    ``history_`` has one row per round (stage "em"): ``nll``, the mean negative log likelihood of an
    instance's annotations under the calibrated prior; ``nll_uncalibrated``, the same with equal
    members and no shift; ``weight_network`` and ``weight_linear``; and ``share_<class>`` of the
    posterior. Then there is one row per epoch (stage "train") with ``cross_entropy`` against the
    balanced posterior, the mean over the networks. In rows of "em", ``validation_*`` comes from
    networks that are not trained yet.

    `transform` gives the embedding of the first network of the last training.

    If no instance has two annotations, Dawid and Skene believe every annotation. The rounds then
    overrule hardly any, except where annotators gave few annotations each and the features separate
    the classes well. Little is left of the method but the last training, and there is no warning.

    The networks of a fold are not trained on what is inferred of its instances in this round. Some
    of it reaches them through the start and, from round to round, through other instances.
    Instances that occur twice in the data are seen outright, unless their copies happen to share a
    fold.

    A class of one or two instances is missing from the training of the networks that judge them,
    which therefore vote against it. Its annotations must outweigh that. Nothing is learnt from
    abstentions. A network given with weights that were trained on these very instances has seen
    them all.

    References
    ----------
    .. [1] Dawid & Skene, Maximum likelihood estimation of observer error-rates using the EM
       algorithm, JRSS C 28(1), 1979.

    Examples
    --------
    >>> from manyhands import CrossFittedEMClassifier, load_demo
    >>> demo = load_demo()
    >>> model = CrossFittedEMClassifier(n_rounds=1, n_folds=2, max_epochs=2, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).posterior_.shape == (len(demo.X_train), 10)
    True
    """

    _start_refusal = "begins with the posterior of Dawid and Skene"
    _shrinks_confusions = False  # ``crowd_strength`` says how many.
    _validates_last_stage_only = True
    _preparatory_stages = ("em",)
    _crowd_check_exemptions = {
        "check_history": "rows of rounds also have columns on calibration and classes, which are "
        "no loss terms; a test of the method checks the terms",
    }
    _fitted_arrays = (*LatentClassClassifier._fitted_arrays, "class_prior_", "member_weights_")
    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        **FIXED_LENGTH,
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "aggregator": [None, HasMethods(["fit_predict_proba"])],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "n_networks": [Interval(Integral, 1, None, closed="left")],
        "linear": ["boolean"],
        "crowd_strength": [Interval(Real, 0, None, closed="left")],
        "min_steps": [Interval(Integral, 1, None, closed="left")],
        "decision": [str, "array-like"],
    }

    backbone: Any = field(default=None, kw_only=False)
    n_rounds: int = 5
    aggregator: BaseAggregator | None = None
    n_folds: int = 5
    n_networks: int = 5
    linear: bool = True
    crowd_strength: float = 2.0
    min_steps: int = 20
    decision: Any = "posterior"
    max_epochs: int = 50
    class_balance: Any = "reweight"

    # -- networks ---------------------------------------------------------------------------------

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        n_classes = len(self.classes_)
        if self.backbone is None:
            classifier.backbone = make_backbone(LAST_NETWORK, input_shape, n_classes)
        spec = LAST_NETWORK if self.backbone is None else self.backbone
        more = [make_backbone(spec, input_shape, n_classes) for _ in range(1, self.n_networks)]
        check_distinct([classifier.backbone, *more])
        linear = Linear(input_shape, n_classes).requires_grad_(False) if self.linear else None
        classifier.backbone = Ensemble([classifier.backbone, *more], linear)
        return FixedConfusionModule(classifier, n_classes, self.n_annotators_)

    def _make_optimizer(self, module: CrowdModule) -> torch.optim.Optimizer:
        return self._adam(module, self.n_networks)

    def _adam(self, module: nn.Module, n_networks: int) -> torch.optim.Optimizer:
        """Make Adam. As the loss is a mean over networks, the decay is divided by their number."""
        fused = next(module.parameters()).device.type in {"cpu", "cuda"}
        decay = self.weight_decay / n_networks
        return torch.optim.Adam(module.parameters(), lr=self.lr, weight_decay=decay, fused=fused)

    # -- training ---------------------------------------------------------------------------------

    def _prepare(self, fit: CrossFittedFit) -> Training:
        latent = self._latent(fit.table)
        posterior = _first_posterior(fit, self.aggregator)[latent.instances]
        targets = EnsembleTargets(self._balance, fit.features.device, self._set_class_prior)
        # From the first round on, the history decides by the class prior.
        targets.set(latent.spread(posterior), balancing_rng(0))
        rounds = Rounds(
            fit,
            latent,
            posterior,
            self._out_of_fold(fit, latent, posterior),
            classes=self.classes_,
            crowd_strength=self.crowd_strength,
        )
        return Training(targets, rounds)

    def _set_class_prior(self, shares: FloatArray) -> None:
        self.class_prior_ = shares

    def _out_of_fold(
        self, fit: CrossFittedFit, latent: LatentClasses, posterior: FloatArray
    ) -> OutOfFold:
        spec = FOLD_NETWORK if self.backbone is None else self.backbone
        training = NetworkTraining(
            partial(make_backbone, spec, fit.features.input_shape, len(self.classes_)),
            lambda networks: self._adam(networks, len(networks)),
            n_epochs=math.ceil(self.max_epochs / 2),
            min_steps=self.min_steps,
            batch_size=self.batch_size,
            reset_optimizer=self.reset_optimizer,
        )
        return OutOfFold(
            latent,
            fit.features,
            fit.module.classifier.scaler,
            deal_folds(posterior, min(self.n_folds, len(posterior)), fit.rng),
            training=training,
            linear=self.linear,
        )

    def _stages(self, fit: CrossFittedFit) -> list[Stage]:
        def epoch_batches(epoch: int) -> Iterator[CrowdBatch]:
            return at_least(self.min_steps, lambda: fit.batches.epoch(epoch))

        def renew(epoch: int) -> None:
            if epoch == 0:
                self._begin_last_training(fit)

        step = TargetStep(
            fit.module,
            fit.state.targets,
            renew,
            lambda: self._make_optimizer(fit.module),
            reset_every_epoch=self.reset_optimizer,
        )
        last = Stage("train", step, epoch_batches, self.max_epochs)
        rounds = Stage("em", fit.state.rounds, lambda epoch: ("all instances",), self.n_rounds)
        return [rounds, last] if self.n_rounds else [last]

    def _begin_last_training(self, fit: CrossFittedFit) -> None:
        """Set the targets of the networks, and fit the regression to them once and for all."""
        rounds, targets = fit.state.rounds, fit.state.targets
        fit.facts.clear()
        targets.set(rounds.latent.spread(rounds.posterior), balancing_rng(0))
        classifier = fit.module.classifier
        linear = cast(Ensemble, classifier.backbone).linear
        if linear is not None:
            rows = rounds.out_of_fold.rows
            batches = scaled_batches(fit.features, classifier.scaler, rows)
            fit_linear(cast(Linear, linear), batches, targets.weighted[rows])

    def _set_fitted(self, fit: CrossFittedFit) -> None:
        rounds = fit.state.rounds
        self.posterior_ = rounds.latent.spread(rounds.posterior)
        unknown = np.setdiff1d(np.arange(len(self.posterior_)), rounds.latent.instances)
        if len(unknown):
            self.posterior_[unknown] = class_proba(fit.module, fit.features, unknown)
        self.confusion_ = rounds.confusion
        self.member_weights_ = rounds.weights


def _first_posterior(fit: CrossFittedFit, aggregator: BaseAggregator | None) -> FloatArray:
    """Posterior that EM starts from, shape (n_instances, n_classes)."""
    with catch_warnings():
        # The class's notes say what happens with single annotations.
        simplefilter("ignore", NotIdentifiableWarning)
        aggregator = DawidSkene() if aggregator is None else clone(aggregator)
        return set_random_states(aggregator, fit.rng).fit(fit.table).posterior_
