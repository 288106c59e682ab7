"""Crowd-calibrated stacking."""

from manyhands.classifiers.stacking.classifier import CrowdStackingClassifier

__all__ = ["CrowdStackingClassifier"]
