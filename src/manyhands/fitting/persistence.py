"""Loading of model folders. No code in a folder is executed."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes

from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.folders import (
    ClassFinder,
    check_unaltered,
    read_description,
    read_weights,
    restore_instances,
)
from manyhands.fitting.saving import is_saved
from manyhands.nn import PackedShape, make_scaled
from manyhands.training import History, pick_device


def read_model(
    folder: str | Path, find_class: ClassFinder, *, device: str = "auto", backbone: Any = None
) -> BaseCrowdClassifier:
    """Read a model folder; see `manyhands.load`.

    Parameters
    ----------
    folder : str or Path
    find_class : callable
        `manyhands.registry.get`: returns the class of a name and, optionally, of a kind, and raises
        `AnnotationError` if there is none.
    device, backbone : as in `manyhands.load`
    """
    folder = Path(folder)
    description = read_description(folder)
    try:
        model = _make_estimator(description, find_class, backbone)
        for name, values in (("classes_", "classes"), ("annotators_", "annotators")):
            vocabulary = np.asarray(description[values])
            if vocabulary.ndim != 1:
                raise ValueError(f"{values!r} is no list of ids")
            setattr(model, name, vocabulary)
        model.n_annotators_ = len(model.annotators_)
        fields = description.get("input_fields")
        shape = tuple(description["input_shape"]) if fields is None else PackedShape.of(fields)
        model.input_shape_ = shape
        if description["n_features_in"] is not None:
            model.n_features_in_ = description["n_features_in"]
        if description["feature_names_in"] is not None:
            model.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
        for name in ("n_epochs", "n_annotations", "init_scale"):
            if description.get(name) is not None:
                setattr(model, f"{name}_", description[name])
        if description["best_epoch"] is not None:
            model.best_epoch_ = description["best_epoch"]
        model.history_ = History(description["history"])
        path, digest = folder / Path(description["weights"]).name, description["sha256"]
    except ModelFolderError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFolderError(
            f"{str(folder / 'model.json')!r} is damaged ({error!r}); save the model again"
        ) from error
    _restore_arrays(model, path, digest, pick_device(device), description["parameters"])
    restore_instances(model, description)
    # Last, as the errors above are more specific.
    check_unaltered(description, folder)
    return model


def _make_estimator(
    description: dict[str, Any], find_class: ClassFinder, backbone: Any
) -> BaseCrowdClassifier:
    name = description["class"]
    try:
        cls = find_class(name, "classifier")
    except AnnotationError as error:
        raise ModelFolderError(
            f"the folder holds a {name!r}, which this manyhands does not know; install the "
            f"version that wrote it ({description.get('manyhands')})"
        ) from error
    accepted = inspect.signature(cls).parameters
    parameters = {
        key: _read_parameter(value, find_class)
        for key, value in description["parameters"].items()
        if not _is_description(value)
    }
    unknown = sorted(set(parameters) - set(accepted))
    if unknown:
        raise ModelFolderError(f"{name} has no parameter {unknown[0]!r}; save the model again")
    custom = description["parameters"].get("backbone")
    if isinstance(custom, dict) and "__object__" in custom:
        if backbone is None:
            raise ModelFolderError(
                f"the model's backbone is your own object ({custom['__object__']}); pass it: "
                "load(folder, backbone=...)"
            )
        parameters["backbone"] = backbone
    model: BaseCrowdClassifier = cls(**parameters)
    return model


def _is_description(value: Any) -> bool:
    """Whether a parameter was only described: an array, or an object of the user."""
    return isinstance(value, dict) and ("__object__" in value or "__array__" in value)


def _read_parameter(value: Any, find_class: ClassFinder) -> Any:
    """Invert `describe_parameter` for what can be rebuilt: plain values and our estimators."""
    if isinstance(value, dict) and "__estimator__" in value:
        try:
            cls = find_class(value["__estimator__"])
        except AnnotationError as error:
            raise ModelFolderError(
                f"the folder holds an estimator {value['__estimator__']!r}, which this manyhands "
                "does not know; install the version that wrote it"
            ) from error
        parameters = {
            key: _read_parameter(part, find_class)
            for key, part in value["parameters"].items()
            if is_saved(key, part) and not _is_description(part)
        }
        return cls(**parameters)
    if isinstance(value, dict) and "__pairs__" in value:
        return {key: _read_parameter(part, find_class) for key, part in value["__pairs__"]}
    return value


def _restore_arrays(
    model: BaseCrowdClassifier,
    path: Path,
    digest: str,
    device: torch.device,
    parameters: dict[str, Any],
) -> None:
    """Rebuild the module, and load the weights and the fitted arrays."""
    tensors = _load_tensors(path, digest)
    shape = model.input_shape_
    module_state = _part(tensors, "module.")
    try:
        classifier = make_scaled(model._network, model.scaling, shape, len(model.classes_))
        for name, value in parameters.items():
            # Array parameters are saved among the weights, as buffers of the same name.
            if isinstance(value, dict) and "__array__" in value and name in module_state:
                model.set_params(**{name: module_state[name].numpy()})
        with warnings.catch_warnings():  # A model that was shared without its annotators.
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")
            model.module_ = model._build_module(classifier, shape)
        model.module_.load_state_dict(module_state)
    except (RuntimeError, AnnotationError) as error:
        raise ModelFolderError(
            f"the weights in {str(path)!r} do not fit the model described in model.json ({error})"
        ) from error
    model.module_.to(device).eval()
    for name, value in _part(tensors, "fitted.").items():
        if name in model._fitted_arrays:
            setattr(model, name, value.numpy())


def _load_tensors(path: Path, digest: str) -> dict[str, torch.Tensor]:
    content = read_weights(path, digest)
    try:
        return from_bytes(content)
    except SafetensorError as error:
        raise ModelFolderError(
            f"{str(path)!r} is not a safetensors file ({error}); save the model again"
        ) from error


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
