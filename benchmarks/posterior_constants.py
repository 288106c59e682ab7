"""The other constants of the read-out: half and twice each, and chosen with a family left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from pages import table_lines
from posterior_cases import Case, family_of, figures

from manyhands import DawidSkene
from manyhands.inference import confusion_em, dawid_skene, dependence, residuals
from manyhands.inference.dependence import DEFAULT_EM, Dependence

Fits = list[tuple[float, float, float]]

HALVES = {
    "REFERENCE": 0.15, "NEGLIGIBLE": 0.025, "EM_STEPS": 1, "N_SIMULATED": 500, "N_TABLES": 1,
    "N_INSTANCES": 2500, "N_CELLS": 1_000_000, "LEAST_INSTANCES": 5,
}  # fmt: skip
"""The other constants of `manyhands.inference.dependence`, and half of each (rounded down)."""

STANDARD_ERRORS = 2.0
"""Of rho, from which on mistakes may be correlated, so that subtypes are tried."""


def sensitivity(cases: list[Case]) -> Iterator[str]:
    """Yield figures with half and twice each of the other constants; fits are anew."""
    as_is = fit(cases)
    rows = [
        row(cases, name, value, {"as is": as_is, "half": half(), "twice": twice()})
        for name, value, half, twice in changes(cases)
    ]
    heads = ["constant", "value", "as is", "half", "twice", "family left out", "chosen there"]
    yield from table_lines(heads, rows)


def changes(
    cases: list[Case],
) -> Iterator[tuple[str, str, Callable[[], Fits], Callable[[], Fits]]]:
    """Yield each constant, its value, and the fits with half and with twice as much."""

    def patched(module: Any, name: str, value: Any) -> Callable[[], Fits]:
        def run() -> Fits:
            with mock.patch.object(module, name, value):
                return fit(cases)

        return run

    for name, half in HALVES.items():
        value = getattr(dependence, name)
        pair = (patched(dependence, name, each) for each in (half, 2 * value))
        yield name, f"{value:,}", *pair
    pair = (patched(dawid_skene, "estimate", judged_by(STANDARD_ERRORS * k)) for k in (0.5, 2))
    yield "standard errors", f"{STANDARD_ERRORS:g}", *pair
    tol = DEFAULT_EM.tol
    yield "EM's tol", f"{tol:g}", lambda: fit(cases, tol=tol / 2), lambda: fit(cases, tol=2 * tol)
    growth, most = confusion_em.STEP_GROWTH, confusion_em.GREATEST_STEP
    more = (1 + (growth - 1) * k for k in (0.5, 2))
    yield "STEP_GROWTH", f"{growth:g}", *(patched(confusion_em, "STEP_GROWTH", g) for g in more)
    steps = (patched(confusion_em, "GREATEST_STEP", most * k) for k in (0.5, 2))
    yield "GREATEST_STEP", f"{most:g}", *steps
    shares = (patched(residuals, "LIKELY", residuals.LIKELY * k) for k in (0.5, 2))
    yield "LIKELY", f"{residuals.LIKELY:g}", *shares


def judged_by(n_errors: float) -> Callable[..., Dependence]:
    """`dependence.estimate`, in which rho is plausible from so many standard errors on."""

    def estimate(votes: Any, run: Any, em: Any) -> Dependence:
        found = dependence.estimate(votes, run, em)
        if not dependence._is_measurable(votes):
            return found
        rho, se = dependence.measure(votes, run, em)
        is_plausible = rho > max(n_errors * se, dependence.NEGLIGIBLE) or not np.isfinite(se)
        return replace(found, is_plausible=is_plausible)

    return estimate


def fit(cases: list[Case], **parameters: Any) -> Fits:
    """Figures of `DawidSkene` on each table."""
    models = (DawidSkene(**parameters).fit(case.task.table) for case in cases)
    return [
        figures(model.posterior_[case.known], case.gold, case.classes)
        for case, model in zip(cases, models, strict=True)
    ]


def row(cases: list[Case], name: str, value: str, runs: dict[str, Fits]) -> list[str]:
    """Cells of a constant: means, and what is chosen where each table's family is left out."""
    left_out, chosen = [], []
    for k, case in enumerate(cases):
        others = [family_of(c.name) != family_of(case.name) for c in cases]
        best = min(runs, key=lambda r: np.mean([f[1] for f in np.array(runs[r])[others]]))
        left_out.append(runs[best][k])
        chosen.append(best)
    means = [np.mean(found, axis=0) for found in (*runs.values(), left_out)]
    counts = ", ".join(f"{one} {chosen.count(one)}" for one in runs if one in chosen)
    return [name, value, *(f"{loss:.4f} / {ece:.4f}" for _, loss, ece in means), counts]
