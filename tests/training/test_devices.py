"""Training on several devices: equal to one process, whatever the method, the data, the failure."""

import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import manyhands
from manyhands import (
    CrowdLayerClassifier,
    CrowdLayerProtocol,
    DASCClassifier,
    cross_predict,
    make_crowd,
)
from manyhands.cli.processes import DeviceOptions
from manyhands.exceptions import AnnotationError
from manyhands.fitting import pilots
from manyhands.fitting.reading import take_rows
from manyhands.functional.ranks import Ranks, working_together
from manyhands.io.mapped import MappedRows
from manyhands.registry import all_classifiers
from manyhands.training import Callback, Devices

NETWORK = {"name": "mlp", "dropout": 0.0, "hidden": [16]}
OWN = {"max_epochs": 3, "batch_size": 32, "random_state": 0, "backbone": NETWORK}
SOLVED = {"PersonalClassifier", "RaykarClassifier"}
"""Methods without gradient steps."""
TRAINED = [
    name for name, cls in all_classifiers() if hasattr(cls, "_stages") and name not in SOLVED
]


def data(n=121):
    """Features and annotations; the instances have different numbers of annotations."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = (rng.normal(size=(n, 6)) + 2 * np.eye(3, 6)[y]).astype(np.float32)
    return X, make_crowd(y, random_state=0), y


class Items(Dataset):
    """A Dataset that notes what was read."""

    def __init__(self, X):
        self.X, self.read = X, []

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        self.read.append(i)
        return torch.from_numpy(self.X[i])


class Stops(Callback):
    """Ends the training after two epochs, and counts what it hears."""

    heard = 0

    def on_epoch_end(self, epoch, metrics):
        self.heard += 1
        metrics["heard"] = float(self.heard)
        return epoch == 2


# -- what the processes run -----------------------------------------------------------------------


def figures(model, X):
    """Everything of a fit that has to be equal."""
    rows = [
        {k: v for k, v in row.items() if k != "seconds" and not isinstance(v, str)}
        for row in model.history_
    ]
    return {"rows": rows, "proba": model.predict_proba(X).tolist()}


def methods(n, folder):
    """Every method that is trained by gradient steps: two batches an epoch, the last one odd."""
    X, table, _ = data(61)
    found = {}
    for name in TRAINED:
        parameters = {**OWN, "device": Devices(n, precision="64-true")}
        model = getattr(manyhands, name)(**parameters).fit(X, table)
        found[name] = figures(model, X)
    return found


def paths(n, folder):
    """Batch normalisation, Datasets, mapped arrays, callbacks, folds, self-training, prediction."""
    X, table, y = data()
    device = Devices(n, precision="64-true")
    found = {}

    def fit(name, X=X, **parameters):
        model = CrowdLayerClassifier(**{**OWN, "device": device, **parameters})
        found[name] = figures(model.fit(X, table), X)
        return model

    fit("batch norm", backbone={**NETWORK, "batch_norm": True})
    items = Items(X)
    fit("dataset", items, scaling=None)
    own = len(items.read)
    np.save(folder / f"mapped{os.environ.get('RANK', '')}.npy", X)
    fit("mapped", np.load(folder / f"mapped{os.environ.get('RANK', '')}.npy", mmap_mode="r"))
    fit("validation", validation=(X, y), protocol=CrowdLayerProtocol(patience=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pilots, "PILOT_STEPS", 4)
        patch.setattr(pilots, "LEAST_EPOCHS", 4)
        fit("length", max_epochs="auto", batch_size=128)
    again = fit("fitted again", X=np.zeros_like(X), scaling=None)
    stops = Stops()
    fit("callbacks", callbacks=[stops])
    model = CrowdLayerClassifier(**{**OWN, "device": device})
    found["folds"] = {"proba": cross_predict(model, X, table, cv=2).proba.tolist()}
    wrapper = DASCClassifier(model, n_rounds=1, random_state=0, guard=False).fit(X, table)
    found["self-training"] = {"proba": wrapper.predict_proba(X).tolist()}
    with device.joined():
        found["grid"] = {"proba": wrapper.predict_annotation_proba(X).tolist()}
    found["own"] = {"read": own, "heard": stops.heard, "start": again.init_scale_}
    return found


def dropout(n, folder):
    """Networks that draw: no equal curves, but the same network in all processes."""
    X, table, _ = data()
    device = Devices(n)
    model = CrowdLayerClassifier(**{**OWN, "backbone": None, "device": device}).fit(X, table)
    with device.joined() as ranks:
        weights = [value.double().sum().item() for value in model.module_.state_dict().values()]
        return {"weights": ranks.all_of(weights)}


class Deadly(Items):
    """Items whose reading kills the second process in its fourth epoch, once."""

    def __init__(self, X, flag):
        super().__init__(X)
        self.flag = flag

    def __getitem__(self, i):
        if os.environ.get("RANK") == "1" and len(self.read) == 220 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


def killed(n, folder):
    """A checkpoint after every epoch, and dropout, whose draws have to be repeated."""
    X, table, _ = data()
    parameters = {**OWN, "max_epochs": 6, "backbone": None, "device": Devices(n)}
    parameters["checkpoint"] = folder / "state.safetensors"
    model = CrowdLayerClassifier(**parameters).fit(Deadly(X, folder / "flag"), table)
    return {"killed": figures(model, X)}


def work(tasks, n, folder):
    warnings.simplefilter("ignore")
    for task in tasks.split("+"):
        found = globals()[task](n, Path(folder))
        file = Path(folder) / f"{task}-{os.environ.get('RANK', 0)}.json"
        file.write_text(json.dumps(found))


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def together(tasks, folder, *options, n=2):
    """Run tasks in n processes; return what each process found, by task."""
    pytest.importorskip("lightning_fabric", reason="the extra 'torch' is not installed")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n)]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port()), *options]
    command += [__file__, "+".join(tasks), str(n), str(folder)]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    limit = 600 * len(tasks)
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=limit, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        task: [json.loads((folder / f"{task}-{rank}.json").read_text()) for rank in range(n)]
        for task in tasks
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What two processes find in all tasks: a start for each would mostly be imports."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "flag").touch()  # Nothing is killed.
    return together(["methods", "paths", "dropout", "killed"], folder)


def difference(one, other):
    """Largest absolute difference of two results."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return max([difference(one[key], other[key]) for key in one], default=0.0)
    if isinstance(one, list):
        assert len(one) == len(other)
        return max([difference(a, b) for a, b in zip(one, other, strict=True)], default=0.0)
    if one is None or one != one:
        assert other is None or other != other
        return 0.0
    return abs(one - other)


# -- several processes equal one ------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_train_every_method_as_one_does(whole, tmp_path):
    expected = methods(1, tmp_path)
    assert {"CrowdLayerClassifier", "CoNALClassifier", "MaxMIGClassifier"} <= expected.keys()
    for found in whole["methods"]:
        for name, one in expected.items():
            assert difference(one, found[name]) < 1e-5, name


@pytest.mark.slow
def test_two_processes_equal_one_on_every_path(whole, tmp_path):
    expected = paths(1, tmp_path)
    own = expected.pop("own")
    for rank, found in enumerate(whole["paths"]):
        parts = found["own"]
        for name, one in expected.items():
            assert difference(one, found[name]) < 1e-5, name
        # Of a Dataset, every process reads its part; a user's callback is heard in the first only.
        assert parts["read"] < 0.7 * own["read"]
        assert parts["heard"] == (own["heard"] if rank == 0 else 0)
        assert parts["start"] == own["start"]


@pytest.mark.slow
def test_dropout_leaves_the_networks_of_all_processes_equal(whole):
    for found in whole["dropout"]:
        one, other = found["weights"]
        assert one == other


@pytest.mark.slow
def test_a_killed_process_is_restarted_and_ends_with_the_uninterrupted_result(whole, tmp_path):
    restarted = together(["killed"], tmp_path, "--max-restarts", "1")
    assert (tmp_path / "flag").exists()
    expected, found = whole["killed"][0]["killed"], restarted["killed"][0]["killed"]
    assert found["proba"] == expected["proba"]
    assert found["rows"] == expected["rows"]


@pytest.mark.slow
def test_the_command_starts_the_processes_and_reports_once(tmp_path):
    pytest.importorskip("lightning_fabric", reason="the extra 'torch' is not installed")
    X, table, _ = data()
    np.save(tmp_path / "X.npy", X)
    frame = table.to_frame().rename(columns={"instance": "task", "annotator": "worker"})
    frame.to_csv(tmp_path / "A.csv", index=False)

    def run(out, *options):
        command = f"-m manyhands fit --features X.npy --annotations A.csv --out {out}".split()
        command += ["--method", "crowd-layer", "--set", "backbone.dropout=0", *options]
        command += ["--set", "max_epochs=2"]
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    one, two = run("fit1", "--folds", "0"), run("fit2", "--devices", "2")  # It has no folds.
    assert two.returncode == 0, two.stderr
    assert two.stdout.replace("fit2", "fit1") == one.stdout
    loaded = [manyhands.load(tmp_path / out) for out in ("fit1", "fit2")]
    assert np.abs(loaded[0].predict_proba(X) - loaded[1].predict_proba(X)).max() < 1e-5
    failed = run("three", "--devices", "2", "--set", "lr=1e30")
    assert failed.returncode == 7
    assert "the loss became" in failed.stderr


# -- one process ----------------------------------------------------------------------------------


def test_one_device_is_the_plain_training():
    X, table, _ = data()
    parameters = {**OWN, "backbone": None}
    plain = CrowdLayerClassifier(**parameters).fit(X, table)
    same = CrowdLayerClassifier(**parameters, device=Devices(accelerator="cpu")).fit(X, table)
    assert (same.predict_proba(X) == plain.predict_proba(X)).all()
    assert same.history_.column("loss").tolist() == plain.history_.column("loss").tolist()


def test_double_precision_and_bfloat16_train_and_end_in_single_precision(tmp_path):
    X, table, _ = data()
    plain = CrowdLayerClassifier(**OWN).fit(X, table)
    losses = []
    for precision, close in (("64-true", 1e-5), ("bf16-mixed", 0.05)):
        model = CrowdLayerClassifier(**OWN, device=Devices(precision=precision)).fit(X, table)
        gap = np.abs(model.predict_proba(X) - plain.predict_proba(X)).max()
        assert 0 < gap < close
        assert next(model.module_.parameters()).dtype == torch.float32
        losses.append(model.history_.column("loss")[0])
    assert losses[0] != np.float32(losses[0])  # Computed in double precision indeed.
    loaded = manyhands.load(model.save(tmp_path / "model"))
    assert loaded.device == "auto"


class OfTwo(Ranks):
    """The first of two processes; what the other has is made up, so that none is needed."""

    def gathered(self, own, n):
        return torch.cat([own, own.new_zeros(n - len(own), *own.shape[1:])])


def test_a_network_sees_its_part_of_a_batch_and_draws_nothing_from_the_common_numbers():
    seen = []
    network = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 1))
    network.register_forward_hook(lambda module, args, output: seen.append(len(args[0])))
    ranks = OfTwo(0, 2, torch.device("cpu"))
    classifier = manyhands.nn.ScaledClassifier(manyhands.nn.Standardize((2,), None), network)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    with working_together(ranks):
        first = classifier(torch.ones(5, 2))
        second = classifier(torch.ones(5, 2))
        assert torch.equal(torch.get_rng_state(), state)
        classifier(torch.ones(1, 2))  # Too few to divide: all compute it.
    assert seen == [2, 2, 1]
    assert first.shape == (5, 1)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("n", range(2, 9))
def test_parts_cover_a_batch_and_differ_by_one_at_most(n):
    parts = [Ranks(rank, 2, torch.device("cpu")).part(n) for rank in range(2)]
    assert [i for part in parts for i in range(n)[part]] == list(range(n))
    assert abs(len(range(n)[parts[0]]) - len(range(n)[parts[1]])) <= 1


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"devices": 0}, "devices=0"),
        ({"num_nodes": 1.5}, "num_nodes=1.5"),
        ({"strategy": "fsdp"}, "use 'ddp'"),
        ({"precision": "16-mixed"}, "bfloat16 does not"),
        ({"accelerator": "abacus"}, "abacus"),
    ],
)
def test_devices_refuse_what_is_not_supported(values, says):
    with pytest.raises(AnnotationError, match=says):
        Devices(**values)


def test_several_devices_need_as_many_processes():
    X, table, _ = data()
    with pytest.raises(AnnotationError, match="torchrun --nproc-per-node 2 --nnodes 3"):
        CrowdLayerClassifier(device=Devices(2, 3)).fit(X, table)


@pytest.mark.parametrize("name", sorted(SOLVED))
def test_methods_without_gradient_steps_refuse_several_devices(name):
    X, table, _ = data()
    with pytest.raises(AnnotationError, match="solves for its weights"):
        getattr(manyhands, name)(device=Devices(2)).fit(X, table)
    with pytest.raises(AnnotationError, match="--devices 2"):
        DeviceOptions(2).give_to(getattr(manyhands, name)())


def test_options_of_the_command_reach_the_network_or_are_refused(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    wrapper = DASCClassifier()
    DeviceOptions(2, precision="bf16-mixed").give_to(wrapper)
    assert wrapper.estimator.device == Devices(2, precision="bf16-mixed")
    with pytest.raises(AnnotationError, match="trains no network"):
        DeviceOptions(2).give_to(manyhands.CrowdStackingClassifier())
    assert DeviceOptions(2).to_launch == 2
    assert DeviceOptions(1, precision="64-true").to_launch == 0
    with pytest.raises(AnnotationError, match="torchrun"):
        _ = DeviceOptions(2, num_nodes=2).to_launch
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert DeviceOptions(2).to_launch == 0
    assert not DeviceOptions(2).is_first


# -- mapped arrays --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
def test_a_mapped_array_is_never_read_at_once(tmp_path, monkeypatch, dtype):
    X, table, _ = data()
    X = (X * 10).round().clip(0, 200).astype(dtype)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = CrowdLayerClassifier(**OWN).fit(X, table)
    folds = cross_predict(CrowdLayerClassifier(**OWN), X, table, cv=2).proba
    most = []
    read = MappedRows.__getitem__

    def noted(self, rows):
        most.append(len(np.atleast_1d(rows)))
        return read(self, rows)

    def refused(self, dtype=None, copy=None):
        raise AssertionError("read at once")

    monkeypatch.setattr(MappedRows, "__getitem__", noted)
    monkeypatch.setattr(MappedRows, "__array__", refused)
    monkeypatch.setattr("manyhands.io.mapped.BLOCK_BYTES", 40 * 24)
    model = CrowdLayerClassifier(**{**OWN, "scaling": "auto"}).fit(mapped, table)
    assert (model.predict_proba(mapped) == expected.predict_proba(X)).all()
    assert model.n_features_in_ == 6
    found = cross_predict(CrowdLayerClassifier(**OWN), mapped, table, cv=2).proba
    assert (found == folds).all()
    assert most


def test_mapped_arrays_are_checked_in_blocks(tmp_path):
    X, table, _ = data()
    broken = X.copy()
    broken[77, 2] = np.nan
    np.save(tmp_path / "X.npy", broken)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(AnnotationError, match="row 77"):
        CrowdLayerClassifier(**OWN).fit(mapped, table)
    part = take_rows(take_rows(mapped, np.arange(10, 30)), np.array([3, 1]))
    assert isinstance(part, MappedRows)
    assert (part[np.arange(2)] == X[[13, 11]]).all()
    model = CrowdLayerClassifier(**OWN).fit(X, table)
    np.save(tmp_path / "narrow.npy", X[:, :4])
    with pytest.raises(AnnotationError, match="fitted on"):
        model.predict(np.load(tmp_path / "narrow.npy", mmap_mode="r"))


# -- matrices of low rank -------------------------------------------------------------------------


def test_matrices_of_full_rank_train_as_without():
    X, table, _ = data()
    plain = CrowdLayerClassifier(**OWN).fit(X, table)
    full = CrowdLayerClassifier(**OWN, low_rank=9).fit(X, table)
    assert np.abs(plain.predict_proba(X) - full.predict_proba(X)).max() < 1e-5
    assert np.abs(plain.confusion_ - full.confusion_).max() < 1e-5
    assert np.abs(plain.predict_annotation_proba(X) - full.predict_annotation_proba(X)).max() < 1e-5


def test_matrices_of_low_rank_have_few_numbers_and_learn(tmp_path):
    X, table, y = data(600)
    model = CrowdLayerClassifier(low_rank=2, max_epochs=40, lr=0.01, random_state=0).fit(X, table)
    assert model.module_.mixture.shape == (table.n_annotators, 2)
    assert model.score(X, y) > 0.8
    start = CrowdLayerClassifier(low_rank=2, max_epochs=1, random_state=0).fit(X, table)
    assert np.abs(model.confusion_ - start.confusion_).max() > 0.05
    loaded = manyhands.load(model.save(tmp_path / "model"))
    assert (loaded.predict_annotation_proba(X) == model.predict_annotation_proba(X)).all()
    with pytest.raises(AnnotationError, match="connection='MW'"):
        CrowdLayerClassifier(low_rank=2, connection="VW").fit(X, table)


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), sys.argv[3])
