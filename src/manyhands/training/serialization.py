"""Nested dicts and lists of tensors and plain values in one safetensors file (no pickle)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from manyhands.exceptions import ModelFolderError
from manyhands.io import write_atomically

_TENSOR = "__tensor__"
_PAIRS = "__pairs__"


def save_tree(path: str | Path, tree: Any) -> Path:
    """Write a tree atomically: tensors as such, everything else as JSON in the header."""
    tensors: dict[str, Tensor] = {}
    skeleton = _strip(tree, tensors)
    return write_atomically(path, save(tensors, metadata={"tree": json.dumps(skeleton)}))


def load_tree(path: str | Path, device: str | torch.device = "cpu") -> Any:
    """Read a tree written by `save_tree`.

    Raises
    ------
    ModelFolderError
        If the file is missing, truncated or of another format.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFolderError(f"{str(path)!r} is missing; save the model again")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            skeleton = json.loads((file.metadata() or {})["tree"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _fill(skeleton, tensors)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise ModelFolderError(
            f"{str(path)!r} is truncated or not a manyhands file ({error}); write it again"
        ) from error


def _strip(node: Any, tensors: dict[str, Tensor]) -> Any:
    """Replace tensors by references, and dicts whose keys are not plain strings by pairs."""
    if isinstance(node, Tensor):
        name = str(len(tensors))
        # Copied, because safetensors refuses tensors that share storage.
        tensors[name] = node.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: name}
    if isinstance(node, dict):
        if all(isinstance(key, str) and not key.startswith("__") for key in node):
            return {key: _strip(value, tensors) for key, value in node.items()}
        return {_PAIRS: [[key, _strip(value, tensors)] for key, value in node.items()]}
    if isinstance(node, list | tuple):
        return [_strip(value, tensors) for value in node]
    return node


def _fill(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, dict):
        if _TENSOR in node:
            return tensors[node[_TENSOR]]
        if _PAIRS in node:
            return {key: _fill(value, tensors) for key, value in node[_PAIRS]}
        return {key: _fill(value, tensors) for key, value in node.items()}
    if isinstance(node, list):
        return [_fill(value, tensors) for value in node]
    return node
