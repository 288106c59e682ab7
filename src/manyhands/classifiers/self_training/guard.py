"""The guard of self-training: an alarm against rounds that spoil the classifier.

A classifier that annotates for itself can collapse, and nothing that is measured on its own
training instances shows it. So instances are dealt to folds before anything is trained, and
self-trainings without one fold each tell what every round does: how often its predictions for the
fold agree with the fold's annotations. Agreement is blind to what self-training gains against the
crowd's own bias, and may even fall a little with it. So it never chooses the best round, and only a
large fall at the end is an alarm.
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
"""Annotated instances without which there is no guard."""

MARGIN = 0.08
"""Largest fall in agreement that is no alarm, as a share of what the first round has above chance.

Chance is the agreement of naming the most frequent class always.
"""

LEAST_Z = 1.0
"""Paired z beyond which a fall counts."""

Step = tuple[int, FloatArray]
"""Number of a round, and the agreement of each annotated instance of a fold, shape (m,)."""


@dataclass(eq=False)
class Guard:
    """The guard of one fit.

    Attributes
    ----------
    margin : float
    chance : float
        Agreement of naming the most frequent class always.
    courses : list of iterators of Step
        One per self-training without a fold; none if the fit is not guarded.
    n_rounds : int
    history : History
        Measures of the rounds.
    last_sound : int or None
        If there is an alarm: the round before agreement began to fall.
    """

    margin: float
    chance: float
    courses: list[Iterator[Step]]
    n_rounds: int
    history: History = field(default_factory=History)
    last_sound: int | None = None

    @classmethod
    def of(cls, model: Any, fit: SelfTraining) -> Guard:
        """Deal the instances to folds; nothing is trained yet.

        Parameters
        ----------
        model : BaseSelfTraining
            Its parameters are checked by now.
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
        # In the annotations of the start, nothing was inferred from a fold. They are split only
        # when needed, after X was checked.
        courses = [
            _course(model, fit, folds == fold, shares, f"guard{fold}-round")
            for fold in range(model.guard_folds)
        ]
        return cls(margin, float(annotated.mean(axis=0).max()), courses, model.n_rounds)

    def allows(self, number: int) -> bool:
        """Whether to train a round; the first question about any but round 0 judges them all."""
        if self.courses and number and not self.history:
            with catch_warnings():
                # They are about classifiers that nobody gets to see.
                simplefilter("ignore")
                self._judge()
        return self.last_sound is None or number <= self.last_sound

    def _judge(self) -> None:
        """Train all rounds without each fold, and see whether it ends badly."""
        before: FloatArray | None = None
        for steps in zip(*self.courses, strict=False):
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
            # The end confirms earlier falls, so either sign is enough there.
            is_fall = np.logical_or(is_certain, is_large)
            self.last_sound = self.history[int(is_fall.argmax()) - 1]["round"]

    def warn(self, name: str) -> None:
        """Say what the guard stopped, if anything."""
        if self.last_sound is None:
            return
        first, last = self.history[0], self.history[-1]
        warn_caller(
            f"{name} ends after round {self.last_sound} of {self.n_rounds}, because further ones "
            "spoil the classifier: among instances left out of the training, "
            f"{last['agreement']:.1%} of the annotations agree with what round {last['round']} "
            f"predicts, against {first['agreement']:.1%} in round {first['round']} "
            f"(z = {last['z']:.1f}). guard=False trains all rounds"
        )


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


def _course(
    model: Any, start: SelfTraining, is_left: BoolArray, shares: FloatArray, name: str
) -> Iterator[Step]:
    """Train without a fold, and yield how its annotations agree with each round's predictions."""
    rows = np.flatnonzero(is_left & shares.any(axis=1))
    X = take_rows(start.X, rows)
    for trained in train_rounds(model, start.without(is_left, name)):
        predicted = trained.estimator.predict(X)
        yield trained.number, _agreement(predicted, shares[rows], start.table.classes)


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
