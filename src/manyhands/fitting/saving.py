"""Saving fitted classifiers as folders: ``model.json`` and one safetensors file.

The weights file is named after its content and written first. Replacing ``model.json`` then
switches to it atomically, so a failure at any moment leaves the previous model intact.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as to_bytes
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError
from manyhands.fitting.specification import describe_parameter
from manyhands.io import write_atomically
from manyhands.io.files import check_writable

FORMAT = "manyhands model"
VERSION = 1


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
    folder = check_writable(folder)
    previous = current_weights(folder)
    tensors = {f"module.{name}": value for name, value in model.module_.state_dict().items()}
    for name in model._fitted_arrays:
        tensors[f"fitted.{name}"] = torch.from_numpy(np.array(getattr(model, name)))
    content = to_bytes({name: value.cpu().contiguous() for name, value in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    weights = f"weights-{digest[:16]}.safetensors"
    description = {
        "format": FORMAT,
        "version": VERSION,
        "manyhands": __version__,
        "class": type(model).__name__,
        "parameters": {
            name: describe_parameter(_as_saved(name, value))
            for name, value in model.get_params(deep=False).items()
            if is_saved(name, value)
        },
        "classes": model.classes_.tolist(),
        "annotators": model.annotators_.tolist(),
        "input_shape": list(model.input_shape_),
        "input_fields": _fields_of(model.input_shape_),
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names_in": _as_list(getattr(model, "feature_names_in_", None)),
        "n_epochs": getattr(model, "n_epochs_", None),
        "best_epoch": getattr(model, "best_epoch_", None),
        "history": list(model.history_),
        "weights": weights,
        "sha256": digest,
    }
    description["checksum"] = checksum(description)
    text = json.dumps(description, indent=1, allow_nan=False)
    is_new = not (folder / weights).exists()
    write_atomically(folder / weights, content)
    try:
        write_atomically(folder / "model.json", text)
    except BaseException:
        if is_new:
            (folder / weights).unlink(missing_ok=True)
        raise
    if previous != weights:
        remove_weights(folder, previous)
    return folder


def is_saved(name: str, value: Any) -> bool:
    """Whether a parameter is saved: all but a file of this machine, and gold labels."""
    return name != "checkpoint" and not (name == "validation" and isinstance(value, tuple | list))


def _as_saved(name: str, value: Any) -> Any:
    """Return the value of a parameter that loading should restore."""
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


def current_weights(folder: Path) -> str | None:
    """Name of the file, or of the folder of members, with the weights a folder already holds."""
    try:
        path = Path(json.loads((folder / "model.json").read_text(encoding="utf-8"))["weights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path.name if path.match("weights-*.safetensors") or path.match("members-*") else None


def remove_weights(folder: Path, name: str | None) -> None:
    """Remove what `current_weights` named."""
    if name is not None and (folder / name).is_dir():
        shutil.rmtree(folder / name)
    elif name is not None:
        (folder / name).unlink(missing_ok=True)


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


def checksum(description: dict[str, Any]) -> str:
    """Digest of everything in model.json except the digest itself."""
    content = {name: value for name, value in description.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
