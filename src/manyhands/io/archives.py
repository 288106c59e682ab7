"""Checking archives: their content must fit in memory, and their paths must stay inside."""

from __future__ import annotations

import zipfile
from pathlib import Path

from manyhands.exceptions import AnnotationError
from manyhands.io.encodings import MIB

LARGEST_CONTENT = 256 * MIB
"""Largest content of an archive, in bytes."""

LARGEST_RATIO = 200
"""Largest ratio by which a member of an archive may expand, if it is larger than `HARMLESS`."""

HARMLESS = 4 * MIB

MOST_FILES = 100_000


def check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Refuse names that lead out of the archive, and contents that are too large.

    Raises
    ------
    AnnotationError
        If the archive holds too many members, an unsafe name, an encrypted member, or too much.
    """
    if len(members) > MOST_FILES:
        raise AnnotationError(f"{path} holds {len(members):,} members; unpack it, and give parts")
    for member in members:
        name = member.filename.replace("\\", "/")
        if name.startswith("/") or ":" in name.split("/")[0] or ".." in name.split("/"):
            raise AnnotationError(
                f"{path}: member {member.filename!r} would be written outside the archive's "
                "folder; do not trust this file, and export it again"
            )
        if member.flag_bits & 1:
            raise AnnotationError(
                f"{path}: member {member.filename!r} is encrypted; unpack it with its password"
            )
        ratio = member.file_size / max(member.compress_size, 1)
        if member.file_size > HARMLESS and ratio > LARGEST_RATIO:
            raise bomb(path, member.filename, f"expands {ratio:,.0f} times")
    total = sum(m.file_size for m in members)
    if total > LARGEST_CONTENT:
        raise bomb(path, members[0].filename, f"and the others expand to {total // MIB:,} MiB")


def bomb(path: Path, member: str, what: str) -> AnnotationError:
    """Return the error of an archive that holds more than is safe to read."""
    return AnnotationError(
        f"{path}: member {member!r} {what}, which is more than may be read from an archive "
        f"({LARGEST_CONTENT // MIB} MiB, {LARGEST_RATIO} times). If you trust it, unpack it "
        "yourself, and give the folder"
    )
