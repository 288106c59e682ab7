"""Agreement on each option of answers that are sets of labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyhands.agreement.intervals import jackknife
from manyhands.agreement.overall import krippendorff_alpha
from manyhands.annotations.label_set_table import LabelSetTable
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class OptionAgreement:
    """Agreement on each option; arrays of shape (n_options,).

    Attributes
    ----------
    options : array
        Names.
    n_ticks : integer array
        Answers that tick the option.
    share : array
        Share of the answers that tick it.
    alpha, low, high : arrays
        Krippendorff's alpha of the question whether the option was ticked, and its interval; NaN
        if nobody or everybody ticked it.
    """

    options: AnyArray
    n_ticks: IntArray
    share: FloatArray
    alpha: FloatArray
    low: FloatArray
    high: FloatArray


def option_agreement(table: LabelSetTable, *, level: float = 0.95) -> OptionAgreement:
    """Return Krippendorff's alpha of each option, ticked or not, with its interval.

    Parameters
    ----------
    table : LabelSetTable
    level : float in (0, 1), default=0.95
        As in `jackknife`.

    Returns
    -------
    OptionAgreement

    Raises
    ------
    AnnotationError
        If ``table`` is not a LabelSetTable, or ``level`` is out of range.
    """
    if not isinstance(table, LabelSetTable):
        raise AnnotationError(
            f"table is a {type(table).__name__}, but agreement on options needs a LabelSetTable; "
            "for classes, use class_agreement"
        )
    found = [jackknife(krippendorff_alpha, each, level=level) for each in table.tables.values()]
    value, low, high = np.array(found, dtype=np.float64).T
    n_ticks = table.ticks_per_option()
    share = n_ticks / max(table.n_annotations, 1)
    return OptionAgreement(table.options, n_ticks, share, value, low, high)
