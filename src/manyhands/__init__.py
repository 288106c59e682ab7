"""manyhands: learning from crowds.

Annotations by many fallible annotators in; a classifier, inferred labels with their uncertainty
and a profile of every annotator out. Names are imported on first use, so that aggregating labels
needs no deep-learning stack.
"""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from manyhands._version import __version__ as __version__
from manyhands.exceptions import raise_missing_extra

if TYPE_CHECKING:
    from manyhands.annotations import *
    from manyhands.classifiers import *
    from manyhands.datasets import *
    from manyhands.decision import *
    from manyhands.inference import *
    from manyhands.report import *
    from manyhands.sampling import *

# Where public names live, cheapest first, and the extra a module needs.
_PUBLIC = {
    "manyhands.annotations": None,
    "manyhands.decision": None,
    "manyhands.inference": None,
    "manyhands.sampling": None,
    "manyhands.datasets": None,
    "manyhands.report": None,
    "manyhands.classifiers": "torch",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [public for public in __dir__() if not public.startswith("_")]
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
            if name in _exports(module_name):
                raise_missing_extra(f"manyhands.{name}", extra, error)
            continue
        if name in getattr(module, "__all__", ()):
            return getattr(module, name)
    raise AttributeError(f"module 'manyhands' has no attribute {name!r}")


def _exports(module_name: str) -> set[str]:
    """Names a module lists in ``__all__``, read from its source: it cannot be imported."""
    spec = find_spec(module_name)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    lists = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return {name for names in lists for name in ast.literal_eval(names)}


def __dir__() -> list[str]:
    names = {"__version__", "agreement", "estimator_checks"}
    for module_name in _PUBLIC:
        names |= _exports(module_name)
    return sorted(names)
