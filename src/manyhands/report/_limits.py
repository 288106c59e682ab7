"""How much of a large table a report shows; every list says how many it shows of how many."""

from __future__ import annotations

from typing import Final

LIMITS: Final[dict[str, int]] = {
    "annotators": 200,
    "matrices": 60,
    "matrix_classes": 20,
    "classes": 100,
    "pairs": 15,
    "all_labels": 200,
    "uncertain": 50,
    "against_majority": 50,
    "unexpected": 50,
    "votes": 6,
    "curve_points": 200,
    "curves": 12,
    "series": 4,
    "named": 5,
}
"""Rows of each kind. Stored in the summary, so that a report states the limits it was made with."""

MATRIX_CELLS: Final = 12_000
"""Cells of all annotators' confusion matrices together; about 40 bytes of HTML each."""

FEW: Final = 5
"""An annotator with fewer annotations than this is flagged: no rate is worth reading."""

IMBALANCED: Final = 10.0
"""A most frequent class this many times the least frequent one is worth a warning."""

OVERCONFIDENT: Final = 0.05
"""Labels that expect to be right this much more often than gold says are worth a warning."""
