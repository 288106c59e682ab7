"""A simulated crowd that annotates labelled data."""

from manyhands.datasets.simulated_crowd.make import CrowdTruth, make_crowd

__all__ = ["CrowdTruth", "make_crowd"]
