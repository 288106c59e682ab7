"""The rounds of one self-training: predict missing annotations, add some, train again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.classifiers.self_training.quality import (
    Unpredicted,
    imbalance,
    rarer_half,
    watched_accuracies,
    watched_pseudo_quality,
)
from manyhands.exceptions import AnnotationError
from manyhands.fitting.class_collapse import without_collapse_warnings
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.continuing import Seen, gone_on
from manyhands.fitting.method_protocol import PREFIX
from manyhands.fitting.pilots import AUTO
from manyhands.fitting.reading import n_rows, take_rows
from manyhands.sampling.selectors import DistributionAwareSelector
from manyhands.training import History, hold_out
from manyhands.training.seeding import draw_seed
from manyhands.typing import BoolArray, FloatArray, IntArray

PREDICTED_AT_ONCE = 1 << 22
"""Number of entries in a block of predicted annotations: 16 MiB."""


@dataclass(frozen=True, eq=False)
class TrainedRound:
    """One trained round of the estimator.

    Attributes
    ----------
    number : int
    estimator : fitted crowd classifier
    table : AnnotationTable
        Its training annotations.
    rounds : integer array of shape (n_annotations,)
        Round in which each annotation of the table was added.
    value : float
        Its score by ``validation``; higher is better.
    """

    number: int
    estimator: Any
    table: AnnotationTable
    rounds: IntArray
    value: float


@dataclass(frozen=True, eq=False)
class Known:
    """The state of a self-training between two rounds; every round returns a new one.

    Attributes
    ----------
    table : AnnotationTable
        Annotations of the next training: the observed ones, and pseudo-annotations so far.
    rounds : integer array of shape (n_annotations,)
        Round in which each annotation of the table was added.
    model : fitted model or None
        The one trained last, which predicts the next annotations.
    estimator : fitted crowd classifier or None
        The same model, unless it is the ``annotator``'s.
    """

    table: AnnotationTable
    rounds: IntArray
    model: Any = None
    estimator: Any = None

    @classmethod
    def at_first(cls, table: AnnotationTable) -> Known:
        """Return the state before the first round."""
        return cls(table, np.zeros(table.n_annotations, dtype=np.int64))

    def with_pseudo(self, pseudo: AnnotationTable, number: int) -> Known:
        """Return a state with the pseudo-annotations of a round added."""
        rounds = np.append(self.rounds, np.full(pseudo.n_annotations, number))
        return replace(self, table=self.table.with_added(pseudo), rounds=rounds)


@dataclass(frozen=True, eq=False)
class SelfTraining:
    """The data and settings that all rounds of one fit share.

    Attributes
    ----------
    X : as in ``fit``
    table : AnnotationTable
        The annotations before the first round.
    held : AnnotationTable or None
        Annotations held out, if ``validation`` is a fraction.
    n_select : int
        Annotations to add per round, at most.
    seed : int
        Seed of the fit.
    rng : Generator
    watch : Watch
    name : str
        Part of the names of checkpoints.
    history : History
        Of the rounds so far.
    is_rare : array of bool, shape (n_classes,)
        The half of the classes with fewer annotations at the start.
    unpredicted : Unpredicted
        Classes that are predicted for no missing annotation, by round.
    """

    X: Any
    table: AnnotationTable
    held: AnnotationTable | None
    n_select: int
    seed: int
    rng: np.random.Generator
    watch: Watch
    name: str = "round"
    history: History = field(default_factory=History)

    @cached_property
    def is_rare(self) -> BoolArray:
        """The half of the classes with fewer annotations at the start."""
        return rarer_half(self.table)

    @cached_property
    def unpredicted(self) -> Unpredicted:
        """Classes that are predicted for no missing annotation, by round."""
        return Unpredicted(self.table)

    @classmethod
    def of(cls, model: Any, X: Any, table: AnnotationTable, watch: Watch) -> SelfTraining:
        """Hold annotations out, and return the state before the first round.

        Parameters
        ----------
        model : BaseSelfTraining
            With checked parameters.
        X, table, watch
            See `BaseSelfTraining.fit`.

        Returns
        -------
        SelfTraining
        """
        seed = draw_seed(model.random_state)
        rng = np.random.default_rng(seed)
        check_validation_gold(model.validation, table)
        n_select = _n_select(model.n_select, table)
        held: AnnotationTable | None = None
        if isinstance(model.validation, Real):
            table, held = hold_out(table, float(model.validation), rng)
        return cls(X, table, held, n_select, seed, rng, watch)

    def without(self, is_left: BoolArray, name: str) -> SelfTraining:
        """Return this self-training before its first round, without some instances.

        It has the same seed, no gold labels, and adds as many annotations per instance.
        """
        rows, share = np.flatnonzero(~is_left), float(np.mean(~is_left))
        return SelfTraining(
            take_rows(self.X, rows),
            self.table[rows],
            None,
            # At least one per class is needed, unless ``n_select`` is smaller.
            max(min(self.n_select, self.table.n_classes), round(self.n_select * share)),
            self.seed,
            np.random.default_rng(self.seed),
            Watch(),
            name,
        )


def _n_select(given: int | float | str, table: AnnotationTable) -> int:
    """Return the annotations to add per round, from the parameter ``n_select``."""
    if given == "all":
        return table.n_instances * table.n_annotators
    if isinstance(given, Integral):
        return int(given)
    return max(1, round(float(given) * table.observed.n_annotations))


def check_validation_gold(validation: Any, table: AnnotationTable) -> None:
    """Raise an error for gold labels that are unusable for validation.

    Parameters
    ----------
    validation : None, float or (X, y_gold)
        Only the last is checked.
    table : AnnotationTable
        The annotations to train on.

    Raises
    ------
    AnnotationError
        If gold labels are annotations, missing, of unknown classes, or not one per row of X.
    """
    if not isinstance(validation, tuple | list):
        return
    X, y_gold = validation
    if isinstance(y_gold, AnnotationTable):
        raise AnnotationError(
            "validation's y_gold is a table of annotations; give gold labels, or a fraction"
        )
    gold = as_values(y_gold)
    n = n_rows(X)
    if gold.shape != (n,) or missing_mask(gold).any():
        raise AnnotationError(
            f"validation has {n} rows of X but gold labels of shape {gold.shape}, "
            f"{int(missing_mask(gold).sum())} of them missing; give one label per row"
        )
    encode(gold, table.classes, argument="validation's y_gold", vocabulary_name="y's classes")


def run_rounds(model: Any, fit: SelfTraining, allows: Callable[[int], bool]) -> TrainedRound:
    """Run the rounds of a self-training classifier, and return the one to keep.

    Parameters
    ----------
    model : BaseSelfTraining
    fit : SelfTraining
        Its history gets the rows of the rounds.
    allows : callable
        Whether to train the round of a number; see `manyhands.classifiers.self_training.guard`.

    Returns
    -------
    TrainedRound
    """
    kept: TrainedRound | None = None
    for trained in train_rounds(model, fit, allows):
        if kept is None or model.validation is None or trained.value > kept.value:
            kept = trained
        elif model.patience is not None and trained.number - kept.number >= model.patience:
            break
    return cast(TrainedRound, kept)


def train_rounds(
    model: Any, fit: SelfTraining, allows: Callable[[int], bool] = lambda number: True
) -> Iterator[TrainedRound]:
    """Train round after round while annotations are added and the guard does not stop.

    Yields
    ------
    TrainedRound
        Each round of the estimator; that of an ``annotator`` is not among them.
    """
    known = Known.at_first(fit.table)
    for number in range(model.n_rounds + 1):
        row, known = _annotation_round(model, fit, known, number)
        # After the annotator's round, the estimator is trained even if nothing was added.
        if number and not row["n_added"] and known.estimator is not None:
            return
        if not allows(number):
            return
        trained, seconds = _trained(model, fit, known, number)
        if model.annotator is not None and not number:
            measures = _annotator_measures(model.validation, fit, trained)
            fit.history.append(row | measures | {"seconds": seconds})
            known = replace(known, model=trained)
            continue
        known = replace(known, model=trained, estimator=trained)
        row |= _validation_measures(model.validation, fit, trained)
        watched = watched_accuracies(trained, fit.X, fit.watch)
        fit.history.append(row | watched | {"seconds": seconds})
        yield TrainedRound(number, trained, known.table, known.rounds, _value(row))


def one_more_round(
    model: Any, seen: Seen, earlier: Earlier, watch: Watch
) -> tuple[SelfTraining, TrainedRound]:
    """Continue the kept round's estimator on new annotations, and then on predicted ones.

    Pseudo-annotations are kept unless the cell has an observed annotation now. One round adds so
    many that their ratio to the observed ones stays the same, and the estimator's training
    continues with these.

    Parameters
    ----------
    model : BaseSelfTraining
    seen, earlier, watch
        See `manyhands.fitting.continuing`.

    Returns
    -------
    fit : SelfTraining
        With the history of the round.
    trained : TrainedRound
    """
    before, started = earlier.model, perf_counter()
    rng = np.random.default_rng([draw_seed(model.random_state), seen.table.n_annotations])
    pseudo, rounds = _still_open(before.augmented_annotations_, before.rounds_, seen.table)
    number, ratio = int(before.rounds_.max()) + 1, 1 / np.mean(before.rounds_ == 0) - 1
    n_select = round(ratio * seen.table.n_annotations) - pseudo.n_annotations
    fit = SelfTraining(seen.X, seen.table, None, n_select, 0, rng, watch)
    known = Known.at_first(seen.table)
    known = Known(known.table.with_added(pseudo), np.append(known.rounds, rounds))
    with without_collapse_warnings():
        known = replace(known, model=_gone_on(before.estimator_, fit, known, earlier))
        row: dict[str, Any] = {"round": number, "n_added": 0}
        if n_select >= seen.table.n_classes:
            row, known = _annotation_round(model, fit, known, number)
        if row["n_added"]:
            again = Earlier(known.model, row["n_added"] / known.table.n_annotations)
            known = replace(known, model=_gone_on(known.model, fit, known, again))
    watched = watched_accuracies(known.model, fit.X, watch)
    fit.history.append(row | watched | {"seconds": perf_counter() - started})
    return fit, TrainedRound(number, known.model, known.table, known.rounds, 0.0)


def _gone_on(estimator: Any, fit: SelfTraining, known: Known, earlier: Earlier) -> Any:
    seen = Seen(fit.X, known.table, known.table.n_annotations)
    return gone_on(estimator, seen, earlier, fit.watch)


def _still_open(
    augmented: AnnotationTable, rounds: IntArray, table: AnnotationTable
) -> tuple[AnnotationTable, IntArray]:
    """Return the pseudo-annotations of pairs that a table does not have, and their rounds."""
    is_open = augmented.source == "pseudo"
    if not np.isin(augmented.instances, table.instances).all():
        # Some pseudo-annotations are of instances that are no longer kept.
        return replace(table.take(np.zeros(table.n_annotations, bool)), passes=None), rounds[:0]
    places, _ = encode(
        augmented.instances, table.instances, argument="y", vocabulary_name="instances"
    )
    people, _ = encode(
        augmented.annotators, table.annotators, argument="y", vocabulary_name="annotators"
    )
    pair = places[augmented.instance] * table.n_annotators + people[augmented.annotator]
    for taken in (
        np.column_stack([table.instance, table.annotator]),
        table.abstentions,
        table.skips,
    ):
        is_open &= ~np.isin(pair, taken[:, 0] * table.n_annotators + taken[:, 1])
    return replace(augmented.take(is_open), passes=None), rounds[is_open]


def _annotation_round(
    model: Any, fit: SelfTraining, known: Known, number: int
) -> tuple[dict[str, Any], Known]:
    """Add the annotations of a round; return also its history row so far. Round 0 adds none."""
    before = imbalance(known.table)
    n_added: IntArray = np.zeros(known.table.n_classes, dtype=np.int64)
    quality: dict[str, float] = {}
    if number:
        predictions = _predict_annotations(known.model, fit.X, known.table)
        given = model.selector
        selector = DistributionAwareSelector() if given is None else clone(given)
        selection = selector.select(predictions, known.table, fit.n_select, fit.rng, held=fit.held)
        n_added = selection.n_selected
        fit.unpredicted.note(selection, number)
        quality = watched_pseudo_quality(selection.table, fit.is_rare, fit.watch)
        known = known.with_pseudo(selection.table, number)
    names = [f"added_{name}" for name in known.table.classes]
    row = {
        "round": number,
        "n_added": int(n_added.sum()),
        **dict(zip(names, n_added.tolist(), strict=True)),
        "imbalance": imbalance(known.table),
        "imbalance_before": before,
        **quality,
    }
    return row, known


# -- training -------------------------------------------------------------------------------------


def _trained(model: Any, fit: SelfTraining, known: Known, number: int) -> tuple[Any, float]:
    """Train the model of a round; return also the seconds it took."""
    estimator = _make_estimator(model, fit, known, number)
    options: dict[str, Any] = {}
    if has_fit_parameter(estimator, "watch"):
        options["watch"] = fit.watch
    if model.warm_start and known.estimator is not None:
        options["start"] = _warm_start(estimator, known.estimator)
    started = perf_counter()
    with without_collapse_warnings():
        trained = estimator.fit(fit.X, known.table, **options)
    return trained, perf_counter() - started


def _make_estimator(model: Any, fit: SelfTraining, known: Known, number: int) -> Any:
    """Make the unfitted model of a round, with a seed and a checkpoint of its own."""
    is_annotator = model.annotator is not None and not number
    estimator = clone(model.annotator) if is_annotator else model.clone_estimator()
    parameters = estimator.get_params()
    seed = int(fit.rng.integers(np.iinfo(np.int32).max))
    if parameters.get("random_state", 0) is None:
        estimator.set_params(random_state=seed)
    if model.verbose and parameters.get("verbose") == 0:
        estimator.set_params(verbose=model.verbose)
    for name, found in (("max_epochs", "n_epochs_"), (f"{PREFIX}init_scale", "init_scale_")):
        if parameters.get(name) == AUTO and hasattr(known.estimator, found):
            # Added annotations agree with the model that predicted them, so they must not choose
            # its number of epochs or its initial scale.
            estimator.set_params(**{name: getattr(known.estimator, found)})
    if model.checkpoint is not None and "checkpoint" in parameters:
        path = Path(model.checkpoint)
        estimator.set_params(checkpoint=path.with_stem(f"{path.stem}-{fit.name}{number}"))
    return estimator


def _warm_start(estimator: Any, previous: Any) -> Any:
    """Return the classifier of the previous round, if the estimator can start from its weights."""
    if not has_fit_parameter(estimator, "start"):
        raise AnnotationError(
            "warm_start=True continues from the weights of the previous round, and "
            f"{type(estimator).__name__} has none; use warm_start=False"
        )
    return previous


# -- measures -------------------------------------------------------------------------------------


def _validation_measures(validation: Any, fit: SelfTraining, trained: Any) -> dict[str, float]:
    """Return the loss of held-out annotations in a round, or its accuracy on gold labels."""
    if fit.held is not None:
        return {"validation_nll": -float(trained.annotation_log_likelihood(fit.X, fit.held))}
    if isinstance(validation, tuple | list):
        return {"validation_accuracy": float(trained.score(*validation))}
    return {}


def _annotator_measures(validation: Any, fit: SelfTraining, trained: Any) -> dict[str, float]:
    """Return the measures of the annotator's round, with names that begin with ``annotator_``.

    A completer predicts no true classes and has no measures.
    """
    measures: dict[str, float] = {}
    if hasattr(trained, "score" if fit.held is None else "annotation_log_likelihood"):
        measures |= _validation_measures(validation, fit, trained)
    if hasattr(trained, "predict"):
        measures |= watched_accuracies(trained, fit.X, fit.watch)
    return {f"annotator_{name}": value for name, value in measures.items()}


def _value(row: Mapping[str, Any]) -> float:
    """Return the score of a round by its validation measure; higher is better."""
    return float(row.get("validation_accuracy", -row.get("validation_nll", 0.0)))


# -- predicted annotations ------------------------------------------------------------------------


def _predict_annotations(
    model: Any, X: Any, table: AnnotationTable
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield blocks of instances, and their predictions (n, n_annotators, n_classes)."""
    size = max(1, PREDICTED_AT_ONCE // (table.n_annotators * table.n_classes))
    for start in range(0, table.n_instances, size):
        rows = np.arange(start, min(start + size, table.n_instances))
        if hasattr(model, "complete"):
            yield rows, model.complete(rows)
        else:
            yield rows, model.predict_annotation_proba(take_rows(X, rows))
