"""The section that compares labels with gold, if gold is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.inference.vote_sums import vote_shares
from manyhands.inference.votes import make_votes
from manyhands.metrics import accuracy, expected_calibration_error, macro_f1, minority_recall
from manyhands.metrics.gold import rarer_half
from manyhands.report.inputs import Inputs
from manyhands.report.limits import LIMITS
from manyhands.typing import BoolArray, FloatArray, IntArray


def gold_section(inputs: Inputs) -> dict[str, Any] | None:
    """Compare majority vote, inferred labels and predictions on the same instances with gold."""
    if inputs.gold is None or inputs.inferred is None:
        return None
    judged = inputs.annotated & (inputs.gold >= 0)
    if not judged.any():
        return None
    minority = rarer_half(inputs.gold[judged])
    return {
        "n": int(judged.sum()),
        "n_without": int((inputs.annotated & (inputs.gold < 0)).sum()),
        "minority": inputs.table.classes[minority[::-1][: LIMITS["named"]]],
        "n_minority": len(minority),
        "annotations": _annotations(inputs, judged),
        "rows": _rows(inputs, judged),
    }


def _rows(inputs: Inputs, judged: BoolArray) -> list[dict[str, Any]]:
    inferred = inputs.inferred
    shares = vote_shares(make_votes(inputs.table))
    rows = [_row("majority vote", inputs, judged, shares.argmax(axis=1), shares)]
    if inferred is not None and inferred.kind != "majority":
        proba = inferred.posterior if inferred.probable else None
        rows.append(_row(inferred.name, inputs, judged, inferred.codes, proba))
    proba = inputs.predicted
    if proba is not None and inferred is not None and inferred.posterior is not proba:
        name = f"{type(inputs.classifier).__name__} (prediction)"
        # A classifier need not predict the most probable class.
        decide = getattr(inputs.classifier, "_decide", lambda proba: proba.argmax(axis=1))
        rows.append(_row(name, inputs, judged, decide(proba), proba))
    return rows


def _row(
    name: str, inputs: Inputs, judged: BoolArray, codes: IntArray, proba: FloatArray | None
) -> dict[str, Any]:
    if inputs.gold is None:
        raise ValueError("gold is needed")
    y, predicted = inputs.gold[judged], codes[judged]
    return {
        "name": name,
        "accuracy": accuracy(y, predicted),
        "macro_f1": macro_f1(y, predicted),
        "minority_recall": minority_recall(y, predicted),
        **_calibration(None if proba is None else proba[judged], predicted, y),
    }


def _calibration(
    proba: FloatArray | None, predicted: IntArray, y: IntArray
) -> dict[str, float | None]:
    """Mean probability of the labels (their expected accuracy), and the ECE."""
    if proba is None:
        return {"expected": None, "ece": None}
    return {
        "expected": float(np.take_along_axis(proba, predicted[:, None], axis=1).mean()),
        "ece": expected_calibration_error(proba, y, classes=np.arange(proba.shape[1])),
    }


def _annotations(inputs: Inputs, judged: BoolArray) -> dict[str, float]:
    """Share of correct annotations of the judged instances, by gold and as inferred."""
    table, gold, inferred = inputs.table, inputs.gold, inputs.inferred
    if gold is None or inferred is None:
        raise ValueError("gold and inferred labels are needed")
    rows = judged[table.instance]
    instance, label = table.instance[rows], table.label[rows]
    return {
        "right": float((label == gold[instance]).mean()),
        "expected": float(inferred.posterior[instance, label].mean()),
    }
