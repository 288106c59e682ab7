"""Simulated annotators for any labelled data: the place where the truth is known.

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

__all__ = ["CrowdTruth", "make_crowd"]

Rng: TypeAlias = np.random.RandomState

_NUMBERS = (int, float, np.integer, np.floating)
_PATTERNS = ("asymmetric", "symmetric", "uniform")
# Cells (rows times columns) worked on at a time; bounds the memory of a simulation.
_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class CrowdTruth:
    """What `make_crowd` knows and an analyst does not.

    Attributes
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
        Individual confusion, [annotator, true, given]; rows sum to 1.
    common_confusion : array of shape (n_classes, n_classes) or None
        [true, given]; None without common noise.
    gate : array of shape (n_annotations,)
        Probability that the annotation comes from the common confusion, in the table's order.
    from_common : bool array of shape (n_annotations,)
        Whether it does.
    guessed : bool array of shape (n_annotations,)
        Whether the annotator guessed blindly instead (``difficulty_drift``); ``from_common`` is
        False there.
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
        """Keep what is said of some annotations, as ``AnnotationTable.take`` keeps these."""
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
        True classes. Imbalance of the classes is that of ``y``.
    X : array-like of shape (n_instances, ...), optional
        Features, on which the gate of the common confusion depends; default: random ones.
    n_annotators : int
    annotations_per_instance : float, or one per class
        Mean number of annotations of an instance; their number is 1 + a binomial count, so every
        instance has one at least, and nobody annotates an instance twice. One mean per class (in
        the order of ``classes``) makes annotations imbalanced.
    noise : {"asymmetric", "symmetric", "uniform"} or array of shape (C, C) or (R, C, C)
        Individual confusion. "asymmetric": each annotator mistakes every class for one other,
        uniformly chosen class; "symmetric": classes are paired at random and taken for each other
        (of an odd number one class is left, and never mistaken); "uniform": for all others
        alike. An array [annotator, true, given] is taken as it is.
    noise_strength : float, (low, high) or array of shape (n_annotators,)
        Probability of a mistake, for all, drawn uniformly for each, or given for each annotator.
    common_noise : {"asymmetric", "symmetric", "uniform"} or array of shape (C, C), optional
        Confusion that all honest annotators share, as in ``noise``; default: none.
    common_strength : float
        Probability of a mistake under the common confusion.
    common_proportion : float
        Mean, over the annotations of honest annotators, of the probability omega that an
        annotation comes from the common confusion.
    gate_temperature : float
        Spread of omega (see Notes); 0: omega is the same everywhere.
    embedding_dim : int
        Dimension of the hidden embeddings of annotators and instances.
    spammers : float
        Share of annotators who answer independently of the truth: one half at random, the others
        one and the same class each.
    adversaries : float
        Share of annotators who recognise as the honest ones do, then name another class according
        to a permutation of their own that leaves no class in its place.
    activity : {"even", "skewed"} or array of shape (n_annotators,)
        Relative workloads: equal, falling as 1/rank (Zipf) in random order, or given.
    difficulty_drift : float
        Growth of noise over an annotator's work, which goes through the instances in their order:
        the probability of a blind guess rises linearly from 0 at the first annotation to
        ``difficulty_drift`` at the last.
    classes : sequence, optional
        All classes, in the order wanted; default: the sorted values of ``y``.
    random_state : int, RandomState or None
    return_truth : bool
        Return the truth of the simulation, too.

    Returns
    -------
    table : AnnotationTable
        Rows sorted by instance.
    truth : CrowdTruth
        Only with ``return_truth=True``.

    Raises
    ------
    AnnotationError
        If a parameter is out of its range.

    Notes
    -----
    For annotator r and instance n, omega = sigmoid(T u_r . v_n + b), Eq. (3) of [1]_, where u_r
    and v_n are unit vectors, random linear maps of hidden features of the annotator and of the
    standardised X, and the bias b makes the mean of omega ``common_proportion``. As printed T is
    1, and omega hardly leaves its mean; ``gate_temperature`` gives it spread.

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
    n, r, c = len(true), _whole(n_annotators, "n_annotators"), len(classes)
    _check_share(common_strength, "common_strength")
    _check_share(difficulty_drift, "difficulty_drift")
    kind = _kinds(r, spammers, adversaries, rng)
    confusion = _individual(noise, noise_strength, kind, c, rng)
    common = None
    if common_noise is not None:
        common = _confusions(common_noise, np.array([common_strength]), c, "common_noise", rng)[0]
    instance, annotator = _assign(
        _means(annotations_per_instance, true, c, r), _workloads(activity, r, rng), rng
    )

    gate = _Gate(common_proportion, gate_temperature, embedding_dim)
    omega = np.zeros(len(instance))
    if common is not None:
        honest = kind[annotator] == "honest"
        omega[honest] = gate.omega(
            _features(X, n, rng), r, instance[honest], annotator[honest], rng
        )
    guessed = rng.random_sample(len(omega)) < difficulty_drift * _progress(annotator, r)
    from_common = (rng.random_sample(len(omega)) < omega) & ~guessed
    tables = confusion if common is None else np.concatenate([confusion, common[None]])
    label = _draw(tables, np.where(from_common, r, annotator), true[instance], rng)
    label[guessed] = rng.randint(c, size=int(guessed.sum()))
    table = AnnotationTable(instance, annotator, label, np.arange(n), np.arange(r), classes)
    if not return_truth:
        return table
    return table, CrowdTruth(confusion, common, omega, from_common, guessed, kind)


# -- parameters -------------------------------------------------------------------------------


def _true_classes(y: Any, classes: Any) -> tuple[IntArray, AnyArray]:
    y = np.asarray(y)
    if y.ndim != 1 or not len(y):
        raise AnnotationError(f"y must hold one true class an instance, got shape {y.shape}")
    if missing_mask(y).any():
        raise AnnotationError(
            f"y is missing for instance {int(np.argmax(missing_mask(y)))}; an annotator needs a "
            "true class to confuse. Leave such instances out"
        )
    known = None if classes is None else make_vocabulary(classes, "classes")
    true, vocabulary = encode(y, known, argument="y", vocabulary_name="classes")
    if len(vocabulary) < 2:
        raise AnnotationError(
            f"y holds one class only, {vocabulary[0].item()!r}; name all in classes="
        )
    return true, vocabulary


def _whole(value: Any, argument: str) -> int:
    if not isinstance(value, _NUMBERS) or isinstance(value, bool) or value % 1 != 0 or value < 1:
        raise AnnotationError(f"{argument}={value!r} must be a whole number, 1 or more")
    return int(value)


def _check_share(value: Any, argument: str) -> None:
    if not (isinstance(value, _NUMBERS) and 0 <= value <= 1):
        raise AnnotationError(f"{argument}={value!r} must lie in [0, 1]")


def _means(mean: Any, true: IntArray, c: int, r: int) -> FloatArray:
    """Mean number of annotations of every instance."""
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
            f"instance has an annotator, and nobody of the n_annotators={r} annotates it twice"
        )
    return np.array(np.broadcast_to(means, (c,))[true])


def _workloads(activity: Any, r: int, rng: Rng) -> FloatArray:
    """Relative workload of every annotator."""
    if isinstance(activity, str):
        if activity not in ("even", "skewed"):
            raise AnnotationError(
                f"activity={activity!r} is unknown; use 'even', 'skewed' or one weight an annotator"
            )
        return np.asarray(1.0 / (1.0 + rng.permutation(r)) if activity == "skewed" else np.ones(r))
    weights: FloatArray = np.asarray(activity, dtype=np.float64)
    if weights.shape != (r,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise AnnotationError(
            f"activity must hold one positive weight for each of {r} annotators, got shape "
            f"{weights.shape}" + (f", minimum {weights.min()}" if weights.size else "")
        )
    return np.asarray(weights / weights.max())


# -- annotators -------------------------------------------------------------------------------


def _kinds(r: int, spammers: float, adversaries: float, rng: Rng) -> AnyArray:
    _check_share(spammers, "spammers")
    _check_share(adversaries, "adversaries")
    spam, against = round(spammers * r), round(adversaries * r)
    if spam + against > r:
        raise AnnotationError(
            f"spammers={spammers} and adversaries={adversaries} together exceed 1; lower one"
        )
    kind = np.array(
        ["spammer"] * spam + ["adversary"] * against + ["honest"] * (r - spam - against)
    )
    return kind[rng.permutation(r)]


def _individual(noise: Any, strength: Any, kind: AnyArray, c: int, rng: Rng) -> FloatArray:
    """Confusion of every annotator, spammers and adversaries included."""
    r = len(kind)
    confusion = _confusions(noise, _strengths(strength, r, rng), c, "noise", rng)
    for index in np.flatnonzero(kind == "adversary"):
        confusion[index] = confusion[index][:, _derangement(c, rng)]
    for place, index in enumerate(np.flatnonzero(kind == "spammer")):
        row = np.full(c, 1.0 / c) if place % 2 == 0 else np.eye(c)[rng.randint(c)]
        confusion[index] = row
    return confusion


def _strengths(strength: Any, r: int, rng: Rng) -> FloatArray:
    if isinstance(strength, tuple) and len(strength) == 2:
        for bound in strength:
            _check_share(bound, "noise_strength")
        low, high = sorted(strength)
        return np.asarray(rng.uniform(low, high, size=r))
    values: FloatArray = np.asarray(strength, dtype=np.float64)
    if values.shape not in ((), (r,)) or not ((values >= 0) & (values <= 1)).all():
        raise AnnotationError(
            f"noise_strength={strength!r} must be a probability, a tuple (low, high) or one for "
            f"each of {r} annotators"
        )
    return np.array(np.broadcast_to(values, (r,)))


def _confusions(noise: Any, strength: FloatArray, c: int, argument: str, rng: Rng) -> FloatArray:
    """One confusion matrix for every entry of ``strength``."""
    if not isinstance(noise, str):
        return _given(noise, len(strength), c, argument)
    if noise not in _PATTERNS:
        raise AnnotationError(
            f"{argument}={noise!r} is unknown; use {', '.join(map(repr, _PATTERNS))} or an array"
        )
    if noise == "uniform":
        mistakes = np.broadcast_to((1.0 - np.eye(c)) / (c - 1), (len(strength), c, c))
    else:
        target = _one_other if noise == "asymmetric" else _paired
        mistakes = np.eye(c)[np.stack([target(c, rng) for _ in strength])]
    s = strength[:, None, None]
    return (1.0 - s) * np.eye(c) + s * mistakes


def _one_other(c: int, rng: Rng) -> IntArray:
    """Another class for every class, chosen uniformly."""
    return (np.arange(c) + 1 + rng.randint(c - 1, size=c)) % c


def _paired(c: int, rng: Rng) -> IntArray:
    """Pair the classes at random; of an odd number one is its own partner."""
    order, partner = rng.permutation(c), np.arange(c)
    first, second = order[: c - 1 : 2], order[1::2]
    partner[first], partner[second] = second, first
    return partner


def _derangement(c: int, rng: Rng) -> IntArray:
    """Draw a permutation that leaves nothing in its place."""
    while True:
        order = rng.permutation(c)
        if (order != np.arange(c)).all():
            return order


def _given(noise: Any, k: int, c: int, argument: str) -> FloatArray:
    matrices = np.asarray(noise, dtype=np.float64)
    shapes = [(c, c), (k, c, c)]
    if matrices.shape not in shapes:
        raise AnnotationError(
            f"{argument} has shape {matrices.shape}; an array of confusions [true, given] has "
            f"shape {(c, c)}" + (f", or {(k, c, c)} with one an annotator" if k > 1 else "")
        )
    sums = matrices.sum(axis=-1)
    if not (matrices >= 0).all() or not np.allclose(sums, 1.0):
        raise AnnotationError(
            f"{argument} holds a row that is no distribution (minimum {matrices.min()}, sums from "
            f"{sums.min()} to {sums.max()}); rows [true, given] are non-negative and sum to 1"
        )
    return np.array(np.broadcast_to(matrices / sums[..., None], (k, c, c)))


# -- who annotates what -----------------------------------------------------------------------


def _blocks(n: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(width, 1))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _assign(means: FloatArray, weights: FloatArray, rng: Rng) -> tuple[IntArray, IntArray]:
    """Draw the annotators of every instance, without repetition, by their weights."""
    r = len(weights)
    counts = 1 + (
        rng.binomial(r - 1, (means - 1) / (r - 1)) if r > 1 else np.zeros(len(means), int)
    )
    chosen = []
    for block in _blocks(len(counts), r):
        # Of exponential clocks with these rates, the k that ring first are k successive draws.
        clocks = rng.standard_exponential((block.stop - block.start, r)) / weights
        k = counts[block]
        chosen.append(_smallest(clocks, int(k.max()))[np.arange(k.max()) < k[:, None]])
    return np.repeat(np.arange(len(counts)), counts), np.concatenate(chosen)


def _smallest(values: FloatArray, k: int) -> IntArray:
    """Return the columns of the k smallest values of every row, in their order."""
    columns = np.argpartition(values, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, columns, axis=1), axis=1)
    return np.take_along_axis(columns, order, axis=1)


def _progress(annotator: IntArray, r: int) -> FloatArray:
    """How far its annotator had come at every annotation, from 0 to 1."""
    order = np.argsort(annotator, kind="stable")
    counts = np.bincount(annotator, minlength=r)
    rank = np.empty(len(annotator))
    rank[order] = np.arange(len(annotator)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank / np.maximum(counts - 1, 1)[annotator]


# -- the gate of the common confusion ---------------------------------------------------------


@dataclass(frozen=True)
class _Gate:
    """Probability of the common confusion, Eq. (3): sigmoid(temperature u_r . v_n + bias)."""

    proportion: float
    temperature: float
    dim: int

    def __post_init__(self) -> None:
        _check_share(self.proportion, "common_proportion")
        _whole(self.dim, "embedding_dim")
        if not (isinstance(self.temperature, _NUMBERS) and 0 <= self.temperature < np.inf):
            raise AnnotationError(
                f"gate_temperature={self.temperature!r} must be finite and not negative"
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
        for block in _blocks(len(instance), self.dim):
            logits[block] = np.einsum("me,me->m", u[annotator[block]], v[instance[block]])
        return _shifted(self.temperature * logits, self.proportion)


def _features(X: Any, n: int, rng: Rng) -> FloatArray:
    """Standardised features, random ones where there are none."""
    if X is None:
        return rng.standard_normal((n, 10))
    X = np.asarray(X, dtype=np.float64)
    if X.ndim == 0 or len(X) != n:
        raise AnnotationError(
            f"X has shape {X.shape} for {n} true classes; give one row an instance"
        )
    X = X.reshape(n, -1)
    if not np.isfinite(X).all():
        raise AnnotationError("X holds NaN or infinity; impute or drop these cells")
    spread = X.std(axis=0)
    standard: FloatArray = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return standard


def _unit(features: FloatArray, dim: int, rng: Rng) -> FloatArray:
    """Random affine map to ``dim`` axes, then rows of length 1."""
    d = features.shape[1]
    weight: FloatArray = rng.standard_normal((d, dim)) / np.sqrt(d)
    bias: FloatArray = rng.standard_normal(dim) / 10
    mapped: FloatArray = features @ weight + bias
    mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    return mapped


def _shifted(logits: FloatArray, proportion: float) -> FloatArray:
    """Bisect for the bias that gives the sigmoids of the logits the mean wanted."""
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


# -- labels -----------------------------------------------------------------------------------


def _draw(tables: FloatArray, which: IntArray, true: IntArray, rng: Rng) -> IntArray:
    """Draw a class from row ``true`` of the confusion ``which``, for every annotation."""
    cumulative = tables.cumsum(axis=2)
    # Rounding may leave the last sum below 1, and a draw beyond it without a class.
    cumulative[..., -1] = 1.0
    label = np.empty(len(which), dtype=np.int64)
    for block in _blocks(len(which), tables.shape[2]):
        u = rng.random_sample(block.stop - block.start)
        label[block] = (u[:, None] >= cumulative[which[block], true[block]]).sum(axis=1)
    return label
