"""Sentiment, Product, Colposcopy, Reports: statistics, sparse X, other splits, conversion."""

from __future__ import annotations

import csv
import hashlib
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_array

from manyhands import AggregatedClassifier, AnnotationTable
from manyhands.datasets import load_colposcopy, load_product, load_reports, load_sentiment
from manyhands.datasets.base import user_cache
from manyhands.datasets.fetch import BASE_URL, Source, load_set
from manyhands.datasets.sentiment import SENTIMENT, convert
from manyhands.exceptions import DataNotFoundError
from manyhands.inference import MajorityVote


@pytest.fixture
def public(tmp_path, monkeypatch):
    """A folder that stands for the public source, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MANYHANDS_DATA", raising=False)

    def download(url, output, _):
        shutil.copyfile(tmp_path / "public" / url.removeprefix(f"{BASE_URL}/"), output)

    monkeypatch.setattr("pooch.HTTPDownloader", lambda **options: download)
    return tmp_path / "public"


def _accuracy(table, gold):
    """Expected accuracy of majority vote under uniform tie-breaking."""
    posterior = MajorityVote(soft=False, ties="distribute").fit_predict_proba(table)
    return posterior[np.arange(len(gold)), gold].mean()


def _annotator_accuracies(table, gold):
    right = table.label == gold[table.instance]
    return np.bincount(table.annotator, right) / np.bincount(table.annotator)


def _rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


# -- layout -------------------------------------------------------------------------------------


def test_sparse_features_and_the_annotations_of_training_instances_alone(public):
    X = np.array([[0, 1], [2, 0], [0, 0], [3, 4]], dtype=np.float16)
    labels = [["a", 1, "test"], ["b", 0, "train"], ["c", 1, "test_overlap"], ["d", 1, "train"]]
    votes = [["a", "v", 1], ["d", "w", 0], ["b", "w", 1], ["b", "u", 0], ["c", "w", 1]]
    texts = {
        "labels.csv": b"task,label,split\na,1,test\nb,0,train\nc,1,test_overlap\nd,1,train\n",
        "annotations.csv": b"task,worker,label\na,v,1\nd,w,0\nb,w,1\nb,u,0\nc,w,1\n",
        "classes.txt": b"no\nyes\n",
        "X": X.astype(np.float32).tobytes(),
    }
    toy = Source(
        name="toy",
        classes=("no", "yes"),
        description="a toy",
        licence="CC0",
        sha256={name: hashlib.sha256(text).hexdigest() for name, text in texts.items()},
        repository="me/repo",
        commit="abc",
        folder="data",
        convert=lambda raw: (labels, votes, X),
        sparse=True,
    )
    data = load_set(toy, None)
    assert isinstance(data.X_train, csr_array)
    assert data.X_train.dtype == np.float32
    assert data.X_train.toarray().tolist() == [[2, 0], [3, 4]]
    assert data.X_test.toarray().tolist() == [[0, 1]]
    assert data.X_valid is None
    assert data.y_train.tolist() == ["no", "yes"]
    assert data.y_test.tolist() == ["yes"]
    assert data.annotations.instances.tolist() == ["b", "d"]
    assert data.annotations.annotators.tolist() == ["u", "w"]
    assert data.annotations.to_matrix().tolist() == [["no", "yes"], [None, "no"]]
    assert repr(data).startswith("CrowdDataset(toy: 2 train, 0 valid, 1 test; AnnotationTable(3 ")


def test_product_cannot_be_fetched_and_says_how_to_get_it(public, monkeypatch):
    monkeypatch.setattr("pooch.HTTPDownloader", lambda **options: pytest.fail("asked the network"))
    with pytest.raises(
        DataNotFoundError, match=r"cannot be fetched.*MANYHANDS_DATA or data_home=.*features\.npz"
    ):
        load_product()
    assert not user_cache().exists()


@pytest.mark.parametrize(
    ("load", "folder"), [(load_colposcopy, "colposcopy"), (load_reports, "reports_compendium")]
)
def test_sets_of_experts_cannot_be_fetched_either(public, monkeypatch, load, folder):
    monkeypatch.setattr("pooch.HTTPDownloader", lambda **options: pytest.fail("asked the network"))
    with pytest.raises(
        DataNotFoundError,
        match=rf"cannot be fetched: its tables.*'{folder}' "
        r"\(labels\.csv, annotations\.csv and features\.npz\)",
    ):
        load()
    assert not user_cache().exists()


# -- the conversion of Sentiment ------------------------------------------------------------------


def _write_source(folder, train, test, gold, answers):
    folder.mkdir(parents=True, exist_ok=True)
    # The files of texts end without a newline, the others with one.
    (folder / "Sentiment_text_train.txt").write_text("\n".join(train))
    (folder / "Sentiment_text_test.txt").write_text("\n".join(test))
    for split, values in zip(("train", "test"), gold, strict=True):
        text = "".join(f"{value}\n" for value in values)
        (folder / f"Sentiment_Z_{split}.txt").write_text(text)
    np.savetxt(folder / "answers.txt", answers, fmt="%d")


def test_a_small_source_is_converted(tmp_path):
    # good, film and their pair stand there 6 times; rare, their pair and scarce 5 times, of which
    # the first bits take, leave and take.
    train = ["good film ."] * 6 + ["rare , scarce"] * 5
    test = ["Good film !", "Rare film"]
    answers = np.full((11, 3), -1)
    answers[0, 1], answers[10, 0], answers[10, 2] = 1, 0, 1
    _write_source(tmp_path, train, test, ([1] * 6 + [0] * 5, [1, 0]), answers)
    labels, votes, X = convert(tmp_path)
    assert labels[0] == [0, 1, "train"]
    assert labels[10:] == [[10, 0, "train"], [11, 1, "test_overlap"], [12, 0, "test"]]
    assert votes == [[0, 1, 1], [10, 0, 0], [10, 2, 1]]
    # Columns: film, good, good film, rare, scarce.
    third = 1 / np.sqrt(3)
    good, rare = 1 + np.log(12 / 7), 1 + np.log(12 / 6)
    last = np.array([good, 0, 0, rare, 0]) / np.hypot(good, rare)
    assert X.dtype == np.float16
    assert X.shape == (13, 5)
    np.testing.assert_allclose(X[[0, 11]], [[third] * 3 + [0, 0]] * 2, rtol=1e-3)
    np.testing.assert_allclose(X[12], last, rtol=1e-3)


# -- the real sets --------------------------------------------------------------------------------


@pytest.mark.data
def test_sentiment(data_home):
    data = load_sentiment(data_home)
    table = data.annotations
    assert table.shape == (4999, 203)
    assert table.n_annotations == 27746
    assert isinstance(data.X_train, csr_array)
    assert data.X_train.dtype == np.float32
    assert (data.X_train.shape, data.X_test.shape) == ((4999, 4000), (3848, 4000))
    assert data.X_valid is None
    assert len(data.y_test) == 3848
    assert data.classes.tolist() == ["negative", "positive"]
    norms = np.sqrt(data.X_train.power(2).sum(axis=1))
    np.testing.assert_allclose(norms[norms > 0], 1, atol=1e-3)
    gold = (data.y_train == "positive").astype(int)
    assert np.bincount(gold).tolist() == [2497, 2502]
    assert _accuracy(table, gold) == pytest.approx(0.8859, abs=5e-5)
    accuracies = _annotator_accuracies(table, gold)
    assert accuracies.mean() == pytest.approx(0.7712, abs=5e-5)
    assert accuracies.std() == pytest.approx(0.171, abs=5e-4)


@pytest.mark.data
def test_classifiers_take_the_sparse_features(data_home):
    data = load_sentiment(data_home)
    model = AggregatedClassifier(max_epochs=2, random_state=0).fit(data.X_train, data.annotations)
    assert model.score(data.X_train, data.y_train) > 0.8


@pytest.mark.data
def test_sentiment_is_fetched_and_converted(data_home, public):
    home = data_home / "sentiment"
    texts = (home / "texts.txt").read_text().split("\n")[:8998]
    gold = [row["label"] for row in _rows(home / "labels.csv")]
    answers = np.full((4999, 203), -1)
    for row in _rows(home / "annotations.csv"):
        answers[int(row["task"]), int(row["worker"])] = int(row["label"])
    folder = public / SENTIMENT.repository / SENTIMENT.commit / SENTIMENT.folder
    _write_source(folder, texts[:4999], texts[4999:], (gold[:4999], gold[4999:]), answers)
    fetched, here = load_sentiment(), load_sentiment(data_home)
    assert fetched.annotations.equals(here.annotations)
    np.testing.assert_array_equal(fetched.y_test, here.y_test)
    assert (fetched.X_train != here.X_train).nnz == 0
    assert (fetched.X_test != here.X_test).nnz == 0


@pytest.mark.data
def test_product(data_home):
    data = load_product(data_home)
    assert data.annotations.shape == (4989, 176)
    assert data.annotations.n_annotations == 14967
    assert data.X_train.dtype == np.float32
    assert [len(X) for X in (data.X_train, data.X_valid, data.X_test)] == [4989, 831, 2495]
    assert [len(y) for y in (data.y_train, data.y_valid, data.y_test)] == [4989, 831, 2495]
    assert data.X_train.shape[1] == 20
    assert data.classes.tolist() == ["different", "same"]
    assert [(data.y_train == name).sum() for name in data.classes] == [4382, 607]
    assert (data.annotations.annotations_per_instance() == 3).all()
    gold = (data.y_train == "same").astype(int)
    assert _accuracy(data.annotations, gold) == pytest.approx(0.8950, abs=5e-5)


@pytest.mark.data
def test_product_gives_the_annotations_of_its_training_pairs(data_home):
    labels = _rows(data_home / "product" / "labels.csv")
    votes = _rows(data_home / "product" / "annotations.csv")
    train = {row["task"] for row in labels if row["split"] == "train"}
    names = {"0": "different", "1": "same"}
    table = load_product(data_home).annotations
    found = zip(
        table.instances[table.instance].tolist(),
        table.annotators[table.annotator].tolist(),
        table.classes[table.label].tolist(),
        strict=True,
    )
    assert list(found) == [
        (vote["task"], vote["worker"], names[vote["label"]])
        for vote in votes
        if vote["task"] in train
    ]


@pytest.mark.data
def test_product_as_a_whole_is_the_published_crowd(data_home):
    table, gold = _whole_crowd(data_home / "product")
    assert table.shape == (8315, 176)
    assert table.n_annotations == 24945
    assert _accuracy(table, gold) == pytest.approx(0.8966, abs=5e-5)
    accuracies = _annotator_accuracies(table, gold)
    assert accuracies.mean() == pytest.approx(0.7858, abs=5e-5)
    assert accuracies.std() == pytest.approx(0.2586, abs=5e-5)


@pytest.mark.data
@pytest.mark.parametrize(
    ("load", "shape", "n_features", "n_test", "gold", "vote", "published"),
    [
        (load_colposcopy, (200, 6), 62, 87, [49, 151], 0.9375, (0.8026, 0.0478, 0.9425)),
        (load_reports, (673, 5), 56, 289, [61, 220, 155, 237], 0.9851, (0.7990, 0.0730, 0.9849)),
    ],
)
def test_sets_of_experts(data_home, load, shape, n_features, n_test, gold, vote, published):
    data = load(data_home)
    table = data.annotations
    assert table.shape == shape
    assert table.n_annotations == shape[0] * shape[1], "everyone judged everything"
    assert data.X_train.dtype == np.float32
    assert (data.X_train.shape, data.X_test.shape) == ((shape[0], n_features), (n_test, n_features))
    assert data.X_valid is None
    assert data.y_valid is None
    assert data.classes.tolist() == list(range(len(gold)))
    assert np.bincount(data.y_train).tolist() == gold
    assert len(data.y_test) == n_test
    assert _accuracy(table, data.y_train) == pytest.approx(vote, abs=5e-5)
    whole = _whole_crowd(data_home / data.name)
    accuracies = _annotator_accuracies(*whole)
    found = (accuracies.mean(), accuracies.std(), _accuracy(*whole))
    assert found == pytest.approx(published, abs=5e-5)
    assert [(data.y_test == c).sum() for c in data.classes] == (
        np.bincount(whole[1]) - np.array(gold)
    ).tolist()


def _whole_crowd(folder):
    """Annotations and gold of all instances, in the order of the files."""
    labels, votes = _rows(folder / "labels.csv"), _rows(folder / "annotations.csv")
    table = AnnotationTable.from_arrays(
        *(np.array([vote[column] for vote in votes]) for column in ("task", "worker")),
        np.array([int(vote["label"]) for vote in votes]),
        instances=[row["task"] for row in labels],
    )
    return table, np.array([int(row["label"]) for row in labels])
