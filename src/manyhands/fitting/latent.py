"""Training on inferred classes: the E-step, the M-step, and soft targets.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
   the EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
.. [2] V. C. Raykar, S. Yu, L. H. Zhao, G. H. Valadez, C. Florin, L. Bogoni and L. Moy. Learning
   from crowds. Journal of Machine Learning Research 11, 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.decision.rules import labels_of
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.method_protocol import flat_parameters
from manyhands.fitting.prediction import class_proba
from manyhands.fitting.traits import ANNOTATOR_ARRAYS, Traits
from manyhands.functional import soft_cross_entropy
from manyhands.inference.confusions import confusion_counts, e_step
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import Votes, make_votes, vote_shares
from manyhands.nn import CrowdModule, FixedConfusionModule, ScaledClassifier
from manyhands.objectives import soft_label_objective
from manyhands.sampling.class_balance import ClassBalance
from manyhands.training import CrowdBatch, GradientStep
from manyhands.typing import AnyArray, FloatArray, IntArray

# -- E-step and M-step ----------------------------------------------------------------------------


class LatentClasses:
    """E- and M-step over confusion matrices, for the annotated instances [1]_, [2]_.

    Both cost O(annotations * n_classes); nothing is of size instances x annotators.

    Parameters
    ----------
    table : AnnotationTable
    smoothing : float
        Pseudo-annotations in every entry of a confusion matrix.
    confusion_floor, proba_floor : float
        Added to confusions and class probabilities before taking their logarithm.

    Attributes
    ----------
    instances : integer array of shape (m,)
        Rows of the training data that have annotations (of weight above 0).
    votes : Votes
        Their annotations.
    """

    def __init__(
        self,
        table: AnnotationTable,
        *,
        smoothing: float = 0.0,
        confusion_floor: float = 0.0,
        proba_floor: float = 0.0,
    ) -> None:
        votes = make_votes(table)
        self.n_instances = table.n_instances
        self.smoothing = smoothing
        self.confusion_floor = confusion_floor
        self.proba_floor = proba_floor
        self.instances: IntArray = np.flatnonzero(votes.voted)
        start = np.append(votes.start[self.instances], votes.start[-1])
        self.votes: Votes = replace(votes, start=start.astype(votes.start.dtype))

    def vote_shares(self) -> FloatArray:
        """Return the soft majority vote, shape (m, n_classes): the starting point of EM."""
        return vote_shares(self.votes)

    def posterior(self, proba: FloatArray, confusion: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the E-step: q_i ~ p(x_i) times prod_r confusion_r[:, y_ir], in log space.

        Parameters
        ----------
        proba : array of shape (m, n_classes) or (n_classes,)
            The classifier's p(x_i), or one prior for all instances.
        confusion : array of shape (n_annotators, n_classes, n_classes)

        Returns
        -------
        posterior : array of shape (m, n_classes)
        log_likelihood : array of shape (m,)
            Log likelihood of every instance's annotations given x.
        """
        log_prior = floored_log(proba + self.proba_floor)
        return e_step(self.votes, log_prior, floored_log(confusion + self.confusion_floor))

    def confusion(self, posterior: FloatArray) -> FloatArray:
        """Return the M-step: expected counts plus ``smoothing``, normalised rows.

        Parameters
        ----------
        posterior : array of shape (m, n_classes)

        Returns
        -------
        array of shape (n_annotators, n_classes, n_classes), [annotator, true, given]
        """
        return normalise_rows(confusion_counts(self.votes, posterior) + self.smoothing)

    def spread(self, rows: FloatArray) -> FloatArray:
        """Return an array (n, n_classes) with the given rows at annotated instances, else 0."""
        spread = np.zeros((self.n_instances, rows.shape[1]))
        spread[self.instances] = rows
        return spread


def read_confusion(module: FixedConfusionModule) -> FloatArray:
    """Return the confusion matrices of a module, in double precision, rows normalised."""
    return normalise_rows(module.confusions.double().cpu().numpy())


# -- training on soft targets ---------------------------------------------------------------------


class SoftTargets:
    """Target distributions on which a network is trained, and the weights that balance them.

    Parameters
    ----------
    balance : ClassBalance or None
    device : torch.device

    Attributes
    ----------
    targets : tensor of shape (n_instances, n_classes)
        Rows of zeros are instances without a target; empty before the first `set`.
    weights : tensor of shape (n_instances, n_classes) or None
        None if all are equal.
    """

    def __init__(self, balance: ClassBalance | None, device: torch.device) -> None:
        self.balance = balance
        self.device = device
        self.targets = torch.empty((0, 0), device=device)
        self.weights: Tensor | None = None

    def set(
        self,
        targets: FloatArray,
        rng: np.random.Generator,
        *,
        balanced_by: FloatArray | None = None,
    ) -> None:
        """Set new targets, and balance them.

        Parameters
        ----------
        targets : array of shape (n_instances, n_classes)
            Rows of zeros are instances without a target.
        rng : Generator
        balanced_by : array of shape (n_instances, n_classes), optional
            Class distributions of the same instances by which they are balanced. Default: the
            targets. Smoothed targets have mass on classes that nobody gave, which "resample" would
            draw: pass the targets before smoothing.
        """
        by = targets if balanced_by is None else balanced_by
        weights = balancing_weights(self.balance, by, rng)
        if weights is not None:
            # Rescaled to mean 1: see `soft_cross_entropy`.
            weights = weights * (targets.sum() / (weights * targets).sum())
        self.targets = self._as_tensor(targets)
        self.weights = None if weights is None else self._as_tensor(weights)

    @property
    def weighted(self) -> Tensor:
        """Targets times their weights, shape (n_instances, n_classes)."""
        return self.targets if self.weights is None else self.targets * self.weights

    @property
    def shares(self) -> FloatArray:
        """Share of every class in the weighted targets, shape (n_classes,); see `class_shares`.

        Computed from the contents of `state_dict`, so it is also correct after a resume.
        """
        return class_shares(self.weighted.double().cpu().numpy())

    def _as_tensor(self, values: FloatArray) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    def objective(self, module: CrowdModule, batch: CrowdBatch) -> dict[str, Tensor]:
        """Return ``cross_entropy`` against the targets; see `soft_label_objective`."""
        return soft_label_objective(module, batch, self.targets, self.weights, self._focus)

    def loss(self, logits: Tensor, instances: Tensor) -> dict[str, Tensor]:
        """Return ``cross_entropy`` of the logits (n, n_classes) of some instances."""
        weights = None if self.weights is None else self.weights[instances]
        loss = soft_cross_entropy(logits, self.targets[instances], weights, self._focus)
        return {"cross_entropy": loss}

    @property
    def _focus(self) -> float:
        return 0.0 if self.balance is None else self.balance.focus

    def state_dict(self) -> dict[str, Any]:
        """Return the targets and weights, for a checkpoint."""
        return {"targets": self.targets, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.targets = state["targets"].to(self.device)
        weights = state["weights"]
        self.weights = None if weights is None else weights.to(self.device)


def class_shares(targets: FloatArray) -> FloatArray:
    """Return the share of every class in targets: the class prior of a classifier trained on them.

    Parameters
    ----------
    targets : array of shape (n, n_classes)
        Target distributions times their weights; rows of zeros are instances without a target.

    Returns
    -------
    array of shape (n_classes,)
        Sums to 1. A class counts as at least one instance, as in `ClassBalance`: posteriors
        leave a trace of mass on classes that nobody gave, and dividing by it would decide every
        instance for those classes. A class without any mass has 0.

    Examples
    --------
    >>> import numpy as np
    >>> class_shares(np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0], [0.0, 0.0]]))
    array([0.375, 0.625])
    """
    mass = targets.sum(axis=0)
    # Rescale to numbers of instances, as weights may have any mean.
    mass = mass * (targets.any(axis=1).sum() / mass.sum())
    mass = np.where(mass > 0, np.maximum(mass, 1.0), 0.0)
    return cast(FloatArray, mass / mass.sum())


def balancing_weights(
    balance: ClassBalance | None, targets: FloatArray, rng: np.random.Generator
) -> FloatArray | None:
    """Return the weights (n, n_classes) that balance targets; None if all are equal."""
    return None if balance is None else balance.target_weights(targets, rng)


def balancing_rng(*places: int) -> np.random.Generator:
    """Make a generator for balancing that is the same whenever a fit reaches this place.

    It is seeded by the fit rather than drawn from the training's generator. A balance without any
    effect must not change what dropout draws, and a resumed run must repeat its draws.
    """
    return np.random.default_rng([torch.initial_seed(), *places])


class TargetStep(GradientStep):
    """Gradient steps towards soft targets, which may be renewed before an epoch.

    The targets are part of its state, so a run resumed between two renewals keeps them.

    Parameters
    ----------
    module : CrowdModule
    targets : SoftTargets
    renew : callable (epoch) -> None
        Called at the start of every epoch (from 0); sets new targets if there are any.
    make_optimizer, reset_every_epoch
        See `GradientStep`.
    """

    def __init__(
        self,
        module: CrowdModule,
        targets: SoftTargets,
        renew: Callable[[int], None],
        make_optimizer: Callable[[], torch.optim.Optimizer],
        *,
        reset_every_epoch: bool = False,
    ) -> None:
        super().__init__(
            module, targets.objective, make_optimizer, reset_every_epoch=reset_every_epoch
        )
        self.targets = targets
        self.renew = renew

    def start_epoch(self, epoch: int) -> None:
        """Renew the targets, and put the module into training mode."""
        self.renew(epoch)
        super().start_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimiser, and the targets."""
        return {**super().state_dict(), "targets": self.targets.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the optimiser and the targets."""
        super().load_state_dict(state)
        self.targets.load_state_dict(state["targets"])


@dataclass(kw_only=True, eq=False, repr=False)
class LatentClassClassifier(BaseCrowdClassifier):
    """Base of methods that train a network on a posterior over classes, with confusion matrices.

    A subclass stores the confusion matrices in its module and trains on the posterior of
    `LatentClasses`, whose options are parameters or fields of the protocol, as far as it has them.

    Attributes
    ----------
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances, in the order of X (see `partial_fit`);
        ``instances_`` holds the ids.
    labels_ : array of shape (n_samples,)
        Label of every training instance, in the same order and in the original class values: the
        most probable class, or of three or more grades the median.
    """

    @property
    def _traits(self) -> Traits:
        return Traits(
            saved=(*ANNOTATOR_ARRAYS, "posterior_"),
            shrinks_confusions=True,
            balances_annotations=False,
        )

    @property
    def labels_(self) -> AnyArray:
        """Label of every training instance, in the order of X; ``instances_`` holds the ids."""
        return labels_of(self)

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        return FixedConfusionModule(classifier, len(self.classes_), self.n_annotators_)

    def _latent(self, table: AnnotationTable) -> LatentClasses:
        names = ("smoothing", "confusion_floor", "proba_floor")
        given = flat_parameters(self)
        return LatentClasses(table, **{name: given[name] for name in names if name in given})

    def _read_out(self, fit: Fit[Any, Any]) -> dict[str, Any]:
        """Return the confusion matrices, and the posterior given x and any annotations."""
        latent = self._latent(fit.table)
        all_rows = np.arange(latent.n_instances)
        confusion = read_confusion(fit.module)
        fit.belief = posterior = class_proba(fit.module, fit.features, all_rows)
        proba = posterior[latent.instances]
        posterior[latent.instances] = latent.posterior(proba, confusion)[0]
        return {"confusion_": confusion, "posterior_": posterior}
