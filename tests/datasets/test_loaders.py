"""Loaders: the demo and the real sets, statistics, splits, and the fetch from a local source."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import logging
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from scipy.sparse import csr_array

from manyhands import AggregatedClassifier, AnnotationTable
from manyhands.agreement import common_confusions
from manyhands.datasets import (
    CrowdDataset,
    load_colposcopy,
    load_demo,
    load_labelme,
    load_music,
    load_product,
    load_reports,
    load_sentiment,
)
from manyhands.datasets import fetch as fetch_module
from manyhands.datasets.base import data_home, user_cache
from manyhands.datasets.fetch import BASE_URL, DataSource, load_set
from manyhands.datasets.sentiment import SENTIMENT, convert
from manyhands.exceptions import DataNotFoundError
from manyhands.inference import MajorityVote

# -- the demo, LabelMe, Music and fetching ---------------------------------------------------------


PINNED = [
    "X_train",
    "annotations",
    "y_train",
    "X_valid",
    "y_valid",
    "X_test",
    "y_test",
    "classes",
    "description",
    "licence",
]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of its own, no MANYHANDS_DATA, and no proxy before this machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("MANYHANDS_DATA", raising=False)
    return user_cache()


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Serve a folder on 127.0.0.1 as if it were the public source."""
    servers = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    def start(folder):
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        servers.append((server, thread))
        monkeypatch.setattr(
            fetch_module, "BASE_URL", f"http://127.0.0.1:{server.server_address[1]}"
        )

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


# -- the demo ---------------------------------------------------------------------------------


def test_demo_has_the_pinned_fields_and_sizes():
    data = load_demo()
    assert [f.name for f in dataclasses.fields(CrowdDataset)] == [*PINNED, "name"]
    assert (len(data.X_train), len(data.X_valid), len(data.X_test)) == (1000, 297, 500)
    assert data.annotations.shape == (1000, 30)
    assert data.annotations.annotations_per_instance().min() >= 1
    assert 2.8 < data.annotations.n_annotations / 1000 < 3.2
    assert data.X_train.dtype == np.float32
    assert np.isin(data.y_train, data.classes).all()
    np.testing.assert_array_equal(data.classes, data.annotations.classes)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.y_train = None


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_demo_is_worth_more_than_majority_vote(seed):
    data = load_demo(seed)
    accuracy = (MajorityVote().fit_predict(data.annotations) == data.y_train).mean()
    assert 0.75 <= accuracy <= 0.85


def test_demo_has_a_look_alike_for_every_digit():
    data = load_demo()
    made = common_confusions(data.annotations, data.y_train)
    np.fill_diagonal(made, 0.0)
    look_alike = made[np.arange(10), [6, 7, 3, 8, 9, 6, 0, 1, 3, 4]]
    others = (made.sum(axis=1) - look_alike) / 8
    assert (look_alike > 0.4).all()
    assert (look_alike > 2 * others).all()


def test_demo_is_deterministic_and_depends_on_the_seed():
    a, b, other = load_demo(), load_demo(0), load_demo(1)
    assert a.annotations.equals(b.annotations)
    np.testing.assert_array_equal(a.X_test, b.X_test)
    assert not a.annotations.equals(other.annotations)


def test_demo_splits_are_stratified_and_disjoint():
    data = load_demo()
    shares = [np.bincount(y) / len(y) for y in (data.y_train, data.y_valid, data.y_test)]
    assert np.ptp(shares, axis=0).max() < 0.01
    assert len(data.X_train) + len(data.X_valid) + len(data.X_test) == 1797


def test_repr_names_the_set_and_its_parts():
    assert repr(load_demo()).startswith("CrowdDataset(demo: 1000 train, 297 valid, 500 test;")


# -- where data sets live ---------------------------------------------------------------------


def test_data_home_argument_then_environment_then_cache(cache, tmp_path, monkeypatch):
    assert data_home() == cache
    (tmp_path / "env").mkdir()
    (tmp_path / "arg").mkdir()
    monkeypatch.setenv("MANYHANDS_DATA", str(tmp_path / "env"))
    assert data_home() == tmp_path / "env"
    assert data_home(tmp_path / "arg") == tmp_path / "arg"


def test_a_data_home_that_does_not_exist_is_named(cache, monkeypatch):
    with pytest.raises(DataNotFoundError, match=r"data_home='/no/such'.*is not a folder"):
        load_labelme("/no/such")
    monkeypatch.setenv("MANYHANDS_DATA", "/nor/this")
    with pytest.raises(DataNotFoundError, match="MANYHANDS_DATA='/nor/this'"):
        load_music()


# -- the fetch, with a set of three instances --------------------------------------------------


def _sha(content):
    return hashlib.sha256(content).hexdigest()


def _toy_convert(raw):
    X = np.load(raw / "x.npy")
    labels = [["a", 1, "train"], ["b", 0, "train"], ["c", 1, "test"]]
    return labels, [["b", "w", 1], ["a", "w", 1], ["a", "v", 0]], X


@pytest.fixture
def toy(tmp_path):
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    folder = tmp_path / "source" / "me" / "repo" / "abc" / "data"
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", X)
    return DataSource(
        name="toy",
        classes=("no", "yes"),
        description="a toy",
        licence="CC0",
        sha256={
            "labels.csv": _sha(b"task,label,split\na,1,train\nb,0,train\nc,1,test\n"),
            "annotations.csv": _sha(b"task,worker,label\nb,w,1\na,w,1\na,v,0\n"),
            "classes.txt": _sha(b"no\nyes\n"),
            "X": _sha(X.tobytes()),
        },
        repository="me/repo",
        commit="abc",
        folder="data",
        files=("x.npy",),
        size="a few bytes",
        convert=_toy_convert,
    )


def test_fetch_says_what_it_fetches_then_loads_aligned(toy, cache, serve, tmp_path, caplog):
    serve(tmp_path / "source")
    with caplog.at_level(logging.WARNING, logger="manyhands"):
        data = load_set(toy, None)
    (record,) = [r for r in caplog.records if r.name == "manyhands"]
    for part in ("toy", "a few bytes", toy.url, "CC0", str(cache / "toy")):
        assert part in record.getMessage()
    assert data.classes.tolist() == ["no", "yes"]
    assert data.y_train.tolist() == ["yes", "no"]
    assert data.annotations.instances.tolist() == ["a", "b"]
    assert data.annotations.annotators.tolist() == ["v", "w"]
    assert data.annotations.to_matrix().tolist() == [["no", "yes"], [None, "yes"]]
    assert data.X_train.tolist() == [[0, 1], [2, 3]]
    assert data.X_valid is None
    assert data.y_valid is None
    assert data.y_test.tolist() == ["yes"]


def test_a_fetched_set_is_not_fetched_again(toy, cache, serve, tmp_path, caplog, monkeypatch):
    serve(tmp_path / "source")
    load_set(toy, None)
    caplog.clear()
    monkeypatch.setattr(fetch_module, "_fetch", lambda *args: pytest.fail("fetched again"))
    load_set(toy, None)
    (tmp_path / "empty").mkdir()
    load_set(toy, tmp_path / "empty")
    assert not [r for r in caplog.records if r.name == "manyhands"]


def test_a_failed_fetch_says_how_to_get_the_set_and_leaves_nothing(toy, cache, serve, tmp_path):
    (tmp_path / "bare").mkdir()
    serve(tmp_path / "bare")
    with pytest.raises(DataNotFoundError, match=r"404.*MANYHANDS_DATA.*data_home=.*make it from"):
        load_set(toy, None)
    assert not list(cache.glob("*"))


def test_no_network_says_how_to_get_the_set(toy, cache, monkeypatch):
    monkeypatch.setattr(fetch_module, "BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(DataNotFoundError, match=r"could not be fetched.*MANYHANDS_DATA"):
        load_set(toy, None)


def test_no_pooch_says_how_to_get_the_set(toy, cache, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(DataNotFoundError, match=r"manyhands\[io\].*MANYHANDS_DATA"):
        load_set(toy, None)


def test_another_version_of_the_source_is_refused_and_not_kept(toy, cache, serve, tmp_path):
    np.save(tmp_path / "source/me/repo/abc/data/x.npy", np.ones((3, 2), dtype=np.float32))
    serve(tmp_path / "source")
    with pytest.raises(DataNotFoundError, match=r"another version.*array X has sha256"):
        load_set(toy, None)
    assert not list(cache.glob("*"))


def test_a_source_file_that_is_no_array_is_refused(toy, cache, serve, tmp_path):
    (tmp_path / "source/me/repo/abc/data/x.npy").write_text("version https://git-lfs...")
    serve(tmp_path / "source")
    with pytest.raises(DataNotFoundError, match="the fetched files cannot be read"):
        load_set(toy, None)


@pytest.mark.parametrize("name", ["labels.csv", "annotations.csv", "classes.txt", "features.npz"])
@pytest.mark.parametrize("damage", ["changed", "truncated", "missing"])
def test_a_damaged_file_is_named(toy, cache, serve, tmp_path, name, damage):
    serve(tmp_path / "source")
    load_set(toy, None)
    path = cache / "toy" / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif name == "features.npz":
        np.savez(path, X=np.zeros((3, 2), dtype=np.float32))
    else:
        path.write_bytes(content[:-2] + b"9\n")
    with pytest.raises(DataNotFoundError, match=name):
        load_set(toy, None)


# -- the real sets ----------------------------------------------------------------------------


def _codes(data):
    return np.array([list(data.classes).index(value) for value in data.y_train])


def _accuracy(data):
    """Expected accuracy of majority vote under uniform tie-breaking."""
    posterior = MajorityVote(soft=False, ties="distribute").fit_predict_proba(data.annotations)
    return posterior[np.arange(len(posterior)), _codes(data)].mean()


def _share(data, true, given):
    classes = list(data.classes)
    return common_confusions(data.annotations, _codes(data))[
        classes.index(true), classes.index(given)
    ]


@pytest.mark.data
def test_labelme(data_home):
    data = load_labelme(data_home)
    assert data.annotations.shape == (1000, 59)
    assert data.annotations.n_annotations == 2547
    assert data.X_train.shape == (1000, 512)
    assert data.X_train.dtype == np.float32
    assert (data.X_valid.shape, data.X_test.shape) == ((500, 512), (1188, 512))
    assert (len(data.y_valid), len(data.y_test)) == (500, 1188)
    assert data.annotations.annotations_per_instance().min() >= 1
    assert _accuracy(data) == pytest.approx(0.766, abs=5e-4)
    right = data.annotations.label == _codes(data)[data.annotations.instance]
    assert right.mean() == pytest.approx(0.7405, abs=5e-5)


@pytest.mark.data
def test_labelme_has_conals_common_confusions(data_home):
    data = load_labelme(data_home)
    assert _share(data, "street", "insidecity") == pytest.approx(0.610, abs=5e-4)
    assert _share(data, "opencountry", "forest") == pytest.approx(0.441, abs=5e-4)


@pytest.mark.data
def test_music(data_home):
    data = load_music(data_home)
    assert data.annotations.shape == (700, 44)
    assert data.annotations.n_annotations == 2945
    assert data.X_train.shape == (700, 124)
    assert data.X_valid is None
    assert len(data.y_test) == 300
    assert abs(data.X_train).max() > 50  # raw
    assert data.annotations.instances[0] == "hiphop.00053.mp3"
    assert data.y_train[0] == "hiphop"
    assert _accuracy(data) == pytest.approx(0.7042, abs=5e-5)


@pytest.mark.data
def test_music_has_conals_common_confusions(data_home):
    data = load_music(data_home)
    assert _share(data, "metal", "rock") == pytest.approx(0.636, abs=5e-4)
    assert _share(data, "disco", "pop") == pytest.approx(0.386, abs=5e-4)


@pytest.mark.data
def test_the_environment_names_the_data_home(data_home):
    assert load_music().annotations.n_annotations == 2945


@pytest.mark.data
def test_a_changed_labels_file_is_refused(data_home, tmp_path):
    shutil.copytree(data_home / "music", tmp_path / "music")
    path = tmp_path / "music" / "labels.csv"
    path.write_text(path.read_text().replace("hiphop.00053.mp3,4", "hiphop.00053.mp3,5"))
    with pytest.raises(DataNotFoundError, match=r"labels\.csv is not the file.*sha256"):
        load_music(tmp_path)


def _layout(folder):
    with (folder / "labels.csv").open() as file:
        labels = list(csv.DictReader(file))
    with (folder / "annotations.csv").open() as file:
        votes = list(csv.DictReader(file))
    with np.load(folder / "features.npz") as archive:
        return labels, votes, archive["X"]


def _rebuild_labelme(home, folder, *, silent):
    labels, votes, X = _layout(home / "labelme")
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        rows = [i for i, row in enumerate(labels) if row["split"] == split]
        np.save(folder / f"LabelMe_VGG_avg_{split}.npy", X[rows])
        gold = "".join(labels[i]["label"] + "\n" for i in rows)
        (folder / f"LabelMe_Z_{split}.txt").write_text(gold)
    answers = np.full((1000, 59), -1)
    for vote in votes:
        answers[int(vote["task"]), int(vote["worker"])] = int(vote["label"])
    answers = np.insert(answers, silent, -1, axis=1)
    np.savetxt(folder / "answers.txt", answers, fmt="%d")


@pytest.mark.data
@pytest.mark.parametrize("silent", [[], [0, 7, 59]])
def test_labelme_is_fetched_and_converted(data_home, cache, serve, tmp_path, silent):
    source = tmp_path / "source" / "fmenat" / "PyLearningCrowds"
    commit = "0edf617d0357a43b48dc53f10f4181ec0163d4db"
    _rebuild_labelme(data_home, source / commit / "data" / "LabelMe", silent=silent)
    serve(tmp_path / "source")
    fetched, here = load_labelme(), load_labelme(data_home)
    assert fetched.annotations.equals(here.annotations)
    np.testing.assert_array_equal(fetched.X_test, here.X_test)


def _rebuild_music(home, folder):
    labels, votes, X = _layout(home / "music")
    names = (home / "music" / "classes.txt").read_text().split()
    folder.mkdir(parents=True)
    header = ",".join(["id", *(f"feature{i}" for i in range(124)), "class"]) + "\n"
    for split, file in (("train", "music_genre_gold.csv"), ("test", "music_genre_test.csv")):
        lines = [
            ",".join([row["task"], *(f"{v:.6f}" for v in x), names[int(row["label"])]]) + "\n"
            for row, x in zip(labels, X, strict=True)
            if row["split"] == split
        ]
        (folder / file).write_text(header + "".join(lines))
    gold = {row["task"]: names[int(row["label"])] for row in labels}
    rows = sorted(votes, key=lambda vote: vote["worker"])
    lines = [f"{v['worker']},{v['task']},{gold[v['task']]},{names[int(v['label'])]}" for v in rows]
    title = "WorkerID,Input.song,Input.true_label,Answer.pred_label"
    (folder / "mturk_answers.csv").write_bytes("\r".join([title, *lines]).encode())


@pytest.mark.data
def test_music_is_fetched_and_converted(data_home, cache, serve, tmp_path):
    source = tmp_path / "source" / "shahanaibrahimosu" / "end-to-end-crowdsourcing"
    _rebuild_music(data_home, source / "7653680c475ba8faa5d4a7b104b42a2a5204cef9/data/Music")
    serve(tmp_path / "source")
    fetched, here = load_music(), load_music(data_home)
    assert fetched.annotations.equals(here.annotations)
    np.testing.assert_array_equal(fetched.X_train, here.X_train)


# -- Sentiment, Product, Colposcopy, Reports -------------------------------------------------------


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


def _accuracy_of_votes(table, gold):
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
    toy = DataSource(
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
    assert _accuracy_of_votes(table, gold) == pytest.approx(0.8859, abs=5e-5)
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
    assert _accuracy_of_votes(data.annotations, gold) == pytest.approx(0.8950, abs=5e-5)


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
    assert _accuracy_of_votes(table, gold) == pytest.approx(0.8966, abs=5e-5)
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
    assert _accuracy_of_votes(table, data.y_train) == pytest.approx(vote, abs=5e-5)
    whole = _whole_crowd(data_home / data.name)
    accuracies = _annotator_accuracies(*whole)
    found = (accuracies.mean(), accuracies.std(), _accuracy_of_votes(*whole))
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
