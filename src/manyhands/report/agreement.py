"""The section on agreement: a histogram over instances, and who agrees with whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from manyhands.agreement import annotator_agreement
from manyhands.agreement.pairs import agreement_of_pairs, instance_agreement
from manyhands.annotations import AnnotationTable
from manyhands.report.filters import percent
from manyhands.report.inputs import Inputs
from manyhands.report.limits import LIMITS
from manyhands.report.section import Answer, Content, Findings, Rows, Section
from manyhands.typing import FloatArray, IntArray

BUSIEST = 100
"""Annotators, those with the most annotations, whose pairs are compared."""

LEAST_SHARED = 10
"""Shared instances below which a pair is not listed, unless no pair has more."""


def agreement_section(found: Findings) -> Content | None:
    """Agreement by instance and by pair of annotators; None if no instance has two annotations."""
    inputs, table = found.inputs, found.inputs.table
    several = table.annotations_per_instance() > 1
    if not several.any():
        return None
    shares = instance_agreement(table)
    edges = np.linspace(0.0, 1.0, 11)
    counts, _ = np.histogram(shares.clip(0.0, 1.0), bins=edges)
    return {
        "n_instances": int(several.sum()),
        "n_unanimous": int((shares > 1 - 1e-9).sum()),
        "n_low": int((shares < 1 / 3).sum()),
        "histogram": [
            {"from": float(low), "to": float(high), "count": int(n)}
            for low, high, n in zip(edges[:-1].round(2), edges[1:].round(2), counts, strict=True)
        ],
        **_of_pairs(inputs),
    }


def agreement_with_others(inputs: Inputs) -> list[dict[str, Any]]:
    """Share of equal annotations by others, and number of comparisons, of every annotator."""
    found = annotator_agreement(inputs.table)
    return [
        {"share": None if n == 0 else float(share), "n": int(n)}
        for share, n in zip(found.agreement, found.n_pairs, strict=True)
    ]


def _of_pairs(inputs: Inputs) -> dict[str, Any]:
    """Pairs of the busiest annotators: a matrix of few, and the least and most agreeing."""
    table = inputs.table
    busiest = np.argsort(-table.annotations_per_annotator(), kind="stable")[:BUSIEST]
    busiest = busiest[table.annotations_per_annotator()[busiest] > 0]
    agreement, shared = agreement_of_pairs(table, busiest)
    answers = _Answers(table)
    shown = busiest[: LIMITS["matrix_of_pairs"]]
    m = len(shown)
    off = ~np.eye(m, dtype=bool)
    matrix = np.where(off & (shared[:m, :m] > 0), agreement[:m, :m], np.nan)
    return {
        "matrix_of_pairs": {
            "annotators": table.annotators[shown].tolist(),
            "total": int((table.annotations_per_annotator() > 0).sum()),
            "shares": matrix.round(4),
            "counts": np.where(off, shared[:m, :m], 0),
            "cells": _cells(answers, shown.tolist(), shared),
        },
        "pairs": _listed_pairs(table, busiest, agreement, shared, answers),
    }


def _cells(answers: _Answers, shown: list[int], shared: IntArray) -> dict[str, list[Any]]:
    """Instances on which two annotators differ, by "row-column" below the diagonal."""
    found = {
        f"{i}-{j}": answers.differing(a, b)
        for i, a in enumerate(shown)
        for j, b in enumerate(shown[:i])
        if shared[i, j]
    }
    return {cell: ids for cell, ids in found.items() if ids}


def _listed_pairs(
    table: AnnotationTable,
    busiest: IntArray,
    agreement: FloatArray,
    shared: IntArray,
    answers: _Answers,
) -> dict[str, Any]:
    """Pairs with enough shared instances, the least agreeing first; of many, both ends."""
    upper = np.triu(np.ones(shared.shape, dtype=bool), 1)
    least = LEAST_SHARED if shared[upper].max(initial=0) >= LEAST_SHARED else 1
    first, second = np.nonzero(upper & (shared >= least))
    order = np.argsort(agreement[first, second], kind="stable")
    total, half = len(order), LIMITS["pairs_of_annotators"] // 2
    if total > 2 * half:
        order = np.concatenate([order[:half], order[-half:]])
    rows = [
        {
            "first": table.annotators[busiest[a]].item(),
            "second": table.annotators[busiest[b]].item(),
            "share": float(agreement[a, b]),
            "n": int(shared[a, b]),
            "instances": answers.differing(int(busiest[a]), int(busiest[b])),
        }
        for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True)
    ]
    return {"total": total, "shown": len(rows), "least": least, "rows": rows}


class _Answers:
    """Answers by annotator, to find where two differ."""

    def __init__(self, table: AnnotationTable) -> None:
        self._table = table
        order = np.lexsort((table.instance, table.annotator))
        ends = np.cumsum(table.annotations_per_annotator())
        self._rows = np.split(order, ends[:-1])

    def differing(self, a: int, b: int) -> list[Any]:
        """First instances to which two annotators gave different classes."""
        table, ours, theirs = self._table, self._rows[a], self._rows[b]
        both, i, j = np.intersect1d(table.instance[ours], table.instance[theirs],
                                    return_indices=True)  # fmt: skip
        different = both[table.label[ours[i]] != table.label[theirs[j]]]
        ids: list[Any] = table.instances[different[: LIMITS["instances"]]].tolist()
        return ids


def places_of_pairs(own: Mapping[str, Any]) -> dict[tuple[int, int], int]:
    """Row of the list of pairs for each cell of the matrix of pairs."""
    position = {name: k for k, name in enumerate(own["matrix_of_pairs"]["annotators"])}
    found = {}
    for k, row in enumerate(own["pairs"]["rows"], start=1):
        a, b = position.get(row["first"]), position.get(row["second"])
        if a is not None and b is not None:
            found[a, b] = found[b, a] = k
    return found


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    yield from ((7, row["instances"]) for row in own["pairs"]["rows"])
    yield from ((13, ids) for ids in own["matrix_of_pairs"]["cells"].values())


def _tables(own: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Pairs of the matrix of pairs of annotators, each once."""
    found = own["matrix_of_pairs"]
    names = found["annotators"]
    yield (
        "agreement_matrix",
        [
            {"first": first, "second": second} | {"share": found["shares"][i][j]}
            | {"n": found["counts"][i][j]}
            for i, first in enumerate(names)
            for j, second in enumerate(names[:i])
        ],
    )  # fmt: skip


def answer_agree(s: Mapping[str, Any]) -> Answer:
    """Answer whether annotators agree."""
    found = s["data"].get("agreement", {})
    if not s.get("agreement") or found.get("percent") is None:
        return None, "No item has two annotations."
    text = f"Two annotations of an item agree in {percent(found['percent'])} of cases"
    if found.get("within_one") is not None:
        text += f" and are within one grade in {percent(found['within_one'])}"
    alpha = found["alpha"]
    if alpha is not None:
        text += f"; Krippendorff’s alpha is {alpha:.2f}, where 1 is full agreement and 0 is chance"
    return "agreement", f"{text}."


AGREEMENT = Section(
    "agreement",
    "Do the annotators agree?",
    "agreement.html",
    agreement_section,
    instances=_instances,
    tables=_tables,
    words={"places_of_pairs": places_of_pairs},
    answer=answer_agree,
)
