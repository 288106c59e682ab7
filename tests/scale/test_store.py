"""Truth inference on stores: what tables give, shard by shard, and what goes wrong on disks."""

import contextlib
import json
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands import (
    GLAD,
    IBCC,
    KOS,
    AnnotationStore,
    AnnotationTable,
    DawidSkene,
    LabelSetTable,
    MajorityVote,
    MultiLabelDawidSkene,
    files,
    save,
)
from manyhands.exceptions import AnnotationError, MissingExtraError, WriteError
from manyhands.inference.base import with_trait
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.io import read_annotations
from manyhands.jobs import aggregate_store
from manyhands.registry import get
from manyhands.scale import ingest as ingesting
from manyhands.scale import remote, sorted_runs
from manyhands.scale import store as store_module
from manyhands.scale.ingest import ingest
from manyhands.scale.sharded import ShardedAnnotations
from manyhands.scale.store_writer import MANIFEST, StoreWriter, checksum, name_of
from tests.cli.conftest import done, run
from tests.inference.test_aggregators import with_known

METHODS = [
    *(with_known(get(name), max_iter=6, n_restarts=2) for name in with_trait("takes_stores")),
    MajorityVote(soft=False, ties="random", random_state=0),
    DawidSkene(dependence=0, max_iter=6),
    DawidSkene(em="hard", prior_strength=2),
    IBCC(abstentions="model", max_iter=6),
    GLAD(class_prior="estimated", max_iter=3),
]
"""Every method that takes stores, and what some do otherwise with other parameters."""


def test_the_page_names_every_method_that_takes_stores():
    page = (Path(__file__).parents[2] / "docs" / "big_tables.md").read_text()
    named = page.partition("## What takes a store")[2].partition("take a store in place")[0]
    named, known = {*re.findall(r"`(\w+)`", named)}, set(with_trait("takes_stores"))
    assert known <= named, (
        f'docs/big_tables.md, "What takes a store", lacks {sorted(known - named)}'
    )
    assert named <= known, f"{sorted(named - known)} in docs/big_tables.md take no stores"


def crowd(n=400, *, weights=False, seed=0):
    """A table with abstentions, and instances and annotators without annotations."""
    rng = np.random.default_rng(seed)
    r, c, m = 15, 3, 4 * n
    truth, skill = rng.integers(0, c, n), rng.uniform(0.3, 0.95, r)
    pairs = rng.permutation(np.unique(rng.integers(0, n * r, m)))
    instance, annotator = pairs // r, pairs % r
    right = rng.random(len(pairs)) < skill[annotator]
    codes = np.where(right, truth[instance], rng.integers(0, c, len(pairs)))
    labels = np.where(rng.random(len(pairs)) < 0.05, "unsure", np.array(["a", "b", "c"])[codes])
    table = AnnotationTable.from_arrays(
        instance,
        annotator,
        labels,
        classes=["a", "b", "c"],
        n_instances=n + 3,
        n_annotators=r + 1,
        abstain="unsure",
        weight=rng.uniform(0, 2, len(pairs)).round(1) if weights else None,
    )
    return table, {int(i): "abc"[truth[i]] for i in range(0, n, 40)}


@pytest.fixture
def table():
    return crowd()[0]


@pytest.fixture
def store(table, tmp_path):
    return AnnotationStore.create(tmp_path / "store", table, shard_annotations=200)


@pytest.mark.parametrize("more", [False, True], ids=["", "weights and gold"])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_store_gives_what_its_table_gives(method, more, tmp_path):
    table, gold = crowd(120, weights=more)
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=100)
    assert store.n_shards > 3
    given = gold if more else None
    expected = type(method)(**method.get_params()).fit(table, gold=given)
    found = type(method)(**method.get_params()).fit(store, gold=given)
    np.testing.assert_allclose(found.posterior_, expected.posterior_, atol=1e-9, rtol=0)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_allclose(found.confusion_, expected.confusion_, atol=1e-9, rtol=0)
    np.testing.assert_allclose(found.class_prior_, expected.class_prior_, atol=1e-9, rtol=0)
    np.testing.assert_allclose(
        found.annotator_accuracy_, expected.annotator_accuracy_, atol=1e-9, rtol=0
    )
    # GLAD learns the difficulties of a shard's instances together; random ties start anew.
    if not isinstance(method, GLAD) and method.ties != "random":
        predicted = found.predict_proba(store)
        np.testing.assert_allclose(predicted, expected.predict_proba(table), atol=1e-9)
    assert found.n_iter_ == expected.n_iter_
    assert isinstance(found.posterior_, np.memmap)


def test_a_small_store_is_read_once_and_a_large_one_is_mapped(tmp_path, monkeypatch):
    table, _ = crowd(240)
    AnnotationStore.create(tmp_path / "store", table, shard_annotations=150)
    small = AnnotationStore.open(tmp_path / "store")
    kept = DawidSkene(max_iter=3).fit(small)
    monkeypatch.setattr(store_module, "KEPT_BYTES", 500)
    large = AnnotationStore.open(tmp_path / "store")
    mapped = DawidSkene(max_iter=3).fit(large)
    np.testing.assert_array_equal(kept.posterior_, mapped.posterior_)
    assert isinstance(large.shard(1).label, np.memmap)
    shutil.rmtree(tmp_path / "store" / "shards")
    assert not isinstance(small.shard(1).label, np.memmap)
    np.testing.assert_array_equal(DawidSkene(max_iter=3).fit(small).posterior_, kept.posterior_)
    with pytest.raises(ValueError, match="read-only"):
        small.shard(1).label[0] = 1
    with pytest.raises(FileNotFoundError):
        large.shard(1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells resident pages")
@pytest.mark.parametrize("method", [MajorityVote(), DawidSkene(max_iter=2)], ids=repr)
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_a_fit_keeps_no_pages_of_the_arrays_that_it_has_gone_through(method, tmp_path):
    n = 200_000
    table = AnnotationTable.from_arrays(np.arange(n).repeat(2), [0, 1] * n, [0, 1, 1, 0] * (n // 2))
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=20_000)
    found = method.fit(store)
    maps = Path("/proc/self/smaps").read_text().split("\n")
    held = dict[str, int]()
    for line in maps:
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = line.partition("/")[2]
        elif line.startswith("Rss:") and str(store.scratch)[1:] in name:
            held[name] = held.get(name, 0) + int(line.split()[1]) * 1024
    assert found.posterior_.nbytes == 16 * n
    assert sum(held.values()) < 2**20


def test_annotators_who_never_meet_are_warned_of_in_a_store_too(tmp_path):
    table = AnnotationTable.from_arrays([0, 1, 2, 3], [0, 1, 0, 1], list("abba"))
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=1)
    with pytest.warns(UserWarning, match="no instance has annotations by two"):
        found = DawidSkene().fit(store)
    assert found.labels_.tolist() == list("abba")


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_store_holds_its_table(data, tmp_path_factory):
    n, r = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    cells = data.draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, r - 1)), min_size=1, unique=True)
    )
    labels = data.draw(st.lists(st.sampled_from("abu"), min_size=len(cells), max_size=len(cells)))
    weight = data.draw(st.none() | st.just([1.5] * len(cells)))
    instance, annotator = zip(*cells, strict=True)
    table = AnnotationTable.from_arrays(
        instance,
        annotator,
        labels,
        classes=["a", "b"],
        n_instances=n,
        n_annotators=r,
        weight=weight,
        abstain="u",
    )
    folder = tmp_path_factory.mktemp("any") / "store"
    size = data.draw(st.integers(1, 5))
    store = AnnotationStore.create(folder, table, shard_annotations=size)
    store.verify()
    order, _ = table.by_instance()
    whole = store[np.arange(n)]
    expected = table if order is None else table.take(order)
    for name in ("instance", "annotator", "label", "weight", "instances", "annotators", "classes"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(expected, name))
    assert sorted(map(tuple, whole.abstentions)) == sorted(map(tuple, table.abstentions))
    assert (store.n_annotations, len(store)) == (table.n_annotations, n)
    picked = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5))
    assert store[picked].n_annotations == table[picked].n_annotations


def test_a_store_pickles_as_its_folder(store):
    assert len(pickle.dumps(store)) < 1000
    again = pickle.loads(pickle.dumps(store))
    assert again.digest == store.digest
    assert isinstance(again, ShardedAnnotations)


def test_an_aggregator_of_a_store_is_not_saved_but_says_what_to_do(store, tmp_path):
    says = r"MajorityVote is fitted to a store, which a saved .*labels, and fit\(store\) again"
    with pytest.raises(AnnotationError, match=says):
        save(MajorityVote().fit(store), tmp_path / "model")
    with pytest.raises(
        AnnotationError, match=r"labels, or .* fit\(store, start=posterior_\) again"
    ):
        save(DawidSkene().fit(store), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_a_store_does_not_carry_is_refused(table, store, tmp_path):
    with pytest.raises(AnnotationError, match="families of annotators"):
        AnnotationStore.create(tmp_path / "a", table.with_groups({0: "x", 1: "x"}))
    with pytest.raises(AnnotationError, match="source is 'pseudo'"):
        AnnotationStore.create(tmp_path / "b", table.with_source("pseudo"))
    sets = LabelSetTable.from_arrays([0, 0], [0, 1], [[1, 0], [1, 1]])
    with pytest.raises(AnnotationError, match=r"a store carries single .* table.option\(name\)"):
        AnnotationStore.create(tmp_path / "c", sets)
    with pytest.raises(AnnotationError, match="MultiLabelDawidSkene reads a LabelSetTable in mem"):
        MultiLabelDawidSkene().fit(store)
    with pytest.raises(AnnotationError, match="groups="):
        DawidSkene().fit(store, groups={0: "x", 1: "x"})
    with pytest.raises(AnnotationError, match="KOS needs all annotations in memory"):
        KOS().fit(store)
    with pytest.raises(AnnotationError, match=r"partial_fit takes tables.* from start=posterior_"):
        DawidSkene().fit(store).partial_fit(table)
    with pytest.raises(AnnotationError, match=r"partial_fit takes tables.* and fit that$"):
        MajorityVote().fit(store).partial_fit(table)
    with pytest.raises(AnnotationError, match="engine='x' cannot count"):
        DawidSkene().fit(store, engine="x")
    with pytest.raises(AnnotationError, match="engine= counts the shards of a store"):
        DawidSkene().fit(table, engine="x")


# -- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        with_known(get(name), max_iter=6, n_restarts=2, n_subtypes=2)
        for name in with_trait("takes_stores")
        if issubclass(get(name), EMAggregator)  # Others save no iterations.
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["store", "table"])
def test_a_fit_that_was_killed_resumes_to_the_same_bits(
    method, kind, table, store, tmp_path, monkeypatch
):
    annotations = store if kind == "store" else table
    expected = type(method)(**method.get_params()).fit(annotations)
    saved = []
    plain = files.write_atomically

    def dies(path, content):
        if str(path).endswith(".npz"):
            saved.append(path)
            if len(saved) == 4:
                raise KeyboardInterrupt
        return plain(path, content)

    monkeypatch.setattr("manyhands.inference.checkpoints.write_atomically", dies)
    place = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        type(method)(**method.get_params()).fit(annotations, checkpoint=place)
    assert list(place.glob("*.npz"))
    found = type(method)(**method.get_params()).fit(annotations, checkpoint=place)
    np.testing.assert_array_equal(found.posterior_, expected.posterior_)
    np.testing.assert_array_equal(found.log_likelihood_, expected.log_likelihood_)
    assert not place.exists()


def test_the_checkpoint_of_another_fit_is_refused(table, store, tmp_path):
    place = tmp_path / "checkpoint"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(AnnotationError, match="holds other files"):
        DawidSkene().fit(store, checkpoint=place)
    (place / "notes.txt").unlink()
    with pytest.raises(AnnotationError, match="saves no checkpoints"):
        KOS().fit(table, checkpoint=place)
    about = {"manyhands": "0", "method": "DawidSkene"}
    (place / "fit.json").write_text(json.dumps(about))
    with pytest.raises(AnnotationError, match="belongs to another fit: manyhands was '0'"):
        DawidSkene().fit(store, checkpoint=place)


# -- disks ----------------------------------------------------------------------------------------


def first_file(store, name):
    return store.folder / "shards" / f"00000.{name}.npy"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda shards: shards[1:], r"lists 'shards/00001.start.npy' as shard 0, and not"),
        (lambda shards: shards[:1] + shards[2:], r"'shards/00002.start.npy' as shard 1, and not"),
        (lambda shards: shards[:-1], "annotations add up to .* a shard is missing. Restore"),
        (lambda shards: shards[:1] + shards, r"'shards/00000.start.npy' as shard 1, and not"),
        (lambda shards: [shards[1], shards[0], *shards[2:]], "out of order. Restore the manifest"),
    ],
    ids=["first", "middle", "last", "twice", "order"],
)
def test_a_manifest_that_lists_other_shards_is_refused(change, says, store):
    place = store.folder / MANIFEST
    manifest = json.loads(place.read_text())
    place.write_text(json.dumps({**manifest, "shards": change(manifest["shards"])}))
    with pytest.raises(AnnotationError, match=says):
        AnnotationStore.open(store.folder)
    for name in ("n_annotations", "n_abstentions"):
        other = {**manifest, name: manifest[name] + 1}
        place.write_text(json.dumps(other))
        with pytest.raises(
            AnnotationError, match=f"but their {name} add up to {manifest[name]} and"
        ):
            AnnotationStore.open(store.folder)


def test_a_damaged_or_missing_shard_is_named(store):
    place = first_file(store, "label")
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)
    again = AnnotationStore.open(store.folder)
    with pytest.raises(AnnotationError, match=r"00000.label.npy is damaged"):
        DawidSkene().fit(again)
    with pytest.raises(AnnotationError, match=r"00000.label.npy is damaged"):
        again.verify()
    place.unlink()
    with pytest.raises(AnnotationError, match=r"00000.label.npy is missing, though"):
        AnnotationStore.open(store.folder).verify()


def test_a_manifest_of_another_version_or_none_is_refused(store, tmp_path):
    place = store.folder / MANIFEST
    manifest = json.loads(place.read_text())
    place.write_text(json.dumps(manifest | {"version": 99}))
    with pytest.raises(AnnotationError, match="store of version 99"):
        AnnotationStore.open(store.folder)
    place.write_text("{")
    with pytest.raises(AnnotationError, match="is damaged"):
        AnnotationStore.open(store.folder)
    place.unlink()
    with pytest.raises(AnnotationError, match="no annotation store"):
        AnnotationStore.open(store.folder)
    with pytest.raises(FileNotFoundError):
        AnnotationStore.open(tmp_path / "absent")


def test_two_writers_and_foreign_folders_are_refused(table, store, tmp_path):
    with pytest.raises(AnnotationError, match="is a store already"):
        AnnotationStore.create(store.folder, table)
    place = tmp_path / "new"
    with files.file_lock(place / ".lock") as held:
        assert held
        with pytest.raises(WriteError, match="being written by another process"):
            AnnotationStore.create(place, table)
    (place / "thesis.tex").write_text("mine")
    with pytest.raises(AnnotationError, match=r"holds other files \('thesis.tex'\)"):
        AnnotationStore.create(place, table)
    assert (place / "thesis.tex").read_text() == "mine"


def test_a_full_disk_leaves_no_store_and_a_full_scratch_leaves_the_store(
    table, store, tmp_path, monkeypatch
):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "posix_fallocate", full)
        with pytest.raises(WriteError, match="the disk is full"):
            DawidSkene().fit(store)
    store.verify()
    with monkeypatch.context() as patch:
        patch.setattr("manyhands.scale.store_writer.write_array", full)
        with pytest.raises(WriteError, match="the disk is full"):
            AnnotationStore.create(tmp_path / "new", table)
    with pytest.raises(AnnotationError, match="no annotation store"):
        AnnotationStore.open(tmp_path / "new")
    assert AnnotationStore.create(tmp_path / "new", table).n_annotations == table.n_annotations


# -- remote stores --------------------------------------------------------------------------------


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Address of an empty remote folder; local copies are made in one of the test's own."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec comes with the extra cluster")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    yield "memory://bucket"
    system = fsspec.filesystem("memory")
    if system.exists("/bucket"):
        system.rm("/bucket", recursive=True)


@pytest.mark.parametrize("kind", [str, Path], ids=["text", "path"])  # The shell's are paths.
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_a_remote_store_gives_what_a_local_one_gives(kind, bucket, table, tmp_path):
    frame, local = long_frame(), tmp_path / "local"
    frame.to_csv(tmp_path / "a.csv", index=False)
    remote.upload(tmp_path / "a.csv", f"{bucket}/in/a.csv")
    expected = ingest(tmp_path / "a.csv", tmp_path / "expected", shard_annotations=300)
    store = ingest([kind(f"{bucket}/in/a.csv")], kind(f"{bucket}/store"), shard_annotations=300)
    assert store.digest == expected.digest
    assert {path.name.rsplit("-", 1)[0] for path in local.iterdir()} == {"manyhands-store"}
    with pytest.raises(AnnotationError, match="memory://bucket/store is a store already"):
        ingest(tmp_path / "a.csv", kind(f"{bucket}/store"))
    model = MajorityVote()
    found = aggregate_store(
        AnnotationStore.open(kind(f"{bucket}/store")), model, out=kind(f"{bucket}/labels.parquet")
    )
    assert found["files"] == [f"{bucket}/labels.parquet"]
    labels = pd.read_parquet(remote.fetch(f"{bucket}/labels.parquet", tmp_path / "labels.parquet"))
    assert labels["label"].tolist() == MajorityVote().fit(expected).labels_.tolist()
    opened = pickle.loads(pickle.dumps(store))
    opened.verify()
    assert opened.url == f"{bucket}/store"
    assert AnnotationStore.create(kind(f"{bucket}/new"), table).n_shards == 1
    assert AnnotationStore.open(f"file://{tmp_path}/expected").digest == expected.digest


def test_what_is_wrong_with_a_remote_store_is_said(bucket, table, monkeypatch):
    store = AnnotationStore.create(f"{bucket}/store", table)
    with pytest.raises(FileNotFoundError, match="memory://bucket/none is no annotation store"):
        AnnotationStore.open(f"{bucket}/none")
    system = pytest.importorskip("fsspec").filesystem("memory")
    for path in system.glob("/bucket/store/shards/*.label.npy"):
        system.pipe_file(path, b"x")
        with pytest.raises(AnnotationError, match=r"memory://bucket/store/.*label.npy is damaged"):
            MajorityVote().fit(store)
        system.rm(path)
        with pytest.raises(AnnotationError, match=r"label.npy is missing, though the manifest"):
            MajorityVote().fit(store)
    with pytest.raises(AnnotationError, match=r"nonsense://x/.* cannot be read .*nonsen"):
        AnnotationStore.open("nonsense://x")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(AnnotationError, match=r"s3://x/.*: fsspec needs another package"):
        AnnotationStore.open("s3://x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match="cluster"):
        AnnotationStore.open(f"{bucket}/store")


# -- ingesting files ------------------------------------------------------------------------------


def long_frame(seed=0, n=1500):
    """Rows in random order, with ids whose natural order is not that of text."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(np.unique(rng.integers(0, 400 * 20, n)))
    return pd.DataFrame(
        {
            "task": [f"img{i}" if i % 5 else f"img{i:05d}" for i in pairs // 20],
            "worker": [f"w{i}" for i in pairs % 20],
            "label": np.array(["cat", "dog", 'un, "sure', "a\nb"])[rng.integers(0, 4, len(pairs))],
        }
    )


def numbers(frame):
    return frame.assign(task=frame.index % 300, worker=frame.index // 300, label=frame.index % 3)


KINDS = {
    "csv": (".csv", lambda frame: frame, {"abstain": ['un, "sure']}),
    "gz": (".csv.gz", lambda frame: frame, {}),
    "parquet": (".parquet", lambda frame: frame, {}),
    "integers": (".csv", numbers, {}),
    "typed integers": (".parquet", numbers, {}),
    "mixed": (
        ".csv",
        lambda f: f.assign(task=[f"{i - 5}" for i in range(400)] + [*f.task[400:]]),
        {},
    ),
    "weights": (
        ".csv",
        lambda frame: frame.assign(weight=frame.index % 7 / 2),
        {"weight": "weight"},
    ),
    "twice": (".csv", lambda f: pd.concat([f, f[:40]]), {"duplicates": "last"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ingesting_a_file_gives_the_store_of_its_table(kind, tmp_path):
    suffix, change, options = KINDS[kind]
    frame, path = change(long_frame(n=800)), tmp_path / f"a{suffix}"
    frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(path, index=False)
    table = read_annotations(path, **options)
    # So little memory that the file makes several runs and several parts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "ROW", 5000)
        patch.setattr(ingesting, "MERGED_ROW", 4000)
        store = ingest(path, tmp_path / "store", memory=2**20, shard_annotations=100, **options)
    assert store.n_shards > 5
    store.verify()
    order, _ = table.by_instance()
    expected, whole = (table if order is None else table.take(order)), store[:]
    for name in ("instance", "annotator", "label", "weight", "instances", "annotators", "classes"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(expected, name))
    assert sorted(map(tuple, whole.abstentions)) == sorted(map(tuple, table.abstentions))
    assert {path.name for path in store.folder.iterdir()} == {
        "manifest.json",
        "shards",
        "instances.npy",
        "annotators.npy",
        "classes.npy",
    }


def test_an_ingest_that_is_interrupted_anywhere_resumes(tmp_path, monkeypatch):
    path, left = tmp_path / "a.csv", [0]
    long_frame().to_csv(path, index=False)
    monkeypatch.setattr(sorted_runs, "ROW", 5000)
    monkeypatch.setattr(ingesting, "MERGED_ROW", 4000)
    options = {"memory": 2**20, "shard_annotations": 100}
    expected = ingest(path, tmp_path / "expected", **options)

    def full(*_):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sorted_runs.os, "fsync", full)
    failures = 0
    for written in range(3, 300, 9):  # More is written in each attempt before the disk is full.
        left[0] = written
        with contextlib.suppress(WriteError):
            store = ingest(path, tmp_path / "store", **options)
            break
        failures += 1
    assert failures > 3
    assert store.digest == expected.digest
    store.verify()


def test_another_ingest_is_not_resumed_and_nothing_uncarried_is_lost(tmp_path, monkeypatch):
    frame, path = long_frame(), tmp_path / "a.csv"
    frame.to_csv(path, index=False)

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingesting, "_Merge", dies)
        with pytest.raises(KeyboardInterrupt):
            ingest(path, tmp_path / "store")
    with pytest.raises(AnnotationError, match="interrupted ingest with other reading"):
        ingest(path, tmp_path / "store", abstain="cat")
    frame.assign(source="pseudo").to_csv(path, index=False)
    with pytest.raises(AnnotationError, match="source' marks rows as 'pseudo'"):
        ingest(path, tmp_path / "b")
    with pytest.raises(AnnotationError, match="'nobody' is not a column"):
        ingest(path, tmp_path / "c", worker="nobody")
    pd.concat([frame, frame[:3]]).to_csv(path, index=False)
    with pytest.raises(AnnotationError, match=r"3 .* pairs are repeated"):
        ingest(path, tmp_path / "d")
    # What cannot be resumed is not left behind, but an interrupted ingest is.
    assert not {"b", "c", "d"} & {place.name for place in tmp_path.iterdir()}
    assert (tmp_path / "store" / ".ingest" / "plan.json").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(AnnotationError, match="'nobody' is not a column"):
        ingest(path, tmp_path / "mine", worker="nobody")
    assert not any((tmp_path / "mine").iterdir())


@pytest.mark.parametrize("name", ["n_annotations", "weighted", "vocabularies", "shards"])
@pytest.mark.parametrize("value", ["x", None, ["x"]])
def test_a_manifest_that_somebody_edited_is_refused(tmp_path, name, value):
    store = AnnotationStore.create(tmp_path / "store", crowd()[0])
    place = store.folder / MANIFEST
    place.write_text(json.dumps({**json.loads(place.read_text()), name: value}))
    with pytest.raises(
        AnnotationError, match=r"manifest\.json (has no usable|has invalid entries)"
    ):
        AnnotationStore.open(store.folder)
    place.write_text("[]")
    with pytest.raises(AnnotationError, match="is not the manifest"):
        AnnotationStore.open(store.folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m["shards"][0]["files"]["label"].update(name="../mine.npy"), "'../mine.npy' as"),
        (lambda m: m["shards"][0]["files"]["label"].update(name=["x"]), r"\['x'\] as shard 0, and"),
        (lambda m: m["vocabularies"]["classes"].update(name="/mine.npy"), "'/mine.npy' as the voc"),
        (lambda m: m["vocabularies"].pop("classes"), "does not list the files of the vocabularies"),
        (
            lambda m: m["shards"][0].update(files=None),
            "not list the files of shard 0. Restore",
        ),
        (lambda m: m["shards"][0]["files"].pop("label"), "does not list the files of shard 0"),
        (lambda m: m["shards"][0]["files"].update(more={}), "does not list the files of shard 0"),
        (
            lambda m: m["shards"][0]["files"].update(label=3),
            "usable 'label' of shard 0. Restore",
        ),
        (lambda m: m["shards"][0]["files"]["label"].pop("crc32"), "no usable 'label' of shard 0"),
        (lambda m: m["shards"][0].pop("n_skips"), "lacks the counts of shard 0. Restore"),
    ],
)
def test_a_remote_manifest_writes_nothing_outside_its_copy(change, says, bucket, tmp_path):
    """Files of a remote store are copied to their names, which anybody may have written."""
    system = pytest.importorskip("fsspec").filesystem("memory")
    AnnotationStore.create(f"{bucket}/store", crowd()[0])
    manifest = json.loads(system.cat(f"{bucket}/store/{MANIFEST}"))
    change(manifest)
    system.pipe(f"{bucket}/store/{MANIFEST}", json.dumps(manifest).encode())
    copies = tmp_path / "copies" / "of"
    with pytest.raises(AnnotationError, match=says):
        AnnotationStore.open(f"{bucket}/store", scratch=copies)
    assert not copies.parent.exists()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("annotator", -1),
        ("annotator", 10**6),
        ("label", -1),
        ("label", 99),
        ("start", -1),
        ("start", 10**6),
    ],
)
def test_a_store_with_codes_of_nobody_is_refused(tmp_path, column, value):
    """Its checksums are right, as whoever writes the codes writes those, too."""
    store = AnnotationStore.create(tmp_path / "store", crowd()[0])
    place = store.folder / name_of(0, column)
    codes = np.load(place)
    codes[len(codes) // 2] = value
    np.save(place, codes)
    manifest = json.loads((store.folder / MANIFEST).read_text())
    entry = manifest["shards"][0]["files"][column]
    entry |= {"bytes": place.stat().st_size, "crc32": checksum(place)}
    (store.folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(AnnotationError, match=r"shard 0 of .* codes of no instance"):
        DawidSkene().fit(AnnotationStore.open(store.folder))


WRITER = """
import sys, time
from pathlib import Path

from manyhands.exceptions import WriteError
from manyhands.scale.ingest import ingest

home, number = Path(sys.argv[1]), sys.argv[2]
(home / f"ready-{number}").touch()
while not (home / "go").exists():
    time.sleep(0.01)


def progress(what, share):  # Whoever writes waits until the others have been refused.
    (home / "writing").touch()
    while not (home / "go-on").exists():
        time.sleep(0.01)


try:
    ingest(home / f"{number}.csv", home / "store", memory=2**20, shard_annotations=100,
           progress=progress)
except WriteError as error:
    sys.exit(str(error))
"""


def test_of_many_writers_one_makes_the_store_and_readers_see_nothing_or_all(tmp_path):
    expected = set()
    for number in range(3):
        long_frame(number).to_csv(tmp_path / f"{number}.csv", index=False)
        given = {"memory": 2**20, "shard_annotations": 100}
        expected.add(ingest(tmp_path / f"{number}.csv", tmp_path / f"own-{number}", **given).digest)
    assert len(expected) == 3
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with contextlib.ExitStack() as stack:
        writers = []
        for number in range(3):
            given = [*command, str(number)]
            each = stack.enter_context(subprocess.Popen(given, stderr=subprocess.PIPE, text=True))
            stack.callback(each.kill)
            writers.append(each)
        wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
        (tmp_path / "go").touch()
        wait_until(lambda: sum(each.poll() is not None for each in writers) == 2)
        wait_until((tmp_path / "writing").exists)
        with pytest.raises(AnnotationError, match="no annotation store"):
            AnnotationStore.open(tmp_path / "store")
        (tmp_path / "go-on").touch()
        seen = set()
        while any(each.poll() is None for each in writers):
            with contextlib.suppress(AnnotationError):
                store = AnnotationStore.open(tmp_path / "store")
                store.verify()
                seen.add(store.digest)
        said = [each.communicate()[1] for each in writers]
    assert sorted(each.returncode for each in writers) == [0, 1, 1], said
    assert sum("is being written by another process" in text for text in said) == 2
    store = AnnotationStore.open(tmp_path / "store")
    store.verify()
    assert seen <= {store.digest} <= expected
    assert not (tmp_path / "store" / ".lock").exists()
    with pytest.raises(AnnotationError, match="is a store already"):
        ingest(tmp_path / "0.csv", tmp_path / "store")


def wait_until(done, seconds=600):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "the writers took too long"
        time.sleep(0.01)


def test_writers_that_write_nothing_may_leave_at_the_same_time(tmp_path, monkeypatch):
    """Each removes the folder that it made, and the other one may have done so already."""
    place = tmp_path / "store"

    def removed(folder, *_):
        shutil.rmtree(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(StoreWriter, "_held", removed)
    with pytest.raises(KeyboardInterrupt), StoreWriter.locked(place):
        pass
    assert not place.exists()


@pytest.mark.slow
def test_a_killed_ingest_resumes(tmp_path):
    path, folder = tmp_path / "a.csv", tmp_path / "store"
    pd.concat(
        [long_frame(s).assign(task=lambda f, s=s: f.task + f"-{s}") for s in range(40)]
    ).to_csv(path, index=False)
    code = (
        "import os, signal, sys\n"
        "from manyhands.scale.ingest import ingest\n"
        "left = int(sys.argv[4])\n"
        "def progress(what, share):\n"
        "    global left\n"
        "    left -= what == sys.argv[3]\n"
        "    if left == 0:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "ingest(*sys.argv[1:3], memory=2**20, shard_annotations=1000, progress=progress)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(folder)]
    for phase, step in (("reading", 1), ("reading", 2), ("sorting", 1), ("sorting", 2)):
        killed = subprocess.run([*command, phase, str(step)], check=False)
        assert killed.returncode == -signal.SIGKILL, (phase, step)
        assert not (folder / MANIFEST).exists()
    subprocess.run([*command, "no", "1"], check=True)
    store = AnnotationStore.open(folder)
    store.verify()
    assert store.n_annotations == len(read_annotations(path).instance)


# -- commands -------------------------------------------------------------------------------------


def rounded(value):
    """Plain values with floats rounded to twelve digits."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 12) if isinstance(value, float) else value


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_commands_take_a_store_in_place_of_a_table(tmp_path):
    frame = long_frame(n=600)
    frame["label"] = frame.label.str[:2]
    frame.to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame({"task": frame.task.unique()[:50], "label": "ca"}).to_csv(
        tmp_path / "gold.csv", index=False
    )
    table, store = str(tmp_path / "a.csv"), str(tmp_path / "store")
    made = done("ingest", table, "--out", store, "--json")
    assert json.loads(made.stdout)["annotations"] == len(frame)

    def found(*command):
        return json.loads(done(*command, "--json").stdout)

    # Sums over shards differ by rounding errors.
    described = [found("describe", given) for given in (store, table)]
    assert rounded(described[0]) == rounded(described[1])
    measured = found("agreement", store)
    for name, row in found("agreement", table).items():
        assert measured[name]["value"] == pytest.approx(row["value"], abs=1e-12), name
    labels = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    gold = ("--gold", str(tmp_path / "gold.csv"))
    first = found("aggregate", table, *gold, "--out", labels[0])
    second = found("aggregate", store, *gold, "--out", labels[1])
    assert second["actions"] == first["actions"]
    assert second["gold"] == pytest.approx(first["gold"], abs=1e-9)
    pd.testing.assert_frame_equal(pd.read_parquet(labels[1]), pd.read_parquet(labels[0]))
    done("aggregate", store, "--out", str(tmp_path / "folder"), "--method", "majority-vote")
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == [
        "annotators.csv",
        "labels.parquet",
    ]
    for command, says in (
        (("aggregate", store, "--out", "x.csv"), "written shard by shard"),
        (("aggregate", store, "--compare"), "leave --compare"),
        (("aggregate", store, "--people", "anna"), "--people out"),
        (("rank", store), "a ranking is of comparisons"),
        (("ingest", table, "--out", store), "is a store already"),
        (("next", store), "is an annotation store, but a table or an export is needed"),
        (("next", table, "--cost", table), "there is no column 'price'; the columns are"),
    ):
        result = run(*command)
        assert result.exit_code == 3
        assert says in result.stderr


@pytest.mark.parametrize("memory", [2**30, 2_000])
def test_names_are_read_as_in_a_table_and_two_spellings_are_told(memory, tmp_path, caplog):
    people = ("Anna", "anna", "Bo")
    kept = [f"t{k}{' ' if k % 3 == 0 and who == 'Bo' else ''},{who},{k % 2}\n"
            for k in range(40) for who in (*people, "Cy " if k % 2 else "Cy")]  # fmt: skip
    path = tmp_path / "a.csv"
    path.write_text("task,worker,label\n" + "".join(kept))
    with pytest.warns(UserWarning, match="differ only in case, spaces or form: 'Anna'"):
        table = read_annotations(path)
    caplog.set_level("INFO", logger="manyhands")
    with pytest.warns(UserWarning, match="differ only in case, spaces or form: 'Anna'"):
        store = ingest(path, tmp_path / "store", memory=memory)
    assert store.annotators.tolist() == table.annotators.tolist() == ["Anna", "Bo", "Cy", "anna"]
    assert store.instances.tolist() == table.instances.tolist()
    assert store.n_annotations == table.n_annotations == len(kept)
    assert (store.annotations_per_annotator() == table.annotations_per_annotator()).all()
    assert "values of the column 'task'" in caplog.text
    assert "values of the column 'worker', such as 'Cy '" in caplog.text
