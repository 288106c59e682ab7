"""NeuCrowd's embedding as a scikit-learn transformer.

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

from manyhands.classifiers.neucrowd.classifier import NeuCrowdClassifier
from manyhands.fitting.transformer import CrowdEmbedding


@dataclass(kw_only=True, eq=False, repr=False)
class NeuCrowdEmbedding(CrowdEmbedding):
    """The embedding of `NeuCrowdClassifier` as a scikit-learn transformer [1]_.

    ``fit(X, table)`` learns the embedding from annotations; ``transform(X)`` embeds instances for
    nearest neighbours, clustering or plots, or as a step of a pipeline. End the pipeline in a crowd
    classifier such as ``AggregatedClassifier(backbone=KNeighborsClassifier(), targets="hard")``: a
    scikit-learn classifier would take the annotations for several outputs. To save the model or
    resume its training, use `NeuCrowdClassifier`, which has ``transform`` too.

    Parameters
    ----------
    backbone, aggregator, tuplet_size, n_tuplets, safety_aware, unsafe_weight, n_neighbors, \
safety_margin, robust_anchor, normalize_anchor, sampling_network, n_candidates, sampler_lr, \
assurance, softmax, eta, similarity_constant, max_epochs, batch_size, lr, weight_decay, scaling, \
device, random_state, verbose
        See `NeuCrowdClassifier`.

    Attributes
    ----------
    classifier_ : NeuCrowdClassifier
        The classifier that learnt the embedding.
    history_ : History

    References
    ----------
    .. [1] Hao, Ding & Liu, NeuCrowd, Knowledge and Information Systems 2022.

    Examples
    --------
    >>> from manyhands import NeuCrowdEmbedding, load_demo
    >>> demo = load_demo()
    >>> embedding = NeuCrowdEmbedding(max_epochs=1, n_tuplets=256, random_state=0)
    >>> embedding.fit(demo.X_train, demo.annotations).transform(demo.X_test[:3]).shape
    (3, 32)
    """

    _classifier = NeuCrowdClassifier

    tuplet_size: int = 5
    n_tuplets: int | str = "auto"
    safety_aware: bool = True
    unsafe_weight: float = 0.3
    n_neighbors: int | str = "auto"
    safety_margin: float = 0.0
    robust_anchor: bool = True
    normalize_anchor: bool = True
    sampling_network: bool = True
    n_candidates: int = 2
    sampler_lr: float = 1e-3
    assurance: bool = True
    softmax: str = "paper"
    eta: float = 5.0
    similarity_constant: float = 1.0
    batch_size: int = 256
