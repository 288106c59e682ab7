"""The course of one fit: the split, the network, the method, the epochs, the fitted attributes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError, LostClassWarning, warn_caller
from manyhands.fitting.context import Fit, Watch
from manyhands.fitting.folds import hold_out_instances
from manyhands.fitting.pooling import pool_confusions
from manyhands.fitting.prediction import PREDICT_BATCH, class_proba
from manyhands.fitting.reading import (
    as_target,
    check_learnable,
    drop_weightless,
    read_features,
    set_vocabularies,
    take_rows,
    warn_of_telling_columns,
)
from manyhands.io.files import check_writable
from manyhands.nn import (
    CrowdModule,
    FixedConfusionModule,
    channels_last,
    make_scaled,
)
from manyhands.sampling.class_balance import ClassBalance
from manyhands.training import (
    AnnotationBatches,
    Callback,
    Checkpoint,
    Features,
    Stage,
    hold_out,
    isolated_rng,
    pick_device,
    run_stages,
)
from manyhands.training.seeding import draw_seed
from manyhands.typing import FloatArray, IntArray

Weights = dict[str, Tensor]


def fit_network(model: Any, X: Any, y: Any, watch: Watch, start: Any) -> AnnotationTable:
    """Read the data and train a crowd classifier's network on them.

    Parameters
    ----------
    model : BaseCrowdClassifier
        Its parameters have been checked.
    X, y, watch, start
        See `BaseCrowdClassifier.fit`.

    Returns
    -------
    AnnotationTable
        The annotations with a positive weight.
    """
    weights = start_weights(model, start)
    given = as_target(X, y, type(model).__name__)
    table = drop_weightless(given)
    warn_of_telling_columns(X, table)
    X = read_features(model, X, reset=True)
    check_learnable(X, table)
    set_vocabularies(model, y, table)
    device = pick_device(model.device)
    seed = draw_seed(model.random_state)
    with isolated_rng(seed, device):
        _train(model, Features(X, device), given, np.random.default_rng(seed), watch, weights)
    return table


def _train(
    model: Any,
    features: Features,
    given: AnnotationTable,
    rng: np.random.Generator,
    watch: Watch,
    start: Weights | None,
) -> None:
    """Train, and set the fitted attributes."""
    fit = _begin(model, features, given, rng, watch)
    fit.module = make_module(model, fit, start)
    fit.state = model._prepare(fit)
    stages = model._stages(fit)
    callbacks, best = model._callbacks(fit)
    _run(model, fit, stages, callbacks)
    if best is not None:
        best.restore()
        model.best_epoch_, model.best_stage_ = best.kept["epoch"], best.kept["stage"]
    model.history_ = fit.history
    model.module_ = fit.module.eval()
    with torch.inference_mode():
        model._set_fitted(fit)
        belief = model._belief(fit) if hasattr(model, "confusion_") else None
        set_annotator_attributes(model, fit.table, belief)
        if model._shrinks_confusions:
            module = cast(FixedConfusionModule, fit.module)
            module.confusions.copy_(torch.from_numpy(model.confusion_))


def _begin(
    model: Any, features: Features, given: AnnotationTable, rng: np.random.Generator, watch: Watch
) -> Fit[Any, Any]:
    """Hold out instances or annotations, and balance the others."""
    whole = table = drop_weightless(given)
    held: AnnotationTable | None = None
    if isinstance(model.validation, Real):
        split = hold_out if model.monitor == "likelihood" else hold_out_instances
        table, held = split(whole, float(model.validation), rng)
    batches = AnnotationBatches(features, model._balanced(table, rng), model.batch_size)
    return Fit(features, given, whole, table, held, batches, rng, watch)


def _run(model: Any, fit: Fit[Any, Any], stages: list[Stage], callbacks: list[Callback]) -> None:
    """Run all stages, or those that a checkpoint has left."""
    first_stage = first_epoch = 0
    if model.checkpoint is not None:
        check_writable(Path(model.checkpoint).parent)
        checkpoint = Checkpoint(
            model.checkpoint,
            specification=model._specification(fit),
            module=fit.module,
            stages=stages,
            callbacks=tuple(callbacks),
            history=fit.history,
            device=fit.features.device,
        )
        first_stage, first_epoch = checkpoint.resume()
        callbacks = [*callbacks, checkpoint]
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


# -- the network ----------------------------------------------------------------------------------


def start_weights(model: Any, start: Any) -> Weights | None:
    """Weights of another fitted classifier, from which a fit starts.

    Raises
    ------
    AnnotationError
        If that classifier has no network, or this class ignores the weights it starts from.
    """
    if start is None:
        return None
    if model._start_refusal is not None:
        raise AnnotationError(
            f"start={type(start).__name__}: a training of {type(model).__name__} "
            f"{model._start_refusal}, whatever the weights before; leave start out"
        )
    if not hasattr(start, "module_"):
        raise AnnotationError(
            f"start={type(start).__name__} has no network to start from (it is not fitted, or its "
            "backbone is a scikit-learn classifier); leave start out"
        )
    weights: Weights = start.module_.state_dict()
    return weights


def make_module(model: Any, fit: Fit[Any, Any], start: Weights | None) -> CrowdModule:
    """Make the method's network, fit its scaling, and check that it outputs logits."""
    features, annotated = fit.features, fit.batches.instances
    model.input_shape_ = shape = features.input_shape
    classifier = make_scaled(model._network, model.scaling, shape, len(model.classes_))
    module: CrowdModule = model._build_module(classifier, shape)
    if model.scaling is not None and not features.is_dataset:
        # Batches of at most 8 MiB in float64.
        size = max(1, min(PREDICT_BATCH, (1 << 20) // int(np.prod(shape))))
        classifier.scaler.fit_statistics(features.batches(annotated, size))
    if start is not None:
        _load_start(module, start)
    module = module.to(features.device)
    check_logits(model, module, features, annotated)
    return module


def _load_start(module: CrowdModule, start: Weights) -> None:
    """Load the starting weights into a module.

    Raises
    ------
    AnnotationError
        If they belong to another network or to other numbers of classes or annotators.
    """
    try:
        module.load_state_dict(start)
    except RuntimeError as error:
        raise AnnotationError(
            "start has another network, or another number of classes, annotators or features, "
            f"than this fit ({error}); leave start out"
        ) from error


def check_logits(model: Any, module: CrowdModule, features: Features, rows: Tensor) -> None:
    """Refuse what would cause an obscure error later: a wrong width, batch norm of one row."""
    if has_batch_norm(module) and min(model.batch_size, len(rows)) < 2:
        raise AnnotationError(
            f"backbone normalises over batches, which needs two instances in each: batch_size="
            f"{model.batch_size}, {len(rows)} instances with annotations; give at least two of each"
        )
    shape = _shape_of_output(module, features.take(rows[:2]))
    expected = (min(2, len(rows)), len(model.classes_))
    if shape != expected:
        raise AnnotationError(
            f"backbone gives an output of shape {shape} for {expected[0]} instances; it must "
            f"give logits of shape {expected}, for {expected[1]} classes"
        )


def _shape_of_output(module: CrowdModule, x: Tensor) -> tuple[int, ...]:
    """Apply the network to some instances; an error in it names the instances' shape."""
    module.eval()
    try:
        with torch.no_grad():
            return tuple(module(x).shape)
    except AnnotationError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        shape = tuple(x.shape[1:])
        hint = ""
        if channels_last(shape):
            hint = ". These look like images with their channels last; torch's layers expect them "
            hint += "first: X.transpose(0, 3, 1, 2)"
        raise AnnotationError(
            f"backbone fails on instances of shape {shape} ({error}){hint}. It must take a float "
            "tensor of instances and give a tensor of logits, or an object with .logits"
        ) from error


def has_batch_norm(module: torch.nn.Module) -> bool:
    """Whether a network normalises over batches, which rules out batches of one."""
    return any(isinstance(part, _BatchNorm) for part in module.modules())


# -- classes that a fit has lost -----------------------------------------------------------------

NAMED = 5
"""Number of lost classes that a warning names; it counts the others."""


def warn_of_lost_classes(model: Any, X: Any, table: AnnotationTable) -> None:
    """Warn if a fitted classifier predicts a class that has annotations for no training instance.

    Parameters
    ----------
    model : fitted classifier
    X : as in ``fit``
    table : AnnotationTable
        What the model was trained on; pseudo-annotations do not count.
    """
    observed = table.observed
    counts = np.bincount(observed.label, minlength=table.n_classes)
    with isolated_rng(0, torch.device("cpu")):  # A Dataset may draw random numbers.
        lost = _lost_classes(model, X, table, np.flatnonzero(counts))
    if not len(lost):
        return
    named = [f"{table.classes[code].item()!r} ({_times(counts[code])})" for code in lost]
    more = [f"{len(named) - NAMED} more"] if len(named) > NAMED else []
    warn_caller(
        f"{type(model).__name__} predicts for none of the {table.n_instances:,} training instances "
        f"some classes that have annotations: {', '.join(named[:NAMED] + more)}; {_mends(model)}",
        LostClassWarning,
    )


def _times(count: int) -> str:
    return f"{count:,} annotation{'s' if count > 1 else ''}"


def _lost_classes(model: Any, X: Any, table: AnnotationTable, awaited: IntArray) -> IntArray:
    """Predict X in batches until all awaited class codes have occurred; return those that do not.

    Only a lost class thus costs a pass over the whole training set.
    """
    for start in range(0, table.n_instances, PREDICT_BATCH):
        rows = np.arange(start, min(start + PREDICT_BATCH, table.n_instances))
        predicted = model.predict(take_rows(X, rows))
        awaited = awaited[~np.isin(table.classes[awaited], predicted)]
        if not len(awaited):
            break
    return awaited


def _mends(model: Any) -> str:
    """Say which of a classifier's parameters may bring a lost class back."""
    parameters = model.get_params(deep=False)
    mends = []
    if parameters.get("class_balance", "") is None:
        mends.append("class_balance='reweight'")
    if "init_scale" in parameters:
        mends.append(f"an init_scale above {parameters['init_scale']:g}")
    return f"try {', '.join([*mends, 'more epochs'])}"


@contextmanager
def quiet_about_lost_classes() -> Iterator[None]:
    """Suppress `LostClassWarning` in fits that are parts of another one, which warns itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LostClassWarning)
        yield


# -- fitted attributes ----------------------------------------------------------------------------


def set_annotator_attributes(model: Any, table: AnnotationTable, belief: FloatArray | None) -> None:
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
