"""Networks from the parameter ``backbone``: by name, by factory, or the user's own module.

Features are float tensors throughout this library. A user's network may take token ids or instances
that are dicts, and return outputs with ``logits``. Forward hooks convert its inputs and outputs, so
its class, its parameters' names and its other methods stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from manyhands.exceptions import AnnotationError
from manyhands.functional.ranks import over_ranks
from manyhands.nn.backbones.dense import MLP, EmbeddingMLP, Linear
from manyhands.nn.backbones.images import CNN, VGG16, ResNet18
from manyhands.records import record

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "linear": Linear,
    "mlp": MLP,
    "embedding": EmbeddingMLP,
    "cnn": CNN,
    "vgg16": VGG16,
    "resnet18": ResNet18,
}
"""Backbones by name, as used in parameters, in files and on the command line."""

ADAPTED = "_takes_features"
"""Attribute that marks a network whose hooks have been added."""

LARGEST_EXACT = 1 << 24
"""Up to this integer, float32 represents every integer."""


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
            f"but backbone={spec!r} takes arrays; give a module whose forward takes these names"
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
    """Call a factory, which may be a class."""
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


class Field(NamedTuple):
    """One tensor of an instance that is a dict: its name, shape, and whether it holds integers."""

    name: str
    shape: tuple[int, ...]
    integer: bool


class PackedShape(tuple[int, ...]):
    """Shape of an instance that is a dict of tensors, packed into one vector.

    The vector begins with the sizes of the tensors, which may differ from batch to batch: sentences
    are padded to the longest of their batch.

    Attributes
    ----------
    fields : tuple of Field
        The tensors in the order in which they are packed. Their shapes are those of one batch.
    """

    fields: tuple[Field, ...]

    @classmethod
    def of(cls, fields: Iterable[Sequence[Any]]) -> PackedShape:
        """Return the shape that packs the given fields."""
        known = tuple(Field(name, tuple(shape), bool(whole)) for name, shape, whole in fields)
        shape = cls((sum(len(field.shape) + prod(field.shape) for field in known),))
        shape.fields = known
        return shape

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {field.shape}" for field in self.fields)

    @property
    def kinds(self) -> list[tuple[str, int, bool]]:
        """Name, number of axes and kind of every field, which are the same in all batches."""
        return [(field.name, len(field.shape), field.integer) for field in self.fields]

    @property
    def sizes(self) -> list[int]:
        """Sizes of all fields; a packed vector begins with them."""
        return [size for field in self.fields for size in field.shape]


record("PackedShape", content=lambda shape: list(shape.fields), make=PackedShape.of)(PackedShape)


def blank(input_shape: Sequence[int], device: torch.device | None = None) -> Tensor:
    """Make one instance of zeros, shape (1, *input_shape)."""
    x = torch.zeros(1, *input_shape, device=device)
    if isinstance(input_shape, PackedShape):
        x[0, : len(input_shape.sizes)] = torch.tensor(input_shape.sizes, dtype=x.dtype)
    return x


def pack(batch: Mapping[str, Any]) -> tuple[Tensor, list[Field]]:
    """Pack a batch of dicts into one float32 tensor (n, total), and describe its fields.

    Raises
    ------
    AnnotationError
        If an entry is not a tensor, holds an integer too large for float32, or has another length
        than the others.
    """
    fields: list[Field] = []
    parts: list[Tensor] = []
    for name in sorted(batch):
        value = batch[name]
        if not isinstance(value, Tensor):
            raise AnnotationError(
                f"X has instances that are dicts, and their entry {name!r} is not an array of "
                f"numbers ({type(value).__name__}); leave it out, or encode it"
            )
        whole = not (value.is_floating_point() or value.is_complex())
        if whole and value.numel() and int(value.abs().max()) > LARGEST_EXACT:
            raise AnnotationError(
                f"X has instances that are dicts, and their entry {name!r} holds an integer beyond "
                f"{LARGEST_EXACT:,}, which float32 rounds; number the ids from 0"
            )
        if not value.ndim or (parts and len(value) != len(parts[0])):
            raise AnnotationError(
                f"X gives batches whose entry {name!r} has shape {tuple(value.shape)}, which is "
                "not one row per instance; stack every entry in collate_fn"
            )
        fields.append(Field(name, tuple(value.shape[1:]), whole))
        parts.append(value.float().flatten(1) if value.ndim > 1 else value.float()[:, None])
    sizes = torch.tensor(PackedShape.of(fields).sizes, dtype=torch.float32)
    return torch.cat([sizes.expand(len(parts[0]), -1), *parts], dim=1), fields


def adapt(network: nn.Module, input_shape: Sequence[int]) -> nn.Module:
    """Hook a user's network so that it takes float features and gives logits."""
    if hasattr(network, ADAPTED):
        return network  # A copy of a network keeps its hooks.
    unpack = _Unpack(input_shape) if isinstance(input_shape, PackedShape) else None
    setattr(network, ADAPTED, unpack)
    if unpack is not None:
        network.register_forward_pre_hook(unpack, with_kwargs=True)
    embedding = first_embedding(network)
    if embedding is not None:
        embedding.register_forward_pre_hook(_as_ids)
    network.register_forward_hook(_only_logits)
    return network


def embedded(network: nn.Module, x: Tensor) -> Tensor:
    """Call a network's ``embed``; it gets the entries of dicts by name, as ``forward`` does."""
    unpack = getattr(network, ADAPTED, None)

    def embed(part: Tensor) -> Tensor:
        args, kwargs = ((part,), {}) if unpack is None else unpack(network, (part,), {})
        embedding: Tensor = network.embed(*args, **kwargs)  # type: ignore[operator]
        return embedding

    return over_ranks(network, embed, x)


def first_embedding(network: nn.Module) -> nn.Embedding | nn.EmbeddingBag | None:
    """Return the first layer with weights if it embeds integers such as token ids, else None."""
    for part in network.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            return part
        if next(part.parameters(recurse=False), None) is not None:
            return None
    return None


class _Unpack:
    """Turns packed instances into keyword arguments."""

    def __init__(self, shape: PackedShape) -> None:
        self.shape = shape

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        x, n_sizes = args[0], len(self.shape.sizes)
        sizes = iter(x[0, :n_sizes].long().tolist() if len(x) else self.shape.sizes)
        shapes = [[next(sizes) for _ in field.shape] for field in self.shape.fields]
        parts = x[:, n_sizes:].split([prod(shape) for shape in shapes], dim=1)
        named = {
            field.name: (part.long() if field.integer else part).reshape(len(x), *shape)
            for field, part, shape in zip(self.shape.fields, parts, shapes, strict=True)
        }
        return args[1:], {**kwargs, **named}


def _as_ids(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Turn the float input of an embedding into integer ids; raise an error for unknown ids."""
    if not args or not args[0].is_floating_point():
        return args
    x, size = args[0], int(module.num_embeddings)  # type: ignore[arg-type]
    ids = x.long()
    if not torch.equal(ids.to(x.dtype), x):
        raise AnnotationError(
            "backbone begins with an nn.Embedding, whose input are whole numbers (such as token "
            f"ids), and X holds {x[ids.to(x.dtype) != x][0].item()!r}; give the ids, or another "
            "backbone"
        )
    if ids.numel() and LARGEST_EXACT <= int(ids.max()) < size:
        raise AnnotationError(
            f"X holds the token id {int(ids.max())}, and ids are exact up to "
            f"{LARGEST_EXACT - 1:,} only; map the tokens that occur to smaller ids"
        )
    if ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < size):
        raise AnnotationError(
            f"X holds the token ids {int(ids.min())} to {int(ids.max())}, but the embedding of "
            f"backbone has {size:,} rows, for ids from 0 to {size - 1:,}; raise num_embeddings, "
            "or map unknown tokens to an id of their own"
        )
    return ids, *args[1:]


def _only_logits(module: nn.Module, args: Any, output: Any) -> Any:
    """Return the logits of an output object such as those of Hugging Face's models."""
    return getattr(output, "logits", output)
