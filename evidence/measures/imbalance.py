"""Measures under imbalanced classes: of annotations, of predictions, and of inferred labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.data.sets import Data
from evidence.measures.confusions import attribute
from manyhands.annotations.encoding import as_values, missing_mask
from manyhands.exceptions import AnnotationError
from manyhands.inference import MajorityVote
from manyhands.metrics import accuracy, minority_recall
from manyhands.metrics.gold import rarer_half
from manyhands.typing import AnyArray, BoolArray, FloatArray


def class_imbalance(model: Any, data: Data) -> dict[str, float]:
    """Measure imbalance: the largest class over the smallest, in annotations and in instances.

    Returns
    -------
    dict of str to float
        ``annotation_imbalance`` (R) and ``gold_imbalance`` (R_g) of the training part. Empty
        classes and instances without a label do not count.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    DASC (Machine Learning 2023), Tables 1 and 3, Fig. 4.
    """
    if data.y_train is None:
        raise AnnotationError(
            "y_train is None, so the imbalance of true classes is unknown; leave this measure out "
            "of its row"
        )
    values = as_values(data.y_train)
    gold = np.unique(values[~missing_mask(values)], return_counts=True)[1]
    given = np.unique(data.annotations.label, return_counts=True)[1]
    return {
        "annotation_imbalance": float(given.max() / given.min()),
        "gold_imbalance": float(gold.max() / gold.min()),
    }


def by_class(model: Any, data: Data) -> dict[str, float]:
    """Measure test figures with equal weights of classes, and with their weights in training.

    Both come from one confusion matrix with weighted rows; no second test part is drawn. The
    accuracies are the expected ones of test parts drawn with these shares of classes, with less
    variance. The macro-F1 is that of the expected confusion matrix.

    Parameters
    ----------
    model : classifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``balanced_accuracy`` (mean recall) and ``balanced_macro_f1``: every class of the test part
        has the same weight. ``natural_accuracy`` and ``natural_macro_f1``: classes have their
        shares in the gold labels of the training part (of the test part if those are unknown).
        ``minority_recall``: recall of the rarer half of the classes in the gold labels of the
        training part (in the annotations if those are unknown).

    Raises
    ------
    AnnotationError
        If the data have no test part, or if it lacks a minority class or all classes of training.

    Notes
    -----
    As in `manyhands.metrics.macro_f1`, the classes that occur in truth or prediction count.
    """
    if data.y_test is None:
        raise AnnotationError("y_test is None, so recall is unknown; use data with a test part")
    gold, predicted = np.asarray(data.y_test), np.asarray(model.predict(data.X_test))
    classes = np.unique(np.concatenate([gold, predicted]))
    counts = np.zeros((len(classes), len(classes)))
    np.add.at(counts, (np.searchsorted(classes, gold), np.searchsorted(classes, predicted)), 1)
    size = counts.sum(axis=1)
    rates = counts / np.maximum(size, 1)[:, None]
    known = _known_gold(data)
    trained = gold if known is None else known
    natural = (trained == classes[:, None]).sum(axis=1) * (size > 0)
    if not natural.any():
        raise AnnotationError(
            "y_test has no class of y_train, so recall is unknown; use a test part with its classes"
        )
    balanced, usual = (_accuracy_and_f1(rates, weight) for weight in (size > 0, natural))
    given = data.annotations.classes[data.annotations.label] if known is None else known
    return {
        "balanced_accuracy": balanced[0],
        "balanced_macro_f1": balanced[1],
        "natural_accuracy": usual[0],
        "natural_macro_f1": usual[1],
        "minority_recall": minority_recall(gold, predicted, minority=rarer_half(given)),
    }


def inference(model: Any, data: Data) -> dict[str, float]:
    """Measure how often inferred labels of training instances are right, over training.

    Parameters
    ----------
    model : ICEDClassifier
    data : Data
        With true classes of training instances.

    Returns
    -------
    dict of str to float
        ``<when>_accuracy`` and ``<when>_minority_recall`` (of the rarer half of the classes).
        <when> is "majority" (majority vote), "before" (labels inferred from the annotations
        alone), "first" (after the first round with synthetic instances) or "final" (after the
        last). Only real instances whose class is known count.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown, or if the model infers no labels
        or its history has no accuracy for the first round.

    References
    ----------
    ICED (SDM 2022), Fig. 2: MV, D&S-orig, D&S-first and D&S-final.
    """
    if _known_gold(data) is None:
        raise AnnotationError(
            "y_train has no true class to compare inferred labels with; leave this measure out of "
            "its row"
        )
    before, final = (attribute(model, name) for name in ("observed_posterior_", "posterior_"))
    gold = as_values(data.y_train)
    known = ~missing_mask(gold)
    first = next(
        (row for row in _rows_of(model, "train") if "inference_accuracy" in row),
        None,
    )
    if first is None:
        raise AnnotationError(
            f"history_ of {type(model).__name__} has no inference_accuracy in stage train; fit it "
            "in a row, or with watch=Watch(y_train=...)"
        )
    classes = np.asarray(model.classes_)
    labels = {
        "majority": MajorityVote().fit_predict(data.annotations),
        "before": classes[before.argmax(axis=1)],
        "final": classes[final.argmax(axis=1)],
    }
    found = {
        "first_accuracy": float(first["inference_accuracy"]),
        "first_minority_recall": float(first["inference_minority_recall"]),
    }
    for when, inferred in labels.items():
        found[f"{when}_accuracy"] = accuracy(gold[known], inferred[known])
        found[f"{when}_minority_recall"] = minority_recall(gold[known], inferred[known])
    return found


def warm_up(model: Any, data: Data) -> dict[str, float]:
    """Measure a classifier right after its warm-up, and the share of instances in the warm-up.

    Parameters
    ----------
    model : ICEDClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``warm_up_accuracy`` and ``warm_up_macro_f1`` on the test part; ``warm_up_share``, the share
        of training instances that the warm-up learns from.

    Raises
    ------
    AnnotationError
        If the history has no test accuracy in a stage "warm_up".

    References
    ----------
    ICED (SDM 2022), Table 3.
    """
    rows = [row for row in _rows_of(model, "warm_up") if "test_accuracy" in row]
    if not rows:
        raise AnnotationError(
            f"history_ of {type(model).__name__} has no test_accuracy in stage warm_up; leave this "
            "measure out of its row"
        )
    return {
        "warm_up_accuracy": float(rows[-1]["test_accuracy"]),
        "warm_up_macro_f1": float(rows[-1]["test_macro_f1"]),
        "warm_up_share": float(_warmed_up(model, data).mean()),
    }


def _accuracy_and_f1(rates: FloatArray, weight: AnyArray) -> tuple[float, float]:
    """Return accuracy and macro-F1 of a confusion matrix with rows summing to 1, rows weighted."""
    shares = weight / weight.sum()
    matrix = shares[:, None] * rates
    # 2 tp / (2 tp + fn + fp), over the classes that occur.
    sums = shares + matrix.sum(axis=0)
    f1 = 2 * np.diag(matrix)[sums > 0] / sums[sums > 0]
    return float(np.trace(matrix)), float(f1.mean())


def _known_gold(data: Data) -> AnyArray | None:
    """Return the known true classes of training instances, None if all are unknown."""
    if data.y_train is None:
        return None
    gold = as_values(data.y_train)
    known = gold[~missing_mask(gold)]
    return known if len(known) else None


def _rows_of(model: Any, stage: str) -> list[dict[str, Any]]:
    return [row for row in getattr(model, "history_", []) if row.get("stage") == stage]


def _warmed_up(model: Any, data: Data) -> BoolArray:
    """Return the training instances that a warm-up learns from."""
    from manyhands.classifiers.iced.warm_up import group_by_certainty, warm_up_phases

    warmed = np.zeros(data.annotations.n_instances, dtype=bool)
    groups = group_by_certainty(data.annotations, model.warm_up_groups)
    for rows in warm_up_phases(data.annotations, groups, model.warm_up):
        warmed[rows] = True
    return warmed
