"""Metric-learning baselines: losses against slow loops, batches, resuming, users' own losses."""

import sys
import warnings
from itertools import islice

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from manyhands import (
    DawidSkene,
    MetricLearningClassifier,
    MetricLearningEmbedding,
    MetricLearningProtocol,
    load,
    make_crowd,
)
from manyhands.classifiers.metric_learning import MARGINS, Comparison, shuffled_batches
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, MissingExtraError, ModelFolderError
from manyhands.objectives import LiftedStructureLoss, TripletCenterLoss, nearest_negatives
from manyhands.training import Checkpoint
from tests.building import built
from tests.rounding import single_precision_in_row_checks

QUICK = {
    "max_epochs": 3,
    "updates_per_epoch": 4,
    "batch_size": 16,
    "C": 0.1,
    "random_state": 0,
    "device": "cpu",
}


def batch(n=9, n_classes=3, width=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.append(np.arange(n_classes), rng.integers(n_classes, size=n - n_classes))
    return torch.tensor(rng.normal(size=(n, width))), torch.tensor(labels)


def comparison(name, margin=None, n_classes=3, width=4):
    model = MetricLearningClassifier(loss=name, protocol=MetricLearningProtocol(margin=margin))
    model.classes_ = np.arange(n_classes)
    return Comparison(model, width)


def distances(embedding):
    """Between embeddings of length 1, without a library."""
    E = embedding.numpy() / np.linalg.norm(embedding.numpy(), axis=1, keepdims=True)
    return np.array([[np.sqrt(((a - b) ** 2).sum()) for b in E] for a in E])


def triplets(labels):
    n = range(len(labels))
    return [
        (a, p, q)
        for a in n
        for p in n
        for q in n
        if a != p and labels[a] == labels[p] and labels[a] != labels[q]
    ]


# -- losses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [0.3, 1.0])
def test_contrastive_is_the_mean_over_pairs_that_miss_their_margin(margin):
    embedding, labels = batch()
    D, n = distances(embedding), len(labels)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    near = [D[i, j] for i, j in pairs if labels[i] == labels[j] and D[i, j] > 0]
    far = [margin - D[i, j] for i, j in pairs if labels[i] != labels[j] and D[i, j] < margin]
    expected = np.mean(near) + (np.mean(far) if far else 0.0)
    np.testing.assert_allclose(comparison("contrastive", margin)(embedding, labels), expected)


@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_triplet_is_the_mean_over_triplets_that_miss_their_margin(margin):
    embedding, labels = batch()
    D = distances(embedding)
    costs = [D[a, p] - D[a, q] + margin for a, p, q in triplets(labels)]
    expected = np.mean([cost for cost in costs if cost > 0])
    np.testing.assert_allclose(comparison("triplet", margin)(embedding, labels), expected)


@pytest.mark.parametrize("margin", [0.2, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_semi_hard_is_the_nearest_negative_beyond_the_positive(margin, seed):
    embedding, labels = batch(seed=seed)
    D, n = distances(embedding), len(labels)
    costs = []
    for a in range(n):
        for p in range(n):
            if a == p or labels[a] != labels[p]:
                continue
            beyond = [D[a, q] for q in range(n) if labels[q] != labels[a] and D[a, q] > D[a, p]]
            if beyond and min(beyond) - D[a, p] <= margin:
                costs.append(D[a, p] - min(beyond) + margin)
    assert costs
    found = comparison("triplet_semihard", margin)(embedding, labels)
    np.testing.assert_allclose(found, np.mean(costs))


def test_semi_hard_by_hand():
    """Angles of 0, 20 | 10, 30, 40 degrees: 0 and 20 have 30 as the first beyond the other."""
    angles = torch.deg2rad(torch.tensor([0.0, 20.0, 10.0, 30.0, 40.0], dtype=torch.float64))
    embedding = 5 * torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = torch.tensor([0, 0, 1, 1, 1])
    chosen = comparison("triplet_semihard", 0.5)
    mined = chosen.miner(embedding, labels)
    found = torch.stack(nearest_negatives(embedding, mined), dim=1)
    # From 20 it is 20 to 0 and to 40, 10 to 10 and to 30: nothing is beyond. From 0 it is 30.
    # From 10, with the positive at 30 (20 away), all negatives are nearer; and so on.
    assert [0, 1, 3] in found.tolist()
    assert not [row for row in found.tolist() if row[:2] == [0, 1] and row[2] != 3]
    assert not [row for row in found.tolist() if row[:2] == [2, 3]]
    assert [3, 4, 1] not in found.tolist()  # Exactly as far as the positive is not farther.


def test_the_nearest_negative_of_every_pair_is_found_as_in_a_loop():
    embedding, labels = batch(n=12, seed=4)
    every = triplets(labels)
    D = distances(embedding)
    best = {}
    for a, p, q in every:
        if (a, p) not in best or D[a, q] < D[a, best[a, p]]:
            best[a, p] = q
    found = nearest_negatives(embedding, tuple(torch.tensor(every).T))
    assert {(int(a), int(p)): int(q) for a, p, q in zip(*found, strict=True)} == best
    nothing = tuple(torch.zeros((3, 0), dtype=torch.int64))
    assert [len(part) for part in nearest_negatives(embedding, nothing)] == [0, 0, 0]


@pytest.mark.parametrize("margin", [0.5, 1.0])
def test_lifted_is_a_loop_and_the_library_s(margin):
    from pytorch_metric_learning.losses import LiftedStructureLoss as TheirLoss

    embedding, labels = batch()
    embedding.requires_grad_(True)
    D, n = distances(embedding.detach()), len(labels)
    costs = []
    for i in range(n):
        for j in range(i + 1, n):
            if labels[i] == labels[j]:
                against = sum(np.exp(margin - D[i, k]) for k in range(n) if labels[k] != labels[i])
                against += sum(np.exp(margin - D[j, k]) for k in range(n) if labels[k] != labels[j])
                costs.append(max(0.0, np.log(against) + D[i, j]) ** 2 / 2)
    loss = LiftedStructureLoss(margin)(embedding, labels)
    np.testing.assert_allclose(loss.item(), np.mean(costs))
    theirs = TheirLoss(neg_margin=margin)(embedding, labels)
    np.testing.assert_allclose(loss.item(), theirs.item())
    ours, others = (torch.autograd.grad(part, embedding)[0] for part in (loss, theirs))
    np.testing.assert_allclose(ours, others, atol=1e-9)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_lifted_of_nothing_to_compare_is_0(labels):
    embedding = torch.randn(3, 2, requires_grad=True)
    loss = LiftedStructureLoss()(embedding, torch.tensor(labels))
    loss.backward()
    assert loss.item() == 0
    assert (embedding.grad == 0).all()


def test_center_by_hand_and_in_a_loop():
    loss = TripletCenterLoss(3, 2, margin=1.0)
    loss.centers.data = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    # Of class 0 at (1, 0): .5 to its own centre, .5 to the next, so the margin. Of class 2 at
    # (0, 2): 2 to its own, 2 to that of 0.
    place = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    assert loss(place, torch.tensor([0, 2, 1])).item() == pytest.approx((1 + 1 + 0) / 3)
    embedding, labels = batch(width=2)
    centers = loss.centers.detach().double().numpy()
    costs = []
    for x, y in zip(embedding.numpy(), labels, strict=True):
        D = [((x - c) ** 2).sum() / 2 for c in centers]
        costs.append(max(0.0, D[y] + 1 - min(D[j] for j in range(3) if j != y)))
    np.testing.assert_allclose(loss.double()(embedding, labels).item(), np.mean(costs))


def test_centers_are_learnt_by_their_own_rate():
    X, A, _ = make_crowd_problem()
    seen = {}
    for rate in (1e-9, 0.5):

        class Kept(MetricLearningClassifier):  # Nothing public shows the centers.
            def _step(self, data):
                seen[self._protocol.loss_lr] = step = super()._step(data)
                return step

        built(Kept, loss="center", loss_lr=rate, **QUICK).fit(X, A)
    still, moved = (seen[rate].comparison.loss.centers.detach() for rate in (1e-9, 0.5))
    assert still.abs().max() < 0.1
    assert (moved - still).abs().max() > 0.1


# -- batches --------------------------------------------------------------------------------------


def test_batches_go_through_all_that_have_a_label():
    labels = np.array([0, 1, -1] * 11)
    batches = list(islice(shuffled_batches(labels, 7, np.random.default_rng(0)), 3))
    assert [len(part) for part in batches] == [7, 7, 8]  # The last of one joins that before.
    assert sorted(np.concatenate(batches)) == np.flatnonzero(labels >= 0).tolist()
    again = list(islice(shuffled_batches(labels, 7, np.random.default_rng(0)), 6))
    assert (again[0] == batches[0]).all()
    assert sorted(np.concatenate(again[3:])) == np.flatnonzero(labels >= 0).tolist()
    assert (again[3] != batches[0]).any()


def test_every_batch_has_two_classes():
    labels = np.append(np.zeros(60, dtype=int), 1)
    for part in islice(shuffled_batches(labels, 8, np.random.default_rng(0)), 40):
        assert len(np.unique(labels[part])) == 2


def test_nothing_to_compare_is_an_error():
    X = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    for votes in ([[0, 0], [0, -1], [0, -1], [0, 1]], [[0, -1], [1, -1], [2, -1], [3, -1]]):
        with pytest.raises(AnnotationError, match="to compare; annotate more"):
            built(MetricLearningClassifier, **QUICK).fit(X, np.array(votes))


# -- training -------------------------------------------------------------------------------------


def spread(Z, y):
    """Mean square distance from the class's centre, as a share of that from the centre of all."""
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    within = sum(((Z[y == c] - Z[y == c].mean(axis=0)) ** 2).sum() for c in np.unique(y))
    return within / ((Z - Z.mean(axis=0)) ** 2).sum()


@pytest.mark.parametrize("loss", MARGINS)
def test_it_separates_what_can_be_separated(loss):
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = (rng.normal(size=(150, 10)) + 3.0 * np.eye(10)[y]).astype(np.float32)
    table = make_crowd(y, n_annotators=8, noise_strength=0.2, random_state=0)
    quick = {**QUICK, "updates_per_epoch": 10, "batch_size": 32, "lr": 6e-3}
    fitted = built(MetricLearningClassifier, loss=loss, **quick).fit(X[:100], table[:100])
    still = {**quick, "max_epochs": 1, "updates_per_epoch": 1, "lr": 1e-12}
    untrained = built(MetricLearningClassifier, loss=loss, **still).fit(X[:100], table[:100])
    assert (fitted.predict(X[100:]) == y[100:]).mean() > 0.85
    after, before = (spread(m.transform(X[100:]), y[100:]) for m in (fitted, untrained))
    assert after < 0.8 * before
    names = {"stage", "epoch", "loss", "seconds", "step", "C", f"{loss}_loss"}
    assert set(fitted.history_[0]) == names
    for row in fitted.history_:
        assert row[f"{loss}_loss"] == row["loss"]
        assert row["step"] == 10 * row["epoch"]


def test_the_aggregator_changes_the_labels():
    X, A, _ = make_crowd_problem()
    plain = built(MetricLearningClassifier, **QUICK).fit(X, A)
    other = built(MetricLearningClassifier, aggregator=DawidSkene(), **QUICK).fit(X, A)
    assert type(other.aggregator_) is DawidSkene
    assert (plain.aggregator_.posterior_ != other.aggregator_.posterior_).any()
    assert np.abs(plain.transform(X) - other.transform(X)).max() > 1e-3


def test_ties_are_not_compared():
    X, A, _ = make_crowd_problem()
    A = np.where(np.arange(len(A))[:, None] < 6, [0, 1, -1, -1, -1], A)
    seen = []

    class Noting(MetricLearningClassifier):  # Nothing public shows the batches.
        def _batches(self, data, epoch):
            for part in super()._batches(data, epoch):
                seen.append(data.order[part.numpy()])
                yield part

    built(Noting, **QUICK).fit(X, A)
    assert not set(np.concatenate(seen)) & set(range(6))


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["triplet", "center"])
def test_a_resumed_run_is_an_uninterrupted_one(loss, tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    whole = built(MetricLearningClassifier, loss=loss, **QUICK).fit(X, A)
    model = built(MetricLearningClassifier, loss=loss, checkpoint=tmp_path / "run", **QUICK)
    written = Checkpoint.on_epoch_end

    def die(self, number, row):
        written(self, number, row)
        if row["epoch"] == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", die)
        with pytest.raises(Killed):
            model.fit(X, A)
    model = clone(model).fit(X, A)
    np.testing.assert_array_equal(model.predict_proba(X), whole.predict_proba(X))
    assert model.history_.column("loss").tolist() == whole.history_.column("loss").tolist()
    assert model.history_.column("step").tolist() == [4, 8, 12]


# -- what users bring -----------------------------------------------------------------------------


def test_a_loss_and_a_miner_of_the_user_s():
    from pytorch_metric_learning.losses import ProxyAnchorLoss, TripletMarginLoss
    from pytorch_metric_learning.miners import TripletMarginMiner

    X, A, _ = make_crowd_problem()
    named = built(MetricLearningClassifier, **QUICK).fit(X, A)
    own = built(MetricLearningClassifier, loss=TripletMarginLoss(margin=0.2), **QUICK).fit(X, A)
    np.testing.assert_array_equal(named.predict_proba(X), own.predict_proba(X))
    assert "metric_loss" in own.history_[0]
    miner = TripletMarginMiner(margin=0.2, type_of_triplets="hard")
    for loss in ("triplet", TripletMarginLoss(margin=0.2)):
        mined = built(MetricLearningClassifier, loss=loss, miner=miner, **QUICK).fit(X, A)
        assert np.abs(mined.transform(X) - named.transform(X)).max() > 1e-4
    proxies = ProxyAnchorLoss(num_classes=3, embedding_size=32)
    before = proxies.proxies.detach().clone()
    learnt = built(MetricLearningClassifier, loss=proxies, **QUICK).fit(X, A)
    still = built(
        MetricLearningClassifier,
        loss=proxies,
        **QUICK,
        protocol=MetricLearningProtocol(loss_lr=1e-9),
    ).fit(X, A)
    assert torch.equal(proxies.proxies, before), "the user's loss was trained in place"
    assert np.abs(learnt.transform(X) - still.transform(X)).max() > 1e-5


def test_what_does_not_belong_to_a_loss_is_refused():
    X, A, _ = make_crowd_problem()
    for loss in ("triplet_semihard", "lifted", "center"):
        with pytest.raises(AnnotationError, match=f"loss='{loss}' .* takes no miner"):
            built(MetricLearningClassifier, loss=loss, miner=nn.Identity(), **QUICK).fit(X, A)
    with pytest.raises(AnnotationError, match="set it on Identity itself"):
        built(
            MetricLearningClassifier,
            loss=nn.Identity(),
            **QUICK,
            protocol=MetricLearningProtocol(margin=1.0),
        ).fit(X, A)


def test_a_checkpoint_knows_the_numbers_of_a_loss(tmp_path):
    from pytorch_metric_learning.losses import TripletMarginLoss

    X, A, _ = make_crowd_problem()
    parameters = {**QUICK, "checkpoint": tmp_path / "run"}
    built(MetricLearningClassifier, loss=TripletMarginLoss(margin=0.2), **parameters).fit(X, A)
    with pytest.raises(ModelFolderError, match="loss differ"):
        built(MetricLearningClassifier, loss=TripletMarginLoss(margin=0.3), **parameters).fit(X, A)


def test_a_model_with_a_loss_of_the_user_s_is_saved(tmp_path):
    from pytorch_metric_learning.losses import TripletMarginLoss

    X, A, _ = make_crowd_problem()
    model = built(MetricLearningClassifier, loss=TripletMarginLoss(), **QUICK).fit(X, A)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_without_the_library_the_extra_is_named(monkeypatch):
    X, A, _ = make_crowd_problem()
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manyhands\[torch\]'"):
        built(MetricLearningClassifier, **QUICK).fit(X, A)
    for loss in ("lifted", "center"):  # They are ours.
        built(MetricLearningClassifier, loss=loss, **QUICK).fit(X, A)


def test_a_network_without_an_embedding_gives_it():
    X, A, _ = make_crowd_problem()
    own = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5))
    model = built(MetricLearningClassifier, own, **QUICK).fit(X, A)
    assert model.transform(X).shape == (len(X), 5)
    assert model.predict_proba(X).shape == (len(X), 3)


@pytest.mark.parametrize("loss", MARGINS)
def test_degenerate_crowds(loss):
    X, A, y = make_crowd_problem()
    crowds = {
        "one annotator": y[:, None],
        "all agree": np.repeat(y[:, None], 5, axis=1),
        "an annotation each": np.where(np.arange(len(y))[:, None] % 5 == np.arange(5), A, -1),
        "two of the rare class": np.where(y < 1, y, 1)[:, None] * (np.arange(len(y)) > 3)[:, None],
    }
    for name, crowd in crowds.items():
        model = built(
            MetricLearningClassifier, loss=loss, **{**QUICK, "max_epochs": 1, "batch_size": 2}
        ).fit(X, crowd)
        assert np.isfinite(model.predict_proba(X)).all(), name


def test_rare_classes():
    X, A, y = make_crowd_problem()
    rare = np.where((y == 2)[:, None] & (np.arange(len(y)) > 12)[:, None], -1, A)
    for option in ("resample", "reweight"):
        model = built(MetricLearningClassifier, class_balance=option, **QUICK).fit(X, rare)
        assert np.isfinite(model.predict_proba(X)).all()
    with pytest.raises(AnnotationError, match="use 'resample' or 'reweight'"):
        built(MetricLearningClassifier, class_balance="focal", **QUICK).fit(X, rare)


# -- the transformer ------------------------------------------------------------------------------

EXPECTED_FAILURES: dict[str, str] = {}
"""Checks of scikit-learn that cannot hold, and why: none."""


@parametrize_with_checks(
    [
        built(
            MetricLearningEmbedding, max_epochs=1, updates_per_epoch=1, random_state=0, device="cpu"
        )
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's checks provoke warnings on purpose
        with single_precision_in_row_checks(check):
            check(estimator)


def test_the_transformer_is_the_classifier_s_embedding():
    X, A, _ = make_crowd_problem()
    quick = {name: value for name, value in QUICK.items() if name != "C"}
    embedding = built(MetricLearningEmbedding, loss="center", **quick)
    Z = embedding.fit_transform(X, A)
    model = built(MetricLearningClassifier, loss="center", **QUICK).fit(X, A)
    np.testing.assert_array_equal(Z, model.transform(X))
    losses = (fitted.history_.column("center_loss").tolist() for fitted in (embedding, model))
    assert next(losses) == next(losses)
    assert embedding.get_feature_names_out()[0] == "metriclearningembedding0"
