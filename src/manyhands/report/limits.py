"""Limits on what a report shows of a large table, and thresholds of its warnings."""

from __future__ import annotations

from typing import Final

from manyhands.planning import beliefs, screening

LIMITS: Final[dict[str, int]] = {
    "annotators": 200,
    "more_annotators": 20_000,
    "actions": 5,
    "review": 50,
    "next": 50,
    "confusions": 60,
    "gold_doubts": 50,
    "pairs_of_annotators": 40,
    "matrix_of_pairs": 24,
    "windows": 6,
    "annotators_over_time": 60,
    "items": 240,
    "instances": 3,
    "votes_of_item": 12,
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

MATRIX_CELLS: Final = 9_000
"""Maximal number of cells of all annotators' confusion matrices, at about 30 bytes of HTML each."""

CELL_TEXT: Final = 80_000
"""Characters of the instances behind cells of annotators' matrices; later annotators show none."""

FEW: Final = beliefs.LEAST_ANNOTATIONS
"""An annotator with fewer annotations than this is not judged: too few for a meaningful rate."""

IMBALANCED: Final = 10.0
"""Ratio of the most to the least frequent class from which the report warns of imbalance."""

OVERCONFIDENT: Final = 0.05
"""Excess of expected accuracy over accuracy against gold above which the report warns."""

MIN_GAIN: Final = 0.02
"""Right labels per further annotation below which the report advises to stop."""

FEW_TIMED: Final = screening.LEAST_TESTED
"""Timed annotations, and annotations with gold, below which nothing is said of an annotator."""
