"""Records: classes whose objects may be part of a saved model, each under a fixed name.

A class declares by the decorator `record` under which name it is saved and which of its values.
`manyhands.fitting.saving` writes and reads objects by this declaration. Estimators that are
exported by name need no record, because `manyhands.registry` knows them: a classifier declares in
its traits what is saved, and an aggregator that all of it is (`is_saved_whole`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    """Declaration of how the objects of a class are saved.

    Attributes
    ----------
    name : str
        Name in folders. It never changes, even if the class is renamed.
    kind : type
        The class.
    fields : tuple of str
        Attributes that are saved: fields of a dataclass, or fitted attributes of an estimator.
    content : callable or None
        For a class that consists of one value: returns that value of an object.
    make : callable
        The class, or another function that makes an object from the fields by name, from an
        estimator's parameters by name, or from the content.
    """

    name: str
    kind: type[Any]
    fields: tuple[str, ...]
    content: Callable[[Any], Any] | None
    make: Callable[..., Any]

    @property
    def is_estimator(self) -> bool:
        """Whether the class is an estimator, so that its parameters are saved, too."""
        return hasattr(self.kind, "get_params")


_BY_NAME: dict[str, Record] = {}
_BY_CLASS: dict[type[Any], Record] = {}


def record(
    name: str,
    *fitted: str,
    content: Callable[[Any], Any] | None = None,
    make: Callable[..., Any] | None = None,
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that lets objects of the class be part of a saved model.

    Parameters
    ----------
    name : str
        Name in folders. It must never change.
    *fitted : str
        For an estimator: the fitted attributes that are saved besides its parameters. An object may
        lack some of them.
    content : callable, optional
        For a class that is neither an estimator nor a dataclass: returns the one value of which an
        object consists.
    make : callable, optional
        Function that makes an object from the saved values. Default: the class.

    Raises
    ------
    TypeError
        If the class is neither a dataclass nor an estimator and has no ``content``, or if another
        class has this name.
    """

    def named(cls: type[T]) -> type[T]:
        kept = fitted
        if content is None and not hasattr(cls, "get_params"):
            if not is_dataclass(cls):
                raise TypeError(
                    f"{cls.__name__} is no dataclass, so it cannot be the record {name!r}"
                )
            kept = tuple(field.name for field in fields(cls))
        known = _BY_NAME[name].kind if name in _BY_NAME else cls
        # A module that is reloaded defines the same record again.
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{known.__module__} has the record {name!r} already; name another one")
        _BY_NAME[name] = _BY_CLASS[cls] = Record(name, cls, kept, content, make or cls)
        return cls

    return named


def is_saved_whole(value: Any) -> bool:
    """Return whether all fitted attributes of an estimator are saved, including its annotations.

    A class declares this by ``_saved_whole = True``, and its subclasses inherit it.
    """
    return bool(getattr(type(value), "_saved_whole", False))


def record_of(value: Any) -> Record | None:
    """Return the record of a value's class; None if it has none."""
    return _BY_CLASS.get(type(value))


def record_named(name: str) -> Record | None:
    """Return the record with a name; None if there is none, or its module is not imported."""
    return _BY_NAME.get(name)
