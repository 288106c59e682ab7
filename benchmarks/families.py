"""Annotators that share mistakes: families declared, undeclared, and chosen by gold.

Every cell (kind, table, number of gold labels, seed) fits all rules on one table: accuracy (ties
shared), log loss (probabilities clipped at 1e-12) and calibration error (15 bins) on the instances
without gold. Machines are classifiers trained on other instances. ``--only rules`` (or gold-rules,
constants, search, read-out) measures the cells of one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import families_rules as constants
from benchmarks import families_tables as cell_of
from benchmarks.bars import Row, dots
from benchmarks.families_rules import COUNTS, FIXED, SIMULATED, figure_rows, warning_rows
from benchmarks.families_rules import TABLES as READ_OUT
from benchmarks.families_tables import (
    BESIDE,
    GOLD,
    HAS_FAMILIES,
    MARKS,
    METHODS,
    NESTED,
    PEOPLE,
    REASONS,
    RHOS,
    SIMULATIONS,
    TABLES,
)
from benchmarks.real_tables import TABLES as REAL
from evidence.study import Study
from evidence.tables import Record, crossed, days, table
from manyhands.annotations.groups import RHO
from manyhands.inference.shared_mistakes import DENSE, LEAST_SEARCHED, LEAST_Z
from manyhands.typing import FloatArray

LOSS = 0.03
"""A rule that loses more accuracy against the best simple rule is named on the page."""


class Records:
    """Figures by kind of cell, table and number of gold labels."""

    def __init__(self, records: list[Record]) -> None:
        self.found: dict[tuple[str, str, int], dict[int, dict[str, list[float]]]] = {}
        for r in records:
            # Other rules with gold saw the same draws.
            key = r["kind"].replace("gold rules", "gold"), r["table"], r["gold"]
            self.found.setdefault(key, {}).setdefault(r["seed"], {}).update(r["figures"])

    def tables(self, kind: str) -> list[str]:
        """Tables of a kind of cell."""
        return list(dict.fromkeys(name for each, name, _ in self.found if each == kind))

    def rules(self, kind: str, name: str) -> list[str]:
        """Rules of a kind of cell on a table."""
        return list(next(iter(self.found.get((kind, name, 0), {}).values()), {}))

    def values(self, kind: str, name: str, rule: str, g: int = 0) -> FloatArray:
        """Figures of a rule, shape (n_seeds, n_figures)."""
        runs = self.found.get((kind, name, g), {}).values()
        return np.array([run[rule] for run in runs if rule in run], dtype=np.float64)

    def show(self, kind: str, name: str, rule: str, g: int = 0) -> str:
        """Accuracy ± its deviation over seeds, log loss and calibration error."""
        values = self.values(kind, name, rule, g)
        if not len(values):
            return ""
        mean = values.mean(axis=0)
        sd = f" ± {_short(values[:, 0].std(ddof=1))}" if len(values) > 1 else ""
        return f"{_short(mean[0])}{sd} / {_short(mean[1])} / {_short(mean[2])}"


def _short(value: float) -> str:
    text = f"{value:.3f}"
    return text.removeprefix("0") if text.startswith("0.") else text


RULES = (
    "majority vote",
    "best annotator by gold",
    "humans alone, majority vote",
    "humans alone, Dawid-Skene",
    "Dawid-Skene",
    "Dawid-Skene, rho .3",
    "GoldCorrected",
    "Dawid-Skene, families",
    "GoldCorrected, families",
)
SIMPLE = RULES[:4]
FLAT = (
    *RULES[:2],
    *RULES[4:7],
    "gold alone",
    "regression on the votes",
    "regression on Dawid-Skene, rho .3",
    "GoldCorrected without cuts",
)
"""Rules that know of no families, and leave nobody out."""
DECLARED = (*RULES[7:], "two-level Dawid-Skene, families")


def _regrets(found: Records, rules: Sequence[str], names: Sequence[str]) -> list[str]:
    """Mean and greatest loss of each rule against the best of them on the same table."""

    def shown(rule: str, g: int) -> str:
        lost = []
        for name in names:
            runs = {r: found.values("gold", name, r, g) for r in rules}
            means = {r: v.mean(axis=0) for r, v in runs.items() if len(v)}
            if rule in means:
                accuracy, loss = (np.array([m[k] for m in means.values()]) for k in (0, 1))
                lost.append((means[rule][1] - loss.min(), accuracy.max() - means[rule][0]))
        return " / ".join(f"{_short(np.mean(x))} {_short(np.max(x))}" for x in np.transpose(lost))

    return crossed("rule", rules, WITH_GOLD, shown)


def _losses(found: Records, kind: str, rules: Sequence[str], golds: Sequence[int]) -> Iterator[str]:
    """Name, for every rule, where it loses more than `LOSS` against the best simple rule."""
    for rule in rules:
        told = []
        for name in TABLES:
            lost = {}
            for g in golds:
                simple = [found.values("gold", name, each, g) for each in SIMPLE if each != rule]
                best = max((v[:, 0].mean() for v in simple if len(v)), default=0.0)
                values = found.values(kind, name, rule, g)
                if len(values) and values[:, 0].mean() < best - LOSS:
                    lost[g] = f"−{_short(best - values[:, 0].mean())}"
            marks = lost.values() if golds == (0,) else [f"{g}: {loss}" for g, loss in lost.items()]
            told += [f"{name} ({', '.join(marks)})"] if lost else []
        yield f"- {rule}: {'; '.join(told) or 'none'}."
    yield ""


def _z_rows(found: Records) -> Iterator[list[str]]:
    for name in TABLES:
        row = [name]
        for rule in ("declared", "searched", "random"):
            values = found.values("tetrad", name, rule).ravel()
            values = values[np.isfinite(values)]
            span = f" ({values.min():.1f} to {values.max():.1f})" if len(values) > 1 else ""
            row.append(f"{values.mean():.1f}{span}" if len(values) else "not measurable")
        yield [*row, _short((values > LEAST_Z).mean()) if len(values) else ""]


# -- parts ----------------------------------------------------------------------------------------


def search_page(found: Records) -> dict[str, Any]:
    """Write what `fit` finds on human tables."""
    rows, none = [], []
    for name in found.tables("search"):
        run = found.found["search", name, 0][0]
        n_dense, members = int(run["dense"][0]), run.get("members", [])
        if not members:
            none.append(f"{name} ({n_dense})")
            continue
        z = run["z"][0]
        shown = f"{z:.1f}" if np.isfinite(z) else "not measurable"
        told = f"{len(members)}: {', '.join(members)}"
        rows.append([name, str(n_dense), shown, "yes" if z > LEAST_Z else "no", told])
    heads = ["table", "such annotators", "highest z", "warns", "members of that set"]
    return {"search": table(heads, rows), "no_set": ", ".join(none) or "none"}


def read_out_page(found: Records) -> dict[str, Any]:
    """Write how much a family counts in the design effect."""
    rows, sums = [], {"simulations": [], "families that have a reason": [], "needless": []}
    for name in READ_OUT:
        values = [found.values("counted", name, rule)[:, 1:].mean(axis=0) for rule in COUNTS]
        kind = "simulations" if name in SIMULATED else "families that have a reason"
        sums["needless" if name in PEOPLE else kind].append(values)
        rows.append([name, _short(found.values("counted", name, "rho").mean()), values])
    rows += [[f"mean, {kind}", "", np.mean(values, axis=0)] for kind, values in sums.items()]
    best = [f"{kind}: {COUNTS[np.mean(v, axis=0)[:, 0].argmin()]}" for kind, v in sums.items()]
    heads = ["table", "rho", "members", "weights (ours)", "families"]
    shown = ([*row, *(" / ".join(map(_short, pair)) for pair in pairs)] for *row, pairs in rows)
    return {"read_out": table(heads, shown), "lowest": "; ".join(best)}


def constants_page(found: Records) -> dict[str, Any]:
    """Half and twice each constant, and least values."""
    heads = ["constant", "value", "as is", "half", "twice", "family left out", "chosen there"]
    rows = [["RHO", f"{RHO:g}", *figure_rows(found, "rho constant", "RHO")]]
    for name, (*_, values) in constants.GOLD_CONSTANTS.items():
        rows.append([name, str(values[0]), *figure_rows(found, "gold constants", name)])
    least = {"LEAST_Z": LEAST_Z, "DENSE": DENSE, "LEAST_SEARCHED": LEAST_SEARCHED}
    warned = [[name, f"{value:g}", *warning_rows(found, name)] for name, value in least.items()]
    return {
        "constants": table(heads, rows),
        "priors": table(heads, constants.prior_rows(found)),
        "limits": constants.limits_of_cost(found),
        "warnings": table(heads, warned),
        "least_values": constants.least_values(found),
    }


WITH_GOLD = {g: f"{g} gold" for g in GOLD[1:]}


def by_gold(found: Records) -> Iterator[str]:
    """Yield the tables of all rules by number of gold labels."""
    for name in TABLES:
        rows = [[rule, *(found.show("gold", name, rule, g) for g in GOLD)] for rule in RULES]
        heads = ["rule", *(f"{g} gold" for g in GOLD)]
        yield from (f"**{name}**\n", *table(heads, [row for row in rows if any(row[1:])]))


THREE = ("judgebench", "sentiment, 3 humans", "cifar10n, 3 humans")
"""Tables with models among the annotators."""


def known(records: list[Record]) -> list[Record]:
    """Records of the cells of today."""
    wanted = {tuple(cell.values()) for cell in cells()}
    return [r for r in records if tuple(r[name] for name in CELL) in wanted]


def page(records: list[Record]) -> dict[str, Any]:
    """Return the values of the page."""
    records = known(records)
    found = Records(records)
    every, own = ("judgebench", *SIMULATIONS, *PEOPLE), found.rules("rules", "judgebench")
    marked = [(name, mark) for name in THREE for mark in MARKS]
    declared = found.rules("declarations", "judgebench")
    all_rules = tuple(dict.fromkeys((*RULES[1:], *FLAT, *DECLARED)))

    def by_rule(corner: str, kind: str, names: Any, rules: Any) -> list[str]:
        return crossed(corner, names, rules, lambda name, rule: found.show(kind, name, rule))

    def accuracies(name: str) -> str:
        rules = found.rules("accuracies", name)
        return ", ".join(_short(found.values("accuracies", name, rule).mean()) for rule in rules)

    of_marks = [
        100
        * np.mean(
            [found.values("methods", name, f"DawidSkene{mark}")[:, 0].mean() for name in THREE]
        )
        for mark in MARKS
    ]
    return {
        "plain": of_marks[0],
        "declared": of_marks[1],
        "gain": of_marks[1] - of_marks[0],
        "n_with_models": len(THREE),
        "dates": days(records),
        "n_cells": len(records),
        "minutes": sum(record["seconds"] for record in records) / 60,
        "machines": table(
            ["table", "machines"], [[n, accuracies(n)] for n in (*THREE[1:], *list(BESIDE)[-2:])]
        ),
        "methods": crossed(
            "method",
            METHODS,
            {pair: pair[0] + pair[1].replace(", ", ": ") for pair in marked},
            lambda method, pair: found.show("methods", pair[0], method + pair[1]),
        ),
        "declarations": crossed(
            "families",
            declared,
            {"judgebench": "JudgeBench"},
            lambda rule, name: found.show("declarations", name, rule),
        ),
        "rhos": by_rule("table", "rho", TABLES, {f"{rho:g}": f"rho {rho:g}" for rho in RHOS}),
        "nested": by_rule(
            "simulation", "nested", NESTED, ["none", "makers", "kind", "both levels"]
        ),
        "abstentions": by_rule("reason", "abstentions", REASONS, ["ignore", "model"]),
        "z": table(
            ["table", "declared", "searched", "random", f"random > {LEAST_Z:g}"], _z_rows(found)
        ),
        "by_gold": by_gold(found),
        "rules": crossed(
            "rule",
            own,
            found.tables("rules"),
            lambda rule, name: found.show("rules", name, rule),
            most=6,
        ),
        "gold_rules": crossed(
            "rule",
            (*FLAT, *DECLARED),
            WITH_GOLD,
            lambda rule, g: found.show("gold", "judgebench", rule, g),
        ),
        "regrets": _regrets(found, FLAT, every),
        "declared_regrets": _regrets(found, DECLARED, HAS_FAMILIES),
        **constants_page(found),
        **search_page(found),
        **read_out_page(found),
        "losses": _losses(found, "gold", all_rules, GOLD),
        "rules_losses": _losses(found, "rules", own, (0,)),
        "methods_losses": _losses(
            found, "methods", [m + mark for m in METHODS for mark in MARKS], (0,)
        ),
    }


def drawing(records: list[Record]) -> str:
    """Draw the accuracy of every method with and without the declared families."""
    found = Records(known(records))
    words = dict(zip(MARKS[::-1], ("families declared", "nothing declared"), strict=True))

    def mean(method: str) -> float:
        own = [found.values("methods", name, method)[:, 0].mean() for name in THREE]
        return 100 * float(np.mean(own))

    rows = [
        Row(method, {shown: mean(method + mark) for mark, shown in words.items()})
        for method in METHODS
    ]
    title = f"Right labels in percent, mean of {len(THREE)} tables with models among the annotators"
    return dots(title, rows)


# -- cells ----------------------------------------------------------------------------------------

CELL = ("kind", "table", "gold", "seed")
Cell = tuple[str, str, int, int]
"""Kind of cell, table, number of gold labels, seed."""


def with_gold(kind: str, golds: Sequence[int] = GOLD) -> Iterator[Cell]:
    """Cells of all tables, with each number of gold labels."""
    for name in TABLES:
        n_seeds = 30 if name == "judgebench" else 10 if name in SIMULATIONS else 3
        for g in golds:
            if (name, g) != ("duck", 100):  # It has 108 instances.
                yield from ((kind, name, g, s) for s in range(n_seeds))


def every_cell() -> Iterator[Cell]:
    """Yield all cells, the cheap ones first."""
    for name in TABLES:
        once = name == "judgebench"
        n_seeds = 10 if name in SIMULATIONS else 3
        own = 1 if once else n_seeds
        yield from (("methods", name, 0, s) for s in range(min(own, 3)))
        yield from (("tetrad", name, 0, s) for s in range(20 if once else n_seeds))
        kinds = ["rho", "rho constant", "warning", "smallest set"]
        kinds += ["rules"] if name in HAS_FAMILIES or name == "7 independent" else []
        yield from ((kind, name, 0, s) for kind in kinds for s in range(own))
    for name in READ_OUT:
        n_seeds = 1 if name == "judgebench" else 3 if name in TABLES else 10
        yield from (("counted", name, 0, s) for s in range(n_seeds))
    yield from (("accuracies", name, 0, s) for name in BESIDE for s in range(3))
    yield from (("declarations", "judgebench", 0, s) for s in range(20))
    yield from (("nested", name, 0, s) for name in NESTED for s in range(10))
    yield from (("abstentions", name, 0, s) for name in REASONS for s in range(10))
    yield from with_gold("gold")
    yield from with_gold("gold rules", GOLD[1:])
    for name in TABLES:
        for g in constants.GOLD:
            yield from (("gold constants", name, g, s) for s in range(2))
            yield ("gold priors", name, g, 0)
        if name in HAS_FAMILIES:
            yield from (("family prior", name, g, 0) for g in constants.FAMILY_GOLD)
        n_seeds = 10 if name == "judgebench" else 5 if name in SIMULATIONS else 3
        yield from (("sets", name, 0, s) for s in range(n_seeds))
        yield from (("least gold", name, g, s) for g in constants.FEW_GOLD for s in range(n_seeds))
    yield from (("search", name, 0, 0) for name in REAL)


def cells(*kinds: str) -> Iterator[Record]:
    """Yield the cells of some kinds, or of all."""
    for cell in every_cell():
        if not kinds or cell[0] in kinds:
            yield dict(zip(CELL, cell, strict=True))


OF_NAME: dict[str, Callable[[str, int], Any]] = {
    "nested": cell_of.nested_cell,
    "abstentions": cell_of.abstentions_cell,
    "search": constants.search_cell,
}
"""Kinds that are given the table's name and the seed."""

OF_PROBLEM: dict[str, Callable[..., Any]] = {
    "gold": cell_of.gold_cell,
    "accuracies": cell_of.accuracies_cell,
    "methods": cell_of.methods_cell,
    "rho": cell_of.rho_cell,
    "declarations": cell_of.declarations_cell,
    "tetrad": cell_of.tetrad_cell,
    "rules": constants.rules_cell,
    "gold rules": constants.gold_rules_cell,
    "counted": constants.counted_cell,
    "rho constant": constants.rho_cell,
    "warning": constants.warning_cell,
    **{kind: partial(constants.constants_cell, kind) for kind in FIXED},
    "smallest set": constants.smallest_set_cell,
    "least gold": constants.least_gold_cell,
    "sets": constants.sets_cell,
}
"""Kinds that are given a problem, the number of gold labels and the seed."""


def measure(kind: str, table: str, gold: int, seed: int) -> Record:
    """Measure a cell."""
    if kind in OF_NAME:
        return {"figures": OF_NAME[kind](table, seed)}
    problem = (READ_OUT if kind == "counted" else TABLES)[table](seed)
    return {"figures": OF_PROBLEM[kind](problem, gold, seed)}


STUDY = Study(
    __file__,
    {
        "all": cells,
        "rules": partial(cells, "rules"),
        "gold-rules": partial(cells, "gold", "gold rules"),
        "constants": partial(
            cells, "rho constant", *FIXED, "warning", "smallest set", "least gold", "sets"
        ),
        "search": partial(cells, "search"),
        "read-out": partial(cells, "counted"),
    },
    measure,
    page,
    drawings=lambda records: {"families-declared.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
