"""Choose the rules of ``scaling="auto"`` and ``max_epochs="auto"``, and test what they choose.

The first part looks at training parts alone. Six methods are trained for many epochs under both
scalings, and after every epoch the left-out fold is predicted. A rule for the length sees the votes
on one fold; the epoch it chooses is judged by the votes on the other folds (and, for the reader, by
their gold labels, which chose nothing).

The second part fits the methods with the former and with the present defaults and measures accuracy
on the test parts. It chose nothing.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/suiting_defaults.py --records suiting_defaults.jsonl --out
docs/results/suiting_defaults.md``. What is in the records is not repeated. ``--only fits`` runs
the second part and replaces its tables; ``--only missed`` simulates crowds that often miss a class,
and writes a part of its own: does the rule stop too early there, as agreement does with rounds of
EM?

``--steady FOLDER`` does something else: it compares rules that make the number of epochs jump less,
on the training parts alone, and writes a part of the same page. The curves are kept in the folder.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import ceil
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from pages import part_of, run_missing, table_lines, write_part
from sklearn.base import clone
from sklearn.datasets import make_classification

import manyhands
from evidence import load_data
from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AnnotationTable,
    CoNALClassifier,
    CrowdInGClassifier,
    CrowdLayerClassifier,
    DASCClassifier,
    DawidSkene,
    ICEDClassifier,
    MaxMIGClassifier,
    NeuCrowdClassifier,
    TraceRegClassifier,
    cross_predict,
)
from manyhands.datasets import make_crowd
from manyhands.fitting.length import BEHIND, ENOUGH, N_FOLDS, earliest, limit
from manyhands.io import write_atomically
from manyhands.metrics import paired_z
from manyhands.metrics.vote_shares import row_shares, vote_weights
from manyhands.typing import FloatArray, IntArray

METHODS = {
    "CoNAL": CoNALClassifier(),
    "Crowd Layer": CrowdLayerClassifier(),
    "AggNet": AggNetClassifier(),
    "Max-MIG": MaxMIGClassifier(),
    "TraceReg": TraceRegClassifier(),
    "DL-DS": AggregatedClassifier(DawidSkene()),
}
SETS = {
    "labelme": (3, 100),
    "music": (3, 150),
    "reports": (3, 120),
    "colposcopy": (3, 200),
    "hotel": (3, 120),
    "product": (3, 40),
    "cifar10n": (2, 30),
    "sentiment": (2, 20),
}
"""Set -> folds, and epochs of the curves: some 600 gradient steps, or 20 epochs."""

SYSTEMS = {
    "DASC": DASCClassifier(),
    "ICED": ICEDClassifier(),
    "NeuCrowd": NeuCrowdClassifier(),
    "CrowdInG": CrowdInGClassifier(),
}
OF_SYSTEMS = ("labelme", "reports", "music")
SEEDS_OF_SYSTEMS = range(3)

TESTED = ("labelme", "music", "product", "colposcopy", "reports", "sentiment")
SEEDS = range(5)
WANTED = {"labelme": 86.5, "music": 70.0}
"""Accuracy that CoNAL should reach with the same defaults."""

FITS = "Test accuracy before and after"
MISSING = "Where a class is often missed"
STEADIER = "Steadier lengths"
SCALINGS = ("standard", "rms")
FORMER = {"scaling": "standard", "max_epochs": 50}
STEADY_SETS = ("labelme", "music", "reports", "colposcopy", "product")
STEADY_SEEDS = (0, 1)
MOST = 1500
"""Instances of a set on which steadier rules are compared."""

TITLE = "Defaults that suit the data"
MISSED = (0.3, 0.45, 0.6)
"""Shares of the annotations of one class that name another class instead."""

EPOCHS = 50
"""Given number of epochs, beside which the rule's stands on the simulated crowds."""

OF_MISSED = ("AggNet", "DL-DS")
"""A method whose epochs are rounds of EM, and one whose targets stay."""

STEPS = (100, 200, 300, 400)
BEHINDS = (0.0, 0.25, 0.5, 1.0)


@cache
def data_of(name: str) -> Any:
    """Load a set once."""
    return load_data({"name": name})


@dataclass(frozen=True)
class Simulated:
    """A crowd that misses a class, and what it is judged by."""

    X_train: FloatArray
    annotations: AnnotationTable
    X_test: FloatArray
    y_test: IntArray


def missing_a_class(share: float, seed: int) -> Simulated:
    """Make 600 instances of three classes; the 20 annotators call some of class 1 class 2."""
    X, y = make_classification(
        2600, 20, n_informative=10, n_classes=3, class_sep=1.2, random_state=seed
    )
    rng = np.random.default_rng(seed)
    confusion = np.full((20, 3, 3), 0.075)
    confusion[:, range(3), range(3)] = 0.85
    confusion[:, 1, 2] = np.clip(rng.normal(share, 0.1, 20), 0.05, 0.9)
    confusion[:, 1, 0] = 0.05
    confusion[:, 1, 1] = 0.95 - confusion[:, 1, 2]
    table = make_crowd(
        y[:600], noise=confusion, n_annotators=20, annotations_per_instance=3, random_state=seed
    )
    X = X.astype(np.float32)
    return Simulated(X[:600], table, X[600:], y[600:])


def missed(share: float, method: str, epochs: int | str, seed: int) -> dict[str, Any]:
    """Fit on a simulated crowd; measure accuracy, and recall of the class that is missed."""
    data = missing_a_class(share, seed)
    model = clone(METHODS[method]).set_params(random_state=seed, max_epochs=epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = model.fit(data.X_train, data.annotations).predict(data.X_test)
    right = predicted == data.y_test
    return {
        "kind": "missed",
        "share": share,
        "method": method,
        "epochs": epochs,
        "seed": seed,
        "n_epochs": model.n_epochs_,
        "accuracy": float(right.mean()),
        "recall": float(right[data.y_test == 1].mean()),
    }


# -- the rules ------------------------------------------------------------------------------------


def rules() -> dict[str, Callable[[IntArray, FloatArray, int], int]]:
    """Return the rules: codes (n_epochs, n), vote shares (n, C), steps per epoch -> epoch."""
    found: dict[str, Callable[[IntArray, FloatArray, int], int]] = {
        f"{steps} steps": lambda codes, shares, each, steps=steps: min(
            len(codes), max(1, round(steps / each))
        )
        for steps in STEPS
    }
    for behind in BEHINDS:
        found[f"pilot, earliest with z ≤ {behind:g}"] = lambda codes, shares, each, behind=behind: (
            earliest(codes, shares, behind)
        )
    found["the best of all, on the other folds (oracle)"] = lambda codes, shares, each: 0
    return found


def curve(name: str, method: str, scaling: str) -> dict[str, Any]:
    """Train once per fold; let every rule choose on each fold, and judge it on the others."""
    data, (n_folds, epochs), started = data_of(name), SETS[name], perf_counter()
    table = data.annotations
    model = clone(METHODS[method]).set_params(scaling=scaling, max_epochs=epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_predict(model, data.X_train, table, cv=n_folds, return_epochs=True)
    codes, shares = found.epochs.astype(np.int64), row_shares(vote_weights(table))
    true = table.classes[codes] == np.asarray(data.y_train)
    agreement = shares[np.arange(len(shares)), codes]
    each = ceil(table.n_instances * (1 - 1 / n_folds) / model.batch_size)
    chosen = {}
    for rule, choose in rules().items():
        epochs_of_rule, agreed, right = [], [], []
        for fold in range(n_folds):
            mine, rest = found.folds == fold, found.folds != fold
            there = np.nanmean(agreement[:, rest], axis=1)
            epoch = choose(codes[:, mine], shares[mine], each) or int(there.argmax()) + 1
            epochs_of_rule.append(epoch)
            agreed.append(float(there[epoch - 1]))
            right.append(float(true[epoch - 1, rest].mean()))
        chosen[rule] = [
            float(np.mean(epochs_of_rule)),
            float(np.mean(agreed)),
            float(np.mean(right)),
        ]
    return {
        "kind": "curve",
        "set": name,
        "method": method,
        "scaling": scaling,
        "steps": each,
        "rules": chosen,
        "seconds": perf_counter() - started,
    }


def fitted(name: str, method: str, which: str, seed: int) -> dict[str, Any]:
    """Fit with the former or the present defaults; measure accuracy on the test part."""
    data, started = data_of(name), process_time()
    model = clone({**METHODS, **SYSTEMS}[method]).set_params(random_state=seed)
    if which == "former" and method == "DASC":
        model.set_params(estimator=CrowdLayerClassifier(**FORMER))
    elif which == "former":
        automatic = {name for name, value in model.get_params().items() if value == "auto"}
        model.set_params(**{name: FORMER[name] for name in FORMER if name in automatic})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X_train, data.annotations)
    seconds = process_time() - started
    return {
        "kind": "fit",
        "set": name,
        "method": method,
        "which": which,
        "seed": seed,
        "epochs": model.pretrainer_.n_epochs_ if method == "CrowdInG" else model.n_epochs_,
        "test": float(model.score(data.X_test, data.y_test)),
        "seconds": seconds,
    }


def cells(only: str) -> Iterator[tuple[tuple[Any, ...], Callable[[], dict[str, Any]]]]:
    """Yield the key of each cell and what measures it."""
    *quick, slow = TESTED
    if only == "missed":
        for key in product(SEEDS, MISSED, OF_MISSED, ("auto", EPOCHS)):
            seed, share, method, epochs = key
            yield key, partial(missed, share, method, epochs, seed)
        return
    yield from fits_of(METHODS, quick, SEEDS)
    for name in SETS if only == "all" else ():
        for method in METHODS:
            for scaling in SCALINGS:
                key = ("curve", name, method, scaling)
                yield key, lambda key=key: curve(*key[1:])
    yield from fits_of(SYSTEMS, OF_SYSTEMS, SEEDS_OF_SYSTEMS)
    yield from fits_of(METHODS, [slow], SEEDS)


def fits_of(
    methods: Iterable[str], names: Iterable[str], seeds: Iterable[int]
) -> Iterator[tuple[tuple[Any, ...], Callable[[], dict[str, Any]]]]:
    """Yield the cells of the second part, seed by seed."""
    for name in names:
        for seed in seeds:
            for method in methods:
                for which in ("former", "present"):
                    key = ("fit", name, method, which, seed)
                    yield key, lambda key=key: fitted(*key[1:])


def key_of(cell: dict[str, Any]) -> tuple[Any, ...]:
    """Key of a cell in the records."""
    if cell["kind"] == "missed":
        return cell["seed"], cell["share"], cell["method"], cell["epochs"]
    names = {"fit": ("which", "seed"), "curve": ("scaling",)}[cell["kind"]]
    return (cell["kind"], cell["set"], cell["method"], *(cell[name] for name in names))


# -- steadier lengths -----------------------------------------------------------------------------


def steady_rules() -> dict[str, Callable[[FloatArray, IntArray], int]]:
    """Return rules: agreement (n_epochs, n), fold of every instance -> epoch, from 1."""

    def together(agreement: FloatArray, folds: IntArray, width: float, behind: float) -> int:
        return earliest_of(smoothed(agreement, width), behind)

    def median(agreement: FloatArray, folds: IntArray, width: float, behind: float) -> int:
        curves = smoothed(agreement, width)
        each = [earliest_of(curves[:, folds == fold], behind) for fold in np.unique(folds)]
        return int(np.median(each))

    found = {}
    for name, rule in {"all pilots together": together, "median of the pilots": median}.items():
        for width in (0, 0.1, 0.2):
            shown = f", over {100 * width:.0f} % of the epochs" if width else ""
            for behind in BEHINDS:
                found[f"{name}{shown}, z ≤ {behind:g}"] = partial(rule, width=width, behind=behind)
    return found


def smoothed(agreement: FloatArray, width: float) -> FloatArray:
    """Every instance's mean over neighbouring epochs: at least three, if any."""
    n, half = len(agreement), max(1, int(width * len(agreement)) // 2) if width else 0
    sums = np.vstack([np.zeros_like(agreement[:1]), agreement.cumsum(axis=0)])
    first = np.maximum(np.arange(n) - half, 0)
    end = np.minimum(np.arange(n) + half + 1, n)
    return np.asarray((sums[end] - sums[first]) / (end - first)[:, None])


def earliest_of(agreement: FloatArray, behind: float) -> int:
    """The earliest epoch that is not clearly behind the best."""
    best = agreement[agreement.mean(axis=1).argmax()]
    return 1 + next(k for k, each in enumerate(agreement) if paired_z(best - each) <= behind)


def steady_cell(name: str, method: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train pilots as a fit does; return what every rule chooses, and accuracy by epoch."""
    data = data_of(name)
    rows = np.random.default_rng(0).permutation(len(data.y_train))[:MOST]
    X, table, gold = data.X_train[rows], data.annotations[rows], np.asarray(data.y_train)[rows]
    model = clone(METHODS[method])
    model.set_params(max_epochs=limit(ceil(len(rows) * (1 - 1 / N_FOLDS) / model.batch_size)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_predict(
            model, X, table, cv=N_FOLDS, random_state=seed, return_epochs=True, folder=folder
        )
    shares, codes = row_shares(vote_weights(table)), found.epochs.astype(np.int64)
    seen = (found.folds < ceil(ENOUGH * N_FOLDS / len(rows))) & ~np.isnan(shares[:, 0])
    agreement = shares[np.arange(len(rows)), codes][:, seen]
    right = (table.classes[codes] == gold).mean(axis=1)
    chosen = {name: rule(agreement, found.folds[seen]) for name, rule in steady_rules().items()}
    return {
        "set": name,
        "method": method,
        "seed": seed,
        "chosen": chosen,
        "right": [round(float(each), 6) for each in right],
    }


def steady_part(folder: Path) -> list[str]:
    """Compare the rules: the lines of the page's part."""
    cells = [
        steady_cell(name, method, seed, folder)
        for seed in STEADY_SEEDS
        for name in STEADY_SETS
        for method in METHODS
    ]
    right = {(c["set"], c["method"], c["seed"]): np.array(c["right"]) for c in cells}

    def loss(cell: dict[str, Any], rule: str) -> float:
        own, seed = (cell["set"], cell["method"]), cell["seed"]
        others = np.mean([right[*own, other] for other in STEADY_SEEDS if other != seed], axis=0)
        return float(100 * (others.max() - others[cell["chosen"][rule] - 1]))

    rows = []
    for rule in steady_rules():
        losses = [
            np.mean([loss(cell, rule) for cell in cells if cell["set"] == name])
            for name in STEADY_SETS
        ]
        conal = [c for c in cells if (c["set"], c["method"]) == ("labelme", "CoNAL")]
        rows.append(
            [
                rule,
                f"{np.mean(losses):.2f}",
                *(f"{each:.2f}" for each in losses),
                ", ".join(str(cell["chosen"][rule]) for cell in conal),
                f"{np.mean([loss(cell, rule) for cell in conal]):.2f}",
            ]
        )
    least = min(rows, key=lambda row: float(row[1]))[0]
    heading = ["rule", "mean", *STEADY_SETS, "CoNAL on labelme: epochs", "loss"]
    return [
        "Made by `OMP_NUM_THREADS=1 python benchmarks/suiting_defaults.py --steady FOLDER --out "
        f"docs/results/suiting_defaults.md` on {datetime.date.today()}, manyhands "
        f"{manyhands.__version__}. The number of epochs jumps from seed to seed. Here, pilots are "
        "trained as a fit trains them, on the training parts alone (of Product, "
        f"{MOST:,} instances). Loss against the best epoch (an oracle), in points of gold accuracy "
        f"out of fold, by the curve of the other of {len(STEADY_SEEDS)} seeds: mean of the six "
        "methods. A curve is smoothed by instance, over neighbouring epochs.",
        "",
        f"In use is: all pilots together, z ≤ {BEHIND:g}. Least is lost by: {least}.",
        "",
        *table_lines(heading, rows)[:-1],
    ]


# -- the page -------------------------------------------------------------------------------------


def page(found: list[dict[str, Any]]) -> list[str]:
    """Return the page's lines."""
    curves = [cell for cell in found if cell["kind"] == "curve"]
    names = [name for name in SETS if any(cell["set"] == name for cell in curves)]
    return [
        f"# {TITLE}",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/suiting_defaults.py --records "
        "suiting_defaults.jsonl --out docs/results/suiting_defaults.md` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}.",
        "",
        f"## {FITS}",
        "",
        *fits_part(found),
        "## Scaling",
        "",
        "Vote agreement out of fold of the training parts, in percent, mean of the six methods, at "
        f'the length that the rule in use chooses (z ≤ {BEHIND:g}). `scaling="auto"` takes `rms` '
        "where all values are ≥ 0, the features share a scale, and the typical feature's mean is "
        "at most 1.5 standard deviations. It does not know everything: CIFAR-10N's features are "
        "principal components, for which one scale is better, too.",
        "",
        *scaling_part(curves, names),
        "## Length",
        "",
        "Loss against the best epoch (an oracle), in points, mean of the six methods under the "
        "scaling that `auto` takes: of vote agreement / of gold accuracy, both on folds that the "
        "rule did not see, all in the training parts. Here, a rule sees the votes on one fold. In "
        f"use it sees up to three, on which the same difference has a z up to √3 times as large: "
        f"hence {BEHIND:g} where one fold prefers .25.",
        "",
        *length_part(curves, names),
    ]


def fits_part(found: list[dict[str, Any]]) -> list[str]:
    """Return the lines on test accuracy before and after."""
    fits = [cell for cell in found if cell["kind"] == "fit"]
    conal = {
        name: 100
        * np.mean([c["test"] for c in fits if key_of(c)[1:4] == (name, "CoNAL", "present")])
        for name in WANTED
    }
    reached = ", ".join(
        f"{conal[name]:.1f} on {name} (wanted: {wanted:g}, "
        f"{'reached' if conal[name] >= wanted else 'missed'})"
        for name, wanted in WANTED.items()
    )
    return [
        "Made with `--only fits --records results/benchmarks/suiting_defaults.jsonl` on "
        f"{datetime.date.today()}. Percent, mean ± sd of {len(SEEDS)} seeds, and the mean epochs. "
        f'{fewer(fits)}"Former": `scaling="standard", max_epochs=50`. "Present": `"auto"` for '
        f"both. Test parts chose nothing here. CoNAL with the present defaults is at {reached}.",
        "",
        *before_and_after([cell for cell in fits if cell["method"] in METHODS], METHODS, TESTED),
        f"The other systems, {len(SEEDS_OF_SYSTEMS)} seeds. ICED and NeuCrowd have numbers of "
        "epochs of their own, so only their scaling looks at the data; DASC's base and CrowdInG's "
        "start have both.",
        "",
        *before_and_after([c for c in fits if c["method"] in SYSTEMS], SYSTEMS, OF_SYSTEMS),
    ]


def missed_part(found: list[dict[str, Any]]) -> list[str]:
    """Return the lines on crowds that miss a class."""
    own = [cell for cell in found if cell["kind"] == "missed"]
    rows = []
    for method in OF_MISSED:
        for share in MISSED:
            runs = {
                epochs: sorted(
                    (c for c in own if key_of(c)[1:] == (share, method, epochs)),
                    key=lambda c: c["seed"],
                )
                for epochs in ("auto", EPOCHS)
            }
            gains = [
                100 * (auto["accuracy"] - given["accuracy"])
                for auto, given in zip(*runs.values(), strict=True)
            ]
            rows.append(
                [
                    method,
                    f"{share:.0%}",
                    *(
                        f"{100 * np.mean([c[what] for c in runs[epochs]]):.1f}"
                        for what in ("accuracy", "recall")
                        for epochs in runs
                    ),
                    f"{np.mean(gains):+.1f} ({min(gains):+.1f} to {max(gains):+.1f})",
                    f"{np.mean([c['n_epochs'] for c in runs['auto']]):.0f}",
                ]
            )
    return [
        "Made with `--only missed --records results/benchmarks/suiting_defaults.jsonl` on "
        f"{datetime.date.today()}. Agreement rewards whoever repeats the crowd's shared mistakes, "
        "and so prefers few rounds of EM. An epoch of AggNet is a round of EM, too, and trains the "
        "network at the same time; the targets of DL-DS stay. On simulated crowds (600 instances "
        "of three classes, 20 annotators, 3 annotations per instance), the annotators call a share "
        f"of the instances of class 1 class 2. Mean of {len(SEEDS)} seeds, in per cent, of the "
        f"rule's number of epochs and of {EPOCHS} epochs. *Gain*: of the rule, in points of "
        "accuracy, and its range over seeds.",
        "",
        *table_lines(
            [
                "method",
                "missed",
                "accuracy, auto",
                f"accuracy, {EPOCHS} epochs",
                "recall of class 1, auto",
                f"recall, {EPOCHS} epochs",
                "gain of auto",
                "epochs, auto",
            ],
            rows,
        )[:-1],
    ]


def fewer(fits: list[dict[str, Any]]) -> str:
    """Say which sets have fewer seeds than the others."""
    own = [cell for cell in fits if cell["method"] in METHODS]
    seeds = {name: len({c["seed"] for c in own if c["set"] == name}) for name in TESTED}
    return "".join(
        f"{name.capitalize()} has {count or 'none yet'}, because a fit takes a minute. "
        for name, count in seeds.items()
        if count < len(SEEDS)
    )


def before_and_after(
    fits: list[dict[str, Any]], methods: Iterable[str], names: Sequence[str]
) -> list[str]:
    """Test accuracy of every method on every set."""
    rows = []
    for method in methods:
        for which in ("former", "present"):
            row = [method, which]
            for name in names:
                own = [
                    c for c in fits if (c["set"], c["method"], c["which"]) == (name, method, which)
                ]
                values = [100 * cell["test"] for cell in own]
                spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
                epochs = f" ({np.mean([cell['epochs'] for cell in own]):.0f})" if own else ""
                row.append(f"{np.mean(values):.1f}{spread}{epochs}" if own else "–")
            rows.append(row)
    change = []
    for name in names:
        means = {
            which: np.mean(
                [c["test"] for c in fits if c["set"] == name and c["which"] == which] or [np.nan]
            )
            for which in ("former", "present")
        }
        gain = 100 * (means["present"] - means["former"])
        change.append("–" if np.isnan(gain) else f"{gain:+.1f}")
    seconds = {
        which: {key_of({**c, "which": ""}): c["seconds"] for c in fits if c["which"] == which}
        for which in ("former", "present")
    }
    both = seconds["former"].keys() & seconds["present"].keys()
    ratios = [seconds["present"][key] / seconds["former"][key] for key in both]
    return [
        *table_lines(["method", "defaults", *names], [*rows, ["mean change", "", *change]]),
        f"A fit with the present defaults took {np.median(ratios):.1f} times the CPU seconds "
        "(median), the pilots included.",
        "",
    ]


def in_use(cell: dict[str, Any]) -> bool:
    """Whether a curve has the scaling that ``auto`` takes."""
    return bool(cell["scaling"] == automatic_scaling(cell["set"]))


@cache
def automatic_scaling(name: str) -> str:
    """The scaling that ``auto`` takes on a set."""
    data = data_of(name)
    model = CrowdLayerClassifier(max_epochs=1, random_state=0).fit(data.X_train, data.annotations)
    scale = model.module_.classifier.scaler.scale
    return "rms" if bool((scale == scale[0]).all()) else "standard"


def scaling_part(curves: list[dict[str, Any]], names: list[str]) -> list[str]:
    """Agreement under both scalings."""
    rule = f"pilot, earliest with z ≤ {BEHIND:g}"
    rows = []
    for scaling in SCALINGS:
        row = [scaling]
        for name in names:
            own = [c for c in curves if c["set"] == name and c["scaling"] == scaling]
            mean = 100 * np.mean([cell["rules"][rule][1] for cell in own])
            mark = " (auto)" if automatic_scaling(name) == scaling else ""
            row.append(f"{mean:.1f}{mark}")
        rows.append(row)
    return table_lines(["scaling", *names], rows)


def length_part(curves: list[dict[str, Any]], names: list[str]) -> list[str]:
    """Loss of every rule."""
    best = "the best of all, on the other folds (oracle)"
    rows = []
    for rule in rules():
        losses = []
        for name in names:
            own = [cell for cell in curves if cell["set"] == name and in_use(cell)]
            gaps = [np.subtract(cell["rules"][best], cell["rules"][rule])[1:] for cell in own]
            losses.append(100 * np.mean(gaps, axis=0))
        shown = [f"{agreed:.1f} / {right:.1f}" for agreed, right in losses]
        mean = np.mean(losses, axis=0)
        rows.append([rule, f"{mean[0]:.2f} / {mean[1]:.2f}", *shown])
    return table_lines(["rule", "mean", *names], rows)


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, help="one line of JSON per cell")
    parser.add_argument("--only", choices=["all", "fits", "missed"], default="all")
    parser.add_argument("--steady", type=Path, help="compare steadier rules; keep curves here")
    parser.add_argument("--out", type=Path, help="Markdown file")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell later")
    arguments = parser.parse_args()
    if arguments.steady is not None:
        lines = steady_part(arguments.steady)
        print("\n".join(lines))
        if arguments.out is not None:
            write_part(arguments.out, TITLE, STEADIER, lines)
        return
    if arguments.records is None:
        parser.error("give --records, or --steady")
    found = run_missing(arguments.records, cells(arguments.only), key_of, arguments.minutes)
    if arguments.out is not None and arguments.only == "fits":
        write_part(arguments.out, TITLE, FITS, fits_part(found))
    elif arguments.out is not None and arguments.only == "missed":
        write_part(arguments.out, TITLE, MISSING, missed_part(found))
    elif arguments.out is not None:
        text = arguments.out.read_text(encoding="utf-8") if arguments.out.exists() else ""
        write_atomically(arguments.out, "\n".join(page(found)) + "\n")
        for heading in (STEADIER, MISSING):
            own = part_of(text, heading)
            if own:
                write_part(arguments.out, TITLE, heading, own)


if __name__ == "__main__":
    main()
