"""The planner: whom to ask about which instance next, and when to stop."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import as_table
from manyhands.decision.labels import best_of, generator
from manyhands.exceptions import (
    AnnotationError,
    NotIdentifiableWarning,
    all_or_nothing,
    warn_caller,
)
from manyhands.inference.base import NON_NEGATIVE, POSITIVE, BaseAggregator
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.inputs import drawn_at_random, gold_codes
from manyhands.metrics import accuracy_of_labels
from manyhands.planning.beliefs import (
    are_unjudged,
    beliefs_of,
    better_labels,
    drawn_confusions,
    of_pairs,
)
from manyhands.planning.choosing import ScoringRule, Suggestion, fill
from manyhands.planning.pool import (
    Pool,
    checked_size,
    kept_pairs,
    nothing_left,
    read_pool,
    read_prices,
)
from manyhands.typing import BoolArray, FloatArray
from manyhands.wording import counted

CRITERIA = ("information", "accuracy", "entropy", "fewest")

ANNOTATORS = ("choose", "arriving", "any")


@dataclass(frozen=True)
class Stopping:
    """Whether to buy more, and how good the labels are.

    Attributes
    ----------
    stop : bool
    reason : str
    marginal_gain : float
        Expected number of right labels per annotation of the next batch, or of grades by which
        labels come nearer the truth if the classes are in order; NaN if nothing may be asked.
    expected_accuracy : float
        Mean probability of the labels under the model. Do not report it as the accuracy, because
        mistakes that annotators share do not stand out; audit a random sample instead.
    accuracy, low, high : float or None
        Share of right labels that the audit shows, with a 95 % interval
        (`manyhands.metrics.accuracy_of_labels`); None with fewer than 10 audited labels.
    n_audited : int
    n : int
        Annotations of the next batch.
    n_warm_up : int
        Number of these that belong to the warm-up, which spreads annotations over the instances
        until annotators can be judged.
    unit : {"label", "grade"}
        Unit of the gain: labels that become right or, for classes in order, grades.
    """

    stop: bool
    reason: str
    marginal_gain: float
    expected_accuracy: float
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    n_audited: int = 0
    n: int = 0
    n_warm_up: int = 0
    unit: str = "label"


class AnnotationPlanner(BaseEstimator):
    """Plan which annotations to buy next, by whom, and when to stop.

    Parameters
    ----------
    aggregator : BaseAggregator, default=DawidSkene()
        Infers the labels so far; it is cloned.
    criterion : {"information", "accuracy", "entropy", "fewest"}, default="information"
        "information": expected information about the class; "accuracy": expected gain in right
        labels, or in grades if the classes are in order (see `manyhands.planning.beliefs`);
        "entropy": the least certain instances first; "fewest": those with the fewest annotations
        first.
    annotators : {"choose", "arriving", "any"}, default="choose"
        "choose": the best annotator for each instance. "arriving": annotators arrive as often as so
        far, and each gets the instances on which they help most. "any": any annotator who may be
        asked, at random.
    warm_up : float >= 0, default=1.5
        Until instances have this many annotations on average, instances are chosen by entropy and
        annotators at random, because every label with a single annotation looks certain. With a
        classifier there is no warm-up, because its probabilities show which labels are certain.
    explore : bool, default=False
        Choose by confusion matrices drawn from their posterior (Thompson sampling), instead of by
        their means. Annotators about whom little is known then get more work, and work is shared
        more evenly; docs/planning.md shows where this helps.
    load : float > 0 or None
        Maximum number of annotations per annotator in a batch, as a multiple of an equal share.
        None: no limit.
    cost : dict {annotator id: price}, array of shape (n_annotators,) or None
        Price per annotation, by which gains are divided. An annotator without a price costs 1.
    random_state : int, RandomState or None

    Attributes
    ----------
    aggregator_ : fitted clone of ``aggregator``, or the ``model`` of `fit`
    posterior_ : array of shape (n_instances, n_classes)
        Class probabilities, joined with those of the classifier if given.
    labels_ : array of shape (n_instances,)
    classifier_weight_ : float
        Power b to which the classifier's probabilities were raised; 0 without a classifier.
    is_known_ : boolean array of shape (n_instances,)
        Instances whose class was given.
    is_unjudged_ : boolean array of shape (n_annotators,)
        Annotators with fewer than five annotations, too few to judge them. Like new annotators,
        they are expected to be as accurate as the crowd.
    table_ : AnnotationTable

    Notes
    -----
    A batch contains no instance twice, and no pair that was annotated or passed. Equal scores are
    taken in random order. If annotators share mistakes (``dependence`` of the aggregator), gains
    are those of tempered annotations. If the number of pairs times the squared number of classes is
    above 2·10⁷, a batch of n is chosen only from the max(n, 4000) least certain instances, and
    "accuracy" chooses their annotators by information. With ``load``, the most informative
    annotators then choose first.

    References
    ----------
    MacKay (1992), Neural Computation 4(4); Welinder & Perona (2010), CVPR Workshops; Sheng, Provost
    & Ipeirotis (2008), KDD (label uncertainty).

    Examples
    --------
    >>> from manyhands import AnnotationPlanner, make_crowd
    >>> table = make_crowd([0, 1, 2] * 20, annotations_per_instance=2, random_state=0)
    >>> plan = AnnotationPlanner(random_state=0).fit(table).suggest(5)
    >>> len(plan), len(set(plan.instances.tolist()))
    (5, 5)
    """

    _judges_sample = True
    _parameter_constraints: dict[str, list[Any]] = {
        "aggregator": [BaseAggregator, None],
        "criterion": [StrOptions(set(CRITERIA))],
        "annotators": [StrOptions(set(ANNOTATORS))],
        "warm_up": [NON_NEGATIVE],
        "explore": ["boolean"],
        "load": [POSITIVE, None],
        "cost": [Mapping, "array-like", None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        aggregator: BaseAggregator | None = None,
        *,
        criterion: str = "information",
        annotators: str = "choose",
        warm_up: float = 1.5,
        explore: bool = False,
        load: float | None = None,
        cost: Any = None,
        random_state: Any = None,
    ) -> None:
        self.aggregator = aggregator
        self.criterion = criterion
        self.annotators = annotators
        self.warm_up = warm_up
        self.explore = explore
        self.load = load
        self.cost = cost
        self.random_state = random_state

    def fit(
        self,
        table: Any,
        proba: Any = None,
        gold: Any = None,
        *,
        random_gold: Any = None,
        model: Any = None,
    ) -> Self:
        """Infer the labels of the annotations so far, from which the next ones are chosen.

        Parameters
        ----------
        table : AnnotationTable, or an (n_instances, n_annotators) matrix with -1/NaN missing
            Its vocabularies must name instances without annotations, and annotators who have not
            annotated yet; they can also be named later, in ``pairs``.
        proba : result of `manyhands.cross_predict`, or array-like or frame of shape \
(n_instances, n_classes), optional
            A classifier's probabilities **out of fold** (`manyhands.cross_predict`). They are
            raised to the power b that best predicts left-out annotations, together with the other
            annotators.
        gold : dict {instance id: class}, or array-like of shape (n_instances,), optional
            Known classes, as in an aggregator's ``fit``; they are not asked about.
        random_gold : sequence of instance ids, or boolean array of shape (n_instances,), optional
            Instances whose known class was drawn at random, as in an aggregator's ``fit``.
        model : fitted estimator, or array of shape (n_instances, n_classes), optional
            Labels that were inferred already, as in `review_queue`; ``aggregator`` is not used.

        Raises
        ------
        AnnotationError
            As in the aggregator's ``fit``; or if ``proba``, ``cost`` or ``model`` is unusable.
        """
        self._validate_params()
        table = as_table(table, argument="table")
        if model is None:
            model = DawidSkene() if self.aggregator is None else clone(self.aggregator)
            if not self._judges_sample:
                model._judges_sample = False
            with warnings.catch_warnings():
                if table.n_annotations < self.warm_up * table.n_instances:
                    # The warm-up deals with what this warning is about.
                    warnings.simplefilter("ignore", NotIdentifiableWarning)
                model.fit(table, gold=gold, random_gold=random_gold)
        with all_or_nothing(self):
            found, self.classifier_weight_ = beliefs_of(model, table, proba)
            self.is_unjudged_ = are_unjudged(model, table)
            self._beliefs = found.as_crowd(self.is_unjudged_)
            self._is_joined = proba is not None
            self._price = read_prices(self.cost, table.annotators)
            self.is_known_ = (
                np.zeros(table.n_instances, dtype=bool)
                if gold is None
                else gold_codes(gold, table) >= 0
            )
            self.aggregator_, self.table_ = model, table
            self.posterior_ = self._beliefs.posterior
            if not isinstance(model, BaseAggregator):
                self.labels_ = table.classes[best_of(self.posterior_, table)]
            else:
                self.labels_ = model.labels_ if proba is None else model._labels(self.posterior_)
        return self

    def suggest(self, n: int, pairs: Any = None) -> Suggestion:
        """Suggest the next n pairs: which annotator to ask about which instance.

        Parameters
        ----------
        n : int >= 1
        pairs : bool array of shape (n_instances, n_annotators), or iterable of pairs, optional
            Pairs (instance id, annotator id) that may be asked; None: all. Ids outside the table
            are new instances, which start at the class prior, and new annotators, who start with
            the crowd's confusion matrix.

        Returns
        -------
        Suggestion
            Fewer than n pairs, with a warning, if no more may be asked.

        Raises
        ------
        AnnotationError
            If ``n`` is not a positive whole number, ``pairs`` is unusable, or nothing may be asked.
        """
        check_is_fitted(self, "posterior_")
        return self._full(self._batch(self._pool(pairs), checked_size(n)), n)

    def next_for(self, annotator: Any, n: int = 1) -> Suggestion:
        """Suggest the next n instances for one annotator, who may be new to the table.

        Parameters
        ----------
        annotator : id
        n : int >= 1

        Returns
        -------
        Suggestion

        Raises
        ------
        AnnotationError
            As in `suggest`; in particular if the annotator has annotated every instance.
        """
        check_is_fitted(self, "posterior_")
        pairs = [(instance, annotator) for instance in self.table_.instances.tolist()]
        return self._full(self._batch(self._pool(pairs), checked_size(n), one=True), n)

    def stopping(
        self,
        min_gain: float = 0.02,
        audit: Any = None,
        *,
        random_audit: Any = None,
        n: int | None = None,
        pairs: Any = None,
    ) -> Stopping:
        """Return whether the next batch is worth its price, and how good the labels are.

        Parameters
        ----------
        min_gain : float, default=0.02
            Gain per annotation below which to stop: right labels or, for classes in order, grades.
        audit : dict {instance id: class} or array-like as in ``gold``, optional
            Checked labels of **randomly drawn** instances (not only of doubtful ones) that were not
            given to `fit` as gold. They measure the accuracy, with an interval. If a rank test
            suggests that they were chosen, a warning says so, and they do not.
        random_audit : sequence of instance ids, or boolean array of shape (n_instances,), optional
            Audited instances that are known to be drawn at random; they are not tested.
        n : int, optional
            Size of the next batch; default: a tenth of the instances.
        pairs : as in `suggest`

        Returns
        -------
        Stopping

        Raises
        ------
        AnnotationError
            If ``audit`` or ``pairs`` is unusable, or an audited label was known to `fit`.
        """
        check_is_fitted(self, "posterior_")
        level = self._audited(audit, random_audit)
        expected = float(self.posterior_.max(axis=1).mean())
        n = max(1, self.table_.n_instances // 10) if n is None else checked_size(n)
        pairs = kept_pairs(pairs)
        try:
            pool = self._pool(pairs)
        except AnnotationError:
            read_pool(pairs, self.table_)  # Unusable pairs are an error here, too.
            return Stopping(True, "no pair may be asked", float("nan"), expected, *level)
        batch = self._batch(pool, n)
        gain = float(batch.expected_gain.mean())
        ordered = self._beliefs.ordered
        unit = "grade" if ordered else "label"
        if batch.n_warm_up:
            reason = f"the warm-up needs {self.warm_up:g} annotations per instance first"
            waiting = Stopping(False, reason, gain, expected, *level)
            return replace(waiting, n=len(batch), n_warm_up=batch.n_warm_up, unit=unit)
        stop = gain < min_gain
        bought = counted(len(batch), "annotation")
        reason = f"the next {bought} would correct {one_in(gain, ordered=ordered)}"
        if limit := limit_of(min_gain, ordered=ordered):
            reason += f"; {limit[0].lower()}{limit[1:]}"
        return replace(Stopping(stop, reason, gain, expected, *level), n=len(batch), unit=unit)

    # -- parts ------------------------------------------------------------------------------------

    def _pool(self, pairs: Any) -> Pool:
        pairs = kept_pairs(pairs)
        pool = read_pool(pairs, self.table_)
        if not (pool.open_instances & self._unknown(pool)).any():
            raise nothing_left(pairs, len(pool.instances), len(pool.annotators))
        return pool

    def _unknown(self, pool: Pool) -> BoolArray:
        """Return whether each instance's class is unknown, shape (n,)."""
        new = len(pool.instances) - len(self.is_known_)
        return ~np.concatenate([self.is_known_, np.zeros(new, dtype=bool)])

    def _expected_right(self, batch: Suggestion) -> float:
        """Return the share of a batch's answers that is expected to be right."""
        table, n, r = self.table_, self.table_.n_instances, self.table_.n_annotators
        beliefs = self._beliefs.extended(n + 1, r + 1)  # All that are new are alike.
        rows = {name: k for k, name in enumerate(table.instances.tolist())}
        columns = {name: k for k, name in enumerate(table.annotators.tolist())}
        i = [rows.get(name, n) for name in batch.instances.tolist()]
        who = [columns.get(name, r) for name in batch.annotators.tolist()]
        right = beliefs.confusion[who].diagonal(axis1=1, axis2=2)
        return float((beliefs.posterior[i] * right).sum(axis=1).mean())

    def _full(self, batch: Suggestion, n: int) -> Suggestion:
        if len(batch) < n:
            warn_caller(
                f"only {len(batch):,} of {counted(n, 'pair')} can be asked in one batch, because "
                "each instance is asked once, and pairs= and load= allow no more"
            )
        return batch

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        """Fill a batch: first the warm-up (not for ``one`` annotator), then by the criterion."""
        rng = generator(self.random_state)
        beliefs = judged_by = self._beliefs.extended(len(pool.instances), len(pool.annotators))
        if self.explore:
            confusion = drawn_confusions(self.table_, beliefs, rng)
            judged_by = replace(beliefs, confusion=confusion)
        newcomers = len(pool.annotators) - len(self._price)
        price = np.concatenate([self._price, np.ones(newcomers)])
        reach = pool.open_instances | (beliefs.n_annotators_of > 0)
        missing = int(np.ceil(self.warm_up * reach.sum())) - self.table_.n_annotations
        n_warm = 0 if one or self._is_joined else min(n, max(missing, 0))
        free = pool.open_instances & self._unknown(pool)
        room = np.where(pool.open_annotators, n if one else self._most(pool, n), 0)
        rule = ScoringRule(self.criterion, one or self.annotators != "any", price)
        arriving = not one and self.annotators == "arriving"
        activity = self._activity(len(room)) if arriving else None
        steps = [(n_warm, ScoringRule("entropy", False, price), None), (n - n_warm, rule, activity)]
        chosen = [
            part
            for size, rule, activity in steps
            for part in fill(pool, judged_by, rule, size, free, room, activity, rng)
        ]
        i, r, score = (np.concatenate(column) for column in zip(*chosen, strict=True))
        known = (beliefs.posterior, beliefs.confusion, beliefs.power)
        gain = of_pairs(better_labels(beliefs), *known, i, r)
        return Suggestion(pool.instances[i], pool.annotators[r], score, gain, min(n_warm, len(i)))

    def _most(self, pool: Pool, n: int) -> int:
        """Return how many annotations of a batch of n each annotator may give."""
        even = n / max(int(pool.open_annotators.sum()), 1)
        return n if self.load is None else int(np.ceil(self.load * even))

    def _activity(self, n_annotators: int) -> FloatArray:
        """Return how often each annotator is expected to come, newcomers once, shape (R,)."""
        given = self.table_.annotations_per_annotator()
        activity = np.ones(n_annotators)
        activity[: len(given)] = np.maximum(given, 1)
        return activity

    def _audited(self, audit: Any, drawn: Any) -> tuple[Any, ...]:
        """Return the accuracy on audited labels with its interval, and their number."""
        if audit is None:
            return None, None, None, 0
        codes = gold_codes(audit, self.table_)
        rows = np.flatnonzero(codes >= 0)
        if not len(rows):
            return None, None, None, 0
        if self.is_known_[rows].any():
            known = self.table_.instances[rows[self.is_known_[rows]][0]].item()
            raise AnnotationError(
                f"audit holds instance {known!r}, whose class was given to fit as gold, so its "
                "label is right in any case and measures nothing. Audit other instances, or fit "
                "without this gold. If gold and audit are the same random sample, give it once, as "
                "gold with random_gold: then it measures the other labels, too"
            )
        values = np.array([*self.table_.classes.tolist(), None], dtype=object)
        level = accuracy_of_labels(
            self.table_,
            self.labels_,
            self.posterior_,
            sample=values[codes],
            known=self.is_known_,
            random=None if drawn is None else drawn_at_random(drawn, self.table_),
        )
        if level is None or level.source != "sample":
            return None, None, None, len(rows)
        return level.value, level.low, level.high, level.n


def one_in(gain: float | None, *, ordered: bool = False) -> str:
    """Say how many annotations it takes to correct one label, or one grade.

    Examples
    --------
    >>> one_in(0.018), one_in(1e-9)
    ('about one label for every 56 annotations', 'hardly any label')
    >>> one_in(0.018, ordered=True)
    'labels by about one grade for every 56 annotations'
    """
    if gain is None or gain <= 1e-4:
        return "hardly any label"
    if ordered:
        return f"labels by about one grade for every {_bought(gain)}"
    return f"about one label for every {_bought(gain)}"


def correcting(n: int, gain: float | None, *, ordered: bool = False) -> str:
    """Say how many labels, or grades, ``n`` annotations correct, and at what price.

    Examples
    --------
    >>> correcting(100, 0.2), correcting(100, 0.012)
    ('about 20 labels, one for every 5 annotations', 'about one label')
    >>> correcting(100, 0.2, ordered=True), correcting(20, 0.01)
    ('labels by about 20 grades in all, one for every 5 annotations', 'hardly any label')
    """
    total = 0 if gain is None else round(n * gain)
    if gain is None or not total:
        return "hardly any label"
    many = f", one for every {_bought(gain)}" if total > 1 else ""
    if ordered:
        return f"labels by about {counted(total, 'grade') if many else 'one grade'} in all{many}"
    return f"about {counted(total, 'label') if many else 'one label'}{many}"


def limit_of(min_gain: float, *, ordered: bool = False) -> str:
    """Say below which gain we suggest stopping; "" if there is no limit.

    Examples
    --------
    >>> limit_of(0.02)
    'We suggest stopping when fewer than one label is corrected for every 50 annotations'
    >>> limit_of(0.02, ordered=True)
    'We suggest stopping when less than one grade is corrected for every 50 annotations'
    """
    if min_gain <= 0:
        return ""
    limit = "less than one grade" if ordered else "fewer than one label"
    return f"We suggest stopping when {limit} is corrected for every {_bought(min_gain)}"


def _bought(gain: float) -> str:
    """Write how many annotations are bought for a gain of one."""
    price = price_in_words(gain)
    return f"{price} {'annotation' if price == '1' else 'annotations'}"


def price_in_words(gain: float) -> str:
    """Write the number of annotations per corrected label, which is at least one."""
    price = max(1.0, 1.0 / gain)
    return f"{price:.1f}".removesuffix(".0") if price < 3 else f"{price:,.0f}"


def next_annotations(
    table: Any, n: int, *, pairs: Any = None, proba: Any = None, gold: Any = None, **options: Any
) -> Suggestion:
    """Suggest the next n pairs, in one call: which annotator to ask about which instance.

    Parameters
    ----------
    table, proba, gold : as in `AnnotationPlanner.fit`
    n, pairs : as in `AnnotationPlanner.suggest`
    **options
        Parameters of `AnnotationPlanner`.

    Returns
    -------
    Suggestion

    Raises
    ------
    AnnotationError
        As in `AnnotationPlanner.fit` and `AnnotationPlanner.suggest`.

    Examples
    --------
    >>> from manyhands import make_crowd, next_annotations
    >>> table = make_crowd([0, 1] * 30, noise_strength=0.1, random_state=0)
    >>> len(next_annotations(table, 4, criterion="accuracy", load=1, random_state=0))
    4
    """
    return AnnotationPlanner(**options).fit(table, proba=proba, gold=gold).suggest(n, pairs)
