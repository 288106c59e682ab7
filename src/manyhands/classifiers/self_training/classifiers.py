"""Self-training classifiers: their base class, the general one, and DASC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable
from manyhands.annotations.digests import InstanceDigests
from manyhands.classifiers.crowd_layer import CrowdLayerClassifier
from manyhands.classifiers.self_training.guard import Guard
from manyhands.classifiers.self_training.rounds import (
    SelfTraining,
    TrainedRound,
    one_more_round,
    run_rounds,
)
from manyhands.exceptions import AnnotationError, all_or_nothing
from manyhands.fitting.class_collapse import warn_of_class_collapse
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.continuing import Seen, refusal_of
from manyhands.fitting.crowd_classifier import CrowdClassifierMixin
from manyhands.fitting.fitted import SET_WITH_FEATURES, Fitted, become
from manyhands.fitting.parameters import refuse_classes
from manyhands.fitting.reading import read_target
from manyhands.fitting.traits import Traits
from manyhands.sampling.selectors import DistributionAwareSelector, Selector
from manyhands.training import History, joined
from manyhands.typing import AnyArray, FloatArray


def _kept_estimator_has(method: str) -> Any:
    """Return a decorator that makes a method available if the kept estimator has it."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", None), method))


@dataclass(kw_only=True, eq=False, repr=False)
class BaseSelfTraining(MetaEstimatorMixin, CrowdClassifierMixin, BaseEstimator):
    """Base of classifiers that train another classifier in rounds.

    A subclass gives the object that selects annotations in ``selector``. After the fit, the
    classifier of the kept round predicts. Parameters and attributes are described in
    `SelfTrainingCrowdClassifier`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [None, HasMethods(["fit", "predict_annotation_proba"])],
        "annotator": [None, HasMethods(["fit", "predict_annotation_proba"])],
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "n_select": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"all"}),
        ],
        "warm_start": ["boolean"],
        "guard": ["boolean", Interval(Real, 0, 1, closed="neither")],
        "guard_folds": [Interval(Integral, 2, None, closed="left")],
        "validation": [None, Interval(Real, 0, 1, closed="neither"), tuple, list],
        "patience": [None, Interval(Integral, 1, None, closed="left")],
        "checkpoint": [None, str, Path],
        "decision": [None, str, "array-like"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }
    _crowd_check_exemptions: ClassVar[Mapping[str, str]] = {
        "check_history": "a row is a round, not an epoch",
        "check_save_and_load": "what is saved, and loaded, is the classifier of the kept round",
        "check_every_parameter_moves": "that is for its estimator to show",
        "check_reweighting_balanced_annotations_changes_nothing": "added annotations change the "
        "balance",
    }

    estimator: Any = field(default=None, kw_only=False)
    annotator: Any = None
    n_rounds: int = 5
    n_select: int | float | str = 1.0
    warm_start: bool = False
    guard: bool | float = True
    guard_folds: int = 2
    validation: Any = None
    patience: int | None = None
    checkpoint: str | Path | None = None
    decision: Any = None
    verbose: int = 0
    random_state: Any = None

    @property
    def _traits(self) -> Traits:
        estimator = vars(self).get("estimator_") or self.estimator
        return Traits(
            trains_network=False,
            saved_instead="estimator_",
            continue_refusal=refusal_of("trains", [] if estimator is None else [estimator]),
        )

    def clone_estimator(self) -> Any:
        """Return an unfitted copy of ``estimator``."""
        copy = CrowdLayerClassifier() if self.estimator is None else clone(self.estimator)
        return copy if self.decision is None else copy.set_params(decision=self.decision)

    def fit(self, X: Any, y: Any, *, watch: Watch | None = None) -> Self:
        """Train and select, round by round. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix, tensor or map-style Dataset
        y : AnnotationTable, or array of shape (n_samples, n_annotators) with -1/NaN missing
        watch : Watch, optional
            Gold labels by which ``history_`` measures the rounds. They are passed to estimators
            whose ``fit`` takes them.

        Returns
        -------
        self

        Raises
        ------
        AnnotationError
            For the reasons of the estimator's ``fit``; if there is ``patience`` without
            ``validation``; if ``warm_start`` is set and the estimator has no weights to continue
            from; if there is an ``annotator`` and no round for the estimator.
        """
        with all_or_nothing(self), joined(self):
            refuse_classes(self)
            self._validate_params()
            check_parameters(self)
            table = read_target(X, y, type(self).__name__)
            watch = (watch or Watch()).over(X, table.n_instances)
            training = SelfTraining.of(self, X, table, watch)
            guard = Guard.of(self, training)
            kept = run_rounds(self, training, guard.allows)
            guard.warn(type(self).__name__)
            training.unpredicted.warn(type(self).__name__)
            become(
                self, kept_round(kept, training.history, guard.history, self.validation, y, table)
            )
            if hasattr(self.estimator_, "predict"):
                warn_of_class_collapse(self.estimator_, X, table)
        return self

    def _go_on(self, seen: Seen, earlier: Earlier, watch: Watch | None = None) -> None:
        """Continue the training of the kept round's estimator, then train one more round."""
        refuse_classes(self)
        self._validate_params()
        check_parameters(self)
        training, kept = one_more_round(self, seen, earlier, watch or Watch())
        training.unpredicted.warn(type(self).__name__)
        more = (training.history, History(), self.validation, seen.table, seen.table)
        become(self, kept_round(kept, *more))
        warn_of_class_collapse(self.estimator_, seen.X, seen.table)

    def _check_shape(self, X: Any) -> None:
        self.estimator_._check_shape(X)

    # -- predictions of the estimator of the kept round -----------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every true class, shape (n_samples, n_classes)."""
        check_is_fitted(self, "estimator_")
        return cast(FloatArray, self.estimator_.predict_proba(X))

    def predict(self, X: Any) -> AnyArray:
        """Return the class of every instance, (n_samples,), by the estimator's ``decision``."""
        check_is_fitted(self, "estimator_")
        return cast(AnyArray, self.estimator_.predict(X))

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Return the probability that each annotator gives each class to each instance.

        The shape is (n_samples, n_annotators, n_classes).
        """
        check_is_fitted(self, "estimator_")
        return cast(FloatArray, self.estimator_.predict_annotation_proba(X, annotators))

    @_kept_estimator_has("predict_observed_proba")  # type: ignore[untyped-decorator]
    def predict_observed_proba(self, X: Any, y: Any) -> FloatArray:
        """Return the probability of each class for each annotation of a table, (n, n_classes).

        Available if the estimator has the method.
        """
        return cast(FloatArray, self.estimator_.predict_observed_proba(X, y))

    @_kept_estimator_has("annotation_log_likelihood")  # type: ignore[untyped-decorator]
    def annotation_log_likelihood(self, X: Any, y: Any) -> float:
        """Return the mean log likelihood, in nats, of the observed annotations.

        Available if the estimator has the method.
        """
        return float(self.estimator_.annotation_log_likelihood(X, y))

    @_kept_estimator_has("transform")  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> FloatArray:
        """Embed instances. Available if the estimator has the method."""
        return cast(FloatArray, self.estimator_.transform(X))

    def __getattr__(self, name: str) -> Any:
        """Look up fitted attributes (``confusion_``, ``module_``, ...) in the kept estimator."""
        if name.endswith("_") and not name.startswith("_") and "estimator_" in vars(self):
            return getattr(self.estimator_, name)
        why = f": it {self._traits.continue_refusal}" if name == "partial_fit" else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{why}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.clone_estimator()).input_tags.sparse
        return tags


def kept_round(
    kept: TrainedRound,
    history: History,
    guard_history: History,
    validation: Any,
    y: Any,
    table: AnnotationTable,
) -> Fitted:
    """Return the fitted attributes of a self-training.

    Parameters
    ----------
    kept : TrainedRound
    history, guard_history : History
    validation : as the parameter
        If given, ``best_round_`` is set.
    y, table
        The target of the fit, and the annotations that were read from it.

    Returns
    -------
    Fitted
    """
    estimator = kept.estimator
    found = {
        **{
            name: getattr(estimator, name) for name in SET_WITH_FEATURES if hasattr(estimator, name)
        },
        "estimator_": estimator,
        "augmented_annotations_": kept.table,
        "rounds_": kept.rounds,
        "guard_history_": guard_history,
        "classes_": np.array(kept.table.classes),
        "annotators_": np.array(kept.table.annotators),
        "n_annotators_": kept.table.n_annotators,
        "training_instances_": InstanceDigests.of(y, table),
    }
    if validation is not None:
        found["best_round_"] = kept.number
    return Fitted(None, history, found)


# -- parameters that contradict one another -------------------------------------------------------


def check_parameters(model: Any) -> None:
    """Raise an error for contradictory parameters of a self-training classifier.

    Raises
    ------
    AnnotationError
        The message names the parameter.
    """
    if isinstance(model.n_select, bool):
        raise AnnotationError(
            f"n_select={model.n_select} is neither a number of annotations nor a multiple of "
            "those observed; give 1000 or 1.0, for instance"
        )
    _check_validation(model)
    _check_checkpoints(model)
    _check_decision(model)
    if model.annotator is not None:
        _check_annotator(model)


def _check_validation(model: Any) -> None:
    if model.patience is not None and model.validation is None:
        raise AnnotationError(
            f"patience={model.patience} stops rounds that no longer improve on held-out data, and "
            "validation holds nothing out; give validation= a fraction of the annotations or (X, "
            "y_gold)"
        )
    if isinstance(model.validation, tuple | list) and len(model.validation) != 2:
        raise AnnotationError(
            f"validation has {len(model.validation)} parts; give (X, y_gold), a fraction of "
            "the annotations, or None"
        )
    estimator = type(model.estimator)
    if isinstance(model.validation, Real) and not (
        model.estimator is None or hasattr(estimator, "annotation_log_likelihood")
    ):
        raise AnnotationError(
            f"validation={model.validation} holds out annotations, and {estimator.__name__} has no "
            "annotation_log_likelihood(X, y) to measure them by; give (X, y_gold) or None"
        )


def _check_checkpoints(model: Any) -> None:
    if model.checkpoint is not None and not isinstance(model.random_state, Integral):
        raise AnnotationError(
            f"checkpoint needs an integer random_state, got {model.random_state!r}: a resumed "
            "run must draw what the first one drew"
        )
    for name in ("estimator", "annotator"):
        path = getattr(getattr(model, name), "checkpoint", None)
        if path is not None:
            raise AnnotationError(
                f"{name} has checkpoint={str(path)!r}, a single file, which the trainings of all "
                f"rounds would overwrite; give checkpoint= to {type(model).__name__} instead"
            )


def _check_decision(model: Any) -> None:
    given = model.estimator
    if model.decision is None or given is None or "decision" in given.get_params(deep=False):
        return
    raise AnnotationError(
        f"decision={model.decision!r} is passed to the estimator, and {type(given).__name__} has "
        "no such parameter; decide after predicting: decide(model.predict_proba(X), rule)"
    )


def _check_annotator(model: Any) -> None:
    if not model.n_rounds:
        raise AnnotationError(
            "n_rounds=0 ends after the annotator's round, before the estimator is trained; "
            "give n_rounds=1, or no annotator"
        )
    if model.warm_start:
        raise AnnotationError(
            "warm_start=True continues from the weights of the previous round, but those of the "
            "annotator belong to another model; use warm_start=False"
        )


# -- the classifiers ------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class SelfTrainingCrowdClassifier(BaseSelfTraining):
    """Train a crowd classifier in rounds, each on more of its own predicted annotations [1]_.

    In every round a copy of ``estimator`` is trained on the observed annotations and all
    pseudo-annotations so far. It then predicts every missing annotation, and a selector adds some
    of them permanently.

    Parameters
    ----------
    estimator : crowd classifier or None, default=None
        Any classifier with ``predict_annotation_proba``; it is cloned, never fitted in place.
        None is `CrowdLayerClassifier`. Your own classifier needs ``fit(X, table)``, which returns
        it, ``predict_annotation_proba(X)``, scikit-learn's ``get_params``, and every method that
        you call on the fitted wrapper (``predict``, ``score``).
    selector : Selector or None, default=None
        Chooses the predicted annotations to add: `DistributionAwareSelector` (None),
        `ConfidenceSelector`, `RandomSelector` or `SamplingSelector`.
    annotator : crowd classifier, completer or None, default=None
        Another model that makes the first pseudo-annotations: a crowd classifier, or a completer
        such as `GraphCompleter`, with ``fit(X, table)`` and ``predict_annotation_proba(X)`` (or
        ``complete(rows)``, which is preferred; rows are positions in X). It is trained in round 0,
        cloned and seeded like the estimator. ``estimator`` is trained from round 1 on, and only its
        rounds can be kept.
    n_rounds : int, default=5
        Number of times that annotations are added and a new estimator is trained; 0 trains the
        estimator once. There are fewer rounds if no annotation is missing any more.
    n_select : int, float or "all", default=1.0
        Annotations to add per round, at most. A float is a multiple of the number observed
        (including those held out); "all" adds every missing annotation.
    warm_start : bool, default=False
        Continue from the weights of the previous round, with a new optimiser and for the same
        number of epochs, rather than from scratch. The estimator must be a network of this library
        whose training starts from weights (see ``start`` in `BaseCrowdClassifier.fit`).
    guard : bool or float, default=True
        End before the rounds that make the classifier worse, and warn of it. The instances are
        assigned to two folds before any training, and a self-training on one fold predicts the
        other. Agreement is the mean share of an instance's annotations that equal its predicted
        class. The guard stops if agreement in the last round is lower than in round 0, with a
        paired z below -1, and by more than a share (.08 for True, or the given float) of its excess
        over chance in round 0. Chance is the agreement of always predicting the most frequent
        class. The last round that is trained is then the one before the first with such a z, or
        with such a fall. Otherwise the result is that of ``guard=False``, which trains all rounds.
        See Notes.
    guard_folds : int, default=2
        Number of folds; each is predicted by a self-training on the others.
    validation : None, float or (X, y_gold), default=None
        None trains all rounds and keeps the last. With a float, this fraction of the observed
        annotations is held out, and never replaced by pseudo-annotations; the round under which
        they have the highest likelihood is kept. With gold labels, the round with the highest
        accuracy is kept.
    patience : int or None, default=None
        With ``validation``: stop after this many rounds without improvement.
    checkpoint : str, Path or None, default=None
        Path from which the checkpoint files of the rounds are named (``<stem>-round<k>``). A later
        ``fit`` on the same data with the same parameters continues from them.
    decision : rule or None, default=None
        ``decision`` of the estimator, the rule by which it chooses a class; see
        `manyhands.fitting.BaseCrowdClassifier`. None leaves the estimator's own.
    verbose : int, default=0
        1 shows a progress bar per round.
    random_state : int, RandomState or None, default=None
        Seeds the selector, the choice of held-out annotations and, if it has no seed of its own,
        the estimator.

    Attributes
    ----------
    estimator_ : crowd classifier
        The classifier of the round that is kept.
    augmented_annotations_ : AnnotationTable
        Its training annotations: the observed ones unchanged (except those held out), and
        pseudo-annotations marked ``source="pseudo"``.
    rounds_ : integer array of shape (n_annotations,)
        Round in which each annotation of that table was added; 0 for observed annotations.
    best_round_ : int
        With ``validation``: the round that is kept.
    history_ : History
        One row per round: ``round``, ``n_added``, ``added_<class>``; ``imbalance_before`` and
        ``imbalance``, without and with the added annotations (the largest number of annotations
        of a class, divided by the smallest of a class that has any); with ``validation``,
        ``validation_nll`` (mean negative log likelihood of the held-out annotations) or
        ``validation_accuracy``; ``seconds``. With gold labels in ``fit(..., watch=...)``, also
        accuracies (``annotator_...`` in an ``annotator``'s round) and, for the added annotations,
        ``pseudo_accuracy``, ``majority_precision`` and ``minority_recall`` (see
        `pseudo_annotation_quality`). Every estimator has its own ``history_``.
    guard_history_ : History
        One row per round that the guard judged: ``round``; ``agreement``, the mean share of an
        instance's annotations that equal its predicted class; ``change`` from the first row; ``z``,
        the change's paired z over the instances. Empty without a guard.
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)

    Warns
    -----
    UserWarning
        If the guard stops the rounds. If a class gets no pseudo-annotations: it is predicted for
        none of the missing annotations, although at least five are expected from its share of the
        observed ones. If the estimator has no ``predict``, which the guard needs.

    Notes
    -----
    The guard costs ``guard_folds * (n_rounds + 1)`` trainings on a share ``1 - 1/guard_folds`` of
    the instances: by default, as much as the rounds themselves. There is no guard with gold labels
    in ``validation``, which choose better; if there is no other round to keep (``n_rounds=0``, or
    an ``annotator`` and ``n_rounds=1``); and with fewer than 10 annotated instances. With an
    ``annotator``, rounds are compared with round 1. Warnings of the guard's estimators are not
    shown.

    `save` writes only the classifier of the kept round, ``estimator_``, and `manyhands.load`
    returns it.

    References
    ----------
    .. [1] DASC, Machine Learning 2023, Algorithm 1.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier, SelfTrainingCrowdClassifier, load_demo
    >>> demo = load_demo()
    >>> base = CrowdLayerClassifier(max_epochs=10, random_state=0)
    >>> model = SelfTrainingCrowdClassifier(base, n_rounds=1, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).history_.column("round").tolist()
    [0.0, 1.0]
    """

    _parameter_constraints = {
        **BaseSelfTraining._parameter_constraints,
        "selector": [None, HasMethods(["select"])],
    }

    selector: Selector | None = field(default=None, kw_only=False)


@dataclass(kw_only=True, eq=False, repr=False)
class DASCClassifier(BaseSelfTraining):
    """Train by distribution-aware self-training, which adds more annotations of rare classes [1]_.

    Equivalent to `SelfTrainingCrowdClassifier` with a `DistributionAwareSelector`.

    Parameters
    ----------
    estimator, annotator, n_rounds, n_select, warm_start, validation, patience, checkpoint, \
    decision, verbose, random_state
        See `SelfTrainingCrowdClassifier`.
    refill : bool, default=False
        See `manyhands.sampling.DistributionAwareSelector`.

    References
    ----------
    .. [1] DASC, Machine Learning 2023, Eq. 2-4 and Algorithm 1.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier, DASCClassifier, load_demo
    >>> demo = load_demo()
    >>> model = DASCClassifier(CrowdLayerClassifier(max_epochs=10), n_rounds=1, random_state=0)
    >>> model = model.fit(demo.X_train, demo.annotations)
    >>> model.augmented_annotations_.observed.equals(demo.annotations)
    True
    """

    _parameter_constraints = {
        **BaseSelfTraining._parameter_constraints,
        "refill": ["boolean"],
        "cover_classes": ["boolean"],
    }

    refill: bool = False
    cover_classes: bool = False

    @property
    def selector(self) -> Selector:
        """Selector of the annotations to add, with the parameters of this classifier."""
        return DistributionAwareSelector(self.refill, self.cover_classes)
