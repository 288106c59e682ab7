"""Names in rows, and what they stand for: classes, measures, and functions that make data."""

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
    "manyhands.experiments.ceilings": "manyhands.evidence.data.ceilings",
    "manyhands.experiments.fewer": "manyhands.evidence.data.fewer",
    "manyhands.experiments.imbalance": "manyhands.evidence.data.imbalance",
    "manyhands.experiments.sparsity": "manyhands.evidence.data.sparsity",
}
"""Modules that have moved since records were filed under their former names."""

# Experiments' files name measures and data factories of ours without their modules. A row has
# them in full, under the modules' former names: these are part of the key that records are filed
# under, and a key stays what it is wherever code moves (`_MOVED`).
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
"""Modules imported from rows' folders, and their files."""


def measure_in_full(name: str) -> str:
    """Return the name of a measure with its module: of one of ours, that of its key."""
    return name if ":" in name else f"{_MEASURES}:{name}"


def factory_in_full(name: str) -> str:
    """Return the name of a function that makes data with its module, in the same way."""
    return name if ":" in name else f"{_FACTORIES.get(name, _DATASETS)}:{name}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" where one known name is close."""
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def find_object(name: str, folder: str | Path | None = None) -> Any:
    """Find a name of manyhands, or a "module:name", also of modules in a folder.

    Raises
    ------
    AnnotationError
        If there is no such thing; the mend names a close one.
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
    """Import a module; where the row's folder has one of that name, it must be this one."""
    own = Path(folder or ".") / Path(*name.split(".")).with_suffix(".py")
    if own.is_file() and _OF_FOLDERS.get(name, own.resolve()) != own.resolve():
        # Another row's own module of the same name: the objects it gave stay as they are.
        sys.modules.pop(name, None)
        invalidate_caches()
    with _importable(folder):
        try:
            module = import_module(name)
        except ImportError:
            raise
        except Exception as error:  # whatever a user's own module raises
            raise AnnotationError(
                f"the module {name!r} raises {type(error).__name__} where it is imported: {error}"
            ) from error
    origin = getattr(module, "__file__", None)
    if own.is_file():
        if origin is None or not own.samefile(origin):
            raise AnnotationError(
                f"the module {name!r} is that of {origin}, not {own}; rename the latter"
            )
        _OF_FOLDERS[name] = own.resolve()
    return module


@contextmanager
def _importable(folder: str | Path | None) -> Iterator[None]:
    """Let modules of a row's folder and of the working directory be found, last of all."""
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
                f"{data['factory']!r} is {factory!r}, no function that makes data"
            )
        return factory, options
    known = [name.removeprefix("load_") for name in datasets.__all__ if name.startswith("load_")]
    name = data["name"]
    if name not in known:
        raise AnnotationError(
            f"there is no data set {name!r}{did_you_mean(name, known)}; there are "
            f"{', '.join(known)}"
        )
    return getattr(datasets, f"load_{name}"), options
