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
from benchmarks.aggregation import AGGREGATION_SETS, LOADERS
from benchmarks.families_rules import (
    COUNTS,
    GOLD_CONSTANTS,
    SIMULATED,
    counted_cell,
    figure_rows,
    gold_rules_cell,
    rules_cell,
    warning_rows,
)
from benchmarks.families_rules import GOLD as CONSTANTS_GOLD
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
from evidence.study import Record, Study
from evidence.study import table as table_lines
from manyhands.annotations.groups import RHO
from manyhands.inference.shared_mistakes import DENSE, LEAST_SEARCHED, LEAST_Z
from manyhands.typing import FloatArray

LOSS = 0.03
"""A rule that loses more accuracy against the best simple rule is named on the page."""


CELL = ("kind", "table", "gold", "seed")


class Records:
    """Figures by kind of cell, table and number of gold labels."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.found: dict[tuple[str, str, int], dict[int, dict[str, list[float]]]] = {}
        for record in records:
            kind, table, g, seed = (record[name] for name in CELL)
            # Other rules with gold saw the same draws.
            cells = self.found.setdefault((kind.replace("gold rules", "gold"), table, g), {})
            cells.setdefault(seed, {}).update(record["figures"])

    def tables(self, kind: str) -> list[str]:
        """Tables of a kind of cell."""
        return list(dict.fromkeys(table for each, table, _ in self.found if each == kind))

    def rules(self, kind: str, table: str) -> list[str]:
        """Rules of a kind of cell on a table."""
        return list(next(iter(self.found.get((kind, table, 0), {}).values()), {}))

    def values(self, kind: str, table: str, rule: str, g: int = 0) -> FloatArray:
        """Figures of a rule, shape (n_seeds, n_figures)."""
        runs = self.found.get((kind, table, g), {}).values()
        return np.array([run[rule] for run in runs if rule in run], dtype=np.float64)

    def show(self, kind: str, table: str, rule: str, g: int = 0) -> str:
        """Accuracy ± its deviation over seeds, log loss and calibration error."""
        values = self.values(kind, table, rule, g)
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


def _regrets(found: Records, rules: Sequence[str], tables: Sequence[str]) -> Iterator[list[str]]:
    """Mean and greatest loss of each rule against the best of them on the same table."""
    for rule in rules:
        row = [rule]
        for g in GOLD[1:]:
            lost = []
            for table in tables:
                runs = {r: found.values("gold", table, r, g) for r in rules}
                means = {r: v.mean(axis=0) for r, v in runs.items() if len(v)}
                if rule in means:
                    accuracy, loss = (np.array([m[k] for m in means.values()]) for k in (0, 1))
                    mine = means[rule]
                    lost.append((mine[1] - loss.min(), accuracy.max() - mine[0]))
            pairs = [f"{_short(np.mean(x))} {_short(np.max(x))}" for x in np.transpose(lost)]
            row.append(" / ".join(pairs))
        yield row


def _losses(found: Records, kind: str, rules: Sequence[str], golds: Sequence[int]) -> Iterator[str]:
    """Name, for every rule, where it loses more than `LOSS` against the best simple rule."""
    for rule in rules:
        listed = []
        for table in TABLES:
            lost = []
            for g in golds:
                simple = [found.values("gold", table, each, g) for each in SIMPLE if each != rule]
                best = max((v[:, 0].mean() for v in simple if len(v)), default=0.0)
                values = found.values(kind, table, rule, g)
                if len(values) and values[:, 0].mean() < best - LOSS:
                    lost.append((g, f"−{_short(best - values[:, 0].mean())}"))
            if lost and golds == (0,):
                listed.append(f"{table} ({lost[0][1]})")
            elif lost:
                listed.append(f"{table} ({', '.join(f'{g}: {loss}' for g, loss in lost)})")
        yield f"- {rule}: {'; '.join(listed) or 'none'}."
    yield ""


def _z_rows(found: Records) -> Iterator[list[str]]:
    for table in TABLES:
        row = [table]
        for rule in ("declared", "searched", "random"):
            values = found.values("tetrad", table, rule).ravel()
            values = values[np.isfinite(values)]
            span = f" ({values.min():.1f} to {values.max():.1f})" if len(values) > 1 else ""
            row.append(f"{values.mean():.1f}{span}" if len(values) else "not measurable")
        values = found.values("tetrad", table, "random").ravel()
        values = values[np.isfinite(values)]
        yield [*row, _short((values > LEAST_Z).mean()) if len(values) else ""]


# -- parts ----------------------------------------------------------------------------------------


def search_page(found: Records) -> dict[str, Any]:
    """What `fit` finds on human tables."""
    rows, none = [], []
    for table in found.tables("search"):
        run = found.found["search", table, 0][0]
        n_dense, members = int(run["dense"][0]), run.get("members", [])
        if not members:
            none.append(f"{table} ({n_dense})")
            continue
        z = run["z"][0]
        shown = f"{z:.1f}" if np.isfinite(z) else "not measurable"
        names = f"{len(members)}: {', '.join(members)}"
        rows.append([table, str(n_dense), shown, "yes" if z > LEAST_Z else "no", names])
    heads = ["table", "such annotators", "highest z", "warns", "members of that set"]
    return {"search": table_lines(heads, rows), "no_set": ", ".join(none) or "none"}


def read_out_page(found: Records) -> dict[str, Any]:
    """What a family counts in the design effect."""
    rows, sums = [], {"simulations": [], "families that have a reason": [], "needless": []}
    for table in READ_OUT:
        values = [found.values("counted", table, name)[:, 1:].mean(axis=0) for name in COUNTS]
        kind = "simulations" if table in SIMULATED else "families that have a reason"
        sums["needless" if table in PEOPLE else kind].append(values)
        rho = found.values("counted", table, "rho").mean()
        rows.append([table, _short(rho), *(" / ".join(map(_short, pair)) for pair in values)])
    for kind, values in sums.items():
        means = np.mean(values, axis=0)
        rows.append([f"mean, {kind}", "", *(" / ".join(map(_short, pair)) for pair in means)])
    best = [f"{kind}: {COUNTS[np.mean(v, axis=0)[:, 0].argmin()]}" for kind, v in sums.items()]
    heads = ["table", "rho", "members", "weights (ours)", "families"]
    return {"read_out": table_lines(heads, rows), "lowest": "; ".join(best)}


def constants_page(found: Records) -> dict[str, Any]:
    """Half and twice each constant, and least values."""
    heads = ["constant", "value", "as is", "half", "twice", "family left out", "chosen there"]
    rows = [["RHO", f"{RHO:g}", *figure_rows(found, "rho constant", "RHO", (0,))]]
    for name, (value, *_) in GOLD_CONSTANTS.items():
        cells = figure_rows(found, "gold constants", name, CONSTANTS_GOLD)
        rows.append([name, str(value), *cells])
    warned = [
        [name, f"{value:g}", *warning_rows(found, name)]
        for name, value in (
            ("LEAST_Z", LEAST_Z),
            ("DENSE", DENSE),
            ("LEAST_SEARCHED", LEAST_SEARCHED),
        )
    ]
    return {
        "constants": table_lines(heads, rows),
        "priors": table_lines(heads, constants.prior_rows(found)),
        "limits": constants.limits_of_cost(found),
        "warnings": table_lines(heads, warned),
        "least_values": constants.least_values(found),
    }


def rules_page(found: Records) -> dict[str, Any]:
    """Rules without gold and with it, and the regret of all of them."""
    tables, golds = found.tables("rules"), [f"{g} gold" for g in GOLD[1:]]
    names = found.rules("rules", "judgebench")
    rows = [[name, *(found.show("rules", table, name) for table in tables)] for name in names]
    with_gold = [
        [r, *(found.show("gold", "judgebench", r, g) for g in GOLD[1:])] for r in (*FLAT, *DECLARED)
    ]
    every = ("judgebench", *SIMULATIONS, *PEOPLE)
    return {
        "rules": table_lines(["rule", *tables], rows),
        "gold_rules": table_lines(["rule", *golds], with_gold),
        "regrets": table_lines(["rule", *golds], _regrets(found, FLAT, every)),
        "declared_regrets": table_lines(["rule", *golds], _regrets(found, DECLARED, HAS_FAMILIES)),
    }


def by_gold(found: Records) -> Iterator[str]:
    """Yield the tables of all rules by number of gold labels."""
    for table in TABLES:
        yield f"**{table}**\n"
        heads = ["rule", *(f"{g} gold" for g in GOLD)]
        rows = [[rule, *(found.show("gold", table, rule, g) for g in GOLD)] for rule in RULES]
        yield from table_lines(heads, [row for row in rows if any(row[1:])])


def page(records: list[Record]) -> dict[str, Any]:
    """Return the values of the page."""
    wanted = {tuple(cell.values()) for cell in cells()}
    records = [r for r in records if tuple(r[name] for name in CELL) in wanted]
    found, dates = Records(records), sorted({record["date"] for record in records})

    def shown(kind: str, tables: Sequence[str], rules: Sequence[str]) -> list[list[str]]:
        return [[table, *(found.show(kind, table, rule) for rule in rules)] for table in tables]

    machines = []
    for table in ("sentiment, 3 humans", "cifar10n, 3 humans", *list(BESIDE)[-2:]):
        names = found.rules("accuracies", table)
        means = [found.values("accuracies", table, name).mean() for name in names]
        machines.append([table, ", ".join(map(_short, means))])
    three = ["judgebench", "sentiment, 3 humans", "cifar10n, 3 humans"]
    methods = [
        [m, *(found.show("methods", t, m + mark) for t in three for mark in MARKS)] for m in METHODS
    ]
    names = found.rules("declarations", "judgebench")
    declared = [[name, found.show("declarations", "judgebench", name)] for name in names]
    rhos, levels = [f"{rho:g}" for rho in RHOS], ["none", "makers", "kind", "both levels"]
    hows = ["ignore", "model"]
    all_rules = tuple(dict.fromkeys((*RULES[1:], *FLAT, *DECLARED)))
    return {
        "dates": " to ".join(sorted({dates[0], dates[-1]})),
        "n_cells": len(records),
        "minutes": sum(record["seconds"] for record in records) / 60,
        "machines": table_lines(["table", "machines"], machines),
        "methods": table_lines(
            ["method", *(f"{t}{mark}" for t in three for mark in ("", ": families"))], methods
        ),
        "declarations": table_lines(["families", "JudgeBench"], declared),
        "rhos": table_lines(
            ["table", *(f"rho {rho}" for rho in rhos)], shown("rho", [*TABLES], rhos)
        ),
        "nested": table_lines(["simulation", *levels], shown("nested", [*NESTED], levels)),
        "abstentions": table_lines(["reason", *hows], shown("abstentions", REASONS, hows)),
        "z": table_lines(
            ["table", "declared", "searched", "random", f"random > {LEAST_Z:g}"], _z_rows(found)
        ),
        "by_gold": by_gold(found),
        **rules_page(found),
        **constants_page(found),
        **search_page(found),
        **read_out_page(found),
        "losses": _losses(found, "gold", all_rules, GOLD),
        "rules_losses": _losses(found, "rules", found.rules("rules", "judgebench"), (0,)),
        "methods_losses": _losses(
            found, "methods", [m + mark for m in METHODS for mark in MARKS], (0,)
        ),
    }


# -- cells ----------------------------------------------------------------------------------------

Cell = tuple[str, str, int, int]
"""Kind of cell, table, number of gold labels, seed."""


def with_gold(kind: str) -> Iterator[Cell]:
    """Cells of all tables, with each number of gold labels."""
    for table in TABLES:
        n_seeds = 30 if table == "judgebench" else 10 if table in SIMULATIONS else 3
        for g in GOLD:
            if (table, g) != ("duck", 100):  # It has 108 instances.
                yield from ((kind, table, g, s) for s in range(n_seeds))


def every_cell() -> Iterator[Cell]:
    """Yield all cells, the cheap ones first."""
    for table in TABLES:
        once = table == "judgebench"
        n_seeds = 10 if table in SIMULATIONS else 3
        yield from (("methods", table, 0, s) for s in range(1 if once else min(n_seeds, 3)))
        yield from (("tetrad", table, 0, s) for s in range(20 if once else n_seeds))
        for kind in ("rho", "rho constant", "warning", "smallest set"):
            yield from ((kind, table, 0, s) for s in range(1 if once else n_seeds))
        if table in HAS_FAMILIES or table == "7 independent":
            yield from (("rules", table, 0, s) for s in range(1 if once else n_seeds))
    for table in READ_OUT:
        n_seeds = 1 if table == "judgebench" else 3 if table in TABLES else 10
        yield from (("counted", table, 0, s) for s in range(n_seeds))
    yield from (("accuracies", table, 0, s) for table in BESIDE for s in range(3))
    yield from (("declarations", "judgebench", 0, s) for s in range(20))
    yield from (("nested", name, 0, s) for name in NESTED for s in range(10))
    yield from (("abstentions", name, 0, s) for name in REASONS for s in range(10))
    yield from with_gold("gold")
    yield from (cell for cell in with_gold("gold rules") if cell[2])
    for table in TABLES:
        for g in constants.GOLD:
            yield from (("gold constants", table, g, s) for s in range(2))
            yield ("gold priors", table, g, 0)
        if table in HAS_FAMILIES:
            yield from (("family prior", table, g, 0) for g in constants.FAMILY_GOLD)
        n_seeds = 10 if table == "judgebench" else 5 if table in SIMULATIONS else 3
        yield from (("sets", table, 0, s) for s in range(n_seeds))
        for g in constants.FEW_GOLD:
            yield from (("least gold", table, g, s) for s in range(n_seeds))
    yield from (("search", name, 0, 0) for name in (*AGGREGATION_SETS, *LOADERS))


def cells(*kinds: str) -> Iterator[Record]:
    """Yield the cells of some kinds, or of all."""
    for cell in every_cell():
        if not kinds or cell[0] in kinds:
            yield dict(zip(CELL, cell, strict=True))


def measure(kind: str, table: str, gold: int, seed: int) -> Record:
    """Measure a cell."""
    alone: dict[str, Callable[[], Any]] = {
        "nested": lambda: cell_of.nested_cell(NESTED[table], seed),
        "abstentions": lambda: cell_of.abstentions_cell(table, seed),
        "counted": lambda: counted_cell(READ_OUT[table](seed)),
        "search": lambda: constants.search_cell(table),
    }
    has = table in HAS_FAMILIES
    of_table: dict[str, Callable[[Any], Any]] = {
        "gold": lambda p: cell_of.gold_cell(p, gold, seed),
        "accuracies": cell_of.accuracies_cell,
        "methods": cell_of.methods_cell,
        "rho": cell_of.rho_cell,
        "declarations": lambda p: cell_of.declarations_cell(p, seed),
        "tetrad": lambda p: cell_of.tetrad_cell(p, seed),
        "rules": rules_cell,
        "gold rules": lambda p: gold_rules_cell(p, gold, seed, has_families=has),
        "rho constant": constants.rho_cell,
        "warning": constants.warning_cell,
        "gold constants": lambda p: constants.gold_cell(p, gold, seed),
        "gold priors": lambda p: constants.gold_priors_cell(p, gold, seed),
        "family prior": lambda p: constants.family_prior_cell(p, gold, seed),
        "smallest set": constants.smallest_set_cell,
        "least gold": lambda p: constants.least_gold_cell(p, gold, seed, has_families=has),
        "sets": lambda p: constants.sets_cell(p, seed),
    }
    figures = alone[kind]() if kind in alone else of_table[kind](TABLES[table](seed))
    return {"figures": figures}


STUDY = Study(
    __file__,
    {
        "all": cells,
        "rules": partial(cells, "rules"),
        "gold-rules": partial(cells, "gold", "gold rules"),
        "constants": partial(
            cells,
            *("rho constant", "gold constants", "gold priors", "family prior"),
            *("warning", "smallest set", "least gold", "sets"),
        ),
        "search": partial(cells, "search"),
        "read-out": partial(cells, "counted"),
    },
    measure,
    page,
    data=lambda cell: [cell["table"].split(",")[0], f"aggregation/{cell['table']}"],
)


if __name__ == "__main__":
    STUDY.main()
