"""Where to compute."""

from __future__ import annotations

import torch


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve ``"auto"`` to CUDA where there is one, else the CPU.

    Raises
    ------
    ValueError
        If the device is unknown, or CUDA is asked for and there is none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is unknown; use 'auto', 'cpu' or 'cuda'") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}, but no CUDA device is at hand; use 'auto' or 'cpu'")
    return chosen
