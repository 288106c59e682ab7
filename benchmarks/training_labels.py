"""Labels of the training instances, of every method that infers them, on the grand table's sets.

A cell is one fit with the defaults: a set, a method and a seed. It holds the accuracy, log loss and
calibration of the labels that the method gives to its own training instances, most of which
have several annotations. Gold labels measure, and choose nothing. Methods that infer no labels
(their classifier alone answers, also for the training instances) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import numpy as np

import manyhands as mh
from benchmarks.bars import Row, dots
from benchmarks.flagship import by_default, data_of, stack
from benchmarks.grand_table_page import RAW, SETS
from evidence.scores import codes_of, scores
from evidence.study import Study
from evidence.tables import Record, groups, mean, table
from manyhands.inference import GLAD, WorkerClustering

MAJORITY, DAWID_SKENE = "majority vote", "Dawid-Skene"
VOTED = ("reports", "hotel")
"""Sets with gold labels that were made of the votes."""


def aggregated(aggregator: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """A method that sees no features."""
    return lambda data, seed: aggregator(random_state=seed).fit(data.annotations)


WITHOUT_FEATURES = {
    MAJORITY: aggregated(mh.MajorityVote),
    DAWID_SKENE: aggregated(mh.DawidSkene),
    "GLAD": aggregated(GLAD),
    "worker clustering": aggregated(WorkerClustering),
}
WITH_FEATURES = {
    "stack": stack(),
    "CoNAL by EM": by_default(mh.CommonNoiseEMClassifier),
    "AggNet": by_default(mh.AggNetClassifier),
    "MBEM": by_default(mh.MBEMClassifier),
    "ICED": by_default(mh.ICEDClassifier),
    "Raykar": by_default(mh.RaykarClassifier),
}
METHODS = WITHOUT_FEATURES | WITH_FEATURES
OF = {name: words for name, words in SETS.items() if name != RAW}


def measure(set: str, method: str, seed: int) -> Record:
    """Fit a method, and measure its labels where the true class is known."""
    data = data_of(set, "", seed)
    gold = codes_of(data.y_train, data.annotations.classes)
    rows = np.flatnonzero((gold >= 0) & (data.annotations.annotations_per_instance() > 0))
    started = process_time()
    model = METHODS[method](data, seed)
    seconds = process_time() - started
    found = scores(np.asarray(model.posterior_)[rows], gold[rows])
    return {"n": len(rows), **found, "seconds": round(seconds, 2)}


def cells(seeds: range) -> Iterator[Record]:
    """Every method on every set; the quick ones first."""
    for seed in seeds:
        for method in METHODS:
            for name in OF:
                yield {"set": name, "method": method, "seed": seed}


# -- the page -------------------------------------------------------------------------------------


def complete(records: list[Record]) -> list[str]:
    """Name the methods that were measured on all sets; only they are shown."""
    done = {(r["set"], r["method"]) for r in records if "failed" not in r}
    return [method for method in METHODS if all((name, method) in done for name in OF)]


def of_field(records: list[Record], field: str, best: Any, scale: float, digits: int) -> list[str]:
    """Return a table of one figure: methods by sets, the best of each set bold, and the mean."""
    found = {key: mean(own, field) for key, own in groups(records, "set", "method").items()}
    methods = complete(records)
    top = {name: best(found[name, m] for m in methods) for name in OF}
    lines = []
    for method in methods:
        line = [method]
        for name in OF:
            text = f"{scale * found[name, method]:.{digits}f}"
            line.append(f"**{text}**" if found[name, method] == top[name] else text)
        line.append(f"{scale * np.mean([found[name, method] for name in OF]):.{digits}f}")
        lines.append(line)
    return table(["", *OF.values(), "mean"], lines)


def margins(records: list[Record]) -> dict[str, dict[str, float]]:
    """Per method, points above Dawid-Skene and majority votes: on average, and on how many sets."""
    found = {key: mean(own, "accuracy") for key, own in groups(records, "set", "method").items()}
    return {
        method: {
            "over_ds": 100 * float(np.mean([found[n, method] - found[n, DAWID_SKENE] for n in OF])),
            "over_mv": 100 * float(np.mean([found[n, method] - found[n, MAJORITY] for n in OF])),
            "ahead": sum(found[n, method] > found[n, DAWID_SKENE] for n in OF),
            "behind": sum(found[n, method] < found[n, DAWID_SKENE] - 0.005 for n in OF),
        }
        for method in complete(records)
    }


def against(records: list[Record]) -> list[str]:
    """Return the table that compares every method with the two references."""
    lines = [
        [
            method,
            f"{own['over_mv']:+.1f}",
            f"{own['over_ds']:+.1f}",
            str(own["ahead"]),
            str(own["behind"]),
        ]
        for method, own in margins(records).items()
    ]
    heading = ["", "points above majority vote", "points above Dawid-Skene"]
    return table([*heading, "sets ahead of Dawid-Skene", "more than half a point behind it"], lines)


def page(records: list[Record]) -> dict[str, Any]:
    """Return the values of the page."""
    methods = complete(records)
    of_set = groups(records, "set", "method")
    accuracy = {m: float(np.mean([mean(of_set[n, m], "accuracy") for n in OF])) for m in methods}
    loss = {m: float(np.mean([mean(of_set[n, m], "log_loss") for n in OF])) for m in methods}
    first, least = max(accuracy, key=accuracy.__getitem__), min(loss, key=loss.__getitem__)
    apart = margins(records)[first]
    named = {"stack": "the stack"}
    return {
        "first": named.get(first, first),
        "first_accuracy": 100 * accuracy[first],
        "ds_accuracy": 100 * accuracy[DAWID_SKENE],
        "mv_accuracy": 100 * accuracy[MAJORITY],
        "ahead": apart["ahead"],
        "behind": apart["behind"],
        "n_sets": len(OF),
        "least": named.get(least, least),
        "least_loss": loss[least],
        "ds_loss": loss[DAWID_SKENE],
        "seeds": len({r["seed"] for r in records}),
        "minutes": sum(r["seconds"] for r in records) / 60,
        "voted": " and ".join(OF[name] for name in VOTED),
        "against": against(records),
        "accuracy": of_field(records, "accuracy", max, 100, 1),
        "log_loss": of_field(records, "log_loss", min, 1, 2),
        "calibration": of_field(records, "ece", min, 100, 1),
    }


def drawing(records: list[Record]) -> str:
    """Draw the accuracy of the stack's labels on every set, beside labels without features."""
    found = {key: mean(own, "accuracy") for key, own in groups(records, "set", "method").items()}
    shown = {"stack": "stack", DAWID_SKENE: "Dawid-Skene", MAJORITY: "majority vote"}
    rows = [
        Row(title, {words: 100 * found[name, method] for method, words in shown.items()})
        for name, title in OF.items()
    ]
    return dots("Right labels of the training instances, in percent", rows)


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    seeds=range(1, 2),
    drawings=lambda records: {"training_labels-accuracy.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
