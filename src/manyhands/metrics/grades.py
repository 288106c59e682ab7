"""How far labels on an ordered scale are from gold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.metrics import cohen_kappa_score, mean_absolute_error

from manyhands.metrics.gold import ranked_probability_score
from manyhands.typing import FloatArray, IntArray


class GradeScores(NamedTuple):
    """Labels that are grades against gold.

    Attributes
    ----------
    within_one : float
        Share of labels at most one grade off.
    mae : float
        Mean absolute error in grades.
    qwk : float or None
        Cohen's kappa with quadratic weights: 1 is perfect, 0 is chance; None where labels and gold
        are one and the same grade throughout.
    rps : float or None
        Ranked probability score (`manyhands.metrics.ranked_probability_score`); None without
        probabilities.
    """

    within_one: float
    mae: float
    qwk: float | None
    rps: float | None


def score_grades(y: IntArray, labels: IntArray, posterior: FloatArray | None = None) -> GradeScores:
    """Score n labels that are grades, n > 0.

    Parameters
    ----------
    y, labels : integer arrays of shape (n,)
        Codes of gold and labels, in the order of the grades.
    posterior : array of shape (n, n_classes), optional

    Returns
    -------
    GradeScores

    Examples
    --------
    >>> import numpy as np
    >>> found = score_grades(np.array([0, 1, 2, 3]), np.array([0, 2, 2, 1]))
    >>> found.within_one, found.mae, round(found.qwk, 2)
    (0.75, 0.75, 0.38)
    """
    apart = np.abs(labels - y)
    constant = len(np.unique(np.concatenate([y, labels]))) < 2
    grades = None if posterior is None else np.arange(posterior.shape[1])
    return GradeScores(
        float((apart <= 1).mean()),
        float(mean_absolute_error(y, labels)),
        None if constant else float(cohen_kappa_score(y, labels, weights="quadratic")),
        None if posterior is None else ranked_probability_score(posterior, y, classes=grades),
    )
