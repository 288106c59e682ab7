"""The training section: learning curves from ``history_``, and what a stack says of itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from manyhands.codes import WarningCode
from manyhands.report.filters import duration
from manyhands.report.limits import LIMITS
from manyhands.report.section import Answer, Content, Findings, Rows, Section
from manyhands.wording import counted, shorten

History = list[Mapping[str, Any]]

NOT_MEASURES = frozenset({"stage", "epoch", "round", "seconds"})

PREFIXES = ("train_", "validation_", "valid_", "val_")

OF_STACKS = ("nll", "relative_informedness")
"""What is drawn of a stack; members stand in a table, and class shares in their own section."""


def training_section(found: Findings) -> Content | None:
    """Stages, seconds and learning curves; None without a history."""
    classifier = found.inputs.classifier
    logged = getattr(classifier, "history_", None)
    history: History = [] if logged is None else [dict(row) for row in logged]
    if not history:
        return None
    stack = _stack(classifier)
    names = _measures(history)
    if stack is not None:
        names = [name for name in names if name in OF_STACKS]
    shown = _shown(names)
    return {
        "classifier": type(classifier).__name__,
        "n_epochs": len(history),
        # In self-training a row is a whole fit; round 0 is the one before anything is added.
        "unit": "round" if "round" in history[0] or stack is not None else "epoch",
        "first": 0 if "round" in history[0] else 1,
        "kept": _kept(classifier, history),
        "seconds": _seconds(history),
        "stages": _stages(history),
        "total": len(names),
        "shown": len(shown),
        "points": min(len(history), LIMITS["curve_points"]),
        "charts": _charts(history, shown),
        "stack": stack,
    }


def _stack(classifier: Any) -> dict[str, Any] | None:
    """Return members, relative informedness and class shares of a stack; None for other models."""
    weights = getattr(classifier, "member_weights_", None)
    if weights is None or not hasattr(classifier, "class_prior"):
        return None
    temperatures = classifier.member_temperatures_
    prior = classifier.class_prior
    return {
        "members": [
            {"name": name, "weight": weight, "temperature": temperatures[name]}
            for name, weight in weights.items()
        ],
        "relative_informedness": classifier.relative_informedness_,
        "weak_features": WarningCode.LOW_INFORMEDNESS in getattr(classifier, "doubts_", {}),
        "vote_share": classifier.vote_share_,
        "class_prior": prior if isinstance(prior, str) else "given",
        "prior_shrinkage": classifier.prior_shrinkage_,
    }


def _kept(classifier: Any, history: History) -> int | None:
    """Round whose classifier was kept; None if there are no rounds."""
    if "round" not in history[0]:
        return None
    kept: Any = getattr(classifier, "best_round_", history[-1]["round"])
    return int(kept)


def _shown(names: list[str]) -> list[str]:
    """Choose the measures to draw; ``added_`` measures share a chart, if there are few."""
    added = [name for name in names if name.startswith("added_")]
    others = [name for name in names if name not in added][: LIMITS["curves"]]
    return others + (added if len(added) <= LIMITS["series"] else [])


def _measures(history: History) -> list[str]:
    """Names of the logged numbers, in order of appearance."""
    names = dict.fromkeys(str(key) for row in history for key in row)
    return [
        name
        for name in names
        if name not in NOT_MEASURES and any(_number(row.get(name)) is not None for row in history)
    ]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return None
    return float(value)


def _seconds(history: History) -> float | None:
    known = [s for row in history if (s := _number(row.get("seconds"))) is not None]
    return sum(known) if known else None


def _stages(history: History) -> list[dict[str, Any]]:
    """Name, first row (from 1), number of epochs and seconds of each stage."""
    starts = [
        k
        for k, row in enumerate(history)
        if k == 0 or row.get("stage") != history[k - 1].get("stage")
    ]
    stops = [*starts[1:], len(history)]
    return [
        {
            "name": str(history[start].get("stage", "training")),
            "first": start + 1,
            "n_epochs": stop - start,
            "seconds": _seconds(history[start:stop]),
        }
        for start, stop in zip(starts, stops, strict=True)
    ]


def _charts(history: History, names: list[str]) -> list[dict[str, Any]]:
    """Group series by chart: ``nll`` with ``validation_nll``, and all ``added_`` series."""
    groups: dict[str, list[str]] = {}
    for name in names:
        base = next((name.removeprefix(p) for p in PREFIXES if name.startswith(p)), name)
        base = "added" if name.startswith("added_") else base
        groups.setdefault(base, []).append(name)
    rows = _thinned(len(history))
    return [
        {"name": base, "series": [_series(history, name, rows) for name in members]}
        for base, members in groups.items()
    ]


def _thinned(n: int) -> list[int]:
    """Evenly spaced rows, including the first and the last."""
    limit = LIMITS["curve_points"]
    if n <= limit:
        return list(range(n))
    return [round(k * (n - 1) / (limit - 1)) for k in range(limit)]


def _series(history: History, name: str, rows: list[int]) -> dict[str, Any]:
    values = [_number(row.get(name)) for row in history]
    known = [v for v in values if v is not None]
    return {
        "name": name,
        "points": [[k + 1, values[k]] for k in rows],
        "first": known[0],
        "last": known[-1],
        "lowest": min(known),
        "highest": max(known),
    }


def _tables(own: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Learning curves, one row per point."""
    yield (
        "training_curves",
        [
            {"measure": series["name"], own["unit"]: x, "value": y}
            for chart in own["charts"]
            for series in chart["series"]
            for x, y in series["points"]
        ],
    )


def answer_training(s: Mapping[str, Any]) -> Answer:
    """Answer how long the training was."""
    found = s.get("training")
    if not found:
        return "training", ""
    n = counted(found["n_epochs"], found.get("unit", "epoch"))
    took = "" if found["seconds"] is None else f", in {duration(found['seconds'])}"
    return "training", f"{shorten(str(found['classifier']))}: {n}{took}."


TRAINING = Section(
    "training",
    "How did the training go?",
    "training.html",
    training_section,
    tables=_tables,
    answer=answer_training,
    on_demand=True,
)
