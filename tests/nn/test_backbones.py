"""Convolutional backbones: shapes, sizes known from the literature, weights handed in."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from manyhands import AggregatedClassifier, CrowdInGClassifier, CrowdLayerClassifier, load
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.nn import BACKBONES, Standardize, make_backbone
from manyhands.nn.backbones import given

IMAGES = ("cnn", "vgg16", "resnet18")


def size(network):
    return sum(parameter.numel() for parameter in network.parameters())


def small_images(n=12):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 2, 8, 8)).astype(np.float32) + y[:, None, None, None]
    return X, y


@pytest.mark.parametrize("name", IMAGES)
def test_shapes(name):
    network = make_backbone(name, (3, 32, 32), 7).eval()
    for n in (1, 3):
        x = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            embedding, logits = network.embed(x), network(x)
            assert logits.shape == (n, 7)
            assert embedding.shape == (n, network.head.in_features)
            torch.testing.assert_close(network.head(embedding), logits)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_parameter_gets_a_gradient(name):
    torch.manual_seed(0)
    network = make_backbone(name, (3, 32, 32), 4)
    network(torch.randn(2, 3, 32, 32)).square().sum().backward()
    for parameter, value in network.named_parameters():
        assert value.grad is not None, parameter
        assert value.grad.abs().sum() > 0, parameter


def test_resnet18_has_the_size_of_the_cifar_form():
    assert size(make_backbone("resnet18", (3, 32, 32), 10)) == 11_173_962
    # The same with 100 classes: 90 rows and biases of the head more.
    assert size(make_backbone("resnet18", (3, 32, 32), 100)) == 11_173_962 + 90 * 513


def test_resnet18_is_four_stages_of_two_blocks():
    network = make_backbone("resnet18", (3, 32, 32), 10)
    kinds = [type(layer) for layer in network.modules()]
    # 17 convolutions and a linear layer are the 18; three shortcuts have one each, too.
    assert (kinds.count(nn.Conv2d), kinds.count(nn.Linear)) == (17 + 3, 1)
    assert kinds.count(nn.MaxPool2d) == 0
    sides = []
    x = torch.zeros(1, 3, 32, 32)
    for layer in network.eval().body:
        x = layer(x)
        sides += [(x.shape[1], x.shape[2])] if type(layer).__name__ == "BasicBlock" else []
    assert sides == [s for s in ((64, 32), (128, 16), (256, 8), (512, 4)) for _ in range(2)]


def test_a_block_is_its_residual_and_its_shortcut():
    torch.manual_seed(0)
    block = make_backbone("resnet18", (3, 32, 32), 2).body[3].eval()
    x = torch.randn(2, 64, 8, 8)
    torch.testing.assert_close(block(x), (block.residual(x) + x).clamp_min(0))


def test_cnn_has_the_layers_asked_for():
    network = make_backbone({"name": "cnn", "channels": [4, 6], "hidden": 5}, (2, 9, 12), 3)
    convolutions = 9 * (2 * 4 + 4 * 6) + 2 * (4 + 6)
    # Two halvings leave 2 x 3 pixels of 9 x 12.
    hidden = 6 * (2 * 3) * 5 + 5
    assert size(network) == convolutions + hidden + 5 * 3 + 3
    assert network.embed(torch.zeros(2, 2, 9, 12)).shape == (2, 5)
    dropout = make_backbone({"name": "cnn", "dropout": 0.2}, (3, 32, 32), 3).body[-1]
    assert dropout.p == 0.2


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("cnn", (512,), r"shape \(512,\).*at least 8 x 8"),
        ("cnn", (3, 7, 32), r"\(3, 7, 32\).*at least 8 x 8"),
        ("vgg16", (3, 16, 16), "32 x 32"),
        ("resnet18", (32, 32), r"\(32, 32\).*image \(channels, height, width\)"),
        ("resnet18", (3, 4, 4), "at least 8 x 8"),
        ({"name": "cnn", "channels": []}, (3, 32, 32), r"channels=\[\]"),
        ({"name": "cnn", "channels": [8, 0]}, (3, 32, 32), r"channels=\[8, 0\]"),
        ({"name": "cnn", "hidden": 2.5}, (3, 32, 32), r"hidden=2\.5"),
        ({"name": "cnn", "dropout": 2}, (3, 32, 32), "dropout"),
        ({"name": "resnet18", "depth": 50}, (3, 32, 32), "depth"),
    ],
)
def test_what_does_not_fit_is_refused(name, shape, says):
    with pytest.raises(AnnotationError, match=says):
        make_backbone(name, shape, 10)


# -- weights handed in --------------------------------------------------------------------------


def equal(first, second):
    a, b = first.state_dict(), second.state_dict()
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", IMAGES)
def test_weights_come_from_a_state_dict_or_a_file(name, tmp_path):
    given = make_backbone(name, (3, 32, 32), 2)
    assert not equal(make_backbone(name, (3, 32, 32), 2), given)
    weights = given.state_dict()
    first = next(iter(weights.values())).clone()
    save_file(weights, tmp_path / "start.safetensors")
    for start in (weights, tmp_path / "start.safetensors", str(tmp_path / "start.safetensors")):
        network = make_backbone({"name": name, "weights": start}, (3, 32, 32), 2)
        assert equal(network, given)
    with torch.no_grad():
        next(network.parameters()).add_(1)
    assert not equal(network, given)
    assert torch.equal(next(given.parameters()), first), "what was handed in stays as it is"


def test_weights_without_a_head_serve_other_classes():
    weights = make_backbone("cnn", (3, 32, 32), 10).state_dict()
    body = {key: value for key, value in weights.items() if not key.startswith("head.")}
    network = make_backbone({"name": "cnn", "weights": body}, (3, 32, 32), 4)
    assert network.head.out_features == 4
    assert all(torch.equal(network.state_dict()[key], value) for key, value in body.items())


def test_unfitting_weights_are_named(tmp_path):
    weights = make_backbone("cnn", (3, 32, 32), 10).state_dict()

    def refused(says, given, n_classes=10):
        with pytest.raises(AnnotationError, match=says) as error:
            make_backbone({"name": "cnn", "weights": given}, (3, 32, 32), n_classes)
        assert "tensor(" not in str(error.value), "the weights themselves are not shown"

    lacking = {key: value for key, value in weights.items() if key != "body.0.weight"}
    refused(r"'cnn': weights lack body\.0\.weight", lacking)
    refused(r"weights have unknown entries fc\.bias", {**weights, "fc.bias": torch.zeros(1)})
    refused(r"weights lack .*, \.\.\. \(\d+\)", {})
    refused(r"size mismatch for head\.weight", weights, n_classes=4)
    refused("nowhere", tmp_path / "nowhere.safetensors")
    refused("neither a state dict nor", "model.pt")
    (tmp_path / "broken.safetensors").write_bytes(b"no")
    refused("broken.*cannot be read", tmp_path / "broken.safetensors")


def test_a_model_that_started_from_weights_is_saved_without_them(tmp_path):
    X, y = small_images()
    weights = make_backbone("cnn", (2, 8, 8), 3).state_dict()
    spec = {"name": "cnn", "weights": weights}
    options = {"max_epochs": 1, "batch_size": 6, "random_state": 0, "device": "cpu"}
    model = AggregatedClassifier(backbone=spec, **options).fit(X, y)
    other = AggregatedClassifier(backbone="cnn", **options).fit(X, y)
    assert not np.allclose(model.predict_proba(X), other.predict_proba(X))
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.backbone == {"name": "cnn"}
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_vgg16_has_the_layers_of_configuration_d_with_batch_normalisation():
    network = make_backbone("vgg16", (3, 32, 32), 10)
    kinds = [type(layer) for layer in network.modules()]
    assert (kinds.count(nn.Conv2d), kinds.count(nn.BatchNorm2d)) == (13, 13)
    assert (kinds.count(nn.MaxPool2d), kinds.count(nn.Linear)) == (5, 1)
    convolutions = 9 * sum(
        given * made
        for given, made in zip(
            (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512),
            (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512),
            strict=True,
        )
    )
    norms = 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512)
    assert sum(p.numel() for p in network.parameters()) == convolutions + norms + 512 * 10 + 10


def test_shapes_of_vgg16s_logits_and_embedding():
    network = make_backbone("vgg16", (3, 32, 32), 4).eval()
    x = torch.zeros(2, 3, 32, 32)
    assert network(x).shape == (2, 4)
    assert network.embed(x).shape == (2, 512)


@pytest.mark.parametrize("shape", [(512,), (3, 16, 16), (3, 224, 224)])
def test_vgg16_refuses_other_inputs(shape):
    with pytest.raises(AnnotationError, match="32 x 32"):
        make_backbone("vgg16", shape, 10)


# -- images with their channels last ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "channels"), [("cnn", 1), ("cnn", 3), ("vgg16", 3), ("resnet18", 1)]
)
def test_channels_may_be_last(name, channels):
    last = make_backbone(name, (32, 32, channels), 7).eval()
    first = make_backbone(name, (channels, 32, 32), 7).eval()
    first.load_state_dict(last.state_dict())
    x = torch.randn(2, 32, 32, channels, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(last(x), first(x.permute(0, 3, 1, 2)), rtol=1e-4, atol=1e-5)


def test_images_are_standardised_by_channel_wherever_it_stands():
    x = torch.randn(5, 8, 6, 3, generator=torch.Generator().manual_seed(0))
    x = x * torch.tensor([1.0, 10.0, 100.0]) + 3
    last, first = Standardize((8, 6, 3), "standard"), Standardize((3, 8, 6), "standard")
    last.fit_statistics([x])
    first.fit_statistics([x.permute(0, 3, 1, 2)])
    assert last.scale.shape == (1, 1, 3)
    torch.testing.assert_close(last(x).permute(0, 3, 1, 2), first(x.permute(0, 3, 1, 2)))
    torch.testing.assert_close(last(x).std((0, 1, 2), correction=0), torch.ones(3))


def test_a_classifier_takes_either_order(tmp_path):
    X, y = small_images()
    images = np.concatenate([X, X[:, :1]], axis=1).transpose(0, 2, 3, 1)
    backbone = {"name": "cnn", "channels": [4], "hidden": 8}
    options = {"backbone": backbone, "max_epochs": 1, "random_state": 0}
    last = AggregatedClassifier(**options).fit(images, y)
    first = AggregatedClassifier(**options).fit(images.transpose(0, 3, 1, 2), y)
    expected = first.predict_proba(images.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(last.predict_proba(images), expected, rtol=1e-4)
    loaded = load(last.save(tmp_path / "model"))
    assert (loaded.predict_proba(images) == last.predict_proba(images)).all()


# -- token ids, dicts, outputs with logits ----------------------------------------------------

ONE_EPOCH = {"max_epochs": 1, "random_state": 0}


class Tokens(nn.Module):
    """Mean of token embeddings; remembers what it was given."""

    def __init__(self, input_shape=(6,), n_classes=3):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, n_classes)
        self.seen = []

    def forward(self, x):
        self.seen.append(x.detach().clone())
        return self.head(self.embedding(x).mean(1))


class Named(nn.Module):
    """Like a model of Hugging Face: entries by name, and an output with logits."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask, **others):
        assert input_ids.dtype == attention_mask.dtype == torch.int64
        assert not others
        words = self.embedding(input_ids) * attention_mask[..., None]
        return SimpleNamespace(logits=self.head(words.mean(1)), loss=None)


class Items(torch.utils.data.Dataset):
    def __init__(self, ids, width=6):
        self.ids, self.width = ids, width

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids = torch.tensor(self.ids[i][: self.width])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture
def tokens():
    _, A, _ = make_crowd_problem()
    return np.random.default_rng(0).integers(0, 50, (len(A), 6)), A


@pytest.mark.parametrize("backbone", [Tokens(), Tokens, lambda shape, c: Tokens(shape, c)])
def test_token_ids_are_never_standardised(tokens, backbone):
    ids, A = tokens
    model = CrowdLayerClassifier(backbone, **ONE_EPOCH).fit(ids, A)
    seen = torch.cat(model.module_.classifier.backbone.seen).unique()
    assert seen.tolist() == sorted(set(ids.ravel().tolist()))
    same = CrowdLayerClassifier(backbone, scaling=None, **ONE_EPOCH).fit(ids, A)
    assert (model.predict_proba(ids) == same.predict_proba(ids)).all()


def test_ids_that_an_embedding_lacks_are_named(tokens):
    ids, A = tokens
    with pytest.raises(AnnotationError, match="but the embedding of backbone has 50 rows"):
        CrowdLayerClassifier(Tokens(), **ONE_EPOCH).fit(ids + 25, A)
    with pytest.raises(AnnotationError, match="whole numbers"):
        CrowdLayerClassifier(Tokens(), **ONE_EPOCH).fit(ids + 0.5, A)


def test_sequences_of_different_lengths_are_to_be_padded(tokens):
    ids, A = tokens
    ragged = [row[: 2 + i % 3] for i, row in enumerate(ids.tolist())]
    for rows in (ragged, np.array(ragged, dtype=object)):
        with pytest.raises(AnnotationError, match=r"\(2 to 4 entries\).*pad sequences"):
            CrowdLayerClassifier().fit(rows, A)


def test_ids_beyond_what_is_exact_are_named(tokens, monkeypatch):
    monkeypatch.setattr(given, "LARGEST_EXACT", 40)
    ids, A = tokens
    with pytest.raises(AnnotationError, match="exact up to 39 only; map the tokens"):
        CrowdLayerClassifier(Tokens(), **ONE_EPOCH).fit(ids, A)


def test_grey_images_without_a_channel_are_told_how_to_get_one():
    with pytest.raises(AnnotationError, match=r"channel by X\[:, None\]"):
        make_backbone("cnn", (12, 12), 3)


@pytest.mark.parametrize("classifier", [CrowdLayerClassifier, CrowdInGClassifier])
def test_instances_may_be_dicts_and_outputs_may_have_logits(tokens, classifier, tmp_path):
    ids, A = tokens
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    model = classifier(Named(), **ONE_EPOCH).fit(Items(ids), A)
    proba = model.predict_proba(Items(ids))
    assert (model.predict_proba(arrays) == proba).all()
    again = classifier(Named(), **ONE_EPOCH).fit(arrays, A)
    assert again.predict_proba(arrays).shape == proba.shape
    likelihood = model.annotation_log_likelihood
    assert likelihood(arrays, A) == likelihood(Items(ids), A)
    loaded = load(model.save(tmp_path / "model"), backbone=Named())
    assert (loaded.predict_proba(arrays) == proba).all()
    arrays["attention_mask"].flags.writeable = False  # As pandas returns its columns.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (model.predict_proba(arrays) == proba).all()


def test_unfitting_dicts_are_named(tokens):
    ids, A = tokens
    model = CrowdLayerClassifier(Named(), **ONE_EPOCH).fit(Items(ids), A)
    assert len(model.predict(Items(ids, width=4))) == len(ids), "the network takes any length"
    with pytest.raises(AnnotationError, match=r"input_ids \(6,\), but the network was fitted on"):
        model.predict({"input_ids": ids})
    with pytest.raises(AnnotationError, match="backbone=None takes arrays"):
        CrowdLayerClassifier(**ONE_EPOCH).fit(Items(ids), A)
    with pytest.raises(AnnotationError, match="lengths differ"):
        model.predict({"input_ids": ids, "attention_mask": ids[:3]})
    with pytest.raises(AnnotationError, match="'words' holds no numbers"):
        model.predict({"input_ids": ids, "words": np.full(len(ids), "a")})
    with pytest.raises(AnnotationError, match="'input_ids' holds an integer beyond"):
        model.predict({"input_ids": ids + (1 << 25), "attention_mask": ids})
