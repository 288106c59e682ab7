"""How sure a fit is: evidence, covariances, overdispersion, clusters of questions, and ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import coo_array, csr_array

from manyhands.comparisons import ComparisonTable
from manyhands.ranking.davidson import (
    A,
    Answers,
    B,
    Rows,
    State,
    T,
    Wanted,
    answers,
    information_of,
)
from manyhands.typing import AnyArray, FloatArray, IntArray

MOST_ITEMS = 3_000
"""Most items that have intervals: their covariances are a dense matrix."""

DRAWS = 2_000
"""Draws of strengths, of which ranks are taken."""

FEWEST_QUESTIONS = 30
"""Fewest questions of which clusters are made."""

QUESTIONS_PER_ITEM = 10
"""Fewest questions of the typical item, where clusters of questions are used."""

CHUNK = 3_000
"""Columns of a sparse matrix that are made dense at a time."""


class Curvature(NamedTuple):
    """Information of the posterior, by blocks.

    Attributes
    ----------
    outer : array of shape (n_items + 2, n_items + 2), or (n_items + 2,)
        Schur complement of the annotators: information of strengths, common bias and common
        tendency to ties. With many items its diagonal alone.
    annotators : array of shape (n_annotators, 3, 3)
    crossed : sparse array of shape (n_items + 2, 3 * n_annotators)
        Information between the former and the latter.
    free : array of shape (n_items + 2,)
        Which of the outer parameters are estimated.
    """

    outer: FloatArray
    annotators: FloatArray
    crossed: csr_array
    free: AnyArray


def curvature(rows: Rows, state: State, wanted: Wanted) -> Curvature:
    """Return the information of the posterior at its mode.

    It is the observed information, as Laplace's approximation has it, or the expected one where
    the former is not positive definite, so that the fit is at no proper mode.
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


def _outer(rows: Rows, at: Answers, state: State, free: AnyArray) -> FloatArray:
    """Information of strengths and common parameters; its diagonal with many items."""
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


def _crossed(rows: Rows, at: Answers, wanted: Wanted, *, observed: bool) -> csr_array:
    """Information between strengths or common parameters and those of annotators.

    Observed, it also holds that eta is a product of reliability and strengths. A profile includes
    the common parameters; here an annotator's own deviations are the parameters.
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
    """Sparse matrix with these blocks on its diagonal."""
    r = len(blocks)
    j = (np.arange(r) * 3)[:, None, None] + np.arange(3)[None, None, :]
    columns = np.broadcast_to(j, blocks.shape)
    return csr_array((blocks.ravel(), columns.ravel(), np.arange(0, 9 * r + 1, 3)), (3 * r, 3 * r))


def _less(outer: FloatArray, spread: csr_array) -> FloatArray:
    """Subtract ``spread @ spread.T``, or its diagonal."""
    if outer.ndim == 1:
        return outer - np.asarray(spread.multiply(spread).sum(axis=1)).ravel()
    columns = spread.tocsc()
    filled = np.diff(columns.indptr).astype(np.float64)
    n = len(outer)
    if (filled**2).sum() * 50 < float(n) ** 2 * len(filled):
        return outer - (spread @ spread.T).toarray()
    for start in range(0, columns.shape[1], CHUNK):
        part: AnyArray = columns[:, start : start + CHUNK].toarray()
        outer = np.asarray(outer - part @ part.T, dtype=np.float64)
    return outer


def log_evidence(rows: Rows, state: State, wanted: Wanted) -> float:
    """Laplace's approximation of the log probability of all answers.

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
    except LinAlgError:  # No prior: strengths are known but for a constant.
        inverse = np.linalg.pinv(matrix, hermitian=True)
    inverse[~found.free, :] = inverse[:, ~found.free] = 0
    return (inverse + inverse.T) / 2


def dispersion(rows: Rows, state: State, wanted: Wanted, n_groups: int) -> float:
    """How many times more the answers to pairs of items scatter than the model has it."""
    at = answers(rows, state, wanted)
    toward = np.where(rows.left < rows.right, at.reliability, -at.reliability)
    score, info = rows.by_pair(toward * at.score), rows.by_pair(at.reliability**2 * at.info)
    n_pairs = len(rows.first)
    spare = 1 - (rows.n_items - n_groups) / n_pairs
    if spare <= 0 or info.sum() <= 0:
        return 1.0
    return float((score**2).sum() / (info.sum() * spare))


def clustered(
    table: ComparisonTable, state: State, wanted: Wanted, found: Curvature, inverse: FloatArray
) -> FloatArray:
    """Covariance of strengths and common parameters if answers to one question depend.

    Parameters
    ----------
    table : ComparisonTable with questions
    state, wanted, found, inverse
        The fit, its curvature, and the inverse of that.

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
    scores = np.zeros((n_questions, n + 2))
    own = at.reliability * at.score
    np.add.at(scores, (question, table.left), own)
    np.add.at(scores, (question, table.right), -own)
    scores[:, n] = np.bincount(question, at.score, n_questions)
    scores[:, n + 1] = np.bincount(question, at.score_t, n_questions)
    scores *= found.free
    r = each.n_annotators
    if wanted.own.any():  # What the annotators' own parameters take up of each answer.
        parts = []
        place = question.astype(np.int64) * 3 * r + each.who.astype(np.int64) * 3
        for k, values in ((A, at.score * at.gap), (B, at.score), (T, at.score_t)):
            if wanted.own[k]:
                parts.append((values, place + k))
        values, at_ = (np.concatenate(column) for column in zip(*parts, strict=True))
        inner = coo_array((values, (at_ // (3 * r), at_ % (3 * r))), (n_questions, 3 * r)).tocsr()
        taken = inner @ _block_diagonal(np.linalg.inv(found.annotators)) @ found.crossed.T
        scores -= taken.toarray()
    counted = (scores != 0).any(axis=1).sum()
    spread = scores @ inverse
    prior = inverse @ _of_priors(state, wanted, found) @ inverse
    return spread.T @ spread * counted / max(counted - 1, 1) + prior


def _of_priors(state: State, wanted: Wanted, found: Curvature) -> FloatArray:
    """Covariance of the priors' scores: items and annotators are drawn, too, whatever is asked.

    With it, the sandwich is Laplace's covariance where answers do not depend.
    """
    n = len(found.free) - 2
    own = np.where(wanted.own, 1 / np.sqrt(np.where(wanted.own, state.variance, 1.0)), 0.0)
    roots = np.linalg.inv(found.annotators) * own  # Their prior's precision is own².
    spread = (found.crossed @ _block_diagonal(roots)).toarray()
    of_items = np.r_[np.full(n, 1 / state.s2), 0.0, 0.0]
    return np.diag(of_items) + spread @ spread.T


def _each_row(table: ComparisonTable, wanted: Wanted) -> Rows:
    """Rows in the order of the table, none added up."""
    own = bool(wanted.own.any())
    who = table.annotator if own else np.zeros(table.n_comparisons, dtype=np.int32)
    nothing = np.zeros(0, dtype=np.int32)
    return Rows(
        table.left, table.right, who, table.outcome, np.asarray(table.weight, dtype=np.float64),
        nothing, nothing, nothing, table.n_items, table.n_annotators if own else 1,
        np.full(1, True), True,
    )  # fmt: skip


def questions_per_item(table: ComparisonTable) -> float:
    """Median number of questions on which an item was compared."""
    assert table.question is not None
    places = np.r_[table.question, table.question].astype(np.int64) * table.n_items
    pairs = np.unique(places + np.r_[table.left, table.right])
    return float(np.median(np.bincount(pairs % table.n_items, minlength=table.n_items)))


def centred(cov: FloatArray, component: IntArray) -> FloatArray:
    """Covariance of strengths less the mean of their group."""
    groups = np.zeros((component.max() + 1, len(component)))
    groups[component, np.arange(len(component))] = 1
    means = groups / groups.sum(axis=1, keepdims=True)
    less = cov - (means @ cov)[component]
    return less - (less @ means.T)[:, component]


def annotator_errors(found: Curvature, inverse: FloatArray | None, wanted: Wanted) -> FloatArray:
    """Standard errors of each annotator's parameters, common ones included, (n_annotators, 3).

    Without ``inverse``, as with many items, those given the strengths.
    """
    blocks = np.linalg.inv(found.annotators)
    r = len(blocks)
    variance = np.diagonal(blocks, axis1=1, axis2=2).copy()
    if inverse is not None:
        n = len(inverse) - 2
        influence = csr_array(-_block_diagonal(blocks) @ found.crossed.T)  # Of outer parameters.
        for start in range(0, 3 * r, CHUNK):
            part = influence[start : start + CHUNK]
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
    """Ends of the intervals of ranks within each group, from draws of the strengths.

    Returns
    -------
    low, high : arrays of shape (n_items,)
        1 is the best.
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
