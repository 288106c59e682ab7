"""One fit's context, what it is told, and what a fit that fails leaves."""

from dataclasses import replace

import numpy as np
import pytest

from manyhands import AnnotationTable, CrowdLayerClassifier
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import all_or_nothing

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
