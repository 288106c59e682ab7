"""The experiments of the repository, loaded once; made records; processes that start at once."""

from __future__ import annotations

import functools
import multiprocessing
import os
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from zlib import crc32

import pytest

from evidence.experiments.loading import load_experiments
from evidence.experiments.papers import (
    Paper,
    TablePlan,
    paper_of,
)
from evidence.experiments.rows import Row
from evidence.records import (
    GOLD,
    HELD_OUT,
    LAST,
    ORACLE,
    Record,
)

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"


@functools.cache
def committed_experiments():
    """Rows and papers of the repository, which a process loads once."""
    return load_experiments(EXPERIMENTS)


@pytest.fixture(scope="session")
def experiments():
    """Rows and papers of the repository."""
    return committed_experiments()


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
import pyarrow.parquet
import torch

import manyhands.datasets.demo
import evidence.data.variants
import evidence.running.pool
from evidence.running import cells
"""
"""What a worker process imports before its first run."""


@pytest.fixture(scope="session", autouse=True)
def found_by_child_processes():
    """Let child processes find ``evidence``, as an editable installation does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def warm_server(tmp_path_factory, found_by_child_processes):
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


CITATION = "A. Author. A paper. 2021."


N_TEST = 400


def make_row(name, published=None, table="p/t1", column="Set", seeds=(0, 1, 2), **changes):
    row = Row(
        id=f"m/{name}",
        file=f"experiments/m/{name}.yaml",
        label=name,
        citation=CITATION,
        table=table,
        column=column,
        data={"name": "labelme"},
        # Rows of different names are of different things.
        estimator={
            "class": "CoNALClassifier",
            "params": {"lr": 0.1, "batch_size": crc32(name.encode())},
        },
        seeds=tuple(seeds),
        holdout=0.1,
        device="cpu",
        extra=(),
        published=published,
        deviations=(),
    )
    return replace(row, **changes)


def published(value, selection="gold validation", metric="accuracy"):
    found = {"metric": metric, "value": value, "sd": 0.005, "n": 5}
    return found if selection is None else {**found, "selection": selection}


def make_record(row, seed, accuracy=None, *, extra=None, absent=(), **changes):
    """Make a record; its figures rise from protocol to protocol by a thousandth."""
    figures = {}
    for k, protocol in enumerate((LAST, HELD_OUT, GOLD, ORACLE)):
        if accuracy is None or protocol in absent:
            figures[protocol] = {"absent": "no such part"}
        else:
            value = accuracy + 0.001 * k
            figures[protocol] = {"epoch": 2, "accuracy": value, "macro_f1": 0.5, "n_test": N_TEST}
    record = Record(
        paper=paper_of(row),
        row=row.id,
        seed=seed,
        specification=row.specification(),
        data_checksum="data",
        versions={"numpy": "2.0", "python": "3.11"},
        commit="0123456789",
        started=f"2026-01-0{1 + seed}T10:00:00+00:00",
        seconds=1.5,
        peak_memory_mb=200.0,
        status="done",
        metrics=figures,
        extra=extra or {},
    )
    return replace(record, **changes)


def make_records(row, values, **options):
    return [make_record(row, seed, value, **options) for seed, value in enumerate(values)]


def make_paper(**parts):
    tables = (TablePlan("t1", "Table 1", "accuracy", ("Set",), ("first", "second")),)
    return Paper("p", "A paper", CITATION, **{"tables": tables, **parts})


def line_of(text, name):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def note(row, seed, **columns):
    return make_record(row, seed, 0.5, history=columns)
