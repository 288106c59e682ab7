"""Whom a plan asks: what it expects of annotators with few annotations, by hand and replayed."""

import numpy as np
import pytest

from manyhands import AnnotationPlanner, AnnotationTable, DawidSkene
from manyhands.cli.commands.planning import EXPECTED_RIGHT, TRULY_RIGHT
from manyhands.datasets import load_labelme, load_music, load_product, load_sentiment
from manyhands.inference.inputs import gold_codes
from manyhands.metrics import annotator_reliability
from manyhands.planning import screen_annotators
from manyhands.planning.beliefs import are_unjudged, beliefs_of

TABLES = {
    "labelme": load_labelme,
    "music": load_music,
    "sentiment": load_sentiment,
    "product": load_product,
}


def with_lucky_one(n_lucky, n=300):
    """Four annotators of 90, 80, 75 and 70 %, and one whose few answers agree with the best."""
    rng, y = np.random.default_rng(0), np.arange(n) % 3
    given = np.full((n, 5), -1)
    for r, right in enumerate((0.9, 0.8, 0.75, 0.7)):
        given[:, r] = np.where(rng.random(n) < right, y, (y + rng.integers(1, 3, n)) % 3)
    given[rng.random(given.shape) < 0.3] = -1
    sure = np.flatnonzero((given[:, :4] == y[:, None]).all(axis=1))[:n_lucky]
    given[:, 4] = -1
    given[sure, 4] = y[sure]
    return AnnotationTable.from_matrix(given)


@pytest.mark.parametrize("n_lucky", [1, 4])
def test_a_few_lucky_answers_make_nobody_as_good_as_the_best(n_lucky):
    table = with_lucky_one(n_lucky)
    planner = AnnotationPlanner(warm_up=0, random_state=0).fit(table)
    assert planner.is_unjudged_.tolist() == [False] * 4 + [True]
    open_to_all = np.flatnonzero(table.vote_counts().sum(axis=1) == 1).tolist()
    pairs = [(i, r) for i in open_to_all for r in (0, 4)]
    has_both = {i for i in open_to_all if not {(i, 0), (i, 4)} & set(zip(
        table.instance.tolist(), table.annotator.tolist(), strict=True))}  # fmt: skip
    batch = planner.suggest(len(has_both), [p for p in pairs if p[0] in has_both])
    assert set(batch.annotators.tolist()) == {0}
    # The lucky one is worth as much as a newcomer is.
    i = min(has_both)
    lucky, newcomer = (planner.suggest(1, [(i, who)]) for who in (4, 99))
    assert lucky.expected_gain == pytest.approx(newcomer.expected_gain)


def test_five_annotations_and_those_of_a_history_are_enough_to_be_judged():
    assert not AnnotationPlanner(warm_up=0).fit(with_lucky_one(5)).is_unjudged_.any()
    table = with_lucky_one(2)
    model = DawidSkene().fit(table, history={4: np.diag([1.0, 1.0, 1.0])})
    assert not are_unjudged(model, table).any()


@pytest.mark.parametrize("n_classes", [3, 5])
def test_what_a_plan_expects_of_the_best_with_five_to_nine_annotations_comes_true(n_classes):
    """Mean over the best tenth in 20 simulated crowds of 60, who share no mistakes.

    The accuracy of the annotations that are there is too high a forecast: luck made them the best.
    """
    found = []
    for seed in range(20):
        rng, n = np.random.default_rng(seed), 140
        accuracy, y = rng.beta(6, 2.5, 60), rng.integers(n_classes, size=n)
        wrong = (y[:, None] + rng.integers(1, n_classes, (n, 60))) % n_classes
        given = np.where(rng.random((n, 60)) < accuracy, y[:, None], wrong)
        given[rng.random((n, 60)).argsort(axis=1).argsort(axis=1) >= 3] = -1
        planner = AnnotationPlanner(warm_up=0).fit(AnnotationTable.from_matrix(given))
        beliefs, table = planner._beliefs, planner.table_
        assert table.n_annotators == 60
        few = np.isin(table.annotations_per_annotator(), range(5, 10))
        expected = np.einsum("c,rcc->r", beliefs.prior, beliefs.confusion)
        so_far = annotator_reliability(table, planner.posterior_).accuracy
        for forecast in (expected, so_far):
            best = np.argsort(-np.where(few, forecast, -1), kind="stable")[: few.sum() // 10]
            found.append((forecast[best].mean(), accuracy[best].mean()))
    planned, so_far = np.mean([found[::2], found[1::2]], axis=1)
    assert planned[0] == pytest.approx(planned[1], abs=0.05)
    assert so_far[0] > so_far[1] + 0.05


def replayed(name, home, seed):
    """Return the pairs that a plan asks: expected and true rate of right answers, and unjudged.

    Two random annotations of each instance are on file, and all that are recorded may be asked.
    """
    data = TABLES[name](home)
    full, rng = data.annotations, np.random.default_rng(seed)
    y = gold_codes(data.y_train, full)
    n, start = np.zeros(full.n_instances, dtype=int), np.zeros(full.n_annotations, dtype=bool)
    for row in rng.permutation(full.n_annotations):
        start[row] = n[full.instance[row]] < 2
        n[full.instance[row]] += start[row]
    table = full.take(np.flatnonzero(start))
    planner = AnnotationPlanner(random_state=0, load=2.0).fit(table)
    rest = np.flatnonzero(~start)
    may = np.zeros((full.n_instances, full.n_annotators), dtype=bool)
    may[full.instance[rest], full.annotator[rest]] = True
    batch = planner.suggest(full.n_instances // 4, may)
    place = {(full.instance[row], full.annotator[row]): row for row in rest}
    codes = [{value: k for k, value in enumerate(ids.tolist())}
             for ids in (full.instances, full.annotators)]  # fmt: skip
    i, r = (np.array([code[each] for each in ids.tolist()]) for code, ids in
            zip(codes, (batch.instances, batch.annotators), strict=True))  # fmt: skip
    right = np.array([full.label[place[pair]] == y[pair[0]] for pair in zip(i, r, strict=True)])
    matrices = np.stack([beliefs_of(planner.aggregator_, table)[0].confusion,
                         planner._beliefs.confusion])  # fmt: skip
    expected = np.einsum("mc,xmcc->xm", planner.posterior_[i], matrices[:, r])
    return expected, right, planner.is_unjudged_[r]


@pytest.mark.data
def test_nobody_who_cannot_be_judged_yet_is_preferred(data_home):
    """On four tables, two starts each.

    All that is expected is too much by some points, because the items asked about are hard ones.
    """
    found = [replayed(name, data_home, seed) for name in TABLES for seed in range(2)]
    own, believed = (np.concatenate([each[0][k] for each in found]) for k in range(2))
    right, unjudged = (np.concatenate([each[k] for each in found]) for k in (1, 2))
    assert unjudged.sum() > 100
    assert believed[unjudged].mean() < own[unjudged].mean()
    assert believed[unjudged].mean() < believed[~unjudged].mean() - 0.03
    gap = [(believed - right)[mask].mean() for mask in (unjudged, ~unjudged)]
    assert gap[0] < gap[1] + 0.03 < 0.15


@pytest.mark.data
def test_plans_expect_too_many_right_answers_and_next_says_how_many(data_home):
    """Means over the same tables, each of which counts the same."""
    found = []
    for name in TABLES:
        runs = [replayed(name, data_home, seed) for seed in range(2)]
        expected, right = (np.concatenate(each) for each in
                           ([run[0][1] for run in runs], [run[1] for run in runs]))  # fmt: skip
        found.append((expected.mean(), right.mean()))
    assert np.mean(found, axis=0) == pytest.approx([EXPECTED_RIGHT, TRULY_RIGHT], abs=0.01)


def with_habits(seed, n_classes, n=400, n_annotators=30):
    """Annotators of 40 to 95 %, five per item, two of whom nearly always call one class another."""
    rng, c = np.random.default_rng(seed), np.arange(n_classes)
    y, right = rng.integers(n_classes, size=n), rng.uniform(0.4, 0.95, n_annotators)
    mistakes = rng.dirichlet(np.ones(n_classes), n_classes) + 0.2
    mistakes[c, c] = 0
    mistakes /= mistakes.sum(axis=1, keepdims=True)
    confusion = (1 - right)[:, None, None] * mistakes
    confusion[:, c, c] = right[:, None]
    confusion[:2, 0] = np.where(c == 1, 0.95, 0.05 / (n_classes - 1))
    given = np.array([[rng.choice(n_classes, p=own[true]) for own in confusion] for true in y])
    given[rng.random(given.shape).argsort(axis=1).argsort(axis=1) >= 5] = -1
    return AnnotationTable.from_matrix(given)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_habits_are_told_of_those_who_have_them_and_hardly_of_others(n_classes):
    """Whoever is flagged has other advice. Of 168 people without the habit, at most one is told."""
    told, others = 0, 0
    for seed in range(6):
        for row in screen_annotators(with_habits(seed, n_classes)):
            has = row.advice.startswith(
                "labels most items of the class 0 as 1: show them examples of both"
            )
            assert not (has and row.flags)
            if row.annotator < 2:
                told += has or bool(row.flags)
            else:
                others += row.advice.startswith("labels most")
    assert told >= 9  # Of 12.
    assert others <= 1


def test_grades_get_no_advice_on_habits_and_others_are_left_alone():
    table = with_habits(3, 3)
    advice = [row.advice for row in screen_annotators(table) if not row.flags]
    assert "no reason to act" in advice
    assert any("--teach 0`" in each for each in advice)
    grades = AnnotationTable.from_arrays(
        table.instance, table.annotator, table.label, classes=[0, 1, 2], ordered=True
    )
    assert not any("labels most" in row.advice for row in screen_annotators(grades))
