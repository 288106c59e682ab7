r"""Posteriors that allow for dependence between annotators: constants, simulations, what n counts.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/posteriors.py \
        --out docs/results/posteriors.md

The constants of `manyhands.inference.dependence` are tried on the 21 real tables of
``benchmarks/aggregation.py``. For "left out", they are chosen anew (lowest mean log loss) without
the tables of a family, and used on these. The page takes a few CPU minutes.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aggregation import AGGREGATION_SETS, LOADERS, Task, load
from pages import table_lines
from scipy.special import log_softmax

from manyhands import AnnotationTable, DawidSkene, MajorityVote
from manyhands.inference import dependence
from manyhands.inference.confusion_em import OwnRemoved, Run
from manyhands.inference.dependence import (
    DEFAULT_EM,
    PRIOR_MEAN,
    PRIOR_SD,
    UPPER,
    exponents,
    measure,
)
from manyhands.inference.em import normalise_joint
from manyhands.inference.vote_sums import by_instance, vote_shares, weight_of_pairs
from manyhands.inference.votes import Votes, make_votes
from manyhands.io import write_atomically
from manyhands.metrics import expected_calibration_error

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
    task: Task
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
    return Case(name, task, joint, of, n, rho, se, task.known, task.gold, task.table.classes)


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
        yield (
            f"| {case.name} | {len(case.classes)} | {case.n.mean():.1f} | {case.rho:.2f} ± "
            f"{case.se:.2f} | {shrunk(case, PRIOR_MEAN, PRIOR_SD, UPPER):.2f} | {best:.2f} |"
        )


SCALED = {
    "REFERENCE": 0.15, "NEGLIGIBLE": 0.025, "EM_STEPS": 1, "N_SIMULATED": 500, "N_TABLES": 1,
    "N_INSTANCES": 2500, "LEAST_INSTANCES": 5,
}  # fmt: skip
"""The other constants, and half of each (rounded down)."""


def sensitivity(cases: list[Case]) -> Iterator[str]:
    """Yield figures with half and twice each of the other constants; fits are anew."""

    def fit(name: str, value: float) -> list[tuple[float, float, float]]:
        before = getattr(dependence, name)
        setattr(dependence, name, value)
        try:
            return [
                figures(DawidSkene().fit(c.task.table).posterior_[c.known], c.gold, c.classes)
                for c in cases
            ]
        finally:
            setattr(dependence, name, before)

    heads = ["constant", "value", "as is", "half", "twice", "family left out", "chosen there"]
    as_is = fit("EM_STEPS", dependence.EM_STEPS)
    rows = []
    for name, half in SCALED.items():
        value = getattr(dependence, name)
        runs = {"as is": as_is, "half": fit(name, half), "twice": fit(name, 2 * value)}
        left_out, chosen = [], []
        for k, case in enumerate(cases):
            family = FAMILIES.get(case.name, case.name)
            others = [FAMILIES.get(c.name, c.name) != family for c in cases]
            best = min(runs, key=lambda r: np.mean([f[1] for f in np.array(runs[r])[others]]))
            left_out.append(runs[best][k])
            chosen.append(best)
        means = [np.mean(found, axis=0) for found in (*runs.values(), left_out)]
        counts = ", ".join(f"{one} {chosen.count(one)}" for one in runs if one in chosen)
        shown = [f"{loss:.4f} / {ece:.4f}" for _, loss, ece in means]
        rows.append([name, f"{value:,}", *shown, counts])
    yield from table_lines(heads, rows)


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
    than guessed); "asymmetric" (40 % of the instances of class 1 are taken for class 0 in 55 %);
    "decoy" (on 25 % of the instances, 60 % of the annotations name the same wrong class).
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
    if kind == "asymmetric":
        rows[(y == 1) & (rng.random(n) < 0.4)] = [0.55, 0.45, *[0.0] * (n_classes - 2)]
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
    "*2 × 6, difficult instances of one class*": {
        "n_classes": 2,
        "per_instance": 6,
        "kind": "asymmetric",
        "skew": 0.6,
    },
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
            found = [figures(m.posterior_, y, np.arange(table.n_classes)) for m in (before, after)]
            pairs = np.transpose(found).ravel()  # Accuracies, log losses, calibration errors.
            cells.append([after.dependence_, votes[np.arange(len(y)), y].mean(), *pairs])
        mean, sd = np.mean(cells, axis=0), np.std(cells, axis=0, ddof=1)
        text = " | ".join(f"{m:.3f} ± {s:.3f}" for m, s in zip(mean, sd, strict=True))
        yield f"| {name} | {text} |"


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


def self_agreement(votes: Votes, run: Run) -> float:
    """Share of the second answers of a pair that repeat the first, beyond agreement by chance.

    By chance, two answers agree as often as the confusion matrices expect. Five repeated answers
    stand for what is expected of people.
    """
    pairs = votes.instance.astype(np.int64) * votes.n_annotators + votes.annotator
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0)
    one, other = order[again], order[again + 1]
    power = (run.parameters.responses**2).sum(axis=2)[votes.annotator[one]]
    chance = (run.parameters.posterior(votes)[votes.instance[one]] * power).sum(axis=1)
    same = votes.response[one] == votes.response[other]
    share = ((same - chance).sum() + 5.0) / ((1.0 - chance).sum() + 5.0)
    return float(np.clip(share, 0.0, 1.0))


def by_self_agreement(votes: Votes, rho: float, share: float) -> np.ndarray:
    """Exponents that count w answers of a pair w / (1 + (w - 1) share) times, not once."""
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    pairs = weight_of_pairs(votes)
    counts = np.where(pairs > 1.0, pairs / (1.0 + (pairs - 1.0) * share), pairs)
    independent = by_instance(replace(votes, weight=None), weight / pairs * counts)
    n = np.maximum(by_instance(votes), 1e-12)
    return independent / n / (1.0 + np.maximum(independent - 1.0, 0.0) * rho)


def repeats_of(cases: list[Case]) -> Iterator[str]:
    """Yield the same rules on the real tables where annotators were asked twice."""
    rows = []
    for case in cases:
        votes = make_votes(case.task.table)
        n_pairs = len(np.unique(votes.instance * np.int64(votes.n_annotators) + votes.annotator))
        if n_pairs == votes.n_annotations:
            continue
        share = self_agreement(votes, DEFAULT_EM.run(votes, votes.shards(), vote_shares(votes)))
        rho = shrunk(case, PRIOR_MEAN, PRIOR_SD, UPPER)
        cells = [scores(case, by_self_agreement(votes, rho, s)) for s in (1.0, share, 0.0)]
        shown = [f"{loss:.4f} / {ece:.4f}" for _, loss, ece in cells]
        rows.append([case.name, f"{votes.n_annotations - n_pairs:,}", f"{share:.2f}", *shown])
    heads = ["table", "repeated annotations", "repeating themselves", "once (ours)"]
    yield from table_lines([*heads, "by how far they repeat themselves", "fully"], rows)


def counted() -> Iterator[str]:
    """Yield log loss and calibration error of rules for n; rho is that of the default."""
    yield (
        "| crowd | rho | annotators (ours) | total weight | total weight, abstentions too "
        "| by how far they repeat themselves |"
    )
    yield "|---|---|---|---|---|---|"
    for name, make in COUNTED.items():
        cells = []
        for seed in SEEDS:
            table, y = make(seed)
            votes = make_votes(table, abstentions=True)
            run = DEFAULT_EM.run(votes, votes.shards(), vote_shares(votes.answers))
            rho = DawidSkene(n_subtypes=1).fit(table).dependence_
            totals = by_instance(votes.answers), by_instance(votes)
            by_weight = [1.0 / (1.0 + np.maximum(n - 1.0, 0.0) * rho) for n in totals]
            rules = [exponents(votes, rho), *by_weight, exponents(votes, rho)]
            if "asked twice" in name:
                rules[-1] = by_self_agreement(votes, rho, self_agreement(votes, run))
            joint = OwnRemoved(run)(votes)
            found = [
                figures(normalise_joint(votes, joint.copy(), rule)[0], y, np.arange(3))
                for rule in rules
            ]
            cells.append([rho, *(x for cell in found for x in cell[1:])])
        rho, *values = np.mean(cells, axis=0)
        pairs = zip(values[::2], values[1::2], strict=True)
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
        "## The other constants",
        "Log loss / ECE of `DawidSkene`, means over the tables, with half and twice each constant "
        'of `manyhands.inference.dependence` (and one EM step for half of three). "Left out": of '
        "the three, the one with the lowest mean log loss on the other families; how many tables "
        "get which.",
        "\n".join(sensitivity(cases)).strip(),
        "## Gold labels",
        "Log loss / ECE of `DawidSkene` on the instances without gold, means over the tables with "
        "gold labels for at least twice as many instances, and over three draws of gold.",
        "\n".join(with_gold(cases)).strip(),
        "## Where EM ends",
        "Accuracy of plain EM (`accelerate=False, tol=1e-6, max_iter=5000`) → the default's "
        "(over-relaxed, `tol=3e-5`), and the share of all labels that differ from plain EM's: the "
        "default's, and those of over-relaxed EM with the same small tolerance. In brackets the "
        "numbers of subtypes that were chosen. Over-relaxed steps end where plain EM does but for "
        "a few labels; most of the difference is the default's tolerance, which may also decide "
        "how many subtypes are chosen (relevance).",
        "\n".join(modes(cases)).strip(),
        "## Simulated crowds",
        f"{len(SEEDS)} seeds, mean ± sd. In crowds without italics the annotators err "
        "independently, so rho is 0; in the others they share mistakes.",
        "\n".join(simulations()),
        "## What counts as an annotation",
        f"Log loss / ECE, means over {len(SEEDS)} seeds.",
        "\n".join(counted()),
        "Where annotators are asked twice, their answers count once. If the answers were "
        "independent, this is not sure enough. How far people repeat themselves can be measured "
        "(agreement of their answers beyond what their confusion matrices expect), and a rule that "
        "counts by it is better in simulations. On the real tables with repeated annotations it "
        "gains nothing:",
        "\n".join(repeats_of(cases)).strip(),
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
