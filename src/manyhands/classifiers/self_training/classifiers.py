"""The self-training classifiers: with any selector, and DASC's with its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods

from manyhands.classifiers.self_training.base import BaseSelfTraining
from manyhands.sampling.selectors import DistributionAwareSelector, Selector


@dataclass(kw_only=True, eq=False, repr=False)
class SelfTrainingCrowdClassifier(BaseSelfTraining):
    """Train a crowd classifier, let it fill in annotations, and train it anew; repeatedly [1]_.

    In every round a copy of ``estimator`` is trained on the observed annotations and all
    pseudo-annotations so far. It then predicts every missing annotation, and a selector adds
    some of them, for good.

    Parameters
    ----------
    estimator : crowd classifier or None, default=None
        Any classifier with ``predict_annotation_proba``; it is cloned, never fitted in place.
        None is `CrowdLayerClassifier`. A classifier of your own needs ``fit(X, table)``, which
        returns it, ``predict_annotation_proba(X)``, scikit-learn's ``get_params``, and whatever
        else you call on the fitted wrapper (``predict``, ``score``).
    selector : Selector or None, default=None
        Chooses what is added: `DistributionAwareSelector` (None), `ConfidenceSelector`,
        `RandomSelector` or `SamplingSelector`.
    annotator : crowd classifier, completer or None, default=None
        Another model that annotates first: a crowd classifier, or a completer such as
        `GraphCompleter`, with ``fit(X, table)`` and ``predict_annotation_proba(X)`` (or
        ``complete(rows)``, which is preferred; rows are positions in X). It is trained in round
        0, cloned and seeded like the estimator. ``estimator`` is trained from round 1 on, and
        only its rounds can be kept.
    n_rounds : int, default=5
        Number of times that annotations are added and the estimator is trained anew; 0 trains the
        estimator alone. There are fewer rounds if no annotation is missing any more.
    n_select : int, float or "all", default=1.0
        Annotations to add per round, at most. A float is a multiple of the number observed
        (including those held out); "all" adds every missing annotation.
    warm_start : bool, default=False
        Continue from the weights of the previous round, with a new optimiser and for as many
        epochs again, rather than from scratch. The estimator must be a network of this library
        whose training starts from weights (see ``start`` in `BaseCrowdClassifier.fit`).
    guard : bool or float, default=True
        If the rounds spoil the classifier, end before they begin to, and warn. The instances,
        features and annotations, are dealt to two folds before anything is trained, and each fold
        is judged by a self-training on the other. Agreement is the mean share of an instance's
        annotations that name its predicted class. There is an alarm if in the last round it is
        lower than in round 0, with a paired z below -1, by more than a share of what it exceeded
        chance by there: .08 (True), or a float; chance is to name the most frequent class always.
        The last round to be trained is then the one before the first with such a z, or so large a
        fall. Without an alarm, the result is that of ``guard=False``, which trains all rounds.
        See Notes.
    guard_folds : int, default=2
        Number of folds, each of which is judged by a self-training on the others.
    validation : None, float or (X, y_gold), default=None
        None trains all rounds and keeps the last. A fraction of the observed annotations is held
        out, and never replaced by pseudo-annotations; the round that explains them best is kept.
        With gold labels, the round most accurate on them is kept.
    patience : int or None, default=None
        With ``validation``: stop after this many rounds without improvement.
    checkpoint : str, Path or None, default=None
        File beside which the estimator of every round keeps its own (``<stem>-round<k>``), from
        which a later ``fit`` on the same data with the same parameters continues.
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
        What it was trained on: observed annotations as they were (except those held out), and
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
        ``validation_accuracy``; ``seconds``. Where gold labels are watched
        (``fit(..., watch=...)``), accuracies (those of an ``annotator``'s round are
        ``annotator_...``) and, for the added annotations, ``pseudo_accuracy``,
        ``majority_precision`` and ``minority_recall`` (see `pseudo_annotation_quality`). Every
        estimator has a ``history_`` of its own.
    guard_history_ : History
        One row per round that the guard judged: ``round``; ``agreement``, the mean share of an
        instance's annotations that name its predicted class; ``change``, from the first row; ``z``,
        the change's paired z over the instances. Empty where there was no guard.
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)

    Warns
    -----
    UserWarning
        If the guard stops the rounds. If a class gets no pseudo-annotations: none of the missing
        annotations is predicted to name it, although the crowd's own shares would give it at least
        five. If the estimator has no ``predict``, which the guard needs.

    Notes
    -----
    The guard costs ``guard_folds * (n_rounds + 1)`` trainings on a share ``1 - 1/guard_folds`` of
    the instances: by default, as much as the rounds themselves. There is no guard with gold labels
    in ``validation``, which choose better; where there is no other round to keep (``n_rounds=0``,
    or an ``annotator`` and ``n_rounds=1``); and with fewer than 10 annotated instances. With an
    ``annotator``, rounds are compared with round 1. Warnings of the estimators that judge the folds
    are not shown.

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

    def _make_selector(self) -> Selector:
        return DistributionAwareSelector() if self.selector is None else clone(self.selector)


@dataclass(kw_only=True, eq=False, repr=False)
class DASCClassifier(BaseSelfTraining):
    """Distribution-aware self-training: the most confident annotations, more of rare classes [1]_.

    Equivalent to `SelfTrainingCrowdClassifier` with a `DistributionAwareSelector`.

    Parameters
    ----------
    estimator, annotator, n_rounds, n_select, warm_start, validation, patience, checkpoint, \
    verbose, random_state
        See `SelfTrainingCrowdClassifier`.
    refill : bool, default=False
        See `DistributionAwareSelector`.

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

    def _make_selector(self) -> Selector:
        return DistributionAwareSelector(self.refill, self.cover_classes)
