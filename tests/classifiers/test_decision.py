"""The parameter ``decision``: from a classifier's probabilities to labels."""

import copy
import csv
import inspect
import re

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AveragedCrowdClassifier,
    CrowdStackingClassifier,
    DawidSkene,
    ICEDClassifier,
    ICEDProtocol,
    MajorityVote,
    NeuCrowdClassifier,
    SelfTrainingCrowdClassifier,
    decide,
    load,
    make_crowd,
)
from manyhands.annotations import AnnotationTable
from manyhands.decision.rules import apply_rule, check_rule
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, ClassCollapseWarning, ModelChoiceWarning
from manyhands.fitting import BaseCrowdClassifier, Watch
from manyhands.fitting.latent import SoftTargets, balancing_weights, class_shares
from manyhands.linear.ridge import SoftRidge
from manyhands.metrics import accuracy, balanced_accuracy, macro_f1, minority_recall
from manyhands.registry import all_classifiers, all_wrappers
from manyhands.sampling.class_balance import make_balance
from tests.building import built

QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}
COSTS = [[0, 1, 2], [8, 0, 1], [9, 3, 0]]
RULES = ["auto", "balanced", COSTS]


class Fixed(ClassifierMixin, BaseEstimator):
    """A second stage that always says the same."""

    def __init__(self, proba=((0.6, 0.4),)):
        self.proba = proba

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.resize(np.asarray(self.proba), (len(X), len(self.classes_)))


def imbalanced(n=600, share=0.08, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    X = rng.normal(size=(n, 3)) + y[:, None]
    table = make_crowd(
        y, n_annotators=8, annotations_per_instance=3, noise="uniform", noise_strength=0.1,
        random_state=seed,
    )  # fmt: skip
    return X, table, y


def as_votes(table):
    """The matrix (n, R) of a table, -1 missing."""
    A = np.full((table.n_instances, table.n_annotators), -1)
    A[table.instance, table.annotator] = table.label
    return A


# -- the rules -------------------------------------------------------------------------------------


def test_the_rules_by_hand():
    proba = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.4, 0.3, 0.3]])
    assert apply_rule(proba, "posterior").tolist() == [0, 0, 0]
    # Divided by the prior: (1.17, .67, 1), (.83, 1, 2), (.67, 1, 3).
    assert apply_rule(proba, "balanced", np.array([0.6, 0.3, 0.1])).tolist() == [0, 2, 2]
    # Expected costs of row 0: .2 * 8 + .1 * 9 = 2.5, .7 + .1 * 3 = 1, .7 * 2 + .2 = 1.6; of row 1:
    # 4.2, .5 + .6 = 1.1, 1 + .3 = 1.3; of row 2: 5.1, .4 + .9 = 1.3, .8 + .3 = 1.1.
    assert apply_rule(proba, COSTS).tolist() == [1, 1, 2]


def test_costs_are_read_true_by_decided():
    """[true, decided], not its transpose: to miss class 1 is dear, to cry wolf is not."""
    proba = np.array([[0.8, 0.2]])
    assert apply_rule(proba, [[0, 1], [5, 0]]).tolist() == [1]
    assert apply_rule(proba, [[0, 5], [1, 0]]).tolist() == [0]


def test_a_class_without_a_share_is_never_decided_for():
    proba = np.array([[0.2, 0.7, 0.1], [0.3, 0.69, 0.01], [0.0, 1.0, 0.0]])
    # The first row: .2 / .8 = .25, .1 / .2 = .5; the second .375, .05; the third has neither, and
    # is of the rarer class, for which there was the least to expect.
    assert apply_rule(proba, "balanced", np.array([0.8, 0.0, 0.2])).tolist() == [2, 0, 2]


def test_posterior_is_the_argmax_to_the_bit():
    """`decide` calls equal what rounding tells apart; the plain rule does not."""
    proba = np.array([[0.5 - 1e-15, 0.5 + 1e-15]])
    assert apply_rule(proba, "posterior").tolist() == [1]
    assert decide(proba).tolist() == [0]


# -- the shares ------------------------------------------------------------------------------------


def test_shares_by_hand():
    targets = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(class_shares(targets), [0.5, 0.5, 0])
    np.testing.assert_allclose(class_shares(7 * targets), [0.5, 0.5, 0])  # whatever their unit
    # A trace of mass on a class that nobody named counts as one instance.
    targets = np.repeat([[1.0, 0.0, 1e-30], [0.0, 1.0, 0.0]], [6, 2], axis=0)
    np.testing.assert_allclose(class_shares(targets), np.array([6, 2, 1]) / 9)


@pytest.mark.parametrize("balance", [None, "resample", "reweight", "focal", "cb_focal"])
def test_shares_are_those_of_the_weighted_targets(balance):
    targets = np.eye(3)[np.repeat([0, 1, 2], [12, 6, 2])]
    targets = np.vstack([targets, np.zeros(3)])
    soft = SoftTargets(make_balance(balance), torch.device("cpu"))
    soft.set(targets, np.random.default_rng(0))
    weights = balancing_weights(make_balance(balance), targets, np.random.default_rng(0))
    mass = (targets if weights is None else targets * weights).sum(axis=0)
    np.testing.assert_allclose(soft.shares, mass / mass.sum(), rtol=1e-6)
    if balance in ("resample", "reweight"):
        np.testing.assert_allclose(soft.shares, 1 / 3, rtol=1e-6)
    if balance in (None, "focal"):
        np.testing.assert_allclose(soft.shares, [0.6, 0.3, 0.1], rtol=1e-6)
    again = SoftTargets(make_balance(balance), torch.device("cpu"))
    again.load_state_dict(soft.state_dict())  # as a resumed training does
    np.testing.assert_array_equal(again.shares, soft.shares)


def test_smoothed_targets_are_balanced_by_what_was_given():
    given = np.eye(3)[[0] * 6 + [1] * 2]  # Nobody gave class 2.
    smoothed = 0.7 * given + 0.1

    def share_of_class_1(**by):
        soft = SoftTargets(make_balance("resample"), torch.device("cpu"))
        soft.set(smoothed, np.random.default_rng(0), **by)
        return float(soft.weighted[6:].sum() / soft.weighted.sum())

    assert share_of_class_1(balanced_by=given) == pytest.approx(0.5, abs=1e-6)
    assert share_of_class_1() != pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("targets", ["soft", "hard"])
@pytest.mark.parametrize("backbone", [None, LogisticRegression()])
def test_class_prior_of_a_classifier(backbone, targets):
    X, A, _ = make_crowd_problem()
    A[:5] = -1
    model = built(AggregatedClassifier, backbone=backbone, targets=targets, **QUICK).fit(X, A)
    votes = MajorityVote().fit(A)
    expected = votes.posterior_[5:]
    if targets == "hard":
        expected = np.eye(3)[votes.labels_[5:]]
    np.testing.assert_allclose(model.class_prior_, expected.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("backbone", [None, LogisticRegression()])
@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_class_prior_has_the_weights_of_class_balance(backbone, targets):
    X, table, _ = imbalanced()
    model = built(
        AggregatedClassifier, backbone=backbone, targets=targets, class_balance="reweight", **QUICK
    )
    model.fit(X, table)
    np.testing.assert_allclose(model.class_prior_, 0.5, rtol=1e-5)
    # So nothing is left to correct: the rules agree, but for what lies on the very border.
    plain = model.predict(X)
    assert (model.set_params(decision="balanced").predict(X) == plain).mean() > 0.995


def test_class_prior_and_decisions_permute_with_the_classes():
    X, table, _ = imbalanced()
    A = as_votes(table)
    flipped = np.where(A < 0, -1, 1 - A)
    for rule, other in (("balanced", "balanced"), ([[0, 1], [9, 0]], [[0, 9], [1, 0]])):
        quick = {"backbone": LogisticRegression(tol=1e-8), "random_state": 0}
        plain = AggregatedClassifier(decision=rule, **quick).fit(X, A)
        swapped = AggregatedClassifier(decision=other, **quick).fit(X, flipped)
        np.testing.assert_allclose(plain.class_prior_, swapped.class_prior_[::-1])
        np.testing.assert_array_equal(plain.predict(X), 1 - swapped.predict(X))
        assert 0 < plain.predict(X).mean() < 1


# -- in a classifier -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("backbone", [None, LogisticRegression()])
def test_predict_is_decide_on_the_probabilities(backbone, rule):
    X, A, _ = make_crowd_problem()
    names = np.array(["ape", "bee", "cat", None], dtype=object)
    model = AggregatedClassifier(DawidSkene(), backbone, decision=rule, **QUICK)
    model.fit(X, names[A])
    proba = model.predict_proba(X)
    how = {"class_prior": model.class_prior_} if rule == "balanced" else {}
    expected = decide(proba, "argmax" if rule == "auto" else rule, classes=model.classes_, **how)
    np.testing.assert_array_equal(model.predict(X), expected)
    gold = names[make_crowd_problem()[2]]
    assert model.score(X, gold) == np.mean(expected == gold)


@pytest.mark.parametrize("rule", [*RULES[1:], np.array(COSTS)], ids=["balanced", "list", "array"])
def test_training_and_probabilities_are_the_same(rule):
    X, A, _ = make_crowd_problem()
    plain = AggregatedClassifier(**QUICK).fit(X, A)
    other = clone(AggregatedClassifier(decision=rule, **QUICK)).fit(X, A)
    np.testing.assert_array_equal(plain.predict_proba(X), other.predict_proba(X))
    np.testing.assert_array_equal(plain.history_.column("loss"), other.history_.column("loss"))
    np.testing.assert_array_equal(
        plain.predict(X), plain.classes_[plain.predict_proba(X).argmax(1)]
    )


def test_balanced_finds_more_of_the_minority():
    X, table, y = imbalanced(2000)
    train, test = slice(0, 1000), slice(1000, 2000)
    found = {}
    options = {**QUICK, "max_epochs": 5, "lr": 3e-3}
    for rule in ("posterior", "balanced"):
        model = AggregatedClassifier(decision=rule, **options)
        predicted = model.fit(X[train], as_votes(table)[train]).predict(X[test])
        found[rule] = minority_recall(y[test], predicted), balanced_accuracy(y[test], predicted)
    assert found["balanced"][0] > found["posterior"][0] + 0.2
    assert found["balanced"][1] > found["posterior"][1] + 0.1


def test_a_class_nobody_named_does_not_crash():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 3])
    for backbone in (None, LogisticRegression()):
        for targets in ("soft", "hard"):
            for aggregator in (MajorityVote(), DawidSkene()):
                model = built(
                    AggregatedClassifier,
                    aggregator,
                    backbone,
                    targets=targets,
                    decision="balanced",
                    **QUICK,
                ).fit(X, table)
                assert model.class_prior_[3] <= 1 / len(X)
                assert np.isfinite(model.class_prior_).all()
                assert set(model.predict(X)) <= {0, 1, 2}


def test_a_classifier_whose_probabilities_imply_no_prior_refuses_to_balance():
    X, A, _ = make_crowd_problem()
    refusal = "AggNetClassifier does not estimate them. Decide after predicting: decide"
    with pytest.raises(AnnotationError, match=refusal):
        AggNetClassifier(decision="balanced", **QUICK).fit(X, A)
    model = AggNetClassifier(**QUICK).fit(X, A)
    model.class_prior_ = np.array([1e-6, 1.0, 1.0])  # such as MBEM has one, of another meaning
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))
    with pytest.raises(AnnotationError, match=refusal):
        model.set_params(decision="balanced").predict(X)


def test_every_classifier_and_wrapper_has_the_parameter():
    lacking = {
        name
        for name, cls in [*all_classifiers(), *all_wrappers()]
        if "decision" not in inspect.signature(cls).parameters
    }
    assert lacking == set()


def test_self_training_hands_its_decision_on_and_keeps_it_when_saved(tmp_path):
    X, A, _ = make_crowd_problem()
    inner = AggregatedClassifier(decision=COSTS, **QUICK)
    own = SelfTrainingCrowdClassifier(inner, n_rounds=0, random_state=0).fit(X, A)
    assert own.estimator_.decision == COSTS
    other = own.set_params(decision="balanced").fit(X, A)
    prior = other.estimator_.class_prior_
    expected = decide(other.predict_proba(X), "balanced", class_prior=prior)
    np.testing.assert_array_equal(other.predict(X), expected)
    other.save(tmp_path)
    assert load(tmp_path).decision == "balanced"


def test_self_training_refuses_a_decision_that_its_estimator_cannot_take():
    class Own(BaseEstimator):
        def fit(self, X, y):
            return self

        def predict_annotation_proba(self, X):
            raise NotImplementedError

    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match=r"decision='median' is passed .* Own has no such"):
        SelfTrainingCrowdClassifier(Own(), decision="median").fit(X, A)


def test_an_average_decides_by_its_own_rule_and_not_by_its_members():
    X, A, _ = make_crowd_problem()
    members = [AggregatedClassifier(decision=COSTS, **QUICK).fit(X, A)]
    model = AveragedCrowdClassifier.of_fitted(members)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))
    model.set_params(decision=[[1, 1, 0]] * 3)
    assert set(model.predict(X)) == {2}
    with pytest.raises(AnnotationError, match="AveragedCrowdClassifier does not estimate them"):
        model.set_params(decision="balanced").predict(X)


def test_a_rule_may_be_changed_after_fit():
    X, A, _ = make_crowd_problem()
    model = AggregatedClassifier(backbone=LogisticRegression()).fit(X, A)
    model.set_params(decision="balanced")
    expected = decide(model.predict_proba(X), "balanced", class_prior=model.class_prior_)
    np.testing.assert_array_equal(model.predict(X), expected)
    # Else the column of abstaining would be read as the last class.
    with pytest.raises(AnnotationError, match="abstaining"):
        model.set_params(decision=np.hstack([COSTS, [[0], [0], [0]]])).predict(X)
    with pytest.raises(AnnotationError, match="decision='argmax'"):
        model.set_params(decision="argmax").predict(X)


# -- saved, watched --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [*RULES, np.array(COSTS, dtype=np.float32)])
def test_a_loaded_model_decides_the_same(rule, tmp_path):
    X, A, _ = make_crowd_problem()
    model = AggregatedClassifier(decision=rule, **QUICK).fit(X, A)
    model.save(tmp_path)
    again = load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.class_prior_, model.class_prior_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    plain = model.predict_proba(X).argmax(axis=1)
    assert (isinstance(rule, str) and rule == "auto") or (again.predict(X) != plain).any()
    np.testing.assert_array_equal(again.decision, rule)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_history_has_the_accuracy_of_predict(rule):
    X, A, y = make_crowd_problem()
    model = AggregatedClassifier(decision=rule, validation=(X, y), **QUICK)
    model.fit(X, A, watch=Watch(test=(X[::2], y[::2])))
    kept = model.history_[model.best_epoch_ - 1]
    assert kept["validation_accuracy"] == accuracy(y, model.predict(X))
    assert kept["test_accuracy"] == accuracy(y[::2], model.predict(X[::2]))
    assert kept["test_macro_f1"] == pytest.approx(macro_f1(y[::2], model.predict(X[::2])))


def test_watching_a_rule_leaves_no_trace():
    X, A, y = make_crowd_problem()
    first = AggregatedClassifier(decision="balanced", **QUICK)
    second = copy.deepcopy(first).fit(X, A)
    first.fit(X, A, watch=Watch(test=(X, y)))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


def test_the_command_line_predicts_by_the_rule(tmp_path):
    from manyhands.jobs import predict_file

    X, A, _ = make_crowd_problem()
    np.save(tmp_path / "X.npy", X)
    model = AggregatedClassifier(decision=COSTS, **QUICK).fit(X, A)
    model.save(tmp_path / "model")
    predicted = predict_file(tmp_path / "model", tmp_path / "X.npy")
    found = np.array([row["label"] for row in predicted["labels"]])
    assert found.tolist() == model.predict(np.float32(X)).tolist()
    n = (found != model.predict_proba(X).argmax(axis=1)).sum()
    assert n > 0
    assert f"For {n} items, another class is more probable than the label" in predicted["about"][-1]


def test_a_job_writes_what_predict_decides(tmp_path):
    from manyhands.jobs import run_job

    X, table, _ = imbalanced(300)
    model = AggregatedClassifier(decision="balanced", **QUICK)
    run_job(model, np.float32(X), table, tmp_path / "job")
    with (tmp_path / "job" / "labels.csv").open(newline="") as file:
        found = [int(row["label"]) for row in csv.DictReader(file)]
    kept = load(tmp_path / "job", device="cpu")
    assert found == kept.predict(np.float32(X)).tolist()
    assert found != kept.predict_proba(np.float32(X)).argmax(axis=1).tolist()


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("argmax", "decision='argmax' is unknown; use 'auto', 'posterior', 'median', 'balanced'"),
        ([[0, 1, 1], [1, 0, 1]], r"decision .*\(2, 3\).*abstaining; predict must return a class"),
        (
            [[0, 1], [1, 0], [1, 1]],
            r"decision .*\(3, 2\); .* must have shape \(n_classes, n_classes\)",
        ),
        ([0, 1], r"decision .*\(2,\)"),
        ([], r"decision .*\(0,\)"),
        ([[0, np.inf], [1, 0]], r"decision has the cost inf at \[0, 1\]; .*Adding"),
        ([[0, 1], [-2, 0]], r"decision has the cost -2.0 at \[1, 0\]"),
        ([[0, "dear"], [1, 0]], "decision=.* is not a matrix of numbers"),
        ([[0, 1], [1]], "decision=.* is not a matrix of numbers"),
    ],
)
@pytest.mark.parametrize("backbone", [None, Fixed()])
def test_no_rule_is_refused_before_anything_is_read(backbone, rule, message):
    model = AggregatedClassifier(backbone=backbone, decision=rule, **QUICK)
    with pytest.raises(AnnotationError, match=message):
        model.fit(None, None)


@pytest.mark.parametrize("backbone", [None, Fixed()])
def test_a_matrix_of_another_number_of_classes_is_refused_before_training(backbone):
    X, A, _ = make_crowd_problem()
    model = AggregatedClassifier(backbone=backbone, decision=[[0, 1], [1, 0]], **QUICK)
    with pytest.raises(AnnotationError, match=r"decision .*\(2, 2\); .*must have shape \(3, 3\)"):
        model.fit(X, A)
    assert not hasattr(model, "aggregator_")
    with pytest.raises(AnnotationError, match=r"\(3, 4\).*abstaining"):
        model.set_params(decision=np.ones((3, 4))).fit(X, A)


@pytest.mark.parametrize("rule", [None, 3])
def test_what_is_neither_name_nor_matrix_is_refused(rule):
    with pytest.raises(ValueError, match="'decision' parameter"):
        AggregatedClassifier(decision=rule).fit(*make_crowd_problem()[:2])


def test_a_rule_is_checked_without_knowing_the_classes():
    for rule in (*RULES, np.eye(2)):
        check_rule(rule)
    check_rule(COSTS, 3)


def test_a_second_stage_by_hand():
    """.6 / .75 < .4 / .25: the shares of the votes turn the decision."""
    X, A = np.zeros((4, 1)), np.array([[0], [0], [0], [1]])
    for rule, expected in (("posterior", 0), ("balanced", 1), ([[0, 2], [1, 0]], 0)):
        model = built(AggregatedClassifier, backbone=Fixed(), targets="hard", decision=rule).fit(
            X, A
        )
        np.testing.assert_allclose(model.class_prior_, [0.75, 0.25])
        assert model.predict(X).tolist() == [expected] * 4


# -- the share that "balanced" divides by ----------------------------------------------------------


def rare(n, seed=0):
    """A class of 5 %, and three annotations of each instance, 7 of 10 right in either class."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.05).astype(int)
    X = rng.normal(size=(n, 6)).astype(np.float32) + y[:, None].astype(np.float32)
    annotators = np.argsort(rng.random((n, 30)), axis=1)[:, :3]
    given = np.where(rng.random((n, 3)) < 0.7, y[:, None], 1 - y[:, None])
    table = AnnotationTable.from_arrays(
        np.repeat(np.arange(n), 3), annotators.ravel(), given.ravel()
    )
    return X, table, y


@pytest.fixture(scope="module")
def stack_of_a_rare_class():
    X, table, _ = rare(3000)
    members = [("lr", LogisticRegression())]
    with pytest.warns(ModelChoiceWarning, match="features predict"):
        return CrowdStackingClassifier(members, decision="balanced", random_state=0).fit(X, table)


def test_a_stack_divides_by_the_mean_of_its_own_predictions(stack_of_a_rare_class):
    model = stack_of_a_rare_class
    X, y = rare(3000)[0], rare(4000, seed=1)
    np.testing.assert_allclose(model.prediction_prior_, model.predict_proba(X).mean(axis=0))
    new, gold = y[0], y[2]
    assert balanced_accuracy(gold, model.predict(new)) > 0.7
    proba = model.predict_proba(new)
    by_labels = decide(proba, "balanced", class_prior=model.class_prior_)
    assert balanced_accuracy(gold, by_labels) < 0.55  # So the test can fail.
    expected = decide(proba, "balanced", class_prior=model.prediction_prior_)
    np.testing.assert_array_equal(model.predict(new), expected)


def test_labels_of_a_stack_are_the_most_probable_whatever_the_decision(stack_of_a_rare_class):
    model = stack_of_a_rare_class
    np.testing.assert_array_equal(model.labels_, model.posterior_.argmax(axis=1))
    assert (model.labels_ != model.predict(rare(3000)[0])).any()


def test_every_classifier_with_a_decision_says_whether_it_speaks_for_its_labels():
    for name, cls in all_classifiers():
        found = {*inspect.signature(cls).parameters}
        if "decision" in found and re.search(r"^labels_ :", inspect.getdoc(cls), re.MULTILINE):
            described = cls if "\ndecision :" in inspect.getdoc(cls) else BaseCrowdClassifier
            own = inspect.getdoc(described).split("\ndecision :")[1].split("\nAttributes\n")[0]
            assert "``labels_``" in own, name


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_the_share_is_saved_and_is_that_of_a_sample(tmp_path, monkeypatch):
    X, table, _ = rare(600)
    monkeypatch.setattr("manyhands.classifiers.stacking.rounds.N_SAMPLED", 100)
    model = CrowdStackingClassifier([("ridge", SoftRidge())], random_state=0).fit(X, table)
    mean = model.predict_proba(X).mean(axis=0)
    assert 0 < np.abs(model.prediction_prior_ - mean).max() < 0.1
    model.save(tmp_path)
    again = load(tmp_path).set_params(decision="balanced")
    np.testing.assert_array_equal(again.prediction_prior_, model.prediction_prior_)
    expected = decide(model.predict_proba(X), "balanced", class_prior=model.prediction_prior_)
    np.testing.assert_array_equal(again.predict(X), expected)


@pytest.mark.parametrize("balance", [None, "reweight"])
@pytest.mark.parametrize(
    "model",
    [
        AggregatedClassifier(DawidSkene(), LogisticRegression()),
        built(AggregatedClassifier, DawidSkene(), LogisticRegression(), targets="hard"),
        AggregatedClassifier(DawidSkene(), GaussianNB()),
        AggregatedClassifier(DawidSkene(), max_epochs=5),
        ICEDClassifier(max_epochs=5, protocol=ICEDProtocol(decoder_epochs=2)),
        NeuCrowdClassifier(max_epochs=2, aggregator=DawidSkene()),
    ],
    ids=str,
)
def test_others_are_trained_on_the_shares_that_they_divide_by(model, balance):
    """Weighted as they were in training, their predictions have the shares of the targets."""
    X, table, _ = rare(2000)
    model = clone(model).set_params(class_balance=balance, random_state=0).fit(X, table)
    mean = model.predict_proba(X).mean(axis=0)
    assert np.abs(mean - model.class_prior_).max() < 0.06


def test_the_length_that_pilots_find_does_not_depend_on_the_rule():
    X, A, _ = make_crowd_problem()
    options = QUICK | {"max_epochs": "auto"}
    plain = AggregatedClassifier(**options).fit(X, A)
    costly = AggregatedClassifier(decision=COSTS, **options).fit(X, A)
    assert plain.n_epochs_ == costly.n_epochs_
    np.testing.assert_array_equal(plain.predict_proba(X), costly.predict_proba(X))


@pytest.mark.parametrize("rule", ["auto", "median"])
def test_a_lost_end_of_a_scale_is_explained_by_the_median(rule):
    """The last grade is the most probable one of some, and the median of none."""
    X = np.zeros((6, 1))
    table = AnnotationTable.from_matrix(
        [[0, 1, 2]] * 2 + [[0, 0, 1]] * 2 + [[1, 1, 2]] * 2, classes=[0, 1, 2], ordered=True
    )
    model = AggregatedClassifier(backbone=Fixed([[0.3, 0.3, 0.4]]), decision=rule)
    says = r"training instances: 0 .* 2 .*\. A median is the first or last grade only"
    with pytest.warns(ClassCollapseWarning, match=says):
        model.fit(X, table)
    with pytest.warns(ClassCollapseWarning, match="Try ") as caught:
        model.set_params(decision="posterior").fit(X, table)
    assert "median" not in str(caught[0].message)
