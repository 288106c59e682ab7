"""NeuCrowd: embeddings learnt from n-tuplets of a few hundred labelled instances.

`classifier` holds the parameters and how tuplets are drawn, `training` the joint training of the
embedding and the sampling network, `transformer` the embedding as a scikit-learn transformer.
"""

from manyhands.classifiers.neucrowd.classifier import NeuCrowdClassifier
from manyhands.classifiers.neucrowd.transformer import NeuCrowdEmbedding

__all__ = ["NeuCrowdClassifier", "NeuCrowdEmbedding"]
