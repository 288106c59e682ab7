"""The embedding of metric learning as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manyhands.classifiers.metric_learning.classifier import MetricLearningClassifier
from manyhands.fitting.transformer import CrowdEmbedding


@dataclass(kw_only=True, eq=False, repr=False)
class MetricLearningEmbedding(CrowdEmbedding):
    """The embedding of `MetricLearningClassifier` as a scikit-learn transformer.

    ``fit(X, table)`` learns the embedding from annotations; ``transform(X)`` embeds instances for
    nearest neighbours, clustering or plots, or as a step of a pipeline that ends in a crowd
    classifier. To save the model or resume its training, use `MetricLearningClassifier`, which has
    ``transform`` too.

    Parameters
    ----------
    backbone, loss, margin, miner, updates_per_epoch, loss_lr, aggregator, max_epochs, batch_size, \
lr, weight_decay, scaling, device, random_state, verbose
        See `MetricLearningClassifier`.

    Attributes
    ----------
    classifier_ : MetricLearningClassifier
        The classifier that learnt the embedding.
    history_ : History

    Examples
    --------
    >>> from manyhands import MetricLearningEmbedding, load_demo
    >>> demo = load_demo()
    >>> embedding = MetricLearningEmbedding(max_epochs=1, random_state=0)
    >>> embedding.fit(demo.X_train, demo.annotations).transform(demo.X_test[:3]).shape
    (3, 32)
    """

    _classifier = MetricLearningClassifier

    loss: Any = "triplet"
    margin: float | None = None
    miner: Any = None
    updates_per_epoch: int | str = "auto"
    loss_lr: float = 0.5
    batch_size: int = 64
