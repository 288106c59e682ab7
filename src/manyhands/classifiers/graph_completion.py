"""Graph completion: annotations of cells that nobody filled, from the graph of those that are.

.. [1] R. van den Berg, T. N. Kipf and M. Welling. Graph convolutional matrix completion. 2017.
   https://arxiv.org/abs/1706.02263
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import check_positions, resolve
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import all_or_nothing
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.fitting.reading import read_target
from manyhands.functional import annotation_nll
from manyhands.inference.inputs import check_annotations
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
    isolated_rng,
    pick_device,
    run_stages,
)
from manyhands.typing import BoolArray, FloatArray, IntArray


class GraphCompleter(BaseEstimator):
    """Complete a crowd's annotations by graph convolution (GC-MC) [1]_.

    Annotators and instances are nodes, annotations edges labelled with their class. Two graph
    convolutions, with a matrix for every class, pass messages along the edges; a bilinear decoder
    says how an annotator would annotate an instance. In every step a random part of the annotations
    is hidden, and these alone are to be predicted: none is explained by itself. It predicts
    annotations, and knows no true classes: for these, train a classifier on what it fills in
    (``SelfTrainingCrowdClassifier(annotator=GraphCompleter())``).

    Parameters
    ----------
    embedding_dim : int, default=64
        Numbers of a node's first state: an annotator's embedding, a dense layer on an instance.
    hidden : int, default=64
        Numbers of a node's state after either convolution.
    dropout : float, default=0.5
        Of the first states.
    hide : float, default=0.5
        Share of the annotated cells that is hidden in a step, and to be predicted.
    max_epochs : int, default=200
        Steps, each on the whole graph.
    lr : float, default=3e-3
        Learning rate of Adam.
    weight_decay : float, default=5e-4
    scaling : {"standard", "rms", None}, default="standard"
        Of the features; see `BaseCrowdClassifier`.
    validation : float or None, default=0.1
        Share of the annotations held out in training; the epoch that explains them best is kept.
        None keeps the last.
    patience : int or None, default=None
        With ``validation``: stop after so many epochs without improvement.
    device : str, default="auto"
    verbose : int, default=0
        1 shows a progress bar.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    module_ : GraphCompletionModule
    history_ : History
        A row an epoch: ``nll`` (of the hidden annotations), ``loss`` (the same),
        ``validation_nll`` (of the held-out ones, given all others), ``seconds``.
    best_epoch_ : int
        With ``validation``: the epoch that is kept.
    heard_ : array of bool, shape (n_annotators,)
        Who annotated anything. The others are expected to annotate as these do on average.
    instance_states_ : tensor of shape (n_samples, hidden + 1)
    annotator_states_ : tensor of shape (n_annotators, hidden + 1)
        Last states of the nodes, given all annotations.
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)

    Notes
    -----
    The cost of a step grows with the annotations and the annotated instances. All features of the
    annotated instances are held on the device. Weights of annotations act on the loss only.

    References
    ----------
    .. [1] van den Berg, Kipf & Welling, Graph convolutional matrix completion, 2017.

    Examples
    --------
    >>> from manyhands import GraphCompleter, load_demo
    >>> demo = load_demo()
    >>> model = GraphCompleter(max_epochs=5, random_state=0).fit(demo.X_train, demo.annotations)
    >>> proba = model.complete([0, 1])
    >>> proba.shape == (2, len(model.annotators_), len(model.classes_))
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "hidden": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "hide": [Interval(Real, 0, 1, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "scaling": [StrOptions({"standard", "rms"}), None],
        "validation": [None, Interval(Real, 0, 1, closed="neither")],
        "patience": [None, Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        embedding_dim: int = 64,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        hide: float = 0.5,
        max_epochs: int = 200,
        lr: float = 3e-3,
        weight_decay: float = 5e-4,
        scaling: str | None = "standard",
        validation: float | None = 0.1,
        patience: int | None = None,
        device: str = "auto",
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.hidden = hidden
        self.dropout = dropout
        self.hide = hide
        self.max_epochs = max_epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.scaling = scaling
        self.validation = validation
        self.patience = patience
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from annotations how others would be. A fit that fails changes nothing.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), array or tensor of
            shape (n_samples, *input_shape), or map-style torch Dataset
        y : AnnotationTable, or array of shape (n_samples, n_annotators) with -1/NaN missing

        Raises
        ------
        AnnotationError
            If X and y do not belong together, y is empty, or X is not finite.
        DivergenceError
            If the loss stops being finite.
        """
        with all_or_nothing(self):
            self._validate_params()
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        if self.patience is not None and self.validation is None:
            raise AnnotationError(
                f"patience={self.patience} needs something to watch; give validation= a fraction "
                "of the annotations"
            )
        table = read_target(y, type(self).__name__)
        X = self._read_features(X, reset=True)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if n_rows != table.n_instances:
            raise AnnotationError(
                f"X has {n_rows} rows but y has annotations for {table.n_instances} instances; "
                "give one row of X an instance, in the same order"
            )
        check_annotations(table, argument="y")
        self.classes_, self.annotators_ = np.array(table.classes), np.array(table.annotators)
        self.heard_: BoolArray = table.annotations_per_annotator() > 0
        device = pick_device(self.device)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with isolated_rng(seed, device):
            self._train(Features(X, device), table, np.random.default_rng(seed))

    def _read_features(self, X: Any, *, reset: bool) -> Any:
        """Check X and return a float array, a CSR matrix, or the Dataset itself."""
        if isinstance(X, torch.utils.data.Dataset):
            return X
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        X = validate_data(
            self, X, reset=reset, dtype=np.float32, accept_sparse="csr", allow_nd=True
        )
        if not reset and X.shape[1:] != self.input_shape_:
            raise AnnotationError(
                f"X has instances of shape {X.shape[1:]}, but {type(self).__name__} was fitted on "
                f"{self.input_shape_}"
            )
        return X

    def _train(self, features: Features, table: AnnotationTable, rng: np.random.Generator) -> None:
        kept, held = table, None
        if self.validation is not None:
            kept, held = hold_out(table, self.validation, rng)
        # Instances without annotations have no part in the graph.
        rows = np.unique(table.instance)
        x = features.take(torch.from_numpy(rows).to(features.device))
        module = self._make_module(features, x)
        graph = _Graph.of(kept, rows, features.device)
        step = GradientStep(module, self._objective, lambda: self._make_optimizer(module))
        stage = Stage("train", step, lambda epoch: [(x, graph)], self.max_epochs)
        callbacks, best = self._callbacks(module, x, graph.edges, held, rows)
        self.history_ = History()
        run_stages([stage], callbacks=callbacks, history=self.history_)
        if hasattr(self, "best_epoch_"):
            del self.best_epoch_  # of an earlier fit
        if best is not None:
            best.restore()
            self.best_epoch_: int = best.best["epoch"]
        self.module_ = module.eval()
        self._set_states(features, rows, x, _Graph.of(table, rows, features.device).edges)

    def _make_module(self, features: Features, x: Tensor) -> GraphCompletionModule:
        self.input_shape_ = tuple(features.input_shape)
        scaler = Standardize(self.input_shape_, self.scaling)
        scaler.fit_statistics(torch.split(x, PREDICT_BATCH))
        module = GraphCompletionModule(
            scaler,
            self.input_shape_,
            len(self.classes_),
            len(self.annotators_),
            embedding_dim=self.embedding_dim,
            hidden=self.hidden,
            dropout=self.dropout,
        )
        return module.to(features.device)

    def _make_optimizer(self, module: GraphCompletionModule) -> torch.optim.Optimizer:
        return torch.optim.Adam(module.parameters(), lr=self.lr, weight_decay=self.weight_decay)

    def _objective(
        self, module: GraphCompletionModule, batch: tuple[Tensor, _Graph]
    ) -> dict[str, Tensor]:
        x, graph = batch
        hidden = graph.hidden(self.hide)
        asked = graph.edges.where(hidden)
        log_proba = module.annotation_log_proba(
            x, graph.edges.where(~hidden), asked.instances, asked.annotators
        )
        weights = None if graph.weights is None else graph.weights[hidden]
        return {"nll": annotation_nll(log_proba, asked.labels, weights)}

    def _callbacks(
        self,
        module: GraphCompletionModule,
        x: Tensor,
        edges: AnnotationEdges,
        held: AnnotationTable | None,
        rows: IntArray,
    ) -> tuple[list[Callback], BestState | None]:
        callbacks: list[Callback] = []
        best: BestState | None = None
        if held is not None:
            asked = _Graph.of(held, rows, x.device)

            @torch.inference_mode()
            def explained() -> dict[str, float]:
                module.eval()
                log_proba = module.annotation_log_proba(
                    x, edges, asked.edges.instances, asked.edges.annotators
                )
                nll = annotation_nll(log_proba, asked.edges.labels, asked.weights)
                return {"validation_nll": float(nll)}

            best = BestState(module, "validation_nll", higher_is_better=False)
            callbacks += [Monitor(explained), best]
            if self.patience is not None:
                callbacks.append(
                    EarlyStopping("validation_nll", higher_is_better=False, patience=self.patience)
                )
        if self.verbose:
            callbacks.append(ProgressBar(type(self).__name__))
        return callbacks, best

    @torch.inference_mode()
    def _set_states(
        self, features: Features, rows: IntArray, x: Tensor, edges: AnnotationEdges
    ) -> None:
        """Keep the last states of all nodes, given all annotations."""
        instances, self.annotator_states_ = self.module_(x, edges)
        alone = self._alone(features)
        alone[torch.from_numpy(rows).to(alone.device)] = instances
        self.instance_states_ = alone

    def _alone(self, features: Features) -> Tensor:
        """Last states of instances without annotations, shape (n, hidden + 1)."""
        none = AnnotationEdges(*torch.zeros(3, 0, dtype=torch.int64, device=features.device))
        everything = torch.arange(len(features), device=features.device)
        parts = [self.module_(x, none)[0] for x in features.batches(everything, PREDICT_BATCH)]
        return torch.cat(parts)

    # -- prediction -----------------------------------------------------------------------------

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Probability of every class as the annotation, of instances by their features alone.

        Of instances of `fit`, `complete` knows more: their annotations.

        Parameters
        ----------
        X : as in `fit`
        annotators : ids, mask or slice, optional
            Default: all. Integers are positions if the ids are strings.

        Returns
        -------
        array of shape (n_samples, n_annotators, n_classes)
            float32; the last axis sums to 1.

        Raises
        ------
        AnnotationError
            If an annotator was not there in `fit`, or X has another shape.
        """
        check_is_fitted(self, "module_")
        device = self.annotator_states_.device
        features = Features(self._read_features(X, reset=False), device)
        with torch.inference_mode():
            return self._decode(self._alone(features), annotators)

    def complete(self, rows: Any, annotators: Any = None) -> FloatArray:
        """Probability of every class as the annotation, of instances that were there in `fit`.

        Parameters
        ----------
        rows : array of integers, shape (n_samples,)
            Positions in the X and y of `fit`.
        annotators : ids, mask or slice, optional

        Returns
        -------
        array of shape (n_samples, n_annotators, n_classes)
            float32; the last axis sums to 1. A cell that is annotated is predicted with its own
            annotation among those given.

        Raises
        ------
        AnnotationError
            If rows are no positions, or an annotator was not there in `fit`.
        IndexError
            If there is no such row.
        """
        check_is_fitted(self, "module_")
        wanted = np.asarray(rows)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            raise AnnotationError(
                f"rows has shape {wanted.shape} and type {wanted.dtype}; give positions in fit's "
                "X, such as [0, 1], or features to predict_annotation_proba"
            )
        chosen = check_positions(wanted.astype(np.int64), len(self.instance_states_), "rows")
        place = torch.from_numpy(chosen)
        with torch.inference_mode():
            states = self.instance_states_[place.to(self.instance_states_.device)]
            return self._decode(states, annotators)

    def _decode(self, states: Tensor, annotators: Any) -> FloatArray:
        chosen = resolve(
            slice(None) if annotators is None else annotators,
            self.annotators_,
            argument="annotators",
            vocabulary_name="annotators_",
        )
        heard = self.heard_[chosen]
        shape = (len(states), len(chosen), len(self.classes_))
        proba = np.empty(shape, dtype=np.float32)
        proba[:, heard] = self._grid(states, chosen[heard])
        if not heard.all():
            of_all = self._grid(states, np.flatnonzero(self.heard_))
            proba[:, ~heard] = of_all.mean(axis=1, keepdims=True)
        return cast(FloatArray, proba)

    def _grid(self, states: Tensor, chosen: IntArray) -> FloatArray:
        columns = self.annotator_states_[torch.from_numpy(chosen).to(states.device)]
        return cast(FloatArray, self.module_.decode(states, columns).exp().cpu().numpy())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


class _Graph(NamedTuple):
    """Edges, the annotated cell that each of them is of, and their weights (mean 1)."""

    edges: AnnotationEdges
    cells: Tensor
    n_cells: int
    weights: Tensor | None

    @classmethod
    def of(cls, table: AnnotationTable, rows: IntArray, device: torch.device) -> _Graph:
        """Graph of a table; instances are positions in ``rows``, which is sorted."""
        columns = (np.searchsorted(rows, table.instance), table.annotator, table.label)
        parts = (torch.from_numpy(np.array(part, dtype=np.int64)).to(device) for part in columns)
        cell = table.instance.astype(np.int64) * table.n_annotators + table.annotator
        found, first, place = np.unique(cell, return_index=True, return_inverse=True)
        # Numbered as they come, so that draws do not depend on the order of annotators.
        place = first.argsort().argsort()[place]
        weights: Tensor | None = None
        if table.weights is not None:
            relative = table.weights / table.weights.mean()
            weights = torch.from_numpy(relative).to(device, torch.float32)
        return cls(AnnotationEdges(*parts), torch.from_numpy(place).to(device), len(found), weights)

    def hidden(self, share: float) -> Tensor:
        """Draw what is hidden, shape (m,): all annotations of a cell, or none (1 cell at least)."""
        n_hidden = max(1, round(share * self.n_cells))
        is_hidden = torch.zeros(self.n_cells, dtype=torch.bool)
        is_hidden[torch.randperm(self.n_cells)[:n_hidden]] = True
        return is_hidden.to(self.cells.device)[self.cells]
