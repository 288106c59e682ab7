"""One job: fit a method on a table (over some seeds), keep the model, and say how good it is."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode, missing_mask
from manyhands.classifiers import BaseCrowdClassifier, load
from manyhands.exceptions import (
    AnnotationError,
    DivergenceError,
    MissingExtraError,
    ModelFolderError,
    WriteError,
)
from manyhands.inference import BaseAggregator
from manyhands.io import GoldFile, read_features, write_atomically
from manyhands.io.files import check_writable
from manyhands.metrics import accuracy, macro_f1
from manyhands.report import summarize, write_report
from manyhands.typing import AnyArray, IntArray

LABELS, SUMMARY = "labels.csv", "summary.json"
OUTPUTS = ("model.json", LABELS, SUMMARY, "report.html")
"""What a job's folder comes to hold, beside the weights (named by their content)."""

LARGEST_SEED = 2**32 - 1


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
        if not self.has_splits:
            names = np.where(annotated, "annotated rows", "other rows")
        return {
            str(name): np.flatnonzero(known & (names == name))
            for name in sorted(np.unique(names[known]), key=_split_order)
        }

    @property
    def has_splits(self) -> bool:
        """Whether rows belong to splits."""
        return not set(self.splits) <= {"all", ""}


def _split_order(name: str) -> tuple[int, str]:
    usual = ["train", "valid", "test"]
    return (usual.index(name) if name in usual else len(usual), name)


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
    """Leave out annotations of rows that the gold file assigns to another split than train.

    Raises
    ------
    AnnotationError
        If no annotation is left.
    """
    if gold is None or not gold.has_splits:
        return table
    train = table.take(np.isin(gold.splits, ["train", "all", ""])[table.instance])
    if not train.n_annotations:
        found = ", ".join(map(repr, sorted(set(gold.splits) - {""})))
        raise AnnotationError(
            f"no annotation is of a row in split 'train'; the splits in gold are {found}. Name "
            "the rows to train on 'train', or leave the split column out"
        )
    return train


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
        report shows). Until the job is done, every fit has its checkpoint here; an interrupted
        job run again goes on from them.
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
        ``method``, ``data`` (counts of what was trained on), ``seeds``, ``left_out`` (annotations
        of rows outside the train split), ``records`` (a dict a seed: protocol -> split -> metrics)
        and ``table`` (protocol -> split -> mean and sd over seeds).

    Raises
    ------
    AnnotationError
        If ``seeds`` or ``holdout`` cannot be used, or no annotation is left to train on.
    ModelFolderError
        If a checkpoint in the folder belongs to another run.
    WriteError
        If the folder cannot be written, or holds a ``labels.csv`` of somebody else.
    """
    train = training_part(table, gold)
    seeds = _check_seeds(seeds)
    protocols = _protocols(estimator, holdout, train)
    records: list[dict[str, Any]] = []
    with job_folder(folder) as place:
        for i, seed in enumerate(seeds):
            record: dict[str, Any] = {"seed": seed, "protocols": {}}
            for j, (protocol, validation) in enumerate(protocols.items()):
                model = clone(estimator).set_params(
                    random_state=seed,
                    validation=validation,
                    checkpoint=_checkpoint(place, i * len(protocols) + j),
                )
                seconds = _fit(model, X, train, place)
                record["protocols"][protocol] = {
                    "seconds": seconds,
                    "epoch": _kept_epoch(model),
                    "splits": _measure(model, X, table, gold, train),
                }
                if i == j == 0:
                    keep_model(model, X, train, place, gold=gold)
            records.append(record)
            on_seed(record)
        # Only now: a job killed after its first seed goes on from what it has.
        _clear_checkpoints(place)
    return {
        "method": type(estimator).__name__,
        "data": {
            "instances": int((train.annotations_per_instance() > 0).sum()),
            "annotators": int((train.annotations_per_annotator() > 0).sum()),
            "annotations": train.n_annotations,
            "classes": train.n_classes,
        },
        "seeds": seeds,
        "left_out": table.n_annotations - train.n_annotations,
        "records": records,
        "table": _mean_and_sd(records),
    }


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


def _check_seeds(seeds: Iterable[int]) -> list[int]:
    seeds = list(seeds)
    wrong = [seed for seed in seeds if not 0 <= seed <= LARGEST_SEED]
    if wrong or not seeds:
        found = f"seeds hold {wrong[0]}" if wrong else "seeds are empty"
        raise AnnotationError(f"{found}; give integers from 0 to {LARGEST_SEED}")
    return seeds


def _protocols(
    estimator: BaseCrowdClassifier, holdout: float | None, train: AnnotationTable
) -> dict[str, Any]:
    """Name every way to choose the epoch, with the ``validation`` it stands for."""
    own = estimator.get_params(deep=False)["validation"]
    protocols = {"last epoch" if own is None else "chosen on validation": own}
    if holdout is not None:
        n = train.n_annotations
        if not (0 < holdout < 1 and 0 < round(holdout * n) < n):
            raise AnnotationError(
                f"holdout={holdout} of {n} annotations leaves nothing to hold out or nothing to "
                "train on; give a fraction such as 0.1"
            )
        protocols["chosen on held-out annotations"] = holdout
    return protocols


def _checkpoint(folder: Path, number: int) -> Path:
    return folder / ("checkpoint" + (f"-{number}" if number else "") + ".safetensors")


def _fit(model: BaseCrowdClassifier, X: Any, train: AnnotationTable, folder: Path) -> float:
    """Fit and return the seconds it took, those before an interruption included."""
    started = perf_counter()
    try:
        model.fit(X, train)
    except DivergenceError:
        # It would diverge again: checkpoints would only stand in the way of other parameters.
        _clear_checkpoints(folder)
        raise
    return max(perf_counter() - started, sum(row["seconds"] for row in model.history_))


def _clear_checkpoints(folder: Path) -> None:
    """Remove checkpoints, and what a killed process left of one."""
    for path in [*folder.glob("checkpoint*.safetensors"), *folder.glob(".checkpoint*.part")]:
        path.unlink(missing_ok=True)


def _kept_epoch(model: BaseCrowdClassifier) -> int | None:
    last = model.history_[-1]["epoch"] if model.history_ else None
    return getattr(model, "best_epoch_", last)


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
