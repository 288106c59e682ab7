"""The experiments of the repository, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="session")
def experiments():
    """Rows and papers of the repository."""
    from manyhands.evidence.experiments.loading import load_experiments

    return load_experiments(EXPERIMENTS)


@pytest.fixture(scope="module")
def paper(experiments, request):
    """The paper that a module of tests names as its ``PAPER``."""
    return experiments[1][request.module.PAPER]


@pytest.fixture(scope="module")
def mine(experiments, request):
    """Its rows."""
    return [row for row in experiments[0] if row.paper == request.module.PAPER]


@pytest.fixture(scope="module")
def by_id(mine):
    """Its rows by the second part of their ids, without the paper's key."""
    return {row.id.partition("/")[2].partition("_")[2]: row for row in mine}
