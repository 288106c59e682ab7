"""Atomic writing: a file holds either the complete new content or the complete old one."""

from __future__ import annotations

import errno
import glob
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

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


def remove_partial(path: str | os.PathLike[str]) -> None:
    """Remove what killed processes left of `write_atomically`; nobody may be writing the file."""
    path = Path(path)
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        partial.unlink(missing_ok=True)


def explain(error: OSError, path: Path) -> str:
    """Say in words why a file cannot be written, and what to do."""
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
