"""Self-training: a crowd model predicts missing annotations, and is trained on them too.

.. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced Annotations
   (DASC). Machine Learning 112, 2023.
"""

from manyhands.classifiers.self_training.classifiers import (
    DASCClassifier,
    SelfTrainingCrowdClassifier,
)
from manyhands.classifiers.self_training.quality import pseudo_annotation_quality

__all__ = ["DASCClassifier", "SelfTrainingCrowdClassifier", "pseudo_annotation_quality"]
