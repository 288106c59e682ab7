"""Lock files, which the system frees when their holder dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE = 0.05
"""Seconds between two tries for a lock that another process holds."""


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Wait for a lock file, and hold it."""
    while True:
        with file_lock(path) as held:
            if held:
                yield
                return
        time.sleep(PAUSE)


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Try to hold a lock file, and say whether it could be had.

    Where the system has no such locks (Windows), every try succeeds: two calls may then run the
    same cell, and only one call at a time may pack.
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
            # Its last holder may have removed the file since it was opened.
            held = os.fstat(handle).st_ino == path.stat().st_ino
        except OSError:
            held = False
        try:
            yield held
        finally:
            if held:
                path.unlink(missing_ok=True)
    finally:
        os.close(handle)
