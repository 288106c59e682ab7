"""Training on gold labels: the ceiling for methods that learn from annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.evidence.data.sets import Data, load_data
from manyhands.exceptions import AnnotationError


def labelled_by_gold(of: Mapping[str, Any]) -> Data:
    """Load a data set and replace its annotators by one who gives the gold labels.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.
    """
    data = load_data(of)
    if data.y_train is None:
        raise AnnotationError(
            f"of={dict(of)!r} has no true classes to train on; name data with y_train"
        )
    n = len(data.y_train)
    table = AnnotationTable.from_arrays(
        np.arange(n),
        np.zeros(n, dtype=np.int64),
        data.y_train,
        classes=data.annotations.classes,
        instances=np.arange(n),
    )
    return replace(data, annotations=table, truth=None)
