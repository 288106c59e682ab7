"""Truth inference on clusters: what a table gives, whichever worker or client is lost."""

import os
import shutil
import signal
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from manyhands import GLAD, IBCC, AnnotationStore, DawidSkene
from manyhands.cli.app import app
from manyhands.exceptions import AnnotationError
from manyhands.files import write_atomically
from manyhands.inference import checkpoints, glad
from manyhands.scale import clusters, shard_jobs
from manyhands.scale.sharded import StoredVotes
from tests.scale.test_store import METHODS, crowd

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")


def new_client(**options):
    return distributed.Client(
        **{"processes": False, "protocol": "tcp", "n_workers": 2, **options},
        host="127.0.0.1",
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
    )


@pytest.fixture(scope="module")
def client():
    with new_client() as client:
        yield client


def two_iterations():
    return DawidSkene(max_iter=2, dependence=0, n_subtypes=1)


@pytest.fixture
def table():
    return crowd()[0]


@pytest.fixture
def store(table, tmp_path):
    return AnnotationStore.create(tmp_path / "store", table, shard_annotations=500)


def same(found, expected):
    np.testing.assert_allclose(found.posterior_, expected.posterior_, atol=1e-9, rtol=0)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_allclose(found.confusion_, expected.confusion_, atol=1e-9, rtol=0)
    np.testing.assert_allclose(found.class_prior_, expected.class_prior_, atol=1e-9, rtol=0)
    assert found.n_iter_ == expected.n_iter_


# What GLAD does is tested below.
@pytest.mark.parametrize("method", [m for m in METHODS if not isinstance(m, GLAD)], ids=repr)
def test_a_dask_cluster_gives_what_the_table_gives(method, client, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_jobs, "FAN", 2)  # Two levels of sums, of few shards.
    table, gold = crowd(80, weights=isinstance(method, IBCC))
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=100)
    assert store.n_shards == 3
    given = {**method.get_params(), "max_iter": 2, "n_restarts": 2}
    if not isinstance(method, DawidSkene | IBCC):
        given["dependence"] = 0.2  # All measure it in the same way.
    given = {name: value for name, value in given.items() if name in method.get_params()}
    expected = type(method)(**given).fit(table, gold=gold)
    found = type(method)(**given).fit(store, gold=gold, engine=client)
    same(found, expected)


def test_workers_alone_read_the_shards_of_glad(client, table, store, tmp_path, monkeypatch):
    def refuse(_):
        raise AssertionError("the client reads shards")

    model, gold = GLAD(max_iter=2, class_prior="estimated"), crowd()[1]
    expected = clone(model).fit(table, gold=gold)
    monkeypatch.setattr(shard_jobs.ClusterEngine, "__iter__", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(glad.RemoteSteps, "information", interrupt_second())
        with pytest.raises(KeyboardInterrupt):
            clone(model).fit(store, gold=gold, engine=client, checkpoint=tmp_path / "run")
    found = model.fit(store, gold=gold, engine=client, checkpoint=tmp_path / "run")
    same(found, expected)
    for name in ("ability_", "difficulty_"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)


def interrupt_second():
    calls, plain = [], glad.RemoteSteps.information

    def information(self, theta):
        calls.append(theta)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(self, theta)

    return information


def test_what_is_no_cluster_is_refused(store):
    with pytest.raises(AnnotationError, match="engine='x' cannot count shards; give a dask"):
        DawidSkene().fit(store, engine="x")


def test_a_table_without_a_store_is_refused(client, table):
    with pytest.raises(AnnotationError, match="engine= counts the shards of a store; write"):
        DawidSkene().fit(table, engine=client)


@pytest.mark.slow
def test_a_fit_has_the_same_bits_whichever_worker_is_fast_or_lost(store, monkeypatch):
    calls, lost = [], []
    counts = shard_jobs.Job.sum

    def slow_or_dying(self, parts):
        calls.extend(part.number for part in parts)
        if len(calls) >= 7 and not lost:
            lost.append(True)
            worker = distributed.get_worker()
            worker.loop.add_callback(worker.close, executor_wait=False, reason="lost")
            time.sleep(0.2)
        time.sleep(0.002 * (len(calls) % 3))
        return counts(self, parts)

    with new_client() as client:
        expected = two_iterations().fit(store, engine=client)
        monkeypatch.setattr(shard_jobs.Job, "sum", slow_or_dying)
        found = two_iterations().fit(store, engine=client)
        assert len(client.nthreads()) == 1
    assert len(set(calls)) == store.n_shards
    np.testing.assert_array_equal(found.posterior_, expected.posterior_)
    np.testing.assert_array_equal(found.log_likelihood_, expected.log_likelihood_)


@pytest.mark.slow
def test_a_lost_client_resumes_to_the_same_bits(client, store, tmp_path, monkeypatch):
    model = DawidSkene(max_iter=5, dependence=0, n_subtypes=1)
    expected = clone(model).fit(store, engine=client)
    written = []

    def dies(path, content):
        written.append(path)
        if len(written) == 4:
            raise KeyboardInterrupt
        return write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_atomically", dies)
        with pytest.raises(KeyboardInterrupt):
            clone(model).fit(store, engine=client, checkpoint=tmp_path / "run")
    assert (tmp_path / "run" / "subtypes-1.npz").exists()
    found = clone(model).fit(store, engine=client, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(found.posterior_, expected.posterior_)
    # Nor is a fit bound to the engine that it was begun on.
    begun = clone(model).fit(store, checkpoint=tmp_path / "run")
    same(begun, expected)


def test_a_worker_of_another_version_is_refused(client, store, monkeypatch):
    monkeypatch.setattr(shard_jobs, "__version__", "0.0.1")
    with pytest.raises(AnnotationError, match=r"manyhands 0.0.1 and the client 9.9; install the"):
        client.submit(shard_jobs.run, "9.9", None, "sum", None).result()
    monkeypatch.setattr(
        distributed.Client, "run", lambda *_, **__: {}
    )  # It joined after the check.
    monkeypatch.setattr(shard_jobs, "__version__", "9.9")
    submit = distributed.Client.submit

    def older(self, function, version, *given, **options):
        return submit(self, function, "0.0.1", *given, **options)

    monkeypatch.setattr(distributed.Client, "submit", older)
    with pytest.raises(AnnotationError, match=r"manyhands 9.9 and the client 0.0.1"):
        two_iterations().fit(store, engine=client)


def test_a_store_that_workers_do_not_see_or_that_is_damaged_is_named(client, store, tmp_path):
    moved = tmp_path / "moved"
    reader = shard_jobs.ClusterEngine(clusters.cluster_of(client), StoredVotes(store), 100).reader
    shutil.copytree(store.folder, moved)
    with pytest.raises(AnnotationError, match=r"finds no store at .*absent; every worker must"):
        replace(reader, folder=tmp_path / "absent").open()
    with pytest.raises(AnnotationError, match="finds another store"):
        replace(reader, folder=moved, digest="other").open()
    place = moved / "shards" / "00001.label.npy"
    place.write_bytes(place.read_bytes()[:-2] + b"xx")
    with pytest.raises(AnnotationError, match=r"00001.label.npy is damaged"):
        two_iterations().fit(AnnotationStore.open(moved), engine=client)


@pytest.mark.slow
def test_a_killed_process_changes_nothing(store, monkeypatch):
    expected = DawidSkene(max_iter=20).fit(store)
    calls, sums = [], clusters.DaskCluster.sums
    with new_client(processes=True) as client:
        pids = [pid for _, pid in sorted(client.run(os.getpid).items())]

        def killing(self, job, batches):
            calls.append(job)
            if len(calls) == 5:
                os.kill(pids[0], signal.SIGKILL)
            return sums(self, job, batches)

        monkeypatch.setattr(clusters.DaskCluster, "sums", killing)
        same(DawidSkene(max_iter=20).fit(store, engine=client), expected)
    assert len(calls) > 5


def test_the_command_counts_on_the_workers_of_an_address(client, store, table, tmp_path):
    address = client.scheduler.address
    with clusters.dask_client(address) as other:
        assert other.scheduler.address == address
    result = CliRunner().invoke(
        app, ["aggregate", str(store.folder), "--method", "majority-vote", "--dask", address]
    )
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["aggregate", str(store.folder), "--dask", "nowhere://x"])
    assert result.exit_code == 3
    assert "no scheduler of dask.distributed answers" in " ".join(result.output.split())


# -- Spark ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Else workers take any python3.
    builder = sql.SparkSession.builder.master("local[2]")
    for name, value in SPARK.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


SPARK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # For so few seconds, neither optimised code nor a parallel collector pays.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")
def test_spark_gives_what_the_table_gives(spark, table, store, monkeypatch):
    monkeypatch.setattr(shard_jobs, "FAN", 2)
    found = two_iterations().fit(store, engine=spark)
    same(found, two_iterations().fit(table))
    glad = GLAD(max_iter=1, dependence=0)
    same(clone(glad).fit(store, engine=spark), clone(glad).fit(table))
    place = store.folder / "shards" / "00001.label.npy"
    place.write_bytes(place.read_bytes()[:-2] + b"xx")
    with pytest.raises(AnnotationError, match=r"00001.label.npy is damaged"):
        two_iterations().fit(AnnotationStore.open(store.folder), engine=spark)
