"""What every truth-inference method shares: reading the table, deciding, reporting."""

from __future__ import annotations

import re
from abc import abstractmethod
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.annotations import AnnotationTable, as_table
from manyhands.exceptions import AnnotationError
from manyhands.inference.kernels import expected_accuracy, pick
from manyhands.typing import AnyArray, FloatArray

TIES = StrOptions({"first", "random", "distribute"})
NON_NEGATIVE = Interval(Real, 0, None, closed="left")


class BaseAggregator(BaseEstimator):
    """Base class of truth inference: ``fit(table)`` leaves a posterior over the true classes.

    A subclass implements `_infer`, which sets ``posterior_`` and what else its model has.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class values.
    posterior_ : array of shape (n_instances, n_classes)
        Probability of every class for every instance; rows sum to 1.
    labels_ : array of shape (n_instances,)
        Most probable class value; equal maxima as ``ties`` says.
    class_prior_ : array of shape (n_classes,)
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given]; rows sum to 1.
    annotator_accuracy_ : array of shape (n_annotators,)
        Expected share of right annotations under the posterior.
    n_iter_ : int
    log_likelihood_ : array of shape (n_iter_,)
        Objective after every iteration (empty where nothing is iterated).
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "ties": [TIES],
        "random_state": ["random_state"],
    }
    ties: str
    random_state: Any

    def fit(self, table: Any, y: Any = None) -> Self:
        """Infer the true classes.

        Parameters
        ----------
        table : AnnotationTable, or an (n_instances, n_annotators) matrix with -1/NaN missing
        y : ignored

        Raises
        ------
        AnnotationError
            If there is no annotation, or only one class.
        """
        self._validate_params()
        table = check_annotations(as_table(table, argument="table"), argument="table")
        self.classes_ = table.classes
        self.instances_ = table.instances
        self.annotators_ = table.annotators
        self.n_annotators_ = table.n_annotators
        rng = check_random_state(self.random_state)
        self.log_likelihood_: FloatArray = np.zeros(0)
        self.n_iter_ = 0
        self._infer(table, rng)
        self.labels_ = self.classes_[pick(self.posterior_, self.ties, rng)]
        self.annotator_accuracy_ = expected_accuracy(table, self.posterior_)
        return self

    @abstractmethod
    def _infer(self, table: AnnotationTable, rng: np.random.RandomState) -> None:
        """Set ``posterior_``, ``class_prior_``, ``confusion_`` (and the history, if iterated)."""

    def fit_predict(self, table: Any) -> AnyArray:
        """Fit and return ``labels_``, shape (n_instances,)."""
        return self.fit(table).labels_

    def fit_predict_proba(self, table: Any) -> FloatArray:
        """Fit and return ``posterior_``, shape (n_instances, n_classes)."""
        return self.fit(table).posterior_

    posterior_: FloatArray
    class_prior_: FloatArray
    confusion_: FloatArray


def check_annotations(table: AnnotationTable, *, argument: str) -> AnnotationTable:
    """Refuse a table nothing can be learnt from.

    Raises
    ------
    AnnotationError
        If the table is empty or has one class only.
    """
    if not table.n_annotations:
        raise AnnotationError(
            f"{argument} is empty: no annotation in {table.n_instances} instances x "
            f"{table.n_annotators} annotators (is -1 or NaN, which count as missing, a class of "
            "yours? Name it in classes=)"
        )
    if not table.weight.any():
        raise AnnotationError(f"all weights of {argument} are 0, so no annotation counts")
    if table.n_classes < 2:
        raise AnnotationError(
            f"{argument} holds one class only, {table.classes[0].item()!r} "
            f"({table.n_annotations} annotations); a classifier needs two. If others exist, name "
            "all in classes="
        )
    return table


def all_aggregators() -> list[tuple[str, type[BaseAggregator]]]:
    """List every truth-inference method as (name, class), sorted by name."""
    import manyhands.inference as package

    found = [(name, getattr(package, name)) for name in package.__all__]
    return sorted(
        (name, cls)
        for name, cls in found
        if isinstance(cls, type) and issubclass(cls, BaseAggregator) and cls is not BaseAggregator
    )


def find_aggregator(name: str) -> type[BaseAggregator]:
    """Find a method by class name; hyphens, underscores and case do not count.

    Raises
    ------
    AnnotationError
        If there is none of that name.
    """
    wanted = re.sub(r"[^a-z0-9]", "", name.lower())
    for known, cls in all_aggregators():
        if known.lower() == wanted:
            return cls
    names = ", ".join(kebab(known) for known, _ in all_aggregators())
    raise AnnotationError(f"method={name!r} is unknown; use one of {names}")


def kebab(name: str) -> str:
    """Name of a method on the command line: ``DawidSkene`` -> ``dawid-skene``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
