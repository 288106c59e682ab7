"""Training of `AggregatedClassifier` on sets of labels: one classifier per option.

The aggregator infers the posterior of all options at once, so that it may estimate annotators over
several options. Then each option is a separate problem with the classes "no" and "yes", to which a
copy of the classifier is fitted. Its targets are the option's column of the posterior.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, clone

from manyhands.annotations import AnnotationTable, LabelSetTable
from manyhands.annotations.digests import InstanceDigests
from manyhands.annotations.encoding import encode
from manyhands.annotations.label_sets import NO_YES
from manyhands.annotations.target import check_annotations, matched
from manyhands.decision.label_sets import SetDecision, decide_by, decide_sets
from manyhands.decision.rules import check_rule
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.class_collapse import without_collapse_warnings
from manyhands.fitting.fitted import SET_WITH_FEATURES, Fitted, become, twin
from manyhands.fitting.reading import check_rows, drop_weightless, take_rows
from manyhands.inference import MultiLabelMajorityVote
from manyhands.inference.confusions import estimate_confusions
from manyhands.inference.set_aggregator import (
    BaseSetAggregator,
    ByOption,
    gold_cells,
    named,
    with_progress,
)
from manyhands.inference.votes import make_votes
from manyhands.metrics.scorers import warn_of_training_instances
from manyhands.training import History
from manyhands.training.seeding import set_random_states
from manyhands.typing import MISSING, AnyArray, FloatArray

if TYPE_CHECKING:
    from manyhands.classifiers.aggregated import AggregatedClassifier

MIN_TARGET = 1e-6
"""A class whose soft target is below this gets no row in a scikit-learn classifier's data."""


class OptionPosterior(BaseEstimator):
    """Aggregator of one option that returns the posterior of a fitted aggregator of sets.

    Parameters
    ----------
    instances : array of shape (n,)
    posterior : array of shape (n,)
        Probability that the option applies.
    rates : array of shape (R, 2) or None
        Probability that each annotator ticks the option if it does not apply, and if it does. None:
        counted against the posterior.
    title : str
    """

    def __init__(
        self, instances: AnyArray, posterior: FloatArray, rates: Any = None, title: str = "option"
    ) -> None:
        self.instances = instances
        self.posterior = posterior
        self.rates = rates
        self.title = title

    def fit(self, table: AnnotationTable) -> Self:
        """Take the posterior of the instances of a table."""
        rows, _ = encode(
            table.instances, self.instances, argument="y", vocabulary_name="instances_"
        )
        applies = self.posterior[rows]
        self.instances_ = table.instances
        self.posterior_ = np.column_stack([1 - applies, applies])
        self.labels_ = np.array(NO_YES)[(applies > 0.5).astype(int)]
        if self.rates is None:
            self.confusion_ = estimate_confusions(make_votes(table), self.posterior_)
        else:
            self.confusion_ = np.stack([1 - self.rates, self.rates], axis=2)
        return self

    def fit_predict_proba(self, table: AnnotationTable) -> FloatArray:
        """Fit, and return the posterior, shape (n, 2)."""
        return self.fit(table).posterior_


def check_sets(model: AggregatedClassifier, others: dict[str, Any]) -> None:
    """Raise an error for parameters and arguments that a fit to sets of labels does not take.

    Raises
    ------
    AnnotationError
        If the aggregator infers single labels, the decision is not for options, or one of
        ``others``, options of ``fit``, is given.
    """
    for name, value in others.items():
        if value is not None:
            raise AnnotationError(
                f"{name}= is for single labels, and y is a LabelSetTable; leave {name}= out"
            )
    given = model.aggregator
    if given is not None and not isinstance(given, BaseSetAggregator):
        raise AnnotationError(
            f"aggregator={type(given).__name__} infers single labels, and y is a LabelSetTable; "
            "give aggregator=MultiLabelDawidSkene() or MultiLabelMajorityVote(), or take one "
            "option, y.option(name)"
        )
    if isinstance(model.decision, str) and model.decision == "median":
        raise AnnotationError(
            "decision='median' is for grades, and options have no order; use 'auto', 'f1', "
            "'balanced', or costs [[0, false tick], [missed label, 0]]"
        )
    plain = twin(model, decision="auto", aggregator=None)
    plain._check_parameters()
    if not _is_f1(model.decision):
        check_rule(model.decision, 2)


def fit_sets(model: AggregatedClassifier, X: Any, y: LabelSetTable, gold: Any) -> None:
    """Infer which options apply, and fit a classifier to each.

    Raises
    ------
    AnnotationError
        If y does not match X, or no option can be learned.
    """
    answers = drop_weightless(matched(y.answers, X))
    table = replace(y, answers=answers)
    check_rows(X, table.answers)
    rng = np.random.default_rng(_seed(model))
    given = MultiLabelMajorityVote() if model.aggregator is None else clone(model.aggregator)
    aggregator: Any = set_random_states(given, rng)
    cells = None if gold is None else gold_cells(gold, table)
    options = {} if cells is None else {"gold": np.where(cells == MISSING, np.nan, cells)}
    aggregator.fit(table, **options)
    annotated = np.flatnonzero(answers.annotations_per_instance())
    _warn_of_gold(table, cells)

    told = ByOption(table.options)
    fitted: list[Any] = []
    constant: list[str] = []
    for code in with_progress(table.n_options, "classifiers of the options"):
        name, option = table.options[code].item(), table._of_code(code)
        applies = aggregator.posterior_[:, code]
        if _is_one_class(model, option, applies[annotated]):
            constant.append(name)
            fitted.append(None)
            continue
        own = _copy(model, code, OptionPosterior(*_found(aggregator, code), title=repr(name)))
        with told.of(code), without_collapse_warnings():
            own.fit(X, option)
        own.aggregator = None  # The aggregator of all options holds its posterior.
        del own.aggregator_
        fitted.append(own)
    told.warn()
    if len(constant) == table.n_options:
        raise AnnotationError(
            f"y has no option to learn: each of {named(constant)} applies to all annotated "
            "instances or to none. Annotate more instances"
        )
    if constant:
        warn_caller(
            f"nothing can be learned about {named(constant)}, because all annotated instances "
            "have it or none does; every instance gets the same probability"
        )
    first = next(each for each in fitted if each is not None)
    seen = {name: getattr(first, name) for name in SET_WITH_FEATURES if hasattr(first, name)}
    found = {
        "classes_": np.array(table.options),
        "options_": np.array(table.options),
        "annotators_": np.array(table.annotators),
        "n_annotators_": table.n_annotators,
        "n_annotations_": table.n_annotations,
        "instances_": np.array(table.instances),
        "training_instances_": InstanceDigests.of(y.answers, answers),
        "aggregator_": aggregator,
        "estimators_": fitted,
        "prevalence_": np.array(aggregator.prevalence_),
        "class_prior_": np.array(
            [
                aggregator.prevalence_[code] if each is None else each.class_prior_[1]
                for code, each in enumerate(fitted)
            ]
        ),
    }
    become(model, Fitted(None, History(), {**seen, **found}))
    proba = model.predict_proba(take_rows(X, annotated))
    model.f1_threshold_ = decide_sets(proba, "f1").threshold
    lost = (decided(model, proba).n_ticked == 0) & (table.ticks_per_option() > 0)
    lost &= [each is not None for each in fitted]
    if lost.any():
        mend = "" if _is_f1(model.decision) else "; decision='f1' ticks more, and so do costs"
        warn_caller(
            f"{named(table.options[lost].tolist())}: annotators ticked it, but the classifier "
            f"predicts it for none of the {len(annotated):,} training instances{mend}"
        )


def decided(model: AggregatedClassifier, proba: FloatArray) -> SetDecision:
    """Return the ticked options by the ``decision`` of a classifier fitted to sets.

    Raises
    ------
    AnnotationError
        If ``decision`` is not for sets, or a right answer costs more than a wrong one.
    """
    rule = model.decision
    check_sets(twin(model, aggregator=None), {})  # It may have been changed since the fit.
    if isinstance(rule, str):
        bounds = {"f1": model.f1_threshold_, "balanced": model.class_prior_}
        return decide_by(proba, bounds[rule]) if rule in bounds else decide_sets(proba)
    cost = np.asarray(rule, dtype=np.float64)
    missed, false = cost[1, 0] - cost[1, 1], cost[0, 1] - cost[0, 0]
    if min(missed, false) < 0:
        raise AnnotationError(
            f"decision={cost.tolist()} makes a right answer cost more than a wrong one; give "
            "costs [[0, false tick], [missed label, 0]]"
        )
    return decide_sets(proba, costs=(missed, false))


def score_sets(model: AggregatedClassifier, X: Any, y: Any) -> float:
    """Return the micro-F1 of the predicted sets against known cells, or against every answer.

    Raises
    ------
    AnnotationError
        If y does not match X or the options, or nothing in it is known.
    """
    ticks = model.predict(X)
    if isinstance(y, LabelSetTable):
        table = replace(y, answers=drop_weightless(matched(y.answers, X)))
        check_rows(X, table.answers)
        check_annotations(table.answers, argument="y")
        table = table.with_options(model.options_)
        warn_of_training_instances(model, y.answers, table.answers)
        # The weight of the ticks of each cell, without an array of answers times options.
        shape = (table.n_instances, table.answers.n_classes)
        sets = csr_array((table.weight, (table.instance, table.answers.label)), shape=shape)
        given = sets @ table._sets.astype(np.float64)
        answered = np.bincount(table.instance, table.weight, table.n_instances)
        hits, total = given.multiply(ticks).sum(), given.sum() + (answered @ ticks).sum()
    else:
        gold = np.asarray(y, dtype=np.float64)
        if gold.shape != ticks.shape:
            raise AnnotationError(
                f"y has shape {gold.shape}; known cells have one row per instance and one column "
                f"per option, {ticks.shape}, with NaN where unknown"
            )
        known, true = np.isfinite(gold), gold == 1
        if not known.any():
            raise AnnotationError(
                "y has no known cell: all are NaN; give 1 where the option applies, and 0 where "
                "it does not"
            )
        hits, total = (ticks & true).sum(), (ticks & known).sum() + true.sum()
    return 2 * float(hits) / float(total) if total else 1.0


def _is_f1(rule: Any) -> bool:
    return isinstance(rule, str) and rule == "f1"


def _seed(model: AggregatedClassifier) -> Any:
    state = model.random_state
    return state.randint(2**31) if isinstance(state, np.random.RandomState) else state


def _found(aggregator: Any, code: int) -> tuple[AnyArray, FloatArray, FloatArray | None]:
    """Return the instances, posterior and annotators' rates of an option."""
    rates = None
    if hasattr(aggregator, "sensitivity_"):
        columns = aggregator.false_tick_rate_[:, code], aggregator.sensitivity_[:, code]
        rates = np.column_stack(columns)
    return aggregator.instances_, aggregator.posterior_[:, code].copy(), rates


def _is_one_class(
    model: AggregatedClassifier, option: AnnotationTable, applies: FloatArray
) -> bool:
    """Return whether a classifier of an option would have one class to learn."""
    if option.mask_of_classes_seen().sum() < 2:
        return True
    if model._protocol.targets == "hard":
        return len(np.unique(applies > 0.5)) < 2
    return bool((applies <= MIN_TARGET).all() or (applies >= 1 - MIN_TARGET).all())


def _copy(model: AggregatedClassifier, code: int, posterior: OptionPosterior) -> Any:
    """Make the unfitted classifier of an option."""
    changed: dict[str, Any] = {"aggregator": posterior}
    if _is_f1(model.decision):
        changed["decision"] = "auto"
    if model.checkpoint is not None:
        path = Path(model.checkpoint)
        changed["checkpoint"] = path.with_stem(f"{path.stem}-option{code}")
    if isinstance(model.validation, tuple | list):
        changed["validation"] = _gold_of(model.validation, code)
    return clone(twin(model, **changed), safe=False)


def _gold_of(validation: Any, code: int) -> tuple[Any, AnyArray]:
    """Return the instances to validate an option on, and whether it applies to them."""
    X, y = validation
    gold = np.asarray(getattr(y, "to_numpy", lambda: y)(), dtype=np.float64)
    if gold.ndim != 2:
        raise AnnotationError(
            f"validation: y_gold has shape {gold.shape}; sets of labels have one column per "
            "option, with 1 where it applies, 0 where it does not, and NaN where that is unknown"
        )
    known = np.flatnonzero(np.isfinite(gold[:, code]))
    return take_rows(X, known), np.array(NO_YES)[(gold[known, code] > 0).astype(int)]


def _warn_of_gold(table: LabelSetTable, cells: Any) -> None:
    """Warn of gold labels that the classifier does not learn from."""
    if cells is None:
        return
    n = int(((cells != MISSING).any(axis=1) & (table.annotations_per_instance() == 0)).sum())
    if n:
        warn_caller(
            f"{n:,} instances have gold labels but no answers, so the classifier is not trained "
            "on them. To use them, add their labels as the answers of one more annotator"
        )
