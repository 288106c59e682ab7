"""Data sets and simulators; nothing is fetched at import."""

from manyhands.datasets._base import CrowdDataset
from manyhands.datasets._crowd import make_crowd
from manyhands.datasets._demo import load_demo
from manyhands.datasets._labelme import load_labelme
from manyhands.datasets._music import load_music

__all__ = ["CrowdDataset", "load_demo", "load_labelme", "load_music", "make_crowd"]
