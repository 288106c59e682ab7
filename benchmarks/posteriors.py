r"""Posteriors that allow for dependence between annotators: constants, simulations, what n counts.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/posteriors.py \
        --out docs/results/posteriors.md

The constants of `manyhands.inference.dependence` are tried on the 21 real tables of
``benchmarks/aggregation.py``. For "left out", they are chosen anew (lowest mean log loss) without
the tables of a family, and used on these. The page takes a few CPU minutes; ``--only annotators``
makes one part of it (``posterior_*.py`` hold the larger ones).
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aggregation import AGGREGATION_SETS, LOADERS
from pages import table_lines, write_part
from posterior_cases import (
    SEEDS,
    SHARES,
    THINNINGS,
    Case,
    annotators,
    counted,
    family_of,
    figures,
    lone,
    real_case,
    repeats_of,
    scores,
    sensitivity,
    simulations,
)

from manyhands import DawidSkene
from manyhands.inference.dependence import PRIOR_MEAN, PRIOR_SD, UPPER
from manyhands.io import write_atomically

GRID = list(product((0.15, 0.2, 0.25, 0.3), (0.1, 0.15, 0.2), (0.3, 0.4, 0.5)))
"""Mean and standard deviation of the prior on rho, and its upper limit."""
N_ORDERS = 20
TITLE = "Posteriors that allow for dependence between annotators"


def shrunk(case: Case, mean: float, sd: float, upper: float) -> float:
    """Estimate rho with other constants."""
    weight = 1.0 / max(case.se, 1e-6) ** 2
    value = (weight * case.rho + mean / sd**2) / (weight + 1.0 / sd**2)
    return float(np.clip(value, 0.0, upper))


def constants(cases: list[Case]) -> Iterator[str]:
    """Yield the table of rules on the real tables."""
    yield "| rule for rho | accuracy | log loss | ECE |"
    yield "|---|---|---|---|"
    ours = (PRIOR_MEAN, PRIOR_SD, UPPER)
    rules: dict[str, Callable[[Case], np.ndarray]] = {
        "0 (independent; own annotations removed)": lambda c: c.exponents(0.0),
        **{
            f"{rho} for all tables": lambda c, rho=rho: c.exponents(rho) for rho in (0.2, 0.25, 0.3)
        },
        "none: exponent n^-1/2": lambda c: np.maximum(c.n, 1.0) ** -0.5,
        "min(.3, 12 m), which the measured rho replaced": lambda c: c.exponents(c.cap),
        "measured, no prior, at most .5": lambda c: c.exponents(
            float(np.clip(c.rho, 0, 0.5)) if np.isfinite(c.se) else PRIOR_MEAN
        ),
        f"**measured, prior N({PRIOR_MEAN}, {PRIOR_SD}²), at most {UPPER}**": lambda c: c.exponents(
            shrunk(c, *ours)
        ),
    }
    for name, rule in rules.items():
        yield row(name, [scores(case, rule(case)) for case in cases])
    with_own = [case._replace(joint=case.kept) for case in cases]
    yield row(
        "measured, own annotations kept",
        [scores(case, case.exponents(shrunk(case, *ours))) for case in with_own],
    )
    table = {
        (case.name, setting): scores(case, case.exponents(shrunk(case, *setting)))
        for case in cases
        for setting in GRID
    }
    left_out, chosen = [], set()
    for case in cases:
        others = [c.name for c in cases if family_of(c.name) != family_of(case.name)]
        best = min(GRID, key=lambda s: np.mean([table[name, s][1] for name in others]))
        left_out.append(table[case.name, best])
        chosen.add(best)
    yield row("measured, constants chosen with the family left out", left_out)
    worst = max(GRID, key=lambda s: np.mean([table[case.name, s][1] for case in cases]))
    yield row(
        f"measured, worst constants of the grid {worst}", [table[c.name, worst] for c in cases]
    )
    best_of_each = [
        min(
            (scores(case, case.exponents(rho)) for rho in np.linspace(0, 1, 21)), key=lambda s: s[1]
        )
        for case in cases
    ]
    yield row("best for each table (oracle)", best_of_each)
    yield ""
    yield f"Chosen with a family left out (mean, sd, limit): {', '.join(map(str, sorted(chosen)))}."


def row(name: str, cells: list[tuple[float, float, float]]) -> str:
    """Return a row of means."""
    accuracy, log_loss, ece = np.mean(cells, axis=0)
    return f"| {name} | {accuracy:.4f} | {log_loss:.3f} | {ece:.3f} |"


def by_table(cases: list[Case]) -> Iterator[str]:
    """Yield measured and best rho, table by table."""
    yield (
        "| table | classes | annotations per instance | measured rho ± se | used "
        "| best by gold (oracle) |"
    )
    yield "|---|---|---|---|---|---|"
    for case in cases:
        grid = np.linspace(0, 1, 21)
        best = min(grid, key=lambda rho: scores(case, case.exponents(rho))[1])
        found = f"{case.rho:.2f} ± {case.se:.2f}" if np.isfinite(case.se) else "not measured"
        yield (
            f"| {case.name} | {len(case.classes)} | {case.n.mean():.1f} | {found} "
            f"| {case.used:.2f} | {best:.2f} |"
        )


def with_gold(cases: list[Case]) -> Iterator[str]:
    """Yield log loss and ECE of the instances without gold, by how rho is found."""
    heads = [
        "gold labels", "tables", "no gold", "gold, rho without it", "gold, rho from it",
        "log loss lower than with rho without it",
    ]  # fmt: skip
    rows = []
    for g in (20, 50, 100):
        cells = []
        for case in cases:
            if len(case.gold) < 2 * g:
                continue
            plain = DawidSkene().fit(case.task.table)
            settings = {"dependence": plain.dependence_, "n_subtypes": plain.n_subtypes_}
            drawn = []
            for seed in range(3):
                chosen = np.random.default_rng(seed).permutation(len(case.gold))
                known, rest = chosen[:g], np.sort(chosen[g:])
                ids = case.task.table.instances[case.known[known]].tolist()
                gold = dict(zip(ids, case.gold[known].tolist(), strict=True))
                models = [
                    plain,
                    DawidSkene(**settings).fit(case.task.table, gold=gold),
                    DawidSkene().fit(case.task.table, gold=gold),
                ]
                drawn.append([
                    figures(m.posterior_[case.known[rest]], case.gold[rest], case.classes)
                    for m in models
                ])  # fmt: skip
            cells.append(np.mean(drawn, axis=0))
        mean = np.mean(cells, axis=0)
        shown = [f"{loss:.3f} / {ece:.3f}" for _, loss, ece in mean]
        better = sum(cell[2, 1] < cell[1, 1] for cell in cells)
        rows.append([str(g), str(len(cells)), *shown, f"{better} of {len(cells)}"])
    yield from table_lines(heads, rows)


def modes(cases: list[Case]) -> Iterator[str]:
    """Yield accuracy, and the share of labels that differ, of plain EM with a small tolerance."""
    kinds: dict[str, dict[str, Any]] = {
        "1 subtype": {"n_subtypes": 1},
        "2 subtypes": {"n_subtypes": 2},
        "chosen": {},
    }
    what = ("accuracy", "labels differ", "with tol=1e-6")
    rows, all_shares = [], []
    for case in cases:
        row, shares = [case.name], []
        for kind, options in kinds.items():
            long = {"max_iter": 5000, "tol": 1e-6, **options}
            slow, ours, fast = (
                DawidSkene(**chosen).fit(case.task.table)
                for chosen in ({**long, "accelerate": False}, options, long)
            )
            accuracies = [(m.labels_[case.known] == case.gold).mean() for m in (slow, ours)]
            pair = [(slow.labels_ != m.labels_).mean() for m in (ours, fast)]
            of = f" ({slow.n_subtypes_} → {ours.n_subtypes_})" if kind == "chosen" else ""
            row += [f"{accuracies[0]:.4f} → {accuracies[1]:.4f}{of}", *(f"{s:.2%}" for s in pair)]
            shares += [abs(accuracies[1] - accuracies[0]), *pair]
        rows.append(row)
        all_shares.append(shares)
    greatest = np.max(all_shares, axis=0)
    shown = [f"{x:.2%}" if k % 3 else f"{x:.4f}" for k, x in enumerate(greatest)]
    heads = ["table", *(f"{kind}: {name}" for kind in kinds for name in what)]
    yield from table_lines(heads, [*rows, ["greatest difference", *shown]])


def orders(cases: list[Case]) -> Iterator[str]:
    """Yield rho, subtypes, probabilities and labels of the same tables in other orders."""
    rows, all_moves, n_same, n_changed = [], [], 0, 0
    for case in cases:
        table = case.task.table
        plain = DawidSkene().fit(table)
        rho, subtypes, moves = [], [], []
        for seed in range(N_ORDERS):
            order = np.random.default_rng(seed).permutation(table.n_instances)
            model = DawidSkene().fit(table[order])
            rho.append(model.dependence_)
            subtypes.append(model.n_subtypes_)
            back = np.argsort(order)
            move = np.abs(model.posterior_[back] - plain.posterior_).max()
            labels = model.labels_[back]
            if model.n_subtypes_ == plain.n_subtypes_:
                n_same, n_changed = n_same + 1, n_changed + int((labels != plain.labels_).any())
            right = [(found[case.known] == case.gold).mean() for found in (labels, plain.labels_)]
            moves.append([move, (labels != plain.labels_).mean(), abs(right[0] - right[1])])
        greatest = np.max(moves, axis=0)
        spread = np.std(rho, ddof=1)
        all_moves.append([spread, *greatest])
        rows.append([
            case.name, f"{plain.dependence_:.3f}", f"{np.mean(rho):.3f} ± {spread:.3f}",
            f"{min(rho):.3f} to {max(rho):.3f}", str(plain.n_subtypes_),
            f"{subtypes.count(2)} of {N_ORDERS}", *_moves(greatest),
        ])  # fmt: skip
    most = np.max(all_moves, axis=0)
    rows.append(["greatest", "", f"± {most[0]:.3f}", "", "", "", *_moves(most[1:])])
    heads = [
        "table", "rho as loaded", "rho, other orders", "range", "subtypes as loaded",
        "two subtypes", "a probability moves by", "labels differ", "accuracy differs by",
    ]  # fmt: skip
    yield from table_lines(heads, rows)
    yield (
        f"In {n_same} fits as many subtypes are chosen as in the order as loaded; in {n_changed} "
        "of these a label differs."
    )


def _moves(greatest: Any) -> list[str]:
    probability, labels, accuracy = greatest
    return [f"{probability:.3f}", f"{labels:.2%}", f"{accuracy:.4f}"]


def of(lines: Callable[[list[Case]], Iterator[str]], *around: str) -> Callable[..., str]:
    """A part: what stands before its table, and after it."""
    before, *after = around
    return lambda cases: "\n\n".join([before, "\n".join(lines(cases)).strip(), *after])


class Part(NamedTuple):
    """A part of the page; ``text`` makes it from the real tables, if it needs them."""

    heading: str
    text: Callable[[list[Case]], str]
    needs_tables: bool = True


def what_counts(cases: list[Case]) -> str:
    """Simulations, and the real tables with repeated annotations."""
    return "\n\n".join(
        [
            f"Log loss / ECE, means over {len(SEEDS)} seeds.",
            "\n".join(counted()),
            "Where annotators are asked twice, their answers count once. If the answers were "
            "independent, this is not sure enough. How far people repeat themselves can be "
            "measured (agreement of their answers beyond what their confusion matrices expect), "
            "and a rule that counts by it is better in simulations. On the real tables with "
            "repeated annotations it gains nothing:",
            "\n".join(repeats_of(cases)).strip(),
            "Declared families are measured [by themselves]"
            "(families.md#what-a-family-counts-in-the-read-out).",
        ]
    )


PARTS = {
    "rule": Part(
        "The rule, on 21 real tables",
        of(
            constants,
            "Means over the tables. The prior's constants were chosen with these tables in view. "
            "m is the moment of the fit itself, as the study that this rests on used it. Own "
            "annotations are removed from the confusion matrices that judge an instance, but for "
            "the row where they are kept, as in `IBCC`, `GLAD`, `MACE` and `OneCoinDawidSkene`.",
        ),
    ),
    "by-table": Part(
        "Measured rho beside the best one",
        of(
            by_table,
            "*Used* is `dependence_` of `DawidSkene`. rho is not measured where annotators have "
            "less than one annotation per class on average; then the mean of the prior is used. "
            "The best rho has the lowest log loss of the gold labels (steps of .05).",
        ),
    ),
    "constants": Part(
        "The other constants",
        of(
            sensitivity,
            "Log loss / ECE of `DawidSkene`, means over the tables, with half and twice each "
            "constant of `manyhands.inference.dependence` (and one EM step for half of three), of "
            "the standard errors that rho must be above 0 for a second subtype to be tried, of "
            "EM's tolerance, and of its over-relaxed steps (half and twice what `STEP_GROWTH` is "
            'above 1). "Left out": of the three, the one with the lowest mean log loss on the '
            "other families; how many tables get which. Where all figures of a row are equal, the "
            "constant does not matter on these tables: no sample reaches `N_CELLS`. The constants "
            "of declared families are [on their page](families.md#the-constants).",
        ),
    ),
    "lone": Part(
        "Lone annotators",
        of(
            lone,
            "`LEAST_COMPARED`: if fewer instances have two annotators, the labels of annotators "
            "who annotated an instance alone count as known while parameters are estimated. That "
            "guards against collapse (second table); what it costs is in the first. Here "
            f"each table is thinned so that {', '.join(f'{s:g}' for s in SHARES)} of its instances "
            "keep all annotations and the others one; log loss of `DawidSkene`, means over these "
            f'and {len(THINNINGS)} draws. In bold the library\'s value. "Lost": by the value '
            "that is best on the other families, against the best value in the row.",
        ),
    ),
    "gold": Part(
        "Gold labels",
        of(
            with_gold,
            "Log loss / ECE of `DawidSkene` on the instances without gold, means over the tables "
            "with gold labels for at least twice as many instances, and over three draws of gold.",
        ),
    ),
    "annotators": Part(
        "Annotators against gold",
        of(
            annotators,
            "Annotators' accuracy as inferred (`annotator_reliability`, which gives "
            "`annotator_accuracy_` and a 95 %-interval) and by gold. Both are of the same "
            "annotations, those of instances with gold. Mean absolute error, mean error (bias), "
            "and how often the interval holds the accuracy by gold; annotations weigh the same. "
            "The interval is for an annotator's accuracy in general, so it should hold the "
            "accuracy on these annotations in more than 95 % of cases. Where it does not, the "
            "posterior itself is too sure or not sure enough, for which the interval does not "
            "allow.",
        ),
    ),
    "modes": Part(
        "Where EM ends",
        of(
            modes,
            "Accuracy of plain EM (`accelerate=False, tol=1e-6, max_iter=5000`) → the default's "
            "(over-relaxed, `tol=3e-5`), and the share of all labels that differ from plain EM's: "
            "the default's, and those of over-relaxed EM with the same small tolerance. In "
            "brackets the numbers of subtypes that were chosen. Over-relaxed steps end where plain "
            "EM does but for a few labels; most of the difference is the default's tolerance, "
            "which may also decide how many subtypes are chosen (relevance; there the draw of the "
            "simulation that measures rho [decides it too](#the-order-of-the-instances)).",
        ),
    ),
    "orders": Part(
        "The order of the instances",
        of(
            orders,
            "rho is read off simulated tables, whose random numbers are always the same. Where "
            "the same instances stand in another order, they get others of these numbers. "
            f"`DawidSkene` on each table in {N_ORDERS} random orders, against the order as loaded: "
            "mean ± sd and range of rho, in how many orders two subtypes are chosen, and, "
            "each the greatest over the orders, by how much a probability moves, which share of "
            "the labels differs, and by how much accuracy does. The order does not matter where "
            "everybody annotated everything (duck), or where rho is not measured (cf).",
        ),
    ),
    "simulations": Part(
        "Simulated crowds",
        of(
            lambda _: simulations(),
            f"{len(SEEDS)} seeds, mean ± sd. In crowds without italics the annotators err "
            "independently, so rho is 0; in the others they share mistakes. min(.3, 12 m) is the "
            "rule that the measured rho replaced.",
        ),
        needs_tables=False,
    ),
    "counts": Part("What counts as an annotation", what_counts),
}


def main() -> None:
    """Write the page, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=PARTS, action="append", help="one part of the page")
    arguments = parser.parse_args()
    chosen = [PARTS[key] for key in arguments.only or PARTS]
    if arguments.only is None:
        about = (
            "Made by `benchmarks/posteriors.py`; every part has its date. What rho is and how it "
            "is measured: `manyhands.inference.dependence` and [inference]"
            "(../inference.md#dependence)."
        )
        write_atomically(arguments.out, f"# {TITLE}\n\n{about}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        needs_tables = any(part.needs_tables for part in chosen)
        cases = [real_case(n) for n in (*AGGREGATION_SETS, *LOADERS)] if needs_tables else []
        for part in chosen:
            text = f"{datetime.date.today()}. {part.text(cases)}"
            write_part(arguments.out, TITLE, part.heading, [text])


if __name__ == "__main__":
    main()
