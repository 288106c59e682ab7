"""Training protocols by name: the optimiser's settings that published comparisons were made with.

How a network is trained can move accuracy as much as the crowd model on top of it, so a comparison
is fair under one protocol only, and a figure means something beside its protocol's name.

.. [1] Z. Chu, J. Ma and H. Wang. Learning from crowds by modeling common confusions. AAAI 2021,
   and the released code. The code of CrowdInG (Z. Chu and H. Wang, KDD 2021) trains in the same
   way.
.. [2] DASC, Machine Learning 2023, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sklearn.base import clone

from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier


@dataclass(frozen=True)
class TrainingProtocol:
    """How networks are trained in a comparison.

    Attributes
    ----------
    name : str
    description : str
        What it is, in words.
    source : str
        Where it stands.
    parameters : mapping
        Parameters of estimators, the network (``backbone``) among them; what is not named stays
        as it is.
    """

    name: str
    description: str
    source: str
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))


_CONAL = {
    "batch_size": 1024,
    "lr": 1e-2,
    "noise_lr": None,
    "weight_decay": 0.0,
    "reset_optimizer": True,
    "scaling": None,
}
_CONAL_SOURCE = "code released with CoNAL (AAAI 2021) and CrowdInG (KDD 2021)"
_DASC = {"noise_lr": None, "reset_optimizer": False}
_DASC_SOURCE = "DASC (Machine Learning 2023), section 4.1"

PROTOCOLS: dict[str, TrainingProtocol] = {
    protocol.name: protocol
    for protocol in (
        TrainingProtocol(
            "default",
            "The library's own: what every estimator's signature says.",
            "docs/results/defaults.md",
            {},
        ),
        TrainingProtocol(
            "conal_labelme",
            "Adam 1e-2, made anew every epoch, for everything; batches of 1,024, 100 epochs, no "
            "weight decay, features as they are.",
            _CONAL_SOURCE,
            {**_CONAL, "max_epochs": 100},
        ),
        TrainingProtocol(
            "conal_music",
            "As on LabelMe, with 200 epochs and batch normalisation of the input and the hidden "
            "layer; CoNAL with embeddings of 80, of which the annotators' have unit length.",
            _CONAL_SOURCE,
            {
                **_CONAL,
                "max_epochs": 200,
                "backbone": {"name": "mlp", "batch_norm": True},
                "embedding_dim": 80,
                "normalize": "annotator",
            },
        ),
        TrainingProtocol(
            "dasc_labelme",
            "Adam 1e-3 and weight decay for everything, batches of 512, 25 epochs, features as "
            "they are.",
            _DASC_SOURCE,
            {
                **_DASC,
                "max_epochs": 25,
                "batch_size": 512,
                "lr": 1e-3,
                "weight_decay": 5e-4,
                "scaling": None,
            },
        ),
        TrainingProtocol(
            "dasc_music",
            "Adam 1e-3 for everything, batches of 128, 100 epochs, batch normalisation and no "
            "dropout (none is named, nor weight decay). The batch normalisation is ours: of the "
            "input and of the hidden layer, where the paper has it before the ReLU.",
            _DASC_SOURCE,
            {
                **_DASC,
                "max_epochs": 100,
                "batch_size": 128,
                "lr": 1e-3,
                "weight_decay": 0.0,
                "scaling": None,
                "backbone": {"name": "mlp", "batch_norm": True, "dropout": 0.0},
            },
        ),
        TrainingProtocol(
            "dasc_cifar10h",
            "Adam 1e-4 (as read: the print is garbled) and weight decay for everything, batches "
            "of 128, 100 epochs, ResNet-18. The paper's is pretrained, ours starts at random "
            "unless the backbone is given weights; channels are standardised.",
            _DASC_SOURCE,
            {
                **_DASC,
                "max_epochs": 100,
                "batch_size": 128,
                "lr": 1e-4,
                "weight_decay": 5e-4,
                "scaling": "standard",
                "backbone": {"name": "resnet18"},
            },
        ),
    )
}
"""Protocols by name."""


def training_protocol(name: str) -> dict[str, Any]:
    """Return the parameters of a training protocol, to be given to an estimator or a grid.

    Parameters
    ----------
    name : str
        One of `PROTOCOLS`.

    Returns
    -------
    dict
        The caller's own. It may name parameters that an estimator lacks; see `with_protocol`.

    Raises
    ------
    AnnotationError
        If there is no such protocol.

    Examples
    --------
    >>> from manyhands.fitting import training_protocol
    >>> training_protocol("dasc_labelme")["batch_size"]
    512
    """
    if name not in PROTOCOLS:
        raise AnnotationError(f"protocol={name!r} is unknown; use one of {', '.join(PROTOCOLS)}")
    return deepcopy(dict(PROTOCOLS[name].parameters))


def with_protocol(estimator: BaseCrowdClassifier, name: str) -> BaseCrowdClassifier:
    """Return an unfitted copy of an estimator that is trained by a protocol.

    The protocol's parameters replace the estimator's, but for a network (``backbone``) that it
    names; those the estimator does not have (``noise_lr`` of a method without a noise part, for
    instance) are left out, and all others stay as they are. A method with phases of its own keeps
    their settings, and one that is not trained by gradient steps (`RaykarClassifier`,
    `PersonalClassifier`) takes the scaling alone. Self-training trains its estimator by it,
    and CrowdInG its ``pretrainer``, too.

    Parameters
    ----------
    estimator : BaseCrowdClassifier
    name : str
        One of `PROTOCOLS`.

    Returns
    -------
    BaseCrowdClassifier

    Raises
    ------
    AnnotationError
        If there is no such protocol, or a scikit-learn classifier stands in for the network: no
        protocol applies to it.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier
    >>> from manyhands.fitting import with_protocol
    >>> model = with_protocol(CrowdLayerClassifier(random_state=0), "dasc_labelme")
    >>> model.max_epochs, model.scaling, model.random_state
    (25, None, 0)
    """
    parameters = training_protocol(name)
    if parameters and getattr(estimator, "_second_stage", False):
        raise AnnotationError(
            f"protocol={name!r} is about training networks; the second stage "
            f"{type(estimator.backbone).__name__} is fitted by its own rules"
        )
    copy: BaseCrowdClassifier = clone(estimator)
    if hasattr(copy, "estimator"):
        # What is trained is the classifier that this one is made around.
        return copy.set_params(estimator=with_protocol(copy.clone_estimator(), name))
    own = copy.get_params(deep=False)
    may_set = own if copy._protocol_parameters is None else copy._protocol_parameters
    if own.get("backbone") is not None:
        # A network that was chosen is what is to be trained.
        parameters.pop("backbone", None)
    copy.set_params(**{key: value for key, value in parameters.items() if key in may_set})
    if own.get("pretrainer") is not None:
        # They train one network.
        copy.set_params(pretrainer=with_protocol(copy.pretrainer, name))
    return copy
