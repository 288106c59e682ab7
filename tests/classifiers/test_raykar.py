"""Raykar et al.'s EM: against plain loops, its likelihood, and where x says nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from manyhands import AnnotationTable, DawidSkene, RaykarClassifier, RaykarProtocol
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.training import Checkpoint
from tests.building import built

QUICK = {"max_epochs": 6, "device": "cpu", "scaling": None}


def noisy_problem(n=40, n_annotators=4, separation=1.0):
    """Overlapping classes, unequal annotators, a silent one, instances without annotations."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = (rng.normal(size=(n, 2)) + separation * np.eye(3, 2)[y]).astype(np.float32)
    A = np.full((n, n_annotators + 1), -1)
    for r in range(n_annotators):
        says = np.where(rng.random(n) < 0.9 - 0.15 * r, y, rng.integers(0, 3, n))
        A[:, r] = np.where(rng.random(n) < 0.7, says, -1)
    A[:3] = -1
    return X, A, y


def log_softmax(logits):
    top = max(logits)
    log_sum = top + math.log(sum(math.exp(v - top) for v in logits))
    return [v - log_sum for v in logits]


def em_by_loops(X, A, *, iterations, smoothing, weight_decay, n_classes=3):
    """The algorithm as it reads, instance by instance; losses, posterior, confusions, p(x)."""
    rows = [i for i in range(len(A)) if (A[i] >= 0).any()]
    q = {i: np.bincount(A[i][A[i] >= 0], minlength=n_classes) / (A[i] >= 0).sum() for i in rows}
    theta, losses = np.zeros((n_classes, X.shape[1] + 1)), []

    def log_p(theta, i):
        return log_softmax([float(theta[c, :-1] @ X[i] + theta[c, -1]) for c in range(n_classes)])

    def objective(values):
        theta = values.reshape(n_classes, -1)
        fit = -sum(float(np.dot(q[i], log_p(theta, i))) for i in rows)
        return fit / len(rows) + weight_decay / 2 * (theta[:, :-1] ** 2).sum()

    for _ in range(iterations):
        pi = np.full((A.shape[1], n_classes, n_classes), smoothing)
        for i in rows:
            for r, given in enumerate(A[i]):
                if given >= 0:
                    pi[r, :, given] += q[i]
        for r in range(A.shape[1]):
            for c in range(n_classes):
                pi[r, c] = pi[r, c] / pi[r, c].sum() if pi[r, c].sum() else 1 / n_classes
        found = minimize(objective, theta.ravel(), method="BFGS", options={"gtol": 1e-7})
        theta = found.x.reshape(n_classes, -1)
        nll = 0.0
        for i in rows:
            joint = np.exp(log_p(theta, i))
            for r, given in enumerate(A[i]):
                if given >= 0:
                    joint *= pi[r, :, given]
            nll -= np.log(joint.sum()) / len(rows)
            q[i] = joint / joint.sum()
        penalty = weight_decay / 2 * (theta[:, :-1] ** 2).sum()
        if smoothing:
            penalty -= smoothing * np.log(pi).sum() / len(rows)
        losses.append((nll, penalty))
    proba = np.exp([log_p(theta, i) for i in range(len(X))])
    return np.array(losses), np.array([q[i] for i in rows]), pi, proba


class Counted(RaykarClassifier):
    """Confusion matrices as EM counts them, without the crowd's answer in every row."""

    @property
    def _traits(self):
        return replace(super()._traits, shrinks_confusions=False)


@pytest.mark.parametrize(("smoothing", "weight_decay"), [(0.0, 1e-2), (0.2, 0.1)])
def test_figures_are_those_of_the_loops(smoothing, weight_decay):
    X, A, _ = noisy_problem(n=18)
    options = {"smoothing": smoothing, "weight_decay": weight_decay}
    losses, posterior, confusion, proba = em_by_loops(X, A, iterations=3, **options)
    model = built(Counted, **(QUICK | options | {"max_epochs": 3, "tol": 0.0})).fit(X, A)
    np.testing.assert_allclose(model.history_.column("nll"), losses[:, 0], atol=1e-5)
    np.testing.assert_allclose(model.history_.column("penalty"), losses[:, 1], atol=1e-5)
    np.testing.assert_allclose(model.posterior_[3:], posterior, atol=1e-4)
    np.testing.assert_allclose(model.posterior_[:3], proba[:3], atol=1e-4)
    seen = model.annotators_seen_  # The others do as the crowd does.
    np.testing.assert_allclose(model.confusion_[seen], confusion[seen], atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X), proba, atol=1e-4)


@pytest.mark.parametrize("separation", [0.0, 1.0, 2.0])
def test_the_likelihood_never_falls(separation):
    X, A, _ = noisy_problem(n=100, separation=separation)
    plain = RaykarProtocol(smoothing=0.0)
    model = RaykarClassifier(
        weight_decay=0.0, tol=0.0, max_epochs=20, scaling=None, protocol=plain
    ).fit(X, A)
    nll = model.history_.column("nll")
    assert len(nll) == 20
    assert (np.diff(nll) <= 1e-9).all()
    assert nll[-1] < nll[0] - 1e-3
    np.testing.assert_array_equal(model.history_.column("penalty"), 0)


@pytest.mark.parametrize("backbone", ["linear", {"name": "mlp", "hidden": [8]}])
@pytest.mark.parametrize("inner_steps", [1, 10])
def test_the_loss_never_rises_with_priors_nor_with_another_network(backbone, inner_steps):
    """Generalised EM: an M-step that stops early still climbs."""
    X, A, _ = noisy_problem(n=100)
    model = RaykarClassifier(
        backbone, tol=0.0, max_epochs=8, random_state=0, class_balance="reweight",
        protocol=RaykarProtocol(inner_steps=inner_steps),
    ).fit(X, A)  # fmt: skip
    assert (np.diff(model.history_.column("loss")) <= 1e-9).all()


@pytest.mark.parametrize("iterations", [1, 3, 20])
def test_where_x_says_nothing_it_is_dawid_skene(iterations):
    _, A, _ = noisy_problem()
    A = A[(A >= 0).any(axis=1)]
    model = built(
        Counted, smoothing=0.0, weight_decay=0.0, tol=0.0, max_epochs=iterations
    ).fit(np.ones((len(A), 2)), A)  # fmt: skip
    expected = DawidSkene(
        iterations, 0.0, n_subtypes=1, confusion_prior=None, dependence=0, accelerate=False
    ).fit(A)
    seen = model.annotators_seen_
    np.testing.assert_allclose(model.confusion_[seen], expected.confusion_[seen], atol=1e-5)
    np.testing.assert_allclose(model.posterior_, expected.posterior_, atol=1e-4)
    proba = model.predict_proba(np.ones((1, 2)))[0]
    np.testing.assert_allclose(proba, expected.class_prior_, atol=1e-5)
    np.testing.assert_allclose(
        -model.history_.column("nll") * len(A), expected.log_likelihood_, rtol=1e-6
    )


def test_known_confusions_are_recovered():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2000)
    X = rng.normal(size=(2000, 3)) + 2.0 * np.eye(3)[y]
    truth = 0.5 * rng.dirichlet(np.ones(3), (5, 3)) + 0.5 * np.eye(3)
    draws = (rng.random((5, 2000, 1)) > truth.cumsum(axis=2)[:, y]).sum(axis=2).T
    A = np.where(rng.random((2000, 5)) < 0.5, draws, -1)
    model = RaykarClassifier().fit(X, A)
    assert np.abs(model.confusion_ - truth).max() < 0.08
    assert model.score(X, y) > np.mean(DawidSkene().fit_predict(A) == y)
    assert np.mean(model.labels_ == y) > model.score(X, y)


def test_it_stops_when_the_loss_settles():
    X, A, _ = noisy_problem(n=100)
    loss = RaykarClassifier(tol=1e-3).fit(X, A).history_.column("loss")
    change = np.abs(np.diff(loss)) / np.abs(loss[:-1])
    assert 2 < len(loss) < 50
    assert change[-1] < 1e-3
    assert (change[:-1] >= 1e-3).all()


def test_neither_seed_nor_batches_nor_order_matter():
    X, A, _ = noisy_problem(n=40)
    short = {"max_epochs": 6}
    first = built(RaykarClassifier, random_state=0, **short).fit(X, A)
    others = [
        built(RaykarClassifier, random_state=1, batch_size=15, **short).fit(X, A),
        built(
            RaykarClassifier,
            random_state=2,
            lr=0.5,
            **short,
            protocol=RaykarProtocol(reset_optimizer=True),
        ).fit(X[::-1], A[::-1]),
    ]
    for other in others:
        np.testing.assert_allclose(first.predict_proba(X), other.predict_proba(X), atol=1e-5)


def test_reweighting_is_repeating_rare_instances():
    """Where all agree: the rare class has half the instances, and each counts twice."""
    rng = np.random.default_rng(0)
    y = np.arange(48) % 3 // 2
    X = rng.normal(size=(48, 3)) + 1.0 * np.eye(3)[y]
    A = np.repeat(y[:, None], 2, axis=1)
    twice = np.concatenate([np.arange(48), np.flatnonzero(y == 1)])
    options = QUICK | {"tol": 0.0}
    weighted = built(RaykarClassifier, class_balance="reweight", **options).fit(X, A)
    repeated = built(RaykarClassifier, **options).fit(X[twice], A[twice])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(weighted.confusion_, repeated.confusion_, atol=1e-6)
    for column in ("nll", "penalty"):
        np.testing.assert_allclose(
            weighted.history_.column(column), repeated.history_.column(column), atol=1e-6
        )
    drawn = built(RaykarClassifier, class_balance="resample", random_state=0, **options).fit(X, A)
    plain = built(RaykarClassifier, **options).fit(X, A)
    p = [model.predict_proba(X)[:, 1].mean() for model in (plain, drawn, weighted)]
    assert p[0] < min(p[1:]) - 0.05


@pytest.mark.parametrize("option", ["focal", {"name": "cb_focal", "gamma": 1, "beta": 0.9}])
def test_focal_losses_are_refused(option):
    X, A, _ = make_crowd_problem()
    model = RaykarClassifier(class_balance=option)
    with pytest.raises(AnnotationError, match="is a loss for gradient steps"):
        model.fit(X, A)
    assert not hasattr(model, "module_")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"validation": 0.2}, {"class_balance": "resample"}, {"backbone": "mlp"}]
)
def test_resume_ends_in_the_same_weights(options, tmp_path, monkeypatch):
    X, A, _ = noisy_problem(n=60)
    options = {"random_state": 0, "max_epochs": 40, "inner_steps": 5, "tol": 5e-3} | options
    whole = built(RaykarClassifier, **options).fit(X, A)
    assert 3 < len(whole.history_) < 40, "settles after the resumption"
    file, written = tmp_path / "run.safetensors", Checkpoint.on_epoch_end

    class Killed(Exception):
        pass

    def on_epoch_end(self, number, row):
        written(self, number, row)
        if row["epoch"] == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", on_epoch_end)
        with pytest.raises(Killed):
            built(RaykarClassifier, checkpoint=file, **options).fit(X, A)
    for _ in range(2):  # goes on; then finds it finished
        resumed = built(RaykarClassifier, checkpoint=file, **options).fit(X, A)
        for name, value in whole.module_.state_dict().items():
            np.testing.assert_array_equal(value, resumed.module_.state_dict()[name], name)
        np.testing.assert_array_equal(whole.posterior_, resumed.posterior_)
        assert [row["loss"] for row in whole.history_] == [row["loss"] for row in resumed.history_]


def test_annotations_weigh():
    """A weight of two is the annotation twice."""
    X, A, _ = noisy_problem(n=30)
    table = AnnotationTable.from_matrix(A)
    rows = np.arange(table.n_annotations)
    weight = 1.0 + rows % 2
    repeated = np.repeat(rows, weight.astype(int))

    def fit(chosen, weight, **extra):
        part = AnnotationTable.from_arrays(
            table.instance[chosen], table.annotator[chosen], table.label[chosen], weight=weight,
            n_instances=30, n_annotators=5, classes=[0, 1, 2], **extra,
        )  # fmt: skip
        return built(RaykarClassifier, **QUICK).fit(X, part)

    weighted, doubled = fit(rows, weight), fit(repeated, None, duplicates="keep")
    np.testing.assert_allclose(weighted.predict_proba(X), doubled.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(weighted.confusion_, doubled.confusion_, atol=1e-6)


def test_a_network_given_with_weights_starts_from_them():
    X, A, _ = noisy_problem()
    weights = {"head.weight": torch.full((3, X.shape[1]), 0.1), "head.bias": torch.ones(3)}
    weights["head.weight"][0] = 3.0
    options = QUICK | {"max_epochs": 1, "inner_steps": 1}
    cold = built(RaykarClassifier, **options).fit(X, A)
    warm = built(RaykarClassifier, {"name": "linear", "weights": weights}, **options).fit(X, A)
    assert np.abs(cold.predict_proba(X) - warm.predict_proba(X)).max() > 0.01
