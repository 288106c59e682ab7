"""Callbacks of a fit: the epoch, measures after every epoch, the best state, early stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.annotations.target import in_order_of_rows
from manyhands.decision.labels import is_scale_of_grades
from manyhands.decision.rules import apply_rule, is_posterior, settled
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Fit, Followed
from manyhands.fitting.method_protocol import flat_parameters
from manyhands.fitting.parameters import describe_parameter
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.fitting.reading import n_rows, read_features, refuse_names_of_columns
from manyhands.functional.ranks import active_ranks, in_first_process
from manyhands.metrics.vote_shares import row_shares, vote_weights
from manyhands.nn import CrowdModule
from manyhands.objectives import crowd_nll
from manyhands.training import (
    AnnotationBatches,
    BestState,
    Callback,
    EarlyStopping,
    Features,
    Monitor,
    ProgressBar,
    Stage,
    WeightSync,
    first_process_callbacks,
    isolated_rng,
)
from manyhands.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from manyhands.fitting.method import Method


def announce(model: Method, fit: Fit[Any, Any], stages: Sequence[Stage]) -> None:
    """Call ``on_fit_begin`` of the user's callbacks."""
    if not fit.recipe.callbacks or not in_first_process():
        return
    weights = [part.numel() for part in fit.module.parameters() if part.requires_grad]
    facts = {
        "classifier": type(model).__name__,
        "parameters": {
            name: describe_parameter(value)
            for name, value in flat_parameters(model).items()
            if name != "callbacks"
        },
        "n_instances": len(fit.batches.instances),
        "n_annotations": fit.table.n_annotations,
        "n_annotators": fit.table.n_annotators,
        "n_classes": fit.table.n_classes,
        "n_weights": sum(weights),
        "device": str(fit.features.device),
        "n_epochs": fit.n_epochs,
        "stages": {stage.name: stage.max_epochs for stage in stages},
        "history": [dict(row) for row in fit.history],
    }
    for callback in fit.recipe.callbacks:
        callback.on_fit_begin(model, facts)


@contextmanager
def reporting_end(model: Method) -> Iterator[None]:
    """Call ``on_fit_end`` of the user's callbacks after the block, whether or not it failed.

    All are called, even if one of them fails.
    """
    waiting = list(model.callbacks or ()) if in_first_process() else []
    try:
        yield
        while waiting:
            waiting.pop(0).on_fit_end(model, None)
    except BaseException as error:
        for callback in waiting:
            try:
                callback.on_fit_end(model, error)
            except Exception as another:
                error.add_note(f"{type(callback).__name__}.on_fit_end failed too: {another!r}")
        raise


class EpochClock(Callback):
    """Sets ``fit.epoch`` to the current epoch."""

    def __init__(self, fit: Fit[Any, Any]) -> None:
        self.fit = fit

    def on_epoch_begin(self, epoch: int) -> None:
        """Set the epoch."""
        self.fit.epoch = epoch


def make_callbacks(model: Method, fit: Fit[Any, Any]) -> tuple[list[Callback], BestState | None]:
    """Make the callbacks of a fit, and return which one keeps the best state.

    Parameters
    ----------
    model : BaseCrowdClassifier
    fit : Fit

    Returns
    -------
    callbacks : list of Callback
        In the order in which they are called.
    best : BestState or None
        The callback that keeps the best state; None without ``validation``.
    """
    callbacks: list[Callback] = [EpochClock(fit), Monitor(lambda: fit.facts)]
    if active_ranks() is not None:
        callbacks.append(WeightSync(fit.module))
    best: BestState | None = None
    recipe = fit.recipe
    if recipe.validation is not None and fit.earlier is None:
        monitor, metric, higher, values = _validation(model, fit)
        best = BestState(
            fit.module,
            metric,
            higher_is_better=higher,
            last_stage_only=model._traits.validates_last_stage_only,
            values=values,
        )
        callbacks += [Monitor(monitor), best]
        if recipe.patience is not None:
            callbacks.append(
                EarlyStopping(
                    metric,
                    higher_is_better=higher,
                    patience=recipe.patience,
                    exempt=model._traits.preparatory_stages,
                )
            )
    callbacks += [*_watchers(model, fit), *first_process_callbacks(recipe.callbacks)]
    if recipe.verbose and in_first_process():
        callbacks.append(ProgressBar(recipe.title))
    return callbacks, best


def _validation(
    model: Method, fit: Fit[Any, Any]
) -> tuple[Callable[[], dict[str, float]], str, bool, Callable[[], FloatArray] | None]:
    """Return the monitor that compares epochs, its metric, and whether higher is better.

    The last item returns the values of instances that `BestState` compares, or is None.
    """
    if fit.held is None:
        gold = _gold_monitor(model, fit, "validation", fit.recipe.validation)
        return gold, "validation_accuracy", True, None
    if fit.recipe.monitor == "likelihood":
        batches = AnnotationBatches(fit.features, fit.held, PREDICT_BATCH)
        return AnnotationMonitor(fit.module, batches), "validation_nll", False, None
    rows = np.flatnonzero(fit.held.annotations_per_instance())
    monitor = AgreementMonitor(make_predictor(fit, fit.features, rows), fit.held)
    return monitor, "validation_agreement", True, lambda: monitor.values


def _watchers(model: Method, fit: Fit[Any, Any]) -> list[Callback]:
    """Return monitors of those watched sets that have the shape of the training instances."""
    watchers: list[Callback] = []
    for name, part in fit.watch.sets.items():
        shape = getattr(part[0], "shape", None)
        if shape is None or fit.features.is_dataset or shape[1:] == fit.features.input_shape:
            watchers.append(Monitor(Watcher(name, _gold_monitor(model, fit, name, part))))
    followed = fit.watch.followed
    if followed is not None:
        features = Features(read_features(model, followed.X, reset=False), fit.features.device)
        predictor = Predictor(fit.module, features, PREDICT_BATCH)
        watchers.append(Monitor(Follower(followed, predictor)))
    return watchers


def make_predictor(
    fit: Fit[Any, Any], features: Features, rows: IntArray | None = None
) -> Predictor:
    """Return a predictor with the network in training, by the rule of ``predict``."""
    rule = settled(fit.recipe.decision, grades=is_scale_of_grades(fit.table))

    def decide(proba: FloatArray) -> IntArray:
        return apply_rule(proba, rule, fit.found.get("class_prior_"))

    given = None if is_posterior(rule) else decide
    return Predictor(fit.module, features, PREDICT_BATCH, given, rows)


def _gold_monitor(model: Method, fit: Fit[Any, Any], name: str, part: Any) -> GoldMonitor:
    """Return the monitor of a named set (X, y_gold)."""
    if len(part) != 2:
        raise AnnotationError(
            f"{name} has {len(part)} parts; give (X, y_gold), a fraction of the instances, or None"
        )
    X, y_gold = part
    refuse_names_of_columns(model, X, name)
    gold = as_values(in_order_of_rows(X, y_gold, argument=name))
    X = read_features(model, X, reset=False)
    if gold.shape != (n_rows(X),):
        raise AnnotationError(
            f"{name} has {n_rows(X)} rows of X but gold labels of shape {gold.shape}; "
            "give one label per row"
        )
    if missing_mask(gold).any():
        raise AnnotationError(
            f"{name}'s y_gold is missing in row {np.flatnonzero(missing_mask(gold))[0]}; "
            "leave out rows without gold labels"
        )
    codes, _ = encode(gold, model.classes_, argument=f"{name}'s y_gold", vocabulary_name="classes_")
    features = Features(X, fit.features.device)
    return GoldMonitor(make_predictor(fit, features), torch.from_numpy(codes))


# -- measures taken after every epoch: on held-out instances or annotations, on gold labels -------


CROWD_PSEUDO_ANNOTATIONS = 2.0
"""Number of pseudo-annotations that `ClassifierMonitor` adds to every row of a confusion matrix."""


class AnnotationMonitor:
    """``validation_nll``: mean negative log likelihood of held-out annotations."""

    def __init__(self, module: CrowdModule, batches: AnnotationBatches) -> None:
        self.module = module
        self.batches = batches

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        self.module.eval()
        total, weight = 0.0, 0.0
        for batch in self.batches.in_order():
            size = len(batch.labels)
            total += size * float(crowd_nll(self.module, batch)["nll"])
            weight += size if batch.weights is None else float(batch.weights.sum())
        return {"validation_nll": total / weight}


class ClassifierMonitor:
    """``validation_classifier_nll``: NLL of held-out annotations, judging the classifier alone.

    The annotators' confusion matrices are counted, not learnt: the training annotations are counted
    against the classifier's probabilities, and every row gets `CROWD_PSEUDO_ANNOTATIONS` more,
    distributed as the crowd's are. Classifiers can therefore be compared whatever annotation model
    they were trained with.

    Parameters
    ----------
    module : CrowdModule
    features : Features
    table, held : AnnotationTable
        Annotations to count, and to explain.
    """

    def __init__(
        self, module: CrowdModule, features: Features, table: AnnotationTable, held: AnnotationTable
    ) -> None:
        self.module = module
        self.features = features
        self.n_annotators, self.n_classes = table.n_annotators, table.n_classes
        self.instances, place = np.unique(
            np.concatenate([table.instance, held.instance]), return_inverse=True
        )
        table_place, held_place = np.split(place, [table.n_annotations])
        self.table = _columns(table_place, table, features.device)
        self.held = _columns(held_place, held, features.device)

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate the classifier as it is."""
        self.module.eval()
        parts = self.features.batches(torch.from_numpy(self.instances), PREDICT_BATCH)
        proba = torch.cat([self.module(x).double().softmax(dim=1) for x in parts])
        confusion = self._confusions(proba)
        place, annotator, label, weight = self.held
        likelihood = (proba[place] * confusion[annotator, :, label]).sum(dim=1)
        nll = -(weight @ likelihood.clamp_min(1e-12).log()) / weight.sum()
        return {"validation_classifier_nll": float(nll)}

    def _confusions(self, proba: Tensor) -> Tensor:
        """Return the confusion matrices, shape (n_annotators, n_classes, n_classes)."""
        place, annotator, label, weight = self.table
        counts = proba.new_zeros(self.n_annotators * self.n_classes, self.n_classes)
        counts.index_add_(0, annotator * self.n_classes + label, proba[place] * weight[:, None])
        counts = counts.view(self.n_annotators, self.n_classes, -1).transpose(1, 2)
        # The added count keeps classes possible that nobody gave.
        pooled = counts.sum(dim=0) + 1 / self.n_classes
        pooled = pooled / pooled.sum(dim=1, keepdim=True)
        counts = counts + CROWD_PSEUDO_ANNOTATIONS * pooled
        return counts / counts.sum(dim=2, keepdim=True)


def _columns(
    place: IntArray, table: AnnotationTable, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a table's columns as tensors: instance, annotator, label, weight (mean 1)."""
    annotator, label, weight = (
        torch.from_numpy(column.astype(kind)).to(device)
        for column, kind in (
            (table.annotator, np.int64),
            (table.label, np.int64),
            (table.weight / table.weight.mean(), np.float64),
        )
    )
    return torch.from_numpy(place).to(device), annotator, label, weight


class Predictor:
    """Predictions of a network that is in training.

    Parameters
    ----------
    module : CrowdModule
    features : Features
    batch_size : int
    decide : callable (proba) -> codes, optional
        Rule of ``predict``, unless that is the most probable class.
    rows : integer array of shape (n,), optional
        The instances to predict; default: all.
    """

    def __init__(
        self,
        module: CrowdModule,
        features: Features,
        batch_size: int,
        decide: Callable[[FloatArray], IntArray] | None = None,
        rows: IntArray | None = None,
    ) -> None:
        self.module = module
        self.features = features
        self.batch_size = batch_size
        self.decide = decide
        self.rows = torch.from_numpy(np.arange(len(features)) if rows is None else rows)

    @torch.inference_mode()
    def predicted(self) -> Tensor:
        """Return the class codes, shape (n,)."""
        self.module.eval()
        parts = [self.module(x) for x in self.features.batches(self.rows, self.batch_size)]
        logits = torch.cat(parts)
        if self.decide is None:
            return logits.argmax(dim=1).cpu()
        proba = logits.double().softmax(dim=1).cpu().numpy()
        return torch.from_numpy(self.decide(proba))

    def quietly_predicted(self) -> Tensor:
        """Return the class codes, shape (n,), without any effect on the training."""
        modes = [(part, part.training) for part in self.module.modules()]
        # A backbone or a Dataset may draw random numbers even in prediction.
        with isolated_rng(0, self.features.device):
            predicted = self.predicted()
        for part, mode in modes:
            part.training = mode
        return predicted


class GoldMonitor:
    """``validation_accuracy``: share of gold labels predicted correctly.

    Parameters
    ----------
    predictor : Predictor
    gold : integer tensor of shape (n,)
        Class codes.
    """

    def __init__(self, predictor: Predictor, gold: Tensor) -> None:
        self.predictor = predictor
        self.gold = gold

    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        return {"validation_accuracy": self.accuracy_of(self.predictor.predicted())}

    def accuracy_of(self, predicted: Tensor) -> float:
        """Return the share of correct codes."""
        return float((predicted == self.gold).double().mean())


class AgreementMonitor:
    """``validation_agreement``: `vote_agreement` of the network on held-out instances.

    Parameters
    ----------
    predictor : Predictor
        Predicts the annotated instances of ``held``, in the order of the table.
    held : AnnotationTable

    Attributes
    ----------
    values : array of shape (n,)
        The agreement on every instance, after the last evaluation.
    """

    def __init__(self, predictor: Predictor, held: AnnotationTable) -> None:
        self.predictor = predictor
        shares = row_shares(vote_weights(held))
        self.shares = shares[held.annotations_per_instance() > 0]
        self.values: FloatArray = np.zeros(len(self.shares))

    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        codes = self.predictor.predicted().numpy()
        self.values = self.shares[np.arange(len(codes)), codes]
        return {"validation_agreement": float(self.values.mean())}


class Watcher:
    """Accuracy and macro-F1 of a gold monitor's predictions, without affecting the training."""

    def __init__(self, name: str, gold: GoldMonitor) -> None:
        self.name = name
        self.gold = gold

    def __call__(self) -> dict[str, float]:
        """Evaluate, leaving the training as it was."""
        predicted = self.gold.predictor.quietly_predicted()
        return {
            f"{self.name}_accuracy": self.gold.accuracy_of(predicted),
            f"{self.name}_macro_f1": _macro_f1(self.gold.gold.numpy(), predicted.numpy()),
        }


class Follower:
    """Store the predicted classes of `Followed` instances, without affecting the training."""

    def __init__(self, followed: Followed, predictor: Predictor) -> None:
        self.followed = followed
        self.predictor = predictor

    def __call__(self) -> dict[str, float]:
        """Predict; there is nothing to log."""
        self.followed.codes.append(self.predictor.quietly_predicted().numpy())
        return {}


def _macro_f1(gold: IntArray, predicted: IntArray) -> float:
    """Return `manyhands.metrics.macro_f1` of codes, without its checks, which cost an epoch."""
    size = 1 + max(gold.max(), predicted.max())
    hits = np.bincount(gold[gold == predicted], minlength=size)
    total = np.bincount(gold, minlength=size) + np.bincount(predicted, minlength=size)
    return float(np.mean(2.0 * hits[total > 0] / total[total > 0]))
