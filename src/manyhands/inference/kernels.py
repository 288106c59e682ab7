"""Annotations sorted by instance, and the sums over them that every method is made of.

`Votes` holds integer-coded columns; `Votes.shards` cuts them into runs of whole instances. A
method is a function ``shard, parameters -> counts`` whose counts add up over shards (`total`), so
that one shard after the other can come from memory, from a file or from another machine. Nothing
is of size instances x annotators, and one shard's posterior at a time is in memory.

Everything is float64: float32 was off by 1e-3 at ten million annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix
from scipy.special import gammaln, psi, xlogy

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import pick
from manyhands.typing import FloatArray, IntArray

LOG_FLOOR = float(np.log(1e-100))
"""Stands for log 0 in a confusion matrix: one impossible annotation must not erase all classes."""

SHARD = 100_000
"""Annotations a shard: enough to hide Python's overhead, few enough for the processor's cache."""

SparseVotes: TypeAlias = "csr_matrix[np.float64]"


@dataclass(frozen=True, eq=False)
class Votes:
    """Annotations in the order of their instances.

    Attributes
    ----------
    annotator, response : integer arrays of shape (n_annotations,)
        Codes, sorted by instance. A response is a class, or ``n_classes`` where the annotator
        abstained.
    start : integer array of shape (n_instances + 1,)
        Where every instance's annotations begin.
    weight : array of shape (n_annotations,) or None
        Positive; None means all 1.
    gold : integer array of shape (n_instances,) or None
        Known class of every instance, -1 where unknown.
    """

    annotator: IntArray
    response: IntArray
    start: IntArray
    n_annotators: int
    n_classes: int
    n_responses: int
    weight: FloatArray | None = None
    gold: IntArray | None = None
    unit: FloatArray | None = None
    """Ones that the matrices of all shards share."""

    @property
    def n_instances(self) -> int:
        """Number of instances, those without annotations included."""
        return len(self.start) - 1

    @property
    def n_annotations(self) -> int:
        """Number of annotations with a positive weight."""
        return len(self.response)

    @cached_property
    def instance(self) -> IntArray:
        """Code of every annotation's instance, counted from this shard's first."""
        return np.repeat(np.arange(self.n_instances, dtype=np.int32), np.diff(self.start))

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(self.n_annotations if self.weight is None else self.weight.sum())

    @property
    def answers(self) -> Votes:
        """The annotations alone, without abstentions."""
        if self.n_responses == self.n_classes:
            return self
        kept = self.response < self.n_classes
        counts = np.bincount(self.instance[kept], minlength=self.n_instances)
        return replace(
            self,
            annotator=self.annotator[kept],
            response=self.response[kept],
            start=np.concatenate([[0], np.cumsum(counts)]),
            n_responses=self.n_classes,
            weight=None if self.weight is None else self.weight[kept],
            unit=None,
        )

    @cached_property
    def voted(self) -> Any:
        """Mark the instances something is known of: an annotation or gold, shape (n,)."""
        voted = np.diff(self.start) > 0
        return voted if self.gold is None else voted | (self.gold >= 0)

    @cached_property
    def matrix(self) -> SparseVotes:
        """One-hot annotations, shape (n, R * K); column = ``annotator * K + response``."""
        column = self.annotator * np.int64(self.n_responses) + self.response
        shape = (self.n_instances, self.n_annotators * self.n_responses)
        index = np.int32 if shape[1] <= np.iinfo(np.int32).max else np.int64
        weight = self.weight
        if weight is None:
            weight = np.ones(self.n_annotations) if self.unit is None else self.unit
        entries: Any = (weight, column.astype(index), self.start.astype(index))
        return csr_matrix(entries, shape=shape)

    def shards(self, size: int | None = None) -> list[Votes]:
        """Cut into runs of whole instances of about ``size`` annotations each, to be kept.

        By default large enough that adding up the counts, of size R * K * C, stays cheap.
        """
        return list(self.runs(size or max(SHARD, 4 * self.n_annotators * self.n_responses)))

    def runs(self, size: int) -> Iterator[Votes]:
        """Cut in the same way, one run after the other, for a single pass."""
        if self.n_annotations <= size:
            yield self
            return
        n_parts = -(-self.n_annotations // size)
        cuts = np.searchsorted(self.start, np.arange(1, n_parts) * size)
        bounds = np.unique([0, *cuts, self.n_instances])
        unit = np.ones(np.diff(self.start[bounds]).max())
        for first, last in pairwise(bounds):
            yield self._run(first, last, unit)

    def _run(self, first: int, last: int, unit: FloatArray) -> Votes:
        """Instances ``first`` to ``last`` (exclusive)."""
        rows = slice(self.start[first], self.start[last])
        return replace(
            self,
            annotator=self.annotator[rows],
            response=self.response[rows],
            start=self.start[first : last + 1] - self.start[first],
            weight=None if self.weight is None else self.weight[rows],
            gold=None if self.gold is None else self.gold[first:last],
            unit=unit[: rows.stop - rows.start],
        )


def make_votes(
    table: AnnotationTable, *, gold: IntArray | None = None, abstentions: bool = False
) -> Votes:
    """Sort a table by instance (a counting sort, skipped where it is sorted already).

    Parameters
    ----------
    table : AnnotationTable
    gold : integer array of shape (n_instances,), optional
        Known class codes, -1 where unknown.
    abstentions : bool
        Take abstentions as one more response (code ``n_classes``).
    """
    instance, annotator, response = table.instance, table.annotator, table.label
    weight = None if table.weights is None else table.weights.astype(np.float64)
    n_responses = table.n_classes
    if abstentions and len(table.abstentions):
        unsure = table.abstentions
        n_responses += 1
        instance = np.concatenate([instance, unsure[:, 0]])
        annotator = np.concatenate([annotator, unsure[:, 1]])
        response = np.concatenate([response, np.full(len(unsure), table.n_classes, response.dtype)])
        weight = None if weight is None else np.concatenate([weight, np.ones(len(unsure))])
    if weight is not None and not weight.all():
        kept = weight > 0
        instance, annotator, response = instance[kept], annotator[kept], response[kept]
        weight = weight[kept]
    if (np.diff(instance) < 0).any():
        order = _counting_sort(instance, table.n_instances)
        annotator, response = annotator[order], response[order]
        weight = None if weight is None else weight[order]
    counts = np.bincount(instance, minlength=table.n_instances)
    start = np.concatenate([[0], np.cumsum(counts)])
    if len(instance) < np.iinfo(np.int32).max:
        start = start.astype(np.int32)
    return Votes(
        annotator,
        response,
        start,
        table.n_annotators,
        table.n_classes,
        n_responses,
        weight,
        gold,
    )


def _counting_sort(codes: IntArray, n: int) -> IntArray:
    """Stable order that sorts ``codes``: a CSC matrix of one entry a column, read by rows."""
    m = len(codes)
    index = np.int32 if m < np.iinfo(np.int32).max else np.int64
    entries: Any = (np.ones(m, np.int8), codes, np.arange(m + 1, dtype=index))
    return csc_matrix(entries, shape=(n, m)).tocsr().indices


# -- sums over shards -----------------------------------------------------------------------------


class Summable(Protocol):
    """Counts of a shard: they add up."""

    def __add__(self, other: Self, /) -> Self:
        """Counts of both."""


Counts = TypeVar("Counts", bound=Summable)


def total(
    count: Callable[..., Counts], shards: Iterable[Votes], *parameters: Any, **options: Any
) -> Counts:
    """Map ``count(shard, *parameters)`` over the shards and add up."""
    return reduce(add, (count(shard, *parameters, **options) for shard in shards))


def joined(each: Iterable[FloatArray]) -> FloatArray:
    """Put the rows of every shard together."""
    return np.concatenate(list(each))


def parts(shards: Iterable[Votes], *arrays: FloatArray | None) -> Iterator[tuple[Any, ...]]:
    """Every shard with its rows of arrays over all instances (None stays None)."""
    first = 0
    for shard in shards:
        rows = slice(first, first + shard.n_instances)
        yield shard, *(None if array is None else array[rows] for array in arrays)
        first = rows.stop


def fill(out: FloatArray, shards: Iterable[Votes], rows: Callable[[Votes], FloatArray]) -> None:
    """Write ``rows(shard)`` for one shard after the other into ``out``, shape (n, ...)."""
    for shard, own in parts(shards, out):
        own[...] = rows(shard)


@dataclass(frozen=True)
class EMCounts:
    """What EM over confusion matrices needs to know of a shard.

    Attributes
    ----------
    prior : array of shape (C,)
        Expected instances of every class, among those something is known of.
    confusion : array of shape (R, C, K)
        Expected responses, [annotator, true, response].
    log_likelihood : float
    """

    prior: FloatArray
    confusion: FloatArray
    log_likelihood: float = 0.0

    def __add__(self, other: EMCounts) -> EMCounts:
        """Counts of both."""
        return EMCounts(
            self.prior + other.prior,
            self.confusion + other.confusion,
            self.log_likelihood + other.log_likelihood,
        )


def count(votes: Votes, posterior: FloatArray, log_likelihood: float = 0.0) -> EMCounts:
    """Counts of a shard under a posterior (Dawid & Skene 1979, Eq. 2.3 and 2.4)."""
    if votes.voted.all():  # A product is faster than a sum along the long axis, or a mask.
        prior = np.ones(len(posterior)) @ posterior
    else:
        prior = posterior[votes.voted].sum(axis=0)
    return EMCounts(prior, confusion_counts(votes, posterior), log_likelihood)


def expect_and_count(
    votes: Votes, log_prior: FloatArray, log_confusion: FloatArray, *, hard: bool = False
) -> EMCounts:
    """Count under the parameters' own posterior: one EM iteration's share of a shard.

    With ``hard`` every instance counts in its most probable class alone, and the log likelihood is
    that of annotations and classes.
    """
    posterior, evidence = e_step(votes, log_prior, log_confusion)
    if hard:
        chosen = pick(posterior, "first", np.random.RandomState(0))[:, None]
        evidence = evidence + np.log(np.take_along_axis(posterior, chosen, axis=1)[:, 0])
        posterior[:] = 0.0
        np.put_along_axis(posterior, chosen, 1.0, axis=1)
    return count(votes, posterior, float(evidence[votes.voted].sum()))


def count_rows(
    shards: Iterable[Votes],
    posterior: FloatArray,
    states: Callable[[Votes, FloatArray], FloatArray] = lambda _, rows: rows,
) -> EMCounts:
    """Counts under a given posterior of all instances (of whose rows ``states`` makes others)."""
    return reduce(
        add, (count(shard, states(shard, rows)) for shard, rows in parts(shards, posterior))
    )


# -- confusion matrices ---------------------------------------------------------------------------


def e_step(
    votes: Votes, log_prior: FloatArray, log_confusion: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Posterior over classes (n, C) and the log likelihood of every instance (n,).

    Dawid & Skene (1979), Eq. 2.5, in log space: a product of 200 annotations underflows.

    Parameters
    ----------
    votes : Votes
    log_prior : array of shape (C,) or, one row an instance, (n, C)
    log_confusion : array of shape (R, C, K), [annotator, true, response]
    """
    return settle(votes, log_likelihoods(votes, log_confusion) + log_prior)


def log_likelihoods(votes: Votes, log_confusion: FloatArray) -> FloatArray:
    """Sum of log p(response | c) over an instance's annotations, shape (n, C)."""
    n_annotators, n_classes, n_responses = log_confusion.shape
    by_response = log_confusion.transpose(0, 2, 1).reshape(n_annotators * n_responses, n_classes)
    joint: FloatArray = votes.matrix @ np.ascontiguousarray(by_response)
    return joint


def settle(votes: Votes, joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Normalise log p(state, annotations), overwriting it; gold leaves the states of one class.

    Returns
    -------
    posterior : array of shape (n, C)
    evidence : array of shape (n,)
        Log p(annotations), or log p(gold, annotations) where gold is known.
    """
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        per_class = joint.shape[1] // votes.n_classes  # A class may have several states.
        other = np.arange(joint.shape[1]) // per_class != votes.gold[known][:, None]
        joint[known] = np.where(other, -np.inf, joint[known])
    top = _row_max(joint)
    joint -= top[:, None]
    np.exp(joint, out=joint)
    mass = joint @ np.ones(joint.shape[1])
    joint /= mass[:, None]
    return joint, top + np.log(mass)


def _row_max(values: FloatArray) -> FloatArray:
    """Largest value of every row, shape (n,)."""
    if values.shape[1] > 16:
        return values.max(axis=1)
    top = values[:, 0].copy()
    for c in range(1, values.shape[1]):  # Reducing along a short last axis is slow in numpy.
        np.maximum(top, values[:, c], out=top)
    return top


def confusion_counts(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Expected counts, shape (R, C, K), [annotator, true, response] (Dawid & Skene, Eq. 2.3)."""
    counts = np.asarray(votes.matrix.T @ posterior)
    shape = (votes.n_annotators, votes.n_responses, posterior.shape[1])
    return counts.reshape(shape).transpose(0, 2, 1)


def counted_confusions(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Share of each response against a posterior, (R, C, K); a row without evidence is pooled."""
    counts = count_rows(votes.shards(), posterior).confusion
    counts[counts.sum(axis=2) < 1e-9] = 0.0  # What rounding leaves is no evidence.
    pooled = normalise_rows(counts.sum(axis=0))
    empty = counts.sum(axis=2, keepdims=True) == 0
    return normalise_rows(np.where(empty, pooled, counts))


# -- votes with weights: models in which all wrong classes are alike ------------------------------


def weighted_votes(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value`` (and the weights) of the annotations for every class, shape (n, C).

    Parameters
    ----------
    votes : Votes
        Without abstentions.
    value : array of shape (n_annotations,), optional
        Default: 1.
    """
    flat = votes.instance * np.int64(votes.n_classes) + votes.response
    size = votes.n_instances * votes.n_classes
    sums = np.bincount(flat, weights=_times(votes.weight, value), minlength=size)
    return sums.reshape(votes.n_instances, votes.n_classes).astype(np.float64, copy=False)


def by_annotator(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value`` (and the weights) over every annotator's annotations, shape (R,)."""
    weights = _times(votes.weight, value)
    sums = np.bincount(votes.annotator, weights=weights, minlength=votes.n_annotators)
    return sums.astype(np.float64, copy=False)


def by_instance(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value`` (and the weights) over every instance's annotations, shape (n,)."""
    values = _times(votes.weight, value)
    given = np.diff(votes.start)
    if values is None:
        return given.astype(np.float64)
    sums = np.zeros(votes.n_instances)
    some = given > 0
    if some.any():  # Annotations are sorted by instance, so every sum is over a run.
        sums[some] = np.add.reduceat(values, votes.start[:-1][some])
    return sums


def weight_of_pairs(votes: Votes, *, same_class: bool = False) -> FloatArray:
    """Weight that the instance and annotator of every annotation have together, (n_annotations,).

    An annotator's annotations of one instance, be they repeated or weighted, are one voice. With
    ``same_class`` only those count that give the same class.
    """
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    pairs = votes.instance * np.int64(votes.n_annotators) + votes.annotator
    if same_class:
        pairs = pairs * votes.n_responses + votes.response
    distinct, pair = np.unique(pairs, return_inverse=True)
    if len(distinct) == len(pairs):
        return weight
    return np.bincount(pair, weight)[pair].astype(np.float64, copy=False)


def _times(weight: FloatArray | None, value: FloatArray | None) -> FloatArray | None:
    if weight is None or value is None:
        return weight if value is None else value
    return weight * value


def right(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Probability that every annotation is right, shape (n_annotations,)."""
    flat = votes.instance * np.int64(votes.n_classes) + votes.response
    return posterior.ravel()[flat]


def vote_shares(votes: Votes, *, empty: FloatArray | None = None) -> FloatArray:
    """Share of the votes each class received, shape (n, C); gold counts as certain.

    An instance without votes gets ``empty``, by default the mean of all shares.
    """
    shares = np.empty((votes.n_instances, votes.n_classes))
    fill(shares, votes.runs(SHARD), _shares)
    clamp(votes, shares)
    if not votes.voted.all():
        if empty is None:
            empty = normalise_rows(shares[votes.voted].sum(axis=0))
        shares[~votes.voted] = empty
    return shares


def _shares(shard: Votes) -> FloatArray:
    """Vote shares, all 0 without votes."""
    shares = weighted_votes(shard)
    mass = (shares @ np.ones(shard.n_classes))[:, None]
    return np.divide(shares, mass, out=shares, where=mass > 0)


def clamp(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Put all mass on the gold class where it is known, in place."""
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        posterior[known] = 0.0
        posterior[known, votes.gold[known]] = 1.0
    return posterior


def expected_accuracy(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Expected share of right annotations of every annotator under the posterior, shape (R,).

    A silent annotator gets the share over all annotations.
    """
    hits, weight = np.zeros((2, votes.n_annotators))
    for shard, rows in parts(votes.runs(SHARD), posterior):
        hits += by_annotator(shard, right(shard, rows))
        weight += by_annotator(shard)
    overall = float(hits.sum() / max(weight.sum(), np.finfo(float).tiny))
    return np.divide(hits, weight, out=np.full(votes.n_annotators, overall), where=weight > 0)


# -- small arithmetic -----------------------------------------------------------------------------


def normalise_rows(counts: FloatArray) -> FloatArray:
    """Divide by the sum over the last axis; an empty row becomes uniform."""
    mass = counts.sum(axis=-1, keepdims=True)
    uniform = np.full_like(counts, 1.0 / counts.shape[-1])
    return np.divide(counts, mass, out=uniform, where=mass > 0)


def floored_log(p: FloatArray) -> FloatArray:
    """Log p, with `LOG_FLOOR` in place of log 0."""
    return np.log(p, out=np.full_like(p, LOG_FLOOR), where=p > 0)


def log_dirichlet(pseudo_counts: FloatArray, p: FloatArray) -> float:
    """Log density of a Dirichlet prior up to a constant: sum of pseudo_counts * log p."""
    return float(xlogy(pseudo_counts, np.maximum(p, np.exp(LOG_FLOOR))).sum())


def has_settled(history: Sequence[float], enough: float) -> bool:
    """Whether the last iteration raised the objective by less than ``enough``."""
    return len(history) > 1 and history[-1] - history[-2] < enough


def expected_log(alpha: FloatArray) -> FloatArray:
    """E log p of p ~ Dirichlet(alpha) over the last axis, of the shape of ``alpha``."""
    expected: FloatArray = psi(alpha)
    expected -= psi(alpha.sum(axis=-1, keepdims=True))
    return expected


def dirichlet_divergence(alpha: FloatArray, prior: FloatArray, log_p: FloatArray) -> float:
    """Sum of KL(Dirichlet(alpha) || Dirichlet(prior)) over all rows.

    Parameters
    ----------
    alpha : array of shape (..., K)
    prior : array that broadcasts to it
    log_p : array of the shape of ``alpha``
        Its `expected_log`.
    """
    normalisers = _log_normaliser(prior) - _log_normaliser(alpha)
    return float(normalisers.sum() + np.vdot(alpha - prior, log_p))


def _log_normaliser(alpha: FloatArray) -> FloatArray:
    """Log of the integral of prod p_k^(alpha_k - 1), for every row."""
    log_normaliser: FloatArray = gammaln(alpha).sum(axis=-1) - gammaln(alpha.sum(axis=-1))
    return log_normaliser
