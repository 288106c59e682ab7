"""One job: fit a method on a table (over some seeds), keep the model, and say how good it is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode, missing_mask
from manyhands.classifiers import BaseCrowdClassifier, load
from manyhands.exceptions import AnnotationError
from manyhands.inference import BaseAggregator
from manyhands.io import GoldFile, read_features, write_atomically
from manyhands.io.files import check_writable
from manyhands.metrics import accuracy, macro_f1
from manyhands.report import summarize
from manyhands.typing import AnyArray, IntArray

CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True, eq=False)
class GoldRows:
    """Gold labels laid over the rows of a table.

    Attributes
    ----------
    codes : integer array of shape (n_instances,)
        Class codes, -1 where unknown.
    splits : array of str of shape (n_instances,)
        Split of every row, "" where unknown ("all" without a split column).
    """

    codes: IntArray
    splits: AnyArray

    def parts(self, annotated: AnyArray) -> dict[str, IntArray]:
        """Rows with gold by split; without splits, by whether a row has annotations."""
        known = self.codes >= 0
        names = self.splits
        if set(names[known]) <= {"all"}:
            names = np.where(annotated, "annotated rows", "other rows")
        return {
            str(name): np.flatnonzero(known & (names == name)) for name in np.unique(names[known])
        }


def match_gold(gold: GoldFile, table: AnnotationTable) -> GoldRows:
    """Lay gold labels over the instances of a table.

    Raises
    ------
    AnnotationError
        If no gold instance is in the table, or a gold label is not one of its classes.
    """
    mine, theirs = table.instances, gold.tasks
    if mine.dtype.kind != theirs.dtype.kind:
        mine, theirs = mine.astype(str), theirs.astype(str)
    known = np.isin(theirs, mine)
    if not known.any():
        raise AnnotationError(
            f"none of the {len(theirs)} tasks with gold (such as {theirs[0].item()!r}) is among "
            f"the {len(mine)} instances (such as {mine[0].item()!r}); use the same ids"
        )
    place, _ = encode(theirs[known], mine, argument="task of gold", vocabulary_name="instances")
    codes = np.full(table.n_instances, -1)
    splits = np.full(table.n_instances, "", dtype=object)
    codes[place] = _gold_codes(gold.labels[known], table.classes)
    splits[place] = "all" if gold.splits is None else gold.splits[known]
    return GoldRows(codes, splits)


def _gold_codes(labels: AnyArray, classes: AnyArray) -> IntArray:
    codes = np.full(len(labels), -1)
    given = ~missing_mask(labels)
    if given.any():
        values = np.array(labels[given].tolist())
        codes[given], _ = encode(
            values, classes, argument="label of gold", vocabulary_name="classes"
        )
    return codes


def training_part(table: AnnotationTable, gold: GoldRows | None) -> AnnotationTable:
    """Leave out annotations of rows that the gold file assigns to another split than train."""
    if gold is None or "train" not in set(gold.splits):
        return table
    return table.take(np.isin(gold.splits, ["train", ""])[table.instance])


def run_job(
    estimator: BaseCrowdClassifier,
    X: Any,
    table: AnnotationTable,
    folder: str | Path,
    *,
    gold: GoldRows | None = None,
    seeds: Iterable[int] = (0,),
    holdout: float | None = None,
    on_seed: Callable[[dict[str, Any]], None] = lambda record: None,
) -> dict[str, Any]:
    """Fit, keep the model of the first seed in a folder, and measure every seed.

    Parameters
    ----------
    estimator : BaseCrowdClassifier
        Cloned; its ``random_state`` is set to each seed.
    X : array of shape (n_instances, ...)
    table : AnnotationTable
    folder : str or Path
        Gets the model, ``labels.csv`` (every row's inferred label) and ``summary.json`` (what the
        report shows). While the first seed trains, a checkpoint stands here; an interrupted job
        run again goes on from it.
    gold : GoldRows, optional
        For evaluation alone, and to leave annotations of test rows out.
    seeds : iterable of int
    holdout : float, optional
        Fit every seed once more with this fraction of annotations held out and the epoch chosen
        on them.
    on_seed : callable
        Hears every seed's record.

    Returns
    -------
    dict
        ``method``, ``seeds``, ``left_out`` (annotations of rows outside the train split),
        ``records`` (a dict a seed: protocol -> split -> metrics) and ``table`` (protocol -> split
        -> mean and sd over seeds).
    """
    folder = check_writable(folder)
    train = training_part(table, gold)
    records: list[dict[str, Any]] = []
    first: BaseCrowdClassifier | None = None
    seeds = list(seeds)
    for seed in seeds:
        protocols = {"last epoch": estimator.get_params(deep=False)["validation"]}
        if holdout is not None:
            protocols["chosen on held-out annotations"] = holdout
        record: dict[str, Any] = {"seed": seed, "protocols": {}}
        for protocol, validation in protocols.items():
            fresh = clone(estimator).set_params(random_state=seed, validation=validation)
            if first is None:
                fresh.set_params(checkpoint=folder / CHECKPOINT)
            started = perf_counter()
            fresh.fit(X, train)
            seconds = perf_counter() - started
            record["protocols"][protocol] = {
                "seconds": seconds,
                "epoch": getattr(fresh, "best_epoch_", fresh.history_[-1]["epoch"])
                if fresh.history_
                else None,
                "splits": _measure(fresh, X, table, gold, train),
            }
            if first is None:
                first = fresh
                keep_model(first, X, train, folder, gold=gold)
        records.append(record)
        on_seed(record)
    assert first is not None
    return {
        "method": type(estimator).__name__,
        "seeds": seeds,
        "left_out": table.n_annotations - train.n_annotations,
        "records": records,
        "table": _mean_and_sd(records),
    }


def keep_model(
    model: BaseCrowdClassifier,
    X: Any,
    train: AnnotationTable,
    folder: Path,
    *,
    gold: GoldRows | None = None,
    title: str | None = None,
) -> None:
    """Write model, inferred labels and summary; then the checkpoint has done its work."""
    if hasattr(model, "module_"):
        model.save(folder)
    proba = model.predict_proba(X)
    labels = model.classes_[proba.argmax(axis=1)]
    content = labels_csv(labels, proba, train.instances, model.classes_)
    write_atomically(folder / "labels.csv", content)
    gold_values = None
    if gold is not None:
        # Gold of test rows has no place in a report on the annotated ones.
        annotated = train.annotations_per_instance() > 0
        codes = np.where(annotated, gold.codes, -1)
        values = np.array([*train.classes.tolist(), None], dtype=object)
        gold_values = values[codes]
    summary = summarize(train, classifier=model, X=X, gold=gold_values, title=title)
    write_atomically(folder / "summary.json", json.dumps(summary, indent=1, allow_nan=False))
    (folder / CHECKPOINT).unlink(missing_ok=True)


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
    writer = csv.writer(text, lineterminator="\n")
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


def _measure(
    model: BaseCrowdClassifier,
    X: Any,
    table: AnnotationTable,
    gold: GoldRows | None,
    train: AnnotationTable,
) -> dict[str, dict[str, float]]:
    """Accuracy and macro-F1 on every split that has gold."""
    if gold is None:
        return {}
    predicted = model.predict(X)
    result = {}
    for split, rows in gold.parts(train.annotations_per_instance() > 0).items():
        y = table.classes[gold.codes[rows]]
        result[split] = {
            "n": len(rows),
            "accuracy": accuracy(y, predicted[rows]),
            "macro_f1": macro_f1(y, predicted[rows]),
        }
    return result


def _mean_and_sd(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds, for each protocol, split and metric."""
    table: dict[str, Any] = {}
    for protocol, first in records[0]["protocols"].items():
        runs = [record["protocols"][protocol] for record in records]
        table[protocol] = {"seconds": _spread([run["seconds"] for run in runs]), "splits": {}}
        for split, metrics in first["splits"].items():
            table[protocol]["splits"][split] = {
                name: _spread([run["splits"][split][name] for run in runs]) for name in metrics
            }
    return table


def _spread(values: list[float]) -> dict[str, float | None]:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "sd": sd}
