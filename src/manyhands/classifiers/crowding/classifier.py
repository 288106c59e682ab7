"""`CrowdInGClassifier`: its parameters, its four networks, and draws of its generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, cast

import numpy as np
import torch
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.crowding.adversarial import AdversarialSettings, AdversarialStep
from manyhands.classifiers.crowding.label_correlation import (
    LEAST_CORRELATION,
    label_cooccurrence,
    label_correlation,
)
from manyhands.classifiers.crowding.log import LoggedCells
from manyhands.classifiers.crowding.phases import (
    ADVERSARIAL,
    DISCRIMINATOR,
    START,
    CrowdInGFit,
    Phases,
    make_stages,
    watch_phases,
)
from manyhands.classifiers.crowding.pretrainer import (
    check_pretrainer,
    start_from,
    trained_pretrainer,
)
from manyhands.fitting.class_collapse import without_collapse_warnings
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.method_protocol import ProtocolOf, StartProtocol
from manyhands.fitting.network import read_annotator_features
from manyhands.fitting.pilots import AUTO
from manyhands.fitting.prediction import PREDICT_BATCH, device_of, new_annotator_proba
from manyhands.fitting.reading import read_features
from manyhands.fitting.scoring import find_annotators
from manyhands.fitting.traits import Traits
from manyhands.functional import annotation_nll
from manyhands.nn import (
    GENERATOR_INPUTS,
    GENERATORS,
    LCA_FORMS,
    GenerativeCrowdModule,
    ScaledClassifier,
)
from manyhands.objectives import COST_FORMS, SPARSITY_FORMS
from manyhands.training import BestState, Callback, CrowdBatch, Features, Stage, isolated_rng
from manyhands.training.seeding import draw_seed
from manyhands.typing import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, repr=False)
class CrowdInGProtocol(StartProtocol):
    r"""Protocol of `CrowdInGClassifier`: its phases, ablations, and variants of paper and code.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.method_protocol.StartProtocol`.
    init_scale : float or "auto", default="auto"
        Initial scale of the matrices of the default ``pretrainer``, as in `CrowdLayerClassifier`;
        the choice of "auto" is ``pretrainer_.init_scale_``. The released code uses 2.
    noise_lr : float or None, default=1e-2
        Learning rate of the default ``pretrainer``'s matrices.
    generator : {"network", "crowd_layer"}, default="network"
        The network that generates annotations: that of Eq. 1, or the Crowd Layer of the pretrainer.
        The latter is the paper's baseline DL-CL+GAN; with ``information_weight=0``,
        ``selection="random"``, ``two_steps=False``, ``generative_steps=1``, ``mu="mean"`` and
        ``lca=False``, its updates are those of REINFORCE.
    generator_inputs : {"both", "annotator", "instance"}, default="both"
        Inputs of the generator besides the classifier's output: both, only the annotator (the
        paper's CrowdInG-U), or only the instance (CrowdInG-I).
    information_weight : float, default=0.5
        :math:`\lambda` of Eq. 4; 0 leaves the auxiliary network out (CrowdG).
    selection : {"entropy", "random"}, default="entropy"
        Selection of the generated annotations for the discriminator: drawn with probability
        proportional to 1/H, H being the entropy of the generator's distribution, or uniformly
        (CrowdInG-R). Each annotator gets as many as they have real annotations.
    contrast : {"open", "observed"}, default="open"
        Cells of the generated annotations that the discriminator is trained on. "open" takes cells
        that were not annotated, chosen by ``selection`` (the paper's choice). "observed" takes the
        annotated cells themselves, so that only the label differs (our choice, and the one for
        batches without an open cell).
    two_steps : bool, default=True
        Whether the generator is trained on the instances for which the classifier has a low
        entropy, then the classifier on the others. Otherwise both are trained on all instances.
    entropy_threshold : float, default=0.5
        t, in nats: the largest entropy that counts as low in ``two_steps``.
    adversarial_cost : {"non_saturating", "saturating"}, default="non_saturating"
        -log D (released code) or log(1 - D) (paper).
    mu : "search", "mean" or float, default="search"
        Lagrange multiplier of Eq. 5 and 6: searched in the first epochs by the self-normalised
        risk on logged annotations; the mean cost in a batch; or fixed.
    truncation : float, default=5.0
        Upper bound at which importance ratios are clipped.
    logging_policy : {"batch", "epoch"}, default="batch"
        Whether annotations are drawn from the generator as it was at the start of the batch
        (released code) or of the epoch (paper).
    lca : {"auto", True, False}, default="auto"
        Whether the discriminator uses label correlation aggregation. With "auto", it does so if
        disagreements concentrate on some pairs of labels.
    lca_form : {"symmetric", "row"}, default="symmetric"
        Symmetric normalisation of the adjacency and a learnt matrix (paper), or row-wise
        normalisation and a residual (released code).
    sparsity_weight : float, default=0.1
        Weight of the penalty on the discriminator's outputs.
    sparsity_form : {"l1", "l2"}, default="l1"
        Form of the penalty: the mean of the outputs (released code) or of their squares (paper).
    generator_epochs, discriminator_epochs, adversarial_epochs : int or None, default=None
        Epochs of the generator's pre-training, of the discriminator's pre-training, and of the
        adversarial phase. None means 30, 10 and 20, but at most ``max_epochs``.
    discriminator_steps, generative_steps : int, default=5
        Updates per batch: one number for the discriminator, one for the generator and the
        classifier.
    pretraining_lr : float, default=1e-3
        Learning rate of the generator's pre-training.
    generator_lr, discriminator_lr, classifier_lr : float
        Learning rates of the adversarial phase; the discriminator's is also used in its
        pre-training.
    discriminator_decay : float, default=1e-2
        L2 penalty of the discriminator and the auxiliary network.
    annotators_per_instance : int or None, default=None
        Number of annotators for whom annotations are generated, drawn at random for every instance
        of a batch. None takes all annotators with annotations, as in the paper.
    chunk_size : int, default=8192
        Number of cells that the networks compute at once, which bounds their memory. It has no
        effect on the training, but changes the draws of a seed in `sample_annotations`.
    """

    _constraints = {
        **StartProtocol._constraints,
        "generator": [StrOptions(set(GENERATORS))],
        "generator_inputs": [StrOptions(set(GENERATOR_INPUTS))],
        "information_weight": [Interval(Real, 0, None, closed="left")],
        "selection": [StrOptions({"entropy", "random"})],
        "contrast": [StrOptions({"open", "observed"})],
        "two_steps": ["boolean"],
        "entropy_threshold": [Interval(Real, 0, None, closed="left")],
        "adversarial_cost": [StrOptions(set(COST_FORMS))],
        "mu": [StrOptions({"search", "mean"}), Interval(Real, None, None, closed="neither")],
        "truncation": [Interval(Real, 1, None, closed="left")],
        "logging_policy": [StrOptions({"batch", "epoch"})],
        "lca": [StrOptions({"auto"}), "boolean"],
        "lca_form": [StrOptions(set(LCA_FORMS))],
        "sparsity_weight": [Interval(Real, 0, None, closed="left")],
        "sparsity_form": [StrOptions(set(SPARSITY_FORMS))],
        "generator_epochs": [None, Interval(Integral, 1, None, closed="left")],
        "discriminator_epochs": [None, Interval(Integral, 1, None, closed="left")],
        "adversarial_epochs": [None, Interval(Integral, 1, None, closed="left")],
        "discriminator_steps": [Interval(Integral, 1, None, closed="left")],
        "generative_steps": [Interval(Integral, 1, None, closed="left")],
        "pretraining_lr": [Interval(Real, 0, None, closed="neither")],
        "generator_lr": [Interval(Real, 0, None, closed="left")],
        "discriminator_lr": [Interval(Real, 0, None, closed="left")],
        "classifier_lr": [Interval(Real, 0, None, closed="left")],
        "discriminator_decay": [Interval(Real, 0, None, closed="left")],
        "annotators_per_instance": [None, Interval(Integral, 1, None, closed="left")],
        "chunk_size": [Interval(Integral, 1, None, closed="left")],
    }

    generator: str = "network"
    generator_inputs: str = "both"
    information_weight: float = 0.5
    selection: str = "entropy"
    contrast: str = "open"
    two_steps: bool = True
    entropy_threshold: float = 0.5
    adversarial_cost: str = "non_saturating"
    mu: str | float = "search"
    truncation: float = 5.0
    logging_policy: str = "batch"
    lca: str | bool = "auto"
    lca_form: str = "symmetric"
    sparsity_weight: float = 0.1
    sparsity_form: str = "l1"
    generator_epochs: int | None = None
    discriminator_epochs: int | None = None
    adversarial_epochs: int | None = None
    discriminator_steps: int = 5
    generative_steps: int = 5
    pretraining_lr: float = 1e-3
    generator_lr: float = 1e-4
    discriminator_lr: float = 1e-3
    classifier_lr: float = 5e-6
    discriminator_decay: float = 1e-2
    annotators_per_instance: int | None = None
    chunk_size: int = 1 << 13


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdInGClassifier(BaseCrowdClassifier):
    r"""Learn from observed annotations and from those of a generator (CrowdInG) [1]_.

    A generator predicts how an annotator annotates an instance, given both of them, the
    classifier's output and noise (Eq. 1). A discriminator distinguishes real from generated
    annotations (Eq. 2). An auxiliary network predicts the classifier's output from an annotation
    (Eq. 3). A generated annotation has a low cost if the discriminator takes it for real and the
    auxiliary network predicts correctly. Training starts from a classifier of another method (Crowd
    Layer, as published). Generator and discriminator are then trained on the observed annotations
    alone, and finally all four networks adversarially. After training, the classifier predicts
    classes, and the generator predicts annotations.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Network from features to class logits, such as "mlp", "cnn" or one of your own; None means
        "mlp" with 128 hidden units. `manyhands.nn.make_backbone` lists all.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``lr`` and ``weight_decay`` are used by the
        pretrainer. ``max_epochs`` is the pretrainer's number of epochs, and the upper bound for
        every later phase that has no number of its own. If ``validation`` is a fraction, the state
        before the adversarial phase may be kept, too. With ``monitor="likelihood"`` in the
        protocol, the best adversarial epoch is kept, or the state before that phase if no epoch is
        better than the pretrainer. The best epoch is the one whose classifier gives the held-out
        annotations the highest likelihood, with confusion matrices counted from the other
        annotations.
    pretrainer : crowd classifier or None, default=None
        The classifier from whose weights the training starts. It is cloned, and trained on the same
        annotations. It must have the ``backbone`` and ``scaling`` of this estimator. It gets this
        estimator's ``device``, ``verbose`` and ``checkpoint``, and also its ``class_balance``
        unless it has one. None means a `CrowdLayerClassifier` with this estimator's parameters
        except ``callbacks``.
    annotator_features : array of shape (n_annotators, n_features) or None
        Features of the annotators for generator, discriminator and auxiliary network. None means
        one-hot vectors.
    protocol : CrowdInGProtocol or None, default=None
        Variants and details of published experiments; None means `CrowdInGProtocol()`.

    Attributes
    ----------
    pretrainer_ : crowd classifier
        The fitted pretrainer. Not part of a saved model.
    generated_annotations_ : AnnotationTable
        Annotations of open cells, drawn and selected as for the discriminator, marked
        ``source="generated"``. Each annotator has about as many of them as real ones (fewer in
        small batches, and with ``annotators_per_instance``, which leaves fewer open cells).
        ``table.with_added`` adds them to the observed annotations. Not part of a saved model.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]: mean of the generator's output for (at most 1,024) annotated
        instances, each weighted by the classifier's probability of the true class.
    label_correlation_ : float
        Concentration of the disagreements on some pairs of labels, in nats; ``lca="auto"`` needs
        more than 0.1. Not part of a saved model.

    Notes
    -----
    Annotations (``predict_annotation_proba``, `score`) are predicted by the generator, with its
    noise at the mean. `partial_fit` continues the pretrainer, and then the four networks, each for
    a fraction of its phase's epochs; a loaded model trains a new pretrainer, because the pretrainer
    is not saved. ``history_`` has the stages "start", "generator", "discriminator" and
    "adversarial". ``docs/methods/crowding.md`` lists their columns and the differences from the
    paper.

    References
    ----------
    .. [1] Chu & Wang, Improve learning from crowds via generative augmentation, KDD 2021.

    Examples
    --------
    >>> from manyhands import CrowdInGClassifier, load_demo
    >>> demo = load_demo()
    >>> model = CrowdInGClassifier(max_epochs=1, random_state=0)
    >>> model = model.fit(demo.X_train, demo.annotations)
    >>> model.sample_annotations(demo.X_test[:2], [0, 1, 2], random_state=0).shape
    (2, 3)
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "pretrainer": [None, HasMethods(["fit", "predict_proba", "get_params"])],
        "annotator_features": [None, "array-like"],
    }
    _crowd_check_exemptions = {
        "check_history": "history_ also has the start's rows and measures that are no loss (the "
        "discriminator's accuracy, sample sizes); a test of the method checks its terms",
        "check_annotator_permutation": "annotations are drawn cell by cell in the order of the "
        "annotators; a test of the method permutes them where nothing is learnt from draws",
    }

    backbone: Any = field(default=None, kw_only=False)
    pretrainer: Any = None
    annotator_features: Any = None
    protocol: CrowdInGProtocol | None = None

    _protocol = ProtocolOf(CrowdInGProtocol)

    @property
    def _traits(self) -> Traits:
        return Traits(
            unsaved=("pretrainer_", "label_correlation_", "generated_annotations_"),
            start_refusal="always starts from the weights of its pre-trained network",
            # The pretrainer, a separate classifier, has a pilot.
            pilots=False,
        )

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> GenerativeCrowdModule:
        return GenerativeCrowdModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            input_shape=input_shape,
            annotator_features=read_annotator_features(self.annotator_features, self.n_annotators_),
            generator=self._protocol.generator,
            generator_inputs=self._protocol.generator_inputs,
            lca_form=self._protocol.lca_form,
            chunk_size=self._protocol.chunk_size,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_pretrainer(self)

    def _prepare(self, fit: CrowdInGFit) -> Phases:
        """Decide on label correlation, train the pretrainer, and make the adversarial steps."""
        counts, module = label_cooccurrence(fit.table), fit.module
        fit.found["label_correlation_"] = correlation = label_correlation(counts)
        is_correlated = correlation > LEAST_CORRELATION
        if counts.any() and (is_correlated if self._protocol.lca == "auto" else self._protocol.lca):
            adjacency = torch.from_numpy(counts / counts.max()).float()
            module.discriminator.adjacency.copy_(adjacency)
        with without_collapse_warnings():
            fit.found["pretrainer_"] = pretrainer = trained_pretrainer(self, fit)
        start_from(pretrainer, module, keep_encoder=fit.earlier is not None)
        if fit.recipe.max_epochs == AUTO and fit.earlier is None:
            fit.n_epochs = pretrainer.n_epochs_
        fit.history.extend({**row, "stage": START} for row in pretrainer.history_)
        settings = AdversarialSettings.of(self._protocol)
        cells = LoggedCells(fit.table, self._protocol.annotators_per_instance, fit.features.device)
        return {
            DISCRIMINATOR: AdversarialStep(module, settings, cells, generate=False),
            ADVERSARIAL: AdversarialStep(module, settings, cells, generate=True),
        }

    def _stages(self, fit: CrowdInGFit) -> list[Stage]:
        return make_stages(self, fit, lambda module, batch: self._objective(fit, batch))

    def _objective(self, fit: CrowdInGFit, batch: CrowdBatch) -> dict[str, Tensor]:
        """Return ``nll`` of the observed annotations by the generator, for its pre-training."""
        module = fit.module
        with torch.no_grad():
            scaled, proba = module.classify(batch.x)
        noise = module.generator.draw_noise(len(batch.rows))
        log_proba = module.generator(scaled, proba, batch.rows, batch.annotators, noise)
        return {"nll": annotation_nll(log_proba, batch.labels, batch.weights, fit.recipe.focus)}

    def _callbacks(self, fit: CrowdInGFit) -> tuple[list[Callback], BestState | None]:
        return watch_phases(fit, *super()._callbacks(fit))

    def _read_out(self, fit: CrowdInGFit) -> dict[str, Any]:
        confusion = expected_confusion(fit, fit.table.n_annotators)
        return {"confusion_": confusion, "generated_annotations_": generate_open_cells(fit)}

    def sample_annotations(
        self, X: Any, annotators: Any = None, *, random_state: Any = None
    ) -> AnnotationTable:
        """Draw one annotation of every instance by every annotator from the generator.

        Parameters
        ----------
        X : as in `fit`
        annotators : ids, mask or slice, optional
            As in `predict_annotation_proba`; default: all.
        random_state : int, RandomState or None, default=None

        Returns
        -------
        AnnotationTable
            (n_samples, n_annotators) annotations, marked ``source="generated"``. The ids of
            instances are their positions in X.

        Raises
        ------
        AnnotationError
            If ids are numbers where those of `fit` were strings, or the other way round.
        """
        check_is_fitted(self, "module_")
        X = read_features(self, X, reset=False)
        columns = find_annotators(self.annotators_, annotators, "annotators")
        ids = self.annotators_[columns]
        if (columns < 0).any():
            ids = np.where(columns < 0, np.atleast_1d(annotators), ids)
        features = Features(X, device_of(self))
        with isolated_rng(draw_seed(random_state), features.device), torch.inference_mode():
            labels = draw_grid(self, features, columns)
        matrix: AnyArray = self.classes_[labels]
        table = AnnotationTable.from_matrix(matrix, classes=self.classes_, annotators=ids)
        return table.with_source("generated")


# -- draws of the trained generator ----------------------------------------------------------------


CONFUSION_INSTANCES, CONFUSION_CELLS = 1024, 1 << 22
"""Largest numbers of instances and of cells in the mean ``confusion_``; at least 64 instances."""


def generate_open_cells(fit: CrowdInGFit) -> AnnotationTable:
    """Draw annotations of open cells, selected as for the discriminator."""
    step = fit.state[DISCRIMINATOR]
    step.policy = None
    # Cells that are held out, or have weight 0, were open in training, but have annotations.
    step.cells.close(fit.given)
    parts = []
    for batch in fit.batches.in_order():
        log = step.draw(batch)
        chosen = step.select(batch, log)
        instances = batch.instances[log.rows[chosen]]
        parts.append(torch.stack([instances, log.annotators[chosen], log.labels[chosen]]))
    instance, annotator, label = torch.cat(parts, dim=1).cpu().numpy()
    table = fit.table
    generated = AnnotationTable(
        *(instance, annotator, label, table.instances, table.annotators, table.classes),
        scale=table.scale,
    )
    return generated.with_source("generated")


def expected_confusion(fit: CrowdInGFit, n_annotators: int) -> FloatArray:
    """Return the mean output of the generator for annotated instances, by true class.

    Returns
    -------
    array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]; rows sum to 1.
    """
    device, instances = fit.features.device, fit.batches.instances
    n, most = len(instances), min(CONFUSION_INSTANCES, max(64, CONFUSION_CELLS // n_annotators))
    if n > most:
        place = torch.linspace(0, n - 1, most, device=device)
        instances = instances[place.long()]
    annotators = torch.arange(n_annotators, device=device)
    parts = fit.features.batches(instances, PREDICT_BATCH)
    confusion: FloatArray = fit.module.expected_confusion(parts, annotators).cpu().numpy()
    return confusion


def draw_grid(model: Any, features: Features, columns: IntArray) -> AnyArray:
    """Draw one annotation per instance and annotator.

    Parameters
    ----------
    model : fitted CrowdInGClassifier
    features : Features
    columns : integer array of shape (r,)
        Positions of annotators; -1 is a new one.

    Returns
    -------
    integer array of shape (n, r)
        Class codes.
    """
    module = cast(GenerativeCrowdModule, model.module_)
    is_known = np.append(model.annotators_seen_, False)[columns]
    known = torch.from_numpy(columns[is_known]).to(features.device)
    labels = np.empty((len(features), len(columns)), dtype=np.int64)
    size = max(1, min(PREDICT_BATCH, model._protocol.chunk_size // max(1, len(columns))))
    start = 0
    for x in features.batches(torch.arange(len(features)), size):
        part = labels[start : start + len(x)]
        rows = torch.arange(len(x), device=x.device).repeat_interleave(len(known))
        noise = module.generator.draw_noise(len(rows))
        proba = module.annotation_log_proba(x, rows, known.repeat(len(x)), noise).exp()
        if len(rows):
            part[:, is_known] = proba.multinomial(1).view(len(x), len(known)).cpu().numpy()
        if not is_known.all():
            crowd = torch.from_numpy(new_annotator_proba(model, module(x)))
            drawn = crowd.multinomial(int((~is_known).sum()), replacement=True)
            part[:, ~is_known] = drawn.numpy()
        start += len(x)
    return labels
