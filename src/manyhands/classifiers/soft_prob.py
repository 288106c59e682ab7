"""SoftProb: every annotation is a training example.

.. [1] V. C. Raykar, S. Yu, L. H. Zhao, G. H. Valadez, C. Florin, L. Bogoni and L. Moy. Learning
   from crowds. JMLR 11, 2010. https://jmlr.org/papers/v11/raykar10a.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from manyhands.annotations import AnnotationTable
from manyhands.fitting.context import Earlier, Fit
from manyhands.fitting.recipe import Recipe
from manyhands.fitting.second_stage import SecondStageClassifier
from manyhands.fitting.traits import Traits
from manyhands.nn import DirectModule, ScaledClassifier


@dataclass(kw_only=True, eq=False, repr=False)
class SoftProbClassifier(SecondStageClassifier):
    """Train one classifier on all pairs of instance and annotation (SoftProb) [1]_.

    The loss is the cross entropy of the annotations under the classifier itself, the same for all
    annotators, so the classifier learns the crowd's annotations with their mistakes. This equals
    soft targets of vote shares, with each instance weighted by its number of annotations.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module, callable or scikit-learn classifier
        ``"linear"`` is the papers' logistic regression. A scikit-learn classifier is cloned and
        fitted with one row per instance and class, weighted by its votes; the training parameters
        then do not apply.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, checkpoint, decision, callbacks, \
protocol
        See `manyhands.fitting.BaseCrowdClassifier`.

    Attributes
    ----------
    estimator_ : scikit-learn classifier
        The fitted ``backbone``, if that is a scikit-learn classifier (there is then no
        ``module_``).

    Notes
    -----
    There is no ``confusion_``: ``predict_annotation_proba`` gives the class probabilities for every
    annotator. ``history_`` logs ``nll``. With one annotation per instance the method equals
    `AggregatedClassifier`.

    References
    ----------
    .. [1] Raykar et al., Learning from crowds, JMLR 2010.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from manyhands import SoftProbClassifier, load_demo
    >>> demo = load_demo()
    >>> model = SoftProbClassifier(LogisticRegression(max_iter=50, tol=1.0))
    >>> model.fit(demo.X_train, demo.annotations).classes_.shape
    (10,)
    """

    backbone: Any = field(default=None, kw_only=False)

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        return replace(
            inherited,
            saved=("annotators_seen_",),
        )

    def _fit_rows(
        self, X: Any, table: AnnotationTable, recipe: Recipe, earlier: Earlier | None
    ) -> tuple[dict[str, Any], None]:
        rng = np.random.default_rng(recipe.seed)
        estimator = self._clone_backbone(rng)
        balanced = table if recipe.balance is None else recipe.balance.balanced(table, rng)
        votes = np.zeros((table.n_instances, table.n_classes))
        np.add.at(votes, (table.instance, table.label), balanced.weight)
        annotated = np.flatnonzero(votes.any(axis=1))
        rows = _safe_indexing(X, annotated)
        fitted = self._fit_weighted(estimator, rows, votes[annotated], "counted votes need")
        return {"estimator_": fitted}, None

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> DirectModule:
        return DirectModule(classifier)

    def _read_out(self, fit: Fit[DirectModule, None]) -> dict[str, Any]:
        """Return no attributes: there are no confusion matrices."""
        return {}
