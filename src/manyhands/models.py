"""Models in folders: loading what ``save`` wrote, and saving with an encoder in front."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes
from sklearn.pipeline import Pipeline, make_pipeline

from manyhands import registry
from manyhands.encoders.images import SAVED, FittedEncoder, describe_encoder, make_encoder
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting.folders import (
    check_unaltered,
    read_description,
    read_members,
    read_weights,
    save_member,
    save_members,
    write_model,
)
from manyhands.fitting.saved_aggregators import read_aggregator, write_aggregator
from manyhands.inference.base import BaseAggregator
from manyhands.inference.rating_mean import RatingMean

if TYPE_CHECKING:
    from manyhands.classifiers.averaged import AveragedCrowdClassifier
    from manyhands.classifiers.stacking import CrowdStackingClassifier
    from manyhands.fitting.classifier import BaseCrowdClassifier


def save(model: Any, folder: str | Path) -> Path:
    """Write a fitted classifier, aggregator, or pipeline of encoders and a classifier.

    Safetensors and JSON, no pickle; read it back with `load`.

    Parameters
    ----------
    model : classifier, aggregator, or Pipeline
        An aggregator is written with its annotations, to which `partial_fit` adds. The steps of a
        pipeline before its classifier are `TextEncoder` or `ImageEncoder`.
    folder : str or Path

    Raises
    ------
    AnnotationError
        If model is no model, or a step, or a part of the classifier, cannot be saved.
    WriteError
        If the folder cannot be written.
    """
    if isinstance(model, type):
        raise AnnotationError(
            f"model={model.__name__} is a class; give a fitted object, {model.__name__}().fit(...)"
        )
    if not hasattr(model, "fit") or not isinstance(folder, str | Path):
        raise AnnotationError(
            f"save(model, folder) was given model={model!r} and folder={folder!r}; give the fitted "
            "model first, then the path of a folder"
        )
    if isinstance(model, BaseAggregator | RatingMean):
        return write_aggregator(model, folder)
    if not isinstance(model, Pipeline):
        return save_member(model, Path(folder))
    steps = [step for _, step in model.steps if step not in (None, "passthrough")]
    for step in steps[:-1]:
        if type(step).__name__ not in SAVED:
            raise AnnotationError(
                f"the step {type(step).__name__} cannot be saved without pickle; save the last "
                "step alone (pipeline[-1].save(folder)), and put the others in front of it again "
                "after loading"
            )
    if not hasattr(steps[-1], "save"):
        raise AnnotationError(
            f"the last step is a {type(steps[-1]).__name__}, which has no save(); use joblib"
        )
    return save_members("Pipeline", steps, folder, _save_step)


def _save_step(step: Any, folder: Path) -> Path:
    if hasattr(step, "save"):
        return save_member(step, folder)
    arrays: dict[str, Any] = {}

    def keep(array: Any) -> str:
        name = f"array.{len(arrays)}"
        arrays[name] = np.ascontiguousarray(array)
        return name

    described = describe_encoder(step, keep)
    return write_model(
        folder, {"class": described["class"], "encoder": described}, to_bytes(arrays)
    )


def _read_encoder(folder: Path, description: dict[str, Any]) -> FittedEncoder:
    path = folder / Path(str(description.get("weights"))).name
    try:
        arrays = from_bytes(read_weights(path, description["sha256"]))
        encoder = make_encoder(description["encoder"], arrays.__getitem__)
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        if isinstance(error, ModelFolderError):
            raise
        raise ModelFolderError(
            f"{str(folder / 'model.json')!r} is damaged ({error!r}); save the model again"
        ) from error
    check_unaltered(description, folder)
    return encoder


def _maker(name: str) -> Callable[[list[Any]], Any]:
    if name == "Pipeline":
        return lambda steps: make_pipeline(*steps)
    made: Callable[[list[Any]], Any] = registry.get(name, "wrapper").of_fitted
    return made


def load(
    folder: str | Path, *, device: str = "auto", backbone: Any = None
) -> (
    BaseCrowdClassifier
    | AveragedCrowdClassifier
    | CrowdStackingClassifier
    | BaseAggregator
    | RatingMean
):
    """Read a model folder written by ``save``. No code in it is executed.

    Parameters
    ----------
    folder : str or Path
    device : str
    backbone : nn.Module or callable, optional
        The network, if the model was trained with one of your own. The folder contains no code, so
        you must pass it. The members of an `AveragedCrowdClassifier` share it.

    Returns
    -------
    A fitted classifier or aggregator of the saved class, or a pipeline of encoder and classifier.

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated, of another version, or not a manyhands model.
    """
    whole: AveragedCrowdClassifier | None = read_members(
        folder, _maker, lambda member: load(member, device=device, backbone=backbone)
    )
    if whole is not None:
        return whole
    description = read_description(Path(folder))
    name = description.get("class")
    if isinstance(name, str) and name in SAVED:
        return _read_encoder(Path(folder), description)
    if "aggregator" in description:
        return read_aggregator(folder, registry.get)
    known = registry.names()
    own = (
        getattr(registry.get(name), "read", None)
        if isinstance(name, str) and name in known
        else None
    )
    if own is not None:
        return own(folder)
    from manyhands.fitting.saved_classifiers import read_model  # Needs torch.

    return read_model(folder, registry.get, device=device, backbone=backbone)
