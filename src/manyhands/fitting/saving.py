"""Saving fitted classifiers as folders, and what identifies a fit for its checkpoints."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as to_bytes
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Fit
from manyhands.fitting.folders import (
    UNCOMPARED,
    describe_instances,
    describe_parameter,
    write_model,
)
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.training import Features


def save(model: Any, folder: str | Path) -> Path:
    """Write a fitted classifier; see `BaseCrowdClassifier.save`."""
    check_is_fitted(model)
    if not hasattr(model, "module_"):
        raise AnnotationError(
            f"the second stage {type(model.backbone).__name__} is a scikit-learn estimator, which "
            "save() cannot write without pickle; save it with skops or joblib, or use a network as "
            "backbone"
        )
    _check_loadable(model)
    tensors = {f"module.{name}": value for name, value in model.module_.state_dict().items()}
    for name in model._fitted_arrays:
        tensors[f"fitted.{name}"] = torch.from_numpy(np.array(getattr(model, name)))
    content = to_bytes({name: value.cpu().contiguous() for name, value in tensors.items()})
    description = {
        "class": type(model).__name__,
        "parameters": {
            name: describe_parameter(_as_saved(name, value))
            for name, value in model.get_params(deep=False).items()
            if is_saved(name, value)
        },
        "classes": model.classes_.tolist(),
        "annotators": model.annotators_.tolist(),
        "instances": describe_instances(model),
        "input_shape": list(model.input_shape_),
        "input_fields": _fields_of(model.input_shape_),
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names_in": _as_list(getattr(model, "feature_names_in_", None)),
        "n_annotations": getattr(model, "n_annotations_", None),
        "n_epochs": getattr(model, "n_epochs_", None),
        "init_scale": getattr(model, "init_scale_", None),
        "best_epoch": getattr(model, "best_epoch_", None),
        "history": list(model.history_),
    }
    return write_model(folder, description, content)


def is_saved(name: str, value: Any) -> bool:
    """Whether a parameter is saved: all but what belongs to this machine, and gold labels."""
    is_gold = name == "validation" and isinstance(value, tuple | list)
    return name not in ("callbacks", "checkpoint") and not is_gold


def _as_saved(name: str, value: Any) -> Any:
    """Return the value of a parameter that loading should restore."""
    if name == "device" and not isinstance(value, str):
        return "auto"  # The devices of a training are not those of a prediction.
    if name == "backbone" and isinstance(value, dict):
        # Leave out the initial weights: the final ones are saved.
        return {key: part for key, part in value.items() if key != "weights"}
    if name == "decision" and not isinstance(value, str):
        # An array would be reduced to a digest, and the loaded model would decide differently.
        return np.asarray(value, dtype=np.float64).tolist()
    return value


def _fields_of(shape: tuple[int, ...]) -> list[Any] | None:
    """Fields of instances that are dicts; None for arrays."""
    return [list(field) for field in shape.fields] if hasattr(shape, "fields") else None


def _as_list(values: Any) -> list[Any] | None:
    return None if values is None else list(values.tolist())


def _check_loadable(model: Any) -> None:
    """Refuse to save what `load` could not rebuild: classes that are not ours."""
    given = (v for v in model.get_params().values() if v is not None)
    parts = [model, *(v for v in given if isinstance(v, BaseEstimator) or _is_sampler(v))]
    for part in parts:
        if not type(part).__module__.startswith("manyhands."):
            raise AnnotationError(
                f"{type(part).__name__} is not a class of manyhands, so load() could not rebuild "
                "it; save it with joblib"
            )


def _is_sampler(value: Any) -> bool:
    return hasattr(value, "fit_resample")


# -- what identifies a fit, for checkpoints -------------------------------------------------------


def specification(model: Any, fit: Fit[Any, Any]) -> dict[str, str]:
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
