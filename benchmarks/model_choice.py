"""Compare criteria that choose a classifier without gold labels.

A candidate is a row of "Every classifier on six sets" (experiments/crowd_models.yaml) with the
protocol of the set, or DASC around two of them. CIFAR-10N, CIFAR-10H and Hotel have no protocol of
their own and use Product's. Every candidate is trained once per fold and predicts the left-out
fold. The criteria see these predictions and the annotations. Gold labels serve to measure the
accuracy of the same predictions, and of the fold models on the test part.

Sets "with a common mistake" have 60 % of the annotations of two classes turned into the next class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from benchmarks.bars import Bar, bars
from benchmarks.real_tables import first_of_each
from evidence import load_data, load_rows
from evidence.scores import codes_of
from evidence.study import ROOT, Study, read
from evidence.tables import Record, groups, listing, mean, table, where
from manyhands import AnnotationTable, DASCClassifier, DawidSkene, cross_predict, metrics
from manyhands.datasets import load_cifar10h, load_cifar10n, load_hotel
from manyhands.exceptions import AnnotationError
from manyhands.fitting.reading import take_rows
from manyhands.selection.criteria import CONTRADICTION, find_contradiction
from manyhands.typing import AnyArray

POOL = 4
DRAWS = 2000
ROUNDS = 6
"""Fits of DASC with its default of five rounds."""

LIMIT = 300.0
"""Estimated seconds beyond which a candidate is left out on a set."""

CRITERIA: dict[str, Callable[[Any], float]] = {
    "A+B": lambda cell: cell["agreement"] + cell["corrected"],
    "A": lambda cell: cell["agreement"],
    "B": lambda cell: cell["corrected"],
    "MI": lambda cell: cell["information"],
    "likelihood": lambda cell: cell["likelihood"],
    "gold, same instances": lambda cell: cell["gold"],
}
FIXED = (
    "TraceReg",
    "AggNet",
    "CoNAL",
    "Crowd Layer MW, 1·I",
    "Max-MIG",
    "DL-DS",
    "DL-MV",
    "Raykar",
)


@dataclass(frozen=True)
class Problem:
    """A data set of the study; ``protocol`` is the column of the table whose settings apply."""

    name: str
    folds: int
    protocol: str
    load: Callable[[], Any]
    size: float = 1.0
    """How much slower than the protocol's own set."""
    quick: float = LIMIT
    """Limit in estimated seconds."""


# -- sets and candidates --------------------------------------------------------------------------


def of_set(name: str) -> Callable[[], Any]:
    """Loader of a set by its name."""
    return lambda: load_data({"name": name})


def thinned(data: Any, most: int, seed: int = 0) -> Any:
    """Keep at most so many random annotations of each instance."""
    table, rng = data.annotations, np.random.default_rng(seed)
    order = np.argsort(rng.random(table.n_annotations), kind="stable")
    return replace(data, annotations=first_of_each(table, order, most))


def thinned_cifar10h() -> Any:
    """CIFAR-10H with two random annotations of each image."""
    return thinned(load_cifar10h(), 2)


def with_common_mistake(data: Any, share: float = 0.6, seed: int = 0) -> Any:
    """Turn a share of the annotations of two classes into the next class."""
    table, rng = data.annotations, np.random.default_rng(seed)
    true = codes_of(data.y_train, table.classes)
    label = table.label.copy()
    for source in (1, 4):
        own = (true[table.instance] == source) & (rng.random(len(label)) < share)
        label[own] = (source + 1) % table.n_classes
    return replace(data, annotations=replace(table, label=label))


def mistaken(load: Callable[[], Any], seed: int = 0) -> Callable[[], Any]:
    """Loader of a set with a common mistake."""
    return lambda: with_common_mistake(load(), seed=seed)


REAL = (
    Problem("LabelMe", 4, "LabelMe", of_set("labelme")),
    Problem("Music", 3, "Music", of_set("music")),
    Problem("Sentiment", 2, "Sentiment", of_set("sentiment")),
    Problem("Product", 2, "Product", of_set("product")),
    Problem("Colposcopy", 5, "Colposcopy", of_set("colposcopy")),
    Problem("Reports", 3, "Reports", of_set("reports")),
    Problem("CIFAR-10N", 2, "Product", load_cifar10n, size=3.0),
)
CONFIRMATION = (
    Problem("CIFAR-10H, 2 per image", 2, "Product", thinned_cifar10h, size=3.0),
    Problem("Hotel", 5, "Product", load_hotel, size=0.2),
)
COMMON = (
    Problem("LabelMe, common", 3, "LabelMe", mistaken(of_set("labelme")), quick=30),
    Problem("Music, common", 3, "Music", mistaken(of_set("music")), quick=20),
    Problem("CIFAR-10N, common", 2, "Product", mistaken(load_cifar10n), 3.0, quick=25),
)

AGAIN = tuple(
    replace(problem, name=f"{problem.name}, drawn again", load=mistaken(of_set(name), seed=1))
    for problem, name in zip(COMMON, ("labelme", "music"), strict=False)
)
"""Other annotations turned: the alarm's threshold was chosen on these, LabelMe and Music."""

PROBLEMS = {problem.name: problem for problem in (*REAL, *CONFIRMATION, *COMMON, *AGAIN)}
SEEN = ("LabelMe", "Music", "Reports", *(problem.name for problem in (*COMMON[:2], *AGAIN)))
"""Sets that were looked at while the alarm's rule was chosen."""


class Candidate(NamedTuple):
    """A classifier with its settings, and the seconds of a recorded fit."""

    name: str
    seconds: float
    make: Callable[[], Any]


@cache
def candidates(protocol: str) -> dict[str, Candidate]:
    """The rows of a column, and DASC around two of them."""
    runs = groups(read(ROOT / "results" / "crowd_models.jsonl"), "row")
    found = {
        row.label: Candidate(
            row.label, mean(runs.get(row.id) or [{"seconds": 0.0}], "seconds"),
            partial(row.make_estimator, 0),
        )
        for row in load_rows(ROOT / "experiments")
        if row.table == "crowd_models/table" and row.column == protocol and "gold" not in row.label
    }  # fmt: skip
    for base in ("CoNAL", "AggNet"):
        make = partial(lambda one: DASCClassifier(one.make(), random_state=0), found[base])
        name = f"DASC around {base}"
        found[name] = Candidate(name, ROUNDS * found[base].seconds, make)
    return found


@cache
def loaded(problem: Problem) -> Any:
    """The data of a problem, loaded once."""
    return problem.load()


# -- one cell -------------------------------------------------------------------------------------


def measure(set: str, candidate: str) -> Record:
    """Train a candidate once a fold; return criteria, accuracies and the estimate."""
    problem = PROBLEMS[set]
    chosen = candidates(problem.protocol)[candidate]
    data = loaded(problem)
    given = data.annotations
    try:
        found = cross_predict(
            chosen.make(), data.X_train, given, cv=problem.folds, return_estimators=True
        )
    except AnnotationError as error:
        return {"error": str(error)}
    codes, models = found.proba.argmax(axis=1), found.estimators or []
    predicted = given.classes[codes]
    posterior = DawidSkene().fit_predict_proba(given)
    estimate = metrics.estimate_accuracy(predicted, given, posterior=posterior)
    return {
        "agreement": metrics.vote_agreement(predicted, given),
        "corrected": metrics.corrected_vote_agreement(predicted, given, posterior=posterior),
        "information": metrics.vote_information(predicted, given),
        "likelihood": left_out_likelihood(models, found.folds, data.X_train, given),
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "gold": metrics.accuracy(data.y_train, predicted),
        "test": [metrics.accuracy(data.y_test, model.predict(data.X_test)) for model in models],
        "codes": "".join(map(str, codes)),  # No set has more than ten classes.
    }


def left_out_likelihood(
    models: list[Any], folds: AnyArray, X: Any, table: AnnotationTable
) -> float:
    """Mean log likelihood of the annotations, each by the model that did not see its instance."""
    total = 0.0
    for fold, model in enumerate(models):
        rows = np.flatnonzero(folds == fold)
        part = table[rows]
        proba = model.predict_observed_proba(take_rows(X, rows), part)
        # A class that the model never saw has no column: it counts as impossible.
        columns = codes_of(part.classes, model.classes_)[part.label]
        given = proba[np.arange(len(columns)), columns]
        total += float(np.log(np.maximum(np.where(columns < 0, 0, given), 1e-6)).sum())
    return total / table.n_annotations


# -- what the criteria are worth ------------------------------------------------------------------


def truth(cell: dict[str, Any]) -> float:
    """Accuracy on the test part: the mean of the fold models."""
    return float(np.mean(cell["test"]))


def correlation(cells: list[dict[str, Any]], criterion: Callable[[Any], float]) -> float:
    """Spearman correlation of a criterion with the truth."""
    return float(spearmanr([criterion(c) for c in cells], [truth(c) for c in cells]).statistic)


def pool_regret(cells: list[dict[str, Any]], criterion: Callable[[Any], float] | None) -> float:
    """Expected loss in random pools of four; None: a random choice."""
    rng = np.random.default_rng(0)
    pools = rng.random((DRAWS, len(cells))).argsort(axis=1)[:, :POOL]
    true = np.array([truth(cell) for cell in cells])[pools]
    if criterion is None:
        return float((true.max(axis=1) - true.mean(axis=1)).mean())
    value = np.array([criterion(cell) for cell in cells])[pools]
    chosen = true[np.arange(DRAWS), value.argmax(axis=1)]
    return float((true.max(axis=1) - chosen).mean())


def whole_regret(cells: list[dict[str, Any]], criterion: Callable[[Any], float]) -> float:
    """Loss of the candidate with the highest criterion against the best."""
    return max(map(truth, cells)) - truth(max(cells, key=criterion))


def fixed_regret(cells: list[dict[str, Any]], name: str) -> float:
    """Loss of always taking one candidate; NaN where it was not run."""
    own = [truth(cell) for cell in cells if cell["candidate"] == name]
    return max(map(truth, cells)) - own[0] if own else float("nan")


def parting(cells: list[dict[str, Any]]) -> float:
    """Spearman correlation of A+B with MI: the alarm of `select` looks at it."""
    both, information = CRITERIA["A+B"], CRITERIA["MI"]
    return float(spearmanr([both(c) for c in cells], [information(c) for c in cells]).statistic)


# -- the page -------------------------------------------------------------------------------------

BySet = dict[str, list[Record]]


def dashed(values: list[float], form: str) -> list[str]:
    """Format values; NaN is a dash."""
    return ["–" if np.isnan(v) else form.format(v) for v in values]


def criteria_table(
    by_set: BySet,
    measured: Callable[[list[Record], Callable[[Any], float]], float],
    form: str,
    others: dict[str, Callable[[list[Record]], float]],
) -> list[str]:
    """One row per criterion; the mean is over the real sets that chose nothing."""
    first, rest = (
        [each.name for each in problems if len(by_set[each.name]) > POOL]
        for problems in (REAL, CONFIRMATION)
    )
    rows: dict[str, Callable[[list[Record]], float]] = {
        name: partial(lambda own, k: measured(own, k), k=k) for name, k in CRITERIA.items()
    }
    lines = []
    for name, of in (rows | others).items():
        values = [of(by_set[each]) for each in first]
        last = [of(by_set[each]) for each in rest]
        lines.append([name, *dashed([*values, float(np.nanmean(values)), *last], form)])
    return table(["", *first, "mean", *rest], lines)


def drawing(records: list[Record]) -> str:
    """Draw the mean loss of each criterion in pools of four, and that of a random choice."""
    done = [record for record in records if "error" not in record]
    sets = [own for p in REAL if len(own := where(done, set=p.name)) > POOL]
    named: dict[str, Callable[[Any], float] | None] = {**CRITERIA, "random choice": None}
    lost = {
        name: 100 * float(np.mean([pool_regret(own, k) for own in sets]))
        for name, k in named.items()
    }
    rows = [
        Bar(name, lost[name], f"{lost[name]:.2f}", name == "A+B")
        for name in sorted(lost, key=lost.__getitem__)
    ]
    return bars(f"Points lost by the choice among four, mean of {len(sets)} sets", rows)


def why_both(by_set: BySet) -> dict[str, Any]:
    """Why A+B stays the criterion, and what Hotel shows."""
    first = [problem.name for problem in REAL if len(by_set[problem.name]) > POOL]
    both, one = (
        np.array([correlation(by_set[each], CRITERIA[name]) for each in first])
        for name in ("A+B", "A")
    )
    regret = [
        100 * float(np.mean([pool_regret(by_set[each], CRITERIA[name]) for each in first]))
        for name in ("A+B", "A")
    ]
    gaps = dict(zip(first, both - one, strict=True))
    hotel = [100 * truth(cell) for cell in by_set["Hotel"]]
    return {
        "ahead": ", ".join(name for name, gap in gaps.items() if gap > 0.1) or "no set",
        "behind": ", ".join(name for name, gap in gaps.items() if gap < -0.1) or "no set",
        "orders": [float(both.mean()), float(one.mean())],
        "regrets": regret,
        "hotel": correlation(by_set["Hotel"], CRITERIA["gold, same instances"]),
        "hotel_range": max(hotel) - min(hotel),
    }


def sizes(by_set: BySet) -> list[str]:
    """Return how many candidates and folds every set has."""
    problems = [p for p in (*REAL, *CONFIRMATION, *COMMON) if by_set[p.name]]

    def span(problem: Problem) -> str:
        true = [100 * truth(cell) for cell in by_set[problem.name]]
        return f"{min(true):.1f} to {max(true):.1f}"

    return listing(problems, {
        "set": lambda p: p.name,
        "candidates": lambda p: len(by_set[p.name]),
        "folds": lambda p: p.folds,
        "test accuracy, %": span,
        "minutes of one core": lambda p: f"{sum(c['seconds'] for c in by_set[p.name]) / 60:.1f}",
    })  # fmt: skip


def intervals(by_set: BySet) -> list[str]:
    """The estimate of accuracy: of the chosen candidate, and its coverage over all."""

    def best(own: list[Record]) -> Record:
        return max(own, key=CRITERIA["A+B"])

    def of(own: list[Record], what: str) -> np.ndarray:
        return np.array([truth(c) if what == "test" else c[what] for c in own])

    def covers(own: list[Record], what: str) -> str:
        true = of(own, what)
        return f"{np.mean((of(own, 'low') <= true) & (true <= of(own, 'high'))):.2f}"

    def error(own: list[Record]) -> str:
        return f"{100 * np.mean(np.abs(of(own, 'estimate') - of(own, 'test'))):.1f}"

    return listing([own for own in by_set.values() if own], {
        "set": lambda own: own[0]["set"],
        "chosen by A+B: estimate [interval]": lambda own: (
            "{candidate}: {estimate:.3f} [{low:.3f}, {high:.3f}]".format_map(best(own))
        ),
        "test": lambda own: f"{truth(best(own)):.3f}",
        "gold, same instances": lambda own: f"{best(own)['gold']:.3f}",
        "mean error against test, points": error,
        "covers test": lambda own: covers(own, "test"),
        "covers gold of the instances": lambda own: covers(own, "gold"),
        "width": lambda own: f"{np.mean(of(own, 'high') - of(own, 'low')):.2f}",
    })  # fmt: skip


def alarms(by_set: BySet) -> Iterator[list[str]]:
    """Yield how clearly agreement and information contradict each other."""
    for name, every in by_set.items():
        cells = [cell for cell in every if "codes" in cell]
        if len(cells) <= POOL:
            continue
        given = loaded(PROBLEMS[name]).annotations
        codes = {c["candidate"]: np.array([int(digit) for digit in c["codes"]]) for c in cells}
        pair = find_contradiction(codes, given, DawidSkene().fit_predict_proba(given))
        clear = min(pair.agreement_z, pair.information_z)
        yield [
            name + (" (seen)" if name in SEEN else ""),
            str(len(cells)),
            f"{pair.agreeing} against {pair.informing}" if clear > 0 else "none",
            f"{max(clear, 0):.2f}",
            "raised" if clear > CONTRADICTION else "silent",
            f"{parting(cells):.2f}",
            *(f"{100 * whole_regret(cells, CRITERIA[name]):.1f}" for name in ("A+B", "MI")),
        ]


def left_out(by_set: BySet, errors: dict[tuple[str, str], str]) -> Iterator[str]:
    """Name the candidates that a set does not have, and why."""
    for problem in (*REAL, *CONFIRMATION):
        own = {cell["candidate"] for cell in by_set[problem.name]}
        missing = [c for c in candidates(problem.protocol).values() if own and c.name not in own]
        failed = [c.name for c in missing if (problem.name, c.name) in errors]
        if costly := [c.name for c in missing if cost(problem, c) > problem.quick]:
            yield f"- {problem.name}: {', '.join(costly)} (cost)"
        yield from (f"- {problem.name}: {n} ({errors[problem.name, n]})" for n in failed)


def page(records: list[Record]) -> dict[str, Any]:
    """Return the page's values."""
    done = [record for record in records if "error" not in record]
    by_set = {name: where(done, set=name) for name in PROBLEMS}
    errors = {(c["set"], c["candidate"]): c["error"] for c in records if "error" in c}
    always: dict[str, Callable[[list[Record]], float]] = {
        f"always {each}": partial(lambda own, name: 100 * fixed_regret(own, name), name=each)
        for each in FIXED
    }
    chance = {"random choice": lambda own: 100 * pool_regret(own, None)}
    alarm = ["set", "candidates", "clearest contradiction", "z", "alarm", "Spearman"]
    return {
        "sizes": sizes(by_set),
        "order": criteria_table(by_set, correlation, "{:.2f}", {}),
        **why_both(by_set),
        "pools": criteria_table(by_set, lambda c, k: 100 * pool_regret(c, k), "{:.2f}", chance),
        "whole": criteria_table(by_set, lambda c, k: 100 * whole_regret(c, k), "{:.1f}", always),
        "estimates": intervals(by_set),
        "alarms": table([*alarm, "regret of A+B", "regret of MI"], alarms(by_set)),
        "left_out": left_out(by_set, errors),
    }


def cost(problem: Problem, candidate: Candidate) -> float:
    """Estimated seconds of a cell."""
    return candidate.seconds * (problem.folds - 1) * problem.size


def cells() -> list[Record]:
    """All cells within the limits, the quickest first."""
    found = []
    for problem in PROBLEMS.values():
        for candidate in candidates(problem.protocol).values():
            cell = {"set": problem.name, "candidate": candidate.name}
            if cost(problem, candidate) <= problem.quick:
                found.append((cost(problem, candidate), cell))
    return [cell for _, cell in sorted(found, key=lambda each: each[0])]


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"model_choice-lost.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
