"""Whether the annotations decide the labels: where they do not, no label should be accepted.

Truth inference learns who is right from how annotators agree. Where they agree no better than by
chance, or only because some give the same answer every time, agreement says nothing, and a model
that believes it is as sure as it is wrong: EM gives one class the whole prior, and every instance
that class. Labels are *not identified* where

- one family alone annotated the instance, and there are too few others to tell how good it is
  (`manyhands.inference.identifiability`);
- Krippendorff's alpha [1]_ between the units of the instances (families, and annotators without
  one) is not above 0 with 95 % confidence, neither is Cohen's kappa [2]_ of any two of the busiest
  annotators (a few good ones among many poor ones do decide), nor alpha at ordinal level of grades;
- without the annotators who give the same answer every time, hardly an instance has two annotators
  left to compare; or
- the fit gives more than .99 of the instances to one class, which has fewer than .9 of the votes.
  With gold, that fit is one without it: a few known labels change the shares, not who is right. Of
  grades that annotators hardly agree on it is one to names of classes: the shares of grades are
  held near those of the votes, which keeps them from a collapse and does not show who is right.

The second does not hold against a class with .9 of the votes: nearly all its labels may be right,
and hardly any instance shows whether annotators agree on the others.

.. [1] K. Krippendorff. Content Analysis. 4th edition, Sage, 2019, chapter 12.
.. [2] J. L. Fleiss, J. Cohen and B. S. Everitt. Large sample standard errors of kappa and weighted
   kappa. Psychological Bulletin 72(5), 1969, Eq. 14: its standard error if there is no agreement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from scipy.stats import binom, norm, t

from manyhands.agreement import jackknife, krippendorff_alpha
from manyhands.agreement.overall import Level
from manyhands.annotations import AnnotationTable
from manyhands.annotations.groups import in_families
from manyhands.annotations.target import is_sharded
from manyhands.decision.labels import pick
from manyhands.exceptions import NotIdentifiableWarning, warn_caller
from manyhands.inference.confusion_em import Fits
from manyhands.inference.dependence import DEFAULT_EM
from manyhands.inference.gold_samples import least_gold
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    fill_rows,
    vote_shares,
    votes_of,
)
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

MOST_INSTANCES = 10_000
"""Instances of a large table, drawn at random, on which agreement is measured."""

LEAST_INSTANCES = 30
"""Instances with two units below which agreement is not judged."""

MOST_ANNOTATORS = 30
"""Busiest annotators whose pairs are tested."""

FREQUENT = 0.9
"""Share of the votes from which one class may well be the label of nearly all instances."""

WHOLE = 0.99
"""Share of the instances in one class that a fit has collapsed from."""

SAME, SURPRISE = 0.95, 1e-4
"""Least share of one answer, and its probability if others had answered, of an annotator who gives
the same answer every time."""


FAINT = 0.2
"""Upper end of alpha's interval below which a fit to grades is compared with one to names."""

LEAST_COMPARED = 0.1
"""Share of instances by two annotators below which annotations of one alone are trusted. Models
that learn annotators and class shares from so few put all instances into one class otherwise. The
price is a posterior that is too sure (docs/results/posteriors.md, "Lone annotators")."""

MOST_TAKING_PART = 0.1
"""Share of the annotated instances up to which those of one family alone stay in the fit: so few
cannot decide it, and the other instances tell enough of the family."""


@dataclass(frozen=True)
class Agreement:
    """Krippendorff's alpha between units, with a 95 % interval; NaN if not measured."""

    alpha: float
    low: float
    high: float

    @property
    def is_chance(self) -> bool:
        """Whether it may be no better than chance."""
        return bool(self.low <= 0)


def unidentified(votes: Any, annotators: AnyArray | None, posterior: Any = None) -> str | None:
    """Say why the annotations do not decide the labels of any instance; None if they do.

    Parameters
    ----------
    votes : Votes or StoredVotes
        Without the instances that one family alone annotated.
    annotators : array of shape (R,) or None
        Their ids; None where nobody knows who gave which vote.
    posterior : array of shape (n, C), optional
        Of a fit, whose collapse into one class is looked for.
    """
    sample = _sample(votes.answers)
    if not sample.n_annotations:
        return None
    compared = comparisons(sample)
    if annotators is not None and (same := constant_annotators(sample)).any():
        varied = comparisons(sample.keep(~same[sample.annotator]))
        if _is_nothing(varied) and not _is_nothing(compared):
            return _of_constant(annotators[same], _gold(votes))
    share = np.bincount(sample.response, minlength=sample.n_classes) / sample.n_annotations
    if share.max() >= FREQUENT:
        return None
    found = agreement_between_units(sample)
    some = annotators is not None and some_agree(sample)
    if found.is_chance and not some and not (sample.ordered and grades_agree(sample)):
        return (
            "nothing shows that the annotators agree better than by chance (Krippendorff's alpha "
            f"{found.alpha:.2f}, 95 % interval {found.low:.2f} to {found.high:.2f}), so their "
            f"annotations decide no label. Check that they understood the task, and {_gold(votes)}"
        )
    if posterior is None:
        return None
    if compared.compared < LEAST_INSTANCES:
        return None
    if sample.ordered and found.high < FAINT:
        counts = _without_gold(replace(sample, ordered=False))
        if counts.max() > WHOLE:
            return (
                "the annotators hardly agree (Krippendorff's alpha at nominal level "
                f"{found.alpha:.2f}), and a fit that takes the grades for names of classes puts "
                f"{counts.max():.0%} of the instances into one, which has "
                f"{share[counts.argmax()]:.0%} of the annotations: the labels say little more than "
                f"how often each grade was given. Compare with MajorityVote, and {_gold(votes)}"
            )
    top, mean = _collapsed_into(votes, posterior)
    if mean > WHOLE:
        return (
            f"the fit puts {mean:.0%} of the instances into one class, which has "
            f"{share[top]:.0%} of the annotations: it has collapsed, and its certainty means "
            f"nothing. Compare with MajorityVote, and {_gold(votes)}"
        )
    return None


def warn_of_unidentified(reason: str | None) -> None:
    """Warn that the annotations decide no label."""
    if reason is not None:
        warn_caller(f"{reason}. Until then, accept no label unseen", NotIdentifiableWarning)


def identified(table: Any, posterior: Any = None, known: Any = None) -> BoolArray:
    """Mask of the instances whose label the annotations decide, shape (n_instances,).

    Parameters
    ----------
    table : AnnotationTable or store
    posterior : array of shape (n_instances, n_classes), optional
        Of a fit to the table.
    known : boolean array of shape (n_instances,), optional
        Instances with gold, whose labels are decided.
    """
    reason, lone = _found(table, posterior, known)
    return decided(
        reason, lone, np.broadcast_to(False if known is None else known, lone.alone.shape)
    )


def warn_of_all(table: Any, posterior: Any = None, known: Any = None) -> None:
    """Warn of everything that the annotations do not decide; arguments as in `identified`."""
    reason, lone = _found(table, posterior, known)
    warn_of_lone_families(lone)
    warn_of_unidentified(reason)


def _found(table: Any, posterior: Any, known: Any) -> tuple[str | None, LoneFamilies]:
    gold = None if known is None else np.where(known, 0, MISSING)  # Classes do not matter here.
    stored = is_sharded(table)
    votes: Any = votes_of(table if stored else table.observed, gold)
    lone = lone_families(votes, table.groups)
    if lone.n:
        votes = votes.keep(~lone.alone[votes.instance])
    names = table.annotators if getattr(table, "annotators_known", True) else None
    return None if lone.are_all else unidentified(votes, names, posterior), lone


def decided(reason: str | None, lone: LoneFamilies, known: BoolArray) -> BoolArray:
    """Mask of the instances whose label is known or decided by the annotations, shape (n,)."""
    if reason is not None:
        return known.copy()
    return np.asarray(known | ~lone.alone | lone.enough)


def constant_annotators(votes: Votes) -> BoolArray:
    """Mask of the annotators who give the same answer every time where others would not, (R,)."""
    n_annotators, n_classes = votes.n_annotators, votes.n_classes
    cells, given = np.unique(
        votes.annotator * np.int64(n_classes) + votes.response, return_counts=True
    )
    order = np.lexsort((given, cells // n_classes))
    top, most = np.full(n_annotators, MISSING), np.zeros(n_annotators, dtype=np.int64)
    top[cells[order] // n_classes] = cells[order] % n_classes  # The last one stays.
    most[cells[order] // n_classes] = given[order]
    n = np.bincount(votes.annotator, minlength=n_annotators)
    candidates = (n > 0) & (most >= SAME * n)
    rows = candidates[votes.annotator]
    # What others answered on the same instances.
    mine = top[votes.annotator[rows]]
    instance, n_on = votes.instance[rows], np.diff(votes.start)
    flat, given = np.unique(
        votes.instance * np.int64(n_classes) + votes.response, return_counts=True
    )
    place = np.searchsorted(flat, instance * np.int64(n_classes) + mine).clip(0, len(flat) - 1)
    is_given = flat[place] == instance * np.int64(n_classes) + mine
    others = n_on[instance] - 1
    same = np.where(is_given, given[place], 0) - (votes.response[rows] == mine)
    who, seen = votes.annotator[rows], others > 0
    total = np.bincount(who[seen], minlength=n_annotators)
    sums = np.bincount(who[seen], same[seen] / others[seen], minlength=n_annotators)
    share = sums / np.maximum(total, 1)
    p_value = binom.sf(most - 1, n, share)
    found: BoolArray = candidates & (total > 0) & (p_value < SURPRISE)
    return found


def agreement_between_units(votes: Votes) -> Agreement:
    """Krippendorff's nominal alpha of pairs of annotations by different units.

    The interval is by the jackknife over instances.
    """
    unit = votes.annotator if votes.family is None else votes.family[votes.annotator]
    n, n_classes = votes.n_instances, votes.n_classes
    unit_cells = votes.instance * np.int64(int(unit.max(initial=0)) + 1) + unit
    size = np.diff(votes.start).astype(np.float64)
    pairs = size * (size - 1) / 2 - _pairs_within(unit_cells, votes.instance, n)
    cells = votes.instance * np.int64(n_classes) + votes.response
    same = _pairs_within(cells, votes.instance, n)
    same -= _pairs_within(unit_cells * n_classes + votes.response, votes.instance, n)
    rows = np.flatnonzero(pairs > 0)
    if len(rows) < LEAST_INSTANCES:
        return Agreement(np.nan, np.nan, np.nan)
    part = votes.select(rows)
    k, total = len(rows), np.bincount(part.response, minlength=n_classes).astype(np.float64)
    given, times = np.unique(
        part.instance * np.int64(n_classes) + part.response, return_counts=True
    )
    # Squares of all counts without those of each instance, in O(annotations).
    less = 2 * total[given % n_classes] * times - times.astype(np.float64) ** 2
    squares = (total**2).sum() - np.array([0.0, *np.bincount(given // n_classes, less, k)])
    weight = size[rows]
    differ = weight * (1.0 - same[rows] / pairs[rows])
    gone, left_out = np.array([0.0, *weight]), np.array([0.0, *differ])
    n_left = total.sum() - np.array([0.0, *np.bincount(part.instance, minlength=k)])
    whole, *others = _alpha(differ.sum() - left_out, n_left, squares, weight.sum() - gone).tolist()
    each = np.array(others)
    error = float(np.sqrt((k - 1) / k * ((each - each.mean()) ** 2).sum()))
    half = float(t.ppf(0.975, k - 1)) * error
    return Agreement(whole, whole - half, whole + half)


def some_agree(votes: Votes) -> bool:
    """Whether any two busy annotators of different units agree beyond chance.

    One-sided tests of Cohen's kappa at .025 in all (Bonferroni), over instances both annotated.
    """
    n = np.bincount(votes.annotator, minlength=votes.n_annotators)
    busy = np.argsort(-n, kind="stable")[:MOST_ANNOTATORS]
    busy = busy[n[busy] >= LEAST_INSTANCES]
    unit = busy if votes.family is None else votes.family[busy]
    labels = np.full((len(busy), votes.n_instances), MISSING)
    place = np.full(votes.n_annotators, MISSING)
    place[busy] = np.arange(len(busy))
    rows = place[votes.annotator] >= 0
    labels[place[votes.annotator[rows]], votes.instance[rows]] = votes.response[rows]
    z = [
        _z_of_kappa(one[both], other[both], votes.n_classes)
        for k, one in enumerate(labels)
        for j, other in enumerate(labels[:k])
        if unit[j] != unit[k] and (both := (one >= 0) & (other >= 0)).sum() >= LEAST_INSTANCES
    ]
    return bool(z and max(z) > norm.isf(0.025 / len(z)))


def grades_agree(votes: Votes) -> bool:
    """Whether units agree on grades beyond chance: alpha at ordinal level is above 0, with 95 %."""
    return _alpha_at_level(votes, "ordinal").low > 0


def unidentified_numbers(table: AnnotationTable) -> str | None:
    """Say that nothing shows that annotators agree on numbers; None if they do, or it is open.

    They agree where alpha at interval level is above 0, with 95 %, or is so once the mean of every
    busy annotator is subtracted: ratings that are far too high may tell items apart all the same.
    """
    if not table.annotators_known or not table.n_annotations:
        return None
    votes = _sample(votes_of(table.observed).answers)
    found = _alpha_at_level(votes, "interval", table.numbers)
    if not found.is_chance:
        return None
    values = table.numbers[votes.response]
    n = np.bincount(votes.annotator, minlength=votes.n_annotators)
    mean = np.bincount(votes.annotator, values, votes.n_annotators) / np.maximum(n, 1)
    centred = values - np.where(n >= LEAST_INSTANCES, mean, mean[n > 0].mean())[votes.annotator]
    numbers, codes = np.unique(centred, return_inverse=True)
    centred_votes = replace(votes, response=codes, n_classes=len(numbers))
    if _alpha_at_level(centred_votes, "interval", numbers).low > 0:
        return None
    return (
        "nothing shows that the annotators agree better than by chance (Krippendorff's alpha at "
        f"interval level {found.alpha:.2f}, 95 % interval {found.low:.2f} to {found.high:.2f}), so "
        "the means of their ratings say little of the items. Check that they understood the task, "
        "and give RatingMean known values of some items (gold=, on the command line --known)"
    )


def _alpha_at_level(votes: Votes, level: Level, values: FloatArray | None = None) -> Agreement:
    """Alpha at a level between units; NaN if hardly any instance has two of them."""
    unit = votes.annotator if votes.family is None else votes.family[votes.annotator]
    # One annotation of each unit, as members of a family vouch for each other only.
    cells = votes.instance * np.int64(int(unit.max(initial=0)) + 1) + unit
    _, rows = np.unique(cells, return_index=True)
    _, unit = np.unique(unit, return_inverse=True)
    several = np.bincount(votes.instance[rows], minlength=votes.n_instances) > 1
    if several.sum() < LEAST_INSTANCES:
        return Agreement(np.nan, np.nan, np.nan)
    table = AnnotationTable(
        votes.instance[rows], unit[rows], votes.response[rows],
        np.arange(votes.n_instances), np.arange(int(unit.max(initial=0)) + 1),
        np.arange(votes.n_classes), scale=level,
    )  # fmt: skip
    return Agreement(*jackknife(partial(krippendorff_alpha, level=level, values=values), table))


def _z_of_kappa(one: IntArray, other: IntArray, n_classes: int) -> float:
    """Cohen's kappa over its standard error if there is no agreement; 0 for constant answers."""
    n = len(one)
    p, q = (np.bincount(codes, minlength=n_classes) / n for codes in (one, other))
    chance = float(p @ q)
    variance = chance + chance**2 - float((p * q * (p + q)).sum())
    return ((one == other).mean() - chance) / np.sqrt(variance / n) if variance > 1e-12 else 0.0


def _alpha(differ: FloatArray, n: FloatArray, squares: FloatArray, weight: FloatArray) -> Any:
    """1 - observed / expected disagreement, from sums over instances.

    ``squares`` are the sums of the squared numbers of annotations of each class.
    """
    expected = (n**2 - squares) / np.maximum(n * (n - 1), 1.0)
    observed = differ / np.maximum(weight, 1.0)
    # Without any difference in the answers, they agree.
    return 1.0 - np.divide(observed, expected, out=np.zeros_like(observed), where=expected > 0)


def _pairs_within(cells: IntArray, instance: IntArray, n: int) -> FloatArray:
    """Pairs of annotations of the same cell, by instance, shape (n,)."""
    _, first, counts = np.unique(cells, return_index=True, return_counts=True)
    found = np.bincount(instance[first], counts * (counts - 1) / 2, minlength=n)
    return np.asarray(found, dtype=np.float64)


def _sample(votes: Any) -> Votes:
    """At most `MOST_INSTANCES` random instances."""
    if votes.n_instances <= MOST_INSTANCES:
        rows = np.arange(votes.n_instances)
    else:
        rng = np.random.RandomState(0)
        rows = np.sort(rng.choice(votes.n_instances, MOST_INSTANCES, replace=False))
    found: Votes = votes.select(rows)
    return found


def _is_nothing(found: Comparisons) -> bool:
    return not found.compared or found.are_few


def _of_constant(names: AnyArray, gold: str) -> str:
    shown = ", ".join(map(str, names[:5].tolist()))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    gave = "gave" if len(names) > 1 else "who gave"
    return (
        f"annotators {shown}{more} {gave} the same answer every time, and without them hardly any "
        "instance has two annotators who could be compared: who is right cannot be told. Have "
        f"more instances annotated by others, or {gold}"
    )


def _gold(votes: Any) -> str:
    least = least_gold(votes.n_classes)
    return f"give GoldCorrected gold for {least} or more instances drawn at random (gold=)"


def _collapsed_into(votes: Any, posterior: Any) -> tuple[int, float]:
    """Most frequent class of the annotated instances without gold, and its mean probability.

    A few known labels make a collapsed fit less sure without changing its labels. If nearly all
    labels are one class, the probability is that of a fit without gold.
    """
    *total, n = votes.total(_summed, rows=(posterior,))
    probabilities, labels = np.split(np.array(total) / max(n, 1.0), 2)
    top = int(labels.argmax())
    if votes.gold is None or labels[top] <= WHOLE:
        return int(probabilities.argmax()), float(probabilities.max())
    return top, float(_without_gold(votes)[top])


def _without_gold(votes: Any) -> FloatArray:
    """Shares of the classes in a fit without gold, shape (C,)."""
    bare: Any = replace(votes, gold=None)
    start = bare.starting_shares()
    counts = Fits(DEFAULT_EM, bare, bare.shards(), start, "without-gold").run().counts.prior
    return np.asarray(counts / counts.sum())


def _summed(shard: Votes, rows: FloatArray) -> FloatArray:
    """Sums of the probabilities and of the most probable classes, and how many there are."""
    unknown = np.diff(shard.start) > 0
    if shard.gold is not None:
        unknown &= shard.gold < 0
    labels = np.bincount(rows[unknown].argmax(axis=1), minlength=rows.shape[1])
    return np.concatenate([unknown.astype(np.float64) @ rows, labels, [unknown.sum()]])


# -- lone annotators ------------------------------------------------------------------------------
#
# Annotators are compared on the instances that two of them annotated. Where there are (nearly)
# none, the labels of lone annotators count as known, and a warning says so.


@dataclass(frozen=True)
class Comparisons:
    """What tells annotators apart; numbers of instances with annotations.

    Attributes
    ----------
    annotated : int
    compared : int
        By two annotators, or by one with a history.
    known : int
        With gold.
    """

    annotated: int
    compared: int
    known: int

    def __add__(self, other: Comparisons) -> Comparisons:
        """Return the numbers of both."""
        return Comparisons(
            self.annotated + other.annotated,
            self.compared + other.compared,
            self.known + other.known,
        )

    @property
    def are_none(self) -> bool:
        """Whether nothing tells annotators apart."""
        return not self.compared + self.known

    @property
    def are_few(self) -> bool:
        """Whether nearly all instances have one annotator alone."""
        return self.compared < LEAST_COMPARED * self.annotated


def comparisons(votes: AllVotes) -> Comparisons:
    """Count what tells annotators apart."""
    known = None if votes.history is None else votes.history.sum(axis=(1, 2)) > 0
    answers: Any = votes.answers
    return cast(Comparisons, answers.unweighted.total(_compared, known))


def _compared(shard: Votes, known: Any) -> Comparisons:
    given = np.diff(shard.start) > 0
    is_compared = ~_by_one(shard) & given
    if known is not None:
        is_compared[shard.instance[known[shard.annotator]]] = True
    n_known = 0 if shard.gold is None else np.count_nonzero(given & (shard.gold >= 0))
    return Comparisons(int(given.sum()), int(is_compared.sum()), int(n_known))


def _by_one(shard: Votes) -> BoolArray:
    """Whether the annotations of an instance are by one annotator, shape (n,); True without any."""
    start, n = shard.start, np.diff(shard.start)
    given = n > 0
    first = np.repeat(shard.annotator[start[:-1][given]], n[given])
    by_one = np.ones(len(n), dtype=bool)
    by_one[shard.instance[shard.annotator != first]] = False
    return by_one


def warn_of_lone_annotators(found: Comparisons) -> None:
    """Warn if annotators cannot be compared, or hardly."""
    if found.are_none:
        warn_caller(
            "no instance has annotations by two annotators, so annotators cannot be compared: "
            "the labels are the annotations, and estimates of annotators come from the prior",
            NotIdentifiableWarning,
        )
    elif found.are_few:
        warn_caller(
            f"only {found.compared:,} of {found.annotated:,} annotated instances have "
            "annotations by two annotators; where annotators are estimated, the labels of "
            "lone annotators without gold count as right, which flatters them. Have more "
            "instances annotated twice",
            NotIdentifiableWarning,
        )


def trust_lone_labels(votes: Any) -> Any:
    """Treat the labels of lone annotators as known, so that skewed classes cannot outvote them."""
    gold = np.empty(votes.n_instances, dtype=np.int32)
    fill_rows(gold, votes.parts, _with_lone_labels)
    return replace(votes, gold=gold)


def read_out_lone(votes: Any, posterior: FloatArray, model: Callable[[Votes], FloatArray]) -> None:
    """Replace the rows of ``posterior`` (n, C) that `trust_lone_labels` has made certain.

    Parameters
    ----------
    votes : Votes or StoredVotes
        As they were.
    model : callable
        From votes to their posterior.
    """

    def rows(shard: Votes, found: FloatArray) -> FloatArray:
        lone = _lone_labels(shard) >= 0
        if lone.any():
            found = found.copy()
            found[lone] = model(shard.select(np.flatnonzero(lone)))
        return found

    fill_rows(posterior, votes.parts, rows, rows=(posterior,))


def _with_lone_labels(shard: Votes) -> AnyArray:
    codes = _lone_labels(shard)
    return codes if shard.gold is None else np.where(shard.gold >= 0, shard.gold, codes)


def _lone_labels(shard: Votes) -> AnyArray:
    """Class code of each instance that a lone annotator gave one label and no gold, else -1."""
    answers = shard.answers
    shares = vote_shares(replace(answers, gold=None), empty=np.zeros(shard.n_classes))
    is_lone = (shares.max(axis=1) > 1 - 1e-9) & _by_one(answers)
    if shard.gold is not None:
        is_lone &= shard.gold < 0
    return np.where(is_lone, shares.argmax(axis=1), MISSING)


# -- lone families ---------------------------------------------------------------------------------
#
# The *units* of an instance are the declared families among its annotators, and each annotator
# without a family. Where one family is the only unit, its members agree because they share
# mistakes, not because they are right; with the weights of a family
# (`manyhands.inference.families`) they count as little more than one vote. If such instances are
# most of a table, EM explains them by one class. So they take no part in the fit (unless they are
# few), and are labelled afterwards: by the family's vote shares, or, if enough other instances
# were fitted, by what the fit knows of the members.


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
        return  # Of the latter `warn_of_shared_mistakes` tells.
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
