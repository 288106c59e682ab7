"""Model folders: ``model.json`` and one safetensors file. Reading one executes nothing of it.

The weights file is named by its content and written first; replacing ``model.json`` then switches
to it in one step, so a failure at any moment leaves the previous model whole.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.io import write_atomically
from manyhands.io.files import check_writable
from manyhands.nn import ScaledClassifier, Standardize, make_backbone
from manyhands.training import History, pick_device

if TYPE_CHECKING:
    from manyhands.fitting.classifier import BaseCrowdClassifier

FORMAT = "manyhands model"
VERSION = 1
ClassOf = Callable[..., type[Any]]
"""What gives the class of a name: persistence knows no method."""
NOT_SAVED = {"checkpoint", "validation"}
"""Parameters about a run rather than the model."""


def describe_parameter(value: Any) -> Any:
    """Turn a parameter into JSON: estimators by name and parameters, objects by description."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: describe_parameter(part) for key, part in value.items()}
        # Keys such as classes that are numbers: JSON would make text of them.
        pairs = [[describe_parameter(part) for part in pair] for pair in value.items()]
        return {"__pairs__": pairs}
    if isinstance(value, list | tuple):
        return [describe_parameter(part) for part in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    if hasattr(value, "__array__"):
        # Shape and digest, not content: this also identifies the data of a checkpoint.
        array = np.ascontiguousarray(value)
        # The bytes of an object array are addresses, other ones in every process.
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        digest = hashlib.blake2b(content, digest_size=8).hexdigest()
        return {"__array__": list(array.shape), "digest": digest}
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        return {
            "__estimator__": type(value).__name__,
            "parameters": {name: describe_parameter(part) for name, part in parameters.items()},
        }
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return {"__object__": name}


def save(model: BaseCrowdClassifier, folder: str | Path) -> Path:
    """Write a fitted classifier; see `BaseCrowdClassifier.save`."""
    check_is_fitted(model)
    if not hasattr(model, "module_"):
        raise AnnotationError(
            f"the second stage {type(model.backbone).__name__} is a scikit-learn estimator, which "
            "only pickle could save; save it with skops or joblib, or use a network as backbone"
        )
    _check_loadable(model)
    folder = check_writable(folder)
    previous = _weights_named_in(folder)
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
            if name not in NOT_SAVED
        },
        "classes": model.classes_.tolist(),
        "annotators": model.annotators_.tolist(),
        "input_shape": list(model.input_shape_),
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names_in": _as_list(getattr(model, "feature_names_in_", None)),
        "best_epoch": getattr(model, "best_epoch_", None),
        "history": list(model.history_),
        "weights": weights,
        "sha256": digest,
    }
    description["checksum"] = _checksum(description)
    described = json.dumps(description, indent=1, allow_nan=False)
    fresh = not (folder / weights).exists()
    write_atomically(folder / weights, content)
    try:
        write_atomically(folder / "model.json", described)
    except BaseException:
        if fresh:
            (folder / weights).unlink(missing_ok=True)
        raise
    if previous not in (None, weights):
        (folder / str(previous)).unlink(missing_ok=True)
    return folder


def _as_saved(name: str, value: Any) -> Any:
    """Return a parameter as it is to be read back."""
    if name == "backbone" and isinstance(value, dict):
        # Not the weights training began with: those it ended with are saved.
        return {key: part for key, part in value.items() if key != "weights"}
    if name == "decision" and not isinstance(value, str):
        # Of an array only a digest would stay, and the model would decide by another rule.
        return np.asarray(value, dtype=np.float64).tolist()
    return value


def _as_list(values: Any) -> list[Any] | None:
    return None if values is None else list(values.tolist())


def _weights_named_in(folder: Path) -> str | None:
    """Name of the weights file of the model that stands in a folder, if one does."""
    try:
        named = Path(json.loads((folder / "model.json").read_text(encoding="utf-8"))["weights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return named.name if named.match("weights-*.safetensors") else None


def _check_loadable(model: BaseCrowdClassifier) -> None:
    """Refuse to save what `load` could not make again: classes that are not ours."""
    kept = (v for v in model.get_params().values() if v is not None)
    parts = [model, *(v for v in kept if isinstance(v, BaseEstimator) or _makes_instances(v))]
    for part in parts:
        if not type(part).__module__.startswith("manyhands."):
            raise AnnotationError(
                f"{type(part).__name__} is not a class of manyhands, so load() could not make it "
                "again; save it with joblib"
            )


def _makes_instances(value: Any) -> bool:
    return hasattr(value, "fit_resample")


def read_model(
    folder: str | Path, find_class: ClassOf, *, device: str = "auto", backbone: Any = None
) -> BaseCrowdClassifier:
    """Read a model folder; see `manyhands.load`.

    Parameters
    ----------
    folder : str or Path
    find_class : callable
        `manyhands.registry.get`: gives the class of a name and, optionally, of a kind; raises
        `AnnotationError` where there is none.
    device, backbone : as in `manyhands.load`
    """
    folder = Path(folder)
    description = _read_description(folder)
    try:
        model = _make_estimator(description, find_class, backbone)
        for name, values in (("classes_", "classes"), ("annotators_", "annotators")):
            vocabulary = np.asarray(description[values])
            if vocabulary.ndim != 1:
                raise ValueError(f"{values!r} is no list of ids")
            setattr(model, name, vocabulary)
        model.n_annotators_ = len(model.annotators_)
        model.input_shape_ = tuple(description["input_shape"])
        if description["n_features_in"] is not None:
            model.n_features_in_ = description["n_features_in"]
        if description["feature_names_in"] is not None:
            model.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
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
    _fill(model, path, digest, pick_device(device), description["parameters"])
    # Last, as whatever fails before says more.
    _check_untouched(description, folder)
    return model


def _checksum(description: dict[str, Any]) -> str:
    """Digest of all that model.json says but the digest itself."""
    said = {name: value for name, value in description.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _check_untouched(description: dict[str, Any], folder: Path) -> None:
    """Refuse an altered description: with two classes exchanged it would load, and be wrong."""
    if description.get("checksum") != _checksum(description):
        raise ModelFolderError(
            f"{str(folder / 'model.json')!r} was altered (its checksum differs); save the model "
            "again"
        )


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / "model.json"
    if not path.is_file():
        raise ModelFolderError(
            f"{str(folder)!r} is not a model folder: there is no model.json. Give the folder that "
            "save() or 'manyhands fit --out' wrote"
        )
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ModelFolderError(
            f"{str(path)!r} is truncated or unreadable ({error}); save the model again"
        ) from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelFolderError(f"{str(path)!r} was not written by manyhands")
    if description.get("version") != VERSION:
        raise ModelFolderError(
            f"{str(path)!r} has format version {description.get('version')!r}, this manyhands "
            f"reads {VERSION}; use the version that wrote it ({description.get('manyhands')})"
        )
    return description


def _make_estimator(
    description: dict[str, Any], find_class: ClassOf, backbone: Any
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
                f"the model's backbone is an object of yours ({custom['__object__']}); hand it "
                "in: load(folder, backbone=...)"
            )
        parameters["backbone"] = backbone
    model: BaseCrowdClassifier = cls(**parameters)
    return model


def _is_description(value: Any) -> bool:
    """Whether a parameter was described only: an array, or an object of the user's."""
    return isinstance(value, dict) and ("__object__" in value or "__array__" in value)


def _read_parameter(value: Any, find_class: ClassOf) -> Any:
    """Undo `describe_parameter` for what may be rebuilt: plain values and our estimators."""
    if isinstance(value, dict) and "__estimator__" in value:
        try:
            cls = find_class(value["__estimator__"])
        except AnnotationError as error:
            raise ModelFolderError(
                f"the folder holds an estimator {value['__estimator__']!r} unknown here"
            ) from error
        parameters = {
            key: _read_parameter(part, find_class)
            for key, part in value["parameters"].items()
            if key not in NOT_SAVED and not _is_description(part)
        }
        return cls(**parameters)
    if isinstance(value, dict) and "__pairs__" in value:
        return {key: _read_parameter(part, find_class) for key, part in value["__pairs__"]}
    return value


def _fill(
    model: BaseCrowdClassifier,
    path: Path,
    digest: str,
    device: torch.device,
    parameters: dict[str, Any],
) -> None:
    """Rebuild the module and put weights and fitted arrays in."""
    tensors = _load_tensors(path, digest)
    shape = model.input_shape_
    module_state = _part(tensors, "module.")
    try:
        classifier = ScaledClassifier(
            Standardize(shape, model.scaling),
            make_backbone(model.backbone, shape, len(model.classes_)),
        )
        for name, value in parameters.items():
            # Arrays stand among the weights, as buffers of their name.
            if isinstance(value, dict) and "__array__" in value and name in module_state:
                model.set_params(**{name: module_state[name].numpy()})
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
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelFolderError(f"{str(path)!r} is missing; save the model again") from error
    except OSError as error:
        raise ModelFolderError(f"{str(path)!r} cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelFolderError(
            f"{str(path)!r} is truncated or altered (its checksum differs); save the model again"
        )
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
