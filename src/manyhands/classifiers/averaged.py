"""The mean of several classifiers' probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from manyhands.annotations import AnnotationTable
from manyhands.annotations.digests import InstanceDigests
from manyhands.decision.rules import apply_rule, knows_grades
from manyhands.exceptions import AnnotationError, all_or_nothing
from manyhands.fitting.class_collapse import warn_of_class_collapse, without_collapse_warnings
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.continuing import Seen, gone_on, refusal_of
from manyhands.fitting.crowd_classifier import CrowdClassifierMixin
from manyhands.fitting.fitted import SET_WITH_FEATURES, Fitted, become
from manyhands.fitting.parameters import check_decision, refuse_classes
from manyhands.fitting.reading import read_target
from manyhands.fitting.scoring import mean_log_proba, observed_annotations
from manyhands.fitting.traits import Traits
from manyhands.inference.probability import floored_log
from manyhands.training import History
from manyhands.training.seeding import draw_seed, joined_if_any, set_random_states
from manyhands.typing import AnyArray, FloatArray, IntArray

DEFAULT_MEMBERS = 5
"""Number of classifiers if none are given."""


def _members_have(method: str) -> Any:
    """Return a decorator that makes a method available if every member has it."""
    return available_if(
        lambda self: all(
            hasattr(member, method)
            for member in getattr(self, "estimators_", None) or self.clone_estimators()
        )
    )


@dataclass(kw_only=True, eq=False, repr=False)
class AveragedCrowdClassifier(MetaEstimatorMixin, CrowdClassifierMixin, BaseEstimator):
    """Average the class probabilities of several classifiers: methods, seeds or fold models.

    All members count equally. `fit` trains all of them on the same annotations. `of_fitted`
    averages classifiers that are fitted already, such as the fold models of
    `manyhands.cross_predict`.

    Parameters
    ----------
    estimators : list of classifiers or None, default=None
        The members. They are cloned, never fitted in place. None means five `CrowdLayerClassifier`,
        which differ by their seeds. A parameter of the k-th member is ``<k>__<name>`` in
        ``set_params``.
    validation : None, float or (X, y_gold), default=None
        Passed to every member that has this parameter but no value for it.
    checkpoint : str, Path or None, default=None
        Path from which the members' checkpoint files are named (``<stem>-member<k>``). A later
        ``fit`` on the same data with the same parameters continues from them.
    decision : {"auto", "posterior", "median"} or array of shape (n_classes, n_classes), \
default="auto"
        Rule by which `predict` chooses a class from the mean probabilities; ``decision`` of the
        members has no effect. "posterior" is the most probable class, "median" the median of
        ordered classes, and an array gives the costs ``[true, decided]`` with the least
        expectation. "auto" is the median if the annotations are three or more grades
        (`AnnotationTable.ordered`), else the most probable class. See `manyhands.decide`.
    verbose : int, default=0
        1 shows the members' progress bars.
    random_state : int, RandomState or None, default=None
        Gives a different seed to every member that has no seed of its own.

    Attributes
    ----------
    estimators_ : list of fitted classifiers
    classes_ : array of shape (n_classes,)
    annotators_ : array of shape (n_annotators,)
    history_ : History
        Empty: every member has a ``history_`` of its own.

    Notes
    -----
    A classifier of your own can be a member if it has ``fit(X, table)``,
    ``predict_proba``, ``classes_`` and scikit-learn's ``get_params``. Methods about annotations
    need members that have them, and `save` needs members of this library.

    Examples
    --------
    >>> from manyhands import AveragedCrowdClassifier, CrowdLayerClassifier, load_demo
    >>> demo = load_demo()
    >>> member = CrowdLayerClassifier(max_epochs=1)
    >>> model = AveragedCrowdClassifier([member, member], random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).predict_proba(demo.X_test[:4]).shape
    (4, 10)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimators": [None, list, tuple],
        "validation": [None, Interval(Real, 0, 1, closed="neither"), tuple, list],
        "checkpoint": [None, str, Path],
        "decision": [str, "array-like"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }
    _crowd_check_exemptions: ClassVar[Mapping[str, str]] = {
        "check_history": "every member has a history of its own",
        "check_every_parameter_moves": "that is for its members to show",
        "check_new_annotators": "a mean over members of p(x) times confusions is no such product",
    }

    estimators: Any = field(default=None, kw_only=False)
    validation: Any = None
    checkpoint: str | Path | None = None
    decision: Any = "auto"
    verbose: int = 0
    random_state: Any = None

    @property
    def _traits(self) -> Traits:
        members = getattr(self, "estimators_", None) or self.estimators or ()
        return Traits(
            trains_network=False,
            saved=("estimators_",),
            consists_of="estimators_",
            continue_refusal=refusal_of("averages", members),
        )

    @classmethod
    def of_fitted(cls, estimators: Sequence[Any]) -> Self:
        """Average classifiers that are fitted already, which are not copied.

        Parameters
        ----------
        estimators : sequence of fitted classifiers
            With the same ``classes_``, ``annotators_`` and features.

        Returns
        -------
        AveragedCrowdClassifier, fitted

        Raises
        ------
        AnnotationError
            If there are none, or they differ in one of these.
        NotFittedError
            If one is not fitted.
        """
        model = cls(list(estimators))
        model._check_members()
        for member in model.estimators:
            check_is_fitted(member)
        become(model, averaged(model.estimators))
        return model

    def clone_estimators(self) -> list[Any]:
        """Return unfitted copies of ``estimators``."""
        if self.estimators is None:
            # The default alone needs torch.
            from manyhands.classifiers.crowd_layer import CrowdLayerClassifier

            return [CrowdLayerClassifier() for _ in range(DEFAULT_MEMBERS)]
        return [clone(member) for member in self.estimators]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep`` also the numbered members and their parameters."""
        parameters: dict[str, Any] = super().get_params(deep=False)
        if not deep or not isinstance(self.estimators, list | tuple):
            return parameters
        for number, member in enumerate(self.estimators):
            parameters[str(number)] = member
            if hasattr(member, "get_params") and not isinstance(member, type):
                own = member.get_params(deep=True)
                parameters |= {f"{number}__{name}": value for name, value in own.items()}
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``<k>__<name>`` is one of the k-th member.

        Raises
        ------
        AnnotationError
            If a member itself is named, without one of its parameters.
        """
        for name in params:
            if name.isdigit():
                raise AnnotationError(
                    f"{name} is one of the members; set all of them by "
                    "set_params(estimators=[...]), or a parameter of this one by "
                    f"{name}__<parameter>"
                )
        super().set_params(**params)
        return self

    # -- fit ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, watch: Watch | None = None) -> Self:
        """Train every member. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : as in the members' ``fit``
        y : AnnotationTable, or array of shape (n_samples, n_annotators) with -1/NaN missing
        watch : Watch, optional
            Passed to members whose ``fit`` takes it.

        Returns
        -------
        self

        Raises
        ------
        AnnotationError
            For the reasons of the members' ``fit``; if there is no member, one is a class or has
            no ``predict_proba``; if there is a ``checkpoint`` without an integer ``random_state``.
        """
        with all_or_nothing(self), joined_if_any(self):
            refuse_classes(self)
            self._validate_params()
            check_decision(self)
            self._check_members()
            table = read_target(X, y, type(self).__name__)
            check_decision(self, table.n_classes)
            members = fitted_members(self._make_members(), X, table, watch)
            become(self, averaged(members, InstanceDigests.of(y, table), table.ordered))
            warn_of_class_collapse(self, X, table)
        return self

    def _go_on(self, seen: Seen, earlier: Earlier, watch: Watch | None = None) -> None:
        """Continue the training of every member by its own ``partial_fit``."""
        with without_collapse_warnings():
            members = [gone_on(member, seen, earlier, watch) for member in self.estimators_]
        digests = InstanceDigests.of(seen.table, seen.table)
        become(self, averaged(members, digests, seen.table.ordered))
        warn_of_class_collapse(self, seen.X, seen.table)

    def _check_shape(self, X: Any) -> None:
        for member in self.estimators_:
            member._check_shape(X)

    def _check_members(self) -> None:
        members = self.estimators
        if members is not None and not len(members):
            raise AnnotationError("estimators is empty; give at least one classifier")
        for number, member in enumerate(members or []):
            if isinstance(member, type):
                raise AnnotationError(
                    f"estimators[{number}]={member.__name__} is a class; give an object, "
                    f"{member.__name__}()"
                )
            for method in ("fit", "predict_proba"):
                if not hasattr(member, method):
                    raise AnnotationError(
                        f"estimators[{number}] is a {type(member).__name__} without {method!r}; "
                        "give classifiers"
                    )
        if self.checkpoint is not None and not isinstance(self.random_state, Integral):
            raise AnnotationError(
                f"checkpoint needs an integer random_state, got {self.random_state!r}: a resumed "
                "run must repeat the random draws of the first"
            )

    def _make_members(self) -> list[Any]:
        """Return unfitted copies with seeds and checkpoints of their own."""
        rng = np.random.default_rng(draw_seed(self.random_state))
        members = self.clone_estimators()
        for number, member in enumerate(members):
            set_random_states(member, rng)
            own = member.get_params(deep=False)
            if self.validation is not None and own.get("validation", 0) is None:
                member.set_params(validation=self.validation)
            if self.checkpoint is not None and "checkpoint" in own:
                path = Path(self.checkpoint)
                member.set_params(checkpoint=path.with_stem(f"{path.stem}-member{number}"))
            if self.verbose and own.get("verbose") == 0:
                member.set_params(verbose=self.verbose)
        return members

    # -- prediction -----------------------------------------------------------------------------

    def _mean(self, method: str, *args: Any) -> FloatArray:
        """Return the mean of the members' results of a method, one array in memory at a time."""
        check_is_fitted(self, "estimators_")
        total: Any = None
        for member in self.estimators_:
            part = getattr(member, method)(*args)
            total = (
                np.array(part, dtype=np.float64) if total is None else np.add(total, part, total)
            )
        return cast(FloatArray, total / len(self.estimators_))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the mean probability of every true class, (n_samples, n_classes)."""
        return self._mean("predict_proba", X)

    def predict(self, X: Any) -> AnyArray:
        """Return the class of every instance, shape (n_samples,), by the rule ``decision``."""
        proba = self.predict_proba(X)  # First, for the error if the classifier is not fitted.
        return cast(AnyArray, self.classes_[self._decide(proba)])

    def _decide(self, proba: FloatArray) -> IntArray:
        check_decision(self)
        return apply_rule(proba, self.decision, grades=knows_grades(self))

    @_members_have("predict_annotation_proba")  # type: ignore[untyped-decorator]
    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Return the mean probability of every class as the annotation by every annotator.

        The shape is (n_samples, n_annotators, n_classes). Available if all members have the method.
        """
        return self._mean("predict_annotation_proba", X, annotators).astype(np.float32)

    @_members_have("predict_observed_proba")  # type: ignore[untyped-decorator]
    def predict_observed_proba(self, X: Any, y: Any) -> FloatArray:
        """Return the mean probability of every class as each annotation, (n, n_classes).

        Available if all members have the method.
        """
        return self._mean("predict_observed_proba", X, y).astype(np.float32)

    @_members_have("predict_observed_proba")  # type: ignore[untyped-decorator]
    def annotation_log_likelihood(self, X: Any, y: Any) -> float:
        """Return the mean log likelihood, in nats, of the annotations under the mean probabilities.

        Available if all members have ``predict_observed_proba``.
        """
        check_is_fitted(self, "estimators_")
        table = observed_annotations(X, y, self.classes_)
        log_proba = floored_log(self.predict_observed_proba(X, table).astype(np.float64))
        blocks = iter([(np.arange(table.n_annotations), log_proba)])
        return mean_log_proba(blocks, table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        members = self.clone_estimators()
        tags.input_tags.sparse = all(get_tags(member).input_tags.sparse for member in members)
        return tags


# -- functions that fit and average members -------------------------------------------------------


def fitted_members(
    members: Sequence[Any], X: Any, table: AnnotationTable, watch: Watch | None
) -> list[Any]:
    """Fit classifiers to the same annotations, without their warnings of class collapse.

    Parameters
    ----------
    members : sequence of unfitted classifiers
    X, table, watch
        See `AveragedCrowdClassifier.fit`.

    Returns
    -------
    list of fitted classifiers
    """
    with without_collapse_warnings():
        return [member.fit(X, table, **_watched(member, watch)) for member in members]


def _watched(member: Any, watch: Watch | None) -> dict[str, Watch]:
    return {} if watch is None or not has_fit_parameter(member, "watch") else {"watch": watch}


def averaged(
    members: Sequence[Any], digests: InstanceDigests | None = None, ordered: bool | None = None
) -> Fitted:
    """Return the fitted attributes of the average of fitted classifiers.

    Parameters
    ----------
    members : sequence of fitted classifiers
    digests : InstanceDigests, optional
        Of the training instances. Default: those of all members together.
    ordered : bool, optional
        Whether the classes of the annotations were ordered. Default: as in the members.

    Returns
    -------
    Fitted
        Its history is empty: every member has its own.

    Raises
    ------
    AnnotationError
        If the members differ in classes, annotators or features.
    """
    for name in ("classes_", "annotators_", "n_features_in_", "feature_names_in_"):
        values: list[Any] = [getattr(member, name, None) for member in members]
        for number, value in enumerate(values):
            if not np.array_equal(value, values[0]):
                raise AnnotationError(
                    f"estimators[{number}] and estimators[0] differ in {name}; average "
                    "classifiers that were fitted on the same classes, annotators and features "
                    "(folds of one table keep all)"
                )
    seen = [m.training_instances_ for m in members if hasattr(m, "training_instances_")]
    if digests is None and seen:
        digests = InstanceDigests.union(seen)
    shared = ("classes_", "annotators_", "n_annotators_", "n_annotations_", *SET_WITH_FEATURES)
    found = {name: getattr(members[0], name) for name in shared if hasattr(members[0], name)}
    told = any(getattr(member, "ordered_", False) for member in members)
    found["ordered_"] = told if ordered is None else ordered
    if digests is not None:
        found["training_instances_"] = digests
    return Fitted(None, History(), {**found, "estimators_": list(members)})
