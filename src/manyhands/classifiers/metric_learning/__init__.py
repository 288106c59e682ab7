"""Metric learning on inferred labels: a classifier, its losses and its training.

`classifier` holds the parameters, `training` batches, losses and the training step, `transformer`
the embedding as a scikit-learn transformer.
"""

from manyhands.classifiers.metric_learning.classifier import MetricLearningClassifier
from manyhands.classifiers.metric_learning.transformer import MetricLearningEmbedding

__all__ = ["MetricLearningClassifier", "MetricLearningEmbedding"]
