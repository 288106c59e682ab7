"""The export that the tutorials on texts begin with, made from the data set Sentiment."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from manyhands.datasets import load_sentiment

N = 600
"""Sentences of the export."""

data = load_sentiment()
table = data.annotations[:N]
expert = dict(enumerate(data.y_train[:N].tolist(), start=1))
"""The gold label of every sentence, by its task."""

_home = Path(os.environ["MANYHANDS_DATA"], "sentiment")
_sentences = (_home / "texts.txt").read_text(encoding="utf-8").split("\n")
with (_home / "labels.csv").open(encoding="utf-8") as _file:
    _part = [row["split"] for row in csv.DictReader(_file)]
own = [text for text, split in zip(_sentences, _part, strict=False) if split == "train"]
"""Sentences that people labelled."""
new = [text for text, split in zip(_sentences, _part, strict=False) if split == "test"]
"""Sentences to come."""


def write_export(name: str, table: Any) -> None:
    """Write annotations as Label Studio exports them."""
    tasks: list[dict[str, Any]] = [
        {"id": k + 1, "data": {"text": text}, "annotations": []} for k, text in enumerate(own)
    ]
    for i, r, label in zip(table.instance, table.annotator, table.label, strict=True):
        answer = {"type": "choices", "from_name": "sentiment"}
        answer["value"] = {"choices": [str(table.classes[label])]}  # type: ignore[assignment]
        who = {"email": f"person-{table.annotators[r]}@example.org"}
        tasks[i]["annotations"].append({"completed_by": who, "result": [answer]})
    Path(name).write_text(json.dumps(tasks[: table.n_instances]), encoding="utf-8")


def go_to_project() -> None:
    """Make an empty folder the present one, and write the files that a tutorial reads into it."""
    os.chdir(tempfile.mkdtemp())
    write_export("project-1.json", table)
    write_export("all.json", data.annotations)
    Path("new.txt").write_text("\n".join(new), encoding="utf-8")
