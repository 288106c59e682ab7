"""Parameters that crowd classifiers share: their constraints, and their description as JSON."""

from __future__ import annotations

import hashlib
from numbers import Integral, Real
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions

from manyhands.decision.rules import check_rule
from manyhands.exceptions import AnnotationError
from manyhands.fitting.method_protocol import flat_parameters
from manyhands.fitting.traits import Traits
from manyhands.training.progress import Callback

if TYPE_CHECKING:
    from manyhands.fitting.method import Method


class DecidesByRule(Protocol):
    """A classifier with the parameter ``decision``."""

    decision: Any

    @property
    def _traits(self) -> Traits: ...


SHARED_CONSTRAINTS: dict[str, Any] = {
    "backbone": [None, str, dict, callable],
    "max_epochs": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "lr": [Interval(Real, 0, None, closed="neither")],
    "weight_decay": [Interval(Real, 0, None, closed="left")],
    "class_balance": [None, str, dict],
    "scaling": [StrOptions({"auto", "standard", "rms"}), None],
    "device": "no_validation",  # `pick_device` refuses what is none.
    "random_state": ["random_state"],
    "verbose": ["verbose"],
    "validation": [None, Interval(Real, 0, 1, closed="neither"), tuple, list],
    "checkpoint": [None, str, Path],
    "decision": [str, "array-like"],
    "callbacks": [None, list, tuple],
    "protocol": "no_validation",  # It checks itself, and `ProtocolOf` whose it is.
}
"""Constraints of the shared parameters, in scikit-learn's notation."""

FIXED_EPOCHS: dict[str, list[Any]] = {"max_epochs": [Interval(Integral, 1, None, closed="left")]}
"""Constraint for classes with epochs that no pilot can judge, such as iterations of EM."""


def refuse_classes(model: BaseEstimator) -> None:
    """Raise an error if a parameter is a class instead of an object; only a network may be one.

    Raises
    ------
    AnnotationError
        If a parameter is a class.
    """
    for name, value in model.get_params(deep=False).items():
        is_factory = name == "backbone" and not hasattr(value, "fit")
        if isinstance(value, type) and not is_factory:
            raise AnnotationError(
                f"{name}={value.__name__} is a class; give an object, {name}={value.__name__}()"
            )


def refuse_loose_layers(model: Method) -> None:
    """Raise an error unless a backbone is a name, a network, a factory or a dict of arguments.

    Raises
    ------
    AnnotationError
        If it is, say, a list of layers or of their sizes. The message does not show the layers,
        each of which would take several lines.
    """
    backbone = getattr(model, "backbone", None)  # A linear method has none.
    if backbone is None or isinstance(backbone, str) or callable(backbone):
        return
    if hasattr(backbone, "fit"):  # A second stage of scikit-learn's, or refused below.
        return
    is_dict, kind = isinstance(backbone, dict), type(backbone).__name__
    is_list = isinstance(backbone, list | tuple)
    parts = list(backbone.values()) if is_dict else list(backbone) if is_list else []
    if any(callable(part) for part in parts):
        layers = "OrderedDict(...)" if is_dict else "*layers"
        what = f"a {kind} of layers, not a network; give torch.nn.Sequential({layers})"
    elif is_dict:
        return
    elif parts and all(isinstance(part, Integral) for part in parts):
        sizes = {"name": "mlp", "hidden": [int(part) for part in parts]}
        what = f"the {kind} {backbone!r}, not a network; give {sizes}"
    else:
        shown = shorten(repr(backbone), 60)
        what = f"{shown}; give a torch nn.Module, a name such as 'mlp', or {{'name': 'mlp', ...}}"
    raise AnnotationError(f"backbone is {what}")


def refuse_auto(model: Method) -> None:
    """Raise an error for ``max_epochs="auto"`` if no pilot run can judge the epochs.

    Raises
    ------
    InvalidParameterError
    """
    reason = model._traits.auto_epochs_refusal
    if reason is not None and isinstance(model.max_epochs, str) and model.max_epochs == "auto":
        raise InvalidParameterError(
            f"The 'max_epochs' parameter of {type(model).__name__} must be an int in the range "
            f"[1, inf), because {reason}. Got 'auto' instead."
        )


def check_decision(model: DecidesByRule, n_classes: int | None = None) -> None:
    """Raise an error for a ``decision`` that the classifier does not support.

    Parameters
    ----------
    model : classifier
    n_classes : int, optional
        Number of classes, if already known.

    Raises
    ------
    AnnotationError
        For the reasons of `check_rule`, or if it is "balanced", and no class prior goes with the
        probabilities.
    """
    check_rule(model.decision, n_classes)
    is_balanced = isinstance(model.decision, str) and model.decision == "balanced"
    if is_balanced and model._traits.balanced_by is None:
        raise AnnotationError(
            "decision='balanced' needs the class shares that the probabilities imply, and "
            f"{type(model).__name__} does not estimate them. Decide after predicting: "
            "decide(model.predict_proba(X), 'balanced') uses the mean of the probabilities, or "
            "the shares that you give as its class_prior="
        )


def check_parameters(model: Method) -> None:
    """Raise an error for unusable parameters before any data are read.

    Raises
    ------
    InvalidParameterError
        If a value violates the class's constraints.
    AnnotationError
        If a value is not what the method can use, or a parameter needs another that is missing.
    """
    refuse_classes(model)
    refuse_loose_layers(model)
    refuse_auto(model)
    model._validate_params()
    patience = model._protocol.patience  # Another method's protocol is refused.
    check_decision(model)
    for number, callback in enumerate(model.callbacks or ()):
        if not isinstance(callback, Callback):
            raise AnnotationError(
                f"callbacks[{number}] is {callback!r}; give objects whose class is derived from "
                "manyhands.training.Callback"
            )
    if patience is not None and model.validation is None:
        raise AnnotationError(
            f"patience={patience} stops a training that no longer improves on held-out data, and "
            "validation holds nothing out; set validation to a fraction or to (X, y_gold)"
        )
    if model.checkpoint is not None and not isinstance(model.random_state, Integral):
        raise AnnotationError(
            f"checkpoint needs an integer random_state, got {model.random_state!r}: a resumed "
            "run must repeat the random draws of the first"
        )


# -- parameters as JSON, by which a run and its resumption are compared ----------------------------


UNCOMPARED = frozenset({"callbacks", "checkpoint", "device", "verbose"})
"""Parameters that may differ between a run and its resumption."""


def describe_parameter(value: Any) -> Any:
    """Describe a parameter as JSON: estimators by name and parameters, other objects by name."""
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
        # JSON would turn keys that are numbers, such as classes, into text.
        pairs = [[describe_parameter(part) for part in pair] for pair in value.items()]
        return {"__pairs__": pairs}
    if isinstance(value, list | tuple):
        return [describe_parameter(part) for part in value]
    if hasattr(value, "detach"):  # A tensor.
        value = value.detach().cpu()
    if hasattr(value, "__array__"):
        # Shape and digest rather than content: this also identifies the data of a checkpoint.
        array = np.ascontiguousarray(value)
        # The bytes of an object array are memory addresses, which differ between processes.
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        digest = hashlib.blake2b(content, digest_size=8).hexdigest()
        return {"__array__": list(array.shape), "digest": digest}
    if isinstance(value, BaseEstimator):
        parameters = flat_parameters(value)
        return {
            "__estimator__": type(value).__name__,
            "parameters": {name: describe_parameter(part) for name, part in parameters.items()},
        }
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return {"__object__": name}
