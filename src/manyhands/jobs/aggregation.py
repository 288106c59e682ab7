"""Truth inference as a job: one method's labels, or all methods side by side (no torch)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.decision import decide
from manyhands.inference.base import BaseAggregator
from manyhands.inference.comparison import against_gold, compare
from manyhands.io import GoldFile, write_atomically
from manyhands.jobs.gold import match_gold
from manyhands.jobs.labels import label_rows, labels_csv

NAMES = {
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
) -> dict[str, Any]:
    """Aggregate a table; write all labels as CSV if ``out`` is given.

    Parameters
    ----------
    table : AnnotationTable
    aggregator : BaseAggregator
    gold : GoldFile, optional
        For evaluation only.
    out : str or Path, optional
    known : GoldFile, optional
        Classes that are known, for the method to use (gold questions).
    rule, threshold : as in `manyhands.decide`

    Returns
    -------
    dict
        ``method``, ``n_instances``, ``n_undecided``, ``labels`` (task, label, probability),
        ``gold`` (metrics on the instances with annotations and gold that ``known`` does not name,
        or None).
    """
    clamped = None if known is None else match_gold(known, table).codes
    if known is not None and clamped is not None:
        lost = int(known.known.sum() - (clamped >= 0).sum())
        if lost:
            warn(f"{lost} of the known labels are of tasks that have no annotations", stacklevel=2)
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
        write_atomically(out, labels_csv(codes, posterior, table.instances, table.classes))
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
    """Figures against gold, on the instances where something was decided."""
    decided = rows[codes[rows] >= 0]
    found: dict[str, Any] = {"instances with gold": len(rows)}
    if len(decided) < len(rows):
        found["of them decided"] = len(decided)
    if len(decided):
        labels = table.classes[codes[decided]]
        figures = against_gold(table.classes, truth[decided], labels, posterior[decided])
        found |= {NAMES[key]: value for key, value in figures.items() if value is not None}
    return found


def compare_methods(
    table: AnnotationTable, gold: GoldFile | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Score every method on a table; see `manyhands.inference.comparison.compare`."""
    values = np.array([*table.classes.tolist(), None], dtype=object)
    truth = None if gold is None else values[match_gold(gold, table).codes]
    scores = compare(table, gold=truth, random_state=seed)
    return {"n_instances": table.n_instances, "methods": [asdict(score) for score in scores]}
