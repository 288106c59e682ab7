"""What is special to three methods, and what the base class promises beyond the contract suite."""

import io
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CoNALClassifier,
    CoNALProtocol,
    CrowdInGClassifier,
    CrowdInGProtocol,
    CrowdLayerClassifier,
    CrowdLayerProtocol,
    DASCClassifier,
    DawidSkene,
    DoctorNetClassifier,
    DoctorNetProtocol,
    MajorityVote,
    SelfTrainingCrowdClassifier,
    TraceRegClassifier,
    load,
    load_demo,
    make_crowd,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import (
    AnnotationError,
    ClassCollapseWarning,
    DivergenceError,
    ModelFolderError,
)
from manyhands.nn import CONNECTIONS
from manyhands.registry import find_classifier
from manyhands.training import progress
from tests.building import built
from tests.rounding import assert_near

QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def demo():
    return load_demo()


# -- CoNAL ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_conal_separates_common_from_individual_noise():
    """On a simulated crowd the learnt common confusion is near the true one."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 3000)
    X = rng.normal(size=(3000, 8)).astype(np.float32) + 2.5 * np.eye(4, 8, dtype=np.float32)[y]
    shift = np.roll(np.eye(4), 1, axis=1)
    common = 0.5 * np.eye(4) + 0.5 * shift
    table = make_crowd(
        y, X=X, n_annotators=12, annotations_per_instance=4.0, noise_strength=0.1,
        common_noise=common, common_proportion=0.5, random_state=0,
    )  # fmt: skip
    model = CoNALClassifier(
        random_state=0,
        max_epochs=20,
        lr=1e-2,
        weight_decay=0.0,
        protocol=CoNALProtocol(mixture="probabilities"),
    ).fit(X, table)
    # The mixture of distributions is the simulator's model: the layer itself is recovered ...
    assert np.abs(model.common_confusion_ - common).max() < 0.1
    # ... and what annotators do on the whole, as counted against the true classes.
    counts = np.zeros((4, 4))
    np.add.at(counts, (y[table.instance], table.label), 1)
    counts /= counts.sum(axis=1, keepdims=True)
    assert np.abs(model.confusion_.mean(axis=0) - counts).max() < 0.06
    assert model.score(X, y) > 0.9


def test_conal_logs_the_separation_term_with_its_sign():
    X, A, _ = make_crowd_problem()
    model = CoNALClassifier(gap_weight=0.5, **QUICK).fit(X, A)
    gaps = model.history_.column("confusion_gap")
    assert gaps[0] <= 0
    assert gaps[-1] < gaps[0], "the layers part, so the term falls"
    none = CoNALClassifier(gap_weight=0.0, **QUICK).fit(X, A)
    np.testing.assert_allclose(none.history_.column("loss"), none.history_.column("nll"))


def test_conal_squared_gap_differs():
    X, A, _ = make_crowd_problem()
    norm = CoNALClassifier(gap_weight=0.5, **QUICK).fit(X, A)
    squared = CoNALClassifier(
        gap_weight=0.5, **QUICK, protocol=CoNALProtocol(squared_gap=True)
    ).fit(X, A)
    assert not np.allclose(norm.common_confusion_, squared.common_confusion_)


def test_conal_common_proportion_is_nan_for_the_silent():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    model = CoNALClassifier(**QUICK).fit(X, A)
    assert np.isnan(model.common_proportion_[5])
    assert ((model.common_proportion_[:5] > 0.26) & (model.common_proportion_[:5] < 0.74)).all()


def test_conal_annotator_features_enter_the_gate():
    X, A, _ = make_crowd_problem()
    features = np.random.default_rng(0).normal(size=(5, 3))
    model = CoNALClassifier(annotator_features=features, **QUICK).fit(X, A)
    assert model.module_.annotator_embedding.in_features == 3
    with pytest.raises(AnnotationError, match=r"annotator_features has shape \(4, 3\)"):
        CoNALClassifier(annotator_features=features[:4], **QUICK).fit(X, A)
    with pytest.raises(AnnotationError, match="annotator_features contains NaN"):
        CoNALClassifier(annotator_features=np.full((5, 1), np.nan), **QUICK).fit(X, A)
    with pytest.raises(AnnotationError, match="annotator_features is not an array of numbers"):
        CoNALClassifier(annotator_features=[["a"]] * 5, **QUICK).fit(X, A)


def test_conal_with_features_survives_saving(tmp_path):
    X, A, _ = make_crowd_problem()
    model = CoNALClassifier(annotator_features=np.eye(5)[:, :3], **QUICK).fit(X, A)
    loaded = load(model.save(tmp_path))
    np.testing.assert_array_equal(
        model.predict_annotation_proba(X), loaded.predict_annotation_proba(X)
    )


def test_resetting_the_optimiser_changes_the_run():
    X, A, _ = make_crowd_problem()
    kept = CoNALClassifier(**QUICK).fit(X, A)
    reset = CoNALClassifier(**QUICK, protocol=CoNALProtocol(reset_optimizer=True)).fit(X, A)
    assert not np.allclose(kept.predict_proba(X), reset.predict_proba(X))


# -- Crowd Layer ------------------------------------------------------------------------------


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_every_connection_learns(connection, demo):
    model = CrowdLayerClassifier(connection=connection, max_epochs=5, lr=2e-2, random_state=0)
    model.fit(demo.X_train, demo.annotations)
    assert model.score(demo.X_test, demo.y_test) > 0.88
    assert model.history_.column("nll")[-1] < model.history_.column("nll")[0]


def test_crowd_layer_knows_a_reliable_annotator_from_an_adversary():
    X, _, y = make_crowd_problem(n=300)
    A = np.column_stack([y, y, (y + 1) % 3])
    model = CrowdLayerClassifier(max_epochs=30, batch_size=32, lr=1e-2, random_state=0).fit(X, A)
    good, bad = model.confusion_[0], model.confusion_[2]
    assert (good.argmax(axis=1) == [0, 1, 2]).all()
    assert (bad.argmax(axis=1) == [1, 2, 0]).all()
    assert model.score(X, y) > 0.95


# -- Aggregated -------------------------------------------------------------------------------


def test_aggregated_trains_on_what_the_aggregator_says(demo):
    model = AggregatedClassifier(DawidSkene(), max_epochs=2, random_state=0)
    model.fit(demo.X_train, demo.annotations)
    alone = DawidSkene().fit(demo.annotations)
    np.testing.assert_array_equal(model.aggregator_.posterior_, alone.posterior_)
    np.testing.assert_array_equal(model.aggregator_.confusion_, alone.confusion_)
    given = model.predict_annotation_proba(demo.X_test[:5])
    expected = np.einsum("nc,rcg->nrg", model.predict_proba(demo.X_test[:5]), model.confusion_)
    np.testing.assert_allclose(given, expected, atol=1e-5)


def test_every_row_gets_one_annotation_more_as_the_crowd_would_give_it():
    """By hand: annotator 0 was right in 2 of 2 of class 0; the crowd in 3 of 4."""
    A = np.array([[0, 0, -1], [0, -1, 1], [1, 1, -1], [1, 1, -1]])
    X = np.random.default_rng(0).normal(size=(4, 2))
    truth = np.array([0, 0, 1, 1])

    class Told(MajorityVote):
        def fit(self, table):
            super().fit(table)
            self.posterior_ = np.eye(2)[truth]
            sure, wrong = np.eye(2), np.array([[0.0, 1.0], [0.5, 0.5]])
            self.confusion_ = np.array([sure, sure, wrong, np.full((2, 2), 0.5)])
            return self

    model = AggregatedClassifier(Told(), max_epochs=1, random_state=0)
    model.fit(X, AnnotationTable.from_matrix(np.hstack([A, np.full((4, 1), -1)])))
    pooled = np.array([[0.75, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(model.pooled_confusion_, pooled, atol=1e-6)
    np.testing.assert_allclose(model.confusion_[0], [[2.75 / 3, 0.25 / 3], [0, 1]], atol=1e-6)
    np.testing.assert_allclose(model.confusion_[1, 0], [1.75 / 2, 0.25 / 2], atol=1e-6)
    # One wrong answer of annotator 2 in class 0, none in class 1; none at all of annotator 3.
    np.testing.assert_allclose(model.confusion_[2], [[0.75 / 2, 1.25 / 2], [0, 1]], atol=1e-6)
    np.testing.assert_allclose(model.confusion_[3], pooled, atol=1e-6)


def test_one_perfect_annotator_leaves_a_plain_classifier(demo):
    """Limiting case: with a crowd of one who is right, one layer per annotator changes nothing."""
    options = {"max_epochs": 15, "lr": 3e-3, "random_state": 0}
    plain = AggregatedClassifier(**options).fit(demo.X_train, demo.y_train)
    for model in (
        CrowdLayerClassifier(**options, protocol=CrowdLayerProtocol(init_scale=5.0)),
        TraceRegClassifier(trace_weight=0.0, **options),
    ):
        model.fit(demo.X_train, demo.y_train)
        same = model.predict(demo.X_test) == plain.predict(demo.X_test)
        assert same.mean() > 0.98
        assert (model.confusion_[0].argmax(axis=1) == np.arange(10)).all()


def test_gold_that_is_missing_is_refused_by_score():
    X, A, gold = make_crowd_problem()
    model = CrowdLayerClassifier(**QUICK).fit(X, A)
    gold[3] = -1
    with pytest.raises(AnnotationError, match=r"no gold label in row 3 \(-1\)"):
        model.score(X, gold)


def test_annotations_of_one_class_can_be_scored():
    X, A, _ = make_crowd_problem()
    model = CrowdLayerClassifier(**QUICK).fit(X, A)
    ones = np.where(A == 1, 1, -1)
    some = (ones >= 0).any(axis=1)
    table = AnnotationTable.from_matrix(ones[some], classes=[0, 1, 2])
    likelihood = model.annotation_log_likelihood(X[some], table)
    assert likelihood == pytest.approx(model.annotation_log_likelihood(X[some], ones[some]))
    assert likelihood < 0
    says_one = np.mean(model.predict(X[some]) == 1)
    assert model.score(X[some], table) == model.score(X[some], ones[some]) == says_one
    # A table that holds one class only, as its vocabulary says, too.
    assert model.score(X[some], AnnotationTable.from_matrix(ones[some], classes=[1])) == says_one


def test_labels_of_one_class_are_told_before_a_scikit_learn_classifier_is():
    X = np.random.default_rng(0).normal(size=(60, 2))
    crowd = np.tile([0, 1, 0], (60, 1))
    model = built(AggregatedClassifier, targets="hard", backbone=LogisticRegression())
    with pytest.raises(AnnotationError, match="all inferred labels are 0"):
        model.fit(X, crowd)


def test_aggregated_leaves_the_given_aggregator_unfitted(demo):
    aggregator = MajorityVote()
    AggregatedClassifier(aggregator, max_epochs=1).fit(demo.X_train, demo.annotations)
    assert not hasattr(aggregator, "posterior_")


def test_hard_targets_equal_training_on_the_labels(demo):
    """Limiting case: hard targets are a plain classifier on the inferred labels."""
    labels = MajorityVote().fit_predict(demo.annotations)
    hard = built(AggregatedClassifier, targets="hard", max_epochs=2, random_state=0)
    plain = AggregatedClassifier(max_epochs=2, random_state=0).fit(demo.X_train, labels)
    np.testing.assert_allclose(
        hard.fit(demo.X_train, demo.annotations).predict_proba(demo.X_test),
        plain.predict_proba(demo.X_test),
    )


@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_a_scikit_learn_classifier_as_second_stage(demo, targets, tmp_path):
    second = LogisticRegression(max_iter=200)
    model = built(AggregatedClassifier, DawidSkene(), second, targets=targets)
    model.fit(demo.X_train[:500], demo.annotations[:500])
    assert not hasattr(second, "coef_")
    assert model.score(demo.X_test, demo.y_test) > 0.85
    np.testing.assert_allclose(model.predict_proba(demo.X_test).sum(axis=1), 1)
    given = model.predict_annotation_proba(demo.X_test[:3], annotators=[2])
    assert given.shape == (3, 1, 10)
    with pytest.raises(AnnotationError, match="scikit-learn"):
        model.save(tmp_path)


def test_hard_second_stage_may_lack_a_class():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 7])
    model = built(AggregatedClassifier, backbone=LogisticRegression(), targets="hard").fit(X, table)
    assert model.predict_proba(X).shape == (len(X), 4)
    assert (model.predict_proba(X)[:, 3] == 0).all()


# -- the base class ---------------------------------------------------------------------------


def test_validation_on_gold_keeps_the_most_accurate_epoch(demo):
    model = CrowdLayerClassifier(
        max_epochs=6, lr=3e-2, random_state=0, validation=(demo.X_valid, demo.y_valid)
    ).fit(demo.X_train, demo.annotations)
    accuracy = model.history_.column("validation_accuracy")
    assert model.best_epoch_ == int(accuracy.argmax()) + 1 < 6, "the last is another"
    assert model.score(demo.X_valid, demo.y_valid) == pytest.approx(accuracy.max())


def test_validation_on_held_out_annotations_keeps_the_likeliest_epoch(demo):
    model = CrowdLayerClassifier(max_epochs=60, random_state=0, validation=0.2, lr=5e-2)
    model.set_params(protocol__monitor="likelihood", protocol__patience=2).fit(
        demo.X_train, demo.annotations
    )
    nll = model.history_.column("validation_nll")
    assert model.best_epoch_ == int(nll.argmin()) + 1
    assert len(nll) == model.best_epoch_ + 2 < 60, "stops after two epochs without improvement"


def test_gold_validation_errors(demo):
    for validation, message in [
        ((demo.X_valid,), "1 parts"),
        ((demo.X_valid, demo.y_valid[:-1]), r"gold labels of shape \(296,\)"),
        ((demo.X_valid, demo.y_valid[:, None]), r"gold labels of shape \(297, 1\)"),
        ((demo.X_valid, np.full(297, 99)), "99"),
        ((demo.X_valid, np.full(297, -1)), "-1"),
        ((demo.X_valid, np.full(297, np.nan)), "missing in row 0"),
    ]:
        with pytest.raises(AnnotationError, match=message):
            CrowdLayerClassifier(validation=validation).fit(demo.X_train, demo.annotations)


@pytest.mark.parametrize("scaling", ["standard", "rms"])
def test_scaling_statistics_are_those_of_the_annotated_rows(scaling):
    X, A, _ = make_crowd_problem()
    X = X * [1, 10, 100, 0] + 5
    A[:8] = -1
    X[:8] = 1e6  # not annotated: must not count
    model = CrowdLayerClassifier(scaling=scaling, **QUICK).fit(X, A)
    scaler, rows = model.module_.classifier.scaler, X[8:]
    if scaling == "rms":
        np.testing.assert_allclose(scaler.scale, np.sqrt((rows**2).mean()), rtol=1e-5)
    else:
        np.testing.assert_allclose(scaler.shift, rows.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(scaler.scale[:3], rows.std(axis=0)[:3], rtol=1e-4)
        assert scaler.scale[3] == 1, "a constant feature is not blown up"


def test_images_are_scaled_by_channel_and_keep_their_shape(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, (40, 3, 6, 6), dtype=np.uint8)
    A = rng.integers(0, 2, (40, 3))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)
            self.head = torch.nn.Linear(4, 2)

        def embed(self, x):
            return self.conv(x).relu().mean(dim=(2, 3))

        def forward(self, x):
            return self.head(self.embed(x))

    model = CoNALClassifier(backbone=lambda shape, n_classes: Net(), **QUICK).fit(X, A)
    channel = X[:, 1].astype(float)
    np.testing.assert_allclose(model.module_.classifier.scaler.shift[1], channel.mean(), rtol=1e-4)
    assert model.transform(X).shape == (40, 4)
    with pytest.raises(AnnotationError, match=r"\(3, 5, 6\)"):
        model.predict(X[:, :, :5])
    folder = model.save(tmp_path)
    with pytest.raises(ModelFolderError, match="backbone"):
        load(folder)
    loaded = load(folder, backbone=lambda shape, n_classes: Net())
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X))


def test_a_backbone_of_the_wrong_width_is_refused():
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match=r"backbone returns shape \(2, 7\)"):
        CrowdLayerClassifier(backbone=torch.nn.Linear(4, 7), **QUICK).fit(X, A)


def test_batch_norm_survives_a_last_batch_of_one():
    X, A, _ = make_crowd_problem(n=33)
    model = CrowdLayerClassifier(
        backbone={"name": "mlp", "batch_norm": True},
        **(QUICK | {"batch_size": 8}),
    ).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_weight_of_two_is_twice_the_annotation_and_zero_is_none():
    """One batch: weights scale the terms of its mean."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    options = QUICK | {"batch_size": 100}
    rows = np.arange(table.n_annotations)
    # Every instance keeps its first annotation, so that both tables have the same instances.
    drop = np.concatenate([[False], np.diff(table.instance) == 0])

    def fit(weight, keep):
        weighted = AnnotationTable.from_arrays(
            table.instance[keep], table.annotator[keep], table.label[keep],
            weight=weight[keep], classes=table.classes, n_instances=48, n_annotators=5,
        )  # fmt: skip
        return CrowdLayerClassifier(**options).fit(X, weighted).predict_proba(X)

    ones = np.ones(len(rows))
    zero = fit(np.where(drop, 0.0, 1.0), rows >= 0)
    np.testing.assert_allclose(zero, fit(ones, ~drop), atol=1e-6)
    assert np.abs(zero - fit(ones, rows >= 0)).max() > 1e-3
    np.testing.assert_allclose(fit(2 * ones, rows >= 0), fit(ones, rows >= 0), atol=1e-6)


def test_grid_search_needs_no_gold(demo):
    """With a table as y, the default score is agreement with the left-out rows' annotations."""
    search = GridSearchCV(
        CrowdLayerClassifier(max_epochs=2, random_state=0), {"lr": [1e-6, 1e-2]}, cv=2
    ).fit(demo.X_train[:400], demo.annotations[:400])
    assert search.best_params_ == {"lr": 1e-2}


@pytest.mark.parametrize("second", [None, LogisticRegression(max_iter=300)])
def test_likelihood_of_annotations_by_hand(second):
    X, A, y = make_crowd_problem()
    model = AggregatedClassifier(DawidSkene(), second, **QUICK).fit(X, A)
    assert model.score(X, y) == np.mean(model.predict(X) == y)
    proba = model.predict_annotation_proba(X)
    rows, columns = np.nonzero(A >= 0)
    expected = np.log(proba[rows, columns, A[rows, columns]]).mean()
    likelihood = model.annotation_log_likelihood
    assert likelihood(X, A) == pytest.approx(expected, rel=1e-5)
    assert likelihood(X, AnnotationTable.from_matrix(A)) == pytest.approx(expected, rel=1e-5)
    with pytest.warns(UserWarning, match=r"5, 6, 7, \.\.\. \(5\) were not seen in fit"):
        wider = likelihood(X, np.hstack([A, A]))
    new = model.predict_proba(X) @ model.pooled_confusion_
    assert wider == pytest.approx((expected + np.log(new[rows, A[rows, columns]]).mean()) / 2)


def test_pipeline(demo):
    model = make_pipeline(StandardScaler(), CrowdLayerClassifier(max_epochs=3, random_state=0))
    assert model.fit(demo.X_train, demo.annotations).predict(demo.X_test).shape == (500,)


def test_string_ids_choose_annotators_by_id():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, annotators=list("vwxyz"))
    model = CrowdLayerClassifier(**QUICK).fit(X, table)
    every = model.predict_annotation_proba(X)
    np.testing.assert_allclose(
        model.predict_annotation_proba(X, ["z", "v"]), every[:, [4, 0]], rtol=1e-5
    )
    np.testing.assert_allclose(
        model.predict_annotation_proba(X, np.array([0, 0, 1, 0, 0], bool)), every[:, [2]], rtol=1e-5
    )


def test_many_annotators_are_predicted_in_blocks(monkeypatch):
    from manyhands.fitting import prediction

    X, A, _ = make_crowd_problem()
    model = CoNALClassifier(**QUICK).fit(X, A)
    whole = model.predict_annotation_proba(X)
    monkeypatch.setattr(prediction, "GRID_ENTRIES", 31)
    np.testing.assert_allclose(model.predict_annotation_proba(X), whole, atol=1e-6)


def test_verbose_shows_progress_on_standard_error(capsys):
    X, A, _ = make_crowd_problem()
    CrowdLayerClassifier(verbose=1, **QUICK).fit(X, A)
    captured = capsys.readouterr()
    assert "CrowdLayer" in captured.err
    assert not captured.out


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_in_a_log_is_lines(monkeypatch, capsys):
    X, A, _ = make_crowd_problem()
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    CrowdLayerClassifier(verbose=1, **QUICK).fit(X, A)
    lines = capsys.readouterr().err.split("\n")
    assert [line[:15] for line in lines] == [f"CrowdLayer: {k}/3" for k in (1, 2, 3)] + [""]
    assert "loss" in lines[0]
    assert "s left" in lines[0]
    assert not {"\r", "\x1b"} & set("".join(lines))
    monkeypatch.setattr(progress, "LOG_INTERVAL", 1000.0)
    CrowdLayerClassifier(verbose=1, **QUICK).fit(X, A)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("CrowdLayer: 3/3")
    with pytest.raises(DivergenceError):  # The last line says how far it came.
        CrowdLayerClassifier(verbose=1, callbacks=[_Fails()], **QUICK).fit(X, A)
    assert capsys.readouterr().err.startswith("CrowdLayer: 2/3")


class _Fails(progress.Callback):
    def on_epoch_begin(self, epoch):
        if epoch == 2:
            raise DivergenceError


def test_progress_on_a_terminal_is_a_bar_if_rich_is_there(monkeypatch):
    X, A, _ = make_crowd_problem()
    for installed in (True, False):
        monkeypatch.setattr(sys, "stderr", Terminal())
        if not installed:
            monkeypatch.setattr(progress, "find_spec", lambda name: None)
        CrowdLayerClassifier(verbose=1, **QUICK).fit(X, A)
        assert ("\u2501" in sys.stderr.getvalue()) is installed
        assert "3/3" in sys.stderr.getvalue()


def test_progress_in_a_notebook_is_one_line_per_stage(monkeypatch, capsys):
    shown = []

    class Handle:
        def __init__(self, data):
            self.line = [data["text/plain"]]

        def update(self, data, raw):
            self.line.append(data["text/plain"])

    def display(data, raw, display_id):
        shown.append(Handle(data))
        return shown[-1]

    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "NOTEBOOK_INTERVAL", 0.0)
    X, A, _ = make_crowd_problem()
    DoctorNetClassifier(
        verbose=1, weighting="learned", **QUICK, protocol=DoctorNetProtocol(weight_epochs=3)
    ).fit(X, A)
    assert [len(each.line) for each in shown] == [3, 3]
    assert shown[0].line[0].startswith("DoctorNet: heads: 1/3")
    assert not capsys.readouterr().err


def test_classifiers_are_found_by_name():
    for name in ("conal", "CoNALClassifier", "co-nal"):
        assert find_classifier(name) is CoNALClassifier
    assert find_classifier("crowd-layer") is CrowdLayerClassifier
    with pytest.raises(
        AnnotationError, match="aggregated, conal, co-teaching, common-noise-em, crowding, "
    ):
        find_classifier("oracle")


def test_a_second_fit_forgets_the_first():
    X, A, _ = make_crowd_problem()
    model = AggregatedClassifier(backbone=LogisticRegression(), **QUICK).fit(X, A)
    model.set_params(backbone=None, validation=0.2).fit(X, A)
    assert not hasattr(model, "estimator_")
    fresh = AggregatedClassifier(validation=0.2, **QUICK).fit(X, A)
    np.testing.assert_array_equal(model.predict_proba(X), fresh.predict_proba(X))
    assert not hasattr(model.set_params(validation=None).fit(X, A), "best_epoch_")


# -- what careless input comes to -------------------------------------------------------------


def test_a_dataset_with_nan_names_the_item():
    X, A, _ = make_crowd_problem()
    broken = torch.tensor(X, dtype=torch.float32)
    broken[3, 0] = float("nan")
    dataset = torch.utils.data.TensorDataset(broken)
    with pytest.raises(AnnotationError, match="item 3 of the Dataset"):
        CrowdLayerClassifier(scaling=None, **QUICK).fit(dataset, A)
    whole = torch.utils.data.TensorDataset(torch.tensor(X, dtype=torch.float32))
    fitted = CrowdLayerClassifier(scaling=None, **QUICK).fit(whole, A)
    with pytest.raises(AnnotationError, match="item 3 of the Dataset"):
        fitted.predict(dataset)


def test_any_memory_layout_is_read():
    X, A, _ = make_crowd_problem()
    X = X.astype(np.float32)
    plain = CrowdLayerClassifier(**QUICK).fit(X, A).predict_proba(X)
    for other in (np.asfortranarray(X), X[::-1][::-1], np.hstack([X, X])[:, :4]):
        np.testing.assert_array_equal(
            CrowdLayerClassifier(**QUICK).fit(other, A).predict_proba(other), plain
        )
    frozen = X.copy()
    frozen.flags.writeable = False
    CrowdLayerClassifier(**QUICK).fit(frozen, A)


def test_a_huge_offset_is_warned_of():
    X, A, _ = make_crowd_problem()
    with pytest.warns(UserWarning, match="subtract a constant"):
        CrowdLayerClassifier(**QUICK).fit(X + 3e6, A)


def test_patience_and_checkpoint_need_what_they_need(tmp_path):
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match="patience=2 stops"):
        built(CrowdLayerClassifier, patience=2, **QUICK).fit(X, A)
    with pytest.raises(AnnotationError, match="integer random_state"):
        CrowdLayerClassifier(checkpoint=tmp_path / "c", max_epochs=1).fit(X, A)
    with pytest.raises(AnnotationError, match="validation is for training a network"):
        AggregatedClassifier(backbone=LogisticRegression(), validation=0.2).fit(X, A)


def test_fits_in_threads_equal_fits_alone():
    from concurrent.futures import ThreadPoolExecutor

    X, A, _ = make_crowd_problem()

    def fit(seed):
        return CoNALClassifier(**(QUICK | {"random_state": seed})).fit(X, A).predict_proba(X)

    before = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(fit, range(4)))
    assert torch.equal(before, torch.get_rng_state())
    for seed in range(4):
        assert_near(together[seed], fit(seed), n=QUICK["max_epochs"] * np.sum(A >= 0))


# -- more of the second stage -----------------------------------------------------------------


def test_seeds_reach_the_aggregator_and_the_second_stage():
    from sklearn.ensemble import RandomForestClassifier

    X, A, _ = make_crowd_problem()
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    for backbone in (None, RandomForestClassifier(5)):
        results = [
            built(AggregatedClassifier,
                MajorityVote(ties="random"), backbone, targets="hard", **QUICK
            ).fit(X, A).predict_proba(X)
            for _ in range(2)
        ]  # fmt: skip
        np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_pipelines_and_texts_as_second_stage():
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.neighbors import KNeighborsClassifier

    _, A, y = make_crowd_problem()
    texts = [f"word{label} and noise{i % 5}" for i, label in enumerate(y)]
    pipeline = make_pipeline(CountVectorizer(), LogisticRegression())
    model = AggregatedClassifier(DawidSkene(), pipeline).fit(texts, A)
    assert model.score(texts, y) > 0.95
    neighbours = AggregatedClassifier(DawidSkene(), KNeighborsClassifier())
    with pytest.raises(AnnotationError, match="targets='hard'"):
        neighbours.fit(np.eye(48), A)
    neighbours.set_params(protocol__targets="hard").fit(np.eye(48), A)


def test_batch_norm_over_one_row_and_odd_datasets_are_refused():
    X, A, _ = make_crowd_problem()
    backbone = {"name": "mlp", "batch_norm": True}
    with pytest.raises(AnnotationError, match="batch_size=1"):
        CrowdLayerClassifier(backbone, **(QUICK | {"batch_size": 1})).fit(X, A)

    class Names(torch.utils.data.Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return str(i)

    with pytest.raises(AnnotationError, match="items of type str"):
        CrowdLayerClassifier(**QUICK).fit(Names(), A)


@pytest.mark.parametrize(
    "make", [list, np.array, pd.Series, lambda texts: pd.DataFrame({"n": 1.0, "text": texts})]
)
def test_texts_are_refused_with_what_to_put_in_front(make):
    _, A, _ = make_crowd_problem()
    texts = make([f"text {i}" for i in range(len(A))])
    for classifier in (CoNALClassifier(), AggregatedClassifier()):
        name = type(classifier).__name__
        with pytest.raises(AnnotationError, match=rf"make_pipeline\(TextEncoder\(\), {name}"):
            classifier.fit(texts, A)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: AggregatedClassifier(DawidSkene), "aggregator=DawidSkene is a class; give an obj"),
        (
            lambda: AggregatedClassifier(backbone=LogisticRegression),
            "LogisticRegression is a class",
        ),
        (lambda: DASCClassifier(CrowdLayerClassifier), "estimator=CrowdLayerClassifier is a class"),
        (
            lambda: CrowdLayerClassifier(nn.Bilinear),
            "backbone=Bilinear was called with",
        ),
    ],
)
def test_a_class_in_the_place_of_an_object_is_named(make, says):
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match=says):
        make().fit(X, A)


def test_a_backbone_that_fails_is_named_with_the_shape_of_an_instance():
    X, A, _ = make_crowd_problem()
    images = np.zeros((len(X), 8, 8, 3), dtype=np.float32)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3))
    with pytest.raises(AnnotationError, match=r"shape \(8, 8, 3\).*X.transpose\(0, 3, 1, 2\)"):
        CrowdLayerClassifier(network, **QUICK).fit(images, A)
    with pytest.raises(AnnotationError, match="backbone fails on instances of shape"):
        CrowdLayerClassifier(nn.Linear(9, 3), **QUICK).fit(X, A)
    CrowdLayerClassifier(network, **QUICK).fit(images.transpose(0, 3, 1, 2), A)


def test_lists_as_labels_are_named():
    X, _, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match="y holds a list"):
        CrowdLayerClassifier(**QUICK).fit(X[:2], [[["a"], ["b"]], [["a"], ["b", "c"]]])


# -- classes that a fit loses ---------------------------------------------------------------------


def as_dataset(X):
    return torch.utils.data.TensorDataset(torch.from_numpy(X).float())


def make_collapsed_class():
    """Class 2 has a single annotation, of an instance whose features say class 0."""
    X, _, y = make_crowd_problem(n=30)
    A = np.where(y[:, None] == 2, -1, np.repeat(y[:, None], 3, axis=1))
    A[y == 2, 0] = 0
    A[0] = [2, 0, 0]
    return X, A


STEADY = {"max_epochs": 10, "lr": 0.01, "batch_size": 16, "random_state": 0, "device": "cpu"}


@pytest.mark.parametrize(
    "form", [np.asarray, np.ndarray.tolist, csr_matrix, as_dataset, pd.DataFrame]
)
def test_a_lost_class_is_named_with_the_mends(form):
    X, A = make_collapsed_class()
    model = CrowdLayerClassifier(**STEADY, protocol=CrowdLayerProtocol(init_scale=1.5))
    with pytest.warns(ClassCollapseWarning) as caught:
        model.fit(form(X), A)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "CrowdLayerClassifier predicts some annotated classes for none of the 30 training "
        "instances: 2 (1 annotation). Try class_balance='reweight', an init_scale above 1.5 in "
        "the protocol, more epochs"
    )


def test_nothing_is_said_where_every_annotated_class_is_predicted():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 3])  # nobody gave class 3
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClassCollapseWarning)
        CrowdLayerClassifier(**STEADY).fit(X, table)
        AggregatedClassifier(backbone=LogisticRegression()).fit(X, table)


def test_a_second_stage_warns_of_a_lost_class_too():
    X, A = make_collapsed_class()
    model = built(AggregatedClassifier, backbone=LogisticRegression(), targets="hard")
    with pytest.warns(
        ClassCollapseWarning, match=r"2 \(1 annotation\)\. Try class_balance='reweight'"
    ):
        model.fit(X, A)


def test_a_fit_in_parts_warns_once():
    X, A = make_collapsed_class()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SelfTrainingCrowdClassifier(CrowdLayerClassifier(**STEADY), n_rounds=2).fit(X, A)
    assert [w.category for w in caught].count(ClassCollapseWarning) == 1


def test_crowding_starts_its_crowd_layer_as_it_is_told():
    X, A, _ = make_crowd_problem()
    quick = {**QUICK, "max_epochs": 1}
    model = built(CrowdInGClassifier, **quick, protocol=CrowdInGProtocol(init_scale=1.5)).fit(X, A)
    start = CrowdLayerClassifier(**quick, protocol=CrowdLayerProtocol(init_scale=1.5)).fit(X, A)
    np.testing.assert_array_equal(model.pretrainer_.confusion_, start.confusion_)
