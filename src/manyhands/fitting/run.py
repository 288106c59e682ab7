"""The course of one fit: the split, the network, the method, the epochs, the fitted attributes."""

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
from manyhands.exceptions import AnnotationError
from manyhands.files import check_writable
from manyhands.fitting.callbacks import EpochClock, Follower, announce, ending_heard, make_predictor
from manyhands.fitting.context import Earlier, Fit, Followed, Watch
from manyhands.fitting.folders import UNCOMPARED, describe_parameter
from manyhands.fitting.folds import hold_out_instances
from manyhands.fitting.network import Weights, make_module, start_weights
from manyhands.fitting.parameters import monitored
from manyhands.fitting.pilots import chosen_length, whole_length
from manyhands.fitting.prediction import PREDICT_BATCH, class_proba
from manyhands.fitting.reading import (
    as_target,
    check_learnable,
    drop_weightless,
    read_features,
    set_vocabularies,
    warn_of_telling_columns,
)
from manyhands.functional.ranks import in_first_process, one_fit
from manyhands.inference.confusion_prior import pool_confusions
from manyhands.nn import (
    FixedConfusionModule,
)
from manyhands.sampling.class_balance import ClassBalance
from manyhands.training import (
    AnnotationBatches,
    Callback,
    Checkpoint,
    Features,
    Monitor,
    ProgressBar,
    Stage,
    drawn_in,
    hold_out,
    isolated_rng,
    joined,
    pick_device,
    read_n_epochs,
    resumed_alike,
    run_stages,
)
from manyhands.training.devices import devices_of
from manyhands.training.seeding import draw_seed
from manyhands.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from manyhands.fitting.method import Method


def fit_network(
    model: Method,
    X: Any,
    y: Any,
    watch: Watch,
    start: Method | Earlier | None,
) -> AnnotationTable:
    """Read the data and train a crowd classifier's network on them.

    Parameters
    ----------
    model : BaseCrowdClassifier
        Its parameters have been checked.
    X, y, watch, start
        See `BaseCrowdClassifier.fit`; ``start`` may also be an `Earlier`, to go on from.

    Returns
    -------
    AnnotationTable
        The annotations with a positive weight.
    """
    _refuse_devices(model)
    with joined(model) as ranks, one_fit(ranks) as is_whole:
        table = _fit_together(model, X, y, watch, start)
        if is_whole:
            model.module_.float()
    return table


def _refuse_devices(model: Method) -> None:
    """Refuse several devices where no gradient steps would use them."""
    wanted = devices_of(model)
    if wanted is not None and wanted.n_processes > 1 and model._devices_refusal is not None:
        raise AnnotationError(
            f"device={wanted!r}: {type(model).__name__} {model._devices_refusal}, so it cannot be "
            "divided among processes; leave device out, or use a method that is trained by "
            "gradient steps, such as CrowdLayerClassifier"
        )


def _fit_together(
    model: Method,
    X: Any,
    y: Any,
    watch: Watch,
    start: Method | Earlier | None,
) -> AnnotationTable:
    """Fit in all processes that train the network: all do the same, each with a part of it."""
    earlier = start if isinstance(start, Earlier) else None
    weights = start_weights(model, start)
    given = as_target(X, y, type(model).__name__)
    table = drop_weightless(given)
    warn_of_telling_columns(X, table)
    watch = watch.over(X, table.n_instances)
    X = read_features(model, X, reset=earlier is None)
    check_learnable(X, table)
    set_vocabularies(model, y, table)
    device = pick_device(model.device)
    seed = draw_seed(model.random_state)
    features = Features(X, device)

    def pilot(n_epochs: int, rest: AnnotationTable, held: IntArray) -> IntArray:
        # What there is to warn of, the training says, too.
        with isolated_rng(seed, device), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rng = np.random.default_rng(seed)
            fit = _begin(model, features, rest, rng, Watch(), n_epochs)
            return _pilot(model, fit, held, weights)

    # The training draws as if the number of epochs had been given.
    n_epochs = None
    if earlier is not None:
        n_epochs = earlier.epochs(whole_length(model, earlier.model))
    elif model.checkpoint is not None:
        n_epochs = read_n_epochs(model.checkpoint)
    if n_epochs is None:
        n_epochs = chosen_length(model, table, np.random.default_rng([seed, 1]), pilot, start)
    with isolated_rng(seed, device):
        rng = np.random.default_rng(seed)
        fit = _begin(model, features, given, rng, watch, n_epochs, earlier)
        _train(model, fit, weights)
    return table


def _pilot(model: Method, fit: Fit[Any, Any], held: IntArray, start: Weights | None) -> IntArray:
    """Run the first stage of a training; return predictions of instances after every epoch.

    What the method sets on the model, the training sets anew.
    """
    # A copy: a factory may return a module that it keeps, which the training starts from.
    fit.module = deepcopy(make_module(model, fit, start))
    with drawn_in(fit.features.dtype):
        fit.state = model._prepare(fit)
    follower = Follower(Followed(None), make_predictor(model, fit, fit.features, held))
    callbacks: list[Callback] = [EpochClock(fit), Monitor(follower)]
    if model.verbose and in_first_process():
        callbacks.append(ProgressBar(f"{model._title}, pilot"))
    with drawn_in(fit.features.dtype):
        run_stages(model._stages(fit)[:1], callbacks=callbacks, history=fit.history)
    return np.stack(follower.followed.codes)


def _train(model: Method, fit: Fit[Any, Any], start: Weights | None) -> None:
    """Train, and set the fitted attributes."""
    fit.module = make_module(model, fit, start)
    with drawn_in(fit.features.dtype):
        fit.state = model._prepare(fit)
        with ending_heard(model):
            _train_module(model, fit)


def _train_module(model: Method, fit: Fit[Any, Any]) -> None:
    stages = model._stages(fit)
    callbacks, best = model._callbacks(fit)
    _run(model, fit, stages, callbacks)
    if best is not None:
        best.restore()
        model.best_epoch_, model.best_stage_ = best.kept["epoch"], best.kept["stage"]
    model.history_, model.n_epochs_ = fit.history, fit.n_epochs
    if fit.earlier is not None:
        model.n_epochs_ = whole_length(model, fit.earlier.model)
    model.module_ = fit.module.eval()
    with torch.inference_mode():
        model._set_fitted(fit)
        belief = model._belief(fit) if hasattr(model, "confusion_") else None
        set_annotator_attributes(model, fit.table, belief)
        if model._shrinks_confusions:
            module = cast(FixedConfusionModule, fit.module)
            module.confusions.copy_(torch.from_numpy(model.confusion_))


def _begin(
    model: Method,
    features: Features,
    given: AnnotationTable,
    rng: np.random.Generator,
    watch: Watch,
    n_epochs: int,
    earlier: Earlier | None = None,
) -> Fit[Any, Any]:
    """Hold out instances or annotations, and balance the others; a partial fit holds out none."""
    whole = table = drop_weightless(given)
    held: AnnotationTable | None = None
    if isinstance(model.validation, Real) and earlier is None:
        split = hold_out if monitored(model) == "likelihood" else hold_out_instances
        table, held = split(whole, float(model.validation), rng)
    batches = AnnotationBatches(features, model._balanced(table, rng), model.batch_size)
    return Fit(features, given, whole, table, held, batches, rng, watch, n_epochs, earlier)


def _run(model: Method, fit: Fit[Any, Any], stages: list[Stage], callbacks: list[Callback]) -> None:
    """Run all stages, or those that a checkpoint has left."""
    first_stage = first_epoch = 0
    if model.checkpoint is not None and fit.earlier is None:
        check_writable(Path(model.checkpoint).parent)
        checkpoint = Checkpoint(
            model.checkpoint,
            specification=model._specification(fit),
            module=fit.module,
            stages=stages,
            callbacks=tuple(callbacks),
            history=fit.history,
            device=fit.features.device,
            n_epochs=fit.n_epochs,
        )
        first_stage, first_epoch = resumed_alike(checkpoint)
        callbacks = [*callbacks, checkpoint]
    announce(model, fit, stages)
    run_stages(
        stages,
        callbacks=callbacks,
        history=fit.history,
        first_stage=first_stage,
        first_epoch=first_epoch,
    )


def balanced(
    table: AnnotationTable, balance: ClassBalance | None, rng: np.random.Generator
) -> AnnotationTable:
    """Annotations as a loss uses them: with balancing weights, scaled to mean 1."""
    if balance is not None:
        table = balance.balanced(table, rng)
    weights = table.weights
    return table if weights is None else replace(table, weights=weights / weights.mean())


# -- what a run and the checkpoint it resumes from must have in common -----------------------------


def specification(model: Method, fit: Fit[Any, Any]) -> dict[str, str]:
    """Describe the class, the parameters, the data and the network of a fit.

    A Dataset is described only by its length and its first and last items.
    """
    parameters = {
        name: str(describe_parameter(value))
        for name, value in model.get_params(deep=False).items()
        if name not in UNCOMPARED
    }
    network = hashlib.blake2b(repr(fit.module).encode(), digest_size=8).hexdigest()
    data = _digest(fit.whole, fit.features)
    return {"class": type(model).__name__, "data": data, "network": network, **parameters}


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


def set_annotator_attributes(
    model: Method, table: AnnotationTable, belief: FloatArray | None
) -> None:
    """Set ``heard_``, and pool and shrink the confusion matrices.

    Parameters
    ----------
    model : BaseCrowdClassifier
        Must have ``confusion_``, unless ``belief`` is None. ``heard_`` is set; from ``confusion_``
        and ``belief`` the pooled matrix follows, which annotators without annotations get too.
    table : AnnotationTable
    belief : array of shape (n_instances, n_classes) or None
        Class probabilities of the annotated instances.
    """
    model.heard_ = table.annotations_per_annotator() > 0
    if belief is None:
        return
    confusion, pooled = pool_confusions(
        model.confusion_, table, belief, pseudo_annotations=float(model._shrinks_confusions)
    )
    model.confusion_ = np.where(~model.heard_[:, None, None], pooled, confusion)
    model.pooled_confusion_ = pooled


def annotated_proba(fit: Fit[Any, Any], n_classes: int) -> FloatArray:
    """The network's class probabilities, (n, n_classes); 0 for instances without annotations."""
    proba = np.zeros((fit.table.n_instances, n_classes))
    rows = fit.batches.instances.cpu().numpy()
    proba[rows] = class_proba(fit.module, fit.features, rows)
    return proba
