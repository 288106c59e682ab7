"""Seeds of a fit and of estimators within it; seeding that leaves the global state unchanged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

# The default generators are global: fits in other threads wait instead of sharing them.
_LOCK = threading.RLock()


def draw_seed(random_state: Any) -> int:
    """Draw the seed of one fit from the parameter ``random_state``."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def set_random_states(estimator: Any, rng: np.random.Generator) -> Any:
    """Give every unset ``random_state`` within an estimator a seed, and return the estimator."""
    if hasattr(estimator, "get_params"):
        unset = [
            name
            for name, value in sorted(estimator.get_params().items())
            if value is None and (name == "random_state" or name.endswith("__random_state"))
        ]
        estimator.set_params(**{name: int(rng.integers(2**31)) for name in unset})
    return estimator


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
