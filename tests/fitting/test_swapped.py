"""Arguments in the wrong order are refused at once, by every method."""

import numpy as np
import pandas as pd
import pytest

from manyhands import CrowdStackingClassifier, cross_predict, make_crowd, select
from manyhands.classifiers import GraphCompleter
from manyhands.exceptions import AnnotationError
from manyhands.registry import all_aggregators, all_classifiers, all_wrappers

TABLE = make_crowd(np.arange(30) % 3, n_annotators=5, annotations_per_instance=3, random_state=0)
ROWS = {
    "texts": np.array([f"text number {i}" for i in range(30)]),
    "numbers": np.random.default_rng(0).normal(size=(30, 4)),
    "one number": np.linspace(0.0, 1.0, 30),
    "codes": TABLE.to_matrix(),
    "frame": pd.DataFrame({"a": np.arange(30.0)}),
}
CLASSIFIERS = [cls for _, cls in [*all_classifiers(), *all_wrappers()]]
CLASSIFIERS.append(GraphCompleter)
AGGREGATORS = [cls for _, cls in all_aggregators()]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", CLASSIFIERS, ids=lambda cls: cls.__name__)
def test_a_classifier_refuses_annotations_as_features(kind, rows):
    for call in (kind().fit, getattr(kind(), "partial_fit", kind().fit)):
        with pytest.raises(AnnotationError, match="the arguments are swapped"):
            call(TABLE, ROWS[rows])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", AGGREGATORS, ids=lambda cls: cls.__name__)
def test_an_aggregator_refuses_features_before_annotations(kind, rows):
    for call in (kind().fit, kind().partial_fit):
        with pytest.raises(AnnotationError, match=r"as in fit\(table\)"):
            call(ROWS[rows], TABLE)


@pytest.mark.parametrize("rows", ROWS)
def test_choosing_and_predicting_refuse_them_too(rows):
    for call in (
        lambda: select(["crowd-stacking", "raykar"], TABLE, ROWS[rows]),
        lambda: cross_predict(CrowdStackingClassifier(), TABLE, ROWS[rows]),
    ):
        with pytest.raises(AnnotationError, match="the arguments are swapped"):
            call()


def test_a_fitted_classifier_takes_no_annotations_for_features():
    X = np.eye(3)[np.arange(30) % 3].repeat(2, axis=1)[:, :5]  # As many columns as annotators.
    model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, TABLE)
    for call in (model.predict, model.predict_proba, lambda rows: model.score(rows, TABLE)):
        with pytest.raises(AnnotationError, match="the arguments are swapped"):
            call(TABLE)
