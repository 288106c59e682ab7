"""How the scripts beside this one write rows: the same text for the same values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes a list twice rather than once and an alias, and seeds on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: rows are read one by one."""
        return True

    def line(self, values: Sequence[Any]) -> yaml.Node:
        """Represent a list."""
        short = all(isinstance(value, int) for value in values)
        return self.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=short)


_Dumper.add_representer(list, _Dumper.line)


def texts(documents: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """Text of every (name, document), by its path in ``experiments``."""
    return {
        f"{name}.yaml": yaml.dump(
            found, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=90
        )
        for name, found in documents
    }


def write(files: dict[str, str]) -> None:
    """Write texts into this folder."""
    for name, text in files.items():
        path = Path(__file__).parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
