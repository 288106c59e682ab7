"""Labels inferred by an aggregator, as training targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import SoftTargets
from manyhands.fitting.template import set_annotator_attributes
from manyhands.inference import MajorityVote
from manyhands.nn import FixedConfusionModule
from manyhands.training.seeding import set_random_states
from manyhands.typing import FloatArray


def infer_targets(model: Any, table: AnnotationTable, rng: np.random.Generator) -> FloatArray:
    """Fit a classifier's aggregator and return the targets, shape (n, n_classes).

    Parameters
    ----------
    model : BaseCrowdClassifier
        Must have the parameters ``aggregator`` and ``targets``. Its attributes ``aggregator_`` and
        ``confusion_`` are set.
    table : AnnotationTable
    rng : Generator

    Returns
    -------
    array of shape (n_instances, n_classes)
        The posterior, or with ``targets="hard"`` its most probable class as a one-hot row.
    """
    aggregator = MajorityVote() if model.aggregator is None else clone(model.aggregator)
    model.aggregator_ = set_random_states(aggregator, rng).fit(table)
    model.confusion_ = aggregator.confusion_
    if model.targets == "soft":
        posterior: FloatArray = aggregator.posterior_
        return posterior
    codes, _ = encode(
        aggregator.labels_, model.classes_, argument="labels_", vocabulary_name="classes_"
    )
    return np.eye(len(model.classes_))[codes]


def targets_of_network(model: Any, fit: Fit[FixedConfusionModule, Any]) -> SoftTargets:
    """Infer the balanced targets of a network; instances without annotations have none.

    Also copies the aggregator's confusion matrices into the module, and sets ``class_prior_`` and
    ``heard_`` on the model: held-out annotations are evaluated with them from the first epoch on.
    """
    inferred = infer_targets(model, fit.table, fit.rng)
    annotated = fit.table.annotations_per_instance() > 0
    targets = SoftTargets(model._balance, fit.features.device)
    targets.set(inferred * annotated[:, None], fit.rng)
    model.class_prior_ = targets.shares
    set_annotator_attributes(model, fit.table, model.aggregator_.posterior_)
    fit.module.confusions.copy_(torch.from_numpy(model.confusion_))
    return targets
