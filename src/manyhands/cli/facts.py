"""The facts of a summary in words, for the terminal; the wording is that of the report."""

from __future__ import annotations

from typing import Any


def data_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts of ``summary["data"]`` as pairs (name, value); rare ones only if they are not 0."""
    rows = [
        ("Instances", number(data["n_instances"])),
        ("Annotators", number(data["n_annotators"])),
        ("Annotations", number(data["n_annotations"])),
        ("Classes", number(data["n_classes"])),
        ("Annotations per annotated instance", spread(data["per_instance"])),
        ("Annotations per active annotator", spread(data["per_annotator"])),
        (
            "Instances without annotation",
            count_with_share(data["n_unannotated"], data["n_instances"]),
        ),
        (
            "Instances with a single annotation",
            count_with_share(data["n_single"], data["n_instances"]),
        ),
        ("Empty cells (instance, annotator)", percent(data["sparsity"])),
    ]
    agreement = data["agreement"]
    if agreement["n_instances"]:
        alpha = agreement["alpha"]
        rows += [
            ("Agreeing pairs of annotations", percent(agreement["percent"])),
            ("Krippendorff's alpha, nominal", "-" if alpha is None else f"{alpha:.3f}"),
        ]
    ties, imbalance = data["ties"], data["imbalance"]
    if ties["share"] is not None:
        rows.append(
            ("Ties of the majority vote", f"{number(ties['n'])} ({percent(ties['share'])})")
        )
    if imbalance is not None:
        ratio = imbalance["ratio"]
        shown = "a class never occurs" if ratio is None else f"{ratio:,.2f}"
        rows.append(("Most over least frequent class", shown))
    rare = [
        ("Abstentions", data["n_abstentions"]),
        ("Skips", data["n_skips"]),
        ("Annotators without annotation", data["n_silent"]),
        ("Repeated (instance, annotator) pairs", data["n_repeated"]),
        ("Annotations added by a program (not counted)", data["n_added"]),
    ]
    return rows + [(name, number(n)) for name, n in rare if n]


def class_rows(classes: dict[str, Any] | None) -> list[tuple[Any, str, str, str]]:
    """Classes as (name, annotations, their share, instances by majority vote)."""
    if classes is None:
        return []
    return [
        (
            row["name"],
            number(row["n_annotations"]),
            percent(row["annotation_share"]),
            number(row["n_inferred"]),
        )
        for row in classes["rows"]
    ]


def number(value: float | None) -> str:
    """Write a number with grouped thousands: 12,345 or 2.55."""
    if value is None:
        return "-"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.2f}"


def percent(share: float | None) -> str:
    """Write a share in percent; a share that is almost 0 or 1 is not rounded to it.

    Examples
    --------
    >>> percent(0.614), percent(0.9999), percent(0.0001), percent(1.0)
    ('61.4 %', '>99.9 %', '<0.1 %', '100.0 %')
    """
    if share is None:
        return "-"
    if 0 < share < 0.0005:
        return "<0.1 %"
    if 0.9995 <= share < 1:
        return ">99.9 %"
    return f"{100 * share:.1f} %"


def count_with_share(n: int, total: int) -> str:
    """Write a count with its share: 42 (4.2 %)."""
    return f"{n:,} ({percent(n / total)})" if n and total else f"{n:,}"


def spread(counts: dict[str, Any]) -> str:
    """Write mean, median and range of counts."""
    if counts["mean"] is None:
        return "-"
    middle, low, high = (number(counts[name]) for name in ("median", "min", "max"))
    return f"{number(counts['mean'])} (median {middle}, {low} to {high})"
