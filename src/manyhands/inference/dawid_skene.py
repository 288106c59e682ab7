"""Dawid & Skene (1979): expectation maximisation for annotators' confusion matrices.

The paper's model, its E-step and its M-step are in `manyhands.inference.confusions`. This module
has the aggregator, which chooses the fit of a table (`manyhands.inference.confusion_em`) and sets
its attributes.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
   the EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.inference.base import COUNT, NON_NEGATIVE, AggregatorTraits, BaseAggregator
from manyhands.inference.confusion_em import (
    ConfusionEM,
    ConfusionRun,
    Fits,
    OwnRemoved,
)
from manyhands.inference.confusion_prior import ConfusionPrior
from manyhands.inference.confusions import ConfusionParams, DawidSkeneModel, normalise_joint
from manyhands.inference.dependence import (
    DEPENDENCE,
    Dependence,
    estimate,
    exponents,
    judged,
    refine,
)
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.gold_samples import GOLD_SAMPLE, KnownLabels
from manyhands.inference.history import TakesHistory
from manyhands.inference.probability import as_array, map_rows, normalise_rows
from manyhands.inference.severity import doubt_of_grades, severity, severity_error
from manyhands.inference.votes import AllVotes, Votes, fill_rows, sum_over_shards
from manyhands.typing import FloatArray


class DawidSkene(TakesHistory, EMAggregator):
    """Infer true classes and one confusion matrix per annotator by EM, in log space.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=3e-5
        Stop when the (penalised) log likelihood per annotation grows by less. A smaller value does
        not improve the labels: see the notes.
    confusion_prior : {"hierarchical", "pooled", "diagonal", None}, default="hierarchical"
        Centre of a Dirichlet prior on each row of the confusion matrices, from the counts against
        the vote shares. "hierarchical": the annotator's own accuracy (shrunk to the crowd's, and
        adjusted for how easy the class is), with mistakes distributed like the crowd's. "pooled":
        the confusion matrix of all annotators together. "diagonal": correct with probability
        ``diagonal``. None is maximum likelihood, as published, which is worse than majority vote
        when each annotator gives few labels.
    prior_strength : float or "auto", default="auto"
        Pseudo-annotations of the prior in each row; "auto" chooses the one of 1, 2, 5, 10, 20 with
        the greatest evidence (empirical Bayes).
    diagonal : float in (0, 1), default=0.7
        Probability of a correct annotation at the centre of the "diagonal" prior.
    class_prior : {"estimated", "uniform"}, default="estimated"
        Whether the class shares are estimated, or equal for all classes that occur in annotations
        or gold.
    n_subtypes : int or "auto", default="auto"
        Kinds of instances within a class, each with its own confusions. 1 is the published model.
        2 separates clear instances from those that mislead many annotators at once; otherwise their
        mistakes would count as independent. "auto" chooses 1 or 2 by the greater evidence. It
        chooses 1 without a prior, and with ``dependence="auto"`` also unless the correlation of
        annotators' mistakes is found to be above .05.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, which makes the posterior less certain than under
        independence; 0 is the published model. "auto" estimates it from the annotations, or from
        gold if given (see `manyhands.inference.dependence`).
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with gold were chosen. Gold that was chosen by doubt, as in a review
        queue, may raise the dependence but not lower it. "auto" decides by a rank test
        (`manyhands.inference.gold_samples`).
    accelerate : bool, default=True
        Over-relax the steps of soft EM, which halves their number. The maxima are the same.
    em : {"soft", "hard"}, default="soft"
        Count each instance in all classes by their probabilities, or only in the most probable one
        (classification EM: faster, but it starves rare classes if the class prior is estimated).
    abstentions : {"model", "ignore"}, default="model"
        Whether an annotator's abstentions (`AnnotationTable.abstentions`) are informative: with
        "model" an abstention is one more response with its own probability in each class.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    log_likelihood_ : array of shape (n_iter_,)
        Log likelihood plus log prior after each E-step; it never decreases. With ``em="hard"``, the
        joint likelihood of the annotations and the chosen classes.
    dependence_, dependence_se_ : float
        Correlation of annotators' mistakes and its standard error (0 if it was given).
    n_subtypes_ : int
        Chosen number of subtypes.
    prior_strength_ : float
        Chosen strength of the prior; 0 without a prior.
    rare_class_correction_ : float
        Chosen weight of the correction for rare classes (see the notes); 0 if none.
    evidence_ : dict {n_subtypes: float}
        Log evidence (nats) of each fitted model, as compared by "auto"; empty without a prior.
    abstention_ : array of shape (n_annotators, n_classes)
        Probability of abstaining on an instance of each class; 0 unless modelled.
    severity_, severity_se_ : array of shape (n_annotators,) or None
        For ordered classes: by how many grades each annotator's answers differ from the truth on
        average, and the standard error relative to the other annotators. A positive number means
        that the annotator gives grades that are too high, that is, too late in the order of
        ``classes``; a negative number means grades that are too low. A strict examiner, who gives
        too few points, thus has a negative severity. None for nominal classes, and for two classes.

    Notes
    -----
    EM starts from the vote shares, or from ``start``. The M-step adds the prior's pseudo-counts to
    the expected counts, so EM maximises the likelihood penalised by sum(pseudo-counts * log p). (In
    the evidence the pseudo-counts are the parameters of the Dirichlet itself.) An annotator's
    history is added to the pseudo-counts, but not to the counts that determine the centre of the
    prior, so it does not directly affect other annotators.

    **Rare classes.** Most of the votes for a class with a share of 5 % are mistakes about other
    classes, so counts against the vote shares suggest that annotators hardly recognise it. The
    centre of the hierarchical prior would then keep the class at several times its share. The
    agreement of pairs shows whether vote shares are misleading in this way
    (`manyhands.inference.class_shares`). If so, and there are 2.5 votes per instance or more, EM
    also runs with half of the difference corrected. It then starts from the class shares that the
    agreement implies, whatever ``start`` is. The corrected fit is chosen if its evidence, and also
    that of a fit with the full correction, exceeds that of the uncorrected fit by 5 nats. Nothing
    is corrected with other priors, ``class_prior="uniform"`` or ``em="hard"``.

    **Ordered classes.** With three or more grades (`AnnotationTable.ordered`) ``labels_`` are the
    medians of the posterior, and the model changes in two ways. First, the centre of the
    hierarchical prior has a severity of each annotator, in addition to the accuracy. For annotator
    r it is q_r[c, l] ~ P[c, l] exp(g_r [l = c] + b_r (l - c) / (K - 1)), where P is the crowd's
    matrix, c the true and l the given one of K grades. (g_r, b_r) are fitted to the annotator's
    counts and 5 annotations distributed like the crowd's (`manyhands.inference.severity`). Second,
    the estimated class prior is shrunk to the vote shares v: p_c ~ n_c + .1 n v_c, where n_c is the
    expected number of instances in class c, out of n. Both help most if annotators give few labels
    or agree only a little. A severity that all annotators share cannot be detected without gold.

    **Convergence.** On 21 real tables EM takes 9 iterations with the default ``tol`` and 37 with
    1e-9. The smaller value does not improve the labels (accuracy -.0005 ± .0007, log loss +.003 ±
    .002), although single probabilities may change by up to .5.

    If no instance has two annotations, the accuracy of annotators is not identifiable. The labels
    are then the annotations, with a `NotIdentifiableWarning`.

    References
    ----------
    Dawid & Skene (1979), JRSS C 28(1), Eq. 2.3-2.5. Subtypes: Li, Rubinstein & Cohn (ICML 2019),
    section 4; fitted here by EM and chosen by evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import DawidSkene
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> DawidSkene().fit_predict(A)
    array([0, 1, 0, 1])
    """

    _knows_its_accuracy = True

    severity_: FloatArray | None = None
    severity_se_: FloatArray | None = None

    traits = AggregatorTraits(counts_confusions=True, takes_stores=True)
    model = DawidSkeneModel

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "confusion_prior": [StrOptions({"hierarchical", "pooled", "diagonal"}), None],
        "prior_strength": [NON_NEGATIVE, StrOptions({"auto"})],
        "diagonal": [Interval(Real, 0, 1, closed="neither")],
        "class_prior": [StrOptions({"estimated", "uniform"})],
        "n_subtypes": [COUNT, StrOptions({"auto"})],
        "em": [StrOptions({"soft", "hard"})],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
        "accelerate": ["boolean"],
        "abstentions": [StrOptions({"model", "ignore"})],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 3e-5,
        *,
        confusion_prior: str | None = "hierarchical",
        prior_strength: float | str = "auto",
        diagonal: float = 0.7,
        class_prior: str = "estimated",
        n_subtypes: int | str = "auto",
        em: str = "soft",
        dependence: float | str = "auto",
        gold_sample: str = "auto",
        accelerate: bool = True,
        abstentions: str = "model",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.confusion_prior = confusion_prior
        self.prior_strength = prior_strength
        self.diagonal = diagonal
        self.class_prior = class_prior
        self.n_subtypes = n_subtypes
        self.em = em
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.accelerate = accelerate
        self.abstentions = abstentions
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        self._fit_votes(votes, start, self._known_labels())

    def _fit_votes(self, votes: AllVotes, start: Any, known: KnownLabels | None) -> None:
        """Set the fitted attributes; ``known`` labels say how far annotators' mistakes depend."""
        prior = self._prior()
        run, found = self._choose(votes, start, prior)
        self.prior_strength_ = run.strength
        self.rare_class_correction_ = 0.0 if run.correction is None else run.correction.weight
        self._set_history(run.history)
        self._set_fitted(run.parameters, votes)
        self._read_out(votes, start, run, found, known)
        self._set_severity(run, prior, votes)

    def _choose(
        self, votes: AllVotes, start: Any, prior: ConfusionPrior
    ) -> tuple[ConfusionRun, Dependence]:
        """Return the fit with the number of subtypes that has most evidence, and the dependence.

        The shards of all fits, with their matrices, are freed before the posterior is read out.
        """
        em = ConfusionEM(
            prior, self.class_prior, self.max_iter, self.tol, self.em == "hard", self.accelerate
        )
        fits = Fits(em, votes, votes.shards(), start)
        found = Dependence(0.0, 0.0)
        if self.dependence == "auto":
            found = estimate(votes, fits.run(), em)
        elif self.dependence != 0:
            found = Dependence(float(self.dependence), 0.0)
        runs = {n: fits.run(n) for n in self._choices(prior, found)}
        evidence = {n: run.evidence for n, run in runs.items()}
        self.n_subtypes_ = max(evidence, key=lambda n: (evidence[n], -n))
        self.evidence_ = evidence if prior.is_used else {}
        return runs[self.n_subtypes_], found

    def _prior(self) -> ConfusionPrior:
        return ConfusionPrior(self.confusion_prior, self.prior_strength, self.diagonal)

    def _choices(self, prior: ConfusionPrior, found: Dependence) -> tuple[int, ...]:
        """Return the numbers of subtypes to compare."""
        if self.n_subtypes != "auto":
            return (int(self.n_subtypes),)
        is_needed = self.dependence != "auto" or found.is_plausible
        return (1, 2) if prior.is_used and is_needed else (1,)

    def _read_out(
        self,
        votes: AllVotes,
        start: Any,
        run: ConfusionRun,
        found: Dependence,
        known: KnownLabels | None,
    ) -> None:
        """Set the dependence and the posterior, which may overwrite ``start``."""
        joint = OwnRemoved(run)
        if self.dependence == "auto":
            found = refine(found, votes, joint, known)
        else:
            found = replace(found, sample=judged(known, votes, found.rho))
        self._set_dependence(found)
        out = votes.posterior_rows(start)
        if self.dependence == 0:
            self._fill(out, votes.once())
        else:
            fill_rows(out, votes.once(), _corrected, joint, found.rho, self.class_prior_)
        self.posterior_ = out
        self._unaided: FloatArray | None = None
        if known is not None and len(known.sampled_rows):
            part = votes.select(known.sampled_rows)
            power: FloatArray = exponents(part, found.rho)[:, None]
            self._unaided = np.asarray(softmax(power * joint(part), axis=1))

    def _without_gold(self, votes: Votes) -> FloatArray | None:
        # Computed in the fit, which can remove an instance's own part from the parameters.
        return self._unaided

    def _set_fitted(self, parameters: ConfusionParams, votes: AllVotes) -> None:
        """Set the fitted attributes, with the model's states summed by class."""
        self._model, n_classes = parameters, votes.n_classes
        by_class = self._model.prior.reshape(n_classes, self.n_subtypes_)
        self.class_prior_ = by_class.sum(axis=1)
        shares = normalise_rows(by_class)

        def by_true_class(states: FloatArray) -> FloatArray:
            states = states.reshape(len(states), *by_class.shape, -1)
            return np.asarray(np.einsum("cm,rcmk->rck", shares, states))

        def abstaining(responses: FloatArray) -> FloatArray:
            return np.asarray(responses[:, :, n_classes:].sum(axis=2))

        responses = map_rows(by_true_class, self._model.responses)
        self.confusion_ = as_array(
            map_rows(lambda rows: normalise_rows(rows[:, :, :n_classes]), responses)
        )
        self.abstention_ = map_rows(abstaining, responses)

    def _set_severity(self, run: ConfusionRun, prior: ConfusionPrior, votes: AllVotes) -> None:
        """Set the severities of annotators and their standard errors, for ordered classes."""
        self.severity_ = self.severity_se_ = None
        if not votes.ordered:
            return
        given, n_classes = run.vote_counts.confusion, votes.n_classes
        self.severity_ = severity(self.confusion_, self.class_prior_)
        self.severity_se_ = severity_error(
            run.counts.confusion,
            run.pseudo_counts,
            given,
            run.parameters.prior,
            n_classes,
            prior.tilt(given, n_classes),
            sum_over_shards(doubt_of_grades, votes.answers.once(), rows=(self.posterior_,)),
        )

    @property
    def _sent(self) -> tuple[FloatArray, Any]:
        return self._model.prior, self._model.sent[1]


def _corrected(shard: Votes, joint: OwnRemoved, rho: float, prior: FloatArray) -> FloatArray:
    """Return the posterior of a shard, allowing for correlated mistakes, shape (n, C)."""
    posterior, _ = normalise_joint(shard, joint(shard), exponents(shard, rho))
    posterior[~shard.voted] = prior
    return posterior
