"""A mean from a random few: the formulas, what its interval covers, and how wide it is."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from manyhands.exceptions import AnnotationError
from manyhands.metrics import mean_estimate
from manyhands.metrics.intervals import beta_interval
from manyhands.metrics.mean_estimate import drawn_for_half


def population(p, r2, n_items=2000, seed=0):
    """Labels of 0 and 1 whose mean is near p, and predictions that explain a share r2 of them."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n_items) < p).astype(float)
    if r2 == 0:
        return y, rng.random(n_items)
    noise = np.sqrt(p * (1 - p) * (1 - r2) / r2)
    return y, y + rng.normal(scale=noise, size=n_items)


def test_by_hand():
    y, f, F = np.array([1.0, 3.0, 2.0, 5.0]), np.array([1.0, 2.0, 2.0, 4.0]), np.arange(8.0)
    weight = min(np.cov(y, f)[0, 1] / f.var(ddof=1), 1.0)
    m = y.mean() - weight * (f.mean() - F.mean())
    se = np.sqrt((y - weight * f).var(ddof=1) * 0.5 / 4)
    found = mean_estimate(y, f, F)
    t = student.ppf(0.975, 2)
    assert found == pytest.approx((m, m - t * se, m + t * se, weight))


def test_a_share_by_hand():
    y, f = population(0.4, 0.5, n_items=300)
    found = mean_estimate(y[:100], f[:100], f)
    weight = np.cov(y[:100], f[:100])[0, 1] / f[:100].var(ddof=1)
    m = y[:100].mean() - weight * (f[:100].mean() - f.mean())
    variance = (y[:100] - weight * f[:100]).var(ddof=1) * (1 - 100 / 300) / 100
    k = m * (1 - m) / variance * (norm.ppf(0.975) / student.ppf(0.975, 98)) ** 2
    low, high = beta_interval(m * k + 0.5, (1 - m) * k + 0.5, level=0.95)
    assert found == pytest.approx((m, float(low), float(high), weight))


def test_few_labels_of_a_kind_leave_predictions_out():
    y = np.r_[np.ones(9), np.zeros(41)]
    found = mean_estimate(y, y, np.r_[y, np.zeros(50)])
    low, high = beta_interval(9 / 50 * 100 + 0.5, 41 / 50 * 100 + 0.5, level=0.95)
    assert found == pytest.approx((0.18, float(low), float(high), 0.0))


def test_all_items_labelled_is_exact():
    y, f = population(0.3, 0.5, n_items=80)
    assert mean_estimate(y, f, f)[:3] == pytest.approx((y.mean(),) * 3)


def test_clusters_by_hand():
    y, f = np.array([1.0, 3.0, 2.0, 5.0, 4.0, 4.0]), np.array([1.0, 2.0, 2.0, 4.0, 2.0, 4.0])
    F, cluster = np.r_[f, np.arange(6.0)], ["b", "b", "a", "a", "c", "c"]
    own, given = (
        np.array([(each[i] + each[i + 1]) - 2 * each.mean() for i in (2, 0, 4)]) for each in (y, f)
    )
    weight = np.clip(own @ given / (given @ given), 0, 1)
    m = y.mean() - weight * (f.mean() - F.mean())
    se = np.sqrt(3 / 2 * ((own - weight * given) ** 2).sum() * 0.5) / 6
    t = student.ppf(0.975, 1)
    found = mean_estimate(y, f, F, cluster=cluster)
    assert found == pytest.approx((m, m - t * se, m + t * se, weight))


@pytest.mark.parametrize("kind", ["scores", "shares", "few of a kind"])
def test_one_item_in_each_cluster_is_the_estimate_without_clusters(kind):
    y, f = population(0.03 if kind == "few of a kind" else 0.4, 0.5, n_items=300)
    y = y + f if kind == "scores" else y
    one_each = mean_estimate(y[:100], f[:100], f, cluster=np.arange(100))
    assert one_each == pytest.approx(mean_estimate(y[:100], f[:100], f))


@pytest.mark.parametrize("kind", ["scores", "shares", "few of a kind"])
def test_repeated_items_of_a_cluster_tell_nothing_more(kind):
    y, f = population(0.03 if kind == "few of a kind" else 0.4, 0.5, n_items=300)
    y = y + f if kind == "scores" else y
    once = mean_estimate(y[:100], f[:100], f)
    cluster = np.repeat(np.arange(100), 4)
    few = np.repeat(y[:100], 4), np.repeat(f[:100], 4), np.repeat(f, 4)
    four = mean_estimate(*few, cluster=cluster)
    assert four == pytest.approx(once, abs=2e-3)
    alone = mean_estimate(*few)
    assert alone.high - alone.low < 0.6 * (once.high - once.low)


@pytest.mark.parametrize(("n", "n_all"), [(10, 40), (20, 500), (40, 100), (100, 100_000)])
def test_how_many_draws_halve_the_interval(n, n_all):
    drawn = drawn_for_half(n, n_all)

    def width(k):
        return student.ppf(0.975, k - 2) * np.sqrt(1 / k - 1 / n_all)

    assert width(drawn) <= width(n) / 2 < width(drawn - 1)


@pytest.mark.parametrize(("p", "least"), [(0.5, 0.92), (0.3, 0.92), (0.05, 0.88)])
@pytest.mark.parametrize("r2", [0.0, 0.5])
@pytest.mark.parametrize("n", [25, 100, 200])
def test_the_interval_covers(p, least, r2, n):
    y, f = population(p, r2, seed=1)
    rng, hits, runs = np.random.default_rng(2), 0, 400
    for _ in range(runs):
        few = rng.choice(len(y), n, replace=False)
        found = mean_estimate(y[few], f[few], f)
        hits += found.low <= y.mean() <= found.high
    assert hits / runs >= least


@pytest.mark.parametrize(("r2", "most"), [(0.5, 0.82), (0.0, 1.02)])
def test_good_predictions_make_it_narrower_and_bad_ones_hardly_wider(r2, most):
    y, f = population(0.4, r2, seed=3)
    rng, ratios = np.random.default_rng(4), []
    for _ in range(200):
        few = rng.choice(len(y), 200, replace=False)
        with_them = mean_estimate(y[few], f[few], f)
        alone = mean_estimate(y[few], np.zeros(200), np.zeros(len(y)))
        ratios.append((with_them.high - with_them.low) / (alone.high - alone.low))
    assert np.mean(ratios) <= most


@pytest.mark.parametrize(
    ("labelled", "predicted", "everywhere", "says"),
    [
        ([1, 0, 1], [1, 0], [1, 0, 1], "predicted has 2"),
        ([1, 0], [1, 0], [1, 0], "at least three"),
        ([1, 0, 1], [1, 0, 1], [1, 0], "everywhere only 2"),
        ([1, np.nan, 1], [1, 0, 1], [1, 0, 1], "labelled has shape"),
        ([[1, 0, 1]], [1, 0, 1], [1, 0, 1], "not one value each"),
    ],
)
def test_bad_arguments_are_named(labelled, predicted, everywhere, says):
    with pytest.raises(AnnotationError, match=says):
        mean_estimate(labelled, predicted, everywhere)


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ([1, 2, 3], "give one value for each of the 4 labels"),
        ([1, 1, 2, 2], "are in 2 clusters"),
        (["a", None, "b", None], "cluster is missing for 2 of the 4 labels, .* position 1"),
        ([1.0, np.nan, 2.0, 3.0], "cluster is missing for 1 of the 4 labels"),
        ([1, "a", 2, "b"], "cluster mixes strings and other values"),
    ],
)
def test_bad_clusters_are_named(cluster, says):
    with pytest.raises(AnnotationError, match=says):
        mean_estimate([1, 0, 1, 3], [1, 0, 1, 0], [1, 0, 1, 0, 1], cluster=cluster)
