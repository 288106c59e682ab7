"""Crowd-calibrated stacking: joint estimation of several simple classifiers and the annotators.

The method is the library's own (docs/methods/stacking.md). No step of it uses gold labels.
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
from manyhands.fitting.fitted import former_attribute, take_over
from manyhands.fitting.parameters import refuse_classes
from manyhands.fitting.reading import (
    check_leakage,
    check_learnable,
    check_rows,
    drop_weightless,
    read_target,
    set_vocabularies,
    table_of,
)
from manyhands.fitting.scoring import find_annotators, mean_log_proba, observed_annotations
from manyhands.fitting.traits import Traits
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.inputs import drawn_at_random, gold_codes
from manyhands.inference.probability import floored_log
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

ANNOTATIONS_AT_ONCE = 4096
"""Number of annotations that are predicted at once."""


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdStackingClassifier(CrowdClassifierMixin, BaseEstimator):
    r"""Crowd-calibrated stacking: the default classifier, without gold labels or tuning.

    Several simple classifiers (the members) are fitted to the posterior of the classes, and predict
    every instance out of fold, without its own annotations. Each member's exponent and weight
    maximise the likelihood of the annotations. The stack's prediction then enters the posterior of
    the next round like a further annotation. Six rounds suffice. A fit takes seconds and needs no
    torch.

    Parameters
    ----------
    members : "auto", or list of (name, estimator) or (name, estimator, view)
        "auto" chooses by the features: kernel ridge regressions on differently scaled copies, a
        discriminant analysis and a mixture for dense X; logistic regression for sparse X with more
        than 1,000 columns; a convolutional network for images (this needs torch). An estimator may
        be any classifier of scikit-learn that takes sample weights, any regressor of several
        outputs, a network or the name of a backbone, or an object as
        `manyhands.classifiers.stacking.members` describes. Members get arrays, even if X is a
        frame, and codes of the classes. A view is a transformer, fitted once to X. "auto" cannot be
        combined with members of your own.
    n_rounds : int, default=6
        Number of rounds. The first one only initialises the others, over which predictions are
        averaged.
    classifier_weight : float, default=2
        Exponent b of the stack's probabilities in the joint posterior with the annotations.
    crowd_strength : float above 0, default=5
        Number of pseudo-annotations, distributed like the crowd's, in each row of a confusion
        matrix.
    class_prior : "auto", "uniform", "estimated", dict or array of shape (n_classes,)
        Class shares that the posterior must have. "uniform": equal shares. "estimated": no
        constraint. "auto": no constraint in ``posterior_``; in the rounds, shares between the
        unconstrained and equal ones, closer to equal if the votes are spread more evenly over the
        classes (``prior_shrinkage_``). "auto" is an assumption: if you know the shares, give them,
        in the order of the table's classes or by class.
    vote_share : "auto" or float in [0, 1], default="auto"
        Weight of an instance's vote shares in the targets of the members. "auto": 0 if the stack
        is more informative than one more annotator would be (``relative_informedness_`` above
        1), else .5.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, by which their evidence in ``posterior_`` is
        discounted; see `manyhands.DawidSkene`. It has no effect on new instances.
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with known labels were chosen. Only labels of a random sample calibrate
        ``posterior_``; see `manyhands.DawidSkene`.
    abstentions : {"model", "ignore"}, default="model"
        Whether abstentions (`AnnotationTable.abstentions`) are evidence of the class, because they
        are more frequent for some classes. An instance counts as one without annotations if all its
        annotators abstained.
    n_landmarks : int, default=1200
        Landmarks of a kernel, for more than 1,500 instances.
    n_folds : int, default=5
        Folds of members without closed-form leave-one-out predictions.
    decision : {"auto", "posterior", "median", "balanced"} or array of shape \
(n_classes, n_classes), default="auto"
        Rule by which `predict` labels new instances; see `manyhands.decide`. "auto" is "median" if
        the annotations are three or more grades (`AnnotationTable.ordered`), else "posterior", the
        most probable class. "balanced" divides the probabilities by ``prediction_prior_``.
        ``decision`` has no effect on ``labels_``, which always follow "auto"; for another rule, use
        ``decide(model.posterior_, ...)``.
    random_state : int, RandomState or None
        Seed of the folds and the landmarks.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances, given their features and any annotations.
    labels_ : array of shape (n_samples,)
        Most probable classes of the training instances, or medians of three or more grades. They
        and ``posterior_`` are in the order of X (see `partial_fit`); ``instances_`` holds the ids.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given], counted against ``posterior_``. An annotator without annotations
        gets ``pooled_confusion_``.
    pooled_confusion_ : array of shape (n_classes, n_classes)
    annotators_seen_ : array of shape (n_annotators,)
        Whether the annotator has annotations.
    abstention_ : array of shape (n_annotators, n_classes)
        Probability of abstaining on an instance of each class; 0 unless modelled.
    class_prior_ : array of shape (n_classes,)
        Mean of ``posterior_`` over the annotated instances.
    dependence_ : float
        Correlation of annotators' mistakes, as given or estimated.
    gold_sample_ : {"random", "chosen"} or None
        How the instances with known labels were chosen: as given, or by a rank test with its
        p value in ``gold_p_value_``. None without known labels, or if nothing depends on it.
    gold_note_ : str or None
        Note on the use of known labels that were not drawn at random; None for a random sample.
    sample_note_ : str or None
        Note that known labels of a random sample contradict the posterior of the other instances,
        which is overconfident.
    is_known_ : array of shape (n_samples,)
        Whether the label of each training instance was given as ``gold``.
    sampled_rows_ : array of shape (m,)
        Positions of the instances whose known label was drawn at random.
    sampled_posterior_ : array of shape (m, n_classes)
        Posterior of these instances without their known labels, from which the accuracy of the
        unchecked labels is estimated.
    posterior_exponent_ : float
        Exponent of the stack's probabilities in ``posterior_``, which calibrates them against the
        annotations. 1 if no instance has two annotations.
    prediction_exponent_ : float
        Exponent of the probabilities of new instances, at most 1, which calibrates them against the
        annotations.
    prediction_prior_ : array of shape (n_classes,)
        Mean of `predict_proba` over the annotated training instances, or over 20,000 of them. New
        instances are predicted without annotations, so it may be far from ``class_prior_``.
    prior_shrinkage_ : float or None
        Degree to which equal class shares are assumed (:math:`\kappa`), from 0 to 1. None if
        ``class_prior`` gives the shares.
    member_weights_ : dict of str to float
        Weights in the last round.
    member_temperatures_ : dict of str to float
        Exponents of the members' probabilities in the last round.
    relative_informedness_ : float or None
        Informedness of the stack relative to one more annotator; 1 means equal. None if no instance
        has two annotations.
    vote_share_ : float
        The value of ``vote_share`` in the last round.
    doubts_ : dict of str to str
        Warnings of `fit` by code; the report lists them, too.
    history_ : History
        One row per round: ``nll`` of an annotation under the stack (``loss`` equals it),
        ``relative_informedness``, ``vote_share``, the class shares of the round's posterior
        (which is less calibrated than ``posterior_``), and the members' weights.

    Notes
    -----
    A saved stack is loaded with its encoder and with ``members``, so that it can be fitted again. A
    fitted member of a class outside this library cannot be saved. If only its predictor is of this
    library, the loaded stack predicts, and needs ``members`` before another fit.

    From the second round on, there is leakage: an instance's annotations affect its leave-one-out
    prediction through its neighbours. Agreement of these predictions with the votes is then no
    longer out of fold; use `manyhands.cross_predict`.

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

    parity_ = former_attribute("parity_")

    @property
    def _traits(self) -> Traits:
        return Traits(
            trains_network=False,
            balanced_by="prediction_prior_",
            saved=(
                "posterior_", "confusion_", "pooled_confusion_", "annotators_seen_", "abstention_",
                "class_prior_", "prediction_prior_", "is_known_", "sampled_rows_",
                "sampled_posterior_", "dependence_", "gold_sample_", "gold_p_value_", "gold_note_",
                "sample_note_", "doubts_", "prior_shrinkage_", "relative_informedness_",
                "posterior_exponent_",
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
        """Fit to annotations. Row i of X is instance i of y (``y.instances``), unless X has ids.

        The index of a pandas frame holds ids, and so does the column ``task`` of other frames: they
        are matched with the instances. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or frame of shape (n_samples, n_features), or array of images
            With ``members="auto"``, also a list, array or Series of texts, of paths of images or
            of PIL images, and an 8-bit array of images: a `TextEncoder` or `ImageEncoder` encodes
            them. A frame may have columns of texts, paths and categories, with gaps; in a frame of
            numbers alone, as in an array, a gap is an error.
        y : AnnotationTable, array of shape (n_samples, n_annotators) with -1/NaN missing, or
            (n_samples,): a crowd of one
        start : fitted CrowdStackingClassifier, optional
            Classifier whose probabilities of X replace the vote shares as initial posterior. It
            must have the same classes and features.
        gold : dict {instance id: class}, or array-like of shape (n_samples,), optional
            Known labels of some instances, None (NaN, -1) if unknown, as in `DawidSkene.fit`. They
            are certain: their ``posterior_`` is 1, the members learn them, and annotators are
            estimated from them. They count as annotations, so an instance needs no others. Later
            partial fits use them only through the fitted model.
        random_gold : sequence of instance ids, or boolean array of shape (n_samples,), optional
            Instances that were drawn at random to get a known label; as in `DawidSkene.fit`.

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
            If the class shares are not identified by the votes: ``prior_shrinkage_`` is above .2,
            and the unconstrained shares of the first round differ from equal ones by more than 12 %
            of the instances and significantly (chi-square test at .001). If one more annotator
            would be more informative than the features. If hardly any instance has two annotations,
            so that the relative weight of annotators and features is not identified.
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
        """Run rounds from class probabilities or the vote shares, and set the fitted attributes."""
        check_leakage(X, table)
        encoder = fit_encoder(self, X)
        rows = read_rows(self, X, encoder, reset=True)
        check_learnable(rows, table)
        set_vocabularies(self, y, table)
        # The views must return arrays, whatever containers the user has chosen by set_config.
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
        """Label of every training instance, in the order of X; ``instances_`` holds the ids."""
        return labels_of(self)

    # -- prediction -----------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every true class, (n_samples, n_classes); rows sum to 1."""
        check_is_fitted(self, "stack_")
        return self.stack_.predict_proba(read_rows(self, X, self.encoder_, reset=False))

    def predict(self, X: Any) -> AnyArray:
        """Return the class of every instance, shape (n_samples,), by the rule ``decision``."""
        proba = self.predict_proba(X)  # First, for the error if the classifier is not fitted.
        return cast(AnyArray, self.classes_[self._decide(proba)])

    def _decide(self, proba: FloatArray) -> IntArray:
        prior = self.prediction_prior_
        return apply_rule(proba, self.decision, prior, grades=knows_grades(self))

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Return the probability that each annotator gives each class to each instance.

        Parameters
        ----------
        X : as in `fit`
        annotators : ids, mask or slice, optional
            Default: all. The result for a new annotator is that of the crowd as a whole; a warning
            says so.

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
        """Return the probability of each class for each (instance, annotator) pair of a table.

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
        """Return the confusion matrices at these positions; the pooled one for -1 (new)."""
        return np.concatenate([self.confusion_, self.pooled_confusion_[None]])[annotators]

    def annotation_log_likelihood(self, X: Any, y: Any) -> float:
        """Return the mean log likelihood, in nats, of the observed annotations."""
        check_is_fitted(self, "stack_")
        table = observed_annotations(X, y, self.classes_)
        log_proba = floored_log(self._observed_proba(X, table))
        return mean_log_proba(iter([(np.arange(len(log_proba)), log_proba)]), table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
