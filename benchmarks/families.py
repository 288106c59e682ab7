"""Annotators that share mistakes: families declared, undeclared, and chosen by gold.

Every cell (table, seed, number of gold labels) fits all rules on one table and is one record: a
line of JSON with accuracy (ties shared), log loss (probabilities clipped at 1e-12) and calibration
error (15 bins) on the instances without gold. Machines are classifiers trained on other instances.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/families.py --records families.jsonl --out
docs/results/families.md``. Cells that are in the records are not repeated.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from pages import run_missing, table_lines
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from manyhands import AnnotationTable, DawidSkene, GoldCorrected
from manyhands.datasets import (
    load_aggregation,
    load_cifar10n,
    load_judgebench,
    load_sentiment,
)
from manyhands.inference.families import family_weights
from manyhands.inference.shared_mistakes import LEAST_Z, shared_mistakes
from manyhands.io import write_atomically
from manyhands.metrics import expected_calibration_error
from manyhands.registry import all_aggregators
from manyhands.typing import AnyArray, FloatArray, IntArray

GOLD = (0, 10, 20, 50, 100)
METHODS = {name: cls for name, cls in all_aggregators() if name != "GoldCorrected"}
MARKS = ("", ", families")
"""What is added to a method's name: nothing, or that the families are declared."""

LOSS = 0.03
"""A rule that loses more accuracy against the best simple rule is named on the page."""


@dataclass(frozen=True)
class Problem:
    """A crowd of n instances with known classes, and the families that one would declare."""

    table: AnnotationTable
    y: IntArray
    groups: dict[Any, str]

    @property
    def declared(self) -> AnnotationTable:
        """The table with its families."""
        return self.table.with_groups(self.groups)


# -- tables ---------------------------------------------------------------------------------------


def judgebench(seed: int) -> Problem:
    """Two runs of a judge, five reward models."""
    data = load_judgebench()
    annotators = data.annotations.annotators.tolist()
    groups = {a: "judge" if a.startswith("o1") else "reward model" for a in annotators}
    return Problem(data.annotations, np.searchsorted(data.classes, data.y_train), groups)


def noisy(rng: np.random.Generator, y: IntArray, accuracy: float) -> IntArray:
    """Annotations of two classes by one annotator."""
    return np.where(rng.random(len(y)) < accuracy, y, 1 - y)


def family(
    rng: np.random.Generator, y: IntArray, size: int, accuracy: float, share: float = 0.8
) -> list[IntArray]:
    """Members who copy one draw of the family in ``share`` of the instances."""
    common = noisy(rng, y, accuracy)
    return [
        np.where(rng.random(len(y)) < share, common, noisy(rng, y, accuracy)) for _ in range(size)
    ]


def simulated(parts: Iterable[tuple[int, float, float]], names: str, seed: int) -> Problem:
    """400 instances; ``parts`` are (members, accuracy, share), ``names`` the declared families."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 400)
    columns = [column for size, p, share in parts for column in family(rng, y, size, p, share)]
    table = AnnotationTable.from_matrix(np.stack(columns, axis=1))
    return Problem(table, y, {r: name for r, name in enumerate(names) if name != "-"})


SINGLES = ((1, 0.75, 0.0),) * 4
SIMULATIONS: dict[str, Callable[[int], Problem]] = {
    "2 x 5 (.80, .65)": partial(simulated, ((5, 0.80, 0.8), (5, 0.65, 0.8)), "aaaaabbbbb"),
    "4 x 3": partial(simulated, tuple((3, p, 0.8) for p in (0.8, 0.75, 0.7, 0.65)), "aaabbbcccddd"),
    "5 poor + 4": partial(simulated, ((5, 0.6, 0.8), *((1, 0.8, 0.0),) * 4), "aaaaa----"),
    "5 good + 4 poor": partial(simulated, ((5, 0.85, 0.8), *((1, 0.65, 0.0),) * 4), "aaaaa----"),
    "5 + 2 x 2": partial(simulated, ((5, 0.7, 0.8), (2, 0.75, 0.8), (2, 0.75, 0.8)), "aaaaabbcc"),
    "7 independent": partial(simulated, ((1, 0.75, 0.0),) * 7, "aaabbcc"),
}


def thinned(table: AnnotationTable, most: int, rng: np.random.Generator) -> AnnotationTable:
    """Keep at most so many annotations of each instance, at random."""
    order = rng.permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    _, start = table.by_instance()
    place = np.arange(len(order)) - start[table.instance[order]]
    kept = table.take(np.sort(order[place < most]))
    return kept.select(annotators=kept.annotations_per_annotator() > 0)


def people(name: str, seed: int) -> Problem:
    """A human table of at most 1,500 instances with gold, six annotations each.

    Families are random groups of about eight annotators.
    """
    rng = np.random.default_rng(seed)
    data = load_aggregation(name, duplicates="last")
    rows = np.flatnonzero(data.y_train >= 0)
    rows = np.sort(rng.choice(rows, min(len(rows), 1500), replace=False))
    table = thinned(data.annotations[rows], 6, rng)
    n_groups = max(1, round(table.n_annotators / 8))
    code = rng.permutation(np.arange(table.n_annotators) % n_groups)
    groups = {a: str(c) for a, c in zip(table.annotators.tolist(), code, strict=True)}
    return Problem(table, np.searchsorted(data.classes, data.y_train[rows]), groups)


PEOPLE = {name: partial(people, name) for name in ("duck", "temp", "rte", "web", "trec", "dog")}


@cache
def machines(
    name: str, seed: int, n_train: int, n_machines: int
) -> tuple[AnnotationTable, IntArray, AnyArray]:
    """Humans' table of held-out instances, true classes, and the labels by up to five machines."""
    data, n = (load_sentiment(), 1500) if name == "sentiment" else (load_cifar10n(), 1000)
    order = np.random.default_rng(seed).permutation(len(data.y_train))
    train, rows = order[:n_train], np.sort(order[n_train : n_train + n])
    X = data.X_train.toarray() if hasattr(data.X_train, "toarray") else data.X_train
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500)),
        GaussianNB(),
        KNeighborsClassifier(5),
        make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)),
        DecisionTreeClassifier(max_depth=4, random_state=seed),
    ][:n_machines]
    named = [model.fit(X[train], data.y_train[train]).predict(X[rows]) for model in models]
    y = np.searchsorted(data.classes, data.y_train[rows])
    return data.annotations[rows], y, np.stack(named, axis=1)


def beside(name: str, humans: int, seed: int, *, n_train: int, n_machines: int = 3) -> Problem:
    """Machines that learnt from other instances, beside so many humans per instance."""
    table, y, named = machines(name, seed, n_train, n_machines)
    table = thinned(table, humans, np.random.default_rng(seed))
    n = table.n_instances
    added = AnnotationTable.from_arrays(
        np.tile(np.arange(n), n_machines),
        np.repeat([f"machine {k + 1}" for k in range(n_machines)], n),
        named.T.ravel(),
        classes=table.classes,
        instances=table.instances,
    )
    mine = replace(table, annotators=np.array([f"human {a}" for a in table.annotators.tolist()]))
    both = mine.with_added(added)
    return Problem(both, y, dict.fromkeys(added.annotators.tolist(), "machine"))


BESIDE = {
    f"{name}, {humans} humans": partial(beside, name, humans, n_train=n_train)
    for name, n_train, counts in (("sentiment", 400, (1, 2, 3, 5)), ("cifar10n", 2500, (1, 2, 3)))
    for humans in counts
}
BESIDE["sentiment, 3 humans, 5 machines"] = partial(
    beside, "sentiment", 3, n_train=400, n_machines=5
)
BESIDE["sentiment, 3 humans, stronger machines"] = partial(beside, "sentiment", 3, n_train=2500)

# -- runs -----------------------------------------------------------------------------------------


def figures(posterior: FloatArray, y: IntArray, rows: IntArray) -> list[float]:
    """Accuracy with ties shared, log loss, calibration error."""
    p, y = posterior[rows], y[rows]
    top = p >= p.max(axis=1, keepdims=True) - 1e-12
    mine = np.arange(len(y)), y
    accuracy = (top / top.sum(axis=1, keepdims=True))[mine].mean()
    loss = -np.log(np.clip(p[mine], 1e-12, 1)).mean()
    error = expected_calibration_error(p, y, classes=np.arange(p.shape[1]), n_bins=15)
    return [round(float(value), 5) for value in (accuracy, loss, error)]


def vote_shares(table: AnnotationTable) -> FloatArray:
    """Shares of the votes; majority vote's probabilities."""
    counts = table.vote_counts() + 1e-9
    return counts / counts.sum(axis=1, keepdims=True)


def accuracies_cell(problem: Problem) -> dict[str, list[float]]:
    """Accuracy of each machine."""
    table, y = problem.table, problem.y
    right = table.label == y[table.instance]
    return {
        name: [float(right[table.annotator == code].mean())]
        for code, name in enumerate(table.annotators.tolist())
        if name in problem.groups
    }


def best_by_gold(problem: Problem, known: IntArray) -> FloatArray | None:
    """The labels of the annotator who is right most often on the gold, as probabilities."""
    table, y = problem.table, problem.y
    n, c = table.n_instances, table.n_classes
    if not len(known) or (table.annotations_per_annotator() < 0.9 * n).any():
        return None
    dense = table.to_matrix(codes=True)
    right = (dense[known] == y[known, None]).sum(axis=0)
    p = (right.max() + 1) / (len(known) + 2)
    best = dense[:, right.argmax()]
    shares = np.full((n, c), 1 / c)
    given = best >= 0
    shares[given] = (1 - p) / (c - 1)
    shares[given, best[given]] = p
    return shares


def gold_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Figures of every rule with g gold labels."""
    n = len(problem.y)
    known = np.random.default_rng(1000 + seed).choice(n, g, replace=False)
    rest = np.setdiff1d(np.arange(n), known)
    gold = np.full(n, None, dtype=object)
    gold[known] = problem.table.classes[problem.y[known]]
    options = {"gold": gold} if g else {}
    plain, declared = problem.table.with_groups({}), problem.declared
    found = {
        "majority vote": vote_shares(plain),
        "best annotator by gold": best_by_gold(problem, known),
        "Dawid-Skene": DawidSkene().fit(plain, **options).posterior_,
        "Dawid-Skene, rho .3": DawidSkene(dependence=0.3).fit(plain, **options).posterior_,
        "Dawid-Skene, families": DawidSkene().fit(declared, **options).posterior_,
    }
    alone = [a for a in plain.annotators.tolist() if str(a).startswith("human")]
    if alone:
        humans = plain.select(annotators=alone)
        found["humans alone, majority vote"] = vote_shares(humans)
        found["humans alone, Dawid-Skene"] = DawidSkene().fit(humans, **options).posterior_
    if g:
        found["GoldCorrected"] = GoldCorrected().fit(plain, **options).posterior_
        found["GoldCorrected, families"] = GoldCorrected().fit(declared, **options).posterior_
    return {rule: figures(p, problem.y, rest) for rule, p in found.items() if p is not None}


def methods_cell(problem: Problem) -> dict[str, list[float]]:
    """Figures of every method without gold, without and with the families."""
    everything = np.arange(len(problem.y))
    return {
        f"{name}{mark}": figures(cls().fit(table).posterior_, problem.y, everything)
        for name, cls in METHODS.items()
        for mark, table in zip(
            MARKS, (problem.table.with_groups({}), problem.declared), strict=True
        )
    }


def rho_cell(problem: Problem) -> dict[str, list[float]]:
    """Figures of Dawid-Skene for several correlations."""
    everything = np.arange(len(problem.y))
    return {
        f"{rho:g}": figures(
            DawidSkene().fit(problem.table.with_groups(problem.groups, rho)).posterior_,
            problem.y,
            everything,
        )
        for rho in (0.0, 0.3, 0.6, 0.8, 1.0)
    }


def declarations_cell(problem: Problem, seed: int) -> dict[str, list[float]]:
    """Figures of Dawid-Skene on JudgeBench for other families that one could declare."""
    names = problem.table.annotators.tolist()
    rng = np.random.default_rng(seed)
    kinds = ("o1", "Skywork", "internlm", "Ray2333")
    maker = {a: next(k for k in kinds if a.startswith(k)) for a in names}
    other = rng.permutation(["a", "a", "b", "b", "b", "b", "b"])
    declared = {
        "judges, reward models": problem.groups,
        "reward models only": {a: g for a, g in problem.groups.items() if g != "judge"},
        "judges only": {a: g for a, g in problem.groups.items() if g == "judge"},
        "makers": maker,
        "makers, judges apart": {a: g for a, g in maker.items() if g != "o1"},
        "all one": dict.fromkeys(names, "all"),
        "random 2 + 5": dict(zip(names, other.tolist(), strict=True)),
    }
    everything = np.arange(len(problem.y))
    return {
        name: figures(DawidSkene().fit(problem.table, groups=g).posterior_, problem.y, everything)
        for name, g in declared.items()
    }


def tetrad_cell(problem: Problem, seed: int) -> dict[str, list[float]]:
    """Z of the true family, of the highest searched set, and of a random set of four."""
    table = problem.table
    busy = np.argsort(-table.annotations_per_annotator(), kind="stable")[:12]
    drawn = np.random.default_rng(seed).choice(busy, min(4, table.n_annotators - 2), replace=False)
    declared = shared_mistakes(problem.declared)
    searched = shared_mistakes(table)
    return {
        "declared": [float(declared[0].z) if declared else float("nan")],
        "searched": [float(searched[0].z) if searched else float("nan")],
        "random": [float(shared_mistakes(table, table.annotators[drawn].tolist())[0].z)],
    }


def nested_cell(kind_share: float, seed: int) -> dict[str, list[float]]:
    """One kind of six machines by two makers, beside three people: which level to declare."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 400)
    kind = noisy(rng, y, 0.65)
    columns = []
    for _ in range(2):
        own = np.where(rng.random(400) < kind_share, kind, noisy(rng, y, 0.65))
        columns += [np.where(rng.random(400) < 0.8, own, noisy(rng, y, 0.65)) for _ in range(3)]
    columns += [noisy(rng, y, 0.75) for _ in range(3)]
    table = AnnotationTable.from_matrix(np.stack(columns, axis=1)).with_groups({})
    makers = table.with_groups({r: "ab"[r // 3] for r in range(6)})
    product = np.where(table.annotator < 6, family_weights(makers) / 1.8, 1.0)
    tables = {
        "none": table,
        "makers": makers,
        "kind": table.with_groups(dict.fromkeys(range(6), "kind")),
        "both levels": replace(table, weights=product),
    }
    rows = np.arange(400)
    return {name: figures(DawidSkene().fit(t).posterior_, y, rows) for name, t in tables.items()}


def abstentions_cell(reason: str, seed: int) -> dict[str, list[float]]:
    """Five machines, who abstain for a reason, beside four people: abstentions modelled or not."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 400)
    columns = family(rng, y, 5, 0.65) + [noisy(rng, y, 0.75) for _ in range(4)]
    A = np.stack(columns, axis=1)
    rate = np.full(400, 0.3) if reason == "none" else np.where(y == 1, 0.5, 0.1)
    if reason == "shared, by class":
        rate = 0.8 * (rng.random(400) < rate)
    A[:, :5][rng.random((400, 5)) < rate[:, None]] = 2
    table = AnnotationTable.from_matrix(A, [0, 1], abstain=2)
    table = table.with_groups(dict.fromkeys(range(5), "machine"))
    return {
        how: figures(DawidSkene(abstentions=how).fit(table).posterior_, y, np.arange(400))
        for how in ("ignore", "model")
    }


Cell = tuple[str, str, int, int]
"""Kind of cell, table, number of gold labels, seed."""

NESTED = {f"kind shared {share:g}": share for share in (0.9, 0.5, 0.0)}
REASONS = ("none", "by class", "shared, by class")
TABLES = {"judgebench": judgebench, **SIMULATIONS, **BESIDE, **PEOPLE}


def cells() -> Iterator[Cell]:
    """Yield all cells, the cheap ones first."""
    for table in TABLES:
        once = table == "judgebench"
        n_seeds = 10 if table in SIMULATIONS else 3
        yield from (("methods", table, 0, s) for s in range(1 if once else min(n_seeds, 3)))
        yield from (("rho", table, 0, s) for s in range(1 if once else n_seeds))
        yield from (("tetrad", table, 0, s) for s in range(20 if once else n_seeds))
    yield from (("accuracies", table, 0, s) for table in BESIDE for s in range(3))
    yield from (("declarations", "judgebench", 0, s) for s in range(20))
    yield from (("nested", name, 0, s) for name in NESTED for s in range(10))
    yield from (("abstentions", name, 0, s) for name in REASONS for s in range(10))
    for table in TABLES:
        n_seeds = 30 if table == "judgebench" else 10 if table in SIMULATIONS else 3
        for g in GOLD:
            if (table, g) != ("duck", 100):  # It has 108 instances.
                yield from (("gold", table, g, s) for s in range(n_seeds))


def run(cell: Cell) -> dict[str, Any]:
    """Run one cell."""
    kind, name, g, seed = cell
    started = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "nested":
            found = nested_cell(NESTED[name], seed)
        elif kind == "abstentions":
            found = abstentions_cell(name, seed)
        else:
            problem = TABLES[name](seed)
            found = {
                "gold": partial(gold_cell, problem, g, seed),
                "accuracies": partial(accuracies_cell, problem),
                "methods": partial(methods_cell, problem),
                "rho": partial(rho_cell, problem),
                "declarations": partial(declarations_cell, problem, seed),
                "tetrad": partial(tetrad_cell, problem, seed),
            }[kind]()
    date = datetime.date.today().isoformat()
    seconds = round(process_time() - started, 2)
    return {"cell": list(cell), "figures": found, "seconds": seconds, "date": date}


# -- page -----------------------------------------------------------------------------------------


class Records:
    """Figures by kind of cell, table and number of gold labels."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.found: dict[tuple[str, str, int], list[dict[str, list[float]]]] = {}
        for record in records:
            kind, table, g, _ = record["cell"]
            self.found.setdefault((kind, table, g), []).append(record["figures"])

    def values(self, kind: str, table: str, rule: str, g: int = 0) -> FloatArray:
        """Figures of a rule, shape (n_seeds, n_figures)."""
        runs = self.found.get((kind, table, g), [])
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
FLAT = (*RULES[:2], *RULES[4:7])
"""Rules that know of no families, and leave nobody out."""


def _gold_tables(found: Records) -> Iterator[str]:
    for table in TABLES:
        yield f"**{table}**\n"
        heads = ["rule", *(f"{g} gold" for g in GOLD)]
        rows = [[rule, *(found.show("gold", table, rule, g) for g in GOLD)] for rule in RULES]
        yield from table_lines(heads, [row for row in rows if any(row[1:])])


def _machines(found: Records) -> Iterator[list[str]]:
    for table in ("sentiment, 3 humans", "cifar10n, 3 humans", *list(BESIDE)[-2:]):
        names = found.found.get(("accuracies", table, 0), [{}])[0]
        means = [found.values("accuracies", table, name).mean() for name in names]
        yield [table, ", ".join(map(_short, means))]


def _regrets(found: Records) -> Iterator[list[str]]:
    """Mean and greatest loss of each rule against the best of them on the same table."""
    tables = ("judgebench", *SIMULATIONS, *PEOPLE)
    for rule in FLAT:
        row = [rule]
        for g in GOLD[1:]:
            lost = []
            for table in tables:
                runs = {r: found.values("gold", table, r, g) for r in FLAT}
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
        "    OMP_NUM_THREADS=1 python benchmarks/families.py --records families.jsonl --out "
        "docs/results/families.md",
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
    declared = found.found.get(("declarations", "judgebench", 0), [{}])[0]
    rows = [[name, found.show("declarations", "judgebench", name)] for name in declared]
    lines += table_lines(["families", "JudgeBench"], rows)
    lines += ["## The correlation within families", "", "Dawid-Skene, families declared.", ""]
    rhos = ["0", "0.3", "0.6", "0.8", "1"]
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
    lines += [
        "## Regret without families",
        "",
        "How much worse a rule is than the best of these rules on the same table, if nobody "
        "declares families: mean and greatest log loss / mean and greatest accuracy over "
        f"{1 + len(SIMULATIONS) + len(PEOPLE)} tables (JudgeBench, the simulations, the human "
        "tables). The best annotator is known only where everybody annotates everything.",
        "",
        *table_lines(["rule", *(f"{g} gold" for g in GOLD[1:])], _regrets(found)),
    ]
    lines += [
        "## Where a rule loses",
        "",
        f"More than {_short(LOSS)} below the best of majority vote, the best annotator by gold, "
        "and the humans alone (table, number of gold labels: loss of accuracy):",
        "",
        *_losses(found, "gold", RULES[3:], GOLD),
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


def main() -> None:
    """Run the cells that are not in the records, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, required=True, help="JSON lines, one per cell")
    parser.add_argument("--out", type=Path, help="Markdown file")
    arguments = parser.parse_args()
    planned = ((cell, partial(run, cell)) for cell in cells())
    records = run_missing(arguments.records, planned, lambda record: tuple(record["cell"]))
    if arguments.out is not None:
        wanted = set(cells())
        write_atomically(arguments.out, page([r for r in records if tuple(r["cell"]) in wanted]))


if __name__ == "__main__":
    main()
