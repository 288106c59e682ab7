"""Further measures: hand-computed errors, counts of shared mistakes, refusals; and ceilings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from evidence.data import make_conal_synthetic
from evidence.data.sets import Data
from evidence.data.variants import labelled_by_gold
from evidence.measures import (
    accuracy_by_entropy,
    auc,
    by_class,
    class_imbalance,
    common_confusion_error,
    common_confusion_matrices,
    common_mistakes,
    cross_validated,
    crowd_statistics,
    individual_confusion_error,
    individual_confusion_matrices,
    inference,
    recall_by_class,
    start_accuracy,
    stopping_rule,
    warm_up,
    watchdog,
)
from manyhands import (
    CrowdInGClassifier,
    CrowdLayerClassifier,
    ICEDClassifier,
    ICEDProtocol,
    SoftProbClassifier,
    load_demo,
)
from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.metrics import accuracy, macro_f1
from manyhands.training import History
from tests.building import built

COMMON = np.array([[0.5, 0.5], [0.0, 1.0]])
OWN = np.array([[[0.9, 0.1], [0.2, 0.8]], [[1.0, 0.0], [0.0, 1.0]]])


def data(truth=None, y_train=("a", "b", "a")):
    table = AnnotationTable.from_arrays(
        [0, 0, 1, 2, 2], ["x", "y", "x", "x", "z"], ["b", "a", "b", "a", "b"], classes=["a", "b"]
    )
    y = None if y_train is None else np.array(y_train)
    return Data(X_train=np.zeros((3, 1)), annotations=table, y_train=y, truth=truth)


def truth(common=COMMON, from_common=(True, False)):
    return SimpleNamespace(
        confusion=OWN, common_confusion=common, from_common=np.array(from_common)
    )


def test_common_error_by_hand():
    model = SimpleNamespace(common_confusion_=np.array([[0.7, 0.3], [0.1, 0.9]]))
    found = common_confusion_error(model, data(truth()))
    assert found["common_mean_absolute_error"] == pytest.approx((0.2 + 0.2 + 0.1 + 0.1) / 4)
    assert found["common_frobenius_error"] == pytest.approx(np.sqrt(0.04 + 0.04 + 0.01 + 0.01))
    assert found["common_start_error"] == pytest.approx((0.5 + 0.5) / 4)


def test_individual_error_by_hand_is_a_mean_over_annotators():
    learnt = OWN + np.array([[[0.1, -0.1], [0, 0]], [[0, 0], [0, 0]]])
    model = SimpleNamespace(individual_confusion_=learnt, confusion_=np.zeros((2, 2, 2)))
    found = individual_confusion_error(model, data(truth()))
    assert found["individual_mean_absolute_error"] == pytest.approx(0.2 / 8)
    assert found["individual_frobenius_error"] == pytest.approx(np.sqrt(0.02) / 2)
    assert found["individual_start_error"] == pytest.approx(0.6 / 8)


def test_a_model_without_individual_confusions_is_judged_by_its_confusions():
    found = individual_confusion_error(SimpleNamespace(confusion_=OWN), data(truth()))
    assert found["individual_mean_absolute_error"] == 0.0


def test_matrices_are_the_models_and_the_truths():
    model = SimpleNamespace(common_confusion_=COMMON.T, individual_confusion_=OWN[::-1])
    common = common_confusion_matrices(model, data(truth()))
    np.testing.assert_array_equal(common["common_true"], COMMON)
    np.testing.assert_array_equal(common["common_learnt"], COMMON.T)
    own = individual_confusion_matrices(model, data(truth()))
    assert sorted(own) == [f"annotator_{k}_{what}" for k in (1, 2) for what in ("learnt", "true")]
    np.testing.assert_array_equal(own["annotator_2_true"], OWN[1])
    np.testing.assert_array_equal(own["annotator_2_learnt"], OWN[0])


def test_mistakes_by_hand():
    found = common_mistakes(None, data())
    # x and z took an a for b (x once of twice), nobody a b for a.
    np.testing.assert_allclose(found["common_mistakes"], [[2 / 3, 2 / 3], [0.0, 1 / 3]])
    assert {k: v for k, v in found.items() if " as " in k} == {"a as b": pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("measure", "of", "match"),
    [
        (common_confusion_error, data(), "truth"),
        (common_confusion_error, data(truth(common=None)), "common"),
        (common_confusion_error, data(truth(from_common=(False, False))), "common"),
        (individual_confusion_error, data(), "truth"),
        (common_mistakes, data(y_train=None), "y_train"),
        (crowd_statistics, data(y_train=None), "y_train"),
        (recall_by_class, data(), "y_test"),
    ],
)
def test_what_cannot_be_measured_is_refused(measure, of, match):
    model = SimpleNamespace(common_confusion_=COMMON, individual_confusion_=OWN)
    with pytest.raises(AnnotationError, match=match):
        measure(model, of)


def test_models_without_the_matrix_are_named():
    with pytest.raises(AnnotationError, match="SimpleNamespace has no common_confusion_"):
        common_confusion_error(SimpleNamespace(), data(truth()))


def test_the_truth_of_the_simulator_has_no_error():
    made = make_conal_synthetic()
    known = Data(X_train=made.X_train, annotations=made.annotations, truth=made.truth)
    model = SimpleNamespace(
        common_confusion_=made.truth.common_confusion, individual_confusion_=made.truth.confusion
    )
    assert common_confusion_error(model, known)["common_frobenius_error"] == 0.0
    assert individual_confusion_error(model, known)["individual_frobenius_error"] == 0.0


def test_a_ceiling_has_one_annotator_who_is_right():
    source = {"factory": "make_conal_synthetic", "random_state": 1}
    made, ceiling = make_conal_synthetic(random_state=1), labelled_by_gold(source)
    assert ceiling.annotations.shape == (8000, 1)
    table = ceiling.annotations
    np.testing.assert_array_equal(table.classes[table.label], made.y_train[table.instance])
    np.testing.assert_array_equal(ceiling.X_test, made.X_test)
    assert ceiling.truth is None


@pytest.mark.data
def test_ceilings_of_named_classes(data_home):
    ceiling = labelled_by_gold({"name": "music"})
    table = ceiling.annotations
    np.testing.assert_array_equal(table.classes[table.label], ceiling.y_train[table.instance])


def test_crowd_by_hand():
    """x is right in 1 of 3, y in 1 of 1, z in 0 of 1; a is the class of 2 of 3 instances."""
    found = crowd_statistics(None, replace(data(), X_test=np.zeros((2, 1)), y_test=["a", "b"]))
    assert (found["training_instances"], found["test_instances"]) == (3, 2)
    assert (found["annotators"], found["annotations_per_annotator"]) == (3, 5 / 3)
    right = [1 / 3 * 2, 1, 0]
    assert found["annotator_accuracy"] == pytest.approx(np.mean(right))
    assert found["annotator_accuracy_sd"] == pytest.approx(np.std(right))
    ends = [0, 10, 20]  # of the quantiles: least, median, most
    assert found["annotations_at_quantile"][ends].tolist() == [1, 1, 3]
    assert found["share_annotated_at_quantile"][ends] == pytest.approx([1 / 3, 1 / 3, 1])
    assert found["accuracy_at_quantile"][ends] == pytest.approx(sorted(right))
    assert found["gold_class_share"] == pytest.approx([2 / 3, 1 / 3])
    assert found["annotation_class_share"] == pytest.approx([2 / 5, 3 / 5])


def test_a_crowd_is_counted_where_gold_is_known():
    found = crowd_statistics(None, data(y_train=("a", None, "a")))
    assert (found["training_instances"], found["annotators"]) == (2, 3)
    assert found["annotations_per_annotator"] == 4 / 3
    assert found["gold_class_share"] == pytest.approx([1, 0])


def test_recall_by_class_by_hand():
    gold = np.array(["a", "a", "a", "b"])
    model = SimpleNamespace(predict=lambda X: np.array(["a", "b", "a", "a"]))
    found = recall_by_class(model, replace(data(), X_test=np.zeros((4, 1)), y_test=gold))
    assert found == {"recall_of_a": pytest.approx(2 / 3), "recall_of_b": 0}


def test_imbalance_by_hand():
    table = AnnotationTable.from_matrix(np.array([[0, 0], [0, -1], [1, 0], [2, 2]]))
    of = Data(X_train=np.eye(4), annotations=table, y_train=np.array([0, 0, 0, 2]))
    assert class_imbalance(None, of) == {"annotation_imbalance": 4.0, "gold_imbalance": 3.0}
    unknown = replace(of, y_train=np.array([0.0, 0.0, np.nan, 2.0]))
    assert class_imbalance(None, unknown)["gold_imbalance"] == 2.0
    with pytest.raises(AnnotationError, match="y_train is None"):
        class_imbalance(None, Data(X_train=np.eye(4), annotations=table))


class Rounds(BaseEstimator):
    """Self-training whose history is known."""

    def __init__(self, nll=(), validation=None):
        self.nll = nll
        self.validation = validation

    def fit(self, X, y, *, watch=None):
        assert self.validation == 0.1
        accuracy = [0.5, 0.9, 0.7, 0.8]
        self.history_ = History(
            {"validation_nll": v, "test_accuracy": a}
            for v, a in zip(self.nll, accuracy, strict=True)
        )
        self.best_round_ = int(np.argmin(self.nll))
        return self


def test_a_stopping_rule_is_measured_by_hand():
    table = AnnotationTable.from_matrix(np.array([[0, 1], [1, 0]]))
    of = Data(X_train=np.eye(2), annotations=table, X_test=np.eye(2), y_test=np.array([0, 1]))
    model = Rounds((4.0, 2.0, 3.0, 1.0))  # ranks of the likelihood 1 3 2 4, of accuracy 1 4 2 3
    found = stopping_rule(model, of)
    assert found.pop("stopping_rank_correlation") == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert found == {
        "stopping_accuracy": 0.8,
        "stopping_last_accuracy": 0.8,
        "stopping_oracle_accuracy": 0.9,
        "stopping_round": 3.0,
    }
    assert stopping_rule(Rounds((1.0,) * 4), of)["stopping_rank_correlation"] == 0.0
    with pytest.raises(AnnotationError, match="y_test is None"):
        stopping_rule(model, Data(X_train=np.eye(2), annotations=table))


def test_accuracy_by_entropy_by_hand():
    # The surer, the smaller its place; right are the instances 0 to 3 and 7, of classes "b", "a".
    sure = np.array([0.99, 0.97, 0.95, 0.93, 0.91, 0.89, 0.87, 0.85, 0.83, 0.81])
    right = np.array([1, 1, 1, 1, 0, 0, 0, 1, 0, 0], dtype=bool)
    shuffled = np.random.default_rng(0).permutation(10)
    proba = np.stack([sure, 1 - sure], axis=1)[shuffled]
    gold = np.where(right, "b", "a")[shuffled]
    model = SimpleNamespace(classes_=np.array(["b", "a"]), predict_proba=lambda X: X)
    table = AnnotationTable.from_matrix(np.zeros((10, 1), dtype=int))
    found = accuracy_by_entropy(model, Data(X_train=proba, annotations=table, y_train=gold))
    np.testing.assert_allclose(found["accumulated_share"], np.arange(1, 11) / 10)
    expected = [1, 1, 1, 1, 4 / 5, 4 / 6, 4 / 7, 5 / 8, 5 / 9, 5 / 10]
    np.testing.assert_allclose(found["accumulated_accuracy"], expected)
    assert found["certain_half_gain"] == pytest.approx(0.3)


def test_accuracy_by_entropy_is_of_instances_with_a_true_class():
    proba = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    model = SimpleNamespace(classes_=np.array([0, 1]), predict_proba=lambda X: X)
    table = AnnotationTable.from_matrix(np.zeros((3, 1), dtype=int))
    of = Data(X_train=proba, annotations=table, y_train=np.array([np.nan, 1.0, 1.0]))
    # Of two instances the first tenths are the surer one, which is right.
    np.testing.assert_allclose(
        accuracy_by_entropy(model, of)["accumulated_accuracy"], [1] * 7 + [0.5] * 3
    )
    for y_train in (None, np.full(3, np.nan)):
        with pytest.raises(AnnotationError, match="no true class"):
            accuracy_by_entropy(model, replace(of, y_train=y_train))


class Starts(BaseEstimator):
    """Predicts 0 but for so many instances; its start is right of none."""

    def __init__(self, right=0, validation=None):
        self.right = right
        self.validation = validation

    def predict(self, X):
        return np.arange(len(X)) < self.right

    def fit(self, X, y, *, watch=None):
        assert self.validation == 0.1
        self.pretrainer_ = Starts(1)
        self.history_ = History(
            {"stage": stage, "test_accuracy": value}
            for stage, value in (("start", 0.1), ("adversarial", 0.3), ("adversarial", 0.2))
        )
        return self


def test_a_gain_on_the_start_by_hand():
    table = AnnotationTable.from_matrix(np.zeros((4, 1), dtype=int))
    of = Data(X_train=np.eye(4), annotations=table, X_test=np.eye(4), y_test=np.ones(4, dtype=bool))
    model = Starts(3)
    model.pretrainer_ = Starts(1)
    assert start_accuracy(model, of) == {"start_accuracy": 0.25, "gain_on_start": 0.5}
    assert watchdog(model, of) == {
        "watchdog_accuracy": 0.75,
        "watchdog_start_accuracy": 0.25,
        "watchdog_last_accuracy": 0.2,
        # Of the start, .25, and the two adversarial epochs.
        "watchdog_oracle_accuracy": 0.3,
        "watchdog_gain": 0.5,
    }
    for measure in (start_accuracy, watchdog):
        with pytest.raises(AnnotationError, match="Starts has no pretrainer_"):
            measure(Starts(), of)
        with pytest.raises(AnnotationError, match="y_test is None"):
            measure(model, replace(of, y_test=None))


def test_the_start_that_is_measured_is_what_its_row_gives_alone():
    """What Table 1 calls DL-CL is CrowdInG's start, to the bit."""
    demo, quick = load_demo(), {"max_epochs": 1, "random_state": 0, "device": "cpu"}
    demo = replace(demo, X_train=demo.X_train[:200], annotations=demo.annotations[:200])
    model = built(CrowdInGClassifier, **quick).fit(demo.X_train, demo.annotations)
    alone = CrowdLayerClassifier(**quick)
    alone.fit(demo.X_train, demo.annotations)
    found = start_accuracy(model, demo)
    assert found["start_accuracy"] == np.mean(alone.predict(demo.X_test) == demo.y_test)
    kept = watchdog(model, demo)
    assert kept["watchdog_gain"] == kept["watchdog_accuracy"] - kept["watchdog_start_accuracy"]


# -- rare classes -----------------------------------------------------------------------------


def with_parts(y_test, predicted, y_train=("a", "a", "a", "b")):
    """Return a model that predicts so, and data with this test part and training gold."""
    n = 4 if y_train is None else len(y_train)
    given = ["b", "a", "a", "a", "b"]
    table = AnnotationTable.from_arrays(
        [0, 0, 1, 2, 3], ["x", "y", "x", "x", "x"], given, classes=["a", "b"]
    )
    found = Data(
        X_train=np.zeros((n, 1)),
        annotations=table,
        y_train=None if y_train is None else np.array([*y_train], dtype=object),
        X_test=np.zeros((len(y_test), 1)),
        y_test=np.array([*y_test]),
    )
    return SimpleNamespace(predict=lambda X: np.array(predicted)), found


def test_figures_by_class_by_hand():
    # Recalls: a 3/4, b 1/2.
    found = by_class(*with_parts("aaaabb", list("aaabab")))
    assert found["balanced_accuracy"] == pytest.approx((3 / 4 + 1 / 2) / 2)
    # Of 100 a and 100 b: 75 a right and 50 taken for a; 50 b right and 25 taken for b.
    f1 = [2 * 75 / (100 + 125), 2 * 50 / (100 + 75)]
    assert found["balanced_macro_f1"] == pytest.approx(np.mean(f1))
    # Of 300 a and 100 b, as in training: 225 right and 50 more; 50 right and 75 more.
    assert found["natural_accuracy"] == pytest.approx((225 + 50) / 400)
    f1 = [2 * 225 / (300 + 275), 2 * 50 / (100 + 125)]
    assert found["natural_macro_f1"] == pytest.approx(np.mean(f1))
    assert found["minority_recall"] == 1 / 2


def test_figures_by_class_are_the_usual_ones_of_such_a_test_part():
    rng = np.random.default_rng(0)
    gold, train = np.repeat(list("abcd"), [8, 8, 8, 8]), np.repeat(list("abcd"), [40, 24, 8, 16])
    predicted = np.where(rng.random(32) < 0.6, gold, rng.choice(list("abcd"), 32))
    copies = np.repeat(np.arange(32), np.repeat([5, 3, 1, 2], 8))
    model, of = with_parts(gold, predicted, train)
    found = by_class(model, of)
    assert found["balanced_accuracy"] == pytest.approx(accuracy(gold, predicted))
    assert found["balanced_macro_f1"] == pytest.approx(macro_f1(gold, predicted))
    assert found["natural_accuracy"] == pytest.approx(accuracy(gold[copies], predicted[copies]))
    assert found["natural_macro_f1"] == pytest.approx(macro_f1(gold[copies], predicted[copies]))
    right = predicted == gold
    assert found["minority_recall"] == pytest.approx(right[16:].mean())


def test_the_minority_is_that_of_training_not_of_the_test_part():
    # b is frequent here, and rare in training.
    model, of = with_parts("abbb", list("abaa"))
    assert by_class(model, of)["minority_recall"] == pytest.approx(1 / 3)
    # Without gold: in the annotations, two of five are b; natural are the test part's shares.
    found = by_class(model, replace(of, y_train=None))
    assert found["minority_recall"] == pytest.approx(1 / 3)
    assert found["natural_accuracy"] == pytest.approx(accuracy(of.y_test, model.predict(None)))


def test_classes_that_are_only_predicted_or_only_trained_on():
    gold, predicted = list("aabb"), list("aabc")
    model, of = with_parts(gold, predicted, ["a", "a", "b", None])
    found = by_class(model, of)
    assert found["balanced_macro_f1"] == pytest.approx(macro_f1(gold, predicted))
    assert found["natural_accuracy"] == pytest.approx(2 / 3 * 1 + 1 / 3 * 1 / 2)
    with pytest.raises(AnnotationError, match="y_test has no class of y_train"):
        by_class(*with_parts("cc", ["c", "c"], ["a", "a", "b"]))
    with pytest.raises(AnnotationError, match="y_test is None"):
        by_class(model, replace(of, y_test=None))


FIRST = {"stage": "train", "inference_accuracy": 0.7, "inference_minority_recall": 0.6}


def inferring(*history, before=(0, 1, 1, 1), final=(0, 0, 1, 1)):
    def of(codes):
        return np.eye(2)[list(codes)] * 0.6 + 0.2

    return SimpleNamespace(
        classes_=np.array(["a", "b"]),
        observed_posterior_=of(before),
        posterior_=of(final),
        history_=History(history),
    )


def test_inference_by_hand():
    history = (
        {"stage": "warm_up", "inference_accuracy": 0.1, "inference_minority_recall": 0.1},
        FIRST,
        {**FIRST, "inference_accuracy": 0.9},
    )
    _, of = with_parts("ab", ["a", "b"], "aaab")
    found = inference(inferring(*history), of)
    # Votes: a tie that goes to a, a, a, b.
    assert found == {
        "majority_accuracy": 1.0,
        "majority_minority_recall": 1.0,
        "before_accuracy": 0.5,
        "before_minority_recall": 1.0,
        "first_accuracy": 0.7,
        "first_minority_recall": 0.6,
        "final_accuracy": 0.75,
        "final_minority_recall": 1.0,
    }
    # An instance of unknown class does not count.
    found = inference(inferring(FIRST), with_parts("ab", ["a", "b"], ["a", None, "a", "b"])[1])
    assert found["before_accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("model", "y_train", "match"),
    [
        (inferring(FIRST), None, "y_train has no true class"),
        (inferring(FIRST), [None] * 4, "y_train has no true class"),
        (inferring({"stage": "train"}), "aaab", "no inference_accuracy in stage train"),
        (inferring({**FIRST, "stage": "warm_up"}), "aaab", "no inference_accuracy in stage train"),
        (SimpleNamespace(posterior_=np.eye(2)), "aaab", "no observed_posterior_"),
    ],
)
def test_inference_that_cannot_be_measured_is_refused(model, y_train, match):
    with pytest.raises(AnnotationError, match=match):
        inference(model, with_parts("ab", ["a", "b"], y_train)[1])


def test_warm_up_by_hand():
    history = History(
        [
            {"stage": "decoder", "test_accuracy": 0.1, "test_macro_f1": 0.1},
            {"stage": "warm_up", "test_accuracy": 0.2, "test_macro_f1": 0.2},
            {"stage": "warm_up", "test_accuracy": 0.6, "test_macro_f1": 0.5},
            {"stage": "train", "test_accuracy": 0.9, "test_macro_f1": 0.9},
        ]
    )
    # 4, 3 and 2 of four votes agree, on one, two and two instances; one has none.
    votes = [[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 1], [-1] * 4]
    of = Data(X_train=np.zeros((6, 1)), annotations=AnnotationTable.from_matrix(votes))
    model = ICEDClassifier(protocol=ICEDProtocol(warm_up="certainty", warm_up_groups=2))
    model.history_ = history
    found = warm_up(model, of)
    assert (found["warm_up_accuracy"], found["warm_up_macro_f1"]) == (0.6, 0.5)
    assert found["warm_up_share"] == pytest.approx(3 / 6)
    model.set_params(protocol__warm_up="together", protocol__warm_up_groups=2)
    assert warm_up(model, of)["warm_up_share"] == pytest.approx(3 / 6)
    model.set_params(protocol__warm_up_groups=1)
    # An instance alone teaches nothing: there is no warm-up on it.
    assert warm_up(model, of)["warm_up_share"] == 0
    model.set_params(protocol__warm_up="all")
    assert warm_up(model, of)["warm_up_share"] == pytest.approx(5 / 6)
    with pytest.raises(AnnotationError, match="no test_accuracy in stage warm_up"):
        warm_up(SimpleNamespace(history_=History(history[3:])), of)


# -- the area under the curve -----------------------------------------------------------------


def ranked(proba, classes, y_test):
    """Return a model that gives these probabilities, and data with this test part."""
    _, found = with_parts("a", ["a"])
    found = replace(found, X_test=np.zeros((len(y_test), 1)), y_test=np.array([*y_test]))
    model = SimpleNamespace(predict_proba=lambda X: np.array(proba), classes_=np.array(classes))
    return model, found


def test_area_under_the_curve_by_hand():
    b = np.array([0.9, 0.6, 0.4, 0.2])
    # Of the pairs of a b and an a, (.9, .6), (.9, .2) and (.4, .2) are in order, (.4, .6) is not.
    found = auc(*ranked(np.stack([1 - b, b], axis=1), ["a", "b"], "baba"))
    assert found == {"auc": 3 / 4}


def test_area_of_several_classes_is_the_mean_over_those_there_are():
    proba = [[0.8, 0.1, 0.1], [0.5, 0.4, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1]]
    found = auc(*ranked(proba, ["a", "b", "c"], "aabb"))
    # a: .8 and .5 against .6 and .2, three pairs of four in order; b alike; c is not there.
    assert found == {"auc": 3 / 4}


def test_no_area_without_a_test_part_or_of_one_class():
    model, found = ranked([[0.5, 0.5]] * 2, ["a", "b"], "aa")
    with pytest.raises(AnnotationError, match="y_test has one class only, 'a'"):
        auc(model, found)
    with pytest.raises(AnnotationError, match="y_test is None"):
        auc(model, replace(found, y_test=None))


def test_cross_validation_predicts_left_out_annotations():
    labels = np.array(["a", "b"] * 15)
    rows = np.arange(30)
    table = AnnotationTable.from_arrays(rows, ["x"] * 30, labels, classes=["a", "b"])
    told = Data(X_train=(labels == "a")[:, None] - 0.5, annotations=table)
    model = SoftProbClassifier()
    assert cross_validated(model, told) == {"cross_validated_accuracy": 1.0}
    # Features that name the instances alone can be learnt by heart, and say nothing of others.
    by_heart = Data(X_train=np.eye(30), annotations=table)
    fitted = model.fit(by_heart.X_train, table)
    assert np.mean(fitted.predict(by_heart.X_train) == labels) == 1.0
    assert cross_validated(fitted, by_heart)["cross_validated_accuracy"] < 0.7
