"""Measures of a crowd: the model plays no part."""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.data.sets import Data
from manyhands.exceptions import AnnotationError
from manyhands.inference.inputs import gold_codes

QUANTILES = np.linspace(0, 1, 21)
"""Shares of the annotators at which their numbers and accuracies are read, as a box plot does."""


def crowd_statistics(model: Any, data: Data) -> dict[str, Any]:
    """Count what the annotators of the training part gave, and how much of it is right.

    Returns
    -------
    dict
        ``training_instances``, ``test_instances``, ``annotators``; ``annotations_per_annotator``
        (mean); ``annotator_accuracy`` and ``annotator_accuracy_sd`` (mean and standard deviation
        over annotators, each with the same weight). At every ``quantile`` of the annotators:
        ``annotations_at_quantile``, ``share_annotated_at_quantile`` (of all training instances) and
        ``accuracy_at_quantile``. For the classes in the order of their gold shares, ``class_rank``
        with ``gold_class_share`` and ``annotation_class_share``. Only instances with a gold label
        count.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    DASC (Machine Learning 2023), Fig. 1, Tables 1 and 3. Chu & Wang (KDD 2021), Fig. 4.
    """
    if data.y_train is None:
        raise AnnotationError(
            "y_train is None, but the accuracy of annotators needs true classes; leave this "
            "measure out of its row"
        )
    table = data.annotations
    gold = gold_codes(data.y_train, table)
    known = gold[table.instance] >= 0
    annotator, given = table.annotator[known], table.label[known]
    right = given == gold[table.instance[known]]
    number = np.bincount(annotator, minlength=table.n_annotators)
    active = number > 0
    accuracy = np.bincount(annotator, right, table.n_annotators)[active] / number[active]
    known_instances = int((gold >= 0).sum())
    truth = np.bincount(gold[gold >= 0], minlength=table.n_classes)
    votes = np.bincount(given, minlength=table.n_classes)
    order = np.argsort(-truth, kind="stable")
    return {
        "training_instances": float(known_instances),
        "test_instances": float(0 if data.y_test is None else len(data.y_test)),
        "annotators": float(active.sum()),
        "annotations_per_annotator": float(number[active].mean()),
        "annotator_accuracy": float(accuracy.mean()),
        "annotator_accuracy_sd": float(accuracy.std()),
        "quantile": QUANTILES,
        "annotations_at_quantile": np.quantile(number[active], QUANTILES),
        "share_annotated_at_quantile": np.quantile(number[active], QUANTILES) / known_instances,
        "accuracy_at_quantile": np.quantile(accuracy, QUANTILES),
        "class_rank": np.arange(1.0, table.n_classes + 1),
        "gold_class_share": truth[order] / truth.sum(),
        "annotation_class_share": votes[order] / votes.sum(),
    }
