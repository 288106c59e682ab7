"""Read and check the arguments of `summarize`: duck-typed, without importing torch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.digests import InstanceDigests
from manyhands.annotations.encoding import as_values, encode, equal_mask, missing_mask
from manyhands.annotations.ids import as_frame, is_default_index
from manyhands.annotations.target import matched, rows_of, same_ids
from manyhands.decision.labels import best_of, is_scale_of_grades, pick
from manyhands.decision.rules import AUTO, apply_rule
from manyhands.exceptions import AnnotationError, ChosenGoldWarning, warn_caller
from manyhands.inference import MajorityVote
from manyhands.inference.identifiability import identified
from manyhands.inference.inputs import (
    gold_codes,
    posterior_of_fitted,
    probabilities_of,
    rows_of_fitted,
)
from manyhands.inference.shared_mistakes import annotators_are_judged
from manyhands.inference.votes import as_dense, make_votes, sparse_shares, vote_shares
from manyhands.metrics.certainty import Certainty, certainty_of
from manyhands.metrics.inferred_labels import level_of_labels
from manyhands.metrics.sample_levels import Level
from manyhands.report.expected_answers import Expectations, find_expectations
from manyhands.typing import MISSING, BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Inferred:
    """Inferred labels: codes (-1 unknown), posterior, and their origin.

    ``probable`` says whether the posterior holds probabilities or is one-hot encoded labels.
    """

    name: str
    kind: str
    codes: IntArray
    posterior: FloatArray
    probable: bool = True


@dataclass(frozen=True)
class Inputs:
    """The checked inputs of all sections.

    ``table`` holds the observed annotations without weights; ``whole`` is the table as given.
    ``seconds`` and ``ended`` are those of the observed annotations; None if nothing is known.
    ``given`` is a fitted model that says which labels were given, where no model here does.
    ``measuring`` is the gold that measures how many labels are right, if some of it does not;
    ``random_gold`` masks the instances whose gold is known to be drawn at random.
    """

    whole: AnnotationTable
    table: AnnotationTable
    inferred: Inferred | None
    aggregator: Any = None
    classifier: Any = None
    predicted: FloatArray | None = None
    gold: IntArray | None = None
    expectations: Expectations | None = None
    seconds: FloatArray | None = None
    ended: FloatArray | None = None
    given: Any = None
    measuring: IntArray | None = None
    random_gold: BoolArray | None = None

    @property
    def level_gold(self) -> IntArray | None:
        """Gold that measures how many labels are right: of what no review queue chose."""
        return self.gold if self.measuring is None else self.measuring

    @property
    def chosen_gold(self) -> BoolArray:
        """Mask of the instances with gold that was chosen, and so does not measure the others.

        A review queue chose it, or a rank test suggests that it was chosen.
        """
        if self.gold is None or self.level_gold is None:
            return np.zeros(self.table.n_instances, dtype=bool)
        chosen = (self.gold >= 0) & (self.level_gold < 0)
        if self.level_notes:
            random = False if self.random_gold is None else self.random_gold
            chosen |= (self.level_gold >= 0) & ~np.asarray(random)
        return chosen

    @cached_property
    def known(self) -> BoolArray | None:
        """Mask of the instances whose label was given to the fit; None if nothing says it."""
        known = getattr(self._given_to, "is_known_", None)
        return None if known is None or len(known) != self.table.n_instances else known

    @cached_property
    def drawn(self) -> BoolArray | None:
        """Mask of the known labels that are known to be drawn at random; None if none are."""
        rows = getattr(self._given_to, "sampled_rows_", ())
        if self.known is None or not len(rows):
            return None
        mask = np.zeros(self.table.n_instances, dtype=bool)
        mask[rows] = True
        return mask

    @cached_property
    def judging(self) -> IntArray | None:
        """Gold, and known labels that were drawn at random: codes that measure annotators.

        A known label that a queue chose measures nobody: its item may be there because of a
        mistake of those who annotated it.
        """
        if self.drawn is None or self.inferred is None:
            return self.gold
        gold = np.full(self.table.n_instances, MISSING) if self.gold is None else self.gold
        return np.where(self.drawn & (gold < 0), self.inferred.codes, gold)

    @property
    def _given_to(self) -> Any:
        """The model that was fitted with the known labels."""
        models = (self.aggregator, self.classifier, self.given)
        return next((model for model in models if hasattr(model, "is_known_")), None)

    @cached_property
    def judged(self) -> bool:
        """Whether anything shows how good the annotators are; see `annotators_are_judged`."""
        return annotators_are_judged(self.table, self.known)

    @cached_property
    def annotated(self) -> BoolArray:
        """Mask of the instances with an observed annotation, shape (n_instances,)."""
        return self.table.annotations_per_instance() > 0

    @cached_property
    def identified(self) -> BoolArray:
        """Mask of the instances whose label the annotations (or gold of the fit) decide."""
        own = getattr(self.aggregator, "identified_", None)
        if own is not None and len(own) == self.table.n_instances:
            return np.asarray(own, dtype=bool)
        posterior = None if self.inferred is None else self.inferred.posterior
        return identified(self.whole, posterior)

    @property
    def has_shares(self) -> bool:
        """Whether the posterior holds shares of votes, which are no probabilities."""
        is_majority = self.inferred is not None and self.inferred.kind == "majority"
        return is_majority or isinstance(self.aggregator, MajorityVote)

    @property
    def source(self) -> Any:
        """The model that inferred the labels; None of a majority vote, or of labels as given."""
        models = {"aggregator": self.aggregator, "classifier": self.classifier}
        return None if self.inferred is None else models.get(self.inferred.kind)

    @property
    def level(self) -> Level | None:
        """How many of the inferred labels are right; None if nothing tells."""
        return self._level_and_notes[0]

    @property
    def level_notes(self) -> list[str]:
        """Why gold labels do not measure how many labels are right, if they do not."""
        return self._level_and_notes[1]

    @cached_property
    def _level_and_notes(self) -> tuple[Level | None, list[str]]:
        inferred, model = self.inferred, self.source
        if inferred is None:
            return None, []
        is_own = inferred.probable and inferred.name == type(model).__name__
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            level = level_of_labels(
                self.table,
                model,
                inferred.codes,
                inferred.posterior if is_own else None,
                gold=self.level_gold,
                random=self.random_gold,
                fitted=self.aggregator,
                identified=self.identified,
            )
        for each in caught:
            warn_caller(str(each.message), each.category)
        told = [each for each in caught if issubclass(each.category, ChosenGoldWarning)]
        return level, [str(each.message) for each in told]

    @cached_property
    def certainty(self) -> Certainty:
        """How sure single labels are said to be."""
        if self.inferred is None or not self.inferred.probable:
            return Certainty(self.table.n_classes)
        found = self.inferred
        return certainty_of(self.table, self.level, found.posterior, found.codes, self.known)

    @cached_property
    def told(self) -> FloatArray:
        """How probable each inferred label is said to be, shape (n_instances,), or NaN."""
        if self.inferred is None:
            return np.full(self.table.n_instances, np.nan)
        found = self.inferred
        return self.certainty.of_labels(found.posterior, found.codes, self.known)

    @cached_property
    def votes(self) -> tuple[IntArray, IntArray, IntArray]:
        """Nonzero vote counts as (instance, class, count), sorted by instance."""
        c = max(self.table.n_classes, 1)
        flat = self.table.instance.astype(np.int64) * c + self.table.label
        cells, counts = np.unique(flat, return_counts=True)
        return cells // c, cells % c, counts

    @cached_property
    def top_votes(self) -> IntArray:
        """Number of votes for each instance's most chosen class, shape (n_instances,)."""
        instance, _, count = self.votes
        top = np.zeros(self.table.n_instances, dtype=np.int64)
        np.maximum.at(top, instance, count)
        return top

    @cached_property
    def tied(self) -> BoolArray:
        """Mask of the instances where several classes have the most votes."""
        instance, _, count = self.votes
        winners = instance[count == self.top_votes[instance]]
        return np.bincount(winners, minlength=self.table.n_instances) > 1


def read_inputs(
    table: Any,
    aggregator: Any = None,
    classifier: Any = None,
    X: Any = None,
    labels: Any = None,
    posterior: Any = None,
    gold: Any = None,
    seconds: Any = None,
    ended: Any = None,
) -> Inputs:
    """Check every argument of `summarize` against the table."""
    whole = as_table(table, argument="table", what=None)
    observed = replace(whole.observed, weights=None)
    if X is not None and classifier is None:
        raise AnnotationError("X is only used with a classifier; pass classifier= as well")
    _check_fitted(aggregator, "posterior_", "aggregator", "fit(table)")
    _check_fitted(classifier, "classes_", "classifier", "fit(X, table)")
    _check_ids(aggregator, observed, "aggregator", ("annotators", "instances"))
    _check_ids(classifier, observed, "classifier", ("annotators",))
    X = None if X is None else _in_order(observed, X)
    predicted = None if X is None else _predict(classifier, X, observed)
    inferred = _infer(observed, aggregator, classifier, predicted, labels, posterior)
    known = None if gold is None else gold_codes(gold, observed)
    expectations = None if X is None else _expect(classifier, X, observed)
    times = (_times(seconds, whole, "seconds"), _times(ended, whole, "ended"))
    found = (inferred, aggregator, classifier, predicted, known, expectations)
    return Inputs(whole, observed, *found, *times)


def _times(values: Any, table: AnnotationTable, argument: str) -> FloatArray | None:
    """Times of the observed annotations; None if none is known."""
    if values is None:
        return None
    times = np.asarray(values, dtype=np.float64)
    if times.shape != (table.n_annotations,):
        raise AnnotationError(
            f"{argument} has shape {times.shape}; give one time per annotation of the table, shape "
            f"({table.n_annotations},), with NaN where unknown"
        )
    if table.sources is not None:
        times = times[table.sources == 0]
    return times if np.isfinite(times).any() else None


def _in_order(table: AnnotationTable, X: Any, argument: str = "X") -> Any:
    """Put the rows of X into the order of the table's instances, if both have ids."""
    ids = matched(table, X, argument="table", rows_argument=argument).instances
    return X if same_ids(ids, table.instances) else _safe_indexing(X, rows_of(table.instances, ids))


def read_labels(values: Any, table: AnnotationTable, argument: str) -> IntArray:
    """Class codes of one value per instance; -1 where it is missing (None, NaN, or -1).

    A pandas Series with an index of its own is matched with the instances by id.
    """
    if hasattr(values, "iloc") and not is_default_index(values.index):
        values = _in_order(table, values, argument)
    values = as_values(values)
    if values.shape != (table.n_instances,):
        raise AnnotationError(
            f"{argument} has shape {values.shape}; it must have one value per instance of the "
            f"table, shape ({table.n_instances},) (None, NaN or -1 where unknown)"
        )
    missing = missing_mask(values)
    if not (table.classes == MISSING).any():
        missing = missing | equal_mask(values, MISSING)
    codes = np.full(table.n_instances, MISSING, dtype=np.int64)
    if not missing.all():
        codes[~missing] = encode(
            values[~missing], table.classes, argument=argument, vocabulary_name="classes"
        )[0]
    return codes


def class_positions(estimator: Any, table: AnnotationTable, argument: str) -> IntArray:
    """The table's codes of an estimator's classes; in table order if it has no ``classes_``."""
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return np.arange(table.n_classes)
    return encode(
        classes, table.classes, argument=f"{argument}.classes_", vocabulary_name="the classes"
    )[0]


def to_table_classes(matrix: Any, positions: IntArray, n_classes: int, argument: str) -> FloatArray:
    """Expand the last two axes of (..., k, k) to the table's classes; NaN for absent classes."""
    matrix = np.asarray(matrix, dtype=np.float64)
    k = len(positions)
    if matrix.shape[-2:] != (k, k):
        raise AnnotationError(
            f"{argument} has shape {matrix.shape}; its last two axes must have length {k}, the "
            "number of classes"
        )
    out = np.full((*matrix.shape[:-2], n_classes, n_classes), np.nan)
    out[..., positions[:, None], positions] = matrix
    return out


def describe_estimator(estimator: Any) -> dict[str, Any] | None:
    """Name and parameters of an estimator, as short strings."""
    if estimator is None:
        return None
    get_params = getattr(estimator, "get_params", None)
    params: Mapping[str, Any] = get_params(deep=False) if get_params else {}
    return {
        "name": type(estimator).__name__,
        "params": {str(name): _short_repr(value) for name, value in params.items()},
    }


def _short_repr(value: Any, limit: int = 120) -> str:
    # Memory addresses differ from run to run.
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _check_fitted(estimator: Any, attribute: str, argument: str, call: str) -> None:
    if estimator is not None and not hasattr(estimator, attribute):
        raise NotFittedError(
            f"{argument} ({type(estimator).__name__}) has no {attribute}: it is not fitted. "
            f"Call {argument}.{call} first"
        )


def _check_ids(
    estimator: Any, table: AnnotationTable, argument: str, names: tuple[str, ...]
) -> None:
    """Refuse an estimator fitted on other annotators or instances, or in another order."""
    for name in names:
        theirs = getattr(estimator, f"{name}_", None)
        ours = getattr(table, name)
        if theirs is not None and not np.array_equal(np.asarray(theirs), ours):
            raise AnnotationError(
                f"{argument} was fitted on {len(theirs)} {name}, which differ from the table's "
                f"{len(ours)} {name} or are in another order; fit it on this table"
            )


def _predict(classifier: Any, X: Any, table: AnnotationTable) -> FloatArray:
    proba = np.asarray(classifier.predict_proba(X), dtype=np.float64)
    positions = class_positions(classifier, table, "classifier")
    if proba.shape != (table.n_instances, len(positions)):
        raise AnnotationError(
            f"classifier.predict_proba(X) has shape {proba.shape}; it must have one row per "
            f"instance of the table, {(table.n_instances, len(positions))}. Pass the features of "
            "the annotated instances as X"
        )
    out = np.zeros((table.n_instances, table.n_classes))
    out[:, positions] = proba
    return _checked_posterior(out, table, "classifier.predict_proba(X)")


def _expect(classifier: Any, X: Any, table: AnnotationTable) -> Expectations | None:
    return find_expectations(classifier, X, table, class_positions(classifier, table, "classifier"))


def _infer(
    table: AnnotationTable,
    aggregator: Any,
    classifier: Any,
    predicted: FloatArray | None,
    labels: Any,
    posterior: Any,
) -> Inferred | None:
    """Take the given labels, else the aggregator's, the classifier's, or the majority vote."""
    if not table.n_annotations:
        return None
    if labels is not None or posterior is not None:
        return _given(table, labels, posterior)
    if aggregator is not None:
        proba = _aggregated(aggregator, table, "aggregator")
        found = getattr(aggregator, "labels_", None)
        codes = None
        if found is not None:
            codes = read_labels(found, table, "aggregator.labels_")
            codes = _known(codes, table, "aggregator.labels_")
        return _inferred(table, type(aggregator).__name__, "aggregator", proba, codes)
    if predicted is not None:
        name = type(classifier).__name__
        if not hasattr(classifier, "posterior_"):
            return _inferred(table, name, "classifier", predicted)
        # It infers labels of its training instances, which are other than predictions.
        if _was_fitted_on(classifier, table):
            own = _aggregated(classifier, table, "classifier")
            return _inferred(table, name, "classifier", own)
        return _inferred(table, f"{name} (prediction)", "classifier", predicted)
    shares = vote_shares(make_votes(table))
    return _inferred(table, "majority vote", "majority", shares, best_of(shares, table))


def _inferred(
    table: AnnotationTable,
    name: str,
    kind: str,
    posterior: FloatArray,
    codes: IntArray | None = None,
) -> Inferred:
    if codes is None:
        codes = apply_rule(posterior, AUTO, grades=is_scale_of_grades(table))
    return Inferred(name, kind, codes, posterior)


def majority_of(table: AnnotationTable) -> Inferred:
    """Majority vote of a table with any number of classes; its shares are a sparse array."""
    annotated = table.annotations_per_instance() > 0
    shares = sparse_shares(make_votes(table), empty=np.zeros(table.n_classes))
    codes = np.full(table.n_instances, MISSING, dtype=np.int64)
    codes[annotated] = pick(shares[annotated], "first", np.random.RandomState(0))
    return Inferred("majority vote", "majority", codes, shares)


def _was_fitted_on(classifier: Any, table: AnnotationTable) -> bool:
    """Return whether the instances of the table are those that a classifier was fitted on."""
    theirs = getattr(classifier, "training_instances_", None)
    if theirs is None or len(classifier.posterior_) != table.n_instances:
        return False
    ours = InstanceDigests.of(table, table)
    return bool(ours.n_shared(theirs) == len(ours.ids) == len(theirs.ids))


def _aggregated(estimator: Any, table: AnnotationTable, argument: str) -> FloatArray:
    """An estimator's posterior, over the table's classes."""
    proba = np.asarray(estimator.posterior_, dtype=np.float64)
    proba = proba[rows_of_fitted(estimator, table, argument)]
    positions = class_positions(estimator, table, argument)
    if proba.shape != (table.n_instances, len(positions)):
        raise AnnotationError(
            f"{argument}.posterior_ has shape {proba.shape}, but the table has "
            f"{table.n_instances} instances and {table.n_classes} classes; fit it on this table"
        )
    out = np.zeros((table.n_instances, table.n_classes))
    out[:, positions] = proba
    return _checked_posterior(out, table, f"{argument}.posterior_")


def _given(table: AnnotationTable, labels: Any, posterior: Any) -> Inferred:
    if posterior is None:
        codes = _known(read_labels(labels, table, "labels"), table, "labels")
        marks = (np.arange(table.n_classes) == codes[:, None]).astype(np.float64)
        return Inferred("the labels given", "given", codes, marks, probable=False)
    if hasattr(posterior, "fit"):
        posterior = as_dense(posterior_of_fitted(posterior, table, "posterior"))
    if as_frame(posterior) is not None:
        posterior = probabilities_of(table, posterior, "posterior")
    posterior = np.asarray(posterior, dtype=np.float64)
    if posterior.shape != (table.n_instances, table.n_classes):
        raise AnnotationError(
            f"posterior has shape {posterior.shape}; it must have one row per instance and one "
            f"column per class of the table, {(table.n_instances, table.n_classes)}"
        )
    proba = _checked_posterior(posterior, table, "posterior")
    if labels is not None:
        codes = _known(read_labels(labels, table, "labels"), table, "labels")
        return _inferred(table, "the posterior given", "given", proba, codes)
    return _inferred(table, "the posterior given", "given", proba, best_of(proba, table))


def _known(codes: IntArray, table: AnnotationTable, argument: str) -> IntArray:
    """Refuse labels that are missing for annotated instances."""
    unknown = (codes < 0) & (table.annotations_per_instance() > 0)
    if unknown.any():
        raise AnnotationError(
            f"{argument} is missing for {int(unknown.sum())} annotated instances, the first being "
            f"{table.instances[unknown][0].item()!r}; label them or leave them out of the table "
            "(table[mask])"
        )
    return codes


def _checked_posterior(proba: FloatArray, table: AnnotationTable, argument: str) -> FloatArray:
    """Refuse rows of annotated instances that are not probabilities; other rows may be empty."""
    annotated = table.annotations_per_instance() > 0
    bad = annotated & ~((proba > -1e-6).all(axis=1) & (np.abs(proba.sum(axis=1) - 1) < 1e-3))
    if bad.any():
        raise AnnotationError(
            f"{argument} of instance {table.instances[bad][0].item()!r} is "
            f"{_short_repr(proba[bad][0].round(4).tolist(), 60)}; it must hold probabilities that "
            "sum to 1"
        )
    return np.nan_to_num(proba).clip(0.0, 1.0)
