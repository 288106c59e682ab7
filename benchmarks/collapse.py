"""Fits that collapse into one class: families alone on most instances, crowds that decide nothing.

Six sets of people and language models, and all tables with known labels (``MANYHANDS_DATA``):

    OMP_NUM_THREADS=1 python benchmarks/collapse.py

It adds records to results/benchmarks/collapse.jsonl and writes docs/results/collapse.md.
"Before" is the same code with every instance in the fit, and GoldCorrected's earlier least gold.
A killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from pages import Record, run_missing, table_lines, write_part

from manyhands import (
    IBCC,
    MACE,
    AnnotationTable,
    DawidSkene,
    GoldCorrected,
    MajorityVote,
    OneCoinDawidSkene,
)
from manyhands.datasets import AGGREGATION_SETS, load_aggregation, load_judgebench
from manyhands.datasets.base import data_home
from manyhands.inference import base, gold_corrected, gold_samples
from manyhands.inference.identifiability import (
    LoneFamilies,
    agreement_between_units,
    constant_annotators,
)
from manyhands.inference.votes import make_votes
from manyhands.io import consensus, read_annotations
from manyhands.typing import AnyArray

ROOT = Path(__file__).parents[1]

FEW_SETS = ("lgbteen", "cebab_stars")
"""Those that the other methods are fitted to."""

SETS = ("lgbteen", "cebab_stars", "10k_prompts", "framing", "summeval")
GIVEN = (0, 25, 50, 100, 200)
DRAWS = 5
METHODS: dict[str, Callable[[], Any]] = {
    "DawidSkene": DawidSkene,
    "IBCC": IBCC,
    "OneCoinDawidSkene": OneCoinDawidSkene,
    "MACE": partial(MACE, random_state=0),
}


@contextmanager
def as_before() -> Iterator[None]:
    """Fits of which every instance is a part; ten gold labels are enough, fifty with families."""

    def none(votes: Any, groups: Any) -> LoneFamilies:
        return LoneFamilies.none(votes.n_instances)

    with ExitStack() as stack:
        for module in (base, gold_corrected):
            stack.enter_context(mock.patch.object(module, "lone_families", none))
        stack.enter_context(mock.patch.object(gold_samples, "LEAST_GOLD_PER_CLASS", 0))
        yield


@cache
def annotations(name: str) -> pd.DataFrame:
    """Annotations of people and models; labels are text."""
    frame = pd.read_csv(data_home() / "judges" / name / "annotations.csv")
    frame["label"] = frame["label"].astype(str)
    return frame.drop_duplicates(["task", "worker"])


def beside_people(name: str, n_given: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """All models' annotations, those of one person on some instances, and another's everywhere.

    The yardstick is a random person of each instance; where a person's label is given, the
    instance is not counted.
    """
    frame = annotations(name)
    models = frame[frame.family == "llm"]
    people = frame[frame.family != "llm"].sample(frac=1, random_state=seed)
    yardstick = people.groupby("task").label.first()
    models = models[models.task.isin(yardstick.index)]
    rng = np.random.default_rng(seed)
    chosen = rng.choice(np.unique(models.task), n_given, replace=False)
    given = people[people.task.isin(chosen)].drop_duplicates("task")
    return models, given, yardstick


def cells() -> Iterator[tuple[Any, Callable[[], Record]]]:
    """Yield what is measured."""
    for name in SETS:
        for n_given in GIVEN:
            for seed in range(DRAWS):
                every = seed < 2 and name in FEW_SETS
                for method in METHODS if every else ("DawidSkene",):
                    for code in ("before", "now"):
                        key = (name, n_given, seed, method, code)
                        yield key, partial(measure_family, *key)
                yield (
                    (name, n_given, seed, "majority", "now"),
                    partial(measure_family, name, n_given, seed, "majority", "now"),
                )
                for code in ("before", "now") if n_given else ():
                    key = (name, n_given, seed, "GoldCorrected", code)
                    yield key, partial(measure_family, *key)
    for name in tables():
        yield (name, 0, 0, "identified", "now"), partial(measure_crowd, name)


def measure_family(name: str, n_given: int, seed: int, method: str, code: str) -> Record:
    """Accuracy on the instances without a person, against a person's label."""
    models, given, yardstick = beside_people(name, n_given, seed)
    classes = sorted(annotations(name).label.unique())
    rows = pd.concat([models, given]) if method != "GoldCorrected" else models
    table = AnnotationTable.from_frame(rows, group="family", classes=classes)
    gold = dict(zip(given.task, given.label, strict=True)) if method == "GoldCorrected" else None
    y = yardstick.loc[table.instances].to_numpy()
    rest = ~np.isin(table.instances, given.task.to_numpy())
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if code == "before":
            stack.enter_context(as_before())
        if method == "majority":
            model = MajorityVote().fit(AnnotationTable.from_frame(models, classes=classes))
        else:
            made = GoldCorrected if method == "GoldCorrected" else METHODS[method]
            model = made().fit(table, gold=gold)
    labels = dict(zip(model.instances_.tolist(), model.labels_.tolist(), strict=True))
    found = np.array([labels[task] for task in table.instances.tolist()])
    return {
        "set": name, "n": n_given, "seed": seed, "method": method, "code": code,
        "accuracy": float((found == y)[rest].mean()),
        "claimed": float(model.posterior_.max(axis=1).mean()),
    }  # fmt: skip


# -- crowds that decide nothing --------------------------------------------------------------------


def tables() -> dict[str, Callable[[], tuple[AnnotationTable, AnyArray]]]:
    """Tables, simulated and real, with the known class codes, -1 where unknown."""
    found: dict[str, Any] = {
        "simulated: two constant annotators and a good one": constant,
        "simulated: six annotators who answer at random": random_answers,
    }
    found |= {name: partial(aggregation, name) for name in AGGREGATION_SETS}
    found["judgebench"] = judgebench
    return found | {name: partial(ordinal, name) for name in ("polit6", "polit6e", "metlit5")}


def constant() -> tuple[AnnotationTable, AnyArray]:
    """200 instances, of which 27.5 % are of the class that two annotators always give."""
    rng = np.random.default_rng(0)
    y = (rng.random(200) < 0.275).astype(int)
    good = np.where(rng.random(200) < 0.9, y, 1 - y)
    return AnnotationTable.from_matrix(np.column_stack([good, np.ones((200, 2), int)])), y


def random_answers() -> tuple[AnnotationTable, AnyArray]:
    """400 instances of five grades."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(5, 5.0))
    table = AnnotationTable.from_matrix(rng.choice(5, (400, 6), p=shares), classes=range(5))
    return table, rng.choice(5, 400, p=shares)


def aggregation(name: str) -> tuple[AnnotationTable, AnyArray]:
    """One of the 17 sets of annotations."""
    return _with_codes(load_aggregation(name, duplicates="last"))


def judgebench() -> tuple[AnnotationTable, AnyArray]:
    """Machines alone."""
    return _with_codes(load_judgebench())


def _with_codes(data: Any) -> tuple[AnnotationTable, AnyArray]:
    known = np.isin(data.y_train, data.classes)
    codes = np.searchsorted(data.classes, data.y_train).clip(0, len(data.classes) - 1)
    return data.annotations, np.where(known, codes, -1)


def ordinal(name: str) -> tuple[AnnotationTable, AnyArray]:
    """Grades, with the classes taken as unordered."""
    folder = data_home() / "ordinal" / name
    table = read_annotations(folder / "annotations.csv.gz", duplicates="last")
    gold = pd.read_csv(folder / "labels.csv").set_index("task").label.reindex(table.instances)
    known = gold.isin(table.classes).to_numpy()
    codes = np.searchsorted(table.classes, gold.fillna(table.classes[0]).to_numpy())
    return table, np.where(known, codes.clip(0, table.n_classes - 1), -1)


def measure_crowd(name: str) -> Record:
    """What the annotations decide, and what is accepted."""
    table, y = tables()[name]()
    votes = make_votes(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DawidSkene().fit(table)
    every = np.ones(table.n_instances, dtype=bool)
    found = {
        code: consensus(table, model.posterior_, identified=mask)
        for code, mask in (("before", every), ("now", model.identified_))
    }
    accepted = {code: one.actions == "accept" for code, one in found.items()}
    known = accepted["before"] & (y >= 0)
    alpha = agreement_between_units(votes)
    return {
        "set": name, "n": 0, "seed": 0, "method": "identified", "code": "now",
        "instances": table.n_instances, "alpha": alpha.alpha, "low": alpha.low, "high": alpha.high,
        "constant": int(constant_annotators(votes).sum()), "annotators": table.n_annotators,
        "largest": float(model.posterior_.mean(axis=0).max()),
        "right": float((found["before"].codes == y)[known].mean()) if known.any() else None,
        "before": int(accepted["before"].sum()), "now": int(accepted["now"].sum()),
        "fired": not model.identified_.all(),
    }  # fmt: skip


# -- the page --------------------------------------------------------------------------------------


def mean_accuracy(records: list[Record], **wanted: Any) -> str:
    """Mean over the draws, as text."""
    found = [r["accuracy"] for r in records if all(r[k] == v for k, v in wanted.items())]
    return f"{np.mean(found):.2f}" if found else ""


def family_lines(records: list[Record]) -> list[str]:
    """Tables of the methods beside few labels of people."""
    rows = [["any", "majority of the models", *(mean_accuracy(records, set=s, method="majority")
                                               for s in SETS)]]  # fmt: skip
    for n in GIVEN:
        for method in ("DawidSkene", "GoldCorrected"):
            for code in ("before", "now"):
                cells = [mean_accuracy(records, set=s, n=n, method=method, code=code) for s in SETS]
                if any(cells):
                    rows.append([str(n), f"{method}, {code}", *cells])
    lines = table_lines(["people's labels", "", *SETS], rows)
    others = [
        [str(n), f"{method}, {code}", *(mean_accuracy(records, set=s, n=n, method=method, code=code)
                                       for s in FEW_SETS)]
        for method in METHODS if method != "DawidSkene"
        for n in GIVEN
        for code in ("before", "now")
    ]  # fmt: skip
    return [*lines, "Other methods, two draws:", "", *table_lines(
        ["people's labels", "", *FEW_SETS], others)]  # fmt: skip


def crowd_lines(records: list[Record]) -> list[str]:
    """What is accepted of each table."""
    found = {r["set"]: r for r in records if r["method"] == "identified"}
    rows = [
        [
            name, f"{r['instances']:,}",
            f"{r['alpha']:.2f} ({r['low']:.2f} to {r['high']:.2f})",
            f"{r['constant']} of {r['annotators']:,}", f"{r['largest']:.2f}",
            f"{r['before']:,}", "" if r["right"] is None else f"{100 * r['right']:.0f} %",
            f"{r['now']:,}", "yes" if r["fired"] else "no",
        ]
        for name, r in found.items()
    ]  # fmt: skip
    heads = ["table", "instances", "alpha (95 % interval)", "constant annotators", "largest class"]
    heads += ["accepted before", "right of them", "accepted now", "warned"]
    return table_lines(heads, rows)


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--records", type=Path, default=ROOT / "results" / "benchmarks" / "collapse.jsonl"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "collapse.md")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    given = parser.parse_args()
    records = run_missing(
        given.records, cells(),
        lambda r: (r["set"], r["n"], r["seed"], r["method"], r["code"]), given.minutes,
    )  # fmt: skip
    title = "Fits that collapse into one class"
    provenance = [
        f"{date.today().isoformat()}. Before: the same code with every instance in the fit. "
        "[families](../families.md#a-family-alone-on-most-instances) explains the rule.",
        "",
        "    OMP_NUM_THREADS=1 python benchmarks/collapse.py",
    ]
    write_part(given.out, title, "A family alone on most instances", [
        "Six language models labelled every instance, one person some of them; the models are "
        "declared a family. Accuracy on the other instances, against another person's label, mean "
        f"of {DRAWS} draws. `GoldCorrected` has the people's labels as gold, and the same "
        "declaration.",
        "", *family_lines(records),
    ])  # fmt: skip
    write_part(given.out, title, "Crowds whose annotations decide nothing", [
        "`DawidSkene()`, no families declared. Accepted: probability of .95 or more and two "
        "annotators who gave the label. Largest class: mean posterior. On metlit5 (six grades of "
        "how metaphorical an expression is) the fit gives all instances one grade.",
        "", *crowd_lines(records),
    ])  # fmt: skip
    write_part(given.out, title, "How this was made", provenance)


if __name__ == "__main__":
    main()
