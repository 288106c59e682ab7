"""What manyhands costs beside crowd-kit, cleanlab, scikit-activeml, choix and evalica.

Size and imports of each package alone, Dawid-Skene from a data frame with the defaults of both, its
memory, rankings, classifiers as they come, and the stack with one and two threads. Group ``bench``
installs the others: run it in an environment of ``pip install --group bench .``. ``size`` installs
each package into an environment of its own, below `workspace`, and needs the network for that.

Systems of a comparison take turns in one run, and CPU seconds are compared: other programs on the
machine hardly change ratios of those.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.stats import kendalltau

import manyhands
from benchmarks import peers
from benchmarks.bars import Bar, bars
from benchmarks.costs import crowd_of, fit_rows
from benchmarks.inference_speed import as_frame, as_table, make_crowd, resident
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import (
    ROOT,
    THREADS,
    Part,
    apart,
    grid,
    of_parts,
    packages,
    processor,
    spent,
    workspace,
)
from evidence.tables import Record, days, groups, listing, where
from manyhands import AnnotationTable, BradleyTerry, ComparisonTable, CrowdStackingClassifier

TURNS = range(3)
IMPORTS = {
    "manyhands": "from manyhands import DawidSkene",
    "crowd-kit": "from crowdkit.aggregation import DawidSkene",
    "cleanlab": "from cleanlab.multiannotator import get_label_quality_multiannotator",
    "scikit-activeml": (
        "from skactiveml.classifier.multiannotator import AnnotatorLogisticRegression"
    ),
    "choix": "import choix",
    "evalica": "import evalica",
}
"""What somebody imports to infer labels, or to rank."""

TOOLS = ("pip", "setuptools", "wheel", "_distutils_hack", "distutils-precedence.pth")


# -- size and imports ------------------------------------------------------------------------------


def pinned() -> dict[str, str]:
    """Return what ``pip install`` is given, by package: ours is the tree, without any extra."""
    groups_of = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = (each.replace("[learning]", "") for each in groups_of["dependency-groups"]["bench"])
    return {"manyhands": str(ROOT)} | {each.partition("==")[0]: each for each in listed}


def environment(package: str) -> Path:
    """Return the environment of a package alone; it is made where it is missing."""
    place = workspace("peers") / package
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = [place / "bin" / "pip", "install", "-q", pinned()[package]]
        subprocess.run(install, check=True, capture_output=True)
        (place / "complete").touch()
    return place


def size(package: str) -> Record:
    """Bytes and distributions that an installation brings, without pip's and compiled files."""
    own = ["-I", "-c", "import site; print(site.getsitepackages()[0])"]
    python = environment(package) / "bin" / "python"
    folder = Path(subprocess.check_output([python, *own], text=True).strip())
    tops = [top for top in folder.iterdir() if top.name.split("-")[0] not in TOOLS]
    files = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    held = [p for p in files if p.is_file() and "__pycache__" not in p.parts]
    return {
        "mb": sum(path.stat().st_size for path in held) / 1e6,
        "distributions": sum(top.suffix == ".dist-info" for top in tops),
        "version": version_of(folder, package),
    }


def version_of(folder: Path, package: str) -> str:
    """Return the version that stands in the name of a package's metadata."""
    (found,) = folder.glob(f"{package.replace('-', '_')}-*.dist-info")
    return found.name.split("-")[1].removesuffix(".dist")


def started(package: str, statement: str) -> float:
    """Run a statement in a package's environment; return its CPU seconds."""
    env = {**os.environ, **dict.fromkeys(THREADS, "1")}
    command = [environment(package) / "bin" / "python", "-I", "-c", statement]
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{package}: {statement} failed")
    return usage.ru_utime + usage.ru_stime


def imports(turn: int) -> Record:
    """Import each package once, after a first time that compiles it; less a bare Python's time."""
    names = list(IMPORTS)
    if not turn:
        for name in names:
            started(name, IMPORTS[name])
    bare = started("manyhands", "pass")
    found = {name: started(name, IMPORTS[name]) for name in names[turn % 2 :] + names[: turn % 2]}
    return {name: cpu - bare for name, cpu in found.items()}


# -- Dawid-Skene -----------------------------------------------------------------------------------

LABELS = ((10, "integers"), (2, "integers"), (10, "texts"))
ANNOTATIONS, TIMES = 1_000_000, 15
"""Number of annotations, and how many times crowd-kit's CPU time was to be more than ours."""


def by_manyhands(frame: Any) -> Any:
    """Make a table of a frame, and fit Dawid-Skene with its defaults."""
    from manyhands import DawidSkene

    return DawidSkene().fit(AnnotationTable.from_frame(frame))


def by_crowd_kit(frame: Any) -> Any:
    """Fit crowd-kit's Dawid-Skene with its defaults."""
    from crowdkit.aggregation import DawidSkene

    return DawidSkene().fit(frame)


SYSTEMS: dict[str, Callable[[Any], Any]] = {"manyhands": by_manyhands, "crowd-kit": by_crowd_kit}


def frame_of(annotations: int, classes: int, ids: str) -> Any:
    """Make a data frame of annotations; ids are integers or texts."""
    frame = as_frame(make_crowd(annotations, classes), classes)
    if ids == "texts":
        for name, width in (("task", 7), ("worker", 5), ("label", 2)):
            frame[name] = name + frame[name].astype(str).str.zfill(width)
    return frame


def fitted(system: str, annotations: int, classes: int, ids: str) -> Record:
    """Fit once in this process: CPU seconds, and bytes per annotation above the data frame."""
    run = SYSTEMS[system]
    run(frame_of(1000, classes, ids))  # Imports.
    frame = frame_of(annotations, classes, ids)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # Resets VmHWM to VmRSS.
    before, cpu = resident("VmRSS"), time.process_time()
    model = run(frame)
    cpu = time.process_time() - cpu
    found = {"cpu": cpu, "bytes": (resident("VmHWM") - before) / annotations}
    labels = model.labels_
    values = labels.sort_index() if hasattr(labels, "sort_index") else labels
    np.save(workspace("peers") / f"labels-{system}.npy", np.asarray(values).astype(str))
    return found


def side_by_side(classes: int, ids: str, turn: int) -> Record:
    """Fit both, each in a process of its own; which of them comes first changes by turns."""
    names = list(SYSTEMS) if turn % 2 == 0 else list(SYSTEMS)[::-1]
    found: Record = {}
    for name in names:
        cell = {"part": "one", "system": name, "annotations": ANNOTATIONS, "classes": classes}
        found[name] = apart(
            ["-m", "benchmarks.beside_peers", "--cell", json.dumps({**cell, "ids": ids})]
        )
    ours, theirs = (np.load(workspace("peers") / f"labels-{name}.npy") for name in SYSTEMS)
    return found | {"equal": float((ours == theirs).mean())}


def alive(classes: int) -> Record:
    """Measure what is in memory when a fit of Dawid-Skene holds most, by the file that made it."""
    from manyhands import DawidSkene

    fit = DawidSkene().fit
    fit(as_table(make_crowd(1000, classes), classes))
    crowd = as_table(make_crowd(ANNOTATIONS, classes), classes)
    most: list[Any] = [0, None]

    def watch(_: Any, event: str, __: Any) -> None:
        held, _peak = tracemalloc.get_traced_memory()
        if event.endswith("return") and held > most[0] + ANNOTATIONS:
            most[:] = held, tracemalloc.take_snapshot()

    tracemalloc.start(16)
    sys.setprofile(watch)
    model = fit(crowd)
    sys.setprofile(None)
    whole = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    made: Counter[str] = Counter()
    root = str(Path(manyhands.__file__).parent)
    for each in most[1].statistics("traceback"):
        own = [frame.filename for frame in each.traceback if frame.filename.startswith(root)]
        made[Path(own[-1]).name if own else "others"] += each.size
    return {
        "peak": whole / ANNOTATIONS,
        "posterior": model.posterior_.nbytes / ANNOTATIONS,
        "confusion": model.confusion_.nbytes / ANNOTATIONS,
        "made": {name: size / ANNOTATIONS for name, size in made.most_common(4)},
    }


# -- rankings --------------------------------------------------------------------------------------

ITEMS, JUDGES, COMPARISONS = 200, 100, 100_000


def comparisons_of(seed: int, n: int) -> tuple[Any, Any]:
    """Draw strengths, and a frame of comparisons without ties; a fifth of the annotators guess."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    theta = rng.normal(size=ITEMS)
    left = rng.integers(ITEMS, size=n)
    right = (left + rng.integers(1, ITEMS, n)) % ITEMS
    who = rng.integers(JUDGES, size=n)
    eta = np.where(who < JUDGES // 5, 0.0, theta[left] - theta[right])
    won = rng.random(n) < 1 / (1 + np.exp(-eta))
    columns = {"worker": who, "left": left, "right": right}
    return theta, pd.DataFrame({**columns, "winner": np.where(won, left, right)})


def _ranked(frame: Any, **options: Any) -> Any:
    model = BradleyTerry(**options).fit(ComparisonTable.from_frame(frame))
    return model.strengths_[np.argsort(model.items_)]


def _choix(frame: Any) -> Any:
    import choix

    lost = frame.left + frame.right - frame.winner
    return choix.ilsr_pairwise(ITEMS, list(zip(frame.winner, lost, strict=True)), alpha=0.01)


def _evalica(frame: Any) -> Any:
    import evalica

    sides = (evalica.Winner.X, evalica.Winner.Y)
    won = [sides[k] for k in (frame.winner != frame.left).astype(int)]
    scores = evalica.bradley_terry(frame.left.tolist(), frame.right.tolist(), won).scores
    return scores.reindex(range(ITEMS)).to_numpy()


def _crowd_kit(frame: Any) -> Any:
    from crowdkit.aggregation import BradleyTerry as CrowdKitBradleyTerry

    given = frame.rename(columns={"winner": "label"})
    return CrowdKitBradleyTerry(n_iter=100).fit_predict(given).reindex(range(ITEMS)).to_numpy()


RANKERS: dict[str, Callable[[Any], Any]] = {
    "**manyhands** `BradleyTerry()`": _ranked,
    "**manyhands** `BradleyTerry(reliability=False, position=False, own_ties=False)`": (
        lambda frame: _ranked(frame, reliability=False, position=False, own_ties=False)
    ),
    "choix `ilsr_pairwise(alpha=0.01)`": _choix,
    "evalica `bradley_terry()`": _evalica,
    "crowd-kit `BradleyTerry(n_iter=100)`": _crowd_kit,
}


def rank(turn: int) -> Record:
    """Rank by each library, from the same frame: CPU seconds, and agreement with the true order."""
    theta, frame = comparisons_of(turn, COMPARISONS)
    small = comparisons_of(turn, 5_000)[1]
    found: Record = {}
    for name, run in RANKERS.items():
        run(small)  # Imports.
        cpu = time.process_time()
        strengths = run(frame)
        cpu = time.process_time() - cpu
        found[name] = {"cpu": cpu, "order": float(kendalltau(theta, strengths)[0])}
    return found


# -- classifiers -----------------------------------------------------------------------------------

ROWS, NEW, FEATURES, CLASSES, ANNOTATORS = 2_000, 5_000, 20, 5, 30
STACK = "CrowdStackingClassifier"
CLASSIFIERS = (STACK, peers.CROWDLAB, peers.ACTIVE, peers.ENSEMBLE)


def classify(method: str, turn: int) -> Record:
    """Fit to features and annotations as it comes: CPU seconds, memory, accuracy on new rows."""
    rng = np.random.default_rng(turn)
    y = rng.integers(CLASSES, size=ROWS + NEW)
    centres = rng.normal(scale=0.8, size=(2, CLASSES, FEATURES))
    X = rng.standard_normal((ROWS + NEW, FEATURES)) + centres[rng.integers(2, size=ROWS + NEW), y]
    crowd = crowd_of(rng, y[:ROWS], ANNOTATORS, 3, 0.4, CLASSES)
    data = SimpleNamespace(X_train=X[:ROWS], annotations=crowd)
    with spent() as cost:
        if method == STACK:
            model: Any = CrowdStackingClassifier(random_state=turn).fit(data.X_train, crowd)
        else:
            model = peers.PEERS[method](data, turn)
    right = model.classes_[model.predict_proba(X[ROWS:]).argmax(axis=1)] == y[ROWS:]
    return {**cost, "accuracy": float(np.mean(right))}


# -- the stack -------------------------------------------------------------------------------------

STACKS = ((100_000, 1), (100_000, 2), (1_000_000, 1), (1_000_000, 2))


def stack(rows: int, threads: int) -> Record:
    """Fit the stack to so many rows, with so many threads of linear algebra."""
    cell = json.dumps({"part": "fit", "name": STACK, "rows": rows})
    env = dict.fromkeys(THREADS, str(threads))
    return apart(["-m", "benchmarks.beside_peers", "--cell", cell], env=env)


# -- the page --------------------------------------------------------------------------------------

OTHERS = ("crowd-kit", "cleanlab", "scikit-activeml", "choix", "evalica", "numpy", "pandas")


def about(measure: Callable[..., Record]) -> Callable[..., Record]:
    """Add to a record what it was measured with."""
    return lambda **cell: (
        measure(**cell)
        | {"processor": processor(), "packages": packages(*OTHERS), "cores": os.cpu_count()}
        | {"load_before": os.getloadavg()[0]}
    )


def told(values: Sequence[float], digits: int = 2) -> str:
    """Write a mean with the standard deviation over the turns."""
    if len(values) < 2:
        return f"{values[0]:,.{digits}f}"
    return f"{statistics.mean(values):,.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def chips(records: list[Record]) -> str:
    """Name the processors of records, each once."""
    found = dict.fromkeys(r["processor"] for r in records)
    return ", ".join(name.replace("(R)", "").removesuffix(" Processor") for name in found)


def of_size(records: list[Record]) -> Record:
    last = {r["package"]: r for r in records if "mb" in r}
    rows = [last[name] for name in IMPORTS if name in last]
    columns = {
        "package": "{package} {version}",
        "installed, MB": "{mb:,.0f}",
        "packages": "{distributions}",
    }
    return {"sizes": listing(rows, columns), "our_size": f"{last['manyhands']['mb']:,.0f}"}


def of_imports(records: list[Record]) -> Record:
    cpu = {name: [r[name] for r in records] for name in IMPORTS}
    columns = {
        "statement": lambda name: f"`{IMPORTS[name]}`",
        "CPU s": lambda name: told(cpu[name]),
        "of crowd-kit's": lambda name: told([r[name] / r["crowd-kit"] for r in records]),
    }
    return {"imports": listing(list(IMPORTS), columns)}


def of_labels(records: list[Record]) -> Record:
    good = [r for r in records if not any("failed" in r[name] for name in SYSTEMS)]
    cells = groups(good, "classes", "ids")
    ratios = {
        k: [r["crowd-kit"]["cpu"] / r["manyhands"]["cpu"] for r in v] for k, v in cells.items()
    }

    def seen(system: str, figure: str, digits: int) -> Callable[[Any], str]:
        return lambda cell: told([r[system][figure] for r in cells[cell]], digits)

    columns = {
        "classes": lambda cell: cell[0],
        "ids": lambda cell: cell[1],
        "ours, CPU s": seen("manyhands", "cpu", 2),
        "crowd-kit's, CPU s": seen("crowd-kit", "cpu", 1),
        "ratio": lambda cell: told(ratios[cell], 1),
        "ours, bytes per annotation": seen("manyhands", "bytes", 0),
        "crowd-kit's": seen("crowd-kit", "bytes", 0),
        "same label": lambda cell: f"{statistics.mean(r['equal'] for r in cells[cell]):.1%}",
        "processor": lambda cell: chips(cells[cell]),
    }
    first, loads = ratios[LABELS[0]], [r["load_before"] for r in records]
    return {
        "ratio_texts": told(ratios[LABELS[2]], 1),
        "labels": listing(list(cells), columns),
        "ratio": told(first, 1),
        "times": TIMES,
        "met": "met" if min(map(statistics.mean, ratios.values())) >= TIMES else "not met by all",
        "load_of_labels": f"{min(loads):.0f} to {max(loads):.0f}",
    }


def of_alive(records: list[Record]) -> Record:
    rows = records[-len({r["classes"] for r in records}) :]
    columns = {
        "classes": "{classes}",
        "bytes per annotation at the peak of a fit": "{peak:.0f}",
        "the posterior": "{posterior:.1f}",
        "one array of confusion matrices": "{confusion:.1f}",
        "by the file that made them": lambda r: ", ".join(
            f"`{name}` {size:.0f}" for name, size in r["made"].items()
        ),
    }
    return {"alive": listing(rows, columns)}


def of_rank(records: list[Record]) -> Record:
    columns = {
        "library": lambda name: name,
        "CPU s": lambda name: told([r[name]["cpu"] for r in records]),
        "Kendall's tau with the truth": lambda name: told([r[name]["order"] for r in records], 3),
    }
    return {"rankings": listing(list(RANKERS), columns)}


def of_classify(records: list[Record]) -> Record:
    rows = [(name, where(records, method=name)) for name in CLASSIFIERS]
    columns = {
        "method": lambda row: f"**manyhands** `{row[0]}()`" if row[0] == STACK else row[0],
        "CPU s": lambda row: told([r["cpu"] for r in row[1]], 1),
        "MB at the peak": lambda row: told([r["peak"] for r in row[1]], 0),
        "accuracy on new rows, %": lambda row: told([100 * r["accuracy"] for r in row[1]], 1),
    }
    return {"classifiers": listing([row for row in rows if row[1]], columns)}


def of_stack(records: list[Record]) -> Record:
    columns = {
        "rows": "{rows:,}",
        "threads": "{threads}",
        "CPU s": "{cpu:.0f}",
        "wall s": "{wall:.0f}",
        "load": "{load:.0f}",
        "MB at the peak": "{peak:,.0f}",
        "accuracy on new rows, %": lambda r: f"{100 * r['accuracy']:.1f}",
        "processor": lambda r: chips([r]),
    }
    return {"stacks": listing([r for r in records if "cpu" in r], columns)}


def page(records: list[Record]) -> dict[str, Any]:
    """Make the values of the page."""
    found: dict[str, Any] = {"date": days(records)}
    for name, part in PARTS.items():
        if own := [r for r in where(records, part=name) if "failed" not in r]:
            found |= part.page(own)
    latest = next((r for r in reversed(records) if "packages" in r), {})
    found |= {"processors": chips([r for r in records if "processor" in r])}
    found["cores"] = latest.get("cores")
    listed = latest.get("packages", {})
    return found | {"packages": ", ".join(f"{name} {version}" for name, version in listed.items())}


def turns(**values: Any) -> Callable[[], Iterator[Record]]:
    """Return cells whose turns go round all of them."""
    return lambda: grid(turn=TURNS, **values)


def label_cells() -> Iterator[Record]:
    """Yield the fits of Dawid-Skene, turn by turn."""
    for turn in TURNS:
        yield from ({"classes": c, "ids": ids, "turn": turn} for c, ids in LABELS)


def never() -> Iterator[Record]:
    """Yield nothing: a part of another one, in a process of its own."""
    return iter(())


PARTS = {
    "size": Part(about(size), of_size, lambda: grid(package=IMPORTS)),
    "imports": Part(about(imports), of_imports, turns()),
    "labels": Part(about(side_by_side), of_labels, label_cells),
    "alive": Part(about(alive), of_alive, lambda: grid(classes=(2, 10))),
    "rankings": Part(about(rank), of_rank, turns()),
    "classifiers": Part(about(classify), of_classify, turns(method=CLASSIFIERS)),
    "stack": Part(about(stack), of_stack, lambda: ({"rows": n, "threads": k} for n, k in STACKS)),
    "one": Part(fitted, cells=never),
    "fit": Part(fit_rows, cells=never),
}


def drawing(page: str) -> str:
    """Draw the seconds from a data frame to labels, of both libraries."""
    rows = []
    for row in read_rows(page, "From a data frame"):
        for name, column in (("manyhands", "ours, CPU s"), ("crowd-kit", "crowd-kit's, CPU s")):
            seconds = numbers_in(row[column])[0]
            label = f"{name}, {row['classes']} classes, {row['ids']}"
            rows.append(Bar(label, seconds, f"{seconds:g} s", name == "manyhands"))
    return bars("CPU seconds from a million annotations to labels", rows)


STUDY = of_parts(
    __file__,
    PARTS,
    page,
    alone=7200.0,
    data=lambda _: [],
    page_drawings=lambda page: {"beside_peers-seconds.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
