"""Pairs of instance and annotator that may be asked, their prices, and the answers in a replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol, Self

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, merge_vocabularies
from manyhands.exceptions import AnnotationError
from manyhands.planning.beliefs import Beliefs, distinct
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Pool:
    """Pairs that may be asked: all that are listed or marked, and not annotated yet.

    Attributes
    ----------
    instances, annotators : arrays
        Ids; those of the table first.
    asked : integer array
        Sorted numbers (instance * R + annotator) of the pairs that are annotated or passed.
    listed : integer array or None
        Sorted numbers of the pairs that may be asked and were not yet; None: see ``mask``.
    mask : bool array of shape (n, R) or None
        Pairs that may be asked; None: all.
    """

    instances: AnyArray
    annotators: AnyArray
    asked: IntArray
    listed: IntArray | None = None
    mask: BoolArray | None = None

    @property
    def n_open(self) -> IntArray:
        """Number of pairs of each instance that may be asked, shape (n,)."""
        n, r = len(self.instances), len(self.annotators)
        if self.listed is not None:
            return np.bincount(self.listed // r, minlength=n)
        if self.mask is None:
            return np.asarray(r - np.bincount(self.asked // max(r, 1), minlength=n))
        return self.mask.sum(axis=1) - np.bincount(
            self.asked[self.mask[self.asked // r, self.asked % r]] // r, minlength=n
        )

    @property
    def open_instances(self) -> BoolArray:
        """Whether an instance has a pair that may be asked, shape (n,)."""
        return self.n_open > 0

    @property
    def open_annotators(self) -> BoolArray:
        """Whether an annotator has a pair that may be asked, shape (R,)."""
        n, r = len(self.instances), len(self.annotators)
        if self.listed is not None:
            return np.bincount(self.listed % r, minlength=r) > 0
        if self.mask is None:
            return np.bincount(self.asked % r, minlength=r) < n
        return self.mask.sum(axis=0) > np.bincount(
            self.asked[self.mask[self.asked // r, self.asked % r]] % r, minlength=r
        )

    def is_open(self, rows: IntArray) -> BoolArray:
        """Return whether the pairs of some instances may be asked, shape (m, R)."""
        r = len(self.annotators)
        allowed = np.ones((len(rows), r), bool) if self.mask is None else self.mask[rows].copy()
        starts = np.searchsorted(self.asked, rows * np.int64(r))
        ends = np.searchsorted(self.asked, (rows + 1) * np.int64(r))
        given = ends - starts
        places = np.repeat(starts - np.cumsum(given) + given, given) + np.arange(given.sum())
        allowed[np.repeat(np.arange(len(rows)), given), self.asked[places] % r] = False
        return allowed


def kept_pairs(pairs: Any) -> Any:
    """Return pairs that can be read twice: a generator becomes a list."""
    return list(pairs) if isinstance(pairs, Iterable) and not isinstance(pairs, Sized) else pairs


def checked_size(n: Any) -> int:
    """Return a number of pairs, checked to be a positive whole number.

    Raises
    ------
    AnnotationError
        If it is not.
    """
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise AnnotationError(f"n={n!r} must be a positive whole number of pairs")
    return int(n)


def read_pool(pairs: Any, table: AnnotationTable) -> Pool:
    """Read which pairs may be asked.

    Parameters
    ----------
    pairs : None, bool array of shape (n, R), or iterable of (instance id, annotator id)
        None: all. Ids outside the table are new instances and new annotators.
    table : AnnotationTable

    Raises
    ------
    AnnotationError
        If a mask has another shape, or ``pairs`` holds something else than pairs of ids.
    """
    instances, annotators = table.instances, table.annotators
    listed: IntArray | None = None
    mask = pairs if isinstance(pairs, np.ndarray) and pairs.dtype == bool else None
    if mask is not None:
        if mask.shape != table.shape:
            raise AnnotationError(
                f"pairs is a mask of shape {mask.shape}; it must have one row per instance and one "
                f"column per annotator of the table, {table.shape}"
            )
    elif pairs is not None:
        first, second = _columns(pairs)
        instances, i = _with_new(instances, first, "instance ids of pairs")
        annotators, r = _with_new(annotators, second, "annotator ids of pairs")
        listed = np.unique(i * np.int64(len(annotators)) + r)
    size = np.int64(max(len(annotators), 1))
    numbers = [table.instance * size + table.annotator]
    if table.passes is not None:  # An annotator who passed is not asked about the instance again.
        numbers.append(table.passes[:, 0] * size + table.passes[:, 1])
    asked = distinct(np.concatenate(numbers), len(instances) * len(annotators))
    if listed is not None:
        listed = np.setdiff1d(listed, asked, assume_unique=True)
    return Pool(instances, annotators, asked, listed, mask)


def _columns(pairs: Any) -> tuple[AnyArray, AnyArray]:
    try:
        rows = pairs if isinstance(pairs, np.ndarray) else [tuple(pair) for pair in pairs]
        wrong = next((row for row in rows if len(row) != 2), None)
    except TypeError:
        rows, wrong = [], pairs
    if wrong is not None:
        raise AnnotationError(
            f"pairs holds {wrong!r}; give a bool array of shape (instances, annotators), or an "
            "iterable of (instance id, annotator id)"
        )
    first, second = ([row[k] for row in rows] for k in (0, 1))
    return as_values(first), as_values(second)


def _with_new(known: AnyArray, values: AnyArray, argument: str) -> tuple[AnyArray, IntArray]:
    """Append ids that are not known yet; return all ids, and the codes of the values."""
    if not len(values):
        return known, np.zeros(0, dtype=np.int64)
    codes, distinct = encode(values, None, argument=argument, vocabulary_name="")
    places, merged = merge_vocabularies(known, distinct)
    return merged, places.astype(np.int64)[codes]


def read_prices(cost: Any, annotators: AnyArray) -> FloatArray:
    """Return the price of each annotator, shape (R,)."""
    price = np.ones(len(annotators))
    if cost is None:
        return price
    if isinstance(cost, Mapping):
        if not cost:
            return price
        places, _ = encode(
            list(cost), annotators, argument="cost", vocabulary_name="the table's annotators"
        )
        values = np.asarray(list(cost.values()), dtype=np.float64)
    else:
        values, places = np.asarray(cost, dtype=np.float64), np.arange(len(annotators))
        if values.shape != price.shape:
            raise AnnotationError(
                f"cost has shape {values.shape}; give one price per annotator, shape "
                f"{price.shape}, or a dict {{annotator id: price}}"
            )
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        raise AnnotationError(
            f"cost holds {values[bad][0].item()!r}, but a price must be a positive number. If an "
            "annotator must not be asked, leave their pairs out of pairs="
        )
    price[places] = values
    return price


def nothing_left(pairs: Any, n_instances: int, n_annotators: int) -> AnnotationError:
    """Return the error that says why nothing is left to ask."""
    size = f"{n_instances:,} x {n_annotators:,} pairs"
    if pairs is None:
        return AnnotationError(
            f"nothing is left to ask: each of the {size} is annotated or passed, or its class "
            "is known. Add instances, or a new annotator: next_for() lists the instances to ask "
            "about first"
        )
    is_mask = isinstance(pairs, np.ndarray) and pairs.dtype.kind == "b"
    allowed = int(pairs.sum()) if is_mask else len(pairs)
    why = f"it allows {allowed:,} of {size}, and each of them is annotated or passed, or its "
    why += "class is known"
    if allowed == 0:
        why = f"it allows none of the {size}"
    elif allowed == 1:
        why = "the only pair that it allows is annotated or passed, or its class is known"
    return AnnotationError(
        f"pairs leaves nothing to ask: {why}. Allow other pairs, or add annotators"
    )


# -- who answers ----------------------------------------------------------------------------------


class AnswerSource(Protocol):
    """Source of answers in a replay."""

    @property
    def table(self) -> AnnotationTable:
        """Table with the vocabularies and all recorded annotations."""

    @property
    def facts(self) -> tuple[Any, ...]:
        """What else decides the answers."""

    def begin(self, rng: np.random.RandomState) -> tuple[IntArray, IntArray]:
        """Return the first annotations, (3, m) codes, and the truth (n,), -1 where unknown."""

    def pool(self, bought: IntArray) -> Pool:
        """Return the pairs that may be asked."""

    def answer(
        self,
        i: IntArray,
        r: IntArray,
        truth: IntArray,
        bought: IntArray,
        rng: np.random.RandomState,
    ) -> IntArray:
        """Return the codes of the answers to pairs, shape (m,)."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded annotations, in the order of their pairs."""

    table: AnnotationTable
    truth: IntArray
    start: float
    pairs: IntArray
    labels: IntArray

    @property
    def facts(self) -> tuple[Any, ...]:
        """What else decides the answers."""
        return self.truth, self.start

    @classmethod
    def of(cls, table: AnnotationTable, truth: IntArray, start: float) -> Self:
        """Sort a table's annotations by pair; refuse repeated pairs."""
        pairs = table.instance * np.int64(table.n_annotators) + table.annotator
        order = np.argsort(pairs, kind="stable")
        pairs = pairs[order]
        if (np.diff(pairs) == 0).any():
            raise AnnotationError(
                "table has repeated (instance, annotator) pairs, but only one annotation of a pair "
                "can be bought; make the table with duplicates='last'"
            )
        return cls(table, truth, start, pairs, table.label[order])

    def begin(self, rng: np.random.RandomState) -> tuple[IntArray, IntArray]:
        """Draw ``start`` annotations of each instance, or one more for a fraction of them."""
        i = self.pairs // self.table.n_annotators
        order = np.lexsort((rng.random_sample(len(i)), i))
        rank = np.arange(len(i)) - np.searchsorted(i, i)  # Sorted by instance already.
        more = rng.random_sample(self.table.n_instances)[i]
        rows = np.sort(order[rank + more < self.start])
        annotator = self.pairs[rows] % self.table.n_annotators
        return np.stack([i[rows], annotator, self.labels[rows]]), self.truth

    def pool(self, bought: IntArray) -> Pool:
        """Return all recorded pairs that are not bought."""
        asked = np.unique(bought[0] * np.int64(self.table.n_annotators) + bought[1])
        left = np.setdiff1d(self.pairs, asked, assume_unique=True)
        return Pool(self.table.instances, self.table.annotators, asked, left)

    def answer(
        self,
        i: IntArray,
        r: IntArray,
        truth: IntArray,
        bought: IntArray,
        rng: np.random.RandomState,
    ) -> IntArray:
        """Look the answers up."""
        return self.labels[np.searchsorted(self.pairs, i * np.int64(self.table.n_annotators) + r)]


@dataclass(frozen=True, eq=False)
class Worlds:
    """Simulated truths drawn from a posterior, and answers drawn from confusion matrices."""

    table: AnnotationTable
    beliefs: Beliefs
    mask: BoolArray | None = None

    @property
    def facts(self) -> tuple[Any, ...]:
        """What else decides the answers."""
        allowed = () if self.mask is None else (self.mask,)
        return ("worlds", self.beliefs.posterior, *allowed)

    def begin(self, rng: np.random.RandomState) -> tuple[IntArray, IntArray]:
        """Return the pilot's annotations, and draw a truth."""
        cumulative = self.beliefs.posterior.cumsum(axis=1)
        number = rng.random_sample(len(cumulative)) * cumulative[:, -1]
        truth = (cumulative < number[:, None]).sum(axis=1)
        table = self.table
        return np.stack([table.instance, table.annotator, table.label]).astype(np.int64), truth

    def pool(self, bought: IntArray) -> Pool:
        """Return the pairs that may be asked and are not bought."""
        asked = np.unique(bought[0] * np.int64(self.table.n_annotators) + bought[1])
        return Pool(self.table.instances, self.table.annotators, asked, mask=self.mask)

    def answer(
        self,
        i: IntArray,
        r: IntArray,
        truth: IntArray,
        bought: IntArray,
        rng: np.random.RandomState,
    ) -> IntArray:
        """Repeat an earlier answer about the instance, or answer by the confusion matrix.

        With d earlier answers, one of them is repeated with probability d rho / (1 + (d - 1) rho).
        In this Polya urn, any two answers about an instance have the correlation rho, and m of them
        are worth m / (1 + (m - 1) rho) independent ones, as in the tempered posterior.
        """
        order = np.argsort(bought[0], kind="stable")
        given = np.bincount(bought[0], minlength=self.table.n_instances)
        first, d = (given.cumsum() - given)[i], given[i]
        rho = self.beliefs.rho
        repeats = rng.random_sample(len(i)) < d * rho / (1 + (np.maximum(d, 1) - 1) * rho)
        place = first + (rng.random_sample(len(i)) * d).astype(np.int64)
        cumulative = self.beliefs.confusion[r, truth[i]].cumsum(axis=1)
        labels = np.asarray((cumulative[:, :-1] < rng.random_sample(len(i))[:, None]).sum(axis=1))
        labels[repeats] = bought[2][order[place[repeats]]]
        return labels


def generator_of(*seeds: int) -> np.random.RandomState:
    """Make a generator from several seeds."""
    return np.random.RandomState(np.random.SeedSequence(seeds).generate_state(8))
