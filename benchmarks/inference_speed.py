"""Time and memory of truth inference: manyhands, crowd-kit, and the floor set by memory access.

Every measurement runs in its own process with one thread. Run it with

    python -m benchmarks.inference_speed --out table.md --json figures.json

Results are added to the JSON as they come, and are not measured again (unless ``--again``), so a
run that was stopped can continue. ``--profile alpha,glad`` adds where our time goes, ``--floor``
how near bare numpy it is; ``--page`` measures nothing and writes the page from the JSON. crowd-kit
is optional (``pip install --group bench``); without it its rows say so. The script needs Linux,
because it reads memory figures from ``/proc``.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import datetime
import json
import math
import platform
import pstats
import random
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.epoch_time import cpu_model, version
from evidence.study import apart
from manyhands.io import write_atomically

# -- Where the time of `inference_speed.py` goes, and the least that bare numpy needs for it


BLOCK = 25_000
"""Annotations that GLAD's arrays hold at a time, so that they stay in the cache."""


def alpha_floor(crowd: dict[str, Any], n_classes: int, _: int) -> Callable[[], Any]:
    """Count the classes of every instance in one array, and list what was counted."""
    import numpy as np

    instance, label = crowd["instance"], crowd["label"]
    size = (int(instance.max()) + 1) * n_classes

    def run() -> Any:
        counts = np.bincount(instance * np.int32(n_classes) + label, minlength=size)
        return counts[np.flatnonzero(counts)]

    return run


def glad_floor(crowd: dict[str, Any], n_classes: int, n_evaluations: int) -> Callable[[], Any]:
    """As many times as the optimiser evaluates: look up, multiply, exp, tanh, sum up twice."""
    import numpy as np

    annotator, instance = crowd["annotator"], crowd["instance"]
    rng = np.random.default_rng(0)
    ability, beta = rng.random(int(annotator.max()) + 1), rng.random(int(instance.max()) + 1)
    blocks = []
    for first in range(0, len(annotator), BLOCK):
        own, start = np.unique(instance[first : first + BLOCK], return_index=True)
        size = np.diff(start, append=len(instance[first : first + BLOCK]))
        blocks.append((annotator[first : first + BLOCK], beta[own], size, start))

    def run() -> None:
        for _ in range(n_evaluations):
            for who, difficulty, size, start in blocks:
                beta = np.repeat(difficulty, size)
                x = ability[who] * beta
                tail, p = np.exp(-np.abs(x)), np.tanh(x)
                tail.sum()
                np.bincount(who, p * beta, len(ability))
                np.add.reduceat(p * x, start)

    return run


FLOORS = {"alpha": alpha_floor, "glad": glad_floor}


def first_and_again(call: Callable[[], Any], times: int = 10) -> dict[str, float]:
    """CPU seconds of the first call and of the best of some more."""
    seconds = []
    for _ in range(times + 1):
        started = time.process_time()
        call()
        seconds.append(time.process_time() - started)
    return {"first": seconds[0], "again": min(seconds[1:])}


def calls_of(call: Callable[[], Any], times: int) -> dict[Any, Any]:
    """Profile some calls: (file, line, function) -> (calls, .., own time, ..)."""
    watch = cProfile.Profile(time.process_time)
    watch.runcall(lambda: [call() for _ in range(times)])
    return pstats.Stats(watch).stats


def profile(call: Callable[[], Any]) -> dict[str, Any]:
    """Seconds, and the six functions with the largest own time in ten profiled calls."""
    found: dict[str, Any] = first_and_again(call)
    functions = calls_of(call, 10)
    total = sum(own for _, _, own, *_ in functions.values())
    parts = sorted(((own / total, name) for (*_, name), (_, _, own, *_) in functions.items()))
    found["parts"] = [[name.strip("<>"), share] for share, name in reversed(parts[-6:])]
    return found


def beside_floor(call: Callable[[], Any]) -> dict[str, Any]:
    """Seconds, and how often an optimiser evaluates its objective in a call (0 without one)."""
    found: dict[str, Any] = first_and_again(call, 3)
    calls = {name: n for (*_, name), (n, *_) in calls_of(call, 1).items()}
    return found | {"evaluations": calls.get("expected", 0)}


# -- page -----------------------------------------------------------------------------------------


def short(value: float | None) -> str:
    """Format with three digits; a dash stands for a missing or zero value."""
    if not value:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def profile_lines(
    profiles: dict[str, Any], labels: dict[str, str], found: dict[str, Any]
) -> Iterator[str]:
    """Yield where our time goes; ``found`` has the figures of all cells."""
    if not profiles:
        return
    yield "\n## Where the time goes\n"
    yield (
        "The tables above time the first call of a process on the annotations. Repeated in the "
        "same process, a call does not wait for memory that the system hands out page by page. "
        "CPU seconds of the first call and of the best of ten more; how often the latter goes "
        "into crowd-kit's time; the functions with the largest own time. Alpha is one pass: it "
        "counts classes in one array (`_counted`) and lists its cells (`nonzero`). On first use, "
        "the system hands out that array and the results, so only first calls miss the target. In "
        "GLAD no function stands out: every step of the optimiser looks up two parameters per "
        "annotation, and takes an exponential, a hyperbolic tangent and sums.\n"
    )
    yield "| annotations | classes | system | first call | again | × ours, again | own time |"
    yield "|---" * 7 + "|"
    for problem, figures in profiles.items():
        key, n, c = re.split("[@x]", problem)
        peer = found.get(f"ck_{problem}", {}).get("cpu")
        ratio = short(peer / figures["again"]) if peer else "–"
        parts = ", ".join(f"`{name}` {share:.0%}" for name, share in figures["parts"])
        yield (
            f"| {int(n):,} | {c} | {labels[key]} | {short(figures['first'])} "
            f"| {short(figures['again'])} | {ratio} | {parts} |"
        )


def floor_lines(
    floors: dict[str, Any], labels: dict[str, str], found: dict[str, Any], targets: dict[str, Any]
) -> Iterator[str]:
    """Yield how near the floor we are; ``targets`` are times crowd-kit's speed, by our key."""
    if not floors:
        return
    yield "\n## How much faster it could be\n"
    yield (
        "The floor is what bare numpy takes for operations that no implementation on numpy can "
        "leave out. For alpha they are one count of (instance, class), and one list of what was "
        "counted. For GLAD they are, in every evaluation by its optimiser, two parameters looked "
        "up per annotation, a product, an exponential, a hyperbolic tangent and sums by annotator "
        "and by instance; the E-steps and the optimiser itself come on top. The floor as a share "
        "of our time is the median of pairs of processes, one after the other, so the load of the "
        "machine hardly matters. *At the floor*: how many times as fast as crowd-kit we would be.\n"
    )
    heads = (
        *("annotations", "classes", "system", "target", "measured", "fastest process"),
        *(
            "floor, first call",
            "floor, again",
            "evaluations",
            "at the floor",
            "share that the target needs",
        ),
    )
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for problem, pairs in floors.items():
        key, n, c = re.split("[@x]", problem)
        first, again = (
            statistics.median(pair["floor"][k] / pair["ours"][k] for pair in pairs)
            for k in ("first", "again")
        )
        peer, ours = found.get(f"ck_{problem}", {}), found.get(problem, {})
        ratio = peer.get("ratio")
        fastest = peer["cpu"] / float(ours["spread"].split("–")[0]) if ratio else None
        needed = targets[key] / (ratio / first) if ratio else None
        cells = (
            *(f"{targets[key]:g} ×", short(ratio), short(fastest), f"{first:.0%}", f"{again:.0%}"),
            short(pairs[0]["ours"]["evaluations"]),
            short(ratio / first) if ratio else "–",
            f"{needed:.0%}" if needed else "–",
        )
        yield f"| {int(n):,} | {c} | {labels[key]} | {' | '.join(cells)} |"
    yield ""
    yield (
        "The last column is how much of our first call the floor would have to be. Alpha with ten "
        "classes would have to do hardly more than count and list, so its target is given up for "
        "first calls; repeated calls meet it (above). GLAD with two classes is so near its target "
        "that processes differ by more, and repeated calls meet it, too."
    )


E5, E6, E7 = ALL = (10**5, 10**6, 10**7)
PER_TASK = 5
SLOW = 60.0
"""CPU seconds from which one measurement is enough."""
MEMORY_LIMIT = 6 * 10**9
"""Bytes a process may allocate."""
SHARD = 100_000
"""Annotations per block of the floor: few enough that the gathered rows stay in the cache."""


# -- what is measured ------------------------------------------------------------------------------


class System(NamedTuple):
    """One row of the tables."""

    key: str
    method: str
    target: str
    """``module:name`` of a class with ``fit``, or of a function."""
    options: dict[str, Any] = {}
    against: str | None = None
    """Key of the row it is compared with, in time and results."""
    sizes: tuple[int, ...] = (E5, E6)
    classes: tuple[int, ...] = (2, 10)
    takes: str = "table"
    shuffled: bool = False

    @property
    def iterations(self) -> int | None:
        """Number of iterations requested, if no stopping rule can end them."""
        return self.options.get("max_iter", self.options.get("n_iter"))

    @property
    def label(self) -> str:
        """The call as written."""
        call = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        module, name = self.target.split(":")
        libraries = {"manyhands": "**manyhands** ", "crowdkit": "crowd-kit ", "__main__": ""}
        library = libraries[module.split(".")[0]]
        return f"{library}`{name}({call})`" + ", shuffled" * self.shuffled


def ours(key: str, method: str, name: str, **more: Any) -> System:
    return System(key, method, f"manyhands.{name}", **more)


def peer(key: str, method: str, name: str, **more: Any) -> System:
    """Return crowd-kit's row, to be compared with our row of that key."""
    return System(f"ck_{key}", method, f"crowdkit.{name}", against=key, takes="frame", **more)


def em(n: int, **more: Any) -> dict[str, Any]:
    return {"max_iter": n, "tol": 0, **more}


def ck(n: int, **more: Any) -> dict[str, Any]:
    """Return options without a stopping rule: at ``tol=0`` crowd-kit stops if its bound falls."""
    return {"n_iter": n, "tol": -math.inf, **more}


DS, COIN, READ = "Dawid-Skene", "One-coin Dawid-Skene", "Reading a data frame"
VOTE, ALPHA = "Majority vote", "Krippendorff's alpha"
OUR_DS, CK_DS = "inference:DawidSkene", "aggregation:DawidSkene"
OUR_COIN, CK_COIN = "inference:OneCoinDawidSkene", "aggregation:OneCoinDawidSkene"
PUBLISHED = {"confusion_prior": None, "dependence": 0, "accelerate": False}
ML = em(20, **PUBLISHED)
ONCE = {"n_restarts": 1, "random_state": 0}
SYSTEMS = (
    System("floor", "The floor", "__main__:gather", {"n_iter": 20}, sizes=ALL, takes="blocks"),
    ours("ds", DS, OUR_DS, options=ML, sizes=ALL),
    ours("ds_shuffled", DS, OUR_DS, options=ML, sizes=ALL, against="ds", shuffled=True),
    peer("ds", DS, CK_DS, options=ck(20), sizes=ALL),
    ours("ds_2", DS, OUR_DS, options=em(2, **PUBLISHED), sizes=(E7,)),
    peer("ds_2", DS, CK_DS, options=ck(2), sizes=(E7,)),
    ours("ds_default", DS, OUR_DS, sizes=ALL, against="ds"),
    ours("coin", COIN, OUR_COIN, options=em(20, prior_strength=0.0, dependence=0)),
    peer("coin", COIN, CK_COIN, options=ck(20)),
    ours("coin_default", COIN, OUR_COIN, against="coin"),
    ours("glad", "GLAD", "inference:GLAD", options=em(2, dependence=0)),
    peer("glad", "GLAD", "aggregation:GLAD", options=ck(2), sizes=(E5,)),
    ours("glad_default", "GLAD", "inference:GLAD", against="glad"),
    ours("mace", "MACE", "inference:MACE", options=em(10, dependence=0, **ONCE)),
    peer("mace", "MACE", "aggregation:MACE", options={"n_iter": 10, **ONCE}),
    ours("mace_default", "MACE", "inference:MACE", options={"random_state": 0}, against="mace"),
    ours("kos", "KOS", "inference:KOS", options=em(20), classes=(2,)),
    peer("kos", "KOS", "aggregation:KOS", options={"n_iter": 20}, classes=(2,)),
    ours("vote", VOTE, "inference:MajorityVote"),
    peer("vote", VOTE, "aggregation:MajorityVote"),
    ours("ibcc", "IBCC", "inference:IBCC", options=em(20, dependence=0)),
    ours("ebcc", "EBCC", "inference:EBCC", options=em(20, **ONCE)),
    ours("alpha", ALPHA, "agreement:krippendorff_alpha"),
    peer("alpha", ALPHA, "metrics.data:alpha_krippendorff"),
    ours("read", READ, "annotations:AnnotationTable.from_frame", sizes=ALL, takes="frame"),
)
BY_KEY = {system.key: system for system in SYSTEMS}


SAME = ("ck_ds", "ck_ds_2", "ds_shuffled", "ck_coin", "ck_alpha")
TARGETS = (  # What, figure, bound, rows, sizes, classes; the worst cell counts.
    ("CPU of crowd-kit's Dawid-Skene, 1e6 × 10 classes", "ratio", 15, ("ck_ds",), (E6,), (10,)),
    ("CPU of crowd-kit's Dawid-Skene, 1e7", "ratio", 8, ("ck_ds", "ck_ds_2"), (E7,), (2, 10)),
    ("CPU of `DawidSkene()`, 1e6", "cost", 1.5, ("ds_default",), (E6,), (2, 10)),
    ("memory of Dawid-Skene, sorted", "bytes", 40, ("ds",), (E6, E7), (2, 10)),
    ("memory of Dawid-Skene, shuffled", "bytes", 40, ("ds_shuffled",), (E6, E7), (2, 10)),
    ("CPU of crowd-kit's GLAD", "ratio", 500, ("ck_glad",), ALL, (2, 10)),
    ("CPU of crowd-kit's MACE", "ratio", 10, ("ck_mace",), ALL, (2, 10)),
    ("CPU of crowd-kit's one-coin Dawid-Skene", "ratio", 10, ("ck_coin",), ALL, (2, 10)),
    ("CPU of crowd-kit's KOS", "ratio", 10, ("ck_kos",), ALL, (2,)),
    ("CPU of crowd-kit's Krippendorff's alpha", "ratio", 100, ("ck_alpha",), ALL, (2, 10)),
    ("Dawid-Skene, one-coin, alpha: equal results", "equal", 1, SAME, ALL, (2, 10)),
)
BOUNDS = {
    "ratio": "≥ {} × ours",
    "cost": "≤ {} × 20 iterations of the published model",
    "bytes": "≤ {} bytes per annotation",
    "equal": "{}",
}
MOST = ("bytes", "cost")
"""Figures of which the greatest counts."""
COSTS = Path(__file__).parents[1] / "docs" / "results" / "costs.md"
REAL = "Dawid-Skene on real tables: the default against the plain model"
"""The part of that page with the ratios on real tables (``costs.py dawid-skene``)."""
REAL_BOUND = 2.5


# -- one measurement, in its own process -----------------------------------------------------------


def make_crowd(n_annotations: int, n_classes: int, seed: int = 0) -> dict[str, Any]:
    """Draw five distinct annotators per task, of accuracy Beta(5, 2), 15 % guessing."""
    import numpy as np

    rng = np.random.default_rng(seed)
    n_tasks, n_annotators = n_annotations // PER_TASK, max(n_annotations // 500, 2 * PER_TASK)
    prior = np.linspace(1, 2, n_classes)
    truth = rng.choice(n_classes, size=n_tasks, p=prior / prior.sum())
    annotator = rng.integers(n_annotators, size=(n_tasks, PER_TASK))
    while (again := np.flatnonzero((np.diff(np.sort(annotator)) == 0).any(axis=1))).size:
        annotator[again] = rng.integers(n_annotators, size=(again.size, PER_TASK))
    accuracy = rng.beta(5, 2, size=n_annotators)
    accuracy[rng.random(n_annotators) < 0.15] = 1 / n_classes
    wrong = rng.random(annotator.shape) >= accuracy[annotator]
    label = (truth[:, None] + wrong * rng.integers(1, n_classes, size=wrong.shape)) % n_classes
    return {
        "instance": np.repeat(np.arange(n_tasks, dtype=np.int32), PER_TASK),
        "annotator": annotator.ravel().astype(np.int32),
        "label": label.ravel().astype(np.int16),
    }


def as_table(crowd: dict[str, Any], n_classes: int) -> Any:
    """Make a table straight from the codes: looking up ids would leave freed memory behind."""
    import numpy as np

    from manyhands import AnnotationTable

    sizes = (crowd["instance"].max() + 1, crowd["annotator"].max() + 1, n_classes)
    return AnnotationTable(*crowd.values(), *map(np.arange, sizes))


def as_frame(crowd: dict[str, Any], n_classes: int) -> Any:
    """Make crowd-kit's input, with pandas' own integers."""
    import pandas as pd

    columns = zip(("task", "worker", "label"), crowd.values(), strict=True)
    return pd.DataFrame({name: values.astype("int64") for name, values in columns})


def as_blocks(crowd: dict[str, Any], n_classes: int) -> Any:
    """Make a table of log confusions, (R * K, C), and the row that every annotation needs."""
    import numpy as np

    rows = crowd["annotator"] * np.int32(n_classes) + crowd["label"]
    table = np.random.default_rng(0).random((int(rows.max()) + 1, n_classes))
    return table, [rows[first : first + SHARD] for first in range(0, len(rows), SHARD)]


PREPARE = {"table": as_table, "frame": as_frame, "blocks": as_blocks}


def gather(blocks: Any, n_iter: int) -> None:
    """Look up the row of every annotation with numpy, ``n_iter`` times."""
    import numpy as np

    table, parts = blocks
    out = np.empty((SHARD, table.shape[1]))
    for _ in range(n_iter):
        for rows in parts:
            np.take(table, rows, axis=0, out=out[: len(rows)], mode="clip")


def find(system: System) -> Callable[[Any], Any]:
    """Return the measured function, which takes the prepared annotations."""
    module, name = system.target.split(":")
    target = attrgetter(name)(import_module(module))
    if isinstance(target, type):
        return lambda data: target(**system.options).fit(data)
    return lambda data: target(data, **system.options)


def outcome(fitted: Any) -> Any:
    """Return the labels in the order of the tasks, or a single result, as an array."""
    import numpy as np

    labels = getattr(fitted, "labels_", fitted)
    return np.asarray(labels.sort_index() if hasattr(labels, "sort_index") else labels)


def resident(name: str) -> int:
    """Return the resident bytes of this process now (``VmRSS``) or at their peak (``VmHWM``)."""
    return 1024 * int(re.findall(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def measure(system: System, n_classes: int, path: str) -> dict[str, Any]:
    """Fit once; return CPU seconds, memory growth and share of results equal to the reference."""
    import numpy as np

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    with np.load(path) as file:
        crowd = dict(file)
    if system.shuffled:
        order = np.random.default_rng(0).permutation(len(crowd["label"]))
        crowd = {name: column[order] for name, column in crowd.items()}
        del order
    run, prepare = find(system), PREPARE[system.takes]
    # Imports in a first call are not part of the cost of annotations.
    run(prepare(make_crowd(1000, n_classes), n_classes))
    data = prepare(crowd, n_classes)
    ctypes.CDLL(None).malloc_trim(0)  # The fit could reuse freed memory unnoticed.
    Path("/proc/self/clear_refs").write_text("5")  # Resets VmHWM to VmRSS.
    before, cpu = resident("VmRSS"), time.process_time()
    fitted = run(data)
    figures = {"cpu": time.process_time() - cpu}
    figures["bytes"] = (resident("VmHWM") - before) / len(crowd["label"])
    done = getattr(fitted, "n_iter_", len(getattr(fitted, "loss_history_", ())))
    figures["iterations"] = int(done) or system.iterations or 0
    if system.against:
        result, reference = outcome(fitted), BY_KEY[system.against]
        del fitted, data
        expected = outcome(find(reference)(PREPARE[reference.takes](crowd, n_classes)))
        figures["equal"] = float(np.isclose(result, expected, rtol=1e-9, atol=0).mean())
    return figures


def profiled(task: dict[str, Any]) -> dict[str, Any]:
    """Profile a system, or time it beside its floor, or time the floor."""
    n_classes, key = task["n_classes"], task["profile"]
    run, prepare = find(BY_KEY[key]), PREPARE[BY_KEY[key].takes]
    small, crowd = make_crowd(1000, n_classes), make_crowd(task["n_annotations"], n_classes)
    if task["how"] == "floor":
        FLOORS[key](small, n_classes, 1)()
        return first_and_again(FLOORS[key](crowd, n_classes, task["evaluations"]), 3)
    run(prepare(small, n_classes))
    data = prepare(crowd, n_classes)
    return {"parts": profile, "beside": beside_floor}[task["how"]](lambda: run(data))


def work(task: dict[str, Any]) -> dict[str, Any]:
    """Do a child's task: make the annotations of a problem, or measure a system on them."""
    if "profile" in task:
        return profiled(task)
    if "key" in task:
        return measure(BY_KEY[task["key"]], task["n_classes"], task["path"])
    import numpy as np

    np.savez(task["path"], **make_crowd(task["n_annotations"], task["n_classes"]))
    return {}


# -- many measurements -----------------------------------------------------------------------------


def spawn(limit: float | None = None, **task: Any) -> dict[str, Any]:
    """Do a task in a fresh process; if it fails, the result has the reason under "failed"."""
    return apart(["-m", "benchmarks.inference_speed", "--worker", json.dumps(task)], limit)


def collect(
    chosen: list[System], n: int, c: int, cells: dict[str, Any], args: Any
) -> Iterator[str]:
    """Add the missing runs of one problem, interleaved; yield a line for each."""
    wanted = [system for system in chosen if n in system.sizes and c in system.classes]
    if args.again:
        for system in wanted:
            cells.pop(f"{system.key}@{n}x{c}", None)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "crowd.npz"))
        for repeat in range(args.repeats):
            for system in random.Random(repeat).sample(wanted, len(wanted)):
                cell = cells.setdefault(f"{system.key}@{n}x{c}", {"runs": []})
                slow = any(run["cpu"] > SLOW for run in cell["runs"])
                if "failed" in cell or slow or len(cell["runs"]) > repeat:
                    continue
                if not Path(path).exists():
                    spawn(path=path, n_annotations=n, n_classes=c)
                figures = spawn(args.limit, key=system.key, path=path, n_classes=c)
                if "failed" in figures:
                    cell |= figures
                else:
                    cell["runs"].append(figures)
                yield f"{system.key}@{n}x{c}: {figures}"


# -- tables ----------------------------------------------------------------------------------------


def summarise(cells: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the medians of every cell's runs, its nanoseconds, and its ratios to other cells."""
    found = {}
    for name, cell in cells.items():
        if runs := cell["runs"]:
            found[name] = {k: statistics.median(run[k] for run in runs) for k in runs[0]}
            cpu = [run["cpu"] for run in runs]
            found[name]["spread"] = "–".join(map(short, sorted({min(cpu), max(cpu)})))
            key, n, _ = re.split("[@x]", name)
            # A default fit may consist of several fits: `iterations` would count only one of them.
            if BY_KEY[key].iterations or not found[name]["iterations"]:
                passes = found[name]["iterations"] or 1
                found[name]["ns"] = found[name]["cpu"] / int(n) / passes * 1e9
    for name, figures in found.items():
        key, problem = name.split("@")
        if reference := found.get(f"{BY_KEY[key].against}@{problem}"):
            figures["ratio"] = figures["cpu"] / reference["cpu"]
        if BY_KEY[key].iterations and (floor := found.get(f"floor@{problem}")):
            figures["floors"] = figures["ns"] / floor["ns"]
    return found


def target_row(found: dict[str, Any], text: str, figure: str, bound: float, *where: Any) -> str:
    cells = [found.get(f"{key}@{n}x{c}", {}) for key, n, c in product(*where)]
    start = f"| {text} | {BOUNDS[figure].format(bound)} "
    name = "ratio" if figure == "cost" else figure
    if not (values := [cell[name] for cell in cells if name in cell]):
        return start + "| not measured | |"
    worst = max(values) if figure in MOST else min(values)
    holds = worst <= bound if figure in MOST else worst >= bound
    measured = f"{worst:.6f}" if figure == "equal" else f"{worst:.{2 if figure == 'cost' else 1}f}"
    return f"{start}| {measured} (worst of {len(values)}) | {'yes' if holds else '**no**'} |"


def real_row() -> str:
    """Return the target for real tables, from the ratios on the page of costs."""
    _, _, part = COSTS.read_text(encoding="utf-8").partition(f"## {REAL}\n")
    rows = [line.strip("| ").split(" | ") for line in part.partition("\n## ")[0].splitlines()]
    first = next((k for k, row in enumerate(rows) if row[-1] == "ratio"), len(rows))
    ratios = []
    for row in rows[first + 2 :]:
        if len(row) != len(rows[first]):
            break
        ratios.append(float(row[-1]))
    anchor = re.sub("[^a-z -]", "", REAL.lower()).replace(" ", "-")
    start = (
        f"| CPU of `DawidSkene()` on [real tables](costs.md#{anchor}) "
        f"| {BOUNDS['cost'].format(REAL_BOUND)} "
    )
    if not ratios:
        return start + "| not measured | |"
    above = sum(ratio > REAL_BOUND for ratio in ratios)
    measured = (
        f"{statistics.median(ratios):.2f} (median of {len(ratios)}), {max(ratios):.2f} (worst)"
    )
    holds = f"**no** on {above}, yes on {len(ratios) - above}" if above else "yes"
    return f"{start}| {measured} | {holds} |"


def cell_row(system: System, n: int, c: int, cell: dict[str, Any], figures: Any) -> str:
    start = f"| {n:,} | {c} | {system.label} "
    if figures is None:
        return f"{start}| {cell['failed']} " + "| " * 6 + "|"
    equal = f"{figures['equal']:.6f}" if "equal" in figures else "–"
    cpu = f"{short(figures['cpu'])} ({figures['spread']})"
    others = [short(figures.get(name)) for name in ("ns", "floors", "ratio", "bytes")]
    return f"{start}| {' | '.join((short(figures['iterations']), cpu, *others, equal))} |"


COLUMNS = (
    *("annotations", "classes", "system", "iterations", "CPU s (min–max)"),
    *("ns per annotation (and iteration)", "× floor", "× reference", "bytes per annotation"),
    "equal results",
)


def report(kept: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    environment, cells = kept["environment"], kept["cells"]
    found = summarise(cells)
    facts = ", ".join(f"{name} {value}" for name, value in environment.items())
    lines = [
        "# Truth inference: time and memory\n",
        "Made by `python -m benchmarks.inference_speed --out docs/results/inference_speed.md "
        f"--json results/benchmarks/inference_speed.json`: {facts}. How it is measured and how to "
        "read it: [benchmarks/README.md](../../benchmarks/README.md).\n",
        "## Targets\n",
        "| what | bound | measured | holds? |\n|---|---|---|---|",
        *(target_row(found, *target) for target in TARGETS),
        real_row(),
    ]
    for method in dict.fromkeys(system.method for system in SYSTEMS):
        rows = [system for system in SYSTEMS if system.method == method]
        lines += [f"\n## {method}\n", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        for n, c, system in product(ALL, (2, 10), rows):
            if cell := cells.get(name := f"{system.key}@{n}x{c}"):
                lines.append(cell_row(system, n, c, cell, found.get(name)))
    labels = {system.key: system.label for system in SYSTEMS}
    bounds = {keys[0].removeprefix("ck_"): bound for _, _, bound, keys, *_ in TARGETS}
    lines += profile_lines(kept.get("profiles", {}), labels, found)
    lines += floor_lines(kept.get("floors", {}), labels, found, bounds)
    return "\n".join(lines) + "\n"


def keep(path: Path | None, result: dict[str, Any]) -> None:
    """Write the figures, if a file is given."""
    if path:
        write_atomically(path, json.dumps(result, indent=1) + "\n")


def measure_all(
    args: argparse.Namespace, keys: list[str], sizes: list[int], kept: dict[str, Any]
) -> dict[str, Any]:
    """Add what is missing in the figures that were kept; write them after every measurement."""
    names = ("manyhands", "crowd-kit", "numpy", "scipy", "pandas", "nltk")
    environment = {
        "date": datetime.date.today().isoformat(),
        "processor": cpu_model(),
        "Python": platform.python_version(),
        **{name: version(name) or "not installed" for name in names},
    }
    cells, profiles, floors = (kept.get(name, {}) for name in ("cells", "profiles", "floors"))
    # Cells that are kept are of earlier days.
    first = kept.get("environment", environment)["date"].split(" to ")[0]
    if cells and first != environment["date"]:
        environment["date"] = f"{first} to {environment['date']}"
    for n, c in product(sizes, (2, 10)):
        for line in collect([BY_KEY[key] for key in keys], n, c, cells, args):
            print(line, file=sys.stderr)
            result = {**kept, "environment": environment, "cells": cells}
            keep(args.json, result)
    for key, n, c in product(args.profile.split(",") if args.profile else (), (E5, E6), (2, 10)):
        task = {"profile": key, "n_annotations": n, "n_classes": c}
        profiles[f"{key}@{n}x{c}"] = spawn(**task, how="parts")
    for key, c in product(args.floor.split(",") if args.floor else (), (2, 10)):
        task = {"profile": key, "n_annotations": E5, "n_classes": c}
        pairs = floors[f"{key}@{E5}x{c}"] = []
        for _ in range(args.repeats):
            mine = spawn(**task, how="beside")
            floor = spawn(**task, how="floor", evaluations=mine["evaluations"])
            pairs.append({"ours": mine, "floor": floor})
    result = {"environment": environment, "cells": cells, "profiles": profiles, "floors": floors}
    keep(args.json, result)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the page here, in Markdown")
    parser.add_argument("--json", type=Path, help="keep all figures here, and continue from them")
    parser.add_argument("--sizes", default="1e5,1e6,1e7", help="annotations (default: all three)")
    parser.add_argument("--quick", action="store_true", help="1e5 annotations, once")
    parser.add_argument("--only", help="comma-separated system keys")
    parser.add_argument("--again", action="store_true", help="measure the chosen cells anew")
    parser.add_argument("--repeats", type=int, default=3, help="processes per cell (default 3)")
    parser.add_argument("--limit", type=float, default=600, help="seconds per process (600)")
    parser.add_argument("--profile", help="system keys to profile at 1e5 and 1e6 annotations")
    parser.add_argument("--floor", help="system keys to compare with their floor, 1e5 annotations")
    parser.add_argument("--page", action="store_true", help="measure nothing: page from the JSON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(json.loads(args.worker))))
        return 0
    if args.quick:
        args.sizes, args.repeats = "1e5", 1
    sizes = [int(float(size)) for size in args.sizes.split(",")]
    keys = args.only.split(",") if args.only else list(BY_KEY)
    if unknown := {*keys, *sizes} - {*BY_KEY, *ALL}:
        parser.error(f"unknown: {unknown}; sizes: 1e5, 1e6, 1e7; systems: {', '.join(BY_KEY)}")
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    if not args.page:
        kept = measure_all(args, keys, sizes, kept)
    page = report(kept)
    print(page)
    if args.out:
        write_atomically(args.out, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
