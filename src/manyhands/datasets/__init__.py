"""Data sets and simulators of crowds; importing the package downloads nothing."""

from manyhands.datasets.aggregation import AGGREGATION_SETS, load_aggregation, load_judgebench
from manyhands.datasets.base import CrowdDataset
from manyhands.datasets.cifar10 import load_cifar10h, load_cifar10n
from manyhands.datasets.colposcopy import load_colposcopy
from manyhands.datasets.demo import load_demo
from manyhands.datasets.gsad import load_gsad
from manyhands.datasets.hotel import load_hotel
from manyhands.datasets.labelme import load_labelme
from manyhands.datasets.music import load_music
from manyhands.datasets.product import load_product
from manyhands.datasets.reports import load_reports
from manyhands.datasets.sentiment import load_sentiment
from manyhands.datasets.simulated_crowd import make_crowd
from manyhands.datasets.usps import load_usps

__all__ = [
    "AGGREGATION_SETS",
    "CrowdDataset",
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
    "make_crowd",
]
