"""GLAD: abilities of annotators and difficulties of instances.

.. [1] J. Whitehill, P. Ruvolo, T. Wu, J. Bergsma and J. Movellan. Whose vote should count more:
   optimal integration of labels from labelers of unknown expertise. NIPS, 2009.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import COUNT, NON_NEGATIVE, BaseAggregator, known_prior
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.glad_steps import PRIOR_MEAN, Model, RemoteModel, beta_of
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.probability import has_settled
from manyhands.inference.vote_sums import uniform_prior
from manyhands.inference.votes import AllVotes, Votes
from manyhands.typing import FloatArray

FIRST_M_STEP, M_STEP = 10, 3
"""L-BFGS iterations of the first M-step, which starts from equal parameters, and of the others,
which start from the previous ones. EM then needs about as many rounds as with exact M-steps."""


class GLAD(BaseAggregator):
    """Infer true classes, one ability per annotator and one difficulty per instance, by EM.

    An annotation is correct with probability sigmoid(ability * beta), where beta > 0 is small for a
    difficult instance. In a wrong annotation, all other classes are equally probable.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the penalised log likelihood per annotation grows by less.
    class_prior : {"uniform", "estimated"}, default="uniform"
        "uniform" is the published model, over the classes that somebody gave or gold names.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, by which the posterior is less sure than if they were
        independent; 0 is the published model. "auto" estimates it with the default `DawidSkene`,
        from the annotations, or from gold where given (see `manyhands.inference.dependence`).
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with gold were chosen; as in `DawidSkene`.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    dependence_, dependence_se_ : float
        Correlation of annotators' mistakes and its standard error (0 if it was set).
    ability_ : array of shape (n_annotators,)
        At 0, annotations are correct with probability 1/2 on any instance. Above 0, this
        probability rises as instances get easier; below 0 (an adversary) it falls. For an annotator
        without annotations, the prior's mean, 1.
    difficulty_ : array of shape (n_instances,)
        1 / beta, positive; the larger it is, the closer everyone's probability of being correct is
        to 1/2. For an instance without annotations, 1 / e, from the prior's mean.
    log_likelihood_ : array of shape (n_iter_,)
        Log likelihood plus log prior density (up to a constant) after each E-step; it never
        decreases.

    Notes
    -----
    The priors of each ability and each log beta are normal with mean 1 and variance 1. EM starts
    from the vote shares, with all abilities and log betas equal to 1.

    References
    ----------
    Whitehill et al. (2009), NIPS: Eq. 1 (model), Section 3 (EM, priors).

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import GLAD
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> model = GLAD().fit(A)
    >>> model.labels_
    array([0, 1, 0, 1])
    >>> model.ability_.argmin()
    np.int64(2)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "class_prior": [StrOptions({"uniform", "estimated"})],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
    }

    _takes_stores = True

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        class_prior: str = "uniform",
        dependence: float | str = "auto",
        gold_sample: str = "auto",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.class_prior = class_prior
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        self._measure_dependence(votes, start)
        is_remote = getattr(votes, "engine", None) is not None
        model = RemoteModel(votes) if is_remote else Model(votes)
        theta = np.full(votes.n_annotators + votes.n_instances, PRIOR_MEAN)
        estimated = self.class_prior == "estimated"
        prior = known_prior(votes, start) if estimated else uniform_prior(votes)
        theta, prior, history = self._em(model, theta, prior, model.p_correct(start))
        self.posterior_ = model.posterior(theta, prior, self._rho)
        self.class_prior_ = prior
        self.ability_ = theta[: votes.n_annotators]
        self.difficulty_ = 1.0 / beta_of(theta[votes.n_annotators :])
        self.log_likelihood_ = np.array(history)
        self.n_iter_ = len(history)

    def _posterior(self, votes: Votes) -> FloatArray:
        model = Model(votes, annotators_known=True)
        theta = np.concatenate([self.ability_, np.full(votes.n_instances, PRIOR_MEAN)])
        p_correct, _, _ = model.e_step(theta, self.class_prior_)
        theta, prior, _ = self._em(model, theta, self.class_prior_, p_correct)
        return model.posterior(theta, prior, self._rho)

    @property
    def _rho(self) -> float | None:
        return None if self.dependence == 0 else self.dependence_

    def _em(
        self, model: Model, theta: FloatArray, prior: FloatArray, p_correct: Any
    ) -> tuple[FloatArray, FloatArray, list[float]]:
        """Alternate M- and E-steps; return parameters, class prior and history of the objective."""
        learn_prior = self.class_prior == "estimated" and not model.annotators_known
        checkpoint, history = model.votes.checkpoint, list[float]()
        saved = checkpoint.load("iterations")
        if saved is not None:
            theta, prior, history = saved["theta"], saved["prior"], saved["history"].tolist()
            p_correct, shares, _ = model.e_step(theta, prior)
            prior = shares if learn_prior else prior
        while True:
            theta = model.m_step(theta, p_correct, M_STEP if history else FIRST_M_STEP)
            p_correct, shares, log_likelihood = model.e_step(theta, prior)
            history.append(log_likelihood)
            if has_settled(history, self.tol * model.total_weight):
                break
            used, prior = prior, shares if learn_prior else prior
            if len(history) == self.max_iter:
                break
            checkpoint.save("iterations", theta=theta, prior=used, history=history)
        return theta, prior, history
