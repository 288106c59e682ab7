"""Seconds per training epoch and peak memory: manyhands, crowd-kit, and a hand-written loop.

A cell is a training of a system in a process of its own with one torch thread. Systems take turns,
and ``--seeds 3`` makes three turns; the tables show medians. crowd-kit is optional (``pip install
--group bench``); without it its rows say so. All takes 20 minutes.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bars import Bar, bars
from evidence.study import Study, grid, packages, peak_mb, processor, spent
from evidence.tables import Record, table, where

LEARNING_RATE = 1e-3
GAP_WEIGHT = 1e-5
AUXILIARY_HIDDEN = 128
EMBEDDING_DIM = 20


class Problem(NamedTuple):
    """Random data of a given size, and the number of epochs to train on it."""

    n_instances: int
    n_features: int
    n_annotators: int
    n_classes: int
    votes: tuple[int, int]
    """Fewest and most annotations per instance."""
    warm_up: int
    epochs: int
    batch_sizes: tuple[int, ...]
    most_runs: int


PROBLEMS = {
    "labelme": Problem(1000, 8192, 59, 8, (1, 4), 2, 6, (64, 512), 5),
    "growth": Problem(100_000, 64, 20_000, 10, (5, 5), 1, 1, (128, 512), 3),
}
"""The size of LabelMe; and many annotators, which is slow and mainly about memory."""


class System(NamedTuple):
    """One row of the tables."""

    key: str
    method: str
    label: str
    runner: str
    options: dict[str, Any] = {}


CL, CONAL = "Crowd Layer", "CoNAL"
FUSED, VOTES = {"fused": True}, {"per_vote": True}
SMALLER = "the same, with the hidden layer as input of the gate (a smaller model)"
ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ours_{}": ("**manyhands**, defaults", "ours", {}),
    "ours_{}_raw": ("**manyhands**, `scaling=None`", "ours", {"scaling": None}),
    "bare_{}": ("loop by hand", "bare", {}),
    "bare_{}_fused": ("loop by hand, fused Adam", "bare", FUSED),
    "ck_{}_tasks": ("crowd-kit, one row per task", "crowdkit", {}),
    "ck_{}_tasks_fused": ("crowd-kit, one row per task, fused Adam", "crowdkit", FUSED),
    "ck_{}_hidden_fused": (SMALLER, "crowdkit", FUSED | {"hidden": True}),
    "ck_{}_votes": ("crowd-kit, one row per vote", "crowdkit", VOTES),
    "ck_{}_votes_fused": ("crowd-kit, one row per vote, fused Adam", "crowdkit", VOTES | FUSED),
}
SYSTEMS = tuple(
    System(key.format(short), method, *row)
    for method, short in ((CL, "cl"), (CONAL, "conal"))
    for key, row in ROWS.items()
    if method == CONAL or "hidden" not in key  # Crowd Layer has no gate.
)
LOOPS = ("ours_{}", "bare_{}", "bare_{}_fused")
REFERENCES = {
    m: [key.format(short) for key in LOOPS] for m, short in ((CL, "cl"), (CONAL, "conal"))
}
GROWTH_KEYS = tuple(
    key.format(short) for short in ("cl", "conal") for key in (*LOOPS, "ck_{}_tasks_fused")
)
SLOW = ("ck_conal_tasks_fused", 128)
"""Left out of the growth case: it takes minutes per epoch, and 512 per batch shows the same."""


# -- one measurement, in its own process ---------------------------------------------------------


class Clock:
    """CPU and wall time of every epoch."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []

    def timed(self, epoch: Callable[[], None]) -> None:
        """Run one epoch and record its times."""
        with spent() as cost:
            epoch()
        self.cpu.append(cost["cpu"])
        self.wall.append(cost["wall"])


class Data(NamedTuple):
    """Features, and annotations sorted by instance."""

    X: Any
    instance: Any
    annotator: Any
    label: Any


def make_data(problem: Problem, seed: int = 0) -> Data:
    """Make Gaussian classes and annotators who guess a third of the time; no duplicate pairs."""
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
    from manyhands.fitting.method_protocol import from_flat
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
    options = from_flat(estimator, {"noise_lr": None, **options})
    model = estimator(
        **options,
        max_epochs=problem.warm_up + problem.epochs,
        batch_size=batch_size,
        lr=LEARNING_RATE,
        weight_decay=0.0,
        device="cpu",
        random_state=0,
    )
    with spent() as cost:
        model.fit(data.X, table)
    clock = Clock()
    # The first epoch's CPU time contains the set-up; it is a warm-up epoch and never counted.
    clock.cpu = [math.nan, *(b - a for a, b in pairwise(stamps))]
    clock.wall = model.history_.column("seconds").tolist()
    more = {"fit_cpu": cost["cpu"], "fit_wall": cost["wall"]}
    return clock, float(model.history_[-1]["nll"]), cost["base"], more


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


RUNNERS = {"ours": run_ours, "bare": run_bare, "crowdkit": run_crowdkit}
BY_KEY = {system.key: system for system in SYSTEMS}


def measure(problem: str, system: str, batch_size: int, run: int) -> Record:
    """Train once; median seconds of an epoch, and memory before and at the peak."""
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    size, own = PROBLEMS[problem], BY_KEY[system]
    data = make_data(size)
    clock, nll, base, more = RUNNERS[own.runner](size, data, own.method, batch_size, own.options)
    if not math.isfinite(nll):
        raise ArithmeticError(f"{system}: the loss is {nll}")
    return {
        "cpu": statistics.median(clock.cpu[size.warm_up :]),
        "wall": statistics.median(clock.wall[size.warm_up :]),
        "peak_mb": peak_mb(),
        "before_training_mb": base,
        "nll": nll,
        "n_annotations": len(data.label),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "packages": packages("torch", "crowd-kit", "numpy", "scikit-learn"),
        **more,
    }


def cells(runs: range) -> Iterator[Record]:
    """Yield all systems in turn, as often as there are runs."""
    for run in runs:
        for problem, size in PROBLEMS.items():
            keys = GROWTH_KEYS if problem == "growth" else tuple(BY_KEY)
            sizes = size.batch_sizes if run < size.most_runs else ()
            for cell in grid(problem=[problem], batch_size=sizes, system=keys, run=[run]):
                if problem != "growth" or (cell["system"], cell["batch_size"]) != SLOW:
                    yield cell


# -- tables ---------------------------------------------------------------------------------------

FIGURES = ("cpu", "peak_mb", "before_training_mb")
HEADS = (
    *("method", "system", "CPU s/epoch (min–max)", "÷ ours", "÷ loop", "÷ fused loop"),
    *("peak MB", "from training"),
)
DRAWN = ("ours_conal", "bare_conal_fused", "ck_conal_tasks_fused", "ck_conal_votes_fused")
"""Systems in the picture: CoNAL, each with the faster optimiser."""


def summarise(records: list[Record], problem: str, batch_size: int) -> dict[str, Record]:
    """Medians of every system over its runs, and the extremes of the CPU time."""
    found = {}
    for key in BY_KEY:
        runs = where(records, problem=problem, batch_size=batch_size, system=key)
        if runs := [r for r in runs if "failed" not in r]:
            cpu = [r["cpu"] for r in runs]
            found[key] = {name: statistics.median(r[name] for r in runs) for name in FIGURES}
            found[key] |= {"cpu_min": min(cpu), "cpu_max": max(cpu)}
    return found


def rows(records: list[Record], problem: str, batch_size: int) -> Iterator[list[str]]:
    """Yield the systems of a table; ratios are those to ours and to the loops, of one method."""
    found = summarise(records, problem, batch_size)
    for system in SYSTEMS if problem == "labelme" else [BY_KEY[key] for key in GROWTH_KEYS]:
        start = [system.method, system.label]
        if (own := found.get(system.key)) is None:
            tried = where(records, problem=problem, batch_size=batch_size, system=system.key)
            yield [*start, tried[-1]["failed"] if tried else "not measured", *[""] * 5]
            continue
        others = [found.get(key) for key in REFERENCES[system.method]]
        yield [
            *start, f"{own['cpu']:.3f} ({own['cpu_min']:.3f}–{own['cpu_max']:.3f})",
            *(f"{own['cpu'] / other['cpu']:.2f}" if other else "–" for other in others),
            f"{own['peak_mb']:.0f}", f"{own['peak_mb'] - own['before_training_mb']:.0f}",
        ]  # fmt: skip


def dense_check(records: list[Record]) -> dict[str, Any]:
    """Compare the memory added by training with one byte per cell of instances × annotators."""
    size = PROBLEMS["growth"]
    dense = size.n_instances * size.n_annotators / 1e6
    cells = [summarise(records, "growth", batch_size) for batch_size in size.batch_sizes]
    ours = [own for cell in cells for key, own in cell.items() if key.startswith("ours")]
    added = max(own["peak_mb"] - own["before_training_mb"] for own in ours)
    peak = max(own["peak_mb"] for own in ours)
    holds = peak < dense / 2 and added < dense / 4
    verdict = "passed" if holds else "**FAILED**"
    return {"verdict": verdict, "dense": dense, "peak": peak, "added": added}


def times_of_peers(records: list[Record]) -> dict[str, float]:
    """CPU time of others relative to ours, at the size of LabelMe with small batches."""
    found = summarise(records, "labelme", PROBLEMS["labelme"].batch_sizes[0])
    return {
        f"{short}_{name}": found[key.format(short)]["cpu"] / found[f"ours_{short}"]["cpu"]
        for short in ("cl", "conal")
        for name, key in (("loop", "bare_{}_fused"), ("kit", "ck_{}_tasks_fused"))
    }


def drawing(records: list[Record]) -> str:
    """Draw the CPU time per epoch of CoNAL."""
    found = summarise(records, "labelme", PROBLEMS["labelme"].batch_sizes[0])
    rows = [
        Bar(BY_KEY[key].label.replace("*", ""), own["cpu"], f"{own['cpu']:.2f} s", not k)
        for k, key in enumerate(DRAWN)
        if (own := found.get(key))
    ]
    return bars("CPU seconds per epoch of CoNAL at the size of LabelMe", rows)


def page(records: list[Record]) -> dict[str, Any]:
    """The tables of both sizes, each with two sizes of batches."""
    found: dict[str, Any] = {}
    for problem, size in PROBLEMS.items():
        if own := where(records, problem=problem):
            n = next(r["n_annotations"] for r in own if "failed" not in r)
            found[problem] = {"n": n, **size._asdict()}
            for k, batch_size in enumerate(size.batch_sizes):
                found[f"{problem}_{k}"] = table(HEADS, rows(records, problem, batch_size))
    if records:
        about = next(r for r in reversed(records) if "packages" in r)
        versions = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
        found |= {"processor": about["processor"], "cpus": about["cpus"], "packages": versions}
        found["others"] = times_of_peers(records)
        found["runs"] = 1 + max(r["run"] for r in records)
    if any(r["system"].startswith("ours") for r in where(records, problem="growth")):
        found |= dense_check(records)
    return found


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    seeds=range(5),
    alone=1200.0,
    drawings=lambda records: {"epoch_time-conal.svg": drawing(records)} if records else {},
)


if __name__ == "__main__":
    STUDY.main()
