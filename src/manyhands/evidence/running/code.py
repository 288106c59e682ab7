"""The code a run depends on, as one digest: part of what a record is filed under."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

from manyhands.evidence.experiments.rows import Row
from manyhands.evidence.objects import find_object

_MEASURES = "manyhands.evidence.running.cells"
"""The module that runs and measures cells."""

_FREE = (
    "manyhands._lazy",
    "manyhands._version",
    "manyhands.datasets.",
    "manyhands.evidence.",
    "manyhands.io.",
    "manyhands.jobs.",
    "manyhands.registry",
    "manyhands.report.",
)
"""Modules that affect results only through the data, whose checksum is in the key as well."""


def code_hash(row: Row) -> str:
    """SHA-256 of the code that decides a row's result.

    It covers the module that runs cells, the modules of every class and measure the row names, and
    all modules of manyhands and of the row's own folder that these import, directly or not. Code
    that loads data is covered by the data's checksum, and other packages by a record's versions.
    Comments, docstrings, blank lines, the texts of errors and warnings, and packages' lists of
    names do not count, so another method or a better text leaves records valid.
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
    """Return the files of modules and of all they import of manyhands or the folder, by name."""
    found: dict[str, Path] = {}
    waiting = list(names)
    # If the folders of two rows have a module of this name, the one imported last counts.
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
    for node in () if folder is None else _import_statements(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.module] if node.module and not node.level else []
        for name in names:
            own = Path(folder or ".") / Path(*name.split(".")).with_suffix(".py")
            if own.is_file():
                yield name, own


@cache
def _file(name: str) -> Path | None:
    """Return the source file of a module, or None."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    origin = None if spec is None else spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None


def _tree(path: Path) -> ast.Module:
    return _parsed(path.read_text(encoding="utf-8"))


@cache
def _parsed(source: str) -> ast.Module:
    """Parse a source; a file that changes is another one."""
    return ast.parse(source)


def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return _walked(path.read_text(encoding="utf-8"))


@cache
def _walked(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source; walking its tree once takes most of the time."""
    return tuple(ast.walk(_parsed(source)))


def _import_statements(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in _nodes(path) if isinstance(node, ast.Import | ast.ImportFrom))


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules of manyhands that a file imports, each where its names are defined."""
    homes: list[str | None]
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("manyhands.")]
            homes = [name for name in names if not _is_package(name)]
        elif (node.module or "").startswith("manyhands"):
            homes = [_home(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        yield from (home for home in homes if home is not None)


@cache
def _home(module: str, name: str) -> str | None:
    """Return the module that defines what ``from module import name`` imports."""
    if not _is_package(module):
        return module
    if _file(f"{module}.{name}") is not None:
        inner = f"{module}.{name}"
        return None if _is_package(inner) else inner
    for source, given in _given(module):
        if name in given or ("*" in given and name in _exports(source)):
            return _home(source, name)
    # A package's own code counts; names that it only re-exports do not.
    return module if name in _defined(module) else None


def _given(package: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that a package re-exports from, each with the names it takes.

    A package that imports lazily lists them in the stub file beside its ``__init__.py``.
    """
    path = _file(package)
    assert path is not None
    for file in (path.with_suffix(".pyi"), path):
        for node in _import_statements(file) if file.is_file() else ():
            if isinstance(node, ast.ImportFrom):
                # The leading dots of a relative import: one is the package itself.
                parents = package.split(".")[: len(package.split(".")) + 1 - node.level]
                source = [*(parents if node.level else []), *([node.module] if node.module else [])]
                yield ".".join(source), [alias.name for alias in node.names]


def _is_package(module: str) -> bool:
    path = _file(module)
    return path is not None and path.name == "__init__.py"


def _exports(module: str) -> set[str]:
    """Return the names that ``from module import *`` imports, read from the source."""
    path = _file(module)
    if path is None:
        return set()
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    if not _is_package(module):
        return set()
    return {
        name
        for source, given in _given(module)
        for name in (_exports(source) if "*" in given else given)
    }


def _defined(module: str) -> set[str]:
    """Return the names that a module itself defines."""
    path = _file(module)
    assert path is not None
    names = set()
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {name.id for name in node.targets if isinstance(name, ast.Name)}
    return names


def _essence(path: Path) -> str:
    return _without_comments(path.read_text(encoding="utf-8"))


@cache
def _without_comments(source: str) -> str:
    """Return a source without docstrings, comment lines, blank lines, and texts of errors."""
    text = {
        line
        for node in _walked(source)
        if isinstance(node, ast.Expr) and _is_text(node.value)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = _without_words(source).splitlines()
    return "\n".join(
        line.rstrip()
        for number, line in enumerate(lines, start=1)
        if number not in text and line.strip() and not line.lstrip().startswith("#")
    )


def _without_words(source: str) -> str:
    """Empty the texts in ``raise`` and ``warnings.warn`` statements, and join their lines.

    The exception's class and all other values stay, since an exception may carry a result.
    """
    lines = source.encode().splitlines(keepends=True)
    for node in _walked(source):
        if isinstance(node, ast.Raise) or _is_warning(node):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            spans = [_span(text) for text in _texts(node)]
            part = lines[first : last + 1]
            for (row, start), (end_row, end) in sorted(spans, reverse=True):
                row, end_row = row - first, end_row - first
                part[row : end_row + 1] = [
                    part[row][:start] + b'""' + part[end_row][end:],
                    *[b"\n"] * (end_row - row),
                ]
            words = b"".join(re.sub(rb"#.*", b"", line).strip() for line in part)
            indent = part[0][: len(part[0]) - len(part[0].lstrip())]
            joined = indent + re.sub(rb",(?=[)\]}])", b"", words) + b"\n"
            lines[first : last + 1] = [joined, *[b"\n"] * (last - first)]
    return b"".join(lines).decode()


def _is_warning(node: ast.AST) -> TypeGuard[ast.Expr]:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) == "warnings.warn"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _texts(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the texts within a node: strings and whole f-strings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.expr) and _is_text(child)):
            yield child
        else:
            yield from _texts(child)


def _span(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return where a node begins and ends: line (from 0) and byte within the line."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno - 1, node.col_offset), (node.end_lineno - 1, node.end_col_offset)
