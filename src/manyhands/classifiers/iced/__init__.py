"""ICED: the classifier, its label inference, its warm-up, its synthesis, and its rounds."""

from manyhands.classifiers.iced.classifier import ICEDClassifier, ICEDProtocol

__all__ = ["ICEDClassifier", "ICEDProtocol"]
