"""Data of rows: sets that the authors of papers made, made again; and variants of any set."""

from evidence.data.cifar10h import make_long_tailed_cifar10h, make_low_quality_cifar10h
from evidence.data.conal import make_conal_cifar10, make_conal_synthetic
from evidence.data.iced import ICED_TASKS, make_iced_synthetic
from evidence.data.imbalanced import IMBALANCED_TASKS, make_imbalanced_binary
from evidence.data.neucrowd import make_neucrowd_synthetic
from evidence.data.sets import Data, SimulatedCrowdDataset, load_data
from evidence.data.variants import (
    labelled_by_gold,
    remove_annotations,
    thin_to_imbalance,
    with_annotations_removed,
    with_balanced_test,
    with_fewer_instances,
    with_instances_repeated,
    with_rare_class_thinned,
    with_test_balanced,
)

__all__ = [
    "ICED_TASKS",
    "IMBALANCED_TASKS",
    "Data",
    "SimulatedCrowdDataset",
    "labelled_by_gold",
    "load_data",
    "make_conal_cifar10",
    "make_conal_synthetic",
    "make_iced_synthetic",
    "make_imbalanced_binary",
    "make_long_tailed_cifar10h",
    "make_low_quality_cifar10h",
    "make_neucrowd_synthetic",
    "remove_annotations",
    "thin_to_imbalance",
    "with_annotations_removed",
    "with_balanced_test",
    "with_fewer_instances",
    "with_instances_repeated",
    "with_rare_class_thinned",
    "with_test_balanced",
]
