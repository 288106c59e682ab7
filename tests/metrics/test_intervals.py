"""How often intervals hold what they are about; docs/results/intervals.md has more of it."""

import numpy as np
import pytest
from scipy.stats import binom

from manyhands import IBCC, AnnotationTable, DawidSkene
from manyhands.datasets import AGGREGATION_SETS, load_aggregation
from manyhands.metrics import annotators, calibration
from manyhands.metrics.annotators import annotator_reliability
from manyhands.metrics.intervals import beta_interval, share_interval


def crowd(n, votes, n_annotators, n_classes, seed):
    """Annotators of an accuracy each, whatever the class: a table and these accuracies."""
    rng = np.random.default_rng(seed)
    skill = rng.uniform(0.6, 0.9, n_annotators)
    y = rng.integers(n_classes, size=(n, 1))
    annotator = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :votes]
    wrong = (y + rng.integers(1, n_classes, (n, votes))) % n_classes
    label = np.where(rng.random((n, votes)) < skill[annotator], y, wrong)
    instance = np.repeat(np.arange(n), votes)
    return AnnotationTable.from_arrays(instance, annotator.ravel(), label.ravel()), skill


@pytest.mark.parametrize("n", [10, 50, 1000])
def test_jeffreys_interval_covers_on_average(n):
    k, shares = np.arange(n + 1), np.linspace(0.5, 0.999, 300)
    low, high = beta_interval(k + 0.5, n - k + 0.5, level=0.95)
    held = [binom.pmf(k, n, p) @ ((low <= p) & (p <= high)) for p in shares]
    assert np.mean(held) == pytest.approx(0.95, abs=0.01)
    assert np.min(held) > 0.85


def predictions(n, off, seed):
    """Probabilities of two classes, gold, and the true chances; confidence is ``off`` too high."""
    rng = np.random.default_rng(seed)
    confidence = (0.5 + 0.5 * rng.beta(3, 1.2, n)).clip(0.5, 0.999)
    chance = (confidence - off).clip(0, 1)
    first = rng.random(n) < 0.5
    right = rng.random(n) < chance
    proba = np.where(first, confidence, 1 - confidence)
    return np.column_stack([proba, 1 - proba]), np.where(right == first, 0, 1), confidence, chance


@pytest.mark.parametrize("n", [50, 1000])
@pytest.mark.parametrize("off", [0.0, 0.03, 0.1])
def test_losses_and_the_calibration_error_are_covered(n, off):
    _, _, c, p = predictions(200_000, off, 0)
    bins = np.ceil(c * 15).astype(int) - 1
    truth = {
        "log_loss": -(p * np.log(c) + (1 - p) * np.log(1 - c)).mean(),
        "brier": 2 * (p * (1 - c) ** 2 + (1 - p) * c**2).mean(),
        "ece": np.abs(np.bincount(bins, p - c)).sum() / len(c),
    }
    held = {name: [] for name in truth}
    for seed in range(1, 61):
        proba, y, _, _ = predictions(n, off, seed)
        found = calibration(proba, y, classes=[0, 1])
        for name, value in truth.items():
            estimate = getattr(found, name)
            assert estimate.lower <= estimate.value <= estimate.upper
            held[name].append(estimate.lower <= value <= estimate.upper)
    for name, hits in held.items():
        assert np.mean(hits) > 0.88, name  # Of .95, which 60 samples know to .03.


@pytest.mark.parametrize("size", [(80, 5, 8, 2), (400, 3, 20, 2), (400, 5, 20, 4)])
def test_the_accuracy_of_annotators_is_covered(size):
    held = []
    for seed in range(15):
        table, skill = crowd(*size, seed)
        found = annotator_reliability(table, DawidSkene().fit(table).posterior_)
        held.append((found.lower <= skill) & (skill <= found.upper))
    assert np.mean(held) > 0.93


def test_the_accuracy_of_annotators_on_gold_has_no_model_error():
    table, _ = crowd(400, 3, 20, 2, 0)
    gold = np.eye(2)[table.label[np.searchsorted(table.instance, np.arange(400))]]
    found = annotator_reliability(table, gold)
    right = np.round(found.accuracy * found.n_annotations)
    low, high = share_interval(right, found.n_annotations, level=0.95)
    np.testing.assert_allclose(found.lower, low)
    np.testing.assert_allclose(found.upper, high)


@pytest.mark.parametrize("n", [1, 20, 500])
def test_a_share_that_was_observed_is_in_its_interval(n):
    k = np.arange(n + 1)
    low, high = share_interval(k, n, level=0.95)
    assert (low <= k / n).all()
    assert (high >= k / n).all()
    assert (low[0], high[-1]) == (0.0, 1.0)


def test_annotators_who_may_always_have_been_right_or_wrong_have_intervals_to_the_end():
    """The probability of no mistake is the product of the probabilities of the labels."""

    def found(p, n):
        table = AnnotationTable.from_matrix(np.tile([0, 1], (n, 1)), classes=[0, 1])
        return annotator_reliability(table, np.tile([p, 1 - p], (n, 1)))

    for p, n in ((0.7, 5), (0.9, 30), (0.99, 300), (0.999, 3000)):
        own = found(p, n)
        assert p**n > 0.025
        assert (own.upper[0], own.lower[1]) == (1.0, 0.0)
        assert 0.0 < own.lower[0] < p
    table = AnnotationTable.from_matrix([[0]] * 20, classes=[0, 1])
    one_wrong = annotator_reliability(table, [[1.0, 0.0]] * 19 + [[0.0, 1.0]])
    assert one_wrong.upper[0] < 1.0  # Somebody who was wrong once is not always right.
    nobody = AnnotationTable.from_arrays([0], [0], [0], n_annotators=2, classes=[0, 1])
    idle = annotator_reliability(nobody, [[1.0, 0.0]])
    assert 0.0 < idle.lower[1] < idle.upper[1] < 1.0


def test_confusion_matrices_are_covered():
    own, plain = [], []
    for seed in range(10):
        table, skill = crowd(2000, 3, 40, 2, seed)
        model = IBCC().fit(table)
        alpha = model.confusion_alpha_
        rest = alpha.sum(axis=2, keepdims=True) - alpha
        for held, bounds in (
            (own, model.confusion_interval()),
            (plain, beta_interval(alpha, rest, level=0.95)),
        ):
            low, high = (np.diagonal(bound, axis1=1, axis2=2) for bound in bounds)
            held.append((low <= skill[:, None]) & (skill[:, None] <= high))
    assert np.mean(plain) < 0.9 < 0.93 < np.mean(own)


@pytest.mark.data
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.SharedMistakesWarning")
def test_the_error_of_models_of_annotators_is_that_of_real_tables(monkeypatch):
    shares = {0.0: [], annotators.MODEL_ERROR: []}
    for name in AGGREGATION_SETS:
        data = load_aggregation(name, duplicates="keep")
        table, gold = data.annotations, data.y_train
        posterior = DawidSkene().fit(table).posterior_
        known = gold[table.instance] >= 0
        who = table.annotator[known]
        right = (table.classes[table.label] == gold[table.instance])[known]
        n = np.bincount(who, minlength=table.n_annotators)
        enough = n >= 20
        truth = np.bincount(who, right, table.n_annotators)[enough] / n[enough]
        for error, found in shares.items():
            monkeypatch.setattr(annotators, "MODEL_ERROR", error)
            bounds = annotator_reliability(table, posterior)
            held = (bounds.lower[enough] <= truth) & (truth <= bounds.upper[enough])
            found.append(held.mean())
    without, usual = (np.array(found) for found in shares.values())
    assert without.mean() < 0.9 < 0.94 < usual.mean()
    assert (usual > 0.9).sum() >= len(usual) - 1  # Not on trec.
