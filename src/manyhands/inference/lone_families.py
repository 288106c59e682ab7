"""Instances that only one family of annotators annotated, which say nothing about its mistakes.

The *units* of an instance are the declared families among its annotators, and each annotator
without a family. Where one family is the only unit, its members agree because they share mistakes,
not because they are right; with the weights of a family (`manyhands.inference.families`) they count
as little more than one vote. If such instances are most of a table, EM explains them by one class.
So they take no part in the fit (unless they are few), and are labelled afterwards: by the family's
vote shares, or, if enough other instances were fitted, by what the fit knows of the members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyhands.annotations.groups import in_families
from manyhands.decision.labels import pick
from manyhands.exceptions import NotIdentifiableWarning, warn_caller
from manyhands.inference.vote_sums import vote_shares
from manyhands.inference.votes import Votes
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray

MOST_TAKING_PART = 0.1
"""Share of the annotated instances up to which those of one family alone stay in the fit: so few
cannot decide it, and the other instances tell enough of the family."""


def least_others(n_classes: int) -> int:
    """Number of other instances from which on the fit labels those of one family alone.

    With 25 to 50 of them, a fit of six machines lost up to .05 of accuracy against vote shares.
    """
    return max(100, 20 * n_classes)


@dataclass(frozen=True)
class LoneFamilies:
    """Where one family is the only unit.

    Attributes
    ----------
    alone : boolean array of shape (n_instances,)
        Instances with annotations of one family only, without gold; none if they are few.
    n_annotated : int
        Number of instances with annotations.
    names : tuple of str
        The families of these instances.
    enough : bool
        Whether there are enough other instances for the fit to label these.
    """

    alone: BoolArray
    n_annotated: int
    names: tuple[str, ...]
    enough: bool

    @classmethod
    def none(cls, n_instances: int) -> LoneFamilies:
        """Return what is found where no family is alone."""
        return cls(np.zeros(n_instances, dtype=bool), 0, (), enough=True)

    @property
    def n(self) -> int:
        """Number of these instances."""
        return int(self.alone.sum())

    @property
    def share(self) -> str:
        """Share of the annotated instances, in words."""
        share = 100 * self.n / max(self.n_annotated, 1)
        return "fewer than 1 %" if share < 1 else f"{share:.0f} %"

    @property
    def are_all(self) -> bool:
        """Whether no other instance has annotations."""
        return 0 < self.n == self.n_annotated

    @property
    def are_most(self) -> bool:
        """Whether these are more than half of the annotated instances."""
        return 2 * self.n > self.n_annotated


def lone_families(votes: Any, groups: AnyArray | None) -> LoneFamilies:
    """Find the instances that one family alone annotated.

    Parameters
    ----------
    votes : Votes or StoredVotes
        A store declares no families. An annotator's history is evidence from outside the family.
    groups : text array of shape (R,) or None
        Family of each annotator, "" for none.
    """
    if votes.family is None or groups is None:
        return LoneFamilies.none(votes.n_instances)
    answers: Votes = votes.answers
    members = in_families(groups, votes.n_annotators)
    if votes.history is not None:
        members = members & ~votes.history.any(axis=(1, 2))
    given: BoolArray = np.diff(answers.start) > 0
    unit = votes.family[answers.annotator]
    first = np.full(votes.n_instances, MISSING)
    first[given] = unit[answers.start[:-1][given]]
    alone = given.copy()
    alone[answers.instance[(unit != first[answers.instance]) | ~members[answers.annotator]]] = False
    if votes.gold is not None:
        alone &= votes.gold < 0
    n = int(given.sum())
    if alone.sum() <= MOST_TAKING_PART * n:
        alone[:] = False
    names = np.unique(groups[np.isin(votes.family, first[alone])])
    enough = n - int(alone.sum()) >= least_others(votes.n_classes)
    return LoneFamilies(alone, n, tuple(names.tolist()), enough)


def set_apart(votes: Votes, found: LoneFamilies) -> Votes:
    """Votes without the annotations of the instances that one family alone annotated.

    If there are no others, the majority of each family counts as known, so that the model's
    parameters are defined.
    """
    if not found.n:
        return votes
    if found.are_all:
        majority = pick(vote_shares(votes.answers), "random", np.random.RandomState(0))
        gold = np.full(votes.n_instances, MISSING) if votes.gold is None else votes.gold.copy()
        gold[found.alone] = majority[found.alone]
        return replace(votes, gold=gold)
    return votes.keep(~found.alone[votes.instance])


def read_out_families(
    votes: Votes,
    alone: BoolArray,
    posterior: FloatArray,
    model: Callable[[Votes], FloatArray] | None,
) -> None:
    """Fill the rows of ``posterior`` (n, C) that one family alone annotated.

    Parameters
    ----------
    votes : Votes
        With all annotations.
    alone : boolean array of shape (n,)
    posterior : array of shape (n, C)
    model : callable or None
        From votes to the posterior of the fitted model; None: vote shares. They also stand where
        the family gave a class that the model holds impossible, as nobody gave it in the fit.
    """
    rows = np.flatnonzero(alone)
    part = votes.select(rows)
    shares = vote_shares(replace(part.answers, gold=None))
    if model is None:
        posterior[rows] = shares
        return
    found = model(part)
    unseen = ((shares > 0) & (found <= np.finfo(np.float32).tiny)).max(axis=1, initial=False)
    posterior[rows] = np.where(unseen[:, None], shares, found)


def warn_of_lone_families(found: LoneFamilies) -> None:
    """Warn that one family alone annotated some instances, unless it is all there is."""
    if not found.n or (found.are_all and len(found.names) < 3):
        return  # Of the latter `family_warnings` tells.
    who = f"the family {found.names[0]}" if len(found.names) == 1 else "one family each"
    how = (
        "Nothing there shows the mistakes that its members share, so these instances take no part "
        "in the fit, and their labels come from what the other instances tell of the annotators."
        if found.enough
        else "Their labels are its vote shares."
    )
    warn_caller(
        f"On {found.share} of the instances only {who} annotated. {how} Give the people's labels "
        "as gold to GoldCorrected, with no family declared.",
        NotIdentifiableWarning,
    )
