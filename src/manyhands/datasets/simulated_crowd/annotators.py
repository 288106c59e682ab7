"""Who the simulated annotators are, how each confuses the classes, and the labels they give."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.datasets.simulated_crowd.checks import Rng, blocks, check_share
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

PATTERNS = ("asymmetric", "symmetric", "uniform")


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
    """Confusion matrix of each annotator, including spammers and adversaries."""
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
    """One confusion matrix per entry of ``strength``."""
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
    """For each class, another class chosen uniformly."""
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
