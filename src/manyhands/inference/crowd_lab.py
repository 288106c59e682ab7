"""CROWDLAB: votes and a classifier's predicted probabilities, weighted by their reliability.

.. [1] H. W. Goh, U. Tkachenko and J. Mueller. CROWDLAB: supervised learning to infer consensus
   labels and quality scores for data with multiple annotators. NeurIPS Human in the Loop Learning
   Workshop, 2022. arXiv:2210.06812.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from itertools import starmap
from operator import add
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import as_table
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.ids import GIVEN, as_frame
from manyhands.exceptions import AnnotationError, all_or_nothing
from manyhands.inference.base import (
    PLAIN,
    AggregatorTraits,
    BaseAggregator,
    Execution,
    known_prior,
)
from manyhands.inference.identifiability import IsolatedFamilies
from manyhands.inference.inputs import checked_posterior, probabilities_of, recode_classes
from manyhands.inference.votes import (
    SHARD,
    Votes,
    by_annotator,
    clamp_to_gold,
    concatenate_rows,
    expected_accuracy,
    probability_correct,
    vote_shares,
    weight_of_pairs,
    weighted_votes,
    zip_shards,
)
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

LEAST_WEIGHT = 1e-6
"""Minimal weight of an annotator or the classifier, and minimal error of the most common class."""

ROUNDS = 2
"""Number of rounds: weights from the majority vote, then from the resulting consensus."""


class CrowdLab(BaseAggregator):
    """Average of the votes and a classifier's probabilities, weighted by their reliability.

    Any classifier can be used; its probabilities must be out of sample (cross-validated), as from
    `sklearn.model_selection.cross_val_predict`. Without them only the annotators count.

    Parameters
    ----------
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    posterior_ : array of shape (n_instances, n_classes)
        p_CR: weighted mean of the classifier's probabilities and the annotators' votes.
    quality_ : array of shape (n_instances,)
        Confidence in the consensus label: its probability.
    annotator_quality_ : array of shape (n_annotators,)
        Overall quality of each annotator's annotations, in [0, 1]; for an annotator without
        annotations, the value over all annotations.
    annotator_weight_ : array of shape (n_annotators,)
        Weight of each annotator: 1 for perfect agreement with the others, 0 for agreement no
        better than always giving the most common class.
    model_weight_ : float
        Weight of the classifier; 0 without one.
    agreement_ : float
        P: mean share of an instance's annotations that agree with the consensus.

    Notes
    -----
    There is no iteration to convergence: the weights are computed from the majority vote, and once
    more from the resulting consensus. ``log_likelihood_`` is empty.

    An instance without annotations gets the classifier's probabilities, or ``class_prior_`` without
    a classifier.

    References
    ----------
    Goh, Tkachenko & Mueller (2022), arXiv:2210.06812: the equations of p_CR, P, s_j, w_j, w_M,
    q and a_j.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import CrowdLab
    >>> A = np.array([[0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, -1]])
    >>> proba = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9]])
    >>> CrowdLab().fit(A, proba=proba).labels_
    array([0, 1, 1, 1])
    """

    traits = AggregatorTraits(uses_start=False)

    _proba: Any = None

    def __init__(self, *, ties: str = "first", random_state: Any = None) -> None:
        self.ties = ties
        self.random_state = random_state

    def fit(
        self,
        table: Any,
        y: Any = None,
        *,
        gold: Any = None,
        random_gold: Any = None,
        start: Any = None,
        groups: Any = None,
        checkpoint: Any = None,
        engine: Any = None,
        proba: Any = None,
    ) -> Self:
        """Infer the true classes.

        Parameters
        ----------
        table : AnnotationTable, or an (n_instances, n_annotators) matrix with -1/NaN missing
        y : ignored
        gold : dict {instance id: class}, or array-like of shape (n_instances,), optional
            As in `BaseAggregator.fit`; annotators are compared with it instead of each other.
        random_gold : as in `BaseAggregator.fit`; it changes nothing here
        start : refused
            The first consensus is always the majority's.
        groups, engine : as in `BaseAggregator.fit`
        checkpoint : refused
        proba : array-like or frame of shape (n_instances, n_classes), optional
            A classifier's out-of-sample class probabilities. Rows of a frame are matched with the
            instances by id, as those of X are in a classifier's ``fit``, and columns with the
            classes by name. An array has the order of ``instances_`` and ``classes_``.

        Raises
        ------
        AnnotationError
            As in `BaseAggregator.fit`, and if ``proba`` has the wrong shape, ids or names that do
            not match, or does not hold probabilities.

        Warns
        -----
        UserWarning
            If ``proba`` has no ids and the table chose the order of its instances itself.
        """
        with all_or_nothing(self):
            self._proba = proba
            own: dict[str, Any] = {"checkpoint": checkpoint, "engine": engine}
            own["random_gold"] = random_gold
            return super().fit(table, y, gold=gold, start=start, groups=groups, **own)

    def partial_fit(
        self,
        table: Any,
        y: Any = None,
        *,
        gold: Any = None,
        random_gold: Any = None,
        duplicates: Duplicates = "error",
        proba: Any = None,
    ) -> Self:
        """Add annotations; see `BaseAggregator.partial_fit`.

        Parameters
        ----------
        table : AnnotationTable or matrix
        y : ignored
        gold, random_gold : as in `fit`, for the instances of ``table``
        duplicates : {"error", "last", "keep"}
        proba : array-like of shape (n_instances of old and new, n_classes), optional
            Probabilities of ``instances_``, then of the new instances in the table's order. None:
            those given to `fit`.

        Raises
        ------
        AnnotationError
            As in `BaseAggregator.partial_fit`, and if ``proba`` does not cover all instances.
        """
        if not hasattr(self, "table_"):
            return self.fit(table, y, gold=gold, random_gold=random_gold, proba=proba)
        with all_or_nothing(self):
            if proba is not None:
                # With an empty gold, new probabilities alone cause a new fit, too.
                self._proba, gold = proba, {} if gold is None else gold
            more: dict[str, Any] = {"random_gold": random_gold, "duplicates": duplicates}
            return super().partial_fit(table, y, gold=gold, **more)

    def predict_proba(self, table: Any, proba: Any = None) -> FloatArray:
        """Return the posterior of (new) instances from the fitted weights.

        Parameters
        ----------
        table : AnnotationTable or matrix
            As in `BaseAggregator.predict_proba`.
        proba : array-like of shape (n_instances, n_classes), optional
            The classifier's probabilities for these instances; without them only annotators count.

        Returns
        -------
        array of shape (n_instances, n_classes)

        Raises
        ------
        AnnotationError
            As in `BaseAggregator.predict_proba`, and if ``proba`` is invalid.
        """
        check_is_fitted(self, "posterior_")
        if proba is not None and self._proba is None:
            raise AnnotationError(
                "proba was given to predict_proba but not to fit, so the classifier's weight is "
                "unknown; fit with proba= first"
            )
        if as_frame(proba) is not None:
            given = recode_classes(
                as_table(table, argument="table"), self.classes_, argument="table"
            )
            proba = probabilities_of(given, proba, "proba")
        return self._predict_proba(table, partial(self._posterior_with, proba=proba))

    def predict(self, table: Any, proba: Any = None) -> AnyArray:
        """Return the most probable class of each instance, shape (n_instances,).

        Parameters and errors are those of `predict_proba`.
        """
        return self._labels(self.predict_proba(table, proba))

    def _fit(
        self,
        table: Any,
        gold: IntArray | None,
        start: FloatArray | None,
        execution: Execution = PLAIN,
        *,
        random_gold: BoolArray | None = None,
        history: Any = None,
    ) -> Self:
        if self._proba is not None:
            self._proba = probabilities_of(table, self._proba, "proba")
            table = replace(table, instance_order=GIVEN)  # The order is that of proba from now on.
        return super()._fit(table, gold, start, execution, random_gold=random_gold, history=history)

    def _isolated_families(self, votes: Any) -> IsolatedFamilies:
        found = super()._isolated_families(votes)
        # The classifier's probabilities compare every family with something else.
        return found if self._proba is None else IsolatedFamilies.none(votes.n_instances)

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        posterior = vote_shares(votes)
        for _ in range(ROUNDS):
            self._set_weights(self._tally(votes, posterior))
            posterior = self._weighted_averages(votes, self._proba)
        self.class_prior_ = known_prior(votes, posterior)
        self.posterior_ = self._fill_unannotated(votes, posterior, self._proba)
        self.quality_ = self.posterior_.max(axis=1)
        self._set_annotator_quality(votes)

    def _posterior(self, votes: Votes) -> FloatArray:
        return self._posterior_with(votes, self._proba)

    def _posterior_with(self, votes: Votes, proba: Any) -> FloatArray:
        """Return the posterior with the classifier's probabilities, or without them (None)."""
        if proba is not None:
            proba = checked_posterior(proba, votes.n_instances, votes.n_classes, "proba")
        return self._fill_unannotated(votes, self._weighted_averages(votes, proba), proba)

    def _tally(self, votes: Votes, posterior: FloatArray) -> _Tally:
        return reduce(add, starmap(tally, zip_shards(votes.shards(SHARD), self._proba, posterior)))

    def _set_weights(self, counts: _Tally) -> None:
        """Set P, w_j and w_M."""
        n_compared = counts.classes.sum()
        error_of_most_common = max(1.0 - _share(counts.classes.max(), n_compared), LEAST_WEIGHT)
        error = 1.0 - _shares(counts.agree_with_others, counts.others)
        self.agreement_ = float(_share(counts.agreement, counts.agreement_instances))
        self.annotator_weight_ = np.maximum(1.0 - error / error_of_most_common, LEAST_WEIGHT)
        self.model_weight_ = 0.0
        if self._proba is not None:
            error_of_model = 1.0 - _share(counts.model_agrees, n_compared)
            trust = max(1.0 - error_of_model / error_of_most_common, LEAST_WEIGHT)
            self.model_weight_ = float(trust * np.sqrt(counts.annotations / counts.annotated))

    def _weighted_averages(self, votes: Votes, proba: FloatArray | None) -> FloatArray:
        """Return p_CR, shape (n, C); rows of 0 if there is nothing to average."""
        return concatenate_rows(
            starmap(self._weighted_average, zip_shards(votes.shards(SHARD), proba))
        )

    def _weighted_average(self, votes: Votes, proba: FloatArray | None) -> FloatArray:
        wrong = (1.0 - self.agreement_) / (votes.n_classes - 1)
        sums = weighted_votes(votes, self.annotator_weight_[votes.annotator])
        trust = sums.sum(axis=1, keepdims=True)
        sums *= self.agreement_ - wrong
        sums += wrong * trust
        if proba is not None:
            sums += self.model_weight_ * proba
            trust += self.model_weight_
        np.divide(sums, trust, out=sums, where=trust > 0)
        return clamp_to_gold(votes, sums)

    def _fill_unannotated(
        self, votes: Votes, posterior: FloatArray, proba: FloatArray | None
    ) -> FloatArray:
        if proba is None:
            posterior[~votes.voted] = self.class_prior_
        return posterior

    def _set_annotator_quality(self, votes: Votes) -> None:
        """Set a_j, a weighted average of two measures of each annotator.

        The first is the mean probability of the classes given, with the classifier's share of all
        weights as its weight; the second is the agreement with the consensus.
        """
        counts = self._tally(votes, self.posterior_)
        active = by_annotator(votes) > 0
        annotators_weight = (
            self.annotator_weight_[active].mean() * counts.annotations / counts.annotated
        )
        model_share = self.model_weight_ / (self.model_weight_ + annotators_weight)
        agreement = _shares(counts.agree_with_consensus, counts.compared)
        probability = expected_accuracy(votes, self.posterior_)
        self.annotator_quality_ = model_share * probability + (1.0 - model_share) * agreement


@dataclass(frozen=True)
class _Tally:
    """Counts that determine the weights; tallies of shards can be added.

    Attributes
    ----------
    agree_with_others, others : arrays of shape (R,)
        Comparisons with the instance's other annotations: those that agree, and all.
    agree_with_consensus, compared : arrays of shape (R,)
        Annotations of instances with more than one annotation: those that agree with the
        consensus, and all.
    agreement, agreement_instances : float
        Sum over instances of the share of annotations that agree with the consensus, and the
        number of those instances.
    classes : array of shape (C,)
        Consensus of the instances with more than one annotation.
    model_agrees : float
        How often the classifier agrees with that consensus.
    annotations, annotated : float
        Number of annotations, and of instances with any.
    """

    agree_with_others: FloatArray
    others: FloatArray
    agree_with_consensus: FloatArray
    compared: FloatArray
    agreement: float
    agreement_instances: float
    classes: FloatArray
    model_agrees: float
    annotations: float
    annotated: float

    def __add__(self, other: _Tally) -> _Tally:
        """Return the sum of both tallies."""
        names = [field.name for field in fields(self)]
        return _Tally(*(getattr(self, name) + getattr(other, name) for name in names))


def tally(votes: Votes, proba: FloatArray | None, posterior: FloatArray) -> _Tally:
    """Compare annotations, consensus (the most probable classes) and classifier on a shard.

    Instances with gold are treated as if all other annotators, and at least one, had given gold.
    Several most probable classes share the consensus equally, unless the classifier prefers one.
    """
    given = weighted_votes(votes)
    n_given = given.sum(axis=1)
    consensus = _winners(posterior)
    if proba is not None:
        consensus = _winners(np.where(consensus > 0, proba, -1.0))
    # Compare annotators with others only: leave out their own annotations, except against gold.
    own = weight_of_pairs(votes)
    others = np.maximum(n_given[votes.instance] - own, 0.0)
    agree = np.maximum(
        probability_correct(votes, given) - weight_of_pairs(votes, same_class=True), 0.0
    )
    several = np.bincount(votes.instance, others > 1e-9, votes.n_instances) > 0
    if votes.gold is not None:
        known = votes.gold >= 0
        several = several | known
        has_gold = known[votes.instance]
        others = np.where(has_gold, np.maximum(others, own), others)
        agree = np.where(has_gold, probability_correct(votes, consensus) * others, agree)
    compared = several[votes.instance].astype(np.float64)
    voted = several & (n_given > 0)
    shares = (given * consensus).sum(axis=1)[voted] / n_given[voted]
    model_agrees = 0.0 if proba is None else float((consensus * _winners(proba))[several].sum())
    return _Tally(
        agree_with_others=by_annotator(votes, agree),
        others=by_annotator(votes, others),
        agree_with_consensus=by_annotator(votes, compared * probability_correct(votes, consensus)),
        compared=by_annotator(votes, compared),
        agreement=float(shares.sum()),
        agreement_instances=float(voted.sum()),
        classes=several @ consensus,
        model_agrees=model_agrees,
        annotations=votes.total_weight,
        annotated=float((n_given > 0).sum()),
    )


def _winners(scores: FloatArray) -> FloatArray:
    """Distribute 1 equally over the best classes of each row, shape (n, C)."""
    best = scores >= scores.max(axis=1, keepdims=True) * (1 - 1e-9) - 1e-12
    return best / best.sum(axis=1, keepdims=True)


def _share(part: float, whole: float) -> float:
    """Return the share of the whole; 1 if the whole is 0, because nothing disagrees."""
    return part / whole if whole > 0 else 1.0


def _shares(parts: FloatArray, wholes: FloatArray) -> FloatArray:
    """Return the share of each whole; the share over all where a whole is 0."""
    overall = _share(float(parts.sum()), float(wholes.sum()))
    return np.divide(parts, wholes, out=np.full_like(parts, overall), where=wholes > 0)
