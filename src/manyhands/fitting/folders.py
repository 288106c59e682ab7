"""Model folders: ``model.json``, and the file or the folder of weights that it names (no torch).

The weights are named after their content and written first. Replacing ``model.json`` then switches
to them atomically, so a failure at any moment leaves the previous model intact.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from sklearn.base import BaseEstimator

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.files import check_writable
from manyhands.io import write_atomically

FORMAT = "manyhands model"
VERSION = 1
ClassFinder = Callable[..., type[Any]]
"""Finds the class of a name; persistence itself knows no method."""


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
    if description.get("version") != VERSION:
        raise ModelFolderError(
            f"{str(path)!r} has format version {description.get('version')!r}, but this manyhands "
            f"reads {VERSION}; use the version that wrote it ({description.get('manyhands')})"
        )
    return description


# -- parameters as JSON, for saved models and checkpoints ------------------------------------------


UNCOMPARED = frozenset({"callbacks", "checkpoint", "device", "verbose"})
"""Parameters that may differ between a run and its resumption."""


def describe_instances(model: BaseEstimator) -> list[Any] | None:
    """Ids of the rows of a fitted ``posterior_``; None where they only number the rows."""
    ids = getattr(model, "instances_", None)
    if ids is None or not hasattr(model, "posterior_"):
        return None
    return None if np.array_equal(ids, np.arange(len(ids))) else list(ids.tolist())


def restore_instances(model: BaseEstimator, description: dict[str, Any]) -> None:
    """Undo `describe_instances`, once ``posterior_`` is there. Earlier folders say nothing."""
    if "instances" not in description or not hasattr(model, "posterior_"):
        return
    ids, n = description["instances"], len(model.posterior_)
    plain = isinstance(ids, list) and not any(isinstance(each, list | dict) for each in ids)
    if ids is not None and not (plain and len(ids) == n):
        raise ModelFolderError(
            f"'instances' are no list of {n} ids, one per row of posterior_; save the model again"
        )
    model.instances_ = np.arange(n) if ids is None else np.array(ids)


def describe_parameter(value: Any) -> Any:
    """Describe a parameter as JSON: estimators by name and parameters, other objects by name."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: describe_parameter(part) for key, part in value.items()}
        # JSON would turn keys that are numbers, such as classes, into text.
        pairs = [[describe_parameter(part) for part in pair] for pair in value.items()]
        return {"__pairs__": pairs}
    if isinstance(value, list | tuple):
        return [describe_parameter(part) for part in value]
    if hasattr(value, "detach"):  # A tensor.
        value = value.detach().cpu()
    if hasattr(value, "__array__"):
        # Shape and digest rather than content: this also identifies the data of a checkpoint.
        array = np.ascontiguousarray(value)
        # The bytes of an object array are memory addresses, which differ between processes.
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        digest = hashlib.blake2b(content, digest_size=8).hexdigest()
        return {"__array__": list(array.shape), "digest": digest}
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        return {
            "__estimator__": type(value).__name__,
            "parameters": {name: describe_parameter(part) for name, part in parameters.items()},
        }
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return {"__object__": name}


# -- models that consist of others: each in a folder of its own, and one ``model.json`` -----------


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

    Returns
    -------
    Path
        The folder.

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
