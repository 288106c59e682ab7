"""Crowd-calibrated stacking: several simple classifiers and the annotators, weighed by each other.

The recipe is the library's own (docs/methods/stacking.md). Nothing in it sees a gold label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.stacking.encoding import fit_encoder, read_rows
from manyhands.classifiers.stacking.members import check_members
from manyhands.classifiers.stacking.rounds import belief_of, earlier_belief, fit_rounds, fitted_by
from manyhands.decision.rules import apply_rule, check_rule, knows_grades, labels_of
from manyhands.exceptions import all_or_nothing
from manyhands.fitting.class_collapse import warn_of_class_collapse
from manyhands.fitting.context import Earlier
from manyhands.fitting.continuing import Seen
from manyhands.fitting.crowd_classifier import CrowdClassifierMixin
from manyhands.fitting.fitted import take_over
from manyhands.fitting.parameters import refuse_classes
from manyhands.fitting.reading import (
    check_learnable,
    check_rows,
    drop_weightless,
    read_target,
    set_vocabularies,
    table_of,
    warn_of_telling_columns,
)
from manyhands.fitting.scoring import find_annotators, mean_log_proba, observed_annotations
from manyhands.fitting.traits import Traits
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.inputs import drawn_at_random, gold_codes
from manyhands.inference.probability import floored_log
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

ANNOTATIONS_AT_ONCE = 4096
"""Annotations predicted at once."""


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdStackingClassifier(CrowdClassifierMixin, BaseEstimator):
    r"""Crowd-calibrated stacking: the classifier to start with, without gold labels or tuning.

    Several simple classifiers (the members) are fitted to the posterior of the classes, and say of
    every instance what they would say without its own annotations. The likelihood of the
    annotations decides each member's temperature and weight. The stack then counts as a witness
    beside the annotators, and their joint verdict is the posterior of the next round. Six rounds
    suffice. It takes seconds and needs no torch.

    Parameters
    ----------
    members : "auto", or list of (name, estimator) or (name, estimator, view)
        "auto" chooses by the features: kernel ridge regressions on differently scaled copies, a
        discriminant analysis and a mixture for dense X; logistic regression for sparse X with more
        than 1,000 columns; a convolutional network for images (this needs torch). An estimator may
        be any classifier of scikit-learn that takes sample weights, any regressor of several
        outputs, a network or the name of a backbone, or an object as
        `manyhands.classifiers.stacking.members` describes. They get arrays, even if X is a frame,
        and codes of the classes. A view is a transformer, fitted once to X. "auto" cannot be
        combined with members of your own.
    n_rounds : int, default=6
        The first round only starts the others; predictions average over the rest.
    classifier_weight : float, default=2
        Exponent b of the stack's probabilities beside the annotations.
    crowd_strength : float above 0, default=5
        Annotations that each row of a confusion matrix borrows from the crowd's.
    class_prior : "auto", "uniform", "estimated", dict or array of shape (n_classes,)
        Class shares that the posterior is held to. "uniform": equal. "estimated": as they turn
        out. "auto": between the two while training, the nearer to equal the more evenly the votes
        spread over the classes (``prior_shrinkage_``), and as they turn out in ``posterior_``. This
        is an assumption: if you know the shares, give them, in the order of the table's classes or
        by class.
    vote_share : "auto" or float in [0, 1], default="auto"
        Weight of an instance's vote shares in the targets of the members. "auto": 0 if the stack
        tells more than one more annotator would (``parity_`` above 1), else .5.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, by which ``posterior_`` counts their evidence; see
        `manyhands.DawidSkene`. Probabilities of new
        instances do not depend on it.
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with known labels were chosen, which tells whether their labels may make
        ``posterior_`` surer; see `manyhands.DawidSkene`.
    abstentions : {"model", "ignore"}, default="model"
        Whether abstentions (`AnnotationTable.abstentions`) are evidence of the class: some classes
        make people unsure. An instance on which everyone abstained counts as one without
        annotations.
    n_landmarks : int, default=1200
        Landmarks of a kernel, for more than 1,500 instances.
    n_folds : int, default=5
        Folds of members without closed-form leave-one-out predictions.
    decision : {"auto", "posterior", "median", "balanced"} or array of shape \
(n_classes, n_classes), default="auto"
        How `predict` decides about new instances; see `manyhands.decide`. "auto" is "median" where
        the annotations are three or more grades (`AnnotationTable.ordered`), else "posterior", the
        most probable class. "balanced" divides the probabilities by ``prediction_prior_``.
        ``labels_`` are labelled as by "auto" whatever ``decision`` says; for another rule, use
        ``decide(model.posterior_, ...)``.
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
        Their most probable classes, of three or more grades the medians, in the order of X (see
        `partial_fit`).
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given], counted against ``posterior_``. An annotator without annotations
        gets ``pooled_confusion_``.
    pooled_confusion_ : array of shape (n_classes, n_classes)
    heard_ : array of shape (n_annotators,)
        Whether the annotator has annotations.
    abstention_ : array of shape (n_annotators, n_classes)
        Probability of abstaining on an instance of each class; 0 unless modelled.
    class_prior_ : array of shape (n_classes,)
        Mean of ``posterior_`` over the annotated instances.
    dependence_ : float
        Correlation of annotators' mistakes, as given or estimated.
    gold_sample_ : {"random", "chosen"} or None
        How the instances with known labels were chosen, as given or as a rank test tells, with its
        p value in ``gold_p_value_``; None without known labels, or where nothing depends on it.
    gold_note_ : str or None
        What chosen known labels say, and what they do not; None for others.
    sample_note_ : str or None
        Says that known labels that were drawn at random contradict the posterior of the others,
        which is too sure.
    is_known_ : array of shape (n_samples,)
        Whether the label of each training instance was given as ``gold``.
    sampled_rows_ : array of shape (m,)
        Positions of the instances whose known label was drawn at random.
    sampled_posterior_ : array of shape (m, n_classes)
        What the posterior of these would be without their known labels: it tells how good the
        labels are that nobody checked.
    posterior_exponent_ : float
        Power to which the stack's probabilities count in ``posterior_``: how far they can be
        trusted beside the annotators. 1 where no instance has two annotations.
    prediction_exponent_ : float
        Power of the probabilities of new instances, at most 1, so that they are no surer than the
        annotations confirm.
    prediction_prior_ : array of shape (n_classes,)
        Mean of `predict_proba` over the annotated training instances, or over 20,000 of them. New
        instances are predicted without annotations, so it may be far from ``class_prior_``.
    prior_shrinkage_ : float or None
        How far the classes were taken to be equally frequent (:math:`\kappa`), from 0 to 1. None
        if ``class_prior`` gives their shares.
    member_weights_ : dict of str to float
        Weights in the last round.
    member_temperatures_ : dict of str to float
        Exponents of the members' probabilities in the last round.
    parity_ : float or None
        How much the stack tells beside one more annotator: 1 is as much. None without instances
        that have two annotations.
    vote_share_ : float
        Used in the last round.
    doubts_ : dict of str to str
        What `fit` warned of, which the report lists, too.
    history_ : History
        One row per round: ``nll`` of an annotation under the stack (``loss`` equals it),
        ``parity``, ``vote_share``, the class shares of the round's posterior, which is surer than
        ``posterior_``, and the members' weights.

    Notes
    -----
    A saved stack is read back with its encoder and with ``members``, so that it can be fitted
    again. A member of another class than this library's cannot be saved once it is fitted; if only
    its predictor is one of ours, the loaded stack predicts, and asks for ``members`` before a fit.

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
        "crowd_strength": [Interval(Real, 0, None, closed="neither")],
        "class_prior": [StrOptions({"auto", "uniform", "estimated"}), dict, "array-like"],
        "vote_share": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
        "abstentions": [StrOptions({"model", "ignore"})],
        "n_landmarks": [Interval(Integral, 10, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "decision": [str, "array-like"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _knows_its_accuracy: ClassVar[bool] = True
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
    gold_sample: str = "auto"
    abstentions: str = "model"
    n_landmarks: int = 1200
    n_folds: int = 5
    decision: Any = "auto"
    random_state: Any = None
    verbose: int = 0

    @property
    def _traits(self) -> Traits:
        return Traits(
            trains_network=False,
            balanced_by="prediction_prior_",
            saved=(
                "posterior_", "confusion_", "pooled_confusion_", "heard_", "abstention_",
                "class_prior_", "prediction_prior_", "is_known_", "sampled_rows_",
                "sampled_posterior_", "dependence_", "gold_sample_", "gold_p_value_", "gold_note_",
                "sample_note_", "doubts_", "prior_shrinkage_", "parity_", "posterior_exponent_",
                "prediction_exponent_", "vote_share_", "member_weights_", "member_temperatures_",
                "encoder_", "stack_",
            ),
            replaceable_parameters=("members",),
        )  # fmt: skip

    # -- fit ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        start: CrowdStackingClassifier | None = None,
        gold: Any = None,
        random_gold: Any = None,
    ) -> Self:
        """Fit to annotations. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or frame of shape (n_samples, n_features), or array of images
            With ``members="auto"``, also a list, array or Series of texts, of paths of images or
            of PIL images, and an 8-bit array of images: a `TextEncoder` or `ImageEncoder` encodes
            them. A frame may have columns of texts, paths, categories and gaps.
        y : AnnotationTable (a frame is matched with its instances by id), array of shape
            (n_samples, n_annotators) with -1/NaN missing, or (n_samples,): a crowd of one
        start : fitted CrowdStackingClassifier, optional
            Begin with its probabilities of X rather than with the vote shares. It must have the
            same classes and features.
        gold : dict {instance id: class}, or array-like of shape (n_samples,), optional
            Known labels of some instances, None (NaN, -1) where unknown, as of `DawidSkene.fit`.
            They are certain: ``posterior_`` is 1 there, the members learn them, and annotators are
            judged by them. They count as annotations, so an instance needs no others. Later partial
            fits know of them only as far as the model has learned from them.
        random_gold : sequence of instance ids, or boolean array of shape (n_samples,), optional
            Instances whose known label was drawn at random; as of `DawidSkene.fit`.

        Returns
        -------
        self

        Raises
        ------
        AnnotationError
            If X and y do not match, y is empty or has one class, X is not finite, ``gold`` names
            an unknown instance or class, or members or class_prior are unusable.

        Warns
        -----
        ModelChoiceWarning
            If the votes do not say whether the classes are equally frequent: ``prior_shrinkage_``
            is above .2, and the shares that come out of the first round without a prior differ from
            equal ones by more than 12 % of the instances and more than chance explains (chi-square
            test at .001). Or if one more annotator would tell more than the features. Or if hardly
            any instance has two annotations, so that nothing tells whether to believe the
            annotators or the features.
        ClassCollapseWarning
            If a class with annotations is predicted for no training instance.
        """
        with all_or_nothing(self):
            self._check_parameters()
            table = read_target(X, y, type(self).__name__)
            belief = None if start is None else belief_of(start, X, table)
            codes = None if gold is None else gold_codes(gold, table, X)
            known = codes if codes is not None and (codes >= 0).any() else None
            drawn = None if random_gold is None else drawn_at_random(random_gold, table)
            self._run(X, y, table, belief, gold=known, random_gold=drawn)
        return self

    def _run(
        self,
        X: Any,
        y: Any,
        table: AnnotationTable,
        belief: FloatArray | None,
        *,
        gold: IntArray | None = None,
        random_gold: BoolArray | None = None,
        later: bool = False,
    ) -> None:
        """Run rounds, from a belief in the classes or the vote shares, and set what they find."""
        warn_of_telling_columns(X, table)
        encoder = fit_encoder(self, X)
        rows = read_rows(self, X, encoder, reset=True)
        check_learnable(rows, table)
        set_vocabularies(self, y, table)
        # The views hand on arrays, whatever containers the user has set_config hand out.
        with config_context(transform_output="default"):
            known: dict[str, Any] = {"gold": gold, "random_gold": random_gold}
            findings = fit_rounds(self, rows, table, belief, later=later, **known)
            more = {"encoder_": encoder, "input_shape_": tuple(rows.shape[1:])}
            take_over(self, fitted_by(self, findings, rows, table, **more).attributes())
            warn_of_class_collapse(self, X, table)

    def _go_on(self, seen: Seen, earlier: Earlier, watch: Any = None) -> None:
        self._check_parameters()
        table = drop_weightless(seen.table)
        belief = earlier_belief(earlier.model, table)
        self._run(seen.X, seen.table, table, belief, later=True)

    def _check_shape(self, X: Any) -> None:
        read_rows(self, X, self.encoder_, reset=False)

    def _check_parameters(self) -> None:
        refuse_classes(self)
        self._validate_params()
        check_rule(self.decision)
        if not isinstance(self.members, str):
            check_members(self.members)

    @property
    def labels_(self) -> AnyArray:
        """Label of every training instance, in the original class values."""
        return labels_of(self)

    # -- prediction -----------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes); rows sum to 1."""
        check_is_fitted(self, "stack_")
        return self.stack_.predict_proba(read_rows(self, X, self.encoder_, reset=False))

    def predict(self, X: Any) -> AnyArray:
        """True class, shape (n_samples,), as ``decision`` says."""
        proba = self.predict_proba(X)  # Refuses a classifier that is not fitted.
        return cast(AnyArray, self.classes_[self._decide(proba)])

    def _decide(self, proba: FloatArray) -> IntArray:
        prior = self.prediction_prior_
        return apply_rule(proba, self.decision, prior, grades=knows_grades(self))

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
            for rows in gen_batches(table.n_annotations, ANNOTATIONS_AT_ONCE)
        ]
        return np.concatenate(parts)

    def _confusions(self, annotators: IntArray) -> FloatArray:
        """Confusion matrices at these positions; the pooled one for -1, a new annotator."""
        return np.concatenate([self.confusion_, self.pooled_confusion_[None]])[annotators]

    def annotation_log_likelihood(self, X: Any, y: Any) -> float:
        """Mean log likelihood, in nats, of the observed annotations."""
        check_is_fitted(self, "stack_")
        table = observed_annotations(X, y, self.classes_)
        log_proba = floored_log(self._observed_proba(X, table))
        return mean_log_proba(iter([(np.arange(len(log_proba)), log_proba)]), table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
