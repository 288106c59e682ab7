"""Measures of single classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.data.sets import Data
from manyhands.annotations.encoding import as_values
from manyhands.exceptions import AnnotationError


def recall_by_class(model: Any, data: Data) -> dict[str, float]:
    """Measure test accuracy within each true class.

    Parameters
    ----------
    model : classifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``recall_of_<class>`` for every class of the test part: the share of its instances that the
        model finds.

    Raises
    ------
    AnnotationError
        If the data have no test part.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), page 8, and Chu & Wang (KDD 2021), section 5: open country on
    LabelMe.
    """
    if data.y_test is None:
        raise AnnotationError(
            "y_test is None, so the recall of a class is unknown; leave this measure out of its row"
        )
    gold, predicted = as_values(data.y_test), as_values(model.predict(data.X_test))
    return {
        f"recall_of_{name}": float((predicted[gold == name] == name).mean())
        for name in np.unique(gold)
    }
