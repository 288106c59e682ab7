"""Self-training around any crowd model: what is trained, what is added, and what never changes."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    ConfidenceSelector,
    CrowdLayerClassifier,
    DASCClassifier,
    DawidSkene,
    DistributionAwareSelector,
    RandomSelector,
    SelfTrainingCrowdClassifier,
    all_classifiers,
)
from manyhands.agreement import percent_agreement
from manyhands.classifiers.monitors import watching
from manyhands.estimator_checks import make_crowd_problem

QUICK = {"max_epochs": 2, "batch_size": 16, "random_state": 0, "device": "cpu"}


def base(**changes):
    return CrowdLayerClassifier(**{**QUICK, **changes})


def test_no_round_is_the_estimator():
    X, A, _ = make_crowd_problem()
    plain = base().fit(X, A)
    model = SelfTrainingCrowdClassifier(base(), n_rounds=0).fit(X, A)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert model.augmented_annotations_.equals(AnnotationTable.from_matrix(A))
    assert model.score(X, A) == plain.score(X, A)


def test_a_round_by_hand():
    """Predict what is missing, add the most confident, train anew on both."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = SelfTrainingCrowdClassifier(base(), ConfidenceSelector(), n_rounds=1, n_select=7)
    model.fit(X, table)
    proba = base().fit(X, table).predict_annotation_proba(X).astype(float)
    entropy = -(proba * np.log(proba)).sum(axis=2)
    entropy[A >= 0] = np.inf
    first = np.argsort(entropy.ravel())[:7]
    augmented = A.copy()
    augmented.ravel()[first] = proba.argmax(axis=2).ravel()[first]
    np.testing.assert_array_equal(model.augmented_annotations_.to_matrix(codes=True), augmented)
    assert model.history_.column("n_added").tolist() == [0, 7]
    labels = augmented.ravel()[first]
    added = [model.history_[1][f"added_{c}"] for c in range(3)]
    assert added == np.bincount(labels, minlength=3).tolist()
    counts = np.bincount(augmented[augmented >= 0])
    assert model.history_[-1]["imbalance"] == counts.max() / counts.min()


def test_what_was_observed_stays_and_pseudo_annotations_are_marked():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = DASCClassifier(base(), n_rounds=3, n_select=20, random_state=0).fit(X, table)
    out = model.augmented_annotations_
    assert out.observed.equals(table)
    pseudo = out.source == "pseudo"
    np.testing.assert_array_equal(pseudo, model.rounds_ > 0)
    assert set(model.rounds_[pseudo]) <= {1, 2, 3}
    for number in (1, 2, 3):
        assert (model.rounds_ == number).sum() == model.history_[number]["n_added"]
    pairs = set(zip(out.instance.tolist(), out.annotator.tolist(), strict=True))
    assert len(pairs) == out.n_annotations, "a cell was filled twice"
    # What is not observed is no agreement.
    assert percent_agreement(out) == percent_agreement(table)


def test_estimators_are_cloned_and_seeds_repeat():
    X, A, _ = make_crowd_problem()
    given, selector = base(random_state=None), RandomSelector()
    first, second, other = (
        SelfTrainingCrowdClassifier(given, selector, n_rounds=2, random_state=seed).fit(X, A)
        for seed in (0, 0, 1)
    )
    assert not hasattr(given, "module_")
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert first.augmented_annotations_.equals(second.augmented_annotations_)
    assert not first.augmented_annotations_.equals(other.augmented_annotations_)
    assert clone(first).get_params(deep=False).keys() == first.get_params(deep=False).keys()


def test_dasc_is_self_training_with_its_selector():
    X, A, _ = make_crowd_problem()
    for refill in (False, True):
        options = {"n_rounds": 2, "n_select": 0.5, "random_state": 0}
        dasc = DASCClassifier(base(), refill=refill, **options).fit(X, A)
        same = SelfTrainingCrowdClassifier(base(), DistributionAwareSelector(refill), **options)
        np.testing.assert_array_equal(dasc.predict_proba(X), same.fit(X, A).predict_proba(X))


@pytest.mark.parametrize(("name", "cls"), all_classifiers())
def test_it_goes_around_any_classifier(name, cls):
    X, A, _ = make_crowd_problem()
    estimator = cls()
    quick = {key: value for key, value in QUICK.items() if key in estimator.get_params()}
    model = DASCClassifier(estimator.set_params(**quick), n_rounds=1, n_select=15).fit(X, A)
    assert 0 < model.history_[1]["n_added"] <= 15
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-6)
    assert model.predict_annotation_proba(X[:2]).shape == (2, 5, 3)


def test_datasets_sparse_matrices_and_other_aggregators():
    from scipy.sparse import csr_matrix

    X, A, _ = make_crowd_problem()
    X = X.astype(np.float32)
    estimator = AggregatedClassifier(DawidSkene(), scaling=None, **QUICK)
    plain = DASCClassifier(estimator, n_rounds=1, random_state=0).fit(X, A)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X))
    for other in (dataset, csr_matrix(X)):
        model = DASCClassifier(estimator, n_rounds=1, random_state=0).fit(other, A)
        np.testing.assert_allclose(model.predict_proba(other), plain.predict_proba(X), atol=1e-5)


def test_rounds_are_watched():
    X, A, y = make_crowd_problem()
    with watching(test=(X, y)):
        model = DASCClassifier(base(), n_rounds=2, random_state=0).fit(X, A)
    assert model.history_.column("test_accuracy")[-1] == model.score(X, y)
    assert len(model.history_) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"n_rounds": -1}, "n_rounds"), ({"n_select": 0}, "n_select"), ({"selector": 3}, "selector")],
)
def test_wrong_parameters_are_refused(changes, message):
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match=message):
        SelfTrainingCrowdClassifier(base(), **changes).fit(X, A)
