"""The codec of saved models: any of them as JSON and arrays, and back (torch for networks alone).

`write` describes a fitted model by its class, its parameters and what its fit has found, and
`read` makes it again. A value that JSON holds stands for itself; any other one is an object with a
key that begins with ``$``:

=================  ================================================================================
``$array``         numbers, in the file of arrays, under this name (the path at which they stood)
``$number``        a single number of numpy's, of this ``type``
``$values``        an array of texts or other plain values
``$tuple``         a tuple
``$pairs``         a dict with keys that are no texts
``$float``         a number that JSON does not know: "nan", "inf", "-inf"
``$object``        an estimator: its class, ``parameters`` and what it found, ``fitted``
``$record``        a value of a class that `manyhands.records` knows: its ``fields`` or ``content``
``$pipeline``      the steps of a scikit-learn pipeline
``$network``       the weights of a network, whose names begin like this
``$own``           an object of the user's, which is not saved
=================  ================================================================================

What is saved is declared, not programmed: for a classifier by its `Traits`, for parts of models by
`manyhands.records.record`; of an aggregator, all of it is. Nothing in a folder is executed: classes
are looked up by name among those that this library knows.

Folders in earlier layouts are translated to this one before they are read
(`manyhands.fitting.earlier_layouts`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors.numpy import save as to_bytes
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from manyhands import inference
from manyhands.annotations.encoding import text_array
from manyhands.annotations.target import is_sharded
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting.earlier_layouts import upgraded
from manyhands.fitting.fitted import take_over, with_present_names
from manyhands.fitting.folders import (
    VERSION,
    Stored,
    check_unaltered,
    read_description,
    stored_arrays,
    write_model,
)
from manyhands.fitting.method_protocol import flat_defaults, flat_parameters, from_flat
from manyhands.fitting.traits import SAVED, Traits
from manyhands.inference.base import BaseAggregator
from manyhands.records import Record, is_saved_whole, record_named, record_of
from manyhands.typing import AnyArray

Node: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None
"""Type of the values that JSON can hold."""

Collection: TypeAlias = list[Any] | tuple[Any, ...] | dict[Any, Any]

ClassFinder = Callable[..., type[Any]]
"""Finds the class of a name; saving itself knows no method."""

NUMBERS, WIDEST = "biuf", 8
"""Kinds of arrays that are saved as arrays, and the largest number of bytes of a number."""

PLAIN = (str, bool, int, float, type(None))

PASSING = (None, "passthrough")
"""Steps of a pipeline that change nothing."""

OF_THIS_MACHINE = ("callbacks", "checkpoint")
"""Parameters that are not saved: they belong to this machine or this process. Nor are they read, as
a fit would write where they say."""

DAMAGES = (
    *(LookupError, TypeError, ValueError, AttributeError, OverflowError),
    *(RecursionError, MemoryError),
)
"""Exceptions that a damaged description may cause: too large, too long, too deeply nested."""


def write(folder: str | Path, model: BaseEstimator) -> Path:
    """Write a fitted model into a folder; replace the model already there.

    Parameters
    ----------
    folder : str or Path
    model : classifier, aggregator, encoder or Pipeline of these
        Fitted.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    AnnotationError
        If something in it can be written neither as arrays nor as JSON.
    WriteError
        If the folder cannot be written; the previous model survives.
    """
    writer = _Writer()
    described = writer.node(model, "")
    described = {"class": described.pop("$object", type(model).__name__), **described}
    return write_model(folder, described, to_bytes(writer.arrays))


def read(
    folder: str | Path, find_class: ClassFinder, *, device: str = "auto", backbone: Any = None
) -> Any:
    """Read a folder that `write`, or an earlier version, wrote. No code in it is executed.

    Parameters
    ----------
    folder : str or Path
    find_class : callable
        `manyhands.registry.get`: returns the class of a name, and raises `AnnotationError` if
        there is none.
    device : str
        Device of the networks.
    backbone : nn.Module or callable, optional
        The user's own network, which a folder does not hold.

    Returns
    -------
    The fitted model

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated or altered, or holds a class or a backbone that nobody
        has given.
    """
    folder = Path(folder)
    description = read_description(folder)
    try:
        if description["version"] == VERSION:
            with stored_arrays(folder, description) as stored:
                reader = _Reader(folder, stored, find_class, device, backbone, description)
                model = reader.model(description)
        else:
            described, arrays = upgraded(folder, description, read_arrays)
            stored = {name: Stored(a.shape, a.nbytes, a.copy) for name, a in arrays.items()}
            reader = _Reader(folder, stored, find_class, device, backbone, description)
            model = reader.model(described)
    except ModelFolderError:
        raise
    except DAMAGES as error:
        raise ModelFolderError(
            f"{str(folder / 'model.json')!r} is damaged ({error!r}); save the model again"
        ) from error
    check_unaltered(description, folder)  # Last, as the errors above are more specific.
    return model


def parameters_as_saved(model: BaseEstimator) -> dict[str, Any]:
    """Describe every parameter of a model that `write` saves, by its name, as ``model.json`` does.

    Numbers of arrays are not in it, texts are.
    """
    described: dict[str, Any] = _Writer().node(model, "", unfitted=True)["parameters"]
    return described


def is_known(model: object) -> bool:
    """Return whether a model without ``save`` declares what is saved, as aggregators do."""
    return record_of(model) is not None or is_saved_whole(model)


def read_arrays(folder: Path, description: Mapping[str, Any]) -> dict[str, AnyArray]:
    """Read the whole file of arrays that ``model.json`` names; see `stored_arrays`."""
    with stored_arrays(folder, description) as stored:
        return {name: each.array for name, each in stored.items()}


# -- writing --------------------------------------------------------------------------------------


class _OwnError(AnnotationError):
    """A value is an object of the user's."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Writer:
    """Describes values as JSON, and keeps their arrays by the paths at which they stand."""

    def __init__(self) -> None:
        self.arrays: dict[str, AnyArray] = {}

    def node(self, value: object, path: str, *, unfitted: bool = False) -> Any:
        """Describe a value; ``unfitted``: estimators by their parameters alone, as clones are."""
        if isinstance(value, np.generic):
            return self._number(value, path)
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": repr(value)}
        if isinstance(value, PLAIN):
            return value
        if (known := record_of(value)) is not None and not known.is_estimator:
            return self._record(known, value, path, unfitted)
        if isinstance(value, Pipeline):
            steps = [(name, step) for name, step in value.steps if step not in PASSING]
            return {
                "$pipeline": [
                    [name, self.node(step, _join(path, name), unfitted=unfitted)]
                    for name, step in steps
                ]
            }
        if hasattr(value, "get_params") and not isinstance(value, type):
            return self._estimator(value, path, unfitted)
        if hasattr(value, "state_dict") and not unfitted:
            for name, tensor in value.state_dict().items():
                self._keep(tensor.detach().cpu().numpy(), _join(path, name))
            return {"$network": path}
        if hasattr(value, "detach"):
            return self._array(value.detach().cpu().numpy(), path)
        if isinstance(value, Path):
            return str(value)
        if isinstance(value, list | tuple | dict):
            return self._collection(value, path, unfitted)
        if hasattr(value, "__array__") and not hasattr(value, "state_dict"):
            return self._array(np.asarray(value), path)
        name, kind = path.rpartition(".")[2], type(value).__name__
        raise _OwnError(
            f"{name} is of type {kind}, which cannot be saved without pickle; give an array, or "
            "write the whole with joblib or skops",
            getattr(value, "__qualname__", None) or type(value).__qualname__,
        )

    def _collection(self, value: Collection, path: str, unfitted: bool) -> Any:
        if isinstance(value, dict):
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {
                    key: self.node(part, _join(path, key), unfitted=unfitted)
                    for key, part in value.items()
                }
            pairs = [list(pair) for pair in value.items()]
            return {"$pairs": self._collection(pairs, path, unfitted)}
        parts = [
            self.node(part, _join(path, place), unfitted=unfitted)
            for place, part in enumerate(value)
        ]
        return parts if isinstance(value, list) else {"$tuple": parts}

    def _number(self, value: np.generic, path: str) -> Any:
        if value.dtype.kind in NUMBERS and value.dtype.itemsize <= WIDEST:
            return {"$number": self.node(value.item(), path), "type": value.dtype.name}
        return self._array(np.asarray(value), path)

    def _array(self, value: AnyArray, path: str) -> Any:
        if value.dtype.kind in NUMBERS and value.dtype.itemsize <= WIDEST:
            # A product's last bits depend on the order in memory.
            turned = value.ndim > 1 and not value.flags["C_CONTIGUOUS"]
            return {
                "$array": self._keep(value, path),
                **({"scalar": True} if value.ndim == 0 else {}),
                **({"order": "F"} if turned else {}),
            }
        values = value.tolist()
        if isinstance(values, PLAIN):
            return self.node(values, path)  # A single text.
        if not isinstance(values, list) or not all(isinstance(part, PLAIN) for part in values):
            raise AnnotationError(
                f"{path.rpartition('.')[2]} is an array of {value.dtype}, which cannot be saved "
                "without pickle; give numbers or texts"
            )
        mixed = {"mixed": True} if value.dtype.kind == "O" else {}
        return {"$values": self.node(values, path), **mixed}

    def _keep(self, array: AnyArray, name: str) -> str:
        while name in self.arrays:  # Keys of dicts may look like paths.
            name += "'"
        native = array.dtype.newbyteorder("=")
        self.arrays[name] = np.asarray(array, dtype=native, order="C")
        return name

    def _record(self, known: Record, value: object, path: str, unfitted: bool) -> Any:
        if known.content is not None:
            content = self.node(known.content(value), path, unfitted=unfitted)
            return {"$record": known.name, "content": content}
        own = {
            name: self.node(getattr(value, name), _join(path, name), unfitted=unfitted)
            for name in known.fields
        }
        return {"$record": known.name, "fields": own}

    def _estimator(self, value: BaseEstimator, path: str, unfitted: bool) -> Any:
        known, traits = record_of(value), getattr(value, "_traits", None)
        name = type(value).__name__
        says_it = known is not None or traits is not None or is_saved_whole(value) or unfitted
        if not says_it or (known is None and not type(value).__module__.startswith("manyhands.")):
            raise _not_ours(name)
        if traits is not None and not unfitted:
            if traits.saved_instead is not None:
                return self._estimator(getattr(value, traits.saved_instead), path, unfitted)
            if traits.save_refusal is not None:
                raise AnnotationError(traits.save_refusal)
        described: dict[str, Any] = {"$object": name if known is None else known.name}
        found = {} if unfitted else self._found(value, known, traits, path)
        described["parameters"] = {
            key: self._parameter(traits, key, part, _join(path, key))
            for key, part in saved_parameters(value).items()
        }
        return described if unfitted else {**described, "fitted": found}

    def _found(
        self, value: BaseEstimator, known: Record | None, traits: Traits | None, path: str
    ) -> dict[str, Any]:
        if isinstance(value, BaseAggregator) and is_sharded(getattr(value, "table_", None)):
            warm = value.traits.uses_start
            mend = "or np.save its posterior_, and fit(store, start=posterior_)"
            raise AnnotationError(
                f"the {type(value).__name__} is fitted to a store, which a saved model cannot "
                f"hold; keep the store and its labels, {mend if warm else 'and fit(store)'} again "
                "to predict with it"
            )
        found = saved_attributes(value, known, traits)
        return {key: self.node(part, _join(path, key)) for key, part in found.items()}

    def _parameter(self, traits: Traits | None, name: str, value: object, path: str) -> Any:
        """Describe a parameter as a clone would have it."""
        if traits is not None and name in traits.replaceable_parameters:
            return self._replaceable(value, path)
        try:
            return self.node(value, path, unfitted=True)
        except _OwnError as error:
            if traits is not None:
                if hasattr(value, "get_params") or hasattr(value, "fit_resample"):
                    raise _not_ours(error.kind) from error  # A fit without it is another one.
                return {"$own": error.kind}
            if name == "backbone":
                raise AnnotationError(
                    f"a member is a network of your own, {error.kind}, which load() could not "
                    "rebuild; give a backbone by name or dict, or save the whole with joblib"
                ) from error
            raise

    def _replaceable(self, value: object, path: str) -> Any:
        """Describe a parameter that predictions do not need; only name it if it cannot be saved."""
        try:
            return self.node(value, path, unfitted=True)
        except AnnotationError:
            if not isinstance(value, list | tuple):
                return {"$object": "Unsaved", "parameters": {"kind": type(value).__name__}}
            parts = [self._replaceable(part, _join(path, i)) for i, part in enumerate(value)]
            return parts if isinstance(value, list) else {"$tuple": parts}


def _join(path: str, part: str | int) -> str:
    return f"{path}.{part}" if path else str(part)


def _not_ours(kind: str) -> _OwnError:
    return _OwnError(
        f"{kind} is not a class of manyhands, so load() could not rebuild it without pickle; save "
        "the whole with joblib or skops",
        kind,
    )


def saved_parameters(model: BaseEstimator) -> dict[str, Any]:
    """Return the parameters of an estimator that are saved, by flat names.

    Gold labels, and what belongs to this machine or to random numbers drawn so far, are left out.
    """
    given = {
        name: value
        for name, value in flat_parameters(model).items()
        if name not in OF_THIS_MACHINE
        and not (name == "validation" and isinstance(value, tuple | list))
    }
    if not isinstance(given.get("random_state"), int | None):
        given["random_state"] = None  # A generator has moved on.
    if "device" in given and not isinstance(given["device"], str):
        given["device"] = "auto"  # The devices of a training are not those of a prediction.
    if isinstance(given.get("backbone"), dict):
        # Without the initial weights: the final ones are saved.
        given["backbone"] = {k: v for k, v in given["backbone"].items() if k != "weights"}
    return given


def saved_attributes(
    model: BaseEstimator, known: Record | None = None, traits: Traits | None = None
) -> dict[str, Any]:
    """Return the fitted attributes that are saved."""
    own = vars(model)
    if known is not None:
        names: tuple[str, ...] = known.fields
    elif traits is not None:
        names = (*SAVED, *traits.saved)
        names += ("instances_",) if "posterior_" in names else ()  # Ids of its rows.
    else:
        parameters = model.get_params(deep=False)
        names = tuple(name for name in own if name not in parameters)
    return {name: own[name] for name in dict.fromkeys(names) if name in own}


# -- reading --------------------------------------------------------------------------------------


class _Reader:
    """Make values from their descriptions."""

    def __init__(
        self,
        folder: Path,
        arrays: Mapping[str, Stored],
        find_class: ClassFinder,
        device: str,
        backbone: Any,
        description: Mapping[str, Any],
    ) -> None:
        self.folder, self.arrays, self.version = folder, arrays, description["manyhands"]
        self.find_class, self.device, self.backbone = find_class, device, backbone

    def model(self, description: Mapping[str, Any]) -> Any:
        """Make the model that ``model.json`` describes."""
        if "$pipeline" in description:
            return self.value({"$pipeline": description["$pipeline"]})
        return self._estimator(description["class"], description, description["fitted"])

    def value(self, node: Node) -> Any:
        """Invert `_Writer.node`."""
        if isinstance(node, list):
            return [self.value(part) for part in node]
        if not isinstance(node, dict):
            return node
        kind = next((key for key in node if key.startswith("$")), "")
        content: Any = node.get(kind)
        match kind:
            case "":
                return {key: self.value(part) for key, part in node.items()}
            case "$array":
                stored = self.arrays[content]
                if node.get("scalar"):
                    return stored.array.reshape(())[()]
                return stored.turned if node.get("order") == "F" else stored.array
            case "$number":
                dtype = np.dtype(node["type"])
                if dtype.kind not in NUMBERS or dtype.itemsize > WIDEST:  # Others: of any size.
                    raise ValueError(f"{node['type']!r} is not a type of number")
                return dtype.type(self.value(content))
            case "$values":
                values = self.value(content)
                return np.array(values, dtype=object) if node.get("mixed") else text_array(values)
            case "$tuple":
                return tuple(self.value(content))
            case "$pairs":
                return dict(self.value(content))
            case "$float":
                return float(content)
            case "$object":
                return self._estimator(content, node, node.get("fitted", {}))
            case "$record":
                return self._record(content, node)
            case "$pipeline":
                if not content:
                    raise ValueError("a pipeline has no steps")
                return Pipeline([(name, self.value(step)) for name, step in content])
            case _:
                raise ValueError(f"{kind} is not a kind of value")

    def _record(self, name: str, node: Mapping[str, Any]) -> Any:
        known = record_named(name)
        if known is None or known.is_estimator:
            raise self._unknown(name)
        if "content" in node:
            return known.make(self.value(node["content"]))
        return known.make(**{key: self.value(part) for key, part in node["fields"].items()})

    def _estimator(self, name: str, node: Mapping[str, Any], fitted: Mapping[str, Any]) -> Any:
        """Make an estimator: the one place where saved parameters become an instance."""
        cls = self._class(name)
        parameters = self._parameters(node["parameters"])
        unknown = sorted(parameters.keys() - flat_defaults(cls))
        if unknown:
            raise ModelFolderError(f"{name} has no parameter {unknown[0]!r}; save the model again")
        model = cls(**from_flat(cls, parameters))
        networks = {k: v for k, v in fitted.items() if isinstance(v, dict) and "$network" in v}
        plain = fitted.keys() - networks.keys()
        values = {key: self.value(part) for key, part in fitted.items() if key in plain}
        take_over(model, with_present_names(values))
        for key, part in networks.items():  # A network is built of what the others say.
            take_over(model, {key: self._network(model, part["$network"])})
        _check_instances(model)
        return model

    def _class(self, name: str) -> type[Any]:
        known = record_named(name)
        if known is not None and known.is_estimator:
            return known.kind
        try:
            found = self.find_class(name)
        except AnnotationError as error:
            raise self._unknown(name) from error
        if not isinstance(found, type) or not hasattr(found, "get_params"):
            raise self._unknown(name)  # What else is exported might do more than keep parameters.
        if found.__module__.startswith("manyhands.encoders.") and record_named(name) is None:
            raise ModelFolderError(
                f"the folder holds a {name}. manyhands never saves one, because reading it would "
                "load a model that the folder names; do not trust this folder"
            )
        return found

    def _parameters(self, nodes: Mapping[str, Any]) -> dict[str, Any]:
        parameters = {}
        for name, node in nodes.items():
            if name in OF_THIS_MACHINE and node is not None:
                raise ModelFolderError(
                    f"the folder sets {name}. manyhands never saves it, because a fit would write "
                    "to a place that the folder names; do not trust this folder"
                )
            if not (isinstance(node, dict) and "$own" in node):
                parameters[name] = self.value(node)
            elif name == "backbone":
                if self.backbone is None:
                    raise ModelFolderError(
                        f"the model's backbone is your own object ({node['$own']}); pass it: "
                        "load(folder, backbone=...)"
                    )
                parameters[name] = self.backbone
        return parameters

    def _network(self, model: BaseEstimator, prefix: str) -> Any:
        from manyhands.fitting.network import rebuilt  # It needs torch.

        state = {
            name.removeprefix(f"{prefix}."): stored
            for name, stored in self.arrays.items()
            if name.startswith(f"{prefix}.")
        }
        try:
            return rebuilt(model, state, self.device)
        except (RuntimeError, AnnotationError) as error:
            raise ModelFolderError(
                f"the weights in {str(self.folder)!r} do not fit the model described in "
                f"model.json ({error}); save the model again"
            ) from error
        except MemoryError as error:
            raise ModelFolderError(
                f"the memory does not hold the network of the model in {str(self.folder)!r} "
                f"({error}); load it on a machine with more memory, or end other programs first"
            ) from error

    def _unknown(self, name: object) -> ModelFolderError:
        return ModelFolderError(
            f"the folder holds a {name!r}, which this manyhands does not know; install the "
            f"version that wrote it ({self.version})"
        )


def _check_instances(model: BaseEstimator) -> None:
    """Raise an error unless there is one id of an instance per row of ``posterior_``."""
    ids, posterior = (vars(model).get(name) for name in ("instances_", "posterior_"))
    if ids is not None and posterior is not None and np.shape(ids) != posterior.shape[:1]:
        raise ModelFolderError(
            f"'instances' is not a list of {len(posterior)} ids, one per row of posterior_; save "
            "the model again"
        )


# -- kinds of folders, found without reading the model ---------------------------------------------


def holds_aggregator(folder: str | Path) -> bool:
    """Return whether a folder's model is an aggregator."""
    return _class_in(folder) in dir(inference)


def holds_means(folder: str | Path) -> bool:
    """Return whether a folder's model is a `RatingMean`."""
    return _class_in(folder) == "RatingMean"


def holds_ranking(folder: str | Path) -> bool:
    """Return whether a folder's model is a `BradleyTerry`."""
    return _class_in(folder) == "BradleyTerry"


def holds_label_sets(folder: str | Path) -> bool:
    """Return whether a folder's model is a classifier that was fitted to sets of labels."""
    try:
        found: Any = read_description(Path(folder))
    except ModelFolderError:
        return False
    try:
        found = found["$pipeline"][-1][1] if "$pipeline" in found else found
        return "estimators_" in found["fitted"] and "options_" in found["fitted"]
    except (LookupError, TypeError):  # A damaged one, which `read` refuses.
        return False


def _class_in(folder: str | Path) -> str | None:
    try:
        name = read_description(Path(folder)).get("class")
    except ModelFolderError:
        return None
    return name if isinstance(name, str) else None


def refuse_means(folder: str | Path, what: str) -> None:
    """Raise an error for a folder of means if labels must be classes.

    Raises
    ------
    AnnotationError
        If the folder holds a `RatingMean`.
    """
    if holds_means(folder):
        raise AnnotationError(
            f"{folder} holds means of ratings (RatingMean), and {what} needs labels that are "
            "classes. The means are in its labels.csv, and annotators.csv says how much too high "
            "or too low each annotator rates. If the ratings are a few grades, read them by "
            "scale='ordinal'"
        )
