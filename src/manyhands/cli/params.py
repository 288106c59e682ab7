"""Values of arguments: paths, class names, and ``--set name=value``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
import yaml

from manyhands.exceptions import AnnotationError
from manyhands.registry import all_classifiers, all_wrappers, find

TABLES = (".csv", ".tsv", ".xlsx", ".parquet", ".pq", ".gz")
"""How names of tables end."""


class Duplicates(StrEnum):
    """What to do with repeated (task, worker) pairs; auto: last in exports, error in tables."""

    auto = "auto"
    error = "error"
    last = "last"
    keep = "keep"


class Multilabel(StrEnum):
    """What to do with answers of several labels; see `manyhands.io.read_annotations`."""

    error = "error"
    split_ = "split"
    join_ = "join"
    none = "none"


class Rule(StrEnum):
    """How labels are decided from probabilities; see `manyhands.decide`."""

    argmax = "argmax"
    balanced = "balanced"


class Tool(StrEnum):
    """Formats that labels and annotations are written in; see `manyhands.io.write_labels`."""

    table = "table"
    label_studio = "label-studio"
    prodigy = "prodigy"
    argilla = "argilla"
    doccano = "doccano"
    datasets = "datasets"


class Scale(StrEnum):
    """Scale of the classes; see `manyhands.agreement.summary`."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"


class Source(StrEnum):
    """What is named after its annotator; see ``annotator_from`` of `read_export`."""

    file = "file"
    folder = "folder"
    sheet = "sheet"


def some_path(text: str | Path) -> Path:
    """Read a path; refuse the empty text of an unset shell variable, which would mean '.'.

    A default value is already a path.
    """
    if not str(text).strip():
        raise typer.BadParameter("the path is empty (a shell variable without a value?)")
    return Path(text)


def refuse_overwriting(outputs: Iterable[Path | None], inputs: Iterable[Path | None]) -> None:
    """Refuse to overwrite files that the command reads.

    Raises
    ------
    AnnotationError
        If one of the outputs is one of the inputs.
    """
    read = [path for path in inputs if path is not None and path.exists()]
    for out in outputs:
        for path in read:
            if out is not None and out.exists() and out.samefile(path):
                raise AnnotationError(
                    f"--out would write over {str(path)!r}, which this command reads; choose "
                    "another --out"
                )


def read_classes(given: str | Path | None) -> list[str] | None:
    """Read class names in code order: the lines of a file, or a list with commas.

    Blank lines at the end of a file are ignored. A file of that name is preferred to a list.

    Raises
    ------
    AnnotationError
        If the file cannot be read as text, is empty, has a gap, or a name twice.
    """
    if given is None:
        return None
    path = Path(given)
    if "," in str(given) and not path.exists():
        names = [name.strip() for name in str(given).split(",")]
        _check_names(names, f"--classes {str(given)!r}", "name")
        return names
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise AnnotationError(
            f"--classes {str(path)!r} cannot be read ({reason}); give a text file with one class "
            "name per line, or the names with commas between them"
        ) from error
    # splitlines() would also split at rarer characters, which a name may contain.
    names = [line.strip() for line in text.rstrip().split("\n")]
    if names == [""]:
        raise AnnotationError(
            f"--classes {str(path)!r} names no class; write one class name per line, in code order"
        )
    _check_names(names, f"--classes {str(path)!r}", "line")
    return names


def _check_names(names: list[str], argument: str, place: str) -> None:
    """Refuse gaps and repetitions among names of classes."""
    for number, name in enumerate(names, start=1):
        if not name:
            raise AnnotationError(
                f"{argument}: {place} {number} is blank; {place} k names class k-1, so remove it "
                "or name the class"
            )
        if name in names[: number - 1]:
            raise AnnotationError(
                f"{argument}: {place} {number} names {name!r} again; name every class once"
            )


def read_mapping_option(path: Path | None) -> dict[str, str] | None:
    """Read what labels mean from a table with the columns from and to.

    Raises
    ------
    AnnotationError
        If a column is missing, a cell is empty, or a spelling has two meanings.
    """
    from manyhands.io.label_values import read_mapping

    if path is None:
        return None
    try:
        return read_mapping(path)
    except AnnotationError as error:
        raise AnnotationError(f"--map {error}") from error


def parse_settings(
    settings: Sequence[str],
    target: type,
    *,
    reserved: Mapping[str, str] | None = None,
    protocol: str = "default",
) -> dict[str, Any]:
    """Read ``name=value`` pairs; ``backbone.hidden=[64]`` sets an entry of a dict parameter.

    A parameter that is an object of this library is set by name, and its own parameters in the same
    way: ``estimator=conal``, ``estimator.lr=1e-4``.

    Parameters
    ----------
    settings : sequence of str
    target : type
        Class whose parameters are set.
    reserved : dict of str to str, optional
        Parameters that cannot be set in this way, and what to do instead.
    protocol : str
        Protocol for training a classifier that is a parameter, unless the settings say otherwise;
        see `with_protocol`.

    Raises
    ------
    AnnotationError
        If a pair is malformed or ``target`` has no such parameter.
    """
    parameters: dict[str, Any] = {}
    part_settings: dict[str, list[str]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, _, entry = name.strip().partition(".")
        if not equals or not name:
            raise AnnotationError(
                f"--set {setting!r} is not of the form name=value, such as --set random_state=1"
            )
        if name in (reserved or {}):
            raise AnnotationError(f"--set {setting!r}: {(reserved or {})[name]}")
        _require_parameter(setting, name, target)
        if entry and entry != "name" and name in _EXAMPLES:
            part_settings.setdefault(name, []).append(f"{entry}={text}")
            continue
        value, before = read_value(setting, text), parameters.get(name)
        if entry:
            before = {"name": before} if isinstance(before, str) else before or {}
            value = {**before, entry: value}
        elif isinstance(before, dict) and isinstance(value, str):
            value = {**before, "name": value}
        parameters[name] = value
    for several, one in _LISTS.items():
        if isinstance(parameters.get(several), str | list):
            specs = parameters[several]
            parameters[several] = [
                _make_part(one, spec, [], reserved, protocol)
                for spec in ([specs] if isinstance(specs, str) else specs)
            ]
    for part in _EXAMPLES.keys() & {*parameters, *part_settings}:
        own = part_settings.get(part, [])
        parameters[part] = _make_part(part, parameters.get(part), own, reserved, protocol)
    return parameters


def merge_settings(own: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a user's values into earlier ones, entry by entry for a network.

    ``backbone.hidden=[64]`` changes the earlier network. If the user names another network, or
    gives one as a whole, it replaces the earlier one.
    """
    merged = dict(own)
    for name, value in own.items():
        given = before.get(name)
        if isinstance(value, dict) and isinstance(given, dict):
            same = value.get("name", given.get("name")) == given.get("name")
            merged[name] = {**given, **value} if same else value
    return merged


def read_value(setting: str, text: str) -> Any:
    """Read a YAML value; unlike in YAML 1.1, 1e-3 is a number."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise AnnotationError(
            f"--set {setting!r}: the value {text!r} is not YAML ({problem}); write 25, 1e-3, "
            "true, text or [256,128], and quote it for the shell"
        ) from error
    if value == "None":  # Python's spelling; "none" is a name in some parameters.
        return None
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _require_parameter(setting: str, name: str, target: type) -> None:
    accepted = [known for known in inspect.signature(target).parameters if known != "self"]
    if name not in accepted:
        close = get_close_matches(name, accepted, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        if "estimator" in accepted:
            hint = f" (of the classifier inside: estimator.{name})" if not close else hint
        known = ", ".join(accepted) or "none"
        raise AnnotationError(
            f"--set {setting!r}: {target.__name__} has no parameter {name!r}{hint}; it has {known}"
        )


def _make_part(
    part: str,
    spec: Any,
    settings: Sequence[str],
    reserved: Mapping[str, str] | None,
    protocol: str,
) -> Any:
    """Make an object from its name (or a dict of its name and parameters) and its settings."""
    from manyhands.fitting import with_protocol

    if not isinstance(spec, str | dict) and not settings:
        return spec
    parameters = dict(spec) if isinstance(spec, dict) else {"name": spec}
    name = parameters.pop("name", None) or _DEFAULTS.get(part)
    if not isinstance(name, str):
        raise AnnotationError(
            f"--set {part}.<parameter>=... needs the method too, such as --set "
            f"{part}={_EXAMPLES[part]}"
        )
    try:
        kind = find(name, *_KINDS[part], argument=part)
    except AnnotationError as error:
        raise AnnotationError(f"--set {part}={name}: {error}") from error
    for parameter in parameters:
        _require_parameter(f"{part}.{parameter}", parameter, kind)
    parameters |= parse_settings(settings, kind, reserved=reserved)
    if kind not in {cls for _, cls in [*all_classifiers(), *all_wrappers()]}:
        return kind(**parameters)
    made = with_protocol(kind(), protocol)
    return made.set_params(**merge_settings(parameters, made.get_params(deep=False)))


_KINDS = {
    "aggregator": ("aggregator",),
    "annotator": ("completer", "classifier", "wrapper"),
    "estimator": ("classifier", "wrapper"),
    "pretrainer": ("classifier", "wrapper"),
    "sampler": ("sampler",),
    "selector": ("selector",),
}
"""Parameters that are objects, and the kinds of the registry that fit them."""
_EXAMPLES = {
    "aggregator": "dawid-skene",
    "annotator": "graph-completer",
    "estimator": "crowd-layer",
    "pretrainer": "crowd-layer",
    "sampler": "crowd-smote",
    "selector": "confidence",
}
"""An example of each, for error messages."""
_LISTS = {"estimators": "estimator"}
"""Parameters that are lists of such objects: ``estimators=[crowd-layer, conal]``."""
_DEFAULTS = {"estimator": "crowd-layer", "sampler": "crowd-smote"}


READING = (
    "anonymise",
    "annotator_from",
    "drop_rejected",
    "fields",
    "items",
    "label_config",
    "predictions_as_annotators",
)
"""Names that --read takes; see `manyhands.io.read_export`."""

SWITCHES = ("anonymise", "drop_rejected", "predictions_as_annotators")
"""Those of `READING` that are on or off."""

ON_OFF = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def reading_options(settings: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE; fields are separated by commas.

    Raises
    ------
    AnnotationError
        If a name is unknown or given twice, there is no value, or that of a switch is unknown.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in READING or not value:
            raise AnnotationError(
                f"--read {setting!r}: write NAME=VALUE; names are {', '.join(READING)}"
            )
        if name in found:
            raise AnnotationError(f"--read {name} is given twice; give it once")
        if name in SWITCHES and value.lower() not in ON_OFF:
            raise AnnotationError(f"--read {setting!r}: {name} is one of {', '.join(ON_OFF)}")
        if name in SWITCHES:
            found[name] = ON_OFF[value.lower()]
        else:
            found[name] = value.split(",") if name == "fields" else value
    return found


NO_GROUPS = "none"
"""What --groups says where nobody shares mistakes."""


def read_groups_option(text: str | None) -> str | dict[Any, Any] | None:
    """Read --groups: a column, a table of annotators and their families, or families by name.

    Families are named as ``llm=gpt-4o,claude;people=anna,ben``; "none" says that there are none.

    Returns
    -------
    str, dict {annotator: family}, or None
        As ``group`` of `manyhands.io.read_annotations`.

    Raises
    ------
    AnnotationError
        If a table has other columns, or names an annotator twice.
    """
    if text is not None and "=" in text and not os.path.isfile(text):
        return _named_groups(text)
    if text is None or (text != NO_GROUPS and not Path(text).is_file()):
        if text is not None and Path(text).suffix.lower() in TABLES:
            raise AnnotationError(
                f"--groups {text}: there is no such file; give a table with the columns "
                "'annotator' and 'group', the name of a column of the annotations, or none"
            )
        return text
    if text == NO_GROUPS:
        return {}
    from manyhands.io.frames import read_frame

    frame = read_frame(Path(text))
    who = next((name for name in frame.columns if name.lower() in ("annotator", "worker")), None)
    family = next((name for name in frame.columns if name.lower() in ("group", "family")), None)
    if who is None or family is None:
        raise AnnotationError(
            f"--groups {text}: a table of families has the columns 'annotator' and 'group', and "
            f"this one has {', '.join(map(repr, frame.columns))}"
        )
    names = frame[who].to_list()
    twice = [name for name in names if names.count(name) > 1] if len({*names}) < len(names) else []
    if twice:
        raise AnnotationError(f"--groups {text}: {twice[0]!r} occurs twice; name everybody once")
    return dict(zip(names, frame[family].to_list(), strict=True))


def _named_groups(text: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for part in text.split(";"):
        family, _, members = part.partition("=")
        names = [name.strip() for name in members.split(",")]
        if not family.strip() or not all(names):
            raise AnnotationError(
                f"--groups {text}: {part!r} names no family and its annotators; write them as "
                "--groups llm=gpt-4o,claude"
            )
        for name in names:
            if name in found:
                raise AnnotationError(f"--groups {text}: {name!r} occurs twice; name it once")
            found[name] = family.strip()
    return found
