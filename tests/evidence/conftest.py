"""The experiments of the repository, loaded once, and processes that start at once."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="session")
def experiments():
    """Rows and papers of the repository."""
    from manyhands.evidence.experiments.loading import load_experiments

    return load_experiments(EXPERIMENTS)


@pytest.fixture(scope="class")
def paper(experiments, request):
    """The paper that a class or module of tests names as its ``PAPER``."""
    return experiments[1][(request.cls or request.module).PAPER]


@pytest.fixture(scope="class")
def mine(experiments, paper):
    """Its rows."""
    return [row for row in experiments[0] if row.paper == paper.key]


@pytest.fixture(scope="class")
def by_id(mine):
    """Its rows by the second part of their ids, without the paper's key."""
    return {row.id.partition("/")[2].partition("_")[2]: row for row in mine}


WARM = """
from pathlib import Path

import pyarrow.parquet
import torch

import manyhands.datasets.demo
import manyhands.evidence.data.variants
import manyhands.evidence.running.worker
from manyhands.evidence.running import cells, code

code._code_hash(("MajorityVote",), Path())
"""
"""What a worker process imports and parses before its first run."""


@pytest.fixture(scope="session")
def warm_server(tmp_path_factory):
    """A process that has done what each worker would take seconds to do, and is forked."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "manyhands_warm.py").write_text(WARM, encoding="utf-8")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["manyhands_warm"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        forkserver.ensure_running()
    return server


@pytest.fixture
def quick_start(warm_server, monkeypatch):
    """Fork worker processes; only slow tests and the command line's start them as users do."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: warm_server)
