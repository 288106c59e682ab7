"""Model folders: ``model.json``, and the file of arrays that it names (no torch).

The weights are named after their content and written first. Replacing ``model.json`` then switches
to them atomically, so a failure at any moment leaves the previous model intact.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from manyhands._version import __version__
from manyhands.exceptions import ModelFolderError
from manyhands.files import check_writable
from manyhands.io import write_atomically

FORMAT = "manyhands model"
VERSION = 2
"""Of the layout that is written."""

READ = (1, VERSION)
"""Versions that are read; see `manyhands.fitting.earlier_layouts`."""


def write_model(folder: str | Path, description: dict[str, Any], content: bytes) -> Path:
    """Write a model's weights and description into a folder; replace the model already there.

    Parameters
    ----------
    folder : str or Path
    description : dict
        What JSON can hold. The format, its version, the name and the digest of the weights, and a
        checksum are added.
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


def read_weights(path: Path, digest: str) -> bytes:
    """Read a file of weights.

    Raises
    ------
    ModelFolderError
        If it is missing, truncated or altered.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelFolderError(f"{str(path)!r} is missing; save the model again") from error
    except OSError as error:
        raise ModelFolderError(f"{str(path)!r} cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelFolderError(
            f"{str(path)!r} is truncated or altered (its checksum differs); save the model again"
        )
    return content


def current_weights(folder: Path) -> str | None:
    """Name of the file, or of the folder of members, with the weights a folder already holds."""
    try:
        path = Path(json.loads((folder / "model.json").read_text(encoding="utf-8"))["weights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path.name if path.match("weights-*.safetensors") or path.match("members-*") else None


def remove_weights(folder: Path, name: str | None) -> None:
    """Remove what `current_weights` named."""
    if name is not None and (folder / name).is_dir():
        shutil.rmtree(folder / name)
    elif name is not None:
        (folder / name).unlink(missing_ok=True)


def checksum(description: dict[str, Any]) -> str:
    """Digest of everything in model.json except the digest itself."""
    content = {name: value for name, value in description.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_unaltered(description: dict[str, Any], folder: Path) -> None:
    """Refuse an altered description: with two classes swapped it would load and predict wrongly."""
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
    if not path.is_file():
        raise ModelFolderError(
            f"{str(folder)!r} is not a model folder: there is no model.json. Give a folder written "
            "by save() or 'manyhands fit --out'"
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
