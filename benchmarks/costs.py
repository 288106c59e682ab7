"""What fits cost: stacking, epochs, self-training, NeuCrowd's parts, Dawid-Skene's default.

Run a part, which writes its section of docs/results/costs.md::

    nice -n 10 python benchmarks/costs.py stacking
    python benchmarks/costs.py growth
    MANYHANDS_DATA=... python benchmarks/costs.py self-training
    OMP_NUM_THREADS=1 python benchmarks/costs.py neucrowd
    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/costs.py dawid-skene

``stacking`` fits `CrowdStackingClassifier` to 1,000 to a million instances, and two networks with
their defaults to up to 100,000. ``growth`` fits every classifier for one epoch per
stage with 100,000 instances and 20,000 annotators. ``self-training`` runs a round on CIFAR-10H's
crowd (10,000 images, 2,567 annotators, 10 classes, few annotations); the cube of predicted
annotations would be 257 million numbers, and the exit status is 1 if a case takes more than 2 GB.
Every case of these three runs in its own process with one thread. ``neucrowd`` measures the parts
of an epoch at Hotel's size (447 instances, 300 features) and at Syn1's (800, 1,200), on simulated
numbers and with the code that trains: drawing the tuplets (an epoch of the paper's code has 60,000
in batches of 256, each the hardest of a pool of eight times as many), finding the safe instances,
choosing from the pools, and the updates of both networks. ``dawid-skene`` fits the default and the
plain model to the real tables of benchmarks/aggregation.py, in turn. Figures of one run can be
compared with one another; times depend on the machine.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pages import run_missing

import manyhands
from manyhands import AnnotationTable, DawidSkene, all_classifiers
from manyhands.datasets import load_cifar10h, make_crowd
from manyhands.io import write_atomically
from manyhands.sampling import TupletSampler

OUT = Path("docs/results/costs.md")


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB of 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def spawn(part: str, case: str, limit: float | None = None) -> dict[str, Any]:
    """Measure a case in a new process with one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, __file__, part, "--worker", case]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **threads},
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {limit} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["died"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def made_by(part: str, before: str = "") -> str:
    """Say when a section was made, and by which command."""
    command = f"{before}python benchmarks/costs.py {part}"
    return f"Measured on {datetime.now(UTC):%Y-%m-%d} with `{command}`"


# -- stacking ------------------------------------------------------------------------------------

STACKING = "CrowdStackingClassifier"
ROWS = {
    STACKING: (1_000, 10_000, 100_000, 1_000_000),
    "CrowdLayerClassifier": (1_000, 10_000, 100_000),
    "CoNALClassifier": (1_000, 10_000, 100_000),
}
FEATURES, CLASSES, ANNOTATORS, GIVEN = 50, 10, 100, 3
NEW_ROWS = 5_000
RECORDS = Path("stacking_costs.jsonl")
"""Cases that are done; a killed run goes on where it stopped."""
HALF_AN_HOUR = 1800


def fit_rows(case: str) -> dict[str, Any]:
    """Fit a classifier with its defaults to so many rows, in this process."""
    name, rows = case.split(",")
    n = int(rows)
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=n + NEW_ROWS)
    # Three clusters per class: no linear classifier suffices.
    centres = rng.normal(scale=0.6, size=(3, CLASSES, FEATURES)).astype(np.float32)
    X = rng.standard_normal((n + NEW_ROWS, FEATURES), dtype=np.float32)
    X += centres[rng.integers(3, size=n + NEW_ROWS), y]
    instance = np.repeat(np.arange(n), GIVEN)
    first = np.repeat(rng.integers(ANNOTATORS, size=n), GIVEN)
    annotator = (first + np.tile(np.arange(GIVEN) * (ANNOTATORS // GIVEN), n)) % ANNOTATORS
    wrong = rng.random(n * GIVEN) < 0.4
    label = np.where(wrong, rng.integers(CLASSES, size=n * GIVEN), y[instance])
    table = AnnotationTable.from_arrays(
        instance,
        annotator,
        label,
        n_instances=n,
        n_annotators=ANNOTATORS,
        classes=range(CLASSES),
    )
    model = getattr(manyhands, name)(random_state=0)
    base, cpu, wall = peak_mb(), time.process_time(), time.perf_counter()
    model.fit(X[:n], table)
    found = {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "peak": peak_mb(),
        "base": base,
    }
    return {**found, "accuracy": float(np.mean(model.predict(X[n:]) == y[n:]))}


def measured(name: str, rows: int) -> dict[str, Any]:
    """Measure one classifier and size in a new process."""
    load = os.getloadavg()[0]
    run = spawn("stacking", f"{name},{rows}", HALF_AN_HOUR)
    return {"name": name, "rows": rows, "load": load, **run}


def stacking(records: Path) -> str:
    """Measure every classifier and size that the file of records lacks."""
    cells = [((name, rows), partial(measured, name, rows)) for name in ROWS for rows in ROWS[name]]
    small_first = sorted(cells, key=lambda cell: cell[0][1])
    found = run_missing(records, small_first, lambda record: (record["name"], record["rows"]))
    by_key = {(record["name"], record["rows"]): record for record in found}
    loads = [f"{load:.0f}" for load in sorted(record["load"] for record in found)]
    load = " to ".join(dict.fromkeys((loads[0], loads[-1])))
    lines = [
        "## Crowd-calibrated stacking by number of instances",
        "",
        f"{made_by('stacking', 'nice -n 10 ')}, one thread, a process each; load "
        f"{load} on {os.cpu_count()} cores, so compare CPU seconds.",
        "",
        f"{FEATURES} features, {CLASSES} classes of three clusters each, {ANNOTATORS} annotators, "
        f"{GIVEN} annotations per instance, 40 % of them at random; defaults. Accuracy is that of "
        f"{NEW_ROWS:,} new instances; the clusters are drawn anew for each size, so it compares "
        "classifiers, not sizes. Before the fit, the memory holds the features, the annotations, "
        "and what is imported.",
        "",
        "| classifier | instances | CPU s of fit | s of fit | peak MB | before fit | accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, _ in cells:
        run = by_key[key]
        shown = [run.get("error", ""), "", "", "", ""]
        if "error" not in run:
            times = [f"{run[name]:.1f}" for name in ("cpu", "wall")]
            memory = [f"{run[name]:,.0f}" for name in ("peak", "base")]
            shown = [*times, *memory, f"{run['accuracy']:.3f}"]
        lines.append(f"| `{run['name']}` | {run['rows']:,} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


# -- growth ---------------------------------------------------------------------------------------

N_INSTANCES, N_ANNOTATORS, N_CLASSES, N_FEATURES, PER_INSTANCE = 100_000, 20_000, 10, 64, 5
BATCH_SIZE = 512
SETTINGS = {"CrowdInGClassifier": {"annotators_per_instance": 8}}
"""Parameters without which a method cannot run at this size."""
SECONDS = 60
"""Seconds a fit may take."""


def fit_one_epoch(name: str) -> dict[str, Any]:
    """Fit one classifier for one epoch per stage, in this process."""
    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=N_INSTANCES)
    X = rng.standard_normal((N_INSTANCES, N_FEATURES), dtype=np.float32)
    X += rng.standard_normal((N_CLASSES, N_FEATURES), dtype=np.float32)[y]
    instance = np.repeat(np.arange(N_INSTANCES), PER_INSTANCE)
    step = np.tile(np.arange(PER_INSTANCE) * (N_ANNOTATORS // PER_INSTANCE), N_INSTANCES)
    first = np.repeat(rng.integers(N_ANNOTATORS, size=N_INSTANCES), PER_INSTANCE)
    wrong = rng.random(len(instance)) < 1 / 3
    label = np.where(wrong, rng.integers(N_CLASSES, size=len(instance)), y[instance])
    table = AnnotationTable.from_arrays(
        instance,
        (first + step) % N_ANNOTATORS,
        label,
        n_instances=N_INSTANCES,
        n_annotators=N_ANNOTATORS,
        classes=range(N_CLASSES),
    )
    cls = dict(all_classifiers())[name]
    accepted = cls().get_params()
    options = {"max_epochs": 1, "batch_size": BATCH_SIZE, "random_state": 0, "device": "cpu"}
    options |= SETTINGS.get(name, {})
    model = cls(**{key: value for key, value in options.items() if key in accepted})
    base = peak_mb()
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        model.fit(X, table)
    except ValueError as error:
        return {"error": str(error)}
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "epoch": sum(row["seconds"] for row in model.history_),
        "epochs": len(model.history_),
        "peak": peak_mb(),
        "base": base,
    }


def growth() -> str:
    """Measure every classifier."""
    found = {name: spawn("growth", name, SECONDS) for name, _ in all_classifiers()}
    dense = N_INSTANCES * N_ANNOTATORS / 1e6
    lines = [
        "## One epoch with 20,000 annotators",
        "",
        f"{made_by('growth')}, one thread, a process each.",
        "",
        f"{N_INSTANCES:,} instances of {N_FEATURES} features, {N_ANNOTATORS:,} annotators, "
        f"{N_CLASSES} classes, {N_INSTANCES * PER_INSTANCE:,} annotations; batches of "
        f"{BATCH_SIZE}; defaults otherwise, with `max_epochs=1` (one a phase). "
        + " ".join(
            f"`{name}` has {', '.join(f'`{key}={value}`' for key, value in own.items())}."
            for name, own in SETTINGS.items()
        )
        + " One byte for every "
        f"(instance, annotator) would be {dense:,.0f} MB.",
        "",
        "| classifier | epochs | s of training | s of fit | CPU s | peak MB | before fit |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, run in found.items():
        if "error" in run:
            lines.append(f"| `{name}` | {run['error']} | | | | | |")
            continue
        lines.append(
            f"| `{name}` | {run['epochs']} | {run['epoch']:.1f} | {run['wall']:.1f} | "
            f"{run['cpu']:.1f} | {run['peak']:,.0f} | {run['base']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


# -- self-training ---------------------------------------------------------------------------------

PER_IMAGE = 2
LIMIT_MB = 2000.0
SELECTORS = ("DistributionAwareSelector", "ConfidenceSelector", "RandomSelector")
BASES = ("CrowdLayerClassifier", "TraceRegClassifier", "CoNALClassifier", "DoctorNetClassifier")
CASES = [("CrowdLayerClassifier", selector) for selector in SELECTORS] + [
    (base, SELECTORS[0]) for base in BASES[1:]
]


def train_one_round(case: str) -> dict[str, Any]:
    """Run one round of self-training with a base classifier, in this process."""
    base, selector = case.split(",")
    data = load_cifar10h()
    table = data.annotations
    order = np.random.default_rng(0).permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    place = np.arange(len(order)) - np.searchsorted(table.instance[order], table.instance[order])
    table = table.take(np.sort(order[place < PER_IMAGE]))
    before = peak_mb()
    model = manyhands.SelfTrainingCrowdClassifier(
        getattr(manyhands, base)(max_epochs=5, device="cpu"),
        getattr(manyhands.sampling, selector)(),
        n_rounds=1,
        n_select=2000,
        random_state=0,
    )
    started, cpu = time.perf_counter(), time.process_time()
    model.fit(data.X_train, table)
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    training = float(model.history_.column("seconds").sum())
    return {
        "annotators": int((table.annotations_per_annotator() > 0).sum()),
        "added": int(model.history_[1]["n_added"]),
        "training": training,
        "selecting": wall - training,
        "cpu": cpu,
        "before": before,
        "peak": peak_mb(),
    }


def self_training() -> str:
    """Measure every case; exit if one takes too much memory, or fails."""
    found = {case: spawn("self-training", ",".join(case)) for case in CASES}
    for case, run in found.items():
        if run.get("peak", np.inf) > LIMIT_MB:
            sys.exit(f"{case}: {run}; at most {LIMIT_MB:,.0f} MB are allowed")
    lines = [
        "## One round of self-training with 2,567 annotators",
        "",
        f"{made_by('self-training')}, one thread, a process each.",
        "",
        f"CIFAR-10H with {PER_IMAGE} annotations per image (10,000 images, 20,000 annotations, "
        "2,567 annotators, 10 classes, 256 features); 5 epochs per training, two trainings, 2,000 "
        "annotations added between them. All predicted annotations at once would be 1,027 MB in "
        f"single precision. Limit: {LIMIT_MB:,.0f} MB. *Selecting*: predicting every cell, and "
        "choosing among them. Annotators without any annotation get none.",
        "",
        "| around | selector | added | s, training | s, selecting | CPU s | peak MB | before fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (base, selector), run in found.items():
        lines.append(
            f"| `{base}` | `{selector}` | {run['added']:,.0f} | {run['training']:.1f} | "
            f"{run['selecting']:.1f} | {run['cpu']:.1f} | {run['peak']:,.0f} | "
            f"{run['before']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


# -- NeuCrowd --------------------------------------------------------------------------------------

SIZES = {"Hotel's size": (447, 300), "Syn1's size": (800, 1200)}
N_TUPLETS, BATCH = 60_000, 256
N_CANDIDATES = 8
N_EPOCHS = 3
N_UPDATES = 60
"""Number of updates that are timed, of the 235 in an epoch."""

UPDATE = "update of the embedding, without a sampling network"


def profile(n: int, d: int) -> dict[str, float]:
    """Return the milliseconds that each part takes per update."""
    rng = np.random.default_rng(0)
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
    return {
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


def _spent(X: Any, table: Any, sampling_network: bool) -> dict[str, float]:
    """Return the milliseconds per call of the functions in ``classifiers/neucrowd.py``."""
    model: Any = manyhands.NeuCrowdClassifier(
        n_tuplets=BATCH * N_UPDATES,
        n_candidates=N_CANDIDATES,
        sampling_network=sampling_network,
        max_epochs=N_EPOCHS,
        C=0.1,
        random_state=0,
    )
    profiler = cProfile.Profile()
    profiler.runcall(model.fit, X, table)
    return {
        name: 1e3 * total / calls
        for (file, _, name), (calls, _, _, total, _) in pstats.Stats(profiler).stats.items()
        if file.endswith("classifiers/neucrowd.py")
    }


def neucrowd() -> str:
    """Profile both sizes."""
    import torch

    torch.set_num_threads(1)
    found = {name: profile(*size) for name, size in SIZES.items()}
    names = list(found)
    lines = [
        "## Where NeuCrowd's time goes",
        "",
        f"{made_by('neucrowd', 'OMP_NUM_THREADS=1 ')}, manyhands "
        f"{manyhands.__version__}, torch {torch.__version__}, one thread of {platform.machine()}. "
        "Milliseconds for one update of the embedding (256 tuplets of five, the hardest of a pool "
        "of 8 x 256), and as a share of the update itself. Choosing is what an update takes more "
        "with the sampling network than without, but for that network's own update.",
        "",
        f"| part | {' | '.join(f'{name}, ms | share' for name in names)} |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    for part in next(iter(found.values())):
        cells = [f"{own[part]:.2f} | {own[part] / own[UPDATE]:.0%}" for own in found.values()]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


# -- truth inference ------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {
    "max_iter": 20,
    "tol": 0,
    "confusion_prior": None,
    "dependence": 0,
    "accelerate": False,
}
"""Twenty iterations of Dawid and Skene's EM, and nothing else."""
DEFAULT: dict[str, Any] = {}
TIMES = 9


TARGET = 2.5
"""Most that the default may cost, in plain fits."""


def dawid_skene() -> str:
    """Fit both models to every real table, in turn; keep the least CPU time of each."""
    from aggregation import FURTHER, LOADERS, load

    from manyhands.datasets import AGGREGATION_SETS

    lines, parts, ratios, sums = [], [], [], np.zeros(2)
    for name in (*AGGREGATION_SETS, *LOADERS, *FURTHER):
        table = load(name).table
        least = np.full(2, np.inf)
        for _ in range(TIMES):
            for number, parameters in enumerate((PLAIN, DEFAULT)):
                started = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    DawidSkene(**parameters).fit(table)
                least[number] = min(least[number], time.process_time() - started)
        ratios.append(least[1] / least[0])
        sums += least
        if ratios[-1] > TARGET:
            parts.append(f"| {name} | {shares_of_default(table)} |")
        lines.append(
            f"| {name} | {table.n_annotations:,} | {table.n_annotators:,} | {table.n_classes} | "
            f"{1e3 * least[0]:.0f} | {1e3 * least[1]:.0f} | {ratios[-1]:.2f} |"
        )
    heading = [
        "## Dawid-Skene on real tables: the default against the plain model",
        "",
        f"{made_by('dawid-skene', 'MANYHANDS_DATA=... OMP_NUM_THREADS=1 ')}, manyhands "
        f"{manyhands.__version__}. Milliseconds of CPU time, the least of {TIMES} fits. Plain: "
        f"{', '.join(f'`{k}={v}`' for k, v in PLAIN.items())}. The default adds the prior, "
        "subtypes, the read-out with dependence, and its own stopping rule. Default over plain: "
        f"median {np.median(ratios):.2f}, all tables together {sums[1] / sums[0]:.2f}, from "
        f"{min(ratios):.2f} to {max(ratios):.2f}; above {TARGET} on {len(parts)} of {len(ratios)}. "
        f"So the target of {TARGET} is met in the median, in the sum, and on "
        f"{len(ratios) - len(parts)} tables.",
        "",
        "| table | annotations | annotators | classes | plain | default | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    why = [
        "",
        f"Why tables are above {TARGET}: shares of the default's time. To estimate rho, tables of "
        "up to 5,000 instances are simulated and fitted, however fast the plain fit is. Where "
        "mistakes are found to be correlated, EM runs again with two subtypes. With thousands of "
        "annotators of a few annotations each, all steps on confusion matrices (the prior's "
        "strength, the over-relaxed step) cost as much as those on annotations.",
        "",
        "| table | subtypes tried | iterations, kept model | EM | rho | read-out | other |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*heading, *lines, *why, *parts, ""])


def shares_of_default(table: AnnotationTable) -> str:
    """Cells of a row: what the default does on a table, and how its time divides."""
    watch = cProfile.Profile(time.process_time)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DawidSkene().fit(table)
        watch.runcall(lambda: [DawidSkene().fit(table) for _ in range(TIMES)])
    functions = pstats.Stats(watch).stats
    total = sum(own for _, _, own, *_ in functions.values())
    wanted = (("confusion_em", "run"), ("dependence", "measure"), ("dawid_skene", "_read_out"))
    shares = [
        sum(v[3] for (f, _, n), v in functions.items() if Path(f).stem == stem and n == name)
        / total
        for stem, name in wanted
    ]
    shown = " | ".join(f"{share:.0%}" for share in (*shares, 1 - sum(shares)))
    return f"{len(model.evidence_)} | {model.n_iter_} | {shown}"


# -- the page -------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], str]] = {
    "stacking": lambda: stacking(RECORDS),
    "growth": growth,
    "self-training": self_training,
    "neucrowd": neucrowd,
    "dawid-skene": dawid_skene,
}
WORKERS = {"stacking": fit_rows, "growth": fit_one_epoch, "self-training": train_one_round}


def with_section(page: str, section: str) -> str:
    """Put a section into a page of sections, in the place of the one with its heading."""
    title, *sections = page.split("\n## ")
    heading, own = section.splitlines()[0], section.removeprefix("## ").strip("\n") + "\n"
    headings = [f"## {each.splitlines()[0]}" for each in sections]
    if heading in headings:
        sections[headings.index(heading)] = own
    else:
        sections.append(own)
    return "\n## ".join([title, *(f"{each.rstrip()}\n" for each in sections)])


def main() -> None:
    """Measure a part and write its section; or, in a worker, measure a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(WORKERS[arguments.part](arguments.worker)))
        return
    page = arguments.out.read_text(encoding="utf-8") if arguments.out.exists() else "# Costs\n"
    write_atomically(arguments.out, with_section(page, PARTS[arguments.part]()))
    print(arguments.out)


if __name__ == "__main__":
    main()
