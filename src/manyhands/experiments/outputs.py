"""What a job leaves in its folder: model, labels, summary and report; and what reads it."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.classifiers import BaseCrowdClassifier, load
from manyhands.exceptions import MissingExtraError, ModelFolderError, WriteError
from manyhands.experiments.gold import GoldRows, match_gold
from manyhands.inference import BaseAggregator
from manyhands.io import GoldFile, read_features, write_atomically
from manyhands.io.files import check_writable
from manyhands.metrics import accuracy, macro_f1
from manyhands.report import summarize, write_report
from manyhands.typing import AnyArray

LABELS, SUMMARY = "labels.csv", "summary.json"
OUTPUTS = ("model.json", LABELS, SUMMARY, "report.html")
"""What a job's folder comes to hold, beside the weights (named by their content)."""


@contextmanager
def job_folder(folder: str | Path) -> Iterator[Path]:
    """Make a folder to write into; a failure leaves no empty folder behind.

    Raises
    ------
    WriteError
        If it cannot be written, or holds a ``labels.csv`` (such as gold labels) of somebody else.
    """
    folder = Path(folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        check_writable(folder)
        if (folder / LABELS).exists() and not any(
            (folder / name).exists() for name in ("model.json", SUMMARY)
        ):
            raise WriteError(
                errno.EEXIST,
                f"{str(folder / LABELS)!r} stands there and is not of manyhands (there is no model "
                "beside it); it would be overwritten. Choose another folder",
            )
        yield folder
    except BaseException:
        for path in made:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


def keep_model(
    model: BaseCrowdClassifier,
    X: Any,
    train: AnnotationTable,
    folder: Path,
    *,
    gold: GoldRows | None = None,
    title: str | None = None,
) -> None:
    """Write model, inferred labels and summary: all is computed before the first is written."""
    proba = model.predict_proba(X)
    labels = model.classes_[proba.argmax(axis=1)]
    content = labels_csv(labels, proba, train.instances, model.classes_)
    gold_values = None
    if gold is not None:
        # Gold of test rows has no place in a report on the annotated ones.
        annotated = train.annotations_per_instance() > 0
        codes = np.where(annotated, gold.codes, -1)
        values = np.array([*train.classes.tolist(), None], dtype=object)
        gold_values = values[codes]
    summary = summarize(train, classifier=model, X=X, gold=gold_values, title=title)
    described = json.dumps(summary, indent=1, allow_nan=False)
    if hasattr(model, "module_"):
        model.save(folder)
    write_atomically(folder / LABELS, content)
    write_atomically(folder / SUMMARY, described)


def label_rows(labels: AnyArray, proba: AnyArray, tasks: AnyArray) -> list[dict[str, Any]]:
    """Label of every instance with the largest probability, as plain values."""
    top = proba.max(axis=1).tolist()
    return [
        {"task": task, "label": label, "probability": p}
        for task, label, p in zip(tasks.tolist(), labels.tolist(), top, strict=True)
    ]


def labels_csv(labels: AnyArray, proba: AnyArray, tasks: AnyArray, classes: AnyArray) -> str:
    """Every instance's label, its probability, and the probabilities of all classes, as CSV."""
    text = io.StringIO()
    # The csv module leaves a lone carriage return unquoted, and readers end the row there.
    names = map(str, [*tasks.tolist(), *classes.tolist()])
    quote_all = any("\r" in name for name in names)
    writer = csv.writer(
        text,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL,
    )
    writer.writerow(["task", "label", "probability", *(f"p({c})" for c in classes.tolist())])
    for row, shares in zip(label_rows(labels, proba, tasks), proba.tolist(), strict=True):
        writer.writerow(
            [row["task"], row["label"], f"{row['probability']:.6f}", *(f"{p:.6f}" for p in shares)]
        )
    return text.getvalue()


def aggregate_table(
    table: AnnotationTable,
    aggregator: BaseAggregator,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """Aggregate a table; write all labels as CSV if ``out`` is given.

    Returns
    -------
    dict
        ``method``, ``n_instances``, ``labels`` (task, label, probability), ``gold`` (metrics on
        the instances with annotations and gold, or None).
    """
    posterior = aggregator.fit_predict_proba(table)
    metrics: dict[str, Any] | None = None
    if gold is not None:
        codes = match_gold(gold, table).codes
        rows = np.flatnonzero((codes >= 0) & (table.annotations_per_instance() > 0))
        y = table.classes[codes[rows]]
        metrics = {
            "instances with gold": len(rows),
            "accuracy": accuracy(y, aggregator.labels_[rows]),
            "macro-F1": macro_f1(y, aggregator.labels_[rows]),
        }
    if out is not None:
        content = labels_csv(aggregator.labels_, posterior, table.instances, table.classes)
        write_atomically(out, content)
    return {
        "method": type(aggregator).__name__,
        "n_instances": table.n_instances,
        "labels": label_rows(aggregator.labels_, posterior, table.instances),
        "gold": metrics,
    }


def predict_file(
    folder: str | Path, features: str | Path, out: str | Path | None = None
) -> dict[str, Any]:
    """Predict the rows of a feature file with a saved model; write CSV if ``out`` is given."""
    model = load(folder)
    data = read_features(features)
    tasks = np.arange(len(data)) if data.tasks is None else data.tasks
    proba = model.predict_proba(data.X)
    labels = model.classes_[proba.argmax(axis=1)]
    if out is not None:
        write_atomically(out, labels_csv(labels, proba, tasks, model.classes_))
    return {"n_instances": len(data), "labels": label_rows(labels, proba, tasks)}


def report_folder(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the HTML report on a job's folder, by default into it.

    Raises
    ------
    ModelFolderError
        If there is no summary in the folder, or it cannot be rendered.
    WriteError
        If the page cannot be written.
    """
    path = Path(folder) / SUMMARY
    if not path.is_file():
        raise ModelFolderError(
            f"{str(folder)!r} has no {SUMMARY}; give the folder that 'manyhands fit --out' wrote"
        )
    try:
        return write_report(path, out or Path(folder) / "report.html")
    except (WriteError, MissingExtraError):
        raise
    except Exception as error:
        # A summary changed by hand can make a template fail in any way.
        raise ModelFolderError(
            f"{str(path)!r} cannot be shown ({error}); it was truncated or altered, or another "
            "version of manyhands wrote it: run fit again"
        ) from error
