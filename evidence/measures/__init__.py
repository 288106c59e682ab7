"""Measures that rows ask for: functions of a fitted model and its data."""

from evidence.measures.classes import recall_by_class
from evidence.measures.confusions import (
    common_confusion_error,
    common_confusion_matrices,
    common_mistakes,
    individual_confusion_error,
    individual_confusion_matrices,
)
from evidence.measures.crowds import crowd_statistics
from evidence.measures.imbalance import by_class, class_imbalance, inference, warm_up
from evidence.measures.probabilities import accuracy_by_entropy, auc
from evidence.measures.training import start_accuracy, stopping_rule, watchdog

__all__ = [
    "accuracy_by_entropy",
    "auc",
    "by_class",
    "class_imbalance",
    "common_confusion_error",
    "common_confusion_matrices",
    "common_mistakes",
    "crowd_statistics",
    "individual_confusion_error",
    "individual_confusion_matrices",
    "inference",
    "recall_by_class",
    "start_accuracy",
    "stopping_rule",
    "warm_up",
    "watchdog",
]
