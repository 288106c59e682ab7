"""The classifier from which CrowdInG starts: its checks, construction, and copied weights."""

from __future__ import annotations

from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from manyhands.classifiers.crowd_layer import CrowdLayerClassifier
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Fit
from manyhands.fitting.continuing import Seen, gone_on
from manyhands.fitting.fitted import fitted_twin, take_over
from manyhands.fitting.method_protocol import flat_defaults, flat_parameters, from_flat
from manyhands.fitting.parameters import describe_parameter
from manyhands.nn import CrowdLayerGenerator, CrowdLayerModule, GenerativeCrowdModule


def check_pretrainer(model: Any) -> None:
    """Raise an error for a pretrainer with another network, before any training.

    Parameters
    ----------
    model : CrowdInGClassifier

    Raises
    ------
    AnnotationError
        If ``pretrainer`` is another kind of classifier, has a checkpoint, or has
        another ``backbone`` or ``scaling`` than the model.
    """
    pretrainer = model.pretrainer
    if pretrainer is None:
        return
    traits = getattr(pretrainer, "_traits", None)
    if traits is None or not (traits.trains_network and traits.predicts_by_backbone):
        raise _unlike(pretrainer)
    if pretrainer.checkpoint is not None:
        raise AnnotationError(
            f"pretrainer has checkpoint={str(pretrainer.checkpoint)!r}; give checkpoint= to "
            f"{type(model).__name__} instead, which saves the pretrainer's state, too"
        )
    for parameter, describe in (("backbone", _describe_backbone), ("scaling", describe_parameter)):
        theirs, ours = getattr(pretrainer, parameter), getattr(model, parameter)
        if describe(theirs) != describe(ours):
            raise AnnotationError(
                f"pretrainer has {parameter}={theirs!r}, but {type(model).__name__} has {ours!r}. "
                f"Both train the same network; give them the same {parameter}"
            )


def _unlike(pretrainer: Any) -> AnnotationError:
    return AnnotationError(
        f"pretrainer={type(pretrainer).__name__} has no network like this one's to start from; use "
        "a crowd classifier that trains its backbone as it is, such as CrowdLayerClassifier"
    )


def _describe_backbone(backbone: Any) -> Any:
    """Return a description of a backbone that is equal for all equivalent forms."""
    backbone = "mlp" if backbone is None else backbone
    return describe_parameter({"name": backbone} if isinstance(backbone, str) else backbone)


def make_pretrainer(model: Any, rng: np.random.Generator) -> Any:
    """Clone the pretrainer of a `CrowdInGClassifier`, or make the default one.

    It gets the model's seed, device, verbosity and class balance if it has none of its own, and a
    checkpoint beside the model's.
    """
    pretrainer = _default_pretrainer(model) if model.pretrainer is None else clone(model.pretrainer)
    parameters = pretrainer.get_params(deep=False)
    seed = int(rng.integers(np.iinfo(np.int32).max))
    if parameters.get("random_state", 0) is None:
        # The same seed, so that the pretrainer equals one that is fitted alone with that seed.
        has_seed = isinstance(model.random_state, Integral)
        pretrainer.set_params(random_state=model.random_state if has_seed else seed)
    if model.class_balance is not None and parameters.get("class_balance", 0) is None:
        pretrainer.set_params(class_balance=model.class_balance)
    run = {"device": model.device, "verbose": model.verbose, "checkpoint": None}
    if model.checkpoint is not None:
        path = Path(model.checkpoint)
        run["checkpoint"] = path.with_stem(f"{path.stem}-start")
    return pretrainer.set_params(**{name: run[name] for name in run if name in parameters})


def _default_pretrainer(model: Any) -> CrowdLayerClassifier:
    """Return a Crowd Layer with the parameters and protocol fields that it shares with a model."""
    known = flat_defaults(CrowdLayerClassifier)
    shared = {name: value for name, value in flat_parameters(model).items() if name in known}
    pretrainer = CrowdLayerClassifier(**from_flat(CrowdLayerClassifier, shared))
    own = {"validation": None, "random_state": None, "callbacks": None}
    return pretrainer.set_params(**own, protocol__patience=None)


def trained_pretrainer(model: Any, fit: Fit[GenerativeCrowdModule, Any]) -> Any:
    """Train the pretrainer of a `CrowdInGClassifier`; in a partial fit, continue the earlier one.

    A partial fit continues from the classifier after the adversarial phase, and from the
    pretrainer's own parameters of annotators.
    """
    pretrainer, earlier = make_pretrainer(model, fit.rng), fit.earlier
    before = getattr(earlier and earlier.model, "pretrainer_", None)
    if earlier is None:
        return pretrainer.fit(fit.features.data, fit.table, watch=fit.watch)
    if before is None:  # The model was loaded.
        return pretrainer.set_params(checkpoint=None).fit(fit.features.data, fit.table)
    before = fitted_twin(before)
    take_over(before, {"module_": deepcopy(before.module_)})
    before.module_.classifier.load_state_dict(fit.module.classifier.state_dict())
    seen = Seen(fit.features.data, fit.table, fit.table.n_annotations)
    return gone_on(before, seen, earlier, fit.watch)


def start_from(
    pretrainer: Any, module: GenerativeCrowdModule, *, keep_encoder: bool = False
) -> None:
    """Copy the weights of a fitted pretrainer into a module.

    Parameters
    ----------
    pretrainer : fitted crowd classifier
    module : GenerativeCrowdModule
    keep_encoder : bool, default=False
        Whether its generator and discriminator were trained with its encoder, which is kept.

    Raises
    ------
    AnnotationError
        If its network is another one, or the module's generator is a Crowd Layer and it has none.
    """
    try:
        module.classifier.load_state_dict(pretrainer.module_.classifier.state_dict())
    except (AttributeError, RuntimeError) as error:
        raise _unlike(pretrainer) from error
    if module.encoder is not None and not keep_encoder:
        module.set_encoder(module.classifier)
    if isinstance(module.generator, CrowdLayerGenerator):
        matrix = getattr(pretrainer.module_, "matrix", None)
        if not isinstance(pretrainer.module_, CrowdLayerModule) or matrix is None:
            raise AnnotationError(
                "generator='crowd_layer' starts from the Crowd Layer of the pretrainer, and "
                f"pretrainer={type(pretrainer).__name__} has none; use "
                "pretrainer=CrowdLayerClassifier() with connection='MW'"
            )
        with torch.no_grad():
            module.generator.matrix.copy_(matrix)
