"""One fit's context, what a fit that fails leaves, and where its warnings point."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from manyhands import AggregatedClassifier, AnnotationTable, CrowdLayerClassifier, DawidSkene
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning, all_or_nothing

QUICK = {"max_epochs": 3, "batch_size": 48, "random_state": 0, "device": "cpu"}


class Told(CrowdLayerClassifier):
    """Notes the epochs its objective is told, and what is in the context."""

    def _prepare(self, fit):
        self.fits_ = [fit]
        return []

    def _objective(self, fit, batch):
        fit.state.append(fit.epoch)
        fit.facts["twice"] = 2.0 * fit.epoch
        return super()._objective(fit, batch)


def test_an_objective_is_told_the_epoch_and_tells_the_history():
    X, A, _ = make_crowd_problem()
    model = Told(**QUICK).fit(X, A)
    (fit,) = model.fits_
    assert fit.state == [0, 1, 2]
    assert model.history_.column("twice").tolist() == [0.0, 2.0, 4.0]
    assert fit.module is model.module_
    assert fit.history is model.history_


def test_the_context_keeps_annotations_given_weighed_trained_on_and_held_out_apart():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    weights = np.ones(table.n_annotations)
    weights[:10] = 0.0
    model = Told(validation=0.2, **QUICK).fit(X, replace(table, weights=weights))
    (fit,) = model.fits_
    n = table.n_annotations
    assert (fit.given.n_annotations, fit.whole.n_annotations) == (n, n - 10)
    assert fit.held.n_annotations == round(0.2 * (n - 10))
    assert fit.table.n_annotations == n - 10 - fit.held.n_annotations


class Thing:
    """Something with attributes."""

    def __init__(self):
        self.kept, self.replaced = [1], 2


def change_and_fail(thing, kind):
    with all_or_nothing(thing):
        thing.replaced, thing.new_ = 3, 4
        del thing.kept
        raise kind


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_all_or_nothing_puts_attributes_back(kind):
    thing = Thing()
    before = dict(vars(thing))
    with pytest.raises(kind):
        change_and_fail(thing, kind)
    assert vars(thing) == before
    with all_or_nothing(thing):
        thing.new_ = 5
    assert thing.new_ == 5


def test_weights_of_another_network_are_refused():
    X, A, _ = make_crowd_problem()
    wide = CrowdLayerClassifier({"name": "mlp", "hidden": [7]}, **QUICK).fit(X, A)
    model = CrowdLayerClassifier(**QUICK)
    with pytest.raises(AnnotationError, match="start has another network"):
        model.fit(X, A, start=wide)
    assert not hasattr(model, "classes_")


# -- warnings ---------------------------------------------------------------------------------

X, A, _ = make_crowd_problem()
ALONE = np.where(np.arange(5) == np.arange(len(A))[:, None] % 5, A, -1)
RENAMED = AnnotationTable.from_matrix(A, annotators=[0, 1, 2, 3, 99])


@pytest.fixture(scope="module")
def fitted():
    return AggregatedClassifier(max_epochs=1, random_state=0).fit(X, A)


@pytest.mark.parametrize(
    ("category", "message", "call"),
    [
        (
            NotIdentifiableWarning,
            "no instance has annotations by two",
            lambda _: AggregatedClassifier(DawidSkene(), max_epochs=1).fit(X, ALONE),
        ),
        (UserWarning, "99", lambda model: model.predict_annotation_proba(X, [99])),
        (UserWarning, "99", lambda model: model.predict_observed_proba(X, RENAMED)),
        (UserWarning, "99", lambda model: model.score(X, RENAMED)),
    ],
)
def test_warnings_point_at_the_caller(fitted, category, message, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(fitted)
    (warning,) = [w for w in caught if message in str(w.message)]
    assert issubclass(warning.category, category)
    assert warning.filename == __file__
