"""The constants of families, half and twice, and chosen with a family of tables left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
from families_cells import drawn_gold
from families_rules import bases_once
from families_tables import HAS_FAMILIES, Problem, figures, left_out_with

from manyhands import DawidSkene, GoldCorrected
from manyhands.annotations.groups import RHO
from manyhands.inference import gold_corrected, shared_mistakes
from manyhands.inference.shared_mistakes import DENSE, LEAST_Z

STEPS = ("as is", "half", "twice")
GOLD_CONSTANTS: dict[str, tuple[Any, Any, Any]] = {
    "SCALES": tuple(
        tuple((own * k, common * k) for own, common in gold_corrected.SCALES) for k in (1, 0.5, 2)
    ),
    "CUT_MASS": tuple(gold_corrected.CUT_MASS * k for k in (1, 0.5, 2)),
    "TEMPERED_RHO": tuple(gold_corrected.TEMPERED_RHO * k for k in (1, 0.5, 2)),
    "DENSE": tuple(DENSE * k for k in (1, 0.5, 2)),
}
"""As they are, half and twice."""
MODULES = {"DENSE": shared_mistakes}
GOLD = (20, 50)

Z = dict(zip(STEPS, (LEAST_Z, LEAST_Z / 2, LEAST_Z * 2), strict=True))
SHARES = dict(zip(STEPS, GOLD_CONSTANTS["DENSE"], strict=True))


def rho_cell(problem: Problem) -> dict[str, list[float]]:
    """Figures with the default correlation within families, half of it, and the greatest (1)."""
    everything = np.arange(len(problem.y))
    values = dict(zip(STEPS, (RHO, RHO / 2, 1.0), strict=True))
    return {
        f"RHO {step}": figures(
            DawidSkene().fit(problem.table.with_groups(problem.groups, rho)).posterior_,
            problem.y,
            everything,
        )
        for step, rho in values.items()
    }


def gold_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Figures of `GoldCorrected` without declared families."""
    gold, _, rest = drawn_gold(problem, g, seed)
    plain = problem.table.with_groups({})

    def fit(name: str, value: Any) -> list[float]:
        with mock.patch.object(MODULES.get(name, gold_corrected), name, value):
            return figures(GoldCorrected().fit(plain, gold=gold).posterior_, problem.y, rest)

    with bases_once():
        as_is = fit("CUT_MASS", gold_corrected.CUT_MASS)
        found = {f"{name} as is": as_is for name in GOLD_CONSTANTS}
        for name, (_, *values) in GOLD_CONSTANTS.items():
            for step, value in zip(STEPS[1:], values, strict=True):
                found[f"{name} {step}"] = fit(name, value)
    return found


def warning_cell(problem: Problem) -> dict[str, list[float]]:
    """The highest z of a searched set, by the share of instances that its annotators must have."""
    found = {}
    for step, share in SHARES.items():
        with mock.patch.object(shared_mistakes, "DENSE", share):
            sets = shared_mistakes.shared_mistakes(problem.table.with_groups({}))
        z = sets[0].z if sets and sets[0].measurable else float("nan")
        found[step] = [float(z)]
    return found


# -- page -----------------------------------------------------------------------------------------


def left_out(
    values: dict[str, dict[str, Any]], score: Callable[[list[Any]], float]
) -> tuple[dict[str, Any], list[str]]:
    """What each table gets from the step that is best (lowest score) on the other families."""
    tables = list(next(iter(values.values())))
    got, chosen = {}, []
    for table in tables:
        others = [t for t in tables if left_out_with(t) != left_out_with(table)]
        best = min(values, key=lambda step: score([(t, values[step][t]) for t in others]))
        got[table] = values[best][table]
        chosen.append(best)
    return got, chosen


def counts_of(chosen: Sequence[str]) -> str:
    """How often each step is chosen."""
    return ", ".join(f"{step} {chosen.count(step)}" for step in STEPS if step in chosen)


def figure_rows(found: Any, kind: str, name: str, golds: Sequence[int]) -> list[str]:
    """Cells of a constant's row: log loss / calibration error, means over the tables."""
    tables = HAS_FAMILIES if kind == "rho constant" else found.tables(kind)
    values: dict[str, dict[str, Any]] = {
        step: {
            t: np.mean([found.values(kind, t, f"{name} {step}", g).mean(axis=0) for g in golds], 0)
            for t in tables
        }
        for step in STEPS
    }
    got, chosen = left_out(values, lambda pairs: float(np.mean([v[1] for _, v in pairs])))
    means = [np.mean(list(each.values()), axis=0) for each in (*values.values(), got)]
    return [*(f"{loss:.4f} / {ece:.4f}" for _, loss, ece in means), counts_of(chosen)]


def warning_rows(found: Any, name: str) -> list[str]:
    """Cells of a threshold's row: share of tables warned of, with and without shared mistakes."""
    tables = found.tables("warning")
    values: dict[str, dict[str, float]] = {}
    for step in STEPS:
        least, dense = (Z[step], "as is") if name == "LEAST_Z" else (LEAST_Z, step)
        values[step] = {t: (found.values("warning", t, dense) > least).mean() for t in tables}

    def shares(pairs: list[tuple[str, float]]) -> tuple[float, float]:
        with_reason = [value for t, value in pairs if t in HAS_FAMILIES]
        return float(np.mean(with_reason)), float(
            np.mean([value for t, value in pairs if t not in HAS_FAMILIES])
        )

    got, chosen = left_out(values, lambda pairs: shares(pairs)[1] - shares(pairs)[0])
    shown = [shares(list(each.items())) for each in (*values.values(), got)]
    return [*(f"{right:.2f} / {false:.2f}" for right, false in shown), counts_of(chosen)]
