"""`CrowdClassifier`: the protocol of all classifiers, and their shared methods (no torch)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, Self, runtime_checkable

from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.target import Target
from manyhands.exceptions import all_or_nothing
from manyhands.fitting.availability import available_where
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.continuing import (
    GROWTH,
    Seen,
    first_table,
    fit_from_scratch,
    unmatched,
    with_added,
)
from manyhands.fitting.fitted import fitted_attributes, former_attribute
from manyhands.fitting.saving import write
from manyhands.fitting.scoring import is_gold, observed_annotations, read_gold
from manyhands.fitting.traits import Traits
from manyhands.inference.inputs import holds_nothing
from manyhands.metrics.scorers import warn_of_training_instances
from manyhands.metrics.votes import vote_agreement
from manyhands.training.progress import History
from manyhands.typing import AnyArray, FloatArray, Instances


@runtime_checkable
class CrowdClassifier(Protocol):
    """Protocol of all crowd classifiers: networks, stacks, averages and self-training.

    Messages, jobs and pages need nothing else, and use the traits if families differ. Some
    classifiers can do more: they have `partial_fit` unless the traits refuse it, and most have
    ``predict_annotation_proba``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Fitted, as the following ones.
    annotators_ : array of shape (n_annotators,)
    n_annotators_ : int
    history_ : History
    """

    classes_: AnyArray
    annotators_: AnyArray
    n_annotators_: int
    history_: History

    @property
    def _traits(self) -> Traits:
        """What the classifier is and can do."""

    def get_params(self, deep: bool = ...) -> dict[str, Any]:
        """Return the parameters by name."""

    def set_params(self, **params: Any) -> Any:
        """Set parameters."""

    def fit(self, X: Instances, y: Target) -> Any:
        """Train on annotations of instances."""

    def predict_proba(self, X: Instances) -> FloatArray:
        """Return the probability of every true class, shape (n_samples, n_classes)."""

    def predict(self, X: Instances) -> AnyArray:
        """Return the class of every instance, shape (n_samples,), as original class values."""

    def score(self, X: Instances, y: Target) -> float:
        """Return the accuracy against gold labels, or agreement with annotations."""

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into a folder."""


def _can_continue(model: CrowdClassifierMixin) -> None:
    refusal = model._traits.continue_refusal
    if refusal is not None:
        raise AttributeError(
            f"{type(model).__name__} has no partial_fit: it {refusal}; fit it anew on everything"
        )


class CrowdClassifierMixin(ClassifierMixin):
    """Shared methods of networks, stacks, averages and self-training: saving, scores, partial fits.

    A family implements `CrowdClassifier`, continued training in `_go_on`, and the check of features
    in `_check_shape`.
    """

    heard_ = former_attribute("heard_")

    @property
    def _traits(self) -> Traits:
        """What the classifier is and can do."""
        return Traits(trains_network=False)

    @available_where(_can_continue)
    def partial_fit(
        self,
        X: Instances,
        y: Target,
        *,
        classes: Any = None,
        duplicates: Duplicates = "error",
        watch: Watch | None = None,
    ) -> Self:
        """Add annotations, of new instances or of old ones, and continue the training.

        The first call equals `fit`. Later ones train on everything seen, most methods from the
        parameters found so far, for fewer epochs, the smaller the share of new annotations.
        Parameters of new annotators start from the crowd's as a whole. When the annotations have
        doubled since the last training from scratch, the model is trained from scratch again.
        ``validation`` and ``checkpoint`` are for the first call. A call that fails leaves the
        estimator as it was.

        Parameters
        ----------
        X : as in `fit`
            Features of the instances of y. Those of old instances are given again, unchanged.
        y : as in `fit`
            The new annotations, matched by id; rows and columns of a matrix are 0, 1, ...
        classes : array-like of shape (n_classes,), optional
            In the first call: all classes there will be. Default: those of y. Later calls cannot
            add any.
        duplicates : {"error", "last", "keep"}, default="error"
            Whether annotations that are given twice are an error, count once, or count twice.
        watch : Watch, optional
            As in `fit`, for classifiers that take it there.

        Returns
        -------
        self

        Raises
        ------
        AnnotationError
            For the reasons of `fit`; if y holds a class that the first call did not have, X has
            other features than before, or a pair (such as of a piece given twice) was annotated
            before.

        Warns
        -----
        UserWarning
            If nothing in y is new in a later call, which then changes nothing.

        Notes
        -----
        The model keeps what it was given in ``seen_``, also pickled. `fit` and `save` do not, so
        the first partial fit after them needs everything again, or warns of fewer annotations.
        ``labels_`` and ``posterior_`` are in the order in which the calls first gave the instances.
        """
        options = {} if watch is None else {"watch": watch}
        with all_or_nothing(self):
            if not hasattr(self, "classes_"):
                table = first_table(self, X, y, classes)
                self.fit(X, table, **options)
                self.seen_ = Seen(X, table, table.n_annotations)
            elif not holds_nothing(unmatched(X, y)):
                seen, share = with_added(self, X, y, classes, duplicates)
                if seen is None:
                    return self
                if seen.table.n_annotations >= GROWTH * seen.from_scratch:
                    seen = replace(seen, from_scratch=seen.table.n_annotations)
                    fit_from_scratch(self, seen, options)
                else:
                    before = SimpleNamespace(**fitted_attributes(self))
                    self._go_on(seen, Earlier(before, share), **options)
                self.seen_ = seen
        return self

    @abstractmethod
    def _go_on(self, seen: Seen, earlier: Earlier, watch: Watch | None = None) -> None:
        """Continue training on everything seen, from the results of an earlier fit."""

    @abstractmethod
    def _check_shape(self, X: Instances) -> None:
        """Raise an error if features differ in shape from those of ``fit``."""

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into a folder: safetensors and JSON, no pickle.

        Read it back with `manyhands.load`. If saving fails, the previous model survives.

        Parameters
        ----------
        folder : str or Path

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        AnnotationError
            If a part of the model cannot be written without pickle: a class that is not this
            library's, or a scikit-learn classifier as second stage.
        WriteError
            If the folder cannot be written.
        """
        check_is_fitted(self)
        return write(folder, self)

    def score(self, X: Instances, y: Target, sample_weight: Any = None) -> float:
        """Return the accuracy against gold labels, or agreement with annotations.

        Parameters
        ----------
        X : as in `fit`
        y : array of shape (n_samples,) with gold labels, for accuracy; or an AnnotationTable or
            (n_samples, n_annotators) array, for `manyhands.metrics.vote_agreement` of
            ``predict(X)``: the mean share of an instance's annotations that name its predicted
            class (pseudo-annotations excluded). ``cross_val_score``, ``cross_validate`` and
            ``GridSearchCV`` call it with annotations, so they return agreement.
        sample_weight : array of shape (n_samples,), optional
            For accuracy only.

        Returns
        -------
        float in [0, 1]
            Agreement is usually lower than accuracy, because the annotators' mistakes count against
            the classifier. `manyhands.metrics.estimate_accuracy` estimates accuracy from
            out-of-fold predictions.

        Raises
        ------
        AnnotationError
            If a class was not present in `fit`.

        Warns
        -----
        ModelChoiceWarning
            If there are annotations of instances that the classifier was fitted on. **In sample,
            agreement means nothing**, because it rewards memorised votes. Such instances have an
            id of the training table; where ids are nothing but numbers of rows, their annotations
            must be the same, too. A loaded model does not know its training instances, and never
            warns.
        """
        check_is_fitted(self)
        if is_gold(y):
            y = read_gold(X, y, self.classes_)
            predicted = self.predict(X)
            return float(accuracy_score(y, predicted, sample_weight=sample_weight))
        table = observed_annotations(X, y, self.classes_, sample_weight)
        warn_of_training_instances(self, y, table)
        return vote_agreement(self.predict(X), table)
