"""Inferred labels as rows for JSON and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from manyhands.typing import AnyArray, IntArray


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


def labels_csv(codes: IntArray, proba: AnyArray, tasks: AnyArray, classes: AnyArray) -> str:
    """CSV of each instance's label, its probability, and the probabilities of all classes."""
    text = io.StringIO()
    # The csv module does not quote a lone carriage return, at which readers end the row.
    names = map(str, [*tasks.tolist(), *classes.tolist()])
    quote_all = any("\r" in name for name in names)
    writer = csv.writer(
        text,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL,
    )
    writer.writerow(["task", "label", "probability", *(f"p({c})" for c in classes.tolist())])
    for row, shares in zip(label_rows(codes, proba, tasks, classes), proba.tolist(), strict=True):
        writer.writerow(
            [row["task"], row["label"], f"{row['probability']:.6f}", *(f"{p:.6f}" for p in shares)]
        )
    return text.getvalue()
