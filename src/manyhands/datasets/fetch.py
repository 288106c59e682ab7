"""Data sets in a common layout, from the data home or fetched into the cache.

A data set is a folder with ``labels.csv`` (task, label, split; in the order of the rows of X; with
an empty label for tasks without gold). It may also hold ``annotations.csv`` (task, worker, label),
``classes.txt`` (one name per line) and ``features.npz``. For some sets with two classes only vote
totals are known: they have ``votes.csv`` (task, n_positive, n_workers) instead of annotations.
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
from urllib.parse import quote

import numpy as np
from scipy.sparse import csr_array

from manyhands.annotations import AnnotationTable
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.encoding import encode
from manyhands.datasets.base import CrowdDataset, Features, PathLike, data_home, user_cache
from manyhands.exceptions import DataNotFoundError
from manyhands.io.columns import canonical
from manyhands.typing import MISSING, AnyArray, IntArray

__all__ = ["DataSource", "Layout", "load_set"]

_LOG = logging.getLogger("manyhands")

BASE_URL = "https://raw.githubusercontent.com"
TIMEOUT = 60.0

Layout = tuple[list[list[Any]], list[list[Any]], AnyArray | None]
"""Content of a set: rows of labels.csv, rows of annotations.csv, and X (None: no features)."""


@dataclass(frozen=True)
class DataSource:
    """A data set: its expected content and its public source.

    Attributes
    ----------
    name : str
        Name of the set and of its folder in the data home (with "/" for nested folders).
    classes : tuple
        Class values; names are also in ``classes.txt``.
    sha256 : mapping
        Digests of the text files, and of the bytes of X (C order, little-endian float32) under the
        key "X": archives of the same arrays differ between versions of NumPy and zlib. A file
        without a digest does not belong to the set.
    repository, commit, folder
        Public source on GitHub.
    files : tuple of str
        Files that are fetched from there.
    size : str
        Size of the files, in words.
    convert : function or None
        Maps the folder of fetched files to the layout; None if X cannot be made from them.
    sparse : bool
        Whether X is returned as a sparse array.
    array : str
        Name of X among the arrays of ``features.npz``.
    derived : str
        For a set without ``convert``, what was made from the source; it completes the message
        "cannot be fetched: its ...".
    """

    name: str
    classes: tuple[str, ...] | tuple[int, ...]
    description: str
    licence: str
    sha256: Mapping[str, str]
    repository: str
    commit: str
    folder: str
    files: tuple[str, ...] = ()
    size: str = ""
    convert: Callable[[Path], Layout] | None = None
    sparse: bool = False
    array: str = "X"
    derived: str = "features were derived"
    abstain: str | None = None
    """Cell of annotations.csv that means an abstention."""

    @property
    def url(self) -> str:
        """URL of the folder with the raw files."""
        return f"{BASE_URL}/{self.repository}/{self.commit}/{quote(self.folder)}"

    @property
    def page(self) -> str:
        """URL of the web page that shows the files."""
        return f"https://github.com/{self.repository}/tree/{self.commit}/{quote(self.folder)}"


def load_set(
    source: DataSource, home: PathLike | None, duplicates: Duplicates = "error"
) -> CrowdDataset:
    """Load a set from the data home or the cache; fetch it if it is in neither."""
    folders = [data_home(home) / source.name, user_cache() / source.name]
    folder = next((f for f in folders if f.is_dir()), None) or _fetch(source, folders)
    return _read(source, folder, duplicates)


# -- reading ----------------------------------------------------------------------------------


def _read(source: DataSource, folder: Path, duplicates: Duplicates) -> CrowdDataset:
    labels = _table(source, folder, "labels.csv")
    if "classes.txt" in source.sha256:
        _verified(source, folder, "classes.txt")
    classes = np.array(source.classes)
    X = _features(source, folder) if "X" in source.sha256 else None
    gold = _gold(labels["label"], classes)
    rows = {split: np.flatnonzero(labels["split"] == split) for split in ("valid", "test")}
    rows["train"] = np.flatnonzero(np.isin(labels["split"], ["train", "all"]))
    features = {s: X[index] if X is not None and len(index) else None for s, index in rows.items()}
    true = {split: gold[index] if len(index) else None for split, index in rows.items()}
    return CrowdDataset(
        X_train=features["train"],
        annotations=_annotations(
            _votes(source, folder),
            canonical(labels["task"]),
            rows["train"],
            classes,
            duplicates,
            source.abstain,
        ),
        y_train=gold[rows["train"]],
        X_valid=features["valid"],
        y_valid=true["valid"],
        X_test=features["test"],
        y_test=true["test"],
        classes=classes,
        description=source.description,
        licence=source.licence,
        name=folder.name,
    )


def _gold(cells: AnyArray, classes: AnyArray) -> AnyArray:
    """Return class values; -1 for an empty cell, which only integer classes have."""
    known = cells != ""
    values = classes[cells[known].astype(np.int64)]
    if known.all():
        return values
    gold = np.full(len(cells), MISSING)
    gold[known] = values
    return gold


def _annotations(
    votes: dict[str, AnyArray],
    tasks: AnyArray,
    train: IntArray,
    classes: AnyArray,
    duplicates: Duplicates,
    abstain: str | None,
) -> AnnotationTable:
    """Return the table of the training instances' annotations, leaving others out."""
    task, _ = encode(
        canonical(votes["task"]), tasks, argument="annotations.csv", vocabulary_name="labels.csv"
    )
    instance = np.full(len(tasks), MISSING)
    instance[train] = np.arange(len(train))
    kept = instance[task] != MISSING
    # As text, because integers would be read as positions, and gaps between them as annotators.
    annotator, annotators = encode(
        canonical(votes["worker"][kept]),
        None,
        argument="annotations.csv",
        vocabulary_name="annotators",
    )
    return AnnotationTable.from_arrays(
        instance[task[kept]],
        annotator,
        _class_values(votes["label"][kept], classes, abstain),
        classes=classes,
        instances=tasks[train],
        annotators=annotators,
        abstain=abstain,
        duplicates=duplicates,
    )


def _class_values(cells: AnyArray, classes: AnyArray, abstain: str | None) -> AnyArray:
    """Return the class values of codes; names and abstentions stay as they are."""
    if abstain is not None:
        return cells
    return classes[cells.astype(np.int64)]


def _votes(source: DataSource, folder: Path) -> dict[str, AnyArray]:
    """Return the columns of annotations.csv; empty columns for a set without annotations."""
    if "votes.csv" in source.sha256:
        return _slots(_table(source, folder, "votes.csv"))
    if "annotations.csv" not in source.sha256:
        return {name: np.array([], dtype=str) for name in ("task", "worker", "label")}
    return _table(source, folder, "annotations.csv")


def _slots(totals: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Assign the votes of each total to numbered annotator slots, positive votes first."""
    votes = totals["n_workers"].astype(np.int64)
    place = np.arange(votes.sum()) - np.repeat(np.cumsum(votes) - votes, votes)
    positive = place < np.repeat(totals["n_positive"].astype(np.int64), votes)
    return {
        "task": np.repeat(totals["task"], votes),
        "worker": np.array([f"slot_{slot}" for slot in place.tolist()]),
        "label": positive.astype(np.int64),
    }


def _table(source: DataSource, folder: Path, name: str) -> dict[str, AnyArray]:
    text = _verified(source, folder, name).decode()
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    columns = zip(*rows, strict=True)
    return {name: np.array(cells) for name, cells in zip(header, columns, strict=True)}


def _features(source: DataSource, folder: Path) -> Features:
    path = folder / "features.npz"
    try:
        with np.load(io.BytesIO(_bytes(path)), allow_pickle=False) as archive:
            X = np.ascontiguousarray(archive[source.array], dtype="<f4")
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, DataNotFoundError):
            raise
        raise _damaged(path, f"it cannot be read: {error}") from error
    _compare(path, X.ravel().data, source.sha256["X"], f"its array {source.array} has")
    X = X.astype(np.float32, copy=False)
    return csr_array(X) if source.sparse else X


def _verified(source: DataSource, folder: Path, name: str) -> bytes:
    content = _bytes(folder / name)
    _compare(folder / name, content, source.sha256[name], "it has")
    return content


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataNotFoundError(
            f"{path} cannot be read ({error.strerror}); restore the file or, if the set can be "
            f"fetched, delete the folder {path.parent} to fetch it again"
        ) from error


def _compare(path: Path, content: bytes | memoryview, expected: str, subject: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise _damaged(path, f"{subject} sha256 {digest}, expected {expected}")


def _damaged(path: Path, reason: str) -> DataNotFoundError:
    return DataNotFoundError(
        f"{path} is not the file this loader knows: {reason}. It was changed or is damaged; "
        f"restore it or, if the set can be fetched, delete the folder {path.parent} to fetch it "
        "again"
    )


# -- fetching ---------------------------------------------------------------------------------


def _fetch(source: DataSource, looked_in: Iterable[Path]) -> Path:
    """Fetch, convert and verify a set, and store it in the cache; a failure leaves nothing."""
    target = user_cache() / source.name
    places = " or ".join(dict.fromkeys(str(folder) for folder in looked_in))
    if source.convert is None:
        files = ", ".join(name for name in source.sha256 if name != "X")
        raise DataNotFoundError(
            f"{source.name} is not in {places} and cannot be fetched: its {source.derived} from "
            f"{source.page}, which does not hold them. Set MANYHANDS_DATA or data_home= to a "
            f"folder that holds {source.name!r} ({files} and features.npz)"
        )
    message = (
        f"{source.name} is not in {places} and could not be fetched: {{}}. Set MANYHANDS_DATA or "
        f"data_home= to a folder that holds {source.name!r}, or make it from {source.page}"
    )
    try:
        import pooch
    except ImportError as error:
        raise DataNotFoundError(
            message.format("pooch is not installed (pip install 'manyhands[io]')")
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
        raise DataNotFoundError(
            message.format(f"the fetched files are another version ({error})")
        ) from error
    except OSError as error:
        raise DataNotFoundError(message.format(error)) from error
    except (ValueError, KeyError, IndexError, EOFError) as error:
        raise DataNotFoundError(
            message.format(f"the fetched files cannot be read ({error})")
        ) from error


def _install(source: DataSource, layout: Layout, target: Path) -> Path:
    """Write the layout to a temporary folder, verify it, then move it into place atomically."""
    labels, votes, X = layout
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as partial:
        folder = Path(partial) / target.name
        folder.mkdir()
        _write_rows(folder / "labels.csv", [["task", "label", "split"], *labels])
        _write_rows(folder / "annotations.csv", [["task", "worker", "label"], *votes])
        if "classes.txt" in source.sha256:
            names = "".join(f"{c}\n" for c in source.classes)
            (folder / "classes.txt").write_bytes(names.encode())
        if X is not None:
            tasks = np.array([row[0] for row in labels])
            np.savez_compressed(folder / "features.npz", X=X, task=tasks)
        _read(source, folder, "keep")
        if not target.is_dir():  # Another process may have fetched it meanwhile.
            os.replace(folder, target)
    return target


def _write_rows(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
