"""Shared fixtures: one thread, and the data home where there is one."""

import os
from pathlib import Path

import pytest
import torch

# On a busy machine threads fight: one fit of a small network takes minutes instead of seconds.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_home() -> Path:
    """Folder of the real data sets; tests that need it skip without."""
    home = os.environ.get("MANYHANDS_DATA")
    if not home:
        pytest.skip("MANYHANDS_DATA is not set: no real data sets here")
    return Path(home)
