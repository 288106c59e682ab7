"""What ICED synthesises; unusual crowds, networks and samplers."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import manyhands
from manyhands import AnnotationTable, ICEDClassifier, ICEDProtocol
from manyhands.classifiers.iced.rounds import ICEDRounds
from manyhands.classifiers.iced.warm_up import group_by_certainty, warm_up_phases
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting import Watch
from manyhands.metrics import minority_recall
from manyhands.nn import MLP, SynthesisModule
from manyhands.nn.synthesis import Decoder
from manyhands.sampling import CrowdSMOTE
from tests.building import built
from tests.classifiers.conftest import ICED_QUICK, imbalanced

QUICK = ICED_QUICK | {"batch_size": 64, "warm_up_batch_size": 64}


class Noting(CrowdSMOTE):
    """Notes what it was asked and what it chose, through every clone."""

    asked: list = []
    chosen: list = []

    def fit_resample(self, X, table, *, labels=None):
        made = super().fit_resample(X, table, labels=labels)
        self.asked.append(labels)
        self.chosen.append(self.parents_)
        return made


@pytest.fixture
def noting():
    Noting.asked.clear()
    Noting.chosen.clear()
    return Noting()


def phases_of(table, warm_up="certainty", n_groups=3):
    return warm_up_phases(table, group_by_certainty(table, n_groups), warm_up)


# -- synthesis --------------------------------------------------------------------------------


def test_a_round_makes_as_many_as_the_rare_classes_lack():
    X, table, _ = imbalanced()
    model = built(ICEDClassifier, **QUICK | {"max_epochs": 3}).fit(X, table)
    before = model.observed_posterior_.argmax(axis=1)
    for row in [row for row in model.history_ if row["stage"] == "train"]:
        lacking = (before == 0).sum() - (before == 1).sum()
        assert row["n_synthetic"] == lacking
        assert row["inferred_0"] + row["inferred_1"] == len(X)
        assert 0 <= row["synthetic_agreement"] <= 1
        before = np.repeat([0, 1], [int(row["inferred_0"]), int(row["inferred_1"])])


def test_synthetic_instances_enter_nothing_but_the_training():
    X, table, _ = imbalanced()
    model = built(ICEDClassifier, **QUICK).fit(X, table)
    assert model.history_[-1]["n_synthetic"] > 0
    assert model.posterior_.shape == model.observed_posterior_.shape == (len(X), 2)
    assert len(model.labels_) == len(X)
    # Confusions count observed annotations alone (and one as the crowd would give it).
    A = table.to_matrix()
    counts = np.array([[model.posterior_.T @ (A[:, u] == g) for g in (0, 1)] for u in range(9)])
    own = counts.transpose(0, 2, 1) + 0.01
    own /= own.sum(axis=2, keepdims=True)
    mass = model.posterior_.sum(axis=0)[None, :, None]
    pooled = own.mean(axis=0)
    np.testing.assert_allclose(model.confusion_, (mass * own + pooled) / (mass + 1), atol=1e-3)
    # A table with synthetic annotations scores as its observed part.
    _, more = CrowdSMOTE(random_state=0).fit_resample(X, table)
    some = more.select(instances=np.arange(len(X)))
    likelihood = model.annotation_log_likelihood
    assert likelihood(X, some) == likelihood(X, table)


@pytest.mark.parametrize("synthesis", ["decoder", "embedding", "input"])
def test_every_space_trains(synthesis):
    X, table, y = imbalanced(error=(0.05, 0.2))
    options = {**QUICK, "max_epochs": 6, "lr": 1e-2}
    model = built(ICEDClassifier, **options, protocol=ICEDProtocol(synthesis=synthesis)).fit(
        X, table
    )
    assert model.synthesis_ == synthesis
    assert (model.module_.decoder is not None) == (synthesis == "decoder")
    assert ("decoder" in {row["stage"] for row in model.history_}) == (synthesis == "decoder")
    assert minority_recall(y, model.predict(X)) > 0.9


def test_points_are_decoded_and_mixed_as_they_should_be():
    from manyhands.nn import ScaledClassifier, Standardize

    torch.manual_seed(0)
    backbone = MLP((5,), 3, hidden=(4,), dropout=0.0)
    x, z = torch.randn(6, 5), torch.randn(2, 4)
    scaler = Standardize((5,), "standard")
    scaler.fit_statistics([x])
    classifier = ScaledClassifier(scaler, backbone)
    spaces = {
        name: SynthesisModule(classifier, 3, 2, (5,), name).eval()
        for name in ("decoder", "embedding", "input")
    }
    scaled = (x - x.mean(0)) / x.std(0, correction=0)
    torch.testing.assert_close(spaces["input"].encode(x), scaled, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        spaces["decoder"].encode(x), backbone.body(scaled), atol=1e-5, rtol=1e-5
    )
    decoder = spaces["decoder"].decoder
    assert isinstance(decoder, Decoder)
    made = spaces["decoder"].decode(z)
    assert made.shape == (2, 5)
    torch.testing.assert_close(
        spaces["decoder"].mixed_logits(x, made)[6:], backbone.head(backbone.body(made))
    )
    torch.testing.assert_close(
        spaces["embedding"].mixed_logits(x, spaces["embedding"].decode(z))[6:], backbone.head(z)
    )
    back = spaces["input"].decode(spaces["input"].encode(x))
    torch.testing.assert_close(
        spaces["input"].mixed_logits(x, back)[6:], classifier(x), atol=1e-5, rtol=1e-5
    )
    for module in spaces.values():
        torch.testing.assert_close(module.mixed_logits(x, torch.empty(0))[:6], classifier(x))
    error = ((decoder(backbone.body(scaled)) - scaled) ** 2).mean()
    torch.testing.assert_close(spaces["decoder"].reconstruct(x), error, atol=1e-5, rtol=1e-5)


def test_the_decoder_learns_to_reconstruct():
    X, table, _ = imbalanced(width=4)
    options = {**QUICK, "decoder_epochs": 40, "lr": 1e-2}
    model = built(ICEDClassifier, {"name": "mlp", "dropout": 0.0}, **options).fit(X, table)
    errors = model.history_.column("reconstruction", "decoder")
    assert errors[-1] < 0.2 * errors[0]
    refitted = model.history_.column("reconstruction", "train")
    assert (refitted < 0.5).all()


def test_auto_is_the_input_where_the_network_has_no_embedding():
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    own = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    assert built(ICEDClassifier, own, **QUICK).fit(X, table).synthesis_ == "input"
    with pytest.raises(AnnotationError, match=r"synthesis='decoder' needs.*embed.*'input'"):
        built(ICEDClassifier, own, **QUICK, protocol=ICEDProtocol(synthesis="decoder")).fit(
            X, table
        )

    class Headless(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 2)

        def embed(self, x):
            return self.first(x).relu()

        def forward(self, x):
            return self.last(self.embed(x))

    assert built(ICEDClassifier, Headless(), **QUICK).fit(X, table).synthesis_ == "decoder"
    with pytest.raises(AnnotationError, match="head"):
        built(
            ICEDClassifier, Headless(), **QUICK, protocol=ICEDProtocol(synthesis="embedding")
        ).fit(X, table)


def test_images_sparse_features_and_datasets():
    _, table, y = imbalanced(n_frequent=40, n_rare=8)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(48, 1, 8, 8)).astype(np.float32) + y[:, None, None, None]
    backbone = {"name": "cnn", "channels": [4], "hidden": 8}
    model = built(ICEDClassifier, backbone, **QUICK).fit(images, table)
    assert model.predict_proba(images).shape == (48, 2)

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return 48

        def __getitem__(self, i):
            return images[i]

    unscaled = QUICK | {"scaling": None, "batch_size": 4}
    one = built(ICEDClassifier, backbone, **unscaled).fit(images, table)
    two = built(ICEDClassifier, backbone, **unscaled).fit(Items(), table)
    np.testing.assert_array_equal(one.predict_proba(images), two.predict_proba(images))


def test_intended_labels_are_forced_and_once_made_instances_stay():
    X, table, _ = imbalanced()
    rounds = []
    original = ICEDRounds.epoch_batches

    def noted(self, epoch):
        n = self.table.n_instances
        rounds.append((self.points.clone(), self.targets.targets[n:].clone()))
        return original(self, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ICEDRounds, "epoch_batches", noted)
        options = QUICK | {"max_epochs": 3}
        built(ICEDClassifier, **options, protocol=ICEDProtocol(synthetic_labels="intended")).fit(
            X, table
        )
        assert all((targets == torch.tensor([0.0, 1.0])).all() for _, targets in rounds)
        assert not torch.equal(rounds[0][0], rounds[1][0])
        rounds.clear()
        built(ICEDClassifier, **options, protocol=ICEDProtocol(regenerate=False)).fit(X, table)
        assert len(rounds) == 3
        assert all(torch.equal(points, rounds[0][0]) for points, _ in rounds)
        assert any((targets[:, 0] > 0.5).any() for _, targets in rounds)


def test_several_classes_are_each_raised_to_the_largest():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 25, 12])
    X = (rng.normal(size=(97, 4)) + 3 * y[:, None]).astype(np.float32)
    A = np.where(rng.random((97, 5)) < 0.85, y[:, None], rng.integers(3, size=(97, 5)))
    sampler = CrowdSMOTE()
    model = built(ICEDClassifier, sampler=sampler, **QUICK | {"max_epochs": 1}).fit(X, A)
    counts = np.bincount(model.observed_posterior_.argmax(axis=1))
    assert model.history_[-1]["n_synthetic"] == (counts.max() - counts).sum() > 0
    assert not hasattr(sampler, "resampling_"), "the sampler given was used in place"


def test_missing_annotations_and_instances_without_any():
    X, table, _ = imbalanced(error=(0.05, 0.2))
    A = table.to_matrix()
    rng = np.random.default_rng(0)
    A[rng.random(A.shape) < 0.5] = -1
    A[5] = -1
    model = built(ICEDClassifier, **QUICK).fit(X, A)
    np.testing.assert_allclose(model.posterior_[5], model.predict_proba(X[5:6])[0], rtol=1e-6)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)


def test_a_sampler_of_ones_own():
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)

    class Repeat:
        def fit_resample(self, X, table, *, labels):
            more = AnnotationTable.from_arrays(
                ["new", "new"],
                table.annotators[:2],
                [1, 1],
                instances=["new"],
                classes=table.classes,
                source="synthetic",
            )
            named = type(table)(
                table.instance,
                table.annotator,
                table.label,
                table.instances.astype(str),
                table.annotators,
                table.classes,
            )
            return np.concatenate([X, X[:1]]), named.with_added(more)

    model = built(
        ICEDClassifier, sampler=Repeat(), **QUICK, protocol=ICEDProtocol(synthesis="input")
    ).fit(X, table)
    assert model.history_[-1]["n_synthetic"] == 1
    with pytest.raises(AnnotationError, match=r"needs a sampler .* and Repeat has none"):
        built(
            ICEDClassifier,
            sampler=Repeat(),
            **QUICK,
            protocol=ICEDProtocol(synthesis="input", synthetic_labels="intended"),
        ).fit(X, table)


# -- unusual crowds, networks and samplers ----------------------------------------------------


@pytest.mark.parametrize("synthetic_labels", ["intended", "inferred"])
def test_classes_in_an_order_of_their_own(synthetic_labels):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [30, 8, 12])
    X = (rng.normal(size=(50, 3)) + 6 * y[:, None]).astype(np.float32)
    values = np.repeat(np.array(["b", "a", "c"], dtype=object)[y][:, None], 4, axis=1)
    table = AnnotationTable.from_matrix(values, classes=["b", "a", "c"])
    model = built(
        ICEDClassifier,
        **QUICK,
        protocol=ICEDProtocol(synthetic_labels=synthetic_labels, synthesis="input"),
    )
    model.fit(X, table)
    assert model.classes_.tolist() == ["b", "a", "c"]
    last = model.history_[-1]
    assert (last["n_synthetic"], last["synthetic_agreement"]) == (40, 1)
    assert [last[f"inferred_{name}"] for name in "bac"] == [30, 8, 12]
    np.testing.assert_allclose(model.class_prior_, 1 / 3, atol=1e-6)
    assert model.labels_.tolist() == values[:, 0].tolist()


@pytest.mark.filterwarnings("ignore::manyhands.sampling.FewCandidatesWarning")
@pytest.mark.parametrize("synthesis", ["decoder", "embedding", "input", None])
def test_one_annotated_instance_is_enough_to_fit(synthesis):
    X, A, _ = make_crowd_problem()
    A = np.where(np.arange(len(A))[:, None] == 3, np.arange(A.shape[1]) % 3, -1)
    model = built(ICEDClassifier, **QUICK, protocol=ICEDProtocol(synthesis=synthesis)).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()
    assert len(model.history_.column("loss", "warm_up")) == 0
    for warm_up in ("certainty", "together", "all"):
        table = AnnotationTable.from_matrix(A)
        assert phases_of(table, warm_up) == []


@pytest.mark.parametrize("batch_size", range(2, 9))
def test_batches_of_made_points_can_be_normalised(batch_size):
    X, table, _ = imbalanced(n_frequent=30, n_rare=3, error=(0.05, 0.2))
    options = QUICK | {"batch_size": batch_size, "warm_up_batch_size": 2, "max_epochs": 3}
    backbone = {"name": "mlp", "batch_norm": True, "hidden": [4]}
    model = built(
        ICEDClassifier, backbone, **options, protocol=ICEDProtocol(synthesis="embedding")
    ).fit(X, table)
    assert model.history_[-1]["n_synthetic"] > 10
    assert np.isfinite(model.predict_proba(X)).all()


def test_batches_of_one_in_the_warm_up_are_refused_by_name():
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    backbone = {"name": "mlp", "batch_norm": True}
    options = QUICK | {"warm_up_batch_size": 1}
    with pytest.raises(AnnotationError, match="warm_up_batch_size=1"):
        built(ICEDClassifier, backbone, **options).fit(X, table)
    built(ICEDClassifier, backbone, **options, protocol=ICEDProtocol(warm_up=None)).fit(X, table)
    built(ICEDClassifier, **options).fit(X, table)


def test_a_sampler_with_numbers_of_classes_is_saved_and_ones_own_is_not(tmp_path, noting):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    sampler = CrowdSMOTE(sampling_strategy={1: 60}, random_state=1)
    model = built(ICEDClassifier, sampler=sampler, **QUICK).fit(X, table)
    loaded = manyhands.load(model.save(tmp_path / "model"))
    assert loaded.sampler.sampling_strategy == {1: 60}
    assert loaded.sampler.get_params() == sampler.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))

    class Own:
        def fit_resample(self, X, table, *, labels):
            return CrowdSMOTE(random_state=0).fit_resample(X, table, labels=labels)

    for own, name in ((noting, "Noting"), (Own(), "Own")):
        model = built(ICEDClassifier, sampler=own, **QUICK).fit(X, table)
        with pytest.raises(AnnotationError, match=f"{name} is not a class of manyhands"):
            model.save(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_goal_that_is_reached_already_does_not_end_the_fit():
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    sampler = CrowdSMOTE(sampling_strategy={0: 2, 1: 1})
    model = built(ICEDClassifier, sampler=sampler, **QUICK).fit(X, table)
    assert model.history_.column("n_synthetic", "train").tolist() == [0, 0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda X, table: (X[1:], table), r"X of shape \(47, 6\)"),
        (
            lambda X, table: (X[1:], table.select(instances=np.arange(1, 48))),
            r"X of shape \(47, 6\)",
        ),
        (lambda X, table: (np.append(X, X[:1], axis=0), table), "49 rows of X for 48 instances"),
        (lambda X, table: (X, table.to_matrix()), "returned ndarray"),
        (lambda X, table: (X, None), "returned NoneType"),
        (
            lambda X, table: (
                X,
                AnnotationTable.from_matrix(table.to_matrix(), classes=[0, 1, 2]),
            ),
            "changed the classes or annotators",
        ),
        (
            lambda X, table: (X, table.select(annotators=np.arange(3))),
            "changed the classes or annotators",
        ),
        (lambda X, table: (np.where(X > 1, np.nan, X), table), "not finite"),
    ],
)
def test_samplers_that_do_more_than_add_are_named(returned, message):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)

    class Own:
        def fit_resample(self, X, table, *, labels):
            return returned(X, table)

    with pytest.raises(AnnotationError, match=rf"sampler: Own\.fit_resample .*{message}"):
        built(ICEDClassifier, sampler=Own(), **QUICK, protocol=ICEDProtocol(synthesis="input")).fit(
            X, table
        )


def test_the_class_of_a_sampler_is_no_sampler():
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    with pytest.raises(AnnotationError, match=r"sampler=CrowdSMOTE is a class; .*CrowdSMOTE\(\)"):
        built(ICEDClassifier, sampler=CrowdSMOTE, **QUICK).fit(X, table)


def test_gold_that_is_known_of_some_or_of_none_is_watched():
    X, table, y = imbalanced(n_frequent=40, n_rare=8)
    some = np.where(np.arange(48) % 2 == 0, y.astype(object), None)
    model = built(ICEDClassifier, **QUICK).fit(X, table, watch=Watch(y_train=some))
    last = model.history_[-1]
    assert last["inference_accuracy"] == (model.labels_[::2] == y[::2]).mean()
    assert last["inference_minority_recall"] == minority_recall(y[::2], model.labels_[::2])
    model = built(ICEDClassifier, **QUICK).fit(
        X, table, watch=Watch(y_train=np.full(48, None, dtype=object))
    )
    assert "inference_accuracy" not in model.history_[-1]
    assert "inferred_1" in model.history_[-1]


def test_annotations_without_weight_are_none():
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    weight = np.ones(table.n_annotations)
    weight[table.instance == 5] = 0  # all of an instance's
    weight[::11] = 0
    weighted = AnnotationTable.from_arrays(
        table.instance, table.annotator, table.label, weight=weight, n_instances=48
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = built(ICEDClassifier, **QUICK).fit(X, weighted)
    plain = built(ICEDClassifier, **QUICK).fit(X, table.take(weight > 0))
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    np.testing.assert_allclose(model.observed_posterior_, plain.observed_posterior_)
