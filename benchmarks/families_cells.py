"""The cells of `families.py`: what is fitted to a crowd, and its figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from families_tables import Problem, family, figures, noisy

from manyhands import AnnotationTable, DawidSkene, GoldCorrected
from manyhands.inference.families import family_weights
from manyhands.inference.shared_mistakes import shared_mistakes
from manyhands.registry import all_aggregators
from manyhands.typing import AnyArray, FloatArray, IntArray

METHODS = {name: cls for name, cls in all_aggregators() if name != "GoldCorrected"}
MARKS = ("", ", families")
"""What is added to a method's name: nothing, or that the families are declared."""

BASES = ("gemma", "llama", "internlm", "o1")
"""Base models, as they stand in the names of JudgeBench's annotators."""

NESTED = {f"kind shared {share:g}": share for share in (0.9, 0.5, 0.0)}
REASONS = ("none", "by class", "shared, by class")
RHOS = (0.0, 0.3, 0.6, 0.8, 1.0)


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
        for rho in RHOS
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
        "base models": {a: next(b for b in BASES if b in a.lower()) for a in names},
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
