"""The rounds of a stack: members, temperatures, weights, posterior, parity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.utils import gen_batches

from manyhands.classifiers.stacking.crowd import (
    asked,
    class_shares_of_votes,
    competences,
    estimate_abstention,
    estimate_confusions,
    joint_log_proba,
    parity,
    posterior_with_shares,
    prior_shrinkage,
)
from manyhands.classifiers.stacking.members import Folded, LeftOneOut, Option
from manyhands.classifiers.stacking.reading_out import Judges, ReadOut, read_out
from manyhands.classifiers.stacking.stack import (
    Annotated,
    TemperedMember,
    choose_temperature,
    stack_weights,
    stacked,
    temper,
)
from manyhands.inference.confusions import log_likelihoods
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import Votes, clamp_to_gold, vote_shares
from manyhands.typing import FloatArray

ROWS_FOR_CALIBRATION = 20_000
"""Random instances whose annotations decide temperatures and weights."""

BATCH = 8192
"""Instances whose members are combined at once."""

VOTE_SHARE = 0.5
"""Weight of the vote shares in the targets, where annotators know more than the features tell."""


DOUBT = 1e-3
"""Likelihood of a known label given any other class, relative to that given its own."""


class Settings(NamedTuple):
    """The constants of a round; see `CrowdStackingClassifier`."""

    classifier_weight: float
    crowd_strength: float
    class_prior: str | FloatArray
    vote_share: float | str


@dataclass(frozen=True)
class Round:
    """What a round found.

    Attributes
    ----------
    members : list of TemperedMember
    log_proba : array of shape (n, n_classes)
        What the stack says of each instance without its own targets.
    confusion : array of shape (n_annotators, n_classes, n_classes)
        Confusion matrices of the round.
    posterior : array of shape (n, n_classes)
    log_likelihood : float
        Of an annotation, under the stack's predictions without the instance's own targets; mean.
    shares, free_shares : arrays of shape (n_classes,)
        Class shares of the posterior, and those that it would have had without a class prior.
    parity : float or None
    vote_share : float
        Weight of the vote shares in the targets of the members.
    """

    members: list[TemperedMember]
    log_proba: FloatArray
    confusion: FloatArray
    posterior: FloatArray
    log_likelihood: float
    shares: FloatArray
    free_shares: FloatArray
    parity: float | None
    vote_share: float


class Rounds:
    """Runs rounds, each from the posterior of the one before.

    Parameters
    ----------
    votes : Votes
        Of instances that all have annotations or gold. Abstentions, if any, are evidence of the
        class.
    members : sequence of Folded or LeftOneOut
        Prepared on the instances.
    settings : Settings
    rng : numpy Generator
        Draws the instances for calibration, if there are more than 20,000.
    start : array of shape (n, n_classes), optional
        The first posterior; the vote shares by default.

    Attributes
    ----------
    posterior : array of shape (n, n_classes)
    shrinkage : float or None
        See `prior_shrinkage`; 1 for equally frequent classes, 0 for shares as they turn out, None
        for given shares.
    next_vote_share : float
        Weight of the vote shares in the targets of the next round (mu).
    judged : integer array, or slice of all
        Rows whose annotations judge the members.
    judges : Votes
        The votes of those rows.
    """

    def __init__(
        self,
        votes: Votes,
        members: Sequence[Folded | LeftOneOut],
        settings: Settings,
        rng: np.random.Generator,
        start: FloatArray | None = None,
    ) -> None:
        self.asked = asked(votes)
        self.votes = votes = votes.answers
        self.members, self.settings, self.rng = members, settings, rng
        self.vote_shares = vote_shares(votes)
        self.posterior = self.vote_shares if start is None else clamp_to_gold(votes, start.copy())
        self.next_vote_share = 0.0
        self.shrinkage = _shrinkage(votes, settings.class_prior)
        n = votes.n_instances
        self.judged: Any = slice(None)
        self.judges = votes
        if n > ROWS_FOR_CALIBRATION:
            self.judged = np.sort(rng.permutation(n)[:ROWS_FOR_CALIBRATION])
            self.judges = votes.select(self.judged)

    def run(self) -> Round:
        """Run one round; ``posterior`` is then the one it found."""
        settings, votes = self.settings, self.votes
        # Step 1: confusion matrices.
        confusion = self.confusion(self.posterior)
        # Step 2: members, fitted to targets of which the vote shares have the weight mu (mix).
        mix, before = self.next_vote_share, self.posterior
        targets = (1 - mix) * self.posterior + mix * self.vote_shares
        # Step 3: temperatures (with each member, as it is fitted) and weights.
        annotated = self._annotated(confusion)
        chosen = [
            _choose(member.options(targets), self.judged, annotated) for member in self.members
        ]
        weights = stack_weights(np.stack([part.judged for part in chosen]), annotated)
        log_proba = _stacked(chosen, weights, targets.shape)
        # Step 4: posterior.
        joint = joint_log_proba(votes, log_proba, confusion, settings.classifier_weight)
        joint += self._abstained(before)
        self.posterior, free_shares = self._posterior(joint)
        # Step 5: parity rho (telling).
        shares = self.posterior.mean(axis=0)
        competence = competences(confusion, shares)
        telling = parity(votes, log_proba.argmax(axis=1), competence)
        self.next_vote_share = self._vote_share(telling)
        evidence = np.log(annotated.given(np.exp(log_proba[self.judged])))
        return Round(
            [
                TemperedMember(part.option.predictor, part.temperature, float(weight))
                for part, weight in zip(chosen, weights, strict=True)
            ],
            log_proba,
            confusion,
            self.posterior,
            float(np.average(evidence, weights=annotated.weight)),
            shares,
            free_shares,
            telling,
            mix,
        )

    def read_out(self, found: Round, rho: float) -> ReadOut:
        """Posterior of the instances after the last round, from what a round's stack says of them.

        Parameters
        ----------
        found : Round
        rho : float
            Correlation of the annotators' mistakes (not parity, which step 5 calls rho).
        """
        return read_out(
            self.votes,
            found.log_proba,
            found.posterior,
            Judges.drawn(self.votes, self.rng),
            rho=rho,
            strength=self.settings.crowd_strength,
            parity=found.parity,
            settle=self._settled,
            annotating=self._abstained,
        )

    def confusion(self, posterior: FloatArray) -> FloatArray:
        """Confusion matrices under a posterior, (n_annotators, true, given)."""
        return estimate_confusions(self.votes, posterior, self.settings.crowd_strength)

    def abstention(self, posterior: FloatArray) -> FloatArray | None:
        """Probability to abstain under a posterior, (n_annotators, n_classes)."""
        if self.asked is None:
            return None
        strength = self.settings.crowd_strength
        return estimate_abstention(self.asked, posterior, strength)[:, :, 1]

    def _abstained(self, posterior: FloatArray) -> FloatArray | float:
        """What abstaining and answering say of the class, in log likelihoods (n, n_classes)."""
        if self.asked is None:
            return 0.0
        found = estimate_abstention(self.asked, posterior, self.settings.crowd_strength)
        return log_likelihoods(self.asked, floored_log(found))

    def _annotated(self, confusion: FloatArray) -> Annotated:
        """What judges the members; a known label is an annotation that is all but certain."""
        votes = self.judges
        likelihood = confusion[votes.annotator, :, votes.response]
        if votes.gold is None:
            return Annotated(votes.instance, likelihood, votes.weight)
        known = np.flatnonzero(votes.gold >= 0)
        certain = np.full((len(known), votes.n_classes), DOUBT)
        certain[np.arange(len(known)), votes.gold[known]] = 1.0
        weight = votes.weight
        return Annotated(
            np.concatenate([votes.instance, known]),
            np.concatenate([likelihood, normalise_rows(certain)]),
            None if weight is None else np.concatenate([weight, np.ones(len(known))]),
        )

    def _posterior(self, joint: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Posterior, with the wanted class shares among unknown labels, and the shares before."""
        free = clamp_to_gold(self.votes, softmax(joint, axis=1)).mean(axis=0)
        wanted, gold = self._wanted_shares(free), self.votes.gold
        if gold is None:
            return posterior_with_shares(joint, wanted), free
        posterior = clamp_to_gold(self.votes, np.zeros_like(joint))
        if (rest := gold < 0).any():
            posterior[rest] = posterior_with_shares(joint[rest], wanted)
        return posterior, free

    def _settled(self, joint: FloatArray) -> FloatArray:
        """Posterior with known labels, and with the class shares if the user gave any."""
        given = self.settings.class_prior
        if isinstance(given, str) and given != "uniform":
            return clamp_to_gold(self.votes, softmax(joint, axis=1))
        return self._posterior(joint)[0]

    def _wanted_shares(self, free: FloatArray) -> FloatArray | None:
        """Class shares that the posterior must have; None if it may have any."""
        given = self.settings.class_prior
        if not isinstance(given, str):
            return given
        if not self.shrinkage:
            return None
        return (1 - self.shrinkage) * free + self.shrinkage / len(free)

    def _vote_share(self, telling: float | None) -> float:
        given = self.settings.vote_share
        if isinstance(given, str):
            return 0.0 if telling is not None and telling > 1 else VOTE_SHARE
        return given


def _shrinkage(votes: Votes, class_prior: str | FloatArray) -> float | None:
    """How far the classes are taken to be equally frequent; None if their shares are given."""
    if not isinstance(class_prior, str):
        return None
    if class_prior != "auto":
        return 1.0 if class_prior == "uniform" else 0.0
    # Known labels tell the shares, and anchor the confusion matrices, which tell the rest.
    unknown = 1.0 if votes.gold is None else float(np.mean(votes.gold < 0))
    return prior_shrinkage(class_shares_of_votes(votes), votes.n_instances) * unknown


class Chosen(NamedTuple):
    """A member's most likely option.

    Attributes
    ----------
    option : Option
    temperature : float
    judged : array of shape (m, n_classes)
        Its tempered log probabilities of the instances that decide temperatures and weights.
    """

    option: Option
    temperature: float
    judged: FloatArray


def _choose(options: list[Option], judged: Any, annotated: Annotated) -> Chosen:
    """Find the option, and its temperature, under which the annotations are most likely."""
    shown = [option.log_proba[judged] for option in options]
    found = [choose_temperature(log_proba, annotated) for log_proba in shown]
    best = max(range(len(options)), key=lambda place: found[place][1])
    temperature = found[best][0]
    return Chosen(options[best], temperature, temper(shown[best], temperature))


def _stacked(chosen: list[Chosen], weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Log probabilities of all instances under the stack, shape (n, n_classes)."""
    log_proba = np.empty(shape)
    for rows in gen_batches(shape[0], BATCH):
        parts = [temper(part.option.log_proba[rows], part.temperature) for part in chosen]
        log_proba[rows] = stacked(np.stack(parts), weights)
    return log_proba
