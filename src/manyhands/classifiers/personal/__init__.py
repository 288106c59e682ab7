"""Personal classifiers: the classifier, and its ADMM iteration over annotated examples."""

from manyhands.classifiers.personal.classifier import PersonalClassifier

__all__ = ["PersonalClassifier"]
