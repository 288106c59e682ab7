"""CoNAL by EM: one common and many individual confusion matrices; the true class is latent.

.. [1] Z. Chu, J. Ma and H. Wang. Learning from crowds by modeling common confusions. AAAI 2021.
   https://doi.org/10.1609/aaai.v35i7.16730
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from scipy.special import expit
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import (
    LatentClassClassifier,
    SoftTargets,
    TargetStep,
    balancing_rng,
)
from manyhands.fitting.method_protocol import NoiseProtocol, ProtocolOf
from manyhands.fitting.network import read_annotator_features
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.fitting.traits import Traits
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import Votes, by_annotator, by_annotator_and_class, by_instance
from manyhands.nn import CrowdModule, FixedCommonNoiseModule, ScaledClassifier
from manyhands.training import CrowdBatch, Features, Stage
from manyhands.typing import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, repr=False)
class CommonNoiseEMProtocol(NoiseProtocol):
    """Sizes and numerical details of `CommonNoiseEMClassifier`.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.method_protocol.NoiseProtocol`.
    embedding_dim, auxiliary_hidden, normalize
        Fields of the gate; see `CoNALProtocol`.
    noise_lr : float or None, default=1e-2
        Learning rate of the gate, without weight decay. None trains it at ``lr``, with
        ``weight_decay``.
    smoothing : float, default=0.01
        Pseudo-annotations in every entry of the common confusion matrix. A row of an annotator's
        own matrix gets as many pseudo-annotations as a row of the common matrix, distributed as in
        that row.
    confusion_floor : float, default=1e-4
        Added to the probability of an annotation before taking its logarithm in the E-step. It
        limits the evidence of a single annotation against a class.
    proba_floor : float, default=1e-3
        Added to the network's probabilities before taking their logarithm.
    """

    _constraints = {
        **NoiseProtocol._constraints,
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "auxiliary_hidden": [None, Interval(Integral, 1, None, closed="left")],
        "normalize": [StrOptions({"both", "annotator", "none"})],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "confusion_floor": [Interval(Real, 0, None, closed="left")],
        "proba_floor": [Interval(Real, 0, None, closed="left")],
    }

    embedding_dim: int = 20
    auxiliary_hidden: int | None = 128
    normalize: str = "both"
    smoothing: float = 0.01
    confusion_floor: float = 1e-4
    proba_floor: float = 1e-3


@dataclass(kw_only=True, eq=False, repr=False)
class CommonNoiseEMClassifier(LatentClassClassifier):
    r"""Learn CoNAL's model by EM: true classes and sources of annotations are latent [1]_.

    The model is `CoNALClassifier`'s, with confusion matrices in place of layers: an annotation of
    an instance of class c follows :math:`\omega_i^r \pi^g_c + (1 - \omega_i^r) \pi^r_c`, where
    :math:`\pi^g` is common to all annotators and :math:`\pi^r` is the annotator's own. The gate
    :math:`\omega_i^r = \sigma(u_r^\top v_i)` is Eq. 3. The E-step computes the posterior of the
    class,

    .. math:: q_i(c) \propto p_c(x_i) \prod_r
        (\omega_i^r \pi^g_{c, y_{ir}} + (1 - \omega_i^r) \pi^r_{c, y_{ir}}),

    and of the source, which is common with probability
    :math:`\omega_i^r \pi^g_{c, y_{ir}}` over that sum if the class is c. The M-step counts
    annotations against both to estimate all matrices, and trains for an epoch: the network on
    :math:`q` as soft targets, the gate on the expected log likelihood of the annotations. The
    first targets are the vote shares; a partial fit begins with an E-step.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``class_balance`` acts on the inferred classes.
    annotator_features : array of shape (n_annotators, n_features) or None
        Features of the annotators for the gate; default: one-hot.
    protocol : CommonNoiseEMProtocol or None, default=None
        Variants and details of published experiments; None means `CommonNoiseEMProtocol()`.

    Attributes
    ----------
    common_confusion_ : array of shape (n_classes, n_classes)
        :math:`\pi^g`, [true, given].
    individual_confusion_ : array of shape (n_annotators, n_classes, n_classes)
        :math:`\pi^r`, [annotator, true, given]. An annotator without annotations has the common
        one (with ``smoothing=0``, a uniform one).
    common_proportion_ : array of shape (n_annotators,)
        Mean gate over each annotator's annotations, by their weights (NaN for annotators without
        annotations).
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Both mixed at each annotator's mean gate: the annotator's overall behaviour. An annotator
        without annotations gets ``pooled_confusion_``.
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances given x and their annotations (given x alone
        if there are none).
    labels_ : array of shape (n_samples,)
        Most probable classes of the training instances, or medians of three or more grades. They
        and ``posterior_`` are in the order of X (see `partial_fit`); ``instances_`` holds the ids.

    Notes
    -----
    The paper derives an EM algorithm in its appendix B, which is not published; this algorithm
    follows from the model. ``history_`` logs ``cross_entropy`` against the targets of the epoch and
    ``gate_nll``, minus the expected log likelihood of the annotations given the targets.

    References
    ----------
    .. [1] Chu, Ma & Wang, Learning from crowds by modeling common confusions, AAAI 2021.

    Examples
    --------
    >>> from manyhands import CommonNoiseEMClassifier, load_demo
    >>> demo = load_demo()
    >>> model = CommonNoiseEMClassifier(max_epochs=2, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).common_confusion_.shape
    (10, 10)
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "annotator_features": [None, "array-like"],
    }

    backbone: Any = field(default=None, kw_only=False)
    annotator_features: Any = None
    protocol: CommonNoiseEMProtocol | None = None

    _protocol = ProtocolOf(CommonNoiseEMProtocol)

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        return replace(
            inherited,
            saved=(
                *inherited.saved,
                "common_confusion_",
                "individual_confusion_",
                "common_proportion_",
            ),
            # `smoothing` shrinks to the common matrix instead.
            shrinks_confusions=False,
            start_refusal="begins with the shares of the votes",
            repeats_small_trainings=True,
        )

    def _build_module(  # type: ignore[override]
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedCommonNoiseModule:
        return FixedCommonNoiseModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            input_shape=input_shape,
            annotator_features=read_annotator_features(self.annotator_features, self.n_annotators_),
            embedding_dim=self._protocol.embedding_dim,
            auxiliary_hidden=self._protocol.auxiliary_hidden,
            normalize=self._protocol.normalize,
        )

    def _stages(self, fit: Fit[FixedCommonNoiseModule, None]) -> list[Stage]:
        latent, module = self._latent(fit.table), fit.module
        targets = _TargetsOfBoth(fit.recipe.balance, fit.features.device)

        def renew(epoch: int) -> None:
            """Run E- and M-step from the parameters of the module, which checkpoints hold."""
            if epoch == 0 and fit.earlier is None:
                posterior = latent.vote_shares()
                common = own = posterior[latent.votes.instance]
            else:
                seen = predict_and_embed(module, fit.features, latent.instances)
                posterior, common, own = self._expect(module, latent.votes, *seen)[0]
            set_matrices(
                module,
                confusion_sums(latent.votes, common).sum(axis=0),
                confusion_sums(latent.votes, own),
                self._protocol.smoothing,
            )
            targets.set(latent.spread(posterior), balancing_rng(epoch))

        step = TargetStep(
            module,
            targets,
            renew,
            lambda: fit.recipe.make_optimizer(module),
            reset_every_epoch=fit.recipe.reset_optimizer,
        )
        return [Stage("train", step, fit.batches.epoch, fit.n_epochs)]

    def _expect(
        self, module: FixedCommonNoiseModule, votes: Votes, proba: FloatArray, embedded: FloatArray
    ) -> tuple[Expectation, FloatArray]:
        """Return the E-step, and the gates (n_annotations,); see `predict_and_embed`."""
        gate = gates(module, votes, embedded)
        expected = expectation(
            votes,
            proba + self._protocol.proba_floor,
            gate,
            module.common.double().cpu().numpy(),
            module.individual.double().cpu().numpy(),
            floor=self._protocol.confusion_floor,
        )
        return expected, gate

    def _read_out(self, fit: Fit[FixedCommonNoiseModule, None]) -> dict[str, Any]:
        """Return all matrices, and the posterior given x and any annotations."""
        latent, module = self._latent(fit.table), fit.module
        rows = latent.instances
        proba, embedded = predict_and_embed(module, fit.features, np.arange(latent.n_instances))
        expected, gate = self._expect(module, latent.votes, proba[rows], embedded[rows])
        fit.belief = posterior = proba
        posterior[rows] = expected.posterior
        with np.errstate(invalid="ignore"):  # 0 / 0 of an annotator without annotations.
            mean = by_annotator(latent.votes, gate) / by_annotator(latent.votes)
        # The value has no effect: `pooled_confusion_` replaces these matrices. NaN would spread.
        known = torch.from_numpy(np.where(np.isnan(mean), 0.5, mean))
        return {
            "posterior_": posterior,
            "common_proportion_": mean,
            "common_confusion_": module.common.double().cpu().numpy(),
            "individual_confusion_": module.individual.double().cpu().numpy(),
            "confusion_": module.confusion(known.to(module.common)).double().cpu().numpy(),
        }


# -- E-step and M-step ----------------------------------------------------------------------------


class Expectation(NamedTuple):
    """Result of an E-step for m instances and n annotations, in the order of the votes.

    Attributes
    ----------
    posterior : array of shape (m, n_classes)
        Of the true class.
    from_common, from_individual : arrays of shape (n, n_classes)
        Joint posterior of the class and of the source of the annotation; their sum is the
        instance's posterior.
    """

    posterior: FloatArray
    from_common: FloatArray
    from_individual: FloatArray


def expectation(
    votes: Votes,
    proba: FloatArray,
    gate: FloatArray,
    common: FloatArray,
    individual: FloatArray,
    *,
    floor: float = 0.0,
) -> Expectation:
    """Return the E-step over the true class and the source of every annotation.

    Parameters
    ----------
    votes : Votes
        Of m instances, n annotations.
    proba : array of shape (m, n_classes)
        The classifier's p(x).
    gate : array of shape (n,)
        Prior probability that the source is common.
    common : array of shape (n_classes, n_classes), [true, given]
    individual : array of shape (n_annotators, n_classes, n_classes)
    floor : float
        Added to the probability of an annotation before taking its logarithm.

    Returns
    -------
    Expectation
    """
    of_common = gate[:, None] * common.T[votes.response]
    mixed = of_common + (1 - gate)[:, None] * individual[votes.annotator, :, votes.response]
    log_mixed = floored_log(mixed + floor)
    joint = floored_log(proba) + np.stack([by_instance(votes, log) for log in log_mixed.T], axis=1)
    posterior, _ = normalise_joint(votes, joint)
    share = np.divide(of_common, mixed, out=np.zeros_like(mixed), where=mixed > 0)
    own = posterior[votes.instance]
    return Expectation(posterior, own * share, own * (1 - share))


def confusion_sums(votes: Votes, values: FloatArray) -> FloatArray:
    """Sum values (n, n_classes), times the weights, by annotator, true class and annotation.

    Returns
    -------
    array of shape (n_annotators, n_classes, n_classes), [annotator, true, given]
    """
    return np.stack([by_annotator_and_class(votes, column) for column in values.T], axis=1)


def set_matrices(
    module: FixedCommonNoiseModule, common: FloatArray, individual: FloatArray, smoothing: float
) -> None:
    """Set a module's matrices to the rows of the sums, smoothed and normalised: the M-step."""
    shared = normalise_rows(common + smoothing)
    own = normalise_rows(individual + smoothing * module.n_classes * shared)
    with torch.no_grad():
        module.common.copy_(torch.from_numpy(shared))
        module.individual.copy_(torch.from_numpy(own))


def predict_and_embed(
    module: FixedCommonNoiseModule, features: Features, rows: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the class probabilities and the gate's embeddings of m instances.

    Their shapes are (m, n_classes) and (m, embedding_dim). Every instance is read once, and the
    module is left in evaluation mode.
    """
    module.eval()
    proba, embedded = [], []
    with torch.inference_mode():
        for x in features.batches(torch.from_numpy(rows), PREDICT_BATCH):
            scaled = module.classifier.scaler(x)
            proba.append(module.classifier.logits(scaled).double().softmax(dim=1))
            embedded.append(module.embed_instances(scaled).double())
        return torch.cat(proba).cpu().numpy(), torch.cat(embedded).cpu().numpy()


def gates(module: FixedCommonNoiseModule, votes: Votes, embedded: FloatArray) -> FloatArray:
    """Return the gate omega (Eq. 3) of every annotation, (n,), from instances' embeddings."""
    with torch.inference_mode():
        everyone = torch.arange(votes.n_annotators, device=module.common.device)
        of_annotators = module.embed_annotators(everyone).double().cpu().numpy()
    logit = np.einsum("nd,nd->n", of_annotators[votes.annotator], embedded[votes.instance])
    return cast(FloatArray, expit(logit))


class _TargetsOfBoth(SoftTargets):
    """Soft targets of the network, on which the gate is trained, too."""

    def objective(self, module: CrowdModule, batch: CrowdBatch) -> dict[str, Tensor]:
        """Return ``cross_entropy`` against the targets, and ``gate_nll``; see `gate_nll`."""
        terms = super().objective(module, batch)
        own = self.targets[batch.instances]
        return {**terms, "gate_nll": gate_nll(cast(FixedCommonNoiseModule, module), batch, own)}


def gate_nll(module: FixedCommonNoiseModule, batch: CrowdBatch, targets: Tensor) -> Tensor:
    """Return the mean expected negative log likelihood of annotations under targets.

    The targets have shape (n, n_classes). The source of an annotation is summed out, so the gate is
    trained on the likelihood itself.
    """
    log_proba = module.log_likelihood(batch.x, batch.rows, batch.annotators, batch.labels)
    nll = -(targets[batch.rows] * log_proba).sum(dim=1)
    return nll.mean() if batch.weights is None else (nll * batch.weights).mean()
