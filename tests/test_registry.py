"""One list of everything that can be named."""

import pytest

import manyhands
from manyhands import registry
from manyhands.classifiers import (
    CrowdLayerClassifier,
    DASCClassifier,
    GraphCompleter,
    NeuCrowdEmbedding,
)
from manyhands.exceptions import AnnotationError
from manyhands.inference import OneCoinDawidSkene
from manyhands.linear import TunedLogisticRegression
from manyhands.sampling import CrowdSMOTE, DistributionAwareSelector, TupletSampler, safe_instances


def test_everything_methods_export_can_be_named():
    for package in ("classifiers", "inference", "linear", "sampling"):
        exported = getattr(manyhands, package)
        for name in exported.__all__:
            assert registry.names()[name] == f"manyhands.{package}"
            assert registry.get(name) is getattr(exported, name)


def test_exactly_the_name_is_asked_of_yaml_and_saved_models():
    assert registry.get("CrowdLayerClassifier", "classifier") is CrowdLayerClassifier
    assert registry.get("DASCClassifier", "classifier", "wrapper") is DASCClassifier
    for name, *kinds in (
        ["crowd-layer"],
        ["GraphCompleter", "classifier"],
        ["DASCClassifier", "classifier"],
        ["TunedLogisticRegression", "classifier"],
        ["load_demo"],
    ):
        with pytest.raises(AnnotationError, match=f"manyhands has no .*{name!r}"):
            registry.get(name, *kinds)


@pytest.mark.parametrize(
    ("name", "kinds", "cls"),
    [
        ("crowd-layer", ("classifier", "wrapper"), CrowdLayerClassifier),
        ("dasc", ("classifier", "wrapper"), DASCClassifier),
        ("graph_completer", ("completer", "classifier"), GraphCompleter),
        ("One-Coin-Dawid-Skene", ("aggregator",), OneCoinDawidSkene),
        ("crowd-smote", ("sampler",), CrowdSMOTE),
        ("distribution-aware", ("selector",), DistributionAwareSelector),
    ],
)
def test_people_spell_as_they_like(name, kinds, cls):
    assert registry.find(name, *kinds) is cls
    assert registry.find(cls.__name__, *kinds) is cls
    assert registry.find(registry.short_name(cls), *kinds) is cls


@pytest.mark.parametrize("name", ["tuned-logistic-regression", "graph-completer", "dawid-skene"])
def test_only_what_fits_is_found(name):
    with pytest.raises(AnnotationError, match=f"method='{name}' is unknown"):
        registry.find_classifier(name)


def test_what_is_unknown_is_answered_by_what_is_close_and_by_the_list():
    with pytest.raises(AnnotationError) as caught:
        registry.find_selector("confidense")
    assert str(caught.value) == (
        "selector='confidense' is unknown (did you mean confidence?); "
        "use one of confidence, distribution-aware, random, sampling"
    )


def test_kinds_are_read_off_the_classes():
    classifiers = dict(registry.all_classifiers())
    assert list(classifiers) == sorted(classifiers)
    wrappers = dict(registry.all_wrappers())
    assert set(wrappers) == {"DASCClassifier", "SelfTrainingCrowdClassifier"}
    others = {cls.__name__ for cls in (GraphCompleter, NeuCrowdEmbedding, TunedLogisticRegression)}
    assert not others & {*classifiers, *wrappers}
    assert set(classifiers) | set(wrappers) == {
        name for name in manyhands.classifiers.__all__ if name.endswith("Classifier")
    }
    assert [name for name, _ in registry.all_aggregators()] == manyhands.inference.__all__
    for other in (TupletSampler, safe_instances):
        with pytest.raises(AnnotationError):
            registry.get(other.__name__, "sampler", "selector")
