"""Metric learning on inferred labels: a classifier, its losses and its training.

`classifier` holds the parameters, and the embedding as a scikit-learn transformer; `training` holds
batches, losses and the training step.
"""

from manyhands.classifiers.metric_learning.classifier import (
    MetricLearningClassifier,
    MetricLearningEmbedding,
)

__all__ = ["MetricLearningClassifier", "MetricLearningEmbedding"]
