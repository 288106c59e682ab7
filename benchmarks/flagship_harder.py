"""Few labels, hundreds of classes and abstentions: sets of `flagship.py` and `stack_labels.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence import Data
from manyhands import AnnotationTable
from manyhands.datasets import make_crowd

MANY = {
    "100 classes, 2 annotations": (100, "uniform", 2.0),
    "100 classes, pairs mistaken": (100, "symmetric", 3.0),
    "200 classes": (200, "asymmetric", 3.0),
}
"""Simulated sets of many classes -> their number, noise, annotations per instance."""

UNSURE = ("one class makes unsure", "all classes make unsure")
"""Simulated sets with abstentions: half of the annotators of one class, or one in six of all."""

FEW_LABELS = (100, 200, 400, 800)
LABELLED = {"hotel": "Hotel", "music": "Music", "labelme": "LabelMe"}


def only_labelled(data: Any, n_labelled: int, seed: int) -> Any:
    """Some random instances alone; the others are gone."""
    rows = np.random.default_rng(seed).permutation(len(data.X_train))[:n_labelled]
    rows = np.sort(rows)
    return Data(data.X_train[rows], data.annotations[rows], X_test=data.X_test, y_test=data.y_test)


def make_harder(name: str, seed: int) -> Any:
    """Simulate one of `MANY` or `UNSURE`: Gaussian clusters, 30 annotators, the test part clean."""
    n_classes, noise, annotations = MANY.get(name, (4, "asymmetric", 3.0))
    per_class, dimension = (15, 20) if name in MANY else (200, 5)
    rng = np.random.default_rng([seed, n_classes])
    centres = rng.normal(size=(n_classes, dimension))

    def draw(size: int) -> tuple[Any, Any]:
        y = rng.permutation(np.repeat(np.arange(n_classes), size))
        return 0.6 * centres[y] + rng.normal(size=(len(y), dimension)), y

    X, y = draw(per_class)
    X_test, y_test = draw(5 if name in MANY else 250)
    table = make_crowd(
        y,
        noise=noise,
        noise_strength=(0.1, 0.6),
        annotations_per_instance=annotations,
        classes=range(n_classes),
        random_state=seed,
    )
    if name in UNSURE:
        chance = np.where(y == 0, 0.5, 0.0) if name == UNSURE[0] else np.full(len(y), 1 / 6)
        table = with_abstentions(table, chance, rng)
    return Data(X, table, y_train=y, X_test=X_test, y_test=y_test)


def with_abstentions(table: AnnotationTable, chance: Any, rng: Any) -> AnnotationTable:
    """Turn annotations of an instance into abstentions, each with the instance's chance."""
    frame = table.to_frame()
    unsure = rng.random(len(frame)) < chance[table.instance]
    frame.loc[unsure, "label"] = -1
    return AnnotationTable.from_frame(
        frame, classes=table.classes.tolist(), abstain=-1, tasks=table.instances.tolist()
    )
