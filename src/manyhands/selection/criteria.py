"""Criteria by which `manyhands.select` compares predictions, and what makes them doubtful."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import combinations, product
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.fitting.pilots import earliest
from manyhands.inference.base import BaseAggregator
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

PARTED = 1.5
"""Standard errors by which agreement and information prefer opposite candidates at an alarm."""

FEW_INSTANCES = 200
"""Number of annotated instances below which agreement tells little."""

GOLD_TO_SETTLE = 29
"""Gold labels on which exactly one of two models is right that tell which is better.

If one is right on three of four of them, a two-sided sign test at 5 % finds it with power 80 %:
((1.96 / 2 + .84 sqrt(.75 * .25)) / .25)^2 = 28.9.
"""

ROUND_PARAMETERS = frozenset({"n_rounds", "n_iterations", "em_max_iter", "em_every"})
"""Counts of rounds; so are an aggregator's ``max_iter`` and some classifiers' ``max_epochs``."""

EARLY = (
    "agreement rewards early rounds, which repeat the crowd's shared mistakes, so it cannot choose "
    "their number"
)

PRIORS = frozenset({"class_prior", "prior"})
"""Parameters that set the shares of the classes."""

TRIVIAL = frozenset({"random_state", "verbose", "device"})
"""Parameters that make no other candidate."""


def check_options(named: Mapping[str, Any], criterion: str, epochs: str, average: int) -> None:
    """Refuse values of `manyhands.select`'s parameters that it does not know."""
    if criterion not in CRITERIA:
        raise AnnotationError(f"criterion={criterion!r} is unknown; use one of {list(CRITERIA)}")
    if epochs not in ("guarded", "last"):
        raise AnnotationError(f"epochs={epochs!r} is unknown; use 'guarded' or 'last'")
    whole, n = isinstance(average, Integral) and not isinstance(average, bool), len(named)
    if not whole or not 1 <= average <= n:
        raise AnnotationError(
            f"average={average!r} of {n} candidates; give a whole number from 1 to {n}"
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

    Returns
    -------
    callable (codes) -> array of shape (n_units,)
        What the mean of is the score of predicted class codes, one value a unit of resampling.
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


def may_be_shortened(model: Any) -> bool:
    """Whether agreement may shorten a training: it has epochs, which are no rounds of EM."""
    epochs = model.get_params(deep=False).get("max_epochs")
    return isinstance(epochs, Integral) and not _in_rounds(model)


def _in_rounds(model: Any) -> bool:
    traits = getattr(model, "_traits", None)
    return traits is not None and bool(traits.epochs_are_rounds)


def refuse_rounds(candidates: Mapping[str, Any]) -> list[str]:
    """Refuse candidates that differ in rounds, or warn of them; warn of differing priors.

    Returns
    -------
    list of str
        Warnings.

    Raises
    ------
    AnnotationError
        If two candidates differ in rounds of EM or self-training, and otherwise at most in priors.
    """
    warnings = []
    described = {name: _described(model) for name, model in candidates.items()}
    counts = {name: _counts_of_rounds(model) for name, model in candidates.items()}
    for one, other in combinations(described, 2):
        differing = _differing(described[one], described[other])
        rounds = differing & counts[one] & counts[other]
        others = {key.rpartition("__")[2] for key in differing - rounds}
        if rounds and others <= PRIORS:
            raise AnnotationError(
                f"candidates {one!r} and {other!r} differ only in {', '.join(sorted(differing))}: "
                f"{EARLY}; give one of the two"
            )
        if others and others <= PRIORS:
            warnings.append(
                f"{one} and {other} differ only in the class prior, which agreement cannot choose: "
                "it prefers the prior of the crowd's mistakes; decide between the two by what you "
                "know of the classes' shares"
            )
        elif rounds:
            warnings.append(
                f"{one} and {other} differ in {', '.join(sorted(rounds))} beside other parameters: "
                f"{EARLY}; compare them with the same number"
            )
    return warnings


def holds_shares(model: Any) -> bool:
    """Whether a candidate holds class shares of its own, not those that the crowd suggests.

    A candidate says so by its parameter ``class_prior`` or ``prior``, or that of a classifier
    within it, if the value is not "estimated". Priors of an ``aggregator`` do not count.
    """
    return any(
        key.rpartition("__")[2] in PRIORS
        and "aggregator" not in key.split("__")
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
    holding : collection of str, the candidates that hold class shares

    Returns the choice, why it has not the highest score (or None), and warnings.
    """
    first, held = next(iter(behind)), [name for name in behind if name in holding]
    if not held or first in held:
        return first, None, []
    tied = next((name for name in held if behind[name] <= TIED), None)  # Not always the first.
    if tied is not None:
        reason = (
            f"{first} has the higher score (by z = {behind[tied]:.2f}), but {tied} holds class "
            "shares of its own (class_prior or prior), which agreement disfavours: it prefers "
            "those of the crowd's mistakes. So a tie goes to it"
        )
        return tied, reason, []
    shown = ", ".join(f"{name} (z = {behind[name]:.2f})" for name in held)
    warning = (
        "agreement disfavours candidates that hold class shares of their own (class_prior or "
        "prior), because it prefers those of the crowd's mistakes; behind the best for that or "
        f"other reasons: {shown}. If you believe in their shares, compare them by some gold labels"
    )
    return first, None, [warning]


def _described(model: Any) -> dict[str, str]:
    """The class and every parameter, as digests."""
    parameters = model.get_params(deep=True)
    # The fields of a protocol are listed, whether one was given or not.
    parameters = {k: v for k, v in parameters.items() if k.rpartition("__")[2] != "protocol"}
    listed = {id(value) for value in parameters.values() if hasattr(value, "get_params")}
    return {"class": _digest(type(model))} | {
        key: _digest(_outline(value, listed)) for key, value in parameters.items()
    }


def _outline(value: Any, listed: set[int]) -> Any:
    """A parameter without the parameters of the objects in it, which are listed themselves."""
    if isinstance(value, list | tuple):
        return [_outline(part, listed) for part in value]
    return type(value) if id(value) in listed else value


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> set[str]:
    """Parameters in which two differ; where an object is of another class, that alone counts."""
    keys = {key for key in {*first, *second} if first.get(key) != second.get(key)}
    return {
        key
        for key in keys
        if key.rpartition("__")[2] not in TRIVIAL
        and (key == "class" or "class" not in keys)
        and not any(key.startswith(f"{owner}__") for owner in keys)
    }


def _counts_of_rounds(model: Any) -> set[str]:
    """Parameters of a model, and of the objects in it, that count rounds."""
    parameters = {"": model, **model.get_params(deep=True)}
    return {
        key
        for key, (owner, _, name) in ((key, key.rpartition("__")) for key in parameters)
        if name in ROUND_PARAMETERS
        or (name == "max_epochs" and _in_rounds(parameters.get(owner)))
        or (name == "max_iter" and isinstance(parameters.get(owner), BaseAggregator))
    }


def _digest(value: Any) -> str:
    try:
        return str(joblib.hash(value))
    except Exception:  # What cannot be pickled equals nothing but itself.
        return str(id(value))


class Parting(NamedTuple):
    """Two candidates that agreement and information order in opposite ways.

    Attributes
    ----------
    agreeing, informing : str
        Which of the two agreement prefers, and which information.
    agreement_z, information_z : float
        Standard errors by which they do.
    """

    agreeing: str
    informing: str
    agreement_z: float
    information_z: float


def find_parting(
    predicted: Mapping[str, IntArray], table: AnnotationTable, posterior: FloatArray
) -> Parting:
    """Find how agreement and information contradict each other on whom to choose.

    Agreement prefers who repeats a mistake that most annotators share; information does not. Of
    candidates that are tied by the one, and those tied by the other, the pair on which the two
    contradict each other most clearly. A pair is as clear as the smaller of its two z.

    Parameters
    ----------
    predicted : dict of name to integer array of shape (n_instances,)
        Predicted class codes of every candidate.
    table : AnnotationTable
    posterior : array of shape (n_instances, n_classes)

    Returns
    -------
    Parting
    """
    rated = [
        {name: rate(codes) for name, codes in predicted.items()}
        for rate in (make_criterion(n, table, posterior) for n in ("agreement", "information"))
    ]
    agreement, information = rated
    return max(
        (
            Parting(
                one,
                other,
                paired_z(agreement[one] - agreement[other]),
                paired_z(information[other] - information[one]),
            )
            for one, other in product(*map(_tied, rated))
        ),
        key=_clearness,
    )


def _tied(values: Mapping[str, FloatArray]) -> list[str]:
    """Candidates that a criterion does not tell from its best."""
    best = max(values.values(), key=np.nanmean)
    return [name for name, each in values.items() if paired_z(best - each) <= TIED]


def _clearness(pair: Parting) -> float:
    return min(pair.agreement_z, pair.information_z)


def doubts(
    predicted: Mapping[str, IntArray], chosen: str, table: AnnotationTable, posterior: FloatArray
) -> list[str]:
    """Reasons to doubt the choice of a candidate; parameters as those of `find_parting`."""
    warnings = []
    annotated = table.annotations_per_instance() > 0
    if annotated.sum() < FEW_INSTANCES:
        warnings.append(
            f"only {annotated.sum()} instances have annotations; below {FEW_INSTANCES}, agreement "
            "tells little about which candidate is better"
        )
    pair = find_parting(predicted, table, posterior)
    if _clearness(pair) > PARTED and chosen != pair.informing:
        warnings.append(_parted(pair, predicted, table))
    return warnings


def _parted(pair: Parting, predicted: Mapping[str, IntArray], table: AnnotationTable) -> str:
    """Name the two, the classes on which they differ, and what would settle it."""
    one, other = pair.agreeing, pair.informing
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
        f"agreement prefers {one} to {other} (z = {pair.agreement_z:.2f}), and information {other} "
        f"to {one} (z = {pair.information_z:.2f}), so most annotators may share a mistake, which "
        "agreement rewards, or neglect a class; or both are hardly trained. The two differ on "
        f"{len(pairs):,} instances: {shown}. Before you choose, get gold labels of such instances, "
        f"drawn at random, until on {min(GOLD_TO_SETTLE, len(pairs))} of them exactly one of the "
        "two is right"
    )
