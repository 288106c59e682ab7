"""Simulating annotators for labelled data, so that the truth is known.

References
----------
.. [1] Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021,
   "Experiments on Synthesized Datasets" and Eq. (3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode, make_vocabulary, missing_mask
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

Rng: TypeAlias = np.random.RandomState

NUMBERS = (int, float, np.integer, np.floating)

PATTERNS = ("asymmetric", "symmetric", "uniform")
"""Names of patterns of individual and common confusions."""

CELLS_AT_ONCE = 1 << 22
"""Cells (rows times columns) that are processed at a time, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class CrowdTruth:
    """The truth of a crowd simulated by `make_crowd`, which is unknown for a real crowd.

    Attributes
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
        Individual confusion matrices, indexed [annotator, true, given]; rows sum to 1.
    common_confusion : array of shape (n_classes, n_classes) or None
        Common confusion matrix, indexed [true, given]; None without common noise.
    gate : array of shape (n_annotations,)
        Probability that the annotation comes from the common confusion, in the table's order.
    from_common : bool array of shape (n_annotations,)
        Whether the annotation comes from the common confusion.
    guessed : bool array of shape (n_annotations,)
        Whether the annotator guessed blindly instead (``difficulty_drift``), in which case
        ``from_common`` is False.
    kind : array of str of shape (n_annotators,)
        "honest", "spammer" or "adversary".
    """

    confusion: FloatArray
    common_confusion: FloatArray | None
    gate: FloatArray
    from_common: BoolArray
    guessed: BoolArray
    kind: AnyArray

    def take(self, rows: Any) -> CrowdTruth:
        """Select annotations, as ``AnnotationTable.take`` does."""
        return replace(
            self,
            gate=self.gate[rows],
            from_common=self.from_common[rows],
            guessed=self.guessed[rows],
        )


class _Parameters(TypedDict, total=False):
    X: Any
    n_annotators: int
    annotations_per_instance: Any
    noise: Any
    noise_strength: Any
    common_noise: Any
    common_strength: float
    common_proportion: float
    gate_temperature: float
    embedding_dim: int
    spammers: float
    adversaries: float
    activity: Any
    difficulty_drift: float
    classes: Any
    random_state: Any


@overload
def make_crowd(
    y: Any, *, return_truth: Literal[False] = ..., **parameters: Unpack[_Parameters]
) -> AnnotationTable: ...


@overload
def make_crowd(
    y: Any, *, return_truth: Literal[True], **parameters: Unpack[_Parameters]
) -> tuple[AnnotationTable, CrowdTruth]: ...


def make_crowd(
    y: Any,
    *,
    X: Any = None,
    n_annotators: int = 30,
    annotations_per_instance: Any = 3.0,
    noise: Any = "asymmetric",
    noise_strength: Any = 0.3,
    common_noise: Any = None,
    common_strength: float = 0.4,
    common_proportion: float = 0.5,
    gate_temperature: float = 10.0,
    embedding_dim: int = 20,
    spammers: float = 0.0,
    adversaries: float = 0.0,
    activity: Any = "even",
    difficulty_drift: float = 0.0,
    classes: Any = None,
    random_state: Any = None,
    return_truth: bool = False,
) -> AnnotationTable | tuple[AnnotationTable, CrowdTruth]:
    """Simulate a crowd that annotates labelled data.

    Parameters
    ----------
    y : array-like of shape (n_instances,)
        True classes; their imbalance is kept.
    X : array-like of shape (n_instances, ...), optional
        Features, on which the gate of the common confusion depends; default: random features.
    n_annotators : int
    annotations_per_instance : float, or one per class
        Mean number of annotations per instance. The number is 1 plus a binomial count, so every
        instance has at least one annotation; no annotator annotates an instance twice. One mean per
        class (in the order of ``classes``) makes the annotations imbalanced.
    noise : {"asymmetric", "symmetric", "uniform"} or array of shape (C, C) or (R, C, C)
        Individual confusion. "asymmetric": each annotator mistakes each class for one other class,
        chosen uniformly. "symmetric": classes are paired at random and mistaken for each other
        (with an odd number of classes, one remains that is never mistaken). "uniform": each class
        is mistaken for all others with equal probability. An array [annotator, true, given] is used
        as it is.
    noise_strength : float, (low, high) or array of shape (n_annotators,)
        Probability of a mistake: one for all annotators, a range from which each annotator's is
        drawn uniformly, or one per annotator.
    common_noise : {"asymmetric", "symmetric", "uniform"} or array of shape (C, C), optional
        Confusion that all honest annotators share, as in ``noise``; default: no common confusion.
    common_strength : float
        Probability of a mistake under the common confusion.
    common_proportion : float
        Mean, over the annotations of honest annotators, of the probability omega that an
        annotation comes from the common confusion.
    gate_temperature : float
        Spread of omega (see Notes); 0 makes omega constant.
    embedding_dim : int
        Dimension of the hidden embeddings of annotators and instances.
    spammers : float
        Share of annotators who answer independently of the truth. Half of them answer uniformly at
        random; each of the others always gives the same class.
    adversaries : float
        Share of annotators who perceive classes like honest annotators but then permute them, each
        by a permutation without fixed points.
    activity : {"even", "skewed"} or array of shape (n_annotators,)
        Relative workloads: equal, proportional to 1/rank (Zipf) in random order, or given.
    difficulty_drift : float
        Growth of noise while an annotator works through the instances in order: the probability of
        a blind guess rises linearly from 0 at the annotator's first annotation to
        ``difficulty_drift`` at the last.
    classes : sequence, optional
        All classes, in the desired order; default: the sorted values of ``y``.
    random_state : int, RandomState or None
    return_truth : bool
        Whether to also return the truth of the simulation.

    Returns
    -------
    table : AnnotationTable
        Rows sorted by instance.
    truth : CrowdTruth
        Only with ``return_truth=True``.

    Raises
    ------
    AnnotationError
        If a parameter is out of range.

    Notes
    -----
    For annotator r and instance n, omega = sigmoid(T u_r . v_n + b), Eq. (3) of [1]_. u_r and v_n
    are unit vectors: random affine maps of hidden features of the annotator and of the standardised
    X. The bias b makes the mean of omega equal to ``common_proportion``. In the paper T is 1, which
    keeps omega close to its mean; ``gate_temperature`` spreads it.

    References
    ----------
    .. [1] Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021.

    Examples
    --------
    >>> from manyhands.datasets import make_crowd
    >>> table, truth = make_crowd([0, 1, 2] * 100, random_state=0, return_truth=True)
    >>> table.n_instances, table.n_annotators, table.n_classes
    (300, 30, 3)
    >>> truth.confusion[0].sum(axis=1)
    array([1., 1., 1.])
    """
    rng = check_random_state(random_state)
    true, classes = _true_classes(y, classes)
    n, r, c = len(true), whole_number(n_annotators, "n_annotators"), len(classes)
    check_share(common_strength, "common_strength")
    check_share(difficulty_drift, "difficulty_drift")
    kind = annotator_kinds(r, spammers, adversaries, rng)
    confusion = individual_confusions(noise, noise_strength, kind, c, rng)
    common = None
    if common_noise is not None:
        common = confusions(common_noise, np.array([common_strength]), c, "common_noise", rng)[0]
    instance, annotator = assign(
        mean_counts(annotations_per_instance, true, c, r), workloads(activity, r, rng), rng
    )

    gate = Gate(common_proportion, gate_temperature, embedding_dim)
    omega = np.zeros(len(instance))
    if common is not None:
        honest = kind[annotator] == "honest"
        seen = features_of(X, n, rng)
        omega[honest] = gate.omega(seen, r, instance[honest], annotator[honest], rng)
    guessed = rng.random_sample(len(omega)) < difficulty_drift * progress(annotator, r)
    from_common = (rng.random_sample(len(omega)) < omega) & ~guessed
    tables = confusion if common is None else np.concatenate([confusion, common[None]])
    label = draw_labels(tables, np.where(from_common, r, annotator), true[instance], rng)
    label[guessed] = rng.randint(c, size=int(guessed.sum()))
    table = AnnotationTable(instance, annotator, label, np.arange(n), np.arange(r), classes)
    if not return_truth:
        return table
    return table, CrowdTruth(confusion, common, omega, from_common, guessed, kind)


def _true_classes(y: Any, classes: Any) -> tuple[IntArray, AnyArray]:
    y = np.asarray(y)
    if y.ndim != 1 or not len(y):
        raise AnnotationError(f"y must hold one true class per instance, got shape {y.shape}")
    if missing_mask(y).any():
        raise AnnotationError(
            f"y is missing for instance {int(np.argmax(missing_mask(y)))}; simulating annotations "
            "requires true classes. Leave such instances out"
        )
    known = None if classes is None else make_vocabulary(classes, "classes")
    true, vocabulary = encode(y, known, argument="y", vocabulary_name="classes")
    if len(vocabulary) < 2:
        raise AnnotationError(
            f"y holds only one class, {vocabulary[0].item()!r}; name all classes in classes="
        )
    return true, vocabulary


# -- annotators: who they are, how each confuses the classes, the labels they give ----------------


def annotator_kinds(r: int, spammers: float, adversaries: float, rng: Rng) -> AnyArray:
    """Draw who is honest, a spammer or an adversary, shape (n_annotators,)."""
    check_share(spammers, "spammers")
    check_share(adversaries, "adversaries")
    spam, against = round(spammers * r), round(adversaries * r)
    if spam + against > r:
        raise AnnotationError(
            f"spammers={spammers} and adversaries={adversaries} together exceed 1; lower one"
        )
    kind = np.array(
        ["spammer"] * spam + ["adversary"] * against + ["honest"] * (r - spam - against)
    )
    return kind[rng.permutation(r)]


def individual_confusions(
    noise: Any, strength: Any, kind: AnyArray, c: int, rng: Rng
) -> FloatArray:
    """Return the confusion matrix of each annotator, including spammers and adversaries."""
    r = len(kind)
    confusion = confusions(noise, _strengths(strength, r, rng), c, "noise", rng)
    for index in np.flatnonzero(kind == "adversary"):
        confusion[index] = confusion[index][:, _derangement(c, rng)]
    for place, index in enumerate(np.flatnonzero(kind == "spammer")):
        row = np.full(c, 1.0 / c) if place % 2 == 0 else np.eye(c)[rng.randint(c)]
        confusion[index] = row
    return confusion


def _strengths(strength: Any, r: int, rng: Rng) -> FloatArray:
    if isinstance(strength, tuple) and len(strength) == 2:
        for bound in strength:
            check_share(bound, "noise_strength")
        low, high = sorted(strength)
        return np.asarray(rng.uniform(low, high, size=r))
    values: FloatArray = np.asarray(strength, dtype=np.float64)
    if values.shape not in ((), (r,)) or not ((values >= 0) & (values <= 1)).all():
        raise AnnotationError(
            f"noise_strength={strength!r} must be a probability, a tuple (low, high) or one "
            f"probability for each of the {r} annotators"
        )
    return np.array(np.broadcast_to(values, (r,)))


def confusions(noise: Any, strength: FloatArray, c: int, argument: str, rng: Rng) -> FloatArray:
    """Return one confusion matrix per entry of ``strength``."""
    if not isinstance(noise, str):
        return _check_confusions(noise, len(strength), c, argument)
    if noise not in PATTERNS:
        raise AnnotationError(
            f"{argument}={noise!r} is unknown; use {', '.join(map(repr, PATTERNS))} or an array"
        )
    if noise == "uniform":
        mistakes = np.broadcast_to((1.0 - np.eye(c)) / (c - 1), (len(strength), c, c))
    else:
        target = _one_other if noise == "asymmetric" else _paired
        mistakes = np.eye(c)[np.stack([target(c, rng) for _ in strength])]
    s = strength[:, None, None]
    return (1.0 - s) * np.eye(c) + s * mistakes


def _one_other(c: int, rng: Rng) -> IntArray:
    """Draw, for each class, another class uniformly."""
    return (np.arange(c) + 1 + rng.randint(c - 1, size=c)) % c


def _paired(c: int, rng: Rng) -> IntArray:
    """Pair the classes at random; with an odd number, one class is its own partner."""
    order, partner = rng.permutation(c), np.arange(c)
    first, second = order[: c - 1 : 2], order[1::2]
    partner[first], partner[second] = second, first
    return partner


def _derangement(c: int, rng: Rng) -> IntArray:
    """Draw a permutation without fixed points."""
    while True:
        order = rng.permutation(c)
        if (order != np.arange(c)).all():
            return order


def _check_confusions(noise: Any, k: int, c: int, argument: str) -> FloatArray:
    matrices = np.asarray(noise, dtype=np.float64)
    shapes = [(c, c), (k, c, c)]
    if matrices.shape not in shapes:
        raise AnnotationError(
            f"{argument} has shape {matrices.shape}; an array of confusions [true, given] must "
            f"have shape {(c, c)}" + (f", or {(k, c, c)} with one per annotator" if k > 1 else "")
        )
    sums = matrices.sum(axis=-1)
    if not (matrices >= 0).all() or not np.allclose(sums, 1.0):
        raise AnnotationError(
            f"{argument} has rows that are not distributions (minimum {matrices.min()}, sums from "
            f"{sums.min()} to {sums.max()}); rows [true, given] must be nonnegative and sum to 1"
        )
    return np.array(np.broadcast_to(matrices / sums[..., None], (k, c, c)))


def draw_labels(tables: FloatArray, which: IntArray, true: IntArray, rng: Rng) -> IntArray:
    """Draw the class of each annotation from row ``true`` of confusion ``which``."""
    cumulative = tables.cumsum(axis=2)
    # Rounding may leave the last sum below 1, so that a draw could exceed it.
    cumulative[..., -1] = 1.0
    label = np.empty(len(which), dtype=np.int64)
    for block in blocks(len(which), tables.shape[2]):
        u = rng.random_sample(block.stop - block.start)
        label[block] = (u[:, None] >= cumulative[which[block], true[block]]).sum(axis=1)
    return label


# -- workload: who annotates what, and how much ---------------------------------------------------


def mean_counts(mean: Any, true: IntArray, c: int, r: int) -> FloatArray:
    """Return the mean number of annotations of each instance, shape (n_instances,)."""
    means = np.asarray(mean, dtype=np.float64)
    if means.shape not in ((), (c,)):
        raise AnnotationError(
            f"annotations_per_instance has shape {means.shape}; give one number, or one per class "
            f"({c})"
        )
    bad = ~((means >= 1) & (means <= r))
    if bad.any():
        raise AnnotationError(
            f"annotations_per_instance={means[bad].ravel()[0]} must lie in [1, {r}]: every "
            f"instance has at least one annotator, and none of the n_annotators={r} annotates it "
            "twice"
        )
    return np.array(np.broadcast_to(means, (c,))[true])


def workloads(activity: Any, r: int, rng: Rng) -> FloatArray:
    """Return the relative workload of each annotator, shape (n_annotators,)."""
    if isinstance(activity, str):
        if activity not in ("even", "skewed"):
            raise AnnotationError(
                f"activity={activity!r} is unknown; use 'even', 'skewed' or one weight per "
                "annotator"
            )
        return np.asarray(1.0 / (1.0 + rng.permutation(r)) if activity == "skewed" else np.ones(r))
    weights: FloatArray = np.asarray(activity, dtype=np.float64)
    if weights.shape != (r,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise AnnotationError(
            f"activity must hold one positive weight for each of the {r} annotators, got shape "
            f"{weights.shape}" + (f", minimum {weights.min()}" if weights.size else "")
        )
    return np.asarray(weights / weights.max())


def assign(means: FloatArray, weights: FloatArray, rng: Rng) -> tuple[IntArray, IntArray]:
    """Draw the annotators of each instance by their weights, without repetition."""
    r = len(weights)
    counts = 1 + (
        rng.binomial(r - 1, (means - 1) / (r - 1)) if r > 1 else np.zeros(len(means), int)
    )
    chosen = []
    for block in blocks(len(counts), r):
        # The k smallest of exponential variables with these rates are k draws without replacement.
        clocks = rng.standard_exponential((block.stop - block.start, r)) / weights
        k = counts[block]
        chosen.append(_smallest(clocks, int(k.max()))[np.arange(k.max()) < k[:, None]])
    return np.repeat(np.arange(len(counts)), counts), np.concatenate(chosen)


def _smallest(values: FloatArray, k: int) -> IntArray:
    """Return the columns of the k smallest values of each row, in ascending order of value."""
    columns = np.argpartition(values, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, columns, axis=1), axis=1)
    return np.take_along_axis(columns, order, axis=1)


def progress(annotator: IntArray, r: int) -> FloatArray:
    """Return the position of each annotation in its annotator's work, from 0 to 1."""
    order = np.argsort(annotator, kind="stable")
    counts = np.bincount(annotator, minlength=r)
    rank = np.empty(len(annotator))
    rank[order] = np.arange(len(annotator)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank / np.maximum(counts - 1, 1)[annotator]


# -- the gate of the common confusion; the one CoNAL learns is in nn.noise_adaptation -------------


@dataclass(frozen=True)
class Gate:
    """Probability of the common confusion, Eq. (3): sigmoid(temperature u_r . v_n + bias)."""

    proportion: float
    temperature: float
    dim: int

    def __post_init__(self) -> None:
        check_share(self.proportion, "common_proportion")
        whole_number(self.dim, "embedding_dim")
        if not (isinstance(self.temperature, NUMBERS) and 0 <= self.temperature < np.inf):
            raise AnnotationError(
                f"gate_temperature={self.temperature!r} must be finite and nonnegative"
            )

    def omega(
        self, X: FloatArray, r: int, instance: IntArray, annotator: IntArray, rng: Rng
    ) -> FloatArray:
        """Return omega at the given annotations; its mean is the proportion."""
        u = _unit(rng.standard_normal((r, self.dim)), self.dim, rng)
        v = _unit(X, self.dim, rng)
        if self.proportion in (0, 1):
            return np.full(len(instance), float(self.proportion))
        logits = np.empty(len(instance))
        for block in blocks(len(instance), self.dim):
            logits[block] = np.einsum("me,me->m", u[annotator[block]], v[instance[block]])
        return _shifted(self.temperature * logits, self.proportion)


def features_of(X: Any, n: int, rng: Rng) -> FloatArray:
    """Return standardised features, or random ones if X is None."""
    if X is None:
        return rng.standard_normal((n, 10))
    X = np.asarray(X, dtype=np.float64)
    if X.ndim == 0 or len(X) != n:
        raise AnnotationError(
            f"X has shape {X.shape} for {n} true classes; give one row per instance"
        )
    X = X.reshape(n, -1)
    if not np.isfinite(X).all():
        raise AnnotationError("X contains NaN or infinity; impute these values or drop the rows")
    spread = X.std(axis=0)
    standard: FloatArray = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return standard


def _unit(features: FloatArray, dim: int, rng: Rng) -> FloatArray:
    """Map features to ``dim`` dimensions by a random affine map, and normalise the rows."""
    d = features.shape[1]
    weight: FloatArray = rng.standard_normal((d, dim)) / np.sqrt(d)
    bias: FloatArray = rng.standard_normal(dim) / 10
    mapped: FloatArray = features @ weight + bias
    mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    return mapped


def _shifted(logits: FloatArray, proportion: float) -> FloatArray:
    """Find, by bisection, the bias for which the mean sigmoid is ``proportion``."""
    high = 50.0 + np.abs(logits).max(initial=0.0)
    low = -high
    for _ in range(45):
        bias = (low + high) / 2
        omega: FloatArray = expit(logits + bias)
        if omega.size and omega.mean() < proportion:
            low = bias
        else:
            high = bias
    return omega


# -- checked numbers, and blocks that bound the memory --------------------------------------------


def whole_number(value: Any, argument: str) -> int:
    """Return a positive whole number, checked.

    Raises
    ------
    AnnotationError
        If the value is not such a number.
    """
    if not isinstance(value, NUMBERS) or isinstance(value, bool) or value % 1 != 0 or value < 1:
        raise AnnotationError(f"{argument}={value!r} must be a whole number of at least 1")
    return int(value)


def check_share(value: Any, argument: str) -> None:
    """Refuse anything but a number in [0, 1].

    Raises
    ------
    AnnotationError
        If the value is not such a number.
    """
    if not (isinstance(value, NUMBERS) and 0 <= value <= 1):
        raise AnnotationError(f"{argument}={value!r} must be a number in [0, 1]")


def blocks(n: int, width: int) -> Iterator[slice]:
    """Yield slices of n rows that stay within `CELLS_AT_ONCE` cells of the given width."""
    step = max(1, CELLS_AT_ONCE // max(width, 1))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
