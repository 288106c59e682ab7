"""Raykar et al.'s joint EM of confusion matrices and logistic regression.

.. [1] V. C. Raykar, S. Yu, L. H. Zhao, G. H. Valadez, C. Florin, L. Bogoni and L. Moy. Learning
   from crowds. Journal of Machine Learning Research 11, 2010.
   https://jmlr.org/papers/v11/raykar10a.html
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.utils._param_validation import Interval
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import AnyFit, Fit
from manyhands.fitting.latent import (
    LatentClassClassifier,
    LatentClasses,
    balancing_rng,
    balancing_weights,
)
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.parameters import FIXED_EPOCHS
from manyhands.fitting.traits import Traits
from manyhands.inference.probability import log_dirichlet
from manyhands.nn import FixedConfusionModule, Linear
from manyhands.training import BestState, Callback, Features, Stage
from manyhands.typing import FloatArray

GRADIENT_TOLERANCE = 1e-7
"""The regression's M-step stops when no entry of its gradient exceeds this."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RaykarProtocol(MethodProtocol):
    """Numerical details of the M-step of `RaykarClassifier`.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    smoothing : float, default=0.01
        Pseudo-annotations in every entry of a confusion matrix: a Dirichlet prior of
        ``1 + smoothing`` on its rows.
    inner_steps : int, default=100
        Maximum number of L-BFGS iterations in an M-step. Each M-step continues from the end of the
        last one.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "inner_steps": [Interval(Integral, 1, None, closed="left")],
    }

    smoothing: float = 0.01
    inner_steps: int = 100


@dataclass(kw_only=True, eq=False, repr=False)
class RaykarClassifier(LatentClassClassifier):
    r"""Learn confusion matrices and a logistic regression together, by EM [1]_.

    The E-step computes :math:`q_i \propto p(x_i) \prod_r \pi^r_{\cdot, y_{ir}}`. The M-step counts
    the annotations against :math:`q` to estimate the confusion matrices :math:`\pi^r`, and fits
    the regression to :math:`q` as soft targets until it converges. Every iteration therefore raises
    the likelihood of the annotations,
    :math:`\sum_i \log \sum_c p_c(x_i) \prod_r \pi^r_{c, y_{ir}}`. EM starts from the vote shares.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default="linear"
        "linear" is multinomial logistic regression. Any other network is fitted in the same way
        (generalised EM), in evaluation mode: without dropout, and with fixed statistics in its
        batch normalisation.
    tol : float, default=1e-4
        Stop when an iteration changes the loss by less than this share of it.
    max_epochs : int, default=50
        Maximum number of EM iterations.
    batch_size : int, default=1024
        Instances processed at once; the result does not depend on it.
    lr, reset_optimizer
        Without effect, because there are no gradient steps; these parameters belong to the common
        interface.
    weight_decay : float, default=1e-2
        L2 penalty: half of it times the squared weights (not the biases) is added to the mean loss
        per instance. A regression that is fitted to convergence needs a larger penalty than a
        network, which is not. Otherwise the regression overfits the vote shares and outvotes the
        annotators.
    class_balance : None, "resample" or "reweight"
        Instances are weighted according to the class balance of the vote shares, in both parts of
        the M-step. The focal losses are rejected, because they are not likelihoods.
    scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. If ``validation`` is a fraction, it always uses
        the likelihood, because agreement would choose a wrong number of EM iterations.
    protocol : RaykarProtocol or None, default=None
        Variants and details of published experiments; None means `RaykarProtocol()`.

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
    ``history_`` has one row per EM iteration: ``nll``, the mean negative log likelihood per
    instance of its annotations, and ``penalty``, the negative log prior of weights and confusions
    on the same scale. Their sum ``loss`` never rises.

    References
    ----------
    .. [1] Raykar et al., Learning from crowds, JMLR 11, 2010.

    Examples
    --------
    >>> from manyhands import RaykarClassifier, load_demo
    >>> demo = load_demo()
    >>> model = RaykarClassifier(max_epochs=3).fit(demo.X_train, demo.annotations)
    >>> bool((model.history_.column("loss")[1:] <= model.history_.column("loss")[:-1]).all())
    True
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        **FIXED_EPOCHS,
        "tol": [Interval(Real, 0, None, closed="left")],
    }
    # In an M-step that is solved to convergence, other parameters have another meaning.
    _crowd_check_exemptions = {
        "check_every_parameter_moves": "lr has no effect: the M-step is solved",
    }

    backbone: Any = field(default="linear", kw_only=False)
    tol: float = 1e-4
    max_epochs: int = 50
    batch_size: int = 1024
    weight_decay: float = 1e-2
    protocol: RaykarProtocol | None = None

    _protocol = ProtocolOf(RaykarProtocol)

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        return replace(
            inherited,
            predicts_by_backbone=False,
            focal_refusal="is a loss for gradient steps; RaykarClassifier maximises a likelihood "
            "by EM: use 'resample' or 'reweight', or AggNetClassifier(backbone='linear')",
            protocol_parameters=("scaling",),
            start_refusal="begins with the shares of the votes",
            devices_refusal="solves for its weights over all instances at once (EM, L-BFGS)",
            auto_epochs_refusal=(
                "'auto' chooses by agreement with the annotators, which is no criterion for "
                "rounds of EM"
            ),
            epochs_are_rounds=True,
        )

    def _stages(self, fit: Fit[FixedConfusionModule, None]) -> list[Stage]:
        latent = self._latent(fit.table)
        shares = latent.vote_shares()
        weights = balancing_weights(fit.recipe.balance, shares, balancing_rng(0))
        step = JointEMStep(
            fit.module,
            latent,
            fit.features,
            posterior=shares,
            weights=np.ones(len(shares)) if weights is None else (shares * weights).sum(axis=1),
            weight_decay=self.weight_decay,
            inner_steps=self._protocol.inner_steps,
            batch_size=self.batch_size,
            from_zero=not (isinstance(self.backbone, dict) and "weights" in self.backbone),
        )
        return [Stage("train", step, lambda epoch: ("all instances",), self.max_epochs)]

    def _callbacks(self, fit: AnyFit) -> tuple[list[Callback], BestState | None]:
        callbacks, best = super()._callbacks(fit)
        return [*callbacks, LossConverged(self.tol)], best


class JointEMStep:
    """One EM iteration over all instances: the M-step, then the E-step and the likelihood.

    The regression is fitted in double precision, so that the likelihood rises until the very end.
    The module receives a copy in its own precision.

    Parameters
    ----------
    module : FixedConfusionModule
    latent : LatentClasses
    features : Features
    posterior : array of shape (m, n_classes)
        Starting point of EM.
    weights : array of shape (m,)
        Weights of the instances.
    weight_decay : float
    inner_steps : int
        Most L-BFGS iterations of an M-step.
    batch_size : int
    from_zero : bool
        Start a linear network at 0, whatever its initial weights.
    """

    def __init__(
        self,
        module: FixedConfusionModule,
        latent: LatentClasses,
        features: Features,
        *,
        posterior: FloatArray,
        weights: FloatArray,
        weight_decay: float,
        inner_steps: int,
        batch_size: int,
        from_zero: bool = True,
    ) -> None:
        self.module = module
        self.latent = latent
        self.features = features
        self.posterior = posterior
        self.weights = weights
        self.weight_decay = weight_decay
        self.inner_steps = inner_steps
        self.batch_size = batch_size
        self.rows = torch.from_numpy(latent.instances)
        self.classifier = copy.deepcopy(module.classifier).double().eval()
        self.parameters = [p for p in self.classifier.parameters() if p.requires_grad]
        if isinstance(self.classifier.backbone, Linear) and from_zero:
            # The loss is convex: no seed should matter, even if the M-step stops early.
            with torch.no_grad():
                for parameter in self.parameters:
                    parameter.zero_()

    def start_epoch(self, epoch: int) -> None:
        """Do nothing: an epoch needs no preparation."""

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Run one iteration; the loss is that of the new parameters."""
        confusion = self.latent.confusion(self.posterior * self.weights[:, None])
        self._regress()
        self.posterior, log_likelihood = self.latent.posterior(self._proba(), confusion)
        self.module.classifier.load_state_dict(self.classifier.state_dict())
        self.module.confusions.copy_(torch.from_numpy(confusion))
        mass = float(self.weights.sum())
        pseudo_counts = np.full((1, 1, 1), self.latent.smoothing)
        prior = log_dirichlet(pseudo_counts, confusion) / mass
        with torch.no_grad():
            penalty = float(self._penalty()) - prior
        return {
            "nll": torch.tensor(-float(self.weights @ log_likelihood) / mass, dtype=torch.float64),
            "penalty": torch.tensor(penalty, dtype=torch.float64),
        }

    def _batches(self) -> Iterator[Tensor]:
        for x in self.features.batches(self.rows, self.batch_size):
            yield x.double()

    @torch.no_grad()
    def _proba(self) -> FloatArray:
        """Return the class probabilities of the annotated instances, shape (m, n_classes)."""
        parts = [self.classifier(x).softmax(dim=1) for x in self._batches()]
        proba: FloatArray = torch.cat(parts).cpu().numpy()
        return proba

    def _penalty(self) -> Tensor:
        """Return half the weight decay times the squared weights; biases are not penalised."""
        squares = [p.square().sum() for p in self.parameters if p.dim() > 1]
        total = torch.stack(squares).sum() if squares else self.parameters[0].new_zeros(())
        return 0.5 * self.weight_decay * total

    def _regress(self) -> None:
        """Fit the classifier to the posterior, starting from its current weights."""
        share = self.posterior * (self.weights / self.weights.sum())[:, None]
        targets = torch.from_numpy(share).to(self.features.device)

        def loss_and_gradient(values: FloatArray) -> tuple[float, FloatArray]:
            self._put(values)
            self.classifier.zero_grad()
            loss = self._penalty()
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            total, first = loss.detach(), 0
            for x in self._batches():
                target = targets[first : first + len(x)]
                part = -(target * self.classifier(x).log_softmax(dim=1)).sum()
                part.backward()
                total, first = total + part.detach(), first + len(x)
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
            return float(total), parameters_to_vector(gradients).cpu().numpy()

        start = parameters_to_vector(self.parameters).detach().cpu().numpy()
        options: Any = {"maxiter": self.inner_steps, "gtol": GRADIENT_TOLERANCE, "ftol": 0.0}
        found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
        self._put(found.x)

    def _put(self, values: FloatArray) -> None:
        vector = torch.tensor(values, device=self.parameters[0].device)
        vector_to_parameters(vector, self.parameters)

    def state_dict(self) -> dict[str, Any]:
        """Return the posterior, and the regression in double precision."""
        return {
            "posterior": torch.from_numpy(self.posterior),
            "classifier": self.classifier.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the posterior and the regression."""
        self.posterior = state["posterior"].numpy()
        self.classifier.load_state_dict(state["classifier"])


class LossConverged(Callback):
    """End a stage when an epoch changes the loss by less than a share ``tol`` of it."""

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self.loss: float | None = None

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool:
        """Return whether the loss has changed by less than ``tol`` since the previous epoch."""
        loss, before = float(metrics["loss"]), self.loss
        self.loss = loss
        return before is not None and abs(loss - before) < self.tol * abs(before)

    def state_dict(self) -> dict[str, Any]:
        """Return the last loss."""
        return {"loss": self.loss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.loss = state["loss"]
