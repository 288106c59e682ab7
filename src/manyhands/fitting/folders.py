"""Model folders: ``model.json``, and the file of arrays that it names (no torch).

The weights are named after their content and written first. Replacing ``model.json`` then switches
to them atomically, so a failure at any moment leaves the previous model intact.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from manyhands._version import __version__
from manyhands.exceptions import ModelFolderError, WriteError
from manyhands.files import check_writable, explain, file_lock
from manyhands.io import write_atomically
from manyhands.memory import refuse_larger
from manyhands.typing import AnyArray

FORMAT = "manyhands model"
VERSION = 2
"""Version of the layout that is written."""

READ = (1, VERSION)
"""Versions of the layout that can be read; see `manyhands.fitting.earlier_layouts`."""


def write_model(folder: str | Path, description: dict[str, Any], content: bytes) -> Path:
    """Write a model's weights and description into a folder; replace the model already there.

    Parameters
    ----------
    folder : str or Path
    description : dict
        JSON values. The format, its version, the name and the digest of the weights, and a checksum
        are added.
    content : bytes
        A safetensors file.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    """
    folder = check_writable(folder)
    previous = current_weights(folder)
    digest = hashlib.sha256(content).hexdigest()
    weights = f"weights-{digest[:16]}.safetensors"
    description = {
        "format": FORMAT,
        "version": VERSION,
        "manyhands": __version__,
        **description,
        "weights": weights,
        "sha256": digest,
    }
    description["checksum"] = checksum(description)
    text = json.dumps(description, indent=1, allow_nan=False)
    is_new = not (folder / weights).exists()
    write_atomically(folder / weights, content)
    try:
        write_atomically(folder / "model.json", text)
    except BaseException:
        if is_new:
            (folder / weights).unlink(missing_ok=True)
        raise
    if previous != weights:
        remove_weights(folder, previous)
    return folder


STAGING, READY, LOCK = ".manyhands-new", ".manyhands-ready", ".manyhands.lock"
"""Folders in a job's folder: files that are being written, and complete ones; and its lock."""

REPLACED = "replaced.json"
"""Name of the list of earlier files that are removed when the new ones are in place."""


def publish(folder: Path, replaced: Iterable[str] = ()) -> None:
    """Replace earlier files by a job's files, which are complete in the staging folder.

    Renaming the staging folder decides. A process that is killed later leaves the rest to `settle`,
    which the next job, and whoever reads the folder, calls: nobody finds files of two jobs.

    Parameters
    ----------
    folder : Path
        Whose lock is held.
    replaced : iterable of str
        Earlier files that the job did not write anew; weights are found.

    Raises
    ------
    WriteError
        If a file cannot be moved.
    """
    staged = folder / STAGING
    names = {path.name for path in staged.iterdir()}
    old = {"model.json", current_weights(folder), *replaced} - names - {None}
    write_atomically(staged / REPLACED, json.dumps(sorted(str(name) for name in old)))
    try:
        os.replace(staged, folder / READY)
    except OSError as error:
        raise WriteError(error.errno, explain(error, folder)) from error
    _move_ready(folder)


def settle(folder: Path) -> None:
    """Finish an interrupted `publish`, unless another process holds the lock.

    Raises
    ------
    WriteError
        If a file cannot be moved.
    """
    if not _is_folder(folder / READY) or not os.access(folder, os.W_OK):
        return
    with file_lock(folder / LOCK) as held:
        if held and _is_folder(folder / READY):
            _move_ready(folder)


def settle_held(folder: Path) -> None:
    """Finish an interrupted `publish` while the lock is held; remove incomplete files."""
    for name in (STAGING, READY):
        if (folder / name).is_symlink():  # Of somebody who would have us move other files.
            (folder / name).unlink()
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    if (folder / READY).is_dir():
        _move_ready(folder)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _move_ready(folder: Path) -> None:
    ready = folder / READY
    try:
        names = {path.name for path in ready.iterdir()} - {REPLACED}
        for name in sorted(names, key=lambda name: name == "model.json"):  # It names the weights.
            if _is_folder(folder / name):
                shutil.rmtree(folder / name)  # Named by its content, which is the same.
            os.replace(ready / name, folder / name)
        for name in json.loads((ready / REPLACED).read_text(encoding="utf-8")):
            # The list may be somebody else's, as a folder of a stranger: ".." is a name, too.
            if isinstance(name, str) and Path(name).name == name != "..":
                remove_weights(folder, name)
        shutil.rmtree(ready)
    except FileNotFoundError:  # Killed after the list was removed, before the folder was.
        shutil.rmtree(ready, ignore_errors=True)
    except OSError as error:
        raise WriteError(error.errno, explain(error, folder / str(error.filename))) from error
    except ValueError as error:
        raise WriteError(
            errno.EINVAL, f"{str(ready / REPLACED)!r} is damaged ({error}); remove {str(ready)!r}"
        ) from error


@dataclass
class Stored:
    """An array in a file, which is read when it is asked for.

    Attributes
    ----------
    shape : tuple of int
    nbytes : int
    read : callable
    """

    shape: tuple[int, ...]
    nbytes: int
    read: Callable[[], AnyArray]

    @cached_property
    def array(self) -> AnyArray:
        """The array. A description may name it any number of times: it is read once."""
        return self.read()

    @cached_property
    def turned(self) -> AnyArray:
        """The array, with its columns one after the other in memory."""
        return np.asfortranarray(self.array)


@contextmanager
def stored_arrays(folder: Path, description: Mapping[str, Any]) -> Iterator[dict[str, Stored]]:
    """Open the file of arrays that ``model.json`` names; read what its header says of them.

    The arrays can be read until the context ends.

    Raises
    ------
    ModelFolderError
        If the file is missing, truncated, altered, no file of arrays or larger than the memory.
    """
    path = folder / Path(description["weights"]).name
    try:
        if path.exists() and not path.is_file():  # A pipe or a device may never end.
            raise ModelFolderError(f"{str(path)!r} is not a file; save the model again")
        refuse_larger(path)
        with path.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != description["sha256"]:
                raise ModelFolderError(
                    f"{str(path)!r} is truncated or altered (its checksum differs); save the model "
                    "again"
                )
        # Opening it checks that the sizes in the header are those of the arrays and of the file.
        with safe_open(path, framework="numpy") as file:
            yield {
                name: Stored(tuple(told["shape"]), end - begin, partial(file.get_tensor, name))
                for name, told in _header(path).items()
                for begin, end in [told["data_offsets"]]
            }
    except SafetensorError as error:
        raise ModelFolderError(
            f"{str(path)!r} is not a safetensors file ({error}); save the model again"
        ) from error
    except FileNotFoundError as error:
        raise ModelFolderError(f"{str(path)!r} is missing; save the model again") from error
    except OSError as error:
        raise ModelFolderError(
            f"{str(path)!r} cannot be read ({error.strerror}); check its permissions"
        ) from error


def _header(path: Path) -> dict[str, Any]:
    """Read the header of a safetensors file, which has been checked."""
    with path.open("rb") as file:
        told = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: entry for name, entry in told.items() if name != "__metadata__"}


def current_weights(folder: Path) -> str | None:
    """Return the name of the file or folder with the current weights; None if there are none."""
    try:
        path = Path(json.loads((folder / "model.json").read_text(encoding="utf-8"))["weights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path.name if path.match("weights-*.safetensors") or path.match("members-*") else None


def remove_weights(folder: Path, name: str | None) -> None:
    """Remove what `current_weights` named, or an earlier output; no folder but one of members."""
    if name is not None and _is_folder(folder / name):
        if Path(name).match("members-*"):
            shutil.rmtree(folder / name)
    elif name is not None:
        (folder / name).unlink(missing_ok=True)


def checksum(description: dict[str, Any]) -> str:
    """Return the digest of everything in model.json except the digest itself."""
    content = {name: value for name, value in description.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_unaltered(description: dict[str, Any], folder: Path) -> None:
    """Raise an error if the description was altered, for example by swapping two classes."""
    if description.get("checksum") != checksum(description):
        raise ModelFolderError(
            f"{str(folder / 'model.json')!r} was altered (its checksum differs); save the model "
            "again"
        )


def read_description(folder: Path) -> dict[str, Any]:
    """Read ``model.json``.

    Raises
    ------
    ModelFolderError
        If it is missing, truncated, foreign or of another version.
    """
    path = folder / "model.json"
    settle(folder)
    if not path.is_file():
        raise ModelFolderError(
            f"{str(folder)!r} is not a model folder: there is no model.json. Give a folder that "
            "save() or the command fit wrote"
        )
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ModelFolderError(
            f"{str(path)!r} is truncated or unreadable ({error}); save the model again"
        ) from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelFolderError(f"{str(path)!r} was not written by manyhands")
    if description.get("version") not in READ:
        raise ModelFolderError(
            f"{str(path)!r} has format version {description.get('version')!r}, but this manyhands "
            f"reads 1 to {VERSION}; use the version that wrote it ({description.get('manyhands')})"
        )
    return description
