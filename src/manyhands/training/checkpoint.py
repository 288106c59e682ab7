"""Atomic checkpoints after every epoch, in files without pickle, and exact resumption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from manyhands.exceptions import ModelFolderError
from manyhands.files import remove_partial
from manyhands.functional.ranks import active_ranks, in_first_process
from manyhands.io import write_atomically
from manyhands.memory import refuse_larger
from manyhands.training.devices import random_state_of, set_random_state
from manyhands.training.loop import Stage
from manyhands.training.progress import Callback, History


class Checkpoint(Callback):
    """Save everything that training depends on after every epoch; resume from it.

    A checkpoint holds the state of module, optimisers, callbacks, history and random generators. A
    run that is killed at any point and resumed ends with exactly the weights of an uninterrupted
    run.

    Parameters
    ----------
    path : str or Path
        The file, which is replaced atomically.
    specification : dict of str to str
        Identifies the run by class, parameters and data. `resume` raises an error for a checkpoint
        with another specification.
    module : nn.Module
    stages : sequence of Stage
    callbacks : sequence of Callback
        The other callbacks, whose state is saved, too.
    history : History
    device : torch.device
    n_epochs : int
        Number of epochs of the run, for `read_n_epochs`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        specification: dict[str, str],
        module: nn.Module,
        stages: Sequence[Stage],
        callbacks: Sequence[Callback],
        history: History,
        device: torch.device,
        n_epochs: int,
    ) -> None:
        self.path = Path(path)
        self.specification = specification
        self.module = module
        self.stages = stages
        self.all_callbacks = callbacks
        # Callbacks without a state, such as a progress bar, may differ between the two runs.
        self.callbacks = [c for c in callbacks if _has_state(c)]
        self.history = history
        self.device = device
        self.n_epochs = n_epochs
        self.stage = 0

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Remember which stage is running."""
        self.stage = [stage.name for stage in self.stages].index(name)

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Write the checkpoint, in the first process only."""
        if not in_first_process():
            return
        save_tree(
            self.path,
            {
                "specification": self.specification,
                "n_epochs": self.n_epochs,
                "stage": self.stage,
                "epoch": metrics["epoch"],
                "stopped": any(callback.stopped for callback in self.all_callbacks),
                "history": list(self.history),
                "module": self.module.state_dict(),
                "steps": [stage.step.state_dict() for stage in self.stages],
                "callbacks": [callback.state_dict() for callback in self.callbacks],
                "random": random_state_of(self.device),
            },
        )

    def resume(self) -> tuple[int, int]:
        """Restore the last checkpoint, if there is one.

        Returns
        -------
        stage, epoch : int
            Stage and epoch at which to resume; (0, 0) without a checkpoint.

        Raises
        ------
        ModelFolderError
            If the checkpoint is unreadable or has another specification.
        """
        remove_partial(self.path)  # A killed run may have left partial files.
        if not self.path.exists():
            return 0, 0
        state = _load(self.path)
        self._check(state)
        self.module.load_state_dict(state["module"])
        for stage, step_state in zip(self.stages, state["steps"], strict=True):
            stage.step.load_state_dict(step_state)
        for callback, callback_state in zip(self.callbacks, state["callbacks"], strict=True):
            callback.load_state_dict(callback_state)
        self.history[:] = state["history"]
        set_random_state(state["random"], self.device)
        if state.get("stopped"):
            return state["stage"] + 1, 0
        return state["stage"], state["epoch"]

    def _check(self, state: Any) -> None:
        if not isinstance(state, dict) or "specification" not in state:
            raise ModelFolderError(f"{str(self.path)!r} is not a manyhands checkpoint")
        found = state["specification"]
        names = sorted({*found, *self.specification})
        differing = [n for n in names if found.get(n) != self.specification.get(n)]
        if differing:
            was = {name: found.get(name) for name in differing}
            raise ModelFolderError(
                f"{str(self.path)!r} belongs to another run: {', '.join(differing)} differ "
                f"(there: {was}). Delete it to start over, or choose another checkpoint="
            )


def _has_state(callback: Callback) -> bool:
    user_callback = getattr(callback, "wrapped", callback)
    return type(user_callback).state_dict is not Callback.state_dict


def resume_in_all_processes(checkpoint: Checkpoint) -> tuple[int, int]:
    """Resume in all processes of a training, and check that all found the same checkpoint.

    Returns
    -------
    stage, epoch : int
        As `Checkpoint.resume`.

    Raises
    ------
    ModelFolderError
        If they found different checkpoints, as on machines without a common file system, or for
        the reasons of `Checkpoint.resume`.
    """
    place = checkpoint.resume()
    ranks = active_ranks()
    if ranks is not None:
        places = ranks.all_of(place)
        if len(set(places)) > 1:
            raise ModelFolderError(
                f"{str(checkpoint.path)!r} is not the same file for all processes (they would "
                f"resume at stages and epochs {places}); put the checkpoint on a file system that "
                "all machines share"
            )
    return place


def read_n_epochs(path: str | Path) -> int | None:
    """Return the number of epochs of the run that wrote a checkpoint; None if there is none.

    It does not check whether this is the same run; `Checkpoint.resume` does.

    Raises
    ------
    ModelFolderError
        If the checkpoint is unreadable.
    """
    if not Path(path).exists():
        return None
    state = _load(Path(path))
    found = state.get("n_epochs") if isinstance(state, dict) else None
    return None if found is None else int(found)


def _load(path: Path) -> Any:
    try:
        return load_tree(path)
    except ModelFolderError as error:
        raise ModelFolderError(
            f"{error}, delete it to start over, or choose another checkpoint="
        ) from error


_TENSOR = "__tensor__"
_PAIRS = "__pairs__"


def save_tree(path: str | Path, tree: Any) -> Path:
    """Write nested dicts and lists atomically: tensors as such, the rest as JSON in the header.

    Returns
    -------
    Path
        The file.
    """
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
    refuse_larger(path)
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
    """Replace tensors by references, and dicts with other keys than strings by lists of pairs."""
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
