"""Few labels, hundreds of classes and abstentions, for `flagship.py`: the sets and their tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from pages import table_lines

from evidence import Data
from manyhands import AnnotationTable
from manyhands.datasets import make_crowd

Found = list[dict[str, Any]]

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


def of(found: Found, name: str, method: str, change: str = "") -> Found:
    """Records of a method on a set."""
    wanted = (name, method, change)
    return [each for each in found if (each["set"], each["method"], each["change"]) == wanted]


def mean(records: Found) -> float:
    """Mean accuracy; NaN without records."""
    return float(np.mean([each["accuracy"] for each in records])) if records else float("nan")


def shown(records: Found) -> str:
    """Mean ± sd of the accuracy in percent."""
    values = [100 * each["accuracy"] for each in records]
    if not values:
        return "–"
    return (
        f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
        if values[1:]
        else f"{values[0]:.1f}"
    )


def few_labels_part(found: Found, methods: tuple[str, ...]) -> list[str]:
    """Accuracy with few instances."""
    rows = [
        [f"{title}, {n}", *(shown(of(found, name, method, f"{n} labelled")) for method in methods)]
        for name, title in LABELLED.items()
        for n in FEW_LABELS
        if of(found, name, methods[0], f"{n} labelled")
    ]
    return table_lines(["instances", *methods], rows) if rows else []


def many_classes_part(
    found: Found, methods: tuple[str, ...], aggregators: tuple[str, ...]
) -> list[str]:
    """Accuracy of inferred labels and of predictions with many classes."""
    rows = [
        [
            name,
            *(shown(of(found, f"posterior of {name}", method)) for method in aggregators),
            *(shown(of(found, name, method)) for method in methods),
        ]
        for name in MANY
        if of(found, name, methods[0])
    ]
    worse = [
        name
        for name in MANY
        if mean(of(found, f"posterior of {name}", aggregators[-1]))
        < max(mean(of(found, f"posterior of {name}", each)) for each in aggregators[:-1])
    ]
    heading = [*(f"labels, {each}" for each in aggregators), *(f"test, {each}" for each in methods)]
    if not rows:
        return []
    words = (
        f"Its labels are behind those of annotations alone on: {'; '.join(worse)}. Where features "
        "tell little of so many classes, infer labels with `DawidSkene`."
        if worse
        else "Its labels are nowhere behind those of annotations alone."
    )
    return [*table_lines(["", *heading], rows), words, ""]


def abstentions_part(found: Found, methods: tuple[str, ...]) -> list[str]:
    """Accuracy of inferred labels with and without the evidence of abstentions."""
    rows = [
        [name, *(shown(of(found, f"posterior of {name}", method)) for method in methods)]
        for name in UNSURE
        if of(found, f"posterior of {name}", methods[0])
    ]
    return table_lines(["labels", *methods], rows) if rows else []
