"""Records: classes of which saved models may consist, each under a name of its own.

A class says of itself that it is one (`record`), where it is defined, and what of it is saved: a
declaration, from which `manyhands.fitting.saving` writes and reads it. Estimators that are exported
by name need no name here, as `manyhands.registry` knows them: a classifier says what is saved in
its traits, and an aggregator that all of it is (`is_saved_whole`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    """What is saved of the values of a class.

    Attributes
    ----------
    name : str
        Stands in folders for good, whatever becomes of the class's own name.
    kind : type
    fields : tuple of str
        Attributes that are saved: fields of a dataclass, or what an estimator's fit has found.
    content : callable or None
        Of a class that is made of one value: from an object to that value.
    make : callable
        The class, or what else makes an object again: of the fields by name, of an estimator's
        parameters by name, or of the content.
    """

    name: str
    kind: type[Any]
    fields: tuple[str, ...]
    content: Callable[[Any], Any] | None
    make: Callable[..., Any]

    @property
    def is_estimator(self) -> bool:
        """Whether parameters are saved, too."""
        return hasattr(self.kind, "get_params")


_BY_NAME: dict[str, Record] = {}
_BY_CLASS: dict[type[Any], Record] = {}


def record(
    name: str,
    *fitted: str,
    content: Callable[[Any], Any] | None = None,
    make: Callable[..., Any] | None = None,
) -> Callable[[type[T]], type[T]]:
    """Let objects of a class be part of what is saved.

    Parameters
    ----------
    name : str
        Stands in folders for good.
    *fitted : str
        Of an estimator: the fitted attributes that are saved beside its parameters, as far as an
        object has them.
    content : callable, optional
        Of a class that is neither an estimator nor a dataclass: from an object to the one value of
        which it consists.
    make : callable, optional
        What makes an object again. Default: the class.

    Raises
    ------
    TypeError
        If the class is no dataclass, no estimator and has no ``content``, or another one has the
        name.
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
        # A module that is read again defines the same one.
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{known.__module__} has the record {name!r} already; name another one")
        _BY_NAME[name] = _BY_CLASS[cls] = Record(name, cls, kept, content, make or cls)
        return cls

    return named


def is_saved_whole(value: Any) -> bool:
    """Return whether all that an estimator has found is saved, its annotations included.

    A class says so by ``_saved_whole = True``, and so do those that are derived from it.
    """
    return bool(getattr(type(value), "_saved_whole", False))


def record_of(value: Any) -> Record | None:
    """Return what is saved of a value, if its class says so; None if it does not."""
    return _BY_CLASS.get(type(value))


def record_named(name: str) -> Record | None:
    """Return the record of a name; None if there is none, or its module is not imported."""
    return _BY_NAME.get(name)
