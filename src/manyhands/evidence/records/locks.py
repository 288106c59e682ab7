"""Lock files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Hold a lock file, and say whether it could be had; the system frees that of a dead process.

    Where the system has no such locks (Windows), two calls may run the same cell, to the same
    record.
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
