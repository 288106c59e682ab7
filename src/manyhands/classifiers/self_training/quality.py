"""Measures of the annotations and predictions of a round: balance, and agreement with gold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.annotations.target import in_order_of_rows
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.context import Watch
from manyhands.metrics import accuracy, macro_f1
from manyhands.sampling.selectors import SelectedCells
from manyhands.typing import MISSING, AnyArray, BoolArray, IntArray


def pseudo_annotation_quality(pseudo: AnnotationTable, gold: Any, is_rare: Any) -> dict[str, float]:
    """Compare pseudo-annotations with true classes: DASC's Fig. 5 [1]_.

    Parameters
    ----------
    pseudo : AnnotationTable
        Pseudo-annotations alone.
    gold : array of shape (n_instances,)
        True classes. Instances do not count if their class is missing or not in the table.
    is_rare : array of bool, shape (n_classes,)
        Which classes are the minority; in the paper, the half with fewer annotations.

    Returns
    -------
    dict of str to float
        ``pseudo_accuracy``: share of the pseudo-annotations that are correct.
        ``majority_precision``: precision, mean over the majority classes. ``minority_recall``:
        recall, mean over the minority classes. Classes without such pseudo-annotations do not
        count; a measure without any class is left out.

    Raises
    ------
    AnnotationError
        If the length of ``gold`` is not the number of instances, or that of ``is_rare`` not the
        number of classes.

    References
    ----------
    .. [1] DASC, Machine Learning 2023, section 4.2.

    Examples
    --------
    Of three cells labelled 0 (frequent), two are correct. Of two instances of class 1, one is
    found.

    >>> import numpy as np
    >>> from manyhands import AnnotationTable
    >>> table = AnnotationTable.from_matrix(np.array([[0], [0], [0], [1]]))
    >>> found = pseudo_annotation_quality(table, np.array([0, 0, 1, 1]), np.array([False, True]))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'pseudo_accuracy': 0.75, 'majority_precision': 0.667, 'minority_recall': 0.5}
    """
    gold, is_rare = as_values(gold), np.asarray(is_rare, dtype=bool)
    _check_shape("gold", gold, pseudo.n_instances)
    _check_shape("is_rare", is_rare, pseudo.n_classes)
    true = _gold_codes(gold, pseudo.classes)[pseudo.instance]
    has_gold = true >= 0
    true, given = true[has_gold], pseudo.label[has_gold]
    is_correct = true == given
    n_correct, n_given, n_true = (
        np.bincount(codes, minlength=pseudo.n_classes) for codes in (true[is_correct], given, true)
    )
    majority, minority = ~is_rare & (n_given > 0), is_rare & (n_true > 0)
    quality = {}
    if len(true):
        quality["pseudo_accuracy"] = float(is_correct.mean())
    if majority.any():
        quality["majority_precision"] = float((n_correct[majority] / n_given[majority]).mean())
    if minority.any():
        quality["minority_recall"] = float((n_correct[minority] / n_true[minority]).mean())
    return quality


def _check_shape(name: str, values: AnyArray, n: int) -> None:
    if values.shape != (n,):
        raise AnnotationError(f"{name} has shape {values.shape}; ({n},) is needed")


def _gold_codes(gold: AnyArray, classes: AnyArray) -> IntArray:
    """Return the class codes of gold labels; -1 if a label is missing or not among the classes."""
    known = ~missing_mask(gold)
    codes = np.full(len(gold), MISSING, dtype=np.int64)
    codes[known], _ = encode(
        gold[known], classes, argument="gold", vocabulary_name="classes", allow_unknown=True
    )
    return codes


def watched_pseudo_quality(
    pseudo: AnnotationTable, is_rare: BoolArray, watch: Watch
) -> dict[str, float]:
    """Return `pseudo_annotation_quality`, or {} without gold labels of training instances."""
    gold = watch.y_train
    if gold is None or len(gold) != pseudo.n_instances:
        return {}
    return pseudo_annotation_quality(pseudo, gold, is_rare)


def watched_accuracies(model: Any, X_train: Any, watch: Watch) -> dict[str, float]:
    """Return the accuracy and macro-F1 of a fitted model on the watched sets.

    Sets whose instances have another shape than those of ``X_train`` are left out.
    """
    measures = {}
    for name, (X, gold) in watch.sets.items():
        shapes = [np.shape(part)[1:] for part in (X, X_train) if hasattr(part, "shape")]
        if len(set(shapes)) > 1:
            continue
        gold, predicted = in_order_of_rows(X, gold, argument=name), model.predict(X)
        measures[f"{name}_accuracy"] = accuracy(gold, predicted)
        measures[f"{name}_macro_f1"] = macro_f1(gold, predicted)
    return measures


def rarer_half(table: AnnotationTable) -> BoolArray:
    """Return which classes are in the half with fewer annotations, shape (n_classes,)."""
    counts = np.bincount(table.label, minlength=table.n_classes)
    is_rare = np.zeros(table.n_classes, dtype=bool)
    is_rare[np.argsort(counts, kind="stable")[: table.n_classes // 2]] = True
    return is_rare


def imbalance(table: AnnotationTable) -> float:
    """Return the ratio of the largest to the smallest positive number of annotations of a class."""
    counts = np.bincount(table.label, minlength=table.n_classes)
    seen = counts[counts > 0]
    return float(seen.max() / seen.min()) if len(seen) else float("nan")


EXPECTED = 5
"""Least expected number of missing annotations of a class for a warning that none is predicted.

The expectation is the class's share of the observed annotations.
"""


@dataclass(eq=False)
class Unpredicted:
    """Classes that are predicted for no missing annotation, by round.

    Attributes
    ----------
    table : AnnotationTable
        The annotations before the first round.
    rounds : dict of int to list of int
        Code of a class -> the rounds that added nothing of it for this reason.
    """

    table: AnnotationTable
    rounds: dict[int, list[int]] = field(default_factory=dict)

    def note(self, selection: SelectedCells, number: int) -> None:
        """Store the classes that a round left out."""
        counts = np.bincount(self.table.observed.label, minlength=self.table.n_classes)
        expected = counts / max(1, counts.sum()) * selection.n_candidates.sum()
        is_left_out = (selection.n_candidates == 0) & (selection.n_selected == 0)
        for c in np.flatnonzero(is_left_out & (expected >= EXPECTED)):
            self.rounds.setdefault(int(c), []).append(number)

    def warn(self, name: str) -> None:
        """Name the classes in a warning, if there are any."""
        if not self.rounds:
            return
        named = "; ".join(
            f"{self.table.classes.tolist()[c]!r} (round {', '.join(map(str, numbers))})"
            for c, numbers in self.rounds.items()
        )
        warn_caller(
            f"{name} added no pseudo-annotations of some annotated classes, because it predicted "
            f"them for no missing annotation: {named}. cover_classes=True (of DASCClassifier and "
            "DistributionAwareSelector) adds some anyway. For the estimator to predict them, "
            "balance its classes (class_balance='reweight'), or raise its init_scale "
            "(init_scale='auto')"
        )
