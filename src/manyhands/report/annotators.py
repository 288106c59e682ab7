"""The annotators section: number of annotations, accuracy, mistakes and flags per annotator."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.metrics import AnnotatorReliability, annotator_reliability
from manyhands.planning import AnnotatorScreen, Screening
from manyhands.planning.screening import NOTHING, TOO_FEW
from manyhands.report.agreement import agreement_with_others
from manyhands.report.confusions import (
    count_mistakes,
    matrices_section,
    spammer_scores,
    top_mistake,
)
from manyhands.report.gold import gold_by_annotator
from manyhands.report.inputs import Inputs
from manyhands.report.labels import most_doubtful
from manyhands.report.limits import FEW, FEW_TIMED, LIMITS
from manyhands.report.timing import seconds_by_annotator
from manyhands.report.unexpected import unexpected_by_annotator
from manyhands.typing import BoolArray, FloatArray, IntArray

LEVEL = 0.95

FLAGS = ("fewer than 5", "significantly below chance", "always the same class")


def annotators_section(inputs: Inputs, screening: Screening | None) -> dict[str, Any] | None:
    """Reliability, flags and confusion matrices; those to look at first come first."""
    table, inferred = inputs.table, inputs.inferred
    if inferred is None:
        return None
    found = annotator_reliability(table, inferred.posterior, level=LEVEL)
    flags = flags_of(table, found)
    profiles = _profiles(inputs, found, flags, screening)
    order = order_of(inputs, profiles, found)
    shown, rest = order[: LIMITS["annotators"]], order[LIMITS["annotators"] :]
    active = found.n_annotations > 0
    counts = count_mistakes(table, inferred.codes, shown)
    note, matrices = matrices_section(inputs, inferred, shown, counts)
    scores = spammer_scores(inputs, inferred, shown)
    rows = [profiles[r] for r in shown.tolist()]
    doubtful = most_doubtful(inputs, shown)
    for k, row in enumerate(rows):
        row["mistake"] = top_mistake(table, counts[k])
        row["matrix"] = matrices[k] if k < len(matrices) else None
        row["instances"] = doubtful[k]
        row["spammer_score"] = None if scores is None else scores[k]
    measured = [row["gold"]["accuracy"] for row in profiles if row["gold"] is not None]
    return {
        "total": table.n_annotators,
        "n_active": int(active.sum()),
        "n_flagged": sum(bool(row["screen"]["flags"]) for row in profiles),
        "shown": len(shown),
        "level": LEVEL,
        "chance": 1.0 / table.n_classes,
        "source": inferred.name,
        "median_accuracy": float(np.median(found.accuracy[active])),
        "median_gold": float(np.median(measured)) if measured else None,
        "n_with_gold": len(measured),
        "n_at_or_below_chance": _count_at_or_below(1.0 / table.n_classes, profiles),
        "n_judged_by_gold": sum(map(_has_gold, profiles)),
        "flag_counts": {name: int(marks.sum()) for name, marks in flags.items()},
        "flagged": {name: _first_ids(table, order[marks[order]]) for name, marks in flags.items()},
        "histogram": _accuracy_histogram(found.accuracy[active]),
        "rows": rows,
        "rest": _rest(found, flags, rest, [profiles[r] for r in rest.tolist()]),
        "matrices": note,
    }


SERIOUS = frozenset(
    {
        *("no better than chance", "one label", "repeating pattern", "too fast"),
        *("significantly below chance", "always the same class", "below the median on gold"),
    }
)
"""Flags that come before others."""


def order_of(
    inputs: Inputs, profiles: list[dict[str, Any]], found: AnnotatorReliability
) -> IntArray:
    """Order annotators: serious flags, other flags, no flags, too few annotations to judge.

    Within each of these, the one comes first whose accuracy is the lowest at best, by gold if there
    is enough of it.
    """
    severity = [_severity(row) for row in profiles]
    at_best = [
        row["gold"]["upper"] if _has_gold(row) else float(found.upper[r])
        for r, row in enumerate(profiles)
    ]
    order: IntArray = np.lexsort(
        (-found.n_annotations, np.round(at_best, 9), np.array(severity, dtype=np.int64))
    )
    return order


def _severity(row: dict[str, Any]) -> int:
    marks = {*row["flags"], *row["screen"]["flags"]}
    if row["n_annotations"] < FEW:
        return 3 if row["n_annotations"] else 4
    return 0 if marks & SERIOUS else 1 if marks else 2


def _has_gold(row: dict[str, Any]) -> bool:
    return row["gold"] is not None and row["gold"]["n"] >= FEW_TIMED


def _count_at_or_below(chance: float, profiles: list[dict[str, Any]]) -> int:
    """Count the annotators of so low an accuracy: by gold, or as expected with too little of it.

    An annotator's own votes raise the expected accuracy, in vote shares above all.
    """
    best = [row["gold"] if _has_gold(row) else row for row in profiles if row["n_annotations"]]
    return sum(row["accuracy"] <= chance for row in best)


def flags_of(table: AnnotationTable, found: AnnotatorReliability) -> dict[str, BoolArray]:
    """Mask of the annotators with each of the `FLAGS`.

    Significantly below chance means that the whole interval is.
    """
    n = found.n_annotations
    pairs = np.unique(table.annotator.astype(np.int64) * table.n_classes + table.label)
    n_given = np.bincount(pairs // table.n_classes, minlength=table.n_annotators)
    chance = 1.0 / table.n_classes
    marks = ((n > 0) & (n < FEW), found.upper < chance, (n >= FEW) & (n_given == 1))
    return dict(zip(FLAGS, marks, strict=True))


def _first_ids(table: AnnotationTable, annotators: IntArray) -> list[Any]:
    ids: list[Any] = table.annotators[annotators[: LIMITS["named"]]].tolist()
    return ids


def _accuracy_histogram(accuracy: FloatArray) -> list[dict[str, float]]:
    edges = np.linspace(0.0, 1.0, 21)
    counts, _ = np.histogram(accuracy.clip(0.0, 1.0), bins=edges)
    return [
        {"from": float(low), "to": float(high), "count": int(n)}
        for low, high, n in zip(edges[:-1].round(2), edges[1:].round(2), counts, strict=True)
    ]


def _profiles(
    inputs: Inputs,
    found: AnnotatorReliability,
    flags: dict[str, BoolArray],
    screening: Screening | None,
) -> list[dict[str, Any]]:
    """All that is known of every annotator, in the order of the vocabulary."""
    table = inputs.table
    gold, times = gold_by_annotator(inputs), seconds_by_annotator(inputs)
    others = agreement_with_others(inputs)
    passes = [np.bincount(p[:, 1], minlength=table.n_annotators)
              for p in (table.abstentions, table.skips)]  # fmt: skip
    proportion, unexpected = _common_proportion(inputs), unexpected_by_annotator(inputs)
    screened = {} if screening is None else {row.annotator: row for row in screening}
    rows = [
        {
            "id": table.annotators[r].item(),
            "n_annotations": int(found.n_annotations[r]),
            "accuracy": float(found.accuracy[r]),
            "lower": float(found.lower[r]),
            "upper": float(found.upper[r]),
            "flags": [name for name, marks in flags.items() if marks[r]],
            "gold": None if gold is None else gold[r],
            "others": others[r],
            "abstentions": int(passes[0][r]),
            "skips": int(passes[1][r]),
            "pass_rate": _share(int(passes[0][r] + passes[1][r]), int(found.n_annotations[r])),
            "times": None if times is None else times[r],
            "common_proportion": None if proportion is None else float(proportion[r]),
            "unexpected": None if unexpected is None else unexpected[r],
        }
        for r in range(table.n_annotators)
    ]
    measured = [row["gold"]["accuracy"] for row in rows if _has_gold(row)]
    median = float(np.median(measured)) if measured else None
    spent = None if inputs.seconds is None else float(np.nanmedian(inputs.seconds))
    for row in rows:
        row["screen"] = _screen(row, screened.get(row["id"]), median, spent)
    return rows


def _share(n: int, others: int) -> float | None:
    return n / (n + others) if n + others else None


def _screen(
    row: dict[str, Any], found: AnnotatorScreen | None, median: float | None, spent: float | None
) -> dict[str, Any]:
    """Flags with their evidence and an advice; what was measured comes first."""
    marks: dict[str, tuple[str, str]] = {}
    if median is not None and _has_gold(row) and row["gold"]["upper"] < median:
        gold = row["gold"]
        marks["below the median on gold"] = (
            f"right in {gold['right']:,} of {gold['n']:,} annotations with gold; the median "
            f"annotator in {median:.0%}",
            "go through their wrong answers with them",
        )
    if row["times"] is not None and row["times"]["too_fast"]:
        marks["too fast"] = (
            f"takes {row['times']['median']:.1f} s, the crowd {spent:.1f} s",
            "read 20 of their annotations before judging: some tasks are easy",
        )
    if found is not None:
        marks |= {
            name: (text, found.advice)
            for name, text in zip(found.flags, found.evidence, strict=True)
        }
    advice = next((advice for _, advice in marks.values()), None)
    if advice is None:
        advice = NOTHING if row["n_annotations"] >= FEW else TOO_FEW
    return {
        "flags": list(marks),
        "evidence": [evidence for evidence, _ in marks.values()],
        "advice": advice,
    }


def _rest(
    found: AnnotatorReliability,
    flags: dict[str, BoolArray],
    rest: IntArray,
    profiles: list[dict[str, Any]],
) -> dict[str, Any] | None:
    """Summarise the annotators that the table leaves out, and list them briefly."""
    if not len(rest):
        return None
    n = found.n_annotations[rest]
    active = found.accuracy[rest][n > 0]
    return {
        "n": len(rest),
        "n_annotations": int(n.sum()),
        "most": int(n.max()),
        "median_accuracy": float(np.median(active)) if len(active) else None,
        "flag_counts": {name: int(marks[rest].sum()) for name, marks in flags.items()},
        "rows": [
            {
                "id": row["id"],
                "n_annotations": row["n_annotations"],
                "accuracy": row["accuracy"],
                "lower": row["lower"],
                "upper": row["upper"],
                "gold": None if row["gold"] is None else row["gold"]["accuracy"],
                "flags": [*row["flags"], *row["screen"]["flags"]],
            }
            for row in profiles[: LIMITS["more_annotators"]]
        ],
    }


def _common_proportion(inputs: Inputs) -> FloatArray | None:
    """How much each annotator follows the common confusion, if a classifier learnt it."""
    values = getattr(inputs.classifier, "common_proportion_", None)
    if values is None:
        return None
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (inputs.table.n_annotators,):
        raise AnnotationError(
            f"classifier.common_proportion_ has shape {values.shape}; it must have one value per "
            f"annotator of the table, shape ({inputs.table.n_annotators},)"
        )
    return values
