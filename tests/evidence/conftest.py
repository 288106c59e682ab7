"""The experiments of the repository, loaded once; and the scripts beside their rows."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="session")
def experiments():
    """Rows and papers of the repository."""
    from manyhands.evidence.experiments.loading import load_experiments

    if not EXPERIMENTS.is_dir():
        pytest.skip("rows come with the checkout only")
    return load_experiments(EXPERIMENTS)


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
