"""Dawid and Skene's model for each option of a multi-label task, with a shared prior.

Each option is a question that an annotator answers by yes or no. Its model and its fit are those of
`manyhands.inference.dawid_skene`. If it helps, an annotator's behaviour over all options determines
the prior for each option (`manyhands.inference.shared_behaviour`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.stats import beta
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable, LabelSetTable
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.base import COUNT, NON_NEGATIVE, AggregatorTraits
from manyhands.inference.confusion_em import ConfusionRun
from manyhands.inference.confusion_prior import SKILL_STRENGTH, ConfusionPrior
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.dependence import DEPENDENCE, Dependence
from manyhands.inference.families import family_weights
from manyhands.inference.gold_samples import GOLD_SAMPLE, KnownLabels
from manyhands.inference.probability import as_array
from manyhands.inference.set_aggregator import BaseSetAggregator, ByOption, named, with_progress
from manyhands.inference.shared_behaviour import (
    SharedPrior,
    count_by_others,
    shared_rates,
    shared_strength,
)
from manyhands.typing import MISSING, BoolArray, FloatArray, IntArray
from manyhands.wording import counted

FEW_ANNOTATORS = 3.0
"""Mean number of annotators per instance up to which the prior is shared without comparing the
evidence."""

PRIOR_COUNTS = 3.0
"""Largest number of answers as which the prior counts in intervals of one option: if annotators
know some options better than others, its centre is wrong, however strong the prior is."""

RARE = 20
"""Number of ticks below which the estimates of an option are uncertain."""


class MultiLabelDawidSkene(BaseSetAggregator):
    """Infer which options apply, and how often each annotator overlooks them or ticks too much.

    There is a binary `DawidSkene` for each option. With few annotators per instance, one option
    shows little about an annotator, so the behaviour over all options determines the prior of each.

    Parameters
    ----------
    share : {"auto", True, False}, default="auto"
        Whether the prior of each option is estimated from all options. "auto": yes, if instances
        have up to three annotators on average, or if the evidence is greater than with separate
        priors (both without subtypes). False: a separate `DawidSkene` for each option.
    max_iter : int, default=100
    tol : float, default=3e-5
    prior_strength : float or "auto", default="auto"
        Pseudo-answers of the prior in each row of an annotator's confusion matrix. "auto" chooses
        by evidence: one of 1, 2, 5, 10, 20 and 50 for all options if the prior is shared, else a
        value for each option as in `DawidSkene`.
    class_prior : {"estimated", "uniform"}, default="estimated"
    n_subtypes : int or "auto", default="auto"
        As in `DawidSkene` if the prior is not shared; otherwise there are no subtypes.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes. "auto" estimates it for each option; if the prior is
        shared, the mean over the options is used for all.
    gold_sample : {"auto", "random", "chosen"}, default="auto"
    accelerate : bool, default=True
    abstentions : {"model", "ignore"}, default="model"
        These are as in `DawidSkene`.

    Attributes
    ----------
    posterior_ : array of shape (n_instances, n_options)
        Probability that each option applies.
    labels_ : boolean array of shape (n_instances, n_options)
        Whether each option is more probable than not.
    prevalence_ : array of shape (n_options,)
        Estimated share of the instances to which each option applies.
    sensitivity_, false_tick_rate_ : arrays of shape (n_annotators, n_options)
        Probability that an annotator ticks an option if it applies, and if it does not.
    annotator_sensitivity_, annotator_false_tick_rate_ : arrays of shape (n_annotators,)
        The same over all options, weighted by their numbers of answers.
    shared_ : bool
        Whether the prior is shared.
    why_ : str
        The reason for ``shared_``, and whether ``n_subtypes`` was given in vain.
    evidence_ : dict {"shared": float, "own": float}
        Log evidence (nats) of both models, summed over the options; empty if no prior could be
        shared.
    prior_strength_, dependence_ : arrays of shape (n_options,)
        Chosen strengths of the prior, and correlations of mistakes.
    n_iter_ : integer array of shape (n_options,)
    options_, instances_, annotators_, identified_, table_, is_known_
        As in `BaseSetAggregator`.

    See Also
    --------
    MultiLabelMajorityVote : ticks an option if more than half of the annotators do.
    manyhands.decide : with ``rule="f1"``, chooses ticks for the greatest expected F1 of each
    option.

    Notes
    -----
    The model of an option is that of Dawid and Skene [1]_ with two classes. The centre of the
    shared prior is described in `manyhands.inference.shared_behaviour`. docs/results/multilabel.md
    shows when sharing helps and when it harms: it improves the estimates of annotators most, and
    with two or three annotators per instance also the labels.

    Options are inferred one by one; the model does not use that "joy" and "anger" hardly occur
    together. On real sets, models that use it were no better, nor was one class for each
    combination. Hierarchies and rankings of labels are not modelled. An option that was not shown
    to an annotator counts as not ticked. An instance about which everybody abstained has no answer:
    its posterior is ``prevalence_``, and its abstentions are not counted.

    References
    ----------
    .. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
       the EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.

    Examples
    --------
    >>> import pandas as pd
    >>> from manyhands import LabelSetTable, MultiLabelDawidSkene
    >>> rows = [("joy;awe", "joy", "joy;awe"), ("fear", "fear", "fear;awe"), ("joy", "joy", "joy")]
    >>> frame = pd.DataFrame(
    ...     [(i, who, cell) for i in range(30) for who, cell in zip("abc", rows[i % 3])],
    ...     columns=["task", "worker", "labels"],
    ... )
    >>> model = MultiLabelDawidSkene().fit(LabelSetTable.from_frame(frame))
    >>> model.options_[model.labels_[1]].tolist(), model.shared_
    (['fear'], True)
    """

    traits: ClassVar[AggregatorTraits] = AggregatorTraits(takes_sets=True, counts_confusions=True)
    _knows_its_accuracy: ClassVar[bool] = True

    _parameter_constraints: dict[str, list[Any]] = {
        "share": [StrOptions({"auto"}), "boolean"],
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "prior_strength": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "class_prior": [StrOptions({"estimated", "uniform"})],
        "n_subtypes": [COUNT, StrOptions({"auto"})],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
        "accelerate": ["boolean"],
        "abstentions": [StrOptions({"model", "ignore"})],
    }

    def __init__(
        self,
        share: bool | str = "auto",
        *,
        max_iter: int = 100,
        tol: float = 3e-5,
        prior_strength: float | str = "auto",
        class_prior: str = "estimated",
        n_subtypes: int | str = "auto",
        dependence: float | str = "auto",
        gold_sample: str = "auto",
        accelerate: bool = True,
        abstentions: str = "model",
    ) -> None:
        self.share = share
        self.max_iter = max_iter
        self.tol = tol
        self.prior_strength = prior_strength
        self.class_prior = class_prior
        self.n_subtypes = n_subtypes
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.accelerate = accelerate
        self.abstentions = abstentions

    def _infer(self, table: LabelSetTable) -> None:
        _warn_of_ticks(table)
        whole, table = table, _without_lone_passes(table, self._gold)
        if table is not whole:
            n = _passed(whole) - _passed(table)
            warn_caller(
                f"nobody answered {counted(n, 'instance')} of {whole.n_instances:,}, as all "
                f"annotators who saw {'it' if n == 1 else 'them'} abstained or skipped: the "
                "posterior there is the prevalence of each option"
            )
        per_instance = _annotators_per_instance(table)
        told = ByOption(table.options)
        self.shared_, self.evidence_, self.why_ = False, {}, f"share={self.share}"
        kept: OptionFits | None = None
        if self.share == "auto" and per_instance <= 1.0:
            self.why_ = "no instance has two annotators, so nothing is known of their habits"
        elif self.share is not False:
            own = self._fits(table, told, n_subtypes=1)
            shared = self._shared(table, own)
            evidence = {"shared": shared.evidence.sum(), "own": own.evidence.sum()}
            self.evidence_ = {name: float(value) for name, value in evidence.items()}
            self.shared_ = self._shares(per_instance)
            kept = shared if self.shared_ else None
        if kept is None:
            told = ByOption(table.options)
            kept = self._fits(table, told)
        self._set_fitted(kept)
        told.warn()

    def _shares(self, per_instance: float) -> bool:
        """Decide whether the prior is shared, and set ``why_``."""
        dropped = "" if self.n_subtypes == "auto" else f"; n_subtypes={self.n_subtypes} is not used"
        if self.share is True:
            self.why_ += dropped
            return True
        gain = self.evidence_["shared"] - self.evidence_["own"]
        habits = ["separate habits", "similar habits"]
        worse, better = habits if gain > 0 else habits[::-1]
        by = counted(round(abs(gain)), "nat")
        evidence = f"{better} explain the answers better than {worse} (log evidence {by} higher)"
        self.why_ = evidence
        if per_instance <= FEW_ANNOTATORS:
            but = "" if gain > 0 else f", although {evidence}"
            self.why_ = f"instances have {per_instance:.1f} annotators on average{but}"
        shares = gain > 0 or per_instance <= FEW_ANNOTATORS
        self.why_ += dropped if shares else ""
        return shares

    def _fits(self, table: LabelSetTable, told: ByOption, **own: Any) -> OptionFits:
        """Fit each option separately."""
        fits = OptionFits.new(table)
        for m in with_progress(table.n_options, "each option by itself"):
            with told.of(m):
                fits.keep(m, self._option(**own)._fit(table._of_code(m), self._gold_of(m), None))
        return fits

    def _option(self, prior: SharedPrior | None = None, **own: Any) -> _Option:
        """Make the aggregator for an option."""
        given = {name: value for name, value in self.get_params().items() if name != "share"}
        model = _Option(**given | own)
        model._validate_params()
        model._given = prior
        return model

    def _shared(self, table: LabelSetTable, own: OptionFits) -> OptionFits:
        """Fit all options with the shared prior."""
        by_others = [
            count_by_others(table._of_code(m), self._gold_of(m)) for m in range(table.n_options)
        ]
        rates = shared_rates(own.vote_counts, np.stack(by_others, axis=1))
        strength = shared_strength(own.vote_counts, rates)
        if self.prior_strength != "auto":
            strength = float(self.prior_strength)
        rho: float = float(self.dependence) if self.dependence != "auto" else 0.0
        if self.dependence == "auto":
            # Never 0, which would switch the correction off.
            rho = max(float(own.dependence.mean()), np.finfo(float).tiny)
        fits = OptionFits.new(table)
        for m in with_progress(table.n_options, "options with what annotators share"):
            model = self._option(
                SharedPrior.of(rates[:, m], strength), n_subtypes=1, dependence=rho
            )
            with ByOption(table.options).of(m):  # The first fits have given the same warnings.
                fits.keep(m, model._fit(table._of_code(m), self._gold_of(m), None))
        return fits

    def _set_fitted(self, fits: OptionFits) -> None:
        self.posterior_, self.identified_ = fits.posterior, fits.identified
        self.prevalence_ = np.array([model.class_prior_[1] for model in fits.models])
        confusion = np.stack([model.confusion_ for model in fits.models], axis=1)
        self.sensitivity_, self.false_tick_rate_ = confusion[:, :, 1, 1], confusion[:, :, 0, 1]
        self.prior_strength_ = np.array([model.prior_strength_ for model in fits.models])
        self.dependence_ = np.array([model.dependence_ for model in fits.models])
        self.n_iter_ = np.array([model.n_iter_ for model in fits.models])
        self._models = fits.models
        certain = _sure_counts(fits.sums, fits.squares, confusion[..., 1])
        prior = np.minimum(fits.pseudo_counts.sum(axis=3), PRIOR_COUNTS)
        self._counts = (certain + prior)[..., None] * confusion
        # The rates over all options are shrunk to the crowd's by a fixed number of its answers.
        crowd = fits.counts.sum(axis=(0, 1)) + np.eye(2) + 0.1
        crowd /= crowd.sum(axis=1, keepdims=True)
        overall = fits.counts.sum(axis=1) + SKILL_STRENGTH * crowd
        rates = overall / overall.sum(axis=2, keepdims=True)
        self.annotator_false_tick_rate_, self.annotator_sensitivity_ = rates[:, :, 1].T
        sums, squares = fits.sums.sum(axis=1), fits.squares.sum(axis=1)
        certain = _sure_counts(sums, squares, rates[:, :, 1]) + SKILL_STRENGTH
        self._overall = certain[..., None] * rates

    def _posterior(self, table: LabelSetTable) -> FloatArray:
        table = _without_lone_passes(table, None)
        columns = [
            model.predict_proba(table._of_code(m))[:, 1] for m, model in enumerate(self._models)
        ]
        return np.stack(columns, axis=1)

    def intervals(self, level: float = 0.95) -> RateIntervals:
        """Return the intervals of the annotators' rates.

        They are quantiles of Beta distributions of the expected counts. Answers about doubtful
        instances count less, by the information that is missing about which options apply [1]_, and
        the prior of an option counts as at most three answers. The intervals do not include errors
        that all annotators share, for example if the whole crowd overlooks much; intervals over all
        options then cover less than ``level``. docs/results/multilabel.md shows their coverage in
        simulated crowds.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Nominal coverage.

        Returns
        -------
        RateIntervals

        Raises
        ------
        AnnotationError
            If ``level`` is out of range.

        References
        ----------
        .. [1] T. A. Louis. Finding the observed information matrix when using the EM algorithm.
           Journal of the Royal Statistical Society B 44(2), 1982.
        """
        check_is_fitted(self, "posterior_")
        if not 0 < level < 1:
            raise AnnotationError(f"level={level!r} must be between 0 and 1, such as 0.95")
        tails = np.array([(1 - level) / 2, (1 + level) / 2])

        def bounds(counts: FloatArray) -> FloatArray:
            return np.asarray(beta.ppf(tails, counts[..., 1, None], counts[..., 0, None]))

        return RateIntervals(
            bounds(self._counts[:, :, 1]),
            bounds(self._counts[:, :, 0]),
            bounds(self._overall[:, 1]),
            bounds(self._overall[:, 0]),
        )


class RateIntervals(NamedTuple):
    """Intervals of the rates of annotators; the last axis is [low, high].

    Attributes
    ----------
    sensitivity, false_tick_rate : arrays of shape (n_annotators, n_options, 2)
    annotator_sensitivity, annotator_false_tick_rate : arrays of shape (n_annotators, 2)
    """

    sensitivity: FloatArray
    false_tick_rate: FloatArray
    annotator_sensitivity: FloatArray
    annotator_false_tick_rate: FloatArray


class _Option(DawidSkene):
    """The aggregator of one option, with an optional given prior."""

    _judges_sample = False
    _given: SharedPrior | None = None
    _kept: ConfusionRun

    def _prior(self) -> ConfusionPrior:
        return self._given or super()._prior()

    def _read_out(
        self,
        votes: Any,
        start: Any,
        run: ConfusionRun,
        found: Dependence,
        known: KnownLabels | None,
    ) -> None:
        self._kept = run
        super()._read_out(votes, start, run, found, known)

    def by_class(self, counts: Any) -> FloatArray:
        """Return counts [annotator, true, given], (R or 1, 2, 2), summed over subtypes."""
        array = as_array(counts)
        summed = array.reshape(len(array), 2, -1, array.shape[2]).sum(axis=2)
        return np.asarray(summed[:, :, :2])

    def bare(self) -> DawidSkene:
        """Return an aggregator that can predict but holds no annotations."""
        given = self.get_params()
        model = DawidSkene(**given)
        own = {name: value for name, value in vars(self).items() if name not in given}
        for name in ("_kept", "_given", "labels_", "identified_", "_gold", "_unaided"):
            own.pop(name, None)
        empty = self.table_[:0]
        own |= {"table_": empty, "instances_": empty.instances, "_gold": None}
        own["posterior_"] = self.posterior_[:0].copy()
        model.__dict__.update(own)
        return model


@dataclass
class OptionFits:
    """Results of the fits of all options.

    Attributes
    ----------
    posterior : array of shape (n, M)
    identified : boolean array of shape (n, M)
    vote_counts, counts, pseudo_counts : arrays of shape (R, M, 2, 2)
        Answers counted against the vote shares, expected answers, and pseudo-answers of the prior.
    sums, squares : arrays of shape (R, M, 2, 2)
        Answers counted against the posterior, and against its squares.
    evidence, dependence : arrays of shape (M,)
    models : list of DawidSkene
    """

    posterior: FloatArray
    identified: BoolArray
    vote_counts: FloatArray
    counts: FloatArray
    pseudo_counts: FloatArray
    sums: FloatArray
    squares: FloatArray
    evidence: FloatArray
    dependence: FloatArray
    models: list[DawidSkene]

    @classmethod
    def new(cls, table: LabelSetTable) -> OptionFits:
        """Make arrays for the options of a table."""
        shape = (table.n_instances, table.n_options)
        tables = (table.n_annotators, table.n_options, 2, 2)
        return cls(
            posterior=np.empty(shape),
            identified=np.ones(shape, dtype=bool),
            vote_counts=np.zeros(tables),
            counts=np.zeros(tables),
            pseudo_counts=np.zeros(tables),
            sums=np.zeros(tables),
            squares=np.zeros(tables),
            evidence=np.zeros(table.n_options),
            dependence=np.zeros(table.n_options),
            models=[],
        )

    def keep(self, code: int, model: Any) -> None:
        """Store the results of the fit of an option, an `_Option`."""
        run = model._kept
        self.posterior[:, code] = model.posterior_[:, 1]
        self.identified[:, code] = model.identified_
        self.vote_counts[:, code] = model.by_class(run.vote_counts.confusion)
        self.counts[:, code] = model.by_class(run.counts.confusion)
        self.pseudo_counts[:, code] = model.by_class(run.pseudo_counts)
        answers = model.table_
        weight = np.asarray(answers.weight * family_weights(answers), dtype=np.float64)
        place = answers.annotator.astype(np.int64) * 2 + answers.label
        for state, q in enumerate(model.posterior_[answers.instance].T):
            for found, value in ((self.sums, q), (self.squares, q**2)):
                given = np.bincount(place, weight * value, 2 * answers.n_annotators)
                found[:, code, state] = given.reshape(-1, 2)
        self.evidence[code] = run.evidence
        self.dependence[code] = model.dependence_
        self.models.append(model.bare())


def _sure_counts(sums: FloatArray, squares: FloatArray, rates: FloatArray) -> FloatArray:
    """Return the effective numbers of answers, allowing for doubtful instances (Louis 1982).

    If the state of an instance is uncertain, its answer is less informative about the rate of ticks
    in a state. By Louis' identity, the information is that of complete data minus the missing part.

    Parameters
    ----------
    sums, squares : arrays of shape (..., 2, 2)
        Answers [state, given] counted against the posterior, and against its squares.
    rates : array of shape (..., 2)
        Rate of ticks in each state.

    Returns
    -------
    array of shape (..., 2)
    """
    distance = np.stack([rates**2, (1 - rates) ** 2], axis=-1)
    complete, left = (sums * distance).sum(axis=-1), (squares * distance).sum(axis=-1)
    share = np.divide(left, complete, out=np.ones_like(left), where=complete > 0)
    return np.asarray(sums.sum(axis=-1) * share)


def _annotators_per_instance(table: LabelSetTable) -> float:
    """Return the mean number of answers per instance, over instances with answers."""
    answers = table.answers
    kept = answers if answers.weights is None else answers.take(answers.weights > 0)
    n = kept.annotations_per_instance()
    return float(n.sum() / max((n > 0).sum(), 1))


def _without_lone_passes(table: LabelSetTable, gold: IntArray | None) -> LabelSetTable:
    """Leave out passes about instances that have neither an answer nor a known label.

    What an abstention says of an option is learnt where something else tells whether it applies. Of
    such instances alone, it would be learnt from their own posterior, which then drifts to 0 or 1.
    """
    answers = table.answers
    if answers.passes is None:
        return table
    told = answers.annotations_per_instance() > 0
    if gold is not None:
        told |= (gold != MISSING).any(axis=1)
    kept = told[answers.passes[:, 0]]
    if kept.all():
        return table
    columns = answers._columns._replace(passes=answers.passes[kept])
    return replace(table, answers=AnnotationTable(*columns))


def _passed(table: LabelSetTable) -> int:
    """Return the number of instances of which somebody abstained."""
    return 0 if table.passes is None else len(np.unique(table.passes[:, 0]))


def _warn_of_ticks(table: LabelSetTable) -> None:
    """Warn of options with too few ticks, or too many, for an estimate."""
    n = table.ticks_per_option()
    names = table.options
    nobody, everybody = names[n == 0].tolist(), names[n == table.n_annotations].tolist()
    for who, found in (("nobody", nobody), ("everybody", everybody)):
        if found:
            it = "it" if len(found) == 1 else "them"
            warn_caller(f"{who} ticked {named(found)}, so nothing is known of {it}; leave {it} out")
    rare = names[(n > 0) & (n < RARE)].tolist()
    if rare:
        own = "its" if len(rare) == 1 else "their"
        warn_caller(
            f"fewer than {RARE} answers tick {named(rare)}: {own} estimates rest on little, and "
            f"{own} posterior on the prior"
        )
