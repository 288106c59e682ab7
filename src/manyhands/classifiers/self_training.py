"""Self-training: a crowd model annotates what the crowd did not, and learns from that too.

.. [1] DASC: distribution-aware self-training for crowdsourcing. Machine Learning, 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from time import perf_counter
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable, as_table
from manyhands.classifiers.crowd_layer import CrowdLayerClassifier
from manyhands.classifiers.monitors import watched
from manyhands.classifiers.selectors import DistributionAwareSelector, Selector
from manyhands.exceptions import AnnotationError
from manyhands.metrics import accuracy, macro_f1
from manyhands.training import History
from manyhands.typing import AnyArray, FloatArray, IntArray

CELLS_AT_ONCE = 1 << 22
"""Numbers of a block of predicted annotations: 16 MiB."""


class SelfTrainingCrowdClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Train a crowd classifier, let it fill in annotations, and train it anew; repeatedly [1]_.

    In every round a copy of ``estimator`` is trained from scratch on the observed annotations and
    all pseudo-annotations so far; it predicts every annotation that is missing, and a selector
    adds some of them, for good.

    Parameters
    ----------
    estimator : crowd classifier or None, default=None
        Any classifier with ``predict_annotation_proba``; cloned, never fitted in place. None is
        `CrowdLayerClassifier`.
    selector : Selector or None, default=None
        What is added: `DistributionAwareSelector` (None), `ConfidenceSelector`,
        `RandomSelector`.
    n_rounds : int, default=5
        Times that annotations are added and the estimator is trained anew; 0 is the estimator.
    n_select : int or float, default=1.0
        Annotations a round, at most; a float is a multiple of those observed.
    random_state : int, RandomState or None, default=None
        Of the selector, and of the estimator from round 1 on where it has none of its own.

    Attributes
    ----------
    estimator_ : crowd classifier
        Of the last round.
    augmented_annotations_ : AnnotationTable
        What it was trained on: observed annotations as they were, pseudo-annotations marked
        ``source="pseudo"``.
    rounds_ : integer array of shape (n_annotations,)
        Round after which every annotation of that table was added; 0 for the observed.
    history_ : History
        A row a round: ``round``, ``n_added``, ``added_<class>``, ``imbalance`` (largest
        over smallest number of annotations of a class that has some) of what it was trained on,
        ``seconds``; ``history_`` of the estimators is theirs.
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)

    References
    ----------
    .. [1] DASC, Machine Learning 2023, Algorithm 1.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier, SelfTrainingCrowdClassifier, load_demo
    >>> demo = load_demo()
    >>> base = CrowdLayerClassifier(max_epochs=2, random_state=0)
    >>> model = SelfTrainingCrowdClassifier(base, n_rounds=1, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).history_.column("round").tolist()
    [0.0, 1.0]
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [None, HasMethods(["fit", "predict_annotation_proba"])],
        "selector": [None, HasMethods(["select"])],
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "n_select": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, None, closed="neither"),
        ],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any = None,
        selector: Selector | None = None,
        *,
        n_rounds: int = 5,
        n_select: int | float = 1.0,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.selector = selector
        self.n_rounds = n_rounds
        self.n_select = n_select
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train, select, and train anew.

        Parameters
        ----------
        X : array-like, sparse matrix, tensor or map-style Dataset
        y : AnnotationTable, or array of shape (n_samples, n_annotators) with -1/NaN missing

        Raises
        ------
        AnnotationError
            As the estimator's ``fit``.
        """
        self._validate_params()
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        table = as_table(y)
        n_observed = table.n_annotations
        n_select = self._n_select(n_observed)
        selector = DistributionAwareSelector() if self.selector is None else clone(self.selector)
        added: IntArray = np.zeros(table.n_classes, dtype=np.int64)
        rounds = [np.zeros(n_observed, dtype=np.int64)]
        self.history_ = History()
        for number in range(self.n_rounds + 1):
            if number:
                chosen = selector.select(self._predictions(X, table), table, n_select, rng)
                table, added = table.with_added(chosen.table), chosen.n_selected
                rounds.append(np.full(chosen.table.n_annotations, number))
            started = perf_counter()
            self.estimator_ = self._make_estimator(rng, first=not number).fit(X, table)
            row = _row(number, added, table, perf_counter() - started)
            self.history_.append(row | self._watched())
        self.augmented_annotations_ = table
        self.rounds_: IntArray = np.concatenate(rounds)
        self.classes_ = self.estimator_.classes_
        self.annotators_ = self.estimator_.annotators_
        self.n_annotators_ = self.estimator_.n_annotators_
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        return self

    def _n_select(self, n_observed: int) -> int:
        if isinstance(self.n_select, Integral):
            return int(self.n_select)
        return max(1, round(float(self.n_select) * n_observed))

    def _make_estimator(self, rng: np.random.Generator, *, first: bool) -> Any:
        given = CrowdLayerClassifier() if self.estimator is None else self.estimator
        estimator = clone(given)
        seed = int(rng.integers(np.iinfo(np.int32).max))
        if estimator.get_params().get("random_state", 0) is None and not (
            first and self.random_state is None
        ):
            estimator.set_params(random_state=seed)
        return estimator

    def _watched(self) -> dict[str, float]:
        """Accuracy and macro-F1 after the round on what is watched (see `watching`)."""
        found = {}
        for name, (X, gold) in watched().items():
            predicted = self.estimator_.predict(X)
            found[f"{name}_accuracy"] = accuracy(gold, predicted)
            found[f"{name}_macro_f1"] = macro_f1(gold, predicted)
        return found

    def _predictions(self, X: Any, table: AnnotationTable) -> Iterator[tuple[IntArray, FloatArray]]:
        size = max(1, CELLS_AT_ONCE // (table.n_annotators * table.n_classes))
        for start in range(0, table.n_instances, size):
            rows = np.arange(start, min(start + size, table.n_instances))
            yield rows, self.estimator_.predict_annotation_proba(_rows_of(X, rows))

    # -- what the last round's estimator does ---------------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes)."""
        check_is_fitted(self, "estimator_")
        return cast(FloatArray, self.estimator_.predict_proba(X))

    def predict(self, X: Any) -> AnyArray:
        """Most probable true class, shape (n_samples,), in the original class values."""
        check_is_fitted(self, "estimator_")
        return cast(AnyArray, self.estimator_.predict(X))

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Probability of every class as the annotation, (n_samples, n_annotators, n_classes)."""
        check_is_fitted(self, "estimator_")
        return cast(FloatArray, self.estimator_.predict_annotation_proba(X, annotators))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy against gold labels, or mean log likelihood of annotations."""
        check_is_fitted(self, "estimator_")
        return float(self.estimator_.score(X, y, sample_weight))

    @property
    def confusion_(self) -> FloatArray:
        """Confusion matrices of the last round's estimator, where it has some."""
        return cast(FloatArray, self.estimator_.confusion_)

    @available_if(lambda self: hasattr(getattr(self, "estimator_", None), "transform"))  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> FloatArray:
        """Embed instances, where the estimator does."""
        return cast(FloatArray, self.estimator_.transform(X))


class DASCClassifier(SelfTrainingCrowdClassifier):
    """Distribution-aware self-training: the most confident annotations, more of rare classes [1]_.

    `SelfTrainingCrowdClassifier` with a `DistributionAwareSelector`.

    Parameters
    ----------
    estimator, n_rounds, n_select, random_state
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
    >>> model = DASCClassifier(CrowdLayerClassifier(max_epochs=2), n_rounds=1, random_state=0)
    >>> model = model.fit(demo.X_train, demo.annotations)
    >>> model.augmented_annotations_.observed.equals(demo.annotations)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **{
            name: constraint
            for name, constraint in SelfTrainingCrowdClassifier._parameter_constraints.items()
            if name != "selector"
        },
        "refill": ["boolean"],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        refill: bool = False,
        n_rounds: int = 5,
        n_select: int | float = 1.0,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.refill = refill
        self.n_rounds = n_rounds
        self.n_select = n_select
        self.random_state = random_state

    @property
    def selector(self) -> Selector:  # type: ignore[override]
        """What is added."""
        return DistributionAwareSelector(self.refill)


def _row(number: int, added: IntArray, table: AnnotationTable, seconds: float) -> dict[str, Any]:
    counts = np.bincount(table.label, minlength=table.n_classes)
    seen = counts[counts > 0]
    return {
        "round": number,
        "n_added": int(added.sum()),
        **{f"added_{name}": int(n) for name, n in zip(table.classes, added, strict=True)},
        "imbalance": float(seen.max() / seen.min()),
        "seconds": seconds,
    }


def _rows_of(X: Any, rows: IntArray) -> Any:
    """Rows of an array, a sparse matrix, a tensor or a map-style Dataset."""
    if hasattr(X, "shape") or isinstance(X, list):
        return _safe_indexing(X, rows)
    from torch.utils.data import Subset

    if not hasattr(X, "__getitem__"):
        raise AnnotationError(f"X is a {type(X).__name__}; use an array or a map-style Dataset")
    return Subset(X, rows.tolist())
