"""Small models of the packages that the adapters are for, made here: nothing is downloaded."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from manyhands import CrowdStackingClassifier, make_crowd
from manyhands.encoders import (
    EmbeddingCache,
    ImageEncoder,
    SentenceTransformerEncoder,
    TimmEncoder,
    TorchEncoder,
    TransformersEncoder,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "acting", "nothing"]
TEXTS = ["a good film", "a bad film", "good good acting", "nothing bad"]


def package(name):
    """Import a package, or skip: also if a wheel of torchvision does not fit that of torch."""
    try:
        return pytest.importorskip(name, reason=f"pip install {name}", exc_type=ImportError)
    except RuntimeError as error:
        pytest.skip(f"{name} does not work with this torch: {error}")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a BERT of two layers and its tokenizer, weights as they were drawn."""
    transformers, tokenizers = package("transformers"), package("tokenizers")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def loaded(folder):
    transformers = package("transformers")
    return (
        transformers.AutoModel.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder),
    )


def states_of(model, tokenizer, text):
    """Hidden states of one text, which needs no padding."""
    with torch.inference_mode():
        tokens = tokenizer([text], return_tensors="pt", truncation=True, max_length=8)
        return model.eval()(**tokens).last_hidden_state[0].numpy()


def test_a_bert_given_as_an_object_or_named_as_a_folder(bert, tmp_path):
    model, tokenizer = loaded(bert)
    texts = [*TEXTS, "film " * 20]  # Longer than the model takes.
    states = [states_of(model, tokenizer, text) for text in texts]
    mean = TransformersEncoder(model.train(), tokenizer, batch_size=3).fit_transform(texts)
    np.testing.assert_allclose(mean, [each.mean(axis=0) for each in states], atol=1e-5)
    first = TransformersEncoder(model, tokenizer, pooling="cls").transform(texts)
    np.testing.assert_allclose(first, [each[0] for each in states], atol=1e-5)
    assert model.training
    for name in (bert, str(bert)):
        named = TransformersEncoder(name, device="cpu", cache=EmbeddingCache(tmp_path, "float32"))
        np.testing.assert_allclose(named.transform(texts), mean, atol=1e-5)
    assert [kept["rows"] for kept in EmbeddingCache(tmp_path).info()] == [5]


@pytest.mark.filterwarnings("ignore:Importing from:DeprecationWarning")  # Where models were.
def test_a_sentence_transformer_of_the_same_layers(bert, tmp_path):
    SentenceTransformer = package("sentence_transformers").SentenceTransformer
    models = package("sentence_transformers.models")
    layer = models.Transformer(str(bert), max_seq_length=8)
    model = SentenceTransformer(modules=[layer, models.Pooling(8, "mean")], device="cpu")
    expected = TransformersEncoder(*loaded(bert)).transform(TEXTS)
    found = SentenceTransformerEncoder(model, batch_size=3).fit_transform(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    unit = SentenceTransformerEncoder(model, normalize=True, cache=tmp_path / "kept")
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(unit.transform(TEXTS), expected / lengths, atol=1e-3)
    model.save(str(tmp_path / "saved"))
    named = SentenceTransformerEncoder(str(tmp_path / "saved"), local_files_only=True)
    np.testing.assert_allclose(named.transform(TEXTS), expected, atol=1e-5)


def test_a_bert_in_front_of_the_stack(bert):
    texts = [f"a {word} film" for _ in range(30) for word in ("good", "bad")]
    y = np.array([1, 0] * 30)
    features = TransformersEncoder(*loaded(bert)).fit_transform(texts)
    crowd = make_crowd(y, n_annotators=5, random_state=0)
    model = CrowdStackingClassifier(n_rounds=1, random_state=0).fit(features, crowd)
    assert model.score(features, y) == 1


def images(n=6, side=16):
    return np.random.default_rng(0).integers(0, 255, (n, side, side, 3), dtype=np.uint8)


def small_cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def to_tensor(image):
    return torch.tensor(np.asarray(image), dtype=torch.float32).permute(2, 0, 1) / 255


def test_a_convolutional_network_with_batch_statistics(tmp_path):
    X, model = images(), small_cnn().train()
    paths = [tmp_path / f"{number}.png" for number in range(len(X))]
    for path, image in zip(paths, X, strict=True):
        Image.fromarray(image).save(path)
    with torch.inference_mode():
        expected = model.eval()(torch.stack([to_tensor(image) for image in X])).numpy()
    encoder = TorchEncoder(model.train(), to_tensor, batch_size=2, cache=tmp_path / "kept")
    for given in (X, paths):
        np.testing.assert_allclose(encoder.fit_transform(given), expected, atol=1e-3)
    assert model.training
    assert int(model[1].num_batches_tracked) == 0


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_a_network_of_timm_with_its_own_transform(name, tmp_path):
    timm = package("timm")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=0).eval()
    X = images(3, side=40)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    with torch.inference_mode():
        expected = model(torch.stack([transform(Image.fromarray(image)) for image in X])).numpy()
    encoder = TimmEncoder(model, batch_size=2, cache=EmbeddingCache(tmp_path, "float32"))
    np.testing.assert_allclose(encoder.fit_transform(X), expected, atol=1e-4)
    assert expected.shape == (3, model.num_features)


def test_histograms_of_gradients_are_those_of_scikit_image():
    feature = pytest.importorskip("skimage.feature", reason="pip install scikit-image")
    X = images(4, side=32)
    found = ImageEncoder("hog").fit_transform(X)
    cells = {"pixels_per_cell": (4, 4), "cells_per_block": (2, 2), "channel_axis": -1}
    expected = [feature.hog(image / 255, **cells) for image in X]
    np.testing.assert_allclose(found, expected, atol=1e-4)
