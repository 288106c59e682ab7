"""Data sets and simulators; nothing is fetched at import."""

from manyhands.datasets._aggregation import AGGREGATION_SETS, load_aggregation
from manyhands.datasets._base import CrowdDataset
from manyhands.datasets._colposcopy import load_colposcopy
from manyhands.datasets._crowd import make_crowd
from manyhands.datasets._demo import load_demo
from manyhands.datasets._labelme import load_labelme
from manyhands.datasets._music import load_music
from manyhands.datasets._product import load_product
from manyhands.datasets._reports import load_reports
from manyhands.datasets._sentiment import load_sentiment
from manyhands.datasets._synthetic import (
    SimulatedCrowdDataset,
    make_conal_cifar10,
    make_conal_synthetic,
)

__all__ = [
    "AGGREGATION_SETS",
    "CrowdDataset",
    "SimulatedCrowdDataset",
    "load_aggregation",
    "load_colposcopy",
    "load_demo",
    "load_labelme",
    "load_music",
    "load_product",
    "load_reports",
    "load_sentiment",
    "make_conal_cifar10",
    "make_conal_synthetic",
    "make_crowd",
]
