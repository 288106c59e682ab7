"""What gold shows of a set of annotators who agree with one another more than with the others.

Annotations alone cannot tell whether the set shares mistakes, or the others do, or the set is just
more often right. True labels can: they show how often both sides are right on the same items, and
whether somebody of the set repeats the mistake of another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t

from manyhands.annotations import AnnotationTable
from manyhands.metrics.intervals import share_interval
from manyhands.typing import IntArray
from manyhands.wording import counted, percent

LEAST_ITEMS = 30
"""Items with gold and annotations by both sides that a comparison needs."""

LEAST_WRONG = 10
"""Items on which the set is wrong, and could repeat it, that show whether it shares mistakes."""

LEVEL = 0.95
"""Level of the intervals."""


class Repeats(NamedTuple):
    """How often annotations repeat the mistake of another annotator of the set.

    Attributes
    ----------
    n : int
        Annotations of items on which another annotator, of the set, is wrong.
    repeated : int
        Those that give the same wrong label.
    n_items : int
        Number of these items: annotations of one item tell less than as many single ones.
    """

    n: int
    repeated: int
    n_items: int

    @property
    def share(self) -> float:
        """Share of annotations that repeat the mistake; 0 without any."""
        return self.repeated / max(self.n, 1)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share, as if each item had one annotation."""
        low, high = share_interval(self.share * self.n_items, self.n_items, level=LEVEL)
        return float(low), float(high)


class BesideOthers(NamedTuple):
    """How often a set of annotators, and the others, are right on the same items, by gold.

    Attributes
    ----------
    n_items : int
        Items with gold that both sides annotated.
    own, others : float
        Share of right annotations of an item, on average over these items.
    low, high : float
        95 % interval of the difference ``own - others``.
    repeats, repeats_of_others : Repeats
        Of mistakes of the set, by another annotator of it and by the others, on those of these
        items that two or more of the set annotated.
    """

    n_items: int
    own: float
    others: float
    low: float
    high: float
    repeats: Repeats
    repeats_of_others: Repeats

    @property
    def are_right_more(self) -> bool:
        """Whether the set is surely more often right."""
        return self.low > 0

    @property
    def are_better(self) -> bool:
        """Whether the set is surely more often right, and surely repeats its mistakes less."""
        repeats_less = self.repeats.interval[1] < self.repeats_of_others.share
        return self.are_right_more and self.repeats.n_items >= LEAST_WRONG and repeats_less

    @property
    def share_mistakes(self) -> bool:
        """Whether the set surely repeats its own mistakes more often than the others do.

        And more often than it is wrong, which alone would explain as many repeats.
        """
        by_chance = max(self.repeats_of_others.interval[1], 1 - self.own)
        return self.repeats.interval[0] > by_chance

    def __str__(self) -> str:
        """Say what gold shows; "" if nothing."""
        if self.share_mistakes:
            return (
                "On items with gold labels that both they and others annotated, when one of them "
                f"is wrong, another one repeats the mistake in {_of(self.repeats)}, and the others "
                f"do in {_of(self.repeats_of_others)}. So it is they who share mistakes."
            )
        if not self.are_right_more:
            return ""
        told = (
            f"On the {counted(self.n_items, 'item')} with gold labels that both they and others "
            f"annotated, they are right in {percent(self.own)} of cases, and the others in "
            f"{percent(self.others)}: {100 * (self.own - self.others):.0f} points more "
            f"({100 * self.low:.0f} to {100 * self.high:.0f})."
        )
        if not self.are_better:
            return f"{told} Whether they also share mistakes, these labels do not show."
        return (
            f"{told} When one of them is wrong, another one repeats the mistake in "
            f"{_of(self.repeats)}, and the others do in {_of(self.repeats_of_others)}. So they "
            "agree because they are right more often, not because they share mistakes."
        )


def _of(repeats: Repeats) -> str:
    return f"{repeats.repeated:,} of {counted(repeats.n, 'case')}"


def beside_others(
    table: AnnotationTable, members: Sequence[Any], gold: IntArray | None
) -> BesideOthers | None:
    """Compare a set of annotators with the others on items with gold; None with too few items.

    Parameters
    ----------
    table : AnnotationTable
    members : sequence of annotator ids
    gold : integer array of shape (n_instances,), optional
        True classes, -1 where unknown, of items that no queue chose.
    """
    if gold is None:
        return None
    rows = np.flatnonzero(gold[table.instance] >= 0)
    item, label, who = table.instance[rows], table.label[rows], table.annotator[rows]
    own = np.isin(table.annotators, np.asarray(members))[who]
    items, place = np.unique(item, return_inverse=True)
    size = (len(items), table.n_classes)
    cells = place * table.n_classes + label
    mine, theirs = (
        np.bincount(cells[side], minlength=size[0] * size[1]).reshape(size) for side in (own, ~own)
    )
    is_true = np.arange(table.n_classes) == gold[items][:, None]
    both = (mine.sum(axis=1) > 0) & (theirs.sum(axis=1) > 0)
    mine, theirs, is_true = mine[both], theirs[both], is_true[both]
    n_mine, n_theirs = mine.sum(axis=1), theirs.sum(axis=1)
    n = len(mine)
    if n < LEAST_ITEMS:
        return None
    own_share, others_share = (
        (counts * is_true).sum(axis=1) / all_
        for counts, all_ in ((mine, n_mine), (theirs, n_theirs))
    )
    apart = own_share - others_share
    width = t.ppf((1 + LEVEL) / 2, n - 1) * apart.std(ddof=1) / np.sqrt(n)
    wrong = mine * ~is_true * (n_mine > 1)[:, None]  # Nobody of the set repeats a single one's.
    return BesideOthers(
        n,
        float(own_share.mean()),
        float(others_share.mean()),
        float(apart.mean() - width),
        float(apart.mean() + width),
        _repeats(wrong, mine - 1, n_mine - 1),
        _repeats(wrong, theirs, n_theirs),
    )


def _repeats(wrong: IntArray, given: IntArray, n: IntArray) -> Repeats:
    """Count repeats of mistakes (m, C) by those who gave ``given`` (m, C) in all ``n`` (m,)."""
    cases = wrong.sum(axis=1) * n
    return Repeats(int(cases.sum()), int((wrong * given).sum()), int((cases > 0).sum()))
