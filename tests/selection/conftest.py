"""A small crowd problem, and settings of short fits."""

import pytest

from manyhands import AnnotationTable
from manyhands.estimator_checks import make_crowd_problem

QUICK = {"max_epochs": 2, "backbone": "linear", "device": "cpu"}


@pytest.fixture
def problem():
    X, A, _ = make_crowd_problem()
    return X, AnnotationTable.from_matrix(A)
