"""Rows as data: one YAML file a table row, checked against the real signatures without training.

A row says what is run (data, estimator with every parameter, seeds), where it stands (table,
column, label), and what the paper printed::

    label: CoNAL
    citation: "Z. Chu, J. Ma, H. Wang. Learning from crowds by modeling common confusions. ..."
    table: chu2021/table1
    column: LabelMe
    data: {name: labelme}
    estimator: {class: CoNALClassifier, params: {max_epochs: 25}}
    seeds: [0, 1, 2, 3, 4]
    holdout: 0.1
    published: {metric: accuracy, value: 0.8712, sd: 0.0055, n: 5, selection: gold validation}
    deviations: ["why this is not the paper's own experiment"]

Where a paper prints several measures of a row, ``published`` is a list, of one such a measure.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module, invalidate_caches
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from manyhands.evidence.data.sets import FOLDER_FILES
from manyhands.evidence.records.records import SHARES, SHORT, digest, is_share
from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.inference import BaseAggregator
from manyhands.typing import LARGEST_SEED

PAPERS = "papers"
"""The folder beside the rows that describes tables, figures and claims."""

WATCHED = ("train",)
"""What ``watch`` may name; validation and test part are watched anyway."""

_WAYS = ("name", "factory", "folder")
"""Keys of which ``data`` has one."""

DEVICES = {"cpu": "cpu", "gpu": "cuda"}
"""``device`` of a row, and of its estimator."""

OWN_SEED = "seed"
"""``random_state`` of data that are made anew with every seed."""

_REQUIRED = ("label", "citation", "data", "estimator", "seeds")
_DEFAULTS: dict[str, Any] = {
    "table": None,
    "column": None,
    "holdout": None,
    "device": "cpu",
    "extra": [],
    "watch": [],
    "published": None,
    "deviations": [],
}
_PUBLISHED = ("metric", "value", "sd", "n", "selection")
_RESERVED = {
    "random_state": "the seeds of the row are used",
    "device": "write device: cpu or gpu as a field of the row",
    "checkpoint": "finished runs are kept as records",
    "validation": "write holdout: <fraction> as a field of the row",
    "patience": "every epoch is recorded",
}
"""Parameters of the estimator that a row does not set, and why."""

_MOVED = {
    "manyhands.experiments.measures": "manyhands.evidence.measures.measures",
    "manyhands.experiments.ceilings": "manyhands.evidence.measures.ceilings",
    "manyhands.experiments.fewer": "manyhands.evidence.data.fewer",
    "manyhands.experiments.imbalance": "manyhands.evidence.data.imbalance",
    "manyhands.experiments.sparsity": "manyhands.evidence.data.sparsity",
}
"""Modules that have moved since records were filed under their former names."""

_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")

_OF_FOLDERS: dict[str, Path] = {}
"""Modules imported from rows' folders, and their files."""

Where = tuple[str | int, ...]
"""Keys and positions that lead to a value in a YAML file."""


class RowError(AnnotationError):
    """A row cannot be run as it is written; the message begins with the file and the line."""


@dataclass(frozen=True)
class Row:
    """One row of a table: what is run, where it stands, what the paper printed.

    Attributes
    ----------
    id : str
        Folder and name of the file, such as "conal/chu2021_labelme".
    file : str
    label, citation : str
    table, column : str or None
        Table ("paper/table") and the column in it.
    data : dict
        See `load_data`; ``random_state: seed`` in it stands for the run's own seed.
    estimator : dict
        ``class`` (a name in manyhands, or "module:Class") and ``params``; within these, a dict
        with a ``class`` is an object to be made in the same way.
    seeds : tuple of int
    holdout : float or None
        Fraction of the annotations on which an epoch is chosen, in a second fit.
    device : {"cpu", "gpu"}
    extra : tuple of str
        "module:function" of further measures, f(model, data) -> dict of str to float.
    published : dict, sequence of dict, or None
        ``metric``, ``value``, ``sd``, ``n``, ``selection``; of several measures, one each.
    deviations : tuple of str
    watch : tuple of {"train"}
        Further parts of the data on which accuracy is noted after every epoch.
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
    def folder(self) -> Path:
        """Where the file stands: relative data folders and a user's modules start from it."""
        return Path(self.file).parent

    def data_of(self, seed: int) -> dict[str, Any]:
        """Return ``data`` as it is with a seed: a simulated crowd may be another one with each."""
        found: dict[str, Any] = _with_seed(self.data, seed)
        return found

    def published_of(self, metric: str) -> dict[str, Any] | None:
        """Return what the paper printed of a measure, None if nothing."""
        return next((each for each in _each(self.published) if each["metric"] == metric), None)

    def make_estimator(self, seed: int) -> Any:
        """Make the estimator, unfitted, with a seed and on the row's device."""
        cls = find_object(self.estimator["class"], self.folder)
        accepted = inspect.signature(cls).parameters
        here = {"random_state": seed, "device": DEVICES[self.device]}
        params = _make(self.estimator.get("params") or {}, self.folder)
        return cls(**params, **{name: here[name] for name in here if name in accepted})

    def specification(self) -> dict[str, Any]:
        """Return what decides the result, as plain values; labels and printed figures do not."""
        found = {
            "data": self.data,
            "estimator": self.estimator,
            "holdout": self.holdout,
            "device": self.device,
            "extra": list(self.extra),
        }
        # Not where it is empty: records made before rows had it are still theirs.
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
    """Return printed figures as a list, however many there are."""
    if published is None:
        return []
    return [published] if isinstance(published, dict) else list(published)


def _with_seed(value: Any, seed: int) -> Any:
    if not isinstance(value, dict):
        return value
    own = {"random_state": seed} if value.get("random_state") == OWN_SEED else {}
    return {name: _with_seed(part, seed) for name, part in value.items()} | own


def load_rows(folder: str | Path) -> list[Row]:
    """Load every row under a folder, in the order of their ids.

    Raises
    ------
    AnnotationError
        If there is no such folder.
    RowError
        For the first row that cannot be run as it is written.
    """
    if not Path(folder).is_dir():
        raise AnnotationError(
            f"experiments={str(folder)!r} is not a folder; give the one with the rows' YAML files"
        )
    return sorted((load_row(path) for path in row_files(folder)), key=lambda row: row.id)


def row_files(folder: str | Path) -> list[Path]:
    """Return the files of rows under a folder: ``<method>/<row>.yaml``."""
    return sorted(path for path in Path(folder).glob("*/*.yaml") if path.parent.name != PAPERS)


def load_row(path: str | Path) -> Row:
    """Load one row and check it, without training and without loading its data.

    Checked are the keys, the data set's name or function and its options, the estimator's class,
    its parameters' names and (by scikit-learn's constraints) values, seeds, published figures,
    and that every import path leads somewhere.

    Raises
    ------
    RowError
        If the row cannot be run as it is written.
    FileNotFoundError
        If there is no such file.
    MissingExtraError
        Without PyYAML.
    """
    path = Path(path)
    document = Document(path)
    fields = document.mapping((), required=_REQUIRED, optional=_DEFAULTS)
    for name in ("label", "citation"):
        document.text((name,))
    for name in ("table", "column"):
        if fields[name] is not None:
            document.text((name,))
    _check_table(document, fields)
    _check_data(document, path.parent)
    _check_estimator(document, ("estimator",), path.parent)
    _check_run(document, fields, path.parent)
    _check_published(document, fields["published"])
    document.sequence(("deviations",), fields["deviations"], document.text)
    for name in ("seeds", "extra", "watch", "deviations"):
        fields[name] = tuple(fields[name])
    # Resolved: a file given as ./row.yaml has its folder's name all the same.
    return Row(id=f"{path.resolve().parent.name}/{path.stem}", file=str(path), **fields)


# -- YAML with its lines ----------------------------------------------------------------------


class Document:
    """A YAML file's plain values, and the line of each.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    data : what the file holds
        Unlike YAML 1.1, takes 1e-3 for the number it is.

    Raises
    ------
    RowError
        If the file is not YAML, holds another kind of value, or a key twice.
    """

    def __init__(self, path: Path) -> None:
        try:
            import yaml
        except ImportError as error:
            raise_missing_extra("reading rows (YAML)", "cli", error)
        self.path = path
        self.lines: dict[Where, int] = {(): 1}
        try:
            loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
            node = loader.get_single_node()
            self._scalar = loader.construct_object
            self.data = None if node is None else self._read(node, ())
        except UnicodeDecodeError as error:
            self.fail((), f"the file is not UTF-8 text ({error.reason}); save it as such")
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            self.lines[()] = 1 if mark is None else mark.line + 1
            problem = getattr(error, "problem", None) or str(error)
            self.fail((), f"this is not YAML ({problem}); quote texts with ':' or '#'")

    def _read(self, node: Any, where: Where) -> Any:
        self.lines.setdefault(where, node.start_mark.line + 1)
        if node.id == "sequence":
            return [self._read(part, (*where, i)) for i, part in enumerate(node.value)]
        if node.id == "mapping":
            return self._read_mapping(node, where)
        value = self._scalar(node)
        if isinstance(value, str) and node.style is None and _EXPONENT.fullmatch(value):
            return float(value)
        if not isinstance(value, str | int | float | None):
            self.fail(where, f"{node.value!r} is read as a {type(value).__name__}; quote it")
        if isinstance(value, float) and not isfinite(value):
            self.fail(where, f"{node.value!r} is not finite; write a number")
        return value

    def _read_mapping(self, node: Any, where: Where) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node)
            here = (*where, key if isinstance(key, str) else str(key_node.value))
            first = self.lines.get(here)
            if first is not None or not isinstance(key, str):
                problem = (
                    "is not text: quote it" if first is None else f"stands in line {first} too"
                )
                self.lines[here] = key_node.start_mark.line + 1
                self.fail(here, f"the key {key!r} {problem}")
            self.lines[here] = key_node.start_mark.line + 1
            found[key] = self._read(value_node, here)
        return found

    def fail(self, where: Where, message: str) -> NoReturn:
        """Raise a `RowError` that begins with the line of a value (or of what holds it)."""
        while where not in self.lines:
            where = where[:-1]
        raise RowError(f"{self.path}:{self.lines[where]}: {message}")

    def at(self, where: Where) -> Any:
        """Return the value at a place, None where there is none."""
        value: Any = self.data
        for key in where:
            value = value.get(key) if isinstance(value, dict) else value[key]
        return value

    def mapping(
        self, where: Where, *, required: Iterable[str], optional: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return a mapping with its defaults; refuse missing and unknown keys."""
        given, required = self.at(where), list(required)
        subject = ".".join(map(str, where)) or "a row"
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
        """Return a value that must be a text that says something."""
        value = self.at(where)
        if not isinstance(value, str) or not value.strip():
            self.fail(where, f"{where[0]} holds {value!r}; write a text")
        return value

    def check_metric(self, where: Where, metric: Any) -> None:
        """Refuse what looks like a misspelt measure: of others, only their records know."""
        hint = did_you_mean(metric, SHARES) if isinstance(metric, str) else ""
        # "balanced_accuracy" is another measure, "acuracy" is not.
        if hint and not is_share(metric):
            self.fail(where, f"metric is {metric!r}{hint}; write the measure's name")

    def sequence(self, where: Where, given: Any, check: Callable[[Where], object]) -> None:
        """Refuse what is no list, and check every part of a list."""
        if not isinstance(given, list):
            self.fail(where, f"{where[-1]} is {given!r}; write a list")
        for i in range(len(given)):
            check((*where, i))

    def number(
        self, where: Where, low: float, high: float | None = None, *, whole: bool = False
    ) -> None:
        """Refuse what is no number within bounds, which count as within."""
        value = self.at(where)
        kind = (int,) if whole else (int, float)
        top = float("inf") if high is None else high
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= top:
            what = "a whole number" if whole else "a number"
            bounds = f"{low} or more" if high is None else f"from {low} to {high}"
            name = where[-1] if isinstance(where[-1], str) else where[-2]
            self.fail(where, f"{name} holds {value!r}; write {what}, {bounds}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" where one known name is close."""
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


# -- what a row may say -----------------------------------------------------------------------


def _check_table(document: Document, fields: Mapping[str, Any]) -> None:
    table, column = fields["table"], fields["column"]
    if (table is None) != (column is None):
        document.fail(
            ("column",) if table is None else ("table",),
            f"table is {table!r} and column is {column!r}; give both, or neither",
        )
    if table is not None and not re.fullmatch(r"[^/\s]+/[^/\s]+", table):
        document.fail(("table",), f"table is {table!r}; write paper/table, such as chu2021/table1")


def _check_data(document: Document, folder: Path, where: Where = ("data",)) -> None:
    data = document.at(where)
    ways = _WAYS
    if not isinstance(data, dict) or sum(way in data for way in ways) != 1:
        document.fail(where, f"data is {data!r}; give one of {', '.join(ways)}")
    for way in ways:
        if way in data:
            document.text((*where, way))
    if "folder" in data:
        document.known(where, data, ["folder"], "data from a folder")
        for name in FOLDER_FILES:
            path = folder / data["folder"] / name
            if not path.is_file():
                document.fail((*where, "folder"), f"there is no {path}; put it there")
        return
    try:
        load, options = data_source(data, folder)
    except AnnotationError as error:
        document.fail((*where, "name" if "name" in data else "factory"), str(error))
    _check_arguments(document, where, load, options)
    for name, value in options.items():
        if isinstance(value, dict) and any(way in value for way in _WAYS):
            # Data made from other data, such as their gold-labelled ceiling.
            _check_data(document, folder, (*where, name))
    given = options.get("random_state")
    if isinstance(given, str) and given != OWN_SEED:
        document.fail(
            (*where, "random_state"),
            f"random_state is {given!r}; write an integer, or seed for the run's own",
        )


def _check_arguments(
    document: Document, where: Where, function: Any, given: Mapping[str, Any]
) -> None:
    """Compare names with a signature."""
    parameters = inspect.signature(function).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        document.known(where, given, named, f"the signature of {function.__name__}")
    needed = [p.name for p in parameters if p.name in named and p.default is p.empty]
    for name in needed:
        if name not in given:
            document.fail(where, f"{function.__name__} needs {name!r}; add it")


def _check_estimator(document: Document, where: Where, folder: Path) -> Any:
    """Check an object's class, the names of its parameters and their values; return it made."""
    document.mapping(where, required=["class"], optional={"params": {}})
    document.text((*where, "class"))
    inside = (*where, "params")
    params = document.at(inside)
    if params is not None and not isinstance(params, dict):
        document.fail(inside, f"params is {params!r}; write names and values")
    params = params or {}
    outermost = where == ("estimator",)
    for name in [name for name in params if outermost and name in _RESERVED]:
        document.fail((*inside, name), f"{name} is not set in a row: {_RESERVED[name]}")
    try:
        cls = find_object(document.at((*where, "class")), folder)
    except AnnotationError as error:
        document.fail((*where, "class"), str(error))
    if not inspect.isclass(cls) or (outermost and not _is_classifier(cls)):
        needed = "a classifier, with fit(X, annotations) and predict(X)" if outermost else "a class"
        document.fail((*where, "class"), f"{document.at((*where, 'class'))} is not {needed}")
    _check_arguments(document, inside, cls, params)
    if isinstance(params.get("backbone"), str | dict) and hasattr(cls, "_build_module"):
        _check_backbone(document, (*inside, "backbone"), params["backbone"])
    made = {
        name: _check_value(document, (*inside, name), value, folder)
        for name, value in params.items()
    }
    return _try_to_make(document, where, cls, made)


def _check_backbone(document: Document, where: Where, backbone: str | dict[str, Any]) -> None:
    """Check the name and the arguments of a network of ours."""
    from manyhands.nn import BACKBONES

    arguments = {"name": backbone} if isinstance(backbone, str) else {"name": "mlp", **backbone}
    if "class" in arguments:
        return
    name = arguments.pop("name")
    if name not in BACKBONES:
        hint = did_you_mean(str(name), BACKBONES)
        document.fail(where, f"backbone is {name!r}{hint}; write one of {', '.join(BACKBONES)}")
    known = list(inspect.signature(BACKBONES[name]).parameters)
    document.known(where, arguments, known[2:], f"the backbone {name}")


def _is_classifier(cls: type) -> bool:
    return not issubclass(cls, BaseAggregator) and all(
        callable(getattr(cls, name, None)) for name in ("fit", "predict")
    )


def _check_value(document: Document, where: Where, value: Any, folder: Path) -> Any:
    """Check what is nested in a parameter; return the parameter made."""
    if isinstance(value, dict) and "class" in value:
        return _check_estimator(document, where, folder)
    if isinstance(value, dict):
        return {k: _check_value(document, (*where, k), v, folder) for k, v in value.items()}
    if isinstance(value, list):
        return [_check_value(document, (*where, i), v, folder) for i, v in enumerate(value)]
    return value


def _try_to_make(document: Document, where: Where, cls: Any, params: dict[str, Any]) -> Any:
    try:
        made = cls(**params)
        if hasattr(made, "_validate_params") and hasattr(made, "_parameter_constraints"):
            made._validate_params()
    except Exception as error:  # whatever a user's own class raises
        # scikit-learn: "The 'lr' parameter of CoNALClassifier must be ... Got ... instead."
        named = re.search(r"'(\w+)' parameter", str(error))
        place = (*where, "params", named[1]) if named else (*where, "class")
        document.fail(place, str(error))
    return made


def _check_run(document: Document, fields: Mapping[str, Any], folder: Path) -> None:
    """Seeds, hold-out, device and further measures."""
    seeds = fields["seeds"]
    document.sequence(
        ("seeds",), seeds, lambda where: document.number(where, 0, LARGEST_SEED, whole=True)
    )
    if not seeds or len(set(seeds)) < len(seeds):
        document.fail(("seeds",), f"seeds are {seeds!r}; give at least one, and each once")
    holdout = fields["holdout"]
    if holdout is not None:
        document.number(("holdout",), 0, 1)
        if holdout in (0, 1):
            document.fail(("holdout",), f"holdout is {holdout!r}; write a fraction, or null")
    if fields["device"] not in DEVICES:
        document.fail(("device",), f"device is {fields['device']!r}; write {' or '.join(DEVICES)}")
    document.sequence(("extra",), fields["extra"], lambda w: _check_measure(document, w, folder))
    document.sequence(("watch",), fields["watch"], lambda w: _check_part(document, w))


def _check_measure(document: Document, where: Where, folder: Path) -> None:
    try:
        measure = find_object(document.text(where), folder)
    except AnnotationError as error:
        document.fail(where, str(error))
    if not callable(measure):
        document.fail(where, f"{document.at(where)!r} is no function; name one f(model, data)")


def _check_part(document: Document, where: Where) -> None:
    part = document.at(where)
    if part not in WATCHED:
        document.fail(
            where,
            f"watch holds {part!r}; write {' or '.join(WATCHED)} (validation and test part are "
            "watched anyway)",
        )


def _check_published(document: Document, published: Any) -> None:
    where: Where = ("published",)
    if not isinstance(published, list):
        if published is not None:
            _check_printed(document, where)
        return
    if not published:
        document.fail(where, "published is empty; write what the paper printed, or leave it out")
    document.sequence(where, published, lambda place: _check_printed(document, place))
    metrics = [each["metric"] for each in published]
    for i, metric in enumerate(metrics):
        if metric in metrics[:i]:
            document.fail((*where, i), f"published has {metric!r} twice; write a measure once")


def _check_printed(document: Document, where: Where) -> None:
    """Check what the paper printed of one measure."""
    optional = dict.fromkeys(_PUBLISHED[2:])
    found = document.mapping(where, required=_PUBLISHED[:2], optional=optional)
    metric = document.text((*where, "metric"))
    document.check_metric((*where, "metric"), metric)
    high = 1.0 if is_share(metric) else None
    document.number((*where, "value"), 0.0 if high else -sys.float_info.max, high)
    if found["sd"] is not None:
        document.number((*where, "sd"), 0.0, high)
    if found["n"] is not None:
        document.number((*where, "n"), 1, whole=True)
    if found["selection"] is not None and found["selection"] not in SHORT:
        document.fail(
            (*where, "selection"),
            f"selection is {found['selection']!r}; write one of {', '.join(SHORT)}, or null where "
            "the paper does not say",
        )


# -- names, and what they stand for -----------------------------------------------------------


def find_object(name: str, folder: str | Path | None = None) -> Any:
    """Find a name of manyhands, or a "module:name", also of modules in a folder.

    Raises
    ------
    AnnotationError
        If there is no such thing; the mend names a close one.
    MissingExtraError
        If it needs an extra that is not installed.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        import manyhands

        if name in manyhands.__all__:
            return getattr(manyhands, name)
        raise AnnotationError(
            f"manyhands has no {name!r}{did_you_mean(name, manyhands.__all__)}; write its name, or "
            "module:Class for one of your own"
        )
    module_name = _MOVED.get(module_name, module_name)
    try:
        module = _import(module_name, folder)
    except ImportError as error:
        raise AnnotationError(
            f"{name!r} cannot be imported ({error}); install the module, or put it into the "
            "row's folder or the working directory"
        ) from error
    if not attribute or not hasattr(module, attribute):
        hint = did_you_mean(attribute, vars(module))
        raise AnnotationError(f"the module {module_name!r} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _import(name: str, folder: str | Path | None) -> ModuleType:
    """Import a module; where the row's folder has one of that name, it must be this one."""
    own = Path(folder or ".") / Path(*name.split(".")).with_suffix(".py")
    if own.is_file() and _OF_FOLDERS.get(name, own.resolve()) != own.resolve():
        # Another row's own module of the same name: the objects it gave stay as they are.
        sys.modules.pop(name, None)
        invalidate_caches()
    with _importable(folder):
        try:
            module = import_module(name)
        except ImportError:
            raise
        except Exception as error:  # whatever a user's own module raises
            raise AnnotationError(
                f"the module {name!r} raises {type(error).__name__} where it is imported: {error}"
            ) from error
    origin = getattr(module, "__file__", None)
    if own.is_file():
        if origin is None or not own.samefile(origin):
            raise AnnotationError(
                f"the module {name!r} is that of {origin}, not {own}; rename the latter"
            )
        _OF_FOLDERS[name] = own.resolve()
    return module


@contextmanager
def _importable(folder: str | Path | None) -> Iterator[None]:
    """Let modules of a row's folder and of the working directory be found, last of all."""
    before = list(sys.path)
    sys.path += [str(Path(place).resolve()) for place in (folder, ".") if place is not None]
    try:
        yield
    finally:
        sys.path[:] = before


def data_source(
    data: Mapping[str, Any], folder: str | Path | None = None
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function that loads a row's data, and its options.

    Raises
    ------
    AnnotationError
        If there is no such data set or function.
    """
    from manyhands import datasets

    options = {name: value for name, value in data.items() if name not in ("name", "factory")}
    if "factory" in data:
        factory = find_object(data["factory"], folder)
        if not callable(factory):
            raise AnnotationError(
                f"{data['factory']!r} is {factory!r}, no function that makes data"
            )
        return factory, options
    known = [name.removeprefix("load_") for name in datasets.__all__ if name.startswith("load_")]
    name = data["name"]
    if name not in known:
        raise AnnotationError(
            f"there is no data set {name!r}{did_you_mean(name, known)}; there are "
            f"{', '.join(known)}"
        )
    return getattr(datasets, f"load_{name}"), options


def _make(value: Any, folder: Path) -> Any:
    """Make a parameter: an object where a class is named, else the value as it is."""
    if isinstance(value, dict) and "class" in value:
        return find_object(value["class"], folder)(**_make(value.get("params") or {}, folder))
    if isinstance(value, dict):
        return {name: _make(part, folder) for name, part in value.items()}
    if isinstance(value, list):
        return [_make(part, folder) for part in value]
    return value


def _classes_in(value: Any) -> list[str]:
    """Names of all classes in an estimator's description."""
    if isinstance(value, list):
        return [name for part in value for name in _classes_in(part)]
    if not isinstance(value, dict):
        return []
    mine = [value["class"]] if isinstance(value.get("class"), str) else []
    return mine + [name for part in value.values() for name in _classes_in(part)]
