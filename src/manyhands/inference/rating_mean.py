"""Means of ratings, corrected for annotators who rate too high or too low.

A rating of instance i by annotator r is y = t_i + s_r + e: the value of the instance, the severity
of the annotator, and noise. Values, severities and noise are normal, each with a variance that EM
estimates; it updates the values given the severities and the reverse (a mean-field
approximation, whose means are exact once it has converged). Severities are shrunk towards 0 by
their variance: an annotator with two ratings is hardly corrected. Values are means of y - s and
are not shrunk towards each other.

With equally many ratings by all of equally many annotators it is the two-way random effects model
of the intraclass correlation [1]_.

.. [1] P. E. Shrout and J. L. Fleiss. Intraclass correlations: uses in assessing rater reliability.
   Psychological Bulletin 86(2), 1979.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.encoding import resolve
from manyhands.annotations.groups import undeclared_models
from manyhands.annotations.target import is_sharded, refuse_swapped
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning, warn_caller
from manyhands.inference.base import AggregatorTraits
from manyhands.inference.families import family_weights
from manyhands.inference.inputs import (
    drawn_at_random,
    drawn_of_both,
    holds_nothing,
    only_new,
    recode_annotators,
)
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray
from manyhands.wording import listed

NOISE_PRIOR = 5.0
"""Number of ratings as which the pooled noise counts in the estimate of one annotator's noise."""

LEAST_KNOWN = 10
"""Number of known values below which they do not measure how far values are off."""

FOLDS = 5
"""Number of parts of the known values, each of which is left out once to measure on it."""


class RatingMean(BaseEstimator):
    """Average ratings, corrected for annotators who rate too high or too low.

    It takes tables of numbers (``scale="interval"``). The result for an instance is a number with a
    standard error, not one of several classes.

    Parameters
    ----------
    severity : bool, default=True
        Whether to estimate how much too high each annotator rates, and to subtract it. If not,
        ``values_`` are the plain means.
    precision : bool, default=False
        Whether ratings by annotators with less noise count more. This helps if annotators differ
        much, and harms if each gives few ratings.
    max_iter : int, default=500
        Maximum number of iterations.
    tol : float, default=1e-5
        Stop when no value changes by more than this share of the standard deviation of the ratings.

    Attributes
    ----------
    values_ : array of shape (n_instances,)
        Mean rating of each instance after subtraction of the severities, or its gold. An instance
        without ratings gets the mean of the others.
    value_se_ : array of shape (n_instances,)
        Standard error of ``values_``, from the noise of the ratings, the uncertainty of severities,
        ``shared_sd_`` and, without gold, the uncertainty of the mean severity, as annotators are
        few of many (the fewer are in ``reference``, the larger it is); 0 for gold.
    mean_, median_ : arrays of shape (n_instances,)
        Plain mean and median of the ratings, for comparison; NaN without ratings.
    severity_ : array of shape (n_annotators,)
        How much too high each annotator rates, in units of the ratings. A negative number means
        ratings that are too low, so a strict examiner has a negative severity. Without gold, the
        mean over the annotators, or over those of ``reference``, is 0.
    severity_se_ : array of shape (n_annotators,)
        Standard error of ``severity_``.
    annotator_sd_ : array of shape (n_annotators,)
        Standard deviation of each annotator's ratings around value + severity, shrunk to that of
        all annotators, which counts as 5 ratings.
    value_sd_, severity_sd_, noise_sd_ : float
        Standard deviations of values, severities and noise.
    shared_sd_ : float or None
        Standard deviation of the mistakes that annotators share about an instance: how much
        farther known values are from those that are estimated without them than ratings scatter.
        None with fewer than 10 known values, as only these can show it.
    n_measured_ : int
        Number of known values that ``shared_sd_`` is measured on.
    reference_ : list of annotator ids or None
        Annotators on whose scale the values are: the mean of these stands for people like them in
        general, whom ``value_se_`` allows for. None: that of all annotators or of known values, or,
        where severities are not corrected, that of those who rated the instance.
    instances_, annotators_ : arrays
        Ids of the rows.
    n_annotators_, n_iter_ : int
        Numbers of annotators and of iterations.
    converged_ : bool
        Whether the iterations stopped by ``tol`` rather than by ``max_iter``.
    table_ : AnnotationTable
        All ratings seen so far; `partial_fit` adds to them.

    See Also
    --------
    manyhands.agreement.krippendorff_alpha : with ``level="interval"``, agreement on ratings. It is
        nearly the intraclass correlation ICC(1,1), which ``pingouin.intraclass_corr`` computes.
    DawidSkene : chooses among a few grades.

    Notes
    -----
    Weights of the table are used, and members of a family share theirs
    (`manyhands.inference.families`). Abstentions are ignored. Neither a bias that all annotators
    share nor mistakes that they share about an instance can be detected without gold, so standard
    errors are too small then if there are any.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import AnnotationTable, RatingMean
    >>> ratings = np.array([[14, 17, np.nan], [3, 5, 2], [21, np.nan, 20], [9, 12, 8.5]])
    >>> table = AnnotationTable.from_matrix(ratings, scale="interval")
    >>> model = RatingMean().fit(table)
    >>> model.values_.round(1), model.severity_.round(1)
    (array([14.8,  3.3, 21.5,  9.8]), array([-0.6,  2. , -1.4]))
    """

    _saved_whole: ClassVar[bool] = True
    traits: ClassVar[AggregatorTraits] = AggregatorTraits(
        uses_start=False, warns_of_shared_mistakes=False
    )

    _parameter_constraints: dict[str, list[Any]] = {
        "severity": ["boolean"],
        "precision": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    table_: AnnotationTable
    values_: FloatArray
    _gold: FloatArray | None
    _random_gold: BoolArray | None = None
    reference_: list[Any] | None = None
    _named: list[Any] | None = None
    n_measured_: int = 0
    shared_sd_: float | None = None

    def __init__(
        self,
        *,
        severity: bool = True,
        precision: bool = False,
        max_iter: int = 500,
        tol: float = 1e-5,
    ) -> None:
        self.severity = severity
        self.precision = precision
        self.max_iter = max_iter
        self.tol = tol

    def fit(
        self,
        table: Any,
        y: Any = None,
        *,
        gold: Any = None,
        random_gold: Any = None,
        groups: Any = None,
        reference: Any = None,
    ) -> Self:
        """Estimate values and severities. A fit that fails leaves the model as it was.

        Parameters
        ----------
        table : AnnotationTable of numbers, or matrix (n, R) with -1/NaN missing
        y : ignored
        gold : dict {instance id: number}, or array-like of shape (n_instances,), optional
            Known values, which inform the severities, and measure ``shared_sd_``; NaN and None mean
            unknown.
        random_gold : sequence of instance ids, or boolean array of shape (n_instances,), optional
            Instances that were drawn at random to be labelled: only their known values measure.
            Default: all known values do.
        groups : dict {annotator id: family}, or sequence of shape (n_annotators,), optional
            As in `BaseAggregator.fit`.
        reference : sequence of annotator ids, optional
            Annotators, such as people beside models, on whose scale the values are: their mean
            severity is 0, and `partial_fit` keeps them. Their mean stands for people in general,
            so the values of one person's scale have wide intervals. Default: all annotators. Known
            values determine the scale, whatever the reference.

        Returns
        -------
        RatingMean
            The model itself.

        Raises
        ------
        AnnotationError
            If there are no ratings, labels are not numbers, the table is a store, ``gold`` names an
            unknown instance or holds a value that is not finite, ``groups`` or ``reference`` names
            an unknown annotator, or ``reference`` names nobody with ratings, or is given with
            ``severity=False``.

        Warns
        -----
        NotIdentifiableWarning
            If no instance has ratings by two annotators, so that severities are not identifiable;
            they are then set to 0. If no instance has ratings by an annotator of ``reference`` and
            by another one, so that it is not used.
        UserWarning
            If language models, by their names, are among people, and neither ``gold`` nor
            ``reference`` is given.
        """
        self._validate_params()
        refuse_swapped(table, y, takes="annotations")
        table = _as_ratings(table)
        if groups is not None:
            table = table.with_groups(groups, table.group_rho)
        drawn = None if random_gold is None else drawn_at_random(random_gold, table)
        if reference is not None:
            reference = self._annotators_of(reference, table)
        known = None if gold is None else gold_values(gold, table)
        self._fit(table, known, drawn, reference)
        if reference is None and gold is None:
            _warn_of_mixed_scales(table, corrects=self.severity_sd_ > 0, severity=self.severity)
        return self

    def _annotators_of(self, reference: Any, table: AnnotationTable) -> list[Any]:
        """Return the ids of the annotators that a reference names, of whom some have ratings."""
        if isinstance(reference, str | bytes) or not isinstance(reference, Iterable):
            raise AnnotationError(
                f"reference={reference!r} is no list; give one of annotators, such as "
                f"reference=[{reference!r}]"
            )
        named = list(reference)
        if not self.severity:
            raise AnnotationError(
                f"reference={named!r} does nothing with severity=False, as plain means are on the "
                "scale of whoever rated the instance; leave reference out, or set severity=True"
            )
        code = resolve(
            named, table.annotators, argument="reference", vocabulary_name="the annotators"
        )
        if not np.isin(code, table.annotator[table.weight > 0]).any():
            raise AnnotationError(
                f"reference={named!r} names no annotator with ratings, so values cannot be on "
                "their scale; name annotators who rated, or leave reference out"
            )
        found: list[Any] = table.annotators[code].tolist()
        return found

    def _fit(
        self,
        table: AnnotationTable,
        gold: FloatArray | None,
        drawn: BoolArray | None,
        reference: list[Any] | None,
    ) -> Self:
        ratings, used = Ratings.of(table, gold, reference), reference
        if reference is not None and gold is None and not (self.severity and ratings.connects()):
            _warn_of_unused(reference, self.severity)
            ratings, used = Ratings.of(table, gold, None), None
        found = ratings.solve(self)
        value, error = ratings.values(found, precision=self.precision)
        off = ratings.off_known(self, drawn)
        self.shared_sd_, self.n_measured_ = None, len(off)
        if len(off):
            self.shared_sd_ = float(np.sqrt(max(0.0, (off[:, 0] ** 2 - off[:, 1] ** 2).mean())))
            inferred = np.isnan(ratings.gold) & (ratings.by_row(ratings.weight) > 0)
            error = np.where(inferred, np.hypot(error, self.shared_sd_), error)
        self.table_, self._gold, self._random_gold = table, gold, drawn
        self.reference_, self._named = used, reference
        self.instances_, self.annotators_ = table.instances, table.annotators
        self.n_annotators_ = table.n_annotators
        self.values_, self.value_se_ = value, error
        self.mean_, self.median_ = ratings.plain()
        self.severity_, self.severity_se_ = found.severity, np.sqrt(found.doubt)
        self.annotator_sd_ = np.sqrt(found.own_noise)
        self.value_sd_ = float(np.sqrt(found.spread))
        self.severity_sd_ = float(np.sqrt(found.bias))
        self.noise_sd_ = float(np.sqrt(found.noise))
        self._centre = found.centre
        self.n_iter_, self.converged_ = found.n_iter, found.converged
        return self

    def partial_fit(
        self,
        table: Any,
        y: Any = None,
        *,
        gold: Any = None,
        random_gold: Any = None,
        duplicates: Duplicates = "error",
    ) -> Self:
        """Add ratings (of old and new instances by old and new annotators) and fit again.

        Parameters
        ----------
        table : AnnotationTable of numbers, or matrix
            New ratings, which may be numbers that nobody gave before.
        y : ignored
        gold, random_gold : as in `fit`, for the instances of ``table``
            Earlier gold stays known.
        duplicates : {"error", "last", "keep"}
            As in `BaseAggregator.partial_fit`.

        Returns
        -------
        RatingMean
            The model itself.

        Raises
        ------
        AnnotationError
            As in `fit` and `BaseAggregator.partial_fit`.
        """
        refuse_swapped(table, y, takes="annotations")
        if not hasattr(self, "table_"):
            return self.fit(table, gold=gold, random_gold=random_gold)
        self._validate_params()
        new = _as_ratings(table, empty=True)
        known = None if gold is None else gold_values(gold, new)
        before, added = self.table_.over_the_same_numbers(new)
        fresh = only_new(added, before, duplicates)
        if known is None and holds_nothing(fresh, added):
            return self
        whole = before.with_added(fresh, duplicates=duplicates)
        numbers = np.full(whole.n_instances, np.nan)
        if self._gold is not None:
            numbers[: before.n_instances] = self._gold
        if known is not None:
            place = resolve(
                new.instances, whole.instances, argument="gold", vocabulary_name="instances"
            )
            numbers[place] = np.where(np.isnan(known), numbers[place], known)
        drawn = drawn_of_both(self._random_gold, random_gold, new, whole)
        known = None if np.isnan(numbers).all() else numbers
        return self._fit(whole, known, drawn, self._named)

    def predict(self, table: Any) -> FloatArray:
        """Return the values of new or old instances, with the severities of the fit.

        Parameters
        ----------
        table : AnnotationTable of numbers, or matrix
            Annotators are matched by id; the columns of a matrix are those of ``annotators_``.

        Returns
        -------
        array of shape (n_instances,)

        Raises
        ------
        AnnotationError
            If ``table`` holds an annotator that `fit` did not see.
        """
        check_is_fitted(self, "values_")
        given = recode_annotators(_as_ratings(table, empty=True), self.annotators_)
        weight = np.asarray(given.weight, dtype=np.float64)
        if self.precision:
            weight = weight / self.annotator_sd_[given.annotator] ** 2
        total = np.bincount(given.instance, weight, given.n_instances)
        ratings = given.values - self.severity_[given.annotator]
        summed = np.bincount(given.instance, weight * ratings, given.n_instances)
        return np.divide(
            summed, total, out=np.full(given.n_instances, self._centre), where=total > 0
        )

    def fit_predict(self, table: Any, y: Any = None, **options: Any) -> FloatArray:
        """Fit (options as in `fit`) and return ``values_``, shape (n_instances,)."""
        return self.fit(table, **options).values_

    def interval(self, level: float = 0.95) -> FloatArray:
        """Return a confidence interval of each value, by the normal approximation.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Coverage of the intervals.

        Returns
        -------
        array of shape (n_instances, 2)
            Lower and upper end, in units of the ratings.

        Raises
        ------
        AnnotationError
            If ``level`` is outside (0, 1).
        """
        check_is_fitted(self, "values_")
        if not 0 < level < 1:
            raise AnnotationError(f"level={level!r} must be between 0 and 1, such as 0.95")
        width = ndtri((1 + level) / 2) * self.value_se_
        return np.column_stack([self.values_ - width, self.values_ + width])

    @property
    def labels_(self) -> AnyArray:
        """Raise an error that names ``values_``, because the results are numbers, not labels."""
        raise AttributeError(
            "RatingMean has no labels_, because its answers are numbers: values_ are the means of "
            "the ratings after subtraction of the severities, value_se_ their standard errors, and "
            "mean_ and median_ the plain ones"
        )

    @property
    def is_known_(self) -> BoolArray:
        """Whether the value of each instance was given as gold, shape (n_instances,)."""
        check_is_fitted(self, "values_")
        return np.full(len(self.values_), False) if self._gold is None else ~np.isnan(self._gold)


class Found(NamedTuple):
    """Estimates of EM: severities, their variances, and the variances of the model."""

    severity: FloatArray
    doubt: FloatArray
    own_noise: FloatArray
    centre: float
    spread: float
    bias: float
    noise: float
    n_iter: int
    converged: bool


class Ratings(NamedTuple):
    """Ratings in long form, with the weight of each.

    Attributes
    ----------
    y, weight : arrays of shape (m,)
    row, who : integer arrays of shape (m,)
    gold : array of shape (n,)
        Known values; NaN if unknown.
    is_reference : boolean array of shape (R,)
        Annotators whose mean severity is 0 without known values.
    """

    y: FloatArray
    weight: FloatArray
    row: IntArray
    who: IntArray
    gold: FloatArray
    is_reference: BoolArray

    @classmethod
    def of(
        cls, table: AnnotationTable, gold: FloatArray | None, reference: list[Any] | None
    ) -> Ratings:
        """Read the ratings of a table; those of weight 0 are left out."""
        weight = table.weight * family_weights(table)
        counted = weight > 0
        if gold is None:
            gold = np.full(table.n_instances, np.nan)
        rates = np.bincount(table.annotator[counted], minlength=table.n_annotators) > 0
        if reference is not None:
            rates &= np.isin(table.annotators, reference)
        return cls(
            table.values[counted],
            np.asarray(weight[counted], dtype=np.float64),
            table.instance[counted],
            table.annotator[counted],
            gold,
            rates,
        )

    @property
    def n_annotators(self) -> int:
        """Number of annotators, with those who rated nothing."""
        return len(self.is_reference)

    def by_row(self, values: FloatArray) -> FloatArray:
        """Sum over the ratings of each instance."""
        return np.bincount(self.row, values, len(self.gold)).astype(np.float64)

    def by_annotator(self, values: FloatArray) -> FloatArray:
        """Sum over the ratings of each annotator."""
        return np.bincount(self.who, values, self.n_annotators).astype(np.float64)

    def plain(self) -> tuple[FloatArray, FloatArray]:
        """Return the weighted mean and median of each instance; NaN without ratings."""
        total = self.by_row(self.weight)
        gap = np.full(len(total), np.nan)
        mean = np.divide(self.by_row(self.weight * self.y), total, out=gap, where=total > 0)
        order = np.lexsort((self.y, self.row))
        row, y, up_to = self.row[order], self.y[order], self.weight[order].cumsum()
        start = np.concatenate([[0.0], total.cumsum()])[:-1][row]
        share = (up_to - start) / total[row]
        # The median is the mean of the first rating at which half of the weight is reached and the
        # first at which it is exceeded.
        ends = []
        for reached in (share >= 0.5 - 1e-9, share > 0.5 + 1e-9):
            first = np.full(len(total), len(y))
            np.minimum.at(first, row[reached], np.flatnonzero(reached))
            ends.append(np.append(y, np.nan)[first])
        return mean, (ends[0] + ends[1]) / 2

    def overlap(self) -> bool:
        """Return whether some instance has ratings by two annotators, or gold."""
        pairs = np.unique(self.row.astype(np.int64) * self.n_annotators + self.who)
        several = np.bincount(pairs // self.n_annotators, minlength=len(self.gold)) > 1
        rated = self.by_row(self.weight) > 0
        return bool(several.any() or (rated & ~np.isnan(self.gold)).any())

    def connects(self) -> bool:
        """Return whether the reference rates an instance that others rate, or nobody else rates."""
        by_reference = self.is_reference[self.who]
        n = len(self.gold)
        beside = np.bincount(self.row[by_reference], minlength=n) > 0
        beside &= np.bincount(self.row[~by_reference], minlength=n) > 0
        return bool(beside.any() or (by_reference.all() and self.overlap()))

    def solve(self, model: RatingMean) -> Found:
        """Estimate severities and variances by EM."""
        known, rated = ~np.isnan(self.gold), self.by_row(self.weight) > 0
        scale = float(self.y.std()) or 1.0
        corrects = model.severity
        if corrects and not self.overlap():
            warn_caller(
                "no instance has ratings of two annotators, so annotators who rate too high cannot "
                "be told from instances that deserve it: severities are 0, and the values are "
                "plain means. Let annotators rate some of the same instances, or give known values "
                "(gold=)",
                NotIdentifiableWarning,
            )
            corrects = False
        value = np.where(known, self.gold, np.nan_to_num(self.plain()[0]))
        centre = float(value[rated].mean())
        residual = self.y - value[self.row]
        noise = max(self._mean(residual**2), (1e-6 * scale) ** 2)
        spread = max(float(value[rated].var()), noise)
        active = self.by_annotator(self.weight) > 0
        severity, doubt = np.zeros(self.n_annotators), np.zeros(self.n_annotators)
        bias = 0.25 * noise if corrects else 0.0
        own_noise = np.full(self.n_annotators, noise)
        converged, step = False, 0
        for step in range(1, model.max_iter + 1):
            power = self.weight / own_noise[self.who]
            given = self.by_row(power * (self.y - severity[self.who]))
            before, total = value, self.by_row(power) + 1 / spread
            value = np.where(known, self.gold, (given + centre / spread) / total)
            unsure = np.where(known, 0.0, 1 / total)
            if corrects:
                total = self.by_annotator(power) + 1 / bias
                severity = self.by_annotator(power * (self.y - value[self.row])) / total
                doubt = 1 / total
                if (
                    not known.any()
                ):  # Without gold, only the sum of value and severity is identified.
                    shift = float(severity[self.is_reference].mean())
                    severity[active] -= shift
                    value = value + shift
                bias = max(float((severity**2 + doubt)[active].mean()), (1e-6 * scale) ** 2)
            centre = float(value[rated].mean())
            spread = float(((value - centre) ** 2 + unsure)[rated].mean())
            spread = max(spread, (1e-6 * scale) ** 2)
            squares = (self.y - value[self.row] - severity[self.who]) ** 2
            squares += unsure[self.row] + doubt[self.who]
            noise = max(self._mean(squares), (1e-6 * scale) ** 2)
            shown = self.by_annotator(self.weight * squares) + NOISE_PRIOR * noise
            shown /= self.by_annotator(self.weight) + NOISE_PRIOR
            own_noise = shown if model.precision else np.full(self.n_annotators, noise)
            if step > 1 and np.abs(value - before).max() <= model.tol * scale:
                converged = True
                break
        severity[~active] = 0.0
        doubt[~active] = bias
        return Found(severity, doubt, shown, centre, spread, bias, noise, step, converged)

    def off_known(self, model: RatingMean, drawn: BoolArray | None) -> FloatArray:
        """Return how far values are from known ones, each estimated without the known values.

        Parameters
        ----------
        model : RatingMean
        drawn : boolean array of shape (n,) or None
            Instances whose known values measure; None: all.

        Returns
        -------
        array of shape (m, 2)
            Differences, and the standard errors of the values; empty if fewer than `LEAST_KNOWN`
            known values measure.
        """
        measures = ~np.isnan(self.gold) & (self.by_row(self.weight) > 0)
        rows = np.flatnonzero(measures if drawn is None else measures & drawn)
        if len(rows) < LEAST_KNOWN:
            return np.empty((0, 2))
        order = np.random.default_rng(0).permutation(rows)
        found = []
        for part in range(FOLDS):
            aside = order[part::FOLDS]
            gold = self.gold.copy()
            gold[aside] = np.nan
            rest = self._replace(gold=gold)
            value, error = rest.values(rest.solve(model), precision=model.precision)
            found.append(np.column_stack([value - self.gold, error])[aside])
        return np.concatenate(found)

    def _mean(self, values: FloatArray) -> float:
        return float((self.weight * values).sum() / self.weight.sum())

    def values(self, found: Found, *, precision: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return the means of ratings minus severities, not shrunk, and their standard errors."""
        noise = found.own_noise[self.who] if precision else found.noise
        power = self.weight / noise
        total = self.by_row(power)
        ratings = self.y - found.severity[self.who]
        mean = np.divide(
            self.by_row(power * ratings), total, out=np.full(len(total), found.centre),
            where=total > 0,
        )  # fmt: skip
        share = power / total[self.row]
        doubt = self.by_row(share**2 * found.doubt[self.who])
        if np.isnan(self.gold).all():  # All values share the error of the mean severity.
            # The annotators are few of many; the variance of severities counts as one more of them,
            # as the squares of a few around their own mean are too small (0 for one).
            who = self.is_reference
            square = ((found.severity**2)[who].sum() + found.bias) / who.sum()
            doubt += (square + found.doubt[who].mean()) / who.sum()
        variance = np.divide(1.0, total, out=np.full(len(total), found.spread), where=total > 0)
        known = ~np.isnan(self.gold)
        error = np.where(known, 0.0, np.sqrt(variance + doubt))
        return np.where(known, self.gold, mean), error


def _warn_of_unused(reference: list[Any], severity: bool) -> None:
    """Warn where values cannot be on the scale of the reference."""
    names = shlex.quote(",".join(map(str, reference)))
    if severity:
        why = (
            "they share no instance with the other annotators, so nothing shows who rates too high "
            "beside them. Let them rate some of the same instances, or give known values (gold=)"
        )
    else:
        why = "severities are not corrected (severity=False). Set severity=True"
    warn_caller(
        f"the values are not on the scale of reference={reference!r}, on the command line --people "
        f"{names}: {why}",
        NotIdentifiableWarning,
    )


def _warn_of_mixed_scales(table: AnnotationTable, *, corrects: bool, severity: bool) -> None:
    """Warn where people's and language models' ratings have one mean, so nobody's scale."""
    models = undeclared_models(None, table.annotators)
    if not models.any() or models.all():
        return
    people = table.annotators[~models].tolist()
    names = shlex.quote(",".join(map(str, people)))
    mend = f"reference={people!r}, on the command line --people {names}"
    scale = "all annotators on average" if corrects else "whoever rated the instance"
    if corrects:
        mend = f"If the others are people, name them for values on their scale: {mend}"
    elif severity:
        mend = (
            "If the others are people, let them rate some of the instances that models rate, and "
            f"name them for values on their scale: {mend}"
        )
    else:
        mend = (
            "If the others are people, set severity=True and name them for values on their "
            f"scale: {mend}"
        )
    warn_caller(
        f"{models.sum():,} of the {len(models):,} annotators are named like language models "
        f"({listed(table.annotators[models].tolist(), int(models.sum()), 2)}). The values are on "
        f"the scale of {scale}, so they are too high or too low for people if models rate "
        f"otherwise. {mend}"
    )


# -- input ----------------------------------------------------------------------------------------


def _as_ratings(table: Any, *, empty: bool = False) -> AnnotationTable:
    """Return a table of numbers, read from a table or a matrix."""
    if is_sharded(table):
        raise AnnotationError(
            "RatingMean reads a table, and this is a store; give the instances to be rated as one, "
            "such as store[:], which is a table, if it fits in memory"
        )
    if not isinstance(table, AnnotationTable):
        if np.ndim(table) == 2 and not hasattr(table, "columns"):
            table = AnnotationTable.from_matrix(table, scale="interval")
        table = as_table(table, argument="table", what="RatingMean")
    require_annotators(table, "RatingMean")
    if not empty and not (table.n_annotations and table.weight.any()):
        raise AnnotationError(
            f"table is empty: no rating in {table.n_instances} instances x {table.n_annotators} "
            "annotators, or all have weight 0"
        )
    return table if table.scale == "interval" else table.with_scale("interval")


def gold_values(gold: Any, table: AnnotationTable) -> FloatArray:
    """Return the known values of a table's instances, shape (n_instances,); NaN where unknown.

    Raises
    ------
    AnnotationError
        If an instance is unknown, or a value is no finite number.
    """
    found = np.full(table.n_instances, np.nan)
    if hasattr(gold, "to_dict") and not hasattr(gold, "columns"):
        gold = gold.to_dict()
    if isinstance(gold, Mapping):
        place = resolve(list(gold), table.instances, argument="gold", vocabulary_name="instances")
        given = list(gold.values())
    else:
        given = list(np.asarray(gold, dtype=object))
        if len(given) != table.n_instances:
            raise AnnotationError(
                f"gold has {len(given)} values for {table.n_instances} instances; give a dict "
                "{instance id: value} for some of them"
            )
        place = np.arange(table.n_instances)
    try:
        numbers = np.array([np.nan if v is None else float(v) for v in given], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise AnnotationError(f"gold holds something that is no number ({error})") from error
    if np.isinf(numbers).any():
        raise AnnotationError("gold holds an infinite value; leave it out, or correct it")
    found[place] = numbers
    return found
