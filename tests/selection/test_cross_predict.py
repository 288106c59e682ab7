"""Out-of-fold prediction: who is left out together, the same result however it is run, resuming."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyhands import (
    AggregatedClassifier,
    AnnotationPlanner,
    AnnotationTable,
    AveragedCrowdClassifier,
    CrowdLayerClassifier,
    DawidSkene,
    cross_predict,
    review_queue,
)
from manyhands.exceptions import AnnotationError, ModelFolderError, warn_caller
from manyhands.metrics import (
    accuracy,
    accuracy_on_new_items,
    corrected_vote_agreement,
    estimate_accuracy,
    vote_agreement,
    vote_information,
    vote_recall,
)
from manyhands.selection import deal_instances, instance_units
from tests.building import built
from tests.rounding import assert_near
from tests.selection.conftest import QUICK


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


# -- who is left out -------------------------------------------------------------------------------


def test_a_fold_s_model_has_seen_neither_its_features_nor_its_annotations(problem):
    X, table = problem
    found = cross_predict(Echo(), X, table, cv=4, return_estimators=True)
    assert len(found.estimators) == 4
    for fold, model in enumerate(found.estimators):
        left = set(table.instances[found.folds == fold].tolist())
        assert model.instances_ == set(table.instances.tolist()) - left
    np.testing.assert_allclose(found.proba.sum(axis=1), 1)
    # Echo's columns are in another order than the table's classes.
    assert (found.proba[:, 2] >= found.proba[:, 0]).all()


def test_folds_are_even_in_size_and_class():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [120, 60, 20])
    table = AnnotationTable.from_matrix(np.repeat(y[:, None], 2, axis=1))
    folds = deal_instances(table, 5, np.arange(200), rng)
    for c in range(3):
        counts = np.bincount(folds[y == c], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert set(np.bincount(folds)) == {40}


def test_groups_leave_together_and_folds_stay_about_even():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 80, 400)
    y = np.where(groups % 4 == 0, 1, 0)
    table = AnnotationTable.from_matrix(y[:, None].repeat(3, axis=1))
    units = instance_units(np.zeros((400, 1)), table, groups)
    folds = deal_instances(table, 4, units, rng)
    assert all(len(np.unique(folds[groups == g])) == 1 for g in np.unique(groups))
    for c in (0, 1):
        counts = np.bincount(folds[y == c], minlength=4)
        assert counts.max() - counts.min() <= 8


def test_repeated_instances_and_groups_join_in_chains():
    table = AnnotationTable.from_matrix(np.array([[0, 1]] * 6))[[0, 1, 2, 3, 4, 0]]
    X = np.array([[0.0], [1.0], [-0.0], [3.0], [1.0], [9.0]])
    assert instance_units(X, table).tolist() == [0, 1, 2, 3, 4, 0]

    def partition(units):
        return {tuple(np.flatnonzero(units == u)) for u in np.unique(units)}

    assert partition(instance_units(X, table, "equal_rows")) == {(0, 2, 5), (1, 4), (3,)}
    named = ["a", None, "", "b", "c", "b"]
    assert partition(instance_units(X, table, named)) == {(0, 3, 5), (1,), (2,), (4,)}


def test_equal_rows_are_found_in_sparse_matrices_and_texts_too():
    from scipy.sparse import csr_matrix

    table = AnnotationTable.from_matrix(np.array([[0, 1]] * 3))
    rows = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 2.0]])
    for X in (csr_matrix(rows), ["b", "a", "b"], rows[..., None]):
        units = instance_units(X, table, "equal_rows")
        assert units[0] == units[2] != units[1]


def test_every_annotator_of_two_instances_stays_in_training():
    rng = np.random.default_rng(3)
    n = 240
    matrix = np.full((n, 121), -1)
    y = rng.integers(0, 2, n)
    matrix[:, 0] = y
    for annotator, pair in enumerate(rng.permutation(n).reshape(120, 2), start=1):
        matrix[pair, annotator] = y[pair]
    table = AnnotationTable.from_matrix(matrix)
    folds = deal_instances(table, 2, np.arange(n), np.random.default_rng(0))
    confined = [len(np.unique(folds[table.instance[table.annotator == r]])) for r in range(121)]
    assert min(confined) == 2
    for c in (0, 1):
        assert abs(np.subtract(*np.bincount(folds[y == c]))) <= 1


def test_instances_without_annotations_are_spread_and_predicted(problem):
    X, table = problem
    kept = table.take(table.instance >= 12)
    found = cross_predict(Echo(), X, kept, cv=3)
    assert np.isfinite(found.proba).all()
    assert set(np.bincount(found.folds[:12])) == {4}


# -- the same result -------------------------------------------------------------------------------


def test_seeds_decide_folds_and_models_and_candidates_share_folds(problem):
    X, table = problem
    first, again = (cross_predict(Echo(), X, table, cv=3) for _ in range(2))
    np.testing.assert_array_equal(first.proba, again.proba)
    assert len(np.unique(first.proba[:, 2])) == 3, "every fold has a seed of its own"
    assert np.array_equal(cross_predict(Echo(0.9), X, table, cv=3).folds, first.folds)
    other = cross_predict(Echo(), X, table, cv=3, random_state=1)
    assert not np.array_equal(other.folds, first.folds)
    given = cross_predict(Echo(), X, table, cv=first.folds)
    np.testing.assert_array_equal(given.proba, first.proba)


def test_a_network_predicts_the_same_in_parallel_and_within_a_pipeline(problem):
    X, table = problem
    model = CrowdLayerClassifier(**QUICK)
    serial = cross_predict(model, X, table, cv=2)
    with joblib.parallel_config("threading", n_jobs=2):
        parallel = cross_predict(model, X, table, cv=2)
    assert_near(serial.proba, parallel.proba, n=2 * table.n_annotations)
    piped = cross_predict(make_pipeline(StandardScaler(), model), X, table, cv=2)
    assert vote_agreement(piped.proba, table) > 0.3


@pytest.mark.slow
def test_processes_give_the_same(problem):
    X, table = problem
    model = CrowdLayerClassifier(**QUICK)
    one, two = (cross_predict(model, X, table, cv=2, n_jobs=n) for n in (1, 2))
    assert_near(one.proba, two.proba, n=2 * table.n_annotations)


def test_rows_are_matched_by_id(problem):
    X, table = problem
    ids = np.array([f"i{k}" for k in range(len(X))])
    named = AnnotationTable(
        table.instance, table.annotator, table.label, ids, table.annotators, table.classes
    )
    frame = pd.DataFrame(X, index=ids, columns=list("abcd")).sample(frac=1, random_state=0)
    model = CrowdLayerClassifier(**QUICK)
    found = cross_predict(model, frame, named, cv=2)
    expected = cross_predict(model, frame, named.select(instances=frame.index), cv=2)
    np.testing.assert_array_equal(found.proba, expected.proba)


def test_predictions_keep_their_instances_in_whatever_order_X_is():
    """An accuracy of 93 % was told as 80 %: the array of X's order was read in the table's."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90)
    ids = np.array([f"i{k:02d}" for k in range(90)])
    votes = np.where(rng.random((90, 3)) < 0.8, y[:, None], rng.integers(3, size=(90, 3)))
    named = {"task": np.repeat(ids, 3), "worker": np.tile(list("abc"), 90), "label": votes.ravel()}
    table = AnnotationTable.from_frame(pd.DataFrame(named))
    frame = pd.DataFrame(np.eye(3)[y], index=ids, columns=list("xyz"))
    model = AggregatedClassifier(DawidSkene(), LogisticRegression())
    ordered = cross_predict(model, frame, table, cv=3)
    mixed = frame.sample(frac=1, random_state=1)
    found = cross_predict(model, mixed, table, cv=3)
    assert found.instances.tolist() == mixed.index.tolist()
    assert found.to_frame().loc[ids].round(6).equals(found.to_frame().sort_index().round(6))
    truth = pd.Series(y, index=ids)[found.instances].to_numpy()
    assert (found.classes[found.proba.argmax(axis=1)] == truth).mean() > 0.95
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for measure in (vote_agreement, corrected_vote_agreement, vote_information, vote_recall):
            own = measure(ordered, table)
            assert measure(found, table) == pytest.approx(own, abs=0.02)
            assert measure(found, table) == pytest.approx(measure(found.to_frame(), table))
        assert estimate_accuracy(found, table).value > 0.9
        assert accuracy_on_new_items(table, found).value > 0.9
        queue = review_queue(DawidSkene().fit(table), table, found, n=10).to_frame()
        again = review_queue(DawidSkene().fit(table), table, found.to_frame(), n=10).to_frame()
        assert queue.equals(again)
        planned = [AnnotationPlanner().fit(table, proba=p).posterior_ for p in (found, ordered)]
        np.testing.assert_allclose(planned[0], planned[1], atol=0.1)
    with pytest.warns(UserWarning, match="predicted has no ids"):
        assert vote_agreement(found.proba, table) < 0.6  # What the recipe of old told.


# -- resuming --------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_where_it_stopped(problem, tmp_path):
    X, table = problem
    whole = cross_predict(Echo(), X, table, cv=4)
    Echo.fits = 0
    with pytest.raises(KeyboardInterrupt):
        cross_predict(Echo(fail_at=2), X, table, cv=4, folder=tmp_path)
    assert len(list(tmp_path.glob("fold*.npz"))) == 2
    Echo.fits = 100
    found = cross_predict(Echo(fail_at=2), X, table, cv=4, folder=tmp_path)
    assert Echo.fits == 102
    np.testing.assert_array_equal(found.proba, whole.proba)
    assert not list(tmp_path.glob(".*")), "nothing half written stays"


def test_a_folder_is_read_again_for_the_same_and_only_the_same(problem, tmp_path):
    X, table = problem

    def trained(estimator=None, X=X, table=table, **options):
        Echo.fits = 0
        cross_predict(estimator or Echo(), X, table, cv=2, folder=tmp_path, **options)
        return Echo.fits

    assert trained() == 2
    assert trained(X=X.copy(), table=table[np.arange(len(X))]) == 0
    assert trained(Echo(constant=0.4)) == 2
    assert trained(X=X + 1) == 2
    assert trained(table=table.take(np.arange(table.n_annotations) > 0)) == 2
    assert trained(random_state=1) == 2
    assert trained() == 0


def test_networks_are_saved_and_loaded_with_their_folds(problem, tmp_path):
    X, table = problem
    model = CrowdLayerClassifier(**QUICK)
    options = {"cv": 2, "folder": tmp_path, "return_estimators": True}
    first = cross_predict(model, X, table, **options)
    again = cross_predict(model.set_params(verbose=0), X, table, **options)
    for fold, (a, b) in enumerate(zip(first.estimators, again.estimators, strict=True)):
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
        rows = first.folds == fold
        assert_near(b.predict_proba(X)[rows], first.proba[rows], n=X.shape[1])


def test_a_damaged_file_is_named(problem, tmp_path):
    X, table = problem
    cross_predict(Echo(), X, table, cv=2, folder=tmp_path)
    path = sorted(tmp_path.glob("*.npz"))[0]
    path.write_bytes(b"half")
    with pytest.raises(ModelFolderError, match=rf"{path.name}.*remove it"):
        cross_predict(Echo(), X, table, cv=2, folder=tmp_path)


def test_the_array_of_a_result_is_its_probabilities(problem):
    found = cross_predict(Echo(), *problem, cv=3)
    np.testing.assert_array_equal(np.asarray(found), found.proba)
    assert np.asarray(found, dtype=np.float32).dtype == np.float32
    copy = np.array(found)
    copy[0] = 0
    assert found.proba[0].any()


def test_a_warning_of_several_folds_is_given_once(problem):
    class Doubtful(Echo):
        def fit(self, X, y):
            warn_caller(f"only {3 + type(self).fits} of 99 are sure")
            return super().fit(X, y)

    with pytest.warns(UserWarning, match="only 3 of 99 are sure") as caught:
        cross_predict(Doubtful(), *problem, cv=3)
    assert len(caught) == 1


def test_progress_is_shown_on_standard_error(problem, capsys):
    X, table = problem
    cross_predict(Echo(), X, table, cv=3, verbose=1)
    assert "Echo" in capsys.readouterr().err
    cross_predict(Echo(), X, table, cv=3)
    assert not capsys.readouterr().err


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": 1}, "cv=1 leaves nothing to train on"),
        ({"cv": 49}, "cv=49 needs 49 annotated instances or groups, and there are 48"),
        ({"cv": "many"}, "cv is a str"),
        ({"cv": [0, 1]}, "cv has 2 entries for 48 instances"),
        ({"cv": [0] * 47 + [2]}, r"cv holds the folds \[0, 2\]"),
        ({"cv": [0, 1] * 24, "groups": "equal_rows"}, "leave groups out"),
        ({"groups": "rows"}, "groups='rows' is unknown"),
        ({"groups": [1, 2]}, "groups has 2 entries for 48 instances"),
        ({"folder": "x", "random_state": None}, "folder needs an integer random_state"),
    ],
)
def test_unusable_options_are_refused(problem, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AnnotationError, match=message):
        cross_predict(Echo(), *problem, **options)


def test_unusable_estimators_are_refused(problem, tmp_path):
    with pytest.raises(AnnotationError, match="estimator=Echo is a class"):
        cross_predict(Echo, *problem)
    with pytest.raises(AnnotationError, match="no method 'predict_proba'"):
        cross_predict(StandardScaler(), *problem)
    with pytest.raises(AnnotationError, match="no method 'save'"):
        cross_predict(Echo(), *problem, folder=tmp_path, return_estimators=True)
    model = CrowdLayerClassifier(checkpoint=tmp_path / "c", random_state=0)
    with pytest.raises(AnnotationError, match="all folds would write"):
        cross_predict(model, *problem)
    with pytest.raises(AnnotationError, match="can be pickled"):
        cross_predict(Echo(constant=lambda: 0), *problem, folder=tmp_path)


# -- where agreement misleads (docs/model_choice.md) -----------------------------------------------


def test_in_sample_agreement_rewards_memorised_votes():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    X = rng.normal(size=(300, 2)) + 1.5 * y[:, None]
    given = np.where(rng.random((300, 1)) < 0.7, y[:, None], 1 - y[:, None])
    table = AnnotationTable.from_matrix(given)
    models = [built(AggregatedClassifier, backbone=KNeighborsClassifier(1), targets="hard")]
    models += [AggregatedClassifier(backbone=LogisticRegression())]
    memory, honest = (vote_agreement(m.fit(X, table).predict(X), table) for m in models)
    assert memory == 1 > honest
    memory, honest = (vote_agreement(cross_predict(m, X, table).proba, table) for m in models)
    assert memory < honest


@pytest.mark.parametrize("seed", range(5))
def test_agreement_prefers_who_repeats_a_shared_mistake_and_information_parts_from_it(seed):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], 200)
    seen = np.where((y == 1) & (rng.random(600) < 0.6), 2, y)
    given = np.where(rng.random((600, 3)) < 0.9, seen[:, None], rng.integers(0, 3, (600, 3)))
    table = AnnotationTable.from_matrix(given)
    right = np.where(rng.random(600) < 0.9, y, rng.integers(0, 3, 600))
    repeats = np.where(right == 1, 2, right)
    assert accuracy(y, right) > accuracy(y, repeats) + 0.2
    for misled in (vote_agreement, corrected_vote_agreement):
        assert misled(right, table) < misled(repeats, table)
    assert vote_information(right, table) > vote_information(repeats, table)


@pytest.mark.parametrize("seed", range(5))
def test_agreement_chooses_the_crowd_s_class_prior_rather_than_the_true_one(seed):
    rng = np.random.default_rng(seed)
    boat = rng.random(5000) < 0.4
    odds = np.exp(rng.normal(np.where(boat, 0.5, -0.5)))
    given = rng.random((5000, 3)) < np.where(boat, 0.6, 0.1)[:, None]
    table = AnnotationTable.from_matrix(given.astype(int))
    priors = (0.4, given.mean())
    true, crowd = ((odds * prior / (1 - prior) > 1).astype(int) for prior in priors)
    assert accuracy(boat, true) > accuracy(boat, crowd)
    assert vote_agreement(true, table) < vote_agreement(crowd, table)


# -- predictions after every epoch -----------------------------------------------------------------


def test_epochs_are_those_of_shorter_trainings(problem, tmp_path):
    X, table = problem
    model = CrowdLayerClassifier(**{**QUICK, "max_epochs": 4})
    plain = cross_predict(model, X, table, cv=3)
    found = cross_predict(model, X, table, cv=3, return_epochs=True, folder=tmp_path)
    np.testing.assert_array_equal(found.proba, plain.proba)
    assert found.epochs.shape == (4, len(X))
    for epoch in (1, 3, 4):
        short = cross_predict(model.set_params(max_epochs=epoch), X, table, cv=3)
        np.testing.assert_array_equal(found.epochs[epoch - 1], short.proba.argmax(axis=1))
    model.set_params(max_epochs=4)
    again = cross_predict(model, X, table, cv=3, return_epochs=True, folder=tmp_path)
    np.testing.assert_array_equal(again.epochs, found.epochs)
    assert again.seconds == pytest.approx(found.seconds)
    assert cross_predict(model, X, table, cv=3, folder=tmp_path).epochs is None


@pytest.mark.parametrize("decision", ["balanced", "posterior"])
def test_epochs_are_most_probable_classes_whatever_is_decided(decision, problem):
    X, table = problem
    model = AggregatedClassifier(DawidSkene(), **QUICK, decision=decision)
    found = cross_predict(model, X, table, cv=2, return_epochs=True)
    np.testing.assert_array_equal(found.epochs[-1], found.proba.argmax(axis=1))


@pytest.mark.parametrize(
    "model",
    [
        AggregatedClassifier(backbone=LogisticRegression()),
        AveragedCrowdClassifier([CrowdLayerClassifier(**QUICK)] * 2),
        Echo(),
    ],
    ids=["no network", "several networks", "no watch"],
)
def test_what_is_not_one_network_of_one_stage_has_no_epochs(model, problem, tmp_path):
    X, table = problem
    for _ in range(2):
        assert (
            cross_predict(model, X, table, cv=2, return_epochs=True, folder=tmp_path).epochs is None
        )
    assert len(list(tmp_path.glob("*.npz"))) == 2
