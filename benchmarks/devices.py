"""Training on two processes against one, and on a GPU: loss curves, seconds, memory.

Run, with MANYHANDS_DATA set: ``OMP_NUM_THREADS=1 python benchmarks/devices.py --out
docs/results/devices.md``. Every case runs in processes of its own, with one thread each, on the CPU
(gloo); the cases named *gpu* run on both, and only where there is a GPU. What is in the records
(``results/benchmarks/devices.jsonl``) is not repeated. Loss curves are compared in double
precision, without dropout.
"""

from __future__ import annotations

import argparse
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
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyhands import (
    CoNALClassifier,
    CrowdLayerClassifier,
    all_classifiers,
    load_demo,
    make_crowd,
)
from manyhands.datasets import load_labelme
from manyhands.io import write_atomically
from manyhands.training import Callback, Devices

METHODS: dict[str, Any] = {"Crowd Layer": CrowdLayerClassifier, "CoNAL": CoNALClassifier}
EPOCHS, KILL_AT = 10, 4
RANKS = (None, 1, 2, 4, 8)
SEEDS = range(1, 4)
RECORDS = Path(__file__).parents[1] / "results" / "benchmarks" / "devices.jsonl"
HEAD = """# Several devices

Written on {date} by `OMP_NUM_THREADS=1 python benchmarks/devices.py`, on the CPU with one thread a
process; two processes are on one machine of {cores} cores and talk by gloo. The load average of the
machine stands beside the seconds: above the number of cores, processes wait for each other, and
two are no faster than one. The part on a GPU says where it was measured.
"""

ON_GPU = {name: cls for name, cls in all_classifiers() if "device" in cls().get_params()}
"""Classifiers that train networks."""


# -- cases, each in processes of its own ----------------------------------------------------------


def first() -> bool:
    """Whether this process writes the record."""
    return os.environ.get("RANK", "0") == "0"


def curve(method: str, n: int) -> dict[str, Any]:
    """Loss of every epoch on LabelMe, in double precision."""
    data = load_labelme()
    model = METHODS[method](
        {"name": "mlp", "dropout": 0.0},
        max_epochs=EPOCHS,
        random_state=0,
        device=Devices(n, precision="64-true", accelerator="cpu"),
    ).fit(data.X_train, data.annotations)
    return {
        "losses": model.history_.column("loss").tolist(),
        "seconds": float(np.median(model.history_.column("seconds"))),
        "instances": len(data.X_train),
    }


def images(method: str, n: int) -> dict[str, Any]:
    """Seconds of an epoch where the network is what costs: convolutions on made-up images."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 512)
    X = rng.normal(size=(512, 3, 32, 32)).astype(np.float32)
    model = METHODS[method](
        {"name": "cnn", "dropout": 0.0},
        max_epochs=3,
        random_state=0,
        device=Devices(n, accelerator="cpu"),
    ).fit(X, make_crowd(y, random_state=0))
    return {
        "losses": model.history_.column("loss").tolist(),
        "seconds": float(np.median(model.history_.column("seconds"))),
        "instances": len(X),
    }


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
    demo = load_demo()
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


def low_rank() -> dict[str, Any]:
    """Test accuracy of Crowd Layer by rank on the demo and on LabelMe."""
    found: dict[str, Any] = {}
    for name, data in (("demo", load_demo()), ("LabelMe", load_labelme())):
        for rank in RANKS:
            found[f"{name} {rank}"] = [
                CrowdLayerClassifier(low_rank=rank, max_epochs=40, random_state=seed)
                .fit(data.X_train, data.annotations)
                .score(data.X_test, data.y_test)
                for seed in SEEDS
            ]
    return found


class Memory(threading.Thread):
    """Watches the memory of this process that belongs to no file, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = self.now(), False

    @staticmethod
    def now() -> float:
        """Anonymous resident memory."""
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024 / 1e6
        return float("nan")

    def run(self) -> None:
        """Look every 10 ms."""
        while not self.ended:
            self.most = max(self.most, self.now())
            time.sleep(0.01)


def mapped(in_memory: bool) -> dict[str, Any]:
    """Memory of a fit and a prediction on features in a file."""
    rng = np.random.default_rng(0)
    n, width = 100_000, 1024
    y = rng.integers(0, 5, n)
    table = make_crowd(y, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        file = np.lib.format.open_memmap(path, "w+", np.float16, (n, width))
        for start in range(0, n, 10_000):
            part = (
                rng.normal(size=(10_000, width)) + 2 * np.eye(5, width)[y[start : start + 10_000]]
            )
            file[start : start + 10_000] = part
        file.flush()
        del file
        watch = Memory()
        before = watch.now()
        watch.start()
        X = np.load(path, mmap_mode=None if in_memory else "r")
        model = CrowdLayerClassifier(max_epochs=1, batch_size=512, random_state=0, device="cpu")
        proba = model.fit(X, table).predict_proba(X)
        watch.ended = True
        return {
            "mb": watch.most - before,
            "file": n * width * 2 / 1e6,
            "loss": model.history_[0]["loss"],
            "proba": float(proba[:, 0].sum()),
        }


def on_gpu(name: str) -> dict[str, Any]:
    """Accuracy and seconds of a default fit on LabelMe, on the CPU and on the GPU."""
    data = load_labelme()
    return _on_both(
        lambda device: ON_GPU[name](random_state=1, device=device),
        (data.X_train, data.annotations),
        lambda model: float((model.predict(data.X_test) == data.y_test).mean()),
    )


def images_on_gpu(method: str) -> dict[str, Any]:
    """Seconds of an epoch of VGG-16 on 512 made-up images, on the CPU and on the GPU."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 512)
    X = rng.normal(size=(512, 3, 32, 32)).astype(np.float32)
    return _on_both(
        lambda device: METHODS[method](
            "vgg16", max_epochs=3, init_scale=2.0, random_state=0, device=device
        ),
        (X, make_crowd(y, random_state=0)),
        lambda model: float(np.median(model.history_.column("seconds"))),
    )


def _on_both(make: Any, given: tuple[Any, Any], measured: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    found["date"] = date.today().isoformat()
    demo = load_demo()
    for device in ("cpu", "cuda"):
        # What loading torch and starting the GPU take is no part of a fit.
        CrowdLayerClassifier(max_epochs=1, device=device).fit(demo.X_train, demo.annotations)
        started = time.perf_counter()
        model = make(device).fit(*given)
        found[f"{device} seconds"] = time.perf_counter() - started
        found[device] = measured(model)
    return found


# -- running them ---------------------------------------------------------------------------------


def spawn(case: list[str], n: int, *options: str) -> dict[str, Any]:
    """Run a case in n processes and read what the first found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable]
    if n > 1:
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(n), *options]
        command += ["--master-addr", "127.0.0.1", "--master-port", port]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        load = os.getloadavg()[0]
        done = subprocess.run(
            [*command, __file__, "--case", *case, str(n), "--out", str(out)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if not out.exists():
            raise RuntimeError(done.stderr[-3000:])
        return {**json.loads(out.read_text()), "load": round(load, 1)}


def run_case(case: list[str], out: Path) -> None:
    """Run a case in this process."""
    warnings.simplefilter("ignore")
    name, *rest = case
    found: dict[str, Any]
    if name == "curve":
        found = curve(rest[0], int(rest[1]))
    elif name == "images":
        found = images(rest[0], int(rest[1]))
    elif name == "killed":
        found = killed(rest[0], int(rest[2]), Path(rest[1]))
    elif name == "low_rank":
        found = low_rank()
    elif name == "gpu":
        found = on_gpu(rest[0])
    elif name == "gpu_images":
        found = images_on_gpu(rest[0])
    else:
        found = mapped(rest[0] == "memory")
    if first():
        out.write_text(json.dumps(found))


def all_cases() -> dict[str, Any]:
    """Name of each case, and how it is run."""
    cases: dict[str, Any] = {}
    for method in METHODS:
        for n in (1, 2):
            cases[f"curve {method} {n}"] = lambda m=method, n=n: spawn(["curve", m], n)
        cases[f"killed {method}"] = lambda m=method: kill_one(m)
    for kind in ("memory", "mapped"):
        cases[f"mapped {kind}"] = lambda k=kind: spawn(["mapped", k], 1)
    for method in METHODS:
        for n in (1, 2):
            cases[f"images {method} {n}"] = lambda m=method, n=n: spawn(["images", m], n)
    cases["low_rank"] = lambda: spawn(["low_rank"], 1)
    if torch.cuda.is_available():
        for method in ON_GPU:
            cases[f"gpu {method}"] = lambda m=method: spawn(["gpu", m], 1)
        for method in METHODS:
            cases[f"gpu_images {method}"] = lambda m=method: spawn(["gpu_images", m], 1)
    return cases


def kill_one(method: str) -> dict[str, Any]:
    """Compare a run that loses a process with one that does not."""
    with tempfile.TemporaryDirectory() as folder:
        whole = spawn(["killed", method, folder], 2)
        (Path(folder) / "kill").touch()
        found = spawn(["killed", method, folder], 2, "--max-restarts", "1")
    return {
        "restarts": found["restarts"],
        "loss": abs(whole["losses"][-1] - found["losses"][-1]),
        "proba": float(np.abs(np.array(whole["proba"]) - found["proba"]).max()),
        "load": found["load"],
    }


# -- the page -------------------------------------------------------------------------------------


def page(found: dict[str, Any]) -> str:
    """The page of results."""
    head = HEAD.format(date=date.today().isoformat(), cores=os.cpu_count())
    lines = [head, "## Two processes against one", ""]
    lines += [
        f"*LabelMe*: 128 units on 8,192 features, no dropout, double precision, {EPOCHS} epochs; "
        "*images*: convolutions on 512 made-up images of 32 x 32, single precision, 3 epochs. "
        "Batches of 128. Seconds are those of an epoch (median).",
        "",
        "| method | data | largest difference of the losses | s, one process (load) "
        "| s, two (load) |",
        "|---|---|---|---|---|",
    ]
    for method in METHODS:
        for case, name in (("curve", "LabelMe"), ("images", "images")):
            one, two = (found.get(f"{case} {method} {n}") for n in (1, 2))
            if one is None or two is None:
                lines.append(f"| {method} | {name} | not run | | |")
                continue
            gap = np.abs(np.array(one["losses"]) - two["losses"]).max()
            lines.append(
                f"| {method} | {name} | {gap:.1e} | {one['seconds']:.2f} ({one['load']}) "
                f"| {two['seconds']:.2f} ({two['load']}) |"
            )
    lines += [
        "",
        "## A killed process",
        "",
        f"The second of two processes is killed (SIGKILL) in epoch {KILL_AT + 1} of {EPOCHS}, and "
        "`torchrun --max-restarts 1` starts both again; they go on from the checkpoint. The "
        "network has dropout. Against an uninterrupted run of two processes, on the demo:",
        "",
        "| method | restarts | difference of the last loss | largest difference of a probability |",
        "|---|---|---|---|",
    ]
    for method in METHODS:
        case = found[f"killed {method}"]
        lines.append(
            f"| {method} | {case['restarts']} | {case['loss']:.1e} | {case['proba']:.1e} |"
        )
    lines += [
        "",
        "## Matrices of low rank",
        "",
        f"`CrowdLayerClassifier(low_rank=...)`, {len(SEEDS)} seeds, 40 epochs: test accuracy, mean "
        "± sd. *Numbers*: parameters of an annotator among 10 (the demo) and 8 classes.",
        "",
        "| `low_rank` | numbers | demo | LabelMe |",
        "|---|---|---|---|",
    ]
    for rank in RANKS:
        own = [found.get("low_rank", {}).get(f"{n} {rank}", []) for n in ("demo", "LabelMe")]
        if not all(own):
            lines.append(f"| {rank} | {'100, 64' if rank is None else rank} | not run | not run |")
            continue
        shown = [f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}" for values in own]
        lines.append(f"| {rank} | {'100, 64' if rank is None else rank} | {' | '.join(shown)} |")
    lines += ["", "## A mapped file", ""]
    memory, file = found["mapped memory"], found["mapped mapped"]
    same = memory["loss"] == file["loss"] and memory["proba"] == file["proba"]
    lines += [
        f"100,000 instances of 1,024 features in half precision, a file of {file['file']:,.0f} MB; "
        "Crowd Layer for one epoch, and a prediction of all. Memory of the process that belongs to "
        "no file, above that before: "
        f"**{file['mb']:,.0f} MB** with `np.load(path, mmap_mode='r')`, {memory['mb']:,.0f} MB "
        f"with `np.load(path)`. Losses and predictions are {'equal' if same else 'NOT equal'}.",
        "",
        *gpu_part({name: one for name, one in found.items() if name.startswith("gpu")}),
    ]
    return "\n".join(lines)


def gpu_part(found: dict[str, Any]) -> list[str]:
    """What a GPU changes; nothing where none was there."""
    if not found:
        return []
    one = next(iter(found.values()))
    lines = [
        "## On a GPU",
        "",
        f"{one['gpu']}, torch {one['torch']}, {one['date']}; the CPU is that of the same machine, "
        "with one thread. Up to ten processes shared the GPU, which leaves the seconds of small "
        "networks without meaning: they are in the records alone. Classifiers that train networks, "
        "by default on LabelMe, seed 1: test accuracy. Random numbers of dropout differ between "
        "devices, so accuracies differ as between seeds.",
        "",
        "| classifier | CPU | GPU |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {case['cpu']:.3f} | {case['cuda']:.3f} |"
        for name in ON_GPU
        if (case := found.get(f"gpu {name}"))
    ]
    missing = [name for name in ON_GPU if f"gpu {name}" not in found]
    if missing:
        lines += ["", f"Not run there: {', '.join(missing)}."]
    lines += [
        "",
        "VGG-16 on 512 made-up images of 32 x 32, batches of 128: seconds of an epoch (median of "
        "3). [CrowdInG's rows of images](crowding2021.md) were run on this GPU, too.",
        "",
        "| method | CPU | GPU |",
        "|---|---|---|",
    ]
    lines += [
        f"| {method} | {case['cpu']:.2f} | {case['cuda']:.3f} |"
        for method in METHODS
        if (case := found.get(f"gpu_images {method}"))
    ]
    return [*lines, ""]


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--case", nargs="+")
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case, arguments.out)
        return
    records = arguments.records or RECORDS
    found: dict[str, Any] = {}
    if records.exists():
        for line in records.read_text().splitlines():
            found |= json.loads(line)
    for name, run in all_cases().items():
        if name not in found:
            found[name] = run()
            with records.open("a") as file:
                file.write(json.dumps({name: found[name]}) + "\n")
            sys.stdout.write(f"{name}: done\n")
            sys.stdout.flush()
    write_atomically(arguments.out, page(found))


if __name__ == "__main__":
    main()
