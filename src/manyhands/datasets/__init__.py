"""Data sets and simulators of crowds; importing the package downloads nothing."""

from manyhands.datasets._aggregation import AGGREGATION_SETS, load_aggregation
from manyhands.datasets._balance import thin_to_imbalance, with_balanced_test
from manyhands.datasets._base import CrowdDataset
from manyhands.datasets._cifar10 import load_cifar10h, load_cifar10n
from manyhands.datasets._colposcopy import load_colposcopy
from manyhands.datasets._demo import load_demo
from manyhands.datasets._gsad import load_gsad
from manyhands.datasets._hotel import load_hotel
from manyhands.datasets._iced import ICED_TASKS, make_iced_synthetic
from manyhands.datasets._imbalanced import IMBALANCED_TASKS, make_imbalanced_binary
from manyhands.datasets._labelme import load_labelme
from manyhands.datasets._long_tailed import make_long_tailed_cifar10h
from manyhands.datasets._low_quality import make_low_quality_cifar10h
from manyhands.datasets._music import load_music
from manyhands.datasets._neucrowd import make_neucrowd_synthetic
from manyhands.datasets._product import load_product
from manyhands.datasets._reports import load_reports
from manyhands.datasets._sentiment import load_sentiment
from manyhands.datasets._sparsity import remove_annotations
from manyhands.datasets._synthetic import (
    SimulatedCrowdDataset,
    make_conal_cifar10,
    make_conal_synthetic,
)
from manyhands.datasets._usps import load_usps
from manyhands.datasets.simulated_crowd import make_crowd

__all__ = [
    "AGGREGATION_SETS",
    "ICED_TASKS",
    "IMBALANCED_TASKS",
    "CrowdDataset",
    "SimulatedCrowdDataset",
    "load_aggregation",
    "load_cifar10h",
    "load_cifar10n",
    "load_colposcopy",
    "load_demo",
    "load_gsad",
    "load_hotel",
    "load_labelme",
    "load_music",
    "load_product",
    "load_reports",
    "load_sentiment",
    "load_usps",
    "make_conal_cifar10",
    "make_conal_synthetic",
    "make_crowd",
    "make_iced_synthetic",
    "make_imbalanced_binary",
    "make_long_tailed_cifar10h",
    "make_low_quality_cifar10h",
    "make_neucrowd_synthetic",
    "remove_annotations",
    "thin_to_imbalance",
    "with_balanced_test",
]
