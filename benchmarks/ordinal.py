"""Grades: what their order adds to DawidSkene, on tables with gold, with few labels, and in cost.

Today's fit (grades taken for names of classes) is compared with the fit to grades, and with each of
its two parts alone: severity in the centre of the prior, class shares held near those of the votes.
Tables are thinned and drawn with seeds; all parts take three minutes of a core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.metrics import cohen_kappa_score

from benchmarks.bars import Row, dots
from evidence.scores import likelihood
from evidence.study import Part, Study, grid, of_parts
from evidence.tables import Record, groups, mean, where
from evidence.tables import table as lines_of
from manyhands import AnnotationTable, DawidSkene, MajorityVote, decide
from manyhands.annotations.scales import SKEWED
from manyhands.datasets.base import data_home
from manyhands.inference import confusion_em
from manyhands.inference.confusion_prior import ConfusionPrior
from manyhands.inference.dependence import NEGLIGIBLE, NEGLIGIBLE_ON_GRADES
from manyhands.metrics import accuracy, ranked_probability_score

TABLES = {
    "web": ("aggregation", "web"),
    "adult_content": ("aggregation", "adult_content"),
    "relevance3": ("aggregation", "relevance"),
    "polit6": ("ordinal", "polit6"),
    "polit6e": ("ordinal", "polit6e"),
    "metlit5": ("ordinal", "metlit5"),
    "summ_coherence": ("judges", "summeval", "llm", "coherence"),
    "summ_consistency": ("judges", "summeval", "llm", "consistency"),
    "summ_fluency": ("judges", "summeval", "llm", "fluency"),
    "summ_relevance": ("judges", "summeval", "llm", "relevance"),
    "prompts10k": ("judges", "10k_prompts", "llm"),
    "cebab": ("judges", "cebab_stars", "llm"),
    "lgbteen": ("judges", "lgbteen", "llm"),
    "cebab_hum": ("judges", "cebab_stars", "person"),
    "prompts_hum": ("judges", "10k_prompts", "person"),
}
"""Folder, table, and of tables of people and models: who is judged, and the question."""

NAMES = ("cf", "cf_amt", "dog", "face_sentiment", "ms")
"""Names of classes, which are given an order here that they do not have."""

LGBTEEN = ["No", "Partially", "Yes"]
SHARE = 0.8
"""Of the mass in the shortest run of grades, which is to hold the true one so often."""

N_BOOTSTRAP = 2_000


class Graded(NamedTuple):
    """A table of grades 0, ..., K - 1, and the true ones of its instances, -1 where unknown."""

    table: AnnotationTable
    y: np.ndarray


# -- tables ----------------------------------------------------------------------------------------


def load(name: str) -> Graded:
    """Load one of `TABLES`, or of `NAMES`."""
    room, folder, *more = TABLES.get(name, ("aggregation", name))
    place = data_home() / room / folder
    file = place / "annotations.csv"
    rows = pd.read_csv(file if file.exists() else place / "annotations.csv.gz", dtype=str)
    rows = rows[rows["label"].notna()]
    if more:
        return _judged(rows, folder, *more)
    gold = pd.read_csv(place / "labels.csv", dtype=str).dropna(subset=["label"])
    rows, gold = (each.astype({"label": float}).astype({"label": int}) for each in (rows, gold))
    if name == "relevance3":  # Class 3, "broken link", is no degree of relevance.
        rows, gold = rows[rows["label"] < 3], gold[gold["label"] < 3]
    n_classes = int(max(rows["label"].max(), gold["label"].max())) + 1
    return _graded(rows, dict(zip(gold["task"], gold["label"], strict=True)), n_classes)


def _judged(rows: pd.DataFrame, folder: str, judged: str, question: str = "") -> Graded:
    """Judge people by the lower median of the models' grades of an item, or models by people's."""
    if question:
        rows = rows[rows["question"] == question]
    if folder == "lgbteen":  # Other answers are off the scale.
        rows = rows[rows["label"].isin(LGBTEEN)]
        rows = rows.assign(task=rows["task"] + rows["question"])
        grades = rows["label"].map(LGBTEEN.index)
    else:
        grades = rows["label"].astype(float).astype(int)
        grades -= grades.min()
    rows = rows.assign(label=grades.astype(int))
    is_model = rows["family"].fillna("") == "llm"
    own, others = (rows[is_model], rows[~is_model])[:: 1 if judged == "llm" else -1]
    truth = others.groupby("task")["label"].quantile(0.5, interpolation="lower").astype(int)
    own = own[own["task"].isin(truth.index)]
    return _graded(own, truth.to_dict(), int(rows["label"].max()) + 1)


def _graded(rows: pd.DataFrame, truth: dict[str, int], n_classes: int) -> Graded:
    table = AnnotationTable.from_frame(
        rows[["task", "worker", "label"]], classes=list(range(n_classes)), ordered=True,
        duplicates="keep",
    )  # fmt: skip
    return Graded(table, np.array([truth.get(task, -1) for task in table.instances.tolist()]))


def thinned(given: Graded, per_item: int, n_items: int, seed: int) -> Graded:
    """Keep some annotations of each item, of some of the items; 0 keeps all."""
    rng = np.random.default_rng([seed, per_item])
    table, y = given
    if n_items:
        rows = np.sort(rng.choice(np.flatnonzero(y >= 0), n_items, replace=False))
        table, y = table[rows], y[rows]
    if per_item:
        order = np.lexsort((rng.random(table.n_annotations), table.instance))
        place = np.arange(len(order)) - np.searchsorted(
            table.instance[order], table.instance[order]
        )
        table = table.take(np.sort(order[place < per_item]))
    return Graded(table, y)


# -- fits ------------------------------------------------------------------------------------------


@contextmanager
def without_severity() -> Iterator[None]:
    """Give grades the centre of the prior that names of classes have."""
    kept = ConfusionPrior.pseudo_counts

    def plain(self: Any, *given: Any, ordered: bool = False, **options: Any) -> Any:
        return kept(self, *given, **options)

    ConfusionPrior.pseudo_counts = plain  # type: ignore[method-assign]
    try:
        yield
    finally:
        ConfusionPrior.pseudo_counts = kept  # type: ignore[method-assign]


@contextmanager
def without_held_shares() -> Iterator[None]:
    """Estimate the shares of grades as those of names of classes."""
    kept = confusion_em.CLASS_PRIOR_WEIGHT
    confusion_em.CLASS_PRIOR_WEIGHT = 0.0
    try:
        yield
    finally:
        confusion_em.CLASS_PRIOR_WEIGHT = kept


FITS: dict[str, Callable[[], Any]] = {
    "today": nullcontext,
    "severity": without_held_shares,
    "held": without_severity,
    "both": nullcontext,
}


def posterior_of(table: AnnotationTable, fit: str) -> np.ndarray:
    """Posterior of a fit to the table, by one of `FITS`."""
    with FITS[fit]():
        given = table.with_scale("nominal") if fit == "today" else table
        return DawidSkene().fit(given).posterior_


def scores(p: np.ndarray, y: np.ndarray) -> Record:
    """Measure a posterior (n, K) by the true grades (n,)."""
    grades = np.arange(p.shape[1])
    top, median = p.argmax(axis=1), medians(p)
    return {
        "accuracy_top": accuracy(y, top),
        "accuracy": accuracy(y, median),
        "mae_top": float(np.abs(top - y).mean()),
        "mae": float(np.abs(median - y).mean()),
        "rps": ranked_probability_score(p, y, classes=grades),
        "nll": float(-np.log(likelihood(p, y)).mean()),
        "qwk": float(np.nan_to_num(cohen_kappa_score(y, median, weights="quadratic"))),
        "covered": covered(p, y),
    }


def medians(p: np.ndarray) -> np.ndarray:
    """Lower median of each row."""
    return (p.cumsum(axis=1) >= 0.5 - 1e-9).argmax(axis=1)


def covered(p: np.ndarray, y: np.ndarray) -> float:
    """Return how often the shortest run of grades with `SHARE` of the mass holds the true grade."""
    up_to = np.pad(p.cumsum(axis=1), [(0, 0), (1, 0)])
    best = np.full((len(p), 2), [0, p.shape[1]])
    mass = np.ones(len(p))
    for first in range(p.shape[1]):
        for end in range(first + 1, p.shape[1] + 1):
            inside = up_to[:, end] - up_to[:, first]
            width, least = end - first, best[:, 1] - best[:, 0]
            better = (width < least) | ((width == least) & (inside > mass))
            better &= inside >= SHARE - 1e-9
            best[better], mass[better] = [first, end], inside[better]
    return float(((best[:, 0] <= y) & (y < best[:, 1])).mean())


def difference(after: np.ndarray, before: np.ndarray) -> list[float]:
    """Mean difference of two losses of the same items, with the ends of its 95 % interval."""
    change = after - before
    rng = np.random.default_rng(0)
    drawn = [rng.choice(change, len(change)).mean() for _ in range(N_BOOTSTRAP)]
    return [float(change.mean()), *np.quantile(drawn, [0.025, 0.975]).tolist()]


def rps_of_items(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Ranked probability score of each item."""
    true = np.arange(p.shape[1]) >= y[:, None]
    return ((p.cumsum(axis=1) - true) ** 2)[:, :-1].sum(axis=1)


# -- parts -----------------------------------------------------------------------------------------


def measure_table(table: str) -> Record:
    """Compare the fits on a whole table."""
    given = load(table)
    judged = (given.y >= 0) & (given.table.annotations_per_instance() > 0)
    y = given.y[judged]
    p = {fit: posterior_of(given.table, fit)[judged] for fit in FITS}
    shares = MajorityVote().fit(given.table).posterior_[judged]
    return {
        "n": len(y),
        "per_item": given.table.n_annotations / given.table.n_instances,
        "fits": {fit: scores(each, y) for fit, each in p.items()},
        "votes": scores(shares, y),
        "mae_change": difference(
            *(np.abs(medians(p[fit]) - y).astype(float) for fit in ("both", "today"))
        ),
        "rps_change": difference(*(rps_of_items(p[fit], y) for fit in ("both", "today"))),
    }


def show_tables(records: list[Record]) -> Record:
    """Rows of the tables, and the means."""
    rows, parts = [], []
    for record in records:
        before, after = record["fits"]["today"], record["fits"]["both"]
        rows.append([
            record["table"], f"{record['n']:,}",
            f"{before['accuracy_top']:.3f} → {after['accuracy_top']:.3f}; {after['accuracy']:.3f}",
            f"{before['mae_top']:.3f} {before['mae']:.3f}; {after['mae']:.3f}",
            _change(record["mae_change"]), f"{before['rps']:.3f} {_change(record['rps_change'])}",
            f"{before['qwk']:.3f} → {after['qwk']:.3f}",
            f"{before['covered']:.2f} → {after['covered']:.2f}",
        ])  # fmt: skip
    heading = [
        "table", "gold", "accuracy: today → new argmax; median",
        "MAE: today argmax, median; new median", "change of MAE (medians)", "RPS: today, change",
        "QWK of medians", f"coverage of {SHARE:.0%} runs",
    ]  # fmt: skip
    names = {"today": "today", "held": "shares held alone", "severity": "severity alone",
             "both": "both"}  # fmt: skip
    fields = ("accuracy_top", "accuracy", "mae_top", "mae", "rps", "nll", "qwk", "covered")
    log_rps = {
        fit: np.array([np.log(r["fits"][fit]["rps"] / r["fits"]["today"]["rps"]) for r in records])
        for fit in FITS
    }
    for fit, name in names.items():
        change = log_rps[fit]
        error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.nan
        parts.append([
            name, *(f"{np.mean([r['fits'][fit][f] for r in records]):.3f}" for f in fields),
            "" if fit == "today" else f"{change.mean():+.1%} ± {error:.1%}",
        ])  # fmt: skip
    votes = [f"{np.mean([r['votes'][f] for r in records]):.3f}" for f in fields]
    parts.append(["shares of the votes", *votes, ""])
    means = lines_of(
        ["fit", "accuracy of argmax", "of median", "MAE of argmax", "of median", "RPS", "NLL",
         "QWK", "coverage", "log RPS"], parts,
    )  # fmt: skip
    return {"tables": lines_of(heading, rows), "means": means, "n_tables": len(records)}


def drawing(records: list[Record]) -> str:
    """Draw the distance from the known grade with and without the order, few labels first."""
    kinds = {"both": "as grades", "today": "as names of classes"}
    few = groups(where(records, part="few"), "table", "per_item", "n_items")
    full = groups(where(records, part="tables"), "table")
    kept = [(name, f"{n} an item" if n else f"{items} items") for name, n, items in few]
    cells = dict(zip(kept, few.values(), strict=True))
    cells |= {(name, "all labels"): own for name, own in full.items()}
    rows = []
    for names, own in cells.items():
        means = {
            w: float(np.mean([r["fits"][fit]["mae"] for r in own])) for fit, w in kinds.items()
        }
        rows.append(Row(", ".join(names), means))
    return dots("Mean distance of labels from the known grade, in grades", rows)


def _change(found: list[float]) -> str:
    value, low, high = found
    text = f"{value:+.3f} ({low:+.3f}, {high:+.3f})"
    return f"**{text}**" if low > 0 or high < 0 else text


FEW = (
    ("web", 2, 0), ("web", 3, 0), ("web", 4, 0), ("polit6e", 5, 0), ("adult_content", 3, 0),
    ("summ_relevance", 0, 200), ("cebab_hum", 2, 0),
)  # fmt: skip
DRAWS = range(100, 108)


def few_cells() -> Iterator[Record]:
    """Yield the tables that are thinned."""
    for table, per_item, n_items in FEW:
        for seed in DRAWS:
            yield {"table": table, "per_item": per_item, "n_items": n_items, "seed": seed}


def measure_few(table: str, per_item: int, n_items: int, seed: int) -> Record:
    """Compare the fits on part of a table."""
    given = thinned(load(table), per_item, n_items, seed)
    judged = (given.y >= 0) & (given.table.annotations_per_instance() > 0)
    y = given.y[judged]
    return {"fits": {f: scores(posterior_of(given.table, f)[judged], y) for f in FITS}}


def show_few(records: list[Record]) -> Record:
    """Rows of the thinned tables."""
    rows = []
    for (name, per_item, n_items), own in groups(records, "table", "per_item", "n_items").items():
        kept = f"{per_item} an item" if per_item else f"{n_items} items"
        cells = []
        for field in ("mae", "rps", "accuracy"):
            pairs = np.array([[r["fits"][f][field] for f in ("today", "both")] for r in own])
            change = pairs[:, 1] - pairs[:, 0]
            cells.append(
                f"{pairs[:, 0].mean():.3f} → {pairs[:, 1].mean():.3f} ({change.mean():+.3f} "
                f"± {change.std(ddof=1):.3f})"
            )
        rows.append([name, kept, *cells])
    return {"few": lines_of(["table", "kept", "MAE of the median", "RPS", "accuracy"], rows)}


# -- simulated -------------------------------------------------------------------------------------

CROWDS: dict[str, dict[str, Any]] = {
    "base": {},
    "strong severities": {"severity": 0.8},
    "no severity": {"severity": 0.0},
    "a third answer at random": {"guessing": 1 / 3},
    "few labels": {"votes": 2},
    "the order says nothing": {"shuffled": True},
    "four grades, 97:1:1:1": {"shares": (0.97, 0.01, 0.01, 0.01)},
    "the same, better annotators": {"shares": (0.97, 0.01, 0.01, 0.01), "noise": (0.3, 0.5)},
}


def crowd(
    seed: int,
    n: int = 500,
    n_annotators: int = 50,
    votes: int = 5,
    severity: float = 0.4,
    guessing: float = 0.0,
    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.25, 0.15),
    noise: tuple[float, float] = (0.4, 0.9),
    *,
    shuffled: bool = False,
) -> tuple[Graded, np.ndarray]:
    """Draw a crowd that sees grades with noise and severities; return these, in grades, too."""
    rng = np.random.default_rng(seed)
    k = len(shares)
    y = rng.choice(k, n, p=shares)
    bias, spread = rng.normal(0, severity, n_annotators), rng.uniform(*noise, n_annotators)
    cuts = np.arange(k - 1) + 0.5 - np.arange(k)[:, None]
    up_to = norm.cdf((cuts - bias[:, None, None]) / spread[:, None, None])
    given = np.diff(np.pad(up_to, [(0, 0), (0, 0), (1, 1)], constant_values=(0, 1)), axis=2)
    given[rng.random(n_annotators) < guessing] = 1 / k
    row = np.repeat(np.arange(n), votes)
    who = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :votes].ravel()
    number = rng.random((len(row), 1))
    label = (number > given[who, y[row]].cumsum(axis=1)).sum(axis=1).clip(max=k - 1)
    planted = np.einsum(
        "c,rck,ck->r", np.bincount(y, minlength=k) / n, given, np.arange(k) - np.arange(k)[:, None]
    )
    if shuffled:
        names = rng.permutation(k)
        y, label = names[y], names[label]
    table = AnnotationTable.from_arrays(
        row, who, label, classes=list(range(k)), n_annotators=n_annotators, ordered=True
    )
    return Graded(table, y), planted


def measure_crowd(crowd_of: str, seed: int) -> Record:
    """Compare the fits on a simulated crowd."""
    (table, y), _ = crowd(seed, **CROWDS[crowd_of])
    return {"fits": {fit: scores(posterior_of(table, fit), y) for fit in FITS}}


def show_crowds(records: list[Record]) -> Record:
    """Rows of the simulated crowds."""
    rows = []
    for name, own in groups(records, "crowd_of").items():
        cells = []
        for fit in FITS:
            values = np.array([r["fits"][fit]["rps"] for r in own])
            cells.append(f"{values.mean():.3f} ± {values.std(ddof=1):.3f}")
        accuracies = [mean([r["fits"][fit] for r in own], "accuracy") for fit in ("today", "both")]
        rows.append([name, *cells, " → ".join(f"{value:.3f}" for value in accuracies)])
    heading = ["crowd", "RPS today", "severity alone", "shares held alone", "both", "accuracy"]
    return {"crowds": lines_of(heading, rows)}


EACH = (20, 50, 200)


def measure_severity(each: int, seed: int) -> Record:
    """Compare severities with planted ones, of 40 annotators."""
    (table, _), planted = crowd(seed, n=8 * each, n_annotators=40, severity=0.5)
    model = DawidSkene().fit(table)
    names = DawidSkene().fit(table.with_scale("nominal"))
    k = table.n_classes
    distance = np.arange(k) - np.arange(k)[:, None]
    before = np.einsum("c,rck,ck->r", names.class_prior_, names.confusion_, distance)
    off = model.severity_ - planted
    alone = off - off.mean()
    return {
        "before": float((before - planted).std() ** 2 + (before - planted).mean() ** 2),
        "after": float((off**2).mean()),
        "shared": float(off.mean() ** 2),
        "covered": float((np.abs(off) < 1.96 * model.severity_se_).mean()),
        "covered_alone": float((np.abs(alone) < 1.96 * model.severity_se_).mean()),
    }


def show_severity(records: list[Record]) -> Record:
    """Errors of severities, and how often intervals hold them."""
    rows = [
        [
            f"{each}", *(f"{np.sqrt(mean(own, f)):.2f}" for f in ("before", "after", "shared")),
            f"{mean(own, 'covered'):.0%}", f"{mean(own, 'covered_alone'):.0%}",
        ]
        for each, own in groups(records, "each").items()
    ]  # fmt: skip
    heading = ["annotations of each", "RMSE today", "new", "of it shared by all",
               "95 % intervals hold", "without what all share"]  # fmt: skip
    return {"severity": lines_of(heading, rows)}


SKEW = {
    "at an end": (0, (0.4, 0.9)),
    "at an end, better annotators": (0, (0.3, 0.5)),
    "in the middle": (2, (0.4, 0.9)),
    "in the middle, better annotators": (2, (0.3, 0.5)),
}
"""Where the commonest of five grades is, and the noise of the annotators."""

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""Of the instances that have the commonest grade; the others have the other four equally."""


def measure_skew(kind: str, share: float, seed: int) -> Record:
    """Compare the fits where one grade is common; "labels" is its share of the labels."""
    common, noise = SKEW[kind]
    shares = np.full(5, (1 - share) / 4)
    shares[common] = share
    (table, y), _ = crowd(seed, shares=tuple(shares.tolist()), noise=noise)
    top = np.bincount(table.label, minlength=5).max() / table.n_annotations
    fits = {fit: scores(posterior_of(table, fit), y) for fit in ("today", "both")}
    return {"labels": float(top), "fits": fits}


def show_skew(records: list[Record]) -> Record:
    """Rows of the shares, a column for each of `SKEW`."""
    rows = []
    for share, own in groups(records, "share").items():
        cells = []
        for some in groups(own, "kind").values():
            pairs = np.array([[r["fits"][f]["accuracy"] for f in ("today", "both")] for r in some])
            change = pairs[:, 1] - pairs[:, 0]
            error = change.std(ddof=1) / np.sqrt(len(change))
            text = f"{mean(some, 'labels'):.0%}: {change.mean():+.3f} ± {error:.3f}"
            cells.append(f"**{text}**" if abs(change.mean()) > 2 * error else text)
        rows.append([f"{share:.0%}", *cells])
    return {"skew": lines_of(["true share", *SKEW], rows), "skewed": f"{SKEWED:.0%}"}


# -- names of classes, and cost --------------------------------------------------------------------


def measure_names(table: str) -> Record:
    """Compare the fits where an order is made up."""
    return measure_table(table)


def show_names(records: list[Record]) -> Record:
    """Rows of tables of names."""
    rows = [
        [r["table"], *(f"{r['fits'][fit]['accuracy_top']:.3f}" for fit in FITS)] for r in records
    ]
    heading = ["table", "as names", "severity alone", "shares held alone", "as grades"]
    return {"names": lines_of(heading, rows)}


def large(n_annotators: int) -> Graded:
    """Draw a million annotations in five grades, by annotators who err independently."""
    rng = np.random.default_rng(0)
    n, votes, k = 200_000, 5, 5
    y = rng.choice(k, n, p=[0.1, 0.2, 0.3, 0.25, 0.15])
    row = np.repeat(np.arange(n), votes)
    step = rng.integers(1, n_annotators // votes, n)
    who = (rng.integers(0, n_annotators, n)[:, None] + np.arange(votes) * step[:, None]).ravel()
    who %= n_annotators
    bias, noise = rng.normal(0, 0.4, n_annotators), rng.uniform(0.4, 0.9, n_annotators)
    seen = y[row] + bias[who] + noise[who] * rng.normal(size=n * votes)
    label = np.rint(seen).clip(0, k - 1).astype(int)
    table = AnnotationTable.from_arrays(
        row, who, label, classes=list(range(k)), n_annotators=n_annotators, ordered=True
    )
    return Graded(table, y)


def measure_cost(n_annotators: int, subtypes: Any) -> Record:
    """Measure CPU seconds of fits to grades and to names, in turns."""
    table, y = large(n_annotators)
    seconds: dict[str, list[float]] = {"names": [], "grades": []}
    tried, errors, dependence = {}, {}, {}
    for _ in range(5):
        for name, given in (("names", table.with_scale("nominal")), ("grades", table)):
            begin = process_time()
            model = DawidSkene(n_subtypes=subtypes).fit(given)
            seconds[name].append(process_time() - begin)
            tried[name] = len(model.evidence_)
            dependence[name] = model.dependence_
            errors[name] = float(np.abs(decide(model.posterior_, "median") - y).mean())
    names, grades = (float(np.median(seconds[name])) for name in ("names", "grades"))
    found = {"tried": tried, "mae": errors, "dependence": dependence}
    return {"names": names, "grades": grades, "ratio": grades / names, **found}


def show_cost(records: list[Record]) -> Record:
    """Rows of costs."""
    rows = [
        [
            f"{r['n_annotators']:,}", str(r["subtypes"]),
            f"{r['tried']['names']}, {r['tried']['grades']}",
            f"{r['names']:.2f}", f"{r['grades']:.2f}", f"{r['ratio']:.2f}",
            *(f"{r[key]['names']:.3f}, {r[key]['grades']:.3f}" for key in ("dependence", "mae")),
        ]
        for r in records
    ]  # fmt: skip
    heading = ["annotators", "n_subtypes", "models fitted: names, grades", "CPU s, names",
               "grades", "ratio", "dependence: names, grades",
               "MAE of the median: names, grades"]  # fmt: skip
    return {"cost": lines_of(heading, rows), **_limits()}


def _limits() -> Record:
    return {"negligible": f"{NEGLIGIBLE:g}", "negligible_on_grades": f"{NEGLIGIBLE_ON_GRADES:g}"}


PARTS = {
    "tables": Part(measure_table, show_tables, lambda: grid(table=TABLES)),
    "few": Part(measure_few, show_few, few_cells),
    "crowds": Part(measure_crowd, show_crowds, lambda: grid(crowd_of=CROWDS, seed=range(100, 108))),
    "severity": Part(measure_severity, show_severity, lambda: grid(each=EACH, seed=range(20))),
    "skew": Part(
        measure_skew, show_skew, lambda: grid(kind=SKEW, share=SHARES, seed=range(100, 108))
    ),
    "names": Part(measure_names, show_names, lambda: grid(table=NAMES)),
    "cost": Part(
        measure_cost, show_cost, lambda: grid(n_annotators=(2_000, 20_000), subtypes=(1, 2, "auto"))
    ),
}


def folders(cell: Any) -> list[str]:
    """Name the folder that a cell reads."""
    name = cell.get("table")
    return ["/".join(TABLES.get(name, ("aggregation", name))[:2])] if name else []


STUDY: Study = of_parts(
    __file__,
    PARTS,
    data=folders,
    drawings=lambda records: {"ordinal-distance.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
