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

from manyhands import datasets, registry
from manyhands.exceptions import AnnotationError

# Rows name what is ours without modules, so the content of a row is the same wherever code stands.
_MEASURES = "evidence.measures"
_DATA = "evidence.data"

_OF_FOLDERS: dict[str, Path] = {}
"""Module imported from a row's folder -> its file."""


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
    try:
        module = _import(module_name, folder)
    except ImportError as error:
        raise AnnotationError(
            f"{name!r} cannot be imported ({error}); install the module, or put it into the "
            "row's folder or the working directory"
        ) from error
    known = module.__all__ if module_name in (_MEASURES, _DATA) else dir(module)
    if attribute not in known:
        hint = did_you_mean(attribute, known)
        raise AnnotationError(f"the module {module_name!r} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def find_measure(name: str, folder: str | Path | None = None) -> Any:
    """Find one of our measures by name, or any "module:function", as `find_object` does."""
    return find_object(name if ":" in name else f"{_MEASURES}:{name}", folder)


def _find_factory(name: str, folder: str | Path | None) -> Any:
    """Find a data factory of ours by name, or any "module:function", as `find_object` does."""
    if ":" in name:
        return find_object(name, folder)
    home = _DATA if hasattr(import_module(_DATA), name) else datasets.__name__
    return find_object(f"{home}:{name}")


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
    options = {name: value for name, value in data.items() if name not in ("name", "factory")}
    if "factory" in data:
        factory = _find_factory(data["factory"], folder)
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
