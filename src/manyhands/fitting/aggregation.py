"""Labels inferred by an aggregator, as training targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.fitting.context import Earlier, Fit
from manyhands.fitting.latent import SoftTargets
from manyhands.fitting.run import set_annotator_attributes
from manyhands.inference import MajorityVote
from manyhands.inference.many_classes import as_dense
from manyhands.inference.votes import make_votes, vote_shares
from manyhands.nn import FixedConfusionModule
from manyhands.training.seeding import set_random_states
from manyhands.typing import FloatArray


def infer_targets(
    model: Any,
    table: AnnotationTable,
    rng: np.random.Generator,
    earlier: Earlier | None = None,
) -> FloatArray:
    """Fit a classifier's aggregator and return the targets, shape (n, n_classes).

    Parameters
    ----------
    model : BaseCrowdClassifier
        Must have the parameters ``aggregator`` and ``targets``. Its attributes ``aggregator_`` and
        ``confusion_`` are set.
    table : AnnotationTable
    rng : Generator
    earlier : Earlier or None
        In a partial fit: the aggregator goes on from its posterior of the instances seen before, as
        its own ``partial_fit`` does.

    Returns
    -------
    array of shape (n_instances, n_classes)
        The posterior, or with ``targets="hard"`` its most probable class as a one-hot row.
    """
    aggregator = MajorityVote() if model.aggregator is None else clone(model.aggregator)
    model.aggregator_ = set_random_states(aggregator, rng)
    start = None if earlier is None else _start(earlier.model, table)
    if start is None or not has_fit_parameter(aggregator, "start"):
        aggregator.fit(table)
    else:
        aggregator.fit(table, start=start)
    model.confusion_ = aggregator.confusion_
    if issparse(aggregator.posterior_):
        aggregator.posterior_ = as_dense(aggregator.posterior_)
    if model.targets == "soft":
        posterior: FloatArray = aggregator.posterior_
        return posterior
    codes, _ = encode(
        aggregator.labels_, model.classes_, argument="labels_", vocabulary_name="classes_"
    )
    return np.eye(len(model.classes_))[codes]


def _start(model: Any, table: AnnotationTable) -> FloatArray | None:
    """Posterior of a model's aggregator, with the vote shares of the instances that are new.

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


def targets_of_network(model: Any, fit: Fit[FixedConfusionModule, Any]) -> SoftTargets:
    """Infer the balanced targets of a network; instances without annotations have none.

    Also copies the aggregator's confusion matrices into the module, and sets ``class_prior_`` and
    ``heard_`` on the model: held-out annotations are evaluated with them from the first epoch on.
    """
    inferred = infer_targets(model, fit.table, fit.rng, fit.earlier)
    annotated = fit.table.annotations_per_instance() > 0
    targets = SoftTargets(model._balance, fit.features.device)
    targets.set(inferred * annotated[:, None], fit.rng)
    model.class_prior_ = targets.shares
    set_annotator_attributes(model, fit.table, model.aggregator_.posterior_)
    fit.module.confusions.copy_(torch.from_numpy(model.confusion_))
    return targets
