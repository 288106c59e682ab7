"""The section that compares labels with gold, if gold is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.codes import ActionCode, WarningCode
from manyhands.decision.labels import best_of, is_scale_of_grades
from manyhands.inference.votes import make_votes, vote_shares
from manyhands.metrics import (
    accuracy,
    annotator_reliability,
    expected_calibration_error,
    macro_f1,
    minority_recall,
)
from manyhands.metrics.gold import rarer_half
from manyhands.metrics.grades import score_grades
from manyhands.metrics.intervals import share_interval
from manyhands.planning.screening import LEVEL, RightByGold, right_by_gold
from manyhands.report.filters import percent
from manyhands.report.inputs import Inputs
from manyhands.report.limits import FEW, LIMITS, OVERCONFIDENT
from manyhands.report.section import Action, Answer, Content, Findings, Section
from manyhands.typing import BoolArray, FloatArray, IntArray
from manyhands.wording import GOLD_ONLY_MEASURES, SCORES, counted

CONTRADICTIONS = 2
"""Good annotators who must contradict a gold label with one class before it is doubted."""

MOST_DOUBTED = 0.1
"""Share of the gold labels that may be doubted; where annotators contradict more, they err."""


def gold_section(found: Findings) -> Content | None:
    """Compare majority vote, inferred labels and predictions on the same instances with gold."""
    inputs = found.inputs
    if inputs.gold is None or inputs.inferred is None:
        return None
    judged = inputs.annotated & (inputs.gold >= 0)
    if not judged.any():
        return None
    minority = rarer_half(inputs.gold[judged])
    return {
        "n": int(judged.sum()),
        "n_chosen": int((judged & inputs.chosen_gold).sum()),
        "n_without": int((inputs.annotated & (inputs.gold < 0)).sum()),
        "minority": inputs.table.classes[minority[::-1][: LIMITS["named"]]],
        "n_minority": len(minority),
        "annotations": measured_annotations(inputs, inputs.gold),
        "rows": _rows(inputs, judged),
        "doubts": _doubts(inputs, inputs.inferred.posterior),
    }


def _rows(inputs: Inputs, judged: BoolArray) -> list[dict[str, Any]]:
    inferred = inputs.inferred
    shares = vote_shares(make_votes(inputs.table))
    rows = [_row("majority vote", inputs, judged, best_of(shares, inputs.table), shares)]
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
        **_grades(inputs.table, y, predicted, None if proba is None else proba[judged]),
        **_calibration(None if proba is None else proba[judged], predicted, y),
    }


def _grades(
    table: AnnotationTable, y: IntArray, predicted: IntArray, proba: FloatArray | None
) -> dict[str, float | None]:
    """Return how far labels are off in grades, if the classes are grades."""
    if not is_scale_of_grades(table):
        return {}
    return dict(score_grades(y, predicted, proba)._asdict())


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


def measured_annotations(inputs: Inputs, gold: IntArray) -> dict[str, float]:
    """Share of correct annotations of the items with gold, by gold and as inferred."""
    table, inferred = inputs.table, inputs.inferred
    if inferred is None:
        raise ValueError("inferred labels are needed")
    rows = gold[table.instance] >= 0
    instance, label = table.instance[rows], table.label[rows]
    right = label == gold[instance]
    low, high = share_of_clusters(right, instance)
    return {
        "n": len(right),
        "right": float(right.mean()),
        "low": low,
        "high": high,
        "expected": float(inferred.posterior[instance, label].mean()),
    }


def share_of_clusters(right: BoolArray, cluster: IntArray) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a share, of annotations that come in clusters.

    Annotations of an item tend to be right or wrong together, so they tell less than as many single
    ones. The effective number of annotations is that of the ratio estimator: m (1 - m) over its
    variance between clusters, at most their number.
    """
    _, place = np.unique(cluster, return_inverse=True)
    n = np.bincount(place)
    k, share = len(n), float(right.mean())
    off = np.bincount(place, right) - share * n
    variance = k / max(k - 1, 1) * float((off**2).sum()) / len(right) ** 2
    size: float = k  # Where all are right, or none is, nothing shows how clusters differ.
    if 0 < share < 1:
        size = min(share * (1 - share) / max(variance, 1e-12), len(right))
    low, high = share_interval(share * size, size, level=LEVEL)
    return float(low), float(high)


def gold_by_annotator(inputs: Inputs) -> list[dict[str, Any] | None] | None:
    """Measured accuracy of every annotator on instances with gold, with a 95 % interval."""
    if inputs.judging is None:
        return None
    found = right_by_gold(inputs.table, inputs.judging)
    if not found.n.any():
        return None
    return rows_by_gold(found)


def rows_by_gold(found: RightByGold) -> list[dict[str, Any] | None]:
    """Measured accuracy of each annotator; None without annotations of known class."""
    return [
        None
        if not found.n[r]
        else {
            "n": int(found.n[r]),
            "right": int(found.right[r]),
            "accuracy": float(found.accuracy[r]),
            "lower": float(found.low[r]),
            "upper": float(found.high[r]),
        }
        for r in range(len(found.n))
    ]


def _doubts(inputs: Inputs, posterior: FloatArray) -> dict[str, Any] | None:
    """Contradictions by annotators of at least median accuracy."""
    found = annotator_reliability(inputs.table, posterior)
    judged = found.n_annotations >= FEW
    if not judged.any():
        return None
    median = np.median(found.accuracy[judged])
    return gold_doubts(inputs, judged & (found.accuracy >= median - 1e-9))


def gold_doubts(inputs: Inputs, good: BoolArray) -> dict[str, Any] | None:
    """Gold labels that several good annotators contradict with one and the same class.

    Parameters
    ----------
    good : bool array of shape (n_annotators,)
        Annotators at or above the median.
    """
    if inputs.gold is None:
        return None
    table, gold = inputs.table, inputs.gold
    rows = np.flatnonzero(good[table.annotator] & (gold[table.instance] >= 0))
    cells, counts = np.unique(
        table.instance[rows].astype(np.int64) * table.n_classes + table.label[rows],
        return_counts=True,
    )
    instance, label = cells // table.n_classes, cells % table.n_classes
    agrees = label == gold[instance]
    supported = np.zeros(table.n_instances, dtype=np.int64)
    supported[instance[agrees]] = counts[agrees]
    against = ~agrees & (counts >= CONTRADICTIONS) & (counts > supported[instance])
    found = np.flatnonzero(against)
    found = found[np.argsort(supported[instance[found]] - counts[found], kind="stable")]
    _, first = np.unique(instance[found], return_index=True)
    found = found[np.sort(first)]
    shown = found[: LIMITS["gold_doubts"]]
    return {
        "total": len(found),
        "shown": len(shown),
        "rows": [
            {
                "id": table.instances[instance[k]].item(),
                "gold": table.classes[gold[instance[k]]].item(),
                "n_gold": int(supported[instance[k]]),
                "other": table.classes[label[k]].item(),
                "n_other": int(counts[k]),
            }
            for k in shown.tolist()
        ],
    }


def warn_of_gold(found: Findings) -> Iterator[tuple[str, str]]:
    """Warn of methods that expect more right labels than gold finds."""
    own = found.once(gold_section)
    for row in [] if own is None else own["rows"][1:]:
        expected = row["expected"]
        if expected is not None and expected - row["accuracy"] > OVERCONFIDENT:
            yield (
                WarningCode.OVERCONFIDENT,
                f"{row['name']} expects {100 * expected:.0f}\u202f% of its labels to be right, "
                f"but by the gold labels, {100 * row['accuracy']:.0f}\u202f% are. Its "
                "probabilities "
                "are too high, and so is everything that rests on them.",
            )


def _actions(found: Findings) -> Iterator[Action]:
    own = found.once(gold_section)
    doubts = None if own is None else own["doubts"]
    if own is None or not doubts or not doubts["rows"]:
        return
    n, of = doubts["total"], own["n"]
    if n > MOST_DOUBTED * of:
        return  # So much gold is not wrong: the annotators are.
    yield Action(
        ActionCode.GOLD,
        "gold-doubts",
        f"Check {counted(n, 'gold label')}",
        f"For {n:,} of {counted(of, 'gold label')}, several good annotators agree on another "
        "class. Either the gold label or the guideline may be wrong.",
        n / 2,
        doubts["rows"][: LIMITS["actions"]],
    )


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    if own["doubts"] is not None:
        yield 1, [row["id"] for row in own["doubts"]["rows"]]


def note_unused(summary: dict[str, Any], n: int) -> None:
    """Write into a summary without gold how many gold labels are at hand that it did not use."""
    if summary["gold"] is None:
        summary["data"]["n_gold_unused"] = n


def answer_gold(s: Mapping[str, Any]) -> Answer:
    """Answer how labels compare with gold, and whether the gold labels are right."""
    found, unused = s.get("gold") or {}, s["data"].get("n_gold_unused", 0)
    if not found and unused:
        return None, (
            f"The export of the annotations holds {counted(unused, 'gold label')} that "
            f"{'was' if unused == 1 else 'were'} not used. To use them, give the export as "
            "--gold, too."
        )
    if not found:
        return None, "These items have no gold labels; --gold compares the labels with gold labels."
    return "gold", f"{_told_of_gold(found)} {_told_of_doubts(found)}".strip()


def _told_of_gold(found: Mapping[str, Any]) -> str:
    """Say how many labels are as in gold, beside those of the majority."""
    majority, *others = found["rows"]
    n, chosen = found["n"], told_chosen(found)
    on = "On the item with a gold label" if n == 1 else f"On the {n:,} items with gold labels"
    if not others:
        return f"{on}, {percent(majority['accuracy'])} of the labels are right. {chosen}".strip()
    return (
        f"{on}, {percent(others[0]['accuracy'])} of the labels are right; of the majority votes, "
        f"{percent(majority['accuracy'])}. {chosen}"
    ).strip()


def told_chosen(found: Mapping[str, Any]) -> str:
    """Say that figures on gold labels describe these items alone; "" where they were not chosen."""
    n, of = found.get("n_chosen", 0), found["n"]
    if not n:
        return ""
    which = "These gold labels" if n == of else f"{n:,} of these gold labels"
    if n == of == 1:
        which = "This gold label"
    return (
        f"{which} {'does' if n == 1 else 'do'} not count as drawn at random, so the figures "
        "describe the items with gold labels alone, and not the others."
    )


def _told_of_doubts(found: Mapping[str, Any]) -> str:
    """Say how many gold labels good annotators contradict."""
    doubts = found.get("doubts")
    if not doubts or not doubts["total"]:
        return ""
    n, of = doubts["total"], found["n"]
    if n > MOST_DOUBTED * of:
        return (
            f"On {n:,} of these items, several annotators of at least median accuracy agree on "
            "another class. That is too many for slips in the gold labels, so the annotators are "
            "probably wrong."
        )
    which = "it" if n == 1 else "them"
    return (
        f"Good annotators contradict {n:,} of the gold labels. Have {which} checked again: the "
        "list “Gold labels that good annotators contradict” below names the items."
    )


GOLD = Section(
    "gold",
    "What do the gold labels show?",
    "gold.html",
    gold_section,
    actions=_actions,
    instances=_instances,
    words={
        "GOLD_ONLY_MEASURES": GOLD_ONLY_MEASURES,
        "SCORES": SCORES,
        "told_chosen": told_chosen,
    },
    answer=answer_gold,
)
