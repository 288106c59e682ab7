"""AggNet, and the E- and M-step and the soft targets that it shares with MBEM and Raykar's EM."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AnnotationTable,
    DawidSkene,
    load,
    make_crowd,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.fitting.latent import LatentClasses
from manyhands.fitting.recipe import Recipe
from manyhands.training import Checkpoint
from tests.building import built

QUICK = {"max_epochs": 6, "batch_size": 16, "random_state": 0, "device": "cpu"}


class Counted(AggNetClassifier):
    """Confusion matrices as EM counts them, without the crowd's answer in every row."""

    @property
    def _traits(self):
        return replace(super()._traits, shrinks_confusions=False)


class Constant(torch.nn.Module):
    """A class prior, and nothing of x."""

    def __init__(self, n_classes):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(n_classes))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def e_step_by_loops(table, proba, confusion, floors=(0.0, 0.0)):
    """Posterior and log likelihood of every instance, as the formula reads."""
    posterior, log_likelihood = np.zeros((2, *proba.shape))[0], np.zeros(len(proba))
    for i in range(table.n_instances):
        joint = [p + floors[1] for p in proba[i]]
        for instance, r, given, w in zip(
            table.instance, table.annotator, table.label, table.weight, strict=True
        ):
            if instance == i:
                for c in range(len(joint)):
                    joint[c] *= (confusion[r, c, given] + floors[0]) ** w
        posterior[i] = np.array(joint) / sum(joint)
        log_likelihood[i] = np.log(sum(joint))
    return posterior, log_likelihood


def m_step_by_loops(table, posterior, smoothing=0.0):
    """Confusion matrices, as the formula reads."""
    n_classes = posterior.shape[1]
    confusion = np.full((table.n_annotators, n_classes, n_classes), smoothing)
    for i, r, given, w in zip(
        table.instance, table.annotator, table.label, table.weight, strict=True
    ):
        for c in range(n_classes):
            confusion[r, c, given] += w * posterior[i, c]
    for r in range(table.n_annotators):
        for c in range(n_classes):
            mass = confusion[r, c].sum()
            confusion[r, c] = confusion[r, c] / mass if mass else 1 / n_classes
    return confusion


def some_table(seed=0, weighted=True):
    """20 instances, two of them and one annotator silent, in no order."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation([(i, r) for i in range(18) for r in rng.choice(5, 3, replace=False)])
    return AnnotationTable.from_arrays(
        rows[:, 0], rows[:, 1], rng.integers(0, 3, len(rows)), classes=[0, 1, 2],
        weight=rng.integers(1, 4, len(rows)) / 2 if weighted else None,
        n_instances=20, n_annotators=6,
    )  # fmt: skip


def train_until(monkeypatch, stage, epoch, model, X, A):
    """Fit, and die right after the checkpoint of the given epoch is written."""
    written = Checkpoint.on_epoch_end

    class Killed(Exception):
        pass

    def on_epoch_end(self, number, row):
        written(self, number, row)
        if (row["stage"], row["epoch"]) == (stage, epoch):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", on_epoch_end)
        with pytest.raises(Killed):
            model.fit(X, A)


def assert_same_run(first, second):
    for name, value in first.module_.state_dict().items():
        assert torch.equal(value, second.module_.state_dict()[name]), name
    np.testing.assert_array_equal(first.posterior_, second.posterior_)
    np.testing.assert_array_equal(first.confusion_, second.confusion_)
    without_time = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in model.history_]
        for model in (first, second)
    ]
    assert without_time[0] == without_time[1]


# -- E-step and M-step ------------------------------------------------------------------------


@pytest.mark.parametrize("floors", [(0.0, 0.0), (1e-4, 1e-3), (0.1, 0.2)])
def test_e_step_equals_the_formula_in_loops(floors):
    table, rng = some_table(), np.random.default_rng(1)
    latent = LatentClasses(table, confusion_floor=floors[0], proba_floor=floors[1])
    proba, confusion = rng.dirichlet(np.ones(3), 20), rng.dirichlet(np.ones(3), (6, 3))
    expected = e_step_by_loops(table, proba, confusion, floors)
    np.testing.assert_array_equal(latent.instances, np.arange(18))
    posterior, log_likelihood = latent.posterior(proba[:18], confusion)
    np.testing.assert_allclose(posterior, expected[0][:18], atol=1e-12)
    np.testing.assert_allclose(log_likelihood, expected[1][:18], atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_m_step_equals_the_formula_in_loops(smoothing):
    table, rng = some_table(), np.random.default_rng(1)
    latent = LatentClasses(table, smoothing=smoothing)
    posterior = rng.dirichlet(np.ones(3), 18)
    found = latent.confusion(posterior)
    np.testing.assert_allclose(found, m_step_by_loops(table, posterior, smoothing), atol=1e-12)
    np.testing.assert_allclose(found[5], 1 / 3, err_msg="the silent annotator")


def test_e_step_by_hand():
    """p = (.6, .4); one annotator right in .9, one in .7; they say 0 and 1."""
    latent = LatentClasses(AnnotationTable.from_matrix(np.array([[0, 1]]), classes=[0, 1]))
    confusion = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.7, 0.3], [0.3, 0.7]]])
    posterior, log_likelihood = latent.posterior(np.array([[0.6, 0.4]]), confusion)
    np.testing.assert_allclose(posterior, [[0.162 / 0.19, 0.028 / 0.19]])
    np.testing.assert_allclose(log_likelihood, np.log(0.19))


def test_an_annotation_of_weight_zero_is_none():
    table = AnnotationTable.from_arrays(
        [0, 0, 1], [0, 1, 1], [0, 1, 1], weight=[1.0, 1.0, 0.0], classes=[0, 1]
    )
    latent = LatentClasses(table)
    assert latent.instances.tolist() == [0]
    np.testing.assert_array_equal(latent.spread(np.array([[0.4, 0.6]])), [[0.4, 0.6], [0, 0]])


# -- limiting cases ---------------------------------------------------------------------------


def dawid_skene(iterations):
    return DawidSkene(
        iterations, 0.0, n_subtypes=1, confusion_prior=None, dependence=0, accelerate=False
    )


@pytest.mark.parametrize("iterations", [1, 2, 5, 20])
def test_with_a_constant_classifier_the_updates_are_those_of_dawid_skene(iterations):
    """The prior that the M-step would give a classifier that sees nothing is the mean of q."""
    table = some_table(weighted=False)
    latent = LatentClasses(table)
    posterior = latent.vote_shares()
    for _ in range(iterations):
        confusion, prior = latent.confusion(posterior), posterior.mean(axis=0)
        posterior, _ = latent.posterior(np.tile(prior, (18, 1)), confusion)
    expected = dawid_skene(iterations).fit(table)
    np.testing.assert_allclose(posterior, expected.posterior_[:18], atol=1e-6)
    np.testing.assert_allclose(confusion, expected.confusion_, atol=1e-6)
    np.testing.assert_allclose(prior, expected.class_prior_, atol=1e-6)


def test_a_network_that_sees_nothing_ends_as_dawid_skene(monkeypatch):
    """The same of the estimator: 20 steps of gradient descent on a prior alone are an M-step."""

    def descending(recipe, module):
        return torch.optim.SGD(module.parameters(), lr=4.0)

    monkeypatch.setattr(Recipe, "make_optimizer", descending)
    X, A, y = make_crowd_problem(n=60)
    moved = (y == 2) & (np.arange(60) < 25)
    A[moved] = np.where(A[moved] == 2, 0, A[moved])  # a prior that is not uniform
    n_iterations, epochs = 4, 20
    model = built(
        Counted, Constant(3), em_every=epochs, max_epochs=n_iterations * epochs, smoothing=0.0,
        confusion_floor=0.0, proba_floor=0.0, batch_size=60, random_state=0,
    ).fit(X, A)  # fmt: skip
    expected = dawid_skene(n_iterations).fit(A)
    np.testing.assert_allclose(model.confusion_, expected.confusion_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X)[0], expected.class_prior_, atol=1e-5)
    np.testing.assert_allclose(model.posterior_, expected.posterior_, atol=1e-5)
    assert expected.class_prior_.max() > 0.4


def test_the_first_epoch_is_trained_on_the_vote_shares():
    X, A, _ = make_crowd_problem()
    A[:4] = -1
    for balance in (None, "reweight", "focal"):
        options = QUICK | {"max_epochs": 1, "class_balance": balance}
        first = AggNetClassifier(**options).fit(X, A)
        plain = AggregatedClassifier(**options).fit(X, A)
        np.testing.assert_array_equal(first.predict_proba(X), plain.predict_proba(X))


def test_the_second_epoch_is_trained_on_the_posterior():
    """Its loss, without steps or dropout, is the cross entropy against q computed in loops."""
    X, A, _ = make_crowd_problem()
    options = QUICK | {"max_epochs": 2, "lr": 1e-12, "batch_size": 48, "backbone": "linear"}
    model = built(Counted, **options).fit(X, A)
    table, proba = AnnotationTable.from_matrix(A), model.predict_proba(X)
    confusion = m_step_by_loops(table, LatentClasses(table).vote_shares(), 0.01)
    q, _ = e_step_by_loops(table, proba, confusion, (1e-4, 1e-3))
    expected = -(q * np.log(proba)).sum(axis=1).mean()
    np.testing.assert_allclose(model.history_.column("cross_entropy")[1], expected, rtol=1e-5)
    np.testing.assert_allclose(model.confusion_, m_step_by_loops(table, q, 0.01), atol=1e-6)


# -- the estimator ----------------------------------------------------------------------------


def test_known_confusions_are_recovered():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = rng.normal(size=(1500, 6)).astype(np.float32) + 2.0 * np.eye(3, 6, dtype=np.float32)[y]
    truth = rng.dirichlet([1.0, 1.0, 1.0], (8, 3)) * 0.5 + 0.5 * np.eye(3)
    truth[7] = np.roll(truth[7], 1, axis=1)  # who sees the next class in every class
    annotators = np.argsort(rng.random((1500, 8)), axis=1)[:, :3]
    A = np.full((1500, 8), -1)
    for i, chosen in enumerate(annotators):
        for r in chosen:
            A[i, r] = rng.choice(3, p=truth[r, y[i]])
    model = AggNetClassifier(max_epochs=8, lr=1e-2, random_state=0).fit(X, A)
    assert np.abs(model.confusion_ - truth).max() < 0.1
    assert np.abs(model.confusion_ - truth).mean() < 0.03
    assert model.score(X, y) > np.mean(DawidSkene().fit_predict(A) == y)
    assert np.mean(model.labels_ == y) >= model.score(X, y) - 0.01


def test_posterior_is_given_x_and_the_annotations():
    X, A, _ = make_crowd_problem()
    A[:4] = -1
    model = built(Counted, **QUICK).fit(X, A)
    expected, _ = e_step_by_loops(
        AnnotationTable.from_matrix(A), model.predict_proba(X), model.confusion_, (1e-4, 1e-3)
    )
    np.testing.assert_allclose(model.posterior_[4:], expected[4:], atol=1e-6)
    np.testing.assert_allclose(model.posterior_[:4], model.predict_proba(X[:4]), atol=1e-6)
    np.testing.assert_array_equal(model.labels_, model.posterior_.argmax(axis=1))


def test_instances_without_annotations_do_not_enter_the_training():
    X, A, _ = make_crowd_problem()
    A[:4] = -1
    other = X.copy()
    other[:4] = 1e3
    models = [AggNetClassifier(**QUICK).fit(x, A) for x in (X, other)]
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))


def test_em_every_keeps_the_targets_between():
    X, A, _ = make_crowd_problem()
    often, seldom = (built(Counted, em_every=k, **QUICK).fit(X, A) for k in (1, 6))
    table = AnnotationTable.from_matrix(A)
    by_votes = m_step_by_loops(table, LatentClasses(table).vote_shares(), 0.01)
    np.testing.assert_allclose(seldom.confusion_, by_votes, atol=1e-6)
    assert np.abs(often.confusion_ - seldom.confusion_).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"em_every": 4}, {"class_balance": "resample", "em_every": 2}, {"validation": 0.2}],
)
def test_resume_ends_in_the_same_weights(options, tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    A[np.arange(48) % 6 == 1] = -1  # classes are no longer as frequent as each other
    options = QUICK | options
    whole = built(AggNetClassifier, **options).fit(X, A)
    for epoch in (1, 3):
        file = tmp_path / f"{epoch}.safetensors"
        model = built(AggNetClassifier, checkpoint=file, **options)
        train_until(monkeypatch, "train", epoch, model, X, A)
        assert_same_run(whole, built(AggNetClassifier, checkpoint=file, **options).fit(X, A))


def test_class_balance_helps_a_rare_class():
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.1).astype(int)
    X = rng.normal(size=(400, 4)) + 1.0 * y[:, None]
    table = make_crowd(y, n_annotators=6, annotations_per_instance=3, random_state=0)
    recall = {
        balance: np.mean(
            AggNetClassifier(class_balance=balance, random_state=0, max_epochs=6, lr=2e-3)
            .fit(X, table)
            .predict(X[y == 1])
        )
        for balance in (None, "reweight", "resample")
    }
    assert recall["reweight"] > recall[None] + 0.1
    assert recall["resample"] > recall[None] + 0.1


def test_everything_fitted_survives_saving(tmp_path):
    X, A, _ = make_crowd_problem()
    names = np.array(["ape", "bee", "cat", None], dtype=object)
    model = AggNetClassifier(**QUICK).fit(X, names[A])
    loaded = load(model.save(tmp_path))
    np.testing.assert_array_equal(loaded.posterior_, model.posterior_)
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    assert set(model.labels_) == {"ape", "bee", "cat"}


def test_labels_are_missing_before_fit():
    assert not hasattr(AggNetClassifier(), "labels_")


def test_training_in_batches_of_one():
    X, A, _ = make_crowd_problem(n=12)
    model = AggNetClassifier(**(QUICK | {"batch_size": 1, "max_epochs": 2})).fit(X, A)
    assert model.predict_proba(X[:1]).shape == (1, 3)
