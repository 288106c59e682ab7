"""Annotations that a trained generator draws: for a fit's open cells, or for new instances."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.crowding.phases import DISCRIMINATOR, CrowdInGFit
from manyhands.fitting.prediction import PREDICT_BATCH, new_annotator_proba
from manyhands.nn import GenerativeCrowdModule
from manyhands.training import Features
from manyhands.typing import AnyArray, FloatArray, IntArray

CONFUSION_INSTANCES, CONFUSION_CELLS = 1024, 1 << 22
"""Limits of what ``confusion_`` is a mean over: this many instances, or fewer (at least 64) if they
have more cells than this."""


def generate_open_cells(fit: CrowdInGFit) -> AnnotationTable:
    """Draw annotations of open cells, selected as for the discriminator."""
    step = fit.state[DISCRIMINATOR]
    step.policy = None
    # Cells held out, or of weight 0, were open in training, but somebody did annotate them.
    step.cells.close(fit.given)
    parts = []
    for batch in fit.batches.in_order():
        log = step.draw(batch)
        chosen = step.select(batch, log)
        instances = batch.instances[log.rows[chosen]]
        parts.append(torch.stack([instances, log.annotators[chosen], log.labels[chosen]]))
    instance, annotator, label = torch.cat(parts, dim=1).cpu().numpy()
    table = fit.table
    generated = AnnotationTable(
        instance, annotator, label, table.instances, table.annotators, table.classes
    )
    return generated.with_source("generated")


def expected_confusion(fit: CrowdInGFit, n_annotators: int) -> FloatArray:
    """Mean of what the generator gives for annotated instances, by true class.

    Returns
    -------
    array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]; rows sum to 1.
    """
    device, instances = fit.features.device, fit.batches.instances
    n, most = len(instances), min(CONFUSION_INSTANCES, max(64, CONFUSION_CELLS // n_annotators))
    if n > most:
        place = torch.linspace(0, n - 1, most, device=device)
        instances = instances[place.long()]
    annotators = torch.arange(n_annotators, device=device)
    parts = fit.features.batches(instances, PREDICT_BATCH)
    confusion: FloatArray = fit.module.expected_confusion(parts, annotators).cpu().numpy()
    return confusion


def draw_grid(model: Any, features: Features, columns: IntArray) -> AnyArray:
    """Draw one annotation per instance and annotator.

    Parameters
    ----------
    model : fitted CrowdInGClassifier
    features : Features
    columns : integer array of shape (r,)
        Positions of annotators; -1 is a new one.

    Returns
    -------
    integer array of shape (n, r)
        Class codes.
    """
    module = cast(GenerativeCrowdModule, model.module_)
    is_known = np.append(model.heard_, False)[columns]
    known = torch.from_numpy(columns[is_known]).to(features.device)
    labels = np.empty((len(features), len(columns)), dtype=np.int64)
    size = max(1, min(PREDICT_BATCH, model.chunk_size // max(1, len(columns))))
    start = 0
    for x in features.batches(torch.arange(len(features)), size):
        part = labels[start : start + len(x)]
        rows = torch.arange(len(x), device=x.device).repeat_interleave(len(known))
        noise = module.generator.draw_noise(len(rows))
        proba = module.annotation_log_proba(x, rows, known.repeat(len(x)), noise).exp()
        if len(rows):
            part[:, is_known] = proba.multinomial(1).view(len(x), len(known)).cpu().numpy()
        if not is_known.all():
            crowd = torch.from_numpy(new_annotator_proba(model, module(x)))
            drawn = crowd.multinomial(int((~is_known).sum()), replacement=True)
            part[:, ~is_known] = drawn.numpy()
        start += len(x)
    return labels
