r"""Posteriors that allow for dependence between annotators: constants, simulations, what n counts.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/posteriors.py \
        --out docs/results/posteriors.md

The constants of `manyhands.inference.dependence` are tried on the 21 real tables of
``benchmarks/aggregation.py``. For "left out", they are chosen anew (lowest mean log loss) without
the tables of a family, and used on these.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aggregation import AGGREGATION_SETS, LOADERS, load
from scipy.special import log_softmax

from manyhands import AnnotationTable, DawidSkene, MajorityVote
from manyhands.inference.confusion_em import OwnRemoved
from manyhands.inference.dependence import (
    DEFAULT_EM,
    PRIOR_MEAN,
    PRIOR_SD,
    UPPER,
    exponents,
    measure,
)
from manyhands.inference.em import normalise_joint
from manyhands.inference.vote_sums import by_instance, vote_shares
from manyhands.inference.votes import make_votes
from manyhands.io import write_atomically
from manyhands.metrics import calibration

SEEDS = range(5)
FAMILIES = {
    "ms": "music",
    "sp": "sentiment",
    "sp_amt": "sentiment",
    "cf_amt": "cf",
    "zencrowd_us": "zencrowd",
    "zencrowd_in": "zencrowd",
    "trec": "relevance",
}
GRID = list(product((0.15, 0.2, 0.25, 0.3), (0.1, 0.15, 0.2), (0.3, 0.4, 0.5)))
"""Mean and standard deviation of the prior on rho, and its upper limit."""


class Case(NamedTuple):
    """What is needed to read a posterior with any rho."""

    name: str
    joint: np.ndarray
    exponents: Callable[[float], np.ndarray]
    n: np.ndarray
    rho: float
    se: float
    known: np.ndarray
    gold: np.ndarray
    classes: np.ndarray


def real_case(name: str) -> Case:
    """Fit a real table; the read-out uses the number of subtypes that `DawidSkene` chooses."""
    task = load(name)
    votes = make_votes(task.table, abstentions=True)
    start = vote_shares(votes.answers)
    one = DEFAULT_EM.run(votes, votes.shards(), start)
    rho, se = measure(votes, one, DEFAULT_EM)
    n_subtypes = DawidSkene().fit(task.table).n_subtypes_
    run = one if n_subtypes == 1 else DEFAULT_EM.run(votes, votes.shards(), start, n_subtypes)
    joint = OwnRemoved(run)(votes)
    n = by_instance(votes.answers)
    of = partial(exponents, votes)
    return Case(name, joint, of, n, rho, se, task.known, task.gold, task.table.classes)


def scores(case: Case, exponent: np.ndarray) -> tuple[float, float, float]:
    """Accuracy, log loss and calibration error of a read-out."""
    proba = np.exp(log_softmax(exponent[:, None] * case.joint, axis=1))[case.known]
    found = calibration(proba, case.gold, classes=case.classes)
    return found.accuracy.value, found.log_loss.value, found.ece.value


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
        "measured, no prior, at most .5": lambda c: c.exponents(float(np.clip(c.rho, 0, 0.5))),
        f"**measured, prior N({PRIOR_MEAN}, {PRIOR_SD}²), at most {UPPER}**": lambda c: c.exponents(
            shrunk(c, *ours)
        ),
    }
    for name, rule in rules.items():
        yield row(name, [scores(case, rule(case)) for case in cases])
    table = {
        (case.name, setting): scores(case, case.exponents(shrunk(case, *setting)))
        for case in cases
        for setting in GRID
    }
    left_out, chosen = [], set()
    for case in cases:
        family = FAMILIES.get(case.name, case.name)
        others = [c.name for c in cases if FAMILIES.get(c.name, c.name) != family]
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


def row(name: str, figures: list[tuple[float, float, float]]) -> str:
    """Return a row of means."""
    accuracy, log_loss, ece = np.mean(figures, axis=0)
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
        yield (
            f"| {case.name} | {len(case.classes)} | {case.n.mean():.1f} | {case.rho:.2f} ± "
            f"{case.se:.2f} | {shrunk(case, PRIOR_MEAN, PRIOR_SD, UPPER):.2f} | {best:.2f} |"
        )


# -- simulations -----------------------------------------------------------------------------------


class Crowd(NamedTuple):
    """A simulated table and its true classes."""

    table: AnnotationTable
    y: np.ndarray


def crowd(
    seed: int,
    *,
    n_classes: int,
    per_instance: int,
    n: int = 1000,
    n_annotators: int = 40,
    kind: str = "independent",
    skew: float | None = None,
) -> Crowd:
    """Simulate annotators with their own confusion matrices, accuracy Beta(6, 2.5).

    Kinds: "independent"; "spam" (40 % guess) and "adversaries" (20 % are right in 15 %); "bias"
    (class 0 is taken for class 1 in 45 %); "difficult" (25 % of the instances are little better
    than guessed); "decoy" (on 25 % of the instances, 60 % of the annotations name the same wrong
    class).
    """
    rng = np.random.default_rng(seed)
    prior = np.full(n_classes, 1 / n_classes) if skew is None else np.array([skew, 1 - skew])
    y = rng.choice(n_classes, size=n, p=prior)
    accuracy = rng.beta(6, 2.5, n_annotators)
    if kind == "spam":
        accuracy[: int(0.4 * n_annotators)] = 1 / n_classes
    if kind == "adversaries":
        accuracy[: int(0.2 * n_annotators)] = 0.15
    confusion = rng.dirichlet(np.ones(n_classes - 1), size=(n_annotators, n_classes))
    full = np.zeros((n_annotators, n_classes, n_classes))
    for c in range(n_classes):
        full[:, c, np.arange(n_classes) != c] = (1 - accuracy)[:, None] * confusion[:, c]
        full[:, c, c] = accuracy
    if kind == "bias":
        full[:, 0] = [0.55, 0.45, *[0.0] * (n_classes - 2)]
    who = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :per_instance]
    rows = full[who, y[:, None]]
    hard = rng.random(n) < 0.25
    if kind == "difficult":
        rows[hard] = (1 - 0.1) / n_classes + 0.1 * np.eye(n_classes)[y[hard]][:, None, :]
    labels = (rows.cumsum(axis=2) < rng.random((n, per_instance, 1))).sum(axis=2)
    labels = np.minimum(labels, n_classes - 1)
    if kind == "decoy":
        misled = hard[:, None] & (rng.random(labels.shape) < 0.6)
        labels = np.where(misled, ((y + 1) % n_classes)[:, None], labels)
    return Crowd(_table(who, labels, n_classes, n_annotators), y)


def _table(
    who: np.ndarray, labels: np.ndarray, n_classes: int, n_annotators: int
) -> AnnotationTable:
    n, per_instance = who.shape
    return AnnotationTable.from_arrays(
        np.repeat(np.arange(n), per_instance), who.ravel(), labels.ravel(),
        n_instances=n, n_annotators=n_annotators, classes=range(n_classes),
    )  # fmt: skip


SIMULATIONS: dict[str, dict[str, Any]] = {
    "4 classes × 5 annotations": {"n_classes": 4, "per_instance": 5},
    "2 × 10": {"n_classes": 2, "per_instance": 10},
    "2 × 20": {"n_classes": 2, "per_instance": 20},
    "2 × 3": {"n_classes": 2, "per_instance": 3},
    "2 × 2": {"n_classes": 2, "per_instance": 2},
    "10 × 4": {"n_classes": 10, "per_instance": 4},
    "10 × 3": {"n_classes": 10, "per_instance": 3},
    "10 × 4, 200 annotators": {"n_classes": 10, "per_instance": 4, "n_annotators": 200},
    "50 × 5": {"n_classes": 50, "per_instance": 5, "n_annotators": 20},
    "100 × 5": {"n_classes": 100, "per_instance": 5, "n_annotators": 20},
    "2 × 5, 99:1": {"n_classes": 2, "per_instance": 5, "skew": 0.99},
    "4 × 8, 40 % spammers": {"n_classes": 4, "per_instance": 8, "kind": "spam"},
    "3 × 8, 20 % adversaries": {"n_classes": 3, "per_instance": 8, "kind": "adversaries"},
    "3 × 6, one class misread by all": {"n_classes": 3, "per_instance": 6, "kind": "bias"},
    "*3 × 6, difficult instances*": {"n_classes": 3, "per_instance": 6, "kind": "difficult"},
    "*4 × 6, shared decoys*": {"n_classes": 4, "per_instance": 6, "kind": "decoy"},
    "*2 × 20, shared decoys*": {"n_classes": 2, "per_instance": 20, "kind": "decoy"},
    "*10 × 3, shared decoys*": {"n_classes": 10, "per_instance": 3, "kind": "decoy"},
}


def simulations() -> Iterator[str]:
    """Yield one row per simulated crowd."""
    yield (
        "| crowd | rho | accuracy: majority | independent | default | log loss: independent "
        "| default | ECE: independent | default |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, settings in SIMULATIONS.items():
        cells = []
        for seed in SEEDS:
            table, y = crowd(seed, **settings)
            votes = MajorityVote(soft=False, ties="distribute").fit(table).posterior_
            after = DawidSkene().fit(table)
            before = DawidSkene(dependence=0).fit(table)
            found = [
                calibration(m.posterior_, y, classes=range(table.n_classes))
                for m in (before, after)
            ]
            cells.append(
                [after.dependence_, votes[np.arange(len(y)), y].mean()]
                + [c.accuracy.value for c in found]
                + [c.log_loss.value for c in found]
                + [c.ece.value for c in found]
            )
        mean, sd = np.mean(cells, axis=0), np.std(cells, axis=0, ddof=1)
        figures = " | ".join(f"{m:.3f} ± {s:.3f}" for m, s in zip(mean, sd, strict=True))
        yield f"| {name} | {figures} |"


# -- what n counts ---------------------------------------------------------------------------------


def repeated(seed: int, same: float) -> Crowd:
    """Everyone is asked twice, and repeats the first answer with probability ``same``."""
    settings = {"n_classes": 3, "per_instance": 5}
    first, y = crowd(seed, **settings)
    second, _ = crowd(seed, **settings)
    rng = np.random.default_rng(seed + 100)
    accuracy = np.random.default_rng(seed).beta(6, 2.5, 40)
    wrong = (y[second.instance] + rng.integers(1, 3, second.n_annotations)) % 3
    is_right = rng.random(second.n_annotations) < accuracy[second.annotator]
    fresh = np.where(is_right, y[second.instance], wrong)
    again = np.where(rng.random(len(fresh)) < same, first.label, fresh)
    both = AnnotationTable.from_arrays(
        np.tile(first.instance, 2), np.tile(first.annotator, 2),
        np.concatenate([first.label, again]), n_instances=len(y), n_annotators=40,
        classes=range(3), duplicates="keep",
    )  # fmt: skip
    return Crowd(both, y)


def weighted(seed: int, weight: float) -> Crowd:
    """Every annotation has the same weight."""
    table, y = crowd(seed, n_classes=3, per_instance=5)
    return Crowd(_weighted(table, np.full(table.n_annotations, weight)), y)


def family(seed: int) -> Crowd:
    """Beside five annotators, a family of five copies one another in 80 %, and is declared."""
    table, y = crowd(seed, n_classes=3, per_instance=5)
    rng = np.random.default_rng(seed + 100)
    common = np.where(rng.random(len(y)) < 0.65, y, (y + rng.integers(1, 3, len(y))) % 3)
    own = np.where(rng.random((len(y), 5)) < 0.65, y[:, None], (y[:, None] + 1) % 3)
    machine = np.where(rng.random(own.shape) < 0.8**0.5, common[:, None], own)
    instance = np.concatenate([table.instance, np.repeat(np.arange(len(y)), 5)])
    annotator = np.concatenate([table.annotator, np.tile(np.arange(40, 45), len(y))])
    mixed = AnnotationTable.from_arrays(
        instance, annotator, np.concatenate([table.label, machine.ravel()]),
        n_instances=len(y), n_annotators=45, classes=range(3),
    )  # fmt: skip
    return Crowd(mixed.with_groups(dict.fromkeys(range(40, 45), "machines")), y)


def abstaining(seed: int, *, informative: bool) -> Crowd:
    """Many abstain: 40 % anywhere, or 90 % on instances of class 0 and 15 % on the others."""
    table, y = crowd(seed, n_classes=3, per_instance=8)
    rng = np.random.default_rng(seed + 100)
    rate = np.where(y[table.instance] == 0, 0.9, 0.15) if informative else 0.4
    cells = table.to_matrix().astype(object)
    silent = rng.random(table.n_annotations) < rate
    cells[table.instance[silent], table.annotator[silent]] = "unsure"
    cells[cells == -1] = None
    return Crowd(AnnotationTable.from_matrix(cells, classes=range(3), abstain="unsure"), y)


def _weighted(table: AnnotationTable, weight: np.ndarray) -> AnnotationTable:
    return AnnotationTable.from_arrays(
        table.instance, table.annotator, table.label, n_instances=table.n_instances,
        n_annotators=table.n_annotators, classes=table.classes, weight=weight,
    )  # fmt: skip


COUNTED: dict[str, Callable[[int], Crowd]] = {
    "asked twice, answers independent": partial(repeated, same=0.0),
    "asked twice, half the answers repeated": partial(repeated, same=0.5),
    "asked twice, all answers repeated": partial(repeated, same=1.0),
    "all weights 2": partial(weighted, weight=2.0),
    "all weights .5": partial(weighted, weight=0.5),
    "a declared family of five": family,
    "abstentions that tell nothing": partial(abstaining, informative=False),
    "abstentions that tell the class": partial(abstaining, informative=True),
}


def counted() -> Iterator[str]:
    """Yield log loss and calibration error of rules for n; rho is that of the default."""
    yield "| crowd | rho | annotators (ours) | total weight | total weight, abstentions too |"
    yield "|---|---|---|---|---|"
    for name, make in COUNTED.items():
        cells = []
        for seed in SEEDS:
            table, y = make(seed)
            votes = make_votes(table, abstentions=True)
            run = DEFAULT_EM.run(votes, votes.shards(), vote_shares(votes.answers))
            rho = DawidSkene(n_subtypes=1).fit(table).dependence_
            totals = by_instance(votes.answers), by_instance(votes)
            by_weight = [1.0 / (1.0 + np.maximum(n - 1.0, 0.0) * rho) for n in totals]
            rules = [exponents(votes, rho), *by_weight]
            joint = OwnRemoved(run)(votes)
            found = [
                calibration(normalise_joint(votes, joint.copy(), rule)[0], y, classes=range(3))
                for rule in rules
            ]
            cells.append([rho, *(x.value for c in found for x in (c.log_loss, c.ece))])
        rho, *figures = np.mean(cells, axis=0)
        pairs = zip(figures[::2], figures[1::2], strict=True)
        text = " | ".join(f"{log_loss:.3f} / {ece:.3f}" for log_loss, ece in pairs)
        yield f"| {name} | {rho:.2f} | {text} |"


def page() -> str:
    """Return the page in Markdown."""
    cases = [real_case(name) for name in (*AGGREGATION_SETS, *LOADERS)]
    parts = [
        "# Posteriors that allow for dependence between annotators",
        f"{datetime.date.today()}. Made by `benchmarks/posteriors.py`. What rho is and how it is "
        "measured: `manyhands.inference.dependence` and [inference](../inference.md#dependence).",
        "## The rule, on 21 real tables",
        "Means over the tables. The prior's constants were chosen with these tables in view.",
        "\n".join(constants(cases)),
        "## Measured rho beside the best one",
        "The best one has the lowest log loss of the gold labels (steps of .05).",
        "\n".join(by_table(cases)),
        "## Simulated crowds",
        f"{len(SEEDS)} seeds, mean ± sd. In crowds without italics the annotators err "
        "independently, so rho is 0; in the others they share mistakes.",
        "\n".join(simulations()),
        "## What counts as an annotation",
        f"Log loss / ECE, means over {len(SEEDS)} seeds.",
        "\n".join(counted()),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_atomically(parser.parse_args().out, page())


if __name__ == "__main__":
    main()
