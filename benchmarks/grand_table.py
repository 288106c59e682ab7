"""Every classifier with its defaults on all public sets with features, with `select` and peers.

A cell is one fit: a set, a method and a seed. Those of seed 1 are measured here. ``--seeds`` adds
further seeds, but none that the records of `flagship.py` hold: those records are used. Cells that
both hold tell whether they are of the present code; if a method is found to have changed, a second
run measures its further seeds. Gold labels measure, and choose nothing.

Other libraries (`peers.py`) are not installed with the project. What is missing is recorded as
failed.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/grand_table.py --records results/benchmarks/grand_table.jsonl
--out docs/results/grand_table.md``. What is in the records is not repeated; a killed run goes on.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

import encoders
import flagship
import numpy as np
from flagship_page import SELECT, key_of
from grand_table_page import GOLD, MAJORITY, SETS, further, page, ranks_drawing
from pages import read, run_missing
from peers import PEERS, Fit, described, package_of

import manyhands
from evidence import Data
from manyhands import (
    AggregatedClassifier,
    DawidSkene,
    MajorityVote,
)
from manyhands.encoders import TextEncoder
from manyhands.inference import GLAD, WorkerClustering
from manyhands.io import write_atomically
from manyhands.metrics import expected_calibration_error

SLOW = ("sentiment, raw text", "cifar10n", "cifar10h, 2")


def on_gold(data: Any, seed: int) -> Any:
    """The default network on the gold labels of the training part: a ceiling."""
    return AggregatedClassifier(MajorityVote(), random_state=seed).fit(data.X_train, data.y_train)


def majority_votes(data: Any, seed: int) -> Any:
    """The default network on majority votes; on the shares of the votes it is SoftProb."""
    model = AggregatedClassifier(MajorityVote(), targets="hard", random_state=seed)
    return model.fit(data.X_train, data.annotations)


# -- all methods ----------------------------------------------------------------------------------

METHODS: dict[str, Fit] = {
    flagship.STACK: flagship.stack(),
    MAJORITY: majority_votes,
    GOLD: on_gold,
    flagship.GOLD: flagship.on_gold,
    flagship.REGRESSION: flagship.vote_regression,
    "AggNet": flagship.by_default(manyhands.AggNetClassifier),
    "Max-MIG": flagship.by_default(manyhands.MaxMIGClassifier),
    "Crowd Layer": flagship.by_default(manyhands.CrowdLayerClassifier),
    "TraceReg": flagship.by_default(manyhands.TraceRegClassifier),
    "DL-DS": flagship.aggregated(DawidSkene),
    "SoftProb": flagship.by_default(manyhands.SoftProbClassifier),
    "CoNAL": flagship.by_default(manyhands.CoNALClassifier),
    "CoNAL by EM": flagship.by_default(manyhands.CommonNoiseEMClassifier),
    **PEERS,
    "DL-GLAD": flagship.aggregated(GLAD),
    "DL-WC": flagship.aggregated(WorkerClustering),
    "Raykar": flagship.by_default(manyhands.RaykarClassifier),
    "MBEM": flagship.by_default(manyhands.MBEMClassifier),
    "Co-teaching": flagship.by_default(manyhands.CoTeachingClassifier),
    "Doctor Net": flagship.by_default(manyhands.DoctorNetClassifier),
    "ICED": flagship.by_default(manyhands.ICEDClassifier),
    SELECT: flagship.selected,
    "Metric learning": flagship.by_default(manyhands.MetricLearningClassifier),
    "DASC": flagship.by_default(manyhands.DASCClassifier),
    "NeuCrowd": flagship.by_default(manyhands.NeuCrowdClassifier),
    "CrowdInG": flagship.by_default(manyhands.CrowdInGClassifier),
    "Personal (CPC)": flagship.by_default(manyhands.PersonalClassifier),
}
"""In the order in which they are measured: the cheap ones, and those others are compared with."""


@cache
def data_of(name: str, seed: int) -> Any:
    """A set; Sentiment's raw texts pass through the library's own encoder."""
    if name != "sentiment, raw text":
        return flagship.data_of(name, "", seed)
    task = encoders.sentiment()
    encoder = TextEncoder().fit(task.train)
    data = task.data
    return Data(
        encoder.transform(task.train),
        data.annotations,
        y_train=data.y_train,
        X_test=encoder.transform(task.test),
        y_test=data.y_test,
    )


@cache
def commit() -> str:
    """The commit of the code that measures; "+" stands for changes of the package."""
    root = Path(__file__).parents[1]
    command = ["git", "-C", str(root), "rev-parse", "--short=8", "HEAD"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run(["git", "-C", str(root), "diff", "--quiet", "HEAD", "--", "src"])
    return name + "+" * bool(changed.returncode)


def name_of_gpu() -> str:
    """The GPU that has been used since its peak was reset; nothing where none was."""
    import torch

    used = torch.cuda.is_available() and torch.cuda.max_memory_allocated()
    return torch.cuda.get_device_name() if used else ""


def forget_gpu() -> None:
    """Reset the peak of the GPU's memory."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def measure(name: str, method: str, seed: int) -> dict[str, Any]:
    """Fit a method, and measure it on the test part."""
    cell: dict[str, Any] = {"set": name, "method": method, "seed": seed}
    cell |= {"commit": commit(), "date": datetime.date.today().isoformat()}
    if method in PEERS:
        cell["package"] = package_of(method)
    data = data_of(name, seed)
    forget_gpu()
    started = process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = METHODS[method](data, seed)
            seconds = process_time() - started
            proba = np.asarray(model.predict_proba(data.X_test), dtype=np.float64)
    except Exception as error:
        print(f"{name}, {method}: {type(error).__name__}: {error}", flush=True)
        return cell | {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    if name_of_gpu():
        cell["gpu"] = name_of_gpu()
    y, classes = np.asarray(data.y_test), np.asarray(model.classes_)
    calibration = expected_calibration_error(proba, y, classes=classes)
    return {
        **cell,
        **flagship.scores(y, classes[proba.argmax(axis=1)]),
        "log_loss": flagship.log_loss(proba, y, classes),
        "calibration_error": round(float(calibration), 6),
        "n_test": len(y),
        "seconds": round(seconds, 2),
    }


def cells(
    names: list[str], methods: list[str], n_seeds: int, held: set[tuple[str, str, int]]
) -> Iterator[tuple[str, str, int]]:
    """Every method on the sets that are quick, then on the others; a further seed comes last.

    Of further seeds, those that other records hold are left out.
    """
    for seed in range(1, n_seeds + 1):
        for slow in (False, True):
            own = [name for name in SETS if name in names and (name in SLOW) == slow]
            for method in (method for method in METHODS if method in methods):
                for cell in ((name, method, seed) for name in own):
                    if seed == 1 or cell not in held:
                        yield cell


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, required=True, help="one line of JSON per cell")
    parser.add_argument("--out", type=Path, help="Markdown file; its diagram is put beside it")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell later")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=1, help="from 1 on")
    arguments = parser.parse_args()
    held = {key_of(record) for record in further(read(arguments.records))}
    found = run_missing(
        arguments.records,
        (
            (cell, lambda cell=cell: measure(*cell))
            for cell in cells(arguments.sets, arguments.methods, arguments.seeds, held)
        ),
        key_of,
        arguments.minutes,
    )
    if arguments.out is not None:
        lines, drawing = page(found, described()), ranks_drawing(found)
        write_atomically(arguments.out, "\n".join(lines) + "\n")
        write_atomically(arguments.out.with_name("grand_table-ranks.svg"), drawing)


if __name__ == "__main__":
    main()
