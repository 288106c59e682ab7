"""Self-training on CIFAR-10H's crowd: 10,000 images, 2,567 annotators, 10 classes, few annotations.

The cube of predicted annotations would be 257 million numbers. Every case runs in its own process
with one thread; the exit status is 1 if one takes more than 2 GB.

Run: ``python benchmarks/self_training_memory.py --out docs/results/self_training_memory.md``
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

PER_IMAGE = 2
LIMIT_MB = 2000.0
SELECTORS = ("DistributionAwareSelector", "ConfidenceSelector", "RandomSelector")
BASES = ("CrowdLayerClassifier", "TraceRegClassifier", "CoNALClassifier", "DoctorNetClassifier")
CASES = [("CrowdLayerClassifier", selector) for selector in SELECTORS] + [
    (base, SELECTORS[0]) for base in BASES[1:]
]


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB of 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def measure(base: str, selector: str) -> dict[str, float]:
    """Run one round of self-training with a base classifier, in this process."""
    import numpy as np

    import manyhands
    from manyhands.datasets import load_cifar10h

    data = load_cifar10h()
    table = data.annotations
    order = np.random.default_rng(0).permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    place = np.arange(len(order)) - np.searchsorted(table.instance[order], table.instance[order])
    table = table.take(np.sort(order[place < PER_IMAGE]))
    before = peak_mb()
    model = manyhands.SelfTrainingCrowdClassifier(
        getattr(manyhands, base)(max_epochs=5, device="cpu"),
        getattr(manyhands, selector)(),
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


def spawn(base: str, selector: str) -> dict[str, float]:
    """Measure in a new process with one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--worker", f"{base},{selector}"]
    done = subprocess.run(
        command, env={**os.environ, **threads}, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(found: dict[tuple[str, str], dict[str, float]]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# One round of self-training with 2,567 annotators",
        "",
        f"Measured on {datetime.now(UTC):%Y-%m-%d} with `python benchmarks/self_training_memory.py "
        "--out docs/results/self_training_memory.md`, one thread, a process each.",
        "",
        f"CIFAR-10H with {PER_IMAGE} annotations an image (10,000 images, 20,000 annotations, "
        "2,567 annotators, 10 classes, 256 features); 5 epochs a training, two trainings, 2,000 "
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


def main() -> None:
    """Measure every case, or, in a worker, the given one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker")
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure(*arguments.worker.split(","))))
        return
    found = {case: spawn(*case) for case in CASES}
    text = report(found)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    print(text)
    if max(run["peak"] for run in found.values()) > LIMIT_MB:
        sys.exit(f"more than {LIMIT_MB:,.0f} MB were needed")


if __name__ == "__main__":
    main()
