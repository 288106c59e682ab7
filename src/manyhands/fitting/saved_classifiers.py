"""Fitted classifiers with a network as folders: safetensors and JSON, no pickle."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting.folders import (
    ClassFinder,
    check_unaltered,
    describe_instances,
    describe_parameter,
    read_description,
    read_weights,
    restore_instances,
    write_model,
)
from manyhands.nn import PackedShape, make_scaled
from manyhands.training import History, pick_device

if TYPE_CHECKING:
    from manyhands.fitting.method import Method


def save(model: Method, folder: str | Path) -> Path:
    """Write a fitted classifier; see `BaseCrowdClassifier.save`."""
    check_is_fitted(model)
    if not hasattr(model, "module_"):
        raise AnnotationError(
            f"the second stage {type(model._network).__name__} is a scikit-learn estimator, which "
            "save() cannot write without pickle; save it with skops or joblib, or use a network as "
            "backbone"
        )
    _check_loadable(model)
    tensors = {f"module.{name}": value for name, value in model.module_.state_dict().items()}
    for name in model._traits.fitted_arrays:
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


def _check_loadable(model: Method) -> None:
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


# -- loading: no code in a folder is executed -----------------------------------------------------


def read_model(
    folder: str | Path, find_class: ClassFinder, *, device: str = "auto", backbone: Any = None
) -> Any:
    """Read a model folder; see `manyhands.load`.

    Parameters
    ----------
    folder : str or Path
    find_class : callable
        `manyhands.registry.get`: returns the class of a name and, optionally, of a kind, and raises
        `AnnotationError` if there is none.
    device, backbone : as in `manyhands.load`

    Returns
    -------
    fitted BaseCrowdClassifier

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated or altered, or holds a class or a backbone that nobody
        has given.
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


def _make_estimator(description: dict[str, Any], find_class: ClassFinder, backbone: Any) -> Any:
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
    return cls(**parameters)


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
    model: Method,
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
        if name in model._traits.fitted_arrays:
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
