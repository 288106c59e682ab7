"""`select`: choose among classifiers without gold labels."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from manyhands.annotations import AnnotationTable
from manyhands.annotations.digests import InstanceDigests
from manyhands.classifiers import AveragedCrowdClassifier
from manyhands.exceptions import (
    AnnotationError,
    DivergenceError,
    ModelChoiceWarning,
    ModelFolderError,
    warn_caller,
)
from manyhands.fitting.class_collapse import without_collapse_warnings
from manyhands.fitting.pilots import n_epochs_to_search
from manyhands.fitting.reading import check_learnable, table_of
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.metrics import (
    corrected_vote_agreement,
    estimate_accuracy,
    paired_z,
    vote_agreement,
    vote_information,
)
from manyhands.registry import find_classifier, get, short_name
from manyhands.selection.criteria import (
    TIED,
    Values,
    check_options,
    choose_among,
    doubts,
    earliest_epoch,
    guarded_epoch,
    has_own_class_prior,
    make_criterion,
    may_be_shortened,
    refuse_rounds,
)
from manyhands.selection.cross_prediction import CrossPrediction, check_seed, cross_predict
from manyhands.selection.result import CandidateScore, CandidateTable, Selection, never_predicted
from manyhands.selection.splitters import read_folds
from manyhands.training.seeding import draw_seed, joined_if_any, set_random_states
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import percent, percent_interval

__all__ = ["SHORT_LIST", "select"]

_PROGRESS = logging.getLogger("manyhands.progress")

SHORT_LIST = (
    "CrowdStackingClassifier",
    "AggregatedClassifier",
    "CrowdLayerClassifier",
    "TraceRegClassifier",
    "DoctorNetClassifier",
    "AggNetClassifier",
    "MaxMIGClassifier",
    "CoNALClassifier",
)
"""Default candidates: methods that differ from one another, those first that train quickest."""


def select(
    candidates: Mapping[str, Any] | Iterable[Any] | None,
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    criterion: Literal["agreement", "balanced", "information"] = "agreement",
    epochs: Literal["guarded", "last"] = "guarded",
    average: int = 1,
    refit: bool = False,
    groups: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
    folder: str | Path | None = None,
    verbose: int = 0,
) -> Selection:
    """Choose among classifiers without gold labels, and estimate the accuracy of the choice.

    Every candidate predicts every instance by a model that was trained neither on the instance nor
    on its annotations (`cross_predict`). The candidate whose predictions agree best with the
    annotations is chosen. A tie goes to a candidate with a class prior of its own (a
    ``class_prior`` or ``prior`` other than "estimated"), because agreement favours the class shares
    that the crowd's mistakes produce. The fold models of the chosen candidate are averaged.

    Parameters
    ----------
    candidates : dict of name to classifier, iterable of classifiers or of names, or None
        They are cloned, never fitted in place. Names are those of the command line, such as
        "conal". None: eight methods with their default parameters.
    X : as in ``fit``
    y : AnnotationTable (matched with X by id), or array of shape (n_samples, n_annotators)
    cv, groups, n_jobs, folder
        As in `cross_predict`. With a folder, a repeated call continues where an interrupted one
        stopped.
    criterion : {"agreement", "balanced", "information"}, default="agreement"
        "agreement": the mean of `vote_agreement` (A) and `corrected_vote_agreement` (B).
        "balanced": `vote_recall` against majority votes, in place of balanced accuracy.
        "information": `vote_information` (MI). A mistake that most annotators share does not
        deceive it, but it cannot detect that two classes are swapped.
    epochs : {"guarded", "last"}, default="guarded"
        "guarded": train for fewer epochs if that is better by a paired z > 1; the shorter training
        is run, and must be better itself. If ``max_epochs`` is "auto", the number of epochs is
        chosen by agreement, as in a fit, but once for all folds. Both apply to candidates that are
        one network trained in one stage, without EM. With "last", and for all other candidates, the
        fit of every fold follows ``max_epochs``.
    average : int, default=1
        Number of best candidates that are averaged; the table still lists each one by itself.
    refit : bool, default=False
        False: average the fold models. True: train the best candidates again on all instances.
    random_state : int, RandomState or None, default=0
        Seeds the folds, and every unset ``random_state`` within the candidates.
    verbose : int, default=0
        1 shows a progress bar per candidate.

    Returns
    -------
    Selection
        With ``best_``, ``estimator_``, ``oof_proba_``, ``table_``, ``tied_``, ``warnings_``.

    Raises
    ------
    AnnotationError
        As in `cross_predict`; if ``criterion``, ``epochs`` or ``average`` is unknown; if two
        candidates differ only in rounds of EM, which agreement cannot choose; or if no candidate
        can be trained.
    ModelFolderError, WriteError
        As in `cross_predict`.

    Warns
    -----
    ModelChoiceWarning
        If there are fewer than 200 annotated instances; if agreement and information clearly rank
        two candidates in opposite order (most annotators may share a mistake); if a class is never
        predicted; if candidates differ only in the class prior, or some with a prior of their own
        have lower scores; or if the training of a candidate fails.

    Notes
    -----
    The estimated accuracy (`estimate_accuracy`) applies to instances like the annotated ones and
    assumes that annotators' mistakes are independent of the model's. It is a little too high for
    the best of many candidates.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier, load_demo, select
    >>> demo = load_demo()
    >>> candidates = {
    ...     f"{epochs} epochs": CrowdLayerClassifier(max_epochs=epochs, backbone="linear")
    ...     for epochs in (1, 40)
    ... }
    >>> found = select(candidates, demo.X_train, demo.annotations, cv=2, epochs="last")
    >>> found.best_
    '40 epochs'
    >>> found.estimator_.predict(demo.X_test).shape
    (500,)
    """
    named = name_candidates(candidates)
    check_options(named, criterion, epochs, average)
    if folder is not None:
        check_seed(random_state)
    warnings = refuse_rounds(named)
    table = table_of(X, y)
    check_learnable(X, table)
    with joined_if_any(list(named.values())):
        # `cross_predict` draws the same folds from this seed.
        seed = int(random_state) if isinstance(random_state, Integral) else draw_seed(random_state)
        folds = read_folds(cv, X, table, groups, draw_seed(seed))
        posterior = DawidSkene().fit_predict_proba(table)
        values = make_criterion(criterion, table, posterior)
        options = {"n_jobs": n_jobs, "folder": folder, "verbose": verbose}
        holding = {
            n for n, m in named.items() if criterion == "agreement" and has_own_class_prior(m)
        }
        contest = _Contest(X, table, folds, seed, posterior, values, holding, average, options)
        with without_collapse_warnings():
            for number, (name, estimator) in enumerate(named.items(), 1):
                _PROGRESS.info("candidate %d of %d: %s", number, len(named), name)
                contest.enter(name, estimator, epochs == "guarded")
                _PROGRESS.info("%s", contest.told(name))
            selection = contest.close(criterion, refit, warnings)
    for text in selection.warnings_:
        warn_caller(text, ModelChoiceWarning)
    return selection


def name_candidates(candidates: Mapping[str, Any] | Iterable[Any] | None) -> dict[str, Any]:
    """Return the candidates by name; the default name is the class, with a number if needed."""
    if candidates is None:
        candidates = [get(name)() for name in SHORT_LIST]
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise AnnotationError(
            f"candidates={candidates!r} is one candidate; give several, as a list or a dict"
        )
    if not isinstance(candidates, Mapping):
        given = [find_classifier(each)() if isinstance(each, str) else each for each in candidates]
        names = [short_name(type(each)) for each in given]
        numbers = [names[:place].count(name) for place, name in enumerate(names)]
        candidates = {
            f"{name} {number + 1}" if number else name: each
            for name, number, each in zip(names, numbers, given, strict=True)
        }
    if not candidates:
        raise AnnotationError("candidates is empty; give at least one, or None for a short list")
    for name, each in candidates.items():
        if isinstance(each, type) or not hasattr(each, "get_params"):
            raise AnnotationError(
                f"candidate {name!r} is {each!r}; give an object with scikit-learn's parameters, "
                "such as CoNALClassifier()"
            )
    return {str(name): each for name, each in candidates.items()}


@dataclass(frozen=True)
class _Entry:
    """A candidate after its training.

    ``found`` is None unless the candidate is among the best, and also while the predictions of a
    longer training stand in for it.
    """

    estimator: Any
    found: CrossPrediction | None
    codes: IntArray
    values: FloatArray
    score: CandidateScore


@dataclass
class _Contest:
    """Train candidates one after another, and keep the models of the best."""

    X: Any
    table: AnnotationTable
    folds: IntArray
    seed: int
    posterior: FloatArray
    values: Values
    holding: set[str]
    average: int
    options: dict[str, Any]
    entries: dict[str, _Entry] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def enter(self, name: str, estimator: Any, guarded: bool) -> None:
        """Train a candidate, and drop the models of those that are no longer among the best."""
        n_epochs = n_epochs_to_search(estimator, self._training_size()) if guarded else None
        try:
            if n_epochs is not None:
                self.entries[name] = self._choose_n_epochs(name, estimator, n_epochs)
            else:
                self.entries[name] = self._judge(name, estimator, guarded)
        except (ModelFolderError, OSError, MemoryError):  # These are not caused by the candidate.
            raise
        except Exception as error:
            known = isinstance(error, AnnotationError | DivergenceError)
            self.failures[name] = str(error) if known else f"{type(error).__name__}: {error}"
            return
        for other in {*self.entries} - {*self._chosen()[0]}:
            self.entries[other] = replace(self.entries[other], found=None)

    def told(self, name: str) -> str:
        """Say how good a candidate is that was trained."""
        if name in self.failures:
            return f"{name}: failed ({self.failures[name]})"
        score = self.entries[name].score
        told = f"{name}: score {score.score:.3f}"
        if score.estimate is not None and score.low is not None and score.high is not None:
            between = percent_interval(score.low, score.high)
            told += f", accuracy {percent(score.estimate)} ({between})"
        return f"{told}, {score.seconds:.0f} s"

    def _training_size(self) -> int:
        """Return the mean number of distinct annotated instances that a fold is trained on."""
        annotated = self.table.annotations_per_instance() > 0
        n = len(np.unique(self.table.instances[annotated]))
        return int(n * (1 - 1 / (self.folds.max() + 1)))

    def _behind(self) -> dict[str, float]:
        """Return the standard errors below the highest score, the best candidate first."""
        ranked = sorted(self.entries, key=lambda name: -_mean(self.entries[name].values))
        best = self.entries[ranked[0]].values
        return {name: paired_z(best - self.entries[name].values) for name in ranked}

    def _chosen(self) -> tuple[list[str], str | None, list[str]]:
        """Return the names of the candidates to average, the reason for the first, and warnings."""
        best, reason, warnings = choose_among(self._behind(), self.holding)
        others = [name for name in self._behind() if name != best]
        return [best, *others][: self.average], reason, warnings

    def _judge(self, name: str, estimator: Any, guarded: bool) -> _Entry:
        """Train a candidate as given, and for fewer epochs if that is better."""
        guarded = guarded and may_be_shortened(estimator)
        found = self._predict(estimator, return_epochs=guarded)
        entry = self._rate(name, estimator, found.proba.argmax(axis=1), None, found)
        epoch = None if found.epochs is None else guarded_epoch(found.epochs, self.values)
        if epoch is None:
            return entry
        shorter = clone(estimator).set_params(max_epochs=epoch)
        again = self._predict(shorter)
        again = again._replace(seconds=found.seconds + again.seconds)
        shorter_entry = self._rate(name, shorter, again.proba.argmax(axis=1), epoch, again)
        better = paired_z(shorter_entry.values - entry.values) > TIED
        return shorter_entry if better else entry

    def _choose_n_epochs(self, name: str, estimator: Any, n_epochs: int) -> _Entry:
        """Train a candidate with ``max_epochs="auto"`` for many epochs, and choose their number.

        The predictions after an epoch equal those of a training that ends there, so that shorter
        training is run only at the end, for the best candidates.
        """
        found = self._predict(clone(estimator).set_params(max_epochs=n_epochs), return_epochs=True)
        if found.epochs is None:  # A user's class with several stages.
            return self._judge(name, estimator, guarded=False)
        epoch, codes = earliest_epoch(found.epochs, self.folds, self.table)
        chosen = clone(estimator).set_params(max_epochs=epoch)
        entry = self._rate(name, chosen, codes, epoch, found)
        return entry if epoch == n_epochs else replace(entry, found=None)

    def _train(self, name: str) -> CrossPrediction:
        """Train a candidate's folds if a longer training has stood in for them so far."""
        entry = self.entries[name]
        if entry.found is not None:
            return entry.found
        found = self._predict(entry.estimator)
        score = replace(entry.score, seconds=(entry.score.seconds or 0) + found.seconds)
        self.entries[name] = replace(entry, score=score)
        return found

    def _predict(self, estimator: Any, return_epochs: bool = False) -> CrossPrediction:
        return cross_predict(
            estimator,
            self.X,
            self.table,
            cv=self.folds,
            random_state=self.seed,
            return_estimators=True,
            return_epochs=return_epochs,
            **self.options,
        )

    def _rate(
        self, name: str, estimator: Any, codes: IntArray, epoch: int | None, found: CrossPrediction
    ) -> _Entry:
        table = self.table
        predicted, values = table.classes[codes], self.values(codes)
        estimate = estimate_accuracy(predicted, table, posterior=self.posterior)
        known = values[~np.isnan(values)]
        score = CandidateScore(
            name,
            score=_mean(values),
            error_of_score=float(known.std(ddof=1) / np.sqrt(len(known))),
            agreement=vote_agreement(predicted, table),
            corrected=corrected_vote_agreement(predicted, table, posterior=self.posterior),
            information=vote_information(predicted, table),
            estimate=estimate.value,
            low=estimate.low,
            high=estimate.high,
            epoch=epoch,
            seconds=found.seconds,
        )
        return _Entry(estimator, found._replace(epochs=None), codes, values, score)

    def close(self, criterion: str, refit: bool, warnings: list[str]) -> Selection:
        """Rank the candidates, and return the selection with its classifier."""
        failed = [f"{name} cannot be trained: {error}" for name, error in self.failures.items()]
        if not self.entries:
            raise AnnotationError(f"no candidate can be trained; {failed[0]}")
        chosen, reason, underrated = self._chosen()
        best, found = chosen[0], [self._train(name) for name in chosen]
        scores = [replace(self.entries[name].score, z=z) for name, z in self._behind().items()]
        tied = [row.candidate for row in scores if row.z is not None and row.z <= TIED]
        warnings = [
            *warnings,
            *failed,
            *underrated,
            *doubts(
                {name: entry.codes for name, entry in self.entries.items()},
                best,
                self.table,
                self.posterior,
            ),
            *never_predicted(self.entries[best].codes, self.table),
        ]
        failures = [CandidateScore(name, error=text) for name, text in self.failures.items()]
        return Selection(
            best_=best,
            estimator_=self._refit(chosen) if refit else _averaged(found, self.table),
            oof_proba_=np.mean([each.proba for each in found], axis=0),
            table_=CandidateTable((*scores, *failures)),
            tied_=[best, *(name for name in tied if name != best)],
            warnings_=warnings,
            criterion_=criterion,
            reason_=reason,
        )

    def _refit(self, chosen: list[str]) -> Any:
        rng = np.random.default_rng(self.seed)
        fitted = [
            set_random_states(clone(self.entries[name].estimator), rng).fit(self.X, self.table)
            for name in chosen
        ]
        return fitted[0] if len(fitted) == 1 else AveragedCrowdClassifier.of_fitted(fitted)


def _averaged(found: list[CrossPrediction], table: AnnotationTable) -> AveragedCrowdClassifier:
    """Return the average of the fold models of candidates.

    If all infer labels of their training instances, so does the average: ``posterior_`` is the mean
    over the models that were trained on an instance, and so combines annotations and features.
    """
    models = [model for each in found for model in each.estimators or []]
    average = AveragedCrowdClassifier.of_fitted(models)
    rows = [np.flatnonzero(each.folds != k) for each in found for k in range(each.folds.max() + 1)]
    if all(hasattr(model, "posterior_") for model in models):
        total = np.zeros((table.n_instances, len(average.classes_)))
        n = np.zeros(table.n_instances)
        for model, own in zip(models, rows, strict=True):
            total[own] += model.posterior_
            n[own] += 1
        average.posterior_ = total / n[:, None]
        average.instances_ = table.instances
        average.training_instances_ = InstanceDigests.of(table, table)  # Each of them once.
        average._knows_its_accuracy = all(
            getattr(model, "_knows_its_accuracy", False) for model in models
        )
    return average


def _mean(values: FloatArray) -> float:
    return float(np.nanmean(values))
