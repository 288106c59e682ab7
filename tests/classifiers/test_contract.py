"""Every classifier the library exports keeps scikit-learn's contract and ours."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyhands import all_classifiers
from manyhands.classifiers import CrowdLayerClassifier
from manyhands.estimator_checks import parametrize_with_crowd_checks
from manyhands.registry import all_wrappers

INSTANCES = [cls() for _, cls in all_classifiers()]
INSTANCES += [cls(CrowdLayerClassifier(), n_rounds=1) for _, cls in all_wrappers()]
STEPS_OF_ITS_OWN = {
    "CrossFittedEMClassifier": 2,
    "MetricLearningClassifier": 2,
    "NeuCrowdClassifier": 2,
}
"""Epochs of classifiers that go through a small set several times in one."""
QUICK = [
    cls(max_epochs=STEPS_OF_ITS_OWN.get(name, 40), random_state=0, device="cpu")
    for name, cls in all_classifiers()
]
QUICK += [
    cls(CrowdLayerClassifier(max_epochs=20, device="cpu"), n_rounds=1, random_state=0)
    for _, cls in all_wrappers()
]


def expected_failures(estimator):
    return {
        "check_supervised_y_2d": "expects a warning for a column vector, which here is a crowd of "
        "one annotator and as good a target as any",
    }


@parametrize_with_checks(QUICK, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's checks provoke warnings on purpose
        check(estimator)


@parametrize_with_crowd_checks(INSTANCES)
def test_crowd_contract(estimator, check):
    check(estimator)


def test_all_classifiers_are_found():
    names = [name for name, _ in all_classifiers()]
    assert names == sorted(names)
    assert {"AggregatedClassifier", "CoNALClassifier", "CrowdLayerClassifier"} <= set(names)


def test_the_suite_catches_a_parameter_that_never_moves():
    from manyhands.classifiers import CrowdLayerClassifier
    from manyhands.estimator_checks import check_every_parameter_moves

    class Frozen(CrowdLayerClassifier):
        def _make_optimizer(self, module):
            import torch

            return torch.optim.Adam(module.classifier.parameters(), lr=self.lr)

    with pytest.raises(AssertionError, match="matrix never moved"):
        check_every_parameter_moves(Frozen())
