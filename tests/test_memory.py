"""How much memory is free, and files that need more."""

import subprocess
import sys

import pytest

from manyhands.exceptions import ModelFolderError
from manyhands.memory import free_memory, refuse_larger

GIB = 2**30
MEMINFO = "MemTotal:       24684092 kB\nMemAvailable:    8388608 kB\nSwapFree:        1048576 kB\n"
"""Of 9 GiB that a process may still take, one is swap."""


@pytest.fixture
def machine(tmp_path):
    """Make a machine of files, by their names below its root."""

    def made(**files):
        texts = {"proc/meminfo": MEMINFO, **files.pop("at", {}), **files}
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return made


def group(folder, limit, used, dropped, version=2):
    names = ["memory.max", "memory.current", "inactive_file"]
    if version == 1:
        names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"]
    most, now, entry = names
    return {
        f"{folder}/{most}": f"{limit}\n",
        f"{folder}/{now}": f"{used}\n",
        f"{folder}/memory.stat": f"anon 1\n{entry} {dropped}\n",
    }


def test_a_machine_without_limits_gives_what_is_available_and_swap(machine):
    assert free_memory(machine()) == 9 * GIB


@pytest.mark.parametrize("limit", ["max", 100 * GIB])
def test_a_group_with_a_higher_limit_changes_nothing(machine, limit):
    at = {"proc/self/cgroup": "0::/a.slice\n", **group("sys/fs/cgroup/a.slice", limit, GIB, 0)}
    assert free_memory(machine(at=at)) == 9 * GIB


def test_a_container_has_its_limit_less_its_use_and_may_drop_files(machine):
    at = {"proc/self/cgroup": "0::/\n", **group("sys/fs/cgroup", 4 * GIB, 3 * GIB, GIB)}
    assert free_memory(machine(at=at)) == 2 * GIB


def test_a_group_has_no_more_than_those_above_it(machine):
    at = {
        "proc/self/cgroup": "0::/a/b\n",
        **group("sys/fs/cgroup/a", 2 * GIB, GIB, 0),
        **group("sys/fs/cgroup/a/b", 8 * GIB, GIB, 0),
    }
    assert free_memory(machine(at=at)) == GIB


def test_groups_of_the_first_version_count(machine):
    at = {
        "proc/self/cgroup": "5:devices:/x\n4:memory:/docker/7\n0::/\n",
        **group("sys/fs/cgroup/memory", 3 * GIB, 2 * GIB, GIB // 2, version=1),
    }
    assert free_memory(machine(at=at)) == 1.5 * GIB


def test_what_cannot_be_read_says_nothing(machine):
    at = {"proc/self/cgroup": "0::/\n", **group("sys/fs/cgroup", "many", GIB, 0)}
    assert free_memory(machine(at=at)) == 9 * GIB


def test_ulimit_counts():
    """``ulimit -v`` is the smallest limit where it leaves less than the machine has."""
    pytest.importorskip("resource", reason="this system has no ulimit")
    code = (
        "import resource; from manyhands.memory import free_memory; "
        "resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)); print(free_memory())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(told.stdout) < 2**29


def test_a_file_that_memory_does_not_hold_is_refused_with_both_sizes(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(bytes(2**20))
    monkeypatch.setattr("manyhands.memory.free_memory", lambda: 3 * 2**20)
    refuse_larger(path)  # Three times its size are just free.
    monkeypatch.setattr("manyhands.memory.free_memory", lambda: 2**21)
    with pytest.raises(
        ModelFolderError, match=r"weights\.safetensors' has 1\.0 MiB.*2\.0 MiB are free"
    ):
        refuse_larger(path)


def test_a_file_of_a_third_of_the_free_memory_is_held(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(bytes(2**20))
    monkeypatch.setattr("manyhands.memory.free_memory", lambda: 3 * 2**20)
    refuse_larger(path)
    monkeypatch.setattr("manyhands.memory.free_memory", lambda: 3 * 2**20 - 1)
    with pytest.raises(ModelFolderError, match=r"has 1\.0 MiB.*of which 3\.0 MiB are free"):
        refuse_larger(path)
    monkeypatch.setattr("manyhands.memory.free_memory", lambda: None)
    refuse_larger(path)
