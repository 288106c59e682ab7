"""NeuCrowd: embeddings learnt from n-tuplets of a few hundred labelled instances.

`classifier` holds the parameters, how tuplets are drawn, and the embedding as a scikit-learn
transformer; `training` holds the joint training of the embedding and the sampling network.
"""

from manyhands.classifiers.neucrowd.classifier import NeuCrowdClassifier, NeuCrowdEmbedding

__all__ = ["NeuCrowdClassifier", "NeuCrowdEmbedding"]
