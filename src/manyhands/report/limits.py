"""Limits on what a report shows of a large table, and thresholds of its warnings."""

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
"""Maximal number of entries of each kind; stored in the summary for the report to state."""

MATRIX_CELLS: Final = 12_000
"""Maximal number of cells of all annotators' confusion matrices, at about 40 bytes of HTML each."""

FEW: Final = 5
"""An annotator with fewer annotations than this is flagged: too few for a meaningful rate."""

IMBALANCED: Final = 10.0
"""Ratio of the most to the least frequent class from which the report warns of imbalance."""

OVERCONFIDENT: Final = 0.05
"""Excess of expected accuracy over accuracy against gold above which the report warns."""
