"""Two runs compared figure by figure, exactly."""

from __future__ import annotations

import json
from typing import Any

from manyhands.evidence.records.records import Record


def first_difference(kept: Record, record: Record, called: str = "recorded") -> str | None:
    """Describe the first figure that is not exactly equal in an earlier record, None if none."""
    if record.status != "done":
        return f"{record.status}: {record.reason}"
    for part in ("metrics", "extra", "history"):
        # Compare as JSON, because records are stored as JSON.
        ours, theirs = (_flat(json.loads(json.dumps(getattr(r, part)))) for r in (record, kept))
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                return f"{part} {name}: {ours.get(name)} now, {theirs.get(name)} {called}"
    return None


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested dicts and lists to paths and their values."""
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return {name: value}
    return {path: v for key, part in parts for path, v in _flat(part, f"{name}/{key}").items()}
