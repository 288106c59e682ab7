"""Defaults that look at the data, replaced by values in the rows of a published comparison.

``instead_of_auto: {scaling: standard, max_epochs: 50}`` in a paper's file is written into every
estimator (those among parameters included) whose class has "auto" as the default of that parameter,
unless the row sets the parameter. Rows thus name the values they were run with, and their records
stay valid whatever "auto" comes to mean.
"""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path

from manyhands.evidence.experiments.document import Node
from manyhands.evidence.objects import find_object
from manyhands.exceptions import AnnotationError


def without_auto(described: Node, fixed: Node, folder: Path) -> Node:
    """Return the description of an estimator with fixed values in place of automatic defaults.

    Parameters
    ----------
    described : Node
        ``class`` and ``params``, expanded; or any part of such a description.
    fixed : Node
        Parameter -> value.
    folder : Path
        May contain the modules of classes.
    """
    value = described.value
    if isinstance(value, list):
        return Node([without_auto(part, fixed, folder) for part in value], described.line)
    if not isinstance(value, dict):
        return described
    value = {name: without_auto(part, fixed, folder) for name, part in value.items()}
    named = value.get("class")
    if named is not None and isinstance(named.value, str):
        params = value.get("params", Node({}, described.line))
        given = params.value if isinstance(params.value, dict) else {}
        automatic = _automatic(named.value, folder)
        missing = {
            name: part
            for name, part in fixed.value.items()
            if name in automatic and name not in given
        }
        if missing:
            value["params"] = Node({**given, **missing}, params.line)
    return Node(value, described.line)


@cache
def _automatic(name: str, folder: Path) -> frozenset[str]:
    """Parameters of a class whose default is "auto"; none if there is no such class."""
    try:
        parameters = inspect.signature(find_object(name, folder)).parameters
    except (AnnotationError, TypeError, ValueError):
        return frozenset()  # The check of the row names the mistake, with its line.
    return frozenset(key for key, each in parameters.items() if each.default == "auto")
