"""Import of a package's names on first use; errors name the missing extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import lazy_loader

from manyhands.exceptions import raise_missing_extra, warn_caller

_EXTRAS = {"torch": "torch"}
"""Optional packages that our modules import at the top level, and the extras that install them."""

Attached = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]
"""The values that a lazy package assigns to ``__getattr__, __dir__, __all__``."""


def attach_stub(package: str, file: str) -> Attached:
    """Attach the names that the package's stub file (``__init__.pyi``) imports.

    Parameters
    ----------
    package, file : str
        ``__name__`` and ``__file__`` of the package.
    """
    return _explain_missing_extras(package, lazy_loader.attach_stub(package, file))


def attach(package: str, modules: Iterable[str], names: Mapping[str, Iterable[str]]) -> Attached:
    """Attach modules of the package, and names keyed by the module that defines them."""
    return _explain_missing_extras(package, lazy_loader.attach(package, modules, names))


def with_former_names(package: str, attached: Attached, former: Mapping[str, str]) -> Attached:
    """Keep the former names of a package working, each with a warning that names the new one.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    attached : tuple
        As `attach_stub` returns it.
    former : mapping {former name: present name}
    """
    getattribute, directory, names = attached

    def __getattr__(name: str) -> Any:
        if name in former:
            warn_caller(
                f"{package}.{name} is now called {former[name]}, and the former name will be "
                f"removed; write {package}.{former[name]}",
                FutureWarning,
            )
            name = former[name]
        return getattribute(name)

    return __getattr__, directory, names


def _explain_missing_extras(package: str, attached: Attached) -> Attached:
    """Turn a failed import of an optional package into an error that names the extra."""
    getattribute, directory, names = attached

    def __getattr__(name: str) -> Any:
        try:
            return getattribute(name)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(error.name or "")
            if extra is None:
                raise
            raise_missing_extra(f"{package}.{name}", extra, error)

    return __getattr__, directory, names
