"""Encoders around the user's models, which are given as objects or by name.

Torch and the packages of the models are imported when they are first needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.encoders.frozen import UNNAMED, FrozenEncoder
from manyhands.encoders.inputs import as_pillow, as_texts, image_rows, require
from manyhands.exceptions import AnnotationError

YES = ("1", "true", "yes", "on")
"""Values of HF_HUB_OFFLINE, in lower case, that switch downloads off."""


class _AroundModel:
    """Mixin of encoders around a model given as an object or by name; they implement `_load`."""

    def _loaded(self: Any) -> tuple[Any, Any]:
        """Return the model and its tokenizer or preprocessing; load a named model only once."""
        parameters = self.get_params(deep=False)
        key = [parameters.get(name) for name in ("model", "tokenizer", "preprocess", "device")]
        kept = self.__dict__.get("_kept")
        if kept is None or any(a is not b for a, b in zip(kept[0], key, strict=True)):
            kept = self.__dict__["_kept"] = (key, self._load())
        return cast(tuple[Any, Any], kept[1])

    def _weights(self: Any) -> str:
        """Return a digest of the model's weights and layers, and of its preprocessing."""
        model, before = self._loaded()
        if not hasattr(model, "state_dict"):
            raise AnnotationError(UNNAMED.format(type(self).__name__))
        digest = hashlib.sha256(repr(model).encode())
        for name, value in model.state_dict().items():
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(import_module("torch").uint8).numpy())
        vocabulary = before.get_vocab() if hasattr(before, "get_vocab") else None
        shown = repr(before) if vocabulary is None else repr(sorted(vocabulary.items()))
        if " at 0x" in shown:  # The address of an object differs in every process.
            shown = getattr(before, "__qualname__", type(before).__qualname__)
        digest.update(shown.encode())
        return digest.hexdigest()


class SentenceTransformerEncoder(_AroundModel, FrozenEncoder):
    """Encode texts with a model of sentence-transformers.

    Parameters
    ----------
    model : object with ``encode(list of str)``, or str
        A `SentenceTransformer`, or its name on the hub or folder.
    batch_size : int, default=32
    normalize : bool, default=False
        Scale every row to length 1.
    local_files_only : bool, default=False
        Never download a named model; ``HF_HUB_OFFLINE=1`` means the same.
    cache : EmbeddingCache, str, Path or None
        Where encoded rows are kept, or None.
    fingerprint : str, optional
        Names the model's version for the cache; default: a digest of its weights.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FrozenEncoder._parameter_constraints,
        "model": [str, os.PathLike, object],
        "normalize": ["boolean"],
        "local_files_only": ["boolean"],
    }

    def __init__(
        self,
        model: Any,
        *,
        batch_size: int = 32,
        normalize: bool = False,
        local_files_only: bool = False,
        cache: Any = None,
        fingerprint: str | None = None,
    ) -> None:
        self.model = model
        self.batch_size = batch_size
        self.normalize = normalize
        self.local_files_only = local_files_only
        self.cache = cache
        self.fingerprint = fingerprint

    def _rows(self, X: Any) -> Any:
        return as_texts(X)

    def _load(self) -> tuple[Any, Any]:
        if not isinstance(self.model, str | os.PathLike):
            if not hasattr(self.model, "encode"):
                raise AnnotationError(
                    f"model is a {type(self.model).__name__} without encode(); give a "
                    "SentenceTransformer or its name"
                )
            return self.model, getattr(self.model, "tokenizer", None)
        package = require(
            "sentence_transformers", "SentenceTransformerEncoder", "sentence-transformers"
        )
        model = _found(
            self.model,
            self.local_files_only,
            lambda name, only: package.SentenceTransformer(name, local_files_only=only),
        )
        return model, model.tokenizer

    def _encode_batch(self, rows: Any) -> Any:
        return self._loaded()[0].encode(
            rows,
            batch_size=self.batch_size,
            convert_to_numpy=True,
            normalize_embeddings=self.normalize,
            show_progress_bar=False,
        )


class TransformersEncoder(_AroundModel, FrozenEncoder):
    """Encode texts as the pooled last hidden states of a transformer.

    Parameters
    ----------
    model : nn.Module, or str
        A model of transformers that returns ``last_hidden_state``, or its name on the hub or
        folder. It is used in evaluation mode and without gradients.
    tokenizer : callable, optional
        Default: the tokenizer of the named model.
    pooling : {"mean", "cls"}
        The mean over the tokens of a text, or the first token's.
    max_length : int, optional
        Longer texts are cut. Default: the smaller limit of tokenizer and model.
    batch_size : int, default=32
    device : str, default="auto"
        "auto": a model given as an object stays where it is; a named one goes to a GPU if there is
        one.
    local_files_only, cache, fingerprint : as in `SentenceTransformerEncoder`
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FrozenEncoder._parameter_constraints,
        "model": [str, os.PathLike, object],
        "tokenizer": [None, callable, str, os.PathLike],
        "pooling": [StrOptions({"mean", "cls"})],
        "max_length": [None, Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "local_files_only": ["boolean"],
    }

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        pooling: str = "mean",
        max_length: int | None = None,
        batch_size: int = 32,
        device: str = "auto",
        local_files_only: bool = False,
        cache: Any = None,
        fingerprint: str | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.max_length = max_length
        self.batch_size = batch_size
        self.device = device
        self.local_files_only = local_files_only
        self.cache = cache
        self.fingerprint = fingerprint

    def _rows(self, X: Any) -> Any:
        return as_texts(X)

    def _load(self) -> tuple[Any, Any]:
        named = [isinstance(part, str | os.PathLike) for part in (self.model, self.tokenizer)]
        if self.tokenizer is None and not named[0]:
            raise AnnotationError("model is an object; give its tokenizer, too: tokenizer=")
        model = self._part("AutoModel", self.model)
        tokenizer = self._part("AutoTokenizer", self.tokenizer or self.model)
        return _on_device(model, self.device, named=named[0]), tokenizer

    def _part(self, loader: str, part: Any) -> Any:
        if not isinstance(part, str | os.PathLike):
            return part
        package = require("transformers", "TransformersEncoder", "transformers")
        load = getattr(package, loader).from_pretrained
        return _found(
            part, self.local_files_only, lambda name, only: load(name, local_files_only=only)
        )

    def _encode_batch(self, rows: Any) -> Any:
        model, tokenizer = self._loaded()
        limits = [self.max_length] if self.max_length else _limits(model, tokenizer)
        cut = {"truncation": True, "max_length": min(limits)} if limits else {}
        tokens = tokenizer(rows, padding=True, return_tensors="pt", **cut)
        device = _device_of(model)
        tokens = {name: value.to(device) for name, value in dict(tokens).items()}
        with _frozen(model):
            states = model(**tokens).last_hidden_state
        if self.pooling == "cls":
            return states[:, 0]
        shown = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        return (states * shown).sum(dim=1) / shown.sum(dim=1).clamp(min=1)


class TorchEncoder(_AroundModel, FrozenEncoder):
    """Encode rows as the output of a torch module.

    Parameters
    ----------
    model : nn.Module
        A module that returns one vector per row. It is used in evaluation mode, without gradients.
    preprocess : callable, optional
        Turns a row into a tensor, such as a transform of torchvision does. Paths are first opened
        as PIL images. Default: arrays are used unchanged, as float32.
    batch_size : int, default=32
    device : str, default="auto"
        As in `TransformersEncoder`.
    cache, fingerprint : as in `SentenceTransformerEncoder`
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FrozenEncoder._parameter_constraints,
        "model": [callable],
        "preprocess": [None, callable],
        "device": [str],
    }

    def __init__(
        self,
        model: Any,
        preprocess: Any = None,
        *,
        batch_size: int = 32,
        device: str = "auto",
        cache: Any = None,
        fingerprint: str | None = None,
    ) -> None:
        self.model = model
        self.preprocess = preprocess
        self.batch_size = batch_size
        self.device = device
        self.cache = cache
        self.fingerprint = fingerprint

    def _rows(self, X: Any) -> Any:
        return image_rows(X)

    def _load(self) -> tuple[Any, Any]:
        return _on_device(self.model, self.device), self.preprocess

    def _encode_batch(self, rows: Any) -> Any:
        torch = require("torch", type(self).__name__, "torch", "manyhands[torch]")
        model, preprocess = self._loaded()
        if preprocess is None:
            batch = torch.as_tensor(np.stack([np.asarray(row, dtype=np.float32) for row in rows]))
        else:
            batch = torch.stack([torch.as_tensor(preprocess(self._opened(row))) for row in rows])
        with _frozen(model):
            return model(batch.to(_device_of(model)))

    def _opened(self, row: Any) -> Any:
        return as_pillow(row) if isinstance(row, os.PathLike) else row


class TimmEncoder(TorchEncoder):
    """Encode images with a network of timm or torchvision.

    Parameters
    ----------
    model : nn.Module or str
        A network without its classification layer (``num_classes=0``), or a name for
        ``timm.create_model``, which may download its weights.
    preprocess : "auto" or callable, default="auto"
        Turns a PIL image into a tensor. "auto": the transform that timm provides for the model.
    batch_size, device, cache, fingerprint : as in `TorchEncoder`
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TorchEncoder._parameter_constraints,
        "model": [str, callable],
        "preprocess": [StrOptions({"auto"}), callable],
    }

    def __init__(
        self,
        model: Any,
        preprocess: Any = "auto",
        *,
        batch_size: int = 32,
        device: str = "auto",
        cache: Any = None,
        fingerprint: str | None = None,
    ) -> None:
        self.model = model
        self.preprocess = preprocess
        self.batch_size = batch_size
        self.device = device
        self.cache = cache
        self.fingerprint = fingerprint

    def _load(self) -> tuple[Any, Any]:
        model, preprocess, named = self.model, self.preprocess, isinstance(self.model, str)
        if named or isinstance(preprocess, str):
            timm = require("timm", "TimmEncoder", "timm")
            if named:
                model = _found(
                    model, False, lambda name, _: timm.create_model(name, True, num_classes=0)
                )
            if isinstance(preprocess, str):
                config = timm.data.resolve_model_data_config(model)
                preprocess = timm.data.create_transform(**config, is_training=False)
        return _on_device(model, self.device, named=named), preprocess

    def _opened(self, row: Any) -> Any:
        return as_pillow(row)


# -- models of torch ------------------------------------------------------------------------------


@contextmanager
def _frozen(model: Any) -> Iterator[None]:
    """Use a module in evaluation mode without gradients, and restore its mode afterwards."""
    torch = require("torch", "An encoder", "torch", "manyhands[torch]")
    parts = list(model.modules()) if hasattr(model, "modules") else []
    modes = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


def _on_device(model: Any, device: str, *, named: bool = False) -> Any:
    if device == "auto" and not named:
        return model
    from manyhands.training import pick_device

    return model.to(pick_device(device))


def _device_of(model: Any) -> Any:
    first = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    return "cpu" if first is None else first.device


def _limits(model: Any, tokenizer: Any) -> list[int]:
    """Return the largest text lengths that the tokenizer and the model declare."""
    config = getattr(model, "config", None)
    found = (
        getattr(tokenizer, "model_max_length", None),
        getattr(config, "max_position_embeddings", None),
    )
    # Tokenizers without a limit declare 10^30.
    return [int(limit) for limit in found if isinstance(limit, int) and 0 < limit < 10**9]


def _found(name: Any, only_local: bool, load: Callable[[Any, bool], Any]) -> Any:
    """Load a named model; the error says where it was looked for."""
    text, path = str(name), Path(name).expanduser()
    is_path = isinstance(name, os.PathLike) or text.startswith((".", "/", "~"))
    here = f"as a folder {str(path.absolute())!r}"
    if is_path and not path.exists():
        raise AnnotationError(f"model {text!r} was looked for {here}, which does not exist")
    offline = only_local or os.environ.get("HF_HUB_OFFLINE", "").lower() in YES
    try:
        return load(str(path) if is_path else text, offline or is_path)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        home = os.environ.get("HF_HOME") or str(Path("~/.cache/huggingface").expanduser())
        kept = os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")
        hub = " (offline, so not on the hub)" if offline else " and on the hub"
        places = here if is_path else f"{here}, in {kept!r}{hub}"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise AnnotationError(
            f"model {text!r} was looked for {places}, and could not be loaded ({reason})"
        ) from error
