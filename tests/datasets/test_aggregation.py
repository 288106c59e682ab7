"""The sets of truth inference: statistics, missing gold, repeated pairs, conversion."""

from __future__ import annotations

import csv
import hashlib
import shutil
from urllib.parse import unquote

import numpy as np
import pytest

import manyhands
from manyhands.datasets import (
    AGGREGATION_SETS,
    load_aggregation,
    load_music,
    load_sentiment,
)
from manyhands.datasets.aggregation import SOURCES, _source, convert
from manyhands.datasets.base import user_cache
from manyhands.datasets.fetch import BASE_URL
from manyhands.exceptions import AnnotationError, DataNotFoundError
from manyhands.inference import MajorityVote

# Classes, tasks, tasks with gold, annotators, annotations, those that repeat a pair, and the
# expected accuracy of majority vote under uniform tie-breaking.
STATISTICS = {
    "adult_content": (4, 11040, 333, 825, 92721, 2922, 0.7598),
    "cf": (5, 300, 300, 461, 1720, 0, 0.8822),
    "cf_amt": (5, 300, 300, 110, 6030, 5, 0.8533),
    "d_sentiment": (2, 1000, 1000, 85, 20000, 0, 0.9335),
    "dog": (4, 807, 807, 109, 8070, 0, 0.8222),
    "duck": (2, 108, 108, 39, 4212, 0, 0.7593),
    "face_sentiment": (4, 584, 584, 27, 5242, 0, 0.6367),
    "ms": (10, 700, 700, 44, 2945, 0, 0.7042),
    "relevance": (4, 20232, 4460, 766, 98453, 1570, 0.5411),
    "rte": (2, 800, 800, 164, 8000, 0, 0.8969),
    "sp": (2, 4999, 4999, 203, 27746, 0, 0.8859),
    "sp_amt": (2, 500, 500, 143, 10000, 0, 0.9430),
    "temp": (2, 462, 462, 76, 4620, 0, 0.9361),
    "trec": (2, 19033, 2275, 762, 88385, 0, 0.6514),
    "web": (5, 2665, 2653, 177, 15567, 0, 0.7307),
    "zencrowd_in": (2, 2040, 2040, 25, 11205, 710, 0.7409),
    "zencrowd_us": (2, 2040, 2040, 74, 12190, 1035, 0.8613),
}

LABELS = b"task,label,split\n0,2,all\n1,,all\n2,0,all\n3,1,all\n"
VOTES = b"task,worker,label\n2,1,0\n0,0,1\n0,1,2\n3,0,1\n0,0,2\n1,2,0\n"


@pytest.fixture
def public(tmp_path, monkeypatch):
    """A folder that stands for the public source, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MANYHANDS_DATA", raising=False)

    def download(url, output, _):
        assert " " not in url
        shutil.copyfile(tmp_path / "public" / unquote(url.removeprefix(f"{BASE_URL}/")), output)

    monkeypatch.setattr("pooch.HTTPDownloader", lambda **options: download)
    return tmp_path / "public"


@pytest.fixture
def toy(monkeypatch):
    """Four tasks in the place of duck: one has no gold, one pair is repeated."""
    source = _source(
        "duck",
        "A toy.",
        "Nobody.",
        n_classes=3,
        labels=hashlib.sha256(LABELS).hexdigest(),
        annotations=hashlib.sha256(VOTES).hexdigest(),
        folder="data/d_Toy birds",
        size="a few bytes",
    )
    monkeypatch.setitem(SOURCES, "duck", source)
    return source


@pytest.fixture
def toy_home(toy, tmp_path):
    folder = tmp_path / "data" / "aggregation" / "duck"
    folder.mkdir(parents=True)
    (folder / "labels.csv").write_bytes(LABELS)
    (folder / "annotations.csv").write_bytes(VOTES)
    return tmp_path / "data"


# -- names ------------------------------------------------------------------------------------


def test_the_sets_are_named_and_exported():
    assert tuple(sorted(STATISTICS)) == AGGREGATION_SETS
    assert manyhands.datasets.AGGREGATION_SETS is AGGREGATION_SETS
    assert manyhands.datasets.load_aggregation is load_aggregation
    for name in AGGREGATION_SETS:
        assert name in load_aggregation.__doc__


def test_an_unknown_name_lists_all_sets():
    with pytest.raises(AnnotationError, match="name='ducks' is unknown") as error:
        load_aggregation("ducks")
    for name in AGGREGATION_SETS:
        assert name in str(error.value).split("use one of ")[1].split(", ")


# -- what a set holds ---------------------------------------------------------------------------


def test_a_set_has_no_features_and_marks_missing_gold(toy_home):
    data = load_aggregation("duck", toy_home)
    assert data.y_train.tolist() == [2, -1, 0, 1]
    assert data.y_train.dtype.kind == "i"
    assert data.classes.tolist() == data.annotations.classes.tolist() == [0, 1, 2]
    assert data.annotations.instances.tolist() == [0, 1, 2, 3]
    for part in (data.X_train, data.X_valid, data.y_valid, data.X_test, data.y_test):
        assert part is None
    assert repr(data).startswith("CrowdDataset(duck: 4 train, 0 valid, 0 test, no features; Anno")
    assert data.description == "A toy.\n\nNobody."


def test_repeated_pairs_are_kept_dropped_or_refused(toy_home):
    kept = load_aggregation("duck", toy_home).annotations
    rows = zip(kept.instance.tolist(), kept.annotator.tolist(), kept.label.tolist(), strict=True)
    assert list(rows) == [(2, 1, 0), (0, 0, 1), (0, 1, 2), (3, 0, 1), (0, 0, 2), (1, 2, 0)]
    last = load_aggregation("duck", toy_home, duplicates="last").annotations
    assert last.to_matrix().tolist() == [[2, 2, -1], [-1, -1, 0], [-1, 0, -1], [1, -1, -1]]
    with pytest.raises(AnnotationError, match="instance 0 by annotator 0"):
        load_aggregation("duck", toy_home, duplicates="error")
    with pytest.raises(AnnotationError, match="duplicates='first' is unknown"):
        load_aggregation("duck", toy_home, duplicates="first")


@pytest.mark.parametrize("name", ["labels.csv", "annotations.csv"])
def test_a_changed_file_is_named(toy_home, name):
    path = toy_home / "aggregation" / "duck" / name
    path.write_bytes(path.read_bytes().replace(b"2,", b"1,", 1))
    with pytest.raises(DataNotFoundError, match=rf"{name} is not the file.*sha256"):
        load_aggregation("duck", toy_home)


# -- fetching -----------------------------------------------------------------------------------


def test_both_layouts_of_the_sources_are_converted(tmp_path):
    (tmp_path / "label.csv").write_bytes(b"item,worker,label\n1,0,1\n0,3,0\n2,0,1\n")
    (tmp_path / "answer.csv").write_bytes(b"1,0,1\r\n0,3,0\r\n2,0,1\r\n")
    (tmp_path / "truth.csv").write_bytes(b"item,truth\n2,1\n0,0\n")
    labels = [[0, "0", "all"], [1, "", "all"], [2, "1", "all"]]
    votes = [["1", "0", "1"], ["0", "3", "0"], ["2", "0", "1"]]
    for answers in ("label.csv", "answer.csv"):
        assert convert(answers, tmp_path) == (labels, votes, None)


def _place(public, source):
    folder = public / source.repository / source.commit / source.folder
    folder.mkdir(parents=True)
    return folder


def test_a_set_is_fetched_into_the_cache_as_it_stands_in_a_data_home(toy, public):
    folder = _place(public, toy)
    rows = VOTES.replace(b"task", b"item")
    (folder / "label.csv").write_bytes(rows)
    (folder / "truth.csv").write_bytes(b"item,truth\n0,2\n2,0\n3,1\n")
    data = load_aggregation("duck")
    assert data.name == "duck"
    assert data.annotations.n_annotations == 6
    cached = user_cache() / "aggregation" / "duck"
    assert sorted(path.name for path in cached.iterdir()) == ["annotations.csv", "labels.csv"]
    assert (cached / "labels.csv").read_bytes() == LABELS
    assert [path.name for path in cached.parent.iterdir()] == ["duck"]


def test_another_version_of_the_source_is_refused_and_not_kept(toy, public):
    folder = _place(public, toy)
    (folder / "label.csv").write_bytes(VOTES.replace(b"task", b"item"))
    (folder / "truth.csv").write_bytes(b"item,truth\n0,2\n2,0\n3,2\n")
    with pytest.raises(DataNotFoundError, match=r"another version.*labels\.csv"):
        load_aggregation("duck")
    assert not list((user_cache() / "aggregation").iterdir())


def test_a_set_that_cannot_be_fetched_says_how_to_get_it(public):
    with pytest.raises(
        DataNotFoundError, match=r"folder that holds 'aggregation/web', or make it from https://"
    ):
        load_aggregation("web")


# -- the real sets ------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics(data_home, name):
    data = load_aggregation(name, data_home)
    table, gold = data.annotations, data.y_train >= 0
    pairs = set(zip(table.instance.tolist(), table.annotator.tolist(), strict=True))
    posterior = MajorityVote(soft=False, ties="distribute").fit_predict_proba(table)
    found = (
        table.n_classes,
        table.n_instances,
        gold.sum(),
        table.n_annotators,
        table.n_annotations,
        table.n_annotations - len(pairs),
    )
    *expected, accuracy = STATISTICS[name]
    assert found == tuple(expected)
    assert posterior[gold, data.y_train[gold]].mean() == pytest.approx(accuracy, abs=5.001e-5)
    assert table.mask_of_classes_seen().all()
    assert table.annotations_per_instance().min() >= 1
    assert table.annotations_per_annotator().min() >= 1
    with (data_home / "aggregation" / name / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert table.instances.tolist() == [int(row["task"]) for row in rows]
    assert data.y_train.tolist() == [int(row["label"] or -1) for row in rows]


@pytest.mark.data
def test_views_of_sets_with_features_are_the_same_crowd(data_home):
    for name, load in (
        ("ms", load_music),
        ("sp", load_sentiment),
    ):
        view, data = load_aggregation(name, data_home), load(data_home)
        for counts in ("annotations_per_instance", "annotations_per_annotator"):
            np.testing.assert_array_equal(
                np.sort(getattr(view.annotations, counts)()),
                np.sort(getattr(data.annotations, counts)()),
            )


@pytest.mark.data
@pytest.mark.parametrize("name", STATISTICS)
def test_a_real_set_is_fetched_and_converted(data_home, public, name):
    known, source = data_home / "aggregation" / name, SOURCES[name]
    folder = _place(public, source)
    with (known / "labels.csv").open() as file:
        gold = [(row["task"], row["label"]) for row in csv.DictReader(file) if row["label"]]
    votes = (known / "annotations.csv").read_bytes()
    truth = "".join(f"{task},{label}\n" for task, label in gold).encode()
    if name == "temp":
        (folder / "answer.csv").write_bytes(votes.split(b"\n", 1)[1].replace(b"\n", b"\r\n"))
        (folder / "truth.csv").write_bytes(truth.replace(b"\n", b"\r\n"))
    else:
        (folder / "label.csv").write_bytes(votes.replace(b"task", b"item", 1))
        (folder / "truth.csv").write_bytes(b"item,truth\n" + truth)
    fetched, here = load_aggregation(name), load_aggregation(name, data_home)
    assert fetched.annotations.equals(here.annotations)
    np.testing.assert_array_equal(fetched.y_train, here.y_train)
    for file in ("labels.csv", "annotations.csv"):
        cached = user_cache() / "aggregation" / name / file
        assert cached.read_bytes() == (known / file).read_bytes()
