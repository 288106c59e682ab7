"""The annotators section: number of annotations, accuracy, mistakes and flags per annotator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

import numpy as np
from markupsafe import Markup

from manyhands.annotations.class_order import unit_of_grades
from manyhands.annotations.groups import in_families
from manyhands.codes import TELL_NOTHING, ActionCode, Flag, WarningCode, advice_on
from manyhands.decision.labels import is_scale_of_grades
from manyhands.exceptions import AnnotationError
from manyhands.metrics import AnnotatorReliability, annotator_reliability
from manyhands.metrics.grades import deviation_of, near_share
from manyhands.planning import AnnotatorScreen, Screening
from manyhands.planning.screening import (
    ADVICE,
    LEVEL,
    NOTHING,
    SHOW_GRADES,
    TOO_FEW,
    UNJUDGED,
    RightByGold,
    paces_of,
)
from manyhands.report.agreement import agreement_with_others
from manyhands.report.confusions import (
    REVERSED,
    confusions_section,
    count_mistakes,
    gold_of_most,
    matrices_section,
    spammer_scores,
    top_mistake,
)
from manyhands.report.doubts import SHARED, is_open_who_shares
from manyhands.report.filters import name, percent, percent_range, rest_lines
from manyhands.report.gold import gold_by_annotator, measured_annotations, rows_by_gold
from manyhands.report.headline import find_levels, share_of_wrong
from manyhands.report.inputs import Inputs
from manyhands.report.labels import most_doubtful
from manyhands.report.limits import FEW, FEW_TIMED, LIMITS
from manyhands.report.planning import find_basis, find_screening
from manyhands.report.section import (
    Action,
    Answer,
    Content,
    Findings,
    Rows,
    Section,
    cells_of,
)
from manyhands.report.unexpected import unexpected_by_annotator
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import (
    A_FLAG,
    NOT_ASKED,
    compared_with,
    counted,
    listed,
    shorten,
    told_of_crowd,
    too_much,
)

Profile = dict[str, Any]
"""All that is known of one annotator."""

OUTVOTED = (
    "It is not known which annotators make the same mistakes. Annotators who share mistakes "
    "look better than they are, and those whom they outvote look worse."
)
"""Why nobody is judged while that is open."""


def find_profiles(found: Findings) -> list[Profile]:
    """Profiles of all annotators of a report; see `annotator_profiles`."""
    basis = found.once(find_basis)
    judge = None if basis is None else basis.model
    return annotator_profiles(found.inputs, found.once(find_screening), judge)


def annotators_section(found: Findings) -> Content | None:
    """Reliability, flags and confusion matrices; those to look at first come first."""
    inputs, table, inferred = found.inputs, found.inputs.table, found.inputs.inferred
    if inferred is None:
        return None
    profiles, screening = found.once(find_profiles), found.once(find_screening)
    place = {annotator: r for r, annotator in enumerate(table.annotators.tolist())}
    order = np.array([place[row["id"]] for row in profiles], dtype=np.int64)
    shown = order[: LIMITS["annotators"]]
    counts = count_mistakes(table, inferred.codes, shown)
    note, scores = None, None
    matrices: list[dict[str, Any]] = []
    if inputs.judged:
        note, matrices = matrices_section(inputs, inferred, shown, counts)
        scores = spammer_scores(inputs, inferred, shown)
    rows, rest = [dict(row) for row in profiles[: len(shown)]], profiles[len(shown) :]
    doubtful = most_doubtful(inputs, shown)
    for k, row in enumerate(rows):
        row["matrix"] = matrices[k] if k < len(matrices) else None
        row["instances"] = doubtful[k]
        row["spammer_score"] = None if scores is None else scores[k]
    active = [row for row in profiles if row["n_annotations"]]
    accuracy = [row["accuracy"] for row in active if row["accuracy"] is not None]
    names = [] if screening is None else [*ADVICE]
    flagged = {name: [row["id"] for row in profiles if name in row["flags"]] for name in names}
    few = [row["id"] for row in active if row["n_annotations"] < FEW]
    return {
        "total": table.n_annotators,
        "n_active": len(active),
        "n_flagged": sum(bool(row["flags"]) for row in profiles),
        "n_few": len(few),
        "n_severe": sum(bool((row.get("severity") or {}).get("told")) for row in profiles),
        "shown": len(shown),
        "level": LEVEL,
        "chance": 1.0 / table.n_classes,
        "source": inferred.name,
        "judged": inputs.judged,
        "median_accuracy": float(np.median(accuracy)) if accuracy else None,
        "measured": _measured(inputs),
        "known": _told_known(inputs),
        "n_with_gold": sum(row["gold"] is not None for row in profiles),
        "n_at_or_below_chance": _count_at_or_below(1.0 / table.n_classes, profiles),
        "n_judged_by_gold": sum(map(_has_gold, profiles)),
        "flag_counts": {name: len(ids) for name, ids in flagged.items()},
        "flagged": {name: ids[: LIMITS["named"]] for name, ids in flagged.items()},
        "histogram": _accuracy_histogram(np.array(accuracy)) if accuracy else None,
        "rows": rows,
        "rest": _rest(rest),
        "matrices": note,
    }


def _measured(inputs: Inputs) -> dict[str, Any] | None:
    """How many annotations are right on the items that measure annotators, and how far off."""
    gold = inputs.judging
    n = 0 if gold is None else int((inputs.annotated & (gold >= 0)).sum())
    if gold is None or not n:
        return None
    found: dict[str, Any] = measured_annotations(inputs, gold) | {"n_items": n}
    table = inputs.table
    if is_scale_of_grades(table) and n >= FEW_TIMED:
        rows = np.flatnonzero(gold[table.instance] >= 0)
        off = deviation_of(table.label[rows], gold[table.instance[rows]], table.instance[rows])
        if off is not None:
            step, unit = unit_of_grades(table.classes)
            value, low, high = (step * each for each in off[:3])
            told = told_of_crowd(value, low, high, off.n_items, unit and f" {unit}")
            found["too_high"] = off._asdict() | {"told": told}
    return found


def _told_known(inputs: Inputs) -> str:
    """Say whether known labels measure annotators; "" without known labels."""
    known = inputs.known
    if known is None or not (n := int((known & inputs.annotated).sum())):
        return ""
    drawn = 0 if inputs.drawn is None else int((inputs.drawn & inputs.annotated).sum())
    if not drawn:
        is_one = n == 1
        return (
            f"The {counted(n, 'known label')} {'does' if is_one else 'do'} not measure the "
            "annotators, because nothing says that they were drawn at random (a column “chosen” "
            "that holds “random”). A review lists items on which somebody was probably wrong."
        ).replace("they were", "it was" if is_one else "they were")
    those = counted(drawn, "known label")
    was = "that was drawn at random counts" if drawn == 1 else "that were drawn at random count"
    return f"The {those} {was} as gold here."


def annotator_profiles(
    inputs: Inputs, screening: Screening | None, judge: Any = None
) -> list[Profile]:
    """Profile of every annotator, those to look at first first.

    ``judge`` is what knows the severities of annotators of grades, unless the aggregator does. The
    flags are those of `manyhands.planning.screen_annotators`. Where nothing shows how good the
    annotators are (`annotators_are_judged`), whatever rests on the inferred labels is None.
    """
    if inputs.inferred is None:
        return []
    table = inputs.table
    found = annotator_reliability(table, inputs.inferred.posterior, level=LEVEL)
    profiles = _profiles(inputs, found, screening)
    everybody, gold = np.arange(table.n_annotators), gold_of_most(inputs.gold, inputs.annotated)
    counts = count_mistakes(table, inputs.inferred.codes if gold is None else gold, everybody)
    for row, own in zip(profiles, counts, strict=True):
        found_mistake = top_mistake(table, own, by_gold=gold is not None)
        row["mistake"] = found_mistake if inputs.judged else None
    if is_scale_of_grades(table):
        _grade(inputs, profiles, judge)
    return [profiles[r] for r in order_of(profiles).tolist()]


def _grade(inputs: Inputs, profiles: list[Profile], judge: Any) -> None:
    """Add to profiles, in the order of the vocabulary, how annotators of grades are off."""
    found = inputs.inferred
    if found is None:
        return
    table, r = inputs.table, inputs.table.annotator
    models = (inputs.aggregator, judge)
    severe = next((m for m in models if getattr(m, "severity_", None) is not None), None)
    rows = found.posterior[table.instance]
    wrong, far = 1.0 - rows[np.arange(len(r)), table.label], 1.0 - near_share(rows, table.label)
    sums = [np.bincount(r, x, table.n_annotators).astype(np.float64) for x in (wrong, far)]
    _add_grades(profiles, sums[0], sums[1], severe, judged=inputs.judged)
    if inputs.judging is None:
        return
    gold = inputs.judging[table.instance]
    judged = gold >= 0
    near = judged & (np.abs(table.label - gold) <= 1)
    n, k_near = (np.bincount(r[mask], minlength=table.n_annotators) for mask in (judged, near))
    scale = unit_of_grades(table.classes)
    for k, row in enumerate(profiles):
        if row["gold"] is None or not n[k]:
            continue
        row["gold"]["within_one"] = float(k_near[k] / n[k])
        if n[k] >= FEW_TIMED:
            own = np.flatnonzero(judged & (r == k))
            row["gold"]["too_high"] = _off(table.label[own], gold[own], table.instance[own], scale)


def _add_grades(
    profiles: list[Profile], wrong: FloatArray, far: FloatArray, model: Any, *, judged: bool
) -> None:
    """Add severities, and expected shares within one grade.

    ``wrong`` and ``far`` (R,) are expected numbers of wrong annotations, and of those of them that
    are more than a grade off.
    """
    scale = (1.0, "grades") if model is None else unit_of_grades(model.classes_)
    for k, row in enumerate(profiles):
        row["within_one"], row["severity"] = None, None
        if not judged or not row["n_annotations"] or row["accuracy"] is None:
            continue
        share = far[k] / wrong[k] if wrong[k] > 0 else 0.0
        row["within_one"] = 1.0 - (1.0 - row["accuracy"]) * float(share)
        if model is not None and len(model.severity_) == len(profiles):
            row["severity"] = _severity_of(model.severity_[k], model.severity_se_[k], scale)
            if _is_severe(row["severity"]) and row["screen"]["advice"] == NOTHING:
                row["screen"]["advice"] = SHOW_GRADES


def _off(
    given: IntArray, true: IntArray, item: IntArray, scale: tuple[float, str]
) -> dict[str, Any] | None:
    """Return how many grades too high somebody labels, measured on gold, as `_severity_of` does."""
    off = deviation_of(given, true, item)
    if off is None:
        return None
    step, unit = scale
    told = too_much(step * off.value, step * off.low, step * off.high, unit and f" {unit}")
    return {"value": off.value, "low": off.low, "high": off.high, "told": told}


def _is_severe(severity: Mapping[str, Any] | None) -> bool:
    """Return whether somebody surely rates so far too high or too low that examples help.

    Severities are relative to each other: of a few annotators of whom one differs, all may surely
    differ from the mean of all by a little.
    """
    return severity is not None and max(severity["low"], -severity["high"]) > CLEAR


def _severity_of(value: float, error: float, scale: tuple[float, str]) -> dict[str, Any] | None:
    """Return how many grades too high an annotator labels, with the interval and in words.

    The words count what the scale counts, such as stars, also where grades are halves of them;
    ``scale`` is that of `unit_of_grades`.
    """
    low, high = float(value - WIDTH * error), float(value + WIDTH * error)
    if not np.isfinite([low, high]).all():
        return None
    step, unit = scale
    told = too_much(step * float(value), step * low, step * high, unit and f" {unit}")
    return {"value": float(value), "low": low, "high": high, "told": told}


def store_profiles(
    store: Any,
    found: AnnotatorReliability,
    screening: Screening,
    mistakes: IntArray,
    passes: IntArray,
    by_gold: RightByGold | None,
    *,
    judged: bool,
    are_from_gold: bool = False,
    counts: FloatArray | None = None,
    model: Any = None,
) -> list[Profile]:
    """Profiles of a store's annotators for `annotator_columns`, from sums over its shards.

    Parameters
    ----------
    store : AnnotationStore
    found, screening
        As of `manyhands.planning.screening.AnswerCounts`.
    mistakes : integer array of shape (R, C, C)
        Annotations by [annotator, label, given]; the labels are gold if they ``are_from_gold``.
    passes : integer array of shape (2, R)
        Abstentions and skips.
    by_gold : RightByGold, optional
    judged : bool
        Whether anything shows how good the annotators are.
    counts : array of shape (R, C, C), optional
        Expected annotations by [annotator, true, given], which tell how far grades are off.
    model : aggregator, optional
        Which may know severities.
    """
    gold = None if by_gold is None else rows_by_gold(by_gold)
    screens = {row.annotator: row for row in screening}
    rows: list[Profile] = []
    for r, annotator in enumerate(store.annotators.tolist()):
        cells = zip(*np.nonzero(mistakes[r]), strict=True)
        row: Profile = {
            "id": annotator,
            **_accuracy(found, r, judged),
            "gold": None if gold is None else gold[r],
            "abstentions": int(passes[0][r]),
            "skips": int(passes[1][r]),
            "mistake": top_mistake(
                store,
                {(int(a), int(b)): int(mistakes[r, a, b]) for a, b in cells},
                by_gold=are_from_gold,
            )
            if judged
            else None,
            "times": None,
        }
        row["screen"] = _screen(row, screens.get(annotator))
        row["flags"] = row["screen"]["flags"]
        rows.append(row)
    if counts is not None and is_scale_of_grades(store):
        grades = np.arange(store.n_classes)
        apart = np.abs(grades - grades[:, None])
        wrong, far = ((counts * (apart > d)).sum(axis=(1, 2)) for d in (0, 1))
        severe = model if getattr(model, "severity_", None) is not None else None
        _add_grades(rows, wrong, far, severe, judged=judged)
    return [rows[r] for r in order_of(rows).tolist()]


def _accuracy(found: AnnotatorReliability, r: int, judged: bool) -> Profile:
    """Annotations of an annotator, and the expected accuracy with its interval, or None."""
    own = (found.accuracy[r], found.lower[r], found.upper[r])
    told = [float(value) if judged else None for value in own]
    return {"n_annotations": int(found.n_annotations[r])} | dict(
        zip(("accuracy", "lower", "upper"), told, strict=True)
    )


def annotator_columns(profiles: list[Profile], *, joined: bool = True) -> dict[str, list[Any]]:
    """Columns of ``annotators.csv``, from every command that writes it.

    Parameters
    ----------
    profiles : list of dict
        Those of `annotator_profiles`, or the rows of ``summary["annotators"]``.
    joined : bool
        Whether flags and evidence are texts, or else lists.

    Returns
    -------
    dict {column: list}
        ``annotator``, ``n_annotations``, ``n_abstentions``, ``n_skips``; ``accuracy``, the expected
        one, with its 95 % interval ``low_95`` to ``high_95``; ``n_gold`` and ``accuracy_on_gold``,
        measured; ``flags`` with their ``evidence`` and an ``advice``; the most frequent
        ``mistake``, and without gold also its reverse, because the direction is uncertain; and
        ``median_seconds``. Of grades come ``severity``, which says by how many
        grades the annotations are too high, with its 95 % interval ``severity_low_95`` to
        ``severity_high_95``, and ``within_one_grade``, the share of annotations that is expected to
        be at most one grade off. What is not known is None; so are the accuracy, its
        interval and the mistake where nothing shows how good the annotators are, and the accuracy
        of an annotator with fewer than five annotations, whose interval remains.
    """
    return {
        "annotator": [row["id"] for row in profiles],
        "n_annotations": [row["n_annotations"] for row in profiles],
        "n_abstentions": [row["abstentions"] for row in profiles],
        "n_skips": [row["skips"] for row in profiles],
        "accuracy": [row["accuracy"] if is_enough(row) else None for row in profiles],
        "low_95": [row["lower"] if row["n_annotations"] else None for row in profiles],
        "high_95": [row["upper"] if row["n_annotations"] else None for row in profiles],
        "n_gold": [row["gold"]["n"] if row["gold"] else 0 for row in profiles],
        "accuracy_on_gold": [row["gold"]["accuracy"] if row["gold"] else None for row in profiles],
        "flags": [_joined(row["screen"]["flags"], joined) for row in profiles],
        "evidence": [_joined(row["screen"]["evidence"], joined) for row in profiles],
        "advice": [row["screen"]["advice"] for row in profiles],
        "mistake": [_mistake(row["mistake"]) for row in profiles],
        "median_seconds": [row["times"]["median"] if row["times"] else None for row in profiles],
        **_columns_of_grades(profiles),
    }


def is_enough(row: Mapping[str, Any]) -> bool:
    """Return whether an annotator has enough annotations for an accuracy to mean something."""
    return bool(row["n_annotations"] >= FEW)


def _columns_of_grades(profiles: list[Profile]) -> dict[str, list[Any]]:
    """Columns of annotators of grades; none where classes are names."""
    if not any("severity" in row for row in profiles):
        return {}
    ends = {"severity": "value", "severity_low_95": "low", "severity_high_95": "high"}
    columns = {
        name: [(row.get("severity") or {}).get(key) for row in profiles]
        for name, key in ends.items()
    }
    return columns | {"within_one_grade": [row.get("within_one") for row in profiles]}


def _joined(texts: list[str], joined: bool) -> Any:
    return "; ".join(texts) if joined else texts


def _mistake(found: dict[str, Any] | None) -> str | None:
    if found is None:
        return None
    text = f"{found['true']} -> {found['given']} ({found['n']} of {found['of']})"
    if not found.get("back"):
        return text
    return f"{text}; {found['given']} -> {found['true']} ({found['back']} of {found['back_of']})"


CLEAR = 0.25
"""Grades beyond which the interval of a severity lies, for its annotator to be shown examples."""

WIDTH = 1.959963984540054
"""Standard errors from an estimate to the end of its 95 % interval."""

SERIOUS = frozenset(ADVICE) - {Flag.DRIFT, Flag.BELOW_MEDIAN}
"""Flags that come before others."""


def order_of(profiles: list[Profile]) -> IntArray:
    """Order annotators: those with a flag, those without, and too few annotations to judge.

    Of those with a flag, whoever does the most harm comes first (`harm_of`), and then whoever has a
    serious flag. Of the others, the one comes first whose accuracy is the lowest at best, by gold
    if there is enough of it.
    """
    severity = np.array([_severity(row) for row in profiles], dtype=np.int64)
    n = np.array([row["n_annotations"] for row in profiles], dtype=np.int64)
    at_best = [row["gold"]["upper"] if _has_gold(row) else row["upper"] for row in profiles]
    unknown_last = np.array([1.0 if each is None else each for each in at_best], dtype=np.float64)
    is_flagged = severity <= 1
    harm = np.where(is_flagged, harm_of(profiles), 0.0)
    keys = (-n, np.round(unknown_last, 9), severity, -np.round(harm, 9))
    order: IntArray = np.lexsort((*keys, np.where(is_flagged, 0, severity)))
    return order


def harm_of(profiles: Sequence[Mapping[str, Any]]) -> FloatArray:
    """Return how many more of each annotator's annotations are wrong than a typical one's.

    It goes by gold where there is enough of it, and by what is expected elsewhere; 0 where neither
    tells.

    Returns
    -------
    float array of shape (n_annotators,)
    """
    shares = np.array([_share_right(row) for row in profiles], dtype=np.float64)
    n = np.array([row["n_annotations"] for row in profiles], dtype=np.float64)
    judged = (n >= FEW) & ~np.isnan(shares)
    if not judged.any():
        return np.zeros(len(profiles))
    excess = np.median(shares[judged]) - shares
    return np.asarray(n * np.nan_to_num(excess).clip(0.0))


def _share_right(row: Mapping[str, Any]) -> float:
    """Return how often an annotator is right, by gold or as expected; NaN if unknown."""
    share = row["gold"]["accuracy"] if _has_gold(row) else row["accuracy"]
    return np.nan if share is None or not row["n_annotations"] else float(share)


def _severity(row: dict[str, Any]) -> int:
    if row["n_annotations"] < FEW:
        return 3 if row["n_annotations"] else 4
    return 0 if SERIOUS & {*row["flags"]} else 1 if row["flags"] else 2


def _has_gold(row: Mapping[str, Any]) -> bool:
    return row["gold"] is not None and row["gold"]["n"] >= FEW_TIMED


def _count_at_or_below(chance: float, profiles: list[dict[str, Any]]) -> int:
    """Count the annotators of so low an accuracy: by gold, or as expected with too little of it.

    An annotator's own votes raise the expected accuracy, in vote shares above all. With fewer
    annotations than are tested, an accuracy at chance says nothing.
    """
    enough = [row for row in profiles if row["n_annotations"] >= FEW_TIMED]
    best = [row["gold"] if _has_gold(row) else row for row in enough]
    return sum(row["accuracy"] is not None and row["accuracy"] <= chance for row in best)


def _accuracy_histogram(accuracy: FloatArray) -> list[dict[str, float]]:
    edges = np.linspace(0.0, 1.0, 21)
    counts, _ = np.histogram(accuracy.clip(0.0, 1.0), bins=edges)
    return [
        {"from": float(low), "to": float(high), "count": int(n)}
        for low, high, n in zip(edges[:-1].round(2), edges[1:].round(2), counts, strict=True)
    ]


def _profiles(
    inputs: Inputs, found: AnnotatorReliability, screening: Screening | None
) -> list[Profile]:
    """All that is known of every annotator, in the order of the vocabulary."""
    table = inputs.table
    gold, times = gold_by_annotator(inputs), seconds_by_annotator(inputs)
    others = agreement_with_others(inputs)
    passes = [np.bincount(p[:, 1], minlength=table.n_annotators)
              for p in (table.abstentions, table.skips)]  # fmt: skip
    proportion, unexpected = _common_proportion(inputs), unexpected_by_annotator(inputs)
    screens = {} if screening is None else {row.annotator: row for row in screening}
    rows = [
        {
            "id": table.annotators[r].item(),
            **_accuracy(found, r, inputs.judged),
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
    for row in rows:
        row["screen"] = _screen(row, screens.get(row["id"]))
        row["flags"] = row["screen"]["flags"]
    return rows


def _share(n: int, others: int) -> float | None:
    return n / (n + others) if n + others else None


def _screen(row: Profile, found: AnnotatorScreen | None) -> dict[str, Any]:
    """Flags with their evidence and an advice."""
    if found is None:
        told = NOTHING if row["accuracy"] is not None else UNJUDGED
        advice = told if row["n_annotations"] >= FEW else TOO_FEW
        return {"flags": [], "evidence": [], "advice": advice}
    return {
        "flags": list(found.flags),
        "evidence": list(found.evidence),
        "advice": found.advice,
    }


def _rest(rest: list[Profile]) -> dict[str, Any] | None:
    """Summarise the annotators that the table leaves out, and list them briefly."""
    if not rest:
        return None
    n = [row["n_annotations"] for row in rest]
    active = [row["accuracy"] for row in rest if row["n_annotations"]]
    active = [each for each in active if each is not None]
    return {
        "n": len(rest),
        "n_annotations": sum(n),
        "most": max(n),
        "median_accuracy": float(np.median(active)) if active else None,
        "flag_counts": {
            name: count for name in ADVICE if (count := sum(name in row["flags"] for row in rest))
        },
        "rows": [
            {
                "id": row["id"],
                "n_annotations": row["n_annotations"],
                "accuracy": row["accuracy"] if is_enough(row) else None,
                "lower": row["lower"],
                "upper": row["upper"],
                "gold": None if row["gold"] is None else row["gold"]["accuracy"],
                "flags": row["flags"],
            }
            for row in rest[: LIMITS["more_annotators"]]
        ],
    }


def _common_proportion(inputs: Inputs) -> FloatArray | None:
    """Return how much each annotator follows the common confusion, if a classifier learnt it."""
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


def seconds_by_annotator(inputs: Inputs) -> list[dict[str, Any]] | None:
    """Median seconds and share of fast annotations of every annotator."""
    if inputs.seconds is None:
        return None
    found = paces_of(inputs.table, inputs.seconds)
    names = ("n", "median", "fast", "too_fast")
    return [dict(zip(names, row, strict=True)) for row in zip(*map(_plain, found), strict=True)]


def _plain(values: Any) -> list[Any]:
    """Values of an array, None for NaN."""
    return [None if value != value else value for value in values.tolist()]


# -- what is warned of, what to do, and what it answers --------------------------------------------


def warn_of_annotators(found: Findings) -> Iterator[tuple[str, str]]:
    """Warn of annotators below chance, of one label, and of those with too little to judge."""
    own, table = found.once(annotators_section), found.inputs.table
    if own is None:
        return
    most = LIMITS["named"]
    chance, same = (own["flag_counts"].get(f, 0) for f in (Flag.BELOW_CHANCE, Flag.ONE_LABEL))
    few = own["n_few"]
    if chance:
        verb = "is" if chance == 1 else "are"
        yield (
            WarningCode.BELOW_CHANCE,
            f"{counted(chance, 'annotator')} {verb} right significantly less often than guessing "
            f"would be (the whole interval is below 1 in {table.n_classes}): "
            f"{listed(own['flagged'][Flag.BELOW_CHANCE], chance, most)}.",
        )
    if same:
        yield (
            WarningCode.ALWAYS_THE_SAME_CLASS,
            f"{'Each of ' * (same > 1)}{counted(same, 'annotator')} nearly always gave the same "
            "class, where others gave several: "
            f"{listed(own['flagged'][Flag.ONE_LABEL], same, most)}.",
        )
    if few:
        yield (
            WarningCode.FEW_ANNOTATIONS,
            f"{counted(few, 'annotator')} gave fewer than {FEW} annotations: too few to judge.",
        )
    if silent := own["total"] - own["n_active"]:
        yield WarningCode.SILENT, f"{counted(silent, 'annotator')} gave no annotations."


def _actions(found: Findings) -> Iterator[Action]:
    own = found.once(annotators_section)
    if own is None:
        return
    rows = [row for row in own["rows"] if row["screen"]["flags"]]
    if not rows:
        return
    flags = {flag for row in rows for flag in row["screen"]["flags"]}
    by_gold = flags == {Flag.BELOW_MEDIAN_ON_GOLD}
    is_open = not by_gold and is_open_who_shares(found)  # Gold knows nothing of shared mistakes.
    everybody = found.once(find_profiles)  # The page may list some of them only.
    flagged = [row for row in everybody if row["screen"]["flags"]]
    n, wrong, of_all = len(flagged), _wrong_annotations(flagged), _wrong_annotations(everybody)
    confused = found.once(confusions_section)
    total = of_all
    if of_all and confused is not None and confused["truth"] == "expected":
        # One total on the page: sums of estimated accuracies differ a little from this count.
        total = float(confused["n_wrong"])
        wrong *= total / of_all
    need = "One annotator needs" if n == 1 else f"{n:,} annotators need"
    title = f"{need} a closer look"
    blame = (
        f"About {total:,.0f} annotations are probably wrong, and "
        f"{'this annotator' if n == 1 else 'these annotators'} gave {wrong:,.0f} of them."
        if own["judged"]
        else "This was measured on gold labels."
        if by_gold
        else "It is not known how many of their annotations are wrong."
    )
    text = f"{blame} {A_FLAG}."
    if is_open:
        stand = "One annotator stands" if n == 1 else f"{n:,} annotators stand"
        title, text = f"{stand} out: do not judge them yet", OUTVOTED
    elif people := _people_beside_models(found, flagged):
        text += f" {people}"
    excess = sum(
        row["n_annotations"] * max(own["median_accuracy"] - row["accuracy"], 0.0)
        for row in flagged
        if row["n_annotations"] and row["accuracy"] is not None
    )
    rows = rows[: LIMITS["actions"]]
    yield Action(
        ActionCode.TALK,
        "annotators",
        title,
        text,
        float("1e12") if is_open else share_of_wrong(found, excess / of_all if of_all else 0.0),
        [
            {
                "id": row["id"],
                "n_annotations": row["n_annotations"],
                "n_wrong": _n_wrong(row),
                "flags": row["screen"]["flags"],
                "evidence": row["screen"]["evidence"],
                "advice": row["screen"]["advice"],
                "instances": row["instances"],
            }
            for row in rows
        ],
        [
            *dict.fromkeys(
                advice_on(row["screen"]["flags"][0], row["screen"]["advice"]) for row in rows
            ),
            *_not_asked(flagged, is_open),
            *_leaving_out(found, flagged, is_open),
            *_of_command(rows[0], is_open),
        ],
        _command(found, rows[0], is_open),
    )


def _of_command(first: Mapping[str, Any], is_open: bool) -> list[str]:
    """Say what the command of the step shows."""
    who = f"“{shorten(str(first['id']))}”"
    return [] if is_open else [f"this command lists items that {who} probably labelled wrongly"]


def _not_asked(flagged: Rows, is_open: bool) -> list[str]:
    """Say that plans ask nobody who guesses, where somebody does."""
    asked = not any(TELL_NOTHING.intersection(row["flags"]) for row in flagged)
    return [] if is_open or asked else [NOT_ASKED]


def _leaving_out(found: Findings, flagged: Rows, is_open: bool) -> list[str]:
    """Say how to leave out annotators who guess, and how many items that leaves without a label."""
    who = [row["id"] for row in flagged if Flag.GUESSING in row["flags"]]
    if is_open or not who:
        return []
    table = found.inputs.table
    others = ~np.isin(table.annotators, who)[table.annotator]
    annotated = table.annotations_per_instance() > 0
    n = int(annotated.sum()) - len(np.unique(table.instance[others]))
    lost = (
        "every item would still have annotations from others"
        if not n
        else f"{counted(n, 'item')} that only they annotated would then have no label"
    )
    return [
        "to leave out everybody who does no better than guessing, delete their annotations from "
        f"the file: {lost}. Even if few labels change, the estimated share of right labels may "
        "change a lot. Only gold labels show whether the labels became better"
    ]


def _command(found: Findings, first: Mapping[str, Any], is_open: bool) -> str:
    """Return the command that shows examples of an annotator, or that says who shares mistakes."""
    if not is_open:
        return f"manyhands annotators ANNOTATIONS --teach {quote(str(first['id']))}"
    declare = (found.once(find_levels) or {}).get("declare")
    if not declare or declare.startswith("--groups FILE"):  # A table that is still to be written.
        return ""
    if found.inputs.classifier is None:
        return f"manyhands aggregate ANNOTATIONS OPTIONS {declare} --out FOLDER"
    return f"manyhands fit --annotations ANNOTATIONS OPTIONS {declare} --out FOLDER"


def _people_beside_models(found: Findings, flagged: Rows) -> str:
    """Say what to mind of people who are judged by labels that models decide, too; "" if none is.

    Models are in families, and people in none.
    """
    table = found.inputs.table
    in_family = in_families(table.groups, table.n_annotators)
    if not in_family.any() or in_family.all():
        return ""
    people = set(table.annotators[~in_family].tolist())
    names = [row["id"] for row in flagged if row["id"] in people]
    if not names:
        return ""
    verb, who = ("is a person", "this person is") if len(names) == 1 else ("are people", "they are")
    return (
        f"{listed(names, len(names), 3)} {verb}, but the labels by which {who} judged are partly "
        "decided by models. A person whom the models outvote may well be right."
    )


def _wrong_annotations(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return how many annotations of these annotators are wrong, as the labels have it."""
    return sum(_n_wrong(row) or 0.0 for row in rows)


def _n_wrong(row: Mapping[str, Any]) -> float | None:
    """Return how many annotations of an annotator are wrong by the labels; None if unknown."""
    if row["accuracy"] is None:
        return None
    return float(row["n_annotations"] * (1 - row["accuracy"]))


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    for k, row in enumerate(own["rows"]):
        yield (3 if k < 30 else 12), row["instances"]


def _tables(own: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Confusion matrices, one row per cell."""
    classes = (own["matrices"] or {}).get("classes")
    yield (
        "annotators_confusions",
        [
            {"annotator": row["id"], **cell}
            for row in own["rows"]
            if row["matrix"] is not None
            for cell in cells_of(classes, row["matrix"]["shares"])
        ],
    )


_IN_PROFILES = frozenset(
    {"id", "lower", "upper", "abstentions", "skips", "gold_n", "gold_accuracy", "times_median"}
    | {f"mistake_{part}" for part in ("true", "given", "n", "of", "back", "back_of")}
    | {f"screen_{part}" for part in ("flags", "evidence", "advice")}
    | {"mistake", "gold", "times", "screen", "n_annotations", "accuracy", "flags"}
    | {f"severity_{part}" for part in ("value", "low", "high", "told")}
    | {"severity", "within_one", "gold_within_one"}
)
"""Entries of a row that the columns of ``annotators.csv`` hold."""


def completed(table: Mapping[str, list[Any]], own: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Complete the table of annotators of a summary: the columns of ``annotators.csv`` first."""
    rows = own["rows"]
    if not rows or "screen" not in rows[0]:
        return dict(table)
    more = {name: values for name, values in table.items() if name not in _IN_PROFILES}
    return annotator_columns(rows) | more


def count_hurried(own: Mapping[str, Any]) -> int:
    """Return how many of the annotators shown are too fast."""
    return sum(bool((row.get("times") or {}).get("too_fast")) for row in own["rows"])


def told_severities(s: Mapping[str, Any]) -> Markup:
    """Say who surely grades too high or too low, those who do so most first; "" if nobody."""
    own = s.get("annotators") or {}
    found = [row for row in own.get("rows", []) if (row.get("severity") or {}).get("told")]
    found.sort(key=lambda row: -abs(row["severity"]["value"]))
    if not found:
        return Markup()
    first = found[: LIMITS["actions"]]
    texts = [Markup("<b>{}</b> {}").format(name(row["id"], 24), row["severity"]["told"])
             for row in first]  # fmt: skip
    if more := own.get("n_severe", len(found)) - len(first):
        texts.append(
            Markup("{} more {} too high or too low").format(
                f"{more:,}", "rates" if more == 1 else "rate"
            )
        )
    n_known = (s.get("levels") or {}).get("n_known", 0)
    told = compared_with(n_known)
    return Markup(f"{told[:1].upper()}{told[1:]}, ") + Markup("; ").join(texts) + "."


def answer_right(s: Mapping[str, Any]) -> Answer:
    """Answer how good the annotators are, and whether somebody needs a look."""
    found = s.get("annotators")
    if not found:
        return None, "There are no annotations."
    share, measured = found["median_accuracy"], measured_by_gold(s)
    text = "It is not known how good the annotators are: nothing shows how many labels are right."
    if measured is not None:
        share = percent_range({**measured, "value": measured["right"]})
        n = counted(measured["n"], "annotation")
        text = (
            f"Annotators are right in {share} of cases, measured on {n} of items with gold labels."
        )
    elif share is not None:
        text = f"The typical annotator is right in {percent(share)} of cases "
        text += "(expected, not measured)."
    is_open = any(each["code"] in SHARED for each in s.get("warnings") or ())
    looks = (
        " Do not judge anybody yet: some annotators may make the same mistakes."
        if is_open
        else _looks(found)
    )
    return "annotators", f"{text}{looks}{_passes(s['data'])}"


def told_of_all(s: Mapping[str, Any]) -> str:
    """Say whether all annotators together grade too high or too low; "" with too little gold."""
    found = ((s.get("annotators") or {}).get("measured") or {}).get("too_high") or {}
    return str(found.get("told", ""))


def measured_by_gold(s: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how many annotations are right by gold, with the interval; None with little gold.

    The median of the annotators' own shares says nothing if each has a gold label or two.
    """
    found = (s.get("annotators") or {}).get("measured")
    return found if found and found["n_items"] >= FEW_TIMED else None


def _looks(found: Mapping[str, Any]) -> str:
    """Say how many annotators need a closer look, and how many seem not to read the items."""
    if "n_flagged" not in found:
        return ""
    n, rows = found["n_flagged"], found["rows"]
    if not n:
        return " Nobody needs a closer look."
    careless = {Flag.GUESSING, Flag.ONE_LABEL}
    text = f" {counted(n, 'annotator')} {'needs' if n == 1 else 'need'} a closer look"
    k = sum(bool(careless & {*(row.get("screen") or row)["flags"]}) for row in rows)
    if not k:
        return f"{text}."
    if n == k:
        who = {1: "They do", 2: "Both do"}.get(n, "All of them do")
    else:
        who = f"{k:,} of them {'does' if k == 1 else 'do'}"
    give = "gives" if who.endswith("does") else "give"
    return f"{text}. {who} no better than guessing, or nearly always {give} the same label."


def _passes(data: Mapping[str, Any]) -> str:
    """Say how often annotators passed."""
    n = data.get("n_abstentions", 0) + data.get("n_skips", 0)
    return f" Annotators passed {counted(n, 'time')}." if n else ""


ANNOTATORS = Section(
    "annotators",
    "How good is each annotator?",
    "annotators.html",
    annotators_section,
    actions=_actions,
    instances=_instances,
    tables=_tables,
    words={
        "rest_lines": rest_lines,
        "told_severities": told_severities,
        "told_of_all": told_of_all,
        "measured_by_gold": measured_by_gold,
        "is_enough": is_enough,
        "REVERSED": REVERSED,
    },
    answer=answer_right,
)
