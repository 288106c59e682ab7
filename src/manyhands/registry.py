"""Find classifiers by walking what the package exports: to export a method is to register it."""

from __future__ import annotations

import re
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier


def all_classifiers() -> list[tuple[str, type[BaseCrowdClassifier]]]:
    """List every crowd classifier as (name, class), sorted by name."""
    import manyhands.classifiers as package

    exported = [(name, getattr(package, name)) for name in package.__all__]
    return sorted(
        (name, cls)
        for name, cls in exported
        if isinstance(cls, type)
        and issubclass(cls, BaseCrowdClassifier)
        and cls is not BaseCrowdClassifier
    )


def all_wrappers() -> list[tuple[str, type]]:
    """List every classifier made around another one (``estimator``) as (name, class), sorted."""
    import manyhands.classifiers as package
    from manyhands.classifiers.self_training import SelfTrainingCrowdClassifier

    exported = [(name, getattr(package, name)) for name in package.__all__]
    return sorted(
        (name, cls)
        for name, cls in exported
        if isinstance(cls, type) and issubclass(cls, SelfTrainingCrowdClassifier)
    )


def short_name(cls: type) -> str:
    """Name of a method on the command line: ``CoNALClassifier`` -> ``conal``."""
    # "Crowd" is part of NeuCrowd's name, and of no other but that of self-training.
    return cls.__name__.removesuffix("Classifier").replace("TrainingCrowd", "Training").lower()


def find_classifier(name: str) -> type[Any]:
    """Find a classifier by class name or short name; hyphens, underscores and case do not count.

    Raises
    ------
    AnnotationError
        If there is none of that name.
    """
    wanted = _plain(name)
    found = [*all_classifiers(), *all_wrappers()]
    for known, cls in found:
        if wanted in (short_name(cls), _plain(known)):
            return cls
    names = ", ".join(short_name(cls) for _, cls in found)
    raise AnnotationError(f"method={name!r} is unknown; use one of {names}")


def find_annotator(name: str) -> type[Any]:
    """Find what fills in annotations: "graph-completer", or a classifier by `find_classifier`.

    Raises
    ------
    AnnotationError
        If there is none of that name.
    """
    from manyhands.classifiers.graph_completion import GraphCompleter

    return GraphCompleter if _plain(name) == "graphcompleter" else find_classifier(name)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("classifier")
