"""Deciding for one class per instance from probabilities, whatever the model.

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
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_random_state

from manyhands.annotations.class_order import check_order, order_of
from manyhands.annotations.encoding import is_text, make_vocabulary
from manyhands.decision.label_sets import decide_sets
from manyhands.exceptions import AnnotationError
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

__all__ = ["decide"]

# Largest share of the mass of a class that counts as absent: log floors leave 1e-100, not 0.
_NO_MASS = 1e-12

# Rows per block, because finding ties takes as much memory as the probabilities.
DECIDED_AT_ONCE = 100_000


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
    """Choose a class for each instance from its probabilities, or abstain.

    Parameters
    ----------
    posterior : array-like or scipy.sparse array of shape (n, n_classes)
        Class probabilities of each instance; rows sum to 1.
    rule : {"argmax", "median", "balanced", "f1"} or cost matrix, default="argmax"
        "argmax": the most probable class, which minimises the expected number of errors.

        "median": the lowest class for which it and all lower ones together have a probability of at
        least one half. It minimises the expected distance in grades, so the columns must be grades
        in their order; this cannot be checked here, without a table.

        "f1": for sets of labels (`MultiLabelDawidSkene`). Columns are options, and rows need not
        sum to 1. The result is a boolean array (n, n_options) of the ticks that maximise the
        expected F1 of each option; see `decide_sets`, which also returns the thresholds.

        "balanced": the largest ratio of probability to class prior, which minimises the balanced
        error (the mean of the classes' error rates).

        An array of shape (n_classes, n_classes), ``[true, decided]``, of finite, nonnegative
        costs: the class of smallest expected cost. An additional last column holds the cost of
        abstaining.
    class_prior : array-like of shape (n_classes,), optional
        Frequency of each class, up to a common factor; used only by "balanced". Default: the
        column means of ``posterior``. That estimate needs many rows (with a single row, all ratios
        are equal); for predictions on few rows, pass the prior of the training set.
    classes : sequence of length n_classes, optional
        Class values; default: the codes 0, ..., n_classes - 1. Not with "f1", which returns a
        column for each option.
    threshold : float in [0, 1], optional
        Abstain if the chosen class is less probable than this. With "balanced", this
        probability is the one the class would have if all classes were equally frequent.
        Not allowed with a cost matrix, which has its own column for abstaining.
    abstain : optional
        Value that stands for abstaining; it must not be a class. Default: -1 for codes and
        integer classes, None for others. If its type differs from that of the classes, the result
        is an object array.
    ties : {"first", "random"}, default="first"
        Which of several equally good classes to choose. A class is preferred to an equally good
        abstention.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Returns
    -------
    array of shape (n,)
        Class values, or ``abstain``. For the rule "f1", a boolean array (n, n_options).

    Raises
    ------
    AnnotationError
        If rows of ``posterior`` are not probabilities, a shape does not match, the rule or ``ties``
        is unknown, a threshold or cost is out of range, ``abstain`` is a class, or ``rule="f1"`` is
        combined with other arguments.

    Notes
    -----
    The rules are optimal only for the true posterior. "balanced" and costs depend on small
    probabilities, which poorly calibrated models get most wrong.

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
    >>> decide([[0.4, 0.35, 0.25]], "median", classes=[1, 2, 3])  # grades
    array([2])
    """
    if isinstance(rule, str) and rule == "f1":
        given = {"class_prior": class_prior, "threshold": threshold, "abstain": abstain}
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise AnnotationError(
                f"rule='f1' ticks each option by a threshold of its own; leave {named[0]}= out"
            )
        if classes is not None:
            raise AnnotationError(
                "rule='f1' returns a column of booleans for each option, in the order of "
                "posterior's columns; leave classes= out, and name them by options[row]"
            )
        if ties != "first":
            raise AnnotationError(
                "rule='f1' ticks equally probable instances together; leave ties= out"
            )
        return decide_sets(posterior, "f1").ticks
    posterior = as_posterior(posterior)
    values = _class_values(classes, posterior.shape[1])
    if ties not in ("first", "random"):
        raise AnnotationError(f"ties={ties!r} is unknown; use 'first' or 'random'")
    gain, refusal = _gains(posterior, rule, class_prior, threshold)
    codes = pick(gain, ties, generator(random_state))
    if refusal is None:
        return values[codes]
    sure = row_max(gain)
    if isinstance(rule, str) and rule == "median":
        sure = entries(posterior, np.arange(len(codes)), codes)
    codes[~_reaches(sure, refusal)] = len(values)
    return _with_abstention(values, abstain)[codes]


def as_posterior(values: Any, *, argument: str = "posterior") -> FloatArray:
    """Check probabilities of shape (n, n_classes), tolerating rounding.

    Raises
    ------
    AnnotationError
        If there are not two dimensions, or a row is not a distribution (up to 1e-3, which allows
        for single precision and three printed digits).
    """
    if issparse(values):
        return _sparse_posterior(values, argument)
    posterior: FloatArray = np.asarray(values, dtype=np.float64)
    if posterior.ndim != 2 or not posterior.shape[1]:
        raise AnnotationError(
            f"{argument} has shape {posterior.shape}; it must have one row per instance and one "
            "column per class. For two classes and a vector p, use np.column_stack([1 - p, p])"
        )
    total = posterior.sum(axis=1)
    bad = ~((posterior >= -1e-6).all(axis=1) & (np.abs(total - 1) <= 1e-3))
    if bad.any():
        k = int(np.argmax(bad))
        raise AnnotationError(
            f"{argument} is not a distribution in row {k} and {int(bad.sum()) - 1} more: the row "
            f"sums to {total[k]:.6g}, its smallest entry is {posterior[k].min():.6g}. Divide "
            "counts by their sum, apply a softmax to scores, or leave out rows without an answer. "
            "For sets of labels, in which each option has its own probability, use decide_sets"
        )
    return posterior


def _sparse_posterior(values: Any, argument: str) -> Any:
    """Check probabilities of many classes, as a CSR array."""
    posterior: Any = csr_array(values, dtype=np.float64)
    posterior.sum_duplicates()
    posterior.sort_indices()
    total = posterior @ np.ones(posterior.shape[1])
    if (posterior.data < -1e-6).any() or (np.abs(total - 1) > 1e-3).any():
        k = int(np.argmax(np.abs(total - 1)))
        raise AnnotationError(
            f"{argument} is not a distribution: row {k} sums to {total[k]:.6g}. Divide counts by "
            "their sum, or leave out rows without an answer"
        )
    return posterior


def row_max(values: Any) -> FloatArray:
    """Return the largest entry of each row, shape (n,); rows of a CSR array must not be empty."""
    if issparse(values):
        rows: Any = values
        return np.asarray(np.maximum.reduceat(rows.data, rows.indptr[:-1]))
    return np.asarray(values.max(axis=1))


def entries(values: Any, rows: IntArray, columns: IntArray) -> FloatArray:
    """Return the entries at the given places, shape (k,), of an array or of a CSR array."""
    found: Any = values[rows, columns]
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found).ravel()


def _class_values(classes: Any, n_classes: int) -> AnyArray:
    values = np.arange(n_classes) if classes is None else make_vocabulary(classes, "classes")
    if len(values) != n_classes:
        raise AnnotationError(
            f"classes has {len(values)} entries, but posterior has {n_classes} columns; give one "
            "class per column"
        )
    return values


def _gains(
    posterior: FloatArray, rule: Any, class_prior: Any, threshold: float | None
) -> tuple[FloatArray, FloatArray | float | None]:
    """Return the gain of each class (n, C), and of abstaining (None: not allowed)."""
    if not isinstance(rule, str):
        if threshold is not None:
            raise AnnotationError(
                f"threshold={threshold!r} cannot be combined with a cost matrix; give the cost of "
                "abstaining as its last column"
            )
        n_classes = posterior.shape[1]
        if issparse(posterior):
            raise AnnotationError(
                f"rule is a cost matrix, which is not supported for as many as {n_classes:,} "
                "classes; use 'argmax' or 'balanced'"
            )
        gain = -posterior @ _checked_costs(rule, n_classes)
        return gain[:, :n_classes], gain[:, n_classes] if gain.shape[1] > n_classes else None
    if rule not in ("argmax", "median", "balanced"):
        raise AnnotationError(
            f"rule={rule!r} is unknown; use 'argmax', 'median', 'balanced' or a cost matrix, or "
            "'f1' for sets of labels"
        )
    if threshold is not None and not 0 <= threshold <= 1:
        raise AnnotationError(f"threshold={threshold!r} must be a probability in [0, 1]")
    if rule == "median":
        return _medians(posterior), threshold
    return posterior if rule == "argmax" else _balanced(posterior, class_prior), threshold


def _medians(posterior: FloatArray) -> FloatArray:
    """Mark the medians of each row, shape (n, C); there are several if exactly half is below."""
    if issparse(posterior):
        raise AnnotationError(
            f"rule='median' is for a scale of a few grades, but there are {posterior.shape[1]:,} "
            "classes; use 'argmax', or read the labels as numbers (scale='interval')"
        )
    up_to = posterior.cumsum(axis=1)
    half = 0.5 * up_to[:, -1:]
    above = np.column_stack([np.zeros(len(up_to)), up_to[:, :-1]]) > half + 1e-9
    return ((up_to >= half - 1e-9) & ~above).astype(np.float64)


def _balanced(posterior: FloatArray, class_prior: Any) -> FloatArray:
    """Return the posterior if all classes were equally frequent; absent classes get 0."""
    n, n_classes = posterior.shape
    if class_prior is None:
        total = np.ones(n) @ posterior if issparse(posterior) else posterior.sum(axis=0)
        prior = np.asarray(total) / max(n, 1)
        prior[prior <= _NO_MASS] = 0
    else:
        prior = _checked_prior(class_prior, n_classes)
    if issparse(posterior):
        return _balanced_sparse(posterior, prior)
    ratio = np.divide(posterior, prior, out=np.zeros_like(posterior), where=prior > 0)
    return np.asarray(ratio / ratio.sum(axis=1, keepdims=True))


def _balanced_sparse(posterior: Any, prior: FloatArray) -> Any:
    """Return the balanced probabilities of a CSR array."""
    own = np.asarray(prior)[posterior.indices]
    data = np.divide(posterior.data, own, out=np.zeros_like(posterior.data), where=own > 0)
    total = np.add.reduceat(data, posterior.indptr[:-1])
    data = data / np.repeat(total, np.diff(posterior.indptr))
    return csr_array((data, posterior.indices, posterior.indptr), shape=posterior.shape)


def _checked_prior(class_prior: Any, n_classes: int) -> FloatArray:
    prior: FloatArray = np.asarray(class_prior, dtype=np.float64)
    if prior.shape != (n_classes,):
        raise AnnotationError(
            f"class_prior has shape {prior.shape}; it must have one frequency per class, "
            f"shape ({n_classes},)"
        )
    bad = ~(np.isfinite(prior) & (prior > 0))
    if bad.any():
        raise AnnotationError(
            f"class_prior is {prior[bad][0].item()!r} for class {int(np.argmax(bad))}; "
            "frequencies must be positive. Leave out the columns of absent classes"
        )
    return np.asarray(prior / prior.sum())


def _checked_costs(rule: Any, n_classes: int) -> FloatArray:
    """Return costs divided by the smallest positive one, so the tolerance fits any unit."""
    cost: FloatArray = np.asarray(rule, dtype=np.float64)
    if cost.shape not in ((n_classes, n_classes), (n_classes, n_classes + 1)):
        raise AnnotationError(
            f"rule is a cost matrix of shape {cost.shape}; [true, decided] must have shape "
            f"{(n_classes, n_classes)}, or {(n_classes, n_classes + 1)} with the costs of "
            "abstaining last"
        )
    bad = ~(np.isfinite(cost) & (cost >= 0))
    if bad.any():
        true, given = np.argwhere(bad)[0].tolist()
        raise AnnotationError(
            f"rule has the cost {cost[true, given].item()!r} at [{true}, {given}]; costs must be "
            "finite and nonnegative. Adding a number to a whole row changes no decision"
        )
    return np.asarray(cost / cost.min(where=cost > 0, initial=np.inf))


def _reaches(gain: FloatArray, goal: Any) -> BoolArray:
    # The order of summation changes gains by rounding errors, which must not break ties.
    return gain >= goal - 1e-9 * np.abs(goal) - 1e-12


def generator(random_state: Any) -> np.random.RandomState:
    """Return a generator for a ``random_state``; for None a new one, not NumPy's global one."""
    if random_state is None:
        return np.random.RandomState()
    return check_random_state(random_state)


def pick(gain: FloatArray, ties: str, rng: np.random.RandomState) -> IntArray:
    """Return the column of the largest gain in each row, shape (n,).

    Gains that are equal up to rounding are ties. The first one is chosen, or a random one if
    ``ties`` is "random".
    """
    if issparse(gain):
        return _pick_sparse(gain, ties, rng)
    chosen = np.empty(len(gain), dtype=np.int64)
    for first in range(0, len(gain), DECIDED_AT_ONCE):
        rows = gain[first : first + DECIDED_AT_ONCE]
        tied: AnyArray = _reaches(rows, rows.max(axis=1, keepdims=True))
        if ties == "random":
            tied = tied * rng.uniform(0.5, 1.0, size=tied.shape)
        chosen[first : first + DECIDED_AT_ONCE] = np.argmax(tied, axis=1)
    return chosen


def best(
    posterior: Any, ties: str, rng: np.random.RandomState, *, ordered: bool = False
) -> IntArray:
    """Return the code of each row's label, shape (n,): the most probable class, or the median.

    Parameters
    ----------
    posterior : array or CSR array of shape (n, n_classes)
    ties : {"first", "random", "distribute"}
    rng : RandomState
    ordered : bool
        Whether the classes are grades in their order. Then the label is the median, which minimises
        the expected distance from the truth in grades.

    Raises
    ------
    AnnotationError
        If there are so many grades that the posterior is sparse.
    """
    if not ordered:
        return pick(posterior, ties, rng)
    if issparse(posterior):
        vast: Any = posterior
        raise AnnotationError(
            f"the labels are {vast.shape[1]:,} grades, but medians are for scales of a few grades; "
            "read them as numbers (scale='interval'), which RatingMean averages, or as names of "
            "classes (scale='nominal')"
        )
    chosen = np.empty(len(posterior), dtype=np.int64)
    for first in range(0, len(posterior), DECIDED_AT_ONCE):
        rows = slice(first, first + DECIDED_AT_ONCE)
        chosen[rows] = pick(_medians(np.asarray(posterior[rows])), ties, rng)
    return chosen


def is_scale_of_grades(table: Any) -> bool:
    """Return whether the classes of a table or store are three or more grades in order."""
    return bool(table.ordered and table.n_classes > 2)


def rule_of(table: Any) -> str:
    """Return the rule of `decide` that labels a table or store: "median" for grades."""
    return "median" if is_scale_of_grades(table) else "argmax"


def check_rule_of(rule: Any, table: Any, argument: str = "rule") -> None:
    """Refuse medians of classes that are names, merely sorted as text.

    Parameters
    ----------
    rule : str, cost matrix or None
        See `decide`.
    table : AnnotationTable or store
    argument : str
        Name of the rule, for messages.

    Raises
    ------
    AnnotationError
        If the rule is "median" and three or more classes are merely sorted as text, unless the
        table's scale says that they are grades.
    """
    if not (isinstance(rule, str) and rule == "median") or table.ordered:
        return
    order, names = table.class_order, table.classes
    if order == "given" and is_text(names) and names.tolist() == sorted(names.tolist()):
        # A saved fit does not record whether the caller gave the classes in this order.
        order = "sorted" if order_of(names) == "given" else order_of(names)
    try:
        check_order(names, order, f"{argument}='median'")
    except AnnotationError as error:
        raise AnnotationError(f"{error}, and pass scale='ordinal'") from error


def best_of(posterior: Any, table: Any) -> IntArray:
    """Return the code of each instance's label, shape (n,), the first of equally good ones."""
    return best(posterior, "first", generator(0), ordered=is_scale_of_grades(table))


def _pick_sparse(gain: Any, ties: str, rng: np.random.RandomState) -> IntArray:
    """Return the column of the largest entry in each row of a CSR array without empty rows."""
    start, width = gain.indptr[:-1], np.diff(gain.indptr)
    rank = _reaches(gain.data, np.repeat(row_max(gain), width)).astype(np.float64)
    if ties == "random":
        rank *= rng.uniform(0.5, 1.0, size=rank.shape)
    is_best = rank == np.repeat(np.maximum.reduceat(rank, start), width)
    columns = np.where(is_best, gain.indices, gain.shape[1])
    return np.minimum.reduceat(columns, start).astype(np.int64)


def share_ties(gain: FloatArray) -> FloatArray:
    """Share 1 equally among the largest gains of each row, up to rounding, shape (n, C)."""
    tied = _reaches(gain, gain.max(axis=1, keepdims=True))
    return np.asarray(tied / tied.sum(axis=1, keepdims=True))


def _with_abstention(values: AnyArray, abstain: Any) -> AnyArray:
    """Return class values followed by the value for abstaining."""
    whole, text = values.dtype.kind in "iu", values.dtype.kind in "UT"
    if abstain is None and whole:
        abstain = MISSING
    if abstain in values.tolist():
        raise AnnotationError(
            f"abstain={abstain!r} is a class, so it cannot also mean abstaining; pass another value"
        )
    fits = (whole and isinstance(abstain, int | np.integer)) or (text and isinstance(abstain, str))
    return np.array([*values.tolist(), abstain], dtype=None if fits else object)
