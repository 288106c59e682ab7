"""Resolving names in rows to classes, measures, and functions that make data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType
from typing import Any

from manyhands import registry
from manyhands.exceptions import AnnotationError

_MOVED = {
    "manyhands.experiments.measures": "manyhands.evidence.measures",
    "manyhands.experiments.ceilings": "manyhands.evidence.data.variants",
    "manyhands.experiments.fewer": "manyhands.evidence.data.variants",
    "manyhands.experiments.imbalance": "manyhands.evidence.data.variants",
    "manyhands.experiments.sparsity": "manyhands.evidence.data.variants",
}
"""Former module name, which records are filed under -> present module."""

# Experiment files name our measures and data factories without modules. A row has their full names
# with the former modules: these names are part of the key of a record, which must not change when
# code moves (see `_MOVED`).
_MEASURES = "manyhands.experiments.measures"
_FACTORIES = {
    "labelled_by_gold": "manyhands.experiments.ceilings",
    "with_fewer_instances": "manyhands.experiments.fewer",
    "with_rare_class_thinned": "manyhands.experiments.imbalance",
    "with_test_balanced": "manyhands.experiments.imbalance",
    "with_annotations_removed": "manyhands.experiments.sparsity",
}
_DATASETS = "manyhands.datasets"

_OF_FOLDERS: dict[str, Path] = {}
"""Module imported from a row's folder -> its file."""


def measure_in_full(name: str) -> str:
    """Return a measure's name with its module; ours get the module name that is in keys."""
    return name if ":" in name else f"{_MEASURES}:{name}"


def factory_in_full(name: str) -> str:
    """Return a data factory's name with its module; ours get the module name that is in keys."""
    return name if ":" in name else f"{_FACTORIES.get(name, _DATASETS)}:{name}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" if a known name is close, else ""."""
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def find_object(name: str, folder: str | Path | None = None) -> Any:
    """Find a class of manyhands by name, or any "module:name"; the folder may have the module.

    Raises
    ------
    AnnotationError
        If there is no such object; the message names a close one.
    MissingExtraError
        If it needs an extra that is not installed.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        if name in registry.names():
            return registry.get(name)
        raise AnnotationError(
            f"manyhands has no {name!r}{did_you_mean(name, registry.names())}; write its name, or "
            "module:Class for one of your own"
        )
    module_name = _MOVED.get(module_name, module_name)
    try:
        module = _import(module_name, folder)
    except ImportError as error:
        raise AnnotationError(
            f"{name!r} cannot be imported ({error}); install the module, or put it into the "
            "row's folder or the working directory"
        ) from error
    if not attribute or not hasattr(module, attribute):
        hint = did_you_mean(attribute, vars(module))
        raise AnnotationError(f"the module {module_name!r} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _import(name: str, folder: str | Path | None) -> ModuleType:
    """Import a module; if the row's folder has one with that name, it must be the one imported."""
    own = Path(folder or ".") / Path(*name.split(".")).with_suffix(".py")
    if own.is_file() and _OF_FOLDERS.get(name, own.resolve()) != own.resolve():
        # Drop the module of this name from another row's folder; objects made from it stay valid.
        sys.modules.pop(name, None)
        invalidate_caches()
    with _importable(folder):
        try:
            module = import_module(name)
        except ImportError:
            raise
        except Exception as error:  # whatever a user's own module raises
            raise AnnotationError(
                f"importing the module {name!r} raises {type(error).__name__}: {error}"
            ) from error
    origin = getattr(module, "__file__", None)
    if own.is_file():
        if origin is None or not own.samefile(origin):
            raise AnnotationError(
                f"the module {name!r} is that of {origin}, not {own}; rename the second file"
            )
        _OF_FOLDERS[name] = own.resolve()
    return module


@contextmanager
def _importable(folder: str | Path | None) -> Iterator[None]:
    """Search the row's folder and the working directory for modules, after all other places."""
    before = list(sys.path)
    sys.path += [str(Path(place).resolve()) for place in (folder, ".") if place is not None]
    try:
        yield
    finally:
        sys.path[:] = before


def data_source(
    data: Mapping[str, Any], folder: str | Path | None = None
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function that loads a row's data, and its options.

    Raises
    ------
    AnnotationError
        If there is no such data set or function.
    """
    from manyhands import datasets

    options = {name: value for name, value in data.items() if name not in ("name", "factory")}
    if "factory" in data:
        factory = find_object(data["factory"], folder)
        if not callable(factory):
            raise AnnotationError(
                f"factory {data['factory']!r} is {factory!r}; name a function that makes data"
            )
        return factory, options
    known = [name.removeprefix("load_") for name in datasets.__all__ if name.startswith("load_")]
    name = data["name"]
    if name not in known:
        raise AnnotationError(
            f"there is no data set {name!r}{did_you_mean(name, known)}; write one of "
            f"{', '.join(known)}"
        )
    return getattr(datasets, f"load_{name}"), options
