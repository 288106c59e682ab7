"""Max-MIG: a classifier and an aggregator of annotations with maximal mutual information.

.. [1] P. Cao, Y. Xu, Y. Kong and Y. Wang. Max-MIG: an information theoretic approach for joint
   learning from crowds. ICLR 2019. https://openreview.net/forum?id=BJg9DoR9t7
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.method_protocol import NoiseProtocol, ProtocolOf
from manyhands.fitting.traits import Traits
from manyhands.inference import MajorityVote
from manyhands.inference.probability import normalise_rows
from manyhands.inference.votes import as_dense
from manyhands.nn import AggregatorModule, ScaledClassifier
from manyhands.objectives import information_objective
from manyhands.sampling.class_balance import ClassBalance
from manyhands.training import CrowdBatch, Stage
from manyhands.typing import FloatArray

ADDED_TO_COUNTS = 0.01
"""Added to the counts whose logarithm initialises the aggregator; the published value."""


@dataclass(eq=False)
class _Views:
    """Annotations as tensors, and the weights of instances in the loss.

    Attributes
    ----------
    annotations : tuple of tensors of shape (m,)
        Instances, annotators, labels and weights (None if all are equal).
    instance_weights : tensor of shape (n_instances,) or None
        None if all are equal.
    """

    annotations: tuple[Tensor, Tensor, Tensor, Tensor | None]
    instance_weights: Tensor | None


MaxMIGFit = Fit[AggregatorModule, _Views]


@dataclass(frozen=True, kw_only=True, repr=False)
class MaxMIGProtocol(NoiseProtocol):
    """Protocol of `MaxMIGClassifier`: training of the network and the aggregator.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.method_protocol.NoiseProtocol`.
    noise_lr : float or None, default=1e-2
        Learning rate of the aggregator, without weight decay. None trains everything at ``lr``
        with ``weight_decay``.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class MaxMIGClassifier(BaseCrowdClassifier):
    r"""Train a classifier and an aggregator to maximise their mutual information (Max-MIG) [1]_.

    Two views of an instance, its features and its annotations, are assumed independent given the
    true class. The classifier computes probabilities :math:`f_i` from the features, and an
    aggregator computes :math:`g_i = \mathrm{softmax}(\log\pi + \sum_r L_r[y_i^r])` from the
    annotations. With :math:`P_{ij} = \sum_c f_{ic} g_{jc} / \pi_c`, the loss is

    .. math:: -1 - \mathrm{mean}_i \log P_{ii} + \mathrm{mean}_{i \neq j} P_{ij},

    the negative of a bound on the information that the views share. Nothing is assumed about the
    dependence between annotators: the aggregator can count those who copy each other as one.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`.
    prior : {"estimated", "uniform"} or array of shape (n_classes,), default="estimated"
        :math:`\pi`. "estimated" uses the classes' shares in the majority vote, with one additional
        annotated instance per class. "uniform" is the released code's choice; it pulls predictions
        towards equal frequencies and fails on skewed classes. An array sets it directly.
    class_balance : None, str or dict, default=None
        "resample", "reweight", or None. The weight of an instance is the mean weight of its
        annotations. The focal losses are refused: they need the probability of an annotation, which
        this loss does not contain.
    protocol : MaxMIGProtocol or None, default=None
        Variants and details of published experiments; None means `MaxMIGProtocol()`.

    Attributes
    ----------
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]: annotations counted against the aggregator's class probabilities
        (our interpretation, see the notes).

    Notes
    -----
    The tables L are not confusion matrices: the aggregator does not change if the same constant is
    added to all entries of :math:`L_r[y]`. ``confusion_`` therefore counts the training annotations
    against the aggregator's output, and ``predict_annotation_proba`` is p(x) times ``confusion_``.
    ``history_`` logs ``agreement`` and ``chance``, the two parts of the loss. Differences from the
    paper are numbered in ``docs/methods/max_mig.md``.

    References
    ----------
    .. [1] Cao, Xu, Kong & Wang, Max-MIG: an information theoretic approach for joint learning from
       crowds, ICLR 2019.

    Examples
    --------
    >>> from manyhands import MaxMIGClassifier, load_demo
    >>> demo = load_demo()
    >>> model = MaxMIGClassifier(max_epochs=2, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).predict(demo.X_test).shape == demo.y_test.shape
    True
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "prior": [StrOptions({"uniform", "estimated"}), "array-like"],
    }

    backbone: Any = field(default=None, kw_only=False)
    prior: Any = "estimated"
    protocol: MaxMIGProtocol | None = None

    _protocol = ProtocolOf(MaxMIGProtocol)

    @property
    def _traits(self) -> Traits:
        return Traits(
            focal_refusal="needs the probability of an annotation, which Max-MIG's loss does not "
            "contain; use 'resample' or 'reweight'",
            # Weights would change the aggregator's sums, so instances are balanced.
            balances_annotations=False,
            start_refusal="begins with counts of the votes",
            repeats_small_trainings=True,
        )

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> AggregatorModule:
        return AggregatorModule(classifier, len(self.classes_), self.n_annotators_)

    def _prepare(self, fit: MaxMIGFit) -> _Views:
        table, module = fit.table, fit.module

        def column(values: Any, dtype: torch.dtype) -> Tensor:
            return torch.tensor(np.asarray(values)).to(fit.features.device, dtype)

        posterior = as_dense(MajorityVote().fit(table).posterior_)
        start = np.log(_count_confusions(table, posterior) + ADDED_TO_COUNTS)
        with torch.no_grad():
            module.tables.copy_(torch.from_numpy(start.transpose(0, 2, 1)))
        weights = weigh_instances(table, fit.recipe.balance, fit.rng)
        annotated = np.bincount(table.instance, table.weight, table.n_instances) > 0
        # The prior uses the instances' weights in the loss.
        posterior = posterior * (annotated if weights is None else weights)[:, None]
        module.prior.copy_(torch.from_numpy(self._read_prior(posterior)))
        annotations = (
            column(table.instance, torch.int64),
            column(table.annotator, torch.int64),
            column(table.label, torch.int64),
            None if table.weights is None else column(table.weights, torch.float32),
        )
        return _Views(annotations, None if weights is None else column(weights, torch.float32))

    def _read_prior(self, posterior: FloatArray) -> FloatArray:
        n_classes = len(self.classes_)
        if isinstance(self.prior, str):
            if self.prior == "uniform":
                return np.full(n_classes, 1.0 / n_classes)
            shares = posterior.sum(axis=0) + 1.0
            return shares / shares.sum()
        prior = np.asarray(self.prior, dtype=np.float64)
        if prior.shape != (n_classes,):
            raise AnnotationError(
                f"prior has shape {prior.shape}; give a probability for each of the {n_classes} "
                "classes"
            )
        if not (prior > 0).all() or not np.isclose(prior.sum(), 1.0, atol=1e-6):
            raise AnnotationError(f"prior={self.prior!r} must be positive and sum to 1")
        return prior

    def _stages(self, fit: MaxMIGFit) -> list[Stage]:
        (stage,) = super()._stages(fit)
        return [replace(stage, epoch_batches=partial(self._epoch, fit))]

    def _epoch(self, fit: MaxMIGFit, epoch: int) -> Iterator[CrowdBatch]:
        """Yield an epoch's batches; count confusions after its last step, before evaluation."""
        yield from fit.batches.epoch(epoch)
        with torch.no_grad():
            counted = fit.module.count_confusions(fit.table.n_instances, *fit.state.annotations)
            fit.module.confusions.copy_(counted)

    def _objective(self, fit: MaxMIGFit, batch: CrowdBatch) -> dict[str, Tensor]:
        return information_objective(fit.module, batch, fit.state.instance_weights)

    def _read_out(self, fit: MaxMIGFit) -> dict[str, Any]:
        confusion = fit.module.confusions.double()
        return {"confusion_": (confusion / confusion.sum(dim=2, keepdim=True)).cpu().numpy()}


def weigh_instances(
    table: AnnotationTable, balance: ClassBalance | None, rng: np.random.Generator
) -> FloatArray | None:
    """Return the mean weight of every instance's annotations, (n,); None if all are equal.

    The weights are those of the class balance. Instances whose annotations all have weight 0 have
    no second view, and get weight 0.
    """
    base = table.weight
    factors = (
        np.ones(table.n_annotations)
        if balance is None
        else balance.factors(table.label, table.n_classes, base, rng)
    )
    mass = np.bincount(table.instance, weights=base, minlength=table.n_instances)
    summed = np.bincount(table.instance, weights=base * factors, minlength=len(mass))
    weights = np.divide(summed, mass, out=np.zeros(len(mass)), where=mass > 0)
    annotated = weights[table.annotations_per_instance() > 0]
    return None if np.allclose(annotated, annotated[:1]) else weights


def _count_confusions(table: AnnotationTable, posterior: FloatArray) -> FloatArray:
    """Return confusion matrices (n_annotators, true, given) under a posterior; empty rows are 0."""
    shape = (table.n_annotators, table.n_classes, table.n_classes)
    counts = np.zeros(shape)
    expected = table.weight[:, None] * posterior[table.instance]
    np.add.at(counts.transpose(0, 2, 1), (table.annotator, table.label), expected)
    seen = counts.sum(axis=2, keepdims=True) > 0
    return np.where(seen, normalise_rows(counts), 0.0)
