"""Records: dataclasses that a saved aggregator may hold, each under a name of its own.

A class says of itself that it is one (`record`), where it is defined. What is saved of a record are
its fields, and what is saved of an aggregator its parameters and fitted attributes
(`manyhands.fitting.saved_aggregators`), so that a new method is saved without another word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_CLASSES: dict[str, type[Any]] = {}
_NAMES: dict[type[Any], str] = {}


def record(name: str) -> Callable[[type[T]], type[T]]:
    """Let a dataclass be part of what is saved, under a name that stays when the class moves.

    Parameters
    ----------
    name : str
        Stands in folders for good, whatever becomes of the class's own name.

    Raises
    ------
    TypeError
        If the class is no dataclass, or another one has the name.
    """

    def named(cls: type[T]) -> type[T]:
        if not is_dataclass(cls):
            raise TypeError(f"{cls.__name__} is no dataclass, so it cannot be the record {name!r}")
        known = _CLASSES.get(name, cls)  # A module that is read again defines the same one.
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{known.__module__} has the record {name!r} already; name another one")
        _CLASSES[name], _NAMES[cls] = cls, name
        return cls

    return named


def name_of(value: Any) -> str | None:
    """Name of the record that a value is; None if it is none."""
    return _NAMES.get(type(value))


def class_of(name: str) -> type[Any]:
    """Class of a record.

    Raises
    ------
    KeyError
        If there is none of that name, or its module is not imported.
    """
    return _CLASSES[name]
