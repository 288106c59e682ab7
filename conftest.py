"""What every test and doctest starts from: one thread, a closed network, no personal files."""

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run; and on a busy machine an example may take any time.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# The tests run in parallel already: competing threads make them take minutes instead of seconds.
# Set before numpy or torch is imported; worker processes inherit it. A number that is set already
# stays: `.ci/matrix` runs the tests with several.
for library in ("OMP", "MKL", "OPENBLAS"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# Fits and saved models are compared bit for bit, and a GPU rounds otherwise. Set this variable to
# run the tests on one.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

# The tests write many thousands of small files, and whatever saves waits until the disk has them.
# In memory nothing waits, and what tests leave behind goes with the folder. Set TMPDIR to choose
# another place, whose files stay. Worker processes inherit it.
MEMORY, ENOUGH = Path("/dev/shm"), 4 << 30
USABLE = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
if USABLE and "TMPDIR" not in os.environ:
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="tests-", dir=MEMORY)
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

NOWHERE = "http://127.0.0.1:9"
"""A proxy that nobody runs: port 9 discards."""


# What is imported and collected stays to the end: the garbage collector need not walk it again and
# again, which takes a fifth of the time.
gc.disable()


def pytest_collection_finish():
    """Collect garbage from here on, but not among what is there already."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip tests marked ``data`` where there are no data sets; nothing else decides this."""
    if item.get_closest_marker("data") and not os.environ.get("MANYHANDS_DATA"):
        pytest.skip("set MANYHANDS_DATA to a folder of the real data sets (docs/datasets.md)")


@pytest.fixture(scope="session", autouse=True)
def closed_network(tmp_path_factory):
    """Give child processes, which pytest-socket does not guard, no way out and an empty home."""
    home = str(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.setenv(name, NOWHERE)
            patch.setenv(name.lower(), NOWHERE)
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost,::1")
        for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
            patch.setenv(name, home)
        yield


@pytest.fixture(scope="session", autouse=True)
def signatures_read_once():
    """Keep the parameters' names of a class: each `get_params` would read its signature again."""
    from functools import cache

    from sklearn.base import BaseEstimator

    read = cache(BaseEstimator._get_param_names.__func__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseEstimator, "_get_param_names", classmethod(read))
        yield


@pytest.fixture(scope="session", autouse=True)
def equal_forecasts_once():
    """Make the forecast of a report once for equal tables: it takes most of the time of a job."""
    from copy import deepcopy

    import joblib

    from manyhands.report import planning

    forecast, made = planning.forecast, {}

    def remembered(*given, **options):
        key = joblib.hash((given, options))
        if key not in made:
            made[key] = forecast(*given, **options)
        return deepcopy(made[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "forecast", remembered)
        yield


@pytest.fixture(autouse=True)
def real_data_only_where_marked(request, monkeypatch):
    """Hide the data home from tests that do not have the mark ``data``."""
    if not request.node.get_closest_marker("data"):
        monkeypatch.delenv("MANYHANDS_DATA", raising=False)


@pytest.fixture
def data_home(request, real_data_only_where_marked) -> Path:
    """Folder of the real data sets, for tests with the mark ``data``."""
    assert request.node.get_closest_marker("data"), "a test of the real sets needs the mark data"
    return Path(os.environ["MANYHANDS_DATA"])
