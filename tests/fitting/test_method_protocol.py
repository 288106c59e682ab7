"""Protocols of methods: frozen values, parameters by name, and what files make of them."""

import copy
import inspect
import json
import pickle
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils._param_validation import InvalidParameterError

from manyhands import CoNALClassifier, CoNALProtocol, all_classifiers, load
from manyhands.classifiers import CrowdInGClassifier, CrowdInGProtocol, CrowdLayerClassifier
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting import MethodProtocol
from manyhands.fitting.method_protocol import (
    flat_defaults,
    flat_parameters,
    from_flat,
    protocol_class,
)

TAKERS = [cls for _, cls in all_classifiers() if protocol_class(cls) is not None]
QUICK = {"max_epochs": 1, "random_state": 0, "device": "cpu"}


def other(value):
    """A value that nearly every field of a default accepts instead of it."""
    if isinstance(value, bool):
        return not value
    if value is None:
        return 2
    return value + type(value)(1) if isinstance(value, int | float) else value


def changed(cls):
    """The first field of a class's protocol of its own that can be changed so, and its value."""
    kind = protocol_class(cls)
    own = {k: v for k, v in kind.defaults().items() if other(v) != v}
    name = next(reversed(own))
    return name, other(own[name])


@pytest.mark.parametrize("cls", TAKERS)
def test_a_protocol_is_a_checked_value_that_is_documented(cls):
    kind = protocol_class(cls)
    name, value = changed(cls)
    one, same = kind(**{name: value}), kind(**{name: value})
    assert one == same != kind()
    assert hash(one) == hash(same)
    assert repr(one) == f"{kind.__name__}({name}={value!r})"
    assert repr(kind()) == f"{kind.__name__}()"
    with pytest.raises(FrozenInstanceError):
        setattr(one, name, value)
    for copied in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copied == one
    with pytest.raises(
        TypeError, match=rf"{kind.__name__} has no field 'nonsense'; it has .*{name}"
    ):
        kind(nonsense=1)
    for field in kind.defaults():
        assert re.search(rf"\b{field}\b", inspect.getdoc(kind)), f"{field} is undocumented"
        with pytest.raises(InvalidParameterError, match=f"'{field}' parameter of {kind.__name__}"):
            kind(**{field: [object()]})
    assert not kind.defaults().keys() & inspect.signature(cls).parameters.keys(), "two of a name"


@pytest.mark.parametrize("cls", TAKERS)
def test_fields_are_parameters_for_scikit_learn(cls):
    name, value = changed(cls)
    model = cls()
    assert model.protocol is None
    assert model.get_params()[f"protocol__{name}"] == protocol_class(cls).defaults()[name]
    assert model.set_params(**{f"protocol__{name}": value}) is model
    given = model.protocol
    twin = clone(model)
    assert twin.protocol == given == protocol_class(cls)(**{name: value})
    assert twin.get_params()[f"protocol__{name}"] == value
    twin.set_params(protocol=None)
    assert model.protocol is given
    assert repr(model) == f"{cls.__name__}(protocol={given!r})".replace("\n", "")
    with pytest.raises(AnnotationError, match="has no field 'nonsense'"):
        model.set_params(protocol__nonsense=1)
    assert model.protocol is given
    with pytest.raises(TypeError, match=rf"no parameter '{name}': it is a field of the protocol"):
        cls(**{name: value})


@pytest.mark.parametrize("cls", TAKERS)
def test_flat_names_are_all_there_is_and_lead_back(cls):
    name, value = changed(cls)
    model = cls(protocol=protocol_class(cls)(**{name: value}))
    flat = flat_parameters(model)
    assert flat.keys() == flat_defaults(cls).keys()
    assert flat[name] == value
    assert "protocol" not in flat
    assert cls(**from_flat(cls, flat)).get_params() == model.get_params()
    assert cls(**from_flat(cls, flat_parameters(cls()))).protocol is None


def test_anothers_protocol_is_refused():
    X, A, _ = make_crowd_problem()
    for wrong in (CrowdInGProtocol(), MethodProtocol(), {"embedding_dim": 3}):
        with pytest.raises(AnnotationError, match="does not fit CoNALClassifier; give"):
            CoNALClassifier(protocol=wrong, **QUICK).fit(X, A)


def test_fields_beside_a_protocol_replace_those_in_it():
    given = {"protocol": CoNALProtocol(embedding_dim=3, normalize="none"), "embedding_dim": 4}
    made = from_flat(CoNALClassifier, given)["protocol"]
    assert made == CoNALProtocol(embedding_dim=4, normalize="none")


def test_a_grid_names_fields_within_what_a_model_holds():
    model = CrowdInGClassifier(pretrainer=CrowdLayerClassifier())
    model.set_params(pretrainer__protocol__init_scale=2.0, protocol__mu="mean")
    assert model.pretrainer.protocol.init_scale == 2.0
    assert model.protocol == CrowdInGProtocol(mu="mean")
    X, A, _ = make_crowd_problem()
    grid = {"protocol__embedding_dim": [2, 3]}
    found = GridSearchCV(CoNALClassifier(**QUICK), grid, cv=2).fit(X, A)
    dims = [p["protocol__embedding_dim"] for p in found.cv_results_["params"]]
    assert dims == [2, 3]
    assert found.best_estimator_.protocol.embedding_dim in dims


def test_a_protocol_reaches_the_training_and_a_saved_model_by_flat_names(tmp_path):
    X, A, _ = make_crowd_problem()
    model = CoNALClassifier(protocol=CoNALProtocol(embedding_dim=3), **QUICK).fit(X, A)
    folder = model.save(tmp_path / "model")
    saved = json.loads((folder / "model.json").read_text())["parameters"]
    assert saved["embedding_dim"] == 3
    assert "protocol" not in saved
    loaded = load(folder)
    assert loaded.protocol == model.protocol
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert not np.allclose(
        CoNALClassifier(**QUICK).fit(X, A).common_proportion_, model.common_proportion_
    )
