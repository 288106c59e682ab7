"""Compare claims with the truth: what a person is told after every step, on tables of known labels.

The steps are what people do: infer labels; review some and give them as known; train a classifier
and predict; buy annotations until the plan says stop; have language models label; look at
annotators. For each statement, the record holds what was claimed, the interval that was told, and
the truth by gold labels. Gold labels choose nothing, other than what a step itself is given.

``CODE=before`` files the cells of whatever version of the library is on the path under that name;
what that version does not say is missing.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, wraps
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import manyhands as mh
from benchmarks.claims_page import GOLD_ALONE, GOLD_AND_MODEL, TODAY, drawing, page
from benchmarks.real_tables import LAST, ORDINAL, Labelled, first_of_each, real
from benchmarks.real_tables import TABLES as REAL
from evidence.scores import codes_of
from evidence.study import Record, Study
from manyhands.datasets import AGGREGATION_SETS
from manyhands.datasets.base import data_home
from manyhands.exceptions import SharedMistakesWarning
from manyhands.inference import IBCC
from manyhands.io import consensus
from manyhands.planning import forecast, screen_annotators

FLAGS = ("no better than guessing", "no better than chance")
"""The flag of an annotator whose answers hardly depend on the class, today and before."""

METHODS: dict[str, Callable[[], Any]] = {
    "DawidSkene": mh.DawidSkene,
    "IBCC": IBCC,
    "MajorityVote": mh.MajorityVote,
}
REVIEWED = {"DawidSkene": mh.DawidSkene, "GoldCorrected": mh.GoldCorrected}

WAYS: tuple[tuple[str, int], ...] = (
    *(("queue", n) for n in (10, 25, 50, 100)),
    ("4 rounds", 100),
    *(("random", n) for n in (25, 50, 100)),
    ("half random", 50),
)
"""How labels to review are chosen, and how many."""

FEATURES = ("labelme", "music", "sentiment", "product", "colposcopy", "reports")
STACK_WAYS, STACK_SETS = (("queue", 50), ("4 rounds", 100), ("random", 50)), FEATURES[:3]
FEW = ("colposcopy", "reports", "music")
"""Sets on which the slower methods are trained."""

JUDGED = ("lgbteen", "cebab_stars", "10k_prompts", "framing", "summeval")
GIVEN = (0, 25, 100, 200)
"""Labels of one person beside those of the language models."""

N_GOLD = 100
"""Gold labels, or audited labels, of which there are so many unless a step says otherwise."""

AUDITED = 50

GOLD_SIZES, DRAWS = (30, 60, 120), 20
"""Numbers of gold labels with which labels are accepted, and how often they are drawn."""

MOST_DRAWN = 5_000
"""Instances of the largest table of which gold is drawn so often."""

FEWEST_ACCEPTED, TOO_MUCH = 20, 0.02
"""Accepted labels of a draw that is judged, and by how much its claim may be too high."""


class Features(NamedTuple):
    """A labelled table with features, and a test part."""

    case: Labelled
    X: Any
    X_test: Any
    gold_test: np.ndarray


def quiet(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose warnings are for those who fit a model, not for those who compare."""

    @wraps(step)
    def taken(*given: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return step(*given, **options)

    return taken


def statement(claimed: Any, true: float, n: int, **more: Any) -> Record:
    """Return what was said and what holds, as shares; ``n`` labels measure the truth."""
    if claimed is None or isinstance(claimed, float):
        claimed = {"claimed": claimed, "low": None, "high": None}
    return {**claimed, "true": float(true), "n": int(n), **more}


def of_level(level: Any) -> Record:
    """Claim of a level, as it is or as a report's dict; None is "not known"."""
    found = level if level is None or isinstance(level, dict) else level.to_dict()
    names = ("value", "low", "high", "source")
    value, low, high, source = (None if found is None else found[name] for name in names)
    return {"claimed": value, "low": low, "high": high, "source": source}


# -- steps: each returns statements by name -------------------------------------------------------


@quiet
def infer(case: Labelled, method: Callable[[], Any]) -> dict[str, Record]:
    """Infer labels: how many are said to be right, and how many are."""
    model = method().fit(case.table)
    return _of_labels(case, model, case.judged)


def _of_labels(case: Labelled, model: Any, rows: np.ndarray) -> dict[str, Record]:
    """Return what is said of a method's labels, and of those that need no further look."""
    codes = model.posterior_.argmax(axis=1)
    right = codes == case.gold
    sure, accepted = _single_labels(case, model)
    mean, n = float(sure[rows].mean()), len(rows)
    told = told_of_labels(case.table, model, codes) or {"claimed": mean, "low": None, "high": None}
    found = {
        "labels": statement(told, right[rows].mean(), n),
        "mean probability": statement(None if np.isnan(mean) else mean, right[rows].mean(), n),
    }
    taken = rows[accepted[rows]]
    if len(taken):
        claimed = float(sure[taken].mean())
        found["accepted labels"] = statement(claimed, right[taken].mean(), len(taken))
    return found


def told_of_labels(table: mh.AnnotationTable, model: Any, codes: np.ndarray) -> Record | None:
    """Level that commands and reports tell; None where the library has none."""
    try:
        from manyhands.report.headline import level_of_labels
    except ImportError:
        return None
    decided = getattr(model, "identified_", None)
    return of_level(level_of_labels(table, model, codes, model.posterior_, identified=decided))


def _single_labels(case: Labelled, model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return each label's stated probability, NaN if there is none, and whether it is accepted."""
    if "probability" in inspect.signature(consensus).parameters:
        found = consensus(case.table, model)
        return found.probability, found.actions == "accept"
    given = {"known": getattr(model, "is_known_", None)}
    if hasattr(model, "identified_"):
        given["identified"] = model.identified_
    sure = model.posterior_.max(axis=1)
    return sure, consensus(case.table, model.posterior_, **given).actions == "accept"


@quiet
def measure_on_gold(case: Labelled, n: int) -> dict[str, Record]:
    """Accept labels after `DRAWS` random draws of n gold labels, and look at the other labels.

    The probabilities of single labels follow the gold labels alone, or also what the model expects,
    as the library does.
    """
    from manyhands.metrics.certainty import certainty_of

    model = mh.DawidSkene().fit(case.table)
    posterior, codes = model.posterior_, model.posterior_.argmax(axis=1)
    right, values = codes == case.gold, case.table.classes[codes]
    found: dict[str, list[tuple[float, float, int]]] = {}
    for seed in range(DRAWS):
        drawn = np.random.default_rng(seed).choice(case.judged, n, replace=False)
        gold = np.full(len(codes), None, dtype=object)
        gold[drawn] = case.table.classes[case.gold[drawn]]
        both = mh.metrics.accuracy_of_labels(case.table, values, posterior, gold=gold)
        for name, level in ((GOLD_ALONE, both._replace(of_labels=None)), (GOLD_AND_MODEL, both)):
            told = certainty_of(case.table, level, posterior, codes)
            sure = told.of_labels(posterior, codes, None)
            actions = consensus(case.table, posterior, values, probability=sure).actions
            taken = np.setdiff1d(case.judged[actions[case.judged] == "accept"], drawn)
            own = (sure[taken].mean(), right[taken].mean(), len(taken)) if len(taken) else (0, 0, 0)
            found.setdefault(name, []).append(own)
    return {name: _of_draws(np.array(draws)) for name, draws in found.items()}


def _of_draws(draws: np.ndarray) -> Record:
    """Join draws of (claimed, true, accepted labels), and count those that promise far too much."""
    claimed, true, n = draws.T
    many = n >= FEWEST_ACCEPTED
    far = int((claimed - true > TOO_MUCH)[many].sum())
    if not n.sum():
        return statement(None, 0.0, 0, draws=0, far=0)
    shares = (float(np.average(each, weights=n)) for each in (claimed, true))
    return statement(*shares, int(n.sum()), draws=int(many.sum()), far=far)


@quiet
def review(
    case: Labelled, way: str, n: int, method: Callable[[], Any] = mh.DawidSkene, X: Any = None
) -> dict[str, Record]:
    """Give the true labels of n instances as known, and look at what is said of the others.

    Parameters
    ----------
    way : {"queue", "4 rounds", "random", "half random"}
        The most doubtful instances are reviewed, at once or in rounds with a fit after each; or
        random ones, which are marked as such; or both.
    X : array-like, optional
        Features, for a method that needs them.
    """
    rng = np.random.default_rng(n)
    known, drawn = (np.zeros(case.table.n_instances, dtype=bool) for _ in range(2))
    inputs = (case.table,) if X is None else (X, case.table)
    # GoldCorrected begins with what it corrects.
    model = mh.DawidSkene().fit(case.table) if X is None else method().fit(*inputs)
    rounds = 4 if way == "4 rounds" else 1
    for _ in range(rounds):
        free = case.judged[~known[case.judged]]
        n_queue = {"random": 0, "half random": n // 2}.get(way, n // rounds)
        places = np.argsort(model.posterior_[free].max(axis=1), kind="stable")
        known[free[places[:n_queue]]] = True
        rest = case.judged[~known[case.judged]]
        by_chance = rng.permutation(rest)[: n // rounds - n_queue]
        known[by_chance] = drawn[by_chance] = True
        gold = case.values(np.where(known, case.gold, -1))
        model = method()
        marks = {}
        if drawn.any() and "random_gold" in inspect.signature(model.fit).parameters:
            marks["random_gold"] = drawn
        model.fit(*inputs, gold=gold, **marks)
    rest = case.judged[~known[case.judged]]
    return _of_labels(case, model, rest)


@quiet
def train(data: Features, method: Callable[[], Any], folds: int = 3) -> dict[str, Record]:
    """Train a classifier: what the report says of its labels and of new items, and what holds.

    With 100 gold labels of the training part in the report, then with as many of new items.
    """
    case, rng = data.case, np.random.default_rng(0)
    n = min(N_GOLD, len(case.judged) // 2, (data.gold_test >= 0).sum() // 2)
    given = rng.permutation(case.judged)[:n]
    rest = np.setdiff1d(case.judged, given)
    some = case.values(np.where(np.isin(np.arange(len(case.gold)), given), case.gold, -1))
    test = rng.permutation(np.flatnonzero(data.gold_test >= 0))
    model = method().fit(data.X, case.table)
    new = _told_of_new_items(model, data, folds)
    more = {} if new is None else {"new_items": new}
    plain = mh.summarize(case.table, classifier=model, X=data.X, **more)
    measured = mh.summarize(case.table, classifier=model, X=data.X, gold=some, **more)
    predicted = model.predict(data.X_test)
    codes = _codes_of_labels(model, data)
    right, new_right = codes == case.gold, predicted == case.values(data.gold_test)
    new_true = new_right[test].mean()
    rows = case.judged
    found = {
        "labels": statement(_labels_in(plain), right[rows].mean(), len(rows)),
        f"labels, {N_GOLD} gold labels": statement(
            _labels_in(measured), right[rest].mean(), len(rest)
        ),
        "new items": statement(_new_items_in(measured), new_true, len(test)),
    }
    try:
        from manyhands.metrics import accuracy_on_new_items
    except ImportError:
        return found
    level = accuracy_on_new_items(
        gold=case.values(data.gold_test)[test[:n]], predicted=predicted[test[:n]]
    )
    named = f"new items, {N_GOLD} gold labels"
    others = test[n:]
    return found | {named: statement(of_level(level), new_right[others].mean(), len(others))}


def _told_of_new_items(model: Any, data: Features, folds: int) -> Any:
    """Return what 'manyhands fit' cross-validates; earlier versions did not."""
    try:
        from manyhands.jobs.fit import judge_new_items
    except ImportError:
        return None
    table = data.case.table
    found = judge_new_items(model, data.X, table, table, None, folds)
    return None if found is None else found.level


def _codes_of_labels(model: Any, data: Features) -> np.ndarray:
    """Codes of the labels that a report shows of the training instances."""
    if hasattr(model, "posterior_"):
        return np.asarray(model.posterior_).argmax(axis=1)
    return codes_of(model.predict(data.X), data.case.table.classes)


def _labels_in(summary: Any) -> Any:
    """Return what a report says of labels; earlier: on gold, or one minus expected mistakes."""
    if "levels" in summary:
        return of_level(summary["levels"]["labels"])
    if summary["gold"] is not None:
        return next(
            row["accuracy"] for row in summary["gold"]["rows"] if row["name"] != "majority vote"
        )
    review = summary["review"]
    return None if review is None else 1 - review["n_expected_wrong"] / review["n"]


def _new_items_in(summary: Any) -> Any:
    """Return what a report says of new items; earlier: measured on predictions of training rows."""
    if "levels" in summary:
        return of_level(summary["levels"]["new_items"])
    rows = {row["name"]: row["accuracy"] for row in summary["gold"]["rows"]}
    return next((rows[name] for name in rows if name.endswith("(prediction)")), None)


@quiet
def choose(data: Features) -> dict[str, Record]:
    """Choose among classifiers without gold: how accurate the choice is said to be."""
    found = mh.select(None, data.X, data.case.table, cv=3, random_state=0)
    predicted = found.estimator_.predict(data.X_test)
    test = np.flatnonzero(data.gold_test >= 0)
    true = (predicted == data.case.values(data.gold_test))[test].mean()
    best = next(row for row in found.table_ if row.candidate == found.best_)
    told = {"claimed": best.estimate, "low": best.low, "high": best.high}
    return {"new items": statement(told, true, len(test))}


@quiet
def buy(case: Labelled, seed: int = 0) -> dict[str, Record]:
    """Buy recorded annotations as planned, from one per instance until the plan says stop.

    The gain is that of the batches before the stop, and of the next one: right labels per 100
    annotations bought.
    """
    table, rng = case.table, np.random.default_rng(seed)
    order = rng.permutation(table.n_annotations)
    first = order[np.unique(table.instance[order], return_index=True)[1]]
    bought = np.zeros(table.n_annotations, dtype=bool)
    bought[first] = True
    n, expected, gains = max(1, table.n_instances // 10), 0.0, []
    n_warm = round(1.5 * table.n_instances)
    start = None
    while True:
        plan = mh.AnnotationPlanner(random_state=seed).fit(table.take(np.flatnonzero(bought)))
        right = (plan.posterior_.argmax(axis=1) == case.gold)[case.judged].mean()
        may = _open_pairs(table, bought)
        if not may.any():
            break
        stopping = plan.stopping(pairs=may)
        if start is None and bought.sum() >= n_warm:
            start = (bought.sum(), right)
        if stopping.stop:
            break
        batch = plan.suggest(n, may)
        if start is not None:
            expected += batch.expected_gain.sum()
        bought |= _rows_of(batch, table)
    own = table.take(np.flatnonzero(bought))
    now = Labelled(case.name, own, case.gold)
    audit = rng.permutation(now.judged)[:AUDITED]
    others = np.setdiff1d(now.judged, audit)
    marked = np.isin(np.arange(table.n_instances), audit)
    asked = {"pairs": may} if may.any() else {}
    audited = case.values(np.where(marked, case.gold, -1))
    answer = plan.stopping(audit=audited, random_audit=marked, **asked)
    found = {"labels": _of_labels(now, plan.aggregator_, now.judged)["labels"]}
    codes = plan.posterior_.argmax(axis=1)
    measured = {"claimed": answer.accuracy, "low": answer.low, "high": answer.high}
    found[f"labels, {AUDITED} audited"] = statement(
        measured, (codes == case.gold)[others].mean(), len(others)
    )
    if start is not None and bought.sum() > start[0]:
        gains.append(("gain of what was bought", expected, start, bought.sum(), right))
    if may.any():
        batch = plan.suggest(n, may)
        bought |= _rows_of(batch, table)
        later = mh.AnnotationPlanner().fit(table.take(np.flatnonzero(bought)))
        after = (later.posterior_.argmax(axis=1) == case.gold)[case.judged].mean()
        last = (len(own.instance), right)
        gains.append(
            ("gain of the next batch", batch.expected_gain.sum(), last, bought.sum(), after)
        )
    for name, claimed, (n_before, before), n_after, after in gains:
        each = 1 / (n_after - n_before)
        true = (after - before) * table.n_instances * each
        found[name] = statement(float(claimed * each), true, n_after - n_before)
    found["labels"]["per_instance"] = float(len(own.instance) / table.n_instances)
    return found


@quiet
def foresee(case: Labelled, start: int = 3, more: int = 2, seed: int = 0) -> dict[str, Record]:
    """Forecast what further annotations by anybody add, and add them: as shares of the labels.

    The pilot are ``start`` random annotations of each instance, and ``more`` follow. Pairs that are
    recorded twice count once.
    """
    pairs = case.table.instance.astype(np.int64) * case.table.n_annotators + case.table.annotator
    table = case.table.take(np.sort(np.unique(pairs, return_index=True)[1]))
    order = np.argsort(np.random.default_rng(seed).random(table.n_annotations), kind="stable")
    pilot, later = (first_of_each(table, order, n) for n in (start, start + more))
    most = later.n_annotations / table.n_instances
    right = [
        (mh.DawidSkene().fit(each).posterior_.argmax(axis=1) == case.gold)[case.judged].mean()
        for each in (pilot, later)
    ]
    curve = forecast(pilot, {"random": None}, most, batch=0.5, n_runs=1, random_state=seed)
    claimed = np.diff(curve.curves["random"].accuracy[0, [0, -1]])[0]
    return {"gain": statement(float(claimed), right[1] - right[0], len(case.judged))}


def _open_pairs(table: mh.AnnotationTable, bought: np.ndarray) -> np.ndarray:
    pairs = np.zeros((table.n_instances, table.n_annotators), dtype=bool)
    pairs[table.instance[~bought], table.annotator[~bought]] = True
    return pairs


def _rows_of(batch: Any, table: mh.AnnotationTable) -> np.ndarray:
    """Mask of the recorded annotations that a batch asks for."""
    asked = np.zeros((table.n_instances, table.n_annotators), dtype=bool)
    place = [
        {value: code for code, value in enumerate(names.tolist())}
        for names in (table.instances, table.annotators)
    ]
    for instance, annotator in batch:
        asked[place[0][instance], place[1][annotator]] = True
    return asked[table.instance, table.annotator]


def judge(
    models: mh.AnnotationTable,
    given: np.ndarray,
    person: np.ndarray,
    how: str,
    families: dict[Any, Any],
) -> dict[str, Record]:
    """Language models label everything, a person some: what is said of the other labels.

    Parameters
    ----------
    models : AnnotationTable
        Annotations of the models alone.
    given : integer array of shape (n_instances,)
        Class codes by one person, -1 where there is none.
    person : integer array of shape (n_instances,)
        Those of another person, which the labels are compared with; -1 where there is none.
    how : {"declared", "undeclared", "gold"}
        The person is an annotator beside the models, which are declared a family or not; or the
        person's labels are gold of `GoldCorrected`, drawn at random.
    families : dict {annotator: family}
    """
    table, options = models, {}
    if how == "gold":
        values = Labelled("", models, given).values(given)
        options = {"gold": values, "random_gold": given >= 0}
    else:
        rows = np.flatnonzero(given >= 0)
        beside = np.full(len(rows), models.n_annotators)
        table = mh.AnnotationTable.from_arrays(
            np.concatenate([models.instance, rows]),
            np.concatenate([models.annotator, beside]),
            models.classes[np.concatenate([models.label, given[rows]])],
            classes=models.classes,
            instances=models.instances,
            annotators=[*models.annotators.tolist(), "the person"],
        )
    if how == "declared":
        table = table.with_groups(families)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = mh.GoldCorrected() if how == "gold" else mh.DawidSkene()
        if "random_gold" not in inspect.signature(model.fit).parameters:
            options.pop("random_gold", None)
        model.fit(table, **options)
        case = Labelled("", table, person)
        rest = case.judged[given[case.judged] < 0]
        found = _of_labels(case, model, rest)
        found["labels"]["accepted"] = int(_single_labels(case, model)[1][rest].sum())
    found["labels"]["warned"] = any(w.category is SharedMistakesWarning for w in warned)
    return found


@quiet
def screen(case: Labelled) -> dict[str, Record]:
    """Look at annotators: who is flagged, and how accurate each is said to be.

    The accuracies and the mistakes are of annotators with gold labels on nearly all that they
    annotated, so that the truth is known.
    """
    table, known = case.table, case.gold >= 0
    rows = screen_annotators(table, mh.DawidSkene().fit(table))
    by_name = {row.annotator: row for row in rows}
    said = [by_name[name] for name in table.annotators.tolist()]
    truth = informedness(case)
    flagged = np.array([bool({*row.flags} & {*FLAGS}) for row in said])
    judged = np.isfinite(truth)
    counts = {
        "annotators": judged,
        "flagged": flagged & judged,
        "flagged_truly": flagged & judged & (truth < 0.25),
        "flagged_good": flagged & judged & (truth > 0.4),
        "bad": judged & (truth < 0.1),
        "bad_flagged": flagged & judged & (truth < 0.1),
    }
    found = {"flags": {name: int(mask.sum()) for name, mask in counts.items()}}
    right = table.label == case.gold[table.instance]
    n = table.annotations_per_annotator()
    n_known = np.bincount(table.annotator[known[table.instance]], minlength=len(n))
    accuracy = np.bincount(table.annotator, weights=right, minlength=len(n)) / np.maximum(n, 1)
    full = np.flatnonzero((n >= 20) & (n_known >= 0.95 * n))
    if not len(full) or said[full[0]].accuracy is None:  # Nothing judges these annotators.
        return found
    told, true = np.array([said[r].accuracy for r in full]), accuracy[full]
    inside = [said[r].low <= accuracy[r] <= said[r].high for r in full]
    found["annotators' accuracy"] = statement(
        float(told.mean()), true.mean(), len(full),
        inside=int(sum(inside)), size=float(np.abs(told - true).mean()),
    )  # fmt: skip
    looked_at = np.array([bool(said[r].flags) for r in full])
    if looked_at.any():
        wrong = [n[full] * (1 - each) for each in (told, true)]
        shares = [float(each[looked_at].sum() / each.sum()) for each in wrong]
        found["mistakes by flagged annotators"] = statement(*shares, int(looked_at.sum()))
    return found


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


# -- tables ---------------------------------------------------------------------------------------

TABLES = (
    *REAL, "sentiment 600", "cifar10n", "cifar10h, 3 an image", "judgebench", *ORDINAL,
)  # fmt: skip
"""All tables with gold labels."""


@cache
def with_features(name: str) -> Features:
    """Load a set with features and a test part."""
    from evidence import load_data

    data = load_data({"name": name})
    table = data.annotations
    gold, test = (codes_of(y, table.classes) for y in (data.y_train, data.y_test))
    return Features(Labelled(name, table, gold), data.X_train, data.X_test, test)


def beside_people(name: str, n_given: int, seed: int) -> tuple[Any, ...]:
    """Models' annotations, those of one person on some instances, and another's elsewhere.

    The other person is a random one of each instance.
    """
    import pandas as pd

    frame = pd.read_csv(data_home() / "judges" / name / "annotations.csv")
    frame = frame.assign(label=frame.label.astype(str)).drop_duplicates(["task", "worker"])
    people = frame[frame.family != "llm"].sample(frac=1, random_state=seed)
    other = people.groupby("task").label.first()
    models = frame[(frame.family == "llm") & frame.task.isin(other.index)]
    classes = sorted(frame.label.unique())
    table = mh.AnnotationTable.from_frame(models[["task", "worker", "label"]], classes=classes)
    person = codes_of(other.loc[table.instances], table.classes)
    given = np.full(len(person), -1)
    rows = np.random.default_rng(seed).choice(len(person), n_given, replace=False)
    given[rows] = person[rows]
    pairs = people.groupby("task").label.agg(["first", "last", "size"])
    agree = (pairs["first"] == pairs["last"])[pairs["size"] > 1].mean()
    return table, given, person, dict.fromkeys(table.annotators.tolist(), "llm"), float(agree)


# -- cells ----------------------------------------------------------------------------------------


Step = Callable[[], dict[str, Record]]


def steps(names: Sequence[str] = TABLES) -> Iterator[tuple[str, str, Step]]:
    """All steps, each with its table and what takes it; ``names`` are tables without features."""

    def on(step: Callable[..., Any], name: str, *rest: Any) -> Step:
        return lambda: step(real(name), *rest)

    for name in names:
        for title, method in METHODS.items():
            yield (f"infer, {title}", name, on(infer, name, method))
        yield ("annotators", name, on(screen, name))
    for n, name in product(GOLD_SIZES, names):
        if len(real(name).judged) >= 2 * n and real(name).table.n_instances <= MOST_DRAWN:
            yield (f"gold {n}", name, on(measure_on_gold, name, n))
    for (title, method), (way, n), name in product(REVIEWED.items(), WAYS, names):
        if len(real(name).judged) >= 2 * n:
            yield (f"review, {title}, {way} {n}", name, on(review, name, way, n, method))
    for name in (each for each in names if each in AGGREGATION_SETS):
        table = real(name).table
        if table.n_annotations >= 5 * table.n_instances:
            yield ("buy", name, on(buy, f"{name}{LAST}"))  # Where no pair is recorded twice.
            yield ("forecast", name, on(foresee, name))
    for name, n_given in product(JUDGED, GIVEN):
        for how in ("undeclared", "declared", *(["gold"] if n_given else [])):
            yield (f"judges, {how}, {n_given}", name, partial(_judge, name, n_given, how))
    stack, dasc = (
        partial(cls, random_state=0) for cls in (mh.CrowdStackingClassifier, mh.DASCClassifier)
    )
    for name in FEATURES:
        yield ("train, stack", name, partial(_train, name, stack))
    for (way, n), name in product(STACK_WAYS, STACK_SETS):
        step = partial(_review_stack, name, way, n, stack)
        yield (f"review, stack, {way} {n}", name, step)
    for name in FEW:
        yield ("train, DASC", name, partial(_train, name, dasc))
        yield ("train, select()", name, lambda name=name: choose(with_features(name)))


def _judge(name: str, n_given: int, how: str) -> dict[str, Record]:
    *crowd, agree = beside_people(name, n_given, 0)
    table, given, person, families = crowd
    found = judge(table, given, person, how, families)
    found["labels"]["people_agree"] = agree
    return found


def _train(name: str, method: Callable[[], Any]) -> dict[str, Record]:
    return train(with_features(name), method)


def _review_stack(name: str, way: str, n: int, stack: Callable[[], Any]) -> dict[str, Record]:
    data = with_features(name)
    return review(data.case, way, n, stack, data.X)


CODE = os.environ.get("CODE", TODAY)
"""Name of the version of the library in the records."""


@cache
def taken() -> dict[tuple[str, str], Callable[[], dict[str, Record]]]:
    """Return, for each step and table, the function that takes the step."""
    return {(step, name): run for step, name, run in steps()}


def measure(step: str, table: str, code: str) -> Record:
    """Take a step."""
    return {"said": taken()[step, table]()}


STUDY = Study(
    __file__,
    lambda: ({"step": step, "table": name, "code": CODE} for step, name, _ in steps()),
    measure,
    page,
    drawings=lambda records: {"claims-labels.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
