"""Memory that this process may still take, and files that need more of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from manyhands.exceptions import ModelFolderError


def free_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process may still take; None where the system does not say.

    The least of what the machine has available, with swap, of what the control groups of a
    container or a service leave, and of what ``ulimit -v`` leaves.

    Parameters
    ----------
    root : Path
        Folder that holds ``proc`` and ``sys``.
    """
    return min([*_of_machine(root), *_of_groups(root), *_of_process(root)], default=None)


def refuse_larger(path: Path, times: int = 3) -> None:
    """Refuse a file of arrays that the memory cannot hold, before any of it is read.

    The system ends a process that takes too much memory without a word.

    Parameters
    ----------
    path : Path
        A file.
    times : int
        How many times its size reading takes: the arrays, a copy of each while it is read, and the
        network.

    Raises
    ------
    ModelFolderError
        If the file is too large.
    """
    size, free = path.stat().st_size, free_memory()
    if free is not None and times * size > free:
        raise ModelFolderError(
            f"{str(path)!r} has {in_gib(size)}. Reading it takes up to {times} times as much "
            f"memory, of which {in_gib(free)} are free. Load the model on a machine with more "
            "memory, or end other programs first; if it comes from somebody else and should be "
            "small, do not trust it"
        )


def in_gib(size: float) -> str:
    """Write a number of bytes for a person."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


def _of_machine(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        kib = {name: int(value.split()[0]) for name, _, value in (s.partition(":") for s in lines)}
        yield 1024 * (kib["MemAvailable"] + kib.get("SwapFree", 0))
    except (OSError, ValueError, LookupError):
        names = getattr(os, "sysconf_names", {})
        if "SC_PHYS_PAGES" in names:  # macOS tells what it has, not what is free.
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "memory": (
        *("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        *("memory.usage_in_bytes", "total_inactive_file"),
    ),
}
"""By controller in ``/proc/self/cgroup``, of the second and the first version of control groups:
their folder, the files of limit and use, and the entry of files in memory that can be dropped."""


def _of_groups(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        for name in set(controllers.split(",")) & GROUPS.keys():
            folder, limit, used, dropped = GROUPS[name]
            path = Path(place.lstrip("/"))
            for group in (path, *path.parents):  # A group has no more than those above it.
                yield from _of_group(root / folder / group, limit, used, dropped)


def _of_group(group: Path, limit: str, used: str, dropped: str) -> Iterator[int]:
    try:
        most, now = (group / limit).read_text().strip(), int((group / used).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        if most != "max":
            yield max(int(most) - now + int(stat.get(dropped, 0)), 0)
    except (OSError, ValueError):  # Of another system, or outside of the container.
        return


def _of_process(root: Path) -> Iterator[int]:
    if sys.platform == "win32":
        return
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return
    try:
        pages = int((root / "proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        pages = 0
    yield max(most - pages * resource.getpagesize(), 0)
