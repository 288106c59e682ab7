"""Compare ten daily pieces with one fit on everything: accuracy, and CPU seconds of ten refits.

The pieces of Music, Sentiment and CIFAR-10N are random tenths of the instances, and annotators
appear with their first annotation. After every piece the classifier is measured on the test part.
``--only pieces`` leaves out the ten fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from time import process_time
from typing import Any

import numpy as np

import manyhands as mh
from benchmarks.bars import Row, dots
from evidence import load_data
from evidence.study import Study, grid
from evidence.tables import Record, spread, table, where
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.metrics import accuracy
from manyhands.typing import AnyArray, IntArray

METHODS: dict[str, Callable[..., Any]] = {
    "Dawid-Skene": mh.DawidSkene,
    "Crowd Layer": mh.CrowdLayerClassifier,
    "CoNAL": mh.CoNALClassifier,
    "AggNet": mh.AggNetClassifier,
    "stack": mh.CrowdStackingClassifier,
    "Max-MIG": mh.MaxMIGClassifier,
}
SEEDS = {"music": range(1, 11), "sentiment": range(1, 4), "cifar10n": range(1, 4)}
"""Music has few test instances, so more orders of its pieces are tried."""
N_PIECES = 10
MUSIC_TEST = 300
"""Test instances of Music."""


def pieces_of(table: AnnotationTable, seed: int) -> Iterator[AnnotationTable]:
    """Random tenths of the instances, with all annotations of each."""
    order = np.random.default_rng(seed).permutation(table.n_instances)
    for rows in np.array_split(order, N_PIECES):
        piece = table[np.sort(rows)]
        yield piece.select(annotators=piece.annotators[np.unique(piece.annotator)])


def rows_of(data: Any, instances: AnyArray) -> IntArray:
    """Rows of some instances in the training data."""
    known = data.annotations.instances
    return encode(instances, known, argument="instances", vocabulary_name="the instances")[0]


class Trial:
    """One method on one set, with one order of the instances."""

    def __init__(self, method: str, name: str, seed: int) -> None:
        self.method, self.seed = method, seed
        self.data = load_data({"name": name})
        self.table: AnnotationTable = self.data.annotations
        self.pieces = list(pieces_of(self.table, seed))

    def new(self) -> Any:
        """Make an unfitted model."""
        return METHODS[self.method](random_state=self.seed)

    def given(self, table: AnnotationTable) -> list[Any]:
        """Return the arguments of a method's fit: aggregators get no features."""
        if self.method == "Dawid-Skene":
            return [table]
        return [self.data.X_train[rows_of(self.data, table.instances)], table]

    def score(self, model: Any) -> float:
        """Accuracy on the test part; for Dawid-Skene, of the labels it infers."""
        if self.method != "Dawid-Skene":
            return float(model.score(self.data.X_test, self.data.y_test))
        gold: Any = self.data.y_train
        return accuracy(gold[rows_of(self.data, model.instances_)], model.labels_)

    def fitted(self, seen: AnnotationTable, **options: Any) -> tuple[Any, float]:
        """Fit a new model; also return its CPU seconds."""
        began = process_time()
        model = self.new().fit(*self.given(seen), **options)
        return model, process_time() - began

    def daily(self) -> Iterator[tuple[Any, float]]:
        """Take piece after piece; yield the model, and the CPU seconds of the piece."""
        model = self.new()
        for number, piece in enumerate(self.pieces):
            first = number == 0 and self.method != "Dawid-Skene"
            began = process_time()
            model.partial_fit(
                *self.given(piece), **({"classes": self.table.classes} if first else {})
            )
            yield model, process_time() - began

    def in_pieces(self) -> dict[str, Any]:
        """Accuracy after every piece, and of one fit, with the CPU seconds of both."""
        days = [(self.score(model), seconds, model) for model, seconds in self.daily()]
        whole, own = self.fitted(self.table)
        return {
            "daily": [score for score, _, _ in days],
            "whole": self.score(whole),
            "seconds": sum(seconds for _, seconds, _ in days),
            "one": own,
            "n_epochs": getattr(days[-1][-1], "n_epochs_", None),
        }

    def otherwise(self) -> dict[str, Any]:
        """CPU seconds of the pieces and of ten fits, side by side; accuracy of new pieces alone."""
        seen, fits = None, []
        for piece, (model, seconds) in zip(self.pieces, self.daily(), strict=True):
            seen = piece if seen is None else seen.with_added(piece)
            taken = getattr(model, "n_iter_", None)
            refit, own = self.fitted(seen)
            fits.append((seconds, own, taken, getattr(refit, "n_iter_", None)))
        pieces, refits, warm, fresh = zip(*fits, strict=True)
        found = {"pieces": sum(pieces), "refits": sum(refits)}
        if self.method == "Dawid-Skene":
            return found | {"iterations": {"pieces": warm, "refits": fresh}}
        if self.method != "Crowd Layer":
            return found
        alone = [self.table.select(instances=piece.instances) for piece in self.pieces]
        forgetful = self.fitted(alone[0])[0]
        for piece in alone[1:]:
            forgetful = self.fitted(piece, start=forgetful)[0]
        return found | {"new_only": self.score(forgetful)}


def measure(part: str, set: str, method: str, seed: int) -> Record:
    """Measure one of the two kinds of cells."""
    trial = Trial(method, set, seed)
    return trial.in_pieces() if part == "pieces" else trial.otherwise()


def cells(part: str) -> Iterator[Record]:
    """Yield the cells of a part; of ten fits, and new pieces alone, the first seed of each set."""
    for name, seeds in SEEDS.items():
        some = seeds if part == "pieces" else seeds[:1]
        yield from grid(part=[part], set=[name], seed=some, method=METHODS)


def gains(own: list[Record]) -> list[float]:
    """Accuracy after the last piece, less that of one fit, in points."""
    return [100 * (r["daily"][-1] - r["whole"]) for r in own]


def row(method: str, own: list[Record], fits: Record) -> list[str]:
    """Return the cells of a method on a set."""
    days = np.mean([r["daily"] for r in own], axis=0)[[0, 1, 4, 9]]
    total, one = (sum(r[name] for r in own) for name in ("seconds", "one"))
    return [
        method, str(len(own)), spread([r["daily"][-1] for r in own], 3),
        spread([r["whole"] for r in own], 3), spread(gains(own), sign=True),
        f"{fits['new_only']:.3f}" if "new_only" in fits else "",
        ", ".join(f"{day:.3f}" for day in days), f"{total / one:.1f}",
        f"{100 * fits['pieces'] / fits['refits']:.0f} %" if "pieces" in fits else "",
    ]  # fmt: skip


def drawing(records: list[Record]) -> str:
    """Draw the accuracy after the last piece, and of one fit on everything."""
    rows = []
    for name, method in product(SEEDS, METHODS):
        if own := where(records, part="pieces", set=name, method=method):
            means = {
                "ten pieces": 100 * float(np.mean([r["daily"][-1] for r in own])),
                "one fit": 100 * float(np.mean([r["whole"] for r in own])),
            }
            rows.append(Row(f"{method} on {name}", means))
    return dots("Accuracy in percent", rows)


def page(records: list[Record]) -> dict[str, Any]:
    """A table for each set; which cells differ by more than a point, and why EM is no quicker."""
    pieces, fits = (where(records, part=part) for part in ("pieces", "fits"))
    heads = ["method", "seeds", "pieces", "one fit", "difference, points", "new only", "days"]
    found, outside = {}, []
    for name in SEEDS:
        rows = []
        for method in METHODS:
            own = where(pieces, set=name, method=method)
            ten = where(fits, set=name, method=method)
            if own:
                rows.append(row(method, own, ten[0] if ten else {}))
                gain = float(np.mean(gains(own)))
                outside += [f"{method} on {name} ({gain:+.1f})"] if abs(gain) > 1 else []
        found[name] = table([*heads, "of one fit", "of ten fits"], rows)
    rate = float(np.median([r["whole"] for r in where(pieces, set="music")]))
    taken = [
        f"{np.mean(r['iterations']['pieces'][1:]):.1f} against "
        f"{np.mean(r['iterations']['refits'][1:]):.1f} on {r['set']}"
        for r in (r for name in SEEDS for r in where(fits, set=name) if "iterations" in r)
    ]
    return found | {
        "outside": ", ".join(outside) or "none",
        "noise": 100 * (rate * (1 - rate) / MUSIC_TEST) ** 0.5,
        "taken": ", ".join(taken),
    }


STUDY = Study(
    __file__,
    {p: partial(cells, p) for p in ("pieces", "fits")},
    measure,
    page,
    drawings=lambda records: {"partial_fit-accuracy.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
