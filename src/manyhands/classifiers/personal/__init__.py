"""Personal classifiers: the classifier, the examples it reads, and its ADMM iteration."""

from manyhands.classifiers.personal.classifier import PersonalClassifier

__all__ = ["PersonalClassifier"]
