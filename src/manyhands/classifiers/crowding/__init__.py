"""CrowdInG: a generator predicts missing annotations, from which the classifier learns.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
   https://doi.org/10.1145/3447548.3467409
"""

from manyhands.classifiers.crowding.classifier import CrowdInGClassifier, CrowdInGProtocol

__all__ = ["CrowdInGClassifier", "CrowdInGProtocol"]
