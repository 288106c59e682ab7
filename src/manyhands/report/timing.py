"""The section on time: who hurries, and whether work gets better or worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from manyhands.planning.screening import HURRIED
from manyhands.report.annotators import count_hurried, find_profiles
from manyhands.report.filters import percent
from manyhands.report.inputs import Inputs
from manyhands.report.labels import most_doubtful
from manyhands.report.limits import FEW_TIMED, LIMITS
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import counted


def time_section(found: Findings) -> Content | None:
    """Speed and time windows; None without times."""
    inputs = found.inputs
    if inputs.inferred is None or (inputs.seconds is None and inputs.ended is None):
        return None
    codes = {each: k for k, each in enumerate(inputs.table.annotators.tolist())}
    listed = found.once(find_profiles)[: LIMITS["annotators"]]  # In the order in which they matter.
    order = np.array([codes[row["id"]] for row in listed], dtype=np.int64)
    return {"speed": _speed(inputs), "windows": _windows(inputs, order)}


def _right(inputs: Inputs) -> FloatArray:
    """Probability that each annotation is right, by the inferred labels; NaN if nothing judges."""
    if inputs.inferred is None:
        raise ValueError("labels are needed")
    table = inputs.table
    if not inputs.judged:
        return np.full(table.n_annotations, np.nan)
    right: FloatArray = inputs.inferred.posterior[table.instance, table.label]
    return right


def _speed(inputs: Inputs) -> dict[str, Any] | None:
    """Seconds per annotation, and whether fast annotations are worse."""
    if inputs.seconds is None:
        return None
    known = ~np.isnan(inputs.seconds)
    spent, right = inputs.seconds[known], _right(inputs)[known]
    limit = HURRIED * float(np.median(spent))
    fast = spent < limit
    return {
        "n": int(known.sum()),
        "median": float(np.median(spent)),
        "total": float(spent.sum()),
        "limit": limit,
        "n_fast": int(fast.sum()),
        "expected_fast": float(right[fast].mean()) if fast.any() else None,
        "expected_other": float(right[~fast].mean()) if (~fast).any() else None,
        "gold_fast": _gold_share(inputs, np.flatnonzero(known)[fast]),
        "gold_other": _gold_share(inputs, np.flatnonzero(known)[~fast]),
    }


def _gold_share(inputs: Inputs, rows: IntArray) -> dict[str, Any] | None:
    """Share of right annotations among those with gold, and their number."""
    if inputs.gold is None:
        return None
    gold = inputs.gold[inputs.table.instance[rows]]
    judged = gold >= 0
    if not judged.any():
        return None
    right = inputs.table.label[rows][judged] == gold[judged]
    return {"share": float(right.mean()), "n": int(judged.sum())}


def _windows(inputs: Inputs, order: IntArray) -> dict[str, Any] | None:
    """Windows of equally many annotations, in order of time, for the crowd and by annotator."""
    if inputs.ended is None:
        return None
    known = np.flatnonzero(~np.isnan(inputs.ended))
    known = known[np.argsort(inputs.ended[known], kind="stable")]
    parts = np.array_split(known, max(1, min(LIMITS["windows"], len(known) // FEW_TIMED)))
    right = _right(inputs)
    return {
        "n": len(known),
        "rows": [_window(inputs, rows, right) for rows in parts],
        "annotators": _annotators_over_time(inputs, parts, right, order) if inputs.judged else [],
    }


def _window(inputs: Inputs, rows: IntArray, right: FloatArray) -> dict[str, Any]:
    if inputs.ended is None:
        raise ValueError("times are needed")
    seconds = None
    if inputs.seconds is not None and not np.isnan(inputs.seconds[rows]).all():
        seconds = float(np.nanmedian(inputs.seconds[rows]))
    gold = _gold_share(inputs, rows)
    return {
        "from": _date(inputs.ended[rows[0]]),
        "to": _date(inputs.ended[rows[-1]]),
        "n": len(rows),
        "n_annotators": len(np.unique(inputs.table.annotator[rows])),
        "expected": float(right[rows].mean()),
        "gold": None if gold is None else gold["share"],
        "n_gold": 0 if gold is None else gold["n"],
        "seconds": seconds,
    }


def _date(seconds: float) -> str:
    """Write a time in UTC, to the minute."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s"


def _annotators_over_time(
    inputs: Inputs, parts: Sequence[IntArray], right: FloatArray, order: IntArray
) -> list[dict[str, Any]]:
    """Expected accuracy of annotators by window, None where they gave fewer than 5; mistakes."""
    r = inputs.table.n_annotators
    counts = np.zeros((len(parts), r))
    sums = np.zeros((len(parts), r))
    for k, rows in enumerate(parts):
        who = inputs.table.annotator[rows]
        counts[k] = np.bincount(who, minlength=r)
        sums[k] = np.bincount(who, weights=right[rows], minlength=r)
    enough = counts >= 5
    shares = np.where(enough, sums / np.maximum(counts, 1), np.nan)
    shown = order[(enough.sum(axis=0) >= 2)[order]][: LIMITS["annotators_over_time"]]
    doubtful = [most_doubtful(inputs, shown, np.asarray(rows)) for rows in parts]
    return [
        {
            "id": inputs.table.annotators[a].item(),
            "expected": [None if np.isnan(v) else float(v) for v in shares[:, a]],
            "instances": [of_window[k] for of_window in doubtful],
        }
        for k, a in enumerate(shown.tolist())
    ]


def answer_time(s: Mapping[str, Any]) -> Answer:
    """Answer who hurries, and whether work gets better or worse."""
    speed, windows = s["time"].get("speed"), s["time"].get("windows")
    if not speed and not windows:
        return None, "The annotations have no timestamps."
    told = []
    if speed:
        fast = count_hurried(s["annotators"])
        who = (
            f"{counted(fast, 'annotator')} {'takes' if fast == 1 else 'take'}"
            if fast
            else "Nobody takes"
        )
        told.append(f"{who} less than a third of the typical time.")
    if windows and (trend := _trend(windows["rows"])):
        told.append(trend)
    return "time", " ".join(told) or "There are too few times to compare."


def _trend(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say how many annotations are right in the first window of time and in the last."""
    first, last = rows[0], rows[-1]
    if len(rows) < 2:
        return ""
    measured = first["gold"] is not None and last["gold"] is not None
    key, how = (
        ("gold", "measured on gold labels") if measured else ("expected", "expected, not measured")
    )
    if first[key] is None or last[key] is None:
        return ""
    return (
        f"{percent(first[key])} of the first and {percent(last[key])} of the last annotations are "
        f"right ({how})."
    )


TIME = Section(
    "time",
    "Who hurries, and does the work get better or worse?",
    "time.html",
    time_section,
    answer=answer_time,
)
