"""Results of the last rerun of every row: whether later code gives the recorded figures.

``reruns.json``, in the folder of the records, has one line per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from manyhands.exceptions import AnnotationError
from manyhands.files import waiting_lock, write_atomically

RERUNS = "reruns.json"


@dataclass(frozen=True)
class Rerun:
    """The comparison of one run of a row with its record.

    Attributes
    ----------
    content : str
        SHA-256 of the specification that the row had; see `Record.content`.
    seed : int
        Seed of the run that was repeated.
    commit : str or None
        That of the code that repeated it; see `Record.commit`.
    date : str
        Day, UTC.
    difference : str or None
        The first figure that differs, or why the run failed; None if all figures are equal.
    """

    content: str
    seed: int
    commit: str | None
    date: str
    difference: str | None


def read_reruns(results: str | Path) -> dict[str, Rerun]:
    """Return the last rerun of every row by the row's id; none if the file is missing.

    Raises
    ------
    AnnotationError
        If the file cannot be read.
    """
    path = Path(results) / RERUNS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {row: Rerun(**fields) for row, fields in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise AnnotationError(
            f"{path} cannot be read ({error}); restore it, for example from git, or delete it and "
            "rerun"
        ) from error


def add_rerun(results: str | Path, rows: Iterable[str], rerun: Rerun) -> None:
    """Write a rerun for rows that share the run, atomically, in place of their earlier ones.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    """
    path = Path(results) / RERUNS
    with waiting_lock(path.parent / ".locks" / path.name):
        found = read_reruns(results) | dict.fromkeys(rows, rerun)
        lines = [f"{json.dumps(row)}: {json.dumps(asdict(found[row]))}" for row in sorted(found)]
        write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")
