"""What `fit` says of annotators who share mistakes, of families, and of what stays unknown."""

from __future__ import annotations

import logging
import shlex
from typing import Any

import numpy as np

from manyhands.annotations.groups import ALONE, in_families, undeclared_models
from manyhands.annotations.sharded import ShardedAnnotations
from manyhands.exceptions import NotIdentifiableWarning, SharedMistakesWarning, warn_caller
from manyhands.inference.gold_regression import least_gold
from manyhands.inference.lone_families import lone_families
from manyhands.inference.shared_mistakes import (
    LEAST_DECLARED_Z,
    LEAST_Z,
    Centred,
    SharedMistakes,
    declared_sets,
    dense_annotators,
    gold_can_choose,
    not_measured,
    searched_sets,
)
from manyhands.inference.votes import make_votes
from manyhands.typing import AnyArray, BoolArray

_LOG = logging.getLogger("manyhands")

BETTER = "A family that is better than the others looks the same."
COST = "Weights of a family that is none cost accuracy"


def warn_of_shared_mistakes(table: Any, *, n_gold: int = 0) -> None:
    """Warn if annotators of many instances seem to share mistakes and no families are declared.

    Of declared families, say what the annotations tell about them. Undeclared ones are also
    searched beside families none of which is found to share mistakes.

    Parameters
    ----------
    table : AnnotationTable or store
    n_gold : int
        Number of annotated instances with gold. Only what helps beyond them is asked for.
    """
    if table.groups is not None and (table.groups == ALONE).all():
        return  # The user says that there are no families.
    declared = in_families(table.groups, table.n_annotators)
    models = undeclared_models(table.groups, table.annotators)
    if models.any():
        warn_caller(_of_models(table.annotators[models].tolist()), SharedMistakesWarning)
    is_searched = not models.any() and dense_annotators(table).any()
    if not (declared.any() or is_searched):
        return
    centred = Centred.of(table, np.random.default_rng(0))
    families = declared_sets(table, centred) if declared.any() else []
    wider = None
    if is_searched and not any(one.z >= LEAST_DECLARED_Z for one in families):
        wider = _undeclared(table, centred, set(table.annotators[declared].tolist()))
    if declared.any():
        _tell_of_declared(table, families, wider, n_gold)
    if wider is not None:
        _warn_of_undeclared(table, wider, families, n_gold)


def suspected(table: Any) -> BoolArray:
    """Mask of the annotators in no family who seem to share mistakes, or are models, (R,).

    They count as one where it is asked whether somebody else gave the same label.
    """
    found = undeclared_models(table.groups, table.annotators)
    if found.any() or (table.groups is not None and (table.groups == ALONE).all()):
        return found
    is_read = isinstance(table, ShardedAnnotations) or not table.annotators_known
    if is_read or not dense_annotators(table).any():
        return found  # A search reads all of a store; nobody's votes have no annotators.
    declared = in_families(table.groups, table.n_annotators)
    wider = _undeclared(
        table,
        Centred.of(table, np.random.default_rng(0)),
        set(table.annotators[declared].tolist()),
    )
    return found if wider is None else np.isin(table.annotators, wider.members) & ~declared


def _of_models(names: list[Any]) -> str:
    """Say that annotators are named like language models, and how they are declared."""
    shown = ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" * (len(names) > 3))
    option = "FILE, a table of annotators and their families"
    if not any({*str(name)} & {*",;="} for name in names):
        option = shlex.quote(f"llm={','.join(map(str, names))}")
    return (
        f"{shown} are named like language models, which often make the same mistakes, so that "
        "their agreement proves little: no label is accepted that they alone gave. Declare them "
        f"as one family: groups=dict.fromkeys({names!r}, 'llm'), on the command line --groups "
        f"{option}. If they have no reason to share mistakes: "
        "groups={}, on the command line --groups none"
    )


# -- what helps -----------------------------------------------------------------------------------


def _gold(table: Any, n_gold: int) -> str:
    """The gold that would help, as the end of a sentence; `GoldCorrected` has its own threshold."""
    least = _least_gold(table)
    if n_gold >= least:
        return f"fit GoldCorrected with the {n_gold} gold labels if they were drawn at random."
    if n_gold:
        return (
            f"give GoldCorrected more gold: {least} or more instances drawn at random in all "
            f"({n_gold} so far)."
        )
    return f"give GoldCorrected gold for {least} or more instances drawn at random."


def _least_gold(table: Any) -> int:
    """Gold from which on `GoldCorrected` corrects, which may ignore the families."""
    declared = bool(in_families(table.groups, table.n_annotators).any())
    ignored = declared and lone_families(make_votes(table), table.groups).are_most
    return least_gold(table.n_classes, families=declared and not ignored)


GROUPS = "groups=, on the command line --groups; groups={} or --groups none"
"""How families are declared: reports show messages to people of either kind."""


def _declaration(table: Any, n_gold: int) -> str:
    """What helps against families that are not declared: gold only where it can choose them."""
    if isinstance(table, ShardedAnnotations):
        return "A store carries no families: fit a table, and say there who belongs together."
    ask = f"Say who belongs together ({GROUPS} if nobody does)"
    return f"{ask}, or {_gold(table, n_gold)}" if gold_can_choose(table) else f"{ask}."


# -- declared families ----------------------------------------------------------------------------


def _tell_of_declared(
    table: Any, found: list[SharedMistakes], wider: SharedMistakes | None, n_gold: int
) -> None:
    """Say what is known of the declared families, but of those that are part of a wider set."""
    told = set() if wider is None else set(wider.members)
    innocent = [
        one for one in found if one.z < LEAST_DECLARED_Z and not told.issuperset(one.members)
    ]
    supported = [one for one in found if one.z >= LEAST_DECLARED_Z]
    unknown = [one for one in found if not one.measurable]
    names = np.unique(table.groups[table.annotator])
    only = len(names) < 3 and ALONE not in names and n_gold < _least_gold(table)
    if innocent and not only:
        warn_caller(
            f"{_first(innocent)} {BETTER} {COST}: declare only annotators who have a reason to "
            f"share mistakes, or {_gold(table, n_gold)}",
            SharedMistakesWarning,
        )
    if not n_gold:
        for said in (*map(str, supported), _first(unknown)):
            if said:
                _LOG.info("%s", said)
        _LOG.info(
            "families are declared and no gold is given: accuracies are estimates from agreement; "
            "mistakes that all groups share would make them too high"
        )
    if only and len(names) == 2:
        warn_caller(_of_two(table, names, innocent, n_gold), NotIdentifiableWarning)
    elif only:
        warn_caller(_of_one(table, names[0], n_gold), NotIdentifiableWarning)


def _first(found: list[SharedMistakes]) -> str:
    """What the first of several families shows, and how many show the same."""
    more = f" The same holds for {len(found) - 1} more." if len(found) > 1 else ""
    return f"{found[0]}{more}" if found else ""


def _of_one(table: Any, name: str, n_gold: int) -> str:
    """What is unknown if all annotators belong to one family."""
    return (
        f"All annotators belong to one family, {name}. Nobody outside it could show the mistakes "
        "that its members share, so the labels are its vote shares. Leave the declaration out, "
        f"add annotators outside the family, or {_gold(table, n_gold)}"
    )


def _of_two(table: Any, names: AnyArray, innocent: list[SharedMistakes], n_gold: int) -> str:
    """What is unknown if all annotators belong to two families: where they differ, nothing decides.

    The tetrad measures both families together. If it is small, they may be no families at all.
    """
    there_are = f"There are only two groups of annotators, {names[0]} and {names[1]}"
    family = table.groups[table.annotator]
    counts = np.stack([table.take(np.flatnonzero(family == n)).vote_counts() for n in names])
    both = counts.any(axis=2).all(axis=0)
    if not both.any():
        return (
            f"{there_are}, and no instance has annotations of both, so the groups cannot be "
            "compared, and the labels are the vote shares of the one that annotated. To tell which "
            f"is right, {_gold(table, n_gold)}"
        )
    one, other = counts[:, both].argmax(axis=2)
    share = f"{(one != other).mean():.0%} of the instances that both annotated"
    if innocent:
        return (
            f"{there_are}, and they show no shared mistakes (z = {innocent[0].z:.1f}). {BETTER} "
            f"{COST}: if these have no reason to share mistakes, declare none "
            "(groups={}, on the command line --groups none), and the annotations decide. If they "
            "have one, the labels follow the prior, not the data, "
            f"on the {share} where they differ; to tell which is right, {_gold(table, n_gold)}"
        )
    return (
        f"{there_are}. On {share}, they differ; there the labels follow the prior, not the data. "
        f"To tell which is right, {_gold(table, n_gold)}"
    )


# -- undeclared families --------------------------------------------------------------------------


def _undeclared(table: Any, centred: Centred, declared: set[Any]) -> SharedMistakes | None:
    """The set to warn of: that with the highest z with members outside the declared families."""
    found = [one for one in searched_sets(table, centred) if not declared.issuperset(one.members)]
    if found and found[0].measurable and found[0].z > LEAST_Z:
        return found[0]
    one = not_measured(table, centred)
    return None if one is None or declared.issuperset(one.members) else one


def _warn_of_undeclared(
    table: Any, found: SharedMistakes, families: list[SharedMistakes], n_gold: int
) -> None:
    parts = [one.members for one in families if set(found.members).issuperset(one.members)]
    part = ""
    if parts:
        part = f" The declared family {', '.join(map(str, parts[0]))} is only a part of these."
    agree = "" if found.measurable else " They agree with one another more than with the others."
    warn_caller(
        f"{found}{agree}{part} {_declaration(table, n_gold)}",
        SharedMistakesWarning if found.measurable else NotIdentifiableWarning,
    )
