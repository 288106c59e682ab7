"""Class imbalance among annotations, for every classifier that is trained by gradients.

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
"""What each parameter belongs to."""

BALANCES = ("resample", "reweight", "focal", "cb_focal")


@dataclass(frozen=True)
class ClassBalance:
    """What is done about rare classes; see ``class_balance`` of `BaseCrowdClassifier`.

    Attributes
    ----------
    name : one of `BALANCES`
        "resample": annotations of every class are repeated at random until there are as many as
        of the most frequent class. "reweight": an annotation of class c weighs max N / N_c, with
        N_c annotations of class c. "focal": every annotation weighs (1 - p)^gamma, with p its
        current probability [2]_. "cb_focal": focal, and weights (1 - beta) / (1 - beta^N_c) that
        sum to the number of classes seen [1]_. As in DASC's sections 4.1 and 4.4.
    gamma : float
        Of the focal losses.
    beta : float in [0, 1)
        Of "cb_focal".
    """

    name: str
    gamma: float = 2.0
    beta: float = 0.9999

    @property
    def focus(self) -> float:
        """Exponent of the focal factor; 0 is none."""
        return self.gamma if self.name in ("focal", "cb_focal") else 0.0

    def class_weights(self, counts: FloatArray) -> FloatArray:
        """Weight of an example of every class, from the number of examples; absent classes: 0.

        Parameters
        ----------
        counts : array of shape (n_classes,)
        """
        counts = np.asarray(counts, dtype=np.float64)
        seen = counts > 0
        weights = seen.astype(np.float64)
        if self.name == "reweight":
            weights[seen] = counts.max() / counts[seen]
        if self.name == "cb_focal" and seen.any():
            # 1 - beta^N, without losing digits for beta near 1 and large N.
            effective = -np.expm1(counts[seen] * np.log(self.beta)) if self.beta else 1.0
            weights[seen] = (1 - self.beta) / effective
            weights *= seen.sum() / weights.sum()
        return weights

    def factors(
        self, labels: IntArray, n_classes: int, given: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """What the weight of every example is multiplied by, shape (m,).

        Parameters
        ----------
        labels : integer array of shape (m,)
        n_classes : int
        given : array of shape (m,)
            Weights the examples have already; "reweight" and "cb_focal" count by them.
        rng : Generator
        """
        if self.name == "resample":
            return _multiplicities(labels, n_classes, rng)
        counts = np.bincount(labels, weights=given, minlength=n_classes).astype(np.float64)
        return self.class_weights(counts)[labels]

    def target_weights(self, targets: FloatArray, rng: np.random.Generator) -> FloatArray | None:
        """Weights of every class of every instance that balance target distributions.

        Parameters
        ----------
        targets : array of shape (n, n_classes)
            Rows of zeros are instances without a target.
        rng : Generator

        Returns
        -------
        array of shape (n, n_classes), or None where all are equal
            "resample" draws instances by a class drawn from their target; the others weigh
            classes, of which a target counts as its share, and which count as one instance at
            the least.
        """
        if self.name == "resample":
            some = np.flatnonzero(targets.any(axis=1))
            weights = np.ones(targets.shape)
            # Of a class drawn by its share, so that ties do not all count for one class.
            ends = targets[some].cumsum(axis=1)
            labels = (ends < rng.random((len(some), 1)) * ends[:, -1:]).sum(axis=1)
            drawn = _multiplicities(labels, targets.shape[1], rng)
            weights[some] = drawn[:, None]
        else:
            counts = targets.sum(axis=0)
            # Posteriors leave a trace of mass on classes that nobody named: its inverse would
            # overflow, or make a class of all instances.
            by_class = self.class_weights(np.where(counts > 0, np.maximum(counts, 1.0), 0.0))
            seen = by_class[by_class > 0]
            if np.allclose(seen, seen[:1]):
                return None
            weights = np.broadcast_to(by_class, targets.shape)
        return None if np.allclose(weights, weights[:1, :1]) else weights

    def balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable:
        """Return the table with the weights that balance it; as it is where these are equal."""
        factors = self.factors(table.label, table.n_classes, table.weight, rng)
        if np.allclose(factors, factors[:1]):
            return table
        return replace(table, weights=factors * table.weight)


def make_balance(spec: Any) -> ClassBalance | None:
    """Read ``class_balance``: None, a name, or a dict of name, gamma and beta.

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
            f"class_balance={spec!r} has {unknown[0]!r}; it has name, gamma and beta"
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
                f"class_balance={spec!r}: {name} is {value!r}; it is a number from {low:g} to "
                f"below {high:g}"
            )
    return balance


def _multiplicities(labels: IntArray, n_classes: int, rng: np.random.Generator) -> FloatArray:
    """How often every example is drawn: once, and the rest up to the largest class at random."""
    counts = np.bincount(labels, minlength=n_classes)
    times = np.ones(len(labels))
    for c in np.flatnonzero((counts > 0) & (counts < counts.max())):
        rows = np.flatnonzero(labels == c)
        extra = rng.integers(len(rows), size=counts.max() - len(rows))
        times[rows] += np.bincount(extra, minlength=len(rows))
    return times
