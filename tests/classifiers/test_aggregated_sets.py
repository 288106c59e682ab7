"""`AggregatedClassifier` fitted to sets of labels: a classifier per option, one posterior."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_score

import manyhands
from manyhands import (
    AggregatedClassifier,
    AveragedCrowdClassifier,
    CoNALClassifier,
    CrowdStackingClassifier,
    DawidSkene,
    LabelSetTable,
    MultiLabelDawidSkene,
    MultiLabelMajorityVote,
    SelfTrainingCrowdClassifier,
    SoftProbClassifier,
    decide,
)
from manyhands.exceptions import AnnotationError, ModelChoiceWarning
from manyhands.fitting import Watch
from manyhands.linear import TunedLogisticRegression

OPTIONS = ["anger", "awe", "fear", "joy"]
N, PER_ITEM, PEOPLE = 240, 2, 12


def simulated(seed=0, n=N):
    """Features, which options apply, and the answers of people who overlook much."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    truth = X @ rng.normal(size=(6, len(OPTIONS))) > 1.0
    instance = np.repeat(np.arange(n), PER_ITEM)
    annotator = rng.random((n, PEOPLE)).argsort(axis=1)[:, :PER_ITEM].ravel()
    rate = np.where(truth[instance], 0.7, 0.05)
    ticks = rng.random(rate.shape) < rate
    return X, truth, LabelSetTable.from_arrays(instance, annotator, ticks, options=OPTIONS)


X, TRUTH, ANSWERS = simulated()


def made(**parameters):
    """Return an unfitted classifier that is quick."""
    given = {"aggregator": MultiLabelDawidSkene(), "backbone": LogisticRegression()}
    return AggregatedClassifier(**given | parameters)


@pytest.fixture(scope="module")
def model():
    return made(random_state=0).fit(X, ANSWERS)


def test_an_option_has_the_classifier_of_its_posterior(model):
    posterior = MultiLabelDawidSkene().fit(ANSWERS).posterior_
    proba = model.predict_proba(X)
    assert proba.shape == (N, 4)
    for column, applies in zip(proba.T, posterior.T, strict=True):
        rows, weight = np.repeat(X, 2, axis=0), np.column_stack([1 - applies, applies]).ravel()
        own = LogisticRegression().fit(rows, np.tile([0, 1], N), sample_weight=weight)
        np.testing.assert_allclose(column, own.predict_proba(X)[:, 1], atol=1e-4)
    assert model.options_.tolist() == model.classes_.tolist() == OPTIONS
    assert [each.classes_.tolist() for each in model.estimators_] == [["no", "yes"]] * 4


def test_it_learns(model):
    assert model.score(X, TRUTH) > 0.65
    some = np.where(np.arange(N)[:, None] < 60, TRUTH, np.nan)
    assert model.score(X, some) == pytest.approx(model.score(X[:60], TRUTH[:60]))


def test_predict_decides_as_the_aggregator_does(model):
    proba = model.predict_proba(X)
    assert np.array_equal(model.predict(X), proba > 0.5)
    again = clone(model).set_params(decision="posterior").fit(X, ANSWERS)
    assert np.array_equal(again.predict(X), proba > 0.5)
    with pytest.raises(AnnotationError, match="'most' is unknown"):
        again.set_params(decision="most").predict(X)
    by_f1 = clone(model).set_params(decision="f1").fit(X, ANSWERS)
    assert np.array_equal(by_f1.predict(X), decide(proba, "f1"))
    # The threshold comes from the training instances, so that a prediction is that of its row.
    assert np.array_equal(by_f1.predict(X[:3]), decide(proba, "f1")[:3])
    by_costs = clone(model).set_params(decision=[[0, 1], [4, 0]]).fit(X, ANSWERS)
    assert np.array_equal(by_costs.predict(X), proba >= 0.2)
    balanced = clone(model).set_params(decision="balanced").fit(X, ANSWERS)
    assert np.array_equal(balanced.predict(X), proba >= balanced.class_prior_)


@pytest.mark.parametrize(
    "backbone", ["linear", {"name": "mlp", "hidden": [4]}, TunedLogisticRegression(C=1.0)]
)
def test_saved_and_loaded(tmp_path, backbone):
    fitted = made(backbone=backbone, random_state=0, decision="f1")
    if not isinstance(backbone, TunedLogisticRegression):
        fitted.set_params(max_epochs=3)
    fitted.fit(X, ANSWERS)
    fitted.save(tmp_path / "model")
    again = manyhands.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert again.options_.tolist() == OPTIONS
    assert again.predict_annotation_proba(X[:3]).shape == (3, PEOPLE, 4)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


def test_a_scikit_learn_backbone_is_refused_by_save(model, tmp_path):
    with pytest.raises(AnnotationError, match="TunedLogisticRegression"):
        model.save(tmp_path / "model")


def test_clone_keeps_the_parameters(model):
    again = clone(model)
    assert not hasattr(again, "options_")
    assert again.get_params()["aggregator__share"] == "auto"
    again.set_params(aggregator__share=False)
    assert again.fit(X, ANSWERS).aggregator_.shared_ is False


def test_probability_that_an_annotator_ticks(model):
    proba = model.predict_annotation_proba(X[:5])
    assert proba.shape == (5, PEOPLE, 4)
    found = model.aggregator_
    p = model.predict_proba(X[:5])
    for m, option in enumerate(model.estimators_):
        sensitivity, false = option.confusion_[:, 1, 1], option.confusion_[:, 0, 1]
        expected = p[:, m, None] * sensitivity + (1 - p[:, m, None]) * false
        np.testing.assert_allclose(proba[:, :, m], expected, atol=1e-5)
    assert np.corrcoef(option.confusion_[:, 1, 1], found.sensitivity_[:, -1])[0, 1] > 0.9


def test_gold_cells_count():
    gold = np.full(TRUTH.shape, np.nan)
    gold[:, 1] = TRUTH[:, 1]
    told = made().fit(X, ANSWERS, gold=gold)
    assert np.array_equal(told.aggregator_.posterior_[:, 1], TRUTH[:, 1])
    assert not np.array_equal(told.predict_proba(X)[:, 1], made().fit(X, ANSWERS).predict_proba(X))
    named = {0: ["joy"], 1: {"awe": 1}}
    assert made().fit(X, ANSWERS, gold=named).aggregator_.is_known_.sum() == 5
    with pytest.raises(AnnotationError, match="surprise"):
        made().fit(X, ANSWERS, gold={0: ["surprise"]})
    more = ANSWERS[np.arange(N)].take(ANSWERS.instance < N - 3)
    with pytest.warns(UserWarning, match="3 instances have gold labels but no answers"):
        made().fit(X, more, gold=gold)


def test_weights_of_answers_count():
    weights = np.where(np.arange(ANSWERS.n_annotations) < 240, 1.0, 0.0)
    table = LabelSetTable.from_arrays(
        *(ANSWERS.instance, ANSWERS.annotator, ANSWERS.ticks.toarray()),
        options=OPTIONS, weight=weights, n_instances=N, n_annotators=PEOPLE,
    )  # fmt: skip
    some = made().fit(X, table).predict_proba(X)
    half = made().fit(X, table.take(weights > 0)).predict_proba(X)
    np.testing.assert_allclose(some, half, atol=1e-6)
    assert np.abs(some - made().fit(X, ANSWERS).predict_proba(X)).max() > 0.01


def test_instances_are_matched_by_id():
    names = np.array([f"t{i:03d}" for i in range(N)])
    frame = ANSWERS.to_frame()
    frame["task"] = names[frame["task"]]
    table = LabelSetTable.from_frame(frame, weight="weight", none="empty", options=OPTIONS)
    order = np.random.default_rng(1).permutation(N)
    shuffled = pd.DataFrame(X, index=names, columns=[f"x{i}" for i in range(6)]).iloc[order]
    found = made().fit(shuffled, table)
    np.testing.assert_allclose(
        found.predict_proba(shuffled), made().fit(X, ANSWERS).predict_proba(X)[order], atol=2e-3
    )
    assert found.feature_names_in_[0] == "x0"
    assert found.instances_.tolist() == names[order].tolist()
    with pytest.raises(AnnotationError, match="do not match"):
        made().fit(shuffled.iloc[:9], table)


def test_majority_without_an_aggregator():
    found = AggregatedClassifier(backbone=LogisticRegression()).fit(X, ANSWERS)
    assert isinstance(found.aggregator_, MultiLabelMajorityVote)
    assert found.predict_annotation_proba(X[:2]).shape == (2, PEOPLE, 4)


def test_an_option_that_nobody_ticked():
    with pytest.warns(match="surprise") as said:
        found = made().fit(X, ANSWERS.with_options([*OPTIONS, "surprise"]))
    assert "nothing can be learned about option 'surprise'" in " ".join(
        str(each.message) for each in said
    )
    assert found.estimators_[-1] is None
    assert len(set(found.predict_proba(X)[:, -1])) == 1
    assert not found.predict(X)[:, -1].any()
    nothing = LabelSetTable.from_arrays([0, 1], [0, 0], [[0], [0]], options=["a"])
    with pytest.raises(AnnotationError, match="no option to learn"), pytest.warns():
        made().fit(X[:2], nothing)


def test_options_that_are_never_predicted_are_named():
    rng = np.random.default_rng(3)
    rare = ANSWERS.ticks.toarray()
    rare[:, 0] = rng.random(len(rare)) < 0.1  # Nothing that the features tell.
    table = LabelSetTable.from_arrays(ANSWERS.instance, ANSWERS.annotator, rare, options=OPTIONS)
    with pytest.warns(
        UserWarning,
        match="option 'anger': annotators ticked it, but the classifier predicts it for",
    ):
        made().fit(X, table)


def test_long_fits_say_how_far_they_are(monkeypatch, caplog):
    monkeypatch.setattr("manyhands.inference.set_aggregator.LOG_INTERVAL", 0.0)
    with caplog.at_level("INFO", "manyhands.progress"):
        made().fit(X, ANSWERS)
    lines = [record.getMessage() for record in caplog.records]
    for what in ("each option by itself", "options with what annotators share"):
        assert f"{what}: 3 of 4 fitted" in lines
    assert "classifiers of the options: 1 of 4 fitted" in lines


def test_cross_validation():
    scores = cross_val_score(made(), X, ANSWERS, cv=KFold(3))
    assert scores.shape == (3,)
    assert (scores > 0.4).all()
    with pytest.raises(AnnotationError, match=r"cv=KFold\(5\)"):
        cross_val_score(made(), X, ANSWERS, cv=3)


def test_score_against_answers(model):
    with pytest.warns(ModelChoiceWarning):
        value = model.score(X, ANSWERS)
    ticks, own = ANSWERS.ticks.toarray(), model.predict(X)[ANSWERS.instance]
    assert value == pytest.approx(2 * (ticks & own).sum() / (ticks.sum() + own.sum()))
    with pytest.raises(AnnotationError, match=r"\(240, 4\)"):
        model.score(X, TRUTH[:, 0])


def test_validation_by_gold():
    found = made(backbone="linear", max_epochs=4, validation=(X, TRUTH), random_state=0)
    found.fit(X, ANSWERS)
    assert all(1 <= option.best_epoch_ <= 4 for option in found.estimators_)


def test_checkpoints_are_those_of_options(tmp_path):
    path = tmp_path / "at.safetensors"
    found = made(backbone="linear", max_epochs=2, checkpoint=path, random_state=0).fit(X, ANSWERS)
    assert len(list(tmp_path.glob("at-option*.safetensors"))) == 4
    again = clone(found).fit(X, ANSWERS)
    assert np.array_equal(again.predict_proba(X), found.predict_proba(X))


def test_a_failed_fit_leaves_the_classifier_as_it_was(model):
    before = model.predict_proba(X)
    with pytest.raises(AnnotationError):
        model.fit(X[:3], ANSWERS)
    assert np.array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        (lambda: CrowdStackingClassifier().fit(X, ANSWERS), "CrowdStackingClassifier learns one"),
        (lambda: CoNALClassifier().fit(X, ANSWERS), r"AggregatedClassifier\(MultiLabelDawidSkene"),
        (lambda: SoftProbClassifier().fit(X, ANSWERS), "learns one label per instance"),
        (lambda: AveragedCrowdClassifier().fit(X, ANSWERS), "learns one label per instance"),
        (lambda: SelfTrainingCrowdClassifier().fit(X, ANSWERS), "learns one label per instance"),
        (lambda: made(aggregator=DawidSkene()).fit(X, ANSWERS), "infers single labels"),
        (lambda: made().fit(X, ANSWERS.option("joy")), "not a LabelSetTable"),
        (lambda: made().fit(ANSWERS, X), "X is a LabelSetTable"),
        (lambda: made(decision="median").fit(X, ANSWERS), "options have no order"),
        (lambda: made(decision="f2").fit(X, ANSWERS), "'f2' is unknown"),
        (lambda: made(decision=np.eye(3)).fit(X, ANSWERS), r"\(2, 2\)"),
        (lambda: made(decision=[[1, 0], [0, 1]]).fit(X, ANSWERS), "cost more than a wrong one"),
        (lambda: made().fit(X, ANSWERS, watch=Watch()), "watch= is for single labels"),
        (
            lambda: made(aggregator=None, decision="f1").fit(X, ANSWERS.option("joy")),
            "is for sets of labels",
        ),
        (
            lambda: made(aggregator=None).fit(X, ANSWERS.option("joy"), gold=TRUTH[:, 0]),
            "gold= of AggregatedClassifier is for sets",
        ),
        (lambda: made(backbone="linear", validation=(X, TRUTH[:, 0])).fit(X, ANSWERS), "column"),
    ],
)
def test_what_is_refused(fit, said):
    with pytest.raises(AnnotationError, match=said):
        fit()


def test_what_a_fit_to_sets_does_not_do(model):
    for name in ("predict_observed_proba", "annotation_log_likelihood"):
        with pytest.raises(AnnotationError, match=f"{name} is for single labels"):
            getattr(model, name)(X, ANSWERS)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match=r"changes with every answer.*with_added.*fit it anew"):
        model.partial_fit(X, ANSWERS)
    with pytest.raises(AttributeError, match="fit it anew"):
        type(model).partial_fit(model, X, ANSWERS)
    assert not hasattr(made(), "partial_fit")
    assert hasattr(AggregatedClassifier(), "partial_fit")
    assert not hasattr(model, "transform")
