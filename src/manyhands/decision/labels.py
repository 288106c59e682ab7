"""From probabilities to decisions: the rule is a choice of its own, apart from the model.

References
----------
.. [1] C. Elkan. The foundations of cost-sensitive learning. IJCAI 2001, Eq. 1.
.. [2] M. Saerens, P. Latinne and C. Decaestecker. Adjusting the outputs of a classifier to new a
   priori probabilities: a simple procedure. Neural Computation 14(1), 2002.
.. [3] A. K. Menon, S. Jayasumana, A. S. Rawat, H. Jain, A. Veit and S. Kumar. Long-tail learning
   via logit adjustment. ICLR 2021 (balanced error, and what minimises it).
.. [4] C. K. Chow. On optimum recognition error and reject tradeoff. IEEE Transactions on
   Information Theory 16(1), 1970.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations.encoding import make_vocabulary
from manyhands.exceptions import AnnotationError
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

__all__ = ["decide"]

# Share of the mass up to which a class counts as absent: a floored log leaves it 1e-100, not 0.
_NO_MASS = 1e-12

# Rows at a time: what tells ties costs as much memory as the probabilities.
_BLOCK = 100_000


def decide(
    posterior: Any,
    rule: Any = "argmax",
    *,
    class_prior: Any = None,
    classes: Any = None,
    threshold: float | None = None,
    abstain: Any = None,
    ties: str = "first",
    random_state: Any = None,
) -> AnyArray:
    """Decide for one class an instance, or for none.

    Parameters
    ----------
    posterior : array-like of shape (n, n_classes)
        Probability of every class for every instance; rows sum to 1.
    rule : {"argmax", "balanced"} or cost matrix, default="argmax"
        "argmax": the most probable class, which minimises the expected number of errors.

        "balanced": the largest ratio of probability to class prior, which minimises the balanced
        error (the mean of the classes' error rates) [3]_.

        An array of shape (n_classes, n_classes), ``[true, decided]``, of costs that are finite
        and not negative: the smallest expected cost [1]_ (whose matrix is the transpose of this
        one). A further column holds the cost of abstaining.
    class_prior : array-like of shape (n_classes,), optional
        Frequency of every class, up to a common factor; only "balanced" uses it. Default: the
        column means of ``posterior``, an estimate that needs many rows (with one row all ratios
        are equal); for predictions on a few rows, give the prior of the training set.
    classes : sequence of length n_classes, optional
        Class values; default: the codes 0, ..., n_classes - 1.
    threshold : float in [0, 1], optional
        Abstain where the decided class is less probable than this [4]_. With "balanced" its
        probability is taken as it would be were all classes equally frequent [2]_. A cost matrix
        has its own column for abstaining.
    abstain : optional
        Value that stands for no decision; it must not be a class. Default: -1 for codes and
        integer classes, None for others. Where it is not of the classes' type, the result is an
        object array.
    ties : {"first", "random"}, default="first"
        Which of several equally good classes. A decision is preferred to an equally good
        abstention.
    random_state : int, RandomState or None
        For ``ties="random"``.

    Returns
    -------
    array of shape (n,)
        Class values.

    Raises
    ------
    AnnotationError
        If rows of ``posterior`` are not probabilities, a shape does not fit, or another argument
        is out of its range.

    Notes
    -----
    Every rule is optimal for the true posterior only: "balanced" and costs rest on small
    probabilities, which an ill-calibrated model gets wrong most.

    References
    ----------
    Elkan (2001), IJCAI, Eq. 1; Saerens, Latinne & Decaestecker (2002), Neural Computation 14(1),
    doi:10.1162/089976602753284446; Menon et al. (2021), ICLR; Chow (1970), IEEE Transactions on
    Information Theory 16(1), doi:10.1109/TIT.1970.1054406.

    Examples
    --------
    >>> from manyhands import decide
    >>> posterior = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]]
    >>> decide(posterior, classes=["common", "rare"])
    array(['common', 'common', 'common'], dtype='<U6')
    >>> decide(posterior, "balanced")
    array([0, 0, 1])
    >>> decide(posterior, [[0, 1], [5, 0]])  # missing class 1 costs five times a false alarm
    array([0, 1, 1])
    >>> decide(posterior, threshold=0.7)
    array([ 0,  0, -1])
    """
    posterior = as_posterior(posterior)
    values = _class_values(classes, posterior.shape[1])
    if ties not in ("first", "random"):
        raise AnnotationError(f"ties={ties!r} is unknown; use 'first' or 'random'")
    gain, refusal = _gains(posterior, rule, class_prior, threshold)
    codes = pick(gain, ties, generator(random_state))
    if refusal is None:
        return values[codes]
    codes[~_reaches(gain.max(axis=1), refusal)] = len(values)
    return _with_abstention(values, abstain)[codes]


def as_posterior(values: Any, *, argument: str = "posterior") -> FloatArray:
    """Read probabilities of shape (n, n_classes), forgiving what rounding leaves.

    Raises
    ------
    AnnotationError
        If there are not two dimensions, or a row is not a distribution (to 1e-3, so that single
        precision and three printed digits pass).
    """
    posterior: FloatArray = np.asarray(values, dtype=np.float64)
    if posterior.ndim != 2 or not posterior.shape[1]:
        raise AnnotationError(
            f"{argument} has shape {posterior.shape}; one row an instance and one column a class "
            "is needed. Of two classes with one column p: np.column_stack([1 - p, p])"
        )
    total = posterior.sum(axis=1)
    bad = ~((posterior >= -1e-6).all(axis=1) & (np.abs(total - 1) <= 1e-3))
    if bad.any():
        k = int(np.argmax(bad))
        raise AnnotationError(
            f"{argument} is no distribution in row {k} and {int(bad.sum()) - 1} more: it sums to "
            f"{total[k]:.6g}, its smallest entry is {posterior[k].min():.6g}. Divide counts by "
            "their sum, put scores through a softmax, leave out rows without an answer"
        )
    return posterior


def _class_values(classes: Any, n_classes: int) -> AnyArray:
    values = np.arange(n_classes) if classes is None else make_vocabulary(classes, "classes")
    if len(values) != n_classes:
        raise AnnotationError(
            f"classes names {len(values)} classes, posterior has {n_classes} columns; name one a "
            "column"
        )
    return values


def _gains(
    posterior: FloatArray, rule: Any, class_prior: Any, threshold: float | None
) -> tuple[FloatArray, FloatArray | float | None]:
    """What deciding for every class gains (n, C), and what abstaining does (None: not allowed)."""
    if not isinstance(rule, str):
        if threshold is not None:
            raise AnnotationError(
                f"threshold={threshold!r} does not go with a cost matrix; give the cost of "
                "abstaining as its last column"
            )
        n_classes = posterior.shape[1]
        gain = -posterior @ _checked_costs(rule, n_classes)
        return gain[:, :n_classes], gain[:, n_classes] if gain.shape[1] > n_classes else None
    if rule not in ("argmax", "balanced"):
        raise AnnotationError(f"rule={rule!r} is unknown; use 'argmax', 'balanced' or costs")
    if threshold is not None and not 0 <= threshold <= 1:
        raise AnnotationError(f"threshold={threshold!r} must be a probability, in [0, 1]")
    return posterior if rule == "argmax" else _balanced(posterior, class_prior), threshold


def _balanced(posterior: FloatArray, class_prior: Any) -> FloatArray:
    """Posterior as it would be were all classes equally frequent; an absent class has none."""
    n, n_classes = posterior.shape
    if class_prior is None:
        prior = posterior.sum(axis=0) / max(n, 1)
        prior[prior <= _NO_MASS] = 0
    else:
        prior = _checked_prior(class_prior, n_classes)
    ratio = np.divide(posterior, prior, out=np.zeros_like(posterior), where=prior > 0)
    return np.asarray(ratio / ratio.sum(axis=1, keepdims=True))


def _checked_prior(class_prior: Any, n_classes: int) -> FloatArray:
    prior: FloatArray = np.asarray(class_prior, dtype=np.float64)
    if prior.shape != (n_classes,):
        raise AnnotationError(
            f"class_prior has shape {prior.shape}; one frequency a class, ({n_classes},), is needed"
        )
    bad = ~(np.isfinite(prior) & (prior > 0))
    if bad.any():
        raise AnnotationError(
            f"class_prior is {prior[bad][0].item()!r} for class {int(np.argmax(bad))}; "
            "frequencies are positive. Leave the columns of absent classes out"
        )
    return np.asarray(prior / prior.sum())


def _checked_costs(rule: Any, n_classes: int) -> FloatArray:
    """Costs in units of the smallest one, so that the tolerance of ties fits any currency."""
    cost: FloatArray = np.asarray(rule, dtype=np.float64)
    if cost.shape not in ((n_classes, n_classes), (n_classes, n_classes + 1)):
        raise AnnotationError(
            f"rule is a cost matrix of shape {cost.shape}; [true, decided] needs "
            f"{(n_classes, n_classes)}, or {(n_classes, n_classes + 1)} with the costs of "
            "abstaining last"
        )
    bad = ~(np.isfinite(cost) & (cost >= 0))
    if bad.any():
        true, decided = np.argwhere(bad)[0].tolist()
        raise AnnotationError(
            f"rule holds the cost {cost[true, decided].item()!r} at [{true}, {decided}]; costs "
            "are finite and not negative. Add the same number to a whole row: no decision changes"
        )
    return np.asarray(cost / cost.min(where=cost > 0, initial=np.inf))


def _reaches(gain: FloatArray, goal: Any) -> BoolArray:
    # Sums taken in another order differ by a few ulps; such a difference decides nothing.
    return gain >= goal - 1e-9 * np.abs(goal) - 1e-12


def generator(random_state: Any) -> np.random.RandomState:
    """Generator for a ``random_state``; for None a fresh one, not numpy's global one."""
    if random_state is None:
        return np.random.RandomState()
    return check_random_state(random_state)


def pick(gain: FloatArray, ties: str, rng: np.random.RandomState) -> IntArray:
    """Column of the largest gain in every row; equal ones as ``ties`` says, shape (n,).

    Equal up to rounding is equal; unless ``ties`` is "random" the first of them is chosen.
    """
    chosen = np.empty(len(gain), dtype=np.int64)
    for first in range(0, len(gain), _BLOCK):
        rows = gain[first : first + _BLOCK]
        tied: AnyArray = _reaches(rows, rows.max(axis=1, keepdims=True))
        if ties == "random":
            tied = tied * rng.uniform(0.5, 1.0, size=tied.shape)
        chosen[first : first + _BLOCK] = np.argmax(tied, axis=1)
    return chosen


def _with_abstention(values: AnyArray, abstain: Any) -> AnyArray:
    """Class values and, last, the value of no decision."""
    whole, text = values.dtype.kind in "iu", values.dtype.kind in "UT"
    if abstain is None and whole:
        abstain = MISSING
    if abstain in values.tolist():
        raise AnnotationError(
            f"abstain={abstain!r} is a class, so a decision could not be told from none; pass "
            "another value"
        )
    fits = (whole and isinstance(abstain, int | np.integer)) or (text and isinstance(abstain, str))
    return np.array([*values.tolist(), abstain], dtype=None if fits else object)
