"""Every classifier the library exports keeps scikit-learn's contract and ours."""

import re
import warnings
from dataclasses import replace
from unittest.mock import patch

import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_classifiers_train, parametrize_with_checks

from manyhands import all_classifiers
from manyhands.classifiers import (
    AveragedCrowdClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    SelfTrainingCrowdClassifier,
)
from manyhands.estimator_checks import parametrize_with_crowd_checks
from manyhands.exceptions import ClassCollapseWarning
from manyhands.fitting import BaseCrowdClassifier
from manyhands.fitting.method_protocol import flat_defaults, settable
from manyhands.registry import all_wrappers
from tests.building import built
from tests.classifiers.conftest import FEW_PARTS as FEW_PARTS_OF_FITS
from tests.rounding import single_precision_in_row_checks

FEW_STEPS = {"max_epochs": 5, "lr": 0.1, "batch_size": 150, "random_state": 0, "device": "cpu"}
"""Settings that learn scikit-learn's small sets in a few steps."""
FEW_PARTS = {
    "CrowdInGClassifier": {**FEW_PARTS_OF_FITS["CrowdInGClassifier"], "pretraining_lr": 0.05},
    "CrowdStackingClassifier": {"n_folds": 2, "n_rounds": 2, "dependence": 0.1},
    "DoctorNetClassifier": {"weight_epochs": 5},
    "ICEDClassifier": {"warm_up_epochs": 1, "decoder_epochs": 1, "em_max_iter": 10},
    "MetricLearningClassifier": {
        "batch_size": 32,
        "max_epochs": 1,
        "updates_per_epoch": 4,
        "cv": 2,
    },
    "NeuCrowdClassifier": {"max_epochs": 1, "n_tuplets": 48, "cv": 2},
    "RaykarClassifier": {"inner_steps": 5},
}
"""Fewer repetitions in classifiers that train several models, or see every task many times."""


def make(cls, **parameters):
    """Make a classifier with those of the parameters that it has."""
    parameters = {**parameters, **FEW_PARTS.get(cls.__name__, {})}
    known = flat_defaults(cls)
    return built(cls, **{name: value for name, value in parameters.items() if name in known})


def wrap(cls, inner, **parameters):
    """Wrap a classifier: one round of self-training, or two members of an average."""
    if cls is AveragedCrowdClassifier:
        return cls([inner, clone(inner)], **parameters)
    # Both kinds have the same guard, which trains four more classifiers.
    return cls(inner, n_rounds=1, guard=cls is SelfTrainingCrowdClassifier, **parameters)


SETTINGS = (bool, int, float, str, tuple, list, dict, type(None))
"""Types of private class attributes that are settings rather than methods."""

CLASSIFIERS = [cls for _, cls in all_classifiers()]
WRAPPERS = [cls for _, cls in all_wrappers()]
# At this rate the first start loses no class, so further starts are tried where a class must be
# lost, and not in every fit.
INSTANCES = [make(cls, C=0.01, lr=0.05) for cls in CLASSIFIERS]
INSTANCES += [wrap(cls, make(CrowdLayerClassifier, lr=0.05)) for cls in WRAPPERS]
QUICK = [make(cls, **FEW_STEPS) for cls in CLASSIFIERS]
QUICK += [wrap(cls, make(CrowdLayerClassifier, **FEW_STEPS), random_state=0) for cls in WRAPPERS]


NEED_LEARNING = {"check_classifiers_classes", "check_classifiers_train"}
"""Checks of scikit-learn that ask for right predictions; the others need no more than a fit."""
ONE_STEP = {
    "max_epochs": 1,
    "batch_size": 32,
    "updates_per_epoch": 1,
    "n_tuplets": 16,
    "inner_steps": 1,
    "n_rounds": 1,
    "init_scale": 1.0,  # no further starts
    "guard": False,
    "members": [("logistic", LogisticRegression())],
    "lr": 0.02,
    "C": 0.01,  # so strong a penalty takes few iterations
}
"""A fit whose predictions do not matter."""


def shorten(estimator, few):
    """Set those of the parameters that a classifier has, or what it wraps."""
    inner = getattr(estimator, "estimator", estimator)
    for each in (estimator, *getattr(inner, "estimators", [inner])):
        own = settable(type(each), few)
        known = each.get_params()
        each.set_params(**{name: value for name, value in own.items() if name in known})


SPARSE = {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}
"""Checks that fit ten formats of one X: what counts is that each is read."""
READ_THEMSELVES = (*WRAPPERS, CrowdLayerClassifier, CrowdStackingClassifier)
"""One classifier that reads X as most do, by one function, and all that read it otherwise."""


def two_formats(X):
    """Yield a sparse X as the library keeps it, and in a format that must be converted."""
    yield "csr", X.copy()
    yield "coo", X.asformat("coo")


def cases():
    """Parametrise by the checks, but for training on data that can be written.

    Training on read-only data is among them, and does all the same.
    """
    mark = parametrize_with_checks(QUICK)
    names, pairs = mark.args
    pairs = [(e, c) for e, c in pairs if c.func is not check_classifiers_train or c.keywords]
    return pytest.mark.parametrize(names, pairs, **mark.kwargs)


@cases()
def test_scikit_learn_contract(estimator, check):
    name = check.func.__name__
    if name not in NEED_LEARNING:
        shorten(estimator, ONE_STEP)
    elif name == "check_classifiers_train":
        shorten(estimator, {"C": 1.0})  # the other one chooses it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's checks provoke warnings on purpose
        if name == "check_supervised_y_2d":
            # A column vector is a crowd of one annotator, as good a target as any: no warning.
            with pytest.raises(AssertionError, match="expected 1 DataConversionWarning"):
                check(estimator)
        elif name in SPARSE and not isinstance(estimator, READ_THEMSELVES):
            with patch("sklearn.utils.estimator_checks._generate_sparse_data", two_formats):
                check(estimator)
        elif hasattr(estimator, "backbone"):
            with single_precision_in_row_checks(check):
                check(estimator)
        else:
            check(estimator)


# What self-training does to a few instances in a few epochs.
@pytest.mark.filterwarnings("ignore:the features predict")
@pytest.mark.filterwarnings("ignore:the votes do not say whether")
@pytest.mark.filterwarnings("ignore:.*added no pseudo-annotations of some")
@pytest.mark.filterwarnings("ignore:.*later rounds make the classifier worse")
@parametrize_with_crowd_checks(INSTANCES)
def test_crowd_contract(estimator, check):
    check(estimator)


def test_all_classifiers_are_found():
    names = [name for name, _ in all_classifiers()]
    assert names == sorted(names)
    assert {"AggregatedClassifier", "CoNALClassifier", "CrowdLayerClassifier"} <= set(names)


@pytest.mark.parametrize("cls", [*CLASSIFIERS, *WRAPPERS], ids=lambda cls: cls.__name__)
def test_a_class_sets_what_its_base_declares(cls):
    """A misspelt or renamed setting would be ignored without a word."""
    declared = {*dir(BaseCrowdClassifier), "_crowd_check_exemptions", "_knows_its_accuracy"}
    for base in cls.__mro__:
        if base.__module__.startswith("manyhands."):
            private = {name for name in vars(base) if re.fullmatch(r"_[a-z]\w*", name)}
            settings = {name for name in private if isinstance(vars(base)[name], SETTINGS)}
            assert settings <= declared, base.__name__


def test_the_suite_catches_a_parameter_that_never_moves():
    import torch

    from manyhands.classifiers import CrowdLayerClassifier
    from manyhands.estimator_checks import check_every_parameter_moves
    from manyhands.fitting.recipe import Recipe

    def of_the_classifier_alone(recipe, module):
        return torch.optim.Adam(module.classifier.parameters(), lr=recipe.lr)

    with (
        patch.object(Recipe, "make_optimizer", of_the_classifier_alone),
        pytest.raises(AssertionError, match="matrix never moved"),
    ):
        check_every_parameter_moves(CrowdLayerClassifier())


def test_the_suite_catches_a_class_balance_that_changes_nothing():
    from manyhands.estimator_checks import check_class_balance

    class Deaf(CrowdLayerClassifier):
        def fit(self, *args, **parameters):
            with patch.object(self, "class_balance", None):
                return super().fit(*args, **parameters)

    with pytest.raises(AssertionError, match="class_balance='resample' changes nothing"):
        check_class_balance(Deaf())


def test_a_loss_that_cannot_be_focal_is_told_to_refuse_it():
    from manyhands.estimator_checks import check_class_balance
    from manyhands.objectives import crowd_nll

    class Unfocused(CrowdLayerClassifier):
        def _objective(self, fit, batch):
            return crowd_nll(fit.module, batch)

    class Refusing(Unfocused):
        @property
        def _traits(self):
            return replace(super()._traits, focal_refusal="has no effect; use 'reweight'")

    with pytest.raises(AssertionError, match=r"'focal' changes nothing: .* set focal_refusal in"):
        check_class_balance(Unfocused())
    check_class_balance(Refusing())


def test_the_suite_catches_a_lost_class_without_a_warning():
    from manyhands.estimator_checks import check_lost_classes
    from manyhands.fitting.class_collapse import without_collapse_warnings

    class Mute(CrowdLayerClassifier):
        def fit(self, *args, **parameters):
            with without_collapse_warnings():
                return super().fit(*args, **parameters)

    with pytest.raises(AssertionError, match="fit warns 0 times of lost classes"):
        check_lost_classes(Mute())


def test_the_suite_catches_a_lost_class_that_is_not_named():
    from manyhands.estimator_checks import check_lost_classes

    class Vague(CrowdLayerClassifier):
        def fit(self, *args, **parameters):
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                super().fit(*args, **parameters)
            warnings.warn("a class is lost; try more epochs", ClassCollapseWarning, stacklevel=2)
            return self

    with pytest.raises(AssertionError, match=r"lost class \d \(\d+ annotations\) is not named"):
        check_lost_classes(Vague())


def test_the_suite_catches_a_fitted_attribute_that_is_lost_on_saving(monkeypatch):
    from manyhands.estimator_checks import check_save_and_load

    def found_more(self, fit):
        return {**read_out(self, fit), "margin_": 1.0}

    read_out = CrowdLayerClassifier._read_out
    monkeypatch.setattr(CrowdLayerClassifier, "_read_out", found_more)
    with pytest.raises(AssertionError, match=r"\['margin_'\] are lost on saving; list them"):
        check_save_and_load(CrowdLayerClassifier())


def test_the_suite_catches_a_state_that_is_not_in_the_checkpoint():
    from manyhands.estimator_checks import check_resume_from_checkpoint

    class Forgetful(CrowdLayerClassifier):
        def _prepare(self, fit):
            return {"batches": 0}

        def _objective(self, fit, batch):
            fit.state["batches"] += 1
            terms = super()._objective(fit, batch)
            return {name: term * fit.state["batches"] for name, term in terms.items()}

    with pytest.raises(AssertionError, match="not equal"):
        check_resume_from_checkpoint(Forgetful())


@pytest.mark.parametrize(
    ("ignored", "message"),
    [("callbacks", "callbacks are called for no epoch"), ("checkpoint", "were trained")],
)
def test_the_suite_catches_a_fit_that_cannot_be_resumed(ignored, message):
    from manyhands.estimator_checks import check_resume_from_checkpoint

    class Stubborn(CrowdLayerClassifier):
        def fit(self, *args, **parameters):
            with patch.object(self, ignored, None):
                return super().fit(*args, **parameters)

    with pytest.raises(AssertionError, match=message):
        check_resume_from_checkpoint(Stubborn())


@pytest.mark.parametrize("cls", [*CLASSIFIERS, *WRAPPERS], ids=lambda cls: cls.__name__)
def test_no_class_is_exempt_from_warning_of_lost_classes(cls):
    assert "check_lost_classes" not in getattr(cls, "_crowd_check_exemptions", {})
