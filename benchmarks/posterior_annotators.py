"""How near the inferred accuracy of annotators is to their accuracy by gold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pages import table_lines
from posterior_cases import Case

from manyhands import DawidSkene
from manyhands.metrics import annotator_reliability

MODELS = {"default": {}, "dependence=0": {"dependence": 0}}


def annotators(cases: list[Case]) -> Iterator[str]:
    """Yield error, bias and coverage, table by table; annotations weigh the same."""
    rows, found = [], []
    for case in cases:
        table = case.task.table[case.known]
        code_of = {value: code for code, value in enumerate(np.asarray(case.classes).tolist())}
        gold = np.eye(len(case.classes))[[code_of[value] for value in case.gold.tolist()]]
        right = annotator_reliability(table, gold).accuracy
        cells = []
        for options in MODELS.values():
            posterior = DawidSkene(**options).fit(case.task.table).posterior_[case.known]
            n, accuracy, lower, upper = annotator_reliability(table, posterior)
            seen = n > 0
            apart = accuracy[seen] - right[seen]
            covers = (lower[seen] <= right[seen]) & (right[seen] <= upper[seen])
            each = (np.abs(apart), apart, covers)
            cells.append([np.average(values, weights=n[seen]) for values in each])
        found.append(cells)
        rows.append([case.name, f"{seen.sum():,}", f"{n.sum():,}", *shown(cells)])
    rows.append(["mean", "", "", *shown(np.mean(found, axis=0))])
    heads = [f"{m}: {what}" for m in MODELS for what in ("mean error", "bias", "coverage")]
    yield from table_lines(["table", "annotators", "annotations", *heads], rows)


def shown(cells: list[list[float]]) -> list[str]:
    """Format the figures of the models."""
    return [text for e, b, covers in cells for text in (f"{e:.3f}", f"{b:+.3f}", f"{covers:.2f}")]
