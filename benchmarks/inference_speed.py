"""Time and memory of truth inference: manyhands, crowd-kit, and the floor set by memory access.

A cell is a fit of a system to a simulated crowd, in a process of its own with one thread. What took
less than a minute is repeated twice when the command runs again. ``--only profile`` tells where our
time goes, ``--only floor`` how near bare numpy it is. crowd-kit is optional (``pip install --group
bench``); without it its rows say so. Linux alone tells the memory, in ``/proc``.
"""

from __future__ import annotations

import cProfile
import ctypes
import json
import math
import pstats
import re
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bars import Bar, bars
from evidence.study import Study, apart, grid, packages, processor, read
from evidence.tables import Record, days, groups, table

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
    def call(self) -> str:
        """The call as written."""
        call = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"`{self.target.split(':')[1]}({call})`"

    @property
    def label(self) -> str:
        """Name in a table of its method."""
        library = self.target.partition(".")[0]
        if library != "manyhands":
            return "crowd-kit" if library == "crowdkit" else "numpy"
        of_method = [each for each in SYSTEMS if each.method == self.method and each.is_ours]
        if len(of_method) == 1:
            return "**manyhands**"
        kind = "published" if {*self.options} - {"random_state"} else "defaults"
        return f"**manyhands**, {kind}" + ", shuffled" * self.shuffled

    @property
    def is_ours(self) -> bool:
        """Whether it is manyhands'."""
        return self.target.startswith("manyhands.")


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
GATHER = "benchmarks.inference_speed:gather"
SYSTEMS = (
    System("floor", "The floor", GATHER, {"n_iter": 20}, sizes=ALL, takes="blocks"),
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
    rows = crowd["annotator"] * np.int32(n_classes) + crowd["label"]
    table = np.random.default_rng(0).random((int(rows.max()) + 1, n_classes))
    return table, [rows[first : first + SHARD] for first in range(0, len(rows), SHARD)]


PREPARE = {"table": as_table, "frame": as_frame, "blocks": as_blocks}


def gather(blocks: Any, n_iter: int) -> None:
    """Look up the row of every annotation with numpy, ``n_iter`` times."""
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
    labels = getattr(fitted, "labels_", fitted)
    return np.asarray(labels.sort_index() if hasattr(labels, "sort_index") else labels)


def resident(name: str) -> int:
    """Return the resident bytes of this process now (``VmRSS``) or at their peak (``VmHWM``)."""
    return 1024 * int(re.findall(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def fitted_once(system: System, annotations: int, n_classes: int) -> Record:
    """Fit once; return CPU seconds, memory growth and share of results equal to the reference."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    crowd = make_crowd(annotations, n_classes)
    if system.shuffled:
        order = np.random.default_rng(0).permutation(annotations)
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
    figures["bytes"] = (resident("VmHWM") - before) / annotations
    done = getattr(fitted, "n_iter_", len(getattr(fitted, "loss_history_", ())))
    figures["iterations"] = int(done) or system.iterations or 0
    if system.against:
        result, reference = outcome(fitted), BY_KEY[system.against]
        del fitted, data
        expected = outcome(find(reference)(PREPARE[reference.takes](crowd, n_classes)))
        figures["equal"] = float(np.isclose(result, expected, rtol=1e-9, atol=0).mean())
    return figures


# -- where the time goes, and the least that bare numpy needs for it ------------------------------

BLOCK = 25_000
"""Annotations that GLAD's arrays hold at a time, so that they stay in the cache."""


def alpha_floor(crowd: dict[str, Any], n_classes: int, _: int) -> Callable[[], Any]:
    """Count the classes of every instance in one array, and list what was counted."""
    instance, label = crowd["instance"], crowd["label"]
    size = (int(instance.max()) + 1) * n_classes

    def run() -> Any:
        counts = np.bincount(instance * np.int32(n_classes) + label, minlength=size)
        return counts[np.flatnonzero(counts)]

    return run


def glad_floor(crowd: dict[str, Any], n_classes: int, n_evaluations: int) -> Callable[[], Any]:
    """Time the least work of GLAD: look up, multiply, exp, tanh and sum, twice per evaluation."""
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


# -- cells ----------------------------------------------------------------------------------------

PEERS = ("crowd-kit", "numpy", "scipy", "pandas", "nltk")


def measure(
    system: str, annotations: int, classes: int, run: int, how: str = "", evaluations: int = 0
) -> Record:
    """Fit a system once; or profile it, or time it, its floor, or both one after the other."""
    if not how:
        about = {"processor": processor(), "packages": packages(*PEERS)}
        return fitted_once(BY_KEY[system], annotations, classes) | about
    if how == "pair":
        cell = {"system": system, "annotations": annotations, "classes": classes, "run": run}
        ours = of_process(cell | {"how": "ours"})
        found = of_process(cell | {"how": "floor", "evaluations": ours["evaluations"]})
        return {"ours": ours, "floor": found}
    small, crowd = make_crowd(1000, classes), make_crowd(annotations, classes)
    if how == "floor":
        FLOORS[system](small, classes, 1)()
        return first_and_again(FLOORS[system](crowd, classes, evaluations), 3)
    fit, prepare = find(BY_KEY[system]), PREPARE[BY_KEY[system].takes]
    fit(prepare(small, classes))
    data = prepare(crowd, classes)
    return {"profile": profile, "ours": beside_floor}[how](lambda: fit(data))


def of_process(cell: Record) -> Record:
    """Measure a cell in a process of its own."""
    return apart(["-m", "benchmarks.inference_speed", "--cell", json.dumps(cell)])


def fits(runs: range) -> Iterator[Record]:
    """Yield every system on every crowd; a second and a third run of what is known to be quick."""
    known = {place(r): r.get("cpu", SLOW) for r in read(STUDY.records) if not r.get("how")}
    for cell in grid(run=runs, annotations=ALL, classes=(2, 10), system=BY_KEY):
        own, quick = BY_KEY[cell["system"]], known.get(place(cell), SLOW) < SLOW
        fits = cell["annotations"] in own.sizes and cell["classes"] in own.classes
        if fits and (quick or not cell["run"]):
            yield cell


def place(record: Record) -> tuple[str, int, int]:
    """System, annotations and classes."""
    return record["system"], record["annotations"], record["classes"]


def further(how: str, sizes: tuple[int, ...], runs: range) -> Iterator[Record]:
    """Yield profiles, or pairs of a system and its floor."""
    return grid(system=FLOORS, annotations=sizes, classes=(2, 10), run=runs, how=[how])


# -- the page -------------------------------------------------------------------------------------

Place = tuple[str, int, int]


def short(value: float | None) -> str:
    """Format with three digits; a dash stands for a missing or zero value."""
    if not value:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def grouped(records: list[Record], how: str = "") -> dict[Place, list[Record]]:
    """Records of one kind, by system and crowd."""
    own = (r for r in records if r.get("how", "") == how)
    return groups(own, "system", "annotations", "classes")


def summarise(cells: dict[Place, list[Record]]) -> dict[Place, Record]:
    """Return the medians of every cell's runs, its nanoseconds, and its ratios to other cells."""
    found: dict[Place, Record] = {}
    for (key, n, c), runs in cells.items():
        if any("failed" in r for r in runs):
            continue
        names = [name for name in ("cpu", "bytes", "iterations", "equal") if name in runs[0]]
        own = {name: statistics.median(r[name] for r in runs) for name in names}
        cpu = [r["cpu"] for r in runs]
        own["spread"] = "–".join(map(short, sorted({min(cpu), max(cpu)})))
        # A default fit may consist of several fits: `iterations` would count only one of them.
        if BY_KEY[key].iterations or not own["iterations"]:
            own["ns"] = own["cpu"] / n / (own["iterations"] or 1) * 1e9
        found[key, n, c] = own
    for (key, n, c), own in found.items():
        if reference := found.get((str(BY_KEY[key].against), n, c)):
            own["ratio"] = own["cpu"] / reference["cpu"]
        if BY_KEY[key].iterations and (floor := found.get(("floor", n, c))):
            own["floors"] = own["ns"] / floor["ns"]
    return found


def target_row(found: dict[Place, Record], target: Any) -> list[str]:
    """Return what is wanted, what the worst cell measures, and whether it holds."""
    text, figure, bound, *where = target
    cells = [found.get(each, {}) for each in product(*where)]
    name = "ratio" if figure == "cost" else figure
    start = [text, BOUNDS[figure].format(bound)]
    if not (values := [cell[name] for cell in cells if name in cell]):
        return [*start, "not measured", ""]
    worst = max(values) if figure in MOST else min(values)
    holds = worst <= bound if figure in MOST else worst >= bound
    measured = f"{worst:.6f}" if figure == "equal" else f"{worst:.{2 if figure == 'cost' else 1}f}"
    return [*start, f"{measured} (worst of {len(values)})", "yes" if holds else "**no**"]


def real_row() -> list[str]:
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
    start = f"CPU of `DawidSkene()` on [real tables](costs.md#{anchor})"
    above = sum(ratio > REAL_BOUND for ratio in ratios)
    measured = (
        f"{statistics.median(ratios):.2f} (median of {len(ratios)}), {max(ratios):.2f} (worst)"
    )
    holds = f"**no** on {above}, yes on {len(ratios) - above}" if above else "yes"
    return [start, BOUNDS["cost"].format(REAL_BOUND), measured, holds]


COLUMNS = (
    *("annotations", "classes", "system", "iterations", "CPU s (min–max)"),
    *("ns each", "× floor", "× published", "bytes", "equal results"),
)


def cell_row(where: Place, failed: str, own: Record | None) -> list[str]:
    """The medians of a system on a crowd, or why there are none."""
    key, n, c = where
    start = [f"{n:,}", str(c), BY_KEY[key].label]
    if own is None:
        return [*start, failed, *[""] * 6]
    others = [short(own.get(name)) for name in ("ns", "floors", "ratio", "bytes")]
    equal = f"{own['equal']:.6f}" if "equal" in own else "–"
    cpu = f"{short(own['cpu'])} ({own['spread']})"
    return [*start, short(own["iterations"]), cpu, *others, equal]


def profile_rows(
    profiles: dict[Place, list[Record]], found: dict[Place, Record]
) -> Iterator[list[str]]:
    """Yield the first call and the others, and the functions with the largest own time."""
    for (key, n, c), (own, *_) in profiles.items():
        peer = found.get((f"ck_{key}", n, c), {}).get("cpu")
        ratio = short(peer / own["again"]) if peer else "–"
        parts = ", ".join(f"`{name}` {share:.0%}" for name, share in own["parts"])
        seconds = [short(own[which]) for which in ("first", "again")]
        yield [f"{n:,}", str(c), BY_KEY[key].method, *seconds, ratio, parts]


def floor_rows(pairs: dict[Place, list[Record]], found: dict[Place, Record]) -> Iterator[list[str]]:
    """Yield how near the floor we are; targets are times crowd-kit's speed."""
    targets = {keys[0].removeprefix("ck_"): bound for _, _, bound, keys, *_ in TARGETS}
    for (key, n, c), own in pairs.items():
        first, again = (
            statistics.median(r["floor"][k] / r["ours"][k] for r in own) for k in ("first", "again")
        )
        peer, ours = found.get((f"ck_{key}", n, c), {}), found.get((key, n, c), {})
        ratio = peer.get("ratio")
        fastest = peer["cpu"] / float(ours["spread"].split("–")[0]) if ratio else None
        needed = f"{targets[key] / (ratio / first):.0%}" if ratio else "–"
        yield [
            f"{n:,}", str(c), BY_KEY[key].method, f"{targets[key]:g} ×", short(ratio),
            short(fastest), f"{first:.0%}", f"{again:.0%}", short(own[0]["ours"]["evaluations"]),
            short(ratio / first) if ratio else "–", needed,
        ]  # fmt: skip


def times_of_peers(found: dict[Place, Record]) -> Iterator[tuple[str, float]]:
    """Yield each method, and how many times as long crowd-kit takes, on its largest crowd."""
    for system in SYSTEMS:
        sizes = [where for where in found if where[0] == system.key and "ratio" in found[where]]
        if system.target.startswith("crowdkit") and not system.key.endswith("_2") and sizes:
            largest = max(sizes, key=lambda where: where[1:])
            yield system.method, found[largest]["ratio"]


def drawing(records: list[Record]) -> str:
    """Draw how many times as long crowd-kit takes, by method."""
    pairs = sorted(times_of_peers(summarise(grouped(records))), key=lambda pair: -pair[1])
    rows = [Bar(method, ratio, f"{short(ratio)} ×", True) for method, ratio in pairs]
    return bars("CPU time of crowd-kit, in multiples of ours", rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Targets, a table per method, and what the profiles and floors tell."""
    cells = grouped(records)
    found = summarise(cells)
    order = {system.key: k for k, system in enumerate(SYSTEMS)}
    tables: dict[str, list[list[str]]] = {system.method: [] for system in SYSTEMS}
    for where in sorted(cells, key=lambda each: (*each[1:], order[each[0]])):
        failed = next((r["failed"] for r in cells[where] if "failed" in r), "")
        tables[BY_KEY[where[0]].method].append(cell_row(where, failed, found.get(where)))
    crowd = ("annotations", "classes", "method")
    called = (*crowd, "first call", "again", "× ours, again", "own time")
    floors = (*crowd, "target", "measured", "fastest", "floor, first", "floor, again")
    floors += ("evaluations", "at the floor", "share needed")
    targets = [*(target_row(found, each) for each in TARGETS), real_row()]
    missed = [row[0] for row in targets if "no" in row[-1]]
    faster = dict(times_of_peers(found))
    dates = [{"date": day} for r in records for day in r["date"].split(" to ")]
    about = next(r for r in reversed(records) if "packages" in r)
    return {
        "dates": days(dates),
        "processor": about["processor"],
        "packages": ", ".join(f"{name} {version}" for name, version in about["packages"].items()),
        "ds": faster[DS],
        "least": min(faster.values()),
        "most": max(faster.values()),
        "n_methods": len(faster),
        "n_targets": len(targets),
        "n_held": len(targets) - len(missed),
        "calls": [f"- {each.method}: {each.label}, {each.call}" for each in SYSTEMS],
        "targets": table(["what", "bound", "measured", "holds?"], targets),
        "of": {method: "\n".join(table(COLUMNS, rows)).strip() for method, rows in tables.items()},
        "profiles": table(called, profile_rows(grouped(records, "profile"), found)),
        "floors": table(floors, floor_rows(grouped(records, "pair"), found)),
    }


STUDY = Study(
    __file__,
    {
        "fits": fits,
        "profile": lambda runs: further("profile", (E5, E6), range(1)),
        "floor": lambda runs: further("pair", (E5,), runs),
    },
    measure,
    page,
    seeds=range(3),
    alone=600.0,
    repeats=True,
    drawings=lambda records: {"inference_speed-times.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
