"""Cross-fitted EM: the classifier, its rounds of EM, and the members fitted out of fold."""

from manyhands.classifiers.cross_fitted.classifier import CrossFittedEMClassifier

__all__ = ["CrossFittedEMClassifier"]
