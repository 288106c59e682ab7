"""Counts of annotations, with agreement and ties, of the whole table and of each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from manyhands.agreement import (
    ClassAgreement,
    class_agreement,
    krippendorff_alpha,
    percent_agreement,
)
from manyhands.agreement.weighted import Annotations, ClassCounts, class_counts, per_entry
from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import shown_order
from manyhands.annotations.scales import look_like_grades
from manyhands.annotations.target import Sharded
from manyhands.codes import WarningCode
from manyhands.decision.labels import is_scale_of_grades
from manyhands.planning.beliefs import distinct_pairs
from manyhands.report.inputs import Inputs
from manyhands.report.limits import IMBALANCED, LIMITS
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.typing import AnyArray, IntArray
from manyhands.wording import MEASURES, count_with_share, counted, listed, percent, shorten, spread


def data_section(found: Findings) -> Content:
    """Collect counts, sparsity, imbalance, agreement and ties of the observed annotations."""
    inputs, table = found.inputs, found.inputs.table
    per_instance = table.annotations_per_instance()
    per_annotator = table.annotations_per_annotator()
    cells, no_counts = len(distinct_pairs(table)), np.zeros(0, dtype=np.int64)
    return {
        "n_instances": table.n_instances,
        "n_annotators": table.n_annotators if table.annotators_known else None,
        "n_annotations": table.n_annotations,
        "n_classes": table.n_classes,
        "n_unannotated": int((per_instance == 0).sum()),
        "n_single": int((per_instance == 1).sum()),
        "n_silent": int((per_annotator == 0).sum()) if table.annotators_known else 0,
        "n_added": inputs.whole.n_annotations - table.n_annotations,
        "n_repeated": table.n_annotations - cells,
        "n_abstentions": len(table.abstentions),
        "n_skips": len(table.skips),
        "weighted": inputs.whole.weights is not None,
        "sparsity": 1 - cells / max(table.n_instances * table.n_annotators, 1),
        "per_instance": spread_of_counts(per_instance),
        "per_annotator": spread_of_counts(per_annotator if table.annotators_known else no_counts),
        "imbalance": _imbalance(inputs),
        "agreement": _agreement(table, int((per_instance > 1).sum())),
        "ties": {"n": int(inputs.tied.sum()), "share": _share(inputs.tied, inputs.annotated)},
    }


RARE = 3
"""How many times as many labels the most frequent class has where the rarest is spoken of."""


def classes_section(found: Findings) -> Content | None:
    """Annotations and inferred labels per class; only the most frequent of many classes."""
    inputs, table, inferred = found.inputs, found.inputs.table, found.inputs.inferred
    if not table.n_classes:
        return None
    given = np.bincount(table.label, minlength=table.n_classes)
    counts, agreement = _inferred_counts(inputs), class_agreement(table)
    rows = _classes(table.classes, given, counts, agreement, known=inferred is not None)
    rows["rarest"] = None if inferred is None else _rarest(table.classes, counts, inputs)
    return rows


def _rarest(
    classes: AnyArray, counts: IntArray, inputs: Inputs | None = None
) -> dict[str, Any] | None:
    """Return the rarest class among labels, if it is rare, and by gold how often it is found."""
    has = counts > 0
    if has.sum() < 2 or counts.max() < RARE * counts[has].min():
        return None
    least = int(np.flatnonzero(has)[counts[has].argmin()])
    found = {"name": classes[least].item(), "share": float(counts[least] / counts.sum())}
    n, right = 0, 0
    if inputs is not None and inputs.inferred is not None and inputs.gold is not None:
        of_class = (inputs.gold == least) & inputs.annotated
        n, right = int(of_class.sum()), int((inputs.inferred.codes[of_class] == least).sum())
    return found | {"n_gold": n, "n_found": right}


def _classes(
    classes: AnyArray,
    given: IntArray,
    counts: IntArray,
    agreement: ClassAgreement,
    *,
    known: bool = True,
) -> dict[str, Any]:
    """Annotations and, if known, inferred labels of each class, both of shape (C,)."""
    shown = np.arange(len(classes))
    if len(classes) > LIMITS["classes"]:
        shown = np.argsort(-given, kind="stable")[: LIMITS["classes"]]
    given_share = given / max(given.sum(), 1)
    inferred_share = counts / max(counts.sum(), 1)
    return {
        "total": len(classes),
        "shown": len(shown),
        # The bars of the class table are drawn relative to this share.
        "largest_share": max(given_share.max(), inferred_share.max(), 1e-9),
        "rows": [
            {
                "name": classes[c].item(),
                "n_annotations": int(given[c]),
                "annotation_share": given_share[c],
                "n_inferred": int(counts[c]) if known else None,
                "inferred_share": inferred_share[c] if known else None,
                "agreement": agreement.agreement[c],
                "kappa": agreement.kappa[c],
            }
            for c in shown
        ],
    }


def store_sections(store: Sharded) -> dict[str, Any]:
    """The sections "data" and "classes" of a store, counted shard by shard."""
    per_instance, per_annotator = (
        store.annotations_per_instance(),
        store.annotations_per_annotator(),
    )
    given, cells = np.zeros(store.n_classes, dtype=np.int64), 0
    for number in range(store.n_shards):
        shard = store.shard(number)
        given += np.bincount(shard.label, minlength=store.n_classes)
        instance = np.repeat(np.arange(shard.n_instances), np.diff(shard.start))
        cells += len(np.unique(instance * np.int64(store.n_annotators) + shard.annotator))
    inferred, n_tied = _majorities(class_counts(store, least=1))
    n_pairable, n_annotated = int((per_instance > 1).sum()), int((per_instance > 0).sum())
    data = {
        "n_instances": store.n_instances,
        "n_annotators": store.n_annotators,
        "n_annotations": store.n_annotations,
        "n_classes": store.n_classes,
        "n_unannotated": store.n_instances - n_annotated,
        "n_single": int((per_instance == 1).sum()),
        "n_silent": int((per_annotator == 0).sum()),
        "n_added": 0,
        "n_repeated": store.n_annotations - cells,
        "n_abstentions": store.n_abstentions,
        "n_skips": store.n_skips,
        "weighted": store.weighted,
        "sparsity": 1 - cells / max(store.n_instances * store.n_annotators, 1),
        "per_instance": spread_of_counts(per_instance),
        "per_annotator": spread_of_counts(per_annotator),
        "imbalance": _imbalance_of(given, store.classes) if store.n_annotations else None,
        "agreement": _agreement(store, n_pairable),
        "ties": {"n": n_tied, "share": n_tied / n_annotated if n_annotated else None},
    }
    classes = _classes(store.classes, given, inferred, class_agreement(store))
    classes["rarest"] = _rarest(store.classes, inferred)
    return {"data": data, "classes": classes}


def _majorities(counts: ClassCounts) -> tuple[IntArray, int]:
    """Number of instances per class with the most votes (the first if tied), and of ties."""
    votes = counts.votes
    if not votes.shape[0]:
        return np.zeros(votes.shape[1], dtype=np.int64), 0
    assert counts.times is not None
    top = np.maximum.reduceat(votes.data, votes.indptr[:-1])
    row = per_entry(votes, np.arange(votes.shape[0]))
    best = np.flatnonzero(votes.data == top[row])
    _, first, winners = np.unique(row[best], return_index=True, return_counts=True)
    times = counts.times.astype(np.int64)
    inferred = np.zeros(votes.shape[1], dtype=np.int64)
    np.add.at(inferred, votes.indices[best[first]], times)
    return inferred, int(times[winners > 1].sum())


def spread_of_counts(counts: IntArray) -> dict[str, Any]:
    """Mean, median and range of the counts above 0, and a histogram of all counts."""
    some = counts[counts > 0]
    return {
        "mean": float(some.mean()) if len(some) else None,
        "median": float(np.median(some)) if len(some) else None,
        "min": int(some.min()) if len(some) else None,
        "max": int(some.max()) if len(some) else None,
        "histogram": count_histogram(counts),
    }


def count_histogram(counts: IntArray) -> list[dict[str, int]]:
    """Histogram of counts: one bin per number up to 12, else bins from 1, 2, 5, 10, 20, ..."""
    if not len(counts):
        return []
    top = int(counts.max())
    starts = np.arange(int(counts.min()), top + 2) if top <= 12 else _round_starts(counts)
    filled, _ = np.histogram(counts, bins=starts)
    return [
        {"from": int(low), "to": int(high) - 1, "count": int(n)}
        for low, high, n in zip(starts[:-1], starts[1:], filled, strict=True)
    ]


def _round_starts(counts: IntArray) -> IntArray:
    """Bin starts from 0, 1, 2, 5, 10, 20, 50, ... that cover the counts."""
    decades = 10 ** np.arange(len(str(int(counts.max()))) + 1)
    starts = np.concatenate([[0], np.outer(decades, [1, 2, 5]).ravel()])
    first = np.searchsorted(starts, counts.min(), side="right") - 1
    last = np.searchsorted(starts, counts.max(), side="right")
    return starts[first : last + 1]


def _share(marked: Any, among: Any) -> float | None:
    return float(marked[among].mean()) if among.any() else None


def _imbalance(inputs: Inputs) -> dict[str, Any] | None:
    """Most and least frequent class and their ratio, which is None if a class is absent."""
    table = inputs.table
    if not table.n_annotations:
        return None
    return _imbalance_of(np.bincount(table.label, minlength=table.n_classes), table.classes)


def _imbalance_of(counts: IntArray, classes: AnyArray) -> dict[str, Any]:
    most, least = int(counts.argmax()), int(counts.argmin())
    return {
        "ratio": float(counts[most] / counts[least]) if counts[least] else None,
        "most": {"name": classes[most].item(), "n": int(counts[most])},
        "least": {"name": classes[least].item(), "n": int(counts[least])},
    }


def _agreement(table: Annotations, n_pairable: int) -> dict[str, Any]:
    """Agreement on the scale of the table, and the order of classes that are more than names."""
    named = table.scale == "nominal"
    graded = n_pairable > 0 and is_scale_of_grades(table)
    return {
        "n_instances": n_pairable,
        "percent": percent_agreement(table) if n_pairable else None,
        "alpha": krippendorff_alpha(table) if n_pairable else None,
        "alpha_nominal": krippendorff_alpha(table, level="nominal") if graded else None,
        "within_one": percent_agreement(table, within=1) if graded else None,
        "scale": table.scale,
        "order": None if named else shown_order(table.classes),
    }


def _inferred_counts(inputs: Inputs) -> IntArray:
    """Number of annotated instances per inferred class."""
    c = inputs.table.n_classes
    if inputs.inferred is None:
        return np.zeros(c, dtype=np.int64)
    return np.bincount(inputs.inferred.codes[inputs.annotated], minlength=c)


# -- what is warned of -----------------------------------------------------------------------------


def never_given(classes: Mapping[str, Any]) -> list[Any]:
    """Names of the classes, as the section lists them, that nobody gave."""
    return [row["name"] for row in classes["rows"] if not row["n_annotations"]]


Told = Iterator[tuple[WarningCode, str]]
"""Warnings, each a code for programs and a text for readers."""


def warn_of_agreement(data: Mapping[str, Any]) -> Told:
    """Warn where agreement cannot be measured, or is below chance."""
    agreement = data["agreement"]
    if not agreement["n_instances"]:
        yield (
            WarningCode.NO_OVERLAP,
            "No item has two annotations. Agreement cannot be measured, and how reliable "
            "annotators "
            "are rests on the model's assumptions alone.",
        )
    alpha = agreement["alpha"]
    if alpha is not None and alpha < 0:
        yield (
            WarningCode.ALPHA_BELOW_0,
            f"Krippendorff's alpha is {alpha:.2f}, below 0: annotators agree less than by chance. "
            "Check for swapped classes or misunderstood instructions.",
        )


def warn_of_classes(never: list[Any], data: Mapping[str, Any]) -> Told:
    """Warn of classes that nobody gave, and of rare ones."""
    if never:
        start, verb = ("Class", "was") if len(never) == 1 else ("Classes", "were")
        names = listed(never, len(never))
        yield WarningCode.CLASS_NEVER_GIVEN, f"{start} {names} {verb} never given by any annotator."
    ratio = data["imbalance"]["ratio"]
    are_numbers = data["agreement"]["scale"] == "interval"  # Of which some are always rare.
    if ratio is not None and ratio >= IMBALANCED and not are_numbers:
        yield (
            WarningCode.IMBALANCE,
            f"The most frequent class was given {ratio:,.0f} times as often as the least frequent, "
            "so accuracy says little about rare classes.",
        )


def warn_of_scale(table: AnnotationTable) -> Told:
    """Warn of numbers that are read as names, and look like grades."""
    if table.scale == "nominal" and look_like_grades(table.classes, table.label, table.instance):
        yield (
            WarningCode.LOOK_LIKE_GRADES,
            f"The labels {shown_order(table.classes).replace(' < ', ', ')} are read as names of "
            "classes. But annotators who differ mostly differ by little, as they do with grades. "
            "If "
            "they are grades, add --scale ordinal. The report then shows who grades too high, and "
            "a near miss counts as less wrong.",
        )


def warn_of_coverage(data: Mapping[str, Any]) -> Told:
    """Warn of instances with no annotation, or one."""
    if data["n_unannotated"]:
        verb = "has" if data["n_unannotated"] == 1 else "have"
        yield (
            WarningCode.UNANNOTATED,
            f"{counted(data['n_unannotated'], 'item')} {verb} no annotations.",
        )
    if data["n_single"] and data["agreement"]["n_instances"]:
        verb = "has" if data["n_single"] == 1 else "have"
        yield (
            WarningCode.SINGLE,
            f"{counted(data['n_single'], 'item')} {verb} only one annotation.",
        )


def warn_of_counting(data: Mapping[str, Any]) -> Told:
    """Warn of annotations that are not counted as they are."""
    if data["n_added"]:
        verb = "is" if data["n_added"] == 1 else "are"
        yield (
            WarningCode.ADDED,
            f"{counted(data['n_added'], 'annotation')} added by a program (pseudo, generated or "
            f"synthetic) {verb} not counted here.",
        )
    if data["n_repeated"]:
        verb = "repeats" if data["n_repeated"] == 1 else "repeat"
        yield (
            WarningCode.REPEATED,
            f"{counted(data['n_repeated'], 'annotation')} {verb} a pair of item and annotator.",
        )
    if data["weighted"]:
        yield WarningCode.WEIGHTS, "The table has weights; this report counts each annotation once."


def answer_data(s: Mapping[str, Any]) -> Answer:
    """Answer what is in the data."""
    d = s["data"]
    if not d or d.get("n_annotators") is None:
        return "data", ""
    text = (
        f"{counted(d['n_annotators'], 'annotator')} gave "
        f"{counted(d['n_annotations'], 'annotation')} to {counted(d['n_instances'], 'item')}"
    )
    mean = d["per_instance"]["mean"]
    each = "" if mean is None else f", {mean:.1f} per item"
    classes = counted(d["n_classes"], "class", "classes")
    return "data", f"{text}{each}. There {'is' if d['n_classes'] == 1 else 'are'} {classes}."


def answer_classes(s: Mapping[str, Any]) -> Answer:
    """Answer which classes are frequent."""
    rows = s.get("classes", {}).get("rows")
    if not rows:
        return None, "There are no annotations."
    often = max(rows, key=lambda row: row["n_annotations"])
    shares = f"{percent(often['annotation_share'])} of the annotations"
    if often.get("inferred_share") is not None:
        shares += f", {percent(often['inferred_share'])} of the labels"
    return "classes", f"The most frequent class is “{shorten(str(often['name']))}”: {shares}."


def told_of_rarest(rarest: Mapping[str, Any] | None) -> str:
    """Say how often items of a rare class are found; empty if no class is rare."""
    if not rarest:
        return ""
    name, n = f"“{shorten(str(rarest['name']))}”", rarest["n_gold"]
    start = f"The rarest class is {name}, with {percent(rarest['share'])} of the labels."
    if not n:
        return (
            f"{start} Only gold labels (--gold) can show how many items of this class are found. "
            "Accuracy over all classes says little about a rare class."
        )
    share = percent(rarest["n_found"] / n)
    items = f"{n:,} items whose gold label is" if n > 1 else "1 item whose gold label is"
    return f"{start} Of {items} {name}, {rarest['n_found']:,} have this label ({share} recall)."


# -- the same as rows, for the command line --------------------------------------------------------


def data_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts of ``summary["data"]`` as pairs (name, value); rare ones only if they are not 0."""
    is_open = data["n_annotators"] is None  # Votes of nobody in particular.
    are_numbers = data["agreement"]["scale"] == "interval"
    rows = [
        ("Items", _number(data["n_instances"])),
        ("Annotators", "unknown" if is_open else _number(data["n_annotators"])),
        ("Annotations", _number(data["n_annotations"])),
        ("Different numbers" if are_numbers else "Classes", _number(data["n_classes"])),
        ("Annotations per annotated item", _spread(data["per_instance"])),
        ("Annotations per active annotator", _spread(data["per_annotator"])),
        (
            "Items without annotation",
            count_with_share(data["n_unannotated"], data["n_instances"]),
        ),
        (
            "Items with a single annotation",
            count_with_share(data["n_single"], data["n_instances"]),
        ),
        ("Empty cells (item, annotator)", percent(data["sparsity"])),
    ]
    if is_open:
        rows = [row for row in rows if "nnotator" not in row[0] or row[1] == "unknown"]
    agreement = data["agreement"]
    if agreement["n_instances"]:
        agreeing = [(_named("percent_agreement"), percent(agreement["percent"]))]
        scale = f"{MEASURES['krippendorff_alpha']}, {agreement['scale']}"
        alpha = [(scale, _alpha(agreement["alpha"]))]
        if agreement["within_one"] is None:
            rows += agreeing + alpha
        else:  # Of grades, that comes first which knows their order.
            alpha += [(_named("krippendorff_alpha_nominal"), _alpha(agreement["alpha_nominal"]))]
            near = (_named("within_one_grade"), percent(agreement["within_one"]))
            rows += [*alpha, near, *agreeing]
    ties, imbalance = data["ties"], data["imbalance"]
    if ties["share"] is not None and not are_numbers:
        rows.append(
            ("Ties of the majority vote", f"{_number(ties['n'])} ({percent(ties['share'])})")
        )
    if imbalance is not None and not are_numbers:
        ratio = imbalance["ratio"]
        shown = "a class never occurs" if ratio is None else f"{ratio:,.2f}"
        rows.append(("Most over least frequent class", shown))
    rare = [
        ("Abstentions", data["n_abstentions"]),
        ("Skips", data["n_skips"]),
        ("Annotators without annotation", data["n_silent"]),
        ("Repeated (item, annotator) pairs", data["n_repeated"]),
        ("Annotations added by a program (not counted)", data["n_added"]),
    ]
    return rows + [(name, _number(n)) for name, n in rare if n]


def _named(measure: str) -> str:
    name = MEASURES[measure]
    return name[:1].upper() + name[1:]


def _alpha(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.3f}"


def class_rows(classes: dict[str, Any] | None) -> list[tuple[Any, str, str, str]]:
    """Classes as (name, annotations, their share, items by majority vote)."""
    if classes is None:
        return []
    return [
        (
            row["name"],
            _number(row["n_annotations"]),
            percent(row["annotation_share"]),
            _number(row["n_inferred"]),
        )
        for row in classes["rows"]
    ]


def _number(value: float | None) -> str:
    """Write a number with grouped thousands: 12,345 or 2.55."""
    if value is None:
        return "-"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.2f}"


def _spread(counts: dict[str, Any]) -> str:
    """Write mean, median and range of counts."""
    if counts["mean"] is None:
        return "-"
    middle, low, high = (_number(counts[name]) for name in ("median", "min", "max"))
    ends = spread(low, high, "")
    return f"{_number(counts['mean'])} (median {middle}, {ends})" if ends else f"{middle} each"


DATA = Section("data", "What is in the data?", "data.html", data_section, answer=answer_data)

CLASSES = Section(
    "classes",
    "How often is each class given?",
    "classes.html",
    classes_section,
    words={"told_of_rarest": told_of_rarest},
    answer=answer_classes,
)
