"""Davidson's model of comparisons with ties, with a profile of each annotator, and its fit.

The probabilities of left, tie and right are proportional to exp(eta / 2), exp(t) and exp(-eta / 2),
with eta = a (theta_left - theta_right) + b. Each annotator has a reliability a ~ N(1, va), a
position bias b ~ N(beta, vb) and a tendency to ties t ~ N(tau, vt). Strengths are theta ~ N(0, s2).
The log posterior is concave in the strengths given the annotators and in each annotator given the
strengths, so it is maximised by Newton steps of one block at a time; variances are estimated by EM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import LinearOperator, cg

from manyhands.comparisons import ComparisonTable
from manyhands.typing import BoolArray, FloatArray, IntArray

DENSE = 1_000
"""Number of items up to which Newton steps solve dense equations; above it, conjugate gradients."""

LONGEST_STEP = 3.0
"""Longest Newton step of a strength, in log odds; an annotator's parameters move by 1 at most."""

LARGEST_COMMON = 10.0
"""Bound on the common position bias and tendency to ties, in log odds: without it they would grow
for ever where all answers are ties or on one side."""

A, B, T = 0, 1, 2
"""Columns of an annotator's reliability, position bias and tendency to ties in a profile."""

FIRST_VARIANCES = np.array([np.nan, 0.1, 0.25])
LEAST_VARIANCES = np.array([np.nan, 1e-4, 1e-3])
LARGEST_VARIANCES = np.array([np.nan, 9.0, 9.0])
"""Initial value and bounds of the variances of an annotator's parameters; the variance of the
reliability is given from outside, hence NaN."""

STRENGTH_VARIANCE_RANGE = 0.01, 100.0
"""Bounds of the estimated variance of strengths."""

WARM_UP = 2
"""Number of iterations before variances are estimated."""


class ComparisonRows(NamedTuple):
    """Comparisons sorted by annotator; identical ones are one row with the sum of their weights.

    Attributes
    ----------
    left, right, who, outcome : integer arrays of shape (m,)
    weight : array of shape (m,)
    pair : integer array of shape (m,)
        Number of the unordered pair of items.
    first, second : integer arrays of shape (n_pairs,)
        Items of each pair, the smaller code first.
    n_items, n_annotators : int
    active : bool array of shape (n_annotators,)
        Whether each annotator compared anything.
    has_ties : bool
        Whether any comparison is a tie.
    """

    left: IntArray
    right: IntArray
    who: IntArray
    outcome: IntArray
    weight: FloatArray
    pair: IntArray
    first: IntArray
    second: IntArray
    n_items: int
    n_annotators: int
    active: BoolArray
    has_ties: bool

    @classmethod
    def of(cls, table: ComparisonTable, *, by_annotator: bool) -> ComparisonRows:
        """Group the comparisons of a table; those of weight 0 are left out."""
        n = table.n_items
        weight = np.asarray(table.weight, dtype=np.float64)
        counted = weight > 0
        who = table.annotator if by_annotator else np.zeros(len(weight), dtype=np.int32)
        key = who[counted].astype(np.int64) * n + table.left[counted]
        key = (key * n + table.right[counted]) * 3 + table.outcome[counted]
        keys, inverse = np.unique(key, return_inverse=True)
        weight = np.bincount(inverse, weight[counted], len(keys)).astype(np.float64)
        outcome, keys = keys % 3, keys // 3
        right, keys = keys % n, keys // n
        left, who = keys % n, keys // n
        low, high = np.minimum(left, right), np.maximum(left, right)
        pairs, pair = np.unique(low * n + high, return_inverse=True)
        n_annotators = table.n_annotators if by_annotator else 1
        return cls(
            left.astype(np.int32),
            right.astype(np.int32),
            who.astype(np.int32),
            outcome.astype(np.int8),
            weight,
            pair.astype(np.int64),
            (pairs // n).astype(np.int32),
            (pairs % n).astype(np.int32),
            n,
            n_annotators,
            np.bincount(who, minlength=n_annotators) > 0,
            bool((outcome == 1).any()),
        )

    @property
    def total(self) -> float:
        """Weight of all comparisons."""
        return float(self.weight.sum())

    def by_item(self, values: FloatArray) -> FloatArray:
        """Sum values over the rows of each item: add for the left item, subtract for the right."""
        n = self.n_items
        summed = np.bincount(self.left, values, n) - np.bincount(self.right, values, n)
        return summed.astype(np.float64)

    def by_annotator(self, values: FloatArray) -> FloatArray:
        """Sum values over the rows of each annotator."""
        return np.bincount(self.who, values, self.n_annotators).astype(np.float64)

    def by_pair(self, values: FloatArray) -> FloatArray:
        """Sum values over the rows of each unordered pair."""
        return np.bincount(self.pair, values, len(self.first)).astype(np.float64)


@dataclass(frozen=True)
class Wanted:
    """Parameters to estimate, and when to stop.

    Attributes
    ----------
    position, ties : bool
        Whether to estimate a common preference for a side, and a common tendency to ties.
    own : bool array of shape (3,)
        Whether each annotator has their own reliability, position bias and tendency to ties.
    s2 : float or None
        Variance of strengths; None to estimate it.
    max_iter, tol
        As in `BradleyTerry`.
    """

    position: bool
    ties: bool
    own: BoolArray
    s2: float | None
    max_iter: int
    tol: float


@dataclass(frozen=True)
class State:
    """Values of all parameters at one iteration.

    Attributes
    ----------
    theta : array of shape (n_items,)
    profile : array of shape (n_annotators, 3)
        Reliability, position bias and tendency to ties of each annotator, common ones included.
    common : array of shape (3,)
        Means of the profiles: 1, beta and tau.
    variance : array of shape (3,)
        Variances of the profiles around their means.
    s2 : float
    log_likelihood : float
    n_iter : int
    converged : bool
    """

    theta: FloatArray
    profile: FloatArray
    common: FloatArray
    variance: FloatArray
    s2: float
    log_likelihood: float = -np.inf
    n_iter: int = 0
    converged: bool = False


class OutcomeProbabilities(NamedTuple):
    """Derivatives of the log likelihood of each row in eta and t.

    ``score`` and ``score_t`` are first derivatives; ``info``, ``info_t`` and ``cross`` are the
    expected information. All are multiplied by the weight. ``gap`` is theta_left - theta_right.
    """

    gap: FloatArray
    reliability: FloatArray
    score: FloatArray
    score_t: FloatArray
    info: FloatArray
    info_t: FloatArray
    cross: FloatArray
    log_likelihood: float


def probabilities(eta: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the probabilities of left, tie and right; ``t`` is -inf if there are no ties."""
    half = np.clip(eta, -600.0, 600.0) / 2
    with np.errstate(over="ignore", under="ignore"):
        up, tie = np.exp(half), np.exp(t)
        down = 1 / up
        total = up + tie + down
        return up / total, tie / total, down / total


def answers(
    rows: ComparisonRows, state: State, wanted: Wanted, *, likelihood: bool = False
) -> OutcomeProbabilities:
    """Return the derivatives of the log likelihood at ``state``."""
    gap = state.theta[rows.left] - state.theta[rows.right]
    own = np.take(state.profile, rows.who, axis=0) if wanted.own.any() else state.profile[:1]
    a = own[:, A] if wanted.own[A] else np.ones(1)
    eta = a * gap + own[:, B]
    left, tie, right = probabilities(eta, own[:, T])
    w, sign = rows.weight, 1.0 - rows.outcome  # 1, 0, -1
    d = left - right
    found = 0.0
    if likelihood:
        happened = np.where(sign > 0, left, np.where(sign < 0, right, tie))
        found = float(w @ np.log(np.maximum(happened, 1e-300)))
    return OutcomeProbabilities(
        gap,
        np.broadcast_to(a, gap.shape),
        w * (sign - d) / 2,
        w * ((sign == 0) - tie),
        w * (left + right - d * d) / 4,
        w * tie * (1 - tie),
        -w * d * tie / 2,
        found,
    )


def first_state(rows: ComparisonRows, wanted: Wanted, va: float) -> State:
    """Return the starting values: equal strengths and annotators, ties at their observed rate."""
    tied = float(rows.weight[rows.outcome == 1].sum()) / rows.total
    tau = -np.inf
    if wanted.ties:
        tau = float(
            np.clip(np.log(2 * tied / max(1 - tied, 1e-9)), -LARGEST_COMMON, LARGEST_COMMON)
        )
    common = np.array([1.0, 0.0, tau])
    return State(
        np.zeros(rows.n_items),
        np.tile(common, (rows.n_annotators, 1)),
        common,
        np.where(wanted.own, np.r_[va, FIRST_VARIANCES[1:]], 0.0),
        1.0 if wanted.s2 is None else wanted.s2,
    )


def climb(rows: ComparisonRows, state: State, wanted: Wanted) -> State:
    """Return the maximise the posterior from the given starting values.

    Parameters
    ----------
    rows : ComparisonRows
    state : State
        Starting values. The variance of the reliabilities is not changed.
    wanted : Wanted

    Returns
    -------
    State
        The values at the mode, or after ``max_iter`` iterations.
    """
    solver = Strengths(rows)
    before, strengths = -np.inf, state.theta
    found, step = -np.inf, 0
    for step in range(1, wanted.max_iter + 1):
        state = _step_of_strengths(rows, state, wanted, solver, estimates=step > WARM_UP)
        state = _step_of_common(rows, state, wanted)
        if wanted.own.any():
            state = _step_of_annotators(rows, state, wanted, estimates=step > WARM_UP)
        found = answers(rows, state, wanted, likelihood=True).log_likelihood
        moved = float(np.abs(state.theta - strengths).max())
        # EM approaches a variance of 0 very slowly, long after the strengths have stopped moving,
        # so either criterion is enough.
        is_still = abs(found - before) <= wanted.tol * rows.total or moved <= 10 * wanted.tol
        if step > WARM_UP + 1 and is_still:
            return replace(state, log_likelihood=found, n_iter=step, converged=True)
        before, strengths = found, state.theta
    return replace(state, log_likelihood=found, n_iter=step, converged=False)


class Strengths:
    """Solver of the Newton steps of strengths; the sparsity pattern is prepared once."""

    def __init__(self, rows: ComparisonRows) -> None:
        self.rows = rows
        n, k = rows.n_items, len(rows.first)
        self.is_dense = n <= DENSE
        if not self.is_dense:
            # Positions of the pairs in the sparse matrix, so that later fills need no sorting.
            i = np.concatenate([rows.first, rows.second])
            j = np.concatenate([rows.second, rows.first])
            numbered = coo_array((np.arange(1, 2 * k + 1), (i, j)), shape=(n, n)).tocsr()
            self.order = (numbered.data - 1) % k
            self.pattern = numbered

    def solve(
        self, weight: FloatArray, prior: float, gradient: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Solve (L + prior I) step = gradient, L the Laplacian of the pairs' weights.

        Returns
        -------
        step, variance : arrays of shape (n_items,)
            The variances are the diagonal of the inverse; with more than `DENSE` items they are an
            approximation.
        """
        rows, n = self.rows, self.rows.n_items
        degree = np.bincount(rows.first, weight, n) + np.bincount(rows.second, weight, n) + prior
        if self.is_dense:
            matrix = np.diag(degree)
            matrix[rows.first, rows.second] = -weight
            matrix[rows.second, rows.first] = -weight
            if prior == 0:
                matrix[np.diag_indices(n)] += 1e-12 * degree.max() + 1e-300
            try:
                factor = cho_factor(matrix, lower=True, check_finite=False)
            except LinAlgError:
                matrix[np.diag_indices(n)] += 1e-8 * degree.max() + 1e-12
                factor = cho_factor(matrix, lower=True, check_finite=False)
            step = cho_solve(factor, gradient, check_finite=False)
            variance = np.zeros(n)
            if prior > 0:
                variance = np.diag(cho_solve(factor, np.eye(n), check_finite=False))
            return step, variance
        off = csr_array((-weight[self.order], self.pattern.indices, self.pattern.indptr))
        safe = np.maximum(degree, 1e-12)
        system = LinearOperator((n, n), matvec=lambda v: degree * v.ravel() + off @ v.ravel())
        jacobi = LinearOperator((n, n), matvec=lambda v: v.ravel() / safe)
        step, _ = cg(system, gradient, rtol=1e-3, maxiter=200, M=jacobi)
        return step, 1 / safe


def _step_of_strengths(
    rows: ComparisonRows, state: State, wanted: Wanted, solver: Strengths, *, estimates: bool
) -> State:
    at = answers(rows, state, wanted)
    prior = 1 / state.s2
    gradient = rows.by_item(at.reliability * at.score) - prior * state.theta
    weight = rows.by_pair(at.reliability**2 * at.info)
    step, variance = solver.solve(weight, prior, gradient)
    theta = state.theta + step * min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-300))
    theta -= theta.mean()  # The prior has mean 0.
    s2 = state.s2
    if wanted.s2 is None and estimates:
        s2 = float(np.clip(np.mean(theta**2 + variance), *STRENGTH_VARIANCE_RANGE))
    return replace(state, theta=theta, s2=s2)


def _step_of_common(rows: ComparisonRows, state: State, wanted: Wanted) -> State:
    """Take a Newton step of the common parameters and shift all annotators' parameters by it."""
    which = np.array([wanted.position, wanted.ties])
    if not which.any():
        return state
    at = answers(rows, state, wanted)
    gradient = np.array([at.score.sum(), at.score_t.sum()])
    cross = float(at.cross.sum())
    matrix = np.array([[at.info.sum(), cross], [cross, at.info_t.sum()]])
    matrix[~which, :] = matrix[:, ~which] = 0
    matrix[np.diag_indices(2)] += np.where(which, 1e-9, 1.0)
    step = np.clip(np.linalg.solve(matrix, np.where(which, gradient, 0.0)), -1, 1)
    common = state.common.copy()
    with np.errstate(invalid="ignore"):
        moved = np.clip(common[1:] + step, -LARGEST_COMMON, LARGEST_COMMON)
        common[1:] = np.where(which, moved, common[1:])
        change = np.where(which, common[1:] - state.common[1:], 0.0)
    profile = state.profile.copy()
    profile[:, 1:] += change
    return replace(state, profile=profile, common=common)


def information_of(
    rows: ComparisonRows, at: OutcomeProbabilities, state: State, wanted: Wanted
) -> FloatArray:
    """Return the information of each annotator's parameters, of shape (n_annotators, 3, 3).

    It includes the priors. Parameters that annotators do not have of their own get 1 on the
    diagonal.
    """
    own = wanted.own
    matrix = np.zeros((rows.n_annotators, 3, 3))
    columns = {
        (A, A): at.info * at.gap**2, (A, B): at.info * at.gap, (A, T): at.cross * at.gap,
        (B, B): at.info, (B, T): at.cross, (T, T): at.info_t,
    }  # fmt: skip
    for (i, j), values in columns.items():
        if own[i] and own[j]:
            matrix[:, i, j] = matrix[:, j, i] = rows.by_annotator(values)
    for i in range(3):
        matrix[:, i, i] += 1 / state.variance[i] if own[i] else 1.0
    return matrix


def _step_of_annotators(
    rows: ComparisonRows, state: State, wanted: Wanted, *, estimates: bool
) -> State:
    at = answers(rows, state, wanted)
    own = wanted.own
    gradient = np.zeros((rows.n_annotators, 3))
    for i, values in enumerate((at.score * at.gap, at.score, at.score_t)):
        if own[i]:
            away = state.profile[:, i] - state.common[i]
            gradient[:, i] = rows.by_annotator(values) - away / state.variance[i]
    matrix = information_of(rows, at, state, wanted)
    inverse = np.linalg.inv(matrix)
    step = np.clip(np.einsum("rij,rj->ri", inverse, gradient), -1, 1)
    profile, common, variance = state.profile + step, state.common.copy(), state.variance.copy()
    active = rows.active
    for i, moves in ((B, wanted.position), (T, wanted.ties)):
        if own[i] and moves:  # M-step: the prior's mean is the mean of the annotators.
            common[i] = float(profile[active, i].mean())
        if own[i] and estimates:
            spread = (profile[active, i] - common[i]) ** 2 + inverse[active, i, i]
            variance[i] = np.clip(spread.mean(), LEAST_VARIANCES[i], LARGEST_VARIANCES[i])
    profile[~active] = common
    return replace(state, profile=profile, common=common, variance=variance)
