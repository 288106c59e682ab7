"""Criteria by which `manyhands.select` compares predictions, and what makes them doubtful."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import combinations
from typing import Any

import joblib
import numpy as np
from scipy.stats import spearmanr

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.fitting.length import earliest
from manyhands.metrics import (
    corrected_vote_agreement,
    paired_z,
    vote_agreement,
    vote_information,
    vote_recall,
)
from manyhands.metrics.vote_shares import row_shares, vote_weights
from manyhands.training.progress import GUARD
from manyhands.typing import AnyArray, FloatArray, IntArray

Values = Callable[[IntArray], FloatArray]
"""Predicted class codes (n_instances,) to the criterion's values (n_instances,); NaN: no votes."""

CRITERIA = ("agreement", "balanced", "information")

TIED = 1.0
"""Standard errors behind the best up to which a candidate counts as tied."""

FEWEST_FOR_ALARM = 6
"""Number of candidates from which two rankings can be compared."""

ALARM = 0.5
"""Spearman correlation of agreement and information below which the choice is doubtful."""

FEW_INSTANCES = 200
"""Number of annotated instances below which agreement tells little."""

GOLD_TO_SETTLE = 29
"""Gold labels on which exactly one of two models is right that tell which is better.

If one is right on three of four of them, a two-sided sign test at 5 % finds it with power 80 %:
((1.96 / 2 + .84 sqrt(.75 * .25)) / .25)^2 = 28.9.
"""

ROUNDS = frozenset({"n_rounds", "n_iterations", "em_max_iter", "em_every", "max_iter"})
"""Parameters that count rounds of EM or of self-training."""

PRIORS = frozenset({"class_prior", "prior"})
"""Parameters that set the shares of the classes."""


def check_options(named: Mapping[str, Any], criterion: str, epochs: str, average: int) -> None:
    """Refuse values of `manyhands.select`'s parameters that it does not know."""
    if criterion not in CRITERIA:
        raise AnnotationError(f"criterion={criterion!r} is unknown; use one of {list(CRITERIA)}")
    if epochs not in ("guarded", "last"):
        raise AnnotationError(f"epochs={epochs!r} is unknown; use 'guarded' or 'last'")
    if isinstance(average, bool) or not 1 <= average <= len(named):
        raise AnnotationError(
            f"average={average!r} of {len(named)} candidates; give a number from 1 to {len(named)}"
        )


def make_criterion(name: str, table: AnnotationTable, posterior: FloatArray) -> Values:
    """Make the function that rates predicted classes.

    Parameters
    ----------
    name : {"agreement", "balanced", "information"}
        (A + B) / 2, macro recall against majority votes, or mutual information with the votes.
    table : AnnotationTable
    posterior : array of shape (n_instances, n_classes)
        The Dawid-Skene posterior, for B.
    """
    if name == "balanced":
        return lambda codes: vote_recall(table.classes[codes], table, average=False)
    if name == "information":
        return lambda codes: vote_information(table.classes[codes], table, average=False)
    # A and B are sums over instances of what the predicted class is worth there.
    worth = np.column_stack(
        [_agreement(np.full(table.n_instances, c), table, posterior) for c in table.classes]
    )
    return lambda codes: worth[np.arange(len(codes)), codes]


def _agreement(predicted: AnyArray, table: AnnotationTable, posterior: FloatArray) -> FloatArray:
    plain = vote_agreement(predicted, table, average=False)
    corrected = corrected_vote_agreement(predicted, table, posterior=posterior, average=False)
    return (plain + corrected) / 2


def guarded_epoch(epochs: IntArray, values: Values) -> int | None:
    """The epoch (from 1) with the highest criterion, if the last is behind by z > 1.

    Parameters
    ----------
    epochs : integer array of shape (n_epochs, n_instances)
        Predicted class codes after each epoch.
    values : callable

    Returns
    -------
    int or None
        None: keep the last epoch.
    """
    rated = np.stack([values(codes) for codes in epochs])
    best = int(np.nanmean(rated, axis=1).argmax())
    if best == len(epochs) - 1 or paired_z(rated[best] - rated[-1]) <= GUARD:
        return None
    return best + 1


def earliest_epoch(
    epochs: IntArray, folds: IntArray, table: AnnotationTable
) -> tuple[int, IntArray]:
    """The epoch that ``max_epochs="auto"`` chooses by all folds, and predictions to rate it by.

    Each fold is rated after the epoch that the *others* choose: the best of many epochs looks
    better than it is.

    Parameters
    ----------
    epochs : integer array of shape (n_epochs, n_instances)
        Predicted class codes after each epoch, out of fold.
    folds : integer array of shape (n_instances,)
    table : AnnotationTable

    Returns
    -------
    epoch : int
        From 1.
    codes : integer array of shape (n_instances,)
    """
    shares = row_shares(vote_weights(table.observed))
    codes = np.empty_like(epochs[0])
    for fold in np.unique(folds):
        own, others = folds == fold, folds != fold
        codes[own] = epochs[earliest(epochs[:, others], shares[others]) - 1, own]
    return earliest(epochs, shares), codes


def refuse_rounds(candidates: Mapping[str, Any]) -> list[str]:
    """Refuse candidates that differ in nothing but rounds; warn of those that differ in priors.

    Returns
    -------
    list of str
        Warnings.

    Raises
    ------
    AnnotationError
        If two candidates differ only in their number of rounds of EM or self-training.
    """
    warnings = []
    described = {name: _described(model) for name, model in candidates.items()}
    for one, other in combinations(described, 2):
        first, second = described[one], described[other]
        differing = {key for key in {*first, *second} if first.get(key) != second.get(key)}
        last_names = {key.rpartition("__")[2] for key in differing}
        if last_names and last_names <= ROUNDS:
            raise AnnotationError(
                f"candidates {one!r} and {other!r} differ only in {', '.join(sorted(differing))}: "
                "agreement rewards early rounds, which repeat the crowd's shared mistakes, so it "
                "cannot choose their number; give one of the two"
            )
        if last_names and last_names <= PRIORS:
            warnings.append(
                f"{one} and {other} differ only in the class prior, which agreement cannot choose: "
                "it prefers the prior of the crowd's mistakes; decide between the two by what you "
                "know of the classes' shares"
            )
    return warnings


def holds_shares(model: Any) -> bool:
    """Whether a candidate holds class shares of its own, not those that the crowd suggests.

    A candidate says so by its parameter ``class_prior`` or ``prior``, or that of the ``estimator``
    within it, if the value is not "estimated".
    """
    return any(
        key.replace("estimator__", "") in PRIORS
        and value is not None
        and not (isinstance(value, str) and value == "estimated")
        for key, value in model.get_params(deep=True).items()
    )


def choose_among(
    behind: Mapping[str, float], holding: Collection[str]
) -> tuple[str, str | None, list[str]]:
    """The best candidate; among tied ones, the first that agreement is known to underrate.

    Agreement prefers the class shares of the crowd's mistakes. So its verdict counts against
    candidates that hold other shares only where it is clear.

    Parameters
    ----------
    behind : dict of name to float
        Standard errors behind the highest score, the highest first.
    holding : collection of str
        Candidates that hold class shares.

    Returns
    -------
    chosen : str
    reason : str or None
        Why it is not the one with the highest score.
    warnings : list of str
    """
    first, held = next(iter(behind)), [name for name in behind if name in holding]
    if not held or first in held:
        return first, None, []
    if behind[held[0]] <= TIED:
        reason = (
            f"{first} has the higher score (by z = {behind[held[0]]:.1f}), but {held[0]} holds "
            "class shares, which agreement disfavours: it prefers those of the crowd's mistakes. "
            "So a tie goes to it"
        )
        return held[0], reason, []
    shown = ", ".join(f"{name} (z = {behind[name]:.1f})" for name in held)
    return (
        first,
        None,
        [
            f"agreement disfavours candidates that hold class shares, because it prefers those of "
            f"the crowd's mistakes; behind the best for that or other reasons: {shown}. If you "
            "believe in their shares, compare them by some gold labels"
        ],
    )


def _described(model: Any) -> dict[str, str]:
    """The class and every parameter, as digests."""
    parameters = model.get_params(deep=True)
    return {"class": _digest(type(model))} | {
        key: _digest(type(value) if hasattr(value, "get_params") else value)
        for key, value in parameters.items()
    }


def _digest(value: Any) -> str:
    try:
        return str(joblib.hash(value))
    except Exception:  # What cannot be pickled equals nothing but itself.
        return str(id(value))


def doubts(
    predicted: Mapping[str, IntArray],
    agreement: Mapping[str, float],
    information: Mapping[str, float],
    table: AnnotationTable,
) -> list[str]:
    """Reasons to doubt a choice by agreement.

    Parameters
    ----------
    predicted : dict of name to integer array of shape (n_instances,)
        Predicted class codes of every candidate.
    agreement, information : dict of name to float
        A + B, and MI.
    table : AnnotationTable
    """
    warnings = []
    annotated = table.annotations_per_instance() > 0
    if annotated.sum() < FEW_INSTANCES:
        warnings.append(
            f"only {annotated.sum()} instances have annotations; below {FEW_INSTANCES}, agreement "
            "tells little about which candidate is better"
        )
    names = list(predicted)
    if len(names) < FEWEST_FOR_ALARM:
        return warnings
    correlation = rank_correlation(
        [agreement[name] for name in names], [information[name] for name in names]
    )
    if correlation < ALARM:
        warnings.append(_parted(correlation, predicted, agreement, information, table))
    return warnings


def rank_correlation(one: Any, other: Any) -> float:
    """Spearman correlation; 1 if either has no order."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return 1.0
    return float(spearmanr(one, other).statistic)


def _parted(
    correlation: float,
    predicted: Mapping[str, IntArray],
    agreement: Mapping[str, float],
    information: Mapping[str, float],
    table: AnnotationTable,
) -> str:
    """Name both choices, the classes on which they differ, and what would settle it."""
    one, other = (
        max(agreement, key=agreement.__getitem__),
        max(information, key=information.__getitem__),
    )
    start = (
        f"agreement and information order the candidates differently (Spearman {correlation:.2f}), "
        "so most annotators may share a mistake"
    )
    if one == other:
        return f"{start}; both choose {one}"
    pairs = np.column_stack([predicted[one], predicted[other]])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    kinds, counts = np.unique(pairs, axis=0, return_counts=True)
    top = np.argsort(-counts, kind="stable")[:3]
    shown = ", ".join(
        f"{table.classes[kinds[k, 0]].item()!r} against {table.classes[kinds[k, 1]].item()!r} "
        f"({counts[k]:,})"
        for k in top
    )
    return (
        f"{start}. Agreement chooses {one}, information {other}. They differ on {len(pairs):,} "
        f"instances: {shown}. Before you choose, get gold labels of such instances, drawn at "
        f"random, until on {min(GOLD_TO_SETTLE, len(pairs))} of them exactly one of the two is "
        "right"
    )


def never_predicted(codes: IntArray, table: AnnotationTable) -> list[str]:
    """Say which classes that have annotations are never predicted."""
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
