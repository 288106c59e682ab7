import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

from evidence.data import make_low_quality_cifar10h
from manyhands import (
    AnnotationTable,
    CrowdInGClassifier,
    CrowdInGProtocol,
    CrowdLayerClassifier,
    DASCClassifier,
    DoctorNetClassifier,
    TraceRegClassifier,
    load,
)
from manyhands.classifiers.crowding.log import LoggedCells
from manyhands.classifiers.crowding.phases import ADVERSARIAL, DISCRIMINATOR, GENERATOR, Watchdog
from manyhands.datasets import (
    load_colposcopy,
    load_hotel,
    load_labelme,
    load_music,
    load_product,
    load_reports,
    load_sentiment,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, DivergenceError
from manyhands.fitting import with_protocol
from manyhands.fitting.callbacks import CROWD_PSEUDO_ANNOTATIONS
from manyhands.training import Checkpoint, hold_out
from tests.building import built

GAN = {
    "generator": "crowd_layer", "information_weight": 0, "selection": "random",
    "two_steps": False, "generative_steps": 1, "mu": "mean", "lca": False,
}  # fmt: skip
QUICK = {
    "max_epochs": 2, "batch_size": 16, "discriminator_steps": 2, "generative_steps": 2,
    "discriminator_epochs": 1, "random_state": 0, "device": "cpu",
}  # fmt: skip
# For what does not depend on how long anything learns.
LEAST = QUICK | {"max_epochs": 1, "mu": 0.0}


# -- the classifier -----------------------------------------------------------------------------


def test_a_crowd_layer_generator_begins_as_the_starts():
    X, A, _ = make_crowd_problem(24)
    rates = {"generator_lr": 0.0, "classifier_lr": 0.0}
    model = built(CrowdInGClassifier, **QUICK | GAN | rates).fit(X, A)
    found, expected = (m.predict_annotation_proba(X) for m in (model, model.pretrainer_))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "generator" not in {row["stage"] for row in model.history_}
    likelihood = {"validation": 0.2, "monitor": "likelihood"}
    watched = built(CrowdInGClassifier, **LEAST | GAN | likelihood).fit(X, A)
    assert np.isfinite(watched.history_.column("validation_nll")[-1])


@pytest.mark.parametrize(
    "pretrainer",
    [CrowdLayerClassifier(connection="VW", max_epochs=1), TraceRegClassifier(max_epochs=1)],
)
def test_a_crowd_layer_generator_needs_a_crowd_layer(pretrainer):
    X, A, _ = make_crowd_problem(24)
    with pytest.raises(AnnotationError, match="generator='crowd_layer' starts from"):
        built(CrowdInGClassifier, **QUICK | GAN, pretrainer=pretrainer).fit(X, A)


def test_images_are_embedded_by_the_start(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3, 8, 8)).astype(np.float32)
    A = rng.integers(-1, 3, size=(30, 4))
    model = built(CrowdInGClassifier, "cnn", **LEAST).fit(X, A)
    x = torch.from_numpy(X[:5])
    embedded = torch.from_numpy(model.pretrainer_.transform(X[:5]))
    torch.testing.assert_close(model.module_.classify(x)[0], embedded, rtol=1e-4, atol=1e-5)
    again = load(model.save(tmp_path / "m"))
    np.testing.assert_allclose(
        again.predict_annotation_proba(X), model.predict_annotation_proba(X), atol=1e-6
    )


def test_the_start_is_the_baseline_to_the_bit():
    X, A, _ = make_crowd_problem(24)
    options = {"max_epochs": 2, "batch_size": 16, "random_state": 0, "device": "cpu"}
    start = {"init_scale": CrowdInGProtocol().init_scale}
    baseline = built(CrowdLayerClassifier, **start, **options).fit(X, A)
    still = LEAST | {"classifier_lr": 0.0, "generator_epochs": 1, "adversarial_epochs": 1}
    for pretrainer in (
        None,
        built(CrowdLayerClassifier, **{**start, **options, "random_state": None}),
    ):
        model = built(CrowdInGClassifier, pretrainer=pretrainer, **still | options).fit(X, A)
        np.testing.assert_array_equal(model.predict_proba(X), baseline.predict_proba(X))
        first = model.history_.column("nll", "start")
        np.testing.assert_array_equal(first, baseline.history_.column("nll"))


def test_a_pretrainer_of_its_own():
    X, A, _ = make_crowd_problem()
    given = CrowdLayerClassifier(max_epochs=3, connection="S", backbone="linear")
    model = built(CrowdInGClassifier, pretrainer=given, backbone="linear", **LEAST).fit(X, A)
    assert model.pretrainer_.connection == "S"
    assert len(model.history_.column("loss", "start")) == 3
    assert not hasattr(given, "module_"), "cloned, not fitted in place"


def test_pretrainers_with_another_network_are_refused():
    X, A, _ = make_crowd_problem()
    for pretrainer, message in (
        (CrowdLayerClassifier(backbone="linear"), "pretrainer has backbone='linear'"),
        (CrowdLayerClassifier(scaling=None), "pretrainer has scaling=None"),
        (DoctorNetClassifier(max_epochs=1), "has no network like this one's"),
    ):
        with pytest.raises(AnnotationError, match=message):
            built(CrowdInGClassifier, pretrainer=pretrainer, **QUICK).fit(X, A)


def deterministic_crowd(n=300, seed=0):
    """Annotator 0 is right, 1 says the next class, 2 always says 0, 3 mirrors."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(scale=0.3, size=(n, 3)) + 3 * np.eye(3)[y]
    A = np.column_stack([y, (y + 1) % 3, np.zeros(n, dtype=int), 2 - y])
    seen = np.where(rng.random(A.shape) < 0.5, A, -1)
    seen[:, 0] = y
    return X, A, seen


def test_the_pretrained_generator_reproduces_a_deterministic_crowd():
    X, A, seen = deterministic_crowd()
    still = LEAST | {"generator_lr": 0.0, "classifier_lr": 0.0, "adversarial_epochs": 1}
    learnt = built(CrowdInGClassifier, **still).set_params(
        protocol__generator_epochs=15,
        max_epochs=30,
        lr=1e-2,
        protocol__pretraining_lr=1e-2,
        batch_size=64,
        protocol__init_scale=2.0,  # From 3 on, what most annotators say is taken for the truth.
    )
    model = learnt.fit(X, seen)
    proba = model.predict_annotation_proba(X)
    assert (proba.argmax(axis=2) == A).mean() > 0.99, "also where nobody annotated"
    drawn = model.sample_annotations(X, random_state=1)
    assert (drawn.to_matrix() == A).mean() > 0.95
    expected = [np.eye(3), np.eye(3)[[1, 2, 0]], np.eye(3)[[0, 0, 0]], np.eye(3)[[2, 1, 0]]]
    np.testing.assert_allclose(model.confusion_, expected, atol=0.15)


def test_generated_annotations_are_of_open_cells_and_as_many_as_observed():
    X, A, _ = make_crowd_problem()
    A[:3] = -1
    table = AnnotationTable.from_matrix(A)
    model = built(CrowdInGClassifier, **LEAST).fit(X, table)
    generated = model.generated_annotations_
    assert set(generated.source) == {"generated"}
    given = table.annotations_per_annotator()
    made = generated.annotations_per_annotator()
    assert (made <= given).all()
    assert made.sum() > 0.3 * given.sum()
    both = table.with_added(generated)  # An observed cell would be refused.
    assert both.observed.equals(table)


def test_sampled_annotations_follow_the_predicted_distribution():
    X, A, _ = make_crowd_problem()
    model = built(CrowdInGClassifier, **LEAST | {"generator_epochs": 10}).fit(X, A)
    many = np.repeat(X[:1], 4000, axis=0)
    drawn = model.sample_annotations(many, [3, 1], random_state=0)
    assert drawn.annotators.tolist() == [3, 1]
    assert drawn.n_annotations == 8000
    expected = model.predict_annotation_proba(X[:1], [3, 1])[0]
    found = np.stack([np.bincount(column, minlength=3) / 4000 for column in drawn.to_matrix().T])
    # Noise is at its mean in the prediction.
    np.testing.assert_allclose(found, expected, atol=0.06)
    again = model.sample_annotations(many, [3, 1], random_state=0)
    assert again.equals(drawn)
    with pytest.warns(UserWarning, match="99"):
        new = model.sample_annotations(X, [0, 99], random_state=0)
    assert new.annotators.tolist() == [0, 99]
    assert new.n_annotations == 2 * len(X)


def test_history_has_every_term_and_what_is_measured():
    X, A, _ = make_crowd_problem()
    options = QUICK | {"validation": 0.2, "entropy_threshold": 9.0}
    options |= {"monitor": "likelihood"}
    model = built(CrowdInGClassifier, **options).fit(X, A)
    judged = {"real", "generated", "sparsity", "information"}
    learnt = {"generator_cost", "generator_information", "classifier_cost"}
    terms = {"generator": {"nll"}, "discriminator": judged, "adversarial": judged | learnt}
    measures = {"real_accuracy", "generated_accuracy"}
    for row in model.history_[2:]:
        own = terms[row["stage"]]
        assert sum(row[name] for name in own) == pytest.approx(row["loss"])
        assert {"validation_nll", "validation_classifier_nll"} <= set(row)
        if row["stage"] != "generator":
            assert measures <= set(row)
            assert all(0 <= row[name] <= 1 for name in measures)
        if row["stage"] == "adversarial":
            assert 0 < row["generator_sample_size"] <= 1
            assert {"certain_share", "generator_mu"} <= set(row)
    stages = [row["stage"] for row in model.history_]
    assert list(dict.fromkeys(stages)) == ["start", "generator", "discriminator", "adversarial"]


def test_the_watchdog_hands_back_nothing_worse_than_the_start():
    X, A, y = make_crowd_problem()
    # Rates at which everything that was learnt is soon lost.
    wild = {"generator_lr": 0.3, "classifier_lr": 0.3, "adversarial_epochs": 2}
    options = LEAST | {"max_epochs": 6, "entropy_threshold": 0.02, "lr": 6e-3}
    options |= {"monitor": "likelihood"}
    held = built(CrowdInGClassifier, validation=0.2, **wild, **options).fit(X, A)
    rows = [row for row in held.history_ if row["stage"] != "start"]
    judged = [row["validation_classifier_nll"] for row in rows]
    before = {v for v, row in zip(judged, rows, strict=True) if row["stage"] != "adversarial"}
    assert len(before) == 1, "the classifier is the start until then"
    assert judged[-1] > min(before), "wild enough to be worse"
    assert min(judged) == min(before)
    kept = held.history_.column("validation_nll", "generator").argmin() + 1
    assert held.best_epoch_ == kept, "of the generator's pre-training, the best epoch"
    assert held.best_stage_ == "generator"
    np.testing.assert_array_equal(held.predict_proba(X), held.pretrainer_.predict_proba(X))
    assert held.score(X, y) > 0.8
    # The discriminator that is handed back is a trained one.
    fresh = built(
        CrowdInGClassifier,
        validation=0.2,
        **wild,
        **options,
        protocol=CrowdInGProtocol(discriminator_lr=0.0),
    ).fit(X, A)
    kept = held.module_.discriminator.matrices, fresh.module_.discriminator.matrices
    assert not torch.equal(*kept)


def test_the_watchdog_judges_the_classifier_by_counted_confusions():
    X, A, _ = make_crowd_problem()
    options = LEAST | {"classifier_lr": 1e-2, "entropy_threshold": 0.3, "adversarial_epochs": 3}
    table = AnnotationTable.from_matrix(A)
    seed = int(check_random_state(0).randint(np.iinfo(np.int32).max))
    learnt, held = hold_out(table, 0.2, np.random.default_rng(seed))
    model = built(
        CrowdInGClassifier,
        validation=0.2,
        **options,
        protocol=CrowdInGProtocol(monitor="likelihood"),
    ).fit(X, table)
    judged = model.history_.column("validation_classifier_nll")
    proba, (R, C) = model.pretrainer_.predict_proba(X), (A.shape[1], 3)
    counts = np.zeros((R, C, C))
    for n, r, y in zip(learnt.instance, learnt.annotator, learnt.label, strict=True):
        counts[r, :, y] += proba[n]
    pooled = counts.sum(axis=0) + 1 / C
    counts += CROWD_PSEUDO_ANNOTATIONS * pooled / pooled.sum(axis=1, keepdims=True)
    confusion = counts / counts.sum(axis=2, keepdims=True)
    by_hand = [
        -math.log(proba[n] @ confusion[r, :, y])
        for n, r, y in zip(held.instance, held.annotator, held.label, strict=True)
    ]
    before = model.history_.column("validation_classifier_nll", "generator")
    assert before == pytest.approx(np.mean(by_hand), rel=1e-4)
    adversarial = model.history_.column("validation_classifier_nll", "adversarial")
    assert len(np.unique(adversarial)) == 3
    expected = "adversarial" if adversarial.min() < before[0] else "generator"
    assert model.best_stage_ == expected
    if expected == "adversarial":
        assert model.best_epoch_ == adversarial.argmin() + 1
    assert np.nanmin(judged) <= before[0]


def test_gold_validation_takes_the_last_generator():
    X, A, y = make_crowd_problem(24)
    still = {"generator_lr": 0.0, "classifier_lr": 0.0, "adversarial_epochs": 1}
    options = LEAST | {"max_epochs": 6, "discriminator_epochs": 3} | still
    plain = built(CrowdInGClassifier, **options).fit(X, A)
    gold = built(CrowdInGClassifier, validation=(X, y), patience=1, **options).fit(X, A)
    a, b = plain.history_, gold.history_
    for stage in ("generator", "discriminator"):
        np.testing.assert_array_equal(a.column("loss", stage), b.column("loss", stage))
    assert torch.equal(plain.module_.generator.last.weight, gold.module_.generator.last.weight)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"validation": 0.2, "logging_policy": "epoch", "annotators_per_instance": 2},
        {"validation": 0.2, "monitor": "likelihood"},
        {"two_steps": False, "class_balance": "resample", "lca_form": "row"},
    ],
)
@pytest.mark.parametrize("killed_in", [("generator", 1), ("discriminator", 2), ("adversarial", 1)])
def test_resume_ends_in_the_same_weights(options, killed_in, tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    X, A, _ = make_crowd_problem()
    parameters = QUICK | {"discriminator_epochs": 2} | options
    file = tmp_path / "run.safetensors"
    whole = built(CrowdInGClassifier, **parameters).fit(X, A)
    written = Checkpoint.on_epoch_end

    def die(self, number, row):
        written(self, number, row)
        if (row["stage"], row["epoch"]) == killed_in:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", die)
        with pytest.raises(Killed):
            built(CrowdInGClassifier, checkpoint=file, **parameters).fit(X, A)
    resumed = built(CrowdInGClassifier, checkpoint=file, **parameters).fit(X, A)
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name
    assert whole.generated_annotations_.equals(resumed.generated_annotations_)
    lasting = [{k: v for k, v in row.items() if k != "seconds"} for row in whole.history_]
    assert lasting == [{k: v for k, v in r.items() if k != "seconds"} for r in resumed.history_]


def test_saved_with_its_pretrainer_and_features(tmp_path):
    X, A, _ = make_crowd_problem()
    given = CrowdLayerClassifier(max_epochs=2, connection="VW")
    model = built(
        CrowdInGClassifier,
        pretrainer=given,
        annotator_features=np.random.default_rng(0).normal(size=(5, 3)),
        **LEAST,
    ).fit(X, A)
    loaded = load(model.save(tmp_path), device="cpu")
    np.testing.assert_array_equal(
        loaded.predict_annotation_proba(X), model.predict_annotation_proba(X)
    )
    assert loaded.pretrainer.get_params() == clone(given).get_params()
    first = loaded.sample_annotations(X, random_state=0)
    assert first.equals(model.sample_annotations(X, random_state=0))


def test_annotators_may_come_in_any_order():
    X, A, _ = make_crowd_problem()
    order = np.array([2, 0, 4, 1, 3])
    still = {"classifier_lr": 0.0, "generator_lr": 0.0, "adversarial_epochs": 1}
    options = LEAST | {"generator_epochs": 5} | still
    first = built(CrowdInGClassifier, annotator_features=np.eye(5), **options).fit(X, A)
    second = built(CrowdInGClassifier, annotator_features=np.eye(5)[order], **options).fit(
        X, A[:, order]
    )
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), atol=1e-5)
    # Noise is drawn in the order of the annotations.
    np.testing.assert_allclose(first.confusion_[order], second.confusion_, atol=0.02)


@pytest.mark.parametrize(
    "options",
    [
        {"generator_inputs": "annotator"},
        {"generator_inputs": "instance"},
        {"information_weight": 0, "mu": "search"},
        {"selection": "random"},
        {"adversarial_cost": "saturating", "mu": -0.7},
        {"lca": True, "lca_form": "row", "sparsity_form": "l2"},
        {"annotators_per_instance": 1},
        {"class_balance": "focal", "reset_optimizer": True, "max_epochs": 2},
    ],
)
def test_every_variant_trains(options):
    X, A, _ = make_crowd_problem(16)
    model = built(CrowdInGClassifier, **LEAST | options).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.history_.column("loss")).all()
    assert np.isfinite(model.confusion_).all()


def test_batches_of_one_and_crowds_of_one_train_on():
    X, A, y = make_crowd_problem(n=5)
    for crowd in (A, y):
        options = {"max_epochs": 1, "batch_size": 1, "entropy_threshold": 0.3}
        model = built(CrowdInGClassifier, **QUICK | options)
        assert np.isfinite(model.fit(X, crowd).history_.column("loss")).all()
    # Where every cell is filled there is nothing to generate, but what is there once more.
    assert model.generated_annotations_.n_annotations == 0
    assert model.history_.column("generated_share", "adversarial").min() == 1


@pytest.mark.parametrize("improves", [True, False])
def test_the_watchdog_epoch_by_epoch(improves):
    module = torch.nn.Linear(1, 1)
    dog = Watchdog(module, "validation_nll", higher_is_better=False)

    def run(stage, epoch, generators, classifiers):
        """Epoch that leaves its own number in the weights."""
        if epoch == 1:
            dog.on_stage_begin(stage, 3, 0)
        begun_with = module.weight.item()
        torch.nn.init.constant_(module.weight, 10 * len(stage) + epoch)
        nll = {"validation_nll": generators, "validation_classifier_nll": classifiers}
        dog.on_epoch_end(epoch, {"stage": stage, "epoch": epoch, **nll})
        return begun_with

    for epoch, generators in enumerate((3.0, 1.0, 2.0), 1):
        run(GENERATOR, epoch, generators, 5.0)
    best_generator = 10 * len(GENERATOR) + 2
    assert run(DISCRIMINATOR, 1, 1.0, 5.0) == best_generator
    run(DISCRIMINATOR, 2, 1.0, 5.0)
    # A better generator is no better classifier; nor is what is only better than the generator's.
    run(ADVERSARIAL, 1, 0.5, 5.5)
    run(ADVERSARIAL, 2, 9.0, 4.9 if improves else 5.0)
    run(ADVERSARIAL, 3, 0.5, 4.95 if improves else 6.0)
    dog.restore()
    kept = dog.best["stage"], dog.best["epoch"], module.weight.item()
    if improves:
        assert kept == (ADVERSARIAL, 2, 10 * len(ADVERSARIAL) + 2)
    else:
        assert kept == (GENERATOR, 2, 10 * len(DISCRIMINATOR) + 2)


@pytest.mark.parametrize("ahead", [True, False])
def test_the_watchdog_has_a_guard_where_agreement_judges(ahead):
    module, values = torch.nn.Linear(1, 1), []
    dog = Watchdog(module, "validation_agreement", higher_is_better=True, values=lambda: values[-1])

    def run(stage, epoch, *agreements):
        if epoch == 1:
            dog.on_stage_begin(stage, 3, 0)
        torch.nn.init.constant_(module.weight, 10 * len(stage) + epoch)
        values.append(np.array(agreements))
        mean = values[-1].mean()
        dog.on_epoch_end(epoch, {"stage": stage, "epoch": epoch, "validation_agreement": mean})

    start = 1.0, 0.5, 0.75, 0.5
    run(GENERATOR, 1, *start)
    run(GENERATOR, 2, *start)
    run(DISCRIMINATOR, 1, *start)
    # Differences 1 0 .75 .5 have z = 2.6; 1 -1 .75 -.5 have z = .13.
    run(ADVERSARIAL, 1, *((0.0, 0.5, 0.0, 0.0) if ahead else (0.0, 1.0, 0.0, 1.0)))
    dog.restore()
    kept = dog.kept["stage"], dog.kept["epoch"], module.weight.item()
    if ahead:
        assert kept == (GENERATOR, 2, 10 * len(DISCRIMINATOR) + 1)
    else:
        assert kept == (ADVERSARIAL, 1, 10 * len(ADVERSARIAL) + 1)


def test_annotators_per_instance_reach_the_cells(monkeypatch):
    X, A, _ = make_crowd_problem()
    drawn = []
    of = LoggedCells.of
    monkeypatch.setattr(
        LoggedCells, "of", lambda self, rows: drawn.append(of(self, rows)) or drawn[-1]
    )
    built(CrowdInGClassifier, **LEAST, protocol=CrowdInGProtocol(annotators_per_instance=2)).fit(
        X, A
    )
    assert {len(rows) / len(rows.unique()) for rows, _ in drawn} == {2.0}


# -- what a user ran into -----------------------------------------------------------------------


def test_a_start_keeps_its_checkpoint_beside(tmp_path):
    X, A, _ = make_crowd_problem()
    built(CrowdInGClassifier, **LEAST, checkpoint=tmp_path / "run.ckpt").fit(X, A)
    assert {path.name for path in tmp_path.iterdir()} == {"run.ckpt", "run-start.ckpt"}


def test_annotations_of_no_weight_are_not_generated_over():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    weights = np.where(np.arange(table.n_annotations) % 2, 1.0, 0.0)
    table = replace(table, weights=weights)
    model = built(CrowdInGClassifier, **LEAST, validation=0.2).fit(X, table)
    added = table.with_added(model.generated_annotations_)
    assert added.n_annotations > table.n_annotations


def test_without_an_open_cell_the_observed_ones_are_drawn_again():
    X, _, y = make_crowd_problem(24)
    full = np.stack([y, y, (y + 1) % 3], axis=1)
    found, expected = (
        built(CrowdInGClassifier, **LEAST, protocol=CrowdInGProtocol(contrast=contrast)).fit(
            X, full
        )
        for contrast in ("open", "observed")
    )
    assert found.history_.column("generated_share", "adversarial").min() == 1
    np.testing.assert_array_equal(
        found.predict_annotation_proba(X), expected.predict_annotation_proba(X)
    )
    assert found.generated_annotations_.n_annotations == 0


def test_class_balance_reaches_the_pretrainer():
    X, A, _ = make_crowd_problem(24)
    A = np.where(A == 2, -1, A)
    A[:3, 0] = 2
    start = CrowdLayerClassifier(max_epochs=2, batch_size=16)
    balanced = clone(start).set_params(class_balance="reweight")
    found, expected = (
        built(CrowdInGClassifier, **LEAST, pretrainer=each, class_balance="reweight").fit(X, A)
        for each in (start, balanced)
    )
    np.testing.assert_array_equal(
        found.pretrainer_.predict_proba(X), expected.pretrainer_.predict_proba(X)
    )


@pytest.mark.parametrize(
    ("pretrainer", "message"),
    [
        (CrowdLayerClassifier, "pretrainer=CrowdLayerClassifier is a class; give an object"),
        (LogisticRegression(), "pretrainer=LogisticRegression has no network like this one's"),
        (DASCClassifier(CrowdLayerClassifier()), "pretrainer=DASCClassifier has no network"),
        (DoctorNetClassifier(), "pretrainer=DoctorNetClassifier has no network"),
        (CrowdLayerClassifier(checkpoint="own.ckpt"), "give checkpoint= to CrowdInGClassifier"),
    ],
)
def test_pretrainers_that_cannot_serve_are_refused_before_training(pretrainer, message):
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match=message):
        built(CrowdInGClassifier, **QUICK, pretrainer=pretrainer).fit(X, A)


@pytest.mark.parametrize("backbone", ["mlp", {"name": "mlp"}])
def test_a_network_may_be_named_in_other_words(backbone):
    X, A, _ = make_crowd_problem(16)
    pretrainer = CrowdLayerClassifier(backbone=backbone, max_epochs=1)
    built(CrowdInGClassifier, **LEAST, pretrainer=pretrainer).fit(X, A)


def test_a_protocol_is_the_pretrainers_too():
    model = CrowdInGClassifier(pretrainer=CrowdLayerClassifier(connection="VW"))
    found = with_protocol(model, "dasc_labelme")
    assert (found.scaling, found.pretrainer.scaling) == (None, None)
    assert found.pretrainer.max_epochs == found.max_epochs == 25
    assert found.pretrainer.connection == "VW"


@pytest.mark.parametrize("mu", [math.nan, math.inf])
def test_mu_is_finite(mu):
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match="'mu' parameter"):
        built(CrowdInGClassifier, **QUICK, protocol=CrowdInGProtocol(mu=mu)).fit(X, A)


@pytest.mark.parametrize("batch_size", [8, 24])
def test_divergence_is_named(batch_size):
    X, A, _ = make_crowd_problem(24)
    wild = QUICK | {"classifier_lr": 1e20, "batch_size": batch_size, "entropy_threshold": 0.0}
    with pytest.raises(DivergenceError, match=r"lower generator_lr, classifier_lr|own learning"):
        built(CrowdInGClassifier, **wild).fit(X, A)


def test_features_of_annotators_are_numbers():
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match="annotator_features is not an array of numbers"):
        built(CrowdInGClassifier, **QUICK, annotator_features=[["a"]] * 5).fit(X, A)


@pytest.mark.data
@pytest.mark.parametrize(
    "load_set",
    [load_labelme, load_music, load_sentiment, load_product, load_colposcopy, load_reports,
     load_hotel, make_low_quality_cifar10h],
    ids=lambda load_set: load_set.__name__,
)  # fmt: skip
def test_nothing_becomes_nan_on_real_sets(data_home, load_set):
    data = load_set(data_home=data_home)
    model = CrowdInGClassifier(
        max_epochs=1,
        batch_size=512,
        validation=0.1,
        random_state=0,
        protocol=CrowdInGProtocol(annotators_per_instance=3),
    )
    model.fit(data.X_train, data.annotations)
    for row in model.history_:
        assert all(np.isfinite(value) for value in row.values() if not isinstance(value, str))
    assert np.isfinite(model.confusion_).all()
    assert np.isfinite(model.predict_proba(data.X_train)).all()
