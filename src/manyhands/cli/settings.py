"""Options of the form NAME=VALUE: ``--set`` of methods, and ``--read`` of exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from manyhands.exceptions import AnnotationError


def parse_settings(
    settings: Sequence[str],
    target: type,
    *,
    reserved: Mapping[str, str] | None = None,
    protocol: str = "default",
) -> dict[str, Any]:
    """Read ``name=value`` pairs; ``backbone.hidden=[64]`` sets an entry of a dict parameter.

    A parameter that is an object of this library is set by name, and its own parameters in the same
    way: ``estimator=conal``, ``estimator.lr=1e-4``. Fields of a method's ``protocol`` are set as
    parameters are: ``noise_lr=1e-3`` (or ``protocol.noise_lr=1e-3``).

    Parameters
    ----------
    settings : sequence of str
    target : type
        Class whose parameters are set.
    reserved : dict of str to str, optional
        Parameters that cannot be set in this way, and what to do instead.
    protocol : str
        Protocol for training a classifier that is a parameter, unless the settings say otherwise;
        see `with_protocol`.

    Returns
    -------
    dict
        What ``set_params`` takes, or the class where it has no ``protocol``.

    Raises
    ------
    AnnotationError
        If a pair is malformed or ``target`` has no such parameter.
    """
    from manyhands.fitting.method_protocol import protocol_class, settable

    parameters: dict[str, Any] = {}
    part_settings: dict[str, list[str]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, _, entry = name.strip().partition(".")
        if name == "protocol" and protocol_class(target) is not None:
            name, entry = entry or name, ""
        if not equals or not name:
            raise AnnotationError(
                f"--set {setting!r} is not of the form name=value, such as --set random_state=1"
            )
        if name in (reserved or {}):
            raise AnnotationError(f"--set {setting!r}: {(reserved or {})[name]}")
        _require_parameter(setting, name, target)
        if entry and entry != "name" and name in _EXAMPLES:
            part_settings.setdefault(name, []).append(f"{entry}={text}")
            continue
        value, before = read_value(setting, text), parameters.get(name)
        if entry:
            before = {"name": before} if isinstance(before, str) else before or {}
            value = {**before, entry: value}
        elif isinstance(before, dict) and isinstance(value, str):
            value = {**before, "name": value}
        parameters[name] = value
    for several, one in _LISTS.items():
        if isinstance(parameters.get(several), str | list):
            specs = parameters[several]
            parameters[several] = [
                _make_part(one, spec, [], reserved, protocol)
                for spec in ([specs] if isinstance(specs, str) else specs)
            ]
    for part in _EXAMPLES.keys() & {*parameters, *part_settings}:
        own = part_settings.get(part, [])
        parameters[part] = _make_part(part, parameters.get(part), own, reserved, protocol)
    return settable(target, parameters)


def merge_settings(own: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a user's values into earlier ones, entry by entry for a network.

    ``backbone.hidden=[64]`` changes the earlier network. If the user names another network, or
    gives one as a whole, it replaces the earlier one.
    """
    merged = dict(own)
    for name, value in own.items():
        given = before.get(name)
        if isinstance(value, dict) and isinstance(given, dict):
            same = value.get("name", given.get("name")) == given.get("name")
            merged[name] = {**given, **value} if same else value
    return merged


def read_value(setting: str, text: str) -> Any:
    """Read a YAML value; unlike in YAML 1.1, 1e-3 is a number."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise AnnotationError(
            f"--set {setting!r}: the value {text!r} is not YAML ({problem}); write 25, 1e-3, "
            "true, text or [256,128], and quote it for the shell"
        ) from error
    if value == "None":  # Python's spelling; "none" is a name in some parameters.
        return None
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _require_parameter(setting: str, name: str, target: type) -> None:
    from manyhands.fitting.method_protocol import flat_defaults

    accepted = [known for known in flat_defaults(target) if known != "self"]
    if name not in accepted:
        close = get_close_matches(name, accepted, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        if "estimator" in accepted:
            hint = f" (of the classifier inside: estimator.{name})" if not close else hint
        known = ", ".join(accepted) or "none"
        raise AnnotationError(
            f"--set {setting!r}: {target.__name__} has no parameter {name!r}{hint}; it has {known}"
        )


def _make_part(
    part: str,
    spec: Any,
    settings: Sequence[str],
    reserved: Mapping[str, str] | None,
    protocol: str,
) -> Any:
    """Make an object from its name (or a dict of its name and parameters) and its settings."""
    from manyhands.fitting import with_protocol
    from manyhands.fitting.method_protocol import settable
    from manyhands.registry import all_classifiers, all_wrappers, find

    if not isinstance(spec, str | dict) and not settings:
        return spec
    parameters = dict(spec) if isinstance(spec, dict) else {"name": spec}
    name = parameters.pop("name", None) or _DEFAULTS.get(part)
    if not isinstance(name, str):
        raise AnnotationError(
            f"--set {part}.<parameter>=... needs the method too, such as --set "
            f"{part}={_EXAMPLES[part]}"
        )
    try:
        kind = find(name, *_KINDS[part], argument=part)
    except AnnotationError as error:
        raise AnnotationError(f"--set {part}={name}: {error}") from error
    for parameter in parameters:
        _require_parameter(f"{part}.{parameter}", parameter, kind)
    parameters |= parse_settings(settings, kind, reserved=reserved)
    if kind not in {cls for _, cls in [*all_classifiers(), *all_wrappers()]}:
        return kind(**parameters)
    made = with_protocol(kind(), protocol)
    merged = merge_settings(parameters, made.get_params(deep=False))
    return made.set_params(**settable(kind, merged))


_KINDS = {
    "aggregator": ("aggregator",),
    "annotator": ("completer", "classifier", "wrapper"),
    "estimator": ("classifier", "wrapper"),
    "pretrainer": ("classifier", "wrapper"),
    "sampler": ("sampler",),
    "selector": ("selector",),
}
"""Parameters that are objects, and the kinds of the registry that fit them."""

_EXAMPLES = {
    "aggregator": "dawid-skene",
    "annotator": "graph-completer",
    "estimator": "crowd-layer",
    "pretrainer": "crowd-layer",
    "sampler": "crowd-smote",
    "selector": "confidence",
}
"""An example of each, for error messages."""

_LISTS = {"estimators": "estimator"}
"""Parameters that are lists of such objects: ``estimators=[crowd-layer, conal]``."""

_DEFAULTS = {"estimator": "crowd-layer", "sampler": "crowd-smote"}

READING = (
    "anonymise",
    "annotator_from",
    "drop_rejected",
    "fields",
    "items",
    "label_config",
    "predictions_as_annotators",
)
"""Names that --read takes; see `manyhands.io.read_export`."""

SWITCHES = ("anonymise", "drop_rejected", "predictions_as_annotators")
"""Those of `READING` that are on or off."""

ON_OFF = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def reading_options(settings: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE; fields are separated by commas.

    Raises
    ------
    AnnotationError
        If a name is unknown or given twice, there is no value, or that of a switch is unknown.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in READING or not value:
            raise AnnotationError(
                f"--read {setting!r}: write NAME=VALUE; names are {', '.join(READING)}"
            )
        if name in found:
            raise AnnotationError(f"--read {name} is given twice; give it once")
        if name in SWITCHES and value.lower() not in ON_OFF:
            raise AnnotationError(f"--read {setting!r}: {name} is one of {', '.join(ON_OFF)}")
        if name in SWITCHES:
            found[name] = ON_OFF[value.lower()]
        else:
            found[name] = value.split(",") if name == "fields" else value
    return found
