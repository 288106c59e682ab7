"""Real tables with known labels, by name."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from evidence.scores import codes_of
from manyhands import AnnotationTable, datasets
from manyhands.datasets.base import data_home
from manyhands.io import read_annotations, read_gold

LOADERS = {
    "labelme": datasets.load_labelme,
    "music": datasets.load_music,
    "sentiment": datasets.load_sentiment,
    "product": datasets.load_product,
}
TABLES = (*datasets.AGGREGATION_SETS, *LOADERS)
"""The 21 tables that most benchmarks of truth inference read."""

LAST = ", last annotation of a pair"
"""After the name of a table, of which repeated annotations of a pair are left out."""

ORDINAL = ("polit6", "polit6e", "metlit5")
"""Grades, with the classes taken as unordered."""


class Task(NamedTuple):
    """A table, the instances with gold labels, and these labels."""

    table: AnnotationTable
    known: np.ndarray
    gold: np.ndarray

    @property
    def y(self) -> np.ndarray:
        """Codes of the classes of all instances, -1 where unknown."""
        codes = np.full(self.table.n_instances, -1)
        codes[self.known] = codes_of(self.gold, self.table.classes)
        return codes


class Labelled(NamedTuple):
    """A table, and the true class codes of its instances, -1 where unknown."""

    name: str
    table: AnnotationTable
    gold: np.ndarray

    @property
    def judged(self) -> np.ndarray:
        """Annotated instances whose class is known."""
        return np.flatnonzero((self.gold >= 0) & (self.table.annotations_per_instance() > 0))

    def values(self, codes: np.ndarray) -> np.ndarray:
        """Class values of codes, None for -1."""
        return np.array([*self.table.classes.tolist(), None], dtype=object)[codes]


def load(name: str) -> Task:
    """Load one of `TABLES`, or a folder of the data home with its annotations and labels."""
    source = name.removesuffix(LAST)
    if source in datasets.AGGREGATION_SETS:
        data = datasets.load_aggregation(source, duplicates="keep" if source == name else "last")
        known = np.flatnonzero(data.y_train >= 0)
        return Task(data.annotations, known, data.y_train[known])
    if name in LOADERS:
        data = LOADERS[name]()
        return Task(data.annotations, np.arange(len(data.y_train)), data.y_train)
    folder = data_home() / name.split(",")[0]
    table = read_annotations(folder / "annotations.csv", duplicates="keep")
    if "3 an image" in name:
        table = some_of(table, 3)
    gold = read_gold(folder / "labels.csv")
    at = {instance: row for row, instance in enumerate(table.instances.tolist())}
    pairs = zip(gold.tasks, gold.labels, strict=True)
    rows, labels = zip(*((at[t], y) for t, y in pairs if t in at and y is not None), strict=True)
    return Task(table, np.array(rows), np.array(labels))


def some_of(table: AnnotationTable, n: int) -> AnnotationTable:
    """Keep ``n`` random annotations of every instance (seed 0)."""
    return first_of_each(table, np.random.default_rng(0).permutation(table.n_annotations), n)


def first_of_each(table: AnnotationTable, order: np.ndarray, n: Any) -> AnnotationTable:
    """Keep the first annotations of every instance, in an order of all annotations.

    ``n`` is their number, or one for each instance.
    """
    order = order[np.argsort(table.instance[order], kind="stable")]
    instance = table.instance[order]
    rank = np.arange(len(order)) - np.searchsorted(instance, instance)
    return table.take(np.sort(order[rank < np.broadcast_to(n, table.n_instances)[instance]]))


@cache
def real(name: str) -> Labelled:
    """Load a table with the codes of its gold labels."""
    if name == "sentiment 600":
        whole = real("sentiment")
        rows = np.sort(np.random.default_rng(0).choice(len(whole.gold), 600, replace=False))
        return Labelled(name, whole.table[rows], whole.gold[rows])
    if name == "judgebench":
        data = datasets.load_judgebench()
        return Labelled(name, data.annotations, codes_of(data.y_train, data.annotations.classes))
    if name in ORDINAL:
        folder = data_home() / "ordinal" / name
        table = read_annotations(folder / "annotations.csv.gz", duplicates="last")
        gold = pd.read_csv(folder / "labels.csv").set_index("task").label
        return Labelled(name, table, codes_of(gold.reindex(table.instances), table.classes))
    task = load(name)
    return Labelled(name, task.table, task.y)
