"""What a training writes down: one row per epoch (no torch)."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.typing import FloatArray


class History(list[dict[str, Any]]):
    """Rows of ``{"stage", "epoch", <every named loss term>, <metrics>, "seconds"}``."""

    def column(self, name: str, stage: str | None = None) -> FloatArray:
        """Values of one column, NaN where a row lacks it; optionally of one stage only."""
        rows = [row for row in self if stage is None or row["stage"] == stage]
        return np.array([row.get(name, np.nan) for row in rows], dtype=np.float64)

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in order of appearance."""
        return list(dict.fromkeys(name for row in self for name in row))
