"""Criteria by which `manyhands.select` compares predictions, and reasons to doubt them."""

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
"""Function from predicted class codes (n_instances,) to the criterion of each instance
(n_instances,); NaN where there are no votes."""

CRITERIA = ("agreement", "balanced", "information")

TIED = 1.0
"""A candidate whose score is at most so many standard errors below the best counts as tied."""

CONTRADICTION = 1.5
"""Standard errors by which agreement and information must prefer opposite candidates for a
warning."""

FEW_INSTANCES = 200
"""Number of annotated instances below which agreement is too noisy to choose a model."""

DECIDING_GOLD_LABELS = 29
"""Number of gold labels, each right for exactly one of two models, that show which one is better.

If the better model is right on three out of four of them, a two-sided sign test at 5 % detects it
with power 80 %: ((1.96 / 2 + .84 sqrt(.75 * .25)) / .25)^2 = 28.9.
"""

ROUND_PARAMETERS = frozenset({"n_rounds", "n_iterations", "em_max_iter", "em_every"})
"""Parameters that are numbers of rounds. An aggregator's ``max_iter`` is one, too, and so is
``max_epochs`` of classifiers that run EM."""

NO_CHOICE_OF_ROUNDS = (
    "agreement favours early rounds, because they repeat the crowd's shared mistakes, so it cannot "
    "choose the number of rounds"
)

PRIORS = frozenset({"class_prior", "prior"})
"""Parameters that set the class prior."""

NO_DIFFERENCE = frozenset({"random_state", "verbose", "device"})
"""Parameters that do not make two candidates different methods."""


def check_options(named: Mapping[str, Any], criterion: str, epochs: str, average: int) -> None:
    """Raise an error for unknown values of the parameters of `manyhands.select`."""
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
    """Return the function that computes a criterion from predicted classes.

    Parameters
    ----------
    name : {"agreement", "balanced", "information"}
        (A + B) / 2, macro recall against majority votes, or mutual information with the votes.
    table : AnnotationTable
    posterior : array of shape (n_instances, n_classes)
        The Dawid-Skene posterior, which B needs.

    Returns
    -------
    callable (codes) -> array of shape (n_units,)
        One value per unit of resampling; their mean is the score of the predicted codes.
    """
    if name == "balanced":
        return lambda codes: vote_recall(table.classes[codes], table, average=False)
    if name == "information":
        return lambda codes: vote_information(table.classes[codes], table, average=False)
    # A and B are sums over instances of a score of the predicted class.
    worth = np.column_stack(
        [_agreement(np.full(table.n_instances, c), table, posterior) for c in table.classes]
    )
    return lambda codes: worth[np.arange(len(codes)), codes]


def _agreement(predicted: AnyArray, table: AnnotationTable, posterior: FloatArray) -> FloatArray:
    plain = vote_agreement(predicted, table, average=False)
    corrected = corrected_vote_agreement(predicted, table, posterior=posterior, average=False)
    return (plain + corrected) / 2


def guarded_epoch(epochs: IntArray, values: Values) -> int | None:
    """Return the epoch with the highest criterion if it is better than the last one by z > 1.

    Parameters
    ----------
    epochs : integer array of shape (n_epochs, n_instances)
        Predicted class codes after each epoch.
    values : callable

    Returns
    -------
    int or None
        The epoch, from 1; None: keep the last one.
    """
    rated = np.stack([values(codes) for codes in epochs])
    best = int(np.nanmean(rated, axis=1).argmax())
    if best == len(epochs) - 1 or paired_z(rated[best] - rated[-1]) <= GUARD:
        return None
    return best + 1


def earliest_epoch(
    epochs: IntArray, folds: IntArray, table: AnnotationTable
) -> tuple[int, IntArray]:
    """Return the epoch that ``max_epochs="auto"`` chooses by all folds, and honest predictions.

    The predictions of each fold are those after the epoch that the *other* folds choose, because
    the best of many epochs looks better than it is.

    Parameters
    ----------
    epochs : integer array of shape (n_epochs, n_instances)
        Predicted class codes after each epoch, out of fold.
    folds : integer array of shape (n_instances,)
    table : AnnotationTable

    Returns
    -------
    epoch : int
        Number of the epoch, from 1.
    codes : integer array of shape (n_instances,)
        Predicted class codes, to rate the candidate by.
    """
    shares = row_shares(vote_weights(table.observed))
    codes = np.empty_like(epochs[0])
    for fold in np.unique(folds):
        own, others = folds == fold, folds != fold
        codes[own] = epochs[earliest(epochs[:, others], shares[others]) - 1, own]
    return earliest(epochs, shares), codes


def may_be_shortened(model: Any) -> bool:
    """Return whether agreement may choose the number of epochs: epochs that are no EM rounds."""
    epochs = model.get_params(deep=False).get("max_epochs")
    return isinstance(epochs, Integral) and not _in_rounds(model)


def _in_rounds(model: Any) -> bool:
    traits = getattr(model, "_traits", None)
    return traits is not None and bool(traits.epochs_are_rounds)


def refuse_rounds(candidates: Mapping[str, Any]) -> list[str]:
    """Raise an error if candidates differ in rounds alone; warn of differing rounds and priors.

    Returns
    -------
    list of str
        Texts of the warnings.

    Raises
    ------
    AnnotationError
        If two candidates differ in rounds of EM or self-training, and otherwise at most in the
        class prior.
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
                f"{NO_CHOICE_OF_ROUNDS}; give only one of the two"
            )
        if others and others <= PRIORS:
            warnings.append(
                f"{one} and {other} differ only in the class prior, which agreement cannot choose, "
                "because it favours the class shares that the crowd's mistakes produce; decide "
                "between the two by what you know about the shares of the classes"
            )
        elif rounds:
            warnings.append(
                f"{one} and {other} differ in {', '.join(sorted(rounds))} besides other "
                f"parameters: {NO_CHOICE_OF_ROUNDS}; compare them with the same number"
            )
    return warnings


def has_own_class_prior(model: Any) -> bool:
    """Return whether a candidate has a class prior that is not estimated from the annotations.

    That is the case if its parameter ``class_prior`` or ``prior``, or that of a classifier within
    it, is set to anything but "estimated". Priors of an ``aggregator`` do not count.
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
    """Choose the best candidate; a tie goes to one whose class prior agreement underrates.

    Agreement favours the class shares that the crowd's mistakes produce. A candidate with a class
    prior of its own therefore loses only if it is clearly worse.

    Parameters
    ----------
    behind : dict of name to float
        Standard errors below the highest score, in decreasing order of scores.
    holding : collection of str
        The candidates with a class prior of their own.

    Returns
    -------
    choice : str
    reason : str or None
        Why the choice does not have the highest score, if so.
    warnings : list of str
    """
    first, held = next(iter(behind)), [name for name in behind if name in holding]
    if not held or first in held:
        return first, None, []
    tied = next((name for name in held if behind[name] <= TIED), None)  # Not always the first.
    if tied is not None:
        reason = (
            f"{first} has the higher score (by z = {behind[tied]:.2f}), but {tied} has a class "
            "prior of its own (class_prior or prior). Agreement favours the class shares that the "
            "crowd's mistakes produce, so a tie goes to the prior"
        )
        return tied, reason, []
    shown = ", ".join(f"{name} (z = {behind[name]:.2f})" for name in held)
    warning = (
        "agreement underrates candidates with a class prior of their own (class_prior or prior), "
        "because it favours the class shares that the crowd's mistakes produce. Behind the best "
        f"for that or other reasons: {shown}. If you trust their priors, compare the candidates by "
        "some gold labels"
    )
    return first, None, [warning]


def _described(model: Any) -> dict[str, str]:
    """Return the class and every parameter of a model, as digests."""
    parameters = model.get_params(deep=True)
    # The fields of a protocol are listed, whether one was given or not.
    parameters = {k: v for k, v in parameters.items() if k.rpartition("__")[2] != "protocol"}
    listed = {id(value) for value in parameters.values() if hasattr(value, "get_params")}
    return {"class": _digest(type(model))} | {
        key: _digest(_outline(value, listed)) for key, value in parameters.items()
    }


def _outline(value: Any, listed: set[int]) -> Any:
    """Return a parameter without the parameters of nested objects, which are listed separately."""
    if isinstance(value, list | tuple):
        return [_outline(part, listed) for part in value]
    return type(value) if id(value) in listed else value


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> set[str]:
    """Return the parameters that differ; of nested objects that differ in class, the class."""
    keys = {key for key in {*first, *second} if first.get(key) != second.get(key)}
    return {
        key
        for key in keys
        if key.rpartition("__")[2] not in NO_DIFFERENCE
        and (key == "class" or "class" not in keys)
        and not any(key.startswith(f"{owner}__") for owner in keys)
    }


def _counts_of_rounds(model: Any) -> set[str]:
    """Return the parameters of a model, and of the objects in it, that count rounds."""
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
    except Exception:  # Objects that cannot be pickled are equal to themselves only.
        return str(id(value))


class Contradiction(NamedTuple):
    """Two candidates that agreement and information rank in opposite order.

    Attributes
    ----------
    agreeing, informing : str
        The candidate that agreement prefers, and the one that information prefers.
    agreement_z, information_z : float
        Standard errors by which each criterion prefers its candidate.
    """

    agreeing: str
    informing: str
    agreement_z: float
    information_z: float


def find_contradiction(
    predicted: Mapping[str, IntArray], table: AnnotationTable, posterior: FloatArray
) -> Contradiction:
    """Find the two candidates on which agreement and information contradict each other most.

    Agreement favours a model that repeats a mistake shared by most annotators; information does
    not. One candidate is among the best by agreement, the other among the best by information. A
    contradiction is as clear as the smaller of its two z.

    Parameters
    ----------
    predicted : dict of name to integer array of shape (n_instances,)
        Predicted class codes of every candidate.
    table : AnnotationTable
    posterior : array of shape (n_instances, n_classes)

    Returns
    -------
    Contradiction
    """
    rated = [
        {name: rate(codes) for name, codes in predicted.items()}
        for rate in (make_criterion(n, table, posterior) for n in ("agreement", "information"))
    ]
    agreement, information = rated
    return max(
        (
            Contradiction(
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
    """Return the candidates that are tied with the best by a criterion."""
    best = max(values.values(), key=np.nanmean)
    return [name for name, each in values.items() if paired_z(best - each) <= TIED]


def _clearness(pair: Contradiction) -> float:
    return min(pair.agreement_z, pair.information_z)


def doubts(
    predicted: Mapping[str, IntArray], chosen: str, table: AnnotationTable, posterior: FloatArray
) -> list[str]:
    """Return the reasons to doubt the choice of a candidate.

    The parameters are those of `find_contradiction`, and the chosen candidate.
    """
    warnings = []
    annotated = table.annotations_per_instance() > 0
    if annotated.sum() < FEW_INSTANCES:
        warnings.append(
            f"only {annotated.sum()} instances have annotations; with fewer than {FEW_INSTANCES}, "
            "agreement is too noisy to show which candidate is better"
        )
    pair = find_contradiction(predicted, table, posterior)
    if _clearness(pair) > CONTRADICTION and chosen != pair.informing:
        warnings.append(_describe_contradiction(pair, predicted, table))
    return warnings


def _describe_contradiction(
    pair: Contradiction, predicted: Mapping[str, IntArray], table: AnnotationTable
) -> str:
    """Describe a contradiction: both candidates, the classes concerned, and what would decide."""
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
        f"agreement prefers {one} to {other} (z = {pair.agreement_z:.2f}), but information prefers "
        f"{other} to {one} (z = {pair.information_z:.2f}). Most annotators may share a mistake, "
        "which agreement rewards, or neglect a class; or both models are hardly trained. The two "
        f"differ on {len(pairs):,} instances: {shown}. Before you choose, get gold labels of a "
        "random sample of these instances, until exactly one of the two is right on "
        f"{min(DECIDING_GOLD_LABELS, len(pairs))} of them"
    )
