"""The class of all data sets, and the folders in which data sets are stored."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from scipy.sparse import csr_array

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import DataNotFoundError
from manyhands.typing import AnyArray

__all__ = ["CrowdDataset", "Features", "PathLike", "data_home", "user_cache"]

PathLike: TypeAlias = str | os.PathLike[str]
Features: TypeAlias = "AnyArray | csr_array"


@dataclass(frozen=True, eq=False, repr=False)
class CrowdDataset:
    """A crowdsourced data set with its official splits.

    Attributes
    ----------
    X_train : array of shape (n_train, ...), csr_array of shape (n_train, n_features) or None
        Features; row i is instance i of ``annotations``. None if the set has no features.
    annotations : AnnotationTable
        Annotations of the training instances.
    y_train : array of shape (n_train,)
        True classes of the training instances, for **evaluation** only. Complete except in the
        sets of `load_aggregation`, where -1 marks an instance without gold.
    X_valid, y_valid : arrays as above, or None
        Validation part, if the set has one.
    X_test, y_test : arrays as above, or None
        Test part, if the set has one.
    classes : array of shape (n_classes,)
        Class values, the same as in ``annotations.classes`` and in every ``y``.
    description : str
        Origin, content and reference.
    licence : str
    name : str
    """

    X_train: Features | None
    annotations: AnnotationTable
    y_train: AnyArray
    X_valid: Features | None
    y_valid: AnyArray | None
    X_test: Features | None
    y_test: AnyArray | None
    classes: AnyArray
    description: str
    licence: str
    name: str

    def __repr__(self) -> str:
        sizes = [
            f"{0 if y is None else len(y)} {split}"
            for y, split in (
                (self.y_train, "train"),
                (self.y_valid, "valid"),
                (self.y_test, "test"),
            )
        ]
        if self.X_train is None:
            sizes.append("no features")
        return f"CrowdDataset({self.name}: {', '.join(sizes)}; {self.annotations!r})"


def user_cache() -> Path:
    """Return the user's folder of fetched data sets (it may not exist yet)."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "manyhands" / "data"


def data_home(data_home: PathLike | None = None) -> Path:
    """Return the folder of data sets: the argument, else MANYHANDS_DATA, else the user's cache.

    Raises
    ------
    DataNotFoundError
        If the argument or the variable names a folder that does not exist.
    """
    candidates = {"data_home": data_home, "MANYHANDS_DATA": os.environ.get("MANYHANDS_DATA")}
    for origin, folder in candidates.items():
        if folder:
            home = Path(folder).expanduser()
            if not home.is_dir():
                raise DataNotFoundError(
                    f"{origin}={str(folder)!r} is not a folder; correct it, or leave it unset to "
                    f"use {user_cache()}"
                )
            return home
    return user_cache()
