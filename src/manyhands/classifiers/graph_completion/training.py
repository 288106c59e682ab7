"""Training of a graph completion: its graph of annotations, its loss, and what watches it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.functional import annotation_nll
from manyhands.nn import AnnotationEdges, GraphCompletionModule, Standardize
from manyhands.training import (
    BestState,
    Callback,
    EarlyStopping,
    Features,
    GradientStep,
    History,
    Monitor,
    ProgressBar,
    Stage,
    hold_out,
    run_stages,
)
from manyhands.typing import IntArray


class AnnotationGraph(NamedTuple):
    """Annotations as edges, m in number.

    Attributes
    ----------
    edges : AnnotationEdges
    cells : integer tensor of shape (m,)
        Number of the (instance, annotator) cell that each edge belongs to, from 0.
    n_cells : int
    weights : tensor of shape (m,) or None
        Weights of the annotations, with mean 1.
    """

    edges: AnnotationEdges
    cells: Tensor
    n_cells: int
    weights: Tensor | None

    @classmethod
    def of(cls, table: AnnotationTable, rows: IntArray, device: torch.device) -> AnnotationGraph:
        """Make the graph of a table.

        Parameters
        ----------
        table : AnnotationTable
        rows : integer array of shape (n,)
            The annotated instances, sorted. Nodes are positions in it.
        device : torch.device
        """
        columns = (np.searchsorted(rows, table.instance), table.annotator, table.label)
        parts = (torch.from_numpy(np.array(part, dtype=np.int64)).to(device) for part in columns)
        cell = table.instance.astype(np.int64) * table.n_annotators + table.annotator
        distinct, first, cells = np.unique(cell, return_index=True, return_inverse=True)
        # Numbered in order of appearance: draws must not depend on the order of annotators.
        cells = first.argsort().argsort()[cells]
        weights: Tensor | None = None
        if table.weights is not None:
            relative = table.weights / table.weights.mean()
            weights = torch.from_numpy(relative).to(device, torch.float32)
        return cls(
            AnnotationEdges(*parts), torch.from_numpy(cells).to(device), len(distinct), weights
        )

    def draw_hidden(self, share: float) -> Tensor:
        """Draw the edges to hide: a share of the cells, at least one, each with all its edges.

        Returns
        -------
        bool tensor of shape (m,)
        """
        n_hidden = max(1, round(share * self.n_cells))
        is_hidden = torch.zeros(self.n_cells, dtype=torch.bool)
        is_hidden[torch.randperm(self.n_cells)[:n_hidden]] = True
        return is_hidden.to(self.cells.device)[self.cells]


@dataclass(eq=False)
class CompletionFit:
    """What one fit works with. It ends with the fit.

    Attributes
    ----------
    features : Features
        All instances.
    rows : integer array of shape (n,)
        The annotated instances, sorted. The others have no part in the graph.
    x : tensor of shape (n, *input_shape)
        Their features.
    graph : AnnotationGraph
        The annotations that are trained on.
    held : AnnotationGraph or None
        Those held out by ``validation``.
    whole : AnnotationGraph
        All of them.
    history : History
    module : GraphCompletionModule
    """

    features: Features
    rows: IntArray
    x: Tensor
    graph: AnnotationGraph
    held: AnnotationGraph | None
    whole: AnnotationGraph
    history: History = field(default_factory=History)
    module: GraphCompletionModule = field(init=False)

    @classmethod
    def of(
        cls,
        features: Features,
        table: AnnotationTable,
        validation: float | None,
        rng: np.random.Generator,
    ) -> CompletionFit:
        """Hold annotations out, and make the graphs."""
        kept, held = table, None
        if validation is not None:
            kept, held = hold_out(table, validation, rng)
        rows, device = np.unique(table.instance), features.device
        return cls(
            features,
            rows,
            features.take(torch.from_numpy(rows).to(device)),
            graph=AnnotationGraph.of(kept, rows, device),
            held=None if held is None else AnnotationGraph.of(held, rows, device),
            whole=AnnotationGraph.of(table, rows, device),
        )


def train(model: Any, fit: CompletionFit) -> BestState | None:
    """Train the network of a fit.

    Parameters
    ----------
    model : GraphCompleter
        Only its parameters are read.
    fit : CompletionFit
        Gets ``module`` and ``history``.

    Returns
    -------
    BestState or None
        With ``validation``: the epoch that explains the held-out annotations best, which the
        module is left in.
    """
    fit.module = module = _make_module(model, fit)
    step = GradientStep(
        module,
        lambda module, graph: hidden_annotations_loss(module, fit.x, graph, model.hide),
        lambda: torch.optim.Adam(module.parameters(), lr=model.lr, weight_decay=model.weight_decay),
    )
    stage = Stage("train", step, lambda epoch: [fit.graph], model.max_epochs)
    callbacks, best = _make_callbacks(model, fit)
    run_stages([stage], callbacks=callbacks, history=fit.history)
    if best is not None:
        best.restore()
    module.eval()
    return best


def _make_module(model: Any, fit: CompletionFit) -> GraphCompletionModule:
    shape = tuple(fit.features.input_shape)
    scaler = Standardize(shape, model.scaling)
    scaler.fit_statistics(torch.split(fit.x, PREDICT_BATCH))
    module = GraphCompletionModule(
        scaler,
        shape,
        len(model.classes_),
        len(model.annotators_),
        embedding_dim=model.embedding_dim,
        hidden=model.hidden,
        dropout=model.dropout,
    )
    return module.to(fit.features.device)


def hidden_annotations_loss(
    module: GraphCompletionModule, x: Tensor, graph: AnnotationGraph, share: float
) -> dict[str, Tensor]:
    """``nll`` of a random share of the annotated cells, predicted from the other cells."""
    is_hidden = graph.draw_hidden(share)
    hidden, visible = graph.edges.where(is_hidden), graph.edges.where(~is_hidden)
    log_proba = module.annotation_log_proba(x, visible, hidden.instances, hidden.annotators)
    weights = None if graph.weights is None else graph.weights[is_hidden]
    return {"nll": annotation_nll(log_proba, hidden.labels, weights)}


def _make_callbacks(model: Any, fit: CompletionFit) -> tuple[list[Callback], BestState | None]:
    callbacks: list[Callback] = []
    best: BestState | None = None
    if fit.held is not None:
        best = BestState(fit.module, "validation_nll", higher_is_better=False)
        callbacks += [Monitor(HeldOutMonitor(fit.module, fit.x, fit.graph.edges, fit.held)), best]
        if model.patience is not None:
            callbacks.append(
                EarlyStopping("validation_nll", higher_is_better=False, patience=model.patience)
            )
    if model.verbose:
        callbacks.append(ProgressBar(type(model).__name__))
    return callbacks, best


class HeldOutMonitor:
    """``validation_nll``: of held-out annotations, predicted from all others."""

    def __init__(
        self,
        module: GraphCompletionModule,
        x: Tensor,
        visible: AnnotationEdges,
        held: AnnotationGraph,
    ) -> None:
        self.module = module
        self.x = x
        self.visible = visible
        self.held = held

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        self.module.eval()
        edges = self.held.edges
        log_proba = self.module.annotation_log_proba(
            self.x, self.visible, edges.instances, edges.annotators
        )
        return {"validation_nll": float(annotation_nll(log_proba, edges.labels, self.held.weights))}


@torch.inference_mode()
def states_without_annotations(module: GraphCompletionModule, features: Features) -> Tensor:
    """Last states of instances by their features alone, shape (n, hidden + 1)."""
    none = AnnotationEdges(*torch.zeros(3, 0, dtype=torch.int64, device=features.device))
    every_row = torch.arange(len(features), device=features.device)
    parts = [module(x, none)[0] for x in features.batches(every_row, PREDICT_BATCH)]
    return torch.cat(parts)


@torch.inference_mode()
def last_states(fit: CompletionFit) -> tuple[Tensor, Tensor]:
    """Last states of all instances and annotators, given all annotations.

    Returns
    -------
    instances : tensor of shape (n_samples, hidden + 1)
    annotators : tensor of shape (n_annotators, hidden + 1)
    """
    annotated, annotators = fit.module(fit.x, fit.whole.edges)
    instances = states_without_annotations(fit.module, fit.features)
    instances[torch.from_numpy(fit.rows).to(instances.device)] = annotated
    return instances, annotators
