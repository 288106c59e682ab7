"""Base class of truth inference: fitting, prediction, and adding annotations to a fit."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.target import check_annotations, is_sharded, refuse_swapped
from manyhands.decision.labels import best, best_of, entries, generator, is_scale_of_grades
from manyhands.exceptions import (
    AnnotationError,
    NotIdentifiableWarning,
    all_or_nothing,
    warn_caller,
)
from manyhands.inference.checkpoints import FolderCheckpoint, digest_of
from manyhands.inference.confusions import estimate_confusions
from manyhands.inference.gold_samples import KnownLabels
from manyhands.inference.identifiability import (
    IsolatedFamilies,
    comparisons,
    decided,
    isolated_families,
    read_out_families,
    read_out_isolated,
    set_apart,
    trust_isolated_labels,
    unidentified,
    warn_of_isolated_annotators,
    warn_of_isolated_families,
    warn_of_unidentified,
)
from manyhands.inference.inputs import (
    checked_posterior,
    drawn_at_random,
    drawn_of_both,
    gold_codes,
    gold_of_both,
    holds_nothing,
    on_scale_of,
    only_new,
    recode_annotators,
    recode_classes,
    warn_of_numbered_rows,
)
from manyhands.inference.probability import normalise_rows
from manyhands.inference.shared_mistakes import warn_of_shared_mistakes
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    as_dense,
    check_size,
    clamp_to_gold,
    expected_accuracy,
    starting_shares,
    vote_shares,
    votes_of,
)
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

TIES = StrOptions({"first", "random", "distribute"})
NON_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
COUNT = Interval(Integral, 1, None, closed="left")

FOLDS, MOST_REFITTED = 5, 1_000_000
"""Number of cross-validation folds over gold that was drawn at random, and the number of
annotations beyond which a table is not fitted again for them."""


@dataclass(frozen=True, kw_only=True)
class AggregatorTraits:
    """Properties of a method on which fits, messages and other modules depend.

    Attributes
    ----------
    compares_annotators : bool
        Whether the method learns about annotators from the annotations of others, also if it
        estimates one value for the whole crowd. Then votes must have annotators, the only labels of
        instances are taken as known where nearly nobody can be compared, and the fit warns of that,
        of shared mistakes, and of labels that nothing identifies. False: the method counts votes.
    uses_start : bool
        Whether the method iterates from a posterior, so that a fit prepares one. False: ``start``
        of `fit` is refused.
    counts_confusions : bool
        Whether the method keeps a confusion matrix for each annotator while it fits.
    takes_stores : bool
        Whether the method counts shard by shard, so that it accepts an `AnnotationStore` and saves
        checkpoints.
    takes_many_classes : bool
        Whether the method's memory grows with the annotations only, not with the classes.
    needs_gold : bool
        Whether the method is only useful with gold.
    warns_of_shared_mistakes : bool
        Whether shared mistakes of undeclared families would mislead the method.
    learns_instances : bool
        Whether the method has parameters of each instance, which `predict_proba` lacks for new
        ones.
    has_several_maxima : bool
        Whether the result depends on the start, even after many small steps.
    takes_sets : bool
        Whether answers are sets of labels, with a posterior for each option.
    """

    compares_annotators: bool = True
    uses_start: bool = True
    counts_confusions: bool = False
    takes_stores: bool = False
    takes_many_classes: bool = False
    needs_gold: bool = False
    warns_of_shared_mistakes: bool = True
    learns_instances: bool = False
    has_several_maxima: bool = False
    takes_sets: bool = False


def with_trait(name: str) -> list[str]:
    """Return the names of the exported methods that have a trait."""
    from manyhands import inference  # Imported late, because the package imports this module.

    return [each for each in dir(inference) if getattr(getattr(inference, each).traits, name)]


@dataclass(frozen=True)
class Execution:
    """Where a fit runs and saves its state: ``checkpoint`` and ``engine`` of `fit`."""

    checkpoint: Any = None
    engine: Any = None

    def of(self, model: Any, votes: Any, table: Any, start: FloatArray | None) -> Any:
        """Return the votes with the checkpoint for parameters and the engine that counts them."""
        if self.engine is not None:
            votes = votes.counted_by(self.engine)
        if self.checkpoint is None:
            return votes
        about = {
            "method": type(model).__name__,
            "parameters": model.get_params(),
            "annotations": _digest(table),
            "gold": None if votes.gold is None else digest_of(votes.gold),
            "history": None if votes.history is None else digest_of(votes.history),
            "start": None if start is None else digest_of(start),
        }
        saved = FolderCheckpoint(self.checkpoint, about, votes.tables)
        return replace(votes, checkpoint=saved)


PLAIN = Execution()


def _digest(table: Any) -> str:
    if is_sharded(table):
        return table.digest
    columns = (table.instance, table.annotator, table.label, table.weights, table.passes)
    words = (table.instances, table.annotators, table.classes, table.groups)
    texts = (None if array is None else array.astype(str) for array in words)
    # Nominal tables keep the digest that they had before scales existed.
    scale = () if table.scale == "nominal" else (np.array(table.scale),)
    return digest_of(*columns, *texts, np.array(table.group_rho), *scale)


class BaseAggregator(BaseEstimator):
    """Base class of truth inference: ``fit(table)`` leaves a posterior over the true classes.

    A subclass implements `_infer`, which sets ``posterior_`` and the model's other attributes, and
    `_posterior`, which applies the fitted model to other instances.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class values.
    instances_, annotators_ : arrays
        Ids of the rows of ``posterior_`` and ``confusion_``.
    posterior_ : array of shape (n_instances, n_classes)
        Class probabilities of each instance; rows sum to 1.
    labels_ : array of shape (n_instances,)
        Most probable class value; for three or more ordered classes (`AnnotationTable.ordered`),
        the median of the posterior. ``ties`` decides between equally good classes. For other rules
        see `manyhands.decide`.
    class_prior_ : array of shape (n_classes,)
        Estimated or given share of each class.
    gold_sample_ : {"random", "chosen"} or None
        How the instances with gold were chosen, as given or by a rank test; None without gold, and
        in methods without the parameter ``gold_sample``.
    gold_p_value_ : float or None
        P-value of that test.
    gold_note_ : str or None
        What can be concluded from gold that was chosen, and what cannot; None for other gold.
    sample_note_ : str or None
        A warning that random gold contradicts the posterior of the other instances, which is
        overconfident; only instances with gold are then ``identified_``. Else None.
    identified_ : boolean array of shape (n_instances,)
        Whether the annotations or gold identify the label (see
        `manyhands.inference.identifiability`). Elsewhere ``posterior_`` is no evidence.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Indexed [annotator, true, given]; rows sum to 1. If the model has none, each annotator's
        annotations are counted against ``posterior_`` (on first access).
    annotator_accuracy_ : array of shape (n_annotators,)
        Expected share of correct annotations under the posterior; for an annotator without
        annotations, the share over all annotators.
    n_iter_ : int
    log_likelihood_ : array of shape (n_iter_,)
        Objective after each iteration (empty if the method does not iterate). Depending on the
        method it is a likelihood, a likelihood times a prior density, or a bound on the evidence,
        so it does not compare methods; see `compare_aggregators`.
    table_ : AnnotationTable
        All annotations seen so far; `partial_fit` adds to them.
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "ties": [TIES],
        "random_state": ["random_state"],
    }
    ties: str
    random_state: Any

    abstentions: str = "ignore"
    """Whether abstentions are modelled; in methods without the parameter they are not."""

    _history: Any = None
    """Counts of earlier annotations (`manyhands.inference.history`), for methods that use them."""

    dependence: float | str = 0.0
    """Correlation of annotators' mistakes that the posterior allows for (see
    `manyhands.inference.dependence`); 0 in methods without the parameter."""

    gold_sample: str = "auto"
    """How the instances with gold were chosen (see `manyhands.inference.gold_samples`)."""

    _sampled_posterior: FloatArray | None = None
    _judges_sample = True
    gold_sample_: str | None = None
    gold_p_value_: float | None = None
    gold_note_: str | None = None
    sample_note_: str | None = None
    _random_gold: BoolArray | None = None

    traits: ClassVar[AggregatorTraits] = AggregatorTraits()
    _saved_whole: ClassVar[bool] = True

    _knows_its_accuracy = False
    """Whether the mean probability of the labels is close to their accuracy on real tables, so that
    it may be reported as an estimate of it (`manyhands.metrics.levels`)."""

    @property
    def _needs_annotators(self) -> str | None:
        """For what the method needs to know the annotators; None if anonymous votes are enough."""
        return type(self).__name__ if self.traits.compares_annotators else None

    _labels_families = True
    """Whether the fit labels instances that only one family annotated."""

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
    ) -> Self:
        """Infer the true classes. A fit that fails leaves the aggregator as it was.

        Parameters
        ----------
        table : AnnotationTable, AnnotationStore, or matrix (n, R) with -1/NaN missing
            The annotations. Of a store, one shard at a time is in memory, and ``posterior_`` and
            ``labels_`` are memory-mapped.
        y : ignored
        gold : dict {instance id: class}, or array-like of shape (n_instances,), optional
            Known classes (a pandas Series works as a dict). Their posterior is 1, and they inform
            the estimates about annotators. In an array, None and NaN mean unknown, as does -1
            unless it is a class.
        random_gold : sequence of instance ids, or boolean array of shape (n_instances,), optional
            Instances with gold that were drawn at random, as `review_queue` can draw them. If
            ``dependence`` is "auto", the confidence of the posterior is calibrated on these
            instances alone, and other gold is taken to be chosen. Default: see ``gold_sample``.
        start : array-like of shape (n_instances, n_classes), optional
            Posterior to start from (such as that of an earlier fit) instead of the vote shares.
            Methods that do not iterate over a posterior refuse it.
        groups : dict {annotator id: family}, or sequence of shape (n_annotators,), optional
            Families of annotators, instead of those of the table; see
            `AnnotationTable.with_groups`. ``{}`` declares that there are none.
        checkpoint : str or Path, optional
            Folder for the parameters of every iteration. If a fit is killed, a call with the same
            arguments resumes there and gives the same result. The folder is emptied when the fit is
            complete.
        engine : dask.distributed.Client or SparkSession, optional
            Cluster whose workers count the shards of a store; default: this process.

        Returns
        -------
        BaseAggregator
            The aggregator itself.

        Raises
        ------
        AnnotationError
            If there are no annotations or only one class, ``gold`` names an unknown instance or
            class, ``start`` has the wrong shape, or ``groups`` names an unknown annotator; if the
            method does not support ``start``, a store, ``checkpoint`` or so many classes; or if
            ``engine`` is given without a store, or ``groups`` with one.

        Warns
        -----
        NotIdentifiableWarning
            If the annotations do not identify the labels of some instances, or random gold
            contradicts the posterior.
        SharedMistakesWarning
            If annotators seem to share mistakes, and no families are declared.
        """
        return self._fit_given(
            table, y, gold, random_gold, start=start, groups=groups,
            checkpoint=checkpoint, engine=engine,
        )  # fmt: skip

    def _fit_given(
        self,
        table: Any,
        y: Any,
        gold: Any,
        random_gold: Any,
        *,
        start: Any,
        groups: Any,
        checkpoint: Any,
        engine: Any,
        history: Any = None,
    ) -> Self:
        """Read and check the arguments of `fit`, and fit."""
        self._validate_params()
        refuse_swapped(table, y, takes="annotations")
        if start is not None and not self.traits.uses_start:
            raise AnnotationError(
                f"start= has no effect, because {type(self).__name__} does not iterate from a "
                "posterior; leave start out"
            )
        if not is_sharded(table):
            table = as_table(table, argument="table", what=self._needs_annotators)
            if engine is not None:
                raise AnnotationError(
                    "engine= counts the shards of a store; write the table as one "
                    "(AnnotationStore.create), or leave engine out"
                )
            if groups is not None:
                table = table.with_groups(groups, table.group_rho)
        elif groups:
            raise AnnotationError(
                "groups= declares families of annotators, which a store does not carry; fit a "
                "table, or leave groups out"
            )
        table = check_annotations(table, argument="table")
        codes = None if gold is None else gold_codes(gold, table)
        drawn = None if random_gold is None else drawn_at_random(random_gold, table)
        if start is not None:
            start = checked_posterior(start, table.n_instances, table.n_classes, "start")
        earlier = None if history is None else self._earlier(history, table)
        execution = Execution(checkpoint, engine)
        return self._fit(table, codes, start, execution, random_gold=drawn, history=earlier)

    def _earlier(self, history: Any, table: Any) -> Any:
        """Read the history of annotators; overridden by methods that use one (`TakesHistory`)."""
        raise NotImplementedError

    def partial_fit(
        self,
        table: Any,
        y: Any = None,
        *,
        gold: Any = None,
        random_gold: Any = None,
        duplicates: Duplicates = "error",
    ) -> Self:
        """Add annotations of old or new instances by old or new annotators, and fit again.

        All annotations seen so far are used, and the iterations start from the current posterior.
        The result is that of `fit` on all annotations, in fewer iterations. It may differ within
        ``tol``, or by reaching another maximum if the likelihood has several.

        Parameters
        ----------
        table : AnnotationTable or matrix
            New annotations over the same classes. The rows and columns of a matrix are the
            instances and annotators 0, 1, ... Nominal tables get the scale of the fit. The table
            declares the families of new annotators; known annotators keep those of the fit.
        y : ignored
        gold : as in `fit`, for the instances of ``table``
            Earlier gold stays known.
        random_gold : as in `fit`, for the instances of ``table``
        duplicates : {"error", "last", "keep"}
            How to treat an (instance, annotator) pair that was already annotated. "last" replaces
            its label, so a table given twice counts once, and "keep" counts both.

        Returns
        -------
        BaseAggregator
            The aggregator itself.

        Raises
        ------
        AnnotationError
            If the classes differ, the table declares another scale or order of classes, a known
            annotator has another family, an (instance, annotator) pair was already annotated and
            ``duplicates="error"`` (as when a table is given twice), or ``table`` is a store.

        Warns
        -----
        UserWarning
            If nothing is new, if rows without ids are taken as the instances of the fit, or if a
            known annotator without a family now has one.
        """
        refuse_swapped(table, y, takes="annotations")
        if not hasattr(self, "table_"):
            return self.fit(table, gold=gold, random_gold=random_gold)
        if is_sharded(self.table_) or is_sharded(table):
            warm = ", from start=posterior_ if the instances are the same"
            raise AnnotationError(
                "partial_fit takes tables, and a store is never added to; ingest all files as one "
                f"store and fit that{warm if self.traits.uses_start else ''}"
            )
        self._validate_params()
        given = as_table(table, argument="table", what=self._needs_annotators)
        if gold is None and holds_nothing(given):
            return self
        given = on_scale_of(self.table_, given, argument="table")
        new = only_new(given, self.table_, duplicates)
        if gold is None and holds_nothing(new, given):
            return self
        merged = self.table_.with_added(new, duplicates=duplicates)
        if duplicates == "error":  # Otherwise the user expects the same instances again.
            warn_of_numbered_rows(self.table_, new)
        known = gold_of_both(self._gold, gold, new, merged)
        drawn = drawn_of_both(self._random_gold, random_gold, new, merged)
        start = None
        if self.traits.uses_start:
            start = vote_shares(self._votes(merged).answers)
            start[: len(self.posterior_)] = self.posterior_
        return self._fit(merged, known, start, random_gold=drawn, history=self._history)

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
        with all_or_nothing(self):
            self._random_gold, self._history = random_gold, history
            self._refit(table, gold, start, execution)
        return self

    def _refit(
        self, table: Any, gold: IntArray | None, start: FloatArray | None, execution: Execution
    ) -> None:
        if not self.traits.takes_stores and (is_sharded(table) or execution.checkpoint is not None):
            *others, last = with_trait("takes_stores")
            raise AnnotationError(
                f"{type(self).__name__} needs all annotations in memory and saves no checkpoints; "
                f"{', '.join(others)} and {last} take a store and checkpoint="
            )
        if not (self.traits.takes_many_classes or is_sharded(table)):
            self._refuse_many_classes(table)
        self.__dict__.pop("confusion_", None)
        self.gold_sample_ = self.gold_p_value_ = self.gold_note_ = None
        self.table_, self._gold = table, gold
        self.classes_ = table.classes
        self.instances_ = table.instances
        self.annotators_ = table.annotators
        self.n_annotators_ = table.n_annotators
        rng = self._generator()
        votes = execution.of(self, self._votes(table, gold), table, start)
        self._n_responses = votes.n_responses
        everything, isolated = votes, self._isolated_families(votes)
        self._labels_families = isolated.enough
        votes = set_apart(votes, isolated)
        given, found = votes, comparisons(votes) if self.traits.compares_annotators else None
        if found is not None and not isolated.are_all and (found.are_none or found.are_few):
            warn_of_isolated_annotators(found)
            votes = trust_isolated_labels(votes)
        if found is not None and self.traits.warns_of_shared_mistakes:
            warn_of_shared_mistakes(table, n_gold=0 if isolated.are_all else found.known)
        warn_of_isolated_families(isolated)
        first: Any = start
        if start is None and self.traits.uses_start:
            first = starting_shares(votes)
        if start is not None and votes.gold is not None:
            clamp_to_gold(votes, start)
        self.log_likelihood_: FloatArray = np.zeros(0)
        self.n_iter_ = 0
        self._infer(votes, first, rng)
        if found is not None and not isolated.are_all and found.are_few and not found.are_none:
            read_out_isolated(given, self.posterior_, self._posterior)
        if isolated.n:
            model = self._posterior if isolated.enough else None
            read_out_families(everything, isolated.alone, self.posterior_, model)
        reason = None if isolated.are_all else self._unidentified(given)
        if self.traits.compares_annotators:
            warn_of_unidentified(reason)
        self.identified_ = decided(reason, isolated, self.is_known_)
        self._judge_sample(everything)
        self.sample_note_ = self._contradicted()
        if self.sample_note_ is not None:
            self.identified_ = self.is_known_.copy()
            warn_caller(self.sample_note_, NotIdentifiableWarning)
        self.labels_ = votes.labels(self.posterior_, self.classes_, self.ties, rng)
        self.annotator_accuracy_ = expected_accuracy(votes.answers, self.posterior_)
        if not table.annotators_known:
            self.annotator_accuracy_ = np.full(table.n_annotators, np.nan)
        if votes.checkpoint is not None:
            votes.checkpoint.finish()

    def _judge_sample(self, votes: Any) -> None:
        """Store the posterior of instances with random gold as it would be without their gold.

        Compared with the gold, it shows how many unchecked labels are right. Gold also improves the
        labels of other instances, so the posterior is cross-validated: each fold of the gold is
        left out of a fit. For large tables, this fit is used without the instance's own part.
        """
        rows = self._sampled_rows()
        self._sampled_posterior = None
        if not len(rows) or not self._judges_sample:
            return
        if isinstance(self.table_, AnnotationTable) and self.table_.n_annotations <= MOST_REFITTED:
            self._sampled_posterior = self._out_of_fold(rows)
        else:
            self._sampled_posterior = self._without_gold(votes.select(rows))

    def _contradicted(self) -> str | None:
        """Return a note if random gold contradicts the posterior of other instances, else None."""
        from manyhands.metrics.sample_levels import contradiction  # Its package needs this one.

        given = self.table_.annotations_per_instance() > 0
        rows, found = self.sampled_rows_, self.sampled_posterior_
        is_given = given[rows]
        rows, found = rows[is_given], found[is_given]
        if not len(rows):
            return None
        codes, labels = best_of(found, self.table_), best_of(self.posterior_, self.table_)
        right = codes == cast(IntArray, self._gold)[rows]
        sure = entries(found, np.arange(len(rows)), codes)
        top = entries(self.posterior_, np.arange(len(labels)), labels)
        return contradiction(right, rows, sure, top, given & ~self.is_known_)

    def _out_of_fold(self, rows: IntArray) -> FloatArray:
        """Return the posterior of instances from fits without their gold, shape (len(rows), C)."""
        out = np.zeros((len(rows), len(self.classes_)))
        order = np.random.RandomState(0).permutation(len(rows))
        for fold in np.array_split(order, min(FOLDS, len(rows))):
            gold = cast(IntArray, self._gold).copy()
            gold[rows[fold]] = MISSING
            fresh = clone(self)
            fresh._judges_sample = False
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # The main fit has given the same warnings.
                fresh._fit(
                    self.table_, gold, None, random_gold=self._random_gold, history=self._history
                )
            out[fold] = fresh.posterior_[rows[fold]]
        return out

    def _without_gold(self, votes: Votes) -> FloatArray | None:
        """Return the posterior of instances with gold as if it were unknown, (n, C), or None."""
        return self._posterior(replace(votes, gold=None))

    def _sampled_rows(self) -> IntArray:
        """Return the positions of instances with gold that was drawn at random."""
        known = self._known_labels()
        return np.zeros(0, dtype=np.int64) if known is None else known.sampled_rows

    @property
    def sampled_rows_(self) -> IntArray:
        """Instances with gold that is known to be drawn at random, shape (m,)."""
        check_is_fitted(self, "posterior_")
        known = self._sampled_posterior is not None
        return self._sampled_rows() if known else np.zeros(0, dtype=np.int64)

    @property
    def sampled_posterior_(self) -> FloatArray:
        """Posterior of these instances as if their gold were unknown, shape (m, n_classes)."""
        check_is_fitted(self, "posterior_")
        found = self._sampled_posterior
        return np.zeros((0, len(self.classes_))) if found is None else found

    def _isolated_families(self, votes: Any) -> IsolatedFamilies:
        """Return the instances that only one family annotated; they are left out of the fit."""
        return isolated_families(votes, self.table_.groups)

    def _unidentified(self, votes: Any) -> str | None:
        """Return why the annotations identify no label at all; None if they identify some."""
        is_known = getattr(self.table_, "annotators_known", True)
        return unidentified(votes, self.annotators_ if is_known else None, self.posterior_)

    def _refuse_many_classes(self, table: Any) -> None:
        """Raise an error if there are so many classes that the method's arrays exceed memory."""
        name, votes = type(self).__name__, "Choose MajorityVote, which counts votes alone"
        if self.traits.counts_confusions:
            votes += ", or OneCoinDawidSkene, which keeps one accuracy per annotator, if it fits"
        check_size(table, name, confusions=self.traits.counts_confusions, alternative=votes)

    def _known_labels(self) -> KnownLabels | None:
        """Return the gold, and how it was chosen."""
        if self._gold is None:
            return None
        return KnownLabels(self._gold, self.gold_sample, self._random_gold)

    def _votes(self, table: Any, gold: IntArray | None = None) -> Any:
        votes: Any = votes_of(table, gold=gold, abstentions=self.abstentions == "model")
        if self._history is None:
            return votes
        return replace(votes, history=self._history.of(table.annotators))

    @abstractmethod
    def _infer(self, votes: Any, start: Any, rng: np.random.RandomState) -> None:
        """Set ``posterior_``, ``class_prior_`` and the model's other attributes.

        Parameters
        ----------
        votes : Votes, or StoredVotes if the method takes stores
        start : array of shape (n_instances, n_classes)
            Posterior to start from; may be overwritten. For a store, it may be a function from a
            shard to its rows.
        rng : RandomState
        """

    @abstractmethod
    def _posterior(self, votes: Any) -> FloatArray:
        """Return the posterior of other instances, by the fitted parameters, shape (n, C)."""

    def predict_proba(self, table: Any) -> FloatArray:
        """Return the posterior of new or old instances, by the fitted annotators' parameters.

        Parameters
        ----------
        table : AnnotationTable, AnnotationStore (each shard by itself) or matrix
            Annotators are matched by id; the columns of a matrix are those of ``annotators_``.

        Returns
        -------
        array of shape (n_instances, n_classes)
            An instance without annotations gets ``class_prior_``. Abstentions count if the method
            models them and `fit` saw some.

        Raises
        ------
        AnnotationError
            If ``table`` holds an annotator or a class that `fit` did not see.
        """
        return self._predict_proba(table, self._posterior)

    def _predict_proba(self, table: Any, posterior_of: Callable[[Votes], FloatArray]) -> FloatArray:
        """Read instances as `fit` does, and return the posterior of each."""
        check_is_fitted(self, "posterior_")
        if is_sharded(table):
            parts = (
                self._predict_proba(table.table(k), posterior_of) for k in range(table.n_shards)
            )
            return votes_of(table).gather(len(self.classes_), parts)
        given = as_table(table, argument="table", what=self._needs_annotators)
        if given is not table:
            if given.n_annotators != self.n_annotators_:
                raise AnnotationError(
                    f"table is a matrix of {given.n_annotators} columns; its columns must be the "
                    f"{self.n_annotators_} annotators of fit, in the same order. Fill the columns "
                    "of absent annotators with -1, or pass an AnnotationTable, which names its "
                    "annotators"
                )
            given = replace(given, annotators=self.annotators_)
        given = recode_classes(given, self.classes_, argument="table")
        if given.annotators_known and self.table_.annotators_known:
            given = recode_annotators(given, self.annotators_)
        given = replace(given, groups=self.table_.groups, group_rho=self.table_.group_rho)
        votes = self._votes(given)
        if votes.n_responses > self._n_responses:
            votes = votes.answers  # There were no abstentions in fit, so they are not modelled.
        votes = replace(votes, n_responses=self._n_responses)
        posterior = posterior_of(votes)
        if not self._labels_families:
            read_out_families(votes, self._isolated_families(votes).alone, posterior, None)
        return posterior

    def predict(self, table: Any) -> AnyArray:
        """Return the label of each instance, shape (n_instances,), by the rule of ``labels_``.

        Parameters and errors are those of `predict_proba`.
        """
        return self._labels(self.predict_proba(table))

    def _labels(self, posterior: Any) -> AnyArray:
        ordered = is_scale_of_grades(self.table_)
        return self.classes_[best(posterior, self.ties, self._generator(), ordered=ordered)]

    def _generator(self) -> np.random.RandomState:
        return generator(self.random_state)

    def fit_predict(self, table: Any, y: Any = None, **options: Any) -> AnyArray:
        """Fit (options as in `fit`) and return ``labels_``, shape (n_instances,)."""
        return self.fit(table, **options).labels_

    def fit_predict_proba(self, table: Any, y: Any = None, **options: Any) -> FloatArray:
        """Fit (options as in `fit`) and return ``posterior_``, shape (n_instances, n_classes)."""
        return self.fit(table, **options).posterior_

    @property
    def is_known_(self) -> BoolArray:
        """Whether the class of each instance was given as gold, shape (n_instances,)."""
        check_is_fitted(self, "posterior_")
        return np.full(len(self.instances_), False) if self._gold is None else self._gold >= 0

    @cached_property
    def confusion_(self) -> FloatArray:
        """Confusion matrices counted against the posterior, for models that have none."""
        check_is_fitted(self, "posterior_")
        require_annotators(self.table_, "a confusion matrix of each annotator")
        if isinstance(self.table_, AnnotationTable):
            remains = "labels_ and annotator_accuracy_ remain"
            check_size(self.table_, "confusion_", confusions=True, alternative=remains)
        return estimate_confusions(self._fitted_votes(), as_dense(self.posterior_))

    def _fitted_votes(self) -> Any:
        """Return the answers that were used in the fit, without abstentions."""
        votes: Any = votes_of(self.table_, self._gold)
        return set_apart(votes, self._isolated_families(votes))

    posterior_: FloatArray
    identified_: BoolArray
    dependence_: float
    class_prior_: FloatArray


def known_prior(votes: AllVotes, posterior: Any) -> FloatArray:
    """Return the mean posterior of the instances with votes or gold, shape (C,)."""
    return normalise_rows(votes.total(_summed_posterior, rows=(posterior,)))


def _summed_posterior(votes: Votes, posterior: FloatArray) -> FloatArray:
    # A matrix product avoids the copy of the posterior that indexing would make.
    return np.asarray(votes.voted.astype(posterior.dtype) @ posterior)
