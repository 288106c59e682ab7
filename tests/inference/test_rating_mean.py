"""Means of ratings less severities: values, uncertainty, and what surrounds the model."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import manyhands
from manyhands import AnnotationStore, AnnotationTable, DawidSkene, RatingMean, load, registry, save
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.report.ratings import scale_of
from tests.rounding import assert_near


def crowd(seed=0, n=300, r=20, per_instance=5, bias=1.0, noise=1.0, spread=2.0):
    """Values, severities, and a table of ratings to two decimals."""
    rng = np.random.default_rng(seed)
    value, severity = rng.normal(10, spread, n), rng.normal(0, bias, r)
    severity -= severity.mean()
    who = np.array([rng.choice(r, per_instance, replace=False) for _ in range(n)]).ravel()
    row = np.repeat(np.arange(n), per_instance)
    given = np.round(value[row] + severity[who] + rng.normal(0, noise, len(row)), 2)
    table = AnnotationTable.from_arrays(row, who, given, scale="interval", n_annotators=r)
    return value, severity, table


def rmse(found, right):
    return float(np.sqrt(np.mean((found - right) ** 2)))


# -- what it finds --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_severities_are_found_and_values_gain(seed):
    value, severity, table = crowd(seed)
    model = RatingMean().fit(table)
    assert model.converged_
    assert rmse(model.severity_, severity) < 0.2  # 75 ratings each with noise 1: 0.12.
    assert rmse(model.values_, value) < 0.85 * rmse(model.mean_, value)
    assert abs(model.severity_sd_ - 1) < 0.35
    assert abs(model.noise_sd_ - 1) < 0.1
    assert abs(model.value_sd_ - 2) < 0.3


def test_without_severities_nothing_is_lost():
    errors = []
    for seed in range(6):
        value, _, table = crowd(seed, n=60, r=30, per_instance=2, bias=0.0)
        model = RatingMean().fit(table)
        errors.append((rmse(model.values_, value), rmse(model.mean_, value)))
    found, plain = np.mean(errors, axis=0)
    assert found < 1.03 * plain


def test_intervals_hold_the_truth_as_often_as_they_say():
    held, known = [], []
    for seed in range(8):
        value, severity, table = crowd(seed, n=150, r=25, per_instance=4)
        model = RatingMean().fit(table)
        low, high = model.interval(0.8).T
        held.append((low <= value) & (value <= high))
        known.append(abs(model.severity_ - severity) <= 1.2816 * model.severity_se_)
    assert 0.76 < np.mean(held) < 0.88
    assert 0.7 < np.mean(known) < 0.92
    with pytest.raises(AnnotationError, match="level=95"):
        model.interval(95)


def test_precision_gains_where_annotators_differ_much():
    rng = np.random.default_rng(0)
    value, who = rng.normal(0, 3, 200), np.tile(np.arange(6), 200)
    row = np.repeat(np.arange(200), 6)
    sd = np.array([0.3, 0.3, 0.3, 4, 4, 4])
    table = AnnotationTable.from_arrays(
        row, who, np.round(value[row] + rng.normal(0, sd[who]), 3), scale="interval"
    )
    plain, precise = RatingMean().fit(table), RatingMean(precision=True).fit(table)
    assert rmse(precise.values_, value) < 0.5 * rmse(plain.values_, value)
    assert (precise.annotator_sd_[:3] < 1).all()
    assert (precise.annotator_sd_[3:] > 3).all()
    assert precise.value_se_.mean() < plain.value_se_.mean()


def test_plain_mean_and_median():
    ratings = np.array([[1, 2, 9], [4, np.nan, 7], [np.nan, np.nan, 3], [np.nan] * 3])
    model = RatingMean(severity=False).fit(ratings)
    np.testing.assert_allclose(model.mean_, [4, 5.5, 3, np.nan])
    np.testing.assert_allclose(model.median_, [2, 5.5, 3, np.nan])
    np.testing.assert_allclose(model.values_[:3], model.mean_[:3])
    assert model.values_[3] == pytest.approx(model.mean_[:3].mean(), abs=2)  # Of the others.
    assert np.isfinite(model.value_se_).all()
    assert (model.severity_ == 0).all()


def test_shift_and_unit_of_the_scale_do_not_matter():
    _, _, table = crowd(n=80)
    first = RatingMean(tol=1e-9, max_iter=5000).fit(table)
    numbers = table.numbers * 7 - 300
    names = np.array([repr(float(v)) for v in numbers])
    second = RatingMean(tol=1e-9, max_iter=5000).fit(
        AnnotationTable(*table._columns._replace(classes=names))
    )
    assert_near(second.values_, first.values_ * 7 - 300, np.float32, 100)
    assert_near(second.severity_, first.severity_ * 7, np.float32, 100)


def test_weights_count_and_families_share_theirs():
    twice = AnnotationTable.from_arrays(
        [0, 0, 1, 1], [0, 1, 0, 1], [1, 4, 2, 6], weight=[2, 1, 2, 1], scale="interval"
    )
    model = RatingMean(severity=False).fit(twice)
    np.testing.assert_allclose(model.values_, [2, 10 / 3])
    table = AnnotationTable.from_matrix([[1, 1, 4], [2, 2, 8]], scale="interval")
    one = RatingMean(severity=False).fit(table.with_groups({0: "llm", 1: "llm"}, rho=1.0))
    np.testing.assert_allclose(one.values_, [2.5, 5])
    same = RatingMean(severity=False).fit(table, groups={0: "llm", 1: "llm"})
    assert (same.values_ > RatingMean(severity=False).fit(table).values_).all()


def test_gold_shows_what_all_annotators_share():
    value, _, table = crowd(bias=0.0)
    high = AnnotationTable(
        *table._columns._replace(classes=np.array([repr(float(v)) for v in table.numbers + 3]))
    )
    gold = {i: value[i] for i in range(100)}
    model = RatingMean().fit(high, gold=gold)
    assert model.is_known_.sum() == 100
    np.testing.assert_array_equal(model.values_[:100], value[:100])
    assert (model.value_se_[:100] == 0).all()
    rest = slice(100, None)
    assert abs((model.values_ - value)[rest].mean()) < 0.3
    assert abs((RatingMean().fit(high).values_ - value)[rest].mean()) > 2.5
    series = pd.Series(gold)
    np.testing.assert_array_equal(RatingMean().fit(high, gold=series).values_, model.values_)
    array = np.full(300, np.nan)
    array[:100] = value[:100]
    np.testing.assert_array_equal(RatingMean().fit(high, gold=array).values_, model.values_)


def test_one_constant_rating_is_no_problem():
    model = RatingMean().fit(AnnotationTable.from_matrix([[3, 3], [3, 3]], scale="interval"))
    assert model.values_.tolist() == [3, 3]
    assert np.isfinite(model.value_se_).all()


def test_annotators_who_share_nothing_are_told():
    ratings = np.full((6, 3), np.nan)
    ratings[np.arange(6), np.arange(6) % 3] = [1, 5, 9, 2, 6, 9]
    with pytest.warns(NotIdentifiableWarning, match="no instance has ratings of two annotators"):
        model = RatingMean().fit(ratings)
    np.testing.assert_allclose(model.values_, model.mean_)


# -- what surrounds it ----------------------------------------------------------------------------


def test_it_is_an_estimator_and_is_found():
    model = RatingMean(precision=True, max_iter=7)
    assert clone(model).get_params() == model.get_params()
    assert manyhands.RatingMean is RatingMean
    assert registry.find_averager("rating-mean") is RatingMean
    assert registry.find_averager("dawid-skene") is DawidSkene
    assert registry.all_averagers() == [("RatingMean", RatingMean)]
    assert "RatingMean" not in dict(registry.all_aggregators())
    with pytest.raises(AnnotationError, match=r"use one of .*rating-mean"):
        registry.find_averager("rating-meen-x")
    with pytest.raises(NotFittedError):
        model.predict([[1, 2]])
    with pytest.raises(ValueError, match="max_iter"):
        RatingMean(max_iter=0).fit([[1, 2], [2, 3]])


def test_fits_repeat_and_do_not_depend_on_the_order_of_rows():
    _, _, table = crowd(n=60)
    model = RatingMean().fit(table)
    np.testing.assert_array_equal(RatingMean().fit_predict(table), model.values_)
    shuffled = table.take(np.random.default_rng(0).permutation(table.n_annotations))
    assert_near(RatingMean().fit(shuffled).values_, model.values_, np.float32, 100)


def test_predict_subtracts_the_severities_of_the_fit():
    value, _, table = crowd()
    first, rest = table[:200], table[200:]
    model = RatingMean().fit(first)
    assert rmse(model.predict(rest), value[200:]) < 0.9 * rmse(
        RatingMean(severity=False).fit(rest).values_, value[200:]
    )
    assert_near(model.predict(first), model.values_, np.float64, 100)
    nothing = model.predict(rest.take(np.zeros(0, dtype=int)))
    np.testing.assert_allclose(nothing, nothing[0])
    precise = RatingMean(precision=True).fit(first)
    assert_near(precise.predict(first), precise.values_, np.float32, 100)
    stranger = AnnotationTable.from_arrays([0], ["nobody"], [3], scale="interval")
    with pytest.raises(AnnotationError, match=r"nobody.*partial_fit"):
        RatingMean().fit(AnnotationTable.from_arrays(
            [0, 0], ["a", "b"], [3, 4], scale="interval")).predict(stranger)  # fmt: skip


def test_partial_fit_is_the_fit_on_all():
    _, _, table = crowd(n=80)
    parts = table[:50], table[50:]
    # Each part knows its own numbers only, as two files do.
    own = [
        AnnotationTable.from_arrays(
            part.instances[part.instance].astype(str), part.annotator, part.values.astype(str),
            scale="interval", n_annotators=20,
        )
        for part in parts
    ]  # fmt: skip
    model = RatingMean().fit(own[0])
    known = own[0].instances[0]
    model.partial_fit(own[1], gold={own[1].instances[3]: 4.5})
    assert model.table_.n_annotations == table.n_annotations
    row = model.instances_.tolist().index(own[1].instances[3])
    assert (model.values_[row], model.is_known_.sum()) == (4.5, 1)
    whole = RatingMean().fit(model.table_, gold={own[1].instances[3]: 4.5})
    np.testing.assert_array_equal(model.values_, whole.values_)
    with pytest.raises(AnnotationError, match="known already"):
        model.partial_fit(own[1])
    with pytest.warns(UserWarning, match="nothing"):
        model.partial_fit(own[1], duplicates="last")
    assert known in model.instances_
    assert RatingMean().partial_fit(own[0]).table_.equals(own[0])


@pytest.mark.parametrize("precision", [False, True])
def test_a_saved_model_is_the_same(tmp_path, precision):
    _, _, table = crowd(n=40)
    model = RatingMean(precision=precision).fit(table, gold={0: 3.5})
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, RatingMean)
    assert again.get_params() == model.get_params()
    for name in ("values_", "value_se_", "severity_", "annotator_sd_", "mean_", "median_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.table_.equals(table)
    assert again.is_known_.sum() == 1
    with pytest.raises(NotFittedError):
        save(RatingMean(), tmp_path / "other")


def test_what_it_does_not_take_is_refused_by_name(tmp_path):
    words = AnnotationTable.from_matrix(
        [["low", "high"], ["mid", "mid"]], classes=["low", "mid", "high"]
    )
    with pytest.raises(AnnotationError, match="needs labels that are numbers, but one is 'low'"):
        RatingMean().fit(words)
    counts = AnnotationTable.from_counts([[3, 0, 1], [1, 2, 2]], classes=[1, 2, 3])
    with pytest.raises(AnnotationError, match="do not say who gave them, so RatingMean"):
        RatingMean().fit(counts)
    _, _, table = crowd(n=20)
    store = AnnotationStore.create(tmp_path / "store", table)
    assert store.scale == "interval"
    with pytest.raises(AnnotationError, match="RatingMean reads a table, and this is a store"):
        RatingMean().fit(store)
    assert RatingMean().fit(store[:]).values_.shape == (20,)
    with pytest.raises(AnnotationError, match="empty: no rating"):
        RatingMean().fit(table.take(np.zeros(0, dtype=int)))
    for gold, says in (
        ({0: "high"}, "no number"), ({0: np.inf}, "infinite"), ({999: 1.0}, "999"),
        ([1.0], "1 values"),
    ):  # fmt: skip
        with pytest.raises(AnnotationError, match=says):
            RatingMean().fit(table, gold=gold)
    model = RatingMean().fit(table)
    before = model.values_
    with pytest.raises(AnnotationError):
        model.fit(words)
    assert model.values_ is before
    with pytest.raises(AnnotationError, match=r"with_scale|numbers.*RatingMean"):
        DawidSkene().fit(table)


def test_grades_that_are_numbers_are_taken_too():
    matrix = np.random.default_rng(0).integers(1, 6, (30, 4))
    graded = AnnotationTable.from_matrix(matrix, ordered=True)
    np.testing.assert_array_equal(
        RatingMean().fit(graded).values_, RatingMean().fit(matrix).values_
    )


# -- what known values measure --------------------------------------------------------------------


def biased(table, per_item):
    """Return the table with an amount that is added to all ratings of an item."""
    ratings = np.round(table.values + per_item[table.instance], 2)
    return AnnotationTable.from_arrays(table.instance, table.annotator, ratings, scale="interval")


def test_known_values_measure_the_mistakes_that_annotators_share():
    """Of mistakes with a standard deviation of 1.5, which make the intervals far too narrow."""
    held, plain, n = [], [], 60
    for seed in range(6):
        value, _, table = crowd(seed)
        table = biased(table, np.random.default_rng(seed + 100).normal(0, 1.5, len(value)))
        model = RatingMean().fit(table, gold={i: value[i] for i in range(n)})
        assert model.n_measured_ == n
        assert 1.1 < model.shared_sd_ < 1.9
        low, high = model.interval(0.95)[n:].T
        held.append((low <= value[n:]) & (value[n:] <= high))
        own = np.sqrt(model.value_se_[n:] ** 2 - model.shared_sd_**2)
        plain.append(abs(model.values_ - value)[n:] < 1.96 * own)
    assert 0.92 < np.mean(held) < 0.98
    assert np.mean(plain) < 0.6


def test_known_values_measure_nothing_where_annotators_share_nothing():
    value, _, table = crowd(n=400)
    model = RatingMean().fit(table, gold={i: value[i] for i in range(200)})
    assert model.shared_sd_ < 0.25
    assert (model.value_se_[:200] == 0).all()


def test_few_known_values_and_those_of_a_queue_do_not_measure():
    value, _, table = crowd()
    gold = {i: value[i] for i in range(30)}
    few = RatingMean().fit(table, gold={i: value[i] for i in range(9)})
    assert (few.shared_sd_, few.n_measured_) == (None, 0)
    assert RatingMean().fit(table, gold=gold, random_gold=list(range(9))).n_measured_ == 0
    assert RatingMean().fit(table, gold=gold, random_gold=list(range(12))).n_measured_ == 12
    first = RatingMean().fit(table, gold=gold, random_gold=list(range(12)))
    more = AnnotationTable.from_arrays([30, 31], [0, 1], [10.0, 11.0], scale="interval")
    first.partial_fit(more, gold={30: 10.0}, random_gold=[30], duplicates="last")
    assert first.n_measured_ == 13


# -- people beside models -------------------------------------------------------------------------


def of_people_and_models(seed=0, n=120, off=1.5):
    """Values, and ratings by two people of the first half and by three models, too low, of all."""
    rng = np.random.default_rng(seed)
    value = rng.normal(10, 2, n)
    severity = np.array([0.5, -0.5, -off, -off, -off])
    ratings = np.round(value[:, None] + severity + rng.normal(0, 0.5, (n, 5)), 2)
    ratings[n // 2 :, :2] = np.nan
    names = ["anna", "ben", "gpt-4o", "llama-3", "qwen"]
    return value, AnnotationTable.from_matrix(ratings, annotators=names, scale="interval")


def test_values_are_on_the_scale_of_the_reference():
    value, table = of_people_and_models()
    model = RatingMean().fit(table, reference=["anna", "ben"])
    assert model.reference_ == ["anna", "ben"]
    assert abs(model.severity_[:2].mean()) < 1e-9
    np.testing.assert_allclose(model.severity_, [0.5, -0.5, -1.5, -1.5, -1.5], atol=0.15)
    for half in (slice(0, 60), slice(60, 120)):
        assert abs((model.values_ - value)[half].mean()) < 0.15
    with pytest.warns(UserWarning, match="3 of the 5 annotators are named like language models"):
        plain = RatingMean().fit(table)
    assert (plain.values_ - value).mean() < -0.7
    # Values and severities move together, so that the ratings are explained as before.
    move = model.values_ - plain.values_
    assert abs(move - move.mean()).max() < 0.05
    more = table.take(np.zeros(table.n_annotations, dtype=bool)).with_added(
        AnnotationTable.from_frame(
            pd.DataFrame({"task": [500], "worker": ["qwen"], "label": [8.5]}), scale="interval"
        )
    )
    both = model.partial_fit(more)
    assert abs(both.values_[both.instances_ == 500][0] - 10.0) < 0.2
    with pytest.raises(AnnotationError, match="reference"):
        RatingMean().fit(table, reference=["carl"])


def test_known_values_go_before_the_reference_and_need_no_warning():
    value, table = of_people_and_models()
    gold = {i: value[i] + 5 for i in range(60)}
    alike = [RatingMean().fit(table, gold=gold, reference=who) for who in (None, ["anna", "ben"])]
    np.testing.assert_allclose(alike[0].values_, alike[1].values_, rtol=1e-9)
    assert abs((alike[0].values_ - value)[60:].mean() - 5) < 0.3


@pytest.mark.parametrize("who", [[], "anna", 3, ["zoe"]])
@pytest.mark.filterwarnings("error")
def test_a_reference_of_nobody_who_rated_is_refused(who):
    table = of_people_and_models()[1]
    frame = pd.DataFrame({"task": [0], "worker": ["zoe"], "label": [8.5], "weight": [0.0]})
    table = table.with_added(AnnotationTable.from_frame(frame, weight="weight", scale="interval"))
    with pytest.raises(AnnotationError, match=r"reference=.*(leave reference out|give one of)"):
        RatingMean().fit(table, reference=who)


def test_a_reference_without_severities_is_refused():
    with pytest.raises(AnnotationError, match=r"reference=\['anna'\] does nothing .*severity=True"):
        RatingMean(severity=False).fit(of_people_and_models()[1], reference=["anna"])


@pytest.mark.filterwarnings("default:no instance has ratings of two annotators")
@pytest.mark.parametrize("n_models", [1, 2])
def test_a_reference_that_shares_no_instance_with_the_others_is_not_used(n_models):
    rng = np.random.default_rng(0)
    ratings = np.full((40, 1 + n_models), np.nan)
    ratings[:20, 0], ratings[20:, 1:] = rng.normal(5, 1, 20), rng.normal(4, 1, (20, n_models))
    names = ["anna", "gpt-4o", "llama-3"][: 1 + n_models]
    table = AnnotationTable.from_matrix(ratings, annotators=names, scale="interval")
    with pytest.warns(NotIdentifiableWarning, match=r"not on the scale of reference=\['anna'\]"):
        model = RatingMean().fit(table, reference=["anna"])
    assert model.reference_ is None
    beside = pd.DataFrame(
        {"task": range(10), "worker": "gpt-4o", "label": np.round(ratings[:10, 0] - 1, 2)}
    )
    model.partial_fit(AnnotationTable.from_frame(beside, scale="interval"))
    assert model.reference_ == ["anna"]
    assert model.severity_[0] == pytest.approx(0)


@pytest.mark.filterwarnings("default:no instance has ratings of two annotators")
def test_texts_name_no_scale_and_no_mend_that_does_nothing():
    ratings = np.full((6, 3), np.nan)
    ratings[range(6), [0, 0, 1, 1, 2, 2]] = [1, 2, 3, 1.5, 2.5, 4]
    names = ["anna", "gpt-4o", "llama-3"]
    table = AnnotationTable.from_matrix(ratings, annotators=names, scale="interval")
    with pytest.warns(UserWarning, match="let them rate some of the instances that models rate"):
        model = RatingMean().fit(table)
    assert scale_of(model).startswith("The values are plain means")
    with pytest.warns(UserWarning, match="set severity=True and name them"):
        model = RatingMean(severity=False).fit(of_people_and_models()[1])
    assert scale_of(model).startswith("The values are plain means")


@pytest.mark.parametrize("k", [1, 2, 4])
def test_intervals_on_the_scale_of_few_people_hold_for_people_in_general(k):
    held = []
    for seed in range(25):
        rng = np.random.default_rng(100 * seed + k)
        value = rng.normal(10, 2, 40)
        ratings = value[:, None] + rng.normal(0, 1, k + 3) + rng.normal(0, 0.7, (40, k + 3))
        names = [*(f"p{i}" for i in range(k)), "m1", "m2", "m3"]
        table = AnnotationTable.from_matrix(ratings, annotators=names, scale="interval")
        ends = RatingMean().fit(table, reference=names[:k]).interval()
        held.append(((ends[:, 0] < value) & (value < ends[:, 1])).mean())
    assert np.mean(held) > 0.85


# -- real ratings ---------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize(("question", "most"), [("relevance", 0.9), ("coherence", 0.97)])
def test_two_models_per_summary_are_nearer_to_people_without_severities(data_home, question, most):
    path = Path(data_home) / "judges" / "summeval" / "annotations.csv"
    rows = pd.read_csv(path, dtype={"task": str})
    rows = rows[rows["question"] == question]
    is_person = rows["worker"].str.startswith("person")
    truth = rows[is_person].groupby("task")["label"].mean()
    models = rows[~is_person].sample(frac=1, random_state=0).groupby("task").head(2)
    model = RatingMean().fit(AnnotationTable.from_frame(models, scale="interval"))
    right = truth.loc[model.instances_].to_numpy()

    def error(values):  # Of the values among themselves: people may give more than models.
        return (values - values.mean() - right + right.mean()).std()

    assert error(model.values_) < most * error(model.mean_)


REAL = [("summeval", q) for q in ("coherence", "consistency", "fluency", "relevance")]


@pytest.mark.data
@pytest.mark.parametrize(("name", "question"), [*REAL, ("10k_prompts", None)])
def test_intervals_measured_on_people_hold_the_means_of_other_people(data_home, name, question):
    """Half of the items have a known value, the mean of what people gave; the others test."""
    path = Path(data_home) / "judges" / name / "annotations.csv"
    rows = pd.read_csv(path, dtype={"task": str})
    rows = rows if question is None else rows[rows["question"] == question]
    is_person = rows["worker"].str.startswith("person")
    truth = rows[is_person].groupby("task")["label"].mean().sample(frac=1, random_state=0)
    table = AnnotationTable.from_frame(rows[~is_person], scale="interval")
    half = len(truth) // 2
    model = RatingMean().fit(table, gold=truth.iloc[:half].to_dict())
    place = {task: i for i, task in enumerate(model.instances_.tolist())}
    rest = truth.iloc[half:]
    at = [place[task] for task in rest.index]
    off = abs(model.values_[at] - rest.to_numpy())
    assert 0.9 < np.mean(off <= 1.96 * model.value_se_[at]) < 0.98
    narrow = RatingMean().fit(table)
    assert np.mean(abs(narrow.values_[at] - rest.to_numpy()) <= 1.96 * narrow.value_se_[at]) < 0.85


def test_who_asks_for_labels_is_told_of_the_values():
    table = AnnotationTable.from_matrix(np.array([[1.0, 2.5], [3.0, 4.5]]), scale="interval")
    model = RatingMean().fit(table)
    assert not hasattr(model, "labels_")
    with pytest.raises(AttributeError, match="its answers are numbers: values_ are"):
        _ = model.labels_
