"""Annotators that share mistakes: families declared, undeclared, and chosen by gold.

Every cell (table, seed, number of gold labels) fits all rules on one table and is one record: a
line of JSON with accuracy (ties shared), log loss (probabilities clipped at 1e-12) and calibration
error (15 bins) on the instances without gold. Machines are classifiers trained on other instances.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/families.py --records results/benchmarks/families.jsonl --out
docs/results/families.md``. Cells that are in the records are not repeated. ``--only constants``
runs the cells of one part and replaces that part of the page.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import families_rules as constants
import families_tables as cell_of
import numpy as np
from aggregation import AGGREGATION_SETS, LOADERS
from families_rules import (
    COUNTS,
    GOLD_CONSTANTS,
    SIMULATED,
    counted_cell,
    figure_rows,
    gold_rules_cell,
    rules_cell,
    warning_rows,
)
from families_rules import GOLD as CONSTANTS_GOLD
from families_rules import TABLES as READ_OUT
from families_tables import (
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
from pages import run_missing, table_lines, write_part

from manyhands.annotations.groups import RHO
from manyhands.inference.shared_mistakes import DENSE, LEAST_SEARCHED, LEAST_Z
from manyhands.io import write_atomically
from manyhands.typing import FloatArray

# -- The page of `families.py`, and its parts


LOSS = 0.03
"""A rule that loses more accuracy against the best simple rule is named on the page."""


class Records:
    """Figures by kind of cell, table and number of gold labels."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.found: dict[tuple[str, str, int], dict[int, dict[str, list[float]]]] = {}
        for record in records:
            kind, table, g, seed = record["cell"]
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


def _gold_tables(found: Records) -> Iterator[str]:
    for table in TABLES:
        yield f"**{table}**\n"
        heads = ["rule", *(f"{g} gold" for g in GOLD)]
        rows = [[rule, *(found.show("gold", table, rule, g) for g in GOLD)] for rule in RULES]
        yield from table_lines(heads, [row for row in rows if any(row[1:])])


def _machines(found: Records) -> Iterator[list[str]]:
    for table in ("sentiment, 3 humans", "cifar10n, 3 humans", *list(BESIDE)[-2:]):
        names = found.rules("accuracies", table)
        means = [found.values("accuracies", table, name).mean() for name in names]
        yield [table, ", ".join(map(_short, means))]


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


# -- parts ----------------------------------------------------------------------------------------


def _other_rules(found: Records) -> Iterator[str]:
    """Rules that need no gold, beside the library's."""
    yield (
        "Dawid-Skene with nothing declared, with the families' weights in all steps (rho = "
        f"{RHO:g}), and other uses of the same declaration:\n"
    )
    yield "- *Read-out only*: EM without families; afterwards rho = 1, or the families' weights."
    yield "- *Mean of vote shares*: each family has one vote, and all have the same weight."
    yield "- *One label*: a family's most frequent label stands for it."
    yield (
        "- *Two-level*: a family has a label of its own on each instance, which depends on the "
        "class; members are independent given it (plain EM, one pseudo-count per row)."
    )
    yield (
        "- *Rho by moments*: weights with the members' residual correlation under the posterior "
        "without families."
    )
    yield "- *Mean over cuts*: nothing is declared; each cut that gold could choose counts equally."
    yield "- *All gold*: logistic regression on all labels (an oracle), for dense annotators.\n"
    tables = found.tables("rules")
    names = found.rules("rules", "judgebench")
    rows = [[name, *(found.show("rules", table, name) for table in tables)] for name in names]
    yield from table_lines(["rule", *tables], rows)
    yield (
        "What is not made again: the partition with the greatest BIC (families that are found are "
        "not acted on without gold; the mean over cuts shows what acting on them costs), and the "
        "correlation of errors under gold (it describes JudgeBench and is no rule).\n"
    )


def _other_gold_rules(found: Records) -> Iterator[str]:
    """Rules with gold: JudgeBench, and the regret of all of them."""
    yield (
        "*Gold alone*: confusion matrices counted on the gold labels. *Regressions*: one base and "
        "the middle prior of `GoldCorrected`. *Two-level*: as without gold. Everything gets the "
        "gold of the tables above. JudgeBench:\n"
    )
    names = [*FLAT, *DECLARED]
    rows = [[r, *(found.show("gold", "judgebench", r, g) for g in GOLD[1:])] for r in names]
    yield from table_lines(["rule", *(f"{g} gold" for g in GOLD[1:])], rows)
    tables = ("judgebench", *SIMULATIONS, *PEOPLE)
    yield (
        "How much worse a rule is than the best of these rules on the same table, if nobody "
        "declares families: mean and greatest log loss / mean and greatest accuracy over "
        f"{len(tables)} tables (JudgeBench, the simulations, the human tables). The best annotator "
        "is known only where everybody annotates everything.\n"
    )
    heads = ["rule", *(f"{g} gold" for g in GOLD[1:])]
    yield from table_lines(heads, _regrets(found, FLAT, tables))
    yield (
        f"The same among rules with declared families, over the {len(HAS_FAMILIES)} tables whose "
        "families have a reason:\n"
    )
    yield from table_lines(heads, _regrets(found, DECLARED, HAS_FAMILIES))
    yield (
        "What is not made again: the weight of the annotations without gold, stacking and model "
        "averages chosen by cross-validation (each needs tens of fits per draw, where the evidence "
        "takes one), and a limit on what an annotator's unlabelled annotations count (another "
        "form of that weight).\n"
    )


def _constants(found: Records) -> Iterator[str]:
    """Half and twice each constant."""
    heads = ["constant", "value", "as is", "half", "twice", "family left out", "chosen there"]
    yield (
        "As in [posteriors](posteriors.md#the-other-constants): log loss / calibration error with "
        'half and twice each constant, and ("left out") with the one that has the lowest log loss '
        "on the other tables; how many tables get which. Tables of the same source (Sentiment, "
        "CIFAR-10N) are left out together. The correlation within families is judged on the tables "
        "whose families have a reason, and is at most 1. The others are those of `GoldCorrected` "
        f"with {' and '.join(map(str, CONSTANTS_GOLD))} gold labels and no declared families, on "
        "all tables; `DENSE` says among whose families gold may choose. Where all figures of a row "
        "are equal, the constant does not matter on these tables.\n"
    )
    rows = [["RHO", f"{RHO:g}", *figure_rows(found, "rho constant", "RHO", (0,))]]
    for name, (value, *_) in GOLD_CONSTANTS.items():
        cells = figure_rows(found, "gold constants", name, CONSTANTS_GOLD)
        rows.append([name, str(value), *cells])
    yield from table_lines(heads, rows)
    yield (
        "The same for the priors of `GoldCorrected` that `SCALES` does not hold (v is what a vote "
        "counts, with a prior of its own where the base is the votes alone; e is what a declared "
        "family counts, in units of s), and for the sizes of sets (half of `LEAST_SEARCHED` is "
        f"{constants.SET_SIZES['LEAST_SEARCHED'][1]}, of `MOST_CUT` "
        f"{constants.SET_SIZES['MOST_CUT'][1]}). One draw of gold, not two, to save time. e is "
        f"judged with {' and '.join(map(str, constants.FAMILY_GOLD))} gold labels "
        "and declared families, on the tables whose families have a reason.\n"
    )
    yield from table_lines(heads, constants.prior_rows(found))
    yield constants.limits_of_cost(found)
    yield (
        "Three constants decide on warnings. Share of the draws in which `fit` would warn: on "
        "tables with families that have a reason / on the human tables and independent annotators. "
        '"Left out": the one with the greatest difference on the other tables.\n'
    )
    rows = [
        ["LEAST_Z", f"{LEAST_Z:g}", *warning_rows(found, "LEAST_Z")],
        ["DENSE", f"{DENSE:g}", *warning_rows(found, "DENSE")],
        ["LEAST_SEARCHED", str(LEAST_SEARCHED), *warning_rows(found, "LEAST_SEARCHED")],
    ]
    yield from table_lines(heads, rows)
    yield (
        "Constants that are least values, each with values about the library's (bold): what it "
        'costs on each family of tables, the value chosen without it, and what is "lost" by that '
        "against the best value in its row.\n"
    )
    yield from constants.least_values(found)


def _search(found: Records) -> Iterator[str]:
    """What `fit` finds on human tables."""
    yield (
        "Sets are searched among annotators who annotated at least "
        f"{100 * DENSE:.0f} % of the instances, on the real tables of people with all their "
        f"annotations (no thinning, no gold). Above {LEAST_Z:g}, `fit` warns. Nobody knows whether "
        "these people share mistakes.\n"
    )
    rows, none = [], []
    for table in found.tables("search"):
        run = found.found["search", table, 0][0]
        n_dense, members = int(run["dense"][0]), run.get("members", [])
        if not members:
            none.append(f"{table} ({n_dense})")
            continue
        z = run["z"][0]
        shown = f"{z:.1f}" if np.isfinite(z) else "not measurable"
        warns = "yes" if z > LEAST_Z else "no"
        names = f"{len(members)}: {', '.join(members)}"
        rows.append([table, str(n_dense), shown, warns, names])
    heads = ["table", "such annotators", "highest z", "warns", "members of that set"]
    yield from table_lines(heads, rows)
    yield f"No set to look at (such annotators): {', '.join(none) or 'none'}.\n"


def _read_out(found: Records) -> Iterator[str]:
    """What a family counts in the design effect."""
    yield (
        "The default fit with declared families, read out with three counts of an instance's "
        "annotators: all members of a family, the sum of their weights (the library's), or one per "
        "family. rho is the correlation that `fit` finds beyond families; if it is 0, the count "
        "does not matter. Log loss / calibration error; the count changes no label. In the "
        "simulations, families stand beside four people. *Copy*: members repeat one draw of their "
        "family in 80 %. *Decoys*: on a quarter of the instances, 60 % of all annotators take the "
        "same wrong class.\n"
    )
    rows, sums = [], {"simulations": [], "families that have a reason": [], "needless": []}
    for table in READ_OUT:
        values = [found.values("counted", table, name)[:, 1:].mean(axis=0) for name in COUNTS]
        kind = "simulations" if table in SIMULATED else "families that have a reason"
        sums["needless" if table in PEOPLE else kind].append(values)
        rho = found.values("counted", table, "rho").mean()
        rows.append([table, _short(rho), *(" / ".join(map(_short, pair)) for pair in values)])
    for kind, values in sums.items():
        means = np.mean(values, axis=0)
        shown = [" / ".join(map(_short, pair)) for pair in means]
        rows.append([f"mean, {kind}", "", *shown])
    yield from table_lines(["table", "rho", "members", "weights (ours)", "families"], rows)
    best = [f"{kind}: {COUNTS[np.mean(v, axis=0)[:, 0].argmin()]}" for kind, v in sums.items()]
    yield (
        f"Lowest mean log loss: {'; '.join(best)}. Members count too much where rho is found well: "
        "what they share within the family is no further evidence, and the posterior is not sure "
        "enough. They do better where rho is found too small, as with decoys that mislead "
        "everybody. Weights and families differ little.\n"
    )


class Part(NamedTuple):
    """A part of the page that can be made alone."""

    heading: str
    kinds: tuple[str, ...]
    lines: Callable[[Records], Iterator[str]]


PARTS = {
    "rules": Part("Other rules without gold", ("rules",), _other_rules),
    "gold-rules": Part("Other rules with gold", ("gold", "gold rules"), _other_gold_rules),
    "constants": Part(
        "The constants",
        (
            "rho constant",
            "gold constants",
            "gold priors",
            "family prior",
            "warning",
            "smallest set",
            "least gold",
            "sets",
        ),
        _constants,
    ),
    "search": Part("Human tables as they are", ("search",), _search),
    "read-out": Part("What a family counts in the read-out", ("counted",), _read_out),
}


# -- the page -------------------------------------------------------------------------------------


def page(records: list[dict[str, Any]]) -> str:
    """Write the page."""
    found, dates = Records(records), sorted({record["date"] for record in records})
    minutes = sum(record["seconds"] for record in records) / 60
    lines = [
        "# Annotators that share mistakes",
        "",
        f"{' to '.join(sorted({dates[0], dates[-1]}))}; {len(records)} cells, {minutes:.0f} CPU "
        "minutes. Figures are accuracy (ties shared; ± sd over seeds) / log loss / calibration "
        "error, on the instances without gold. [families](../families.md) explains the rules.",
        "",
        "    OMP_NUM_THREADS=1 python benchmarks/families.py "
        "--records results/benchmarks/families.jsonl --out docs/results/families.md",
        "",
        "Constants were looked at on the same tables, of which one (JudgeBench) holds language "
        "models. Seeds draw the gold, the thinning and the simulations. Machines learnt from 400 "
        "texts (2,500 if stronger) or 2,500 pictures. CIFAR-10N has three annotations per picture, "
        "so five humans are not possible there. Accuracies of the machines:",
        "",
        *table_lines(["table", "machines"], _machines(found)),
        "## Without gold: every method",
        "",
        'JudgeBench, and three machines beside three humans. "families": the judges and the '
        "reward models, or the machines, are declared (rho = .8).",
        "",
    ]
    shown = ["judgebench", "sentiment, 3 humans", "cifar10n, 3 humans"]
    heads = ["method", *(f"{t}{mark}" for t in shown for mark in ("", ": families"))]
    rows = [
        [m, *(found.show("methods", t, m + mark) for t in shown for mark in ("", ", families"))]
        for m in METHODS
    ]
    lines += table_lines(heads, rows)
    lines += ["Dawid-Skene on JudgeBench, by what is declared:", ""]
    names = found.rules("declarations", "judgebench")
    rows = [[name, found.show("declarations", "judgebench", name)] for name in names]
    lines += table_lines(["families", "JudgeBench"], rows)
    lines += ["## The correlation within families", "", "Dawid-Skene, families declared.", ""]
    rhos = [f"{rho:g}" for rho in RHOS]
    rows = [[t, *(found.show("rho", t, rho) for rho in rhos)] for t in TABLES]
    lines += table_lines(["table", *(f"rho {rho}" for rho in rhos)], rows)
    lines += [
        "On the human tables, families are random groups of about eight, so every loss there is "
        "the price of a needless declaration.",
        "",
        "One kind of six machines by two makers, beside three people; the mistakes that all "
        "machines share, in three strengths. Weights for both levels gain nothing over the broad "
        "family.",
        "",
    ]
    levels = ["none", "makers", "kind", "both levels"]
    rows = [[name, *(found.show("nested", name, level) for level in levels)] for name in NESTED]
    lines += table_lines(["simulation", *levels], rows)
    lines += [
        "A family of five machines that abstain at random, more often in one class, or together "
        "and more often in one class, beside four people. Abstentions of a family are weighted by "
        "the number of members who abstained.",
        "",
    ]
    hows = ["ignore", "model"]
    rows = [[name, *(found.show("abstentions", name, how) for how in hows)] for name in REASONS]
    lines += table_lines(["reason", *hows], rows)
    lines += ["## Shared mistakes without gold: z of the tetrad", ""]
    lines += [
        '"declared" is the first family of the table, "searched" the highest z of the sets '
        "that `fit` looks at (none if fewer than three annotators have 30 % of the instances), "
        '"random" sets of four of the twelve busiest annotators: mean and range over seeds; '
        f"share above {LEAST_Z:g}. Random sets may hold machines: only for the human tables and "
        '"7 independent" is the share one of false alarms.',
        "",
    ]
    lines += table_lines(
        ["table", "declared", "searched", "random", f"random > {LEAST_Z:g}"], _z_rows(found)
    )
    lines += [
        "## With gold",
        "",
        '"Dawid-Skene" gets the gold as known labels. With families, `GoldCorrected` corrects '
        "from 50 gold labels on.",
        "",
    ]
    lines += _gold_tables(found)
    for part in PARTS.values():
        lines += [f"## {part.heading}", "", *part.lines(found)]
    lines += [
        "## Where a rule loses",
        "",
        f"More than {_short(LOSS)} below the best of majority vote, the best annotator by gold, "
        "and the humans alone (table, number of gold labels: loss of accuracy). These are rules "
        "themselves, and are compared with the others of them:",
        "",
        *_losses(found, "gold", tuple(dict.fromkeys((*RULES[1:], *FLAT, *DECLARED))), GOLD),
        "Rules without gold of the part above:",
        "",
        *_losses(found, "rules", found.rules("rules", "judgebench"), (0,)),
        "Every method without gold on all tables, without and with declared families (random "
        "ones on the human tables): more than that below the best of the same rules (table: loss):",
        "",
        *_losses(found, "methods", [m + mark for m in METHODS for mark in MARKS], (0,)),
    ]
    return "\n".join(lines).rstrip() + "\n"


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


Cell = tuple[str, str, int, int]
"""Kind of cell, table, number of gold labels, seed."""


def with_gold(kind: str) -> Iterator[Cell]:
    """Cells of all tables, with each number of gold labels."""
    for table in TABLES:
        n_seeds = 30 if table == "judgebench" else 10 if table in SIMULATIONS else 3
        for g in GOLD:
            if (table, g) != ("duck", 100):  # It has 108 instances.
                yield from ((kind, table, g, s) for s in range(n_seeds))


def cells() -> Iterator[Cell]:
    """Yield all cells, the cheap ones first."""
    for table in TABLES:
        once = table == "judgebench"
        n_seeds = 10 if table in SIMULATIONS else 3
        yield from (("methods", table, 0, s) for s in range(1 if once else min(n_seeds, 3)))
        yield from (("rho", table, 0, s) for s in range(1 if once else n_seeds))
        yield from (("tetrad", table, 0, s) for s in range(20 if once else n_seeds))
        yield from (("rho constant", table, 0, s) for s in range(1 if once else n_seeds))
        yield from (("warning", table, 0, s) for s in range(1 if once else n_seeds))
        yield from (("smallest set", table, 0, s) for s in range(1 if once else n_seeds))
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


def run(cell: Cell) -> dict[str, Any]:
    """Run one cell."""
    kind, name, g, seed = cell
    started = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "nested":
            found = cell_of.nested_cell(NESTED[name], seed)
        elif kind == "abstentions":
            found = cell_of.abstentions_cell(name, seed)
        elif kind == "counted":
            found = counted_cell(READ_OUT[name](seed))
        elif kind == "search":
            found = constants.search_cell(name)
        else:
            problem = TABLES[name](seed)
            found = {
                "gold": partial(cell_of.gold_cell, problem, g, seed),
                "accuracies": partial(cell_of.accuracies_cell, problem),
                "methods": partial(cell_of.methods_cell, problem),
                "rho": partial(cell_of.rho_cell, problem),
                "declarations": partial(cell_of.declarations_cell, problem, seed),
                "tetrad": partial(cell_of.tetrad_cell, problem, seed),
                "rules": partial(rules_cell, problem),
                "gold rules": partial(
                    gold_rules_cell, problem, g, seed, has_families=name in HAS_FAMILIES
                ),
                "rho constant": partial(constants.rho_cell, problem),
                "warning": partial(constants.warning_cell, problem),
                "gold constants": partial(constants.gold_cell, problem, g, seed),
                "gold priors": partial(constants.gold_priors_cell, problem, g, seed),
                "family prior": partial(constants.family_prior_cell, problem, g, seed),
                "smallest set": partial(constants.smallest_set_cell, problem),
                "least gold": partial(
                    constants.least_gold_cell, problem, g, seed, has_families=name in HAS_FAMILIES
                ),
                "sets": partial(constants.sets_cell, problem, seed),
            }[kind]()
    date = datetime.date.today().isoformat()
    seconds = round(process_time() - started, 2)
    return {"cell": list(cell), "figures": found, "seconds": seconds, "date": date}


def main() -> None:
    """Run the cells that are not in the records, and write the page or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, required=True, help="JSON lines, one per cell")
    parser.add_argument("--out", type=Path, help="Markdown file")
    parser.add_argument("--only", choices=PARTS, help="one part of the page")
    arguments = parser.parse_args()
    chosen = PARTS.get(arguments.only)
    wanted = [c for c in cells() if chosen is None or c[0] in chosen.kinds]
    planned = ((cell, partial(run, cell)) for cell in wanted)
    records = run_missing(arguments.records, planned, lambda record: tuple(record["cell"]))
    records = [record for record in records if tuple(record["cell"]) in set(wanted)]
    if arguments.out is None:
        return
    if chosen is None:
        write_atomically(arguments.out, page(records))
    else:
        lines = chosen.lines(Records(records))
        write_part(arguments.out, "Annotators that share mistakes", chosen.heading, lines)


if __name__ == "__main__":
    main()
