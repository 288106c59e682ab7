"""Texts, images and other people's models as features, by hand and as hostile users have them."""

import pickle
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from torch import nn

from manyhands import AggregatedClassifier, load, save
from manyhands.encoders import (
    EmbeddingCache,
    FunctionEncoder,
    ImageEncoder,
    SentenceTransformerEncoder,
    TextEncoder,
    TimmEncoder,
    TorchEncoder,
    TransformersEncoder,
)
from manyhands.encoders import images as images_module
from manyhands.encoders.inputs import raw_kind, resized
from manyhands.exceptions import AnnotationError, MissingExtraError

TEXTS = ["a good film", "a bad film", "good good acting", "nothing bad"]


# -- texts ----------------------------------------------------------------------------------------


def test_words_by_hand():
    """1 + log(count), times log((1 + n) / (1 + documents)) + 1, scaled to length 1."""
    encoder = TextEncoder().fit(["good good film", "film"])
    assert encoder.word_terms_ == ["film", "good", "good film", "good good"]
    rare = np.log(3 / 2) + 1
    weights = np.array([1.0, (1 + np.log(2)) * rare, rare, rare])
    row = encoder.transform(["good good film"]).toarray()[0]
    np.testing.assert_allclose(row[:4], weights / np.linalg.norm(weights), rtol=1e-6)
    assert np.linalg.norm(row[4:]) == pytest.approx(1)


def test_runs_of_characters_by_hand():
    encoder = TextEncoder().fit(["ab", "ab c"])
    # Padded by spaces: " ab " and " c "; runs of one text only are too rare.
    assert encoder.character_terms_ == [" ab", " ab ", "ab "]
    assert encoder.get_feature_names_out().tolist() == [
        "word:ab",
        *("characters: ab", "characters: ab ", "characters:ab "),
    ]


def test_tfidf_is_that_of_scikit_learn():
    expected = [
        TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)),
        TfidfVectorizer(sublinear_tf=True, ngram_range=(3, 5), analyzer="char_wb", min_df=2),
    ]
    parts = [vectorizer.fit_transform(TEXTS).toarray() for vectorizer in expected]
    found = TextEncoder().fit_transform(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), np.hstack(parts), rtol=1e-5)


@pytest.mark.parametrize("kind", ["tfidf", "hashing"])
@pytest.mark.parametrize(
    "make",
    [
        tuple,
        np.array,
        lambda texts: np.array(texts, dtype=object),
        lambda texts: np.array(texts)[:, None],
        lambda texts: [[text] for text in texts],
        pd.Series,
        pl.Series,
        lambda texts: pd.DataFrame({"text": texts}),
        lambda texts: pl.DataFrame({"text": texts}),
    ],
)
def test_texts_come_as_they_are(make, kind):
    encoder = TextEncoder(kind, n_features=64)
    expected = encoder.fit_transform(TEXTS)
    assert (encoder.fit(make(TEXTS)).transform(make(TEXTS)) != expected).nnz == 0


def test_hashing_needs_no_fit_and_counts_by_the_logarithm():
    found = TextEncoder("hashing", n_features=2**12).transform(["good good film", "", "Film"])
    assert found.shape == (3, 2**12)
    words = found.toarray()[:, : 2**11]
    # good, film, "good good", "good film".
    counts = np.array([1 + np.log(2), 1, 1, 1])
    np.testing.assert_allclose(
        np.sort(words[0][words[0] > 0]), np.sort(counts) / np.linalg.norm(counts), rtol=1e-6
    )
    assert not found[[1]].nnz
    assert np.count_nonzero(words[2]) == 1


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, float("nan")])
def test_missing_texts_are_refused_or_empty(gap):
    with pytest.raises(AnnotationError, match=r"no text in 1 of 3 rows \(row 1 is .*empty"):
        TextEncoder().fit(["one", gap, "three"])
    found = TextEncoder(missing="empty").fit_transform(["one", gap, "three"])
    assert found[[1]].nnz == 0
    assert found[[0]].nnz > 0


@pytest.mark.parametrize(
    ("X", "says"),
    [
        ("one text", "X is one text"),
        ([], "no texts"),
        (["", " ", "\n"], "none of the 3 texts of X holds a word"),
        (["a text", 7], "row 1 of X is 7, a int"),
        (["a text", b"bytes"], "row 1 of X is b'bytes'"),
        (np.eye(3), r"ndarray of shape \(3, 3\); give texts"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), r"DataFrame of shape \(1, 2\)"),
        (7, "X is a int"),
    ],
)
def test_what_is_no_text_is_named(X, says):
    with pytest.raises(AnnotationError, match=says):
        TextEncoder().fit(X)


def test_no_texts_at_all_are_refused():
    with pytest.raises(AnnotationError, match="no texts"):
        TextEncoder().fit(TEXTS).transform([])


def test_unusual_texts_are_read(tmp_path):
    odd = ["\ud800 broken", "\x00null", "中文 评论", "é" * 10_000, "new\nline\r\ttab"]
    encoder = TextEncoder().fit(odd)
    again = load(save(encoder, tmp_path / "encoder"))
    assert (again.transform(odd) != encoder.transform(odd)).nnz == 0
    assert encoder.transform(["", "unseen"]).shape[0] == 2


def test_a_text_encoder_keeps_the_conventions_of_scikit_learn():
    encoder = TextEncoder()
    with pytest.raises(NotFittedError):
        encoder.transform(TEXTS)
    with pytest.raises(ValueError, match="'kind' parameter"):
        TextEncoder("word2vec").fit(TEXTS)
    fitted = encoder.fit(TEXTS)
    assert not hasattr(clone(fitted), "word_terms_")
    names = fitted.get_feature_names_out()
    assert len(set(names)) == len(names) == fitted.transform(TEXTS).shape[1]
    with pytest.raises(AnnotationError):
        fitted.fit([None])
    assert fitted.transform(TEXTS).shape[1] == len(names)  # A fit that fails changes nothing.


# -- images ---------------------------------------------------------------------------------------


def stripes(n=60, side=12, channels=3, seed=0):
    """Images with vertical or horizontal stripes, and which of them they have."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 90, size=(n, side, side, channels))
    y = np.arange(n) % 2
    X[y == 0, ::2] += 120
    X[y == 1, :, ::2] += 120
    return X.astype(np.uint8), y


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The images of `stripes`, as files."""
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"image{n}.png" for n in range(60)]
    for path, image in zip(paths, stripes()[0], strict=True):
        Image.fromarray(image).save(path)
    return paths


SMALL = {"n_centroids": 16, "n_components": 8, "random_state": 0}


def test_resizing_averages_areas():
    image = np.arange(16.0).reshape(1, 4, 4, 1)
    np.testing.assert_allclose(resized(image, (2, 2))[0, ..., 0], [[2.5, 4.5], [10.5, 12.5]])
    # A pixel in the middle belongs to both halves.
    np.testing.assert_allclose(
        resized(np.array([0.0, 3.0, 6.0]).reshape(1, 1, 3, 1), (1, 2)).ravel(), [1.0, 5.0]
    )
    np.testing.assert_allclose(resized(image, (8, 4))[0, :, 0, 0], [0, 0, 4, 4, 8, 8, 12, 12])


def normalised(patches):
    """Patches (n, 36) of mean 0 and, unless they are flat, variance 1."""
    patches = patches - patches.mean(axis=1, keepdims=True)
    return patches / np.sqrt(patches.var(axis=1, keepdims=True) + 10 / 255**2)


def test_features_of_one_centre_by_hand():
    """How much nearer than on average a centre is, summed over every quarter of the image."""
    X = stripes(n=30, side=8, channels=1)[0]
    encoder = ImageEncoder(**SMALL | {"n_centroids": 2}).fit(X)
    assert np.linalg.matrix_rank(encoder.components_) == 8, "of so many features none is lost"
    image = X[0, ..., 0].astype(np.float64) / 255
    expected = np.zeros((2, 2, 2))
    for row in range(3):
        for column in range(3):
            (patch,) = normalised(image[row : row + 6, column : column + 6].reshape(1, -1))
            white = (patch - encoder.patch_mean_) @ encoder.whitening_
            distance = np.linalg.norm(encoder.centroids_ - white, axis=1)
            near = np.maximum(distance.mean() - distance, 0)
            expected[int(row >= 1), int(column >= 1)] += near
    components = (expected.ravel() - encoder.feature_mean_) @ encoder.components_.T
    found = encoder.transform(X[:1])[0]
    np.testing.assert_allclose(found, components - encoder.component_mean_, rtol=1e-3, atol=1e-3)


def test_whitened_patches_have_unit_variance_where_they_vary():
    X = np.random.default_rng(0).integers(0, 255, size=(200, 9, 9), dtype=np.uint8)
    encoder = ImageEncoder(**SMALL).fit(X)
    windows = np.lib.stride_tricks.sliding_window_view(X / 255.0, (6, 6), axis=(1, 2))
    white = (normalised(windows.reshape(-1, 36)) - encoder.patch_mean_) @ encoder.whitening_
    variances = np.linalg.eigvalsh(np.cov(white, rowvar=False))
    # Noise has variance 1 in 35 directions, regularised by .1; the mean has been removed.
    assert variances[0] < 1e-6
    np.testing.assert_allclose(variances[1:], 1 / 1.1, atol=0.25)


def test_images_come_as_they_are(files):
    X, _ = stripes()
    encoder = ImageEncoder(**SMALL, size=12).fit(X)
    expected = encoder.transform(X)
    assert expected.shape == (60, 8)
    assert expected.dtype == np.float32
    frame = pd.DataFrame({"photo": list(map(str, files))})
    for given in (
        *(np.moveaxis(X, 3, 1), list(X), torch.tensor(X), [*X[:30], *files[30:]]),
        *(files, list(map(str, files)), np.array(list(map(str, files))), frame, frame["photo"]),
        [Image.fromarray(image) for image in X],
    ):
        np.testing.assert_allclose(encoder.transform(given), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.fit_transform(files), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.fit(X).transform(X[:0]), np.zeros((0, 8)))


def test_grey_images_and_numbers_of_any_scale():
    X, y = stripes(channels=1)
    grey = ImageEncoder(**SMALL).fit(X[..., 0])
    assert (grey.channels_, grey.size_) == (1, (12, 12))
    np.testing.assert_allclose(grey.transform(X), grey.transform(X[..., 0]))
    scaled = [ImageEncoder(**SMALL).fit_transform(factor * X.astype(float)) for factor in (1, 1e3)]
    np.testing.assert_allclose(scaled[0], scaled[1], rtol=1e-3, atol=1e-3)
    assert np.abs(scaled[0][y == 0].mean(0) - scaled[0][y == 1].mean(0)).max() > 1


def test_images_that_are_all_alike_have_features():
    X = np.zeros((5, 9, 9), dtype=np.uint8)
    np.testing.assert_allclose(ImageEncoder(**SMALL).fit_transform(X), 0, atol=1e-6)


def test_images_of_other_sizes_are_resized(files, tmp_path):
    large = tmp_path / "large.jpg"
    Image.fromarray(stripes(n=1, side=96)[0][0]).save(large, quality=95)
    found = ImageEncoder(**SMALL).fit([*files, large])
    assert found.size_ == (32, 32)
    assert found.transform([large, str(files[0]), np.zeros((7, 50, 3), np.uint8)]).shape == (3, 8)
    assert ImageEncoder(**SMALL).fit(stripes(side=50)[0]).size_ == (32, 32)
    assert ImageEncoder(**SMALL, size=(10, 14)).fit(stripes()[0]).size_ == (10, 14)


def test_photographs_stand_as_the_camera_was_held(tmp_path):
    image = Image.fromarray(stripes(n=1)[0][0])
    turned = image.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # Turn by 270 degrees to show it.
    turned.save(tmp_path / "turned.png", exif=exif)
    image.save(tmp_path / "upright.png")
    encoder = ImageEncoder(**SMALL, size=12).fit(stripes()[0])
    found = encoder.transform([tmp_path / "turned.png", tmp_path / "upright.png"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_batches_do_not_matter(monkeypatch):
    X, _ = stripes()
    expected = ImageEncoder(**SMALL).fit(X).transform(X)
    encoder = ImageEncoder(**SMALL).fit(X)
    monkeypatch.setattr(images_module, "IMAGES_AT_ONCE", 7)
    np.testing.assert_allclose(encoder.transform(X), expected, atol=1e-4)
    monkeypatch.setattr(images_module, "MOST_IMAGES", 20)
    assert ImageEncoder(**SMALL).fit_transform(X).shape == (60, 8)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda f: [*f, f[0].parent / "no.png"],
            FileNotFoundError,
            r"no\.png \(row 60 .*not exist",
        ),
        (lambda f: [*f, "https://example.org/x.png"], FileNotFoundError, "does not exist"),
        (lambda f: [*f, None], AnnotationError, "row 60 of X .* has no image"),
        (lambda f: [*f, f[0].parent], AnnotationError, "cannot be read as an image"),
        (lambda f: [*f, 7], AnnotationError, "row 60 of X is a int"),
        (lambda f: [], AnnotationError, "X is a list"),
        (lambda f: f[:1], AnnotationError, "X holds one image"),
        (lambda f: np.zeros((5, 4)), AnnotationError, r"shape \(5, 4\); give images"),
        (lambda f: np.zeros((5, 9, 9, 7)), AnnotationError, "with 1, 3 or 4 channels"),
        (lambda f: np.zeros((5, 4, 4)), AnnotationError, "4 x 4 pixels are too small"),
        (lambda f: np.full((5, 9, 9), np.nan), AnnotationError, "image 0 .* NaN"),
    ],
)
def test_what_is_no_image_is_named(files, make, error, says):
    with pytest.raises(error, match=says):
        ImageEncoder(**SMALL).fit(make(files))


def test_damaged_files_are_named(files, tmp_path):
    damaged = tmp_path / "damaged.png"
    encoder = ImageEncoder(**SMALL).fit(files)
    for cut in (0, 20, 100):
        damaged.write_bytes(files[0].read_bytes()[:cut])
        with pytest.raises(AnnotationError, match=r"damaged\.png: row 1 of X cannot be read"):
            encoder.transform([files[0], damaged])


def test_a_bomb_is_refused(tmp_path, monkeypatch, files):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    big = tmp_path / "bomb.png"
    Image.fromarray(np.zeros((40, 40), np.uint8)).save(big)
    encoder = ImageEncoder(**SMALL).fit(stripes()[0])
    with pytest.raises(AnnotationError, match=r"bomb\.png.*decompression bomb"):
        encoder.transform([big])


def test_other_channels_are_refused():
    encoder = ImageEncoder(**SMALL).fit(stripes()[0])
    with pytest.raises(AnnotationError, match="1 channels, and fit had 3"):
        encoder.transform(stripes(channels=1)[0])
    for one in (stripes(n=1)[0][0], np.moveaxis(stripes(n=1)[0][0], 2, 0)):
        with pytest.raises(AnnotationError, match=r"shape of one image.*X\[None\]"):
            encoder.transform(one)
        assert encoder.transform(one[None]).shape[0] == 1
    with pytest.raises(AnnotationError, match=r"one image, \(12, 12\)"):
        encoder.fit(stripes(channels=1)[0]).transform(np.zeros((12, 12)))


def test_an_image_encoder_keeps_the_conventions_of_scikit_learn():
    X, _ = stripes()
    encoder = ImageEncoder(**SMALL)
    with pytest.raises(NotFittedError):
        encoder.transform(X)
    with pytest.raises(ValueError, match="'n_centroids' parameter"):
        ImageEncoder(n_centroids=0).fit(X)
    with pytest.raises(AnnotationError, match=r"size=\(1, 2, 3\)"):
        ImageEncoder(size=(1, 2, 3)).fit(X)
    frame = clone(encoder).set_output(transform="pandas").fit_transform(X)
    assert frame.columns[0] == "patches0"
    assert not hasattr(encoder, "size_")
    np.testing.assert_array_equal(
        clone(encoder).fit_transform(X), clone(encoder).fit(X).transform(X)
    )


def test_hog_is_scikit_images(monkeypatch):
    """The package's function is called for every image, with four pixels a cell."""
    monkeypatch.setitem(sys.modules, "skimage", None)
    X, _ = stripes(n=4)
    with pytest.raises(MissingExtraError, match="pip install 'scikit-image'"):
        ImageEncoder("hog").fit(X)

    def hog(image, *, pixels_per_cell, channel_axis, **options):
        assert channel_axis == -1
        return image[:: pixels_per_cell[0], 0, 0]

    monkeypatch.setitem(sys.modules, "skimage", types.ModuleType("skimage"))
    monkeypatch.setitem(sys.modules, "skimage.feature", types.SimpleNamespace(hog=hog))
    found = ImageEncoder("hog").fit_transform(X)
    np.testing.assert_allclose(found, X[:, ::4, 0, 0] / 255.0, rtol=1e-6)


def test_reading_files_without_pillow_names_the_extra(monkeypatch, files):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manyhands\[io\]'"):
        ImageEncoder().fit(files)


@pytest.mark.parametrize(
    ("X", "kind"),
    [
        (["a text", "another"], "texts"),
        (["1", "2"], None),
        (["1", "two"], "texts"),
        ([None, "a text"], "texts"),
        (["a.png", "b.JPG"], "images"),
        (["see a.png", "a text"], "texts"),
        ([Path("a")], "images"),
        (np.zeros((2, 4, 4), np.uint8), "images"),
        (np.zeros((2, 4, 4)), None),
        (np.zeros((2, 4), np.uint8), None),
        ([[1.0, 2.0]], None),
        (np.array([["a", "b"]]), None),
        (pd.Series(["a text"]), "texts"),
        ([], None),
        ("a text", None),
    ],
)
def test_raw_inputs_are_told_from_features(X, kind):
    assert raw_kind(X) == kind


# -- models of the user ---------------------------------------------------------------------------


class Sentences:
    """The interface of sentence-transformers: what is used of it."""

    def __init__(self, width=3):
        self.calls, self.width = [], width

    def encode(self, texts, *, batch_size, convert_to_numpy, normalize_embeddings, **options):
        assert convert_to_numpy
        self.calls.append(list(texts))
        rows = np.array([[len(text) + k for k in range(self.width)] for text in texts], float)
        return rows / np.linalg.norm(rows, axis=1)[:, None] if normalize_embeddings else rows


class Tokens:
    """A tokenizer of characters, with what is used of transformers' interface."""

    model_max_length = 4

    def __call__(self, texts, *, padding, return_tensors, truncation=False, max_length=None):
        assert padding
        assert return_tensors == "pt"
        cut = [text[:max_length] if truncation else text for text in texts]
        length = max(map(len, cut))
        ids = torch.tensor([[ord(c) % 7 for c in text.ljust(length, "\0")] for text in cut])
        mask = torch.tensor([[1] * len(text) + [0] * (length - len(text)) for text in cut])
        return {"input_ids": ids, "attention_mask": mask}

    def get_vocab(self):
        return {"a": 0}


class Transformer(nn.Module):
    """Returns the one-hot codes of its tokens as the last hidden state."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 7)
        self.table.weight.data = torch.eye(7)
        self.dropout = nn.Dropout(0.9)
        self.config = types.SimpleNamespace(max_position_embeddings=5)

    def forward(self, input_ids, attention_mask):
        states = self.dropout(self.table(input_ids))
        return types.SimpleNamespace(last_hidden_state=states)


def test_sentences_are_encoded_in_batches():
    model = Sentences()
    encoder = SentenceTransformerEncoder(model, batch_size=2, normalize=True)
    found = encoder.fit(TEXTS).transform(pd.Series(TEXTS))
    assert [len(call) for call in model.calls] == [1, 2, 2]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    assert found.dtype == np.float32
    assert clone(encoder).model is model
    with pytest.raises(AnnotationError, match=r"without encode\(\)"):
        SentenceTransformerEncoder(object()).transform(TEXTS)
    with pytest.raises(AnnotationError, match="no text in 1 of 2 rows"):
        encoder.transform(["a", None])


def test_hidden_states_are_pooled_over_the_tokens_of_a_text():
    model = Transformer().train()
    model.table.eval()
    mean = TransformersEncoder(model, Tokens()).transform(["ab", "b"])
    a, b = np.eye(7)[[ord("a") % 7, ord("b") % 7]]
    np.testing.assert_allclose(mean, [(a + b) / 2, b])
    first = TransformersEncoder(model, Tokens(), pooling="cls").transform(["ab", "b"])
    np.testing.assert_allclose(first, [a, b])
    # The tokenizer takes four tokens, the model five.
    cut = TransformersEncoder(model, Tokens()).transform(["aaaab"])
    np.testing.assert_allclose(cut[0], a)
    longer = TransformersEncoder(model, Tokens(), max_length=5).transform(["aaaab"])
    np.testing.assert_allclose(longer[0], (4 * a + b) / 5, rtol=1e-6)
    assert model.training
    assert not model.table.training


def test_an_object_needs_its_tokenizer():
    with pytest.raises(AnnotationError, match="give its tokenizer"):
        TransformersEncoder(Transformer()).transform(["a"])


class Channels(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.scale * x.mean(dim=(2, 3))


def to_tensor(image):
    return torch.tensor(np.asarray(image), dtype=torch.float32).permute(2, 0, 1) / 255


def test_modules_take_arrays_files_and_transforms(files):
    X, _ = stripes()
    expected = 2 * X.mean(axis=(1, 2)) / 255
    encoder = TorchEncoder(Channels(), to_tensor, batch_size=7)
    for given in (X, files, list(map(str, files)), pd.Series(list(map(str, files)))):
        np.testing.assert_allclose(encoder.fit_transform(given), expected, rtol=1e-5)
    plain = TorchEncoder(Channels()).transform(np.moveaxis(X, 3, 1).astype(float) / 255)
    np.testing.assert_allclose(plain, expected, rtol=1e-5)
    timm = TimmEncoder(Channels(), to_tensor)
    for given in (X, files, [Image.fromarray(image) for image in X]):
        np.testing.assert_allclose(timm.transform(given), expected, rtol=1e-5)
    with pytest.raises(AnnotationError, match="images of float64"):
        timm.transform(X.astype(float))
    with pytest.raises(AnnotationError, match=r"shape \(5, 3, 12, 12\) for 5 rows"):
        TorchEncoder(nn.Identity()).transform(np.zeros((5, 3, 12, 12)))


def test_timm_makes_the_named_model_and_its_own_transform(monkeypatch):
    made = []

    def create_model(name, pretrained, num_classes):
        made.append((name, pretrained, num_classes))
        return Channels()

    data = types.SimpleNamespace(
        resolve_model_data_config=lambda model: {"input_size": (3, 8, 8)},
        create_transform=lambda input_size, is_training: to_tensor,
    )
    fake = types.SimpleNamespace(create_model=create_model, data=data)
    monkeypatch.setitem(sys.modules, "timm", fake)
    X, _ = stripes(n=3)
    encoder = TimmEncoder("tiny", device="cpu")
    np.testing.assert_allclose(encoder.fit_transform(X), 2 * X.mean(axis=(1, 2)) / 255, rtol=1e-5)
    encoder.transform(X)
    assert made == [("tiny", True, 0)]  # Once.
    np.testing.assert_allclose(
        TimmEncoder(Channels()).transform(X), encoder.transform(X), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("encoder", "package"),
    [
        (SentenceTransformerEncoder("some/model"), "sentence-transformers"),
        (TransformersEncoder("some/model"), "transformers"),
        (TimmEncoder("resnet18"), "timm"),
    ],
)
def test_missing_packages_are_named(monkeypatch, encoder, package):
    for name in ("sentence_transformers", "transformers", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    X = stripes(n=2)[0] if isinstance(encoder, TimmEncoder) else TEXTS
    with pytest.raises(MissingExtraError, match=f"pip install '{package}'"):
        encoder.transform(X)


@pytest.mark.parametrize("switch", [None, "1"])
def test_a_model_that_is_not_found_is_one_sentence(monkeypatch, tmp_path, switch):
    asked = []

    def load(name, local_files_only):
        asked.append((name, local_files_only))
        raise OSError("We couldn't connect.\nA long explanation\nwith many lines")

    auto = types.SimpleNamespace(from_pretrained=load)
    fake = types.SimpleNamespace(AutoModel=auto, AutoTokenizer=auto)
    monkeypatch.setitem(sys.modules, "transformers", fake)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub home"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    if switch is None:
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    else:
        monkeypatch.setenv("HF_HUB_OFFLINE", switch)
    with pytest.raises(AnnotationError, match="was looked for") as caught:
        TransformersEncoder("some/model").transform(TEXTS)
    assert asked == [("some/model", switch is not None)]
    said = str(caught.value)
    assert "\n" not in said
    assert str(tmp_path / "hub home" / "hub") in said
    assert ("offline, so not on the hub" in said) == (switch is not None)
    with pytest.raises(AnnotationError, match=r"no such' .* does not exist"):
        TransformersEncoder(tmp_path / "no such").transform(TEXTS)
    assert len(asked) == 1  # What looks like a path is never asked of the hub.


def test_functions_get_what_the_user_has():
    def mean(rows):
        seen.append(type(rows))
        return np.asarray(rows, dtype=float).reshape(len(rows), -1).mean(axis=1, keepdims=True)

    seen = []
    X = np.arange(12.0).reshape(6, 2)
    np.testing.assert_allclose(FunctionEncoder(mean, batch_size=4).transform(X), X.mean(1)[:, None])
    assert seen == [np.ndarray, np.ndarray]
    lengths = FunctionEncoder(lambda texts: [[len(t)] for t in texts]).fit(TEXTS)
    assert lengths.transform(pl.Series(TEXTS)).ravel().tolist() == [11, 10, 16, 11]
    assert lengths.get_feature_names_out().tolist() == ["function0"]
    for bad, says in (
        (lambda rows: [1.0], r"shape \(1,\) for 4 rows"),
        (lambda rows: [[np.nan]] * len(rows), "NaN or infinity"),
    ):
        with pytest.raises(AnnotationError, match=says):
            FunctionEncoder(bad).transform(TEXTS)
    assert lengths.transform([]).shape == (0, 1)
    frame = clone(lengths).set_output(transform="pandas").fit(TEXTS).transform(TEXTS)
    assert list(frame.columns) == ["function0"]


@pytest.mark.parametrize(
    "encoder",
    [
        TextEncoder(),
        ImageEncoder(),
        FunctionEncoder(len),
        SentenceTransformerEncoder("name"),
        TransformersEncoder("name"),
        TimmEncoder("name"),
        TorchEncoder(len),
    ],
    ids=lambda encoder: type(encoder).__name__,
)
def test_parameters_are_as_scikit_learn_wants_them(encoder):
    name = type(encoder).__name__
    for check in (
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_valid_tag_types,
    ):
        check(name, encoder)
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy.get_params() == encoder.get_params()


# -- the cache ------------------------------------------------------------------------------------


def test_kept_rows_are_not_encoded_again(tmp_path):
    model = Sentences()
    encoder = SentenceTransformerEncoder(model, cache=str(tmp_path), fingerprint="v1")
    first = encoder.transform(["b", "a", "b"])
    assert sum(map(len, model.calls)) == 2
    again = clone(encoder).transform(["a", "new", "b"])
    assert sum(map(len, model.calls)) == 3
    np.testing.assert_array_equal(again[[2, 0]], first[[0, 1]])
    other = SentenceTransformerEncoder(model, cache=str(tmp_path), fingerprint="v2")
    other.transform(["a"])
    assert sum(map(len, model.calls)) == 4
    # Parameters that decide the values belong to the fingerprint; the batch size does not.
    clone(encoder).set_params(normalize=True).transform(["a"])
    clone(encoder).set_params(batch_size=1).transform(["a"])
    assert sum(map(len, model.calls)) == 5
    assert sorted(row["rows"] for row in EmbeddingCache(tmp_path).info()) == [1, 1, 3]


def test_values_are_those_that_are_kept(tmp_path):
    thirds = FunctionEncoder(
        lambda rows: np.full((len(rows), 1), 1 / 3), fingerprint="1", cache=tmp_path
    )
    found = thirds.transform(["a"])
    assert found[0, 0] == np.float32(np.float16(1 / 3))
    np.testing.assert_array_equal(thirds.transform(["a"]), found)
    exact = clone(thirds).set_params(cache=EmbeddingCache(tmp_path, dtype="float32"))
    assert exact.transform(["a"])[0, 0] == np.float32(1 / 3)
    big = FunctionEncoder(lambda rows: [[1e6]] * len(rows), fingerprint="2", cache=tmp_path)
    with pytest.raises(AnnotationError, match="1e\\+06, which float16 cannot hold"):
        big.transform(["a"])
    with pytest.raises(AnnotationError, match="dtype='int8'"):
        EmbeddingCache(tmp_path, dtype="int8")


def test_other_weights_are_another_encoder(tmp_path, files):
    module = Channels()
    encoder = TorchEncoder(module, to_tensor, cache=EmbeddingCache(tmp_path))
    first = encoder.transform(files[:2])
    module.scale.data *= 2
    np.testing.assert_allclose(encoder.transform(files[:2]), 2 * first, rtol=1e-2)
    model = TransformersEncoder(Transformer(), Tokens(), cache=EmbeddingCache(tmp_path))
    model.transform(["ab"])
    assert len(EmbeddingCache(tmp_path).info()) == 3
    with pytest.raises(AnnotationError, match="fingerprint="):
        FunctionEncoder(len, cache=tmp_path).transform(["a"])


def test_what_cannot_be_recognised_is_not_kept(tmp_path):
    encoder = FunctionEncoder(lambda rows: [[1.0]] * len(rows), cache=tmp_path, fingerprint="1")
    with pytest.raises(AnnotationError, match="object objects"):
        encoder.transform([object()])
    images, _ = stripes(n=3)
    for rows in (images, list(images), [Image.fromarray(image) for image in images]):
        assert encoder.transform(rows).shape == (3, 1)


@pytest.mark.parametrize("lost", ["digests", "rows"])
def test_a_row_that_was_not_written_whole_is_written_again(tmp_path, lost):
    model = Sentences()
    encoder = SentenceTransformerEncoder(model, cache=str(tmp_path), fingerprint="v1")
    expected = encoder.transform(TEXTS)
    (path,) = tmp_path.glob(f"*.{lost}")
    path.write_bytes(path.read_bytes()[:-3])
    np.testing.assert_array_equal(encoder.transform(TEXTS), expected)
    np.testing.assert_array_equal(encoder.transform(TEXTS[::-1]), expected[::-1])
    assert EmbeddingCache(tmp_path).info()[0]["rows"] == 4
    assert len(model.calls[-1]) == 1


def test_two_writers_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("manyhands.encoders.frozen.ROWS_PER_WRITE", 3)
    texts = [f"text {n}" for n in range(40)]
    expected = SentenceTransformerEncoder(Sentences()).transform(texts)
    found = {}

    def work(number):
        encoder = SentenceTransformerEncoder(
            Sentences(), cache=EmbeddingCache(tmp_path), fingerprint="v1"
        )
        found[number] = encoder.transform(texts[number:] + texts[:number])

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, rows in found.items():
        np.testing.assert_array_equal(rows, np.roll(expected, -number, axis=0))
    assert EmbeddingCache(tmp_path).info()[0]["rows"] == 40


def test_a_cache_clears_its_own_files_only(tmp_path):
    encoder = FunctionEncoder(lambda rows: [[1.0]] * len(rows), cache=tmp_path, fingerprint="1")
    encoder.transform(["a"])
    (tmp_path / "mine.json").write_text('{"format": "mine"}')
    (tmp_path / "broken.json").write_text("{")
    (row,) = EmbeddingCache(tmp_path).info()
    assert (row["encoder"], row["rows"], row["columns"]) == ("FunctionEncoder", 1, 1)
    assert EmbeddingCache(tmp_path).clear() == row["bytes"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.json", "mine.json"]
    assert EmbeddingCache(tmp_path / "nowhere").info() == []


def test_an_encoder_of_another_width_is_refused(tmp_path):
    for width, says in (
        (2, None),
        (3, "returned 3 values for a row, but the cache holds rows of 2 values"),
    ):
        encoder = SentenceTransformerEncoder(
            Sentences(width), cache=str(tmp_path), fingerprint="v1"
        )
        if says is None:
            encoder.transform(["a"])
        else:
            with pytest.raises(AnnotationError, match=says):
                encoder.transform(["b"])


# -- in front of classifiers -----------------------------------------------------------------------


def test_encoders_are_fitted_on_the_training_folds_only():
    y = np.arange(120) % 2
    texts = [f"{'good' if c else 'bad'} film number {n}" for n, c in enumerate(y)]
    texts[0] = "onlyhere " + texts[0]
    seen = []

    class Spy(TextEncoder):
        def fit_transform(self, X, y=None):
            found = super().fit_transform(X)
            seen.append("onlyhere" in self.word_terms_)
            return found

    model = make_pipeline(Spy(), AggregatedClassifier(backbone=LogisticRegression()))
    cross_val_predict(model, texts, y, cv=3)
    assert sorted(seen) == [False, True, True]
