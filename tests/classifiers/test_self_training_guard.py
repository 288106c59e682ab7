"""Self-training's guard against rounds that spoil, and annotations by another model."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CrowdLayerClassifier,
    DASCClassifier,
    GraphCompleter,
    SelfTrainingCrowdClassifier,
)
from manyhands.classifiers import CrowdLayerProtocol
from manyhands.classifiers.self_training import guard
from manyhands.estimator_checks import make_crowd_problem
from manyhands.fitting import Watch
from manyhands.registry import find_classifier
from manyhands.sampling import ConfidenceSelector, DistributionAwareSelector, RandomSelector

QUICK = {"max_epochs": 2, "batch_size": 16, "random_state": 0, "device": "cpu"}


# Networks of two epochs name few classes.
pytestmark = pytest.mark.filterwarnings("ignore:.*added no pseudo-annotations of some")


@pytest.fixture(autouse=True)
def silent_guard(request, monkeypatch):
    """Networks of two epochs may get worse, which is the subject of the guard's tests only."""
    if "crowd" not in request.fixturenames:
        monkeypatch.setattr(guard, "LEAST_Z", np.inf)


def base(**changes):
    given = {"batch_size": 24, "protocol": CrowdLayerProtocol(init_scale=2.0)}
    return CrowdLayerClassifier(**{**QUICK, **given, **changes})


# -- the guard ------------------------------------------------------------------------------------


class Spoiling(RandomSelector):
    """Every cell it adds is of one and the same class."""

    def select(self, predictions, table, n_select, rng, **options):
        chosen = super().select(predictions, table, n_select, rng, **options)
        spoilt = replace(chosen.table, label=np.zeros_like(chosen.table.label))
        n_selected = np.bincount(spoilt.label, minlength=table.n_classes)
        return replace(chosen, table=spoilt, n_selected=n_selected)


def voter():
    return AggregatedClassifier(**{**QUICK, "max_epochs": 15, "batch_size": 60, "lr": 0.03})


def spoilt(**changes):
    parameters = {"n_rounds": 3, "n_select": 60, "random_state": 0, **changes}
    return SelfTrainingCrowdClassifier(voter(), Spoiling(), **parameters)


@pytest.fixture(scope="module")
def crowd():
    """Enough instances to tell, and few enough annotations to leave cells open."""
    X, A, y = make_crowd_problem(n=120)
    rng = np.random.default_rng(0)
    A = np.where(rng.random(A.shape) < 0.5, A, -1)
    A[:8] = -1  # And instances without annotations.
    return X, A, y


def test_rounds_that_spoil_the_classifier_are_not_trained(crowd):
    X, A, y = crowd
    spoils = spoilt(guard=False).fit(X, A)
    alone = voter().fit(X, A)
    assert spoils.score(X, y) < alone.score(X, y) - 0.2
    with pytest.warns(UserWarning, match=r"keeps round \d of 3, because later rounds make"):
        model = spoilt().fit(X, A)
    seen = model.guard_history_
    shares = np.array([np.bincount(row[row >= 0], minlength=3) for row in A[8:]], dtype=float)
    shares = shares[shares.any(axis=1)]
    chance = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0).max()
    is_certain = seen.column("z") < -guard.LEAST_Z
    is_large = seen.column("change") < -guard.MARGIN * (seen[0]["agreement"] - chance)
    assert is_certain[-1]
    assert is_large[-1]
    kept = np.flatnonzero(is_certain | is_large)[0] - 1
    assert len(seen) == 4
    assert len(model.history_) == kept + 1 < 4, "no further round is trained on all instances"
    assert model.rounds_.max() == kept
    fewer = spoilt(guard=False, n_rounds=int(kept)).fit(X, A)
    np.testing.assert_array_equal(model.predict_proba(X), fewer.predict_proba(X))


@pytest.mark.parametrize(
    ("z", "change", "last"),
    [
        ([0, -3, 0, 3], 0.1, 3),  # A fall that later rounds make good.
        ([0, -3, -3, -3], -0.01, 3),  # A fall within the margin, 8 % of .5 - .3.
        ([0, 0, -0.5, -0.5], -0.5, 3),  # Noise.
        ([0, 0, -3, -3], [0, -0.017, -0.017], 1),
        ([0, 0, -3, -3], [0, -0.01, -0.017], 1),  # Certain first, and large in the end.
        ([0, -3, 0, -3], -0.5, 0),
        ([0, 0, -0.5, -3], [0, -0.5, -0.5], 1),  # What the end confirms began in round 2.
        ([0, 0, -0.5, -3], [-0.5, -0.5, -0.5], 0),
    ],
)
def test_an_alarm_is_a_large_fall_in_the_last_round(z, change, last):
    changes = 0.5 + np.outer([0, *np.broadcast_to(change, 3)], np.ones(4))
    values = iter(z)
    judge = guard.Guard(guard.MARGIN, 0.3, [iter(enumerate(changes))], 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "LEAST_Z", 1.0)
        patch.setattr(guard, "paired_z", lambda _: next(values))
        assert [judge.allows(number) for number in range(4)] == [n <= last for n in range(4)]


def test_a_silent_guard_changes_nothing(crowd):
    X, A, _ = crowd
    options = {"n_rounds": 2, "n_select": 30, "random_state": 0}
    for estimator in (base(batch_size=60), base(batch_size=60, random_state=None)):
        free = DASCClassifier(estimator, guard=False, **options).fit(X, A)
        model = DASCClassifier(estimator, guard=0.9, guard_folds=3, **options).fit(X, A)
        assert len(model.guard_history_) == 3
        assert free.guard_history_ == []
        np.testing.assert_array_equal(model.predict_proba(X), free.predict_proba(X))
        assert model.augmented_annotations_.equals(free.augmented_annotations_)


def test_the_guards_measures_by_hand(crowd):
    """Each half is judged by a self-training that has seen nothing of it."""
    X, A, _ = crowd
    table = AnnotationTable.from_matrix(A)
    seen = []

    class Noted(CrowdLayerClassifier):
        def fit(self, X, y, **options):
            seen.append((np.asarray(X), y))
            return super().fit(X, y, **options)

    parameters = base(batch_size=16).get_params(deep=False)
    model = DASCClassifier(Noted(**parameters), n_rounds=1, n_select=40, guard=0.9, random_state=0)
    model.fit(X, table)
    agreement = {0: [], 1: []}
    halves = [(X, y) for X, y in seen if len(X) < len(A)]
    assert sum(len(X) for X, _ in halves) == 2 * len(A)
    for number, (part, given) in zip((0, 0, 1, 1), halves, strict=True):
        left = np.setdiff1d(table.instances, given.instances)
        assert given.observed.equals(table.select(instances=given.instances))
        if number:
            assert 0 < (given.source == "pseudo").sum() <= 20, "half as many for half of them"
        named = base(batch_size=16).fit(part, given).predict(X[left])
        for i, label in zip(left, named, strict=True):
            if (A[i] >= 0).any():
                agreement[number].append((A[i][A[i] >= 0] == label).mean())
    first, last = model.guard_history_
    assert first["agreement"] == pytest.approx(np.mean(agreement[0]))
    change = np.subtract(agreement[1], agreement[0])
    assert last["change"] == pytest.approx(change.mean())
    assert last["z"] == pytest.approx(change.mean() / change.std(ddof=1) * len(change) ** 0.5)


def test_no_guard_where_there_is_nothing_to_fall_back_on(crowd):
    X, A, y = crowd
    full = np.where(A < 0, 0, A)
    for data, changes in (
        (A, {"n_rounds": 0}),
        (A, {"validation": (X, y)}),
        (A, {"annotator": base(), "n_rounds": 1}),
        (full, {}),
        (np.where(np.arange(len(A))[:, None] < 14, A, -1), {}),
    ):
        model = DASCClassifier(base(), **{"n_rounds": 1, "random_state": 0, **changes})
        assert model.fit(X, data).guard_history_ == []


def test_with_an_annotator_rounds_are_compared_with_the_first_of_the_estimator(crowd):
    X, A, _ = crowd
    model = spoilt(annotator=base(), n_select=60, guard=0.9).fit(X, A)
    assert model.guard_history_.column("round").tolist() == [1, 2, 3]
    assert model.guard_history_[0]["change"] == 0


# -- annotations by another model --------------------------------------------------------------


def filled(A, proba):
    """Every missing cell of a matrix gets its most probable annotation."""
    return np.where(A < 0, proba.argmax(axis=2), A)


def test_self_augmentation_by_hand():
    """DL-CL+Self: train, give every missing cell its most probable annotation, train anew."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = SelfTrainingCrowdClassifier(base(), ConfidenceSelector(), n_rounds=1, n_select="all")
    model.fit(X, table)
    full = filled(A, base().fit(X, table).predict_annotation_proba(X))
    np.testing.assert_array_equal(model.augmented_annotations_.to_matrix(codes=True), full)
    again = base().fit(X, model.augmented_annotations_)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert model.history_.column("n_added").tolist() == [0, (A < 0).sum()]


@pytest.mark.parametrize(
    "annotator",
    [
        find_classifier("conal")(**QUICK),
        GraphCompleter(max_epochs=5, random_state=0, device="cpu"),
    ],
)
def test_another_models_round_by_hand(annotator):
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = SelfTrainingCrowdClassifier(
        base(), ConfidenceSelector(), annotator=annotator, n_rounds=1, n_select="all"
    )
    model.fit(X, table)
    assert not hasattr(annotator, "module_")
    first = clone(annotator).fit(X, table)
    if hasattr(first, "complete"):
        proba = first.complete(np.arange(len(X)))
    else:
        proba = first.predict_annotation_proba(X)
    augmented = model.augmented_annotations_
    np.testing.assert_array_equal(augmented.to_matrix(codes=True), filled(A, proba))
    by_hand = base().fit(X, augmented)
    np.testing.assert_array_equal(model.predict_proba(X), by_hand.predict_proba(X))
    assert type(model.estimator_) is CrowdLayerClassifier
    dasc = DASCClassifier(base(), annotator=annotator, n_rounds=1, n_select="all").fit(X, table)
    selector = DistributionAwareSelector()
    same = clone(model).set_params(selector=selector).fit(X, table)
    np.testing.assert_array_equal(dasc.predict_proba(X), same.predict_proba(X))


def test_later_rounds_are_annotated_by_the_estimator():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    options = {"n_rounds": 2, "n_select": 20, "random_state": 0}
    annotator = find_classifier("conal")(**QUICK)
    model = SelfTrainingCrowdClassifier(base(), ConfidenceSelector(), annotator=annotator)
    model.set_params(**options).fit(X, table)
    one = model.augmented_annotations_.take(model.rounds_ <= 1)
    fitted = base().fit(X, one)
    proba = fitted.predict_annotation_proba(X).astype(float)
    entropy = -(proba * np.log(proba)).sum(axis=2)
    entropy[one.to_matrix(codes=True) >= 0] = np.inf
    first = np.argsort(entropy.ravel())[:20]
    added = model.augmented_annotations_.take(model.rounds_ == 2)
    assert set(first) == set(added.instance * 5 + added.annotator)


def test_seeds_of_both_models_come_from_random_state(tmp_path):
    X, A, _ = make_crowd_problem()
    model = SelfTrainingCrowdClassifier(
        base(random_state=None),
        RandomSelector(),
        annotator=GraphCompleter(max_epochs=3, device="cpu"),
        n_rounds=1,
    )
    zero, again, one = (clone(model).set_params(random_state=s).fit(X, A) for s in (0, 0, 1))
    np.testing.assert_array_equal(zero.predict_proba(X), again.predict_proba(X))
    assert not zero.augmented_annotations_.equals(one.augmented_annotations_)
    conal = find_classifier("conal")(**{**QUICK, "random_state": None})
    model.set_params(annotator=conal, checkpoint=tmp_path / "run.safetensors", random_state=0)
    model.fit(X, A)
    names = [f"run-round{k}.safetensors" for k in (0, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("gold", [False, True])
def test_a_completers_round_is_neither_scored_nor_kept(gold):
    X, A, y = make_crowd_problem()
    model = SelfTrainingCrowdClassifier(
        base(),
        ConfidenceSelector(),
        annotator=GraphCompleter(max_epochs=3, device="cpu"),
        n_rounds=3,
        n_select=20,
        validation=(X, y) if gold else 0.2,
        patience=2,
        random_state=0,
    )
    model.fit(X, A, watch=Watch(y_train=y, test=(X, y)))
    name = "validation_accuracy" if gold else "validation_nll"
    seen = model.history_.column(name)
    assert np.isnan(seen[0])
    assert np.isfinite(seen[1:]).all()
    assert np.isnan(model.history_.column("test_accuracy")[0])
    assert model.history_[1]["pseudo_accuracy"] > 0
    assert model.best_round_ == (np.nanargmax(seen) if gold else np.nanargmin(seen)) > 0


def test_an_annotators_round_is_scored_where_it_can_be_and_never_kept():
    X, A, y = make_crowd_problem()
    annotator = base(max_epochs=30)
    model = SelfTrainingCrowdClassifier(
        base(max_epochs=1), annotator=annotator, n_rounds=1, validation=(X, y)
    )
    model.fit(X, A, watch=Watch(test=(X, y)))
    alone = clone(annotator).fit(X, A).score(X, y)
    for name in ("validation_accuracy", "test_accuracy"):
        seen, other = (model.history_.column(prefix + name) for prefix in ("", "annotator_"))
        assert other[0] == alone > seen[1]
        assert np.isnan([seen[0], other[1]]).all(), "another model's is not the estimator's"
    assert model.best_round_ == 1


def test_the_estimator_is_trained_where_nothing_is_missing():
    X, A, _ = make_crowd_problem()
    full = AnnotationTable.from_matrix(np.where(A < 0, 0, A))
    annotator = GraphCompleter(max_epochs=2, device="cpu")
    model = SelfTrainingCrowdClassifier(base(), annotator=annotator, n_rounds=3).fit(X, full)
    assert model.history_.column("n_added").tolist() == [0, 0]
    plain = base().fit(X, full)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_rounds": 0}, "n_rounds=0 ends after the annotator's round"),
        ({"warm_start": True}, "warm_start=True continues from .* belong to another model"),
        ({"annotator": ConfidenceSelector()}, "annotator"),
        ({"annotator": GraphCompleter}, r"annotator=GraphCompleter is a class; give an object"),
        ({"annotator": base(checkpoint="a")}, "annotator has checkpoint='a', a single file"),
        ({"n_select": "most"}, "n_select"),
    ],
)
def test_annotators_that_cannot_be_are_refused(changes, message):
    X, A, _ = make_crowd_problem()
    model = SelfTrainingCrowdClassifier(**{"annotator": GraphCompleter(), **changes})
    with pytest.raises(ValueError, match=message):
        model.fit(X, A)
