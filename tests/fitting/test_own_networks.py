"""A user's own networks, Datasets and DataLoaders: real cases, and every method with them."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import manyhands
from manyhands import (
    AggNetClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    GraphCompleter,
    ICEDClassifier,
    NeuCrowdClassifier,
    cross_predict,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting import Watch
from manyhands.fitting.embedding import EmbeddingClassifier
from manyhands.registry import all_classifiers
from manyhands.training import Features
from tests.building import built
from tests.classifiers.conftest import FEW_PARTS

METHODS = [CrowdLayerClassifier, CoNALClassifier, AggNetClassifier]
OWN = [cls for _, cls in all_classifiers() if "backbone" in cls().get_params(deep=False)]
VOCABULARY, CLASSES = 40, 3


def crowd_of(y, rng, n_annotators=6, right=0.8):
    """Annotations (n, R) of annotators who are right in 8 of 10 cases; a third is missing."""
    A = np.where(rng.random((len(y), n_annotators)) < right, y[:, None], rng.integers(0, CLASSES))
    A[rng.random(A.shape) < 0.35] = -1
    A[np.arange(len(y)), np.arange(len(y)) % n_annotators] = y
    return A


class Sentences(Dataset):
    """Sentences of 3 to 12 tokens, as a tokenizer returns them: not padded, labels beside them.

    The class of a sentence is that of most of its tokens: 1 to 9, 10 to 18 or 19 to 27.
    """

    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, CLASSES, n)
        self.items = []
        for label in self.y:
            own = rng.integers(1, 10, rng.integers(2, 9)) + 9 * label
            noise = rng.integers(28, VOCABULARY, rng.integers(1, 5))
            self.items.append(rng.permutation(np.concatenate([own, noise])))
        self.A = crowd_of(self.y, rng)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return {"input_ids": torch.from_numpy(self.items[i])}, "an item may hold more"


def pad(items):
    """Pad the sentences of a batch to its longest, and mask the padding."""
    ids = [entry["input_ids"] for entry, _ in items]
    padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    return {"input_ids": padded, "attention_mask": (padded > 0).long()}


class Transformer(nn.Module):
    """A small encoder, with the arguments and the output of Hugging Face's models."""

    def __init__(self, width=16):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def pooled(self, input_ids, attention_mask):
        encoded = self.encoder(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        mask = attention_mask[..., None]
        return (encoded * mask).sum(1) / mask.sum(1).clamp_min(1)

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(logits=self.head(self.pooled(input_ids, attention_mask)))


class EmbeddingTransformer(Transformer):
    """The same with ``embed``, which gets the entries by name, too."""

    embed = Transformer.pooled


class Images(Dataset):
    """Grey images (1, 8, 8) as uint8, whose class is the bright third; items are tuples."""

    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, CLASSES, n)
        pixels = rng.integers(0, 120, (n, 1, 8, 8))
        for image, label in zip(pixels, self.y, strict=True):
            image[:, :, 3 * label : 3 * label + 2] += 110
        self.pixels = torch.from_numpy(pixels.astype(np.uint8))
        self.A = crowd_of(self.y, rng)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, i):
        return self.pixels[i].float() / 255, int(self.y[i])


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.head = nn.Linear(128, CLASSES)

    def embed(self, x):
        return self.body(x).flatten(1)

    def forward(self, x):
        return self.head(self.embed(x))


def new(network):
    """Make a network with the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return network()


def sentences(n=240, seed=0, **options):
    data = Sentences(n, seed)
    return DataLoader(data, collate_fn=pad, **options), data


def quick(cls, backbone, **parameters):
    chosen = {"max_epochs": 12, "batch_size": 32, "lr": 5e-3, "random_state": 0, "device": "cpu"}
    return built(cls, backbone=backbone, **chosen | parameters)


# -- the two real cases ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", METHODS)
def test_a_transformer_of_padded_sentences(cls, tmp_path):
    (X, data), (X_new, unseen) = sentences(180), sentences(150, seed=1)
    model = quick(cls, new(Transformer), max_epochs=8, lr=1e-2).fit(X, data.A)
    assert (model.predict(X_new) == unseen.y).mean() > 0.9
    assert model.score(X_new, unseen.y) > 0.9
    grid = model.predict_annotation_proba(X_new)
    assert grid.shape == (150, 6, CLASSES)
    assert np.isfinite(model.annotation_log_likelihood(X_new, unseen.A))
    loaded = manyhands.load(model.save(tmp_path / "model"), backbone=Transformer())
    np.testing.assert_array_equal(loaded.predict_proba(X_new), model.predict_proba(X_new))
    np.testing.assert_array_equal(loaded.predict_annotation_proba(X_new), grid)


@pytest.mark.parametrize("cls", METHODS)
def test_a_convolutional_network_of_images(cls, tmp_path):
    data, unseen = Images(240), Images(150, seed=1)
    model = quick(cls, new(Convolutions), max_epochs=8).fit(data, data.A)
    assert (model.predict(unseen) == unseen.y).mean() > 0.9
    assert model.transform(unseen).shape == (150, 128)
    loaded = manyhands.load(
        model.save(tmp_path / "model"), backbone=lambda shape, n: Convolutions()
    )
    np.testing.assert_array_equal(loaded.predict_proba(unseen), model.predict_proba(unseen))


def test_padding_changes_no_prediction():
    X, data = sentences(60)
    model = quick(CrowdLayerClassifier, new(Transformer), max_epochs=2).fit(X, data.A)
    one_by_one = np.concatenate(
        [model.predict_proba(DataLoader([data[i]], collate_fn=pad)) for i in range(len(data))]
    )
    np.testing.assert_allclose(one_by_one, model.predict_proba(X), atol=1e-5)
    batches = DataLoader(data, collate_fn=pad, batch_size=7)
    np.testing.assert_allclose(model.predict_proba(batches), model.predict_proba(X), atol=1e-5)
    whole = pad([data[i] for i in range(len(data))])
    np.testing.assert_allclose(model.predict_proba(whole), model.predict_proba(X), atol=1e-5)


# -- DataLoaders ----------------------------------------------------------------------------------


class Drawing(Sentences):
    """Sentences of which every reading leaves out one token, drawn by torch."""

    def __getitem__(self, i):
        entry, rest = super().__getitem__(i)
        ids = entry["input_ids"]
        keep = torch.arange(len(ids)) != torch.randint(len(ids), ())
        return {"input_ids": ids[keep]}, rest


@pytest.mark.slow
def test_workers_change_nothing():
    X, data = sentences(60)
    with_workers, _ = sentences(60, num_workers=2, pin_memory=True)
    options = {"max_epochs": 2, "validation": 0.3, "batch_size": 20}
    plain = quick(CrowdLayerClassifier, new(Transformer), **options).fit(X, data.A)
    model = quick(CrowdLayerClassifier, new(Transformer), **options).fit(with_workers, data.A)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict_proba(with_workers), plain.predict_proba(X))


@pytest.mark.slow
def test_workers_that_draw_draw_the_same_in_every_fit_and_other_numbers_in_every_epoch():
    data = Drawing(40)
    X = DataLoader(data, collate_fn=pad, num_workers=1)
    fits = [quick(CrowdLayerClassifier, new(Transformer), max_epochs=1).fit(X, data.A)] + [
        quick(CrowdLayerClassifier, new(Transformer), max_epochs=2).fit(X, data.A) for _ in range(2)
    ]
    losses = [[row["loss"] for row in model.history_] for model in fits]
    assert losses[1] == losses[2]
    assert losses[0] == losses[1][:1]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        features = Features(X, torch.device("cpu"))
        rows = torch.arange(40)
        first, again = (torch.cat(list(features.batches(rows, 40))) for _ in range(2))
        assert torch.equal(first, again), "nothing was drawn from torch's generator"
        torch.rand(1)
        assert not torch.equal(first, torch.cat(list(features.batches(rows, 40))))


def test_a_loader_of_arrays_is_its_dataset():
    data = Images(60)
    X = DataLoader(data, batch_size=16, shuffle=True)
    model = quick(CrowdLayerClassifier, new(Convolutions), max_epochs=2)
    bare = copy.deepcopy(model).fit(data, data.A).predict_proba(data)
    model.fit(X, data.A)
    np.testing.assert_allclose(model.predict_proba(X), bare, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(data), bare, atol=1e-6)


def test_folds_watches_validation_and_stacking_take_loaders():
    (X, data), (X_new, unseen) = sentences(90), sentences(40, seed=1)
    model = quick(CrowdLayerClassifier, new(Transformer), max_epochs=2)
    proba = cross_predict(model, X, data.A, cv=2)
    assert np.shape(getattr(proba, "proba", proba)) == (90, CLASSES)
    gold = quick(CrowdLayerClassifier, new(Transformer), max_epochs=2, validation=(X_new, unseen.y))
    gold.fit(X, data.A, watch=Watch(test=(X_new, unseen.y)))
    assert np.isfinite(gold.history_.column("test_accuracy")).all()
    images = Images(90)
    few = {"n_rounds": 2, "n_folds": 2, "random_state": 0}
    stack = CrowdStackingClassifier(members=[("logistic", "linear")], **few)
    flat = DataLoader(TensorDataset(images.pixels.flatten(1).float()), num_workers=0)
    assert stack.fit(flat, images.A).predict(flat).shape == (90,)
    with pytest.raises(AnnotationError, match="instances that are dicts"):
        CrowdStackingClassifier().fit(X, data.A)


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2)


def test_what_cannot_be_read_is_refused():
    _, data = sentences(60)
    model = quick(CrowdLayerClassifier, new(Transformer), max_epochs=1)
    for stream in (Stream(), DataLoader(Stream())):
        with pytest.raises(AnnotationError, match="map-style Dataset, with __len__"):
            model.fit(stream, data.A)
    with pytest.raises(AnnotationError, match="collate_fn that pads"):
        model.fit(data, data.A)
    with pytest.raises(AnnotationError, match=r"collate_fn made 1 rows of \d+ instances"):
        model.fit(DataLoader(data, collate_fn=lambda items: pad(items[:1])), data.A)
    with pytest.raises(AnnotationError, match="X gives batches of type list"):
        model.fit(DataLoader(data, collate_fn=lambda items: {"x": 1}["x"] and [[1]]), data.A)
    with pytest.raises(AnnotationError, match="X has 59 rows"):
        model.fit(DataLoader(torch.utils.data.Subset(data, range(59)), collate_fn=pad), data.A)


# -- every method ---------------------------------------------------------------------------------

NEED = {"PersonalClassifier": "linear"}


@pytest.mark.parametrize("network", [Transformer, EmbeddingTransformer])
@pytest.mark.parametrize("cls", OWN)
def test_every_method_takes_sentences_or_says_what_it_needs(cls, network, tmp_path):
    X, data = sentences(36)
    model = quick(cls, new(network), max_epochs=2, **FEW_PARTS.get(cls.__name__, {}))
    if cls.__name__ in NEED:
        with pytest.raises((AnnotationError, ValueError), match=NEED[cls.__name__]):
            model.fit(X, data.A)
        return
    proba = model.fit(X, data.A).predict_proba(X)
    assert proba.shape == (36, CLASSES)
    assert np.isfinite(proba).all()
    assert hasattr(model, "transform") == (
        network is EmbeddingTransformer or issubclass(cls, EmbeddingClassifier)
    )
    loaded = manyhands.load(model.save(tmp_path / "model"), backbone=network())
    np.testing.assert_array_equal(loaded.predict_proba(X), proba)


def test_what_computes_with_instances_says_that_sentences_are_none():
    X, data = sentences(60)
    for cls, option, message in (
        (
            ICEDClassifier,
            {"synthesis": "input"},
            "synthesis='embedding' with a backbone that has",
        ),
        (NeuCrowdClassifier, {"regression": "both"}, "use regression='embedding'"),
        (ICEDClassifier, {"synthesis": "embedding"}, "needs a backbone with embed"),
    ):
        with pytest.raises(AnnotationError, match=message):
            quick(cls, Transformer(), **option).fit(X, data.A)
    with pytest.raises(AnnotationError, match="instances that are dicts"):
        GraphCompleter(max_epochs=1).fit(X, data.A)


# -- what is no network ---------------------------------------------------------------------------

LAYERS = [nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 3))]


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize(
    ("backbone", "says"),
    [
        (LAYERS, "backbone is a list of layers, not a network; give torch.nn.Sequential(*layers)"),
        (
            {"first": LAYERS[0], "second": LAYERS[1]},
            "backbone is a dict of layers, not a network; give torch.nn.Sequential(OrderedDict(...",
        ),
        (
            (16, 8),
            "backbone is the tuple (16, 8), not a network; give {'name': 'mlp', 'hidden': [16, 8]}",
        ),
        (["mlp"], "backbone is ['mlp']; give a torch nn.Module, a name such as 'mlp'"),
        (3, "backbone is 3; give a torch nn.Module"),
    ],
)
def test_loose_layers_as_a_backbone_are_one_sentence(kind, backbone, says):
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError) as raised:
        kind(backbone=backbone).fit(X, A)
    assert str(raised.value).startswith(says)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", OWN)
def test_a_network_for_other_features_is_named(kind):
    """Some methods ask it for the width of its output before they are trained."""
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match=r"backbone fails on instances of shape \(4,\)"):
        kind(backbone=nn.Linear(9, 3)).fit(X, A)
