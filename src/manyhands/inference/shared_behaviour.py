"""A prior of annotators' rates of ticks, shared across the options of a multi-label task.

An annotator who overlooks half of the instances of one option does so with other options, too. With
few answers, the rate under one option is poorly estimated, but the rate over all options is not.
The centre of the prior of each option's confusion matrices therefore combines the crowd's rate
under the option with the annotator's deviation over all options.

Counts are answers N and ticks T, of annotator r, option m and state z (0: the option does not
apply, 1: it does), against the vote shares of the instances.

- The crowd ticks option m in state z at the rate c_mz, and over all options at p_z. Because rare
  options have few counts, the rate is shrunk half of the way from c_mz to p_z in log odds; this
  gives c'_mz.
- The deviation of annotator r is the difference, in log odds, between their rate in state z and
  that of the crowd under the options they saw, shrunk by `SKILL_STRENGTH` answers at the crowd's
  rate. Here the counts are against the vote shares of the *others*. With two annotators, half of an
  instance's votes are one's own, so somebody who ticks much would seem to recognise everything.
- The centre of the prior is c'_mz plus this deviation, in log odds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from manyhands.annotations import AnnotationTable
from manyhands.inference.class_shares import RareClassCorrection
from manyhands.inference.confusion_prior import (
    SKILL_STRENGTH,
    ConfusionPrior,
    log_dirichlet_multinomial,
)
from manyhands.inference.families import family_weights
from manyhands.inference.probability import Table
from manyhands.typing import FloatArray, IntArray

STRENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""Candidates of the strength of the shared prior."""

POOLED_WEIGHT = 0.5
"""Weight of the rate over all options in the rate of one option. On some real sets 0 is better, on
others 1."""

LEAST_RATE, GREATEST_RATE = 0.005, 0.995
"""Bounds of the crowd's rates, because a prior must not be certain."""


@dataclass(frozen=True)
class SharedPrior(ConfusionPrior):
    """Prior of the confusion matrices of one option, whose centre comes from all options.

    Attributes
    ----------
    rates : array of shape (R, 2)
        Probability that each annotator ticks the option, in each state.
    """

    rates: Any = None

    @classmethod
    def of(cls, rates: FloatArray, strength: float) -> SharedPrior:
        """Return the prior of an option."""
        return cls("shared", strength, 0.7, rates)

    def _centre(
        self,
        counts: Table,
        n_classes: int,
        correction: RareClassCorrection | None = None,
        *,
        ordered: bool = False,
        times: float = 1.0,
    ) -> Table:
        """Return the centre of the prior on every row, shape (R, 2, K); rows sum to ``times``."""
        centre = np.stack([1.0 - self.rates, self.rates], axis=2)
        if counts.shape[2] == n_classes:
            return times * centre
        # The rates of abstaining are not shared.
        abstains = ConfusionPrior("hierarchical", self.strength, self.diagonal)._centre(
            counts, n_classes
        )[:, :, n_classes:]
        return times * np.concatenate([(1.0 - abstains) * centre, abstains], axis=2)


def shared_rates(counts: FloatArray, by_others: FloatArray) -> FloatArray:
    """Return each annotator's rate of ticks under each option, estimated from all options.

    Parameters
    ----------
    counts : array of shape (R, M, 2, 2)
        Answers of each annotator under each option, indexed [.., .., true, given], against the
        vote shares.
    by_others : array of shape (R, M, 2, 2)
        The same, counted against the vote shares of the others (`count_by_others`).

    Returns
    -------
    array of shape (R, M, 2)
        Probability that the annotator ticks the option in each state.
    """
    ticked, seen = by_others[..., 1].sum(axis=1), by_others.sum(axis=3)
    crowd, total = _crowd_rates(by_others), seen.sum(axis=1)
    expected = np.tile(crowd.mean(axis=0), (len(total), 1))
    np.divide((seen * crowd).sum(axis=1), total, out=expected, where=total > 0)
    own = (ticked + SKILL_STRENGTH * expected) / (total + SKILL_STRENGTH)
    habit = logit(own) - logit(expected)
    return np.asarray(expit(logit(_crowd_rates(counts)) + habit[:, None, :]))


def count_by_others(table: AnnotationTable, gold: IntArray | None = None) -> FloatArray:
    """Count the answers of each annotator against the shares of the others' votes.

    Parameters
    ----------
    table : AnnotationTable
        Answers on one option: no and yes.
    gold : integer array of shape (n_instances,), optional
        Known answers, -1 where unknown; they replace the shares of others.

    Returns
    -------
    array of shape (R, 2, 2)
        Indexed [annotator, true, given]. Instances with one answer and no gold are left out.
    """
    instance, ticked = table.instance, table.label.astype(np.float64)
    weight = np.asarray(table.weight * family_weights(table), dtype=np.float64)
    n = table.n_instances
    others = np.bincount(instance, weight, n)[instance] - weight
    yes = np.bincount(instance, weight * ticked, n)[instance] - weight * ticked
    # Values up to 1e-9 are rounding errors, not votes.
    share = np.divide(yes, others, out=np.full(len(yes), np.nan), where=others > 1e-9)
    if gold is not None:
        share = np.where(gold[instance] >= 0, gold[instance], share)
    counted = ~np.isnan(share)
    who, share = table.annotator[counted], np.clip(share[counted], 0.0, 1.0)
    weight, ticked = weight[counted], ticked[counted]
    counts = [
        [
            np.bincount(who, weight * state * given, table.n_annotators)
            for given in (1 - ticked, ticked)
        ]
        for state in (1 - share, share)
    ]
    return np.moveaxis(np.array(counts), 2, 0)


def _crowd_rates(counts: FloatArray) -> FloatArray:
    """Return the rates of the crowd, (M, 2), each shrunk to the rate over all options."""
    ticked, seen = counts[..., 1], counts.sum(axis=3)
    each = _rate(ticked.sum(axis=0), seen.sum(axis=0))
    overall = _rate(ticked.sum(axis=(0, 1)), seen.sum(axis=(0, 1)))
    return np.asarray(expit(POOLED_WEIGHT * logit(overall) + (1 - POOLED_WEIGHT) * logit(each)))


def _rate(ticked: FloatArray, seen: FloatArray) -> FloatArray:
    """Return the share of ticks in each state (last axis), never 0, even for unticked options."""
    return np.clip((ticked + 0.1 + np.arange(2)) / (seen + 1.2), LEAST_RATE, GREATEST_RATE)


def shared_strength(
    counts: FloatArray, rates: FloatArray, strengths: Sequence[float] = STRENGTHS
) -> float:
    """Return the strength with the greatest evidence over all options.

    Parameters
    ----------
    counts : array of shape (R, M, 2, 2)
    rates : array of shape (R, M, 2)
        See `shared_rates`.
    strengths : sequence of float
    """
    n_annotators = len(counts)
    flat = counts.reshape(n_annotators, -1, 2)
    centre = np.stack([1.0 - rates, rates], axis=3).reshape(n_annotators, -1, 2)
    evidence = [log_dirichlet_multinomial(flat, strength * centre) for strength in strengths]
    return float(strengths[int(np.argmax(evidence))])
