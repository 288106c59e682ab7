"""Files on object storage and other remote systems, through fsspec: ``s3://bucket/store``.

A remote file is never mapped or read in place. It is copied to a local folder first, so that all
other code knows local files only. ``file://`` is a local path.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyhands.exceptions import AnnotationError, WriteError, raise_missing_extra
from manyhands.files import write_atomically
from manyhands.io.files import PathLike

# A `Path` of "s3://bucket/x" is "s3:/bucket/x", which means the same here.
_URL = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.:-]+?)(?<!:):/{1,2}(.*)$", re.DOTALL)


def url_of(path: PathLike) -> str | None:
    """Return the URL of a remote path; None for a local one."""
    found = _URL.match(str(path))
    if found is None or found[1] == "file":
        return None
    return f"{found[1]}://{found[2]}"


def local_path(path: PathLike) -> Path:
    """Return the path of a local file, which may be given as a ``file://`` URL."""
    found = _URL.match(str(path))
    return Path(path) if found is None else Path("/" + found[2].lstrip("/"))


def local_folder(kind: str, *about: Any) -> Path:
    """Return a temporary folder for local copies, the same for the same arguments."""
    key = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"manyhands-{kind}-{key}"


@contextmanager
def _reached(url: str, *, writes: bool = False) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a URL and the path in it; errors name the URL.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    WriteError, AnnotationError
        If it cannot be written, or read.
    MissingExtraError
        If fsspec is not installed.
    """
    try:
        import fsspec
    except ImportError as error:
        raise_missing_extra(f"Reading and writing {url}", "cluster", error)
    try:
        yield fsspec.core.url_to_fs(url)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url} does not exist; check the address") from error
    except ImportError as error:
        raise AnnotationError(f"{url}: fsspec needs another package: {error}") from error
    except Exception as error:  # The packages of the protocols raise their own kinds of errors.
        reason = f"{type(error).__name__}: {error}".rstrip(". ")
        if writes:
            raise WriteError(None, f"cannot write {url} ({reason}); check the rights") from error
        raise AnnotationError(
            f"{url} cannot be read ({reason}); check the address, and that its credentials are set"
        ) from error


def exists(url: str) -> bool:
    """Return whether a remote file exists."""
    with _reached(url) as (system, path):
        return bool(system.exists(path))


def read_text(url: str) -> str:
    """Read a file as text (UTF-8)."""
    with _reached(url) as (system, path):
        return bytes(system.cat_file(path)).decode()


def fetch(url: str, place: Path) -> Path:
    """Copy a remote file to a local one, atomically, even if other processes do the same."""
    with _reached(url) as (system, path), system.open(path, "rb") as source:

        def copy(file: Any) -> None:
            while block := source.read(2**24):
                file.write(block)

        return write_atomically(place, copy)


def fetch_input(url: str) -> Path:
    """Return a local copy of a remote file; it is copied again only if the file has changed."""
    with _reached(url) as (system, path):
        version = system.ukey(path)
    place = local_folder("input", url, version) / url.rstrip("/").rsplit("/", 1)[-1]
    return place if place.exists() else fetch(url, place)


def upload(place: Path, url: str) -> str:
    """Copy a local file to a remote one."""
    with _reached(url, writes=True) as (system, path):
        system.makedirs(system._parent(path), exist_ok=True)
        system.put_file(str(place), path)
    return url


def upload_folder(folder: Path, url: str, last: str) -> None:
    """Copy the files of a folder; the one called ``last`` is copied last and marks completion."""
    places = [place for place in sorted(folder.rglob("*")) if place.is_file()]
    for place in sorted(places, key=lambda place: place.name == last):
        upload(place, f"{url.rstrip('/')}/{place.relative_to(folder).as_posix()}")
