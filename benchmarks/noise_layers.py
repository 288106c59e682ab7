"""Defaults of noise adaptation layers: learning rate, number of epochs, and start. No test sets.

Rates and epochs: no test set is used. The page shows accuracy on LabelMe's validation images, on
Music songs left out in three folds of the *training* songs, and on the demo's validation digits. It
also shows the distance of ``confusion_`` from the annotators' true behaviour according to the gold
labels of the training instances (mean total variation between rows, weighted by annotations).

The start: the matrices of Crowd Layer start at a multiple of the identity: 1 in the paper, 2 in the
code of CoNAL and CrowdInG. From 1, rare classes may get no gradient, and are then never predicted.
Here every candidate is tried on the *training parts* of all public sets with features. Fourths of
the instances are left out in turn, with all their annotations. A candidate is judged by the classes
it loses (classes with annotations that it predicts for no left-out instance), then by agreement:
the mean share of a left-out instance's annotations that equal the predicted class. Neither gold
labels nor test parts are used for this.

Candidates are also trained with 40 seeds on the two sets where classes were lost. A start that then
loses classes of the training instances, however rarely, is no default. That table shows test
accuracy too, which chose nothing.

Run: ``OMP_NUM_THREADS=1 python benchmarks/noise_layers.py rates`` and ``... start --jobs 2``. Each
writes its part of the page. With ``rates --method CrowdLayerClassifier``, only its rows are run,
and the others of the page stay. With ``start --check auto`` (or a number), only the 40 seeds of
that start are run, and their rows are added to the page; ``--method TraceRegClassifier`` checks
another classifier, ``--set CIFAR10-H`` one set, and ``--n-seeds 10`` fewer seeds. Seeds that a file
given as ``--records`` holds are not run again.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pages import run_missing, write_part
from sklearn.model_selection import KFold

import manyhands
from evidence.data import make_long_tailed_cifar10h
from manyhands import (
    AnnotationTable,
    CoNALClassifier,
    CrowdInGClassifier,
    CrowdLayerClassifier,
    TraceRegClassifier,
    load_demo,
)
from manyhands.datasets import (
    load_cifar10n,
    load_colposcopy,
    load_labelme,
    load_music,
    load_product,
    load_reports,
    load_sentiment,
)
from manyhands.exceptions import LostClassWarning
from manyhands.fitting.pilots import AUTO
from manyhands.io import write_atomically

OUT = Path("docs/results/noise_layers.md")
TITLE = "What the defaults of noise adaptation layers rest on"
RATES = "Learning rate and number of epochs"
START = "Where Crowd Layer starts"

# -- rates and epochs -----------------------------------------------------------------------------

SETTINGS: tuple[dict[str, Any], ...] = (
    {"noise_lr": None},
    {"noise_lr": 3e-3},
    {},
    {"noise_lr": 3e-2},
    {"max_epochs": 25},
    {"max_epochs": 100},
    {"max_epochs": 200},
)
"""The other parameters are the library's defaults."""

METHODS = {cls.__name__: cls for cls in (CrowdLayerClassifier, CoNALClassifier)}


def confusion_error(model: Any, table: Any, y: Any) -> float:
    """Return the mean total variation of learnt and counted rows, weighted by annotations."""
    codes = {label: code for code, label in enumerate(model.classes_.tolist())}
    true = np.array([codes[label] for label in np.asarray(y).tolist()])
    counts = np.zeros_like(model.confusion_)
    np.add.at(counts, (table.annotator, true[table.instance], table.label), 1)
    rows = counts.sum(axis=2, keepdims=True)
    gap = np.abs(counts / np.maximum(rows, 1) - model.confusion_).sum(axis=2, keepdims=True) / 2
    return float((gap * rows).sum() / rows.sum())


def held_out(data: Any, make: Any, seeds: range) -> tuple[list[float], list[float]]:
    """Return validation accuracy and confusion error for each seed."""
    models = [make(seed).fit(data.X_train, data.annotations) for seed in seeds]
    return (
        [model.score(data.X_valid, data.y_valid) for model in models],
        [confusion_error(model, data.annotations, data.y_train) for model in models],
    )


def cross_validated(data: Any, make: Any, seeds: range) -> list[float]:
    """Return the mean accuracy over three folds of the training instances, for each seed."""
    scores = []
    for seed in seeds:
        folds = KFold(3, shuffle=True, random_state=seed).split(data.X_train)
        fold_scores = [
            make(seed)
            .fit(data.X_train[train], data.annotations[train])
            .score(data.X_train[rest], data.y_train[rest])
            for train, rest in folds
        ]
        scores.append(float(np.mean(fold_scores)))
    return scores


def spread(values: list[float]) -> str:
    """Return mean ± sample sd, in percent."""
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def rows_of(method: str, page: Path) -> list[str]:
    """Return the rows of a method that a page holds."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(f"| {method} |")]


def write_rates(out: Path, n_seeds: int, only: str | None) -> None:
    """Run all settings, or those of one method, and replace the part of the page."""
    seeds = range(1, n_seeds + 1)
    labelme, music, demo = load_labelme(), load_music(), load_demo()
    lines = [
        "Made by `OMP_NUM_THREADS=1 python benchmarks/noise_layers.py rates` "
        f"on {datetime.date.today()}, manyhands {manyhands.__version__}; seeds {seeds.start} to "
        f"{seeds.stop - 1}, percent, mean ± sd. No test set is looked at; the script says what the "
        "columns are. Defaults: `noise_lr=1e-2`, `max_epochs=50`; `noise_lr=None` is one rate "
        "(1e-3) and weight decay for everything.",
        "",
        "| method | setting | LabelMe valid | Music train folds | demo valid | "
        "LabelMe confusion error | demo confusion error |",
        "|---|---|---|---|---|---|---|",
    ]
    for name_of_method, cls in METHODS.items():
        if only not in (None, name_of_method):
            lines += rows_of(name_of_method, out)
            continue
        for setting in SETTINGS:

            def make(seed: int, cls: Any = cls, setting: Any = setting) -> Any:
                return cls(random_state=seed, **setting)

            valid, error = held_out(labelme, make, seeds)
            demo_valid, demo_error = held_out(demo, make, seeds)
            folds = cross_validated(music, make, seeds)
            cells = map(spread, (valid, folds, demo_valid, error, demo_error))
            name = ", ".join(f"`{k}={v}`" for k, v in setting.items()) or "defaults"
            lines.append(f"| {cls.__name__} | {name} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    write_part(out, TITLE, RATES, lines)


# -- the start ------------------------------------------------------------------------------------

CANDIDATES = (1.0, 1.5, 2.0, 3.0)
N_FOLDS = 4
N_SEEDS = 40


class Set(NamedTuple):
    """A set: its loader, parameters that differ from the defaults, and repeats with new folds."""

    load: Callable[..., Any]
    params: dict[str, Any]
    repeats: int


DASC: dict[str, Any] = {"lr": 1e-3, "weight_decay": 5e-4, "noise_lr": None}
SETS = {
    "LabelMe": Set(load_labelme, {}, 5),
    "Music": Set(load_music, {}, 5),
    "Sentiment": Set(load_sentiment, {"max_epochs": 10, "scaling": None}, 2),
    "Product": Set(load_product, {"max_epochs": 20}, 2),
    "Colposcopy": Set(load_colposcopy, {}, 5),
    "Reports": Set(load_reports, {}, 5),
    "CIFAR-10N": Set(load_cifar10n, {"max_epochs": 15}, 2),
    "CIFAR10-H": Set(partial(make_long_tailed_cifar10h, random_state=0), {}, 2),
    "LabelMe, DASC": Set(
        load_labelme, {**DASC, "max_epochs": 25, "batch_size": 512, "scaling": None}, 5
    ),
    "CIFAR10-H, DASC": Set(
        partial(make_long_tailed_cifar10h, random_state=0), {**DASC, "max_epochs": 100}, 1
    ),
}
"""The library's defaults (with fewer epochs on large sets), and DASC's protocols of two sets."""

CHECKED = ("LabelMe", "CIFAR10-H", "LabelMe, DASC")

LAYERS = {
    cls.__name__: cls
    for cls in (CrowdLayerClassifier, CoNALClassifier, CrowdInGClassifier, TraceRegClassifier)
}
"""Classifiers with a layer per annotator that have an ``init_scale``."""

OWN = CrowdLayerClassifier.__name__
"""The classifier whose start is chosen; it alone is checked with DASC's protocol."""


class Found(NamedTuple):
    """Agreement with left-out annotations, and the number of classes never predicted for them."""

    agreement: float
    lost: int


Scale = float | str
"""An ``init_scale``: a number or "auto"."""

Start = tuple[str, str, Scale]
"""Set, classifier and ``init_scale``."""


class Checked(NamedTuple):
    """Test accuracy of one seed, and classes predicted for no training instance."""

    accuracy: float
    lost: tuple[str, ...]


@cache
def load(name: str) -> tuple[Any, AnnotationTable]:
    """Load the annotated instances of a set's training part."""
    data = SETS[name].load()
    rows = np.flatnonzero(data.annotations.annotations_per_instance())
    return data.X_train[rows], data.annotations[rows]


def fitted(
    name: str,
    init_scale: Scale,
    seed: int,
    X: Any,
    table: AnnotationTable,
    cls: Any = CrowdLayerClassifier,
) -> Any:
    """Fit a candidate; the classes it loses are counted, not warned about."""
    model = cls(**SETS[name].params, init_scale=init_scale, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LostClassWarning)
        return model.fit(X, table)


def measure(name: str, init_scale: float, repeat: int) -> Found:
    """Predict every fold by a model that saw neither its features nor its annotations."""
    X, table = load(name)
    place = np.random.default_rng(repeat).permutation(len(table)) % N_FOLDS
    predicted = np.empty(len(table), dtype=np.int64)
    for k in range(N_FOLDS):
        kept, left = np.flatnonzero(place != k), np.flatnonzero(place == k)
        seed = N_FOLDS * repeat + k
        proba = fitted(name, init_scale, seed, X[kept], table[kept]).predict_proba(X[left])
        predicted[left] = proba.argmax(axis=1)
    counts = table.vote_counts()
    agreement = (counts[np.arange(len(table)), predicted] / counts.sum(axis=1)).mean()
    lost = np.setdiff1d(np.flatnonzero(table.mask_of_classes_seen()), predicted)
    return Found(float(agreement), len(lost))


def check(name: str, method: str, init_scale: Scale, seed: int) -> Checked:
    """Fit on the whole training part; CIFAR10-H draws another crowd with every seed."""
    loader = SETS[name].load
    data = loader(random_state=seed) if isinstance(loader, partial) else loader()
    table = data.annotations
    model = fitted(name, init_scale, seed, data.X_train, table, LAYERS[method])
    seen = np.asarray(table.classes)[table.mask_of_classes_seen()]
    lost = np.setdiff1d(seen, model.predict(data.X_train))
    accuracy = float((model.predict(data.X_test) == data.y_test).mean())
    return Checked(accuracy, tuple(lost.tolist()))


def start_part(
    found: dict[tuple[str, float], list[Found]], checked: dict[Start, list[Checked]]
) -> list[str]:
    """Return the lines of the part about the start, in Markdown."""
    today = datetime.datetime.now(datetime.UTC).date()
    return [
        f"Made by `OMP_NUM_THREADS=1 python benchmarks/noise_layers.py start --jobs 2` on "
        f"{today}, manyhands {manyhands.__version__} (the rows of other dates in the last table: "
        "`start --check 3` or `auto`, and `--check` with `--method`). The matrices of "
        "Crowd Layer, and both layers of CoNAL, start at `init_scale` times the identity. "
        f"{N_FOLDS}-fold cross-validation over the annotated instances of the training parts: "
        "a fold is left out with all its annotations, five times with new folds (twice on "
        "large sets, once on the last). The columns use the library's defaults (10, 20 and 15 "
        "epochs on Sentiment, Product and CIFAR-10N), the last two DASC's protocols. CIFAR10-H "
        "is `make_long_tailed_cifar10h`. No gold label and no test part is looked at.",
        "",
        "### Agreement with left-out annotations, %",
        "",
        "Mean share of a left-out instance's annotations that equal the predicted class. The "
        "mean is over the columns.",
        "",
        *_table(found, lambda runs: 100 * float(np.mean([f.agreement for f in runs])), "{:.2f}"),
        "",
        "### Classes lost",
        "",
        "Classes that have annotations and are predicted for no left-out instance: mean over "
        "the repeats.",
        "",
        *_table(found, lambda runs: float(np.mean([f.lost for f in runs])), "{:.1f}"),
        "",
        f"### {N_SEEDS} seeds",
        "",
        "Trained on the whole training part. A class is lost if it has annotations and is "
        "predicted for no training instance. Every seed of CIFAR10-H simulates a new crowd. "
        "Test accuracy is mean ± sd in %; it chose nothing. Parameters that are not named have "
        "their defaults of the date: until 2026-11-22 standardised features and 50 epochs, since "
        "then what suits the data. LabelMe, DASC is DASC's protocol throughout. Where there are "
        "fewer seeds, computing time ran out. For Crowd Layer, 3 was chosen because no seed lost a "
        "class with the former defaults; with the present ones, some on CIFAR10-H do. `auto`, the "
        "default, is 3 for Crowd Layer, also where CrowdInG starts from it, and 2 for CoNAL; it "
        "fits those seeds again, from twice and from four times that.",
        "",
        "| set | classifier | init_scale | test accuracy | seeds that lose a class | lost (seeds) "
        "| date |",
        RULE,
        *_checked_rows(checked),
        "",
    ]


RULE = "|---" * 7 + "|"


def with_rows(text: str, checked: dict[Start, list[Checked]]) -> str:
    """Add the rows of further starts to a page that ends with the table of the 40 seeds."""
    head, rule, old = text.rpartition(f"\n{RULE}\n")
    added = _checked_rows(checked)
    places = {_place(row) for row in added}
    rows = [row for row in old.splitlines() if row and _place(row) not in places]
    return "\n".join([head + rule.rstrip("\n"), *sorted([*rows, *added], key=_place), ""])


def _place(row: str) -> tuple[int, int, float]:
    """Place of a row in the table, by its set, classifier and start; "auto" comes last."""
    name, method, scale = (cell.strip() for cell in row.split("|")[1:4])
    value = float("inf") if scale == AUTO else float(scale)
    return CHECKED.index(name), list(LAYERS).index(method), value


def _checked_rows(checked: dict[Start, list[Checked]]) -> list[str]:
    return [_checked_row(start, runs) for start, runs in checked.items()]


def _table(
    found: dict[tuple[str, float], list[Found]],
    summary: Callable[[list[Found]], float],
    form: str,
) -> list[str]:
    """Return a table of one figure per candidate and set, with the mean over the sets."""
    lines = [f"| init_scale | {' | '.join(SETS)} | mean |", "|---" * (len(SETS) + 2) + "|"]
    for scale in CANDIDATES:
        own = [summary(found[name, scale]) for name in SETS]
        cells = [form.format(value) for value in [*own, float(np.mean(own))]]
        lines.append(f"| {scale:g} | {' | '.join(cells)} |")
    return lines


def _checked_row(start: Start, runs: list[Checked]) -> str:
    name, method, scale = start
    accuracy = 100 * np.array([run.accuracy for run in runs])
    lost = [label for run in runs for label in run.lost]
    named = ", ".join(f"{label} ({lost.count(label)})" for label in sorted(set(lost))) or "none"
    losing = sum(bool(run.lost) for run in runs)
    spread = f"{accuracy.mean():.2f} ± {accuracy.std(ddof=1):.2f}"
    shown = scale if isinstance(scale, str) else f"{scale:g}"
    return (
        f"| {name} | {method} | {shown} | {spread} | {losing} of {len(runs)} | {named} | "
        f"{datetime.date.today()} |"
    )


def _measure(task: tuple[str, float, int]) -> Found:
    return measure(*task)


def _check(task: tuple[str, str, Scale, int]) -> Checked:
    return check(*task)


def _check_all(seeds: list[tuple[str, str, Scale, int]], jobs: int) -> dict[Start, list[Checked]]:
    checked: dict[Start, list[Checked]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for (*start, _), one in zip(seeds, pool.map(_check, seeds), strict=True):
            checked.setdefault((start[0], start[1], start[2]), []).append(one)
            print(*start, one, flush=True)
    return checked


def _check_missing(
    path: Path, seeds: list[tuple[str, str, Scale, int]], minutes: float
) -> dict[Start, list[Checked]]:
    """Check the seeds that a file of records lacks; return those of the starts asked for."""

    def one(task: tuple[str, str, Scale, int]) -> dict[str, Any]:
        cell = dict(zip(("set", "method", "init_scale", "seed"), task, strict=True))
        return cell | {**_check(task)._asdict(), "date": str(datetime.date.today())}

    planned = ((task, partial(one, task)) for task in seeds)
    found = run_missing(path, planned, _task_of, minutes)
    checked: dict[Start, list[Checked]] = {}
    for record in found:
        name, method, start, _ = task = _task_of(record)
        if task in seeds:
            own = checked.setdefault((name, method, start), [])
            own.append(Checked(record["accuracy"], tuple(record["lost"])))
    return checked


def _task_of(record: dict[str, Any]) -> tuple[str, str, Scale, int]:
    return record["set"], record["method"], record["init_scale"], record["seed"]


def write_start(
    out: Path,
    jobs: int,
    start: Scale | None,
    method: str,
    only: str | None,
    seeds: range,
    records: Path | None,
    minutes: float,
) -> None:
    """Measure everything and replace the part of the page, or add the 40 seeds of one start."""
    if start is not None:
        names = CHECKED if method == OWN else CHECKED[:2]
        names = names if only is None else (only,)
        runs = [(name, method, start, seed) for seed in seeds for name in names]
        if records is None:
            checked = _check_all(runs, jobs)
        else:
            checked = _check_missing(records, runs, minutes)
        write_atomically(out, with_rows(out.read_text(encoding="utf-8"), checked))
        return
    tried = [(n, s, k) for n in SETS for s in CANDIDATES for k in range(SETS[n].repeats)]
    runs = list(product(CHECKED, [OWN], [1.0, 2.0, 3.0, AUTO], seeds))
    found: dict[tuple[str, float], list[Found]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for (name, scale, _), run in zip(tried, pool.map(_measure, tried), strict=True):
            found.setdefault((name, scale), []).append(run)
    write_part(out, TITLE, START, start_part(found, _check_all(runs, jobs)))


def _scale(given: str) -> Scale:
    return AUTO if given == AUTO else float(given)


def main() -> None:
    """Run one part and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["rates", "start"])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seeds", type=int, default=5, help="of the rates")
    parser.add_argument(
        "--method",
        choices=sorted(METHODS | LAYERS),
        help="run the rates of this method alone, or check its start",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes, of the start")
    parser.add_argument("--check", type=_scale, help="add the seeds of this start alone")
    parser.add_argument("--set", choices=CHECKED, help="check the start on this set alone")
    parser.add_argument("--records", type=Path, help="with --check: one line of JSON per seed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no seed later")
    parser.add_argument("--n-seeds", type=int, default=N_SEEDS, help="of the start")
    arguments = parser.parse_args()
    if arguments.check is not None and not arguments.out.exists():
        parser.error(f"--check adds rows to a page, and there is none at {arguments.out}")
    if arguments.part == "rates":
        write_rates(arguments.out, arguments.seeds, arguments.method)
    else:
        method = arguments.method or OWN
        seeds = range(arguments.n_seeds)
        write_start(
            arguments.out,
            arguments.jobs,
            arguments.check,
            method,
            arguments.set,
            seeds,
            arguments.records,
            arguments.minutes,
        )


if __name__ == "__main__":
    main()
