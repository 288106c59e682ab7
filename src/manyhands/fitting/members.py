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
from manyhands.files import check_writable
from manyhands.fitting.folders import (
    FORMAT,
    VERSION,
    check_unaltered,
    checksum,
    current_weights,
    read_description,
    remove_weights,
)
from manyhands.io import write_atomically


def save_member(member: Any, folder: Path) -> Path:
    """Write a member by its own ``save``.

    Raises
    ------
    AnnotationError
        If it has none.
    """
    if not hasattr(member, "save"):
        raise AnnotationError(
            f"a {type(member).__name__} cannot be saved as a folder, because it has no save(); "
            "write it with joblib or skops"
        )
    saved: Path = member.save(folder)
    return saved


def save_members(
    name: str,
    members: list[Any],
    folder: str | Path,
    save: Callable[[Any, Path], Path] = save_member,
) -> Path:
    """Write fitted members; replacing ``model.json`` then switches to them atomically.

    Parameters
    ----------
    name : str
        Name of the class that consists of them.
    members : list of fitted classifiers
    folder : str or Path
    save : callable
        Writes a member into a folder.

    Raises
    ------
    AnnotationError
        If a member cannot be saved.
    WriteError
        If the folder cannot be written.
    """
    for number, member in enumerate(members):
        if save is save_member and not hasattr(member, "save"):
            raise AnnotationError(
                f"estimators[{number}] is a {type(member).__name__}, which has no save(); save the "
                "whole with joblib"
            )
    folder = check_writable(folder)
    previous, place = current_weights(folder), f"members-{uuid4().hex[:16]}"
    try:
        digests = [
            _digest(save(member, folder / place / str(number)))
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
    folder: str | Path,
    maker: Callable[[str], Callable[[list[Any]], Any]],
    load: Callable[[Path], Any],
) -> Any | None:
    """Read a folder that `save_members` wrote.

    Parameters
    ----------
    folder : str or Path
    maker : callable
        From the name of the whole to a function that makes it of its members.
    load : callable
        Reads one member's folder.

    Returns
    -------
    The whole, or None if the folder holds a single model

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
    return maker(description["class"])([load(path) for path in paths])


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.json").read_bytes()).hexdigest()
