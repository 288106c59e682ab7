"""Training on two processes against one, and on a GPU: loss curves, seconds, memory.

Every case runs in processes of its own, with one thread each, on the CPU (gloo); the cases named
*gpu* run on both, and only where there is a GPU. Loss curves are compared in double precision,
without dropout.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import manyhands as mh
from benchmarks.bars import Bar, bars
from evidence.study import ROOT, Study
from evidence.tables import Record, crossed, spread, table
from manyhands.datasets import load_labelme
from manyhands.training import Callback, Devices

METHODS: dict[str, Any] = {"Crowd Layer": mh.CrowdLayerClassifier, "CoNAL": mh.CoNALClassifier}
EPOCHS, KILL_AT = 10, 4
RANKS = (None, 1, 2, 4, 8)
SEEDS = range(1, 4)

ON_GPU = {name: cls for name, cls in mh.all_classifiers() if "device" in cls().get_params()}
"""Classifiers that train networks."""


# -- cases, each in processes of its own ----------------------------------------------------------


def curve(method: str, n: int) -> dict[str, Any]:
    """Loss of every epoch on LabelMe, in double precision."""
    data = load_labelme()
    model = METHODS[method](
        {"name": "mlp", "dropout": 0.0},
        max_epochs=EPOCHS,
        random_state=0,
        device=Devices(n, precision="64-true", accelerator="cpu"),
    ).fit(data.X_train, data.annotations)
    return epochs_of(model, len(data.X_train))


def made_up(n: int = 512) -> tuple[Any, Any]:
    """Images of noise, and annotations of their random classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, n)
    X = rng.normal(size=(n, 3, 32, 32)).astype(np.float32)
    return X, mh.make_crowd(y, random_state=0)


def epochs_of(model: Any, n: int) -> dict[str, Any]:
    """Loss of every epoch, and median seconds."""
    seconds = float(np.median(model.history_.column("seconds")))
    return {"losses": model.history_.column("loss").tolist(), "seconds": seconds, "instances": n}


def images(method: str, n: int) -> dict[str, Any]:
    """Seconds of an epoch where the network is what costs: convolutions on made-up images."""
    device = Devices(n, accelerator="cpu")
    network = {"name": "cnn", "dropout": 0.0}
    model = METHODS[method](network, max_epochs=3, random_state=0, device=device).fit(*made_up())
    return epochs_of(model, 512)


class Kill(Callback):
    """Kills the second process, by SIGKILL, when the first begins an epoch; once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_epoch_begin(self, epoch: int) -> None:
        """Kill, unless it was done."""
        flag = self.folder / "killed"
        if epoch == KILL_AT and not flag.exists() and (self.folder / "kill").exists():
            flag.touch()
            os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)


def killed(method: str, n: int, folder: Path) -> dict[str, Any]:
    """Final loss and weights of a run that may lose a process on its way."""
    if os.environ.get("RANK") == "1":
        (folder / "pid").write_text(str(os.getpid()))
    demo = mh.load_demo()
    model = METHODS[method](
        max_epochs=EPOCHS,
        random_state=0,
        device=Devices(n, accelerator="cpu"),
        checkpoint=folder / f"state-{(folder / 'kill').exists()}.safetensors",
        callbacks=[Kill(folder)],
    ).fit(demo.X_train, demo.annotations)
    proba = model.predict_proba(demo.X_test)
    return {
        "losses": model.history_.column("loss").tolist(),
        "proba": proba.tolist(),
        "restarts": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    }


def low_rank(what: str, n: int) -> dict[str, Any]:
    """Test accuracy of Crowd Layer by rank on the demo and on LabelMe."""
    found: dict[str, Any] = {}
    for name, data in (("demo", mh.load_demo()), ("LabelMe", load_labelme())):
        for rank in RANKS:
            found[f"{name} {rank}"] = [
                mh.CrowdLayerClassifier(low_rank=rank, max_epochs=40, random_state=seed)
                .fit(data.X_train, data.annotations)
                .score(data.X_test, data.y_test)
                for seed in SEEDS
            ]
    return found


def gpu_images(method: str, n: int) -> dict[str, Any]:
    """Seconds of an epoch of VGG-16 on 512 made-up images, on the CPU and on the GPU."""
    options = {"max_epochs": 3, "init_scale": 2.0, "random_state": 0}
    return _on_both(
        lambda device: METHODS[method]("vgg16", **options, device=device),
        made_up(),
        lambda model: float(np.median(model.history_.column("seconds"))),
    )


class Memory(threading.Thread):
    """Watches the memory of this process that belongs to no file, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = self.now(), False

    @staticmethod
    def now() -> float:
        """Anonymous resident memory."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(x.split()[1]) * 1024 / 1e6 for x in lines if x.startswith("RssAnon"))

    def run(self) -> None:
        """Look every 10 ms."""
        while not self.ended:
            self.most = max(self.most, self.now())
            time.sleep(0.01)


def mapped(kind: str, n: int) -> dict[str, Any]:
    """Memory of a fit and a prediction on features in a file."""
    rng = np.random.default_rng(0)
    n, width, step = 100_000, 1024, 10_000
    y = rng.integers(0, 5, n)
    given = mh.make_crowd(y, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        file = np.lib.format.open_memmap(path, "w+", np.float16, (n, width))
        for start in range(0, n, step):
            centres = 2 * np.eye(5, width)[y[start : start + step]]
            file[start : start + step] = rng.normal(size=(step, width)) + centres
        file.flush()
        del file
        watch = Memory()
        before = watch.now()
        watch.start()
        X = np.load(path, mmap_mode=None if kind == "memory" else "r")
        model = mh.CrowdLayerClassifier(max_epochs=1, batch_size=512, random_state=0, device="cpu")
        proba = model.fit(X, given).predict_proba(X)
        watch.ended = True
        return {
            "mb": watch.most - before,
            "file": n * width * 2 / 1e6,
            "loss": model.history_[0]["loss"],
            "proba": float(proba[:, 0].sum()),
        }


def gpu(name: str, n: int) -> dict[str, Any]:
    """Accuracy and seconds of a default fit on LabelMe, on the CPU and on the GPU."""
    data = load_labelme()
    return _on_both(
        lambda device: ON_GPU[name](random_state=1, device=device),
        (data.X_train, data.annotations),
        lambda model: float((model.predict(data.X_test) == data.y_test).mean()),
    )


def _on_both(make: Any, given: tuple[Any, Any], measured: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    found["date"] = date.today().isoformat()
    demo = mh.load_demo()
    for device in ("cpu", "cuda"):
        # What loading torch and starting the GPU take is no part of a fit.
        mh.CrowdLayerClassifier(max_epochs=1, device=device).fit(demo.X_train, demo.annotations)
        started = time.perf_counter()
        model = make(device).fit(*given)
        found[f"{device} seconds"] = time.perf_counter() - started
        found[device] = measured(model)
    return found


# -- running them ---------------------------------------------------------------------------------

KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "curve": curve,
    "images": images,
    "killed": killed,
    "mapped": mapped,
    "low_rank": low_rank,
    "gpu": gpu,
    "gpu_images": gpu_images,
}


def spawn(kind: str, what: str, n: int, *options: str, folder: str = "") -> Record:
    """Run a case in n processes and read what the first found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m"]
    if n > 1:
        command += ["torch.distributed.run", "--nproc-per-node", str(n), *options]
        command += ["--master-addr", "127.0.0.1", "--master-port", port, "--module"]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "found.json"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        load = os.getloadavg()[0]
        case = json.dumps([kind, what, n, folder, str(out)])
        command += ["benchmarks.devices", "--case", case]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, cwd=ROOT
        )
        if not out.exists():
            raise RuntimeError(done.stderr[-3000:])
        return {**json.loads(out.read_text()), "load": round(load, 1)}


def run_case(kind: str, what: str, n: int, folder: str, out: str) -> None:
    """Run a case in this process; the first process writes what was found."""
    warnings.simplefilter("ignore")
    found = KINDS[kind](what, n, *([Path(folder)] if folder else []))
    if os.environ.get("RANK", "0") == "0":
        Path(out).write_text(json.dumps(found))


def cells() -> Iterator[Record]:
    """Yield the cases by name."""
    names = [f"mapped {kind}" for kind in ("memory", "mapped")]
    names += [f"{kind} {method} {n}" for kind in PAIRS for method in METHODS for n in (1, 2)]
    names += [f"killed {method}" for method in METHODS]
    names.append("low_rank")
    if torch.cuda.is_available():
        names += [f"gpu {method}" for method in ON_GPU]
        names += [f"gpu_images {method}" for method in METHODS]
    yield from ({"case": name} for name in names)


def measure(case: str) -> Record:
    """Run a case in processes of its own."""
    kind, _, what = case.partition(" ")
    if kind in PAIRS:
        method, _, n = what.rpartition(" ")
        return spawn(kind, method, int(n))
    if kind != "killed":
        return spawn(kind, what, 1)
    with tempfile.TemporaryDirectory() as folder:
        whole = spawn(kind, what, 2, folder=folder)
        (Path(folder) / "kill").touch()
        found = spawn(kind, what, 2, "--max-restarts", "1", folder=folder)
    return {
        "restarts": found["restarts"],
        "loss": abs(whole["losses"][-1] - found["losses"][-1]),
        "proba": float(np.abs(np.array(whole["proba"]) - found["proba"]).max()),
        "load": found["load"],
    }


# -- the page -------------------------------------------------------------------------------------

PAIRS = {"curve": "LabelMe", "images": "images"}
"""Cases that one process and two run."""


GPU = {"cpu": "CPU", "cuda": "GPU"}


def page(records: list[Record]) -> dict[str, Any]:
    """The tables, by kind of case."""
    found = {r["case"]: r for r in records}
    pairs = []
    for method in METHODS:
        for kind, name in PAIRS.items():
            one, two = (found.get(f"{kind} {method} {n}") for n in (1, 2))
            if one is not None and two is not None:
                gap = np.abs(np.array(one["losses"]) - two["losses"]).max()
                seconds = [f"{each['seconds']:.2f} ({each['load']})" for each in (one, two)]
                pairs.append([method, name, f"{gap:.1e}", *seconds])
    deaths = [
        [method, str(case["restarts"]), f"{case['loss']:.1e}", f"{case['proba']:.1e}"]
        for method in METHODS
        if (case := found.get(f"killed {method}"))
    ]
    ranks = [
        [str(rank), "100, 64" if rank is None else str(rank)]
        + [spread(found["low_rank"][f"{name} {rank}"], 3) for name in ("demo", "LabelMe")]
        for rank in RANKS
        if "low_rank" in found
    ]
    heads = ["method", "data", "largest difference of the losses"]
    restarts = ["method", "restarts", "difference of the last loss"]
    gaps = [float(row[2]) for row in pairs]
    values: dict[str, Any] = {
        **({"gap": max(gaps)} if gaps else {}),
        "cores": os.cpu_count(),
        "pairs": table([*heads, "s, one process (load)", "s, two (load)"], pairs),
        "killed": table([*restarts, "largest difference of a probability"], deaths),
        "ranks": table(["`low_rank`", "numbers", "demo", "LabelMe"], ranks),
    }
    memory, file = (found.get(f"mapped {kind}") for kind in ("memory", "mapped"))
    if memory and file:
        same = memory["loss"] == file["loss"] and memory["proba"] == file["proba"]
        values["saved"] = 100 * (1 - file["mb"] / memory["mb"])
        values |= {"memory": memory, "file": file, "equal": "equal" if same else "NOT equal"}
    on_gpu = {name: case for name, case in found.items() if name.startswith("gpu")}
    if on_gpu:
        rows = {n: on_gpu[f"gpu {n}"] for n in ON_GPU if f"gpu {n}" in on_gpu}
        images = {n: on_gpu[f"gpu_images {n}"] for n in METHODS if f"gpu_images {n}" in on_gpu}
        missing = [name for name in ON_GPU if f"gpu {name}" not in on_gpu]
        values |= {
            "gpu": next(iter(on_gpu.values())),
            "on_gpu": crossed("classifier", [*rows], GPU, lambda n, d: f"{rows[n][d]:.3f}"),
            "missing": f"Not run there: {', '.join(missing)}." if missing else "",
            "images": crossed(
                "method", [*images], GPU, lambda n, d: f"{images[n][d]:.{3 if d == 'cuda' else 2}f}"
            ),
        }
        times = [case["cpu"] / case["cuda"] for case in images.values()]
        values |= {"least": min(times), "most": max(times)} if times else {}
    return values


def drawing(records: list[Record]) -> str:
    """Draw the memory of a fit whose features are mapped, or loaded."""
    found = {r["case"]: r for r in records}
    rows = [
        Bar(f"np.load(path{how})", own["mb"], f"{own['mb']:,.0f} MB", kind == "mapped")
        for kind, how in (("mapped", ", mmap_mode='r'"), ("memory", ""))
        if (own := found.get(f"mapped {kind}"))
    ]
    return bars("Memory that a fit and a prediction add", rows)


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"devices-memory.svg": drawing(records)},
    data=lambda cell: (
        [] if cell["case"].split()[0] in ("images", "killed", "mapped") else ["labelme"]
    ),
)

if __name__ == "__main__":
    if "--case" in sys.argv:
        run_case(*json.loads(sys.argv[-1]))
    else:
        STUDY.main()
