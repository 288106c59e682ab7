"""YAML values that remember their lines, for messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from evidence.objects import did_you_mean
from evidence.records import SHARES, is_share
from manyhands.exceptions import AnnotationError

_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")

SPECIAL = ("<<", "for", "let")
"""Keys that are expanded; see `evidence.experiments.expansion`."""

Where = tuple[str | int, ...]
"""Keys and positions that lead to a value."""


class RowError(AnnotationError):
    """An experiment cannot be run as it is written; the message begins with file and line."""


class Node:
    """A value of a YAML file and its line.

    Attributes
    ----------
    value : dict of str to Node, list of Node, or a text, number, truth value or None
    line : int
        Counted from 1; of a value in a mapping, the line of its key.
    static : bool
        Whether it has nothing to expand.
    """

    __slots__ = ("line", "static", "value")

    def __init__(self, value: Any, line: int) -> None:
        self.value, self.line = value, line
        if isinstance(value, dict):
            self.static = all(n.static for n in value.values()) and not any(
                key in value for key in SPECIAL
            )
        elif isinstance(value, list):
            self.static = all(part.static for part in value)
        else:
            self.static = not isinstance(value, str) or "$" not in value

    def plain(self) -> Any:
        """Return the value without its lines."""
        if isinstance(self.value, dict):
            return {key: part.plain() for key, part in self.value.items()}
        if isinstance(self.value, list):
            return [part.plain() for part in self.value]
        return self.value


def fail(path: Path, line: int, message: str) -> NoReturn:
    """Raise a `RowError` that begins with a file and a line."""
    raise RowError(f"{path}:{line}: {message}")


def read_yaml(path: Path) -> Node:
    """Read a YAML file.

    Unlike in YAML 1.1, 1e-3 is read as a number, and ``<<`` is an ordinary key.

    Raises
    ------
    RowError
        If the file is not YAML, or has a value of another type or a key twice.
    """
    import yaml

    # The C loader is ten times as fast; not every build of PyYAML has it.
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = kind(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
    except UnicodeDecodeError as error:
        fail(path, 1, f"the file is not UTF-8 text ({error.reason}); save it as such")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        line = 1 if mark is None else mark.line + 1
        fail(path, line, f"this is not YAML ({problem}); quote texts with ':' or '#'")
    return Node(None, 1) if node is None else _Reader(path, loader.construct_object).read(node)


class _Reader:
    """Turns the nodes of PyYAML into ours."""

    def __init__(self, path: Path, scalar: Callable[[Any], Any]) -> None:
        self.path, self.scalar = path, scalar

    def read(self, node: Any, line: int | None = None) -> Node:
        line = node.start_mark.line + 1 if line is None else line
        if node.id == "sequence":
            return Node([self.read(part) for part in node.value], line)
        if node.id == "mapping":
            return Node(self._mapping(node), line)
        return Node(self._value(node, line), line)

    def _value(self, node: Any, line: int) -> Any:
        value = self.scalar(node)
        if isinstance(value, str) and not node.style and _EXPONENT.fullmatch(value):
            return float(value)
        if not isinstance(value, str | int | float | None):
            kind = type(value).__name__
            fail(self.path, line, f"{node.value!r} is read as a {kind}; quote it")
        if isinstance(value, float) and not isfinite(value):
            fail(self.path, line, f"{node.value!r} is not finite; write a number")
        return value

    def _mapping(self, node: Any) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            merges = key_node.id == "scalar" and key_node.value == "<<"
            key = "<<" if merges else self.scalar(key_node)
            if not isinstance(key, str):
                fail(self.path, line, f"the key {key!r} is not text: quote it")
            if key in found:
                fail(self.path, line, f"the key {key!r} stands in line {found[key].line} too")
            found[key] = self.read(value_node, line)
        return found


class Document:
    """Plain values with their lines, and checks whose messages name the line.

    Parameters
    ----------
    path : Path
    node : Node
        Fully expanded.
    of : str
        End of every message; names the row where one place in the file makes several rows.
    subject : str
        What the outermost mapping describes, for messages.

    Attributes
    ----------
    data : the plain values
    """

    def __init__(self, path: Path, node: Node, of: str = "", subject: str = "a row") -> None:
        self.path, self.node, self.of, self.subject = path, node, of, subject
        self.data = node.plain()

    def fail(self, where: Where, message: str) -> NoReturn:
        """Raise a `RowError` that begins with the line of a value (or of what contains it)."""
        node = self.node
        for key in where:
            try:
                node = node.value[key]
            except (KeyError, IndexError, TypeError):
                break
        fail(self.path, node.line, message + self.of)

    def at(self, where: Where) -> Any:
        """Return the value at a place, or None."""
        value: Any = self.data
        for key in where:
            value = value.get(key) if isinstance(value, dict) else value[key]
        return value

    def mapping(
        self, where: Where, *, required: Iterable[str], optional: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return a mapping completed by defaults; refuse missing and unknown keys."""
        given, required = self.at(where), list(required)
        subject = ".".join(map(str, where)) or self.subject
        if not isinstance(given, dict):
            self.fail(where, f"{subject} is {given!r}; write keys and values")
        self.known(where, given, [*required, *optional], subject)
        for key in required:
            if given.get(key) is None:
                self.fail((*where, key), f"{subject} lacks {key!r}; add it")
        return {**optional, **given}

    def known(self, where: Where, given: Iterable[str], known: list[str], subject: str) -> None:
        """Refuse the first name that is not among those known."""
        for name in given:
            if name not in known:
                listed = f"; it has {', '.join(known)}" if known else ""
                hint = did_you_mean(name, known)
                self.fail((*where, name), f"{subject} has no {name!r}{hint}{listed}")

    def text(self, where: Where) -> str:
        """Return a value that must be a text and not blank."""
        value = self.at(where)
        if not isinstance(value, str) or not value.strip():
            self.fail(where, f"{where[0]} holds {value!r}; write a text")
        return value

    def check_metric(self, where: Where, metric: Any) -> None:
        """Refuse a metric that looks like a misspelt measure; only records show which exist."""
        # "balanced_accuracy" is a measure of its own; "acuracy" is a misspelling.
        if isinstance(metric, str) and not is_share(metric):
            hint = did_you_mean(metric, SHARES)
            if hint:
                self.fail(where, f"metric is {metric!r}{hint}; write the measure's name")

    def sequence(self, where: Where, given: Any, check: Callable[[Where], object]) -> None:
        """Refuse anything but a list, and check every part of it."""
        if not isinstance(given, list):
            self.fail(where, f"{where[-1]} is {given!r}; write a list")
        for i in range(len(given)):
            check((*where, i))

    def number(
        self, where: Where, low: float, high: float | None = None, *, whole: bool = False
    ) -> None:
        """Refuse anything but a number within bounds, both included."""
        value = self.at(where)
        kind = (int,) if whole else (int, float)
        top = float("inf") if high is None else high
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= top:
            what = "a whole number" if whole else "a number"
            bounds = f"{low} or more" if high is None else f"from {low} to {high}"
            name = where[-1] if isinstance(where[-1], str) else where[-2]
            self.fail(where, f"{name} holds {value!r}; write {what}, {bounds}")
