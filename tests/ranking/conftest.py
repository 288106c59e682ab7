"""Simulated comparisons."""

from typing import NamedTuple

import numpy as np

from manyhands import ComparisonTable


class Crowd(NamedTuple):
    """What comparisons were drawn from, and the comparisons."""

    theta: np.ndarray
    reliability: np.ndarray
    position: np.ndarray
    table: ComparisonTable


def crowd(
    seed=0, n=12, r=15, m=1500, *, ties=-0.5, own=0.3, reliability=None, position=None, effect=0.0,
    questions=None, theta=None, odd_ties=0.0,
):  # fmt: skip
    """Draw comparisons of the model.

    ``effect`` is the spread of what questions add to a pair, and ``odd_ties`` what the tendency to
    ties of the first annotator is higher by.
    """
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n) if theta is None else theta
    a = np.ones(r) if reliability is None else np.asarray(reliability, dtype=float)
    b = np.zeros(r) if position is None else np.asarray(position, dtype=float)
    u = ties + rng.normal(0, own, r)
    u[0] += odd_ties
    left = rng.integers(0, n, m)
    right = (left + rng.integers(1, n, m)) % n
    who = rng.integers(0, r, m)
    asked = None
    more = np.zeros(m)
    if questions is not None:
        asked = rng.integers(0, questions, m)
        taste = rng.normal(0, effect, (questions, n))
        more = taste[asked, left] - taste[asked, right]
    eta = a[who] * (theta[left] - theta[right] + more) + b[who]
    logits = np.column_stack([eta / 2, u[who], -eta / 2])
    proba = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    outcome = (rng.random(m)[:, None] > proba.cumsum(1)).sum(1)
    table = ComparisonTable(
        left, right, who, outcome, np.array([f"i{k}" for k in range(n)]),
        np.array([f"a{k}" for k in range(r)]), asked,
        None if questions is None else np.arange(questions),
    )  # fmt: skip
    return Crowd(theta, a, b, table)
