"""Devices of a training: processes on several devices, and the random numbers of each device.

A fit with `Devices` needs one process for every device. Random numbers that a fit draws leave
torch's global state unchanged.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.functional.ranks import Ranks, active_ranks, working_together

PRECISIONS = {
    "32-true": torch.float32,
    "64-true": torch.float64,
    "bf16-mixed": torch.float32,
}
"""Precisions of a training, and the type of its weights in each."""

ACCELERATORS = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Devices:
    """Several devices to train a network on: ``device=Devices(...)`` of a crowd classifier.

    Every device has a process of its own, started by ``torchrun`` or ``manyhands fit --devices``.
    All processes run the same script; in `fit` they train one network. See ``docs/devices.md``.

    Parameters
    ----------
    devices : int, default=1
        Number of processes on every machine, each with one GPU, or on the CPU.
    num_nodes : int, default=1
        Number of machines.
    strategy : {"ddp"}, default="ddp"
        Every process holds the whole network and computes its part of every batch; the gradients
        are averaged.
    precision : {"32-true", "64-true", "bf16-mixed"}, default="32-true"
        "64-true" trains in double precision. "bf16-mixed" computes the network in bfloat16; the
        weights, the layers of the annotators and the losses stay in single precision. A fitted
        network is always in single precision.
    accelerator : {"auto", "cpu", "cuda"}, default="auto"
        "auto" is "cuda" where there is one.

    Raises
    ------
    AnnotationError
        If a value is not one of these.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier
    >>> model = CrowdLayerClassifier(device=Devices(2, precision="bf16-mixed"))
    >>> model.device.n_processes
    2
    """

    devices: int = 1
    num_nodes: int = 1
    strategy: str = "ddp"
    precision: str = "32-true"
    accelerator: str = "auto"

    def __post_init__(self) -> None:
        """Raise an error for unknown values."""
        for name in ("devices", "num_nodes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise AnnotationError(f"{name}={value!r} must be an integer of 1 or more")
        if self.strategy != "ddp":
            raise AnnotationError(
                f"strategy={self.strategy!r} is not supported: the layers of the annotators and "
                "the losses need the whole network in every process; use 'ddp'"
            )
        if self.precision not in PRECISIONS:
            hint = ""
            if self.precision.startswith("16"):
                hint = " (half precision needs scaled losses; bfloat16 does not)"
            raise AnnotationError(
                f"precision={self.precision!r} is not supported{hint}; use one of "
                f"{', '.join(PRECISIONS)}"
            )
        if self.accelerator not in ACCELERATORS:
            raise AnnotationError(
                f"accelerator={self.accelerator!r} is unknown; use one of {', '.join(ACCELERATORS)}"
            )

    @property
    def n_processes(self) -> int:
        """Number of processes on all machines."""
        return self.devices * self.num_nodes

    @contextmanager
    def joined(self) -> Iterator[Ranks]:
        """Divide computations among the processes inside the block.

        `fit` does this by itself. Around `predict_proba` and similar methods it divides a
        prediction among the processes: all of them must enter the block, and each gets the whole
        result.

        Yields
        ------
        Ranks
            This process's rank, the number of processes, and the device.

        Raises
        ------
        AnnotationError
            If the number of processes differs from ``devices * num_nodes``.
        MissingExtraError
            For several processes, without the extra "torch".
        """
        ranks = active_ranks()
        if ranks is not None:
            yield ranks
            return
        ranks = _start(self)
        hook = register_optimizer_step_pre_hook(_before_step)
        try:
            with working_together(ranks), warnings.catch_warnings():
                if not ranks.is_first:
                    warnings.simplefilter("ignore")  # The first process gives the same warnings.
                yield ranks
        finally:
            hook.remove()


def _before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    ranks = active_ranks()
    if ranks is not None:
        ranks.average_gradients(optimizer)


@lru_cache
def _start(devices: Devices) -> Ranks:
    """Join the process group, once per process, and return this process's rank in it."""
    _check_processes(devices)
    rank, size, device = (0, 1, _only_device(devices.accelerator))
    if devices.n_processes > 1:
        rank, size, device = _launched(devices)
    autocast: Any = nullcontext
    if devices.precision == "bf16-mixed":
        autocast = partial(torch.autocast, device.type, torch.bfloat16)
    return Ranks(rank, size, device, PRECISIONS[devices.precision], autocast)


def _launched(devices: Devices) -> tuple[int, int, torch.device]:
    """Return the rank, the number of processes and the device, as Fabric assigns them."""
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise_missing_extra("training on several devices", "torch", error)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator=devices.accelerator,
        devices=devices.devices,
        num_nodes=devices.num_nodes,
        strategy=devices.strategy,
    )
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not dist.is_initialized():
        _join_attempt(devices.n_processes, fabric.device.type)
    fabric.launch()  # The processes already run; this makes them a group if they are none yet.
    return fabric.global_rank, fabric.world_size, fabric.device


def _join_attempt(n: int, device_type: str) -> None:
    """Form a new process group for this attempt of torchrun.

    torchrun's static rendezvous keeps the addresses of processes that have died, and restarted
    processes would wait for them.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, n, is_master=False)  # type: ignore[attr-defined]
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        "nccl" if device_type == "cuda" else "gloo",
        store=dist.PrefixStore(f"manyhands/{attempt}", store),  # type: ignore[attr-defined]
        rank=int(os.environ["RANK"]),
        world_size=n,
    )


def _only_device(accelerator: str) -> torch.device:
    with working_together(None):
        return pick_device(accelerator)


def _check_processes(devices: Devices) -> None:
    n = devices.n_processes
    tasks = os.environ.get("SLURM_NTASKS", "1") if n > 1 else "1"
    found = int(os.environ.get("WORLD_SIZE", tasks))
    if found != n:
        command = f"torchrun --nproc-per-node {devices.devices}"
        if devices.num_nodes > 1:
            command += f" --nnodes {devices.num_nodes}"
        raise AnnotationError(
            f"device={devices!r} needs {n} process{'es' if n > 1 else ''}, and there "
            f"{'is 1' if found == 1 else f'are {found}'}; start the script with '{command} "
            "script.py', or use 'manyhands fit --devices'"
        )
    if n > 1 and multiprocessing.current_process().name != "MainProcess":
        raise AnnotationError(
            f"device={devices!r} in a process of joblib or multiprocessing, which belongs to no "
            "group; leave n_jobs out"
        )


@contextmanager
def joined(estimator: BaseEstimator | Any, refusal: str | None = None) -> Iterator[Ranks | None]:
    """Divide computations among the processes of the `Devices` in an estimator's parameters.

    Without `Devices`, and inside another such block, nothing changes.

    Parameters
    ----------
    estimator : estimator
    refusal : str, optional
        Why the estimator's work cannot be divided, as the end of a sentence about it.

    Raises
    ------
    AnnotationError
        If the estimator asks for several processes, and there is a refusal.
    """
    wanted = devices_of(estimator)
    if wanted is not None and wanted.n_processes > 1 and refusal is not None:
        raise AnnotationError(
            f"device={wanted!r}: {type(estimator).__name__} {refusal}, so it cannot "
            "be divided among processes; leave device out, or use a method that is trained by "
            "gradient steps, such as CrowdLayerClassifier"
        )
    if wanted is None or active_ranks() is not None:
        yield active_ranks()
        return
    with wanted.joined() as ranks:
        yield ranks


def devices_of(estimator: Any) -> Devices | None:
    """Return the `Devices` among the parameters of an estimator and its parts; None if none."""
    if isinstance(estimator, list | tuple):
        return next(filter(None, map(devices_of, estimator)), None)
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        return None
    values = estimator.get_params().values()
    found = (value for value in values if isinstance(value, Devices | list | tuple))
    return next(filter(None, (v if isinstance(v, Devices) else devices_of(v) for v in found)), None)


# -- one device, and its random numbers -----------------------------------------------------------

# The default generators are global: fits in other threads wait instead of sharing them.
_LOCK = threading.RLock()


@contextmanager
def isolated_rng(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's default generators inside the block; restore them afterwards.

    Dropout and weight initialisation draw from torch's default generators. They cannot be avoided
    and are forked instead, for the CPU and the device in use.
    """
    devices: list[int] = []
    if device.type == "cuda":
        devices = [torch.cuda.current_device() if device.index is None else device.index]
    with _LOCK, torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        for index in devices:
            with torch.cuda.device(index):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Create tensors without an explicit type, such as noise, with this one inside the block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def generator_of_workers() -> torch.Generator:
    """Make the generator that seeds a DataLoader's workers, without drawing from torch's own.

    Its seed is a digest of the state of torch's generator. A fit therefore draws the same numbers
    with and without workers, and different ones in every epoch.
    """
    state = torch.get_rng_state().numpy().tobytes()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(blake2b(state, digest_size=7).digest()))
    return generator


def random_state_of(device: torch.device) -> dict[str, Tensor]:
    """Return the state of torch's default generators, for a checkpoint."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Restore the state returned by `random_state_of`."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve a device; ``"auto"`` is CUDA if available, else the CPU.

    Within a training on several devices, it is always the one of this process.

    Raises
    ------
    ValueError
        If the device is unknown, or is CUDA but no CUDA device is available.
    """
    ranks = active_ranks()
    if ranks is not None:
        return ranks.device
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={device!r} is unknown here; use 'auto', 'cpu' or 'cuda'"
        ) from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}, but no CUDA device is available; use 'auto' or 'cpu'")
    return chosen
