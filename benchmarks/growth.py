"""One epoch of every classifier with 100,000 instances and 20,000 annotators: time and memory.

Run: ``python benchmarks/growth.py --out docs/results/growth.md``
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

N_INSTANCES, N_ANNOTATORS, N_CLASSES, N_FEATURES, PER_INSTANCE = 100_000, 20_000, 10, 64, 5
BATCH_SIZE = 512
SETTINGS = {"CrowdInGClassifier": {"annotators_per_instance": 8}}
"""Parameters without which a method cannot run at this size."""
LIMIT = 60
"""Seconds a fit may take."""


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB of 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def measure(name: str) -> dict[str, object]:
    """Fit one classifier for one epoch per stage, in this process."""
    import numpy as np

    from manyhands import AnnotationTable, all_classifiers

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


def spawn(name: str) -> dict[str, object]:
    """Measure in a new process with one thread."""
    import os

    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--worker", name]
    try:
        done = subprocess.run(
            command, env={**os.environ, **threads}, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {LIMIT} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["died"])[-1]}
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(found: dict[str, dict[str, object]]) -> str:
    """Return the page in Markdown."""
    from datetime import UTC, datetime

    dense = N_INSTANCES * N_ANNOTATORS / 1e6
    lines = [
        "# Growth: one epoch with 20,000 annotators",
        "",
        f"Measured on {datetime.now(UTC):%Y-%m-%d} with `python benchmarks/growth.py --out "
        "docs/results/growth.md`, one thread, a process each.",
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


def main() -> None:
    """Measure every classifier, or, in a worker, the given one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="classes, separated by commas")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure(arguments.worker)))
        return
    from manyhands import all_classifiers

    chosen = [name for name in arguments.only.split(",") if name]
    found = {}
    for name in chosen or [name for name, _ in all_classifiers()]:
        found[name] = spawn(name)
        print(name, found[name], file=sys.stderr, flush=True)
    text = report(found)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
