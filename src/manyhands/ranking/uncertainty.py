"""Uncertainty of a ranking: evidence, covariances, overdispersion, clusters, and ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import coo_array, csr_array

from manyhands.comparisons import ComparisonTable
from manyhands.ranking.davidson import (
    A,
    B,
    ComparisonRows,
    OutcomeProbabilities,
    State,
    T,
    Wanted,
    answers,
    information_of,
)
from manyhands.typing import AnyArray, FloatArray, IntArray

MOST_ITEMS = 3_000
"""Number of items up to which there are intervals: they need a dense matrix of covariances."""

DRAWS = 2_000
"""Number of draws of the strengths from which intervals of ranks are computed."""

FEWEST_QUESTIONS = 30
"""Fewest questions for covariances clustered by question."""

QUESTIONS_PER_ITEM = 10
"""Fewest questions of the typical item for covariances clustered by question."""

REPEATED_QUESTIONS = 1.1
"""Mean number of comparisons per question below which there is no clustering by question: where
each question has one answer, as in logs of arenas, dependence cannot be estimated."""

DENSE_COLUMNS = 3_000
"""Number of columns of a sparse matrix that are made dense at a time, which bounds memory."""


class Curvature(NamedTuple):
    """Negative second derivatives (information) of the log posterior, by blocks.

    Attributes
    ----------
    outer : array of shape (n_items + 2, n_items + 2), or (n_items + 2,)
        Information of strengths, common position bias and common tendency to ties after the
        annotators' parameters are eliminated (Schur complement). Above `MOST_ITEMS`, its diagonal.
    annotators : array of shape (n_annotators, 3, 3)
        Information of each annotator's parameters.
    crossed : sparse array of shape (n_items + 2, 3 * n_annotators)
        Cross terms between the parameters of ``outer`` and those of the annotators.
    free : array of shape (n_items + 2,)
        Whether each parameter of ``outer`` is estimated.
    """

    outer: FloatArray
    annotators: FloatArray
    crossed: csr_array
    free: AnyArray


def curvature(rows: ComparisonRows, state: State, wanted: Wanted) -> Curvature:
    """Return the information of the posterior at its mode.

    This is the observed information, which Laplace's approximation needs, or the expected
    information if the observed one is not positive definite (the fit is at no proper mode).
    """
    at = answers(rows, state, wanted)
    n = rows.n_items
    free = np.r_[np.full(n, True), wanted.position, wanted.ties]
    outer = _outer(rows, at, state, free)
    blocks = information_of(rows, at, state, wanted)
    root = _block_diagonal(np.linalg.cholesky(np.linalg.inv(blocks)))
    found = Curvature(outer, blocks, csr_array((n + 2, 3 * rows.n_annotators)), free)
    for is_observed in (True, False):
        crossed = _crossed(rows, at, wanted, observed=is_observed)
        crossed = (crossed * free[:, None].astype(float)).tocsr()
        found = Curvature(_less(outer, csr_array(crossed @ root)), blocks, crossed, free)
        if not wanted.own[A] or _is_positive(found.outer):
            break
    return found


def _is_positive(matrix: FloatArray) -> bool:
    if matrix.ndim == 1:
        return bool((matrix > 0).all())
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _outer(
    rows: ComparisonRows, at: OutcomeProbabilities, state: State, free: AnyArray
) -> FloatArray:
    """Return the information of strengths and common parameters; for many items its diagonal."""
    n = rows.n_items
    a = at.reliability
    weight = rows.by_pair(a**2 * at.info)
    degree = np.bincount(rows.first, weight, n) + np.bincount(rows.second, weight, n)
    ends = np.array([at.info.sum(), at.info_t.sum()])
    diagonal = np.r_[degree + 1 / state.s2, np.where(free[n:], ends, 1.0)]
    if n > MOST_ITEMS:
        return diagonal
    matrix = np.diag(diagonal)
    matrix[rows.first, rows.second] = matrix[rows.second, rows.first] = -weight
    for place, values in ((n, a * at.info), (n + 1, a * at.cross)):
        if free[place]:
            matrix[:n, place] = matrix[place, :n] = rows.by_item(values)
    if free[n:].all():
        matrix[n, n + 1] = matrix[n + 1, n] = at.cross.sum()
    return matrix


def _crossed(
    rows: ComparisonRows, at: OutcomeProbabilities, wanted: Wanted, *, observed: bool
) -> csr_array:
    """Return the cross terms between the outer parameters and those of the annotators.

    The observed information has one more term, because eta is a product of reliability and
    strengths. The annotators' parameters are here their deviations from the common ones.
    """
    n, r = rows.n_items, rows.n_annotators
    a, one = at.reliability, np.ones_like(at.gap)
    parts: list[tuple[FloatArray, IntArray, IntArray]] = []
    who = rows.who.astype(np.int64) * 3
    by_eta = {A: at.gap, B: one}  # Derivatives of eta.
    for k in range(3):
        if not wanted.own[k]:
            continue
        to_eta = at.cross if k == T else at.info * by_eta[k]
        to_t = at.info_t if k == T else at.cross * by_eta[k]
        for item, sign in ((rows.left, 1.0), (rows.right, -1.0)):
            product = at.score if observed and k == A else 0.0
            parts.append((sign * (a * to_eta - product), item.astype(np.int64), who + k))
        for place, values in ((n, to_eta), (n + 1, to_t)):
            summed = rows.by_annotator(values)
            parts.append((summed, np.full(r, place), np.arange(r) * 3 + k))
    if not parts:
        return csr_array((n + 2, 3 * r))
    values, i, j = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = coo_array((values, (i, j)), shape=(n + 2, 3 * r)).tocsr()
    found.sum_duplicates()
    return found


def _block_diagonal(blocks: AnyArray) -> csr_array:
    """Return a sparse matrix with the given blocks on its diagonal."""
    r = len(blocks)
    j = (np.arange(r) * 3)[:, None, None] + np.arange(3)[None, None, :]
    columns = np.broadcast_to(j, blocks.shape)
    return csr_array((blocks.ravel(), columns.ravel(), np.arange(0, 9 * r + 1, 3)), (3 * r, 3 * r))


def _less(outer: FloatArray, spread: csr_array) -> FloatArray:
    """Subtract ``spread @ spread.T`` from ``outer``, or only the diagonal if ``outer`` is one."""
    if outer.ndim == 1:
        return outer - np.asarray(spread.multiply(spread).sum(axis=1)).ravel()
    return outer - _squared(spread)


def _squared(spread: csr_array) -> FloatArray:
    """Return ``spread @ spread.T`` as a dense array, computed in parts to save memory."""
    columns = spread.tocsc()
    filled = np.diff(columns.indptr).astype(np.float64)
    n = spread.shape[0]
    if (filled**2).sum() * 50 < float(n) ** 2 * len(filled):
        return np.asarray((spread @ spread.T).toarray(), dtype=np.float64)
    found = np.zeros((n, n))
    for start in range(0, columns.shape[1], DENSE_COLUMNS):
        part: AnyArray = columns[:, start : start + DENSE_COLUMNS].toarray()
        found += part @ part.T
    return found


def log_evidence(rows: ComparisonRows, state: State, wanted: Wanted) -> float:
    """Return the approximate the log marginal likelihood of all answers by Laplace's method.

    With more than `MOST_ITEMS` items the determinant is that of the diagonal of the strengths'
    information.
    """
    found = curvature(rows, state, wanted)
    log_prior = -0.5 * float(state.theta @ state.theta) / state.s2
    log_prior -= 0.5 * rows.n_items * np.log(state.s2)
    for k in range(3):
        if wanted.own[k]:
            away = state.profile[rows.active, k] - state.common[k]
            log_prior -= 0.5 * float(away @ away) / state.variance[k]
            log_prior -= 0.5 * int(rows.active.sum()) * np.log(state.variance[k])
    log_det = float(np.linalg.slogdet(found.annotators[rows.active])[1].sum())
    log_det += (
        float(np.linalg.slogdet(found.outer)[1])
        if found.outer.ndim == 2
        else float(np.log(np.maximum(found.outer, 1e-12)).sum())
    )
    return state.log_likelihood + log_prior - 0.5 * log_det


def covariance(found: Curvature) -> FloatArray:
    """Invert the information of strengths and common parameters, (n_items + 2, n_items + 2)."""
    matrix = found.outer
    try:
        factor = cho_factor(matrix, lower=True, check_finite=False)
        inverse: AnyArray = cho_solve(factor, np.eye(len(matrix)), check_finite=False)
    except LinAlgError:  # Without a prior, strengths are identified up to a constant only.
        inverse = np.linalg.pinv(matrix, hermitian=True)
    inverse[~found.free, :] = inverse[:, ~found.free] = 0
    return (inverse + inverse.T) / 2


def dispersion(rows: ComparisonRows, state: State, wanted: Wanted, n_groups: int) -> float:
    """Return the overdispersion of answers to a pair: observed over expected variance."""
    score, info = _toward_the_first(rows, state, wanted)
    return _scatter(rows.by_pair(score), float(info.sum()), rows.n_items - n_groups)


def dispersion_within(table: ComparisonTable, state: State, wanted: Wanted, n_groups: int) -> float:
    """Return the overdispersion of answers to a pair on one question."""
    assert table.question is not None
    each = _each_row(table, wanted)
    score, info = _toward_the_first(each, state, wanted)
    n = table.n_items
    pair = np.minimum(each.left, each.right).astype(np.int64) * n + np.maximum(
        each.left, each.right
    )
    pair = np.unique(pair, return_inverse=True)[1]
    places = table.question.astype(np.int64) * (int(pair.max()) + 1) + pair
    place = np.unique(places, return_inverse=True)[1]
    return _scatter(np.bincount(place, score).astype(np.float64), float(info.sum()), n - n_groups)


def _toward_the_first(
    rows: ComparisonRows, state: State, wanted: Wanted
) -> tuple[FloatArray, FloatArray]:
    """Return each row's score and information in the direction of the first item of its pair."""
    at = answers(rows, state, wanted)
    toward = np.where(rows.left < rows.right, at.reliability, -at.reliability)
    return toward * at.score, at.reliability**2 * at.info


def _scatter(scores: FloatArray, information: float, n_strengths: int) -> float:
    """Return the observed over the expected variance of summed scores, less free parameters."""
    spare = 1 - n_strengths / len(scores)
    if spare <= 0 or information <= 0:
        return 1.0
    return float((scores**2).sum() / (information * spare))


def clustered(
    table: ComparisonTable, state: State, wanted: Wanted, found: Curvature, inverse: FloatArray
) -> FloatArray:
    """Return the covariance of strengths and common parameters, clustered by question (sandwich).

    Parameters
    ----------
    table : ComparisonTable with questions
    state, wanted, found, inverse
        The fitted values, the options of the fit, its `curvature`, and the inverse of
        ``found.outer``.

    Returns
    -------
    array of shape (n_items + 2, n_items + 2)
    """
    question, questions = table.question, table.questions
    assert question is not None
    assert questions is not None
    n, n_questions = table.n_items, len(questions)
    each = _each_row(table, wanted)
    at = answers(each, state, wanted)
    own = at.reliability * at.score
    m = len(question)
    values = np.concatenate([own, -own, at.score, at.score_t])
    place = np.concatenate([table.left, table.right, np.full(m, n), np.full(m, n + 1)])
    values = values * found.free[place]
    shape = n_questions, n + 2
    scores = csr_array(coo_array((values, (np.tile(question, 4), place)), shape=shape))
    r = each.n_annotators
    inner, taken = csr_array((n_questions, 3 * r)), csr_array((3 * r, n + 2))
    if wanted.own.any():  # Project out the part that the annotators' own parameters absorb.
        who = each.who.astype(np.int64) * 3
        parts = [
            (values, who + k)
            for k, values in ((A, at.score * at.gap), (B, at.score), (T, at.score_t))
            if wanted.own[k]
        ]
        values, place = (np.concatenate(column) for column in zip(*parts, strict=True))
        asked = np.tile(question, len(parts))
        inner = csr_array(coo_array((values, (asked, place)), shape=(n_questions, 3 * r)))
        taken = csr_array(_block_diagonal(np.linalg.inv(found.annotators)) @ found.crossed.T)
    summed, counted = np.zeros((n + 2, n + 2)), 0
    for start in range(0, n_questions, DENSE_COLUMNS):
        some = slice(start, start + DENSE_COLUMNS)
        part: AnyArray = scores[some].toarray() - (inner[some] @ taken).toarray()
        summed += part.T @ part
        counted += int((part != 0).any(axis=1).sum())
    spread = summed * (counted / max(counted - 1, 1)) + _of_priors(state, wanted, found)
    return np.asarray(inverse @ spread @ inverse, dtype=np.float64)


def _of_priors(state: State, wanted: Wanted, found: Curvature) -> FloatArray:
    """Return the covariance of the priors' scores, because items and annotators are random, too.

    With this term the sandwich estimate equals Laplace's covariance if answers are independent.
    """
    n = len(found.free) - 2
    own = np.where(wanted.own, 1 / np.sqrt(np.where(wanted.own, state.variance, 1.0)), 0.0)
    roots = np.linalg.inv(found.annotators) * own  # own² is the precision of the annotators' prior.
    of_items = np.r_[np.full(n, 1 / state.s2), 0.0, 0.0]
    return np.diag(of_items) + _squared(csr_array(found.crossed @ _block_diagonal(roots)))


def _each_row(table: ComparisonTable, wanted: Wanted) -> ComparisonRows:
    """Return one row per comparison, in the order of the table."""
    own = bool(wanted.own.any())
    who = table.annotator if own else np.zeros(len(table), dtype=np.int32)
    nothing = np.zeros(0, dtype=np.int32)
    return ComparisonRows(
        table.left, table.right, who, table.outcome, np.asarray(table.weight, dtype=np.float64),
        nothing, nothing, nothing, table.n_items, table.n_annotators if own else 1,
        np.full(1, True), True,
    )  # fmt: skip


def questions_per_item(table: ComparisonTable) -> float:
    """Return the number of questions on which the median item was compared."""
    assert table.question is not None
    places = np.r_[table.question, table.question].astype(np.int64) * table.n_items
    pairs = np.unique(places + np.r_[table.left, table.right])
    return float(np.median(np.bincount(pairs % table.n_items, minlength=table.n_items)))


def centred(cov: FloatArray, component: IntArray) -> FloatArray:
    """Return the covariance of strengths after the mean of each group is subtracted."""
    groups = np.zeros((component.max() + 1, len(component)))
    groups[component, np.arange(len(component))] = 1
    means = groups / groups.sum(axis=1, keepdims=True)
    less = cov - (means @ cov)[component]
    return less - (less @ means.T)[:, component]


def annotator_errors(found: Curvature, inverse: FloatArray | None, wanted: Wanted) -> FloatArray:
    """Return the standard errors of each annotator's parameters, of shape (n_annotators, 3).

    The parameters include the common ones. Without ``inverse``, as with many items, the errors are
    conditional on the strengths.
    """
    blocks = np.linalg.inv(found.annotators)
    r = len(blocks)
    variance = np.diagonal(blocks, axis1=1, axis2=2).copy()
    if inverse is not None:
        n = len(inverse) - 2
        # Derivatives of the annotators' parameters in the outer ones.
        influence = csr_array(-_block_diagonal(blocks) @ found.crossed.T)
        for start in range(0, 3 * r, DENSE_COLUMNS):
            part = influence[start : start + DENSE_COLUMNS]
            spread = part @ inverse
            shared = np.asarray(part.multiply(spread).sum(axis=1)).ravel()
            at = np.arange(start, start + len(shared))
            k = at % 3
            outer = np.where(k == B, n, n + 1)
            with_common = inverse[outer, outer] + 2 * spread[np.arange(len(shared)), outer]
            variance.ravel()[at] += shared + np.where(k == A, 0.0, with_common)
    variance[:, ~wanted.own] = 0.0
    return np.sqrt(np.maximum(variance, 0.0))


def rank_limits(
    strengths: FloatArray, cov: FloatArray, component: IntArray, level: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the intervals of the ranks within each group, from draws of the strengths.

    Returns
    -------
    low, high : arrays of shape (n_items,)
        Best and worst rank; 1 is the strongest item.
    """
    rng = np.random.default_rng(seed)
    low, high = np.empty(len(strengths)), np.empty(len(strengths))
    for group in range(component.max() + 1):
        at = np.flatnonzero(component == group)
        values, vectors = np.linalg.eigh(cov[np.ix_(at, at)])
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = rng.standard_normal((DRAWS, len(at))) @ root.T + strengths[at]
        ranks = np.empty(draws.shape, dtype=np.int32)
        order = np.argsort(-draws, axis=1)
        np.put_along_axis(ranks, order, np.arange(1, len(at) + 1, dtype=np.int32)[None, :], 1)
        share = (1 - level) / 2
        low[at] = np.quantile(ranks, share, axis=0, method="lower")
        high[at] = np.quantile(ranks, 1 - share, axis=0, method="higher")
    return low, high
