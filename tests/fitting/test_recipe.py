"""A fit as values: what goes into `run`, what comes out, and what it leaves alone."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from manyhands import CrowdLayerClassifier
from manyhands.estimator_checks import make_crowd_problem, quick_clone
from manyhands.fitting import Watch
from manyhands.fitting.fitted import Fitted
from manyhands.fitting.recipe import CrowdData, Recipe, read_data
from manyhands.fitting.run import found_n_epochs, run
from manyhands.registry import all_classifiers
from tests.building import built
from tests.classifiers.conftest import FEW_PARTS

NETWORKS = [cls for _, cls in all_classifiers() if "callbacks" in cls().get_params(deep=False)]


def begun(cls, **parameters):
    """A classifier that has read a small crowd, the data, and the recipe."""
    X, A, _ = make_crowd_problem()
    model = quick_clone(built(cls, **FEW_PARTS.get(cls.__name__, {}) | parameters))
    data = read_data(model, X, A, Watch(), reset=True)
    return model, data, Recipe.of(model)


@pytest.mark.parametrize("cls", NETWORKS)
def test_a_run_reads_the_method_and_sets_nothing_on_it(cls):
    model, data, recipe = begun(cls)
    before = dict(vars(model))
    fitted = run(model, data, recipe)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    X, A, _ = make_crowd_problem()
    whole = quick_clone(model).fit(X, A)
    found = fitted.attributes()
    assert found.keys() <= vars(whole).keys()
    for name in whole._traits.saved:
        np.testing.assert_array_equal(found[name], getattr(whole, name), err_msg=name)


def test_pilots_set_nothing_either(monkeypatch):
    monkeypatch.setattr("manyhands.fitting.pilots.PILOT_STEPS", 4)
    monkeypatch.setattr("manyhands.fitting.pilots.LEAST_EPOCHS", 4)
    monkeypatch.setattr("manyhands.fitting.pilots.FEWEST_INSTANCES", 10)
    model, data, recipe = begun(CrowdLayerClassifier)
    recipe = replace(recipe, max_epochs="auto")
    before = dict(vars(model))
    assert 1 <= found_n_epochs(model, data, recipe, start=None, earlier=None) <= 4
    assert vars(model).items() == before.items()


def test_what_goes_in_and_comes_out_is_frozen():
    model, data, recipe = begun(CrowdLayerClassifier)
    for value, name in ((recipe, "lr"), (data, "given"), (Fitted(None, []), "module")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)
    assert isinstance(data, CrowdData)
    assert recipe.lr == model.lr


def test_another_recipe_is_another_fit_of_the_same_method():
    """As a pilot, a further start and a shorter training are: values, not parameters."""
    model, data, recipe = begun(CrowdLayerClassifier)
    plain = run(model, data, recipe)
    again, shorter = run(model, data, recipe), run(model, data, replace(recipe, max_epochs=1))
    from_six = run(model, data, replace(recipe, init_scale=6.0))
    assert (len(plain.history), len(shorter.history), plain.n_epochs) == (2, 1, 2)
    assert from_six.found["init_scale_"] == 6.0
    assert torch.equal(plain.module.matrix, again.module.matrix)
    assert not torch.equal(plain.module.matrix, from_six.module.matrix)
    assert not torch.equal(plain.module.matrix, shorter.module.matrix)
