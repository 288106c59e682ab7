"""Checking a row against real signatures, without training and without loading its data."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evidence.data.sets import FOLDER_FILES
from evidence.experiments.nodes import Document, Where
from evidence.objects import data_source, did_you_mean, find_measure, find_object
from evidence.records import SHORT, is_share
from manyhands.exceptions import AnnotationError
from manyhands.fitting.method_protocol import flat_defaults, from_flat, protocol_class
from manyhands.inference.base import BaseAggregator
from manyhands.typing import LARGEST_SEED

WATCHED = ("train",)
"""What ``watch`` may name; the validation and test parts are always watched."""

WAYS = ("name", "factory", "folder")
"""Keys of ``data``, which has exactly one of them."""

DEVICES = {"cpu": "cpu", "gpu": "cuda"}
"""``device`` of a row -> ``device`` of its estimator."""

OWN_SEED = "seed"
"""Value of ``random_state`` in ``data`` that stands for the run's own seed."""

_REQUIRED = ("id", "label", "citation", "data", "estimator", "seeds")
_DEFAULTS: dict[str, Any] = {
    "table": None,
    "column": None,
    "holdout": None,
    "device": "cpu",
    "extra": [],
    "watch": [],
    "published": None,
    "deviations": [],
}
_PUBLISHED = ("metric", "value", "sd", "n", "selection")
_RESERVED = {
    "random_state": "the seeds of the row are used",
    "device": "write device: cpu or gpu as a field of the row",
    "checkpoint": "finished runs are kept as records",
    "validation": "write holdout: <fraction> as a field of the row",
    "monitor": "with holdout, the likelihood of held-out annotations chooses the epoch",
    "patience": "every epoch is recorded",
}
"""Parameter of the estimator that a row must not set -> why."""

_CHECKED: set[tuple[str, Path]] = set()
"""Estimators already checked, with the folder of their file, since many rows share one."""


def check_row(document: Document, folder: Path) -> dict[str, Any]:
    """Check a row and return its fields, with defaults for those it lacks.

    This checks the keys, the data set's name or function and its options, the estimator's class,
    the names and (by scikit-learn's constraints) values of its parameters, the seeds, the published
    figures, and that every import path exists.

    Raises
    ------
    RowError
        If the row cannot be run as it is written.
    """
    fields = document.mapping((), required=_REQUIRED, optional=_DEFAULTS)
    for name in ("id", "label", "citation"):
        document.text((name,))
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", fields["id"]):
        document.fail(("id",), f"id is {fields['id']!r}; write method/name, such as conal/labelme")
    for name in ("table", "column"):
        if fields[name] is not None:
            document.text((name,))
    _check_table(document, fields)
    _check_data(document, folder)
    checked = (json.dumps(fields["estimator"], sort_keys=True), folder)
    if checked not in _CHECKED:
        _check_estimator(document, ("estimator",), folder)
        _CHECKED.add(checked)
    _check_run(document, fields, folder)
    _check_published(document, fields["published"])
    document.sequence(("deviations",), fields["deviations"], document.text)
    return fields


@cache
def _parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _check_table(document: Document, fields: Mapping[str, Any]) -> None:
    table, column = fields["table"], fields["column"]
    if (table is None) != (column is None):
        document.fail(
            ("column",) if table is None else ("table",),
            f"table is {table!r} and column is {column!r}; give both, or neither",
        )
    if table is not None and not re.fullmatch(r"[^/\s]+/[^/\s]+", table):
        document.fail(("table",), f"table is {table!r}; write paper/table, such as chu2021/table1")


def _check_data(document: Document, folder: Path, where: Where = ("data",)) -> None:
    data = document.at(where)
    if not isinstance(data, dict) or sum(way in data for way in WAYS) != 1:
        document.fail(where, f"data is {data!r}; give one of {', '.join(WAYS)}")
    for way in WAYS:
        if way in data:
            document.text((*where, way))
    if "folder" in data:
        document.known(where, data, ["folder"], "data from a folder")
        for name in FOLDER_FILES:
            path = folder / data["folder"] / name
            if not path.is_file():
                document.fail((*where, "folder"), f"there is no {path}; put it there")
        return
    try:
        load, options = data_source(data, folder)
    except AnnotationError as error:
        document.fail((*where, "name" if "name" in data else "factory"), str(error))
    _check_arguments(document, where, load, options)
    for name, value in options.items():
        if isinstance(value, dict) and any(way in value for way in WAYS):
            # Data made from other data, such as their gold-labelled ceiling.
            _check_data(document, folder, (*where, name))
    given = options.get("random_state")
    if isinstance(given, str) and given != OWN_SEED:
        document.fail(
            (*where, "random_state"),
            f"random_state is {given!r}; write an integer, or seed for the run's own",
        )


def _check_arguments(
    document: Document, where: Where, function: Any, given: Mapping[str, Any]
) -> None:
    """Compare the names of arguments with a signature."""
    parameters = _parameters(function)
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if protocol_class(function) is not None:
        named = [*flat_defaults(function)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        document.known(where, given, named, f"the signature of {function.__name__}")
    needed = [p.name for p in parameters if p.name in named and p.default is p.empty]
    for name in needed:
        if name not in given:
            document.fail(where, f"{function.__name__} needs {name!r}; add it")


def _check_estimator(document: Document, where: Where, folder: Path) -> Any:
    """Check an object's class and the names and values of its parameters; return the object."""
    document.mapping(where, required=["class"], optional={"params": {}})
    document.text((*where, "class"))
    inside = (*where, "params")
    params = document.at(inside)
    if params is not None and not isinstance(params, dict):
        document.fail(inside, f"params is {params!r}; write names and values")
    params = params or {}
    outermost = where == ("estimator",)
    for name in [name for name in params if outermost and name in _RESERVED]:
        document.fail((*inside, name), f"{name} is not set in a row: {_RESERVED[name]}")
    try:
        cls = find_object(document.at((*where, "class")), folder)
    except AnnotationError as error:
        document.fail((*where, "class"), str(error))
    if not inspect.isclass(cls) or (outermost and not _is_classifier(cls)):
        needed = "a classifier, with fit(X, annotations) and predict(X)" if outermost else "a class"
        document.fail((*where, "class"), f"{document.at((*where, 'class'))} is not {needed}")
    _check_arguments(document, inside, cls, params)
    if isinstance(params.get("backbone"), str | dict) and hasattr(cls, "_build_module"):
        _check_backbone(document, (*inside, "backbone"), params["backbone"])
    made = {
        name: _check_value(document, (*inside, name), value, folder)
        for name, value in params.items()
    }
    return _try_to_make(document, where, cls, made)


def _check_backbone(document: Document, where: Where, backbone: str | dict[str, Any]) -> None:
    """Check the name and the arguments of a network of ours."""
    from manyhands.nn import BACKBONES

    arguments = {"name": backbone} if isinstance(backbone, str) else {"name": "mlp", **backbone}
    if "class" in arguments:
        return
    name = arguments.pop("name")
    if name not in BACKBONES:
        hint = did_you_mean(str(name), BACKBONES)
        document.fail(where, f"backbone is {name!r}{hint}; write one of {', '.join(BACKBONES)}")
    known = list(inspect.signature(BACKBONES[name]).parameters)
    document.known(where, arguments, known[2:], f"the backbone {name}")


def _is_classifier(cls: type) -> bool:
    return not issubclass(cls, BaseAggregator) and all(
        callable(getattr(cls, name, None)) for name in ("fit", "predict")
    )


def _check_value(document: Document, where: Where, value: Any, folder: Path) -> Any:
    """Check what is nested in a parameter; return the parameter with its objects made."""
    if isinstance(value, dict) and "class" in value:
        return _check_estimator(document, where, folder)
    if isinstance(value, dict):
        return {k: _check_value(document, (*where, k), v, folder) for k, v in value.items()}
    if isinstance(value, list):
        return [_check_value(document, (*where, i), v, folder) for i, v in enumerate(value)]
    return value


def _try_to_make(document: Document, where: Where, cls: Any, params: dict[str, Any]) -> Any:
    try:
        made = cls(**from_flat(cls, params))
        if hasattr(made, "_validate_params") and hasattr(made, "_parameter_constraints"):
            made._validate_params()
    except Exception as error:  # whatever a user's own class raises
        # scikit-learn: "The 'lr' parameter of CoNALClassifier must be ... Got ... instead."
        named = re.search(r"'(\w+)' parameter", str(error))
        place = (*where, "params", named[1]) if named else (*where, "class")
        document.fail(place, str(error))
    return made


def _check_run(document: Document, fields: Mapping[str, Any], folder: Path) -> None:
    """Check seeds, hold-out, device, further measures and watched parts."""
    seeds = fields["seeds"]
    document.sequence(
        ("seeds",), seeds, lambda where: document.number(where, 0, LARGEST_SEED, whole=True)
    )
    if not seeds or len(set(seeds)) < len(seeds):
        document.fail(("seeds",), f"seeds are {seeds!r}; give at least one, and each once")
    holdout = fields["holdout"]
    if holdout is not None:
        document.number(("holdout",), 0, 1)
        if holdout in (0, 1):
            document.fail(("holdout",), f"holdout is {holdout!r}; write a fraction, or null")
    if fields["device"] not in DEVICES:
        document.fail(("device",), f"device is {fields['device']!r}; write {' or '.join(DEVICES)}")
    document.sequence(("extra",), fields["extra"], lambda w: _check_measure(document, w, folder))
    document.sequence(("watch",), fields["watch"], lambda w: _check_part(document, w))


def _check_measure(document: Document, where: Where, folder: Path) -> None:
    try:
        measure = find_measure(document.text(where), folder)
    except AnnotationError as error:
        document.fail(where, str(error))
    if not callable(measure):
        document.fail(
            where, f"{document.at(where)!r} is not a function; name a function f(model, data)"
        )


def _check_part(document: Document, where: Where) -> None:
    part = document.at(where)
    if part not in WATCHED:
        document.fail(
            where,
            f"watch holds {part!r}; write {' or '.join(WATCHED)} (the validation and test parts "
            "are always watched)",
        )


def _check_published(document: Document, published: Any) -> None:
    where: Where = ("published",)
    if not isinstance(published, list):
        if published is not None:
            _check_printed(document, where)
        return
    if not published:
        document.fail(where, "published is empty; write the printed figures, or leave it out")
    document.sequence(where, published, lambda place: _check_printed(document, place))
    metrics = [each["metric"] for each in published]
    for i, metric in enumerate(metrics):
        if metric in metrics[:i]:
            document.fail((*where, i), f"published has {metric!r} twice; write a measure once")


def _check_printed(document: Document, where: Where) -> None:
    """Check the figure that the paper printed for one measure."""
    optional = dict.fromkeys(_PUBLISHED[2:])
    found = document.mapping(where, required=_PUBLISHED[:2], optional=optional)
    metric = document.text((*where, "metric"))
    document.check_metric((*where, "metric"), metric)
    high = 1.0 if is_share(metric) else None
    document.number((*where, "value"), 0.0 if high else -sys.float_info.max, high)
    if found["sd"] is not None:
        document.number((*where, "sd"), 0.0, high)
    if found["n"] is not None:
        document.number((*where, "n"), 1, whole=True)
    if found["selection"] is not None and found["selection"] not in SHORT:
        document.fail(
            (*where, "selection"),
            f"selection is {found['selection']!r}; write one of {', '.join(SHORT)}, or null where "
            "the paper does not say",
        )
