"""The choice of a torch device."""

from __future__ import annotations

import torch


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve a device; ``"auto"`` is CUDA if available, else the CPU.

    Raises
    ------
    ValueError
        If the device is unknown, or is CUDA but no CUDA device is available.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is unknown; use 'auto', 'cpu' or 'cuda'") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}, but no CUDA device is available; use 'auto' or 'cpu'")
    return chosen
