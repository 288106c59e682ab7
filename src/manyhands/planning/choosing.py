"""Choosing a batch of pairs to ask: scoring candidates, and taking the best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations.frames import Backend
from manyhands.planning.beliefs import (
    Beliefs,
    better_labels,
    entropy,
    information,
    information_of_all,
    of_pairs,
)
from manyhands.planning.pool import Pool
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray
from manyhands.wording import counted

INFORMATION_SHARE = 0.001
"""Weight of the information in the criterion "accuracy", which breaks its many ties at gain 0."""

LISTED = 20_000_000
"""Largest number of pairs times squared classes for which every pair is a candidate."""

LEAST_LOOKED_AT = 4_000
"""Smallest number of instances looked at above that size, unless more are to be asked."""

CHUNK = 50_000_000
"""Number of pairs whose gains are in memory at a time."""

DIGITS = 6
"""Scores that are equal to this number of decimals count as ties."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Pairs to ask next, best first; iterating gives (instance id, annotator id).

    Attributes
    ----------
    instances, annotators : arrays of shape (m,)
        Ids. No instance occurs twice.
    scores : array of shape (m,)
        Criterion by which the pairs were chosen. "information" and "accuracy": the gain divided by
        the price. "entropy": the entropy of the instance in nats. "fewest": minus its number of
        annotations.
    expected_gain : array of shape (m,)
        Expected number of right labels that each annotation adds (for grades, the number of grades
        by which it brings the label nearer the truth).
    n_warm_up : int
        Number of first pairs that belong to the warm-up, which chooses by entropy.
    """

    instances: AnyArray
    annotators: AnyArray
    scores: FloatArray
    expected_gain: FloatArray
    n_warm_up: int = 0

    def __len__(self) -> int:
        return len(self.instances)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(zip(self.instances.tolist(), self.annotators.tolist(), strict=True))

    def __repr__(self) -> str:
        return (
            f"Suggestion({counted(len(self), 'pair')}, "
            f"{counted(len(np.unique(self.annotators)), 'annotator')}, "
            f"{self.expected_gain.sum():.2f} right labels expected)"
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the columns task, worker, score and expected_gain."""
        return {
            "task": self.instances.tolist(),
            "worker": self.annotators.tolist(),
            "score": self.scores.tolist(),
            "expected_gain": self.expected_gain.tolist(),
        }

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame of `to_columns`; backend "pandas", "polars" or "pyarrow"."""
        import narwhals as nw

        return nw.from_dict(self.to_columns(), backend=backend).to_native()


class Candidates(NamedTuple):
    """Pairs with their scores, sorted by ``first``, then ``second``, then at random."""

    instance: IntArray
    annotator: IntArray
    first: FloatArray
    second: FloatArray


@dataclass(frozen=True)
class ScoringRule:
    """How pairs are scored.

    Attributes
    ----------
    criterion : {"information", "accuracy", "entropy", "fewest"}
    chooses : bool
        Whether the annotator is chosen by the score, too; else at random.
    price : array of shape (R,)
    """

    criterion: str
    chooses: bool
    price: FloatArray

    @property
    def by_instance(self) -> bool:
        """Whether the score is that of the instance alone."""
        return self.criterion in ("entropy", "fewest")

    def of_instances(self, beliefs: Beliefs, rows: IntArray) -> FloatArray:
        """Score instances without regard to annotators, shape (m,)."""
        if self.criterion == "fewest":
            return -beliefs.n_annotators_of[rows].astype(np.float64)
        return entropy(beliefs.posterior[rows])

    def of_pairs(self, beliefs: Beliefs, i: IntArray, r: IntArray) -> FloatArray:
        """Score pairs by their gains divided by prices, shape (m,)."""
        arguments = (beliefs.posterior, beliefs.confusion, beliefs.power, i, r)
        gain = of_pairs(information, *arguments)
        if self.criterion == "accuracy":
            gain = of_pairs(better_labels(beliefs), *arguments) + INFORMATION_SHARE * gain
        return gain / self.price[r]


def candidates(
    pool: Pool,
    beliefs: Beliefs,
    rule: ScoringRule,
    n: int,
    free: BoolArray,
    room: IntArray,
    rng: np.random.RandomState,
) -> Candidates:
    """Score the pairs from which a batch of n is chosen.

    Parameters
    ----------
    free : bool array of shape (n_instances,)
        Instances that are not in the batch yet.
    room : integer array of shape (R,)
        How many more annotations each annotator may give.
    """
    n_pairs = len(pool.instances) * len(pool.annotators)
    if pool.listed is not None:
        i, r = np.divmod(pool.listed, len(pool.annotators))
    elif n_pairs * beliefs.confusion.shape[1] ** 2 <= LISTED:
        i, r = np.nonzero(pool.is_open(np.arange(len(pool.instances))))
    else:
        return _of_many(pool, beliefs, rule, n, free, room, rng)
    kept = free[i] & (room[r] > 0)
    return _scored(beliefs, rule, i[kept], r[kept])


def _scored(beliefs: Beliefs, rule: ScoringRule, i: IntArray, r: IntArray) -> Candidates:
    """Give each pair its score, or that of its instance with any annotator."""
    none = np.zeros(len(i))
    if rule.by_instance:
        rows, place = np.unique(i, return_inverse=True)
        first = rule.of_instances(beliefs, rows)[place]
        return Candidates(i, r, first, rule.of_pairs(beliefs, i, r) if rule.chooses else none)
    gain = rule.of_pairs(beliefs, i, r)
    if rule.chooses:
        return Candidates(i, r, gain, none)
    _, place = np.unique(i, return_inverse=True)
    means = np.bincount(place, gain) / np.maximum(np.bincount(place), 1)
    return Candidates(i, r, means[place], none)


def _of_many(
    pool: Pool,
    beliefs: Beliefs,
    rule: ScoringRule,
    n: int,
    free: BoolArray,
    room: IntArray,
    rng: np.random.RandomState,
) -> Candidates:
    """Take the least certain instances first, then an annotator for each."""
    rows = np.flatnonzero(free)
    value = np.round(rule.of_instances(beliefs, rows), DIGITS)
    best = np.lexsort((rng.random_sample(len(rows)), -value))
    rows = rows[best[: n if rule.by_instance else max(n, LEAST_LOOKED_AT)]]
    columns = rng.permutation(np.flatnonzero(room > 0))
    is_tight, left = bool((room[columns] < n).any()), room[columns].copy()
    parts: list[tuple[IntArray, IntArray, FloatArray]] = []
    size = max(CHUNK // max(len(columns), 1), 1)
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        gain, mean = _gains(pool, beliefs, rule, some, columns, rng)
        places = _assigned(gain, left) if is_tight else gain.argmax(axis=1)
        has = np.take_along_axis(gain, np.maximum(places, 0)[:, None], axis=1)[:, 0] >= 0
        has &= places >= 0
        parts.append((some[has], columns[places[has]], mean[has]))
    i, r, means = (np.concatenate(column) for column in zip(*parts, strict=True))
    if rule.chooses or rule.by_instance:
        return _scored(beliefs, rule, i, r)
    return Candidates(i, r, means, np.zeros(len(i)))


def _gains(
    pool: Pool,
    beliefs: Beliefs,
    rule: ScoringRule,
    rows: IntArray,
    columns: IntArray,
    rng: np.random.RandomState,
) -> tuple[AnyArray, FloatArray]:
    """Return gains by price, (m, R'), with -1 for pairs not allowed, and their mean, (m,).

    If any annotator will do, the gains are random numbers.
    """
    is_open = pool.is_open(rows)[:, columns]
    mean = np.zeros(len(rows))
    gain: AnyArray
    if rule.chooses or not rule.by_instance:
        gain = information_of_all(
            beliefs.posterior[rows], beliefs.confusion[columns], beliefs.power[rows]
        )
        mean = (gain * is_open).sum(axis=1) / np.maximum(is_open.sum(axis=1), 1)
        gain /= rule.price[columns].astype(np.float32)
    if not rule.chooses:
        gain = rng.random_sample(is_open.shape)
    gain[~is_open] = -1.0
    return gain, mean


def _assigned(gain: AnyArray, left: IntArray) -> IntArray:
    """Assign each annotator the instances with the largest gain, up to the number left to them.

    Annotators with the largest gains choose first. Returns each instance's annotator, shape (m,),
    -1 for none, and reduces ``left``.
    """
    place = np.full(len(gain), -1)
    waiting = np.arange(len(gain))
    for r in np.argsort(-gain.mean(axis=0), kind="stable").tolist():
        own = gain[waiting, r]
        can = np.flatnonzero(own >= 0)
        if len(can) > left[r]:
            can = can[np.argpartition(-own[can], left[r] - 1)[: left[r]]] if left[r] else can[:0]
        place[waiting[can]] = r
        left[r] -= len(can)
        waiting = np.delete(waiting, can)
        if not len(waiting):
            break
    return place


def take(found: Candidates, n: int, room: IntArray, rng: np.random.RandomState) -> list[int]:
    """Take up to n candidates, best first: one per instance, and no more than ``room`` allows.

    Equal scores are taken in random order. ``room`` is reduced by what is taken.
    """
    order = np.lexsort(
        (
            rng.random_sample(len(found.first)),
            -np.round(found.second, DIGITS),
            -np.round(found.first, DIGITS),
        )
    )
    instance, annotator = found.instance[order].tolist(), found.annotator[order].tolist()
    left, used, taken = room.tolist(), set(), []
    for place, (i, r) in enumerate(zip(instance, annotator, strict=True)):
        if i not in used and left[r] > 0:
            used.add(i)
            left[r] -= 1
            taken.append(place)
            if len(taken) == n:
                break
    room[:] = left
    return order[taken].tolist() if taken else []


def fill(
    pool: Pool,
    beliefs: Beliefs,
    rule: ScoringRule,
    n: int,
    free: BoolArray,
    room: IntArray,
    activity: FloatArray | None,
    rng: np.random.RandomState,
) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Yield parts of a batch of n: instances, annotators and scores.

    Parameters
    ----------
    free : bool array of shape (n_instances,)
        Instances that may be asked; those taken are removed.
    room : integer array of shape (R,)
        How many annotations each annotator may give; reduced by those taken.
    activity : array of shape (R,) or None
        Relative frequency with which annotators arrive; None: all are available.
    """
    idle = np.zeros(len(room), dtype=bool)
    while n > 0:
        places = np.where(idle, 0, room)
        if activity is not None and places.any():
            comes = np.where(places > 0, activity, 0.0)
            places = np.minimum(places, rng.multinomial(n, comes / comes.sum()))
        if not places.any() or not free.any():
            return
        before = places.copy()
        found = candidates(pool, beliefs, rule, n, free, places, rng)
        rows = take(found, n, places, rng)
        room -= before - places
        free[found.instance[rows]] = False
        n -= len(rows)
        if rows:
            yield found.instance[rows], found.annotator[rows], found.first[rows]
        elif activity is not None:
            idle |= before > 0  # Nothing is left for the annotators who arrived.
        else:
            return
