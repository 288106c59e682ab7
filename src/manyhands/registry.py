"""All methods by name, for the command line, YAML files and saved models.

A class is registered if one of the packages of methods exports it; for a classifier, this is one
line in ``classifiers/__init__.pyi``. Its kind is inferred from the class itself. Names are looked
up without importing, so finding one method imports no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from typing import Any

from manyhands.exceptions import AnnotationError


@dataclass(frozen=True)
class _Kind:
    package: str
    includes: Callable[[type], bool]


def _has_method(method: str) -> Callable[[type], bool]:
    return lambda cls: hasattr(cls, method)


def _takes_sets(cls: type) -> bool:
    return bool(getattr(getattr(cls, "traits", None), "takes_sets", False))


def _predicts_proba(cls: type) -> bool:
    return hasattr(cls, "predict_proba")


def _is_wrapper(cls: type) -> bool:
    return _predicts_proba(cls) and bool({"estimator", "estimators"} & {*signature(cls).parameters})


_KINDS = {
    "aggregator": _Kind(
        "manyhands.inference",
        lambda cls: hasattr(cls, "fit_predict_proba") and not _takes_sets(cls),
    ),
    # Methods that infer sets of labels, with a posterior of each option.
    "set-aggregator": _Kind("manyhands.inference", _takes_sets),
    # Methods that average numbers; aggregators choose among classes.
    "averager": _Kind(
        "manyhands.inference",
        lambda cls: hasattr(cls, "fit_predict") and not hasattr(cls, "fit_predict_proba"),
    ),
    # Methods that rank items by pairwise comparisons.
    "ranker": _Kind("manyhands.ranking", _has_method("next_pairs")),
    "classifier": _Kind(
        "manyhands.classifiers", lambda cls: _predicts_proba(cls) and not _is_wrapper(cls)
    ),
    # Classifiers that wrap another one (``estimator``) or several (``estimators``).
    "wrapper": _Kind("manyhands.classifiers", _is_wrapper),
    # Methods that fill in annotations and are no classifiers.
    "completer": _Kind("manyhands.classifiers", _has_method("complete")),
    "sampler": _Kind("manyhands.sampling", _has_method("fit_resample")),
    "selector": _Kind("manyhands.sampling", _has_method("select")),
    "encoder": _Kind("manyhands.encoders", _has_method("transform")),
}


_PACKAGES = sorted({kind.package for kind in _KINDS.values()} | {"manyhands.linear"})


def names() -> dict[str, str]:
    """Return a dict of every name and the package that exports it, without importing methods."""
    return {name: package for package in _PACKAGES for name in import_module(package).__all__}


def get(name: str, *kinds: str) -> Any:
    """Return the class or function exported under exactly this name, as in YAML and saved models.

    Parameters
    ----------
    name : str
    *kinds : {"aggregator", "set-aggregator", "averager", "ranker", "classifier", "wrapper", \
"completer", "sampler", "selector", "encoder"}
        Kinds to accept. Default: all.

    Raises
    ------
    AnnotationError
        If no class or function has this name and kind.
    """
    known = names()
    if name in known:
        found = getattr(import_module(known[name]), name)
        if not kinds or any(_is_kind(found, known[name], kind) for kind in kinds):
            return found
    raise AnnotationError(f"manyhands has no {' or '.join(kinds) or 'method'} {name!r}")


def find(name: str, *kinds: str, argument: str = "method") -> type[Any]:
    """Return the class with a name, in any spelling: case, hyphens and "Classifier" do not matter.

    Parameters
    ----------
    name : str
        Such as "CoNALClassifier", "conal", "dawid-skene" or "Distribution_Aware".
    *kinds : {"aggregator", "set-aggregator", "averager", "ranker", "classifier", "wrapper", \
"completer", "sampler", "selector", "encoder"}
        Kinds to accept.
    argument : str
        Name of the argument, for the error message.

    Returns
    -------
    type
        The class.

    Raises
    ------
    AnnotationError
        If there is no such class. The message lists all available names.
    """
    wanted = _simplify(name)
    for known, package in names().items():
        if wanted in _accepted_spellings(known):
            found = getattr(import_module(package), known)
            if any(_is_kind(found, package, kind) for kind in kinds):
                return found
    available = [short_name(cls) for kind in kinds for _, cls in _classes_of_kind(kind)]
    close = get_close_matches(name.lower(), available, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise AnnotationError(
        f"{argument}={name!r} is unknown{hint}; use one of {', '.join(available)}"
    )


def find_classifier(name: str) -> type[Any]:
    """Find a crowd classifier or a wrapper of one; see `find`."""
    return find(name, "classifier", "wrapper")


def find_aggregator(name: str) -> type[Any]:
    """Find a truth-inference method; see `find`."""
    return find(name, "aggregator")


def find_averager(name: str) -> type[Any]:
    """Find a method that averages ratings, or one that chooses among classes; see `find`."""
    return find(name, "averager", "aggregator")


def find_set_aggregator(name: str) -> type[Any]:
    """Find a method that infers sets of labels; see `find`."""
    return find(name, "set-aggregator")


def find_selector(name: str) -> type[Any]:
    """Find a selector of pseudo-annotations; see `find`."""
    return find(name, "selector", argument="selector")


def all_classifiers() -> list[tuple[str, type[Any]]]:
    """List every crowd classifier as (name, class), sorted by name."""
    return _classes_of_kind("classifier")


def all_wrappers() -> list[tuple[str, type[Any]]]:
    """List every classifier that wraps others as (name, class), sorted by name."""
    return _classes_of_kind("wrapper")


def all_aggregators() -> list[tuple[str, type[Any]]]:
    """List every truth-inference method as (name, class), sorted by name."""
    return _classes_of_kind("aggregator")


def all_set_aggregators() -> list[tuple[str, type[Any]]]:
    """List every method that infers sets of labels as (name, class), sorted by name."""
    return _classes_of_kind("set-aggregator")


def all_averagers() -> list[tuple[str, type[Any]]]:
    """List every method that averages ratings as (name, class), sorted by name."""
    return _classes_of_kind("averager")


def all_rankers() -> list[tuple[str, type[Any]]]:
    """List every method that ranks items by comparisons as (name, class), sorted by name."""
    return _classes_of_kind("ranker")


def all_samplers() -> list[tuple[str, type[Any]]]:
    """List every sampler of synthetic instances as (name, class), sorted by name."""
    return _classes_of_kind("sampler")


def all_selectors() -> list[tuple[str, type[Any]]]:
    """List every selector of pseudo-annotations as (name, class), sorted by name."""
    return _classes_of_kind("selector")


def all_encoders() -> list[tuple[str, type[Any]]]:
    """List every encoder of texts and images as (name, class), sorted by name."""
    return _classes_of_kind("encoder")


def short_name(cls: type) -> str:
    """Return the command-line name of a class: ``DawidSkene`` -> ``dawid-skene``.

    Examples
    --------
    >>> from manyhands.inference import DawidSkene, EBCC
    >>> short_name(DawidSkene), short_name(EBCC)
    ('dawid-skene', 'ebcc')
    """
    name = re.sub(r"((?<=Training)Crowd)?Classifier$|Selector$", "", cls.__name__)
    # Words and final acronyms are separated by hyphens, but CrowdInG and CoNAL are single words.
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})|(?<=[a-z]{2})(?=[A-Z]{2,}$)", "-", name).lower()


def _classes_of_kind(kind: str) -> list[tuple[str, type[Any]]]:
    package = _KINDS[kind].package
    exported = [(name, get(name)) for name, place in sorted(names().items()) if place == package]
    return [(name, thing) for name, thing in exported if _is_kind(thing, package, kind)]


def _is_kind(thing: Any, package: str, kind: str) -> bool:
    known = _KINDS[kind]
    return package == known.package and isinstance(thing, type) and known.includes(thing)


def _simplify(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _accepted_spellings(name: str) -> set[str]:
    plain = _simplify(name)
    endings = ("classifier", "crowdclassifier", "selector")
    return {plain, *(plain.removesuffix(ending) for ending in endings)}
