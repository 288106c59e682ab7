"""The parameter ``members`` as JSON, so that a loaded stack can be fitted again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from manyhands.classifiers.stacking.parts import UNFITTED
from manyhands.exceptions import AnnotationError
from manyhands.fitting.folders import describe_parameter
from manyhands.typing import AnyArray


class Unsaved(BaseEstimator):
    """Stands for a member that `save` could not describe: its stack predicts, but cannot be fitted.

    Parameters
    ----------
    kind : str
        Name of the member's class.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind


class _UndescribedError(Exception):
    """An estimator cannot be described."""


def refuse_unsaved(name: str, estimator: Any) -> None:
    """Refuse to fit a member that a saved model could not describe."""
    if isinstance(estimator, Unsaved):
        raise AnnotationError(
            f"member {name!r} was a {estimator.kind}, which save() could not describe, so that "
            "this loaded model can only predict; give its members anew before fitting: "
            "model.set_params(members=[...])"
        )


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
            "estimator": _describe(estimator, keep),
            "view": _describe(view, keep),
        }
    except _UndescribedError:
        kind = estimator.kind if isinstance(estimator, Unsaved) else type(estimator).__name__
        return {"name": name, "unsaved": kind}


def _describe(estimator: Any, keep: Callable[[Any], Any]) -> Any:
    if estimator is None:
        return None
    if isinstance(estimator, str | Mapping):
        return {"backbone": describe_parameter(estimator)}
    if type(estimator) is Pipeline:
        return {"steps": [[name, _describe(step, keep)] for name, step in estimator.steps]}
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
        estimator, view = (_described(entry[name], array_of) for name in ("estimator", "view"))
        members.append(
            (entry["name"], estimator) if view is None else (entry["name"], estimator, view)
        )
    return members


def _described(description: Any, array_of: Callable[[Any], AnyArray]) -> Any:
    """Invert `_describe`."""
    if description is None:
        return None
    if "backbone" in description:
        return description["backbone"]
    if "steps" in description:
        return Pipeline([(name, _described(step, array_of)) for name, step in description["steps"]])
    given = description["parameters"].items()
    return UNFITTED[description["class"]](**{name: array_of(value) for name, value in given})
