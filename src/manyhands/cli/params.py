"""``--set name=value``: parameters of a method as YAML values."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import yaml

from manyhands.exceptions import AnnotationError
from manyhands.inference import find_aggregator


def parse_settings(settings: Sequence[str], target: type) -> dict[str, Any]:
    """Read ``name=value`` pairs; ``backbone.hidden=[64]`` sets an entry of a dict parameter.

    Raises
    ------
    AnnotationError
        If a pair is malformed or ``target`` has no such parameter.
    """
    accepted = [name for name in inspect.signature(target).parameters if name != "self"]
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, _, entry = name.strip().partition(".")
        if not equals:
            raise AnnotationError(f"--set {setting!r} is not of the form name=value")
        if name not in accepted:
            close = get_close_matches(name, accepted, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise AnnotationError(
                f"--set {setting!r}: {target.__name__} has no parameter {name!r}{hint}; it has "
                f"{', '.join(accepted)}"
            )
        if entry:
            parameters.setdefault(name, {})[entry] = read_value(text)
        else:
            parameters[name] = read_value(text)
    if isinstance(parameters.get("aggregator"), str):
        parameters["aggregator"] = find_aggregator(parameters["aggregator"])()
    return parameters


def read_value(text: str) -> Any:
    """Read a YAML value; unlike YAML 1.1, take 1e-3 for the number it is."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise AnnotationError(f"--set value {text!r} is not valid YAML ({error})") from error
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
