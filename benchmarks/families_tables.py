"""The crowds of `families.py`: JudgeBench, simulations, machines beside people, people alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.real_tables import first_of_each
from evidence.scores import scores
from manyhands import AnnotationTable, DawidSkene, GoldCorrected, datasets
from manyhands.inference.families import family_weights
from manyhands.inference.shared_mistakes import shared_mistakes
from manyhands.registry import all_aggregators
from manyhands.typing import AnyArray, FloatArray, IntArray

GOLD = (0, 10, 20, 50, 100)


@dataclass(frozen=True)
class Problem:
    """A crowd of n instances with known classes, and the families that one would declare."""

    table: AnnotationTable
    y: IntArray
    groups: dict[Any, str]
    reason: bool = True
    """Whether these families share mistakes; else they are random."""

    @property
    def plain(self) -> AnnotationTable:
        """The table without families."""
        return self.table.with_groups({})

    @property
    def declared(self) -> AnnotationTable:
        """The table with its families."""
        return self.table.with_groups(self.groups)


def judgebench(seed: int) -> Problem:
    """Two runs of a judge, five reward models."""
    data = datasets.load_judgebench()
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
    groups = {r: name for r, name in enumerate(names) if name != "-"}
    return Problem(table, y, groups, any(share for _, _, share in parts))


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
    kept = first_of_each(table, rng.permutation(table.n_annotations), most)
    return kept.select(annotators=kept.annotations_per_annotator() > 0)


def people(name: str, seed: int) -> Problem:
    """A human table of at most 1,500 instances with gold, six annotations each.

    Families are random groups of about eight annotators.
    """
    rng = np.random.default_rng(seed)
    data = datasets.load_aggregation(name, duplicates="last")
    rows = np.flatnonzero(data.y_train >= 0)
    rows = np.sort(rng.choice(rows, min(len(rows), 1500), replace=False))
    table = thinned(data.annotations[rows], 6, rng)
    n_groups = max(1, round(table.n_annotators / 8))
    code = rng.permutation(np.arange(table.n_annotators) % n_groups)
    groups = {a: str(c) for a, c in zip(table.annotators.tolist(), code, strict=True)}
    return Problem(table, np.searchsorted(data.classes, data.y_train[rows]), groups, reason=False)


PEOPLE = {name: partial(people, name) for name in ("duck", "temp", "rte", "web", "trec", "dog")}


@cache
def machines(
    name: str, seed: int, n_train: int, n_machines: int
) -> tuple[AnnotationTable, IntArray, AnyArray]:
    """Humans' table of held-out instances, true classes, and the labels by up to five machines."""
    data, n = (
        (datasets.load_sentiment(), 1500)
        if name == "sentiment"
        else (datasets.load_cifar10n(), 1000)
    )
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

TABLES = {"judgebench": judgebench, **SIMULATIONS, **BESIDE, **PEOPLE}
"""From a seed to a crowd."""

HAS_FAMILIES = tuple(name for name in TABLES if name not in (*PEOPLE, "7 independent"))
"""Tables with families that have a reason; those of the others are random."""


def left_out_with(table: str) -> str:
    """Return the tables of the same source, which are left out together with a table."""
    return table.split(",")[0] if table in BESIDE else table


def figures(p: FloatArray, y: IntArray, rows: IntArray | slice = slice(None)) -> list[float]:
    """Accuracy with ties shared, log loss, calibration error."""
    p, y = p[rows], y[rows]
    top = p >= p.max(axis=1, keepdims=True) - 1e-12
    accuracy = (top / top.sum(axis=1, keepdims=True))[np.arange(len(y)), y].mean()
    found = scores(p, y)
    return [round(float(value), 5) for value in (accuracy, found["log_loss"], found["ece"])]


# -- The cells of `families.py`: what is fitted to a crowd, and its figures


METHODS = {name: cls for name, cls in all_aggregators() if name != "GoldCorrected"}
MARKS = ("", ", families")
"""What is added to a method's name: nothing, or that the families are declared."""

BASES = ("gemma", "llama", "internlm", "o1")
"""Base models, as they stand in the names of JudgeBench's annotators."""

NESTED = {f"kind shared {share:g}": share for share in (0.9, 0.5, 0.0)}
REASONS = ("none", "by class", "shared, by class")
RHOS = (0.0, 0.3, 0.6, 0.8, 1.0)


def shares_of_votes(table: AnnotationTable) -> FloatArray:
    """Shares of the votes; majority vote's probabilities."""
    counts = table.vote_counts() + 1e-9
    return counts / counts.sum(axis=1, keepdims=True)


def accuracies_cell(problem: Problem, *_: int) -> dict[str, list[float]]:
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


def drawn_gold(problem: Problem, g: int, seed: int) -> tuple[AnyArray, IntArray, IntArray]:
    """Labels of g random instances (None elsewhere), these instances, and the others."""
    n = len(problem.y)
    known = np.random.default_rng(1000 + seed).choice(n, g, replace=False)
    gold = np.full(n, None, dtype=object)
    gold[known] = problem.table.classes[problem.y[known]]
    return gold, known, np.setdiff1d(np.arange(n), known)


def gold_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Figures of every rule with g gold labels."""
    gold, known, rest = drawn_gold(problem, g, seed)
    options = {"gold": gold} if g else {}
    plain, declared = problem.plain, problem.declared
    found = {
        "majority vote": shares_of_votes(plain),
        "best annotator by gold": best_by_gold(problem, known),
        "Dawid-Skene": DawidSkene().fit(plain, **options).posterior_,
        "Dawid-Skene, rho .3": DawidSkene(dependence=0.3).fit(plain, **options).posterior_,
        "Dawid-Skene, families": DawidSkene().fit(declared, **options).posterior_,
    }
    alone = [a for a in plain.annotators.tolist() if str(a).startswith("human")]
    if alone:
        humans = plain.select(annotators=alone)
        found["humans alone, majority vote"] = shares_of_votes(humans)
        found["humans alone, Dawid-Skene"] = DawidSkene().fit(humans, **options).posterior_
    if g:
        found["GoldCorrected"] = GoldCorrected().fit(plain, **options).posterior_
        found["GoldCorrected, families"] = GoldCorrected().fit(declared, **options).posterior_
    return {rule: figures(p, problem.y, rest) for rule, p in found.items() if p is not None}


def methods_cell(problem: Problem, *_: int) -> dict[str, list[float]]:
    """Figures of every method without gold, without and with the families."""
    return {
        f"{name}{mark}": figures(cls().fit(table).posterior_, problem.y)
        for name, cls in METHODS.items()
        for mark, table in zip(MARKS, (problem.plain, problem.declared), strict=True)
    }


def by_rho(problem: Problem, values: dict[str, float]) -> dict[str, list[float]]:
    """Figures of Dawid-Skene by the correlation within families."""
    return {
        name: figures(
            DawidSkene().fit(problem.table.with_groups(problem.groups, rho)).posterior_, problem.y
        )
        for name, rho in values.items()
    }


def rho_cell(problem: Problem, *_: int) -> dict[str, list[float]]:
    """Figures of Dawid-Skene for several correlations."""
    return by_rho(problem, {f"{rho:g}": rho for rho in RHOS})


def declarations_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Figures of Dawid-Skene on JudgeBench for other families that one could declare."""
    names = problem.table.annotators.tolist()
    rng = np.random.default_rng(seed)
    kinds = ("o1", "Skywork", "internlm", "Ray2333")
    maker = {a: next(k for k in kinds if a.startswith(k)) for a in names}
    other = rng.permutation(["a", "a", "b", "b", "b", "b", "b"])
    declared = {
        "judges, reward models": problem.groups,
        "reward models only": {a: g for a, g in problem.groups.items() if g != "judge"},
        "base models": {a: next(b for b in BASES if b in a.lower()) for a in names},
        "judges only": {a: g for a, g in problem.groups.items() if g == "judge"},
        "makers": maker,
        "makers, judges apart": {a: g for a, g in maker.items() if g != "o1"},
        "all one": dict.fromkeys(names, "all"),
        "random 2 + 5": dict(zip(names, other.tolist(), strict=True)),
    }
    return {
        name: figures(DawidSkene().fit(problem.table, groups=groups).posterior_, problem.y)
        for name, groups in declared.items()
    }


def tetrad_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
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


def nested_cell(name: str, seed: int) -> dict[str, list[float]]:
    """One kind of six machines by two makers, beside three people: which level to declare."""
    rng, kind_share = np.random.default_rng(seed), NESTED[name]
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
    return {name: figures(DawidSkene().fit(t).posterior_, y) for name, t in tables.items()}


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
        how: figures(DawidSkene(abstentions=how).fit(table).posterior_, y)
        for how in ("ignore", "model")
    }
