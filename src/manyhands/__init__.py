"""manyhands: learning from crowds.

Annotations by many fallible annotators in; a classifier, inferred labels with their uncertainty
and a profile of every annotator out. Names are imported on first use, so that aggregating labels
needs no deep-learning stack.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from manyhands._version import __version__ as __version__
from manyhands.exceptions import raise_missing_extra

if TYPE_CHECKING:
    from manyhands.annotations import *
    from manyhands.classifiers import *
    from manyhands.datasets import *
    from manyhands.inference import *
    from manyhands.report import *

# Where public names live, cheapest first, and the extra a module needs.
_PUBLIC = {
    "manyhands.annotations": None,
    "manyhands.inference": None,
    "manyhands.datasets": None,
    "manyhands.report": None,
    "manyhands.classifiers": "torch",
}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'manyhands' has no attribute {name!r}")
    if find_spec(f"manyhands.{name}") is not None:
        return import_module(f"manyhands.{name}")
    for module_name, extra in _PUBLIC.items():
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if extra is None or (error.name or "").startswith("manyhands"):
                raise
            raise_missing_extra(f"manyhands.{name}", extra, error)
        if name in getattr(module, "__all__", ()):
            return getattr(module, name)
    raise AttributeError(f"module 'manyhands' has no attribute {name!r}")


def __dir__() -> list[str]:
    names = set(globals())
    for module_name in _PUBLIC:
        try:
            names.update(import_module(module_name).__all__)
        except ModuleNotFoundError:
            continue
    return sorted(names)
