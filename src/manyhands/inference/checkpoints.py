"""Checkpoints of every iteration, so that a killed fit resumes at the last one.

`manyhands.inference.em.run_em` loads the state of a stage before its loop and saves it in every
iteration. A state holds parameters, not expected counts. A resumed loop first counts again, which
gives the same bits as the killed run, because shards are always added in the same order.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError
from manyhands.files import check_writable, remove_partial, write_atomically
from manyhands.inference.probability import LargeTable, LargeTables
from manyhands.typing import AnyArray

NAME = "fit.json"
"""File that identifies the fit to which a folder belongs."""

SHAPE = "shape of "
"""Prefix of the entries with the shapes of tables that are saved in separate files."""


class FolderCheckpoint:
    """States in a folder, one file per stage, each written atomically.

    Parameters
    ----------
    folder : str or Path
        Created if missing.
    about : dict
        Plain values that determine the result: method, parameters, digest of the data.
    tables : LargeTables, optional
        Maker of tables that do not fit in memory.

    Raises
    ------
    AnnotationError
        If the folder holds the checkpoint of another fit, or other files.
    WriteError
        If the folder cannot be written.
    """

    def __init__(
        self, folder: str | Path, about: dict[str, Any], tables: LargeTables | None = None
    ) -> None:
        self.tables = tables
        self.folder = check_writable(folder)
        about = json.loads(json.dumps({"manyhands": __version__, **about}, default=repr))
        place = self.folder / NAME
        if not place.exists():
            others = [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]
            if others:
                raise AnnotationError(
                    f"checkpoint={str(folder)!r} holds other files ({others[0]!r}); give a new or "
                    "empty folder"
                )
            write_atomically(place, json.dumps(about, indent=1))
            return
        try:
            found = json.loads(place.read_text(encoding="utf-8"))
        except ValueError as error:
            raise AnnotationError(f"{place} is damaged; remove the folder and fit again") from error
        differing = [name for name in {**found, **about} if found.get(name) != about.get(name)]
        if differing:
            name = differing[0]
            raise AnnotationError(
                f"checkpoint={str(folder)!r} belongs to another fit: {name} was "
                f"{found.get(name)!r} and is {about.get(name)!r}; give another folder, or remove "
                "this one to start again"
            )

    def _file(self, stage: str) -> Path:
        return self.folder / f"{stage}.npz"

    def load(self, stage: str) -> dict[str, AnyArray] | None:
        """Return the last saved state of a stage, or None."""
        place = self._file(stage)
        if not place.exists():
            return None
        try:
            with np.load(place, allow_pickle=False) as saved:
                state: dict[str, Any] = {name: saved[name] for name in saved.files}
            if self.tables is not None:
                for name in [each.removeprefix(SHAPE) for each in state if each.startswith(SHAPE)]:
                    file, shape = str(state[name]), tuple(state.pop(SHAPE + name).tolist())
                    state[name] = self.tables.read(self.folder / file, shape)
            return state
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise AnnotationError(
                f"{place} is damaged ({error}); remove it to start this stage again"
            ) from error

    def save(self, stage: str, **state: Any) -> None:
        """Replace the state of a stage atomically."""
        for name, table in list(state.items()):
            if isinstance(table, LargeTable):
                state[name] = f"{stage}.{name}.{uuid4().hex}.table"
                state[SHAPE + name] = table.shape
                write_atomically(self.folder / state[name], table.write_to)
        write_atomically(self._file(stage), lambda file: np.savez(file, **state))
        for place in self.folder.glob(f"{stage}.*.table"):
            if not any(isinstance(value, str) and value == place.name for value in state.values()):
                place.unlink()

    def finish(self) -> None:
        """Remove all states, which are no longer needed, and the folder if it is empty."""
        for place in [*self.folder.glob("*.npz"), *self.folder.glob("*.table")]:
            remove_partial(place)
            place.unlink(missing_ok=True)
        (self.folder / NAME).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def digest_of(*arrays: Any) -> str:
    """Return the digest of arrays (None allowed): shape, type and content."""
    found = hashlib.sha256()
    for array in arrays:
        if array is None:
            found.update(b"None")
            continue
        values = np.ascontiguousarray(array)
        found.update(f"{values.shape}{values.dtype}".encode())
        found.update(values.tobytes() if values.dtype.kind == "O" else values.view(np.uint8).data)
    return found.hexdigest()
