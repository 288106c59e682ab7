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

Parts are rates, start, and seeds (the 40 seeds).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import KFold

import manyhands as mh
from benchmarks.bars import Bar, bars
from evidence.data import make_long_tailed_cifar10h
from evidence.pages.quoted import numbers_in, read_rows
from evidence.scores import codes_of
from evidence.study import Part, folders_of, grid, of_parts
from evidence.tables import Record, groups, mean, spread, table, where
from manyhands import datasets
from manyhands.exceptions import ClassCollapseWarning
from manyhands.fitting.method_protocol import from_flat
from manyhands.fitting.pilots import AUTO

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

METHODS = {cls.__name__: cls for cls in (mh.CrowdLayerClassifier, mh.CoNALClassifier)}


def confusion_error(model: Any, table: Any, y: Any) -> float:
    """Return the mean total variation of learnt and counted rows, weighted by annotations."""
    true = codes_of(y, model.classes_)
    counts = np.zeros_like(model.confusion_)
    np.add.at(counts, (table.annotator, true[table.instance], table.label), 1)
    rows = counts.sum(axis=2, keepdims=True)
    gap = np.abs(counts / np.maximum(rows, 1) - model.confusion_).sum(axis=2, keepdims=True) / 2
    return float((gap * rows).sum() / rows.sum())


# -- the start ------------------------------------------------------------------------------------

CANDIDATES = (1.0, 1.5, 2.0, 3.0)
N_FOLDS = 4


class Set(NamedTuple):
    """A set: its loader, parameters that differ from the defaults, and repeats with new folds."""

    load: Callable[..., Any]
    params: dict[str, Any]
    repeats: int


DASC: dict[str, Any] = {"lr": 1e-3, "weight_decay": 5e-4, "noise_lr": None}
SETS = {
    "LabelMe": Set(datasets.load_labelme, {}, 5),
    "Music": Set(datasets.load_music, {}, 5),
    "Sentiment": Set(datasets.load_sentiment, {"max_epochs": 10, "scaling": None}, 2),
    "Product": Set(datasets.load_product, {"max_epochs": 20}, 2),
    "Colposcopy": Set(datasets.load_colposcopy, {}, 5),
    "Reports": Set(datasets.load_reports, {}, 5),
    "CIFAR-10N": Set(datasets.load_cifar10n, {"max_epochs": 15}, 2),
    "CIFAR10-H": Set(partial(make_long_tailed_cifar10h, random_state=0), {}, 2),
    "LabelMe, DASC": Set(
        datasets.load_labelme, {**DASC, "max_epochs": 25, "batch_size": 512, "scaling": None}, 5
    ),
    "CIFAR10-H, DASC": Set(
        partial(make_long_tailed_cifar10h, random_state=0), {**DASC, "max_epochs": 100}, 1
    ),
}
"""The library's defaults (with fewer epochs on large sets), and DASC's protocols of two sets."""

CHECKED = ("LabelMe", "CIFAR10-H", "LabelMe, DASC")

LAYERS = {
    cls.__name__: cls
    for cls in (
        mh.CrowdLayerClassifier,
        mh.CoNALClassifier,
        mh.CrowdInGClassifier,
        mh.TraceRegClassifier,
    )
}
"""Classifiers with a layer per annotator that have an ``init_scale``."""

OWN = mh.CrowdLayerClassifier.__name__
"""The classifier whose start is chosen; it alone is checked with DASC's protocol."""


@cache
def load(name: str) -> tuple[Any, mh.AnnotationTable]:
    """Load the annotated instances of a set's training part."""
    data = SETS[name].load()
    rows = np.flatnonzero(data.annotations.annotations_per_instance())
    return data.X_train[rows], data.annotations[rows]


def fitted(
    name: str,
    init_scale: float | str,
    seed: int,
    X: Any,
    table: mh.AnnotationTable,
    cls: Any = mh.CrowdLayerClassifier,
) -> Any:
    """Fit a candidate; the classes it loses are counted, not warned about."""
    given = {**SETS[name].params, "init_scale": init_scale}
    model = cls(**from_flat(cls, given), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClassCollapseWarning)
        return model.fit(X, table)


# -- what is measured -----------------------------------------------------------------------------

SETTING = {
    ", ".join(f"`{k}={v}`" for k, v in each.items()) or "defaults": each for each in SETTINGS
}
N_SEEDS = 40


def rates(method: str, setting: str, seed: int) -> Record:
    """Accuracy where nothing is tested, and the error of the confusion matrices."""

    def fit(X: Any, given: mh.AnnotationTable) -> Any:
        cls = METHODS[method]
        return cls(random_state=seed, **from_flat(cls, SETTING[setting])).fit(X, given)

    found: Record = {}
    for name, data in (("labelme", datasets.load_labelme()), ("demo", mh.load_demo())):
        model = fit(data.X_train, data.annotations)
        found[f"{name}_valid"] = float(model.score(data.X_valid, data.y_valid))
        found[f"{name}_error"] = confusion_error(model, data.annotations, data.y_train)
    music = datasets.load_music()
    folds = KFold(3, shuffle=True, random_state=seed).split(music.X_train)
    scores = [
        fit(music.X_train[train], music.annotations[train])
        .score(music.X_train[rest], music.y_train[rest])
        for train, rest in folds
    ]  # fmt: skip
    return found | {"music_folds": float(np.mean(scores))}


def start(set: str, init_scale: float, repeat: int) -> Record:
    """Predict every fold by a model that saw neither its features nor its annotations.

    Agreement with left-out annotations, and the number of classes never predicted for them.
    """
    X, given = load(set)
    place = np.random.default_rng(repeat).permutation(len(given)) % N_FOLDS
    predicted = np.empty(len(given), dtype=np.int64)
    for k in range(N_FOLDS):
        kept, left = np.flatnonzero(place != k), np.flatnonzero(place == k)
        model = fitted(set, init_scale, N_FOLDS * repeat + k, X[kept], given[kept])
        predicted[left] = model.predict_proba(X[left]).argmax(axis=1)
    counts = given.vote_counts()
    agreement = (counts[np.arange(len(given)), predicted] / counts.sum(axis=1)).mean()
    lost = np.setdiff1d(np.flatnonzero(given.mask_of_classes_seen()), predicted)
    return {"agreement": float(agreement), "lost": len(lost)}


def check(set: str, method: str, init_scale: float | str, seed: int) -> Record:
    """Test accuracy, and classes predicted for no training instance.

    Trained on the whole training part; CIFAR10-H draws another crowd with every seed.
    """
    loader = SETS[set].load
    data = loader(random_state=seed) if isinstance(loader, partial) else loader()
    given = data.annotations
    model = fitted(set, init_scale, seed, data.X_train, given, LAYERS[method])
    seen = np.asarray(given.classes)[given.mask_of_classes_seen()]
    lost = np.setdiff1d(seen, model.predict(data.X_train))
    accuracy = float((model.predict(data.X_test) == data.y_test).mean())
    return {"accuracy": accuracy, "lost": lost.tolist()}


def of_seeds() -> Iterator[Record]:
    """Yield the 40 seeds: of Crowd Layer with four starts, of the others with the default."""
    for method in LAYERS:
        scales = [1.0, 2.0, 3.0, AUTO] if method == OWN else [AUTO]
        for name, scale in product(CHECKED if method == OWN else CHECKED[:2], scales):
            for seed in range(N_SEEDS):
                yield {"set": name, "method": method, "init_scale": scale, "seed": seed}


# -- the page -------------------------------------------------------------------------------------


def rates_page(records: list[Record]) -> dict[str, Any]:
    """A row per method and setting."""
    keys = ("labelme_valid", "music_folds", "demo_valid", "labelme_error", "demo_error")
    rows = []
    for method, setting in product(METHODS, SETTING):
        own = where(records, method=method, setting=setting)
        rows.append([method, setting, *(spread([r[k] for r in own], scale=100) for k in keys)])
    heads = ["method", "setting", "LabelMe valid", "Music train folds", "demo valid"]
    return {"rates": table([*heads, "LabelMe confusion error", "demo confusion error"], rows)}


def start_page(records: list[Record]) -> dict[str, Any]:
    """Agreement and classes lost, by candidate and set."""
    found = {}
    for key, form, scale in (("agreement", "{:.2f}", 100), ("lost", "{:.1f}", 1)):
        rows = []
        for candidate in CANDIDATES:
            own = [scale * mean(where(records, set=n, init_scale=candidate), key) for n in SETS]
            rows.append([f"{candidate:g}", *(form.format(v) for v in (*own, np.mean(own)))])
        found[key] = table(["init_scale", *SETS, "mean"], rows)
    return found


def seeds_page(records: list[Record]) -> dict[str, Any]:
    """Accuracy and lost classes of every start."""
    rows = []
    for (name, method, scale), runs in groups(records, "set", "method", "init_scale").items():
        lost = [each for r in runs for each in r["lost"]]
        rows.append([
            name, method, scale if isinstance(scale, str) else f"{scale:g}",
            spread([r["accuracy"] for r in runs], 2, scale=100),
            f"{sum(bool(r['lost']) for r in runs)} of {len(runs)}",
            ", ".join(f"{each} ({lost.count(each)})" for each in sorted(set(lost))) or "none",
            max(r["date"] for r in runs),
        ])  # fmt: skip
    scales = ["1", "2", "3", AUTO]
    rows.sort(key=lambda r: (CHECKED.index(r[0]), [*LAYERS].index(r[1]), scales.index(r[2])))
    heads = ["set", "classifier", "init_scale", "test accuracy", "seeds with a collapsed class"]
    return {"seeds": table([*heads, "collapsed classes (seeds)", "date"], rows)}


def checked_page(records: list[Record]) -> dict[str, Any]:
    """The seeds, only if all starts have them."""
    names = ("set", "method", "init_scale")
    measured = {tuple(r[name] for name in names) for r in records}
    wanted = {tuple(cell[name] for name in names) for cell in of_seeds()}
    return seeds_page(records) if measured >= wanted else {}


def drawing(page: str) -> str:
    """Draw how often a class collapses on CIFAR10-H, by the start of the matrices."""
    rows = []
    for row in read_rows(page, "40 seeds"):
        name = row["classifier"].removesuffix("Classifier")
        if row["set"] == "CIFAR10-H" and name in ("CrowdLayer", "CoNAL"):
            told = row["seeds with a collapsed class"]
            scale = "auto (default)" if row["init_scale"] == AUTO else row["init_scale"]
            count = numbers_in(told)[0]
            rows.append(Bar(f"{name}, init_scale={scale}", count, told, row["init_scale"] == AUTO))
    return bars("Seeds in which a class collapses on CIFAR10-H", rows)


STUDY = of_parts(
    __file__,
    {
        "rates": Part(
            rates, rates_page, lambda: grid(method=METHODS, setting=SETTING, seed=range(1, 6))
        ),
        "start": Part(
            start,
            start_page,
            lambda: (
                {"set": name, "init_scale": scale, "repeat": repeat}
                for name in SETS
                for scale in CANDIDATES
                for repeat in range(SETS[name].repeats)
            ),
        ),
        "seeds": Part(check, checked_page, of_seeds),
    },
    data=lambda cell: folders_of(cell) or ["labelme", "music"],
    page_drawings=lambda page: {"noise_layers-collapsed.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
