"""Samples of gold labels: whether they were drawn at random, and how many are needed.

Gold shows how confident a posterior may be (`manyhands.inference.dependence.refine`) if its
instances are like the others. Those of a review queue are not. If annotators differ, a posterior is
often underconfident; elsewhere it is overconfident, because annotators share mistakes. A queue
shows only instances of the first kind. Gold that was chosen may therefore make the posterior less
confident, but never more. About its own instances, annotators and class shares it is as informative
as random gold.

A rank test decides whether gold was chosen [1]_. It compares the instances with gold and the other
annotated ones by their doubt: one minus the largest class probability, from annotations without
gold.

.. [1] H. B. Mann and D. R. Whitney. On a test of whether one of two random variables is
   stochastically larger than the other. Annals of Mathematical Statistics 18(1), 1947.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import mannwhitneyu
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.votes import AllVotes, Votes
from manyhands.typing import BoolArray, FloatArray, IntArray
from manyhands.wording import N_RANDOM

Doubts: TypeAlias = Callable[[Votes], FloatArray]

GOLD_SAMPLE = [StrOptions({"auto", "random", "chosen"})]
"""Values of the parameter ``gold_sample``."""

LEAST_GOLD, LEAST_GOLD_PER_CLASS, LEAST_GOLD_WITH_FAMILIES = 10, 5, 50
"""Least numbers of annotated gold instances for `GoldCorrected` to correct; see `least_gold`."""

LEVEL = 0.01
"""P-value of the rank test below which the instances with gold count as chosen."""

MOST_OTHERS = 10_000
"""Largest number of instances without gold, drawn at random, in the rank test."""


def least_gold(n_classes: int, *, families: bool = False) -> int:
    """Return the least number of annotated gold instances for which `GoldCorrected` corrects."""
    least = max(LEAST_GOLD, LEAST_GOLD_PER_CLASS * n_classes)
    return max(least, LEAST_GOLD_WITH_FAMILIES) if families else least


@dataclass(frozen=True)
class KnownLabels:
    """Gold, and the user's statement of how it was chosen.

    Attributes
    ----------
    codes : integer array of shape (n,)
        Known classes, -1 where unknown.
    setting : {"auto", "random", "chosen"}
        Statement about all gold.
    random : boolean array of shape (n,) or None
        Mask of the instances with gold that was drawn at random, if known; all other gold then
        counts as chosen. Used only with the setting "auto".
    """

    codes: IntArray
    setting: str = "auto"
    random: BoolArray | None = None

    @property
    def rows(self) -> IntArray:
        """Instances with gold."""
        return np.flatnonzero(self.codes >= 0)

    @property
    def sampled_rows(self) -> IntArray:
        """Instances with gold that is known to be drawn at random."""
        if self.setting == "random":
            return self.rows
        if self.setting == "chosen" or self.random is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero((self.codes >= 0) & self.random)


@dataclass(frozen=True)
class GoldSample:
    """Result of the question how gold was chosen.

    Attributes
    ----------
    kind : {"random", "chosen"}
        "random" also if only a part is random; ``rows`` is this part.
    rows : integer array
        Instances with gold that may calibrate the confidence of the posterior.
    p_value : float or None
        P-value of the rank test; None if it was not needed.
    are_doubtful : bool
        Whether the instances with gold are more doubtful than the others (True) or less.
    """

    kind: str
    rows: IntArray
    p_value: float | None = None
    are_doubtful: bool = True

    def note(self) -> str:
        """Return a note on what chosen gold corrects, and what it cannot show."""
        n = len(self.rows)
        labels, they = (
            ("The known label is", "It corrects its instance")
            if n == 1
            else (f"The {n:,} known labels are", "They correct these instances")
        )
        how = "those most in doubt" if self.are_doubtful else "those least in doubt"
        if self.p_value is None:
            how = "not drawn at random"
        else:
            how += f" (rank test, p = {self.p_value:.2g})"
        return (
            f"{labels} {how}. {they}, annotators and class shares; the confidence of the other "
            "labels still depends on how far the annotators agree. To check it, review "
            f"{N_RANDOM} labels drawn at random"
        )


def sample_of(
    known: KnownLabels, votes: AllVotes, doubts: Callable[[], Doubts]
) -> GoldSample | None:
    """Decide how gold was chosen; None without gold of an annotated instance.

    Parameters
    ----------
    known : KnownLabels
    votes : Votes or StoredVotes
    doubts : callable
        Returns a function from votes to the doubt of each instance, shape (n,). It must come from a
        fit without gold; otherwise known instances differ from others only because they are known.
    """
    if not len(known.rows):
        return None
    given = votes.select(known.rows)
    is_annotated = np.diff(given.answers.start) > 0
    rows = known.rows[is_annotated]
    if not len(rows):
        return None
    if known.setting != "auto":
        return GoldSample(known.setting, rows)
    if known.random is not None:
        drawn = rows[known.random[rows]]
        return GoldSample("random", drawn) if len(drawn) else GoldSample("chosen", rows)
    others = np.flatnonzero(known.codes < 0)
    if len(others) > MOST_OTHERS:
        rng = np.random.RandomState(0)
        others = np.sort(rng.choice(others, MOST_OTHERS, replace=False))
    rest = votes.select(others)
    rest = rest.select(np.flatnonzero(np.diff(rest.answers.start) > 0))
    if not rest.n_instances:
        return GoldSample("random", rows)  # All annotated instances have gold.
    doubt = doubts()
    found = compare_doubts(doubt(given.select(np.flatnonzero(is_annotated))), doubt(rest))
    return GoldSample("chosen" if found.p_value < LEVEL else "random", rows, *found)


class RankTest(NamedTuple):
    """Result of `compare_doubts`."""

    p_value: float
    are_doubtful: bool


def compare_doubts(mine: FloatArray, others: FloatArray) -> RankTest:
    """Test by ranks whether some instances are more, or less, in doubt than the others.

    Parameters
    ----------
    mine, others : arrays
        Doubt of each instance.

    Returns
    -------
    RankTest
        ``p_value``, two-sided, and whether the first instances are the more doubtful ones.
    """
    # Rounding makes the doubts of instances with equal answers equal again.
    found: Any = mannwhitneyu(np.round(mine, 9), np.round(others, 9), method="asymptotic")
    p_value = float(np.nan_to_num(found.pvalue, nan=1.0))  # NaN if all doubts are equal.
    return RankTest(p_value, bool(found.statistic > len(mine) * len(others) / 2))
