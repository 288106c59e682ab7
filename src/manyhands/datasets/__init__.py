"""Data sets and simulators of crowds; importing the package downloads nothing."""

from manyhands.datasets.aggregation import AGGREGATION_SETS, load_aggregation, load_judgebench
from manyhands.datasets.balance import thin_to_imbalance, with_balanced_test
from manyhands.datasets.base import CrowdDataset
from manyhands.datasets.cifar10 import load_cifar10h, load_cifar10n
from manyhands.datasets.colposcopy import load_colposcopy
from manyhands.datasets.demo import load_demo
from manyhands.datasets.gsad import load_gsad
from manyhands.datasets.hotel import load_hotel
from manyhands.datasets.iced import ICED_TASKS, make_iced_synthetic
from manyhands.datasets.imbalanced import IMBALANCED_TASKS, make_imbalanced_binary
from manyhands.datasets.labelme import load_labelme
from manyhands.datasets.long_tailed import make_long_tailed_cifar10h
from manyhands.datasets.low_quality import make_low_quality_cifar10h
from manyhands.datasets.music import load_music
from manyhands.datasets.neucrowd import make_neucrowd_synthetic
from manyhands.datasets.product import load_product
from manyhands.datasets.reports import load_reports
from manyhands.datasets.sentiment import load_sentiment
from manyhands.datasets.simulated_crowd import make_crowd
from manyhands.datasets.sparsity import remove_annotations
from manyhands.datasets.synthetic import (
    SimulatedCrowdDataset,
    make_conal_cifar10,
    make_conal_synthetic,
)
from manyhands.datasets.usps import load_usps

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
    "load_judgebench",
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
