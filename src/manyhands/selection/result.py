"""Results of `manyhands.select`: a row per candidate, the choice, and reasons to doubt it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.inference.comparison import BaseScoreTable
from manyhands.typing import FloatArray, IntArray

HEADINGS = {
    "score": "score",
    "error_of_score": "± SE",
    "z": "z behind",
    "agreement": "A",
    "corrected": "B",
    "information": "MI",
    "estimate": "accuracy",
    "low": "from",
    "high": "to",
    "epoch": "epoch",
    "seconds": "seconds",
}
"""Columns of a printed `CandidateTable`, and their headings."""


@dataclass(frozen=True)
class CandidateScore:
    """Scores of one candidate, from its out-of-fold predictions.

    Attributes
    ----------
    candidate : str
    score, error_of_score : float or None
        The criterion, and its standard error over instances. All numbers are None if training
        failed.
    z : float or None
        Distance to the highest score: the mean paired difference of the criterion, divided by its
        standard error. The highest score has 0; candidates with at most 1 are tied with it.
    agreement, corrected, information : float or None
        `manyhands.metrics.vote_agreement` (A), `corrected_vote_agreement` (B) and
        `vote_information` (MI, in nats).
    estimate, low, high : float or None
        Estimated accuracy and its interval; see `manyhands.metrics.estimate_accuracy`.
    epoch : int or None
        Number of epochs, if `select` chose it; else None.
    seconds : float or None
        Seconds of training and prediction, summed over the folds.
    error : str or None
        Why training failed, if it did.
    """

    candidate: str
    score: float | None = None
    error_of_score: float | None = None
    z: float | None = None
    agreement: float | None = None
    corrected: float | None = None
    information: float | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    epoch: int | None = None
    seconds: float | None = None
    error: str | None = None


class CandidateTable(BaseScoreTable[CandidateScore]):
    """The candidates in decreasing order of scores; those that could not be trained come last."""

    _row = CandidateScore
    _headings = HEADINGS
    _title = "Candidates compared"


ABOUT_ACCURACY = (
    "accuracy is estimated for instances like the annotated ones; it assumes that annotators' "
    "mistakes are independent of the model's"
)


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of `manyhands.select`.

    Attributes
    ----------
    best_ : str
        Name of the chosen candidate: the one with the highest score, or tied with it.
    estimator_ : fitted classifier
        The average of the fold models of the best candidates (an `AveragedCrowdClassifier`); with
        ``refit=True``, the best candidates fitted to all instances. If all fold models infer labels
        from annotations and features (``posterior_``), so does their average.
    oof_proba_ : array of shape (n_instances, n_classes)
        Out-of-fold probabilities of the best candidate, or the mean over the best ``average``.
    table_ : CandidateTable
        One `CandidateScore` per candidate.
    tied_ : list of str
        Candidates with z <= 1, the chosen one first; the annotations do not show which is better.
    warnings_ : list of str
        Reasons to doubt the choice.
    criterion_ : str
        Name of the criterion.
    reason_ : str or None
        Why the chosen candidate does not have the highest score, if so.
    """

    best_: str
    estimator_: Any
    oof_proba_: FloatArray
    table_: CandidateTable
    tied_: list[str]
    warnings_: list[str]
    criterion_: str
    reason_: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, such as for ``json.dumps`` and `summarize`."""
        return {
            "best": self.best_,
            "criterion": self.criterion_,
            "reason": self.reason_,
            "tied": list(self.tied_),
            "warnings": list(self.warnings_),
            "candidates": [asdict(row) for row in self.table_],
        }

    def __repr__(self) -> str:
        lines = [repr(self.table_), ABOUT_ACCURACY, f"best by {self.criterion_}: {self.best_}"]
        if len(self.tied_) > 1:
            lines.append(f"tied with it (z <= 1): {', '.join(self.tied_[1:])}")
        if self.reason_ is not None:
            lines.append(self.reason_)
        return "\n".join([*lines, *(f"! {text}" for text in self.warnings_)])


def never_predicted(codes: IntArray, table: AnnotationTable) -> list[str]:
    """Return a warning of annotated classes that are never predicted, if there are any."""
    counts = np.bincount(table.observed.label, minlength=table.n_classes)
    missing = np.setdiff1d(np.flatnonzero(counts), codes)
    if not len(missing):
        return []
    shown = ", ".join(
        f"{table.classes[c].item()!r} ({counts[c]:,} annotations)" for c in missing[:5]
    )
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return [
        f"the best candidate never predicts {shown}{more}; if rare classes matter, choose by "
        "criterion='balanced'"
    ]
