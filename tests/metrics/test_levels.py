"""What a person is told of the share of right labels: its source, its interval, and the truth."""

import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from manyhands import AnnotationTable, DawidSkene, make_crowd
from manyhands.exceptions import AnnotationError
from manyhands.metrics import Level, accuracy_of_labels, accuracy_on_new_items
from manyhands.metrics.certainty import Certainty
from manyhands.metrics.inferred_labels import level_of_labels
from manyhands.metrics.intervals import beta_interval
from manyhands.metrics.levels import MODEL_ERROR, expectation_error
from manyhands.metrics.sample_levels import level_of_gold, level_of_sample
from manyhands.report.headline import headline, tell_labels

ROOT = Path(__file__).parents[2]


def crowd(n=400, seed=0, each=4.0, noise=0.3):
    y = np.random.default_rng(seed).integers(3, size=n)
    return y, make_crowd(
        y, annotations_per_instance=each, noise="uniform", noise_strength=noise, random_state=seed
    )


def expected(probabilities, k):
    """What a model expects of labels with k annotations each, less by how much it is too sure."""
    return pytest.approx(expit(logit(np.mean(probabilities)) - 1 / k))


def test_gold_measures_before_anything_else():
    y, table = crowd()
    labels = np.where(np.arange(400) < 40, (y + 1) % 3, y)
    gold = np.full(400, None, dtype=object)
    gold[20:70] = y[20:70]
    level = accuracy_of_labels(table, labels, np.eye(3)[labels], gold=gold, sample=y)
    low, high = beta_interval(30.5, 20.5, level=0.95)
    assert level[:5] == Level(0.6, float(low), float(high), "gold", 50)[:5]
    assert level.is_measured


def test_single_labels_follow_gold_and_what_the_model_expects_as_ten_more_labels():
    right = np.repeat([True, False], [30, 20])
    assert level_of_gold(right, "gold").of_labels is None
    both = level_of_gold(right, "gold", 0.65)
    assert both.of_labels == pytest.approx((30 + 0.5 + 10 * 0.65) / (50 + 1 + 10))
    assert both.value == 0.6
    far = level_of_gold(right, "gold", 0.99)  # As far as the interval allows.
    assert far.of_labels == pytest.approx((30.5 + 10 * far.high) / 61)
    probability = np.linspace(0.4, 0.99, 200)
    assert Certainty.of(both, probability, 3)(probability).mean() == pytest.approx(both.of_labels)


def test_a_measured_share_knows_the_share_of_the_other_part():
    """By hand: the sample's own share, and that of the others from a sample that is surer."""
    y, table = crowd()
    labels = np.where(np.arange(400) % 4 == 0, (y + 1) % 3, y)
    posterior = np.eye(3)[labels] * 0.7 + 0.1
    gold = np.full(400, None, dtype=object)
    gold[:60] = y[:60]
    random = np.arange(400) < 60
    measured = accuracy_of_labels(table, labels, posterior, gold=gold, random=random)
    assert (measured.source, measured.value) == ("gold", 45 / 60)
    sampled = accuracy_of_labels(table, labels, posterior, sample=gold, known=random, random=random)
    assert (sampled.source, sampled.other_part) == ("sample", 45 / 60)
    assert measured.other_part == pytest.approx(sampled.value, abs=0.01)
    # In the sample, the right labels are the sure ones; outside, half of the labels are sure.
    sure = np.where(random, labels == y, np.arange(400) % 2 == 0)[:, None]
    posterior = np.where(sure, np.eye(3)[labels] * 0.85 + 0.05, np.eye(3)[labels] * 0.25 + 0.25)
    surer = accuracy_of_labels(table, labels, posterior, gold=gold, random=random)
    assert surer.value == 45 / 60
    assert surer.other_part < measured.other_part - 0.05
    # It is not told of gold that may have been chosen, nor if there is no other part.
    chosen = accuracy_of_labels(table, labels, np.eye(3)[labels], gold=gold)
    assert chosen.other_part is None
    assert accuracy_of_labels(table, labels, posterior, gold=y, random=y >= 0).other_part is None


def test_the_estimate_of_the_other_labels_is_lower_or_higher_as_is_said():
    """Replays the advice: the sample is given as known labels, and all labels are inferred anew."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    skill = np.where(np.arange(400) % 2, 0.9, 0.45)[:, None]
    other = (y[:, None] + rng.integers(1, 3, (400, 5))) % 3
    table = AnnotationTable.from_matrix(np.where(rng.random((400, 5)) < skill, y[:, None], other))
    model = DawidSkene().fit(table)
    held = []
    for _ in range(40):
        drawn = np.zeros(400, dtype=bool)
        drawn[rng.choice(400, 60, replace=False)] = True
        gold = np.where(drawn, y, None)
        told = tell_labels(
            table,
            model,
            model.posterior_.argmax(axis=1),
            model.posterior_,
            gold=np.where(drawn, y, -1),
            random=drawn,
        )
        if "in the sample" in told.headline:
            known = DawidSkene().fit(table, gold=gold, random_gold=drawn)
            after = level_of_labels(table, known, known.posterior_.argmax(axis=1), known.posterior_)
            assert after.source == "sample"
            held.append(("probably lower" in told.headline) == (after.value < told.level.value))
    assert len(held) >= 10
    assert np.mean(held) >= 0.9


def test_the_headline_says_of_which_labels_a_measured_share_is():
    level = {"value": 0.72, "low": 0.6, "high": 0.82, "n": 60, "of_labels": None}
    found = {"n": 1000, "n_known": 0}

    def told(source, other, **more):
        own = level | {"source": source, "other_part": other}
        return headline({"levels": found | more | {"labels": own}, "data": {"n_classes": 3}})

    assert told("gold", 0.66).endswith(
        "measured on 60\u00a0gold labels. This is the share in the sample. To estimate the share "
        "of all other labels, give the same file as --known in place of --gold. That estimate also "
        "uses how certain the labels are; it is probably lower."
    )
    assert told("gold", 0.78).endswith("probably higher.")
    assert told("sample", 0.8, n_known=60).endswith(
        "labels that people checked. Of the 60\u00a0checked labels, 80\u202f% were right before "
        "the check. The estimate also uses how certain the other labels are."
    )
    for source in ("gold", "sample"):
        for other in (None, 0.71):
            assert "other labels" not in told(source, other)


def test_too_little_gold_measures_nothing():
    y, table = crowd()
    model = DawidSkene().fit(table)
    gold = np.full(400, None, dtype=object)
    gold[:9] = y[:9]
    level = accuracy_of_labels(table, model.labels_, model.posterior_, gold=gold)
    assert level.source == "model"
    assert not level.is_measured


def test_labels_that_were_given_measure_nothing():
    y, table = crowd()
    known = np.arange(400) < 100
    model = DawidSkene().fit(table, gold={i: y[i] for i in range(100)})
    gold = np.where(known, y, None)
    level = accuracy_of_labels(table, model.labels_, model.posterior_, gold=gold, known=known)
    assert level.source == "model"
    assert level.n == 300
    each = 2 * table.n_annotations / 400  # Known labels hold the model down.
    assert level.value == expected(model.posterior_[100:].max(axis=1), each)


@pytest.mark.parametrize("n", [60, 400])
def test_a_correction_hardly_widens_the_interval(n):
    """A person corrects the most doubtful labels one by one, and the labels are inferred again."""
    for seed in range(3):
        y, table = crowd(n=n, seed=seed)
        gold = np.full(n, None, dtype=object)
        widths = []
        for _ in range(6):
            model = DawidSkene().fit(table, gold=gold)
            known = model.is_known_
            level = accuracy_of_labels(table, model.labels_, model.posterior_, known=known)
            assert (level.source, level.n) == ("model", n - known.sum())
            widths.append(level.high - level.low)
            doubtful = np.where(known, np.inf, model.posterior_.max(axis=1)).argmin()
            gold[doubtful] = y[doubtful]
        # With constants that jump, the first correction widens it by ten points.
        assert np.all(np.diff(widths) < 0.02)


def test_with_a_tenth_of_the_labels_known_the_model_is_off_by_what_it_is_after_a_review():
    """The constants are those without known labels, those after a review, and halfway between."""
    _, table = crowd(n=400)
    each = table.n_annotations / 400
    found = [expectation_error(table, reviewed=share) for share in (0.0, 0.05, 0.1, 0.5)]
    assert [error.sd for error in found] == pytest.approx([0.55, 0.65, 0.75, 0.75])
    off = [error.overconfidence * each for error in found]
    assert off == pytest.approx([1, 0.75, 0.5, 0.5])


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_one_annotation_each_says_nothing_of_the_labels():
    _, table = crowd(each=1.0)
    model = DawidSkene().fit(table)
    assert accuracy_of_labels(table, model.labels_, model.posterior_) is None


def test_what_a_model_expects_holds_on_real_tables():
    """The interval of `DawidSkene`'s own expectation, on all tables of the committed benchmark."""
    records = (ROOT / "results" / "benchmarks" / "aggregation.jsonl").read_text().splitlines()
    cells = [cell for cell in map(json.loads, records) if cell["method"] == "DawidSkene"]
    apart = np.array([logit(cell["accuracy"]) - logit(cell["confidence"]) for cell in cells])
    assert len(apart) > 20
    assert np.sqrt((apart**2).mean()) == pytest.approx(MODEL_ERROR, abs=0.05)
    assert np.mean(np.abs(apart) < 1.96 * MODEL_ERROR) >= 0.9


@pytest.mark.parametrize("noise", [0.1, 0.25, 0.4])
def test_what_a_model_expects_of_simulated_crowds_is_true(noise):
    for seed in range(5):
        y, table = crowd(n=300, seed=seed, noise=noise)
        model = DawidSkene().fit(table)
        level = accuracy_of_labels(table, model.labels_, model.posterior_)
        assert level.low < np.mean(model.labels_ == y) < level.high


def test_a_random_sample_measures_with_an_interval_that_covers():
    y, table = crowd(n=600, noise=0.4)
    model, hits = DawidSkene().fit(table), 0
    right = np.mean(model.labels_ == y)
    for seed in range(40):
        drawn = np.random.default_rng(seed).choice(600, 60, replace=False)
        sample = np.full(600, None, dtype=object)
        sample[drawn] = y[drawn]
        level = accuracy_of_labels(table, model.labels_, model.posterior_, sample=sample)
        assert (level.source, level.n) == ("sample", 60)
        hits += level.low < right < level.high
    assert hits >= 35


def test_new_items_are_measured_on_gold_or_out_of_fold_and_never_in_sample():
    y, table = crowd(n=600)
    predicted = np.where(np.random.default_rng(1).random(600) < 0.8, y, (y + 1) % 3)
    level = accuracy_on_new_items(table, predicted)
    assert level.source == "cross-validation"
    assert level.low < np.mean(predicted == y) < level.high
    measured = accuracy_on_new_items(table, predicted, gold=y[:50], predicted=predicted[:50])
    assert measured.source == "gold"
    assert measured.value == np.mean(predicted[:50] == y[:50])
    assert accuracy_on_new_items() is None


def test_bad_arguments_are_named():
    y, table = crowd()
    with pytest.raises(AnnotationError, match="labels has shape"):
        accuracy_of_labels(table, y[:5])
    with pytest.raises(AnnotationError, match="posterior has shape"):
        accuracy_of_labels(table, y, np.ones((400, 2)) / 2)
    with pytest.raises(AnnotationError, match="gold has shape"):
        accuracy_on_new_items(gold=y, predicted=y[:5])


def test_instances_without_annotations_do_not_count():
    rows = [[0, 0, 0], [1, 1, 1]] * 30 + [[-1, -1, -1]]
    table = AnnotationTable.from_matrix(np.array(rows))
    posterior = [[0.9, 0.1], [0.3, 0.7]] * 30 + [[0.5, 0.5]]
    level = accuracy_of_labels(table, [0, 1] * 30 + [0], posterior)
    assert level.value == expected([0.8], 3)
    assert level.n == 60


def test_two_labels_say_nothing_of_how_many_are_right():
    table = AnnotationTable.from_matrix(np.array([[0, 0, 0], [1, 1, 1]]))
    assert accuracy_of_labels(table, [0, 1], [[0.99, 0.01], [0.01, 0.99]]) is None


def test_a_model_is_less_believed_where_annotations_are_few():
    """On average over crowds of all kinds it is surer of them than it should be."""
    levels, apart = [], []
    for each in (2.0, 8.0):
        y, table = crowd(n=1000, each=each)
        model = DawidSkene().fit(table)
        level = accuracy_of_labels(table, model.labels_, model.posterior_)
        own = model.posterior_.max(axis=1).mean()
        assert level.low < level.value < own < level.high
        levels.append(level)
        apart.append(logit(own) - logit(level.value))
        assert level.low < np.mean(model.labels_ == y) < level.high
    np.testing.assert_allclose(apart, [1 / 2, 1 / 8], rtol=0.02)


def test_two_annotators_do_not_tell_how_good_they_are():
    y = np.random.default_rng(0).integers(3, size=300)
    table = make_crowd(y, n_annotators=2, annotations_per_instance=2.0, random_state=0)
    model = DawidSkene().fit(table)
    assert accuracy_of_labels(table, model.labels_, model.posterior_) is None
    # Known labels of 40 instances do.
    known = np.arange(300) < 40
    model = DawidSkene().fit(table, gold=np.where(known, y, None))
    level = accuracy_of_labels(table, model.labels_, model.posterior_, known=known)
    assert level.low < np.mean((model.labels_ == y)[40:]) < level.high


def test_gold_of_another_type_is_refused_rather_than_wrong():
    y, table = crowd()
    with pytest.raises(AnnotationError, match=r"gold holds '.' .* convert them to the type"):
        accuracy_of_labels(table, y, gold=y.astype(str))
    with pytest.raises(AnnotationError, match="not among the classes"):
        accuracy_of_labels(table, y, gold=y + 5)
    with pytest.raises(AnnotationError, match="of another type"):
        accuracy_on_new_items(gold=y, predicted=y.astype(str))


@pytest.mark.parametrize("n", [10, 25, 50, 100, 200])
def test_the_interval_of_a_sample_covers_whatever_the_share_and_the_model(n):
    """Shares from .5 to .99, of a model that is right about them, far too sure, or none."""
    rng, N, covered = np.random.default_rng(n), 2000, []

    @cache
    def level_of(k, model):  # Without predictions, only the number of right labels matters.
        has = np.arange(N) < n
        return level_of_sample(np.arange(N) < k, has, None, ~has, model)

    for share in (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99):
        hits = {model: [] for model in (None, share, 0.995)}
        for _ in range(400):
            right = rng.random(N) < share
            has = np.zeros(N, dtype=bool)
            has[rng.choice(N, n, replace=False)] = True
            for model, found in hits.items():
                level = level_of(int(right[has].sum()), model)
                assert 0 < level.value < 1
                assert level.low <= level.value <= level.high
                found.append(level.low <= right[~has].mean() <= level.high)
        covered += [np.mean(each) for each in hits.values()]
    assert min(covered) >= 0.9 - 2 * np.sqrt(0.9 * 0.1 / 400)
    assert np.mean(covered) >= 0.94


def test_a_sample_without_a_wrong_label_does_not_say_that_none_is_wrong():
    """Fifty right labels come of a share of .93 in one of forty samples."""
    has = np.arange(1000) < 50
    right = np.ones(1000, dtype=bool)
    level = level_of_sample(right, has, None, ~has)
    assert 0.98 < level.value < 1
    assert level.low == pytest.approx(0.93, abs=0.005)
    told = level_of_sample(right, has, None, ~has, 0.92)
    assert 0.96 < told.value < level.value
    assert (told.low, told.high) == (level.low, level.high)
    wrong = level_of_sample(~right, has, None, ~has)
    assert (wrong.value, wrong.high) == pytest.approx((1 - level.value, 1 - level.low))


def test_the_level_of_a_model_makes_the_estimate_from_few_labels_better():
    """Where the model is off by what models are off by on real tables."""
    rng, errors = np.random.default_rng(0), []
    for _ in range(400):
        share = rng.uniform(0.6, 0.98)
        right = rng.random(1000) < share
        has = np.arange(1000) < 25
        model = float(expit(logit(share) + rng.normal(scale=MODEL_ERROR)))
        pair = (level_of_sample(right, has, None, ~has, each).value for each in (None, model))
        errors.append([(each - right[~has].mean()) ** 2 for each in pair])
    alone, with_it = np.sqrt(np.mean(errors, axis=0))
    assert with_it < 0.9 * alone


def test_gold_labels_that_are_all_right_do_not_measure_certainty():
    y, table = crowd()
    gold = np.where(np.arange(400) < 30, y, None)
    level = accuracy_of_labels(table, y, gold=gold)
    assert level.value == pytest.approx(30.5 / 31)
    assert level.low == pytest.approx(0.025 ** (1 / 30))


# -- gold that was chosen by its doubt -------------------------------------------------------------


@pytest.fixture(scope="module", params=[(400, 3, 2), (300, 5, 4)], ids=["pairs", "classes"])
def crowded(request):
    n, k, n_classes = request.param
    y = np.random.default_rng(k).integers(0, n_classes, n)
    options = {"noise": "uniform", "noise_strength": (0.1, 0.4), "random_state": k}
    table = make_crowd(y, n_annotators=12, annotations_per_instance=k, **options)
    return table, y, DawidSkene().fit(table)


def level_on(crowded, rows, kind="gold", **options):
    """The level on known labels of some rows, and how many warnings leave them out."""
    table, y, model = crowded
    known = np.full(len(y), None, dtype=object)
    known[rows] = y[rows]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = {kind: known, **options}
        level = accuracy_of_labels(table, model.labels_, model.posterior_, **given)
    return level, [str(each.message) for each in caught]


@pytest.mark.parametrize("kind", ["gold", "sample"])
@pytest.mark.parametrize("n", [10, 30, 100])
def test_labels_that_were_chosen_by_their_doubt_do_not_measure(crowded, n, kind):
    """Thirty of the most doubtful labels told 35 % (15 to 48 %), "checked at random", of 94 %."""
    table, y, model = crowded
    order = np.argsort(model.posterior_.max(axis=1), kind="stable")
    plain = accuracy_of_labels(table, model.labels_, model.posterior_)
    name = "gold" if kind == "gold" else "checked"
    for rows, more in ((order[:n], "more"), (order[-n:], "less")):
        level, told = level_on(crowded, rows, kind)
        assert level == plain
        assert len(told) == 1
        assert told[0].startswith(f"{n} {name} labels are of items that are {more} in doubt than")
        assert "which random labels rarely are (rank test, p = " in told[0]
        assert "not drawn at random" not in told[0]  # Nobody knows it.
        assert "a column 'chosen' that holds 'random'" in told[0]
    random = np.isin(np.arange(len(y)), order[:n])
    level, told = level_on(crowded, order[:n], kind, random=random)
    assert level.source == kind
    assert not told


@pytest.mark.parametrize("n", [10, 30, 100])
def test_random_labels_measure(crowded, n):
    rng = np.random.default_rng(n)
    found = [level_on(crowded, rng.choice(len(crowded[1]), n, replace=False)) for _ in range(200)]
    assert sum(bool(told) for _, told in found) <= 7  # Two are expected; eight have p = .001.
    assert all((level.source == "gold") != bool(told) for level, told in found)
