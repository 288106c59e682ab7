"""One fit's context, what a fit that fails leaves, and where its warnings point."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    AveragedCrowdClassifier,
    CrowdLayerClassifier,
    DawidSkene,
    SelfTrainingCrowdClassifier,
    load,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import (
    AnnotationError,
    ModelChoiceWarning,
    NotIdentifiableWarning,
    all_or_nothing,
)
from manyhands.metrics import (
    VOTE_SCORERS,
    annotation_log_likelihood_scorer,
    vote_agreement,
    vote_agreement_scorer,
)

QUICK = {"max_epochs": 3, "batch_size": 48, "random_state": 0, "device": "cpu"}


class Told(CrowdLayerClassifier):
    """Notes the epochs its objective is told, and what is in the context."""

    def _prepare(self, fit):
        self.fits_ = [fit]
        return []

    def _objective(self, fit, batch):
        fit.state.append(fit.epoch)
        fit.facts["twice"] = 2.0 * fit.epoch
        return super()._objective(fit, batch)


def test_an_objective_is_told_the_epoch_and_tells_the_history():
    X, A, _ = make_crowd_problem()
    model = Told(**QUICK).fit(X, A)
    (fit,) = model.fits_
    assert fit.state == [0, 1, 2]
    assert model.history_.column("twice").tolist() == [0.0, 2.0, 4.0]
    assert fit.module is model.module_
    assert fit.history is model.history_


def test_the_context_keeps_annotations_given_weighed_trained_on_and_held_out_apart():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    weights = np.ones(table.n_annotations)
    weights[:10] = 0.0
    model = Told(validation=0.2, monitor="likelihood", **QUICK).fit(
        X, replace(table, weights=weights)
    )
    (fit,) = model.fits_
    n = table.n_annotations
    assert (fit.given.n_annotations, fit.whole.n_annotations) == (n, n - 10)
    assert fit.held.n_annotations == round(0.2 * (n - 10))
    assert fit.table.n_annotations == n - 10 - fit.held.n_annotations


class Thing:
    """Something with attributes."""

    def __init__(self):
        self.kept, self.replaced = [1], 2


def change_and_fail(thing, kind):
    with all_or_nothing(thing):
        thing.replaced, thing.new_ = 3, 4
        del thing.kept
        raise kind


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_all_or_nothing_puts_attributes_back(kind):
    thing = Thing()
    before = dict(vars(thing))
    with pytest.raises(kind):
        change_and_fail(thing, kind)
    assert vars(thing) == before
    with all_or_nothing(thing):
        thing.new_ = 5
    assert thing.new_ == 5


def test_weights_of_another_network_are_refused():
    X, A, _ = make_crowd_problem()
    wide = CrowdLayerClassifier({"name": "mlp", "hidden": [7]}, **QUICK).fit(X, A)
    model = CrowdLayerClassifier(**QUICK)
    with pytest.raises(AnnotationError, match="start has another network"):
        model.fit(X, A, start=wide)
    assert not hasattr(model, "classes_")


# -- warnings ---------------------------------------------------------------------------------

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
        (ModelChoiceWarning, "48 of the 48", lambda model: model.score(X, A)),
        (UserWarning, "99", lambda model: model.annotation_log_likelihood(X, RENAMED)),
    ],
)
def test_warnings_point_at_the_caller(fitted, category, message, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(fitted)
    (warning,) = [w for w in caught if message in str(w.message)]
    assert issubclass(warning.category, category)
    assert warning.filename == __file__


# -- `score` on instances of the training ------------------------------------------------------

NAMES = np.array([f"img{i}" for i in range(len(X))])
NAMED = AnnotationTable.from_matrix(A, instances=NAMES)
NUMBERED = AnnotationTable.from_matrix(A)
quick = AggregatedClassifier(backbone=LogisticRegression())


def n_warned(model, rows, y, scorer=None):
    """How many instances of the training a score is said to be measured on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = model.score(rows, y) if scorer is None else scorer(model, rows, y)
    assert np.isfinite(value)
    found = [str(w.message) for w in caught if issubclass(w.category, ModelChoiceWarning)]
    assert len(found) < 2
    return int(found[0].split("fitted on ")[1].split()[0]) if found else 0


def wrapped(model):
    """The model itself, and those that consist of it."""
    network = CrowdLayerClassifier(**{**QUICK, "max_epochs": 30, "lr": 0.05})
    return [
        model,
        AveragedCrowdClassifier([model, clone(model)], random_state=0),
        SelfTrainingCrowdClassifier(network, n_rounds=1, guard=False, random_state=0),
        make_pipeline(StandardScaler(), model),
        GridSearchCV(model, {"backbone__C": [1.0]}, cv=2),
    ]


@pytest.mark.parametrize("model", wrapped(quick), ids=lambda model: type(model).__name__)
def test_training_instances_are_known_by_their_ids(model):
    model = model.fit(X[:30], NAMED[:30])
    assert n_warned(model, X[:30], NAMED[:30]) == 30
    assert n_warned(model, X[20:], NAMED[20:]) == 10
    assert n_warned(model, X[30:], NAMED[30:]) == 0
    # Whatever the annotations; the numbers of rows are no ids.
    assert n_warned(model, X[:30], NAMED[:30].select(annotators=[0, 1])) > 20
    assert n_warned(model, X[:30], A[:30]) == n_warned(model, X[30:], A[30:]) == 0
    assert n_warned(model, X[20:], NAMED[20:], vote_agreement_scorer) == 10
    assert n_warned(model, X[30:], NAMED[30:], vote_agreement_scorer) == 0


@pytest.mark.parametrize("model", wrapped(quick), ids=lambda model: type(model).__name__)
def test_training_instances_without_ids_are_known_by_their_annotations(model):
    for target in (A[:30], NUMBERED[:30]):
        model = model.fit(X[:30], target)
        table = NUMBERED[:30]
        for same in (A[:30], table, table.take(np.arange(table.n_annotations)[::-1])):
            assert n_warned(model, X[:30], same) == 30
        assert n_warned(model, X[:20], NUMBERED[:20]) == 20
        assert n_warned(model, X[30:], NUMBERED[30:]) == 0
        assert n_warned(model, X[18:], A[18:]) == 0
    # Rows of two tables have the same numbers.
    rows = np.arange(0, 48, 2)
    model = model.fit(X[rows], NUMBERED[rows])
    assert n_warned(model, X, NUMBERED) == 24
    other = AnnotationTable.from_matrix(np.roll(A, 1, axis=1))
    assert n_warned(model, X[rows], other[rows]) == 0


def test_instances_without_annotations_were_not_trained_on():
    gaps = np.where(np.arange(48)[:, None] < 10, -1, A)
    table = AnnotationTable.from_matrix(gaps, instances=NAMES, classes=[0, 1, 2])
    model = clone(quick).fit(X, table)
    assert n_warned(model, X, NAMED) == 38
    weights = np.where(NAMED.instance < 5, 0.0, 1.0)
    assert n_warned(model.fit(X, replace(NAMED, weights=weights)), X, NAMED) == 43


def test_the_mean_of_fold_models_was_fitted_on_the_instances_of_all(tmp_path):
    parts = [
        clone(CrowdLayerClassifier(**QUICK)).fit(X[rows], NAMED[rows])
        for rows in (np.arange(20), np.arange(10, 40))
    ]
    mean = AveragedCrowdClassifier.of_fitted(parts)
    assert n_warned(mean, X, NAMED) == 40
    assert n_warned(pickle.loads(pickle.dumps(mean)), X, NAMED) == 40
    for model in (mean, parts[0]):
        loaded = load(model.save(tmp_path / type(model).__name__))
        assert n_warned(loaded, X, NAMED) == 0


@pytest.mark.parametrize("y", [A, NUMBERED, NAMED], ids=["matrix", "numbered", "named"])
@pytest.mark.parametrize("scoring", [None, vote_agreement_scorer, VOTE_SCORERS])
def test_folds_of_instances_are_not_warned_of(y, scoring):
    folds = KFold(4, shuffle=True, random_state=0)
    for cv in (3, folds):
        found = cross_validate(quick, X, y, cv=cv, scoring=scoring, error_score="raise")
    with pytest.warns(ModelChoiceWarning, match="36 of the 36"):
        cross_validate(quick, X, y, cv=folds, scoring=scoring, return_train_score=True)
    if scoring is None:
        table = y if isinstance(y, AnnotationTable) else NUMBERED
        by_hand = [
            vote_agreement(clone(quick).fit(X[rest], table[rest]).predict(X[fold]), table[fold])
            for rest, fold in folds.split(X)
        ]
        assert found["test_score"].tolist() == by_hand


def test_the_likelihood_has_a_scorer_of_its_own():
    scoring = annotation_log_likelihood_scorer
    grid = {"backbone__C": [1e-4, 1.0]}
    search = GridSearchCV(quick, grid, cv=KFold(3), scoring=scoring).fit(X, NAMED)
    by_hand = [
        clone(quick).fit(X[rest], NAMED[rest]).annotation_log_likelihood(X[fold], NAMED[fold])
        for rest, fold in KFold(3).split(X)
    ]
    assert search.best_params_ == {"backbone__C": 1.0}
    assert search.best_score_ == pytest.approx(np.mean(by_hand))
    model = make_pipeline(StandardScaler(), clone(quick)).fit(X, NAMED)
    scaled = StandardScaler().fit_transform(X)
    expected = clone(quick).fit(scaled, NAMED).annotation_log_likelihood(scaled, NAMED)
    assert scoring(model, X, NAMED) == pytest.approx(expected)  # And no warning.
    with pytest.raises(AnnotationError, match="LogisticRegression has no annotation_log"):
        scoring(LogisticRegression(), X, NAMED)
