"""The 21 real tables of `posteriors.py`, fitted once, and figures of their read-outs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from aggregation import Task, load
from scipy.special import log_softmax

from manyhands import DawidSkene
from manyhands.inference import dependence
from manyhands.inference.confusion_em import OwnRemoved, Run
from manyhands.inference.dependence import DEFAULT_EM, exponents, measure
from manyhands.inference.probability import normalise_rows
from manyhands.inference.residuals import residual_correlation
from manyhands.inference.vote_sums import by_instance, vote_shares
from manyhands.inference.votes import Votes, make_votes
from manyhands.metrics import expected_calibration_error

FAMILIES = {
    "ms": "music",
    "sp": "sentiment",
    "sp_amt": "sentiment",
    "cf_amt": "cf",
    "zencrowd_us": "zencrowd",
    "zencrowd_in": "zencrowd",
    "trec": "relevance",
}
"""Tables that are left out together, if that is not the table alone."""


class Case(NamedTuple):
    """What is needed to read a posterior with any rho.

    ``rho`` and ``se`` are as measured (0 and infinite if the library does not measure them),
    ``used`` is the rho of `DawidSkene`, ``cap`` that of `capped`.
    """

    name: str
    task: Task
    joint: np.ndarray
    exponents: Callable[[float], np.ndarray]
    n: np.ndarray
    rho: float
    se: float
    used: float
    cap: float
    known: np.ndarray
    gold: np.ndarray
    classes: np.ndarray


def family_of(name: str) -> str:
    """What a table is left out with."""
    return FAMILIES.get(name, name)


def real_case(name: str) -> Case:
    """Fit a real table; the read-out uses the number of subtypes that `DawidSkene` chooses."""
    task = load(name)
    votes = make_votes(task.table, abstentions=True)
    start = vote_shares(votes.answers)
    one = DEFAULT_EM.run(votes, votes.shards(), start)
    is_measured = dependence._is_measurable(votes)
    rho, se = measure(votes, one, DEFAULT_EM) if is_measured else (0.0, np.inf)
    model = DawidSkene().fit(task.table)
    n_subtypes = model.n_subtypes_
    run = one if n_subtypes == 1 else DEFAULT_EM.run(votes, votes.shards(), start, n_subtypes)
    joint = OwnRemoved(run)(votes)
    n = by_instance(votes.answers)
    of = partial(exponents, votes)
    used, cap = model.dependence_, capped(votes, one)
    return Case(
        name, task, joint, of, n, rho, se, used, cap, task.known, task.gold, task.table.classes
    )


def capped(votes: Votes, run: Run) -> float:
    """The rule that the measured rho replaces: min(.3, 12 m), with the moment m of the fit itself.

    m is taken over instances with five annotations or more; with fewer than 30 of them, rho is .3.
    """
    answers = votes.answers
    several = answers.select(np.flatnonzero(np.diff(answers.start) >= 5))
    sample = dependence._sample(several, np.random.RandomState(0))
    if sample.n_instances < 30:
        return 0.3
    responses = normalise_rows(run.parameters.responses[:, :, : votes.n_classes])
    posterior = dependence.Parameters(run.parameters.prior, responses).posterior(sample)
    m, _ = residual_correlation(sample, posterior, responses)
    return float(np.clip(12.0 * m, 0.0, 0.3))


def figures(proba: np.ndarray, gold: np.ndarray, classes: Any) -> tuple[float, float, float]:
    """Accuracy, log loss and calibration error, as of `manyhands.metrics.calibration`."""
    code_of = {value: code for code, value in enumerate(np.asarray(classes).tolist())}
    codes = np.array([code_of[value] for value in gold.tolist()])
    right = proba[np.arange(len(codes)), codes]
    loss = -np.log(np.clip(right, 1e-12, 1.0)).mean()
    error = expected_calibration_error(proba, gold, classes=classes, n_bins=15)
    return float((proba.argmax(axis=1) == codes).mean()), float(loss), float(error)


def scores(case: Case, exponent: np.ndarray) -> tuple[float, float, float]:
    """Accuracy, log loss and calibration error of a read-out."""
    proba = np.exp(log_softmax(exponent[:, None] * case.joint, axis=1))[case.known]
    return figures(proba, case.gold, case.classes)


def shrunk(case: Case, mean: float, sd: float, upper: float) -> float:
    """Estimate rho with other constants."""
    weight = 1.0 / max(case.se, 1e-6) ** 2
    value = (weight * case.rho + mean / sd**2) / (weight + 1.0 / sd**2)
    return float(np.clip(value, 0.0, upper))
