"""What every crowd classifier shares: reading the data, one fit, prediction in batches."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self, cast
from warnings import warn

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import TransformerTags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.encoding import as_values, encode, missing_mask, resolve
from manyhands.decision.rules import check_rule, decided, is_posterior
from manyhands.exceptions import AnnotationError
from manyhands.fitting.watching import (
    PREDICT_BATCH,
    AnnotationMonitor,
    GoldMonitor,
    Watcher,
    watched,
)
from manyhands.inference.inputs import check_annotations
from manyhands.inference.probability import floored_log
from manyhands.io.files import check_writable
from manyhands.nn import (
    CrowdModule,
    FixedConfusionModule,
    ScaledClassifier,
    Standardize,
    make_backbone,
)
from manyhands.objectives import crowd_nll
from manyhands.sampling.class_balance import ClassBalance, make_balance
from manyhands.training import (
    AnnotationBatches,
    BestState,
    Callback,
    Checkpoint,
    CrowdBatch,
    EarlyStopping,
    Features,
    GradientStep,
    History,
    Monitor,
    ProgressBar,
    Stage,
    hold_out,
    isolated_rng,
    pick_device,
    run_stages,
)
from manyhands.typing import MISSING, AnyArray, FloatArray, IntArray

GRID_ENTRIES = 1 << 24
"""Numbers of an (n, R, C) block computed at once in `predict_annotation_proba`: 64 MiB."""


def _has_embedding(estimator: BaseCrowdClassifier) -> bool:
    module = getattr(estimator, "module_", None)
    if module is not None:
        return hasattr(module.classifier.backbone, "embed")
    spec = estimator.backbone
    named = spec is None or isinstance(spec, str | dict)
    return named or hasattr(spec, "embed")


class BaseCrowdClassifier(  # type: ignore[call-arg]
    ClassifierMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # set_output would wrap `transform` and undo its available_if
):
    """Base class of crowd classifiers: ``fit(X, annotations)``, then predict true classes.

    A subclass implements `_build_module` and, where the plain likelihood of the annotations is
    not the objective, `_objective`; a method with several phases overrides `_stages`.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        The network from features to class logits; None is ``"mlp"``, the papers' 128 units. See
        `manyhands.nn.make_backbone`.
    max_epochs : int
    batch_size : int
        Instances a minibatch.
    lr : float
        Learning rate of Adam.
    weight_decay : float
        L2 penalty of Adam.
    reset_optimizer : bool, default=False
        Make a new Adam every epoch, as the code released with CoNAL and CrowdInG does.
    class_balance : None, str or dict, default=None
        What is done about rare classes: "resample", "reweight", "focal", "cb_focal", or a dict of
        ``name``, ``gamma`` (2 by default) and ``beta`` (.9999); see `ClassBalance`. It acts on
        the annotations as the loss sees them; where inferred labels are trained on, on these.
    scaling : {"standard", "rms", None}, default="standard"
        Standardise every feature (every channel of images); divide by one root mean square (for
        embeddings of a network, whose features share a scale); or leave X as it is. Statistics
        are those of the annotated instances, and part of the model. A Dataset is left as it is.
    device : str, default="auto"
    random_state : int, RandomState or None
    verbose : int, default=0
        1 shows a progress bar.
    validation : None, float or (X, y_gold), default=None
        None trains a fixed number of epochs and keeps the last. A fraction of the annotations is
        held out, and the epoch that explains them best is kept; with gold labels, the epoch most
        accurate on them is kept.
    patience : int or None, default=None
        With ``validation``: stop after so many epochs without improvement.
    checkpoint : str, Path or None, default=None
        File written after every epoch, from which a later ``fit`` on the same data with the same
        parameters goes on, to the same weights.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)
        Ids of the annotators.
    n_annotators_ : int
    module_ : CrowdModule
    history_ : History
        A row an epoch: stage, epoch, every named loss term and their sum ``loss``, metrics,
        seconds.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]; rows sum to 1. Of an annotator without annotations, the pooled.
    pooled_confusion_ : array of shape (n_classes, n_classes)
        Mean of ``confusion_``, each row weighted by the annotations expected of that annotator
        in that class: what is expected of a new annotator.
    heard_ : array of shape (n_annotators,)
        Whether the annotator has annotations.
    best_epoch_ : int
        With ``validation``: the epoch (from 1) that was kept.
    best_stage_ : str
        With ``validation``: the stage that epoch counts in.
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "backbone": [None, str, dict, torch.nn.Module, callable],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "reset_optimizer": ["boolean"],
        "class_balance": [None, str, dict],
        "scaling": [StrOptions({"standard", "rms"}), None],
        "device": [str, torch.device],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "validation": [None, Interval(Real, 0, 1, closed="neither"), tuple, list],
        "patience": [None, Interval(Integral, 1, None, closed="left")],
        "checkpoint": [None, str, Path],
    }
    _fitted_arrays: Sequence[str] = ("confusion_", "pooled_confusion_", "heard_")
    """Fitted arrays a saved model carries beside its weights."""
    _adds_the_crowds_answer = False
    """Whether every row of ``confusion_`` gets one annotation more, as the crowd would give it:
    counts alone would say that what an annotator did not do is impossible."""
    _protocol_parameters: Sequence[str] | None = None
    """Parameters that training protocols may set; None: all the class has."""
    _starts_anew: str | None = None
    """Why weights to start from would be lost, for `continue_from`; None: they are kept."""
    _start: dict[str, Tensor] | None = None
    """Weights to start from; see `continue_from`."""
    _chosen_in_last_stage = False
    """Whether ``validation`` chooses among the epochs of the last stage alone."""
    _stages_before: Sequence[str] = ()
    """Stages that prepare the training: ``patience`` does not end them."""

    n_features_in_: int
    confusion_: FloatArray
    backbone: Any
    max_epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    reset_optimizer: bool
    class_balance: Any
    scaling: str | None
    device: str
    random_state: Any
    verbose: int
    validation: Any
    patience: int | None
    checkpoint: str | Path | None

    @property
    def _title(self) -> str:
        """Name on the progress bar."""
        return type(self).__name__.removesuffix("Classifier")

    # -- what a method is made of ---------------------------------------------------------------

    @abstractmethod
    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> CrowdModule:
        """Build the crowd module around the classifier; vocabularies are set by now."""

    def _objective(self, module: Any, batch: CrowdBatch) -> dict[str, Tensor]:
        return crowd_nll(module, batch, focus=self._focus)

    @property
    def _balance(self) -> ClassBalance | None:
        return make_balance(self.class_balance)

    @property
    def _focus(self) -> float:
        """Exponent of the focal factor in the loss."""
        balance = self._balance
        return 0.0 if balance is None else balance.focus

    def _balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable:
        """Annotations as the loss is to see them: balanced, with weights of mean 1."""
        if self._balance is not None:
            table = self._balance.balanced(table, rng)
        weights = table.weights
        return table if weights is None else replace(table, weights=weights / weights.mean())

    def _prepare(
        self, table: AnnotationTable, features: Features, module: Any, rng: np.random.Generator
    ) -> None:
        """Compute what the stages need beside the module (such as aggregated labels)."""

    def _stages(self, module: Any, batches: AnnotationBatches) -> list[Stage]:
        """Phases of training; one, by default."""
        step = GradientStep(
            module,
            self._objective,
            lambda: self._make_optimizer(module),
            reset_every_epoch=self.reset_optimizer,
        )
        return [Stage("train", step, batches.epoch, self.max_epochs)]

    def _make_optimizer(self, module: CrowdModule) -> torch.optim.Optimizer:
        """Adam; all but the classifier at ``noise_lr``, undecayed, where that is given."""
        noise_lr = getattr(self, "noise_lr", None)
        # The fused update halves the time of a step; torch chooses it by itself on no device.
        fused = next(module.parameters()).device.type in {"cpu", "cuda"}
        if noise_lr is None:
            return torch.optim.Adam(
                module.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=fused
            )
        classifier = list(module.classifier.parameters())
        ours = {id(parameter) for parameter in classifier}
        noise = [parameter for parameter in module.parameters() if id(parameter) not in ours]
        # Decay would pull confusion matrices towards 0, which is a uniform annotator.
        groups = [
            {"params": classifier, "weight_decay": self.weight_decay},
            {"params": noise, "lr": noise_lr},
        ]
        return torch.optim.Adam(groups, lr=self.lr, fused=fused)

    @abstractmethod
    def _set_fitted(self, module: Any, batches: AnnotationBatches) -> None:
        """Set ``confusion_`` and what else the method has, from the trained module."""

    # -- fit ------------------------------------------------------------------------------------

    def continue_from(self, other: BaseCrowdClassifier) -> Self:
        """Let the next ``fit`` start from another's weights, on the same classes and annotators.

        The scaling is part of the weights; optimisers begin anew. `clone` forgets it.

        Parameters
        ----------
        other : fitted classifier of this class, with the same network

        Raises
        ------
        AnnotationError
            If it has no network, or a training of this class begins with the annotations,
            whatever the weights.
        """
        if self._starts_anew is not None:
            raise AnnotationError(
                f"a training of {type(self).__name__} {self._starts_anew}, whatever the weights "
                "before; train from scratch"
            )
        if not hasattr(other, "module_"):
            raise AnnotationError(
                f"{type(other).__name__} has no network to go on from (it is not fitted, or its "
                "backbone is a scikit-learn classifier); train from scratch"
            )
        self._start = other.module_.state_dict()
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Train on annotations.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), array or tensor of
            shape (n_samples, *input_shape), or map-style torch Dataset
        y : AnnotationTable, array of shape (n_samples, n_annotators) with -1/NaN missing, or
            array of shape (n_samples,): a crowd of one

        Raises
        ------
        AnnotationError
            If X and y do not belong together, y is empty or has one class, X is not finite.
        DivergenceError
            If the loss stops being finite.
        """
        self._validate_params()
        make_balance(self.class_balance)
        check_rule(self._rule)
        if self.patience is not None and self.validation is None:
            raise AnnotationError(
                f"patience={self.patience} needs something to watch; give validation= a fraction "
                "of the annotations or (X, y_gold)"
            )
        table = self._read_target(y)
        X = self._read_features(X, reset=True)
        self._check_lengths(X, table)
        self._set_vocabularies(table)
        if self.checkpoint is not None and not isinstance(self.random_state, Integral):
            raise AnnotationError(
                f"checkpoint needs an integer random_state, got {self.random_state!r}: a resumed "
                "run must draw what the first one drew"
            )
        device = pick_device(self.device)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with isolated_rng(seed, device):
            features = Features(X, device)
            self._train(features, table, np.random.default_rng(seed))
        return self

    def _train(self, features: Features, table: AnnotationTable, rng: np.random.Generator) -> None:
        held: AnnotationTable | None = None
        whole = table
        if isinstance(self.validation, Real):
            table, held = hold_out(table, float(self.validation), rng)
        batches = AnnotationBatches(features, self._balanced(table, rng), self.batch_size)
        module = self._make_module(features, batches.instances)
        self._prepare(table, features, module, rng)
        self.history_ = History()
        stages = self._stages(module, batches)
        callbacks, best = self._callbacks(module, features, held)
        first_stage = first_epoch = 0
        if self.checkpoint is not None:
            check_writable(Path(self.checkpoint).parent)
            checkpoint = Checkpoint(
                self.checkpoint,
                specification=self._specification(features, whole, module),
                module=module,
                stages=stages,
                callbacks=tuple(callbacks),
                history=self.history_,
                device=features.device,
            )
            first_stage, first_epoch = checkpoint.resume()
            callbacks.append(checkpoint)
        run_stages(
            stages,
            callbacks=callbacks,
            history=self.history_,
            first_stage=first_stage,
            first_epoch=first_epoch,
        )
        if best is not None:
            best.restore()
            self.best_epoch_, self.best_stage_ = best.best["epoch"], best.best["stage"]
        self.module_ = module.eval()
        with torch.inference_mode():
            self._set_fitted(module, batches)
            belief = self._belief(module, batches) if hasattr(self, "confusion_") else None
            self._set_heard(table, belief)
            if self._adds_the_crowds_answer:
                cast(FixedConfusionModule, module).confusions.copy_(
                    torch.from_numpy(self.confusion_)
                )

    def _belief(self, module: Any, batches: AnnotationBatches) -> FloatArray:
        """Class probabilities of the annotated training instances, others 0; (n, n_classes)."""
        belief = np.zeros((batches.table.n_instances, len(self.classes_)))
        size = PREDICT_BATCH
        for rows in torch.split(batches.instances, size):
            proba = module(batches.features.take(rows)).double().softmax(dim=1)
            belief[rows.cpu().numpy()] = proba.cpu().numpy()
        return belief

    def _set_heard(self, table: AnnotationTable, belief: FloatArray | None) -> None:
        """Note who annotated, and pool the confusion matrices by what is known of each row."""
        self.heard_ = table.annotations_per_annotator() > 0
        if belief is None:
            return
        self.confusion_, self.pooled_confusion_ = pool_confusions(
            self.confusion_, table, belief, pseudo_annotations=float(self._adds_the_crowds_answer)
        )
        silent = ~self.heard_[:, None, None]
        self.confusion_ = np.where(silent, self.pooled_confusion_, self.confusion_)

    def _make_module(self, features: Features, annotated: Tensor) -> CrowdModule:
        shape = features.input_shape
        classifier = ScaledClassifier(
            Standardize(shape, self.scaling),
            make_backbone(self.backbone, shape, len(self.classes_)),
        )
        self.input_shape_ = shape
        module = self._build_module(classifier, shape)
        if self.scaling is not None and not features.is_dataset:
            # 8 MiB at a time in float64.
            size = max(1, min(PREDICT_BATCH, (1 << 20) // int(np.prod(shape))))
            classifier.scaler.fit_statistics(features.batches(annotated, size))
        if self._start is not None:
            module.load_state_dict(self._start)
            self._start = None
        module = module.to(features.device)
        self._check_logits(module, features, annotated)
        return module

    def _check_logits(self, module: CrowdModule, features: Features, rows: Tensor) -> None:
        """Refuse what would end in an obscure error later: a wrong width, a norm of one row."""
        if normalises(module) and min(self.batch_size, len(rows)) < 2:
            raise AnnotationError(
                f"backbone normalises over batches, which needs two instances in each: batch_size="
                f"{self.batch_size}, {len(rows)} instances with annotations"
            )
        module.eval()
        with torch.no_grad():
            shape = tuple(module(features.take(rows[:2])).shape)
        expected = (min(2, len(rows)), len(self.classes_))
        if shape != expected:
            raise AnnotationError(
                f"backbone gives an output of shape {shape} for {expected[0]} instances; it must "
                f"give logits of shape {expected} ({expected[1]} classes)"
            )

    def _callbacks(
        self, module: CrowdModule, features: Features, held: AnnotationTable | None
    ) -> tuple[list[Callback], BestState | None]:
        callbacks: list[Callback] = []
        best: BestState | None = None
        if self.validation is not None:
            monitor: AnnotationMonitor | GoldMonitor
            if held is not None:
                monitor = AnnotationMonitor(
                    module, AnnotationBatches(features, held, PREDICT_BATCH)
                )
                metric, higher = "validation_nll", False
            else:
                monitor = self._gold_monitor("validation", self.validation, module, features.device)
                metric, higher = "validation_accuracy", True
            best = BestState(
                module,
                metric,
                higher_is_better=higher,
                last_stage_only=self._chosen_in_last_stage,
            )
            callbacks += [Monitor(monitor), best]
            if self.patience is not None:
                callbacks.append(
                    EarlyStopping(
                        metric,
                        higher_is_better=higher,
                        patience=self.patience,
                        exempt=self._stages_before,
                    )
                )
        for name, part in watched().items():
            shape = getattr(part[0], "shape", None)
            if shape is None or features.is_dataset or shape[1:] == features.input_shape:
                gold = self._gold_monitor(name, part, module, features.device)
                callbacks.append(Monitor(Watcher(name, gold)))
        if self.verbose:
            callbacks.append(ProgressBar(self._title))
        return callbacks, best

    def _gold_monitor(
        self, name: str, part: Any, module: CrowdModule, device: torch.device
    ) -> GoldMonitor:
        if len(part) != 2:
            raise AnnotationError(
                f"{name} has {len(part)} parts; give (X, y_gold), a fraction of "
                "the annotations, or None"
            )
        X, y_gold = part
        X = self._read_features(X, reset=False)
        gold = as_values(y_gold)
        if gold.shape != (_n_rows(X),):
            raise AnnotationError(
                f"{name} has {_n_rows(X)} rows of X but gold labels of shape {gold.shape}; "
                "give one label a row"
            )
        if missing_mask(gold).any():
            raise AnnotationError(
                f"{name}'s y_gold is missing in row {np.flatnonzero(missing_mask(gold))[0]}; "
                "leave rows without gold out"
            )
        codes, _ = encode(
            gold, self.classes_, argument=f"{name}'s y_gold", vocabulary_name="classes_"
        )
        return GoldMonitor(
            module,
            Features(X, device),
            torch.from_numpy(codes),
            PREDICT_BATCH,
            decide=None if is_posterior(self._rule) else self._decide,
        )

    def _specification(
        self, features: Features, table: AnnotationTable, module: CrowdModule
    ) -> dict[str, str]:
        """What a checkpoint must share with a run to be resumed by it.

        Of a Dataset, only the length and the first and last items are looked at.
        """
        free = {"checkpoint", "device", "verbose"}
        from manyhands.fitting.persistence import describe_parameter

        parameters = {
            name: str(describe_parameter(value))
            for name, value in self.get_params(deep=False).items()
            if name not in free
        }
        digest = hashlib.blake2b(digest_size=16)
        for column in (table.instance, table.annotator, table.label, table.weight):
            digest.update(np.ascontiguousarray(column).tobytes())
        for part in (table.classes, table.annotators):
            digest.update(repr(part.tolist()).encode())
        rows = torch.arange(len(features))
        if features.is_dataset:
            digest.update(str(len(features)).encode())
            rows = rows[[0, -1]]
        for x in features.batches(rows, PREDICT_BATCH):
            digest.update(x.cpu().numpy().tobytes())
        network = hashlib.blake2b(repr(module).encode(), digest_size=8).hexdigest()
        name = type(self).__name__
        return {"class": name, "data": digest.hexdigest(), "network": network, **parameters}

    # -- reading the data -----------------------------------------------------------------------

    def _read_target(self, y: Any) -> AnnotationTable:
        return read_target(y, type(self).__name__)

    @staticmethod
    def _check_rows(X: Any, table: AnnotationTable) -> None:
        if _n_rows(X) != table.n_instances:
            raise AnnotationError(
                f"X has {_n_rows(X)} rows but y has annotations for {table.n_instances} "
                "instances; give one row of X an instance, in the same order (from_frame(tasks=) "
                "fixes the order, and keeps instances without annotations)"
            )

    def _check_lengths(self, X: Any, table: AnnotationTable) -> None:
        self._check_rows(X, table)
        check_annotations(table, argument="y")
        seen = table.mask_of_classes_seen()
        if seen.sum() < 2:
            raise AnnotationError(
                f"y holds annotations of one class only, "
                f"{table.classes[int(np.argmax(seen))].item()!r}; a classifier needs two"
            )

    def _set_vocabularies(self, table: AnnotationTable) -> None:
        """Forget an earlier fit, and note the classes and annotators of this one."""
        check_rule(self._rule, table.n_classes)
        kept = {"n_features_in_", "feature_names_in_"}  # set while X was read
        for name in [n for n in vars(self) if n.endswith("_") and n not in kept]:
            delattr(self, name)
        self.classes_ = np.array(table.classes)
        self.annotators_ = np.array(table.annotators)
        self.n_annotators_ = table.n_annotators

    def _read_features(self, X: Any, *, reset: bool) -> Any:
        """Check X and return a float array, a CSR matrix, or the Dataset itself."""
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        if isinstance(X, torch.utils.data.Dataset):
            if reset and hasattr(self, "n_features_in_"):
                del self.n_features_in_  # of an earlier fit on an array
            return X
        if hasattr(X, "ndim") and X.ndim > 2:
            X = check_array(
                X, dtype=[np.float32, np.uint8], allow_nd=True, input_name="X", estimator=self
            )
            if reset:
                self.n_features_in_ = X.shape[1]
        elif reset or len(self.input_shape_) == 1:
            X = validate_data(self, X, reset=reset, dtype=np.float32, accept_sparse="csr")
        if not reset and np.shape(X)[1:] != self.input_shape_:
            raise AnnotationError(
                f"X has instances of shape {np.shape(X)[1:]}, but {type(self).__name__} was "
                f"fitted on {self.input_shape_}"
            )
        return X

    # -- prediction -----------------------------------------------------------------------------

    @property
    def _device(self) -> torch.device:
        return next(self.module_.parameters()).device

    @torch.inference_mode()
    def _apply(self, function: Callable[[Tensor], Tensor], X: Any) -> Tensor:
        """Apply a function of the fitted module to X, batch by batch."""
        features = Features(self._read_features(X, reset=False), self._device)
        rows = torch.arange(len(features))
        return torch.cat([function(x) for x in features.batches(rows, PREDICT_BATCH)])

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes); rows sum to 1."""
        check_is_fitted(self, "module_")
        logits = self._apply(self.module_, X)
        return cast(FloatArray, logits.double().softmax(dim=1).cpu().numpy())

    def predict(self, X: Any) -> AnyArray:
        """True class, shape (n_samples,), in the original class values.

        The most probable one, unless the parameter ``decision``, where the class has it, says
        otherwise.
        """
        codes = self._decide(self.predict_proba(X))
        named: AnyArray = self.classes_[codes]
        return named

    @property
    def _rule(self) -> Any:
        """Rule by which `predict` decides; the plain one where the class leaves no choice."""
        return getattr(self, "decision", "posterior")

    def _decide(self, proba: FloatArray) -> IntArray:
        """Class codes `predict` makes of probabilities (n, n_classes)."""
        return decided(proba, self._rule, getattr(self, "class_prior_", None))

    @torch.inference_mode()
    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Probability of every class as the annotation by every annotator.

        Parameters
        ----------
        X : as in `fit`
        annotators : ids, mask or slice, optional
            Default: all. Integers are positions if the ids are strings. One who was not there in
            `fit` is expected to annotate as the crowd on the whole does: the class probabilities
            times ``pooled_confusion_`` (alone, where a method has none), with a warning.

        Returns
        -------
        array of shape (n_samples, n_annotators, n_classes)
            float32; the last axis sums to 1.

        Raises
        ------
        AnnotationError
            If ids are numbers where those of `fit` were strings, or the other way round.
        """
        check_is_fitted(self, "module_")
        X = self._read_features(X, reset=False)
        chosen = self._find_annotators(annotators, "annotators")
        # Of one without annotations as little is known as of a new one.
        known = np.append(self.heard_, False)[chosen]
        features = Features(X, self._device)
        columns = torch.from_numpy(chosen[known]).to(self._device)
        n_classes = len(self.classes_)
        proba = np.empty((len(features), len(chosen), n_classes), dtype=np.float32)
        size = max(1, min(PREDICT_BATCH, GRID_ENTRIES // max(1, len(chosen) * n_classes)))
        start = 0
        for x in features.batches(torch.arange(len(features)), size):
            part = proba[start : start + len(x)]
            part[:, known] = self.module_.annotation_log_proba_grid(x, columns).exp().cpu().numpy()
            if not known.all():
                part[:, ~known] = self._of_new_annotator(self.module_(x))[:, None]
            start += len(x)
        return cast(FloatArray, proba)

    @torch.inference_mode()
    def predict_observed_proba(self, X: Any, y: Any) -> FloatArray:
        """Probability of every class as the annotation, for the pairs that a table holds.

        The entries of `predict_annotation_proba` at the annotations' instances and annotators, at
        a cost that grows with the annotations. Which class they name is not looked at.

        Parameters
        ----------
        X : as in `fit`
        y : as in `fit`
            Annotations of these instances; new annotators are those of
            `predict_annotation_proba`.

        Returns
        -------
        array of shape (n_annotations, n_classes)
            float32, in the order of the table's annotations; rows sum to 1.

        Raises
        ------
        AnnotationError
            If X and y do not belong together, or ids of annotators are numbers where those of
            `fit` were strings, or the other way round.
        """
        check_is_fitted(self)
        table = as_table(y)
        self._check_rows(X, table)
        columns = self._find_annotators(table.annotators, "y's annotators")
        proba = np.empty((table.n_annotations, len(self.classes_)), dtype=np.float32)
        for rows, log_proba in self._observed_log_proba(X, table, columns[table.annotator]):
            proba[rows] = np.exp(log_proba)
        return cast(FloatArray, proba)

    def _observed_log_proba(
        self, X: Any, table: AnnotationTable, annotators: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield blocks of a table's rows, and every class's log probability there.

        ``annotators`` are codes of the fitted vocabulary, one a row of the table (-1: new).
        """
        check_is_fitted(self, "module_")
        features = Features(self._read_features(X, reset=False), self._device)
        heard = np.append(self.heard_, False)[annotators]
        order, start = table.by_instance()
        order = np.arange(table.n_annotations) if order is None else order
        annotated = np.flatnonzero(np.diff(start))
        for first in range(0, len(annotated), PREDICT_BATCH):
            instances = annotated[first : first + PREDICT_BATCH]
            rows = order[start[instances[0]] : start[instances[-1] + 1]]
            x = features.take(torch.from_numpy(instances))
            place = np.searchsorted(instances, table.instance[rows])
            own = heard[rows]
            log_proba = np.empty((len(rows), len(self.classes_)))
            pairs = np.stack([place[own], annotators[rows[own]]]).astype(np.int64)
            log_proba[own] = self.module_.annotation_log_proba(
                x, *torch.from_numpy(pairs).to(self._device)
            ).cpu()
            if not own.all():
                log_proba[~own] = floored_log(self._of_new_annotator(self.module_(x)))[place[~own]]
            yield rows, log_proba

    def _find_annotators(self, annotators: Any, argument: str) -> IntArray:
        """Positions of annotators, -1 (and a warning) for those who were not there in `fit`."""
        which = slice(None) if annotators is None else annotators
        found = resolve(
            which,
            self.annotators_,
            argument=argument,
            vocabulary_name="annotators_",
            allow_unknown=True,
        )
        if (found < 0).any():
            new = np.atleast_1d(annotators)[found < 0].tolist()
            shown = ", ".join(map(repr, new[:3])) + (", ..." if len(new) > 3 else "")
            warn(
                f"{argument}: {shown} ({len(new)}) were not there in fit; they are expected to "
                "annotate as the crowd on the whole does",
                stacklevel=3,
            )
        return found

    def _of_new_annotator(self, logits: Tensor) -> FloatArray:
        """Probability of every class as the annotation by a new annotator, (n, n_classes)."""
        proba = logits.double().softmax(dim=1).cpu().numpy()
        pooled = getattr(self, "pooled_confusion_", None)
        return cast(FloatArray, proba if pooled is None else proba @ pooled)

    @available_if(_has_embedding)  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> FloatArray:
        """Embed instances: the backbone's last hidden layer, shape (n_samples, n_embedding)."""
        check_is_fitted(self, "module_")
        return cast(FloatArray, self._apply(self.module_.classifier.embed, X).cpu().numpy())

    @torch.inference_mode()
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy against gold labels, or how well annotations are explained.

        Parameters
        ----------
        X : as in `fit`
        y : array of shape (n_samples,) with gold labels, for accuracy; or an AnnotationTable or
            (n_samples, n_annotators) array, for the mean log likelihood of the observed
            annotations (not of pseudo-annotations): what ``GridSearchCV`` and ``cross_validate``
            maximise where there is no gold.
        sample_weight : array of shape (n_samples,), optional
            For accuracy.

        Raises
        ------
        AnnotationError
            If a class was not there in `fit`. New annotators are those of
            `predict_annotation_proba`.
        """
        if not isinstance(y, AnnotationTable) and np.ndim(y) < 2:
            gold = as_values(y)
            unknown = missing_mask(gold) | ((gold == MISSING) & (MISSING not in self.classes_))
            if unknown.any():
                raise AnnotationError(
                    f"y has no gold label in row {np.flatnonzero(unknown)[0]} "
                    f"({np.asarray(gold[unknown]).tolist()[0]!r}); leave such rows out"
                )
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise AnnotationError(
                "sample_weight applies to gold labels; give annotations their weights in the table"
            )
        if not isinstance(y, AnnotationTable):
            y = AnnotationTable.from_matrix(as_values(y), classes=self.classes_)
        table = as_table(y)
        self._check_rows(X, table)
        # To foretell what a model made up proves nothing.
        table = table.observed
        check_annotations(table, argument="y")
        columns = self._find_annotators(table.annotators, "y's annotators")
        codes, _ = encode(table.classes, self.classes_, argument="y", vocabulary_name="classes_")
        labels, given = codes[table.label], np.empty(table.n_annotations)
        for rows, log_proba in self._observed_log_proba(X, table, columns[table.annotator]):
            given[rows] = log_proba[np.arange(len(rows)), labels[rows]]
        return float(np.average(given, weights=table.weight))

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into a folder: safetensors and JSON, no pickle.

        Read it back with `manyhands.load`. The previous model there survives a failure.

        Raises
        ------
        WriteError
            If the folder cannot be written.
        """
        from manyhands.fitting.persistence import save

        return save(self, folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])
        return tags


def pool_confusions(
    confusion: FloatArray,
    table: AnnotationTable,
    belief: FloatArray,
    *,
    pseudo_annotations: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Pool confusion matrices, and shrink their rows towards what the crowd does.

    Parameters
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    table : AnnotationTable
    belief : array of shape (n_instances, n_classes)
        Class probabilities of the annotated instances.
    pseudo_annotations : float
        Annotations every row gets besides, given as the crowd gives them.

    Returns
    -------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    pooled : array of shape (n_classes, n_classes)
        Mean of the rows given, each weighted by the annotations expected of that annotator in
        that class.
    """
    columns = (
        np.bincount(table.annotator, table.weight * proba[table.instance], table.n_annotators)
        for proba in belief.T
    )
    mass = np.stack(list(columns), axis=1)
    # Of a class that nobody is expected to have seen: what the crowd does on the whole.
    weight = mass + 1e-9 * mass.sum(axis=1, keepdims=True)
    pooled = np.einsum("rc,rcg->cg", weight / weight.sum(axis=0), confusion)
    if pseudo_annotations:
        known = mass[:, :, None] / pseudo_annotations
        confusion = (known * confusion + pooled) / (known + 1)
    return confusion, pooled


def read_target(y: Any, name: str) -> AnnotationTable:
    """Read the target of an estimator of some name: a table, a matrix, or one label a row."""
    if y is None:
        raise AnnotationError(
            f"{name} requires y to be passed, but the target y is None; give an AnnotationTable, "
            "an (n_samples, n_annotators) array, or one label a row"
        )
    if not isinstance(y, AnnotationTable) and not hasattr(y, "toarray"):
        values = np.asarray(y)
        if values.ndim == 1 and values.dtype.kind == "f" and np.isfinite(values).all():
            check_classification_targets(values)
    table = as_table(y)
    # What weighs nothing is no annotation.
    return table if table.weights is None else table.take(table.weights > 0)


def normalises(module: torch.nn.Module) -> bool:
    """Whether a network normalises over batches, which a batch of one does not allow."""
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def _n_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
