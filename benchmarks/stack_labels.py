"""Labels of `CrowdStackingClassifier` beside `DawidSkene`, which sees no features.

A cell is a set, possibly with fewer instances or annotations, and a draw. It holds the accuracy,
log loss and calibration of the training instances' labels from both methods, and the figures of
the test part. Gold labels measure, and choose nothing here; the study behind the read-out chose it
with looks at the gold labels of these sets, though, which makes the figures somewhat too good.

``CODE=before`` runs the cells with whatever version of the library is on the path, and files them
under that name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bars import Row, dots
from benchmarks.flagship_harder import UNSURE, make_harder
from benchmarks.real_tables import first_of_each
from evidence import Data, load_data
from evidence.data import make_iced_synthetic
from evidence.scores import codes_of, scores
from evidence.study import Study
from evidence.tables import Record, crossed, groups, listing, mean
from evidence.tables import table as table_lines
from manyhands import CrowdStackingClassifier, DawidSkene
from manyhands.exceptions import AnnotationError, DivergenceError
from manyhands.registry import all_classifiers

BEFORE, TODAY = "before", "today"
CODE = os.environ.get("CODE", TODAY)
"""Name of the version of the library in the records."""

SECOND = 0.1
"""Share of the instances that get a second annotation, where the others have one."""


class Case(NamedTuple):
    """A set, and how much of it is kept.

    Attributes
    ----------
    n : int or None
        Random instances that are kept.
    most : int or None
        Random annotations of an instance that are kept.
    draws : int
    seconds : float
        Share of the instances that keep one annotation more.
    """

    name: str
    load: str
    n: int | None = None
    most: int | None = None
    draws: int = 1
    seconds: float = 0.0


SEVERAL = (
    Case("CIFAR-10N, 400 instances, 3 annotations each", "cifar10n", 400, None, 5),
    Case("CIFAR-10N, 1,000, 3 each", "cifar10n", 1000, None, 2),
    Case("CIFAR-10N, 2,000, 3 each", "cifar10n", 2000),
    Case("CIFAR-10N, 10,000, 3 each", "cifar10n"),
    Case("CIFAR-10N, 400, 2 each", "cifar10n", 400, 2),
    Case("CIFAR-10N, 1,000, 2 each", "cifar10n", 1000, 2),
    Case("CIFAR-10N, 2,000, 2 each", "cifar10n", 2000, 2),
    Case("CIFAR-10H, 1,000, 2 each", "cifar10h", 1000, 2),
    Case("CIFAR-10H, 1,000, 3 each", "cifar10h", 1000, 3),
    Case("CIFAR-10H, 400, 3 each", "cifar10h", 400, 3, 2),
    Case("LabelMe", "labelme"),
    Case("LabelMe, a third", "labelme", 333, None, 2),
    Case("Music", "music"),
    Case("Music, a third", "music", 233, None, 2),
    Case("Sentiment", "sentiment"),
    Case("Sentiment, 1,000, 3 each", "sentiment", 1000, 3),
    Case("Product", "product"),
    Case("Reports", "reports"),
    Case("Reports, 3 each", "reports", None, 3),
    Case("Reports, 2 each", "reports", None, 2),
    Case("Colposcopy", "colposcopy"),
    Case("Colposcopy, 3 each", "colposcopy", None, 3),
    Case("Hotel", "hotel"),
    Case("GSAD-Syn", "gsad-Syn"),
    Case("200 classes, simulated", "200 classes"),
    Case("one class makes unsure, simulated", UNSURE[0]),
    Case("all classes make unsure, simulated", UNSURE[1]),
)
ONE = tuple(
    Case(f"{name}, 1 each{', a second on 10 %' if second else ''}", load, n, 1, 1, second)
    for name, load, n in (
        ("CIFAR-10N, 400", "cifar10n", 400),
        ("CIFAR-10N, 1,000", "cifar10n", 1000),
        ("CIFAR-10H, 1,000", "cifar10h", 1000),
        ("LabelMe", "labelme", None),
        ("Music", "music", None),
        ("Sentiment, 1,000", "sentiment", 1000),
        ("Product", "product", None),
        ("Reports", "reports", None),
    )
    for second in (0.0, SECOND)
)

EVERY = (
    Case("CIFAR-10N, 500, 3 each", "cifar10n", 500, 3),
    Case("LabelMe, 600", "labelme", 600),
    Case("Music, 500", "music", 500),
    Case("Sentiment, 600, 3 each", "sentiment", 600, 3),
    Case("Product, 600", "product", 600),
)
"""Small sets to which every classifier with ``labels_`` is fitted with its defaults."""


def inferring() -> dict[str, Any]:
    """Classifiers that infer labels of their training instances, by name."""
    found = {name: cls for name, cls in all_classifiers() if hasattr(cls, "labels_")}
    return {name: cls for name, cls in found.items() if name != "CrowdStackingClassifier"} | {
        "CrowdStackingClassifier": found["CrowdStackingClassifier"]
    }


@cache
def loaded(name: str) -> Any:
    """Load a set, or simulate it."""
    if name in (*UNSURE, "200 classes"):
        return make_harder(name, 1)
    if name == "gsad-Syn":
        return make_iced_synthetic("gsad", random_state=2)
    return load_data({"name": name})


def drawn(case: Case, draw: int) -> Any:
    """Draw the instances and the annotations of a case."""
    data, rng = loaded(case.load), np.random.default_rng([draw, case.n or 0])
    if case.n is not None:
        rows = np.sort(rng.permutation(len(data.y_train))[: case.n])
        part = data.X_train[rows], data.annotations[rows]
        y = np.asarray(data.y_train)[rows]
        data = Data(*part, y_train=y, X_test=data.X_test, y_test=data.y_test)
    if case.most is None:
        return data
    table = data.annotations
    most = case.most + (rng.random(table.n_instances) < case.seconds)
    order = np.argsort(rng.random(table.n_annotations), kind="stable")
    return replace(data, annotations=first_of_each(table, order, most))


# -- a cell ---------------------------------------------------------------------------------------


def with_gold(case: Case, draw: int) -> tuple[Any, Any, Any]:
    """Draw a case; the codes of its classes, and the annotated instances whose class is known."""
    data = drawn(case, draw)
    gold = codes_of(data.y_train, data.annotations.classes)
    annotated = data.annotations.annotations_per_instance() > 0
    return data, gold, np.flatnonzero((gold >= 0) & annotated)


def measure_both(case: Case, draw: int) -> Record:
    """Fit both methods, and compare their labels."""
    data, gold, rows = with_gold(case, draw)
    table = data.annotations
    began = process_time()
    stack = CrowdStackingClassifier(random_state=draw).fit(data.X_train, table)
    seconds = process_time() - began
    ds = DawidSkene().fit(table)
    right = {}
    record: Record = {"n": len(rows)}
    for name, posterior in (("stack", stack.posterior_), ("ds", ds.posterior_)):
        right[name] = posterior[rows].argmax(axis=1) == gold[rows]
        found = scores(posterior[rows], gold[rows])
        record |= {f"{name}_{key}": value for key, value in found.items()}
    apart = right["stack"].astype(float) - right["ds"]
    record["apart_se"] = float(apart.std(ddof=1) / np.sqrt(len(rows)))
    record["doubts"] = sorted(stack.doubts_)
    record["parity"] = stack.relative_informedness_
    record["seconds"] = seconds
    if data.X_test is not None:
        test = codes_of(data.y_test, table.classes)
        found = scores(stack.predict_proba(data.X_test)[test >= 0], test[test >= 0])
        record |= {f"test_{key}": found[key] for key in ("accuracy", "log_loss", "ece")}
    return record


def measure_labels(case: Case, name: str) -> Record:
    """Fit a classifier, and compare its labels with those of `DawidSkene`; failures are kept."""
    data, gold, rows = with_gold(case, 0)
    table = data.annotations
    record: Record = {"n": len(rows)}
    began = process_time()
    try:
        model = inferring()[name](random_state=0).fit(data.X_train, table)
    except (AnnotationError, DivergenceError) as error:
        return record | {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    record["seconds"] = process_time() - began
    ds = DawidSkene().fit(table)
    y = table.classes[gold[rows]]
    right = {"own": np.asarray(model.labels_)[rows] == y, "ds": ds.labels_[rows] == y}
    apart = right["own"].astype(float) - right["ds"]
    record |= {f"{which}_accuracy": float(each.mean()) for which, each in right.items()}
    return record | {"apart_se": float(apart.std(ddof=1) / np.sqrt(len(rows)))}


def cells() -> Iterator[Record]:
    """All cells of a version of the code, and of every classifier today."""
    for case in (*SEVERAL, *ONE):
        yield from ({"case": case.name, "draw": draw, "code": CODE} for draw in range(case.draws))
    for case in EVERY if CODE == TODAY else ():
        yield from ({"case": case.name, "draw": 0, "code": name} for name in inferring())


def measure(case: str, draw: int, code: str) -> Record:
    """Measure both methods, or the labels of one classifier."""
    own = {each.name: each for each in ((*SEVERAL, *ONE) if code == CODE else EVERY)}[case]
    return measure_both(own, draw) if code == CODE else measure_labels(own, code)


# -- the page -------------------------------------------------------------------------------------


def of_case(records: list[Record], case: Case, code: str) -> list[Record]:
    """Records of a case."""
    return [r for r in records if (r["case"], r["code"]) == (case.name, code)]


def table(records: list[Record], cases: tuple[Case, ...]) -> list[str]:
    """Return a row per case: before, Dawid-Skene, today."""
    before, now = ({c: of_case(records, c, code) for c in cases} for code in (BEFORE, TODAY))

    def apart(case: Case) -> str:
        gap = mean(now[case], "stack_accuracy") - mean(now[case], "ds_accuracy")
        error = np.sqrt(np.mean([r["apart_se"] ** 2 for r in now[case]]) / len(now[case]))
        return f"{100 * gap:+.1f} ± {100 * error:.1f}"

    def too_sure(case: Case) -> str:
        gap = mean(now[case], "stack_claimed") - mean(now[case], "stack_accuracy")
        return f"{100 * gap:+.1f}"

    return listing([case for case in cases if now[case]], {
        "": lambda c: c.name + (f" ({c.draws} draws)" if c.draws > 1 else ""),
        "before": lambda c: shown(before[c], "stack"),
        "DawidSkene": lambda c: shown(now[c], "ds"),
        "stack": lambda c: shown(now[c], "stack"),
        "stack − DawidSkene": apart,
        "claimed − true": too_sure,
    })  # fmt: skip


def shown(records: list[Record], name: str) -> str:
    """Accuracy in percent, and log loss."""
    if not records:
        return "–"
    accuracy, loss = (mean(records, f"{name}_{key}") for key in ("accuracy", "log_loss"))
    return f"{100 * accuracy:.1f} / {loss:.2f}"


def summary(records: list[Record], cases: tuple[Case, ...]) -> list[str]:
    """Return means over the cells, before and today."""
    names = {case.name for case in cases}
    found = groups((r for r in records if r["case"] in names), "code")

    def lead(own: list[Record]) -> np.ndarray:
        return np.array([r["stack_accuracy"] - r["ds_accuracy"] for r in own])

    def z(own: list[Record]) -> np.ndarray:
        return lead(own) / np.maximum([r["apart_se"] for r in own], 1e-9)

    def both(own: list[Record], key: str, form: str, scale: float = 1) -> str:
        stack, ds = (f"{scale * mean(own, f'{name}_{key}'):{form}}" for name in ("stack", "ds"))
        return f"{stack} ({ds})"

    return listing([found[code] for code in (BEFORE, TODAY) if code in found], {
        "": lambda own: own[0]["code"],
        "cells": len,
        "points above DawidSkene": lambda own: f"{100 * lead(own).mean():+.1f}",
        "log loss (DawidSkene)": lambda own: both(own, "log_loss", ".3f"),
        "calibration error, points (DawidSkene)": lambda own: both(own, "ece", ".1f", 100),
        "worst z": lambda own: f"{z(own).min():+.1f}",
        "more than one se below": lambda own: int((z(own) < -1).sum()),
    })  # fmt: skip


def test_part(records: list[Record]) -> list[str]:
    """Return the figures of the test parts, before and today."""
    found = {(c.name, code): of_case(records, c, code) for c in SEVERAL for code in (BEFORE, TODAY)}
    whole = [
        c.name
        for c in SEVERAL
        if c.n is None and c.most is None and found[c.name, BEFORE] and found[c.name, TODAY]
        if "test_ece" in found[c.name, TODAY][0]
    ]

    def shown(name: str, code: str) -> str:
        right, loss, error = (
            mean(found[name, code], f"test_{key}") for key in ("accuracy", "log_loss", "ece")
        )
        return f"{100 * right:.1f} / {loss:.3f} / {100 * error:.1f}"

    corner = "accuracy % / log loss / calibration error, points"
    return crossed(corner, whole, (BEFORE, TODAY), shown)


def every(records: list[Record]) -> list[str]:
    """Return a row per classifier: its accuracy less that of `DawidSkene`, by set."""
    rows = []
    for name in ("DawidSkene", *inferring()):
        cells, behind = [], []
        for case in EVERY:
            found = of_case(records, case, name)
            if name == "DawidSkene":
                known = [r for r in records if r["case"] == case.name and "ds_accuracy" in r]
                cells.append(f"{100 * known[0]['ds_accuracy']:.1f}" if known else "–")
            elif not found or "failed" in found[0]:
                cells.append("failed" if found else "–")
            else:
                own = found[0]
                apart, se = own["own_accuracy"] - own["ds_accuracy"], own["apart_se"]
                cells.append(f"{100 * apart:+.1f} ± {100 * se:.1f}")
                if apart < -se:
                    behind.append(case.name.split(",")[0])
        rows.append([name, *cells, ", ".join(behind)])
    heads = ["", *(case.name for case in EVERY), "more than one standard error below on"]
    return table_lines(heads, rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Return the values of the page."""
    return {
        "every": every(records),
        "several": [*summary(records, SEVERAL), *table(records, SEVERAL)],
        "one": [*summary(records, ONE), *table(records, ONE)],
        "test": test_part(records),
    }


def drawing(records: list[Record]) -> str:
    """Draw the accuracy of both methods' labels, where instances have two annotations or more."""
    rows = []
    for case in SEVERAL:
        if own := of_case(records, case, TODAY):
            keys = {"stack": "stack_accuracy", "DawidSkene": "ds_accuracy"}
            rows.append(Row(case.name, {name: 100 * mean(own, key) for name, key in keys.items()}))
    return dots("Right labels in percent, two or more annotations per instance", rows)


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"stack_labels-accuracy.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
