"""Tables in which nearly every instance has one annotator alone."""

import warnings

import numpy as np
import pytest

from manyhands import (
    AnnotationStore,
    AnnotationTable,
    DawidSkene,
    GoldCorrected,
)
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.registry import all_aggregators

N, N_CLASSES, N_ANNOTATORS = 400, 10, 40
METHODS = [cls for _, cls in all_aggregators() if cls.traits.compares_annotators]


def make_isolated(n_pairs, seed=0):
    """One annotation per instance, right in four of five; a second one of the first ``n_pairs``."""
    rng = np.random.default_rng(seed)
    y = rng.integers(N_CLASSES, size=N)
    instance = np.concatenate([np.arange(N), np.arange(n_pairs)])
    annotator = rng.integers(N_ANNOTATORS, size=len(instance))
    annotator[N:] = (annotator[:n_pairs] + 1) % N_ANNOTATORS
    is_right = rng.random(len(instance)) < 0.8
    wrong = (y[instance] + rng.integers(1, N_CLASSES, size=len(instance))) % N_CLASSES
    label = np.where(is_right, y[instance], wrong)
    sizes = {"n_instances": N, "n_annotators": N_ANNOTATORS}
    return AnnotationTable.from_arrays(
        instance, annotator, label, **sizes, classes=range(N_CLASSES)
    ), y


def fitted(method, table, gold=None):
    model = method()
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    if "n_restarts" in model.get_params():
        model.set_params(n_restarts=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        return model.fit(table, gold=gold)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n_pairs", "n_gold"), [(0, 1), (0, 40), (10, 0), (30, 5)])
def test_classes_do_not_merge(method, n_pairs, n_gold):
    """A handful of comparisons once put all instances into one class."""
    table, y = make_isolated(n_pairs)
    gold = {int(i): int(y[i]) for i in range(100, 100 + n_gold)}
    model = fitted(method, table, gold)
    rest = np.setdiff1d(np.arange(n_pairs, N), list(gold))
    given = table.vote_counts().argmax(axis=1)
    assert (model.labels_[rest] == given[rest]).mean() > 0.98
    assert (model.labels_[list(gold)] == list(gold.values())).all()


@pytest.mark.parametrize("method", [cls for cls in METHODS if issubclass(cls, EMAggregator)])
def test_gold_tells_how_far_isolated_annotators_can_be_trusted(method):
    table, y = make_isolated(0)
    sure = []
    for n_gold in (1, 200):
        model = fitted(method, table, {int(i): int(y[i]) for i in range(n_gold)})
        sure.append(model.posterior_[200:].max(axis=1).mean())
    assert sure[1] < sure[0]


def test_labels_are_certain_only_without_any_comparison():
    table, _ = make_isolated(0)
    assert fitted(DawidSkene, table).posterior_.max(axis=1).min() == 1
    table, _ = make_isolated(1)
    assert fitted(DawidSkene, table).posterior_[1:].max(axis=1).max() < 1


def test_what_is_assumed_is_said():
    table, y = make_isolated(10)
    with pytest.warns(NotIdentifiableWarning, match="only 10 of 400 annotated instances have"):
        DawidSkene().fit(table, gold={50: int(y[50])})
    table, _ = make_isolated(N // 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotIdentifiableWarning)
        DawidSkene().fit(table)


def test_only_gold_labels_correct():
    table, y = make_isolated(10)
    assert not fitted(GoldCorrected, table).corrected_
    few, many = ({int(i): int(y[i]) for i in range(n)} for n in (49, 50))
    assert not fitted(GoldCorrected, table, few).corrected_
    assert fitted(GoldCorrected, table, many).corrected_


@pytest.mark.parametrize("method", [cls for cls in METHODS if cls.traits.takes_stores])
def test_a_store_gives_what_its_table_gives(tmp_path, method):
    table, y = make_isolated(10)
    gold = np.full(N, -1)
    gold[50:60] = y[50:60]
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=100)
    models = [fitted(method, each, gold) for each in (table, store)]
    np.testing.assert_allclose(models[1].posterior_, models[0].posterior_, atol=1e-6)
