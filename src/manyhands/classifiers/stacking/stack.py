"""Exponents and weights of the members, by the likelihood of the annotations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn import config_context

from manyhands.classifiers.stacking.members import check_log_proba, compacted
from manyhands.inference.probability import floored_log
from manyhands.linear.calibration import calibrate, combine, likelihood_matrix
from manyhands.records import record
from manyhands.typing import FloatArray, IntArray

EXPONENTS = (
    0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0,
)  # fmt: skip
"""Candidate exponents of a member's probabilities."""

ADDED_TO_PROBA = 1e-4
"""Constant added to probabilities before a logarithm, before and after raising them to a power."""


PREDICTED_AT_ONCE = 4096
"""Number of instances that are predicted at once."""


@record("TemperedMember")
@dataclass(frozen=True, eq=False)
class TemperedMember:
    """A fitted member, the exponent of its probabilities, and its weight in the stack.

    The exponent is saved under its former name, ``temperature``.
    """

    predictor: Any
    temperature: float
    weight: float


@dataclass(frozen=True)
class Annotated:
    """The annotations by which members are evaluated.

    Attributes
    ----------
    instance : integer array of shape (n_annotations,)
    likelihood : array of shape (n_annotations, n_classes)
        Probability of the annotation given each true class.
    weight : array of shape (n_annotations,) or None
    """

    instance: IntArray
    likelihood: FloatArray
    weight: FloatArray | None = None

    @cached_property
    def _matrix(self) -> Any:
        return likelihood_matrix(self.likelihood, self.instance, int(self.instance.max()) + 1)

    def given(self, proba: FloatArray) -> FloatArray:
        """Return the probability of every annotation under class probabilities (n, n_classes)."""
        annotated = proba.ravel()[: self._matrix.shape[1]]  # Later instances have no annotations.
        return cast(FloatArray, self._matrix @ annotated)


def temper(log_proba: FloatArray, exponent: float) -> FloatArray:
    """Return the log of softmax(exponent * log(P + 1e-4)) + 1e-4, the input of the stack."""
    return cast(
        FloatArray, np.log(softmax(exponent * _floored(log_proba), axis=1) + ADDED_TO_PROBA)
    )


def _floored(log_proba: FloatArray) -> FloatArray:
    return cast(FloatArray, np.log(np.exp(log_softmax(log_proba, axis=1)) + ADDED_TO_PROBA))


def choose_exponent(log_proba: FloatArray, annotated: Annotated) -> tuple[float, float]:
    r"""Return the most likely exponent, and the mean log likelihood of the annotations.

    Maximises :math:`\sum_{n,r} \log \sum_c p_{nc} \pi_r[c, a_{nr}]` over `EXPONENTS`. The sum
    runs over annotations, not instances.

    Parameters
    ----------
    log_proba : array of shape (n, n_classes)
    annotated : Annotated

    Returns
    -------
    exponent, log_likelihood : float
        The latter in nats.
    """
    floored = _floored(log_proba)
    floored -= floored.max(axis=1, keepdims=True)
    ones = np.ones(floored.shape[1])
    weight = np.ones(len(annotated.instance)) if annotated.weight is None else annotated.weight
    by_instance = np.bincount(annotated.instance, weights=weight, minlength=len(floored))

    def likelihood(exponent: float) -> float:
        powers = np.exp(exponent * floored)
        # log(power / row sum) = log(power) - log(row sum). The latter is subtracted once per
        # instance, times its annotations, instead of normalising every row.
        total = weight @ np.log(annotated.given(powers)) - by_instance @ np.log(powers @ ones)
        return float(total / weight.sum())

    tried = {exponent: likelihood(exponent) for exponent in EXPONENTS}
    best = max(tried, key=lambda exponent: tried[exponent])
    return best, tried[best]


def stack_weights(log_probas: FloatArray, annotated: Annotated) -> FloatArray:
    r"""Return the weights of the members, whose probabilities are raised to their exponents.

    Maximises :math:`\sum_{n,r} \log \sum_c p_{nc} \pi_r[c, a_{nr}] - \sum_m (\log w_m + \log M)^2`
    with :math:`p_n = \mathrm{softmax}(\sum_m w_m l_{nm})`.

    Parameters
    ----------
    log_probas : array of shape (n_members, n, n_classes)
    annotated : Annotated

    Returns
    -------
    array of shape (n_members,)
    """
    log_likelihood = np.log(annotated.likelihood)
    return calibrate(log_probas, log_likelihood, annotated.weight, annotated.instance)


def stacked(log_probas: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the log of softmax(sum_m w_m l_m), shape (n, n_classes)."""
    return combine(log_probas, weights)


@record("FittedStack")
@dataclass(frozen=True)
class FittedStack:
    """Predict new rows by the mean of several rounds' stacks.

    Attributes
    ----------
    members : list of Member
        Their views have been fitted.
    rounds : list of list of TemperedMember
        One list per round, in the order of the members.
    seen : integer array
        Codes of the classes that have annotations; the others have probability 0.
    n_classes : int
    exponent : float
        Exponent of the mean, at most 1, which prevents overconfident predictions. It does not
        change the most probable class.
    """

    members: list[Any]
    rounds: list[list[TemperedMember]]
    seen: IntArray
    n_classes: int
    exponent: float = 1.0

    @classmethod
    def of(
        cls, members: list[Any], rounds: list[list[TemperedMember]], seen: IntArray, n_classes: int
    ) -> Self:
        """Return a stack with the parts of members and rounds that prediction needs."""
        kept, parts = [], [list(each) for each in rounds]
        for place, member in enumerate(members):
            own = [each[place].predictor for each in rounds]
            view, predictors = compacted(member.view, own)
            kept.append(replace(member, estimator=None, view=view))
            for each, predictor in zip(parts, predictors, strict=True):
                each[place] = replace(each[place], predictor=predictor)
        return cls(kept, parts, seen, n_classes)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the class probabilities of rows X, shape (n, n_classes)."""
        proba = np.zeros((X.shape[0], self.n_classes))
        for start in range(0, len(proba), PREDICTED_AT_ONCE):
            rows = slice(start, start + PREDICTED_AT_ONCE)
            with config_context(transform_output="default"):
                proba[rows, self.seen] = self._batch(X[rows])
        return proba

    def _batch(self, X: Any) -> FloatArray:
        shape = (X.shape[0], len(self.seen))
        joint = np.zeros((len(self.rounds), *shape))
        for place, member in enumerate(self.members):
            Z = member.see(X)  # Once for all rounds, because this is the expensive part.
            for number, parts in enumerate(self.rounds):
                part = parts[place]
                found = part.predictor.predict_log_proba(Z)
                log_proba = check_log_proba(member.name, found, shape)
                joint[number] += part.weight * temper(log_proba, part.temperature)
        mean = softmax(joint, axis=2).mean(axis=0)
        return mean if self.exponent == 1 else softmax(self.exponent * floored_log(mean), axis=1)
