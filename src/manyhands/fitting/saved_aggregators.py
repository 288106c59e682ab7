"""Saving of fitted aggregators without pickle: parameters, what was found, and the annotations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations.sharded import is_sharded
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting.folders import (
    ClassFinder,
    check_unaltered,
    read_description,
    read_weights,
    write_model,
)
from manyhands.inference.base import BaseAggregator
from manyhands.inference.rating_mean import RatingMean
from manyhands.records import class_of, name_of
from manyhands.typing import AnyArray

PLAIN = (str, bool, int, float, type(None))

Keep = Callable[[AnyArray], str]
"""Keeps an array, and returns the name by which it is found again."""


def write_aggregator(model: BaseAggregator | RatingMean, folder: str | Path) -> Path:
    """Write a fitted aggregator into a folder: safetensors and JSON, no pickle.

    The annotations are part of it, as `partial_fit` adds to them.

    Raises
    ------
    AnnotationError
        If a parameter or a fitted attribute is nothing that can be written, or the aggregator is
        fitted to a store.
    NotFittedError
    WriteError
        If the folder cannot be written.
    """
    check_is_fitted(model, "table_")
    if is_sharded(getattr(model, "table_", None)):
        raise AnnotationError(
            f"the {type(model).__name__} is fitted to a store, which a saved model cannot hold; "
            "keep the store and its labels, or np.save its posterior_, and fit(store, "
            "start=posterior_) again to predict with it"
        )
    arrays: dict[str, AnyArray] = {}

    def keep(values: AnyArray) -> str:
        name = f"array.{len(arrays)}"
        arrays[name] = np.ascontiguousarray(values)
        return name

    described = _describe(model, type(model).__name__, keep)
    return write_model(folder, {"class": type(model).__name__, **described}, to_bytes(arrays))


def _describe(value: Any, name: str, keep: Keep) -> Any:
    """Describe a value as JSON; ``name`` is for the error message."""
    if isinstance(value, BaseAggregator | RatingMean):
        given = value.get_params(deep=False)
        if not isinstance(given.get("random_state"), int | None):
            given["random_state"] = None  # A generator has moved on.
        state = {key: part for key, part in vars(value).items() if key not in given}
        return {
            "aggregator": type(value).__name__,
            "parameters": {key: _describe(part, key, keep) for key, part in given.items()},
            "fitted": {key: _describe(part, key, keep) for key, part in state.items()},
        }
    record = name_of(value)
    if record is not None:
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        return {
            "record": record,
            "fields": {key: _describe(part, key, keep) for key, part in own.items()},
        }
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return {"array": keep(np.asarray(value)), "scalar": value.ndim == 0}
    if isinstance(value, np.ndarray) and all(isinstance(part, PLAIN) for part in value.tolist()):
        return {"values": value.tolist(), "mixed": value.dtype.kind == "O"}
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no such numbers.
        return {"float": repr(value)}
    if isinstance(value, PLAIN):
        return {"value": value}
    if isinstance(value, list | tuple):
        return {"list": [_describe(part, name, keep) for part in value]}
    if isinstance(value, dict):
        return {"dict": [[_describe(part, name, keep) for part in pair] for pair in value.items()]}
    raise AnnotationError(
        f"{name} is of type {type(value).__name__}, which cannot be saved without pickle; give an "
        "array, or write the aggregator with joblib or skops"
    )


def holds_aggregator(folder: Path) -> bool:
    """Whether a folder's model is an aggregator, as far as can be seen without reading it."""
    try:
        return "aggregator" in read_description(folder)
    except ModelFolderError:
        return False


def holds_means(folder: str | Path) -> bool:
    """Whether a folder's model is a `RatingMean`, as far as can be seen without reading it."""
    try:
        return read_description(Path(folder)).get("aggregator") == RatingMean.__name__
    except ModelFolderError:
        return False


def refuse_means(folder: str | Path, what: str) -> None:
    """Refuse a folder of means where labels are to be classes.

    Raises
    ------
    AnnotationError
    """
    if holds_means(folder):
        raise AnnotationError(
            f"{folder} holds means of ratings ({RatingMean.__name__}), and {what} is for labels "
            "that are classes; the means are in its labels.csv, what annotators give too much in "
            "annotators.csv. Read the ratings by scale='ordinal' if they are a few grades"
        )


def read_aggregator(folder: str | Path, find_class: ClassFinder) -> Any:
    """Read a folder that `write_aggregator` wrote. No code in it is executed.

    Parameters
    ----------
    folder : str or Path
    find_class : callable
        `manyhands.registry.get`.

    Returns
    -------
    fitted BaseAggregator or RatingMean

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated or altered.
    """
    folder = Path(folder)
    description = read_description(folder)
    try:
        path = folder / Path(description["weights"]).name
        arrays = from_bytes(read_weights(path, description["sha256"]))
        model: Any = _restore(description, arrays, find_class)
    except ModelFolderError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise ModelFolderError(
            f"{str(folder / 'model.json')!r} is damaged ({error!r}); save the model again"
        ) from error
    check_unaltered(description, folder)  # Last, as the errors above are more specific.
    return model


def _restore(described: dict[str, Any], arrays: dict[str, AnyArray], find: ClassFinder) -> Any:
    """Invert `_describe`."""

    def parts_of(name: str) -> dict[str, Any]:
        return {key: _restore(part, arrays, find) for key, part in described[name].items()}

    if "aggregator" in described:
        model = find(described["aggregator"], "aggregator", "averager")(**parts_of("parameters"))
        for name, value in parts_of("fitted").items():
            setattr(model, name, value)
        return model
    if "record" in described:
        return class_of(described["record"])(**parts_of("fields"))
    if "array" in described:
        array = arrays[described["array"]]
        return array.reshape(())[()] if described["scalar"] else array
    if "values" in described:
        return np.array(described["values"], dtype=object if described["mixed"] else None)
    if "list" in described:
        return [_restore(part, arrays, find) for part in described["list"]]
    if "dict" in described:
        return {
            _restore(key, arrays, find): _restore(part, arrays, find)
            for key, part in described["dict"]
        }
    return float(described["float"]) if "float" in described else described["value"]
