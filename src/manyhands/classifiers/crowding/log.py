"""The log of a batch: annotations drawn for its cells, with the probabilities they were drawn by.

Learning from a log of drawn annotations, without drawing anew, is that of [1]_.

.. [1] T. Joachims, A. Swaminathan and M. de Rijke. Deep learning with logged bandit feedback.
   ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from manyhands.classifiers.crowding.cells import Cells, clipped_entropy
from manyhands.exceptions import DivergenceError
from manyhands.nn import (
    AnnotationGenerator,
    CrowdLayerGenerator,
    GenerativeCrowdModule,
    ScaledClassifier,
)
from manyhands.training import CrowdBatch

Generator = AnnotationGenerator | CrowdLayerGenerator
Policy = tuple[ScaledClassifier, Generator]
"""What annotations are drawn by: a generator, and the classifier whose output it sees."""


@dataclass
class Log:
    """Drawn annotations of m cells of n instances.

    Attributes
    ----------
    scaled : tensor of shape (n, *input_shape)
        Input of the classifier.
    features : tensor of shape (n, n_features)
        Input of the other networks.
    rows, annotators : integer tensors of shape (m,)
        The cells.
    noise : tensor of shape (m, n_classes)
        Input of the generator.
    labels : integer tensor of shape (m,)
        One drawn annotation per cell.
    log_proba : tensor of shape (m,)
        Log probability of the drawn annotation when it was drawn.
    uncertainty : tensor of shape (m,)
        Entropy of the cell's distribution.
    """

    scaled: Tensor
    features: Tensor
    rows: Tensor
    annotators: Tensor
    noise: Tensor
    labels: Tensor
    log_proba: Tensor
    uncertainty: Tensor


@torch.no_grad()
def draw_log(
    module: GenerativeCrowdModule,
    policy: Policy,
    cells: Cells,
    batch: CrowdBatch,
    chunk_size: int,
) -> Log:
    """Draw an annotation of every cell of a batch.

    Parameters
    ----------
    module : GenerativeCrowdModule
    policy : (classifier, generator)
        The logging policy (G_0).
    cells : Cells
    batch : CrowdBatch
    chunk_size : int
        Cells that the generator computes at once.

    Raises
    ------
    DivergenceError
        If the generator's output is NaN.
    """
    classifier, generator = policy
    scaled = module.classifier.scaler(batch.x)
    proba = classifier.logits(scaled).softmax(dim=1)
    rows, annotators = cells.of(batch.instances)
    noise = generator.draw_noise(len(rows))
    features = module.represent(scaled)
    parts = [
        generator(features, proba, rows[p], annotators[p], noise[p])
        for p in chunks(len(rows), chunk_size)
    ]
    log_proba = torch.cat(parts)
    if bool(log_proba.isnan().any()):
        raise DivergenceError(
            "the generator's output became NaN in the adversarial phase; lower generator_lr, "
            "classifier_lr or pretraining_lr"
        )
    labels = log_proba.exp().multinomial(1)
    return Log(
        scaled,
        features,
        rows,
        annotators,
        noise,
        labels[:, 0],
        log_proba.gather(1, labels)[:, 0],
        clipped_entropy(log_proba.exp()),
    )


@torch.no_grad()
def draw_observed_cells(policy: Policy, batch: CrowdBatch, log: Log) -> Tensor:
    """Draw annotations of the cells that a batch has annotations of, shape (n_annotations,)."""
    classifier, generator = policy
    proba = classifier.logits(log.scaled).softmax(dim=1)
    noise = generator.draw_noise(len(batch.rows))
    log_proba = generator(log.features, proba, batch.rows, batch.annotators, noise)
    return log_proba.exp().multinomial(1)[:, 0]


@torch.no_grad()
def class_proba_of(classifier: ScaledClassifier, log: Log) -> Tensor:
    """Class probabilities of a log's instances by the classifier as it is, (n, n_classes)."""
    return classifier.logits(log.scaled).softmax(dim=1)


def chunks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most ``size`` out of n; for n = 0, one empty slice."""
    for start in range(0, max(1, n), size):
        yield slice(start, start + size)
