"""The language of experiment files: names, merging and repetition in plain YAML.

==================================  ===============================================================
``let: {name: value}``              names a value for the mapping it is in
``$name``, ``$name.key``            the value or a part of it; in a list, the items of a list
``a text with $name or ${name}``    a text with the value inserted
``<<: $name``, ``<<: [$a, $b]``     merges mappings; the first that has a key counts, and keys
                                    beside ``<<`` override them all
``- {for: {a: $list}, key: $a}``    one item per value; with several names, one per combination,
                                    the last name changing fastest
``- {for: {a: $list}, give: $a}``   the same for items that are not mappings; a list gives its items
==================================  ===============================================================

``for`` over a mapping takes its values, with their keys as ``label``. ``$text.slug`` is the text as
part of an id: in lower case, with ``_`` for everything but letters and digits. For a mapping, it is
the slug of its ``label``, unless the mapping has a ``slug`` itself.

A name is looked up where it is used, not where it is defined: a value in ``let`` may refer to
``$set`` before any set is chosen. Within its own value, a name refers to the enclosing scope:
``seeds: $seeds`` takes the seeds from ``let``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from evidence.experiments.nodes import Node, fail
from evidence.objects import did_you_mean

_NAME = r"[A-Za-z_]\w*(?:\.\w+)*"
_WHOLE = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})\}})")
_DEEPEST = 60
"""Largest depth of references within references; beyond it, a name must refer to itself."""

_LOOPS = "stands for itself; give one of the two another name"

Fields = Mapping[str, Node]


def slug(text: str) -> str:
    """Return a text as part of an id, such as "cb_focal" for "CB Focal"."""
    kept = "".join(character if character.isalnum() else "_" for character in text.lower())
    return "_".join(part for part in kept.split("_") if part)


class Scope:
    """Names and their values; inner names hide outer ones.

    Parameters
    ----------
    names : mapping of str to Node
    outer : Scope, optional
    """

    __slots__ = ("_passed", "names", "outer")

    def __init__(self, names: Fields, outer: Scope | None = None) -> None:
        self.names, self.outer = names, outer
        self._passed: frozenset[tuple[int, str]] = frozenset() if outer is None else outer._passed

    def find(self, name: str) -> tuple[Node, Scope] | None:
        """Return a name's value and the scope to expand it in, or None."""
        level: Scope | None = self
        while level is not None:
            if name in level.names and (id(level.names), name) not in self._passed:
                # Within its own value, the name refers to the enclosing scope.
                within = Scope(self.names, self.outer)
                within._passed = self._passed | {(id(level.names), name)}
                return level.names[name], within
            level = level.outer
        return None

    def every(self) -> list[str]:
        """Return all names, inner ones first."""
        return [*self.names, *([] if self.outer is None else self.outer.every())]


class Expander:
    """Expands the nodes of a file.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    used : set of str
        Names that something refers to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.used: set[str] = set()
        self._depth = 0
        self._named: dict[str, Node] = {}

    def fail(self, node: Node, message: str) -> NoReturn:
        """Raise a `RowError` with the line of a node."""
        fail(self.path, node.line, message)

    def value_of(self, name: str, scope: Scope) -> Node:
        """Return the value of a name in a scope, expanded."""
        found = scope.find(name)
        assert found is not None
        return self.expand(*found)

    def name(self, names: Fields) -> None:
        """Remember names that something must refer to."""
        self._named |= {name: node for name, node in names.items() if name not in self._named}

    def check_used(self, known: list[str]) -> None:
        """Refuse a name that nothing refers to: often a misspelt field."""
        for name, node in self._named.items():
            if name not in self.used:
                hint = did_you_mean(name, known)
                self.fail(node, f"nothing uses {name!r}{hint}; correct the name, or remove it")

    def expand(self, node: Node, scope: Scope) -> Node:
        """Return a node, fully expanded."""
        if node.static:
            return node
        if isinstance(node.value, str):
            whole = _WHOLE.fullmatch(node.value)
            if whole is None:
                return Node(_WHOLE.sub(lambda m: self._text(m, node, scope), node.value), node.line)
            return self._referred(whole, node, scope)
        if isinstance(node.value, list):
            return Node([self.expand(*item) for item in self.items(node, scope)], node.line)
        scope = self.scope_of(node, scope)
        fields = self.fields(node, scope)
        return Node({key: self.expand(part, scope) for key, part in fields.items()}, node.line)

    def head(self, node: Node, scope: Scope) -> tuple[Node, Scope]:
        """Follow references up to a value, whose parts may contain further references."""
        steps = 0
        while isinstance(node.value, str) and (whole := _WHOLE.fullmatch(node.value)):
            steps += 1
            if steps > _DEEPEST:
                self.fail(node, f"{node.value!r} {_LOOPS}")
            node, scope = self._find(whole, node, scope)
        return node, scope

    def scope_of(self, node: Node, scope: Scope) -> Scope:
        """Return the scope within a mapping, which adds the names in its ``let``."""
        if "let" not in node.value:
            return scope
        names = self.mapping(node.value["let"], scope)
        self.name(names)
        return Scope(names, scope)

    def fields(self, node: Node, scope: Scope) -> dict[str, Node]:
        """Return the fields of a mapping and of those it merges, values not expanded."""
        own = {key: part for key, part in node.value.items() if key not in ("<<", "let")}
        if "<<" not in node.value:
            return own
        found: dict[str, Node] = {}
        merged = node.value["<<"]
        several, within = self.head(merged, scope)
        listed = isinstance(several.value, list)
        for part, inner in self.items(several, within) if listed else [(merged, scope)]:
            for key, value in self.mapping(part, inner).items():
                found.setdefault(key, value)
        return {**found, **own}

    def mapping(self, node: Node, scope: Scope) -> dict[str, Node]:
        """Return the fields of a node that must be a mapping or null."""
        found, within = self.head(node, scope)
        if found.value is None:
            return {}
        if not isinstance(found.value, dict):
            self.fail(node, f"{node.plain()!r} is not a mapping; write keys and values")
        return self.fields(found, within)

    def items(self, node: Node, scope: Scope) -> Iterator[tuple[Node, Scope]]:
        """Yield the items of a list, each with the scope to expand it in."""
        for part in node.value:
            found, within = self.head(part, scope)
            if found is not part and isinstance(found.value, list):
                yield from self.items(found, within)
            elif isinstance(found.value, dict) and "for" in found.value:
                yield from self._repeated(found, within)
            else:
                yield found, within

    def entries(self, node: Node, scope: Scope) -> dict[str, dict[str, Node]]:
        """Return mappings by their keys, each with its key as ``label`` and ``slug``."""
        return {
            label: {
                "label": Node(label, part.line),
                "slug": Node(slug(label), part.line),
                **self.mapping(part, scope),
            }
            for label, part in self.mapping(node, scope).items()
        }

    def _repeated(self, node: Node, scope: Scope) -> Iterator[tuple[Node, Scope]]:
        loops = self.mapping(node.value["for"], scope)
        rest = Node({k: v for k, v in node.value.items() if k not in ("for", "let")}, node.line)
        for bound in self._combinations(list(loops.items()), scope):
            inner = self.scope_of(node, bound)
            if "give" not in rest.value:
                yield rest, inner
                continue
            given, within = self.head(rest.value["give"], inner)
            one = Node([given], given.line)
            yield from self.items(given if isinstance(given.value, list) else one, within)

    def _combinations(self, loops: list[tuple[str, Node]], scope: Scope) -> Iterator[Scope]:
        """Yield a scope per combination; a list may refer to the names before it."""
        if not loops:
            yield scope
            return
        (name, listed), *others = loops
        for value in self._values(listed, scope):
            yield from self._combinations(others, Scope({name: value}, scope))

    def _values(self, node: Node, scope: Scope) -> list[Node]:
        """Return the values that a name in ``for`` takes."""
        found, within = self.head(node, scope)
        if isinstance(found.value, dict):
            entries = self.entries(found, within)
            return [Node(fields, found.line) for fields in entries.values()]
        if not isinstance(found.value, list):
            self.fail(node, f"for takes {found.plain()!r}; give it a list or a mapping")
        # An item made by another loop is expanded here, where its names are known.
        return [
            part if inner.names is scope.names else self.expand(part, inner)
            for part, inner in self.items(found, within)
        ]

    def _find(self, match: re.Match[str], node: Node, scope: Scope) -> tuple[Node, Scope]:
        """Return the value of a reference, and the scope to expand it in."""
        name, *keys = (match[1] or match[2]).split(".")
        self.used.update((name, *keys))
        found = scope.find(name)
        if found is None and name in scope.every():
            self.fail(node, f"{node.value!r} {_LOOPS}")
        if found is None:
            hint = did_you_mean(name, scope.every())
            self.fail(node, f"${name} stands for nothing here{hint}; name it in let")
        value, within = found
        for key in keys:
            value, within = self.head(value, within)
            if isinstance(value.value, str) and key == "slug":
                value = Node(slug(self.expand(value, within).value), value.line)
                continue
            fields = self.fields(value, within) if isinstance(value.value, dict) else {}
            if key == "slug" and "label" in fields and key not in fields:
                label = self.expand(fields["label"], within)
                fields[key] = Node(slug(label.value), label.line)
            if key not in fields:
                self.fail(node, f"${match[1] or match[2]}: no {key!r}{did_you_mean(key, fields)}")
            value = fields[key]
        # A part of a mapping may refer to another part of it.
        return value, scope if keys else within

    def _referred(self, match: re.Match[str], node: Node, scope: Scope) -> Node:
        """Return the value of a reference, expanded."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self.fail(node, f"{node.value!r} {_LOOPS}")
        try:
            return self.expand(*self._find(match, node, scope))
        finally:
            self._depth -= 1

    def _text(self, match: re.Match[str], node: Node, scope: Scope) -> str:
        value = self._referred(match, node, scope).value
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            self.fail(node, f"{match[0]} is no text or number; it cannot stand within a text")
        return value if isinstance(value, str) else f"{value:g}"
