"""Seconds per training epoch and peak memory: manyhands, crowd-kit, and a hand-written loop.

Every measurement runs in its own process with one torch thread. Systems are interleaved and
repeated; the tables show medians. Run it with

    python -m benchmarks.epoch_time --out table.md --json figures.json

crowd-kit is optional (``pip install --group bench``); without it its rows say so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

# The parent imports neither numpy nor torch: a child's peak RSS starts from its parent's.

LEARNING_RATE = 1e-3
GAP_WEIGHT = 1e-5
AUXILIARY_HIDDEN = 128
EMBEDDING_DIM = 20
WORKER_SECONDS = 1200
MISSING_PEER = "not installed: pip install --group bench"


@dataclass(frozen=True)
class Problem:
    """Random data of a given size, and the number of epochs to train on it."""

    name: str
    n_instances: int
    n_features: int
    n_annotators: int
    n_classes: int
    votes: tuple[int, int]
    """Fewest and most annotations per instance."""
    warm_up: int
    epochs: int


LABELME = Problem("labelme-size", 1000, 8192, 59, 8, (1, 4), warm_up=2, epochs=6)
GROWTH = Problem("growth", 100_000, 64, 20_000, 10, (5, 5), warm_up=1, epochs=1)


class System(NamedTuple):
    """One row of the tables."""

    key: str
    method: str
    label: str
    runner: str
    options: dict[str, Any] = {}


CL, CONAL = "Crowd Layer", "CoNAL"
FUSED, VOTES = {"fused": True}, {"per_vote": True}
SYSTEMS = (
    System("ours_cl", CL, "**manyhands**, defaults", "ours"),
    System("ours_cl_raw", CL, "**manyhands**, `scaling=None`", "ours", {"scaling": None}),
    System("bare_cl", CL, "loop by hand", "bare"),
    System("bare_cl_fused", CL, "loop by hand, fused Adam", "bare", FUSED),
    System("ck_cl_tasks", CL, "crowd-kit, one row per task", "crowdkit"),
    System("ck_cl_tasks_fused", CL, "crowd-kit, one row per task, fused Adam", "crowdkit", FUSED),
    System("ck_cl_votes", CL, "crowd-kit, one row per vote", "crowdkit", VOTES),
    System(
        "ck_cl_votes_fused",
        CL,
        "crowd-kit, one row per vote, fused Adam",
        "crowdkit",
        VOTES | FUSED,
    ),
    System("ours_conal", CONAL, "**manyhands**, defaults", "ours"),
    System("ours_conal_raw", CONAL, "**manyhands**, `scaling=None`", "ours", {"scaling": None}),
    System("bare_conal", CONAL, "loop by hand", "bare"),
    System("bare_conal_fused", CONAL, "loop by hand, fused Adam", "bare", FUSED),
    System("ck_conal_tasks", CONAL, "crowd-kit, one row per task", "crowdkit"),
    System(
        "ck_conal_tasks_fused", CONAL, "crowd-kit, one row per task, fused Adam", "crowdkit", FUSED
    ),
    System(
        "ck_conal_hidden_fused",
        CONAL,
        "the same, with the hidden layer as input of the gate (a smaller model)",
        "crowdkit",
        {"fused": True, "hidden": True},
    ),
    System("ck_conal_votes", CONAL, "crowd-kit, one row per vote", "crowdkit", VOTES),
    System(
        "ck_conal_votes_fused",
        CONAL,
        "crowd-kit, one row per vote, fused Adam",
        "crowdkit",
        VOTES | FUSED,
    ),
)
REFERENCES = {
    CL: ("ours_cl", "bare_cl", "bare_cl_fused"),
    CONAL: ("ours_conal", "bare_conal", "bare_conal_fused"),
}
GROWTH_KEYS = (
    *("ours_cl", "bare_cl", "bare_cl_fused", "ck_cl_tasks_fused"),
    *("ours_conal", "bare_conal", "bare_conal_fused", "ck_conal_tasks_fused"),
)
SLOW = ("ck_conal_tasks_fused", 128)
"""Left out of the growth case: it takes minutes per epoch, and 512 per batch shows the same."""


# -- one measurement, in its own process ---------------------------------------------------------


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB of 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


class Clock:
    """CPU and wall time of every epoch."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []

    def timed(self, epoch: Callable[[], None]) -> None:
        """Run one epoch and record its times."""
        cpu, wall = time.process_time(), time.perf_counter()
        epoch()
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)


class Data(NamedTuple):
    """Features, and annotations sorted by instance."""

    X: Any
    instance: Any
    annotator: Any
    label: Any


def make_data(problem: Problem, seed: int = 0) -> Data:
    """Make Gaussian classes and annotators who guess a third of the time; no duplicate pairs."""
    import numpy as np

    rng = np.random.default_rng(seed)
    n, c = problem.n_instances, problem.n_classes
    truth = rng.integers(c, size=n)
    X = rng.standard_normal((n, problem.n_features), dtype=np.float32)
    X += rng.standard_normal((c, problem.n_features), dtype=np.float32)[truth]
    low, high = problem.votes
    counts = rng.integers(low, high + 1, size=n)
    instance = np.repeat(np.arange(n), counts)
    nth = np.arange(len(instance)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = rng.integers(problem.n_annotators, size=n)
    stride = rng.integers(1, problem.n_annotators // high, size=n)
    annotator = (first[instance] + nth * stride[instance]) % problem.n_annotators
    wrong = rng.random(len(instance)) < 1 / 3
    label = np.where(wrong, rng.integers(c, size=len(instance)), truth[instance])
    return Data(X, instance, annotator, label)


def run_ours(problem: Problem, data: Data, method: str, batch_size: int, options: Any) -> Any:
    """Time the estimator's own loop: wall time from ``history_``, CPU time between its rows."""
    from manyhands import AnnotationTable, CoNALClassifier, CrowdLayerClassifier
    from manyhands.training import History

    table = AnnotationTable.from_arrays(
        data.instance,
        data.annotator,
        data.label,
        instances=range(problem.n_instances),
        annotators=range(problem.n_annotators),
        classes=range(problem.n_classes),
    )
    stamps: list[float] = []
    append = History.append

    def stamped(self: Any, row: Any) -> None:
        stamps.append(time.process_time())
        append(self, row)

    History.append = stamped  # type: ignore[method-assign]
    estimator = CrowdLayerClassifier if method == CL else CoNALClassifier
    # One learning rate for everything, as in the other systems.
    if "noise_lr" in estimator().get_params():
        options = {"noise_lr": None, **options}
    model = estimator(
        max_epochs=problem.warm_up + problem.epochs,
        batch_size=batch_size,
        lr=LEARNING_RATE,
        weight_decay=0.0,
        device="cpu",
        random_state=0,
        **options,
    )
    base = peak_mb()
    cpu, wall = time.process_time(), time.perf_counter()
    model.fit(data.X, table)
    clock = Clock()
    # The first epoch's CPU time contains the set-up; it is a warm-up epoch and never counted.
    clock.cpu = [math.nan, *(b - a for a, b in pairwise(stamps))]
    clock.wall = model.history_.column("seconds").tolist()
    more = {"fit_cpu": time.process_time() - cpu, "fit_wall": time.perf_counter() - wall}
    return clock, float(model.history_[-1]["nll"]), base, more


def backbone(problem: Problem) -> tuple[Any, Any]:
    """Return the body and the head of the papers' MLP."""
    from torch import nn

    body = nn.Sequential(nn.Linear(problem.n_features, 128), nn.ReLU(), nn.Dropout(0.5))
    return body, nn.Linear(128, problem.n_classes)


def make_adam(modules: Any, fused: bool) -> Any:
    import torch

    parameters = [p for p in modules.parameters() if p.requires_grad]
    return torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=fused or None)


def chunks(order: Any, size: int) -> Iterator[Any]:
    """Cut into batches; a last batch of one row joins the previous one (crowd-kit squeezes it)."""
    stop = len(order)
    while (start := (stop - 1) // size * size) and stop - start == 1:
        yield order[start - size :]
        stop = start - size
    for start in range(0, stop, size):
        yield order[start : min(start + size, stop)]


class Pairs:
    """Find the observed pairs of a batch of instances, in tensors sorted by instance."""

    def __init__(self, data: Data, n_instances: int) -> None:
        import torch

        self.X = torch.from_numpy(data.X)
        self.instance = torch.from_numpy(data.instance)
        self.annotator = torch.from_numpy(data.annotator)
        self.label = torch.from_numpy(data.label)
        self.counts = torch.bincount(self.instance, minlength=n_instances)
        self.start = self.counts.cumsum(0) - self.counts

    def of(self, instances: Any) -> tuple[Any, Any, Any, Any]:
        """Return x, and (row of x, annotator, label) of every annotation."""
        import torch

        counts = self.counts[instances]
        rows = torch.arange(len(instances)).repeat_interleave(counts)
        shift = self.start[instances] - counts.cumsum(0) + counts
        place = torch.arange(len(rows)) + shift[rows]
        return self.X[instances], rows, self.annotator[place], self.label[place]


def train(problem: Problem, n: int, batch_size: int, forward: Any, modules: Any, fused: bool):
    """Run the plain loop; ``forward`` maps row numbers to (nll, regulariser or 0)."""
    import torch

    optimizer = make_adam(modules, fused)
    modules.train()
    clock = Clock()
    last = [math.nan]

    def epoch() -> None:
        # The mean is kept as a tensor and read once per epoch, as a careful loop does.
        total, batches = torch.zeros(()), 0
        for chosen in chunks(torch.randperm(n), batch_size):
            nll, regulariser = forward(chosen)
            optimizer.zero_grad(set_to_none=True)
            (nll + regulariser).backward()
            optimizer.step()
            total, batches = total + nll.detach(), batches + 1
        last[0] = float(total) / batches

    for _ in range(problem.warm_up + problem.epochs):
        clock.timed(epoch)
    return clock, last[0]


def run_bare(problem: Problem, data: Data, method: str, batch_size: int, options: Any) -> Any:
    """Run a careful hand-written loop: the backbone per instance, the layers per observed pair."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    c, r = problem.n_classes, problem.n_annotators
    pairs = Pairs(data, problem.n_instances)
    body, head = backbone(problem)
    modules = nn.ModuleDict({"body": body, "head": head})
    start = 1.0 if method == CL else 2.0
    individual = nn.Parameter(start * torch.eye(c).repeat(r, 1).reshape(r, c * c))
    modules.register_parameter("individual", individual)
    if method == CONAL:
        common = nn.Parameter(start * torch.eye(c))
        modules.register_parameter("common", common)
        auxiliary = nn.Sequential(
            nn.Linear(problem.n_features, AUXILIARY_HIDDEN),
            nn.Linear(AUXILIARY_HIDDEN, EMBEDDING_DIM),
        )
        users = nn.Embedding(r, EMBEDDING_DIM)
        nn.init.uniform_(users.weight, -(r**-0.5), r**-0.5)
        modules.update({"auxiliary": auxiliary, "users": users})

    def through_own_layer(proba: Any, annotator: Any) -> Any:
        kernels = F.embedding(annotator, individual).view(-1, c, c)
        return torch.bmm(proba[:, None, :], kernels)[:, 0]

    def crowd_layer(instances: Any) -> Any:
        x, rows, annotator, label = pairs.of(instances)
        proba = head(body(x)).softmax(1).index_select(0, rows)
        return F.cross_entropy(through_own_layer(proba, annotator), label), 0.0

    def conal(instances: Any) -> Any:
        x, rows, annotator, label = pairs.of(instances)
        proba = head(body(x)).softmax(1)
        v = F.normalize(auxiliary(x), dim=1).index_select(0, rows)
        gate = (F.normalize(users(annotator), dim=1) * v).sum(1, keepdim=True).sigmoid()
        shared = (proba @ common).index_select(0, rows)
        own = through_own_layer(proba.index_select(0, rows), annotator)
        gap = (individual - common.flatten()).norm(dim=1).sum()
        nll = F.cross_entropy(gate * shared + (1 - gate) * own, label)
        return nll, -GAP_WEIGHT * gap

    base = peak_mb()
    forward = crowd_layer if method == CL else conal
    clock, nll = train(
        problem, problem.n_instances, batch_size, forward, modules, options.get("fused", False)
    )
    return clock, nll, base, {}


def run_crowdkit(problem: Problem, data: Data, method: str, batch_size: int, options: Any) -> Any:
    """Run crowd-kit's modules in the same loop.

    They take one row per vote. "One row per task" runs the backbone once per task and repeats its
    output for every vote; CoNAL's gate takes the instance per vote, so there x itself is repeated.
    """
    import torch
    from crowdkit.learning import CoNAL, CrowdLayer
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    c, r = problem.n_classes, problem.n_annotators
    pairs = Pairs(data, problem.n_instances)
    body, head = backbone(problem)
    layer = CrowdLayer(c, r, conn_type="mw") if method == CL else CoNAL(c, r)
    modules = nn.ModuleDict({"body": body, "head": head, "layer": layer})
    per_vote, of_hidden = options.get("per_vote", False), options.get("hidden", False)

    def gather(chosen: Any) -> Any:
        if per_vote:
            x = pairs.X[pairs.instance[chosen]]
            return x, None, pairs.annotator[chosen], pairs.label[chosen]
        return pairs.of(chosen)

    def spread(values: Any, rows: Any) -> Any:
        return values if rows is None else values.index_select(0, rows)

    def forward(chosen: Any) -> Any:
        x, rows, annotator, label = gather(chosen)
        hidden = body(x)
        logits = spread(head(hidden), rows)
        if method == CL:
            return F.cross_entropy(layer(logits.softmax(1), annotator), label), 0.0
        output = layer(spread(hidden if of_hidden else x, rows), logits, annotator)
        difference = layer.annotator_confusion_matrices - layer.common_confusion_matrix
        gap = difference.flatten(1).norm(dim=1).sum()
        return F.cross_entropy(output, label), -GAP_WEIGHT * gap

    with torch.no_grad():  # LazyLinear learns its shape before the optimiser sees it
        forward(torch.arange(2))
    base = peak_mb()
    n = len(data.instance) if per_vote else problem.n_instances
    clock, nll = train(problem, n, batch_size, forward, modules, options.get("fused", False))
    return clock, nll, base, {}


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Do one measurement in this process and return its figures."""
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    problem = Problem(**task["problem"])
    data = make_data(problem)
    system = next(s for s in SYSTEMS if s.key == task["key"])
    run = {"ours": run_ours, "bare": run_bare, "crowdkit": run_crowdkit}[system.runner]
    clock, nll, base, more = run(problem, data, system.method, task["batch_size"], system.options)
    if not math.isfinite(nll):
        raise ArithmeticError(f"{system.key}: the loss is {nll}")
    return {
        "cpu": statistics.median(clock.cpu[problem.warm_up :]),
        "wall": statistics.median(clock.wall[problem.warm_up :]),
        "peak_mb": peak_mb(),
        "before_training_mb": base,
        "nll": nll,
        "n_annotations": len(data.label),
        **more,
    }


# -- many measurements ---------------------------------------------------------------------------


def spawn(task: dict[str, Any]) -> dict[str, Any]:
    """Measure in a fresh process."""
    one = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    )
    done = subprocess.run(
        [sys.executable, __file__, "--worker", json.dumps(task)],
        capture_output=True,
        text=True,
        env={**os.environ, **one, "CUDA_VISIBLE_DEVICES": ""},
        timeout=WORKER_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{task['key']} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of every figure over the repeats, and the spread of the CPU time."""
    summary = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    cpu = [run["cpu"] for run in runs]
    return {**summary, "cpu_min": min(cpu), "cpu_max": max(cpu), "repeats": len(runs)}


def collect(
    problem: Problem, cells: list[tuple[str, int]], repeats: int
) -> dict[str, dict[str, Any]]:
    """Measure (system, batch size) cells, interleaved, in a new order for every repeat."""
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {cell: [] for cell in cells}
    for repeat in range(repeats):
        order = random.Random(repeat).sample(cells, len(cells))
        for i, (key, size) in enumerate(order, 1):
            task = {"problem": asdict(problem), "key": key, "batch_size": size}
            figures = spawn(task)
            runs[key, size].append(figures)
            print(
                f"{problem.name} {repeat + 1}/{repeats} {i}/{len(order)} {key} batch {size}: "
                f"{figures['cpu']:.3f} s CPU, {figures['peak_mb']:.0f} MB",
                file=sys.stderr,
            )
    return {f"{key}@{size}": summarise(found) for (key, size), found in runs.items()}


# -- tables --------------------------------------------------------------------------------------


def add_ratios(cells: dict[str, dict[str, Any]]) -> None:
    """Add CPU time relative to ours and to the loop by hand, of the same method and batch size."""
    for name, cell in cells.items():
        key, size = name.split("@")
        method = next(s.method for s in SYSTEMS if s.key == key)
        for column, reference in zip(
            ("over_ours", "over_bare", "over_bare_fused"), REFERENCES[method], strict=True
        ):
            other = cells.get(f"{reference}@{size}")
            cell[column] = cell["cpu"] / other["cpu"] if other else None


def markdown(part: dict[str, Any], with_peer: bool) -> list[str]:
    cells, keys, sizes = part["cells"], part["keys"], part["batch_sizes"]
    lines = []
    for size in sizes:
        lines += [
            f"\n{size} instances per batch (or {size} votes, if a row is a vote):\n",
            "| method | system | CPU s/epoch (min–max) | wall s/epoch | ÷ ours | ÷ loop by hand "
            "| ÷ it with fused Adam | peak MB | MB from training |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for system in (s for s in SYSTEMS if s.key in keys):
            cell = cells.get(f"{system.key}@{size}")
            if cell is None:
                why = "not measured" if with_peer else MISSING_PEER
                lines.append(f"| {system.method} | {system.label} | {why} " + "| " * 6 + "|")
                continue
            ratios = " | ".join(
                "–" if cell[name] is None else f"{cell[name]:.2f}"
                for name in ("over_ours", "over_bare", "over_bare_fused")
            )
            lines.append(
                f"| {system.method} | {system.label} "
                f"| {cell['cpu']:.3f} ({cell['cpu_min']:.3f}–{cell['cpu_max']:.3f}) "
                f"| {cell['wall']:.3f} | {ratios} | {cell['peak_mb']:.0f} "
                f"| {cell['peak_mb'] - cell['before_training_mb']:.0f} |"
            )
    return lines


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def describe(problem: Problem, annotations: float) -> str:
    return (
        f"{problem.n_instances:,} instances × {problem.n_features:,} features, "
        f"{problem.n_annotators:,} annotators, {problem.n_classes} classes, "
        f"{annotations:,.0f} annotations; median of {problem.epochs} epoch(s) after "
        f"{problem.warm_up} for warm-up."
    )


def dense_check(problem: Problem, cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Compare the memory added by training with one byte per cell of instances × annotators."""
    dense = problem.n_instances * problem.n_annotators / 1e6
    ours = [cell for key, cell in cells.items() if key.startswith("ours")]
    added = max(cell["peak_mb"] - cell["before_training_mb"] for cell in ours)
    peak = max(cell["peak_mb"] for cell in ours)
    return {
        "dense_mb": dense,
        "peak_mb": peak,
        "added_mb": added,
        "passed": peak < dense / 2 and added < dense / 4,
    }


def report(result: dict[str, Any]) -> str:
    """Write the result as Markdown."""
    facts = result["environment"]
    versions = ", ".join(f"{k} {v or 'not installed'}" for k, v in facts["versions"].items())
    lines = [
        f"{facts['date']}; {facts['cpu']}, {facts['cpus']} CPUs, one torch thread; {versions}. "
        f"Medians of {facts['repeats']} repeats, interleaved, each in its own process."
    ]
    for part in result["parts"]:
        problem, cells = Problem(**part["problem"]), part["cells"]
        annotations = next(iter(cells.values()))["n_annotations"]
        lines += [f"\n### {problem.name}\n", describe(problem, annotations)]
        lines += markdown(part, facts["versions"]["crowd-kit"] is not None)
        if check := part.get("dense_check"):
            verdict = "passed" if check["passed"] else "**FAILED**"
            lines.append(
                f"\nCheck that no array has size instances × annotators: {verdict}. At one byte "
                f"per cell, such an array would take {check['dense_mb']:,.0f} MB. Ours peaks at "
                f"{check['peak_mb']:,.0f} MB with interpreter, libraries and data, of which "
                f"training added {check['added_mb']:,.0f} MB (limits: a half, a quarter)."
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="processes per cell (default 5)")
    parser.add_argument("--out", type=Path, help="write the tables here, in Markdown")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument(
        "--quick", action="store_true", help="one repeat, fewer epochs, no crowd-kit in growth"
    )
    parser.add_argument("--only", help="comma-separated system keys, for a closer look")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(json.loads(args.worker))))
        return 0
    repeats, labelme = args.repeats, LABELME
    if repeats < 1:
        parser.error("--repeats must be at least 1")
    if args.quick:
        repeats, labelme = 1, replace(LABELME, warm_up=1, epochs=2)
    known = tuple(system.key for system in SYSTEMS)
    chosen = args.only.split(",") if args.only else known
    if unknown := set(chosen) - set(known):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    peer = version("crowd-kit")
    parts: list[dict[str, Any]] = []
    for problem, every_key, sizes in (
        (labelme, known, (64, 512)),
        (GROWTH, GROWTH_KEYS, (128, 512)),
    ):
        keys = tuple(key for key in every_key if key in chosen)
        grows = problem is GROWTH
        cells = [
            (key, size)
            for size in sizes
            for key in keys
            if (peer or not key.startswith("ck"))
            and not (grows and ((key, size) == SLOW or (args.quick and key.startswith("ck"))))
        ]
        if not cells:
            continue
        # The growth case is slow and mainly about memory, so it has at most three repeats.
        found = collect(problem, cells, min(repeats, 3) if grows else repeats)
        add_ratios(found)
        part = {"problem": asdict(problem), "keys": keys, "batch_sizes": sizes, "cells": found}
        if grows and any(key.startswith("ours") for key in keys):
            part["dense_check"] = dense_check(problem, found)
        parts.append(part)
    names = ("manyhands", "torch", "crowd-kit", "numpy", "scikit-learn")
    result = {
        "environment": {
            "date": datetime.date.today().isoformat(),
            "cpu": cpu_model(),
            "cpus": os.cpu_count(),
            "repeats": repeats,
            "quick": args.quick,
            "versions": {"Python": platform.python_version(), **{n: version(n) for n in names}},
        },
        "parts": parts,
    }
    text = report(result)
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    failed = [p for p in parts if not p.get("dense_check", {"passed": True})["passed"]]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
