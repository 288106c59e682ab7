"""Choose the rules of ``scaling="auto"`` and ``max_epochs="auto"``, and test what they choose.

The curves look at training parts alone. Six methods are trained for many epochs under both
scalings, and after every epoch the left-out fold is predicted. A rule for the length sees the votes
on one fold; the epoch it chooses is judged by the votes on the other folds (and, for the reader, by
their gold labels, which chose nothing). Steady rules make the number of epochs jump less; they are
compared on the training parts alone, too.

The fits use the former and the present defaults, and measure accuracy on the test parts. They chose
nothing. The part named missed simulates crowds that often miss a class: does the rule stop too
early there, as agreement does with rounds of EM?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from math import ceil
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_classification

import manyhands as mh
from benchmarks.bars import Row, dots
from evidence import load_data
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import Part, grid, of_parts, spent
from evidence.tables import Record, crossed, groups, mean, spread, table, where
from manyhands.datasets import make_crowd
from manyhands.fitting.pilots import (
    ENOUGH_PREDICTED,
    MOST_BEHIND,
    N_FOLDS,
    earliest,
    n_epochs_of_pilot,
)
from manyhands.metrics import paired_z
from manyhands.metrics.vote_shares import row_shares, vote_weights
from manyhands.typing import FloatArray, IntArray

METHODS = {
    "CoNAL": mh.CoNALClassifier(),
    "Crowd Layer": mh.CrowdLayerClassifier(),
    "AggNet": mh.AggNetClassifier(),
    "Max-MIG": mh.MaxMIGClassifier(),
    "TraceReg": mh.TraceRegClassifier(),
    "DL-DS": mh.AggregatedClassifier(mh.DawidSkene()),
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
    "DASC": mh.DASCClassifier(),
    "ICED": mh.ICEDClassifier(),
    "NeuCrowd": mh.NeuCrowdClassifier(),
    "CrowdInG": mh.CrowdInGClassifier(),
}
OF_SYSTEMS = ("labelme", "reports", "music")
SEEDS_OF_SYSTEMS = range(3)

TESTED = ("labelme", "music", "product", "colposcopy", "reports", "sentiment")
SEEDS = range(5)
WANTED = {"labelme": 86.5, "music": 70.0}
"""Accuracy that CoNAL should reach with the same defaults."""

SCALINGS = ("standard", "rms")
FORMER = {"scaling": "standard", "max_epochs": 50}
STEADY_SETS = ("labelme", "music", "reports", "colposcopy", "product")
STEADY_SEEDS = (0, 1)
MOST = 1500
"""Instances of a set on which steadier rules are compared."""

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


def missing_a_class(share: float, seed: int) -> SimpleNamespace:
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
    return SimpleNamespace(X_train=X[:600], annotations=table, X_test=X[600:], y_test=y[600:])


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


# -- cells ----------------------------------------------------------------------------------------


def missed(share: float, method: str, epochs: int | str, seed: int) -> Record:
    """Fit on a simulated crowd; measure accuracy, and recall of the class that is missed."""
    data = missing_a_class(share, seed)
    model = clone(METHODS[method]).set_params(random_state=seed, max_epochs=epochs)
    predicted = model.fit(data.X_train, data.annotations).predict(data.X_test)
    right = predicted == data.y_test
    recall = float(right[data.y_test == 1].mean())
    return {"n_epochs": model.n_epochs_, "accuracy": float(right.mean()), "recall": recall}


def curve(set: str, method: str, scaling: str) -> Record:
    """Train once per fold; let every rule choose on each fold, and judge it on the others."""
    data, (n_folds, epochs) = data_of(set), SETS[set]
    given = data.annotations
    model = clone(METHODS[method]).set_params(scaling=scaling, max_epochs=epochs)
    found = mh.cross_predict(model, data.X_train, given, cv=n_folds, return_epochs=True)
    codes, shares = found.epochs.astype(np.int64), row_shares(vote_weights(given))
    true = given.classes[codes] == np.asarray(data.y_train)
    agreement = shares[np.arange(len(shares)), codes]
    each = ceil(given.n_instances * (1 - 1 / n_folds) / model.batch_size)
    chosen = {}
    for rule, choose in rules().items():
        judged = []
        for fold in range(n_folds):
            mine, rest = found.folds == fold, found.folds != fold
            there = np.nanmean(agreement[:, rest], axis=1)
            epoch = choose(codes[:, mine], shares[mine], each) or int(there.argmax()) + 1
            judged.append([epoch, there[epoch - 1], true[epoch - 1, rest].mean()])
        chosen[rule] = np.mean(judged, axis=0).tolist()
    return {"steps": each, "rules": chosen, "auto": automatic_scaling(set)}


@cache
def automatic_scaling(name: str) -> str:
    """The scaling that ``auto`` takes on a set."""
    data = data_of(name)
    model = mh.CrowdLayerClassifier(max_epochs=1, random_state=0).fit(
        data.X_train, data.annotations
    )
    scale = np.ravel(model.module_.classifier.scaler.scale)
    return "rms" if bool((scale == scale[0]).all()) else "standard"


def fit(set: str, method: str, which: str, seed: int) -> Record:
    """Fit with the former or the present defaults; measure accuracy on the test part."""
    data = data_of(set)
    model = clone({**METHODS, **SYSTEMS}[method]).set_params(random_state=seed)
    if which == "former" and method == "DASC":
        model.set_params(estimator=mh.CrowdLayerClassifier(**FORMER))
    elif which == "former":
        automatic = [name for name, value in model.get_params().items() if value == "auto"]
        model.set_params(**{name: FORMER[name] for name in FORMER if name in automatic})
    with spent() as cost:
        model.fit(data.X_train, data.annotations)
        right = float(model.score(data.X_test, data.y_test))
    epochs = model.pretrainer_.n_epochs_ if method == "CrowdInG" else model.n_epochs_
    return {"epochs": epochs, "test": right, "seconds": cost["cpu"]}


def steady(set: str, method: str, seed: int) -> Record:
    """Train pilots as a fit does; return what every rule chooses, and accuracy by epoch."""
    data = data_of(set)
    rows = np.random.default_rng(0).permutation(len(data.y_train))[:MOST]
    X, given, gold = data.X_train[rows], data.annotations[rows], np.asarray(data.y_train)[rows]
    model = clone(METHODS[method])
    model.set_params(
        max_epochs=n_epochs_of_pilot(ceil(len(rows) * (1 - 1 / N_FOLDS) / model.batch_size))
    )
    found = mh.cross_predict(model, X, given, cv=N_FOLDS, random_state=seed, return_epochs=True)
    shares, codes = row_shares(vote_weights(given)), found.epochs.astype(np.int64)
    seen = (found.folds < ceil(ENOUGH_PREDICTED * N_FOLDS / len(rows))) & ~np.isnan(shares[:, 0])
    agreement = shares[np.arange(len(rows)), codes][:, seen]
    right = (given.classes[codes] == gold).mean(axis=1)
    chosen = {name: rule(agreement, found.folds[seen]) for name, rule in steady_rules().items()}
    return {"chosen": chosen, "right": [round(float(each), 6) for each in right]}


def fits() -> Iterator[Record]:
    """Yield the fits, seed by seed, Sentiment last."""
    which = ("former", "present")
    *quick, slow = TESTED
    yield from grid(set=quick, seed=SEEDS, method=METHODS, which=which)
    yield from grid(set=OF_SYSTEMS, seed=SEEDS_OF_SYSTEMS, method=SYSTEMS, which=which)
    yield from grid(set=[slow], seed=SEEDS, method=METHODS, which=which)


# -- the page -------------------------------------------------------------------------------------


def before_and_after(
    found: list[Record], methods: Iterable[str], names: Sequence[str], what: str
) -> dict[str, Any]:
    """Test accuracy of every method on every set."""
    own = [r for r in found if r["method"] in methods]
    pairs = [(method, which) for method in methods for which in ("former", "present")]

    def shown(method: str, which: str, name: str) -> str:
        runs = where(own, set=name, method=method, which=which)
        epochs = f" ({mean(runs, 'epochs'):.0f})" if runs else ""
        return spread([100 * r["test"] for r in runs]) + epochs

    def change(name: str) -> str:
        former, present = (
            mean(where(own, set=name, which=which), "test") for which in ("former", "present")
        )
        gain = 100 * (present - former)
        return "–" if np.isnan(gain) else f"{gain:+.1f}"

    rows = [[*pair, *(shown(*pair, name) for name in names)] for pair in pairs]
    rows.append(["mean change", "", *map(change, names)])
    cells = {(r["which"], r["set"], r["method"], r["seed"]): r["seconds"] for r in own}
    both = [key for which, *key in cells if which == "former" and ("present", *key) in cells]
    ratio = np.median([cells["present", *key] / cells["former", *key] for key in both])
    return {what: table(["method", "defaults", *names], rows), f"{what}_ratio": ratio}


def fits_page(found: list[Record]) -> dict[str, Any]:
    """Test accuracy before and after."""
    reached = []
    for name, wanted in WANTED.items():
        own = where(found, set=name, method="CoNAL", which="present")
        value = 100 * np.mean([r["test"] for r in own])
        told = "reached" if value >= wanted else "missed"
        reached.append(f"{value:.1f} on {name} (wanted: {wanted:g}, {told})")
    seeds = {
        n: len({r["seed"] for r in where(found, set=n) if r["method"] in METHODS}) for n in TESTED
    }
    fewer = [
        f"{name.capitalize()} has {n or 'none yet'}, because a fit takes a minute. "
        for name, n in seeds.items()
        if n < len(SEEDS)
    ]
    return {
        "reached": ", ".join(reached),
        "fewer": "".join(fewer),
        **before_and_after(found, METHODS, TESTED, "methods"),
        **before_and_after(found, SYSTEMS, OF_SYSTEMS, "systems"),
    }


def curves_page(curves: list[Record]) -> dict[str, Any]:
    """Agreement under both scalings, and the loss of every rule."""
    names = [name for name in SETS if where(curves, set=name)]
    auto = {name: where(curves, set=name)[0]["auto"] for name in names}
    rule, best = (
        f"pilot, earliest with z ≤ {MOST_BEHIND:g}",
        "the best of all, on the other folds (oracle)",
    )

    def agreement(scaling: str, name: str) -> str:
        values = [c["rules"][rule][1] for c in where(curves, set=name, scaling=scaling)]
        return f"{100 * np.mean(values):.1f}{' (auto)' * (auto[name] == scaling)}"

    def losses(each: str) -> list[str]:
        apart = [
            np.mean([np.subtract(c["rules"][best], c["rules"][each])[1:] for c in own], axis=0)
            for own in (where(curves, set=name, scaling=auto[name]) for name in names)
        ]
        agreed, right = 100 * np.mean(apart, axis=0)
        cells = [f"{100 * a:.1f} / {100 * r:.1f}" for a, r in apart]
        return [each, f"{agreed:.2f} / {right:.2f}", *cells]

    return {
        "scalings": crossed("scaling", SCALINGS, names, agreement),
        "lengths": table(["rule", "mean", *names], map(losses, rules())),
    }


def missed_page(own: list[Record]) -> dict[str, Any]:
    """Crowds that miss a class."""
    rows = []
    for method, share in product(OF_MISSED, MISSED):
        runs = groups(where(own, share=share, method=method), "epochs")
        auto, given = (sorted(runs[k], key=lambda r: r["seed"]) for k in ("auto", EPOCHS))
        gains = [100 * (a["accuracy"] - g["accuracy"]) for a, g in zip(auto, given, strict=True)]
        rows.append([
            method, f"{share:.0%}",
            *(f"{100 * mean(each, 'accuracy'):.1f}" for each in (auto, given)),
            *(f"{100 * mean(each, 'recall'):.1f}" for each in (auto, given)),
            f"{np.mean(gains):+.1f} ({min(gains):+.1f} to {max(gains):+.1f})",
            f"{mean(auto, 'n_epochs'):.0f}",
        ])  # fmt: skip
    heads = ["method", "missed", "accuracy, auto", f"accuracy, {EPOCHS} epochs"]
    heads += ["recall of class 1, auto", f"recall, {EPOCHS} epochs", "gain of auto", "epochs, auto"]
    return {"missed": table(heads, rows)}


def steady_page(cells: list[Record]) -> dict[str, Any]:
    """Compare the steadier rules."""
    right = {(c["set"], c["method"], c["seed"]): np.array(c["right"]) for c in cells}

    def loss(cell: Record, rule: str) -> float:
        own, seed = (cell["set"], cell["method"]), cell["seed"]
        others = np.mean([right[*own, other] for other in STEADY_SEEDS if other != seed], axis=0)
        return float(100 * (others.max() - others[cell["chosen"][rule] - 1]))

    rows, conal = [], where(cells, set="labelme", method="CoNAL")
    for rule in steady_rules():
        losses = [np.mean([loss(c, rule) for c in where(cells, set=n)]) for n in STEADY_SETS]
        shown = [f"{each:.2f}" for each in (np.mean(losses), *losses)]
        epochs = ", ".join(str(cell["chosen"][rule]) for cell in conal)
        rows.append([rule, *shown, epochs, f"{np.mean([loss(c, rule) for c in conal]):.2f}"])
    heading = ["rule", "mean", *STEADY_SETS, "CoNAL on labelme: epochs", "loss"]
    least = min(rows, key=lambda row: float(row[1]))[0]
    return {"least": least, "steady": table(heading, rows)}


def drawing(page: str) -> str:
    """Draw the mean change of the accuracy on every set, and the range over the methods."""
    found = read_rows(page, "Test accuracy")[:-1]
    rows = []
    for name in list(found[0])[2:]:
        former, present = (
            [numbers_in(r[name])[0] for r in found if r["defaults"] == which]
            for which in ("former", "present")
        )
        apart = np.subtract(present, former)
        rows.append(Row(name, {"mean": apart.mean()}, (apart.min(), apart.max())))
    title = "Change of the test accuracy, points: mean of six methods, range"
    return dots(title, rows, target=0)


STUDY = of_parts(
    __file__,
    {
        "fit": Part(fit, fits_page, fits),
        "curve": Part(curve, curves_page, lambda: grid(set=SETS, method=METHODS, scaling=SCALINGS)),
        "missed": Part(
            missed,
            missed_page,
            lambda: grid(seed=SEEDS, share=MISSED, method=OF_MISSED, epochs=("auto", EPOCHS)),
        ),
        "steady": Part(
            steady, steady_page, lambda: grid(seed=STEADY_SEEDS, set=STEADY_SETS, method=METHODS)
        ),
    },
    page_drawings=lambda page: {"suiting_defaults-change.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
