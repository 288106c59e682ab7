"""Label Studio: JSON, JSON-MIN, CSV and TSV, the labelling configuration, and its predictions.

The structures are those of label-studio 1.23 and of ``convert_to_json_min`` in label-studio-sdk
(HumanSignal, Apache-2.0), and of pre-annotations (labelstud.io/guide/predictions). Exports before
1.0 hold "completions" instead of "annotations".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.contract import JSON, TABLE, Answers, Format, Inferred, Signature, Writer
from manyhands.io.exports.parsing import Document, parse_xml
from manyhands.io.exports.records import (
    SKIP,
    Asked,
    Gathered,
    Gold,
    Malformed,
    listed,
    mapping,
    members,
    moment,
    number,
    plain,
    varying_columns,
)
from manyhands.io.exports.written import Given, ItemFields, Record, facts, score_of
from manyhands.io.files import PathLike

_MINIMAL = frozenset(
    {
        "id",
        "annotator",
        "annotation_id",
        "created_at",
        "updated_at",
        "lead_time",
        "agreement",
    }
)


def is_full(document: Document) -> bool:
    """Recognise Label Studio's JSON: "annotations" or "completions" that hold "result"."""
    for _, task in document.records[:100]:
        if not isinstance(task, dict):
            continue
        for made in listed(_annotations(task)):
            return isinstance(made, dict) and "result" in made
    tasks = [task for _, task in document.records[:100]]
    return bool(tasks) and all(
        isinstance(t, dict) and "data" in t and ("annotations" in t or "completions" in t)
        for t in tasks
    )


def read_full(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the JSON export; `document` holds one record per task."""
    for at, task in document.records:
        try:
            _read_task(mapping(task, "task", at), at, document, into, asked)
        except Malformed as error:
            document.broken.append((error.at, error.reason))


def _read_task(
    task: dict[str, Any], at: str, document: Document, into: Gathered, asked: Asked
) -> None:
    data = mapping(task.get("data"), "data", at)
    if "id" not in task:
        raise Malformed("the task has no 'id'", at)
    into.item(task["id"], {f"data.{name}": value for name, value in data.items()}, document.name)
    made = members(_annotations(task), "annotations", at)
    for position, annotation in enumerate(made, start=1):
        where = f"{at} (task {task['id']}), annotation {position}"
        try:
            _read_annotation(task["id"], mapping(annotation, "annotation", where), where, into)
        except Malformed as error:
            document.broken.append((error.at, error.reason))
    if not made:
        into.lose("the task has no annotations", f"{at} (task {task['id']})")
    if asked.predictions_as_annotators:
        _read_predictions(task, at, into)
    elif listed(task.get("predictions")):
        into.note(
            "left out the predictions of models; predictions_as_annotators=True reads them as "
            "annotations"
        )


def _annotations(task: dict[str, Any]) -> Any:
    return task.get("annotations", task.get("completions"))


def _read_annotation(task: Any, made: dict[str, Any], at: str, into: Gathered) -> None:
    worker = made.get("completed_by", made.get("created_username"))
    if isinstance(worker, dict):
        worker = worker.get("email") or worker.get("id")
    more: dict[str, Any] = {
        "ended": moment(made.get("updated_at") or made.get("created_at")),
        "seconds": number(made.get("lead_time")),
        "rejected": any(
            isinstance(review, dict) and review.get("accepted") is False
            for review in listed(made.get("reviews"))
        ),
    }
    if made.get("was_cancelled"):
        into.answer(task, worker, None, (), at, passed=SKIP, **more)
        return
    found = dict(_answers(made.get("result"), at))
    if not found:
        into.answer(task, worker, None, (), at)
    for entry in listed(made.get("result")):
        control = {name: str(entry[name]) for name in ("type", "to_name") if name in entry}
        into.controls.setdefault(str(entry.get("from_name")), control)
    for question, labels in found.items():
        into.answer(task, worker, question, labels, at, is_list=True, **more)
        if made.get("ground_truth"):
            into.gold.append(Gold(task, question, tuple(map(plain, labels)), at))


def _read_predictions(task: dict[str, Any], at: str, into: Gathered) -> None:
    for position, made in enumerate(listed(task.get("predictions")), start=1):
        where = f"{at} (task {task['id']}), prediction {position}"
        if not isinstance(made, dict):
            into.lose("the export holds only the number of the prediction", where)
            continue
        worker = f"model:{made.get('model_version') or 'unknown'}"
        for question, labels in _answers(made.get("result"), where):
            into.answer(
                task["id"], worker, question, labels, where, is_predicted=True, is_list=True
            )


def _answers(result: Any, at: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the answers to questions about the whole task, leaving marked regions out."""
    for entry in members(result, "result", at):
        if not isinstance(entry, dict):
            raise Malformed("an entry of 'result' is not an object", at)
        kind, value = entry.get("type"), mapping(entry.get("value"), "value", at)
        question = str(entry.get("from_name"))
        if {"start", "end"} <= value.keys() or {"x", "y"} <= value.keys():
            continue  # A choice for a region, not for the task.
        if kind in ("choices", "labels") and kind in value:
            yield question, list(listed(value[str(kind)]))
        elif kind == "taxonomy":
            paths = listed(value.get("taxonomy"))
            yield question, [" / ".join(map(str, listed(path))) for path in paths]
        elif kind in ("rating", "number"):
            yield question, [value.get(str(kind))]
        elif kind == "pairwise":
            yield question, [value.get("selected")]


def read_minimal(document: Document, into: Gathered, asked: Asked) -> None:
    """Read JSON-MIN, and CSV or TSV: one record per annotation, with the task repeated.

    The names of columns do not show which hold answers, so answers are the columns that differ
    between annotations of one task. Skipped annotations are not exported.
    """
    rows = list(document.dicts() if document.kind == "table" else _objects(document))
    into.note("skipped annotations are not in this format; the JSON export holds them")
    names = list(dict.fromkeys(name for _, row in rows for name in row if name not in _MINIMAL))
    questions = _question_columns(rows, names, asked)
    into.candidates = names
    for at, row in rows:
        data = {f"data.{n}": row[n] for n in names if n in row and n not in questions}
        into.item(row.get("id"), data, document.name)
        worker = row.get("annotator")
        for question in questions:
            labels = _choices(row.get(question))
            into.answer(
                row.get("id"),
                worker.get("email", worker.get("id")) if isinstance(worker, dict) else worker,
                question,
                labels,
                at,
                is_list=isinstance(labels, list),
                ended=moment(row.get("updated_at") or row.get("created_at")),
                seconds=number(row.get("lead_time")),
            )


def _objects(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    for at, row in document.records:
        if isinstance(row, dict):
            yield at, row
        else:
            document.broken.append((at, "it is no object"))


def _question_columns(
    rows: list[tuple[str, dict[str, Any]]], names: list[str], asked: Asked
) -> list[str]:
    if asked.question is not None:
        return [asked.question] if asked.question in names else []
    return varying_columns([(str(row.get("id")), row) for _, row in rows], names)


def _choices(value: Any) -> Sequence[Any]:
    """Read a cell: text (a tuple of one), or (as an object or its JSON) a list of choices."""
    if isinstance(value, str) and value.startswith(('{"choices"', "[")):
        try:
            value = json.loads(value)
        except ValueError:
            return (value,)
    if isinstance(value, dict) and "choices" in value:
        value = value["choices"]
    return listed(value)


def read_config(path: PathLike) -> dict[str, list[str]]:
    """Read the classes of every question from a labelling configuration (XML).

    Raises
    ------
    AnnotationError
        If the file is not such XML, declares entities, or names no choices.
    """
    text = Path(path).read_text(encoding="utf-8-sig")
    root = parse_xml(text, f"{path} (a labelling configuration)")
    found = {
        str(tag.get("name")): [
            str(choice.get("alias") or choice.get("value")) for choice in tag.iter("Choice")
        ]
        for tag in root.iter("Choices")
    }
    if not any(found.values()):
        raise AnnotationError(f"{path} has no <Choices> with a <Choice>; leave label_config out")
    return found


def label_studio_prediction(found: Inferred, i: int, items: ItemFields, method: str) -> Record:
    """Make a task with a prediction, or without one if the label was left open."""
    task, label = found.tasks[i].item(), found.labels[i]
    made = []
    if label is not None:
        result = [_label_studio_result(label, items)]
        made = [{"model_version": method, **score_of(found, i), "result": result}]
    return {"id": task, "data": items.fields(task), "meta": facts(found, i), "predictions": made}


def label_studio_tasks(
    table: Answers, given: list[list[Given]], items: ItemFields
) -> Iterator[Record]:
    """Make tasks with annotations; passes become cancelled annotations."""
    for task, made in zip(table.instances.tolist(), given, strict=True):
        annotations = [
            {
                "completed_by": {"email": a.worker} if "@" in str(a.worker) else a.worker,
                "result": [] if a.passed else [_label_studio_result(a.label, items)],
                "was_cancelled": a.passed is not None,
                # By default, Label Studio takes an imported annotation for ground truth.
                "ground_truth": False,
                "lead_time": a.seconds,
            }
            for a in made
        ]
        yield {"id": task, "data": items.fields(task), "annotations": annotations}


def label_studio_assignment(
    task: Any, annotator: Any, expected_gain: float | None, items: ItemFields
) -> Record:
    """Make a task that names the annotator to ask, and the expected gain in right labels.

    The annotator is None if any new annotator may answer.
    """
    assignees = [] if annotator is None else [annotator]
    meta = {"assignees": assignees, "expected_gain": expected_gain}
    return {"id": task, "data": items.fields(task), "meta": meta}


def _label_studio_result(label: Any, items: ItemFields) -> Record:
    """Return an entry of "result": the answer in the form that its question needs."""
    kind = items.origin.control.get("type", "choices")
    values: dict[str, Any] = {
        "taxonomy": {"taxonomy": [part.split(" / ") for part in items.labels(label)]},
        "rating": {"rating": label},
        "number": {"number": label},
        "pairwise": {"selected": label},
    }
    return {
        "from_name": items.question,
        "to_name": items.origin.control.get("to_name", items.shown),
        "type": kind,
        "value": values.get(kind, {kind: items.labels(label)}),
    }


FORMAT = Format("label-studio", "Label Studio, JSON", JSON, is_full, read_full)

MINIMAL_FORMAT = Format(
    "label-studio-min",
    "Label Studio, JSON-MIN",
    JSON,
    Signature(has=("annotation_id", "annotator")),
    read_minimal,
)

TABLE_FORMAT = Format(
    "label-studio-csv",
    "Label Studio, CSV or TSV",
    TABLE,
    Signature(has=("annotation_id", "annotator", "id")),
    read_minimal,
)

WRITER = Writer(
    "label-studio",
    "Label Studio",
    ".json",
    label_studio_prediction,
    label_studio_tasks,
    assigned=label_studio_assignment,
    passes=("skip",),
)
