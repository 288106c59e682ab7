"""Dense backbones for vectors: linear, MLP, and an MLP for metric learning."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from numbers import Integral

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


class Linear(nn.Module):
    """Multinomial logistic regression; its embedding is the flattened input."""

    def __init__(self, input_shape: Sequence[int], n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(prod(input_shape), n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Flatten x to (n, features)."""
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class MLP(nn.Module):
    """The papers' fully connected network: 128 ReLU units, dropout, linear output.

    Parameters
    ----------
    input_shape : sequence of int
        Shape of one instance, which is flattened.
    n_classes : int
    hidden : sequence of int
        Units of each hidden layer.
    dropout : float in [0, 1)
        Dropout after each hidden layer.
    batch_norm : bool
        Normalise the input and each hidden layer, without affine parameters, as the CoNAL and
        CrowdInG codes do on Music.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_classes: int,
        hidden: Sequence[int] = (128,),
        dropout: float = 0.5,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        width = prod(input_shape)
        layers: list[nn.Module] = [nn.Flatten()]
        if batch_norm:
            layers.append(nn.BatchNorm1d(width, affine=False))
        for units in hidden:
            if not (isinstance(units, Integral) and units > 0):
                raise ValueError(
                    f"hidden={hidden!r} must hold positive numbers of units, such as [128]"
                )
            layers += [nn.Linear(width, units), nn.ReLU(), nn.Dropout(dropout)]
            if batch_norm:
                layers.append(nn.BatchNorm1d(units, affine=False))
            width = units
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the last hidden layer, shape (n, hidden[-1])."""
        embedding: Tensor = self.body(x)
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class EmbeddingMLP(nn.Module):
    """A fully connected network that ends in an embedding, for metric learning.

    Dropout of the *input* keeps the network from memorising a few hundred instances. Dropout of the
    embedding would distort the distances taken in it.

    Parameters
    ----------
    input_shape : sequence of int
        Shape of one instance, which is flattened.
    n_classes : int
    hidden : sequence of int
        Units of each hidden layer. Without hidden layers the embedding is linear.
    width : int
        Dimension of the embedding.
    activation : {"tanh", "relu", "sigmoid"}
        Activation after each hidden layer.
    input_dropout, dropout : float in [0, 1)
        Dropout of the features, and after each hidden layer (with ``bounded``, also after the
        embedding).
    bounded : bool
        Apply the activation to the embedding too. The code released with NeuCrowd is
        ``hidden=(128,), activation="sigmoid", input_dropout=0, dropout=.2, bounded=True``.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_classes: int,
        hidden: Sequence[int] = (128,),
        width: int = 32,
        activation: str = "tanh",
        input_dropout: float = 0.5,
        dropout: float = 0.0,
        bounded: bool = False,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation={activation!r} is unknown; use {', '.join(ACTIVATIONS)}")
        if not isinstance(hidden, Sequence) or isinstance(hidden, str):
            raise ValueError(f"hidden={hidden!r} must be a list of numbers of units, such as [128]")
        units = [*hidden, width]
        if not all(isinstance(n, Integral) and n > 0 for n in units):
            raise ValueError(f"hidden={hidden!r}, width={width!r} must be positive whole numbers")
        input_sizes = [prod(input_shape), *hidden]
        layers: list[nn.Module] = [nn.Flatten(), nn.Dropout(input_dropout)]
        for i, (n_in, n_out) in enumerate(zip(input_sizes, units, strict=True)):
            layers.append(nn.Linear(n_in, n_out))
            if i < len(hidden) or bounded:
                layers += [ACTIVATIONS[activation](), nn.Dropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the embedding, shape (n, width)."""
        embedding: Tensor = self.body(x)
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits
