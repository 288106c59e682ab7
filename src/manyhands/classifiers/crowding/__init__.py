"""CrowdInG: the classifier, its adversarial training and its augmentation."""

from manyhands.classifiers.crowding.crowding import CrowdInGClassifier

__all__ = ["CrowdInGClassifier"]
