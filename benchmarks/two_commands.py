"""From an export of Label Studio to a classifier and a report: seconds, accuracy."""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.bars import Bar, bars
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import Study, grid
from evidence.tables import Record, listing
from manyhands import AnnotationTable
from manyhands.datasets import load_sentiment

SIZES = (500, 5000)


def texts(split: str) -> list[str]:
    """The sentences of a part of Sentiment."""
    folder = Path(os.environ["MANYHANDS_DATA"], "sentiment")
    sentences = (folder / "texts.txt").read_text(encoding="utf-8").split("\n")
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        splits = [row["split"] for row in csv.DictReader(file)]
    return [text for text, own in zip(sentences, splits, strict=False) if own == split]


def export(table: AnnotationTable, size: int) -> list[dict[str, Any]]:
    """The first instances as tasks of Label Studio with one control tag, ``sentiment``."""
    sentences = texts("train")
    tasks: list[dict[str, Any]] = [
        {"id": int(k) + 1, "data": {"text": sentences[k]}, "annotations": []}
        for k in range(min(size, table.n_instances))
    ]
    for row in np.flatnonzero(table.instance < len(tasks)):
        label = str(table.classes[table.label[row]])
        answer = {"type": "choices", "from_name": "sentiment", "value": {"choices": [label]}}
        annotator = str(table.annotators[table.annotator[row]])
        tasks[table.instance[row]]["annotations"].append(
            {"completed_by": {"email": annotator}, "result": [answer], "was_cancelled": False}
        )
    return tasks


def timed(*arguments: str) -> list[float]:
    """Run a command; seconds on the clock, and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    command = [sys.executable, "-m", "manyhands", *arguments]
    subprocess.run(command, check=True, capture_output=True)
    seconds, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return [seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]


def measure(size: int) -> Record:
    """Go the way once."""
    data = load_sentiment()
    with tempfile.TemporaryDirectory() as folder:
        path, model = Path(folder, "project-1.json"), str(Path(folder, "model"))
        tasks = export(data.annotations, size)
        path.write_text(json.dumps(tasks), encoding="utf-8")
        fit = timed("fit", "--annotations", str(path), "--texts", "text", "--out", model)
        report = timed("report", model)
        new, found = Path(folder, "new.txt"), Path(folder, "found.csv")
        new.write_text("\n".join(texts("test")), encoding="utf-8")
        predict = timed("predict", model, "--texts", str(new), "--out", str(found))
        labels = [row["label"] for row in csv.DictReader(found.open(encoding="utf-8"))]
    right = np.asarray(labels) == np.asarray(data.y_test).astype(str)
    return {
        "tasks": len(tasks),
        "annotations": sum(len(task["annotations"]) for task in tasks),
        "times": [fit, report, predict],
        "accuracy": float(np.mean(right)),
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }


def page(records: list[Record]) -> dict[str, Any]:
    """A row per size."""
    if not records:
        return {}
    walks = listing([{**r, "percent": 100 * r["accuracy"]} for r in records], {
        "tasks": "{tasks:,}",
        "annotations": "{annotations:,}",
        "fit, s": "{times[0][0]:.0f} ({times[0][1]:.0f})",
        "report, s": "{times[1][0]:.0f} ({times[1][1]:.0f})",
        "predict 3,848, s": "{times[2][0]:.0f} ({times[2][1]:.0f})",
        "accuracy, %": "{percent:.1f}",
    })  # fmt: skip
    return {"walks": walks, **{key: records[-1][key] for key in ("load", "cores")}}


def drawing(page: str) -> str:
    """Draw the seconds of each command."""
    rows = []
    for row in read_rows(page, "From a Label Studio"):
        for command in ("fit", "report", "predict"):
            seconds = numbers_in(next(v for k, v in row.items() if k.startswith(command)))[0]
            rows.append(Bar(f"{row['tasks']} tasks, {command}", seconds, f"{seconds:.0f} s"))
    return bars("Seconds of each command", rows)


STUDY = Study(
    __file__,
    lambda: grid(size=SIZES),
    measure,
    page,
    data=lambda cell: ["sentiment"],
    page_drawings=lambda page: {"two_commands-seconds.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
