"""Annotated examples of personal classifiers, as ADMM reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional as F

from manyhands.classifiers.doctor_net import annotation_weight
from manyhands.nn import AnnotatorHeadsModule
from manyhands.objectives import AnnotatorGroup, group_annotators
from manyhands.training import AnnotationBatches, CrowdBatch

RESIDENT_BYTES = 1 << 30
"""Examples up to this size are kept in double precision; larger ones are converted at each use."""


class Examples:
    """Annotated instances, scaled and in double precision, with annotators numbered from 1.

    Iterating yields all instances and annotations, in as few batches as memory allows.

    Parameters
    ----------
    module : AnnotatorHeadsModule
    batches : AnnotationBatches
    intercept : bool
        Whether to append a constant feature.

    Attributes
    ----------
    total_weight : float
        Sum of the weights of all annotations.
    active : integer tensor
        The annotators with annotations.
    number : integer tensor of shape (n_annotators,)
        Number of each annotator, from 1. Annotators without annotations have 0, which stands for
        the target.
    width : int
        Number of features, the constant one included.
    """

    def __init__(
        self, module: AnnotatorHeadsModule, batches: AnnotationBatches, *, intercept: bool
    ) -> None:
        self.module = module
        self.batches = batches
        self.intercept = intercept
        device = batches.features.device
        weight = annotation_weight(batches.table)
        self.total_weight = float(weight.sum())
        self.active = torch.from_numpy(np.flatnonzero(weight > 0)).to(device)
        self.number = torch.zeros(len(weight), dtype=torch.int64, device=device)
        self.number[self.active] = torch.arange(1, 1 + len(self.active), device=device)
        self.width = module.weight.shape[1] + intercept
        self._kept: list[list[AnnotatorGroup]] | None = None
        if 2 * 8 * batches.table.n_annotations * self.width <= RESIDENT_BYTES:
            whole = replace(batches, batch_size=len(batches.instances))
            self._kept = [self._read(batch) for batch in whole.in_order()]

    def __iter__(self) -> Iterator[list[AnnotatorGroup]]:
        return iter(self._kept) if self._kept else map(self._read, self.batches.in_order())

    def _read(self, batch: CrowdBatch) -> list[AnnotatorGroup]:
        x = self.module.embed(batch.x).double()
        if self.intercept:
            x = F.pad(x, (0, 1), value=1.0)
        return group_annotators(x, batch._replace(annotators=self.number[batch.annotators]))
