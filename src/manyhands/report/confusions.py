"""Confusions: of each annotator, shared by many annotators, and learnt by a classifier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.special import gammainc

from manyhands.agreement import spammer_score
from manyhands.annotations import AnnotationTable
from manyhands.codes import ActionCode
from manyhands.decision.labels import is_scale_of_grades
from manyhands.exceptions import AnnotationError
from manyhands.planning.screening import UNEVEN
from manyhands.report.filters import percent, percent_range
from manyhands.report.headline import APART, share_of_wrong
from manyhands.report.inputs import Inferred, Inputs, class_positions, to_table_classes
from manyhands.report.limits import CELL_TEXT, LIMITS, MATRIX_CELLS
from manyhands.report.section import (
    Action,
    Answer,
    Content,
    Findings,
    Rows,
    Section,
    cells_of,
)
from manyhands.typing import BoolArray, FloatArray, IntArray
from manyhands.wording import SAMPLE_TELLS, counted, shorten


class Judged(NamedTuple):
    """Annotations with a true class of each, by which a report counts confusions.

    Attributes
    ----------
    truth : {"gold", "expected", "inferred"}
    source : str
        What the classes are from, in words.
    known : bool
        Whether anything shows how many of the classes are right.
    rows, true : integer arrays of shape (m,)
        Rows of the table, and the code of a class of the instance.
    weight : array of shape (m,)
        Probability of that class.
    """

    truth: str
    source: str
    known: bool
    rows: IntArray
    true: IntArray
    weight: FloatArray


def find_judged(found: Findings) -> Judged | None:
    """Find the classes by which all sections of a report count confusions; None without labels.

    The truth is gold where most annotated instances have it; else the model's probabilities of the
    classes, which give expected numbers. On a table of faces whose labels are right in 64 % of
    cases, these order the pairs twice as well as numbers by the inferred labels. Where nothing
    shows how many labels are right, numbers are those of the annotations that differ from them.
    """
    inputs = found.inputs
    table, inferred = inputs.table, inputs.inferred
    if inferred is None or table.n_classes < 2:
        return None
    gold = gold_of_most(inputs.gold, inputs.annotated)
    use_gold = gold is not None
    is_expected = not use_gold and inferred.probable and not inputs.has_shares
    is_expected &= inputs.level is not None
    codes = inferred.codes if gold is None else gold
    return Judged(
        "gold" if use_gold else "expected" if is_expected else "inferred",
        "gold labels" if use_gold else inferred.name,
        use_gold or inputs.level is not None,
        *_classes_of(table, codes, inferred.posterior if is_expected else None),
    )


def _people(table: AnnotationTable, judged: Judged, cells: IntArray, n_cells: int) -> IntArray:
    """Count the annotators with at least one annotation in each cell, shape (n_cells,).

    ``cells`` has the cell of each row of ``judged``. Those count of whom half an annotation or more
    is expected there.
    """
    n_annotators = max(table.n_annotators, 1)
    who = cells.astype(np.int64) * n_annotators + table.annotator[judged.rows]
    pairs, at = np.unique(who, return_inverse=True)
    did = pairs[np.bincount(at, judged.weight, len(pairs)) >= 0.5]
    return np.bincount(did // n_annotators, minlength=n_cells)


def common_section(found: Findings) -> Content | None:
    """How many annotators of a class's items made each confusion at least once.

    It differs from CoNAL's Fig. 1 (`manyhands.agreement.common_confusions`) in that annotators who
    never saw an item of the class do not count.
    """
    judged = found.once(find_judged)
    if judged is None:
        return None
    table, c = found.inputs.table, found.inputs.table.n_classes
    cells, place = np.unique(judged.true * c + table.label[judged.rows], return_inverse=True)
    n = _people(table, judged, place, len(cells))
    of = _people(table, judged, judged.true, c)
    share = n / np.maximum(of[cells // c], 1)
    wrong = np.flatnonzero((cells // c != cells % c) & (n > 0))
    wrong = wrong[np.lexsort((-share[wrong], -n[wrong]))]
    small = c <= LIMITS["matrix_classes"]
    matrix = np.full((c, c), np.nan) if small else None
    if matrix is not None:
        matrix[of > 0] = 0.0
        matrix[cells // c, cells % c] = np.where(of[cells // c] > 0, share, np.nan)
    return {
        "truth": judged.truth,
        "source": judged.source,
        "n_annotators": len(np.unique(table.annotator)),
        "classes": table.classes.tolist() if small else None,
        "matrix": None if matrix is None else matrix.round(4),
        "pairs": [
            {
                "true": table.classes[cells[k] // c].item(),
                "given": table.classes[cells[k] % c].item(),
                "share": float(share[k]),
                "n": int(n[k]),
                "of": int(of[cells[k] // c]),
            }
            for k in wrong[: LIMITS["pairs"]].tolist()
        ],
        "n_pairs": len(wrong),
        "both": None if judged.truth == "gold" else _most_mixed_up(table, judged),
    }


def _most_mixed_up(table: AnnotationTable, judged: Judged) -> dict[str, Any] | None:
    """Return the two classes that the most annotators mix up, in whichever direction.

    No inferred label shows which of them is mistaken for the other.
    """
    true, given = judged.true, table.label[judged.rows]
    first, second = np.minimum(true, given), np.maximum(true, given)
    wrong = np.flatnonzero(first != second)
    pairs, place = np.unique(first[wrong] * table.n_classes + second[wrong], return_inverse=True)
    of_wrong = judged._replace(rows=judged.rows[wrong], weight=judged.weight[wrong])
    n = _people(table, of_wrong, place, len(pairs))
    if not n.any():
        return None
    two = divmod(int(pairs[n.argmax()]), table.n_classes)
    met = np.flatnonzero(np.isin(true, two))
    of_met = judged._replace(rows=judged.rows[met], weight=judged.weight[met])
    (of,) = _people(table, of_met, np.zeros(len(met), dtype=np.int64), 1).tolist()
    return {"classes": table.classes[list(two)].tolist(), "n": int(n.max()), "of": of}


def confusions_section(found: Findings) -> Content | None:
    """Annotations by true and given class, and every pair that is confused, most often first."""
    judged = found.once(find_judged)
    if judged is None:
        return None
    table, (rows, true, weight) = found.inputs.table, judged[3:]
    given = table.label[rows]
    of_true = np.bincount(true, weight, table.n_classes)
    wrong = np.flatnonzero(true != given)
    cells, place = np.unique(true[wrong] * table.n_classes + given[wrong], return_inverse=True)
    n = rounded(np.bincount(place, weight[wrong], len(cells)).astype(np.float64))
    some = judged._replace(rows=rows[wrong], true=true[wrong], weight=weight[wrong])
    annotators = _people(table, some, place, len(cells))
    order = np.argsort(-n, kind="stable")
    order = order[n[order] > 0]
    chance = by_chance(table, judged)
    small = table.n_classes <= LIMITS["matrix_classes"]
    shown = order if small else order[: LIMITS["confusions"]]
    examples = _most_confused(place, table.instance[rows[wrong]], weight[wrong], len(cells))
    matrix = None
    if small:
        flat = np.bincount(true * table.n_classes + given, weight, table.n_classes**2)
        matrix = np.rint(flat).astype(np.int64)
        matrix[cells] = n
        matrix = matrix.reshape(table.n_classes, -1)
    return {
        "truth": judged.truth,
        "source": judged.source,
        "known": judged.known,
        "n": len(np.unique(rows)),
        "several": np.count_nonzero(np.bincount(given, minlength=table.n_classes) + of_true) > 2,
        "n_wrong": round(float(weight[wrong].sum())),
        "classes": table.classes.tolist() if small else None,
        "matrix": matrix,
        "total": len(order),
        "shown": len(shown),
        "pairs": [
            {
                "true": table.classes[cells[k] // table.n_classes].item(),
                "given": table.classes[cells[k] % table.n_classes].item(),
                "row": int(cells[k] // table.n_classes),
                "column": int(cells[k] % table.n_classes),
                "n": int(n[k]),
                "chance": round(float(chance[divmod(cells[k], table.n_classes)]), 1),
                "share": float(n[k] / of_true[cells[k] // table.n_classes]),
                "annotators": int(annotators[k]),
                "instances": table.instances[examples[k]].tolist(),
            }
            for k in shown.tolist()
        ],
    }


def by_chance(table: Any, judged: Judged) -> FloatArray:
    """Return how often each confusion [true, given] would happen if mistakes were random, (C, C).

    Annotators who are wrong would then give the other classes as often as they give them to
    all items. The shares of their answers are shrunk to those of the crowd.
    """
    annotator, c = table.annotator[judged.rows], table.n_classes
    given, shape = table.label[judged.rows], (table.n_annotators, c)

    def counts(classes: IntArray, weight: FloatArray) -> FloatArray:
        cells = np.bincount(annotator * np.int64(c) + classes, weight, shape[0] * c)
        return cells.reshape(shape)

    mistakes = counts(judged.true, judged.weight * (judged.true != given))
    answers = counts(given, judged.weight)
    crowd = answers.sum(axis=0) / max(answers.sum(), 1e-12)
    shares = answers + SHRUNK_BY * crowd
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
    return np.asarray((mistakes / np.maximum(1.0 - shares, 1e-12)).T @ shares)


def rounded(expected: FloatArray) -> IntArray:
    """Round counts such that they sum to their rounded sum, if a step up or down of some does it.

    Counts that round to 0 stay 0: many pairs of classes may be confused in hardly any annotation.
    """
    n = np.rint(expected).astype(np.int64)
    off = round(float(expected.sum())) - int(n.sum())
    some = np.flatnonzero(n > 0)
    if abs(off) <= len(some):
        nearest = some[np.argsort((n - expected)[some] * np.sign(off), kind="stable")]
        n[nearest[: abs(off)]] += np.sign(off)
    return n


def gold_of_most(gold: IntArray | None, annotated: BoolArray) -> IntArray | None:
    """Return gold (-1 where unknown) if most annotated instances have it, else None.

    It then shows which class is mistaken for which, and inferred labels do not (`REVERSED`).
    """
    if gold is None or not annotated.any() or (gold[annotated] >= 0).mean() <= 0.5:
        return None
    return gold


def _classes_of(
    table: AnnotationTable, codes: IntArray, posterior: FloatArray | None
) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows of the annotations, a class of the instance of each, and the probability of that class.

    With a posterior, a row is there once for each class that is not practically ruled out; without,
    once with its code if that is known.
    """
    if posterior is None:
        rows = np.flatnonzero(codes[table.instance] >= 0)
        return rows, codes[table.instance[rows]].astype(np.int64), np.ones(len(rows))
    instance, true = np.nonzero(posterior >= RULED_OUT)
    n_classes = np.bincount(instance, minlength=len(posterior))
    first = np.cumsum(n_classes) - n_classes
    times = n_classes[table.instance]
    rows = np.repeat(np.arange(table.n_annotations), times)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
    at = first[table.instance[rows]] + within
    return rows, true[at].astype(np.int64), posterior[instance[at], true[at]]


def _most_confused(
    place: IntArray, instances: IntArray, weight: FloatArray, n_places: int
) -> list[IntArray]:
    """The instances with most annotations at each place, the first few."""
    size = int(instances.max(initial=0)) + 1
    pairs, at = np.unique(place.astype(np.int64) * size + instances, return_inverse=True)
    count = np.bincount(at, weight, len(pairs))
    order = np.lexsort((pairs % size, -count, pairs // size))
    cuts = np.searchsorted((pairs // size)[order], np.arange(1, max(n_places, 1)))
    return [part[: LIMITS["instances"]] for part in np.split((pairs % size)[order], cuts)]


def learnt_section(found: Findings) -> Content | None:
    """Common confusion matrix of a classifier that learns one, else None."""
    inputs = found.inputs
    matrix = getattr(inputs.classifier, "common_confusion_", None)
    if matrix is None:
        return None
    positions = class_positions(inputs.classifier, inputs.table, "classifier")
    argument = "classifier.common_confusion_"
    shares = to_table_classes(matrix, positions, inputs.table.n_classes, argument)
    return {
        "source": type(inputs.classifier).__name__,
        **_matrix_and_pairs(inputs, shares),
    }


def _matrix_and_pairs(inputs: Inputs, shares: FloatArray) -> dict[str, Any]:
    """The matrix, if there are few enough classes, and its largest off-diagonal entries."""
    small = inputs.table.n_classes <= LIMITS["matrix_classes"]
    return {
        "classes": inputs.table.classes.tolist() if small else None,
        "matrix": shares.round(4) if small else None,
        "pairs": _largest(inputs, shares),
        "n_pairs": int((_off_diagonal(shares) > 0).sum()),
    }


def _off_diagonal(shares: FloatArray) -> FloatArray:
    off = np.nan_to_num(shares)
    np.fill_diagonal(off, 0.0)
    return off


def _largest(inputs: Inputs, shares: FloatArray) -> list[dict[str, Any]]:
    off = _off_diagonal(shares)
    order = np.argsort(-off, axis=None, kind="stable")[: LIMITS["pairs"]]
    classes = inputs.table.classes
    return [
        {
            "true": classes[true].item(),
            "given": classes[given].item(),
            "share": float(off[true, given]),
        }
        for true, given in zip(*np.unravel_index(order, off.shape), strict=True)
        if off[true, given] > 0
    ]


RULED_OUT = 0.001
"""Probability of a class below which it is left out of expected numbers."""

Counts: TypeAlias = list[dict[tuple[int, int], int]]
"""One dict per annotator: (inferred, given) -> count. With many classes, most cells are empty."""


def count_mistakes(table: AnnotationTable, codes: IntArray, shown: IntArray) -> Counts:
    """Count the classes each shown annotator gave, by class of the instance where it is known."""
    place = np.full(table.n_annotators, -1, dtype=np.int64)
    place[shown] = np.arange(len(shown))
    rows = np.flatnonzero((place[table.annotator] >= 0) & (codes[table.instance] >= 0))
    true = codes[table.instance[rows]].astype(np.int64)
    flat = (place[table.annotator[rows]] * table.n_classes + true) * table.n_classes
    cells, n = np.unique(flat + table.label[rows], return_counts=True)
    counts: Counts = [{} for _ in shown]
    for cell, count in zip(cells.tolist(), n.tolist(), strict=True):
        pair, given = divmod(cell, table.n_classes)
        annotator, true_class = divmod(pair, table.n_classes)
        counts[annotator][true_class, given] = count
    return counts


def top_mistake(
    table: Any, counts: Mapping[tuple[int, int], int], *, by_gold: bool = False
) -> dict[str, Any] | None:
    """Return the classes that an annotator confuses most often, as rows of the confusions have it.

    Without gold, the direction is uncertain (`REVERSED`): "back" is the number of the other one.
    """
    ordered = sorted(counts.items(), key=lambda cell: (-cell[1], cell[0]))
    wrong: Rows = [
        {"row": true, "column": given, "n": n, "instances": []}
        for (true, given), n in ordered
        if true != given
    ]
    found = wrong if by_gold else both_ways(wrong)
    if not found:
        return None
    top = found[0]
    of = {
        code: sum(n for pair, n in ordered if pair[0] == code) for pair in counts for code in pair
    }
    mistake = {
        "true": table.classes[top["row"]].item(),
        "given": table.classes[top["column"]].item(),
        "n": top["n"],
        "of": of[top["row"]],
    }
    return mistake if by_gold else mistake | {"back": top["back"], "back_of": of[top["column"]]}


def matrices_section(
    inputs: Inputs, inferred: Inferred, shown: IntArray, counts: Counts
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Confusion matrices of the first shown annotators, and their origin.

    Shares come from the model if it has confusion matrices; otherwise they are counted against the
    inferred labels. ``met`` counts the annotations behind each row.
    """
    table = inputs.table
    n = min(_n_matrices(table.n_classes), len(shown))
    if not n:
        return None, []
    source, learnt = _learnt(inputs, inferred, shown[:n])
    cells = _cells_of(inputs.table, inferred, shown[:n])
    matrices = []
    for k in range(n):
        shares, met = _counted(counts[k], table.n_classes)
        matrix = shares if learnt is None else learnt[k]
        matrices.append({"shares": matrix.round(4), "met": met, "cells": cells[k]})
    return {"source": source, "shown": n, "classes": table.classes.tolist()}, matrices


def spammer_scores(
    inputs: Inputs, inferred: Inferred, shown: IntArray
) -> list[float | None] | None:
    """Return how much each annotator's answers depend on the class, if a model has matrices."""
    _, learnt = _learnt(inputs, inferred, shown)
    if learnt is None or inputs.table.n_classes < 2:
        return None
    return [
        float(spammer_score(matrix[None])[0]) if np.isfinite(matrix).all() else None
        for matrix in learnt
    ]


def _cells_of(table: AnnotationTable, inferred: Inferred, shown: IntArray) -> list[dict[str, Any]]:
    """Instances of each annotator's mistakes by "true-given", the most doubtful answers first."""
    right = inferred.posterior[table.instance, table.label]
    true = inferred.codes[table.instance]
    rows = np.flatnonzero(true != table.label)
    rows = rows[np.lexsort((table.instance[rows], right[rows], table.annotator[rows]))]
    starts = np.searchsorted(table.annotator[rows], shown)
    stops = np.searchsorted(table.annotator[rows], shown, side="right")
    room, found = CELL_TEXT, []
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        cells: dict[str, list[Any]] = {}
        for row in rows[low:high].tolist():
            ids = cells.setdefault(f"{true[row]}-{table.label[row]}", [])
            if room > 0 and len(ids) < LIMITS["instances"]:
                ids.append(table.instances[table.instance[row]].item())
                room -= len(str(ids[-1])) + 8
        found.append({key: ids for key, ids in cells.items() if ids})
    return found


def _n_matrices(n_classes: int) -> int:
    if n_classes > LIMITS["matrix_classes"]:
        return 0
    return min(LIMITS["matrices"], MATRIX_CELLS // max(n_classes**2, 1))


def _counted(counts: dict[tuple[int, int], int], n_classes: int) -> tuple[FloatArray, IntArray]:
    """Shares of the given classes by inferred class (NaN where absent), and counts of these."""
    matrix = np.zeros((n_classes, n_classes))
    for (true, given), count in counts.items():
        matrix[true, given] = count
    met = matrix.sum(axis=1)
    return matrix / np.where(met > 0, met, np.nan)[:, None], met.astype(np.int64)


def _learnt(
    inputs: Inputs, inferred: Inferred, shown: IntArray
) -> tuple[str | None, FloatArray | None]:
    """Name and confusion matrices of the model that has any; (None, None) if none does."""
    candidates = [("aggregator", inputs.aggregator), ("classifier", inputs.classifier)]
    # Labels and matrices of a page come from the same model if possible.
    if inferred.kind == "classifier":
        candidates.reverse()
    for argument, estimator in candidates:
        if getattr(estimator, "confusion_", None) is not None:
            return type(estimator).__name__, _confusion_of(estimator, argument, inputs, shown)
    return None, None


def _confusion_of(estimator: Any, argument: str, inputs: Inputs, shown: IntArray) -> FloatArray:
    table = inputs.table
    matrix = np.asarray(estimator.confusion_, dtype=np.float64)
    positions = class_positions(estimator, table, argument)
    k = len(positions)
    if matrix.shape != (table.n_annotators, k, k):
        raise AnnotationError(
            f"{argument}.confusion_ has shape {matrix.shape}; it must hold one matrix per "
            f"annotator of the table, shape ({table.n_annotators}, {k}, {k})"
        )
    return to_table_classes(matrix[shown], positions, table.n_classes, f"{argument}.confusion_")


# -- what to do, and what it answers ---------------------------------------------------------------


def _actions(found: Findings) -> Iterator[Action]:
    own = found.once(confusions_section)
    if own is None:
        return
    by_gold, is_expected = own["truth"] == "gold", own["truth"] == "expected"
    rows = mixed_up(own)[: LIMITS["actions"]]
    if not rows or not (own["several"] or by_gold):
        return  # Of two classes, every mistake mixes up both, and only gold shows which way.
    most, total = sum(row["n"] + row.get("back", 0) for row in rows), own["n_wrong"]
    about = "about " if is_expected else ""
    wrong = f"differ from the {own['truth']} labels"
    if is_expected:
        wrong = "are probably wrong"
    share = f"{about}{percent(most / total)}"
    pairs = (
        "One pair of classes accounts"
        if len(rows) == 1
        else f"{len(rows)} pairs of classes account"
    )
    text = f"{pairs} for {share} of the annotations that {wrong} ({most:,} of {total:,})."
    random = sum(row["chance"] for row in rows) if own["several"] else 0.0
    if own["several"]:
        these = "this pair" if len(rows) == 1 else "these pairs"
        text += f" If mistakes were random, {these} would account for {percent(random / total)}."
        text += _no_more_than_chance(own, rows)
    if most >= total:  # All of them in all pairs says nothing.
        top = rows[0]
        first, second = (f"“{shorten(str(top[name]))}”" for name in ("true", "given"))
        n = top["n"] + top.get("back", 0)
        some = "all" if n >= total else f"{about}{n:,}"
        named = f"In {some} of them, {first} was labelled {second}."
        if not by_gold:
            named = f"{some[0].upper()}{some[1:]} of them confuse {first} and {second}."
        text = f"{about}{total:,} annotations {wrong}. {named}"
        text = f"{text[0].upper()}{text[1:]}"
    is_known = own["known"]
    if is_known and is_expected:
        text += " These are estimates from the model's labels, and may be wrong."
    if is_known and not by_gold:
        text += f" {REVERSED}"
    if not is_known:
        # Which class is mistaken for which rests on labels that nothing vouches for.
        rows = [{**row, "n": None} for row in rows]
        text = (
            "Annotators disagree most often between these classes. It is not known which class is "
            f"right. {SAMPLE_TELLS}."
        )
    title = "Clarify the guidelines for these classes"
    if is_scale_of_grades(found.inputs.table):
        title = "Agree on examples of these grades"
        if all(abs(row["row"] - row["column"]) == 1 for row in rows):
            text += (
                " Neighbouring grades are always confused to some degree. It helps most to show "
                "all annotators an example of each grade."
            )
    yield Action(
        ActionCode.EXPLAIN,
        "confusions",
        title,
        text,
        share_of_wrong(found, (most - random) / total / 2),  # Guidelines prevent some of them.
        rows,
    )


REVERSED = (
    "If two classes are mixed up, it is uncertain which was mistaken for the other. If most "
    "annotators make the same mistake, the inferred label is wrong, too."
)
"""Why no inferred label shows which of two classes is mistaken for the other."""


def both_ways(pairs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join confusions of the same two classes, those that are mixed up most often first.

    Each row is the more frequent direction, with the number of the other one as "back".
    """
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for pair in pairs:  # The most frequent come first.
        low, high = sorted((pair["row"], pair["column"]))
        if (low, high) not in found:
            found[low, high] = {**pair, "back": 0}
            continue
        row = found[low, high]
        row["back"] = pair["n"]
        if "chance" in pair:
            row["chance"] += pair["chance"]
        instances = dict.fromkeys([*row["instances"], *pair["instances"]])
        row["instances"] = [*instances][: LIMITS["instances"]]
    return sorted(found.values(), key=lambda row: -row["n"] - row["back"])


SHRUNK_BY = 10.0
"""Answers distributed like the crowd's that are added to those of an annotator, to judge chance."""

MORE_THAN_CHANCE, FALSE_ALARM, PER_CASE = 1.1, 0.05, 2
"""How many times as often as by chance two classes must be mixed up for clearer guidelines to help,
how often one of all pairs may seem to be by chance, and how many annotations count as one case,
because annotators of the same item tend to be wrong together."""


def mixed_up(own: Mapping[str, Any]) -> Rows:
    """Return the confusions that are more frequent than random mistakes, most frequent first.

    Without gold, both directions are joined. With only two classes, all mistakes mix these up.
    """
    rows = own["pairs"] if own["truth"] == "gold" else both_ways(own["pairs"])
    if not own.get("several"):  # Summaries of earlier versions do not say.
        return [*rows]
    classes = {code for row in rows for code in (row["row"], row["column"])}
    n = np.array([row["n"] + row.get("back", 0) for row in rows], dtype=np.float64)
    chance = np.array([row["chance"] for row in rows])
    n_pairs = len(classes) * (len(classes) - 1) / (1 if own["truth"] == "gold" else 2)
    # P(a Poisson variable with mean chance >= n), of cases.
    p = gammainc(np.maximum(n, 1e-9) / PER_CASE, chance / PER_CASE)
    clear = (n >= MORE_THAN_CHANCE * chance) & (p < FALSE_ALARM / max(n_pairs, 1))
    return [row for row, is_clear in zip(rows, clear, strict=True) if is_clear]


def _no_more_than_chance(own: Mapping[str, Any], named: Rows) -> str:
    """Return a sentence on the most frequent confusion if it is not among those that are named."""
    top = (own["pairs"] if own["truth"] == "gold" else both_ways(own["pairs"]))[0]
    if any((row["row"], row["column"]) == (top["row"], top["column"]) for row in named):
        return ""
    first, second = (f"“{shorten(str(top[name]))}”" for name in ("true", "given"))
    n = counted(top["n"] + top.get("back", 0), "annotation")
    return (
        f" {first} and {second} are confused most often, in {n}, but hardly more often than by "
        "chance, so they are not listed."
    )


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    for k, row in enumerate(own["pairs"]):
        yield (2 if k < 30 else 11), row["instances"]


def confused_cells(own: Mapping[str, Any] | None) -> set[str]:
    """Cells "true-given" that the table of confusions has a row of."""
    return {f"{pair['row']}-{pair['column']}" for pair in (own or {}).get("pairs", ())}


def _tables(own: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    yield "confusions_matrix", cells_of(own.get("classes"), own.get("matrix"), "n")


def _common_tables(own: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    yield "common_confusions", cells_of(own.get("classes"), own.get("matrix"))


def _learnt_tables(own: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    yield "learnt_confusion", cells_of(own.get("classes"), own.get("matrix"))


def answer_confused(s: Mapping[str, Any]) -> Answer:
    """Answer what is confused."""
    found = s.get("confusions", {})
    pairs = found.get("pairs")
    if not pairs:
        return None, "No annotation differs from its label."
    if not mixed_up(found):
        return "confusions", "No two classes are confused clearly more often than by chance."
    top = pairs[0]
    if found["truth"] != "gold" and not found.get("several", True):
        return "confusions", "There are two classes, so every wrong annotation mixes them up."
    if found["truth"] != "gold":
        top = both_ways(pairs)[0]
        named = f"“{shorten(str(top['true']))}” and “{shorten(str(top['given']))}”"
        text = f"Annotators mix up {named} most often"
        if not found.get("known", True):
            return "confusions", f"{text}; it is not known which is right."
        return "confusions", f"{text}."
    return (
        "confusions",
        f"The most frequent confusion: “{shorten(str(top['true']))}” is labelled "
        f"“{shorten(str(top['given']))}”.",
    )


def always_the_same(s: Mapping[str, Any]) -> str:
    """Say how often the most frequent class would be right; "" if classes are about even."""
    matrix = (s.get("confusions") or {}).get("matrix")
    of_true = [sum(row) for row in matrix or ()]
    if not sum(of_true) or max(of_true) * len(of_true) < UNEVEN * sum(of_true):
        return ""
    share = max(of_true) / sum(of_true)
    top = s["confusions"]["classes"][of_true.index(max(of_true))]
    return (
        f"Always answering “{shorten(str(top))}”, the most frequent class, would be right in about "
        f"{percent(share)} of cases, without any skill."
    )


def beside_typical(s: Mapping[str, Any]) -> str:
    """Say how the share of wrong annotations goes with the typical annotator's, and with gold.

    Annotators who gave many annotations may be better or worse than the median.
    """
    wrong = s["confusions"]["n_wrong"] / max(s["confusions"]["n"], 1)
    typical = (s.get("annotators") or {}).get("median_accuracy")
    text = ""
    if typical is not None and abs(1 - typical - wrong) >= APART:
        text = (
            "Annotators who gave many annotations weigh more in this share; the typical annotator "
            f"(the median) is wrong in {percent(1 - typical)} of cases. "
        )
    gold = (s.get("gold") or {}).get("annotations") or {}
    if "low" in gold and gold["low"] is not None:
        level = {"value": 1 - gold["right"], "low": 1 - gold["high"], "high": 1 - gold["low"]}
        text += (
            f"On the items with gold labels, {percent_range(level)} of "
            f"{counted(gold['n'], 'annotation')} are wrong, as measured. "
        )
    return text


CONFUSIONS = Section(
    "confusions",
    "Which classes are confused?",
    "confusions.html",
    confusions_section,
    actions=_actions,
    instances=_instances,
    tables=_tables,
    words={
        "confused_cells": confused_cells,
        "mixed_up": mixed_up,
        "always_the_same": always_the_same,
        "beside_typical": beside_typical,
        "REVERSED": REVERSED,
    },
    answer=answer_confused,
)


def answer_common(s: Mapping[str, Any]) -> Answer:
    """Answer which confusion the most annotators make."""
    found = s.get("common_confusions", {})
    pairs = found.get("pairs")
    if not pairs or pairs[0].get("n") is None:
        return "common_confusions", ""
    top = pairs[0]
    if both := found.get("both"):
        names = " or ".join(f"“{shorten(str(each))}”" for each in both["classes"])
        n, of = f"{both['n']:,}", counted(both["of"], "annotator")
        told = f"{of} had items whose label is {names}. About {n} of them mixed up the two at"
        return "common_confusions", f"{told} least once."
    true, given = (f"“{shorten(str(top[name]))}”" for name in ("true", "given"))
    of = top.get("of", found["n_annotators"])
    whom = "All" if 1 < top["n"] == of else f"{top['n']:,} of the"
    whom += f" {counted(of, 'annotator')}"
    told = f"{whom} of {true} items labelled at least one of them {given}"
    return "common_confusions", f"{told}, judged by the {found['truth']} labels."


COMMON = Section(
    "common_confusions",
    "Which confusions do many annotators share?",
    "common_confusions.html",
    common_section,
    tables=_common_tables,
    words={"REVERSED": REVERSED},
    answer=answer_common,
    on_demand=True,
)

LEARNT = Section(
    "learnt_confusion",
    "Which confusion did the classifier learn?",
    "learnt_confusion.html",
    learnt_section,
    tables=_learnt_tables,
    on_demand=True,
)
