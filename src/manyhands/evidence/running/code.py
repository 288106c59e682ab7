"""The code a run depends on, as one digest: part of what a record is filed under."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyhands.evidence.experiments.rows import Row
from manyhands.evidence.objects import find_object

_MEASURES = "manyhands.evidence.running.cells"
"""The module that measures."""

_FREE = ("manyhands._version", "manyhands.datasets.", "manyhands.evidence.", "manyhands.io.")
"""Modules that decide no result beyond the data, whose checksum is in the key, too."""


def code_hash(row: Row) -> str:
    """SHA-256 of the code that decides a row's result.

    That is: the module that runs cells, those of every class and measure the row names, the
    modules of manyhands and of the row's own folder which these import, and so on. What loads the
    data is left to the data's checksum, and other packages to a record's versions. Comments,
    docstrings and blank lines do not count, nor do packages' lists of names, so that another
    method or a better text leaves records valid.
    """
    return _code_hash(tuple(sorted({*row.classes, *row.extra})), row.folder)


@cache
def _code_hash(names: tuple[str, ...], folder: Path) -> str:
    objects = [find_object(name, folder) for name in names]
    files = _closure([_MEASURES, *(thing.__module__ for thing in objects)], folder)
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\n{_essence(path)}\n".encode())
    return digest.hexdigest()


def _closure(names: Sequence[str], folder: Path | None = None) -> dict[str, Path]:
    """Files of modules, and of all of manyhands and of a folder that they import, by name."""
    found: dict[str, Path] = {}
    waiting = list(names)
    # A name that two rows' folders have in common means the module imported last.
    given: dict[str, Any] = {
        name: getattr(sys.modules.get(name), "__file__", None) for name in names
    }
    while waiting:
        name = waiting.pop()
        own = given.get(name)
        path = None if name in found else Path(own) if own else _file(name)
        if path is not None:
            found[name] = path
            waiting += [other for other in _imports(path) if not other.startswith(_FREE)]
            for other, own in _imports_of_folder(path, folder):
                given[other] = own
                waiting.append(other)
    return found


def _imports_of_folder(path: Path, folder: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a row's folder that a file imports."""
    for node in [] if folder is None else ast.walk(_tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            own = Path(folder or ".") / Path(*name.split(".")).with_suffix(".py")
            if own.is_file():
                yield name, own


@cache
def _file(name: str) -> Path | None:
    """Return the source of a module, None where there is none."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    origin = None if spec is None else spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules of manyhands that a file imports, each where its names are defined."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("manyhands"):
            homes = [_home(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("manyhands.")]
            homes = [name for name in names if not _is_package(name)]
        else:
            continue
        yield from (home for home in homes if home is not None)


@cache
def _home(module: str, name: str) -> str | None:
    """Find the module that defines what ``from module import name`` gives."""
    if not _is_package(module):
        return module
    if _file(f"{module}.{name}") is not None:
        inner = f"{module}.{name}"
        return None if _is_package(inner) else inner
    path = _file(module)
    assert path is not None
    stub = path.with_suffix(".pyi")
    for node in ast.walk(_tree(stub if stub.exists() else path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            source = f"{module}.{node.module}" if node.level else node.module
            given = [alias.name for alias in node.names]
            found = _home(source, name) if name in given or "*" in given else None
            if found is not None:
                return found
    return None


def _is_package(module: str) -> bool:
    path = _file(module)
    return path is not None and path.name == "__init__.py"


@cache
def _essence(path: Path) -> str:
    """Return a source without docstrings, lines of comments, and blank lines."""
    text = {
        line
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(
        line.rstrip()
        for number, line in enumerate(lines, start=1)
        if number not in text and line.strip() and not line.lstrip().startswith("#")
    )
