"""Tables by annotator that do not fit in memory: what tables in memory give, in bounded memory."""

import numpy as np
import pytest
from sklearn.base import clone

from manyhands import IBCC, AnnotationStore, AnnotationTable, DawidSkene, OneCoinDawidSkene
from manyhands.exceptions import AnnotationError
from manyhands.files import write_atomically
from manyhands.inference import checkpoints, dependence
from manyhands.scale import annotator_blocks, shard_jobs
from manyhands.scale.annotator_blocks import Blocks, PairCounts
from tests.scale.test_store import crowd

METHODS = [
    DawidSkene(max_iter=5),
    DawidSkene(dependence=0, n_subtypes=2, prior_strength=2, max_iter=5),
    DawidSkene(em="hard", confusion_prior="pooled", max_iter=5),
    DawidSkene(confusion_prior=None, max_iter=5),
    IBCC(abstentions="model", max_iter=8),
    OneCoinDawidSkene(max_iter=8),
]


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    """Let no method measure the dependence, as none does with so many annotators."""
    monkeypatch.setattr(dependence, "N_PARAMETERS", 0)


@pytest.fixture
def small(monkeypatch):
    """Keep tables on disk, in blocks of 2 annotators, and count few annotations at once."""
    monkeypatch.setattr(annotator_blocks, "LARGEST", 0)
    monkeypatch.setattr(annotator_blocks, "BLOCK", 2 * 3 * 4)
    monkeypatch.setattr(annotator_blocks, "RUN", 80)


def same(found, expected):
    for name in ("posterior_", "class_prior_", "confusion_", "annotator_accuracy_"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_allclose(found.log_likelihood_, expected.log_likelihood_, rtol=1e-12)


@pytest.mark.parametrize("weights", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_blocks_of_annotators_change_nothing(method, weights, tmp_path, small):
    table, gold = crowd(200, weights=weights)
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=200)
    given = {"gold": gold, "history": {0: [[9, 1, 0], [2, 7, 1], [0, 1, 8]]}}
    expected = clone(method).fit(table, **given)
    found = clone(method).fit(store, **given)
    same(found, expected)
    np.testing.assert_allclose(found.predict_proba(table), expected.predict_proba(table))
    if isinstance(method, OneCoinDawidSkene):
        return
    assert isinstance(found.confusion_, np.memmap)
    del found  # Its tables vanish with it.
    assert not list(store.scratch.glob("*.table"))


@pytest.mark.parametrize("method", METHODS[:4], ids=repr)
def test_blocks_of_annotators_change_nothing_of_grades(method, tmp_path, small):
    table, gold = crowd(200, weights=True)
    table = table.with_scale("ordinal")
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=200)
    given = {"gold": gold, "history": {0: [[9, 1, 0], [2, 7, 1], [0, 1, 8]]}}
    expected = clone(method).fit(table, **given)
    found = clone(method).fit(store, **given)
    same(found, expected)
    np.testing.assert_allclose(found.severity_, expected.severity_, atol=1e-12)
    np.testing.assert_allclose(found.severity_se_, expected.severity_se_, atol=1e-12)
    names = clone(method).fit(table.with_scale("nominal"), **given)
    assert np.abs(names.posterior_ - expected.posterior_).max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("method", [METHODS[1], METHODS[4]], ids=repr)
def test_a_cluster_adds_up_blocks_of_annotators(method, tmp_path, small, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    monkeypatch.setattr(shard_jobs, "FAN", 2)
    table, gold = crowd()
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=200)
    assert store.n_shards > 5
    assert annotator_blocks.n_pieces(store.n_annotators, 3) > 5
    added = []
    summed = Blocks.__add__

    def noted(self, counts):
        added.append(counts.pairs if isinstance(counts, PairCounts) else None)
        return summed(self, counts)

    monkeypatch.setattr(Blocks, "__add__", noted)
    options = {"processes": False, "protocol": "tcp", "n_workers": 2, "threads_per_worker": 1}
    with distributed.Client(**options, host="127.0.0.1", dashboard_address="127.0.0.1:0") as client:
        model = clone(method).set_params(max_iter=3)
        found = clone(model).fit(store, gold=gold, engine=client)
    # The client never holds the counts of more than a block.
    assert max(np.ptp(pairs) for pairs in added if len(pairs)) < 4 * 4
    same(found, clone(model).fit(table, gold=gold))


@pytest.mark.parametrize("method", [METHODS[1], METHODS[4]], ids=repr)
def test_a_killed_fit_resumes_to_the_same_bits(method, tmp_path, small, monkeypatch):
    store = AnnotationStore.create(tmp_path / "store", crowd(200)[0], shard_annotations=200)
    expected = clone(method).fit(store)
    written = []

    def dies(path, content):
        written.append(path)
        if len(written) == 8:
            raise KeyboardInterrupt
        return write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_atomically", dies)
        with pytest.raises(KeyboardInterrupt):
            clone(method).fit(store, checkpoint=tmp_path / "run")
    held = sorted(place.suffix for place in (tmp_path / "run").iterdir())
    assert held == [".json", ".npz", ".table", ".table"][: len(held)]  # One may be newer.
    found = clone(method).fit(store, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(found.posterior_, expected.posterior_)
    np.testing.assert_array_equal(found.log_likelihood_, expected.log_likelihood_)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_tables_have_the_size_of_a_block_in_memory(tmp_path, monkeypatch):
    """Rows of all annotators are never in memory at once, nor counted by a run."""
    rng = np.random.default_rng(0)
    n, r, c = 4000, 3000, 4
    instance, annotator = np.repeat(np.arange(n), 3), np.arange(3 * n) * 7 % r
    table = AnnotationTable.from_arrays(instance, annotator, rng.integers(0, c, 3 * n))
    store = AnnotationStore.create(tmp_path / "store", table)
    monkeypatch.setattr(annotator_blocks, "LARGEST", r * c * c - 1)
    monkeypatch.setattr(annotator_blocks, "BLOCK", 100 * c * c)
    monkeypatch.setattr(annotator_blocks, "RUN", 600)
    largest = []
    for name in ("__getitem__", "at"):
        method = getattr(Blocks, name)

        def noted(self, key, method=method):
            rows = method(self, key)
            largest.append(rows.size)
            return rows

        monkeypatch.setattr(Blocks, name, noted)
    DawidSkene(max_iter=2).fit(store)
    assert max(largest) <= max(100 * c * c, 610 * c) < r * c


def test_a_table_that_a_worker_does_not_see_is_named(tmp_path):
    state = Blocks(tmp_path, (2, 2, 2)).__getstate__()
    with pytest.raises(AnnotationError, match="every worker must see the scratch folder"):
        Blocks.__new__(Blocks).__setstate__(state)
