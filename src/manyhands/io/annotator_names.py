"""Merging several names of one annotator into one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io.columns import Frame, preview, with_column
from manyhands.io.label_values import read_mapping


@dataclass
class AnnotatorNames:
    """Map from names of annotators as written to the one name of each.

    Attributes
    ----------
    meant : dict
        Name as written, and the name that it means.
    seen : set of str
        Names that occurred.
    """

    meant: dict[str, str]
    seen: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, mapping: Any) -> AnnotatorNames | None:
        """Read the argument ``annotator_mapping`` of readers; return None for None.

        Raises
        ------
        AnnotationError
            If it is neither a dict nor a path, names nobody, or for the reasons of `read_mapping`.
        """
        if mapping is None:
            return None
        if isinstance(mapping, str | os.PathLike):
            return cls(read_mapping(mapping, of="annotator"))
        if not isinstance(mapping, Mapping):
            raise AnnotationError(
                f"annotator_mapping is a {type(mapping).__name__}; give a dict of names and the "
                "one name that each means, such as annotator_mapping={'Anna S.': 'Anna'}, or a "
                "table with the columns from and to"
            )
        meant = {str(name).strip(): str(value).strip() for name, value in mapping.items()}
        if nobody := next((name for name, value in meant.items() if not name or not value), None):
            raise AnnotationError(
                f"annotator_mapping maps {nobody!r} to {meant[nobody]!r}; give both names"
            )
        return cls(meant)

    def read(self, names: Iterable[Any]) -> list[Any]:
        """Return the names that are meant; unmapped names stay as they are."""
        found = []
        for name in names:
            text = str(name).strip()
            if text in self.meant:
                self.seen.add(text)
            found.append(self.meant.get(text, name))
        return found

    def with_names(self, frame: Frame, column: str) -> Frame:
        """Replace the names in a column of a frame."""
        if column not in frame.columns:
            return frame
        cells = frame[column].to_list()
        given = self.read(cells)
        if given == cells:
            return frame
        texts = [None if name is None else str(name) for name in given]
        return with_column(frame, column, np.array(texts, dtype=object))

    def report(self) -> None:
        """Warn of names that no annotator has."""
        unused = [name for name in self.meant if name not in self.seen]
        if unused:
            warn_caller(
                f"annotator_mapping= holds {len(unused)} names that no annotator has, and that "
                f"have no effect: {preview(unused)}"
            )
