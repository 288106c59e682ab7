"""Strengths of items from comparisons of two, with ties and a profile of each annotator.

The model is Bradley and Terry's [1]_ with Davidson's ties [2]_, in which each annotator has a
tendency to ties, a preference for a side and a reliability of their own, all shrunk towards the
crowd's. Reliabilities are estimated only if the marginal likelihood ("evidence") supports them:
where annotators gave few answers each, estimated reliabilities would follow the noise.

.. [1] R. A. Bradley and M. E. Terry. Rank analysis of incomplete block designs: I. The method of
   paired comparisons. Biometrika 39, 1952.
.. [2] R. R. Davidson. On extending the Bradley-Terry model to accommodate ties in paired comparison
   experiments. Journal of the American Statistical Association 65, 1970.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import lsqr
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations.encoding import missing_mask
from manyhands.annotations.table import AnnotationTable
from manyhands.comparisons import ComparisonTable
from manyhands.comparisons.table import OUTCOMES, ids_of, refuse_times
from manyhands.exceptions import (
    AnnotationError,
    NotIdentifiableWarning,
    all_or_nothing,
    warn_caller,
)
from manyhands.ranking.davidson import (
    ComparisonRows,
    State,
    Wanted,
    climb,
    first_state,
    probabilities,
)
from manyhands.ranking.next_pairs import NextPairs, choose_pairs, covariance_given_annotators
from manyhands.ranking.uncertainty import (
    FEWEST_QUESTIONS,
    MOST_ITEMS,
    QUESTIONS_PER_ITEM,
    REPEATED_QUESTIONS,
    annotator_errors,
    centred,
    clustered,
    covariance,
    curvature,
    dispersion,
    dispersion_within,
    log_evidence,
    questions_per_item,
    rank_limits,
)
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

RELIABILITY_VARIANCES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Candidate variances of the reliabilities, tried in this order until the evidence falls."""

LEAST_EVIDENCE_GAIN = 2.0
"""Gain in log evidence that is needed to give annotators reliabilities of their own. The evidence
is an approximation and rises a little by chance where each annotator gave few answers."""

FEW_COMPARISONS = 10
"""An item with fewer comparisons gets a warning: the prior mostly decides its rank."""

OVERDISPERSION_WARNING = 1.5
"""Overdispersion (observed over expected variance) above which the fit warns."""

REPEATED_JUDGEMENTS = 4
"""Mean number of answers of one annotator to one pair from which the fit asks for the questions."""

LEVEL = 0.95

PROGRESS_FROM = 100_000
"""Number of comparisons from which a fit logs its progress."""

_LOG = logging.getLogger("manyhands.progress")

_NOT_SUPPORTED = {
    "gold": "known strengths are not used. Leave gold= out, and compare the ranking with them "
    "afterwards, such as by scipy.stats.kendalltau",
    "groups": "families of annotators are not modelled. Answers to one question depend on each "
    "other: name the questions when the table is made (question=), and intervals allow for it",
    "engine": "comparisons are counted in memory, a million of them in seconds. Leave engine= out",
    "start": "a fit always starts from equal strengths. Leave start= out",
    "checkpoint": "a fit takes seconds, and is not interrupted and resumed. Leave checkpoint= out",
    "sample_weight": "weights are the table's: ComparisonTable.from_frame(..., weight='column')",
}


class BradleyTerry(BaseEstimator):
    """Rank items from pairwise comparisons by annotators who may err, prefer a side or call ties.

    Parameters
    ----------
    reliability : {"auto"}, bool or float, default="auto"
        Whether each annotator has a reliability of their own: 1 on average, 0 for an annotator who
        chooses at random, negative for one who confuses better with worse. "auto": if the marginal
        likelihood supports it. A number is the variance of reliabilities. False: all annotators
        count equally.
    position : bool, default=True
        Whether to estimate a preference for the left or right side, of the crowd and of each
        annotator.
    own_ties : bool, default=True
        Whether each annotator has a tendency to ties of their own.
    strength_variance : float, optional
        Variance of the normal prior of strengths. None: it is estimated. ``inf``: no prior, which
        is the maximum-likelihood estimate.
    max_iter : int, default=200
        Maximum number of iterations of each fit.
    tol : float, default=1e-6
        Stop when the log likelihood per comparison changes by at most ``tol``, or every strength by
        at most ``10 * tol``.
    random_state : int, default=0
        Seed of the posterior draws from which the intervals of ranks are computed.

    Attributes
    ----------
    items_ : array of shape (n_items,)
        Ids of the items, in the order of the table.
    strengths_ : array of shape (n_items,)
        Log odds that each item beats an average item of its group, ties left out; NaN for items
        without comparisons.
    strength_se_ : array of shape (n_items,)
        Standard errors of ``strengths_``; NaN with more than 3,000 items.
    ranks_ : array of shape (n_items,)
        Rank of each item within its group, 1 for the strongest. Integers; floats with NaN if some
        items have no comparison.
    rank_low_, rank_high_ : arrays of shape (n_items,)
        Ends of the 95 % interval of each rank; NaN with more than 3,000 items.
    component_ : integer array of shape (n_items,)
        Group of each item: its connected component in the graph of comparisons. -1 for items
        without comparisons.
    covariance_ : array of shape (n_items, n_items), or None
        Covariance of ``strengths_``; None with more than 3,000 items.
    annotators_ : array of shape (n_annotators,)
    reliability_, position_bias_, tie_tendency_ : arrays of shape (n_annotators,)
        Factor by which each annotator multiplies differences of strength (1: the crowd's average);
        log odds of choosing left rather than right between equal items; and log odds of a tie
        rather than either side between equal items (-inf without ties).
    reliability_se_, position_bias_se_, tie_tendency_se_ : arrays of shape (n_annotators,)
        Standard errors of these; 0 for a parameter that the annotators share.
    position_, ties_ : float
        Position bias and tendency to ties of the typical annotator.
    reliability_variance_ : float
        Variance of the reliabilities; 0 if annotators count equally.
    evidence_ : dict {float: float}
        Log marginal likelihood for every variance of reliabilities that was tried.
    strength_variance_ : float
        Variance of the normal prior of strengths, estimated or given.
    dispersion_ : float
        Overdispersion: variance of the answers to a pair over the variance that the model expects.
        If intervals are clustered by question, the variance within a question is left out.
        Intervals are widened if it is above 1.
    clustered_ : bool
        Whether intervals allow for dependence between answers to the same question. They do so if
        questions are named and each is asked several times.
    warnings_ : list of str
        Texts of the warnings that the fit gave.
    log_likelihood_ : float
        Log likelihood of all answers at the estimates.
    n_iter_ : int
        Number of iterations of the fit with the chosen variance of reliabilities.
    converged_ : bool
        Whether this fit stopped by ``tol`` rather than by ``max_iter``.
    table_ : ComparisonTable
        All comparisons seen so far; `partial_fit` adds to them.

    See Also
    --------
    DawidSkene : infers the right label of each item. Use it for "left", "right" and "tie" if
    several
        annotators answered each question and you want the right answer per question.

    Notes
    -----
    Probabilities of left, tie and right are proportional to exp(eta / 2), exp(t) and exp(-eta / 2)
    with eta = a (strength of left - strength of right) + b; a, b and t are ``reliability_``,
    ``position_bias_`` and ``tie_tendency_`` of the annotator.

    Examples
    --------
    >>> import pandas as pd
    >>> from manyhands import BradleyTerry, ComparisonTable
    >>> wins = {"xy": 7, "yx": 3, "xz": 8, "zx": 2, "yz": 6, "zy": 4}  # "xy": x was better than y
    >>> rows = [(*pair[:: (1, -1)[i % 2]], pair[0]) for pair, n in wins.items() for i in range(n)]
    >>> df = pd.DataFrame(rows, columns=["left", "right", "winner"])
    >>> model = BradleyTerry().fit(ComparisonTable.from_frame(df, worker=None))
    >>> model.items_[model.ranks_.argsort()]
    array(['x', 'y', 'z'], dtype='<U1')
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "reliability": [StrOptions({"auto"}), "boolean", Interval(Real, 0, None, closed="neither")],
        "position": ["boolean"],
        "own_ties": ["boolean"],
        "strength_variance": [None, Interval(Real, 0, None, closed="right")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }

    _saved_whole: ClassVar[bool] = True

    table_: ComparisonTable
    strengths_: FloatArray
    covariance_: FloatArray | None

    def __init__(
        self,
        *,
        reliability: Literal["auto"] | bool | float = "auto",
        position: bool = True,
        own_ties: bool = True,
        strength_variance: float | None = None,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: int = 0,
    ) -> None:
        self.reliability = reliability
        self.position = position
        self.own_ties = own_ties
        self.strength_variance = strength_variance
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    # -- fitting ----------------------------------------------------------------------------------

    def fit(self, table: ComparisonTable, y: None = None, **options: Any) -> Self:
        """Estimate strengths and profiles. A fit that fails leaves the model as it was.

        Parameters
        ----------
        table : ComparisonTable
        y : ignored
            It must be None.
        **options
            Options of other methods, such as ``gold``, ``groups``, ``engine`` and ``times``. None
            is supported; the error says what to do instead.

        Returns
        -------
        BradleyTerry
            The fitted model itself.

        Raises
        ------
        AnnotationError
            If ``table`` is not a `ComparisonTable`, has fewer than two items or no comparisons; if
            ``y`` or an option is given; or if ``strength_variance=inf`` and some items won or lost
            all their comparisons.
        TypeError
            If ``options`` holds a name that no method of this library knows.

        Warns
        -----
        NotIdentifiableWarning
            If some items are never compared with others, won or lost everything, or have few
            comparisons, or if the side of an item is always the same.
        UserWarning
            If annotators are more often wrong than right, if answers vary more than the model
            expects, or if annotators judged a pair several times and no questions are named.
        """
        self._validate_params()
        _refuse_options(options)
        if y is not None:
            raise AnnotationError("y is not used: winners are in the table; leave y out")
        _check_table(table)
        return self._fit(table)

    def partial_fit(self, table: ComparisonTable, y: None = None, **options: Any) -> Self:
        """Add comparisons of old and new items by old and new annotators, and fit again.

        Parameters
        ----------
        table : ComparisonTable
            New comparisons; the same pair, judged again, counts again.
        y, **options
            As in `fit`.

        Returns
        -------
        BradleyTerry
            The fitted model itself.

        Raises
        ------
        AnnotationError
            As in `fit` and `ComparisonTable.with_added`.
        TypeError
            As in `fit`.

        Warns
        -----
        NotIdentifiableWarning, UserWarning
            As in `fit`.
        """
        if not hasattr(self, "table_"):
            return self.fit(table, y, **options)
        self._validate_params()
        _refuse_options(options)
        _check_table(table, empty=True)
        return self._fit(self.table_.with_added(table)) if len(table) else self

    def _fit(self, table: ComparisonTable) -> Self:
        warned: list[str] = []
        seen, table = table, table.take(table.weight > 0) if table.weights is not None else table
        component = _own_groups(table.components())
        sides = self.position and table.has_sides
        if sides and (winners := np.unique(table.outcome[table.outcome != 1])).size == 1:
            sides = False
            _warn_and_keep(
                warned,
                f"the {OUTCOMES[winners[0]]} item won every comparison that was no tie, as in "
                "files that write the winner first. The fit therefore assumes that annotators "
                "have no preference for a side. If these are the sides that annotators saw, such a "
                "preference cannot be distinguished from strength",
                NotIdentifiableWarning,
            )
        position = sides
        if position and _position_bias_not_identifiable(table):
            position = False
            _warn_and_keep(
                warned,
                "each pair is always shown in the same order, so a preference of the crowd for a "
                "side cannot be distinguished from strength, and the fit assumes that there is "
                "none. Show pairs in both orders",
                NotIdentifiableWarning,
            )
        elif position:
            _warn_of_sides(table, warned)
        has_ties = bool((table.outcome == 1).any())
        several = table.has_annotators and len(np.unique(table.annotator)) > 1
        own = np.array([several, several and sides, several and has_ties and self.own_ties])
        rows = ComparisonRows.of(
            table, by_annotator=bool(own[1:].any() or (own[0] and self.reliability))
        )
        s2 = self.strength_variance
        wanted = Wanted(position, has_ties, own, s2, self.max_iter, self.tol)
        if s2 == np.inf:
            _refuse_unbounded(table, component)
        state, wanted, evidence = _with_reliability(rows, wanted, self.reliability)
        with all_or_nothing(self):
            self._keep(table, rows, state, wanted, component, warned)
            self.table_, self.evidence_ = seen, evidence
        return self

    def _keep(
        self,
        table: ComparisonTable,
        rows: ComparisonRows,
        state: State,
        wanted: Wanted,
        component: IntArray,
        warned: list[str],
    ) -> None:
        """Set the fitted attributes."""
        n, people = table.n_items, table.n_annotators
        sizes = np.bincount(component)
        means = np.bincount(component, state.theta) / sizes
        strengths = state.theta - means[component]
        found = curvature(rows, state, wanted)
        phi = dispersion(rows, state, wanted, len(sizes))
        counts = table.counts()
        compared = counts > 0
        covariances = inverse = None
        clusters = False
        if n <= MOST_ITEMS:
            inverse = covariance(found)
            clusters = _has_clusters(table, warned)
            if clusters:
                # Two-way clustering (Cameron, Gelbach and Miller, 2011): the covariance clustered
                # by question, plus that by pair, minus that by both. Pairs are too few for a
                # sandwich estimate, so the last two are the usual covariance times a dispersion
                # factor.
                phi = 1 + phi - dispersion_within(table, state, wanted, len(sizes))
                outer = clustered(table, state, wanted, found, inverse)
                outer += inverse * max(0.0, phi - 1)
            else:
                outer = inverse * max(1.0, phi)
            covariances = centred(outer[:n, :n], component)
        else:
            _warn_and_keep(
                warned,
                f"there are no intervals of strengths and ranks: {n:,} items are more than the "
                f"{MOST_ITEMS:,} whose covariances fit in memory. Strengths and annotators' "
                "profiles are as usual; for intervals, select the items you care about "
                "(table.select(items=...))",
            )
        errors = np.tile(annotator_errors(found, inverse, wanted), (people // len(rows.active), 1))
        profile = np.tile(state.profile, (people // len(rows.active), 1))
        self.items_, self.annotators_ = table.items, table.annotators
        self.component_ = table.components()
        self.n_components_ = int(self.component_.max()) + 1
        self.strengths_ = np.where(compared, strengths, np.nan)
        self.covariance_ = covariances
        if covariances is None:
            self.strength_se_ = np.full(n, np.nan)
            self.rank_low_ = self.rank_high_ = np.full(n, np.nan)
        else:
            self.strength_se_ = np.sqrt(np.maximum(np.diag(covariances), 0.0))
            self.strength_se_[~compared] = np.nan
            self.rank_low_, self.rank_high_ = rank_limits(
                strengths, covariances, component, LEVEL, self.random_state
            )
            self.rank_low_[~compared] = self.rank_high_[~compared] = np.nan
        ranks = _ranks(strengths, component)
        self.ranks_ = ranks if compared.all() else np.where(compared, ranks, np.nan)
        self.reliability_, self.position_bias_, self.tie_tendency_ = profile.T.copy()
        self.reliability_se_, self.position_bias_se_, self.tie_tendency_se_ = errors.T.copy()
        self.position_, self.ties_ = float(state.common[1]), float(state.common[2])
        self.reliability_variance_ = float(state.variance[0]) if wanted.own[0] else 0.0
        self.strength_variance_ = float(state.s2)
        self.dispersion_, self.clustered_ = phi, clusters
        self.log_likelihood_ = state.log_likelihood
        self.n_iter_, self.converged_ = state.n_iter, state.converged
        self._warn(table, warned)
        self.warnings_ = warned

    def _warn(self, table: ComparisonTable, warned: list[str]) -> None:
        if self.n_components_ > 1:
            _warn_and_keep(
                warned,
                f"{self.n_components_:,} groups of items were never compared with each other, so "
                "each group has its own ranks. For two items of different groups, the "
                "probability that one is stronger is unknown (NaN). To rank all items "
                "together, have some items of different groups compared",
                NotIdentifiableWarning,
            )
        if (alone := self.component_ < 0).any():
            names = self.items_[alone].tolist()
            _warn_and_keep(
                warned,
                f"{len(names):,} item{' has' if len(names) == 1 else 's have'} no comparison, so "
                f"no strength and no rank: {_listed(names)}",
                NotIdentifiableWarning,
            )
        _warn_of_few(table, warned)
        if not self.converged_:
            _warn_and_keep(
                warned,
                f"the fit has not converged after {self.n_iter_} iterations; raise max_iter= "
                f"(now {self.max_iter})",
            )
        reversed_ = self.reliability_ + ndtri((1 + LEVEL) / 2) * self.reliability_se_ < 0
        if reversed_.any() and self.reliability_variance_:
            names = self.annotators_[reversed_].tolist()
            _warn_and_keep(
                warned,
                f"{_listed(names)} prefer{'s' if len(names) == 1 else ''} the weaker item more "
                "often than the stronger one (95 % interval of reliability_ below 0), and "
                f"{'is' if len(names) == 1 else 'are'} counted in reverse. Ask whether the "
                "question or the answers were mixed up",
            )
        if self.dispersion_ > OVERDISPERSION_WARNING:
            _warn_and_keep(
                warned,
                f"answers to a pair of items vary {self.dispersion_:.1f} times more than the model "
                "expects: which item is better seems to depend on more than the two items. "
                "Intervals are widened to allow for it"
                + ("" if table.question is not None else "; name the questions (question=)"),
            )
        if table.question is None and table.has_annotators and _repeats(table):
            _warn_and_keep(
                warned,
                "annotators judged the same pair several times, and no questions are named. "
                "Answers to one question depend on each other, so intervals may be too narrow. "
                "Name the column of the questions (question=)",
            )

    # -- what follows from a fit ------------------------------------------------------------------

    def predict_proba(self, left: Any, right: Any, annotator: Any = None) -> FloatArray:
        """Return the probabilities of a win of the left item, a tie and a win of the right item.

        Parameters
        ----------
        left, right : ids, or sequences of shape (k,)
        annotator : id or sequence of shape (k,), optional
            The annotator who would answer; None (also within the sequence) for a typical annotator.

        Returns
        -------
        array of shape (k, 3)
            In the order left, tie, right. NaN where the two items are in groups that are never
            compared.

        Raises
        ------
        AnnotationError
            If an item or an annotator was not in the comparisons, or the sequences differ in
            length.

        Warns
        -----
        NotIdentifiableWarning
            If some probabilities are NaN for this reason.
        """
        check_is_fitted(self, "strengths_")
        one, other = (
            _known(key, self.items_, "items", name)
            for key, name in ((left, "left"), (right, "right"))
        )
        lengths = {"left": len(one), "right": len(other)}
        if annotator is not None:
            lengths["annotator"] = np.atleast_1d(np.asarray(annotator, dtype=object)).size
        if len(set(lengths.values()) - {1}) > 1:
            shown = ", ".join(f"{name} {size}" for name, size in lengths.items())
            raise AnnotationError(
                f"the sequences differ in length: {shown}; give one id of each for every pair"
            )
        one, other = np.broadcast_arrays(one, other, np.empty(max(lengths.values())))[:2]
        a, b, t = (
            np.ones(len(one)),
            np.full(len(one), self.position_),
            np.full(len(one), self.ties_),
        )
        if annotator is not None:
            names = np.broadcast_to(np.atleast_1d(np.asarray(annotator, dtype=object)), one.shape)
            named = ~missing_mask(names)
            who = _known(names[named].tolist(), self.annotators_, "annotators", "annotator")
            a[named], b[named] = self.reliability_[who], self.position_bias_[who]
            t[named] = self.tie_tendency_[who]
        gap = self.strengths_[one] - self.strengths_[other]
        proba = np.column_stack(probabilities(a * gap + b, t))
        apart = (self.component_[one] != self.component_[other]) | (self.component_[one] < 0)
        proba[apart] = np.nan
        if apart.any():
            warn_caller(
                f"{int(apart.sum())} of {len(one)} pairs have items that no chain of comparisons "
                "connects, so their probabilities are NaN",
                NotIdentifiableWarning,
            )
        return proba

    def better(self) -> FloatArray:
        """Return the probability that each item is truly stronger than each other one.

        Returns
        -------
        array of shape (n_items, n_items)
            ``better()[i, j]`` is the probability that item i is stronger than item j, given all
            comparisons; 0.5 on the diagonal, NaN between items of different groups.

        Raises
        ------
        AnnotationError
            If there are more than 3,000 items.
        """
        check_is_fitted(self, "strengths_")
        cov = self._covariance("better()")
        own = np.diag(cov)
        sd = np.sqrt(np.maximum(own[:, None] + own[None, :] - 2 * cov, 1e-300))
        found: FloatArray = ndtr((self.strengths_[:, None] - self.strengths_[None, :]) / sd)
        np.fill_diagonal(found, 0.5)
        found[~self._linked()] = np.nan
        return found

    def _linked(self) -> BoolArray:
        """Return the mask of the pairs of items of one group, shape (n_items, n_items)."""
        groups = _own_groups(self.component_)
        linked: BoolArray = groups[:, None] == groups[None, :]
        return linked

    def interval(self, level: float = 0.95) -> FloatArray:
        """Return a confidence interval of each strength, by the normal approximation.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Coverage of the intervals.

        Returns
        -------
        array of shape (n_items, 2)
            Lower and upper end, in log odds; NaN with more than 3,000 items.

        Raises
        ------
        AnnotationError
            If ``level`` is outside (0, 1).
        """
        check_is_fitted(self, "strengths_")
        if not 0 < level < 1:
            raise AnnotationError(f"level={level!r} must be between 0 and 1, such as 0.95")
        width = ndtri((1 + level) / 2) * self.strength_se_
        return np.column_stack([self.strengths_ - width, self.strengths_ + width])

    def next_pairs(
        self,
        n: int,
        pairs: Iterable[tuple[Any, Any]] | None = None,
        *,
        each: int | None = None,
    ) -> NextPairs:
        """Choose the pairs to compare next: those expected to reduce doubt about the order most.

        Parameters
        ----------
        n : int
            Answers to ask for. A pair may be chosen several times, to be judged by several
            annotators or on several questions; `manyhands rank` counts how often.
        pairs : iterable of (id, id), optional
            Pairs that may be asked; default: all within the groups of `component_`.
        each : int, optional
            How often a pair may be chosen: 1 gives ``n`` different pairs, ``n`` sets no limit.
            Default: a fifth of ``n``.

        Returns
        -------
        NextPairs
            Iterating over it gives (left id, right id). Fewer than n if ``each`` allows no more.

        Raises
        ------
        AnnotationError
            If ``n`` or ``each`` is not a positive integer, a pair names an unknown item or one item
            twice, or there are more than 3,000 items.
        """
        check_is_fitted(self, "strengths_")
        for name, value, what in (
            ("n", n, "how many answers to ask for"),
            ("each", 1 if each is None else each, "how often a pair may be chosen"),
        ):
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise AnnotationError(f"{name}={value!r} must be a positive integer: {what}")
        self._covariance("next_pairs()")
        profile = np.column_stack([self.reliability_, self.position_bias_, self.tie_tendency_])
        strengths = np.nan_to_num(self.strengths_)
        cov = covariance_given_annotators(self.table_, strengths, profile, self.strength_variance_)
        cov = centred(cov, _own_groups(self.component_))
        linked = self._linked()
        allowed: Any = linked
        if pairs is not None:
            allowed = self._allowed(list(pairs))
            cov = (
                cov + self.strength_variance_ * linked
            )  # Groups that no comparison links yet differ by as much as two items may.
        common = self.position_ if self.table_.has_sides else 0.0, self.ties_
        one, other, gain = choose_pairs(
            strengths, cov, common, allowed, int(n), None if each is None else int(each)
        )
        with_position = probabilities(
            strengths[one] - strengths[other] + common[0], np.array(common[1])
        )
        return NextPairs(self.items_[one], self.items_[other], gain, *with_position)

    def _allowed(self, pairs: list[tuple[Any, Any]]) -> tuple[IntArray, IntArray]:
        if not pairs:
            raise AnnotationError("pairs is empty; give (id, id) of the pairs that may be asked")
        one = _known([pair[0] for pair in pairs], self.items_, "items", "pairs")
        other = _known([pair[1] for pair in pairs], self.items_, "items", "pairs")
        if (same := np.flatnonzero(one == other)).size:
            raise AnnotationError(
                f"pairs holds {pairs[same[0]]!r}, an item with itself; leave it out"
            )
        pairs_ = np.minimum(one, other) * len(self.items_) + np.maximum(one, other)
        first = np.sort(np.unique(pairs_, return_index=True)[1])  # (b, a) equals (a, b).
        return one[first], other[first]

    def _covariance(self, what: str) -> FloatArray:
        if self.covariance_ is None:
            raise AnnotationError(
                f"{what} needs the covariances of all strengths, which more than {MOST_ITEMS:,} "
                f"items do not have ({len(self.items_):,} here); select the items you care about: "
                "fit(table.select(items=...))"
            )
        return self.covariance_


# -- parts of a fit -------------------------------------------------------------------------------


def _with_reliability(
    rows: ComparisonRows, wanted: Wanted, reliability: Any
) -> tuple[State, Wanted, dict[float, float]]:
    """Fit with the given variance of reliabilities, or with that of the highest evidence."""
    evidence: dict[float, float] = {}
    alike = replace(wanted, own=wanted.own & np.array([False, True, True]))
    if not wanted.own[0] or reliability is False:
        return climb(rows, first_state(rows, alike, 0.0), alike), alike, evidence
    if not isinstance(reliability, bool | str):
        own = climb(rows, first_state(rows, wanted, float(reliability)), wanted)
        return own, wanted, evidence
    equal = climb(rows, first_state(rows, alike, 0.0), alike)
    best, best_wanted, state = equal, alike, equal
    highest = -np.inf
    if reliability == "auto":
        highest = evidence[0.0] = log_evidence(rows, best, alike)
    for va in RELIABILITY_VARIANCES:
        variance = state.variance.copy()
        variance[0] = va
        state = climb(rows, replace(state, variance=variance), wanted)
        evidence[va] = log_evidence(rows, state, wanted)
        if rows.total >= PROGRESS_FROM:
            _LOG.info("ranked with a variance of reliabilities of %g", va)
        if evidence[va] <= highest:
            break
        best, best_wanted, highest = state, wanted, evidence[va]
    if reliability == "auto" and highest < evidence[0.0] + LEAST_EVIDENCE_GAIN:
        best, best_wanted = equal, alike
    return best, best_wanted, evidence


def _has_clusters(table: ComparisonTable, warned: list[str]) -> bool:
    """Return whether intervals can be clustered by question; warn if questions are too few."""
    if table.question is None:
        return False
    n = len(np.unique(table.question))
    if max(len(table), table.n_answers) < REPEATED_QUESTIONS * n:
        return False
    each = questions_per_item(table)
    if n >= FEWEST_QUESTIONS and each >= QUESTIONS_PER_ITEM:
        return True
    _warn_and_keep(
        warned,
        f"intervals may be too narrow: {n:,} questions, and {each:g} for the typical item, are too "
        "few to estimate how answers to one question depend on each other "
        f"({FEWEST_QUESTIONS} and {QUESTIONS_PER_ITEM} are needed). Ask about more questions",
    )
    return False


def _own_groups(component: IntArray) -> IntArray:
    """Return each item's group, an integer; an item without comparisons is a group by itself."""
    alone = component < 0
    found: IntArray = np.where(alone, component.max() + np.cumsum(alone), component)
    return found


def _ranks(strengths: FloatArray, component: IntArray) -> IntArray:
    """Return the rank of each item within its group; equal strengths share the better rank."""
    order = np.lexsort((-strengths, component))
    ranks = np.empty(len(strengths), dtype=np.int64)
    start = np.r_[True, np.diff(component[order]) != 0]
    place = np.arange(len(order)) - np.maximum.accumulate(np.where(start, np.arange(len(order)), 0))
    tied = ~start & np.r_[False, np.diff(strengths[order]) == 0]
    place = np.maximum.accumulate(np.where(tied, -1, place + np.cumsum(start) * len(order)))
    ranks[order] = place - np.cumsum(start) * len(order) + 1
    return ranks


def _position_bias_not_identifiable(table: ComparisonTable) -> bool:
    """Return whether differences of strength explain the data as well as position bias does."""
    n = table.n_items
    low = np.minimum(table.left, table.right).astype(np.int64)
    key = np.unique(
        (low * n + np.maximum(table.left, table.right)) * 2 + (table.left < table.right)
    )
    if len(np.unique(key // 2)) < len(key):
        return False  # Some pair was shown in both orders.
    pairs, forward = key // 2, key % 2
    one = np.where(forward == 1, pairs // n, pairs % n)
    other = np.where(forward == 1, pairs % n, pairs // n)
    m = len(pairs)
    rows = np.arange(m)
    design = coo_array(
        (np.r_[np.ones(m), -np.ones(m)], (np.r_[rows, rows], np.r_[one, other])), shape=(m, n)
    ).tocsr()
    residual = lsqr(design, np.ones(m), atol=1e-8, btol=1e-8)[3]
    return bool(residual < 1e-4 * np.sqrt(m))


def _warn_of_sides(table: ComparisonTable, warned: list[str]) -> None:
    on_left, on_right = (
        np.bincount(side, minlength=table.n_items) for side in (table.left, table.right)
    )
    counts = table.counts()
    fixed = ((on_left == 0) | (on_right == 0)) & (counts >= FEW_COMPARISONS)
    if fixed.sum() > 1 and fixed.sum() >= 0.5 * (counts > 0).sum():
        _warn_and_keep(
            warned,
            f"{int(fixed.sum()):,} of {int((counts > 0).sum()):,} items are always on the same "
            f"side, such as {table.items[fixed][0].item()!r}, so a preference for a side can "
            "hardly be distinguished from strength. Show items on both sides, or give "
            "position=False if sides do not matter",
            NotIdentifiableWarning,
        )


def _warn_of_few(table: ComparisonTable, warned: list[str]) -> None:
    """Warn of items for which the prior mostly decides the rank."""
    won, lost, rows = _won_and_lost(table)
    counts = table.counts()
    one_way = (rows > 0) & ((won == rows) | (lost == rows))
    if not (table.outcome != 1).any():
        _warn_and_keep(
            warned,
            "all comparisons are ties, so all strengths are equal: the data do not show which item "
            "is better",
            NotIdentifiableWarning,
        )
    if one_way.any():
        _warn_and_keep(
            warned,
            f"{_listed(table.items[one_way].tolist())} won or lost every comparison, so only the "
            "prior keeps the strength finite. Compare with items that are closer in strength",
            NotIdentifiableWarning,
        )
    few = ((counts > 0) & (counts < FEW_COMPARISONS)).sum()
    if few:
        _warn_and_keep(
            warned,
            f"{int(few):,} of {table.n_items:,} items have fewer than {FEW_COMPARISONS} "
            "comparisons, so their ranks are very uncertain. model.next_pairs(50) chooses the "
            "pairs to ask about next",
            NotIdentifiableWarning,
        )


def _won_and_lost(table: ComparisonTable) -> tuple[IntArray, IntArray, IntArray]:
    """Count the rows that each item won, that it lost, and all its rows, ties included."""
    n = table.n_items
    left, right = table.outcome == 0, table.outcome == 2
    won = np.bincount(table.left[left], minlength=n) + np.bincount(table.right[right], minlength=n)
    lost = np.bincount(table.right[left], minlength=n) + np.bincount(table.left[right], minlength=n)
    rows = np.bincount(table.left, minlength=n) + np.bincount(table.right, minlength=n)
    return won, lost, rows


def _refuse_unbounded(table: ComparisonTable, component: IntArray) -> None:
    """Raise an error if some strengths would be infinite without a prior (Ford, 1957)."""
    left_lost, right_lost = table.outcome != 0, table.outcome != 2
    loser = np.r_[table.left[left_lost], table.right[right_lost]]
    winner = np.r_[table.right[left_lost], table.left[right_lost]]
    shape = table.n_items, table.n_items
    links = coo_array((np.ones(len(loser), dtype=np.int8), (loser, winner)), shape=shape)
    n_strong, strong = connected_components(links, directed=True, connection="strong")
    if n_strong > len(np.unique(component)):
        first = int(np.bincount(strong)[strong].argmin())
        raise AnnotationError(
            "strength_variance=inf has no finite estimate: some items, such as "
            f"{table.items[first].item()!r}, won (or lost) all comparisons with the others. Leave "
            "strength_variance out, or give a number such as 1.0"
        )


def _repeats(table: ComparisonTable) -> bool:
    """Return whether annotators judged the same pair many times on average."""
    n = table.n_items
    low, high = np.minimum(table.left, table.right), np.maximum(table.left, table.right)
    key = (table.annotator.astype(np.int64) * n + low) * n + high
    return table.n_answers >= REPEATED_JUDGEMENTS * len(np.unique(key))


def _warn_and_keep(warned: list[str], message: str, category: type[Warning] = UserWarning) -> None:
    warned.append(message)
    warn_caller(message, category)


def _listed(names: list[Any], shown: int = 3) -> str:
    """Write the first names, and how many more there are."""
    first = ", ".join(repr(name) for name in names[:shown])
    return first if len(names) <= shown else f"{first} and {len(names) - shown:,} more"


# -- input ----------------------------------------------------------------------------------------


def _check_table(table: Any, *, empty: bool = False) -> None:
    """Raise an error if ``table`` is no `ComparisonTable` or has fewer than two items."""
    if isinstance(table, AnnotationTable):
        raise AnnotationError(
            "table is an AnnotationTable, whose annotations are labels of single items; give a "
            "ComparisonTable: from_frame reads comparisons, from_scores makes pairs of scores"
        )
    if not isinstance(table, ComparisonTable):
        raise AnnotationError(
            f"table is a {type(table).__name__}; give a ComparisonTable, such as "
            "ComparisonTable.from_frame(df) makes of a data frame with the columns left, right, "
            "winner and worker. A store is not supported: comparisons are counted in memory"
        )
    if empty:
        return
    if not table.n_answers:
        raise AnnotationError("table is empty: it has no comparison, or all have weight 0")
    if table.n_items < 2:
        raise AnnotationError(
            f"table has {table.n_items} item; two or more are needed for a comparison"
        )


def _refuse_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is None and name in {"time", "times", *_NOT_SUPPORTED}:
            continue  # None is every option's default, so it asks for nothing.
        if name in ("time", "times"):
            refuse_times(value, name)
        elif name in _NOT_SUPPORTED:
            raise AnnotationError(f"{name}= is not supported: {_NOT_SUPPORTED[name]}")
        else:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")


def _known(key: Any, ids: AnyArray, name: str, argument: str) -> IntArray:
    """Return the positions of ``key`` among ``ids``; raise an error for unknown ids."""
    try:
        return ids_of(key, ids, name)
    except AnnotationError as error:
        raise AnnotationError(
            f"{argument}: {error}. The fit can only predict ids that were in the comparisons"
            + ("; give None for an annotator who was not" if name == "annotators" else "")
        ) from error
