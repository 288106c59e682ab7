"""The options of several devices, and the processes of a command that uses them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Optional

import typer

from manyhands.cli.output import note
from manyhands.exceptions import AnnotationError

GRACE = 10.0
"""Seconds in which the other processes may end by themselves after one has failed."""

DevicesOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--devices",
        min=1,
        help="Number of processes that train a network together, each on a device of its own.",
    ),
]
NodesOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--num-nodes",
        min=1,
        help="Number of machines. Start the command on each of them with torchrun.",
    ),
]
StrategyOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="How the processes share the work. Only ddp is possible: every process holds the "
        "whole network and computes its part of every batch.",
    ),
]
PrecisionOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--precision",
        metavar="NAME",
        help="Precision of the computation: 32-true, bf16-mixed or 64-true.",
    ),
]


@dataclass(frozen=True)
class DeviceOptions:
    """The options ``--devices``, ``--num-nodes``, ``--strategy`` and ``--precision``."""

    panel: ClassVar[str] = "Several devices"

    devices: DevicesOption = None
    num_nodes: NodesOption = None
    strategy: StrategyOption = None
    precision: PrecisionOption = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that were given, by name of the option."""
        return {
            f"--{name.replace('_', '-')}": value
            for name, value in vars(self).items()
            if value is not None
        }

    def give_to(self, estimator: Any) -> None:
        """Set the parameter ``device`` of an estimator, or of the one that it wraps.

        Raises
        ------
        AnnotationError
            If there is none, or the values are no `Devices`.
        """
        if not self.given:
            return
        option = " ".join(f"{name} {value}" for name, value in self.given.items())
        names = [n for n in estimator.get_params() if n.rpartition("__")[2] == "device"]
        name = type(estimator).__name__
        if hasattr(estimator, "estimator") and "estimator__device" not in names:
            names = [] if estimator.estimator is not None else ["estimator"]
        if not names:
            raise AnnotationError(
                f"{option}: {name} trains no network that devices could share; leave it out, or "
                "take another method, such as crowd-layer or conal"
            )
        from manyhands.training import Devices

        values = {key: value for key, value in vars(self).items() if value is not None}
        wanted = Devices(**values)
        if names == ["estimator"]:
            # The default of a wrapper.
            estimator.set_params(estimator=estimator.clone_estimator())
            names = ["estimator__device"]
        traits = getattr(estimator, "_traits", None)
        refusal = None if traits is None else traits.devices_refusal
        if refusal is not None and wanted.n_processes > 1:
            raise AnnotationError(
                f"{option}: {name} {refusal}, so it cannot be divided among processes; leave it "
                "out, or take another method, such as crowd-layer or conal"
            )
        estimator.set_params(**dict.fromkeys(names, wanted))

    @property
    def to_launch(self) -> int:
        """Number of processes that this one has to start; 0 if it is one of them, or alone.

        Raises
        ------
        AnnotationError
            If there are several machines, on each of which the command must be started.
        """
        n, nodes = self.devices or 1, self.num_nodes or 1
        if n * nodes == 1 or any(name in os.environ for name in ("WORLD_SIZE", "SLURM_NTASKS")):
            return 0
        if nodes > 1:
            raise AnnotationError(
                f"--num-nodes {nodes}: start the command on every machine, with torchrun "
                f"--nnodes {nodes} --nproc-per-node {n} --rdzv-backend c10d --rdzv-endpoint "
                "HOST:PORT -m manyhands fit ..."
            )
        return n

    @property
    def is_first(self) -> bool:
        """Whether this is the first of the processes that train together, which prints."""
        return not self.given or os.environ.get("RANK", "0") == "0"


def launch(n: int) -> int:
    """Run this command in n processes on this machine; return its exit code.

    Only the first process prints. If one fails, the others are stopped.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if sys.platform == "linux":
        # Else gloo asks for the address of the machine's name, which may not be known.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    threads = max(1, (os.cpu_count() or 1) // n)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    command = [sys.executable, "-m", "manyhands", *sys.argv[1:]]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(n):
                env = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                streams: Any = {} if not rank else {"stdout": subprocess.DEVNULL, "stderr": told}
                processes.append(subprocess.Popen(command, env=env, **streams))
            code = _wait(processes)
        except KeyboardInterrupt:
            for process in processes:
                process.wait()
            return 130
        finally:
            _stop(processes)
        if code and processes[0].returncode in (0, -signal.SIGTERM):
            told.seek(0)
            note(f"a process of the training failed; it wrote: {told.read()[-2000:]}")
    return code


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, or one has failed; return its code, the first process's if any."""
    failed: float | None = None
    while any(process.poll() is None for process in processes):
        if failed is None and any(process.poll() for process in processes):
            failed = time.monotonic()
        if failed is not None and time.monotonic() - failed > GRACE:
            break
        time.sleep(0.05)
    codes = [process.poll() for process in processes]
    code = next((code for code in codes if code), 0)
    return code if code >= 0 else 128 - code


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        process.wait()
