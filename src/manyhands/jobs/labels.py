"""Inferred labels as rows, for messages, and as columns, for files."""

from __future__ import annotations

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


def label_columns(
    codes: IntArray, proba: AnyArray, tasks: AnyArray, classes: AnyArray
) -> dict[str, list[Any]]:
    """Columns of each instance's label, its probability, and the probabilities of all classes."""
    rows = label_rows(codes, proba, tasks, classes)
    columns = {name: [row[name] for row in rows] for name in ("task", "label", "probability")}
    shares = dict(zip((f"p({c})" for c in classes.tolist()), proba.T.tolist(), strict=True))
    return columns | shares
