"""Cross-fitted EM: truth inference whose prior comes from networks that have not seen the instance.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
   the EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar, cast
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import (
    LatentClassClassifier,
    LatentClasses,
    SoftTargets,
    TargetStep,
    balancing_rng,
)
from manyhands.fitting.logistic import fit_logistic
from manyhands.fitting.prediction import PREDICT_BATCH, class_proba
from manyhands.fitting.second_stage import seeded
from manyhands.inference import DawidSkene
from manyhands.inference.em import confusion_counts, log_likelihoods
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.linear.calibration import calibrate, calibrated_nll, combine
from manyhands.linear.folds import deal_folds
from manyhands.nn import (
    CrowdModule,
    Ensemble,
    FixedConfusionModule,
    Linear,
    ScaledClassifier,
    make_backbone,
)
from manyhands.training import (
    CrowdBatch,
    GradientStep,
    MixedBatch,
    Stage,
    mixed_epoch,
)
from manyhands.typing import FloatArray

Batch = TypeVar("Batch")

FOLD_NETWORK = {"name": "mlp", "dropout": 0.5}
LAST_NETWORK = {"name": "mlp", "dropout": 0.2}
"""What ``backbone=None`` stands for in the rounds and in the last training."""

LEAST_LOG_PROBA = math.log(1e-6)
"""No network rules a class out for an instance it has not seen."""

HELD_NUMBERS = 1 << 26
"""Scaled features up to this many numbers (256 MiB) are kept while a regression is fitted."""


@dataclass(eq=False)
class _Training:
    """What the last training learns, and the rounds before it."""

    targets: _EveryNetworksTargets
    rounds: _Rounds


CrossFittedFit = Fit[FixedConfusionModule, _Training]


@dataclass(kw_only=True, eq=False, repr=False)
class CrossFittedEMClassifier(LatentClassClassifier):
    r"""Learn from imbalanced crowds by EM whose prior has not seen the instance it is of.

    The library's own recipe, beside the published methods. As in [1]_ an instance's class has the
    posterior :math:`q_i \propto p_i \prod_r \pi^r_{\cdot, y_{ir}}`, with the annotators' confusion
    matrices :math:`\pi^r`. The prior :math:`p_i` is that of networks trained on :math:`q` of the
    *other* folds, and *calibrated*: :math:`p_i \propto \exp(v + \sum_m b_m \log p_{im})`, of
    members m (a network, a logistic regression) whose weights :math:`b_m` and the shift :math:`v`
    maximise the likelihood of the annotations. A network that has seen :math:`q_i` repeats it, and
    a rare class once overlooked stays so; one that has not brings evidence of its own, and the
    calibration says how much. After ``n_rounds`` a last training on :math:`q`, of all instances,
    weighs the classes.

    Parameters
    ----------
    backbone : as in `BaseCrowdClassifier`
        None is ``"mlp"`` with a dropout of .5 in the rounds and of .2 in the last training; any
        other is the same in both.
    n_rounds : int, default=5
        Rounds of EM. 0: the last training alone, on the posterior of `DawidSkene`.
    n_folds : int, default=5
        Parts of the instances in cross-fitting, each with its share of every (inferred) class; of
        fewer instances, one each.
    n_networks : int, default=5
        Networks in the last training, of different random starts; their probabilities are
        averaged. (A module given as ``backbone`` is copied, so that all start alike: give a
        factory, or 1.)
    linear : bool, default=True
        A multinomial logistic regression beside the network, in every fold and in the last
        training (L2 penalty of half the squared weights, as scikit-learn's C=1); the annotations
        tell how far each is believed.
    crowd_strength : float, default=2.0
        Annotations every row of a confusion matrix gets besides, given as the crowd gives them.
    min_steps : int, default=20
        Gradient steps of an epoch at the least: a set of fewer minibatches is gone through several
        times. A network needs steps, and a small set has few minibatches.
    decision : {"posterior", "balanced"} or cost matrix, default="posterior"
        How `predict` makes labels of probabilities: the most probable class; the largest
        probability divided by ``class_prior_``; or, with costs of shape (n_classes, n_classes)
        [true, decided], the least expected cost. See `manyhands.decide`.
    max_epochs : int, default=50
        Of the last training; the networks of the rounds train for half as many.
    class_balance : as in `BaseCrowdClassifier`, default="reweight"
        Acts on the inferred classes in the last training, never in the rounds. None makes the
        probabilities those of a class as frequent as it was inferred to be. The factor of a focal
        loss is the networks' alone; the regression has the weights.
    batch_size, lr, weight_decay, reset_optimizer, scaling, device, random_state, verbose, \
validation, patience, checkpoint
        See `BaseCrowdClassifier`. ``validation`` chooses among the epochs of the last training,
        which alone ``patience`` ends; a ``checkpoint`` is written after every round and epoch.

    Attributes
    ----------
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances given their annotations and the networks that
        have not seen them (by the final classifier, for instances without annotations).
    labels_ : array of shape (n_samples,)
        Their most probable classes.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Annotations counted against ``posterior_``, with ``crowd_strength`` more in every row.
    class_prior_ : array of shape (n_classes,)
        Share of every class in what the networks were last trained on, weights included: what
        their probabilities imply.
    member_weights_ : array of shape (2,), or (1,) with ``linear=False``
        How far the annotations believe the network and the regression: exponents of their
        probabilities (without rounds: equal). Below 1 in sum, they are too sure of themselves. In
        predictions the members weigh in these proportions.

    Notes
    -----
    ``history_`` has a row a round (stage "em"): ``nll``, the mean negative log likelihood of an
    instance's annotations under the calibrated prior; ``nll_uncalibrated``, the same where all
    members count alike and nothing is shifted; ``weight_network`` and ``weight_linear``; and
    ``share_<class>`` of the posterior. Then a row an epoch (stage "train"): ``cross_entropy``
    against the balanced posterior, the mean over the networks. ``validation_*`` in rows of "em" are
    of networks not trained yet.

    `transform` gives the embedding of the first network of the last training.

    If no instance has two annotations, Dawid and Skene take every annotation for right, and the
    rounds hardly overrule one but where annotators gave a few each and the features tell the
    classes well apart: then little but the last training is left of the method (of which there
    is no warning here).

    The networks of a fold have not seen what is said of its instances in this round. Through the
    start, and from round to round through other instances, something of it reaches them; instances
    that stand in the data twice are seen outright, unless they share a fold by chance.

    A class of one or two instances is not seen by the networks of their folds, which count against
    it there; its annotations must make up for that. Of abstentions nothing is learnt. A network
    given with weights that were trained on these very instances has seen them all.

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

    _starts_anew = "begins with the posterior of Dawid and Skene"
    _adds_the_crowds_answer = False  # ``crowd_strength`` says how many.
    _chosen_in_last_stage = True
    _stages_before = ("em",)
    _crowd_check_exemptions = {
        "check_history": "rows of a round also tell of calibration and classes, which are no loss; "
        "a test of the method checks its terms",
    }
    _fitted_arrays = (*LatentClassClassifier._fitted_arrays, "class_prior_", "member_weights_")
    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "n_networks": [Interval(Integral, 1, None, closed="left")],
        "linear": ["boolean"],
        "crowd_strength": [Interval(Real, 0, None, closed="left")],
        "min_steps": [Interval(Integral, 1, None, closed="left")],
        "decision": [str, "array-like"],
    }

    backbone: Any = field(default=None, kw_only=False)
    n_rounds: int = 5
    n_folds: int = 5
    n_networks: int = 5
    linear: bool = True
    crowd_strength: float = 2.0
    min_steps: int = 20
    decision: Any = "posterior"
    class_balance: Any = "reweight"

    # -- what it is made of -----------------------------------------------------------------------

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

    def _adam(self, module: torch.nn.Module, n_networks: int) -> torch.optim.Optimizer:
        """Adam; where the loss is a mean over networks, the decay of each is divided, too."""
        fused = next(module.parameters()).device.type in {"cpu", "cuda"}
        decay = self.weight_decay / n_networks
        return torch.optim.Adam(module.parameters(), lr=self.lr, weight_decay=decay, fused=fused)

    def _prepare(self, fit: CrossFittedFit) -> _Training:
        with catch_warnings():
            # Of single annotations; said in the notes.
            simplefilter("ignore", NotIdentifiableWarning)
            posterior = seeded(DawidSkene(), fit.rng).fit(fit.table).posterior_
        latent = self._latent(fit.table)
        targets = _EveryNetworksTargets(self._balance, fit.features.device)
        # Predictions are judged by it from the first round on.
        self._set_targets(targets, latent.spread(posterior[latent.instances]))
        return _Training(targets, _Rounds(self, fit, latent, posterior[latent.instances]))

    def _set_targets(self, targets: SoftTargets, posterior: FloatArray) -> None:
        targets.set(posterior, balancing_rng(0))
        self.class_prior_ = targets.shares

    # -- training ---------------------------------------------------------------------------------

    def _stages(self, fit: CrossFittedFit) -> list[Stage]:
        def epoch_batches(epoch: int) -> Iterator[CrowdBatch]:
            return at_least(self.min_steps, lambda: fit.batches.epoch(epoch))

        last = Stage("train", _LastStep(self, fit), epoch_batches, self.max_epochs)
        rounds = Stage("em", fit.state.rounds, lambda epoch: ("all instances",), self.n_rounds)
        return [rounds, last] if self.n_rounds else [last]

    def _begin_last_training(self, fit: CrossFittedFit) -> None:
        """Set what the networks are to learn, and fit the regression to it once and for all."""
        rounds, targets = fit.state.rounds, fit.state.targets
        fit.facts.clear()
        self._set_targets(targets, rounds.latent.spread(rounds.posterior))
        linear = cast(Ensemble, fit.module.classifier.backbone).linear
        if linear is None:
            return
        weighted = targets.weighted[rounds.rows]
        every = torch.ones(1, len(weighted), device=weighted.device)
        weight, bias = fit_logistic(rounds.scaled, weighted, every, None)
        head = cast(Linear, linear).head
        with torch.no_grad():
            head.weight.copy_(weight[0])
            head.bias.copy_(bias[0])

    def _set_fitted(self, fit: CrossFittedFit) -> None:
        rounds = fit.state.rounds
        self.posterior_ = rounds.latent.spread(rounds.posterior)
        unknown = np.setdiff1d(np.arange(len(self.posterior_)), rounds.latent.instances)
        if len(unknown):
            self.posterior_[unknown] = class_proba(fit.module, fit.features, unknown)
        self.confusion_ = rounds.confusion
        self.member_weights_ = rounds.weights


class _EveryNetworksTargets(SoftTargets):
    """Targets towards which every network of an ensemble is trained."""

    def objective(self, module: CrowdModule, batch: CrowdBatch) -> dict[str, Tensor]:
        """``cross_entropy``, the mean over networks and instances."""
        classifier = module.classifier
        logits = cast(Ensemble, classifier.backbone).member_logits(classifier.scaler(batch.x))
        return self.loss(logits.flatten(0, 1), batch.instances.repeat(len(logits)))


class _LastStep(TargetStep):
    """Gradient steps of all networks towards the posterior of the last round."""

    def __init__(self, model: CrossFittedEMClassifier, fit: CrossFittedFit) -> None:
        def renew(epoch: int) -> None:
            if epoch == 0:
                model._begin_last_training(fit)

        super().__init__(
            fit.module,
            fit.state.targets,
            renew,
            lambda: model._make_optimizer(fit.module),
            reset_every_epoch=model.reset_optimizer,
        )
        self.model = model

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the state back, and what follows from it."""
        super().load_state_dict(state)
        self.model.class_prior_ = self.targets.shares


# -- a round --------------------------------------------------------------------------------------


class _Rounds:
    """The step of a round: cross-fitting, M-step, calibration, E-step.

    Parameters
    ----------
    model : CrossFittedEMClassifier
    fit : Fit
        Its module gets the confusion matrices and the members' weights, its facts what the history
        says of the round; its generator deals the folds.
    latent : LatentClasses
    posterior : array of shape (m, n_classes)
        Of the annotated instances; where EM starts.

    Attributes
    ----------
    folds : tensor of shape (m,)
        Fold of every annotated instance.
    weights, shift : arrays of shape (n_members,) and (n_classes,)
        See `calibrate`.
    """

    def __init__(
        self,
        model: CrossFittedEMClassifier,
        fit: Fit[FixedConfusionModule, Any],
        latent: LatentClasses,
        posterior: FloatArray,
    ) -> None:
        self.model = model
        self.module, self.features, self.facts = fit.module, fit.features, fit.facts
        self.latent = latent
        self.posterior = posterior
        self.rows = torch.from_numpy(latent.instances).to(self.features.device)
        self.n_folds = min(model.n_folds, len(posterior))
        dealt = deal_folds(posterior, self.n_folds, fit.rng)
        self.folds = torch.from_numpy(dealt).to(self.features.device)
        n_members = 1 + model.linear
        self.weights = np.full(n_members, 1.0 / n_members)
        self.shift = np.zeros(posterior.shape[1])
        self.regressions: tuple[Tensor, Tensor] | None = None
        self._count()

    @property
    def classifier(self) -> ScaledClassifier:
        """Scaling, and the ensemble that is trained last."""
        return self.module.classifier

    def start_epoch(self, epoch: int) -> None:
        """Nothing to prepare."""

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Run a round; the loss is that of the annotations under the new prior."""
        log_probas = self.out_of_fold()
        log_likelihood = log_likelihoods(self.latent.votes, floored_log(self.confusion))
        alike = np.full(len(log_probas), 1.0 / len(log_probas))
        uncalibrated = calibrated_nll(log_probas, log_likelihood, alike, np.zeros_like(self.shift))
        self.weights, self.shift = calibrate(log_probas, log_likelihood, self.weights, self.shift)
        prior = combine(log_probas, self.weights, self.shift)
        self.posterior, evidence = self.latent.posterior(np.exp(prior), self.confusion)
        self._count()
        self._tell(uncalibrated)
        return {"nll": torch.tensor(-float(evidence.mean()), dtype=torch.float64)}

    def _count(self) -> None:
        """M-step; the module gets what is known by now."""
        self.confusion = crowd_confusion(self.latent, self.posterior, self.model.crowd_strength)
        self.module.confusions.copy_(torch.from_numpy(self.confusion))
        share = torch.from_numpy(self.weights / self.weights.sum())
        cast(Ensemble, self.classifier.backbone).weights.copy_(share)

    def _tell(self, uncalibrated: float) -> None:
        classes = self.model.classes_
        shares = dict(zip(classes, self.posterior.mean(axis=0).tolist(), strict=True))
        members = dict(zip(("network", "linear"), self.weights.tolist(), strict=False))
        self.facts.clear()
        self.facts["nll_uncalibrated"] = uncalibrated
        self.facts |= {f"weight_{name}": weight for name, weight in members.items()}
        self.facts |= {f"share_{name}": share for name, share in shares.items()}

    # -- cross-fitting ----------------------------------------------------------------------------

    def out_of_fold(self) -> FloatArray:
        """Log class probabilities by members that have not seen the instance, (members, m, C)."""
        members = [self._by_networks()]
        if self.model.linear:
            members.append(self._by_regressions())
        return np.stack([np.maximum(member, LEAST_LOG_PROBA) for member in members])

    def _by_networks(self) -> FloatArray:
        networks = [self._new_network() for _ in range(self.n_folds)]
        check_distinct(networks)
        if self.n_folds > 1:
            self._train(networks)
        log_proba = np.empty(self.posterior.shape)
        folds = self.folds.cpu().numpy()
        for fold, network in enumerate(networks):
            own = ScaledClassifier(self.classifier.scaler, network)
            rows = self.latent.instances[folds == fold]
            proba = class_proba(cast(CrowdModule, own), self.features, rows)
            log_proba[folds == fold] = floored_log(proba)
        return log_proba

    def _new_network(self) -> torch.nn.Module:
        model = self.model
        spec = FOLD_NETWORK if model.backbone is None else model.backbone
        network = make_backbone(spec, model.input_shape_, len(model.classes_))
        return network.to(self.features.device)

    def _train(self, networks: list[torch.nn.Module]) -> None:
        """Train the network of every fold on the posterior of the others, on the same batches."""
        model, device = self.model, self.features.device
        targets = SoftTargets(None, device)
        targets.set(self.latent.spread(self.posterior), balancing_rng(0))
        fold_of = torch.full((self.latent.n_instances,), -1, device=device)
        fold_of[self.rows] = self.folds
        together = torch.nn.ModuleList(networks)

        def objective(module: Any, batch: Any) -> dict[str, Tensor]:
            x = self.classifier.scaler(batch.x)
            logits, instances = [], []
            for fold, network in enumerate(networks):
                others = fold_of[batch.instances] != fold
                # Of one row there is no variance to normalise by: there alone, the fold's own
                # features (never what is said of them) are in the batch.
                enough = int(others.sum()) > 1
                logits.append(network(x[others]) if enough else network(x)[others])
                instances.append(batch.instances[others])
            return targets.loss(torch.cat(logits), torch.cat(instances))

        step = GradientStep(
            together,
            objective,
            lambda: model._adam(together, len(networks)),
            reset_every_epoch=model.reset_optimizer,
        )
        for epoch in range(math.ceil(model.max_epochs / 2)):
            step.start_epoch(epoch)
            for batch in at_least(model.min_steps, self._one_pass):
                step(batch)

    def _one_pass(self) -> Iterator[MixedBatch]:
        return mixed_epoch(self.features, self.rows, self.model.batch_size)

    def _by_regressions(self) -> FloatArray:
        targets = torch.from_numpy(self.posterior).to(self.features.device, torch.float32)
        every = torch.arange(self.n_folds, device=self.folds.device)
        seen = (self.folds != every[:, None]).float()
        weight, bias = self.regressions = fit_logistic(self.scaled, targets, seen, self.regressions)
        parts, first = [], 0
        for x in self.scaled():
            own = self.folds[first : first + len(x)]
            first += len(x)
            logits = torch.einsum("nd,kcd->nkc", x, weight) + bias
            mine = logits[torch.arange(len(x), device=own.device), own]
            parts.append(mine.double().log_softmax(dim=1))
        return cast(FloatArray, torch.cat(parts).cpu().numpy())

    @property
    def scaled(self) -> Callable[[], Iterator[Tensor]]:
        """Function that yields the annotated instances, scaled and flattened, batch by batch."""

        def batches() -> Iterator[Tensor]:
            for x in self.features.batches(self.rows, PREDICT_BATCH):
                yield self.classifier.scaler(x).flatten(1)

        if len(self.rows) * math.prod(self.features.input_shape) > HELD_NUMBERS:
            return batches
        held = list(batches())
        return lambda: iter(held)

    # -- for a checkpoint -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What the next round, or the last training, begins with."""
        return {
            "posterior": torch.from_numpy(self.posterior),
            "confusion": torch.from_numpy(self.confusion),
            "weights": torch.from_numpy(self.weights),
            "shift": torch.from_numpy(self.shift),
            "regressions": None if self.regressions is None else list(self.regressions),
            "facts": dict(self.facts),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the state back."""
        for name in ("posterior", "confusion", "weights", "shift"):
            setattr(self, name, state[name].cpu().numpy())
        if state["regressions"] is not None:
            weight, bias = (part.to(self.features.device) for part in state["regressions"])
            self.regressions = weight, bias
        self.facts.clear()
        self.facts |= state["facts"]


def check_distinct(networks: Sequence[torch.nn.Module]) -> None:
    """Refuse networks with trainable parameters in common: they would have seen all folds.

    Raises
    ------
    AnnotationError
        If a parameter that is trained stands in two of them.
    """
    seen: set[int] = set()
    for network in networks:
        own = {id(p) for p in network.parameters() if p.requires_grad}
        if own & seen:
            raise AnnotationError(
                "backbone is a factory whose modules share parameters that are trained; let it "
                "make new ones whenever it is called, or freeze what they share"
            )
        seen |= own


def at_least(n: int, one_pass: Callable[[], Iterator[Batch]]) -> Iterator[Batch]:
    """Yield a pass of batches, and others after it until there were n batches."""
    yielded = 0
    while yielded < n:
        first = not yielded
        for batch in one_pass():
            if yielded >= n and not first:
                return
            yield batch
            yielded += 1


def crowd_confusion(latent: LatentClasses, posterior: FloatArray, strength: float) -> FloatArray:
    """M-step: expected counts, and ``strength`` annotations a row as the crowd gives them.

    Parameters
    ----------
    latent : LatentClasses
    posterior : array of shape (m, n_classes)
    strength : float

    Returns
    -------
    array of shape (n_annotators, n_classes, n_classes), [annotator, true, given]
    """
    counts = confusion_counts(latent.votes, posterior)
    # The crowd's own rows: rather right than wrong, where nothing is known of a class.
    pooled = normalise_rows(counts.sum(axis=0) + 0.1 + np.eye(counts.shape[1]))
    return normalise_rows(counts + strength * pooled)
