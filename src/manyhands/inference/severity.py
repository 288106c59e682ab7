"""Severity: by how many grades an annotator's answers are above, or below, the truth.

Grades have an order, and annotators differ in where they cut the scale. Of an annotator r of grades
0, ..., K - 1, the centre of the prior of the confusion matrix is the crowd's, P, tilted by how
often r is right (g) and by which side r errs on (b):

    q_r[s, l]  ~  P[s, l] exp(g_r [l = c(s)] + b_r (l - c(s)) / (K - 1)),

where s is a state (a class c, or a subtype of one) and l the answer. `Tilt` fits the two numbers to
the annotator's counts N_r and to m annotations as the crowd gives them, in which w_s are the shares
of the states:

    (g, b)_r  =  argmax  sum_sl (N_r + m w_s P)[s, l] log q_r[s, l]  -  .0005 (g^2 + b^2).

Without annotations, or with m beyond all bounds, q is P. The *severity* of an annotator, in grades,
is the mean of l - c under the fitted confusion matrix and the shares of the classes (`severity`).

The maximum is found by Newton's method, for all annotators at once. Of the exponentials,
exp(b l / (K - 1)) depends on the annotator and the answer alone, so that sums over answers are
products with matrices (K, S), and nothing of the size of all confusion matrices is made before q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyhands.inference.probability import Table, map_rows
from manyhands.inference.votes import Votes, by_annotator
from manyhands.typing import FloatArray, IntArray

CROWD = 0.01
"""Share of the crowd's matrix in a centre, so that no tilt makes an answer impossible."""

RIDGE = 0.001
"""Precision of g and b around 0: it decides only where nothing else does."""

STEPS, LONGEST = 12, 3.0
"""Newton steps, and the greatest change of a parameter in one of them."""


class FittedTilts(NamedTuple):
    """Tilts of annotators, and how they depend on the counts.

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
    """Centres of a prior that are the crowd's matrix, tilted.

    Attributes
    ----------
    crowd : array of shape (S, K)
        The crowd's matrix P.
    shares : array of shape (S,)
        Those of the states, w.
    classes : integer array of shape (S,)
        Class c of each state.
    strength : float
        Annotations m as the crowd gives them, which are added to each annotator's own.
    """

    crowd: FloatArray
    shares: FloatArray
    classes: IntArray
    strength: float

    @property
    def _place(self) -> FloatArray:
        """Place of each answer on a scale of length 1, (K,)."""
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
            """Gradient and negative Hessian at the parameters."""
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

        for _ in range(STEPS):
            of_right, of_up, a, b, d = curvature()
            determinant = a * d - b * b
            right += ((d * of_right - b * of_up) / determinant).clip(-LONGEST, LONGEST)
            up += ((a * of_up - b * of_right) / determinant).clip(-LONGEST, LONGEST)
        *_, a, b, d = curvature()
        inverse = np.array([[d, -b], [-b, a]]) / (a * d - b * b)
        return FittedTilts(right, up, inverse.transpose(2, 0, 1))

    def tilted(self, crowd: FloatArray, fitted: FittedTilts) -> FloatArray:
        """Return q of each annotator, shape (R, S, K), laid out as counts are."""
        states = np.arange(len(self.classes))
        tilted = np.exp(fitted.up[:, None] * self._place)[:, :, None] * crowd.T
        tilted[:, self.classes, states] *= np.exp(fitted.right)[:, None]
        tilted /= np.einsum("rks->rs", tilted)[:, None]
        return tilted.transpose(0, 2, 1)

    def centre(self, counts: FloatArray, crowd: FloatArray | None = None) -> FloatArray:
        """Return the centres of annotators with these counts, both of shape (R, S, K).

        ``crowd`` is tilted in place of the matrix that the parameters are fitted with.
        """
        crowd = self.crowd if crowd is None else crowd
        centre = self.tilted(crowd, self.fit(counts))
        centre *= 1.0 - CROWD
        centre += CROWD * crowd
        return centre

    def doubt(self, counts: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the variance of each annotator's mean distance under q, from g and b, shape (R,).

        Parameters
        ----------
        counts : array of shape (R, S, K)
        weight : array of shape (R, S)
            Of each state's mean distance.
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
    """Grades by which each annotator's answers are above the truth, on average, shape (R,).

    Parameters
    ----------
    confusion : array of shape (R, C, C)
        Indexed [annotator, true, given]; rows sum to 1.
    shares : array of shape (C,)
        Of the classes.
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
    """Standard error of each annotator's severity relative to the others', shape (R,).

    Three variances are summed. Rows of confusion matrices are Dirichlet distributed, with counts
    and pseudo-counts as their parameters; the pseudo-counts are known up to g and b, whose
    distribution is taken for normal; and the grades of the instances are known as far as the
    posterior says. A severity that all annotators share cannot be seen without gold, and is left
    out.

    Parameters
    ----------
    counts, pseudo_counts, vote_counts : arrays of shape (R, S, K); the second (1, S, K), too
        Annotations counted under the posterior, those of the prior, and those against the vote
        shares, from which the prior is made.
    shares : array of shape (S,)
        Of the states.
    n_classes : int
        Answers; a further response is that of abstentions.
    tilt : Tilt or None
        Of the prior, if its centre has one.
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
    unseen = np.full_like(doubt, np.inf)  # Nothing is known without annotations and a prior.
    of_grades = np.divide(doubt, seen**2, out=unseen, where=seen > 0)
    return np.asarray(np.sqrt(variance + of_grades))


def doubt_of_grades(shard: Votes, posterior: FloatArray) -> FloatArray:
    """Variance of the grade of each annotation's instance, summed by annotator, shape (R,)."""
    grades = np.arange(shard.n_classes, dtype=np.float64)
    variance = posterior @ grades**2 - (posterior @ grades) ** 2
    return by_annotator(shard, np.maximum(variance, 0.0)[shard.instance])


def _distance(n_classes: int) -> FloatArray:
    """Grades from the truth to the answer, shape (C, C)."""
    grades = np.arange(n_classes, dtype=np.float64)
    return grades - grades[:, None]
