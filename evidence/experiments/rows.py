"""Rows: what to run, where the result is shown, and what the paper printed."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evidence.experiments.checks import DEVICES, OWN_SEED, check_row
from evidence.experiments.document import Document, Node
from evidence.objects import find_object
from evidence.records.records import digest
from manyhands.exceptions import AnnotationError


@dataclass(frozen=True)
class Row:
    """One row of a table: what to run, where the result is shown, what the paper printed.

    Attributes
    ----------
    id : str
        Method and name, such as "conal/chu2021_labelme".
    file : str
        The experiment file that describes it.
    label, citation : str
    table, column : str or None
        Table ("paper/table") and the column in it.
    data : dict
        See `load_data`; ``random_state: seed`` in it stands for the run's own seed.
    estimator : dict
        ``class`` (a name in manyhands, or "module:Class") and ``params``. A dict with a ``class``
        within ``params`` describes an object in the same way.
    seeds : tuple of int
    holdout : float or None
        Fraction of the annotations that a second fit holds out to choose the epoch.
    device : {"cpu", "gpu"}
    extra : tuple of str
        "module:function" of further measures, f(model, data) -> dict of str to number or array.
    published : dict, sequence of dict, or None
        ``metric``, ``value``, ``sd``, ``n``, ``selection``; one dict per measure.
    deviations : tuple of str
    watch : tuple of {"train"}
        Further parts of the data on which accuracy is recorded after every epoch.

    See Also
    --------
    evidence.experiments.tables : How rows are written.
    """

    id: str
    file: str
    label: str
    citation: str
    table: str | None
    column: str | None
    data: dict[str, Any]
    estimator: dict[str, Any]
    seeds: tuple[int, ...]
    holdout: float | None
    device: str
    extra: tuple[str, ...]
    published: dict[str, Any] | Sequence[dict[str, Any]] | None
    deviations: tuple[str, ...]
    watch: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        """Name of the experiment file without its suffix."""
        return Path(self.file).stem

    @property
    def folder(self) -> Path:
        """Folder of the file; relative data folders and a user's modules start from it."""
        return Path(self.file).parent

    def data_of(self, seed: int) -> dict[str, Any]:
        """Return ``data`` with the run's seed filled in."""
        found: dict[str, Any] = _with_seed(self.data, seed)
        return found

    def published_of(self, metric: str) -> dict[str, Any] | None:
        """Return the figure that the paper printed for a measure, or None."""
        return next((each for each in _each(self.published) if each["metric"] == metric), None)

    def make_estimator(self, seed: int) -> Any:
        """Make the estimator, unfitted, with a seed and on the row's device."""
        cls = find_object(self.estimator["class"], self.folder)
        accepted = inspect.signature(cls).parameters
        here = {"random_state": seed, "device": DEVICES[self.device]}
        params = _make(self.estimator.get("params") or {}, self.folder)
        return cls(**params, **{name: here[name] for name in here if name in accepted})

    def specification(self) -> dict[str, Any]:
        """Return everything that decides the result, as plain values (no labels or figures)."""
        found = {
            "data": self.data,
            "estimator": self.estimator,
            "holdout": self.holdout,
            "device": self.device,
            "extra": list(self.extra),
        }
        # Left out if empty, which keeps the keys of records made before rows had this field.
        return {**found, "watch": list(self.watch)} if self.watch else found

    @property
    def key(self) -> str:
        """SHA-256 of the specification, in hexadecimal."""
        return digest(self.specification())

    @property
    def classes(self) -> list[str]:
        """The estimator's class, and those of all objects among its parameters."""
        return _classes_in(self.estimator)


def _each(published: Any) -> list[dict[str, Any]]:
    """Return printed figures as a list, whether there are none, one or several."""
    if published is None:
        return []
    return [published] if isinstance(published, dict) else list(published)


def _with_seed(value: Any, seed: int) -> Any:
    if not isinstance(value, dict):
        return value
    own = {"random_state": seed} if value.get("random_state") == OWN_SEED else {}
    return {name: _with_seed(part, seed) for name, part in value.items()} | own


def read_row(path: Path, node: Node, of: str = "") -> tuple[Row, Document]:
    """Check a row, without training and without loading its data.

    Parameters
    ----------
    path : Path
        The file that contains the row.
    node : Node
        The row, expanded.
    of : str
        As in `Document`.

    Returns
    -------
    row : Row
    document : Document
        With the lines of its fields.

    Raises
    ------
    RowError
        If the row cannot be run as it is written.
    """
    document = Document(path, _with_paper(path, node), of)
    fields = check_row(document, path.parent)
    for name in ("seeds", "extra", "watch", "deviations"):
        fields[name] = tuple(fields[name])
    return Row(file=str(path), **fields), document


def _with_paper(path: Path, node: Node) -> Node:
    """Put the paper's key before the short name of a table."""
    table = node.value.get("table") if isinstance(node.value, dict) else None
    if table is None or not isinstance(table.value, str) or "/" in table.value:
        return node
    return Node({**node.value, "table": Node(f"{path.stem}/{table.value}", table.line)}, node.line)


def _make(value: Any, folder: Path) -> Any:
    """Return a parameter's value, with objects made where a class is named."""
    if isinstance(value, dict) and "class" in value:
        return find_object(value["class"], folder)(**_make(value.get("params") or {}, folder))
    if isinstance(value, dict):
        return {name: _make(part, folder) for name, part in value.items()}
    if isinstance(value, list):
        return [_make(part, folder) for part in value]
    return value


def _classes_in(value: Any) -> list[str]:
    """Return the names of all classes in an estimator's description."""
    if isinstance(value, list):
        return [name for part in value for name in _classes_in(part)]
    if not isinstance(value, dict):
        return []
    mine = [value["class"]] if isinstance(value.get("class"), str) else []
    return mine + [name for part in value.values() for name in _classes_in(part)]


# -- automatic defaults, replaced by values -------------------------------------------------------


def without_auto(described: Node, fixed: dict[str, Node], folder: Path) -> Node:
    """Return the description of an estimator with fixed values in place of automatic defaults.

    ``instead_of_auto: {scaling: standard, max_epochs: 50}`` in a paper's file is written into every
    estimator (those among parameters included) whose class has "auto" as the default of that
    parameter, unless the row sets it. Rows thus name the values they were run with, and their
    records stay valid whatever "auto" comes to mean.

    Parameters
    ----------
    described : Node
        ``class`` and ``params``, expanded; or any part of such a description.
    fixed : dict of str to Node
        Parameter -> value.
    folder : Path
        May contain the modules of classes.
    """
    value = described.value
    if isinstance(value, list):
        return Node([without_auto(part, fixed, folder) for part in value], described.line)
    if not isinstance(value, dict):
        return described
    value = {name: without_auto(part, fixed, folder) for name, part in value.items()}
    named = value.get("class")
    if named is not None and isinstance(named.value, str):
        params = value.get("params", Node({}, described.line))
        given = params.value if isinstance(params.value, dict) else {}
        automatic = _automatic(named.value, folder)
        missing = {
            name: part for name, part in fixed.items() if name in automatic and name not in given
        }
        if missing:
            value["params"] = Node({**given, **missing}, params.line)
    return Node(value, described.line)


def has_parameter(described: Any, name: str) -> bool:
    """Whether a description of an estimator sets a parameter, of an object within it, too."""
    if isinstance(described, list):
        return any(has_parameter(part, name) for part in described)
    if not isinstance(described, dict):
        return False
    return name in (described.get("params") or {}) or any(
        has_parameter(part, name) for part in described.values()
    )


@cache
def _automatic(name: str, folder: Path) -> frozenset[str]:
    """Parameters of a class whose default is "auto"; none if there is no such class."""
    try:
        parameters = inspect.signature(find_object(name, folder)).parameters
    except (AnnotationError, TypeError, ValueError):
        return frozenset()  # The check of the row names the mistake, with its line.
    return frozenset(key for key, each in parameters.items() if each.default == "auto")
