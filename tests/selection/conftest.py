"""A small crowd problem, settings of short fits, and a classifier that tells what it saw."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from manyhands import AnnotationTable
from manyhands.estimator_checks import make_crowd_problem

QUICK = {"max_epochs": 2, "backbone": "linear", "device": "cpu"}


class Echo(ClassifierMixin, BaseEstimator):
    """Predicts from a constant and its seed; refuses to predict what it was fitted on."""

    fits = 0

    def __init__(self, constant=0.5, random_state=None, fail_at=None):
        self.constant = constant
        self.random_state = random_state
        self.fail_at = fail_at

    def fit(self, X, y):
        if type(self).fits == self.fail_at:
            raise KeyboardInterrupt
        type(self).fits += 1
        assert len(X) == y.n_instances
        self.classes_ = y.classes[::-1]
        self.seen_ = {row.tobytes() for row in np.asarray(X)}
        self.instances_ = set(y.instances[np.unique(y.instance)].tolist())
        return self

    def predict_proba(self, X):
        assert not self.seen_ & {row.tobytes() for row in np.asarray(X)}
        share = self.constant + (self.random_state or 0) * 1e-12
        return np.column_stack([np.full(len(X), share), *(2 * [np.full(len(X), (1 - share) / 2)])])


@pytest.fixture(autouse=True)
def _count_from_zero():
    Echo.fits = 0


@pytest.fixture
def problem():
    X, A, _ = make_crowd_problem()
    return X, AnnotationTable.from_matrix(A)
