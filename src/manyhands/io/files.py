"""Names of files that are read, and errors that name them."""

from __future__ import annotations

import csv
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from manyhands.annotations.wide import UnclearColumnsError
from manyhands.exceptions import AnnotationError

PathLike: TypeAlias = str | os.PathLike[str]


SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""Separators that are written, by suffix; readers recognise separators by the content."""


def suffix_of(path: Path) -> str:
    """Return the suffix that determines the format, such as '.csv' for 'a.CSV.gz'."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_typed(path: Path) -> bool:
    """Return whether a table is a Parquet file, whose columns have types, not only text."""
    if suffix_of(path) in (".parquet", ".pq"):
        return True
    if not path.is_file():  # The name of a frame in memory.
        return False
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def existing_file(path: PathLike) -> Path:
    """Return the path as a `Path`; raise an error unless it is a nonempty file."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist (looked in {Path.cwd()}); check the name, or give an absolute "
            "path"
        )
    if path.is_dir():
        raise AnnotationError(f"{path} is a folder; give a file in it")
    if not path.stat().st_size:
        raise AnnotationError(f"{path} is empty (0 bytes); export it again")
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in every error, and convert errors of parsers to `AnnotationError`."""
    damaged = (ValueError, EOFError, OSError, MemoryError, KeyError, zlib.error)
    try:
        yield
    except UnclearColumnsError as error:
        raise error.of(str(path)) from error
    except AnnotationError as error:
        raise AnnotationError(f"{path}: {error}") from error
    except (*damaged, zipfile.BadZipFile, csv.Error) as error:
        reason = str(error).strip().rstrip(".") or type(error).__name__
        # numpy's own messages; the first says how to run the file's code.
        if "allow_pickle" in reason or "Python objects in dtype" in reason:
            raise AnnotationError(
                f"{path} holds Python objects, which are never read, because that would run code "
                "of the file; save an array of numbers or of texts instead"
            ) from error
        raise AnnotationError(
            f"{path} cannot be read as {suffix_of(path) or 'a table'}: {reason}. The file is "
            "incomplete, or its content does not match its suffix; export it again"
        ) from error
