"""Arguments in the wrong order are refused at once, by every method."""

import numpy as np
import pandas as pd
import pytest

from manyhands import (
    CrowdStackingClassifier,
    DawidSkene,
    cross_predict,
    make_crowd,
    metrics,
    select,
)
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
    for call in (model.predict, model.predict_proba):
        with pytest.raises(
            AnnotationError, match=r"made from the features of items, as in predict"
        ):
            call(TABLE)
    with pytest.raises(AnnotationError, match="the arguments are swapped"):
        model.score(TABLE, TABLE)


@pytest.mark.parametrize("ids", [[f"pair{i}" for i in range(30)], range(100, 130)])
def test_a_column_of_ids_that_fit_had_as_index_is_named_with_the_mend(ids):
    X = pd.DataFrame(np.eye(3)[np.arange(30) % 3], columns=list("abc"))
    model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, TABLE)
    with pytest.raises(AnnotationError, match=r"If 'pair' holds .* X\.set_index\('pair'\)"):
        model.predict(X.assign(pair=ids))
    for other in ([0.5] * 30, ["same"] * 30):
        with pytest.raises(AnnotationError, match=r"add or drop columns, or rename them$"):
            model.predict(X.assign(pair=other))


TABLE_FIRST = {
    "accuracy_of_labels": (metrics.accuracy_of_labels, [0] * 30),
    "accuracy_on_new_items": (metrics.accuracy_on_new_items, [0] * 30),
    "annotator_reliability": (metrics.annotator_reliability, np.eye(3)[[0] * 30]),
}
PREDICTED_FIRST = [
    metrics.vote_agreement,
    metrics.corrected_vote_agreement,
    metrics.vote_information,
    metrics.vote_recall,
    metrics.estimate_accuracy,
]


@pytest.mark.parametrize("name", TABLE_FIRST)
def test_a_metric_of_a_table_refuses_anything_else(name):
    """accuracy_on_new_items(model) returned None."""
    measure, other = TABLE_FIRST[name]
    model = DawidSkene().fit(TABLE)
    with pytest.raises(
        AnnotationError, match="table is a DawidSkene, not an AnnotationTable; give"
    ):
        measure(model, other)
    with pytest.raises(AnnotationError, match=r"table is a ndarray.*from_matrix"):
        measure(TABLE.to_matrix(), other)


def test_half_of_the_arguments_of_new_items_is_refused():
    for half in ({"table": TABLE}, {"out_of_fold": [0] * 30}):
        with pytest.raises(AnnotationError, match=r"cross_predict\(model, X, table\)"):
            metrics.accuracy_on_new_items(**half)
    with pytest.raises(AnnotationError, match="table is a DawidSkene"):
        metrics.accuracy_on_new_items(DawidSkene().fit(TABLE))


@pytest.mark.parametrize("measure", PREDICTED_FIRST, ids=lambda measure: measure.__name__)
def test_a_metric_of_predictions_refuses_models_and_swapped_arguments(measure):
    with pytest.raises(AnnotationError, match=r"not its predictions; give .* cross_predict"):
        measure(DawidSkene().fit(TABLE), TABLE)
    with pytest.raises(AnnotationError, match="predictions come first, the table second"):
        measure(TABLE, [0] * 30)
    with pytest.raises(AnnotationError, match="table is a ndarray, not an AnnotationTable"):
        measure([0] * 30, TABLE.to_matrix())
