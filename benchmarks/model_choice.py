"""Compare criteria that choose a classifier without gold labels.

A candidate is a row of "Every classifier on six sets" (experiments/crowd_models.yaml) with the
protocol of the set, or DASC around two of them. CIFAR-10N, CIFAR-10H and Hotel have no protocol of
their own and use Product's. Every candidate is trained once per fold and predicts the left-out
fold. The criteria see these predictions and the annotations. Gold labels serve to measure the
accuracy of the same predictions, and of the fold models on the test part.

Sets "with a common mistake" have 60 % of the annotations of two classes turned into the next class.

Run, with MANYHANDS_DATA set: ``OMP_NUM_THREADS=1 python benchmarks/model_choice.py --records
results/benchmarks/model_choice.jsonl --out docs/results/model_choice.md``. Cells that are in the
records are not repeated. With ``--alarm``, only the quickest candidates are trained, and only the
part on the alarm is written.
"""

from __future__ import annotations

import argparse
import datetime
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from pages import run_missing, table_lines, write_part
from scipy.stats import spearmanr

import manyhands
from evidence import load_data, load_rows
from manyhands import AnnotationTable, DASCClassifier, DawidSkene, cross_predict
from manyhands.datasets import load_cifar10h, load_cifar10n, load_hotel
from manyhands.exceptions import AnnotationError
from manyhands.fitting.reading import take_rows
from manyhands.io import write_atomically
from manyhands.metrics import (
    accuracy,
    corrected_vote_agreement,
    estimate_accuracy,
    vote_agreement,
    vote_information,
)
from manyhands.selection.criteria import PARTED, find_parting
from manyhands.typing import AnyArray

TITLE = "Choosing without gold: what the criteria are worth"
ROOT = Path(__file__).parents[1]
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
    order = np.lexsort([rng.random(table.n_annotations), table.instance])
    first = np.searchsorted(table.instance[order], np.arange(table.n_instances))
    place = np.arange(table.n_annotations) - first[table.instance[order]]
    return replace(data, annotations=table.take(np.sort(order[place < most])))


def thinned_cifar10h() -> Any:
    """CIFAR-10H with two random annotations of each image."""
    return thinned(load_cifar10h(), 2)


def with_common_mistake(data: Any, share: float = 0.6, seed: int = 0) -> Any:
    """Turn a share of the annotations of two classes into the next class."""
    table, rng = data.annotations, np.random.default_rng(seed)
    codes = {label: code for code, label in enumerate(table.classes.tolist())}
    true = np.array([codes[label] for label in np.asarray(data.y_train).tolist()])
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

SEEN = ("LabelMe", "Music", "Reports", *(problem.name for problem in (*COMMON[:2], *AGAIN)))
"""Sets that were looked at while the alarm's rule was chosen."""

QUICKEST = 8.0
"""Limit in estimated seconds for the part on the alarm alone."""


@dataclass(frozen=True)
class Candidate:
    """A classifier with its settings, and the seconds of a recorded fit."""

    name: str
    seconds: float
    make: Callable[[], Any]


@cache
def candidates(protocol: str) -> list[Candidate]:
    """The rows of a column, and DASC around two of them."""
    seconds = recorded_seconds()
    found = {
        row.label: Candidate(row.label, seconds.get(row.id, 0.0), partial(row.make_estimator, 0))
        for row in load_rows(ROOT / "experiments")
        if row.table == "crowd_models/table" and row.column == protocol and "gold" not in row.label
    }
    for base in ("CoNAL", "AggNet"):
        one, name = found[base], f"DASC around {base}"
        found[name] = Candidate(name, ROUNDS * one.seconds, partial(dasc_around, one))
    return list(found.values())


def dasc_around(base: Candidate) -> DASCClassifier:
    """DASC with its own defaults around a candidate."""
    return DASCClassifier(base.make(), random_state=0)


@cache
def recorded_seconds() -> dict[str, float]:
    """Mean seconds of the recorded runs of every row."""
    found: dict[str, list[float]] = {}
    for line in (ROOT / "results" / "crowd_models.jsonl").read_text().splitlines():
        record = json.loads(line)
        for row in record["rows"]:
            found.setdefault(row, []).append(record["seconds"])
    return {row: float(np.mean(each)) for row, each in found.items()}


@cache
def loaded(problem: Problem) -> Any:
    """The data of a problem, loaded once."""
    return problem.load()


# -- one cell -------------------------------------------------------------------------------------


def measure(problem: Problem, candidate: Candidate, data: Any) -> dict[str, Any]:
    """Train a candidate once a fold; return criteria, accuracies and the estimate."""
    table, started = data.annotations, perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_predict(
            candidate.make(), data.X_train, table, cv=problem.folds, return_estimators=True
        )
    codes = found.proba.argmax(axis=1)
    predicted = table.classes[codes]
    posterior = DawidSkene().fit_predict_proba(table)
    estimate = estimate_accuracy(predicted, table, posterior=posterior)
    models = found.estimators or []
    return {
        "set": problem.name,
        "candidate": candidate.name,
        "agreement": vote_agreement(predicted, table),
        "corrected": corrected_vote_agreement(predicted, table, posterior=posterior),
        "information": vote_information(predicted, table),
        "likelihood": left_out_likelihood(models, found.folds, data.X_train, table),
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "gold": accuracy(data.y_train, predicted),
        "test": [accuracy(data.y_test, model.predict(data.X_test)) for model in models],
        "codes": "".join(map(str, codes)),  # No set has more than ten classes.
        "seconds": perf_counter() - started,
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
        codes = {label: code for code, label in enumerate(model.classes_.tolist())}
        columns = np.array([codes.get(label, -1) for label in part.classes.tolist()])[part.label]
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


def with_mean(values: list[float], form: str) -> list[str]:
    """Format values and their mean; NaN is a dash and does not count."""
    known = [value for value in values if not np.isnan(value)]
    return [*("–" if np.isnan(v) else form.format(v) for v in values), form.format(np.mean(known))]


def grouped(cells: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The cells of every set, without those that failed."""
    return {
        problem.name: [c for c in cells if c["set"] == problem.name and "error" not in c]
        for problem in (*REAL, *CONFIRMATION, *COMMON, *AGAIN)
    }


def page(cells: list[dict[str, Any]]) -> list[str]:
    """Return the page's lines."""
    by_set = grouped(cells)
    return [
        f"# {TITLE}",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/model_choice.py --records "
        "results/benchmarks/model_choice.jsonl --out docs/results/model_choice.md` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}. One seed: every candidate is "
        "trained once per fold. The truth "
        "is the accuracy on the test part, the mean of the fold models. `A` is `vote_agreement`, "
        "`B` `corrected_vote_agreement`, `MI` `vote_information`, all of predictions out of fold; "
        '"likelihood" is the mean log likelihood of the left-out annotations. "Gold" is the '
        "accuracy of the same predictions on the same instances, as if all were labelled by gold. "
        "The last two sets of a table confirm: the criteria were chosen without them.",
        "",
        *sizes(by_set),
        "## Order",
        "",
        "Spearman correlation of each criterion with the truth over the candidates of a set.",
        "",
        *criteria_table(by_set, correlation, "{:.2f}"),
        *why_both(by_set),
        "## Regret in pools of four",
        "",
        f"Expected loss, in points, against the best of four random candidates ({DRAWS:,} draws).",
        "",
        *criteria_table(by_set, lambda c, k: 100 * pool_regret(c, k), "{:.2f}", random=True),
        "## Regret of the whole pool",
        "",
        "Loss, in points, of the candidate with the highest criterion, and of always taking the "
        "same one, against the best candidate. The best is an oracle: the highest of many test "
        "figures is partly luck.",
        "",
        *criteria_table(by_set, lambda c, k: 100 * whole_regret(c, k), "{:.1f}", fixed=True),
        *interval_part(by_set),
        "## The alarm",
        "",
        *alarm_part(by_set),
        *left_out(by_set, {(c["set"], c["candidate"]): c["error"] for c in cells if "error" in c}),
    ]


def why_both(by_set: dict[str, list[Any]]) -> list[str]:
    """Say why A+B stays the criterion, and what Hotel shows."""
    first = [problem.name for problem in REAL if len(by_set[problem.name]) > POOL]
    order = {
        name: np.array([correlation(by_set[each], CRITERIA[name]) for each in first])
        for name in ("A+B", "A")
    }
    regret = {
        name: 100 * float(np.mean([pool_regret(by_set[each], CRITERIA[name]) for each in first]))
        for name in order
    }
    ahead = [each for each, gap in zip(first, order["A+B"] - order["A"], strict=True) if gap > 0.1]
    behind = [
        each for each, gap in zip(first, order["A+B"] - order["A"], strict=True) if gap < -0.1
    ]
    lines = [
        "A+B orders the candidates better than A by more than .1 on "
        f"{', '.join(ahead) or 'no set'}, and worse on {', '.join(behind) or 'no set'}; the means "
        f"are {order['A+B'].mean():.2f} and {order['A'].mean():.2f}. In pools of four, A+B "
        f"loses {regret['A+B']:.2f} points and A {regret['A']:.2f}. A+B was fixed before these "
        "figures, which come from test parts, were made. They do not choose it anew: on a set of "
        "two hundred instances, such as Colposcopy, a difference of .1 is noise, and where classes "
        "are confused asymmetrically (Product), A is biased.",
        "",
    ]
    if by_set["Hotel"]:
        true = [100 * truth(cell) for cell in by_set["Hotel"]]
        gold = correlation(by_set["Hotel"], CRITERIA["gold, same instances"])
        lines += [
            f"On Hotel, nothing orders the candidates, gold labels of the same instances included "
            f"({gold:.2f}): they are within {max(true) - min(true):.1f} points of each other, and "
            "what is a little better on the training part is a little worse on the test part.",
            "",
        ]
    return lines


def shown_sets(by_set: dict[str, list[Any]]) -> list[str]:
    """Real sets that have cells, the confirming ones last."""
    return [problem.name for problem in (*REAL, *CONFIRMATION) if len(by_set[problem.name]) > POOL]


def sizes(by_set: dict[str, list[Any]]) -> list[str]:
    """Say how many candidates and folds every set has."""
    rows = []
    for problem in (*REAL, *CONFIRMATION, *COMMON):
        own = by_set[problem.name]
        if own:
            true = [100 * truth(cell) for cell in own]
            spread = f"{min(true):.1f} to {max(true):.1f}"
            minutes = f"{sum(cell['seconds'] for cell in own) / 60:.1f}"
            rows.append([problem.name, str(len(own)), str(problem.folds), spread, minutes])
    heading = ["set", "candidates", "folds", "test accuracy, %", "minutes of one core"]
    return table_lines(heading, rows)


def criteria_table(
    by_set: dict[str, list[Any]],
    measured: Callable[[list[Any], Callable[[Any], float]], float],
    form: str,
    random: bool = False,
    fixed: bool = False,
) -> list[str]:
    """One row per criterion; the mean is over the real sets that chose nothing."""
    names = shown_sets(by_set)
    first = [name for name in names if name not in {problem.name for problem in CONFIRMATION}]
    rest = [name for name in names if name not in first]

    def cells_of(of: Callable[[list[Any]], float]) -> list[str]:
        main = with_mean([of(by_set[name]) for name in first], form)
        return [*main, *(with_mean([of(by_set[name])], form)[0] for name in rest)]

    rows = [
        [name, *cells_of(lambda own, k=criterion: measured(own, k))]
        for name, criterion in CRITERIA.items()
    ]
    if random:
        rows.append(["random choice", *cells_of(lambda own: 100 * pool_regret(own, None))])
    if fixed:
        for each in FIXED:
            of = partial(fixed_regret, name=each)
            rows.append([f"always {each}", *cells_of(lambda own, of=of: 100 * of(own))])
    return table_lines(["", *first, "mean", *rest], rows)


def interval_part(by_set: dict[str, list[Any]]) -> list[str]:
    """The estimate of accuracy: of the chosen candidate, and its coverage over all."""
    rows = []
    for name, cells in by_set.items():
        if not cells:
            continue
        best = max(cells, key=CRITERIA["A+B"])
        error = 100 * float(np.mean([abs(cell["estimate"] - truth(cell)) for cell in cells]))
        rows.append(
            [
                name,
                f"{best['candidate']}: {best['estimate']:.3f} "
                f"[{best['low']:.3f}, {best['high']:.3f}]",
                f"{truth(best):.3f}",
                f"{best['gold']:.3f}",
                f"{error:.1f}",
                f"{np.mean([cell['low'] <= truth(cell) <= cell['high'] for cell in cells]):.2f}",
                f"{np.mean([cell['low'] <= cell['gold'] <= cell['high'] for cell in cells]):.2f}",
                f"{np.mean([cell['high'] - cell['low'] for cell in cells]):.2f}",
            ]
        )
    heading = [
        "set",
        "chosen by A+B: estimate [interval]",
        "test",
        "gold, same instances",
        "mean error against test, points",
        "covers test",
        "covers gold of the instances",
        "width",
    ]
    return [
        "## The estimate of accuracy",
        "",
        "`estimate_accuracy` of the same predictions. Coverage is the share of the candidates; "
        "they are alike, so a set is nearer to one case than to thirty. Sentiment's test part is "
        "harder than its training part; the interval speaks of instances like the annotated ones.",
        "",
        *table_lines(heading, rows),
    ]


def alarm_part(by_set: dict[str, list[Any]], option: str = "") -> list[str]:
    """How clearly agreement and information contradict each other; ``option`` made the cells."""
    rows = []
    for problem in (*REAL, *CONFIRMATION, *COMMON, *AGAIN):
        cells = [cell for cell in by_set[problem.name] if "codes" in cell]
        if len(cells) <= POOL:
            continue
        table = loaded(problem).annotations
        codes = {c["candidate"]: np.array([int(digit) for digit in c["codes"]]) for c in cells}
        pair = find_parting(codes, table, DawidSkene().fit_predict_proba(table))
        clear = min(pair.agreement_z, pair.information_z)
        rows.append(
            [
                problem.name + (" (seen)" if problem.name in SEEN else ""),
                str(len(cells)),
                f"{pair.agreeing} against {pair.informing}" if clear > 0 else "none",
                f"{max(clear, 0):.2f}",
                "raised" if clear > PARTED else "silent",
                f"{parting(cells):.2f}",
                f"{100 * whole_regret(cells, CRITERIA['A+B']):.1f}",
                f"{100 * whole_regret(cells, CRITERIA['MI']):.1f}",
            ]
        )
    heading = ["set", "candidates", "clearest contradiction", "z", "alarm", "Spearman"]
    return [
        f"Made by `OMP_NUM_THREADS=1 python benchmarks/model_choice.py {option}--records "
        f"results/benchmarks/model_choice.jsonl --out docs/results/model_choice.md` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}. "
        "The records hold the classes that every candidate predicts out of fold.",
        "",
        'In the sets called "common", 60 % of the annotations of two classes are turned into the '
        "next class: most annotators share these mistakes, so agreement prefers models that repeat "
        "them. Of the candidates that A+B does not tell from its best, and those that MI does not "
        "tell from its best (z ≤ 1), `select` takes the pair that the two criteria order most "
        "clearly in opposite ways, and warns if the smaller of the two z is above "
        f"{PARTED:g}. The threshold was set so that LabelMe and Music as they are raise no alarm, "
        "and raise one with common mistakes that are drawn again. The rule was chosen while the "
        "sets marked as seen, and parts of CIFAR-10N and Hotel, were looked at. The paired z of "
        "MI between the two choices alone does not do: it does not tell Music with a common "
        "mistake from Reports. *Spearman* is the correlation of A+B with MI over the candidates: "
        "the former rule was that it is below .5.",
        "",
        *table_lines([*heading, "regret of A+B", "regret of MI"], rows),
    ]


def left_out(by_set: dict[str, list[Any]], errors: dict[tuple[str, str], str]) -> list[str]:
    """Name the candidates that a set does not have, and why."""
    lines = ["## Left out", ""]
    for problem in (*REAL, *CONFIRMATION):
        own = {cell["candidate"] for cell in by_set[problem.name]}
        missing = [c.name for c in candidates(problem.protocol) if c.name not in own]
        failed = [name for name in missing if (problem.name, name) in errors]
        costly = [name for name in missing if name not in failed]
        if own and costly:
            lines.append(f"- {problem.name}: {', '.join(costly)} (cost)")
        if own:
            lines += [f"- {problem.name}: {n} ({errors[problem.name, n]})" for n in failed]
    return [
        *lines,
        "",
        'Rows that have no cell in "Every classifier on six sets" have none here. On the sets with '
        "a common mistake, only quick candidates are run.",
    ]


# -- running --------------------------------------------------------------------------------------


def plan(most: float) -> list[tuple[float, Problem, Candidate]]:
    """All cells within the limits, the quickest first."""
    found = []
    for problem in (*REAL, *CONFIRMATION, *COMMON, *AGAIN):
        for candidate in candidates(problem.protocol):
            cost = candidate.seconds * (problem.folds - 1) * problem.size
            if cost <= min(problem.quick, most):
                found.append((cost, problem, candidate))
    return sorted(found, key=lambda each: each[0])


def main() -> None:
    """Run the missing cells and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, required=True, help="one line of JSON per cell")
    parser.add_argument("--out", type=Path, help="Markdown file")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell later")
    parser.add_argument("--alarm", action="store_true", help="the part on the alarm alone")
    arguments = parser.parse_args()

    def measured(problem: Problem, candidate: Candidate) -> dict[str, Any]:
        try:
            return measure(problem, candidate, loaded(problem))
        except AnnotationError as error:
            return {"set": problem.name, "candidate": candidate.name, "error": str(error)}

    planned = (
        ((problem.name, candidate.name), partial(measured, problem, candidate))
        for _, problem, candidate in plan(QUICKEST if arguments.alarm else float("inf"))
    )
    cells = run_missing(
        arguments.records, planned, lambda c: (c["set"], c["candidate"]), arguments.minutes
    )
    if arguments.out is not None and arguments.alarm:
        write_part(arguments.out, TITLE, "The alarm", alarm_part(grouped(cells), "--alarm "))
    elif arguments.out is not None:
        write_atomically(arguments.out, "\n".join(page(cells)) + "\n")


if __name__ == "__main__":
    main()
