"""Warnings of a report, in words, the most serious first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.target import Sharded
from manyhands.codes import WarningCode
from manyhands.report.annotators import warn_of_annotators
from manyhands.report.counts import (
    data_section,
    never_given,
    warn_of_agreement,
    warn_of_classes,
    warn_of_counting,
    warn_of_coverage,
    warn_of_scale,
)
from manyhands.report.doubts import find_doubts, identification, shared_mistakes
from manyhands.report.gold import warn_of_gold
from manyhands.report.section import Findings

NOTHING_TO_REPORT = (WarningCode.EMPTY, "There are no observed annotations to report on.")


def find_warnings(found: Findings) -> list[dict[str, str]]:
    """List the warnings of a report, each with a code for programs and a text for readers."""
    table, data = found.inputs.table, found.once(data_section)
    if not table.n_annotations:
        return _listed_once([NOTHING_TO_REPORT])
    never = table.classes[np.bincount(table.label, minlength=table.n_classes) == 0].tolist()
    of_counts = [*warn_of_agreement(data), *warn_of_classes(never, data), *warn_of_coverage(data)]
    return _listed_once(
        [
            *warn_of_gold(found),
            *found.once(find_doubts),
            *warn_of_scale(table),
            *of_counts,
            *warn_of_annotators(found),
            *warn_of_counting(data),
        ]
    )


def find_store_warnings(
    store: AnnotationTable | Sharded | None, data: dict[str, Any], classes: dict[str, Any]
) -> list[dict[str, str]]:
    """List the warnings that need no annotator's reliability: of a store, or of nobody's votes.

    ``data`` and ``classes`` are the contents of these sections.
    """
    if not data["n_annotations"]:
        return _listed_once([NOTHING_TO_REPORT])
    shared = () if store is None else (*identification(store), *shared_mistakes(store))
    found = [*shared, *warn_of_agreement(data), *warn_of_classes(never_given(classes), data)]
    return _listed_once([*found, *warn_of_coverage(data), *warn_of_counting(data)])


def _listed_once(found: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    codes: dict[str, str] = {}
    for code, text in found:
        codes.setdefault(text, code)
    return [{"code": code, "text": text} for text, code in codes.items()]
