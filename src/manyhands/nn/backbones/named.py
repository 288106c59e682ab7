"""Named backbones, and how a ``backbone`` parameter becomes a network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from manyhands.exceptions import AnnotationError
from manyhands.nn.backbones.dense import MLP, EmbeddingMLP, Linear
from manyhands.nn.backbones.given import adapt
from manyhands.nn.backbones.images import CNN, VGG16, ResNet18

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "linear": Linear,
    "mlp": MLP,
    "embedding": EmbeddingMLP,
    "cnn": CNN,
    "vgg16": VGG16,
    "resnet18": ResNet18,
}
"""Backbones by name, as used in parameters, in files and on the command line."""


def make_backbone(spec: Any, input_shape: Sequence[int], n_classes: int) -> nn.Module:
    """Build the network that a ``backbone`` parameter specifies.

    Parameters
    ----------
    spec : None, str, dict, nn.Module or callable
        None is ``"mlp"``; a name from `BACKBONES`; a dict with ``name`` and that backbone's
        arguments; a module (copied, never trained in place); or a factory called with
        ``(input_shape, n_classes)`` that returns a module giving class logits, or an object with
        them in ``logits``. A module whose first layer is an ``nn.Embedding`` gets integers. If
        instances are dicts, a module gets their entries by name. A dict of the parameter may also
        have ``weights`` to start from: a state dict of that backbone, or the path of a
        ``.safetensors`` file with one. If they lack the entries of ``head`` (because it was
        trained on other classes, say), the head starts at random, as everything does without
        ``weights``.
    input_shape : sequence of int
        Shape of one instance.
    n_classes : int

    Returns
    -------
    nn.Module

    Raises
    ------
    AnnotationError
        If the name or an argument is unknown, the weights belong to another network, or a factory
        does not return a module.
    """
    if isinstance(spec, nn.Module):
        return adapt(copy.deepcopy(spec), input_shape)
    if callable(spec):
        module = _called(spec, tuple(input_shape), n_classes)
        if not isinstance(module, nn.Module):
            raise AnnotationError(
                f"backbone={spec!r} returned {type(module).__name__}; a factory takes "
                "(input_shape, n_classes) and returns a torch nn.Module"
            )
        return adapt(module, input_shape)
    if hasattr(input_shape, "fields"):
        raise AnnotationError(
            f"X has instances that are dicts ({', '.join(f.name for f in input_shape.fields)}), "
            f"and backbone={spec!r} takes arrays; pass a module whose forward takes these names"
        )
    arguments = {"name": spec or "mlp"} if spec is None or isinstance(spec, str) else dict(spec)
    name = arguments.pop("name", "mlp")
    if name not in BACKBONES:
        raise AnnotationError(f"backbone={name!r} is unknown; use one of {', '.join(BACKBONES)}")
    weights = arguments.pop("weights", None)
    try:
        network = BACKBONES[name](input_shape, n_classes, **arguments)
        if weights is not None:
            _load_weights(network, weights)
    except (TypeError, ValueError, RuntimeError) as error:
        # The weights are left out: they would fill the screen.
        shown = {"name": name, **arguments} if arguments else name
        raise AnnotationError(f"backbone={shown!r}: {error}") from error
    return network


def _called(factory: Any, input_shape: tuple[int, ...], n_classes: int) -> Any:
    """Call a factory; a class may be one."""
    try:
        return factory(input_shape, n_classes)
    except TypeError as error:
        name = getattr(factory, "__name__", repr(factory))
        instead = f", or an instance such as {name}(...)" if isinstance(factory, type) else ""
        raise AnnotationError(
            f"backbone={name} was called with (input_shape, n_classes) = "
            f"({input_shape}, {n_classes}), which failed: {error}. Give a factory that takes these "
            f"two{instead}"
        ) from error


def _load_weights(network: nn.Module, weights: Any) -> None:
    """Load a state dict, or a safetensors file, into a network; ``head`` may be absent."""
    if not isinstance(weights, Mapping):
        path = Path(weights)
        if path.suffix != ".safetensors":
            raise ValueError(
                f"weights={str(path)!r} is neither a state dict nor a .safetensors file"
            )
        try:
            weights = load_file(path)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"weights={str(path)!r} cannot be read ({error})") from error
    own = network.state_dict()
    parts = {
        "lack": [name for name in own if name not in weights and not name.startswith("head.")],
        "have unknown entries": [name for name in weights if name not in own],
    }
    for problem, names in parts.items():
        if names:
            more = f", ... ({len(names)})" if len(names) > 3 else ""
            raise ValueError(f"weights {problem} {', '.join(map(str, names[:3]))}{more}")
    network.load_state_dict({**own, **weights})
