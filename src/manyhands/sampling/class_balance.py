"""Corrections for class imbalance among annotations, for classifiers trained by gradient descent.

.. [1] Y. Cui, M. Jia, T.-Y. Lin, Y. Song, S. Belongie. Class-balanced loss based on effective
   number of samples. CVPR 2019.
.. [2] T.-Y. Lin, P. Goyal, R. Girshick, K. He, P. Dollar. Focal loss for dense object detection.
   ICCV 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray, IntArray

_USED_BY = {"gamma": ("focal", "cb_focal"), "beta": ("cb_focal",)}
"""The balances that use each parameter."""

BALANCES = ("resample", "reweight", "focal", "cb_focal")


@dataclass(frozen=True)
class ClassBalance:
    """A correction for class imbalance; see ``class_balance`` of `BaseCrowdClassifier`.

    Attributes
    ----------
    name : one of `BALANCES`
        "resample": annotations of each class are repeated at random until there are as many as
        there are of the most frequent class. "reweight": an annotation of class c has weight max N
        / N_c, where N_c is the number of annotations of class c. "focal": each annotation has
        weight (1 - p)^gamma, where p is its current probability [2]_. "cb_focal": focal, with class
        weights (1 - beta) / (1 - beta^N_c) that sum to the number of classes seen [1]_. As in
        DASC's sections 4.1 and 4.4.
    gamma : float
        Exponent of the focal losses.
    beta : float in [0, 1)
        Parameter of "cb_focal".
    """

    name: str
    gamma: float = 2.0
    beta: float = 0.9999

    @property
    def focus(self) -> float:
        """Exponent of the focal factor; 0 without one."""
        return self.gamma if self.name in ("focal", "cb_focal") else 0.0

    def class_weights(self, counts: FloatArray) -> FloatArray:
        """Return the weight of an example of each class, from class counts; 0 for absent ones.

        Parameters
        ----------
        counts : array of shape (n_classes,)

        Returns
        -------
        array of shape (n_classes,)
        """
        counts = np.asarray(counts, dtype=np.float64)
        seen = counts > 0
        weights = seen.astype(np.float64)
        if self.name == "reweight":
            weights[seen] = counts.max() / counts[seen]
        if self.name == "cb_focal" and seen.any():
            # 1 - beta^N without loss of precision for beta near 1 and large N.
            effective = -np.expm1(counts[seen] * np.log(self.beta)) if self.beta else 1.0
            weights[seen] = (1 - self.beta) / effective
            weights *= seen.sum() / weights.sum()
        return weights

    def factors(
        self, labels: IntArray, n_classes: int, given: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Return the factors by which to multiply the weight of each example.

        Parameters
        ----------
        labels : integer array of shape (m,)
        n_classes : int
        given : array of shape (m,)
            Existing weights of the examples; "reweight" and "cb_focal" count with them.
        rng : Generator

        Returns
        -------
        array of shape (m,)
        """
        if self.name == "resample":
            return _multiplicities(labels, n_classes, rng)
        counts = np.bincount(labels, weights=given, minlength=n_classes).astype(np.float64)
        return self.class_weights(counts)[labels]

    def target_weights(self, targets: FloatArray, rng: np.random.Generator) -> FloatArray | None:
        """Return the weights per instance and class that balance target distributions.

        Parameters
        ----------
        targets : array of shape (n, n_classes)
            Rows of zeros are instances without a target.
        rng : Generator

        Returns
        -------
        array of shape (n, n_classes), or None if all weights are equal
            "resample" draws instances by a class drawn from their target. The others weight
            classes: each target counts by its share of the class, and a class counts as at least
            one instance.
        """
        if self.name == "resample":
            with_target = np.flatnonzero(targets.any(axis=1))
            weights = np.ones(targets.shape)
            # Draw the class by its share, so that ties do not all count for one class.
            ends = targets[with_target].cumsum(axis=1)
            labels = (ends < rng.random((len(with_target), 1)) * ends[:, -1:]).sum(axis=1)
            multiplicities = _multiplicities(labels, targets.shape[1], rng)
            weights[with_target] = multiplicities[:, None]
        else:
            counts = targets.sum(axis=0)
            # Posteriors put a tiny mass on classes that nobody gave. Its inverse would overflow, or
            # let such a class dominate.
            by_class = self.class_weights(np.where(counts > 0, np.maximum(counts, 1.0), 0.0))
            seen = by_class[by_class > 0]
            if np.allclose(seen, seen[:1]):
                return None
            weights = np.broadcast_to(by_class, targets.shape)
        return None if np.allclose(weights, weights[:1, :1]) else weights

    def balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable:
        """Return the table with balancing weights, or unchanged if these are all equal."""
        factors = self.factors(table.label, table.n_classes, table.weight, rng)
        if np.allclose(factors, factors[:1]):
            return table
        return replace(table, weights=factors * table.weight)


def make_balance(spec: Any) -> ClassBalance | None:
    """Read ``class_balance``: None, a name, or a dict with name, gamma and beta.

    Raises
    ------
    AnnotationError
        If the name or a parameter is unknown or out of its range.
    """
    if spec is None:
        return None
    given = dict(spec) if isinstance(spec, Mapping) else {"name": spec}
    unknown = sorted(set(given) - {"name", "gamma", "beta"})
    if unknown:
        raise AnnotationError(
            f"class_balance={spec!r} has the unknown key {unknown[0]!r}; its keys are name, gamma "
            "and beta"
        )
    if given.get("name") not in BALANCES:
        raise AnnotationError(
            f"class_balance={spec!r} is unknown; use None, {', '.join(map(repr, BALANCES))}, or a "
            "dict of name, gamma and beta"
        )
    idle = {
        name for name, users in _USED_BY.items() if name in given and given["name"] not in users
    }
    if idle:
        name = min(idle)
        raise AnnotationError(
            f"class_balance={spec!r}: {name} has no effect on {given['name']!r}; it belongs to "
            f"{' and '.join(map(repr, _USED_BY[name]))}"
        )
    balance = ClassBalance(**given)
    for name, low, high in (("gamma", 0.0, np.inf), ("beta", 0.0, 1.0)):
        value = getattr(balance, name)
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not low <= float(value) < high:
            raise AnnotationError(
                f"class_balance={spec!r}: {name}={value!r} must be a number from {low:g} to below "
                f"{high:g}"
            )
    return balance


def _multiplicities(labels: IntArray, n_classes: int, rng: np.random.Generator) -> FloatArray:
    """Return how often each example counts: once, plus random repeats to balance the classes."""
    counts = np.bincount(labels, minlength=n_classes)
    times = np.ones(len(labels))
    for c in np.flatnonzero((counts > 0) & (counts < counts.max())):
        rows = np.flatnonzero(labels == c)
        extra = rng.integers(len(rows), size=counts.max() - len(rows))
        times[rows] += np.bincount(extra, minlength=len(rows))
    return times
