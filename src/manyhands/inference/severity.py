"""Severity: the number of grades by which an annotator's answers are above or below the truth.

Annotators of ordered classes differ in where they draw the limits between grades. For an annotator
r of grades 0, ..., K - 1, the centre of the prior of the confusion matrix is the crowd's matrix P,
tilted by how often r is right (g) and by the side on which r errs (b):

    q_r[s, l]  ~  P[s, l] exp(g_r [l = c(s)] + b_r (l - c(s)) / (K - 1)),

where s is a state (a class c, or a subtype of one) and l the answer. `Tilt` fits the two numbers to
the annotator's counts N_r and to m annotations distributed like the crowd's, where w_s are the
shares of the states:

    (g, b)_r  =  argmax  sum_sl (N_r + m w_s P)[s, l] log q_r[s, l]  -  .0005 (g^2 + b^2).

Without annotations, or as m grows, q approaches P. The *severity* of an annotator, in grades, is
the mean of l - c under the fitted confusion matrix and the shares of the classes (`severity`).

The maximum is found by Newton's method for all annotators at once. The factor exp(b l / (K - 1))
depends only on the annotator and the answer, so sums over answers are products with matrices (K,
S), and no array of the size of all confusion matrices is needed before q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyhands.inference.probability import Table, map_rows
from manyhands.inference.votes import Votes, by_annotator
from manyhands.typing import FloatArray, IntArray

CROWD_SHARE = 0.01
"""Share of the crowd's matrix in a centre, so that no tilt makes an answer impossible."""

RIDGE = 0.001
"""Precision of g and b around 0, so small that it matters only where the data do not."""

N_STEPS, LONGEST_STEP = 12, 3.0
"""Number of Newton steps, and the largest change of a parameter in a step."""


class FittedTilts(NamedTuple):
    """Fitted tilts of annotators, and their covariance.

    Attributes
    ----------
    right, up : arrays of shape (R,)
        The parameters g and b.
    covariance : array of shape (R, 2, 2)
        Inverse of the curvature at the maximum.
    """

    right: FloatArray
    up: FloatArray
    covariance: FloatArray


@dataclass(frozen=True)
class Tilt:
    """Maker of centres of a prior: the crowd's matrix, tilted for each annotator.

    Attributes
    ----------
    crowd : array of shape (S, K)
        The crowd's matrix P.
    shares : array of shape (S,)
        Shares w of the states.
    classes : integer array of shape (S,)
        Class c of each state.
    strength : float
        Number m of annotations, distributed like the crowd's, that are added to each annotator's.
    """

    crowd: FloatArray
    shares: FloatArray
    classes: IntArray
    strength: float

    @property
    def _place(self) -> FloatArray:
        """Position of each answer on a scale of length 1, (K,)."""
        n_classes = self.crowd.shape[1]
        return np.linspace(-0.5, 0.5, n_classes)

    def fit(self, counts: FloatArray) -> FittedTilts:
        """Fit both parameters of each annotator to their counts, shape (R, S, K)."""
        own = self.crowd[np.arange(len(self.classes)), self.classes]
        place = self._place
        at = place[self.classes]
        away = np.array(self.crowd)
        away[np.arange(len(away)), self.classes] = 0.0
        # Sums over wrong answers of their distance to the power of 0, 1 and 2.
        distance = place - at[:, None]
        powers = [np.ascontiguousarray((away * distance**k).T) for k in range(3)]

        usual = self.strength * self.shares
        mass = np.einsum("rsk->rs", counts) + usual
        states = np.arange(len(self.classes))
        is_right = counts[:, states, self.classes].sum(axis=1) + usual @ own
        moved = np.einsum("rsk,sk->r", counts, distance) + usual @ (self.crowd * distance).sum(1)

        right, up = np.zeros(len(counts)), np.zeros(len(counts))

        def curvature() -> tuple[FloatArray, ...]:
            """Return the gradient and negative Hessian at the parameters."""
            answer = np.exp(up[:, None] * place)
            hit = own * np.exp(right)[:, None] * answer[:, self.classes]
            total = answer @ powers[0]
            total += hit
            hit /= total
            mean, square = answer @ powers[1], answer @ powers[2]
            mean /= total
            square /= total
            gradient = (
                is_right - np.einsum("rs,rs->r", mass, hit) - RIDGE * right,
                moved - np.einsum("rs,rs->r", mass, mean) - RIDGE * up,
            )
            hessian = (
                np.einsum("rs,rs->r", mass, hit * (1 - hit)) + RIDGE,
                -np.einsum("rs,rs,rs->r", mass, hit, mean),
                np.einsum("rs,rs->r", mass, square - mean**2) + RIDGE,
            )
            return *gradient, *hessian

        for _ in range(N_STEPS):
            of_right, of_up, a, b, d = curvature()
            determinant = a * d - b * b
            right += ((d * of_right - b * of_up) / determinant).clip(-LONGEST_STEP, LONGEST_STEP)
            up += ((a * of_up - b * of_right) / determinant).clip(-LONGEST_STEP, LONGEST_STEP)
        *_, a, b, d = curvature()
        inverse = np.array([[d, -b], [-b, a]]) / (a * d - b * b)
        return FittedTilts(right, up, inverse.transpose(2, 0, 1))

    def tilted(self, crowd: FloatArray, fitted: FittedTilts) -> FloatArray:
        """Return q of each annotator, shape (R, S, K), in the memory order of counts."""
        states = np.arange(len(self.classes))
        tilted = np.exp(fitted.up[:, None] * self._place)[:, :, None] * crowd.T
        tilted[:, self.classes, states] *= np.exp(fitted.right)[:, None]
        tilted /= np.einsum("rks->rs", tilted)[:, None]
        return tilted.transpose(0, 2, 1)

    def centre(self, counts: FloatArray, crowd: FloatArray | None = None) -> FloatArray:
        """Return the centres of annotators with the given counts, both of shape (R, S, K).

        If ``crowd`` is given, it is tilted instead of the matrix to which the tilts are fitted.
        """
        crowd = self.crowd if crowd is None else crowd
        centre = self.tilted(crowd, self.fit(counts))
        centre *= 1.0 - CROWD_SHARE
        centre += CROWD_SHARE * crowd
        return centre

    def doubt(self, counts: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the variance of each annotator's mean distance under q, from g and b, shape (R,).

        Parameters
        ----------
        counts : array of shape (R, S, K)
        weight : array of shape (R, S)
            Weight of each state's mean distance.
        """
        fitted = self.fit(counts)
        q = self.tilted(self.crowd, fitted)
        distance = _distance(self.crowd.shape[1])[self.classes]
        mean = np.einsum("rsk,sk->rs", q, distance)
        square = np.einsum("rsk,sk->rs", q, distance**2)
        hit = q[:, np.arange(len(self.classes)), self.classes]
        by_right = -np.einsum("rs,rs,rs->r", weight, hit, mean)
        by_up = np.einsum("rs,rs->r", weight, square - mean**2) / (self.crowd.shape[1] - 1)
        change = np.stack([by_right, by_up], axis=1)
        return np.asarray(np.einsum("ri,rij,rj->r", change, fitted.covariance, change))


def severity(confusion: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the mean number of grades by which answers are above the truth, shape (R,).

    Parameters
    ----------
    confusion : array of shape (R, C, C)
        Indexed [annotator, true, given]; rows sum to 1.
    shares : array of shape (C,)
        Shares of the classes.

    Returns
    -------
    array of shape (R,)
    """
    return np.asarray(np.einsum("c,rck,ck->r", shares, confusion, _distance(len(shares))))


def severity_error(
    counts: Table,
    pseudo_counts: Table,
    vote_counts: Table,
    shares: FloatArray,
    n_classes: int,
    tilt: Tilt | None,
    doubt: FloatArray,
) -> FloatArray:
    """Return the standard error of each annotator's severity relative to the others', shape (R,).

    It sums three variances: that of the rows of confusion matrices, which are Dirichlet distributed
    with counts and pseudo-counts as parameters; that of the pseudo-counts, from a normal
    distribution of g and b; and that of the instances' grades under the posterior. A severity that
    all annotators share cannot be detected without gold, and is not included.

    Parameters
    ----------
    counts, pseudo_counts, vote_counts : arrays of shape (R, S, K); the second (1, S, K), too
        Annotations counted under the posterior, pseudo-annotations of the prior, and annotations
        counted against the vote shares, from which the prior is made.
    shares : array of shape (S,)
        Shares of the states.
    n_classes : int
        Number of classes; a further response stands for abstentions.
    tilt : Tilt or None
        Tilts of the prior's centre, if any.
    doubt : array of shape (R,)
        Variance of the grade under the posterior, summed over each annotator's annotations
        (`doubt_of_grades`).
    """
    classes = np.arange(len(shares)) // (len(shares) // n_classes)
    distance = _distance(n_classes)[classes]

    def of_rows(counts: FloatArray, pseudo: FloatArray, given: FloatArray) -> FloatArray:
        rows = (counts + pseudo)[:, :, :n_classes]
        total = np.einsum("rsk->rs", rows)
        safe = np.maximum(total, np.finfo(float).tiny)
        mean = np.einsum("rsk,sk->rs", rows, distance) / safe
        spread = np.einsum("rsk,sk->rs", rows, distance**2) / safe - mean**2
        variance = np.einsum("rs,s->r", np.maximum(spread, 0.0) / (total + 1.0), shares**2)
        added = np.broadcast_to(pseudo[:, :, :n_classes].sum(axis=2), total.shape)
        seen = total.sum(axis=1)
        if tilt is not None:
            variance = variance + tilt.doubt(given[:, :, :n_classes], shares * added / safe)
            seen = seen - added.sum(axis=1) + tilt.strength
        return np.stack([variance, seen], axis=1)

    variance, seen = np.asarray(map_rows(of_rows, counts, pseudo_counts, vote_counts)).T
    unseen = np.full_like(doubt, np.inf)  # Without annotations and prior, the error is infinite.
    of_grades = np.divide(doubt, seen**2, out=unseen, where=seen > 0)
    return np.asarray(np.sqrt(variance + of_grades))


def doubt_of_grades(shard: Votes, posterior: FloatArray) -> FloatArray:
    """Return the variance of instances' grades, summed over each annotator's annotations, (R,)."""
    grades = np.arange(shard.n_classes, dtype=np.float64)
    variance = posterior @ grades**2 - (posterior @ grades) ** 2
    return by_annotator(shard, np.maximum(variance, 0.0)[shard.instance])


def _distance(n_classes: int) -> FloatArray:
    """Return the signed distance from the truth to the answer in grades, shape (C, C)."""
    grades = np.arange(n_classes, dtype=np.float64)
    return grades - grades[:, None]
