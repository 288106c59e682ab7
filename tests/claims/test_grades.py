"""What a person is told of grades, replayed on simulated crowds and on real tables."""

import warnings

import numpy as np
import pandas as pd
import pytest

from benchmarks.real_tables import real
from evidence.scores import codes_of
from manyhands import AnnotationPlanner, AnnotationTable, DawidSkene, summarize
from manyhands.decision.labels import best_of
from manyhands.io import consensus
from manyhands.metrics.certainty import certainty_of, level_of_some
from manyhands.metrics.grades import within_one
from manyhands.report.headline import headline, tell_labels

K = 5


def crowd(seed, n=400, r=20, per=5, spread=0.8, sd=0.5):
    """Grades by annotators with severities of their own, and the truth."""
    rng = np.random.default_rng(seed)
    y = rng.choice(K, n, p=[0.1, 0.2, 0.4, 0.2, 0.1])
    bias = rng.normal(0, sd, r)
    rows = [(i, w) for i in range(n) for w in rng.choice(r, per, replace=False)]
    i, w = np.array(rows).T
    given = np.rint(y[i] + bias[w] + rng.normal(0, spread, len(i))).clip(0, K - 1).astype(int)
    return AnnotationTable.from_arrays(i, w, given, classes=range(K), ordered=True), y


def off_by(table, y):
    """By how many grades each annotator is above the truth, relative to all, and its error."""
    rows = y[table.instance] >= 0
    who, d = table.annotator[rows], (table.label - y[table.instance])[rows]
    n = np.bincount(who, minlength=table.n_annotators)
    mean = np.bincount(who, d, table.n_annotators) / np.maximum(n, 1)
    square = np.bincount(who, d**2, table.n_annotators) / np.maximum(n, 1)
    error = np.sqrt(np.maximum(square - mean**2, 1e-9) / np.maximum(n, 1))
    return n, mean - np.average(mean, weights=n), error


def severities(table, y):
    """Of the annotators of whom a severity is told: how many, and of how many it is true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DawidSkene().fit(table)
        rows = summarize(table, aggregator=model)["annotators"]["rows"]
    n, true, error = off_by(table, y)
    place = {each: r for r, each in enumerate(table.annotators.tolist())}
    told = [(place[row["id"]], row["severity"]) for row in rows if row["severity"] is not None]
    told = [(r, each) for r, each in told if n[r] >= 10]
    common = np.average([each["value"] for _, each in told], weights=[n[r] for r, _ in told])
    inside, named, same = [], 0, 0
    for r, each in told:
        width = np.hypot((each["high"] - each["low"]) / 2, 1.96 * error[r])
        inside.append(abs(each["value"] - common - true[r]) <= width)
        if each["told"]:
            named += 1
            same += ("too high" in each["told"]) == (true[r] > 0)
    return np.mean(inside), named, same


def told_of(table, y, **measured):
    """What the headline tells of a table's labels, and the truth of these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DawidSkene().fit(table)
        found = summarize(table, aggregator=model, **measured)
    codes = best_of(model.posterior_, table)
    apart = np.abs(codes - y)[(y >= 0) & (table.annotations_per_instance() > 0)]
    return found, (apart == 0).mean(), (apart <= 1).mean()


# -- right in, within one grade in ----------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.5, 0.8, 1.2])
def test_what_is_said_of_grades_holds_in_simulations(spread):
    for seed in range(3):
        table, y = crowd(seed, spread=spread)
        found, right, near = told_of(table, y)
        levels = found["levels"]
        assert levels["labels"]["low"] <= right <= levels["labels"]["high"]
        assert levels["labels"]["low"] < levels["within_one"]["low"] <= near
        assert "probably within one grade" in headline(found)


def test_gold_measures_how_many_are_within_one_grade():
    held = 0
    for seed in range(20):
        table, y = crowd(seed, n=200)
        rng = np.random.default_rng(100 + seed)  # Of a hundred samples, one seems to be chosen.
        gold = np.where(np.isin(np.arange(200), rng.choice(200, 60, replace=False)), y, -1)
        found, _, near = told_of(table, y, gold=gold)
        own = found["levels"]["within_one"]
        assert (own["source"], own["n"]) == ("gold", 60)
        held += own["low"] <= near <= own["high"]
    assert held >= 17


def test_nothing_is_said_of_names_or_where_nothing_tells():
    table, _ = crowd(0, n=150)
    names = summarize(table.with_scale("nominal"))
    assert names["levels"]["within_one"] is None
    assert "grade" not in headline(names)
    two = table.select(annotators=table.annotators[:2])
    two = two[two.annotations_per_instance() == 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = summarize(two, aggregator=DawidSkene().fit(two))
    assert found["levels"]["within_one"] is None
    assert all(row["within_one"] is None for row in found["annotators"]["rows"])
    assert all(row["severity"] is None for row in found["annotators"]["rows"])


def near_of_surer(table, y, gold=None):
    """What is told of labels at or above each probability, and how many are within one grade.

    The first row is of all labels.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DawidSkene().fit(table)
    posterior, codes = model.posterior_, best_of(model.posterior_, table)
    annotated = table.annotations_per_instance() > 0
    level = tell_labels(table, model, codes, posterior, gold=gold).level
    certainty = certainty_of(table, level, posterior, codes)
    told = certainty.of_labels(posterior, codes, None)
    rows = []
    for least in (0.0, 0.6, 0.7, 0.8, 0.85, 0.9):
        some = annotated & (told >= least)
        part = level_of_some(table, level, posterior, codes, some, gold=gold)
        if part is None or some.sum() < 20:
            continue
        given = (table, part.level, certainty, posterior, codes)
        found = within_one(*given, some=None if least == 0 else some, gold=gold)
        apart = np.abs(codes - y)[some & (y >= 0)]
        rows.append((part.level, found, (apart <= 1).mean()))
    return rows


def check_surer(rows, at_least=2):
    """Bounds are true, at least the share of right labels, and do not fall where this rises."""
    bounds = []
    for level, found, near in rows:
        if found is None:
            continue
        assert found.low <= near
        assert found.low >= level.low
        assert np.rint(100 * found.low) >= np.rint(100 * level.value)
        bounds.append(found.low)
    assert len(bounds) >= at_least
    assert min(bounds) >= bounds[0] - 0.005


@pytest.mark.parametrize("spread", [0.5, 0.8])
def test_surer_labels_are_said_to_be_no_farther_from_the_truth(spread):
    for seed in range(3):
        check_surer(near_of_surer(*crowd(seed, n=800, spread=spread)))


def test_gold_of_surer_labels_measures_how_many_are_within_one_grade():
    held = n_told = 0
    for seed in range(10):
        table, y = crowd(seed)
        rng = np.random.default_rng(seed)
        gold = np.where(np.isin(np.arange(400), rng.choice(400, 80, replace=False)), y, -1)
        for level, found, near in near_of_surer(table, y, gold=gold)[:4]:
            if found.source == "model":  # Of fewer than ten gold labels.
                continue
            assert found.value >= level.value
            held, n_told = held + (found.low <= near <= found.high), n_told + 1
    assert held >= 0.9 * n_told > 20


# -- annotators -----------------------------------------------------------------------------------


def test_severities_that_are_told_are_true_in_simulations():
    found = [severities(*crowd(seed)) for seed in range(5)]
    inside, named, same = map(np.array, zip(*found, strict=True))
    assert inside.mean() >= 0.9
    assert named.sum() > 40
    assert same.sum() >= 0.95 * named.sum()


def test_of_annotators_without_severities_hardly_any_is_told():
    named = [severities(*crowd(seed, sd=0.0))[1] for seed in range(5)]
    assert sum(named) <= 0.1 * 5 * 20


def test_annotators_are_not_said_to_be_within_one_grade_too_often():
    table, y = crowd(3)
    found, _, _ = told_of(table, y)
    apart = np.abs(table.label - y[table.instance]) <= 1
    true = {a: apart[table.annotator == r].mean() for r, a in enumerate(table.annotators.tolist())}
    off = [row["within_one"] - true[row["id"]] for row in found["annotators"]["rows"]]
    assert -0.1 < np.mean(off) < 0.02  # Grades are nearer than the model expects.
    assert np.abs(off).max() < 0.15


# -- real tables ----------------------------------------------------------------------------------


def judged_by_people(data_home, name):
    """Grades by people, and the median of them as the truth, from a set of judges."""
    frame = pd.read_csv(data_home / "judges" / name / "annotations.csv", dtype=str)
    frame = frame.drop_duplicates(["task", "worker"])
    people = frame[frame.family != "llm"]
    classes = sorted(people.label.unique(), key=float)
    table = AnnotationTable.from_frame(
        people[["task", "worker", "label"]], classes=classes, scale="ordinal"
    )
    middle = people.assign(grade=people.label.astype(float)).groupby("task").grade.median()
    nearest = [min(classes, key=lambda c: abs(float(c) - middle[t])) for t in table.instances]
    return table, codes_of(np.array(nearest), table.classes)


def table_of(data_home, name):
    if name in ("cebab_stars", "10k_prompts", "summeval"):
        return judged_by_people(data_home, name)
    case = real(name)
    return case.table.with_scale("ordinal"), case.gold


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["polit6", "polit6e", "metlit5", "web", "cebab_stars", "10k_prompts", "summeval"]
)
def test_what_is_said_of_grades_holds_on_real_tables(data_home, name):
    table, y = table_of(data_home, name)
    found, right, near = told_of(table, y)
    levels = found["levels"]
    if levels["labels"] is None:
        assert levels["within_one"] is None
        return
    assert levels["labels"]["low"] <= right
    assert levels["within_one"]["low"] <= near


@pytest.mark.data
@pytest.mark.parametrize("name", ["web", "cebab_stars", "10k_prompts", "summeval"])
def test_surer_labels_are_said_to_be_no_farther_from_the_truth_on_real_tables(data_home, name):
    check_surer(near_of_surer(*table_of(data_home, name)))


@pytest.mark.data
def test_severities_that_are_told_are_true_on_real_tables(data_home):
    found = [
        severities(*table_of(data_home, name)) for name in ("web", "10k_prompts", "cebab_stars")
    ]
    inside, named, same = map(np.array, zip(*found, strict=True))
    assert named.sum() > 60
    assert same.sum() >= 0.9 * named.sum()
    assert inside.mean() >= 0.85


def test_known_labels_change_the_gain_that_a_plan_expects_because_the_model_learns_from_them():
    """Gold that only measures leaves it as it is; a random sample shows how sure its labels are."""
    off, changes = [], []
    for seed in range(4):
        table, y = crowd(seed, spread=1.2)
        drawn = np.random.default_rng(seed).choice(len(y), 100, replace=False).tolist()
        given, free = {i: int(y[i]) for i in drawn}, ~np.isin(np.arange(len(y)), drawn)
        fits = [DawidSkene().fit(table), DawidSkene().fit(table, gold=given, random_gold=drawn)]
        gains = [
            AnnotationPlanner(random_state=0).fit(table, model=m).suggest(40).expected_gain.sum()
            for m in fits
        ]
        changes.append(abs(gains[1] / gains[0] - 1))
        off.append(
            [
                m.posterior_[free].max(axis=1).mean()
                - (best_of(m.posterior_, table) == y)[free].mean()
                for m in fits
            ]
        )
    assert max(changes) > 0.1
    assert np.abs(off).mean(axis=0)[1] < 0.7 * np.abs(off).mean(axis=0)[0]


def test_labels_that_one_annotator_gave_are_counted_beside_those_that_are_accepted():
    """A label may be certain enough by one annotator's word, and is then not accepted."""
    given = np.array([[1, 1, 1], [0, 0, 0]] * 20 + [[1, -1, -1], [0, -1, -1]])
    table = AnnotationTable.from_matrix(given)
    model = DawidSkene().fit(table)
    told = np.full(len(given), 0.97)
    told[:3] = 0.5
    found = consensus(table, model, model.labels_, probability=told)
    assert found.count_actions()["accept"] == 37
    assert found.n_unconfirmed == 2
