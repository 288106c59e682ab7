"""CrowdInG: a generator fills in what nobody annotated, and the classifier learns from that.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
   https://doi.org/10.1145/3447548.3467409
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.crowd_layer import CrowdLayerClassifier
from manyhands.classifiers.crowding.adversarial import AdversarialSettings, AdversarialStep
from manyhands.classifiers.crowding.augmentation import (
    LEAST_CORRELATION,
    Cells,
    label_cooccurrence,
    label_correlation,
)
from manyhands.classifiers.doctor_net import DoctorNetClassifier
from manyhands.classifiers.personal import PersonalClassifier
from manyhands.classifiers.raykar import RaykarClassifier
from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.description import describe_parameter
from manyhands.fitting.monitors import ClassifierMonitor
from manyhands.fitting.prediction import PREDICT_BATCH, device_of, new_annotator_proba
from manyhands.fitting.reading import find_annotators, read_features
from manyhands.functional import annotation_nll
from manyhands.nn import (
    GENERATOR_INPUTS,
    GENERATORS,
    LCA_FORMS,
    CrowdLayerGenerator,
    CrowdLayerModule,
    GenerativeCrowdModule,
    ScaledClassifier,
)
from manyhands.objectives import COST_FORMS, SPARSITY_FORMS
from manyhands.training import (
    BestState,
    Callback,
    CrowdBatch,
    EarlyStopping,
    Features,
    GradientStep,
    Monitor,
    Stage,
    TrainStep,
    isolated_rng,
)
from manyhands.typing import AnyArray

START, GENERATOR, DISCRIMINATOR, ADVERSARIAL = "start", "generator", "discriminator", "adversarial"
DEFAULT_EPOCHS = {GENERATOR: 30, DISCRIMINATOR: 10, ADVERSARIAL: 20}
CLASSIFIER_NLL = "validation_classifier_nll"
OTHER_NETWORKS = (DoctorNetClassifier, PersonalClassifier, RaykarClassifier)
"""Crowd classifiers without a backbone that predicts by itself."""

CONFUSION_INSTANCES, CONFUSION_CELLS = 1024, 1 << 22
"""Most instances ``confusion_`` is a mean over; fewer (but 64) where all annotators of them are
more cells than this."""


_Phases = dict[str, AdversarialStep]
"""Steps of the phases after the generator's pre-training, by the name of their stage."""

CrowdInGFit = Fit[GenerativeCrowdModule, _Phases]


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdInGClassifier(BaseCrowdClassifier):
    r"""Learn from a crowd and from annotations generated in its likeness (CrowdInG) [1]_.

    A generator says how annotator r would annotate instance n, given both, the classifier's
    output and noise (Eq. 1). A discriminator tells real annotations from generated ones (Eq. 2);
    an auxiliary network guesses the classifier's output from an annotation (Eq. 3). Generated
    annotations are good where the former takes them for real and the latter guesses right.
    Training starts from a classifier of another kind (Crowd Layer, as published); generator and
    discriminator are then trained on the observed annotations alone, and all four networks against
    one another. After training the classifier alone predicts, and the generator annotates.

    Parameters
    ----------
    backbone, max_epochs, batch_size, lr, weight_decay, reset_optimizer, class_balance, \
scaling, device, random_state, verbose, validation, patience, checkpoint
        See `BaseCrowdClassifier`. ``lr``, ``weight_decay`` and, unless they have their own,
        ``max_epochs`` are those of the start. ``validation`` as a fraction of the annotations
        is a watchdog: the adversarial epoch is kept whose classifier explains those held out best
        (by confusion matrices counted from the others); where none does better than the start's,
        the state before that phase.
    pretrainer : crowd classifier or None, default=None
        What the classifier starts as; cloned, and trained on the same annotations. It has the
        ``backbone`` and ``scaling`` of this estimator, whose ``class_balance`` it takes where it
        has none, and whose ``device``, ``verbose`` and ``checkpoint``. None is
        `CrowdLayerClassifier` with the parameters of this one.
    generator : {"network", "crowd_layer"}, default="network"
        What generates annotations: Eq. 1; or the start's Crowd Layer, which is what the paper's
        baseline DL-CL+GAN puts in its place (with ``information_weight=0``,
        ``selection="random"``, ``two_steps=False``, ``generative_steps=1``, ``mu="mean"`` and
        ``lca=False``, its updates are REINFORCE).
    generator_inputs : {"both", "annotator", "instance"}, default="both"
        What the generator sees besides the classifier's output: without the instance (the
        paper's CrowdInG-U), or without the annotator (CrowdInG-I).
    information_weight : float, default=0.5
        :math:`\lambda` of Eq. 4; 0 leaves the auxiliary network out (CrowdG).
    selection : {"entropy", "random"}, default="entropy"
        Which generated annotations the discriminator sees, as many of every annotator as it has
        annotations: drawn with probability proportional to 1/H, or uniformly (CrowdInG-R).
    contrast : {"open", "observed"}, default="open"
        Cells whose generated annotations the discriminator tells from the observed ones: those
        that nobody annotated, by ``selection`` (the paper's); or the observed ones themselves, in
        which only the label can tell (ours, and what is done for a batch without an open cell).
    two_steps : bool, default=True
        The generator learns on instances the classifier is sure of, then the classifier on the
        others; or both on all, at once.
    entropy_threshold : float, default=0.5
        t, in nats: the classifier is sure of an instance up to this entropy.
    adversarial_cost : {"non_saturating", "saturating"}, default="non_saturating"
        -log D (released code) or log(1 - D) (paper).
    mu : "search", "mean" or float, default="search"
        Lagrange multiplier of Eq. 5 and 6: searched over the first epochs, on logged
        annotations, by the self-normalised risk; the mean cost in a batch; or fixed.
    truncation : float, default=5.0
        Importance ratios count as this at most.
    logging_policy : {"batch", "epoch"}, default="batch"
        Annotations are drawn from the generator as it is at the start of a batch (released code)
        or of an epoch (paper).
    lca : {"auto", True, False}, default="auto"
        Label correlation aggregation in the discriminator. "auto" asks whether disagreements
        concentrate on some pairs of labels.
    lca_form : {"symmetric", "row"}, default="symmetric"
        Symmetric normalisation of the adjacency and a learnt matrix (paper), or row-wise
        normalisation and a residual (released code).
    sparsity_weight : float, default=0.1
    sparsity_form : {"l1", "l2"}, default="l1"
        Penalty on the discriminator's outputs: their mean (released code), or that of their
        squares (paper).
    generator_epochs, discriminator_epochs, adversarial_epochs : int or None, default=None
        Of the generator's and the discriminator's pre-training, and of the adversarial phase;
        None is 30, 10 and 20, at most ``max_epochs``.
    discriminator_steps, generative_steps : int, default=5
        Updates a batch, of the discriminator, and of generator and classifier each.
    pretraining_lr : float, default=1e-3
        Learning rate of the generator's pre-training.
    generator_lr, discriminator_lr, classifier_lr : float
        Learning rates of the adversarial phase (the discriminator's of its pre-training, too).
    discriminator_decay : float, default=1e-2
        L2 penalty of the discriminator and the auxiliary network.
    annotators_per_instance : int or None, default=None
        Annotators drawn at random for every instance of a batch, whose cells are generated; None:
        all who annotated anything, as in the paper.
    chunk_size : int, default=8192
        Cells that the networks compute at once: bounds their memory, and changes nothing that is
        learnt (but which annotations a seed draws in `sample_annotations`).
    annotator_features : array of shape (n_annotators, n_features) or None
        Features of the annotators for the three networks; default: one-hot.
    noise_lr : float or None, default=1e-2
        Of the default ``pretrainer``; see `CrowdLayerClassifier`.

    Attributes
    ----------
    pretrainer_ : crowd classifier
        The fitted start. Not part of a saved model.
    generated_annotations_ : AnnotationTable
        Annotations of cells that nobody filled, drawn and selected as for the discriminator:
        about as many of every annotator as it gave (fewer in small batches, and with
        ``annotators_per_instance``, where there are fewer open cells to draw from), marked
        ``source="generated"``. To be added to the observed ones by ``table.with_added``. Not part
        of a saved model.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]: mean of what the generator gives for (at most 1,024) annotated
        instances, each weighted by the classifier's probability of the true class.
    label_correlation_ : float
        Nats by which disagreements concentrate on some pairs of labels; "auto" asks for .1. Not
        part of a saved model.

    Notes
    -----
    Explaining annotations (``predict_annotation_proba``, `score`) is the generator's part, with
    noise at its mean. ``history_`` has the stages "start", "generator", "discriminator" and
    "adversarial"; their columns, and the differences from the paper, are numbered in
    ``docs/methods/crowding.md``.

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
        "annotator_features": [None, "array-like"],
        "noise_lr": [None, Interval(Real, 0, None, closed="neither")],
    }
    _crowd_check_exemptions = {
        "check_history": "history_ also has the start's rows and measures that are no loss (the "
        "discriminator's accuracy, sample sizes); a test of the method checks its terms",
        "check_annotator_permutation": "annotations are drawn cell by cell in the order of the "
        "annotators; a test of the method permutes them where nothing is learnt from draws",
    }
    _start_refusal = "begins with its start's"

    backbone: Any = field(default=None, kw_only=False)
    pretrainer: Any = None
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
    annotator_features: Any = None
    noise_lr: float | None = 1e-2

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> GenerativeCrowdModule:
        return GenerativeCrowdModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            input_shape=input_shape,
            annotator_features=self._read_annotator_features(),
            generator=self.generator,
            generator_inputs=self.generator_inputs,
            lca_form=self.lca_form,
            chunk_size=self.chunk_size,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_pretrainer()

    def _read_annotator_features(self) -> Tensor | None:
        if self.annotator_features is None:
            return None
        try:
            features = np.asarray(self.annotator_features, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise AnnotationError(
                f"annotator_features is no array of numbers ({error}); give one row of numbers "
                "an annotator"
            ) from error
        if features.ndim != 2 or len(features) != self.n_annotators_:
            raise AnnotationError(
                f"annotator_features has shape {features.shape}; one row for each of the "
                f"{self.n_annotators_} annotators is needed"
            )
        if not np.isfinite(features).all():
            raise AnnotationError("annotator_features contains NaN or infinity; fill the gaps")
        return torch.tensor(features)

    # -- the start ------------------------------------------------------------------------------

    def _prepare(self, fit: CrowdInGFit) -> _Phases:
        counts, module = label_cooccurrence(fit.table), fit.module
        self.label_correlation_ = label_correlation(counts)
        correlated = self.label_correlation_ > LEAST_CORRELATION
        if counts.any() and (correlated if self.lca == "auto" else self.lca):
            adjacency = torch.from_numpy(counts / counts.max()).float()
            module.discriminator.adjacency.copy_(adjacency)
        pretrainer = self._make_pretrainer(fit.rng)
        self.pretrainer_ = pretrainer.fit(fit.features.data, fit.table, watch=fit.watch)
        self._start_from(self.pretrainer_, module)
        fit.history.extend({**row, "stage": START} for row in self.pretrainer_.history_)
        settings = self._settings()
        cells = Cells(fit.table, self.annotators_per_instance, fit.features.device)
        return {
            DISCRIMINATOR: AdversarialStep(module, settings, cells, generate=False),
            ADVERSARIAL: AdversarialStep(module, settings, cells, generate=True),
        }

    def _make_pretrainer(self, rng: np.random.Generator) -> Any:
        """Clone the pretrainer, or make the default; seeded as this estimator is."""
        shared = CrowdLayerClassifier().get_params(deep=False).keys() & self.get_params(deep=False)
        own = {name: getattr(self, name) for name in shared}
        if self.pretrainer is None:
            pretrainer: Any = CrowdLayerClassifier(**own)
            pretrainer.set_params(validation=None, patience=None, random_state=None)
        else:
            pretrainer = clone(self.pretrainer)
        given = pretrainer.get_params(deep=False)
        seed = int(rng.integers(np.iinfo(np.int32).max))
        if given.get("random_state", 0) is None:
            # The seed of this estimator, so that the start is what that seed gives alone.
            own_seed = isinstance(self.random_state, Integral)
            pretrainer.set_params(random_state=self.random_state if own_seed else seed)
        if self.class_balance is not None and given.get("class_balance", 0) is None:
            pretrainer.set_params(class_balance=self.class_balance)
        run: dict[str, Any] = {
            "device": self.device,
            "checkpoint": None,
            "verbose": self.verbose,
        }
        if self.checkpoint is not None:
            path = Path(self.checkpoint)
            run["checkpoint"] = path.with_stem(f"{path.stem}-start")
        return pretrainer.set_params(**{name: run[name] for name in run if name in given})

    def _check_pretrainer(self) -> None:
        """Refuse, before anything is trained, what this network cannot start from."""
        given = self.pretrainer
        if given is None:
            return
        if isinstance(given, type):
            raise AnnotationError(
                f"pretrainer is the class {given.__name__}; give an object: {given.__name__}()"
            )
        name = type(given).__name__
        if not isinstance(given, BaseCrowdClassifier) or isinstance(given, OTHER_NETWORKS):
            raise AnnotationError(
                f"pretrainer={name} has no network like this one's to start from; use a crowd "
                "classifier that trains its backbone as it is, such as CrowdLayerClassifier"
            )
        if getattr(given, "checkpoint", None) is not None:
            raise AnnotationError(
                f"pretrainer has checkpoint={str(given.checkpoint)!r}; give checkpoint= to "
                f"{type(self).__name__} instead, which keeps the start's beside its own"
            )
        for parameter in ("backbone", "scaling"):
            theirs, ours = getattr(given, parameter), getattr(self, parameter)
            read = _network_of if parameter == "backbone" else describe_parameter
            if read(theirs) != read(ours):
                raise AnnotationError(
                    f"pretrainer has {parameter}={theirs!r}, {type(self).__name__} {ours!r}; they "
                    "train one network: give both the same"
                )

    @staticmethod
    def _start_from(pretrainer: Any, module: GenerativeCrowdModule) -> None:
        """Put the pretrainer's classifier into the module."""
        try:
            module.classifier.load_state_dict(pretrainer.module_.classifier.state_dict())
        except (AttributeError, RuntimeError) as error:
            raise AnnotationError(
                f"pretrainer={type(pretrainer).__name__} has no network like this one's to start "
                "from; use a classifier that trains its backbone as it is, such as "
                "CrowdLayerClassifier"
            ) from error
        if module.encoder is not None:
            module.set_encoder(module.classifier)
        if isinstance(module.generator, CrowdLayerGenerator):
            start = getattr(pretrainer.module_, "matrix", None)
            if not isinstance(pretrainer.module_, CrowdLayerModule) or start is None:
                raise AnnotationError(
                    f"generator='crowd_layer' is that of the start, and pretrainer="
                    f"{type(pretrainer).__name__} has none; use CrowdLayerClassifier() with "
                    "connection='MW'"
                )
            with torch.no_grad():
                module.generator.matrix.copy_(start)

    # -- phases ---------------------------------------------------------------------------------

    def _stages(self, fit: CrowdInGFit) -> list[Stage]:
        module = fit.module
        steps: dict[str, TrainStep] = {
            GENERATOR: _GeneratorStep(
                module,
                lambda module, batch: self._objective(fit, batch),
                lambda: torch.optim.Adam(module.generator.parameters(), lr=self.pretraining_lr),
                reset_every_epoch=self.reset_optimizer,
            ),
            **fit.state,
        }
        if self.generator == "crowd_layer":
            # It comes from the start, trained.
            del steps[GENERATOR]
        return [
            Stage(name, step, fit.batches.epoch, self._epochs(name)) for name, step in steps.items()
        ]

    def _epochs(self, stage: str) -> int:
        given: int | None = getattr(self, f"{stage}_epochs")
        return min(DEFAULT_EPOCHS[stage], self.max_epochs) if given is None else given

    def _settings(self) -> AdversarialSettings:
        return AdversarialSettings(
            generator_lr=self.generator_lr,
            classifier_lr=self.classifier_lr,
            discriminator_lr=self.discriminator_lr,
            discriminator_decay=self.discriminator_decay,
            information_weight=self.information_weight,
            entropy_threshold=self.entropy_threshold,
            adversarial_cost=self.adversarial_cost,
            sparsity_weight=self.sparsity_weight,
            sparsity_form=self.sparsity_form,
            mu=self.mu,
            truncation=self.truncation,
            discriminator_steps=self.discriminator_steps,
            generative_steps=self.generative_steps,
            two_steps=self.two_steps,
            uniform_selection=self.selection == "random",
            contrast_open=self.contrast == "open",
            logged_epoch=self.logging_policy == "epoch",
            chunk_size=self.chunk_size,
            reset_optimizer=self.reset_optimizer,
        )

    def _objective(self, fit: CrowdInGFit, batch: CrowdBatch) -> dict[str, Tensor]:
        """``nll`` of the observed annotations by the generator, for its pre-training."""
        module = fit.module
        with torch.no_grad():
            scaled, proba = module.classify(batch.x)
        noise = module.generator.draw_noise(len(batch.rows))
        log_proba = module.generator(scaled, proba, batch.rows, batch.annotators, noise)
        return {"nll": annotation_nll(log_proba, batch.labels, batch.weights, self._focus)}

    def _callbacks(self, fit: CrowdInGFit) -> tuple[list[Callback], BestState | None]:
        callbacks, best = super()._callbacks(fit)
        first: list[Callback] = [_Measures(fit.state)]
        if fit.held is not None:
            explained = ClassifierMonitor(fit.module, fit.features, fit.table, fit.held)
            first.append(Monitor(explained))
        if best is None:
            return [*first, *callbacks], best
        watchdog = _Watchdog(fit.module, best.metric, higher_is_better=best.sign > 0)
        callbacks[callbacks.index(best)] = watchdog
        for place, callback in enumerate(callbacks):
            if isinstance(callback, EarlyStopping):
                callbacks[place] = _StopPatiently(
                    callback.metric,
                    higher_is_better=callback.sign > 0,
                    patience=callback.patience,
                )
        return [*first, *callbacks], watchdog

    # -- what comes of it -----------------------------------------------------------------------

    def _set_fitted(self, fit: CrowdInGFit) -> None:
        device = fit.features.device
        some = fit.batches.instances
        n, most = (
            len(some),
            min(CONFUSION_INSTANCES, max(64, CONFUSION_CELLS // self.n_annotators_)),
        )
        if n > most:
            place = torch.linspace(0, n - 1, most, device=device)
            some = some[place.long()]
        everybody = torch.arange(self.n_annotators_, device=device)
        parts = fit.features.batches(some, PREDICT_BATCH)
        self.confusion_ = fit.module.expected_confusion(parts, everybody).cpu().numpy()
        self.generated_annotations_ = self._generate(fit)

    @staticmethod
    def _generate(fit: CrowdInGFit) -> AnnotationTable:
        """Draw annotations of open cells, selected as for the discriminator."""
        step = fit.state[DISCRIMINATOR]
        step.policy = None
        # Held out, or of no weight: open while it was learnt, but somebody did annotate them.
        step.cells.close(fit.given)
        found = []
        for batch in fit.batches.in_order():
            log = step.draw(batch)
            chosen = step.select(batch, log)
            instances = batch.instances[log.rows[chosen]]
            found.append(torch.stack([instances, log.annotators[chosen], log.labels[chosen]]))
        instance, annotator, label = torch.cat(found, dim=1).cpu().numpy()
        table = fit.table
        added = AnnotationTable(
            instance, annotator, label, table.instances, table.annotators, table.classes
        )
        return added.with_source("generated")

    def sample_annotations(
        self, X: Any, annotators: Any = None, *, random_state: Any = None
    ) -> AnnotationTable:
        """Draw what annotators would say of instances, one annotation each.

        Parameters
        ----------
        X : as in `fit`
        annotators : ids, mask or slice, optional
            As in `predict_annotation_proba`; default: all.
        random_state : int, RandomState or None, default=None

        Returns
        -------
        AnnotationTable
            (n_samples, n_annotators) annotations, marked ``source="generated"``; instances go by
            their position in X.

        Raises
        ------
        AnnotationError
            If ids are numbers where those of `fit` were strings, or the other way round.
        """
        check_is_fitted(self, "module_")
        X = read_features(self, X, reset=False)
        chosen = find_annotators(self.annotators_, annotators, "annotators")
        ids = self.annotators_[chosen]
        if (chosen < 0).any():
            ids = np.where(chosen < 0, np.atleast_1d(annotators), ids)
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        features = Features(X, device_of(self))
        with isolated_rng(seed, features.device), torch.inference_mode():
            labels = self._draw_grid(features, chosen)
        matrix: AnyArray = self.classes_[labels]
        table = AnnotationTable.from_matrix(matrix, classes=self.classes_, annotators=ids)
        return table.with_source("generated")

    def _draw_grid(self, features: Features, chosen: AnyArray) -> AnyArray:
        """Draw the labels of every instance by some annotators (-1: new ones): codes (n, r)."""
        module = cast(GenerativeCrowdModule, self.module_)
        known = np.append(self.heard_, False)[chosen]
        columns = torch.from_numpy(chosen[known]).to(features.device)
        labels = np.empty((len(features), len(chosen)), dtype=np.int64)
        size = max(1, min(PREDICT_BATCH, self.chunk_size // max(1, len(chosen))))
        start = 0
        for x in features.batches(torch.arange(len(features)), size):
            part = labels[start : start + len(x)]
            rows = torch.arange(len(x), device=x.device).repeat_interleave(len(columns))
            noise = module.generator.draw_noise(len(rows))
            pairs = columns.repeat(len(x))
            proba = module.annotation_log_proba(x, rows, pairs, noise).exp()
            if len(rows):
                part[:, known] = proba.multinomial(1).view(len(x), len(columns)).cpu().numpy()
            if not known.all():
                crowd = torch.from_numpy(new_annotator_proba(self, module(x)))
                drawn = crowd.multinomial(int((~known).sum()), replacement=True)
                part[:, ~known] = drawn.numpy()
            start += len(x)
        return labels


def _network_of(backbone: Any) -> Any:
    """Return a backbone's description, the same for every way to name it."""
    named = "mlp" if backbone is None else backbone
    return describe_parameter({"name": named} if isinstance(named, str) else named)


class _GeneratorStep(GradientStep):
    """Gradient steps on the generator; all else as in prediction."""

    def start_epoch(self, epoch: int) -> None:
        """Put the generator into training mode."""
        super().start_epoch(epoch)
        self.module.eval()
        self.module.generator.train()  # type: ignore[union-attr]


class _Measures(Callback):
    """Add what adversarial steps measure beside their loss."""

    def __init__(self, steps: dict[str, AdversarialStep]) -> None:
        self.steps = steps

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Add the epoch's means."""
        if row["stage"] in self.steps:
            row.update(self.steps[row["stage"]].measures())


class _Watchdog(BestState):
    """The best state of the phases after the start, with a classifier no worse than it.

    The generator's pre-training is judged by how it explains held-out annotations; the
    adversarial phase by how the classifier does. The discriminator is trained on the best
    generator, and is part of that state: while it learns, nothing that is judged changes. By
    gold labels, which say nothing of the generator, the last one is taken.
    """

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Begin the discriminator's training with the best generator."""
        if name == DISCRIMINATOR and not first_epoch and self.best["module"] is not None:
            self.restore()

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Remember the state if it is better, or has a discriminator that learnt more."""
        metric = _judged_by(self.metric, row["stage"])
        if row["stage"] == DISCRIMINATOR:
            self.best["module"] = copy.deepcopy(self.module.state_dict())
            self.best["value"] = row[metric]
            if self.best["stage"] in (None, DISCRIMINATOR):  # No phase of the generator before.
                self.best["stage"], self.best["epoch"] = row["stage"], row["epoch"]
            return
        if row["stage"] == GENERATOR and self.sign > 0:
            self.best["value"] = None
        super().after_epoch({**row, self.metric: row[metric]})


class _StopPatiently(EarlyStopping):
    """Early stopping of the phases in which what is judged changes."""

    stage = GENERATOR

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Note which stage runs."""
        self.stage = name
        super().before_stage(name, max_epochs, first_epoch)

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Count the epochs without improvement."""
        super().after_epoch({**row, self.metric: row[_judged_by(self.metric, row["stage"])]})

    @property
    def should_stop(self) -> bool:  # type: ignore[override]
        """Tell whether patience is used up, where it counts."""
        idle = self.stage == DISCRIMINATOR or (self.stage == GENERATOR and self.sign > 0)
        return not idle and super().should_stop


def _judged_by(metric: str, stage: str) -> str:
    """Column a stage is judged by: with held-out annotations, the classifier's after the start."""
    return metric if metric != "validation_nll" or stage == GENERATOR else CLASSIFIER_NLL
