"""Training protocols by name: the training settings of published comparisons.

How a network is trained can affect accuracy as much as the crowd model on top of it. Methods can be
compared fairly only under the same protocol, and a figure should state its protocol.

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
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from manyhands.exceptions import AnnotationError

if TYPE_CHECKING:  # It needs torch.
    from manyhands.fitting.classifier import BaseCrowdClassifier


@dataclass(frozen=True)
class TrainingProtocol:
    """Settings with which networks are trained in a comparison.

    Attributes
    ----------
    name : str
    description : str
        The settings in words.
    source : str
        Where the protocol is published.
    parameters : mapping
        What ``set_params`` of estimators takes, the network (``backbone``) included; other
        parameters stay unchanged.
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
    "protocol__noise_lr": None,
    "weight_decay": 0.0,
    "protocol__reset_optimizer": True,
    "scaling": None,
}
_CONAL_SOURCE = "code released with CoNAL (AAAI 2021) and CrowdInG (KDD 2021)"
_DASC = {"protocol__noise_lr": None, "protocol__reset_optimizer": False}
_DASC_SOURCE = "DASC (Machine Learning 2023), section 4.1"

PROTOCOLS: dict[str, TrainingProtocol] = {
    protocol.name: protocol
    for protocol in (
        TrainingProtocol(
            "default",
            "The library's own: the defaults in every estimator's signature.",
            "docs/results/suiting_defaults.md",
            {},
        ),
        TrainingProtocol(
            "conal_labelme",
            "Adam at 1e-2 for all parameters, reset every epoch; batches of 1,024, 100 epochs, no "
            "weight decay, unscaled features.",
            _CONAL_SOURCE,
            {**_CONAL, "max_epochs": 100},
        ),
        TrainingProtocol(
            "conal_music",
            "As on LabelMe, but with 200 epochs and batch normalisation of the input and the "
            "hidden layer; CoNAL has embeddings of size 80, of which only the annotators' are "
            "scaled to unit length.",
            _CONAL_SOURCE,
            {
                **_CONAL,
                "max_epochs": 200,
                "backbone": {"name": "mlp", "batch_norm": True},
                "protocol__embedding_dim": 80,
                "protocol__normalize": "annotator",
            },
        ),
        TrainingProtocol(
            "dasc_labelme",
            "Adam at 1e-3 with weight decay for all parameters, batches of 512, 25 epochs, "
            "unscaled features.",
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
            "Adam at 1e-3 for all parameters, batches of 128, 100 epochs, batch normalisation, no "
            "dropout and no weight decay (the paper mentions neither). The batch normalisation is "
            "our variant: it applies to the input and the hidden layer, where the paper puts it "
            "before the ReLU.",
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
            "Adam at 1e-4 (our reading of a garbled print) with weight decay for all parameters, "
            "batches of 128, 100 epochs, ResNet-18. The paper's network is pretrained; ours starts "
            "at random unless the backbone is given weights. Channels are standardised.",
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
    """Return the parameters of a training protocol, for an estimator or a grid.

    Parameters
    ----------
    name : str
        One of `PROTOCOLS`.

    Returns
    -------
    dict
        A copy, which the caller may change. It may name parameters that an estimator lacks; see
        `with_protocol`.

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
    """Return an unfitted copy of an estimator with the parameters of a protocol.

    The protocol's parameters replace the estimator's. A network (``backbone``) that the estimator
    names is kept, parameters that the estimator lacks (such as ``noise_lr`` for a method without a
    noise part) are left out, and all others stay unchanged. A method with phases of its own keeps
    their settings. A method that is not trained by gradient steps (`RaykarClassifier`,
    `PersonalClassifier`) takes only the scaling. The protocol also applies to the estimator of
    self-training and to CrowdInG's ``pretrainer``.

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
        If there is no such protocol, or no protocol applies: ``backbone`` is a scikit-learn
        classifier, or the method has no network.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier
    >>> from manyhands.fitting import with_protocol
    >>> model = with_protocol(CrowdLayerClassifier(random_state=0), "dasc_labelme")
    >>> model.max_epochs, model.scaling, model.random_state
    (25, None, 0)
    """
    parameters = training_protocol(name)
    traits = getattr(estimator, "_traits", None)
    if parameters and traits is not None and traits.second_stage:
        raise AnnotationError(
            f"protocol={name!r} sets how a network is trained, but the backbone "
            f"{type(estimator.backbone).__name__} is a scikit-learn classifier; use a network as "
            "backbone"
        )
    copy: BaseCrowdClassifier = clone(estimator)
    if hasattr(copy, "estimator"):
        # A wrapper trains the classifier that it wraps.
        return copy.set_params(estimator=with_protocol(copy.clone_estimator(), name))
    if hasattr(copy, "estimators"):
        members = [with_protocol(member, name) for member in copy.clone_estimators()]
        return copy.set_params(estimators=members)
    if not parameters:
        return copy
    settable = () if traits is None or not traits.trains_network else traits.protocol_parameters
    if settable is not None and not len(settable):
        raise AnnotationError(
            f"protocol={name!r} sets how a network is trained, and {type(copy).__name__} has "
            "none; leave it out, or use a method with a network, such as CoNALClassifier"
        )
    own = copy.get_params()
    may_set = own if settable is None else settable
    if own.get("backbone") is not None:
        # The estimator's own choice of a network has precedence.
        parameters.pop("backbone", None)
    copy.set_params(**{key: value for key, value in parameters.items() if key in may_set})
    if own.get("pretrainer") is not None:
        # The pretrainer trains the same network.
        copy.set_params(pretrainer=with_protocol(copy.pretrainer, name))
    return copy
