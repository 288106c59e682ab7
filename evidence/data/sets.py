"""The data of a row: from a loader of manyhands, a user's folder, or a user's function."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidence.objects import data_source
from manyhands.annotations import AnnotationTable
from manyhands.datasets import CrowdDataset
from manyhands.datasets.simulated_crowd import CrowdTruth
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray

FOLDER_FILES = ("features.npz", "annotations.csv", "labels.csv")
"""Files in a user's data folder; see `load_data`."""


@dataclass(frozen=True, eq=False)
class Data:
    """Data that a run is fitted on and measured against; absent parts are None.

    Attributes
    ----------
    X_train : array of shape (n_train, ...), sparse array, or map-style Dataset
        Row i is instance i of ``annotations``.
    annotations : AnnotationTable
    y_train : array of shape (n_train,)
        For evaluation only, as are the next four.
    X_valid, y_valid, X_test, y_test : as above, or None
    truth : CrowdTruth or any other object
        What only a simulation knows, such as the annotators' confusion matrices.
    """

    X_train: Any
    annotations: AnnotationTable
    y_train: AnyArray | None = None
    X_valid: Any = None
    y_valid: AnyArray | None = None
    X_test: Any = None
    y_test: AnyArray | None = None
    truth: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedCrowdDataset(CrowdDataset):
    """A `CrowdDataset` whose crowd is simulated.

    Attributes
    ----------
    truth : CrowdTruth
        The truth of the simulation: confusion matrices, and the origin of each annotation.
    """

    truth: CrowdTruth


def load_data(data: Mapping[str, Any], base: str | Path | None = None) -> Data:
    """Load what the field ``data`` of a row names.

    Parameters
    ----------
    data : mapping
        ``{name: <a loader of manyhands.datasets without load_>, **options}``,
        ``{factory: "module:function", **options}`` (anything with the attributes of `Data`), or
        ``{folder: path}`` with ``features.npz`` (X, and task where rows have ids),
        ``annotations.csv`` (task, worker, label) and ``labels.csv`` (task, label, split: train,
        valid or test).
    base : str or Path, optional
        Folder that a relative ``folder`` starts from, and that may contain the factory's module;
        default: the working directory. For a row, it is the folder of its file.

    Raises
    ------
    AnnotationError
        If the folder's files do not belong together, or the factory returns something else.
    DataNotFoundError, FileNotFoundError
        If the data are missing.
    """
    if "folder" in data:
        return _read_folder(Path(base or ".") / str(data["folder"]))
    load, options = data_source(data, base)
    loaded = load(**{name: _based(value, base) for name, value in options.items()})
    missing = [name for name in ("X_train", "annotations") if not hasattr(loaded, name)]
    if missing:
        raise AnnotationError(
            f"data={dict(data)!r} gives a {type(loaded).__name__} without {missing[0]!r}; return a "
            "evidence.Data (X_train, annotations, y_test, ...)"
        )
    parts: dict[str, Any] = {f.name: getattr(loaded, f.name, None) for f in fields(Data)}
    return Data(**parts)


def _based(value: Any, base: str | Path | None) -> Any:
    """Resolve a relative folder within an option (data made from other data) against the base."""
    if not isinstance(value, Mapping) or "folder" not in value:
        return value
    return {**value, "folder": str(Path(base or ".") / str(value["folder"]))}


def _read_folder(folder: Path) -> Data:
    from manyhands.io import read_aligned, read_gold
    from manyhands.jobs.gold import match_gold

    features, table = read_aligned(folder / FOLDER_FILES[0], folder / FOLDER_FILES[1])
    gold = match_gold(read_gold(folder / FOLDER_FILES[2]), table)
    known = gold.codes >= 0

    def part(*names: str) -> AnyArray:
        return np.flatnonzero(np.isin(gold.splits.astype(str), names))

    train, valid, test = part("train", "all", ""), part("valid"), part("test")
    for name, rows in (("valid", valid), ("test", test)):
        if not known[rows].all():
            task = table.instances[rows[~known[rows]][0]].item()
            raise AnnotationError(
                f"{folder / FOLDER_FILES[2]} has no label for task {task!r} of the {name} part; "
                "give its gold label, or leave the row out"
            )
    y = table.classes[gold.codes]
    return Data(
        X_train=features.X[train],
        annotations=table[train],
        y_train=y[train] if known[train].all() else None,
        X_valid=features.X[valid] if len(valid) else None,
        y_valid=y[valid] if len(valid) else None,
        X_test=features.X[test] if len(test) else None,
        y_test=y[test] if len(test) else None,
    )


def checksum(data: Any) -> str:
    """SHA-256 of everything in the data, in hexadecimal.

    A map-style Dataset is read once, item by item. If it has an attribute ``checksum`` (a text, or
    a function that returns one), this is used instead; a Dataset with random items needs one.
    """
    digest = hashlib.sha256()
    _add(digest, data)
    return digest.hexdigest()


_FIRST_FIELDS = (
    "instance",
    "annotator",
    "label",
    "instances",
    "annotators",
    "classes",
    "weights",
    "sources",
    "passes",
)
"""Fields that tables had when the first records were made."""


def _tells(table: AnnotationTable, field: Field[Any]) -> bool:
    """Whether a field of a table is in its checksum: later fields only where they say something.

    Records are found by the checksum of their data: a new field must not change that of old data.
    """
    if field.name in _FIRST_FIELDS:
        return True
    if field.name in ("instance_order", "class_order"):  # Where an order comes from is no datum.
        return False
    if field.name in ("groups", "group_rho"):
        return table.groups is not None
    return bool(getattr(table, field.name) != field.default)


def _add(digest: hashlib._Hash, value: Any) -> None:
    """Feed a value into a digest, with type marks that keep different values distinct."""
    digest.update(f"<{type(value).__name__}>".encode())
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        digest.update(repr(value.item() if isinstance(value, np.generic) else value).encode())
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        if value.dtype.hasobject:  # its bytes are addresses
            _add(digest, value.tolist())
        else:
            digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif hasattr(value, "tocsr"):
        rows = value.tocsr()
        _add(digest, [list(rows.shape), rows.indptr, rows.indices, rows.data])
    elif is_dataclass(value):
        for field in fields(value):
            if isinstance(value, AnnotationTable) and not _tells(value, field):
                continue
            digest.update(field.name.encode())
            _add(digest, getattr(value, field.name))
    elif isinstance(value, Mapping):
        _add(digest, [part for key in sorted(value) for part in (key, value[key])])
    elif isinstance(value, list | tuple):
        digest.update(str(len(value)).encode())
        for part in value:
            _add(digest, part)
    elif hasattr(value, "__array__"):
        _add(digest, np.asarray(value))
    elif hasattr(value, "checksum"):
        _add(digest, value.checksum() if callable(value.checksum) else value.checksum)
    elif hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        _add(digest, [len(value), *(value[i] for i in range(len(value)))])
    elif hasattr(value, "__dict__"):
        _add(digest, vars(value))
    else:
        raise AnnotationError(
            f"data contain a {type(value).__name__}, which has no checksum; use arrays, dicts or "
            "dataclasses, or give it an attribute checksum"
        )
