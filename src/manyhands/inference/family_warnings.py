"""What `fit` says of annotators who share mistakes, of families, and of what stays unknown."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from manyhands.annotations.groups import ALONE
from manyhands.exceptions import NotIdentifiableWarning, SharedMistakesWarning, warn_caller
from manyhands.inference.shared_mistakes import (
    LEAST_DECLARED_Z,
    LEAST_Z,
    Centred,
    SharedMistakes,
    declared_sets,
    dense_annotators,
    not_measured,
    searched_sets,
)

_LOG = logging.getLogger("manyhands")

GOLD = "give gold for 20-50 instances drawn at random."
ASK = f"Say who belongs together (groups=; groups={{}} if nobody does), or {GOLD}"


def warn_of_shared_mistakes(table: Any, *, has_gold: bool = False) -> None:
    """Warn if annotators of many instances seem to share mistakes and no families are declared.

    Of declared families, say what the annotations tell about them. Undeclared ones are also
    searched beside families none of which is found to share mistakes.
    """
    declared = np.zeros(table.n_annotators, dtype=bool)
    if table.groups is not None:
        declared = table.groups != ALONE
        if not declared.any():
            return  # The user says that there are no families.
    is_searched = dense_annotators(table).any()
    if not (declared.any() or is_searched):
        return
    centred = Centred.of(table, np.random.default_rng(0))
    if declared.any() and _tell_of_declared(table, centred, has_gold=has_gold):
        return
    if is_searched:
        _warn_of_undeclared(table, centred, set(table.annotators[declared].tolist()))


def _tell_of_declared(table: Any, centred: Centred, *, has_gold: bool) -> bool:
    """Say what is known of the declared families; whether one is found to share mistakes."""
    found = declared_sets(table, centred)
    innocent = [one for one in found if one.z < LEAST_DECLARED_Z]
    supported = [one for one in found if one.z >= LEAST_DECLARED_Z]
    unknown = [one for one in found if not one.measurable]
    if innocent:
        warn_caller(
            f"{_first(innocent)} Weights of a family that is none cost accuracy: declare "
            f"annotators who have a reason to share mistakes, or {GOLD}",
            SharedMistakesWarning,
        )
    if not has_gold:
        for said in (*map(str, supported), _first(unknown)):
            if said:
                _LOG.info("%s", said)
        _LOG.info(
            "families are declared and no gold is given: accuracies are estimates from agreement; "
            "mistakes that all groups share would make them too high"
        )
        _warn_of_two_groups(table)
    return bool(supported)


def _first(found: list[SharedMistakes]) -> str:
    """What the first of several families shows, and how many show the same."""
    more = f" The same holds for {len(found) - 1} more." if len(found) > 1 else ""
    return f"{found[0]}{more}" if found else ""


def _warn_of_two_groups(table: Any) -> None:
    """Warn if all annotators belong to two families: where these differ, nothing decides."""
    family = table.groups[table.annotator]
    names = np.unique(family)
    if len(names) != 2 or ALONE in names:
        return
    counts = np.stack([table.take(np.flatnonzero(family == n)).vote_counts() for n in names])
    both = counts.any(axis=2).all(axis=0)
    if both.any():
        one, other = counts[:, both].argmax(axis=2)
        warn_caller(
            f"There are only two groups of annotators, {names[0]} and {names[1]}. On "
            f"{(one != other).mean():.0%} of the instances that both annotated, they differ; there "
            f"the labels follow the prior, not the data. To tell which is right, {GOLD}",
            NotIdentifiableWarning,
        )


def _warn_of_undeclared(table: Any, centred: Centred, declared: set[Any]) -> None:
    """Warn of the set with the highest z that has members outside the declared families."""
    found = [one for one in searched_sets(table, centred) if not declared.issuperset(one.members)]
    if found and found[0].measurable and found[0].z > LEAST_Z:
        warn_caller(f"{found[0]} {ASK}", SharedMistakesWarning)
        return
    one = not_measured(table, centred)
    if one is not None and not declared.issuperset(one.members):
        warn_caller(
            f"{one} They agree with one another more than with the others. {ASK}",
            NotIdentifiableWarning,
        )
