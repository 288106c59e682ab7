"""Fits that collapse into one class: families alone on most instances, crowds that decide nothing.

Six sets of people and language models, and all tables with known labels (``MANYHANDS_DATA``).
"Before" is the same code with every instance in the fit, and GoldCorrected's earlier least gold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import manyhands as mh
from benchmarks.bars import Row, dots
from benchmarks.real_tables import LAST, ORDINAL, real
from evidence.study import Study, grid
from evidence.tables import Record, listing, table, where
from manyhands.datasets import AGGREGATION_SETS
from manyhands.datasets.base import data_home
from manyhands.inference import base, gold_corrected, gold_samples
from manyhands.inference.identifiability import (
    IsolatedFamilies,
    agreement_between_units,
    constant_annotators,
)
from manyhands.inference.votes import make_votes
from manyhands.io import consensus
from manyhands.typing import AnyArray

FEW_SETS = ("lgbteen", "cebab_stars")
"""Those that the other methods are fitted to."""

SETS = ("lgbteen", "cebab_stars", "10k_prompts", "framing", "summeval")
GIVEN = (0, 25, 50, 100, 200)
DRAWS = 5
METHODS: dict[str, Callable[[], Any]] = {
    "DawidSkene": mh.DawidSkene,
    "IBCC": mh.IBCC,
    "OneCoinDawidSkene": mh.OneCoinDawidSkene,
    "MACE": partial(mh.MACE, random_state=0),
}


@contextmanager
def as_before() -> Iterator[None]:
    """Fits of which every instance is a part; ten gold labels are enough, fifty with families."""

    def none(votes: Any, groups: Any) -> IsolatedFamilies:
        return IsolatedFamilies.none(votes.n_instances)

    with ExitStack() as stack:
        for module in (base, gold_corrected):
            stack.enter_context(mock.patch.object(module, "isolated_families", none))
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


# -- crowds that decide nothing --------------------------------------------------------------------


def tables() -> dict[str, Callable[[], tuple[mh.AnnotationTable, AnyArray]]]:
    """Tables, simulated and real, with the known class codes, -1 where unknown."""
    found: dict[str, Any] = {
        "simulated: two constant annotators and a good one": constant,
        "simulated: six annotators who answer at random": random_answers,
    }
    sets = {name: f"{name}{LAST}" for name in AGGREGATION_SETS}
    sets |= {name: name for name in ("judgebench", *ORDINAL)}
    return found | {name: partial(lambda own: real(own)[1:], own) for name, own in sets.items()}


def constant() -> tuple[mh.AnnotationTable, AnyArray]:
    """200 instances, of which 27.5 % are of the class that two annotators always give."""
    rng = np.random.default_rng(0)
    y = (rng.random(200) < 0.275).astype(int)
    good = np.where(rng.random(200) < 0.9, y, 1 - y)
    return mh.AnnotationTable.from_matrix(np.column_stack([good, np.ones((200, 2), int)])), y


def random_answers() -> tuple[mh.AnnotationTable, AnyArray]:
    """400 instances of five grades."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(5, 5.0))
    table = mh.AnnotationTable.from_matrix(rng.choice(5, (400, 6), p=shares), classes=range(5))
    return table, rng.choice(5, 400, p=shares)


def measure_crowd(name: str) -> Record:
    """Measure what the annotations decide, and what is accepted."""
    given, y = tables()[name]()
    votes = make_votes(given)
    model = mh.DawidSkene().fit(given)
    every = np.ones(given.n_instances, dtype=bool)
    found = {
        code: consensus(given, model.posterior_, identified=mask)
        for code, mask in (("before", every), ("now", model.identified_))
    }
    accepted = {code: one.actions == "accept" for code, one in found.items()}
    known = accepted["before"] & (y >= 0)
    alpha = agreement_between_units(votes)
    return {
        "instances": given.n_instances, "alpha": alpha.alpha, "low": alpha.low, "high": alpha.high,
        "constant": int(constant_annotators(votes).sum()), "annotators": given.n_annotators,
        "largest": float(model.posterior_.mean(axis=0).max()),
        "right": float((found["before"].codes == y)[known].mean()) if known.any() else None,
        "before": int(accepted["before"].sum()), "now": int(accepted["now"].sum()),
        "fired": not model.identified_.all(),
    }  # fmt: skip


def measure_family(name: str, n_given: int, seed: int, method: str, code: str) -> Record:
    """Accuracy on the instances without a person, against a person's label."""
    models, given, yardstick = beside_people(name, n_given, seed)
    classes = sorted(annotations(name).label.unique())
    rows = pd.concat([models, given]) if method != "GoldCorrected" else models
    every = mh.AnnotationTable.from_frame(rows, group="family", classes=classes)
    gold = dict(zip(given.task, given.label, strict=True)) if method == "GoldCorrected" else None
    y = yardstick.loc[every.instances].to_numpy()
    rest = ~np.isin(every.instances, given.task.to_numpy())
    with as_before() if code == "before" else ExitStack():
        if method == "majority":
            model = mh.MajorityVote().fit(mh.AnnotationTable.from_frame(models, classes=classes))
        else:
            made = mh.GoldCorrected if method == "GoldCorrected" else METHODS[method]
            model = made().fit(every, gold=gold)
    labels = dict(zip(model.instances_.tolist(), model.labels_.tolist(), strict=True))
    found = np.array([labels[task] for task in every.instances.tolist()])
    accuracy = float((found == y)[rest].mean())
    return {"accuracy": accuracy, "claimed": float(model.posterior_.max(axis=1).mean())}


def cells() -> Iterator[Record]:
    """Yield what is measured."""
    codes = ("before", "now")
    for name in SETS:
        for n, seed in product(GIVEN, range(DRAWS)):
            every = seed < 2 and name in FEW_SETS
            methods = [*(METHODS if every else ["DawidSkene"]), *(["GoldCorrected"] if n else [])]
            where = {"set": [name], "n": [n], "seed": [seed]}
            yield from grid(**where, method=methods, code=codes)
            yield from grid(**where, method=["majority"], code=codes[1:])
    yield from grid(set=tables(), n=[0], seed=[0], method=["identified"], code=codes[1:])


def measure(set: str, n: int, seed: int, method: str, code: str) -> Record:
    """Measure one of the two kinds of cells."""
    if method == "identified":
        return measure_crowd(set)
    return measure_family(set, n, seed, method, code)


def drawing(records: list[Record]) -> str:
    """Draw the accuracy beside few labels by people: gold, no gold, and without people."""
    rows = []
    for name, n in product(SETS, [n for n in GIVEN if n]):
        each = {
            "as gold of GoldCorrected": where(records, set=name, n=n, method="GoldCorrected"),
            "DawidSkene": where(records, set=name, n=n, method="DawidSkene"),
            "majority of the models": where(records, set=name, method="majority"),
        }
        now = {words: where(own, code="now") for words, own in each.items()}
        means = {w: 100 * float(np.mean([r["accuracy"] for r in own])) for w, own in now.items()}
        rows.append(Row(f"{name}, {n} labels by people", means))
    return dots("Right labels of the items that no person labelled, in percent", rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Methods beside few labels of people; what is accepted of each table."""

    def means(sets: tuple[str, ...], **wanted: Any) -> list[str]:
        each = [[r["accuracy"] for r in where(records, set=s, **wanted)] for s in sets]
        return [f"{np.mean(found):.2f}" if found else "" for found in each]

    def rows(methods: Any, sets: tuple[str, ...]) -> Iterator[list[str]]:
        for method, n in methods:
            for code in ("before", "now"):
                if any(found := means(sets, n=n, method=method, code=code)):
                    yield [str(n), f"{method}, {code}", *found]

    both = [(method, n) for n in GIVEN for method in ("DawidSkene", "GoldCorrected")]
    others = [(method, n) for method in METHODS if method != "DawidSkene" for n in GIVEN]
    majority = ["any", "majority of the models", *means(SETS, method="majority")]
    crowds = listing(where(records, method="identified"), {
        "table": "{set}",
        "instances": "{instances:,}",
        "alpha (95 % interval)": "{alpha:.2f} ({low:.2f} to {high:.2f})",
        "constant annotators": "{constant} of {annotators:,}",
        "largest class": "{largest:.2f}",
        "accepted before": "{before:,}",
        "right of them": lambda r: "" if r["right"] is None else f"{100 * r['right']:.0f} %",
        "accepted now": "{now:,}",
        "warned": lambda r: "yes" if r["fired"] else "no",
    })  # fmt: skip
    return {
        "families": table(["people's labels", "", *SETS], [majority, *rows(both, SETS)]),
        "others": table(["people's labels", "", *FEW_SETS], rows(others, FEW_SETS)),
        "crowds": crowds,
    }


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"collapse-accuracy.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
