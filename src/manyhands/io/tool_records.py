"""Records of labelling tools: their tasks with labels, or with everybody's annotations.

Structures: Label Studio's pre-annotations (labelstud.io/guide/predictions); Prodigy's choice
interface (prodi.gy/docs/api-interfaces); argilla 2 ``Record.from_dict`` (Apache-2.0); doccano
``data_import`` (MIT), which keeps what is neither text nor label as metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from manyhands.annotations import PASSES, AnnotationTable
from manyhands.io.consensus_labels import Consensus
from manyhands.io.exports.layouts import SHOWN
from manyhands.io.exports.records import Export, Origin

Record = dict[str, Any]

# -- the items' own data --------------------------------------------------------------------------


class ItemFields:
    """The items' own data, as the tool that is written names them."""

    def __init__(self, export: Export | None, to: str) -> None:
        self.export = export
        self.native = export is not None and export.format.startswith(to)
        self.origin = Origin() if export is None else export.origin
        self.question = "label" if export is None else export.question
        columns = () if export is None else export.items.columns
        self.shown = next((name for name in columns if name.lower() in SHOWN), "text")
        ids = [] if export is None else export.items.ids.tolist()
        self._rows = {str(task): row for row, task in enumerate(ids)}

    def of(self, task: Any) -> Record:
        """Fields of one item that are not empty."""
        row = self._rows.get(str(task))
        if row is None or self.export is None:
            return {}
        columns = self.export.items.columns
        return {name: values[row] for name, values in columns.items() if values[row] is not None}

    def fields(self, task: Any) -> Record:
        """Fields of one item, and its id, unless the tool knows the item already."""
        return self.of(task) if self.native else {"task": task} | self.of(task)

    def part(self, task: Any, prefix: str) -> Record:
        """Fields of one item whose name in the tool's file has a prefix, without it."""
        if self.export is None:
            return {}
        sources = self.export.items.sources
        return {
            sources.get(name, name).removeprefix(prefix): value
            for name, value in self.of(task).items()
            if sources.get(name, name).startswith(prefix)
        }

    def labels(self, label: Any) -> list[str]:
        """Labels that a class stands for: one, unless sets of labels are classes."""
        return self.origin.sets.get(str(label), [str(label)])

    def columns(self, tasks: list[Any], taken: Any) -> dict[str, list[Any]]:
        """Columns of scalars, under names that are not taken."""
        if self.export is None:
            return {}
        rows = [self._rows.get(str(task)) for task in tasks]
        found = {}
        for name, values in self.export.items.columns.items():
            shown = f"item.{name}" if name in taken else name
            found[shown] = [None if row is None else _scalar(values[row]) for row in rows]
        return found


def _scalar(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


# -- labels ---------------------------------------------------------------------------------------


def _about(found: Consensus, i: int) -> Record:
    """What the tools can show beside a label."""
    agreement = float(found.agreement[i])
    return {
        "agreement": None if np.isnan(agreement) else round(agreement, 4),
        "n_annotations": int(found.n_annotations[i]),
        "action": str(found.actions[i]),
    }


def _score(found: Consensus, i: int) -> float:
    return round(float(found.probability[i]), 6)


def label_studio_prediction(found: Consensus, i: int, items: ItemFields, method: str) -> Record:
    """Make a task with a prediction, or with none where the label was left open."""
    task, label = found.tasks[i].item(), found.labels[i]
    made = []
    if label is not None:
        result = [_label_studio_result(label, items)]
        made = [{"model_version": method, "score": _score(found, i), "result": result}]
    return {"id": task, "data": items.fields(task), "meta": _about(found, i), "predictions": made}


def _label_studio_result(label: Any, items: ItemFields) -> Record:
    """An entry of "result": the answer to the question, of the type that the question has."""
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


def prodigy_task(found: Consensus, i: int, items: ItemFields, method: str) -> Record:
    """Make a task in which the label is chosen already."""
    task, label = found.tasks[i].item(), found.labels[i]
    record = _prodigy_item(task, items, found.classes)
    record["meta"] |= {"score": _score(found, i), "by": method} | _about(found, i)
    if _is_yes_or_no(items):
        return record if label is None else record | {"answer": "accept" if label else "reject"}
    return record if label is None else record | {"accept": items.labels(label)}


def _is_yes_or_no(items: ItemFields) -> bool:
    """Whether the question of a Prodigy export is whether one label applies."""
    return items.native and items.question not in ("choice", "cats")


def _prodigy_item(task: Any, items: ItemFields, classes: Any) -> Record:
    """A task of the choice interface; its hash is the id, or is made of it."""
    data = items.of(task)
    about = data.get("meta")
    about = dict(about) if isinstance(about, dict) else {}
    record: Record = dict(data) or {"text": str(task)}
    if not items.native:
        about["task"] = task
    if _is_yes_or_no(items):
        record["label"] = items.question
    else:
        names = dict.fromkeys(part for name in classes.tolist() for part in items.labels(name))
        record["options"] = [{"id": name, "text": name} for name in names]
    return record | {"_input_hash": _hash(task), "_view_id": "choice", "meta": about}


def _hash(task: Any) -> int:
    """A number is its own hash; others have 52 bits, which a browser keeps exactly."""
    if isinstance(task, int):
        return task
    digest = hashlib.blake2b(str(task).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 12


def argilla_suggestion(found: Consensus, i: int, items: ItemFields, method: str) -> Record:
    """Make a record with a suggestion, or with none where the label was left open."""
    task, label = found.tasks[i].item(), found.labels[i]
    record = _argilla_record(task, items)
    record["metadata"] |= {k: v for k, v in _about(found, i).items() if v is not None}
    if label is not None:
        value = _argilla_value(label, items)
        made = {"value": value, "score": _score(found, i), "agent": method}
        record["suggestions"][items.question] = made
    return record


def _argilla_value(label: Any, items: ItemFields) -> Any:
    return items.labels(label) if items.origin.joined else label


def _argilla_record(task: Any, items: ItemFields) -> Record:
    if items.native:
        fields, kept = items.part(task, "fields."), items.part(task, "metadata.")
        # The flattened form does not tell fields from metadata.
        fields = fields or {name: v for name, v in items.of(task).items() if isinstance(v, str)}
    else:
        fields, kept = {k: str(_scalar(v)) for k, v in items.fields(task).items()}, {}
    return {
        "id": str(task),
        "fields": fields,
        "metadata": kept,
        "suggestions": {},
        "responses": {},
        "vectors": {},
        "_server_id": None,
    }


def doccano_example(found: Consensus, i: int, items: ItemFields, method: str) -> Record:
    """Make an example with its label, or with none where the label was left open."""
    task, label = found.tasks[i].item(), found.labels[i]
    data = items.of(task)
    record = {
        "text": str(data.pop(items.shown, task)),
        "label": [] if label is None else items.labels(label),
        "task": task,
        "score": _score(found, i),
        "by": method,
    } | _about(found, i)
    return record | {f"item.{k}" if k in record else k: value for k, value in data.items()}


# -- annotations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """One annotation or pass; ``label`` is None in a pass."""

    task: Any
    worker: Any
    label: Any
    passed: str | None
    seconds: float | None = None
    ended: float | None = None


def by_task(table: AnnotationTable, export: Export | None) -> list[list[Given]]:
    """Annotations and passes of every instance."""
    found: list[list[Given]] = [[] for _ in range(table.n_instances)]
    tasks, workers = table.instances.tolist(), table.annotators.tolist()
    classes = table.classes.tolist()
    timed = export is not None and len(export.seconds) == table.n_annotations
    spent = export.seconds.tolist() if export is not None and timed else []
    ended = export.ended.tolist() if export is not None and timed else []
    rows = zip(table.instance.tolist(), table.annotator.tolist(), table.label.tolist(), strict=True)
    for k, (i, r, c) in enumerate(rows):
        times = (_time(spent[k]), _time(ended[k])) if timed else (None, None)
        found[i].append(Given(tasks[i], workers[r], classes[c], None, *times))
    for i, r, kind in [] if table.passes is None else table.passes.tolist():
        found[i].append(Given(tasks[i], workers[r], None, PASSES[kind]))
    return found


def _time(value: float) -> float | None:
    return None if np.isnan(value) else value


def label_studio_tasks(
    table: AnnotationTable, given: list[list[Given]], items: ItemFields
) -> Iterator[Record]:
    """Make tasks with annotations; passes are cancelled annotations."""
    for task, made in zip(table.instances.tolist(), given, strict=True):
        annotations = [
            {
                "completed_by": {"email": a.worker} if "@" in str(a.worker) else a.worker,
                "result": [] if a.passed else [_label_studio_result(a.label, items)],
                "was_cancelled": a.passed is not None,
                # Label Studio takes an imported annotation for ground truth unless told otherwise.
                "ground_truth": False,
                "lead_time": a.seconds,
            }
            for a in made
        ]
        yield {"id": task, "data": items.fields(task), "annotations": annotations}


def prodigy_annotations(
    table: AnnotationTable, given: list[list[Given]], items: ItemFields
) -> Iterator[Record]:
    """Make one record per annotation: "reject" abstains, and "ignore" skips."""
    answers = {None: "accept", "abstain": "reject", "skip": "ignore"}
    for made in given:
        for a in made:
            record = _prodigy_item(a.task, items, table.classes)
            record |= {"_annotator_id": str(a.worker), "_session_id": str(a.worker)}
            if a.ended is not None:
                record["_timestamp"] = int(a.ended)
            if not _is_yes_or_no(items):
                chosen = [] if a.passed else items.labels(a.label)
                yield record | {"accept": chosen, "answer": answers[a.passed]}
            elif a.passed:
                yield record | {"answer": "ignore"}
            else:
                yield record | {"answer": "accept" if a.label else "reject"}


def argilla_responses(
    table: AnnotationTable, given: list[list[Given]], items: ItemFields
) -> Iterator[Record]:
    """Make records with everybody's responses; passes are discarded ones."""
    for task, made in zip(table.instances.tolist(), given, strict=True):
        record = _argilla_record(task, items)
        record["responses"][items.question] = [
            {
                "value": None if a.passed else _argilla_value(a.label, items),
                "user_id": str(a.worker),
                "status": "discarded" if a.passed else "submitted",
            }
            for a in made
        ]
        yield record


LABELS: Final = {
    "label-studio": label_studio_prediction,
    "prodigy": prodigy_task,
    "argilla": argilla_suggestion,
    "doccano": doccano_example,
}
"""Functions that make the record of one instance with its label."""

ANNOTATIONS: Final = {
    "label-studio": label_studio_tasks,
    "prodigy": prodigy_annotations,
    "argilla": argilla_responses,
}
"""Functions that make the records of all annotations."""
