"""Truth inference jobs: the labels of one method, or all methods compared (without torch)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.decision import decide
from manyhands.exceptions import warn_caller
from manyhands.inference.base import BaseAggregator
from manyhands.inference.comparison import against_gold, compare_aggregators
from manyhands.io import GoldFile
from manyhands.io.frames import check_table_path, write_table
from manyhands.jobs.gold import match_gold
from manyhands.typing import AnyArray, IntArray

METRIC_NAMES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "minority_recall": "minority recall",
    "ece": "calibration error",
}


def aggregate_table(
    table: AnnotationTable,
    aggregator: BaseAggregator,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    known: GoldFile | None = None,
    rule: str = "argmax",
    threshold: float | None = None,
    keep_formulas: bool = False,
) -> dict[str, Any]:
    """Aggregate a table, and write all labels if ``out`` is given.

    Parameters
    ----------
    table : AnnotationTable
    aggregator : BaseAggregator
    gold : GoldFile, optional
        Gold labels, used for evaluation only.
    out : str or Path, optional
        File to write: .csv, .tsv, .parquet, .json or .jsonl.
    known : GoldFile, optional
        Known classes (gold questions), which the method uses.
    rule, threshold : as in `manyhands.decide`
    keep_formulas : as in `manyhands.io.frames.write_table`

    Returns
    -------
    dict
        ``method``, ``n_instances``, ``n_undecided``, ``labels`` (task, label, probability) and
        ``gold``: metrics on the annotated instances that have gold and are not in ``known``, or
        None.
    """
    if out is not None:
        check_table_path(out)
    clamped = None if known is None else match_gold(known, table).codes
    if known is not None and clamped is not None:
        lost = int(known.known.sum() - (clamped >= 0).sum())
        if lost:
            warn_caller(f"{lost} of the known labels belong to tasks without annotations")
    values = np.array([*table.classes.tolist(), None], dtype=object)
    aggregator.fit(table, gold=None if clamped is None else values[clamped])
    posterior = aggregator.posterior_
    codes = decide(
        posterior,
        rule,
        threshold=threshold,
        ties="random" if aggregator.ties == "random" else "first",
        random_state=aggregator.random_state,
    )
    metrics: dict[str, Any] | None = None
    if gold is not None:
        truth = match_gold(gold, table).codes
        rows = np.flatnonzero((truth >= 0) & (table.annotations_per_instance() > 0))
        if clamped is not None:
            rows = rows[clamped[rows] < 0]
        metrics = _metrics(table, posterior, codes, truth, rows)
    if out is not None:
        columns = label_columns(codes, posterior, table.instances, table.classes)
        write_table(out, columns, keep_formulas=keep_formulas)
    return {
        "method": type(aggregator).__name__,
        "n_instances": table.n_instances,
        "n_undecided": int((codes < 0).sum()),
        "labels": label_rows(codes, posterior, table.instances, table.classes),
        "gold": metrics,
    }


def _metrics(
    table: AnnotationTable, posterior: Any, codes: Any, truth: Any, rows: Any
) -> dict[str, Any]:
    """Metrics against gold, on the instances that received a label."""
    labelled = rows[codes[rows] >= 0]
    metrics: dict[str, Any] = {"instances with gold": len(rows)}
    if len(labelled) < len(rows):
        metrics["of them decided"] = len(labelled)
    if len(labelled):
        labels = table.classes[codes[labelled]]
        values = against_gold(table.classes, truth[labelled], labels, posterior[labelled])
        metrics |= {METRIC_NAMES[key]: value for key, value in values.items() if value is not None}
    return metrics


def compare_methods(
    table: AnnotationTable, gold: GoldFile | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Score every method on a table; see `manyhands.inference.comparison.compare_aggregators`."""
    values = np.array([*table.classes.tolist(), None], dtype=object)
    truth = None if gold is None else values[match_gold(gold, table).codes]
    scores = compare_aggregators(table, gold=truth, random_state=seed)
    return {"n_instances": table.n_instances, "methods": [asdict(score) for score in scores]}


def label_rows(
    codes: IntArray, proba: AnyArray, tasks: AnyArray, classes: AnyArray
) -> list[dict[str, Any]]:
    """Label and probability of each instance, as plain values.

    A code of -1 means undecided: the label is None and the probability is the largest one.
    """
    values = [*classes.tolist(), None]
    top = proba.max(axis=1)
    chosen = proba[range(len(codes)), codes]
    shown = [float(p if code >= 0 else m) for code, p, m in zip(codes, chosen, top, strict=True)]
    return [
        {"task": task, "label": values[code], "probability": p}
        for task, code, p in zip(tasks.tolist(), codes, shown, strict=True)
    ]


def label_columns(
    codes: IntArray, proba: AnyArray, tasks: AnyArray, classes: AnyArray
) -> dict[str, list[Any]]:
    """Columns of each instance's label, its probability, and the probabilities of all classes."""
    rows = label_rows(codes, proba, tasks, classes)
    columns = {name: [row[name] for row in rows] for name in ("task", "label", "probability")}
    shares = dict(zip((f"p({c})" for c in classes.tolist()), proba.T.tolist(), strict=True))
    return columns | shares
