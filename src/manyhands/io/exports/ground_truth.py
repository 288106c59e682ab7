"""SageMaker Ground Truth: worker responses, and the manifest, which is refused.

Structure: SageMaker's ``sms-data-output``.
"""

from __future__ import annotations

import json
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document, each
from manyhands.io.exports.records import Asked, Gathered, Malformed, listed, mapping, moment, number


def is_ground_truth(document: Document) -> bool:
    """Recognise Ground Truth: "answers" with "workerId", or "annotationsFromAllWorkers"."""
    answers = listed(document.first.get("answers"))
    if answers and isinstance(answers[0], dict) and "workerId" in answers[0]:
        return True
    return any(
        isinstance(value, dict) and "annotationsFromAllWorkers" in value
        for value in document.first.values()
    )


def is_manifest(document: Document) -> bool:
    """Recognise a manifest: JSON Lines with a key "...-metadata" that holds "job-name"."""
    return any(
        key.endswith("-metadata") and isinstance(value, dict) and "job-name" in value
        for key, value in document.first.items()
    )


def read_manifest(document: Document, into: Gathered, asked: Asked) -> None:
    """Refuse an output manifest, which holds merged labels only."""
    raise AnnotationError(
        f"{document.name} is an output manifest, which holds merged labels and does not name the "
        "workers; give the folder annotations/worker-response/iteration-1 of the same job"
    )


def read_ground_truth(document: Document, into: Gathered, asked: Asked) -> None:
    """Read workers' answers; without a source, the folder of the file is the task."""

    def read(record: dict[str, Any], at: str) -> None:
        if "answers" in record:
            task: Any = document.path.parent.name or document.stem
            for position, answer in enumerate(listed(record["answers"]), start=1):
                where = f"{at}, answer {position}"
                _read_worker(mapping(answer, "answer", where), task, where, into)
            return
        task = record.get("source-ref", record.get("source"))
        into.item(task, {"source": task}, document.name)
        for value in record.values():
            if isinstance(value, dict) and "annotationsFromAllWorkers" in value:
                for position, made in enumerate(listed(value["annotationsFromAllWorkers"]), 1):
                    where = f"{at}, answer {position}"
                    made = mapping(made, "answer", where)
                    content = mapping(made.get("annotationData"), "annotationData", where)
                    made = {
                        "workerId": made.get("workerId"),
                        "answerContent": content.get("content"),
                    }
                    _read_worker(made, task, where, into)

    each(document, read)


def _read_worker(answer: dict[str, Any], task: Any, at: str, into: Gathered) -> None:
    content = answer.get("answerContent")
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except ValueError:
            raise Malformed("the answer's content is not JSON", at) from None
    ended, seconds = moment(answer.get("submissionTime")), number(answer.get("timeSpentInSeconds"))
    for element, value in mapping(content, "answerContent", at).items():
        if isinstance(value, dict):
            labels = value.get("labels", value.get("label"))
            if labels is None:
                labels = [name for name, chosen in value.items() if chosen is True]
        else:
            labels = value
        into.answer(
            task,
            answer.get("workerId"),
            element,
            listed(labels),
            at,
            ended=ended,
            seconds=seconds,
            is_list=isinstance(labels, list),
        )


FORMAT = Format(
    "ground-truth",
    "SageMaker Ground Truth, worker responses",
    JSON,
    is_ground_truth,
    read_ground_truth,
)

MANIFEST_FORMAT = Format(
    "ground-truth-manifest",
    "SageMaker Ground Truth, output manifest",
    JSON,
    is_manifest,
    read_manifest,
)
