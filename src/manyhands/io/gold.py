"""Gold labels: one row per task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.annotations.encoding import encode, make_vocabulary, missing_mask
from manyhands.io.columns import (
    find_column,
    require_column,
    with_missing,
    with_types,
)
from manyhands.io.files import PathLike, existing_file, naming
from manyhands.io.frames import read_frame
from manyhands.io.label_values import label_values
from manyhands.typing import AnyArray, BoolArray


@dataclass(frozen=True, eq=False)
class GoldFile:
    """Gold labels, in the order of the file.

    Attributes
    ----------
    tasks : array of shape (n,)
    labels : array of shape (n,)
        Class values; None (in an object array) where there is no gold label.
    splits : array of str of shape (n,) or None
        None if the file has no such column.
    """

    tasks: AnyArray
    labels: AnyArray
    splits: AnyArray | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def known(self) -> BoolArray:
        """Mask of the tasks that have a gold label, shape (n,)."""
        return ~missing_mask(self.labels)


def read_gold(
    path: PathLike,
    *,
    task: str = "task",
    label: str = "label",
    split: str = "split",
    classes: Any = None,
) -> GoldFile:
    """Read gold labels, one row per task; an empty label means that there is no gold.

    Parameters
    ----------
    path : str or Path
        .csv, .tsv (either with .gz), .parquet or .pq.
    task, label, split : str
        Names of the columns; other common names are found as in `read_annotations`. The split
        column is optional.
    classes : sequence, optional
        All classes; may be names of integer labels, as in `read_annotations`.

    Returns
    -------
    GoldFile

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If the file is empty, damaged or of another format, a column is missing, a task occurs
        twice, or a label is not in ``classes``.
    """
    path = existing_file(path)
    with naming(path):
        frame = read_frame(path)
        names = {
            "task": find_column(frame, "task", task),
            "label": find_column(frame, "gold", label),
        }
        for argument, name in names.items():
            require_column(frame, argument, name)
        if split != "split":
            require_column(frame, "split", split)
        frame = with_types(frame, names, path)
        frame, values, code_names = label_values(frame, names["label"], classes)
        ids = make_vocabulary(frame[names["task"]].to_numpy(), f"column {names['task']!r}")
        labels = _gold_values(frame[names["label"]].to_numpy(), values, code_names)
        splits = np.array(frame[split].to_list(), dtype=str) if split in frame.columns else None
        return GoldFile(ids, labels, splits)


def _gold_values(raw: AnyArray, values: AnyArray | None, names: AnyArray | None) -> AnyArray:
    missing = missing_mask(raw)
    codes, vocabulary = encode(
        raw[~missing], values, argument="the gold labels", vocabulary_name="classes"
    )
    return with_missing((vocabulary if names is None else names)[codes], missing)
