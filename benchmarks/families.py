"""Annotators that share mistakes: families declared, undeclared, and chosen by gold.

Every cell (table, seed, number of gold labels) fits all rules on one table and is one record: a
line of JSON with accuracy (ties shared), log loss (probabilities clipped at 1e-12) and calibration
error (15 bins) on the instances without gold. Machines are classifiers trained on other instances.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/families.py --records families.jsonl --out
docs/results/families.md``. Cells that are in the records are not repeated. ``--only constants``
runs the cells of one part and replaces that part of the page.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import families_cells as cell_of
import families_constants as constants
from families_page import NESTED, PARTS, REASONS, Records, page
from families_readout import TABLES as READ_OUT
from families_readout import counted_cell
from families_rules import gold_rules_cell, rules_cell
from families_tables import BESIDE, GOLD, HAS_FAMILIES, SIMULATIONS, TABLES
from pages import run_missing, write_part

from manyhands.io import write_atomically

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
