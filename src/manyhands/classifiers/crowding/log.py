"""Cells (instance, annotator) of a batch, and the log of annotations drawn for them.

The log keeps the probabilities from which the annotations were drawn. Learning from such a log,
without new draws, follows [1]_.

.. [1] T. Joachims, A. Swaminathan and M. de Rijke. Deep learning with logged bandit feedback.
   ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import DivergenceError
from manyhands.nn import (
    AnnotationGenerator,
    CrowdLayerGenerator,
    GenerativeCrowdModule,
    ScaledClassifier,
)
from manyhands.training import CrowdBatch

ENTROPY_MARGIN = 1e-4
"""Least distance of probabilities from 0 and 1 in an entropy, the value of the released code."""


class LoggedCells:
    """Cells (instance, annotator) of batches, and whether they are open.

    A cell is open if the annotator neither annotated nor passed the instance.

    Parameters
    ----------
    table : AnnotationTable
    per_instance : int or None
        Number of annotators drawn at random for every instance; None takes all with annotations.
    device : torch.device
    """

    def __init__(
        self, table: AnnotationTable, per_instance: int | None, device: torch.device
    ) -> None:
        seen = np.flatnonzero(table.annotations_per_annotator() > 0)
        self.n_annotators = table.n_annotators
        self.closed = torch.zeros(0, dtype=torch.int64, device=device)
        self.close(table)
        self.annotators = torch.from_numpy(seen).to(device)
        self.per_instance = per_instance

    def close(self, table: AnnotationTable) -> None:
        """Close also the cells with annotations or passes in a table."""
        passes = np.zeros((0, 3), dtype=np.int64) if table.passes is None else table.passes
        instance = np.concatenate([table.instance, passes[:, 0]]).astype(np.int64)
        key = instance * self.n_annotators + np.concatenate([table.annotator, passes[:, 1]])
        closed = torch.from_numpy(key.astype(np.int64)).to(self.closed.device)
        self.closed = torch.cat([self.closed, closed]).unique()  # type: ignore[no-untyped-call]

    def of(self, instances: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows (in ``instances``) and annotators of the cells of a batch, (m,)."""
        n, pool = len(instances), self.annotators
        rows = torch.arange(n, device=pool.device)
        if self.per_instance is None or self.per_instance >= len(pool):
            return rows.repeat_interleave(len(pool)), pool.repeat(n)
        # One annotator from each of k equal parts of a random order: all different, all equally
        # probable, and no sorting of all annotators for every instance.
        size, k = len(pool), self.per_instance
        bounds = torch.arange(k + 1, device=pool.device) * size // k
        width = bounds[1:] - bounds[:-1]
        place = bounds[:-1] + (torch.rand(n, k, device=pool.device) * width).long()
        shuffled = pool[torch.randperm(size, device=pool.device)]
        # The product may round up to the start of the next part.
        drawn = shuffled[torch.minimum(place, bounds[1:] - 1)].sort(dim=1).values
        return rows.repeat_interleave(self.per_instance), drawn.flatten()

    def are_open(self, instances: Tensor, annotators: Tensor) -> Tensor:
        """Return whether these cells are open, shape (m,)."""
        key = instances * self.n_annotators + annotators
        place = torch.searchsorted(self.closed, key).clamp_max(len(self.closed) - 1)
        return self.closed[place] != key


def observed_per_annotator(batch: CrowdBatch, n_annotators: int) -> Tensor:
    """Count each annotator's annotations in the batch, shape (n_annotators,)."""
    return torch.bincount(batch.annotators, minlength=n_annotators)


def clipped_entropy(proba: Tensor) -> Tensor:
    """Return the entropy of (m, n_classes) distributions in nats, clipped by `ENTROPY_MARGIN`."""
    clipped = proba.clamp(ENTROPY_MARGIN, 1 - ENTROPY_MARGIN)
    return -(clipped * clipped.log()).sum(dim=1)


def select_certain(
    uncertainty: Tensor, annotators: Tensor, quotas: Tensor, *, uniform: bool = False
) -> Tensor:
    """Draw cells with probability proportional to 1/H, without replacement, per annotator.

    Drawing k items with weights w without replacement takes those with the largest u^(1/w), u
    uniform (Efraimidis & Spirakis 2006). Here 1/w is the entropy H, and -log u is exponential, so
    the draw takes the smallest products of H and an exponential variable.

    Parameters
    ----------
    uncertainty : tensor of shape (m,)
        H of every cell.
    annotators : integer tensor of shape (m,)
    quotas : integer tensor of shape (n_annotators,)
        Number of cells to draw per annotator; all are taken if there are fewer.
    uniform : bool
        Draw with equal probability instead (the paper's variant R).

    Returns
    -------
    integer tensor of shape (k,)
        The chosen cells, in order.
    """
    key = torch.empty_like(uncertainty).exponential_()
    if not uniform:
        key = key * uncertainty
    by_key = key.argsort()
    order = by_key[annotators[by_key].argsort(stable=True)]
    counts = torch.bincount(annotators, minlength=len(quotas))
    first = counts.cumsum(0) - counts
    own = annotators[order]
    nth = torch.arange(len(order), device=order.device) - first[own]
    return order[nth < quotas[own]].sort().values


# -- the log --------------------------------------------------------------------------------------


Generator = AnnotationGenerator | CrowdLayerGenerator
Policy = tuple[ScaledClassifier, Generator]
"""The networks that draw annotations: a generator, and the classifier that gives its input."""


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
    cells: LoggedCells,
    batch: CrowdBatch,
    chunk_size: int,
) -> Log:
    """Draw an annotation of every cell of a batch.

    Parameters
    ----------
    module : GenerativeCrowdModule
    policy : (classifier, generator)
        The logging policy (G_0).
    cells : LoggedCells
    batch : CrowdBatch
    chunk_size : int
        Cells that the generator computes at once.

    Returns
    -------
    Log

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
    """Draw annotations of the annotated cells of a batch, shape (n_annotations,)."""
    classifier, generator = policy
    proba = classifier.logits(log.scaled).softmax(dim=1)
    noise = generator.draw_noise(len(batch.rows))
    log_proba = generator(log.features, proba, batch.rows, batch.annotators, noise)
    return log_proba.exp().multinomial(1)[:, 0]


@torch.no_grad()
def class_proba_of(classifier: ScaledClassifier, log: Log) -> Tensor:
    """Return a log's class probabilities by the present classifier, (n, n_classes)."""
    return classifier.logits(log.scaled).softmax(dim=1)


def chunks(n: int, size: int) -> Iterator[slice]:
    """Return the slices of at most ``size`` out of n; for n = 0, one empty slice."""
    for start in range(0, max(1, n), size):
        yield slice(start, start + size)
