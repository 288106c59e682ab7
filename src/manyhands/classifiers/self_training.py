"""Self-training: a crowd model annotates what the crowd did not, and learns from that too.

.. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced Annotations
   (DASC). Machine Learning 112, 2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from time import perf_counter
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.classifiers.crowd_layer import CrowdLayerClassifier
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import all_or_nothing
from manyhands.fitting.reading import read_target
from manyhands.fitting.watching import Watch
from manyhands.metrics import accuracy, macro_f1
from manyhands.sampling.selectors import DistributionAwareSelector, Selector
from manyhands.training import History, hold_out
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

CELLS_AT_ONCE = 1 << 22
"""Numbers of a block of predicted annotations: 16 MiB."""


class SelfTrainingCrowdClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Train a crowd classifier, let it fill in annotations, and train it anew; repeatedly [1]_.

    In every round a copy of ``estimator`` is trained on the observed annotations and all
    pseudo-annotations so far; it predicts every annotation that is missing, and a selector adds
    some of them, for good.

    Parameters
    ----------
    estimator : crowd classifier or None, default=None
        Any classifier with ``predict_annotation_proba``; cloned, never fitted in place. None is
        `CrowdLayerClassifier`. One of your own needs ``fit(X, table)``, which returns it,
        ``predict_annotation_proba(X)`` and scikit-learn's ``get_params``; what else is asked of
        the fitted wrapper (``predict``, ``score``) is asked of it.
    selector : Selector or None, default=None
        What is added: `DistributionAwareSelector` (None), `ConfidenceSelector`,
        `RandomSelector`, `SamplingSelector`.
    annotator : crowd classifier, completer or None, default=None
        What annotates first, where that is another model than ``estimator``: a crowd classifier,
        or a completer such as `GraphCompleter`, with ``fit(X, table)`` and
        ``predict_annotation_proba(X)`` (or, where it has that, ``complete(rows)``, of positions in
        X). It is round 0 then, cloned and seeded as the estimator is; ``estimator`` is trained
        from round 1 on, and a round of its is kept.
    n_rounds : int, default=5
        Times that annotations are added and the estimator is trained anew; 0 is the estimator.
        There are fewer where no annotation is missing any more.
    n_select : int, float or "all", default=1.0
        Annotations a round, at most; a float is a multiple of those observed (held-out ones
        included), "all" is every missing one.
    warm_start : bool, default=False
        Go on from the weights of the round before, with a new optimiser and for as many epochs
        again, rather than from scratch. The estimator must be a network of this library whose
        training starts from weights (see ``start`` in `BaseCrowdClassifier.fit`).
    validation : None, float or (X, y_gold), default=None
        None trains all rounds and keeps the last. A fraction of the observed annotations is held
        out, which no pseudo-annotation replaces, and the round that explains them best is kept;
        with gold labels, the round most accurate on them is.
    patience : int or None, default=None
        With ``validation``: stop after so many rounds without improvement.
    checkpoint : str, Path or None, default=None
        File beside which every round's estimator keeps its own (``<stem>-round<k>``), from which
        a later ``fit`` on the same data with the same parameters goes on.
    verbose : int, default=0
        1 shows a progress bar a round.
    random_state : int, RandomState or None, default=None
        Of the selector and the held-out annotations, and of the estimator where it has none of
        its own.

    Attributes
    ----------
    estimator_ : crowd classifier
        Of the round that is kept.
    augmented_annotations_ : AnnotationTable
        What it was trained on: observed annotations as they were (but for those held out),
        pseudo-annotations marked ``source="pseudo"``.
    rounds_ : integer array of shape (n_annotations,)
        Round in which every annotation of that table was added; 0: it was there.
    best_round_ : int
        With ``validation``: the round that is kept.
    history_ : History
        A row a round: ``round``, ``n_added``, ``added_<class>``; ``imbalance_before`` and
        ``imbalance``, without and with what was added (largest over smallest number of
        annotations of a class that has some); with ``validation``, ``validation_nll`` (mean
        negative log likelihood of the held-out annotations) or ``validation_accuracy``;
        ``seconds``. Where gold labels are watched (``fit(..., watch=...)``),
        accuracies (those of an ``annotator``'s round are ``annotator_...``), and of what was
        added ``pseudo_accuracy``, ``majority_precision`` and
        ``minority_recall`` (see `pseudo_annotation_quality`). ``history_`` of the estimators is
        theirs.
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
        "annotator": [None, HasMethods(["fit", "predict_annotation_proba"])],
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "n_select": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"all"}),
        ],
        "warm_start": ["boolean"],
        "validation": [None, Interval(Real, 0, 1, closed="neither"), tuple, list],
        "patience": [None, Interval(Integral, 1, None, closed="left")],
        "checkpoint": [None, str, Path],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }
    _crowd_check_exemptions: Mapping[str, str] = {
        "check_history": "a row is a round, not an epoch",
        "check_save_and_load": "what is saved, and loaded, is the classifier of the kept round",
        "check_every_parameter_moves": "that is for its estimator to show",
        "check_reweighting_balanced_annotations_changes_nothing": "what is added changes balance",
    }

    def __init__(
        self,
        estimator: Any = None,
        selector: Selector | None = None,
        *,
        annotator: Any = None,
        n_rounds: int = 5,
        n_select: int | float | str = 1.0,
        warm_start: bool = False,
        validation: Any = None,
        patience: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.selector = selector
        self.annotator = annotator
        self.n_rounds = n_rounds
        self.n_select = n_select
        self.warm_start = warm_start
        self.validation = validation
        self.patience = patience
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, watch: Watch | None = None) -> Self:
        """Train, select, and train anew. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix, tensor or map-style Dataset
        y : AnnotationTable, or array of shape (n_samples, n_annotators) with -1/NaN missing
        watch : Watch, optional
            Gold labels by which ``history_`` tells how rounds go; handed on to estimators whose
            ``fit`` takes it.

        Raises
        ------
        AnnotationError
            As the estimator's ``fit``; if ``patience`` has nothing to watch, or ``warm_start`` is
            asked of an estimator without weights to go on from; if there is an ``annotator`` and
            no round for the estimator.
        """
        with all_or_nothing(self):
            self._validate_params()
            self._check_run()
            self._fit_rounds(X, read_target(y, type(self).__name__), watch or Watch())
        return self

    def _fit_rounds(self, X: Any, table: AnnotationTable, watch: Watch) -> None:
        """Run all rounds, and keep the last or the best."""
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        self._check_gold(table)
        n_select = self._n_select(table)
        held: AnnotationTable | None = None
        if isinstance(self.validation, Real):
            table, held = hold_out(table, float(self.validation), rng)
        self._forget()
        rounds = np.zeros(table.n_annotations, dtype=np.int64)
        added: IntArray = np.zeros(table.n_classes, dtype=np.int64)
        is_rare = _rarer_half(table)
        history = History()
        kept: _Kept | None = None
        model: Any = None  # of the round before
        estimator: Any = None  # the same, but for an annotator's
        for number in range(self.n_rounds + 1):
            row = {"imbalance_before": _imbalance(table)}
            if number:
                predictions = self._predictions(model, X, table)
                chosen = self._selector().select(predictions, table, n_select, rng, held=held)
                # After another model's round, the estimator has its first one, come what may.
                if not chosen.table.n_annotations and estimator is not None:
                    break
                row |= _quality(chosen.table, is_rare, watch.y_train)
                table, added = table.with_added(chosen.table), chosen.n_selected
                rounds = np.append(rounds, np.full(chosen.table.n_annotations, number))
            model = self._make_estimator(rng, number)
            options = self._fit_options(model, watch, start=estimator)
            started = perf_counter()
            model = model.fit(X, table, **options)
            seconds = perf_counter() - started
            row = _row(number, added, table) | row
            if self._is_annotators(number):
                told = self._of_annotator(model, X, held, watch)
                history.append(row | told | {"seconds": seconds})
                continue
            row |= self._explained(model, X, held)
            history.append(row | _watched(model, X, watch) | {"seconds": seconds})
            estimator = model
            now = _Kept(estimator, table, rounds, number, _worth(row))
            if kept is None or self.validation is None or now.worth > kept.worth:
                kept = now
            elif self.patience is not None and number - kept.round >= self.patience:
                break
        self._keep(cast(_Kept, kept), history)

    def _check_run(self) -> None:
        if isinstance(self.n_select, bool):
            raise AnnotationError(
                f"n_select={self.n_select} is neither a number of annotations nor a multiple of "
                "those observed; give 1000 or 1.0, for instance"
            )
        if self.patience is not None and self.validation is None:
            raise AnnotationError(
                f"patience={self.patience} needs something to watch; give validation= a fraction "
                "of the annotations or (X, y_gold)"
            )
        for name in ("estimator", "selector", "annotator"):
            given = getattr(self, name, None)
            if isinstance(given, type):
                raise AnnotationError(
                    f"{name} is the class {given.__name__}; give an object: {given.__name__}()"
                )
        if self.checkpoint is not None and not isinstance(self.random_state, Integral):
            raise AnnotationError(
                f"checkpoint needs an integer random_state, got {self.random_state!r}: a resumed "
                "run must draw what the first one drew"
            )
        for name in ("estimator", "annotator"):
            inner = getattr(getattr(self, name), "checkpoint", None)
            if inner is not None:
                raise AnnotationError(
                    f"{name} has checkpoint={str(inner)!r}, one file for the trainings of all "
                    f"rounds; give checkpoint= to {type(self).__name__} instead"
                )
        if self.annotator is not None:
            self._check_rounds_of_two_models()
        if isinstance(self.validation, tuple | list) and len(self.validation) != 2:
            raise AnnotationError(
                f"validation has {len(self.validation)} parts; give (X, y_gold), a fraction of "
                "the annotations, or None"
            )

    def _check_rounds_of_two_models(self) -> None:
        if not self.n_rounds:
            raise AnnotationError(
                "n_rounds=0 ends after the annotator's round, before the estimator is trained; "
                "give n_rounds=1, or no annotator"
            )
        if self.warm_start:
            raise AnnotationError(
                "warm_start=True goes on from the weights of the round before, and those of "
                "annotator are another model's; use warm_start=False"
            )

    def _is_annotators(self, number: int) -> bool:
        """Whether a round is that of another model."""
        return self.annotator is not None and not number

    def _check_gold(self, table: AnnotationTable) -> None:
        """Refuse gold labels for validation that no round could be measured by."""
        if not isinstance(self.validation, tuple | list):
            return
        X, y_gold = self.validation
        if isinstance(y_gold, AnnotationTable):
            raise AnnotationError(
                "validation's y_gold is a table of annotations; give gold labels, or a fraction"
            )
        gold = as_values(y_gold)
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        if gold.shape != (n,) or missing_mask(gold).any():
            raise AnnotationError(
                f"validation has {n} rows of X but gold labels of shape {gold.shape}, "
                f"{int(missing_mask(gold).sum())} of them missing; give one label a row"
            )
        encode(
            gold,
            table.classes,
            argument="validation's y_gold",
            vocabulary_name="y's classes",
        )

    def _forget(self) -> None:
        """Forget an earlier fit."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _keep(self, kept: _Kept, history: History) -> None:
        self.estimator_ = kept.estimator
        self.augmented_annotations_ = kept.table
        self.rounds_: IntArray = kept.rounds
        if self.validation is not None:
            self.best_round_ = kept.round
        self.history_ = history
        self.classes_ = np.array(kept.table.classes)
        self.annotators_ = np.array(kept.table.annotators)
        self.n_annotators_ = kept.table.n_annotators
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(kept.estimator, name):
                setattr(self, name, getattr(kept.estimator, name))

    def _n_select(self, table: AnnotationTable) -> int:
        if self.n_select == "all":
            return table.n_instances * table.n_annotators
        if isinstance(self.n_select, Integral):
            return int(self.n_select)
        return max(1, round(float(self.n_select) * table.observed.n_annotations))

    def _selector(self) -> Selector:
        return DistributionAwareSelector() if self.selector is None else clone(self.selector)

    def make_base(self) -> Any:
        """Return an unfitted copy of the estimator."""
        return CrowdLayerClassifier() if self.estimator is None else clone(self.estimator)

    def _make_estimator(self, rng: np.random.Generator, number: int) -> Any:
        estimator = clone(self.annotator) if self._is_annotators(number) else self.make_base()
        own = estimator.get_params(deep=False)
        seed = int(rng.integers(np.iinfo(np.int32).max))
        if own.get("random_state", 0) is None:
            estimator.set_params(random_state=seed)
        if self.verbose and own.get("verbose") == 0:
            estimator.set_params(verbose=self.verbose)
        if self.checkpoint is not None and "checkpoint" in own:
            path = Path(self.checkpoint)
            estimator.set_params(checkpoint=path.with_stem(f"{path.stem}-round{number}"))
        return estimator

    def _fit_options(self, estimator: Any, watch: Watch, *, start: Any) -> dict[str, Any]:
        """What the ``fit`` of a round gets beside the data: gold to watch, and where to start."""
        options: dict[str, Any] = {}
        if has_fit_parameter(estimator, "watch"):
            options["watch"] = watch
        if self.warm_start and start is not None:
            if not has_fit_parameter(estimator, "start"):
                raise AnnotationError(
                    f"warm_start=True needs weights to go on from, which {type(estimator).__name__}"
                    " has not; use warm_start=False"
                )
            options["start"] = start
        return options

    def _explained(self, estimator: Any, X: Any, held: AnnotationTable | None) -> dict[str, float]:
        """How well the round explains what is held out, or predicts gold labels."""
        if held is not None:
            return {"validation_nll": -float(estimator.score(X, held))}
        if self.validation is not None:
            return {"validation_accuracy": float(estimator.score(*self.validation))}
        return {}

    def _of_annotator(
        self, model: Any, X: Any, held: AnnotationTable | None, watch: Watch
    ) -> dict[str, float]:
        """The same of another model, by names of its own: a round is otherwise the estimator's.

        A completer knows no true classes, and there is nothing to note.
        """
        seen = self._explained(model, X, held) if hasattr(model, "score") else {}
        if hasattr(model, "predict"):
            seen |= _watched(model, X, watch)
        return {f"annotator_{name}": value for name, value in seen.items()}

    @staticmethod
    def _predictions(
        estimator: Any, X: Any, table: AnnotationTable
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        size = max(1, CELLS_AT_ONCE // (table.n_annotators * table.n_classes))
        for start in range(0, table.n_instances, size):
            rows = np.arange(start, min(start + size, table.n_instances))
            if hasattr(estimator, "complete"):
                yield rows, estimator.complete(rows)
            else:
                yield rows, estimator.predict_annotation_proba(_rows_of(X, rows))

    # -- what the kept round's estimator does ---------------------------------------------------

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

    @available_if(lambda self: hasattr(getattr(self, "estimator_", None), "predict_observed_proba"))  # type: ignore[untyped-decorator]
    def predict_observed_proba(self, X: Any, y: Any) -> FloatArray:
        """Probability of every class as each annotation of a table, where the estimator tells."""
        return cast(FloatArray, self.estimator_.predict_observed_proba(X, y))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy against gold labels, or mean log likelihood of annotations."""
        check_is_fitted(self, "estimator_")
        return float(self.estimator_.score(X, y, sample_weight))

    def save(self, folder: str | Path) -> Path:
        """Write the classifier of the kept round; `manyhands.load` gives that classifier.

        Raises
        ------
        WriteError
            If the folder cannot be written.
        """
        check_is_fitted(self, "estimator_")
        return cast(Path, self.estimator_.save(folder))

    @available_if(lambda self: hasattr(getattr(self, "estimator_", None), "transform"))  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> FloatArray:
        """Embed instances, where the estimator does."""
        return cast(FloatArray, self.estimator_.transform(X))

    def __getattr__(self, name: str) -> Any:
        """Look up what was fitted (``confusion_``, ``module_``, ...) in the kept estimator."""
        if name.endswith("_") and not name.startswith("_") and "estimator_" in vars(self):
            return getattr(self.estimator_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.make_base()).input_tags.sparse
        return tags


class DASCClassifier(SelfTrainingCrowdClassifier):
    """Distribution-aware self-training: the most confident annotations, more of rare classes [1]_.

    `SelfTrainingCrowdClassifier` with a `DistributionAwareSelector`.

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
        annotator: Any = None,
        n_rounds: int = 5,
        n_select: int | float | str = 1.0,
        warm_start: bool = False,
        validation: Any = None,
        patience: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.refill = refill
        self.annotator = annotator
        self.n_rounds = n_rounds
        self.n_select = n_select
        self.warm_start = warm_start
        self.validation = validation
        self.patience = patience
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    def _selector(self) -> Selector:
        return DistributionAwareSelector(self.refill)


def pseudo_annotation_quality(pseudo: AnnotationTable, gold: Any, is_rare: Any) -> dict[str, float]:
    """Compare pseudo-annotations with true classes: DASC's Fig. 5 [1]_.

    Parameters
    ----------
    pseudo : AnnotationTable
        Pseudo-annotations alone.
    gold : array of shape (n_instances,)
        True classes; instances where it is missing, or no class of the table, do not count.
    is_rare : array of bool, shape (n_classes,)
        Which classes are the minority; the paper's is the half with fewer annotations.

    Returns
    -------
    dict of str to float
        ``pseudo_accuracy``: share that name the true class. ``majority_precision``: of those
        naming a majority class, the share that are right, mean over these classes.
        ``minority_recall``: of those on instances of a minority class, the share that name it,
        mean over these classes. A class without any does not count; what no class has is left out.

    Raises
    ------
    AnnotationError
        If ``gold`` or ``is_rare`` has another length than there are instances or classes.

    References
    ----------
    .. [1] DASC, Machine Learning 2023, section 4.2.

    Examples
    --------
    Of three cells labelled 0 (frequent) two are right; of two instances of class 1 one is found.

    >>> import numpy as np
    >>> from manyhands import AnnotationTable
    >>> table = AnnotationTable.from_matrix(np.array([[0], [0], [0], [1]]))
    >>> found = pseudo_annotation_quality(table, np.array([0, 0, 1, 1]), np.array([False, True]))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'pseudo_accuracy': 0.75, 'majority_precision': 0.667, 'minority_recall': 0.5}
    """
    is_rare, values = np.asarray(is_rare, dtype=bool), as_values(gold)
    for name, given_shape, n in (
        ("gold", values.shape, pseudo.n_instances),
        ("is_rare", is_rare.shape, pseudo.n_classes),
    ):
        if given_shape != (n,):
            raise AnnotationError(f"{name} has shape {given_shape}; ({n},) is needed")
    there = ~missing_mask(values)
    codes = np.full(len(values), MISSING, dtype=np.int64)
    codes[there], _ = encode(
        values[there],
        pseudo.classes,
        argument="gold",
        vocabulary_name="classes",
        allow_unknown=True,
    )
    true = codes[pseudo.instance]
    known = true >= 0
    true, given = true[known], pseudo.label[known]
    right = true == given
    n_classes = pseudo.n_classes
    hits = np.bincount(true[right], minlength=n_classes)
    named = np.bincount(given, minlength=n_classes)
    present = np.bincount(true, minlength=n_classes)
    precise, found = ~is_rare & (named > 0), is_rare & (present > 0)
    quality = {}
    if len(true):
        quality["pseudo_accuracy"] = float(right.mean())
    if precise.any():
        quality["majority_precision"] = float((hits[precise] / named[precise]).mean())
    if found.any():
        quality["minority_recall"] = float((hits[found] / present[found]).mean())
    return quality


@dataclass(frozen=True)
class _Kept:
    """A round, and how good it is: higher is better."""

    estimator: Any
    table: AnnotationTable
    rounds: IntArray
    round: int
    worth: float


def _worth(row: Mapping[str, Any]) -> float:
    return float(row.get("validation_accuracy", -row.get("validation_nll", 0.0)))


def _quality(pseudo: AnnotationTable, is_rare: BoolArray, gold: Any) -> dict[str, float]:
    """What gold labels tell of pseudo-annotations, where there are any of these instances."""
    if gold is None or len(gold) != pseudo.n_instances:
        return {}
    return pseudo_annotation_quality(pseudo, gold, is_rare)


def _watched(estimator: Any, fitted_on: Any, watch: Watch) -> dict[str, float]:
    """Accuracy and macro-F1 of the round on what is watched."""
    found = {}
    for name, (X, gold) in watch.sets.items():
        shapes = [np.shape(part)[1:] for part in (X, fitted_on) if hasattr(part, "shape")]
        if len(set(shapes)) > 1:
            continue
        predicted = estimator.predict(X)
        found[f"{name}_accuracy"] = accuracy(gold, predicted)
        found[f"{name}_macro_f1"] = macro_f1(gold, predicted)
    return found


def _rarer_half(table: AnnotationTable) -> BoolArray:
    """Which classes are among the half with fewer annotations, shape (n_classes,)."""
    counts = np.bincount(table.label, minlength=table.n_classes)
    is_rare = np.zeros(table.n_classes, dtype=bool)
    is_rare[np.argsort(counts, kind="stable")[: table.n_classes // 2]] = True
    return is_rare


def _imbalance(table: AnnotationTable) -> float:
    """Largest over smallest number of annotations of a class that has some."""
    counts = np.bincount(table.label, minlength=table.n_classes)
    seen = counts[counts > 0]
    return float(seen.max() / seen.min()) if len(seen) else float("nan")


def _row(number: int, added: IntArray, table: AnnotationTable) -> dict[str, Any]:
    names = [f"added_{name}" for name in table.classes]
    return {
        "round": number,
        "n_added": int(added.sum()),
        **dict(zip(names, added.tolist(), strict=True)),
        "imbalance": _imbalance(table),
    }


def _rows_of(X: Any, rows: IntArray) -> Any:
    """Rows of an array, a sparse matrix, a tensor or a map-style Dataset."""
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    if hasattr(X, "__array__") and not hasattr(X, "__getitem__"):
        X = np.asarray(X)
    if hasattr(X, "shape") or isinstance(X, list):
        return _safe_indexing(X, rows)
    from torch.utils.data import Subset

    if not hasattr(X, "__getitem__"):
        raise AnnotationError(f"X is a {type(X).__name__}; use an array or a map-style Dataset")
    return Subset(X, rows.tolist())
