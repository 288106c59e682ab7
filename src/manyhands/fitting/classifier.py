"""`BaseCrowdClassifier`: parameters every method shares, its hooks, and what a user calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import TransformerTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyhands.annotations import AnnotationTable, as_table
from manyhands.decision.rules import apply_rule
from manyhands.fitting import prediction
from manyhands.fitting.callbacks import make_callbacks
from manyhands.fitting.context import AnyFit, all_or_nothing
from manyhands.fitting.optimizer import make_adam
from manyhands.fitting.parameters import SHARED_CONSTRAINTS, check_parameters
from manyhands.fitting.reading import check_rows, find_annotators
from manyhands.fitting.saving import save
from manyhands.fitting.specification import specification
from manyhands.fitting.template import annotated_proba, balanced, fit_network
from manyhands.fitting.watching import Watch
from manyhands.nn import CrowdModule, ScaledClassifier
from manyhands.objectives import crowd_nll
from manyhands.sampling.class_balance import ClassBalance, make_balance
from manyhands.training import BestState, Callback, CrowdBatch, GradientStep, Stage
from manyhands.typing import AnyArray, FloatArray, IntArray


@dataclass(kw_only=True, eq=False, repr=False)
class BaseCrowdClassifier(  # type: ignore[call-arg]
    ClassifierMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # set_output would wrap `transform` and undo its available_if
):
    """Base class of crowd classifiers: ``fit(X, annotations)``, then predict true classes.

    A subclass is a dataclass whose fields are its parameters: ``backbone`` (positional), its own,
    and shared ones with another default. It implements `_build_module`, `_set_fitted` and, where
    the plain likelihood of the annotations is not the objective, `_objective`; a method with
    several phases overrides `_stages`. Hooks get the `Fit`, and keep their state in it.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = SHARED_CONSTRAINTS
    _fitted_arrays: ClassVar[Sequence[str]] = ("confusion_", "pooled_confusion_", "heard_")
    """Fitted arrays a saved model carries beside its weights."""
    _shrinks_confusions: ClassVar[bool] = False
    """Whether every row of ``confusion_`` gets one annotation more, as the crowd would give it:
    counts alone would say that what an annotator did not do is impossible."""
    _balances_annotations: ClassVar[bool] = True
    """Whether ``class_balance`` weighs annotations; False: what the method infers from them."""
    _protocol_parameters: ClassVar[Sequence[str] | None] = None
    """Parameters that training protocols may set; None: all the class has."""
    _start_refusal: ClassVar[str | None] = None
    """Why ``fit(start=...)`` would lose the weights it is given; None: they are kept."""
    _validates_last_stage_only: ClassVar[bool] = False
    """Whether ``validation`` chooses among the epochs of the last stage alone."""
    _preparatory_stages: ClassVar[Sequence[str]] = ()
    """Stages that prepare the training: ``patience`` does not end them."""

    max_epochs: int = 50
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 5e-4
    reset_optimizer: bool = False
    class_balance: Any = None
    scaling: str | None = "standard"
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0
    validation: Any = None
    patience: int | None = None
    checkpoint: str | Path | None = None

    # -- what a method is made of ---------------------------------------------------------------

    @abstractmethod
    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> CrowdModule:
        """Build the crowd module around the classifier, from parameters and vocabularies alone.

        Nothing else is known where a saved model is loaded.
        """

    def _check_parameters(self) -> None:
        """Refuse parameters that no fit can be made with, before anything is read."""
        check_parameters(self)

    def _balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable:
        """Annotations as the loss is to see them: balanced, with weights of mean 1."""
        return balanced(table, self._balance, rng) if self._balances_annotations else table

    def _prepare(self, fit: AnyFit) -> Any:
        """Return the method's own state of this fit (such as aggregated labels)."""

    def _objective(self, fit: AnyFit, batch: CrowdBatch) -> dict[str, Tensor]:
        """Named loss terms of a batch; their sum is what is minimised."""
        return crowd_nll(fit.module, batch, focus=self._focus)

    def _stages(self, fit: AnyFit) -> list[Stage]:
        """Phases of training; one, by default."""
        step = GradientStep(
            fit.module,
            lambda module, batch: self._objective(fit, batch),
            lambda: self._make_optimizer(fit.module),
            reset_every_epoch=self.reset_optimizer,
        )
        return [Stage("train", step, fit.batches.epoch, self.max_epochs)]

    def _make_optimizer(self, module: CrowdModule) -> torch.optim.Optimizer:
        """Adam; all but the classifier at ``noise_lr``, undecayed, where that is given."""
        return make_adam(module, self.lr, self.weight_decay, getattr(self, "noise_lr", None))

    def _callbacks(self, fit: AnyFit) -> tuple[list[Callback], BestState | None]:
        """Callbacks in the order they are called, and that of them which keeps the best state."""
        return make_callbacks(self, fit)

    @abstractmethod
    def _set_fitted(self, fit: AnyFit) -> None:
        """Set ``confusion_`` and what else the method has, from the trained module."""

    def _belief(self, fit: AnyFit) -> FloatArray:
        """Class probabilities of the annotated training instances, others 0; (n, n_classes)."""
        return annotated_proba(fit, len(self.classes_))

    def _specification(self, fit: AnyFit) -> dict[str, str]:
        """What a checkpoint must share with a run to be resumed by it."""
        return specification(self, fit)

    # -- parameters as they are used ------------------------------------------------------------

    @property
    def _title(self) -> str:
        """Name on the progress bar."""
        return type(self).__name__.removesuffix("Classifier")

    @property
    def _network(self) -> Any:
        """What the network is made of: the parameter ``backbone``; linear for a class without."""
        return getattr(self, "backbone", "linear")

    @property
    def _balance(self) -> ClassBalance | None:
        return make_balance(self.class_balance)

    @property
    def _focus(self) -> float:
        """Exponent of the focal factor in the loss."""
        return 0.0 if self._balance is None else self._balance.focus

    @property
    def _rule(self) -> Any:
        """Rule by which `predict` decides; the plain one where the class leaves no choice."""
        return getattr(self, "decision", "posterior")

    # -- fit ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        watch: Watch | None = None,
        start: BaseCrowdClassifier | None = None,
    ) -> Self:
        """Train on annotations. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), array or tensor of
            shape (n_samples, *input_shape), or map-style torch Dataset
        y : AnnotationTable, array of shape (n_samples, n_annotators) with -1/NaN missing, or
            array of shape (n_samples,): a crowd of one
        watch : Watch, optional
            Gold labels by which ``history_`` tells how the training goes. It does not change it.
        start : fitted classifier of this class, optional
            Start from its weights (the scaling is one of them) rather than from random ones. It
            must have the same network, classes and annotators. Optimisers begin anew.

        Raises
        ------
        AnnotationError
            If X and y do not belong together, y is empty or has one class, X is not finite; if
            ``start`` has no network, or a training of this class begins with the annotations,
            whatever the weights.
        DivergenceError
            If the loss stops being finite.
        """
        with all_or_nothing(self):
            self._check_parameters()
            self._fit(X, y, watch or Watch(), start)
        return self

    def _fit(self, X: Any, y: Any, watch: Watch, start: Any) -> None:
        """Fit, once the parameters are checked: read the data, and train the network."""
        fit_network(self, X, y, watch, start)

    # -- prediction -----------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes); rows sum to 1."""
        check_is_fitted(self, "module_")
        return prediction.apply(self, self.module_, X).double().softmax(dim=1).cpu().numpy()

    def predict(self, X: Any) -> AnyArray:
        """True class, shape (n_samples,), in the original class values.

        The most probable one, unless the parameter ``decision``, where the class has it, says
        otherwise.
        """
        proba = self.predict_proba(X)  # Refuses a classifier that is not fitted.
        return cast(AnyArray, self.classes_[self._decide(proba)])

    def _decide(self, proba: FloatArray) -> IntArray:
        """Class codes `predict` makes of probabilities (n, n_classes)."""
        return apply_rule(proba, self._rule, getattr(self, "class_prior_", None))

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
        chosen = find_annotators(self.annotators_, annotators, "annotators")
        return prediction.annotation_grid(self, X, chosen)

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
        check_rows(X, table)
        columns = find_annotators(self.annotators_, table.annotators, "y's annotators")
        blocks = self._observed_log_proba(X, table, columns[table.annotator])
        return prediction.collect_proba(blocks, (table.n_annotations, len(self.classes_)))

    def _observed_log_proba(
        self, X: Any, table: AnnotationTable, annotators: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield blocks of a table's rows, and every class's log probability there.

        ``annotators`` are positions in the fitted vocabulary, one per row of the table (-1: new).
        """
        check_is_fitted(self, "module_")
        yield from prediction.observed_log_proba(self, X, table, annotators)

    @available_if(prediction.has_embedding)  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> FloatArray:
        """Embed instances: the backbone's last hidden layer, shape (n_samples, n_embedding)."""
        check_is_fitted(self, "module_")
        return prediction.apply(self, self.module_.classifier.embed, X).cpu().numpy()

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
        if prediction.is_gold(y):
            prediction.check_gold(y, self.classes_)
            return float(super().score(X, y, sample_weight))
        table = prediction.observed_annotations(X, y, self.classes_, sample_weight)
        columns = find_annotators(self.annotators_, table.annotators, "y's annotators")
        blocks = self._observed_log_proba(X, table, columns[table.annotator])
        return prediction.mean_log_proba(blocks, table, self.classes_)

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into a folder: safetensors and JSON, no pickle.

        Read it back with `manyhands.load`. The previous model there survives a failure.

        Raises
        ------
        WriteError
            If the folder cannot be written.
        """
        return save(self, folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])
        return tags
