"""Measure the cost of fits: stacking, epochs, self-training, NeuCrowd, Dawid-Skene's default.

``stacking`` fits `CrowdStackingClassifier` to 1,000 to a million instances, and two networks with
their defaults to up to 100,000. ``growth`` fits every classifier for one epoch per
stage with 100,000 instances and 20,000 annotators. ``self-training`` runs a round on CIFAR-10H's
crowd (10,000 images, 2,567 annotators, 10 classes, few annotations); the cube of predicted
annotations would be 257 million numbers. ``neucrowd`` measures the parts of an epoch at Hotel's
size (447 instances, 300 features) and at Syn1's (800, 1,200), on simulated numbers and with the
code that trains: drawing the tuplets (an epoch of the paper's code has 60,000 in batches of 256,
each the hardest of a pool of eight times as many), finding the safe instances, choosing from the
pools, and the updates of both networks. ``dawid-skene`` fits the default and the plain model to the
real tables of benchmarks/aggregation.py, in turn. Every case runs in a process of its own with one
thread; times depend on the machine.
"""

from __future__ import annotations

import cProfile
import os
import platform
import pstats
import time
from pathlib import Path
from typing import Any

import numpy as np

import manyhands
from benchmarks.aggregation import FURTHER
from benchmarks.bars import Bar, bars
from benchmarks.real_tables import TABLES, load, some_of
from evidence.pages.quoted import read_rows
from evidence.study import Part, grid, of_parts, spent
from evidence.tables import Record, listing, table, where
from manyhands import AnnotationTable, DawidSkene, all_classifiers
from manyhands.datasets import load_cifar10h, make_crowd
from manyhands.fitting.method_protocol import flat_defaults, from_flat
from manyhands.sampling import TupletSampler

# -- stacking ------------------------------------------------------------------------------------

STACKING = "CrowdStackingClassifier"
ROWS = {
    STACKING: (1_000, 10_000, 100_000, 1_000_000),
    "CrowdLayerClassifier": (1_000, 10_000, 100_000),
    "CoNALClassifier": (1_000, 10_000, 100_000),
}
FEATURES, CLASSES, ANNOTATORS, GIVEN = 50, 10, 100, 3
NEW_ROWS = 5_000


def crowd_of(
    rng: Any, y: np.ndarray, annotators: int, each: int, wrong: float, classes: int
) -> AnnotationTable:
    """Annotations of instances by distant annotators, of which a share is drawn at random."""
    n = len(y)
    instance = np.repeat(np.arange(n), each)
    first = np.repeat(rng.integers(annotators, size=n), each)
    annotator = (first + np.tile(np.arange(each) * (annotators // each), n)) % annotators
    is_wrong = rng.random(n * each) < wrong
    label = np.where(is_wrong, rng.integers(classes, size=n * each), y[instance])
    sizes = {"n_instances": n, "n_annotators": annotators, "classes": range(classes)}
    return AnnotationTable.from_arrays(instance, annotator, label, **sizes)


def fit_rows(name: str, rows: int) -> Record:
    """Fit a classifier with its defaults to so many rows, in this process."""
    n, load = rows, os.getloadavg()[0]
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=n + NEW_ROWS)
    # Three clusters per class: no linear classifier suffices.
    centres = rng.normal(scale=0.6, size=(3, CLASSES, FEATURES)).astype(np.float32)
    X = rng.standard_normal((n + NEW_ROWS, FEATURES), dtype=np.float32)
    X += centres[rng.integers(3, size=n + NEW_ROWS), y]
    table = crowd_of(rng, y[:n], ANNOTATORS, GIVEN, 0.4, CLASSES)
    model = getattr(manyhands, name)(random_state=0)
    with spent() as cost:
        model.fit(X[:n], table)
    right = float(np.mean(model.predict(X[n:]) == y[n:]))
    return {**cost, "load": load, "cores": os.cpu_count(), "accuracy": right}


# -- growth ---------------------------------------------------------------------------------------

N_INSTANCES, N_ANNOTATORS, N_CLASSES, N_FEATURES, PER_INSTANCE = 100_000, 20_000, 10, 64, 5
BATCH_SIZE = 512
SETTINGS = {"CrowdInGClassifier": {"annotators_per_instance": 8}}
"""Parameters without which a method cannot run at this size."""


def fit_one_epoch(name: str) -> Record:
    """Fit one classifier for one epoch per stage, in this process."""
    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=N_INSTANCES)
    X = rng.standard_normal((N_INSTANCES, N_FEATURES), dtype=np.float32)
    X += rng.standard_normal((N_CLASSES, N_FEATURES), dtype=np.float32)[y]
    table = crowd_of(rng, y, N_ANNOTATORS, PER_INSTANCE, 1 / 3, N_CLASSES)
    cls = dict(all_classifiers())[name]
    accepted = flat_defaults(cls)
    options = {"max_epochs": 1, "batch_size": BATCH_SIZE, "random_state": 0, "device": "cpu"}
    options |= SETTINGS.get(name, {})
    given = {key: value for key, value in options.items() if key in accepted}
    model = cls(**from_flat(cls, given))
    try:
        with spent() as cost:
            model.fit(X, table)
    except ValueError as error:
        return {"failed": str(error)}
    seconds = sum(row["seconds"] for row in model.history_)
    return {**cost, "epoch": seconds, "epochs": len(model.history_)}


# -- self-training ---------------------------------------------------------------------------------

PER_IMAGE = 2
SELECTORS = ("DistributionAwareSelector", "ConfidenceSelector", "RandomSelector")
BASES = ("CrowdLayerClassifier", "TraceRegClassifier", "CoNALClassifier", "DoctorNetClassifier")


def train_one_round(base: str, selector: str) -> Record:
    """Run one round of self-training with a base classifier, in this process."""
    data = load_cifar10h()
    table = some_of(data.annotations, PER_IMAGE)
    model = manyhands.SelfTrainingCrowdClassifier(
        getattr(manyhands, base)(max_epochs=5, device="cpu"),
        getattr(manyhands.sampling, selector)(),
        n_rounds=1,
        n_select=2000,
        random_state=0,
    )
    with spent() as cost:
        model.fit(data.X_train, table)
    training = float(model.history_.column("seconds").sum())
    return {
        "annotators": int((table.annotations_per_annotator() > 0).sum()),
        "added": int(model.history_[1]["n_added"]),
        "training": training,
        "selecting": cost["wall"] - training,
        "cpu": cost["cpu"],
        "before": cost["base"],
        "peak": cost["peak"],
    }


# -- NeuCrowd --------------------------------------------------------------------------------------

SIZES = {"Hotel's size": (447, 300), "Syn1's size": (800, 1200)}
N_TUPLETS, BATCH = 60_000, 256
N_CANDIDATES = 8
N_EPOCHS = 3
N_UPDATES = 60
"""Number of updates that are timed, of the 235 in an epoch."""

UPDATE = "update of the embedding, without a sampling network"


def profile(size: str) -> Record:
    """Return the milliseconds that each part takes per update."""
    import torch

    torch.set_num_threads(1)
    (n, d), rng = SIZES[size], np.random.default_rng(0)
    y = rng.integers(2, size=n)
    X = (rng.normal(size=(n, d)) + 0.2 * y[:, None]).astype(np.float32)
    table = make_crowd(y, n_annotators=7, annotations_per_instance=7, random_state=0)
    per_update = N_TUPLETS / BATCH
    sampler, weights = TupletSampler(y), rng.uniform(0.3, 1, size=n)
    sampler.draw(1000, rng, weights)
    drawing = {}
    for times in (1, N_CANDIDATES):
        started = time.perf_counter()
        sampler.draw(times * N_TUPLETS, rng, weights)
        drawing[times] = 1e3 * (time.perf_counter() - started) / per_update
    _spent(X, table, False)  # torch loads modules at its first step
    plain, chosen = _spent(X, table, False), _spent(X, table, True)
    own = chosen["_learn_hardness"]
    parts = {
        UPDATE: plain["__call__"],
        "drawing its share of 60,000 tuplets": drawing[1],
        "drawing eight times as many": drawing[N_CANDIDATES],
        # The first epoch has no pools.
        "choosing from the pool: fetching and scoring 8 x 256 candidates": (
            (chosen["__call__"] - own - plain["__call__"]) * N_EPOCHS / (N_EPOCHS - 1)
        ),
        "the sampling network's own update": own,
        "its share of finding the safe instances, once in 60,000 tuplets": chosen[
            "_sampling_weights"
        ]
        / per_update,
    }
    return {"parts": parts, "torch": torch.__version__, "machine": platform.machine()}


def _spent(X: Any, table: Any, sampling_network: bool) -> dict[str, float]:
    """Return the milliseconds per call of the functions in ``classifiers/neucrowd.py``."""
    model: Any = manyhands.NeuCrowdClassifier(
        n_tuplets=BATCH * N_UPDATES,
        max_epochs=N_EPOCHS,
        random_state=0,
        protocol=manyhands.NeuCrowdProtocol(
            n_candidates=N_CANDIDATES, sampling_network=sampling_network, C=0.1
        ),
    )
    profiler = cProfile.Profile()
    profiler.runcall(model.fit, X, table)
    return {
        name: 1e3 * total / calls
        for (file, _, name), (calls, _, _, total, _) in pstats.Stats(profiler).stats.items()
        if file.endswith("classifiers/neucrowd.py")
    }


# -- truth inference ------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {
    "max_iter": 20,
    "tol": 0,
    "confusion_prior": None,
    "dependence": 0,
    "accelerate": False,
}
"""Twenty iterations of Dawid and Skene's EM, and nothing else."""
TIMES = 9


TARGET = 2.5
"""Most that the default may cost, in plain fits."""


def fit_both(set: str) -> Record:
    """Fit both models to a real table, in turn: the least CPU time of each, and where it goes."""
    given = load(set).table
    least = np.full(2, np.inf)
    for _ in range(TIMES):
        for number, parameters in enumerate((PLAIN, {})):
            started = time.process_time()
            DawidSkene(**parameters).fit(given)
            least[number] = min(least[number], time.process_time() - started)
    found: Record = {"plain": least[0], "default": least[1], "n_annotations": given.n_annotations}
    found |= {"n_annotators": given.n_annotators, "n_classes": given.n_classes}
    if least[1] > TARGET * least[0]:
        found["why"] = shares_of_default(given)
    return found


def shares_of_default(given: AnnotationTable) -> list[str]:
    """Return how long the default takes on a table, and how its time divides."""
    watch = cProfile.Profile(time.process_time)
    model = DawidSkene().fit(given)
    watch.runcall(lambda: [DawidSkene().fit(given) for _ in range(TIMES)])
    functions = pstats.Stats(watch).stats
    total = sum(own for _, _, own, *_ in functions.values())
    wanted = (("confusion_em", "run"), ("dependence", "measure"), ("dawid_skene", "_read_out"))
    shares = [
        sum(v[3] for (f, _, n), v in functions.items() if Path(f).stem == stem and n == name)
        / total
        for stem, name in wanted
    ]
    shown = [f"{share:.0%}" for share in (*shares, 1 - sum(shares))]
    return [str(len(model.evidence_)), str(model.n_iter_), *shown]


# -- cells and the page ---------------------------------------------------------------------------


def of_stacking() -> list[Record]:
    """List the classifiers and numbers of rows, few rows first."""
    cases = ({"name": name, "rows": n} for name in ROWS for n in ROWS[name])
    return sorted(cases, key=lambda case: case["rows"])


def of_rounds() -> list[Record]:
    """List the bases with the first selector, and the first base with the others."""
    rounds = [(base, SELECTORS[0]) for base in BASES]
    rounds[1:1] = [(BASES[0], selector) for selector in SELECTORS[1:]]
    return [{"base": base, "selector": selector} for base, selector in rounds]


def stacking_page(records: list[Record]) -> dict[str, Any]:
    """A row per classifier and size."""
    rows = []
    for name in ROWS:
        for r in sorted(where(records, name=name), key=lambda r: r["rows"]):
            shown = [r.get("failed", ""), "", "", "", ""]
            if "failed" not in r:
                shown = [f"{r['cpu']:.1f}", f"{r['wall']:.1f}", f"{r['peak']:,.0f}"]
                shown += [f"{r['base']:,.0f}", f"{r['accuracy']:.3f}"]
            rows.append([f"`{name}`", f"{r['rows']:,}", *shown])
    loads = sorted(r["load"] for r in records if "load" in r)
    heads = ["classifier", "instances", "CPU s of fit", "s of fit", "peak MB", "before fit"]
    return {
        "stacking": table([*heads, "accuracy"], rows),
        "load": " to ".join(dict.fromkeys(f"{each:.0f}" for each in (loads[0], loads[-1]))),
        "cores": next(r["cores"] for r in records if "cores" in r),
    }


def growth_page(records: list[Record]) -> dict[str, Any]:
    """A row per classifier."""
    rows = [
        [f"`{r['name']}`", str(r["epochs"]), f"{r['epoch']:.1f}", f"{r['wall']:.1f}",
         f"{r['cpu']:.1f}", f"{r['peak']:,.0f}", f"{r['base']:,.0f}"]
        for r in records if "failed" not in r
    ]  # fmt: skip
    heads = ["classifier", "epochs", "s of training", "s of fit", "CPU s", "peak MB", "before fit"]
    failed = [f"- `{r['name']}`: {r['failed']}" for r in records if "failed" in r]
    return {"growth": [*table(heads, rows), *failed]}


def rounds_page(records: list[Record]) -> dict[str, Any]:
    """A row per base and selector."""
    return {"rounds": listing(records, {
        "around": "`{base}`",
        "selector": "`{selector}`",
        "added": "{added:,.0f}",
        "s, training": "{training:.1f}",
        "s, selecting": "{selecting:.1f}",
        "CPU s": "{cpu:.1f}",
        "peak MB": "{peak:,.0f}",
        "before fit": "{before:,.0f}",
    })}  # fmt: skip


def neucrowd_page(records: list[Record]) -> dict[str, Any]:
    """A row per part of an update."""
    heads = [each for r in records for each in (f"{r['size']}, ms", "share")]
    rows = []
    for part in records[0]["parts"]:
        own = [(r["parts"][part], r["parts"][UPDATE]) for r in records]
        rows.append([part, *(text for v, u in own for text in (f"{v:.2f}", f"{v / u:.0%}"))])
    return {"neucrowd": table(["part", *heads], rows), "first": records[0]}


def dawid_skene_page(records: list[Record]) -> dict[str, Any]:
    """A row per table, and why the default takes long on some."""
    ratios = np.array([r["default"] / r["plain"] for r in records])
    sums = [sum(r[key] for r in records) for key in ("default", "plain")]
    rows = [{**r, "ratio": ratio} for r, ratio in zip(records, ratios, strict=True)]
    columns = {
        "table": "{set}",
        "annotations": "{n_annotations:,}",
        "annotators": "{n_annotators:,}",
        "classes": "{n_classes}",
        "plain": lambda r: f"{1e3 * r['plain']:.0f}",
        "default": lambda r: f"{1e3 * r['default']:.0f}",
        "ratio": "{ratio:.2f}",
    }
    why = ["table", "subtypes tried", "iterations, kept model", "EM", "rho", "read-out", "other"]
    return {
        "dawid_skene": listing(rows, columns),
        "why": table(why, ([r["set"], *r["why"]] for r in records if "why" in r)),
        "ratio": {"median": np.median(ratios), "sum": sums[0] / sums[1], "min": min(ratios),
                  "max": max(ratios)},
        "above": int((ratios > TARGET).sum()),
        "n_tables": len(records),
        "within": int((ratios <= TARGET).sum()),
    }  # fmt: skip


def drawing(page: str) -> str:
    """Draw the seconds of one epoch of every classifier that trained it."""
    found = read_rows(page, "One epoch")
    rows = [
        Bar(r["classifier"], float(r["s of training"]), f"{r['s of training']} s") for r in found
    ]
    return bars("One epoch on 500,000 annotations by 20,000 annotators", rows)


STUDY = of_parts(
    __file__,
    {
        "stacking": Part(fit_rows, stacking_page, of_stacking),
        "growth": Part(
            fit_one_epoch, growth_page, lambda: grid(name=[name for name, _ in all_classifiers()])
        ),
        "self-training": Part(train_one_round, rounds_page, of_rounds),
        "neucrowd": Part(profile, neucrowd_page, lambda: grid(size=SIZES)),
        "dawid-skene": Part(fit_both, dawid_skene_page, lambda: grid(set=(*TABLES, *FURTHER))),
    },
    alone=1800.0,
    data=lambda cell: ["cifar10h"] if cell["part"] == "self-training" else [cell.get("set", "")],
    page_drawings=lambda page: {"costs-epoch.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
