"""The device of a fit, and its random numbers, which leave torch's global state unchanged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch
from torch import Tensor

from manyhands.functional.ranks import active_ranks

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


@contextmanager
def drawn_in(dtype: torch.dtype) -> Iterator[None]:
    """Make new tensors, such as noise, in the precision of a training."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def generator_of_workers() -> torch.Generator:
    """Make the generator that seeds a DataLoader's workers; nothing is drawn from torch's own.

    It follows from the state of torch's generator. A fit thus draws the same numbers with workers
    and without, and other ones in every epoch.
    """
    state = torch.get_rng_state().numpy().tobytes()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(blake2b(state, digest_size=7).digest()))
    return generator


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


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve a device; ``"auto"`` is CUDA if available, else the CPU.

    Within a training on several devices, it is always the one of this process.

    Raises
    ------
    ValueError
        If the device is unknown, or is CUDA but no CUDA device is available.
    """
    ranks = active_ranks()
    if ranks is not None:
        return ranks.device
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={device!r} is unknown here; use 'auto', 'cpu' or 'cuda'"
        ) from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}, but no CUDA device is available; use 'auto' or 'cpu'")
    return chosen
