"""Sets of one layout: found in the data home, or fetched from their public source into the cache.

The layout of a set is a folder with ``labels.csv`` (task, label, split; the rows of X in order),
``annotations.csv`` (task, worker, label), ``classes.txt`` (a name a line) and ``features.npz``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.datasets._base import CrowdDataset, PathLike, data_home, user_cache
from manyhands.exceptions import DataNotFoundError
from manyhands.io._frames import canonical
from manyhands.typing import AnyArray

__all__ = ["Layout", "Source", "load_set"]

_LOG = logging.getLogger("manyhands")

BASE_URL = "https://raw.githubusercontent.com"
TIMEOUT = 60.0

Layout = tuple[list[list[Any]], list[list[Any]], AnyArray]
"""Rows of labels.csv, rows of annotations.csv, and X."""


@dataclass(frozen=True)
class Source:
    """A data set: what it must hold, and where it comes from.

    Attributes
    ----------
    sha256 : mapping
        Digests of the text files; "X" is that of the bytes of X (C order, little-endian float32),
        as archives of the same arrays differ between versions of NumPy and zlib.
    repository, commit, folder, files
        Public source on GitHub.
    size : str
        What is fetched, in words.
    convert : function
        From the folder with the fetched files to the layout.
    """

    name: str
    classes: tuple[str, ...]
    description: str
    licence: str
    sha256: Mapping[str, str]
    repository: str
    commit: str
    folder: str
    files: tuple[str, ...]
    size: str
    convert: Callable[[Path], Layout]

    @property
    def url(self) -> str:
        """Address of the folder with the files."""
        return f"{BASE_URL}/{self.repository}/{self.commit}/{self.folder}"

    @property
    def page(self) -> str:
        """Address at which a reader finds the files."""
        return f"https://github.com/{self.repository}/tree/{self.commit}/{self.folder}"


def load_set(source: Source, home: PathLike | None) -> CrowdDataset:
    """Load a set from the data home or the cache; fetch it if neither has it."""
    folders = [data_home(home) / source.name, user_cache() / source.name]
    folder = next((f for f in folders if f.is_dir()), None) or _fetch(source, folders)
    return _read(source, folder)


# -- reading ----------------------------------------------------------------------------------


def _read(source: Source, folder: Path) -> CrowdDataset:
    labels = _table(source, folder, "labels.csv")
    votes = _table(source, folder, "annotations.csv")
    classes = np.array(_verified(source, folder, "classes.txt").decode().split("\n")[:-1])
    X = _features(source, folder)
    tasks, gold = canonical(labels["task"]), classes[labels["label"].astype(np.int64)]
    rows = {split: np.flatnonzero(labels["split"] == split) for split in ("train", "valid", "test")}
    parts = {
        split: (X[index], gold[index]) if len(index) else (None, None)
        for split, index in rows.items()
    }
    train = tasks[rows["train"]]
    table = AnnotationTable.from_arrays(
        encode(
            canonical(votes["task"]),
            train,
            argument="annotations.csv",
            vocabulary_name="labels.csv",
        )[0],
        canonical(votes["worker"]),
        classes[votes["label"].astype(np.int64)],
        classes=classes,
        instances=train,
    )
    return CrowdDataset(
        X_train=X[rows["train"]],
        annotations=table,
        y_train=gold[rows["train"]],
        X_valid=parts["valid"][0],
        y_valid=parts["valid"][1],
        X_test=parts["test"][0],
        y_test=parts["test"][1],
        classes=classes,
        description=source.description,
        licence=source.licence,
        name=source.name,
    )


def _table(source: Source, folder: Path, name: str) -> dict[str, AnyArray]:
    text = _verified(source, folder, name).decode()
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    columns = zip(*rows, strict=True)
    return {name: np.array(cells) for name, cells in zip(header, columns, strict=True)}


def _features(source: Source, folder: Path) -> AnyArray:
    path = folder / "features.npz"
    try:
        with np.load(io.BytesIO(_bytes(path)), allow_pickle=False) as archive:
            X = np.ascontiguousarray(archive["X"], dtype="<f4")
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, DataNotFoundError):
            raise
        raise _damaged(path, f"it cannot be read: {error}") from error
    _compare(path, X.tobytes(), source.sha256["X"], "its array X has")
    return X.astype(np.float32, copy=False)


def _verified(source: Source, folder: Path, name: str) -> bytes:
    content = _bytes(folder / name)
    _compare(folder / name, content, source.sha256[name], "it has")
    return content


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataNotFoundError(
            f"{path} cannot be read ({error.strerror}); delete the folder {path.parent} to have "
            "the set fetched, or restore the file"
        ) from error


def _compare(path: Path, content: bytes, expected: str, subject: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise _damaged(path, f"{subject} sha256 {digest}, expected {expected}")


def _damaged(path: Path, reason: str) -> DataNotFoundError:
    return DataNotFoundError(
        f"{path} is not the file this loader knows: {reason}. It was changed or is damaged; "
        f"restore it, or delete the folder {path.parent} to have the set fetched again"
    )


# -- fetching ---------------------------------------------------------------------------------


def _fetch(source: Source, looked_in: Iterable[Path]) -> Path:
    """Fetch, convert and verify a set; leave it in the cache, or leave nothing."""
    target = user_cache() / source.name
    places = " or ".join(dict.fromkeys(str(folder) for folder in looked_in))
    mend = (
        f"{source.name} is not in {places}, and could not be fetched: {{}}. Set MANYHANDS_DATA or "
        f"data_home= to a folder that holds {source.name!r}, or make it from {source.page}"
    )
    try:
        import pooch
    except ImportError as error:
        raise DataNotFoundError(
            mend.format("pooch is not installed (pip install 'manyhands[io]')")
        ) from error
    _LOG.warning(
        "%s is not in %s: fetching %d files, %s, from %s into %s. Licence: %s",
        *(source.name, places, len(source.files), source.size, source.url, target, source.licence),
    )
    try:
        with tempfile.TemporaryDirectory() as raw:
            download = pooch.HTTPDownloader(progressbar=False, timeout=TIMEOUT)
            for name in source.files:
                download(f"{source.url}/{name}", os.path.join(raw, name), None)
            layout = source.convert(Path(raw))
        return _install(source, layout, target)
    except DataNotFoundError as error:
        raise DataNotFoundError(mend.format(f"what came is another version ({error})")) from error
    except OSError as error:
        raise DataNotFoundError(mend.format(error)) from error
    except (ValueError, KeyError, IndexError, EOFError) as error:
        raise DataNotFoundError(mend.format(f"what came cannot be read ({error})")) from error


def _install(source: Source, layout: Layout, target: Path) -> Path:
    """Write the layout, verify it, then move it to its place in one step."""
    labels, votes, X = layout
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{source.name}.") as partial:
        folder = Path(partial) / source.name
        folder.mkdir()
        _write_rows(folder / "labels.csv", [["task", "label", "split"], *labels])
        _write_rows(folder / "annotations.csv", [["task", "worker", "label"], *votes])
        (folder / "classes.txt").write_bytes("".join(f"{c}\n" for c in source.classes).encode())
        np.savez_compressed(folder / "features.npz", X=X, task=np.array([row[0] for row in labels]))
        _read(source, folder)
        if not target.is_dir():  # Another process may have fetched it meanwhile.
            os.replace(folder, target)
    return target


def _write_rows(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
