"""One fit: `run` trains a method's network on data, by a recipe."""

from __future__ import annotations

import hashlib
import warnings
from copy import deepcopy
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from manyhands.annotations import AnnotationTable
from manyhands.files import check_writable
from manyhands.fitting.callbacks import EpochClock, Follower, Predictor, announce
from manyhands.fitting.context import Earlier, Fit, Followed, Watch
from manyhands.fitting.fitted import Fitted
from manyhands.fitting.folds import hold_out_instances
from manyhands.fitting.method_protocol import flat_parameters
from manyhands.fitting.network import Start, make_module
from manyhands.fitting.parameters import UNCOMPARED, describe_parameter
from manyhands.fitting.pilots import chosen_n_epochs, n_epochs_of_whole_fit
from manyhands.fitting.prediction import PREDICT_BATCH, class_proba
from manyhands.fitting.recipe import CrowdData, Recipe
from manyhands.fitting.traits import Traits
from manyhands.functional.ranks import active_ranks, in_first_process, one_fit
from manyhands.inference.confusion_prior import pool_confusions
from manyhands.nn import FixedConfusionModule
from manyhands.sampling.class_balance import ClassBalance
from manyhands.training import (
    AnnotationBatches,
    Callback,
    Checkpoint,
    Features,
    Monitor,
    ProgressBar,
    Stage,
    default_dtype,
    hold_out,
    isolated_rng,
    read_n_epochs,
    resume_in_all_processes,
    run_stages,
)
from manyhands.typing import AnyArray, FloatArray, IntArray

if TYPE_CHECKING:
    from manyhands.fitting.method import Method


def run(
    method: Method,
    data: CrowdData,
    recipe: Recipe,
    *,
    start: Start | None = None,
    earlier: Earlier | None = None,
) -> Fitted:
    """Train a method's network. The method itself is not changed.

    Parameters
    ----------
    method : Method
        A classifier whose vocabularies are those of the data.
    data : CrowdData
    recipe : Recipe
    start : Start, optional
        The weights to start from.
    earlier : Earlier, optional
        The fit to continue.

    Returns
    -------
    Fitted

    Raises
    ------
    DivergenceError
        If the loss becomes infinite or NaN.
    """
    with one_fit(active_ranks()) as is_whole:
        n_epochs = found_n_epochs(method, data, recipe, start=start, earlier=earlier)
        with isolated_rng(recipe.seed, data.features.device):
            fit = _begin(method, data, recipe, n_epochs, earlier)
            fitted = _train(method, fit, start)
        if is_whole and fitted.module is not None:
            fitted.module.float()
    return fitted


def found_n_epochs(
    method: Method,
    data: CrowdData,
    recipe: Recipe,
    *,
    start: Start | None,
    earlier: Earlier | None,
) -> int:
    """Return the number of epochs: given, from a checkpoint or an earlier fit, or by pilots.

    Parameters and errors are those of `run`, which then draws as if the number had been given.

    Returns
    -------
    int
    """
    if earlier is not None:
        return earlier.epochs(n_epochs_of_whole_fit(recipe.max_epochs, earlier))
    n_epochs = None if recipe.checkpoint is None else read_n_epochs(recipe.checkpoint)
    if n_epochs is not None:
        return n_epochs

    def pilot(n_epochs: int, rest: AnnotationTable, held: IntArray) -> IntArray:
        # The training itself gives the same warnings.
        with isolated_rng(recipe.seed, data.features.device), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part = replace(data, given=rest, whole=rest, watch=Watch())
            return _pilot(method, _begin(method, part, recipe, n_epochs), held, start)

    rng = np.random.default_rng([recipe.seed, 1])
    return chosen_n_epochs(method, recipe, data.whole, rng, pilot, start)


def _pilot(method: Method, fit: Fit[Any, Any], held: IntArray, start: Start | None) -> IntArray:
    """Run the first stage of a training; return predictions of instances after every epoch."""
    # A copy: a factory may return a module that it keeps, which the training starts from.
    fit.module = deepcopy(make_module(method, fit, start))
    with default_dtype(fit.features.dtype):
        fit.state = method._prepare(fit)
    # The most probable classes, so that the number of epochs does not depend on ``decision``.
    predictor = Predictor(fit.module, fit.features, PREDICT_BATCH, None, held)
    follower = Follower(Followed(None), predictor)
    callbacks: list[Callback] = [EpochClock(fit), Monitor(follower)]
    if fit.recipe.verbose and in_first_process():
        callbacks.append(ProgressBar(f"{fit.recipe.title}, pilot"))
    with default_dtype(fit.features.dtype):
        run_stages(method._stages(fit)[:1], callbacks=callbacks, history=fit.history)
    return np.stack(follower.followed.codes)


def _train(method: Method, fit: Fit[Any, Any], start: Start | None) -> Fitted:
    """Train, and return the fitted attributes."""
    fit.module = make_module(method, fit, start)
    with default_dtype(fit.features.dtype):
        fit.state = method._prepare(fit)
        stages = method._stages(fit)
        callbacks, best = method._callbacks(fit)
        _run_stages(method, fit, stages, callbacks)
        if best is not None:
            best.restore()
        fit.module.eval()
        with torch.inference_mode():
            found = _read_out(method, fit)
    n_epochs = fit.n_epochs
    if fit.earlier is not None:
        n_epochs = n_epochs_of_whole_fit(fit.recipe.max_epochs, fit.earlier)
    kept: dict[str, Any] = {}
    if best is not None:
        kept = {"best_epoch": best.kept["epoch"], "best_stage": best.kept["stage"]}
    return Fitted(fit.module, fit.history, found, n_epochs, **kept)


def _read_out(method: Method, fit: Fit[Any, Any]) -> dict[str, Any]:
    """Return the fitted attributes by name: those of the method, and those of the annotators."""
    found = {**fit.found, **method._read_out(fit)}
    belief = None
    if "confusion_" in found:
        belief = annotated_proba(fit) if fit.belief is None else fit.belief
    shrinks = method._traits.shrinks_confusions
    found |= annotator_attributes(found.get("confusion_"), fit.table, belief, shrinks=shrinks)
    if shrinks:
        module = cast(FixedConfusionModule, fit.module)
        module.confusions.copy_(torch.from_numpy(found["confusion_"]))
    if fit.recipe.init_scale is not None:
        found["init_scale_"] = fit.recipe.init_scale
    return found


def _begin(
    method: Method,
    data: CrowdData,
    recipe: Recipe,
    n_epochs: int,
    earlier: Earlier | None = None,
) -> Fit[Any, Any]:
    """Hold out instances or annotations, and balance the others; a partial fit holds out none."""
    rng = np.random.default_rng(recipe.seed)
    table = data.whole
    held: AnnotationTable | None = None
    if isinstance(recipe.validation, Real) and earlier is None:
        split = hold_out if recipe.monitor == "likelihood" else hold_out_instances
        table, held = split(table, float(recipe.validation), rng)
    in_loss = balanced(table, recipe.balance, rng, method._traits)
    batches = AnnotationBatches(data.features, in_loss, recipe.batch_size)
    return Fit(recipe, data, table, held, batches, rng, n_epochs, earlier)


def _run_stages(
    method: Method, fit: Fit[Any, Any], stages: list[Stage], callbacks: list[Callback]
) -> None:
    """Run all stages, or those that remain after a checkpoint."""
    first_stage = first_epoch = 0
    path = fit.recipe.checkpoint
    if path is not None and fit.earlier is None:
        check_writable(Path(path).parent)
        checkpoint = Checkpoint(
            path,
            specification=specification(method, fit),
            module=fit.module,
            stages=stages,
            callbacks=tuple(callbacks),
            history=fit.history,
            device=fit.features.device,
            n_epochs=fit.n_epochs,
        )
        first_stage, first_epoch = resume_in_all_processes(checkpoint)
        callbacks = [*callbacks, checkpoint]
    announce(method, fit, stages)
    run_stages(
        stages,
        callbacks=callbacks,
        history=fit.history,
        first_stage=first_stage,
        first_epoch=first_epoch,
    )


def balanced(
    table: AnnotationTable,
    balance: ClassBalance | None,
    rng: np.random.Generator,
    traits: Traits,
) -> AnnotationTable:
    """Return the annotations as a loss uses them: with balancing weights, scaled to mean 1."""
    if not traits.balances_annotations:
        return table
    if balance is not None:
        table = balance.balanced(table, rng)
    weights = table.weights
    if weights is None or not traits.scales_weights:
        return table
    return replace(table, weights=weights / weights.mean())


# -- specification that a run and its checkpoint must share ----------------------------------------


def specification(method: Method, fit: Fit[Any, Any]) -> dict[str, str]:
    """Describe the class, the parameters, the data and the network of a fit.

    A Dataset is described only by its length and its first and last items, and a parameter that is
    a module, such as a loss, by its numbers too, which its name does not tell.
    """
    parameters = {
        name: str(describe_parameter(value))
        for name, value in flat_parameters(method).items()
        if name not in UNCOMPARED
    }
    for name, value in flat_parameters(method).items():
        if isinstance(value, torch.nn.Module) and name != "backbone":
            parts = [(type(part).__name__, _plain_values(part)) for part in value.modules()]
            parameters[name] = repr(parts)
    network = hashlib.blake2b(repr(fit.module).encode(), digest_size=8).hexdigest()
    data = _digest(fit.whole, fit.features)
    return {"class": type(method).__name__, "data": data, "network": network, **parameters}


def _plain_values(module: torch.nn.Module) -> dict[str, Any]:
    return {name: v for name, v in vars(module).items() if isinstance(v, bool | Real | str)}


def _digest(table: AnnotationTable, features: Features) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for column in (table.instance, table.annotator, table.label, table.weight):
        digest.update(np.ascontiguousarray(column).tobytes())
    for part in (table.classes, table.annotators):
        digest.update(repr(part.tolist()).encode())
    rows = torch.arange(len(features))
    if features.is_dataset:
        digest.update(str(len(features)).encode())
        rows = rows[[0, -1]]
    for x in features.batches(rows, PREDICT_BATCH):
        digest.update(x.cpu().numpy().tobytes())
    return digest.hexdigest()


# -- fitted attributes ----------------------------------------------------------------------------


def annotator_attributes(
    confusion: FloatArray | None,
    table: AnnotationTable,
    belief: FloatArray | None,
    *,
    shrinks: bool,
) -> dict[str, AnyArray]:
    """Return ``annotators_seen_`` and the pooled and shrunk confusion matrices of annotators.

    Parameters
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes) or None
        None, if a method has no such matrices.
    table : AnnotationTable
    belief : array of shape (n_instances, n_classes) or None
        Class probabilities of the annotated instances, by which the matrices are pooled; None only
        without matrices.
    shrinks : bool
        Whether every row gets one pseudo-annotation, distributed as the crowd's annotations are.

    Returns
    -------
    dict
        ``annotators_seen_``, shape (n_annotators,); with matrices also ``confusion_``, where
        annotators without annotations have the pooled matrix, and ``pooled_confusion_``.
    """
    seen = table.annotations_per_annotator() > 0
    if confusion is None or belief is None:
        return {"annotators_seen_": seen}
    confusion, pooled = pool_confusions(confusion, table, belief, pseudo_annotations=float(shrinks))
    confusion = np.where(~seen[:, None, None], pooled, confusion)
    return {"annotators_seen_": seen, "confusion_": confusion, "pooled_confusion_": pooled}


def annotated_proba(fit: Fit[Any, Any]) -> FloatArray:
    """Return the network's class probabilities, (n, n_classes); 0 for unannotated instances."""
    proba = np.zeros((fit.table.n_instances, fit.table.n_classes))
    rows = fit.batches.instances.cpu().numpy()
    proba[rows] = class_proba(fit.module, fit.features, rows)
    return proba
