"""Parts of the records that all writers make: the items' own data, and facts about a label."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.annotations import PASSES, AnnotationTable
from manyhands.io.consensus_labels import Consensus
from manyhands.io.consensus_sets import SetConsensus
from manyhands.io.exports.records import CONTENT, Export, Origin

Record = dict[str, Any]


class ItemFields:
    """The items' own data, under the names that the tool uses."""

    def __init__(self, export: Export | None, to: str) -> None:
        self.export = export
        self.native = export is not None and export.format.startswith(to)
        self.origin = Origin() if export is None else export.origin
        self.question = "label" if export is None else export.question
        columns = () if export is None else export.items.columns
        self.shown = next((name for name in columns if name.lower() in CONTENT), "text")
        ids = [] if export is None else export.items.ids.tolist()
        self._rows = {str(task): row for row, task in enumerate(ids)}

    def of(self, task: Any) -> Record:
        """Return the fields of one item that are not empty."""
        row = self._rows.get(str(task))
        if row is None or self.export is None:
            return {}
        columns = self.export.items.columns
        return {name: values[row] for name, values in columns.items() if values[row] is not None}

    def fields(self, task: Any) -> Record:
        """Return the fields of one item, and its id, unless the tool knows the item already."""
        return self.of(task) if self.native else {"task": task} | self.of(task)

    def part(self, task: Any, prefix: str) -> Record:
        """Return the fields of one item whose name has a prefix in the tool, without the prefix."""
        if self.export is None:
            return {}
        sources = self.export.items.sources
        return {
            sources.get(name, name).removeprefix(prefix): value
            for name, value in self.of(task).items()
            if sources.get(name, name).startswith(prefix)
        }

    def labels(self, label: Any) -> list[str]:
        """Return the labels that a class stands for: one, or several if it is a set."""
        return label if isinstance(label, list) else self.origin.sets.get(str(label), [str(label)])

    def columns(self, tasks: list[Any], taken: Any) -> dict[str, list[Any]]:
        """Return columns of single values, under names that are not taken."""
        if self.export is None:
            return {}
        rows = [self._rows.get(str(task)) for task in tasks]
        found = {}
        for name, values in self.export.items.columns.items():
            shown = f"item.{name}" if name in taken else name
            found[shown] = [None if row is None else as_scalar(values[row]) for row in rows]
        return found


def as_scalar(value: Any) -> Any:
    """Write lists and objects as JSON; leave other values as they are."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def facts(found: Consensus | SetConsensus, i: int) -> Record:
    """Return what the tools can show beside a label."""
    agreement = float(found.agreement[i])
    return {
        "agreement": None if np.isnan(agreement) else round(agreement, 4),
        "n_annotations": int(found.n_annotations[i]),
        "action": str(found.actions[i]),
    }


def score_of(found: Consensus | SetConsensus, i: int) -> Record:
    """Return the probability of an instance's label as ``score``; an empty dict if unknown.

    For a set, it is the probability of the least sure option.
    """
    told = float(np.min(found.probability[i]))
    return {} if np.isnan(told) else {"score": round(told, 6)}


@dataclass(frozen=True)
class Given:
    """One annotation or pass; ``label`` is None in a pass."""

    task: Any
    worker: Any
    label: Any
    passed: str | None
    seconds: float | None = None
    ended: float | None = None


def by_task(
    table: AnnotationTable, export: Export | None, values: list[Any] | None = None
) -> list[list[Given]]:
    """Group annotations and passes by instance; ``values`` are the labels of the classes."""
    found: list[list[Given]] = [[] for _ in range(table.n_instances)]
    tasks, workers = table.instances.tolist(), table.annotators.tolist()
    classes = table.classes.tolist() if values is None else values
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
