"""Saving of a model that consists of others: each in its own folder, and one ``model.json``."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting.folders import (
    FORMAT,
    VERSION,
    ClassFinder,
    check_unaltered,
    checksum,
    current_weights,
    read_description,
    remove_weights,
)
from manyhands.io import write_atomically
from manyhands.io.files import check_writable


def save_members(name: str, members: list[Any], folder: str | Path) -> Path:
    """Write fitted members; replacing ``model.json`` then switches to them atomically.

    Parameters
    ----------
    name : str
        Name of the class that consists of them.
    members : list of fitted classifiers
    folder : str or Path

    Raises
    ------
    AnnotationError
        If a member cannot be saved.
    WriteError
        If the folder cannot be written.
    """
    for number, member in enumerate(members):
        if not hasattr(member, "save"):
            raise AnnotationError(
                f"estimators[{number}] is a {type(member).__name__}, which has no save(); save the "
                "whole with joblib"
            )
    folder = check_writable(folder)
    previous, place = current_weights(folder), f"members-{uuid4().hex[:16]}"
    try:
        digests = [
            _digest(member.save(folder / place / str(number)))
            for number, member in enumerate(members)
        ]
        description: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "manyhands": __version__,
            "class": name,
            "weights": place,
            "members": digests,
        }
        description["checksum"] = checksum(description)
        write_atomically(folder / "model.json", json.dumps(description, indent=1))
    except BaseException:
        shutil.rmtree(folder / place, ignore_errors=True)
        raise
    remove_weights(folder, previous)
    return folder


def read_members(
    folder: str | Path, find_class: ClassFinder, load: Callable[[Path], Any]
) -> Any | None:
    """Read a folder that `save_members` wrote.

    Parameters
    ----------
    folder : str or Path
    find_class : callable
        `manyhands.registry.get`. The class needs ``of_fitted``.
    load : callable
        Reads one member's folder.

    Returns
    -------
    A fitted classifier, or None if the folder holds a single model

    Raises
    ------
    ModelFolderError
        If the folder is no model, or a member is missing, truncated or altered.
    """
    folder = Path(folder)
    description = read_description(folder)
    if "members" not in description:
        return None
    check_unaltered(description, folder)
    place = folder / Path(description["weights"]).name
    paths = [place / str(number) for number in range(len(description["members"]))]
    for path, digest in zip(paths, description["members"], strict=True):
        if not (path / "model.json").is_file() or _digest(path) != digest:
            raise ModelFolderError(f"{str(path)!r} is missing or altered; save the whole again")
    return find_class(description["class"], "wrapper").of_fitted([load(path) for path in paths])


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.json").read_bytes()).hexdigest()
