"""Prediction with a fitted classifier's network, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.fitting.reading import read_features
from manyhands.functional.ranks import over_ranks
from manyhands.inference.probability import floored_log
from manyhands.nn import CrowdModule
from manyhands.training import Features
from manyhands.typing import FloatArray, Instances, IntArray

if TYPE_CHECKING:
    from manyhands.fitting.method import Method

PREDICT_BATCH = 1024
"""Number of instances that a network predicts at once."""

GRID_ENTRIES = 1 << 24
"""Numbers of an (n, R, C) block that `annotation_grid` computes at once: 64 MiB."""


def device_of(model: Method) -> torch.device:
    """Return the device of a fitted classifier's network."""
    device: torch.device = next(model.module_.parameters()).device
    return device


def features_of(model: Method, X: Instances) -> Features:
    """Read instances for a fitted classifier's network."""
    weight = next(model.module_.parameters())
    features = Features(read_features(model, X, reset=False), weight.device, weight.dtype)
    features.check_shape(model.input_shape_)
    return features


@torch.inference_mode()
def apply(model: Method, function: Callable[[Tensor], Tensor], X: Instances) -> Tensor:
    """Apply a function of the fitted module to X, batch by batch."""
    features = features_of(model, X)
    rows = torch.arange(len(features))
    return torch.cat([function(x) for x in features.batches(rows, PREDICT_BATCH)])


def has_embedding(model: Method) -> bool:
    """Return whether the network of a classifier has an embedding, as all named backbones do.

    A classifier of sets of labels has several networks.
    """
    if hasattr(model, "options_"):
        return False
    module = getattr(model, "module_", None)
    if module is not None:
        return hasattr(module.classifier.backbone, "embed")
    spec = model._network
    return spec is None or isinstance(spec, str | dict) or hasattr(spec, "embed")


def class_proba(module: CrowdModule, features: Features, rows: IntArray) -> FloatArray:
    """Return the class probabilities that the network predicts for some rows, shape (m, n_classes).

    Leaves the module in evaluation mode.
    """
    module.eval()
    with torch.inference_mode():
        parts = [
            module(x).double().softmax(dim=1)
            for x in features.batches(torch.from_numpy(rows), PREDICT_BATCH)
        ]
        return cast(FloatArray, torch.cat(parts).cpu().numpy())


@torch.inference_mode()
def annotation_grid(model: Method, X: Instances, chosen: IntArray) -> FloatArray:
    """Return the probability of every class as the annotation by some annotators.

    Parameters
    ----------
    model : fitted BaseCrowdClassifier
    X : as in ``fit``
    chosen : integer array of shape (r,)
        Positions of annotators; -1 is a new annotator.

    Returns
    -------
    array of shape (n_samples, r, n_classes)
        float32; the last axis sums to 1.
    """
    # An annotator without annotations is treated like a new one.
    known = np.append(model.annotators_seen_, False)[chosen]
    features = features_of(model, X)
    columns = torch.from_numpy(chosen[known]).to(features.device)
    n_classes = len(model.classes_)
    proba = np.empty((len(features), len(chosen), n_classes), dtype=np.float32)
    size = max(1, min(PREDICT_BATCH, GRID_ENTRIES // max(1, len(chosen) * n_classes)))
    start = 0

    def grid(x: Tensor) -> Tensor:
        log_proba: Tensor = model.module_.annotation_log_proba_grid(x, columns)
        return log_proba.exp()

    for x in features.batches(torch.arange(len(features)), size):
        part = proba[start : start + len(x)]
        part[:, known] = over_ranks(model.module_, grid, x).cpu().numpy()
        if not known.all():
            part[:, ~known] = new_annotator_proba(model, model.module_(x))[:, None]
        start += len(x)
    return cast(FloatArray, proba)


def confusions_with_pooled(model: Method) -> FloatArray:
    """Return the confusion matrices, followed by that of a new annotator (at code -1)."""
    return np.concatenate([model.confusion_, model.pooled_confusion_[None]])


def _log_proba_of_rows(
    model: Method, X: Instances, table: AnnotationTable, annotators: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield what `observed_log_proba` does, from a second stage and confusion matrices, if any."""
    proba = model.predict_proba(X)
    size = max(1, GRID_ENTRIES // len(model.classes_) ** 2)
    for start in range(0, table.n_annotations, size):
        rows = np.arange(start, min(start + size, table.n_annotations))
        given = proba[table.instance[rows]]
        if hasattr(model, "confusion_"):
            confusion = confusions_with_pooled(model)[annotators[rows]]
            given = (given[:, None] @ confusion)[:, 0]
        yield rows, floored_log(given)


def observed_log_proba(
    model: Method, X: Instances, table: AnnotationTable, annotators: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield blocks of a table's rows with the log probability of every class.

    Parameters
    ----------
    model : fitted BaseCrowdClassifier
    X : as in ``fit``
    table : AnnotationTable
    annotators : integer array of shape (n_annotations,)
        Position of the annotator in every row of the table; -1 is a new annotator.

    Yields
    ------
    rows : integer array of shape (m,)
    log_proba : array of shape (m, n_classes)
    """
    if hasattr(model, "module_"):
        yield from _log_proba_of_network(model, X, table, annotators)
    else:
        yield from _log_proba_of_rows(model, X, table, annotators)


@torch.inference_mode()
def _log_proba_of_network(
    model: Method, X: Instances, table: AnnotationTable, annotators: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield what `observed_log_proba` does, from a network."""
    features = features_of(model, X)
    seen = np.append(model.annotators_seen_, False)[annotators]
    order, start = table.by_instance()
    order = np.arange(table.n_annotations) if order is None else order
    annotated = np.flatnonzero(np.diff(start))
    size = features.at_once(PREDICT_BATCH)
    for first in range(0, len(annotated), size):
        instances = annotated[first : first + size]
        rows = order[start[instances[0]] : start[instances[-1] + 1]]
        x = features.take(torch.from_numpy(instances))
        place = np.searchsorted(instances, table.instance[rows])
        own = seen[rows]
        log_proba = np.empty((len(rows), len(model.classes_)))
        pairs = np.stack([place[own], annotators[rows[own]]]).astype(np.int64)
        log_proba[own] = model.module_.annotation_log_proba(
            x, *torch.from_numpy(pairs).to(features.device)
        ).cpu()
        if not own.all():
            log_proba[~own] = floored_log(new_annotator_proba(model, model.module_(x)))[place[~own]]
        yield rows, log_proba


def collect_proba(
    blocks: Iterator[tuple[IntArray, FloatArray]], shape: tuple[int, int]
) -> FloatArray:
    """Collect the blocks of `observed_log_proba` as float32 probabilities."""
    proba = np.empty(shape, dtype=np.float32)
    for rows, log_proba in blocks:
        proba[rows] = np.exp(log_proba)
    return cast(FloatArray, proba)


def new_annotator_proba(model: Method, logits: Tensor) -> FloatArray:
    """Return the probability of every class as a new annotator's annotation, (n, n_classes)."""
    proba = logits.double().softmax(dim=1).cpu().numpy()
    pooled = getattr(model, "pooled_confusion_", None)
    return cast(FloatArray, proba if pooled is None else proba @ pooled)
