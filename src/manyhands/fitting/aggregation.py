"""Labels inferred by an aggregator, as training targets."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.fitting.context import Earlier, Fit
from manyhands.fitting.latent import SoftTargets
from manyhands.fitting.run import annotator_attributes
from manyhands.inference import MajorityVote
from manyhands.inference.base import BaseAggregator
from manyhands.inference.votes import as_dense, make_votes, vote_shares
from manyhands.nn import FixedConfusionModule
from manyhands.training.seeding import set_random_states
from manyhands.typing import FloatArray


class Infers(Protocol):
    """A classifier that infers labels first."""

    aggregator: BaseAggregator | None

    @property
    def _protocol(self) -> Any:
        """The protocol, which has a field ``targets``."""


def infer_targets(
    method: Infers,
    table: AnnotationTable,
    rng: np.random.Generator,
    earlier: Earlier | None = None,
) -> tuple[BaseAggregator, FloatArray]:
    """Fit a classifier's aggregator, and return it with the targets.

    Parameters
    ----------
    method : classifier
        A classifier with the parameter ``aggregator``, and ``targets`` in its protocol.
    table : AnnotationTable
    rng : Generator
    earlier : Earlier or None
        In a partial fit: the aggregator continues from its posterior of earlier instances, as its
        own ``partial_fit`` does.

    Returns
    -------
    aggregator : BaseAggregator, fitted
    targets : array of shape (n_instances, n_classes)
        The posterior, or with ``targets="hard"`` its most probable class as a one-hot row.
    """
    given = MajorityVote() if method.aggregator is None else clone(method.aggregator)
    aggregator: BaseAggregator = set_random_states(given, rng)
    start = None if earlier is None else _start(earlier.model, table)
    if start is None or not _takes_start(aggregator):
        aggregator.fit(table)
    else:
        aggregator.fit(table, start=start)
    if issparse(aggregator.posterior_):
        aggregator.posterior_ = as_dense(aggregator.posterior_)
    if method._protocol.targets == "soft":
        return aggregator, aggregator.posterior_
    codes, _ = encode(
        aggregator.labels_, table.classes, argument="labels_", vocabulary_name="classes_"
    )
    return aggregator, np.eye(table.n_classes)[codes]


def _takes_start(aggregator: Any) -> bool:
    refuses = isinstance(aggregator, BaseAggregator) and not aggregator.traits.uses_start
    return has_fit_parameter(aggregator, "start") and not refuses


def _start(model: Any, table: AnnotationTable) -> FloatArray | None:
    """Return the posterior of a model's aggregator, with vote shares for new instances.

    None if the model was loaded, or the first instances of the table are not those it was fitted
    on.
    """
    known = getattr(getattr(model, "aggregator_", None), "instances_", np.empty(0))
    n = len(known)
    if not n or not np.array_equal(known, table.instances[:n]):
        return None
    start = vote_shares(make_votes(table))
    start[:n] = model.aggregator_.posterior_
    return start


def targets_of_network(method: Infers, fit: Fit[FixedConfusionModule, Any]) -> SoftTargets:
    """Infer the balanced targets of a network; instances without annotations have none.

    Also copies the aggregator's confusion matrices into the module: held-out annotations are
    evaluated with them from the first epoch on. The aggregator, its matrices and the class prior
    are among what the fit has found.
    """
    aggregator, inferred = infer_targets(method, fit.table, fit.rng, fit.earlier)
    annotated = fit.table.annotations_per_instance() > 0
    targets = SoftTargets(fit.recipe.balance, fit.features.device)
    targets.set(inferred * annotated[:, None], fit.rng)
    confusion, fit.belief = aggregator.confusion_, aggregator.posterior_
    pooled = annotator_attributes(confusion, fit.table, fit.belief, shrinks=True)
    fit.module.confusions.copy_(torch.from_numpy(pooled["confusion_"]))
    fit.found |= {
        "aggregator_": aggregator,
        "class_prior_": targets.shares,
        "confusion_": confusion,
    }
    return targets
