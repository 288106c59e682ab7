"""Saving a stack without pickle: its parts are estimators of known classes, made of arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from manyhands.classifiers.stacking.encoding import describe, described
from manyhands.classifiers.stacking.members import AverageOfFolds, Member, SoftNetwork, Unsaved
from manyhands.classifiers.stacking.stack import FittedStack, TemperedMember
from manyhands.exceptions import AnnotationError, ModelFolderError, raise_missing_extra
from manyhands.fitting.folders import (
    check_unaltered,
    describe_instances,
    describe_parameter,
    read_description,
    read_weights,
    restore_instances,
    write_model,
)
from manyhands.linear.gaussians import SoftDiscriminant, TiedMixture
from manyhands.linear.kernels import ClippedScaler, KernelMap, NormalScores
from manyhands.linear.regression import SoftLogistic
from manyhands.linear.ridge import RidgeValues, SoftRidge
from manyhands.training.progress import History
from manyhands.typing import AnyArray

FITTED = (
    "posterior_", "confusion_", "pooled_confusion_", "heard_", "abstention_", "class_prior_",
    "prediction_prior_", "is_known_", "sampled_rows_", "sampled_posterior_",
)  # fmt: skip
PLAIN = (
    "n_annotations_",
    "dependence_",
    "gold_sample_",
    "gold_p_value_",
    "gold_note_",
    "sample_note_",
    "doubts_",
    "prior_shrinkage_",
    "parity_",
    "posterior_exponent_",
    "prediction_exponent_",
    "vote_share_",
    "member_weights_",
    "member_temperatures_",
)


class _Arrays(dict[str, AnyArray]):
    """Arrays by name; parts of a description name theirs."""

    def keep(self, value: Any) -> Any:
        """Describe a value as JSON, or keep it and return its name."""
        if not isinstance(value, np.ndarray | np.generic):
            return {"value": value}
        name = f"part.{len(self)}"
        self[name] = np.ascontiguousarray(value)
        # A product's last bits depend on the order in memory.
        transposed = value.ndim > 1 and not value.flags["C_CONTIGUOUS"]
        return {"array": name, "order": "F" if transposed else "C"}


def write_stack(model: Any, folder: str | Path) -> Path:
    """Write a fitted `CrowdStackingClassifier`; see its ``save``."""
    arrays = _Arrays()
    stack: FittedStack = model.stack_
    parameters = {
        name: describe_parameter(value.tolist() if isinstance(value, np.ndarray) else value)
        for name, value in model.get_params(deep=False).items()
        if name not in ("members", "random_state")
    }
    description = {
        "class": type(model).__name__,
        "parameters": parameters,
        "given_members": describe_members(model.members, arrays.keep),
        "classes": model.classes_.tolist(),
        "annotators": model.annotators_.tolist(),
        "instances": describe_instances(model),
        "input_shape": list(model.input_shape_),
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names_in": getattr(model, "feature_names_in_", np.array([])).tolist() or None,
        "encoder": describe(model.encoder_, arrays.keep),
        "history": list(model.history_),
        "fitted": {name: arrays.keep(getattr(model, name)) for name in FITTED},
        "plain": {name: getattr(model, name) for name in PLAIN},
        "seen": stack.seen.tolist(),
        "parts": [
            {"name": member.name, "view": _describe(member.view, arrays)}
            for member in stack.members
        ],
        "rounds": [
            [
                {
                    "predictor": _describe(part.predictor, arrays),
                    "temperature": part.temperature,
                    "weight": part.weight,
                }
                for part in parts
            ]
            for parts in stack.rounds
        ],
    }
    return write_model(folder, description, to_bytes(dict(arrays)))


def _describe(part: Any, arrays: _Arrays) -> Any:
    """Describe a view or a predictor; its arrays are kept."""
    if part is None:
        return None
    if isinstance(part, Pipeline):
        return {"class": "Pipeline", "steps": [_describe(step, arrays) for _, step in part.steps]}
    if isinstance(part, AverageOfFolds):
        models = [_describe(model, arrays) for model in part.models]
        return {"class": "AverageOfFolds", "models": models}
    if isinstance(part, SoftNetwork):
        return _describe_network(part, arrays)
    if type(part) not in PARTS:
        raise AnnotationError(
            f"a member holds an object of class {type(part).__name__}, which save() cannot write "
            "without pickle; save the whole with skops or joblib"
        )
    return {
        "class": type(part).__name__,
        "parameters": {name: arrays.keep(value) for name, value in part.get_params().items()},
        "fitted": {name: arrays.keep(getattr(part, name)) for name in PARTS[type(part)]},
    }


def _describe_network(part: SoftNetwork, arrays: _Arrays) -> Any:
    """Describe a network as its own ``save`` does; the file of its weights becomes an array."""
    if not isinstance(part.backbone, str | Mapping):
        raise AnnotationError(
            f"a member is a network of your own, {type(part.backbone).__name__}, which load() "
            "could not rebuild; give a backbone by name or dict, or save the whole with joblib"
        )
    with TemporaryDirectory() as place:
        description = read_description(part.network_.save(place))
        weights = (Path(place) / description["weights"]).read_bytes()
    return {
        "class": "SoftNetwork",
        "backbone": describe_parameter(part.backbone),
        "network": description,
        "weights": arrays.keep(np.frombuffer(weights, dtype=np.uint8)),
        "view": _describe(part.view_ if part.ridge else None, arrays),
        "ridge": _describe(part.ridge_ if part.ridge else None, arrays),
    }


def read_stack(cls: type[Any], folder: str | Path) -> Any:
    """Read a folder that `write_stack` wrote.

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated or altered.
    """
    folder = Path(folder)
    description = read_description(folder)
    try:
        path, digest = folder / Path(description["weights"]).name, description["sha256"]
        arrays = from_bytes(read_weights(path, digest))
        model = _make_model(cls, description, arrays)
    except SafetensorError as error:
        raise ModelFolderError(
            f"{str(path)!r} is not a safetensors file ({error}); save the model again"
        ) from error
    except ModelFolderError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFolderError(
            f"{str(folder / 'model.json')!r} is damaged ({error!r}); save the model again"
        ) from error
    check_unaltered(description, folder)  # Last, as the errors above are more specific.
    return model


def _make_model(cls: type[Any], description: dict[str, Any], arrays: dict[str, AnyArray]) -> Any:
    parameters = dict(description["parameters"])
    prior = parameters["class_prior"]
    if isinstance(prior, dict) and "__pairs__" in prior:
        parameters["class_prior"] = dict(prior["__pairs__"])
    # Earlier folders lack the members.
    members = described_members(
        description.get("given_members", "auto"), lambda kept: _value(kept, arrays)
    )
    model = cls(members, **parameters)
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
    model.encoder_ = described(description["encoder"], lambda kept: _value(kept, arrays))
    model.history_ = History(description["history"])
    for name, value in description["fitted"].items():
        setattr(model, name, _value(value, arrays))
    restore_instances(model, description)
    for name, value in description["plain"].items():
        setattr(model, name, value)
    parts = [
        Member(part["name"], None, _part(part["view"], arrays)) for part in description["parts"]
    ]
    rounds = [
        [
            TemperedMember(_part(part["predictor"], arrays), part["temperature"], part["weight"])
            for part in found
        ]
        for found in description["rounds"]
    ]
    seen = np.array(description["seen"], dtype=np.int64)
    # Folders of before 2026-11-28 lack the exponent, which was 1, and the mean prediction.
    exponent = getattr(model, "prediction_exponent_", 1.0)
    model.prediction_prior_ = getattr(model, "prediction_prior_", model.class_prior_)
    model.stack_ = FittedStack(parts, rounds, seen, len(model.classes_), exponent)
    return model


def _part(description: Any, arrays: dict[str, AnyArray]) -> Any:
    """Invert `_describe`."""
    if description is None:
        return None
    if description["class"] == "Pipeline":
        return make_pipeline(*(_part(step, arrays) for step in description["steps"]))
    if description["class"] == "AverageOfFolds":
        return AverageOfFolds([_part(model, arrays) for model in description["models"]])
    if description["class"] == "SoftNetwork":
        return _network(description, arrays)
    kind = BY_NAME[description["class"]]
    part = kind(**{name: _value(v, arrays) for name, v in description["parameters"].items()})
    for name, value in description["fitted"].items():
        setattr(part, name, _value(value, arrays))
    return part


def _network(description: dict[str, Any], arrays: dict[str, AnyArray]) -> SoftNetwork:
    """Invert `_describe_network`."""
    try:
        from manyhands.classifiers.aggregated import AggregatedClassifier
        from manyhands.fitting.saved_classifiers import read_model
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise_missing_extra("a stack with a network", "torch", error)
    own, ridge = description["network"], _part(description["ridge"], arrays)
    part = SoftNetwork(description["backbone"], ridge=ridge is not None)
    with TemporaryDirectory() as place:
        content = _value(description["weights"], arrays).tobytes()
        (Path(place) / Path(own["weights"]).name).write_bytes(content)
        (Path(place) / "model.json").write_text(json.dumps(own))
        part.network_ = read_model(place, lambda *_: AggregatedClassifier)
    if ridge is not None:
        part.view_, part.ridge_ = _part(description["view"], arrays), ridge
    return part


def _value(described: dict[str, Any], arrays: dict[str, AnyArray]) -> Any:
    if "array" not in described:
        return described["value"]
    array = arrays[described["array"]]
    return np.asarray(array, order=described["order"]) if array.ndim else array[()]


# -- classes of which the members may consist -----------------------------------------------------


_LINEAR = ("weight_", "bias_", "centre_")
PARTS: dict[type[Any], tuple[str, ...]] = {
    ClippedScaler: ("mean_", "scale_", "var_", "n_samples_seen_", "n_features_in_"),
    NormalScores: ("quantiles_", "references_", "n_quantiles_", "n_features_in_"),
    Normalizer: ("n_features_in_",),
    PCA: ("components_", "mean_", "explained_variance_", "n_components_", "n_features_in_"),
    KernelMap: ("landmarks_", "whitening_", "width_"),
    RidgeValues: (),
    SoftDiscriminant: _LINEAR,
    TiedMixture: _LINEAR,
    SoftLogistic: ("coef_", "intercept_"),
}
"""Classes that can be saved, and the fitted attributes of each that prediction needs."""

BY_NAME = {kind.__name__: kind for kind in PARTS}

UNFITTED: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*PARTS, SoftRidge, SoftNetwork) if kind is not RidgeValues
}
"""Classes of which the parameter ``members`` can be saved, by name."""


# -- the parameter ``members`` as JSON, so that a loaded stack can be fitted again ----------------


class _UndescribedError(Exception):
    """An estimator cannot be described."""


def describe_members(members: Any, keep: Callable[[Any], Any]) -> Any:
    """Describe the parameter by what JSON can hold; ``keep`` stores an array and names it."""
    if isinstance(members, str):
        return members
    return [_describe_entry(keep, *entry) for entry in members]


def _describe_entry(
    keep: Callable[[Any], Any], name: str, estimator: Any, view: Any = None
) -> dict[str, Any]:
    try:
        return {
            "name": name,
            "estimator": _describe_estimator(estimator, keep),
            "view": _describe_estimator(view, keep),
        }
    except _UndescribedError:
        kind = estimator.kind if isinstance(estimator, Unsaved) else type(estimator).__name__
        return {"name": name, "unsaved": kind}


def _describe_estimator(estimator: Any, keep: Callable[[Any], Any]) -> Any:
    if estimator is None:
        return None
    if isinstance(estimator, str | Mapping):
        return {"backbone": describe_parameter(estimator)}
    if type(estimator) is Pipeline:
        return {
            "steps": [[name, _describe_estimator(step, keep)] for name, step in estimator.steps]
        }
    kind = type(estimator).__name__
    if UNFITTED.get(kind) is not type(estimator):
        raise _UndescribedError
    parameters = estimator.get_params(deep=False)
    if not all(isinstance(value, np.ndarray) or _is_plain(value) for value in parameters.values()):
        raise _UndescribedError
    return {"class": kind, "parameters": {name: keep(value) for name, value in parameters.items()}}


def _is_plain(value: Any) -> bool:
    """Whether JSON holds a value (a tuple becomes a list)."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str)


def described_members(description: Any, array_of: Callable[[Any], AnyArray]) -> Any:
    """Invert `describe_members`."""
    if isinstance(description, str):
        return description
    members: list[tuple[Any, ...]] = []
    for entry in description:
        if "unsaved" in entry:
            members.append((entry["name"], Unsaved(entry["unsaved"])))
            continue
        estimator, view = (
            _described_estimator(entry[name], array_of) for name in ("estimator", "view")
        )
        members.append(
            (entry["name"], estimator) if view is None else (entry["name"], estimator, view)
        )
    return members


def _described_estimator(description: Any, array_of: Callable[[Any], AnyArray]) -> Any:
    """Invert `_describe_estimator`."""
    if description is None:
        return None
    if "backbone" in description:
        return description["backbone"]
    if "steps" in description:
        return Pipeline(
            [(name, _described_estimator(step, array_of)) for name, step in description["steps"]]
        )
    given = description["parameters"].items()
    return UNFITTED[description["class"]](**{name: array_of(value) for name, value in given})
