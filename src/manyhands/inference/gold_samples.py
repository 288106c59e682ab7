"""Gold labels: how many correct a fit, and whether they were chosen at random or by doubt.

Gold says how sure a posterior may be (`manyhands.inference.dependence.refine`), if its instances
are like the others. Those of a review queue are not: where annotators differ a posterior is often
too unsure, elsewhere too sure, because annotators share mistakes, and a queue shows the first only.
So gold that was chosen may make the posterior less sure, and never surer. What it says of its own
instances, of annotators and of class shares is as good as that of random gold.

Whether gold was chosen is told by a rank test [1]_: the instances with gold are compared with the
other annotated ones by their doubt, one minus the greatest probability that the annotations give a
class, without gold.

.. [1] H. B. Mann and D. R. Whitney. On a test of whether one of two random variables is
   stochastically larger than the other. Annals of Mathematical Statistics 18(1), 1947.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

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
"""Annotated gold instances from which on `GoldCorrected` corrects; see `least_gold`."""

LEVEL = 0.01
"""p value below which the instances with gold count as chosen."""

MOST_OTHERS = 10_000
"""Instances without gold, drawn at random, that those with gold are compared with."""


def least_gold(n_classes: int, *, families: bool = False) -> int:
    """Number of annotated gold instances from which on `GoldCorrected` corrects."""
    least = max(LEAST_GOLD, LEAST_GOLD_PER_CLASS * n_classes)
    return max(least, LEAST_GOLD_WITH_FAMILIES) if families else least


@dataclass(frozen=True)
class KnownLabels:
    """Gold, and what is known of how it was chosen.

    Attributes
    ----------
    codes : integer array of shape (n,)
        Known classes, -1 where unknown.
    setting : {"auto", "random", "chosen"}
        What the user says of all of it.
    random : boolean array of shape (n,) or None
        Instances whose gold was drawn at random, where that is known: then all other gold was
        chosen. Counts with the setting "auto" only.
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
    """How gold was chosen.

    Attributes
    ----------
    kind : {"random", "chosen"}
        "random" also if only some of it was: ``rows`` are these.
    rows : integer array
        Instances whose gold says how sure the posterior may be.
    p_value : float or None
        Of the rank test; None if it was not needed.
    are_doubtful : bool
        Whether the instances with gold are more doubtful than the others, rather than less.
    """

    kind: str
    rows: IntArray
    p_value: float | None = None
    are_doubtful: bool = True

    def told(self) -> str:
        """Say what chosen gold is good for."""
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
            f"{labels} {how}. {they}, annotators and class shares; how sure the rest is still "
            f"rests on how far the annotators agree. To check it, review {N_RANDOM} labels drawn "
            "at random"
        )


def sample_of(
    known: KnownLabels, votes: AllVotes, doubts: Callable[[], Doubts]
) -> GoldSample | None:
    """Tell how gold was chosen; None without gold of an annotated instance.

    Parameters
    ----------
    known : KnownLabels
    votes : Votes or StoredVotes
    doubts : callable
        Returns a function from votes to the doubt of each instance, shape (n,). It must be from a
        fit without gold: otherwise known instances differ from others just because they are known.
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
        return GoldSample("random", rows)  # Everything is known.
    doubt = doubts()
    # Equal answers have equal doubts but for rounding.
    mine, theirs = (
        np.round(doubt(part), 9) for part in (given.select(np.flatnonzero(is_annotated)), rest)
    )
    found: Any = mannwhitneyu(mine, theirs, method="asymptotic")
    p_value = float(np.nan_to_num(found.pvalue, nan=1.0))  # All may be equally doubtful.
    more = bool(found.statistic > len(mine) * len(theirs) / 2)
    return GoldSample("chosen" if p_value < LEVEL else "random", rows, p_value, more)
