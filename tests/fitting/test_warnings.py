"""Warnings point at the line of the caller, however deep in the library they arise."""

import warnings

import numpy as np
import pytest

from manyhands import AggregatedClassifier, AnnotationTable, DawidSkene
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import NotIdentifiableWarning

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
