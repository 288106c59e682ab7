"""Self-training around any crowd model: what is trained, what is added, and what never changes."""

from dataclasses import is_dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, clone

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CrowdLayerClassifier,
    DASCClassifier,
    DawidSkene,
    SelfTrainingCrowdClassifier,
    agreement,
    all_classifiers,
    load,
)
from manyhands.classifiers import CrowdLayerProtocol
from manyhands.classifiers.self_training import guard, pseudo_annotation_quality, rounds
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting import BaseCrowdClassifier, Watch
from manyhands.io import read_annotations
from manyhands.metrics import annotator_reliability
from manyhands.registry import find_classifier
from manyhands.report import summarize
from manyhands.report.planning import FORESEEN
from manyhands.sampling import ConfidenceSelector, DistributionAwareSelector, RandomSelector
from manyhands.training import hold_out

QUICK = {"max_epochs": 2, "batch_size": 16, "random_state": 0, "device": "cpu"}
FEW_PARTS = {
    "n_rounds": 1,
    "n_folds": 2,
    "adversarial_epochs": 1,
    "discriminator_steps": 1,
    "generative_steps": 1,
    "mu": "mean",
    "warm_up_epochs": 1,
    "decoder_epochs": 1,
    "n_tuplets": 96,
    "updates_per_epoch": 4,
    "C": 1.0,  # embeddings
}
"""Fewer repetitions in classifiers that train several models, or see every task many times."""

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


@pytest.fixture(scope="module")
def trained():
    """A model of one round, to be read only, and its instances."""
    X, A, _ = make_crowd_problem()
    return DASCClassifier(base(), n_rounds=1, guard=False, random_state=0).fit(X, A), X


def test_no_round_is_the_estimator():
    X, A, _ = make_crowd_problem()
    plain = base().fit(X, A)
    model = SelfTrainingCrowdClassifier(base(), n_rounds=0).fit(X, A)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert model.augmented_annotations_.equals(AnnotationTable.from_matrix(A))
    likelihood = model.annotation_log_likelihood(X, A)
    assert likelihood == plain.annotation_log_likelihood(X, A)


def test_a_round_by_hand():
    """Predict what is missing, add the most confident, train anew on both."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = SelfTrainingCrowdClassifier(base(), ConfidenceSelector(), n_rounds=1, n_select=7)
    model.set_params(guard=False).fit(X, table)
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
    options = {"n_rounds": 3, "n_select": 20, "guard": False, "random_state": 0}
    model = DASCClassifier(base(), **options).fit(X, table)
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
    assert agreement.percent_agreement(out) == agreement.percent_agreement(table)


def test_rounds_end_where_nothing_is_missing():
    X, A, _ = make_crowd_problem()
    full = np.where(A < 0, 0, A)
    model = DASCClassifier(base(), n_rounds=3, guard=False).fit(X, full)
    assert len(model.history_) == 1
    model = SelfTrainingCrowdClassifier(base(), ConfidenceSelector(), n_rounds=9, n_select=70)
    model.set_params(guard=False).fit(X, A)
    assert model.history_.column("n_added").sum() == (A < 0).sum()
    assert len(model.history_) < 10


def test_a_float_is_a_multiple_of_what_was_observed():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = SelfTrainingCrowdClassifier(base(), RandomSelector(), n_rounds=1, n_select=0.2)
    model.set_params(guard=False)
    n = round(0.2 * table.n_annotations)
    assert clone(model).fit(X, table).history_[1]["n_added"] == n
    assert clone(model).set_params(validation=0.5).fit(X, table).history_[1]["n_added"] == n
    more = clone(model).fit(X, table).augmented_annotations_
    again = clone(model).fit(X, more)
    assert again.history_[1]["n_added"] == n, "pseudo-annotations are not observed"
    np.testing.assert_array_equal(
        again.rounds_ == 0, np.arange(len(again.rounds_)) < more.n_annotations
    )


def test_too_few_to_be_shared_is_an_error():
    X, A, _ = make_crowd_problem()
    with pytest.raises(
        AnnotationError, match="n_select=1 is less than the number of predicted classes, 3"
    ):
        DASCClassifier(base(), n_select=1).fit(X, A)


def test_selectors_are_cloned():
    class Counting(ConfidenceSelector):
        used = 0

        def select(self, *args, **kwargs):
            self.used += 1
            return super().select(*args, **kwargs)

    given = Counting()
    X, A, _ = make_crowd_problem()
    SelfTrainingCrowdClassifier(base(), given, n_rounds=2, n_select=5).fit(X, A)
    assert given.used == 0


def test_annotations_are_predicted_in_blocks(monkeypatch):
    X, A, _ = make_crowd_problem()
    whole = DASCClassifier(base(), n_rounds=1, guard=False, random_state=0).fit(X, A)
    monkeypatch.setattr(rounds, "PREDICTED_AT_ONCE", 7 * 5 * 3)
    seen = []
    predict = CrowdLayerClassifier.predict_annotation_proba

    def noted(self, X, annotators=None):
        seen.append(len(X))
        return predict(self, X, annotators)

    monkeypatch.setattr(CrowdLayerClassifier, "predict_annotation_proba", noted)
    model = DASCClassifier(base(), n_rounds=1, guard=False, random_state=0).fit(X, A)
    assert seen == [7] * 6 + [6]
    assert model.augmented_annotations_.equals(whole.augmented_annotations_)


def test_progress_is_shown_where_asked(capsys):
    X, A, _ = make_crowd_problem()
    DASCClassifier(base(), n_rounds=1, guard=False).fit(X, A)
    quiet = capsys.readouterr().err
    DASCClassifier(base(), n_rounds=1, guard=False, verbose=1).fit(X, A)
    assert quiet == ""
    assert "CrowdLayer" in capsys.readouterr().err


def test_estimators_are_cloned_and_seeds_repeat():
    X, A, _ = make_crowd_problem()
    given, selector = base(random_state=None), RandomSelector()
    options = {"n_rounds": 2, "guard": False}
    first, second, other = (
        SelfTrainingCrowdClassifier(given, selector, **options, random_state=seed).fit(X, A)
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
        options = {"n_rounds": 2, "n_select": 0.5, "guard": False, "random_state": 0}
        dasc = DASCClassifier(base(), refill=refill, **options).fit(X, A)
        same = SelfTrainingCrowdClassifier(base(), DistributionAwareSelector(refill), **options)
        np.testing.assert_array_equal(dasc.predict_proba(X), same.fit(X, A).predict_proba(X))


@pytest.mark.parametrize(("name", "cls"), all_classifiers())
def test_it_goes_around_any_classifier(name, cls):
    X, A, _ = make_crowd_problem(24)
    estimator = cls()
    own = estimator.get_params()
    estimator.set_params(
        **{k: v for k, v in (QUICK | FEW_PARTS | {"max_epochs": 1}).items() if k in own}
    )
    model = DASCClassifier(estimator, n_rounds=1, n_select=15, guard=False).fit(X, A)
    assert 0 < model.history_[1]["n_added"] <= 15
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-6)
    assert model.predict_annotation_proba(X[:2]).shape == (2, 5, 3)


def test_datasets_sparse_matrices_and_other_aggregators():
    from scipy.sparse import csr_matrix

    X, A, _ = make_crowd_problem()
    X = X.astype(np.float32)
    estimator = AggregatedClassifier(DawidSkene(), scaling=None, **QUICK)
    options = {"n_rounds": 1, "guard": False, "random_state": 0}
    plain = DASCClassifier(estimator, **options).fit(X, A)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X))
    for other in (dataset, csr_matrix(X)):
        model = DASCClassifier(estimator, **options).fit(other, A)
        np.testing.assert_allclose(model.predict_proba(other), plain.predict_proba(X), atol=1e-5)


def test_rounds_are_watched():
    X, A, y = make_crowd_problem()
    model = DASCClassifier(base(), n_rounds=2, random_state=0).fit(X, A, watch=Watch(test=(X, y)))
    assert model.history_.column("test_accuracy")[-1] == model.score(X, y)
    assert len(model.history_) == 3


def test_what_is_added_is_watched_by_hand():
    X, A, y = make_crowd_problem(n=80, n_classes=4)
    A[y == 2, 1:] = -1  # of four classes the two rarest are the minority: this one
    A[(y == 3) & (np.arange(80) > 40), :] = -1  # and this one
    y = y.astype(float)
    y[3], y[6] = np.nan, 7.0  # unknown, and a class that nobody names
    model = DASCClassifier(base(max_epochs=8, batch_size=16), n_rounds=2, n_select=60)
    model.set_params(guard=False, random_state=0).fit(X, A, watch=Watch(y_train=y))
    out, history = model.augmented_annotations_, model.history_
    assert "pseudo_accuracy" not in history[0]
    for number in (1, 2):
        new = model.rounds_ == number
        pairs = [
            (y[i], label)
            for i, label in zip(out.instance[new], out.label[new], strict=True)
            if y[i] in range(4)
        ]
        right = [true == given for true, given in pairs]
        assert history[number]["pseudo_accuracy"] == pytest.approx(np.mean(right))
        recall = [np.mean([g == c for t, g in pairs if t == c]) for c in (2, 3)]
        assert history[number]["minority_recall"] == pytest.approx(np.mean(recall))
        precision = [np.mean([t == c for t, g in pairs if g == c]) for c in (0, 1)]
        assert history[number]["majority_precision"] == pytest.approx(np.mean(precision))
    before, after = history.column("imbalance_before"), history.column("imbalance")
    np.testing.assert_array_equal(before[1:], after[:-1])
    assert before[0] == after[0]
    # of other instances: not measured, and no error
    other = DASCClassifier(base(), n_rounds=1, guard=False).fit(X, A, watch=Watch(y_train=y[:-1]))
    assert "pseudo_accuracy" not in other.history_[1]


def test_of_three_classes_one_is_the_minority():
    X, A, y = make_crowd_problem()
    A[y == 2, 1:] = -1
    A[(y == 1) & (np.arange(len(y)) > 30)] = -1
    model = SelfTrainingCrowdClassifier(base(), RandomSelector(), n_rounds=1, n_select=40)
    model.set_params(guard=False).fit(X, A, watch=Watch(y_train=y))
    out, new = model.augmented_annotations_, model.rounds_ == 1
    true, given = y[out.instance[new]], out.label[new]
    assert model.history_[1]["minority_recall"] == np.mean(given[true == 2] == 2)


def test_sets_of_another_shape_are_not_watched():
    X, A, y = make_crowd_problem()
    model = DASCClassifier(base(), n_rounds=1, guard=False, random_state=0).fit(
        X, A, watch=Watch(other=(X[:, :2], y), test=(X, y))
    )
    assert "test_accuracy" in model.history_.columns
    assert "other_accuracy" not in model.history_.columns


def test_imbalance_is_of_classes_that_are_there():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 3])
    row = DASCClassifier(base(), n_rounds=0).fit(X, table).history_[0]
    counts = np.bincount(A[A >= 0])
    assert row["imbalance"] == counts.max() / counts.min()
    assert row["added_3"] == 0


def test_quality_of_named_classes_and_wrong_lengths():
    table = AnnotationTable.from_matrix(np.array([["a", "b"], ["b", "b"]]))
    found = pseudo_annotation_quality(table, ["a", "b"], [False, True])
    assert found == {"pseudo_accuracy": 0.75, "majority_precision": 1.0, "minority_recall": 1.0}
    with pytest.raises(AnnotationError, match="gold has shape"):
        pseudo_annotation_quality(table, ["a"], [False, True])
    with pytest.raises(AnnotationError, match="is_rare has shape"):
        pseudo_annotation_quality(table, ["a", "b"], [True])


def test_quality_of_nothing_is_nothing():
    table = AnnotationTable.from_matrix(np.array([[0, 1], [1, -1]]), classes=[0, 1])
    rare = np.array([False, True])
    assert pseudo_annotation_quality(table, np.array([-1, -1]), rare) == {}
    found = pseudo_annotation_quality(table.take(table.label == 1), np.array([0, 0]), rare)
    assert found == {"pseudo_accuracy": 0.0}  # none named the majority, none was of the minority


# -- which round is kept ----------------------------------------------------------------------


def test_held_out_annotations_choose_the_round_and_are_never_filled():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = DASCClassifier(base(), n_rounds=4, n_select=30, validation=0.2, random_state=0)
    model.fit(X, table)
    nll = model.history_.column("validation_nll")
    assert len(nll) == 5
    assert model.best_round_ == np.argmin(nll)
    assert model.rounds_.max() == model.best_round_
    out = model.augmented_annotations_
    observed = set(zip(out.instance, out.annotator, strict=True))
    seen = out.observed
    held = {
        (i, r): label
        for i, r, label in zip(table.instance, table.annotator, table.label, strict=True)
        if (i, r) not in set(zip(seen.instance, seen.annotator, strict=True))
    }
    assert len(held) == round(0.2 * table.n_annotations)
    assert not observed & set(held)
    proba = model.predict_annotation_proba(X)
    by_hand = -np.mean([np.log(proba[i, r, label]) for (i, r), label in held.items()])
    assert nll.min() == pytest.approx(by_hand, rel=1e-5)


def test_held_out_annotations_of_tables_with_passes_and_repeats():
    X, A, _ = make_crowd_problem()
    rows = [(i, r, A[i, r]) for i, r in np.argwhere(A >= 0)]
    frame = pd.DataFrame(rows, columns=["task", "worker", "label"], dtype=object)
    frame.loc[:6, "label"] = "?"
    passes = AnnotationTable.from_frame(frame, abstain="?", tasks=range(len(X)))
    twice = AnnotationTable.from_frame(
        pd.concat([frame[7:], frame[7:40]]), duplicates="keep", tasks=range(len(X))
    )
    for table in (passes, twice):
        options = {"n_rounds": 1, "n_select": 30, "validation": 0.3, "guard": False}
        model = DASCClassifier(base(), **options, random_state=0)
        out = model.fit(X, table).augmented_annotations_
        assert model.history_[1]["n_added"] > 0
        added = out.instance * out.n_annotators + out.annotator
        taken = table.instance * out.n_annotators + table.annotator
        assert not set(added[out.source == "pseudo"]) & set(taken)
        if table.passes is not None:
            passed = table.passes[:, 0] * out.n_annotators + table.passes[:, 1]
            assert not set(added) & set(passed)


def test_who_has_held_out_annotations_only_is_not_imitated():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    A[0, 5], A[1, 5] = 0, 1
    table = AnnotationTable.from_matrix(A)
    for seed in range(400):
        kept, held = hold_out(table, 0.5, np.random.default_rng(seed))
        if kept.annotations_per_annotator()[5] == 0:
            break
    proba = np.full((len(X), 6, 3), 1 / 3)
    found = RandomSelector().select(
        [(np.arange(len(X)), proba)], kept, 10**6, np.random.default_rng(0), held=held
    )
    chosen = found.table.annotations_per_annotator()
    assert chosen[5] == 0
    per_annotator = (kept.annotations_per_annotator() + held.annotations_per_annotator())[:5]
    np.testing.assert_array_equal(chosen[:5], len(X) - per_annotator)


def test_another_fit_forgets_the_one_before():
    X, A, _ = make_crowd_problem()
    model = DASCClassifier(base(), n_rounds=1, validation=0.2, guard=False, random_state=0)
    model.fit(X, A)
    assert hasattr(model, "best_round_")
    model.set_params(validation=None).fit(X, A)
    assert not hasattr(model, "best_round_")
    assert len(model.history_) == 2


def test_gold_chooses_the_round_and_patience_ends_it():
    X, A, y = make_crowd_problem()
    options = {"n_rounds": 6, "n_select": 20, "validation": (X, y), "random_state": 0}
    whole = SelfTrainingCrowdClassifier(base(), ConfidenceSelector(), **options).fit(X, A)
    found = whole.history_.column("validation_accuracy")
    assert whole.best_round_ == np.argmax(found)
    assert whole.score(X, y) == found.max()
    short = SelfTrainingCrowdClassifier(base(), ConfidenceSelector(), patience=1, **options)
    seen = short.fit(X, A).history_.column("validation_accuracy")
    np.testing.assert_array_equal(seen, found[: len(seen)])
    stop = next((k for k in range(1, 7) if found[k] <= found[:k].max()), 6)
    assert len(seen) == stop + 1


def test_an_estimators_own_validation_leaves_pseudo_annotations_alone():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = DASCClassifier(base(validation=0.3), n_rounds=1, n_select=30, random_state=0)
    model.set_params(guard=False).fit(X, table)
    kept, held = hold_out(model.augmented_annotations_, 0.3, np.random.default_rng(0))
    assert held.n_annotations == round(0.3 * table.n_annotations)
    assert (held.source == "observed").all()
    assert (kept.source == "pseudo").sum() == model.history_[1]["n_added"]


# -- classes that nobody is predicted to give -----------------------------------------------------


def test_a_class_without_quota_is_named_and_can_be_given_cells():
    X, A, _ = make_crowd_problem()
    A[(A == 2) & (np.arange(len(A))[:, None] % 2 > 0)] = 0
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 3])
    options = {"n_rounds": 1, "n_select": 20, "guard": False}
    message = "missing annotation: 1 .round 1.; 2 .round 1.. cover_classes=True"
    with pytest.warns(UserWarning, match=message):  # 3 is never given.
        model = DASCClassifier(Minimal(), **options).fit(X, table)
    assert [model.history_[1][f"added_{c}"] for c in range(4)] == [20, 0, 0, 0]
    covering = DASCClassifier(Minimal(), cover_classes=True, **options).fit(X, table)
    given = np.bincount(A[A >= 0], minlength=4)
    added = [covering.history_[1][f"added_{c}"] for c in range(4)]
    assert added[1:] == (given * 20 // given.sum())[1:].tolist()
    assert sum(added) == 20


# -- going on -----------------------------------------------------------------------------------


def test_a_warm_start_goes_on_from_the_round_before():
    X, A, _ = make_crowd_problem()
    options = {"n_rounds": 2, "n_select": 20, "guard": False, "random_state": 0}
    model = DASCClassifier(base(), warm_start=True, **options).fit(X, A)
    whole, rounds = model.augmented_annotations_, model.rounds_
    chain = base().fit(X, whole.take(rounds == 0))
    for number in (1, 2):
        chain = base().fit(X, whole.take(rounds <= number), start=chain)
    np.testing.assert_array_equal(model.predict_proba(X), chain.predict_proba(X))
    cold = DASCClassifier(base(), **options).fit(X, A)
    assert np.abs(cold.predict_proba(X) - model.predict_proba(X)).max() > 1e-3


def test_weights_to_start_from_are_for_one_fit():
    X, A, _ = make_crowd_problem()
    plain = base().fit(X, A)
    other = base().fit(X, A, start=base(max_epochs=9).fit(X, A))
    assert not np.array_equal(other.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(other.fit(X, A).predict_proba(X), plain.predict_proba(X))


NETWORKS = [pair for pair in all_classifiers() if issubclass(pair[1], BaseCrowdClassifier)]


REFUSALS = {
    "AggNetClassifier": "begins with the shares of the votes",
    "CommonNoiseEMClassifier": "begins with the shares of the votes",
    "CrowdInGClassifier": "always starts from the weights of its pre-trained network",
    "ICEDClassifier": "begins with majority votes",
    "MBEMClassifier": "makes a new network in each of its stages",
    "MaxMIGClassifier": "begins with counts of the votes",
    "PersonalClassifier": "ends at the same minimum",
    "RaykarClassifier": "begins with the shares of the votes",
}
"""Why a training cannot go on."""


@pytest.mark.parametrize(("name", "cls"), NETWORKS)
def test_a_warm_start_goes_on_or_says_why_not(name, cls):
    """With a learning rate of nothing, a training that goes on ends where it begins."""
    X, A, _ = make_crowd_problem(24)
    estimator = cls()
    own = estimator.get_params()
    still = {"lr": 1e-12, "noise_lr": None, "weight_decay": 0.0, "weight_lr": 1e-12}
    still |= {f"protocol__{name}": value for name, value in still.items()}
    for parameters in (QUICK, FEW_PARTS, still):
        estimator.set_params(**{k: v for k, v in parameters.items() if k in own})
    first = clone(estimator).fit(X, A)
    again = clone(estimator).set_params(random_state=1)
    if name in REFUSALS:
        says = f"start={name} has no effect, because {name} {REFUSALS[name]}"
        with pytest.raises(AnnotationError, match=says):
            again.fit(X, A, start=first)
        return
    assert np.abs(clone(again).fit(X, A).predict_proba(X) - first.predict_proba(X)).max() > 1e-3
    again.fit(X, A, start=first)
    np.testing.assert_allclose(again.predict_proba(X), first.predict_proba(X), atol=1e-5)
    if hasattr(first, "confusion_"):
        np.testing.assert_allclose(again.confusion_, first.confusion_, atol=1e-4)


def test_a_warm_start_needs_weights():
    from sklearn.linear_model import LogisticRegression

    X, A, _ = make_crowd_problem()
    model = DASCClassifier(
        AggregatedClassifier(backbone=LogisticRegression()), n_rounds=1, warm_start=True
    )
    with pytest.raises(AnnotationError, match=r"the backbone LogisticRegression is a scikit-learn"):
        model.fit(X, A)


def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    options = {"n_rounds": 2, "n_select": 20, "random_state": 0}
    whole = DASCClassifier(base(protocol=CrowdLayerProtocol(init_scale=3.0)), **options).fit(X, A)
    model = DASCClassifier(base(protocol=CrowdLayerProtocol(init_scale=3.0)), **options)
    model.set_params(checkpoint=tmp_path / "run.safetensors")
    predict = CrowdLayerClassifier.predict_annotation_proba

    def killed(self, X, annotators=None):
        if (tmp_path / "run-round1.safetensors").exists():
            raise KeyboardInterrupt
        return predict(self, X, annotators)

    monkeypatch.setattr(CrowdLayerClassifier, "predict_annotation_proba", killed)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, A)
    monkeypatch.undo()
    runs = {"guard0-round": 3, "guard1-round": 3, "round": 2}
    names = [f"run-{run}{number}.safetensors" for run, n in runs.items() for number in range(n)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    before = [(tmp_path / name).stat().st_mtime_ns for name in names]
    model.fit(X, A)
    assert [(tmp_path / name).stat().st_mtime_ns for name in names] == before
    np.testing.assert_array_equal(model.predict_proba(X), whole.predict_proba(X))


def test_what_is_saved_is_the_kept_rounds_classifier(tmp_path, trained):
    model, X = trained
    loaded = load(model.save(tmp_path / "model"), device="cpu")
    assert type(loaded) is CrowdLayerClassifier
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.confusion_, model.confusion_)


def test_they_are_found_by_name():
    assert find_classifier("dasc") is DASCClassifier
    assert find_classifier("self-training") is SelfTrainingCrowdClassifier
    assert find_classifier("SelfTrainingCrowdClassifier") is SelfTrainingCrowdClassifier


def test_annotators_who_said_nothing_are_not_imitated():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    model = DASCClassifier(base(), n_rounds=2, guard=False, random_state=0).fit(X, A)
    assert model.augmented_annotations_.annotations_per_annotator()[5] == 0
    assert not model.annotators_seen_[5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_rounds": -1}, "n_rounds"),
        ({"n_select": 0}, "n_select"),
        ({"n_select": True}, "n_select=True is neither"),
        ({"selector": 3}, "selector"),
        ({"guard": 0}, "guard"),
        ({"guard": 1.0}, "guard"),
        ({"guard_folds": 1}, "guard_folds"),
        ({"patience": 2}, "patience=2 stops"),
        ({"validation": (1, 2, 3)}, "validation has 3 parts"),
        ({"checkpoint": "run.safetensors"}, "checkpoint needs an integer random_state"),
        ({"estimator": base(checkpoint="a")}, "estimator has checkpoint='a', a single file"),
        ({"validation": 1e-6}, "leaves one part empty; use a larger"),
        ({"validation": 0.9999}, "leaves one part empty; use a smaller"),
        ({"validation": (np.eye(4), np.zeros(3, int))}, "4 rows of X but gold labels of shape"),
        ({"validation": (np.eye(4), np.full(4, 99))}, "validation's y_gold .*99"),
        ({"validation": (np.eye(4), ["a", "b", "a", "b"])}, "validation's y_gold"),
        ({"estimator": CrowdLayerClassifier}, "estimator=CrowdLayerClassifier is a class; give"),
        ({"selector": RandomSelector}, "selector=RandomSelector is a class; give"),
    ],
)
def test_wrong_parameters_are_refused(changes, message):
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match=message):
        SelfTrainingCrowdClassifier(**{"estimator": base(), **changes}).fit(X, A)


# -- what else is asked of it --------------------------------------------------------------------


class Minimal(BaseEstimator):
    """A user's own: it names every class with the probability that it has in the table."""

    def __init__(self, broken=False):
        self.broken = broken

    def fit(self, X, table):
        self.table_ = table
        return self

    def predict_annotation_proba(self, X):
        n_annotators, n_classes = self.table_.n_annotators, self.table_.n_classes
        shares = np.bincount(self.table_.label, minlength=n_classes) / self.table_.n_annotations
        return np.full((len(X), n_annotators, n_classes), np.nan if self.broken else shares)


def test_an_estimator_of_ones_own_needs_little():
    X, A, _ = make_crowd_problem()
    model = SelfTrainingCrowdClassifier(Minimal(), RandomSelector(), n_rounds=2, n_select=9)
    with pytest.warns(
        UserWarning, match="without its guard, .* Minimal has no predict; .*guard=False"
    ):
        model.fit(X, A)
    assert model.guard_history_ == []
    model.set_params(guard=False).fit(X, A)
    assert model.history_.column("n_added").tolist() == [0, 9, 9]
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.n_annotators_ == 5
    with pytest.raises(AnnotationError, match="Minimal has no annotation_log_likelihood"):
        clone(model).set_params(validation=0.2).fit(X, A)
    model.set_params(estimator=Minimal(broken=True))
    with pytest.raises(AnnotationError, match="numbers that are not finite"):
        model.fit(X, A)


def test_the_likelihood_is_of_what_was_observed(trained):
    model, X = trained
    augmented = model.augmented_annotations_
    likelihood = model.annotation_log_likelihood
    assert likelihood(X, augmented) == likelihood(X, augmented.observed)


def test_marks_survive_a_file_and_are_not_lost_unseen(tmp_path, trained):
    table = trained[0].augmented_annotations_
    table.to_frame().to_csv(tmp_path / "augmented.csv", index=False)
    again = read_annotations(tmp_path / "augmented.csv")
    assert (again.source == "pseudo").sum() == (table.source == "pseudo").sum() > 0
    with pytest.warns(UserWarning, match="column 'source' marks .* rows as not observed"):
        AnnotationTable.from_frame(table.to_frame())


# -- pseudo-annotations are no annotations of anybody -------------------------------------------


def plain(found):
    """Numbers and lists, whatever holds them."""
    parts = vars(found) if is_dataclass(found) else {"value": found}
    return {name: np.asarray(value).tolist() for name, value in parts.items()}


@pytest.fixture(scope="module")
def augmented():
    X, A, y = make_crowd_problem()
    model = DASCClassifier(base(), n_rounds=2, guard=False, random_state=0)
    return model.fit(X, A).augmented_annotations_, y


@pytest.mark.parametrize(
    "measure",
    [
        agreement.percent_agreement,
        agreement.fleiss_kappa,
        agreement.gwet_ac1,
        agreement.gwet_ac2,
        agreement.krippendorff_alpha,
        agreement.mean_cohen_kappa,
        agreement.cohen_kappa,
        agreement.annotator_agreement,
        agreement.class_agreement,
    ],
)
def test_agreement_is_that_of_the_crowd(measure, augmented):
    table, _ = augmented
    assert (table.source == "pseudo").any()
    np.testing.assert_equal(plain(measure(table)), plain(measure(table.observed)))


def test_gold_scores_of_annotators_are_those_of_the_crowd(augmented, monkeypatch):
    monkeypatch.setitem(FORESEEN, "annotators", 0)  # A forecast takes long, and is not compared.
    table, y = augmented
    posterior = np.eye(3)[y]
    for measure, against in (
        (agreement.common_confusions, y),
        (annotator_reliability, posterior),
    ):
        found, own = measure(table, against), measure(table.observed, against)
        np.testing.assert_equal(plain(found), plain(own))
    gold = table.classes[y]
    assert summarize(table, gold=gold)["gold"] == summarize(table.observed, gold=gold)["gold"]
