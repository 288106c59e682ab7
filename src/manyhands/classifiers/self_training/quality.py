"""How good the annotations and the predictions of a round are: balance, and gold labels."""

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
        True classes. Instances whose class is missing, or unknown to the table, do not count.
    is_rare : array of bool, shape (n_classes,)
        Which classes are the minority. In the paper it is the half with fewer annotations.

    Returns
    -------
    dict of str to float
        ``pseudo_accuracy``: share of the pseudo-annotations that name the true class.
        ``majority_precision``: share of those naming a majority class that are correct, mean over
        these classes. ``minority_recall``: share of those on instances of a minority class that
        name it, mean over these classes. Classes without such pseudo-annotations do not count; a
        measure that no class contributes to is left out.

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
    """Class codes of gold labels; -1 where the label is missing or not among the classes."""
    known = ~missing_mask(gold)
    codes = np.full(len(gold), MISSING, dtype=np.int64)
    codes[known], _ = encode(
        gold[known], classes, argument="gold", vocabulary_name="classes", allow_unknown=True
    )
    return codes


def watched_pseudo_quality(
    pseudo: AnnotationTable, is_rare: BoolArray, watch: Watch
) -> dict[str, float]:
    """`pseudo_annotation_quality` where gold labels of the training instances are watched."""
    gold = watch.y_train
    if gold is None or len(gold) != pseudo.n_instances:
        return {}
    return pseudo_annotation_quality(pseudo, gold, is_rare)


def watched_accuracies(model: Any, X_train: Any, watch: Watch) -> dict[str, float]:
    """Accuracy and macro-F1 of a fitted model on the watched sets.

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
    """Which classes are among the half with fewer annotations, shape (n_classes,)."""
    counts = np.bincount(table.label, minlength=table.n_classes)
    is_rare = np.zeros(table.n_classes, dtype=bool)
    is_rare[np.argsort(counts, kind="stable")[: table.n_classes // 2]] = True
    return is_rare


def imbalance(table: AnnotationTable) -> float:
    """Ratio of the largest to the smallest number of annotations of a class that has any."""
    counts = np.bincount(table.label, minlength=table.n_classes)
    seen = counts[counts > 0]
    return float(seen.max() / seen.min()) if len(seen) else float("nan")


EXPECTED = 5
"""Missing annotations of a class that the crowd's shares must predict before their lack counts."""


@dataclass(eq=False)
class Unpredicted:
    """Classes of the crowd that no missing annotation is predicted to be of, by round.

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
        """Remember the classes that a round left out."""
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
            f"{name} added no pseudo-annotation of a class that the crowd gave, because no "
            f"missing annotation was predicted to be of it: {named}. To add some, use "
            "cover_classes=True (of DASCClassifier and DistributionAwareSelector); to have them "
            "predicted, balance the classes of the estimator (class_balance='reweight'), or "
            "give it a larger init_scale than its number, or init_scale='auto'"
        )
