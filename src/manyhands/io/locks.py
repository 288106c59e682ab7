"""Lock files, which the operating system releases when their holder dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE = 0.05
"""Seconds between attempts to take a lock that another process holds."""


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Wait until the lock file is free, then hold it."""
    while True:
        with file_lock(path) as held:
            if held:
                yield
                return
        time.sleep(PAUSE)


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Try to take a lock file without waiting; yield whether it is held.

    Where the system has no such locks (Windows, some network drives), every attempt succeeds. The
    user must then not let two commands write into the same folder at the same time.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed the file since it was opened here.
            held = os.fstat(handle).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            held = False
        except OSError:  # A file system without locks.
            held = True
        try:
            yield held
        finally:
            if held:
                path.unlink(missing_ok=True)
    finally:
        os.close(handle)
