"""The guard of self-training: an alarm against rounds that spoil the classifier.

A classifier that annotates for itself can collapse, and nothing that is measured on its own
training instances shows it. So instances are dealt to folds before anything is trained, and
self-trainings without one fold each tell what the next round does: how often its predictions for
the fold agree with the fold's annotations. Agreement is nearly blind to what self-training gains
against the crowd's own bias, so it never chooses among sound rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode
from manyhands.classifiers.self_training.rounds import SelfTraining, take_rows, train_rounds
from manyhands.exceptions import warn_caller
from manyhands.linear.folds import deal_folds
from manyhands.training import History
from manyhands.typing import AnyArray, FloatArray

LEAST_INSTANCES = 10
"""Annotated instances without which there is no guard."""

MARGIN = 0.02
"""Largest fall in agreement that is no alarm."""

LEAST_Z = 2.0
"""Paired z that a fall must exceed to be an alarm."""

Step = tuple[int, FloatArray]
"""Number of a round, and the agreement of each annotated instance of a fold, shape (m,)."""


@dataclass(eq=False)
class Guard:
    """The guard of one fit.

    Attributes
    ----------
    margin : float
    courses : list of iterators of Step
        One per self-training without a fold; none if the fit is not guarded.
    n_rounds : int
    history : History
        Measures of the rounds so far.
    """

    margin: float
    courses: list[Iterator[Step]]
    n_rounds: int
    history: History = field(default_factory=History)
    _before: FloatArray | None = None
    _stopped: int | None = None

    @classmethod
    def of(cls, model: Any, fit: SelfTraining) -> Guard:
        """Deal the instances to folds; nothing is trained yet.

        Parameters
        ----------
        model : BaseSelfTraining
            Its parameters are checked by now.
        fit : SelfTraining
            Before its first round.
        """
        margin = MARGIN if model.guard is True else float(model.guard)
        shares = _vote_shares(fit.table.observed)
        if not _is_guarded(model) or np.count_nonzero(shares.any(axis=1)) < LEAST_INSTANCES:
            return cls(margin, [], model.n_rounds)
        rng = np.random.default_rng([fit.seed, model.guard_folds])
        folds = deal_folds(shares, model.guard_folds, rng)
        courses = []
        for fold in range(model.guard_folds):
            # Taken now: before the first round there are no pseudo-annotations that know the fold.
            others = fit.without(folds == fold, f"guard{fold}-round")
            rows = np.flatnonzero((folds == fold) & shares.any(axis=1))
            courses.append(_course(model, others, take_rows(fit.X, rows), shares[rows]))
        return cls(margin, courses, model.n_rounds)

    def allows(self, number: int) -> bool:
        """Train the self-trainings without a fold up to a round, and say whether it is sound.

        Parameters
        ----------
        number : int
            Round that the guarded self-training would train next. Its first is always allowed.
        """
        while self.courses and number and (not self.history or self._reached < number):
            with catch_warnings():
                # They are about classifiers that nobody gets to see.
                simplefilter("ignore")
                steps = [next(course, None) for course in self.courses]
            if not self._compare([step for step in steps if step is not None]):
                break
        return self._stopped is None

    @property
    def _reached(self) -> int:
        return int(self.history[-1]["round"])

    def _compare(self, steps: list[Step]) -> bool:
        """Compare a round with the first; return whether there is any."""
        if len(steps) < len(self.courses):  # Nothing is missing any more in one of them.
            return False
        number = steps[0][0]
        now = np.concatenate([agreement for _, agreement in steps])
        self._before = now if self._before is None else self._before
        change, z = float((now - self._before).mean()), paired_z(now - self._before)
        self.history.append(
            {"round": number, "agreement": float(now.mean()), "change": change, "z": z}
        )
        if change < -self.margin and z < -LEAST_Z:
            self._stopped = number
        return self._stopped is None

    def warn(self, name: str) -> None:
        """Say what the guard stopped, if anything."""
        if self._stopped is None:
            return
        first, last = self.history[0], self.history[-1]
        warn_caller(
            f"{name} stopped before round {self._stopped} of {self.n_rounds}, which spoils the "
            f"classifier, and keeps round {self._stopped - 1}: among instances left out of the "
            f"training, {last['agreement']:.1%} of the annotations agree with what round "
            f"{self._stopped} predicts, against {first['agreement']:.1%} in round "
            f"{first['round']} (z = {last['z']:.1f}; margin {self.margin:g}). guard=False trains "
            "all rounds"
        )


def paired_z(change: FloatArray) -> float:
    """Mean of paired differences (m,) divided by its standard error; 0 where all are 0.

    Examples
    --------
    >>> round(paired_z(np.array([-1.0, -1.0, 0.0, -1.0])), 2)
    -3.0
    """
    error = float(change.std(ddof=1)) / np.sqrt(len(change))
    mean = float(change.mean())
    return mean / error if error else float(np.sign(mean)) * np.inf if mean else 0.0


def _is_guarded(model: Any) -> bool:
    """Whether there is a round to fall back on, no better judge, and something to judge by."""
    n_comparable = model.n_rounds - (model.annotator is not None)
    if not model.guard or n_comparable < 1 or isinstance(model.validation, tuple | list):
        return False
    estimator = model.clone_estimator()
    if not hasattr(estimator, "predict"):
        warn_caller(
            f"{type(model).__name__} trains unguarded: the guard compares predicted classes with "
            f"annotations, and {type(estimator).__name__} has no predict; add it, or use "
            "guard=False"
        )
        return False
    return True


def _course(model: Any, others: SelfTraining, X: Any, shares: FloatArray) -> Iterator[Step]:
    """Train without a fold, and yield how its annotations agree with each round's predictions."""
    for trained in train_rounds(model, others):
        predicted = trained.estimator.predict(X)
        yield trained.number, _agreement(predicted, shares, others.table.classes)


def _agreement(predicted: Any, shares: FloatArray, classes: AnyArray) -> FloatArray:
    """Share of each instance's annotations that name its predicted class, shape (m,)."""
    codes, _ = encode(
        as_values(predicted),
        classes,
        argument="what the estimator predicts",
        vocabulary_name="classes",
    )
    return shares[np.arange(len(shares)), codes]


def _vote_shares(table: AnnotationTable) -> FloatArray:
    """Share of each class among an instance's annotations, shape (n_instances, n_classes)."""
    counts = np.zeros((table.n_instances, table.n_classes))
    np.add.at(counts, (table.instance, table.label), 1.0)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
