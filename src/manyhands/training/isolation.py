"""Random numbers of torch during a fit, which leaves its global state unchanged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# The default generators are global: fits in other threads wait instead of sharing them.
_LOCK = threading.RLock()


@contextmanager
def isolated_rng(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's default generators inside the block; restore them afterwards.

    Dropout and weight initialisation draw from torch's default generators. They cannot be avoided
    and are forked instead, for the CPU and the device in use.
    """
    devices: list[int] = []
    if device.type == "cuda":
        devices = [torch.cuda.current_device() if device.index is None else device.index]
    with _LOCK, torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        for index in devices:
            with torch.cuda.device(index):
                torch.cuda.manual_seed(seed)
        yield


def random_state_of(device: torch.device) -> dict[str, Tensor]:
    """State of torch's default generators, for a checkpoint."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Restore the state returned by `random_state_of`."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
