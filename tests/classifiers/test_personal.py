"""Personal classifiers: the objective, ADMM, and what it converges to."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from torch.testing import assert_close

from manyhands import AnnotationTable, PersonalClassifier, PersonalProtocol, load, make_crowd
from manyhands.classifiers import personal
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.objectives import (
    fusion_norm,
    group_annotators,
    group_soft_threshold,
    personal_nll,
)
from manyhands.training import Checkpoint, CrowdBatch
from tests.rounding import assert_near

EXACT = {"fit_intercept": False, "scaling": None, "tol": 1e-5, "max_epochs": 3000, "device": "cpu"}


def noisy_problem(n_classes=2, n=60, n_annotators=3, seed=0):
    """X (n, 3) and annotations that no linear classifier separates."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    scores = X @ rng.normal(size=(3, n_classes))
    A = np.stack(
        [(scores + rng.gumbel(size=scores.shape) * 0.7).argmax(axis=1) for _ in range(n_annotators)]
    ).T
    A[rng.random(A.shape) < 0.2] = -1
    return X, A


def make_batch(weights=None):
    rows, annotators = [0, 0, 1, 2, 2, 4, 3, 4], [2, 0, 2, 0, 2, 3, 0, 2]
    labels = [0, 1, 1, 0, 0, 1, 0, 1]
    return CrowdBatch(
        torch.zeros(5, 0), torch.arange(5), torch.tensor(rows), torch.tensor(annotators),
        torch.tensor(labels), None if weights is None else torch.tensor(weights),
    )  # fmt: skip


WEIGHTS = [1.0, 2.0, 0.5, 0.0, 1.0, 3.0, 1.0, 0.25]


# -- the objective ----------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_binary_nll_is_the_published_one(weights):
    """Labels -1 and 1: the sum of log(1 + exp(-y w_j x))."""
    torch.manual_seed(0)
    x, w, batch = torch.randn(5, 3), torch.randn(4, 3, 1), make_batch(weights)
    total = 0.0
    for k, (i, j) in enumerate(zip(batch.rows.tolist(), batch.annotators.tolist(), strict=True)):
        margin = sum(w[j, d, 0].item() * x[i, d].item() for d in range(3))
        sign = 2 * int(batch.labels[k]) - 1
        total += (weights or [1.0] * 8)[k] * math.log1p(math.exp(-sign * margin))
    assert personal_nll(w, group_annotators(x, batch)).item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_multi_class_nll_equals_a_slow_loop(weights):
    torch.manual_seed(0)
    x, w, batch = torch.randn(5, 3), torch.randn(4, 3, 3), make_batch(weights)
    total = 0.0
    for k, (i, j) in enumerate(zip(batch.rows.tolist(), batch.annotators.tolist(), strict=True)):
        scores = [sum(w[j, d, c].item() * x[i, d].item() for d in range(3)) for c in range(3)]
        normaliser = math.log(sum(math.exp(s) for s in scores))
        total += (weights or [1.0] * 8)[k] * (normaliser - scores[int(batch.labels[k])])
    assert personal_nll(w, group_annotators(x, batch)).item() == pytest.approx(total, rel=1e-5)


def test_groups_hold_every_pair_once_and_little_else():
    rng = np.random.default_rng(0)
    annotators = torch.from_numpy(np.repeat(np.arange(20), rng.integers(0, 40, 20)))
    m = len(annotators)
    order = torch.from_numpy(rng.permutation(m))
    batch = CrowdBatch(
        torch.zeros(m, 0), torch.arange(m), torch.arange(m), annotators[order], order % 3, None
    )
    groups = group_annotators(torch.arange(m, dtype=torch.float64)[:, None] + 1, batch)
    found = []
    for group in groups:
        for r, xs, labels, weights in zip(*group, strict=True):
            there = weights > 0
            assert (xs[~there] == 0).all()
            found += [
                (int(x) - 1, int(r), int(c))
                for x, c in zip(xs[there, 0], labels[there], strict=True)
            ]
    expected = zip(range(m), batch.annotators.tolist(), batch.labels.tolist(), strict=True)
    assert sorted(found) == sorted(expected)
    assert sum(group.weights.numel() for group in groups) < 2 * m


def test_fusion_norm_equals_a_slow_loop():
    torch.manual_seed(0)
    w = torch.randn(5, 3, 2)
    expected = sum(
        math.sqrt(sum((a - b) ** 2 for a, b in zip(w[i].flatten(), w[j].flatten(), strict=True)))
        for i in range(5)
        for j in range(i + 1, 5)
    )
    assert fusion_norm(w).item() == pytest.approx(expected, rel=1e-5)


def test_soft_threshold_by_hand():
    values = torch.tensor([[[3.0], [4.0]], [[0.3], [0.4]], [[0.0], [0.0]]])
    expected = torch.tensor([[[2.4], [3.2]], [[0.0], [0.0]], [[0.0], [0.0]]])
    assert_close(group_soft_threshold(values, 1.0), expected)
    assert_close(group_soft_threshold(values, 0.0), values)


def test_two_columns_are_one_with_other_penalties():
    """(-w/2, w/2) is w: with ridge 2 eta and fusion sqrt(2) mu the objectives agree."""
    torch.manual_seed(0)
    x, w = torch.randn(5, 3), torch.randn(4, 3, 1)
    both = torch.cat([-w / 2, w / 2], dim=2)
    groups = group_annotators(x, make_batch())
    assert_close(personal_nll(both, groups), personal_nll(w, groups))
    assert_close(math.sqrt(2) * fusion_norm(both), fusion_norm(w))
    assert_close(2 * both[0].square().sum(), w[0].square().sum())


# -- what is converged to ---------------------------------------------------------------------


def generic_optimum(X, A, k, fusion, ridge, smoothing=1e-5):
    """Minimise with the norm smoothed to sqrt(|.|^2 + s^2): value, weights (J + 1, d, k)."""
    J, d = A.shape[1], X.shape[1]
    X = torch.from_numpy(X).double()
    pairs = [(i, j) for i in range(J + 1) for j in range(i + 1, J + 1)]

    def objective(flat, s):
        w = torch.tensor(flat.reshape(J + 1, d, k), requires_grad=True)
        loss = ridge / 2 * (w[0] ** 2).sum()
        for j in range(J):
            seen = A[:, j] >= 0
            logits = X[seen] @ w[j + 1]
            if k == 1:
                logits = torch.cat([0 * logits, logits], dim=1)
            loss = loss + torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(A[seen, j]), reduction="sum"
            )
        for i, j in pairs:
            loss = loss + fusion / J * (((w[i] - w[j]) ** 2).sum() + s**2).sqrt()
        loss.backward()
        return loss.item(), w.grad.numpy().ravel()

    flat = np.zeros((J + 1) * d * k)
    for s in (1e-1, 1e-2, 1e-3, 1e-4, smoothing):
        options = {"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-9}
        flat = minimize(objective, flat, (s,), jac=True, method="L-BFGS-B", options=options).x
    return objective(flat, 0.0 if fusion == 0 else 1e-12)[0], flat.reshape(J + 1, d, k)


@pytest.mark.parametrize(
    ("n_classes", "fusion", "rho"), [(2, 2.0, None), (2, 6.0, 2.0), (3, 2.0, 0.7), (3, 6.0, None)]
)
def test_admm_finds_what_a_generic_solver_finds(n_classes, fusion, rho):
    X, A = noisy_problem(n_classes)
    A[:, 2] = np.where(A[:, 2] < 0, -1, (A[:, 2] + 1) % n_classes)  # one adversary
    k = 1 if n_classes == 2 else n_classes
    value, weights = generic_optimum(X, A, k, fusion, 0.5)
    model = PersonalClassifier(
        fusion=fusion, ridge=0.5, **EXACT, protocol=PersonalProtocol(rho=rho)
    ).fit(X, A)
    assert model.history_[-1]["loss"] == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(model.coef_, weights[0].T, atol=1e-4)
    np.testing.assert_allclose(model.annotator_coef_, weights[1:].transpose(0, 2, 1), atol=1e-4)
    assert model.residuals_[-1].max() < 1e-5
    assert len(model.history_) < 3000


@pytest.mark.parametrize("n_classes", [2, 3])
def test_large_fusion_is_one_logistic_regression(n_classes):
    """Limiting case: all classifiers equal, and equal to scikit-learn's on all annotations."""
    X, A = noisy_problem(n_classes)
    model = PersonalClassifier(fusion=1e3, ridge=2.0, **(EXACT | {"tol": 1e-7})).fit(X, A)
    rows, columns = np.nonzero(A >= 0)
    pooled = LogisticRegression(C=1 / 2.0, fit_intercept=False, tol=1e-8, max_iter=1000)
    pooled.fit(X[rows], A[rows, columns])
    np.testing.assert_allclose(model.coef_, pooled.coef_, atol=1e-4)
    expected = np.broadcast_to(pooled.coef_, model.annotator_coef_.shape)
    np.testing.assert_allclose(model.annotator_coef_, expected, atol=1e-4)
    assert model.history_[-1]["fusion"] < 1e-2


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_fusion_is_separate_logistic_regressions(n_classes):
    """Limiting case: nobody knows of the others, and the target of nobody."""
    X, A = noisy_problem(n_classes, n=120)
    model = PersonalClassifier(fusion=0.0, **EXACT).fit(X, A)
    assert (model.coef_ == 0).all()
    for j in range(3):
        seen = A[:, j] >= 0
        alone = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8, max_iter=1000)
        alone.fit(X[seen].astype(np.float64), A[seen, j])
        np.testing.assert_allclose(model.annotator_coef_[j], alone.coef_, atol=2e-4)


def test_the_intercept_is_the_weight_of_a_constant_feature():
    X, A = noisy_problem(3)
    short = EXACT | {"tol": 1e-3}
    model = PersonalClassifier(**(short | {"fit_intercept": True})).fit(X, A)
    ones = np.hstack([X, np.ones((len(X), 1), np.float32)])
    by_hand = PersonalClassifier(**short).fit(ones, A)
    np.testing.assert_allclose(model.predict_proba(X), by_hand.predict_proba(ones), atol=1e-6)
    np.testing.assert_allclose(model.intercept_, by_hand.coef_[:, -1], atol=1e-6)
    np.testing.assert_allclose(
        model.annotator_intercept_, by_hand.annotator_coef_[:, :, -1], atol=1e-6
    )
    assert np.abs(model.intercept_).max() > 1e-3


def test_the_target_classifier_predicts_and_the_personal_ones_annotate():
    X, A = noisy_problem(2)
    model = PersonalClassifier(tol=1e-3).fit(X, A)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    margin = scaled @ model.coef_[0] + model.intercept_
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-margin)), atol=1e-5)
    margins = scaled @ model.annotator_coef_[:, 0].T + model.annotator_intercept_[:, 0]
    given = model.predict_annotation_proba(X)[:, :, 1]
    np.testing.assert_allclose(given, 1 / (1 + np.exp(-margins)), atol=1e-5)


def test_the_objective_falls_to_its_limit_and_has_three_terms():
    X, A = noisy_problem(3)
    model = PersonalClassifier(fusion=3.0, ridge=0.5, **EXACT).fit(X, A)
    loss = model.history_.column("loss")
    assert (np.diff(loss)[1:] < 1e-6 * loss[-1]).all(), "falls from the second iteration on"
    assert abs(loss[-1] - loss[-2]) < 1e-4
    last = model.history_[-1]
    weights = np.concatenate([model.coef_[None], model.annotator_coef_])
    norms = [np.linalg.norm(a - b) for i, a in enumerate(weights) for b in weights[i + 1 :]]
    assert last["ridge"] == pytest.approx(0.25 * (model.coef_**2).sum(), rel=1e-5)
    assert last["fusion"] == pytest.approx(3.0 / 3 * sum(norms), rel=1e-5)
    seen = np.nonzero(A >= 0)
    log_proba = np.log(model.predict_annotation_proba(X)[*seen, A[seen]])
    assert last["nll"] == pytest.approx(-log_proba.sum(), rel=1e-5)
    assert model.residuals_.shape == (len(loss), 2)
    assert model.residuals_[-1, 0] < 1e-5
    assert len(loss) < 3000


def test_a_new_step_size_leaves_differences_and_multipliers(monkeypatch):
    """Scaled multipliers change with rho, the differences U and the multipliers rho Phi do not."""
    X, A = noisy_problem(3)
    steps = []

    class Kept(personal.ADMMStep):
        def __init__(self, *given, rho, **options):
            super().__init__(*given, rho=rho, **options)
            self.first_rho = self.rho
            steps.append(self)

    def split(step):
        differences = group_soft_threshold(step.pairs, step.fusion / step.rho)
        multipliers = step.pairs - differences
        pull = torch.zeros_like(step.pull)
        first, second = torch.triu_indices(len(pull), len(pull), 1)
        pull.index_add_(0, first, differences - multipliers)
        pull.index_add_(0, second, multipliers - differences)
        return differences, step.rho * multipliers, pull

    monkeypatch.setattr(personal, "ADMMStep", Kept)
    options = {"max_epochs": 1, "tol": 1e-9}
    PersonalClassifier(**options).fit(X, A)
    (balanced,) = steps
    PersonalClassifier(**options, protocol=PersonalProtocol(rho=balanced.first_rho)).fit(X, A)
    fixed = steps[1]
    assert balanced.rho != balanced.first_rho == fixed.rho
    before, after = split(fixed), split(balanced)
    assert_close(fixed.pull, before[2])
    assert_close(after[0], before[0])
    assert_close(after[1], before[1])
    assert_close(balanced.pull, after[2])


# -- the classifier ---------------------------------------------------------------------------


def test_an_adversary_is_told_from_the_others():
    """Recovery: those who agree coincide, the adversary does not, the target is the crowd's."""
    X, _, y = make_crowd_problem(n=300, n_classes=2)
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random((300, 4)) < 0.1, 1 - y[:, None], y[:, None])
    noisy[:, 3] = 1 - noisy[:, 3]
    model = PersonalClassifier(fusion=20.0).fit(X, noisy)
    assert model.score(X, y) > 0.95
    coef = model.annotator_coef_[:, 0]
    assert np.abs(coef[:3] - model.coef_).max() < 0.1 * np.abs(model.coef_).max()
    assert coef[3] @ model.coef_[0] < 0
    assert (model.confusion_[3].argmax(axis=1) == [1, 0]).all()


def test_confusions_of_a_simulated_crowd_are_recovered():
    """Within .18 of what the annotators do: a target that is not sure of itself blurs a little."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = rng.normal(size=(1500, 4)).astype(np.float32) + 4 * np.eye(3, 4, dtype=np.float32)[y]
    table = make_crowd(
        y, X=X, n_annotators=5, annotations_per_instance=3.0, noise_strength=0.1, random_state=0
    )
    model = PersonalClassifier(fusion=100.0, ridge=1e-3).fit(X, table)
    true = np.zeros((5, 3, 3))
    np.add.at(true, (table.annotator, y[table.instance], table.label), 1)
    true /= true.sum(axis=2, keepdims=True)
    assert np.abs(model.confusion_ - true).max() < 0.18
    assert model.score(X, y) > 0.95


def test_silent_annotators_have_the_target_and_change_nothing():
    X, A, _ = make_crowd_problem()
    plain = PersonalClassifier(tol=1e-2).fit(X, A)
    wider = PersonalClassifier(tol=1e-2).fit(X, np.insert(A, 2, -1, axis=1))
    assert_near(plain.predict_proba(X), wider.predict_proba(X), n=X.shape[1])
    assert_near(wider.annotator_coef_[2], wider.coef_)
    assert_near(np.delete(wider.annotator_coef_, 2, 0), plain.annotator_coef_)


def test_a_weight_of_two_is_an_annotation_said_twice():
    X, A = noisy_problem(2)
    table = AnnotationTable.from_matrix(A)
    twice = AnnotationTable.from_arrays(
        *(np.concatenate([c, c]) for c in (table.instance, table.annotator, table.label)),
        classes=table.classes, n_instances=60, n_annotators=3, duplicates="keep",
    )  # fmt: skip
    weighted = AnnotationTable.from_arrays(
        table.instance, table.annotator, table.label, weight=np.full(table.n_annotations, 2.0),
        classes=table.classes, n_instances=60, n_annotators=3,
    )  # fmt: skip
    short = EXACT | {"tol": 1e-3}
    fits = [PersonalClassifier(**short).fit(X, t) for t in (twice, weighted, table)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-5)
    assert np.abs(fits[0].coef_ - fits[2].coef_).max() > 1e-2


def test_reading_in_batches_changes_nothing(monkeypatch):
    """Too large to keep, or not: the gradient of all is that of its parts."""
    X, A = noisy_problem(3, n=15)
    whole = PersonalClassifier(tol=1e-3).fit(X, A)
    monkeypatch.setattr(personal, "RESIDENT_BYTES", 0)
    for other in (X, csr_matrix(X)):
        parts = PersonalClassifier(tol=1e-3, batch_size=7, scaling="standard").fit(other, A)
        np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-4)


def test_too_many_pairs_are_refused(monkeypatch):
    X, A = noisy_problem(2)
    monkeypatch.setattr(personal, "PAIR_BYTES", 100)
    with pytest.raises(AnnotationError, match=r"3 annotators, with 4 weights for each of 1 out"):
        PersonalClassifier().fit(X, A)
    PersonalClassifier(fusion=0.0, max_epochs=2).fit(X, A)  # has no pairs


def test_class_balance_counts_annotations_and_refuses_focal_losses():
    X, A, y = make_crowd_problem()
    rare = np.where((y == 2)[:, None] & (np.arange(len(y)) > 12)[:, None], -1, A)
    plain = PersonalClassifier(tol=1e-2).fit(X, rare).predict_proba(X)[:, 2].mean()
    for option in ("resample", "reweight", {"name": "reweight"}):
        balanced = PersonalClassifier(tol=1e-2, class_balance=option, random_state=0).fit(X, rare)
        assert balanced.predict_proba(X)[:, 2].mean() > plain + 0.02, option
    for option in ("focal", {"name": "cb_focal", "gamma": 1}):
        with pytest.raises(AnnotationError, match="would no longer be convex"):
            PersonalClassifier(class_balance=option).fit(X, rare)
    with pytest.raises(AnnotationError, match="class_balance='reweigh' is unknown"):
        PersonalClassifier(class_balance="reweigh").fit(X, rare)


def test_there_is_no_backbone_and_no_learning_rate():
    for name in ("backbone", "lr", "weight_decay", "reset_optimizer"):
        with pytest.raises(TypeError, match=name):
            PersonalClassifier(**{name: None})


def test_transform_gives_the_scaled_features():
    X, A, _ = make_crowd_problem()
    model = PersonalClassifier(max_epochs=2).fit(X, A)
    np.testing.assert_allclose(model.transform(X).std(axis=0), 1, rtol=1e-5)


FOUND = ("coef_", "intercept_", "annotator_coef_", "annotator_intercept_")
FOUND += ("residuals_", "confusion_")


def test_fitted_weights_survive_saving(tmp_path):
    X, A, _ = make_crowd_problem()
    model = PersonalClassifier().fit(X, A)
    loaded = load(model.save(tmp_path))
    for name in FOUND:
        np.testing.assert_array_equal(getattr(model, name), getattr(loaded, name))


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"fusion": 0.0}, {"validation": 0.2, "protocol": PersonalProtocol(patience=20)}]
)
@pytest.mark.parametrize("epoch", [1, 4])
def test_resume_ends_in_the_same_weights(options, epoch, tmp_path, monkeypatch):
    X, A = noisy_problem(3)
    parameters = {"random_state": 0, "max_epochs": 12, "tol": 1e-9} | options
    whole = PersonalClassifier(**parameters).fit(X, A)
    written = Checkpoint.on_epoch_end

    def on_epoch_end(self, number, row):
        written(self, number, row)
        if row["epoch"] == epoch:
            raise Killed

    file = tmp_path / "run.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", on_epoch_end)
        with pytest.raises(Killed):
            PersonalClassifier(checkpoint=file, **parameters).fit(X, A)
    resumed = PersonalClassifier(checkpoint=file, **parameters).fit(X, A)
    for name in FOUND:
        np.testing.assert_array_equal(getattr(whole, name), getattr(resumed, name), err_msg=name)
    assert len(resumed.history_) == len(whole.history_)
