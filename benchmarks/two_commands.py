"""Time the way from an export with texts to a classifier and a report, by two commands.

The exports are written from the texts and annotations of Sentiment, as Label Studio writes them.
Accuracy is measured on the clean test part, which no command sees.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/two_commands.py --out docs/results/two_commands.md``
"""

from __future__ import annotations

import argparse
import csv
import datetime
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
from pages import table_lines

import manyhands
from manyhands import AnnotationTable
from manyhands.datasets import load_sentiment
from manyhands.io import write_atomically

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


def timed(*arguments: str) -> tuple[float, float]:
    """Run a command; seconds on the clock, and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    command = [sys.executable, "-m", "manyhands", *arguments]
    subprocess.run(command, check=True, capture_output=True)
    seconds, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def walk(size: int) -> list[str]:
    """Go the way once; the row of the table."""
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
    y = np.asarray(data.y_test).astype(str)
    if len(labels) != len(y):
        raise SystemExit(f"{len(labels)} predictions for {len(y)} instances of the test part")
    accuracy = float(np.mean(np.asarray(labels) == y))
    n_annotations = sum(len(task["annotations"]) for task in tasks)
    times = [f"{wall:.0f} ({cpu:.0f})" for wall, cpu in (fit, report, predict)]
    return [f"{len(tasks):,}", f"{n_annotations:,}", *times, f"{100 * accuracy:.1f}"]


def main() -> None:
    """Go the way with exports of several sizes, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="Markdown file")
    arguments = parser.parse_args()
    rows = [walk(size) for size in SIZES]
    load = os.getloadavg()[0]
    heading = ["tasks", "annotations", "fit, s", "report, s", "predict 3,848, s", "accuracy, %"]
    lines = [
        "# From a Label Studio export to a classifier and a report",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/two_commands.py --out "
        f"docs/results/two_commands.md` on {datetime.date.today()}, manyhands "
        f"{manyhands.__version__}, one thread, load {load:.0f} on {os.cpu_count()} cores. Seconds "
        "on the clock (of the processor), the start of Python included.",
        "",
        "The first tasks of Sentiment (movie reviews, 2 classes), written as Label Studio exports "
        "them. A third command predicts the sentences of the clean test part, whose labels measure "
        "the accuracy.",
        "",
        "```sh",
        "manyhands fit --annotations project-1.json --texts text --out model",
        "manyhands report model",
        "manyhands predict model --texts new.txt --out found.csv",
        "```",
        "",
        *table_lines(heading, rows),
    ]
    write_atomically(arguments.out, "\n".join(lines).strip("\n") + "\n")


if __name__ == "__main__":
    main()
