"""Translation of folders in the first layout, which differed between families, to today's.

Each function translates a description of version 1, and the names of its arrays, to what
`manyhands.fitting.saving` reads. No model is made here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as from_bytes

from manyhands.exceptions import ModelFolderError
from manyhands.fitting.folders import check_unaltered, read_description
from manyhands.typing import AnyArray

Arrays = dict[str, AnyArray]
Read = Callable[[Path, Mapping[str, Any]], Arrays]
Node = dict[str, Any]


def upgraded(
    folder: Path, description: Mapping[str, Any], read_arrays: Read
) -> tuple[Node, Arrays]:
    """Translate a folder of version 1.

    Parameters
    ----------
    folder : Path
    description : mapping
        Its ``model.json``.
    read_arrays : callable
        Reads the file of arrays of a folder.

    Returns
    -------
    description, arrays
        Description and arrays in the layout of version 2.

    Raises
    ------
    ModelFolderError
        If a part is missing or altered.
    KeyError, TypeError, ValueError
        If the description is damaged.
    """
    if "members" in description:
        return _of_members(folder, description, read_arrays)
    arrays = read_arrays(folder, description)
    if "aggregator" in description:
        return {**_aggregator(description), "class": description["aggregator"]}, arrays
    if "plain" in description:
        return _stack(description, arrays)
    if "encoder" in description:
        return _encoder(description["encoder"], arrays, ""), arrays
    return _network(description, arrays)


# -- classifiers with members, each of which had a folder -----------------------------------------


def _of_members(
    folder: Path, description: Mapping[str, Any], read_arrays: Read
) -> tuple[Node, Arrays]:
    check_unaltered(dict(description), folder)
    place = folder / Path(description["weights"]).name
    nodes, arrays = [], Arrays()
    for number, digest in enumerate(description["members"]):
        path = place / str(number)
        written = path / "model.json"
        if not written.is_file() or hashlib.sha256(written.read_bytes()).hexdigest() != digest:
            raise ModelFolderError(
                f"{str(path)!r} is missing or altered; save the whole model again"
            )
        own, its_arrays = upgraded(path, read_description(path), read_arrays)
        prefix = f"{number}."
        arrays |= {prefix + name: array for name, array in its_arrays.items()}
        nodes.append(_moved(own, prefix))
    if description["class"] == "Pipeline":
        names = [each["class"].lower() for each in nodes]
        steps = [[name, _nested(each)] for name, each in zip(names, nodes, strict=True)]
        return {"class": "Pipeline", "$pipeline": steps}, arrays
    first = nodes[0]["fitted"]
    shared = ("classes_", "annotators_", "n_annotators_", "n_annotations_", "n_features_in_")
    known = {name: first[name] for name in (*shared, "feature_names_in_") if name in first}
    unfitted = [{k: v for k, v in _nested(each).items() if k != "fitted"} for each in nodes]
    return {
        "class": description["class"],
        "parameters": {"estimators": unfitted},
        "fitted": {**known, "estimators_": [_nested(each) for each in nodes], **_history([])},
    }, arrays


def _nested(node: Node) -> Node:
    """Return a model as a part of another."""
    own = {key: part for key, part in node.items() if key not in ("class", "$pipeline")}
    if "$pipeline" in node:
        return {"$pipeline": node["$pipeline"]}
    return {"$object": node["class"], **own}


def _moved(node: Any, prefix: str) -> Any:
    """Return the same description, of arrays whose names have a prefix."""
    if isinstance(node, list):
        return [_moved(part, prefix) for part in node]
    if not isinstance(node, dict):
        return node
    return {
        key: prefix + part if key in ("$array", "$network") else _moved(part, prefix)
        for key, part in node.items()
    }


# -- networks -------------------------------------------------------------------------------------


def _network(description: Mapping[str, Any], arrays: Arrays) -> tuple[Node, Arrays]:
    renamed = {
        f"module_.{name.removeprefix('module.')}"
        if name.startswith("module.")
        else name.removeprefix("fitted."): array
        for name, array in arrays.items()
    }
    of_weights = [name for name in renamed if name.startswith("module_.")]
    found: Node = {
        name: {"$array": name, **({"scalar": True} if not renamed[name].ndim else {})}
        for name in renamed.keys() - set(of_weights)
    }
    parameters = _network_parameters(description["parameters"], renamed)
    fields = description.get("input_fields")
    shape: Node = {"$tuple": list(description["input_shape"])}
    if fields is not None:
        shape = {"$record": "PackedShape", "content": fields}
    found |= _vocabularies(description, renamed) | {"input_shape_": shape}
    found |= _history(description["history"])
    for name in ("n_epochs", "n_annotations", "init_scale", "best_epoch"):
        if description.get(name) is not None:
            found[f"{name}_"] = description[name]
    if "posterior_" in found:
        found["instances_"] = _instances(description, renamed)
    found["module_"] = {"$network": "module_"}
    return {"class": description["class"], "parameters": parameters, "fitted": found}, renamed


def _network_parameters(given: Mapping[str, Any], arrays: Arrays) -> Node:
    parameters: Node = {}
    for name, value in given.items():
        if isinstance(value, dict) and "__array__" in value:
            # Only a digest was saved, unless the network has a buffer of the same name.
            if f"module_.{name}" in arrays:
                parameters[name] = {"$array": f"module_.{name}"}
        elif isinstance(value, dict) and "__object__" in value:
            parameters[name] = {"$own": value["__object__"]}
        else:
            parameters[name] = _plain(value)
    return parameters


def _plain(value: Any) -> Any:
    """Translate plain values, and our estimators among them."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "__estimator__" in value:
        parameters = {
            name: _plain(part)
            for name, part in value["parameters"].items()
            if not (isinstance(part, dict) and ("__object__" in part or "__array__" in part))
            and name not in ("callbacks", "checkpoint")
            and not (name == "validation" and isinstance(part, list))
        }
        return {"$object": value["__estimator__"], "parameters": parameters}
    if "__pairs__" in value:
        return {"$pairs": [[_plain(part) for part in pair] for pair in value["__pairs__"]]}
    return {key: _plain(part) for key, part in value.items()}


def _vocabularies(description: Mapping[str, Any], arrays: Arrays) -> Node:
    found: Node = {}
    for name in ("classes", "annotators"):
        values = np.asarray(description[name])
        if values.ndim != 1:
            raise ValueError(f"{name!r} is not a list of ids")
        found[f"{name}_"] = _array(f"{name}_", values, arrays)
    found["n_annotators_"] = len(description["annotators"])
    if description["n_features_in"] is not None:
        found["n_features_in_"] = description["n_features_in"]
    if description["feature_names_in"] is not None:
        found["feature_names_in_"] = {"$values": description["feature_names_in"], "mixed": True}
    return found


def _array(name: str, values: AnyArray, arrays: Arrays) -> Node:
    """Describe an array, and keep it if it holds numbers."""
    if values.dtype.kind in "biuf":
        arrays[name] = values
        return {"$array": name}
    return {"$values": values.tolist(), **({"mixed": True} if values.dtype.kind == "O" else {})}


def _instances(description: Mapping[str, Any], arrays: Arrays) -> Node:
    """Return the ids of the rows of ``posterior_``; the earliest folders have none."""
    ids, n = description.get("instances"), len(arrays["posterior_"])
    plain = isinstance(ids, list) and not any(isinstance(each, list | dict) for each in ids)
    if ids is not None and not (plain and len(ids) == n):
        raise ModelFolderError(
            f"'instances' is not a list of {n} ids, one per row of posterior_; save the model again"
        )
    return _array("instances_", np.arange(n) if ids is None else np.array(ids), arrays)


def _history(rows: Any) -> Node:
    return {"history_": {"$record": "Rows", "content": _plain(list(rows))}}


# -- aggregators ----------------------------------------------------------------------------------


def _aggregator(description: Mapping[str, Any]) -> Node:
    return {
        part: {key: _value(value) for key, value in description[part].items()}
        for part in ("parameters", "fitted")
    }


def _value(described: Mapping[str, Any]) -> Any:
    """Translate a value of an aggregator."""
    if "aggregator" in described:
        return {"$object": described["aggregator"], **_aggregator(described)}
    if "record" in described:
        fields = {key: _value(part) for key, part in described["fields"].items()}
        return {"$record": described["record"], "fields": fields}
    if "array" in described:
        scalar = {"scalar": True} if described["scalar"] else {}
        return {"$array": described["array"], **scalar}
    if "values" in described:
        mixed = {"mixed": True} if described["mixed"] else {}
        return {"$values": described["values"], **mixed}
    if "list" in described:
        return [_value(part) for part in described["list"]]
    if "dict" in described:
        return {"$pairs": [[_value(part) for part in pair] for pair in described["dict"]]}
    return {"$float": described["float"]} if "float" in described else described["value"]


# -- stacks, and what they consist of -------------------------------------------------------------


def _stack(description: Mapping[str, Any], arrays: Arrays) -> tuple[Node, Arrays]:
    found = {name: _kept(value, arrays) for name, value in description["fitted"].items()}
    found |= {name: _plain(value) for name, value in description["plain"].items()}
    renamed = dict(arrays)
    renamed["posterior_"] = arrays[description["fitted"]["posterior_"]["array"]]
    found |= _vocabularies(description, renamed) | _history(description["history"])
    found["input_shape_"] = {"$tuple": list(description["input_shape"])}
    found["instances_"] = _instances(description, renamed)
    found["encoder_"] = _encoders(description["encoder"], renamed)
    # Folders of before 2026-11-28 lack the exponent, which was 1, and the mean prediction.
    found.setdefault("prediction_prior_", found["class_prior_"])
    members = [
        {
            "$record": "Member",
            "fields": {
                "name": part["name"],
                "estimator": None,
                "view": _part(part["view"], renamed),
            },
        }
        for part in description["parts"]
    ]
    rounds = [
        [
            {
                "$record": "TemperedMember",
                "fields": {
                    "predictor": _part(part["predictor"], renamed),
                    "temperature": part["temperature"],
                    "weight": part["weight"],
                },
            }
            for part in parts
        ]
        for parts in description["rounds"]
    ]
    fields = {
        "members": members,
        "rounds": rounds,
        "seen": _array("stack_.seen", np.array(description["seen"], dtype=np.int64), renamed),
        "n_classes": len(description["classes"]),
        "exponent": found.get("prediction_exponent_", 1.0),
    }
    found["stack_"] = {"$record": "FittedStack", "fields": fields}
    parameters = {name: _plain(value) for name, value in description["parameters"].items()}
    given = description.get("given_members", "auto")
    if not isinstance(given, str):
        given = [{"$tuple": _given_member(entry, renamed)} for entry in given]
    parameters["members"] = given
    return {"class": description["class"], "parameters": parameters, "fitted": found}, renamed


def _kept(described: Mapping[str, Any], arrays: Arrays) -> Any:
    """Translate a value of a stack's part."""
    if "array" not in described:
        return _plain(described["value"])
    if not arrays[described["array"]].ndim:
        return {"$array": described["array"], "scalar": True}
    turned = {"order": "F"} if described["order"] == "F" else {}
    return {"$array": described["array"], **turned}


def _part(description: Any, arrays: Arrays) -> Any:
    """Translate a view or a predictor."""
    if description is None:
        return None
    kind = description["class"]
    if kind == "Pipeline":
        steps = [_part(step, arrays) for step in description["steps"]]
        return {"$pipeline": [[f"step{i}", step] for i, step in enumerate(steps)]}
    if kind == "AverageOfFolds":
        models = [_part(model, arrays) for model in description["models"]]
        return {"$record": "AverageOfFolds", "fields": {"models": models}}
    if kind == "SoftNetwork":
        return _soft_network(description, arrays)
    return {
        "$object": kind,
        **{
            part: {name: _kept(value, arrays) for name, value in description[part].items()}
            for part in ("parameters", "fitted")
        },
    }


def _soft_network(description: Mapping[str, Any], arrays: Arrays) -> Node:
    """Translate a member's network, whose file of weights was an array."""
    name = description["weights"]["array"]
    own, weights = _network(description["network"], from_bytes(arrays[name].tobytes()))
    prefix = f"{name}."
    arrays |= {prefix + key: array for key, array in weights.items()}
    ridge, view = (_part(description[part], arrays) for part in ("ridge", "view"))
    found = {"network_": _nested(_moved(own, prefix))}
    return {
        "$object": "SoftNetwork",
        "parameters": {"backbone": _plain(description["backbone"]), "ridge": ridge is not None},
        "fitted": found if ridge is None else {**found, "view_": view, "ridge_": ridge},
    }


def _given_member(entry: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    if "unsaved" in entry:
        unsaved = {"$object": "Unsaved", "parameters": {"kind": entry["unsaved"]}}
        return [entry["name"], unsaved]
    estimator, view = (_unfitted(entry[part], arrays) for part in ("estimator", "view"))
    return [entry["name"], estimator, *([] if view is None else [view])]


def _unfitted(description: Any, arrays: Arrays) -> Any:
    """Translate an estimator or a view of the parameter ``members``."""
    if description is None:
        return None
    if "backbone" in description:
        return _plain(description["backbone"])
    if "steps" in description:
        steps = [[name, _unfitted(step, arrays)] for name, step in description["steps"]]
        return {"$pipeline": steps}
    parameters = {name: _kept(value, arrays) for name, value in description["parameters"].items()}
    return {"$object": description["class"], "parameters": parameters}


def _encoders(description: Any, arrays: Arrays) -> Any:
    """Translate the encoder of a stack: none, one, or one for each column of a frame."""
    if description is None:
        return None
    if isinstance(description, dict):
        return _nested(_encoder(description, arrays, "encoder_"))
    columns = []
    for place, column in enumerate(description):
        own = {name: value for name, value in column.items() if name != "kind"}
        if column["kind"] == "Encoded":
            own["encoder"] = _nested(_encoder(own["encoder"], arrays, f"encoder_.{place}"))
        columns.append({"$record": column["kind"], "fields": own})
    return {"$record": "FrameEncoder", "fields": {"columns": columns}}


def _encoder(description: Mapping[str, Any], arrays: Arrays, path: str) -> Node:
    """Translate an encoder of texts or of images."""
    found: Node = {}
    parameters = description["parameters"]
    kept = {
        name: arrays[value if isinstance(value, str) else value["array"]]
        for name, value in description["arrays"].items()
    }
    if description["class"] == "TextEncoder":
        found = _text_encoder(kept, parameters)
    else:
        *size, channels, n_features = kept.pop("shape").tolist()
        found["size_"] = {"$tuple": size}
        found |= {"channels_": channels, "n_features_out_": n_features}
        found["scale_"] = float(kept.pop("scale")[0])
    for name, array in kept.items():
        own = name if name.endswith("_") else f"{name}_"
        arrays[f"{path}.{own}"] = array
        found[own] = {"$array": f"{path}.{own}"}
    return {"class": description["class"], "parameters": parameters, "fitted": found}


def _text_encoder(kept: Arrays, parameters: Mapping[str, Any]) -> Node:
    if parameters["kind"] == "hashing":
        return {"n_features_out_": 2 * (parameters["n_features"] // 2)}
    terms = {
        f"{part}_terms_": json.loads(kept.pop(f"{part}_terms").tobytes().decode())
        for part in ("word", "character")
    }
    for name, words in terms.items():
        if len(words) != len(kept[name.replace("terms_", "idf")]):
            raise ValueError(f"the number of weights differs from that of the {len(words)} terms")
    return {**terms, "n_features_out_": sum(map(len, terms.values()))}
