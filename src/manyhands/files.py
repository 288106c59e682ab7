"""Atomic writing, reservation and locking of files; errors name the file."""

from __future__ import annotations

import errno
import glob
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from manyhands.exceptions import WriteError


def write_atomically(
    path: str | os.PathLike[str], content: bytes | str | Callable[[BinaryIO], object]
) -> Path:
    """Write to a temporary file in the same folder, sync it to disk and rename it to ``path``.

    Parameters
    ----------
    path : str or Path
        Missing parent folders are created.
    content : bytes, str (written as UTF-8), or a function that writes to a binary file

    Returns
    -------
    Path

    Raises
    ------
    WriteError
        If the folder cannot be written or the disk is full; an existing file is left unchanged.
    """
    path = Path(path)
    partial: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates private files; the result gets the permissions of any other new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)
        os.replace(partial, path)
    except BaseException as error:
        if partial is not None and os.path.exists(partial):
            os.unlink(partial)
        if isinstance(error, OSError):
            raise WriteError(error.errno, explain(error, path)) from error
        raise
    return path


def check_writable(folder: str | os.PathLike[str]) -> Path:
    """Check, before hours of work, that files can be written into a folder.

    Raises
    ------
    WriteError
        If the folder cannot be created or written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise WriteError(error.errno, explain(error, folder)) from error
    return folder


def reserve(file: BinaryIO, size: int) -> None:
    """Extend an empty file to ``size`` zero bytes, and fail now if the disk is too full.

    Raises
    ------
    OSError
        If the disk has no room.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
    block = bytes(2**20)  # This file system cannot reserve space, so zeros are written.
    for _ in range(-(-size // len(block))):
        file.write(block)
    file.truncate(size)
    file.flush()


def write_array(file: BinaryIO, values: Any) -> None:
    """Write an array as ``np.save`` does, with an error where the disk is full.

    numpy writes to a file of the system through a copy of its own, and an error that comes when
    that is closed is lost: the end of the array would be missing in silence.

    Parameters
    ----------
    file : binary file
    values : array
        Of numbers or texts, not of objects.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    from numpy.lib.format import write_array as write

    anything: Any = SimpleNamespace(write=file.write)  # No file of the system, for numpy.
    write(anything, values, allow_pickle=False)


def remove_partial(path: str | os.PathLike[str]) -> None:
    """Remove temporary files that killed processes left; no process may be writing the file."""
    path = Path(path)
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        partial.unlink(missing_ok=True)


def explain(error: OSError, path: Path) -> str:
    """Return a message that says why a file cannot be written, and what to do."""
    advice = {
        errno.ENOSPC: "the disk is full; free some space and run again",
        errno.EDQUOT: "the disk quota is used up; free some space and run again",
        errno.EACCES: "no permission to write there; choose another folder",
        errno.EPERM: "no permission to write there; choose another folder",
        errno.ENOENT: "no folder can be created there; choose another folder",
        errno.EROFS: "the file system is read-only; choose another folder",
        errno.EEXIST: "a file exists where a folder is needed; choose another name",
        errno.ENOTDIR: "a file exists where a folder is needed; choose another name",
        errno.EISDIR: "a folder exists where a file is needed; choose another name",
    }
    reason = advice.get(error.errno or 0, error.strerror or str(error))
    return f"cannot write {str(path)!r}: {reason}. Existing files are unchanged"


def refuse_foreign(path: Path, mark: str) -> None:
    """Raise a `WriteError` if a file exists that lacks the mark of files from manyhands."""
    if path.is_file() and mark not in path.read_text(encoding="utf-8", errors="replace"):
        raise WriteError(
            errno.EEXIST,
            f"{str(path)!r} exists and is not from manyhands; it would be overwritten. Choose "
            "another folder",
        )


LOCK_INTERVAL = 0.05
"""Seconds between attempts to take a lock that another process holds."""


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Wait until the lock file is free, then hold it."""
    while True:
        with file_lock(path) as held:
            if held:
                yield
                return
        time.sleep(LOCK_INTERVAL)


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
    if path.is_symlink():  # In a folder of somebody else: it would make a file where it leads.
        path.unlink(missing_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have removed the file after it was opened here.
            held = os.fstat(handle).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            held = False
        except OSError:  # The file system has no locks.
            held = True
        try:
            yield held
        finally:
            if held:
                path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def as_word(path: str | os.PathLike[str]) -> str:
    """Write a path as an argument of a command, where a leading dash would make an option of it."""
    text = os.fspath(path)
    return f"./{text}" if text[:1] == "-" else text
