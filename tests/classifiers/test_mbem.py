"""MBEM: its rounds, their targets by plain loops, and what it is for (one annotation each)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhands import AggregatedClassifier, AnnotationTable, MBEMClassifier, MBEMProtocol, load
from manyhands.estimator_checks import make_crowd_problem
from manyhands.training import Checkpoint, load_tree
from tests.building import built

QUICK = {"max_epochs": 3, "batch_size": 16, "lr": 1e-2, "random_state": 0, "device": "cpu"}


def estimate_by_loops(A, own, *, smoothing, uniform, n_classes=3):
    """Confusions, class prior and posterior from an annotation matrix and hard labels."""
    confusion = np.full((A.shape[1], n_classes, n_classes), smoothing)
    for i, row in enumerate(A):
        for r, given in enumerate(row):
            if given >= 0:
                confusion[r, own[i], given] += 1
    for r in range(A.shape[1]):
        for c in range(n_classes):
            mass = confusion[r, c].sum()
            confusion[r, c] = confusion[r, c] / mass if mass else 1 / n_classes
    prior = np.full(n_classes, 1 / n_classes)
    if not uniform:
        known = [own[i] for i, row in enumerate(A) if (row >= 0).any()]
        counts = [known.count(c) + smoothing for c in range(n_classes)]
        prior = np.array(counts) / sum(counts)
    posterior = np.tile(prior, (len(A), 1))
    for i, row in enumerate(A):
        for r, given in enumerate(row):
            if given >= 0:
                for c in range(n_classes):
                    posterior[i, c] *= confusion[r, c, given]
        posterior[i] /= posterior[i].sum()
    return confusion, prior, posterior


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


def stages_of(model):
    return list(dict.fromkeys(row["stage"] for row in model.history_))


def silent_and_unlabelled():
    X, A, y = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    A[:5] = -1
    return X, A, y


# -- the rounds -------------------------------------------------------------------------------


def test_round_0_is_training_on_the_vote_shares():
    X, A, _ = silent_and_unlabelled()
    plain = AggregatedClassifier(**QUICK).fit(X, A)
    model = built(MBEMClassifier, **QUICK).fit(X, A)
    np.testing.assert_array_equal(
        model.history_.column("loss", "round 0"), plain.history_.column("loss")
    )


@pytest.mark.parametrize("class_prior", ["estimated", "uniform"])
@pytest.mark.parametrize("smoothing", [0.01, 0.5])
def test_round_1_is_training_on_the_posterior_by_loops(class_prior, smoothing, tmp_path):
    X, A, _ = silent_and_unlabelled()
    file = tmp_path / "run.safetensors"
    options = {"class_prior": class_prior, "smoothing": smoothing, "checkpoint": file}
    built(MBEMClassifier, **QUICK, **options).fit(X, A)
    targets = load_tree(file)["steps"][1]["targets"]["targets"].numpy()
    # The network of round 0, which is that of the vote shares (above), gives the labels.
    own = AggregatedClassifier(**QUICK).fit(X, A).predict(X)
    uniform = class_prior == "uniform"
    _, _, expected = estimate_by_loops(A, own, smoothing=smoothing, uniform=uniform)
    np.testing.assert_allclose(targets[5:], expected[5:], atol=1e-6)
    np.testing.assert_array_equal(targets[:5], 0, "without annotations, no target")


@pytest.mark.parametrize("class_prior", ["estimated", "uniform"])
def test_what_is_fitted_goes_with_the_final_network(class_prior):
    X, A, _ = silent_and_unlabelled()

    class Counted(MBEMClassifier):
        @property
        def _traits(self):
            return replace(super()._traits, shrinks_confusions=False)

    model = built(Counted, class_prior=class_prior, n_iterations=2, **QUICK).fit(X, A)
    confusion, prior, posterior = estimate_by_loops(
        A, model.predict(X), smoothing=0.01, uniform=class_prior == "uniform"
    )
    seen = model.annotators_seen_  # The others do as the crowd does.
    np.testing.assert_allclose(model.confusion_[seen], confusion[seen], atol=1e-9)
    np.testing.assert_allclose(model.class_prior_, prior, atol=1e-9)
    np.testing.assert_allclose(model.posterior_, posterior, atol=1e-9)
    np.testing.assert_allclose(
        model.predict_annotation_proba(X)[:, seen],
        np.einsum("nc,rcg->nrg", model.predict_proba(X), confusion[seen]),
        atol=1e-5,
    )
    assert stages_of(model) == ["round 0", "round 1", "round 2"]


def test_without_smoothing_an_unseen_class_is_harmless():
    """The network never says 2: rows without evidence are uniform, the prior of 2 is 0."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 7])
    model = built(MBEMClassifier, **QUICK, protocol=MBEMProtocol(smoothing=0.0)).fit(X, table)
    assert model.class_prior_[3] == 0
    np.testing.assert_allclose(model.confusion_[:, 3], 0.25)
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_round_begins_with_a_new_network_or_with_the_old_one():
    X, A, _ = make_crowd_problem()
    cold = built(MBEMClassifier, **QUICK).fit(X, A).history_
    warm = (
        built(MBEMClassifier, **QUICK, protocol=MBEMProtocol(warm_start_network=True))
        .fit(X, A)
        .history_
    )
    # Steps too small to matter: what the network is after all is what it was made as.
    still = {"lr": 1e-12, "weight_decay": 0.0, "max_epochs": 1}
    first = AggregatedClassifier(**(QUICK | still)).fit(X, A)
    same = built(
        MBEMClassifier, **QUICK | still, protocol=MBEMProtocol(warm_start_network=True)
    ).fit(X, A)
    other = built(MBEMClassifier, **(QUICK | still)).fit(X, A)
    np.testing.assert_allclose(first.predict_proba(X), same.predict_proba(X), atol=1e-6)
    assert np.abs(first.predict_proba(X) - other.predict_proba(X)).max() > 0.05
    assert warm.column("loss", "round 1")[0] < cold.column("loss", "round 1")[0] - 0.2
    np.testing.assert_array_equal(cold.column("loss", "round 0"), warm.column("loss", "round 0"))


def test_own_labels_are_hard_and_follow_every_round(tmp_path):
    X, A, _ = silent_and_unlabelled()
    file = tmp_path / "run.safetensors"
    model = built(
        MBEMClassifier, checkpoint=file, **QUICK, protocol=MBEMProtocol(train_on_own_labels=True)
    ).fit(X, A)
    assert stages_of(model) == ["round 0", "round 0, own labels", "round 1", "round 1, own labels"]
    own = AggregatedClassifier(**QUICK).fit(X, A).predict(X)
    targets = load_tree(file)["steps"][1]["targets"]["targets"].numpy()
    np.testing.assert_array_equal(targets[5:], np.eye(3)[own[5:]])


# -- what it is for ---------------------------------------------------------------------------


def test_confusions_are_told_from_single_annotations():
    """Where no two annotators meet, the annotations alone say nothing of who is right."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = rng.normal(size=(1500, 4)).astype(np.float32) + 3.0 * np.eye(3, 4, dtype=np.float32)[y]
    truth = np.array([q * np.eye(3) + (1 - q) / 3 for q in (0.9, 0.9, 0.7, 0.5)])
    truth = np.concatenate([truth, np.roll(truth[:1], 1, axis=2)])  # who says the next class
    annotator = rng.integers(0, 5, 1500)
    A = np.full((1500, 5), -1)
    for i, r in enumerate(annotator):
        A[i, r] = rng.choice(3, p=truth[r, y[i]])
    model = MBEMClassifier(max_epochs=4, lr=3e-3, random_state=0).fit(X, A)
    assert np.abs(model.confusion_ - truth).max() < 0.1
    assert np.mean(model.labels_ == y) > np.mean(A.max(axis=1) == y) + 0.15
    assert model.score(X, y) > 0.93


def test_a_balance_that_changes_nothing_changes_nothing():
    """Once the network labels the classes as often as each other, as its targets do."""
    X, _, y = make_crowd_problem()
    A = np.where(np.arange(5) < 3, y[:, None], -1)
    options = QUICK | {"max_epochs": 10, "lr": 3e-2, "batch_size": 24}
    plain = built(MBEMClassifier, **options).fit(X, A)
    np.testing.assert_allclose(plain.class_prior_, 1 / 3)
    for balance in ("reweight", "resample"):
        other = built(MBEMClassifier, class_balance=balance, **options).fit(X, A)
        np.testing.assert_array_equal(plain.predict_proba(X), other.predict_proba(X))


# -- the estimator ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "epoch"), [("round 0", 2), ("round 0", 3), ("round 1", 1), ("round 2", 3)]
)
@pytest.mark.parametrize(
    "options", [{}, {"class_balance": "resample", "validation": 0.2, "patience": 2}]
)
def test_resume_in_any_round_ends_in_the_same_weights(
    stage, epoch, options, tmp_path, monkeypatch
):  # fmt: skip
    X, A, _ = silent_and_unlabelled()
    options = QUICK | {"n_iterations": 2} | options
    whole = built(MBEMClassifier, **options).fit(X, A)
    file = tmp_path / "run.safetensors"
    model = built(MBEMClassifier, checkpoint=file, **options)
    train_until(monkeypatch, stage, epoch, model, X, A)
    resumed = built(MBEMClassifier, checkpoint=file, **options).fit(X, A)
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name
    np.testing.assert_array_equal(whole.posterior_, resumed.posterior_)
    assert [{k: v for k, v in r.items() if k != "seconds"} for r in resumed.history_] == [
        {k: v for k, v in r.items() if k != "seconds"} for r in whole.history_
    ]


@pytest.mark.slow
def test_resume_with_own_labels(tmp_path, monkeypatch):
    X, A, _ = silent_and_unlabelled()
    options = QUICK | {"train_on_own_labels": True}
    whole = built(MBEMClassifier, **options).fit(X, A)
    file = tmp_path / "run.safetensors"
    model = built(MBEMClassifier, checkpoint=file, **options)
    train_until(monkeypatch, "round 0, own labels", 2, model, X, A)
    resumed = built(MBEMClassifier, checkpoint=file, **options).fit(X, A)
    np.testing.assert_array_equal(whole.predict_proba(X), resumed.predict_proba(X))


def test_everything_fitted_survives_saving(tmp_path):
    X, A, _ = silent_and_unlabelled()
    model = built(MBEMClassifier, **QUICK).fit(X, A)
    loaded = load(model.save(tmp_path))
    for name in ("posterior_", "labels_", "class_prior_", "confusion_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))


def test_training_in_batches_of_one():
    X, A, _ = make_crowd_problem(n=12)
    model = built(MBEMClassifier, **(QUICK | {"batch_size": 1, "max_epochs": 1})).fit(X, A)
    assert model.predict_proba(X[:1]).shape == (1, 3)


def test_validation_chooses_in_the_last_round():
    X, A, _ = make_crowd_problem()
    for seed in range(3):
        model = built(
            MBEMClassifier, n_iterations=2, validation=0.2, **QUICK | {"random_state": seed}
        )
        model.set_params(protocol__monitor="likelihood").fit(X, A)
        assert model.best_stage_ == "round 2"
        last = model.history_.column("validation_nll", stage="round 2")
        assert model.best_epoch_ == 1 + last.argmin()
