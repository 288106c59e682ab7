"""The scripts beside the experiments' rows, as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="session")
def import_script():
    """Import a script of the folder ``experiments`` by its name."""

    def load(name):
        sys.path.insert(0, str(EXPERIMENTS))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(EXPERIMENTS))

    return load
