"""Claims beside the truth: what a person is told after every step, on tables with gold labels.

Steps are those that people take: infer labels; review some and give them as known; train a
classifier; look at annotators. For each, the record holds what was claimed, the interval that was
told, and what gold labels say. Nothing is chosen by them.

Run, with MANYHANDS_DATA set: ``OMP_NUM_THREADS=1 python benchmarks/claims.py --records
docs/results/claims.jsonl --out docs/results/claims.md``. What is in the records is not repeated;
``--code before`` files the cells of whatever version of the library is on the path under that name.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import manyhands
from manyhands import AnnotationTable, CrowdStackingClassifier, DawidSkene, MajorityVote
from manyhands.inference import IBCC

Record = dict[str, Any]
BEFORE, TODAY = "before", "today"

FLAG = "no better than chance"
"""Of an annotator; see `manyhands.planning.screen_annotators`."""

METHODS = {
    "DawidSkene": DawidSkene,
    "IBCC": IBCC,
    "MajorityVote": MajorityVote,
}
QUEUES = (10, 25, 50, 100)
WITH_FEATURES = ("labelme", "music", "sentiment", "product", "colposcopy", "reports")


class Labelled(NamedTuple):
    """A table, and the true class codes of its instances, -1 where unknown."""

    name: str
    table: AnnotationTable
    gold: np.ndarray


# -- steps: each returns what was claimed and what is true -----------------------------------------


def infer(case: Labelled, method: Callable[[], Any]) -> Record:
    """Infer labels: how many are said to be right, and how many are."""
    table, gold = case.table, case.gold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = method().fit(table)
        codes = model.posterior_.argmax(axis=1)
        level = told_of_labels(table, model, codes)
    rows = _judged(case)
    record = {"true": float((codes[rows] == gold[rows]).mean()), "n": len(rows)}
    return record | level


def told_of_labels(table: AnnotationTable, model: Any, codes: np.ndarray) -> Record:
    """Claim of a method's labels: what the report tells, or before, their mean probability."""
    try:
        from manyhands.report.levels import level_of_labels
    except ImportError:
        return {"claimed": float(model.posterior_.max(axis=1).mean())}
    level = level_of_labels(table, model, codes, model.posterior_)
    if level is None:
        return {"claimed": None, "low": None, "high": None}
    return {"claimed": level.value, "low": level.low, "high": level.high}


def review(case: Labelled, n: int, *, order: str, rounds: int = 1, **parameters: Any) -> Record:
    """Give the true labels of n instances as known, and look at what is said of the others.

    Parameters
    ----------
    order : {"queue", "random"}
        Whether the most doubtful instances are reviewed, or random ones.
    rounds : int
        Rounds of n instances, each after another fit.
    """
    table, gold = case.table, case.gold
    values = np.array([*table.classes.tolist(), None], dtype=object)
    rng = np.random.default_rng(n)
    known = np.full(table.n_instances, -1)
    method = parameters.pop("method", DawidSkene)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = method(**parameters).fit(table)
        before = float(model.posterior_[_judged(case)].max(axis=1).mean())
        for _ in range(rounds):
            free = np.flatnonzero((gold >= 0) & (known < 0))
            places = np.argsort(model.posterior_[free].max(axis=1), kind="stable")
            chosen = free[places if order == "queue" else rng.permutation(len(free))][:n]
            known[chosen] = gold[chosen]
            model = method(**parameters).fit(table, gold=values[known])
    rest = np.flatnonzero((gold >= 0) & (known < 0) & (table.annotations_per_instance() > 0))
    posterior = model.posterior_[rest]
    right = np.maximum(posterior[np.arange(len(rest)), gold[rest]], 1e-12)
    return {
        "claimed": float(posterior.max(axis=1).mean()),
        "before": before,
        "true": float((posterior.argmax(axis=1) == gold[rest]).mean()),
        "n": len(rest),
        "log_loss": float(-np.log(right).mean()),
        "rho": float(getattr(model, "dependence_", np.nan)),
    }


def train(data: Any, folds: int = 3) -> Record:
    """Train the stack: what is said of its labels and of new items, and what holds."""
    table = data.annotations
    place = {label: code for code, label in enumerate(table.classes.tolist())}
    gold = np.array([place.get(label, -1) for label in np.asarray(data.y_train).tolist()])
    test = np.array([place.get(label, -1) for label in np.asarray(data.y_test).tolist()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CrowdStackingClassifier(random_state=0).fit(data.X_train, table)
        codes = model.posterior_.argmax(axis=1)
        labels = told_of_labels(table, model, codes)
        new = told_of_new_items(data, folds)
        predicted = model.predict_proba(data.X_test).argmax(axis=1)
    rows = _judged(Labelled("", table, gold))
    found = {
        "true": float((model.posterior_[rows].argmax(axis=1) == gold[rows]).mean()),
        "new_true": float((predicted[test >= 0] == test[test >= 0]).mean()),
        "new_n": int((test >= 0).sum()),
        "n": len(rows),
    }
    return found | labels | {f"new_{name}": value for name, value in new.items()}


def told_of_new_items(data: Any, folds: int) -> Record:
    """Claim of predictions of new items; before, there was none."""
    try:
        from manyhands.metrics import accuracy_on_new_items
    except ImportError:
        return {}
    from manyhands.selection import cross_predict

    out = cross_predict(CrowdStackingClassifier(), data.X_train, data.annotations, cv=folds)
    level = accuracy_on_new_items(data.annotations, out.proba)
    return {"claimed": level.value, "low": level.low, "high": level.high}


def screen(case: Labelled) -> Record:
    """Look at annotators: how many are flagged, and what gold says of those."""
    from manyhands.planning import screen_annotators

    table = case.table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DawidSkene().fit(table)
        found = screen_annotators(table, model)
    truth = informedness(case)
    chance = {each.annotator for each in found if FLAG in each.flags}
    flagged = np.array([name in chance for name in table.annotators.tolist()])
    judged = np.isfinite(truth)
    return {
        "n_annotators": int(judged.sum()),
        "flagged": int((flagged & judged).sum()),
        "flagged_truly": int((flagged & judged & (truth < 0.25)).sum()),
        "flagged_good": int((flagged & judged & (truth > 0.4)).sum()),
        "bad": int((judged & (truth < 0.1)).sum()),
        "bad_flagged": int((flagged & judged & (truth < 0.1)).sum()),
    }


def informedness(case: Labelled, least: int = 20) -> np.ndarray:
    """Informedness of each annotator by gold, NaN below ``least`` annotations with gold.

    The mean over the true classes of the share that is named rightly, beyond what naming classes
    without looking would give: (sum of recalls - 1) / (number of classes - 1).
    """
    table, gold = case.table, case.gold
    found = np.full(table.n_annotators, np.nan)
    true = gold[table.instance]
    for r in range(table.n_annotators):
        rows = (table.annotator == r) & (true >= 0)
        classes = np.unique(true[rows])
        if rows.sum() < least or len(classes) < 2:
            continue
        recalls = [(table.label[rows & (true == c)] == c).mean() for c in classes]
        found[r] = (sum(recalls) - 1) / (len(classes) - 1)
    return found


def _judged(case: Labelled) -> np.ndarray:
    return np.flatnonzero((case.gold >= 0) & (case.table.annotations_per_instance() > 0))


# -- cells ----------------------------------------------------------------------------------------


@cache
def real(name: str) -> Labelled:
    """Load a table of `aggregation.py`, with the codes of its gold labels."""
    from aggregation import load

    task = load(name)
    codes = {label: code for code, label in enumerate(task.table.classes.tolist())}
    gold = np.full(task.table.n_instances, -1)
    gold[task.known] = [codes[label] for label in np.asarray(task.gold).tolist()]
    return Labelled(name, task.table, gold)


def cells(code: str) -> Iterator[tuple[Hashable, Callable[[], Record]]]:
    """All cells of a version of the library."""
    from aggregation import AGGREGATION_SETS, LOADERS

    from manyhands.evidence import load_data

    names = (*AGGREGATION_SETS, *LOADERS)

    def cell(step: str, table: str, run: Callable[[], Record]) -> Any:
        own = {"step": step, "table": table, "code": code}
        return (step, table, code), lambda: own | run()

    for name in names:
        for title, method in METHODS.items():
            yield cell(f"infer, {title}", name, partial(_infer, name, method))
        yield cell("annotators", name, partial(_screen, name))
    for name in WITH_FEATURES:
        yield cell("train", name, lambda name=name: train(load_data({"name": name})))
    for n in QUEUES:
        for order in ("queue", "random"):
            for name in names:
                if (real(name).gold >= 0).sum() > 3 * n:
                    yield cell(f"review, {order} {n}", name, partial(_review, name, n, order, 1))
    for name in names:
        if (real(name).gold >= 0).sum() > 300:
            yield cell("review, queue 4 x 25", name, partial(_review, name, 25, "queue", 4))


def _infer(name: str, method: Any) -> Record:
    return infer(real(name), method)


def _screen(name: str) -> Record:
    return screen(real(name))


def _review(name: str, n: int, order: str, rounds: int) -> Record:
    return review(real(name), n, order=order, rounds=rounds)


# -- the page -------------------------------------------------------------------------------------


def gaps(records: Iterable[Record], prefix: str = "") -> np.ndarray:
    """Claimed less true, in points."""
    return np.array(
        [
            100 * (r[f"{prefix}claimed"] - r[f"{prefix}true"])
            for r in records
            if r.get(f"{prefix}claimed") is not None
        ]
    )


def inside(records: Iterable[Record], prefix: str = "") -> str:
    """How often the interval that was told holds the truth."""
    told = [r for r in records if r.get(f"{prefix}low") is not None]
    hits = sum(r[f"{prefix}low"] <= r[f"{prefix}true"] <= r[f"{prefix}high"] for r in told)
    return f"{hits} of {len(told)}" if told else "–"


def rows_of(records: list[Record], step: str, prefix: str = "") -> list[str]:
    """Before and today: the mean gap with its standard error, and the mean and greatest size."""
    found = []
    for code in (BEFORE, TODAY):
        own = [r for r in records if r["step"] == step and r["code"] == code]
        apart = gaps(own, prefix)
        if not len(apart):
            found += ["–", "–"]
            continue
        se = apart.std(ddof=1) / np.sqrt(len(apart))
        size = np.abs(apart)
        found += [f"{apart.mean():+.1f} ± {se:.1f}", f"{size.mean():.1f} ({size.max():.1f})"]
    return found


def page(records: list[Record]) -> str:
    """Return the page."""
    from pages import table_lines

    today = [r for r in records if r["code"] == TODAY]
    steps = dict.fromkeys(r["step"] for r in records)
    heading = ["step", "tables", "gap before", "size (most)", "gap today", "size (most)"]
    heading.append("in the interval")
    rows = []
    for step in steps:
        if step == "annotators":
            continue
        own = [r for r in today if r["step"] == step]
        if step == "train":
            for prefix, title in (("", "train: labels"), ("new_", "train: new items")):
                rows.append(
                    [title, str(len(own)), *rows_of(records, step, prefix), inside(own, prefix)]
                )
            continue
        rows.append([step, str(len(own)), *rows_of(records, step), inside(own)])
    flags = []
    for code in (BEFORE, TODAY):
        own = [r for r in records if r["step"] == "annotators" and r["code"] == code]
        if own:
            total = {k: sum(r[k] for r in own) for k in own[0] if isinstance(own[0][k], int)}
            flags.append(
                [
                    code,
                    *(f"{total[k]:,}" for k in ("n_annotators", "flagged", "flagged_truly")),
                    *(f"{total[k]:,}" for k in ("flagged_good", "bad", "bad_flagged")),
                ]
            )
    columns = ["", "annotators with gold", "flagged", "of them truly below .25"]
    columns += ["of them above .4", "truly below .1", "of them flagged"]
    return PAGE.format(
        steps="\n".join(table_lines(heading, rows)),
        flags="\n".join(table_lines(columns, flags)),
        today=datetime.date.today(),
        version=manyhands.__version__,
    )


PAGE = """\
# Claims and the truth

What manyhands says of labels, new items and annotators, beside what gold labels say, after every
step that people take. *Gap* is the share of right labels that is claimed less the true one, in
points: mean ± standard error over the tables, then the mean of its size and the greatest one.
*In the interval* counts the tables whose truth lies in the interval that is told. *Before* is
commit c4ff5624, which told no intervals.

{steps}
*Review*: the true labels of so many instances are given as known, and the claim is about the
others. A queue holds the most doubtful ones; "4 x 25" is four rounds. *Train*: the labels of the
training instances, and new items, whose claim is cross-validated against the annotators.

## Annotators

An annotator is flagged "no better than chance". The truth is informedness by gold, of annotators
with at least 20 annotations of instances with gold.

{flags}
## How this page was made

`OMP_NUM_THREADS=1 python benchmarks/claims.py --records docs/results/claims.jsonl --out
docs/results/claims.md` on {today}, manyhands {version}; random draws are seeded by their size. The
rules behind the claims were made with looks at these tables, so the figures are somewhat too good.
"""


def main() -> None:
    """Measure what is missing, and write the page."""
    from pages import run_missing

    from manyhands.io import write_atomically

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--code", default=TODAY, help="Name of the version of the library.")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    given = parser.parse_args()
    records = run_missing(
        given.records,
        cells(given.code),
        lambda record: (record["step"], record["table"], record["code"]),
        given.minutes,
    )
    if given.out is not None:
        write_atomically(given.out, page(records).encode())


if __name__ == "__main__":
    main()
