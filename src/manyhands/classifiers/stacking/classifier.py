"""Crowd-calibrated stacking: several simple classifiers and the annotators, weighed by each other.

The recipe is the library's own (docs/methods/crowd_stacking.md). Nothing in it sees a gold label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Self, cast

import numpy as np
from scipy.stats import chi2
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.stacking.automatic import automatic_members
from manyhands.classifiers.stacking.encoding import fit_encoder, read_rows
from manyhands.classifiers.stacking.members import Member, as_member
from manyhands.classifiers.stacking.rounds import Round, Rounds, Settings
from manyhands.classifiers.stacking.saving import read_stack, write_stack
from manyhands.classifiers.stacking.stack import FittedStack, TemperedMember
from manyhands.decision.rules import apply_rule, check_rule
from manyhands.exceptions import AnnotationError, ModelChoiceWarning, all_or_nothing, warn_caller
from manyhands.fitting import scoring
from manyhands.fitting.lost_classes import warn_of_lost_classes
from manyhands.fitting.parameters import refuse_classes
from manyhands.fitting.pooling import pool_confusions
from manyhands.fitting.reading import (
    check_learnable,
    check_rows,
    find_annotators,
    read_target,
    set_vocabularies,
    table_of,
    take_rows,
)
from manyhands.fitting.telling_columns import warn_of_telling_columns
from manyhands.inference.dependence import DEPENDENCE, dependence_of
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import Votes, make_votes
from manyhands.training.history import History
from manyhands.training.progress import ProgressBar
from manyhands.training.seeding import draw_seed, set_random_states
from manyhands.typing import AnyArray, FloatArray, IntArray

LITTLE_PARITY = 0.7
"""Below this parity, one more annotator tells more than the features do."""

DOUBTFUL_SHRINKAGE = (0.2, 0.8)
"""Between these, the votes do not say whether the classes are equally frequent."""

NEAR_UNIFORM = 0.05
"""Share of the instances by which class shares must differ from equal ones to matter."""

CHANCE = 1e-3
"""Probability at which equally frequent classes differ as much in a sample."""

BATCH = 4096
"""Annotations predicted at once."""


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdStackingClassifier(ClassifierMixin, BaseEstimator):
    r"""The best classifier without gold labels: crowd-calibrated stacking.

    Several simple classifiers (the members) are fitted to the posterior of the classes, and say of
    every instance what they would say without its own annotations. The likelihood of the
    annotations decides each member's temperature and weight. The stack then counts as a witness
    beside the annotators, and their joint verdict is the posterior of the next round. Six rounds
    suffice. It takes seconds, and needs neither torch nor tuning.

    Parameters
    ----------
    members : "auto", or list of (name, estimator) or (name, estimator, view)
        "auto" chooses by the features: kernel ridge regressions on differently scaled copies, a
        discriminant analysis and a mixture for dense X; logistic regression for sparse X with more
        than 1,000 columns; a convolutional network for images (this needs torch). An estimator may
        be any classifier of scikit-learn that takes sample weights, any regressor, a network or the
        name of a backbone, or an object as `manyhands.classifiers.stacking.members` describes.
        A view is a transformer, fitted once to X.
    n_rounds : int, default=6
        The first round only starts the others; predictions average over the rest.
    classifier_weight : float, default=2
        Exponent b of the stack's probabilities beside the annotations.
    crowd_strength : float, default=5
        Annotations that each row of a confusion matrix borrows from the crowd's.
    class_prior : "auto", "uniform", "estimated", dict or array of shape (n_classes,)
        Class shares that the posterior is held to. "uniform": equal. "estimated": as they turn
        out. "auto": between the two, the nearer to equal the more evenly the votes spread over the
        classes (``prior_shrinkage_``). This is an assumption: if you know the shares, give them, in
        the order of the table's classes or by class.
    vote_share : "auto" or float in [0, 1], default="auto"
        Weight of an instance's vote shares in the targets of the members. "auto": 0 if the stack
        tells more than one more annotator would (``parity_`` above 1), else .5.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, by which ``posterior_`` counts their evidence; see
        `manyhands.DawidSkene`. Predictions do not depend on it.
    n_landmarks : int, default=1200
        Landmarks of a kernel, for more than 1,500 instances.
    n_folds : int, default=5
        Folds of members without closed-form leave-one-out predictions.
    decision : {"posterior", "balanced"} or array of shape (n_classes, n_classes)
        How `predict` decides; see `manyhands.decide`.
    random_state : int, RandomState or None
        Draws folds and landmarks.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances, given their annotations and features (given
        the features alone, where there are no annotations).
    labels_ : array of shape (n_samples,)
        Their most probable classes.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]; an annotator without annotations gets ``pooled_confusion_``.
    pooled_confusion_ : array of shape (n_classes, n_classes)
    heard_ : array of shape (n_annotators,)
        Whether the annotator has annotations.
    class_prior_ : array of shape (n_classes,)
        Class shares of the posterior.
    dependence_ : float
        Correlation of annotators' mistakes, as given or estimated.
    prior_shrinkage_ : float
        How far the classes were taken to be equally frequent (:math:`\kappa`), from 0 to 1.
    member_weights_ : dict of str to float
        Weights in the last round.
    member_temperatures_ : dict of str to float
        Exponents of the members' probabilities in the last round.
    parity_ : float or None
        How much the stack tells beside one more annotator: 1 is as much. None without instances
        that have two annotations.
    vote_share_ : float
        Used in the last round.
    history_ : History
        One row per round: ``nll`` of an annotation under the stack (``loss`` equals it),
        ``parity``, ``vote_share``, the class shares and the members' weights.

    Notes
    -----
    From the second round on, an instance's annotations return through its neighbours. Agreement
    of the members' leave-one-out predictions with the votes is then no longer out of fold; use
    `manyhands.cross_predict`.

    Examples
    --------
    >>> from manyhands import CrowdStackingClassifier, load_demo
    >>> demo = load_demo()
    >>> model = CrowdStackingClassifier(random_state=0).fit(demo.X_train, demo.annotations)
    >>> bool(model.score(demo.X_test, demo.y_test) > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "members": [StrOptions({"auto"}), list, tuple],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "classifier_weight": [Interval(Real, 0, None, closed="left")],
        "crowd_strength": [Interval(Real, 0, None, closed="left")],
        "class_prior": [StrOptions({"auto", "uniform", "estimated"}), dict, "array-like"],
        "vote_share": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
        "dependence": DEPENDENCE,
        "n_landmarks": [Interval(Integral, 10, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "decision": [str, "array-like"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    # No published protocol is about it.
    _protocol_parameters: ClassVar[Sequence[str]] = ()
    _crowd_check_exemptions: ClassVar[Mapping[str, str]] = {
        "check_user_network": "it has no backbone",
        "check_class_balance": "class shares are set by class_prior",
        "check_reweighting_balanced_annotations_changes_nothing": "see check_class_balance",
        "check_every_parameter_moves": "it is fitted in closed form",
        "check_history": "no instances are held out",
    }

    members: Any = field(default="auto", kw_only=False)
    n_rounds: int = 6
    classifier_weight: float = 2.0
    crowd_strength: float = 5.0
    class_prior: Any = "auto"
    vote_share: float | str = "auto"
    dependence: float | str = "auto"
    n_landmarks: int = 1200
    n_folds: int = 5
    decision: Any = "posterior"
    random_state: Any = None
    verbose: int = 0

    # -- fit ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, start: CrowdStackingClassifier | None = None) -> Self:
        """Fit to annotations. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or frame of shape (n_samples, n_features), or array of images
            With ``members="auto"``, a frame may have columns of texts, categories and gaps. Free
            text needs a vectoriser.
        y : AnnotationTable (a frame is matched with its instances by id), array of shape
            (n_samples, n_annotators) with -1/NaN missing, or (n_samples,): a crowd of one
        start : fitted CrowdStackingClassifier, optional
            Begin with what it believes of X and of the annotators it knows, rather than with the
            vote shares. It must have the same classes.

        Raises
        ------
        AnnotationError
            If X and y do not match, y is empty or has one class, X is not finite, or a parameter
            is unusable.

        Warns
        -----
        ModelChoiceWarning
            If the votes do not say whether the classes are equally frequent, or if one more
            annotator would tell more than the features.
        LostClassWarning
            If a class with annotations is predicted for no training instance.
        """
        with all_or_nothing(self):
            self._check_parameters()
            table = read_target(X, y, type(self).__name__)
            warn_of_telling_columns(X, table)
            encoder = fit_encoder(self, X)
            rows = read_rows(self, X, encoder, reset=True)
            check_learnable(rows, table)
            set_vocabularies(self, y, table)
            self.encoder_ = encoder
            self.input_shape_ = tuple(rows.shape[1:])
            last = self._fit(rows, table, start)
            self._warn_of_doubts(last.free_shares)
            warn_of_lost_classes(self, X, table)
        return self

    def _check_parameters(self) -> None:
        refuse_classes(self)
        self._validate_params()
        check_rule(self.decision)
        if isinstance(self.members, str):
            return
        names = []
        for entry in self.members:
            if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
                raise AnnotationError(
                    f"members holds {entry!r}; give tuples (name, estimator) or "
                    "(name, estimator, view)"
                )
            as_member(entry[0], entry[1])
            names.append(entry[0])
        if not names or len(set(names)) < len(names):
            raise AnnotationError(
                f"members has the names {names}; give at least one member, each with its own name"
            )

    def _fit(self, X: Any, table: AnnotationTable, start: Any) -> Round:
        rng = np.random.default_rng(draw_seed(self.random_state))
        votes = make_votes(table)
        annotated = np.flatnonzero(votes.voted)
        seen = np.flatnonzero(np.bincount(votes.response, minlength=table.n_classes))
        votes = _with_classes(votes.select(annotated), seen)
        inside = take_rows(X, annotated) if len(annotated) < table.n_instances else X
        members = self._make_members(inside, rng)
        folds = rng.permutation(np.arange(len(annotated)) % min(self.n_folds, len(annotated)))
        prepared = [member.fitted_on(inside, folds) for member in members]
        settings = Settings(
            self.classifier_weight,
            self.crowd_strength,
            self._shares(table.classes, seen),
            self.vote_share,
        )
        first = None if start is None else _belief_of(start, inside, table, seen)
        rounds = Rounds(votes, prepared, settings, rng, first)
        self.history_ = History()
        bar = ProgressBar(type(self).__name__) if self.verbose else None
        found: list[list[TemperedMember]] = []
        try:
            if bar is not None:
                bar.before_stage("round", self.n_rounds, 0)
            for number in range(self.n_rounds):
                began = perf_counter()
                last = rounds.run()
                found.append(last.members)
                self._write_row(number + 1, last, members, seen, perf_counter() - began)
                if bar is not None:
                    bar.after_epoch(self.history_[-1])
        finally:
            if bar is not None:
                bar.after_training()
        self.stack_ = FittedStack.of(members, found[1:] or found, seen, table.n_classes)
        self._set_fitted(X, table, annotated, seen, rounds, last, members)
        return last

    def _make_members(self, X: Any, rng: np.random.Generator) -> list[Member]:
        if isinstance(self.members, str):
            return automatic_members(X, self.n_landmarks, int(rng.integers(2**31)))
        made = []
        for name, estimator, *view in self.members:
            member = set_random_states(clone(as_member(name, estimator)), rng)
            shown = set_random_states(clone(view[0]), rng) if view and view[0] is not None else None
            made.append(Member(name, member, shown))
        return made

    def _shares(self, classes: AnyArray, seen: IntArray) -> Any:
        """Class shares over the classes seen, or the name of a rule."""
        given = self.class_prior
        if isinstance(given, str):
            return given
        if isinstance(given, Mapping):
            missing = [value for value in classes.tolist() if value not in given]
            extra = [value for value in given if value not in classes.tolist()]
            if missing or extra:
                raise AnnotationError(
                    f"class_prior names {list(given)}, but the classes are {classes.tolist()}"
                )
            given = [given[value] for value in classes.tolist()]
        shares = np.asarray(given, dtype=np.float64)
        if shares.shape != classes.shape or not np.isfinite(shares).all() or (shares < 0).any():
            raise AnnotationError(
                f"class_prior={given!r} must hold one nonnegative share for each of the "
                f"{len(classes)} classes {classes.tolist()}"
            )
        if not np.isclose(shares.sum(), 1.0, atol=1e-3):
            raise AnnotationError(f"class_prior={given!r} sums to {shares.sum():g}, not to 1")
        if not shares[seen].all():
            absent = classes[seen[shares[seen] == 0]].tolist()
            raise AnnotationError(
                f"class_prior gives the share 0 to {absent}, which have annotations"
            )
        return shares[seen] / shares[seen].sum()

    def _write_row(
        self, number: int, found: Round, members: list[Member], seen: IntArray, seconds: float
    ) -> None:
        nll = -found.log_likelihood
        shares = dict(zip(self.classes_[seen].tolist(), found.shares.tolist(), strict=True))
        weights = {
            member.name: part.weight for member, part in zip(members, found.members, strict=True)
        }
        self.history_.append(
            {
                "stage": "round",
                "epoch": number,
                "nll": nll,
                "loss": nll,
                "parity": found.parity,
                "vote_share": found.vote_share,
                **{f"share_{name}": share for name, share in shares.items()},
                **{f"weight_{name}": weight for name, weight in weights.items()},
                "seconds": seconds,
            }
        )

    def _set_fitted(
        self,
        X: Any,
        table: AnnotationTable,
        annotated: IntArray,
        seen: IntArray,
        rounds: Rounds,
        last: Round,
        members: list[Member],
    ) -> None:
        n_classes = table.n_classes
        belief = np.zeros((table.n_instances, n_classes))
        found = dependence_of(self.dependence, rounds.votes, rounds.vote_shares)
        belief[np.ix_(annotated, seen)] = rounds.read_out(last, found.rho)
        confusion = np.tile(
            (np.eye(n_classes) + 0.1) / (1 + 0.1 * n_classes), (table.n_annotators, 1, 1)
        )
        confusion[np.ix_(np.arange(table.n_annotators), seen, seen)] = rounds.confusion()
        confusion[:, seen[:, None], np.setdiff1d(np.arange(n_classes), seen)] = 0.0
        self.heard_ = table.annotations_per_annotator() > 0
        confusion, self.pooled_confusion_ = pool_confusions(
            confusion, table, belief, pseudo_annotations=0.0
        )
        self.confusion_ = np.where(self.heard_[:, None, None], confusion, self.pooled_confusion_)
        rest = np.setdiff1d(np.arange(table.n_instances), annotated)
        if len(rest):
            belief[rest] = self.stack_.predict_proba(take_rows(X, rest))
        self.posterior_ = belief
        self.dependence_ = found.rho
        self.class_prior_ = belief[annotated].mean(axis=0)
        self.prior_shrinkage_ = rounds.shrinkage
        self.parity_, self.vote_share_ = last.parity, last.vote_share
        parts = dict(zip((member.name for member in members), last.members, strict=True))
        self.member_weights_ = {name: part.weight for name, part in parts.items()}
        self.member_temperatures_ = {name: part.temperature for name, part in parts.items()}

    def _warn_of_doubts(self, free_shares: FloatArray) -> None:
        low, high = DOUBTFUL_SHRINKAGE
        n_classes, n = len(free_shares), len(self.training_instances_.ids)
        apart = free_shares - 1 / n_classes
        by_chance = float(chi2.isf(CHANCE, n_classes - 1))
        matters = (
            low < self.prior_shrinkage_ < high
            and np.abs(apart).sum() / 2 > NEAR_UNIFORM
            and n * n_classes * (apart**2).sum() > by_chance
        )
        if isinstance(self.class_prior, str) and self.class_prior == "auto" and matters:
            shares = dict(
                zip(self.classes_.tolist(), self.class_prior_.round(3).tolist(), strict=True)
            )
            warn_caller(
                "the votes do not say whether the classes are equally frequent "
                f"(prior_shrinkage_ is {self.prior_shrinkage_:.2f}); the class shares were taken "
                f"to be {shares}. If you know better, give class_prior= the shares, 'uniform' or "
                "'estimated'",
                ModelChoiceWarning,
            )
        if self.parity_ is not None and self.parity_ < LITTLE_PARITY:
            warn_caller(
                f"the features tell less than one more annotation per instance would (parity_ is "
                f"{self.parity_:.2f}); better features or more annotations would help more than "
                "another method",
                ModelChoiceWarning,
            )

    @property
    def labels_(self) -> AnyArray:
        """Most probable class of every training instance, in the original class values."""
        return cast(AnyArray, self.classes_[self.posterior_.argmax(axis=1)])

    # -- prediction -----------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes); rows sum to 1."""
        check_is_fitted(self, "stack_")
        return self.stack_.predict_proba(read_rows(self, X, self.encoder_, reset=False))

    def predict(self, X: Any) -> AnyArray:
        """True class, shape (n_samples,): the most probable one unless ``decision`` differs."""
        proba = self.predict_proba(X)  # Refuses a classifier that is not fitted.
        return cast(AnyArray, self.classes_[self._decide(proba)])

    def _decide(self, proba: FloatArray) -> IntArray:
        return apply_rule(proba, self.decision, self.class_prior_)

    @property
    def _rule(self) -> Any:
        return self.decision

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Probability of every class as the annotation, (n_samples, n_annotators, n_classes).

        Parameters
        ----------
        X : as in `fit`
        annotators : ids, mask or slice, optional
            Default: all. A new annotator is expected to annotate as the crowd as a whole does; a
            warning says so.

        Returns
        -------
        array of shape (n_samples, n_annotators, n_classes)
            float32; the last axis sums to 1.
        """
        check_is_fitted(self, "stack_")
        chosen = find_annotators(self.annotators_, annotators, "annotators")
        proba = self.predict_proba(X)
        return np.einsum("nc,rck->nrk", proba, self._confusions(chosen)).astype(np.float32)

    def predict_observed_proba(self, X: Any, y: Any) -> FloatArray:
        """Probability of every class as the annotation, for the pairs in a table.

        Returns
        -------
        array of shape (n_annotations, n_classes)
            float32, in the order of the table's annotations; rows sum to 1.
        """
        check_is_fitted(self, "stack_")
        table = table_of(X, y)
        check_rows(X, table)
        return self._observed_proba(X, table).astype(np.float32)

    def _observed_proba(self, X: Any, table: AnnotationTable) -> FloatArray:
        found = find_annotators(self.annotators_, table.annotators, "y's annotators")
        confusions, proba = self._confusions(found), self.predict_proba(X)
        parts = [
            np.einsum("ac,ack->ak", proba[table.instance[rows]], confusions[table.annotator[rows]])
            for rows in _batches(table.n_annotations)
        ]
        return np.concatenate(parts)

    def _confusions(self, annotators: IntArray) -> FloatArray:
        """Confusion matrices at these positions; the pooled one for -1, a new annotator."""
        known = (annotators >= 0)[:, None, None]
        return np.where(known, self.confusion_[annotators], self.pooled_confusion_)

    score = scoring.score

    def annotation_log_likelihood(self, X: Any, y: Any) -> float:
        """Mean log likelihood, in nats, of the observed annotations."""
        check_is_fitted(self, "stack_")
        table = scoring.observed_annotations(X, y, self.classes_)
        log_proba = floored_log(self._observed_proba(X, table))
        return scoring.mean_log_proba(iter([(np.arange(len(log_proba)), log_proba)]), table)

    # -- saving ---------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into a folder: safetensors and JSON, no pickle.

        Read it back with `manyhands.load`.

        Raises
        ------
        AnnotationError
            If a member is not of this library.
        WriteError
            If the folder cannot be written.
        """
        check_is_fitted(self, "stack_")
        return write_stack(self, folder)

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read a folder that `save` wrote; `manyhands.load` calls it."""
        return read_stack(cls, folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _batches(n: int) -> Iterator[slice]:
    return (slice(first, first + BATCH) for first in range(0, n, BATCH))


def _with_classes(votes: Votes, seen: IntArray) -> Votes:
    """The votes over the classes that have any."""
    codes = np.zeros(votes.n_classes, dtype=votes.response.dtype)
    codes[seen] = np.arange(len(seen))
    return replace(
        votes, response=codes[votes.response], n_classes=len(seen), n_responses=len(seen)
    )


def _belief_of(start: Any, X: Any, table: AnnotationTable, seen: IntArray) -> FloatArray:
    """What another model says of instances X, shape (m, number of classes seen)."""
    check_is_fitted(start, "stack_")
    if not np.array_equal(start.classes_, table.classes):
        raise AnnotationError(
            f"start knows the classes {start.classes_.tolist()}, but y has "
            f"{table.classes.tolist()}; give a model of the same classes"
        )
    return normalise_rows(start.stack_.predict_proba(X)[:, seen])
