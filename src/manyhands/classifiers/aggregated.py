"""Aggregate the annotations, then train a classifier on the result (DL-MV, DL-DS, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, StrOptions
from torch import Tensor

from manyhands.annotations import AnnotationTable, LabelSetTable
from manyhands.annotations.target import Target
from manyhands.classifiers.aggregated_sets import (
    MIN_TARGET,
    check_sets,
    decided,
    fit_sets,
    score_sets,
)
from manyhands.exceptions import AnnotationError, all_or_nothing
from manyhands.fitting.aggregation import infer_targets, targets_of_network
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Earlier, Fit, Watch
from manyhands.fitting.latent import SoftTargets, balancing_weights, class_shares
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.reading import n_rows
from manyhands.fitting.recipe import Recipe
from manyhands.fitting.scoring import find_annotators
from manyhands.fitting.second_stage import SecondStageClassifier
from manyhands.fitting.traits import Traits
from manyhands.inference import MajorityVote
from manyhands.inference.base import BaseAggregator
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.nn import FixedConfusionModule, ScaledClassifier
from manyhands.training import CrowdBatch
from manyhands.typing import AnyArray, FloatArray, Instances

SAVED_OF_SETS = ("options_", "estimators_", "prevalence_", "class_prior_", "f1_threshold_")
"""Fitted attributes that are saved after a fit to sets of labels."""

ANEW = "whose shared posterior changes with every answer: join the tables, y.with_added(more)"
"""Why such a fit cannot be continued; the end of a sentence in the error message."""


AggregatedFit = Fit[FixedConfusionModule, SoftTargets]


@dataclass(frozen=True, kw_only=True, repr=False)
class AggregatedProtocol(MethodProtocol):
    """Protocol of `AggregatedClassifier`: the labels that the second stage learns.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    targets : {"soft", "hard"}, default="soft"
        Train on the posterior, or on its most probable class, as the papers do.
    """

    _constraints = {**MethodProtocol._constraints, "targets": [StrOptions({"soft", "hard"})]}

    targets: str = "soft"


@dataclass(kw_only=True, eq=False, repr=False)
class AggregatedClassifier(SecondStageClassifier):
    """Infer labels, then train on them: the classical two-stage approach.

    Parameters
    ----------
    aggregator : BaseAggregator, BaseSetAggregator or None, default=None
        Truth inference. None means `MajorityVote` (DL-MV); `DawidSkene()` gives DL-DS. For sets of
        labels: `MultiLabelDawidSkene()`, and None means `MultiLabelMajorityVote`.
    backbone : None, str, dict, nn.Module, callable or scikit-learn classifier
        A scikit-learn classifier is cloned and fitted on the labels (soft targets become one
        weighted row per class); the training parameters then do not apply.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks, \
protocol
        See `manyhands.fitting.BaseCrowdClassifier`.

    Attributes
    ----------
    aggregator_ : BaseAggregator
        The fitted aggregator, over all instances (if ``validation`` is a fraction, fitted on the
        annotations not held out).
    estimator_ : scikit-learn classifier
        The second stage, if ``backbone`` is a scikit-learn classifier (there is then no
        ``module_``).
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        The aggregator's confusion matrices, with one pseudo-annotation in every row, spread over
        the classes in proportion to the crowd's annotations. Without this pseudo-annotation (see
        ``aggregator_.confusion_``), most aggregators give probability 0 to annotations that an
        annotator never gave.
    class_prior_ : array of shape (n_classes,)
        Share of every class in the training targets of the second stage, including the weights of
        ``class_balance``. A class with any mass counts as at least one instance. A class without
        mass is never chosen by ``decision="balanced"``.
    options_ : array of shape (n_options,)
        The options, after a fit to sets of labels; ``classes_`` holds the same. The following
        attributes too exist only after such a fit.
    estimators_ : list of fitted AggregatedClassifier, or None
        One per option, with the classes "no" and "yes"; None if there was nothing to learn, for
        example because nobody ticked the option.
    prevalence_, f1_threshold_ : arrays of shape (n_options,)
        Share of the instances that each option applies to, and the threshold of ``decision="f1"``.

    Notes
    -----
    ``history_`` logs ``cross_entropy``. Instances without annotations are not used in training.

    **Sets of labels.** If y is a `LabelSetTable`, the aggregator infers the posterior of all
    options, and each option has a classifier of its own, trained on its column. ``predict_proba``
    then returns an array of shape (n_samples, n_options), whose rows do not sum to 1, and
    ``predict`` a boolean one. ``decision`` is "auto" (more probable than not), "f1" (the
    threshold with the greatest expected F1 on the training instances), "balanced", or costs
    ``[[0, false tick], [missed label, 0]]``. ``docs/label_sets.md`` has an example.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from manyhands import AggregatedClassifier, DawidSkene, load_demo
    >>> demo = load_demo()
    >>> model = AggregatedClassifier(DawidSkene(), LogisticRegression(max_iter=50, tol=1.0))
    >>> model.fit(demo.X_train, demo.annotations).classes_.shape
    (10,)

    Sets of labels:

    >>> import numpy as np
    >>> from manyhands import LabelSetTable, MultiLabelDawidSkene
    >>> X = np.tile([[0.0], [1.0]], (30, 1))
    >>> ticks = [[x == 0, x == 1] for x in np.repeat(X, 2)]
    >>> answers = LabelSetTable.from_arrays(
    ...     np.repeat(np.arange(60), 2), np.tile([0, 1], 60), ticks, options=["joy", "awe"]
    ... )
    >>> model = AggregatedClassifier(MultiLabelDawidSkene(), LogisticRegression())
    >>> model.fit(X, answers).predict([[0.0], [1.0]])
    array([[ True, False],
           [False,  True]])
    """

    _parameter_constraints = {
        **SecondStageClassifier._parameter_constraints,
        "aggregator": [None, HasMethods(["fit_predict_proba"])],
    }

    aggregator: BaseAggregator | BaseSetAggregator | None = field(default=None, kw_only=False)
    backbone: Any = field(default=None, kw_only=False)
    protocol: AggregatedProtocol | None = None

    _protocol = ProtocolOf(AggregatedProtocol)

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        source = getattr(self.aggregator, "title", type(self.aggregator or MajorityVote()).__name__)
        of_sets = hasattr(self, "options_")
        to_sets = of_sets or isinstance(self.aggregator, BaseSetAggregator)
        is_given = getattr(self, "n_annotators_", 0) == 1
        return replace(
            inherited,
            title=f"{'given labels' if is_given else source}, then a network",
            saved=SAVED_OF_SETS if of_sets else (*inherited.saved, "class_prior_"),
            unsaved=("aggregator_",),
            continue_refusal=f"learns sets of labels, {ANEW}" if to_sets else None,
            balanced_by="class_prior_",
            shrinks_confusions=True,
            balances_annotations=False,
        )

    # -- sets of labels -------------------------------------------------------------------------

    def fit(
        self,
        X: Instances,
        y: Target | LabelSetTable,
        *,
        gold: Any = None,
        watch: Watch | None = None,
        start: BaseCrowdClassifier | None = None,
    ) -> Self:
        """Train on annotations. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : as in `BaseCrowdClassifier.fit`
        y : AnnotationTable, array of shape (n_samples, n_annotators) with -1/NaN missing, or \
(n_samples,); or LabelSetTable, whose instances are matched with X by id
        gold : optional
            With a LabelSetTable: which options are known to apply, as in `BaseSetAggregator.fit`.
        watch, start : as in `BaseCrowdClassifier.fit`
            For single labels.

        Returns
        -------
        self

        Raises
        ------
        AnnotationError
            For the reasons of `BaseCrowdClassifier.fit`; if y is a LabelSetTable and the
            aggregator, the decision or an argument is for single labels; or if y holds single
            labels and one of these is for sets.
        """
        if not isinstance(y, LabelSetTable):
            if gold is not None:
                raise AnnotationError(
                    "gold= of AggregatedClassifier is for sets of labels; CrowdStackingClassifier "
                    "takes known labels of classes, and so do aggregators such as DawidSkene"
                )
            return super().fit(X, y, watch=watch, start=start)
        with all_or_nothing(self):
            check_sets(self, {"watch": watch, "start": start})
            fit_sets(self, X, y, gold)
        return self

    def predict_proba(self, X: Instances) -> FloatArray:
        """Return the probability of every true class, (n_samples, n_classes); rows sum to 1.

        For sets of labels: probability that each option applies, shape (n_samples, n_options).
        """
        if not hasattr(self, "options_"):
            return super().predict_proba(X)
        known = [each for each in self.estimators_ if each is not None]
        of_known = iter([each.predict_proba(X)[:, 1] for each in known])
        n = n_rows(X)
        columns = [
            np.full(n, prevalence) if each is None else next(of_known)
            for each, prevalence in zip(self.estimators_, self.prevalence_.tolist(), strict=True)
        ]
        return np.column_stack(columns)

    def predict(self, X: Instances) -> AnyArray:
        """Return the class of every instance, shape (n_samples,), by the rule ``decision``.

        For sets of labels: whether each option applies, a boolean array (n_samples, n_options).
        """
        if not hasattr(self, "options_"):
            return super().predict(X)
        return decided(self, self.predict_proba(X)).ticks

    def predict_annotation_proba(self, X: Instances, annotators: Any = None) -> FloatArray:
        """Return the probability that each annotator gives each class to each instance.

        The shape is (n_samples, n_annotators, n_classes). For sets of labels: probability that each
        annotator ticks each option, (n_samples, n_annotators, n_options). See
        `BaseCrowdClassifier.predict_annotation_proba`.
        """
        if not hasattr(self, "options_"):
            return super().predict_annotation_proba(X, annotators)
        chosen = find_annotators(self.annotators_, annotators, "annotators")
        shape = (n_rows(X), len(chosen))
        columns = [
            np.full(shape, prevalence, dtype=np.float32)
            if each is None
            else each.predict_annotation_proba(X, annotators)[:, :, 1]
            for each, prevalence in zip(self.estimators_, self.prevalence_.tolist(), strict=True)
        ]
        return np.stack(columns, axis=2)

    def predict_observed_proba(self, X: Instances, y: Target) -> FloatArray:
        """Return the probability of each class for each annotation of a table; single labels only.

        See `BaseCrowdClassifier.predict_observed_proba`.
        """
        self._refuse_sets("predict_observed_proba", "predict_annotation_proba")
        return super().predict_observed_proba(X, y)

    def annotation_log_likelihood(self, X: Instances, y: Target) -> float:
        """Return the mean log likelihood of the annotations in nats, for single labels only.

        See `BaseCrowdClassifier.annotation_log_likelihood`.
        """
        self._refuse_sets("annotation_log_likelihood", "score")
        return super().annotation_log_likelihood(X, y)

    def score(self, X: Instances, y: Target | LabelSetTable, sample_weight: Any = None) -> float:
        """Return the accuracy against gold labels, or agreement with annotations.

        For sets of labels: the micro-F1 of `predict` against known cells (an array of shape
        (n_samples, n_options) with 0, 1, and NaN where unknown), or against the ticks of every
        answer (a LabelSetTable). See `BaseCrowdClassifier.score` for single labels.

        Parameters
        ----------
        X : as in `fit`
        y : array, AnnotationTable or LabelSetTable
        sample_weight : array of shape (n_samples,), optional
            For accuracy of classes only.

        Returns
        -------
        float in [0, 1]

        Raises
        ------
        AnnotationError
            If an option was not present in `fit`, shapes differ, or no cell is known.

        Warns
        -----
        ModelChoiceWarning
            If y has answers about training instances.
        """
        if not hasattr(self, "options_"):
            return super().score(X, y, sample_weight)
        if sample_weight is not None:
            raise AnnotationError(
                "sample_weight= is for single labels, and this classifier was fitted to sets of "
                "labels; leave it out"
            )
        return score_sets(self, X, y)

    def _refuse_sets(self, what: str, instead: str) -> None:
        if hasattr(self, "options_"):
            raise AnnotationError(
                f"{what} is for single labels, and {type(self).__name__} was fitted to sets of "
                f"labels; use {instead}, or the classifiers of single options in estimators_"
            )

    # -- single labels --------------------------------------------------------------------------

    def _fit_rows(
        self, X: Any, table: AnnotationTable, recipe: Recipe, earlier: Earlier | None
    ) -> tuple[dict[str, Any], FloatArray]:
        rng = np.random.default_rng(recipe.seed)
        aggregator, targets = infer_targets(self, table, rng, earlier)
        annotated = np.flatnonzero(table.annotations_per_instance())
        estimator = self._clone_backbone(rng)
        rows = _safe_indexing(X, annotated)
        weights = balancing_weights(recipe.balance, targets[annotated], rng)
        found = self._fit_estimator(estimator, rows, targets[annotated], weights)
        found |= {"aggregator_": aggregator, "confusion_": aggregator.confusion_}
        return found, aggregator.posterior_

    def _fit_estimator(
        self, estimator: BaseEstimator, X: Any, targets: FloatArray, weights: FloatArray | None
    ) -> dict[str, Any]:
        """Fit the second stage; a soft target becomes one weighted row per class."""
        inferred = (
            targets.argmax(axis=1)
            if self._protocol.targets == "hard"
            else np.flatnonzero((targets > MIN_TARGET).any(axis=0))
        )
        if len(np.unique(inferred)) < 2:
            only = self.classes_[inferred[0]].item()
            raise AnnotationError(
                f"y: all inferred labels are {only!r}, and the backbone "
                f"{type(estimator).__name__} needs two classes to learn from; annotate more "
                "instances"
            )
        weighted = targets if weights is None else targets * weights
        weighted = np.where(weighted > MIN_TARGET, weighted, 0.0)
        prior = class_shares(weighted)
        if self._protocol.targets == "hard" and weights is None:
            fitted = estimator.fit(X, self.classes_[targets.argmax(axis=1)])
        else:
            need = "soft targets need; use protocol=AggregatedProtocol(targets='hard')"
            fitted = self._fit_weighted(estimator, X, weighted, need)
        return {"estimator_": fitted, "class_prior_": prior}

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        return FixedConfusionModule(classifier, len(self.classes_), self.n_annotators_)

    def _prepare(self, fit: AggregatedFit) -> SoftTargets:
        return targets_of_network(self, fit)

    def _objective(self, fit: AggregatedFit, batch: CrowdBatch) -> dict[str, Tensor]:
        return fit.state.objective(fit.module, batch)

    def _read_out(self, fit: AggregatedFit) -> dict[str, Any]:
        """Return no attributes: those of the aggregator are set before the training."""
        return {}
