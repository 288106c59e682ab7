"""Zero-based skill: a weighted majority vote with skills learnt in small steps.

.. [1] D. Ustalov, N. Pavlichenko and B. Tseitlin. Learning from crowds with Crowd-Kit. Journal of
   Open Source Software 9(96), 2024.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval

from manyhands.inference.base import COUNT, NON_NEGATIVE, AggregatorTraits, BaseAggregator
from manyhands.inference.votes import Votes
from manyhands.inference.weighted_majority_vote import decide_by_weight, learn_skills
from manyhands.typing import FloatArray

RATE = Interval(Real, 0, 1, closed="right")


class ZeroBasedSkill(BaseAggregator):
    """Weight votes by skill, and move the skills towards the agreement with the winners.

    All skills start at chance, 1 / n_classes. Each iteration votes, and then takes a gradient step
    on the squared difference between each skill and the annotator's share of agreement with the
    winners. The step size decays on a schedule, so that labels cannot alternate for ever.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when no skill changes by more.
    lr : float in (0, 1], default=1.0
        Learning rate: the fraction of the way to the agreement that a step covers.
    lr_decay : float in (0, 1], default=0.5
        Factor applied to the learning rate every ``lr_decay_every`` iterations.
    lr_decay_every : int, default=20
    ties : {"first", "random", "distribute"}, default="first"
        Which of several equal winners ``labels_`` names; "distribute" means "first" here. For the
        skills, tied winners always share the win.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    posterior_ : array of shape (n_instances, n_classes)
        Shares of the votes weighted by skill: scores, not calibrated probabilities. Plain vote
        shares where all weights are 0.
    skill_ : array of shape (n_annotators,)
        Between 0 and 1; 1 / n_classes for an annotator without annotations.

    References
    ----------
    Ustalov, Pavlichenko & Tseitlin (2024), JOSS 9(96), class ``ZeroBasedSkill`` of Crowd-Kit.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import ZeroBasedSkill
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, -1, 0]])
    >>> model = ZeroBasedSkill().fit(A)
    >>> model.labels_
    array([0, 1, 0, 1])
    >>> model.skill_
    array([1.  , 1.  , 0.25])
    """

    traits = AggregatorTraits(uses_start=False)

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "lr": [RATE],
        "lr_decay": [RATE],
        "lr_decay_every": [COUNT],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        lr: float = 1.0,
        lr_decay: float = 0.5,
        lr_decay_every: int = 20,
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.lr = lr
        self.lr_decay = lr_decay
        self.lr_decay_every = lr_decay_every
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        self.skill_, self.n_iter_ = learn_skills(
            votes,
            np.full(votes.n_annotators, 1 / votes.n_classes),
            rate=self._rate,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self.posterior_, self.class_prior_ = decide_by_weight(votes, self.skill_)

    def _posterior(self, votes: Votes) -> FloatArray:
        return decide_by_weight(votes, self.skill_, self.class_prior_)[0]

    def _rate(self, iteration: int) -> float:
        return self.lr * self.lr_decay ** (iteration // self.lr_decay_every)
