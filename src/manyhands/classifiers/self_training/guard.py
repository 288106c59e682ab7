"""The guard of self-training, which stops it before rounds that make the classifier worse.

A classifier that is trained on its own predictions can collapse, and no measure on its training
instances shows it. Therefore instances are assigned to folds before any training, and a
self-training without each fold measures every round: the agreement of its predictions for the fold
with the fold's annotations. Agreement does not measure what self-training gains against the
crowd's own bias, and may even fall a little with it. So it never chooses the best round, and only a
large fall at the end stops the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode
from manyhands.classifiers.self_training.rounds import SelfTraining, train_rounds
from manyhands.exceptions import warn_caller
from manyhands.fitting.folds import deal_folds
from manyhands.fitting.reading import take_rows
from manyhands.metrics import paired_z
from manyhands.training import History
from manyhands.typing import AnyArray, BoolArray, FloatArray

LEAST_INSTANCES = 10
"""Least number of annotated instances for a guard."""

MARGIN = 0.08
"""Largest tolerated fall in agreement, as a share of the first round's excess over chance.

Chance is the agreement of always predicting the most frequent class.
"""

LEAST_Z = 1.0
"""Least absolute paired z of a fall that counts."""

Step = tuple[int, FloatArray]
"""Number of a round, and the agreement of each annotated instance of a fold, shape (m,)."""


@dataclass(eq=False)
class Guard:
    """The guard of one fit.

    Attributes
    ----------
    margin : float
    chance : float
        Agreement of always predicting the most frequent class.
    trainings : list of iterators of Step
        One per self-training without a fold; none if the fit is not guarded.
    n_rounds : int
    history : History
        Measures of the rounds.
    last_sound : int or None
        If the guard stops the training: the round before agreement began to fall.
    """

    margin: float
    chance: float
    trainings: list[Iterator[Step]]
    n_rounds: int
    history: History = field(default_factory=History)
    last_sound: int | None = None

    @classmethod
    def of(cls, model: Any, fit: SelfTraining) -> Guard:
        """Assign the instances to folds, without any training.

        Parameters
        ----------
        model : BaseSelfTraining
            With checked parameters.
        fit : SelfTraining
            Before its first round.

        Returns
        -------
        Guard
        """
        margin = MARGIN if model.guard is True else float(model.guard)
        shares = _vote_shares(fit.table.observed)
        annotated = shares[shares.any(axis=1)]
        if not _is_guarded(model) or len(annotated) < LEAST_INSTANCES:
            return cls(margin, 0.0, [], model.n_rounds)
        rng = np.random.default_rng([fit.seed, model.guard_folds])
        folds = deal_folds(shares, model.guard_folds, rng)
        # The first annotations are all observed, so none was inferred from a fold. They are split
        # only when needed, after X was checked.
        trainings = [
            _train_without(model, fit, folds == fold, shares, f"guard{fold}-round")
            for fold in range(model.guard_folds)
        ]
        return cls(margin, float(annotated.mean(axis=0).max()), trainings, model.n_rounds)

    def allows(self, number: int) -> bool:
        """Return whether to train a round; the call after round 0 trains those of the guard."""
        if self.trainings and number and not self.history:
            with catch_warnings():
                # These warnings are about classifiers that the user does not see.
                simplefilter("ignore")
                self._judge()
        return self.last_sound is None or number <= self.last_sound

    def _judge(self) -> None:
        """Train all rounds without each fold, and decide whether agreement falls too much."""
        before: FloatArray | None = None
        for steps in zip(*self.trainings, strict=False):
            now = np.concatenate([agreement for _, agreement in steps])
            before = now if before is None else before
            self.history.append(
                {
                    "round": steps[0][0],
                    "agreement": float(now.mean()),
                    "change": float((now - before).mean()),
                    "z": paired_z(now - before),
                }
            )
        lost = self.margin * (self.history[0]["agreement"] - self.chance)
        is_certain = [row["z"] < -LEAST_Z for row in self.history]
        is_large = [-row["change"] > lost for row in self.history]
        if is_certain[-1] and is_large[-1]:
            # The last round confirms earlier falls, so one of the criteria suffices for those.
            is_fall = np.logical_or(is_certain, is_large)
            self.last_sound = self.history[int(is_fall.argmax()) - 1]["round"]

    def warn(self, name: str) -> None:
        """Warn if the guard has stopped the training."""
        if self.last_sound is None:
            return
        first, last = self.history[0], self.history[-1]
        warn_caller(
            f"{name} keeps round {self.last_sound} of {self.n_rounds}, because later rounds make "
            f"the classifier worse. On held-out instances, {100 * last['agreement']:.1f} % of the "
            f"annotations agree with the predictions of round {last['round']}, and "
            f"{100 * first['agreement']:.1f} % with those of round {first['round']} (z = "
            f"{last['z']:.1f}). guard=False trains all rounds"
        )


def _is_guarded(model: Any) -> bool:
    """Return whether a fit has a guard; warn if the estimator cannot have one."""
    n_comparable = model.n_rounds - (model.annotator is not None)
    if not model.guard or n_comparable < 1 or isinstance(model.validation, tuple | list):
        return False
    estimator = model.clone_estimator()
    if not hasattr(estimator, "predict"):
        warn_caller(
            f"{type(model).__name__} trains without its guard, which compares predicted classes "
            f"with annotations, because {type(estimator).__name__} has no predict; add it, or use "
            "guard=False"
        )
        return False
    return True


def _train_without(
    model: Any, start: SelfTraining, is_left: BoolArray, shares: FloatArray, name: str
) -> Iterator[Step]:
    """Train without a fold, and yield the agreement of its annotations with every round."""
    rows = np.flatnonzero(is_left & shares.any(axis=1))
    X = take_rows(start.X, rows)
    for trained in train_rounds(model, start.without(is_left, name)):
        predicted = trained.estimator.predict(X)
        yield trained.number, _agreement(predicted, shares[rows], start.table.classes)


def _agreement(predicted: Any, shares: FloatArray, classes: AnyArray) -> FloatArray:
    """Return the share of each instance's annotations that equal its predicted class, (m,)."""
    codes, _ = encode(
        as_values(predicted),
        classes,
        argument="what the estimator predicts",
        vocabulary_name="classes",
    )
    return shares[np.arange(len(shares)), codes]


def _vote_shares(table: AnnotationTable) -> FloatArray:
    """Return the vote shares of every instance, shape (n_instances, n_classes)."""
    counts = np.zeros((table.n_instances, table.n_classes))
    np.add.at(counts, (table.instance, table.label), 1.0)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
