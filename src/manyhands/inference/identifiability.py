"""Identifiability: whether the annotations suffice to infer the labels.

Truth inference learns which annotators are right from how they agree. If they agree no better than
by chance, or only because some give the same answer every time, agreement carries no information. A
model is then confident and wrong: EM gives one class the whole prior, and every instance this class
(class collapse). Labels are *not identified* if

- only one family annotated the instance, and too few other instances show how good it is;
- Krippendorff's alpha [1]_ between the units of the instances (families, and annotators without
  one) is not above 0 with 95 % confidence, nor is Cohen's kappa [2]_ of any two of the busiest
  annotators (a few good annotators among many poor ones are enough), nor, for ordered classes,
  alpha at ordinal level;
- without the annotators who give the same answer every time, hardly any instance has two annotators
  to compare; or
- the fit assigns more than .99 of the instances to one class with fewer than .9 of the votes. With
  gold, a fit without it is judged, because a few known labels change the class shares but not which
  annotators are right. For ordered classes with little agreement, a nominal fit is judged, because
  the ordered model shrinks the class shares to the vote shares, which prevents a collapse without
  showing who is right.

The second condition does not apply if one class has .9 of the votes: nearly all its labels may be
right, although hardly any instance shows whether annotators agree on the other classes.

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
    starting_shares,
    vote_shares,
    votes_of,
)
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

MOST_INSTANCES = 10_000
"""Largest number of instances, drawn at random, on which agreement is measured."""

LEAST_INSTANCES = 30
"""Least number of instances with two units for a judgement of agreement."""

MOST_ANNOTATORS = 30
"""Number of busiest annotators whose pairs are tested."""

FREQUENT = 0.9
"""Share of the votes from which one class may be the right label of nearly all instances."""

COLLAPSED = 0.99
"""Share of the instances in one class from which a fit counts as collapsed."""

SAME, SURPRISE = 0.95, 1e-4
"""An annotator gives "the same answer every time" if one answer has at least the first share, and
would have at most the second probability if the answers were those of others."""

FAINT = 0.2
"""Upper end of alpha's interval below which an ordered fit is compared with a nominal one."""

LEAST_COMPARED = 0.1
"""Share of instances with two annotators below which the labels of isolated annotators are taken as
known. Models that estimate annotators and class shares from so few instances would otherwise
collapse to one class. The price is an overconfident posterior (docs/results/posteriors.md, "Lone
annotators")."""

MOST_TAKING_PART = 0.1
"""Largest share of instances with only one family that stay in the fit: so few cannot dominate it,
and the other instances show how good the family is."""


@dataclass(frozen=True)
class Agreement:
    """Krippendorff's alpha between units, with a 95 % interval; NaN if not measured."""

    alpha: float
    low: float
    high: float

    @property
    def is_chance(self) -> bool:
        """Whether the agreement may be no better than chance."""
        return bool(self.low <= 0)


def unidentified(votes: Any, annotators: AnyArray | None, posterior: Any = None) -> str | None:
    """Return why the annotations do not identify the label of any instance; None if they do.

    Parameters
    ----------
    votes : Votes or StoredVotes
        Votes without the instances that only one family annotated.
    annotators : array of shape (R,) or None
        Ids of the annotators; None if votes are anonymous.
    posterior : array of shape (n, C), optional
        Posterior of a fit, which is checked for class collapse.

    Returns
    -------
    str or None
        A sentence for a warning.
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
        if counts.max() > COLLAPSED:
            return (
                "the annotators hardly agree (Krippendorff's alpha at nominal level "
                f"{found.alpha:.2f}), so the labels show little more than how often each grade was "
                "given. If grades were treated as mere names, "
                f"{100 * counts.max():.0f} % of the instances would get the same grade, although "
                f"only {100 * share[counts.argmax()]:.0f} % of the annotations give it. Compare "
                f"the labels with those of MajorityVote, and {_gold(votes)}"
            )
    top, mean = _collapsed_into(votes, posterior)
    if mean > COLLAPSED:
        return (
            f"the fit puts {100 * mean:.0f} % of the instances into one class, which has "
            f"{100 * share[top]:.0f} % of the annotations. The fit has collapsed, and its "
            "certainty means nothing. Compare the labels with those of MajorityVote, and "
            f"{_gold(votes)}"
        )
    return None


def warn_of_unidentified(reason: str | None) -> None:
    """Warn that the annotations identify no label, if there is a reason."""
    if reason is not None:
        warn_caller(
            f"{reason}. Until then, accept no label without checking it", NotIdentifiableWarning
        )


def identified(table: Any, posterior: Any = None, known: Any = None) -> BoolArray:
    """Return a mask of the instances whose label is identified, shape (n_instances,).

    Parameters
    ----------
    table : AnnotationTable or store
    posterior : array of shape (n_instances, n_classes), optional
        Posterior of a fit to the table.
    known : boolean array of shape (n_instances,), optional
        Mask of the instances with gold; their labels are identified.
    """
    reason, isolated = _found(table, posterior, known)
    return decided(
        reason, isolated, np.broadcast_to(False if known is None else known, isolated.alone.shape)
    )


def warn_of_all(table: Any, posterior: Any = None, known: Any = None) -> None:
    """Warn of everything that is not identified; the arguments are those of `identified`."""
    reason, isolated = _found(table, posterior, known)
    warn_of_isolated_families(isolated)
    warn_of_unidentified(reason)


def _found(table: Any, posterior: Any, known: Any) -> tuple[str | None, IsolatedFamilies]:
    gold = None if known is None else np.where(known, 0, MISSING)  # Classes do not matter here.
    stored = is_sharded(table)
    votes: Any = votes_of(table if stored else table.observed, gold)
    isolated = isolated_families(votes, table.groups)
    if isolated.n:
        votes = votes.keep(~isolated.alone[votes.instance])
    names = table.annotators if getattr(table, "annotators_known", True) else None
    return None if isolated.are_all else unidentified(votes, names, posterior), isolated


def decided(reason: str | None, isolated: IsolatedFamilies, known: BoolArray) -> BoolArray:
    """Return a mask of the instances whose label is known or identified, shape (n,)."""
    if reason is not None:
        return known.copy()
    return np.asarray(known | ~isolated.alone | isolated.enough)


def constant_annotators(votes: Votes) -> BoolArray:
    """Return a mask of annotators who always give the same answer, unlike others, shape (R,)."""
    n_annotators, n_classes = votes.n_annotators, votes.n_classes
    cells, given = np.unique(
        votes.annotator * np.int64(n_classes) + votes.response, return_counts=True
    )
    order = np.lexsort((given, cells // n_classes))
    top, most = np.full(n_annotators, MISSING), np.zeros(n_annotators, dtype=np.int64)
    top[cells[order] // n_classes] = cells[order] % n_classes  # The last, most frequent one stays.
    most[cells[order] // n_classes] = given[order]
    n = np.bincount(votes.annotator, minlength=n_annotators)
    candidates = (n > 0) & (most >= SAME * n)
    rows = candidates[votes.annotator]
    # Answers of others on the same instances.
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
    """Return Krippendorff's nominal alpha over pairs of annotations by different units.

    The interval is computed by the jackknife over instances.
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
    # Sums of squares of the counts without each instance, in O(annotations).
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
    """Return whether any two busy annotators of different units agree beyond chance.

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
    """Return whether units agree beyond chance at ordinal level (95 % interval above 0)."""
    return _alpha_at_level(votes, "ordinal").low > 0


def unidentified_numbers(table: AnnotationTable) -> str | None:
    """Return a warning if annotators do not agree on numbers beyond chance; else None.

    They agree if the 95 % interval of alpha at interval level is above 0. This may also hold only
    after the mean of every busy annotator is subtracted, because ratings that are far too high may
    still rank items correctly. None also if there is too little overlap to decide.
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
    """Return alpha between units at a level of measurement; NaN with too little overlap."""
    unit = votes.annotator if votes.family is None else votes.family[votes.annotator]
    # One annotation of each unit, because members of a family share their mistakes.
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
    """Return Cohen's kappa over its standard error under no agreement; 0 for constant answers."""
    n = len(one)
    p, q = (np.bincount(codes, minlength=n_classes) / n for codes in (one, other))
    chance = float(p @ q)
    variance = chance + chance**2 - float((p * q * (p + q)).sum())
    return ((one == other).mean() - chance) / np.sqrt(variance / n) if variance > 1e-12 else 0.0


def _alpha(differ: FloatArray, n: FloatArray, squares: FloatArray, weight: FloatArray) -> Any:
    """Return 1 - observed / expected disagreement, from sums over instances.

    ``squares`` are the sums of the squared numbers of annotations of each class.
    """
    expected = (n**2 - squares) / np.maximum(n * (n - 1), 1.0)
    observed = differ / np.maximum(weight, 1.0)
    # If all answers are equal, the expected disagreement is 0 and alpha is 1.
    return 1.0 - np.divide(observed, expected, out=np.zeros_like(observed), where=expected > 0)


def _pairs_within(cells: IntArray, instance: IntArray, n: int) -> FloatArray:
    """Count the pairs of annotations in the same cell, by instance, shape (n,)."""
    _, first, counts = np.unique(cells, return_index=True, return_counts=True)
    found = np.bincount(instance[first], counts * (counts - 1) / 2, minlength=n)
    return np.asarray(found, dtype=np.float64)


def _sample(votes: Any) -> Votes:
    """Return the votes of at most `MOST_INSTANCES` random instances."""
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
    return (
        f"fit GoldCorrected with gold labels of {least} or more instances drawn at random (gold=)"
    )


def _collapsed_into(votes: Any, posterior: Any) -> tuple[int, float]:
    """Return the most frequent class of annotated instances without gold, and its mean probability.

    A few known labels make a collapsed fit less confident without changing its labels. If nearly
    all labels are one class, the probability is therefore that of a fit without gold.
    """
    *total, n = votes.total(_summed, rows=(posterior,))
    probabilities, labels = np.split(np.array(total) / max(n, 1.0), 2)
    top = int(labels.argmax())
    if votes.gold is None or labels[top] <= COLLAPSED:
        return int(probabilities.argmax()), float(probabilities.max())
    return top, float(_without_gold(votes)[top])


def _without_gold(votes: Any) -> FloatArray:
    """Return the shares of the classes in a fit without gold, shape (C,)."""
    bare: Any = replace(votes, gold=None)
    start = starting_shares(bare)
    counts = Fits(DEFAULT_EM, bare, bare.shards(), start, "without-gold").run().counts.prior
    return np.asarray(counts / counts.sum())


def _summed(shard: Votes, rows: FloatArray) -> FloatArray:
    """Return sums of probabilities and of most probable classes, and the number of instances."""
    unknown = np.diff(shard.start) > 0
    if shard.gold is not None:
        unknown &= shard.gold < 0
    labels = np.bincount(rows[unknown].argmax(axis=1), minlength=rows.shape[1])
    return np.concatenate([unknown.astype(np.float64) @ rows, labels, [unknown.sum()]])


# -- isolated annotators --------------------------------------------------------------------------
#
# Annotators are compared on the instances that two of them annotated. If there are (nearly) no such
# instances, the only label of an instance is taken as known, and a warning says so.


@dataclass(frozen=True)
class Comparisons:
    """Numbers of instances on which annotators can be compared.

    Attributes
    ----------
    annotated : int
        Number of instances with annotations.
    compared : int
        Number of instances with annotations by two annotators, or by one with a history.
    known : int
        Number of annotated instances with gold.
    """

    annotated: int
    compared: int
    known: int

    def __add__(self, other: Comparisons) -> Comparisons:
        """Return the sum of both."""
        return Comparisons(
            self.annotated + other.annotated,
            self.compared + other.compared,
            self.known + other.known,
        )

    @property
    def are_none(self) -> bool:
        """Whether there is no instance on which annotators can be compared."""
        return not self.compared + self.known

    @property
    def are_few(self) -> bool:
        """Whether nearly all instances have only one annotator."""
        return self.compared < LEAST_COMPARED * self.annotated


def comparisons(votes: AllVotes) -> Comparisons:
    """Count the instances on which annotators can be compared."""
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
    """Return a mask of the instances with at most one annotator, shape (n,)."""
    start, n = shard.start, np.diff(shard.start)
    given = n > 0
    first = np.repeat(shard.annotator[start[:-1][given]], n[given])
    by_one = np.ones(len(n), dtype=bool)
    by_one[shard.instance[shard.annotator != first]] = False
    return by_one


def warn_of_isolated_annotators(found: Comparisons) -> None:
    """Warn if there are no or few instances on which annotators can be compared."""
    if found.are_none:
        warn_caller(
            "no instance has annotations by two annotators, so annotators cannot be compared: "
            "the labels are the annotations, and estimates of annotators come from the prior",
            NotIdentifiableWarning,
        )
    elif found.are_few:
        warn_caller(
            f"only {found.compared:,} of {found.annotated:,} annotated instances have annotations "
            "by two annotators. Where a single annotator labelled an instance without gold, the "
            "label counts as right, which flatters the annotator. Have more instances annotated "
            "twice",
            NotIdentifiableWarning,
        )


def trust_isolated_labels(votes: Any) -> Any:
    """Return votes in which the only label of an instance is known; no prior overrules it."""
    gold = np.empty(votes.n_instances, dtype=np.int32)
    fill_rows(gold, votes.parts, _with_isolated_labels)
    return replace(votes, gold=gold)


def read_out_isolated(
    votes: Any, posterior: FloatArray, model: Callable[[Votes], FloatArray]
) -> None:
    """Replace the rows of ``posterior`` (n, C) that `trust_isolated_labels` made certain.

    Parameters
    ----------
    votes : Votes or StoredVotes
        The original votes.
    model : callable
        Takes votes and returns their posterior.
    """

    def rows(shard: Votes, found: FloatArray) -> FloatArray:
        isolated = _isolated_labels(shard) >= 0
        if isolated.any():
            found = found.copy()
            found[isolated] = model(shard.select(np.flatnonzero(isolated)))
        return found

    fill_rows(posterior, votes.parts, rows, rows=(posterior,))


def _with_isolated_labels(shard: Votes) -> AnyArray:
    codes = _isolated_labels(shard)
    return codes if shard.gold is None else np.where(shard.gold >= 0, shard.gold, codes)


def _isolated_labels(shard: Votes) -> AnyArray:
    """Return the class code of instances with a single label and without gold; -1 for others."""
    answers = shard.answers
    shares = vote_shares(replace(answers, gold=None), empty=np.zeros(shard.n_classes))
    is_isolated = (shares.max(axis=1) > 1 - 1e-9) & _by_one(answers)
    if shard.gold is not None:
        is_isolated &= shard.gold < 0
    return np.where(is_isolated, shares.argmax(axis=1), MISSING)


# -- isolated families -----------------------------------------------------------------------------
#
# The *units* of an instance are the declared families among its annotators, and each annotator
# without a family. If one family is the only unit, its members agree because they share mistakes,
# not because they are right; with the weights of a family (`manyhands.inference.families`) they
# count as little more than one vote. If most of a table is like this, EM collapses to one class.
# Such instances are therefore left out of the fit (unless they are few) and labelled afterwards: by
# the family's vote shares, or, if enough other instances were fitted, by the fitted model.


def least_others(n_classes: int) -> int:
    """Return the least number of other instances for the fit to label those with only one family.

    With 25 to 50 of them, a fit of six machines lost up to .05 of accuracy against vote shares.
    """
    return max(100, 20 * n_classes)


@dataclass(frozen=True)
class IsolatedFamilies:
    """Instances on which one family is the only unit.

    Attributes
    ----------
    alone : boolean array of shape (n_instances,)
        Mask of the instances with annotations of one family only, without gold; none if they are
        few.
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
    def none(cls, n_instances: int) -> IsolatedFamilies:
        """Return the result if there are no such instances."""
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


def isolated_families(votes: Any, groups: AnyArray | None) -> IsolatedFamilies:
    """Find the instances that only one family annotated.

    Parameters
    ----------
    votes : Votes or StoredVotes
        A store declares no families. An annotator's history counts as evidence besides the family.
    groups : text array of shape (R,) or None
        Family of each annotator, "" for none.
    """
    if votes.family is None or groups is None:
        return IsolatedFamilies.none(votes.n_instances)
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
    return IsolatedFamilies(alone, n, tuple(names.tolist()), enough)


def set_apart(votes: Votes, found: IsolatedFamilies) -> Votes:
    """Return the votes without the annotations of instances that only one family annotated.

    If there are no other instances, the majority of each family is taken as known, so that the
    parameters of the model are defined.
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
    """Fill the rows of ``posterior`` (n, C) of instances that only one family annotated.

    Parameters
    ----------
    votes : Votes
        All votes.
    alone : boolean array of shape (n,)
    posterior : array of shape (n, C)
    model : callable or None
        Takes votes and returns the posterior of the fitted model; None: vote shares are used. They
        are also used if the family gave a class that is impossible under the model, because it did
        not occur in the fit.
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


def warn_of_isolated_families(found: IsolatedFamilies) -> None:
    """Warn that only one family annotated some instances, unless all instances are like this."""
    if not found.n or (found.are_all and len(found.names) < 3):
        return  # If all are like this, `warn_of_shared_mistakes` warns.
    who = f"the family {found.names[0]}" if len(found.names) == 1 else "one family each"
    how = (
        "Nothing there shows the mistakes that its members share, so these instances take no part "
        "in the fit, and their labels come from what the other instances tell of the annotators."
        if found.enough
        else "Their labels are its vote shares."
    )
    warn_caller(
        f"On {found.share} of the instances only {who} annotated. {how} Take the people out "
        "of the table, and give their labels as gold to GoldCorrected, with no family declared.",
        NotIdentifiableWarning,
    )
