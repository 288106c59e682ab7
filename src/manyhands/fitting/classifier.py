"""`BaseCrowdClassifier`: the shared parameters, the hooks of a method, and the public methods."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import TransformerTags
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.annotations.target import Target
from manyhands.decision.rules import apply_rule, knows_grades
from manyhands.exceptions import all_or_nothing
from manyhands.fitting import prediction, run
from manyhands.fitting.callbacks import make_callbacks, reporting_end
from manyhands.fitting.class_collapse import warn_of_class_collapse
from manyhands.fitting.context import AnyFit, Earlier, Watch
from manyhands.fitting.continuing import FEW_EPOCHS, Seen, fit_from_scratch
from manyhands.fitting.crowd_classifier import CrowdClassifierMixin
from manyhands.fitting.fitted import Fitted, take_over
from manyhands.fitting.method_protocol import MethodProtocol, TakesProtocol
from manyhands.fitting.network import read_start
from manyhands.fitting.parameters import SHARED_CONSTRAINTS, check_decision, check_parameters
from manyhands.fitting.pilots import AUTO, ENOUGH_PREDICTED, n_epochs_of_whole_fit
from manyhands.fitting.reading import as_fitted, check_rows, read_features, table_of
from manyhands.fitting.recipe import CrowdData, Recipe, read_data
from manyhands.fitting.restarts import fewest_lost, recipes_of_starts
from manyhands.fitting.scoring import find_annotators, mean_log_proba, observed_annotations
from manyhands.fitting.traits import Traits
from manyhands.nn import CrowdModule, ScaledClassifier
from manyhands.objectives import crowd_nll
from manyhands.training import BestState, Callback, CrowdBatch, GradientStep, Stage, joined
from manyhands.typing import AnyArray, FloatArray, Instances, IntArray


@dataclass(kw_only=True, eq=False, repr=False)
class BaseCrowdClassifier(  # type: ignore[call-arg]
    ClassNamePrefixFeaturesOutMixin,
    CrowdClassifierMixin,
    TakesProtocol,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # It would undo the available_if of `transform`, which wraps, too.
):
    """Base class of crowd classifiers: ``fit(X, annotations)``, then predict true classes.

    A subclass is a dataclass whose fields are its parameters: ``backbone`` (positional), its own,
    and shared ones with a different default. It implements `_build_module` and `_read_out`. It
    overrides `_objective` if that is not the plain likelihood of the annotations, and `_stages` if
    training has several phases. The hooks receive the `Fit` and keep their state in it.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        The network from features to class logits. None means ``"mlp"``, with 128 units as in the
        papers. See `manyhands.nn.make_backbone`.
    max_epochs : int or "auto", default="auto"
        "auto": chosen by pilot runs, which train on two thirds of the instances and are compared
        with the annotations of the others after every epoch; see `manyhands.fitting.pilots`. With
        ``validation``, it is 600 gradient steps, but at least 20 epochs.
    batch_size : int
        Instances per minibatch.
    lr, weight_decay : float
        Learning rate and L2 penalty of Adam.
    class_balance : None, str or dict, default=None
        For rare classes: "resample", "reweight", "focal", "cb_focal", or a dict with ``name``,
        ``gamma`` (default 2) and ``beta`` (default .9999); see `ClassBalance`. It applies to
        annotations in the loss, or to inferred labels where a method trains on those.
    scaling : {"auto", "standard", "rms", None}, default="auto"
        "standard" standardises every feature (every channel of images). "rms" divides by a single
        root mean square, which suits embeddings, whose features share a scale. None leaves X as it
        is. "auto" is "rms" for vectors that look like a non-negative embedding, counts or term
        weights (`manyhands.nn.standardize.is_embedding`), else "standard". Statistics are those of
        annotated instances. A Dataset, a dict of arrays and token ids are never scaled.
    device : str or Devices, default="auto"
        Several devices or machines: `manyhands.training.Devices`; see ``docs/devices.md``.
    random_state : int, RandomState or None
    verbose : int, default=0
        1 shows a progress bar.
    validation : None, float or (X, y_gold), default=None
        None trains for a fixed number of epochs and keeps the last. A float holds out this
        fraction, and the protocol's field ``monitor`` says how the epoch is chosen. With gold
        labels, the most accurate epoch is kept. The protocol's field ``patience`` ends the training
        early.
    checkpoint : str, Path or None, default=None
        File written after every epoch, from which the same ``fit`` resumes to the same weights.
    decision : {"auto", "posterior", "median", "balanced"} or array of shape \
(n_classes, n_classes), default="auto"
        How `predict` (and so `score`) chooses a class; probabilities and training do not change.
        "posterior" chooses the most probable class, "median" the median of classes that are in
        their order, and a matrix of costs ``[true, decided]`` the class with the least expected
        cost. "balanced" chooses the class with the largest probability divided by ``class_prior_``,
        for classifiers whose probabilities imply that prior; others refuse it. "auto" is "median"
        where the annotations are three or more grades (`AnnotationTable.ordered`), else
        "posterior"; ``labels_``, where a method has them, always follow "auto", whatever
        ``decision`` says. See `manyhands.decide`.
    callbacks : list of Callback or None, default=None
        Objects that are called for every epoch; see `manyhands.training.Callback`. Not saved.
    protocol : MethodProtocol or None, default=None
        Settings in which published experiments differ, such as a new Adam every epoch, or the
        measure that chooses the epoch; some methods have a protocol class with further fields.
        None: the defaults. ``set_params(protocol__monitor="likelihood")`` sets a field.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    ordered_ : bool
        Whether the classes of the annotations were ordered.
    annotators_, n_annotators_ : array of shape (n_annotators,), int
    instances_ : array of shape (n_samples,)
        Ids of the rows of X. Classifiers that infer labels of these rows have ``posterior_`` and
        ``labels_`` in the same order, and save the ids with them.
    module_ : CrowdModule
    n_epochs_ : int, ``max_epochs``, or the number of epochs that "auto" has found
    history_ : History
        One row per epoch: stage, epoch, named loss terms, their sum ``loss``, metrics, seconds.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]; rows sum to 1. An annotator without annotations gets the pooled
        matrix.
    pooled_confusion_ : array of shape (n_classes, n_classes)
        Mean of ``confusion_``, rows weighted by the annotator's expected number of annotations in
        the class. It is what the model expects of a new annotator.
    annotators_seen_ : array of shape (n_annotators,)
        Whether the annotator has annotations.
    training_instances_ : InstanceDigests
        Digests by which `score` recognises training instances. Not saved.
    best_epoch_, best_stage_ : int, str
        With ``validation``: the epoch (from 1) that was kept, and its stage.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = SHARED_CONSTRAINTS

    max_epochs: int | str = "auto"
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 5e-4
    class_balance: Any = None
    scaling: str | None = "auto"
    device: Any = "auto"
    random_state: Any = None
    verbose: int = 0
    validation: Any = None
    checkpoint: str | Path | None = None
    decision: Any = "auto"
    callbacks: Sequence[Callback] | None = None
    protocol: MethodProtocol | None = None

    # -- what a method is made of ---------------------------------------------------------------

    @property
    def _traits(self) -> Traits:
        """Properties of the method."""
        return Traits()

    @abstractmethod
    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> CrowdModule:
        """Build the crowd module from parameters and vocabularies, all that loading knows."""

    def _check_parameters(self) -> None:
        """Raise an error for unusable parameters before any data are read."""
        check_parameters(self)

    def _prepare(self, fit: AnyFit) -> Any:
        """Return the method's own state for this fit, such as aggregated labels."""

    def _objective(self, fit: AnyFit, batch: CrowdBatch) -> dict[str, Tensor]:
        """Return the named loss terms of a batch; training minimises their sum."""
        return crowd_nll(fit.module, batch, focus=fit.recipe.focus)

    def _stages(self, fit: AnyFit) -> list[Stage]:
        """Return the phases of training; a single one by default."""
        step = GradientStep(
            fit.module,
            lambda module, batch: self._objective(fit, batch),
            lambda: fit.recipe.make_optimizer(fit.module),
            reset_every_epoch=fit.recipe.reset_optimizer,
        )
        return [Stage("train", step, fit.batches.epoch, fit.n_epochs)]

    def _callbacks(self, fit: AnyFit) -> tuple[list[Callback], BestState | None]:
        """Return the callbacks in calling order, and the one that keeps the best state."""
        return make_callbacks(self, fit)

    @abstractmethod
    def _read_out(self, fit: AnyFit) -> dict[str, Any]:
        """Return the fitted attributes of the trained network by name, such as ``confusion_``.

        It may set ``fit.belief`` if better class probabilities of the training instances are known
        than those of the network.
        """

    # -- effective parameters -------------------------------------------------------------------

    @property
    def _network(self) -> Any:
        """The specification of the network: ``backbone``, or linear if the class has none."""
        return getattr(self, "backbone", "linear")

    # -- fit ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Instances,
        y: Target,
        *,
        watch: Watch | None = None,
        start: BaseCrowdClassifier | None = None,
    ) -> Self:
        """Train on annotations. Row i of X is instance i of y (``y.instances``), unless X has ids.

        The index of a pandas frame holds ids, and so does the column ``task`` of other frames: they
        are matched with the instances. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or frame of shape (n_samples, n_features), array or tensor of
            shape (n_samples, *input_shape), map-style Dataset or DataLoader, or dict of arrays
        y : AnnotationTable, array of shape (n_samples, n_annotators) with -1/NaN missing, or
            (n_samples,): a crowd of one
        watch : Watch, optional
            Gold labels for metrics in ``history_``. They do not change the training.
        start : fitted classifier of this class, optional
            Start from its weights and scaling. It must have the same network, classes, annotators.

        Returns
        -------
        self

        Raises
        ------
        AnnotationError
            If X and y do not match, y is empty or has one class, or X is not finite; if ``start``
            has no network, or this class ignores the weights it starts from.
        DivergenceError
            If the loss becomes infinite or NaN.

        Warns
        -----
        ClassCollapseWarning
            If an annotated class is predicted for no training instance (class collapse). X is
            predicted in batches until all classes have occurred, so only a collapse costs a pass
            over all instances.
        """
        with all_or_nothing(self):
            self._check_parameters()
            warn_of_class_collapse(self, X, self._fit(X, y, watch or Watch(), start))
        return self

    def _fit(
        self, X: Instances, y: Target, watch: Watch, start: BaseCrowdClassifier | Earlier | None
    ) -> AnnotationTable:
        """Read the data, train the network, and set the fitted attributes.

        Returns
        -------
        AnnotationTable
            The annotations with a positive weight.
        """
        earlier = start if isinstance(start, Earlier) else None
        before = start.model if isinstance(start, Earlier) else start
        with joined(self, self._traits.devices_refusal):
            begin = read_start(self, None if earlier is not None else before)
            recipes = recipes_of_starts(self, Recipe.of(self), before)
            data = read_data(self, X, y, watch, reset=earlier is None)

            def attempt(data: CrowdData, recipe: Recipe) -> Fitted:
                with reporting_end(self):
                    fitted = run.run(self, data, recipe, start=begin, earlier=earlier)
                    take_over(self, fitted.attributes())
                return fitted

            take_over(self, fewest_lost(type(self).__name__, data, recipes, attempt).attributes())
        return data.whole

    def _go_on(self, seen: Seen, earlier: Earlier, watch: Watch | None = None) -> None:
        """Continue training a network on everything seen, from the parameters of an earlier fit.

        If pilot runs chose the number of epochs, a short training is repeated instead, and one on
        few instances may be.
        """
        self._check_parameters()
        n_epochs = n_epochs_of_whole_fit(self.max_epochs, earlier)
        repeats = (
            self._traits.repeats_small_trainings and seen.table.n_instances <= ENOUGH_PREDICTED
        )
        if self.max_epochs == AUTO and (n_epochs <= FEW_EPOCHS or repeats):
            options = {} if watch is None else {"watch": watch}
            fit_from_scratch(self, seen, options, max_epochs=n_epochs)
            return
        table = self._fit(seen.X, seen.table, watch or Watch(), earlier)
        warn_of_class_collapse(self, seen.X, table)

    def _check_shape(self, X: Instances) -> None:
        if hasattr(self, "module_"):
            read_features(self, X, reset=False)
        else:  # A second stage of scikit-learn's checks the rest by itself.
            as_fitted(self, X, reset=False)

    # -- prediction -----------------------------------------------------------------------------

    def predict_proba(self, X: Instances) -> FloatArray:
        """Return the probability of every true class, (n_samples, n_classes); rows sum to 1."""
        check_is_fitted(self, "module_")
        return prediction.apply(self, self.module_, X).double().softmax(dim=1).cpu().numpy()

    def predict(self, X: Instances) -> AnyArray:
        """Return the class of every instance, shape (n_samples,), by the rule ``decision``."""
        proba = self.predict_proba(X)  # Refuses a classifier that is not fitted.
        return cast(AnyArray, self.classes_[self._decide(proba)])

    def _decide(self, proba: FloatArray) -> IntArray:
        """Turn probabilities (n, n_classes) into the class codes that `predict` returns."""
        check_decision(self)
        prior = self._traits.balanced_by
        class_prior = None if prior is None else getattr(self, prior)
        return apply_rule(proba, self.decision, class_prior, grades=knows_grades(self))

    def predict_annotation_proba(self, X: Instances, annotators: Any = None) -> FloatArray:
        """Return the probability that each annotator gives each class to each instance.

        Parameters
        ----------
        X : as in `fit`
        annotators : ids, mask or slice, optional
            Default: all. Integers are positions if the ids are strings. For a new annotator, not
            seen in `fit`, the result is that of the crowd as a whole: the class probabilities times
            ``pooled_confusion_``, or the class probabilities themselves if a method has none. A
            warning says so.

        Returns
        -------
        array of shape (n_samples, n_annotators, n_classes)
            float32; the last axis sums to 1.

        Raises
        ------
        AnnotationError
            If ids are numbers where those in `fit` were strings, or the other way round.
        """
        check_is_fitted(self, "module_")
        chosen = find_annotators(self.annotators_, annotators, "annotators")
        return prediction.annotation_grid(self, X, chosen)

    def predict_observed_proba(self, X: Instances, y: Target) -> FloatArray:
        """Return the probability of each class for each (instance, annotator) pair of a table.

        These are entries of `predict_annotation_proba`, at a cost that grows with the number of
        annotations. The labels themselves are not used.

        Parameters
        ----------
        X : as in `fit`
        y : as in `fit`
            Annotations of these instances; for new annotators see `predict_annotation_proba`.

        Returns
        -------
        array of shape (n_annotations, n_classes)
            float32, in the order of the table's annotations; rows sum to 1.

        Raises
        ------
        AnnotationError
            If X and y do not match, or ids of annotators are numbers where those in `fit` were
            strings, or the other way round.
        """
        check_is_fitted(self)
        table = table_of(X, y)
        check_rows(X, table)
        columns = find_annotators(self.annotators_, table.annotators, "y's annotators")
        blocks = prediction.observed_log_proba(self, X, table, columns[table.annotator])
        return prediction.collect_proba(blocks, (table.n_annotations, len(self.classes_)))

    @available_if(prediction.has_embedding)  # type: ignore[untyped-decorator]
    def transform(self, X: Instances) -> FloatArray:
        """Embed instances: the backbone's last hidden layer, shape (n_samples, n_embedding).

        A frame if ``set_output`` asks for one.
        """
        check_is_fitted(self, "module_")
        embedded = prediction.apply(self, self.module_.classifier.embed, X).cpu().numpy()
        return cast(FloatArray, _wrap_data_with_container("transform", embedded, X, self))

    @property
    def _n_features_out(self) -> int:
        """Dimension of the embedding, by that of an instance of zeros."""
        blank = torch.zeros((1, *self.input_shape_), device=prediction.device_of(self))
        with torch.inference_mode():
            return int(self.module_.eval().classifier.embed(blank).shape[1])

    def annotation_log_likelihood(self, X: Instances, y: Target) -> float:
        """Return the mean log likelihood of the observed annotations, in nats.

        Pseudo-annotations are left out. It measures calibration and the model of the annotators; to
        choose among models, see `score`.
        Parameters and errors are those of `predict_observed_proba`.
        """
        table = observed_annotations(X, y, self.classes_)
        columns = find_annotators(self.annotators_, table.annotators, "y's annotators")
        blocks = prediction.observed_log_proba(self, X, table, columns[table.annotator])
        return mean_log_proba(blocks, table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])
        return tags
