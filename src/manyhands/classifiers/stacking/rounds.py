"""The fit of a stack: its members, its rounds, and the fitted attributes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.base import clone
from sklearn.utils import gen_batches

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.stacking.crowd import (
    asked,
    class_shares_of_votes,
    competences,
    crowd_confusion,
    estimate_abstention,
    estimate_confusions,
    joint_log_proba,
    posterior_with_shares,
    prior_shrinkage,
    relative_informedness,
)
from manyhands.classifiers.stacking.members import (
    Folded,
    LeftOneOut,
    Member,
    Option,
    as_member,
    automatic_members,
)
from manyhands.classifiers.stacking.prior import doubts_of, read_class_prior
from manyhands.classifiers.stacking.reading_out import Judges, StackReadOut, annotators_of, read_out
from manyhands.classifiers.stacking.stack import (
    Annotated,
    FittedStack,
    TemperedMember,
    choose_exponent,
    stack_weights,
    stacked,
    temper,
)
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning, warn_caller
from manyhands.fitting.fitted import Fitted
from manyhands.fitting.reading import take_rows
from manyhands.inference.confusion_prior import pool_confusions
from manyhands.inference.confusions import log_likelihoods
from manyhands.inference.dependence import dependence_of
from manyhands.inference.gold_samples import KnownLabels
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import Votes, clamp_to_gold, make_votes, vote_shares
from manyhands.metrics.sample_levels import contradiction
from manyhands.training.progress import History, ProgressBar
from manyhands.training.seeding import draw_seed, set_random_states
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

ROWS_FOR_CALIBRATION = 20_000
"""Number of random instances with the annotations that choose exponents and weights."""

COMBINED_AT_ONCE = 8192
"""Number of instances for which members are combined at once."""

VOTE_SHARE = 0.5
"""Weight of the vote shares in the targets if annotators are more informative than features."""


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
    """The result of a round.

    Attributes
    ----------
    members : list of TemperedMember
    log_proba : array of shape (n, n_classes)
        Out-of-fold log probabilities of the stack, without the instance's own targets.
    confusion : array of shape (n_annotators, n_classes, n_classes)
        Confusion matrices of the round.
    posterior : array of shape (n, n_classes)
    log_likelihood : float
        Mean of an annotation, under the stack's out-of-fold predictions.
    shares, free_shares : arrays of shape (n_classes,)
        Class shares of the posterior, and those that it would have had without a class prior.
    relative_informedness : float or None
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
    relative_informedness: float | None
    vote_share: float


class Rounds:
    """Run rounds, each from the posterior of the previous one.

    Parameters
    ----------
    votes : Votes
        Votes on instances that all have annotations or gold. Any abstentions are evidence of the
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
        See `prior_shrinkage`; 1 for equally frequent classes, 0 for unconstrained shares, None for
        given shares.
    next_vote_share : float
        Weight of the vote shares in the targets of the next round (mu).
    judged : integer array, or slice of all
        Rows with the annotations by which the members are evaluated.
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
        """Run one round, and set ``posterior``."""
        settings, votes = self.settings, self.votes
        # Step 1: confusion matrices.
        confusion = self.confusion(self.posterior)
        # Step 2: members, fitted to targets of which the vote shares have the weight mu (mix).
        mix, before = self.next_vote_share, self.posterior
        targets = (1 - mix) * self.posterior + mix * self.vote_shares
        # Step 3: exponents (with each member, as it is fitted) and weights.
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
        # Step 5: relative informedness rho.
        shares = self.posterior.mean(axis=0)
        competence = competences(confusion, shares)
        informedness = relative_informedness(votes, log_proba.argmax(axis=1), competence)
        self.next_vote_share = self._vote_share(informedness)
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
            informedness,
            mix,
        )

    def read_out(self, found: Round, rho: float) -> StackReadOut:
        """Return the calibrated posterior after the last round, with a given round's stack.

        Parameters
        ----------
        found : Round
        rho : float
            Correlation of the annotators' mistakes (not relative informedness, which
            step 5 calls rho).

        Returns
        -------
        ReadOut
        """
        return read_out(
            self.votes,
            found.log_proba,
            found.posterior,
            Judges.drawn(self.votes, self.rng),
            rho=rho,
            strength=self.settings.crowd_strength,
            relative_informedness=found.relative_informedness,
            settle=self._settled,
            annotating=self._abstained,
        )

    def confusion(self, posterior: FloatArray) -> FloatArray:
        """Return the confusion matrices under a posterior, (n_annotators, true, given)."""
        return estimate_confusions(self.votes, posterior, self.settings.crowd_strength)

    def abstention(self, posterior: FloatArray) -> FloatArray | None:
        """Return the probability to abstain under a posterior, (n_annotators, n_classes)."""
        if self.asked is None:
            return None
        strength = self.settings.crowd_strength
        return estimate_abstention(self.asked, posterior, strength)[:, :, 1]

    def _abstained(self, posterior: FloatArray) -> FloatArray | float:
        """Return the log likelihoods (n, n_classes) of abstaining and answering."""
        if self.asked is None:
            return 0.0
        found = estimate_abstention(self.asked, posterior, self.settings.crowd_strength)
        return log_likelihoods(self.asked, floored_log(found))

    def _annotated(self, confusion: FloatArray) -> Annotated:
        """Return the annotations that evaluate members; a known label is a nearly certain one."""
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
        """Return the posterior with the required class shares, and its shares without them."""
        free = clamp_to_gold(self.votes, softmax(joint, axis=1)).mean(axis=0)
        wanted, gold = self._wanted_shares(free), self.votes.gold
        if gold is None:
            return posterior_with_shares(joint, wanted), free
        posterior = clamp_to_gold(self.votes, np.zeros_like(joint))
        if (rest := gold < 0).any():
            posterior[rest] = posterior_with_shares(joint[rest], wanted)
        return posterior, free

    def _settled(self, joint: FloatArray) -> FloatArray:
        """Return the posterior with known labels, and with the user's class shares if given."""
        given = self.settings.class_prior
        if isinstance(given, str) and given != "uniform":
            return clamp_to_gold(self.votes, softmax(joint, axis=1))
        return self._posterior(joint)[0]

    def _wanted_shares(self, free: FloatArray) -> FloatArray | None:
        """Return the class shares that the posterior must have; None if it is unconstrained."""
        given = self.settings.class_prior
        if not isinstance(given, str):
            return given
        if not self.shrinkage:
            return None
        return (1 - self.shrinkage) * free + self.shrinkage / len(free)

    def _vote_share(self, informedness: float | None) -> float:
        given = self.settings.vote_share
        if isinstance(given, str):
            return 0.0 if informedness is not None and informedness > 1 else VOTE_SHARE
        return given


def _shrinkage(votes: Votes, class_prior: str | FloatArray) -> float | None:
    """Return the degree to which equal class shares are assumed; None if shares are given."""
    if not isinstance(class_prior, str):
        return None
    if class_prior != "auto":
        return 1.0 if class_prior == "uniform" else 0.0
    # Known labels identify the shares directly, and through the confusion matrices.
    unknown = 1.0 if votes.gold is None else float(np.mean(votes.gold < 0))
    return prior_shrinkage(class_shares_of_votes(votes), votes.n_instances) * unknown


class Chosen(NamedTuple):
    """A member's most likely option.

    Attributes
    ----------
    option : Option
    temperature : float
        Exponent of its probabilities.
    judged : array of shape (m, n_classes)
        Its log probabilities, raised to this exponent, of the instances that choose exponents and
        weights.
    """

    option: Option
    temperature: float
    judged: FloatArray


def _choose(options: list[Option], judged: Any, annotated: Annotated) -> Chosen:
    """Return the option, and its exponent, with the highest likelihood of the annotations."""
    shown = [option.log_proba[judged] for option in options]
    found = [choose_exponent(log_proba, annotated) for log_proba in shown]
    best = max(range(len(options)), key=lambda place: found[place][1])
    temperature = found[best][0]
    return Chosen(options[best], temperature, temper(shown[best], temperature))


def _stacked(chosen: list[Chosen], weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return the log probabilities of all instances under the stack, shape (n, n_classes)."""
    log_proba = np.empty(shape)
    for rows in gen_batches(shape[0], COMBINED_AT_ONCE):
        parts = [temper(part.option.log_proba[rows], part.temperature) for part in chosen]
        log_proba[rows] = stacked(np.stack(parts), weights)
    return log_proba


# -- one fit: its members, its rounds, and the attributes that they give a model ------------------


_LOG = logging.getLogger("manyhands")

LATER_ROUNDS = 2
"""Number of rounds of a partial fit."""

N_SAMPLED = 20_000
"""Largest number of training instances in the mean prediction."""

MANY_CLASSES = 10
"""Number of classes above which the posterior uses the first round's stack instead of the last
one's (see `_round_of_posterior`)."""


@dataclass(frozen=True)
class StackFindings:
    """The result of a fit.

    Attributes
    ----------
    members : list of Member
    annotated : integer array of shape (m,)
        Rows that have annotations or a known label: those of the rounds.
    seen : integer array
        Codes of the classes that have annotations or known labels.
    rounds : Rounds
    first, last : Round
    stack : FittedStack
    history : History
    known : KnownLabels or None
        Gold of the annotated rows.
    """

    members: list[Member]
    annotated: IntArray
    seen: IntArray
    rounds: Rounds
    first: Round
    last: Round
    stack: FittedStack
    history: History
    known: KnownLabels | None = None


def fit_rounds(
    model: Any,
    X: Any,
    table: AnnotationTable,
    belief: FloatArray | None = None,
    *,
    gold: IntArray | None = None,
    random_gold: BoolArray | None = None,
    later: bool = False,
) -> StackFindings:
    """Fit the members and run the rounds.

    Parameters
    ----------
    model : CrowdStackingClassifier
        With checked parameters.
    X : array or sparse matrix of shape (n, ...)
    table : AnnotationTable
        Its instances are the rows of X.
    belief : array of shape (n, n_classes), optional
        Initial class probabilities; default: the vote shares.
    gold : integer array of shape (n,), optional
        Known class codes, -1 where unknown.
    random_gold : boolean array of shape (n,), optional
        Whether they were drawn at random.
    later : bool
        Whether the belief is that of an earlier fit, so that a few rounds suffice and all count.

    Returns
    -------
    Findings

    Raises
    ------
    AnnotationError
        If a single instance has annotations, or ``class_prior`` is unusable.
    """
    n_rounds = min(LATER_ROUNDS, model.n_rounds) if later else model.n_rounds
    rng = np.random.default_rng(draw_seed(model.random_state))
    votes = make_votes(table, gold=gold, abstentions=model.abstentions == "model")
    annotated = np.flatnonzero(votes.answers.voted)
    if len(annotated) < 2:
        raise AnnotationError("y has annotations of one instance only; annotate two or more")
    counts = np.bincount(votes.response, minlength=table.n_classes)
    counts = counts[: table.n_classes]
    if gold is not None:
        counts = counts + np.bincount(gold[gold >= 0], minlength=table.n_classes)
    seen = np.flatnonzero(counts)
    votes = _with_classes(votes.select(annotated), seen)
    inside = take_rows(X, annotated) if len(annotated) < table.n_instances else X
    members = _make_members(model, inside, rng)
    folds = rng.permutation(np.arange(len(annotated)) % min(model.n_folds, len(annotated)))
    prepared = [member.fitted_on(inside, folds) for member in members]
    settings = Settings(
        model.classifier_weight,
        model.crowd_strength,
        read_class_prior(model.class_prior, table.classes, seen),
        model.vote_share,
    )
    start = None if belief is None else normalise_rows(belief[annotated][:, seen])
    rounds = Rounds(votes, prepared, settings, rng, start)
    names = [member.name for member in members]
    history, found = History(), list[list[TemperedMember]]()
    first: Round | None = None
    bar = ProgressBar(type(model).__name__) if model.verbose else None
    try:
        if bar is not None:
            bar.on_stage_begin("round", n_rounds, 0)
        for number in range(n_rounds):
            began = perf_counter()
            last = rounds.run()
            first = first or last
            found.append(last.members)
            row = _history_row(number + 1, last, names, table.classes[seen])
            history.append({**row, "seconds": perf_counter() - began})
            if bar is not None:
                bar.on_epoch_end(len(history), history[-1])
    finally:
        if bar is not None:
            bar.on_training_end()
    stack = FittedStack.of(members, found if later else found[1:] or found, seen, table.n_classes)
    assert first is not None
    known = None
    if votes.gold is not None:
        drawn = None if random_gold is None else random_gold[annotated]
        known = KnownLabels(votes.gold, model.gold_sample, drawn)
    return StackFindings(members, annotated, seen, rounds, first, last, stack, history, known)


def _make_members(model: Any, X: Any, rng: np.random.Generator) -> list[Member]:
    if isinstance(model.members, str):
        return automatic_members(X, model.n_landmarks, int(rng.integers(2**31)))
    made = []
    for name, estimator, *view in model.members:
        member = set_random_states(clone(as_member(name, estimator)), rng)
        shown = set_random_states(clone(view[0]), rng) if view and view[0] is not None else None
        made.append(Member(name, member, shown))
    return made


def _history_row(
    number: int, found: Round, names: Sequence[str], classes: AnyArray
) -> dict[str, Any]:
    nll = -found.log_likelihood
    shares = zip(classes.tolist(), found.shares.tolist(), strict=True)
    weights = zip(names, (part.weight for part in found.members), strict=True)
    return {
        "stage": "round",
        "epoch": number,
        "nll": nll,
        "loss": nll,
        "relative_informedness": found.relative_informedness,
        "vote_share": found.vote_share,
        **{f"share_{name}": share for name, share in shares},
        **{f"weight_{name}": weight for name, weight in weights},
    }


def fitted_by(
    model: Any, findings: StackFindings, X: Any, table: AnnotationTable, **more: Any
) -> Fitted:
    """Return the fitted attributes of a stack after its rounds.

    The posterior uses the predictions of the last round's stack, or of the first round's if these
    are safer (`_round_of_posterior`). New instances are predicted by the later rounds.

    Parameters
    ----------
    model : CrowdStackingClassifier
        Gives the parameters.
    findings : StackFindings
    X : array of shape (n, ...)
    table : AnnotationTable
    **more : object
        Fitted attributes from before the rounds, such as the encoder.

    Returns
    -------
    Fitted

    Warns
    -----
    NotIdentifiableWarning
        If the known labels that were drawn at random contradict the others.
    """
    rounds, last, seen = findings.rounds, findings.last, findings.seen
    n, n_annotators, n_classes = table.n_instances, table.n_annotators, table.n_classes
    dependence = dependence_of(model.dependence, rounds.votes, rounds.vote_shares, findings.known)
    sample = dependence.sample
    note = sample.note() if sample is not None and sample.kind == "chosen" else None
    if note is not None:
        _LOG.info("%s", note)
    belief = np.zeros((n, n_classes))
    out = rounds.read_out(_round_of_posterior(findings), dependence.rho)
    belief[np.ix_(findings.annotated, seen)] = out.posterior
    # A class without annotations gets the crowd's matrix of zero counts, with a high diagonal.
    unknown = crowd_confusion(np.zeros((1, n_classes, n_classes)))
    confusion = np.tile(unknown, (n_annotators, 1, 1))
    confusion[:, seen] = 0.0
    confusion[np.ix_(np.arange(n_annotators), seen, seen)] = rounds.confusion(out.posterior)
    confusion, pooled = pool_confusions(confusion, table, belief, pseudo_annotations=0.0)
    annotators_seen = table.annotations_per_annotator() > 0
    abstention = np.zeros((n_annotators, n_classes))
    abstaining = rounds.abstention(out.posterior)
    if abstaining is not None:
        abstention[:, seen] = abstaining
    is_known = np.zeros(n, dtype=bool)
    if findings.known is not None:
        is_known[findings.annotated] = findings.known.codes >= 0
    drawn: Any = [] if findings.known is None else findings.known.sampled_rows
    drawn = np.asarray(drawn, dtype=np.int64)
    sampled = np.zeros((len(drawn), n_classes))
    sampled[:, seen] = out.unclamped[drawn]
    contradicted = None
    if len(drawn):
        codes = np.asarray(seen)[findings.known.codes[drawn]]  # type: ignore[union-attr]
        given = np.zeros(n, dtype=bool)
        given[findings.annotated] = True
        contradicted = contradiction(
            sampled.argmax(axis=1) == codes,
            findings.annotated[drawn],
            sampled.max(axis=1),
            belief.max(axis=1),
            given & ~is_known,
        )
        if contradicted is not None:
            warn_caller(contradicted, NotIdentifiableWarning)
    shares = belief[findings.annotated].mean(axis=0)
    stack = replace(findings.stack, exponent=out.new_exponent)
    rest = np.setdiff1d(np.arange(n), findings.annotated)
    if len(rest):
        belief[rest] = stack.predict_proba(take_rows(X, rest))
    parts = {member.name: part for member, part in zip(findings.members, last.members, strict=True)}
    found = {
        "gold_sample_": None if sample is None else sample.kind,
        "gold_p_value_": None if sample is None else sample.p_value,
        "gold_note_": note,
        "annotators_seen_": annotators_seen,
        "pooled_confusion_": pooled,
        "confusion_": np.where(annotators_seen[:, None, None], confusion, pooled),
        "abstention_": abstention,
        "is_known_": is_known,
        "sampled_rows_": findings.annotated[drawn],
        "sampled_posterior_": sampled,
        "sample_note_": contradicted,
        "class_prior_": shares,
        "stack_": stack,
        "prediction_prior_": _mean_prediction(stack, X, findings.annotated),
        "posterior_": belief,
        "dependence_": dependence.rho,
        "posterior_exponent_": out.exponent,
        "prediction_exponent_": out.new_exponent,
        "prior_shrinkage_": rounds.shrinkage,
        "relative_informedness_": last.relative_informedness,
        "vote_share_": last.vote_share,
        "member_weights_": {name: part.weight for name, part in parts.items()},
        "member_temperatures_": {name: part.temperature for name, part in parts.items()},
        "doubts_": doubts_of(
            model,
            table,
            findings.history,
            findings.first.free_shares,
            shrinkage=rounds.shrinkage,
            relative_informedness=last.relative_informedness,
            n_annotators=annotators_of(rounds.votes),
        ),
    }
    return Fitted(None, findings.history, more | found)


def _mean_prediction(stack: Any, X: Any, rows: IntArray) -> FloatArray:
    """Return the mean prediction for some rows of X, or a sample of them, shape (n_classes,)."""
    if len(rows) > N_SAMPLED:
        rows = np.sort(np.random.default_rng(0).choice(rows, N_SAMPLED, replace=False))
    return np.asarray(stack.predict_proba(take_rows(X, rows)).mean(axis=0))


def _round_of_posterior(findings: StackFindings) -> Round:
    """Return the round whose stack enters the posterior: the last one, or the first.

    The first round's members learn from the votes alone, so their leave-one-out predictions are out
    of fold. Later ones also learn from earlier predictions of the stack (leakage), and repeat its
    mistakes. This matters with few annotations per class (more than `MANY_CLASSES` classes;
    docs/results/flagship.md, Many classes), and if most instances have a single annotation, unless
    the classifier is known to be more informative than an annotator.
    """
    n_annotators = annotators_of(findings.rounds.votes)
    single = np.mean(n_annotators[n_annotators > 0] == 1) > 0.5
    informedness = findings.last.relative_informedness
    doubted = single and (informedness is None or informedness < 1)
    return findings.first if doubted or len(findings.seen) > MANY_CLASSES else findings.last


def _with_classes(votes: Votes, seen: IntArray) -> Votes:
    """Return the votes over the classes that have any; an abstention follows the last class."""
    codes = np.full(votes.n_classes + 1, len(seen), dtype=votes.response.dtype)
    codes[seen] = np.arange(len(seen))
    more = votes.n_responses - votes.n_classes
    gold = votes.gold
    return replace(
        votes,
        response=codes[votes.response],
        n_classes=len(seen),
        n_responses=len(seen) + more,
        gold=None if gold is None else np.where(gold >= 0, codes[gold], -1),
    )


def earlier_belief(model: Any, table: AnnotationTable) -> FloatArray:
    """Return the posterior (n, n_classes) of annotations by an earlier fit's confusion matrices.

    The annotators of the earlier fit come first in the table; the others get the matrix of the
    crowd. Its classifier is not used: fitted to few instances, it would confirm its own mistakes.
    """
    new = np.repeat(model.pooled_confusion_[None], table.n_annotators - model.n_annotators_, axis=0)
    confusion = np.concatenate([model.confusion_, new])
    return softmax(log_likelihoods(make_votes(table), floored_log(confusion)), axis=1)


def belief_of(start: Any, X: Any, table: AnnotationTable) -> FloatArray:
    """Return another stack's class probabilities of the user's X, shape (n, n_classes).

    Raises
    ------
    AnnotationError
        If ``start`` is not a fitted stack, or has other classes.
    """
    if not hasattr(start, "stack_"):
        raise AnnotationError(
            f"start is a {type(start).__name__} without a stack; give a fitted "
            "CrowdStackingClassifier"
        )
    if not np.array_equal(start.classes_, table.classes):
        raise AnnotationError(
            f"start knows the classes {start.classes_.tolist()}, but y has "
            f"{table.classes.tolist()}; give a model of the same classes"
        )
    belief: FloatArray = start.predict_proba(X)
    return belief
