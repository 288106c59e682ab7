"""Judges beside people: verdicts, intervals, shares of all items, and which labels to use.

Six sets of people and language models who label the same items (``MANYHANDS_DATA``). There is no
gold: people are the yardstick. Where a truth is needed, a real person takes the place of a model.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, ttest_1samp

import manyhands as mh
from benchmarks.bars import Row, dots
from benchmarks.collapse import as_before
from evidence.study import Part, Record, grid, mean, of_parts, table, where
from manyhands.agreement import compare_judges
from manyhands.agreement.judges import CAN, CANNOT, OPEN
from manyhands.datasets import load_judgebench
from manyhands.datasets.base import data_home
from manyhands.metrics import expected_calibration_error, mean_estimate
from manyhands.typing import AnyArray

SETS = ("lgbteen", "framing", "summeval", "cebab_stars", "10k_prompts", "mtbench")
WITH_THREE = SETS[:-1]
"""Sets of which three people labelled more than a few items."""

SCORES = ("summeval", "cebab_stars", "10k_prompts")
"""Sets whose labels are scores."""

EPSILON = dict.fromkeys(SETS, 0.15) | {"lgbteen": 0.2, "summeval": 0.2, "mtbench": 0.2}
EPSILON |= {"cebab_stars": 0.1}
"""Margin of the alternative annotator test: crowds .1, skilled annotators .15, experts .2."""

SIZES = (50, 100, 200)
TRUE = (0.5, 0.8, 1.0)
BLOCKS, DRAWS = 5, 20
LABELLED = (25, 50, 100, 200)


@cache
def frame_of(name: str) -> pd.DataFrame:
    """Annotations, one row each."""
    path = data_home() / "judges" / name / "annotations.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return frame.drop_duplicates(["task", "worker"])


@cache
def loaded(name: str) -> tuple[mh.AnnotationTable, Record]:
    """The table, and question and cluster of its instances."""
    frame = frame_of(name)
    made = mh.AnnotationTable.from_frame(frame, group="family", ordered=name in SCORES)
    items = frame.drop_duplicates("task").set_index("task").loc[made.instances]
    asked = items.question.to_numpy() if items.question.iloc[0] else None
    return made, {"question": asked, "cluster": items.cluster.to_numpy()}


def compared(table: mh.AnnotationTable, about: Record, rows: Any = None, people: Any = None) -> Any:
    """Compare judges on some of the instances, without warnings."""
    if rows is not None:
        about = {name: None if v is None else v[rows] for name, v in about.items()}
        table = table[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compare_judges(table, people, **about)


# -- whole sets, beside the alternative annotator test ---------------------------------------------


def winning_rate(given: AnyArray, judge: AnyArray, epsilon: float, *, scores: bool) -> Record:
    """Winning rate and advantage probability of the alternative annotator test.

    Parameters
    ----------
    given : array of shape (n, people)
        Labels as numbers, NaN where missing.
    judge : array of shape (n,)
    """
    p_values, wins = [], []
    for j in range(given.shape[1]):
        others = np.delete(given, j, axis=1)
        n_others = (~np.isnan(others)).sum(axis=1)
        rows = ~np.isnan(given[:, j]) & ~np.isnan(judge) & (n_others > 0)
        if rows.sum() < 30:
            continue
        others, n_others = others[rows], n_others[rows]
        known = ~np.isnan(others)

        def score(
            labels: AnyArray, others: AnyArray = others, known: AnyArray = known,
            n: AnyArray = n_others,
        ) -> AnyArray:  # fmt: skip
            away = np.where(known, others - labels[:, None], 0.0)
            if scores:
                return -np.sqrt((away**2).sum(axis=1) / n)
            return (known & (away == 0)).sum(axis=1) / n

        mine, person = score(judge[rows]), score(given[rows, j])
        judge_wins, person_wins = mine >= person, person >= mine
        d = person_wins.astype(float) - judge_wins
        wins.append(judge_wins.mean())
        p = 0.0 if np.ptp(d) == 0 and d[0] < epsilon else 1.0
        if np.ptp(d) > 0:
            p = ttest_1samp(d, epsilon, alternative="less").pvalue
        p_values.append(p)
    adjusted = false_discovery_control(p_values, method="by")
    return {"winning_rate": float((adjusted < 0.05).mean()), "advantage": float(np.mean(wins))}


def measure_whole(set: str) -> Record:
    """All judges of a set, with all items."""
    made, about = loaded(set)
    started = process_time()
    found = compared(made, about)
    seconds = process_time() - started
    matrix = made.to_matrix(codes=True).astype(float)
    matrix[matrix < 0] = np.nan
    names = made.annotators.tolist()
    humans = [names.index(name) for name in names if made.groups[names.index(name)] == ""]
    judges = []
    for judge in found.judges:
        own = matrix[:, names.index(judge.name)]
        rate = winning_rate(matrix[:, humans], own, EPSILON[set], scores=set in SCORES)
        numbers = {k: float(getattr(judge, k)) for k in ("r", "low", "high")}
        judges.append({"name": judge.name, "verdict": judge.verdict, **numbers, **rate})
    return {"judges": judges, "compared": seconds, "labels": made.n_annotations,
            "kappa": found.kappa, "items": found.n_items,
            "left_out": [person.name for person in found.left_out]}  # fmt: skip


def page_whole(records: list[Record]) -> Record:
    """A row per judge."""
    rows = [
        [r["set"], j["name"], f"{j['r']:.2f}", f"{j['low']:.2f} to {j['high']:.2f}", j["verdict"],
         f"{j['winning_rate']:.2f}", f"{j['advantage']:.2f}"]
        for r in records for j in r["judges"]
    ]  # fmt: skip
    heads = ["set", "judge", "r", "95 % interval", "verdict", "winning rate", "advantage"]
    both = [j for r in records for j in r["judges"]]
    passes = [j for j in both if j["winning_rate"] >= 0.5]
    return {
        "judges": table(heads, rows),
        "n_judges": len(both),
        "n_passes": len(passes),
        "n_passes_cannot": sum(j["verdict"] == CANNOT for j in passes),
        "n_can": sum(j["verdict"] == CAN for j in both),
    }


def drawing(records: list[Record]) -> str:
    """Draw r of every model on every set, with its interval."""
    rows = [
        Row(f"{r['set']}, {j['name']}", {"r": j["r"]}, (j["low"], j["high"]), j["verdict"] == CAN)
        for r in where(records, part="whole")
        for j in r["judges"]
    ]
    title = "r with its 95 % interval (bold: can stand in, as the whole interval is above 0.8)"
    return dots(title, rows, target=0.8)


# -- a judge that reads nothing --------------------------------------------------------------------


def measure_empty(set: str) -> Record:
    """A judge that gives the most frequent label of each question."""
    made, about = loaded(set)
    frame = made.to_frame()
    people = frame[frame.group.isna()]
    asked = about["question"]
    question = pd.Series("" if asked is None else asked, index=made.instances)
    most = people.label.astype(str).groupby(people.task.map(question)).agg(lambda v: v.mode()[0])
    labels = question.map(most)
    own = pd.DataFrame({"task": made.instances, "worker": "empty", "label": labels.to_numpy(),
                        "family": "llm"})  # fmt: skip
    rows = frame_of(set)
    rows = rows[rows.family != "llm"]
    both = pd.concat([rows[["task", "worker", "label", "family"]], own])
    every = mh.AnnotationTable.from_frame(both, group="family", ordered=set in SCORES)
    place = pd.Series(np.arange(made.n_instances), index=made.instances).loc[every.instances]
    about = {k: None if v is None else v[place.to_numpy()] for k, v in about.items()}
    within = compared(every, about).judges[0]
    pooled = compared(every, about | {"question": None}).judges[0]
    matrix = every.to_matrix(codes=True).astype(float)
    matrix[matrix < 0] = np.nan
    names = every.annotators.tolist()
    j = names.index("empty")
    rate = winning_rate(
        np.delete(matrix, j, axis=1), matrix[:, j], EPSILON[set], scores=set in SCORES
    )
    return {"within": float(within.r), "pooled": float(pooled.r), **rate}


def page_empty(records: list[Record]) -> Record:
    """A row per set."""
    rows = [
        [r["set"], f"{abs(r['within']):.2f}", f"{r['pooled']:.2f}", f"{r['winning_rate']:.2f}"]
        for r in records
    ]
    heads = ["set", "r within questions", "r without the question", "winning rate"]
    return {"empty": table(heads, rows)}


# -- real people as the judge, and language models, on few items -----------------------------------


@cache
def people_of(name: str) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Matrix of codes of people, and which items have three or more of them.

    Without people who are no yardstick on the whole set: as judges, they would not have r = 1.
    """
    made, about = loaded(name)
    gone = [person.name for person in compared(made, about).left_out]
    who = np.flatnonzero((made.groups == "") & ~np.isin(made.annotators, gone))
    matrix = made.to_matrix(codes=True)[:, who]
    return matrix, np.flatnonzero((matrix >= 0).sum(axis=1) >= 3), who


def with_person_as_judge(name: str, rows: AnyArray, share: float, rng: Any) -> Any:
    """A table in which a random person of each item is the judge, diluted by others' labels."""
    made, about = loaded(name)
    matrix, _, _who = people_of(name)
    own = matrix[rows].copy()
    judge = np.empty(len(rows), dtype=np.int64)
    for i, labels in enumerate(own):
        drawn = rng.choice(np.flatnonzero(labels >= 0))
        judge[i] = labels[drawn]
        own[i, drawn] = -1
    asked = np.zeros(len(rows)) if about["question"] is None else about["question"][rows]
    for value in np.unique(asked):
        at = np.flatnonzero(asked == value)
        if len(at) > 1:  # The labels of other items: those of a derangement.
            shifted = judge[np.roll(at, rng.integers(1, len(at)))]
            judge[at] = np.where(rng.random(len(at)) < share, judge[at], shifted)
    codes = np.column_stack([own, judge])
    classes = made.classes
    ordered = name in SCORES
    every = mh.AnnotationTable.from_matrix(
        np.where(codes >= 0, codes, -1), classes=range(len(classes)), ordered=ordered or None
    )
    return every, {k: None if v is None else v[rows] for k, v in about.items()}


def measure_people(set: str, n: int, share: float, block: int) -> Record:
    """Measure how often the interval holds the truth, and what the verdicts are."""
    _, enough, _ = people_of(set)
    found: dict[str, list[float]] = {"covered": [], CAN: [], CANNOT: [], "half": []}
    for draw in range(DRAWS):
        rng = np.random.default_rng([block, draw, n, round(100 * share)])
        rows = rng.choice(enough, min(n, len(enough)), replace=False)
        every, about = with_person_as_judge(set, rows, share, rng)
        (judge,) = compared(every, about, people=np.arange(every.n_annotators - 1)).judges
        found["covered"].append(judge.low <= share <= judge.high)
        found[CAN].append(judge.verdict == CAN)
        found[CANNOT].append(judge.verdict == CANNOT)
        if np.isfinite(judge.high - judge.low):
            found["half"].append((judge.high - judge.low) / 2)
    return {name: float(np.mean(v)) if v else float("nan") for name, v in found.items()}


def cells_people() -> Iterator[Record]:
    """Sizes, shares and blocks of draws, of sets with three people on enough items."""
    yield from grid(set=WITH_THREE, n=SIZES, share=TRUE, block=range(BLOCKS))


def measure_llms(set: str, n: int, block: int) -> Record:
    """Verdicts on few items, against the whole set."""
    made, about = loaded(set)
    people = made.annotators[made.groups == ""]
    whole = {judge.name: judge for judge in compared(made, about).judges}
    best = max(whole.values(), key=lambda judge: judge.kappa).name
    several = np.flatnonzero(
        made.select(annotators=people.tolist()).annotations_per_instance() >= 2
    )
    right, wrong, decided, kept, size = [], [], [], [], []
    for draw in range(DRAWS):
        rng = np.random.default_rng([block, draw, n])
        rows = rng.choice(several, min(n, len(several)), replace=False)
        judges = compared(made, about, rows).judges
        for judge in judges:
            is_good = whole[judge.name].r > 0.8
            decided.append(judge.verdict != OPEN)
            right.append(judge.verdict == (CAN if is_good else CANNOT))
            wrong.append(judge.verdict == (CANNOT if is_good else CAN))
        kept.append(any(judge.name == best and judge.may_be_best for judge in judges))
        size.append(sum(judge.may_be_best for judge in judges))
    values = {"right": right, "wrong": wrong, "decided": decided, "kept": kept, "size": size}
    return {name: float(np.mean(v)) for name, v in values.items()}


def page_few(records: list[Record]) -> Record:
    """Coverage and verdicts by the number of items."""
    people, llms = where(records, part="people"), where(records, part="llms")
    rows = []
    for n in SIZES:
        own = where(people, n=n)
        if not own or not where(llms, n=n):
            continue
        each = {
            (s, share): mean(where(own, set=s, share=share), "covered")
            for s in WITH_THREE for share in TRUE
        }  # fmt: skip
        covered = list(each.values())
        false_can = [mean(where(own, set=s, share=0.8), CAN) for s in WITH_THREE]
        halves = [r["half"] for r in own if r["half"] == r["half"]]
        of_llms = where(llms, n=n)
        rows.append([
            str(n), f"{np.mean(covered):.3f} ({np.min(covered):.2f})",
            f"{np.mean(false_can):.2f} ({np.max(false_can):.2f})",
            f"{mean(where(own, share=1.0), CAN):.2f}", f"{mean(where(own, share=0.5), CANNOT):.2f}",
            f"{np.median(halves):.2f}", f"{mean(of_llms, 'right'):.2f}",
            f"{mean(of_llms, 'wrong'):.3f}", f"{mean(of_llms, 'kept'):.2f}",
            f"{mean(of_llms, 'size'):.1f}",
        ])  # fmt: skip
    heads = ["items", "coverage (least)", "false “can”, r = .8 (most)", "“can”, r = 1",
             "“cannot”, r = .5", "half width", "models: decided rightly", "wrongly",
             "best is in its set", "judges in that set"]  # fmt: skip
    return {"few": table(heads, rows)}


# -- shares of all items ---------------------------------------------------------------------------


def measure_estimates(set: str, n: int) -> Record:
    """Measure estimates of a person's labels of all items from n of them."""
    made, _ = loaded(set)
    matrix = made.to_matrix(codes=True)
    is_human = made.groups == ""
    rng = np.random.default_rng(0)
    humans, models = matrix[:, is_human], matrix[:, ~is_human]
    has = (humans >= 0).any(axis=1) & (models >= 0).all(axis=1)
    humans, models = humans[has], models[has]
    truth = np.array([rng.choice(row[row >= 0]) for row in humans])
    if n >= len(truth) / 2:
        return {"rows": []}
    c = made.n_classes
    shares = (models[:, :, None] == np.arange(c)).mean(axis=1)
    best = np.argmax((models == truth[:, None]).mean(axis=0))
    others = np.delete(models, best, axis=1)
    targets = {
        f"share of {k}": ((truth == k).astype(float), shares[:, k])
        for k in range(c) if (truth == k).mean() > 0
    }  # fmt: skip
    right = (models[:, best] == truth).astype(float)
    targets["accuracy of the best model"] = (right, (others == models[:, [best]]).mean(axis=1))
    if set in SCORES:
        targets["mean score"] = (truth.astype(float), models.mean(axis=1))
    rows = []
    for name, (y, f) in targets.items():
        hits, widths, alone = [], [], []
        for draw in range(200):
            few = np.random.default_rng([draw, n]).choice(len(y), n, replace=False)
            found = mean_estimate(y[few], f[few], f)
            bare = mean_estimate(y[few], np.zeros(n), np.zeros(len(y)))
            hits.append(found.low <= y.mean() <= found.high)
            widths.append((found.high - found.low) / (bare.high - bare.low))
            alone.append((bare.high - bare.low) / 2)
        kind = name if not name.startswith("share") else (
            "share below .12" if y.mean() < 0.12 else "share of a class")  # fmt: skip
        rows.append({"kind": kind, "covered": float(np.mean(hits)),
                     "width": float(np.mean(widths)), "alone": float(np.mean(alone)),
                     "r2": float(np.corrcoef(y, f)[0, 1] ** 2) if np.ptp(f) else 0.0})  # fmt: skip
    return {"rows": rows}


def page_estimates(records: list[Record]) -> Record:
    """A row per kind of quantity."""
    every = [{**row, "n": r["n"]} for r in records for row in r["rows"]]
    rows = []
    for kind in ("mean score", "share of a class", "share below .12", "accuracy of the best model"):
        own = where(every, kind=kind)
        widths = " ".join(f"{mean(where(own, n=n), 'width'):.2f}" for n in LABELLED)
        covered = [row["covered"] for row in own]
        rows.append([kind, f"{mean(own, 'r2'):.2f}", widths,
                     f"{np.mean(covered):.3f} ({np.min(covered):.2f})",
                     f"{mean(where(own, n=100), 'alone'):.3f}"])  # fmt: skip
    sizes = ", ".join(map(str, LABELLED))
    heads = ["", "R²", f"width against people alone, n = {sizes}", "coverage (least)",
             "± of people alone, n = 100"]  # fmt: skip
    return {"estimates": table(heads, rows)}


# -- which labels to use ---------------------------------------------------------------------------

LABELS = (
    *((0, m) for m in ("majority of the models", "DawidSkene, undeclared", "DawidSkene, family")),
    *((1, m) for m in ("the person", "DawidSkene, undeclared", "DawidSkene, family")),
    *((2, m) for m in ("majority of people", "DawidSkene, undeclared", "DawidSkene, family")),
)


def measure_labels(set: str, people: int, method: str, seed: int) -> Record:
    """Accuracy of labels against another person's."""
    frame = frame_of(set)
    models = frame[frame.family == "llm"]
    humans = frame[frame.family != "llm"].sample(frac=1, random_state=seed)
    order = humans.groupby("task").cumcount()
    y = humans[order == 0].set_index("task").label
    given = humans[(order > 0) & (order <= people)]
    size = given.groupby("task").size()
    kept = y.index if people == 0 else size[size == people].index
    if len(kept) < 50:
        return {"accuracy": None}
    classes = sorted(frame.label.unique())
    parts = {"majority of the models": [models], "the person": [given],
             "majority of people": [given]}.get(method, [models, given])  # fmt: skip
    rows = pd.concat(parts)
    every = mh.AnnotationTable.from_frame(rows[rows.task.isin(kept)], group="family",
                                          classes=classes)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        is_ds = method.startswith("DawidSkene")
        groups = {} if "undeclared" in method else None
        model = mh.DawidSkene() if is_ds else mh.MajorityVote(ties="random", random_state=seed)
        model.fit(every, groups=groups if is_ds else {})
    return {"accuracy": float((model.labels_ == y.loc[every.instances].to_numpy()).mean())}


def page_labels(records: list[Record]) -> Record:
    """Accuracy by set, people per item and method."""
    rows = []
    for people, method in LABELS:
        cells = []
        for name in SETS:
            own = [r for r in where(records, set=name, people=people, method=method)
                   if r["accuracy"] is not None]  # fmt: skip
            cells.append(f"{mean(own, 'accuracy'):.2f}" if own else "")
        rows.append([str(people), method, *cells])
    return {"labels": table(["people per item", "", *SETS], rows)}


# -- people on a part of the items, and what to check ----------------------------------------------

PART = 100
"""Items that a person has labelled, where people label a part."""


def models_of(set: str, seed: int) -> tuple[mh.AnnotationTable, AnyArray, AnyArray]:
    """The models' labels, and those of one and of a second person (or None) for each item."""
    frame = frame_of(set)
    humans = frame[frame.family != "llm"].sample(frac=1, random_state=seed)
    order = humans.groupby("task").cumcount()
    first, second = (humans[order == k].set_index("task").label for k in (0, 1))
    models = frame[(frame.family == "llm") & frame.task.isin(first.index)]
    every = mh.AnnotationTable.from_frame(
        models, group="family", classes=sorted(frame.label.unique())
    )
    both = (each.reindex(every.instances).to_numpy(dtype=object) for each in (first, second))
    return every, *both


def fitted(model: Any, table: mh.AnnotationTable, **options: Any) -> Any:
    """Fit without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(table, **options)


def measure_known(set: str, seed: int) -> Record:
    """One person's labels of 100 random items, as gold or as annotations: the other items."""
    every, first, _ = models_of(set, seed)
    given = np.random.default_rng(seed).choice(every.n_instances, PART, replace=False)
    if every.n_instances < 2 * PART:
        return {}
    rest = np.setdiff1d(np.arange(every.n_instances), given)
    person = pd.DataFrame(
        {"task": every.instances[given], "worker": "person", "label": first[given]}
    )
    both = pd.concat([every.to_frame()[["task", "worker", "label"]], person])
    joined = mh.AnnotationTable.from_frame(both, classes=every.classes)
    joined = joined[np.array([joined.instances.tolist().index(i) for i in every.instances])]
    gold = dict(zip(every.instances[given], first[given], strict=True))
    families = dict.fromkeys(every.annotators, "llm")
    models = {
        "GoldCorrected, the person's labels as gold": fitted(
            mh.GoldCorrected(), every, gold=gold, groups={}
        ),
        "DawidSkene, the person as an annotator": fitted(mh.DawidSkene(), joined, groups={}),
        "DawidSkene, with the models as a family": fitted(mh.DawidSkene(), joined, groups=families),
    }
    codes = np.searchsorted(every.classes, first[rest].astype(every.classes.dtype))
    return {
        name: {"accuracy": float((model.labels_[rest] == first[rest]).mean()),
               "ece": float(expected_calibration_error(model.posterior_[rest], codes,
                                                          classes=range(every.n_classes)))}
        for name, model in models.items()
    }  # fmt: skip


def page_known(records: list[Record]) -> Record:
    """Accuracy and calibration, a row per method."""
    names = list(next(r for r in records if len(r) > 8))
    rows = []
    for name in (n for n in names if "person" in n or "family" in n):
        cells = []
        for each in SETS:
            own = [r[name] for r in records if r["set"] == each and name in r]
            cells.append(f"{mean(own, 'accuracy'):.2f} ({mean(own, 'ece'):.2f})" if own else "")
        rows.append([name, *cells])
    return {"known": table(["", *SETS], rows)}


QUEUES = {
    "DawidSkene's labels, by its doubt": ("ds", "ds"),
    "DawidSkene's labels, by the models' votes": ("ds", "votes"),
    "the models' majority, by their votes": ("votes", "votes"),
    "GoldCorrected's labels, by its doubt": ("gold", "gold"),
}


def measure_queue(set: str, seed: int) -> Record:
    """Measure how wrong labels concentrate in the first tenth, and the gain of checking a fifth.

    The models are undeclared; `GoldCorrected` has one person's labels of 50 random items, which are
    not counted. A second person says what is right after the first has checked.
    """
    every, first, second = models_of(set, seed)
    rng = np.random.default_rng(seed)
    few = rng.choice(every.n_instances, 50, replace=False)
    rest = np.setdiff1d(np.arange(every.n_instances), few)
    gold = dict(zip(every.instances[few], first[few], strict=True))
    models = {
        "ds": fitted(mh.DawidSkene(), every, groups={}),
        "votes": fitted(mh.MajorityVote(ties="random", random_state=seed), every, groups={}),
        "gold": fitted(mh.GoldCorrected(), every, gold=gold, groups={}),
    }
    judged = np.array([value is not None and value == value for value in second])
    found = {}
    for name, (labels, doubts) in QUEUES.items():
        given, proba = models[labels].labels_, models[doubts].posterior_
        codes = np.searchsorted(every.classes, given)
        doubt = 1 - proba[np.arange(len(codes)), codes] + 1e-6 * rng.random(len(codes))
        order = rest[np.argsort(-doubt[rest])]
        wrong = given != first
        row = {"lift": float(wrong[order[: len(rest) // 10]].mean() / wrong[rest].mean())}
        if judged[rest].mean() > 0.5:
            after = given.astype(object)
            n = len(rest) // 5
            known = rest[judged[rest]]
            before = (after == second)[known].mean()
            for way, checked in (("queue", order[:n]), ("random", rng.choice(rest, n, False))):
                corrected = after.copy()
                corrected[checked] = first[checked]
                row[way] = float((corrected == second)[known].mean() - before)
        found[name] = row
    return {"queues": found}


def page_queue(records: list[Record]) -> Record:
    """The first tenth and the first fifth, a row per order."""
    lifts, gains = [], []
    for name in QUEUES:
        own = {s: [r["queues"][name] for r in where(records, set=s)] for s in SETS}
        lifts.append([name, *(f"{mean(own[s], 'lift'):.2f}" for s in SETS)])
        cells = [
            f"{mean(own[s], 'queue'):+.2f} / {mean(own[s], 'random'):+.2f}"
            if "queue" in own[s][0] else "" for s in SETS
        ]  # fmt: skip
        gains.append([name, *cells])
    return {"queue": table(["", *SETS], lifts), "checked": table(["", *SETS], gains)}


# -- biases of judges ------------------------------------------------------------------------------


def measure_uses(set: str) -> Record:
    """Classes that judges give surely more or less often than people."""
    made, about = loaded(set)
    uses = [
        {"judge": judge.name, "label": str(use.label), "own": use.judge, "people": use.people,
         "low": use.low, "high": use.high}
        for judge in compared(made, about).judges for use in judge.classes if use.is_certain
    ]  # fmt: skip
    return {"uses": sorted(uses, key=lambda use: -abs(use["own"] - use["people"]))}


def page_uses(records: list[Record]) -> Record:
    """The two greatest differences of each set, and how many judges use the first class so."""
    rows = []
    for r in records:
        for use in r["uses"][:2]:
            way = use["own"] > use["people"]
            alike = sum(
                other["label"] == use["label"] and (other["own"] > other["people"]) == way
                for other in r["uses"]
            )
            rows.append([
                r["set"], use["judge"], use["label"], f"{use['own']:.2f}", f"{use['people']:.2f}",
                f"{use['low']:+.2f} to {use['high']:+.2f}", f"{alike} of 6",
            ])  # fmt: skip
    heads = ["set", "judge", "label", "judge's share", "people's share", "difference",
             "judges who surely differ so"]  # fmt: skip
    return {"uses": table(heads, rows)}


# -- simulations, JudgeBench and time --------------------------------------------------------------


def crowd(skills: tuple[float, ...], n: int, n_classes: int, rng: Any) -> mh.AnnotationTable:
    """Annotators who know a share of the truth and guess the rest."""
    truth = rng.integers(0, n_classes, n)
    guess = rng.integers(0, n_classes, (n, len(skills)))
    known = rng.random((n, len(skills))) < skills
    return mh.AnnotationTable.from_matrix(
        np.where(known, truth[:, None], guess), classes=range(n_classes)
    )


def measure_simulated(n: int, classes: int, spammer: bool) -> Record:
    """Three people of skill .8, or two and one who guesses; judges of r = 1 and .8."""
    skills = (0.8, 0.8, 0.0 if spammer else 0.8, 0.8, 0.64)
    covered: dict[float, list[bool]] = {1.0: [], 0.8: []}
    false_can, left_out = [], []
    for seed in range(200):
        every = crowd(skills, n, classes, np.random.default_rng(seed))
        found = compared(every, {}, people=[0, 1, 2])
        left_out.append([person.name for person in found.left_out] == [2])
        for judge in found.judges:
            r = 1.0 if judge.name == 3 else 0.8
            covered[r].append(judge.low <= r <= judge.high)
            if r == 0.8:
                false_can.append(judge.verdict == CAN)
    found = {"covered_1": covered[1.0], "covered_8": covered[0.8]}
    found |= {"false_can": false_can, "left_out": left_out}
    return {name: float(np.mean(each)) for name, each in found.items()}


def page_simulated(records: list[Record]) -> Record:
    """A row per crowd."""
    rows = [
        ["two and one who guesses" if r["spammer"] else "three alike", str(r["n"]),
         str(r["classes"]), f"{r['covered_1']:.3f}", f"{r['covered_8']:.3f}",
         f"{r['false_can']:.3f}", f"{r['left_out']:.3f}"]
        for r in records
    ]  # fmt: skip
    heads = ["people", "items", "classes", "coverage, r = 1", "coverage, r = .8",
             "false “can”, r = .8", "third person left out"]  # fmt: skip
    return {"simulated": table(heads, rows)}


def measure_empty_simulated(skill: float, shares: str) -> Record:
    """A judge that guesses by the shares of classes, by the alternative annotator test and by r.

    Three people who know a share of the truth; 100 items; a margin of .2 in both.
    """
    p = np.array([float(share) for share in shares.split("/")]) / 100
    passed, can = [], []
    for seed in range(200):
        rng = np.random.default_rng([seed, round(100 * skill), len(p)])
        truth, guess = rng.choice(len(p), 100, p=p), rng.choice(len(p), (100, 3), p=p)
        people = np.where(rng.random((100, 3)) < skill, truth[:, None], guess)
        judge = rng.choice(len(p), 100, p=p) if p.max() < 0.6 else np.zeros(100, dtype=int)
        rate = winning_rate(people.astype(float), judge.astype(float), 0.2, scores=False)
        passed.append(rate["winning_rate"] >= 0.5)
        every = mh.AnnotationTable.from_matrix(
            np.column_stack([people, judge]), classes=range(len(p))
        )
        (found,) = compared(every, {}, people=[0, 1, 2]).judges
        can.append(found.verdict == CAN)
    return {"passed": float(np.mean(passed)), "can": float(np.mean(can))}


def page_empty_simulated(records: list[Record]) -> Record:
    """A row per crowd."""
    rows = [
        [f"{r['skill'] ** 2:.2f}", r["shares"], f"{r['passed']:.2f}", f"{r['can']:.2f}"]
        for r in records
    ]
    heads = ["people's agreement beyond chance", "shares of classes, %",
             "passes the alternative annotator test", "r: “can stand in”"]  # fmt: skip
    return {"empty_simulated": table(heads, rows)}


def measure_estimates_simulated(p: float, r2: float, n: int) -> Record:
    """Coverage and width of `mean_estimate`: 2,000 items, 500 draws of n."""
    rng = np.random.default_rng(1)
    y = (rng.random(2000) < p).astype(float)
    noise = np.sqrt(p * (1 - p) * (1 - r2) / max(r2, 1e-9))
    f = rng.random(2000) if r2 == 0 else y + rng.normal(scale=noise, size=2000)
    rng = np.random.default_rng(2)
    covered, width = [], []
    for _ in range(500):
        few = rng.choice(2000, n, replace=False)
        found = mean_estimate(y[few], f[few], f)
        bare = mean_estimate(y[few], np.zeros(n), np.zeros(2000))
        covered.append(found.low <= y.mean() <= found.high)
        width.append((found.high - found.low) / (bare.high - bare.low))
    return {"covered": float(np.mean(covered)), "width": float(np.mean(width))}


def page_estimates_simulated(records: list[Record]) -> Record:
    """A row per share and R²."""
    rows = []
    for p, r2 in dict.fromkeys((r["p"], r["r2"]) for r in records):
        own = [where(records, p=p, r2=r2, n=n)[0] for n in LABELLED]
        rows.append([
            f"{p:g}", f"{r2:g}", " ".join(f"{r['covered']:.3f}" for r in own),
            " ".join(f"{r['width']:.2f}" for r in own),
        ])  # fmt: skip
    sizes = ", ".join(map(str, LABELLED))
    heads = ["share", "R²", f"coverage, n = {sizes}", "width against people alone"]
    return {"estimates_simulated": table(heads, rows)}


def measure_repair(classes: int, people: int) -> Record:
    """Six machines who share mistakes on 800 items, and a person on some; ten draws."""
    found: dict[str, list[float]] = {"majority": [], "before": [], "now": []}
    for seed in range(10):
        A, y = beside_machines(people, classes, seed)
        rest = np.arange(len(y)) >= people
        families = dict.fromkeys(range(6), "llm")
        every = mh.AnnotationTable.from_matrix(A, classes=range(classes))

        def right(model: Any, y: AnyArray = y, rest: AnyArray = rest) -> float:
            return float((model.labels_ == y)[rest].mean())

        with as_before():
            found["before"].append(right(fitted(mh.DawidSkene(), every, groups=families)))
        found["now"].append(right(fitted(mh.DawidSkene(), every, groups=families)))
        votes = mh.MajorityVote(ties="random", random_state=seed)
        machines = mh.AnnotationTable.from_matrix(A[:, :6], classes=range(classes))
        found["majority"].append(right(fitted(votes, machines, groups={})))
    return {name: float(np.mean(values)) for name, values in found.items()}


def beside_machines(n_people: int, classes: int, seed: int) -> tuple[AnyArray, AnyArray]:
    """Machines that copy half of their labels of a shared source, .75 right; a person is .9."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=800)

    def noisy(accuracy: float) -> AnyArray:
        wrong = (y + rng.integers(1, classes, len(y))) % classes
        return np.where(rng.random(len(y)) < accuracy, y, wrong)

    shared = noisy(0.75)
    machines = [
        np.where(rng.random(len(y)) < 0.5, shared, noisy(rng.uniform(0.4, 0.85))) for _ in range(6)
    ]
    person = np.where(np.arange(len(y)) < n_people, noisy(0.9), -1)
    return np.column_stack([*machines, person]), y


REPAIRED = {
    "majority": "majority of the machines",
    "before": "DawidSkene, before",
    "now": "DawidSkene, now",
}


def page_repair(records: list[Record]) -> Record:
    """A row per number of people's labels."""
    rows = []
    for people in dict.fromkeys(r["people"] for r in records):
        own = where(records, people=people)
        for key, name in REPAIRED.items():
            rows.append([str(people), name, *(f"{r[key]:.2f}" for r in own)])
    classes = [f"{r['classes']} classes" for r in where(records, people=records[0]["people"])]
    return {"repair": table(["people's labels", "", *classes], rows)}


def measure_judgebench(code: str) -> Record:
    """Dawid-Skene with declared families; "before" is every instance in the fit."""
    bunch = load_judgebench()
    given = bunch.annotations
    families = {w: "o1-mini" if "o1" in str(w) else "reward" for w in given.annotators.tolist()}
    if code == "before":
        with as_before():
            model = mh.DawidSkene().fit(given, groups=families)
    else:
        model = mh.DawidSkene().fit(given, groups=families)
    return {"accuracy": float((model.labels_ == bunch.y_train).mean()),
            "sum": float(model.posterior_[:, 0].sum())}  # fmt: skip


def page_judgebench(records: list[Record]) -> Record:
    """The accuracy, and whether the posteriors are the same."""
    by = {r["code"]: r for r in records}
    same = by["before"]["sum"] == by["now"]["sum"]
    return {"judgebench": f"{by['now']['accuracy']:.3f}",
            "unchanged": "equal to the bit" if same else "not the same"}  # fmt: skip


def measure_time(labels: int) -> Record:
    """CPU seconds for three people and six models who label everything."""
    every = crowd((0.8,) * 9, labels // 9, 4, np.random.default_rng(0))
    started = process_time()
    compared(every, {}, people=[0, 1, 2])
    return {"cpu": process_time() - started}


def page_time(records: list[Record]) -> Record:
    """Seconds by the number of labels."""
    rows = [[f"{r['labels']:,}", f"{r['cpu']:.2f}"] for r in records]
    return {"time": table(["labels", "CPU seconds"], rows)}


PARTS = {
    "whole": Part(measure_whole, page_whole, lambda: grid(set=SETS)),
    "empty": Part(measure_empty, page_empty, lambda: grid(set=SETS)),
    "people": Part(measure_people, cells=cells_people),
    "llms": Part(measure_llms, cells=lambda: grid(set=SETS, n=SIZES, block=range(BLOCKS))),
    "estimates": Part(
        measure_estimates, page_estimates, lambda: grid(set=SETS, n=LABELLED)
    ),
    "labels": Part(
        measure_labels, page_labels,
        lambda: ({"set": s, "people": p, "method": m, "seed": seed}
                 for s in SETS for p, m in LABELS for seed in range(2)),
    ),
    "simulated": Part(
        measure_simulated, page_simulated,
        lambda: grid(n=(100, 200, 400), classes=(2, 4), spammer=(False, True)),
    ),
    "known": Part(measure_known, page_known, lambda: grid(set=SETS, seed=range(5))),
    "queue": Part(measure_queue, page_queue, lambda: grid(set=SETS, seed=range(5))),
    "uses": Part(measure_uses, page_uses, lambda: grid(set=SETS)),
    "empty-simulated": Part(
        measure_empty_simulated, page_empty_simulated,
        lambda: grid(skill=(0.5, 0.8), shares=("50/50", "85/15", "25/25/25/25")),
    ),
    "estimates-simulated": Part(
        measure_estimates_simulated, page_estimates_simulated,
        lambda: grid(p=(0.5, 0.3, 0.05), r2=(0.0, 0.5), n=LABELLED),
    ),
    "repair": Part(
        measure_repair, page_repair, lambda: grid(people=(0, 50, 200), classes=(2, 4, 6))
    ),
    "judgebench": Part(measure_judgebench, page_judgebench, lambda: grid(code=("before", "now"))),
    "time": Part(measure_time, page_time, lambda: grid(labels=(57_600, 1_000_000))),
}  # fmt: skip


def page(records: list[Record]) -> Record:
    """The values of all parts; people and language models share a table."""
    found: Record = {}
    for name, part in PARTS.items():
        if own := where(records, part=name):
            found |= part.page(own)
    return found | (page_few(records) if where(records, part="people") else {})


STUDY = of_parts(__file__, PARTS, page, drawings=lambda records: {"judges-r.svg": drawing(records)})


if __name__ == "__main__":
    STUDY.main()
